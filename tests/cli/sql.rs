//! `turnpoint sql`: the answers are those of `sqlite3`, and nothing but reading happens.

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::support::fingerprint;
use crate::support::program::{Program, Run, run};
use crate::support::tree::{build, file};

const BINARY: &str = env!("CARGO_BIN_EXE_turnpoint");

/// One row that never comes, more rows than a pipe takes, and more than is held in memory.
const ENDLESS: &str =
    "WITH RECURSIVE r(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM r) SELECT count(*) FROM r";
const LONG: &str =
    "WITH RECURSIVE r(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM r LIMIT 50000) SELECT a FROM r";
const LARGE: &str = "WITH RECURSIVE r(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM r LIMIT 40000)
                     SELECT a, printf('%.*c', 2000, 'x') AS x FROM r";

fn program() -> Program {
    let program = Program::new(BINARY);
    build(
        &program.workspace(),
        [("a.txt", file("one")), ("b, \"c\"\nd.txt", file("two")), (".env", file("SECRET=1"))],
    );
    program.run(["capture", "--session", "s", "--trigger", "turn-start"]).ok();
    build(&program.workspace(), [("a.txt", file("changed")), ("new\u{9b}31m.txt", file("new"))]);
    program.run(["capture", "--session", "s", "--trigger", "turn-end", "--label", "done"]).ok();
    program
}

fn sqlite3(program: &Program, options: &[&str], sql: &str) -> Run {
    let mut command = program.other("sqlite3");
    command.arg("-readonly").args(options).arg(program.store().join("index.db")).arg(sql);
    run(&mut command).ok()
}

/// The shell `script`, in which `turnpoint` is the program and `$SQL` the query.
fn shell(program: &Program, script: &str, sql: &str) -> Run {
    let script = script.replace("turnpoint", BINARY);
    run(program.other("bash").args(["-c", &script]).env("SQL", sql))
}

#[test]
fn the_answers_are_those_of_sqlite3() {
    let program = program();
    for sql in [
        "SELECT session, seq, path, size, mode, target FROM checkpoint_files ORDER BY seq, path",
        "SELECT * FROM changes ORDER BY path",
        "SELECT session, seq, created_at, label, note, git_head, bytes FROM checkpoint_list",
        "SELECT * FROM turns",
        "SELECT 1 AS one, 'a''b' AS text, NULL AS absent, 0.5 AS half, -1 AS less",
        "SELECT path FROM changes WHERE 0",
    ] {
        if !sql.contains('*') {
            // A third program reads what both have written.
            let read = "import csv, io, json, sys; lines = io.TextIOWrapper(sys.stdin.buffer, newline=''); \
                        print(json.dumps(list(csv.reader(lines))))";
            let ours = format!("turnpoint sql --format csv \"$SQL\" | python3 -c \"{read}\"");
            let theirs = "sqlite3 -readonly -header -csv ../sessions/checkpoints/index.db \"$SQL\"";
            let theirs = format!("{theirs} | python3 -c \"{read}\"");
            let ours = shell(&program, &ours, sql).ok().json();
            let theirs = shell(&program, &theirs, sql).ok().json();
            // sqlite3 says nothing where there is no row.
            assert!(ours == theirs || theirs == json!([]) && ours == json!([["path"]]), "{ours}");
        }
        // Blobs have a form of their own in both.
        let text = sqlite3(&program, &["-json"], sql).stdout;
        let theirs: Vec<Value> =
            if text.is_empty() { Vec::new() } else { serde_json::from_str(&text).unwrap() };
        let without_blobs = |mut row: Value| {
            row.as_object_mut().unwrap().remove("path_bytes");
            row
        };
        let theirs: Vec<Value> = theirs.into_iter().map(without_blobs).collect();
        let lines = program.run(["sql", "--format", "ndjson", sql]).ok().stdout;
        let objects: Vec<Value> =
            lines.lines().map(|line| without_blobs(serde_json::from_str(line).unwrap())).collect();
        assert_eq!(objects, theirs, "{sql}");
        let document = program.run(["sql", "--json", sql]).ok().json();
        assert_eq!(document["schema"], 1);
        assert_eq!(document["has_more"], false);
        let columns = document["columns"].as_array().unwrap();
        let rows = document["rows"].as_array().unwrap();
        let objects: Vec<Value> = rows
            .iter()
            .map(|row| {
                let names = columns.iter().map(|name| name.as_str().unwrap().to_owned());
                let values = row.as_array().unwrap().iter().cloned();
                assert_eq!(columns.len(), values.len());
                without_blobs(Value::Object(names.zip(values).collect()))
            })
            .collect();
        assert_eq!(objects, theirs, "{sql}");
        assert_eq!(program.run(["sql", "--format", "json", sql]).ok().json(), document);
    }
}

#[test]
fn each_form_has_a_word_for_each_kind_of_value() {
    let program = program();
    let sql = "SELECT NULL AS a, x'00ff' AS b, 1e999 AS a, '' AS c, char(27) || 'x' AS d";
    let table = program.run(["sql", sql]).ok().stdout;
    assert_eq!(table, "a     b          a  c  d\nNULL  x'00ff'  inf     \\u{1b}x\n");
    let csv = program.run(["sql", "--format", "csv", sql]).ok().stdout;
    assert_eq!(csv, "a,b,a,c,d\r\n,x'00ff',inf,,\u{1b}x\r\n");
    let object = program.run(["sql", "--format", "ndjson", sql]).ok().json();
    let expected = json!({
        "a": null, "b": { "base64": "AP8=" }, "a_2": "Infinity", "c": "", "d": "\u{1b}x"
    });
    assert_eq!(object, expected);
}

#[test]
fn nothing_but_reading_is_allowed() {
    let program = program();
    let outside = program.root().join("outside");
    let outside = outside.to_str().unwrap();
    // The file of shared memory says who reads.
    let state = || fingerprint::without(&fingerprint::of(&program.store()), &["index.db-shm"]);
    let before = state();
    let rows = sqlite3(&program, &[], "SELECT count(*) FROM entries").stdout;
    for (sql, said) in [
        ("DELETE FROM entries", "a change of `entries`"),
        ("UPDATE checkpoints SET label = 'x'", "a change of `checkpoints`"),
        ("INSERT INTO sessions VALUES (9, 'x', 'x', 0)", "a change of `sessions`"),
        ("WITH x(a) AS (SELECT 1) DELETE FROM entries", "a change of `entries`"),
        ("EXPLAIN DELETE FROM entries", "a change of `entries`"),
        ("DROP TABLE entries", "a change of the schema"),
        ("CREATE TABLE x (a)", "a change of the schema"),
        ("CREATE TEMP TABLE x (a)", "a change of the schema"),
        ("CREATE VIRTUAL TABLE x USING fts5(a)", "a change of the schema"),
        ("ANALYZE", "a change of the schema"),
        ("REINDEX", "a change of the schema"),
        ("PRAGMA journal_mode = DELETE", "PRAGMA journal_mode"),
        ("PRAGMA query_only = OFF", "PRAGMA query_only"),
        ("SELECT * FROM pragma_table_info('entries')", "PRAGMA table_info"),
        ("BEGIN IMMEDIATE", "a transaction"),
        ("SAVEPOINT x", "a transaction"),
        ("VACUUM", "a statement without rows"),
        (&format!("VACUUM INTO '{outside}'"), "a statement without rows"),
        (&format!("ATTACH '{outside}' AS x"), "another database"),
        ("SELECT load_extension('x')", "the function load_extension"),
        ("SELECT LOAD_EXTENSION('x')", "the function"),
        ("SELECT fts3_tokenizer('simple')", "the function fts3_tokenizer"),
        ("SELECT 1; DELETE FROM entries", "a change of `entries`"),
    ] {
        let error = program.run(["sql", "--json", sql]).exits(2);
        let document: Value = serde_json::from_str(&error.stderr).unwrap();
        assert_eq!(document["code"], "query-refused", "{sql}\n{}", error.stderr);
        let message = document["message"].as_str().unwrap();
        assert!(message.contains(said), "{sql}\n{message}");
        assert!(document["hint"].is_string());
        assert_eq!(error.stdout, "");
    }
    assert!(!Path::new(outside).exists());
    assert_eq!(sqlite3(&program, &[], "SELECT count(*) FROM entries").stdout, rows);
    fingerprint::assert_same(&before, &state());
}

#[test]
fn what_is_no_question_is_told() {
    let program = program();
    for (sql, said) in [
        ("", "it is empty"),
        ("  -- nothing\n", "it is empty"),
        ("SELECT 1; SELECT 2", "more than one statement"),
        ("SELECT 'é' FRM x", "near \"x\": syntax error (at character 16)"),
        ("SELECT * FROM nowhere", "no such table: nowhere"),
        ("SELECT nonesuch FROM changes", "no such column: nonesuch"),
        ("SELECT ?1", "there is a parameter"),
        ("SELECT zeroblob(100000000)", "string or blob too big"),
        ("SELECT readfile('/etc/passwd')", "no such function"),
        ("SELECT json_extract('{', '$.a')", "malformed JSON"),
    ] {
        let error = program.run(["sql", "--json", sql]).exits(2);
        let document: Value = serde_json::from_str(&error.stderr).unwrap();
        assert_eq!(document["code"], "query-invalid", "{sql}");
        assert!(document["message"].as_str().unwrap().contains(said), "{sql}\n{}", error.stderr);
    }
    // A semicolon and a comment at the end are no second statement.
    program.run(["sql", "SELECT 1; -- done"]).ok();
    program.run(["sql", "--json", "--format", "csv", "SELECT 1"]).exits(2);
    program.run(["sql", "--timeout", "-1", "SELECT 1"]).exits(2);
    program.run(["sql", "--timeout", "soon", "SELECT 1"]).exits(2);
}

#[test]
fn a_query_without_end_is_stopped() {
    let program = program();
    let error = program.run(["sql", "--timeout", "0.2", "--json", ENDLESS]).exits(1);
    let document: Value = serde_json::from_str(&error.stderr).unwrap();
    assert_eq!(document["code"], "query-timed-out");
    assert_eq!(document["message"], "the query was stopped after 0.2 s");
    // Only once it runs, and not while the program starts, is there a query to stop.
    let running = [("asking the index", "\u{3}")];
    let stopped = talk(&program, "80", &running, &["--timeout", "0", ENDLESS]).exits(130);
    assert!(stopped.stdout.contains("cancelled"), "{}", stopped.stdout);
}

#[test]
fn a_query_comes_from_standard_input() {
    let program = program();
    let ask =
        |script: &str| shell(&program, script, "SELECT path FROM changes ORDER BY path LIMIT 1");
    for script in ["printenv SQL | turnpoint sql", "printenv SQL | turnpoint sql -"] {
        assert_eq!(ask(script).ok().stdout, "path\na.txt\n", "{script}");
    }
    for (script, said) in [
        ("turnpoint sql < /dev/null", "it is empty"),
        ("turnpoint sql <&-", "it is empty"),
        ("printf '\\377' | turnpoint sql", "not UTF-8"),
        ("head -c 1048577 /dev/zero | turnpoint sql", "longer than 1 MiB"),
    ] {
        let error = ask(script).exits(2);
        assert!(error.stderr.contains(said), "{script}\n{}", error.stderr);
    }
    // Nothing ever comes, and nothing holds the signal up.
    let script = "mkfifo f; exec 3<>f; timeout --preserve-status --signal INT 1 turnpoint sql <&3";
    ask(script).exits(130);
}

#[test]
fn whoever_reads_may_stop_reading() {
    let program = program();
    for (format, sql) in
        [("table", LONG), ("csv", LONG), ("json", LONG), ("ndjson", LONG), ("csv", LARGE)]
    {
        let script =
            format!("{{ turnpoint sql --format {format} \"$SQL\"; echo $? > code; }} | head -c 1");
        shell(&program, &script, sql).ok();
        let code = fs::read_to_string(program.workspace().join("code")).unwrap();
        assert_eq!(code, "0\n", "{format}");
    }
}

#[test]
fn what_is_too_much_to_hold_goes_on_row_by_row() {
    let program = program();
    let table = program.run(["sql", LARGE]).exits(1);
    assert!(table.stderr.contains("the answer is longer than 64 MiB"), "{}", table.stderr);
    assert_eq!(table.stdout, "");
    let csv = shell(
        &program,
        "set -o pipefail; turnpoint sql --format csv \"$SQL\" | cut -c1-5 | tail -1",
        LARGE,
    );
    assert_eq!(csv.ok().stdout, "40000\n");
    let count = "import json, sys; print(len(json.load(sys.stdin)['rows']))";
    let script = format!("set -o pipefail; turnpoint sql --json \"$SQL\" | python3 -c \"{count}\"");
    assert_eq!(shell(&program, &script, LARGE).ok().stdout, "40000\n");
    let script = "set -o pipefail; turnpoint sql --format ndjson \"$SQL\" | wc -l";
    assert_eq!(shell(&program, script, LARGE).ok().stdout.trim(), "40000");
}

#[test]
fn the_store_is_not_locked_while_an_answer_is_read() {
    let program = program();
    let mut command = program.command(["sql", "--timeout", "0", "--format", "csv", LARGE]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut output = child.stdout.take().unwrap();
    let mut first = [0; 4];
    output.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"a,x\r");
    // It is in the middle of its answer. This one needs the store to itself.
    program.run(["doctor", "--rebuild"]).ok();
    let mut rest = Vec::new();
    output.read_to_end(&mut rest).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(String::from_utf8(rest).unwrap().matches('\n').count(), 40_001);
}

#[test]
fn a_limit_is_told_where_it_cuts() {
    let program = program();
    let sql = "SELECT path FROM checkpoint_files ORDER BY seq, path";
    let cut = program.run(["sql", "--limit", "1", sql]).ok();
    assert_eq!(cut.stdout, "path\na.txt\n");
    assert!(cut.stderr.contains("these are the first 1 row; there are more"), "{}", cut.stderr);
    assert_eq!(program.run(["sql", "--limit", "1", "--json", sql]).ok().json()["has_more"], true);
    let whole = program.run(["sql", "--limit", "5", sql]).ok();
    assert_eq!((whole.stdout.lines().count(), whole.stderr.as_str()), (6, ""));
}

#[test]
fn an_index_that_cannot_answer_is_named_and_left_alone() {
    let program = program();
    let index = program.store().join("index.db");
    let whole = fs::read(&index).unwrap();
    for name in ["index.db", "index.db-wal", "index.db-shm"] {
        fs::remove_file(program.store().join(name)).unwrap();
    }
    let error = program.run(["sql", "SELECT 1"]).exits(1);
    assert!(error.stderr.contains("there is none"), "{}", error.stderr);
    assert!(error.stderr.contains("turnpoint capture"), "{}", error.stderr);
    assert!(!index.exists());
    let mut damaged = whole.clone();
    damaged[..64].fill(b'x');
    fs::write(&index, &damaged).unwrap();
    let error = program.run(["sql", "SELECT 1"]).exits(4);
    assert!(error.stderr.contains("doctor --rebuild"), "{}", error.stderr);
    assert_eq!(fs::read(&index).unwrap(), damaged);
}

/// Talks on a terminal; `talk` is what is waited for and what is typed then.
fn talk(program: &Program, columns: &str, talk: &[(&str, &str)], arguments: &[&str]) -> Run {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/prompt.py");
    let mut command = program.other("python3");
    command.arg(script).arg(columns).arg(serde_json::to_string(talk).unwrap());
    command.arg(BINARY).args(["sql", "--color", "never"]).args(arguments);
    run(command.env("TERM", "xterm"))
}

#[test]
fn a_prompt_answers_one_question_after_another() {
    let program = program();
    let talked = talk(
        &program,
        "80",
        &[
            ("sql> ", "SELECT path, change\r"),
            ("...> ", "FROM chan\t"),
            ("changes", " WHERE path = 'a.txt';\r"),
            ("(1 row)", ""),
            ("sql> ", "SELECT 1 AS x; SELECT 2 AS y;\r"),
            ("(1 row)", ""),
            ("(1 row)", ""),
            ("sql> ", "SELECT nonesuch FROM changes;\r"),
            ("error: ", ""),
            ("sql> ", "half of a\r"),
            ("...> ", "statement \u{3}"),
            ("sql> ", ".schema turns\r"),
            ("started_at", ""),
            ("sql> ", ".tables\r"),
            ("turn_changes", ""),
            ("sql> ", "\\d\r"),
            ("there is no command", ""),
            ("sql> ", "help\r"),
            ("Ctrl-R", ""),
            ("sql> ", ".quit\r"),
        ],
        &[],
    )
    .ok();
    assert!(talked.stdout.contains("a.txt  modified"), "{}", talked.stdout);
    assert!(talked.stdout.contains("no such column: nonesuch"), "{}", talked.stdout);
    let history = program.root().join("home/.local/state/turnpoint/sql-history");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&history), mode(history.parent().unwrap())), (0o600, 0o700));
    let remembered = fs::read_to_string(&history).unwrap();
    assert!(remembered.contains("SELECT path, change\\nFROM changes WHERE path = 'a.txt';"));
    assert!(!remembered.contains("half of a"), "{remembered}");
    // The next prompt remembers, and Ctrl-D leaves it.
    let up = format!("{}\r", "\u{1b}[A".repeat(5));
    let again =
        talk(&program, "80", &[("sql> ", &up), ("error: ", ""), ("sql> ", "\u{4}")], &[]).ok();
    assert!(again.stdout.contains("no such column: nonesuch"), "{}", again.stdout);
}

#[test]
fn every_usual_word_leaves_the_prompt_from_within_a_query_too() {
    let program = program();
    for word in ["exit", "quit;", "\\q", ".exit"] {
        let typed = format!("{word}\r");
        talk(&program, "80", &[("sql> ", &typed)], &[]).ok();
        talk(&program, "80", &[("sql> ", "SELECT 'it\r"), ("...> ", &typed)], &[]).ok();
    }
    let left = talk(&program, "80", &[("sql> ", "SELECT 1\r"), ("...> ", "\u{4}")], &[]).ok();
    assert!(!left.stdout.contains("row)"), "nothing was asked: {}", left.stdout);
}

#[test]
fn ctrl_c_stops_a_query_and_not_the_prompt() {
    let program = program();
    let endless = format!("{ENDLESS};\r");
    talk(
        &program,
        "80",
        &[
            ("sql> ", &endless),
            ("asking the index", "\u{3}"),
            ("(stopped)", ""),
            ("sql> ", "SELECT 'go' || 'es' || 'on';\r"),
            ("goeson", ""),
            ("sql> ", "\u{4}"),
        ],
        &["--timeout", "0"],
    )
    .ok();
}

#[test]
fn a_table_fits_the_terminal_and_moves_nothing_in_it() {
    let program = program();
    for columns in ["80", "40"] {
        for sql in [
            "SELECT path, hash, size FROM checkpoint_files",
            "SELECT * FROM checkpoint_list",
            "SELECT path FROM changes",
        ] {
            for format in ["table", "csv", "json", "ndjson"] {
                let shown = talk(&program, columns, &[], &["--format", format, sql]).ok().stdout;
                let width: usize = columns.parse().unwrap();
                let fits = shown.lines().all(|line| line.chars().count() <= width);
                assert!(fits || format != "table", "{shown}");
                let is_harmless =
                    |character: char| "\r\n".contains(character) || !character.is_control();
                assert!(shown.chars().all(is_harmless), "{shown:?}");
            }
        }
    }
    let cut = talk(&program, "40", &[], &["SELECT path, hash FROM checkpoint_files"]).ok().stdout;
    assert!(cut.contains('…') && cut.contains("some cells are cut"), "{cut}");
    let whole = program.run(["sql", "SELECT path, hash FROM checkpoint_files"]).ok();
    assert!(!whole.stdout.contains('…'), "{}", whole.stdout);
    let shown = program.run(["sql", "--color", "always", "SELECT NULL, 'NULL'"]).ok().stdout;
    assert_eq!(shown.matches("NULL").count(), 4, "{shown}");
    assert_eq!(shown.matches("\u{1b}[2mNULL").count(), 1, "{shown:?}");
}

#[test]
fn there_is_no_prompt_where_there_is_no_terminal() {
    let program = program();
    let run = talk(&program, "80", &[], &["--json"]).exits(2);
    assert!(run.stdout.contains("no-query"), "{}", run.stdout);
    assert!(!program.root().join("home/.local").exists());
}

#[test]
fn the_views_are_shown_with_their_columns() {
    let program = Program::new(BINARY);
    let document = program.run(["sql", "--schema", "--json"]).ok().json();
    let short = program.run(["sql", "--schema"]).ok().stdout;
    let long = program.run(["sql", "--schema", "--verbose"]).ok().stdout;
    let views = document["views"].as_array().unwrap();
    assert!(!views.is_empty());
    for view in views {
        for word in [view["name"].as_str().unwrap(), view["about"].as_str().unwrap()] {
            assert!(short.contains(word) && long.contains(word), "{word}");
        }
        for column in view["columns"].as_array().unwrap() {
            let name = column["name"].as_str().unwrap();
            assert!(short.contains(name) && long.contains(name), "{name}");
            let about = column["about"].as_str().unwrap().replace('`', "");
            assert!(long.contains(&about), "{about}");
        }
    }
    program.run(["sql", "--schema", "SELECT 1"]).exits(2);
}
