//! `turnpoint restore` without a checkpoint, on a terminal.

use std::fs;
use std::path::Path;

use crate::support::program::{Program, Run, run};
use crate::support::tree::{build, file};

/// s:0 to s:2, and t:0, whose label is long; the workspace holds none of them now.
fn program() -> Program {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    for (session, content, label) in [
        ("s", "zero", "first of all"),
        ("s", "one", "before the refactor"),
        ("s", "two", "queue works"),
        ("t", "other", "a label that is a good deal longer than forty columns are wide"),
    ] {
        build(&program.workspace(), [("a.txt", file(content)), ("b.txt", file("b"))]);
        program.run(["capture", "--session", session, "--label", label]).ok();
    }
    build(&program.workspace(), [("a.txt", file("now")), ("b.txt", file("now"))]);
    program
}

/// Types each of `keys` when the list has been drawn anew, then answers the question, if one comes.
fn typed(program: &Program, columns: &str, keys: &[&str], answer: &str, more: &[&str]) -> Run {
    let mut talk: Vec<[&str; 2]> = keys.iter().map(|key| ["filter:", *key]).collect();
    if !answer.is_empty() {
        talk.push(["[y/N]", answer]);
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/prompt.py");
    let mut command = program.other("python3");
    command.arg(script).args([columns, &serde_json::to_string(&talk).unwrap()]);
    command.arg(env!("CARGO_BIN_EXE_turnpoint")).arg("restore").args(more);
    run(command.env("TERM", "xterm").env("NO_COLOR", "1"))
}

fn content(program: &Program) -> String {
    let read = |name| fs::read_to_string(program.workspace().join(name)).unwrap();
    format!("{} {}", read("a.txt"), read("b.txt"))
}

const DOWN: &str = "\u{1b}[B";
const UP: &str = "\u{1b}[A";

#[test]
fn what_is_chosen_is_shown_and_asked_for_as_always() {
    let program = program();
    // Those that were not made by a restore before: m, a, n.
    for (keys, answer, more, expected, code) in [
        (&["m", "a", "n", "\r"][..], "y\n", &[][..], "other b", 0),
        (&["m", "a", "n", DOWN, DOWN, UP, "\r"], "y\n", &[], "two b", 0),
        (&["r", "e", "f", "a", "\r"], "y\n", &[], "one b", 0),
        (&["x", "\u{7f}", "0", UP, DOWN, DOWN, DOWN, DOWN, DOWN, "\r"], "y\n", &[], "zero b", 0),
        (&["\r"], "y\n", &["--session", "s", "--", "a.txt"], "two now", 0),
        (&["m", "a", "n", "\r"], "n\n", &[], "now now", 3),
    ] {
        build(&program.workspace(), [("a.txt", file("now")), ("b.txt", file("now"))]);
        let run = typed(&program, "80", keys, answer, more).exits(code);
        assert_eq!(content(&program), expected, "{keys:?} {run:?}");
        assert!(run.stdout.contains("The present state is saved first"), "{run:?}");
    }
}

#[test]
fn whoever_leaves_leaves_everything_as_it_is() {
    let program = program();
    let before = program.run(["list", "--json"]).ok().json();
    for (keys, code) in
        [(&["q"][..], 3), (&["\u{1b}"], 3), (&["\u{4}"], 3), (&["z", "z", "\r", "\u{3}"], 130)]
    {
        let run = typed(&program, "80", keys, "", &[]).exits(code);
        assert_eq!(content(&program), "now now", "{run:?}");
    }
    assert_eq!(program.run(["list", "--json"]).ok().json(), before);
}

#[test]
fn it_fits_the_terminal_and_shows_what_there_is() {
    let program = program();
    let wide = typed(&program, "80", &["q"], "", &[]).exits(3).stdout;
    let lines: Vec<&str> = wide.lines().take(5).collect();
    assert!(lines[1].starts_with("> t:0 ") && lines[1].contains(" manual "), "{wide}");
    assert!(lines[2].starts_with("  s:2 ") && lines[2].contains(" 1 changed "), "{wide}");
    assert!(lines[4].contains("first of all"), "{wide}");
    // No colors were wanted: only the cursor is moved.
    assert!(!wide.contains("\u{1b}[1m"), "{wide:?}");
    let narrow = typed(&program, "40", &["q"], "", &[]).exits(3).stdout;
    for line in narrow.lines().take(6) {
        assert!(line.chars().count() < 40, "{narrow}");
    }
    assert!(narrow.contains('…'), "{narrow}");
}

#[test]
fn without_a_terminal_that_can_show_it_a_checkpoint_must_be_named() {
    let program = program();
    let none = program.run(["restore"]).exits(2);
    assert!(none.stderr.contains("no checkpoint is named"), "{none:?}");
    assert!(none.stderr.contains("`turnpoint list` shows"), "{none:?}");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/terminal.py");
    let mut command = program.other("python3");
    command.arg(script).args(["80", "", "", "", env!("CARGO_BIN_EXE_turnpoint"), "restore"]);
    let dumb = run(command.env("TERM", "dumb")).exits(2);
    assert!(dumb.stdout.contains("cannot show a list"), "{dumb:?}");
    assert!(dumb.stdout.contains("`turnpoint list` shows"), "{dumb:?}");
    assert_eq!(content(&program), "now now");
}
