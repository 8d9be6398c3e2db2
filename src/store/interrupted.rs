//! What becomes of a restore that did not get to its end, together with what it had saved.

use crate::access::{Access, OpenWorkspace};
use crate::adoption::{self, Compared};
use crate::error::{Error, Result};
use crate::id::OperationId;
use crate::journal::{self, Journal, JournalPhase};
use crate::monitor::Monitor;
use crate::registration::Operation;
use crate::restore::{self, Recovered};
use crate::retention;
use crate::sessions::with_source;
use crate::store::log;

/// Ends the open restore of a workspace, if there is one: forward where the workspace had begun to
/// change, back where it had not.
///
/// # Errors
/// [`Error::RestoreOpen`]: it could not be ended, and is still open.
pub(super) fn recover(
    access: &Access,
    open: &OpenWorkspace,
    monitor: &dyn Monitor,
) -> Result<Recovered> {
    forget_what_was_saved(access, open).map_err(|error| Error::RestoreOpen {
        workspace: open.path.clone(),
        reason: with_source(&error),
    })?;
    let recovered = restore::recover(access, open, monitor)?;
    let (verb, details) = match &recovered {
        Recovered::Nothing => return Ok(recovered),
        Recovered::Discarded => ("restore-discard", serde_json::json!({})),
        Recovered::Completed { changed, left, safety, .. } => {
            let left: Vec<String> = left.iter().map(|skip| skip.path.to_string()).collect();
            let safety = safety.as_ref().map(log::id);
            let details = serde_json::json!({ "safety": safety, "changed": changed, "left": left });
            ("restore-complete", details)
        }
    };
    log_recovery(access, open, verb, details, monitor);
    Ok(recovered)
}

fn log_recovery(
    access: &Access,
    open: &OpenWorkspace,
    verb: &str,
    mut details: serde_json::Value,
    monitor: &dyn Monitor,
) {
    details["workspace"] = open.workspace.id.to_string().into();
    details["root"] = open.path.to_string_lossy().into();
    if let Err(error) = log::append(access, verb, details) {
        log::tell_unwritten(&error, monitor);
    }
}

/// Before an open restore is discarded: drops the checkpoint that it made. A restore that did not
/// happen cannot be undone, and an undo that did not happen has taken nothing back.
///
/// The journal goes last: a crash in between finds both again.
pub(super) fn forget_what_was_saved(access: &Access, open: &OpenWorkspace) -> Result<()> {
    let journal = Journal::read(&access.layout, open.workspace.id)?;
    let Some(journal) = journal.filter(|it| it.phase == JournalPhase::Staging) else {
        return Ok(());
    };
    // Its process is dead, since this one has the workspace's lock: what it protected goes first.
    adoption::reap(access, &mut Compared::default())?;
    drop_saved(access, journal.operation)
}

/// Ends a restore whose journal cannot be understood: nobody knows what it changed and what it was to
/// change, so nothing in the workspace is touched. The journal is kept under another name, and what
/// the restore may have left in the workspace is named. `None` where the journal is understood, or
/// there is none.
pub(super) fn set_journal_aside(
    access: &Access,
    open: &OpenWorkspace,
) -> Result<Option<Vec<String>>> {
    let Err(Error::JournalUnreadable { path, reason, .. }) =
        Journal::read(&access.layout, open.workspace.id)
    else {
        return Ok(None);
    };
    let mut remarks = Vec::new();
    if let Some(aside) = Journal::set_aside(&access.layout, open.workspace.id)? {
        let (path, aside) = (path.display(), aside.display());
        remarks.push(format!("{path} could not be understood ({reason}); it is kept as {aside}"));
    }
    for left in journal::left_in(&open.dir)? {
        let left = crate::path::printable(&left);
        remarks.push(format!(
            ".turnpoint/{left} was left as it is: it may hold what a restore displaced"
        ));
    }
    Ok(Some(remarks))
}

/// Ends a restore of this process before it has changed anything.
pub(super) fn give_up(
    access: &Access,
    open: &OpenWorkspace,
    operation: Operation<'_>,
    journal: &Journal,
) -> Result<()> {
    // It may say already that changing has begun, and whoever believed that would change what is
    // saved nowhere.
    journal.write(&access.layout, &access.tmp)?;
    operation.end()?;
    let row =
        access.index.read("find an operation", |tx| tx.operation_exists(journal.operation))?;
    if row {
        // What it saved has no row yet: the next command adopts it, and discards both.
        return Ok(());
    }
    drop_saved(access, journal.operation)?;
    restore::discard(access, &open.dir, journal)
}

fn drop_saved(access: &Access, operation: OperationId) -> Result<()> {
    let made =
        access.index.read("find a checkpoint", |tx| tx.checkpoint_of_operation(operation))?;
    if let Some(id) = made
        && retention::drop_one(access, &id)?
    {
        let details =
            serde_json::json!({ "checkpoints": [log::id(&id)], "why": "restore discarded" });
        // It is dropped, whether or not that can be written down.
        drop(log::append(access, "prune", details));
    }
    Ok(())
}
