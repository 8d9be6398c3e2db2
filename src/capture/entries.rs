//! The entries of a checkpoint that shares pages with the base.

use std::collections::HashMap;

use rayon::prelude::*;

use crate::access::Access;
use crate::capture::hold::Base;
use crate::error::{Error, Result};
use crate::hash::BlobHash;
use crate::manifest::{self, Above, Entry, Page, PageRef, Tree, read_entries};
use crate::threads;
use crate::walk::CachedEntry;

/// All entries of a tree; those of pages that the base has too are taken from its stat cache.
///
/// # Errors
/// As [`read_entries`].
///
/// Cost: the pages that the base does not have, and those above level 0, on all threads.
pub(crate) fn entries_of(access: &Access, tree: &Tree, base: Option<&Base>) -> Result<Vec<Entry>> {
    let above = Above::read(&access.blobs, tree)?;
    if above.leaves.is_empty() {
        return read_entries(&access.blobs, tree);
    }
    let known = base.and_then(|base| known_pages(access, base)).unwrap_or_default();
    let read = |leaf: &PageRef| -> Result<Vec<Entry>> {
        if let Some(known) = known.get(&leaf.hash) {
            return Ok(known.iter().map(|cached| cached.entry.clone()).collect());
        }
        match manifest::load(&access.blobs, leaf, 0)? {
            Page::Leaf(entries) => Ok(entries),
            Page::Node { .. } => Ok(Vec::new()),
        }
    };
    let pages: Vec<Vec<Entry>> = threads::pool("pages")?
        .install(|| above.leaves.par_iter().map(read).collect::<Result<_>>())?;
    let entries: Vec<Entry> = pages.into_iter().flatten().collect();
    match entries.windows(2).find(|pair| pair[0].path >= pair[1].path) {
        None => Ok(entries),
        Some(pair) => {
            let reason = format!("`{}` is out of order or there twice", pair[1].path);
            Err(Error::PageInvalid { hash: tree.root, reason })
        }
    }
}

/// What the stat cache has of each page of the base's entries; nothing where the two do not go together.
fn known_pages<'a>(
    access: &Access,
    base: &'a Base,
) -> Option<HashMap<BlobHash, &'a [CachedEntry]>> {
    let cached = &base.cache.as_ref()?.tree.entries;
    // What is wrong with the base's pages concerns whoever needs them.
    let leaves = Above::read(&access.blobs, &base.tree).ok()?.leaves;
    let mut rest = &cached[..];
    let mut pages = HashMap::with_capacity(leaves.len());
    for leaf in leaves {
        let (page, behind) = rest.split_at_checked(usize::try_from(leaf.entries).ok()?)?;
        if page.first()?.entry.path != leaf.first {
            return None;
        }
        pages.insert(leaf.hash, page);
        rest = behind;
    }
    rest.is_empty().then_some(pages)
}
