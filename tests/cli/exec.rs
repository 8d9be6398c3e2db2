//! `exec`: a command between two checkpoints.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::program::{Program, run};
use crate::support::tree::{build, file};

fn program() -> Program {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    build(&program.workspace(), [("a.txt", file("one\n")), ("src/b.txt", file("two\n"))]);
    program
}

/// `exec ... -- sh -c SCRIPT`.
fn script(options: &[&str], script: &str) -> Vec<String> {
    let words = [&["exec"], options, &["--", "sh", "-c", script]].concat();
    words.into_iter().map(str::to_owned).collect()
}

/// With the signals as they are by default, whatever whoever started the tests ignores, as `nohup` does.
fn heeding(program: &Program, words: Vec<String>) -> Command {
    program.under(&["env", "--default-signal=HUP,INT,QUIT,TERM"], words)
}

fn triggers(program: &Program) -> Vec<String> {
    let listed = program.run(["list", "--json"]).ok().json();
    let checkpoints = listed["checkpoints"].as_array().unwrap().clone();
    checkpoints.iter().map(|it| it["trigger"].as_str().unwrap().to_owned()).collect()
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap()
}

#[test]
fn streams_and_status_are_the_commands_own() {
    let program = program();
    let words = script(&["--session", "s"], "cat; echo aside >&2; echo new > a.txt; exit 7");
    let mut child = program
        .command(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"what is typed\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(7), "{stderr}");
    assert_eq!(output.stdout, b"what is typed\n");
    assert!(stderr.starts_with("aside\n"), "{stderr}");
    assert!(stderr.contains("sh, ended with 7: 1 modified between s:0 and s:1"), "{stderr}");
    assert!(stderr.contains("  M  a.txt\n"), "{stderr}");
    assert_eq!(triggers(&program), ["exec", "exec"]);
    let content = |id: &str| program.run(["cat", id, "a.txt"]).ok().stdout;
    assert_eq!((content("s:0"), content("s:1")), ("one\n".into(), "new\n".into()));
}

#[test]
fn a_command_that_a_signal_ends_gives_128_and_its_number() {
    let program = program();
    program.run(script(&[], "kill -TERM $$")).exits(128 + 15);
    program.run(script(&[], "kill -KILL $$")).exits(128 + 9);
    assert_eq!(triggers(&program).len(), 4);
}

#[test]
fn what_is_to_end_the_program_reaches_the_command_and_its_end_is_waited_for() {
    let program = program();
    // To the program alone, and not to its group.
    for (signal, name) in
        [(Signal::INT, "INT"), (Signal::QUIT, "QUIT"), (Signal::TERM, "TERM"), (Signal::HUP, "HUP")]
    {
        // The file is written only after the signal.
        let waiting = format!(
            "trap 'echo {name} > got; exit 9' {name}; echo ready; while :; do sleep 0.05; done"
        );
        let mut child =
            heeding(&program, script(&[], &waiting)).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        kill_process(pid(&child), signal).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(9), "{name}");
        assert_eq!(program.run(["cat", "latest", "got"]).ok().stdout, format!("{name}\n"));
    }
}

/// The program stands still until the command has the key's signal: if it passed that on, it would come as a
/// second one, and before the one that the command sends.
#[test]
fn a_key_reaches_the_command_once_and_ends_the_program_never() {
    let program = program();
    let waiting = "n=0; trap 'n=$((n+1))' INT; trap 'echo counted $n; exit 5' TERM; \
                   kill -STOP $PPID; echo ready; while ! read line; do :; done; \
                   kill -CONT $PPID; kill -TERM $PPID; while :; do sleep 0.05; done";
    let terminal = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/terminal.py");
    let mut command = program.other("python3");
    command.arg(terminal).args(["80", "ready", "\u{3}go\n", "true"]);
    command.arg(env!("CARGO_BIN_EXE_turnpoint")).args(script(&[], waiting));
    let shown = run(&mut command).exits(5).stdout;
    assert!(shown.contains("counted 1\n"), "{shown}");
    assert_eq!(triggers(&program), ["exec", "exec"]);
}

#[test]
fn a_signal_that_was_ignored_stays_ignored_for_the_command() {
    let program = program();
    let words = script(&[], "kill -HUP $$; kill -INT $$; echo alive");
    let outer = ["sh", "-c", "trap '' HUP INT; exec \"$@\"", "sh"];
    assert_eq!(run(&mut program.under(&outer, words)).ok().stdout, "alive\n");
    // And where it was not, it is not.
    run(&mut heeding(&program, script(&[], "kill -HUP $$; echo alive"))).exits(128 + 1);
}

#[test]
fn a_command_that_cannot_be_run_is_told_as_a_shell_tells_it() {
    let program = program();
    let plain = program.workspace().join("plain");
    fs::write(&plain, "no program").unwrap();
    let run = program.run(["exec", "--", "./plain"]).exits(126);
    assert!(run.stderr.contains("error: cannot run ./plain"), "{}", run.stderr);
    fs::set_permissions(&plain, fs::Permissions::from_mode(0o755)).unwrap();
    program.run(["exec", "--", "./plain"]).exits(126);
    let run = program.run(["exec", "--", "no-such-command"]).exits(127);
    assert!(run.stderr.contains("error: cannot run no-such-command"), "{}", run.stderr);
    program.run(["exec", "--"]).exits(2);
    // The checkpoint before it was made by then; there is none after it.
    assert_eq!(triggers(&program).len(), 3);
}

#[test]
fn without_a_checkpoint_before_it_the_command_is_not_started() {
    let program = program();
    fs::create_dir_all(program.store()).unwrap();
    fs::write(program.store().join("format.json"), r#"{"turnpoint_store":99}"#).unwrap();
    let run = program.run(script(&[], "echo ran > ran")).exits(125);
    assert!(run.stderr.contains("error: the store"), "{}", run.stderr);
    assert!(!program.workspace().join("ran").exists());
}

#[test]
fn without_a_checkpoint_after_it_the_status_is_the_commands_all_the_same() {
    let program = program();
    let store = program.store().display().to_string();
    for (status, session) in [(0, "s"), (3, "t")] {
        let breaking = format!(
            "mv {store}/format.json saved; echo '{{\"turnpoint_store\":99}}' > \
             {store}/format.json; exit {status}"
        );
        let options = ["--session", session, "--report", "../report.json"];
        let run = program.run(script(&options, &breaking)).exits(status);
        let file = program.root().join("report.json");
        let report: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        fs::remove_file(file).unwrap();
        let null = serde_json::Value::Null;
        assert_eq!((&report["after"], report.get("changes")), (&null, Some(&null)));
        assert!(run.stderr.contains("is in no checkpoint"), "{}", run.stderr);
        let saved = program.workspace().join("saved");
        fs::rename(saved, program.store().join("format.json")).unwrap();
        let listed = program.run(["list", "--session", session, "--json"]).ok().json();
        assert_eq!(listed["checkpoints"].as_array().unwrap().len(), 1);
    }
}

#[test]
fn the_report_says_what_happened() {
    let program = program();
    let options = ["--session", "s", "--label", "l", "--report", "../report.json", "-q"];
    let run = program.run(script(&options, "mv a.txt c.txt; exit 4")).exits(4);
    assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("", ""));
    let text = fs::read_to_string(program.root().join("report.json")).unwrap();
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["schema"], 1);
    assert_eq!((&report["status"], &report["signal"]), (&4.into(), &serde_json::Value::Null));
    assert_eq!(report["command"][2]["text"], "mv a.txt c.txt; exit 4");
    assert_eq!(report["before"], serde_json::json!({ "session": "s", "seq": 0 }));
    assert_eq!(report["after"], serde_json::json!({ "session": "s", "seq": 1 }));
    assert_eq!(report["changes"][0]["change"], "renamed");
    assert_eq!(report["changes"][0]["from"], "a.txt");
    let listed = program.run(["list", "--session", "s", "--json"]).ok().json();
    assert_eq!(listed["checkpoints"][0]["label"], "l");
    // Standard output is the command's.
    let run = program.run(["exec", "--json", "--", "true"]).exits(2);
    assert!(run.stderr.contains("--report FILE"), "{}", run.stderr);
    // What somebody wrote is not written over, nor through a link, and the command does not run.
    let link = program.root().join("link.json");
    std::os::unix::fs::symlink(program.workspace().join("c.txt"), &link).unwrap();
    for place in [program.root().join("report.json"), link] {
        let options = ["--report", place.to_str().unwrap()];
        let refused = program.run(script(&options, "echo ran > ran")).exits(3);
        assert!(refused.stderr.contains("is there already"), "{}", refused.stderr);
    }
    assert_eq!(fs::read_to_string(program.root().join("report.json")).unwrap(), text);
    assert_eq!(fs::read_to_string(program.workspace().join("c.txt")).unwrap(), "one\n");
    assert!(!program.workspace().join("ran").exists());
    // A report that cannot be written is told, and changes nothing.
    let run = program.run(["exec", "--report", "/no/such/place", "--", "true"]).ok();
    assert!(run.stderr.contains("cannot write /no/such/place"), "{}", run.stderr);
}

#[test]
fn the_command_runs_where_one_stands() {
    let program = program();
    let below = program.workspace().join("src");
    let at = run(program.command(["exec", "--", "pwd"]).current_dir(&below)).ok();
    assert_eq!(at.stdout.trim_end(), below.to_str().unwrap());
    let at = program.run(["exec", "-C", "src", "--", "pwd"]).ok();
    assert_eq!(at.stdout.trim_end(), below.to_str().unwrap());
}

/// A note is not worth waiting for.
#[test]
fn a_git_that_does_not_say_what_is_changed_holds_up_no_run() {
    let program = crate::worktree::program();
    let (came_to_end, begun) = (program.root().join("end"), program.root().join("begun"));
    let script = format!("echo > {}; sleep 60; echo > {}", begun.display(), came_to_end.display());
    let git = crate::worktree::git_that(&program, "*untracked-files=normal*", &script);
    let words = ["exec", "--worktree", "--", "sh", "-c", "echo made > made"];
    let made = run(program.command(words).env("PATH", &git)).ok();
    assert!(begun.exists() && !came_to_end.exists());
    assert!(!made.stderr.contains("not committed here"), "{}", made.stderr);
    let (_, path) = crate::worktree::only(&program);
    assert_eq!(fs::read_to_string(path.join("made")).unwrap(), "made\n");
    // One that cannot be made.
    fs::remove_dir_all(program.workspace().join(".turnpoint")).unwrap();
    fs::write(program.workspace().join(".turnpoint"), "").unwrap();
    run(program.command(words).env("PATH", git)).exits(3);
    assert!(!came_to_end.exists());
}
