//! Asking git about a repository and its work trees, and having it write there, beside others who make and remove
//! work trees at the same moment.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Answer, Ending, GitError, POLL, finish, joined, read_line, repository_of, surrounded};
use crate::disk::{self, Lock};

/// How often git is run again that stumbled over a work tree of somebody else's.
pub(super) const TRIES_MAX: u32 = 100;

/// For what takes a moment, or writes: it is not ended in the middle.
pub(super) const UNDISTURBED: &dyn Fn() -> bool = &|| false;

/// Asks git in `directory`, in whatever repository it finds there.
pub(super) fn ask(
    directory: &Path,
    words: &[&str],
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Answer, GitError> {
    let command = || {
        let mut command = surrounded(directory);
        command.args(words).stdin(Stdio::null());
        command
    };
    // As git finds it, without asking git.
    let common_dir = repository_of(directory).map(|found| found.common_dir);
    answered(command, directory, common_dir.as_deref(), is_cancelled)
}

/// Asks git about the repository, or the work tree, of which `git_dir` is kept.
pub(super) fn ask_of(
    git_dir: &Path,
    words: &[&str],
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Answer, GitError> {
    let command = || {
        let mut command = surrounded(git_dir);
        command.arg(joined("--git-dir=", git_dir)).args(words).stdin(Stdio::null());
        command
    };
    let common_dir = common_dir_of(git_dir);
    answered(command, git_dir, Some(&common_dir), is_cancelled)
}

/// What the work trees share of one of which `git_dir` is kept; that itself where it is the repository's.
pub(super) fn common_dir_of(git_dir: &Path) -> PathBuf {
    let common = read_line(&git_dir.join("commondir")).map(|common| git_dir.join(common));
    common.and_then(|common| disk::real_path(&common).ok()).unwrap_or_else(|| git_dir.to_owned())
}

/// Whether git speaks of what it keeps of a work tree in `common_dir`. Of that it prints the whole path, or one
/// from where it found the repository. A directory of the user may have the same name.
pub(super) fn is_of_work_trees(complaint: &[u8], common_dir: &Path) -> bool {
    let has = |part: &[u8]| complaint.windows(part.len()).any(|found| found == part);
    let all = common_dir.join("worktrees/");
    has(all.as_os_str().as_bytes())
        || [&b" .git/worktrees/"[..], b"'.git/worktrees/"].into_iter().any(has)
}

/// Asks git, again where it stumbled over a work tree that somebody makes or removes at this moment.
fn answered(
    command: impl Fn() -> Command,
    directory: &Path,
    common_dir: Option<&Path>,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Answer, GitError> {
    let mut tries = 0;
    loop {
        let answer = finish(command(), directory, Ending::Asked, is_cancelled)?;
        let has_stumbled = !answer.status.success()
            && common_dir.is_some_and(|common| is_of_work_trees(&answer.complaint, common));
        if !has_stumbled || tries == TRIES_MAX {
            return Ok(answer);
        }
        if is_cancelled() {
            return Err(GitError::Cancelled);
        }
        tries += 1;
        std::thread::sleep(POLL);
    }
}

/// Has git write, for the work tree at `path`. Its input is the file of the lock, in which nothing is: so the
/// lock is held for as long as it runs, and its end is known also to those who come after this process was
/// killed.
///
/// git reads what it keeps of every work tree, and fails on one that is just being made or removed by
/// somebody else. It is tried again then; `command` is told so.
pub(super) fn write(
    command: impl Fn(bool) -> Command,
    directory: &Path,
    common_dir: &Path,
    path: &Path,
    lock: &Lock,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<(), GitError> {
    let own = path.file_name().unwrap_or_default().to_string_lossy();
    let mut tries = 0;
    loop {
        let file = lock.shared_with_child().map_err(|error| GitError::failed(error.to_string()))?;
        let mut command = command(tries > 0);
        command.stdin(file);
        let answer = finish(command, directory, Ending::Asked, is_cancelled)?;
        let is_again = !answer.status.success()
            && is_of_another(answer.reason(), common_dir, &own)
            && tries < TRIES_MAX;
        if !is_again {
            return answer.success().map(drop);
        }
        if is_cancelled() {
            return Err(GitError::Cancelled);
        }
        tries += 1;
        std::thread::sleep(POLL);
    }
}

/// Whether git failed over what it keeps of another work tree than the one named `own`.
pub(super) fn is_of_another(reason: &[u8], common_dir: &Path, own: &str) -> bool {
    let text = String::from_utf8_lossy(reason);
    // The directory of all of them goes with the last.
    let is_without_place =
        text.contains("could not create directory") && text.contains("No such file or directory");
    is_of_work_trees(reason, common_dir) && (!text.contains(own) || is_without_place)
}
