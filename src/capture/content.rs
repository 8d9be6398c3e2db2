//! Reading one file so that what is kept is what was there.

use std::cell::Cell;
use std::io::Read;

use crate::disk::{Dir, File, FileKind, FileStat, file_stat};
use crate::error::{Error, Result};
use crate::hash::Hashed;
use crate::limits;
use crate::manifest::OmitReason;
use crate::monitor::Monitor;
use crate::path::RelPath;
use crate::walk::Stamps;

/// What reading a file came to.
#[derive(Debug)]
pub(crate) enum ReadFile {
    /// Its content, in memory.
    Content { content: Hashed<Vec<u8>>, stat: FileStat, unstable: bool },
    /// It is too large for memory: it is open, at its beginning.
    Large { file: File, stat: FileStat },
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
            Err(error) => return omitted(error, None),
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
        let mut bytes = BUFFER.take();
        // One byte more than expected tells a file that grew; more is not taken in.
        if let Err(source) = read_up_to(&file, before.size + 1, &mut bytes) {
            let error = Error::Io { verb: "read", path: path.as_os().to_owned(), source };
            return omitted(error, Some(before));
        }
        let after = match file_stat(&file, path.as_os()) {
            Ok(after) => after,
            Err(error) => return omitted(error, Some(before)),
        };
        let stable = Stamps::of(&before) == Stamps::of(&after) && bytes.len() as u64 == before.size;
        if stable {
            let content = Hashed::new(bytes);
            return Ok(ReadFile::Content { content, stat: after, unstable: false });
        }
        last = Some((bytes, after));
    }
    match last {
        Some((bytes, stat)) => {
            Ok(ReadFile::Content { content: Hashed::new(bytes), stat, unstable: true })
        }
        None => Ok(ReadFile::Vanished),
    }
}

thread_local! {
    /// What the last file's content was in, for the next: most are short, and memory for each anew
    /// costs as much as reading them.
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A buffer longer than this is not kept.
const KEPT_BUFFER_BYTES_MAX: usize = 1024 * 1024;

/// Gives back what is not needed any more.
pub(crate) fn give_back(mut buffer: Vec<u8>) {
    if buffer.capacity() <= KEPT_BUFFER_BYTES_MAX {
        buffer.clear();
        BUFFER.set(buffer);
    }
}

/// Fills `bytes` with the beginning of `file`, at most `most` bytes. A file that has just one byte less
/// is not asked whether there are more: that is told by its length afterwards.
fn read_up_to(mut file: &File, most: u64, bytes: &mut Vec<u8>) -> std::io::Result<()> {
    let most = usize::try_from(most).map_err(std::io::Error::other)?;
    bytes.clear();
    bytes.resize(most, 0);
    let mut filled = 0;
    while filled + 1 < most || (filled == 0 && most > 0) {
        match file.read(&mut bytes[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(())
}

fn open(root: &Dir, path: &RelPath) -> Result<Option<(File, FileStat)>> {
    if let Ok(file) = root.open_file_beneath(path) {
        let stat = file_stat(&file, path.as_os())?;
        return Ok(Some((file, stat)));
    }
    // Step by step, which tells what stands in the way.
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
fn omitted(error: Error, stat: Option<FileStat>) -> Result<ReadFile> {
    if error.is_lack() {
        return Err(error);
    }
    let reason = match &error {
        Error::Io { source, .. } => reason_of(source),
        _ => OmitReason::IoError,
    };
    Ok(ReadFile::Omitted { reason, stat })
}

/// The word for why a file could not be read.
pub(crate) fn reason_of(error: &std::io::Error) -> OmitReason {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => OmitReason::Unreadable,
        _ => OmitReason::IoError,
    }
}
