//! Manifests that are not as they were written.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::mutation::{Change, changed, changes, config, near};

fn any_reference() -> impl Strategy<Value = CheckpointRef> {
    ("[a-z0-9]{1,20}", 0..=Seq::MAX.get(), any::<u64>()).prop_map(|(session, seq, digest)| {
        let id = CheckpointId { session: session.parse().unwrap(), seq: Seq::new(seq).unwrap() };
        CheckpointRef { id, digest: Digest::of(&digest.to_le_bytes()) }
    })
}

fn any_tree() -> impl Strategy<Value = Tree> {
    (any::<u64>(), 0..=limits::PAGE_BYTES_MAX, 1..=limits::PAGE_LEVEL_MAX, any::<u64>()).prop_map(
        |(root, root_size, levels, entries)| Tree {
            root: BlobHash::of(&root.to_le_bytes()),
            root_size,
            levels,
            entries,
        },
    )
}

fn any_path() -> impl Strategy<Value = PathBuf> {
    prop_oneof!["/[a-z]{1,9}/\\PC{0,9}".prop_map(String::into_bytes), vec(any::<u8>(), 0..20)]
        .prop_map(|bytes| PathBuf::from(std::ffi::OsString::from_vec(bytes)))
}

fn any_scope() -> impl Strategy<Value = Scope> {
    let ignore_file = any_path().prop_map(|path| IgnoreFile { path, hash: BlobHash::of(b"rules") });
    let tracked = prop_oneof![Just(Tracked::Fresh), Just(Tracked::Stale), Just(Tracked::None)];
    (
        (any::<u64>(), option::of(any::<u64>()), any::<bool>()),
        vec("\\PC{0,6}", 0..3),
        vec(ignore_file, 0..3),
        tracked,
    )
        .prop_map(
            |((file_limit_bytes, total_limit_bytes, cross_mounts), names, files, tracked)| Scope {
                file_limit_bytes,
                total_limit_bytes,
                cross_mounts,
                excluded: names.clone(),
                secrets: names,
                ignore_files: files,
                ignore_digest: Digest::of(b"ignored"),
                tracked,
            },
        )
}

fn any_coverage() -> impl Strategy<Value = Coverage> {
    prop_oneof![
        Just(Coverage::Full),
        Just(Coverage::Paths),
        vec("\\PC{0,6}", 0..3).prop_map(Coverage::Hinted),
    ]
}

fn any_restore() -> impl Strategy<Value = RestoreRecord> {
    let verb = prop_oneof![Just(RestoreVerb::Restore), Just(RestoreVerb::Undo)];
    (verb, any_reference(), option::of(any_reference()), any_tree())
        .prop_map(|(verb, target, undoes, after)| RestoreRecord { verb, target, undoes, after })
}

fn any_manifest() -> impl Strategy<Value = Manifest> {
    let git = (option::of("[0-9a-f]{40}"), option::of("\\PC{0,12}"))
        .prop_map(|(head, branch)| GitState { head, branch });
    let counts = (any::<[u64; 5]>(), any::<bool>()).prop_map(|(numbers, is_any_omitted)| {
        let [files_observed, files_reused, files_read, bytes_read, bytes_stored] = numbers;
        let omitted = [(OmitReason::Ignored, 3), (OmitReason::Purged, u64::MAX)];
        let omitted = omitted.into_iter().filter(|_| is_any_omitted).collect();
        Counts { files_observed, files_reused, files_read, bytes_read, bytes_stored, omitted }
    });
    (
        (any_reference(), any::<i64>(), any_path(), option::of("\\PC{0,6}")),
        ("[a-z0-9-]{1,32}", option::of(any_reference()), any_scope(), any_coverage()),
        (any::<bool>(), option::of(git), option::of(any_restore()), any_tree(), counts),
    )
        .prop_map(|(first, second, third)| {
            let (CheckpointRef { id, .. }, created_at_ns, root_path, label) = first;
            let (trigger, parent, scope, coverage) = second;
            let (complete, git, restore, tree, counts) = third;
            Manifest {
                op: OperationId::from_bytes([7; 16]),
                id,
                created_at: Timestamp::from_ns(created_at_ns),
                workspace: WorkspaceId::from_bytes([8; 16]),
                root_path,
                label,
                trigger: Trigger::new(&trigger).unwrap(),
                parent,
                scope,
                coverage,
                complete,
                git,
                restore,
                tree,
                counts,
            }
        })
}

/// Changes what the checksum covers, and makes the checksum right again: put together here from the
/// description of the format.
fn changed_and_sealed(text: &[u8], changes: &[Change]) -> Vec<u8> {
    let end = text.len() - r#","digest":"0123456789abcdef0123456789abcdef"}"#.len();
    let mut covered = changed(&text[..end], changes);
    covered.push(b'}');
    let digest = Digest::of(&covered);
    covered.pop();
    [&covered[..], format!(r#","digest":"{digest}"}}"#).as_bytes()].concat()
}

/// What is taken for a manifest is one to the byte, and says only what a manifest may say.
#[track_caller]
fn assert_sound(text: &[u8]) -> bool {
    let Ok(ParsedManifest::Valid(manifest, digest)) = Manifest::decode(text) else { return false };
    assert_eq!(manifest.encode(), (text.to_vec(), digest));
    assert!(manifest.id.seq <= Seq::MAX);
    for tree in [Some(manifest.tree), manifest.restore.as_ref().map(|it| it.after)] {
        let is_bounded = |tree: Tree| (1..=8).contains(&tree.levels) && tree.root_size < 1 << 30;
        assert!(tree.is_none_or(is_bounded));
    }
    for id in manifest.references().chain([&manifest.id]) {
        let name = id.session.as_str();
        assert!(!name.contains(['/', '\0']) && !name.starts_with('.'), "{name:?}");
    }
    true
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_manifest_reads_as_it_was_written(manifest in any_manifest()) {
        let (text, digest) = manifest.encode();
        let parsed = Manifest::decode(&text);
        prop_assert_eq!(parsed, Ok(ParsedManifest::Valid(Box::new(manifest), digest)));
    }

    #[test]
    fn a_manifest_that_was_changed_is_not_taken_for_one(
        manifest in any_manifest(),
        changes in changes(),
    ) {
        let (text, _) = manifest.encode();
        let now = changed(&text, &changes);
        prop_assert_eq!(assert_sound(&now), now == text);
    }

    #[test]
    fn a_changed_manifest_with_its_checksum_made_right_is_sound_or_refused(
        manifest in any_manifest(),
        changes in changes(),
    ) {
        assert_sound(&changed_and_sealed(&manifest.encode().0, &changes));
    }

    #[test]
    fn no_bytes_in_the_place_of_a_manifest_do_harm(
        text in near(any_manifest().prop_map(|manifest| manifest.encode().0)),
    ) {
        assert_sound(&text);
    }
}

#[test]
fn a_checksum_does_not_excuse_what_the_format_forbids() {
    let text = include_bytes!("../../tests/data/format-1/manifest-full.json");
    assert!(assert_sound(text));
    assert_eq!(changed_and_sealed(text, &[]), text);
    let text = std::str::from_utf8(text).unwrap();
    let ParsedManifest::Valid(manifest, _) = Manifest::decode(text.as_bytes()).unwrap() else {
        panic!("legacy");
    };
    let session = format!(r#""session":"{}""#, manifest.id.session.as_str());
    let levels = format!(r#""levels":{}"#, manifest.tree.levels);
    let seq = format!(r#""seq":{}"#, manifest.id.seq);
    let many = format!(r#""excluded":[{}]"#, vec!["[]"; 200].join(","));
    for (from, to) in [
        (&*session, r#""session":"..""#),
        (&session, r#""session":"a/b""#),
        (&session, &format!("{session},{session}")),
        (&seq, r#""seq":9007199254740992"#),
        (&seq, r#""seq":-1"#),
        (&levels, r#""levels":0"#),
        (&levels, r#""levels":9"#),
        (r#""format":1"#, r#""format":0"#),
        (r#""format":1"#, r#""format":1,"more":1"#),
        (r#""format":1"#, r#""format": 1"#),
        (r#""hash":"blake3""#, r#""hash":"xxh3""#),
        (r#""excluded":[]"#, &many),
    ] {
        let changed = text.replacen(from, to, 1);
        let sealed = changed_and_sealed(changed.as_bytes(), &[]);
        let decoded = Manifest::decode(&sealed);
        let is_refused = decoded.is_err() || !text.contains(from);
        assert!(is_refused, "{from} {to}: {decoded:?}");
    }
    let newer = text.replacen(r#""format":1"#, r#""format":2,"more":1"#, 1);
    let newer = Manifest::decode(newer.as_bytes());
    assert_eq!(newer, Err(InvalidManifest::TooNew { found: 2 }));
    for deep in ["[".repeat(100_000), r#"{"op":"#.repeat(100_000)] {
        assert!(matches!(Manifest::decode(deep.as_bytes()), Err(InvalidManifest::Malformed(_))));
    }
}
