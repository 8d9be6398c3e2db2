//! Two at once, held where it matters.
//!
//! A process is stopped by `strace` at one of its calls, others do their work, and it goes on: nothing
//! rests on how long anything takes.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::kills::scene;
use crate::scene::Scene;
use crate::steps::{Stopped, wait_for_waiting};
use crate::support::fingerprint::{self, differences};
use crate::support::program::{Run, run};

fn collect(scene: &Scene) -> Run {
    let mut command = scene.program.command(["gc"]);
    run(command.env("TURNPOINT_TEST_CLOCK_SHIFT_SECONDS", "3600"))
}

/// A scene whose contents of the next turn lie in the store and nobody names them: they were in another
/// session's checkpoints, which are gone.
fn scene_with_unnamed_contents(seed: u64, packed: bool) -> Scene {
    let mut scene = scene();
    scene.capture();
    scene.edit(seed);
    let many = scene.program.workspace().join("many-more");
    fs::create_dir(&many).unwrap();
    for number in 0..40 {
        fs::write(many.join(number.to_string()), format!("{seed} and {number}")).unwrap();
    }
    scene.program.run(["capture", "--session", "passing"]).ok();
    if packed {
        collect(&scene).ok();
        assert_ne!(fs::read_dir(scene.program.store().join("packs")).unwrap().count(), 0);
    }
    let hidden = scene.program.root().join("hidden");
    fs::rename(&many, &hidden).unwrap();
    scene.program.run(["capture", "--session", "passing"]).ok();
    scene.program.run(["prune", "--session", "passing", "--keep", "1", "--yes"]).ok();
    fs::rename(&hidden, &many).unwrap();
    scene
}

/// Stops `first` at its n-th call for many n, runs `second` beside it, and looks what is left.
fn at_each_stop(packed: bool, calls: &str, first: &[&str], second: fn(&Scene) -> Run) -> usize {
    let mut stops = 0;
    for at in [1, 2, 3, 5, 8, 13, 21, 34] {
        let mut scene = scene_with_unnamed_contents(at as u64, packed);
        let what = format!("{first:?} stopped at {calls} {at}, packed: {packed}");
        let stopped = match Stopped::at(&scene.program, calls, at, first) {
            Ok(stopped) => stopped,
            Err(ended) => {
                assert_eq!(ended.code, 0, "{what}: {}", ended.stderr);
                break;
            }
        };
        stops += 1;
        let (ended, other) = thread::scope(|scope| {
            let other = scope.spawn(|| second(&scene));
            // It gets as far as it can; it may have to wait for the first.
            wait_for_waiting(&scene.program, 1, || other.is_finished());
            (stopped.go_on(), other.join().unwrap())
        });
        for run in [&ended, &other] {
            assert_eq!(run.code, 0, "{what}: {}{}", run.stdout, run.stderr);
        }
        scene.acknowledge_newest();
        collect(&scene).ok();
        scene.assert_whole(&what);
    }
    stops
}

fn capture(scene: &Scene) -> Run {
    scene.program.run(["capture", "--session", "s"])
}

const CAPTURE: [&str; 3] = ["capture", "--session", "s"];
const NAMES: &str = "link,linkat,rename,renameat2,unlink,unlinkat";

#[test]
fn a_capture_that_stands_still_for_hours_keeps_what_it_needs_from_collections() {
    let twice = |scene: &Scene| {
        collect(scene);
        collect(scene)
    };
    let mut stops = 0;
    for packed in [false, true] {
        stops += at_each_stop(packed, NAMES, &CAPTURE, twice);
        stops += at_each_stop(packed, "fsync,fdatasync,syncfs,pwrite64", &CAPTURE, twice);
    }
    assert!(stops > 16, "{stops}");
}

#[test]
fn a_collection_that_stands_still_takes_nothing_that_a_capture_has_found() {
    let mut stops = 0;
    for packed in [false, true] {
        stops += at_each_stop(packed, NAMES, &["gc"], capture);
        stops += at_each_stop(packed, "fsync,fdatasync,syncfs,pwrite64", &["gc"], capture);
    }
    assert!(stops > 12, "{stops}");
}

#[test]
fn a_lease_that_is_removed_under_a_living_capture_loses_nothing() {
    let mut stops = 0;
    for (calls, at) in [(NAMES, 1), (NAMES, 2), ("pwrite64", 4), ("pwrite64", 9), ("fsync", 1)] {
        let mut scene = scene_with_unnamed_contents(at as u64, false);
        let Ok(stopped) = Stopped::at(&scene.program, calls, at, &CAPTURE) else { continue };
        stops += 1;
        let leases = scene.program.store().join("leases");
        for lease in fs::read_dir(&leases).unwrap() {
            fs::remove_file(lease.unwrap().path()).unwrap();
        }
        // Everybody takes it for dead now; some have to wait until it goes on.
        let ended = thread::scope(|scope| {
            let collections = scope.spawn(|| [collect(&scene), collect(&scene)]);
            wait_for_waiting(&scene.program, 1, || collections.is_finished());
            let ended = stopped.go_on();
            for collection in collections.join().unwrap() {
                collection.ok();
            }
            ended
        });
        if ended.code == 0 {
            scene.acknowledge_newest();
        }
        scene.assert_whole(&format!("stopped at {calls} {at}, {}", ended.stderr));
    }
    assert!(stops > 2, "{stops}");
}

#[test]
fn the_base_of_a_capture_that_stands_still_is_not_pruned_under_it() {
    let mut scene = scene();
    scene.capture();
    scene.edit(1);
    let stopped = Stopped::at(&scene.program, NAMES, 1, &CAPTURE).unwrap();
    scene.program.run(["prune", "--session", "s", "--keep", "0", "--yes"]).ok();
    collect(&scene).ok();
    let ended = stopped.go_on();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    scene.acknowledge_newest();
    scene.assert_whole("pruned meanwhile");
}

#[test]
fn two_workspaces_in_one_session_push_each_others_bases_out_and_lose_nothing() {
    let mut scene = scene();
    scene.capture();
    let other = scene.program.root().join("other");
    fs::create_dir(&other).unwrap();
    for turn in 0..26 {
        fs::write(other.join("file"), format!("other {turn}")).unwrap();
        let mut command = scene.program.command(CAPTURE);
        run(command.current_dir(&other)).ok();
    }
    collect(&scene).ok();
    // Its own newest is gone or not: what it builds on must be whole.
    scene.edit(1);
    scene.capture();
    scene.assert_whole("after the other's turns");
    fs::write(other.join("more"), "more").unwrap();
    let mut command = scene.program.command(CAPTURE);
    run(command.current_dir(&other)).ok();
    scene.program.run(["verify", "--read-data"]).ok();
}

#[test]
fn restores_and_captures_of_one_workspace_come_one_after_another() {
    let mut scene = scene();
    let first = scene.capture();
    let one = fingerprint::of(&scene.program.workspace());
    scene.edit(1);
    let second = scene.capture();
    let two = fingerprint::of(&scene.program.workspace());
    for at in [1, 2, 4] {
        let arguments = ["restore", "s", &first.to_string(), "--yes"];
        let stopped = Stopped::at(&scene.program, NAMES, at, &arguments).unwrap();
        let (ended, others) = thread::scope(|scope| {
            let capture = scope.spawn(|| scene.program.run(["capture", "--session", "beside"]));
            let restore =
                scope.spawn(|| scene.program.run(["restore", "s", &second.to_string(), "--yes"]));
            let has_ended = || capture.is_finished() || restore.is_finished();
            let is_held = wait_for_waiting(&scene.program, 2, has_ended);
            assert!(is_held, "stopped at {at}: one of them did not wait for the restore");
            let ended = stopped.go_on();
            (ended, [capture.join().unwrap(), restore.join().unwrap()])
        });
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        for other in &others {
            assert_eq!(other.code, 0, "{}{}", other.stdout, other.stderr);
        }
        let found = fingerprint::of(&scene.program.workspace());
        assert!(found == two, "the last restore did not win: {}", differences(&two, &found));
        // What was captured beside them is one of the two states, and nothing in between.
        let listed = scene.program.run(["list", "--session", "beside", "--json"]).ok().json();
        let newest = listed["checkpoints"].as_array().unwrap().last().unwrap()["seq"].clone();
        let captured = scene.restored(&format!("beside:{newest}"));
        assert!(captured == one || captured == two, "{}", differences(&one, &captured));
    }
    scene.assert_whole("after all");
}

#[test]
fn what_an_editor_saves_while_a_restore_changes_files_is_kept() {
    let mut tried = 0;
    for at in 1..12 {
        let mut scene = scene();
        let target = scene.capture();
        scene.edit(7);
        let arguments = ["restore", "s", &target.to_string(), "--yes"];
        let Ok(stopped) = Stopped::at(&scene.program, "rename,renameat,renameat2", at, &arguments)
        else {
            continue;
        };
        tried += 1;
        // As editors do: a new file that takes the name.
        let file = scene.program.workspace().join("a.txt");
        let new = scene.program.workspace().join(".a.txt.new");
        fs::write(&new, "saved by the editor").unwrap();
        fs::rename(&new, &file).unwrap();
        let ended = stopped.go_on();
        assert!(matches!(ended.code, 0 | 3), "{at}: {}{}", ended.stdout, ended.stderr);
        let kept = fs::read(&file).unwrap() == b"saved by the editor";
        let is_saved = || {
            let saved = scene.restored(&scene.newest_safety());
            let expected = blake3::hash(b"saved by the editor");
            matches!(
                saved.get(Path::new("a.txt")).map(|node| &node.kind),
                Some(fingerprint::Kind::File { content, .. }) if *content == expected
            )
        };
        // It came after the restore had looked, or it was saved by the restore, or it is still there.
        assert!(kept || is_saved(), "{at}: it is lost: {}{}", ended.stdout, ended.stderr);
        scene.assert_whole(&format!("saved at {at}"));
    }
    assert!(tried > 3, "{tried}");
}

/// Does something over and over beside `work`, and says how often it was done.
fn beside(something: impl Fn() + Sync, work: impl FnOnce()) -> u64 {
    let (done, count) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let worker = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                something();
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        let end = SetAtEnd(&done);
        work();
        drop(end);
        worker.join().unwrap();
    });
    count.into_inner()
}

/// Also where a test fails: the other thread would go on for ever.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_directory_that_is_a_symlink_now_and_then_leads_no_restore_out_of_the_workspace() {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    let mut scene = scene();
    let target = scene.capture();
    let outside = scene.program.root().join("outside");
    fs::create_dir_all(outside.join("e/f")).unwrap();
    fs::write(outside.join("big"), "outside").unwrap();
    fs::write(outside.join("e/f/deep"), "outside").unwrap();
    let before = fingerprint::with_stamps(&outside);
    let (dir, link) = (scene.program.workspace().join("d"), scene.program.root().join("link"));
    symlink(&outside, &link).unwrap();
    let exchange = || renameat_with(CWD, &dir, CWD, &link, RenameFlags::EXCHANGE).unwrap();
    let begin = Instant::now();
    let exchanged = beside(exchange, || {
        let mut turn = 0;
        while begin.elapsed() < Duration::from_secs(12) {
            turn += 1;
            // Through one of the two names, wherever it leads.
            drop(fs::write(scene.program.workspace().join("a.txt"), format!("turn {turn}")));
            for path in [&["d"][..], &[]] {
                let seq = target.to_string();
                let arguments = [&["restore", "s", &seq, "--yes"], path].concat();
                let restored = scene.program.run(arguments);
                assert!(matches!(restored.code, 0..=4), "{}", restored.stderr);
                drop(scene.program.run(["restore", "--abort", "--yes"]));
            }
        }
    });
    let after = fingerprint::with_stamps(&outside);
    assert!(before == after, "{}", differences(&before, &after));
    assert!(exchanged > 20_000, "{exchanged}");
    if fs::symlink_metadata(&dir).unwrap().is_symlink() {
        exchange();
    }
    scene.assert_whole("after all");
}

#[test]
fn files_that_are_fifos_now_and_then_hold_no_capture_up() {
    let mut scene = scene();
    scene.capture();
    let file = scene.program.workspace().join("many/00");
    let (regular, fifo) = (scene.program.root().join("regular"), scene.program.root().join("fifo"));
    fs::write(&regular, "regular").unwrap();
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let turns = AtomicU64::new(0);
    let swap = || {
        let turn = turns.fetch_add(1, Ordering::Relaxed);
        let from = if turn.is_multiple_of(2) { &fifo } else { &regular };
        let name = scene.program.root().join("next");
        drop(fs::remove_file(&name));
        fs::hard_link(from, &name).unwrap();
        fs::rename(&name, &file).unwrap();
    };
    let begin = Instant::now();
    let swapped = beside(swap, || {
        while begin.elapsed() < Duration::from_secs(5) {
            let captured = scene.program.run(["capture", "--session", "s"]);
            // Where it was never the same for two looks, that is told.
            assert!(matches!(captured.code, 0 | 4), "{}", captured.stderr);
        }
    });
    assert!(swapped > 1_000, "{swapped}");
    fs::remove_file(&file).unwrap();
    fs::write(&file, "regular in the end").unwrap();
    scene.assert_whole("after all");
}
