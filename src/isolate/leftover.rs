//! What is in a work tree, file by file, and taking it away: only what is still as it was when it was held goes.
//! git would delete what was written since. Also what git has left of one that it could not remove and has
//! forgotten: nobody but us can say what is in that.

use std::collections::{HashMap, HashSet};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;

use crate::disk::{self, Dir, FileKind, FileStat};
use crate::error::{Error, IsolationError, Result};
use crate::git;
use crate::hash::BlobHash;
use crate::manifest::{Entry, EntryKind};
use crate::monitor::Monitor;
use crate::path::{RelPath, at_or_below};
use crate::runs::{RunRecord, place};
use crate::settings::is_version_control;

use super::{LOST, LeftOut};

/// Why something is not held.
type Reason = &'static str;

/// Everything in such a directory.
#[derive(Debug)]
pub(crate) struct Leftover {
    /// What is no directory, in order.
    files: Vec<(RelPath, FileStat)>,
    /// Each after the one that it is in.
    directories: Vec<RelPath>,
    /// What was not looked into, and why.
    closed: Vec<(RelPath, Reason)>,
}

impl Leftover {
    /// Finds what is left of a run. No symlink is followed, no mount entered.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn of(record: &RunRecord) -> Result<Self> {
        let top = open(record)?;
        let device = top.stat_self()?.dev;
        let mut found = Self { files: Vec::new(), directories: Vec::new(), closed: Vec::new() };
        let mut pending = vec![RelPath::root()];
        while let Some(path) = pending.pop() {
            match listed(&top, &path) {
                Ok(inside) => {
                    for (path, stat) in inside {
                        match stat.kind {
                            FileKind::Dir if stat.dev == device => pending.push(path),
                            FileKind::Dir => found.closed.push((path, "mount")),
                            _ => found.files.push((path, stat)),
                        }
                    }
                }
                Err(error) if disk::is_withheld(&error) => {
                    found.closed.push((path.clone(), "unreadable"));
                }
                // It went since its name was read.
                Err(error) if is_kind(&error, ErrorKind::NotFound) => continue,
                Err(error) => return Err(error),
            }
            if !path.is_root() {
                found.directories.push(path);
            }
        }
        found.files.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        Ok(found)
    }

    /// What in it is not, by its content, at its path in one of the checkpoints of which these are the entries,
    /// each with the reason. Of what is in a checkpoint `is_stored` says whether the store has the content. The
    /// link to what git kept of the work tree is no loss.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Cancelled`].
    pub(crate) fn not_held(
        &self,
        record: &RunRecord,
        checkpoints: &[Vec<Entry>],
        is_stored: &dyn Fn(BlobHash, u64) -> Result<bool>,
        monitor: &dyn Monitor,
    ) -> Result<Vec<(RelPath, String)>> {
        let top = open(record)?;
        let mut held: HashMap<&RelPath, Vec<&EntryKind>> = HashMap::new();
        for entry in checkpoints.iter().flatten() {
            held.entry(&entry.path).or_default().push(&entry.kind);
        }
        let own_git_dir = record.repository.join("worktrees").join(record.id.to_string());
        let mut left = self.closed.clone();
        let own = self.directories.iter().filter(|path| path.as_bytes() == b".git");
        left.extend(own.map(|path| (path.clone(), "version control of its own")));
        for (path, stat) in &self.files {
            if monitor.is_cancelled() {
                return Err(Error::Cancelled);
            }
            if path.as_bytes() == b".git" && git::is_own_link(&own_git_dir, &record.path())? {
                continue;
            }
            let mut above = path.ancestors().chain([path.clone()]);
            let reason = if let Some(above) = above.find(|it| is_version_control(it.name())) {
                // Named once, however much is in it.
                if left.last().is_none_or(|(last, _)| *last != above) {
                    left.push((above, "version control of its own"));
                }
                continue;
            } else if matches!(stat.kind, FileKind::Other) {
                "special"
            } else {
                let kinds = held.get(path).map(Vec::as_slice).unwrap_or_default();
                match same_of(&top, path, stat, kinds) {
                    Ok(Some(Same::Link)) => continue,
                    Ok(Some(Same::File(hash))) if is_stored(hash, stat.size)? => continue,
                    Ok(Some(Same::File(_))) => LOST,
                    Ok(None) if kinds.is_empty() => "in no checkpoint",
                    Ok(None) => "not as in its checkpoint",
                    Err(error) if disk::is_withheld(&error) => "unreadable",
                    Err(error) => return Err(error),
                }
            };
            left.push((path.clone(), reason));
        }
        left.sort_unstable();
        left.dedup();
        Ok(left.into_iter().map(|(path, reason)| (path, reason.to_owned())).collect())
    }

    /// `paths` as what goes without being held.
    pub(crate) fn left_out(&self, paths: Vec<(RelPath, String)>) -> LeftOut {
        let mut left_out = LeftOut::default();
        for (path, _) in &paths {
            for index in at_or_below(&self.files, path, |(path, _)| path) {
                left_out.files += 1;
                left_out.bytes += self.files[index].1.allocated_bytes();
            }
        }
        LeftOut { paths, ..left_out }
    }

    /// Removes it, with the directory itself; where `all`, also what has come since. Of `unheld`, and what is
    /// below, no matter what it is by now. What cannot be removed does not stop the rest.
    ///
    /// # Errors
    /// [`IsolationError::Changing`] where a file is not the one that was found, or one has come: these stay.
    /// [`IsolationError::NotRemoved`], [`Error::Io`].
    pub(crate) fn remove(
        self,
        record: &RunRecord,
        unheld: &[(RelPath, String)],
        all: bool,
    ) -> Result<()> {
        let id = record.id.to_string();
        let changing = || Err(IsolationError::Changing { path: record.path() }.into());
        let place = above(record)?;
        disk::open_up(&place, id.as_bytes())?;
        let Self { files, directories, .. } = if all { Self::of(record)? } else { self };
        let top = open(record)?;
        let unheld: HashSet<&RelPath> = unheld.iter().map(|(path, _)| path).collect();
        let is_unheld =
            |path: &RelPath| path.ancestors().chain([path.clone()]).any(|it| unheld.contains(&it));
        // The link to its repository last: without it git judges nothing of what is left.
        let (links, files): (Vec<_>, Vec<_>) =
            files.into_iter().partition(|(path, _)| path.as_bytes() == b".git");
        let mut stuck = Stuck::default();
        for (path, then) in &files {
            let then = (!is_unheld(path)).then_some(then);
            stuck.take(path, unlink(record, &top, path, then))?;
        }
        for path in directories.iter().rev() {
            if !stuck.above.contains(path) {
                let above = top.open_dir(&path.parent().unwrap_or_default());
                stuck.take(path, above.and_then(|above| above.remove_dir(path.name())))?;
            }
        }
        if !stuck.paths.is_empty() {
            return Err(
                IsolationError::NotRemoved { path: record.path(), stuck: stuck.paths }.into()
            );
        }
        if stuck.has_more || top.names()?.len() > links.len() {
            return changing();
        }
        for (path, then) in &links {
            unlink(record, &top, path, Some(then))?;
        }
        match place.remove_dir(id.as_bytes()) {
            Err(error) if is_kind(&error, ErrorKind::DirectoryNotEmpty) => changing(),
            removed => removed,
        }
    }
}

fn is_kind(error: &Error, kind: ErrorKind) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == kind)
}

/// What could not be removed.
#[derive(Default)]
struct Stuck {
    /// Each, and why not.
    paths: Vec<(RelPath, String)>,
    /// The directories that it is in.
    above: HashSet<RelPath>,
    /// Whether something has come into one of the directories.
    has_more: bool,
}

impl Stuck {
    fn take(&mut self, path: &RelPath, removed: Result<()>) -> Result<()> {
        match removed {
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::DirectoryNotEmpty => {
                self.above.extend(path.ancestors());
                self.has_more = true;
                Ok(())
            }
            Err(Error::Io { source, .. }) => {
                self.above.extend(path.ancestors());
                self.paths.push((path.clone(), source.to_string()));
                Ok(())
            }
            removed => removed,
        }
    }
}

/// Removes a file that is still as it was found `then`, where that matters.
fn unlink(record: &RunRecord, top: &Dir, path: &RelPath, then: Option<&FileStat>) -> Result<()> {
    let above = top.open_dir(&path.parent().unwrap_or_default())?;
    // Of several names of one file each that goes changes its time.
    let is_as_then = |now: FileStat| {
        then.is_none_or(|then| {
            now.is_same_inode(then)
                && (now.size, now.mtime_ns) == (then.size, then.mtime_ns)
                && (then.nlink > 1 || now.ctime_ns == then.ctime_ns)
        })
    };
    match above.stat(path.name())? {
        Some(now) if is_as_then(now) => above.unlink(path.name()),
        Some(_) => Err(IsolationError::Changing { path: record.path() }.into()),
        None => Ok(()),
    }
}

/// The directory in which those of runs are, through no symlink.
fn above(record: &RunRecord) -> Result<Dir> {
    let place = place(&record.top);
    let names = place.strip_prefix(&record.top).unwrap_or(&place);
    names.iter().try_fold(Dir::open(&record.top)?, |dir, name| dir.open_child(name.as_bytes()))
}

fn open(record: &RunRecord) -> Result<Dir> {
    above(record)?.open_child(record.id.to_string().as_bytes())
}

/// What is in a directory below `top`.
fn listed(top: &Dir, path: &RelPath) -> Result<Vec<(RelPath, FileStat)>> {
    let dir = top.open_dir(path)?;
    let mut inside = Vec::new();
    for name in dir.names()? {
        if let Some(stat) = dir.stat(&name)? {
            inside.push((disk::joined(top, path, &name)?, stat));
        }
    }
    Ok(inside)
}

/// What has the content of something in a checkpoint.
enum Same {
    Link,
    File(BlobHash),
}

/// A file or symlink that has the content of one of `kinds`.
fn same_of(
    top: &Dir,
    path: &RelPath,
    stat: &FileStat,
    kinds: &[&EntryKind],
) -> Result<Option<Same>> {
    if stat.kind == FileKind::Symlink {
        let now = top.open_dir(&path.parent().unwrap_or_default())?.read_link(path.name())?;
        let is_same =
            |kind: &&EntryKind| matches!(kind, EntryKind::Symlink { target } if **target == *now);
        return Ok(kinds.iter().any(is_same).then_some(Same::Link));
    }
    let has_length =
        |kind: &&EntryKind| matches!(kind, EntryKind::File { size, .. } if *size == stat.size);
    if !kinds.iter().any(has_length) {
        return Ok(None);
    }
    let file = top.open_file_beneath(path)?;
    let shown = top.path_of(path.as_bytes());
    if !disk::file_stat(&file, &shown)?.is_same_inode(stat) {
        return Ok(None);
    }
    let now = disk::hash_file(&file, &shown)?;
    let is_same = |kind: &&EntryKind| matches!(kind, EntryKind::File { hash, .. } if *hash == now);
    Ok(kinds.iter().any(is_same).then_some(Same::File(now)))
}
