//! Connections: how one is opened, what is set on it, and what its errors mean.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::Access;
use super::migrations;
use crate::error::{Error, Result};
use crate::limits;

/// The oldest SQLite without the bug that can corrupt a database in WAL mode when two connections
/// write and checkpoint at the same moment (<https://sqlite.org/wal.html>).
const SQLITE_OLDEST: i32 = 3_051_003;

/// What a file turned out to be.
pub(super) enum Connected {
    /// An index of the present version.
    Ready(Connection),
    /// A database without a schema.
    Empty,
    /// It may be in order and cannot be read from here.
    Unavailable { reason: String },
}

/// Opens the index at `path`, which exists, and brings its schema up to date where it may write.
///
/// # Errors
/// [`Error::IndexDamaged`], [`Error::StoreTooNew`], [`Error::StoreForeign`], [`Error::Busy`], and
/// [`Error::Index`] for what is not about the content (permission, I/O, a file system without WAL).
pub(super) fn connect(path: &Path, access: Access) -> Result<Connected> {
    let failed = |error| failure(path, "be opened", error);
    let mut connection = match open_file(path, access).and_then(|connection| {
        // The first statement: it opens -wal and -shm and reads the header.
        migrations::version(&connection)?;
        Ok(connection)
    }) {
        Err(error) if access == Access::Read && needs_writing(&error) => {
            return Ok(Connected::Unavailable { reason: error.to_string() });
        }
        other => other.map_err(failed)?,
    };
    let version = migrations::version(&connection).map_err(failed)?;
    let application: i32 =
        connection.pragma_query_value(None, "application_id", |row| row.get(0)).map_err(failed)?;
    let tables: i64 = connection
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(failed)?;
    if version == 0 && tables == 0 {
        return Ok(Connected::Empty);
    }
    if application != migrations::APPLICATION_ID {
        let reason = format!("it is a database of another program (application id {application})");
        return Err(Error::StoreForeign { path: path.to_owned(), reason });
    }
    if version > migrations::VERSION {
        return Err(Error::StoreTooNew {
            path: path.to_owned(),
            found: u64::try_from(version).unwrap_or_default(),
            supported: u64::try_from(migrations::VERSION).unwrap_or_default(),
        });
    }
    match access {
        Access::Write => {
            use_write_ahead_log(&connection, path)?;
            migrations::migrate(&mut connection).map_err(failed)?;
            Ok(Connected::Ready(connection))
        }
        Access::Read if version < migrations::VERSION => Ok(Connected::Unavailable {
            reason: "its schema is older; the next command that writes brings it up to date"
                .to_owned(),
        }),
        Access::Read => Ok(Connected::Ready(connection)),
    }
}

/// Makes the schema in the empty file at `path`. Nothing is synchronised and there is no WAL: the file
/// is no index before it was closed, synchronised and renamed, and is made again if that fails. The
/// rollback journal is in memory, so that one manifest that cannot be read does not spoil the rest.
pub(super) fn create(path: &Path) -> Result<Connection> {
    let failed = |error| failure(path, "be created", error);
    let mut connection = open_file(path, Access::Write).map_err(failed)?;
    connection
        .execute_batch("PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF")
        .map_err(failed)?;
    migrations::migrate(&mut connection).map_err(failed)?;
    Ok(connection)
}

/// Opens the file and sets what belongs to a connection. Nothing is read from the file yet.
pub(super) fn open_file(path: &Path, access: Access) -> rusqlite::Result<Connection> {
    let flags = match access {
        Access::Write => OpenFlags::SQLITE_OPEN_READ_WRITE,
        Access::Read => OpenFlags::SQLITE_OPEN_READ_ONLY,
    };
    let connection = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    set_up(&connection)?;
    Ok(connection)
}

/// What is set on every connection. The wait for other writers comes first: all after it may need
/// it.
pub(super) fn set_up(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_handler(Some(wait_for_writer))?;
    // The WAL stays when a process ends: with one short process at a time each of them would
    // otherwise be the last one to close and pay for copying the WAL back. It is still copied back
    // whenever it has grown to some pages; not SQLite's 1,000, because the first process that opens
    // the index reads all of it.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.set_prepared_statement_cache_capacity(limits::SQLITE_STATEMENTS_CACHED);
    connection.execute_batch(&format!(
        // NORMAL: no crash can damage the file, and a commit that a power cut takes back is repeated
        // from the manifest. No mmap: a file that another process cuts short would be a SIGBUS.
        "PRAGMA synchronous = NORMAL;
         PRAGMA foreign_keys = ON;
         PRAGMA trusted_schema = OFF;
         PRAGMA cell_size_check = ON;
         PRAGMA temp_store = MEMORY;
         PRAGMA mmap_size = 0;
         PRAGMA cache_size = -{};
         PRAGMA journal_size_limit = {};
         PRAGMA wal_autocheckpoint = {};",
        limits::SQLITE_CACHE_KIB,
        limits::SQLITE_WAL_KEPT_BYTES,
        limits::SQLITE_WAL_PAGES
    ))
}

/// Sleeps a moment where somebody else writes, for the time that [`pause`] says; `false` where that was done
/// long enough.
fn wait_for_writer(pauses: i32) -> bool {
    let pause = pause(u32::try_from(pauses).unwrap_or_default());
    pause.inspect(|pause| std::thread::sleep(*pause)).is_some()
}

/// How long to sleep after so many pauses; `None` where these were [`limits::SQLITE_BUSY`] together.
fn pause(pauses: u32) -> Option<Duration> {
    let short = limits::SQLITE_BUSY_PAUSE;
    let Some(long_pauses) = pauses.checked_sub(limits::SQLITE_BUSY_SHORT_PAUSES) else {
        return Some(short);
    };
    let long = short * 10;
    let waited = short * limits::SQLITE_BUSY_SHORT_PAUSES + long.saturating_mul(long_pauses);
    (waited < limits::SQLITE_BUSY).then_some(long)
}

/// Switches to WAL where the file is not in it yet, and believes only the answer: a file system
/// without shared memory keeps the old mode without an error.
pub(super) fn use_write_ahead_log(connection: &Connection, path: &Path) -> Result<()> {
    let statement = "use a write-ahead log";
    let begin = Instant::now();
    let mode = loop {
        match connection
            .pragma_update_and_check(None, "journal_mode", "wal", |row| row.get::<_, String>(0))
        {
            // SQLite does not wait here by itself: two that switch at once would wait for each other.
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && begin.elapsed() < limits::SQLITE_BUSY =>
            {
                std::thread::sleep(limits::SQLITE_BUSY_PAUSE);
            }
            other => break other.map_err(|error| failure(path, statement, error))?,
        }
    };
    if mode == "wal" {
        return Ok(());
    }
    let source = format!("the file system of {} allows journal mode `{mode}` only", path.display());
    Err(Error::Index { statement, source: source.into() })
}

/// The version of SQLite that is linked in.
pub(super) fn sqlite_version() -> &'static str {
    rusqlite::version()
}

/// That SQLite itself can be relied upon.
pub(super) fn check_sqlite() -> Result<()> {
    if rusqlite::version_number() >= SQLITE_OLDEST {
        return Ok(());
    }
    let source = format!("SQLite {} is older than 3.51.3", rusqlite::version());
    Err(Error::Index { statement: "be used", source: source.into() })
}

/// Whether a read-only connection failed because it may not make what WAL needs, or not open the
/// file.
pub(super) fn needs_writing(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied)
    )
}

/// What an error of SQLite means for the caller. `statement` continues `the index cannot …`.
pub(super) fn failure(path: &Path, statement: &'static str, error: rusqlite::Error) -> Error {
    use rusqlite::Error as Sqlite;
    let damaged = |reason: String| Error::IndexDamaged { path: path.to_owned(), reason };
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            return Error::Busy { lock: "the index".to_owned(), waited: limits::SQLITE_BUSY };
        }
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            return damaged(error.to_string());
        }
        // In the words of the system, for whoever asks what kind of error it is.
        Some(ErrorCode::DiskFull) => {
            let source = std::io::Error::new(std::io::ErrorKind::StorageFull, error);
            return Error::Index { statement, source: Box::new(source) };
        }
        Some(ErrorCode::ReadOnly) => {
            let source = std::io::Error::new(std::io::ErrorKind::ReadOnlyFilesystem, error);
            return Error::Index { statement, source: Box::new(source) };
        }
        _ => {}
    }
    match error {
        // A value that this program never writes.
        Sqlite::FromSqlConversionFailure(..)
        | Sqlite::IntegralValueOutOfRange(..)
        | Sqlite::InvalidColumnType(..) => damaged(error.to_string()),
        other => Error::Index { statement, source: Box::new(other) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_writer_is_waited_for_as_long_as_is_said() {
        let pauses: Vec<Duration> = (0..).map_while(pause).collect();
        assert_eq!(pauses.iter().sum::<Duration>(), limits::SQLITE_BUSY);
        assert_eq!(pauses[499], Duration::from_millis(2));
        assert_eq!(pauses[500], Duration::from_millis(20));
        assert_eq!(pause(u32::MAX), None);
        assert!(!wait_for_writer(i32::MAX));
    }
}
