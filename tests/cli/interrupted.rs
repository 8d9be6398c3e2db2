//! What the program says and does about operations that were interrupted.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::support::program::{Program, run};
use crate::support::tree::{build, file};

/// A workspace that differs from checkpoint s:0 in three files.
fn program() -> Program {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    let root = program.workspace();
    build(&root, [("a", file("one")), ("b", file("one")), ("c", file("one"))]);
    program.run(["capture", "--session", "s"]).ok();
    build(&root, [("a", file("two")), ("b", file("two")), ("d", file("two"))]);
    fs::remove_file(root.join("c")).unwrap();
    program
}

fn contents(program: &Program) -> [Option<String>; 4] {
    ["a", "b", "c", "d"].map(|name| fs::read_to_string(program.workspace().join(name)).ok())
}

fn before() -> [Option<String>; 4] {
    [Some("two".into()), Some("two".into()), None, Some("two".into())]
}

fn after() -> [Option<String>; 4] {
    [Some("one".into()), Some("one".into()), Some("one".into()), None]
}

/// Kills a restore at one call of `call` after the other until a reading command says `wanted`.
fn killed_restore(call: &str, wanted: &str) -> Program {
    let trace = format!("trace={call}");
    for at in 1..40 {
        let program = program();
        let inject = format!("inject={call}:signal=KILL:when={at}");
        let wrapper = ["strace", "-f", "-o", "/dev/null", "-e", &trace, "-e", &inject];
        let killed = run(&mut program.under(&wrapper, ["restore", "s", "0", "--yes"]));
        if killed.code == 0 {
            break;
        }
        if program.run(["list"]).ok().stderr.contains(wanted) {
            return program;
        }
    }
    panic!("no death of a restore made a reader say: {wanted}");
}

#[test]
fn a_restore_that_died_among_its_changes_is_told_and_can_be_completed() {
    let program = killed_restore("renameat2", "was interrupted while it changed files");
    let shown = program.run(["show", "s", "0", "--json"]).ok().json();
    assert_eq!(shown["notices"][0]["code"], "restore-open");
    let done = program.run(["restore", "--continue"]).ok();
    assert!(done.stdout.contains("the interrupted restore is complete"), "{}", done.stdout);
    assert_eq!(contents(&program), after());
    assert_eq!(program.run(["list"]).ok().stderr, "");
    program.run(["restore", "--continue"]).exits(2);
    program.run(["undo", "--yes"]).ok();
    assert_eq!(contents(&program), before());
}

#[test]
fn a_restore_that_died_among_its_changes_can_be_ended_and_taken_back() {
    let program = killed_restore("renameat2", "was interrupted while it changed files");
    let refused = program.run(["restore", "--abort"]).exits(3);
    assert!(refused.stdout.contains("end the restore of s:0"), "{}", refused.stdout);
    let ended = program.run(["restore", "--abort", "--yes", "--json"]).ok().json();
    assert!(ended["safety"]["seq"].is_u64(), "{ended}");
    assert_eq!(program.run(["list"]).ok().stderr, "");
    assert!(!program.workspace().join(".turnpoint").exists());
    program.run(["undo", "--yes"]).ok();
    assert_eq!(contents(&program), before());
}

#[test]
fn a_capture_completes_it_and_says_so() {
    let program = killed_restore("renameat2", "was interrupted while it changed files");
    let captured = program.run(["capture"]).ok();
    assert!(captured.stderr.contains("was completed first"), "{}", captured.stderr);
    assert_eq!(contents(&program), after());
    assert!(verbs(&program).contains(&"restore-complete".to_owned()));
}

/// What the account says was done.
fn verbs(program: &Program) -> Vec<String> {
    let text = fs::read_to_string(program.store().join("operations.jsonl")).unwrap_or_default();
    let verb = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        line["verb"].as_str().unwrap().to_owned()
    };
    text.lines().map(verb).collect()
}

/// Works on every file that the killed restore has not got to, and says which.
fn work_on(program: &Program) -> Vec<&'static str> {
    let names = ["a", "b", "d"].into_iter().zip([0, 1, 3]);
    let now = contents(program);
    let left: Vec<&str> = names
        .filter(|(_, index)| now[*index].as_deref() == Some("two"))
        .map(|(name, _)| name)
        .collect();
    assert!(!left.is_empty(), "{now:?}");
    for name in &left {
        fs::write(program.workspace().join(name), "late").unwrap();
    }
    left
}

#[test]
fn what_a_completed_restore_leaves_is_named_and_counts_as_left() {
    let program = killed_restore("renameat2", "was interrupted while it changed files");
    let left = work_on(&program);
    let done = program.run(["restore", "--continue", "--json"]).exits(3).json();
    let named: Vec<&str> =
        done["left"].as_array().unwrap().iter().map(|it| it["path"].as_str().unwrap()).collect();
    assert_eq!(named, left);
    for name in left {
        assert_eq!(fs::read_to_string(program.workspace().join(name)).unwrap(), "late");
    }
}

#[test]
fn a_capture_names_what_the_restore_that_it_completed_leaves_and_has_done_its_own() {
    let program = killed_restore("renameat2", "was interrupted while it changed files");
    let left = work_on(&program);
    let captured = program.run(["capture"]).ok();
    for name in left {
        let told = format!("`{name}` was left as it is: conflict");
        assert!(captured.stderr.contains(&told), "{}", captured.stderr);
        assert_eq!(fs::read_to_string(program.workspace().join(name)).unwrap(), "late");
    }
}

#[test]
fn a_restore_that_died_before_its_first_change_is_discarded() {
    let program = killed_restore("mkdirat", "was interrupted before it changed anything");
    assert_eq!(contents(&program), before());
    let captured = program.run(["capture"]).ok();
    assert!(captured.stderr.contains("was discarded"), "{}", captured.stderr);
    assert_eq!(contents(&program), before());
    assert!(verbs(&program).contains(&"restore-discard".to_owned()));
    assert!(!program.workspace().join(".turnpoint").exists());
}

#[test]
fn a_capture_that_is_stopped_leaves_a_whole_store() {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    let files = (0..4_000).map(|number| (format!("d{}/f{number}", number % 40), file([b'x'; 99])));
    build(&program.workspace(), files);
    let mut child = program
        .command(["capture", "--session", "s"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It is under way once its lease is there.
    let leases = program.store().join("leases");
    let deadline = Instant::now() + Duration::from_mins(1);
    while fs::read_dir(&leases).map_or(0, Iterator::count) == 0 {
        assert!(Instant::now() < deadline && child.try_wait().unwrap().is_none());
        std::thread::yield_now();
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{stderr}");
    assert!(stderr.starts_with("error: cancelled\n"), "{stderr}");
    assert_eq!(fs::read_dir(&leases).unwrap().count(), 0);
    assert_eq!(fs::read_dir(program.store().join("tmp")).unwrap().count(), 0);
    program.run(["list", "--session", "s"]).exits(2);
    program.run(["capture", "--session", "s"]).ok();
    program.run(["verify", "--read-data"]).ok();
}
