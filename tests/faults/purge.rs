//! A purge killed at its calls: until it has written down what it is going to do nothing has happened, and
//! from then on it comes to its end, whatever command comes next.

use std::fs;

use crate::kills::{gc, is_long, scene, write_many};
use crate::power;
use crate::recount::assert_counted;
use crate::scene::Scene;
use crate::steps::{self, Step};
use crate::support::fingerprint::{self, Fingerprint};
use crate::support::traces;

const PURGE: [&str; 3] = ["purge", "keys", "--yes"];

/// How many points in the short form, besides those that are named: before the decision, and anywhere.
const POINTS: (usize, usize) = (3, 2);

const LINE: &str = "a line that is in the store again and again\n";
const TARGET: &str = "where-the-link-leads";

/// Does not compress, and is another for each seed.
fn noise(seed: u64) -> Vec<u8> {
    let block = |n: u64| *blake3::hash(format!("{seed} {n}").as_bytes()).as_bytes();
    (0..100).flat_map(block).collect()
}

fn write_keys(scene: &Scene, seed: u64) {
    let keys = scene.program.workspace().join("keys");
    fs::create_dir_all(&keys).unwrap();
    fs::write(keys.join("noise"), noise(seed)).unwrap();
    fs::write(keys.join("lines"), LINE.repeat(200)).unwrap();
    drop(fs::remove_file(keys.join("link")));
    std::os::unix::fs::symlink(TARGET, keys.join("link")).unwrap();
}

/// Checkpoints with content that is to go: in a pack and loose, in one that is pinned, and in what a restore
/// saved and left. The workspace has none of it any more.
fn captured_by_mistake() -> Scene {
    let mut scene = scene();
    capture_by_mistake(&mut scene);
    scene
}

fn capture_by_mistake(scene: &mut Scene) {
    write_keys(scene, 1);
    write_many(scene, 0);
    scene.capture();
    gc(scene).ok();
    write_keys(scene, 2);
    scene.edit(1);
    scene.capture();
    scene.program.run(["pin", "s:0"]).ok();
    scene.program.run(["restore", "s:0", "--yes"]).ok();
    scene.edit(2);
    fs::remove_dir_all(scene.program.workspace().join("keys")).unwrap();
    scene.capture();
    assert!(fs::read_dir(scene.program.store().join("packs")).unwrap().count() > 0);
}

/// What of the content is somewhere in the store.
fn traces(scene: &Scene) -> Vec<&'static str> {
    let (mut bytes, unpacked) = traces::everything_and_frames(&scene.program.sessions_home());
    bytes.extend(unpacked);
    let wanted = [
        ("the first noise", noise(1)[1_000..1_040].to_vec()),
        ("the second noise", noise(2)[1_000..1_040].to_vec()),
        ("the lines", LINE.repeat(2).into_bytes()),
        ("the link", TARGET.as_bytes().to_vec()),
        ("a hash", blake3::hash(&noise(1)).as_bytes().to_vec()),
    ];
    traces::among(&bytes, &wanted)
}

fn is_open(scene: &Scene) -> bool {
    scene.program.store().join("journal/purge.json").exists()
}

fn without_keys(content: &Fingerprint) -> Fingerprint {
    fingerprint::without(content, &["keys/noise", "keys/lines", "keys/link"])
}

/// Every checkpoint comes back, as it was or but for what was purged.
fn assert_restores(scene: &Scene, is_purged: bool, what: &str) {
    for (seq, content) in scene.acknowledged() {
        let expected = if is_purged { without_keys(content) } else { content.clone() };
        let found = scene.restored(&format!("s:{seq}"));
        let differ = fingerprint::differences(&expected, &found);
        assert!(differ.is_empty(), "{what}: s:{seq} differs:\n{differ}");
    }
}

/// What anybody who only reads finds: everything is there, or it is said that a purge is not at its end.
fn assert_told(scene: &Scene, what: &str) {
    let verified = scene.program.run(["verify", "--json"]);
    let document = verified.json();
    let findings = document["findings"].as_array().unwrap();
    let kinds: Vec<&str> = findings.iter().map(|it| it["kind"].as_str().unwrap()).collect();
    let expected: &[&str] = if is_open(scene) { &["purge-unfinished"] } else { &[] };
    assert_eq!(kinds, expected, "{what}: {document}");
    scene.program.run(["ls", "s:0"]).ok();
}

fn assert_ends(scene: &mut Scene, round: usize, what: &str) {
    assert_told(scene, what);
    let was_open = is_open(scene);
    let is_done = traces(scene).is_empty() && !was_open;
    let program = &scene.program;
    match round % 6 {
        0 => drop(program.run(["capture", "--session", "s"]).ok()),
        1 => drop(program.run(PURGE).ok()),
        2 => drop(program.run(["doctor", "--rebuild"]).ok()),
        3 => drop(gc(scene).ok()),
        4 => drop(program.run(["doctor", "--fix"])),
        _ => drop(program.run(["restore", "s:0", "--dry-run"])),
    }
    if round % 6 == 5 {
        // It changes nothing, and so it ends nothing.
        assert_eq!(is_open(scene), was_open, "{what}: a plan ended it");
        drop(scene.program.run(["unpin", "s:0"]).ok());
    }
    assert!(!is_open(scene), "{what}: it is not at its end");
    let is_purged = was_open || is_done || round % 6 == 1;
    if !is_purged {
        assert_restores(scene, false, what);
        scene.program.run(PURGE).ok();
    }
    assert_eq!(traces(scene), [""; 0], "{what}");
    assert_restores(scene, true, what);
    let verified = scene.program.run(["verify", "--read-data"]);
    assert_eq!(verified.code, 0, "{what}: {}{}", verified.stdout, verified.stderr);
    for directory in ["tmp", "leases", "journal"] {
        let left: Vec<_> = fs::read_dir(scene.program.store().join(directory)).unwrap().collect();
        assert!(left.is_empty(), "{what}: {left:?}");
    }
    gc(scene).ok();
    assert_counted(&scene.program.store(), what);
}

/// The moments at which something begins or ends.
fn named(steps: &[Step]) -> Vec<Step> {
    let store_names =
        ["purge.json\"", "s/", "\"1.json\"", "index.db.new\"", ".pack\"", "index.db.aside\""];
    let is_named = |step: &&Step, name: &str| {
        step.is_main && step.text.contains(name) && !step.call.starts_with("open")
    };
    let mut chosen: Vec<Step> = Vec::new();
    for name in store_names {
        let mut of_name = steps.iter().filter(|step| is_named(step, name));
        chosen.extend(of_name.next().cloned());
        chosen.extend(of_name.next_back().cloned());
    }
    assert!(chosen.iter().filter(|step| step.text.contains("purge.json")).count() == 2);
    chosen
}

#[test]
fn a_purge_comes_to_its_end() {
    let mut scene = captured_by_mistake();
    assert_eq!(traces(&scene).len(), 5, "the test looks in the right places");
    let mut saved = scene.save();
    let all = steps::of(&scene.program, &PURGE);
    assert_eq!(traces(&scene), [""; 0]);
    let chosen = if is_long() {
        all
    } else {
        let mut chosen = named(&all);
        let is_decision =
            |step: &Step| step.text.contains("purge.json\"") && step.call.starts_with("rename");
        let decision = all.iter().position(is_decision).unwrap();
        let before = all[..decision].iter().filter(|step| step.is_main).cloned().collect();
        chosen.extend(steps::spread(before, POINTS.0));
        chosen.extend(steps::spread(all, POINTS.1));
        chosen
    };
    let (mut before, mut after) = (0, 0);
    for (round, step) in chosen.into_iter().enumerate() {
        scene.put_back(&mut saved);
        let killed = step.kill(&scene.program, &PURGE);
        // Those of other threads, and of some calls, a run may do without.
        if killed.code == 0 && step.varies() {
            continue;
        }
        assert_eq!(killed.code, 137, "not killed at {step}: {}", killed.stderr);
        let count = if is_open(&scene) { &mut after } else { &mut before };
        *count += 1;
        assert_ends(&mut scene, round, &format!("purge killed at {step}"));
    }
    assert!(before > 2 && after > 5, "{before} before, {after} after the decision");
}

/// Who reads while a purge runs sees a checkpoint as it was or as it is, and never half of it.
#[test]
fn readers_see_all_of_it_or_nothing() {
    let mut scene = captured_by_mistake();
    let content = scene.acknowledged().next().unwrap().1.clone();
    let purged = without_keys(&content);
    let mut saved = scene.save();
    let (mut whole, mut empty) = (0, 0);
    for _ in 0..3 {
        scene.put_back(&mut saved);
        let mut purge =
            scene.program.command(PURGE).stdout(std::process::Stdio::null()).spawn().unwrap();
        let mut is_over = false;
        while !is_over {
            is_over = purge.try_wait().unwrap().is_some();
            let found = scene.restored("s:0");
            if found == content {
                whole += 1;
            } else {
                let differ = fingerprint::differences(&purged, &found);
                assert!(differ.is_empty(), "{differ}");
                empty += 1;
            }
        }
        assert!(purge.wait().unwrap().success());
        assert_eq!(fingerprint::differences(&purged, &scene.restored("s:0")), "");
    }
    assert!(whole > 0 && empty > 0, "{whole} before, {empty} after");
}

#[test]
fn a_purge_is_cut() {
    power::on("ext4", |disk, scene| {
        capture_by_mistake(scene);
        // It is decided; a manifest is replaced; an index and a pack take their places, a pack and the
        // decision lose theirs.
        let named = [
            "\"purge.json\") = 0",
            "\"0.json\") = 0",
            "\"index.db\") = 0",
            ".pack\") = 0",
            ".pack\", 0)",
            "\"purge.json\", 0)",
        ];
        power::cut_at_steps(disk, scene, &PURGE, &named, |scene, what| {
            assert_told(scene, what);
            let was_open = is_open(scene);
            let found = traces(scene);
            assert!(was_open || found.len() == 5 || found.is_empty(), "{what}: {found:?}");
            scene.program.run(["capture", "--session", "s"]).ok();
            assert!(!is_open(scene), "{what}: it is not at its end");
            let is_purged = was_open || found.is_empty();
            assert_restores(scene, is_purged, what);
            assert_eq!(traces(scene).is_empty(), is_purged, "{what}");
            let verified = scene.program.run(["verify", "--read-data"]);
            assert_eq!(verified.code, 0, "{what}: {}{}", verified.stdout, verified.stderr);
        });
    });
}

#[test]
fn what_was_purged_is_not_back_after_a_cut() {
    power::on("xfs", |disk, scene| {
        capture_by_mistake(scene);
        disk.sync();
        scene.program.run(PURGE).ok();
        let what = power::cut_after(disk, "a purge");
        assert_eq!(traces(scene), [""; 0], "{what}");
        assert_restores(scene, true, &what);
        scene.program.run(["verify", "--read-data"]).ok();
    });
}

#[test]
fn a_restore_that_is_open_is_ended_first() {
    let mut scene = captured_by_mistake();
    let restore = ["restore", "s:0", "--yes"];
    let mut saved = scene.save();
    let steps = steps::of(&scene.program, &restore);
    scene.put_back(&mut saved);
    // The second time that the journal gets its name changing begins.
    let is_journal = |step: &Step| step.text.contains("renameat(") && step.text.contains(".json");
    let begun = steps.iter().enumerate().filter(|(_, step)| is_journal(step)).nth(1).unwrap().0;
    let step = steps[begun..].iter().find(|step| step.text.contains("renameat2(")).unwrap();
    assert_eq!(step.kill(&scene.program, &restore).code, 137);
    let refused = scene.program.run(PURGE).exits(3);
    assert!(refused.stderr.contains("restore --continue"), "{}", refused.stderr);
    assert_eq!(traces(&scene).len(), 5);
    scene.program.run(["restore", "--continue"]).ok();
    scene.program.run(PURGE).ok();
    assert_eq!(traces(&scene), [""; 0]);
    assert_restores(&scene, true, "after a restore");
}
