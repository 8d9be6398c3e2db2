//! An index that another program keeps locked for longer than anybody waits.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use crate::kills::{assert_nothing_left, three_turns};
use crate::scene::Scene;
use crate::steps;
use crate::support::fingerprint::{self, differences};
use crate::support::program::{Program, Run};

/// `sqlite3` with a transaction open; it ends, and with it the transaction, when this is dropped.
struct Holder(Child);

impl Holder {
    /// Returns when the lock is held.
    fn of(store: &Path, begin: &str) -> Self {
        let mut sqlite = Command::new("sqlite3");
        sqlite.args(["-batch", "-bail"]).arg(store.join("index.db"));
        let child = sqlite.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut holder = Self(child);
        let statements = format!(".timeout 10000\n{begin};\nSELECT 'held';\n");
        holder.0.stdin.as_mut().unwrap().write_all(statements.as_bytes()).unwrap();
        let mut lines = BufReader::new(holder.0.stdout.take().unwrap()).lines();
        let is_held = lines.any(|line| line.unwrap() == "held");
        assert!(is_held, "{begin} was refused");
        holder
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // Nothing of it stays: a transaction whose process ends is no transaction.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

const WRITERS: &str = "BEGIN IMMEDIATE";
/// As a tool does that opens the database for itself alone; it needs a change to begin with.
const EVERYBODY: &str =
    "PRAGMA locking_mode = EXCLUSIVE;\nBEGIN EXCLUSIVE;\nPRAGMA user_version = 99";

fn assert_busy(run: &Run, what: &str) {
    assert_eq!(run.code, 5, "{what}: {}{}", run.stdout, run.stderr);
    let told = "error: the index is in use by another process; waited 30 s\n\nhint: try again";
    assert!(run.stderr.contains(told), "{what}: {}", run.stderr);
}

/// Everything that writes waits, and then says so; what reads does its work meanwhile.
fn held_against_writers() {
    let mut scene = three_turns();
    let tree = fingerprint::with_stamps(&scene.program.workspace());
    let holder = Holder::of(&scene.program.store(), WRITERS);
    for command in [
        &["list"][..],
        &["show", "s:0"],
        &["ls", "s:0"],
        &["cat", "s:0", "a.txt"],
        &["verify", "--read-data"],
        &["restore", "s:0", "--dry-run"],
        &["gc", "--dry-run"],
    ] {
        scene.program.run(command).ok();
    }
    let commands = [
        &["capture", "--session", "s"][..],
        &["restore", "s:0", "--yes", "--into", "../into"],
        &["prune", "--session", "s", "--keep", "1", "--yes"],
        &["pin", "s:0"],
    ];
    assert_all_busy(&scene.program, &commands);
    assert_busy_after(&mut scene, holder, &tree);
}

/// All at once, so that they wait together.
fn assert_all_busy(program: &Program, commands: &[&[&str]]) {
    thread::scope(|scope| {
        let waiting = commands.iter().map(|command| scope.spawn(|| program.run(*command)));
        let waiting: Vec<_> = waiting.collect();
        for (command, waiting) in commands.iter().zip(waiting) {
            assert_busy(&waiting.join().unwrap(), &format!("{command:?}"));
        }
    });
}

/// Nothing was done, and nothing is in the way any more.
fn assert_busy_after(scene: &mut Scene, holder: Holder, tree: &fingerprint::Fingerprint) {
    drop(holder);
    let found = fingerprint::with_stamps(&scene.program.workspace());
    assert!(*tree == found, "{}", differences(tree, &found));
    scene.assert_whole("an index that was locked");
    assert_nothing_left(scene, "an index that was locked");
}

/// A checkpoint whose manifest has its name stands, whatever becomes of its rows.
fn held_after_the_manifest() {
    let mut scene = three_turns();
    let capture = ["capture", "--session", "s"];
    let mut saved = scene.save();
    let steps = steps::of(&scene.program, &capture);
    scene.put_back(&mut saved);
    let is_named = |step: &&steps::Step| step.text.contains("\"3.json\", RENAME_NOREPLACE");
    let step = steps.iter().find(is_named).unwrap();
    let stopped = step.hold(&scene.program, &capture).unwrap();
    let holder = Holder::of(&scene.program.store(), WRITERS);
    let run = stopped.go_on();
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    assert!(run.stderr.contains("the checkpoint stands, but the index"), "{}", run.stderr);
    drop(holder);
    scene.acknowledge_newest();
    scene.assert_whole("an index that was locked after the manifest");
    assert_nothing_left(&scene, "an index that was locked after the manifest");
}

/// Nor does it harm when even readers are kept away.
fn held_against_everybody() {
    let mut scene = three_turns();
    let tree = fingerprint::with_stamps(&scene.program.workspace());
    let holder = Holder::of(&scene.program.store(), EVERYBODY);
    assert_all_busy(&scene.program, &[&["capture", "--session", "s"], &["gc"]]);
    assert_busy_after(&mut scene, holder, &tree);
}

#[test]
fn an_index_that_is_locked_for_longer_than_anybody_waits_costs_nothing() {
    thread::scope(|scope| {
        scope.spawn(held_against_writers);
        scope.spawn(held_after_the_manifest);
        scope.spawn(held_against_everybody);
    });
}

#[test]
fn a_capture_waits_for_an_index_that_is_locked_for_a_while() {
    let mut scene = three_turns();
    let holder = Holder::of(&scene.program.store(), WRITERS);
    thread::scope(|scope| {
        let capture = scope.spawn(|| scene.program.run(["capture", "--session", "s"]));
        let waits = steps::wait_for_waiting(&scene.program, 1, || capture.is_finished());
        assert!(waits, "it did not need the index");
        drop(holder);
        capture.join().unwrap().ok();
    });
    scene.acknowledge_newest();
    scene.assert_whole("an index that was locked for a while");
}
