//! `TURNPOINT_LOG` and `--log-file`.

use std::fs;

use crate::support::program::{Program, Run, run};
use crate::support::tree::{build, file};

fn program() -> Program {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    build(&program.workspace(), [("private-name.txt", file("one")), ("b.txt", file("two"))]);
    program
}

fn logged(program: &Program, level: &str, arguments: &[&str]) -> Run {
    run(program.command(arguments).env("TURNPOINT_LOG", level))
}

/// The words after the time and the level of each line, without what differs from run to run.
fn told(log: &str, level: &str) -> Vec<String> {
    let lines = log.lines().map(|line| {
        let (time, rest) = line.split_once(' ').unwrap();
        assert!(time.len() == 30 && time.ends_with('Z'), "{line}");
        (rest.split_once(' ').unwrap(), line)
    });
    let of_level = lines.filter(|((word, _), _)| *word == level);
    of_level
        .map(|((_, text), line)| {
            let (text, elapsed) = text.split_once(" ms=").unwrap_or((text, "0"));
            assert!(elapsed.parse::<f64>().is_ok_and(|it| it >= 0.0), "{line}");
            text.split(" pid=").next().unwrap().to_owned()
        })
        .collect()
}

#[test]
fn phases_are_told_with_what_was_counted_and_no_names() {
    let program = program();
    let begin = format!("begin version={}", env!("CARGO_PKG_VERSION"));
    let capture = ["capture", "--session", "s", "--label", "private-label", "-q"];
    let run = logged(&program, "info", &capture).ok();
    let told_of_capture = told(&run.stderr, "info");
    assert_eq!(told_of_capture.first(), Some(&begin), "{run:?}");
    assert!(told_of_capture.iter().any(|line| line.starts_with("phase walk items=")), "{run:?}");
    assert!(told_of_capture.contains(&"phase store items=2 bytes=6".to_owned()), "{run:?}");
    assert_eq!(told_of_capture.last().map(String::as_str), Some("end exit=0"), "{run:?}");
    assert_eq!(run.stderr.lines().count(), told_of_capture.len(), "{run:?}");
    for private in ["private", "work", "s:0"] {
        assert!(!run.stderr.contains(private), "{run:?}");
    }
    fs::write(program.workspace().join("b.txt"), "changed").unwrap();
    let run = logged(&program, "info", &["restore", "s", "0", "--yes", "-q"]).ok();
    let phases = told(&run.stderr, "info").join("\n");
    for phase in ["phase walk", "phase plan", "phase stage items=1", "phase apply items=1"] {
        assert!(phases.contains(phase), "{phases}");
    }
    let run = logged(&program, "info", &["gc", "-q"]).ok();
    assert!(run.stderr.contains(" info phase sweep "), "{run:?}");
    let run = logged(&program, "info", &["show", "s", "9"]).exits(2);
    assert!(run.stderr.trim_end().split(" ms=").next().unwrap().ends_with("end exit=2"), "{run:?}");
}

#[test]
fn debug_tells_names_and_notices_too() {
    let program = program();
    program.run(["capture", "--session", "s"]).ok();
    fs::remove_file(program.store().join("index.db")).unwrap();
    let run = logged(&program, "debug", &["capture", "--label", "two words", "-q"]).ok();
    let lines = told(&run.stderr, "debug");
    assert_eq!(lines[0], "arguments `capture` `--label` `two words` `-q`");
    assert!(lines[1].starts_with("notice index-rebuilt: the index was missing"), "{lines:?}");
}

#[test]
fn a_file_gets_one_run_after_the_other() {
    let program = program();
    let log = program.root().join("log");
    for _ in 0..2 {
        let run = program.run(["capture", "-q", "--log-file", "../log"]).ok();
        assert_eq!((run.stdout, run.stderr), (String::new(), String::new()));
    }
    let text = fs::read_to_string(&log).unwrap();
    assert_eq!(text.matches(" info begin ").count(), 2, "{text}");
    assert_eq!(text.matches(" info end exit=0 ").count(), 2, "{text}");
    assert_eq!(told(&text, "debug").len(), 2, "{text}");
    let mut command = program.command(["list", "--log-file", "../log"]);
    run(command.env("TURNPOINT_LOG", "info")).ok();
    let longer = fs::read_to_string(&log).unwrap();
    assert_eq!(told(&longer, "debug").len(), 2, "{longer}");
    program.run(["list", "--log-file", "../none/log"]).exits(1);
}

#[test]
fn a_log_that_captures_would_hold_is_refused() {
    let program = program();
    let inside = program.workspace().join("log");
    fs::create_dir(program.workspace().join("src")).unwrap();
    std::os::unix::fs::symlink(program.workspace(), program.root().join("link")).unwrap();
    // The workspace is not known yet: a log of what makes no checkpoint is nobody's business.
    program.run(["list", "--log-file", "log"]).ok();
    fs::remove_file(&inside).unwrap();
    program.run(["capture", "--log-file", "log"]).exits(3);
    assert!(!program.store().exists());
    program.run(["capture", "-q"]).ok();
    let count =
        || program.run(["list", "--json"]).ok().json()["checkpoints"].as_array().unwrap().len();
    for place in ["log", "src/log", "../link/log", inside.to_str().unwrap()] {
        for command in [&["capture"][..], &["list"], &["gc"], &["exec", "--", "true"]] {
            let arguments = [&command[..1], &["--log-file", place], &command[1..]].concat();
            let refused = program.run(&arguments).exits(3);
            let expected = format!(
                "error: the log would lie in the workspace {}\n",
                program.workspace().display()
            );
            assert!(refused.stderr.starts_with(&expected), "{}", refused.stderr);
        }
    }
    assert!(!inside.exists() && !program.workspace().join("src/log").exists());
    assert_eq!(count(), 1);
    // Relative paths start from the directory that is named.
    let elsewhere = program.root().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    program.run(["list", "-C", elsewhere.to_str().unwrap(), "--log-file", "log"]).ok();
    assert!(elsewhere.join("log").exists() && !inside.exists());
    let mut command = program.command(["list", "-C"]);
    command.arg(program.workspace()).args(["--log-file", "log"]).current_dir(&elsewhere);
    run(&mut command).exits(3);
    assert!(!inside.exists());
}

#[test]
fn without_it_nothing_is_told_and_a_word_that_is_no_level_is_refused() {
    let program = program();
    for level in ["", "info"] {
        let run = logged(&program, level, &["capture", "-q"]).ok();
        assert_eq!(run.stderr.is_empty(), level.is_empty(), "{run:?}");
    }
    assert_eq!(program.run(["capture", "-q"]).ok().stderr, "");
    let run = logged(&program, "loud", &["capture"]).exits(2);
    assert!(run.stderr.contains("neither `info` nor `debug`"), "{run:?}");
}
