//! `plan`: a run in a work tree of its own whose outcome is a proposal.

use std::fs;
use std::io::{Read, Write};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::ground::ground;
use crate::support::program::{Program, Run};
use crate::support::tree::{build, file};
use crate::worktree::{assert_cleared, only, program, runs};

/// `plan --worktree ... -- sh -c SCRIPT`.
fn plan(program: &Program, options: &[&str], script: &str) -> Run {
    program.run([&["plan", "--worktree"], options, &["--", "sh", "-c", script]].concat())
}

const WORK: &str = "echo printed; echo aside >&2; echo more >> a.txt; echo made > made.txt; \
                    git rm -q c.txt; git commit -qm 'of the run'";

#[test]
fn a_proposal_is_the_answer_and_nothing_of_it_is_here_before_it_is_applied() {
    let program = program();
    let before = ground(&program);
    let proposed = plan(&program, &[], WORK).ok();
    let (id, path) = only(&program);
    let listed = program.run(["worktree", "list", "--json"]).ok().json();
    let session = listed["runs"][0]["session"].as_str().unwrap();
    assert_eq!(
        proposed.stdout,
        format!(
            "changes from {session}:0 to {session}:1\nM  a.txt\nD  c.txt\nA  made.txt\n\n\
             1 added, 1 modified, 1 deleted\nnot compared: 1 excluded\n"
        )
    );
    // What the command prints is not of the answer.
    let told = format!(
        "note: what is not committed here (2 paths) is not in the run; after `turnpoint capture` \
         `--from latest` brings what is new or changed, not what was deleted\nprinted\naside\nnote: it is in {}, on branch turnpoint/{id}\n\
         hint: `turnpoint diff {session}:0 {session}:1 --patch` shows it line by line\n\
         hint: `turnpoint worktree apply {id}` brings here what it changed\n\
         hint: `turnpoint worktree remove {id}` removes it once what is in it is held\n",
        path.display()
    );
    assert_eq!(proposed.stderr, told);
    assert_eq!(ground(&program), before);

    program.run(["worktree", "apply", &id, "--yes", "-q"]).ok();
    let root = program.workspace();
    assert_eq!(fs::read_to_string(root.join("a.txt")).unwrap(), "one\nmore\n");
    assert!(root.join("made.txt").exists() && !root.join("c.txt").exists());
    // Not wanted, it is dropped, and nothing is left of it.
    program.run(["undo", "--yes", "-q"]).ok();
    program.run(["worktree", "remove", &id, "--yes", "-q"]).ok();
    assert_eq!(ground(&program), before);
    assert_cleared(&program);
}

#[test]
fn a_proposal_can_be_read_by_git_and_by_programs() {
    let program = program();
    build(&program.workspace(), [("src/b.txt", file("two\n"))]);
    let patch = plan(&program, &["--patch", "-q"], WORK).ok().stdout;
    let path = only(&program).1;
    let mut git = program.other("git");
    git.args(["apply", "--whitespace=nowarn"]).stdin(Stdio::piped());
    let mut git = git.current_dir(program.workspace()).spawn().unwrap();
    git.stdin.take().unwrap().write_all(patch.as_bytes()).unwrap();
    assert!(git.wait().unwrap().success(), "{patch}");
    for name in ["a.txt", "made.txt", "src/b.txt"] {
        let read = |top: &std::path::Path| fs::read_to_string(top.join(name)).unwrap();
        assert_eq!(read(&program.workspace()), read(&path), "{name}");
    }
    assert!(!program.workspace().join("c.txt").exists());

    let stat = plan(&program, &["--stat", "-q"], "echo 1 >> a.txt; seq 3 > n").ok().stdout;
    assert_eq!(stat, " a.txt | 1 +\n n     | 3 +++\n");

    let document = plan(&program, &["--json", "--session", "s"], WORK).ok();
    let proposed = document.json();
    assert_eq!((&proposed["schema"], &proposed["status"]), (&json!(1), &json!(0)));
    assert_eq!(
        proposed["changes"],
        json!([
            {"path": "a.txt", "change": "modified"},
            {"path": "c.txt", "change": "deleted"},
            {"path": "made.txt", "change": "added"},
        ])
    );
    assert_eq!(proposed["before"], json!({"session": "s", "seq": 0}));
    assert_eq!(proposed["after"], json!({"session": "s", "seq": 1}));
    assert_eq!(proposed["removed"], Value::Null);
    assert_eq!(proposed["command"][0]["text"], "sh");
    let run = proposed["run"].as_str().unwrap();
    assert_eq!(proposed["branch"], format!("turnpoint/{run}"));
    assert!(proposed["root"].as_str().unwrap().ends_with(run), "{proposed}");
    assert_eq!(document.stderr, "printed\naside\n");
}

#[test]
fn a_command_that_fails_proposes_nothing() {
    let program = program();
    let before = ground(&program);
    let failed = plan(&program, &[], "echo made > made.txt; exit 7").exits(7);
    assert_eq!(failed.stdout, "");
    assert!(failed.stderr.contains("sh, ended with 7: 1 added"), "{}", failed.stderr);
    assert!(failed.stderr.contains(" was removed"), "{}", failed.stderr);
    assert_cleared(&program);
    let failed = plan(&program, &["--json"], "echo made > made.txt; kill -TERM $$").exits(143);
    let document = failed.json();
    assert_eq!((&document["status"], &document["signal"]), (&json!(143), &json!(15)));
    assert_eq!(document["removed"]["kept"], document["after"]);
    assert_eq!(document["changes"], json!([{"path": "made.txt", "change": "added"}]));

    let missing = program.run(["plan", "--worktree", "--", "no-such-command"]).exits(127);
    assert_eq!(missing.stdout, "");
    assert!(missing.stderr.contains("cannot run no-such-command"), "{}", missing.stderr);
    let missing = program.run(["plan", "--worktree", "--json", "--", "no-such-command"]).exits(127);
    assert_eq!(missing.json()["notices"][0]["code"], "cannot-run");
    program.run(["plan", "--worktree", "--", "./a.txt"]).exits(126);
    assert_cleared(&program);
    assert_eq!(ground(&program), before);
}

#[test]
fn there_is_no_proposal_without_a_work_tree_of_its_own() {
    let program = program();
    let refused = program.run(["plan", "--", "touch", "made.txt"]).exits(2);
    assert!(refused.stderr.contains("add --worktree"), "{}", refused.stderr);
    let refused = program.run(["plan", "--json", "--", "touch", "made.txt"]).exits(2);
    let error: Value = serde_json::from_str(&refused.stderr).unwrap();
    assert_eq!(error["code"], "usage");
    assert!(error["message"].as_str().unwrap().contains("--worktree"), "{error}");
    plan(&program, &["--json", "--patch"], "touch made.txt").exits(2);
    assert!(!program.workspace().join("made.txt").exists());
    let elsewhere = program.root().join("plain");
    fs::create_dir(&elsewhere).unwrap();
    let words = ["-C", elsewhere.to_str().unwrap(), "plan", "--worktree", "--", "true"];
    let refused = program.run(words).exits(2);
    assert!(refused.stderr.contains("is not in a git repository"), "{}", refused.stderr);
    assert_cleared(&program);
}

#[test]
fn what_cannot_be_told_is_no_proposal_and_the_work_tree_is_there() {
    let program = program();
    let format = program.store().join("format.json");
    let (saved, store) = (program.root().join("saved"), format.display());
    let breaking = format!(
        "mv {store} {}; echo '{{\"turnpoint_store\":99}}' > {store}; echo made > made.txt",
        saved.display()
    );
    let run = plan(&program, &[], &breaking).exits(125);
    assert_eq!(run.stdout, "");
    assert!(run.stderr.contains("is in no checkpoint"), "{}", run.stderr);
    fs::rename(saved, &format).unwrap();
    let (id, path) = only(&program);
    assert!(path.join("made.txt").exists());
    program.run(["worktree", "apply", &id, "--yes"]).ok();
    assert!(program.workspace().join("made.txt").exists());
}

/// The signal comes when the run is made and its command is not started: as long as nobody reads what it says, it
/// goes no further.
#[test]
fn a_plan_that_is_stopped_says_what_became_of_the_run() {
    let program = program();
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    let filling = std::iter::from_fn(|| writer.write(&[b'.'; 512]).ok()).sum::<usize>();
    rustix::io::ioctl_fionbio(&writer, false).unwrap();
    let mut command = program.command(["plan", "--worktree", "--", "touch", "../started"]);
    // That it is not there is a note.
    command.env("TURNPOINT_EXTRAS_COPY", "[\"missing\"]").stdin(Stdio::null());
    let mut child = command.stdout(Stdio::null()).stderr(writer).spawn().unwrap();
    drop(command);
    let path = loop {
        assert_eq!(child.try_wait().unwrap(), None);
        let made = runs(&program, &[]).into_iter().find(|run| !run["before"].is_null());
        if let Some(run) = made {
            break run["path"].as_str().unwrap().to_owned();
        }
    };
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let mut told = Vec::new();
    reader.read_to_end(&mut told).unwrap();
    let told = String::from_utf8_lossy(&told[filling..]).into_owned();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{told}");
    assert!(told.contains(&format!("note: its work tree {path} was removed\n")), "{told}");
    assert!(told.contains("error: "), "{told}");
    assert_cleared(&program);
    assert!(!program.workspace().join("../started").exists());
}

#[test]
fn a_command_that_changes_nothing_leaves_nothing_to_apply() {
    let program = program();
    let run = plan(&program, &[], "true").ok();
    assert!(run.stdout.starts_with("nothing differs between "), "{}", run.stdout);
    let (id, _) = only(&program);
    assert!(run.stderr.contains(&format!("`turnpoint worktree remove {id}`")), "{}", run.stderr);
    assert!(!run.stderr.contains("worktree apply"), "{}", run.stderr);
    program.run(["worktree", "remove", &id]).ok();
    assert_eq!(runs(&program, &[]), Vec::<Value>::new());
}
