//! What git says of the files of a work tree, and a commit of what is staged in it.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use super::{
    DURABLE, Ending, GitError, Repository, TrackedPath, finish, joined, parse_tracked, run,
    surrounded,
};
use crate::clock::Timestamp;
use crate::disk::{self, Dir, FileKind};
use crate::error::Result;
use crate::path::{RelPath, at_or_below};

/// What the name of a copy of an index begins with, beside it.
const INDEX_COPY: &str = "turnpoint-index";

/// What git says of the files of a work tree.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Status {
    /// What is tracked, in order.
    tracked: Vec<TrackedPath>,
    /// What is not as in the index, or not tracked, in order.
    differing: Vec<RelPath>,
    /// What is ignored, in order; a whole directory is one.
    ignored: Vec<RelPath>,
    /// Whether something is staged that is neither in HEAD nor in the files.
    pub(crate) has_own_index: bool,
    /// How many paths are not as in HEAD.
    pub(crate) changed: u64,
    /// What takes several commands and has not ended.
    pub(crate) unfinished: Option<&'static str>,
}

impl Status {
    /// What is not as in the index, or not tracked, in order.
    pub(crate) fn differing(&self) -> &[RelPath] {
        &self.differing
    }

    /// What is ignored, in order; a whole directory is one.
    pub(crate) fn ignored(&self) -> &[RelPath] {
        &self.ignored
    }

    /// Whether git holds all that is at and below `path`; with `ignored`, or leaves it out by its rules.
    pub(crate) fn spares(&self, path: &RelPath, ignored: bool) -> bool {
        let has_some = |paths: &[RelPath]| at_or_below(paths, path, |it| it).next().is_some();
        if has_some(&self.differing) {
            return false;
        }
        let is_ignored = has_some(&self.ignored)
            || path.ancestors().any(|above| self.ignored.binary_search(&above).is_ok());
        let is_tracked = at_or_below(&self.tracked, path, |it| &it.path).next().is_some();
        if is_ignored { ignored } else { is_tracked }
    }

    /// Whether something that is tracked at or below `path`, which lies below `top`, is a directory there: of
    /// a repository git has the commit that is checked out in it, and nothing else.
    ///
    /// # Errors
    /// [`crate::Error::Io`].
    pub(crate) fn has_repository(&self, top: &Dir, path: &RelPath) -> Result<bool> {
        for index in at_or_below(&self.tracked, path, |it| &it.path) {
            let path = &self.tracked[index].path;
            let above = top.try_open_dir(&path.parent().unwrap_or_default())?;
            let stat = above.map(|above| above.stat(path.name())).transpose()?.flatten();
            if stat.is_some_and(|stat| stat.kind == FileKind::Dir) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// What git says of a work tree, at whose top `.git` leads to `repository`.
///
/// # Errors
/// See [`GitError`].
pub(crate) fn status(
    repository: &Repository,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Status, GitError> {
    let top = &repository.top;
    let mut status = Status { unfinished: unfinished(&repository.git_dir), ..Status::default() };
    let listed = run(repository, top, &["ls-files", "-z", "-v", "--cached"], is_cancelled)?;
    let listed = listed.success()?;
    status.tracked = parse_tracked(&listed, b"")?;
    let not_looked_at = not_looked_at(&listed, top).map_err(|error| GitError::of(&error))?;
    // Of what it was told to take for unchanged git says nothing, whatever has become of it.
    let told_to_look = if not_looked_at.is_empty() {
        None
    } else {
        Some(IndexCopy::told_to_look(repository, &not_looked_at, is_cancelled)?)
    };
    let words = [
        "status",
        "--porcelain=v1",
        "-z",
        "--no-renames",
        "--untracked-files=all",
        "--ignored=matching",
        "--ignore-submodules=none",
    ];
    let mut command = match &told_to_look {
        Some(copy) => copy.command(repository, &words),
        None => within(repository, &words),
    };
    command.stdin(Stdio::null());
    let output = finish(command, top, Ending::Asked, is_cancelled)?.success()?;
    let top_dir = Dir::open(top).map_err(|error| GitError::of(&error))?;
    for line in output.split(|&byte| byte == 0) {
        let [staged, file, b' ', path @ ..] = line else { continue };
        let Ok(path) = RelPath::new(path.strip_suffix(b"/").unwrap_or(path)) else { continue };
        if *staged == b'!' {
            status.ignored.push(path);
            continue;
        }
        status.changed += 1;
        let is_unmerged =
            matches!((staged, file), (b'U', _) | (_, b'U') | (b'D', b'D') | (b'A', b'A'));
        if is_unmerged {
            status.unfinished.get_or_insert("a merge");
        }
        let is_staged = !matches!(staged, b' ' | b'?');
        let is_in_file = || -> Result<bool, GitError> {
            // What git was told not to look at need not be there: it calls that unchanged.
            let there = || top_dir.try_open_dir(&path.parent().unwrap_or_default());
            let stat = there().and_then(|above| above.map(|it| it.stat(path.name())).transpose());
            let is_there = stat.map_err(|error| GitError::of(&error))?.flatten().is_some();
            Ok(*file == b' ' && (*staged == b'D' || is_there))
        };
        status.has_own_index = status.has_own_index || (is_staged && !is_in_file()?);
        // What is staged as it is in the file is in the index; that one goes with the work tree.
        if is_staged || *file != b' ' {
            status.differing.push(path);
        }
    }
    status.tracked.sort_unstable_by(|one, other| one.path.cmp(&other.path));
    status.differing.sort_unstable();
    status.ignored.sort_unstable();
    Ok(status)
}

/// How many paths of a work tree git finds not to be as in HEAD, our own directory left out: a whole directory
/// that is not tracked is one.
///
/// # Errors
/// See [`GitError`].
pub(crate) fn count_changed(
    repository: &Repository,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<u64, GitError> {
    let words = [
        "status",
        "--porcelain=v1",
        "-z",
        "--no-renames",
        "--untracked-files=normal",
        "--ignore-submodules=dirty",
        "--",
        ":(exclude,top).turnpoint",
    ];
    let mut command = within(repository, &words);
    command.stdin(Stdio::null());
    let output = finish(command, &repository.top, Ending::Asked, is_cancelled)?.success()?;
    Ok(output.split(|&byte| byte == 0).filter(|line| !line.is_empty()).count() as u64)
}

/// Whether a work tree is a sparse checkout.
///
/// # Errors
/// See [`GitError`].
pub(crate) fn is_sparse(repository: &Repository) -> Result<bool, GitError> {
    let words = ["config", "--type=bool", "--get", "core.sparseCheckout"];
    let answer = run(repository, &repository.top, &words, &|| false)?.found()?;
    Ok(answer.is_some_and(|answer| answer.trim_ascii() == b"true"))
}

/// Those paths of the list of `git ls-files -v` that git does not look at, by `update-index --skip-worktree` or
/// `--assume-unchanged` or a sparse checkout, and that are there all the same; each ends with a zero byte.
fn not_looked_at(list: &[u8], top: &Path) -> Result<Vec<u8>> {
    let top = Dir::open(top)?;
    let mut paths = Vec::new();
    for line in list.split(|&byte| byte == 0) {
        let [b'S' | b's' | b'h', b' ', path @ ..] = line else { continue };
        let Ok(path) = RelPath::new(path) else { continue };
        let above = top.try_open_dir(&path.parent().unwrap_or_default())?;
        if above.map(|above| above.stat(path.name())).transpose()?.flatten().is_some() {
            paths.extend_from_slice(path.as_bytes());
            paths.push(0);
        }
    }
    Ok(paths)
}

/// What is under way in the work tree of which `git_dir` is kept.
fn unfinished(git_dir: &Path) -> Option<&'static str> {
    let signs = [
        ("MERGE_HEAD", "a merge"),
        ("CHERRY_PICK_HEAD", "a cherry-pick"),
        ("REVERT_HEAD", "a revert"),
        ("rebase-merge", "a rebase"),
        ("rebase-apply", "a rebase or an `am`"),
        ("BISECT_LOG", "a bisection"),
    ];
    let is_there = |name: &str| git_dir.join(name).symlink_metadata().is_ok();
    signs.iter().find(|(name, _)| is_there(name)).map(|(_, what)| *what)
}

/// Whether what is staged is not as in HEAD. No file is looked at.
///
/// # Errors
/// See [`GitError`].
pub(crate) fn has_own_index(repository: &Repository) -> Result<bool, GitError> {
    let top = &repository.top;
    let head = ["rev-parse", "--verify", "--quiet", "HEAD^{commit}"];
    if run(repository, top, &head, &|| false)?.found()?.is_none() {
        let staged = run(repository, top, &["ls-files", "-z", "--cached"], &|| false)?.success()?;
        return Ok(!staged.is_empty());
    }
    let compare = ["diff-index", "--cached", "--name-only", "-z", "--no-renames", "HEAD", "--"];
    Ok(!run(repository, top, &compare, &|| false)?.success()?.is_empty())
}

/// Makes a commit of what is staged, on top of `parent`, dated `at`. No ref leads to it yet. A path in
/// conflict is in it as HEAD has it, or another side where HEAD has none: commits have them all.
///
/// # Errors
/// See [`GitError`].
pub(crate) fn commit_staged(
    repository: &Repository,
    parent: Option<&str>,
    at: Timestamp,
    message: &str,
) -> Result<String, GitError> {
    let top = &repository.top;
    let date = format!("@{} +0000", at.as_ns() / 1_000_000_000);
    let copy = IndexCopy::make(repository).map_err(|error| GitError::of(&error))?;
    let run = |words: &[&str], input: Stdio| -> Result<Vec<u8>, GitError> {
        let mut command = copy.command(repository, &[&DURABLE[..], words].concat());
        command.stdin(input);
        // Nobody needs to have said who they are for this. At the same time, the same is the same commit.
        for who in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{who}_DATE"), &date);
            command.env(format!("GIT_{who}_NAME"), "turnpoint");
            command.env(format!("GIT_{who}_EMAIL"), "turnpoint@localhost");
        }
        finish(command, top, Ending::Asked, &|| false)?.success()
    };
    let one = |words: &[&str]| -> Result<String, GitError> {
        let output = run(words, Stdio::null())?;
        Ok(String::from_utf8_lossy(output.trim_ascii_end()).into_owned())
    };
    // git makes no tree of an index with conflicts.
    let entries = settled(&run(&["ls-files", "-z", "--unmerged"], Stdio::null())?);
    if !entries.is_empty() {
        let file = copy.list(&entries).map_err(|error| GitError::of(&error))?;
        run(&["update-index", "-z", "--index-info"], Stdio::from(file))?;
    }
    let tree = one(&["write-tree"])?;
    let mut words = vec!["commit-tree", "--no-gpg-sign", "-m", message];
    words.extend(parent.into_iter().flat_map(|parent| ["-p", parent]));
    words.push(&tree);
    one(&words)
}

/// One entry for each path in conflict, as `git update-index --index-info` reads them, from the sides that
/// `git ls-files --unmerged` lists: HEAD's, else that of what is merged, else the one of before both.
fn settled(unmerged: &[u8]) -> Vec<u8> {
    let mut chosen: BTreeMap<&[u8], (usize, &[u8])> = BTreeMap::new();
    for line in unmerged.split(|&byte| byte == 0) {
        let Some(tab) = line.iter().position(|&byte| byte == b'\t') else { continue };
        let (about, path) = line.split_at(tab);
        let Some((&stage, [.., b' '])) = about.split_last() else { continue };
        let rank = [b'2', b'3', b'1'].iter().position(|&side| side == stage).unwrap_or(3);
        let entry = (rank, &about[..about.len() - 1]);
        let best = chosen.entry(path).or_insert(entry);
        *best = (*best).min(entry);
    }
    let entry = |(path, (_, about)): (&[u8], (usize, &[u8]))| [about, b"0", path, b"\0"].concat();
    chosen.into_iter().flat_map(entry).collect()
}

/// A copy of the index of a work tree, which goes with this. git writes an index anew when it makes a tree
/// of it, each time where a path is only intended to be added; of the index itself that would look like
/// somebody's work. What a killed process leaves goes with git's directory of the work tree.
struct IndexCopy {
    dir: Dir,
    name: String,
}

impl IndexCopy {
    fn make(repository: &Repository) -> Result<Self> {
        // Whoever only looks at a run does so beside one that removes it.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = Dir::open(&repository.git_dir)?;
        let copy = Self { dir, name: format!("{INDEX_COPY}-{}-{number}", std::process::id()) };
        copy.clear();
        let index = repository.git_dir.join("index");
        // By this git knows which files may have changed since without a sign of it.
        let modified = disk::modified_ns(&index)?;
        disk::copy_file(&index, &copy.dir, copy.name.as_bytes())?;
        if let Some(modified) = modified {
            copy.dir.set_mtime(copy.name.as_bytes(), modified)?;
        }
        Ok(copy)
    }

    /// One in which git has not been told to take `paths` for unchanged.
    fn told_to_look(
        repository: &Repository,
        paths: &[u8],
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<Self, GitError> {
        let copy = Self::make(repository).map_err(|error| GitError::of(&error))?;
        // Of both at once git minds the first alone.
        for what in ["--no-skip-worktree", "--no-assume-unchanged"] {
            let list = copy.list(paths).map_err(|error| GitError::of(&error))?;
            let mut command = copy.command(repository, &["update-index", what, "-z", "--stdin"]);
            command.stdin(list);
            finish(command, &repository.top, Ending::Asked, is_cancelled)?.success()?;
        }
        Ok(copy)
    }

    /// git on the work tree, with this as its index.
    fn command(&self, repository: &Repository, words: &[&str]) -> Command {
        let mut command = within(repository, words);
        command.env("GIT_INDEX_FILE", self.dir.path_of(self.name.as_bytes()));
        command
    }

    /// A file with `entries`, to be read.
    fn list(&self, entries: &[u8]) -> Result<disk::File> {
        let name = format!("{}-entries", self.name);
        let name = name.as_bytes();
        self.dir.try_unlink(name)?;
        let mut file = self.dir.create_file(name)?;
        disk::write_whole(&mut file, entries, &self.dir.path_of(name))?;
        self.dir.open_file(name)
    }

    fn clear(&self) {
        for end in ["", "-entries", ".lock"] {
            // What stays is in the way of the next copy of this name, which says so.
            drop(self.dir.try_unlink(format!("{}{end}", self.name).as_bytes()));
        }
    }
}

impl Drop for IndexCopy {
    fn drop(&mut self) {
        self.clear();
    }
}

/// git on a work tree, filters included: so its check of who owns the repository is not lifted.
fn within(repository: &Repository, words: &[&str]) -> Command {
    let mut command = surrounded(&repository.top);
    command.arg(joined("--git-dir=", &repository.git_dir));
    command.arg(joined("--work-tree=", &repository.top)).args(words);
    command
}
