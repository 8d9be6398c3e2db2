//! Undo and redo: which restore, or undo, is taken back next.
//!
//! Both ask the safety checkpoints of the workspace and nothing else. Each names its command, and for an
//! undo or a redo the safety checkpoint of what it took back. So the newest restore or redo that nothing
//! took back is what an undo is about, and the newest undo that nothing took back what a redo is about, as
//! long as no restore came after it.

use std::collections::HashSet;
use std::path::Path;

use crate::access::{Access, OpenWorkspace};
use crate::error::{Error, GoingBackError, Result};
use crate::id::CheckpointId;
use crate::manifest::{CheckpointRef, Coverage, Manifest, RestoreRecord, RestoreVerb};
use crate::monitor::Monitor;
use crate::restore::{self, RestoreOptions, RestoreOutcome, TakenBack};
use crate::store::Store;
use crate::store::restoring::{Mode, Wish};
use crate::store::target::{Intent, Target, after_of};

impl Store {
    /// Computes what [`Store::redo`] would do.
    ///
    /// # Errors
    /// As [`Store::redo`].
    pub fn plan_redo(
        &self,
        path: &Path,
        options: &RestoreOptions,
        monitor: &dyn Monitor,
    ) -> Result<RestoreOutcome> {
        self.go_back(&Wish::Redo, Mode::Plan, path, options, monitor)
    }

    /// Takes back the newest undo of the workspace that has not been taken back, on the paths that it
    /// touched. A path that was worked on since is a conflict and is left. Repeated, it goes on to the undo
    /// before that one; [`Store::undo`] takes a redo back in turn.
    ///
    /// # Errors
    /// [`GoingBackError::NothingToRedo`], also where a restore was made since; else as [`Store::restore`].
    pub fn redo(
        &self,
        path: &Path,
        options: &RestoreOptions,
        monitor: &dyn Monitor,
    ) -> Result<RestoreOutcome> {
        self.go_back(&Wish::Redo, Mode::CarryOut, path, options, monitor)
    }
}

/// Finds the newest restore or redo of the workspace that has not been taken back: its safety checkpoint
/// is the target.
pub(super) fn find_undo(access: &Access, open: &OpenWorkspace) -> Result<(Target, Intent)> {
    match find(access, open, |verb| verb != RestoreVerb::Undo, |_| false)? {
        Found::This(found) => Ok(with_verb(*found, RestoreVerb::Undo)),
        Found::Ended(_) | Found::Nothing => {
            Err(Error::NothingToUndo { workspace: open.path.clone() })
        }
    }
}

/// Finds the newest undo of the workspace that has not been taken back, and that no restore came after.
pub(super) fn find_redo(access: &Access, open: &OpenWorkspace) -> Result<(Target, Intent)> {
    let is_new = |verb| !matches!(verb, RestoreVerb::Undo | RestoreVerb::Redo);
    let since = match find(access, open, |verb| verb == RestoreVerb::Undo, is_new)? {
        Found::This(found) => return Ok(with_verb(*found, RestoreVerb::Redo)),
        Found::Ended(since) => Some(since),
        Found::Nothing => None,
    };
    Err(GoingBackError::NothingToRedo { workspace: open.path.clone(), since }.into())
}

fn with_verb((target, intent): (Target, Intent), verb: RestoreVerb) -> (Target, Intent) {
    (target, Intent { verb, ..intent })
}

enum Found {
    This(Box<(Target, Intent)>),
    /// There is one, and this one came after it, which ends what could be taken back.
    Ended(CheckpointId),
    Nothing,
}

/// The newest safety checkpoint of a command that is sought and was not taken back, with the one before it.
fn find(
    access: &Access,
    open: &OpenWorkspace,
    is_sought: impl Fn(RestoreVerb) -> bool,
    is_end: impl Fn(RestoreVerb) -> bool,
) -> Result<Found> {
    let rows = access
        .index
        .read("list a workspace", |tx| tx.checkpoints_of_workspace(open.workspace.id))?;
    let mut taken_back: HashSet<CheckpointId> = HashSet::new();
    let mut ended = None;
    let mut found: Option<Box<(Target, Intent)>> = None;
    for row in rows.iter().filter(|row| row.is_safety() && !row.is_pruning()) {
        let (manifest, digest) = match access.sessions.require(&row.id) {
            Ok(required) => required,
            // What lies further back is no reason not to take this one back.
            Err(_) if found.is_some() => break,
            Err(error) => return Err(error),
        };
        let Some(record) = &manifest.restore else { continue };
        if is_sought(record.verb) && !taken_back.contains(&row.id) {
            if let Some((_, intent)) = found.as_deref_mut() {
                if let Some(taken) = intent.takes_back.as_mut() {
                    taken.earlier = Some(row.id.clone());
                }
                break;
            }
            if let Some(ended) = ended {
                return Ok(Found::Ended(ended));
            }
            let reference = CheckpointRef { id: row.id.clone(), digest };
            found = Some(Box::new(take_back(access, &manifest, record, reference)?));
        }
        if is_end(record.verb) {
            // What came before this one could not be taken back next, so there is nothing to look for.
            if found.is_some() {
                break;
            }
            ended.get_or_insert_with(|| row.id.clone());
        }
        taken_back.extend(record.undoes.as_ref().map(|undoes| undoes.id.clone()));
    }
    Ok(found.map_or(Found::Nothing, Found::This))
}

/// The restore or revert that a command was, or that its undos and redos lead back to, as far as they are
/// there.
fn origin(access: &Access, record: &RestoreRecord) -> Option<(RestoreVerb, CheckpointId)> {
    let mut record = record.clone();
    // Whatever files say, nothing is read twice.
    let mut seen = HashSet::new();
    while let Some(undone) = record.undoes {
        if !seen.insert(undone.id.clone()) {
            return None;
        }
        record = access.sessions.require(&undone.id).ok()?.0.restore?;
    }
    Some((record.verb, record.target.id))
}

/// Going back to what a safety checkpoint saved, on the paths that it was saved for.
fn take_back(
    access: &Access,
    manifest: &Manifest,
    record: &RestoreRecord,
    reference: CheckpointRef,
) -> Result<(Target, Intent)> {
    let after = after_of(access, &reference.id, record)?;
    let intent = Intent {
        verb: record.verb,
        undoes: Some(reference.clone()),
        takes_back: Some(TakenBack {
            verb: record.verb,
            origin: origin(access, record),
            earlier: None,
        }),
        touched: Some(restore::touched(after)),
        merge: None,
    };
    let target = Target {
        reference,
        tree: manifest.tree,
        is_full: true,
        is_part: manifest.coverage == Coverage::Paths,
        only: None,
        parent: manifest.parent.as_ref().map(|parent| parent.id.clone()),
        listed: None,
    };
    Ok((target, intent))
}
