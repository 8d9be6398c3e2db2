//! Captures that look only where they are told that something has changed.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
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
    let mut present = place.look();
    // What the trees here ignore.
    let is_ignored = |path: &Path| {
        let extension = path.extension().and_then(|extension| extension.to_str());
        extension == Some("log") || (path.starts_with("p05") && extension == Some("tmp"))
    };
    present.retain(|path, _| !is_ignored(path));
    crate::support::fingerprint::assert_same(&present, &found);
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

/// Of a large tree a turn by hints reads the part of the stat cache that it needs, counts the rest, and
/// leaves a cache that vouches for all.
#[test]
fn in_a_large_tree_only_what_the_hints_concern_is_read_of_what_is_known() {
    let place = Place::in_memory();
    let root = place.root();
    let directories: Vec<String> = (0..40).map(|n| format!("p{:02}/q{n:02}", n / 4)).collect();
    for (number, directory) in directories.iter().enumerate() {
        fs::create_dir_all(root.join(directory)).unwrap();
        for file in 0..100 {
            fs::write(root.join(directory).join(format!("f{file:02}")), format!("{number} {file}"))
                .unwrap();
        }
        fs::write(root.join(directory).join("out.log"), "ignored").unwrap();
        std::os::unix::fs::symlink("f00", root.join(directory).join("link")).unwrap();
    }
    fs::write(root.join(".gitignore"), "*.log\n").unwrap();
    fs::write(root.join("p05/.gitignore"), "*.tmp\n").unwrap();
    place.capture();
    std::thread::sleep(Duration::from_millis(120));
    place.capture();
    let store = place.store();
    let caches = store.root().join("workspaces");
    let cache = fs::read_dir(caches).unwrap().next().unwrap().unwrap().path().join("stat-cache");
    let whole = fs::read(&cache).unwrap();

    // The block of one path, wherever it is, cannot be read any more: the hints need not know of it.
    let mut injured = whole.clone();
    let far = injured.windows(7).position(|bytes| bytes == b"q37/f99").unwrap();
    injured[far] ^= 1;
    fs::write(&cache, &injured).unwrap();
    fs::write(root.join("p02/q08/f07"), "changed").unwrap();
    fs::remove_file(root.join("p02/q09/f08")).unwrap();
    fs::write(root.join("p02/q09/new.tmp"), "new").unwrap();
    fs::write(root.join("p05/q20/new.tmp"), "ignored here").unwrap();
    fs::create_dir_all(root.join("p02-/deep")).unwrap();
    fs::write(root.join("p02-/deep/file"), "new").unwrap();
    let hints = ["p02/q08/f07", "p02/q09/f08", "p02/q09/new.tmp", "p05/q20/new.tmp", "p02-"];
    let outcome = hinted(&place, &hints);
    let looked_at = [".", "p02-", "p02-/deep", "p02/q08", "p02/q09", "p05/q20"];
    let looked_at = looked_at.map(|path| path.trim_start_matches('.'));
    assert_eq!(listed(&place, &outcome.checkpoint), Some(these(&looked_at)));
    assert_holds_the_present(&place, &outcome.checkpoint);
    // 40 x 100 files and a link each, two ignore files, one gone and two new.
    let counts = outcome.counts;
    assert_eq!((counts.files_observed, counts.files_read), (4_040 + 2 + 1, 3));
    assert_eq!(counts.files_reused, 4_002 - 1 - 1);
    let omitted: Vec<(&str, u64)> =
        counts.omitted.iter().map(|(reason, count)| (reason.as_str(), *count)).collect();
    assert_eq!(omitted, [("ignored", 41)]);

    // Mended, it vouches for what nobody looked at.
    let mut mended = fs::read(&cache).unwrap();
    assert_ne!(mended, injured);
    let far = mended.windows(7).position(|bytes| bytes[1..] == b"q37/f99"[1..]).unwrap();
    mended[far] ^= 1;
    fs::write(&cache, &mended).unwrap();
    std::thread::sleep(Duration::from_millis(120));
    let all = store.capture(root, &CaptureOptions::default(), &()).unwrap();
    assert!(all.counts.files_read <= 3, "{:?}", all.counts);
    assert_eq!(all.counts.files_observed, counts.files_observed);
    assert_eq!(all.counts.omitted, counts.omitted);
    assert_eq!(listed(&place, &all.checkpoint), None);

    // A directory of which only the name was known is gone: all that was in it is, too.
    fs::rename(root.join("p07"), root.join("p07-moved")).unwrap();
    let outcome = hinted(&place, &[".gitignore", "p07-moved"]);
    let moved =
        ["", "p07-moved", "p07-moved/q28", "p07-moved/q29", "p07-moved/q30", "p07-moved/q31"];
    assert_eq!(listed(&place, &outcome.checkpoint), Some(these(&moved)));
    assert_holds_the_present(&place, &outcome.checkpoint);
    // So it is where it was replaced by a file, and where a rule comes that speaks of what is not looked at.
    fs::remove_dir_all(root.join("p06")).unwrap();
    fs::write(root.join("p06"), "a file now").unwrap();
    let outcome = hinted(&place, &["p06"]);
    assert_eq!(listed(&place, &outcome.checkpoint), Some(these(&[""])));
    assert_holds_the_present(&place, &outcome.checkpoint);
    fs::write(root.join("p02/q10/.gitignore"), "f00\n").unwrap();
    let outcome = hinted(&place, &["p02/q10/.gitignore"]);
    assert_eq!(listed(&place, &outcome.checkpoint), None);
    // Nothing has changed, and that is told.
    let before = fs::read(&cache).unwrap();
    let outcome = hinted(&place, &[]);
    assert_eq!(listed(&place, &outcome.checkpoint), Some(BTreeSet::new()));
    assert_eq!(fs::read(&cache).unwrap().len(), before.len());
    place.verify_clean();
}
