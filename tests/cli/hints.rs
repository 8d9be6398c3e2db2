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
    // Until that state of the index can be relied upon.
    std::thread::sleep(std::time::Duration::from_millis(120));
    program.run(["capture", "--session", "s"]).ok();
    assert_eq!(rest("s:0"), 14, "with .git 1,015 names are not held, and 1,001 are named");

    fs::write(program.workspace().join("d/b.txt"), "changed").unwrap();
    let run = with_list(&program, b"d/b.txt\n", &["-", "--json"]).ok();
    assert_eq!(run.json()["coverage"], json!({ "hinted": ["d"] }));
    assert_eq!(rest("s:1"), 14);
    let run = with_list(&program, b"d/b.txt\n", &["-", "--json", "--if-changed"]).ok();
    assert_eq!(run.json()["created"], json!(false), "{}", run.stdout);
}

/// What git tracks although rules leave it out is held by what git says of all paths, and the walk by a list
/// sees few of them.
#[test]
fn what_git_tracks_in_a_directory_that_is_left_out_stays_held() {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    let files = ["p/target/f", "p/target/s/a", "p/target/s/t/b", "r/dist/f"];
    build(&program.workspace(), files.map(|path| (path, file("1"))));
    for number in 0..40 {
        build(&program.workspace(), [(&*format!("q{number}/f"), file("q"))]);
    }
    let git = |arguments: &[&str]| {
        let mut command = program.other("git");
        run(command.current_dir(program.workspace()).args(arguments)).ok();
    };
    git(&["init", "-q"]);
    git(&["add", "-Af"]);
    let capture = || {
        std::thread::sleep(std::time::Duration::from_millis(120));
        program.run(["capture", "--session", "s"]).ok();
    };
    let held = |path: &str| program.run(["cat", "s:latest", path]);
    capture();
    capture();
    // The index changes, and the list that follows from it is made by a walk of few paths.
    fs::write(program.workspace().join("g"), "1").unwrap();
    git(&["add", "g"]);
    // Until that state of the index can be relied upon.
    std::thread::sleep(std::time::Duration::from_millis(120));
    with_list(&program, b"g", &["-"]).ok();
    fs::write(program.workspace().join("r/dist/f"), "2").unwrap();
    with_list(&program, b"r/dist/f", &["-"]).ok();
    assert_eq!(held("r/dist/f").ok().stdout, "2");
    capture();
    fs::write(program.workspace().join("p/target/f"), "9").unwrap();
    capture();
    for (path, content) in [("p/target/f", "9"), ("r/dist/f", "2"), ("p/target/s/t/b", "1")] {
        assert_eq!(held(path).ok().stdout, content, "{path}");
    }
    // What git does not track there is left out, wherever the list leads to it.
    for path in ["p/target/u", "p/target/s/u", "p/target/s/t/u", "p/target/s/x/y"] {
        build(&program.workspace(), [(path, file("untracked"))]);
        with_list(&program, path.as_bytes(), &["-"]).ok();
        held(path).exits(2);
        assert_eq!(held("p/target/s/a").ok().stdout, "1", "{path}");
    }
}

#[test]
fn a_directory_above_the_workspace_is_everything_in_it() {
    let program = captured();
    for above in ["..", "/", "../.."] {
        fs::write(program.workspace().join("d/b.txt"), above).unwrap();
        let run = with_list(&program, above.as_bytes(), &["-"]).ok();
        assert_eq!(content(&program, "s:latest"), above);
        assert!(!run.stderr.contains("outside"), "{}", run.stderr);
    }
}
