//! What becomes of a restore whose process died.

use std::collections::{BTreeSet, HashSet};

use crate::access::{Access, OpenWorkspace};
use crate::error::{Error, Result};
use crate::id::CheckpointId;
use crate::journal::{Journal, JournalPhase};
use crate::monitor::{Monitor, Notice};
use crate::path::RelPath;
use crate::plan::{Skip, SkipReason};
use crate::restore::apply::{apply, close_made_directories, put_displaced_back};
use crate::restore::stage::{Stage, discard, finish};
use crate::sessions::with_source;
use crate::workspaces::identity_of;

/// What was found and done.
#[derive(Debug)]
pub(crate) enum Recovered {
    /// No restore was open.
    Nothing,
    /// One that had not changed anything was discarded.
    Discarded,
    /// One that had begun to change the workspace was completed.
    Completed {
        /// How many changes are in place.
        changed: u64,
        /// What was left as it was.
        left: Vec<Skip>,
        /// What a person should know.
        remarks: Vec<String>,
        /// The checkpoint that holds what was there before.
        safety: Option<CheckpointId>,
    },
}

/// Ends the open restore of a workspace, if there is one: forward where the workspace had begun to
/// change, back where it had not. The caller holds the workspace's lock.
///
/// # Errors
/// [`Error::RestoreOpen`]: it could not be completed, and is still open. What the system says where it
/// cannot be known whether one is open.
pub(crate) fn recover(
    access: &Access,
    open: &OpenWorkspace,
    monitor: &dyn Monitor,
) -> Result<Recovered> {
    let stuck = |error: &Error| Error::RestoreOpen {
        workspace: open.path.clone(),
        reason: with_source(error),
    };
    let journal = match Journal::read(&access.layout, open.workspace.id) {
        Err(error @ Error::JournalUnreadable { .. }) => Err(stuck(&error)),
        other => other,
    };
    let Some(journal) = journal? else { return Ok(Recovered::Nothing) };
    if !is_begun_here(&journal, open).map_err(|error| stuck(&error))? {
        return Err(Error::RestoreOpen {
            workspace: open.path.clone(),
            reason: "it was begun in another directory that was at this path".to_owned(),
        });
    }
    if journal.phase == JournalPhase::Staging {
        discard(access, &open.dir, &journal).map_err(|error| stuck(&error))?;
        monitor.notice(&Notice::RestoreDiscarded);
        return Ok(Recovered::Discarded);
    }
    let complete = || -> Result<Recovered> {
        let stage = Stage::open_or_make(&open.dir, &journal)?;
        let mut applied = apply(access, &open.dir, &stage, &journal, monitor)?;
        let (remarks, conflicts) = finish(access, &open.dir, &journal)?;
        applied.remarks.extend(remarks);
        add_conflicts(&mut applied.left, conflicts);
        let safety = journal.safety.as_ref().map(|safety| safety.id.clone());
        let (changed, left, remarks) = (applied.changed, applied.left, applied.remarks);
        Ok(Recovered::Completed { changed, left, remarks, safety })
    };
    let recovered = complete().map_err(|error| stuck(&error))?;
    if let Recovered::Completed { changed, left, remarks, .. } = &recovered {
        monitor.notice(&Notice::RestoreCompleted { paths: *changed });
        for skip in left {
            let text = format!("`{}` was left as it is: {}", skip.path, skip.reason.as_str());
            monitor.notice(&Notice::Remark { text });
        }
        for remark in remarks {
            monitor.notice(&Notice::Remark { text: remark.clone() });
        }
    }
    Ok(recovered)
}

/// Whether the journal is of the directory that is at this path now.
fn is_begun_here(journal: &Journal, open: &OpenWorkspace) -> Result<bool> {
    Ok(journal.root.is_one(identity_of(&open.dir)?))
}

/// Adds paths that turned out to be conflicts only when the stage was emptied.
pub(crate) fn add_conflicts(left: &mut Vec<Skip>, conflicts: Vec<RelPath>) {
    let known: HashSet<RelPath> = left.iter().map(|skip| skip.path.clone()).collect();
    let new = conflicts.into_iter().collect::<BTreeSet<_>>().into_iter();
    left.extend(
        new.filter(|path| !known.contains(path))
            .map(|path| Skip { path, reason: SkipReason::Conflict }),
    );
    left.sort_by(|a, b| a.path.cmp(&b.path));
}

/// Ends the open restore of a workspace where it stands: the stage is emptied by the same rule, and
/// the workspace stays as it is, but for directories that were made and have not got their permission
/// bits, and for what had to make way and nothing came in its place, which is put back. Where it was begun in another directory nothing is touched in this one, and what it staged
/// stays there. Returns the checkpoint that holds what was there before, if anything has changed.
pub(crate) fn abort(
    access: &Access,
    open: &OpenWorkspace,
) -> Result<Option<(Option<CheckpointId>, Vec<String>)>> {
    let Some(journal) = Journal::read(&access.layout, open.workspace.id)? else { return Ok(None) };
    if !is_begun_here(&journal, open)? {
        journal.close(&access.layout)?;
        let remark = format!(
            "it was begun in another directory that was at this path; what it staged stays there, \
             in .turnpoint/{}",
            journal.stage_name()
        );
        return Ok(Some((journal.safety.map(|safety| safety.id), vec![remark])));
    }
    if journal.phase == JournalPhase::Staging {
        discard(access, &open.dir, &journal)?;
        return Ok(Some((None, Vec::new())));
    }
    close_made_directories(&open.dir, &journal)?;
    put_displaced_back(&open.dir, &journal)?;
    let (remarks, _) = finish(access, &open.dir, &journal)?;
    Ok(Some((journal.safety.map(|safety| safety.id), remarks)))
}
