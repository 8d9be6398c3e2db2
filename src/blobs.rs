//! Content-addressed blobs: file contents and pages by their BLAKE3.
//!
//! A blob is one standard zstd frame that declares the size of its content and ends with a checksum,
//! readable with `zstd -dc`. It is the file `blobs/<2 hex>/<64 hex>` (*loose*), or lies with many others
//! in a file of `packs/`, or both. It is written under `tmp/`, checked, made durable and only then given
//! its name, so a name never leads to half a blob, and a name once given is only ever replaced by the
//! same content. What is read is compared with its name: a damaged blob is an error and never served.
//!
//! This module decides nothing about what is kept: who may remove a blob, and when, is known to the
//! index. It must be told that a blob is needed (a pin, committed) *before* it is asked whether the
//! blob is there; in that order no sweep can take the blob away between the two.

mod checked;
mod frame;
mod pack;
mod packs;
mod salvage;
mod seek;
mod staging;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read as _, Write};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::blobs::checked::decode_checked;
use crate::blobs::frame::DecodeError;
use crate::blobs::pack::Section;
use crate::blobs::packs::Packs;
use crate::blobs::seek::{Met, Place, Sought, Tried, declares, presence, seek_packed};
use crate::disk::{self, Dir, FileKind, FileStat, file_stat, make_private_dir};
use crate::error::{BadFile, Error, IoContext, Result};
use crate::hash::BlobHash;
use crate::id::{OperationId, PackId};
use crate::limits::{self, Packing};
use crate::manifest::PageSource;
use crate::path::RelPath;

pub(crate) use checked::is_frame_of;
pub(crate) use pack::{Frame, NAME_BYTES, Pack};
pub(crate) use packs::PackList;
pub(crate) use staging::{Published, PutOutcome, Staging};

/// Whether a blob is in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub(crate) enum Presence {
    /// It is, as far as was looked.
    Present {
        /// How many bytes its file takes.
        stored_size: u64,
    },
    /// It is not.
    Absent,
    /// Something else is in its place.
    Wrong {
        /// What is wrong with it.
        reason: String,
    },
}

/// A loose blob's file as a listing shows it: the name is that of a blob, the content was not looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Loose {
    pub(crate) hash: BlobHash,
    pub(crate) stored_size: u64,
    pub(crate) mtime_ns: i64,
}

/// All that one fan-out directory holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Shard {
    /// In no order.
    pub(crate) blobs: Vec<Loose>,
    /// What is there and cannot be a blob: other names, and anything but regular files.
    pub(crate) strangers: Vec<PathBuf>,
}

/// Why [`Blobs::copy_to`] ended early.
#[derive(Debug)]
pub(crate) enum CopyError {
    /// The blob is missing or damaged, or the store cannot be read.
    Blob(Error),
    /// The receiver refused the bytes.
    Output(io::Error),
}

impl From<Error> for CopyError {
    fn from(error: Error) -> Self {
        Self::Blob(error)
    }
}

impl CopyError {
    /// One error of both; `verb` and `path` say what was being written.
    pub(crate) fn at(self, verb: &'static str, path: impl Into<PathBuf>) -> Error {
        match self {
            Self::Blob(error) => error,
            Self::Output(source) => Error::Io { verb, path: path.into(), source },
        }
    }
}

/// The blobs of a store. All methods may be called from many threads and beside other processes.
#[derive(Debug)]
pub(crate) struct Blobs {
    /// `blobs/`.
    dir: Dir,
    /// `tmp/`, on the same file system.
    tmp: Dir,
    packs: Packs,
    packing: Packing,
}

/// What was in the store at one moment, by name alone.
#[derive(Debug)]
struct Survey {
    loose: HashSet<BlobHash>,
    packs: PackList,
}

impl Survey {
    /// Whether it is known that the store did not have it.
    fn lacks(&self, hash: BlobHash) -> bool {
        !self.loose.contains(&hash) && matches!(self.packs.holds(hash), Ok(false))
    }
}

/// What is in a loose blob's place.
enum Found {
    File(File, FileStat),
    Absent,
    Wrong(String),
}

impl Blobs {
    /// Makes `blobs/` with its 256 fan-out directories, `packs/` and `tmp/`, in the store's directory.
    /// What is there already is left as it is, so this also mends a copy of a store that lost empty
    /// directories.
    ///
    /// # Durability
    /// All the directories are durable.
    pub(crate) fn create(store: &Path) -> Result<Self> {
        let blobs = Self {
            dir: make_private_dir(&store.join("blobs"))?,
            tmp: make_private_dir(&store.join("tmp"))?,
            packs: Packs::new(store),
            packing: Packing::default(),
        };
        for shard in 0..=u8::MAX {
            blobs.make_shard(shard)?;
        }
        blobs.dir.sync()?;
        blobs.packs.dir()?;
        Ok(blobs)
    }

    /// Opens the blobs of the store whose directory is `store`.
    pub(crate) fn open(store: &Path, packing: Packing) -> Result<Self> {
        Ok(Self {
            dir: Dir::open(&store.join("blobs"))?,
            tmp: Dir::open(&store.join("tmp"))?,
            packs: Packs::new(store),
            packing,
        })
    }

    /// When content goes into packs.
    pub(crate) fn packing(&self) -> Packing {
        self.packing
    }

    fn make_shard(&self, shard: u8) -> Result<()> {
        match self.dir.make_dir(&shard_name(shard), crate::manifest::Mode::from_st_mode(0o700)) {
            Err(error) if is_errno(&error, Errno::EXIST) => Ok(()),
            other => other,
        }
    }

    /// The fan-out directory, made anew where somebody removed it.
    fn open_shard(&self, shard: u8) -> Result<Dir> {
        match self.dir.open_child(&shard_name(shard)) {
            Err(error) if is_errno(&error, Errno::NOENT) => {
                self.make_shard(shard)?;
                self.dir.sync()?;
                self.dir.open_child(&shard_name(shard))
            }
            other => other,
        }
    }

    /// Where `hash` is: its pack, if one has it, else its own file, which need not be there. For
    /// messages.
    pub(crate) fn path(&self, hash: BlobHash) -> PathBuf {
        let loose = self.loose_path(hash);
        if self.has_own_file(hash) {
            return loose;
        }
        let packs = self.packs.remembered().unwrap_or_default();
        packs.find(hash).next().map_or(loose, |(pack, _)| pack.path().to_owned())
    }

    fn loose_path(&self, hash: BlobHash) -> PathBuf {
        self.dir.path().join(place(hash).as_os())
    }

    /// Whether a blob of that hash and content size is there, without reading its content: a frame that
    /// declares exactly `size`, of exactly `stored_size` bytes where the caller knows how many there
    /// should be.
    ///
    /// A capture that is going to name a blob found here says so to its [`Staging::reuse`].
    ///
    /// # Cost
    /// One open, one stat, one read of 18 bytes; in a pack the read, and once in a process the reading
    /// of the names around it. Where there is none, also the listing of `packs/`.
    pub(crate) fn look(
        &self,
        hash: BlobHash,
        size: u64,
        stored_size: Option<u64>,
    ) -> Result<Presence> {
        let sought =
            self.seek(hash, |place| Ok::<_, Error>(declares(&place, size, stored_size)))?;
        Ok(presence(sought))
    }

    /// As [`Blobs::look`], once, and in packs that the caller has listed since the hash was pinned: for those
    /// who look for what is mostly not there. What moves into a pack meanwhile, or is in one that cannot be
    /// read, may be taken for absent, and is then written a second time.
    ///
    /// # Cost
    /// Where there is none, one failed open.
    pub(crate) fn look_once(
        &self,
        hash: BlobHash,
        size: u64,
        packs: &PackList,
    ) -> Result<Presence> {
        let mut met = Met::default();
        let mut each = |place: Place<'_>| Ok::<_, Error>(declares(&place, size, None));
        let loose = self.seek_loose(hash, &mut each, &mut met)?;
        let good = match loose {
            None => seek_packed(packs, hash, true, &mut each, &mut met)?,
            good => good,
        };
        met.unread = None;
        Ok(presence(good.map_or_else(|| met.sought(), |good| Ok(Sought::Good(good)))?))
    }

    /// Reads all of a blob and compares it with its name, and with `size` where that is known.
    pub(crate) fn check(&self, hash: BlobHash, size: Option<u64>) -> Result<Presence> {
        let sought = self.seek(hash, |mut place| {
            match decode_checked(&mut place.frame, hash, size, &mut |_| Ok(())) {
                Ok(()) => Ok(Tried::Good(place.stored_size)),
                Err(DecodeError::Damaged(reason)) => Ok(Tried::Wrong(reason)),
                Err(DecodeError::Output(source)) => Err(source).at("read", self.path(hash)),
            }
        })?;
        Ok(presence(sought))
    }

    /// Whether there is anything in the place of the blob's own file.
    pub(crate) fn has_own_file(&self, hash: BlobHash) -> bool {
        disk::modified_ns(&self.loose_path(hash)).ok().flatten().is_some()
    }

    /// As [`Blobs::check`] of the blob's own file alone.
    pub(crate) fn check_loose(&self, hash: BlobHash, size: Option<u64>) -> Result<Presence> {
        let (file, stat) = match self.find_loose(hash)? {
            Found::File(file, stat) => (file, stat),
            Found::Absent => return Ok(Presence::Absent),
            Found::Wrong(reason) => return Ok(Presence::Wrong { reason }),
        };
        let mut frame = Section::whole(&file, stat.size);
        match decode_checked(&mut frame, hash, size, &mut |_| Ok(())) {
            Ok(()) => Ok(Presence::Present { stored_size: stat.size }),
            Err(DecodeError::Damaged(reason)) => Ok(Presence::Wrong { reason }),
            Err(DecodeError::Output(source)) => Err(source).at("read", self.loose_path(hash)),
        }
    }

    /// The content of a blob, `size` bytes long.
    ///
    /// # Errors
    /// [`Error::BlobMissing`], [`Error::BlobDamaged`] where content or size are not those expected or
    /// the file cannot be read, [`Error::Io`] where it cannot be opened.
    ///
    /// # Cost
    /// Memory grows with what is decoded, never beyond `size` by more than a piece.
    pub(crate) fn read(&self, hash: BlobHash, size: u64) -> Result<Vec<u8>> {
        let sought = self.seek(hash, |mut place| {
            let at_first = size.min(limits::FILE_IN_MEMORY_BYTES_MAX);
            let mut content = Vec::with_capacity(usize::try_from(at_first).unwrap_or(0));
            let decoded = decode_checked(&mut place.frame, hash, Some(size), &mut |piece| {
                content.extend_from_slice(piece);
                Ok(())
            });
            match decoded {
                Ok(()) => Ok(Tried::Good(content)),
                Err(DecodeError::Damaged(reason)) => Ok(Tried::Wrong(reason)),
                Err(DecodeError::Output(source)) => Err(source).at("read", self.path(hash)),
            }
        })?;
        match sought {
            Sought::Good(content) => Ok(content),
            Sought::Absent => Err(Error::BlobMissing { hash }),
            Sought::Wrong(reason) => Err(Error::BlobDamaged { hash, reason }),
        }
    }

    /// Writes the content of a blob, `size` bytes long, to `output`. What was written is only good if
    /// this returns success: damage may show at the end.
    ///
    /// # Errors
    /// [`CopyError::Blob`] as for [`Blobs::read`]; [`CopyError::Output`] where `output` fails.
    pub(crate) fn copy_to(
        &self,
        hash: BlobHash,
        size: u64,
        output: &mut dyn Write,
    ) -> Result<(), CopyError> {
        if size <= limits::FILE_IN_MEMORY_BYTES_MAX {
            let content = self.read(hash, size).map_err(CopyError::Blob)?;
            return output.write_all(&content).map_err(CopyError::Output);
        }
        let damaged = |reason| CopyError::Blob(Error::BlobDamaged { hash, reason });
        let sought = self.seek(hash, |mut place| {
            let decoded = decode_checked(&mut place.frame, hash, Some(size), &mut |piece| {
                output.write_all(piece)
            });
            match decoded {
                Ok(()) => Ok(Tried::Good(())),
                // Some of it is in the output: no other place can be tried.
                Err(DecodeError::Damaged(reason)) => Err(damaged(reason)),
                Err(DecodeError::Output(source)) => Err(CopyError::Output(source)),
            }
        })?;
        match sought {
            Sought::Good(()) => Ok(()),
            Sought::Absent => Err(CopyError::Blob(Error::BlobMissing { hash })),
            Sought::Wrong(reason) => Err(damaged(reason)),
        }
    }

    /// Opens what is in a loose blob's place.
    fn find_loose(&self, hash: BlobHash) -> Result<Found> {
        let place = place(hash);
        let file = match self.dir.open_file_beneath(&place) {
            Ok(file) => file,
            Err(error) if is_errno(&error, Errno::NOENT) => return Ok(Found::Absent),
            Err(error) if is_errno(&error, Errno::LOOP) => {
                return Ok(Found::Wrong("a symlink is in its place".to_owned()));
            }
            Err(error) if is_errno(&error, Errno::NXIO) => {
                return Ok(Found::Wrong("a socket or device is in its place".to_owned()));
            }
            Err(error) => return Err(error),
        };
        let stat = file_stat(&file, &self.loose_path(hash))?;
        Ok(match stat.kind {
            FileKind::File if stat.size == 0 => Found::Wrong("its file is empty".to_owned()),
            FileKind::File => Found::File(file, stat),
            FileKind::Dir => Found::Wrong("a directory is in its place".to_owned()),
            FileKind::Symlink | FileKind::Other => {
                Found::Wrong("a special file is in its place".to_owned())
            }
        })
    }

    /// What is in the store now, by name.
    ///
    /// # Cost
    /// The listing of 257 directories, and 32 bytes of memory for each loose blob.
    fn survey(&self) -> Result<Survey> {
        let mut loose = HashSet::new();
        for shard in 0..=u8::MAX {
            let dir = self.open_shard(shard)?;
            let names = dir.names()?;
            let texts = names.iter().filter_map(|name| std::str::from_utf8(name).ok());
            loose.extend(texts.filter_map(|text| text.parse::<BlobHash>().ok()));
        }
        // After the loose ones: what moves meanwhile moves from there into packs.
        Ok(Survey { loose, packs: self.packs()? })
    }

    /// The packs as they are now.
    ///
    /// # Errors
    /// [`Error::Io`] where the directory or a pack in it cannot be read: never a list that is too short.
    pub(crate) fn packs(&self) -> Result<PackList> {
        self.packs.list()
    }

    /// Whether there were too many small packs when this process looked at them; one that did not look does
    /// not know.
    pub(crate) fn are_packs_crowded(&self) -> bool {
        self.packs.known().is_some_and(|packs| packs.are_crowded(self.packing))
    }

    /// Which packs there are, and how long each is in bytes.
    ///
    /// # Cost
    /// One listing, one stat for each pack.
    pub(crate) fn pack_lengths(&self) -> Result<BTreeMap<PackId, u64>> {
        self.packs.lengths()
    }

    /// What has the name of a pack and is not a whole one, or has a damaged trailer.
    ///
    /// # Cost
    /// The reading of all trailers.
    pub(crate) fn damaged_packs(&self) -> Result<Vec<BadFile>> {
        let list = self.packs()?;
        let path = |id| self.packs.path(id);
        let unopened = list.damaged.iter().cloned();
        let opened = list.packs.iter().filter_map(|pack| Some((pack.id, pack.frames().err()?)));
        Ok(unopened.chain(opened).map(|(id, reason)| BadFile { path: path(id), reason }).collect())
    }

    /// Whether there is anything in a place of that blob, without opening it; `packs` are those of now.
    pub(crate) fn is_there(&self, hash: BlobHash, packs: &PackList) -> Result<bool> {
        Ok(disk::modified_ns(&self.loose_path(hash))?.is_some() || packs.holds(hash)?)
    }

    /// The frame of a loose blob, as it is; `None` where there is none, or something else.
    pub(crate) fn read_loose(&self, hash: BlobHash) -> Result<Option<Vec<u8>>> {
        let Found::File(file, stat) = self.find_loose(hash)? else { return Ok(None) };
        let mut bytes = Vec::with_capacity(usize::try_from(stat.size).unwrap_or(0));
        let read = Section::whole(&file, stat.size).read_to_end(&mut bytes);
        read.at("read", self.loose_path(hash))?;
        Ok(Some(bytes))
    }

    /// Removes a pack; `false` where there is none. The caller has made sure that nothing needs it. Not
    /// durable by itself.
    pub(crate) fn remove_pack(&self, id: PackId) -> Result<bool> {
        self.packs.dir()?.try_unlink(pack::file_name(id).as_bytes())
    }

    /// Makes durable all that was removed so far.
    pub(crate) fn sync_removals(&self) -> Result<()> {
        let names = self.dir.names()?;
        let shards = names.iter().map(|name| disk::ToSync::Named(&self.dir, name));
        let packs = self.packs.dir()?;
        let items: Vec<_> = shards.chain([disk::ToSync::Directory(&packs)]).collect();
        disk::sync_all(&self.dir, &items)
    }

    /// Begins to add blobs for `operation`, which holds a lease.
    pub(crate) fn stage(&self, operation: OperationId) -> Result<Staging<'_>> {
        Staging::new(self, operation)
    }

    /// Removes a loose blob; `false` where there is none. The caller has made sure that nothing names it.
    /// Not durable by itself: after a crash the blob may be back.
    pub(crate) fn remove(&self, hash: BlobHash) -> Result<bool> {
        let shard = shard_of(hash);
        match self.dir.open_child(&shard_name(shard)) {
            Ok(dir) => dir.try_unlink(hash.to_string().as_bytes()),
            Err(error) if is_errno(&error, Errno::NOENT) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Lists the loose blobs whose hash begins with the byte `shard`: none where its directory is missing.
    ///
    /// # Errors
    /// [`Error::Io`] where the directory, or anything in it, cannot be read: never a list that is too
    /// short.
    pub(crate) fn list_shard(&self, shard: u8) -> Result<Shard> {
        let dir = match self.dir.open_child(&shard_name(shard)) {
            Ok(dir) => dir,
            // A copy of a store may have lost empty directories; the next writer makes it again.
            Err(error) if is_errno(&error, Errno::NOENT) => return Ok(Shard::default()),
            Err(error) => return Err(error),
        };
        let mut listed = Shard::default();
        for name in dir.names()? {
            // Removed since the listing.
            let Some(stat) = dir.stat(&name)? else { continue };
            let hash = std::str::from_utf8(&name).ok().and_then(|name| name.parse().ok());
            match hash {
                Some(hash) if stat.kind == FileKind::File && shard_of(hash) == shard => {
                    let (stored_size, mtime_ns) = (stat.size, stat.mtime_ns);
                    listed.blobs.push(Loose { hash, stored_size, mtime_ns });
                }
                _ => listed.strangers.push(dir.path_of(&name)),
            }
        }
        Ok(listed)
    }

    /// How long each blob is as stored, as far as directories and packs can be read: a rebuild is not
    /// stopped by what cannot.
    ///
    /// # Cost
    /// The listing of all shards, one `lstat` for each loose blob, the reading of all trailers.
    pub(crate) fn stored_sizes(&self) -> HashMap<BlobHash, u64> {
        let mut sizes = HashMap::new();
        for shard in 0..=u8::MAX {
            let listed = self.list_shard(shard).unwrap_or_default();
            sizes.extend(listed.blobs.iter().map(|loose| (loose.hash, loose.stored_size)));
        }
        for pack in &*self.packs().unwrap_or_default().packs {
            let frames = pack.frames().unwrap_or_default();
            sizes.extend(frames.iter().map(|frame| (frame.hash, u64::from(frame.length))));
        }
        sizes
    }

    /// Removes the temporary files of a dead operation.
    pub(crate) fn discard_temps(&self, operation: OperationId) -> Result<()> {
        let name = operation.to_string();
        let dir = match self.tmp.open_child(name.as_bytes()) {
            Ok(dir) => dir,
            Err(error) if is_errno(&error, Errno::NOENT) => return Ok(()),
            Err(error) => return Err(error),
        };
        for temp in dir.names()? {
            dir.try_unlink(&temp)?;
        }
        match self.tmp.remove_dir(name.as_bytes()) {
            // Two processes reap the same dead operation.
            Err(error) if is_errno(&error, Errno::NOENT) => Ok(()),
            other => other,
        }
    }
}

impl PageSource for Blobs {
    fn page(&self, hash: BlobHash, size: u64) -> Result<Vec<u8>> {
        self.read(hash, size)
    }
}

/// `<2 hex>/<64 hex>`.
fn place(hash: BlobHash) -> RelPath {
    let name = hash.to_string();
    let mut place = Vec::with_capacity(3 + name.len());
    place.extend_from_slice(&name.as_bytes()[..2]);
    place.push(b'/');
    place.extend_from_slice(name.as_bytes());
    // Hex digits and one slash are always a path.
    RelPath::new(place).unwrap_or_default()
}

fn shard_of(hash: BlobHash) -> u8 {
    hash.as_bytes()[0]
}

fn shard_name(shard: u8) -> [u8; 2] {
    let digit = |value: u8| if value < 10 { b'0' + value } else { b'a' + value - 10 };
    [digit(shard >> 4), digit(shard & 15)]
}

fn is_errno(error: &Error, errno: Errno) -> bool {
    matches!(error, Error::Io { source, .. } if Errno::from_io_error(source) == Some(errno))
}
