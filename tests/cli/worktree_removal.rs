//! What a removal of a run holds, names, refuses and clears away.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::ground::ground;
use crate::support::program::{Program, Run, run};
use crate::support::tree::{build, file};
use crate::worktree::{
    assert_cleared, cat, exec, find_record, git_that, git_that_removes, led_to, only, program, runs,
};

/// The program as somebody to whom permissions mean something: to root they mean nothing.
pub(crate) fn bound(program: &Program, words: &[&str]) -> Command {
    if rustix::process::geteuid().is_root() {
        let wrapper = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"];
        return program.under(&wrapper, words);
    }
    program.command(words)
}

/// As package managers leave their caches.
#[test]
fn what_is_in_a_directory_that_may_not_be_written_to_goes_once_it_is_held() {
    let program = program();
    let elsewhere = program.root().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::set_permissions(&elsewhere, fs::Permissions::from_mode(0o555)).unwrap();
    let script = format!(
        "mkdir -p held/deep build/cache; echo made > held/deep/made; echo 1 > build/cache/x; \
         ln -s {} held/link; chmod 555 held/deep held build/cache; exit 3",
        elsewhere.display()
    );
    let words = ["exec", "--worktree", "--", "sh", "-c", &script];
    run(&mut bound(&program, &words)).exits(3);
    assert_cleared(&program);
    let removed = runs(&program, &["--removed"]);
    assert_eq!(cat(&program, &removed[0]["kept"], "held/deep/made"), b"made\n");
    // Only what is the run's own is opened.
    let mode = fs::metadata(elsewhere).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o555);
}

#[test]
fn what_git_ignores_is_counted_named_and_asked_about_before_it_goes() {
    let program = program();
    let script =
        "mkdir build; echo 1 > build/x; echo 2 > build/y; echo 3 > z.log; mkdir empty build/none";
    exec(&program, &[], script).ok();
    let (id, path) = only(&program);
    let ignored = &runs(&program, &[])[0]["ignored"];
    assert_eq!(ignored["files"], 3);
    assert!(ignored["bytes"].as_u64().unwrap() > 0);
    let named: Vec<&str> = ignored["paths"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["path"].as_str().unwrap())
        .collect();
    assert_eq!(named, ["build", "z.log"]);
    // Nothing else is in it, and it is work.
    let asked = program.run(["worktree", "remove", &id]).exits(3);
    assert!(asked.stdout.contains("3 files ("), "{}", asked.stdout);
    assert!(
        asked.stdout.contains("not be held: build (ignored), z.log (ignored)"),
        "{}",
        asked.stdout
    );
    assert!(path.join("build/x").exists());
    let removed = program.run(["worktree", "remove", &id, "--yes", "--json"]).ok().json();
    assert_eq!(&removed["left_out"], ignored);
    assert_eq!(removed["notices"][0]["code"], "left-out");
    assert_cleared(&program);
    // Many are not all named.
    let run =
        exec(&program, &[], "for n in 1 2 3 4 5 6 7; do echo > $n.log; done; exit 1").exits(1);
    assert!(run.stderr.contains("5.log (ignored), and 2 more\n"), "{}", run.stderr);
    assert_cleared(&program);
}

#[test]
fn a_failed_command_leaves_what_is_ignored_in_its_last_checkpoint_where_that_is_asked_for() {
    let program = program();
    let script = "mkdir build target; echo 1 > build/x; echo 2 > target/y; exit 3";
    // What is excluded and not ignored stays otherwise.
    let run = exec(&program, &[], script).exits(3);
    assert!(run.stderr.contains("  target: excluded\n"), "{}", run.stderr);
    let (id, path) = only(&program);
    assert_eq!(fs::read_to_string(path.join("build/x")).unwrap(), "1\n");
    assert_eq!(program.run(["worktree", "prune", "--older-than", "0s"]).exits(3).code, 3);
    assert_eq!(fs::read_to_string(path.join("target/y")).unwrap(), "2\n");
    program.run(["worktree", "prune", "--older-than", "0s", "--ignored"]).ok();
    assert_cleared(&program);
    let run = exec(&program, &["--ignored"], script).exits(3);
    assert!(!run.stderr.contains("no checkpoint holds"), "{}", run.stderr);
    assert_cleared(&program);
    let removed = runs(&program, &["--removed"]);
    assert_eq!((removed.len(), removed[0]["run"].as_str()), (2, Some(id.as_str())));
    for run in removed {
        assert_eq!(cat(&program, &run["kept"], "build/x"), b"1\n");
        assert_eq!(cat(&program, &run["kept"], "target/y"), b"2\n");
    }
}

/// Of so many names in one directory that a checkpoint does not name all.
#[test]
fn a_secret_behind_a_thousand_ignored_files_is_not_lost() {
    let program = program();
    let many = "mkdir d; cd d; seq -f '%g.log' 1001 2100 | xargs touch";
    let run = exec(&program, &[], &format!("{many}; exit 1")).exits(1);
    assert!(run.stderr.contains("no checkpoint holds 1,100 files ("), "{}", run.stderr);
    assert_cleared(&program);
    let run = exec(&program, &[], &format!("{many}; echo secret > z.pem; exit 1")).exits(1);
    assert!(run.stderr.contains("could not be held and would be lost"), "{}", run.stderr);
    let (_, path) = only(&program);
    assert_eq!(fs::read_to_string(path.join("d/z.pem")).unwrap(), "secret\n");
}

#[test]
fn a_merge_that_is_given_up_leaves_both_sides_and_what_was_staged() {
    let program = program();
    let before = ground(&program);
    let script = "git checkout -q --detach; \
                  echo x > a.txt; rm c.txt; git commit -qam theirs; git rev-parse HEAD; \
                  git checkout -q HEAD~; echo y > a.txt; echo z > c.txt; git commit -qam ours; \
                  git rev-parse HEAD; git merge -q HEAD@{2}; \
                  echo staged > src/b.txt; git add src/b.txt; echo later > src/b.txt; \
                  git add -N src/b.txt; echo new > new; git add -N new; rm -rf $(git rev-parse --git-dir)/logs";
    let run = exec(&program, &[], script).ok();
    let commits: Vec<&str> = run.stdout.lines().filter(|line| line.len() == 40).collect();
    let (id, path) = only(&program);
    let conflicts = run_git(&path, &program, &["ls-files", "--unmerged"]);
    assert_eq!(conflicts.lines().count(), 5, "{conflicts}");
    let index =
        fs::read(program.workspace().join(".git/worktrees").join(&id).join("index")).unwrap();
    let refused = program.run(["worktree", "remove", &id, "--yes"]).exits(3);
    assert!(refused.stderr.contains("a merge has not ended"), "{}", refused.stderr);
    let left = program.workspace().join(".git/worktrees").join(&id);
    assert_eq!(fs::read(left.join("index")).unwrap(), index);
    program.run(["worktree", "remove", &id, "--yes", "--discard"]).ok();
    assert_cleared(&program);
    assert_eq!(ground(&program), before);
    let kept = led_to(&program);
    for commit in &commits {
        assert!(kept.iter().any(|it| it == commit), "{commit} of {commits:?} in {kept:?}");
    }
    let staged = format!("refs/turnpoint/removed/{id}/index");
    assert_eq!(program.git(["show", &format!("{staged}:src/b.txt")]), "staged");
    // In conflict: as in HEAD, and the files with the marks are in the checkpoint.
    assert_eq!(program.git(["show", &format!("{staged}:a.txt")]), "y");
    assert_eq!(program.git(["show", &format!("{staged}:c.txt")]), "z");
    let removed = &runs(&program, &["--removed"])[0];
    let marked = String::from_utf8(cat(&program, &removed["kept"], "a.txt")).unwrap();
    assert!(marked.contains("<<<<<<<") && marked.contains("x\n"), "{marked}");
    assert_eq!(cat(&program, &removed["kept"], "src/b.txt"), b"later\n");
}

fn run_git(path: &std::path::Path, program: &Program, words: &[&str]) -> String {
    run(program.other("git").args(words).current_dir(path)).ok().stdout
}

#[test]
fn a_path_that_is_to_be_added_is_no_change_that_goes_on() {
    let program = program();
    let script = "echo new > new; echo gone > gone; git add -N new gone; rm gone; \
                  echo staged > a.txt; git add a.txt; echo later > a.txt";
    exec(&program, &[], script).ok();
    let (id, _) = only(&program);
    program.run(["worktree", "remove", &id, "--yes"]).ok();
    assert_cleared(&program);
    let staged = format!("refs/turnpoint/removed/{id}/index:a.txt");
    assert_eq!(program.git(["show", &staged]), "staged");
    let kept = &runs(&program, &["--removed"])[0]["kept"];
    assert_eq!(cat(&program, kept, "new"), b"new\n");
    assert_eq!(cat(&program, kept, "a.txt"), b"later\n");
}

/// What a git leaves that is killed while it writes a ref.
#[test]
fn a_lock_that_a_killed_git_left_is_cleared_and_one_that_may_be_held_is_named() {
    let program = program();
    exec(&program, &[], "echo 1 > one && git add one && git commit -qm one").ok();
    let (id, path) = only(&program);
    let git_dir = program.workspace().join(".git");
    let own = git_dir.join(format!("refs/heads/turnpoint/{id}.lock"));
    let kept = git_dir.join(format!("refs/turnpoint/removed/{id}/branch.lock"));
    let shared = git_dir.join("packed-refs.lock");
    let aged = |lock: &std::path::Path, seconds: u32| {
        fs::create_dir_all(lock.parent().unwrap()).unwrap();
        let when = format!("{seconds} seconds ago");
        run(program.other("touch").args(["-d", &when]).arg(lock)).ok();
    };
    let remove = || program.run(["worktree", "remove", &id, "--yes"]);
    // Too young.
    aged(&own, 0);
    let refused = remove().exits(3);
    assert!(refused.stderr.contains(&format!("{} is there", own.display())), "{}", refused.stderr);
    assert!(refused.stderr.contains("try again in 10 s"), "{}", refused.stderr);
    // Old, and a git is at work in the repository.
    aged(&own, 60);
    let mut reading = program.other("git");
    // One that waits for others does not count; whatever else has the word in it does.
    reading
        .args(["-c", "user.name=daemon", "cat-file", "--batch"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null());
    let mut reading = reading.current_dir(&git_dir).spawn().unwrap();
    let json = program.run(["worktree", "remove", &id, "--yes", "--json"]).exits(3);
    let error: Value = serde_json::from_str(&json.stderr).unwrap();
    assert_eq!(error["code"], "ref-locked");
    assert!(error["message"].as_str().unwrap().contains(&format!("process {}", reading.id())));
    assert!(own.exists() && path.join("one").exists());
    reading.stdin.take().unwrap().flush().unwrap();
    assert!(reading.wait().unwrap().success());
    // That of another ref is no business of this removal.
    let other = git_dir.join("refs/heads/main.lock");
    aged(&other, 60);
    aged(&kept, 60);
    let removed = remove().ok();
    for lock in [&own, &kept] {
        assert!(
            removed.stderr.contains(&format!("removed {}", lock.display())),
            "{}",
            removed.stderr
        );
    }
    assert!(other.exists());
    fs::remove_file(other).unwrap();
    assert_cleared(&program);
    assert_eq!(led_to(&program).len(), 1);
    // The lock of all refs is left to whoever made it, however old it is.
    exec(&program, &[], "mkdir build; echo 1 > build/x; echo 2 > two").ok();
    let (id, path) = only(&program);
    let record = find_record(&program, &id);
    aged(&shared, 60);
    let words = [&["worktree", "remove", &id, "--yes", "--ignored"][..], &["worktree", "prune"]];
    for (words, code) in words.into_iter().zip([1, 1]) {
        let refused = program.run(words).exits(code);
        assert!(refused.stderr.contains("packed-refs.lock': File exists"), "{}", refused.stderr);
        assert!(refused.stderr.contains("if no git is at work"), "{}", refused.stderr);
        assert!(shared.exists() && !path.exists());
        let text: Value = serde_json::from_slice(&fs::read(&record).unwrap()).unwrap();
        assert_eq!(text["state"], "removing");
    }
    fs::remove_file(shared).unwrap();
    program.run(["worktree", "prune"]).ok();
    assert_cleared(&program);
    // The checkpoint of the first removal holds more than the second was asked for.
    let text: Value = serde_json::from_slice(&fs::read(&record).unwrap()).unwrap();
    assert_eq!(text["holds"]["ignored"], true);
    let refused = program.run(["worktree", "apply", &id, "--yes"]).exits(3);
    assert!(refused.stderr.contains("has what is ignored in it"), "{}", refused.stderr);
    assert!(!program.workspace().join("build").exists());
}

/// What comes into a work tree after its removal was cut is judged as at the first time.
#[test]
fn what_came_since_a_removal_was_cut_is_not_lost_by_the_next() {
    let program = program();
    exec(&program, &[], "echo made > made; echo 1 > x.log").ok();
    let (id, path) = only(&program);
    let git = git_that_removes(&program, &path, "exit 128");
    run(program.command(["worktree", "remove", &id, "--yes"]).env("PATH", git)).exits(1);
    let kept = |removed: bool| {
        let words: &[&str] = if removed { &["--removed"] } else { &[] };
        runs(&program, words)[0]["kept"].clone()
    };
    let held = kept(false);
    fs::write(path.join("x.pem"), "secret\n").unwrap();
    let refused = program.run(["worktree", "remove", &id, "--yes"]).exits(3);
    assert!(refused.stderr.contains("x.pem: secret"), "{}", refused.stderr);
    let json = program.run(["worktree", "prune", "--json"]).exits(3).json();
    assert_eq!(json["refused"][0]["paths"][0]["path"], "x.pem");
    assert_eq!(fs::read_to_string(path.join("x.pem")).unwrap(), "secret\n");
    fs::remove_file(path.join("x.pem")).unwrap();
    // What git ignores is counted as at the first time.
    let removed = program.run(["worktree", "remove", &id, "--yes", "--json"]).ok().json();
    assert_eq!(removed["left_out"]["files"], 1);
    assert_eq!(removed["left_out"]["paths"][0]["path"], "x.log");
    assert_cleared(&program);
    assert_eq!(kept(true), held);
}

/// What comes while the last capture is taken, beside what that has in it.
#[test]
fn a_secret_that_is_written_while_a_removal_looks_is_not_lost() {
    let program = program();
    exec(&program, &[], "true").ok();
    let (id, path) = only(&program);
    // So the first capture is not the last.
    fs::write(path.join("later"), "later\n").unwrap();
    let (late, looks) = (path.join("late.pem"), program.root().join("looks"));
    let script = format!(
        "echo >> {looks}; [ $(wc -l < {looks}) != 3 ] || echo secret > {late}",
        looks = looks.display(),
        late = late.display()
    );
    let git = git_that(&program, "*status\\ --porcelain*", &script);
    let refused = run(program.command(["worktree", "remove", &id, "--yes"]).env("PATH", git));
    assert!(refused.exits(3).stderr.contains("late.pem: secret"));
    assert_eq!(fs::read_to_string(late).unwrap(), "secret\n");
}

/// `git status` does not name what git was told to take for unchanged.
#[test]
fn what_git_was_told_not_to_look_at_is_held_or_stays() {
    let program = program();
    let script = "mkdir target; for f in a.pem b.pem same.pem target/t; do echo 1 > $f; done; \
                  git add -f a.pem b.pem same.pem target/t; git commit -qm keys; \
                  git update-index --assume-unchanged a.pem same.pem; \
                  git update-index --skip-worktree b.pem target/t; \
                  for f in a.pem b.pem target/t; do echo 2 > $f; done";
    exec(&program, &[], script).ok();
    let (id, path) = only(&program);
    assert_eq!(runs(&program, &[])[0]["changed"], 3);
    let refused = program.run(["worktree", "remove", &id, "--yes"]).exits(3);
    for left in ["a.pem: secret", "b.pem: secret", "target: excluded"] {
        assert!(refused.stderr.contains(left), "{}", refused.stderr);
    }
    assert!(!refused.stderr.contains("same.pem"), "{}", refused.stderr);
    let administration = program.workspace().join(".git/worktrees").join(&id);
    let copies = fs::read_dir(administration).unwrap();
    let copies = copies
        .filter(|it| it.as_ref().unwrap().file_name().to_string_lossy().starts_with("turnpoint"));
    assert_eq!(copies.count(), 0);
    for name in ["a.pem", "b.pem", "target/t"] {
        assert_eq!(fs::read_to_string(path.join(name)).unwrap(), "2\n");
        fs::write(path.join(name), "1\n").unwrap();
    }
    program.run(["worktree", "remove", &id, "--yes"]).ok();
    assert_cleared(&program);
}

/// No checkpoint holds what is in such a directory, and git may.
#[test]
fn what_commits_track_in_our_own_directory_is_held_by_them() {
    let program = program();
    let script = "mkdir .turnpoint; echo x > .turnpoint/x; git add -f .turnpoint/x; git commit -q";
    for (more, named) in [
        ("echo y > .turnpoint/x", true),
        ("echo y > .turnpoint/y", true),
        ("mkdir -p .turnpoint/worktrees/z; echo z > .turnpoint/worktrees/z/z", true),
        ("true", false),
    ] {
        let run = exec(&program, &[], &format!("{script} -m '{more}'; {more}; exit 3")).exits(3);
        let told = run.stderr.contains("  .turnpoint: version control of its own\n");
        assert_eq!(told, named, "{more}: {}", run.stderr);
        if named {
            let (id, path) = only(&program);
            let content = fs::read(path.join(".turnpoint/x")).unwrap();
            assert_eq!(content, if more.ends_with("/x") { b"y\n" } else { b"x\n" });
            program.run(["worktree", "remove", &id, "--yes", "--discard"]).ok();
        }
        assert_cleared(&program);
        let removed = runs(&program, &["--removed"]);
        let id = removed.last().unwrap()["run"].as_str().unwrap();
        let own = format!("refs/turnpoint/removed/{id}/branch:.turnpoint/x");
        assert_eq!(program.git(["show", &own]), "x");
    }
}

/// git names the lock with the whole path, in which there may be anything.
#[test]
fn a_repository_in_a_directory_named_as_gits_own_is_asked_once() {
    let program = program();
    let top = program.root().join("worktrees/app");
    let place = top.to_str().unwrap();
    program.git(["clone", "-q", ".", place]);
    program.run(["-C", place, "exec", "--worktree", "--", "true"]).ok();
    let lock = top.join(".git/packed-refs.lock");
    fs::write(&lock, "").unwrap();
    let asked = program.root().join("asked");
    let script =
        format!("echo once >> {}; exec $git -c core.packedRefsTimeout=0 \"$@\"", asked.display());
    let git = git_that(&program, "*update-ref*-d*", &script);
    let words = ["-C", place, "worktree", "prune", "--older-than", "0s"];
    let failed = run(program.command(words).env("PATH", git)).exits(1);
    assert!(failed.stderr.contains("packed-refs.lock"), "{}", failed.stderr);
    assert_eq!(fs::read_to_string(&asked).unwrap(), "once\n");
    fs::remove_file(lock).unwrap();
    program.run(words).ok();
    assert!(!top.join(".turnpoint").exists());
}

#[test]
fn prune_says_which_stay_and_what_removes_them() {
    let program = program();
    let none = program.run(["worktree", "prune"]).ok();
    assert_eq!((none.stdout.as_str(), none.stderr.as_str()), ("there is nothing to remove\n", ""));
    exec(&program, &[], "echo made > made").ok();
    let (id, path) = only(&program);
    let kept = program.run(["worktree", "prune"]).ok();
    assert!(
        kept.stdout.contains(&format!("run {id} stays: its command ended ")),
        "{}",
        kept.stdout
    );
    assert!(kept.stderr.contains("`--older-than TIME` removes"), "{}", kept.stderr);
    assert!(kept.stderr.contains("`turnpoint worktree remove RUN`"), "{}", kept.stderr);
    let json = program.run(["worktree", "prune", "--older-than", "1h", "--json"]).ok().json();
    assert_eq!(
        (&json["kept"][0]["run"], &json["kept"][0]["reason"]),
        (&id.into(), &"ended".into())
    );
    assert!(json["kept"][0]["ended_at"].is_string());
    // One that is due, and that somebody works in.
    let mut sitting = Command::new("sleep").arg("60").current_dir(&path).spawn().unwrap();
    let refused = program.run(["worktree", "prune", "--older-than", "0s"]).exits(3);
    sitting.kill().unwrap();
    sitting.wait().unwrap();
    assert!(refused.stderr.contains(&format!("process {}", sitting.id())), "{}", refused.stderr);
    assert!(path.join("made").exists());
}

/// git may walk a long history before it says what leads where.
#[test]
fn a_removal_that_asks_git_for_long_is_stopped_by_the_first_signal() {
    let program = program();
    exec(&program, &[], "echo 1 > one && git add one && git commit -qm one").ok();
    let (id, path) = only(&program);
    let asked = program.root().join("asked");
    let script = format!("echo > {}; exec sleep 60", asked.display());
    let git = git_that(&program, "*rev-list*", &script);
    let mut command = program.command(["worktree", "remove", &id, "--yes"]);
    command.env("PATH", git).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    while !asked.exists() {
        assert_eq!(child.try_wait().unwrap(), None);
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let process = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(process, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(path.join("one").exists());
    program.run(["worktree", "remove", &id, "--yes"]).ok();
    assert_cleared(&program);
}

#[test]
fn a_prune_that_is_stopped_says_what_it_has_removed() {
    let program = program();
    exec(&program, &[], "echo made > made").ok();
    for is_json in [false, true] {
        exec(&program, &[], "echo made > made").ok();
        let [first, second] = runs(&program, &[]).try_into().unwrap();
        let id = |run: &Value| run["run"].as_str().unwrap().to_owned();
        let (first, second) = (id(&first), id(&second));
        let asked = program.root().join("asked");
        let script = format!("echo > {}; exec sleep 60", asked.display());
        // What git is asked about the second alone.
        let git = git_that(&program, &format!("*/worktrees/{second}\\ rev-parse*"), &script);
        let mut command = program.command(["worktree", "prune", "--older-than", "0s"]);
        command.args(is_json.then_some("--json")).env("PATH", git);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        while !asked.exists() {
            assert_eq!(child.try_wait().unwrap(), None);
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        fs::remove_file(&asked).unwrap();
        let process = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(process, rustix::process::Signal::INT).unwrap();
        let pruned = Run::of(child.wait_with_output().unwrap(), "prune").exits(130);
        if is_json {
            let json = pruned.json();
            assert_eq!(json["removed"].as_array().unwrap().len(), 1);
            assert_eq!(
                (&json["removed"][0]["run"], &json["cancelled"]),
                (&first.into(), &true.into())
            );
        } else {
            let told = format!("removed run {first}\n");
            assert!(pruned.stdout.contains(&told), "{}", pruned.stdout);
            assert!(!pruned.stdout.contains(&second), "{}", pruned.stdout);
            assert!(pruned.stderr.contains("error: "), "{}", pruned.stderr);
        }
        let left = runs(&program, &[]);
        assert_eq!(left.iter().map(id).collect::<Vec<_>>(), [second]);
    }
}

/// While a command runs the quit signal is passed on to it; afterwards it ends the program as ever.
#[test]
fn the_quit_signal_ends_a_removal_after_a_command() {
    let program = program();
    let asked = program.root().join("asked");
    let name = asked.display();
    let git = git_that(
        &program,
        "*rev-list*",
        &format!("echo $$ > {name}-; mv {name}- {name}; exec sleep 60"),
    );
    let mut command = program.command(["exec", "--worktree", "--", "false"]);
    command.env("PATH", git).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    while !asked.exists() {
        assert_eq!(child.try_wait().unwrap(), None);
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let process = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(process, rustix::process::Signal::QUIT).unwrap();
    let status = child.wait().unwrap();
    let git = fs::read_to_string(asked).unwrap().trim_end().parse().unwrap();
    let git = rustix::process::Pid::from_raw(git).unwrap();
    rustix::process::kill_process(git, rustix::process::Signal::KILL).ok();
    assert_eq!(status.signal(), Some(3));
}

/// One run is asked about: what git would say of the others is not needed.
#[test]
fn a_removal_asks_git_about_its_own_run_alone() {
    let program = program();
    exec(&program, &[], "echo made > made").ok();
    let (first, first_path) = only(&program);
    exec(&program, &[], "echo made > made").ok();
    let second = runs(&program, &[])[1]["run"].as_str().unwrap().to_owned();
    let log = program.root().join("asked");
    let script = format!("echo \"$PWD $*\" >> {}", log.display());
    let git = git_that(&program, "*", &script);
    run(program.command(["worktree", "remove", &second]).env("PATH", &git)).exits(3);
    run(program.command(["worktree", "list", "--removed"]).env("PATH", &git)).ok();
    let asked = fs::read_to_string(&log).unwrap();
    assert!(asked.contains(&second) && !asked.contains(&first), "{asked}");
    assert!(first_path.exists());
}

#[test]
fn runs_that_begin_and_end_at_once_do_not_meet() {
    let rounds = std::env::var("TURNPOINT_RUNS").map_or(3, |text| text.parse().unwrap());
    let program = program();
    build(&program.workspace(), [("later.txt", file("later\n"))]);
    let before = ground(&program);
    let binary = env!("CARGO_BIN_EXE_turnpoint");
    let script = format!(
        "for n in $(seq {rounds}); do {binary} exec --worktree -- false; code=$?; \
         [ $code = 1 ] || exit $code; done"
    );
    let children: Vec<_> = (0..8)
        .map(|_| {
            let mut shell = program.other("sh");
            shell.args(["-c", &script]).stdout(Stdio::null()).stderr(Stdio::piped());
            shell.spawn().unwrap()
        })
        .collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !stderr.contains("error: "), "{stderr}");
    }
    assert_eq!(runs(&program, &["--removed"]).len(), 8 * rounds);
    assert_cleared(&program);
    assert_eq!(ground(&program), before);
}

/// What git leaves that is killed while it takes away what it had begun to make.
#[test]
fn what_was_half_made_and_is_known_to_git_no_more_is_cleared() {
    let program = program();
    exec(&program, &[], "true").ok();
    let (id, path) = only(&program);
    let record = find_record(&program, &id);
    let mut text: Value = serde_json::from_slice(&fs::read(&record).unwrap()).unwrap();
    text["state"] = "making".into();
    fs::write(&record, text.to_string()).unwrap();
    fs::remove_dir_all(program.workspace().join(".git/worktrees")).unwrap();
    fs::remove_file(path.join("a.txt")).unwrap();
    program.run(["worktree", "prune"]).ok();
    assert_cleared(&program);
    assert!(!record.exists());
    program.git(["fsck", "--no-dangling", "--no-progress"]);
}

/// One run of which something cannot be looked at is no reason to say nothing.
#[test]
fn a_directory_that_may_not_be_read_hides_no_run() {
    let program = program();
    exec(&program, &[], "echo made > made").ok();
    let (whole, _) = only(&program);
    exec(&program, &[], "mkdir d; echo > d/x; chmod 000 d").ok();
    let closed = runs(&program, &[])[1].clone();
    let (id, path) = (closed["run"].as_str().unwrap(), closed["path"].as_str().unwrap());
    let unprivileged = |words: &[&str]| run(&mut bound(&program, words));
    let listed = unprivileged(&["worktree", "list", "--json"]).ok().json();
    assert_eq!(
        (&listed["runs"][0]["run"], &listed["runs"][0]["changed"]),
        (&whole.into(), &1.into())
    );
    assert_eq!(
        (&listed["runs"][1]["run"], &listed["runs"][1]["bytes"]),
        (&id.into(), &Value::Null)
    );
    let words = ["worktree", "prune", "--older-than", "0s", "--dry-run", "--json"];
    let planned = unprivileged(&words).ok().json();
    assert_eq!(planned["planned"].as_array().unwrap().len(), 2);
    let asked = unprivileged(&["worktree", "remove", id]).exits(3);
    assert!(asked.stdout.contains(&format!("what is in {path} is not known")), "{}", asked.stdout);
    fs::set_permissions(format!("{path}/d"), fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn what_cannot_be_understood_of_a_run_is_named_and_nothing_of_it_forgotten() {
    let program = program();
    program.run(["capture"]).ok();
    let directory = program.store().join("workspaces");
    let known = fs::read_dir(&directory).unwrap().next().unwrap().unwrap().file_name();
    exec(&program, &[], "echo made > made; exit 1").exits(1);
    let mut all = fs::read_dir(&directory).unwrap().map(|it| it.unwrap());
    let own = all.find(|it| it.file_name() != known).unwrap().path().join("workspace.json");
    exec(&program, &["--session", "p"], "echo made > made").ok();
    let there = find_record(&program, &only(&program).0);
    let removed = runs(&program, &["--removed"])[0].clone();
    let record = find_record(&program, removed["run"].as_str().unwrap());
    let text = fs::read(&own).unwrap();
    fs::write(&own, "{").unwrap();
    assert_eq!(program.run(["worktree", "prune", "--json"]).ok().json()["forgotten"], 0);
    assert!(record.exists());
    fs::write(&own, text).unwrap();
    fs::write(&record, "{").unwrap();
    let pruned = program.run(["worktree", "prune"]).exits(4);
    let named = format!("{} cannot be understood", record.display());
    assert!(pruned.stderr.contains(&named), "{}", pruned.stderr);
    let json = program.run(["worktree", "prune", "--json"]).exits(4).json();
    assert_eq!(json["unreadable"][0]["path"], record.to_str().unwrap());
    assert!(record.exists());
    // What a run began with that is there stays, also where nobody knows any more which one that is.
    fs::write(&there, "{").unwrap();
    program.run(["prune", "--session", "p", "--keep", "1"]).ok();
    assert_eq!(
        cat(&program, &serde_json::json!({ "session": "p", "seq": 0 }), "c.txt"),
        b"three\n"
    );
}

#[test]
fn of_a_removed_run_stays_what_leads_to_its_work_and_nothing_once_that_is_gone() {
    let program = program();
    let script = "echo 1 > one; git add one; git commit -qm one; echo 2 > two; exit 1";
    program.run(["capture"]).ok();
    let names = |below: &str| -> Vec<String> {
        let all = fs::read_dir(program.store().join(below)).unwrap();
        all.map(|it| it.unwrap().file_name().into_string().unwrap()).collect()
    };
    let (workspaces, locks) = (names("workspaces"), names("locks").len());
    exec(&program, &["--session", "s"], script).exits(1);
    // What captures of it needed went with it.
    assert_eq!(names("locks").len(), locks);
    let new: Vec<String> =
        names("workspaces").into_iter().filter(|it| !workspaces.contains(it)).collect();
    assert_eq!(
        (new.len(), names(&format!("workspaces/{}", new[0]))),
        (1, vec!["workspace.json".into()])
    );
    let id = runs(&program, &["--removed"])[0]["run"].as_str().unwrap().to_owned();
    let record = find_record(&program, &id);
    let prune = || program.run(["worktree", "prune", "--json"]).ok().json()["forgotten"].clone();
    assert_eq!(prune(), 0);
    program.run(["prune", "--session", "s", "--delete", "--yes"]).ok();
    // A ref still leads to its commit.
    assert_eq!(prune(), 0);
    assert!(record.exists());
    for name in ["branch", "index"] {
        program.git(["update-ref", "-d", &format!("refs/turnpoint/removed/{id}/{name}")]);
    }
    let dry = program.run(["worktree", "prune", "--dry-run", "--json"]).ok().json();
    assert_eq!((&dry["forgotten"], record.exists()), (&0.into(), true));
    assert_eq!(prune(), 1);
    assert_eq!((record.exists(), names("workspaces")), (false, workspaces));
    assert_eq!(runs(&program, &["--removed"]), Vec::<Value>::new());
    assert!(program.run(["doctor"]).ok().stderr.is_empty());
    assert_eq!(program.run(["verify"]).ok().stderr, "");
}

/// Where refs are no files.
#[test]
fn runs_of_a_repository_with_reftables_are_made_and_removed() {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    let mut init = program.other("git");
    init.args(["init", "-q", "--ref-format=reftable"]).arg(program.workspace());
    let init = run(&mut init);
    if init.code == 129 {
        eprintln!("NOT TESTED: this git has no reftables");
        return;
    }
    init.ok();
    build(&program.workspace(), [(".gitignore", file("*.log\n")), ("a.txt", file("one\n"))]);
    program.git(["add", "."]);
    program.git(["commit", "-q", "-m", "first"]);
    assert_eq!(program.git(["rev-parse", "--show-ref-format"]), "reftable");
    let refs = || program.git(["for-each-ref", "refs/heads"]);
    let before = refs();
    for (code, words) in
        [(3, &[][..]), (0, &["remove", "RUN", "--yes"]), (0, &["prune", "--older-than", "0s"])]
    {
        // Else a commit is that of an earlier run.
        let named = words.first().unwrap_or(&"failed");
        let script = format!(
            "echo 1 > one; git add one; git commit -qm 'one {named}'; git checkout -q --detach HEAD~; \
             git commit -q --allow-empty -m 'lone {named}'; git checkout -q -; \
             echo staged > a.txt; git add a.txt; echo later > a.txt; echo new > new; exit {code}"
        );
        exec(&program, &[], &script).exits(code);
        if code == 0 {
            let (id, _) = only(&program);
            let seen = &runs(&program, &[])[0];
            assert_eq!((&seen["commits"], &seen["changed"]), (&1.into(), &2.into()));
            let words = words.iter().map(|&word| if word == "RUN" { &id } else { word });
            program.run(std::iter::once("worktree").chain(words)).ok();
        }
        assert_cleared(&program);
        assert_eq!(refs(), before);
        let removed = runs(&program, &["--removed"]).pop().unwrap();
        let own = format!("refs/turnpoint/removed/{}", removed["run"].as_str().unwrap());
        for (name, found) in [("branch:one", "1"), ("index:a.txt", "staged")] {
            assert_eq!(program.git(["show", &format!("{own}/{name}")]), found);
        }
        let lone = program.git(["log", "--format=%s", "-1", &format!("{own}/log-1")]);
        assert_eq!(lone, format!("lone {named}"));
        assert_eq!(cat(&program, &removed["kept"], "new"), b"new\n");
        assert_eq!(cat(&program, &removed["kept"], "a.txt"), b"later\n");
    }
    program.git(["fsck", "--no-dangling", "--no-progress"]);
}

#[test]
fn beside_what_is_ignored_and_held_only_what_cannot_be_held_is_given_up() {
    let program = program();
    let script = "echo build/ >> .gitignore; mkdir build; echo out > build/out; mkfifo build/pipe";
    exec(&program, &[], script).ok();
    let (id, path) = only(&program);
    let remove = ["worktree", "remove", "--ignored", &id, "--yes"];
    let refused = program.run(remove).exits(3);
    assert!(refused.stderr.contains("  build/pipe: special\n"), "{}", refused.stderr);
    assert!(path.join("build/out").exists());
    let removed = program.run([&remove[..], &["--discard", "--json"]].concat()).ok().json();
    let left =
        json!({"files": 1, "bytes": 0, "paths": [{"path": "build/pipe", "reason": "special"}]});
    assert_eq!(removed["left_out"], left);
    let kept = &removed["kept"];
    let kept = format!("{}:{}", kept["session"].as_str().unwrap(), kept["seq"]);
    assert_eq!(program.run(["cat", &kept, "build/out"]).ok().stdout, "out\n");
    assert_cleared(&program);
}

/// Where a sparse checkout, or `--skip-worktree`, leaves a file out, and where the directory is gone, what is
/// staged is nowhere else.
#[test]
fn what_is_staged_and_in_no_file_is_kept_by_a_ref() {
    let program = program();
    let ground_before = ground(&program);
    let skip = "git update-index --skip-worktree c.txt";
    let left_out = format!(
        "{skip}; rm c.txt; blob=$(echo staged | git hash-object -w --stdin); \
         git update-index --cacheinfo 100644,$blob,c.txt; {skip}; git status --porcelain >&2"
    );
    for (script, is_gone) in
        [(left_out.as_str(), false), ("echo staged > c.txt; git add c.txt", true)]
    {
        let run = exec(&program, &[], script).ok();
        assert!(is_gone || run.stderr.contains("M  c.txt"), "{}", run.stderr);
        let (id, path) = only(&program);
        if is_gone {
            fs::remove_dir_all(&path).unwrap();
        }
        let removed = program.run(["worktree", "remove", &id, "--yes"]).ok();
        let index = format!("refs/turnpoint/removed/{id}/index");
        assert!(removed.stdout.contains(&format!("{index} leads to its work")), "{removed:?}");
        assert_eq!(program.git(["show", &format!("{index}:c.txt")]), "staged");
        assert_cleared(&program);
    }
    assert_eq!(ground(&program), ground_before);
}

/// A work tree in whose making git was killed after the files were there is one that a person may go on with.
#[test]
fn what_was_done_in_a_work_tree_that_git_did_not_quite_make_is_held() {
    let program = program();
    exec(&program, &[], "true").ok();
    let (id, path) = only(&program);
    let record = find_record(&program, &id);
    let text = fs::read_to_string(&record).unwrap();
    let making = text.replace("\"state\":\"made\"", "\"state\":\"making\"");
    assert_ne!(making, text);
    fs::write(&record, making).unwrap();
    let lock = program.workspace().join(".git/worktrees").join(&id).join("locked");
    fs::write(lock, "initializing").unwrap();
    fs::write(path.join("mine"), "mine\n").unwrap();
    program.run(["worktree", "prune"]).ok();
    assert_cleared(&program);
    let removed = &runs(&program, &["--removed"])[0];
    assert_eq!(cat(&program, &removed["kept"], "mine"), b"mine\n");
}

#[test]
fn a_work_tree_that_nobody_can_look_at_is_not_taken_for_gone() {
    let program = program();
    exec(&program, &[], "echo made > made.txt").ok();
    let (id, path) = only(&program);
    let (place, aside) = (path.parent().unwrap(), program.root().join("aside"));
    let before = ground(&program);
    fs::rename(place, &aside).unwrap();
    std::os::unix::fs::symlink("worktrees", place).unwrap();
    program.run(["worktree", "remove", &id, "--yes"]).exits(1);
    program.run(["worktree", "prune", "--older-than", "0s"]).exits(1);
    fs::remove_file(place).unwrap();
    fs::rename(&aside, place).unwrap();
    assert_eq!(ground(&program), before);
    program.run(["worktree", "remove", &id, "--yes"]).ok();
    let removed = &runs(&program, &["--removed"])[0];
    assert_eq!(cat(&program, &removed["kept"], "made.txt"), b"made\n");
    assert_cleared(&program);
}

/// git names each in a file of its own, most of which are missing at any time.
#[test]
fn what_commands_have_put_aside_is_kept_by_refs() {
    let program = program();
    let sides = "git checkout -q --detach; echo side > a.txt; git commit -qam side; git rev-parse HEAD; \
                 echo more > more; git add more; git commit -qm more; git rev-parse HEAD; \
                 git checkout -q HEAD~2; echo mine > a.txt; git commit -qam mine; \
                 rm -r $(git rev-parse --git-dir)/logs;";
    // What was not committed before a merge that leaves no other trace.
    let squashed = "echo work > src/b.txt; git merge -q --squash --autostash $(cat side); \
                    git checkout -q --theirs a.txt; git add a.txt; git rev-parse MERGE_AUTOSTASH";
    // What a cherry-pick of several has not come to.
    let picked = "git cherry-pick $(cat side more)";
    for (script, options) in [(squashed, &[][..]), (picked, &["--discard"])] {
        let save = "$(git rev-parse --git-dir)";
        let script = format!(
            "({sides}) > {save}/said; sed -n 1p {save}/said > side; sed -n 2p {save}/said > more; cat more; {script}"
        );
        let run = exec(&program, &[], &format!("{script}; exit 0")).ok();
        let (id, _) = only(&program);
        let remove = [&["worktree", "remove", &id, "--yes"], options].concat();
        program.run(remove).ok();
        assert_cleared(&program);
        let commits: Vec<&str> = run.stdout.lines().filter(|line| line.len() == 40).collect();
        let wanted = if options.is_empty() { commits[1] } else { commits[0] };
        assert!(led_to(&program).iter().any(|it| it == wanted), "{run:?}");
        if options.is_empty() {
            assert_eq!(program.git(["show", &format!("{wanted}:src/b.txt")]), "work");
        }
    }
}
