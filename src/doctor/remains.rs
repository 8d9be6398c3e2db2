//! What did not come to its end: operations, restores, and what they left.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::disk::{self, Dir, LockKind};
use crate::doctor::{Condition, Diagnosis, FIX, Parts};
use crate::error::Result;
use crate::id::{CheckpointId, OperationId, WorkspaceId};
use crate::index::Index;
use crate::journal::{self, Journal, JournalPhase};
use crate::operation::OperationRow;
use crate::path::shell_word;
use crate::registration::{Liveness, liveness_of};
use crate::sessions::Found;
use crate::workspaces::{Workspace, identity_of};

pub(super) fn look(parts: &Parts<'_>) -> Result<Vec<Diagnosis>> {
    let mut found = Vec::new();
    if let Some(index) = parts.index {
        operations(parts, index, &mut found)?;
    }
    restores(parts, &mut found)?;
    Ok(found)
}

/// Operations, leases, temporary files, and checkpoints that a dead process has committed and not
/// recorded.
fn operations(parts: &Parts<'_>, index: &Index, found: &mut Vec<Diagnosis>) -> Result<()> {
    // The leases first: one that is made after the rows were read has no row among them.
    let leases = Dir::open(&parts.layout.leases())?;
    let held: Vec<(OperationId, bool)> = disk::leases(&leases)?
        .into_iter()
        .map(|id| Ok((id, disk::is_alive(&leases, id)?)))
        .collect::<Result<_>>()?;
    let rows = index.read("list operations", |tx| tx.operations())?;
    let mut living: Vec<&OperationRow> = Vec::new();
    for row in &rows {
        let (id, kind) = (row.operation.id, row.operation.kind.as_str());
        let (path, began) = (leases.path_of(id.to_string().as_bytes()), row.operation.started_at);
        match liveness_of(parts.host, &leases, row)? {
            Liveness::Alive => living.push(row),
            Liveness::Dead => found.push(Diagnosis::new(
                Condition::OperationDead,
                path,
                format!("the process of a {kind} that began at {began} is dead"),
                format!("{FIX} clears up after it; so does the next capture"),
            )),
            Liveness::Foreign => {
                living.push(row);
                found.push(Diagnosis::new(
                    Condition::OperationForeign,
                    path,
                    format!(
                        "a {kind} of another machine that began at {began} may still run; until it \
                         is over `turnpoint gc` deletes nothing"
                    ),
                    format!("once it is over, `turnpoint doctor --forget-operation {id}`"),
                ));
            }
        }
    }
    let known: HashSet<OperationId> = rows.iter().map(|row| row.operation.id).collect();
    for (id, is_alive) in held {
        if !is_alive && !known.contains(&id) && !disk::is_alive(&leases, id)? {
            found.push(Diagnosis::new(
                Condition::LeaseDead,
                leases.path_of(id.to_string().as_bytes()),
                "the process that made it is dead",
                format!("{FIX} removes it; so does the next collection"),
            ));
        }
    }
    temporaries(parts, &leases, &known, found)?;
    unindexed(parts, index, &living, found)
}

fn temporaries(
    parts: &Parts<'_>,
    leases: &Dir,
    known: &HashSet<OperationId>,
    found: &mut Vec<Diagnosis>,
) -> Result<()> {
    let tmp = Dir::open(&parts.layout.tmp())?;
    for name in tmp.names()? {
        let id: Option<OperationId> =
            std::str::from_utf8(&name).ok().and_then(|name| name.parse().ok());
        let is_left = match id {
            // Those of an operation with a row are part of what is told about it.
            Some(id) => !known.contains(&id) && !disk::is_alive(leases, id)?,
            None => disk::is_abandoned(&tmp, &name)?,
        };
        if is_left {
            found.push(Diagnosis::new(
                Condition::TemporaryLeft,
                tmp.path_of(&name),
                "nobody writes it any more",
                format!("{FIX} removes it; so does the next collection"),
            ));
        }
    }
    Ok(())
}

/// Manifests that are understood and have no row, and that no living operation is about to record.
fn unindexed(
    parts: &Parts<'_>,
    index: &Index,
    living: &[&OperationRow],
    found: &mut Vec<Diagnosis>,
) -> Result<()> {
    for session in parts.sessions.names()? {
        // That it cannot be listed is told by the verification.
        let Ok(listing) = parts.sessions.listing(&session) else { continue };
        let rows = index.read("list a session", |tx| tx.checkpoints_of_session(&session))?;
        for seq in listing.manifests {
            let id = CheckpointId { session: session.clone(), seq };
            let is_known = rows.iter().any(|row| row.id.seq == seq)
                || living.iter().any(|row| row.intent.as_ref() == Some(&id));
            if is_known || !matches!(parts.sessions.read(&id), Found::Valid { .. }) {
                continue;
            }
            let mut diagnosis = Diagnosis::new(
                Condition::CheckpointUnindexed,
                parts.sessions.manifest_path(&id),
                "the index does not have it: its process died after it was committed",
                format!("{FIX} adds it; so does the next capture"),
            );
            diagnosis.checkpoints.push(id);
            found.push(diagnosis);
        }
    }
    Ok(())
}

/// Open restores, and what restores left in workspaces. Journals that cannot be understood are told by
/// the verification.
fn restores(parts: &Parts<'_>, found: &mut Vec<Diagnosis>) -> Result<()> {
    let known = parts.workspaces.all_remembered()?;
    for (id, journal) in journal::readable(parts.layout)? {
        let workspace = known.iter().find(|workspace| workspace.id == id);
        found.extend(open_restore(parts, id, &journal, workspace)?);
    }
    for workspace in &known {
        // One that is not there, or cannot be looked into, has nothing to be cleared up now.
        let Some(dir) = workspace.root().and_then(|root| Dir::open(root).ok()) else { continue };
        if is_at_work(parts, &dir)? {
            continue;
        }
        let journal = Journal::read(parts.layout, workspace.id);
        let own = match &journal {
            Ok(Some(journal)) => vec![journal.stage_name(), journal.kept_name()],
            Ok(None) => Vec::new(),
            // Nobody knows which of it is the open restore's.
            Err(_) => continue,
        };
        for name in journal::left_in(&dir).unwrap_or_default() {
            if own.iter().any(|own| own.as_bytes() == name) {
                continue;
            }
            let path = dir.path_of(journal::DIRECTORY).join(std::ffi::OsStr::from_bytes(&name));
            let next = format!(
                "look at it, take out what you miss, and remove it: `ls -lR {}`",
                shell_word(&path)
            );
            let message = "a restore that is over left it: it may hold what that displaced";
            found.push(Diagnosis::new(Condition::StageLeft, path, message, next));
        }
    }
    Ok(())
}

fn open_restore(
    parts: &Parts<'_>,
    id: WorkspaceId,
    seen: &Journal,
    workspace: Option<&Workspace>,
) -> Result<Option<Diagnosis>> {
    let (file, target) = (parts.layout.journal(id), &seen.target.id);
    let Some(root) = workspace.and_then(Workspace::root) else {
        let message = format!(
            "a restore of {target} is open, and nobody knows where its workspace is; the checkpoints \
             that it needs are kept"
        );
        let next = "`turnpoint restore --continue` in the workspace goes on with it";
        return Ok(Some(Diagnosis::new(Condition::RestoreOutOfReach, file, message, next)));
    };
    let word = shell_word(root);
    let dir = Dir::open(root).ok();
    if let Some(dir) = &dir
        && is_at_work(parts, dir)?
    {
        return Ok(None);
    }
    // A restore that ended since the journal was read has freed the workspace and left none, or one that
    // has begun since has left its own: neither was interrupted.
    // One that cannot be understood is told by the verification.
    let Ok(Some(journal)) = Journal::read(parts.layout, id) else { return Ok(None) };
    if journal.operation != seen.operation {
        return Ok(None);
    }
    let is_there =
        dir.and_then(|dir| identity_of(&dir).ok()).is_some_and(|now| journal.root.is_one(now));
    if !is_there {
        let message = format!(
            "a restore of {target} is open in {}, which is not there or is another directory now; \
             the checkpoints that it needs are kept",
            shown(root)
        );
        let next = format!(
            "if it is back, `turnpoint -C {word} restore --continue`; `turnpoint -C {word} restore \
             --abort` ends it for the directory that is there"
        );
        return Ok(Some(Diagnosis::new(Condition::RestoreOutOfReach, file, message, next)));
    }
    let (condition, message, next) = match journal.phase {
        JournalPhase::Staging => (
            Condition::RestoreDiscardable,
            format!(
                "a restore of {target} in {} was interrupted before it changed anything",
                shown(root)
            ),
            format!("{FIX} discards it; so does the next capture or restore"),
        ),
        JournalPhase::Applying => (
            Condition::RestoreHalfApplied,
            format!(
                "a restore of {target} in {} was interrupted while it changed files",
                shown(root)
            ),
            format!(
                "`turnpoint -C {word} restore --continue` completes it, `turnpoint -C {word} restore \
                 --abort` ends it as it is"
            ),
        ),
    };
    Ok(Some(Diagnosis::new(condition, file, message, next)))
}

fn shown(path: &Path) -> String {
    crate::path::printable(path.as_os_str().as_encoded_bytes())
}

/// Whether a capture or restore of the workspace runs. Makes no lock file.
fn is_at_work(parts: &Parts<'_>, root: &Dir) -> Result<bool> {
    let stat = root.stat_self()?;
    let lock = parts.layout.workspace_lock(stat.dev, stat.ino);
    if disk::modified_ns(&lock)?.is_none() {
        return Ok(false);
    }
    // Where the lock cannot be asked for, the store is read-only: nobody is at work.
    Ok(matches!(disk::try_lock(&lock, LockKind::Shared), Ok(None)))
}
