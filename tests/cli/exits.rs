//! Exit codes, and what is said when something is refused.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::Stdio;

use serde_json::Value;

use crate::support::program::{Program, run};
use crate::support::tree::{build, file};

fn program() -> Program {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    build(&program.workspace(), [("a.txt", file("one")), ("src/b.txt", file("two"))]);
    program
}

fn captured() -> Program {
    let program = program();
    program.run(["capture", "--session", "s"]).ok();
    program
}

fn manifest(program: &Program) -> PathBuf {
    program.store().join("s/0.json")
}

/// The file that holds the content of `path` in checkpoint s:0.
fn blob(program: &Program, path: &str) -> PathBuf {
    let listed = program.run(["ls", "s:0", path, "--json"]).ok().json();
    let hash = listed["entries"][0]["hash"].as_str().unwrap();
    program.store().join("blobs").join(hash.split_at(2).0).join(hash)
}

#[test]
fn what_does_not_exist_or_is_malformed_ends_with_2() {
    let program = captured();
    for (arguments, said) in [
        (&["show", "t", "0"][..], "error: there is no session `t`\n\nhint: these exist: s\n"),
        (&["show", "s", "7"], "error: there is no checkpoint s:7\n"),
        (&["show", "nonsense"], "error: `nonsense` names no checkpoint\n"),
        (&["show", "s", "0", "extra"], "nothing is expected after the checkpoint"),
        (&["restore"], "error: no checkpoint is named\n"),
        (&["cat"], "`latest` is the newest, and `turnpoint list` shows what there is"),
        (&["export"], "`latest` is the newest"),
        (&["label"], "hint: as in `turnpoint label latest 'before the refactor'`"),
        (&["restore", "s", "0", "../outside", "--yes"], "it lies outside of"),
        (&["restore", "s", "0", "no-such", "--yes"], "does not hold `no-such`"),
        (&["-C", "src", "show", "b.txt"], "hint: it is a path here"),
        (&["show", "a.txt"], "hint: it is a path here, and a checkpoint comes before a path"),
        (
            &["show", "s", "0", "a.txt"],
            "hint: of a file, `turnpoint cat s 0 a.txt` shows the content, `turnpoint log a.txt` which",
        ),
        (
            &["show", "0", "a.txt", "--session", "s"],
            "`turnpoint cat 0 --session s a.txt` shows the content, `turnpoint log --session s a.txt`",
        ),
        (&["show", "a.txt", "--at", "now"], "hint: of a file, `turnpoint cat --at 20"),
        (&["cat", "s", "0", "src"], "`src` is a directory in s:0\n\nhint: `turnpoint ls s:0 src`"),
        (&["cat", "s", "0"], "hint: as in `turnpoint cat latest src/main.rs`"),
        (&["label", "s", "0", "two", "words"], "hint: quote one of several words"),
        (&["capture", "--session", "../x"], "cannot be a session's name"),
        (&["capture", "--label", "a\nb"], "it holds control characters"),
        (&["capture", "--trigger", "pre-restore"], "kept for what a restore saves first"),
        (&["capture", "-C", "no-such"], "error: there is no directory no-such\n"),
        (&["capture", "-C", "a.txt"], "is not a directory"),
        (&["undo", "--yes"], "error: there is nothing to undo in"),
        (&["redo", "--yes"], "error: there is nothing to redo in"),
        (&["revert", "--yes"], "error: no checkpoint is named\n"),
        (&["revert", "s", "0", "--yes"], "it is the first of its workspace in its session"),
        (&["revert", "s", "7", "--yes"], "error: there is no checkpoint s:7\n"),
        (&["rewind", "2"], "error: there is only 1 turn of"),
        (&["rewind", "0"], "a number from 1 on is expected"),
        (&["rewind", "s:0"], "`turnpoint restore` goes back to a checkpoint"),
        (&["restore", "src/gone"], "`turnpoint log src/gone` shows which have one that is gone"),
        (&["restore", "Makefile"], "`turnpoint log Makefile` shows which have a path of that name"),
        (&["cat", "s:0:a.txt"], "a path a word of its own, as in `turnpoint cat s:0 a.txt`"),
        (&["pin", "s:src/b.txt"], "as in `turnpoint cat s:latest src/b.txt`"),
        (
            &["cat", "HEAD:src/b.txt"],
            "is expected: `latest` is the newest, and `turnpoint list` shows",
        ),
        (&["log"], "`turnpoint list` shows the checkpoints, `turnpoint log .` what each"),
        (&["show", "s"], "`latest` is the newest, `s:latest` that of a session"),
        (&["list", "-n", "x"], "a number from 1 on is expected"),
        (&["prune", "--keep", "x"], "a number is expected"),
        (&["show", "--at", "30y"], " +00:00\n\nhint: the oldest is s:0, of 20"),
        (&["rewind", "--session", "t"], "error: there is no session `t`\n"),
        (&["restore", "--continue"], "was interrupted"),
        (&["restore", "--abort", "--yes"], "was interrupted"),
        (&["nonsense"], "unrecognized subcommand 'nonsense'"),
        (&["list", "--sessions", "--session", "s"], "cannot be used with"),
    ] {
        let run = program.run(arguments).exits(2);
        assert!(run.stderr.contains(said), "{arguments:?}\n{}", run.stderr);
        assert_eq!(run.stdout, "", "{arguments:?}");
    }
}

#[test]
fn what_is_no_turn_hears_of_restore_only_where_it_is_a_checkpoint() {
    let program = captured();
    for (word, is_checkpoint) in [("0", false), ("x", false), ("s:0", true), ("latest~1", true)] {
        let told = program.run(["rewind", word]).exits(2).stderr;
        assert!(told.contains("a number from 1 on is expected"), "{told}");
        let hint = "\nhint: `turnpoint restore` goes back to a checkpoint\n";
        assert_eq!(told.contains(hint), is_checkpoint, "{told}");
    }
}

#[test]
fn a_damaged_checkpoint_names_what_can_be_done() {
    let program = captured();
    fs::write(manifest(&program), "damaged").unwrap();
    for arguments in [&["show", "s", "0"][..], &["ls", "s:0"], &["cat", "s:0", "a.txt"]] {
        let run = program.run(arguments).exits(4);
        let hint = "hint: `turnpoint doctor` says what is damaged, and what can be done: a backup, or \
                    `turnpoint quarantine s/0.json`\n";
        assert!(run.stderr.ends_with(hint), "{arguments:?}\n{}", run.stderr);
    }
    program.run(["quarantine", "s/0.json", "--yes"]).ok();
}

#[test]
fn a_number_that_was_dropped_says_where_that_is_told() {
    let program = captured();
    program.run(["capture", "--session", "s"]).ok();
    program.run(["prune", "--keep", "1", "--yes"]).ok();
    let gone = program.run(["show", "s", "0"]).exits(2).stderr;
    let hint = "hint: the nearest that exist: 1; `turnpoint operations` says what was dropped\n";
    assert!(gone.ends_with(hint), "{gone}");
    assert!(program.run(["operations"]).ok().stdout.contains("s: 0"), "{gone}");
    let never = program.run(["show", "s", "7"]).exits(2).stderr;
    assert!(never.ends_with("hint: the nearest that exist: 1\n"), "{never}");
    program.run(["prune", "--session", "s", "--delete", "--yes"]).ok();
    let deleted = program.run(["show", "s", "0"]).exits(2).stderr;
    assert!(deleted.contains("`turnpoint operations` what was dropped"), "{deleted}");
}

#[test]
fn a_store_whose_place_is_a_file_says_what_names_the_place() {
    let program = captured();
    let file = program.workspace().join("a.txt");
    let run = run(program.command(["capture"]).env("TURNPOINT_HOME", file)).exits(1);
    assert!(run.stderr.contains("TURNPOINT_HOME says where the store is"), "{}", run.stderr);
    // Of another path that is no hint.
    fs::write(program.root().join("file"), "").unwrap();
    for arguments in [
        &["capture", "-C", "a.txt/x"][..],
        &["list", "--log-file", "../file/x"],
        &["export", "s", "0", "--tar", "a.txt/x"],
    ] {
        let run = program.run(arguments).exits(1);
        assert!(run.stderr.contains("Not a directory"), "{arguments:?}\n{}", run.stderr);
        assert!(!run.stderr.contains("TURNPOINT_HOME"), "{arguments:?}\n{}", run.stderr);
    }
}

#[test]
fn an_empty_history_is_no_failure_to_a_reader() {
    let program = program();
    let run = program.run(["list"]).ok();
    assert_eq!(run.stdout, "");
    assert!(run.stderr.contains("`turnpoint capture` makes the first"), "{}", run.stderr);
    assert_eq!(program.run(["list", "--json"]).ok().json()["checkpoints"], serde_json::json!([]));
    program.run(["verify"]).ok();
    program.run(["show"]).exits(2);
    assert!(!program.sessions_home().exists(), "a reader has made a store");
}

#[test]
fn a_restore_without_a_terminal_needs_a_yes() {
    let program = captured();
    fs::write(program.workspace().join("a.txt"), "changed").unwrap();
    let run = program.run(["restore", "s", "0"]).exits(3);
    assert!(run.stdout.contains("overwrite\n  a.txt\n"), "{}", run.stdout);
    assert!(run.stderr.ends_with("\n\nhint: add --yes to do it\n"), "{}", run.stderr);
    assert_eq!(fs::read_to_string(program.workspace().join("a.txt")).unwrap(), "changed");
    // Nothing to do needs no yes, and says why there is nothing.
    let run = program.run(["restore", "s", "0", "src"]).ok();
    assert!(run.stdout.contains("as s:0 holds them"), "{}", run.stdout);
    let run = program.run(["prune", "--keep", "0"]).ok();
    assert!(run.stdout.starts_with("nothing to prune"), "{}", run.stdout);
    program.run(["capture", "--session", "s"]).ok();
    program.run(["prune", "--keep", "0"]).exits(3);
    program.run(["prune"]).ok();
    assert!(manifest(&program).exists());
}

#[test]
fn a_plan_in_a_file_is_carried_out_or_refused() {
    let program = captured();
    let file = program.workspace().join("a.txt");
    fs::write(&file, "changed").unwrap();
    let shown = program.run(["restore", "s", "0", "--plan-out", "../plan", "--json"]).ok().json();
    let dry = program.run(["restore", "s", "0", "--dry-run", "--json"]).ok().json();
    assert_eq!(shown, dry);
    program.run(["restore", "s", "0", "--plan-out", "../plan"]).exits(3);
    program.run(["restore", "s", "0", "--plan-out", "plan"]).exits(3);
    program.run(["restore", "s", "0", "--plan-out", "../other", "--yes"]).exits(2);
    program.run(["restore", "s", "0", "--apply", "../plan"]).exits(2);
    program.run(["restore", "--apply", "../none", "--yes"]).exits(2);
    program.run(["restore", "--apply", "../plan"]).exits(3);
    fs::write(&file, "changed again").unwrap();
    let refused = program.run(["restore", "--apply", "../plan", "--yes", "--json"]).exits(3);
    let refused: Value = serde_json::from_str(&refused.stderr).unwrap();
    assert_eq!(
        (&refused["code"], &refused["paths"][0]["path"]),
        (&"plan-outdated".into(), &"a.txt".into())
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), "changed again");
    fs::write(&file, "changed").unwrap();
    let done = program.run(["restore", "--apply", "../plan", "--yes", "--json"]).ok().json();
    assert_eq!((&done["overwrite"], &done["changed"]), (&shown["overwrite"], &1.into()));
    assert_eq!(fs::read_to_string(&file).unwrap(), "one");
    program.run(["undo", "--plan-out", "../undo"]).ok();
    program.run(["restore", "--apply", "../undo", "--yes"]).ok();
    assert_eq!(fs::read_to_string(&file).unwrap(), "changed");
    let other = program.root().join("other");
    fs::create_dir(&other).unwrap();
    program.run(["capture", "-C", other.to_str().unwrap()]).ok();
    let run = program
        .run(["restore", "-C", other.to_str().unwrap(), "--apply", "../undo", "--yes"])
        .exits(3);
    assert!(run.stderr.contains("is of another workspace"), "{}", run.stderr);
}

#[test]
fn a_revert_takes_one_turn_back_or_names_what_stands_against_it() {
    let program = captured();
    let file = program.workspace().join("a.txt");
    let text = |second: &str, fifth: &str| format!("1\n{second}\n3\n4\n{fifth}\n");
    let turn = |content: &str| {
        fs::write(&file, content).unwrap();
        program.run(["capture", "--session", "s"]).ok();
    };
    turn(&text("2", "5"));
    turn(&text("two", "5"));
    turn(&text("two", "five"));
    let shown = program.run(["revert", "s", "2"]).exits(3);
    assert!(shown.stdout.contains("a.txt (merged with what was done since)"), "{}", shown.stdout);
    let planned = program.run(["revert", "s", "2", "--dry-run", "--json"]).ok().json();
    assert_eq!(planned["overwrite"][0]["merged"], true);
    program.run(["revert", "s", "2", "--plan-out", "../plan"]).ok();
    let done = program.run(["restore", "--apply", "../plan", "--yes", "--json"]).ok().json();
    assert_eq!((&done["plan"], &done["changed"]), (&planned["plan"], &1.into()));
    assert_eq!(fs::read_to_string(&file).unwrap(), text("2", "five"));
    program.run(["revert", "s", "2"]).ok();
    let safety =
        format!("{}:{}", done["safety"]["session"].as_str().unwrap(), done["safety"]["seq"]);
    let shown = program.run(["show", &safety]).ok();
    assert!(shown.stdout.contains("before a revert of s:2"), "{}", shown.stdout);
    program.run(["undo", "--yes"]).ok();
    assert_eq!(fs::read_to_string(&file).unwrap(), text("two", "five"));

    fs::write(&file, text("zwei", "five")).unwrap();
    for way in ["--dry-run", "--yes"] {
        let refused = program.run(["revert", "s", "2", way, "--json"]).exits(3);
        let refused: Value = serde_json::from_str(&refused.stderr).unwrap();
        assert_eq!(refused["code"], "revert-conflicts");
        assert_eq!(refused["paths"][0]["path"], "a.txt");
        assert_eq!(fs::read_to_string(&file).unwrap(), text("zwei", "five"));
    }
    let refused = program.run(["revert", "s", "2", "--yes"]).exits(3);
    assert!(!refused.stderr.contains(" -C "), "{}", refused.stderr);
    let mut elsewhere = program.command(["revert", "s", "2", "--yes"]);
    let elsewhere = run(elsewhere.current_dir(program.workspace().join("src"))).exits(3);
    assert!(elsewhere.stderr.contains("`turnpoint diff -C /"), "{}", elsewhere.stderr);
    // Whoever stands elsewhere has to name the workspace.
    for (refused, directory) in [(refused, program.workspace()), (elsewhere, "/".into())] {
        let [changed, since] = crate::applying::shown(&program, &refused, &directory);
        assert!(changed.contains("\n-2\n+two\n") && !changed.contains("five"), "{changed}");
        assert!(since.contains("\n-two\n+zwei\n"), "{since}");
    }
}

#[test]
fn a_rewind_is_a_restore_of_the_start_of_a_turn() {
    let program = captured();
    let file = program.workspace().join("a.txt");
    let start = ["capture", "--session", "s", "--trigger", "turn-start"];
    fs::write(&file, "second").unwrap();
    program.run(start).ok();
    fs::write(&file, "third").unwrap();
    program.run(start).ok();
    fs::write(&file, "fourth").unwrap();
    let run = program.run(["rewind", "2"]).exits(3);
    assert!(run.stdout.starts_with("rewind to s:1, the start of the last turn but one"));
    assert_eq!(fs::read_to_string(&file).unwrap(), "fourth");
    let done = program.run(["rewind", "--yes", "--json"]).ok().json();
    assert_eq!((&done["session"], &done["seq"]), (&"s".into(), &2.into()));
    assert_eq!(fs::read_to_string(&file).unwrap(), "third");
    let run = program.run(["rewind"]).ok();
    assert!(run.stdout.contains("`turnpoint rewind 2`"), "{}", run.stdout);
    program.run(["undo", "--yes"]).ok();
    assert_eq!(fs::read_to_string(&file).unwrap(), "fourth");
    let shown = program.run(["redo", "--dry-run"]).ok();
    assert!(
        shown.stdout.starts_with("take back the undo of the restore of s:2 that "),
        "{}",
        shown.stdout
    );
    let json = program.run(["redo", "--dry-run", "--json"]).ok().json();
    assert_eq!(
        json["takes_back"],
        serde_json::json!({
            "verb": "undo",
            "origin": { "verb": "restore", "session": "s", "seq": 2 },
            "earlier": null,
        })
    );
    program.run(["redo"]).exits(3);
    assert_eq!(fs::read_to_string(&file).unwrap(), "fourth");
    program.run(["redo", "--yes"]).ok();
    let shown = program.run(["undo", "--dry-run"]).ok();
    assert!(
        shown.stdout.starts_with("take back the redo of the restore of s:2 that "),
        "{}",
        shown.stdout
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), "third");
    program.run(["undo", "--yes"]).ok();
    let since = program.run(["rewind", "2", "--yes", "--json"]).ok().json();
    let refused = program.run(["redo", "--yes", "--json"]).exits(2);
    let refused: Value = serde_json::from_str(&refused.stderr).unwrap();
    assert_eq!(refused["code"], "nothing-to-redo");
    let hint = refused["hint"].as_str().unwrap();
    assert!(
        hint.contains(&format!(
            "{}:{}",
            since["safety"]["session"].as_str().unwrap(),
            since["safety"]["seq"]
        )),
        "{hint}"
    );
}

#[test]
fn a_checkpoint_of_another_workspace_is_refused_where_it_exists() {
    let program = captured();
    let other = program.root().join("other");
    fs::create_dir(&other).unwrap();
    let other = other.to_str().unwrap();
    program.run(["capture", "-C", other]).ok();
    let run = program.run(["restore", "-C", other, "s", "0", "--yes"]).exits(3);
    assert!(run.stderr.contains("is of another workspace"), "{}", run.stderr);
    program.run(["restore", "-C", other, "s", "8", "--yes"]).exits(2);
}

#[test]
fn counting_back_further_than_there_are_checkpoints_says_how_many_there_are() {
    let program = captured();
    let run = program.run(["show", "latest~9"]).exits(2);
    assert!(run.stderr.contains("there is only 1 checkpoint of"), "{}", run.stderr);
    assert!(!run.stderr.contains("makes the first"), "{}", run.stderr);
}

#[test]
fn a_checkpoint_is_written_only_into_an_empty_directory() {
    let program = captured();
    let run = program.run(["restore", "s", "0", "--into", "src"]).exits(3);
    assert!(run.stderr.contains("src is not empty"), "{}", run.stderr);
    assert_eq!(fs::read_dir(program.workspace().join("src")).unwrap().count(), 1);
}

#[test]
fn a_directory_is_seen_from_the_one_that_was_named() {
    let program = captured();
    let root = program.workspace();
    let words = ["-C", root.to_str().unwrap(), "restore", "s", "0", "--into", "../beside"];
    run(program.command(words).current_dir("/")).ok();
    let beside = root.parent().unwrap().join("beside/a.txt");
    assert_eq!(fs::read_to_string(beside).unwrap(), "one");
}

#[test]
fn directories_that_are_hardly_one_workspace_are_refused() {
    let program = program();
    let home = program.root().join("home");
    let run = program.run(["capture", "-C", home.to_str().unwrap()]).exits(3);
    assert!(run.stderr.contains("is the home directory"), "{}", run.stderr);
    program.run(["capture", "-C", home.to_str().unwrap(), "--force"]).ok();
    program.git(["init", "-q"]);
    let git = program.workspace().join(".git");
    for inside in [git.clone(), git.join("refs")] {
        let run = program.run(["capture", "-C", inside.to_str().unwrap()]).exits(3);
        assert!(run.stderr.contains("is a version-control directory"), "{}", run.stderr);
    }
}

#[test]
fn a_manifest_that_cannot_be_read_is_named_and_the_others_are_listed() {
    let program = captured();
    program.run(["capture", "--session", "s"]).ok();
    let text = fs::read_to_string(manifest(&program)).unwrap();
    fs::write(manifest(&program), text.replace("manual", "manuel")).unwrap();
    let run = program.run(["list", "--session", "s"]).exits(4);
    assert!(run.stdout.contains("[unreadable] its checksum does not match"), "{}", run.stdout);
    assert!(run.stderr.contains("1 checkpoint cannot be read"), "{}", run.stderr);
    let json = program.run(["list", "--json"]).exits(4).json();
    assert_eq!(json["unreadable"][0]["seq"], 0);
    assert_eq!(json["checkpoints"][0]["seq"], 1);
    program.run(["list", "--sessions"]).exits(4);
    program.run(["show", "s", "0"]).exits(4);
    program.run(["restore", "s", "0", "--yes"]).exits(3);
    program.run(["pin", "s", "0"]).exits(1);
    let json = program.run(["verify", "--json"]).exits(4).json();
    assert_eq!(
        (&json["ok"], &json["findings"][0]["kind"]),
        (&false.into(), &"manifest-unreadable".into())
    );
    program.run(["show", "s", "1"]).ok();
}

#[test]
fn lost_content_is_named_before_anything_changes() {
    let program = captured();
    let lost = blob(&program, "a.txt");
    fs::remove_file(&lost).unwrap();
    fs::write(program.workspace().join("a.txt"), "changed").unwrap();
    fs::write(program.workspace().join("src/b.txt"), "changed").unwrap();
    let hash = lost.file_name().unwrap().to_str().unwrap();
    for how in ["--yes", "--dry-run"] {
        let run = program.run(["restore", "s", "0", how]).exits(3);
        assert!(run.stderr.contains(&format!("  a.txt: missing: blob {hash}")), "{}", run.stderr);
    }
    assert_eq!(fs::read_to_string(program.workspace().join("src/b.txt")).unwrap(), "changed");
    program.run(["cat", "s:0", "a.txt"]).exits(4);
    let run = program.run(["verify"]).exits(4);
    assert!(run.stderr.contains("blob-missing"), "{}", run.stderr);
    assert!(run.stderr.contains("a.txt in s:0"), "{}", run.stderr);
    program.run(["doctor"]).exits(4);
}

#[test]
fn a_collection_that_may_delete_nothing_names_each_file() {
    let program = captured();
    // A manifest that no row knows, and that nobody can read.
    let stray = program.store().join("s/5.json");
    fs::write(&stray, r#"{"format":1,"op":"x"}"#).unwrap();
    let run = program.run(["gc"]).exits(3);
    assert!(run.stderr.starts_with("error: nothing was deleted"), "{}", run.stderr);
    assert!(run.stderr.contains(&format!("  {}: ", stray.display())), "{}", run.stderr);
    let run = program.run(["gc", "--json"]).exits(3);
    let error: Value = serde_json::from_str(&run.stderr).unwrap();
    assert_eq!(error["code"], "deletion-blocked");
    assert_eq!(error["paths"][0]["path"], stray.to_str().unwrap());
}

#[test]
fn a_store_of_a_newer_program_is_refused() {
    let program = captured();
    let format = program.store().join("format.json");
    let text = fs::read_to_string(&format).unwrap();
    fs::write(&format, text.replacen("_store\":1", "_store\":99", 1)).unwrap();
    let run = program.run(["capture"]).exits(3);
    assert!(run.stderr.contains("has format 99"), "{}", run.stderr);
}

/// Permissions mean nothing to root, so the capture runs as another user there.
#[test]
fn an_incomplete_capture_names_what_it_could_not_read() {
    let program = program();
    let secret = program.workspace().join("closed");
    build(&program.workspace(), [("closed", file("x")), ("src/open", file("y"))]);
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o000)).unwrap();
    let capture = |arguments: &[&str]| {
        if !rustix::process::geteuid().is_root() {
            return program.run([&["capture"], arguments].concat());
        }
        let nobody = 65_534;
        for name in ["", "home", "work", "work/a.txt", "work/closed", "work/src"] {
            chown(program.root().join(name), Some(nobody), Some(nobody)).unwrap();
        }
        let binary = program.root().join("turnpoint");
        if !binary.exists() {
            program.copy_binary(&binary);
        }
        let mut command = program.other("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.arg(binary).arg("capture").args(arguments);
        run(&mut command)
    };
    let refused = capture(&["--strict"]).exits(1);
    assert!(refused.stderr.contains("1 paths could not be held whole"), "{}", refused.stderr);
    let made = capture(&["--session", "s"]).exits(4);
    assert!(made.stdout.contains("captured s:0"), "{}", made.stdout);
    assert!(made.stderr.contains("warning: the checkpoint is incomplete"), "{}", made.stderr);
    assert!(made.stderr.contains("  closed: unreadable"), "{}", made.stderr);
    let json = capture(&["--session", "s", "--json"]).exits(4).json();
    assert_eq!(json["complete"], false);
    assert_eq!(json["problems"][0]["path"], "closed");
    assert_eq!(json["problems"][0]["reason"], "unreadable");
    let listed = program.run(["list"]).ok();
    assert!(listed.stdout.contains("[incomplete]"), "{}", listed.stdout);
}

#[test]
fn a_reader_that_stops_reading_is_no_failure() {
    let program = captured();
    for arguments in [&["list"][..], &["ls", "s:0", "-r"], &["cat", "s:0", "a.txt"], &["--help"]] {
        // `false` reads nothing and ends; the pipe is broken by the time something is written.
        let mut command = program.command(arguments);
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let child = command.stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "", "{arguments:?}");
    }
}

#[test]
fn output_that_cannot_be_written_is_a_failure() {
    let program = captured();
    for arguments in [&["list"][..], &["cat", "s:0", "a.txt"], &["show", "--json"]] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let child = program.command(arguments).stdout(full).stderr(Stdio::piped()).spawn().unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.contains("cannot write to standard output"), "{stderr}");
    }
}

#[test]
fn no_name_can_act_on_the_terminal() {
    let program = program();
    let name = "x\u{1b}[2Jy\nz";
    build(&program.workspace(), [(name, file("1"))]);
    let session = ["--session", "s"];
    program.run([&["capture", "--label", "l"][..], &session].concat()).ok();
    fs::remove_file(program.workspace().join(name)).unwrap();
    for arguments in [
        &["ls", "s:0"][..],
        &["restore", "s:0", "--dry-run"],
        &["restore", "s:0", "--yes"],
        &["cat", "s:0", "x\u{1b}[2Jnone"],
        &["show", "\u{1b}[2J"],
        &["show", "\u{1b}[2J", "0"],
        &["capture", "-C", "\u{1b}[2J"],
    ] {
        let run = program.run(arguments);
        let shown = run.stdout + &run.stderr;
        assert!(!shown.contains('\u{1b}'), "{arguments:?}\n{}", shown.escape_debug());
    }
    assert_eq!(fs::read_to_string(program.workspace().join(name)).unwrap(), "1");
}

#[test]
fn a_restore_names_what_is_in_the_place_of_its_directory() {
    let program = captured();
    let (file, taken) = (program.workspace().join("a.txt"), program.workspace().join(".turnpoint"));
    fs::write(&file, "changed").unwrap();
    fs::write(&taken, "mine").unwrap();
    let refused = program.run(["restore", "latest", "--yes"]).exits(3);
    assert!(refused.stderr.contains(taken.to_str().unwrap()), "{}", refused.stderr);
    assert!(refused.stderr.contains("move yours away"), "{}", refused.stderr);
    assert_eq!(fs::read_to_string(&file).unwrap(), "changed");
    assert_eq!(fs::read_to_string(&taken).unwrap(), "mine");
    fs::remove_file(&taken).unwrap();
    program.run(["restore", "latest", "--yes"]).ok();
    assert_ne!(fs::read_to_string(&file).unwrap(), "changed");
}

#[test]
fn a_file_that_may_not_grow_so_far_is_an_error_and_no_signal() {
    let program = captured();
    // No compression makes it shorter.
    let mut noise = vec![0; 400_000];
    blake3::Hasher::new().finalize_xof().fill(&mut noise);
    fs::write(program.workspace().join("noise"), noise).unwrap();
    let limit = ["bash", "-c", "ulimit -f 300; exec \"$@\"", "bash"];
    let run = run(&mut program.under(&limit, ["capture", "--session", "s"])).exits(1);
    assert!(run.stderr.contains("File too large"), "{}", run.stderr);
    assert!(run.stderr.contains("\n\nhint: raise the limit"), "{}", run.stderr);
    program.run(["capture", "--session", "s"]).ok();
}

#[test]
fn a_label_names_the_newest_checkpoint_that_has_it() {
    let program = captured();
    fs::write(program.workspace().join("a.txt"), "two").unwrap();
    program.run(["capture", "--session", "s", "--label", "before: it"]).ok();
    fs::write(program.workspace().join("a.txt"), "three").unwrap();
    program.run(["capture", "--session", "s", "--label", "before: it"]).ok();
    let content = |words: &[&str]| program.run([&["cat"], words, &["a.txt"]].concat()).ok().stdout;
    assert_eq!(content(&["@before: it"]), "three");
    assert_eq!(content(&["s", "@before: it"]), "three");
    assert_eq!(content(&["s:@before: it"]), "three");
    program.run(["label", "s:2", "after"]).ok();
    assert_eq!(content(&["@before: it"]), "two");
    let unknown = program.run(["cat", "@nothing", "a.txt"]).exits(2);
    assert!(unknown.stderr.contains("these exist: @after, '@before: it'"), "{}", unknown.stderr);
    // A directory whose name begins so is a path.
    build(&program.workspace(), [("@types/x.ts", file("x"))]);
    program.run(["capture", "--session", "s"]).ok();
    fs::remove_dir_all(program.workspace().join("@types")).unwrap();
    program.run(["restore", "latest", "@types", "--yes"]).ok();
    assert!(program.workspace().join("@types/x.ts").exists());
}

#[test]
fn an_undo_with_nothing_to_change_is_recorded_without_a_question() {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    let path = |name: &str| program.workspace().join(name);
    build(&program.workspace(), [("a", file("0")), ("b", file("0"))]);
    program.run(["capture", "--session", "s"]).ok();
    for name in ["a", "b"] {
        fs::write(path(name), "1").unwrap();
        program.run(["restore", "s:0", "--yes"]).ok();
    }
    // By hand, what the undo of the newest would do.
    fs::write(path("b"), "1").unwrap();
    program.run(["undo", "--dry-run"]).ok();
    let recorded = program.run(["undo", "--json"]).ok().json();
    assert_eq!((&recorded["changed"], &recorded["dry_run"]), (&0.into(), &false.into()));
    assert!(recorded["safety"].is_object(), "{recorded}");
    // The next one goes further back, and asks.
    program.run(["undo"]).exits(3);
    program.run(["undo", "--yes"]).ok();
    assert_eq!(fs::read_to_string(path("a")).unwrap(), "1");
    // The same forth: one is redone by hand, and the other has nothing to put back.
    fs::write(path("a"), "0").unwrap();
    program.run(["redo"]).ok();
    program.run(["redo"]).ok();
    let nothing = program.run(["redo"]).exits(2);
    assert!(nothing.stderr.contains("there is nothing to redo"), "{}", nothing.stderr);
}

/// What is told after `-C` can be typed where one stands, and is about the workspace that was named.
#[test]
fn commands_that_are_told_after_another_directory_was_named_name_it_too() {
    let program = captured();
    let root = program.workspace();
    let place = root.to_str().unwrap();
    let elsewhere = |arguments: &[&str]| {
        run(program.command([&["-C", place][..], arguments].concat()).current_dir("/"))
    };
    fs::write(root.join("a.txt"), "changed").unwrap();
    let restored = elsewhere(&["restore", "s:0", "--yes"]).ok();
    fs::write(root.join("src/b.txt"), "changed").unwrap();
    let mut told = vec![
        restored,
        elsewhere(&["undo", "--dry-run"]).ok(),
        elsewhere(&["log"]).exits(2),
        elsewhere(&["log", "none"]).exits(2),
        elsewhere(&["show", "none"]).exits(2),
        elsewhere(&["show", "latest", "a.txt"]).exits(2),
        elsewhere(&["cat"]).exits(2),
        elsewhere(&["cat", "latest", "src"]).exits(2),
        elsewhere(&["cat", "latest", "none"]).exits(2),
        elsewhere(&["cat", "s:0:a.txt"]).exits(2),
        elsewhere(&["restore", "a.txt"]).exits(2),
        elsewhere(&["restore", "src/gone"]).exits(2),
        elsewhere(&["restore", "gone"]).exits(2),
        elsewhere(&["restore", "@none"]).exits(2),
        elsewhere(&["restore", "latest~9"]).exits(2),
    ];
    fs::write(root.join("a.txt"), "changed since").unwrap();
    told.push(elsewhere(&["undo", "--yes"]).exits(3));
    for run in told {
        let commands = run.commands();
        assert!(!commands.is_empty(), "{run:?}");
        for command in commands {
            assert!(command.starts_with(&format!("turnpoint -C {place} ")), "{command}: {run:?}");
        }
    }
    let gone = elsewhere(&["restore", "--session", "s", "src/b.txt~"]).exits(2).commands();
    assert_eq!(gone, [format!("turnpoint -C {place} log --session s 'src/b.txt~'")]);
    let none = elsewhere(&["cat", "latest", "none"]).exits(2).commands();
    let listed = program.paste(&none[0], std::path::Path::new("/")).ok().stdout;
    assert!(listed.contains("a.txt"), "{listed}");
}

/// A restore of what was saved would leave it for the same reason.
#[test]
fn a_way_past_is_named_only_where_there_is_one() {
    let program = captured();
    let (inside, above) = (program.workspace().join("src/b.txt"), program.workspace().join("src"));
    fs::write(&inside, "changed").unwrap();
    let done = program.run(["restore", "s:0", "--yes", "--json"]).ok().json();
    let id = &done["safety"];
    let safety = format!("{}:{}", id["session"].as_str().unwrap(), id["seq"]);
    fs::remove_dir_all(&above).unwrap();
    run(program.other("mkfifo").arg(&above)).ok();
    let told = program.run(["undo", "--yes"]).exits(3);
    assert!(told.stdout.contains("what is above it stays as it is\n  src/b.txt\n"), "{told:?}");
    assert_eq!(told.commands(), [""; 0], "{told:?}");
    program.run(["restore", &safety, "--yes"]).exits(3);
    assert!(!inside.exists());
    // What is saved first gives way.
    fs::remove_file(&above).unwrap();
    fs::write(&above, "a file").unwrap();
    let told = program.run(["undo", "--yes"]).exits(3);
    assert_eq!(told.commands(), [format!("turnpoint restore {safety}")], "{told:?}");
    program.run(["restore", &safety, "--yes"]).ok();
    assert_eq!(fs::read_to_string(&inside).unwrap(), "changed");
}

#[test]
fn the_one_before_is_named_as_far_as_it_can_be_told() {
    let program = captured();
    let file = program.workspace().join("a.txt");
    let safety = |words: &[&str]| {
        let done = program.run([words, &["--yes", "--json"]].concat()).ok().json();
        done["safety"].clone()
    };
    let earlier = |verb: &str| {
        let planned = program.run([verb, "--dry-run", "--json"]).ok().json();
        assert!(planned["takes_back"]["origin"].is_object(), "{planned}");
        planned["takes_back"]["earlier"].clone()
    };
    fs::write(&file, "two").unwrap();
    let first = safety(&["restore", "s:0"]);
    fs::write(program.workspace().join("src/b.txt"), "three").unwrap();
    safety(&["restore", "s:0"]);
    assert_eq!(earlier("undo"), first);
    let undone = safety(&["undo"]);
    safety(&["undo"]);
    assert_eq!(earlier("redo"), undone);
    // A restore in between ends it.
    safety(&["restore", "s:0"]);
    safety(&["undo"]);
    assert_eq!(earlier("redo"), Value::Null);
    // One that cannot be read is no reason not to take back the newest.
    fs::write(&file, "four").unwrap();
    let newest = safety(&["restore", "s:0"]);
    let seq = newest["seq"].as_u64().unwrap();
    let session = program.store().join(newest["session"].as_str().unwrap());
    for seq in 0..seq {
        fs::write(session.join(format!("{seq}.json")), "damaged").unwrap();
    }
    let planned = program.run(["undo", "--dry-run", "--json"]).json();
    assert_eq!(planned["takes_back"]["earlier"], Value::Null, "{planned}");
    program.run(["undo", "--yes"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "four");
}

#[test]
fn an_undo_that_is_all_conflict_names_the_ways_past_it() {
    let program = captured();
    let file = program.workspace().join("a.txt");
    let content = || fs::read_to_string(&file).unwrap();
    let mut safety = Vec::new();
    for text in ["two", "three"] {
        fs::write(&file, text).unwrap();
        let done = program.run(["restore", "s:0", "--yes", "--json"]).ok().json();
        let id = &done["safety"];
        safety.push(format!("{}:{}", id["session"].as_str().unwrap(), id["seq"]));
    }
    fs::write(&file, "mine").unwrap();
    // It is about the paths of that restore alone.
    let other = program.workspace().join("src/b.txt");
    fs::write(&other, "mine too").unwrap();
    for _ in 0..2 {
        let run = program.run(["undo", "--yes"]).exits(3);
        let [earlier, newest] = [&safety[0], &safety[1]];
        assert!(
            run.stderr.contains(&format!("`turnpoint restore {newest} a.txt` brings")),
            "{run:?}"
        );
        assert!(run.stderr.contains(&format!("`turnpoint restore {earlier}` all that")), "{run:?}");
        assert_eq!(content(), "mine");
    }
    let json = program.run(["undo", "--yes", "--json"]).exits(3).json();
    assert_eq!(
        json["takes_back"]["earlier"]["seq"].to_string(),
        safety[0].split(':').nth(1).unwrap()
    );
    // Each does what it says, and loses nothing: the first touches what was left, and nothing else.
    program.run(["restore", &safety[1], "a.txt", "--yes"]).ok();
    assert_eq!(fs::read_to_string(&other).unwrap(), "mine too");
    assert_eq!(content(), "three");
    program.run(["undo", "--yes"]).ok();
    assert_eq!(content(), "mine");
    program.run(["restore", &safety[0], "--yes"]).ok();
    assert_eq!(content(), "two");
    program.run(["undo", "--yes"]).ok();
    assert_eq!(content(), "mine");
    assert_eq!(fs::read_to_string(&other).unwrap(), "mine too");
}

#[test]
fn a_turn_that_is_not_there_is_not_offered() {
    let program = captured();
    let only = program.run(["rewind"]).ok().stdout;
    assert!(only.starts_with("nothing to rewind") && !only.contains("rewind 2"), "{only}");
    fs::write(program.workspace().join("a.txt"), "two").unwrap();
    program.run(["capture", "--session", "s"]).ok();
    let newest = program.run(["rewind"]).ok().stdout;
    assert!(newest.contains("`turnpoint rewind 2` goes one turn further back"), "{newest}");
    program.run(["rewind", "2", "--yes"]).ok();
    assert!(!program.run(["rewind", "2"]).ok().stdout.contains("rewind 3"));
}

#[test]
fn the_turn_before_is_one_of_the_session_that_was_named() {
    let program = captured();
    let file = program.workspace().join("a.txt");
    for session in ["s", "it", "it"] {
        fs::write(&file, "two").unwrap();
        program.run(["capture", "--session", session]).ok();
    }
    let newest = program.run(["rewind"]).ok();
    assert_eq!(newest.commands(), ["turnpoint rewind 2"], "{newest:?}");
    let named = program.run(["rewind", "1", "--session", "s"]).ok();
    assert_eq!(named.commands(), ["turnpoint rewind 2 --session s"], "{named:?}");
    program.paste(&format!("{} --yes", named.commands()[0]), &program.workspace()).ok();
    assert_eq!(fs::read_to_string(&file).unwrap(), "one");
}

#[test]
fn an_unpin_says_what_it_did_and_how_to_take_it_back() {
    let program = captured();
    let without = program.run(["unpin", "s:0"]).ok().stdout;
    assert_eq!(without, "s:0 was not pinned; nothing has changed\n");
    program.run(["pin", "s:0", "--note", "it's good"]).ok();
    let done = program.run(["unpin", "s:0"]).ok().stdout;
    assert!(done.contains(r"`turnpoint pin s:0 --note 'it'\''s good'` takes this back"), "{done}");
    assert_eq!(program.run(["list", "--json"]).ok().json()["checkpoints"][0]["pinned"], false);
}

#[test]
fn a_list_of_changed_paths_that_was_written_otherwise_is_not_believed() {
    let program = captured();
    let capture = |list: &[u8]| {
        fs::write(program.root().join("list"), list).unwrap();
        program.run(["capture", "--session", "s", "--changed-from", "../list", "--json"])
    };
    let newest = || program.run(["show", "s:latest", "--json"]).ok().json()["seq"].clone();
    // What is gone is known as long as the checkpoint before has it.
    fs::remove_file(program.workspace().join("a.txt")).unwrap();
    let known = capture(b"a.txt\n").ok().json();
    assert_eq!((&known["unknown_count"], &known["first_unknown"]), (&0.into(), &Value::Null));
    let unknown = capture(b"nope\n\na.txt\nsrc/none/x\n").ok().json();
    assert_eq!(unknown["unknown_count"], 3);
    assert_eq!(unknown["first_unknown"]["path"], "nope");
    let list = ["capture", "--session", "s", "--changed-from", "../list"];
    let told = program.run(list).ok().stderr;
    let expected = "note: 3 paths of the list are neither here nor in the checkpoint before, the first `nope`\n";
    assert_eq!(told, expected);

    build(&program.workspace(), [("a.txt", file("one")), ("odd\r", file("a name like any"))]);
    capture(b"odd\r\n").ok();
    let refused = |list: &[u8]| {
        let before = newest();
        let refused = capture(list).exits(2);
        assert_eq!(newest(), before, "something was captured");
        let error: Value = serde_json::from_str(&refused.stderr).unwrap();
        assert_eq!(error["code"], "invalid-list", "{error}");
        error["message"].as_str().unwrap().to_owned()
    };
    // On the disk, and only in the checkpoint before.
    let returned = refused(b"odd\r\n\r\na.txt\r\n");
    assert!(returned.contains("line 3 of the list") && returned.contains("`a.txt`"), "{returned}");
    capture(b"a.txt\n").ok();
    fs::remove_file(program.workspace().join("a.txt")).unwrap();
    refused(b"a.txt\r\n");
    capture(b"a.txt\n").ok();
    // With a NUL byte after each, a carriage return is a part of the name.
    assert_eq!(capture(b"src/b.txt\r\0").ok().json()["unknown_count"], 1);
    assert_eq!(capture(b"nothing\r\n\r\n").ok().json()["unknown_count"], 2);
    let long = [b"odd\r\n".to_vec(), vec![b'x'; (32 << 10) + 1]].concat();
    let long = refused(&long);
    assert!(long.contains("line 2 of the list is longer than 32768 bytes"), "{long}");
}

#[test]
fn the_words_of_other_tools_lead_to_what_does_the_same() {
    let program = captured();
    for (word, meant) in [
        ("checkout", "restore"),
        ("status", "diff"),
        ("commit", "capture"),
        ("forget", "prune"),
        ("blame", "log"),
        ("snapshots", "list"),
    ] {
        let refused = program.run([word]).exits(2);
        let tip = format!("tip: a similar subcommand exists: '{meant}'");
        assert!(refused.stderr.contains(&tip), "{}", refused.stderr);
    }
    let below = program.run(["worktree", "status"]).exits(2);
    assert!(!below.stderr.contains("'diff'"), "{}", below.stderr);
    let unknown = program.run(["log", "--stat"]).exits(2);
    assert!(!unknown.stderr.contains("as a value"), "{}", unknown.stderr);
    let range = program.run(["diff", "s:0..1"]).exits(2);
    assert!(range.stderr.contains("as in `turnpoint diff s:0 s:1`"), "{}", range.stderr);
    let turned = program.run(["restore", "src/b.txt", "latest"]).exits(2);
    assert!(turned.stderr.contains("as in `latest src/b.txt`"), "{}", turned.stderr);
}
