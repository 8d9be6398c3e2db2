//! The versions of the schema and the way from one to the next.

use rusqlite::{Connection, TransactionBehavior};

/// Marks the file as an index of this program: the letters `turp`.
pub(super) const APPLICATION_ID: i32 = 0x7475_7270;

/// Append only: a step's position is the version it starts from, and what has shipped never changes.
const MIGRATIONS: [&str; 3] = [
    include_str!("../../migrations/0001_initial.sql"),
    include_str!("../../migrations/0002_entries_by_position.sql"),
    include_str!("../../migrations/0003_entries_by_page_only.sql"),
];

/// The version of the schema after all steps.
#[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "a handful")]
pub(super) const VERSION: i32 = MIGRATIONS.len() as i32;

/// Brings the schema to [`VERSION`]. A version above it is left alone; the caller refuses it before.
///
/// # Concurrency
/// Any number of processes may do this at once: the version is read again inside each transaction,
/// after the write lock is held, so a step that another process has taken is not taken twice.
pub(super) fn migrate(connection: &mut Connection) -> rusqlite::Result<()> {
    for (from, sql) in (0i32..).zip(MIGRATIONS) {
        if version(connection)? > from {
            continue;
        }
        let step = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if version(&step)? == from {
            step.execute_batch(sql)?;
            step.pragma_update(None, "application_id", APPLICATION_ID)?;
            step.pragma_update(None, "user_version", from + 1)?;
        }
        step.commit()?;
    }
    Ok(())
}

/// The version of the schema; 0 where there is none.
pub(super) fn version(connection: &Connection) -> rusqlite::Result<i32> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}
