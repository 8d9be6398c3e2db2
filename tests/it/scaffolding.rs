//! The scaffolding itself: a generator that is not deterministic, or a fingerprint that does not
//! see a change, would make other tests pass in vain.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, SystemTime};

use crate::support::corpus::{Corpus, EVERYTHING, Edit, Shape, What};
use crate::support::fingerprint::{self, Fingerprint};
use crate::support::tree::{build, dir, executable, file, link};

#[test]
fn the_same_arguments_make_the_same_tree_and_the_same_turns() {
    let made = |seed: u64| {
        let dir = tempfile::tempdir().unwrap();
        let shape = Shape { seed, ignored: 60, ..Shape::of(300) };
        let mut corpus = Corpus::generate(dir.path(), shape).unwrap();
        let before = fingerprint::of(dir.path());
        let edits: Vec<Edit> =
            (0..20).flat_map(|turn| corpus.turn(turn, 5, EVERYTHING).unwrap()).collect();
        let listed = corpus.files.iter().all(|path| dir.path().join(path).is_file());
        assert!(listed, "a listed file is missing");
        (before, edits, fingerprint::of(dir.path()))
    };
    let (before, edits, after) = made(1);
    assert!(before.values().filter(|node| is_file(node)).count() > 300 + 60);
    let again = made(1);
    fingerprint::assert_same(&before, &again.0);
    assert_eq!(edits, again.1);
    fingerprint::assert_same(&after, &again.2);
    assert_ne!(before, made(2).0);
}

#[test]
fn turns_cover_every_kind_of_edit_and_each_changes_the_tree() {
    let dir = tempfile::tempdir().unwrap();
    let mut corpus = Corpus::generate(dir.path(), Shape::of(400)).unwrap();
    let mut kinds = BTreeSet::new();
    let mut before = fingerprint::with_stamps(dir.path());
    for turn in 0..150 {
        let edits = corpus.turn(turn, 4, EVERYTHING).unwrap();
        assert_eq!(edits.len(), 4);
        let after = fingerprint::with_stamps(dir.path());
        for edit in edits {
            let (name, path) = match edit {
                Edit::Modify(path) => ("modify", path),
                Edit::ModifySilently(path) => {
                    let node = |tree: &Fingerprint| tree[std::path::Path::new(&path)].clone();
                    let (old, new) = (node(&before), node(&after));
                    assert_eq!(old.stamps.unwrap().1, new.stamps.unwrap().1, "{path}: mtime");
                    ("modify silently", path)
                }
                Edit::Add(path) => ("add", path),
                Edit::Delete(path) => ("delete", path),
                Edit::Rename { to, .. } => ("rename", to),
                Edit::Chmod { path, .. } => ("chmod", path),
                Edit::Swap { path, from, to } => {
                    kinds.insert(format!("{from:?} to {to:?}"));
                    ("swap", path)
                }
            };
            let path = std::path::Path::new(&path);
            assert_ne!(before.get(path), after.get(path), "{name} {}", path.display());
            kinds.insert(name.to_owned());
        }
        before = after;
    }
    let swaps = [What::File, What::Link, What::Dir];
    let wanted = swaps.iter().flat_map(|from| swaps.iter().map(move |to| (from, to)));
    for (from, to) in wanted.filter(|(from, to)| from != to) {
        assert!(kinds.contains(&format!("{from:?} to {to:?}")), "no {from:?} to {to:?}");
    }
    for name in ["modify", "modify silently", "add", "delete", "rename", "chmod", "swap"] {
        assert!(kinds.contains(name), "no {name}");
    }
}

#[test]
fn a_fingerprint_sees_every_kind_of_change() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    build(
        root,
        [
            ("a/file", file("one")),
            ("a/run", executable("#!/bin/sh\n")),
            ("link", link("a/file")),
            ("empty", dir()),
        ],
    );
    let before = fingerprint::with_stamps(root);
    fingerprint::assert_same(&before, &fingerprint::with_stamps(root));
    let path = |name: &str| root.join(name);
    let changes: [(&str, &dyn Fn()); 6] = [
        ("a/file", &|| fs::write(path("a/file"), "two").unwrap()),
        ("a/run", &|| {
            fs::set_permissions(path("a/run"), fs::Permissions::from_mode(0o700)).unwrap();
        }),
        ("link", &|| build(root, [("link", link("a/run"))])),
        ("empty", &|| {
            fs::remove_dir(path("empty")).unwrap();
            fs::write(path("empty"), "").unwrap();
        }),
        ("a/new", &|| fs::write(path("a/new"), "").unwrap()),
        ("a/new", &|| fs::remove_file(path("a/new")).unwrap()),
    ];
    for (name, change) in changes {
        let before = fingerprint::of(root);
        change();
        let lines = fingerprint::differences(&before, &fingerprint::of(root));
        assert_eq!(lines.lines().count(), 1, "{lines}");
        assert!(lines.starts_with(&format!("{name}: ")), "{lines}");
    }
    // The same bytes written again: only the stamps tell.
    let (plain, stamped) = (fingerprint::of(root), fingerprint::with_stamps(root));
    let past = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
    fs::File::options().write(true).open(path("a/file")).unwrap().set_modified(past).unwrap();
    fingerprint::assert_same(&plain, &fingerprint::of(root));
    assert_ne!(stamped, fingerprint::with_stamps(root));
    let outside = fingerprint::without(&plain, &["a"]);
    assert!(outside.len() == 3 && !outside.keys().any(|path| path.starts_with("a")), "{outside:?}");
}

fn is_file(node: &fingerprint::Node) -> bool {
    matches!(node.kind, fingerprint::Kind::File { .. })
}
