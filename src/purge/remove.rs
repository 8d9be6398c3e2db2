//! Removing what no checkpoint names, to the last copy.
//!
//! A sweep without grace, pins and thresholds: the caller has the store to itself, every manifest and
//! page has been read for the index, and no operation is in flight. What a sweep leaves for later goes
//! here too: content of checkpoints that were dropped before, and dead frames in packs that are not
//! worth writing anew otherwise. Nobody can tell by a hash whether one of them is an earlier state of a
//! purged path.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use crate::access::Access;
use crate::blobs::{Frame, Pack, Presence, Staging, is_frame_of};
use crate::disk::{self, Dir};
use crate::error::{BadFile, Error, Result};
use crate::hash::BlobHash;
use crate::index;
use crate::journal;
use crate::layout::Layout;
use crate::limits;
use crate::monitor::{Monitor, Phase};
use crate::operation::OperationKind;
use crate::purge::{Intent, Removed};
use crate::registration::Operation;

/// Removes every blob that no row names, loose or in a pack, the files of the quarantine that the intent
/// names, and journals that were set aside.
///
/// # Errors
/// What cannot be removed is an error: the purge is not over then. [`Error::DeletionBlocked`] where the
/// trailer of a pack is damaged.
///
/// # Durability
/// What was removed stays removed when it returns. What is needed of a pack is durable in its new place
/// before the old pack goes.
pub(crate) fn remove(access: &Access, intent: &Intent, monitor: &dyn Monitor) -> Result<Removed> {
    monitor.phase(Phase::Sweep, Some(256));
    let mut removed = Removed::default();
    for shard in 0..=u8::MAX {
        remove_loose(access, shard, &mut removed)?;
        monitor.advanced(1, 0);
    }
    rewrite_packs(access, &mut removed)?;
    // Also where nothing went now: a process may have died after its unlinks.
    access.blobs.sync_removals()?;
    remove_quarantined(&access.layout, &intent.quarantined)?;
    remove_temporaries(access)?;
    forget_old_index(&access.layout)?;
    journal::forget_set_aside(&access.layout)?;
    Ok(removed)
}

/// Which of `hashes` nothing names.
fn free(access: &Access, hashes: &[BlobHash]) -> Result<BTreeSet<BlobHash>> {
    let free = access.index.read("find free blobs", |tx| tx.free_blobs(hashes))?;
    Ok(free.into_keys().collect())
}

fn remove_loose(access: &Access, shard: u8, removed: &mut Removed) -> Result<()> {
    let loose = access.blobs.list_shard(shard)?.blobs;
    let hashes: Vec<BlobHash> = loose.iter().map(|blob| blob.hash).collect();
    let free = free(access, &hashes)?;
    let going: Vec<_> = loose.iter().filter(|blob| free.contains(&blob.hash)).collect();
    for batch in going.chunks(limits::SWEEP_BATCH) {
        // Unlink before commit, as in a sweep: a row without a file is harmless.
        access.index.write("remove what was purged", |tx| {
            for blob in batch {
                require_removable(tx.is_removable(blob.hash)?, access.blobs.path(blob.hash))?;
                access.blobs.remove(blob.hash)?;
                tx.delete_blob(blob.hash)?;
            }
            Ok(())
        })?;
        removed.blobs += batch.len() as u64;
        removed.bytes += batch.iter().map(|blob| blob.stored_size).sum::<u64>();
    }
    Ok(())
}

/// The counters said that nothing names it. That the rows say otherwise is damage, and nothing goes.
fn require_removable(is_removable: bool, path: PathBuf) -> Result<()> {
    if is_removable {
        return Ok(());
    }
    let reason = "the index counts it as unneeded and has a row that names it; `turnpoint doctor \
                  --rebuild` builds the index anew"
        .to_owned();
    Err(Error::DeletionBlocked { files: vec![BadFile { path, reason }] })
}

/// A pack with something in it that nothing names.
struct Mixed {
    pack: Arc<Pack>,
    live: Vec<Frame>,
    dead: Vec<Frame>,
}

impl Mixed {
    fn live_bytes(&self) -> u64 {
        self.live.iter().map(|frame| u64::from(frame.length)).sum()
    }
}

fn rewrite_packs(access: &Access, removed: &mut Removed) -> Result<()> {
    let mut group: Vec<Mixed> = Vec::new();
    let most = access.blobs.packing().pack_bytes_max;
    for mixed in mixed_packs(access)? {
        let bytes: u64 = group.iter().map(Mixed::live_bytes).sum();
        if !group.is_empty() && bytes + mixed.live_bytes() > most {
            rewrite_group(access, &std::mem::take(&mut group), removed)?;
        }
        group.push(mixed);
    }
    rewrite_group(access, &group, removed)
}

fn mixed_packs(access: &Access) -> Result<Vec<Mixed>> {
    let mut found = Vec::new();
    for pack in access.blobs.packs()?.packs.iter() {
        let frames = pack.frames().map_err(|reason| Error::DeletionBlocked {
            files: vec![BadFile { path: pack.path().to_owned(), reason }],
        })?;
        let hashes: Vec<BlobHash> = frames.iter().map(|frame| frame.hash).collect();
        let free = free(access, &hashes)?;
        let (dead, live): (Vec<Frame>, Vec<Frame>) =
            frames.into_iter().partition(|frame| free.contains(&frame.hash));
        // One without frames is a pack all the same; what lies in it nobody names.
        if !dead.is_empty() || live.is_empty() {
            found.push(Mixed { pack: Arc::clone(pack), live, dead });
        }
    }
    Ok(found)
}

/// Writes what is needed of some packs into a new one, and removes them.
fn rewrite_group(access: &Access, group: &[Mixed], removed: &mut Removed) -> Result<()> {
    if group.is_empty() {
        return Ok(());
    }
    let (operation, ()) = Operation::begin(access, OperationKind::Sweep, None, |_| Ok((None, ())))?;
    let staging = access.blobs.stage(operation.id())?;
    for mixed in group {
        for frame in &mixed.live {
            copy(access, &staging, &mixed.pack, frame)?;
        }
    }
    staging.publish()?;
    for mixed in group {
        access.index.write("remove a pack", |tx| {
            for frame in &mixed.dead {
                require_removable(tx.is_removable(frame.hash)?, mixed.pack.path().to_owned())?;
            }
            access.blobs.remove_pack(mixed.pack.id)?;
            // A row that stays without a file is forgotten by the next sweep.
            Ok(())
        })?;
        removed.packs += 1;
        removed.blobs += mixed.dead.len() as u64;
        removed.bytes += mixed.dead.iter().map(|frame| u64::from(frame.length)).sum::<u64>();
    }
    operation.end()
}

/// Copies a frame that is needed. A damaged one goes along as it is where there is no other: what could
/// be had of it before can be had then, and a verification names it as before.
fn copy(access: &Access, staging: &Staging<'_>, pack: &Pack, frame: &Frame) -> Result<()> {
    let bytes = pack.read_frame(frame)?;
    if is_frame_of(&bytes, frame.hash) {
        return staging.put_in_pack(frame.hash, &bytes);
    }
    match access.blobs.check(frame.hash, None)? {
        // In its own file, in a pack that stays, or in one whose turn comes.
        Presence::Present { .. } => Ok(()),
        Presence::Absent | Presence::Wrong { .. } => staging.put_in_pack(frame.hash, &bytes),
    }
}

fn remove_quarantined(layout: &Layout, files: &[PathBuf]) -> Result<()> {
    for file in files {
        let path = layout.root().join(file);
        disk::remove_file(&path)?;
        if let Some(dir) = path.parent()
            && disk::is_directory(dir)?
        {
            Dir::open(dir)?.sync()?;
        }
    }
    Ok(())
}

/// Removes every temporary file, however young: whoever writes one shares the store's lock, so all are of
/// the dead. One may be a blob, or a stat cache with the text of a link.
fn remove_temporaries(access: &Access) -> Result<()> {
    for name in access.tmp.names()? {
        disk::remove_tree(&access.tmp, &name)?;
    }
    access.tmp.sync()
}

/// Removes the index that was put aside when this one was built: it names what was purged, and holds the
/// text of links.
fn forget_old_index(layout: &Layout) -> Result<()> {
    let root = Dir::open(layout.root())?;
    for suffix in ["-wal", "-shm", ""] {
        root.try_unlink(format!("{}.aside{suffix}", index::FILE_NAME).as_bytes())?;
    }
    root.sync()
}
