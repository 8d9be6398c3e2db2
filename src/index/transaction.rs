//! A transaction as the tables see it: statements, cached, with errors that say what they mean.

use std::ops::Deref;
use std::path::Path;

use rusqlite::{Connection, OptionalExtension as _, Params, Row};

use super::connection::failure;
use crate::clock::Timestamp;
use crate::error::{Error, Result};

/// Reads one state of the index. What can be asked is in the files of the tables.
#[derive(Debug)]
pub(crate) struct ReadTx<'c> {
    connection: &'c Connection,
    path: &'c Path,
    statement: &'static str,
}

/// Reads and changes the index; all of it or, where the closure fails, none.
#[derive(Debug)]
pub(crate) struct WriteTx<'c> {
    read: ReadTx<'c>,
    /// When the transaction began; what it stamps on rows.
    now: Timestamp,
}

impl<'c> ReadTx<'c> {
    pub(super) fn new(connection: &'c Connection, path: &'c Path, statement: &'static str) -> Self {
        Self { connection, path, statement }
    }

    /// Prepares a statement that is kept for the next time.
    pub(super) fn prepare(&self, sql: &'static str) -> Result<Statement<'_>> {
        let cached = self.connection.prepare_cached(sql).map_err(|error| self.failure(error))?;
        Ok(Statement { cached, tx: self })
    }

    /// All rows of a query.
    pub(super) fn rows<T>(
        &self,
        sql: &'static str,
        params: impl Params,
        row: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>> {
        self.prepare(sql)?.rows(params, row)
    }

    /// The first row of a query.
    pub(super) fn row<T>(
        &self,
        sql: &'static str,
        params: impl Params,
        row: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>> {
        self.prepare(sql)?.row(params, row)
    }

    /// Whether a query has a row.
    pub(super) fn exists(&self, sql: &'static str, params: impl Params) -> Result<bool> {
        Ok(self.row(sql, params, |_| Ok(()))?.is_some())
    }

    /// Says that the index contradicts itself or the files.
    pub(super) fn contradiction(&self, reason: String) -> Error {
        Error::IndexDamaged { path: self.path.to_owned(), reason }
    }

    fn failure(&self, error: rusqlite::Error) -> Error {
        failure(self.path, self.statement, error)
    }
}

impl<'c> WriteTx<'c> {
    pub(super) fn new(connection: &'c Connection, path: &'c Path, statement: &'static str) -> Self {
        Self { read: ReadTx::new(connection, path, statement), now: Timestamp::now() }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.now
    }

    /// Runs a statement and says how many rows it changed.
    pub(super) fn execute(&self, sql: &'static str, params: impl Params) -> Result<usize> {
        self.prepare(sql)?.execute(params)
    }

    /// The id of the row inserted last.
    pub(super) fn inserted_id(&self) -> i64 {
        self.read.connection.last_insert_rowid()
    }
}

impl<'c> Deref for WriteTx<'c> {
    type Target = ReadTx<'c>;

    fn deref(&self) -> &ReadTx<'c> {
        &self.read
    }
}

/// A prepared statement, for loops.
pub(super) struct Statement<'t> {
    cached: rusqlite::CachedStatement<'t>,
    tx: &'t ReadTx<'t>,
}

impl Statement<'_> {
    pub(super) fn execute(&mut self, params: impl Params) -> Result<usize> {
        self.cached.execute(params).map_err(|error| self.tx.failure(error))
    }

    pub(super) fn row<T>(
        &mut self,
        params: impl Params,
        row: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>> {
        let found = self.cached.query_row(params, row).optional();
        found.map_err(|error| self.tx.failure(error))
    }

    pub(super) fn rows<T>(
        &mut self,
        params: impl Params,
        row: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>> {
        let rows = self.cached.query_map(params, row).and_then(Iterator::collect);
        rows.map_err(|error| self.tx.failure(error))
    }
}
