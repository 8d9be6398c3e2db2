//! Many processes on one store, and processes that are killed: what was acknowledged is there, whole.
//!
//! The oracle is a plain copy of each tree, made by this test before the capture.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::corpus::{Corpus, EVERYTHING, Random, Shape};
use crate::support::fingerprint::{self, Fingerprint};
use crate::support::program::{Program, Run, run};

const BINARY: &str = env!("CARGO_BIN_EXE_turnpoint");
/// Of each of eight processes that work at once.
const TURNS: u64 = 8;

/// What one session must hold: by number, the tree as it was.
type Acknowledged = BTreeMap<u64, Fingerprint>;

fn in_directory(program: &Program, directory: &Path, arguments: &[&str]) -> Run {
    let mut command = program.command(arguments);
    command.current_dir(directory);
    run(&mut command)
}

fn capture(program: &Program, directory: &Path, session: &str) -> u64 {
    let taken = in_directory(program, directory, &["capture", "--session", session, "--json"]).ok();
    taken.json()["seq"].as_u64().unwrap()
}

/// Collects with every blob older than the grace.
fn collect(program: &Program) -> Run {
    let mut command = program.command(["gc", "--json"]);
    command.env("TURNPOINT_TEST_CLOCK_SHIFT_SECONDS", "3600");
    run(&mut command)
}

fn listed(program: &Program, session: &str) -> BTreeSet<u64> {
    let list = program.run(["list", "--session", session, "--json"]).ok().json();
    let checkpoints = list["checkpoints"].as_array().unwrap();
    checkpoints
        .iter()
        .filter(|checkpoint| checkpoint["trigger"] != "pre-restore")
        .map(|checkpoint| checkpoint["seq"].as_u64().unwrap())
        .collect()
}

/// Every acknowledged checkpoint among the newest twenty is listed, and each that is listed restores
/// to exactly the tree that was captured.
fn check(program: &Program, session: &str, acknowledged: &Acknowledged) {
    let there = listed(program, session);
    let newest: BTreeSet<u64> = there.iter().rev().take(20).copied().collect();
    let lowest = newest.first().copied().unwrap_or(0);
    for (seq, tree) in acknowledged.range(lowest..) {
        assert!(there.contains(seq), "{session}:{seq} was acknowledged and is not listed");
        let into = program.root().join(format!("out-{session}-{seq}"));
        let into_text = into.to_str().unwrap();
        program.run(["restore", &format!("{session}:{seq}"), "--into", into_text]).ok();
        fingerprint::assert_same(tree, &fingerprint::of(&into));
        fs::remove_dir_all(&into).unwrap();
    }
}

fn verify_clean(program: &Program) {
    let report = program.run(["verify", "--read-data", "--json"]).ok().json();
    assert_eq!(report["findings"], serde_json::json!([]));
}

/// A tree in which no rule leaves anything out, so that the whole of it can be compared: a small one,
/// unless `TURNPOINT_STORM_FILES` says of how many files.
fn small_corpus(root: &Path, seed: u64) -> Corpus {
    let files = std::env::var("TURNPOINT_STORM_FILES");
    let files = files.map_or(150, |files| files.parse().unwrap());
    let shape = Shape { files, mean_bytes: 2_000, ignored: 0, seed };
    let corpus = Corpus::generate(root, shape).unwrap();
    for path in corpus.files.iter().filter(|path| path.ends_with(".gitignore")) {
        fs::remove_file(root.join(path)).unwrap();
    }
    Corpus::adopt(root, seed).unwrap()
}

#[test]
fn fifty_processes_capture_into_one_session_at_once() {
    let program = Program::new(BINARY);
    let directories: Vec<PathBuf> = (0..50)
        .map(|number| {
            let directory = program.root().join(format!("w{number}"));
            fs::create_dir(&directory).unwrap();
            fs::write(directory.join("own"), format!("of {number}")).unwrap();
            fs::write(directory.join("shared"), "in all of them").unwrap();
            directory
        })
        .collect();
    let children: Vec<Child> = directories
        .iter()
        .map(|directory| {
            let mut command = program.command(["capture", "--session", "together", "--json"]);
            command.current_dir(directory).stdin(Stdio::null());
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let mut numbers = BTreeSet::new();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let taken: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(numbers.insert(taken["seq"].as_u64().unwrap()), "a number was given twice");
    }
    assert_eq!(numbers.len(), 50);
    // The newest of each workspace stays, whatever its number.
    assert_eq!(listed(&program, "together"), numbers);
    verify_clean(&program);
}

#[test]
fn two_processes_capture_one_workspace_in_turn() {
    let program = Program::new(BINARY);
    let workspace = program.workspace();
    let mut corpus = small_corpus(&workspace, 5);
    let mut acknowledged = Acknowledged::new();
    for turn in 0..5 {
        corpus.turn(turn, 10, EVERYTHING).unwrap();
        let tree = fingerprint::of(&workspace);
        let children: Vec<Child> = (0..2)
            .map(|_| {
                let mut command = program.command(["capture", "--session", "both", "--json"]);
                command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
                command.spawn().unwrap()
            })
            .collect();
        for child in children {
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let taken: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            acknowledged.insert(taken["seq"].as_u64().unwrap(), tree.clone());
        }
    }
    assert_eq!(acknowledged.len(), 10);
    check(&program, "both", &acknowledged);
    verify_clean(&program);
}

#[test]
fn eight_processes_work_on_one_store_beside_collections() {
    let program = Program::new(BINARY);
    // Half of the trees are equal, so that content is shared, dies and is born again.
    let places: Vec<(String, PathBuf, u64)> = (0..8)
        .map(|number| {
            let name = format!("s{number}");
            (name.clone(), program.root().join(name), number / 2)
        })
        .collect();
    let done = AtomicBool::new(false);
    let kept: Vec<(String, Acknowledged)> = std::thread::scope(|scope| {
        // Whatever fails, the sweeper ends.
        let _end = SetOnDrop(&done);
        let sweeper = scope.spawn(|| {
            let mut collections = 0;
            while !done.load(Ordering::Relaxed) {
                collect(&program).ok();
                collections += 1;
            }
            collections
        });
        let workers: Vec<_> = places
            .iter()
            .map(|(session, directory, seed)| {
                let program = &program;
                scope.spawn(move || (session.clone(), work(program, directory, session, *seed)))
            })
            .collect();
        let kept = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
        done.store(true, Ordering::Relaxed);
        assert!(sweeper.join().unwrap() > 2, "the collections did not run beside the captures");
        kept
    });
    for (session, acknowledged) in &kept {
        assert_eq!(acknowledged.len() as u64, TURNS);
        check(&program, session, acknowledged);
    }
    verify_clean(&program);
}

struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Captures after each turn, goes back once and takes that back.
fn work(program: &Program, directory: &Path, session: &str, seed: u64) -> Acknowledged {
    let mut corpus = small_corpus(directory, seed);
    let mut acknowledged = Acknowledged::new();
    for turn in 0..TURNS {
        corpus.turn(turn, 12, EVERYTHING).unwrap();
        let tree = fingerprint::of(directory);
        acknowledged.insert(capture(program, directory, session), tree);
    }
    let (first, tree) = acknowledged.first_key_value().unwrap();
    let before = fingerprint::of(directory);
    let target = format!("{session}:{first}");
    in_directory(program, directory, &["restore", &target, "--yes", "--session", session]).ok();
    fingerprint::assert_same(tree, &fingerprint::of(directory));
    in_directory(program, directory, &["undo", "--yes", "--session", session]).ok();
    fingerprint::assert_same(&before, &fingerprint::of(directory));
    acknowledged
}

/// Starts a command and kills it after `delay`, unless it has ended by then. Returns its output if it
/// succeeded.
fn killed_after(program: &Program, arguments: &[&str], delay: Duration) -> (bool, Option<Vec<u8>>) {
    let mut command = program.command(arguments);
    command.env("TURNPOINT_TEST_CLOCK_SHIFT_SECONDS", "3600");
    if arguments[0] != "gc" {
        command.env_remove("TURNPOINT_TEST_CLOCK_SHIFT_SECONDS");
    }
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + delay;
    loop {
        if child.try_wait().unwrap().is_some() {
            let output = child.wait_with_output().unwrap();
            return (false, output.status.success().then_some(output.stdout));
        }
        if Instant::now() >= deadline {
            child.kill().unwrap();
            let output = child.wait_with_output().unwrap();
            return (!output.status.success(), output.status.success().then_some(output.stdout));
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_hundred_and_twenty_kills_lose_nothing_that_was_acknowledged() {
    let program = Program::new(BINARY);
    let workspace = program.workspace();
    let mut corpus = small_corpus(&workspace, 9);
    let mut random = Random::new(20_261_129);
    let mut acknowledged = Acknowledged::new();
    acknowledged.insert(capture(&program, &workspace, "k"), fingerprint::of(&workspace));
    // How long an undisturbed run takes, so that the kills fall into it.
    let begun = Instant::now();
    capture(&program, &workspace, "k");
    let usual_us = u64::try_from(begun.elapsed().as_micros()).unwrap();
    let (mut kills, mut rounds) = (0, 0u64);
    while kills < 120 {
        rounds += 1;
        assert!(rounds < 2_000, "only {kills} kills in {rounds} rounds");
        let share = random.below(1_200) as u64;
        let delay = Duration::from_micros(usual_us * share / 1_000);
        let restored = match random.below(4) {
            0 => {
                let there: Vec<u64> = listed(&program, "k").into_iter().collect();
                let target = format!("k:{}", random.choose(&there));
                let arguments = ["restore", &target, "--yes", "--session", "k"];
                kills += u32::from(killed_after(&program, &arguments, delay).0);
                true
            }
            1 => {
                kills += u32::from(killed_after(&program, &["gc"], delay).0);
                false
            }
            _ => {
                corpus.turn(rounds, 3, EVERYTHING).unwrap();
                let tree = fingerprint::of(&workspace);
                let arguments = ["capture", "--session", "k", "--json"];
                let (killed, output) = killed_after(&program, &arguments, delay);
                kills += u32::from(killed);
                if let Some(output) = output {
                    let taken: serde_json::Value = serde_json::from_slice(&output).unwrap();
                    acknowledged.insert(taken["seq"].as_u64().unwrap(), tree);
                }
                false
            }
        };
        if restored {
            // The next command ends it; then the tree is what the corpus has to go on with.
            let seq = capture(&program, &workspace, "k");
            assert!(!workspace.join(".turnpoint").exists(), "a restore left something behind");
            corpus = Corpus::adopt(&workspace, rounds).unwrap();
            acknowledged.insert(seq, fingerprint::of(&workspace));
        }
    }
    capture(&program, &workspace, "k");
    check(&program, "k", &acknowledged);
    verify_clean(&program);
    collect(&program).ok();
    verify_clean(&program);
    let leftovers: Vec<_> = fs::read_dir(program.store().join("tmp")).unwrap().collect();
    assert!(leftovers.is_empty(), "{leftovers:?}");
    let leases: Vec<_> = fs::read_dir(program.store().join("leases")).unwrap().collect();
    assert!(leases.is_empty(), "{leases:?}");
}
