//! What happens on a terminal: questions, colors, width, signals.

use std::fs;
use std::path::Path;

use crate::support::program::{Program, Run, run};
use crate::support::tree::{build, file};

fn program() -> Program {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    build(&program.workspace(), [("a.txt", file("one")), ("b.txt", file("two"))]);
    program
        .run(["capture", "--session", "s", "--label", "the state before everything went wrong"])
        .ok();
    program
}

/// Runs on a terminal of `columns` columns. When `[y/N]` is shown, `before` is run and `answer` typed.
fn on_terminal(
    program: &Program,
    columns: &str,
    answer: &str,
    before: &str,
    arguments: &[&str],
) -> Run {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/terminal.py");
    let mut command = program.other("python3");
    let wait_for = if answer.is_empty() { "" } else { "[y/N]" };
    command.arg(script).args([columns, wait_for, answer, before]);
    command.arg(env!("CARGO_BIN_EXE_turnpoint")).args(arguments).env("TERM", "xterm");
    run(&mut command)
}

fn content(program: &Program) -> String {
    fs::read_to_string(program.workspace().join("a.txt")).unwrap()
}

#[test]
fn only_a_yes_is_a_yes() {
    let program = program();
    fs::write(program.workspace().join("a.txt"), "changed").unwrap();
    for answer in ["n\n", "\n", "yea\n", "\u{4}"] {
        let run = on_terminal(&program, "80", answer, "", &["restore", "s", "0"]).exits(3);
        assert!(run.stdout.contains("Overwrite 1? [y/N]"), "{}", run.stdout);
        assert!(run.stdout.contains("nothing was changed"), "{}", run.stdout);
        assert_eq!(content(&program), "changed");
    }
    let run = on_terminal(&program, "80", "y\n", "", &["restore", "s", "0"]).ok();
    assert!(run.stdout.contains("restored s:0"), "{}", run.stdout);
    assert_eq!(content(&program), "one");
    on_terminal(&program, "80", "YES\n", "", &["undo"]).ok();
    assert_eq!(content(&program), "changed");
}

#[test]
fn a_plan_that_no_longer_holds_is_shown_anew_and_refused() {
    let program = program();
    fs::write(program.workspace().join("a.txt"), "changed").unwrap();
    let run =
        on_terminal(&program, "80", "y\n", "echo changed > b.txt", &["restore", "s", "0"]).exits(3);
    assert!(run.stdout.contains("The plan is now:"), "{}", run.stdout);
    assert!(run.stdout.contains("2 to overwrite"), "{}", run.stdout);
    assert_eq!(content(&program), "changed");
}

#[test]
fn nothing_is_locked_while_a_question_waits() {
    let program = program();
    fs::write(program.workspace().join("a.txt"), "changed").unwrap();
    let capture = format!("{} capture --session t", env!("CARGO_BIN_EXE_turnpoint"));
    on_terminal(&program, "80", "y\n", &capture, &["restore", "s", "0"]).ok();
    assert_eq!(content(&program), "one");
    assert!(program.store().join("t/0.json").exists());
}

#[test]
fn a_prune_drops_what_was_shown_and_not_what_became_too_much_meanwhile() {
    let program = program();
    let turn = format!("{} capture --session s", env!("CARGO_BIN_EXE_turnpoint"));
    for number in 0..3 {
        fs::write(program.workspace().join("a.txt"), number.to_string()).unwrap();
        program.run(["capture", "--session", "s"]).ok();
    }
    let seqs = || -> Vec<u64> {
        let listed = program.run(["list", "--session", "s", "--json"]).ok().json();
        let listed = listed["checkpoints"].as_array().unwrap().clone();
        listed.iter().map(|it| it["seq"].as_u64().unwrap()).collect()
    };
    let before = seqs();
    let meanwhile = format!("{turn} && {turn}");
    let run = on_terminal(&program, "80", "y\n", &meanwhile, &["prune", "--keep", "2"]).ok();
    assert!(run.stdout.contains("since this was decided"), "{}", run.stdout);
    let expected: Vec<u64> = (before[before.len() - 2]..=before[before.len() - 1] + 2).collect();
    assert_eq!(seqs(), expected);
}

#[test]
fn a_question_can_be_left_with_ctrl_c() {
    let program = program();
    fs::write(program.workspace().join("a.txt"), "changed").unwrap();
    let restore = ["restore", "s", "0", "--color", "never"];
    let run = on_terminal(&program, "80", "\u{3}", "", &restore).exits(130);
    // The terminal shows the key; what is told begins a line.
    let told = run.stdout.split_once("[y/N]").unwrap().1;
    assert_eq!(
        told.trim_start_matches(' '),
        "^C\nerror: stopped; nothing was changed\n",
        "{told:?}"
    );
    assert_eq!(content(&program), "changed");
    program.run(["restore", "s", "0", "--yes"]).ok();
}

#[test]
fn a_list_fits_the_terminal_and_loses_nothing() {
    let program = program();
    for columns in ["40", "80"] {
        let run = on_terminal(&program, columns, "", "", &["list", "--color", "never"]).ok();
        let width: usize = columns.parse().unwrap();
        let long = run.stdout.lines().find(|line| line.chars().count() > width);
        // The path of the workspace is one word.
        assert!(long.is_none_or(|line| line.starts_with('/')), "{}", run.stdout);
        let words: Vec<&str> = run.stdout.split_whitespace().collect();
        assert!(words.join(" ").contains("the state before everything went wrong"), "{words:?}");
    }
}

#[test]
fn colors_are_for_terminals() {
    let program = program();
    let colored = |run: Run| run.stdout.contains('\u{1b}') || run.stderr.contains('\u{1b}');
    assert!(colored(on_terminal(&program, "80", "", "", &["list"]).ok()));
    assert!(!colored(on_terminal(&program, "80", "", "", &["list", "--color", "never"]).ok()));
    assert!(!colored(program.run(["list"]).ok()));
    assert!(colored(program.run(["list", "--color", "always"]).ok()));
    assert!(!colored(program.run(["show", "x"]).exits(2)));
    assert!(colored(program.run(["show", "x", "--color=always"]).exits(2)));
}

/// As [`on_terminal`], with a pager.
fn paged(program: &Program, columns: &str, pager: &str, arguments: &[&str]) -> Run {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/terminal.py");
    let mut command = program.other("python3");
    command.arg(script).args([columns, "", "", ""]);
    command.arg(env!("CARGO_BIN_EXE_turnpoint")).args(arguments);
    run(command.env("TERM", "xterm").env("TURNPOINT_PAGER", pager).env("PAGER", "false"))
}

#[test]
fn a_comparison_is_shown_with_a_pager_in_color_and_escaped() {
    let program = program();
    fs::write(program.workspace().join("a.txt"), "one\ntwo\r\n\x1b[2J\n").unwrap();
    fs::write(program.workspace().join("c.txt"), "new\n").unwrap();
    let diff = ["diff", "s", "0", "-p"];
    let shown = paged(&program, "80", "sed 's/^/> /'", &diff).ok().stdout;
    assert!(shown.lines().all(|line| line.starts_with("> ")), "{shown}");
    assert!(shown.contains("> \u{1b}[32m+one\u{1b}[0m\n"), "{shown:?}");
    assert!(shown.contains("+two\\r\u{1b}[0m\n> \u{1b}[32m+\\u{1b}[2J\u{1b}[0m\n"), "{shown:?}");
    // It stops reading: that is no failure, and nothing is left behind.
    assert_eq!(paged(&program, "80", "true", &diff).ok().stdout, "");
    for pager in ["", "cat"] {
        let plain = paged(&program, "80", pager, &[&diff[..], &["--color=never"]].concat()).ok();
        assert!(plain.stdout.starts_with("diff --git a/a.txt b/a.txt\n"), "{}", plain.stdout);
    }
    let not = paged(&program, "80", "sed 's/^/> /'", &[&diff[..], &["--no-pager"]].concat()).ok();
    assert!(!not.stdout.contains("> "), "{}", not.stdout);
}

/// As [`paged`], with keys that are typed when something is shown.
fn paged_and_typed(program: &Program, pager: &str, talk: &str, arguments: &[&str]) -> Run {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/prompt.py");
    let mut command = program.other("python3");
    command.arg(script).args(["80", talk, env!("CARGO_BIN_EXE_turnpoint")]).args(arguments);
    run(command.env("TERM", "xterm").env("TURNPOINT_PAGER", pager))
}

#[test]
fn ctrl_c_in_a_pager_is_the_pagers() {
    let program = program();
    fs::write(program.workspace().join("a.txt"), "changed\n").unwrap();
    // A signal may end a `read`, or may not.
    let pager = "cat > ../shown; trap 'echo seen' INT; echo ready; \
                 until read answer < /dev/tty; do :; done; echo ended $answer";
    let talk = r#"[["ready", "\u0003"], ["seen", "\u0003"], ["seen", "q\n"]]"#;
    let run = paged_and_typed(&program, pager, talk, &["diff", "s", "0", "-p"]).ok();
    assert!(run.stdout.contains("ended q"), "{run:?}");
    let shown = fs::read_to_string(program.root().join("shown")).unwrap();
    assert!(shown.contains("changed"), "{shown}");
}

#[test]
fn a_warning_waits_until_the_pager_has_ended() {
    let program = program();
    fs::write(program.workspace().join("a.txt"), "changed\n").unwrap();
    let listed = program.run(["ls", "s:0", "a.txt", "--json"]).ok().json();
    let hash = listed["entries"][0]["hash"].as_str().unwrap().to_owned();
    fs::remove_file(program.store().join("blobs").join(hash.split_at(2).0).join(&hash)).unwrap();
    // It goes on when the program has printed everything.
    let pager = "cat; echo the pager has ended";
    let run = paged(&program, "80", pager, &["diff", "s", "0", "-p"]).exits(4);
    let at = |text: &str| run.stdout.find(text).unwrap_or_else(|| panic!("{text}: {run:?}"));
    assert!(at("warning:") > at("the pager has ended"), "{run:?}");
}

#[test]
fn a_comparison_fits_the_terminal() {
    let program = program();
    let long = format!("src/{}/file.txt", "a-rather-long-directory".repeat(2));
    build(&program.workspace(), [("a.txt", file("1\n".repeat(300))), (&long, file("new\n"))]);
    program.run(["capture", "--session", "s"]).ok();
    for columns in ["40", "80"] {
        let width: usize = columns.parse().unwrap();
        for form in [
            &["diff", "s", "0"][..],
            &["diff", "s", "0", "--stat"],
            &["log", "."],
            &["find", "file.txt"],
        ] {
            let run = paged(&program, columns, "", &[form, &["--color", "never"]].concat()).ok();
            // A path is one word.
            let is_long = |line: &&str| line.chars().count() > width && !line.contains('/');
            assert_eq!(run.stdout.lines().find(is_long), None, "{}", run.stdout);
            assert!(run.stdout.contains(&long), "{}", run.stdout);
        }
    }
}

#[test]
fn a_refusal_fits_the_terminal_and_its_commands_are_in_one_piece() {
    let program = program();
    for content in ["two", "three"] {
        fs::write(program.workspace().join("a.txt"), content).unwrap();
        fs::write(program.workspace().join("new.txt"), "new").unwrap();
        program.run(["capture", "--session", "s"]).ok();
    }
    // With a place that makes them long.
    let root = fs::canonicalize(program.workspace()).unwrap();
    let revert = ["-C", root.to_str().unwrap(), "revert", "s:1", "--yes", "--color", "never"];
    let shown = on_terminal(&program, "40", "", "", &revert).exits(3).stdout;
    let is_long = |line: &&str| line.chars().count() > 40 && !line.contains('`');
    assert_eq!(shown.lines().find(is_long), None, "{shown}");
    assert!(shown.contains("\n  a.txt: the same lines were changed\n      since, or"), "{shown}");
    let diff = format!("`turnpoint diff -C {} s:0 s:1 -p -- a.txt`", root.display());
    let revert = format!("`turnpoint revert -C {} s:1 new.txt`", root.display());
    for command in [diff, revert] {
        assert!(shown.lines().any(|line| line.contains(&command)), "{shown}");
    }
}

#[test]
fn an_archive_is_nothing_for_a_terminal() {
    let run = on_terminal(&program(), "80", "", "", &["export", "s:0", "--tar", "-"]).exits(2);
    assert!(run.stdout.contains("an archive is nothing for a terminal"), "{}", run.stdout);
    assert!(!run.stdout.contains("one"), "{}", run.stdout);
}
