//! The program killed at each call that changes something on a disk, and what is found and done then.
//!
//! Each operation is killed at about 12 points, spread over the calls that it makes.
//! `TURNPOINT_EVERY_STEP=1` kills it at each of them, which takes several minutes, and works in the
//! directory for temporary files instead of in memory.

mod cases;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::recount::assert_counted;
use crate::scene::Scene;
use crate::steps;
use crate::support::fingerprint::{self, Fingerprint};
use crate::support::program::{Run, run};

/// How many points of each operation.
const POINTS: usize = 12;
/// How many of one that takes long, or has its steps in common with another.
const POINTS_FEW: usize = 10;

pub(crate) fn is_long() -> bool {
    std::env::var_os("TURNPOINT_EVERY_STEP").is_some()
}

/// In memory, where there is such a place: neither a kill nor a call that fails loses what was written,
/// whatever it is on.
pub(crate) fn scene() -> Scene {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() && !is_long() { Scene::below(memory) } else { Scene::new() }
}

/// A scene of three turns.
pub(crate) fn three_turns() -> Scene {
    let mut scene = scene();
    for seed in 1..4 {
        scene.capture();
        scene.edit(seed);
    }
    scene
}

/// A run that was killed.
struct Death {
    round: usize,
    /// What it had said by then.
    run: Run,
    /// The workspace before.
    before: Fingerprint,
    /// What the workspace is afterwards, if it is not as before.
    target: Option<Fingerprint>,
    /// Everything that is a manifest so far.
    manifests: Manifests,
    what: String,
}

/// Kills an operation at one step after the other, each time from the same state, and has `after` look
/// and go on.
fn kill_at_each(
    scene: &mut Scene,
    arguments: &[&str],
    most: usize,
    mut after: impl FnMut(&mut Scene, &mut Death),
) {
    let mut saved = scene.save();
    let before = fingerprint::of(&scene.program.workspace());
    let steps = steps::of(&scene.program, arguments);
    let all = steps.len();
    let steps = if is_long() { steps } else { steps::spread(steps, most) };
    let chosen = steps.len();
    assert!(chosen >= most.min(all) && all > 30, "{chosen} points of {all} calls");
    for (round, mut step) in steps.into_iter().enumerate() {
        let (run, mut manifests) = loop {
            scene.put_back(&mut saved);
            drop(fs::remove_dir_all(elsewhere(scene)));
            let mut manifests = Manifests::default();
            manifests.look(&scene.program.store());
            let run = step.kill(&scene.program, arguments);
            if run.code == 137 {
                break (run, manifests);
            }
            // It made fewer such calls than the run before it, and dies at an earlier one.
            let is_over = step.varies() && run.code == 0 && step.nth > 1;
            assert!(is_over, "not killed at {step}: {}{}", run.code, run.stderr);
            step.nth /= 2;
        };
        let what = format!("{} killed at {step}", arguments.join(" "));
        manifests.look(&scene.program.store());
        let before = before.clone();
        after(scene, &mut Death { round, run, before, target: None, manifests, what });
    }
}

/// Where a restore may write to, empty at each start.
fn elsewhere(scene: &Scene) -> PathBuf {
    scene.program.root().join("elsewhere")
}

/// Each manifest ever seen, and its content: a number of a session is given once, to one checkpoint.
#[derive(Default)]
struct Manifests(BTreeMap<PathBuf, blake3::Hash>);

impl Manifests {
    fn look(&mut self, store: &Path) {
        for directory in fs::read_dir(store).into_iter().flatten() {
            for name in fs::read_dir(directory.unwrap().path()).into_iter().flatten() {
                let path = name.unwrap().path();
                let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
                let is_manifest = path.extension().is_some_and(|end| end == "json")
                    && stem.parse::<u64>().is_ok();
                if is_manifest {
                    let hash = blake3::hash(&fs::read(&path).unwrap());
                    let seen = self.0.insert(path.clone(), hash);
                    assert!(
                        seen.is_none_or(|seen| seen == hash),
                        "{} was given twice",
                        path.display()
                    );
                }
            }
        }
    }

    /// The highest number of session `s`.
    fn newest(&self) -> Option<u64> {
        let of_session = |path: &&PathBuf| path.parent().unwrap().ends_with("s");
        let number = |path: &PathBuf| path.file_stem()?.to_str()?.parse().ok();
        self.0.keys().filter(of_session).filter_map(number).max()
    }
}

/// What a command that was killed had acknowledged.
fn acknowledged(run: &Run) -> Option<u64> {
    let document: serde_json::Value = serde_json::from_str(&run.stdout).ok()?;
    document["seq"].as_u64()
}

pub(crate) fn gc(scene: &Scene) -> Run {
    run(&mut steps::at_its_time(scene.program.command(["gc", "--json"]), &["gc"]))
}

/// The numbers of session `s` that a person is shown, safety checkpoints left out.
fn listed(scene: &Scene, what: &str) -> Vec<u64> {
    let list = scene.program.run(["list", "--session", "s", "--json"]);
    if list.code == 2 && scene.acknowledged().next().is_none() {
        return Vec::new();
    }
    assert_eq!(list.code, 0, "{what}: {}{}", list.stdout, list.stderr);
    let list = list.json();
    let plain = |it: &&serde_json::Value| it["trigger"] != "pre-restore";
    let checkpoints = list["checkpoints"].as_array().unwrap().iter().filter(plain);
    checkpoints.map(|it| it["seq"].as_u64().unwrap()).collect()
}

/// What must hold after any kill: everything that was acknowledged is there, the next commands do their
/// work, and in the end nothing is left of the dead one.
fn assert_recovers(scene: &mut Scene, death: &mut Death) {
    let (round, what) = (death.round, death.what.clone());
    // Whatever comes first finds what is left.
    match round % 4 {
        0 => drop(gc(scene).ok()),
        1 => drop(scene.program.run(["verify", "--read-data"]).ok()),
        2 => drop(listed(scene, &what)),
        _ => {}
    }
    death.manifests.look(&scene.program.store());
    let newest = death.manifests.newest();
    let known = scene.acknowledged().map(|(seq, _)| seq).max();
    for seq in listed(scene, &what) {
        if known.is_none_or(|known| seq > known) {
            // Nobody was told of it, but it is there: then it is whole.
            let content = scene.restored(&format!("s:{seq}"));
            let differ = fingerprint::differences(&death.before, &content);
            let is_known = differ.is_empty() || death.target.as_ref() == Some(&content);
            assert!(is_known, "{what}: s:{seq} differs:\n{differ}");
        }
    }
    let seq = scene.capture();
    assert!(newest.is_none_or(|newest| seq > newest), "{what}: {seq} after {newest:?}");
    death.manifests.look(&scene.program.store());

    let listed = listed(scene, &what);
    let all: Vec<u64> = scene.acknowledged().map(|(seq, _)| seq).collect();
    let mut newer: Vec<u64> = all.iter().chain(&listed).copied().collect();
    newer.sort_unstable();
    newer.dedup();
    for seq in all {
        let place = newer.iter().rev().position(|newer| *newer == seq).unwrap();
        if place >= 20 {
            scene.forget(seq);
        } else {
            assert!(listed.contains(&seq), "{what}: s:{seq} is gone");
        }
    }
    let verified = scene.program.run(["verify", "--read-data"]);
    assert_eq!(verified.code, 0, "{what}: {}{}", verified.stdout, verified.stderr);
    if round.is_multiple_of(10) || is_long() {
        scene.assert_restores(&what);
    } else {
        scene.assert_some_restore(&what);
    }
    assert!(!scene.program.workspace().join(".turnpoint").exists(), "{what}");
    assert_nothing_left(scene, &what);
}

/// After a collection nothing lies about that only a dead operation could need.
pub(crate) fn assert_nothing_left(scene: &Scene, what: &str) {
    let store = scene.program.store();
    // Later than one that this round may have made; and once more for what that one let go of.
    for seconds in ["7200", "10800"] {
        let mut collect = scene.program.command(["gc"]);
        let collected = run(collect.env("TURNPOINT_TEST_CLOCK_SHIFT_SECONDS", seconds));
        assert_eq!(collected.code, 0, "{what}: {}{}", collected.stdout, collected.stderr);
    }
    for directory in ["tmp", "leases", "journal"] {
        let left: Vec<_> = fs::read_dir(store.join(directory)).unwrap().collect();
        assert!(left.is_empty(), "{what}: {left:?}");
    }
    let question = "SELECT 'operation' FROM operations UNION ALL SELECT 'pin' FROM pins \
                    UNION ALL SELECT 'mark' FROM checkpoints WHERE state <> 'live'";
    assert_eq!(sqlite(&store, question), "", "{what}");
    assert_counted(&store, what);
}

fn sqlite(store: &Path, question: &str) -> String {
    let answer = run(Command::new("sqlite3").arg(store.join("index.db")).arg(question)).ok();
    answer.stdout
}

pub(crate) const CAPTURE: [&str; 4] = ["capture", "--session", "s", "--json"];

/// What holds after the death of a capture.
fn after_capture(scene: &mut Scene, death: &mut Death) {
    if let Some(seq) = acknowledged(&death.run) {
        scene.acknowledge(seq, death.before.clone());
    }
    assert_recovers(scene, death);
}

#[test]
fn a_capture() {
    let mut scene = three_turns();
    kill_at_each(&mut scene, &CAPTURE, POINTS, after_capture);
}

#[test]
fn the_first_capture_of_all() {
    let mut scene = scene();
    fs::create_dir(scene.program.sessions_home()).unwrap();
    kill_at_each(&mut scene, &CAPTURE, POINTS, after_capture);
}

#[test]
fn a_capture_that_prunes() {
    let mut scene = scene();
    for seed in 0..22 {
        scene.edit(seed);
        let seq = scene.capture();
        scene.forget(seq.wrapping_sub(20));
    }
    scene.edit(22);
    // One row that the last capture left, marked, to this one, and one more of its own.
    kill_at_each(&mut scene, &CAPTURE, POINTS, after_capture);
}

#[test]
fn a_capture_that_writes_packs() {
    let mut scene = scene();
    scene.capture();
    for number in 0..1_100 {
        let path = scene.program.workspace().join(format!("more/{}", number % 40));
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join(format!("f{number}")), format!("number {number}\n")).unwrap();
    }
    kill_at_each(&mut scene, &CAPTURE, POINTS_FEW, after_capture);
}

/// Writes so many files that a collection moves their content into packs.
pub(crate) fn write_many(scene: &Scene, round: usize) {
    for number in 0..90 {
        let text = format!("{number} in round {round} ").repeat(5 + number % 7);
        fs::write(scene.program.workspace().join(format!("f{number}")), text).unwrap();
    }
}

#[test]
fn a_collection() {
    let mut scene = scene();
    // Content that goes and content that stays, in a pack that is written anew, and loose.
    for round in 0..2 {
        write_many(&scene, round);
        scene.capture();
        if round == 0 {
            gc(&scene).ok();
            for number in 30..90 {
                fs::remove_file(scene.program.workspace().join(format!("f{number}"))).unwrap();
            }
            scene.capture();
            scene.program.run(["prune", "--session", "s", "--keep", "1", "--yes"]).ok();
            scene.forget(0);
        }
    }
    scene.edit(1);
    scene.capture();
    scene.edit(2);
    scene.capture();
    scene.program.run(["prune", "--session", "s", "--keep", "2", "--yes"]).ok();
    let newest = scene.acknowledged().map(|(seq, _)| seq).max().unwrap();
    for seq in 0..newest - 1 {
        scene.forget(seq);
    }
    kill_at_each(&mut scene, &["gc"], POINTS, assert_recovers);
}

#[test]
fn an_index_built_anew() {
    let mut scene = three_turns();
    kill_at_each(&mut scene, &["doctor", "--rebuild"], POINTS_FEW, assert_recovers);
}

#[test]
fn a_restore_elsewhere() {
    let mut scene = three_turns();
    let into = elsewhere(&scene);
    let arguments = ["restore", "s:0", "--into", into.to_str().unwrap(), "--yes"];
    let expected = scene.acknowledged().next().unwrap().1.clone();
    kill_at_each(&mut scene, &arguments, POINTS, |scene, death| {
        drop(fs::remove_dir_all(&into));
        scene.program.run(arguments).ok();
        fingerprint::assert_same(&expected, &fingerprint::of(&into));
        assert_recovers(scene, death);
    });
}

/// Three turns, and after them changes of kind and mode that are not captured.
fn three_turns_and_changes() -> Scene {
    let scene = three_turns();
    let at = |name: &str| scene.program.workspace().join(name);
    fs::remove_dir_all(at("d/e")).unwrap();
    fs::write(at("d/e"), "a file now").unwrap();
    fs::remove_file(at("empty")).unwrap();
    fs::create_dir_all(at("empty/in/it")).unwrap();
    fs::write(at("empty/in/it/file"), "new").unwrap();
    fs::remove_file(at("link")).unwrap();
    std::os::unix::fs::symlink("run.sh", at("link")).unwrap();
    fs::set_permissions(at("run.sh"), fs::Permissions::from_mode(0o600)).unwrap();
    scene
}

/// The phase that an open restore is in.
fn phase(scene: &Scene) -> Option<String> {
    let journal = fs::read_dir(scene.program.store().join("journal")).unwrap().next()?;
    let journal = fs::read(journal.unwrap().path()).unwrap();
    let journal: serde_json::Value = serde_json::from_slice(&journal).unwrap();
    Some(journal["phase"].as_str().unwrap().to_owned())
}

/// The workspace without what an open restore keeps in it.
pub(crate) fn tree(scene: &Scene) -> Fingerprint {
    fingerprint::without(&fingerprint::of(&scene.program.workspace()), &[".turnpoint"])
}

/// What holds after the death of a restore that leads to `target`.
fn after_restore(scene: &mut Scene, death: &mut Death, target: &Fingerprint, command: &[&str]) {
    death.target = Some(target.clone());
    let (before, round, what) = (&death.before.clone(), death.round, death.what.clone());
    let phase = phase(scene);
    let found = tree(scene);
    let is_whole = &found == before || &found == target;
    match phase.as_deref() {
        Some("applying") => assert_mixed(&found, before, target, &what),
        Some(_) => fingerprint::assert_same(before, &found),
        None => assert!(is_whole, "{what}: {}", fingerprint::differences(target, &found)),
    }
    if serde_json::from_str::<serde_json::Value>(&death.run.stdout).is_ok() {
        fingerprint::assert_same(target, &found);
    }
    let is_undo = command[0] == "undo";
    let program = &scene.program;
    let ends =
        |run: Run| assert!([0, 2].contains(&run.code), "{what}: {}{}", run.stdout, run.stderr);
    match round % 5 {
        0 => drop(program.run(["capture", "--session", "s"]).ok()),
        1 => ends(program.run(["restore", "--continue"])),
        2 => {
            ends(program.run(["restore", "--abort", "--yes"]));
            assert_mixed(&tree(scene), before, target, &what);
            if !is_undo {
                ends(program.run(["undo", "--yes"]));
                fingerprint::assert_same(before, &fingerprint::of(&program.workspace()));
            }
        }
        3 if !is_undo => {
            ends(program.run(["undo", "--yes"]));
            fingerprint::assert_same(before, &fingerprint::of(&program.workspace()));
        }
        4 if !is_undo => {
            program.run(command).ok();
            fingerprint::assert_same(target, &fingerprint::of(&program.workspace()));
        }
        _ => drop(program.run(["capture", "--session", "s"]).ok()),
    }
    if !(round % 5 == 2 && is_undo) {
        assert_recovers(scene, death);
        let found = fingerprint::of(&scene.program.workspace());
        let expected = if phase.as_deref() == Some("applying") && [0, 1].contains(&(round % 5)) {
            &found == target
        } else {
            &found == before || &found == target
        };
        assert!(expected, "{what}: {}", fingerprint::differences(target, &found));
        if !is_undo && &found == target {
            scene.program.run(["undo", "--yes"]).ok();
            fingerprint::assert_same(before, &fingerprint::of(&scene.program.workspace()));
        }
    }
    death.manifests.look(&scene.program.store());
    assert_recovers(scene, death);
}

/// Each path is as before, or as it is to be.
fn assert_mixed(found: &Fingerprint, before: &Fingerprint, target: &Fingerprint, what: &str) {
    for path in before.keys().chain(target.keys()).chain(found.keys()) {
        let now = found.get(path);
        let (old, new) = (before.get(path), target.get(path));
        // A directory in the way has been emptied, or filled; what makes way is gone for a moment.
        let is_between = old != new && now.is_none_or(|node| node.kind == fingerprint::Kind::Dir);
        let is_known = now == old || now == new || is_between;
        assert!(is_known, "{what}: {} is {now:?}", path.display());
    }
}

fn restore(mut scene: Scene, target: &Fingerprint, command: &[&str], most: usize) {
    kill_at_each(&mut scene, command, most, |scene, death| {
        after_restore(scene, death, target, command);
    });
}

#[test]
fn a_restore() {
    let scene = three_turns_and_changes();
    let target = scene.acknowledged().next().unwrap().1.clone();
    restore(scene, &target, &["restore", "s:0", "--yes", "--json"], POINTS);
}

#[test]
fn a_restore_of_given_paths() {
    let scene = three_turns_and_changes();
    let from = scene.acknowledged().nth(1).unwrap().1.clone();
    let mut target = fingerprint::of(&scene.program.workspace());
    for path in ["a.txt", "d/e", "d/e/f", "d/e/f/deep", "new-1"].map(Path::new) {
        target.remove(path);
        target.extend(from.get(path).map(|node| (path.to_owned(), node.clone())));
    }
    let command = ["restore", "s:1", "a.txt", "d/e", "new-1", "--yes", "--json"];
    restore(scene, &target, &command, POINTS_FEW);
}

#[test]
fn a_revert() {
    let mut scene = scene();
    let at = |scene: &Scene, name: &str| scene.program.workspace().join(name);
    let numbers = |others: [usize; 2]| -> String {
        let line = |n| if others.contains(&n) { format!("other {n}\n") } else { format!("{n}\n") };
        (1..40).map(line).collect()
    };
    fs::write(at(&scene, "text"), numbers([0, 0])).unwrap();
    scene.capture();
    let mut target = fingerprint::of(&scene.program.workspace());
    scene.edit(1);
    fs::write(at(&scene, "text"), numbers([10, 10])).unwrap();
    fs::remove_dir_all(at(&scene, "d/e")).unwrap();
    fs::write(at(&scene, "d/e"), "a file now").unwrap();
    scene.capture();
    fs::write(at(&scene, "text"), numbers([10, 30])).unwrap();
    fs::create_dir(at(&scene, "later")).unwrap();
    fs::write(at(&scene, "later/x"), "later").unwrap();
    // As before the turn, with what came after it.
    let wanted = tempfile::tempdir().unwrap();
    fs::write(wanted.path().join("text"), numbers([30, 30])).unwrap();
    let now = fingerprint::of(&scene.program.workspace());
    target.extend(now.into_iter().filter(|(path, _)| path.starts_with("later")));
    let merged = fingerprint::of(wanted.path()).remove(Path::new("text")).unwrap();
    target.insert(PathBuf::from("text"), merged);
    let command = ["revert", "s:1", "--yes", "--json"];
    kill_at_each(&mut scene, &command, POINTS_FEW, |scene, death| {
        after_restore(scene, death, &target, &command);
    });
}

#[test]
fn an_undo() {
    let scene = three_turns_and_changes();
    let target = fingerprint::of(&scene.program.workspace());
    scene.program.run(["restore", "s:0", "--yes"]).ok();
    restore(scene, &target, &["undo", "--yes", "--json"], POINTS_FEW);
}
