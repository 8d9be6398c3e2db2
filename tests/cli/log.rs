//! A path through history: `log` and `find`.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::support::corpus::{Corpus, EVERYTHING, Shape};
use crate::support::program::{Program, Run, run};
use crate::support::tree::{build, file};

fn program() -> Program {
    Program::new(env!("CARGO_BIN_EXE_turnpoint"))
}

fn capture(program: &Program) {
    program.run(["capture", "--session", "s", "-q"]).ok();
}

/// Runs SQL on the index with another program; rows as arrays.
fn sql(program: &Program, statement: &str) -> Value {
    let script = "import sys, sqlite3, json\n\
                  rows = sqlite3.connect(sys.argv[1]).execute(sys.argv[2]).fetchall()\n\
                  print(json.dumps(rows))";
    let index = program.store().join("index.db");
    let mut python = program.other("python3");
    run(python.args(["-c", script]).arg(index).arg(statement)).ok().json()
}

/// `[seq, path, change]` of each entry.
fn rows(document: &Value) -> Value {
    let entries = document["entries"].as_array().unwrap();
    entries
        .iter()
        .map(|entry| {
            assert_eq!(entry["session"], "s");
            json!([entry["seq"], entry["path"], entry["change"]])
        })
        .collect()
}

fn damage_the_index(program: &Program) {
    for suffix in ["", "-wal", "-shm"] {
        fs::write(program.store().join(format!("index.db{suffix}")), "no database").unwrap();
    }
}

#[test]
fn the_log_is_the_history_that_the_index_knows() {
    let program = program();
    let shape = Shape { mean_bytes: 500, ..Shape::of(200) };
    let mut corpus = Corpus::generate(&program.workspace(), shape).unwrap();
    for turn in 0..6 {
        capture(&program);
        corpus.turn(turn, 12, EVERYTHING).unwrap();
    }
    let log = |path: &str| rows(&program.run(["log", path, "--json"]).ok().json());
    let history = "SELECT seq, path, change FROM file_history WHERE session = 's'";
    let order = "ORDER BY seq, path_bytes";
    let all = sql(&program, &format!("{history} {order}"));
    assert!(all.as_array().unwrap().len() > 250);
    assert_eq!(log("."), all);
    let touched = sql(&program, &format!("{history} AND seq > 0 {order}"));
    let mut compared = 0;
    for row in touched.as_array().unwrap().iter().step_by(8) {
        let path = row[1].as_str().unwrap();
        let (folder, _) = path.rsplit_once('/').unwrap_or((path, ""));
        for path in [path, folder] {
            let below = format!("(path = '{path}' OR path GLOB '{path}/*')");
            let expected = sql(&program, &format!("{history} AND {below} {order}"));
            assert_eq!(log(path), expected, "{path}");
            compared += 1;
        }
    }
    assert!(compared > 10);
    damage_the_index(&program);
    let run = program.run(["log", ".", "--json"]).exits(4);
    assert_eq!(rows(&run.json()), all);
    assert_eq!(run.json()["notices"][0]["code"], "index-damaged");
}

/// A file that comes, changes, goes and comes back.
fn some_turns() -> Program {
    let program = program();
    let root = program.workspace();
    build(&root, [("keep.txt", file("k\n")), (".env", file("KEY=1"))]);
    capture(&program);
    build(&root, [("src/a.rs", file("one\n"))]);
    capture(&program);
    build(&root, [("src/a.rs", file("one\ntwo\n"))]);
    capture(&program);
    fs::remove_file(root.join("src/a.rs")).unwrap();
    capture(&program);
    build(&root, [("src/a.rs", file("back\n"))]);
    capture(&program);
    capture(&program);
    program
}

#[test]
fn each_step_is_shown_and_with_its_lines() {
    let program = some_turns();
    let log = program.run(["log", "src/a.rs"]).ok().stdout;
    let words: Vec<Vec<&str>> = log.lines().map(|line| line.split_whitespace().collect()).collect();
    let changes: Vec<(&str, &str)> =
        words[2..].iter().map(|words| (words[0], words[words.len() - 2])).collect();
    assert_eq!(changes, [("1", "added"), ("2", "modified"), ("3", "deleted"), ("4", "added")]);
    assert_eq!(words[0], ["session", "s"]);
    let patch = program.run(["log", "src", "--patch"]).ok().stdout;
    let lines: Vec<&str> = patch.lines().filter(|line| line.starts_with(['+', '-', 'c'])).collect();
    let expected = [
        "checkpoint s:1, compared with s:0",
        "--- /dev/null",
        "+++ b/src/a.rs",
        "+one",
        "checkpoint s:2, compared with s:1",
        "--- a/src/a.rs",
        "+++ b/src/a.rs",
        "+two",
        "checkpoint s:3, compared with s:2",
        "--- a/src/a.rs",
        "+++ /dev/null",
        "-one",
        "-two",
        "checkpoint s:4, compared with s:3",
        "--- /dev/null",
        "+++ b/src/a.rs",
        "+back",
    ];
    assert_eq!(lines, expected);
    let first = program.run(["log", "keep.txt", "--json"]).ok().json();
    assert_eq!(rows(&first), json!([[0, "keep.txt", "added"]]));
    assert_eq!(first["entries"][0]["before"], Value::Null);
}

#[test]
fn a_path_that_no_checkpoint_holds_is_not_one_without_changes() {
    let program = some_turns();
    let typo = program.run(["log", "scr/a.rs"]).exits(2);
    assert!(typo.stderr.contains("no checkpoint of session `s` holds `scr/a.rs`\n"), "{typo:?}");
    let secret = program.run(["log", ".env"]).exits(2);
    assert!(secret.stderr.contains("holds `.env`: secret\n"), "{secret:?}");
    program.run(["log", "keep.txt", "--session", "t"]).exits(2);
    // Left out from now on: it was not deleted.
    fs::write(program.workspace().join(".gitignore"), "src\n").unwrap();
    capture(&program);
    let log = program.run(["log", "src/a.rs", "--json"]).ok().json();
    let last = log["entries"].as_array().unwrap().last().unwrap();
    assert_eq!((&last["change"], &last["path"]), (&json!("type"), &json!("src")));
    assert_eq!(last["reason_to"], "ignored");
}

#[test]
fn checkpoints_that_follow_one_another_are_one_find() {
    let program = some_turns();
    let find = |arguments: &[&str]| {
        let document = program.run(["find", "--json"].iter().chain(arguments)).ok().json();
        let found = document["found"].as_array().unwrap().clone();
        let range = |it: &Value| {
            json!([it["path"], it["first"], it["last"], it["checkpoints"], it["versions"]])
        };
        found.iter().map(range).collect::<Value>()
    };
    let expected = json!([["src/a.rs", 4, 5, 2, 1], ["src/a.rs", 1, 2, 2, 2]]);
    for pattern in ["a.rs", "*.rs", "src/a.rs", "**/a.*"] {
        assert_eq!(find(&[pattern]), expected, "{pattern}");
    }
    assert_eq!(find(&["src/*.txt"]), json!([]));
    assert_eq!(find(&["keep.txt", "--session", "s"]), json!([["keep.txt", 0, 5, 6, 1]]));
    let table = program.run(["find", "a.rs"]).ok().stdout;
    let starts: Vec<&str> = table.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(starts, ["CHECKPOINTS", "s:4-5", "s:1-2"]);
    let secret = program.run(["find", ".env"]).ok().stdout;
    assert!(secret.contains(".env [not held: secret]"), "{secret}");
    let none = program.run(["find", "nothing"]).ok();
    assert!(none.stderr.contains("no checkpoint has a path `nothing`"), "{none:?}");
    program.run(["find", "a.rs", "--session", "t"]).exits(2);
    let found = |run: Run| run.json()["found"].clone();
    let before = found(program.run(["find", "a.rs", "--json"]).ok());
    damage_the_index(&program);
    assert_eq!(found(program.run(["find", "a.rs", "--json"]).exits(4)), before);
}

#[test]
fn what_cannot_be_read_is_named() {
    let program = some_turns();
    fs::write(program.store().join("s/2.json"), "{\"op\": 1}").unwrap();
    for arguments in [&["log", "src/a.rs"][..], &["find", "a.rs"]] {
        let run = program.run(arguments).exits(4);
        assert!(run.stderr.contains("1 checkpoint cannot be read and is left out: s:2"), "{run:?}");
        let document = program.run(arguments.iter().chain(&["--json"])).exits(4).json();
        assert_eq!(document["unreadable"][0]["seq"], 2);
    }
    let log = program.run(["log", "src/a.rs", "--json"]).exits(4).json();
    let seqs: Vec<&Value> =
        log["entries"].as_array().unwrap().iter().map(|entry| &entry["seq"]).collect();
    assert_eq!(seqs, [1, 3, 4]);
}

#[test]
fn names_cannot_act_on_a_terminal_and_readers_may_stop() {
    let program = some_turns();
    let name = b"x\n\x1b[31m\xff.rs";
    fs::write(program.workspace().join(OsStr::from_bytes(name)), "x\n").unwrap();
    capture(&program);
    for arguments in [&["log", "."][..], &["find", "*.rs"], &["log", ".", "--json"]] {
        let run = program.run(arguments).ok();
        let is_safe = |character: char| character == '\n' || character >= ' ';
        assert!(run.stdout.chars().all(is_safe), "{:?}", run.stdout);
        if !arguments.contains(&"--json") {
            assert!(run.stdout.contains("x\\n\\u{1b}[31m\\xFF.rs"), "{}", run.stdout);
        }
        let mut command = program.command(arguments);
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let child = command.stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "", "{arguments:?}");
    }
    let mut exact = program.command([OsStr::new("find"), OsStr::from_bytes(name)]);
    assert!(run(&mut exact).ok().stdout.contains("s:6"));
}

#[test]
fn the_log_is_paged_from_its_end_where_its_lines_are_more_than_the_screen() {
    let program = program();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/terminal.py");
    let paged = |arguments: &[&str]| {
        let mut command = program.other("python3");
        command.arg(&script).args(["80", "", "", "", env!("CARGO_BIN_EXE_turnpoint"), "log"]);
        command.args(arguments).args(["--color", "never"]).env("TERM", "xterm");
        run(command.env("TURNPOINT_PAGER", "echo $LESS; sed 's/^/> /'")).ok().stdout
    };
    build(&program.workspace(), [("a.txt", file("a"))]);
    capture(&program);
    assert!(!paged(&["."]).contains("> "), "a line fits");
    // One checkpoint may have many lines.
    for number in 0..60 {
        fs::write(program.workspace().join(format!("{number}.txt")), "x").unwrap();
    }
    capture(&program);
    let shown = paged(&["."]);
    assert!(shown.starts_with("FRX+G\n> session s\n"), "{shown}");
    assert!(!paged(&["a.txt"]).contains("> "));
    assert!(!paged(&[".", "--no-pager"]).contains("> "));
}
