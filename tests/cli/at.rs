//! `--at TIME` in place of a checkpoint's number.

use std::fs;

use serde_json::Value;

use crate::support::program::{Program, Run, run};
use crate::support::tree::{build, file};

/// As if it were `ago` seconds earlier.
fn earlier(program: &Program, ago: i64, arguments: &[&str]) -> Run {
    let shift = format!("-{ago}");
    run(program.command(arguments).env("TURNPOINT_TEST_CLOCK_SHIFT_SECONDS", shift))
}

fn capture(program: &Program, ago: i64, session: &str, content: &str) {
    build(&program.workspace(), [("a.txt", file(content))]);
    earlier(program, ago, &["capture", "--session", session]).ok();
}

/// s:0 two hours ago, s:1 an hour ago, t:0 half an hour ago, and s:2, a safety checkpoint, a quarter ago.
fn some_hours() -> Program {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    capture(&program, 7_200, "s", "zero");
    capture(&program, 3_600, "s", "one");
    capture(&program, 1_800, "t", "two");
    build(&program.workspace(), [("a.txt", file("saved"))]);
    earlier(&program, 900, &["restore", "t:0", "--session", "s", "--yes"]).ok();
    assert!(program.store().join("s/2.json").exists());
    program
}

fn shown(run: &Run) -> String {
    let document = run.json();
    format!("{}:{}", document["session"].as_str().unwrap(), document["seq"])
}

#[test]
fn the_newest_that_was_there_is_taken() {
    let program = some_hours();
    for (at, session, expected) in [
        ("1s", None, "t:0"),
        ("20m", None, "t:0"),
        ("31 minutes ago", None, "s:1"),
        ("59m", None, "s:1"),
        ("61m", None, "s:0"),
        ("1s", Some("s"), "s:1"),
        ("1s", Some("t"), "t:0"),
        ("1h5m", Some("S"), "s:0"),
    ] {
        let mut arguments = vec!["show", "--at", at, "--json"];
        arguments.extend(session.into_iter().flat_map(|session| ["--session", session]));
        assert_eq!(shown(&program.run(&arguments).ok()), expected, "{at} {session:?}");
    }
    for (at, session) in [("3h", "s"), ("40m", "t"), ("1990-01-01", "s")] {
        let run = program.run(["show", "--at", at, "--session", session, "--json"]).exits(2);
        let error: Value = serde_json::from_str(&run.stderr).unwrap();
        assert_eq!(error["code"], "none-so-old", "{error}");
        let hint = error["hint"].as_str().unwrap();
        assert!(hint.starts_with(&format!("the oldest is {session}:0, of 2")), "{hint}");
    }
    program.run(["show", "--at", "1s", "--session", "u"]).exits(2);
    // To the nanosecond: that moment, and the one before it.
    let made = program.run(["show", "s:1", "--json"]).ok().json()["created_at"].clone();
    let made = made.as_str().unwrap();
    assert_eq!(shown(&program.run(["show", "--at", made, "--json"]).ok()), "s:1");
    let (digits, last) = made.split_at(made.len() - 4);
    let nanoseconds: u32 = last.trim_end_matches('Z').parse().unwrap();
    if let Some(before) = nanoseconds.checked_sub(1) {
        let before = format!("{digits}{before:03}Z");
        assert_eq!(shown(&program.run(["show", "--at", &before, "--json"]).ok()), "s:0");
    }
}

#[test]
fn newest_is_what_was_made_last_where_a_clock_was_set_back() {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    for (ago, content) in [(3_600, "zero"), (7_200, "one"), (5_400, "two"), (600, "three")] {
        capture(&program, ago, "s", content);
    }
    for (at, expected) in [("30m", "s:2"), ("80m", "s:2"), ("100m", "s:1"), ("1s", "s:3")] {
        assert_eq!(shown(&program.run(["show", "--at", at, "--json"]).ok()), expected, "{at}");
    }
}

#[test]
fn every_command_that_names_a_checkpoint_takes_a_time_and_says_which_one_it_took() {
    let program = some_hours();
    let content = |run: Run| {
        assert!(run.stderr.contains("was s:1, made 20"), "{run:?}");
        run.stdout
    };
    assert_eq!(content(program.run(["cat", "--at", "45m", "a.txt"]).ok()), "one");
    assert!(content(program.run(["ls", "--at", "45m"]).ok()).starts_with("checkpoint s:1\n"));
    let diff = content(program.run(["diff", "--at", "45m"]).ok());
    assert!(diff.starts_with("changes from s:1 to /"), "{diff}");
    let diff = content(program.run(["diff", "--at", "45m", "t:0", "--", "a.txt"]).ok());
    assert!(diff.starts_with("changes from s:1 to t:0\n"), "{diff}");
    content(program.run(["export", "--at", "45m", "../out"]).ok());
    assert_eq!(fs::read_to_string(program.root().join("out/a.txt")).unwrap(), "one");
    content(program.run(["pin", "--at", "45m"]).ok());
    assert_eq!(program.run(["show", "s:1", "--json"]).ok().json()["pinned"], true);
    content(program.run(["unpin", "--at", "45m"]).ok());
    assert_eq!(program.run(["show", "s:1", "--json"]).ok().json()["pinned"], false);
    content(program.run(["label", "--at", "45m", "7"]).ok());
    assert_eq!(program.run(["show", "s:1", "--json"]).ok().json()["label"], "7");
    content(program.run(["label", "--at", "45m", "--clear"]).ok());
    assert_eq!(program.run(["show", "s:1", "--json"]).ok().json()["label"], Value::Null);
    let plan = content(program.run(["restore", "--at", "45m", "a.txt", "--dry-run"]).ok());
    assert!(plan.starts_with("restore s:1 in "), "{plan}");
    content(program.run(["restore", "--at", "45m", "--yes"]).ok());
    assert_eq!(fs::read_to_string(program.workspace().join("a.txt")).unwrap(), "one");
    let notice = program.run(["show", "--at", "45m", "--json"]).ok().json()["notices"].clone();
    assert!(notice[0]["message"].as_str().unwrap().contains("was s:1, made 20"), "{notice}");
    assert_eq!(program.run(["ls", "--at", "45m", "-q"]).ok().stderr, "");
}

#[test]
fn a_checkpoint_beside_a_time_is_refused() {
    let program = some_hours();
    for arguments in [
        &["restore", "--at", "45m", "s:1", "--yes"][..],
        &["restore", "--at", "45m", "s", "1", "--yes"],
        &["restore", "--at", "45m", "latest", "--yes"],
        &["cat", "--at", "45m", "3", "a.txt"],
        &["show", "--at", "45m", "s"],
        &["restore", "--at", "45m", "--continue"],
        &["restore", "--at", "45m", "--abort"],
        &["label", "--at", "45m"],
        &["export", "--at", "45m"],
        &["show", "--at", "someday"],
        &["show", "--at", "3"],
    ] {
        let run = program.run(arguments).exits(2);
        assert!(run.stdout.is_empty() && !run.stderr.is_empty(), "{arguments:?}");
        assert_eq!(fs::read_to_string(program.workspace().join("a.txt")).unwrap(), "two");
    }
    let forms = program.run(["show", "--at", "someday"]).exits(2).stderr;
    assert!(forms.contains("these forms are read: 10m, 2h, `2 days ago`"), "{forms}");
    // Behind `--` it is a path, and there is none.
    let run = program.run(["restore", "--at", "45m", "--yes", "--", "3"]).exits(2);
    assert!(run.stderr.contains("s:1 does not hold `3`"), "{run:?}");
}
