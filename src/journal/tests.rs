//! Journals that are not as they were written.

use proptest::prelude::*;

use super::*;
use crate::hash::BlobHash;
use crate::manifest::Listed;
use crate::mutation::{Change, assert_stays_inside, changed, changes, config, near};

fn sample(phase: JournalPhase) -> Journal {
    let reference = |seq| CheckpointRef {
        id: CheckpointId { session: "s".parse().unwrap(), seq: Seq::new(seq).unwrap() },
        digest: Digest::of(b"manifest"),
    };
    let entry = |path: &str, kind| Entry {
        path: RelPath::new(path).unwrap(),
        mode: Mode::from_st_mode(0o640),
        kind,
    };
    let hash = BlobHash::of(b"x");
    let file = |path| entry(path, EntryKind::File { size: 1, mtime_ns: -2, hash, unstable: false });
    let dir = entry("a", EntryKind::Dir { listed: Listed::Whole });
    let link = entry("c", EntryKind::Symlink { target: b"../\xff".as_slice().into() });
    let stamp = Stamp { inode: 1, size: 2, mtime_ns: -3, ctime_ns: i64::MAX, links: 1 };
    let action = |before: Option<Entry>, after: Option<Entry>| Action {
        path: before.as_ref().or(after.as_ref()).unwrap().path.clone(),
        before: before.map(|entry| (entry, stamp)),
        after,
    };
    Journal {
        operation: OperationId::from_bytes([1; 16]),
        workspace: WorkspaceId::from_bytes([2; 16]),
        root: DirectoryIdentity { device: 3, inode: 4, birth_ns: None },
        verb: RestoreVerb::Undo,
        target: reference(5),
        safety: (phase == JournalPhase::Applying).then(|| reference(6)),
        made_directory: true,
        preserve_mtime: false,
        phase,
        actions: vec![
            action(Some(dir.clone()), Some(dir)),
            action(None, Some(file("a/b"))),
            action(Some(file("a/c")), None),
            action(Some(link), Some(file("c"))),
        ],
    }
}

/// Which of its texts is changed.
#[derive(Debug, Clone, Copy)]
enum Part {
    Whole,
    Before,
    After,
    Both,
}

/// Changes a text, or one inside it, and makes the checksum right again where it still is a journal's.
fn changed_and_sealed(text: &[u8], part: Part, changes: &[Change]) -> Vec<u8> {
    let mut text = text.to_vec();
    if let Part::Whole = part {
        text = changed(&text, changes);
    }
    let Ok(mut wire) = serde_json::from_slice::<WireJournal>(&text) else { return text };
    let inner = |text: &mut String| {
        *text = String::from_utf8_lossy(&changed(text.as_bytes(), changes)).into_owned();
    };
    if let Part::Before | Part::Both = part {
        inner(&mut wire.before);
    }
    if let Part::After | Part::Both = part {
        inner(&mut wire.after);
    }
    wire.digest.clear();
    wire.digest = Digest::of(&serde_json::to_vec(&wire).unwrap()).to_string();
    serde_json::to_vec(&wire).unwrap()
}

/// What is taken for a journal tells a restore of nothing outside the workspace, and reads the same after
/// it is written again.
#[track_caller]
fn assert_sound(text: &[u8]) -> bool {
    let Ok(journal) = Journal::decode(text) else { return false };
    let paths = journal.actions.iter().map(|action| &action.path);
    assert!(paths.clone().is_sorted_by(|a, b| a < b));
    paths.for_each(|path| assert_stays_inside(path.as_bytes()));
    for Action { path, before, after } in &journal.actions {
        assert!(before.as_ref().is_none_or(|(entry, _)| entry.path == *path));
        assert!(after.as_ref().is_none_or(|entry| entry.path == *path));
    }
    assert!(journal.safety.is_some() || journal.phase == JournalPhase::Staging);
    for name in [journal.stage_name(), journal.kept_name()] {
        assert!(!name.contains(['/', '.', '\0']), "{name}");
    }
    assert_eq!(Journal::decode(&journal.encode()), Ok(journal));
    true
}

fn any_journal() -> impl Strategy<Value = Journal> {
    let phase = prop_oneof![Just(JournalPhase::Staging), Just(JournalPhase::Applying)];
    let count = 0..=4_usize;
    (phase, count).prop_map(|(phase, count)| {
        let mut journal = sample(phase);
        journal.actions.truncate(count);
        journal
    })
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_journal_reads_as_it_was_written(journal in any_journal()) {
        let text = journal.encode();
        prop_assert_eq!(Journal::decode(&text), Ok(journal));
        prop_assert!(assert_sound(&text));
    }

    /// Other bytes may say the same, with white space; what is said is not another thing.
    #[test]
    fn no_bytes_in_the_place_of_a_journal_do_harm(
        text in near(Just(sample(JournalPhase::Applying).encode())),
    ) {
        if assert_sound(&text) {
            prop_assert_eq!(Journal::decode(&text), Ok(sample(JournalPhase::Applying)));
        }
    }

    #[test]
    fn a_changed_journal_with_its_checksum_made_right_is_sound_or_refused(
        journal in any_journal(),
        part in prop_oneof![
            Just(Part::Whole), Just(Part::Before), Just(Part::After), Just(Part::Both),
        ],
        changes in changes(),
    ) {
        assert_sound(&changed_and_sealed(&journal.encode(), part, &changes));
    }
}

#[test]
fn a_checksum_does_not_excuse_a_journal_that_contradicts_itself() {
    let good = sample(JournalPhase::Applying).encode();
    assert!(assert_sound(&changed_and_sealed(&good, Part::Whole, &[])));
    let wire = || -> WireJournal { serde_json::from_slice(&good).unwrap() };
    let mut cases: Vec<(&str, WireJournal)> = Vec::new();
    let mut add = |name, change: &dyn Fn(&mut WireJournal)| {
        let mut wire = wire();
        change(&mut wire);
        cases.push((name, wire));
    };
    add("a path leads out", &|wire| wire.after = wire.after.replace("a/b", "../b"));
    add("another path", &|wire| wire.after = wire.after.replace("a/b", "a/bb"));
    add("a list is longer", &|wire| wire.after = r#"{"level":0,"entries":[]}"#.to_owned());
    add("a stamp is missing", &|wire| wire.stamps.truncate(3));
    add("a stamp is of nothing", &|wire| wire.stamps[1] = wire.stamps[0]);
    add("no stamp is of something", &|wire| wire.stamps[0] = None);
    add("nothing was saved", &|wire| wire.safety = None);
    add("a newer one", &|wire| wire.format = 2);
    add("an operation that leads out", &|wire| wire.operation = "../../x".to_owned());
    add("a session that leads out", &|wire| wire.target.session = "..".to_owned());
    add("a number that is none", &|wire| wire.target.seq = u64::MAX);
    for (name, wire) in cases {
        let text = serde_json::to_vec(&wire).unwrap();
        assert!(!assert_sound(&changed_and_sealed(&text, Part::Whole, &[])), "{name}");
    }
}
