//! The tables `pages`, `page_links` and `entries`: what pages say, held while something names them.

use std::collections::{HashMap, HashSet};

use rusqlite::params;

use super::blobs::References;
use super::transaction::{ReadTx, Statement, WriteTx};
use super::values::Amount;
use crate::error::Result;
use crate::hash::BlobHash;
use crate::id::CheckpointId;
use crate::manifest::{Entry, EntryKind, Listed, Page, PageRef, PageSource, Tree};
use crate::manifest::{load, root_page};

/// What lies below a page.
#[derive(Debug, Clone, Copy, Default)]
struct Held {
    /// Files and symlinks whose content is held.
    files: u64,
    /// The bytes of the files.
    bytes: u64,
}

impl std::ops::AddAssign for Held {
    fn add_assign(&mut self, other: Self) {
        self.files = self.files.saturating_add(other.files);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

impl ReadTx<'_> {
    /// The blobs that lose their last name when the rows of these checkpoints go, but for those that
    /// an operation has pinned one by one.
    ///
    /// Cost: the entries of the pages that only these checkpoints name.
    pub(crate) fn released_with(&self, ids: &[CheckpointId]) -> Result<HashSet<BlobHash>> {
        let mut releasing = self.releasing()?;
        for id in ids {
            releasing.release(id)?;
        }
        let mut find = self.prepare(
            "SELECT hash FROM blobs WHERE id = ?1 AND refs = ?2
                 AND NOT EXISTS (SELECT 1 FROM pins WHERE pins.hash = blobs.hash)",
        )?;
        let mut released = HashSet::new();
        for (blob, count) in releasing.blobs() {
            released.extend(find.row(params![blob, count], |row| row.get::<_, BlobHash>(0))?);
        }
        Ok(released)
    }
}

/// Writes the rows of trees that a new checkpoint names.
pub(super) struct TreeWriter<'t> {
    source: &'t dyn PageSource,
    references: References<'t>,
    find_page: Statement<'t>,
    refer: Statement<'t>,
    insert_page: Statement<'t>,
    insert_link: Statement<'t>,
    insert_entry: Statement<'t>,
}

impl<'t> TreeWriter<'t> {
    pub(super) fn new(
        tx: &'t WriteTx<'_>,
        source: &'t dyn PageSource,
        stored: &'t HashMap<BlobHash, u64>,
    ) -> Result<Self> {
        Ok(Self {
            source,
            references: References::new(tx, stored)?,
            find_page: tx.prepare(
                "SELECT p.blob, p.files, p.bytes
                 FROM blobs b CROSS JOIN pages p ON p.blob = b.id WHERE b.hash = ?1",
            )?,
            refer: tx.prepare("UPDATE pages SET refs = refs + 1 WHERE blob = ?1")?,
            insert_page: tx.prepare(
                "INSERT INTO pages (blob, level, refs, files, bytes) VALUES (?1, ?2, 1, ?3, ?4)",
            )?,
            insert_link: tx
                .prepare("INSERT INTO page_links (page, position, child) VALUES (?1, ?2, ?3)")?,
            insert_entry: tx.prepare(
                "INSERT INTO entries (page, position, path, kind, mode, size, mtime_ns, blob, target,
                     reason, rest, listed, unstable)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
            )?,
        })
    }

    /// Counts one more reference to the tree's root, whose row the caller writes, and writes the rows
    /// of those of its pages that have none: those that nothing named so far. Gives the root's id.
    ///
    /// # Errors
    /// What the source gives for a page that is read.
    pub(super) fn refer_to_tree(&mut self, tree: &Tree) -> Result<i64> {
        if let Some((root, _)) = self.refer_to_known(tree.root)? {
            return Ok(root);
        }
        let page = root_page(self.source, tree)?;
        Ok(self.write(tree.root, tree.root_size, &page)?.0)
    }

    fn refer_to(&mut self, reference: &PageRef, level: u8) -> Result<(i64, Held)> {
        if let Some(known) = self.refer_to_known(reference.hash)? {
            return Ok(known);
        }
        let page = load(self.source, reference, level)?;
        self.write(reference.hash, reference.size, &page)
    }

    fn refer_to_known(&mut self, hash: BlobHash) -> Result<Option<(i64, Held)>> {
        let known = self.find_page.row([hash], |row| {
            let (Amount(files), Amount(bytes)) = (row.get(1)?, row.get(2)?);
            Ok((row.get(0)?, Held { files, bytes }))
        })?;
        if let Some((id, _)) = known {
            self.refer.execute([id])?;
        }
        Ok(known)
    }

    /// Writes a page's row, with one reference, and all that the page names.
    fn write(&mut self, hash: BlobHash, size: u64, page: &Page) -> Result<(i64, Held)> {
        match page {
            Page::Leaf(entries) => {
                let id = self.references.add(hash, Some(size), 1)?;
                let held = held_in(entries);
                self.write_row(id, 0, held)?;
                self.write_entries(id, entries)?;
                Ok((id, held))
            }
            Page::Node { level, pages } => {
                // The pages below come first: a link may only name a page that has a row.
                let mut held = Held::default();
                let mut children = Vec::with_capacity(pages.len());
                for reference in pages {
                    let (child, held_below) = self.refer_to(reference, level.saturating_sub(1))?;
                    held += held_below;
                    children.push(child);
                }
                let id = self.references.add(hash, Some(size), 1)?;
                self.write_row(id, *level, held)?;
                for (position, child) in (0i64..).zip(children) {
                    self.insert_link.execute(params![id, position, child])?;
                }
                Ok((id, held))
            }
        }
    }

    fn write_row(&mut self, id: i64, level: u8, held: Held) -> Result<()> {
        let params = params![id, level, Amount(held.files), Amount(held.bytes)];
        self.insert_page.execute(params)?;
        Ok(())
    }

    fn write_entries(&mut self, page: i64, entries: &[Entry]) -> Result<()> {
        let mut counted: HashMap<BlobHash, (u64, u64)> = HashMap::with_capacity(entries.len());
        for (hash, size) in entries.iter().filter_map(Entry::blob) {
            counted.entry(hash).or_insert((size, 0)).1 += 1;
        }
        for (position, entry) in (0i64..).zip(entries) {
            let blob = match entry.blob() {
                None => None,
                // The first of several entries with this content counts for all of them.
                Some((hash, _)) => Some(match counted.remove(&hash) {
                    Some((size, count)) => self.references.add(hash, Some(size), count)?,
                    None => self.references.add(hash, None, 0)?,
                }),
            };
            self.write_entry((page, position), entry, blob)?;
        }
        Ok(())
    }

    fn write_entry(&mut self, place: (i64, i64), entry: &Entry, blob: Option<i64>) -> Result<()> {
        let (page, position) = place;
        let (kind, mut of) = (kind_number(&entry.kind), OfKind::default());
        match &entry.kind {
            EntryKind::File { size, mtime_ns, unstable, .. } => {
                of.size = Some(Amount(*size));
                of.mtime_ns = Some(*mtime_ns);
                of.unstable = unstable.then_some(1);
            }
            EntryKind::Symlink { target } => of.target = Some(target),
            EntryKind::Dir { listed } => of.listed = Some(*listed == Listed::Whole),
            EntryKind::Omitted { reason, rest } => {
                of.reason = Some(reason.as_str());
                of.rest = (*rest > 0).then_some(Amount(*rest));
            }
            EntryKind::Absent => {}
        }
        let (path, mode) = (entry.path.as_bytes(), entry.mode.bits());
        self.insert_entry.execute(params![
            page,
            position,
            path,
            kind,
            mode,
            of.size,
            of.mtime_ns,
            blob,
            of.target,
            of.reason,
            of.rest,
            of.listed,
            of.unstable,
        ])?;
        Ok(())
    }
}

/// The columns that not every kind of entry has.
#[derive(Debug, Default)]
struct OfKind<'a> {
    size: Option<Amount>,
    mtime_ns: Option<i64>,
    target: Option<&'a [u8]>,
    reason: Option<&'a str>,
    rest: Option<Amount>,
    listed: Option<bool>,
    unstable: Option<i64>,
}

fn kind_number(kind: &EntryKind) -> i64 {
    match kind {
        EntryKind::File { .. } => 0,
        EntryKind::Symlink { .. } => 1,
        EntryKind::Dir { .. } => 2,
        EntryKind::Omitted { .. } => 3,
        EntryKind::Absent => 4,
    }
}

fn held_in(entries: &[Entry]) -> Held {
    let mut held = Held::default();
    for entry in entries {
        match entry.kind {
            EntryKind::File { size, .. } => held += Held { files: 1, bytes: size },
            EntryKind::Symlink { .. } => held += Held { files: 1, bytes: 0 },
            _ => {}
        }
    }
    held
}

impl WriteTx<'_> {
    /// Takes back one reference to each of `pages`, whose rows the caller has deleted, and deletes the
    /// rows of those that nothing names any more, with all that only they named.
    pub(super) fn release_pages(&self, mut pages: Vec<i64>) -> Result<()> {
        while let Some(page) = pages.pop() {
            let kept = "UPDATE pages SET refs = refs - 1 WHERE blob = ?1 AND refs > 1";
            if self.execute(kept, [page])? == 1 {
                continue;
            }
            self.release_contents(page)?;
            let links = "SELECT child FROM page_links WHERE page = ?1";
            pages.extend(self.rows(links, [page], |row| row.get::<_, i64>(0))?);
            self.execute("DELETE FROM page_links WHERE page = ?1", [page])?;
            if self.execute("DELETE FROM pages WHERE blob = ?1", [page])? == 0 {
                return Err(self.contradiction(format!("page {page} is named and has no row")));
            }
            self.release_blob(page, 1)?;
        }
        Ok(())
    }

    fn release_contents(&self, page: i64) -> Result<()> {
        let blobs: Vec<i64> =
            self.rows("SELECT blob FROM entries WHERE page = ?1 AND kind = 0", [page], |row| {
                row.get(0)
            })?;
        self.execute("DELETE FROM entries WHERE page = ?1", [page])?;
        let mut counted: HashMap<i64, i64> = HashMap::with_capacity(blobs.len());
        for blob in blobs {
            *counted.entry(blob).or_default() += 1;
        }
        for (blob, count) in counted {
            self.release_blob(blob, count)?;
        }
        Ok(())
    }
}
