//! Removing blobs that nothing names.
//!
//! Why it is right. A capture commits a pin before it looks whether a blob is there; a sweep unlinks
//! inside its own write transaction, after it has asked again for references and pins. Both need the
//! index's write lock, so one is first. The pin first: the sweep sees it and leaves the blob. The sweep
//! first: the file is gone before the capture looks, so the capture writes it. The unlink comes before
//! the commit: a crash in between leaves a row without a file, which is harmless, since existence is
//! asked of the file system and never of the row. Time plays no part in this; the grace of a minute
//! is a second fence.
//!
//! After the design of git's, Nix's and kopia's collectors, and against the holes that those which
//! rest on time have.

use std::collections::HashSet;

use crate::access::Access;
use crate::adoption::{self, Compared};
use crate::blobs::{Blobs, Loose};
use crate::clock::Timestamp;
use crate::disk;
use crate::error::{BadFile, Error, Result};
use crate::hash::BlobHash;
use crate::id::{CheckpointId, OperationId};
use crate::index::{Index, ReadTx};
use crate::journal;
use crate::limits;
use crate::monitor::{Monitor, Phase};
use crate::retention::{Effort, SweepOutcome, repack};
use crate::sessions::with_source;

/// What a sweep would remove once the rows of `dropped` are gone: their content waits then.
///
/// # Errors
/// As [`sweep`].
pub(crate) fn plan_sweep(
    access: &Access,
    dropped: &[CheckpointId],
    monitor: &dyn Monitor,
) -> Result<SweepOutcome> {
    run(access, &Mode::Plan { dropped }, monitor)
}

/// Removes every blob that no row names, no operation has pinned, and whose minute of grace is over.
/// The caller holds the sweep's lock.
///
/// # Errors
/// [`Error::DeletionBlocked`] while a manifest, page, journal or directory cannot be listed, read or
/// understood, an operation of another machine may still run, or one runs that the index does not know:
/// nothing is deleted then. [`Error::IndexDamaged`] where a row is of another manifest than the one that is
/// there.
///
/// # Concurrency
/// Beside captures and restores. The write lock of the index is held for one batch of blobs at a
/// time.
pub(crate) fn sweep(
    access: &Access,
    effort: Effort,
    monitor: &dyn Monitor,
) -> Result<SweepOutcome> {
    run(access, &Mode::Remove(effort), monitor)
}

/// What is asked for: to say what is left once these are dropped, or to do it.
enum Mode<'a> {
    Plan { dropped: &'a [CheckpointId] },
    Remove(Effort),
}

/// What is done with each blob.
enum Step {
    /// It is counted; `released` are those that nothing will name and that something names now.
    Count {
        released: HashSet<BlobHash>,
    },
    Remove,
}

fn run(access: &Access, mode: &Mode<'_>, monitor: &dyn Monitor) -> Result<SweepOutcome> {
    monitor.phase(Phase::Sweep, Some(256));
    adoption::require_own_manifests(access)?;
    let compared = adoption::compare_all(access)?;
    refuse_if_blind(access, &compared)?;
    // After the comparison: what it adds may name the same content.
    let step = match mode {
        Mode::Plan { dropped } => {
            let released = |tx: ReadTx<'_>| tx.released_with(dropped);
            Step::Count { released: access.index.read("find what is released", released)? }
        }
        Mode::Remove(_) => Step::Remove,
    };
    let mut outcome = SweepOutcome { adopted: compared.adopted, ..SweepOutcome::default() };
    let before = grace_began();
    for shard in 0..=u8::MAX {
        if monitor.is_cancelled() {
            return Err(Error::Cancelled);
        }
        sweep_shard(access, shard, before, &step, &mut outcome)?;
        monitor.advanced(1, 0);
    }
    if let Mode::Remove(effort) = mode {
        repack::repack(access, before, *effort, monitor, &mut outcome)?;
        forget_rows_without_file(access, before)?;
        outcome.leftovers_removed = remove_leftovers(access)?;
    } else {
        repack::count(&access.blobs, &access.index, before, &mut outcome)?;
    }
    Ok(outcome)
}

/// What is older than this may be removed.
fn grace_began() -> Timestamp {
    let grace_ns = i64::try_from(limits::GRACE.as_nanos()).unwrap_or(i64::MAX);
    Timestamp::from_ns(Timestamp::now().as_ns().saturating_sub(grace_ns))
}

/// What a sweep would remove now, by the names of blobs and the rows of the index alone: nothing is
/// compared, adopted or changed, and a sweep may still have to refuse.
///
/// # Errors
/// [`Error::DeletionBlocked`] where the trailer of a pack is damaged; [`Error::Io`].
pub(crate) fn unneeded(blobs: &Blobs, index: &Index) -> Result<SweepOutcome> {
    let (before, mut outcome) = (grace_began(), SweepOutcome::default());
    let step = Step::Count { released: HashSet::new() };
    for shard in 0..=u8::MAX {
        let loose = blobs.list_shard(shard)?.blobs;
        let candidates = candidates(index, &loose, before, &step, &mut outcome)?;
        count(&candidates, &mut outcome);
    }
    repack::count(blobs, index, before, &mut outcome)?;
    Ok(outcome)
}

/// Refuses where somebody may need a blob and cannot be asked.
///
/// # Errors
/// [`Error::DeletionBlocked`], naming each file.
pub(crate) fn refuse_if_blind(access: &Access, compared: &Compared) -> Result<()> {
    let mut files = compared.unreadable.clone();
    files.extend(compared.missing.iter().cloned());
    for operation in &compared.foreign {
        files.push(BadFile {
            path: access.layout.leases().join(operation.operation.id.to_string()),
            reason: format!(
                "operation {0}, a {1} of {2}, is of another machine and may still run; once it does \
                 not, `turnpoint doctor --forget-operation {0}` forgets it",
                operation.operation.id,
                operation.operation.kind.as_str(),
                operation.operation.started_at,
            ),
        });
    }
    match journal::survey(&access.layout) {
        Ok(journals) => files.extend(journals.unreadable.into_iter().map(|(workspace, error)| {
            let path = access.layout.journal(workspace);
            let hint = error.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
            BadFile { path, reason: format!("{}{hint}", with_source(&error)) }
        })),
        Err(error) => {
            files.push(BadFile { path: access.layout.journals(), reason: with_source(&error) });
        }
    }
    files.extend(access.blobs.damaged_packs()?);
    let lost_pages = access.index.read("list damaged pages", |tx| tx.lost_pages())?;
    for hash in lost_pages {
        let reason = "a page that a checkpoint needs is missing or damaged".to_owned();
        files.push(BadFile { path: access.blobs.path(hash), reason });
    }
    files.extend(unregistered(access)?);
    if files.is_empty() { Ok(()) } else { Err(Error::DeletionBlocked { files }) }
}

/// The leases of living processes whose operations the index does not know: another index has taken
/// the place of the one that says what they need, or another program keeps the index locked. One that
/// is just about to register is waited for.
fn unregistered(access: &Access) -> Result<Vec<BadFile>> {
    // Leases first: what is there without a row is about to get it, or had it in another index.
    let mut unknown = disk::leases(&access.leases)?;
    for look in 0..limits::REGISTERING_LOOKS_MAX {
        if look > 0 {
            std::thread::sleep(limits::REGISTERING_PAUSE);
        }
        let rows = access.index.read("list operations", |tx| tx.operations())?;
        let mut left = Vec::new();
        for id in unknown {
            let is_known = rows.iter().any(|row| row.operation.id == id);
            if !is_known && disk::is_alive(&access.leases, id)? {
                left.push(id);
            }
        }
        unknown = left;
        if unknown.is_empty() {
            break;
        }
    }
    let reason = "its process runs, and the index does not say what it needs: it waits for the index, or \
                  another index has taken the place of the one that does; when that process has \
                  ended it can be swept";
    let bad = |id: OperationId| BadFile {
        path: access.layout.leases().join(id.to_string()),
        reason: reason.to_owned(),
    };
    Ok(unknown.into_iter().map(bad).collect())
}

/// Refuses to delete by an index in whose place there is another one: captures that began since then
/// have said there what they need. Asked under the write lock, before each file.
pub(super) fn refuse_if_exchanged(access: &Access) -> Result<()> {
    if access.index.is_current()? {
        return Ok(());
    }
    let path = access.layout.root().join("index.db");
    let reason = "another file has taken its place while this process worked with it".to_owned();
    Err(Error::DeletionBlocked { files: vec![BadFile { path, reason }] })
}

/// Sweeps one of the 256 directories: what lies in it decides, with or without a row.
fn sweep_shard(
    access: &Access,
    shard: u8,
    before: Timestamp,
    step: &Step,
    outcome: &mut SweepOutcome,
) -> Result<()> {
    let loose = access.blobs.list_shard(shard)?.blobs;
    let candidates = candidates(&access.index, &loose, before, step, outcome)?;
    if let Step::Count { .. } = step {
        count(&candidates, outcome);
        return Ok(());
    }
    for batch in candidates.chunks(limits::SWEEP_BATCH) {
        remove_batch(access, batch, outcome)?;
    }
    Ok(())
}

fn count(candidates: &[&Loose], outcome: &mut SweepOutcome) {
    outcome.blobs_removed += candidates.len() as u64;
    outcome.bytes_removed += candidates.iter().map(|blob| blob.stored_size).sum::<u64>();
}

/// Those that may go; the others that nothing names are counted as waiting.
fn candidates<'a>(
    index: &Index,
    loose: &'a [Loose],
    before: Timestamp,
    step: &Step,
    outcome: &mut SweepOutcome,
) -> Result<Vec<&'a Loose>> {
    let hashes: Vec<BlobHash> = loose.iter().map(|blob| blob.hash).collect();
    let free = index.read("find free blobs", |tx| tx.free_blobs(&hashes))?;
    let mut candidates: Vec<&Loose> = Vec::new();
    for blob in loose {
        let Some(since) = free.get(&blob.hash) else {
            let is_released =
                matches!(step, Step::Count { released } if released.contains(&blob.hash));
            outcome.blobs_waiting += u64::from(is_released);
            continue;
        };
        // The later of the two: a blob just written for a running capture has no row yet, and one
        // that just lost its last name is old on disk. A time in the future is young.
        let written = Timestamp::from_ns(blob.mtime_ns);
        let youngest = since.map_or(written, |since| since.max(written));
        if youngest <= before {
            candidates.push(blob);
        } else {
            outcome.blobs_waiting += 1;
        }
    }
    Ok(candidates)
}

fn remove_batch(access: &Access, batch: &[&Loose], outcome: &mut SweepOutcome) -> Result<()> {
    let (mut removed, mut bytes, mut waiting) = (0, 0, 0);
    let mut failed = Vec::new();
    access.index.write("sweep a batch", |tx| {
        for blob in batch {
            // Asked again under the write lock: a pin that was committed by now is seen, and one
            // that comes later finds no file.
            if !tx.is_removable(blob.hash)? {
                waiting += 1;
                continue;
            }
            refuse_if_exchanged(access)?;
            match access.blobs.remove(blob.hash) {
                Ok(_) => {
                    tx.delete_blob(blob.hash)?;
                    removed += 1;
                    bytes += blob.stored_size;
                }
                Err(error) => failed.push(BadFile {
                    path: access.blobs.path(blob.hash),
                    reason: with_source(&error),
                }),
            }
        }
        Ok(())
    })?;
    outcome.blobs_removed += removed;
    outcome.bytes_removed += bytes;
    outcome.blobs_waiting += waiting;
    outcome.failed.extend(failed);
    Ok(())
}

/// Rows of blobs that nothing names and that have no file: left by a crash between unlink and commit.
fn forget_rows_without_file(access: &Access, before: Timestamp) -> Result<()> {
    let mut after = None;
    // What nothing needs any more and lies in a pack that is not yet worth writing anew has its row.
    let packs = access.blobs.packs()?;
    loop {
        let rows = access.index.read("list free rows", |tx| {
            tx.sweep_candidates(before, after.as_ref(), limits::SWEEP_BATCH)
        })?;
        let Some(last) = rows.last().cloned() else { return Ok(()) };
        let mut gone = Vec::new();
        for row in &rows {
            if !access.blobs.is_there(row.hash, &packs)? {
                gone.push(row.hash);
            }
        }
        if !gone.is_empty() {
            access.index.write("forget rows without a file", |tx| {
                // Looked at again: since then somebody may have put it there, and be about to name it.
                let packs = access.blobs.packs()?;
                for hash in gone {
                    if !access.blobs.is_there(hash, &packs)? && tx.is_removable(hash)? {
                        tx.delete_blob(hash)?;
                    }
                }
                Ok(())
            })?;
        }
        after = Some(last);
    }
}

/// Removes temporary files and leases of operations that have no row and whose lease nobody holds.
pub(crate) fn remove_leftovers(access: &Access) -> Result<u64> {
    // The lease is made before the row, and the row before the first temporary file: who has neither
    // lock nor row is dead.
    let known: HashSet<OperationId> = access
        .index
        .read("list operations", |tx| tx.operations())?
        .into_iter()
        .map(|row| row.operation.id)
        .collect();
    let mut removed = 0;
    for (name, _) in disk::list_dir(&access.layout.tmp())? {
        let id: Option<OperationId> =
            std::str::from_utf8(&name).ok().and_then(|name| name.parse().ok());
        let is_gone = match id {
            Some(id) if known.contains(&id) || disk::is_alive(&access.leases, id)? => false,
            Some(_) => disk::remove_tree(&access.tmp, &name).map(|()| true)?,
            None => disk::remove_abandoned(&access.tmp, &name)?,
        };
        removed += u64::from(is_gone);
    }
    for id in disk::leases(&access.leases)? {
        if !known.contains(&id) && !disk::is_alive(&access.leases, id)? {
            disk::remove_dead(&access.leases, id)?;
        }
    }
    Ok(removed)
}
