//! Content-addressed blobs: file contents and pages by their BLAKE3.
//!
//! A blob is the file `blobs/<2 hex>/<64 hex>`: one standard zstd frame that declares the size of its
//! content and ends with a checksum, readable with `zstd -dc`. It is written under `tmp/`, checked,
//! made durable and only then given its name, so a name never leads to half a blob, and a name once
//! given is only ever replaced by the same content. What is read is compared with its name: a damaged
//! blob is an error and never served.
//!
//! This module decides nothing about what is kept: who may remove a blob, and when, is known to the
//! index. It must be told that a blob is needed (a pin, committed) *before* it is asked whether the
//! blob is there; in that order no sweep can take the blob away between the two.

mod frame;
mod staging;

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::blobs::frame::DecodeError;
use crate::disk::{Dir, FileKind, FileStat, file_stat, make_private_dir};
use crate::error::{Error, IoContext, Result};
use crate::hash::{BlobHash, BlobHasher};
use crate::id::OperationId;
use crate::limits;
use crate::manifest::PageSource;
use crate::path::RelPath;

#[cfg(test)]
pub(crate) use staging::Published;
pub(crate) use staging::{PutOutcome, Staging};

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

/// A blob's file as a listing shows it: the name is that of a blob, the content was not looked at.
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
}

/// What is in a blob's place.
enum Found {
    File(File, FileStat),
    Absent,
    Wrong(String),
}

impl Blobs {
    /// Makes `blobs/` with its 256 fan-out directories, and `tmp/`, in the store's directory. What is
    /// there already is left as it is, so this also mends a copy of a store that lost empty
    /// directories.
    ///
    /// # Durability
    /// All the directories are durable.
    pub(crate) fn create(store: &Path) -> Result<Self> {
        let blobs = Self {
            dir: make_private_dir(&store.join("blobs"))?,
            tmp: make_private_dir(&store.join("tmp"))?,
        };
        for shard in 0..=u8::MAX {
            blobs.make_shard(shard)?;
        }
        blobs.dir.sync()?;
        Ok(blobs)
    }

    /// Opens the blobs of the store whose directory is `store`.
    pub(crate) fn open(store: &Path) -> Result<Self> {
        Ok(Self { dir: Dir::open(&store.join("blobs"))?, tmp: Dir::open(&store.join("tmp"))? })
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

    /// Where `hash` is or would be. For messages.
    pub(crate) fn path(&self, hash: BlobHash) -> PathBuf {
        self.dir.path().join(place(hash).as_os())
    }

    /// Whether a blob of that hash and content size is there, without reading its content: a regular
    /// file whose frame declares exactly `size`, of exactly `stored_size` bytes where the caller knows
    /// how many there should be.
    ///
    /// A capture that is going to name a blob found here says so to its [`Staging::reuse`].
    ///
    /// # Cost
    /// One open, one stat, one read of 18 bytes.
    pub(crate) fn look(
        &self,
        hash: BlobHash,
        size: u64,
        stored_size: Option<u64>,
    ) -> Result<Presence> {
        let (file, stat) = match self.find(hash)? {
            Found::File(file, stat) => (file, stat),
            Found::Absent => return Ok(Presence::Absent),
            Found::Wrong(reason) => return Ok(Presence::Wrong { reason }),
        };
        let presence = match (declared_size(&file), stored_size) {
            (Err(reason), _) => Presence::Wrong { reason },
            (Ok(declared), _) if declared != size => {
                Presence::Wrong { reason: other_size(declared, size) }
            }
            (Ok(_), Some(expected)) if expected != stat.size => Presence::Wrong {
                reason: format!("its file has {} bytes where {expected} are expected", stat.size),
            },
            (Ok(_), _) => Presence::Present { stored_size: stat.size },
        };
        Ok(presence)
    }

    /// Reads all of a blob and compares it with its name, and with `size` where that is known.
    pub(crate) fn check(&self, hash: BlobHash, size: Option<u64>) -> Result<Presence> {
        let (mut file, stat) = match self.find(hash)? {
            Found::File(file, stat) => (file, stat),
            Found::Absent => return Ok(Presence::Absent),
            Found::Wrong(reason) => return Ok(Presence::Wrong { reason }),
        };
        match decode_checked(&mut file, hash, size, &mut |_| Ok(())) {
            Ok(()) => Ok(Presence::Present { stored_size: stat.size }),
            Err(DecodeError::Damaged(reason)) => Ok(Presence::Wrong { reason }),
            Err(DecodeError::Output(source)) => Err(source).at("read", self.path(hash)),
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
        let at_first = size.min(limits::FILE_IN_MEMORY_BYTES_MAX);
        let mut content = Vec::with_capacity(usize::try_from(at_first).unwrap_or(0));
        let copied = self.copy_to(hash, size, &mut content);
        copied.map_err(|error| error.at("read", self.path(hash)))?;
        Ok(content)
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
        let damaged = |reason| CopyError::Blob(Error::BlobDamaged { hash, reason });
        let mut file = match self.find(hash).map_err(CopyError::Blob)? {
            Found::File(file, _) => file,
            Found::Absent => return Err(CopyError::Blob(Error::BlobMissing { hash })),
            Found::Wrong(reason) => return Err(damaged(reason)),
        };
        decode_checked(&mut file, hash, Some(size), &mut |piece| output.write_all(piece)).map_err(
            |error| match error {
                DecodeError::Damaged(reason) => damaged(reason),
                DecodeError::Output(source) => CopyError::Output(source),
            },
        )
    }

    /// Opens what is in a blob's place. Looks twice before it says that there is nothing: a blob may
    /// be on its way from one place to another.
    fn find(&self, hash: BlobHash) -> Result<Found> {
        let place = place(hash);
        let first = self.dir.open_file_beneath(&place);
        let opened = match first {
            Err(error) if is_errno(&error, Errno::NOENT) => self.dir.open_file_beneath(&place),
            other => other,
        };
        let file = match opened {
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
        let stat = file_stat(&file, &self.path(hash))?;
        Ok(match stat.kind {
            FileKind::File if stat.size == 0 => Found::Wrong("its file is empty".to_owned()),
            FileKind::File => Found::File(file, stat),
            FileKind::Dir => Found::Wrong("a directory is in its place".to_owned()),
            FileKind::Symlink | FileKind::Other => {
                Found::Wrong("a special file is in its place".to_owned())
            }
        })
    }

    /// Begins to add blobs for `operation`, which holds a lease.
    pub(crate) fn stage(&self, operation: OperationId) -> Result<Staging<'_>> {
        Staging::new(self, operation)
    }

    /// Removes a blob; `false` where there is none. The caller has made sure that nothing names it.
    /// Not durable by itself: after a crash the blob may be back.
    pub(crate) fn remove(&self, hash: BlobHash) -> Result<bool> {
        let shard = shard_of(hash);
        match self.dir.open_child(&shard_name(shard)) {
            Ok(dir) => dir.try_unlink(hash.to_string().as_bytes()),
            Err(error) if is_errno(&error, Errno::NOENT) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Lists the blobs whose hash begins with the byte `shard`.
    ///
    /// # Errors
    /// [`Error::Io`] where the directory, or anything in it, cannot be read, or is missing: never a
    /// list that is too short.
    pub(crate) fn list_shard(&self, shard: u8) -> Result<Shard> {
        let dir = self.dir.open_child(&shard_name(shard))?;
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

/// Decodes a blob from the beginning of `file` and compares size and hash. The bytes go to `output`
/// before they can all be compared.
fn decode_checked(
    file: &mut File,
    hash: BlobHash,
    size: Option<u64>,
    output: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> Result<(), DecodeError> {
    let declared = declared_size(file).map_err(DecodeError::Damaged)?;
    if let Some(size) = size
        && size != declared
    {
        return Err(DecodeError::Damaged(other_size(declared, size)));
    }
    let mut hasher = BlobHasher::default();
    frame::decode(file, declared, &mut |piece| {
        hasher.update(piece);
        output(piece)
    })?;
    let found = hasher.finish();
    if found != hash {
        return Err(DecodeError::Damaged(format!("its content has the hash {found}")));
    }
    Ok(())
}

/// The size of the content that the frame at the beginning of `file` declares, or what is wrong.
fn declared_size(file: &File) -> Result<u64, String> {
    let mut header = [0; frame::HEADER_BYTES_MAX];
    let mut filled = 0;
    while filled < header.len() {
        match file.read_at(&mut header[filled..], filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(format!("it cannot be read: {error}")),
        }
    }
    frame::declared_size(&header[..filled])
}

fn other_size(declared: u64, expected: u64) -> String {
    format!("it declares {declared} bytes of content where {expected} are expected")
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
