//! Questions in SQL through the library.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use turnpoint::{
    CaptureOptions, Error, Monitor, Phase, QueryError, QueryOptions, QueryRow, Store, VIEWS, Value,
};

use crate::support::tree::{build, file};

/// Rows without end.
const ENDLESS: &str =
    "WITH RECURSIVE r(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM r) SELECT count(*) FROM r";

fn capture(store: &Store, root: &Path) {
    let mut options = CaptureOptions::default();
    options.session = Some("s".to_owned());
    assert!(store.capture(root, &options, &()).unwrap().complete);
}

fn captured() -> (tempfile::TempDir, Store, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("work");
    build(&root, [("a.txt", file("one")), ("b/c.txt", file("three"))]);
    let store = Store::at(&dir.path().join("sessions"));
    capture(&store, &root);
    (dir, store, root)
}

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

#[test]
fn an_answer_has_columns_and_values_of_their_kinds() {
    let (_dir, store, _) = captured();
    let sql =
        "SELECT path, size, NULL AS n, 0.5 AS r, path_bytes FROM checkpoint_files ORDER BY path";
    let answer = store.query(sql, &QueryOptions::default(), &()).unwrap();
    assert_eq!(answer.columns, ["path", "size", "n", "r", "path_bytes"]);
    let row = |path: &str, size| {
        let blob = Value::Blob(path.as_bytes().to_vec());
        vec![text(path), Value::Integer(size), Value::Null, Value::Real(0.5), blob]
    };
    assert_eq!(answer.rows, [row("a.txt", 3), row("b/c.txt", 5)]);
    // A number is compared with a text as a number, as in every column that holds some.
    let longer = "SELECT path FROM checkpoint_files WHERE size > '4' AND mtime_ns > '0'";
    let answer = store.query(longer, &QueryOptions::default(), &()).unwrap();
    assert_eq!(answer.rows, [[text("b/c.txt")]]);
    assert!(!answer.has_more);
}

#[test]
fn every_view_that_is_described_can_be_asked() {
    let (_dir, store, root) = captured();
    std::fs::write(root.join("a.txt"), "changed").unwrap();
    std::fs::write(root.join(".env"), "SECRET=1").unwrap();
    capture(&store, &root);
    for view in VIEWS {
        let sql = format!("SELECT * FROM {}", view.name);
        let answer = store.query(&sql, &QueryOptions::default(), &()).unwrap();
        let names: Vec<&str> = view.columns.iter().map(|column| column.name).collect();
        assert_eq!(answer.columns, names, "{}", view.name);
        // No turn was captured here.
        assert_eq!(answer.rows.is_empty(), view.name.starts_with("turn"), "{}", view.name);
        for row in answer.rows {
            for (column, value) in view.columns.iter().zip(row) {
                let kind = match value {
                    Value::Null => continue,
                    Value::Integer(_) => "integer",
                    Value::Text(_) => "text",
                    Value::Blob(_) => "blob",
                    other @ Value::Real(_) => panic!("{}.{}: {other:?}", view.name, column.name),
                };
                assert_eq!(kind, column.kind, "{}.{}", view.name, column.name);
            }
        }
    }
}

#[test]
fn text_that_is_not_utf_8_is_lossy() {
    let (_dir, store, _) = captured();
    let sql = "SELECT CAST(x'61ff' AS TEXT)";
    let answer = store.query(sql, &QueryOptions::default(), &()).unwrap();
    assert_eq!(answer.rows, [[text("a\u{fffd}")]]);
}

#[test]
fn a_query_ends_when_its_time_is_over() {
    let (_dir, store, _) = captured();
    let mut options = QueryOptions::default();
    options.time_limit = Some(Duration::from_millis(50));
    let limit = Duration::from_millis(50);
    match store.query(ENDLESS, &options, &()) {
        Err(Error::Query(error)) => assert_eq!(error, QueryError::TimedOut { limit }),
        other => panic!("{other:?}"),
    }
}

/// Between the rows of a cheap query SQLite asks nobody whether the time is over.
#[test]
fn who_takes_rows_slowly_does_not_hold_the_index_longer_than_the_limit() {
    let (_dir, store, _) = captured();
    let limit = Duration::from_millis(50);
    let mut options = QueryOptions::default();
    options.time_limit = Some(limit);
    let sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20) SELECT i FROM n";
    let mut taken = 0;
    let mut slowly = |_: QueryRow<'_>| {
        taken += 1;
        std::thread::sleep(Duration::from_millis(20));
        ControlFlow::Continue(())
    };
    match store.query_each(sql, &options, &mut slowly, &()) {
        Err(Error::Query(error)) => assert_eq!(error, QueryError::TimedOut { limit }),
        other => panic!("{other:?}"),
    }
    assert!((1..=3).contains(&taken), "{taken}");
}

/// Asks to stop once the query has begun.
#[derive(Default)]
struct Impatient(AtomicBool);

impl Monitor for Impatient {
    fn phase(&self, phase: Phase, _: Option<u64>) {
        self.0.store(phase == Phase::Query, Ordering::SeqCst);
    }

    fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

#[test]
fn a_query_ends_when_it_is_cancelled() {
    let (_dir, store, _) = captured();
    let result = store.query(ENDLESS, &QueryOptions::default(), &Impatient::default());
    assert!(matches!(result, Err(Error::Cancelled)), "{result:?}");
}

#[test]
fn rows_come_until_enough_were_received() {
    let (_dir, store, _) = captured();
    let sql = "WITH RECURSIVE r(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM r) SELECT a FROM r";
    let mut received = Vec::new();
    let each = |row: QueryRow<'_>| {
        assert_eq!(row.columns, ["a"]);
        received.push(row.values);
        if received.len() < 3 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    let outcome = store.query_each(sql, &QueryOptions::default(), each, &()).unwrap();
    assert_eq!((outcome.rows, outcome.has_more), (3, false));
    assert_eq!(received, [[Value::Integer(1)], [Value::Integer(2)], [Value::Integer(3)]]);
    for (limit, rows, has_more) in [(0, 0, true), (1, 1, true), (2, 2, false), (3, 2, false)] {
        let mut options = QueryOptions::default();
        options.row_limit = Some(limit);
        let answer = store.query("SELECT path FROM checkpoint_files", &options, &()).unwrap();
        assert_eq!((answer.rows.len(), answer.has_more), (rows, has_more), "{limit}");
    }
}

#[test]
fn an_answer_that_would_fill_the_memory_is_refused() {
    let (_dir, store, _) = captured();
    let sql = "WITH RECURSIVE r(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM r)
               SELECT printf('%.*c', 200000, 'x') FROM r";
    let result = store.query(sql, &QueryOptions::default(), &());
    assert!(matches!(result, Err(Error::Query(QueryError::TooLong { .. }))), "{result:?}");
}

/// A function cannot be stopped while it runs, so it is given little to do.
#[test]
fn no_function_is_given_more_than_it_can_do_soon() {
    let (_dir, store, _) = captured();
    let columns = vec!["1"; 300].join(", ");
    for sql in [
        "SELECT instr(printf('%.16000000c', 'a'), printf('%.8000000c', 'a') || 'b')",
        "SELECT 'a' LIKE '%' || printf('%.5000c', 'a') || 'b'",
        "SELECT length(zeroblob(16000000))",
        &format!("SELECT {columns}"),
    ] {
        let result = store.query(sql, &QueryOptions::default(), &());
        assert!(matches!(result, Err(Error::Query(_))), "{sql}: {result:?}");
    }
}

#[test]
fn two_threads_ask_at_once_beside_a_capture() {
    let (_dir, store, root) = captured();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let sql = "SELECT count(*) % 2 FROM checkpoint_files";
                    let answer = store.query(sql, &QueryOptions::default(), &()).unwrap();
                    assert_eq!(answer.rows, [[Value::Integer(0)]]);
                }
            });
        }
        for _ in 0..5 {
            capture(&store, &root);
        }
    });
}
