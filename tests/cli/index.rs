//! The index: plain sqlite3 reads it, and losing it loses nothing.

use std::fs;
use std::path::Path;

use crate::support::fingerprint;
use crate::support::program::{Program, run};
use crate::support::tree::{self, file};

const BINARY: &str = env!("CARGO_BIN_EXE_turnpoint");

fn ask(program: &Program, query: &str) -> String {
    let mut sqlite = program.other("sqlite3");
    sqlite.arg("-readonly").arg(program.store().join("index.db")).arg(query);
    run(&mut sqlite).ok().stdout.trim_end().to_owned()
}

fn history(program: &Program) {
    let workspace = program.workspace();
    tree::build(
        &workspace,
        [("a.txt", file("one")), ("b.txt", file("two")), (".env", file("SECRET=1"))],
    );
    program.run(["capture", "--session", "s", "--trigger", "turn-start"]).ok();
    tree::build(&workspace, [("a.txt", file("changed")), ("c.txt", file("new"))]);
    fs::remove_file(workspace.join("b.txt")).unwrap();
    program.run(["capture", "--session", "s", "--label", "two edits"]).ok();
}

#[test]
fn sqlite3_answers_questions_about_the_history() {
    let program = Program::new(BINARY);
    history(&program);
    let summary = "SELECT session, checkpoints, latest_seq FROM session_summary";
    assert_eq!(ask(&program, summary), "s|2|1");
    let files =
        "SELECT path, size FROM checkpoint_files WHERE session = 's' AND seq = 1 ORDER BY path";
    assert_eq!(ask(&program, files), "a.txt|7\nc.txt|3");
    let changes = "SELECT seq, path, change FROM changes WHERE session = 's' ORDER BY path";
    assert_eq!(ask(&program, changes), "1|a.txt|modified\n1|b.txt|deleted\n1|c.txt|added");
    let omitted = "SELECT path, reason FROM omitted WHERE session = 's' AND seq = 1";
    assert_eq!(ask(&program, omitted), ".env|secret");
}

#[test]
fn deleting_the_index_loses_nothing() {
    let program = Program::new(BINARY);
    history(&program);
    program.run(["pin", "s:0"]).ok();
    program.run(["label", "s:0", "the beginning"]).ok();
    let list = |program: &Program| program.run(["list", "--session", "s", "--json"]).ok().json();
    let before = list(&program);
    assert_eq!(before["checkpoints"][0]["pinned"], true);
    assert_eq!(before["checkpoints"][0]["label"], "the beginning");
    let views = ["session_summary", "checkpoint_files", "changes", "omitted", "checkpoint_list"];
    let asked: Vec<String> =
        views.iter().map(|view| ask(&program, &format!("SELECT * FROM {view}"))).collect();
    for name in ["index.db", "index.db-wal", "index.db-shm"] {
        fs::remove_file(program.store().join(name)).ok();
    }
    // A reader gives the same answer without it; a writer builds it anew.
    assert_eq!(list(&program), before);
    program.run(["gc"]).ok();
    assert_eq!(list(&program), before);
    for (view, before) in views.iter().zip(asked) {
        assert_eq!(ask(&program, &format!("SELECT * FROM {view}")), before, "{view}");
    }
    program.run(["verify", "--read-data"]).ok();
    program.run(["capture", "--session", "s"]).ok();
}

/// Whatever is in the place of the index, or of the one before it, an index is built.
#[test]
fn a_directory_in_the_place_of_the_index_is_put_away() {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    tree::build(&program.workspace(), [("a.txt", file("one"))]);
    program.run(["capture", "--session", "s"]).ok();
    let index = program.store().join("index.db");
    let spoil: [&dyn Fn(); 3] = [
        &|| fs::create_dir(&index).unwrap(),
        &|| fs::write(&index, "no database at all").unwrap(),
        &|| fs::create_dir(program.store().join("index.db-wal")).unwrap(),
    ];
    for (number, spoil) in (1..).zip(spoil.into_iter().cycle().take(6)) {
        for name in ["index.db", "index.db-wal", "index.db-shm"] {
            fs::remove_file(program.store().join(name)).ok();
        }
        spoil();
        fs::write(program.workspace().join("a.txt"), number.to_string()).unwrap();
        program.run(["capture", "--session", "s"]).ok();
        let json = program.run(["list", "--session", "s", "--json"]).ok().json();
        assert_eq!(json["checkpoints"].as_array().unwrap().len(), number + 1);
        program.run(["verify", "--read-data"]).ok();
    }
}

const INDEX: [&str; 3] = ["index.db", "index.db-wal", "index.db-shm"];

/// Copies what there is of the index; what there is not is not there either afterwards.
fn copy_index(from: &Path, to: &Path) {
    for name in INDEX {
        fs::remove_file(to.join(name)).ok();
        if from.join(name).exists() {
            fs::copy(from.join(name), to.join(name)).unwrap();
        }
    }
}

/// A purge writes manifests anew under the numbers that they had. By an index from before it nothing names
/// their pages, and what names others is gone.
#[test]
fn an_index_from_before_a_purge_is_noticed_before_anything_is_removed() {
    let program = Program::new(BINARY);
    history(&program);
    let other = program.root().join("other");
    tree::build(&other, [("x", file("x"))]);
    let run_at = |root: &Path, command: &str, hours: u64| {
        let mut command = program.command([command]);
        let shift = (hours * 3600).to_string();
        run(command.current_dir(root).env("TURNPOINT_TEST_CLOCK_SHIFT_SECONDS", shift)).ok()
    };
    run_at(&other, "capture", 0);
    let older = program.root().join("older");
    fs::create_dir(&older).unwrap();
    copy_index(&program.store(), &older);
    program.run(["purge", "a.txt", "--yes"]).ok();
    let into = program.root().join("into");
    let restored = |checkpoint: &str| {
        program.run(["restore", checkpoint, "--yes", "--into", into.to_str().unwrap()]).ok();
        let found = fingerprint::of(&into);
        fs::remove_dir_all(&into).unwrap();
        found
    };
    let holds = ["s:0", "s:1"].map(|checkpoint| (checkpoint, restored(checkpoint)));
    assert!(holds[0].1.contains_key(Path::new("b.txt")), "{holds:?}");

    // A capture sweeps by itself, a day after the last time.
    for (root, command, hours, said) in [
        (program.workspace(), "gc", 1, "was built anew"),
        (program.workspace(), "capture", 48, "was built anew"),
        (other, "capture", 96, "doctor --rebuild"),
    ] {
        copy_index(&older, &program.store());
        let found = program.run(["verify", "--json"]).exits(4).json();
        let found = found["findings"].as_array().unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0]["kind"], "index-damaged");
        assert!(found[0]["reason"].as_str().unwrap().contains("s:0 has digest"), "{found:?}");
        let done = run_at(&root, command, hours);
        assert!(done.stderr.contains(said), "{command} in {hours}: {}", done.stderr);
        run_at(&root, "gc", hours);
        for (checkpoint, held) in &holds {
            assert_eq!(restored(checkpoint), *held, "{command} in {hours}: {checkpoint}");
        }
        program.run(["verify", "--read-data"]).ok();
    }
}
