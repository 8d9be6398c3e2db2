//! `list`: how much of it is shown, and how.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::support::program::{Program, Run, run};
use crate::support::tree::{build, file};

/// s:0 to s:2, t:0, s:3.
fn program() -> Program {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    build(&program.workspace(), [("a.txt", file("one")), ("b.txt", file("two"))]);
    for session in ["s", "s", "s", "t", "s"] {
        program.run(["capture", "--session", session]).ok();
    }
    program
}

/// The checkpoints that `list` names with these options.
fn listed(program: &Program, options: &[&str]) -> Vec<String> {
    let document = program.run([&["list", "--json"], options].concat()).ok().json();
    let checkpoints = document["checkpoints"].as_array().unwrap();
    let name =
        |it: &serde_json::Value| format!("{}:{}", it["session"].as_str().unwrap(), it["seq"]);
    checkpoints.iter().map(name).collect()
}

#[test]
fn a_limit_leaves_the_newest_in_their_order() {
    let program = program();
    assert_eq!(listed(&program, &[]), ["s:0", "s:1", "s:2", "t:0", "s:3"]);
    assert_eq!(listed(&program, &["-n", "2"]), ["t:0", "s:3"]);
    assert_eq!(listed(&program, &["--session", "s", "--limit", "1"]), ["s:3"]);
    assert_eq!(listed(&program, &["-n", "9"]).len(), 5);
    assert_eq!(listed(&program, &["t"]), listed(&program, &["--session", "t"]));
    program.run(["list", "-n", "0"]).exits(2);
    let sessions = program.run(["list", "--sessions", "-n", "1", "--json"]).ok().json();
    assert_eq!(sessions["sessions"].as_array().unwrap().len(), 1);
    assert_eq!(sessions["sessions"][0]["session"], "s");
}

#[test]
fn a_checkpoint_of_some_paths_is_told_from_others_everywhere() {
    let program = program();
    build(&program.workspace(), [("a.txt", file("1")), ("b.txt", file("2"))]);
    program.run(["restore", "s:0", "a.txt", "-y"]).ok();
    let document = program.run(["list", "--json"]).ok().json();
    let (safety, others) = document["checkpoints"].as_array().unwrap().split_last().unwrap();
    assert_eq!(safety["part"], true, "{document}");
    assert!(others.len() == 5 && others.iter().all(|it| it["part"] == false), "{document}");
    let id = format!("{}:{}", safety["session"].as_str().unwrap(), safety["seq"]);
    let shown = program.run(["list"]).ok().stdout;
    assert!(shown.contains("[some paths] (before a restore of s:0)"), "{shown}");
    assert_eq!(shown.matches("before a restore").count(), 1, "{shown}");
    let shown = program.run(["show", &id]).ok().stdout;
    assert!(shown.contains("only a.txt, which a restore was about to change"), "{shown}");
    let names = program.run(["ls", &id]).ok();
    assert!(names.stdout.contains("a.txt") && !names.stdout.contains("b.txt"), "{}", names.stdout);
    assert!(names.stderr.contains("no others are listed"), "{}", names.stderr);
    assert_eq!(program.run(["cat", &id, "a.txt"]).ok().stdout, "1");
    let refused = program.run(["cat", &id, "b.txt"]).exits(2);
    assert_eq!(refused.stdout, "");
    assert!(refused.stderr.contains("`b.txt` is not one of them"), "{}", refused.stderr);
    assert!(refused.stderr.contains("s:3 is the one before it"), "{}", refused.stderr);
}

#[test]
fn what_cannot_be_read_is_in_every_list() {
    let program = program();
    fs::write(program.store().join("t/0.json"), "damaged").unwrap();
    let sessions = ["list", "--sessions", "-n", "1"];
    let document = program.run([&sessions[..], &["--json"]].concat()).exits(4).json();
    assert_eq!(document["sessions"][0]["session"], "t", "{document}");
    assert_eq!(document["sessions"][0]["unreadable"], 1, "{document}");
    assert_eq!(document["sessions"][1]["session"], "s", "{document}");
    let shown = program.run(sessions).exits(4).stdout;
    assert!(shown.contains("t  [1 unreadable]"), "{shown}");
    fs::write(program.store().join("s/0.json"), "damaged").unwrap();
    let document = program.run(["list", "--json", "-n", "1"]).exits(4).json();
    assert_eq!(document["unreadable"].as_array().unwrap().len(), 2, "{document}");
    assert_eq!(document["checkpoints"].as_array().unwrap().len(), 1, "{document}");
    assert_eq!(document["checkpoints"][0]["seq"], 3, "{document}");
}

#[test]
fn the_files_that_were_read_are_counted() {
    let program = program();
    let capture = || {
        // Until the stamps vouch for what was written before.
        std::thread::sleep(Duration::from_millis(120));
        program.run(["capture", "--session", "s"]).ok();
    };
    // What is read once more, because it was too young, and not again.
    capture();
    capture();
    fs::write(program.workspace().join("a.txt"), "changed").unwrap();
    capture();
    let list = program.run(["list", "--session", "s"]).ok().stdout;
    let cells = |seq: &str| -> Vec<String> {
        let line = list.lines().find(|line| line.trim_start().starts_with(seq)).unwrap();
        line.split_whitespace().map(str::to_owned).collect()
    };
    let heading = cells("SEQ");
    assert_eq!(heading, ["SEQ", "TIME", "AGE", "FILES", "READ", "TRIGGER", "LABEL"]);
    for (seq, files_and_read) in [("0", ["2", "2"]), ("5", ["2", "0"]), ("6", ["2", "1"])] {
        let cells = cells(seq);
        let at = cells.iter().position(|cell| cell == "manual").unwrap();
        assert_eq!(cells[at - 2..at], files_and_read, "{seq}: {list}");
    }
}

/// On a terminal of 50 lines and so many columns, with a pager that marks what it is given.
fn paged(program: &Program, columns: &str, arguments: &[&str]) -> Run {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/terminal.py");
    let mut command = program.other("python3");
    command.arg(script).args([columns, "", "", ""]);
    command.arg(env!("CARGO_BIN_EXE_turnpoint")).args(arguments);
    run(command.env("TERM", "xterm").env("TURNPOINT_PAGER", "echo $LESS; sed 's/^/> /'"))
}

#[test]
fn a_list_is_paged_from_its_end_where_it_is_longer_than_the_screen() {
    let program = program();
    let list = ["list", "--color", "never"];
    assert!(!paged(&program, "80", &list).ok().stdout.contains("> "), "five lines fit");
    // Few rows may be many lines.
    for seq in 0..4 {
        let label = ["label", &format!("s:{seq}"), &"words that wrap ".repeat(30)];
        program.run(label).ok();
    }
    assert!(!paged(&program, "400", &list).ok().stdout.contains("> "), "two lines each fit");
    let shown = paged(&program, "40", &list).ok().stdout;
    assert!(shown.starts_with("FRX+G\n> workspace\n"), "{shown}");
    // A copy of the manifest under another number is a checkpoint that cannot be read: a line all the same.
    for seq in 4..54 {
        let file = |seq: u32| program.store().join(format!("s/{seq}.json"));
        fs::copy(file(3), file(seq)).unwrap();
    }
    let shown = paged(&program, "80", &list).exits(4).stdout;
    assert!(shown.starts_with("FRX+G\n> workspace "), "{shown}");
    let shown = paged(&program, "80", &[&list[..], &["--no-pager"]].concat()).exits(4).stdout;
    assert!(!shown.contains("> ") && shown.contains("[unreadable]"), "{shown}");
}

#[test]
fn sessions_of_runs_whose_work_trees_are_gone_are_counted() {
    let program = program();
    let runs = program.root().join("elsewhere/.turnpoint/worktrees");
    let elsewhere = program.root().join("elsewhere");
    for (directory, session) in [
        (runs.join("gone"), None),
        (runs.join("gone"), Some("named")),
        (runs.join("there"), None),
        (elsewhere.join("lost"), None),
    ] {
        build(&directory, [("a.txt", file("a"))]);
        let mut capture = program.command(["-C", directory.to_str().unwrap(), "capture", "-q"]);
        run(capture.args(session.iter().flat_map(|name| ["--session", name]))).ok();
    }
    let sessions = ["list", "--sessions"];
    let before = program.run(sessions).ok();
    assert_eq!((before.stdout.lines().count(), before.stderr.as_str()), (1 + 6, ""));
    fs::remove_dir_all(runs.join("gone")).unwrap();
    // What a person did away with is what is looked for.
    fs::remove_dir_all(elsewhere.join("lost")).unwrap();
    let document = program.run(["list", "--sessions", "--json"]).ok().json();
    assert_eq!(document["sessions"].as_array().unwrap().len(), 6);
    assert_eq!(document.get("notices"), None);
    let left = program.run(sessions).ok();
    let names = |stdout: &str| -> Vec<String> {
        let named = stdout.lines().skip(1).filter_map(|line| line.split_whitespace().rev().nth(1));
        named.map(|name| name.split('-').next().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&left.stdout), ["t", "s", "named", "there", "lost"]);
    assert_eq!(
        left.stderr,
        "note: 1 session of a run whose work tree is gone is left out; `turnpoint list --sessions \
         --all` shows all\n"
    );
    let newest = program.run(["list", "--sessions", "-n", "3"]).ok();
    assert_eq!(names(&newest.stdout), ["named", "there", "lost"]);
    let all = program.run(["list", "--sessions", "--all"]).ok();
    assert_eq!(names(&all.stdout), ["t", "s", "gone", "named", "there", "lost"]);
    assert_eq!(all.stderr, "");
    // What cannot be read is always told.
    let gone = names(&all.stdout).iter().position(|name| name == "gone").unwrap();
    let session = document["sessions"][gone]["session"].as_str().unwrap();
    fs::write(program.store().join(session).join("0.json"), "damaged").unwrap();
    assert!(program.run(sessions).exits(4).stdout.contains("[1 unreadable]"));
}
