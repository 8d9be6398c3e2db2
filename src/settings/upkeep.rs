//! What a store keeps, and when it cleans up.

use std::time::Duration;

use crate::limits;

/// Which checkpoints of a session stay: each rule keeps some, and what one keeps stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PruneRule {
    /// The newest so many of a session, safety checkpoints counted apart and as many of them.
    pub keep: u32,
    /// Those younger than this that are no safety checkpoints; no such rule where it is zero.
    pub keep_within: Duration,
    /// The newest of each of so many hours in which there is one, by the clock of this machine.
    pub keep_hourly: u32,
    /// The same of days.
    pub keep_daily: u32,
    /// The same of weeks, which begin on Monday.
    pub keep_weekly: u32,
    /// The oldest that is no safety checkpoint.
    pub keep_first: bool,
}

impl Default for PruneRule {
    fn default() -> Self {
        Self {
            keep: limits::KEEP_DEFAULT,
            keep_within: Duration::ZERO,
            keep_hourly: 0,
            keep_daily: 0,
            keep_weekly: 0,
            keep_first: false,
        }
    }
}

/// What a store does for itself after a capture, and in a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Upkeep {
    /// Which checkpoints stay where nobody says otherwise.
    pub rule: PruneRule,
    /// Whether each capture drops the others of its session. A collection does in any case.
    pub prunes: bool,
    /// How long after the last sweep a capture makes another; `None`: never.
    pub sweep_every: Option<Duration>,
    /// How many bytes of content the store may hold, as stored; beyond it the oldest checkpoints go.
    pub budget_bytes: Option<u64>,
    /// How many bytes of the store's file system are to be free; below it the oldest checkpoints go, if
    /// that helps.
    pub floor_bytes: Option<u64>,
}

impl Default for Upkeep {
    fn default() -> Self {
        Self {
            rule: PruneRule::default(),
            prunes: true,
            sweep_every: Some(limits::SWEEP_EVERY_DEFAULT),
            budget_bytes: None,
            floor_bytes: None,
        }
    }
}
