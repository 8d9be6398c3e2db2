//! `exec --worktree` and `worktree`: a command that cannot harm the checkout, and a removal that loses
//! nothing.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;

use crate::support::corpus::Random;
use crate::support::ground::ground;
use crate::support::program::{Program, Run, run};
use crate::support::tree::{build, file};
use crate::worktree_removal::bound;

/// A repository with two commits, something staged, something changed, and a stash.
pub(crate) fn program() -> Program {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    let root = program.workspace();
    build(
        &root,
        [
            (".gitignore", file("*.log\n.env\nbuild/\n")),
            ("a.txt", file("one\n")),
            ("src/b.txt", file("two\n")),
        ],
    );
    program.git(["init", "-q"]);
    program.git(["add", "."]);
    program.git(["commit", "-q", "-m", "first"]);
    build(&root, [("a.txt", file("stashed\n"))]);
    program.git(["stash", "-q"]);
    build(&root, [("c.txt", file("three\n"))]);
    program.git(["add", "c.txt"]);
    program.git(["commit", "-q", "-m", "second"]);
    build(&root, [("src/b.txt", file("staged\n"))]);
    program.git(["add", "src/b.txt"]);
    build(&root, [("src/b.txt", file("changed\n")), ("new.txt", file("untracked\n"))]);
    program
}

/// `exec --worktree ... -- sh -c SCRIPT`.
pub(crate) fn exec(program: &Program, options: &[&str], script: &str) -> Run {
    program.run([&["exec", "--worktree"], options, &["--", "sh", "-c", script]].concat())
}

pub(crate) fn runs(program: &Program, options: &[&str]) -> Vec<Value> {
    let listed = program.run([&["worktree", "list", "--json"], options].concat()).ok().json();
    assert_eq!(listed["unreadable"], serde_json::json!([]));
    listed["runs"].as_array().unwrap().clone()
}

/// The one run that there is.
#[track_caller]
pub(crate) fn only(program: &Program) -> (String, PathBuf) {
    let runs = runs(program, &[]);
    assert_eq!(runs.len(), 1, "{runs:?}");
    (runs[0]["run"].as_str().unwrap().to_owned(), runs[0]["path"].as_str().unwrap().into())
}

/// That nothing of any run is left in the checkout or in git.
#[track_caller]
pub(crate) fn assert_cleared(program: &Program) {
    assert!(!program.workspace().join(".turnpoint").exists(), "a directory is left");
    let branches = program.git(["for-each-ref", "refs/heads/turnpoint"]);
    assert_eq!(branches, "", "a branch is left");
    let administration = program.workspace().join(".git/worktrees");
    let left = fs::read_dir(administration).map_or(0, Iterator::count);
    assert_eq!(left, 0, "git keeps a work tree");
    assert_eq!(runs(program, &[]), Vec::<Value>::new());
}

#[track_caller]
pub(crate) fn cat(program: &Program, checkpoint: &Value, path: &str) -> Vec<u8> {
    let id = format!("{}:{}", checkpoint["session"].as_str().unwrap(), checkpoint["seq"]);
    program.run(["cat", &id, path]).ok().stdout_bytes
}

#[test]
fn a_command_that_succeeds_leaves_its_work_tree() {
    let program = program();
    let before = ground(&program);
    let script = "pwd; cat a.txt src/b.txt; test -e new.txt && echo wrong; echo made > made.txt";
    let run = exec(&program, &[], script).ok();
    let (id, path) = only(&program);
    assert_eq!(run.stdout, format!("{}\none\ntwo\n", path.display()));
    assert_eq!(path, program.workspace().join(".turnpoint/worktrees").join(&id));
    assert!(run.stderr.contains(&format!("is in {}, on branch turnpoint/{id}", path.display())));
    assert!(run.stderr.contains("  A  made.txt\n"), "{}", run.stderr);
    assert_eq!(fs::read_to_string(path.join("made.txt")).unwrap(), "made\n");
    let head = program.git(["rev-parse", "HEAD"]);
    assert_eq!(program.git(["rev-parse", &format!("refs/heads/turnpoint/{id}")]), head);
    assert_eq!(ground(&program), before);
    let seen = &runs(&program, &[])[0];
    assert_eq!((&seen["state"], &seen["status"]), (&"ended".into(), &0.into()));
    assert_eq!((&seen["changed"], &seen["commits"]), (&1.into(), &0.into()));
    assert!(seen["bytes"].as_u64().unwrap() > 0);
    assert_eq!(seen["commit"], head.as_str());
    // Two checkpoints of the work tree, in a session that is not the workspace's.
    let session = seen["session"].as_str().unwrap();
    assert!(session.starts_with("work-runs-"), "{session}");
    let listed = program.run(["list", "--session", session, "--json"]).ok().json();
    let made = listed["checkpoints"].as_array().unwrap();
    assert_eq!(made.len(), 2);
    assert!(made.iter().all(|it| it["root"] == path.to_str().unwrap() && it["trigger"] == "exec"));
    program.run(["worktree", "remove", &id, "--yes"]).ok();
    assert_cleared(&program);
    assert_eq!(ground(&program), before);
    let removed = &runs(&program, &["--removed"])[0];
    assert_eq!(cat(&program, &removed["kept"], "made.txt"), b"made\n");
    program.run(["worktree", "remove", &id, "--yes"]).exits(2);
    program.run(["worktree", "remove", "00000000", "--yes"]).exits(2);
    assert!(program.run(["doctor"]).ok().stderr.is_empty());
}

#[test]
fn a_command_that_fails_leaves_a_checkpoint_and_nothing_else() {
    let program = program();
    let before = ground(&program);
    let large = "head -c 9000000 /dev/zero > large; mkdir -p build target/empty; echo x > build/x; echo y > y.log";
    let run =
        exec(&program, &["--session", "s"], &format!("echo made > made.txt; {large}; exit 3"));
    let run = run.exits(3);
    assert_cleared(&program);
    assert_eq!(ground(&program), before);
    let removed = &runs(&program, &["--removed"])[0];
    assert_eq!(removed["status"], 3);
    assert_eq!(removed["refs"], serde_json::json!([]));
    assert_eq!(removed["kept"]["session"], "s");
    assert_eq!(cat(&program, &removed["kept"], "made.txt"), b"made\n");
    // Whatever its size; what git ignores went with it, named and counted before it did.
    assert_eq!(cat(&program, &removed["kept"], "large").len(), 9_000_000);
    assert!(run.stderr.contains("no checkpoint holds 2 files ("), "{}", run.stderr);
    assert!(run.stderr.contains(": build (ignored), y.log (ignored)\n"), "{}", run.stderr);
    assert!(run.stderr.contains("was removed"), "{}", run.stderr);
    // A signal is a failure, and so is a command that does not exist.
    exec(&program, &[], "kill -TERM $$").exits(143);
    program.run(["exec", "--worktree", "--", "no-such-command"]).exits(127);
    assert_cleared(&program);
    let kept = exec(&program, &["--keep", "always"], "exit 4").exits(4);
    assert!(kept.stderr.contains("on branch turnpoint/"), "{}", kept.stderr);
    let (id, _) = only(&program);
    // Nothing is in it: nobody is asked.
    program.run(["worktree", "remove", &id]).ok();
    assert_cleared(&program);
}

#[test]
fn commits_and_what_is_staged_are_led_to_by_refs() {
    let program = program();
    let before = ground(&program);
    let script = "git config user.name x; \
                  echo 1 > one && git add one && git commit -qm one && git rev-parse HEAD; \
                  git checkout -q --detach && echo 2 > two && git add two && git commit -qm two && \
                  git rev-parse HEAD; git reset -q --hard HEAD~ && git checkout -q --detach HEAD~ && \
                  echo 3 > three && git add three && git commit -qm three && git rev-parse HEAD; \
                  echo staged > a.txt; git add a.txt; echo later > a.txt; exit 1";
    // Without the name, which is written into the shared configuration by the command itself.
    let run = exec(&program, &[], script.trim_start_matches("git config user.name x; ")).exits(1);
    let commits: Vec<&str> = run.stdout.lines().collect();
    assert_eq!(commits.len(), 3, "{}", run.stderr);
    assert_cleared(&program);
    assert_eq!(ground(&program), before);
    let removed = &runs(&program, &["--removed"])[0];
    let id = removed["run"].as_str().unwrap();
    let led_to =
        |name: &str| program.git(["rev-parse", &format!("refs/turnpoint/removed/{id}/{name}")]);
    // The second follows the first, which is the branch's.
    let kept: Vec<String> = ["head", "log-1"].map(led_to).to_vec();
    assert_eq!(kept, [commits[2], commits[1]]);
    assert!(run.stderr.contains(&format!("refs/turnpoint/removed/{id}/head leads to its work")));
    assert_eq!(program.git(["show", &format!("{}:one", kept[1])]), "1");
    let index = led_to("index");
    assert_eq!(program.git(["show", &format!("{index}:a.txt")]), "staged");
    assert_eq!(cat(&program, &removed["kept"], "a.txt"), b"later\n");
    assert_eq!(removed["refs"].as_array().unwrap().len(), 3);
    assert_eq!(
        program
            .git(["for-each-ref", "--format=%(objecttype)", "refs/turnpoint"])
            .lines()
            .collect::<Vec<_>>(),
        ["commit"; 3]
    );
    // A commit that a branch of the user's leads to needs no ref.
    exec(
        &program,
        &[],
        "echo 4 > four && git add four && git commit -qm four && \
                         git branch mine && exit 1",
    )
    .exits(1);
    let removed = &runs(&program, &["--removed"])[1];
    assert_eq!(removed["refs"], serde_json::json!([]));
    assert_eq!(program.git(["show", "mine:four"]), "4");
}

/// Each is something that no checkpoint holds.
#[test]
fn a_work_tree_with_something_in_it_that_would_be_lost_stays() {
    let program = program();
    let ground_before = ground(&program);
    for (script, named) in [
        ("echo secret > id_rsa", "id_rsa: secret"),
        ("mkfifo pipe", "pipe: special"),
        ("mkdir target; echo x > target/x", "target: excluded"),
        ("git init -q inner; echo x > inner/x", "inner/.git: version control of its own"),
        ("mkdir -p .turnpoint/worktrees; echo x > .turnpoint/x", ".turnpoint: version control"),
    ] {
        let run = exec(&program, &[], &format!("echo made > made.txt; {script}; exit 3")).exits(3);
        assert!(run.stderr.contains("could not be held and would be lost"), "{}", run.stderr);
        assert!(run.stderr.contains(&format!("  {named}")), "{}", run.stderr);
        assert!(run.stderr.contains("on branch turnpoint/"), "{}", run.stderr);
        let (id, path) = only(&program);
        assert_eq!(fs::read_to_string(path.join("made.txt")).unwrap(), "made\n");
        program.run(["worktree", "remove", &id, "--yes"]).exits(3);
        let json = program.run(["worktree", "remove", &id, "--yes", "--json"]).exits(3);
        let error: Value = serde_json::from_str(&json.stderr).unwrap();
        assert_eq!(error["code"], "worktree-not-held");
        assert!(path.join("made.txt").exists());
        if script.starts_with("mkfifo") {
            let ignored = program.run(["worktree", "remove", "--ignored", &id, "--yes"]).exits(3);
            let both =
                format!("`turnpoint worktree remove --ignored --discard {id}` gives the rest");
            assert!(ignored.stderr.contains(&both), "{}", ignored.stderr);
            // What is named does it, and asks too.
            let command = ignored.commands().into_iter().find(|it| it.contains("--discard"));
            let command = command.unwrap();
            program.paste(&command, &program.workspace()).exits(3);
            assert!(path.join("made.txt").exists());
            program.paste(&format!("{command} --yes"), &program.workspace()).ok();
            assert_cleared(&program);
            continue;
        }
        // Given up only by saying so, and that asks.
        program.run(["worktree", "remove", &id, "--discard"]).exits(3);
        assert!(path.join("made.txt").exists());
        program.run(["worktree", "remove", &id, "--discard", "--yes"]).ok();
        assert_cleared(&program);
    }
    assert_eq!(ground(&program), ground_before);
}

/// As repositories have it that track no more than they name.
#[test]
fn a_checkout_that_ignores_all_but_what_it_names_does_not_see_its_runs() {
    let program = program();
    build(&program.workspace(), [(".gitignore", file("*\n!*/\n!*.txt\n!.gitignore\n"))]);
    program.git(["commit", "-q", "-m", "names", "--", ".gitignore"]);
    let seen = || {
        let status = program.git(["--no-optional-locks", "status", "--porcelain"]);
        (status, program.git(["add", "--all", "--dry-run"]))
    };
    let before = seen();
    exec(&program, &[], "echo made > made.txt").ok();
    exec(&program, &[], "echo more > more.txt").ok();
    assert_eq!(seen(), before);
    for run in runs(&program, &[]) {
        program.run(["worktree", "remove", run["run"].as_str().unwrap(), "--yes"]).ok();
        assert_eq!(seen(), before);
    }
    assert_cleared(&program);
}

#[test]
fn what_git_holds_or_ignores_is_nothing_that_would_be_lost() {
    let program = program();
    build(&program.workspace(), [("test.pem", file("for tests\n"))]);
    program.git(["add", "test.pem"]);
    program.git(["commit", "-q", "-m", "a key that is no secret", "--", "test.pem"]);
    // Tracked and as in the commit, and ignored by git.
    exec(&program, &[], "echo KEY=1 > .env; exit 1").exits(1);
    assert_cleared(&program);
    // Changed, it is held by nobody.
    exec(&program, &[], "echo other > test.pem; exit 1").exits(1);
    let (id, path) = only(&program);
    assert_eq!(fs::read_to_string(path.join("test.pem")).unwrap(), "other\n");
    program.git(["-C", path.to_str().unwrap(), "commit", "-qam", "changed"]);
    program.run(["worktree", "remove", &id, "--yes"]).ok();
    let name = format!("refs/turnpoint/removed/{id}/branch:test.pem");
    assert_eq!(program.git(["show", &name]), "other");
    assert_cleared(&program);
}

#[test]
fn what_is_ignored_is_held_where_that_is_asked_for() {
    let program = program();
    let script = "mkdir -p build/deep node_modules; echo 1 > build/deep/x; echo 2 > y.log; \
                  echo 3 > node_modules/z; echo KEY=1 > .env";
    exec(&program, &[], script).ok();
    let (id, path) = only(&program);
    // The secret cannot be held, and is not to be left out now.
    let run = program.run(["worktree", "remove", &id, "--yes", "--ignored"]).exits(3);
    assert!(run.stderr.contains("  .env: secret"), "{}", run.stderr);
    fs::remove_file(path.join(".env")).unwrap();
    program.run(["worktree", "remove", &id, "--yes", "--ignored"]).ok();
    assert_cleared(&program);
    let kept = &runs(&program, &["--removed"])[0]["kept"];
    for (path, content) in [("build/deep/x", "1\n"), ("y.log", "2\n"), ("node_modules/z", "3\n")] {
        assert_eq!(cat(&program, kept, path), content.as_bytes(), "{path}");
    }
}

#[test]
fn nobody_is_interrupted_by_a_removal() {
    let program = program();
    exec(&program, &[], "echo made > made.txt").ok();
    let (id, path) = only(&program);
    let mut sitting = Command::new("sleep").arg("60").current_dir(&path).spawn().unwrap();
    let refused = program.run(["worktree", "remove", &id, "--yes"]).exits(3);
    sitting.kill().unwrap();
    sitting.wait().unwrap();
    assert!(refused.stderr.contains(&format!("process {}", sitting.id())), "{}", refused.stderr);
    let git = |words: &[&str]| run(program.other("git").args(words).current_dir(&path));
    git(&["worktree", "lock", "--reason", "mine", path.to_str().unwrap()]).ok();
    let refused = program.run(["worktree", "remove", &id, "--yes", "--discard"]).exits(3);
    assert!(refused.stderr.contains("is locked: mine"), "{}", refused.stderr);
    git(&["worktree", "unlock", path.to_str().unwrap()]).ok();
    // A merge that has not ended.
    git(&["checkout", "-q", "-b", "other"]).ok();
    for (branch, content) in [("other", "x"), ("third", "y")] {
        if branch == "third" {
            git(&["checkout", "-q", "-b", "third", "HEAD~"]).ok();
        }
        fs::write(path.join("a.txt"), content).unwrap();
        git(&["commit", "-qam", branch]).ok();
    }
    git(&["merge", "other"]).exits(1);
    let refused = program.run(["worktree", "remove", &id, "--yes"]).exits(3);
    assert!(refused.stderr.contains("a merge has not ended"), "{}", refused.stderr);
    git(&["merge", "--abort"]).ok();
    assert_eq!(fs::read_to_string(path.join("made.txt")).unwrap(), "made\n");
    // Where its branch is elsewhere both go all the same.
    program.run(["worktree", "remove", &id, "--yes"]).ok();
    assert_cleared(&program);
    // While its command runs, nobody else removes a run.
    let mut child = program
        .command(["exec", "--worktree", "--", "sh", "-c", "echo ready; read line; cd /; exit 1"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let (id, _) = only(&program);
    assert_eq!(runs(&program, &[])[0]["state"], "running");
    let refused = program.run(["worktree", "remove", &id, "--yes"]).exits(3);
    assert!(refused.stderr.contains("is at work"), "{}", refused.stderr);
    let told = format!("there is nothing to remove\nrun {id} stays: it is at work\n");
    assert_eq!(program.run(["worktree", "prune"]).ok().stdout, told);
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert_cleared(&program);
}

#[test]
fn what_a_run_cannot_be_made_from_is_told_at_once() {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    let words = ["exec", "--worktree", "--", "touch", "ran"];
    let listed = program.run(["worktree", "list"]).exits(2).stderr;
    assert!(
        listed.contains("runs belong to a repository") && !listed.contains("runs here"),
        "{listed}"
    );
    let refused = program.run(words).exits(2);
    assert!(refused.stderr.contains("is not in a git repository"), "{}", refused.stderr);
    program.git(["init", "-q"]);
    let refused = program.run(words).exits(2);
    assert!(refused.stderr.contains("has no commit yet"), "{}", refused.stderr);
    program.git(["commit", "-q", "--allow-empty", "-m", "first"]);
    let inside = program.workspace().join(".git/refs");
    let refused = run(program.command(words).current_dir(&inside)).exits(2);
    assert!(refused.stderr.contains("is in the directory of git itself"), "{}", refused.stderr);
    let bare = program.root().join("bare.git");
    program.git(["init", "-q", "--bare", bare.to_str().unwrap()]);
    let refused = run(program.command(words).current_dir(&bare)).exits(2);
    assert!(refused.stderr.contains("in a bare git repository"), "{}", refused.stderr);
    let refused = run(program.command(words).env("PATH", program.root())).exits(3);
    assert!(refused.stderr.contains("git is not installed"), "{}", refused.stderr);
    let refused = program.run(["exec", "--worktree", "--from", "s:0", "--", "true"]).exits(2);
    assert!(refused.stderr.contains("there is no session `s`"), "{}", refused.stderr);
    // Another directory in the place of ours is not gone through.
    std::os::unix::fs::symlink(program.root(), program.workspace().join(".turnpoint")).unwrap();
    let refused = program.run(words).exits(3);
    assert!(refused.stderr.contains("move yours away"), "{}", refused.stderr);
    assert!(!program.root().join("worktrees").join("ran").exists());
    assert_eq!(runs(&program, &[]), Vec::<Value>::new());
    assert!(!program.workspace().join("ran").exists());
}

#[test]
fn the_surroundings_do_not_lead_the_command_to_the_checkout() {
    let program = program();
    let before = ground(&program);
    let git = program.workspace().join(".git");
    let words = [
        "exec",
        "--worktree",
        "--",
        "sh",
        "-c",
        "git rev-parse --show-toplevel; echo x > inside; git add -A; git commit -qm inside; echo $GIT_AUTHOR_NAME; exit 1",
    ];
    fs::write(program.workspace().join("new.txt"), "untracked\n").unwrap();
    let mut command = program.command(words);
    command
        .env("GIT_DIR", &git)
        .env("GIT_WORK_TREE", program.workspace())
        .env("GIT_INDEX_FILE", git.join("index"))
        .env("GIT_PREFIX", "src/")
        .env("GIT_OBJECT_DIRECTORY", git.join("objects"))
        .env("GIT_AUTHOR_NAME", "kept");
    let seen = run(&mut command).exits(1);
    let mut lines = seen.stdout.lines();
    let place = program.workspace().join(".turnpoint/worktrees");
    assert!(lines.next().unwrap().starts_with(place.to_str().unwrap()), "{}", seen.stdout);
    assert_eq!(lines.next(), Some("kept"));
    assert_cleared(&program);
    assert_eq!(ground(&program), before);
}

#[test]
fn the_command_starts_where_one_stands_and_runs_from_everywhere() {
    let program = program();
    let words = ["exec", "--worktree", "--", "pwd"];
    let below = |run: &Run| {
        let (_, rest) = run.stdout.trim_end().split_once("/.turnpoint/worktrees/").unwrap();
        rest.split_once('/').map(|(_, below)| below.to_owned())
    };
    let src = program.workspace().join("src");
    assert_eq!(below(&run(program.command(words).current_dir(&src)).ok()).as_deref(), Some("src"));
    fs::create_dir_all(src.join("new/deep")).unwrap();
    let seen = run(program.command(words).current_dir(src.join("new/deep"))).ok();
    assert_eq!(below(&seen), None);
    assert!(seen.stderr.contains("src/new/deep is not in the commit"), "{}", seen.stderr);
    program.run(["worktree", "prune", "--older-than", "0s"]).ok();
    assert_cleared(&program);
    // From another work tree of the repository: there, and known everywhere.
    let linked = program.root().join("linked");
    program.git(["worktree", "add", "-q", linked.to_str().unwrap(), "-b", "linked"]);
    let seen = run(program.command(words).current_dir(&linked)).ok();
    assert!(seen.stdout.starts_with(linked.to_str().unwrap()), "{}", seen.stdout);
    let status = run(program.other("git").args(["status", "--porcelain"]).current_dir(&linked));
    assert_eq!(status.ok().stdout, "");
    let (id, _) = only(&program);
    program.run(["worktree", "remove", &id]).ok();
    assert!(!linked.join(".turnpoint").exists());
    program.git(["worktree", "remove", linked.to_str().unwrap()]);
    // From a hook, to which git says which repository it is of.
    let hook = program.workspace().join(".git/hooks/post-commit");
    let binary = env!("CARGO_BIN_EXE_turnpoint");
    fs::create_dir_all(hook.parent().unwrap()).unwrap();
    fs::write(
        &hook,
        format!("#!/bin/sh\nexec {binary} exec --worktree -- sh -c 'cat c.txt > hooked; exit 1'\n"),
    )
    .unwrap();
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    program.git(["commit", "-q", "--allow-empty", "-m", "third"]);
    let removed = runs(&program, &["--removed"]);
    assert_eq!(cat(&program, &removed.last().unwrap()["kept"], "hooked"), b"three\n");
    assert_cleared(&program);
}

/// Each is typed where the program was, with `-C`.
#[test]
fn what_is_told_to_do_next_is_about_the_place_that_was_named() {
    let program = program();
    let (root, work) = (program.root().to_owned(), program.workspace());
    let place = work.to_str().unwrap();
    let from_root =
        |words: &[&str]| run(program.command([&["-C", place], words].concat()).current_dir(&root));
    let begun = format!("turnpoint -C {place} ");
    let told = |run: &Run, ends: &[&str]| {
        let commands = run.commands();
        let rests: Vec<_> = commands.iter().map(|it| it.strip_prefix(&begun)).collect();
        let ends: Vec<_> = ends.iter().copied().map(Some).collect();
        assert_eq!(rests, ends, "{}", run.stderr);
        commands
    };
    let made = from_root(&["exec", "--", "sh", "-c", "echo made > here"]).ok();
    let commands = made.commands();
    assert!(commands[0].starts_with(&format!("{begun}restore ")), "{}", made.stderr);
    program.paste(&format!("{} --yes", commands[0]), &root).ok();
    assert!(!work.join("here").exists());

    let made = from_root(&["exec", "--worktree", "--", "sh", "-c", "echo made > made.txt"]).ok();
    let (id, path) = only(&program);
    let (apply, remove) = (format!("worktree apply {id}"), format!("worktree remove {id}"));
    let commands = made.commands();
    assert_eq!(commands.len(), 4, "{}", made.stderr);
    assert_eq!(commands[0], format!("{begun}capture"));
    assert!(commands[1].starts_with(&format!("{begun}diff ")), "{}", commands[1]);
    assert_eq!(commands[2..], [format!("{begun}{apply}"), format!("{begun}{remove}")]);
    for command in &commands[..2] {
        program.paste(command, &root).ok();
    }
    let applied = program.paste(&format!("{} --yes", commands[2]), &root).ok();
    told(&applied, &["undo", &remove]);
    assert_eq!(fs::read_to_string(work.join("made.txt")).unwrap(), "made\n");

    let kept = from_root(&["worktree", "prune"]).ok();
    told(&kept, &["worktree remove RUN"]);
    program.git(["worktree", "lock", path.to_str().unwrap()]);
    let locked = from_root(&["worktree", "remove", &id, "--yes"]).exits(3);
    let unlock = format!("git -C {place} worktree unlock {}", path.display());
    assert!(locked.stderr.contains(&format!("`{unlock}`")), "{}", locked.stderr);
    program.paste(&unlock, &root).ok();
    program.paste(&format!("{} --yes", commands[3]), &root).ok();
    assert_cleared(&program);
    let removed = from_root(&["worktree", "list", "--removed"]).ok();
    told(&removed, &["worktree apply RUN", "restore CHECKPOINT --into DIR"]);
    let unknown = from_root(&["worktree", "remove", "00000000", "--yes"]).exits(2);
    let commands = told(&unknown, &["worktree list"]);
    program.paste(&commands[0], &root).ok();

    // What is said beside a command, of a run that is pruned, and of one that is removed.
    let script = "echo secret > id_rsa; exit 3";
    let failed = from_root(&["exec", "--worktree", "-q", "--", "sh", "-c", script]).exits(3);
    let (id, _) = only(&program);
    let discard = format!("worktree remove --discard {id}");
    told(&failed, &[&discard]);
    told(&from_root(&["worktree", "prune", "-q", "--older-than", "0s"]).exits(3), &[&discard]);
    let commands = told(&from_root(&["worktree", "remove", &id, "--yes"]).exits(3), &[&discard]);
    program.paste(&format!("{} --yes", commands[0]), &root).ok();
    assert_cleared(&program);
}

#[test]
fn nothing_of_the_configuration_decides_what_is_made() {
    let program = program();
    let head = program.git(["rev-parse", "HEAD"]);
    let first = program.git(["rev-parse", "HEAD~"]);
    let log = program.root().join("log");
    let note = format!("echo ran >> {}", log.display());
    let hooks = program.root().join("hooks");
    fs::create_dir(&hooks).unwrap();
    for name in ["post-checkout", "reference-transaction", "fsmonitor"] {
        fs::write(hooks.join(name), format!("#!/bin/sh\n{note}\n")).unwrap();
        fs::set_permissions(hooks.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    for (key, value) in [
        ("core.hooksPath", hooks.to_str().unwrap()),
        ("core.fsmonitor", hooks.join("fsmonitor").to_str().unwrap()),
        ("branch.autoSetupMerge", "always"),
        ("checkout.defaultRemote", "nowhere"),
        ("worktree.guessRemote", "true"),
        ("worktree.useRelativePaths", "true"),
        ("commit.gpgSign", "true"),
        ("gpg.program", "/bin/false"),
    ] {
        program.git(["config", key, value]);
    }
    // Names that could be taken for something else.
    for name in ["refs/heads/HEAD", "refs/heads/-x", "refs/tags/HEAD"] {
        program.git(["-c", "core.hooksPath=/dev/null", "update-ref", name, &first]);
    }
    fs::remove_file(&log).ok();
    let config = fs::read(program.workspace().join(".git/config")).unwrap();
    let seen = program.run([
        "exec",
        "--worktree",
        "--",
        "git",
        "-c",
        "core.fsmonitor=false",
        "rev-parse",
        "HEAD",
    ]);
    assert_eq!(seen.ok().stdout.trim_end().lines().last(), Some(head.as_str()));
    let (id, path) = only(&program);
    // What is staged there is kept without asking who keeps it.
    fs::write(path.join("a.txt"), "staged").unwrap();
    program.git(["-c", "core.fsmonitor=false", "-C", path.to_str().unwrap(), "add", "a.txt"]);
    fs::write(path.join("a.txt"), "later").unwrap();
    fs::remove_file(&log).ok();
    program.run(["worktree", "remove", &id, "--yes"]).ok();
    assert!(!log.exists(), "a program of the configuration ran");
    assert_eq!(fs::read(program.workspace().join(".git/config")).unwrap(), config);
    let index = format!("refs/turnpoint/removed/{id}/index:a.txt");
    assert_eq!(program.git(["-c", "core.fsmonitor=false", "show", &index]), "staged");
}

#[test]
fn a_work_tree_is_what_git_checks_out() {
    let program = program();
    // A filter, a sparse checkout of the checkout's own, a submodule.
    let root = program.workspace();
    build(&root, [(".gitattributes", file("*.up filter=up\n")), ("x.up", file("loud\n"))]);
    let module = program.root().join("module");
    program.git(["init", "-q", module.to_str().unwrap()]);
    program.git(["-C", module.to_str().unwrap(), "commit", "-q", "--allow-empty", "-m", "m"]);
    let url = format!("file://{}", module.display());
    program.git([
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "--quiet",
        "add",
        &url,
        "module",
    ]);
    program.git(["add", ".gitattributes", "x.up"]);
    program.git(["commit", "-q", "-m", "third"]);
    program.git(["config", "filter.up.smudge", "tr a-z A-Z"]);
    program.git(["config", "filter.up.clean", "tr A-Z a-z"]);
    program.git(["config", "extensions.worktreeConfig", "true"]);
    program.git(["config", "--worktree", "user.nickname", "of this one"]);
    let before = ground(&program);
    let seen = exec(&program, &[], "cat x.up; ls -A module; git status --porcelain").ok();
    assert_eq!(seen.stdout, "LOUD\n");
    assert!(seen.stderr.contains("submodules are empty"), "{}", seen.stderr);
    let (id, _) = only(&program);
    program.run(["worktree", "remove", &id]).ok();
    assert_cleared(&program);
    assert_eq!(ground(&program), before);
    // Fetched there, a submodule may have commits that are nowhere else.
    exec(
        &program,
        &[],
        "git -c protocol.file.allow=always submodule --quiet update --init; exit 1",
    )
    .exits(1);
    let (id, path) = only(&program);
    assert!(path.join("module/.git").exists());
    program.run(["worktree", "remove", &id, "--yes"]).exits(3);
    program.run(["worktree", "remove", &id, "--yes", "--discard"]).ok();
    assert_cleared(&program);
    program.git(["sparse-checkout", "set", "--no-cone", "/src/", "/.gitattributes"]);
    let before = ground(&program);
    exec(&program, &[], "ls; echo changed > src/b.txt; exit 1").exits(1);
    assert_cleared(&program);
    assert_eq!(ground(&program), before);
    let kept = &runs(&program, &["--removed"]).last().unwrap()["kept"].clone();
    assert_eq!(cat(&program, kept, "src/b.txt"), b"changed\n");
}

#[test]
fn what_a_partial_clone_lacks_is_fetched() {
    let program = program();
    program.git(["config", "uploadpack.allowFilter", "true"]);
    let url = format!("file://{}", program.workspace().display());
    let clone = program.root().join("clone");
    program.git([
        "clone",
        "-q",
        "--filter=blob:none",
        "--no-checkout",
        &url,
        clone.to_str().unwrap(),
    ]);
    let words = ["exec", "--worktree", "--", "cat", "c.txt"];
    let seen = run(program.command(words).current_dir(&clone)).ok();
    assert_eq!(seen.stdout, "three\n");
    let prune = ["worktree", "prune", "--older-than", "0s"];
    run(program.command(prune).current_dir(&clone)).ok();
    assert!(!clone.join(".turnpoint").exists());
}

#[test]
fn work_trees_are_shown_nowhere_and_that_is_written_down_once() {
    let program = program();
    let exclude = program.workspace().join(".git/info/exclude");
    for (there, expected) in [
        (None, "/.turnpoint/\n"),
        (Some("*.tmp"), "*.tmp\n/.turnpoint/\n"),
        (Some("*.tmp\n"), "*.tmp\n/.turnpoint/\n"),
        (Some("/.turnpoint/\n*.tmp"), "/.turnpoint/\n*.tmp"),
    ] {
        fs::remove_dir_all(exclude.parent().unwrap()).unwrap();
        if let Some(there) = there {
            fs::create_dir(exclude.parent().unwrap()).unwrap();
            fs::write(&exclude, there).unwrap();
        }
        for _ in 0..2 {
            exec(&program, &[], "exit 1").exits(1);
        }
        assert_eq!(fs::read_to_string(&exclude).unwrap(), expected);
    }
    // Where the line is nothing need be written.
    let close = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    close(&exclude, 0o444);
    close(exclude.parent().unwrap(), 0o555);
    run(&mut bound(&program, &["exec", "--worktree", "--", "false"])).exits(1);
    close(exclude.parent().unwrap(), 0o755);
}

#[test]
fn what_is_not_committed_is_said_to_be_lacking_and_what_brings_it() {
    let program = program();
    let status = program.git(["--no-optional-locks", "status", "--porcelain"]);
    let count = status.lines().count();
    assert!(count > 1, "{status}");
    let told = format!("note: what is not committed here ({count} paths) is not in the run;");
    let lacking = |options: &[&str]| {
        let report = program.root().join("report.json");
        let words = [&["--report", report.to_str().unwrap()], options].concat();
        let seen = exec(&program, &words, "test -e new.txt && cat new.txt; exit 1").exits(1);
        let document: Value = serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
        fs::remove_file(report).unwrap();
        let lines = seen.stderr.matches(&told).count();
        (lines, document["uncommitted"].clone(), seen.stdout)
    };
    assert_eq!(lacking(&[]), (1, count.into(), String::new()));
    assert_eq!(lacking(&["-q"]), (0, count.into(), String::new()));
    // As the line says.
    program.run(["capture"]).ok();
    assert_eq!(lacking(&["--from", "latest"]), (0, Value::Null, "untracked\n".to_owned()));
    program.git(["add", "."]);
    program.git(["commit", "-q", "-m", "third"]);
    fs::write(program.workspace().join("x.log"), "ignored\n").unwrap();
    assert_eq!(lacking(&[]), (0, 0.into(), "untracked\n".to_owned()));
    assert_cleared(&program);
}

#[test]
fn a_checkpoint_is_laid_over_the_commit() {
    let program = program();
    let root = program.workspace();
    fs::remove_file(root.join("a.txt")).unwrap();
    program.run(["capture", "--session", "s"]).ok();
    let before = ground(&program);
    // What the checkpoint has is there; what it lacks is as in the commit.
    let seen =
        exec(&program, &["--from", "s:0"], "cat a.txt src/b.txt c.txt new.txt; rm new.txt").ok();
    assert_eq!(seen.stdout, "one\nchanged\nthree\nuntracked\n");
    assert!(seen.stderr.contains("  D  new.txt\n"), "{}", seen.stderr);
    assert_eq!(ground(&program), before);
    let (id, _) = only(&program);
    program.run(["worktree", "remove", &id, "--yes"]).ok();
    assert_cleared(&program);
}

#[test]
fn a_restore_over_a_directory_deletes_nothing_and_can_be_undone() {
    let program = program();
    program.run(["capture", "--session", "s"]).ok();
    let other = program.root().join("other");
    build(
        &other,
        [("a.txt", file("mine")), ("own.txt", file("mine")), ("src/b.txt/c", file("mine"))],
    );
    let into = ["restore", "s:0", "--into", "../other"];
    program.run(into).exits(3);
    let shown = program.run([&into[..], &["--overlay", "--dry-run"]].concat()).ok();
    assert!(shown.stdout.contains("overwrite\n  a.txt\n"), "{}", shown.stdout);
    assert!(!shown.stdout.contains("own.txt"), "{}", shown.stdout);
    program.run([&into[..], &["--overlay"]].concat()).exits(3);
    assert_eq!(fs::read_to_string(other.join("a.txt")).unwrap(), "mine");
    // A directory in the place of a file is not replaced: that would delete what is in it.
    program.run([&into[..], &["--overlay", "--yes"]].concat()).exits(3);
    let read = |path: &str| fs::read_to_string(other.join(path)).unwrap();
    assert_eq!((read("a.txt"), read("own.txt")), ("one\n".into(), "mine".into()));
    assert_eq!((read("src/b.txt/c"), read("c.txt")), ("mine".into(), "three\n".into()));
    program.run(["undo", "--yes", "-C", other.to_str().unwrap()]).ok();
    assert_eq!((read("a.txt"), other.join("c.txt").exists()), ("mine".into(), false));
    program.run([&into[..], &["--dry-run"]].concat()).exits(2);
}

#[test]
fn eight_runs_at_once_do_not_meet() {
    let program = program();
    let before = ground(&program);
    let children: Vec<_> = (0..8)
        .map(|number| {
            let script = format!(
                "echo {number} > made; git add made; git commit -qm {number}; exit {}",
                number % 2
            );
            let words = ["exec", "--worktree", "--", "sh", "-c", &script];
            program.command(words).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    for (number, child) in children.into_iter().enumerate() {
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(i32::try_from(number % 2).unwrap()), "{stderr}");
        assert!(!stderr.contains("error: "), "{stderr}");
    }
    assert_eq!((runs(&program, &[]).len(), runs(&program, &["--removed"]).len()), (4, 4));
    assert_eq!(ground(&program), before);
    for run in runs(&program, &["--removed"]) {
        let name = format!("refs/turnpoint/removed/{}/branch:made", run["run"].as_str().unwrap());
        let number: u32 = program.git(["show", &name]).parse().unwrap();
        assert_eq!(number % 2, 1);
    }
}

/// Starts the program in a process group of its own, and kills it after a while: with git and the command,
/// or alone.
fn kill(program: &Program, words: &[&str], after: Duration, with_all: bool) {
    let mut command = program.command(words);
    command.stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    let mut child = command.spawn().unwrap();
    std::thread::sleep(after);
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    if with_all {
        // git has a group of its own while it writes.
        for group in groups_below(pid) {
            kill_process_group(group, Signal::KILL).ok();
        }
    }
    kill_process(pid, Signal::KILL).ok();
    child.wait().unwrap();
}

/// The groups of a process and of its children.
fn groups_below(pid: Pid) -> Vec<Pid> {
    let mut groups = vec![pid];
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let fields: Vec<i32> = stat
            .rsplit(')')
            .next()
            .unwrap()
            .split_whitespace()
            .skip(1)
            .take(2)
            .filter_map(|field| field.parse().ok())
            .collect();
        if fields.first() == Some(&pid.as_raw_nonzero().get()) {
            groups.extend(fields.get(1).and_then(|group| Pid::from_raw(*group)));
        }
    }
    groups
}

/// Prunes until nothing is left; git, or a command, may be at work for a while.
fn prune_all(program: &Program) {
    let begun = Instant::now();
    while !runs(program, &[]).is_empty() && begun.elapsed() < Duration::from_mins(1) {
        let pruned = program.run(["worktree", "prune", "--older-than", "0s", "--json"]);
        if pruned.stdout.contains("packed-refs.lock") {
            // A git that was killed has left it, and no other is at work: as the hint says.
            fs::remove_file(program.workspace().join(".git/packed-refs.lock")).ok();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Killed at any moment, a run or its removal leaves nothing that is not found and cleared, and loses
/// nothing.
#[test]
fn what_a_killed_run_leaves_is_cleared() {
    let kills: u64 = std::env::var("TURNPOINT_KILLS").map_or(3, |text| text.parse().unwrap());
    let program = program();
    // Work that takes git a moment.
    for number in 0..200 {
        build(
            &program.workspace(),
            [(format!("many/{number}"), file(format!("{number}\n").repeat(500)))],
        );
    }
    program.git(["add", "many"]);
    program.git(["commit", "-q", "-m", "many", "--", "many"]);
    let before = ground(&program);
    let mut random = Random::new(kills);
    let mut committed = 0;
    for number in 0..kills {
        let script = format!("echo {number} > made; git add made; git commit -qm {number}; exit 0");
        let words = ["exec", "--worktree", "--", "sh", "-c", &script];
        let (after, with_all) =
            (Duration::from_millis(random.next() % 700), random.next().is_multiple_of(2));
        if number % 2 == 0 {
            kill(&program, &words, after, with_all);
        } else {
            program.run(words).ok();
            let (id, _) = only(&program);
            committed += 1;
            kill(&program, &["worktree", "remove", &id, "--yes"], after / 2, with_all);
        }
        prune_all(&program);
        assert_cleared(&program);
        assert_eq!(ground(&program), before, "after {after:?}, {with_all}");
    }
    // What was committed in those that came to their end is led to.
    let removed = runs(&program, &["--removed"]);
    let ended: Vec<&Value> = removed.iter().filter(|run| run["status"] == 0).collect();
    assert!(ended.len() >= committed, "{removed:?}");
    for run in ended {
        assert!(!run["refs"].as_array().unwrap().is_empty(), "{run}");
        let made = cat(&program, &run["kept"], "made");
        let name = format!("refs/turnpoint/removed/{}/branch:made", run["run"].as_str().unwrap());
        assert_eq!(format!("{}\n", program.git(["show", &name])).into_bytes(), made);
        assert_eq!(cat(&program, &run["kept"], "many/7"), "7\n".repeat(500).into_bytes());
    }
    assert_eq!(program.run(["verify"]).ok().stderr, "");
}

/// What git leaves that was killed over a removal: the record, and what was not deleted yet.
#[test]
fn a_removal_that_was_killed_over_deleting_is_completed_and_keeps_what_it_held() {
    let program = program();
    for with_more in [false, true] {
        exec(&program, &[], "echo made > made; echo two > two").ok();
        let (id, path) = only(&program);
        let record = find_record(&program, &id);
        program.run(["capture", "-C", path.to_str().unwrap(), "--session", "held"]).ok();
        let mut text: Value = serde_json::from_slice(&fs::read(&record).unwrap()).unwrap();
        let held = program.run(["list", "--session", "held", "--json"]).ok().json();
        let held = held["checkpoints"].as_array().unwrap().last().unwrap()["seq"].clone();
        text["state"] = "removing".into();
        text["holds"] = serde_json::json!({ "ignored": false, "all": true });
        text["kept"] = serde_json::json!({ "session": "held", "seq": held });
        fs::write(&record, text.to_string()).unwrap();
        for name in [".git", "made", "a.txt"] {
            fs::remove_file(path.join(name)).unwrap();
        }
        if with_more {
            fs::write(path.join("later"), "later\n").unwrap();
        }
        program.run(["worktree", "prune"]).ok();
        assert_cleared(&program);
        let removed = runs(&program, &["--removed"]).last().unwrap().clone();
        let held = serde_json::json!({ "session": "held", "seq": held });
        assert_eq!(removed["kept"], held);
        assert_eq!(cat(&program, &held, "made"), b"made\n");
        let further = removed["further"].as_array().unwrap();
        assert_eq!(further.len(), usize::from(with_more));
        if with_more {
            assert_eq!(cat(&program, &further[0], "later"), b"later\n");
            let listed = program.run(["list", "--session", "held", "--json"]).ok().json();
            let pinned = listed["checkpoints"].as_array().unwrap().last().unwrap();
            assert_eq!(pinned["pinned"], true);
        }
    }
}

pub(crate) fn find_record(program: &Program, id: &str) -> PathBuf {
    let workspaces = fs::read_dir(program.store().join("workspaces")).unwrap();
    let mut records = workspaces.map(|it| it.unwrap().path().join(format!("runs/{id}.json")));
    records.find(|record| record.exists()).unwrap()
}

#[test]
fn a_signal_to_the_program_ends_the_command_and_what_it_made_is_cleared() {
    let program = program();
    let words =
        ["exec", "--worktree", "--", "sh", "-c", "echo made > made; echo ready; exec sleep 60"];
    let mut child =
        program.command(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(143), "{}", String::from_utf8_lossy(&output.stderr));
    assert_cleared(&program);
    let kept = &runs(&program, &["--removed"])[0]["kept"];
    assert_eq!(cat(&program, kept, "made"), b"made\n");
}

/// While git checks files out: it does not end by itself.
#[test]
fn what_is_being_made_goes_when_the_making_is_stopped() {
    let program = program();
    let begun = program.root().join("begun");
    build(
        &program.workspace(),
        [(".gitattributes", file("*.slow filter=slow\n")), ("z.slow", file("z\n"))],
    );
    program.git(["add", ".gitattributes", "z.slow"]);
    program.git(["commit", "-q", "-m", "slow"]);
    program.git([
        "config",
        "filter.slow.smudge",
        &format!("echo $$ > {0}.part; mv {0}.part {0}; sleep 60; cat", begun.display()),
    ]);
    let before = ground(&program);
    let mut command = program.command(["exec", "--worktree", "--", "touch", "ran"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let waited = Instant::now();
    while !begun.exists() {
        assert!(waited.elapsed() < Duration::from_mins(1), "the filter was not run");
        std::thread::sleep(Duration::from_millis(10));
    }
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let mut stderr = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut stderr).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{stderr}");
    assert!(stderr.contains("is removed again"), "{stderr}");
    assert_cleared(&program);
    assert_eq!(ground(&program), before);
    // Nothing of git goes on: the filter was ended with it. One that nobody has reaped yet has no words.
    let filter = fs::read_to_string(&begun).unwrap();
    let words = fs::read_to_string(format!("/proc/{}/cmdline", filter.trim())).unwrap_or_default();
    assert_eq!(words, "", "the filter is at work");
}

/// Beside the making of a work tree git counts what is changed in the checkout.
#[test]
fn nothing_of_git_goes_on_where_a_work_tree_cannot_be_made() {
    let program = program();
    let begun = program.root().join("begun");
    let script = format!(
        "case \"$*\" in *exclude,top*) trap 'sleep 0.4' TERM; echo $$ > {0}.part; \
         mv {0}.part {0}; sleep 60; exit 1;; \
         *worktree\\ add*) while [ ! -e {0} ]; do sleep 0.01; done; echo broken >&2; exit 128;; esac",
        begun.display()
    );
    let git = git_that(&program, "*", &script);
    let words = ["exec", "--worktree", "--", "true"];
    let failed = run(program.command(words).env("PATH", git)).exits(125);
    let counting = fs::read_to_string(begun).unwrap();
    let counting = Pid::from_raw(counting.trim().parse().unwrap()).unwrap();
    let is_left = kill_process_group(counting, Signal::KILL).is_ok();
    assert!(failed.stderr.contains("broken"), "{}", failed.stderr);
    assert!(!is_left, "git was at work");
    assert_cleared(&program);
}

#[test]
fn a_checkout_that_fails_in_the_middle_leaves_nothing() {
    let program = program();
    let mut noise = vec![0; 400_000];
    blake3::Hasher::new().finalize_xof().fill(&mut noise);
    fs::write(program.workspace().join("noise"), noise).unwrap();
    program.git(["add", "noise"]);
    program.git(["commit", "-q", "-m", "noise", "--", "noise"]);
    let before = ground(&program);
    let limit = ["bash", "-c", "ulimit -f 300; exec \"$@\"", "bash"];
    let words = ["exec", "--worktree", "--", "touch", "ran"];
    let refused = run(&mut program.under(&limit, words)).exits(125);
    assert!(refused.stderr.contains("git cannot make a work tree"), "{}", refused.stderr);
    assert!(refused.stderr.contains("is removed again"), "{}", refused.stderr);
    assert_cleared(&program);
    assert_eq!(ground(&program), before);
}

#[test]
fn a_directory_that_git_does_not_know_is_left_alone() {
    let program = program();
    exec(&program, &[], "echo made > made").ok();
    let (id, path) = only(&program);
    fs::remove_file(path.join(".git")).unwrap();
    let refused = program.run(["worktree", "remove", &id, "--yes"]).exits(3);
    assert!(refused.stderr.contains("git does not know"), "{}", refused.stderr);
    assert!(refused.stderr.contains("if it was moved"), "{}", refused.stderr);
    assert!(Path::new(&path).join("made").exists());
    // One that is gone leaves what git keeps of it.
    fs::remove_dir_all(&path).unwrap();
    program.run(["worktree", "remove", &id, "--yes"]).ok();
    assert_cleared(&program);
}

#[test]
fn what_is_in_the_place_of_what_git_could_not_delete_is_left_alone() {
    let program = program();
    exec(&program, &[], "echo made > made").ok();
    let (id, path) = only(&program);
    let git = git_that_removes(
        &program,
        &path,
        "eval tree=\\${$#}; rm -r \"$tree/.git\"; \
        rm -r \"$($git rev-parse --git-common-dir)/worktrees\"; exit 128",
    );
    run(program.command(["worktree", "remove", &id, "--yes"]).env("PATH", git)).exits(1);
    let kept = &runs(&program, &[])[0]["kept"];
    let held =
        format!("{}:{} holds what was in it", kept["session"].as_str().unwrap(), kept["seq"]);
    let refused = |told: &str| {
        let refused = program.run(["worktree", "remove", &id, "--yes"]).exits(3);
        assert!(refused.stderr.contains(told), "{}", refused.stderr);
        assert_eq!(fs::read_to_string(path.join("made")).unwrap(), "made\n");
    };
    let elsewhere = program.root().join("elsewhere");
    fs::rename(&path, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
    refused(&held);
    assert!(!elsewhere.join(".git").exists());
    program.git(["init", "-q", elsewhere.to_str().unwrap()]);
    fs::remove_file(&path).unwrap();
    fs::rename(&elsewhere, &path).unwrap();
    // A repository of somebody's, also where all is to go.
    refused(&held);
    program.run(["worktree", "remove", &id, "--discard", "--yes"]).exits(3);
    assert!(path.join(".git/HEAD").exists());
    assert_eq!(cat(&program, kept, "made"), b"made\n");
    // As the hint says.
    fs::remove_dir_all(path).unwrap();
    program.run(["worktree", "prune"]).ok();
    assert_cleared(&program);
}

#[test]
fn the_report_names_the_run() {
    let program = program();
    let options = ["--report", "../report.json", "-q"];
    let report = || -> Value {
        let file = program.root().join("report.json");
        let text = fs::read_to_string(&file).unwrap();
        // An existing one is not written over.
        fs::remove_file(file).unwrap();
        serde_json::from_str(&text).unwrap()
    };
    assert_eq!(exec(&program, &options, "echo 1 > made").ok().stderr, "");
    let (id, path) = only(&program);
    let seen = report();
    assert_eq!(
        (&seen["run"], &seen["root"]),
        (&id.as_str().into(), &path.to_str().unwrap().into())
    );
    assert_eq!(
        (&seen["branch"], &seen["removed"]),
        (&format!("turnpoint/{id}").into(), &Value::Null)
    );
    exec(&program, &options, "exit 1").exits(1);
    let seen = report();
    assert_eq!(seen["removed"]["run"], seen["run"]);
    assert!(seen["removed"]["kept"]["seq"].is_u64());
}

/// A directory with a `git` that, where it is to remove the work tree at `path`, finds everything in it as it is
/// now, and does `script`: as if it were git that deletes, as it was once, or somebody who puts things back.
pub(crate) fn git_that_removes(program: &Program, path: &Path, script: &str) -> std::ffi::OsString {
    let saved = program.root().join("saved-tree");
    run(program.other("rm").arg("-rf").arg(&saved)).ok();
    run(program.other("cp").arg("-a").arg(path).arg(&saved)).ok();
    let back = format!("cp -a {} {}", saved.display(), path.display());
    git_that(program, "*worktree\\ remove*", &format!("{back}; {script}"))
}

/// A directory with a `git` that does `script` where its words match `pattern`, and else what git does.
/// In the script `$git` is the real one.
pub(crate) fn git_that(program: &Program, pattern: &str, script: &str) -> std::ffi::OsString {
    let real = std::env::split_paths(&std::env::var_os("PATH").unwrap())
        .map(|directory| directory.join("git"))
        .find(|path| path.exists())
        .unwrap();
    let directory = program.root().join("bin");
    fs::create_dir_all(&directory).unwrap();
    let text = format!(
        "#!/bin/sh\ngit={}\ncase \"$*\" in {pattern}) {script};; esac\nexec $git \"$@\"\n",
        real.display()
    );
    fs::write(directory.join("git"), text).unwrap();
    fs::set_permissions(directory.join("git"), fs::Permissions::from_mode(0o755)).unwrap();
    let mut path = directory.into_os_string();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap());
    path
}

/// What the refs of removed runs lead to.
pub(crate) fn led_to(program: &Program) -> Vec<String> {
    let refs = program.git(["for-each-ref", "--format=%(objectname)", "refs/turnpoint/removed"]);
    refs.lines().map(str::to_owned).collect()
}

#[test]
fn a_commit_that_a_refused_removal_found_is_not_lost_by_the_next() {
    let program = program();
    let script = "echo 1 > one && git add one && git commit -qm one && echo secret > id_rsa; \
                  echo staged > a.txt; git add a.txt; echo later > a.txt";
    exec(&program, &[], script).ok();
    let (id, path) = only(&program);
    let branch = format!("refs/heads/turnpoint/{id}");
    let first = program.git(["rev-parse", &branch]);
    for _ in 0..2 {
        program.run(["worktree", "remove", &id, "--yes"]).exits(3);
        // What was staged is the same commit each time.
        assert_eq!(led_to(&program).len(), 2);
    }
    let git = |words: &[&str]| run(program.other("git").args(words).current_dir(&path)).ok();
    git(&["commit", "-q", "--amend", "-m", "another"]);
    let second = program.git(["rev-parse", &branch]);
    assert_ne!(first, second);
    fs::remove_file(path.join("id_rsa")).unwrap();
    program.run(["worktree", "remove", &id, "--yes"]).ok();
    let kept = led_to(&program);
    assert!(kept.contains(&first) && kept.contains(&second), "{kept:?}");
    assert_cleared(&program);
}

#[test]
fn a_commit_left_by_a_head_that_is_at_none_is_led_to() {
    let program = program();
    let script = "git checkout -q --detach && echo 1 > one && git add one && git commit -qm one && \
                  git rev-parse HEAD && git checkout -q --orphan empty && exit 1";
    let commit = exec(&program, &[], script).exits(1).stdout;
    assert_eq!(led_to(&program)[..1], [commit.trim_end()]);
    assert_cleared(&program);
    // By an annotated tag that only the work tree has.
    let script = "git checkout -q --detach && echo 2 > two && git add two && git commit -qm two && \
                  git tag -a -m x x && git update-ref refs/worktree/x refs/tags/x && \
                  git tag -d x > /dev/null && git rev-parse HEAD && git checkout -q HEAD~ && \
                  rm -r \"$(git rev-parse --git-dir)/logs\" && exit 1";
    let commit = exec(&program, &[], script).exits(1).stdout;
    assert!(led_to(&program).iter().any(|it| it == commit.trim_end()), "{commit}");
    assert_cleared(&program);
}

#[test]
fn the_repository_of_a_submodule_that_is_gone_stays() {
    let program = program();
    let library = program.root().join("library");
    let script = format!(
        "L={}; git init -q $L && git -C $L commit -q --allow-empty -m outer && \
         git -c protocol.file.allow=always submodule --quiet add $L sub && cd sub && echo x > x && \
         git add x && git commit -qm inner && git rev-parse HEAD && cd .. && \
         git rm -qf --cached sub && rm -rf sub && git reset -q --hard",
        library.display()
    );
    let commit = exec(&program, &[], &script).ok().stdout;
    let (id, path) = only(&program);
    assert!(!path.join("sub").exists());
    let modules = program.workspace().join(".git/worktrees").join(&id).join("modules/sub");
    for is_gone in [false, true] {
        if is_gone {
            fs::remove_dir_all(&path).unwrap();
        }
        let refused = program.run(["worktree", "remove", &id, "--yes"]).exits(3);
        let named = "  .git/modules/sub: the repository of a submodule";
        assert!(refused.stderr.contains(named), "{}", refused.stderr);
        let inner = ["--git-dir", modules.to_str().unwrap(), "--work-tree", "."];
        let kept = program.git([&inner[..], &["cat-file", "-t", commit.trim_end()]].concat());
        assert_eq!(kept, "commit");
    }
    let removed = program.run(["worktree", "remove", &id, "--discard", "--yes"]).ok();
    let told = removed.stderr.lines().find(|line| line.contains("no checkpoint holds")).unwrap();
    assert!(told.contains(".git/modules/sub (the repository of a submodule)"), "{told}");
    let count = told.split_whitespace().nth(4).unwrap().parse::<u64>().unwrap();
    assert!(count > 10, "{told}");
    assert_cleared(&program);
}

#[test]
fn a_branch_that_is_moved_while_its_work_tree_is_removed_stays() {
    let program = program();
    exec(&program, &[], "echo 1 > one && git add one && git commit -qm one").ok();
    let (id, path) = only(&program);
    let branch = format!("refs/heads/turnpoint/{id}");
    let tree = format!("{branch}^{{tree}}");
    let late = program.git(["commit-tree", "-m", "late", "-p", &branch, &tree]);
    let script = format!("$git \"$@\" && exec $git update-ref {branch} {late}");
    let git = git_that(&program, "*worktree\\ remove*", &script);
    let removed = run(program.command(["worktree", "remove", &id, "--yes"]).env("PATH", git)).ok();
    assert!(removed.stderr.contains(&format!("branch turnpoint/{id} stays")), "{}", removed.stderr);
    assert!(!path.exists());
    assert_eq!(program.git(["rev-parse", &branch]), late);
}

#[test]
fn a_branch_that_is_checked_out_elsewhere_stays_and_the_run_is_removed() {
    let program = program();
    let root = program.workspace();
    let moved = program.root().join("moved");
    for is_moved in [false, true] {
        exec(&program, &[], "git switch -qc fix-$$ && echo made > made && git add made").ok();
        let (id, path) = only(&program);
        let branch = format!("turnpoint/{id}");
        let place = if is_moved {
            // All of it is elsewhere then, as the user wants it.
            program.git(["-C", path.to_str().unwrap(), "switch", "-q", &branch]);
            program.git(["worktree", "move", path.to_str().unwrap(), moved.to_str().unwrap()]);
            &moved
        } else {
            program.git(["checkout", "-q", &branch]);
            &root
        };
        let removed = program.run(["worktree", "remove", &id, "--yes"]).ok();
        let told = format!("branch {branch} stays: it is checked out in {}\n", place.display());
        assert!(removed.stderr.contains(&told), "{}", removed.stderr);
        assert!(!path.exists());
        assert_eq!(
            program.git(["-C", place.to_str().unwrap(), "branch", "--show-current"]),
            branch
        );
        assert_eq!(runs(&program, &[]), Vec::<Value>::new());
        assert_eq!(runs(&program, &["--removed"]).last().unwrap()["run"], *id);
        let pruned = program.run(["worktree", "prune"]).ok();
        assert_eq!(pruned.stdout, "there is nothing to remove\n");
        if is_moved {
            assert_eq!(fs::read_to_string(moved.join("made")).unwrap(), "made\n");
        }
    }
}

/// `git push -u` writes it, into what all work trees share.
#[test]
fn what_the_configuration_says_of_a_branch_goes_with_it() {
    let program = program();
    program.git(["config", "branch.turnpoint/other.remote", "origin"]);
    let config = program.workspace().join(".git/config");
    let before = fs::read_to_string(&config).unwrap();
    let script = "git config branch.$(git branch --show-current).remote origin && \
                  git config branch.$(git branch --show-current).merge refs/heads/x";
    exec(&program, &[], script).ok();
    let (id, _) = only(&program);
    assert!(fs::read_to_string(&config).unwrap().contains(&format!("[branch \"turnpoint/{id}\"]")));
    program.run(["worktree", "remove", &id, "--yes"]).ok();
    assert_cleared(&program);
    assert_eq!(fs::read_to_string(&config).unwrap(), before);
}

#[test]
fn a_second_removal_holds_what_more_is_asked_of_it() {
    let program = program();
    exec(&program, &[], "echo made > made; echo 2 > y.log").ok();
    let (id, path) = only(&program);
    let git = git_that_removes(&program, &path, "exit 128");
    run(program.command(["worktree", "remove", &id, "--yes"]).env("PATH", git)).exits(1);
    let record: Value =
        serde_json::from_slice(&fs::read(find_record(&program, &id)).unwrap()).unwrap();
    assert_eq!(record["state"], "removing");
    assert_eq!(record["holds"], serde_json::json!({ "ignored": false, "all": true }));
    assert!(path.join("y.log").exists());
    program.run(["worktree", "remove", &id, "--yes", "--ignored"]).ok();
    assert_cleared(&program);
    let removed = &runs(&program, &["--removed"])[0];
    assert_eq!(cat(&program, &removed["further"][0], "y.log"), b"2\n");
    assert_eq!(cat(&program, &removed["kept"], "made"), b"made\n");
    let refused = program.run(["worktree", "apply", &id, "--yes"]).exits(3);
    assert!(refused.stderr.contains("after its removal had begun is in"), "{}", refused.stderr);
}

/// git that fails has not said that there is nothing.
#[test]
fn nothing_is_removed_where_git_cannot_say_what_there_is() {
    let program = program();
    exec(&program, &[], "echo 1 > one && git add one && git commit -qm one").ok();
    let (id, path) = only(&program);
    let branch = format!("refs/heads/turnpoint/{id}");
    let commit = program.git(["rev-parse", &branch]);
    for asked in ["show-ref", "rev-parse\\ --verify", "reflog\\ exists", "--walk-reflogs"] {
        let git = git_that(&program, &format!("*{asked}*"), "echo fatal: broken >&2; exit 128");
        let refused = run(program.command(["worktree", "remove", &id, "--yes"]).env("PATH", git));
        assert!(refused.exits(1).stderr.contains("broken"), "{asked}");
        assert_eq!(program.git(["rev-parse", &branch]), commit);
        assert!(path.join("one").exists());
    }
    program.run(["worktree", "remove", &id, "--yes"]).ok();
    assert_eq!(led_to(&program), [commit]);
}

#[test]
fn the_users_settings_count_and_make_no_removal_hold_less() {
    let program = program();
    let directory = program.root().join("home/.config/turnpoint");
    fs::create_dir_all(&directory).unwrap();
    let settings = "[capture]\nsecrets = [\"*.token\"]\nexclude = [\"cache/\", \"!dist/\"]\n";
    fs::write(directory.join("config.toml"), settings).unwrap();
    let script = "echo made > made; echo T > x.token; mkdir cache dist; echo c > cache/c; \
                  echo d > dist/d; echo 'capture.exclude = [\"made\"]' > .turnpoint.toml; exit 3";
    let run = exec(&program, &["--session", "s"], script).exits(3);
    assert!(run.stderr.contains("  x.token: secret"), "{}", run.stderr);
    let after = serde_json::json!({ "session": "s", "seq": 1 });
    assert_eq!(cat(&program, &after, "made"), b"made\n");
    assert_eq!(cat(&program, &after, "dist/d"), b"d\n");
    for left_out in ["x.token", "cache/c"] {
        program.run(["cat", "s:1", left_out]).exits(2);
    }
    let (id, path) = only(&program);
    assert_eq!(fs::read_to_string(path.join("x.token")).unwrap(), "T\n");
    fs::remove_file(path.join("x.token")).unwrap();
    program.run(["worktree", "remove", &id, "--yes"]).ok();
    assert_cleared(&program);
    let kept = &runs(&program, &["--removed"])[0]["kept"];
    for (path, content) in [("made", "made\n"), ("cache/c", "c\n"), ("dist/d", "d\n")] {
        assert_eq!(cat(&program, kept, path), content.as_bytes(), "{path}");
    }
}
