//! `capture --changed-from`.

use std::fs;

use serde_json::json;

use crate::support::program::{Program, Run, run};
use crate::support::tree::{build, file};

fn captured() -> Program {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    build(&program.workspace(), [("a.txt", file("one")), ("d/b.txt", file("two"))]);
    program.run(["capture", "--session", "s"]).ok();
    fs::write(program.workspace().join("d/b.txt"), "changed").unwrap();
    program
}

/// Captures with a list on standard input.
fn with_list(program: &Program, list: &[u8], arguments: &[&str]) -> Run {
    let file = program.root().join("input");
    fs::write(&file, list).unwrap();
    let mut command = program.other("sh");
    command.args(["-c", r#"list="$0"; exec "$@" < "$list""#]).arg(file);
    command.arg(env!("CARGO_BIN_EXE_turnpoint"));
    command.args(["capture", "--session", "s", "--changed-from"]).args(arguments);
    run(&mut command)
}

fn content(program: &Program, checkpoint: &str) -> String {
    program.run(["cat", checkpoint, "d/b.txt"]).ok().stdout
}

#[test]
fn a_list_may_come_from_standard_input_or_a_file_with_either_end_of_line() {
    let program = captured();
    let absolute = program.workspace().join("d/b.txt");
    let outside = format!("{}\n/etc/passwd\n../elsewhere\n\n", absolute.display());
    let run = with_list(&program, outside.as_bytes(), &["-"]).ok();
    assert!(run.stdout.contains("looked at 1 directory as told"), "{}", run.stdout);
    assert!(run.stderr.contains("2 paths of the list lie outside of"), "{}", run.stderr);
    assert_eq!(content(&program, "s:1"), "changed");

    fs::write(program.workspace().join("d/b.txt"), "again").unwrap();
    fs::write(program.workspace().join("d/new\nline"), "odd").unwrap();
    fs::write(program.root().join("list"), b"d/b.txt\0d/new\nline\0").unwrap();
    let list = program.root().join("list");
    let run = with_list(&program, b"", &[list.to_str().unwrap(), "--json"]).ok();
    assert_eq!(run.json()["coverage"], json!({ "hinted": ["d"] }));
    assert_eq!(content(&program, "s:2"), "again");
    assert_eq!(program.run(["cat", "s:2", "d/new\nline"]).ok().stdout, "odd");
    assert_eq!(
        program.run(["show", "s:2", "--json"]).ok().json()["coverage"],
        json!({ "hinted": ["d"] })
    );

    let run = with_list(&program, b"", &["-", "--json"]).ok();
    assert_eq!(run.json()["coverage"], json!({ "hinted": [] }), "nothing has changed");
    let run = program.run(["capture", "--session", "s", "--json"]).ok();
    assert_eq!(run.json()["coverage"], json!("full"));
}

#[test]
fn a_list_that_cannot_be_read_or_understood_captures_nothing() {
    let program = captured();
    let run = with_list(&program, b"", &["nowhere"]).exits(1);
    assert!(run.stderr.contains("nowhere"), "{}", run.stderr);
    let long = format!("d/{}", "x".repeat(40_000)).into_bytes();
    let run = with_list(&program, &long, &["-"]).exits(2);
    assert!(run.stderr.contains("longer than 32768 bytes"), "{}", run.stderr);
    assert_eq!(
        program.run(["list", "--json"]).ok().json()["checkpoints"].as_array().unwrap().len(),
        1
    );
}

/// Where one name stands for others that are not held, it goes on to do so although nobody looks there.
#[test]
fn what_is_counted_as_not_held_goes_on_to_be_counted() {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    let git = |arguments: &[&str]| {
        let mut command = program.other("git");
        run(command.arg("-C").arg(program.workspace()).args(arguments)).ok();
    };
    git(&["init", "-q"]);
    build(&program.workspace(), [(".gitignore", file("*.log\n")), ("d/b.txt", file("two"))]);
    for number in 0..1_015 {
        fs::write(program.workspace().join(format!("{number:04}.log")), "").unwrap();
    }
    git(&["add", "-f", "0500.log", ".gitignore", "d"]);
    let rest = |checkpoint: &str| -> u64 {
        let run = program.run(["ls", checkpoint, "--json"]).ok();
        let entries = run.json()["entries"].as_array().unwrap().clone();
        entries.iter().filter_map(|entry| entry["rest"].as_u64()).sum()
    };
    program.run(["capture", "--session", "s"]).ok();
    assert_eq!(rest("s:0"), 14, "with .git 1,015 names are not held, and 1,001 are named");

    fs::write(program.workspace().join("d/b.txt"), "changed").unwrap();
    let run = with_list(&program, b"d/b.txt\n", &["-", "--json"]).ok();
    assert_eq!(run.json()["coverage"], json!({ "hinted": ["d"] }));
    assert_eq!(rest("s:1"), 14);
    let run = with_list(&program, b"d/b.txt\n", &["-", "--json", "--if-changed"]).ok();
    assert_eq!(run.json()["created"], json!(false), "{}", run.stdout);
}
