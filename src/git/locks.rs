//! Locks of refs that a git left that was killed.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::disk;
use crate::error::Result;
use crate::limits;

/// The commands of git that wait for others, and so may have their directory anywhere for ever.
const WAITING: [&str; 3] = ["daemon", "fsmonitor--daemon", "credential-cache--daemon"];

/// The options before git's command whose value is a word of its own.
const WITH_VALUE: [&str; 7] =
    ["-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env", "--super-prefix"];

/// A lock that is in the way.
#[derive(Debug)]
pub(crate) struct RefLock {
    /// The file.
    pub(crate) path: PathBuf,
    /// The runs of git that may have it; none where it is only too young to be taken for left.
    pub(crate) processes: Vec<u32>,
}

/// Removes the locks of the refs `refs`, and below `below`, that a killed git left. Returns the removed ones, and
/// the first that may be somebody's.
///
/// A lock is left if it was not touched for [`limits::REF_LOCK_DEAD_AFTER`] and no git is at work in the
/// repository, as far as this user can see. The caller is the only one of us who writes these refs. The locks of
/// all refs are never removed: whoever has one need not touch it, nor be seen from here.
///
/// # Errors
/// [`crate::Error::Io`].
pub(crate) fn clear_locks(
    common_dir: &Path,
    refs: &[String],
    below: &str,
) -> Result<(Vec<PathBuf>, Option<RefLock>)> {
    let mut locks: Vec<PathBuf> =
        refs.iter().map(|name| common_dir.join(format!("{name}.lock"))).collect();
    let directory = common_dir.join(below);
    if disk::is_directory(&directory)? {
        let names = disk::list_dir(&directory)?.into_iter().map(|(name, _)| name);
        let names = names.filter(|name| name.ends_with(b".lock"));
        locks.extend(names.map(|name| directory.join(OsStr::from_bytes(&name))));
    }
    let mut found = Vec::new();
    for path in locks {
        found.extend(stamp_of(&path)?.map(|stamp| (path, stamp)));
    }
    let (mut removed, mut in_the_way) = (Vec::new(), None);
    if found.is_empty() {
        return Ok((removed, in_the_way));
    }
    let processes = disk::programs_that_stay_in(is_at_work, &places(common_dir)?)?;
    for (path, stamp) in found {
        if stamp.is_old() && processes.is_empty() && remove_if_as(&path, &stamp)? {
            removed.push(path);
        } else if stamp_of(&path)?.is_some() {
            let processes = processes.clone();
            in_the_way.get_or_insert(RefLock { path, processes });
        }
    }
    Ok((removed, in_the_way))
}

/// What tells one lock from another of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LockStamp {
    inode: u64,
    modified_ns: i64,
}

impl LockStamp {
    fn is_old(&self) -> bool {
        let age = disk::coarse_now_ns().saturating_sub(self.modified_ns);
        i128::from(age) >= limits::REF_LOCK_DEAD_AFTER.as_nanos().cast_signed()
    }
}

/// The stamp of the lock at `path`; `None` where there is none.
pub(super) fn stamp_of(path: &Path) -> Result<Option<LockStamp>> {
    let (above, name) = (path.parent().unwrap_or(path), path.file_name().unwrap_or_default());
    if !disk::is_directory(above)? {
        return Ok(None);
    }
    let stat = disk::Dir::open(above)?.stat(name.as_bytes())?;
    Ok(stat.map(|stat| LockStamp { inode: stat.ino, modified_ns: stat.mtime_ns }))
}

/// Removes the lock at `path` if it is still the one of that stamp: the look for processes takes a while, and
/// meanwhile the name may have become another one's.
pub(super) fn remove_if_as(path: &Path, stamp: &LockStamp) -> Result<bool> {
    Ok(stamp_of(path)?.as_ref() == Some(stamp) && disk::remove_file(path)?)
}

/// Whether a process that was started with `words` is a git that does something, and does not wait for others.
pub(super) fn is_at_work(words: &[String]) -> bool {
    let mut words = words.iter().map(String::as_str);
    let name = words.next().and_then(|word| word.rsplit('/').next()).unwrap_or_default();
    if let Some(command) = name.strip_prefix("git-") {
        return !WAITING.contains(&command);
    }
    if name != "git" {
        return false;
    }
    while let Some(word) = words.next() {
        if WITH_VALUE.contains(&word) {
            words.next();
        } else if !word.starts_with('-') {
            return !WAITING.contains(&word);
        }
    }
    true
}

/// Where a git may be at work that writes refs of the repository.
fn places(common_dir: &Path) -> Result<Vec<PathBuf>> {
    let mut places = vec![common_dir.to_owned()];
    if common_dir.file_name() == Some(OsStr::new(".git")) {
        places.extend(common_dir.parent().map(Path::to_owned));
    }
    let all = common_dir.join("worktrees");
    if disk::is_directory(&all)? {
        for (name, _) in disk::list_dir(&all)? {
            let git_dir = all.join(OsStr::from_bytes(&name));
            let link = disk::read_small(&git_dir.join("gitdir"), limits::SMALL_FILE_BYTES_MAX)?;
            let link = link.unwrap_or_default();
            // Relative ones are seen from here.
            let link = git_dir.join(OsStr::from_bytes(link.trim_ascii_end()));
            places.extend(link.parent().and_then(|top| disk::real_path(top).ok()));
        }
    }
    Ok(places)
}
