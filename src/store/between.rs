//! The states that a workspace went through from one checkpoint to another.

use crate::error::{Error, InvalidRange, Result};
use crate::id::CheckpointId;
use crate::manifest::{Manifest, tree_differences};
use crate::monitor::Monitor;
use crate::sessions::Found;
use crate::store::Store;
use crate::store::history::{CheckpointSummary, ListItem, summary};

/// Checkpoints in a row, each with another content than the one before it.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct StatesBetween {
    /// The oldest first: the two that were asked for, or what held the same before them, and what lies
    /// between them.
    pub states: Vec<CheckpointSummary>,
    /// Those between them that cannot be read.
    pub unreadable: Vec<ListItem>,
}

impl Store {
    /// The states of a workspace from checkpoint `first` to checkpoint `last` of one session. Safety
    /// checkpoints between them are left out: they hold what a restore took away in the middle of a turn.
    /// Of checkpoints that follow one another and hold the same, the first stands for all.
    ///
    /// # Errors
    /// As [`Store::show`]; [`Error::InvalidRange`] where they are not of one session and workspace, `first`
    /// does not come before `last`, or both hold the same and so does everything between them.
    ///
    /// Cost: one small file each, and the pages that only one of two neighbours has.
    pub fn states_between(
        &self,
        first: &CheckpointId,
        last: &CheckpointId,
        monitor: &dyn Monitor,
    ) -> Result<StatesBetween> {
        let reading = self.reading(&first.session, monitor)?;
        let (old, _) = reading.require(first)?;
        let (new, _) = reading.require(last)?;
        let refused = |reason| {
            let (first, last) = (old.id.clone(), new.id.clone());
            Err(Error::InvalidRange(InvalidRange { first, last, reason }))
        };
        if old.id.session != new.id.session {
            return refused("they are of two sessions");
        }
        if old.workspace != new.workspace {
            return refused("they are of two workspaces");
        }
        if old.id.seq >= new.id.seq {
            return refused("the first does not come before the second");
        }
        let mut found = StatesBetween::default();
        let mut manifests: Vec<Manifest> = Vec::new();
        let is_end = |id: &CheckpointId| *id == old.id || *id == new.id;
        for item in reading.items(reading.ids_of(&old.id.session)?)? {
            let id = item.id();
            if !(old.id.seq..=new.id.seq).contains(&id.seq) {
                continue;
            }
            match reading.sessions.read(id) {
                Found::Valid { manifest, .. } if manifest.workspace == old.workspace => {
                    if is_end(id) || !manifest.trigger.is_safety() {
                        manifests.push(*manifest);
                    }
                }
                Found::Unreadable { .. } => found.unreadable.push(item),
                Found::Valid { .. } | Found::Absent | Found::Legacy => {}
            }
        }
        manifests.sort_by_key(|manifest| manifest.id.seq);
        // Where that cannot be read, it is something else than what can.
        manifests.dedup_by(|next, one| {
            let differences = tree_differences(&reading.blobs, &one.tree, &next.tree);
            differences.is_ok_and(|differences| differences.is_empty())
        });
        if manifests.len() < 2 {
            return refused("nothing differs between them");
        }
        for manifest in manifests {
            let pin = reading.sessions.read_pin(&manifest.id).unwrap_or_default();
            found.states.push(summary(manifest, pin));
        }
        Ok(found)
    }
}
