//! Questions in SQL about the index.

use std::ops::ControlFlow;

use crate::error::{Error, QueryError, Result};
use crate::index::{FILE_NAME, QueryOptions, QueryOutcome, QueryRow, Reader, Value};
use crate::limits;
use crate::monitor::Monitor;
use crate::store::{InPlace, Store};

/// A whole answer.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Answer {
    /// The names of the columns.
    pub columns: Vec<String>,
    /// The rows, with a value for each column.
    pub rows: Vec<Vec<Value>>,
    /// Whether there are more rows than [`QueryOptions::row_limit`].
    pub has_more: bool,
}

impl Store {
    /// Asks the index a question in SQL: one statement that reads. [`crate::VIEWS`] says what can be
    /// asked; it answers from one state of the index. It cannot change anything, read another file or
    /// run for ever, whatever the text is.
    ///
    /// # Errors
    /// [`Error::Query`]; an answer longer than [`limits::ANSWER_BYTES_MAX`] is
    /// [`QueryError::TooLong`]. [`Error::IndexDamaged`]: nobody answers in its place.
    ///
    /// Cost: opening the index, about a millisecond, and what the query takes.
    pub fn query(
        &self,
        sql: &str,
        options: &QueryOptions,
        monitor: &dyn Monitor,
    ) -> Result<Answer> {
        let mut rows = Vec::new();
        let mut bytes = 0;
        let outcome = self.query_each(
            sql,
            options,
            |row| {
                bytes += row.values.iter().map(Value::len_in_memory).sum::<usize>();
                rows.push(row.values);
                if bytes > limits::ANSWER_BYTES_MAX {
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            },
            monitor,
        )?;
        if bytes > limits::ANSWER_BYTES_MAX {
            return Err(QueryError::TooLong { limit_bytes: limits::ANSWER_BYTES_MAX }.into());
        }
        Ok(Answer { columns: outcome.columns, rows, has_more: outcome.has_more })
    }

    /// As [`Store::query`], giving each row to `each` as it comes, until that breaks off. No lock is
    /// held meanwhile. The index keeps what is read in one piece, so its log grows until this returns:
    /// `each` should not wait for a person.
    ///
    /// # Errors
    /// As for [`Store::query`], without a bound on the length.
    pub fn query_each(
        &self,
        sql: &str,
        options: &QueryOptions,
        mut each: impl FnMut(QueryRow<'_>) -> ControlFlow<()>,
        monitor: &dyn Monitor,
    ) -> Result<QueryOutcome> {
        self.open_reader(monitor)?.ask(sql, options, &mut each, monitor)
    }

    /// A connection to the index that is in place. The store's lock is given back before it is used.
    fn open_reader(&self, monitor: &dyn Monitor) -> Result<Reader> {
        let root = self.inner.layout.root();
        let Some(reading) = self.read(monitor)? else {
            return Err(QueryError::NoStore { path: root.to_owned() }.into());
        };
        let path = root.join(FILE_NAME);
        match (&reading.index, &reading.index_damage) {
            (Some(index), _) => index.open_reader(),
            (None, Some(reason)) => Err(Error::IndexDamaged { path, reason: reason.clone() }),
            (None, None) => {
                let reason = match self.current_index() {
                    Ok(InPlace::Missing) => "there is none".to_owned(),
                    Ok(_) => "it could not be opened a moment ago".to_owned(),
                    Err(error) => error.with_source(),
                };
                Err(QueryError::NoIndex { path, reason }.into())
            }
        }
    }
}
