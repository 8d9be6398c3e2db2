//! Migrations as they were shipped.

use super::*;

#[test]
fn what_shipped_stays() {
    // The first migration made every index that exists: a change of it would not reach them.
    let text = include_str!("../../../migrations/0001_initial.sql");
    assert_eq!(
        BlobHash::of(text.as_bytes()).to_string(),
        "6eed3c0e45ad1c08e6106ae9b11edebaf733383bc4a890a7322df45add940a5e"
    );
    // Scripts rely on the columns of the views.
    let fixture = Fixture::new();
    let sql = "SELECT v.name || ': ' || group_concat(c.name, ' ')
               FROM sqlite_schema v, pragma_table_info(v.name) c WHERE v.type = 'view' GROUP BY v.name";
    let views = include_str!("../../../docs/sql.md");
    for line in printed(&fixture, sql) {
        let (view, columns) = line.split_once(": ").unwrap();
        let is_inner = view.starts_with("step");
        let documented = views.contains(&format!("`{view}`"))
            && columns.split(' ').all(|column| views.contains(&format!("`{column}`")));
        assert!(is_inner || documented, "{line}");
    }
    let names = "SELECT name FROM sqlite_schema WHERE type = 'view' AND name NOT LIKE 'step%'";
    assert_eq!(
        printed(&fixture, names),
        [
            "changes",
            "checkpoint_files",
            "checkpoint_list",
            "file_history",
            "omitted",
            "session_summary",
            "storage",
            "turn_changes",
            "turns",
        ]
    );
}

/// What answers with a row for each entry that it finds goes through the pages of a checkpoint once, and not
/// again for each row.
#[test]
fn entries_are_found_by_their_page_whatever_the_condition() {
    let fixture = Fixture::new();
    // The version of SQLite that is built in: an older one plans otherwise.
    let connection = Connection::open(fixture.dir.path().join(FILE_NAME)).unwrap();
    let plan = |sql: &str| -> Vec<String> {
        let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let steps = statement.query_map([], |row| row.get("detail")).unwrap();
        steps.collect::<rusqlite::Result<_>>().unwrap()
    };
    for view in VIEWS {
        let all = format!("SELECT * FROM {}", view.name);
        let one = |column: &ViewColumn| format!("{all} WHERE {} = 'a'", column.name);
        for sql in view.columns.iter().map(one).chain([all.clone()]) {
            let plan = plan(&sql);
            assert!(!plan.is_empty(), "{sql}");
            let is_by_another = |step: &&String| {
                step.starts_with("SEARCH e ") && !step.contains("PRIMARY KEY (page=?)")
            };
            assert_eq!(plan.iter().find(is_by_another), None, "{sql}: {plan:#?}");
        }
    }
}

#[test]
fn every_migration_is_embedded() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    let files = std::fs::read_dir(folder).unwrap().count();
    assert_eq!(i32::try_from(files).unwrap(), migrations::VERSION);
}

#[test]
fn the_views_are_described_as_they_are() {
    let fixture = Fixture::new();
    let mut expected = Vec::new();
    for view in VIEWS {
        expected.extend(view.columns.iter().map(|column| format!("{}|{}", view.name, column.name)));
    }
    let sql = "SELECT v.name, c.name FROM sqlite_schema v, pragma_table_info(v.name) c
               WHERE v.type = 'view' AND v.name NOT LIKE 'step%'";
    let mut found: Vec<String> = fixture.sqlite3(sql).lines().map(str::to_owned).collect();
    // The views in any order, the columns in their own.
    let place = |line: &String| {
        let name = line.split('|').next().unwrap();
        VIEWS.iter().position(|view| view.name == name)
    };
    found.sort_by_key(place);
    assert_eq!(found, expected);
}
