//! Which checkpoints go where the store is larger, or the disk fuller, than the user wants.
//!
//! The oldest go first, and no more than it takes. How much their going frees is known exactly, by the
//! rows of references: content that another checkpoint names as well is not counted. It is on the disk
//! until a sweep has removed it, a minute later at the earliest, so what waits for that is counted as
//! free; else the next capture would drop more, for the same room.
//!
//! From there on it is a prune: mark, durably; account; unlink; delete the rows.

use std::collections::{HashMap, HashSet};

use crate::access::Access;
use crate::checkpoint::{CheckpointRow, CheckpointState, Place, in_order_of_making};
use crate::clock::Timestamp;
use crate::disk;
use crate::error::Result;
use crate::hash::Digest;
use crate::id::CheckpointId;
use crate::index::{ContentBytes, ReadTx};
use crate::journal;
use crate::manifest::Trigger;
use crate::retention::prune::{Always, is_pinned, leave_links};
use crate::runs::Runs;

/// Why checkpoints are evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tightness {
    /// The store holds more content than its budget allows.
    Budget,
    /// The file system has less free room than is to be left.
    FreeSpace,
}

impl Tightness {
    /// As a word for scripts, which never changes.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Budget => "budget",
            Self::FreeSpace => "free-space",
        }
    }
}

/// What an eviction did, or would do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EvictOutcome {
    /// The checkpoints that go, the oldest first.
    pub evicted: Vec<CheckpointId>,
    /// What is too tight; `None` where nothing is.
    pub because: Option<Tightness>,
    /// How many bytes of content, as stored, lose their last name with them.
    pub released_bytes: u64,
    /// How much is still too much: all that is left is pinned, or needed, or the newest.
    pub short_bytes: u64,
    /// How many bytes of content, as stored, are named then.
    pub content_bytes: u64,
}

/// What an eviction would do, and what that follows from.
#[derive(Debug, Default)]
pub(crate) struct EvictionPlan {
    /// What it would do.
    pub(crate) outcome: EvictOutcome,
    /// The checkpoints that were counted.
    counted: HashSet<(CheckpointId, Digest)>,
    content: ContentBytes,
    /// As for [`how_many`].
    steps: Vec<u64>,
    going: u64,
}

impl EvictionPlan {
    /// Whether fewer would do by now: a checkpoint that was counted is gone or another one, or more of the
    /// disk is free.
    fn is_too_much(&self, access: &Access, tx: &ReadTx<'_>) -> Result<bool> {
        let live: HashSet<_> = counted(&tx.all_checkpoints()?);
        if !self.counted.is_subset(&live) {
            return Ok(true);
        }
        let (budget, floor) = (access.upkeep.budget_bytes, access.upkeep.floor_bytes);
        let available = disk::available_bytes(&access.tmp)?;
        let excess = Excess::of(budget, floor, self.content, available);
        Ok(how_many(&self.steps, self.going, excess) < self.outcome.evicted.len())
    }
}

/// Those that readers see, each with what its manifest says.
fn counted(rows: &[CheckpointRow]) -> HashSet<(CheckpointId, Digest)> {
    let live = rows.iter().filter(|row| row.state == CheckpointState::Live);
    live.map(|row| (row.id.clone(), row.digest)).collect()
}

/// How many bytes must lose their names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Excess {
    /// So that the content fits the budget.
    budget: u64,
    /// So that as much of the disk is free as is to be left.
    free_space: u64,
}

impl Excess {
    /// Both together.
    fn largest(self) -> u64 {
        self.budget.max(self.free_space)
    }

    /// By what the user wants, what there is, and what is free.
    fn of(budget: Option<u64>, floor: Option<u64>, content: ContentBytes, available: u64) -> Self {
        let free_soon = available.saturating_add(content.unnamed);
        Self {
            budget: budget.map_or(0, |budget| content.named.saturating_sub(budget)),
            free_space: floor.map_or(0, |floor| floor.saturating_sub(free_soon)),
        }
    }
}

/// Those that may go, in the order in which they go. Pure.
///
/// Never those that [`Always`] keeps. What says of another that it was taken back goes after that one.
fn may_go(
    rows: Vec<CheckpointRow>,
    protected: &HashSet<CheckpointId>,
    taken_back: &HashMap<CheckpointId, CheckpointId>,
    now: Timestamp,
) -> Vec<CheckpointId> {
    let mut live: Vec<CheckpointRow> =
        rows.into_iter().filter(|row| row.state == CheckpointState::Live).collect();
    live.sort_by_key(|row| std::cmp::Reverse(row.id.seq));
    let mut always = Always::new(protected, now);
    live.retain(|row| always.keeps(row).is_none());
    let with_earlier = |row: CheckpointRow| {
        let earlier = taken_back.get(&row.id).cloned();
        (row, earlier)
    };
    let ordered =
        in_order_of_making(live.into_iter().map(with_earlier).collect(), |(row, earlier)| Place {
            id: &row.id,
            parent: earlier.as_ref(),
            created_at: Some(row.created_at),
        });
    ordered.into_iter().map(|(row, _)| row.id).collect()
}

/// How many of those that may go, in order, go. `steps` says how many bytes are released once the first
/// has gone, the first two, and so on, up to where nothing is too much any more or nobody is left;
/// `going` is released without any. Pure.
fn how_many(steps: &[u64], going: u64, excess: Excess) -> usize {
    let in_all = steps.last().copied().unwrap_or(going);
    // Where even all of them do not make enough of the disk free, something else fills it: the history
    // would go for nothing. A budget is about the store alone, so that each one helps.
    let floor_helps = in_all >= excess.free_space;
    let goal = if floor_helps { excess.largest() } else { excess.budget };
    if going >= goal {
        return 0;
    }
    steps.iter().position(|&released| released >= goal).map_or(steps.len(), |last| last + 1)
}

/// What must go beside `gone`, and beside what is marked already.
///
/// # Errors
/// A journal that cannot be understood stops it, as it stops a prune.
///
/// Cost: the rows of all blobs; where something is too much, the entries of the pages that lose their last
/// name.
pub(crate) fn plan_eviction(access: &Access, gone: &[CheckpointId]) -> Result<EvictionPlan> {
    access.index.read("plan an eviction", |tx| plan_in(access, &tx, gone))
}

fn plan_in(access: &Access, tx: &ReadTx<'_>, gone: &[CheckpointId]) -> Result<EvictionPlan> {
    let (budget, floor) = (access.upkeep.budget_bytes, access.upkeep.floor_bytes);
    if budget.is_none() && floor.is_none() {
        return Ok(EvictionPlan::default());
    }
    let content = tx.content_bytes()?;
    let excess = Excess::of(budget, floor, content, disk::available_bytes(&access.tmp)?);
    let mut gone: HashSet<CheckpointId> = gone.iter().cloned().collect();
    gone.extend(tx.pruning_checkpoints()?);
    let (mut releasing, mut going) = (tx.releasing()?, 0);
    for id in &gone {
        going = releasing.release(id)?;
    }
    let content_bytes = content.named.saturating_sub(going);
    if going >= excess.largest() {
        let outcome = EvictOutcome { content_bytes, ..EvictOutcome::default() };
        return Ok(EvictionPlan { outcome, ..EvictionPlan::default() });
    }
    let rows = tx.all_checkpoints()?;
    let counted = counted(&rows);
    let of_command = rows.iter().filter(|row| row.trigger == Trigger::EXEC);
    let of_command: HashSet<CheckpointId> = of_command.map(|row| row.id.clone()).collect();
    let (mut candidates, taken_back) = candidates(access, tx, rows, gone, |_| true)?;
    if candidates.iter().any(|id| of_command.contains(id)) {
        let begun = Runs::new(&access.layout).beginnings()?.unwrap_or(of_command);
        candidates.retain(|id| !begun.contains(id));
    }
    leave_links(&mut candidates, &taken_back);
    let mut steps: Vec<u64> = Vec::new();
    for id in &candidates {
        if steps.last().is_some_and(|released| *released >= excess.largest()) {
            break;
        }
        steps.push(releasing.release(id)?);
    }
    let count = how_many(&steps, going, excess);
    candidates.truncate(count);
    let released = count.checked_sub(1).map_or(going, |last| steps[last]);
    let by_budget = excess.budget >= excess.free_space;
    let outcome = EvictOutcome {
        evicted: candidates,
        because: Some(if by_budget { Tightness::Budget } else { Tightness::FreeSpace }),
        released_bytes: released - going,
        short_bytes: excess.largest().saturating_sub(released),
        content_bytes: content.named.saturating_sub(released),
    };
    Ok(EvictionPlan { outcome, counted, content, steps, going })
}

/// Those that may go beside `gone`, and that are asked about, in the order in which they go; and what was taken
/// back, by what says so.
///
/// Cost: a small file for each of them.
fn candidates(
    access: &Access,
    tx: &ReadTx<'_>,
    rows: Vec<CheckpointRow>,
    gone: HashSet<CheckpointId>,
    is_asked: impl Fn(&CheckpointId) -> bool,
) -> Result<(Vec<CheckpointId>, HashMap<CheckpointId, CheckpointId>)> {
    let mut protected = tx.protected_checkpoints()?;
    protected.extend(journal::needed_by_journals(&access.layout)?);
    let mut taken_back = tx.taken_back()?;
    taken_back.retain(|_, earlier| !gone.contains(earlier));
    protected.extend(gone);
    let mut candidates = may_go(rows, &protected, &taken_back, Timestamp::now());
    candidates.retain(|id| is_asked(id) && !is_pinned(access, id));
    Ok((candidates, taken_back))
}

/// Marks what must go: to every reader it is as good as gone. [`crate::retention::finish_pruning`] does
/// the rest.
///
/// # Durability
/// The marks survive a power cut.
pub(crate) fn mark_evicted(access: &Access, planned: EvictionPlan) -> Result<EvictOutcome> {
    if planned.outcome.evicted.is_empty() {
        return Ok(planned.outcome);
    }
    // Asked again where it is decided: a pin, or an operation, that came in between is seen here. A run that
    // came in between began with a checkpoint that was the newest of its work tree or not there yet, and so is
    // not among those planned. What all content takes is counted again, and what runs began with read, while
    // nobody else can write only where others have made room meanwhile: what would go for nothing is gone for
    // good.
    access.index.write_durably("mark checkpoints", |tx| {
        let planned = if planned.is_too_much(access, &tx)? {
            plan_in(access, &tx, &[])?.outcome
        } else {
            planned.outcome
        };
        let marked: HashSet<CheckpointId> = tx.pruning_checkpoints()?.into_iter().collect();
        let planned_ids: HashSet<&CheckpointId> = planned.evicted.iter().collect();
        let rows = tx.all_checkpoints()?;
        let (candidates, taken_back) =
            candidates(access, &tx, rows, marked, |id| planned_ids.contains(id))?;
        let may_go: HashSet<CheckpointId> = candidates.into_iter().collect();
        let mut going = planned.evicted.clone();
        going.retain(|id| may_go.contains(id));
        leave_links(&mut going, &taken_back);
        let evicted = tx.mark_pruning(&going)?;
        if evicted == planned.evicted {
            return Ok(planned);
        }
        let mut releasing = tx.releasing()?;
        let mut released_bytes = 0;
        for id in &evicted {
            released_bytes = releasing.release(id)?;
        }
        let less = planned.released_bytes.saturating_sub(released_bytes);
        Ok(EvictOutcome {
            evicted,
            released_bytes,
            short_bytes: planned.short_bytes + less,
            content_bytes: planned.content_bytes + less,
            ..planned
        })
    })
}

#[cfg(test)]
mod tests;
