//! What loses its last name when checkpoints go, one after the other.

use std::collections::HashMap;

use super::transaction::{ReadTx, Statement};
use super::values::Amount;
use crate::error::Result;
use crate::id::CheckpointId;

/// Bytes of content as stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ContentBytes {
    /// Of what something names.
    pub(crate) named: u64,
    /// Of what nothing names any more, and a sweep removes.
    pub(crate) unnamed: u64,
}

/// Takes the names of checkpoints back, in thought.
pub(crate) struct Releasing<'t> {
    tx: &'t ReadTx<'t>,
    page_names: Statement<'t>,
    links: Statement<'t>,
    contents: Statement<'t>,
    blob_names: Statement<'t>,
    /// How many names of a page, and of a blob, were taken back.
    pages: HashMap<i64, i64>,
    blobs: HashMap<i64, i64>,
    bytes: u64,
}

impl ReadTx<'_> {
    /// What all content takes. A blob whose stored length is not known counts as long as it is before
    /// compression: for nothing it would be content that no budget sees, and that frees nothing when it goes.
    ///
    /// Cost: the rows of all blobs.
    pub(crate) fn content_bytes(&self) -> Result<ContentBytes> {
        let sql = "SELECT
                       coalesce(sum(CASE WHEN refs > 0 THEN coalesce(stored_size, size) END), 0),
                       coalesce(sum(CASE WHEN refs = 0 THEN coalesce(stored_size, size) END), 0)
                   FROM blobs";
        let row = self.row(sql, [], |row| {
            let amount = |column: usize| row.get(column).map(|Amount(amount)| amount);
            Ok(ContentBytes { named: amount(0)?, unnamed: amount(1)? })
        })?;
        Ok(row.unwrap_or_default())
    }

    /// Begins to take names back.
    pub(crate) fn releasing(&self) -> Result<Releasing<'_>> {
        Ok(Releasing {
            tx: self,
            page_names: self.prepare("SELECT refs FROM pages WHERE blob = ?1")?,
            links: self.prepare("SELECT child FROM page_links WHERE page = ?1")?,
            contents: self.prepare("SELECT blob FROM entries WHERE page = ?1 AND kind = 0")?,
            blob_names: self
                .prepare("SELECT refs, coalesce(stored_size, size, 0) FROM blobs WHERE id = ?1")?,
            pages: HashMap::new(),
            blobs: HashMap::new(),
            bytes: 0,
        })
    }
}

impl Releasing<'_> {
    /// How many names of each blob were taken back.
    pub(super) fn blobs(self) -> HashMap<i64, i64> {
        self.blobs
    }

    /// Takes those of one more checkpoint back, and gives how many bytes of content have no name left by
    /// now.
    ///
    /// Cost: the entries of the pages that lose their last name with it.
    pub(crate) fn release(&mut self, id: &CheckpointId) -> Result<u64> {
        let Some((row, _)) = self.tx.checkpoint_id(id)? else { return Ok(self.bytes) };
        let mut pages = self.tx.roots_of(row)?;
        while let Some(page) = pages.pop() {
            let taken = self.pages.entry(page).or_default();
            *taken += 1;
            if self.page_names.row([page], |row| row.get::<_, i64>(0))? != Some(*taken) {
                continue;
            }
            pages.extend(self.links.rows([page], |row| row.get::<_, i64>(0))?);
            let named = self.contents.rows([page], |row| row.get::<_, i64>(0))?;
            for blob in named.into_iter().chain([page]) {
                let taken = self.blobs.entry(blob).or_default();
                *taken += 1;
                let names = self
                    .blob_names
                    .row([blob], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, Amount>(1)?)))?;
                if let Some((names, Amount(stored))) = names
                    && names == *taken
                {
                    self.bytes += stored;
                }
            }
        }
        Ok(self.bytes)
    }
}
