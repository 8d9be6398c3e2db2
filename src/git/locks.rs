//! Locks of refs that a git left that was killed.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::disk;
use crate::error::Result;
use crate::limits;

/// What git locks to change any ref of a repository.
const SHARED: [&str; 2] = ["packed-refs.lock", "reftable/tables.list.lock"];

/// A lock that is in the way.
#[derive(Debug)]
pub(crate) struct RefLock {
    /// The file.
    pub(crate) path: PathBuf,
    /// The runs of git that may have it; none where it is only too young to be taken for left.
    pub(crate) processes: Vec<u32>,
}

/// Removes the locks of the refs `refs`, and below `below`, that a killed git left; with `shared` also those
/// of all refs. Returns the removed ones, and the first of the refs' own that may be somebody's.
///
/// A lock is left if it was not touched for [`limits::REF_LOCK_DEAD_AFTER`] and no git is at work in the
/// repository, as far as this user can see. The caller is the only one of us who writes these refs.
///
/// # Errors
/// [`crate::Error::Io`].
pub(crate) fn clear_locks(
    common_dir: &Path,
    refs: &[String],
    below: &str,
    shared: bool,
) -> Result<(Vec<PathBuf>, Option<RefLock>)> {
    let mut own: Vec<PathBuf> =
        refs.iter().map(|name| common_dir.join(format!("{name}.lock"))).collect();
    let directory = common_dir.join(below);
    if disk::is_directory(&directory)? {
        let names = disk::list_dir(&directory)?.into_iter().map(|(name, _)| name);
        let locks = names.filter(|name| name.ends_with(b".lock"));
        own.extend(locks.map(|name| directory.join(OsStr::from_bytes(&name))));
    }
    let shared = SHARED.iter().filter(|_| shared).map(|name| common_dir.join(name));
    let all = own.into_iter().map(|path| (path, true)).chain(shared.map(|path| (path, false)));
    let mut found = Vec::new();
    for (path, is_own) in all {
        found.extend(disk::modified_ns(&path)?.map(|modified| (path, is_own, modified)));
    }
    let (mut removed, mut in_the_way) = (Vec::new(), None);
    if found.is_empty() {
        return Ok((removed, in_the_way));
    }
    let processes = disk::programs_that_stay_in("git", &places(common_dir)?)?;
    for (path, is_own, modified) in found {
        let age = disk::coarse_now_ns().saturating_sub(modified);
        let is_old = i128::from(age) >= limits::REF_LOCK_DEAD_AFTER.as_nanos().cast_signed();
        if is_old && processes.is_empty() {
            disk::remove_file(&path)?;
            removed.push(path);
        } else if is_own && disk::modified_ns(&path)?.is_some() {
            let processes = processes.clone();
            in_the_way.get_or_insert(RefLock { path, processes });
        }
    }
    Ok((removed, in_the_way))
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
