//! How the tests run the program.

use std::collections::BTreeMap;

use crate::support::program::{Program, run};

#[test]
fn a_run_sees_only_the_surroundings_made_for_it() {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    let shown = run(&mut program.other("env")).ok().stdout;
    let seen: BTreeMap<&str, &str> =
        shown.lines().filter_map(|line| line.split_once('=')).collect();
    let allowed = [
        "PATH",
        "TMPDIR",
        "HOME",
        "TURNPOINT_HOME",
        "LC_ALL",
        "TZ",
        "GIT_CONFIG_NOSYSTEM",
        "GIT_AUTHOR_DATE",
        "GIT_COMMITTER_DATE",
    ];
    assert!(seen.keys().all(|key| allowed.contains(key)), "{shown}");
    for key in ["HOME", "TURNPOINT_HOME"] {
        assert!(seen[key].starts_with(program.root().to_str().unwrap()), "{shown}");
    }
    assert!(!program.sessions_home().exists());
}

#[test]
fn git_has_an_identity_and_makes_the_same_commit_every_time() {
    let commit = || {
        let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
        program.git(["init", "-q"]);
        program.git(["commit", "-q", "--allow-empty", "-m", "first"]);
        program.git(["rev-parse", "HEAD"])
    };
    assert_eq!(commit(), commit());
}

#[test]
fn the_directory_of_a_run_goes_away_with_it() {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    let root = program.root().to_owned();
    std::fs::write(program.workspace().join("file"), "content").unwrap();
    drop(program);
    assert!(!root.exists());
}
