//! Runs in work trees of their own, through the library.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use turnpoint::{
    Error, IsolateOptions, IsolationError, KeptRun, RemoveOptions, Run, RunState, Store,
};

/// git in `directory`, with nothing of the caller's configuration.
pub(crate) fn git(directory: &Path, words: &[&str]) -> String {
    let mut command = Command::new("git");
    command.args(words).current_dir(directory);
    for name in Run::variables_to_remove() {
        command.env_remove(name);
    }
    for who in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{who}_NAME"), "Test");
        command.env(format!("GIT_{who}_EMAIL"), "test@example.com");
    }
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

/// A store and a repository with one commit.
fn repository() -> (tempfile::TempDir, Store, std::path::PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let top = dir.path().canonicalize().unwrap().join("work");
    fs::create_dir(&top).unwrap();
    fs::write(top.join("a.txt"), "one").unwrap();
    git(&top, &["init", "-q"]);
    git(&top, &["add", "a.txt"]);
    git(&top, &["commit", "-q", "-m", "first"]);
    let store = Store::at(&dir.path().join("sessions"));
    (dir, store, top)
}

pub(crate) fn isolation(error: Error) -> IsolationError {
    match error {
        Error::Isolation(error) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_run_is_alive_as_long_as_somebody_has_it() {
    let (_dir, store, top) = repository();
    let options = IsolateOptions::default();
    let mut run = store.isolate(&top, &options, &()).unwrap();
    assert_eq!(fs::read_to_string(run.directory().join("a.txt")).unwrap(), "one");
    let removal = RemoveOptions::default();
    let refused = store.remove_run_of(&top, run.id(), &removal, &()).unwrap_err();
    assert_eq!(isolation(refused), IsolationError::RunAlive { id: run.id() });
    let pruned = store.prune_runs(&top, Some(Duration::ZERO), false, &removal, &()).unwrap();
    assert!(pruned.removed.is_empty() && pruned.refused.is_empty());
    assert_eq!(pruned.kept, [(run.id(), KeptRun::Alive)]);

    fs::write(run.path().join("made"), "made").unwrap();
    let after = store.end_run(&mut run, 0, &()).unwrap();
    assert_ne!(after.checkpoint, run.before().checkpoint);
    let (id, path) = (run.id(), run.path());
    drop(run);
    let listed = store.runs(&top, false, &()).unwrap().runs;
    assert_eq!((listed[0].state, listed[0].status), (RunState::Made, Some(0)));
    assert!(!listed[0].is_alive && listed[0].has_work());
    // Kept until it is old enough, or somebody says so.
    let young =
        store.prune_runs(&top, Some(Duration::from_hours(1)), false, &removal, &()).unwrap();
    assert!(young.removed.is_empty() && path.exists());
    let ended = listed[0].ended_at.unwrap();
    assert_eq!(young.kept, [(id, KeptRun::Ended(ended))]);
    let planned = store.prune_runs(&top, Some(Duration::ZERO), true, &removal, &()).unwrap();
    assert_eq!((planned.planned[0].id, path.exists()), (id, true));
    let removed = store.remove_run_of(&top, id, &removal, &()).unwrap();
    // Nothing has changed since, so no further checkpoint is made.
    assert_eq!((removed.kept, removed.refs), (Some(after.checkpoint), vec![]));
    assert!(!top.join(".turnpoint").exists());
    assert_eq!(git(&top, &["for-each-ref", "refs/heads/turnpoint"]), "");
}

#[test]
fn a_run_that_its_process_gave_up_is_cleared_without_an_age() {
    let (_dir, store, top) = repository();
    let run = store.isolate(&top, &IsolateOptions::default(), &()).unwrap();
    fs::write(run.path().join("made"), "made").unwrap();
    drop(run);
    let removal = RemoveOptions::default();
    let pruned = store.prune_runs(&top, None, false, &removal, &()).unwrap();
    let kept = pruned.removed[0].kept.clone().unwrap();
    let mut made = Vec::new();
    let path = turnpoint::path::RelPath::new("made").unwrap();
    store.cat(&kept, &path, &mut made, &()).unwrap();
    assert_eq!(made, b"made");
    assert!(!top.join(".turnpoint").exists());
}

#[test]
fn a_run_that_cannot_be_made_leaves_nothing() {
    let (_dir, store, top) = repository();
    // A branch of this name is in the way of every branch below it.
    git(&top, &["branch", "turnpoint"]);
    let failed = store.isolate(&top, &IsolateOptions::default(), &()).unwrap_err();
    assert!(matches!(isolation(failed), IsolationError::Git { .. }));
    assert!(!top.join(".turnpoint").exists());
    assert!(store.runs(&top, false, &()).unwrap().runs.is_empty());
    assert_eq!(git(&top, &["worktree", "list"]).lines().count(), 1);
    assert_eq!(git(&top, &["status", "--porcelain"]), "");
}
