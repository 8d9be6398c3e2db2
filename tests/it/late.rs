//! What somebody does to a workspace while a restore changes it.

use std::fs;
use std::path::Path;
use std::time::Duration;

use turnpoint::path::RelPath;
use turnpoint::plan::SkipReason;
use turnpoint::{Monitor, Phase, RestoreOptions, RestoreOutcome};

use crate::model::truth::sql;
use crate::place::Place;
use crate::support::tree::{self, file};

/// Does something at the moment at which the changes begin.
struct WhenApplied<F: Fn() + Sync>(F);

impl<F: Fn() + Sync> Monitor for WhenApplied<F> {
    fn phase(&self, phase: Phase, _: Option<u64>) {
        if phase == Phase::Apply {
            (self.0)();
        }
    }
}

fn restore(
    place: &Place,
    id: &turnpoint::id::CheckpointId,
    late: impl Fn() + Sync,
) -> RestoreOutcome {
    let options = RestoreOptions::default();
    place.store().restore(place.root(), id, &options, &WhenApplied(late)).unwrap()
}

fn left(outcome: &RestoreOutcome) -> Vec<(String, SkipReason)> {
    outcome.left.iter().map(|skip| (skip.path.to_string(), skip.reason)).collect()
}

fn read(place: &Place, path: &str) -> Option<String> {
    fs::read_to_string(place.root().join(path)).ok()
}

#[test]
fn a_directory_in_which_something_came_late_is_not_emptied() {
    let place = Place::new();
    tree::build(place.root(), [("d", file("was a file")), ("e", file("was a file"))]);
    let id = place.capture();
    for name in ["d", "e"] {
        fs::remove_file(place.root().join(name)).unwrap();
    }
    tree::build(place.root(), [("d/in/x", file("x")), ("d/y", file("y")), ("e/z", file("z"))]);
    let late = place.root().join("d/in/late");
    let outcome = restore(&place, &id, || fs::write(&late, "late").unwrap());
    let texts = ["d/in/x", "d/y", "d/in/late", "e"].map(|path| read(&place, path).unwrap());
    assert_eq!(texts, ["x", "y", "late", "was a file"]);
    let expected = [
        ("d", SkipReason::Conflict),
        ("d/in", SkipReason::Blocked),
        ("d/in/x", SkipReason::Blocked),
        ("d/y", SkipReason::Blocked),
    ];
    assert_eq!(left(&outcome), expected.map(|(path, reason)| (path.to_owned(), reason)));
    assert!(!place.root().join(".turnpoint").exists());
}

#[test]
fn a_file_that_was_saved_late_stays() {
    let place = Place::new();
    tree::build(place.root(), [("a", file("first")), ("to-dir/x", file("x"))]);
    let id = place.capture();
    fs::remove_dir_all(place.root().join("to-dir")).unwrap();
    let files = [("a", file("second")), ("to-dir", file("second")), ("goes", file("second"))];
    tree::build(place.root(), files);
    let outcome = restore(&place, &id, || {
        for name in ["a", "to-dir", "goes"] {
            fs::write(place.root().join(name), format!("late {name}")).unwrap();
        }
    });
    for name in ["a", "to-dir", "goes"] {
        assert_eq!(read(&place, name), Some(format!("late {name}")));
    }
    let paths: Vec<String> = left(&outcome).into_iter().map(|(path, _)| path).collect();
    assert_eq!(paths, ["a", "goes", "to-dir", "to-dir/x"]);
}

#[test]
fn many_changes_and_deletions_in_one_directory_are_all_made() {
    let place = Place::new();
    let first =
        (0..1500).map(|number| (format!("d/Name{number}"), file(format!("first {number}"))));
    tree::build(place.root(), first);
    let id = place.capture();
    let at_first = place.look();
    for number in 0..1500 {
        let root = place.root();
        fs::write(root.join(format!("d/Name{number}")), format!("second {number}")).unwrap();
        // Alike but for the case, and another file.
        fs::write(root.join(format!("d/name{number}")), "goes").unwrap();
    }
    // Hard links, too, whose names differ by their case only.
    fs::hard_link(place.root().join("d/name7"), place.root().join("d/NAME7")).unwrap();
    let outcome = restore(&place, &id, || ());
    assert_eq!((left(&outcome), outcome.changed), (vec![], 3001));
    crate::support::fingerprint::assert_same(&at_first, &place.look());
}

#[test]
fn what_nobody_knows_in_a_directory_that_gave_way_is_kept_under_a_name_of_its_own() {
    let place = Place::new();
    tree::build(place.root(), [("d", file("was a file"))]);
    let id = place.capture();
    fs::remove_file(place.root().join("d")).unwrap();
    tree::build(place.root(), [("d/x", file("x"))]);
    // Into the stage, as if it had come there between the last look and the end: as the path itself
    // and below it, so that one name is wanted for a file and for a directory.
    let outcome = restore(&place, &id, || {
        let turnpoint = place.root().join(".turnpoint");
        let stage = fs::read_dir(turnpoint).unwrap().next().unwrap().unwrap().path();
        let index = fs::read_dir(&stage).unwrap().next().unwrap().unwrap().file_name();
        let number: usize = index.to_str().unwrap().parse().unwrap();
        for zeros in ["0", "000"] {
            let directory = stage.join(format!("old-{zeros}{number}"));
            fs::create_dir(&directory).unwrap();
            fs::write(directory.join("x"), "unknown below").unwrap();
        }
        for zeros in ["00", "0000", "00000"] {
            fs::write(stage.join(format!("old-{zeros}{number}")), "unknown").unwrap();
        }
    });
    let kept = fs::read_dir(place.root().join(".turnpoint")).unwrap();
    let kept: Vec<_> = kept.map(|entry| entry.unwrap().path()).collect();
    let [kept] = &*kept else { panic!("{kept:?}") };
    let mut texts: Vec<String> = files_below(kept);
    texts.sort();
    assert_eq!(texts, ["unknown", "unknown", "unknown below", "unknown below"]);
    assert_eq!(outcome.remarks.len(), 4, "{:?}", outcome.remarks);
    // One goes back to its path, in exchange for what the restore had put there.
    assert_eq!(read(&place, "d"), Some("unknown".to_owned()));
    let paths: Vec<String> = left(&outcome).into_iter().map(|(path, _)| path).collect();
    assert_eq!(paths, ["d", "d/x"]);
}

fn files_below(directory: &Path) -> Vec<String> {
    let mut texts = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            texts.extend(files_below(&path));
        } else {
            texts.push(fs::read_to_string(path).unwrap());
        }
    }
    texts
}

/// Directories that a restore looks into although rules leave them out are left out again afterwards.
#[test]
fn what_a_restore_revealed_is_left_out_of_the_next_capture() {
    let place = Place::new();
    let tree = [("app/build/o", file("1")), ("app/k", file("k")), ("s", file("s"))];
    tree::build(place.root(), tree);
    let first = place.capture();
    tree::build(place.root(), [(".gitignore", file("build/\n")), ("s", file("s2"))]);
    // So that what follows is not told from this by a stamp of the same tick.
    std::thread::sleep(Duration::from_millis(150));
    place.capture();
    let mut options = RestoreOptions::default();
    options.paths = ["s", "app"].map(|path| RelPath::new(path).unwrap()).to_vec();
    assert_eq!(place.store().restore(place.root(), &first, &options, &()).unwrap().changed, 1);
    for _ in 0..2 {
        let id = place.capture();
        let query = format!("SELECT path, reason FROM omitted WHERE seq = {}", id.seq);
        assert_eq!(sql(place.store().root(), &query), ["app/build|ignored"]);
    }
}
