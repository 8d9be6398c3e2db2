//! A store with checkpoints that were acknowledged, and what they must restore to: copies of the tree,
//! taken by nothing but `std::fs`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::support::fingerprint::{self, Fingerprint};
use crate::support::program::{Program, Run, run};
use crate::support::tree::{build, executable, file, link};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_turnpoint");

/// A workspace, its store, and the oracle.
pub(crate) struct Scene {
    pub(crate) program: Program,
    /// What each acknowledged checkpoint of session `s` holds, by number.
    acknowledged: BTreeMap<u64, Fingerprint>,
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
    fn with(program: Program) -> Self {
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
        self.acknowledged.insert(seq, now);
        seq
    }

    /// Says that a checkpoint is not expected any more.
    pub(crate) fn forget(&mut self, seq: u64) {
        self.acknowledged.remove(&seq);
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

    /// Every acknowledged checkpoint comes back as it was, in a directory of its own.
    pub(crate) fn assert_restores(&self, what: &str) {
        for (seq, content) in &self.acknowledged {
            let into = self.program.root().join("restored");
            let run = self.restore_into(*seq, &into);
            assert_eq!(run.code, 0, "{what}: s:{seq}: {}{}", run.stdout, run.stderr);
            let found = fingerprint::of(&into);
            let differ = fingerprint::differences(content, &found);
            assert!(content == &found, "{what}: s:{seq} differs:\n{differ}");
            fs::remove_dir_all(into).unwrap();
        }
    }

    fn restore_into(&self, seq: u64, into: &Path) -> Run {
        let target = format!("s:{seq}");
        let mut command = self.program.command(["restore", &target, "--into"]);
        run(command.arg(into).arg("--yes"))
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
    let lost = std::panic::catch_unwind(|| scene.assert_restores("a manifest was removed"));
    assert!(lost.is_err());
}
