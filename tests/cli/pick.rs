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
    typed_to("restore", program, columns, keys, answer, more)
}

fn typed_to(
    verb: &str,
    program: &Program,
    columns: &str,
    keys: &[&str],
    answer: &str,
    more: &[&str],
) -> Run {
    let mut talk: Vec<[&str; 2]> = keys.iter().map(|key| ["filter:", *key]).collect();
    if !answer.is_empty() {
        talk.push(["[y/N]", answer]);
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/prompt.py");
    let mut command = program.other("python3");
    command.arg(script).args([columns, &serde_json::to_string(&talk).unwrap()]);
    command.arg(env!("CARGO_BIN_EXE_turnpoint")).arg(verb).args(more);
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
    for (keys, code) in [
        (&["q"][..], 3),
        (&["x", "q", "\u{7f}", "\u{7f}", "q"], 3),
        (&["\u{1b}"], 3),
        (&["\u{4}"], 3),
        (&["z", "z", "\r", "\u{3}"], 130),
    ] {
        let run = typed(&program, "80", keys, "", &[]).exits(code);
        assert_eq!(content(&program), "now now", "{run:?}");
    }
    assert_eq!(program.run(["list", "--json"]).ok().json(), before);
}

#[test]
fn it_fits_the_terminal_and_shows_what_there_is() {
    let program = program();
    let wide = typed(&program, "80", &["q"], "", &[]).exits(3).stdout;
    let lines: Vec<&str> = wide.lines().take(7).collect();
    assert_eq!(lines[0], "Restore which checkpoint?");
    assert!(lines[1].starts_with("Enter shows its plan, q or Esc leaves"), "{wide}");
    let words = |at: usize| lines[at].split_whitespace().collect::<Vec<_>>();
    assert_eq!(words(2), ["CHECKPOINT", "AGE", "CHANGED", "TRIGGER", "LABEL,", "OR", "[DETAILS]"]);
    assert!(lines[3].starts_with("> t:0 ") && lines[3].contains(" manual "), "{wide}");
    let at_changed = |line: usize| {
        let changed = lines[2].find("CHANGED").unwrap();
        lines[line].split_at(changed).1.split_whitespace().next().unwrap()
    };
    assert!(lines[4].starts_with("  s:2 ") && at_changed(4) == "1", "{wide}");
    assert!(lines[6].contains("first of all"), "{wide}");
    // No colors were wanted: only the cursor is moved.
    assert!(!wide.contains("\u{1b}[1m"), "{wide:?}");
    let narrow = typed(&program, "40", &["q"], "", &[]).exits(3).stdout;
    for line in narrow.lines().take(8) {
        assert!(line.chars().count() < 40, "{narrow}");
    }
    assert!(narrow.contains('…'), "{narrow}");
    let header: Vec<&str> = narrow.lines().nth(2).unwrap().split_whitespace().collect();
    assert_eq!(header[..2], ["CHECKPOINT", "TRIGGER"]);
    assert!(header[2].starts_with("LAB"), "{narrow}");
    assert!(narrow.lines().nth(3).unwrap().contains(" manual"), "{narrow}");
    assert!(narrow.lines().nth(6).unwrap().contains("first of all"), "{narrow}");
    // What can be pressed is not cut.
    assert_eq!(narrow.lines().nth(1).unwrap().trim_end(), "Enter: plan, q: leave, type: filter");
    // What a restore saved says before which one that was.
    program.run(["restore", "s:1", "--session", "saved", "--yes"]).ok();
    let saved = typed(&program, "80", &["q"], "", &["--session", "saved"]).exits(3).stdout;
    assert!(saved.lines().nth(3).unwrap().ends_with("[before a restore of s:1]"), "{saved}");
}

/// Turns of `s`, the last of which has no end.
fn turns() -> Program {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    for (content, trigger, label) in [
        ("zero", "turn-start", "the first task"),
        ("one", "turn-end", "-"),
        ("two", "turn-start", "the second task"),
        ("three", "manual", "-"),
    ] {
        build(&program.workspace(), [("a.txt", file(content)), ("b.txt", file("b"))]);
        let capture = ["capture", "--session", "s", "--trigger", trigger, "--label", label];
        program.run(capture).ok();
    }
    program
}

#[test]
fn rewind_without_a_number_shows_the_turns() {
    let program = turns();
    let wide = typed_to("rewind", &program, "80", &["q"], "", &[]).exits(3).stdout;
    let lines: Vec<&str> = wide.lines().take(6).collect();
    assert_eq!(lines[0], "Rewind to the start of which turn?");
    let words = |at: usize| lines[at].split_whitespace().collect::<Vec<_>>();
    assert_eq!(
        words(2),
        ["TURN", "GOES", "BACK", "TO", "AGE", "CHANGED", "ITS", "LABEL,", "OR", "[CHANGED]"]
    );
    assert_eq!((&words(3)[..3], &words(4)[..2]), (&[">", "1", "s:2"][..], &["2", "s:0"][..]));
    assert!(
        lines[3].ends_with("the second task") && lines[4].ends_with("the first task"),
        "{wide}"
    );
    let at_changed = |line: usize| {
        let changed = lines[2].find("CHANGED").unwrap();
        lines[line].split_at(changed).1.split_whitespace().next().unwrap()
    };
    assert_eq!((at_changed(3), at_changed(4)), ("1", "1"), "{wide}");
    // Without a label there is what was changed in it.
    program.run(["capture", "--session", "u", "--trigger", "turn-start"]).ok();
    build(&program.workspace(), [("new.txt", file("n")), ("b.txt", file("other"))]);
    program.run(["capture", "--session", "u", "--trigger", "turn-end"]).ok();
    let of_u = typed_to("rewind", &program, "80", &["q"], "", &["--session", "u"]).exits(3).stdout;
    assert!(of_u.lines().nth(3).unwrap().ends_with("  [b.txt, new.txt]"), "{of_u}");
    build(&program.workspace(), [("b.txt", file("b"))]);
    fs::remove_file(program.workspace().join("new.txt")).unwrap();
    program.run(["prune", "--session", "u", "--delete", "--yes"]).ok();
    assert_eq!(lines[5], "filter: ");
    let narrow = typed_to("rewind", &program, "40", &["q"], "", &[]).exits(3).stdout;
    assert!(narrow.lines().take(6).all(|line| line.chars().count() < 40), "{narrow}");
    assert_eq!(content(&program), "three b");
    // What is typed is the number of the turn.
    let chosen = typed_to("rewind", &program, "80", &["2", "\r"], "y\n", &[]).ok();
    assert!(
        chosen.stdout.contains("rewind to s:0, the start of the last turn but one"),
        "{chosen:?}"
    );
    assert_eq!(content(&program), "zero b");
    // Nobody is asked who named one, or said yes beforehand.
    let named = typed_to("rewind", &program, "80", &[], "y\n", &["1"]).ok();
    assert!(!named.stdout.contains("filter:"), "{named:?}");
    assert_eq!(content(&program), "two b");
    build(&program.workspace(), [("a.txt", file("now"))]);
    typed_to("rewind", &program, "80", &[], "", &["--yes"]).ok();
    assert_eq!(content(&program), "two b");
    build(&program.workspace(), [("a.txt", file("now"))]);
    program.run(["rewind", "--yes"]).ok();
    assert_eq!(content(&program), "two b");
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
