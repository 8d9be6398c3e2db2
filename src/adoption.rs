//! Bringing the index up to what the files say: manifests without a row, operations without a
//! process.
//!
//! A manifest is committed when its file is; the row comes after, and a crash in between leaves the
//! file alone. Whoever comes next adopts it. The reverse, a row without its file, is never repaired
//! here: a missing manifest is damage and not an order.
//!
//! Where a row was made from another manifest than the one that is there, somebody has put back an index
//! from before a purge. What the manifests name now is not in it, so it is built anew.

use std::collections::HashMap;

use crate::access::Access;
use crate::disk;
use crate::error::{BadFile, Error, Result};
use crate::hash::Digest;
use crate::id::{CheckpointId, SessionName};
use crate::index;
use crate::operation::OperationRow;
use crate::registration::{Liveness, liveness};
use crate::sessions::{Found, SessionListing, with_source};

/// What comparing files with rows found that is not as it should be.
#[derive(Debug, Default)]
pub(crate) struct Compared {
    /// Files without a row that cannot be understood, or whose pages cannot: while there are any,
    /// nothing may be deleted, since nobody knows what they name.
    pub(crate) unreadable: Vec<BadFile>,
    /// Rows whose manifest is gone although nobody pruned it.
    pub(crate) missing: Vec<BadFile>,
    /// Operations of another machine.
    pub(crate) foreign: Vec<OperationRow>,
    /// How many checkpoints were adopted.
    pub(crate) adopted: u64,
}

/// Ends the operations of dead processes: adopts what they committed, drops their pins.
///
/// Returns those that live, here or elsewhere.
pub(crate) fn reap(access: &Access, compared: &mut Compared) -> Result<Vec<OperationRow>> {
    let rows = access.index.read("list operations", |tx| tx.operations())?;
    let mut living = Vec::new();
    for row in rows {
        match liveness(access, &row)? {
            Liveness::Alive => living.push(row),
            Liveness::Foreign => {
                compared.foreign.push(row.clone());
                living.push(row);
            }
            Liveness::Dead => reap_one(access, &row, compared)?,
        }
    }
    Ok(living)
}

/// Ends an operation that the caller knows to be over, whatever its lease says: adopts what it
/// committed, if that can be read, and drops its pins.
pub(crate) fn end_operation(access: &Access, row: &OperationRow) -> Result<()> {
    reap_one(access, row, &mut Compared::default())?;
    // Where its manifest cannot be read its pins would stay; this is the decision that they go. As long
    // as that manifest is there and has no row, nothing is removed.
    access.index.write("forget an operation", |tx| tx.remove_operation(row.operation.id))?;
    access.blobs.discard_temps(row.operation.id)?;
    disk::remove_dead(&access.leases, row.operation.id).map(|_| ())
}

fn reap_one(access: &Access, row: &OperationRow, compared: &mut Compared) -> Result<()> {
    // The session's directory is listed before the pins go: a manifest that the dead process had
    // committed needs its blobs, and until its rows are in only the pins keep them.
    let intended = match &row.intent {
        None => None,
        Some(id) => match list(access, &id.session, compared) {
            Some(listing) => listing.manifests.contains(&id.seq).then_some(id),
            // Nobody knows what it committed: its pins stay until somebody does.
            None => return Ok(()),
        },
    };
    let known = match intended {
        Some(id) => access.index.read("find a checkpoint", |tx| tx.checkpoint(id))?.is_some(),
        None => true,
    };
    if let Some(id) = intended
        && !known
        && !adopt(access, id, Some(row), compared)?
    {
        // Unreadable: its pins stay until somebody decides.
        return Ok(());
    }
    access.index.write("reap an operation", |tx| tx.remove_operation(row.operation.id))?;
    access.blobs.discard_temps(row.operation.id)?;
    disk::remove_dead(&access.leases, row.operation.id).map(|_| ())
}

/// Inserts the rows of one manifest and, in the same transaction, ends the operation that made it.
/// Returns whether it could be understood.
fn adopt(
    access: &Access,
    id: &CheckpointId,
    operation: Option<&OperationRow>,
    compared: &mut Compared,
) -> Result<bool> {
    let bad = |reason: String| BadFile { path: access.sessions.manifest_path(id), reason };
    let (manifest, digest, file_bytes) = match access.sessions.read(id) {
        Found::Valid { manifest, digest, file_bytes } => (manifest, digest, file_bytes),
        Found::Legacy => return Ok(true),
        // Pruned by another process between the listing and now.
        Found::Absent => return Ok(true),
        Found::Unreadable { reason } => {
            compared.unreadable.push(bad(reason));
            return Ok(false);
        }
    };
    let pin = match access.sessions.read_pin(id) {
        Ok(pin) => pin,
        Err(error) => {
            compared
                .unreadable
                .push(BadFile { path: access.sessions.pin_path(id), reason: with_source(&error) });
            return Ok(false);
        }
    };
    let path = access.sessions.manifest_path(id);
    // Who wrote it may have died before its name was durable. A row that outlives it in a power cut would
    // say that it is missing.
    access.sessions.sync(&id.session)?;
    // How long its blobs are as stored is not asked here: a listing of all for one checkpoint. Until the
    // next rebuild those that are new count as long as they are before compression.
    let inserted = access.index.write("adopt a checkpoint", |tx| {
        // Looked at again where it is decided: a prune may have dropped file and row since, and a row
        // whose file is gone would be taken for damage.
        if disk::modified_ns(&path)?.is_none() {
            return Ok(false);
        }
        tx.insert_checkpoint(&manifest, digest, file_bytes, &pin, &HashMap::new(), &access.blobs)?;
        if let Some(operation) = operation {
            tx.remove_operation(operation.operation.id)?;
        }
        Ok(true)
    });
    match inserted {
        Ok(is_there) => {
            compared.adopted += u64::from(is_there);
            Ok(true)
        }
        Err(error) if error.is_lost_content() => {
            compared.unreadable.push(bad(with_source(&error)));
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Adopts what lies in one session's directory without a row. A manifest that a living operation is
/// about to index is left to it.
pub(crate) fn adopt_session(
    access: &Access,
    session: &SessionName,
    living: &[OperationRow],
    compared: &mut Compared,
) -> Result<()> {
    let Some(listing) = list(access, session, compared) else { return Ok(()) };
    let rows = access.index.read("list a session", |tx| tx.checkpoints_of_session(session))?;
    for seq in &listing.manifests {
        let id = CheckpointId { session: session.clone(), seq: *seq };
        let has_row = rows.iter().any(|row| row.id.seq == *seq);
        let is_intended = living.iter().any(|row| row.intent.as_ref() == Some(&id));
        if !has_row && !is_intended {
            adopt(access, &id, None, compared)?;
        }
    }
    for row in rows.iter().filter(|row| !row.is_pruning()) {
        if listing.manifests.binary_search(&row.id.seq).is_err() && is_missing(access, &row.id)? {
            compared.missing.push(BadFile {
                path: access.sessions.manifest_path(&row.id),
                reason: "it is gone although nobody pruned it".to_owned(),
            });
        }
    }
    Ok(())
}

/// The names in a session's directory; `None` where it cannot be listed, which is noted: nobody knows
/// what is in it, and the other sessions are as they are.
fn list(access: &Access, session: &SessionName, compared: &mut Compared) -> Option<SessionListing> {
    match access.sessions.listing(session) {
        Ok(listing) => Some(listing),
        Err(error) => {
            let (path, reason) = (access.sessions.directory(session), with_source(&error));
            compared.unreadable.push(BadFile { path, reason });
            None
        }
    }
}

/// Whether a row has no file, looked at again: between the listing and the rows another process may
/// have committed or pruned it.
fn is_missing(access: &Access, id: &CheckpointId) -> Result<bool> {
    if !matches!(access.sessions.read(id), Found::Absent) {
        return Ok(false);
    }
    let row = access.index.read("find a checkpoint", |tx| tx.checkpoint(id))?;
    Ok(row.is_some_and(|row| !row.is_pruning()))
}

/// Requires that every row was made from the manifest that is there, which every sweep does. Else what the
/// manifest names has no row, and would be removed as needed by nobody. One that cannot be read goes on
/// counting by its row.
///
/// # Errors
/// [`Error::IndexDamaged`], naming the checkpoint.
///
/// Cost: the reading of every manifest.
pub(crate) fn require_own_manifests(access: &Access) -> Result<()> {
    for session in access.sessions.names()? {
        let rows = access.index.read("list a session", |tx| tx.checkpoints_of_session(&session))?;
        for row in rows.iter().filter(|row| !row.is_pruning()) {
            let id = CheckpointId { session: session.clone(), seq: row.id.seq };
            require_own_manifest(access, &id, row.digest)?;
        }
    }
    Ok(())
}

/// As [`require_own_manifests`], of one checkpoint, whose row has `recorded`.
pub(crate) fn require_own_manifest(
    access: &Access,
    id: &CheckpointId,
    recorded: Digest,
) -> Result<()> {
    match access.sessions.read(id) {
        Found::Valid { digest, .. } if digest != recorded => Err(Error::IndexDamaged {
            path: access.layout.root().join(index::FILE_NAME),
            reason: index::other_manifest(id, digest, recorded),
        }),
        _ => Ok(()),
    }
}

/// Compares the whole store with the index: the start of every sweep.
///
/// Cost: one directory listing a session, and the reading of what has no row.
pub(crate) fn compare_all(access: &Access) -> Result<Compared> {
    let mut compared = Compared { unreadable: access.sessions.unlisted()?, ..Compared::default() };
    let living = reap(access, &mut compared)?;
    for session in access.sessions.names()? {
        adopt_session(access, &session, &living, &mut compared)?;
    }
    // A session whose directory is gone has rows and no listing: it is as missing as its manifests.
    let on_disk = access.sessions.names()?;
    for session in access.index.read("list sessions", |tx| tx.sessions())? {
        if !on_disk.contains(&session.name) {
            adopt_session(access, &session.name, &living, &mut compared)?;
        }
    }
    Ok(compared)
}
