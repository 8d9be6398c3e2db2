//! What can be saved of a pack whose trailer is damaged: the frames speak for themselves.

use std::collections::HashSet;
use std::os::unix::fs::FileExt;

use rustix::io::Errno;

use crate::blobs::pack::{Frame, file_name, trailer_bytes};
use crate::blobs::{Blobs, frame, is_errno, is_frame_of};
use crate::disk::{self, Dir, file_stat};
use crate::error::{BadFile, Repair, Result};
use crate::hash::BlobHash;
use crate::id::{OperationId, PackId};
use crate::limits;

/// A zstd frame begins with this.
const FRAME: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// No pack of ours is longer: a frame may be longer than its content by a little, and the trailer follows.
const SALVAGED_BYTES_MAX: u64 = limits::PACK_BYTES_MAX + 2 * limits::FILE_IN_MEMORY_BYTES_MAX;

/// How much is read at one time: what a disk cannot read is most often not more.
const PIECE_BYTES: usize = 4096;

/// What can be read in a file that was a pack.
#[derive(Debug)]
pub(crate) struct WholeBlobs {
    pub(crate) hashes: HashSet<BlobHash>,
    /// Whether there is nothing else in it but a trailer of the length that it should have.
    pub(crate) is_all: bool,
}

impl Blobs {
    /// Writes what is whole in each pack that cannot be opened, or whose trailer is damaged, into new
    /// packs, and then moves the damaged one to the directory `aside`. Gives those, and the ones that
    /// cannot be read at all, which stay where they are. The caller keeps everybody else out of the
    /// store.
    ///
    /// # Durability
    /// What was saved is durable before the damaged pack leaves its place.
    ///
    /// # Cost
    /// The reading and decoding of these packs, each of which is in memory for that.
    pub(crate) fn salvage_packs(&self, aside: &Dir) -> Result<(Vec<Repair>, Vec<BadFile>)> {
        let list = self.packs.list()?;
        let mut damaged = list.damaged.to_vec();
        for pack in list.packs.iter() {
            if let Err(reason) = pack.frames() {
                damaged.push((pack.id, reason));
            }
        }
        let dir = self.packs.dir()?;
        let (mut repairs, mut left) = (Vec::new(), Vec::new());
        for (id, reason) in damaged {
            let name = file_name(id);
            let count = match self.salvage(&dir, &name) {
                Ok(count) => count,
                Err(error) => {
                    let (path, reason) = (dir.path_of(name.as_bytes()), error.with_source());
                    left.push(BadFile { path, reason });
                    continue;
                }
            };
            let kept = disk::set_aside(&dir, name.as_bytes(), aside)?;
            let reason = format!("{reason}; {count} blobs of it were whole");
            repairs.push(Repair { file: dir.path_of(name.as_bytes()), reason, aside: kept });
        }
        Ok((repairs, left))
    }

    /// As [`Blobs::salvage_packs`] for one pack, which stays where it is. Gives how many blobs of it were
    /// whole.
    ///
    /// # Durability
    /// As there.
    pub(crate) fn salvage_pack(&self, id: PackId) -> Result<u64> {
        self.salvage(&self.packs.dir()?, &file_name(id))
    }

    /// What is wrong with a pack; `None` where every frame of it is what the trailer says. `id` is of one
    /// that is there.
    ///
    /// # Cost
    /// All of it is read and decoded.
    pub(crate) fn pack_damage(&self, id: PackId) -> Result<Option<String>> {
        let list = self.packs.list()?;
        if let Some((_, reason)) = list.damaged.iter().find(|(damaged, _)| *damaged == id) {
            return Ok(Some(reason.clone()));
        }
        let Some(pack) = list.packs.iter().find(|pack| pack.id == id) else { return Ok(None) };
        let frames = match pack.frames() {
            Ok(frames) => frames,
            Err(reason) => return Ok(Some(reason)),
        };
        let is_whole = |frame: &&Frame| {
            pack.read_frame(frame).is_ok_and(|bytes| is_frame_of(&bytes, frame.hash))
        };
        let whole = frames.iter().filter(is_whole).count();
        Ok((whole < frames.len()).then(|| {
            format!("{} of {} blobs in it are damaged", frames.len() - whole, frames.len())
        }))
    }

    /// The blobs that [`Blobs::salvage_pack`] would save.
    ///
    /// # Cost
    /// As that.
    pub(crate) fn whole_in_pack(&self, id: PackId) -> Result<HashSet<BlobHash>> {
        let mut hashes = HashSet::new();
        Self::each_whole(&self.packs.dir()?, &file_name(id), &mut |hash, _| {
            hashes.insert(hash);
            Ok(())
        })?;
        Ok(hashes)
    }

    /// The blobs that are whole in a file that was a pack, wherever it lies.
    ///
    /// # Cost
    /// As [`Blobs::whole_in_pack`].
    pub(crate) fn whole_in_file(dir: &Dir, name: &str) -> Result<WholeBlobs> {
        let (mut hashes, mut bytes, mut count) = (HashSet::new(), 0, 0);
        Self::each_whole(dir, name, &mut |hash, frame| {
            hashes.insert(hash);
            bytes += frame.len() as u64;
            count += 1;
            Ok(())
        })?;
        let size = dir.stat(name.as_bytes())?.map_or(0, |stat| stat.size);
        Ok(WholeBlobs { hashes, is_all: bytes + trailer_bytes(count) == size })
    }

    fn salvage(&self, dir: &Dir, name: &str) -> Result<u64> {
        let staging = self.stage(OperationId::random())?;
        let mut count = 0;
        Self::each_whole(dir, name, &mut |hash, frame| {
            count += 1;
            staging.put_in_pack(hash, frame)
        })?;
        staging.publish()?;
        Ok(count)
    }

    /// Shows `each` every frame of a file that is whole, whatever the trailer says. What cannot be read
    /// is taken for zeros.
    fn each_whole(
        dir: &Dir,
        name: &str,
        each: &mut dyn FnMut(BlobHash, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let path = dir.path_of(name.as_bytes());
        let file = match dir.open_file(name.as_bytes()) {
            Ok(file) => file,
            // A symlink, a socket.
            Err(error) if is_errno(&error, Errno::LOOP) || is_errno(&error, Errno::NXIO) => {
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let stat = file_stat(&file, &path)?;
        if stat.kind != disk::FileKind::File {
            return Ok(());
        }
        let length = usize::try_from(stat.size.min(SALVAGED_BYTES_MAX)).unwrap_or(0);
        let mut bytes = vec![0; length];
        // What cannot be read stays zero, and costs the blobs that lie there and no others.
        for (number, piece) in bytes.chunks_mut(PIECE_BYTES).enumerate() {
            if file.read_exact_at(piece, (number * PIECE_BYTES) as u64).is_err() {
                piece.fill(0);
            }
        }
        let mut at = 0;
        while let Some(begin) = find(&bytes, at) {
            let rest = &bytes[begin..];
            let whole = frame::length(rest)
                .and_then(|length| Some((&rest[..length], frame::decode_whole(&rest[..length])?)));
            match whole {
                Some((frame, content)) => {
                    each(BlobHash::of(&content), frame)?;
                    at = begin + frame.len();
                }
                None => at = begin + 1,
            }
        }
        Ok(())
    }
}

/// Where, from `start` on, a frame may begin.
fn find(bytes: &[u8], start: usize) -> Option<usize> {
    let rest = bytes.get(start..)?;
    rest.windows(FRAME.len()).position(|bytes| bytes == FRAME).map(|at| start + at)
}
