//! Captures that look only where they are told that something has changed.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use turnpoint::id::CheckpointId;
use turnpoint::manifest::Coverage;
use turnpoint::path::RelPath;
use turnpoint::{CaptureOptions, CaptureOutcome};

use crate::model::truth::sql;
use crate::place::{Place, skips};
use crate::support::tree::{self, dir, file, link};

fn hinted(place: &Place, paths: &[&str]) -> CaptureOutcome {
    let mut options = CaptureOptions::default();
    options.changed = Some(paths.iter().map(|path| RelPath::new(path).unwrap()).collect());
    place.store().capture(place.root(), &options, &()).unwrap()
}

/// The directories that a checkpoint says it looked at; none where it was all.
fn listed(place: &Place, id: &CheckpointId) -> Option<BTreeSet<String>> {
    match place.store().show(id, &()).unwrap().manifest.coverage {
        Coverage::Full => None,
        Coverage::Hinted(listed) => Some(listed.into_iter().collect()),
        Coverage::Paths => panic!("nobody gave paths to restore"),
    }
}

fn these(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Two captures, the second when stamps are old enough to be relied upon.
fn some_files() -> Place {
    let place = Place::new();
    tree::build(
        place.root(),
        [
            ("a", file("a")),
            ("d/a", file("da")),
            ("d/b", file("db")),
            ("d/e/a", file("dea")),
            ("d/e/f/a", file("defa")),
            ("g/a", file("ga")),
            ("g/h/a", file("gha")),
            ("link", link("a")),
            ("empty", dir()),
        ],
    );
    place.capture();
    std::thread::sleep(Duration::from_millis(120));
    place.capture();
    place
}

/// Restores a checkpoint into an empty directory and compares it with the workspace as it is.
#[track_caller]
fn assert_holds_the_present(place: &Place, id: &CheckpointId) {
    let into = tempfile::tempdir().unwrap();
    let out = into.path().join("out");
    place.store().restore_into(id, &out, &turnpoint::RestoreOptions::default(), &()).unwrap();
    let found = crate::support::fingerprint::of(&out);
    crate::support::fingerprint::assert_same(&place.look(), &found);
}

#[test]
fn what_has_changed_at_the_hints_is_held_and_nothing_else_is_looked_at() {
    let place = some_files();
    let root = place.root();
    fs::write(root.join("d/a"), "changed").unwrap();
    fs::write(root.join("d/new"), "new").unwrap();
    fs::remove_file(root.join("d/b")).unwrap();
    let outcome = hinted(&place, &["d/a", "d/new", "d/b"]);
    assert_eq!(listed(&place, &outcome.checkpoint), Some(these(&["d"])));
    assert_eq!(outcome.counts.files_read, 2);
    assert_holds_the_present(&place, &outcome.checkpoint);

    // A promise that is not kept: the change comes with the next capture that looks itself.
    fs::write(root.join("g/a"), "not told").unwrap();
    fs::write(root.join("a"), "told").unwrap();
    let outcome = hinted(&place, &["a"]);
    assert_eq!(listed(&place, &outcome.checkpoint), Some(these(&[""])));
    let held = place.store().entries(&outcome.checkpoint, &RelPath::root(), &()).unwrap();
    let size = |path: &str| {
        let entry = held.iter().find(|entry| entry.path.as_bytes() == path.as_bytes()).unwrap();
        entry.blob().unwrap().1
    };
    assert_eq!((size("a"), size("g/a")), (4, 2));
    let whole = place.capture();
    assert_eq!(listed(&place, &whole), None);
    assert_holds_the_present(&place, &whole);
    place.verify_clean();
}

#[test]
fn whole_directories_may_come_go_and_change_their_kind() {
    let place = some_files();
    let root = place.root();
    fs::create_dir_all(root.join("d/new/deep/er")).unwrap();
    fs::write(root.join("d/new/deep/er/file"), "new").unwrap();
    fs::write(root.join("d/new/beside"), "also new").unwrap();
    let outcome = hinted(&place, &["d/new/deep/er/file"]);
    let expected = Some(these(&["d", "d/new", "d/new/deep", "d/new/deep/er"]));
    assert_eq!(listed(&place, &outcome.checkpoint), expected);
    assert_holds_the_present(&place, &outcome.checkpoint);

    fs::remove_dir_all(root.join("d/e")).unwrap();
    fs::write(root.join("d/e"), "a file now").unwrap();
    fs::remove_file(root.join("a")).unwrap();
    fs::create_dir(root.join("a")).unwrap();
    fs::write(root.join("a/x"), "x").unwrap();
    let outcome = hinted(&place, &["d/e/f/a", "a"]);
    assert_holds_the_present(&place, &outcome.checkpoint);

    fs::remove_dir_all(root.join("g")).unwrap();
    let outcome = hinted(&place, &["g/h/a", "g/a"]);
    assert_holds_the_present(&place, &outcome.checkpoint);
    // A directory as a hint is everything below it.
    fs::write(root.join("d/new/deep/er/file"), "changed").unwrap();
    fs::write(root.join("d/new/deep/other"), "new").unwrap();
    let outcome = hinted(&place, &["d/new"]);
    assert_holds_the_present(&place, &outcome.checkpoint);
    // Another directory of the same name is another directory.
    fs::rename(root.join("d/new"), root.join("aside")).unwrap();
    fs::create_dir(root.join("d/new")).unwrap();
    fs::write(root.join("d/new/beside"), "another").unwrap();
    let outcome = hinted(&place, &["d/new/beside", "aside"]);
    assert_holds_the_present(&place, &outcome.checkpoint);
    place.verify_clean();
}

#[test]
fn a_restore_deletes_only_in_directories_that_were_looked_at() {
    let place = some_files();
    let root = place.root();
    fs::write(root.join("d/a"), "changed").unwrap();
    let outcome = hinted(&place, &["d/a"]);
    fs::write(root.join("d/later"), "in a directory that was listed").unwrap();
    fs::write(root.join("g/later"), "in one that was not").unwrap();
    fs::write(root.join("g/a"), "changed").unwrap();
    let restored = place.restore(&outcome.checkpoint);
    assert!(!root.join("d/later").exists());
    assert!(root.join("g/later").exists());
    assert_eq!(fs::read(root.join("g/a")).unwrap(), b"ga");
    assert_eq!(skips(&restored), ["g/later no-evidence"]);
}

#[test]
fn everything_is_looked_at_where_hints_do_not_suffice() {
    let place = Place::new();
    tree::build(place.root(), [("a", file("a")), ("d/a", file("da")), ("d/x.log", file("log"))]);
    // Nothing is known.
    assert_eq!(listed(&place, &hinted(&place, &["a"]).checkpoint), None);
    std::thread::sleep(Duration::from_millis(120));
    assert_eq!(listed(&place, &hinted(&place, &["a"]).checkpoint), Some(these(&[""])));
    // Other rules judge everything anew.
    fs::write(place.root().join(".gitignore"), "*.log\n").unwrap();
    let outcome = hinted(&place, &[".gitignore"]);
    assert_eq!(listed(&place, &outcome.checkpoint), None);
    assert_eq!(outcome.counts.omitted.values().sum::<u64>(), 1);
    // The root is all of it.
    assert_eq!(listed(&place, &hinted(&place, &[""]).checkpoint), None);
}

#[test]
fn a_capture_that_looked_at_all_is_not_answered_with_one_that_did_not() {
    let place = some_files();
    let if_changed = |hints: Option<&str>| {
        let mut options = CaptureOptions::default();
        options.if_changed = true;
        options.changed = hints.map(|path| vec![RelPath::new(path).unwrap()]);
        place.store().capture(place.root(), &options, &()).unwrap()
    };
    fs::write(place.root().join("d/a"), "changed").unwrap();
    assert!(if_changed(Some("d/a")).created);
    assert!(!if_changed(Some("d/a")).created);
    assert!(if_changed(None).created, "only now is it known that nothing else has changed");
    assert!(!if_changed(None).created);
    assert!(!if_changed(Some("d/a")).created);
}

#[test]
fn after_a_restore_the_hints_of_a_caller_do_not_cover_what_it_changed() {
    let place = some_files();
    let root = place.root();
    let first = place.capture();
    fs::write(root.join("g/a"), "changed").unwrap();
    place.capture();
    place.go_back(&first);
    fs::write(root.join("d/a"), "told").unwrap();
    let outcome = hinted(&place, &["d/a"]);
    assert_eq!(listed(&place, &outcome.checkpoint), None);
    assert_holds_the_present(&place, &outcome.checkpoint);
    fs::write(root.join("d/b"), "told").unwrap();
    let outcome = hinted(&place, &["d/b"]);
    assert_eq!(listed(&place, &outcome.checkpoint), Some(these(&["d"])));
    assert_holds_the_present(&place, &outcome.checkpoint);
}

#[test]
fn a_path_through_a_symlink_is_looked_for_everywhere() {
    let place = some_files();
    let root = place.root();
    std::os::unix::fs::symlink("d", root.join("way")).unwrap();
    for hint in ["way/a", "way/e/f/a"] {
        fs::write(root.join(hint), format!("written as {hint}")).unwrap();
        let outcome = hinted(&place, &[hint]);
        assert_eq!(listed(&place, &outcome.checkpoint), None, "{hint}");
        assert_holds_the_present(&place, &outcome.checkpoint);
    }
    // A link that is itself what changed is a name like any other.
    fs::remove_file(root.join("way")).unwrap();
    std::os::unix::fs::symlink("g", root.join("way")).unwrap();
    let outcome = hinted(&place, &["way"]);
    assert_eq!(listed(&place, &outcome.checkpoint), Some(these(&[""])));
    assert_holds_the_present(&place, &outcome.checkpoint);
}

/// What a broken listing left out has no entry, and only a whole look finds it.
#[test]
fn an_incomplete_checkpoint_is_not_built_upon_by_hints() {
    let place = some_files();
    sql(place.store().root(), "UPDATE checkpoints SET complete = 0");
    fs::write(place.root().join("d/a"), "told").unwrap();
    let outcome = hinted(&place, &["d/a"]);
    assert_eq!(listed(&place, &outcome.checkpoint), None);
    fs::write(place.root().join("d/a"), "told again").unwrap();
    let outcome = hinted(&place, &["d/a"]);
    assert_eq!(listed(&place, &outcome.checkpoint), Some(these(&["d"])));
}
