//! What of a known tree is not at hand where only a part of it was read. Pure.

use std::collections::BTreeMap;

use crate::manifest::{EntryKind, OmitReason};
use crate::path::RelPath;
use crate::walk::CachedEntry;

/// What a part leaves out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Remainder {
    /// The directories of the part that have more names than it has, or whose directories have; in order.
    /// As long as these are what they were, so is what is left out.
    pub(crate) closed: Vec<RelPath>,
    /// How much is left out.
    pub(crate) census: Census,
}

impl Remainder {
    /// Whether the names of a directory of the part are not all at hand.
    pub(super) fn is_closed(&self, directory: &RelPath) -> bool {
        self.closed.binary_search(directory).is_ok()
    }
}

/// How many there are of what a checkpoint counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Census {
    pub(crate) directories: u64,
    pub(crate) files: u64,
    /// Those of the files that were not read stably.
    pub(crate) unstable: u64,
    pub(crate) symlinks: u64,
    /// Names without content, with those for which one stands.
    pub(crate) omitted: BTreeMap<OmitReason, u64>,
}

impl Census {
    /// Counts entries.
    pub(crate) fn of<'a>(entries: impl IntoIterator<Item = &'a CachedEntry>) -> Self {
        let mut census = Self::default();
        for cached in entries {
            match &cached.entry.kind {
                EntryKind::File { unstable, .. } => {
                    census.files += 1;
                    census.unstable += u64::from(*unstable);
                }
                EntryKind::Symlink { .. } => census.symlinks += 1,
                EntryKind::Omitted { reason, rest } => {
                    let count = census.omitted.entry(*reason).or_default();
                    *count = count.saturating_add(1).saturating_add(*rest);
                }
                EntryKind::Dir { .. } => census.directories += 1,
                EntryKind::Absent => {}
            }
        }
        census
    }

    /// Adds what was counted elsewhere.
    pub(crate) fn add(&mut self, other: &Self) {
        self.directories = self.directories.saturating_add(other.directories);
        self.files = self.files.saturating_add(other.files);
        self.unstable = self.unstable.saturating_add(other.unstable);
        self.symlinks = self.symlinks.saturating_add(other.symlinks);
        for (reason, more) in &other.omitted {
            let count = self.omitted.entry(*reason).or_default();
            *count = count.saturating_add(*more);
        }
    }

    /// Whether so many entries can come to this.
    pub(crate) fn is_of(&self, entries: usize) -> bool {
        let kinds = [self.directories, self.files, self.symlinks, self.omitted.len() as u64];
        let least = kinds.into_iter().fold(0, u64::saturating_add);
        self.unstable <= self.files && least <= entries as u64
    }

    /// Whether all of it is held whole, but for what rules and limits leave out.
    pub(crate) fn is_complete(&self) -> bool {
        self.unstable == 0 && !self.omitted.keys().any(|reason| reason.is_failure())
    }
}
