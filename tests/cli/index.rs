//! The index: plain sqlite3 reads it, and losing it loses nothing.

use std::fs;

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
