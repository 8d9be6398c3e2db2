//! The questions in `docs/sql.md` are asked, and have the answers that stand there.
//!
//! Each block marked `sql` is followed by one marked `text` with the answer. `turnpoint sql` and
//! `sqlite3` must both give it. With `TURNPOINT_DOCUMENTS=overwrite` the file gets what `sqlite3` says
//! in the form of `turnpoint sql`.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::documents::settled;
use crate::support::program::{Program, run};
use crate::support::tree::{build, executable, file};

const DAY: i64 = 24 * 60 * 60;
const MINUTE: i64 = 60;

/// What is in the text: the views, and the questions with their answers.
fn text() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/sql.md")).unwrap()
}

#[test]
fn the_questions_have_the_answers_that_are_shown() {
    let program = example();
    let text = text();
    let mut shown = String::new();
    let mut rest = text.as_str();
    let mut count = 0;
    while let Some((before, after)) = rest.split_once("```sql\n") {
        let (sql, after) = after.split_once("```\n\n```text\n").unwrap();
        let (said, after) = after.split_once("```\n").unwrap();
        let mut sqlite3 = program.other("sqlite3");
        sqlite3.args(["-readonly", "-header", "-nullvalue", "NULL", "-separator", " "]);
        let theirs = run(sqlite3.arg(program.store().join("index.db")).arg(sql)).ok().stdout;
        let ours = settled(&program.run(["sql", sql]).ok().stdout);
        assert_eq!(words(&ours), words(&settled(&theirs)), "{sql}");
        assert!(ours.lines().count() > 1, "it has no answer: {sql}");
        if !is_to_be_written() {
            assert_eq!(words(&ours), words(said), "{sql}\n{ours}");
        }
        shown.extend([before, "```sql\n", sql, "```\n\n```text\n", &ours, "```\n"]);
        rest = after;
        count += 1;
    }
    shown.push_str(rest);
    assert!(count >= 20, "only {count} questions");
    if is_to_be_written() {
        fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/sql.md"), shown).unwrap();
    }
}

#[test]
fn the_views_are_described_as_the_program_does() {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    let schema = program.run(["sql", "--schema", "--json"]).ok().json();
    let text = text();
    let (_, text) = text.split_once("## The views\n").unwrap();
    let (text, _) = text.split_once("## Ready-made questions\n").unwrap();
    let mut expected = Vec::new();
    for view in schema["views"].as_array().unwrap() {
        let mut lines = vec![
            format!("`{}`", view["name"].as_str().unwrap()),
            String::new(),
            view["about"].as_str().unwrap().to_owned(),
            String::new(),
            "| column | type | meaning |".to_owned(),
            "| --- | --- | --- |".to_owned(),
        ];
        for column in view["columns"].as_array().unwrap() {
            let [name, kind, about] =
                ["name", "type", "about"].map(|key| column[key].as_str().unwrap());
            lines.push(format!("| `{name}` | {kind} | {about} |"));
        }
        expected.push(lines);
    }
    // The name, the sentence, and the table up to the empty line after it; more may follow.
    let described: Vec<Vec<&str>> = text
        .split("### ")
        .skip(1)
        .map(|part| {
            let table = part.lines().skip(4).take_while(|line| !line.is_empty());
            part.lines().take(4).chain(table).collect()
        })
        .collect();
    assert_eq!(described, expected);
}

fn is_to_be_written() -> bool {
    std::env::var_os("TURNPOINT_DOCUMENTS").is_some_and(|value| value == "overwrite")
}

/// A line is its words: columns are as wide as what is in them today.
fn words(text: &str) -> Vec<Vec<&str>> {
    text.lines().map(|line| line.split_whitespace().collect()).collect()
}

/// The example that the text describes.
fn example() -> Program {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    let root = program.workspace();
    let capture = |seconds_ago: i64, arguments: &[&str]| {
        stamp(&root);
        let mut command = program.command(["capture", "--session"]);
        command.args(arguments);
        command.env("TURNPOINT_TEST_CLOCK_SHIFT_SECONDS", (-seconds_ago).to_string());
        run(&mut command).ok();
    };
    let parser = "pub fn parse() {}\n";
    build(
        &root,
        [
            (".env", file("API_KEY=not-a-real-one\n")),
            (".gitignore", file("*.log\n")),
            ("README.md", file("# app\n")),
            ("debug.log", file("started\n")),
            ("docs/guide.md", file("How to log in.\n")),
            ("recording.bin", file("")),
            ("run.sh", file("#!/bin/sh\n")),
            ("src/main.rs", file("mod parser;\n\nfn main() {}\n")),
            ("src/old_parser.rs", file(parser)),
            ("src/parser.rs", file(parser)),
            ("target/debug/app", file("binary\n")),
            ("tool", executable("#!/bin/sh\nexit 0\n")),
        ],
    );
    fs::File::options()
        .write(true)
        .open(root.join("recording.bin"))
        .unwrap()
        .set_len(9 << 20)
        .unwrap();
    capture(3 * DAY, &["fix-login", "--trigger", "turn-start"]);
    build(
        &root,
        [
            ("src/lexer.rs", file("pub fn lex() {}\n")),
            ("src/parser.rs", file("use crate::lexer;\n\npub fn parse() {}\n")),
        ],
    );
    fs::remove_file(root.join("docs/guide.md")).unwrap();
    capture(3 * DAY - 5 * MINUTE, &["fix-login", "--trigger", "turn-end"]);
    capture(2 * DAY, &["fix-login", "--trigger", "turn-start"]);
    capture(2 * DAY - 2 * MINUTE, &["fix-login", "--trigger", "turn-end"]);
    build(&root, [("README.md", file("# app\n\nNow with a lexer.\n"))]);
    capture(50 * MINUTE, &["fix-login", "--trigger", "turn-start"]);
    build(&root, [("src/parser.rs", file("// A line of the parser.\n".repeat(40)))]);
    fs::remove_file(root.join("src/lexer.rs")).unwrap();
    symlink("parser.rs", root.join("src/lexer.rs")).unwrap();
    fs::set_permissions(root.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    capture(38 * MINUTE, &["fix-login", "--trigger", "turn-end"]);
    build(&root, [("src/main.rs", file("mod lexer;\nmod parser;\n\nfn main() {}\n"))]);
    capture(20 * MINUTE, &["fix-login", "--label", "before the release"]);
    program.run(["pin", "fix-login:6", "--note", "it builds"]).ok();
    build(&root, [("src/cache.rs", file("pub struct Cache;\n"))]);
    capture(10 * MINUTE, &["try-cache"]);
    program.run(["restore", "fix-login:1", "--session", "fix-login", "--yes"]).ok();
    program
}

/// Gives every file the same stamp: a stamp of the present would change the length of what is stored.
fn stamp(directory: &Path) {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000);
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            stamp(&entry.path());
        } else if kind.is_file() {
            fs::File::options()
                .append(true)
                .open(entry.path())
                .unwrap()
                .set_modified(time)
                .unwrap();
        }
    }
}
