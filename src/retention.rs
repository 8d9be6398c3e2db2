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

use std::collections::BTreeMap;

use crate::error::BadFile;
use crate::id::CheckpointId;

/// What a prune did, or would do.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct PruneOutcome {
    /// The checkpoints that are dropped, in order.
    pub pruned: Vec<CheckpointId>,
    /// Those that stay, each with why, in order.
    pub kept: Vec<(CheckpointId, KeepReason)>,
    /// Checkpoints whose manifests were gone although nobody had pruned them, and which are given up.
    /// Only where one session was named.
    pub missing: Vec<CheckpointId>,
}

impl PruneOutcome {
    /// How many stay for each reason.
    pub fn kept_by_reason(&self) -> BTreeMap<KeepReason, u64> {
        let mut counts = BTreeMap::new();
        for (_, reason) in &self.kept {
            *counts.entry(*reason).or_default() += 1;
        }
        counts
    }
}

/// Why a checkpoint stays. Where there is more than one reason it is the first of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum KeepReason {
    /// The rule keeps it.
    Rule,
    /// A restore had saved it, and the rule keeps it, or it is younger than a day.
    Safety,
    /// It is pinned.
    Pinned,
    /// It is the newest of its workspace in its session.
    Newest,
    /// A running operation or an interrupted restore relies on it.
    Needed,
    /// A run whose work tree is there began with it.
    Run,
    /// An undo or redo had saved it: it says that what stays was taken back.
    Undo,
    /// It was made, or has come to be one too many, since it was decided what goes.
    Newer,
}

impl KeepReason {
    /// The word for scripts.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rule => "rule",
            Self::Safety => "safety",
            Self::Pinned => "pinned",
            Self::Newest => "newest",
            Self::Needed => "needed",
            Self::Run => "run",
            Self::Undo => "undo",
            Self::Newer => "newer",
        }
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
