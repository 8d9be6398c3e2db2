//! Errors of the kernel, one call at a time.
//!
//! An operation is run again and again; each time the n-th call of one kind fails, in each thread that
//! comes so far. Whatever the error: the program says so and ends by itself, with exit 0 only if the
//! operation was done; what was acknowledged is whole, the workspace is as it was or can be brought to
//! where it was going, and the next command works.
//!
//! `TURNPOINT_FAULTS=all` takes every n and every error, and not only some of them.

use std::fs;
use std::path::PathBuf;

use crate::kills::scene;
use crate::scene::Scene;
use crate::support::fingerprint::{self, Fingerprint, differences};
use crate::support::program::{Run, run};

/// Calls that fail in the same ways, as strace names them, and how.
struct Fault {
    calls: &'static str,
    errors: &'static [&'static str],
}

/// Beyond this many calls of one kind in a thread nothing new is met in these small trees.
const CALLS_MAX: usize = 400;

const FAULTS: [Fault; 9] = [
    Fault { calls: "write,pwrite64", errors: &["ENOSPC", "EDQUOT", "EIO", "EFBIG"] },
    Fault { calls: "fsync,fdatasync,syncfs", errors: &["EIO", "ENOSPC"] },
    Fault { calls: "rename,renameat2,link,linkat", errors: &["EPERM", "EXDEV", "ENOSPC"] },
    Fault { calls: "unlink,unlinkat", errors: &["EPERM", "EIO"] },
    Fault { calls: "mkdir,mkdirat", errors: &["ENOSPC", "EROFS"] },
    Fault { calls: "open,openat,openat2", errors: &["EMFILE", "EACCES", "EIO"] },
    Fault { calls: "read,pread64", errors: &["EIO"] },
    Fault { calls: "newfstatat,fstat,statx,getdents64", errors: &["EIO", "ENOMEM"] },
    Fault { calls: "flock,fcntl", errors: &["ENOLCK"] },
];

fn takes_all() -> bool {
    std::env::var("TURNPOINT_FAULTS").is_ok_and(|value| value == "all")
}

/// Which calls are hit: the first ones, and then fewer and fewer of them.
fn points() -> Vec<usize> {
    let mut points = vec![1];
    while points[points.len() - 1] < CALLS_MAX {
        let last = points[points.len() - 1];
        points.push(if takes_all() { last + 1 } else { 2 * last + 1 });
    }
    points
}

/// Runs the program with one rule of injection; whether the rule was met is told with it.
fn injected(scene: &Scene, rule: &str, arguments: &[&str]) -> (Run, bool) {
    let log = scene.program.root().join("strace");
    let calls = rule.split(':').next().unwrap();
    let (trace, inject) = (format!("trace={calls}"), format!("inject={rule}"));
    let log_name = log.to_str().unwrap();
    let wrapper = ["strace", "-f", "-qq", "-o", log_name, "-e", &trace, "-e", &inject];
    let mut command = scene.program.under(&wrapper, arguments);
    let run = run(command.env("TURNPOINT_TEST_CLOCK_SHIFT_SECONDS", clock_shift(arguments)));
    let log = fs::read(&log).unwrap();
    let is_met = log.windows(8).any(|text| text == b"INJECTED");
    (run, is_met)
}

/// A collection takes only what nobody has named for a minute.
fn clock_shift(arguments: &[&str]) -> &'static str {
    if arguments[0] == "gc" { "3600" } else { "0" }
}

/// It ended by itself, and if it failed it said why.
fn assert_ended(run: &Run, what: &str) {
    let said = format!("{}{}", run.stdout, run.stderr);
    if run.code == 127 && said.contains("error while loading shared libraries") {
        // It was the loader that could not go on.
        return;
    }
    assert!(matches!(run.code, 0..=5), "{what}: exit {}: {said}", run.code);
    assert!(!said.contains("panicked"), "{what}: {said}");
}

/// Does one operation under each fault at each point, and checks after each. So many errors of each kind of
/// call are taken in the short form.
fn under_every_fault(
    name: &str,
    errors_of_each: usize,
    mut one: impl FnMut(&mut Scene, u64, &dyn Fn(&Scene, &[&str]) -> Run, &str),
) {
    let mut scene = scene();
    scene.capture();
    let mut tries = 0;
    for Fault { calls, errors } in FAULTS {
        let errors = if takes_all() { errors } else { &errors[..errors.len().min(errors_of_each)] };
        for error in errors {
            for at in points() {
                let rule = format!("{calls}:error={error}:when={at}");
                let what = format!("{name}, {rule}");
                tries += 1;
                let is_met = std::cell::Cell::new(false);
                let program = |scene: &Scene, arguments: &[&str]| {
                    let (run, met) = injected(scene, &rule, arguments);
                    is_met.set(is_met.get() || met);
                    assert_ended(&run, &what);
                    run
                };
                one(&mut scene, tries, &program, &what);
                if tries % 16 == 0 {
                    scene.assert_whole(&what);
                } else {
                    scene.assert_newest(&what);
                }
                if !is_met.get() {
                    break;
                }
            }
        }
    }
    assert!(tries > 30 * errors_of_each as u64, "{tries}");
}

#[test]
fn a_capture_whose_calls_fail_says_so_and_loses_nothing() {
    under_every_fault("capture", 2, |scene, turn, program, what| {
        scene.edit(turn);
        let before = fingerprint::with_stamps(&scene.program.workspace());
        let captured = program(scene, &["capture", "--session", "s"]);
        let after = fingerprint::with_stamps(&scene.program.workspace());
        assert!(before == after, "{what}: {}", differences(&before, &after));
        if captured.code == 0 {
            scene.acknowledge_newest();
        }
    });
}

/// Who has no handles or no memory left sees nothing, which says nothing of what is there.
#[test]
fn what_cannot_be_opened_for_want_of_handles_or_memory_is_not_left_out() {
    let mut scene = scene();
    fs::write(scene.program.workspace().join(".gitignore"), "nothing\n").unwrap();
    scene.capture();
    let log = scene.program.root().join("strace");
    let capture_under = |error: &str, name: &str| {
        // By its path and as it is named in its directory.
        let path = scene.program.workspace().join(name);
        let paths = ["-P", path.to_str().unwrap(), "-P", name];
        let inject = format!("inject=openat,openat2:error={error}");
        let trace =
            ["strace", "-f", "-qq", "-o", log.to_str().unwrap(), "-e", "trace=openat,openat2"];
        let wrapper = [&trace[..], &["-e", &inject], &paths].concat();
        run(&mut scene.program.under(&wrapper, ["capture", "--session", "s"]))
    };
    for error in ["EMFILE", "ENFILE", "ENOMEM"] {
        // Nor is what git ignores taken in.
        for name in ["d", ".gitignore"] {
            capture_under(error, name).exits(1);
            assert!(!scene.program.store().join("s/1.json").exists(), "{error} at {name}");
        }
    }
    // What says something of the directory itself is told, and the rest is held.
    let captured = capture_under("EIO", "d").exits(4);
    assert!(captured.stderr.contains("d: io-error"), "{}", captured.stderr);
    scene.assert_whole("a directory that could not be opened");
}

#[test]
fn a_collection_whose_calls_fail_takes_nothing_that_is_needed() {
    under_every_fault("gc", 2, |scene, turn, program, _| {
        // What this leaves behind has something to be removed, and something to be packed.
        scene.edit(turn);
        let passing = ["capture", "--session", "passing"];
        scene.program.run(passing).ok();
        scene.edit(turn + 1);
        scene.capture();
        scene.program.run(["prune", "--session", "passing", "--keep", "0", "--yes"]).ok();
        program(scene, &["gc"]);
    });
}

#[test]
fn a_restore_whose_calls_fail_leaves_the_workspace_as_it_was_or_can_be_completed() {
    under_every_fault("restore", 2, |scene, turn, program, what| {
        let target = scene.capture();
        let wanted = fingerprint::of(&scene.program.workspace());
        scene.edit(turn);
        fs::write(scene.program.workspace().join("unsaved"), format!("{turn}")).unwrap();
        let present = fingerprint::of(&scene.program.workspace());
        let restored = program(scene, &["restore", "s", &target.to_string(), "--yes"]);
        settle(scene, &restored, &present, &wanted, what);
    });
}

#[test]
fn an_undo_whose_calls_fail_leaves_the_workspace_as_it_was_or_can_be_completed() {
    // The calls are those of a restore; what is another is the target.
    under_every_fault("undo", 1, |scene, turn, program, what| {
        let target = scene.capture();
        scene.edit(turn);
        let wanted = fingerprint::of(&scene.program.workspace());
        scene.program.run(["restore", "s", &target.to_string(), "--yes"]).ok();
        let present = fingerprint::of(&scene.program.workspace());
        let undone = program(scene, &["undo", "--yes"]);
        settle(scene, &undone, &present, &wanted, what);
    });
}

/// Ends a restore as a person would, and checks that it got there, or that nothing was done; what was in
/// the workspace before it can be had again in either case.
fn settle(scene: &Scene, run: &Run, present: &Fingerprint, wanted: &Fingerprint, what: &str) {
    let continued = scene.program.run(["restore", "--continue"]);
    let found = fingerprint::of(&scene.program.workspace());
    let (to_wanted, to_present) = (differences(wanted, &found), differences(present, &found));
    if run.code == 0 {
        assert!(to_wanted.is_empty(), "{what}: it said that it was done:\n{to_wanted}");
    } else if run.code == 3 && !to_present.is_empty() {
        let said = format!("{}{}", run.stdout, run.stderr);
        let is_told = |line: &str| said.contains(line.split(':').next().unwrap());
        assert!(to_wanted.lines().all(is_told), "{what}: {said} does not tell of\n{to_wanted}");
    } else {
        assert!(
            to_wanted.is_empty() || to_present.is_empty(),
            "{what}: exit {}, {}{} then {}{}; neither here nor there:\n{to_wanted}\nand from \
             before:\n{to_present}",
            run.code,
            run.stdout,
            run.stderr,
            continued.stdout,
            continued.stderr,
        );
    }
    if !to_present.is_empty() {
        let saved = scene.restored(&scene.newest_safety());
        // What could not be saved must have been left alone.
        let is_lost = |path: &&PathBuf| {
            saved.get(*path) != present.get(*path) && found.get(*path) != present.get(*path)
        };
        let lost: Vec<&PathBuf> = present.keys().filter(is_lost).collect();
        assert!(lost.is_empty(), "{what}: changed and not saved before: {lost:?}");
    }
    assert_no_stage(&scene.program.workspace(), what);
}

fn assert_no_stage(workspace: &std::path::Path, what: &str) {
    let stages: Vec<PathBuf> = fs::read_dir(workspace)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().is_some_and(|name| name == ".turnpoint"))
        .collect();
    assert!(stages.is_empty(), "{what}: {stages:?} stayed");
}

#[test]
fn a_call_that_is_interrupted_is_made_again() {
    let mut scene = scene();
    scene.capture();
    // Every second call; not those that a kernel never interrupts on a disk. The first opened and read
    // are libraries, by a loader that gives up.
    let calls = [
        ("write", 1),
        ("pwrite64", 1),
        ("flock", 1),
        ("read", 8),
        ("pread64", 8),
        ("open,openat,openat2", 16),
    ];
    for (calls, first) in calls {
        for first in [first, first + 1] {
            let rule = format!("{calls}:error=EINTR:when={first}+2");
            scene.edit(first);
            let (captured, is_met) = injected(&scene, &rule, &["capture", "--session", "s"]);
            assert_eq!(captured.code, 0, "{rule}: {}{}", captured.stdout, captured.stderr);
            assert!(is_met || ["flock", "getdents64"].contains(&calls), "{rule}: met nothing");
            scene.acknowledge_newest();
            scene.assert_whole(&rule);
        }
    }
}

#[test]
fn a_write_that_lies_about_its_length_is_found_before_anything_is_acknowledged() {
    let mut scene = scene();
    scene.capture();
    let mut met = 0;
    for at in 1..12 {
        // A byte is said to be written, and none was.
        let rule = format!("write:retval=1:when={at}");
        scene.edit(at);
        let (captured, is_met) = injected(&scene, &rule, &["capture", "--session", "s"]);
        assert_ended(&captured, &rule);
        if captured.code == 0 {
            scene.acknowledge_newest();
        }
        scene.assert_newest(&rule);
        met += u64::from(is_met);
    }
    assert!(met > 2, "{met}");
    scene.assert_whole("after all lies");
}
