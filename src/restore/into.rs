//! Restoring into a new or empty directory: nothing to save, nothing to replace.
//!
//! Each blob is read once, and checked while it is written: what fails in the middle takes nothing from
//! anybody. Where content turns out to be damaged, the rest is only checked, so that all of it is named,
//! and what was written goes again.

use std::collections::HashMap;
use std::io::Write;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rayon::Scope;
use rayon::prelude::*;

use crate::blobs::{Blobs, Presence};
use crate::disk::{self, Dir};
use crate::error::{Error, IoContext, LostContent, Result};
use crate::hash::BlobHash;
use crate::limits;
use crate::manifest::{Entry, EntryKind, Mode};
use crate::monitor::{Monitor, Phase};
use crate::restore::stage::holds_one_of;
use crate::threads;

/// How many files one task makes, so that a large directory is shared among the threads.
const FILES_PER_TASK: usize = 256;

/// The bits of a directory while things are made in it.
const PRIVATE: u32 = 0o700;

/// Looks whether the content of every file among `entries` is there, without reading it.
///
/// # Errors
/// [`Error::ContentLost`] naming each path and blob.
///
/// Cost: for each blob outside a pack one open and the reading of its header.
pub(crate) fn look_for_content(
    blobs: &Blobs,
    entries: &[Entry],
    monitor: &dyn Monitor,
) -> Result<()> {
    let packs = blobs.packs()?;
    let look = |entry: &Entry| -> Result<Option<LostContent>> {
        if monitor.is_cancelled() {
            return Err(Error::Cancelled);
        }
        match entry.blob() {
            // Of a pack that cannot be read the look says more, where it is needed.
            Some((hash, size)) if !packs.holds(hash).unwrap_or(false) => {
                Ok(lost(entry, blobs.look(hash, size, None)?))
            }
            _ => Ok(None),
        }
    };
    let looked: Vec<Option<LostContent>> =
        threads::pool("check")?.install(|| entries.par_iter().map(look).collect::<Result<_>>())?;
    let lost: Vec<LostContent> = looked.into_iter().flatten().collect();
    if lost.is_empty() { Ok(()) } else { Err(Error::ContentLost { lost }) }
}

/// What a path lacks, if anything.
pub(super) fn lost(entry: &Entry, presence: Presence) -> Option<LostContent> {
    let (hash, _) = entry.blob()?;
    let reason = match presence {
        Presence::Present { .. } => return None,
        Presence::Absent => "missing".to_owned(),
        Presence::Wrong { reason } => reason,
    };
    Some(LostContent { path: entry.path.clone(), hash, reason })
}

/// Writes `entries`, sorted, below the empty directory `root`. Files are made in place, since nobody
/// else has a reason to be there; permission bits of directories come last.
///
/// Returns how many paths were made.
///
/// # Errors
/// [`Error::ContentLost`] naming each path and blob: what was written is gone again then, as far as it
/// still is what was written. Else what stood in the way; what was written by then is left, in a
/// directory that was empty before.
///
/// Cost: each blob is read once, each directory opened for every 256 files in it and once more; four
/// calls for a file besides the reading.
pub(crate) fn restore_into(
    blobs: &Blobs,
    root: &Dir,
    entries: &[Entry],
    preserve_mtime: bool,
    monitor: &dyn Monitor,
) -> Result<u64> {
    monitor.phase(Phase::Apply, Some(entries.len() as u64));
    let writer = Writer {
        blobs,
        root,
        entries,
        directories: by_directory(entries),
        preserve_mtime,
        monitor,
        has_failed: AtomicBool::new(false),
        is_lacking: AtomicBool::new(false),
        made: AtomicU64::new(0),
        failures: Mutex::default(),
    };
    threads::pool("restore")?.scope(|scope| writer.fill(scope, 0));
    let Failures { error, mut lost } =
        std::mem::take(&mut *writer.failures.lock().unwrap_or_else(PoisonError::into_inner));
    if let Some(error) = error {
        return Err(error);
    }
    if !lost.is_empty() {
        writer.take_back();
        lost.sort_by(|a, b| a.path.cmp(&b.path));
        return Err(Error::ContentLost { lost });
    }
    writer.close_directories()?;
    root.sync()?;
    Ok(writer.made.into_inner())
}

/// A directory and what is to be made in it, as indices into the entries.
struct Directory {
    entry: usize,
    /// Files and symlinks.
    files: Vec<usize>,
    /// Directories, as indices into the directories.
    directories: Vec<usize>,
}

/// The directories among `entries`, which are sorted and begin with the root, in their order.
fn by_directory(entries: &[Entry]) -> Vec<Directory> {
    let mut directories: Vec<Directory> = Vec::new();
    let mut numbers: HashMap<&[u8], usize> = HashMap::new();
    for (index, entry) in entries.iter().enumerate() {
        let path = entry.path.as_bytes();
        let end = path.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
        // The root has no parent; the list has been validated, so every other path has one.
        let parent = numbers.get(&path[..end]).copied();
        match entry.kind {
            EntryKind::Dir { .. } => {
                let number = directories.len();
                if let Some(parent) = parent {
                    directories[parent].directories.push(number);
                }
                numbers.insert(path, number);
                directories.push(Directory {
                    entry: index,
                    files: Vec::new(),
                    directories: Vec::new(),
                });
            }
            EntryKind::File { .. } | EntryKind::Symlink { .. } => {
                if let Some(parent) = parent {
                    directories[parent].files.push(index);
                }
            }
            EntryKind::Omitted { .. } | EntryKind::Absent => {}
        }
    }
    directories
}

#[derive(Default)]
struct Failures {
    /// What ended the work.
    error: Option<Error>,
    lost: Vec<LostContent>,
}

struct Writer<'a> {
    blobs: &'a Blobs,
    root: &'a Dir,
    entries: &'a [Entry],
    /// The root first.
    directories: Vec<Directory>,
    preserve_mtime: bool,
    monitor: &'a dyn Monitor,
    /// No more work is to be done.
    has_failed: AtomicBool,
    /// Content is lost: the rest is only checked.
    is_lacking: AtomicBool,
    /// How many paths were made, the root not counted.
    made: AtomicU64,
    failures: Mutex<Failures>,
}

impl Writer<'_> {
    fn failures(&self) -> MutexGuard<'_, Failures> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, error: Error) {
        self.has_failed.store(true, Ordering::Relaxed);
        self.failures().error.get_or_insert(error);
    }

    fn lack(&self, lost: LostContent) {
        self.is_lacking.store(true, Ordering::Relaxed);
        self.failures().lost.push(lost);
    }

    fn open(&self, number: usize) -> Result<Dir> {
        self.root.open_dir(&self.entries[self.directories[number].entry].path)
    }

    /// Makes what is in a directory, and has the rest done by others: each task opens its own handle,
    /// so that no more are open than there are threads.
    fn fill<'scope>(&'scope self, scope: &Scope<'scope>, number: usize) {
        let directory = &self.directories[number];
        if let Err(error) = self.make_directories(number) {
            self.fail(error);
            return;
        }
        for &below in &directory.directories {
            scope.spawn(move |scope| self.fill(scope, below));
        }
        let mut start = FILES_PER_TASK;
        while start < directory.files.len() {
            let end = directory.files.len().min(start + FILES_PER_TASK);
            scope.spawn(move |_| self.make_files(number, start..end));
            start = end;
        }
        self.make_files(number, 0..directory.files.len().min(FILES_PER_TASK));
    }

    fn make_directories(&self, number: usize) -> Result<()> {
        let directory = &self.directories[number];
        if directory.directories.is_empty() || self.is_over() {
            return Ok(());
        }
        let dir = self.open(number)?;
        for &below in &directory.directories {
            let path = &self.entries[self.directories[below].entry].path;
            dir.make_dir(path.name(), Mode::from_st_mode(PRIVATE))?;
        }
        let made = directory.directories.len() as u64;
        self.made.fetch_add(made, Ordering::Relaxed);
        Ok(())
    }

    /// Whether nothing more is to be made.
    fn is_over(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed) || self.is_lacking.load(Ordering::Relaxed)
    }

    fn make_files(&self, number: usize, range: Range<usize>) {
        let files = &self.directories[number].files[range];
        if files.is_empty() || self.has_failed.load(Ordering::Relaxed) {
            return;
        }
        let made = self.make_each(number, files);
        if let Err(error) = made {
            self.fail(error);
        }
    }

    fn make_each(&self, number: usize, files: &[usize]) -> Result<()> {
        let mut dir = None;
        let mut made = 0;
        for &index in files {
            if self.has_failed.load(Ordering::Relaxed) {
                break;
            }
            if self.monitor.is_cancelled() {
                return Err(Error::Cancelled);
            }
            let entry = &self.entries[index];
            if self.is_lacking.load(Ordering::Relaxed) {
                self.check(entry)?;
                continue;
            }
            if dir.is_none() {
                dir = Some(self.open(number)?);
            }
            let Some(dir) = &dir else { break };
            made += u64::from(self.make(dir, entry)?);
        }
        self.made.fetch_add(made, Ordering::Relaxed);
        Ok(())
    }

    fn check(&self, entry: &Entry) -> Result<()> {
        let Some((hash, size)) = entry.blob() else { return Ok(()) };
        if let Some(lost) = lost(entry, self.blobs.check(hash, Some(size))?) {
            self.lack(lost);
        }
        Ok(())
    }

    /// Makes one file or symlink; `false` where its content is lost, which is noted.
    fn make(&self, dir: &Dir, entry: &Entry) -> Result<bool> {
        match &entry.kind {
            EntryKind::File { size, mtime_ns, hash, .. } => {
                let reason = match self.make_file(dir, entry, *hash, *size) {
                    Ok(()) => None,
                    Err(Error::BlobMissing { .. }) => Some("missing".to_owned()),
                    Err(Error::BlobDamaged { reason, .. }) => Some(reason),
                    Err(error) => return Err(error),
                };
                if let Some(reason) = reason {
                    self.lack(LostContent { path: entry.path.clone(), hash: *hash, reason });
                    return Ok(false);
                }
                if self.preserve_mtime {
                    dir.set_mtime(entry.path.name(), *mtime_ns)?;
                }
                self.monitor.advanced(1, *size);
            }
            EntryKind::Symlink { target } => {
                dir.symlink(target, entry.path.name())?;
                self.monitor.advanced(1, 0);
            }
            EntryKind::Dir { .. } | EntryKind::Omitted { .. } | EntryKind::Absent => {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn make_file(&self, dir: &Dir, entry: &Entry, hash: BlobHash, size: u64) -> Result<()> {
        let (name, mode) = (entry.path.name(), entry.mode.without_set_id());
        if size <= limits::FILE_IN_MEMORY_BYTES_MAX {
            // The content first: a file that cannot be had whole is not begun.
            let content = self.blobs.read(hash, size)?;
            let mut file = dir.create_file_with(name, mode)?;
            file.write_all(&content).at("write", dir.path_of(name))?;
            return disk::finish_file(&file, size, mode, dir, name);
        }
        let mut file = dir.create_file_with(name, mode)?;
        let copied = self.blobs.copy_to(hash, size, &mut file);
        if let Err(error) = copied {
            dir.unlink(name)?;
            return Err(error.at("write", dir.path_of(name)));
        }
        disk::finish_file(&file, size, mode, dir, name)
    }

    /// Gives directories the permission bits that they are to have, what is inside before what is around
    /// it.
    fn close_directories(&self) -> Result<()> {
        for (number, directory) in self.directories.iter().enumerate().rev() {
            let mode = self.entries[directory.entry].mode;
            if number == 0 || mode.bits() != PRIVATE {
                self.open(number)?.set_own_mode(mode)?;
            }
        }
        Ok(())
    }

    /// Removes what was made. A file that somebody has changed meanwhile stays, and so do the directories
    /// around it.
    fn take_back(&self) {
        for (number, directory) in self.directories.iter().enumerate().rev() {
            let Ok(dir) = self.open(number) else { continue };
            // What cannot be removed is told by whoever finds the directory not empty.
            for &index in &directory.files {
                drop(take_back(&dir, &self.entries[index]));
            }
            for &below in &directory.directories {
                drop(dir.remove_dir(self.entries[self.directories[below].entry].path.name()));
            }
        }
    }
}

/// Removes a file or symlink if it is what the entry says.
fn take_back(dir: &Dir, entry: &Entry) -> Result<()> {
    let name = entry.path.name();
    if holds_one_of(dir, name, std::iter::once(entry))? { dir.unlink(name) } else { Ok(()) }
}
