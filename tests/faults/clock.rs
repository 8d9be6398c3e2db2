//! Clocks that are days ahead, days back, or stand still. Order comes from numbers, so nothing that is
//! needed depends on any of it; at worst something unneeded stays for longer.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::kills::{CAPTURE, assert_nothing_left, gc};
use crate::scene::{BINARY, Scene};
use crate::steps::{self, Step};
use crate::support::fingerprint::{self, differences};
use crate::support::program::{Program, run};

const DAY: i64 = 24 * 60 * 60;

/// The program with a clock of its own, which the test sets. Stamps of files are the kernel's, and right.
struct Clock {
    dir: TempDir,
}

/// What the clock says.
#[derive(Debug, Clone, Copy)]
enum Says {
    /// So many seconds more than it is.
    Shifted(i64),
    /// The same second for ever.
    Always(i64),
}

impl Clock {
    fn new() -> Self {
        let clock =
            Self { dir: tempfile::Builder::new().prefix("turnpoint-clock-").tempdir().unwrap() };
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/faults/clock.c");
        let library = clock.path("clock.so");
        run(Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source)).ok();
        clock.set(Says::Shifted(0));
        let script = format!(
            "#!/bin/sh\n. '{}'\nLD_PRELOAD='{}' exec '{BINARY}' \"$@\"\n",
            clock.path("says").display(),
            library.display()
        );
        fs::write(clock.path("turnpoint"), script).unwrap();
        run(Command::new("chmod").arg("0755").arg(clock.path("turnpoint"))).ok();
        clock
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn set(&self, says: Says) {
        let variable = match says {
            Says::Shifted(seconds) => format!("CLOCK_SHIFT={seconds}"),
            Says::Always(second) => format!("CLOCK_FROZEN={second}"),
        };
        fs::write(self.path("says"), format!("export {variable}\n")).unwrap();
    }

    fn scene(&self) -> Scene {
        let memory = Path::new("/dev/shm");
        let place = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        Scene::with(Program::below(self.path("turnpoint").to_str().unwrap(), &place))
    }
}

fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}

/// Ahead, back, standing still, and before there was anything.
fn wrong_clocks() -> [Says; 4] {
    [Says::Shifted(2 * DAY), Says::Shifted(-2 * DAY), Says::Always(now()), Says::Always(0)]
}

/// What the clock of the program was when it made a checkpoint, in seconds.
fn created_at(scene: &Scene, checkpoint: &str) -> i64 {
    let shown = scene.program.run(["show", checkpoint, "--json"]).ok().json();
    shown["created_at"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_second()
}

#[test]
fn what_is_done_by_a_wrong_clock_is_done_right() {
    let clock = Clock::new();
    let mut scene = clock.scene();
    for turn in 1..4 {
        scene.capture();
        scene.edit(turn);
    }
    let mut saved = scene.save();
    for says in wrong_clocks() {
        let what = format!("{says:?}");
        scene.put_back(&mut saved);
        clock.set(says);
        let third = scene.capture();
        // Another content of the same length, at once.
        fs::write(scene.program.workspace().join("a.txt"), "tide 3\n").unwrap();
        let fourth = scene.capture();
        assert_eq!((third, fourth), (3, 4), "{what}");
        let told = created_at(&scene, "s:4");
        let is_wrong = match says {
            Says::Shifted(seconds) => (told - now() - seconds).abs() < DAY,
            Says::Always(second) => told == second,
        };
        assert!(is_wrong, "{what}: the clock of the program says {told}");

        let before = fingerprint::of(&scene.program.workspace());
        let target = scene.acknowledged().next().unwrap().1.clone();
        scene.program.run(["restore", "s:0", "--yes"]).ok();
        let found = fingerprint::of(&scene.program.workspace());
        assert!(found == target, "{what}: {}", differences(&target, &found));
        scene.program.run(["undo", "--yes"]).ok();
        let found = fingerprint::of(&scene.program.workspace());
        assert!(found == before, "{what}: {}", differences(&before, &found));

        // The newest are those with the highest numbers.
        scene.program.run(["prune", "--session", "s", "--keep", "2", "--yes"]).ok();
        (0..3).for_each(|seq| scene.forget(seq));
        for _ in 0..2 {
            scene.program.run(["gc"]).ok();
            gc(&scene).ok();
        }
        assert_eq!(listed(&scene), [3, 4], "{what}");
        assert_eq!(latest(&scene), "s:4", "{what}");
        scene.assert_restores(&what);

        // The clock is put right.
        clock.set(Says::Shifted(0));
        scene.edit(5);
        assert_eq!(scene.capture(), 5, "{what}");
        assert_eq!(latest(&scene), "s:5", "{what}");
        gc(&scene).ok();
        scene.assert_whole(&what);
        // What became unneeded at a time that is still to come stays until then, and no longer.
        clock.set(Says::Shifted(3 * DAY));
        assert_nothing_left(&scene, &what);
        scene.assert_restores(&what);
    }
}

/// The numbers of session `s`, in the order in which they are shown.
fn listed(scene: &Scene) -> Vec<u64> {
    let list = scene.program.run(["list", "--session", "s", "--json"]).ok().json();
    let seqs = list["checkpoints"].as_array().unwrap().iter().map(|it| it["seq"].as_u64().unwrap());
    seqs.collect()
}

fn latest(scene: &Scene) -> String {
    let shown = scene.program.run(["show", "latest", "--json"]).ok().json();
    format!("{}:{}", shown["session"].as_str().unwrap(), shown["seq"])
}

#[test]
fn order_is_by_number_whatever_the_clock_said() {
    let clock = Clock::new();
    let mut scene = clock.scene();
    let mut times = Vec::new();
    for (turn, says) in (1..).zip(wrong_clocks().into_iter().cycle().take(6)) {
        clock.set(says);
        scene.edit(turn);
        let seq = scene.capture();
        assert_eq!(latest(&scene), format!("s:{seq}"), "{says:?}");
        times.push(created_at(&scene, &format!("s:{seq}")));
    }
    assert!(!times.is_sorted(), "no clock went back: {times:?}");
    assert_eq!(listed(&scene), [0, 1, 2, 3, 4, 5]);
    // Also between sessions: a checkpoint is newer than its parent.
    clock.set(Says::Shifted(-2 * DAY));
    scene.edit(7);
    scene.program.run(["capture", "--session", "other"]).ok();
    assert_eq!(latest(&scene), "other:0");
    clock.set(Says::Shifted(0));
    let newest = scene.program.run(["show", "latest~1", "--json"]).ok().json();
    assert_eq!((&newest["session"], &newest["seq"]), (&"s".into(), &5.into()));
    scene.program.run(["prune", "--session", "s", "--keep", "3", "--yes"]).ok();
    assert_eq!(listed(&scene), [3, 4, 5]);
    (0..3).for_each(|seq| scene.forget(seq));
    // The index repeats it, and can be made again from the manifests alone.
    scene.program.run(["doctor", "--rebuild"]).ok();
    assert_eq!((listed(&scene), latest(&scene)), (vec![3, 4, 5], "other:0".to_owned()));
    scene.assert_whole("six clocks");
}

#[test]
fn a_capture_of_one_clock_keeps_what_it_needs_from_a_collection_of_another() {
    let clock = Clock::new();
    let mut scene = clock.scene();
    scene.capture();
    // The contents of the next turn are in the store, and nothing names them.
    scene.edit(1);
    scene.program.run(["capture", "--session", "passing"]).ok();
    scene.edit(2);
    scene.program.run(["capture", "--session", "passing"]).ok();
    scene.program.run(["prune", "--session", "passing", "--keep", "0", "--yes"]).ok();
    scene.edit(1);
    let mut saved = scene.save();
    let steps = steps::of(&scene.program, &CAPTURE);
    let is_manifest = |step: &&Step| step.text.contains("\"1.json\", RENAME_NOREPLACE");
    let step = steps.iter().find(is_manifest).unwrap();
    for (capture, collection) in [(0, 2 * DAY), (-2 * DAY, 2 * DAY), (2 * DAY, 0)] {
        let what = format!("captured at {capture}, collected at {collection}");
        scene.put_back(&mut saved);
        clock.set(Says::Shifted(collection));
        let removed = [(); 2].map(|()| gc(&scene).ok().json()["blobs_removed"].as_u64().unwrap());
        assert!(removed.iter().sum::<u64>() > 2, "{what}: nothing was at risk: {removed:?}");

        scene.put_back(&mut saved);
        clock.set(Says::Shifted(capture));
        let stopped = step.hold(&scene.program, &CAPTURE).unwrap();
        clock.set(Says::Shifted(collection));
        for _ in 0..2 {
            gc(&scene).ok();
        }
        let run = stopped.go_on().ok();
        let now = fingerprint::of(&scene.program.workspace());
        scene.acknowledge(run.json()["seq"].as_u64().unwrap(), now);
        gc(&scene).ok();
        clock.set(Says::Shifted(0));
        scene.assert_whole(&what);
    }
}

#[test]
fn stamps_of_a_clock_that_was_ahead_or_far_back_mean_nothing() {
    let clock = Clock::new();
    let mut scene = clock.scene();
    for turn in 1..4 {
        scene.capture();
        scene.edit(turn);
    }
    scene.program.run(["prune", "--session", "s", "--keep", "2", "--yes"]).ok();
    scene.forget(0);
    let mut saved = scene.save();
    for stamp in ["2 days", "1970-01-02"] {
        let what = format!("stamped {stamp}");
        scene.put_back(&mut saved);
        let everything = [scene.program.store(), scene.program.workspace()];
        let mut find = Command::new("find");
        find.args(everything).args(["-type", "f", "-exec", "touch", "-d", stamp, "{}", "+"]);
        run(&mut find).ok();
        let one = scene.capture();
        fs::write(scene.program.workspace().join("a.txt"), "tide 3\n").unwrap();
        let mut touch = Command::new("touch");
        run(touch.args(["-d", stamp, "a.txt"]).current_dir(scene.program.workspace())).ok();
        let two = scene.capture();
        assert!(one < two, "{what}");
        for _ in 0..2 {
            gc(&scene).ok();
        }
        scene.assert_whole(&what);
        clock.set(Says::Shifted(3 * DAY));
        assert_nothing_left(&scene, &what);
        clock.set(Says::Shifted(0));
        scene.assert_restores(&what);
    }
}
