//! Restore: a workspace goes back to a checkpoint.
//!
//! The facade puts the steps together: walk and hash the present, [`crate::plan`], check that every
//! blob that is needed is there and whole, capture the present as a safety checkpoint, [`stage`] the
//! new contents beside their places, write the journal, [`apply`], [`finish`]. Nothing in the
//! workspace changes before all of the new content is staged and checked; nothing is removed whose
//! bytes are not held.

mod apply;
mod into;
mod recover;
mod stage;
mod tar;

use std::collections::{BTreeMap, HashSet};

pub(crate) use apply::apply;
pub(crate) use into::{look_for_content, restore_into};
pub(crate) use recover::{Recovered, abort, add_conflicts, recover};
pub(crate) use stage::{Stage, discard, finish, has_own_directory, stage};
pub(crate) use tar::write_tar;

use crate::access::Access;
use crate::blobs::{Blobs, Presence, PutOutcome, Staging};
use crate::checkpoint::{BlobState, CaptureProblem};
use crate::disk::Dir;
use crate::error::{Error, LostContent, Result};
use crate::hash::BlobHash;
use crate::id::{CheckpointId, WorkspaceId};
use crate::manifest::{CheckpointRef, Entry, RestoreVerb};
use crate::monitor::Monitor;
use crate::path::RelPath;
use crate::plan::{BoundPlan, Plan, Skip};
use crate::registration::Operation;
use crate::settings::ScopeSettings;
use rayon::prelude::*;

/// How to restore.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct RestoreOptions {
    /// Only these paths, each with everything below it; all where empty.
    pub paths: Vec<RelPath>,
    /// Decide by content and not by stamps which files are already as they should be.
    pub thorough: bool,
    /// Put recorded modification times back. Off: files get the present time, so that builds see the
    /// change.
    pub preserve_mtime: bool,
    /// The session that the safety checkpoint goes to; the workspace's default one where none is
    /// named.
    pub session: Option<String>,
    /// The rules by which the present is captured.
    pub scope: ScopeSettings,
    /// The id of the plan that was shown and agreed to: if the disk has changed so that another plan
    /// would be carried out, refuse.
    pub expected_plan: Option<String>,
    /// The plan that is carried out, or nothing is.
    pub(crate) bound: Option<BoundPlan>,
    /// Lay the checkpoint, of whatever workspace, over what is there: create and overwrite, and delete
    /// nothing.
    pub overlay: bool,
    /// Restore `/`, the home directory, or what contains it.
    pub force: bool,
    /// Which workspace this is, where path and directory disagree.
    pub workspace: Option<WorkspaceId>,
}

impl RestoreOptions {
    /// Binds the command to a plan: it takes the paths and the ways of comparing from it, and does exactly
    /// that or refuses.
    pub fn bind(&mut self, plan: BoundPlan) {
        self.paths.clone_from(&plan.paths);
        self.thorough = plan.thorough;
        self.preserve_mtime = plan.preserve_mtime;
        self.bound = Some(plan);
    }
}

/// What a restore or undo did, or would do.
#[derive(Debug, Clone)]
#[non_exhaustive]
#[must_use]
pub struct RestoreOutcome {
    /// Of which command.
    pub verb: RestoreVerb,
    /// The workspace.
    pub workspace: WorkspaceId,
    /// The checkpoint that the command is about.
    pub target: CheckpointRef,
    /// What was planned.
    pub plan: Plan,
    /// For a revert: what the checkpoint was compared with.
    pub predecessor: Option<Predecessor>,
    /// For an undo or a redo: the command that was saved for, which is taken back.
    pub takes_back: Option<TakenBack>,
    /// The changed files whose content is that of nothing that was captured: what a revert merged. In order
    /// of path.
    pub merged: Vec<RelPath>,
    /// The root of the workspace.
    pub root: std::path::PathBuf,
    /// The checkpoint that holds what was there before; `None` where nothing had to change, and for a
    /// plan that was not carried out.
    pub safety: Option<CheckpointId>,
    /// How many of the planned changes were made.
    pub changed: u64,
    /// Planned paths that were left as they were, and why.
    pub left: Vec<Skip>,
    /// What a person should know: a file kept aside, an owner that could not be kept.
    pub remarks: Vec<String>,
    /// What of the present could not be held whole, the first hundred; none of it was touched.
    pub problems: Vec<CaptureProblem>,
    /// How many of these there are in all.
    pub problem_count: u64,
}

/// What a checkpoint that is taken back was compared with, to find out what it changed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Predecessor {
    /// The checkpoint before it that is still there.
    pub checkpoint: CheckpointRef,
    /// How many checkpoints between the two are gone: what they changed is taken back as well.
    pub gone: u64,
}

/// A command that is taken back.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TakenBack {
    /// Which command.
    pub verb: RestoreVerb,
    /// The restore or revert that it was, or that it took back or did again in the end; `None` where that
    /// is not known any more.
    pub origin: Option<(RestoreVerb, CheckpointId)>,
    /// The safety checkpoint of the command before it that would be taken back next, where there is one.
    pub earlier: Option<CheckpointId>,
}

impl RestoreOutcome {
    /// Whether planned or wanted paths were left as they were for another reason than a rule.
    pub fn is_short(&self) -> bool {
        !self.left.is_empty() || self.plan.skips.iter().any(|skip| skip.reason.is_shortfall())
    }
}

/// Reads and checks every blob that the plan needs, but those in `made`: content that the plan itself makes
/// and that is not in the store yet.
///
/// # Errors
/// [`Error::ContentLost`] naming each path and blob. Nothing has changed then.
///
/// Cost: each needed blob is read and hashed once.
pub(crate) fn check_content(
    blobs: &Blobs,
    plan: &Plan,
    made: &HashSet<BlobHash>,
    monitor: &dyn Monitor,
) -> Result<()> {
    let needed: Vec<&Entry> = plan
        .changes
        .iter()
        .filter_map(|change| {
            change.after.as_ref().filter(|after| {
                let is_made = after.blob().is_some_and(|(hash, _)| made.contains(&hash));
                let is_other = |before: &Entry| !before.is_same_content(after);
                !is_made && change.before.as_ref().is_none_or(is_other)
            })
        })
        .collect();
    check_entries(blobs, &needed, monitor)
}

/// Reads and checks the content of every file among `entries`.
///
/// # Errors
/// As [`check_content`].
pub(crate) fn check_entries(
    blobs: &Blobs,
    entries: &[&Entry],
    monitor: &dyn Monitor,
) -> Result<()> {
    let check = |entry: &&Entry| -> Result<Option<LostContent>> {
        if monitor.is_cancelled() {
            return Err(Error::Cancelled);
        }
        let Some((hash, size)) = entry.blob() else { return Ok(None) };
        Ok(into::lost(entry, blobs.check(hash, Some(size))?))
    };
    let checked: Vec<Option<LostContent>> = crate::threads::pool("check")?
        .install(|| entries.par_iter().map(check).collect::<Result<_>>())?;
    let lost: Vec<LostContent> = checked.into_iter().flatten().collect();
    if lost.is_empty() { Ok(()) } else { Err(Error::ContentLost { lost }) }
}

/// Where what a restore takes away is saved.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Saving<'a> {
    /// The store.
    pub(crate) access: &'a Access,
    /// The workspace.
    pub(crate) root: &'a Dir,
    /// Pins what is saved.
    pub(crate) operation: &'a Operation<'a>,
    /// Takes what the store does not have.
    pub(crate) staging: &'a Staging<'a>,
}

/// Makes sure that the store will hold the present content of every file that the plan overwrites or
/// deletes, and `pages`, those of the base, which name them. The stat cache vouches for content that was
/// stored once; whether it is still there, whole, is looked at here, since after the restore the store
/// has the only copy. Content that is lost is read from the file and staged again; a lost page is
/// remembered, so that it is written again with the safety checkpoint.
///
/// # Errors
/// [`Error::ContentLost`] where the file has changed since it was hashed. Nothing has changed then.
///
/// Cost: the reading and hashing of each of these blobs and pages.
pub(crate) fn ensure_saved(
    saving: &Saving<'_>,
    pages: &[(BlobHash, u64)],
    plan: &Plan,
    monitor: &dyn Monitor,
) -> Result<()> {
    let Saving { access, root, operation, staging } = *saving;
    let mut needed: Vec<(Option<&RelPath>, BlobHash, u64)> = Vec::new();
    for change in &plan.changes {
        let is_kept = matches!((&change.before, &change.after), (Some(before), Some(after))
            if before.is_same_content(after));
        if let Some((hash, size)) =
            change.before.as_ref().filter(|_| !is_kept).and_then(Entry::blob)
        {
            needed.push((Some(&change.path), hash, size));
        }
    }
    needed.extend(pages.iter().map(|(hash, size)| (None, *hash, *size)));
    let is_lost = |&(_, hash, size): &(Option<&RelPath>, BlobHash, u64)| -> Result<bool> {
        if monitor.is_cancelled() {
            return Err(Error::Cancelled);
        }
        let is_whole = matches!(access.blobs.check(hash, Some(size))?, Presence::Present { .. });
        Ok(!is_whole && !staging.is_staged(hash))
    };
    let lost: Vec<bool> = crate::threads::pool("check")?
        .install(|| needed.par_iter().map(is_lost).collect::<Result<_>>())?;
    for ((path, hash, size), _) in needed.into_iter().zip(lost).filter(|(_, is_lost)| *is_lost) {
        access.index.write("remember damage", |tx| tx.set_blob_state(hash, BlobState::Damaged))?;
        let Some(path) = path.filter(|_| !staging.is_staged(hash)) else { continue };
        operation.pin(&[hash])?;
        let mut file = root.open_file_beneath(path)?;
        match staging.put_stream(size, &mut file)? {
            PutOutcome::Put(found) if found == hash => {}
            _ => {
                let reason = "it is lost, and the file has changed meanwhile".to_owned();
                let lost = vec![LostContent { path: path.clone(), hash, reason }];
                return Err(Error::ContentLost { lost });
            }
        }
    }
    Ok(())
}

/// What an earlier restore touched, with what it left there, from its safety checkpoint.
pub(crate) fn touched(after: Vec<Entry>) -> BTreeMap<RelPath, Entry> {
    after.into_iter().map(|entry| (entry.path.clone(), entry)).collect()
}
