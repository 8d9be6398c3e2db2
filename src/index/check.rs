//! Checks of the index itself, for `verify`.

use super::transaction::ReadTx;
use super::values::Amount;
use crate::error::Result;
use crate::hash::BlobHash;

/// A page or blob whose counter is not the number of rows that name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CounterMismatch {
    /// Which one.
    pub(crate) hash: BlobHash,
    /// What the counter says.
    pub(crate) counter: u64,
    /// How many rows name it.
    pub(crate) rows: u64,
}

/// How many rows there are.
#[cfg(test)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct IndexCounts {
    /// Checkpoints that are there for readers.
    pub(crate) checkpoints: u64,
    /// Checkpoints whose prune was decided and not finished.
    pub(crate) pruning: u64,
    /// Sessions, those without checkpoints too.
    pub(crate) sessions: u64,
    /// Workspaces.
    pub(crate) workspaces: u64,
    /// Blobs, pages included.
    pub(crate) blobs: u64,
    /// Blobs that nothing names.
    pub(crate) unreferenced: u64,
    /// Pages.
    pub(crate) pages: u64,
    /// Entries in them.
    pub(crate) entries: u64,
    /// Operations in flight.
    pub(crate) operations: u64,
    /// Blobs they have pinned one by one.
    pub(crate) pins: u64,
}

impl ReadTx<'_> {
    /// Counts all references anew, to pages and to blobs, and gives those whose counter is another
    /// number.
    ///
    /// # Cost
    /// Reads every row once.
    pub(crate) fn recount(&self) -> Result<Vec<CounterMismatch>> {
        self.rows(
            "WITH
                 page_named (blob, count) AS (
                     SELECT blob, count(*) FROM (
                         SELECT root_blob AS blob FROM checkpoints
                         UNION ALL SELECT after_root_blob FROM checkpoints
                         UNION ALL SELECT child FROM page_links)
                     GROUP BY blob),
                 blob_named (blob, count) AS (
                     SELECT blob, count(*) FROM (
                         SELECT blob FROM pages
                         UNION ALL SELECT blob FROM entries WHERE blob IS NOT NULL)
                     GROUP BY blob)
             SELECT b.hash, p.refs, coalesce(n.count, 0)
             FROM pages p JOIN blobs b ON b.id = p.blob LEFT JOIN page_named n ON n.blob = p.blob
             WHERE p.refs <> coalesce(n.count, 0)
             UNION ALL
             SELECT b.hash, b.refs, coalesce(n.count, 0)
             FROM blobs b LEFT JOIN blob_named n ON n.blob = b.id
             WHERE b.refs <> coalesce(n.count, 0)",
            [],
            |row| {
                let (Amount(counter), Amount(rows)) = (row.get(1)?, row.get(2)?);
                Ok(CounterMismatch { hash: row.get(0)?, counter, rows })
            },
        )
    }

    /// What SQLite finds wrong with the file, as sentences; none where it is in order. `thorough`
    /// compares indexes with tables too.
    pub(crate) fn integrity(&self, thorough: bool) -> Result<Vec<String>> {
        let sql = if thorough { "PRAGMA integrity_check" } else { "PRAGMA quick_check" };
        let mut found = self.rows(sql, [], |row| row.get::<_, String>(0))?;
        found.retain(|line| line != "ok");
        Ok(found)
    }

    /// Rows that name something without a row, as sentences; none where all is in order.
    pub(crate) fn broken_references(&self) -> Result<Vec<String>> {
        self.rows("PRAGMA foreign_key_check", [], |row| {
            let (table, parent): (String, String) = (row.get(0)?, row.get(2)?);
            Ok(format!("a row of `{table}` names a row of `{parent}` that is not there"))
        })
    }

    /// How many rows there are.
    #[cfg(test)]
    pub(crate) fn counts(&self) -> Result<IndexCounts> {
        let counts = self.row(
            "SELECT
                 (SELECT count(*) FROM checkpoints WHERE state = 'live'),
                 (SELECT count(*) FROM checkpoints WHERE state = 'pruning'),
                 (SELECT count(*) FROM sessions),
                 (SELECT count(*) FROM workspaces),
                 (SELECT count(*) FROM blobs),
                 (SELECT count(*) FROM blobs WHERE refs = 0),
                 (SELECT count(*) FROM pages),
                 (SELECT count(*) FROM entries),
                 (SELECT count(*) FROM operations),
                 (SELECT count(*) FROM pins)",
            [],
            |row| {
                let amount = |column: usize| row.get(column).map(|Amount(count)| count);
                Ok(IndexCounts {
                    checkpoints: amount(0)?,
                    pruning: amount(1)?,
                    sessions: amount(2)?,
                    workspaces: amount(3)?,
                    blobs: amount(4)?,
                    unreferenced: amount(5)?,
                    pages: amount(6)?,
                    entries: amount(7)?,
                    operations: amount(8)?,
                    pins: amount(9)?,
                })
            },
        )?;
        Ok(counts.unwrap_or_default())
    }
}
