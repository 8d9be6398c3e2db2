//! What restores have left between two checkpoints, so that it is not taken for the doing of the second.
//!
//! A restore makes a checkpoint of what it is about to change, and none of what it leaves: that is a list in
//! the first. The next checkpoint differs from the first by the restore, and by what was done since.
//!
//! The list is written before the restore: of a path that it had to leave, because somebody wrote there, and
//! that was changed again since, it says what was meant to be there.

use std::collections::BTreeMap;

use crate::manifest::{Difference, Entry, EntryKind};
use crate::path::RelPath;

/// The paths that restores have touched since a checkpoint, each as the newest of them left it.
#[derive(Debug, Default)]
pub(super) struct LeftByRestores(BTreeMap<RelPath, Option<Entry>>);

impl LeftByRestores {
    /// Adds what a restore before all of these has left.
    pub(super) fn add_older(&mut self, after: Vec<Entry>) {
        for entry in after {
            let (path, left) = left(entry);
            self.0.entry(path).or_insert(left);
        }
    }

    /// Adds what a restore after all of these has left.
    pub(super) fn add_newer(&mut self, after: Vec<Entry>) {
        self.0.extend(after.into_iter().map(left));
    }

    /// Of how two checkpoints differ, leaves what was done since the restores between them. A path that is
    /// as in the first was not touched by what a restore says of it, or it was put back: either way nothing
    /// is said of it.
    pub(super) fn correct(&self, differences: &mut Vec<Difference>) {
        for difference in &mut *differences {
            if let Some(left) = self.0.get(&difference.path) {
                difference.before.clone_from(left);
            }
        }
        differences.retain(|it| !Entry::are_same_state(it.before.as_ref(), it.after.as_ref()));
    }
}

fn left(entry: Entry) -> (RelPath, Option<Entry>) {
    let path = entry.path.clone();
    (path, Some(entry).filter(|entry| entry.kind != EntryKind::Absent))
}
