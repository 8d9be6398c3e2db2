//! Writing a checkpoint as a tar archive. The crate `tar` is used here and nowhere else.
//!
//! The same checkpoint gives the same bytes every time: entries in order of path, nobody's owner, the
//! recorded modification times.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use ::tar::{Builder, EntryType, Header};

use crate::blobs::Blobs;
use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::hash::BlobHash;
use crate::manifest::{Entry, EntryKind};
use crate::monitor::{Monitor, Phase};

/// A tar archive is made of blocks of so many bytes.
const BLOCK_BYTES: u64 = 512;

/// Writes `entries`, sorted, as an archive. The root has no entry: unpacking must not change the
/// directory that it is unpacked into. What has no recorded time gets `made_at`.
///
/// Returns how many paths were written.
///
/// # Errors
/// [`Error::BlobMissing`], [`Error::BlobDamaged`]; what `out` gives.
///
/// Cost: each blob is read once; memory for one small file.
pub(crate) fn write_tar(
    blobs: &Blobs,
    entries: &[Entry],
    made_at: Timestamp,
    out: &mut dyn Write,
    monitor: &dyn Monitor,
) -> Result<u64> {
    monitor.phase(Phase::Apply, Some(entries.len() as u64));
    let mut archive = Archive { blobs, made_at, builder: Builder::new(out) };
    let mut written = 0;
    for entry in entries.iter().filter(|entry| !entry.path.is_root()) {
        if monitor.is_cancelled() {
            return Err(Error::Cancelled);
        }
        if archive.append(entry)? {
            written += 1;
            monitor.advanced(1, entry.blob().map_or(0, |(_, size)| size));
        }
    }
    archive.builder.into_inner().and_then(Write::flush).map_err(output)?;
    Ok(written)
}

struct Archive<'a> {
    blobs: &'a Blobs,
    made_at: Timestamp,
    builder: Builder<&'a mut dyn Write>,
}

impl Archive<'_> {
    /// Appends an entry; `false` where it holds nothing.
    fn append(&mut self, entry: &Entry) -> Result<bool> {
        let path = entry.path.as_os();
        match &entry.kind {
            EntryKind::Dir { .. } => {
                let mut header = header(entry, EntryType::Directory, self.made_at.as_ns(), 0);
                // With a slash at its end, as other programs write it.
                let path = [entry.path.as_bytes(), b"/"].concat();
                let path = OsStr::from_bytes(&path);
                self.builder.append_data(&mut header, path, io::empty()).map_err(output)?;
            }
            EntryKind::Symlink { target } => {
                let mut header = header(entry, EntryType::Symlink, self.made_at.as_ns(), 0);
                // To the letter where it fits; a longer one has an entry of its own.
                let appended = if header.set_link_name_literal(target).is_ok() {
                    self.builder.append_data(&mut header, path, io::empty())
                } else {
                    self.builder.append_link(&mut header, path, OsStr::from_bytes(target))
                };
                appended.map_err(output)?;
            }
            EntryKind::File { size, mtime_ns, hash, .. } => {
                let mut header = header(entry, EntryType::Regular, *mtime_ns, *size);
                // The header with the name; what it announces follows.
                self.builder.append_data(&mut header, path, io::empty()).map_err(output)?;
                self.append_content(*hash, *size)?;
            }
            EntryKind::Omitted { .. } | EntryKind::Absent => return Ok(false),
        }
        Ok(true)
    }

    fn append_content(&mut self, hash: BlobHash, size: u64) -> Result<()> {
        let out = self.builder.get_mut();
        let copied = self.blobs.copy_to(hash, size, out);
        copied.map_err(|error| error.at("write", "the output"))?;
        let rest = size.next_multiple_of(BLOCK_BYTES) - size;
        io::copy(&mut io::Read::take(io::repeat(0), rest), out).map(drop).map_err(output)
    }
}

fn header(entry: &Entry, kind: EntryType, mtime_ns: i64, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(entry.mode.without_set_id().bits());
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(size);
    // Before 1970 there is no time in an archive.
    header.set_mtime(u64::try_from(mtime_ns.div_euclid(1_000_000_000)).unwrap_or(0));
    header
}

fn output(source: io::Error) -> Error {
    Error::Io { verb: "write", path: PathBuf::from("the output"), source }
}
