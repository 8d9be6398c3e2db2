//! Capturing given paths: what a restore of these paths is about to change.
//!
//! The checkpoint is that of its base, with the present state of the paths in place of what the base has
//! there. It says nothing about other paths: its coverage is [`crate::manifest::Coverage::Paths`].

use std::collections::HashSet;

use crate::access::{Access, OpenWorkspace};
use crate::blobs::Staging;
use crate::capture::hold::{Base, Held, StoredTrees, store_pages};
use crate::capture::{Observation, lost_blobs, remember, walk_options};
use crate::disk;
use crate::error::Result;
use crate::hash::BlobHash;
use crate::manifest::{self, Above, Edits, Entry, EntryKind, read_part, splice};
use crate::monitor::Monitor;
use crate::path::RelPath;
use crate::registration::Operation;
use crate::settings::ScopeSettings;
use crate::walk::{self, WalkedPart};

/// What the base has at given paths, and what of that is not there any more.
#[derive(Debug)]
pub(crate) struct Part {
    /// The paths.
    paths: Vec<RelPath>,
    /// Directories above them that are not there.
    missing: Vec<RelPath>,
    /// The base's entries at, below and above all these.
    known: Vec<Entry>,
    /// The base's pages.
    above: Above,
}

/// Looks at `paths` alone. `None` where the whole workspace has to be captured instead: see
/// [`walk::walk_part`]; and where anything of the store is known to be lost, which that heals.
///
/// Cost: as [`walk::walk_part`], and of the base the pages that hold the paths, and those above.
pub(crate) fn observe_part(
    access: &Access,
    open: &OpenWorkspace,
    base: &Base,
    paths: &[RelPath],
    settings: &ScopeSettings,
    monitor: &dyn Monitor,
) -> Result<Option<(Observation, Part)>> {
    if paths.iter().any(RelPath::is_root) || !lost_blobs(access)?.is_empty() {
        return Ok(None);
    }
    let start_ns = disk::coarse_now_ns();
    let options = walk_options(access, open)?;
    let walked = walk::walk_part(&open.dir, &open.path, settings, &options, paths, monitor)?;
    let Some(WalkedPart { walked, missing }) = walked else { return Ok(None) };
    let concerned: Vec<RelPath> = paths.iter().chain(&missing).cloned().collect();
    let read = read_part(&access.blobs, &base.tree, &concerned)
        .and_then(|known| Ok((known, Above::read(&access.blobs, &base.tree)?)));
    let (known, above) = match read {
        Ok(read) => read,
        Err(error) if error.is_lost_content() => {
            return remember(access, &error).map(|()| None);
        }
        Err(error) => return Err(error),
    };
    let part = Part { paths: paths.to_vec(), missing, known, above };
    Ok(Some((Observation { walked, start_ns }, part)))
}

impl Part {
    /// What the tree of the base has to become.
    fn edits(&self, held: &Held) -> Edits {
        let mut edits = Edits::new();
        let is_looked_at = |path: &RelPath| {
            self.paths.iter().chain(&self.missing).any(|top| path.is_at_or_below(top))
        };
        for known in self.known.iter().filter(|known| is_looked_at(&known.path)) {
            edits.insert(known.path.clone(), None);
        }
        for now in held.entries.iter().map(|cached| &cached.entry) {
            let known = self.known.binary_search_by(|known| known.path.cmp(&now.path)).ok();
            let known = known.map(|index| &self.known[index]);
            match known {
                // With the time of the capture that held this content first, so that pages are shared.
                Some(known) if known.is_same_state(now) => {
                    edits.remove(&now.path);
                }
                // Of a directory above the paths nothing was listed.
                Some(Entry { kind: kind @ EntryKind::Dir { .. }, .. })
                    if !is_looked_at(&now.path) =>
                {
                    let now = Entry { kind: kind.clone(), ..now.clone() };
                    edits.insert(now.path.clone(), Some(now));
                }
                _ => drop(edits.insert(now.path.clone(), Some(now.clone()))),
            }
        }
        edits
    }
}

/// Makes the content of `held` and the pages that differ from the base's durable; `after` is stored as
/// a tree of its own. As [`super::store_tree`].
///
/// # Errors
/// A page of the base that is lost: it is remembered, and the next attempt captures everything.
pub(crate) fn store_part(
    access: &Access,
    operation: &Operation<'_>,
    base: &Base,
    part: &Part,
    held: &mut Held,
    staging: Staging<'_>,
    after: &[Entry],
) -> Result<StoredTrees> {
    let known: HashSet<BlobHash> = part.above.pages().map(|(hash, _)| hash).collect();
    let spliced = splice(&access.blobs, &base.tree, &part.above.leaves, &part.edits(held))
        .inspect_err(|error| drop(remember(access, error)))?;
    let after = manifest::build(after);
    let built = spliced.pages.into_iter().chain(after.pages);
    let built = built.filter(|page| !known.contains(&page.reference.hash)).collect();
    let lost = lost_blobs(access)?;
    let published = store_pages(access, operation, staging, built, &lost, false)?;
    held.counts.bytes_stored = published.stored_bytes;
    let stored_sizes = published.sizes.into_iter().collect();
    let found_loss = !lost.is_subset(&held.lost);
    Ok(StoredTrees { tree: spliced.tree, extra: Some(after.tree), found_loss, stored_sizes })
}
