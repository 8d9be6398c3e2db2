//! From the schema as it first shipped to the one of today, with what was in it.

use super::*;

/// What a row of `entries` says, whatever its key.
const ENTRIES: &str =
    "SELECT page, hex(path), kind, mode, size, mtime_ns, blob, hex(target), reason, rest,
    listed, unstable FROM entries ORDER BY page, path";
const FILES: &str = "SELECT * FROM checkpoint_files ORDER BY session, seq, path";
const OMITTED: &str = "SELECT * FROM omitted ORDER BY session, seq, path";

/// Takes the schema back to its first version. The rows are those that this version wrote.
fn take_back(path: &Path) {
    let sql = "
        PRAGMA legacy_alter_table = ON;
        CREATE TABLE entries_before (
            page INTEGER NOT NULL REFERENCES pages (blob), path BLOB NOT NULL, kind INTEGER NOT NULL,
            mode INTEGER NOT NULL, size INTEGER, mtime_ns INTEGER, blob INTEGER REFERENCES blobs (id),
            target BLOB, reason TEXT, rest INTEGER, listed INTEGER, unstable INTEGER,
            PRIMARY KEY (page, path)) STRICT, WITHOUT ROWID;
        INSERT INTO entries_before SELECT page, path, kind, mode, size, mtime_ns, blob, target, reason,
            rest, listed, unstable FROM entries;
        DROP TABLE entries;
        ALTER TABLE entries_before RENAME TO entries;
        CREATE INDEX entries_by_blob ON entries (blob) WHERE blob IS NOT NULL;
        PRAGMA user_version = 1;";
    Connection::open(path.join(FILE_NAME)).unwrap().execute_batch(sql).unwrap();
}

#[test]
fn an_index_of_the_first_version_says_the_same_when_it_has_become_one_of_today() {
    let mut fixture = Fixture::new();
    let mut entries = many(400);
    fixture.record(&id("s", 0), &entries);
    entries.remove(17);
    fixture.record(&id("s", 1), &entries);
    let asked = [ENTRIES, FILES, OMITTED];
    let before = asked.map(|sql| fixture.sqlite3(sql));
    assert!(before[0].lines().count() > 400 && before[1].lines().count() > 700);

    fixture.index.empty_wal().unwrap();
    take_back(fixture.dir.path());
    let read_only = try_open(fixture.dir.path(), Access::Read).unwrap();
    assert!(matches!(read_only, Opened::Unavailable { .. }), "{read_only:?}");
    fixture.index = open(fixture.dir.path());
    assert_eq!(asked.map(|sql| fixture.sqlite3(sql)), before);
    let positions = "SELECT count(*) FROM (SELECT page FROM entries GROUP BY page
        HAVING min(position) <> 0 OR max(position) <> count(*) - 1)";
    assert_eq!(fixture.sqlite3(positions), "0\n");
    assert_eq!(fixture.sqlite3("PRAGMA integrity_check; PRAGMA foreign_key_check"), "ok\n");
    assert_eq!(fixture.sqlite3("PRAGMA user_version"), "3\n");

    // It goes on from there, and what goes takes its rows along.
    fixture.record(&id("s", 2), &many(10));
    for seq in 0..3 {
        fixture.delete(&id("s", seq));
    }
    assert_eq!(fixture.sqlite3("SELECT count(*) FROM entries"), "0\n");
}
