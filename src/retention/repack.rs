//! Packs in a collection: loose blobs move into them, and packs with much that nothing names are
//! written anew.
//!
//! Nothing here makes content unavailable, not for a moment: what moves is in its new place, durable,
//! before the old place goes, and whoever looks for it looks twice. What is *not* moved with a pack is
//! removed with it, so that is decided as in a sweep: under the index's write lock, by rows and pins,
//! and the pack is unlinked in the same transaction.
//!
//! One pack is written at a time. Where there is no room for one, [`Packing::pack_bytes_max`], as many packs
//! are written anew together as there is room for what is needed of them, and loose blobs stay.

use std::collections::HashSet;
use std::sync::Arc;

use crate::access::Access;
use crate::blobs::{Blobs, Frame, Loose, NAME_BYTES, Pack, Presence, Staging};
use crate::clock::Timestamp;
use crate::disk;
use crate::error::{BadFile, Error, Result};
use crate::hash::BlobHash;
use crate::id::PackId;
use crate::index::Index;
use crate::limits::{self, Packing};
use crate::monitor::Monitor;
use crate::operation::OperationKind;
use crate::registration::Operation;
use crate::retention::{SweepOutcome, sweep};
use crate::sessions::with_source;

/// A pack and what of it is needed.
#[derive(Debug)]
pub(super) struct PackUse {
    pack: Arc<Pack>,
    /// In order of hash.
    live: Vec<Frame>,
    /// What nothing names, and for long enough.
    dead: Vec<Frame>,
    /// What a pack before this one holds too.
    double: Vec<Frame>,
}

impl PackUse {
    fn live_bytes(&self) -> u64 {
        bytes_of(&self.live)
    }

    fn sizes(&self) -> Sizes {
        let in_pack = |frames: &[Frame]| bytes_of(frames) + (frames.len() * NAME_BYTES) as u64;
        let needed = in_pack(&self.live);
        let content = needed + in_pack(&self.dead) + in_pack(&self.double);
        Sizes { file: self.pack.bytes(), content, needed }
    }
}

/// How long a pack is, and what of it is needed. In bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    /// All of the file.
    file: u64,
    /// All frames with their names in the trailer, which is longer than they are where blobs are tiny.
    content: u64,
    /// The same of those frames that are needed.
    needed: u64,
}

fn bytes_of(frames: &[Frame]) -> u64 {
    frames.iter().map(|frame| u64::from(frame.length)).sum()
}

/// Which packs are worth writing anew: those of which a quarter is not needed, and the small ones where
/// there are many of them. In their order.
pub(super) fn worth_rewriting(packs: &[Sizes], packing: Packing) -> Vec<usize> {
    let is_small = |pack: &Sizes| packing.is_small(pack.file);
    let small = packs.iter().filter(|pack| is_small(pack)).count();
    let is_worth = |pack: &Sizes| {
        pack.needed == 0
            || pack.needed < pack.content - pack.content / 4
            || (small > packing.small_packs_max && is_small(pack))
    };
    packs.iter().enumerate().filter(|(_, pack)| is_worth(pack)).map(|(at, _)| at).collect()
}

/// What of each pack is needed. `before`: what lost its last name, or was written, later is needed.
///
/// Cost: the names of all packs, and one pass over those of all blobs in the index.
pub(super) fn survey(blobs: &Blobs, index: &Index, before: Timestamp) -> Result<Vec<PackUse>> {
    let mut packs = blobs.packs()?.packs.to_vec();
    // The oldest first: of what is there twice the newer one is double.
    packs.sort_by_key(|pack| (pack.mtime_ns(), pack.id));
    let mut listed: Vec<(Arc<Pack>, Vec<Frame>)> = Vec::with_capacity(packs.len());
    for pack in packs {
        let frames = pack.frames().map_err(|reason| Error::DeletionBlocked {
            files: vec![BadFile { path: pack.path().to_owned(), reason }],
        })?;
        listed.push((pack, frames));
    }
    let mut hashes: Vec<BlobHash> =
        listed.iter().flat_map(|(_, frames)| frames).map(|frame| frame.hash).collect();
    hashes.sort_unstable();
    hashes.dedup();
    let free = index.read("find free blobs", |tx| tx.free_blobs_in_order(&hashes))?;
    let mut seen: HashSet<BlobHash> = HashSet::new();
    let mut uses = Vec::with_capacity(listed.len());
    for (pack, frames) in listed {
        let written = Timestamp::from_ns(pack.mtime_ns());
        let mut used = PackUse { pack, live: Vec::new(), dead: Vec::new(), double: Vec::new() };
        for frame in frames {
            let youngest =
                free.get(&frame.hash).map(|since| since.map_or(written, |s| s.max(written)));
            match youngest {
                Some(youngest) if youngest <= before => used.dead.push(frame),
                _ if !seen.insert(frame.hash) => used.double.push(frame),
                _ => used.live.push(frame),
            }
        }
        uses.push(used);
    }
    Ok(uses)
}

/// How many blobs of the packs that are worth it would be removed, and how many bytes.
pub(super) fn count(
    blobs: &Blobs,
    index: &Index,
    before: Timestamp,
    outcome: &mut SweepOutcome,
) -> Result<()> {
    let uses = survey(blobs, index, before)?;
    for at in worth_rewriting(&sizes(&uses), blobs.packing()) {
        outcome.blobs_removed += uses[at].dead.len() as u64;
        outcome.bytes_removed += bytes_of(&uses[at].dead) + bytes_of(&uses[at].double);
    }
    Ok(())
}

fn sizes(uses: &[PackUse]) -> Vec<Sizes> {
    uses.iter().map(PackUse::sizes).collect()
}

/// Moves loose blobs into packs and writes packs anew, as far as that is worth it. The caller holds the
/// sweep's lock and has swept the loose blobs.
pub(super) fn repack(
    access: &Access,
    before: Timestamp,
    effort: Effort,
    monitor: &dyn Monitor,
    outcome: &mut SweepOutcome,
) -> Result<()> {
    // A capture that protects everything is at work: nothing would be freed.
    if access.index.read("list operations", |tx| tx.operations())?.iter().any(|row| row.pin_all) {
        return Ok(());
    }
    rewrite(access, before, effort, monitor, outcome)?;
    if room_bytes(access)? < access.blobs.packing().pack_bytes_max {
        return Ok(());
    }
    consolidate(access, before, effort, monitor, outcome)
}

/// How much may be written at a time, in bytes: a pack where there is room for it, and else half of what there
/// is, since writing anew what is needed of some packs gives back the rest of them.
fn room_bytes(access: &Access) -> Result<u64> {
    let available = disk::available_bytes(&access.tmp)?;
    let room = available.saturating_sub(limits::DISK_FLOOR_BYTES).max(available / 2);
    Ok(room.min(access.blobs.packing().pack_bytes_max))
}

/// How much is done at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effort {
    /// All that is worth it.
    All,
    /// One pack of each kind: somebody waits for the end.
    One,
}

fn rewrite(
    access: &Access,
    before: Timestamp,
    effort: Effort,
    monitor: &dyn Monitor,
    outcome: &mut SweepOutcome,
) -> Result<()> {
    let mut uses = survey(&access.blobs, &access.index, before)?;
    let worth: HashSet<usize> =
        worth_rewriting(&sizes(&uses), access.blobs.packing()).into_iter().collect();
    let mut at = 0;
    uses.retain(|_| {
        at += 1;
        worth.contains(&(at - 1))
    });
    let whole = access.blobs.packing().pack_bytes_max;
    let mut room = room_bytes(access)?;
    if room < whole {
        // Merging alone gives nothing back.
        uses.retain(|used| !used.dead.is_empty() || !used.double.is_empty());
    }
    let (mut group, mut bytes): (Vec<PackUse>, u64) = (Vec::new(), 0);
    for used in uses {
        if !group.is_empty() && bytes + used.live_bytes() > room {
            if effort == Effort::One {
                break;
            }
            rewrite_group(access, std::mem::take(&mut group), monitor, outcome)?;
            (room, bytes) = (room_bytes(access)?, 0);
        }
        // What does not fit stays until there is more room; one that nothing needs takes none.
        if used.live_bytes() <= room || room == whole {
            bytes += used.live_bytes();
            group.push(used);
        }
    }
    if group.is_empty() { Ok(()) } else { rewrite_group(access, group, monitor, outcome) }
}

/// Writes what is needed of some packs into a new one and removes them.
fn rewrite_group(
    access: &Access,
    group: Vec<PackUse>,
    monitor: &dyn Monitor,
    outcome: &mut SweepOutcome,
) -> Result<()> {
    let (operation, ()) = Operation::begin(access, OperationKind::Sweep, None, |_| Ok((None, ())))?;
    let staging = access.blobs.stage(operation.id())?;
    let going: HashSet<PackId> = group.iter().map(|used| used.pack.id).collect();
    let mut whole = Vec::new();
    for used in group {
        if monitor.is_cancelled() {
            return Err(Error::Cancelled);
        }
        if copy(access, &staging, &used.pack, &used.live)?
            && is_elsewhere(access, &used.pack, &used.double, &going, &staging)?
        {
            whole.push(used);
        }
    }
    staging.publish()?;
    for used in whole {
        remove(access, &operation, used, outcome)?;
    }
    operation.end()
}

/// Copies frames, each after its content was compared with its name. `false`, and none is copied, where
/// one is damaged and there is no other: the pack stays as it is, for a person or a healing capture.
///
/// Cost: the frames are in memory together, no more than a pack.
fn copy(access: &Access, staging: &Staging<'_>, pack: &Pack, frames: &[Frame]) -> Result<bool> {
    let mut whole = Vec::with_capacity(frames.len());
    for frame in frames {
        if let Some(bytes) = good_frame(pack, frame) {
            whole.push((frame.hash, bytes));
        } else if !matches!(access.blobs.check(frame.hash, None)?, Presence::Present { .. }) {
            return Ok(false);
        }
    }
    for (hash, bytes) in whole {
        staging.put_in_pack(hash, &bytes)?;
    }
    Ok(true)
}

/// The bytes of a frame, if its content is what its name says. What cannot be read is as good as damaged.
fn good_frame(pack: &Pack, frame: &Frame) -> Option<Vec<u8>> {
    let bytes = pack.read_frame(frame).ok()?;
    crate::blobs::is_frame_of(&bytes, frame.hash).then_some(bytes)
}

/// Whether good copies of all these are in a pack that stays or about to be published; `going` are the
/// packs that are not to be relied upon, since they go with this one.
fn is_elsewhere(
    access: &Access,
    pack: &Pack,
    frames: &[Frame],
    going: &HashSet<PackId>,
    staging: &Staging<'_>,
) -> Result<bool> {
    let others = access.blobs.packs()?;
    for frame in frames {
        let mut staying = others.find(frame.hash).filter(|(other, _)| !going.contains(&other.id));
        let is_kept = staging.is_staged(frame.hash)
            || staying.any(|(other, found)| good_frame(other, &found).is_some());
        if is_kept {
            // A capture may have given that pack its name a moment ago: it must be durable.
            staging.reuse(frame.hash);
        }
        // The other one is damaged, or goes too: then this is the one that is needed.
        if !is_kept && !copy(access, staging, pack, std::slice::from_ref(frame))? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// How often what somebody needs after all is copied before the pack is left as it is.
const ROUNDS_MAX: u32 = 3;

/// Removes a pack whose needed content is elsewhere, unless somebody needs more of it by now: that is
/// copied first.
fn remove(
    access: &Access,
    operation: &Operation<'_>,
    used: PackUse,
    outcome: &mut SweepOutcome,
) -> Result<()> {
    let mut dropped = used.dead;
    for _ in 0..ROUNDS_MAX {
        let removed = access.index.write("remove a pack", |tx| {
            // Asked under the write lock, as in a sweep: a pin that was committed by now is seen, and
            // one that comes later does not find it.
            let mut needed = Vec::new();
            for frame in &dropped {
                if !tx.is_removable(frame.hash)? {
                    needed.push(*frame);
                }
            }
            if !needed.is_empty() {
                return Ok(Err(needed));
            }
            sweep::refuse_if_exchanged(access)?;
            access.blobs.remove_pack(used.pack.id)?;
            let packs = access.blobs.packs()?;
            for frame in &dropped {
                if !access.blobs.is_there(frame.hash, &packs)? {
                    tx.delete_blob(frame.hash)?;
                }
            }
            Ok(Ok(()))
        });
        let needed = match removed {
            Ok(Ok(())) => {
                outcome.blobs_removed += dropped.len() as u64;
                outcome.bytes_removed += bytes_of(&dropped) + bytes_of(&used.double);
                return Ok(());
            }
            Ok(Err(needed)) => needed,
            Err(error @ Error::Io { .. }) => {
                let (path, reason) = (used.pack.path().to_owned(), with_source(&error));
                outcome.failed.push(BadFile { path, reason });
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let staging = access.blobs.stage(operation.id())?;
        if !copy(access, &staging, &used.pack, &needed)? {
            return Ok(());
        }
        staging.publish()?;
        dropped.retain(|frame| !needed.contains(frame));
    }
    Ok(())
}

/// Moves small loose blobs that something names into packs, if there are enough of them.
fn consolidate(
    access: &Access,
    before: Timestamp,
    effort: Effort,
    monitor: &dyn Monitor,
    outcome: &mut SweepOutcome,
) -> Result<()> {
    let mut loose = Vec::new();
    for shard in 0..=u8::MAX {
        let mut blobs = access.blobs.list_shard(shard)?.blobs;
        blobs.sort_unstable_by_key(|blob| blob.hash);
        let hashes: Vec<BlobHash> = blobs.iter().map(|blob| blob.hash).collect();
        let free = access.index.read("find free blobs", |tx| tx.free_blobs(&hashes))?;
        // A young one may be on its way into a checkpoint, a long one gains nothing, and what nothing
        // names is about to go.
        blobs.retain(|blob| {
            blob.stored_size <= limits::CONSOLIDATED_BYTES_MAX
                && Timestamp::from_ns(blob.mtime_ns) <= before
                && !free.contains_key(&blob.hash)
        });
        loose.extend(blobs);
    }
    let packing = access.blobs.packing();
    if loose.len() < packing.consolidate_from {
        return Ok(());
    }
    let mut batch: Vec<Loose> = Vec::new();
    let mut bytes = 0;
    for blob in loose {
        if bytes + blob.stored_size > packing.pack_bytes_max
            || batch.len() >= limits::PACK_FRAMES_MAX as usize
        {
            if effort == Effort::One {
                break;
            }
            consolidate_batch(access, &std::mem::take(&mut batch), monitor, outcome)?;
            bytes = 0;
        }
        bytes += blob.stored_size;
        batch.push(blob);
    }
    consolidate_batch(access, &batch, monitor, outcome)
}

fn consolidate_batch(
    access: &Access,
    batch: &[Loose],
    monitor: &dyn Monitor,
    outcome: &mut SweepOutcome,
) -> Result<()> {
    let (operation, ()) = Operation::begin(access, OperationKind::Sweep, None, |_| Ok((None, ())))?;
    let staging = access.blobs.stage(operation.id())?;
    let packs = access.blobs.packs()?;
    let mut moved: Vec<BlobHash> = Vec::with_capacity(batch.len());
    for blob in batch {
        if monitor.is_cancelled() {
            return Err(Error::Cancelled);
        }
        // A damaged one stays where it is: verify names it, and a capture that has the bytes heals it.
        let Ok(Some(bytes)) = access.blobs.read_loose(blob.hash) else { continue };
        if !crate::blobs::is_frame_of(&bytes, blob.hash) {
            continue;
        }
        // A good one of the same length, which is what the index knows of it, makes this one needless.
        let is_double = packs
            .find(blob.hash)
            .any(|(pack, frame)| pack.read_frame(&frame).is_ok_and(|other| other == bytes));
        if is_double {
            // A capture may have given that pack its name a moment ago: it must be durable.
            staging.reuse(blob.hash);
        } else {
            staging.put_in_pack(blob.hash, &bytes)?;
        }
        moved.push(blob.hash);
    }
    staging.publish()?;
    for hash in &moved {
        // In its new place it is durable by now, so no transaction is needed: nothing is taken away.
        access.blobs.remove(*hash)?;
    }
    outcome.blobs_packed += moved.len() as u64;
    operation.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pack_is_written_anew_where_a_quarter_is_not_needed_or_many_are_small() {
        let packing = Packing { pack_bytes_max: 8_000, small_packs_max: 2, ..Packing::default() };
        let large = |content: u64, needed: u64| Sizes { file: 1_000 + content, content, needed };
        let small = |needed: u64| Sizes { file: 999, content: 100, needed };
        let cases: [(&str, &[Sizes], &[usize]); 12] = [
            ("there is none", &[], &[]),
            ("all is needed", &[large(4_000, 4_000)], &[]),
            ("three quarters are needed", &[large(4_000, 3_000)], &[]),
            ("less is needed", &[large(4_000, 2_999)], &[0]),
            ("nothing is needed", &[large(4_000, 0)], &[0]),
            ("nothing is in it", &[large(0, 0)], &[0]),
            ("the trailer is longer than the blobs", &[small(100)], &[]),
            ("few are small", &[small(100), small(100)], &[]),
            ("many are small", &[small(100), small(80), small(100)], &[0, 1, 2]),
            ("an eighth is not small", &[small(100), small(100), large(0, 0)], &[2]),
            (
                "the large one beside many small ones stays",
                &[small(100), large(4_000, 4_000), small(100), small(100)],
                &[0, 2, 3],
            ),
            (
                "each by itself",
                &[large(4_000, 0), large(4_000, 4_000), large(9_000, 1), small(74)],
                &[0, 2, 3],
            ),
        ];
        for (name, packs, expected) in cases {
            assert_eq!(worth_rewriting(packs, packing), expected, "{name}");
        }
        let none_small = Packing { small_packs_max: 0, ..packing };
        assert_eq!(worth_rewriting(&[small(100)], none_small), [0]);
        assert_eq!(worth_rewriting(&[large(4_000, 4_000)], none_small), [0; 0]);
        let most = Sizes { file: u64::MAX, content: u64::MAX, needed: u64::MAX };
        assert_eq!(worth_rewriting(&[most], packing), [0; 0]);
    }
}
