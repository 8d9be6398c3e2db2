//! Reading the entries of a checkpoint out of its pages, and comparing two checkpoints.

use std::cmp::Ordering;
use std::collections::HashSet;

use crate::error::{Error, Result};
use crate::hash::BlobHash;
use crate::limits;
use crate::manifest::entry::{Entry, EntryKind};
use crate::manifest::page::{Page, PageRef, Tree, decode};
use crate::path::RelPath;

/// Gives the text of a page. The implementer checks hash and size; a page is never served damaged.
pub trait PageSource {
    /// The text of the page `hash`, `size` bytes long.
    ///
    /// # Errors
    /// [`Error::BlobMissing`], [`Error::BlobDamaged`] or [`Error::Io`].
    fn page(&self, hash: BlobHash, size: u64) -> Result<Vec<u8>>;
}

/// Reads and decodes one page and compares it with the reference that led to it.
pub(crate) fn load(source: &dyn PageSource, reference: &PageRef, level: u8) -> Result<Page> {
    let invalid = |reason: String| Error::PageInvalid { hash: reference.hash, reason };
    if reference.size > limits::PAGE_BYTES_MAX {
        return Err(invalid(format!("it is {} bytes long", reference.size)));
    }
    let text = source.page(reference.hash, reference.size)?;
    let page = decode(&text, level).map_err(invalid)?;
    let (first, entries) = match &page {
        Page::Leaf(entries) => (entries.first().map(|entry| &entry.path), entries.len() as u64),
        Page::Node { pages, .. } => {
            let sum = pages.iter().try_fold(0u64, |sum, page| sum.checked_add(page.entries));
            let sum = sum.ok_or_else(|| invalid("its counts overflow".to_owned()))?;
            (pages.first().map(|page| &page.first), sum)
        }
    };
    if first.is_some_and(|first| *first != reference.first) {
        return Err(invalid(format!("it does not begin with `{}`", reference.first)));
    }
    if entries != reference.entries {
        return Err(invalid(format!(
            "it has {entries} entries where {} are expected",
            reference.entries
        )));
    }
    Ok(page)
}

/// The reference to a tree's root. The first path is that of the list; for the root alone it is not
/// known from outside, so it is taken from the page itself.
pub(crate) fn root_page(source: &dyn PageSource, tree: &Tree) -> Result<Page> {
    let invalid = |reason: String| Error::PageInvalid { hash: tree.root, reason };
    if tree.root_size > limits::PAGE_BYTES_MAX {
        return Err(invalid(format!("it is {} bytes long", tree.root_size)));
    }
    let text = source.page(tree.root, tree.root_size)?;
    let page = decode(&text, tree.levels.saturating_sub(1)).map_err(invalid)?;
    let entries = match &page {
        Page::Leaf(entries) => entries.len() as u64,
        Page::Node { pages, .. } => {
            pages.iter().fold(0u64, |sum, page| sum.saturating_add(page.entries))
        }
    };
    if entries != tree.entries {
        return Err(invalid(format!(
            "it has {entries} entries where {} are expected",
            tree.entries
        )));
    }
    Ok(page)
}

/// All entries of a tree, in order of path.
///
/// # Errors
/// [`Error::PageInvalid`] where a page, or the order of two, breaks the format; what the source
/// gives.
///
/// Cost: every page is read once.
pub fn read_entries(source: &dyn PageSource, tree: &Tree) -> Result<Vec<Entry>> {
    let mut entries = Vec::with_capacity(usize::try_from(tree.entries.min(1 << 20)).unwrap_or(0));
    collect(source, root_page(source, tree)?, tree.root, &mut entries)?;
    Ok(entries)
}

fn collect(
    source: &dyn PageSource,
    page: Page,
    hash: BlobHash,
    into: &mut Vec<Entry>,
) -> Result<()> {
    match page {
        Page::Leaf(mut entries) => {
            // One page is sorted by its own check; two beside each other are compared here.
            if let (Some(last), Some(first)) = (into.last(), entries.first())
                && last.path >= first.path
            {
                let reason = format!("`{}` is out of order or there twice", first.path);
                return Err(Error::PageInvalid { hash, reason });
            }
            into.append(&mut entries);
        }
        Page::Node { level, pages } => {
            for reference in pages {
                let below = load(source, &reference, level.saturating_sub(1))?;
                collect(source, below, reference.hash, into)?;
            }
        }
    }
    Ok(())
}

/// The name and length of every page of a tree, the root included.
///
/// # Errors
/// As [`read_entries`]. Cost: the pages above the entries are read.
pub fn page_refs(source: &dyn PageSource, tree: &Tree) -> Result<Vec<(BlobHash, u64)>> {
    Ok(Above::read(source, tree)?.pages().collect())
}

/// What the pages above the entries of a tree say.
#[derive(Debug, Default)]
pub(crate) struct Above {
    /// The references to the pages of entries, in order; none where the root is that page.
    pub(crate) leaves: Vec<PageRef>,
    /// The name and length of every other page, the root first.
    pub(crate) others: Vec<(BlobHash, u64)>,
}

impl Above {
    /// # Errors
    /// As [`read_entries`]. Cost: the pages above the entries are read.
    pub(crate) fn read(source: &dyn PageSource, tree: &Tree) -> Result<Self> {
        let mut above = Self { leaves: Vec::new(), others: vec![(tree.root, tree.root_size)] };
        if tree.levels > 1 {
            above.collect(source, root_page(source, tree)?)?;
        }
        Ok(above)
    }

    /// The name and length of every page of the tree.
    pub(crate) fn pages(&self) -> impl Iterator<Item = (BlobHash, u64)> {
        let leaves = self.leaves.iter().map(|leaf| (leaf.hash, leaf.size));
        self.others.iter().copied().chain(leaves)
    }

    fn collect(&mut self, source: &dyn PageSource, page: Page) -> Result<()> {
        let Page::Node { level, mut pages } = page else { return Ok(()) };
        if level == 1 {
            self.leaves.append(&mut pages);
            return Ok(());
        }
        for reference in pages {
            self.others.push((reference.hash, reference.size));
            self.collect(source, load(source, &reference, level - 1)?)?;
        }
        Ok(())
    }
}

/// Checks what only the whole list of a checkpoint can show: it begins with the root directory, and
/// every other path lies in a directory that is an entry too (so no file lies under a file).
///
/// # Errors
/// The path at fault, as a sentence.
pub fn validate(entries: &[Entry]) -> Result<(), String> {
    match entries.first() {
        Some(Entry { path, kind: EntryKind::Dir { .. }, .. }) if path.is_root() => {}
        _ => return Err("the root directory is missing".to_owned()),
    }
    let directories: HashSet<&[u8]> = entries
        .iter()
        .filter(|entry| matches!(entry.kind, EntryKind::Dir { .. }))
        .map(|entry| entry.path.as_bytes())
        .collect();
    for entry in &entries[1..] {
        let parent = entry.path.parent().unwrap_or_default();
        if !directories.contains(parent.as_bytes()) {
            return Err(format!("`{}` lies in `{parent}`, which is not a directory", entry.path));
        }
        if entry.kind == EntryKind::Absent {
            return Err(format!("`{}` is absent", entry.path));
        }
    }
    Ok(())
}

/// One path that differs between two checkpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Where.
    pub path: RelPath,
    /// As it was in the first; `None` where it was not there.
    pub before: Option<Entry>,
    /// As it is in the second; `None` where it is not there.
    pub after: Option<Entry>,
}

/// Compares two sorted lists of entries by kind, mode and content.
pub fn differences(before: &[Entry], after: &[Entry]) -> Vec<Difference> {
    let mut found = Vec::new();
    let (mut before, mut after) = (before.iter().peekable(), after.iter().peekable());
    loop {
        let order = match (before.peek(), after.peek()) {
            (None, None) => return found,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(old), Some(new)) => old.path.cmp(&new.path),
        };
        let old = if order == Ordering::Greater { None } else { before.next() };
        let new = if order == Ordering::Less { None } else { after.next() };
        let same = matches!((old, new), (Some(old), Some(new)) if old.is_same_state(new));
        if !same && let Some(path) = old.or(new).map(|entry| entry.path.clone()) {
            found.push(Difference { path, before: old.cloned(), after: new.cloned() });
        }
    }
}
