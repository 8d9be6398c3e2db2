//! Restoring into a new or empty directory: nothing to save, nothing to replace.

use rayon::prelude::*;

use crate::blobs::Blobs;
use crate::disk::{self, Dir};
use crate::error::{Error, Result};
use crate::manifest::{Entry, EntryKind, Mode};
use crate::monitor::{Monitor, Phase};
use crate::path::RelPath;
use crate::threads;

/// Writes `entries`, sorted, below the empty directory `root`. Files are made in place, since nobody
/// else has a reason to be there; permission bits of directories come last.
///
/// Returns how many paths were made.
///
/// # Errors
/// What stood in the way; what was written by then is left, in a directory that was empty before.
pub(crate) fn restore_into(
    blobs: &Blobs,
    root: &Dir,
    entries: &[Entry],
    preserve_mtime: bool,
    monitor: &dyn Monitor,
) -> Result<u64> {
    monitor.phase(Phase::Apply, Some(entries.len() as u64));
    let is_dir = |entry: &&Entry| matches!(entry.kind, EntryKind::Dir { .. });
    // A parent's path is a prefix of its children's, so it sorts before them.
    for entry in entries.iter().filter(is_dir).filter(|entry| !entry.path.is_root()) {
        let parent = parent(root, &entry.path)?;
        parent.make_dir(entry.path.name(), Mode::from_st_mode(0o700))?;
    }
    let made: u64 = threads::pool("restore")?.install(|| {
        entries
            .par_iter()
            .map(|entry| put(blobs, root, entry, preserve_mtime, monitor))
            .sum::<Result<u64>>()
    })?;
    let mut directories = 0;
    for entry in entries.iter().rev().filter(is_dir) {
        if entry.path.is_root() {
            root.set_own_mode(entry.mode)?;
        } else {
            parent(root, &entry.path)?.set_mode(entry.path.name(), entry.mode)?;
            directories += 1;
        }
    }
    root.sync()?;
    Ok(made + directories)
}

fn parent(root: &Dir, path: &RelPath) -> Result<Dir> {
    root.open_dir(&path.parent().unwrap_or_default())
}

fn put(
    blobs: &Blobs,
    root: &Dir,
    entry: &Entry,
    preserve_mtime: bool,
    monitor: &dyn Monitor,
) -> Result<u64> {
    if monitor.is_cancelled() {
        return Err(Error::Cancelled);
    }
    let name = entry.path.name();
    match &entry.kind {
        EntryKind::File { size, mtime_ns, hash, .. } => {
            let dir = parent(root, &entry.path)?;
            let mut file = dir.create_file(name)?;
            let path = dir.path_of(name);
            let copied = blobs.copy_to(*hash, *size, &mut file);
            copied.map_err(|error| error.at("write", &path))?;
            disk::check_size(&file, *size, &path)?;
            disk::set_file_mode(&file, entry.mode.without_set_id(), &path)?;
            if preserve_mtime {
                dir.set_mtime(name, *mtime_ns)?;
            }
            monitor.advanced(1, *size);
        }
        EntryKind::Symlink { target } => {
            parent(root, &entry.path)?.symlink(target, name)?;
            monitor.advanced(1, 0);
        }
        EntryKind::Dir { .. } | EntryKind::Omitted { .. } | EntryKind::Absent => return Ok(0),
    }
    Ok(1)
}
