//! What is moved while a capture reads: it is there all the time, so it is held.

use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use turnpoint::id::CheckpointId;
use turnpoint::path::RelPath;
use turnpoint::{CaptureOptions, Monitor, Phase, RestoreOptions};

use crate::place::Place;
use crate::support::fingerprint::{self, Fingerprint};
use crate::support::tree::{build, file};

/// Moves something whenever reading begins, so many times.
struct MoveBeforeReading {
    left: AtomicUsize,
    places: [PathBuf; 2],
}

impl Monitor for MoveBeforeReading {
    fn phase(&self, phase: Phase, _: Option<u64>) {
        let is_due = |left: usize| left.checked_sub(1);
        if phase == Phase::Store
            && self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, is_due).is_ok()
        {
            let [from, to] = &self.places;
            let (from, to) = if from.exists() { (from, to) } else { (to, from) };
            fs::rename(from, to).unwrap();
        }
    }
}

/// What a checkpoint holds, written elsewhere.
fn held(place: &Place, id: &CheckpointId) -> Fingerprint {
    let into = tempfile::tempdir().unwrap();
    place.store().restore_into(id, into.path(), &RestoreOptions::default(), &()).unwrap();
    fingerprint::of(into.path())
}

fn moving(place: &Place, times: usize, names: [&str; 2]) -> MoveBeforeReading {
    let places = names.map(|name| place.root().join(name));
    MoveBeforeReading { left: AtomicUsize::new(times), places }
}

#[test]
fn what_is_moved_while_others_are_read_is_held() {
    let hinted = |paths: &[&str]| {
        Some(paths.iter().map(|path| RelPath::new(path.as_bytes()).unwrap()).collect::<Vec<_>>())
    };
    for (moved, changed) in [
        (["z/moved", "b/moved"], None),
        (["b/moved", "z/moved"], None),
        (["z/moved", "moved"], None),
        (["z/moved", "b/moved"], hinted(&["z", "b"])),
    ] {
        let place = Place::new();
        build(place.root(), [("a/x", file("x")), ("b/x", file("x")), ("z/x", file("x"))]);
        drop(place.capture());
        // A file alone, and with it a directory.
        build(place.root(), [(format!("{}/deep/y", moved[0]), file("moved"))]);
        fs::write(place.root().join("a/x"), "changed").unwrap();
        let mut options = CaptureOptions::default();
        options.changed = changed.map(|mut paths: Vec<RelPath>| {
            paths.push(RelPath::new(&b"a/x"[..]).unwrap());
            paths
        });
        let monitor = moving(&place, 1, moved);
        let outcome = place.store().capture(place.root(), &options, &monitor).unwrap();
        assert!(outcome.complete, "{:?}", outcome.problems);
        assert_eq!(monitor.left.load(Ordering::SeqCst), 0, "nothing was moved");
        assert_eq!(held(&place, &outcome.checkpoint), place.look(), "{moved:?}");
    }
}

#[test]
fn what_never_rests_makes_the_checkpoint_incomplete() {
    let place = Place::new();
    build(place.root(), [("b/x", file("x")), ("z/moved", file("moved"))]);
    let monitor = moving(&place, usize::MAX, ["z/moved", "b/moved"]);
    let options = CaptureOptions::default();
    let outcome = place.store().capture(place.root(), &options, &monitor).unwrap();
    assert!(!outcome.complete);
    let told: Vec<String> = outcome.problems.iter().map(|it| it.path.to_string()).collect();
    assert!(told == ["b"] || told == ["z"], "{told:?}");
    // Once it rests it is held.
    let outcome = place.store().capture(place.root(), &options, &()).unwrap();
    assert!(outcome.complete);
    assert_eq!(held(&place, &outcome.checkpoint), place.look());
}

/// Moves a directory whenever something was looked at, or it is asked whether to go on.
struct MoveAlways {
    places: Mutex<[PathBuf; 2]>,
}

impl Monitor for MoveAlways {
    fn advanced(&self, _: u64, _: u64) {
        let mut places = self.places.lock().unwrap();
        // As long as stamps take to be others.
        thread::sleep(Duration::from_millis(11));
        fs::rename(&places[0], &places[1]).unwrap();
        places.swap(0, 1);
    }

    fn is_cancelled(&self) -> bool {
        self.advanced(0, 0);
        false
    }
}

#[test]
fn directories_that_change_at_each_look_make_the_checkpoint_incomplete() {
    let place = Place::new();
    build(place.root(), (0..12).map(|number| (format!("d{number:02}/x"), file("x"))));
    let mut places = ["d00", "d11"].map(|name| place.root().join(name).join("moved"));
    fs::create_dir(&places[0]).unwrap();
    drop(place.capture());
    let options = CaptureOptions::default();
    // A walk may be through before anything moves.
    let incomplete = (0..20).find_map(|_| {
        let monitor = MoveAlways { places: Mutex::new(places.clone()) };
        let outcome = place.store().capture(place.root(), &options, &monitor).unwrap();
        places = monitor.places.into_inner().unwrap();
        (!outcome.complete).then_some(outcome.problems)
    });
    let problems = incomplete.unwrap();
    let is_one = |path: &RelPath| ["d00", "d11"].iter().any(|at| path.to_string().starts_with(at));
    assert!(problems.iter().all(|it| is_one(&it.path) && it.reason.is_none()), "{problems:?}");
    assert!(!problems.is_empty());
    // Once it rests it is held.
    let outcome = place.store().capture(place.root(), &options, &()).unwrap();
    assert!(outcome.complete);
    assert_eq!(held(&place, &outcome.checkpoint), place.look());
}
