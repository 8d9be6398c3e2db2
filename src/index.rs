//! The index: an SQLite database of what manifests and pages say, with the counters of references.
//!
//! It is derived: a manifest is the truth about its checkpoint, and a lost index is built anew from
//! the manifests. It decides, though, who may delete what: every question whose answer protects or
//! removes something is asked and answered in one write transaction.
//!
//! # Locking
//! One writer connection behind a mutex; all writing transactions begin with `BEGIN IMMEDIATE`, so
//! they wait for another process's instead of failing. Transactions are short; no file is hashed or
//! compressed in one. A closure given to [`Index::write`] or [`Index::read`] must not call either
//! again. Nothing here takes a file lock: the caller holds the store's lock, shared, and compares
//! [`Index::is_current`] after taking it.
//!
//! # Compatibility
//! `user_version` is the version of the schema; a newer one is refused. Views are for people and
//! stay; tables are private.
//!
//! # Durability
//! A commit survives the death of the process, not always a power cut, which may take back the last
//! ones; [`Index::write_durably`] is for the one that must not be lost. The file cannot be damaged by
//! either. No other file descriptor of this process may be opened and closed on the database's files:
//! that would drop SQLite's locks on them.
//!
//! # References
//! A reference is a row: checkpoint to root page, page to page, entry to content. A page's row and its
//! outgoing rows exist exactly while a row names the page: they are written with its first reference
//! and deleted with its last, recursively, in one transaction. `pages.refs` counts the rows that name
//! a page; `blobs.refs` those that name a blob, where the row of a page counts as one. The counters are
//! kept in the same transactions, and foreign keys refuse to delete what a row names.

mod blobs;
mod check;
mod checkpoints;
mod connection;
mod migrations;
mod operations;
mod pages;
mod query;
mod releasing;
mod sessions;
#[cfg(test)]
mod tests;
mod transaction;
mod values;
mod views;

use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use r2d2_sqlite::SqliteConnectionManager;
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

pub(crate) use checkpoints::other_manifest;
pub(crate) use query::Reader;
pub use query::{QueryOptions, QueryOutcome, QueryRow, Value};
pub(crate) use releasing::ContentBytes;
pub(crate) use transaction::{ReadTx, WriteTx};
pub use views::{VIEWS, View, ViewColumn};

use crate::disk::{self, Dir, FileKind, FileStat, ToSync};
use crate::error::{Error, IoContext, Result};
use crate::limits;
use connection::{Connected, failure};

/// What an index is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// To read and write; the schema is brought up to date.
    Write,
    /// To read only; works where the store's directory cannot be written, as far as SQLite can.
    Read,
}

/// What was found where the index should be.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one for each process, taken apart at once")]
pub(crate) enum Opened {
    /// An index.
    Ready(Index),
    /// No file, an empty one, or a database without a schema.
    Missing,
    /// Not a database, or one that contradicts itself. It can be moved aside and built anew.
    Damaged {
        /// What was found.
        reason: String,
    },
    /// It cannot be read from here, which says nothing against it: SQLite must be able to write beside
    /// it, or a writing command must bring its schema up to date. Only for [`Access::Read`].
    Unavailable {
        /// What stands in the way.
        reason: String,
    },
}

/// An open index.
#[derive(Debug)]
pub(crate) struct Index {
    dir: Dir,
    name: &'static str,
    path: PathBuf,
    /// Which file is open, whatever its name is by now.
    file: FileStat,
    connection: Mutex<Connection>,
    readers: OnceLock<r2d2::Pool<SqliteConnectionManager>>,
}

/// The version of SQLite that reads and writes it.
pub(crate) fn sqlite_version() -> &'static str {
    connection::sqlite_version()
}

/// The name of the index in a store's directory.
pub(crate) const FILE_NAME: &str = "index.db";

/// The name under which a new one is built.
pub(crate) const NEW_FILE_NAME: &str = "index.db.new";

/// Removes what an interrupted building of an index left. The caller has the store to itself.
pub(crate) fn remove_unfinished(dir: &Dir) -> Result<()> {
    for suffix in ["", "-journal", "-wal", "-shm"] {
        dir.try_unlink(format!("{NEW_FILE_NAME}{suffix}").as_bytes())?;
    }
    Ok(())
}

impl Index {
    /// Opens the index in the store's directory `dir`. Never makes one.
    ///
    /// # Errors
    /// [`Error::StoreTooNew`], [`Error::StoreForeign`], [`Error::Busy`], and [`Error::Index`] for what
    /// is not about its content: permission, I/O, a file system without shared memory.
    ///
    /// # Cost
    /// About a millisecond, and reading the WAL once, which is a few MiB at most.
    pub(crate) fn open(dir: &Dir, access: Access) -> Result<Opened> {
        connection::check_sqlite()?;
        let path = dir.path().join(FILE_NAME);
        loop {
            let Some(file) = look(dir, FILE_NAME)? else { return Ok(Opened::Missing) };
            if file.kind == FileKind::Dir {
                return Ok(Opened::Damaged { reason: "it is a directory".to_owned() });
            }
            let connected = connection::connect(&path, access);
            // The name may have been given to another file between the look and the opening.
            if !look(dir, FILE_NAME)?.is_some_and(|now| now.is_same_inode(&file)) {
                continue;
            }
            return match connected {
                Ok(Connected::Ready(connection)) => {
                    Self::new(dir, FILE_NAME, file, connection).map(Opened::Ready)
                }
                Ok(Connected::Empty) => Ok(Opened::Missing),
                Ok(Connected::Unavailable { reason }) => Ok(Opened::Unavailable { reason }),
                Err(Error::IndexDamaged { reason, .. }) => Ok(Opened::Damaged { reason }),
                Err(other) => Err(other),
            };
        }
    }

    /// Makes an empty index in the new file [`NEW_FILE_NAME`], mode 0600, for filling in bulk. It has
    /// no WAL and synchronises nothing; [`Index::close_without_wal`] ends it.
    ///
    /// # Errors
    /// [`Error::Io`] where the file exists or cannot be made.
    pub(crate) fn create_new(dir: &Dir) -> Result<Self> {
        connection::check_sqlite()?;
        let name = NEW_FILE_NAME;
        drop(dir.create_file(name.as_bytes())?);
        let path = dir.path().join(name);
        let connection = connection::create(&path)?;
        let gone = || io::Error::from(io::ErrorKind::NotFound);
        let file = dir.stat(name.as_bytes())?.ok_or_else(gone).at("examine", path)?;
        Self::new(dir, name, file, connection)
    }

    fn new(dir: &Dir, name: &'static str, file: FileStat, connection: Connection) -> Result<Self> {
        Ok(Self {
            dir: dir.try_clone()?,
            name,
            path: dir.path().join(name),
            file,
            connection: Mutex::new(connection),
            readers: OnceLock::new(),
        })
    }

    /// Closes an index made by [`Index::create_new`].
    ///
    /// # Durability
    /// When it returns, the file's content survives a power cut; it may be renamed to [`FILE_NAME`].
    /// There is no file beside it.
    pub(crate) fn close_without_wal(self) -> Result<()> {
        let Self { dir, name, path, connection, .. } = self;
        let connection = connection.into_inner().unwrap_or_else(PoisonError::into_inner);
        connection.close().map_err(|(_, error)| failure(&path, "be closed", error))?;
        // No connection of this process has the file open any more, so opening it drops no lock.
        disk::sync_all(&dir, &[ToSync::Named(&dir, name.as_bytes())])
    }

    /// Whether the name still leads to the file that is open here. Otherwise another process has
    /// built the index anew, and what is read or written here is lost: open it again.
    pub(crate) fn is_current(&self) -> Result<bool> {
        let now = look(&self.dir, self.name)?;
        Ok(now.is_some_and(|now| now.is_same_inode(&self.file)))
    }

    /// Lets reads go to up to [`limits::SQLITE_READERS_MAX`] connections of their own from now on,
    /// beside the writer and each other. For processes that live long; the threads that keep such a
    /// pool cost a short process more than they give.
    pub(crate) fn use_readers(&self) -> Result<()> {
        if self.readers.get().is_some() {
            return Ok(());
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let manager = SqliteConnectionManager::file(&self.path)
            .with_flags(flags)
            .with_init(|connection| connection::set_up(connection));
        let pool = r2d2::Pool::builder()
            .max_size(limits::SQLITE_READERS_MAX)
            .min_idle(Some(0))
            .test_on_check_out(false)
            .connection_timeout(limits::SQLITE_READER_WAIT)
            .build(manager)
            .map_err(|error| Error::Index { statement: "be opened", source: Box::new(error) })?;
        // Another thread may have been faster; its pool serves as well.
        self.readers.get_or_init(|| pool);
        Ok(())
    }

    /// Runs `body` on one unchanging state of the index. `statement` continues `the index cannot …`.
    ///
    /// # Errors
    /// What `body` gives; [`Error::Busy`], [`Error::IndexDamaged`], [`Error::Index`].
    pub(crate) fn read<T>(
        &self,
        statement: &'static str,
        body: impl FnOnce(ReadTx<'_>) -> Result<T>,
    ) -> Result<T> {
        if let Some(pool) = self.readers.get() {
            let mut reader =
                pool.get().map_err(|error| Error::Index { statement, source: Box::new(error) })?;
            return self.read_on(&mut reader, statement, body);
        }
        self.read_on(&mut self.lock(), statement, body)
    }

    fn read_on<T>(
        &self,
        connection: &mut Connection,
        statement: &'static str,
        body: impl FnOnce(ReadTx<'_>) -> Result<T>,
    ) -> Result<T> {
        let failed = |error| failure(&self.path, statement, error);
        let transaction = connection.transaction().map_err(failed)?;
        let result = body(ReadTx::new(&transaction, &self.path, statement))?;
        transaction.commit().map_err(failed)?;
        Ok(result)
    }

    /// Runs `body` in a transaction that is committed if it succeeds and leaves nothing if it fails.
    /// `statement` continues `the index cannot …`.
    ///
    /// # Errors
    /// What `body` gives; [`Error::Busy`], [`Error::IndexDamaged`], [`Error::Index`].
    ///
    /// # Durability
    /// Survives the death of the process; a power cut may take it back, and all after it.
    pub(crate) fn write<T>(
        &self,
        statement: &'static str,
        body: impl FnOnce(WriteTx<'_>) -> Result<T>,
    ) -> Result<T> {
        self.write_on(&mut self.lock(), statement, body)
    }

    /// As [`Index::write`], and what was committed, with all before it, survives a power cut.
    ///
    /// # Cost
    /// One synchronisation of the WAL.
    pub(crate) fn write_durably<T>(
        &self,
        statement: &'static str,
        body: impl FnOnce(WriteTx<'_>) -> Result<T>,
    ) -> Result<T> {
        let failed = |error| failure(&self.path, statement, error);
        let mut connection = self.lock();
        connection.pragma_update(None, "synchronous", "FULL").map_err(failed)?;
        let result = self.write_on(&mut connection, statement, body);
        connection.pragma_update(None, "synchronous", "NORMAL").map_err(failed)?;
        result
    }

    /// Copies the WAL back and empties it, as far as other processes that read or write allow: part of
    /// a collection, since ending a process does not do it.
    ///
    /// # Durability
    /// What was committed before survives a power cut, if nobody was in the way.
    pub(crate) fn empty_wal(&self) -> Result<()> {
        let sql = "PRAGMA wal_checkpoint(TRUNCATE)";
        let done = self.lock().query_row(sql, [], |_| Ok(()));
        done.map_err(|error| failure(&self.path, "empty its log", error))
    }

    /// Writes the file anew without its free pages, where they are half of it or more: SQLite uses them
    /// again and never gives them back. Returns how many bytes that gives back, with the next
    /// [`Index::empty_wal`].
    ///
    /// Nothing is done where that would be less than [`limits::INDEX_GIVEN_BACK_BYTES_MIN`], where more than
    /// [`limits::INDEX_COPIED_BYTES_MAX`] would stay, which is held in memory meanwhile, where the disk has
    /// no room for twice that, or where other processes keep writing.
    ///
    /// # Errors
    /// [`Error::IndexDamaged`], [`Error::Index`].
    ///
    /// # Durability
    /// One transaction: the file is as before or as after it.
    pub(crate) fn give_back_space(&self) -> Result<u64> {
        const STATEMENT: &str = "give back space";
        let failed = |error| failure(&self.path, STATEMENT, error);
        let connection = self.lock();
        let pragma = |name| {
            let value = connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
            value.map(|value| u64::try_from(value).unwrap_or(0)).map_err(failed)
        };
        let page_bytes = pragma("page_size")?;
        let in_all = pragma("page_count")?.saturating_mul(page_bytes);
        let free = pragma("freelist_count")?.saturating_mul(page_bytes);
        let stays = in_all.saturating_sub(free);
        if free < stays
            || free < limits::INDEX_GIVEN_BACK_BYTES_MIN
            || stays > limits::INDEX_COPIED_BYTES_MAX
            || disk::available_bytes(&self.dir)? < stays.saturating_mul(2)
        {
            return Ok(0);
        }
        match connection.execute_batch("VACUUM") {
            Ok(()) => {
                let after = pragma("page_count")?.saturating_mul(page_bytes);
                Ok(in_all.saturating_sub(after))
            }
            Err(error) => match error.sqlite_error_code() {
                // Nobody waits for this, and it can be done the next time.
                Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::DiskFull) => {
                    Ok(0)
                }
                _ => Err(failed(error)),
            },
        }
    }

    /// Empties the WAL if a large transaction has made it long. What is in it has been copied back by then,
    /// and SQLite would keep its length.
    pub(crate) fn trim_wal(&self) -> Result<()> {
        let name = format!("{}-wal", self.name);
        let length = self.dir.stat(name.as_bytes())?.map_or(0, |file| file.size);
        if length > limits::SQLITE_WAL_KEPT_BYTES { self.empty_wal() } else { Ok(()) }
    }

    fn write_on<T>(
        &self,
        connection: &mut Connection,
        statement: &'static str,
        body: impl FnOnce(WriteTx<'_>) -> Result<T>,
    ) -> Result<T> {
        let failed = |error| failure(&self.path, statement, error);
        let transaction =
            connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
        let result = body(WriteTx::new(&transaction, &self.path, statement))?;
        transaction.commit().map_err(failed)?;
        Ok(result)
    }

    /// A panic in a transaction has rolled it back: the connection is as good as before.
    fn lock(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The file of that name; `None` where there is none, or one without content.
fn look(dir: &Dir, name: &str) -> Result<Option<FileStat>> {
    Ok(dir.stat(name.as_bytes())?.filter(|file| file.size > 0))
}
