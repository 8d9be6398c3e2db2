//! A pack: the frames of many blobs in one file, with a trailer that names them.
//!
//! ```text
//! frame ...            each as in a loose blob
//! 5e 2a 4d 18  length  a skippable zstd frame, so that the file as a whole is good input for zstd
//!   256 x u32          how many frames have a hash whose first byte is at most this
//!   hash offset length 32 + 8 + 4 bytes for each frame, in order of hash
//!   XXH3-128           of the two above
//!   u32                how many frames there are
//!   "tppack01"
//! ```
//!
//! Numbers are little-endian. A lookup reads the few hundred names that share a first byte, and keeps
//! them; the checksum is for those who rely on the whole of it. What a damaged trailer makes of a
//! lookup is harmless: a frame is only served if its content has the hash that was asked for.
//!
//! The order of the names and the table before them are those of git's pack index.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rustix::io::Errno;

use crate::disk::{Dir, FileKind, FileStat, check_size, file_stat};
use crate::error::{Error, IoContext, Result, not_understood};
use crate::hash::{BlobHash, Digest};
use crate::id::PackId;
use crate::limits;

/// `0x184D2A5E`, one of the sixteen magic numbers of a skippable frame (RFC 8878, section 3.1.2).
const SKIPPABLE: [u8; 4] = [0x5e, 0x2a, 0x4d, 0x18];
const MAGIC: &[u8; 8] = b"tppack01";
const FAN_OUT: usize = 256;
const FAN_OUT_BYTES: usize = FAN_OUT * 4;
/// How long a frame's line in the trailer is.
pub(crate) const NAME_BYTES: usize = 32 + 8 + 4;
const HEADER_BYTES: usize = 8;
const FOOTER_BYTES: usize = 16 + 4 + 8;

/// Where a blob's frame lies in a pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) hash: BlobHash,
    pub(crate) offset: u64,
    /// In bytes, as stored.
    pub(crate) length: u32,
}

/// A pack that was opened. Its file is kept open, and stays readable when its name is gone, or it is opened
/// again whenever it is read: a store may have more packs than a process may have files open.
#[derive(Debug)]
pub(crate) struct Pack {
    pub(crate) id: PackId,
    /// Where its name is.
    dir: Arc<Dir>,
    path: PathBuf,
    kept: Option<Arc<File>>,
    stat: FileStat,
    /// Where the trailer begins, which is where the last frame ends at the latest.
    frames_end: u64,
    fan_out: Box<[u32; FAN_OUT]>,
    /// The frames by the first byte of their hash, read when first asked for. Empty where what was read
    /// cannot be right.
    by_first_byte: Box<[OnceLock<Box<[Frame]>>]>,
}

/// Where a pack has a blob.
#[derive(Debug)]
pub(super) enum InPack {
    At(Frame),
    Nowhere,
    /// The pack itself is not there any more: what was in it may be in one that came since.
    Gone,
}

/// Why a pack could not be opened.
#[derive(Debug)]
pub(super) enum OpenError {
    /// There is no such name any more.
    Gone,
    /// It is not a pack, or its trailer is damaged.
    Damaged(String),
    /// The store cannot be read.
    Store(Error),
}

impl Pack {
    /// Opens a pack and reads its table; keeps its file open where that is asked for.
    ///
    /// # Cost
    /// One open, one stat, two reads.
    pub(super) fn open(dir: &Arc<Dir>, id: PackId, keep: bool) -> Result<Self, OpenError> {
        let name = file_name(id);
        let path = dir.path_of(name.as_bytes());
        let file = match dir.try_open_file(name.as_bytes()) {
            Ok(Some(file)) => file,
            Ok(None) => return Err(OpenError::Gone),
            // What would stand in the way of any file says nothing against this one.
            Err(error) if error.is_lack() => return Err(OpenError::Store(error)),
            Err(error) => return Err(OpenError::Damaged(error.with_source())),
        };
        let stat = file_stat(&file, &path).map_err(OpenError::Store)?;
        if stat.kind != FileKind::File {
            return Err(OpenError::Damaged("it is not a regular file".to_owned()));
        }
        let (frames_end, fan_out) = read_table(&file, stat.size).map_err(OpenError::Damaged)?;
        let by_first_byte = (0..FAN_OUT).map(|_| OnceLock::new()).collect();
        let dir = Arc::clone(dir);
        let kept = keep.then(|| Arc::new(file));
        Ok(Self { id, dir, path, kept, stat, frames_end, fan_out, by_first_byte })
    }

    /// Whether its file is kept open.
    pub(super) fn is_kept_open(&self) -> bool {
        self.kept.is_some()
    }

    /// Its file; `None` where it has to be opened for this and there is no such name any more.
    ///
    /// # Errors
    /// [`Error::Io`], also where another file has its name: whoever took this one for gone would take that
    /// one away.
    pub(super) fn file(&self) -> Result<Option<Arc<File>>> {
        if let Some(kept) = &self.kept {
            return Ok(Some(Arc::clone(kept)));
        }
        let Some(file) = self.dir.try_open_file(file_name(self.id).as_bytes())? else {
            return Ok(None);
        };
        // Links and permission bits may be others.
        let now = file_stat(&file, &self.path)?;
        if !self.stat.is_same_inode(&now) || self.stat.size != now.size {
            return Err(not_understood(&self.path, "another file has taken its place"));
        }
        Ok(Some(Arc::new(file)))
    }

    /// Its file. For messages.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The length of its file.
    pub(crate) fn bytes(&self) -> u64 {
        self.stat.size
    }

    /// When it was written.
    pub(crate) fn mtime_ns(&self) -> i64 {
        self.stat.mtime_ns
    }

    /// Whether what its name leads to now is what was opened.
    pub(super) fn is_as_opened(&self, now: &FileStat) -> bool {
        self.stat.is_same_inode(now)
            && (self.stat.size, self.stat.ctime_ns) == (now.size, now.ctime_ns)
    }

    /// Whether its name does not lead to it any more.
    pub(super) fn is_removed(&self) -> Result<bool> {
        let now = self.dir.stat(file_name(self.id).as_bytes())?;
        Ok(now.is_none_or(|now| !self.is_as_opened(&now)))
    }

    /// How many frames it has.
    pub(crate) fn count(&self) -> u32 {
        self.fan_out[FAN_OUT - 1]
    }

    /// Where the frame of that name is. Nowhere as well where the names cannot be right, of which
    /// [`Pack::frames`] says what is wrong.
    ///
    /// # Errors
    /// [`Error::Io`] where the names cannot be read: what is in the pack nobody knows then.
    pub(super) fn find(&self, hash: BlobHash) -> Result<InPack> {
        let first = usize::from(hash.as_bytes()[0]);
        let frames = if let Some(frames) = self.by_first_byte[first].get() {
            frames
        } else {
            // What cannot be read now is not remembered as empty.
            let Some(file) = self.file()? else { return Ok(InPack::Gone) };
            let frames = self.read_names(&file, first).at("read", &self.path)?;
            self.by_first_byte[first].get_or_init(|| frames)
        };
        let found = frames.binary_search_by_key(&hash, |frame| frame.hash);
        Ok(found.map_or(InPack::Nowhere, |at| InPack::At(frames[at])))
    }

    fn read_names(&self, file: &File, first: usize) -> io::Result<Box<[Frame]>> {
        let before = if first == 0 { 0 } else { self.fan_out[first - 1] };
        let count = self.fan_out[first].saturating_sub(before) as usize;
        let start = self.frames_end
            + (HEADER_BYTES + FAN_OUT_BYTES) as u64
            + u64::from(before) * NAME_BYTES as u64;
        let mut text = vec![0; count * NAME_BYTES];
        file.read_exact_at(&mut text, start)?;
        let frames = decode_names(&text);
        let is_right = frames.iter().all(|frame| usize::from(frame.hash.as_bytes()[0]) == first)
            && are_plausible(&frames, self.frames_end);
        Ok(if is_right { frames.into() } else { Box::default() })
    }

    /// All its frames, in order of hash, from a trailer whose checksum is right; none where the pack is
    /// gone.
    ///
    /// # Errors
    /// What is wrong with the trailer.
    pub(crate) fn frames(&self) -> Result<Vec<Frame>, String> {
        let unreadable = |error: io::Error| format!("its trailer cannot be read: {error}");
        let file = match self.file() {
            Ok(Some(file)) => file,
            Ok(None) => return Ok(Vec::new()),
            Err(error) => return Err(error.with_source()),
        };
        let mut text = vec![0; FAN_OUT_BYTES + self.count() as usize * NAME_BYTES];
        let start = self.frames_end + HEADER_BYTES as u64;
        file.read_exact_at(&mut text, start).map_err(unreadable)?;
        let mut digest = [0; 16];
        file.read_exact_at(&mut digest, start + text.len() as u64).map_err(unreadable)?;
        if Digest::of(&text).to_bytes() != digest {
            return Err("the checksum of its trailer is wrong".to_owned());
        }
        let frames = decode_names(&text[FAN_OUT_BYTES..]);
        if !are_plausible(&frames, self.frames_end) {
            return Err("its trailer contradicts itself".to_owned());
        }
        Ok(frames)
    }

    /// The bytes of a frame, as they are.
    pub(crate) fn read_frame(&self, frame: &Frame) -> Result<Vec<u8>> {
        let mut bytes = vec![0; frame.length as usize];
        let file = self.file()?.ok_or(Errno::NOENT).at("read", &self.path)?;
        file.read_exact_at(&mut bytes, frame.offset).at("read", &self.path)?;
        Ok(bytes)
    }
}

/// `<32 hex>.pack`.
pub(super) fn file_name(id: PackId) -> String {
    format!("{id}.pack")
}

/// The reverse of [`file_name`].
pub(super) fn id_of(name: &[u8]) -> Option<PackId> {
    std::str::from_utf8(name).ok()?.strip_suffix(".pack")?.parse().ok()
}

/// Where the frames end, and the table, of a pack of `size` bytes.
fn read_table(file: &File, size: u64) -> Result<(u64, Box<[u32; FAN_OUT]>), String> {
    let cut = || "it ends within its trailer".to_owned();
    let unreadable = |error: io::Error| format!("its trailer cannot be read: {error}");
    let mut footer = [0; FOOTER_BYTES];
    let footer_start = size.checked_sub(FOOTER_BYTES as u64).ok_or_else(cut)?;
    file.read_exact_at(&mut footer, footer_start).map_err(unreadable)?;
    if &footer[20..] != MAGIC {
        return Err("it does not end as a pack does".to_owned());
    }
    let count = read_u32(&footer[16..20]);
    if count > limits::PACK_FRAMES_MAX {
        return Err(format!("it claims to hold {count} blobs"));
    }
    let frames_end = size.checked_sub(trailer_bytes(count as usize)).ok_or_else(cut)?;
    let mut start = [0; HEADER_BYTES + FAN_OUT_BYTES];
    file.read_exact_at(&mut start, frames_end).map_err(unreadable)?;
    let wrong = || "its trailer contradicts itself".to_owned();
    let is_ours =
        start[..4] == SKIPPABLE && read_u32(&start[4..8]) as usize == payload_bytes(count as usize);
    if !is_ours {
        return Err(wrong());
    }
    let mut fan_out = Box::new([0; FAN_OUT]);
    let mut before = 0;
    for (counted, bytes) in fan_out.iter_mut().zip(start[HEADER_BYTES..].chunks_exact(4)) {
        *counted = read_u32(bytes);
        if *counted < before {
            return Err(wrong());
        }
        before = *counted;
    }
    if before == count { Ok((frames_end, fan_out)) } else { Err(wrong()) }
}

/// The length of what the skippable frame of `count` names holds.
const fn payload_bytes(count: usize) -> usize {
    FAN_OUT_BYTES + count * NAME_BYTES + FOOTER_BYTES
}

/// The length of the whole trailer of `count` frames.
pub(super) const fn trailer_bytes(count: usize) -> u64 {
    (HEADER_BYTES + payload_bytes(count)) as u64
}

fn read_u32(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte))
}

fn read_u64(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

fn decode_names(text: &[u8]) -> Vec<Frame> {
    text.chunks_exact(NAME_BYTES)
        .map(|name| {
            let mut hash = [0; 32];
            hash.copy_from_slice(&name[..32]);
            let (offset, length) = (read_u64(&name[32..40]), read_u32(&name[40..]));
            Frame { hash: BlobHash::from_bytes(hash), offset, length }
        })
        .collect()
}

/// Whether they are in order and lie before `end`.
fn are_plausible(frames: &[Frame], end: u64) -> bool {
    let fits = |frame: &Frame| {
        let frame_end = frame.offset.checked_add(u64::from(frame.length));
        frame.length > 0 && frame_end.is_some_and(|frame_end| frame_end <= end)
    };
    frames.is_sorted_by(|left, right| left.hash < right.hash) && frames.iter().all(fits)
}

/// The trailer of a pack with these frames, which are in order of hash.
fn trailer(frames: &[Frame]) -> Vec<u8> {
    let payload = payload_bytes(frames.len());
    let mut text = Vec::with_capacity(HEADER_BYTES + payload);
    text.extend_from_slice(&SKIPPABLE);
    text.extend_from_slice(&u32::try_from(payload).unwrap_or(u32::MAX).to_le_bytes());
    let mut counted = [0u32; FAN_OUT];
    for frame in frames {
        counted[usize::from(frame.hash.as_bytes()[0])] += 1;
    }
    let mut sum = 0;
    for count in counted {
        sum += count;
        text.extend_from_slice(&sum.to_le_bytes());
    }
    for frame in frames {
        text.extend_from_slice(frame.hash.as_bytes());
        text.extend_from_slice(&frame.offset.to_le_bytes());
        text.extend_from_slice(&frame.length.to_le_bytes());
    }
    let digest = Digest::of(&text[HEADER_BYTES..]);
    text.extend_from_slice(&digest.to_bytes());
    text.extend_from_slice(&sum.to_le_bytes());
    text.extend_from_slice(MAGIC);
    text
}

/// Part of a file, from its beginning.
pub(super) struct Section<'a> {
    file: &'a File,
    at: u64,
    left: u64,
}

impl<'a> Section<'a> {
    /// The first `length` bytes of `file`.
    pub(super) fn whole(file: &'a File, length: u64) -> Self {
        Self { file, at: 0, left: length }
    }

    /// A frame in the file of its pack.
    pub(super) fn of_frame(file: &'a File, frame: &Frame) -> Self {
        Self { file, at: frame.offset, left: u64::from(frame.length) }
    }

    /// How many bytes of it are still to be read.
    pub(super) fn left(&self) -> u64 {
        self.left
    }

    /// As much of its beginning as fits in `buffer`, which does not use it up.
    pub(super) fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut ahead = Section { file: self.file, at: self.at, left: self.left };
        let mut filled = 0;
        while filled < buffer.len() {
            match ahead.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }
}

impl Read for Section<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(buffer.len()).min(buffer.len());
        if most == 0 {
            return Ok(0);
        }
        let read = self.file.read_at(&mut buffer[..most], self.at)?;
        self.at += read as u64;
        self.left -= read as u64;
        Ok(read)
    }
}

/// Writes the frames of a pack, and then its trailer, to a new file.
#[derive(Debug)]
pub(super) struct PackWriter {
    file: File,
    path: PathBuf,
    /// What is not yet written.
    buffer: Vec<u8>,
    /// Where the next frame goes.
    end: u64,
    /// In the order of writing.
    frames: Vec<Frame>,
}

impl PackWriter {
    /// `file` is new and empty.
    pub(super) fn new(file: File, path: PathBuf) -> Self {
        let buffer = Vec::with_capacity(limits::PACK_BUFFER_BYTES);
        Self { file, path, buffer, end: 0, frames: Vec::new() }
    }

    /// Whether a further frame of that length must go into another pack, none of which is to be longer
    /// than `bytes_max`.
    pub(super) fn is_full_for(&self, length: usize, bytes_max: u64) -> bool {
        !self.frames.is_empty()
            && (self.end + length as u64 > bytes_max
                || self.frames.len() >= limits::PACK_FRAMES_MAX as usize)
    }

    /// Adds a frame and gives its length. The caller sees to it that none is added twice.
    pub(super) fn add(&mut self, hash: BlobHash, frame: &[u8]) -> Result<u32> {
        if self.buffer.len() + frame.len() > limits::PACK_BUFFER_BYTES {
            self.write_out()?;
        }
        let length = u32::try_from(frame.len()).map_err(io::Error::other).at("pack", &self.path)?;
        self.frames.push(Frame { hash, offset: self.end, length });
        self.end += u64::from(length);
        if frame.len() > limits::PACK_BUFFER_BYTES {
            self.file.write_all(frame).at("write", &self.path)?;
        } else {
            self.buffer.extend_from_slice(frame);
        }
        Ok(length)
    }

    fn write_out(&mut self) -> Result<()> {
        self.file.write_all(&self.buffer).at("write", &self.path)?;
        self.buffer.clear();
        Ok(())
    }

    /// Writes the trailer. The file is whole then, and not yet durable.
    pub(super) fn finish(mut self) -> Result<()> {
        self.write_out()?;
        self.frames.sort_unstable_by_key(|frame| frame.hash);
        let trailer = trailer(&self.frames);
        self.file.write_all(&trailer).at("write", &self.path)?;
        let bytes = self.end + trailer.len() as u64;
        check_size(&self.file, bytes, &self.path)
    }
}
