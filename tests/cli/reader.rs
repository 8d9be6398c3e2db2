//! Stores that the program writes, read by an independent reader (`tests/reader/read_store.py`).

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde_json::Value;

use crate::support::corpus::{Corpus, EVERYTHING, Shape};
use crate::support::program::{Program, Run, run};
use crate::support::tree::{build, dir, executable, file, link};

/// Runs the reader on the store of `program`.
fn reader<S: AsRef<OsStr>>(program: &Program, arguments: &[S]) -> Run {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reader/read_store.py");
    run(program.other("python3").arg(script).arg(program.store()).args(arguments))
}

/// Captures the workspace into session `s` and gives the checkpoint's number.
fn capture(program: &Program) -> String {
    let captured = program.run(["capture", "--session", "s", "--json"]).ok().json();
    assert_eq!(captured["complete"], Value::Bool(true), "{captured}");
    captured["seq"].as_u64().unwrap().to_string()
}

/// Fails unless the reader finds the store whole and checkpoint `seq` equal to the workspace.
fn check(program: &Program, seq: &str) {
    let work = program.workspace();
    let arguments = ["check", "--tree", work.to_str().unwrap(), "s", seq];
    assert_eq!(reader(program, &arguments).ok().stdout, "");
}

fn odd_names(program: &Program) {
    let work = program.workspace();
    build(
        &work,
        [
            ("run.sh", executable("#!/bin/sh\n")),
            ("empty", file("")),
            ("a-link", link("run.sh")),
            ("dangling", link("nowhere")),
            ("an-empty-directory", dir()),
            ("name\nwith \"controls\"\x1b", file("c")),
            ("caf\u{e9}/\u{65e5}\u{672c}.txt", file("text")),
        ],
    );
    fs::write(work.join(OsStr::from_bytes(b"not-utf8-\xff")), "n").unwrap();
}

#[test]
fn an_independent_reader_finds_what_was_captured_turn_by_turn() {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    // Small, because Python hashes 400 KB in a second.
    let shape = Shape { mean_bytes: 4000, ..Shape::of(100) };
    let mut corpus = Corpus::generate(&program.workspace(), shape).unwrap();
    odd_names(&program);
    for turn in 0..3 {
        check(&program, &capture(&program));
        corpus.turn(turn, 15, EVERYTHING).unwrap();
    }
    let listed = reader(&program, &["list"]).ok().json();
    assert_eq!(listed["checkpoints"].as_array().unwrap().len(), 3);
}

#[test]
fn the_program_and_the_independent_reader_show_the_same() {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    odd_names(&program);
    let seq = capture(&program);
    let shown = program.run(["ls", "--recursive", "s", &seq, "--json"]).ok().json();
    let read = reader(&program, &["ls", "s", &seq]).ok().json();
    let fields = ["kind", "mode", "size", "hash", "target", "listed", "reason"];
    let rows = |document: &Value| {
        let entries = document["entries"].as_array().unwrap();
        let mut rows: Vec<String> = entries
            .iter()
            .map(|entry| match entry.get("path_bytes") {
                Some(bytes) => (bytes, entry),
                None => (&entry["path"], entry),
            })
            // The root is an entry of the checkpoint, and not a path to show.
            .filter(|(path, _)| *path != "")
            .map(|(path, entry)| format!("{path} {:?}", fields.map(|field| entry.get(field))))
            .collect();
        rows.sort();
        rows
    };
    assert_eq!(rows(&shown), rows(&read));
    assert_eq!(rows(&shown).len(), 9);
    for path in ["run.sh", "empty", "caf\u{e9}/\u{65e5}\u{672c}.txt"] {
        let content = fs::read(program.workspace().join(path)).unwrap();
        assert_eq!(program.run(["cat", "s", &seq, path]).ok().stdout_bytes, content, "{path}");
        assert_eq!(
            reader(&program, &["cat", "s", &seq, path]).ok().stdout_bytes,
            content,
            "{path}"
        );
    }
}

#[test]
fn the_independent_reader_sees_damage() {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    build(&program.workspace(), [("a", file("content of a")), ("b", file("content of b"))]);
    let seq = capture(&program);
    let whole = program.store();
    let name = blake3::hash(b"content of a").to_hex().to_string();
    let (shard, _) = name.split_at(2);
    let blob = whole.join("blobs").join(shard).join(&name);
    let manifest = whole.join(format!("s/{seq}.json"));
    for (path, shown) in [(&blob, "b'a'"), (&manifest, "s:")] {
        let before = fs::read(path).unwrap();
        for at in [0, before.len() / 2, before.len() - 1] {
            let mut damaged = before.clone();
            damaged[at] ^= 0x10;
            fs::write(path, damaged).unwrap();
            let found = reader(&program, &["check"]).exits(1);
            assert!(found.stdout.contains(shown), "{} at {at}: {found:?}", path.display());
        }
        fs::write(path, before).unwrap();
    }
    fs::remove_file(&blob).unwrap();
    assert!(reader(&program, &["check"]).exits(1).stdout.contains("b'a'"));
}
