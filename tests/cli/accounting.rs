//! What `stats` says agrees with `du`, with the files and with plain copies; `operations` says what was done.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::program::{Program, Run, run};
use crate::support::tree::{build, file};

fn later(program: &Program, arguments: &[&str]) -> Run {
    run(program.command(arguments).env("TURNPOINT_TEST_CLOCK_SHIFT_SECONDS", "3600"))
}

/// Two sessions that share some content.
fn captured() -> Program {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    let shared = "shared ".repeat(1_000);
    build(&program.workspace(), [("shared.txt", file(&*shared)), ("own.txt", file("first"))]);
    program.run(["capture", "--session", "s"]).ok();
    fs::write(program.workspace().join("own.txt"), "second of the same session").unwrap();
    program.run(["capture", "--session", "s"]).ok();
    fs::write(program.workspace().join("own.txt"), "of another session").unwrap();
    program.run(["capture", "--session", "t"]).ok();
    program
}

/// The bytes of all files below a directory.
fn bytes_below(dir: &Path) -> u64 {
    let of = |entry: fs::DirEntry| {
        let stat = fs::symlink_metadata(entry.path()).unwrap();
        if stat.is_dir() { bytes_below(&entry.path()) } else { stat.len() }
    };
    fs::read_dir(dir).unwrap().map(|entry| of(entry.unwrap())).sum()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn the_accounts_agree_with_the_disk_and_with_plain_copies() {
    let program = captured();
    let stats = program.run(["stats", "--json"]).ok().json();
    let blobs = program.store().join("blobs");
    assert_eq!(number(&stats["all"]["stored_bytes"]), bytes_below(&blobs));
    let du = run(program.other("du").args(["-s", "-B1"]).arg(program.store())).ok();
    let (used, _) = du.stdout.split_once('\t').unwrap();
    assert_eq!(number(&stats["disk"]["total_bytes"]), used.parse::<u64>().unwrap());
    let mut copies = 0;
    for id in ["s:0", "s:1", "t:0"] {
        let into = program.root().join("into");
        program.run(["restore", id, "--into", into.to_str().unwrap()]).ok();
        copies += bytes_below(&into);
        fs::remove_dir_all(&into).unwrap();
    }
    assert_eq!(number(&stats["all"]["logical_bytes"]), copies);
    let [s, t] = [0, 1].map(|at| &stats["sessions"][at]);
    assert_eq!((&s["session"], &s["checkpoints"]), (&json!("s"), &json!(2)));
    for session in [s, t] {
        let parts = number(&session["unique_bytes"]) + number(&session["shared_bytes"]);
        assert_eq!(number(&session["stored_bytes"]), parts);
    }
    assert_eq!(s["shared_bytes"], t["shared_bytes"]);

    // What is a session's own is what its deletion frees.
    program.run(["prune", "--session", "t", "--delete", "--yes"]).ok();
    let waiting = later(&program, &["stats", "--json"]).ok().json();
    assert_eq!(waiting["unneeded_bytes"], t["unique_bytes"]);
    let before = bytes_below(&blobs);
    let freed = later(&program, &["gc", "--json"]).ok().json();
    assert_eq!(freed["bytes_removed"], t["unique_bytes"]);
    assert_eq!(before - bytes_below(&blobs), number(&t["unique_bytes"]));
    let after = later(&program, &["stats", "--json"]).ok().json();
    assert_eq!(after["unneeded_bytes"], 0);
    assert_eq!(number(&after["all"]["stored_bytes"]), bytes_below(&blobs));
}

#[test]
fn accounts_of_nothing_and_of_one_session() {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    let empty = program.run(["stats", "--json"]).ok().json();
    assert_eq!((&empty["sessions"], &empty["all"]), (&json!([]), &Value::Null));
    assert!(!program.store().exists());
    let program = captured();
    let one = program.run(["stats", "--session", "T", "--json"]).ok().json();
    assert_eq!(one["sessions"].as_array().unwrap().len(), 1);
    program.run(["stats", "--session", "nowhere"]).exits(2);
    for name in ["index.db", "index.db-wal", "index.db-shm"] {
        fs::remove_file(program.store().join(name)).ok();
    }
    let refused = program.run(["stats"]);
    assert!(refused.code != 0 && refused.stderr.contains("index.db"), "{}", refused.stderr);
}

#[test]
fn what_was_done_is_told_with_its_reason() {
    let program = captured();
    program.run(["restore", "s:0", "--yes"]).ok();
    program.run(["undo", "--yes"]).ok();
    program.run(["prune", "--session", "t", "--delete", "--yes"]).ok();
    let log = program.store().join("operations.jsonl");
    let mut text = fs::read_to_string(&log).unwrap();
    text.push_str("{\"cut short\n");
    fs::write(&log, text).unwrap();
    let told = program.run(["operations", "--json"]).ok().json();
    let operations = told["operations"].as_array().unwrap();
    let verbs: Vec<&str> = operations.iter().map(|it| it["verb"].as_str().unwrap()).collect();
    assert_eq!(verbs, ["restore", "undo", "prune"]);
    assert_eq!(told["skipped"], 1);
    assert_eq!(operations[0]["target"], json!({ "session": "s", "seq": 0 }));
    assert_eq!(operations[2]["why"], "the session was deleted");
    let newest = program.run(["operations", "--limit", "1", "--json"]).ok().json();
    assert_eq!(newest["operations"], json!([operations[2]]));
    let shown = program.run(["operations"]).ok();
    assert!(shown.stdout.contains("s:0 in "), "{}", shown.stdout);
    assert!(shown.stdout.contains("t: 0 (the session was deleted)"), "{}", shown.stdout);
}
