//! What only looks writes nothing: not into a store that is not there, nor into one that can only be
//! read.

use std::fs;
use std::path::Path;

use crate::support::fingerprint;
use crate::support::program::{Program, Run, run};
use crate::support::tree::{build, file};

fn captured() -> Program {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    build(&program.workspace(), [("a.txt", file("one"))]);
    program.run(["capture", "--session", "s"]).ok();
    fs::write(program.workspace().join("a.txt"), "changed").unwrap();
    program.run(["restore", "s:0", "--session", "s", "--yes"]).ok();
    fs::write(program.workspace().join("a.txt"), "changed again").unwrap();
    program
}

/// Runs the program with a sessions home that is mounted read-only for it alone: permissions mean
/// nothing to root. Whoever is not root must be allowed namespaces of their own.
fn read_only(program: &Program, arguments: &[&str]) -> Run {
    let mount =
        "mount --bind \"$0\" \"$0\" && mount -o remount,ro,bind \"$0\" || exit 99; exec \"$@\"";
    let mut command = program.other("unshare");
    command.args(["--mount", "--propagation", "private"]);
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command.args(["sh", "-c", mount]).arg(program.sessions_home());
    run(command.arg(env!("CARGO_BIN_EXE_turnpoint")).args(arguments))
}

#[test]
fn a_store_that_can_only_be_read_is_shown_planned_from_and_written_out() {
    let program = captured();
    let into = program.root().join("into");
    let store = fingerprint::with_stamps(&program.store());
    for (arguments, said) in [
        (&["list"][..], "manual"),
        (&["cat", "s:0", "a.txt"], "one"),
        (&["verify", "--read-data"], "every byte is as it was stored"),
        (&["sql", "SELECT path FROM checkpoint_files"], "a.txt"),
        (&["restore", "s:0", "--dry-run"], "1 to overwrite"),
        (&["undo", "--dry-run"], "nothing to take back"),
        (&["prune", "--dry-run"], "nothing to prune"),
        (&["gc", "--dry-run"], "nothing would be removed"),
        (&["restore", "s:0", "--into", into.to_str().unwrap()], "wrote 1 path"),
    ] {
        let run = read_only(&program, arguments).ok();
        assert!(run.stdout.contains(said), "{arguments:?}\n{}", run.stdout);
    }
    assert_eq!(fs::read_to_string(into.join("a.txt")).unwrap(), "one");
    fingerprint::assert_same(&store, &fingerprint::with_stamps(&program.store()));
    for refused in [&["capture"][..], &["restore", "s:0", "--yes"]] {
        let run = read_only(&program, refused).exits(1);
        assert!(run.stderr.contains("Read-only file system"), "{}", run.stderr);
    }
    assert_eq!(fs::read_to_string(program.workspace().join("a.txt")).unwrap(), "changed again");
    // SQLite must make this file if it is missing.
    fs::remove_file(program.store().join("index.db-shm")).unwrap();
    let run = read_only(&program, &["sql", "SELECT path FROM checkpoint_files"]).exits(1);
    assert!(run.stderr.contains("copy it and ask the copy"), "{}", run.stderr);
    assert!(read_only(&program, &["list"]).ok().stdout.contains("manual"));
}

#[test]
fn a_dry_run_leaves_no_trace_in_a_store_that_can_be_written() {
    let program = captured();
    let workspaces = || fs::read_dir(program.store().join("workspaces")).unwrap().count();
    let operations = || {
        let mut sqlite = program.other("sqlite3");
        sqlite.arg("-readonly").arg(program.store().join("index.db"));
        run(sqlite.arg("SELECT count(*) FROM operations")).ok().stdout
    };
    let index = || {
        let stamp =
            |name: &str| fs::metadata(program.store().join(name)).unwrap().modified().unwrap();
        [stamp("index.db"), stamp("index.db-wal")]
    };
    let before = (workspaces(), operations(), index());
    program.run(["restore", "s:0", "--dry-run"]).ok();
    program.run(["undo", "--dry-run"]).ok();
    // Nor is a workspace minted for a directory that is only looked at.
    let other = program.root().join("other");
    build(&other, [("b.txt", file("two"))]);
    program.run(["restore", "s:0", "--dry-run", "-C", other.to_str().unwrap()]).exits(3);
    program.run(["undo", "--dry-run", "-C", other.to_str().unwrap()]).exits(2);
    assert_eq!((workspaces(), operations(), index()), before);
}

#[test]
fn only_a_capture_makes_a_store() {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    build(&program.workspace(), [("a.txt", file("one"))]);
    let into = program.root().join("into");
    let id = "0123456789abcdef0123456789abcdef";
    for (arguments, code) in [
        (&["list"][..], 0),
        (&["list", "--sessions"], 0),
        (&["list", "--session", "s"], 2),
        (&["show"], 2),
        (&["ls"], 2),
        (&["cat", "s:0", "a.txt"], 2),
        (&["restore", "s:0", "--dry-run"], 2),
        (&["restore", "s:0", "--yes"], 2),
        (&["restore", "s:0", "--into", into.to_str().unwrap()], 2),
        (&["restore", "--continue"], 2),
        (&["restore", "--abort", "--yes"], 2),
        (&["undo", "--dry-run"], 2),
        (&["undo", "--yes"], 2),
        (&["pin", "s:0"], 2),
        (&["unpin", "s:0"], 2),
        (&["label", "s:0", "text"], 2),
        (&["prune", "--dry-run"], 0),
        (&["prune"], 0),
        (&["prune", "--session", "s"], 2),
        (&["gc", "--dry-run"], 0),
        (&["gc"], 0),
        (&["verify"], 0),
        (&["sql", "SELECT 1"], 2),
        (&["sql", "--schema"], 0),
        (&["doctor"], 0),
        (&["doctor", "--rebuild"], 0),
        (&["doctor", "--forget-operation", id], 2),
    ] {
        program.run(arguments).exits(code);
        assert!(!program.sessions_home().exists(), "{arguments:?}");
    }
    assert!(!Path::new(&into).exists());
}
