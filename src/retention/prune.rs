//! Which checkpoints go, and how they go.
//!
//! A checkpoint is dropped in three steps, each of which the next command can find and finish: its
//! row is marked, durably; its files are unlinked; its row is deleted. From the mark on it is gone for
//! every reader. The mark comes before the unlink so that a manifest that is missing without one is
//! known to be damage.

use std::collections::HashSet;

use crate::access::Access;
use crate::checkpoint::{CheckpointRow, CheckpointState};
use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::{CheckpointId, SessionName, WorkspaceId};
use crate::index::ReadTx;
use crate::journal;
use crate::limits;
use crate::retention::PruneOutcome;
use crate::sessions::Found;

/// How many checkpoints of a session stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PruneRule {
    /// The newest so many of a session, safety checkpoints counted apart and as many of them.
    pub keep: u32,
}

impl Default for PruneRule {
    fn default() -> Self {
        Self { keep: limits::KEEP_DEFAULT }
    }
}

/// Computes which checkpoints of a session go. Pure.
///
/// Kept: the newest by number, pinned or not; every pinned one; safety checkpoints counted apart, and
/// none younger than a day; the newest of each workspace; what `protected` names.
fn choose(
    rows: &[CheckpointRow],
    rule: PruneRule,
    protected: &HashSet<CheckpointId>,
    now: Timestamp,
) -> Vec<CheckpointId> {
    let mut live: Vec<&CheckpointRow> =
        rows.iter().filter(|row| row.state == CheckpointState::Live).collect();
    live.sort_by_key(|row| std::cmp::Reverse(row.id.seq));
    let keep = rule.keep as usize;
    let (mut plain, mut safety) = (0, 0);
    let mut workspaces: HashSet<WorkspaceId> = HashSet::new();
    let mut chosen = Vec::new();
    for row in live {
        let count = if row.is_safety() { &mut safety } else { &mut plain };
        *count += 1;
        let is_young = row.is_safety() && row.created_at.until(now) < limits::SAFETY_KEEP;
        // A capture builds upon the newest of its workspace, whatever made it.
        let is_newest_of_workspace = workspaces.insert(row.workspace);
        let stays = *count <= keep
            || row.pin.pinned
            || is_young
            || is_newest_of_workspace
            || protected.contains(&row.id);
        if !stays {
            chosen.push(row.id.clone());
        }
    }
    chosen.reverse();
    chosen
}

/// Whether the checkpoint's file says that it is pinned, or cannot be understood: the row only repeats
/// it, and a power cut may have taken what it repeated last.
fn is_pinned(access: &Access, id: &CheckpointId) -> bool {
    !access.sessions.read_pin(id).is_ok_and(|pin| !pin.pinned)
}

/// What a prune of these sessions would drop.
///
/// # Errors
/// A journal that cannot be understood stops it: nobody knows what that restore needs.
pub(crate) fn plan_prune(
    access: &Access,
    sessions: &[SessionName],
    rule: PruneRule,
) -> Result<PruneOutcome> {
    access.index.read("plan a prune", |tx| plan_in(access, &tx, sessions, rule))
}

/// The plan, seen from inside a transaction.
fn plan_in(
    access: &Access,
    tx: &ReadTx<'_>,
    sessions: &[SessionName],
    rule: PruneRule,
) -> Result<PruneOutcome> {
    let mut protected = tx.protected_checkpoints()?;
    protected.extend(journal::needed_by_journals(&access.layout)?);
    let now = Timestamp::now();
    let mut outcome = PruneOutcome::default();
    for session in sessions {
        let rows = tx.checkpoints_of_session(session)?;
        let mut chosen = choose(&rows, rule, &protected, now);
        chosen.retain(|id| !is_pinned(access, id));
        let live = rows.iter().filter(|row| row.state == CheckpointState::Live).count();
        outcome.kept += (live - chosen.len()) as u64;
        outcome.pruned.extend(chosen);
    }
    Ok(outcome)
}

/// Drops checkpoints by rule. A base or target that an operation came to rely on after the plan stays.
///
/// # Durability
/// The marks survive a power cut before the first file is unlinked.
pub(crate) fn prune(
    access: &Access,
    sessions: &[SessionName],
    rule: PruneRule,
) -> Result<PruneOutcome> {
    let outcome = mark(access, sessions, rule)?;
    drop_marked(access, &outcome.pruned)?;
    Ok(outcome)
}

/// Marks what a prune of one session, by what is kept without being asked, would drop: to every reader
/// that is as good as gone.
///
/// The files are unlinked by [`unlink`], and the next checkpoint of the session takes the rows away in
/// its own transaction, once its own name, and with it these unlinks, are durable. It also unlinks what
/// a killed process did not.
pub(crate) fn mark_behind(access: &Access, session: &SessionName) -> Result<PruneOutcome> {
    mark(access, std::slice::from_ref(session), PruneRule::default())
}

/// Unlinks the files of checkpoints that [`mark_behind`] has marked. What cannot be unlinked is left to
/// the next checkpoint of the session, to a prune or to a collection.
pub(crate) fn unlink(access: &Access, marked: &[CheckpointId]) {
    for id in marked {
        drop(access.sessions.remove(id));
    }
}

fn mark(access: &Access, sessions: &[SessionName], rule: PruneRule) -> Result<PruneOutcome> {
    let planned = plan_prune(access, sessions, rule)?;
    if planned.pruned.is_empty() {
        return Ok(planned);
    }
    // Planned again where it is decided: a pin, or an operation, that came in between is seen here.
    access.index.write_durably("mark checkpoints", |tx| {
        let mut outcome = plan_in(access, &tx, sessions, rule)?;
        outcome.pruned = tx.mark_pruning(&outcome.pruned)?;
        Ok(outcome)
    })
}

/// Drops one checkpoint, whatever the rules say: what a restore had saved that did not happen. It stays
/// if somebody has pinned it. Returns whether it was dropped.
///
/// # Durability
/// As [`prune`].
pub(crate) fn drop_one(access: &Access, id: &CheckpointId) -> Result<bool> {
    let marked = access.index.write_durably("mark a checkpoint", |tx| {
        if tx.checkpoint(id)?.is_some_and(|row| row.pin.pinned) || is_pinned(access, id) {
            return Ok(Vec::new());
        }
        tx.mark_pruning(std::slice::from_ref(id))
    })?;
    if !marked.is_empty() {
        access.sessions.keep_number(id, &access.tmp)?;
    }
    drop_marked(access, &marked)?;
    Ok(!marked.is_empty())
}

/// The checkpoints of a session whose manifests are gone although nobody pruned them.
pub(crate) fn missing(access: &Access, session: &SessionName) -> Result<Vec<CheckpointId>> {
    let read = |tx: ReadTx<'_>| tx.checkpoints_of_session(session);
    let is_gone = |row: &CheckpointRow| {
        row.state == CheckpointState::Live && matches!(access.sessions.read(&row.id), Found::Absent)
    };
    let gone: Vec<CheckpointId> = access
        .index
        .read("list a session", read)?
        .into_iter()
        .filter(is_gone)
        .map(|row| row.id)
        .collect();
    if gone.is_empty() {
        return Ok(gone);
    }
    // Asked again: one that was pruned in between is not missing.
    let live: HashSet<CheckpointId> = access
        .index
        .read("list a session", read)?
        .into_iter()
        .filter(|row| row.state == CheckpointState::Live)
        .map(|row| row.id)
        .collect();
    Ok(gone.into_iter().filter(|id| live.contains(id)).collect())
}

/// Decides that checkpoints whose manifests are missing are gone: the rows go, and what only they
/// named may be swept. Gives those dropped; one that an operation relies on stays.
///
/// # Durability
/// As [`prune`].
pub(crate) fn drop_missing(access: &Access, ids: &[CheckpointId]) -> Result<Vec<CheckpointId>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let marked = access.index.write_durably("mark checkpoints", |tx| tx.mark_pruning(ids))?;
    for id in &marked {
        access.sessions.keep_number(id, &access.tmp)?;
    }
    drop_marked(access, &marked)?;
    Ok(marked)
}

/// Finishes what a capture or an interrupted prune has marked.
pub(crate) fn finish_pruning(access: &Access) -> Result<()> {
    let marked = access.index.read("list marked checkpoints", |tx| tx.pruning_checkpoints())?;
    drop_marked(access, &marked)
}

fn drop_marked(access: &Access, marked: &[CheckpointId]) -> Result<()> {
    for id in marked {
        access.sessions.remove(id)?;
    }
    // The unlinks are durable before the rows go: a power cut in between must not bring a manifest
    // back whose blobs a sweep has taken since.
    let sessions: HashSet<&SessionName> = marked.iter().map(|id| &id.session).collect();
    for session in sessions {
        access.sessions.sync(session)?;
    }
    for id in marked {
        access.index.write("delete a checkpoint", |tx| tx.delete_checkpoint(id))?;
    }
    Ok(())
}
