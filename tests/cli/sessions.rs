//! Which session is meant where a command names none.

use std::fs;
use std::os::unix::fs::symlink;

use crate::support::program::{Program, Run, run};
use crate::support::tree::{build, file};

/// s:0 holds `s0`, s:1 `s1`, s:2 `s2`, and then, as after a command of somebody else, t:0 `t0` and t:1 `t1`.
fn program() -> Program {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    for (session, content) in [("s", "s0"), ("s", "s1"), ("s", "s2"), ("t", "t0"), ("t", "t1")] {
        build(&program.workspace(), [("a.txt", file(content))]);
        program.run(["capture", "--session", session]).ok();
    }
    program
}

fn with_variable(program: &Program, session: &str, arguments: &[&str]) -> Run {
    run(program.command(arguments).env("TURNPOINT_SESSION", session))
}

#[test]
fn the_variable_names_the_session_of_every_checkpoint_without_one() {
    let program = program();
    for (checkpoint, expected) in
        [("0", "s0"), ("1", "s1"), ("latest", "s2"), ("latest~1", "s1"), ("t:0", "t0")]
    {
        let run = with_variable(&program, "s", &["cat", checkpoint, "a.txt"]).ok();
        assert_eq!((run.stdout.as_str(), run.stderr.as_str()), (expected, ""), "{checkpoint}");
    }
    let named = with_variable(&program, "s", &["cat", "0", "a.txt", "--session", "t"]).ok();
    assert_eq!(named.stdout, "t0");
    let shown = with_variable(&program, "s", &["show", "--json"]).ok().json();
    assert_eq!((&shown["session"], &shown["seq"]), (&"s".into(), &2.into()));
    let compared = with_variable(&program, "s", &["diff", "0", "2", "--json"]).ok().json();
    assert_eq!(compared["before"]["session"], "s");
    assert_eq!(compared["after"]["session"], "s");
    let steps = with_variable(&program, "s", &["log", "a.txt", "--json"]).ok().json();
    assert_eq!(steps["entries"].as_array().unwrap().len(), 3);
    let planned = with_variable(&program, "s", &["rewind", "2", "--dry-run", "--json"]).ok().json();
    assert_eq!((&planned["session"], &planned["seq"]), (&"s".into(), &1.into()));
    with_variable(&program, "s", &["pin", "1"]).ok();
    assert!(program.store().join("s/1.pin").exists());
    with_variable(&program, "s", &["restore", "1", "--yes"]).ok();
    assert_eq!(fs::read_to_string(program.workspace().join("a.txt")).unwrap(), "s1");
}

#[test]
fn what_narrows_a_list_is_only_what_is_typed() {
    let program = program();
    let list = with_variable(&program, "s", &["list", "--json"]).ok().json();
    assert_eq!(list["checkpoints"].as_array().unwrap().len(), 5);
    let purge =
        with_variable(&program, "s", &["purge", "--dry-run", "a.txt", "--json"]).ok().json();
    assert_eq!(purge["checkpoints"].as_array().unwrap().len(), 5);
}

#[test]
fn a_number_alone_says_of_which_session_it_is_where_there_are_two() {
    let program = program();
    let run = program.run(["cat", "1", "a.txt"]).ok();
    assert_eq!(run.stdout, "t1");
    let expected =
        "note: 1 is taken as t:1, of the newest session of this workspace; there is also s:1\n";
    assert_eq!(run.stderr, expected);
    let missing = program.run(["show", "2"]).exits(2).stderr;
    assert!(missing.contains("there is also s:2"), "{missing}");
    assert!(missing.contains("there is no checkpoint t:2"), "{missing}");
    let document = program.run(["show", "0", "--json"]).ok().json();
    let message = document["notices"][0]["message"].as_str().unwrap();
    assert!(message.contains("taken as t:0"), "{document}");
    // There is nothing to tell where it was said, or nothing else is meant by it.
    for arguments in
        [&["cat", "t:1", "a.txt"][..], &["cat", "latest", "a.txt"], &["cat", "t", "1", "a.txt"]]
    {
        assert_eq!(program.run(arguments).ok().stderr, "", "{arguments:?}");
    }
    assert_eq!(program.run(["cat", "1", "a.txt", "-q"]).ok().stderr, "");
}

#[test]
fn a_number_of_another_workspace_is_no_namesake() {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    build(&program.workspace(), [("a.txt", file("here"))]);
    build(&program.root().join("other"), [("a.txt", file("there"))]);
    program.run(["-C", "../other", "capture", "--session", "t"]).ok();
    program.run(["capture", "--session", "s"]).ok();
    let run = program.run(["cat", "0", "a.txt"]).ok();
    assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("here", ""));
}

#[test]
fn a_variable_that_names_nothing_says_so() {
    let program = program();
    let run = with_variable(&program, "none", &["show", "latest"]).exits(2).stderr;
    assert!(run.contains("the one of the setting `session` is meant, none"), "{run}");
    assert!(run.contains("there is no session `none`"), "{run}");
}

#[test]
fn a_directory_that_is_named_within_a_workspace_says_that_it_is_another_one() {
    let program = program();
    build(&program.workspace(), [("src/b.txt", file("b"))]);
    let listed = program.run(["-C", "src", "list"]).ok().stderr;
    let expected = format!(
        "note: -C makes {0}/src the workspace; from there without -C it would be {0}\n",
        program.workspace().display()
    );
    assert!(listed.starts_with(&expected), "{listed}");
    // Where it is known nobody is surprised; and a command about the store has nothing to do with it.
    program.run(["-C", "src", "capture"]).ok();
    for arguments in [&["-C", "src", "list"][..], &["-C", ".", "list"], &["-C", "..", "stats"]] {
        assert_eq!(program.run(arguments).ok().stderr, "", "{arguments:?}");
    }
    // Nor is a run of a workspace, but of the repository.
    program.git(["init", "-q"]);
    program.git(["commit", "-q", "--allow-empty", "-m", "first"]);
    fs::create_dir(program.workspace().join("lib")).unwrap();
    for verb in ["exec", "plan"] {
        let ran = program.run(["-C", "lib", verb, "--worktree", "--", "true"]).ok().stderr;
        assert!(!ran.contains("-C makes"), "{verb}: {ran}");
    }
    let ran = program.run(["-C", "lib", "exec", "--", "true"]).ok().stderr;
    assert!(ran.contains("-C makes"), "{ran}");
}

/// The commands between backticks of a text that name something.
fn commands(text: &str) -> Vec<&str> {
    let parts = text.split('`').skip(1).step_by(2);
    parts.filter(|part| part.starts_with("turnpoint ") && part.contains('\'')).collect()
}

/// Runs each as a shell does, in the workspace.
fn paste(program: &Program, text: &str, codes: &[(&str, i32)]) {
    let bin = program.root().join("bin");
    if !bin.exists() {
        fs::create_dir(&bin).unwrap();
        symlink(env!("CARGO_BIN_EXE_turnpoint"), bin.join("turnpoint")).unwrap();
    }
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let found = commands(text);
    let verbs: Vec<&str> = found.iter().filter_map(|it| it.split(' ').nth(1)).collect();
    assert_eq!(verbs, codes.iter().map(|(verb, _)| *verb).collect::<Vec<_>>(), "{text}");
    for (command, (_, code)) in found.iter().zip(codes) {
        let command = command.replace("PATH...", "a.txt");
        run(program.other("sh").args(["-c", &command]).env("PATH", &path)).exits(*code);
    }
}

#[test]
fn what_is_to_be_typed_can_be_pasted_whatever_is_in_a_name() {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    let session = "it's $HOME; a test";
    let capture = ["capture", "--session", session];
    build(&program.workspace(), [(".env", file("KEY=1"))]);
    for content in ["one\n", "two\n", "three\n"] {
        build(&program.workspace(), [("a.txt", file(content)), ("my dir/b.txt", file("b"))]);
        program.run(capture).ok();
    }
    let named = |seq: u32| format!("{session}:{seq}");
    let found =
        program.run(["bisect", &named(0), &named(2), "--", "grep", "-q", "one", "a.txt"]).ok();
    paste(&program, &found.stdout, &[("diff", 0), ("revert", 3), ("restore", 3)]);
    let shown = program.run(["show", &named(0)]).ok().stdout;
    paste(&program, &shown, &[("ls", 0)]);
    program.run(["pin", &named(1), "--note", "it's good"]).ok();
    paste(&program, &program.run(["unpin", &named(1)]).ok().stdout, &[("pin", 0)]);
    let conflict = program.run(["revert", &named(1), "--yes"]).exits(3).stderr;
    paste(&program, &conflict, &[("diff", 0), ("diff", 0)]);
    paste(
        &program,
        &program.run(["rewind", "9", "--session", session]).exits(2).stderr,
        &[("list", 0)],
    );
    let missing = program.run(["cat", &named(0), "it's gone"]).exits(2).stderr;
    paste(&program, &missing, &[("ls", 0), ("find", 0)]);
    let mut below = program.command(["cat", &named(0), "."]);
    let directory = run(below.current_dir(program.workspace().join("my dir"))).exits(2).stderr;
    assert!(directory.contains("../my dir'` lists it"), "seen from there: {directory}");
    let two = program.run(["show", &named(0), "my dir/b.txt"]).exits(2).stderr;
    paste(&program, &two, &[("cat", 0), ("log", 0)]);
    let planned = program.run(["restore", &named(0), "--plan-out", "../the plan"]).ok().stdout;
    paste(&program, &planned, &[("restore", 3)]);
    // A list of names is of words that can be typed.
    let none = program.run(["list", "--session", "its"]).exits(2).stderr;
    assert!(none.contains(r"these exist: 'it'\''s $HOME; a test'"), "{none}");
    program.run(["label", "latest", "before the move"]).ok();
    let none = program.run(["show", "@before"]).exits(2).stderr;
    assert!(none.contains("these exist: '@before the move'"), "{none}");
}

#[test]
fn which_session_is_meant_is_told_where_there_are_others() {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    for (session, content) in [("s", "1"), ("s", "2"), ("t", "2"), ("t", "3")] {
        build(&program.workspace(), [("a.txt", file(content))]);
        program.run(["capture", "--session", session]).ok();
        let log = program.run(["log", "a.txt"]).ok();
        let note = "note: of session t, the newest of this workspace; --session names another: s\n";
        assert_eq!(log.stderr, if session == "s" { "" } else { note });
        let back = program.run(["rewind", "--dry-run"]).ok();
        assert_eq!(back.stderr.contains(note), session == "t", "{}", back.stderr);
    }
    for named in [["log", "a.txt", "--session", "t"], ["rewind", "--dry-run", "--session", "t"]] {
        let run = program.run(named).ok();
        assert!(!run.stderr.contains("of session"), "{}", run.stderr);
    }
    // That a restore saved something in a session of its own makes it none that is meant.
    program.run(["prune", "--session", "s", "--delete", "--yes"]).ok();
    program.run(["restore", "t:0", "--yes"]).ok();
    assert_eq!(program.run(["log", "a.txt"]).ok().stderr, "");
}
