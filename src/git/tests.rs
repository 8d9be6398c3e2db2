use std::fs;
use std::os::unix::fs::PermissionsExt;

use proptest::prelude::*;

use super::*;
use crate::mutation::{assert_stays_inside, config, near, one_of};

/// A git of the test's own: no configuration but its own, a fixed identity.
fn git(directory: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .args(["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false"])
        .args(["-c", "init.defaultBranch=main", "-c", "protocol.file.allow=always"])
        .args(arguments)
        .current_dir(directory)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env_remove("GIT_DIR")
        .env_remove("GIT_INDEX_FILE")
        .output()
        .unwrap();
    assert!(output.status.success(), "git {arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn temp() -> (tempfile::TempDir, PathBuf) {
    let guard = tempfile::tempdir().unwrap();
    let path = guard.path().canonicalize().unwrap();
    (guard, path)
}

/// A repository with `names`, each committed with its own name as content.
fn repository(top: &Path, names: &[&str]) -> Repository {
    fs::create_dir_all(top).unwrap();
    git(top, &["init", "-q"]);
    for name in names {
        fs::create_dir_all(top.join(name).parent().unwrap()).unwrap();
        fs::write(top.join(name), name).unwrap();
    }
    git(top, &["add", "-A", "-f"]);
    git(top, &["commit", "-q", "--allow-empty", "-m", "base"]);
    Repository::at(top).unwrap()
}

fn names(tracked: &[TrackedPath]) -> Vec<String> {
    tracked.iter().map(|path| path.path.to_string()).collect()
}

const NEVER: &dyn Fn() -> bool = &|| false;

#[test]
fn every_variable_that_git_calls_local_is_dropped() {
    let (_guard, top) = temp();
    for name in git(&top, &["rev-parse", "--local-env-vars"]).lines() {
        let dropped =
            DROPPED.contains(&name) || DROPPED_PREFIXES.iter().any(|start| name.starts_with(start));
        assert!(dropped, "{name}");
    }
}

#[test]
fn repositories_are_found_as_git_finds_them() {
    let (_guard, path) = temp();
    let top = path.join("main");
    let main = repository(&top, &["a/b/c"]);
    assert_eq!(repository_of(&top.join("a/b")).unwrap(), main);
    assert_eq!(repository_of(&path), None);

    git(&top, &["worktree", "add", "-q", "--detach", "../linked"]);
    let linked = Repository::at(&path.join("linked")).unwrap();
    assert_eq!(linked.git_dir, top.join(".git/worktrees/linked"));
    assert_eq!(linked.common_dir.canonicalize().unwrap(), top.join(".git"));

    git(&top, &["submodule", "--quiet", "add", path.join("linked").to_str().unwrap(), "module"]);
    let module = Repository::at(&top.join("module")).unwrap();
    assert_eq!(module.git_dir.canonicalize().unwrap(), top.join(".git/modules/module"));

    for (repository, directory) in [(&main, &top), (&linked, &path.join("linked"))] {
        let said = git(directory, &["rev-parse", "--path-format=absolute", "--git-dir"]);
        assert_eq!(said.trim_end(), repository.git_dir.to_str().unwrap());
    }
}

#[test]
fn what_only_looks_like_a_repository_is_none() {
    let (_guard, path) = temp();
    fs::create_dir_all(path.join("empty/.git")).unwrap();
    fs::create_dir_all(path.join("file")).unwrap();
    fs::write(path.join("file/.git"), "gitdir: /nowhere\n").unwrap();
    fs::create_dir_all(path.join("text")).unwrap();
    fs::write(path.join("text/.git"), "hello").unwrap();
    fs::create_dir_all(path.join("pipe")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, path.join("pipe/.git"), 0o600.into()).unwrap();
    for name in ["empty", "file", "text", "pipe"] {
        assert_eq!(Repository::at(&path.join(name)), None, "{name}");
    }
}

#[test]
fn tracked_paths_are_relative_to_the_directory_asked_about() {
    let (_guard, top) = temp();
    let repository = repository(&top, &["sub/a", "sub/b/c\nd", "subway", "z"]);
    fs::write(top.join("sub/untracked"), "").unwrap();
    assert_eq!(
        names(&tracked(&repository, &top, NEVER).unwrap()),
        ["sub/a", "sub/b/c\\nd", "subway", "z"]
    );
    assert_eq!(names(&tracked(&repository, &top.join("sub"), NEVER).unwrap()), ["a", "b/c\\nd"]);
}

#[test]
fn a_path_in_conflict_is_listed_once_and_a_skipped_one_is_marked() {
    let lines = b"M a\0M a\0M a\0S b\0H c\xff\0";
    let paths = parse_tracked(lines, b"").unwrap();
    assert_eq!(names(&paths), ["a", "b", "c\\xFF"]);
    assert_eq!(paths.iter().map(|p| p.skip_worktree).collect::<Vec<_>>(), [false, true, false]);
    assert!(matches!(parse_tracked(b"garbage\0", b""), Err(GitError::Failed { .. })));
}

#[test]
fn a_sparse_checkout_marks_what_it_leaves_out() {
    let (_guard, top) = temp();
    let repository = repository(&top, &["in/a", "out/b", "top"]);
    git(&top, &["sparse-checkout", "set", "--sparse-index", "in"]);
    let paths = tracked(&repository, &top, NEVER).unwrap();
    let skipped: Vec<_> = paths.iter().filter(|path| path.skip_worktree).cloned().collect();
    assert_eq!(names(&skipped), ["out/b"]);
    assert_eq!(paths.len(), 3);
}

#[test]
fn head_is_a_commit_and_a_branch_where_there_are_such() {
    let (_guard, path) = temp();
    let unborn = path.join("unborn");
    fs::create_dir(&unborn).unwrap();
    git(&unborn, &["init", "-q", "-b", "feature/x"]);
    let state = head(&Repository::at(&unborn).unwrap(), NEVER).unwrap();
    assert_eq!(state, GitState { head: None, branch: Some("feature/x".to_owned()) });

    // A file of that name does not confuse it.
    let born = repository(&path.join("born"), &["HEAD"]);
    let commit = git(&born.top, &["rev-parse", "HEAD", "--"]).lines().next().unwrap().to_owned();
    let state = head(&born, NEVER).unwrap();
    assert_eq!(state.head.as_ref(), Some(&commit));
    assert_eq!(state.branch.as_deref(), Some("main"));

    git(&born.top, &["checkout", "-q", "--detach"]);
    let state = head(&born, NEVER).unwrap();
    assert_eq!(state, GitState { head: Some(commit), branch: None });
}

#[test]
fn the_stamp_of_the_index_changes_with_it_and_only_then() {
    let (_guard, top) = temp();
    let repository = repository(&top, &["a"]);
    let before = index_stamp(&repository).unwrap();
    tracked(&repository, &top, NEVER).unwrap();
    head(&repository, NEVER).unwrap();
    assert_eq!(index_stamp(&repository), Some(before));
    fs::write(top.join("b"), "").unwrap();
    git(&top, &["add", "b"]);
    assert_ne!(index_stamp(&repository), Some(before));
    fs::remove_file(top.join(".git/index")).unwrap();
    assert_eq!(index_stamp(&repository), None);
    assert_eq!(tracked(&repository, &top, NEVER).unwrap(), []);
}

#[test]
fn programs_named_in_the_repositorys_configuration_do_not_run() {
    let (_guard, top) = temp();
    let repository = repository(&top, &["a"]);
    let hook = top.join("hook");
    let witness = top.join("ran");
    fs::write(&hook, format!("#!/bin/sh\ntouch '{}'\n", witness.display())).unwrap();
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    let hook = hook.to_str().unwrap();
    for name in ["core.fsmonitor", "core.pager", "core.sshCommand", "pager.ls-files"] {
        git(&top, &["config", name, hook]);
    }
    // The witness is one: a git without our flags runs the monitor.
    git(&top, &["status"]);
    assert!(witness.exists());
    fs::remove_file(&witness).unwrap();

    tracked(&repository, &top, NEVER).unwrap();
    head(&repository, NEVER).unwrap();
    assert!(!witness.exists());
}

#[test]
fn a_work_tree_named_in_the_configuration_changes_nothing() {
    let (_guard, path) = temp();
    let repository = repository(&path.join("r"), &["a", "sub/b"]);
    git(&repository.top, &["config", "core.worktree", path.to_str().unwrap()]);
    let sub = repository.top.join("sub");
    assert_eq!(names(&tracked(&repository, &sub, NEVER).unwrap()), ["b"]);
}

#[test]
fn a_repository_of_another_user_is_read() {
    let (_guard, top) = temp();
    let repository = repository(&top, &["a"]);
    // Only root can give files away; the tests' user may not be root, and then the case is not one.
    if std::os::unix::fs::chown(&top, Some(4242), None).is_ok() {
        std::os::unix::fs::chown(top.join(".git"), Some(4242), None).unwrap();
    }
    assert_eq!(names(&tracked(&repository, &top, NEVER).unwrap()), ["a"]);
}

/// The part that runs in a child of its own, with an environment that would mislead git.
#[test]
fn hostile_variables_change_nothing() {
    const MARK: &str = "TURNPOINT_TEST_HOSTILE_TOP";
    if let Some(top) = std::env::var_os(MARK) {
        let top = PathBuf::from(top);
        let repository = Repository::at(&top).unwrap();
        assert_eq!(names(&tracked(&repository, &top, NEVER).unwrap()), ["mine"]);
        assert_eq!(head(&repository, NEVER).unwrap().branch.as_deref(), Some("main"));
        return;
    }
    let (_guard, path) = temp();
    let mine = repository(&path.join("mine"), &["mine"]);
    let other = repository(&path.join("other"), &["other"]);
    git(&other.top, &["checkout", "-q", "-b", "elsewhere"]);
    let trace = path.join("trace");
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "git::tests::hostile_variables_change_nothing", "--nocapture"])
        .env(MARK, &mine.top)
        .env("GIT_DIR", &other.git_dir)
        .env("GIT_COMMON_DIR", &other.git_dir)
        .env("GIT_WORK_TREE", &other.top)
        .env("GIT_INDEX_FILE", other.git_dir.join("index"))
        .env("GIT_PREFIX", "sub/")
        .env("GIT_NAMESPACE", "elsewhere")
        .env("GIT_CEILING_DIRECTORIES", &path)
        .env("GIT_LITERAL_PATHSPECS", "1")
        .env("GIT_TRACE", &trace)
        .env("GIT_CONFIG_COUNT", "1")
        .env("GIT_CONFIG_KEY_0", "core.worktree")
        .env("GIT_CONFIG_VALUE_0", &other.top)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && said.contains("1 passed"), "{child:?}");
    assert!(!trace.exists());
}

/// The part that runs in a child of its own, with a PATH that has no git.
#[test]
fn a_machine_without_git_is_an_answer() {
    const MARK: &str = "TURNPOINT_TEST_NO_GIT_TOP";
    if let Some(top) = std::env::var_os(MARK) {
        let top = PathBuf::from(top);
        let repository = Repository::at(&top).unwrap();
        assert_eq!(tracked(&repository, &top, NEVER), Err(GitError::NotInstalled));
        assert_eq!(head(&repository, NEVER), Err(GitError::NotInstalled));
        return;
    }
    let (_guard, top) = temp();
    let repository = repository(&top, &["a"]);
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "git::tests::a_machine_without_git_is_an_answer", "--nocapture"])
        .env(MARK, &repository.top)
        .env("PATH", "/nonexistent")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && said.contains("1 passed"), "{child:?}");
}

#[test]
fn a_repository_that_git_refuses_is_an_answer() {
    let (_guard, top) = temp();
    let repository = repository(&top, &["a"]);
    fs::write(repository.git_dir.join("index"), "not an index").unwrap();
    let Err(GitError::Failed { reason }) = tracked(&repository, &top, NEVER) else {
        panic!("git read a broken index");
    };
    assert!(!reason.is_empty());
    fs::remove_dir_all(&top).unwrap();
    assert!(matches!(tracked(&repository, &top, NEVER), Err(GitError::Failed { .. })));
}

/// A child that would run for ever, with what it writes beforehand.
fn endless(before: &str) -> Command {
    let mut command = Command::new("sh");
    command
        .arg("-c")
        .arg(format!("{before}; exec sleep 1000"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn is_running(id: &str) -> bool {
    fs::read_to_string(format!("/proc/{id}/stat")).is_ok()
}

#[test]
fn a_child_beyond_its_deadline_is_killed_and_reaped() {
    let (_guard, path) = temp();
    let id_file = path.join("id");
    let command = endless(&format!("echo $$ > '{}'", id_file.display()));
    let ended = finish(command, &path, Ending::Killed(Duration::from_millis(300)), NEVER);
    assert_eq!(ended.unwrap_err(), GitError::TimedOut);
    let id = fs::read_to_string(&id_file).unwrap();
    assert!(!is_running(id.trim()), "{id} is still there, as a process or a zombie");

    // The output has ended and the child has not.
    let command = endless(&format!("echo $$ > '{}'; exec >&- 2>&-", id_file.display()));
    let ended = finish(command, &path, Ending::Killed(Duration::from_millis(300)), NEVER);
    assert_eq!(ended.unwrap_err(), GitError::TimedOut);
    assert!(!is_running(fs::read_to_string(&id_file).unwrap().trim()));
}

#[test]
fn a_cancelled_child_is_killed_and_reaped() {
    let (_guard, path) = temp();
    let id_file = path.join("id");
    let command = endless(&format!("echo $$ > '{}'", id_file.display()));
    let ended =
        finish(command, &path, Ending::Killed(Duration::from_mins(1)), &|| id_file.exists());
    assert_eq!(ended.unwrap_err(), GitError::Cancelled);
    // It may have been killed before it had written all of its number.
    let id = fs::read_to_string(&id_file).unwrap();
    assert!(id.trim().is_empty() || !is_running(id.trim()));
}

/// `script` as a child whose output and complaints are read.
fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn what_a_failed_run_has_said_is_waited_for() {
    let (_guard, path) = temp();
    // As where the machine is busy: it comes when the end of the run is long known.
    let late = "(sleep 0.3; echo 'fatal: not a git repository' >&2) >&- & exit 128";
    let answer = finish(shell(late), &path, Ending::Asked, NEVER).unwrap();
    assert_eq!(answer.status.code(), Some(128));
    assert_eq!(answer.complaint, b"fatal: not a git repository\n");
    // Somebody whom it has started has its stderr.
    let id_file = path.join("id");
    let held = format!("sleep 1000 >&- & echo $! > '{}'; echo no >&2; exit 1", id_file.display());
    let answer = finish(shell(&held), &path, Ending::Asked, NEVER).unwrap();
    let id = fs::read_to_string(&id_file).unwrap();
    let ended = Command::new("kill").arg(id.trim()).status().unwrap();
    assert!(ended.success());
    assert_eq!((answer.status.code(), answer.complaint.as_slice()), (Some(1), &b"no\n"[..]));
    assert!(answer.found().is_err());
}

#[test]
fn who_says_much_is_heard_to_the_end_and_the_first_of_it_is_kept() {
    let (_guard, path) = temp();
    for status in [0, 3] {
        let much = format!("head -c 300000 /dev/zero >&2 && echo done; exit {status}");
        let answer = finish(shell(&much), &path, Ending::Asked, NEVER).unwrap();
        assert_eq!(
            (answer.status.code(), answer.output.as_slice()),
            (Some(status), &b"done\n"[..])
        );
        let kept = if status == 0 { 0 } else { limits::GIT_COMPLAINT_BYTES_MAX };
        assert_eq!(answer.complaint.len() as u64, kept);
    }
}

/// Lines as git prints them, of paths of all kinds.
fn any_list() -> impl Strategy<Value = Vec<u8>> {
    one_of(&[
        "",
        "H a\0S b\0M c/d\0M c/d\0M c/d\0",
        "H in/a\0H in-b\0s in/c/\u{e9}\0H inner\0",
        "H in\0H in/../x\0H /etc\0H in//x\0H ..\0H .\0",
    ])
}

proptest! {
    #![proptest_config(config())]

    /// Whatever git, or something in its place, prints: a path is one below the directory asked about.
    #[test]
    fn no_list_in_the_place_of_gits_does_harm(
        list in near(any_list()),
        prefix in one_of(&["", "in", "c/d", "..", "/"]),
    ) {
        let lines = list.split(|&byte| byte == 0).filter(|line| !line.is_empty()).count();
        match parse_tracked(&list, &prefix) {
            Ok(paths) => {
                prop_assert!(paths.len() <= lines);
                prop_assert!(paths.windows(2).all(|pair| pair[0].path != pair[1].path));
                let mut again = Vec::new();
                for TrackedPath { path, skip_worktree } in &paths {
                    assert_stays_inside(path.as_bytes());
                    let below = if prefix.is_empty() { &b""[..] } else { b"/" };
                    again.extend_from_slice(if *skip_worktree { b"S " } else { b"H " });
                    again.extend([&prefix, below, path.as_bytes(), b"\0"].concat());
                }
                prop_assert_eq!(parse_tracked(&again, &prefix), Ok(paths));
            }
            Err(error) => {
                assert!(matches!(&error, GitError::Failed { .. }));
                prop_assert!(!error.to_string().contains(char::is_control));
            }
        }
    }
}

#[test]
fn a_git_that_waits_for_others_is_told_by_its_command_alone() {
    let is_at_work = |line: &str| {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        locks::is_at_work(&words)
    };
    for line in [
        "git daemon --reuseaddr",
        "/usr/bin/git -C /src fsmonitor--daemon run",
        "/usr/lib/git-core/git-daemon --base-path=/src",
        "git-credential-cache--daemon /run/socket",
        "ssh-agent",
        "",
    ] {
        assert!(!is_at_work(line), "{line}");
    }
    for line in [
        "git -C /src/mydaemon pack-refs --all",
        "git -C daemon gc",
        "git --git-dir=/src/daemon -c a.b=daemon update-ref refs/heads/daemon x",
        "git commit -m daemon",
        "git-upload-pack /src/daemon",
        "git",
    ] {
        assert!(is_at_work(line), "{line}");
    }
}

#[test]
fn only_what_git_keeps_of_another_work_tree_is_a_reason_to_ask_again() {
    let is_again = |reason: &str, common: &str| {
        asking::is_of_another(reason.as_bytes(), Path::new(common), "own")
    };
    // As git has it, by where it was told of the repository.
    for place in ["", "/src/worktrees/app/"] {
        let reason = format!("fatal: failed to read {place}.git/worktrees/x/commondir: Success");
        assert!(is_again(&reason, "/src/worktrees/app/.git"), "{reason}");
        let reason = format!("fatal: failed to read {place}.git/worktrees/own/commondir: Success");
        assert!(!is_again(&reason, "/src/worktrees/app/.git"), "{reason}");
    }
    let gone =
        "fatal: could not create directory of '.git/worktrees/own': No such file or directory";
    assert!(is_again(gone, "/src/worktrees/app/.git"));
    for common in ["/src/worktrees/app/.git", "/src/worktrees/app.git", "/src/.git/worktrees/app"] {
        let lock = format!("error: Unable to create '{common}/packed-refs.lock': File exists.");
        assert!(!is_again(&lock, common), "{common}");
    }
}

#[test]
fn what_work_trees_share_is_known_by_what_git_keeps_of_one() {
    let (_guard, path) = temp();
    let top = path.join("worktrees/app");
    let main = repository(&top, &["a"]);
    git(&top, &["worktree", "add", "-q", "--detach", "../linked"]);
    let linked = Repository::at(&path.join("worktrees/linked")).unwrap();
    for git_dir in [&main.git_dir, &linked.git_dir] {
        assert_eq!(asking::common_dir_of(git_dir), top.join(".git"));
    }
}

#[test]
fn a_lock_that_was_taken_anew_is_not_removed_for_the_one_before() {
    let (_guard, top) = temp();
    let lock = top.join("main.lock");
    fs::write(&lock, "").unwrap();
    let dead = locks::stamp_of(&lock).unwrap().unwrap();
    // Another file by its inode: the old one is still there.
    fs::rename(&lock, top.join("old")).unwrap();
    fs::write(&lock, "held").unwrap();
    assert!(!locks::remove_if_as(&lock, &dead).unwrap());
    assert_eq!(fs::read_to_string(&lock).unwrap(), "held");
    let held = locks::stamp_of(&lock).unwrap().unwrap();
    assert!(locks::remove_if_as(&lock, &held).unwrap());
    assert_eq!((lock.exists(), locks::stamp_of(&lock).unwrap()), (false, None));
}
