//! The views, against a comparison in memory.

use super::*;

/// One checkpoint of a made-up history.
#[derive(Debug, Clone)]
struct Made {
    session: &'static str,
    seq: u64,
    workspace: u8,
    trigger: &'static str,
    pruning: bool,
    entries: BTreeMap<String, Entry>,
}

/// What is at a path, by a small number: files of few contents and modes, links, folders, names
/// without content, and nothing.
fn made_entry(path: &str, what: u8) -> Option<Entry> {
    let made = match what {
        0..=3 => file(path, &format!("content {}", what % 3)),
        4 => Entry { mode: Mode::from_st_mode(0o755), ..file(path, "content 0") },
        5 | 6 => entry(path, EntryKind::Symlink { target: vec![b'a' + what].into() }),
        7 => dir(path),
        8 => Entry { mode: Mode::from_st_mode(0o700), ..dir(path) },
        9 => entry(path, EntryKind::Omitted { reason: OmitReason::Secret, rest: 0 }),
        10 => entry(path, EntryKind::Omitted { reason: OmitReason::Ignored, rest: 7 }),
        _ => return None,
    };
    Some(made)
}

fn history() -> impl Strategy<Value = Vec<Made>> {
    let edits = prop::collection::btree_map(0u8..150, 0u8..14, 0..40);
    let about = (0usize..2, 0u8..2, 0usize..5, prop::bool::weighted(0.15), 1u64..3);
    prop::collection::vec((about, edits), 1..14).prop_map(|steps| {
        let mut entries = BTreeMap::from([(String::new(), dir(""))]);
        let mut next = [0, 0];
        let mut history = Vec::new();
        for ((session, workspace, trigger, pruning, gap), edits) in steps {
            for (path, what) in edits {
                let path = format!("p{path:03}");
                match made_entry(&path, what) {
                    Some(entry) => entries.insert(path, entry),
                    None => entries.remove(&path),
                };
            }
            let triggers = ["turn-start", "turn-end", "turn-end", "manual", "pre-restore"];
            history.push(Made {
                session: ["one", "two"][session],
                seq: next[session],
                workspace,
                trigger: triggers[trigger],
                pruning,
                entries: entries.clone(),
            });
            next[session] += gap;
        }
        history
    })
}

fn record_history(history: &[Made]) -> Fixture {
    let mut fixture = Fixture::new();
    for made in history {
        let entries: Vec<_> = made.entries.values().cloned().collect();
        let tree = fixture.pages.add(&entries);
        let manifest = Manifest {
            workspace: WorkspaceId::from_bytes([made.workspace; 16]),
            trigger: Trigger::new(made.trigger).unwrap(),
            complete: made.seq % 3 != 0,
            ..manifest(id(made.session, made.seq), tree)
        };
        fixture.insert(&manifest).unwrap();
    }
    let marked: Vec<_> =
        history.iter().filter(|made| made.pruning).map(|made| id(made.session, made.seq)).collect();
    fixture.index.write("mark", |tx| tx.mark_pruning(&marked)).unwrap();
    fixture
}

/// What became of a path, or nothing; by the rules as docs/sql.md has them.
fn change(before: Option<&Entry>, after: Option<&Entry>) -> Option<&'static str> {
    let holds =
        |entry: &Entry| matches!(entry.kind, EntryKind::File { .. } | EntryKind::Symlink { .. });
    match (before, after) {
        (None, None) => None,
        (None, Some(after)) => holds(after).then_some("added"),
        (Some(before), None) => holds(before).then_some("deleted"),
        (Some(before), Some(after)) if before.kind.name() != after.kind.name() => Some("type"),
        (Some(before), Some(after)) if !holds(before) || before.is_same_state(after) => None,
        (Some(before), Some(after)) if before.is_same_content(after) => Some("mode"),
        _ => Some("modified"),
    }
}

/// The paths of two checkpoints and what became of each.
fn changes<'a>(before: Option<&'a Made>, after: &'a Made) -> Vec<(&'a str, &'static str)> {
    static EMPTY: BTreeMap<String, Entry> = BTreeMap::new();
    let old = before.map_or(&EMPTY, |made| &made.entries);
    let mut found = Vec::new();
    for path in old.keys().chain(after.entries.keys()).collect::<BTreeSet<_>>() {
        if let Some(change) = change(old.get(path), after.entries.get(path)) {
            found.push((path.as_str(), change));
        }
    }
    found
}

/// The rows of a view as the `sqlite3` program prints them, sorted.
/// That a query gives exactly these rows, in any order; a failure shows a few that differ.
fn assert_rows(fixture: &Fixture, sql: &str, mut expected: Vec<String>) {
    expected.sort();
    let found = printed(fixture, sql);
    if found != expected {
        let differ = |a: &[String], b: &[String]| {
            a.iter().filter(|row| !b.contains(row)).take(5).cloned().collect::<Vec<_>>()
        };
        let (more, less) = (differ(&found, &expected), differ(&expected, &found));
        panic!("{sql}\nnot expected: {more:#?}\nmissing: {less:#?}");
    }
}

fn check_views(history: &[Made]) {
    let fixture = record_history(history);
    let live: Vec<&Made> = history.iter().filter(|made| !made.pruning).collect();
    let lower = |made: &Made, fits: &dyn Fn(&Made) -> bool| -> Option<&Made> {
        let same = |other: &&&Made| {
            (other.session, other.workspace) == (made.session, made.workspace)
                && other.seq < made.seq
                && fits(other)
        };
        live.iter().filter(same).max_by_key(|other| other.seq).copied()
    };
    check_compared(&fixture, &live, &lower);
    check_turns(&fixture, &live, &lower);
    check_held(&fixture, &live);
}

type Lower<'a> = dyn Fn(&Made, &dyn Fn(&Made) -> bool) -> Option<&'a Made> + 'a;

fn check_compared(fixture: &Fixture, live: &[&Made], lower: &Lower<'_>) {
    let mut expected_changes = Vec::new();
    let mut expected_history = Vec::new();
    for made in live {
        let before = lower(made, &|_| true);
        for (path, change) in changes(before, made) {
            let Made { session, seq, .. } = made;
            if before.is_some() {
                expected_changes.push(format!("{session}|{seq}|{path}|{change}"));
            }
            let after = made.entries.get(path);
            let kind = after.map_or("", |entry| entry.kind.name());
            let mode = after.map_or(String::new(), |entry| entry.mode.to_string());
            let (hash, size) = match after.and_then(Entry::blob) {
                Some((hash, size)) => (hash.to_string(), size.to_string()),
                None => (String::new(), String::new()),
            };
            let row = format!("{session}|{seq}|{path}|{change}|{kind}|{mode}|{size}|{hash}");
            expected_history.push(row);
        }
    }
    let sql =
        "SELECT session, seq, path, change FROM changes WHERE path = CAST(path_bytes AS TEXT)";
    assert_rows(fixture, sql, expected_changes);
    let sql = "SELECT session, seq, path, change, kind, mode, size, hash FROM file_history";
    assert_rows(fixture, sql, expected_history);
}

fn check_turns(fixture: &Fixture, live: &[&Made], lower: &Lower<'_>) {
    let (mut turns, mut paths) = (Vec::new(), Vec::new());
    for end in live.iter().filter(|made| made.trigger == "turn-end") {
        let Some(start) = lower(end, &|made| made.trigger.starts_with("turn-")) else { continue };
        if start.trigger != "turn-start" {
            continue;
        }
        let found = changes(Some(start), end);
        let turn = format!("{}|{}|{}", end.session, start.seq, end.seq);
        let counts = ["added", "modified", "deleted", "mode", "type"]
            .map(|kind| found.iter().filter(|(_, change)| *change == kind).count().to_string());
        turns.push(format!("{turn}|{}", counts.join("|")));
        paths.extend(found.iter().map(|(path, change)| format!("{turn}|{path}|{change}")));
    }
    let sql = "SELECT session, start_seq, end_seq, added, modified, deleted, mode, type FROM turns";
    assert_rows(fixture, sql, turns);
    let sql = "SELECT session, start_seq, end_seq, path, change FROM turn_changes";
    assert_rows(fixture, sql, paths);
}

fn check_held(fixture: &Fixture, live: &[&Made]) {
    let (mut files, mut omitted) = (Vec::new(), Vec::new());
    for made in live {
        let Made { session, seq, .. } = made;
        for (path, entry) in &made.entries {
            let row = format!("{session}|{seq}|{path}");
            match &entry.kind {
                EntryKind::File { size, mtime_ns, hash, .. } => {
                    files.push(format!("{row}|file|{}|{size}|{mtime_ns}|{hash}|", entry.mode));
                }
                EntryKind::Symlink { target } => {
                    let target = String::from_utf8_lossy(target);
                    files.push(format!("{row}|symlink|{}||||{target}", entry.mode));
                }
                EntryKind::Omitted { reason, rest } => {
                    omitted.push(format!("{row}|{reason}|{rest}"));
                }
                _ => {}
            }
        }
    }
    let sql = "SELECT session, seq, path, kind, mode, size, mtime_ns, hash, target
               FROM checkpoint_files";
    assert_rows(fixture, sql, files);
    let sql = "SELECT session, seq, path, reason, rest FROM omitted";
    assert_rows(fixture, sql, omitted);
    check_sums(fixture, live);
}

/// Files and bytes of a checkpoint.
fn sums(made: &Made) -> (u64, u64) {
    made.entries.values().fold((0, 0), |(files, bytes), entry| match entry.kind {
        EntryKind::File { size, .. } => (files + 1, bytes + size),
        EntryKind::Symlink { .. } => (files + 1, bytes),
        _ => (files, bytes),
    })
}

fn check_sums(fixture: &Fixture, live: &[&Made]) {
    let mut summaries = Vec::new();
    let mut blobs: BTreeMap<&str, HashMap<BlobHash, u64>> = BTreeMap::new();
    let mut storage: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for made in live {
        let entries: Vec<_> = made.entries.values().cloned().collect();
        let held = blobs.entry(made.session).or_default();
        held.extend(entries.iter().filter_map(Entry::blob));
        held.extend(
            build(&entries).pages.iter().map(|page| (page.reference.hash, page.reference.size)),
        );
        let session = storage.entry(made.session).or_default();
        *session = (session.0 + 1, session.1 + sums(made).1);
    }
    for (session, (checkpoints, _)) in &storage {
        let own = || live.iter().filter(|made| made.session == *session);
        let safety = own().filter(|made| made.trigger == "pre-restore").count() as u64;
        let latest = own().filter(|made| made.trigger != "pre-restore").max_by_key(|made| made.seq);
        let incomplete = own().filter(|made| made.seq % 3 == 0).count();
        let latest = latest.map_or("||".to_owned(), |made| {
            let (files, bytes) = sums(made);
            format!("{}|{files}|{bytes}", made.seq)
        });
        summaries
            .push(format!("{session}|{}|{safety}|{latest}|{incomplete}", checkpoints - safety));
    }
    let sql =
        "SELECT session, checkpoints, safety_checkpoints, latest_seq, files, bytes, incomplete
               FROM session_summary";
    assert_rows(fixture, sql, summaries);

    let all: HashMap<BlobHash, u64> = blobs.values().flatten().map(|(a, b)| (*a, *b)).collect();
    let holders = |hash: &BlobHash| blobs.values().filter(|held| held.contains_key(hash)).count();
    let row = |name: &str, (checkpoints, logical): (u64, u64), held: &HashMap<BlobHash, u64>| {
        let stored: u64 = held.values().sum();
        let unique: u64 =
            held.iter().filter(|(hash, _)| holders(hash) == 1).map(|(_, size)| size).sum();
        format!("{name}|{checkpoints}|{logical}|{stored}|{unique}|{}", stored - unique)
    };
    let mut expected: Vec<_> =
        storage.iter().map(|(session, sums)| row(session, *sums, &blobs[session])).collect();
    let total = storage.values().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    expected.push(row("", total, &all));
    assert_rows(fixture, "SELECT * FROM storage", expected);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..Default::default() })]

    #[test]
    fn views_say_what_a_comparison_in_memory_says(history in history()) {
        check_views(&history);
    }
}

#[test]
fn views_compare_trees_of_different_heights() {
    let made = |seq: u64, entries: Vec<Entry>| Made {
        session: "one",
        seq,
        workspace: 0,
        trigger: ["turn-start", "turn-end"][usize::try_from(seq % 2).unwrap()],
        pruning: false,
        entries: entries
            .into_iter()
            .map(|entry| (String::from_utf8(entry.path.as_bytes().to_vec()).unwrap(), entry))
            .collect(),
    };
    let mut edited = many(5_000);
    for at in [1, 77, 2_500, 5_000] {
        let path = format!("f{:05}", at - 1);
        edited[at] = file(&path, "edited");
    }
    let history: Vec<_> = [many(3), many(5_000), edited, many(100), many(5_000), many(5_000)]
        .into_iter()
        .zip(0u64..)
        .map(|(entries, seq)| made(seq, entries))
        .collect();
    let levels =
        |made: &Made| build(&made.entries.values().cloned().collect::<Vec<_>>()).tree.levels;
    assert_eq!(history.iter().map(levels).collect::<HashSet<_>>().len(), 3);
    check_views(&history);
}

#[test]
fn views_show_times_labels_and_names_that_are_not_text() {
    let mut fixture = Fixture::new();
    let odd = Entry { path: RelPath::new(&b"odd \xff"[..]).unwrap(), ..file("x", "x") };
    fixture.record(&id("s", 0), &[dir("")]);
    fixture.record(&id("s", 1), &[dir(""), odd]);
    let pin = PinFile { pinned: true, label: Some("kept".to_owned()), note: None };
    fixture.index.write("pin", |tx| tx.set_pin(&id("s", 1), &pin)).unwrap();
    let sql =
        "SELECT seq, created_at, workspace, workspace_root, label, trigger, pinned, files, bytes
               FROM checkpoint_list";
    let uuid = workspace().to_string();
    assert_eq!(
        printed(&fixture, sql),
        [
            format!("0|2026-11-30T11:35:00.123456789Z|{uuid}|/somewhere/project||manual|0|0|0"),
            format!("1|2026-11-30T11:35:00.123456789Z|{uuid}|/somewhere/project|kept|manual|1|1|1"),
        ]
    );
    let sql = "SELECT seq, hex(path_bytes), change FROM changes";
    assert_eq!(printed(&fixture, sql), ["1|6F646420FF|added"]);
    let sql = "SELECT hex(path_bytes), hash FROM checkpoint_files WHERE seq = 1";
    assert_eq!(printed(&fixture, sql), [format!("6F646420FF|{}", hash("x"))]);
}
