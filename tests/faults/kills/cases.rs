//! Deaths at moments that need more than a kill.

use std::fs;
use std::path::{Path, PathBuf};

use super::{
    CAPTURE, assert_nothing_left, gc, listed, phase, scene, three_turns, three_turns_and_changes,
    tree,
};
use crate::scene::Scene;
use crate::steps::{self, Step};
use crate::support::fingerprint;
use crate::support::packs;

/// The steps of an operation, from a state to which the scene is put back.
fn rehearse(scene: &mut Scene, arguments: &[&str]) -> Vec<Step> {
    let mut saved = scene.save();
    let steps = steps::of(&scene.program, arguments);
    scene.put_back(&mut saved);
    steps
}

/// The first of the main thread's steps whose text holds all of `parts`.
#[track_caller]
fn step_of<'a>(steps: &'a [Step], parts: &[&str]) -> &'a Step {
    let holds = |step: &&Step| parts.iter().all(|part| step.text.contains(part)) && step.is_main;
    steps.iter().find(holds).unwrap_or_else(|| panic!("no step with {parts:?} in {steps:#?}"))
}

#[test]
fn a_restore_killed_in_staging_never_happened() {
    let mut scene = three_turns_and_changes();
    let restore = ["restore", "s:0", "--session", "s", "--yes"];
    let steps = rehearse(&mut scene, &restore);
    // The second time that the journal is given its name it says that changing begins.
    let is_journal = |step: &&Step| step.text.contains("renameat(") && step.text.contains(".json");
    let step = steps.iter().filter(is_journal).nth(1).unwrap();
    assert_eq!(step.kill(&scene.program, &restore).code, 137);
    let stages = || fs::read_dir(scene.program.workspace().join(".turnpoint")).unwrap();
    assert!(stages().count() > 0 && phase(&scene).as_deref() == Some("staging"));
    // Somebody works on before the next command comes.
    let path = scene.program.workspace().join("a.txt");
    fs::write(&path, "after the death").unwrap();
    let saved = scene.program.store().join("s/3.json");
    assert!(saved.exists());
    let expected = tree(&scene);
    let told = scene.program.run(["restore", "--continue"]).exits(0);
    assert!(told.stdout.contains("had not changed anything"), "{}", told.stdout);
    fingerprint::assert_same(&expected, &fingerprint::of(&scene.program.workspace()));
    assert!(!saved.exists());
    scene.program.run(["undo", "--yes"]).exits(2);
    // The number of what it had saved is not given again.
    assert!(scene.capture() > 3);
    scene.assert_whole("killed in staging");
    assert_nothing_left(&scene, "killed in staging");
}

#[test]
fn a_restore_ended_where_something_had_made_way_is_taken_back_whole() {
    let restore = ["restore", "s:0", "--yes"];
    let mut scene = three_turns_and_changes();
    let before = fingerprint::of(&scene.program.workspace());
    let mut saved = scene.save();
    let steps = steps::of(&scene.program, &restore);
    // A directory has made way for a file, a file for a directory, and neither is in place yet.
    for parts in [["renameat2(", ", \"empty\", RENAME_NOREPLACE"], ["mkdirat(", "\"e\", 0700"]] {
        scene.put_back(&mut saved);
        step_of(&steps, &parts).kill(&scene.program, &restore).exits(137);
        scene.program.run(["restore", "--abort", "--yes"]).ok();
        assert!(scene.program.workspace().join("empty").exists());
        assert!(scene.program.workspace().join("d/e").exists());
        scene.program.run(["undo", "--yes"]).ok();
        fingerprint::assert_same(&before, &fingerprint::of(&scene.program.workspace()));
        scene.assert_whole("ended where something had made way");
    }
}

/// Holds a restore of `s:0`, which changes `a.txt` alone, right after it has exchanged that file, which
/// an editor has saved with `saved` between the last look at it and the exchange. Kills it there.
fn killed_after_an_exchange_that_an_editor_came_before(saved: &str) -> Scene {
    let mut scene = scene();
    scene.capture();
    let path = scene.program.workspace().join("a.txt");
    fs::write(&path, "present").unwrap();
    let restore = ["restore", "s:0", "--session", "s", "--yes"];
    let mut before = scene.save();
    let steps = steps::with(&scene.program, &restore, "renameat2,newfstatat");
    scene.put_back(&mut before);
    let is_exchange = |step: &Step| step.text.contains("RENAME_EXCHANGE");
    let at = steps.iter().position(is_exchange).unwrap();
    // The last look at what is displaced, and at what takes its place; then the exchange.
    let two = [&steps[at - 1], &steps[at]];
    let mut stopped = steps::hold_at_two(&scene.program, &restore, two).unwrap();
    assert_eq!(phase(&scene).as_deref(), Some("applying"));
    let beside = scene.program.workspace().join(".a.txt.swp");
    fs::write(&beside, saved).unwrap();
    fs::rename(beside, &path).unwrap();
    stopped.go_to_next();
    assert_eq!(fs::read_to_string(&path).unwrap(), "one\n", "exchanged");
    stopped.kill();
    scene
}

#[test]
fn what_an_editor_saved_just_before_an_exchange_comes_back() {
    let mut scene = killed_after_an_exchange_that_an_editor_came_before("precious");
    let told = scene.program.run(["capture", "--session", "s"]).ok();
    let path = scene.program.workspace().join("a.txt");
    assert_eq!(fs::read_to_string(path).unwrap(), "precious", "{}", told.stderr);
    assert!(told.stderr.contains("`a.txt` was left as it is: conflict"), "{}", told.stderr);
    scene.assert_whole("an editor came before the exchange");
    assert!(!scene.program.workspace().join(".turnpoint").exists());
    assert_nothing_left(&scene, "an editor came before the exchange");
}

#[test]
fn what_an_editor_saved_before_and_after_an_exchange_is_all_kept() {
    for command in [&["capture"][..], &["restore", "--continue"], &["restore", "--abort", "--yes"]]
    {
        let scene = killed_after_an_exchange_that_an_editor_came_before("precious");
        let path = scene.program.workspace().join("a.txt");
        fs::write(&path, "and more").unwrap();
        let told = scene.program.run(command);
        assert!([0, 3].contains(&told.code), "{}", told.stderr);
        assert_eq!(fs::read_to_string(&path).unwrap(), "and more", "{}", told.stderr);
        let kept = fs::read_dir(scene.program.workspace().join(".turnpoint")).unwrap();
        let kept: Vec<PathBuf> = kept.map(|name| name.unwrap().path()).collect();
        assert_eq!(kept.len(), 1, "{kept:?}");
        assert_eq!(fs::read_to_string(kept[0].join("a.txt")).unwrap(), "precious");
        let name = kept[0].file_name().unwrap().to_str().unwrap();
        assert!(format!("{}{}", told.stdout, told.stderr).contains(name), "{command:?}");
        assert_nothing_left(&scene, "an editor came before and after the exchange");
    }
}

#[test]
fn content_that_a_restore_brought_back_is_captured_after_its_checkpoint_is_pruned() {
    let restore = ["restore", "s:0", "--yes"];
    let mut scene = three_turns();
    let mut saved = scene.save();
    let steps = steps::of(&scene.program, &restore);
    let last = steps.iter().filter(|step| step.is_main).count();
    // The whole restore, and its death at each step after it is over, the writing of the stat cache
    // among them.
    let closed = |step: &Step| step.text.starts_with("unlinkat(") && step.text.contains(".json");
    let closed = steps.iter().position(closed).unwrap();
    let after = steps[closed + 1..last].iter().filter(|step| step.call != "fsync");
    let deaths: Vec<_> = after.map(Some).collect();
    assert!(deaths.len() > 3);
    for death in deaths.into_iter().chain([None]) {
        scene.put_back(&mut saved);
        match death {
            Some(step) => drop(step.kill(&scene.program, &restore).exits(137)),
            None => drop(scene.program.run(restore).ok()),
        }
        // Everything but the newest of the session goes, and what only `s:0` named is swept.
        scene.program.run(["prune", "--session", "s", "--keep", "1", "--yes"]).ok();
        let newest = scene.acknowledged().map(|(seq, _)| seq).max().unwrap();
        (0..newest).for_each(|seq| scene.forget(seq));
        let swept = gc(&scene).ok().json();
        assert!(swept["blobs_removed"].as_u64().unwrap() > 0, "{swept}");
        scene.capture();
        scene.assert_whole("captured after a restore whose target is gone");
    }
}

#[test]
fn a_checkpoint_whose_pruning_was_cut_off_cannot_be_pinned_any_more() {
    let mut scene = scene();
    for seed in 0..20 {
        scene.edit(seed);
        scene.capture();
    }
    scene.edit(20);
    let steps = rehearse(&mut scene, &CAPTURE);
    let unlink = step_of(&steps, &["unlink(", "/s/0.json\""]);
    let killed = unlink.kill(&scene.program, &CAPTURE).exits(137);
    let manifest = scene.program.store().join("s/0.json");
    assert!(manifest.exists());
    scene.forget(0);
    for command in [&["pin", "s", "0"][..], &["label", "s", "0", "name"]] {
        let told = scene.program.run(command).exits(2);
        assert!(told.stderr.contains("pruned"), "{}", told.stderr);
        assert!(!scene.program.store().join("s/0.pin").exists());
    }
    assert!(!listed(&scene, "marked").contains(&0));
    for command in [&["show", "s", "0"][..], &["restore", "s", "0", "--yes"]] {
        scene.program.run(command).exits(2);
    }
    drop(killed);
    scene.capture();
    assert!(!manifest.exists());
    scene.forget(1);
    scene.assert_restores("pruning was cut off");
    scene.program.run(["verify", "--read-data"]).ok();
    assert_nothing_left(&scene, "pruning was cut off");
}

/// What happens to the index while a capture is held.
#[derive(Debug, Clone, Copy)]
enum Exchange {
    /// It is removed with its log.
    Removed,
    /// It is an older one.
    Older,
    /// It is an older one, and a collection comes an hour later.
    OlderAndCollected,
}

fn exchange(scene: &Scene, how: Exchange, older: &Path) {
    let store = scene.program.store();
    for end in ["index.db", "index.db-wal", "index.db-shm"] {
        drop(fs::remove_file(store.join(end)));
        if !matches!(how, Exchange::Removed) && older.join(end).exists() {
            fs::copy(older.join(end), store.join(end)).unwrap();
        }
    }
    if matches!(how, Exchange::OlderAndCollected) {
        // Whether it may do anything is its own business.
        drop(gc(scene));
    }
}

#[test]
fn an_index_exchanged_under_a_capture_costs_nothing() {
    let mut scene = three_turns();
    let older = scene.program.root().join("older");
    fs::create_dir(&older).unwrap();
    for end in ["index.db", "index.db-wal"] {
        fs::copy(scene.program.store().join(end), older.join(end)).unwrap();
    }
    scene.capture();
    scene.edit(4);
    let mut saved = scene.save();
    let steps = steps::of(&scene.program, &CAPTURE);
    let mains: Vec<Step> = steps.into_iter().filter(|step| step.is_main).collect();
    // A collection can only take what was just given its name.
    let is_named = |step: &&Step| step.text.contains("RENAME_NOREPLACE");
    let named: Vec<Step> = mains.iter().filter(is_named).cloned().collect();
    assert!(named.len() > 2, "{mains:#?}");
    let most = |short| if super::is_long() { usize::MAX } else { short };
    let (some, named) = (steps::spread(mains, most(6)), steps::spread(named, most(2)));
    let mut held = 0;
    for (steps, how) in [
        (&some, Exchange::Removed),
        (&some, Exchange::Older),
        (&named, Exchange::OlderAndCollected),
    ] {
        for step in steps {
            scene.put_back(&mut saved);
            let what = format!("{how:?} at {step}");
            let now = fingerprint::of(&scene.program.workspace());
            let Some(stopped) = step.hold(&scene.program, &CAPTURE) else { continue };
            held += 1;
            exchange(&scene, how, &older);
            let run = stopped.go_on();
            if let Some(seq) = super::acknowledged(&run) {
                scene.acknowledge(seq, now);
            } else {
                assert!((1..=5).contains(&run.code), "{what}: {}{}", run.code, run.stderr);
            }
            let collected = gc(&scene);
            assert_eq!(
                collected.code, 0,
                "{what}: {run:?} {}{}",
                collected.stdout, collected.stderr
            );
            scene.assert_whole(&what);
            scene.capture();
            assert_nothing_left(&scene, &what);
            scene.assert_restores(&what);
        }
    }
    assert!(held >= 10, "held {held} times");
}

#[test]
fn a_collection_under_which_the_index_is_exchanged_leaves_what_a_capture_found() {
    let mut scene = scene();
    let before = |number: u64| (format!("gone/{number}"), format!("content {number}\n"));
    let write = |scene: &Scene| {
        fs::create_dir_all(scene.program.workspace().join("gone")).unwrap();
        for (path, content) in (0..40).map(before) {
            fs::write(scene.program.workspace().join(path), content).unwrap();
        }
    };
    write(&scene);
    scene.capture();
    packs::make_loose(&scene.program.store());
    fs::remove_dir_all(scene.program.workspace().join("gone")).unwrap();
    scene.capture();
    scene.program.run(["prune", "--session", "s", "--keep", "1", "--yes"]).ok();
    scene.forget(0);
    let steps = rehearse(&mut scene, &["gc"]);
    let older = scene.program.root().join("older");
    fs::create_dir(&older).unwrap();
    for end in ["index.db", "index.db-wal"] {
        drop(fs::copy(scene.program.store().join(end), older.join(end)));
    }
    // It has removed the first of what nothing names, and is to remove the others.
    let is_unlink = |step: &&Step| step.call.starts_with("unlink") && step.text.len() > 64;
    let unlinks: Vec<&Step> = steps.iter().filter(is_unlink).collect();
    assert!(unlinks.len() >= 40, "{steps:#?}");
    let held = unlinks[0].hold(&scene.program, &["gc"]).unwrap();
    exchange(&scene, Exchange::Older, &older);
    write(&scene);
    scene.capture();
    let told = held.go_on();
    assert_eq!(told.code, 3, "{}{}", told.stdout, told.stderr);
    assert!(told.stderr.contains("index.db"), "{}", told.stderr);
    scene.assert_whole("an index exchanged under a collection");
    assert_nothing_left(&scene, "an index exchanged under a collection");
    scene.assert_restores("an index exchanged under a collection");
}

/// The log of the index says that checkpoints are gone. By the database without it they would be missing.
#[test]
fn an_index_that_is_built_anew_is_never_taken_for_an_older_one() {
    let rebuild = ["doctor", "--rebuild"];
    let mut scene = three_turns();
    let newest = scene.capture();
    // Empties the log.
    gc(&scene).ok();
    scene.program.run(["prune", "--session", "s", "--keep", "1", "--yes"]).ok();
    (0..newest).for_each(|seq| scene.forget(seq));
    let is_of_index = |step: &Step| {
        step.is_main && step.call.starts_with("rename") && step.text.contains("\"index.db")
    };
    let mut steps = rehearse(&mut scene, &rebuild);
    steps.retain(is_of_index);
    // The database, its log, and the new one.
    assert!(steps.len() >= 3, "{steps:#?}");
    let mut saved = scene.save();
    for step in steps {
        scene.put_back(&mut saved);
        step.kill(&scene.program, &rebuild).exits(137);
        let what = format!("killed at {step}");
        let collected = gc(&scene);
        assert_eq!(collected.code, 0, "{what}: {}{}", collected.stdout, collected.stderr);
        scene.assert_whole(&what);
        assert_nothing_left(&scene, &what);
    }
}
