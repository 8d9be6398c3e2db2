//! The table `blobs`: which blobs are known, how many rows name each, and what is known against it.

use std::collections::{HashMap, HashSet};

use rusqlite::params;

use super::transaction::{ReadTx, Statement, WriteTx};
use super::values::Amount;
use crate::checkpoint::{BlobState, UnreferencedBlob};
use crate::clock::Timestamp;
use crate::error::Result;
use crate::hash::BlobHash;

impl ReadTx<'_> {
    /// The length of each blob as stored, where it is known.
    pub(crate) fn stored_sizes(&self, hashes: &[BlobHash]) -> Result<HashMap<BlobHash, u64>> {
        let mut find = self.prepare("SELECT stored_size FROM blobs WHERE hash = ?1")?;
        let mut sizes = HashMap::with_capacity(hashes.len());
        for hash in hashes {
            let size = find.row([hash], |row| row.get::<_, Option<Amount>>(0))?.flatten();
            if let Some(Amount(size)) = size {
                sizes.insert(*hash, size);
            }
        }
        Ok(sizes)
    }

    /// The blobs that are known to be missing or damaged; normally none.
    pub(crate) fn lost_blobs(&self) -> Result<Vec<(BlobHash, BlobState)>> {
        // Named, because the planner prefers to walk all blobs in order of hash.
        let sql = "SELECT hash, state FROM blobs INDEXED BY blobs_not_ok WHERE state <> 0";
        let mut lost = self.rows(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
        lost.sort_unstable_by_key(|(hash, _)| *hash);
        Ok(lost)
    }

    /// The pages among the blobs that are known to be missing or damaged.
    pub(crate) fn lost_pages(&self) -> Result<Vec<BlobHash>> {
        self.rows(
            "SELECT hash FROM blobs b INDEXED BY blobs_not_ok
             WHERE state <> 0 AND EXISTS (SELECT 1 FROM pages p WHERE p.blob = b.id)",
            [],
            |row| row.get(0),
        )
    }

    /// Those of `hashes` that no row names and no operation has pinned one by one, each with since
    /// when; `None` for a blob that has no row at all.
    pub(crate) fn free_blobs(
        &self,
        hashes: &[BlobHash],
    ) -> Result<HashMap<BlobHash, Option<Timestamp>>> {
        let mut row = self.prepare("SELECT refs, zero_since_ns FROM blobs WHERE hash = ?1")?;
        let mut pin = self.prepare("SELECT 1 FROM pins WHERE hash = ?1 LIMIT 1")?;
        let mut free = HashMap::new();
        for hash in hashes {
            if !pin.rows([hash], |_| Ok(()))?.is_empty() {
                continue;
            }
            let found: Vec<(i64, Option<Timestamp>)> =
                row.rows([hash], |row| Ok((row.get(0)?, row.get(1)?)))?;
            match found.first() {
                None => {
                    free.insert(*hash, None);
                }
                Some((0, since)) => {
                    free.insert(*hash, *since);
                }
                Some(_) => {}
            }
        }
        Ok(free)
    }

    /// As [`ReadTx::free_blobs`], for many hashes, in order: one pass over the rows around them.
    pub(crate) fn free_blobs_in_order(
        &self,
        hashes: &[BlobHash],
    ) -> Result<HashMap<BlobHash, Option<Timestamp>>> {
        let (Some(first), Some(last)) = (hashes.first(), hashes.last()) else {
            return Ok(HashMap::new());
        };
        let unnamed: HashMap<BlobHash, Option<Timestamp>> = self
            .rows("SELECT hash, zero_since_ns FROM blobs WHERE refs = 0", [], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?
            .into_iter()
            .collect();
        let pinned: HashSet<BlobHash> =
            self.rows("SELECT hash FROM pins", [], |row| row.get(0))?.into_iter().collect();
        let sql = "SELECT hash FROM blobs WHERE hash BETWEEN ?1 AND ?2 ORDER BY hash";
        let known: Vec<BlobHash> = self.rows(sql, [first, last], |row| row.get(0))?;
        let mut known = known.iter().peekable();
        let mut free = HashMap::new();
        for hash in hashes {
            while known.next_if(|row| *row < hash).is_some() {}
            let has_row = known.peek() == Some(&hash);
            if pinned.contains(hash) {
                continue;
            }
            match unnamed.get(hash) {
                Some(since) => {
                    free.insert(*hash, *since);
                }
                None if !has_row => {
                    free.insert(*hash, None);
                }
                None => {}
            }
        }
        Ok(free)
    }

    /// Up to `limit` blobs that nothing has named since `before` or longer and that no operation has
    /// pinned one by one, the oldest first, those after `after` in that order. A blob whose loss of
    /// its last reference lies in the future is young.
    ///
    /// They are candidates: the batch that removes them asks [`WriteTx::is_removable`] again.
    pub(crate) fn sweep_candidates(
        &self,
        before: Timestamp,
        after: Option<&UnreferencedBlob>,
        limit: usize,
    ) -> Result<Vec<UnreferencedBlob>> {
        let (since, hash) = match after {
            Some(after) => (after.since.as_ns(), Some(after.hash)),
            None => (i64::MIN, None),
        };
        self.rows(
            "SELECT hash, size, stored_size, state, zero_since_ns FROM blobs
             WHERE refs = 0 AND zero_since_ns <= ?1
                 AND (zero_since_ns > ?2 OR (zero_since_ns = ?2 AND (?3 IS NULL OR hash > ?3)))
                 AND NOT EXISTS (SELECT 1 FROM pins WHERE pins.hash = blobs.hash)
             ORDER BY zero_since_ns, hash LIMIT ?4",
            params![before, since, hash, Amount(limit as u64)],
            |row| {
                Ok(UnreferencedBlob {
                    hash: row.get(0)?,
                    size: row.get::<_, Option<Amount>>(1)?.map(|Amount(size)| size),
                    stored_size: row.get::<_, Option<Amount>>(2)?.map(|Amount(size)| size),
                    state: row.get(3)?,
                    since: row.get(4)?,
                })
            },
        )
    }
}

impl WriteTx<'_> {
    /// Notes a blob that was found without a row, or more about one that has a row. A new row has no
    /// reference and is as old as this transaction.
    #[cfg(test)]
    pub(crate) fn note_blob(
        &self,
        hash: BlobHash,
        size: Option<u64>,
        stored_size: Option<u64>,
    ) -> Result<()> {
        self.execute(
            "INSERT INTO blobs (hash, size, stored_size, refs, zero_since_ns)
             VALUES (?1, ?2, ?3, 0, ?4)
             ON CONFLICT (hash) DO UPDATE SET
                 size = coalesce(size, excluded.size),
                 stored_size = coalesce(excluded.stored_size, stored_size)",
            params![hash, size.map(Amount), stored_size.map(Amount), self.now()],
        )?;
        Ok(())
    }

    /// Notes whether a blob's bytes can be relied upon. One without a row is nobody's and is left.
    pub(crate) fn set_blob_state(&self, hash: BlobHash, state: BlobState) -> Result<()> {
        self.execute(
            "UPDATE blobs SET state = ?2 WHERE hash = ?1 AND state <> ?2",
            params![hash, state],
        )?;
        Ok(())
    }

    /// Notes that a blob was written anew, `stored_size` bytes long.
    pub(crate) fn note_healed(&self, hash: BlobHash, stored_size: u64) -> Result<()> {
        self.execute(
            "UPDATE blobs SET state = 0, stored_size = ?2 WHERE hash = ?1",
            params![hash, Amount(stored_size)],
        )?;
        Ok(())
    }

    /// Whether a blob may be removed now: no row names it, by the rows themselves and not by their
    /// counter, no operation has pinned it, and none has pinned all. True as well for a blob without a
    /// row.
    ///
    /// # Concurrency
    /// The answer holds until this transaction ends: unlink the file, then [`WriteTx::delete_blob`],
    /// then commit. Whoever pins the blob does so before, and is seen here, or after, and finds no
    /// file.
    pub(crate) fn is_removable(&self, hash: BlobHash) -> Result<bool> {
        let protected = self.exists(
            "SELECT 1 FROM pins WHERE hash = ?1
             UNION ALL SELECT 1 FROM operations WHERE pin_all = 1
             UNION ALL SELECT 1 FROM blobs b WHERE b.hash = ?1
                 AND (EXISTS (SELECT 1 FROM pages p WHERE p.blob = b.id)
                     OR EXISTS (SELECT 1 FROM entries e WHERE e.blob = b.id))
             LIMIT 1",
            [hash],
        )?;
        Ok(!protected)
    }

    /// Deletes a blob's row. Does nothing where there is none; fails where a row names it.
    pub(crate) fn delete_blob(&self, hash: BlobHash) -> Result<()> {
        self.execute("DELETE FROM blobs WHERE hash = ?1", [hash])?;
        Ok(())
    }

    /// Takes back `count` references to a blob, whose rows the caller has deleted.
    pub(super) fn release_blob(&self, id: i64, count: i64) -> Result<()> {
        let changed = self.execute(
            "UPDATE blobs SET refs = refs - ?2,
                 zero_since_ns = CASE WHEN refs = ?2 THEN ?3 END
             WHERE id = ?1 AND refs >= ?2",
            params![id, count, self.now()],
        )?;
        if changed == 0 {
            let reason = format!("the counter of blob {id} is lower than the rows that name it");
            return Err(self.contradiction(reason));
        }
        Ok(())
    }
}

/// Counts references to blobs, in bulk.
pub(super) struct References<'t> {
    stored: &'t HashMap<BlobHash, u64>,
    now: Timestamp,
    tx: &'t WriteTx<'t>,
    find: Statement<'t>,
    insert: Statement<'t>,
    update: Statement<'t>,
}

impl<'t> References<'t> {
    /// `stored` says how long new blobs are as stored.
    pub(super) fn new(tx: &'t WriteTx<'_>, stored: &'t HashMap<BlobHash, u64>) -> Result<Self> {
        Ok(Self {
            stored,
            now: tx.now(),
            tx,
            find: tx.prepare("SELECT id FROM blobs WHERE hash = ?1")?,
            insert: tx.prepare(
                "INSERT INTO blobs (hash, size, stored_size, refs, zero_since_ns)
                 VALUES (?1, ?2, ?3, ?4, ?5)",
            )?,
            update: tx.prepare(
                "UPDATE blobs SET refs = refs + ?2, zero_since_ns = NULL,
                     size = coalesce(size, ?3), stored_size = coalesce(stored_size, ?4)
                 WHERE id = ?1",
            )?,
        })
    }

    /// Counts `count` more references to a blob, whose rows the caller writes, and gives its id. A
    /// blob without a row gets one.
    pub(super) fn add(&mut self, hash: BlobHash, size: Option<u64>, count: u64) -> Result<i64> {
        let size = size.map(Amount);
        let found = self.find.row([hash], |row| row.get(0))?;
        if let Some(id) = found
            && count == 0
        {
            return Ok(id);
        }
        let stored = self.stored.get(&hash).map(|&size| Amount(size));
        if let Some(id) = found {
            self.update.execute(params![id, Amount(count), size, stored])?;
            return Ok(id);
        }
        let zero_since = (count == 0).then_some(self.now);
        self.insert.execute(params![hash, size, stored, Amount(count), zero_since])?;
        Ok(self.tx.inserted_id())
    }
}
