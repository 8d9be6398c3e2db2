//! Revert: what one checkpoint changed is taken back, and later work is kept.
//!
//! A checkpoint changed what is not as in the one before it in its session; what a restore left since then
//! ([`crate::store::left`]) is not its doing.
//! Each of these paths is merged ([`crate::store::merging`]) from the checkpoint, the one before, and what is
//! on disk.

use std::collections::HashSet;
use std::path::Path;

use crate::access::{Access, OpenWorkspace};
use crate::checkpoint::CheckpointRow;
use crate::error::{Error, GoingBackError, Result};
use crate::id::{CheckpointId, Seq};
use crate::manifest::{Coverage, Entry, EntryKind, Listed, RestoreVerb, tree_differences};
use crate::monitor::Monitor;
use crate::path::RelPath;
use crate::restore::{RestoreOptions, RestoreOutcome};
use crate::sessions::Found;
use crate::store::Store;
use crate::store::left::LeftByRestores;
use crate::store::merging::{Merge, Purpose, is_meant};
use crate::store::restoring::{Mode, Wish};
use crate::store::target::{Intent, Needed, Target, after_of, load_target};

impl Store {
    /// Computes what [`Store::revert`] would do.
    ///
    /// # Errors
    /// As [`Store::revert`].
    pub fn plan_revert(
        &self,
        path: &Path,
        checkpoint: &CheckpointId,
        options: &RestoreOptions,
        monitor: &dyn Monitor,
    ) -> Result<RestoreOutcome> {
        self.go_back(&Wish::Revert(checkpoint), Mode::Plan, path, options, monitor)
    }

    /// Takes back what a checkpoint changed against the one before it in its session and workspace, or
    /// against what a restore left in between, and keeps what was done later: a file that was changed since is
    /// merged line by line. Where paths are given, only what it changed there is taken back.
    ///
    /// Where checkpoints between the two are gone, what they changed is taken back too: nobody can tell it
    /// apart. [`RestoreOutcome::predecessor`] says so.
    ///
    /// # Errors
    /// [`GoingBackError::RevertConflicts`] where the checkpoint and later work exclude each other: nothing
    /// has changed then, also where they do not. [`GoingBackError::NoPredecessor`]; else as
    /// [`Store::restore`].
    ///
    /// # Durability
    /// As [`Store::restore`].
    pub fn revert(
        &self,
        path: &Path,
        checkpoint: &CheckpointId,
        options: &RestoreOptions,
        monitor: &dyn Monitor,
    ) -> Result<RestoreOutcome> {
        self.go_back(&Wish::Revert(checkpoint), Mode::CarryOut, path, options, monitor)
    }
}

/// Finds out what a checkpoint changed, at the paths that are given or everywhere.
pub(super) fn find_revert(
    access: &Access,
    open: &OpenWorkspace,
    id: &CheckpointId,
    paths: &[RelPath],
) -> Result<(Target, Intent)> {
    let after = load_target(access, open, id, false)?;
    let id = &after.reference.id;
    let Before { target: before, left, through } = before(access, open, id)?;
    let gone_between = gone_between(access, &before.reference.id, id)?;
    let mut changes = tree_differences(&access.blobs, &before.tree, &after.tree)
        .inspect_err(|error| drop(crate::capture::remember(access, error)))?;
    left.correct(&mut changes);
    if let Some(only) = &after.only {
        // Of the other paths it says what an earlier checkpoint says.
        changes.retain(|change| only.contains(&change.path));
    }
    changes.retain(|change| is_meant(paths, &change.path));
    let gone: Vec<RelPath> = changes
        .iter()
        .filter(|change| change.after.is_none())
        .map(|change| change.path.clone())
        .collect();
    if !gone.is_empty() {
        // What it has no entry of was not deleted where it did not look.
        let evidence = after.entries(access, None, Needed::Of(&gone))?;
        changes.retain(|change| change.after.is_some() || is_gone(&evidence, &change.path));
    }
    let base = after.reference.id.clone();
    let purpose = Purpose::Revert { gone_between };
    let mut merge = Merge::new(purpose, base, before, changes, paths);
    merge.through = through;
    let intent = Intent::merge(RestoreVerb::Revert, merge);
    let target = Target { only: None, listed: None, is_part: false, ..after };
    Ok((target, intent))
}

/// What a checkpoint is compared with.
struct Before {
    /// The one before it that speaks of all paths.
    target: Target,
    /// What restores have left since.
    left: LeftByRestores,
    /// Their safety checkpoints, where these are others.
    through: Vec<CheckpointId>,
}

/// The next lower checkpoint of the same session and workspace, and what was restored between the two: that
/// is not the doing of the second, whatever session its safety checkpoint is in.
fn before(access: &Access, open: &OpenWorkspace, id: &CheckpointId) -> Result<Before> {
    let mut lower = access.sessions.listing(&id.session)?.manifests;
    lower.retain(|seq| *seq < id.seq);
    // The newest first.
    let rows = access
        .index
        .read("list a workspace", |tx| tx.checkpoints_of_workspace(open.workspace.id))?;
    let place = |id: &CheckpointId| rows.iter().position(|row| row.id == *id);
    let own_place = place(id).unwrap_or(rows.len());
    let is_elsewhere = |row: &CheckpointRow| row.is_safety() && row.id.session != id.session;
    let mut elsewhere = rows
        .iter()
        .enumerate()
        .filter(|(at, row)| *at > own_place && is_elsewhere(row))
        .map(|(at, row)| (at, &row.id))
        .peekable();
    let (mut left, mut parts, mut others) = (LeftByRestores::default(), Vec::new(), Vec::new());
    for seq in lower.into_iter().rev() {
        let other = CheckpointId { session: id.session.clone(), seq };
        let row = access.index.read("find a checkpoint", |tx| tx.checkpoint(&other))?;
        match row {
            Some(row) if row.is_pruning() || row.workspace != open.workspace.id => continue,
            // One of another program says nothing of any workspace.
            None if matches!(access.sessions.read(&other), Found::Legacy) => continue,
            _ => {}
        }
        let manifest = access.sessions.require(&other)?.0;
        if manifest.workspace != open.workspace.id {
            continue;
        }
        let place = place(&other);
        while let Some((_, safety)) =
            elsewhere.next_if(|(at, _)| place.is_some_and(|place| *at < place))
        {
            let manifest = match access.sessions.require(safety) {
                // It was dropped since.
                Err(Error::CheckpointNotFound { .. }) if is_dropped(access, safety)? => continue,
                required => required?.0,
            };
            if let Some(record) = &manifest.restore {
                left.add_older(after_of(access, safety, record)?);
                others.push(safety.clone());
            }
        }
        if let Some(record) = &manifest.restore {
            left.add_older(after_of(access, &other, record)?);
            if manifest.coverage == Coverage::Paths {
                parts.push(other);
                continue;
            }
        }
        let through = [others, parts].concat();
        return Ok(Before { target: load_target(access, open, &other, false)?, left, through });
    }
    // One of given paths is better than none.
    let Some(only) = parts.pop() else {
        return Err(GoingBackError::NoPredecessor { checkpoint: id.clone() }.into());
    };
    let through = [others, parts].concat();
    Ok(Before { target: load_target(access, open, &only, false)?, left, through })
}

/// Whether the index does not have a checkpoint any more, or has it marked to be dropped.
fn is_dropped(access: &Access, id: &CheckpointId) -> Result<bool> {
    let row = access.index.read("find a checkpoint", |tx| tx.checkpoint(id))?;
    Ok(row.is_none_or(|row| row.is_pruning()))
}

/// How many numbers between a checkpoint and the one before it are of checkpoints that are gone, as far as is
/// known: none where one leads to the other from parent to parent. A number may be lacking because a
/// capture failed, or was another workspace's.
fn gone_between(access: &Access, before: &CheckpointId, id: &CheckpointId) -> Result<u64> {
    let there = access.sessions.listing(&id.session)?.manifests;
    let is_between = |seq: &&Seq| before.seq < **seq && **seq < id.seq;
    let between = there.iter().filter(is_between).count() as u64;
    let missing = (id.seq.get() - before.seq.get() - 1).saturating_sub(between);
    // Whatever files say, nothing is read twice.
    let mut seen = HashSet::new();
    let mut at = id.clone();
    while missing > 0 && seen.insert(at.clone()) {
        let Found::Valid { manifest, .. } = access.sessions.read(&at) else { break };
        match manifest.parent {
            Some(parent) if parent.id == *before => return Ok(0),
            Some(parent) => at = parent.id,
            None => break,
        }
    }
    Ok(missing)
}

/// Whether `evidence`, which has what is above the path, shows that nothing was there.
fn is_gone(evidence: &[Entry], path: &RelPath) -> bool {
    let find = |path: &RelPath| {
        let index = evidence.binary_search_by(|entry| entry.path.cmp(path)).ok()?;
        evidence.get(index)
    };
    let mut above: Vec<RelPath> = path.ancestors().collect();
    above.sort();
    match above.iter().rev().find_map(find).map(|entry| &entry.kind) {
        Some(EntryKind::Dir { listed }) => *listed == Listed::Whole,
        Some(EntryKind::File { .. } | EntryKind::Symlink { .. }) => true,
        _ => false,
    }
}
