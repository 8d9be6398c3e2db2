//! `prune` by rules of one's own, and the deletion of a session.

use std::fs;

use crate::support::fingerprint;
use crate::support::program::{Program, Run, run};
use crate::support::tree::{build, file};

/// Runs the program so many hours from now.
fn later(program: &Program, hours: i64, arguments: &[&str]) -> Run {
    let seconds = (hours * 3_600).to_string();
    run(program.command(arguments).env("TURNPOINT_TEST_CLOCK_SHIFT_SECONDS", seconds))
}

/// Twelve checkpoints of session `s`, one every six hours, the last three days from now.
fn captured() -> Program {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    build(&program.workspace(), [("a.txt", file("0")), ("same.txt", file("same"))]);
    for number in 0..12 {
        fs::write(program.workspace().join("a.txt"), number.to_string()).unwrap();
        later(&program, (number - 11) * 6, &["capture", "--session", "s"]).ok();
    }
    program
}

fn seqs(program: &Program, session: &str) -> Vec<u64> {
    let json = program.run(["list", "--session", session, "--json"]).ok().json();
    json["checkpoints"].as_array().unwrap().iter().map(|it| it["seq"].as_u64().unwrap()).collect()
}

#[test]
fn each_rule_keeps_some_and_nothing_goes_without_a_yes() {
    let program = captured();
    let rule = ["prune", "--keep", "1", "--keep-within", "13h"];
    let planned = program.run([&rule[..], &["--dry-run", "--json"]].concat()).ok().json();
    assert_eq!(planned["kept"], 3);
    let refused = program.run(rule).exits(3);
    assert!(refused.stderr.contains("needs a yes"), "{}", refused.stderr);
    assert_eq!(seqs(&program, "s").len(), 12);
    let done = program.run([&rule[..], &["--yes", "--json"]].concat()).ok().json();
    assert_eq!(done["pruned"], planned["pruned"]);
    assert_eq!(seqs(&program, "s"), [9, 10, 11]);
    // What stays comes back, and what is gone is swept.
    let into = program.root().join("into");
    program.run(["restore", "s:9", "--into", into.to_str().unwrap()]).ok();
    assert_eq!(fs::read_to_string(into.join("a.txt")).unwrap(), "9");
    later(&program, 1, &["gc"]).ok();
    program.run(["verify", "--read-data"]).ok();
}

#[test]
fn a_day_keeps_its_newest() {
    let program = captured();
    let by_days = |json: &serde_json::Value| {
        let days = json["checkpoints"].as_array().unwrap().iter().map(|it| {
            let (day, _) = it["created_at"].as_str().unwrap().split_once('T').unwrap();
            (day.to_owned(), it["seq"].as_u64().unwrap())
        });
        days.collect::<std::collections::BTreeMap<String, u64>>()
    };
    let all = by_days(&program.run(["list", "--session", "s", "--json"]).ok().json());
    program.run(["prune", "--keep", "0", "--keep-daily", "2", "--yes"]).ok();
    let expected: Vec<u64> = all.values().rev().take(2).rev().copied().collect();
    assert_eq!(seqs(&program, "s"), expected);
}

#[test]
fn a_length_of_time_is_one() {
    let program = captured();
    for bad in ["7", "soon", "-3d", ""] {
        program.run(["prune", "--keep-within", bad, "--dry-run"]).exits(2);
    }
    program.run(["prune", "--keep-within", "1h30m", "--dry-run"]).ok();
    program.run(["prune", "--session", "s", "--delete", "--keep", "1"]).exits(2);
    program.run(["prune", "--delete"]).exits(2);
}

#[test]
fn a_session_is_deleted_but_for_what_is_pinned_and_its_numbers_stay_given() {
    let program = captured();
    program.run(["pin", "s:4"]).ok();
    program.run(["capture", "--session", "t"]).ok();
    let before = fingerprint::of(&program.workspace());
    program.run(["prune", "--session", "s", "--delete"]).exits(3);
    assert_eq!(seqs(&program, "s").len(), 12);
    let done = program.run(["prune", "--session", "s", "--delete", "--yes", "--json"]).ok().json();
    assert_eq!((done["pruned"].as_array().unwrap().len(), &done["kept"]), (11, &1.into()));
    assert_eq!(seqs(&program, "s"), [4]);
    program.run(["prune", "--session", "s", "--delete", "--pinned", "--yes"]).ok();
    let gone = program.run(["list", "--session", "s", "--json"]);
    assert_eq!(gone.json()["checkpoints"].as_array().map_or(0, Vec::len), 0);
    later(&program, 1, &["gc"]).ok();
    program.run(["verify", "--read-data"]).ok();
    // The other session has all its content, and a checkpoint of the old name goes on counting.
    let into = program.root().join("into");
    program.run(["restore", "t:0", "--into", into.to_str().unwrap()]).ok();
    assert_eq!(fingerprint::of(&into), before);
    // Also without the index, which knew the numbers.
    for name in ["index.db", "index.db-wal", "index.db-shm"] {
        fs::remove_file(program.store().join(name)).unwrap();
    }
    let again = program.run(["capture", "--session", "s", "--json"]).ok().json();
    assert_eq!(again["seq"], 12);
    program.run(["prune", "--session", "nowhere", "--delete", "--yes"]).exits(2);
}
