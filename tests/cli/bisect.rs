//! `turnpoint bisect`.

use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::support::program::{Program, Run, run};
use crate::support::tree::{build, file};

/// A session `s` with one checkpoint for each of `states`, which are the content of `state`; where the
/// temporary directory is, which must be empty in the end.
fn program(states: &[&str]) -> Program {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    fs::create_dir(scratch(&program)).unwrap();
    for state in states {
        build(&program.workspace(), [("state", file(*state)), ("src/keep", file("k"))]);
        program.run(["capture", "--session", "s"]).ok();
    }
    program
}

fn scratch(program: &Program) -> PathBuf {
    program.root().join("scratch")
}

/// Bisects with a shell command; the scratch directory is gone afterwards and the workspace as it was.
fn bisect(program: &Program, words: &[&str], command: &str) -> Run {
    let before = fs::read(program.workspace().join("state")).unwrap();
    let arguments = [&["bisect"][..], words, &["--", "sh", "-c", command]].concat();
    let run = run(program.command(arguments).env("TMPDIR", scratch(program)));
    assert_eq!(fs::read_dir(scratch(program)).unwrap().count(), 0, "{run:?}");
    assert_eq!(fs::read(program.workspace().join("state")).unwrap(), before);
    run
}

/// 0 where `state` begins with `g`, 125 where with `s`, else 1.
const BY_STATE: &str = "case $(cat state) in g*) exit 0;; s*) exit 125;; *) exit 1;; esac";

fn found(run: &Run) -> Value {
    let document = run.json();
    let seqs =
        |of: &Value| of.as_array().unwrap().iter().map(|it| it["seq"].clone()).collect::<Vec<_>>();
    let steps = document["steps"].as_array().unwrap().iter();
    let steps: Vec<Value> = steps.map(|it| json!([it["seq"], it["exit_code"]])).collect();
    json!([document["last_good"]["seq"], seqs(&document["suspects"]), steps])
}

/// A label that another session has too is that of the session of the good one: two have nothing between them.
#[test]
fn the_bad_one_is_of_the_session_of_the_good_one() {
    let program = program(&["g0", "g1", "b2"]);
    program.run(["label", "s:0", "works"]).ok();
    program.run(["label", "s:2", "broken"]).ok();
    program.run(["capture", "--session", "t", "--label", "broken"]).ok();
    for words in [["@works", "@broken"], ["@works", "latest"]] {
        let run = bisect(&program, &[&words[..], &["--json"]].concat(), BY_STATE).ok();
        assert_eq!(found(&run)[1], json!([2]), "{words:?}");
        assert_eq!(run.json()["first_bad"]["session"], "s", "{words:?}");
    }
}

#[test]
fn the_first_bad_one_is_found_and_shown() {
    let program = program(&["g0", "g1", "g2", "g3", "b4", "b5", "b6", "b7"]);
    let json = bisect(&program, &["s", "0", "7", "--json"], BY_STATE).ok();
    // Both ends, then the middle of what is left.
    let steps = json!([[0, 0], [7, 1], [4, 1], [2, 0], [3, 0]]);
    assert_eq!(found(&json), json!([3, [4], steps]));
    let document = json.json();
    assert_eq!(document["first_bad"]["seq"], 4);
    assert_eq!(document["changes"], json!([{"path": "state", "change": "modified"}]));
    for words in [&["s", "0", "7"][..], &["0", "7", "--session", "s"], &["latest~7", "latest"]] {
        let run = bisect(&program, words, BY_STATE).ok();
        assert!(run.stdout.starts_with("the first bad one is s:4, made 20"), "{run:?}");
        assert!(run.stdout.contains("\nchanges from s:3 to s:4\nM  state\n"), "{run:?}");
        assert!(run.stdout.contains("`turnpoint diff s:3 s:4 --patch`"), "{run:?}");
        assert!(run.stdout.contains("nothing later: `turnpoint revert s:4`"), "{run:?}");
        assert!(run.stderr.contains("note: s:4 is bad (1)\n"), "{run:?}");
    }
    program.run(["label", "s:0", "works"]).ok();
    program.run(["label", "s:7", "broken"]).ok();
    for words in [&["@works", "7"][..], &["@works", "@broken"], &["s", "0", "@broken"]] {
        let run = bisect(&program, words, BY_STATE).ok();
        assert!(run.stdout.starts_with("the first bad one is s:4, "), "{run:?}");
    }
    let quiet = bisect(&program, &["s", "0", "7", "-q"], BY_STATE).ok();
    assert!(quiet.stderr.is_empty() && quiet.stdout.lines().count() == 1, "{quiet:?}");
}

#[test]
fn any_history_gives_what_a_scan_gives() {
    // A few histories that differ in length, in the first bad one, and in what nobody can tell.
    for (states, last_good, suspects) in [
        (&["g0", "b1"][..], 0, &[1][..]),
        (&["g0", "b1", "b2"], 0, &[1]),
        (&["g0", "g1", "b2"], 1, &[2]),
        (&["g0", "s1", "b2"], 0, &[1, 2]),
        (&["g0", "g1", "s2", "s3", "b4", "b5"], 1, &[2, 3, 4]),
        (&["g0", "s1", "g2", "b3", "s4", "b5"], 2, &[3]),
        (&["g0", "s1", "s2", "s3", "s4", "b5"], 0, &[1, 2, 3, 4, 5]),
    ] {
        let program = program(states);
        let last = (states.len() - 1).to_string();
        let run = bisect(&program, &["s", "0", &last, "--json"], BY_STATE);
        let run = run.exits(i32::from(suspects.len() > 1));
        let found = found(&run);
        assert_eq!((&found[0], &found[1]), (&json!(last_good), &json!(suspects)), "{states:?}");
        assert_eq!(run.json().get("first_bad").is_some(), suspects.len() == 1);
    }
}

#[test]
fn states_that_repeat_are_tried_once_and_safety_checkpoints_never() {
    let program = program(&["g0", "g0", "g1", "g1", "b2"]);
    program.run(["restore", "s:0", "--session", "s", "--yes"]).ok();
    program.run(["undo", "--session", "s", "--yes"]).ok();
    program.run(["capture", "--session", "s"]).ok();
    let run = bisect(&program, &["s", "1", "7", "--json"], BY_STATE).ok();
    assert_eq!(found(&run), json!([2, [4], [[1, 0], [4, 1], [2, 0]]]));
}

#[test]
fn each_run_sees_the_checkpoint_and_nothing_else() {
    let program = program(&["g0", "g1", "g2", "b3", "b4"]);
    let log = program.root().join("log");
    let command = format!(
        "pwd >> {log}; ls -A >> {log}; env | grep ^TURNPOINT_BISECT_ | sort >> {log}; mkdir locked; \
         touch locked/left; chmod 0 locked; rm src/keep; {BY_STATE}",
        log = log.display()
    );
    bisect(&program, &["s", "0", "4"], &command).ok();
    let text = fs::read_to_string(&log).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4 * 7, "{text}");
    let runs: Vec<&[&str]> = lines.chunks(7).collect();
    for (run, seq) in runs.iter().zip([0, 4, 2, 3]) {
        assert_eq!(run[0], runs[0][0], "the place is another one each time");
        assert!(run[0].ends_with("/work"), "{text}");
        let expected = [
            "src".to_owned(),
            "state".to_owned(),
            format!("TURNPOINT_BISECT_CHECKPOINT=s:{seq}"),
            format!("TURNPOINT_BISECT_SEQ={seq}"),
            "TURNPOINT_BISECT_SESSION=s".to_owned(),
            format!("TURNPOINT_BISECT_WORKSPACE={}", program.workspace().display()),
        ];
        assert_eq!(run[1..], expected, "{text}");
    }
}

#[test]
fn what_a_command_says_goes_through_and_not_into_the_document() {
    let program = program(&["g0", "b1"]);
    let command = format!("echo out; echo err >&2; {BY_STATE}");
    let run = bisect(&program, &["s", "0", "1"], &command).ok();
    assert!(run.stdout.starts_with("out\nout\nthe first bad one"), "{run:?}");
    assert_eq!(run.stderr.matches("err\n").count(), 2, "{run:?}");
    let json = bisect(&program, &["s", "0", "1", "--json"], &command).ok();
    assert_eq!(json.json()["first_bad"]["seq"], 1);
    assert_eq!(json.stderr.matches("out\n").count(), 2, "{json:?}");
}

#[test]
fn a_search_without_a_beginning_and_an_end_is_refused() {
    let program = program(&["g0", "g1", "b2", "b2"]);
    program.run(["capture", "--session", "t"]).ok();
    for (words, command, code, said) in [
        (&["s", "0", "1"][..], BY_STATE, "not-bad", "s:1 was to be bad"),
        (&["s", "2", "3"], BY_STATE, "invalid-range", "nothing differs"),
        (&["s", "1", "0"], BY_STATE, "invalid-range", "the first does not come before"),
        (&["s:0", "t:0"], BY_STATE, "invalid-range", "of two sessions"),
        (&["s", "0", "2"], "exit 1", "not-good", "s:0 was to be good"),
        (&["s", "0", "2"], "exit 125", "not-good", "cannot tell whether s:0 is good"),
        (&["s", "0", "2"], "no-such-program", "not-good", "could not be run there (127)"),
        (&["s", "0"], BY_STATE, "usage", "two checkpoints are expected"),
        (&["s", "0", "9"], BY_STATE, "checkpoint-not-found", "there is no checkpoint s:9"),
    ] {
        let arguments = [words, &["--json"]].concat();
        let run = bisect(&program, &arguments, command).exits(2);
        let last = run.stderr.find("{\n").map(|at| run.stderr.split_at(at).1).unwrap();
        let error: Value = serde_json::from_str(last).unwrap();
        assert_eq!(error["code"], code, "{error}");
        assert!(error["message"].as_str().unwrap().contains(said), "{error}");
    }
    for command in ["exit 128", "exit 255", "kill -TERM $$"] {
        let run = bisect(&program, &["s", "0", "2"], command).exits(1);
        assert!(run.stderr.contains("which ends the search"), "{run:?}");
    }
    let no_program = ["bisect", "s", "0", "2", "--", "no-such-program"];
    let run = run(program.command(no_program).env("TMPDIR", scratch(&program))).exits(2);
    assert!(run.stderr.contains("cannot run `no-such-program`"), "{run:?}");
    assert_eq!(fs::read_dir(scratch(&program)).unwrap().count(), 0);
}

#[test]
fn nothing_is_written_into_the_workspace() {
    let program = program(&["g0", "b1"]);
    let inside = program.workspace().join("tmp");
    fs::create_dir(&inside).unwrap();
    let arguments = ["bisect", "s", "0", "1", "--", "true"];
    let run = run(program.command(arguments).env("TMPDIR", &inside)).exits(2);
    assert!(run.stderr.contains("is in the workspace"), "{run:?}");
    assert_eq!(fs::read_dir(&inside).unwrap().count(), 0);
}

#[test]
fn what_is_lost_or_unreadable_is_passed_over_and_named() {
    let program = program(&["g0", "g1", "g2", "b3", "b4", "b5"]);
    let listed = program.run(["ls", "s:3", "state", "--json"]).ok().json();
    let hash = listed["entries"][0]["hash"].as_str().unwrap().to_owned();
    fs::remove_file(program.store().join("blobs").join(hash.split_at(2).0).join(&hash)).unwrap();
    fs::write(program.store().join("s/1.json"), "{\"op\": 1}").unwrap();
    let run = bisect(&program, &["s", "0", "5", "--json"], BY_STATE).exits(1);
    let steps = json!([[0, 0], [5, 1], [3, null], [4, 1], [2, 0]]);
    assert_eq!(found(&run), json!([2, [3, 4], steps]));
    assert_eq!(run.json()["unreadable"][0]["seq"], 1);
    let run = bisect(&program, &["s", "0", "5"], BY_STATE).exits(1);
    assert!(run.stderr.contains("warning: s:3 is passed over: "), "{run:?}");
    assert!(run.stdout.contains("one of these, since nobody can tell:\n  s:3\n  s:4\n"), "{run:?}");
}

#[test]
fn what_could_mislead_is_told() {
    let program = program(&["g0"]);
    build(&program.workspace(), [("state", file("g1"))]);
    let mut hinted = program.command(["capture", "--session", "s", "--changed-from", "-"]);
    let mut child = hinted.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"state\n").unwrap();
    assert!(child.wait().unwrap().success());
    build(&program.workspace(), [("state", file("b2"))]);
    program.run(["capture", "--session", "s"]).ok();
    let run = bisect(&program, &["s", "0", "2"], BY_STATE).ok();
    assert!(run.stderr.contains("s:1 was made where it was told to look"), "{run:?}");
}

/// A signal while the command runs: the command is ended, and the scratch directory goes.
#[test]
fn a_signal_ends_it_and_leaves_nothing() {
    let program = program(&["g0", "b1"]);
    let pid = program.root().join("pid");
    // It goes on at the first signal, and says that it was told.
    let command = format!(
        "echo $$ > {}; trap '' INT; trap 'echo told' TERM; echo ready; \
         while :; do sleep 60 & wait $!; done",
        pid.display()
    );
    let arguments = ["bisect", "s", "0", "1", "--", "sh", "-c", &command];
    let mut bisect = program.command(arguments);
    let bisect = bisect.env("TMPDIR", scratch(&program)).stdout(Stdio::piped());
    let mut child = bisect.stderr(Stdio::null()).spawn().unwrap();
    let id = child.id().to_string();
    let mut said = child.stdout.take().unwrap();
    for expected in ["ready\n", "told\n"] {
        let mut line = vec![0; expected.len()];
        said.read_exact(&mut line).unwrap();
        assert_eq!(line, expected.as_bytes());
        assert!(run(program.other("kill").args(["-INT", &id])).code == 0);
    }
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(fs::read_dir(scratch(&program)).unwrap().count(), 0);
    let sleeper = fs::read_to_string(&pid).unwrap();
    let stat = fs::read_to_string(format!("/proc/{}/stat", sleeper.trim()));
    assert!(stat.is_err(), "the command still runs: {stat:?}");
}

#[test]
fn a_signal_to_the_program_alone_ends_what_the_command_started() {
    let program = program(&["g0", "b1"]);
    let pid = program.root().join("pid");
    // The one that is waited for ends at SIGTERM; the one that it started does not listen.
    let inner = format!("trap '' TERM; echo $$ > {}; echo ready; exec sleep 60", pid.display());
    let arguments = ["bisect", "s", "0", "1", "--", "sh", "-c", "sh -c \"$INNER\"; true"];
    let mut bisect = program.command(arguments);
    let bisect = bisect.env("TMPDIR", scratch(&program)).env("INNER", inner);
    let bisect = bisect.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = bisect.spawn().unwrap();
    let mut ready = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    let id = child.id().to_string();
    assert!(run(program.other("kill").args(["-TERM", &id])).code == 0);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(fs::read_dir(scratch(&program)).unwrap().count(), 0);
    assert_is_killed(fs::read_to_string(&pid).unwrap().trim());
}

/// That a process has got the signal that ends it. It may still be there: to be run once more, by which it
/// ends, and then for its new parent to take note of.
#[track_caller]
fn assert_is_killed(pid: &str) {
    let mut stat = String::new();
    for _ in 0..1_000 {
        stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        if stat.is_empty() || stat.contains(") Z ") {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("what it started still runs: {stat}");
}

/// On a terminal the command is of the program's group: a key reaches all of it, a signal to the program does
/// not. Neither way anything is left, not even what listens to no signal.
#[test]
fn on_a_terminal_nothing_is_left_of_a_command_that_is_stopped() {
    let program = program(&["g0", "b1"]);
    let pid = program.root().join("pid");
    let sleeper = format!(
        "trap '' HUP INT TERM; echo $$ > {}; echo ready; exec sleep 60 <&- >&- 2>&-",
        pid.display()
    );
    let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/prompt.py");
    // It is told to end before the second signal is sent.
    let twice = "trap told=1 TERM; sh -c \"$INNER\" & until [ -s \"$PID\" ]; do sleep .05; done; \
                 kill -TERM $PPID; until [ \"$told\" ]; do sleep .05; done; kill -TERM $PPID; wait";
    for (talk, command) in [(r#"[["ready", "\u0003"]]"#, "sh -c \"$INNER\" & wait"), ("[]", twice)]
    {
        let mut bisect = program.other("python3");
        bisect.arg(&script).args(["80", talk, env!("CARGO_BIN_EXE_turnpoint")]);
        bisect.args(["bisect", "s", "0", "1", "--", "sh", "-c", command]);
        let ended =
            run(bisect.env("TMPDIR", scratch(&program)).env("INNER", &sleeper).env("PID", &pid));
        assert_eq!(ended.code, 130, "{ended:?}");
        assert_eq!(fs::read_dir(scratch(&program)).unwrap().count(), 0);
        assert_is_killed(fs::read_to_string(&pid).unwrap().trim());
        fs::remove_file(&pid).unwrap();
    }
}

#[test]
fn that_what_was_between_is_gone_is_told() {
    let program = program(&["g0", "g1", "b2", "b3"]);
    program.run(["pin", "s:0"]).ok();
    let whole = bisect(&program, &["s", "0", "3"], BY_STATE).ok();
    assert!(!whole.stderr.contains("gone"), "{}", whole.stderr);
    program.run(["prune", "--session", "s", "--keep", "1", "--yes"]).ok();
    let run = bisect(&program, &["s", "0", "3"], BY_STATE).ok();
    assert!(run.stdout.contains("the first bad one is s:3"), "{run:?}");
    assert!(run.stderr.contains("note: s:2, the one before s:3, is gone"), "{run:?}");
}
