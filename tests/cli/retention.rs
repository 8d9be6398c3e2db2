//! `prune` by rules of one's own, and the deletion of a session.

use std::fs;
use std::time::Duration;

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
fn what_says_that_a_restore_was_taken_back_stays_as_long_as_what_it_saved() {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    let path = program.workspace().join("a.txt");
    fs::write(&path, "0").unwrap();
    program.run(["capture", "--session", "a"]).ok();
    fs::write(&path, "1").unwrap();
    // Each restore is undone; the first restore's safety checkpoint, a:1, is the newest of its session.
    for session in ["a", "b"] {
        program.run(["restore", "a:0", "--session", session, "--yes"]).ok();
        program.run(["undo", "--session", "b", "--yes"]).ok();
    }
    program.run(["capture", "--session", "b"]).ok();
    let prune = ["prune", "--keep", "1", "--yes"];
    later(&program, 48, &prune).ok();
    assert_eq!(seqs(&program, "a"), [0, 1]);
    // b:1 and what it saved went; b:0, which took a:1 back, did not.
    assert_eq!(seqs(&program, "b"), [0, 2, 3]);
    let nothing = program.run(["undo", "--yes"]).exits(2);
    assert!(nothing.stderr.contains("there is nothing to undo"), "{}", nothing.stderr);
    assert_eq!(fs::read_to_string(&path).unwrap(), "1");
    // With what it is about it goes.
    program.run(["prune", "--session", "a", "--delete", "--yes"]).ok();
    later(&program, 48, &prune).ok();
    assert_eq!(seqs(&program, "b"), [2, 3]);
}

/// Runs the program so many hours from now, with a variable in its environment.
fn later_with(program: &Program, hours: i64, variable: (&str, &str), arguments: &[&str]) -> Run {
    let seconds = (hours * 3_600).to_string();
    let mut command = program.command(arguments);
    command.env("TURNPOINT_TEST_CLOCK_SHIFT_SECONDS", seconds).env(variable.0, variable.1);
    run(&mut command)
}

#[test]
fn each_capture_and_gc_follow_the_rules_of_the_settings() {
    let program = captured();
    let directory = program.root().join("home/.config/turnpoint");
    fs::create_dir_all(&directory).unwrap();
    let rules = "[retention]\nkeep = 2\nkeep_within = \"13h\"\nkeep_first = true\n";
    fs::write(directory.join("config.toml"), rules).unwrap();
    // Neither more nor less for a workspace that would like it otherwise.
    fs::write(program.workspace().join(".turnpoint.toml"), "retention.keep = 1\n").unwrap();
    program.run(["prune", "--dry-run", "--json"]).ok();
    assert_eq!(seqs(&program, "s").len(), 12);
    program.run(["capture", "--session", "s"]).exits(4);
    assert_eq!(seqs(&program, "s"), [0, 9, 10, 11, 12]);
    // A rule of one's own takes the place of one of them, for once.
    let planned = program.run(["prune", "--keep-within", "1h", "--dry-run", "--json"]).ok().json();
    assert_eq!(planned["pruned"].as_array().unwrap().len(), 2);
    assert_eq!(program.run(["prune", "--json"]).ok().json()["pruned"], serde_json::json!([]));
    let only_keep = "[retention]\nkeep = 2\n";
    fs::write(directory.join("config.toml"), only_keep).unwrap();
    let collected = program.run(["gc", "--json"]).ok().json();
    assert_eq!(collected["pruned"].as_array().unwrap().len(), 3);
    assert_eq!(seqs(&program, "s"), [11, 12]);
    let log = program.run(["operations", "--json"]).ok().json();
    let why: Vec<_> =
        log["operations"].as_array().unwrap().iter().map(|it| it["why"].clone()).collect();
    assert_eq!(why, ["retention", "retention"]);
    program.run(["verify", "--read-data"]).ok();
}

#[test]
fn more_than_twenty_stay_where_the_settings_say_so_and_all_where_nothing_is_automatic() {
    let program = captured();
    let capture = ["capture", "--session", "s"];
    for number in 12..26 {
        fs::write(program.workspace().join("a.txt"), number.to_string()).unwrap();
        later_with(&program, 0, ("TURNPOINT_RETENTION_KEEP", "24"), &capture).ok();
    }
    assert_eq!(seqs(&program, "s"), (2..26).collect::<Vec<u64>>());
    later_with(&program, 0, ("TURNPOINT_RETENTION_AUTOMATIC", "false"), &capture).ok();
    assert_eq!(seqs(&program, "s").len(), 25);
    let said = program.run(capture).ok().stdout;
    assert_eq!(seqs(&program, "s").len(), 20);
    assert!(said.contains("dropped: s:2 and 5 others, by the rules of retention ("), "{said}");
}

#[test]
fn content_is_swept_as_often_as_the_settings_say() {
    let program = captured();
    program.run(["prune", "--keep", "1", "--yes"]).ok();
    let waiting =
        || program.run(["stats", "--json"]).ok().json()["waiting_blobs"].as_u64().unwrap();
    assert!(waiting() > 0);
    let capture = ["capture", "--if-changed", "--session", "s"];
    let touch = |text: &str| fs::write(program.workspace().join("a.txt"), text).unwrap();
    let unneeded = || {
        let json = later(&program, 50, &["stats", "--json"]).ok().json();
        json["unneeded_blobs"].as_u64().unwrap()
    };
    assert!(unneeded() > 0);
    touch("one");
    later_with(&program, 49, ("TURNPOINT_GC_EVERY", "none"), &capture).ok();
    assert!(unneeded() > 0);
    touch("two");
    later_with(&program, 49, ("TURNPOINT_GC_EVERY", "30d"), &capture).ok();
    assert!(unneeded() > 0);
    touch("three");
    later_with(&program, 49, ("TURNPOINT_GC_EVERY", "48h"), &capture).ok();
    assert_eq!(unneeded(), 0);
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

#[test]
fn a_revert_says_how_many_turns_it_takes_back_as_one() {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    for content in ["0", "1", "2", "3"] {
        build(&program.workspace(), [("a.txt", file(content))]);
        program.run(["capture", "--session", "s"]).ok();
    }
    let warning = "warning: s:3 is compared with";
    let run = program.run(["revert", "s:3", "--dry-run"]).ok();
    assert!(!run.stderr.contains(warning), "{}", run.stderr);
    program.run(["pin", "s:0"]).ok();
    program.run(["prune", "--session", "s", "--keep", "1", "--yes"]).ok();
    let expected = format!(
        "{warning} s:0: 2 checkpoints between them are gone, and what they changed is taken back too\n"
    );
    let run = program.run(["revert", "s:3", "--dry-run"]).ok();
    assert!(run.stderr.contains(&expected), "{}", run.stderr);
    let json = program.run(["revert", "s:3", "--dry-run", "--json"]).ok().json();
    assert_eq!(json["predecessor"], serde_json::json!({ "session": "s", "seq": 0, "gone": 2 }));
    let run = program.run(["revert", "s:3", "a.txt", "--yes"]).ok();
    assert!(run.stderr.contains(&expected), "{}", run.stderr);
    assert_eq!(fs::read(program.workspace().join("a.txt")).unwrap(), b"0");
}

#[test]
fn why_those_stay_that_do_is_counted() {
    let program = captured();
    program.run(["pin", "s:4"]).ok();
    build(&program.root().join("other"), [("a.txt", file("of another workspace"))]);
    program.run(["-C", "../other", "capture", "--session", "s"]).ok();
    for _ in 0..2 {
        program.run(["capture", "--session", "s"]).ok();
    }
    fs::write(program.workspace().join("a.txt"), "before a restore").unwrap();
    program.run(["restore", "s:2", "--session", "s", "--yes"]).ok();
    let rule = ["prune", "--keep", "2", "--session", "s", "--dry-run"];
    let planned = program.run([&rule[..], &["--json"]].concat()).ok().json();
    let because = serde_json::json!({ "rule": 2, "safety": 1, "pinned": 1, "newest": 1 });
    assert_eq!((&planned["kept"], &planned["kept_because"]), (&5.into(), &because), "{planned}");
    let told = program.run(rule).ok().stdout;
    let (_, reasons) = told.split_once("of those that stay\n").unwrap();
    assert_eq!(
        reasons,
        "  2 by the rule\n  1 saved by a restore: younger than a day, or by the rule\n  1 pinned\n  \
         1 the newest of a workspace in its session\n"
    );
    let deletion = ["prune", "--session", "s", "--delete", "--dry-run"];
    let planned = program.run([&deletion[..], &["--json"]].concat()).ok().json();
    assert_eq!(planned["kept_because"], serde_json::json!({ "pinned": 1 }));
    // Where it is the rule alone there is nothing to explain.
    let all = program.run(["prune", "--dry-run", "--session", "s"]).ok().stdout;
    assert!(all.starts_with("nothing to prune; 16 stay\nof those that stay\n  15 by"), "{all}");
    program.run(["capture", "--session", "t"]).ok();
    let of_rule = program.run(["prune", "--dry-run", "--session", "t"]).ok().stdout;
    assert_eq!(of_rule, "nothing to prune; 1 stays\n");
}

/// Else nothing would be collected by itself until that time has come.
#[test]
fn a_collection_of_a_time_that_is_yet_to_come_was_no_collection() {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    build(&program.workspace(), [("a.txt", file("a"))]);
    program.run(["capture", "--session", "s"]).ok();
    let lock = program.store().join("locks/sweep.lock");
    let modified = || fs::metadata(&lock).unwrap().modified().unwrap();
    let ahead = modified() + Duration::from_hours(240);
    fs::File::options().append(true).open(&lock).unwrap().set_modified(ahead).unwrap();
    program.run(["capture", "--session", "s"]).ok();
    assert!(modified() < ahead);
    // The next one is due in a day.
    let collected = modified();
    program.run(["capture", "--session", "s"]).ok();
    assert_eq!(modified(), collected);
}
