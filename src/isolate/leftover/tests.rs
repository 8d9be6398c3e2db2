use std::fs;
use std::path::Path;

use super::*;
use crate::clock::Timestamp;
use crate::id::{RunId, SessionName, WorkspaceId};
use crate::runs::RunState;

/// A run whose work tree has `names` in it, each with its own name as content.
fn run(top: &Path, names: &[&str]) -> RunRecord {
    let record = RunRecord {
        id: RunId::random(),
        state: RunState::Removing,
        workspace: WorkspaceId::random(),
        session: SessionName::new("runs").unwrap(),
        repository: top.join(".git"),
        top: top.to_owned(),
        commit: String::new(),
        command: Vec::new(),
        started_at: Timestamp::now(),
        ended_at: None,
        status: None,
        before: None,
        kept: None,
        further: Vec::new(),
        refs: Vec::new(),
        holds: None,
        applied: None,
    };
    for name in names {
        let path = record.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, name).unwrap();
    }
    record
}

/// What is below a directory, directories left out, in order.
fn below(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut pending = vec![directory.to_owned()];
    while let Some(inside) = pending.pop() {
        for entry in fs::read_dir(inside).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                pending.push(path);
            } else {
                let name = path.strip_prefix(directory).unwrap();
                found.push(name.to_str().unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

/// Waits until what is changed from now on has a later time than what was changed before.
fn let_time_go_on() {
    let begun = disk::coarse_now_ns();
    while disk::coarse_now_ns() == begun {
        std::thread::yield_now();
    }
}

fn is_changing(removed: &Result<()>) -> bool {
    matches!(removed, Err(Error::Isolation(IsolationError::Changing { .. })))
}

#[test]
fn rules_and_the_link_stay_as_long_as_something_else_does() {
    let guard = tempfile::tempdir().unwrap();
    let rules = [".git", ".gitattributes", ".gitignore", "sub/.gitignore"];
    let others = ["a.txt", "zoo/b.txt", "sub/c.txt"];
    let record = run(guard.path(), &[&rules[..], &others].concat());
    let leftover = Leftover::of(&record).unwrap();
    // It comes after that, and in a directory of its own.
    fs::create_dir(record.path().join("new")).unwrap();
    fs::write(record.path().join("new/late.txt"), "late").unwrap();
    assert!(is_changing(&leftover.remove(&record)));
    let stays = [".git", ".gitattributes", ".gitignore", "new/late.txt", "sub/.gitignore"];
    assert_eq!(below(&record.path()), stays);
    assert_eq!(fs::read_to_string(record.path().join("new/late.txt")).unwrap(), "late");
    assert!(!record.path().join("zoo").exists());

    // Once it is looked at as well, nothing stays.
    Leftover::of(&record).unwrap().remove(&record).unwrap();
    assert!(!record.path().exists());
}

#[test]
fn all_names_of_a_file_go_although_each_changes_its_time() {
    let guard = tempfile::tempdir().unwrap();
    let record = run(guard.path(), &["a", "sub/x"]);
    let path = record.path();
    for name in ["b", "sub/c"] {
        fs::hard_link(path.join("a"), path.join(name)).unwrap();
    }
    let leftover = Leftover::of(&record).unwrap();
    let_time_go_on();
    leftover.remove(&record).unwrap();
    assert!(!path.exists());
}

#[test]
fn a_file_that_got_or_lost_a_name_elsewhere_stays() {
    for gets_one in [true, false] {
        let guard = tempfile::tempdir().unwrap();
        let record = run(guard.path(), &["a", "x"]);
        let path = record.path();
        let outside = guard.path().join("outside");
        fs::hard_link(path.join("a"), path.join("b")).unwrap();
        if !gets_one {
            fs::hard_link(path.join("a"), &outside).unwrap();
        }
        let leftover = Leftover::of(&record).unwrap();
        let_time_go_on();
        if gets_one {
            fs::hard_link(path.join("a"), &outside).unwrap();
        } else {
            fs::remove_file(&outside).unwrap();
        }
        assert!(is_changing(&leftover.remove(&record)));
        assert_eq!(below(&path), ["a", "b"]);
        assert_eq!(fs::read_to_string(path.join("b")).unwrap(), "a");
        assert_eq!(outside.exists(), gets_one);
    }
}
