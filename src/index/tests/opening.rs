//! Opening the index, its file, and several connections to it.

use super::*;

#[test]
fn nothing_and_an_empty_file_are_missing_and_stay_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    for access in [Access::Write, Access::Read] {
        assert!(matches!(try_open(dir.path(), access).unwrap(), Opened::Missing));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
    std::fs::write(dir.path().join(FILE_NAME), b"").unwrap();
    assert!(matches!(try_open(dir.path(), Access::Write).unwrap(), Opened::Missing));
    assert_eq!(std::fs::read(dir.path().join(FILE_NAME)).unwrap(), b"");
}

#[test]
fn a_new_index_is_private_has_no_wal_and_is_in_wal_mode_once_opened() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    make_index(dir.path());
    let file = dir.path().join(FILE_NAME);
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o600);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    let index = open(dir.path());
    let wal = dir.path().join("index.db-wal");
    index.write("reserve", |tx| tx.reserve_seq(&id("s", 0).session, 0)).unwrap();
    assert_eq!(std::fs::metadata(&wal).unwrap().permissions().mode() & 0o7777, 0o600);
    drop(index);
    assert!(std::fs::metadata(&wal).unwrap().len() > 0, "the WAL is kept at the end");
    std::fs::write(dir.path().join(NEW_FILE_NAME), b"").unwrap();
    let found = Index::create_new(&Dir::open(dir.path()).unwrap());
    assert!(matches!(found, Err(Error::Io { .. })));
}

#[test]
fn many_processes_may_open_a_new_index_at_once() {
    let at_once = |path: &Path, body: &(dyn Fn() + Sync)| {
        let barrier = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    barrier.wait();
                    body();
                });
            }
        });
        let index = open(path);
        assert_eq!(index.read("check", |tx| tx.integrity(true)).unwrap(), Vec::<String>::new());
    };
    for _ in 0..10 {
        // Each switches to WAL.
        let made = tempfile::tempdir().unwrap();
        make_index(made.path());
        at_once(made.path(), &|| drop(open(made.path())));
        // Each makes the schema as well.
        let empty = tempfile::tempdir().unwrap();
        let file = empty.path().join(FILE_NAME);
        std::fs::write(&file, b"").unwrap();
        at_once(empty.path(), &|| {
            let mut connection = connection::open_file(&file, Access::Write).unwrap();
            connection::use_write_ahead_log(&connection, &file).unwrap();
            migrations::migrate(&mut connection).unwrap();
        });
    }
}

#[test]
fn a_newer_schema_and_a_foreign_database_are_refused() {
    let newer = tempfile::tempdir().unwrap();
    make_index(newer.path());
    let connection = Connection::open(newer.path().join(FILE_NAME)).unwrap();
    connection.pragma_update(None, "user_version", migrations::VERSION + 1).unwrap();
    drop(connection);
    let foreign = tempfile::tempdir().unwrap();
    let connection = Connection::open(foreign.path().join(FILE_NAME)).unwrap();
    connection.execute_batch("CREATE TABLE mine (x)").unwrap();
    drop(connection);
    for access in [Access::Write, Access::Read] {
        let found = try_open(newer.path(), access);
        assert!(matches!(found, Err(Error::StoreTooNew { found: 4, supported: 3, .. })));
        let found = try_open(foreign.path(), access);
        assert!(matches!(found, Err(Error::StoreForeign { .. })));
    }
}

#[test]
fn damage_is_found_and_named() {
    let mut fixture = Fixture::new();
    fixture.record(&id("s", 0), &many(3_000));
    let Fixture { dir, index, .. } = fixture;
    index.empty_wal().unwrap();
    drop(index);
    let file = dir.path().join(FILE_NAME);
    let whole = std::fs::read(&file).unwrap();

    std::fs::write(&file, [&[0; 100], &whole[100..]].concat()).unwrap();
    assert!(matches!(try_open(dir.path(), Access::Write).unwrap(), Opened::Damaged { .. }));
    assert!(matches!(try_open(dir.path(), Access::Read).unwrap(), Opened::Damaged { .. }));

    let mut garbage = whole.clone();
    garbage[4_096 * 2..].fill(0xA5);
    std::fs::write(&file, garbage).unwrap();
    match try_open(dir.path(), Access::Write).unwrap() {
        Opened::Damaged { .. } => {}
        Opened::Ready(index) => {
            let found = index.read("list checkpoints", |tx| tx.all_checkpoints());
            assert!(matches!(found, Err(Error::IndexDamaged { .. })), "{found:?}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_rebuilt_index_is_not_the_one_that_is_open() {
    let fixture = Fixture::new();
    assert!(fixture.index.is_current().unwrap());
    make_index(fixture.dir.path());
    assert!(!fixture.index.is_current().unwrap());
    std::fs::remove_file(fixture.dir.path().join(FILE_NAME)).unwrap();
    assert!(!fixture.index.is_current().unwrap());
}

#[test]
fn a_second_writer_is_told_that_the_index_is_busy() {
    let fixture = Fixture::new();
    let other = open(fixture.dir.path());
    other.lock().busy_timeout(std::time::Duration::ZERO).unwrap();
    fixture
        .index
        .write("hold", |_| {
            let found = other.write("reserve", |tx| tx.reserve_seq(&id("s", 0).session, 0));
            assert!(matches!(found, Err(Error::Busy { .. })), "{found:?}");
            Ok(())
        })
        .unwrap();
    other.write("reserve", |tx| tx.reserve_seq(&id("s", 0).session, 0)).unwrap();
}

#[test]
fn an_index_that_cannot_grow_or_be_written_is_told_with_what_to_do() {
    let reserve_many = |index: &Index| {
        index.write("reserve", |tx| {
            (0..1_000).try_for_each(|number| {
                tx.reserve_seq(&id(&format!("s{number}"), 0).session, 0).map(drop)
            })
        })
    };
    let fixture = Fixture::new();
    for (pragma, hint) in
        [("max_page_count = 1", "free some space"), ("query_only = ON", "mount the file system")]
    {
        let other = open(fixture.dir.path());
        other.lock().execute_batch(&format!("PRAGMA {pragma}")).unwrap();
        let error = reserve_many(&other).unwrap_err();
        assert!(matches!(error, Error::Index { .. }), "{error:?}");
        assert!(error.hint().is_some_and(|told| told.starts_with(hint)), "{pragma}: {error:?}");
    }
    reserve_many(&fixture.index).unwrap();
}

#[test]
fn a_failed_transaction_leaves_nothing() {
    let fixture = Fixture::new();
    let found: Result<()> = fixture.index.write("reserve", |tx| {
        tx.reserve_seq(&id("s", 0).session, 0)?;
        Err(Error::Cancelled)
    });
    assert!(matches!(found, Err(Error::Cancelled)));
    assert_eq!(fixture.counts(), IndexCounts::default());
}

#[test]
fn readers_see_the_state_before_an_open_write() {
    let fixture = Fixture::new();
    fixture.index.use_readers().unwrap();
    fixture
        .index
        .write("reserve", |tx| {
            tx.reserve_seq(&id("s", 0).session, 0)?;
            let seen = fixture.index.read("list sessions", |tx| tx.sessions())?;
            assert!(seen.is_empty());
            Ok(())
        })
        .unwrap();
    assert_eq!(fixture.index.read("list sessions", |tx| tx.sessions()).unwrap().len(), 1);
}

#[test]
fn plain_sqlite3_reads_while_a_writer_is_open_and_after() {
    let mut fixture = Fixture::new();
    fixture.record(&id("s", 0), &many(3));
    let sql = "SELECT count(*) FROM entries";
    fixture
        .index
        .write("record", |tx| {
            tx.reserve_seq(&id("t", 0).session, 0)?;
            assert_eq!(fixture.sqlite3(sql), "4\n");
            Ok(())
        })
        .unwrap();
    let index = open(fixture.dir.path());
    drop(std::mem::replace(&mut fixture.index, index));
    assert_eq!(fixture.sqlite3(sql), "4\n");
    assert!(fixture.index.is_current().unwrap());
}

#[test]
fn an_index_that_cannot_be_read_from_here_is_not_called_damaged() {
    let dir = tempfile::tempdir().unwrap();
    make_index(dir.path());
    drop(open(dir.path()));
    // As where the directory is read-only: what SQLite needs beside the file cannot be opened. (These
    // tests may run as root, whom permissions do not stop.)
    std::fs::remove_file(dir.path().join("index.db-shm")).unwrap();
    std::os::unix::fs::symlink("nowhere", dir.path().join("index.db-shm")).unwrap();
    let found = try_open(dir.path(), Access::Read).unwrap();
    assert!(matches!(found, Opened::Unavailable { .. }), "{found:?}");
    let found = try_open(dir.path(), Access::Write);
    assert!(matches!(found, Err(Error::Index { .. })), "{found:?}");
}

#[test]
fn reading_access_reads_and_refuses_to_write() {
    let mut fixture = Fixture::new();
    fixture.record(&id("s", 0), &many(3));
    let Opened::Ready(reader) = try_open(fixture.dir.path(), Access::Read).unwrap() else {
        panic!("not opened");
    };
    assert_eq!(reader.read("list", |tx| tx.all_checkpoints()).unwrap().len(), 1);
    let found = reader.write("reserve", |tx| tx.reserve_seq(&id("s", 0).session, 0));
    assert!(matches!(found, Err(Error::Index { .. })), "{found:?}");
}
