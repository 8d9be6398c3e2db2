//! A store with checkpoints that were acknowledged, and what they must restore to: copies of the tree,
//! taken by nothing but `std::fs`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::fingerprint::{self, Fingerprint};
use crate::support::program::{Program, run};
use crate::support::tree::{build, executable, file, link};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_turnpoint");

/// So many of the newest in the session no retention takes, which leaves some room for safety checkpoints.
const KEPT_FOR_SURE: usize = 18;

/// A workspace, its store, and the oracle.
pub(crate) struct Scene {
    pub(crate) program: Program,
    /// What each acknowledged checkpoint of session `s` holds, by number.
    acknowledged: BTreeMap<u64, Fingerprint>,
}

/// What a scene was at one moment.
#[derive(Debug)]
pub(crate) struct Saved {
    place: PathBuf,
    work: Fingerprint,
    acknowledged: BTreeMap<u64, Fingerprint>,
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(copied.success());
}

impl Scene {
    /// In a directory of its own.
    pub(crate) fn new() -> Self {
        Self::with(Program::new(BINARY))
    }

    /// Below `place`, a mounted file system for example.
    pub(crate) fn below(place: &Path) -> Self {
        Self::with(Program::below(BINARY, place))
    }

    /// The workspace has one of each kind of path, and is not captured yet.
    pub(crate) fn with(program: Program) -> Self {
        let root = program.workspace();
        build(
            &root,
            [
                ("a.txt", file("one\n")),
                ("run.sh", executable("#!/bin/sh\n")),
                ("link", link("a.txt")),
                ("empty", file("")),
                ("d/big", file("0123456789abcdef".repeat(4_000))),
                ("d/e/f/deep", file("deep\n")),
            ],
        );
        let many = (0..20).map(|n| (format!("many/{n:02}"), file(format!("many {n}\n"))));
        build(&root, many);
        Self { program, acknowledged: BTreeMap::new() }
    }

    /// A turn: edits that depend on `seed` alone, another content and size for each.
    pub(crate) fn edit(&self, seed: u64) {
        let at = |name: &str| self.program.workspace().join(name);
        fs::write(at("a.txt"), format!("edit {seed}\n")).unwrap();
        fs::write(at(&format!("new-{seed}")), format!("new {seed}\n").repeat(50)).unwrap();
        fs::write(at(&format!("many/{:02}", seed % 20)), format!("changed {seed}\n")).unwrap();
        drop(fs::remove_file(at(&format!("new-{}", seed.wrapping_sub(1)))));
    }

    /// Captures, and remembers what was acknowledged.
    pub(crate) fn capture(&mut self) -> u64 {
        let now = fingerprint::of(&self.program.workspace());
        let run = self.program.run(["capture", "--session", "s", "--json"]).ok();
        let seq = run.json()["seq"].as_u64().unwrap();
        self.remember(seq, now);
        seq
    }

    /// Remembers that the newest checkpoint of the session was acknowledged, and holds what is there now.
    pub(crate) fn acknowledge_newest(&mut self) {
        let now = fingerprint::of(&self.program.workspace());
        let seq = *self.seqs().last().unwrap();
        self.remember(seq, now);
    }

    fn remember(&mut self, seq: u64, content: Fingerprint) {
        self.acknowledged.insert(seq, content);
        self.forget_old();
    }

    /// Those that retention may take by now are not expected any more.
    fn forget_old(&mut self) {
        if let Some(&oldest) = self.seqs().iter().rev().nth(KEPT_FOR_SURE - 1) {
            self.acknowledged.retain(|&seq, _| seq >= oldest);
        }
    }

    /// The numbers in the session, in order.
    fn seqs(&self) -> Vec<u64> {
        let listed = self.program.run(["list", "--session", "s", "--json"]).ok().json();
        let listed = listed["checkpoints"].as_array().unwrap().iter();
        listed.map(|it| it["seq"].as_u64().unwrap()).collect()
    }

    /// The newest checkpoint that a restore of this workspace made.
    pub(crate) fn newest_safety(&self) -> String {
        let listed = self.program.run(["list", "--json"]).ok().json();
        let mut listed = listed["checkpoints"].as_array().unwrap().iter().rev();
        let newest = listed.find(|it| it["trigger"] == "pre-restore").unwrap();
        format!("{}:{}", newest["session"].as_str().unwrap(), newest["seq"])
    }

    /// What a checkpoint holds.
    pub(crate) fn restored(&self, checkpoint: &str) -> Fingerprint {
        let into = self.program.root().join("restored");
        let mut command = self.program.command(["restore", checkpoint, "--yes", "--into"]);
        run(command.arg(&into)).ok();
        let found = fingerprint::of(&into);
        fs::remove_dir_all(into).unwrap();
        found
    }

    /// Says that a checkpoint is not expected any more.
    pub(crate) fn forget(&mut self, seq: u64) {
        self.acknowledged.remove(&seq);
    }

    /// Says that a checkpoint is expected from now on, because the program said that it is there.
    pub(crate) fn acknowledge(&mut self, seq: u64, content: Fingerprint) {
        self.acknowledged.insert(seq, content);
    }

    /// A copy of the workspace and of the store as they are now, and of what is expected of them.
    pub(crate) fn save(&self) -> Saved {
        let place = self.program.root().join("saved");
        drop(fs::remove_dir_all(&place));
        copy(&self.program.workspace(), &place.join("work"));
        copy(&self.program.sessions_home(), &place.join("sessions"));
        let work = fingerprint::with_stamps(&self.program.workspace());
        Saved { place, work, acknowledged: self.acknowledged.clone() }
    }

    /// Makes everything again as it was then. Where the workspace was not touched its files keep their
    /// inodes and times; its root does always.
    pub(crate) fn put_back(&mut self, saved: &mut Saved) {
        let (work, sessions) = (self.program.workspace(), self.program.sessions_home());
        fs::remove_dir_all(&sessions).unwrap();
        copy(&saved.place.join("sessions"), &sessions);
        if fingerprint::with_stamps(&work) != saved.work {
            for name in fs::read_dir(&work).unwrap() {
                let path = name.unwrap().path();
                let removed = if path.is_dir() && !path.is_symlink() {
                    fs::remove_dir_all(path)
                } else {
                    fs::remove_file(path)
                };
                removed.unwrap();
            }
            copy(&saved.place.join("work/."), &work);
            saved.work = fingerprint::with_stamps(&work);
        }
        self.acknowledged = saved.acknowledged.clone();
    }

    pub(crate) fn acknowledged(&self) -> impl Iterator<Item = (u64, &Fingerprint)> {
        self.acknowledged.iter().map(|(seq, content)| (*seq, content))
    }

    /// What a person does next, whatever happened: nothing must be lost, and nothing must be in the way.
    ///
    /// A capture succeeds, `verify --read-data` is clean, and every acknowledged checkpoint is restored
    /// and compared.
    pub(crate) fn assert_whole(&mut self, what: &str) {
        let capture = self.program.run(["capture", "--session", "s"]);
        assert_eq!(
            capture.code, 0,
            "{what}: the next capture: {}{}",
            capture.stdout, capture.stderr
        );
        let verify = self.program.run(["verify", "--read-data"]);
        assert_eq!(verify.code, 0, "{what}: {}{}", verify.stdout, verify.stderr);
        self.assert_restores(what);
    }

    /// As [`Scene::assert_whole`] for the newest acknowledged checkpoint alone, and quicker.
    pub(crate) fn assert_newest(&mut self, what: &str) {
        let capture = self.program.run(["capture", "--session", "s"]);
        assert_eq!(
            capture.code, 0,
            "{what}: the next capture: {}{}",
            capture.stdout, capture.stderr
        );
        let verify = self.program.run(["verify"]);
        assert_eq!(verify.code, 0, "{what}: {}{}", verify.stdout, verify.stderr);
        self.forget_old();
        if let Some((seq, content)) = self.acknowledged.last_key_value() {
            self.assert_restored(*seq, content, what);
        }
    }

    /// Every acknowledged checkpoint comes back as it was, in a directory of its own.
    pub(crate) fn assert_restores(&mut self, what: &str) {
        self.forget_old();
        for (seq, content) in &self.acknowledged {
            self.assert_restored(*seq, content, what);
        }
    }

    fn assert_restored(&self, seq: u64, content: &Fingerprint, what: &str) {
        let differ = fingerprint::differences(content, &self.restored(&format!("s:{seq}")));
        assert!(differ.is_empty(), "{what}: s:{seq} differs:\n{differ}");
    }

    /// As [`Scene::assert_restores`], of the newest two and the oldest.
    pub(crate) fn assert_some_restore(&self, what: &str) {
        let count = self.acknowledged.len();
        for (at, (seq, content)) in self.acknowledged.iter().enumerate() {
            if at == 0 || at + 2 >= count {
                self.assert_restored(*seq, content, what);
            }
        }
    }
}

#[test]
fn the_scene_notices_what_is_lost() {
    let mut scene = Scene::new();
    scene.capture();
    scene.edit(1);
    let seq = scene.capture();
    scene.assert_whole("nothing happened");
    fs::remove_file(scene.program.store().join(format!("s/{seq}.json"))).unwrap();
    let scene = std::sync::Mutex::new(scene);
    let lost = std::panic::catch_unwind(|| {
        scene.lock().unwrap().assert_restores("a manifest was removed");
    });
    assert!(lost.is_err());
}
