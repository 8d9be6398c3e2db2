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
#[derive(Debug, Default)]
pub(crate) struct Leftover {
    /// What is no directory, in order.
    files: Vec<(RelPath, FileStat)>,
    /// Each after the one that it is in.
    directories: Vec<RelPath>,
    /// What was not looked into, and why.
    closed: Vec<(RelPath, Reason)>,
    /// At and below these everything goes, whatever it is by then: nobody holds it.
    given_up: HashSet<RelPath>,
    /// Of that, what somebody holds all the same.
    spared: HashSet<RelPath>,
}

impl Leftover {
    /// Finds what is left of a run. No symlink is followed, no mount entered.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn of(record: &RunRecord) -> Result<Self> {
        let top = open(record)?;
        let device = top.stat_self()?.dev;
        let mut found = Self::default();
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
                Err(error) if is_kind(&error, ErrorKind::PermissionDenied) => {
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

    /// What was not looked into, but for what git ignores, each with the reason: what git tracks in it is as
    /// unknown as what it does not.
    pub(crate) fn closed_besides(&self, ignored: &[RelPath]) -> Vec<(RelPath, String)> {
        let is_ignored = |path: &RelPath| ignored.iter().any(|other| path.is_at_or_below(other));
        let closed = self.closed.iter().filter(|(path, _)| !is_ignored(path));
        closed.map(|(path, reason)| (path.clone(), (*reason).to_owned())).collect()
    }

    /// Says what goes whatever it is by then: `paths` and what is below them; but not what a checkpoint holds
    /// there, of which these are the entries, in order.
    pub(crate) fn giving_up(self, paths: &[(RelPath, String)], entries: &[Entry]) -> Self {
        let given_up: HashSet<RelPath> = paths.iter().map(|(path, _)| path).cloned().collect();
        let held = given_up.iter().flat_map(|path| at_or_below(entries, path, |entry| &entry.path));
        let is_held = |entry: &&Entry| {
            matches!(entry.kind, EntryKind::File { .. } | EntryKind::Symlink { .. })
        };
        let is_below = |entry: &&Entry| !given_up.contains(&entry.path);
        let spared = held.map(|index| &entries[index]).filter(is_held).filter(is_below);
        let spared = spared.map(|entry| entry.path.clone()).collect();
        Self { given_up, spared, ..self }
    }

    fn goes_anyway(&self, path: &RelPath) -> bool {
        let mut all = path.ancestors().chain([path.clone()]);
        !self.spared.contains(path) && all.any(|path| self.given_up.contains(&path))
    }

    /// Whether everything that does not go anyway is still as it was found, and nothing has come.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn is_still(&self, record: &RunRecord) -> Result<bool> {
        let now = Self::of(record)?;
        let then = self.stats();
        let is_as_then = |(path, now): &(RelPath, FileStat)| {
            self.goes_anyway(path) || then.get(path).is_some_and(|then| is_untouched(now, then))
        };
        Ok(now.files.iter().all(is_as_then))
    }

    fn stats(&self) -> HashMap<&RelPath, &FileStat> {
        self.files.iter().map(|(path, stat)| (path, stat)).collect()
    }

    /// Removes it, with the directory itself. What is not as it was found stays, and so does what has come
    /// since; but not what goes anyway. What cannot be removed does not stop the rest.
    ///
    /// # Errors
    /// [`IsolationError::Changing`] where something stayed for that. [`IsolationError::NotRemoved`],
    /// [`Error::Io`].
    pub(crate) fn remove(self, record: &RunRecord) -> Result<()> {
        let id = record.id.to_string();
        let changing = || Err(IsolationError::Changing { path: record.path() }.into());
        let place = above(record)?;
        match disk::open_up(&place, id.as_bytes()) {
            // A directory of somebody else: it stays, and is named.
            Err(error) if is_kind(&error, ErrorKind::PermissionDenied) => {}
            opened => opened?,
        }
        let mut now = Self::of(record)?;
        // Rules after everything that they are about, and the link to the repository last: without them git
        // takes what it ignores for new, and judges nothing of what is left.
        now.files.sort_by_key(|(path, _)| match path.name() {
            b".git" if path.as_bytes() == b".git" => 2,
            b".gitignore" | b".gitattributes" => 1,
            _ => 0,
        });
        let top = open(record)?;
        let then = self.stats();
        let mut stuck = Stuck::default();
        for (path, reason) in now.closed {
            stuck.name(&path, reason.to_owned());
            stuck.above.insert(path);
        }
        let (mut link, mut linked) = (None, HashSet::new());
        for (path, stat) in &now.files {
            let then = then.get(path).copied();
            let is_rule = matches!(path.name(), b".gitignore" | b".gitattributes");
            if path.as_bytes() == b".git" {
                link = then.map(|then| (path, then));
            } else if is_rule && stuck.is_any() {
                // What stays is judged by it.
                stuck.above.extend(path.ancestors());
            } else if self.goes_anyway(path) {
                if stat.nlink > 1 {
                    linked.insert((stat.dev, stat.ino));
                }
                let above = top.open_dir(&path.parent().unwrap_or_default());
                let removed = above.and_then(|above| above.try_unlink(path.name()));
                stuck.take(path, removed.map(|_| ()))?;
            } else {
                let removed = then.map_or(Ok(false), |then| unlink(&top, path, then, &mut linked));
                stuck.has_more |= matches!(removed, Ok(false));
                stuck.take(path, removed.map(|_| ()))?;
            }
        }
        for path in now.directories.iter().rev() {
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
        if stuck.has_more || top.names()?.len() != usize::from(link.is_some()) {
            return changing();
        }
        if let Some((path, then)) = link
            && !unlink(&top, path, then, &mut linked)?
        {
            return changing();
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
    fn is_any(&self) -> bool {
        self.has_more || !self.paths.is_empty()
    }

    fn name(&mut self, path: &RelPath, reason: String) {
        self.above.extend(path.ancestors());
        self.paths.push((path.clone(), reason));
    }

    fn take(&mut self, path: &RelPath, removed: Result<()>) -> Result<()> {
        match removed {
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::DirectoryNotEmpty => {
                self.above.extend(path.ancestors());
                self.has_more = true;
                Ok(())
            }
            // Somebody else was faster.
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(()),
            Err(Error::Io { source, .. }) => {
                self.name(path, source.to_string());
                Ok(())
            }
            removed => removed,
        }
    }
}

fn is_untouched(now: &FileStat, then: &FileStat) -> bool {
    now.is_same_inode(then)
        && (now.size, now.mtime_ns, now.ctime_ns) == (then.size, then.mtime_ns, then.ctime_ns)
}

/// Removes a file that is still as it was found `then`; `false` where it is not, and stays. `linked` are the
/// inodes of which a name was removed here: that changes the time of the others.
fn unlink(
    top: &Dir,
    path: &RelPath,
    then: &FileStat,
    linked: &mut HashSet<(u64, u64)>,
) -> Result<bool> {
    let above = top.open_dir(&path.parent().unwrap_or_default())?;
    let Some(now) = above.stat(path.name())? else { return Ok(true) };
    let inode = (now.dev, now.ino);
    let seen =
        if linked.contains(&inode) { FileStat { ctime_ns: now.ctime_ns, ..*then } } else { *then };
    if !is_untouched(&now, &seen) {
        return Ok(false);
    }
    above.unlink(path.name())?;
    if now.nlink > 1 {
        linked.insert(inode);
    }
    Ok(true)
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

#[cfg(test)]
mod tests;
