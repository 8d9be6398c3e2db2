//! Writing a checkpoint out, into a directory of its own or an archive.

use std::io::Write;
use std::path::Path;

use crate::blobs::Blobs;
use crate::capture;
use crate::disk::{self, Dir};
use crate::error::{Error, Result};
use crate::id::CheckpointId;
use crate::index::WriteTx;
use crate::limits;
use crate::manifest::{Coverage, Entry, Manifest};
use crate::monitor::{Monitor, Notice};
use crate::operation::OperationKind;
use crate::path::{RelPath, at_or_below};
use crate::registration::Operation;
use crate::restore::{self, RestoreOptions};
use crate::store::capturing::adopt_own;
use crate::store::restoring::remember_lost;
use crate::store::target::{require_selected, whole_entries};
use crate::store::{Store, refuse_inside_store};

impl Store {
    /// Writes a checkpoint, of whatever workspace, into a directory that is new or empty. Returns how
    /// many paths were made.
    ///
    /// # Errors
    /// [`Error::IntoNotEmpty`]; [`Error::ContentLost`]: what is missing is found before anything is
    /// written, what is damaged while it is, and then what was written is removed. After any other error
    /// what was written by then is left, and a notice says so.
    pub fn restore_into(
        &self,
        checkpoint: &CheckpointId,
        into: &Path,
        options: &RestoreOptions,
        monitor: &dyn Monitor,
    ) -> Result<u64> {
        refuse_inside_store(&self.inner.layout, into)?;
        self.write_out(checkpoint, &options.paths, monitor, |blobs, _, entries| {
            restore::look_for_content(blobs, entries, monitor)?;
            let (root, is_new) = empty_directory(into)?;
            let needed: u64 = entries.iter().filter_map(Entry::blob).map(|(_, size)| size).sum();
            let preserve_mtime = options.preserve_mtime;
            let made =
                disk::require_space(&root, needed, limits::DISK_FLOOR_BYTES).and_then(|()| {
                    restore::restore_into(blobs, &root, entries, preserve_mtime, monitor)
                });
            made.inspect_err(|_| {
                if is_new {
                    disk::remove_directory_if_empty(into);
                }
                if !matches!(root.names(), Ok(names) if names.is_empty()) {
                    let text = format!("what was written by then is left in {}", into.display());
                    monitor.notice(&Notice::Remark { text });
                }
            })
        })
    }

    /// Writes a checkpoint, of whatever workspace, as a tar archive: the given paths with everything
    /// below them, or all. The same checkpoint gives the same bytes. Returns how many paths it has.
    ///
    /// # Errors
    /// [`Error::ContentLost`], before anything is written; what `out` gives.
    ///
    /// Cost: each blob is read twice, since what was written cannot be taken back.
    pub fn export_tar(
        &self,
        checkpoint: &CheckpointId,
        paths: &[RelPath],
        out: &mut dyn Write,
        monitor: &dyn Monitor,
    ) -> Result<u64> {
        self.write_out(checkpoint, paths, monitor, |blobs, manifest, entries| {
            let all: Vec<&Entry> = entries.iter().collect();
            restore::check_entries(blobs, &all, monitor)?;
            restore::write_tar(blobs, entries, manifest.created_at, out, monitor)
        })
    }

    /// Has `write` write the entries of a checkpoint at, below and above `paths`, or all, which is
    /// protected from prune meanwhile. What it finds lost is remembered.
    fn write_out(
        &self,
        checkpoint: &CheckpointId,
        paths: &[RelPath],
        monitor: &dyn Monitor,
        write: impl FnOnce(&Blobs, &Manifest, &[Entry]) -> Result<u64>,
    ) -> Result<u64> {
        // Opened for writing first, where it can be: that may build the index, which waits for readers.
        let access = if self.exists()? { self.enter(monitor).ok() } else { None };
        let reading = self.read(monitor)?.ok_or_else(|| Error::SessionNotFound {
            session: checkpoint.session.to_string(),
            nearest: Vec::new(),
        })?;
        let (manifest, _) = reading.require(checkpoint)?;
        // Protected from prune while it is read.
        let _operation = match &access {
            None => None,
            Some(access) => {
                // One without a row, because its pin cannot be understood, no prune can drop, and no
                // sweep deletes anything beside it.
                let protect =
                    |tx: &WriteTx<'_>| Ok((tx.checkpoint(&manifest.id)?.map(|row| row.id), ()));
                let begun = adopt_own(access, &manifest.id.session).and_then(|()| {
                    Operation::begin(access, OperationKind::Restore, None, protect).map(Some)
                });
                // Where nobody can write, nobody prunes.
                tolerate_unwritable(begun)?
            }
        };
        let lost = |error: &Error| {
            if let Some(access) = &access {
                // So that the next capture that has the bytes heals it.
                drop(capture::remember(access, error).and_then(|()| remember_lost(access, error)));
            }
        };
        let mut entries = whole_entries(&reading.blobs, &reading.sessions, &manifest.id, &manifest)
            .inspect_err(lost)?;
        if manifest.coverage == Coverage::Paths {
            let text = format!(
                "{checkpoint} was made of the paths that a restore was about to change; the others are \
                 written as in the checkpoint before it"
            );
            monitor.notice(&Notice::Remark { text });
        }
        if !paths.is_empty() {
            require_selected(checkpoint, &entries, None, paths)?;
            entries = selected(entries, paths);
        }
        write(&reading.blobs, &manifest, &entries).inspect_err(lost)
    }
}

/// Those of `entries`, sorted, that are at, below or above one of `paths`.
fn selected(entries: Vec<Entry>, paths: &[RelPath]) -> Vec<Entry> {
    let mut wanted = vec![false; entries.len()];
    for path in paths {
        at_or_below(&entries, path, |entry| &entry.path).for_each(|index| wanted[index] = true);
        for above in path.ancestors() {
            if let Ok(index) = entries.binary_search_by(|entry| entry.path.cmp(&above)) {
                wanted[index] = true;
            }
        }
    }
    let wanted = entries.into_iter().zip(wanted).filter(|(_, is_wanted)| *is_wanted);
    wanted.map(|(entry, _)| entry).collect()
}

/// Goes on without what could not be written: the store can only be read, or its disk is full.
pub(super) fn tolerate_unwritable<T: Default>(result: Result<T>) -> Result<T> {
    match result {
        Err(Error::Io { .. } | Error::Index { .. }) => Ok(T::default()),
        other => other,
    }
}

/// Opens `into`, which must be empty; makes it where it is missing. Returns whether it was.
fn empty_directory(into: &Path) -> Result<(Dir, bool)> {
    let is_new = disk::make_directory_if_missing(into)?;
    let root = Dir::open(into)?;
    if root.names()?.is_empty() {
        Ok((root, is_new))
    } else {
        Err(Error::IntoNotEmpty { path: into.to_owned() })
    }
}
