//! Retention: dropping old checkpoints, and removing content that nothing names.
//!
//! Prune drops checkpoints, sweep removes blobs; they never mix. What must be kept is computed from
//! rows and files, never from ages of files: only the grace asks a clock, and it is the second fence,
//! not the first.

mod evict;
mod prune;
mod repack;
mod sweep;

pub use evict::{EvictOutcome, Tightness};
pub(crate) use evict::{mark_evicted, plan_eviction};
pub(crate) use prune::{
    Going, drop_missing, drop_one, finish_pruning, mark_behind, missing, plan_prune, prune, unlink,
};
pub(crate) use repack::Effort;
pub(crate) use sweep::{plan_sweep, refuse_if_blind, remove_leftovers, sweep, unneeded};

use crate::error::BadFile;
use crate::id::CheckpointId;

/// What a prune did, or would do.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct PruneOutcome {
    /// The checkpoints that are dropped, in order.
    pub pruned: Vec<CheckpointId>,
    /// How many live ones stay.
    pub kept: u64,
    /// Checkpoints whose manifests were gone although nobody had pruned them, and which are given up.
    /// Only where one session was named.
    pub missing: Vec<CheckpointId>,
}

impl PruneOutcome {
    /// Counts each missing checkpoint as such, and not as pruned or kept by the rule.
    pub(crate) fn leave_out_missing(&mut self) {
        let missing = &self.missing;
        let before = self.pruned.len();
        self.pruned.retain(|id| !missing.contains(id));
        let were_pruned = before - self.pruned.len();
        self.kept = self.kept.saturating_sub((missing.len() - were_pruned) as u64);
    }
}

/// What a sweep did, or would do.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct SweepOutcome {
    /// Blobs removed.
    pub blobs_removed: u64,
    /// Their stored length in bytes.
    pub bytes_removed: u64,
    /// Blobs that nothing names and that are too young, or protected by a running operation.
    pub blobs_waiting: u64,
    /// Blobs that were moved out of files of their own into packs. They are where they were for everybody
    /// who reads them.
    pub blobs_packed: u64,
    /// Checkpoints whose rows were missing and were added.
    pub adopted: u64,
    /// Directories of temporary files left by dead processes that were removed.
    pub leftovers_removed: u64,
    /// Blobs that could not be removed, and why.
    pub failed: Vec<BadFile>,
}

/// What a collection did, or would do.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
#[must_use]
pub struct GcOutcome {
    /// Checkpoints dropped.
    pub prune: PruneOutcome,
    /// Checkpoints dropped beyond that, because there was too much.
    pub evict: EvictOutcome,
    /// Content removed.
    pub sweep: SweepOutcome,
    /// By how many bytes the index got smaller; not known before.
    pub index_bytes_freed: u64,
}
