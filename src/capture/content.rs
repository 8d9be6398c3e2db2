//! Reading one file so that what is kept is what was there.

use std::io::Read;

use crate::disk::{Dir, FileKind, FileStat, file_stat};
use crate::error::{Error, Result};
use crate::hash::BlobHash;
use crate::limits;
use crate::manifest::OmitReason;
use crate::monitor::Monitor;
use crate::path::RelPath;
use crate::walk::Stamps;

/// What reading a file came to.
#[derive(Debug)]
pub(crate) enum ReadFile {
    /// Its content, in memory.
    Content { bytes: Vec<u8>, hash: BlobHash, stat: FileStat, unstable: bool },
    /// It is too large for memory: it is open, at its beginning.
    Large { file: crate::disk::File, stat: FileStat },
    /// It is not there any more.
    Vanished,
    /// It cannot be held, or must not be.
    Omitted { reason: OmitReason, stat: Option<FileStat> },
}

/// Opens and reads the file at `path`. A file that changes while it is read is read again, a few
/// times, and then kept as it came, marked unstable.
///
/// Never blocks on a FIFO and never follows a symlink: it is opened so, and what was opened must be a
/// regular file.
pub(crate) fn read_file(
    root: &Dir,
    path: &RelPath,
    limit_bytes: u64,
    monitor: &dyn Monitor,
) -> Result<ReadFile> {
    let mut last = None;
    for _ in 0..=limits::UNSTABLE_READS_MAX {
        if monitor.is_cancelled() {
            return Err(Error::Cancelled);
        }
        let (file, before) = match open(root, path) {
            Ok(Some(opened)) => opened,
            Ok(None) => return Ok(ReadFile::Vanished),
            Err(error) => return omitted(&error, None),
        };
        if before.kind != FileKind::File {
            return Ok(ReadFile::Omitted { reason: OmitReason::IoError, stat: Some(before) });
        }
        if before.size > limit_bytes {
            return Ok(ReadFile::Omitted { reason: OmitReason::OverFileLimit, stat: Some(before) });
        }
        if before.size > limits::FILE_IN_MEMORY_BYTES_MAX {
            return Ok(ReadFile::Large { file, stat: before });
        }
        let mut bytes = Vec::with_capacity(usize::try_from(before.size).unwrap_or(0) + 1);
        // One byte more than expected tells a file that grew; more is not taken in.
        let read = (&file).take(limits::FILE_IN_MEMORY_BYTES_MAX + 1).read_to_end(&mut bytes);
        if let Err(source) = read {
            let error = Error::Io { verb: "read", path: path.as_os().to_owned(), source };
            return omitted(&error, Some(before));
        }
        let after = match file_stat(&file, path.as_os()) {
            Ok(after) => after,
            Err(error) => return omitted(&error, Some(before)),
        };
        let stable = Stamps::of(&before) == Stamps::of(&after) && bytes.len() as u64 == before.size;
        if stable {
            let hash = BlobHash::of(&bytes);
            return Ok(ReadFile::Content { bytes, hash, stat: after, unstable: false });
        }
        last = Some((bytes, after));
    }
    match last {
        Some((bytes, stat)) => {
            let hash = BlobHash::of(&bytes);
            Ok(ReadFile::Content { bytes, hash, stat, unstable: true })
        }
        None => Ok(ReadFile::Vanished),
    }
}

fn open(root: &Dir, path: &RelPath) -> Result<Option<(crate::disk::File, FileStat)>> {
    let parent = path.parent().unwrap_or_default();
    let Some(dir) = root.try_open_dir(&parent)? else { return Ok(None) };
    let file = match dir.open_file(path.name()) {
        Ok(file) => file,
        Err(error) if is_kind(&error, std::io::ErrorKind::NotFound) => return Ok(None),
        Err(error) => return Err(error),
    };
    let stat = file_stat(&file, path.as_os())?;
    Ok(Some((file, stat)))
}

fn is_kind(error: &Error, kind: std::io::ErrorKind) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == kind)
}

/// What stands in the way of reading one file is that file's business; what would stand in the way
/// of every file (no more handles, no memory) is the capture's.
fn omitted(error: &Error, stat: Option<FileStat>) -> Result<ReadFile> {
    let Error::Io { verb, path, source } = error else {
        return Ok(ReadFile::Omitted { reason: OmitReason::IoError, stat });
    };
    // EMFILE, ENFILE, ENOMEM
    if matches!(source.raw_os_error(), Some(24 | 23 | 12)) {
        let source = std::io::Error::from_raw_os_error(source.raw_os_error().unwrap_or_default());
        return Err(Error::Io { verb, path: path.clone(), source });
    }
    Ok(ReadFile::Omitted { reason: reason_of(source), stat })
}

/// The word for why a file could not be read.
pub(crate) fn reason_of(error: &std::io::Error) -> OmitReason {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => OmitReason::Unreadable,
        _ => OmitReason::IoError,
    }
}
