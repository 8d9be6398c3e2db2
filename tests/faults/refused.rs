//! File systems that can be written no more or have no room any more in the middle of it, and files that
//! nobody may change.
//!
//! Needs root: file systems are mounted.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::full::{Mounted, done};
use crate::kills::{assert_nothing_left, gc, tree};
use crate::scene::{BINARY, Scene};
use crate::steps::{self, Step};
use crate::support::fingerprint::{self, differences};
use crate::support::packs;
use crate::support::program::{Program, Run, run};

const CAPTURE: [&str; 3] = ["capture", "--session", "s"];
const RESTORE: [&str; 3] = ["restore", "s:0", "--yes"];

/// The first of the main thread's steps whose text holds `part`.
#[track_caller]
fn step_of<'a>(steps: &'a [Step], part: &str) -> &'a Step {
    let is_it = |step: &&Step| step.is_main && step.text.contains(part);
    steps.iter().find(is_it).unwrap_or_else(|| panic!("no step with {part} in {steps:#?}"))
}

fn sync(place: &Path) {
    done(Command::new("sync").arg("-f").arg(place));
}

/// Why it did nothing, and what to do about it.
fn assert_read_only(run: &Run, what: &str) {
    assert_eq!(run.code, 1, "{what}: {}{}", run.stdout, run.stderr);
    let is_told = ["Read-only file system", "readonly database"].iter();
    assert!(is_told.clone().any(|text| run.stderr.contains(text)), "{what}: {}", run.stderr);
    assert!(run.stderr.contains("hint: mount the file system"), "{what}: {}", run.stderr);
}

#[test]
fn a_store_that_can_be_written_no_more_in_the_middle_of_a_capture_is_read_and_comes_back() {
    let disk = Mounted::ext4("80M");
    let mut scene = Scene::below(disk.place());
    for turn in 1..4 {
        scene.capture();
        scene.edit(turn);
    }
    let elsewhere = tempfile::tempdir().unwrap();
    let mut saved = scene.save();
    let steps = steps::of(&scene.program, &CAPTURE);
    // Content and pages are written, and have their names; the manifest has its own.
    for part in ["openat(AT_FDCWD", "RENAME_NOREPLACE", "\"3.json\", RENAME_NOREPLACE"] {
        let what = format!("read-only at {part}");
        scene.put_back(&mut saved);
        sync(disk.place());
        let stopped = step_of(&steps, part).hold(&scene.program, &CAPTURE).unwrap();
        disk.go_read_only();
        assert_read_only(&stopped.go_on(), &what);
        for command in [&["list"][..], &["show", "s:0"], &["verify", "--read-data"]] {
            scene.program.run(command).ok();
        }
        let (_, holds) = scene.acknowledged().next().unwrap();
        let into = elsewhere.path().join("into");
        scene.program.run(["restore", "s:0", "--yes", "--into", into.to_str().unwrap()]).ok();
        fingerprint::assert_same(holds, &fingerprint::of(&into));
        fs::remove_dir_all(into).unwrap();
        for command in [&["capture"][..], &["gc"], &["pin", "s:0"], &["restore", "s:0", "--yes"]] {
            assert_read_only(&scene.program.run(command), &format!("{what}: {command:?}"));
        }
        disk.come_back();
        scene.assert_whole(&what);
        assert_nothing_left(&scene, &what);
    }
}

/// A scene whose workspace is a file system of its own. The file system is to be dropped first.
fn scene_on_a_disk() -> (Scene, Mounted) {
    let program = Program::new(BINARY);
    let disk = Mounted::ext4_over("40M", program.workspace());
    fs::remove_dir(disk.place().join("lost+found")).unwrap();
    (Scene::with(program), disk)
}

#[test]
fn a_workspace_that_can_be_written_no_more_in_the_middle_of_a_restore_is_completed_later() {
    let (mut scene, disk) = scene_on_a_disk();
    scene.capture();
    let target = fingerprint::of(&scene.program.workspace());
    scene.edit(1);
    scene.edit(2);
    let before = fingerprint::of(&scene.program.workspace());
    let mut saved = scene.save();
    let steps = steps::of(&scene.program, &RESTORE);
    // Its journal has its name and nothing is staged; the first file has changed.
    for (part, code) in [(".json\") = 0", 1), ("RENAME_EXCHANGE", 3)] {
        let what = format!("read-only at {part}");
        scene.put_back(&mut saved);
        let stopped = step_of(&steps, part).hold(&scene.program, &RESTORE).unwrap();
        disk.remount("ro");
        let run = stopped.go_on();
        assert_eq!(run.code, code, "{what}: {}{}", run.stdout, run.stderr);
        assert!(run.stderr.contains("Read-only file system"), "{what}: {}", run.stderr);
        let found = tree(&scene);
        assert_eq!(found == before, code == 1, "{what}: {}", differences(&before, &found));
        // Nor can it be ended now, which is told each time.
        let again = scene.program.run(["restore", "--continue"]).exits(3);
        assert!(again.stderr.contains("`turnpoint restore --continue` tries again"), "{what}");
        assert!(tree(&scene) == found, "{what}");
        disk.remount("rw");
        scene.program.run(["restore", "--continue"]).ok();
        if code == 1 {
            let found = fingerprint::of(&scene.program.workspace());
            assert!(found == before, "{what}: {}", differences(&before, &found));
            scene.program.run(RESTORE).ok();
        }
        let found = fingerprint::of(&scene.program.workspace());
        assert!(found == target, "{what}: {}", differences(&target, &found));
        scene.program.run(["undo", "--yes"]).ok();
        let found = fingerprint::of(&scene.program.workspace());
        assert!(found == before, "{what}: {}", differences(&before, &found));
        scene.assert_whole(&what);
        assert_nothing_left(&scene, &what);
    }
}

#[test]
fn a_workspace_that_fills_up_while_a_restore_stages_is_not_touched() {
    let (mut scene, disk) = scene_on_a_disk();
    let large = scene.program.workspace().join("large");
    fs::write(&large, "large\n".repeat(200_000)).unwrap();
    scene.capture();
    let target = fingerprint::of(&scene.program.workspace());
    fs::write(&large, "short\n").unwrap();
    scene.edit(1);
    let before = fingerprint::of(&scene.program.workspace());
    let mut saved = scene.save();
    let steps = steps::of(&scene.program, &RESTORE);
    scene.put_back(&mut saved);
    // It has looked whether there is room, and there was.
    let stopped = step_of(&steps, "\"stage-").hold(&scene.program, &RESTORE).unwrap();
    disk.fill(0);
    let run = stopped.go_on();
    assert_eq!(run.code, 1, "{}{}", run.stdout, run.stderr);
    assert!(run.stderr.contains("No space left on device"), "{}", run.stderr);
    assert!(run.stderr.contains("hint: free some space"), "{}", run.stderr);
    disk.empty();
    fingerprint::assert_same(&before, &fingerprint::of(&scene.program.workspace()));
    scene.program.run(RESTORE).ok();
    fingerprint::assert_same(&target, &fingerprint::of(&scene.program.workspace()));
    scene.assert_whole("a workspace that was full");
    assert_nothing_left(&scene, "a workspace that was full");
}

fn chattr(change: &str, path: &Path) {
    done(Command::new("chattr").arg(change).arg(path));
}

#[test]
fn files_that_nobody_may_change_are_named_and_the_rest_is_restored() {
    let (mut scene, _disk) = scene_on_a_disk();
    scene.capture();
    let target = fingerprint::of(&scene.program.workspace());
    scene.edit(1);
    let at = |name: &str| scene.program.workspace().join(name);
    fs::write(at("d/e/f/deep"), "changed").unwrap();
    fs::write(at("d/e/f/new"), "new").unwrap();
    fs::create_dir(at("g")).unwrap();
    fs::write(at("g/held"), "held").unwrap();
    let before = fingerprint::of(&scene.program.workspace());

    // Without a place to stage anything nothing is changed.
    chattr("+i", &scene.program.workspace());
    let refused = scene.program.run(RESTORE).exits(1);
    assert!(refused.stderr.contains(".turnpoint"), "{}", refused.stderr);
    fingerprint::assert_same(&before, &fingerprint::of(&scene.program.workspace()));
    chattr("-i", &scene.program.workspace());

    chattr("+i", &at("a.txt"));
    chattr("+a", &at("d/e/f"));
    chattr("+i", &at("g/held"));
    let told = scene.program.run(RESTORE).exits(3);
    let left = ["a.txt", "d/e/f/deep", "d/e/f/new", "g/held"];
    let mut expected = target.clone();
    for path in left {
        assert!(told.stderr.contains(&format!("`{path}`: cannot ")), "{}", told.stderr);
        expected.insert(path.into(), before[Path::new(path)].clone());
    }
    // Nobody has changed the directory of what stays.
    assert!(told.stdout.contains("something in it stays\n  g\n"), "{}", told.stdout);
    expected.insert(PathBuf::from("g"), before[Path::new("g")].clone());
    fingerprint::assert_same(&expected, &fingerprint::of(&scene.program.workspace()));
    chattr("-i", &at("a.txt"));
    chattr("-a", &at("d/e/f"));
    chattr("-i", &at("g/held"));

    scene.program.run(RESTORE).ok();
    fingerprint::assert_same(&target, &fingerprint::of(&scene.program.workspace()));
    scene.program.run(["undo", "--yes"]).ok();
    scene.program.run(["undo", "--yes"]).ok();
    fingerprint::assert_same(&before, &fingerprint::of(&scene.program.workspace()));

    // Another undo would take back what came before: what brings back the rest is named.
    scene.program.run(RESTORE).ok();
    chattr("+i", &at("a.txt"));
    let told = scene.program.run(["undo", "--yes"]).exits(3);
    chattr("-i", &at("a.txt"));
    let (_, hint) = told.stderr.split_once("hint: `turnpoint restore ").unwrap();
    let (words, _) = hint.split_once("` brings back the rest").unwrap();
    assert!(words.ends_with(" a.txt"), "{words}");
    let words: Vec<&str> = words.split(' ').collect();
    scene.program.run([&["restore"][..], &words, &["--yes"]].concat()).ok();
    fingerprint::assert_same(&before, &fingerprint::of(&scene.program.workspace()));
    scene.assert_whole("files that nobody could change");
    assert_nothing_left(&scene, "files that nobody could change");
}

/// An hour after [`gc`].
fn gc_later(scene: &Scene) -> Run {
    let mut command = scene.program.command(["gc", "--json"]);
    run(command.env("TURNPOINT_TEST_CLOCK_SHIFT_SECONDS", "7200"))
}

#[test]
fn a_collection_names_what_nobody_may_remove_and_removes_the_rest() {
    let disk = Mounted::ext4("80M");
    let mut scene = Scene::below(disk.place());
    for turn in 1..4 {
        scene.capture();
        scene.edit(turn);
    }
    // A checkpoint whose file stays is not shown any more, and goes when it can.
    let manifest = scene.program.store().join("s/0.json");
    chattr("+i", &manifest);
    for command in [&["prune", "--session", "s", "--keep", "2", "--yes"][..], &["gc"]] {
        let refused = scene.program.run(command).exits(1);
        assert!(refused.stderr.contains("/s/0.json"), "{command:?}: {}", refused.stderr);
    }
    scene.program.run(["show", "s:0"]).exits(2);
    scene.forget(0);
    scene.assert_whole("a manifest that nobody could remove");
    chattr("-i", &manifest);
    // Nothing needs its content from now on.
    gc(&scene).ok();

    packs::make_loose(&scene.program.store());
    let blobs = || {
        let shards = fs::read_dir(scene.program.store().join("blobs")).unwrap();
        let names = shards.flat_map(|shard| fs::read_dir(shard.unwrap().path()).unwrap());
        names.map(|name| name.unwrap().path()).collect::<BTreeSet<PathBuf>>()
    };
    let failed = |run: &Run| {
        let run = run.json();
        let failed = run["failed"].as_array().unwrap().iter();
        failed.map(|it| PathBuf::from(it["path"].as_str().unwrap())).collect::<BTreeSet<_>>()
    };
    let all = blobs();
    for blob in &all {
        chattr("+i", blob);
    }
    let unneeded = failed(&gc_later(&scene).exits(4));
    assert!(unneeded.len() > 2 && unneeded.len() < all.len(), "{unneeded:?}");
    assert_eq!(blobs(), all);
    let first = unneeded.first().unwrap();
    chattr("-i", first);
    let rest = failed(&gc_later(&scene).exits(4));
    assert_eq!(unneeded.difference(&rest).collect::<Vec<_>>(), [first]);
    assert_eq!(all.difference(&blobs()).collect::<Vec<_>>(), [first]);
    for blob in blobs() {
        chattr("-i", &blob);
    }
    gc_later(&scene).ok();
    assert_eq!(all.difference(&blobs()).cloned().collect::<BTreeSet<_>>(), unneeded);
    scene.assert_whole("blobs that nobody could remove");
    assert_nothing_left(&scene, "blobs that nobody could remove");
}
