//! The one way to run git, and what is asked of it.
//!
//! turnpoint often runs inside a hook of git or of an agent, in a repository that a stranger wrote.
//! So nothing of the caller's environment may say which repository is meant, nothing in the
//! repository's configuration may name a program that then runs, and every run has a
//! closed stdin and a bounded output. One that reads an index or a HEAD for a capture has a deadline; one that
//! makes, looks at or removes a work tree has none, and ends when the caller asks for it. git is never needed:
//! a machine without it, or a repository that it refuses, is an outcome ([`GitError`]), not a failure of the
//! capture.

mod asking;
mod locks;
mod status;
mod worktree;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::disk;
use crate::limits;
use crate::manifest::GitState;
use crate::path::{RelPath, printable};

pub(crate) use locks::{RefLock, clear_locks};
pub(crate) use status::{Status, commit_staged, count_changed, has_own_index, is_sparse, status};
pub(crate) use worktree::{
    Administration, Place, Stays, Tips, add_worktree, administer, administration, common_dir,
    complete, count_since, delete_branch, exclude, exists, is_ignored, is_own_link, keep,
    kept_refs, lead_back, only_led_to_by, place_of, remove_worktree, tips,
};

/// What git exports to its hooks and reads back, which would lead our runs into another repository:
/// the names that `git rev-parse --local-env-vars` prints, those of earlier and later versions, and
/// those that change what paths mean. What git needs to reach a remote (`GIT_SSH*`, `GIT_ASKPASS`
/// and their kind) stays.
const DROPPED: [&str; 28] = [
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_ATTR_NOSYSTEM",
    "GIT_ATTR_SOURCE",
    "GIT_CEILING_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_DEFAULT_HASH",
    "GIT_DEFAULT_REF_FORMAT",
    "GIT_DIR",
    "GIT_DISCOVERY_ACROSS_FILESYSTEM",
    "GIT_EXTERNAL_DIFF",
    "GIT_GLOB_PATHSPECS",
    "GIT_GRAFT_FILE",
    "GIT_ICASE_PATHSPECS",
    "GIT_IMPLICIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_INTERNAL_SUPER_PREFIX",
    "GIT_LITERAL_PATHSPECS",
    "GIT_NAMESPACE",
    "GIT_NOGLOB_PATHSPECS",
    "GIT_NO_REPLACE_OBJECTS",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_QUARANTINE_PATH",
    "GIT_REFLOG_ACTION",
    "GIT_REPLACE_REF_BASE",
    "GIT_SHALLOW_FILE",
    "GIT_WORK_TREE",
    "LANGUAGE",
];

/// Whole families that are dropped: configuration from the outside, and traces, which would write
/// files and mix into the output.
const DROPPED_PREFIXES: [&str; 2] = ["GIT_CONFIG", "GIT_TRACE"];

/// The names that `git rev-parse --local-env-vars` prints, in whatever version, but for those that carry
/// configuration: what git leaves out of the surroundings of a program that works in another repository.
pub(crate) const LOCAL_VARIABLES: [&str; 14] = [
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_CONFIG",
    "GIT_DIR",
    "GIT_GRAFT_FILE",
    "GIT_IMPLICIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_INTERNAL_SUPER_PREFIX",
    "GIT_NO_REPLACE_OBJECTS",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_REPLACE_REF_BASE",
    "GIT_SHALLOW_FILE",
    "GIT_WORK_TREE",
];

/// Has git wait for the content of what it writes: by itself it waits neither for loose objects nor for refs.
const DURABLE: [&str; 2] = ["-c", "core.fsync=all"];

/// How long a run waits between two looks at whether it should end.
const POLL: Duration = Duration::from_millis(20);

/// How long what a failed run has said is waited for. It is read beside the run, and by it is told what failed:
/// a machine that is busy must not make a word of it be taken for none.
const COMPLAINT_WAIT: Duration = Duration::from_secs(2);

/// Why git gave no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GitError {
    /// There is no program of that name.
    #[error("git is not installed")]
    NotInstalled,
    /// It ended with an error, or said something that cannot be right.
    #[error("git failed: {reason}")]
    Failed {
        /// What it said, safe to print.
        reason: String,
    },
    /// It did not end within [`limits::GIT_DEADLINE`] and was killed.
    #[error("git did not end within {} s", limits::GIT_DEADLINE.as_secs())]
    TimedOut,
    /// The caller asked to stop; git was killed.
    #[error("cancelled")]
    Cancelled,
}

impl GitError {
    fn failed(reason: impl Into<String>) -> Self {
        Self::Failed { reason: reason.into() }
    }

    /// What is not there that git is to be given.
    fn of(error: &crate::Error) -> Self {
        Self::failed(error.with_source())
    }
}

/// A repository with a work tree, as found by looking at names. Absolute paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Repository {
    /// The top of the work tree: the directory that holds `.git`.
    pub(crate) top: PathBuf,
    /// Where HEAD and the index of this work tree are.
    pub(crate) git_dir: PathBuf,
    /// Where refs, configuration and `info/exclude` are: shared by linked work trees.
    pub(crate) common_dir: PathBuf,
}

impl Repository {
    /// The repository whose work tree's top is `directory`: one that has a `.git` directory, or a
    /// `.git` file as in submodules and linked work trees. Nothing is run. What cannot be read or
    /// understood is no repository: the answer is a hint, which git confirms when it is asked.
    pub(crate) fn at(directory: &Path) -> Option<Self> {
        let dot_git = directory.join(".git");
        let metadata = dot_git.metadata().ok()?;
        let git_dir = if metadata.is_dir() { dot_git } else { linked(directory, &dot_git)? };
        let common_dir = match read_line(&git_dir.join("commondir")) {
            Some(common) => git_dir.join(common),
            None => git_dir.clone(),
        };
        let is_repository = git_dir.join("HEAD").symlink_metadata().is_ok()
            && common_dir.join("objects").is_dir()
            && common_dir.join("refs").is_dir();
        is_repository.then(|| Self { top: directory.to_owned(), git_dir, common_dir })
    }
}

/// The repository in whose work tree `directory`, an absolute path without symlinks, lies: see
/// [`Repository::at`].
pub(crate) fn repository_of(directory: &Path) -> Option<Repository> {
    directory.ancestors().find_map(Repository::at)
}

/// Where a `.git` file leads: `gitdir: <path>`, relative to its directory.
fn linked(directory: &Path, dot_git: &Path) -> Option<PathBuf> {
    let line = read_line(dot_git)?;
    let target = line.as_os_str().as_bytes().strip_prefix(b"gitdir: ")?;
    Some(directory.join(OsStr::from_bytes(target)))
}

/// The text of a file of one line, without its end.
fn read_line(path: &Path) -> Option<PathBuf> {
    let mut bytes = disk::read_small(path, limits::PATH_BYTES_MAX as u64).ok()??;
    while matches!(bytes.last(), Some(b'\n' | b'\r')) {
        bytes.pop();
    }
    Some(PathBuf::from(OsStr::from_bytes(&bytes)))
}

/// What tells one state of a repository's index from another without reading it. git replaces the
/// file as a whole, so that each writing gives it another inode and new times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IndexStamp {
    dev: u64,
    ino: u64,
    size: u64,
    mtime_ns: i64,
    ctime_ns: i64,
}

impl IndexStamp {
    /// The later of the two times, in nanoseconds since 1970.
    pub(crate) fn newest_ns(&self) -> i64 {
        self.mtime_ns.max(self.ctime_ns)
    }
}

/// The stamp of the repository's index; `None` where it has none yet, so that nothing is tracked.
pub(crate) fn index_stamp(repository: &Repository) -> Option<IndexStamp> {
    let metadata = repository.git_dir.join("index").metadata().ok()?;
    let ns = |seconds: i64, ns: i64| seconds.saturating_mul(1_000_000_000).saturating_add(ns);
    Some(IndexStamp {
        dev: metadata.dev(),
        ino: metadata.ino(),
        size: metadata.size(),
        mtime_ns: ns(metadata.mtime(), metadata.mtime_nsec()),
        ctime_ns: ns(metadata.ctime(), metadata.ctime_nsec()),
    })
}

/// A path in a repository's index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TrackedPath {
    /// Relative to the directory that was asked about.
    pub(crate) path: RelPath,
    /// Whether git leaves it out of the work tree on purpose (sparse checkout).
    pub(crate) skip_worktree: bool,
}

/// What the repository tracks at and below `directory`, a directory of its work tree: the paths of
/// its index, in the index's order, submodules as one path each.
///
/// # Errors
/// See [`GitError`].
///
/// Cost: one process; it reads the index and nothing else.
pub(crate) fn tracked(
    repository: &Repository,
    directory: &Path,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Vec<TrackedPath>, GitError> {
    // Full names, because git prints them from the top in any case where it thinks that the
    // directory is outside its work tree.
    let arguments = ["ls-files", "-z", "-t", "--cached", "--full-name"];
    let output = run(repository, directory, &arguments, is_cancelled)?.success()?;
    let prefix = directory
        .strip_prefix(&repository.top)
        .map_err(|_| GitError::failed("the directory is not in the work tree"))?;
    parse_tracked(&output, prefix.as_os_str().as_bytes())
}

fn parse_tracked(output: &[u8], prefix: &[u8]) -> Result<Vec<TrackedPath>, GitError> {
    let mut paths: Vec<TrackedPath> = Vec::new();
    for line in output.split(|&byte| byte == 0).filter(|line| !line.is_empty()) {
        let [tag, b' ', path @ ..] = line else {
            return Err(GitError::failed(format!("its list has the line `{}`", printable(line))));
        };
        let below = match path.strip_prefix(prefix) {
            Some(below) if prefix.is_empty() => below,
            Some([b'/', below @ ..]) => below,
            _ => continue,
        };
        // Such a path cannot be in a work tree that Linux made.
        let Ok(path) = RelPath::new(below) else { continue };
        // A path in conflict is there once for each side.
        if paths.last().is_none_or(|last| last.path != path) {
            paths.push(TrackedPath { path, skip_worktree: matches!(tag, b'S' | b's') });
        }
    }
    Ok(paths)
}

/// What is staged in a work tree and not as in `commit`: for each path the mode and the object that it has there,
/// as git writes them.
///
/// # Errors
/// See [`GitError`].
///
/// Cost: one process; it reads the index, and the trees in which the two differ.
pub(crate) fn staged_since(
    repository: &Repository,
    commit: &str,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<BTreeMap<RelPath, String>, GitError> {
    let words =
        ["diff-index", "--cached", "--raw", "-z", "--no-renames", "--no-abbrev", commit, "--"];
    let output = run(repository, &repository.top, &words, is_cancelled)?.success()?;
    let mut parts = output.split(|&byte| byte == 0);
    let mut staged = BTreeMap::new();
    while let (Some(about), Some(path)) = (parts.next(), parts.next()) {
        // `:100644 100644 <object> <object> M`: the second of each is what is staged.
        let about = String::from_utf8_lossy(about);
        let words: Vec<&str> = about.split(' ').collect();
        let [_, mode, _, object, _] = words.as_slice() else {
            return Err(GitError::failed(format!("its list has the line `{about}`")));
        };
        // Such a path cannot be in a work tree that Linux made.
        let Ok(path) = RelPath::new(path) else { continue };
        staged.insert(path, format!("{mode} {object}"));
    }
    Ok(staged)
}

/// Where HEAD is: commit and branch. Before the first commit there is a branch only.
///
/// # Errors
/// See [`GitError`].
///
/// Cost: one process, before the first commit two.
pub(crate) fn head(
    repository: &Repository,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<GitState, GitError> {
    let top = &repository.top;
    let commit_and_name = ["rev-parse", "HEAD", "--symbolic-full-name", "HEAD"];
    let answer = run(repository, top, &commit_and_name, is_cancelled)?;
    if answer.status.success() {
        let text = String::from_utf8_lossy(&answer.output).into_owned();
        let mut lines = text.lines();
        return match (lines.next(), lines.next()) {
            (Some(commit), Some(name)) => {
                Ok(GitState { head: Some(commit.to_owned()), branch: branch_of(name) })
            }
            _ => Err(GitError::failed("it did not say where HEAD is")),
        };
    }
    let name = run(repository, top, &["symbolic-ref", "-q", "HEAD"], is_cancelled)?.success()?;
    let name = String::from_utf8_lossy(&name).into_owned();
    Ok(GitState { head: None, branch: branch_of(name.trim_end()) })
}

/// The branch's name from the full name of a ref; `HEAD` itself is what a detached one leads to.
fn branch_of(name: &str) -> Option<String> {
    (name != "HEAD").then(|| name.strip_prefix("refs/heads/").unwrap_or(name).to_owned())
}

/// How a run of git ended.
#[derive(Debug)]
struct Answer {
    status: ExitStatus,
    output: Vec<u8>,
    /// The first of what it said on stderr, if it failed.
    complaint: Vec<u8>,
}

impl Answer {
    fn success(self) -> Result<Vec<u8>, GitError> {
        if self.status.success() {
            return Ok(self.output);
        }
        Err(GitError::failed(match self.reason() {
            b"" => self.status.to_string(),
            line => printable(line),
        }))
    }

    /// The line of its complaint that says why it failed.
    fn reason(&self) -> &[u8] {
        let mut lines = self.complaint.split(|&byte| byte == b'\n');
        let is_reason = |line: &&[u8]| line.starts_with(b"fatal: ") || line.starts_with(b"error: ");
        // What comes before it may be a warning about something else.
        lines.clone().find(is_reason).or_else(|| lines.next()).unwrap_or_default()
    }

    /// The output; `None` where git says, by ending with 1 and without a word, that there is no such thing.
    fn found(self) -> Result<Option<Vec<u8>>, GitError> {
        if self.status.code() == Some(1) && self.complaint.is_empty() {
            return Ok(None);
        }
        self.success().map(Some)
    }
}

/// A git command on `repository`, run in `directory`, with nothing of the environment that could
/// change what it means and no program of the repository's choice.
fn command(repository: &Repository, directory: &Path, arguments: &[&str]) -> Command {
    let mut command = surrounded(directory);
    command
        .env("GIT_NO_LAZY_FETCH", "1")
        // A work tree of another user is the normal case in a container, and reading the index of one
        // runs nothing of it.
        .args(["-c", "safe.directory=*"])
        // Said outright, so that `core.worktree` and the search for a repository have no part in it.
        .arg(joined("--git-dir=", &repository.git_dir))
        .arg(joined("--work-tree=", &repository.top))
        .args(arguments);
    command
}

/// git in `directory`, with nothing of the environment that could lead it elsewhere, and no hooks.
fn surrounded(directory: &Path) -> Command {
    let mut command = Command::new("git");
    for (name, _) in std::env::vars_os() {
        let dropped = |name: &str| {
            DROPPED.contains(&name) || DROPPED_PREFIXES.iter().any(|start| name.starts_with(start))
        };
        if name.to_str().is_some_and(dropped) {
            command.env_remove(name);
        }
    }
    command
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_OPTIONAL_LOCKS", "0")
        .env("LC_ALL", "C")
        .arg("--no-pager")
        .args(["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"])
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn joined(option: &str, path: &Path) -> std::ffi::OsString {
    let mut text = std::ffi::OsString::from(option);
    text.push(path);
    text
}

fn run(
    repository: &Repository,
    directory: &Path,
    arguments: &[&str],
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Answer, GitError> {
    let command = command(repository, directory, arguments);
    finish(command, directory, Ending::Killed(limits::GIT_DEADLINE), is_cancelled)
}

/// How a run that does not end by itself is ended.
#[derive(Debug, Clone, Copy)]
enum Ending {
    /// It only reads: killed, after this time or where the caller asks to stop.
    Killed(Duration),
    /// It writes: asked to end where the caller asks to stop, so that it takes away what it had begun, and
    /// then waited for.
    Asked,
}

/// Starts `command` and waits for its end, with the bounds.
fn finish(
    mut command: Command,
    directory: &Path,
    ending: Ending,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Answer, GitError> {
    let deadline = match ending {
        Ending::Killed(after) => Some(Instant::now() + after),
        Ending::Asked => None,
    };
    if matches!(ending, Ending::Asked) {
        // What it starts is ended with it; the keyboard's signals are for the program alone.
        command.process_group(0);
    }
    let child = command.spawn().map_err(|error| match error.kind() {
        // A missing directory to run in gives the same kind.
        io::ErrorKind::NotFound if directory.is_dir() => GitError::NotInstalled,
        _ => GitError::failed(error.to_string()),
    })?;
    let mut running = Running { child, ending };
    let output = read_beside(running.child.stdout.take(), limits::GIT_OUTPUT_BYTES_MAX);
    let complaint = listen_beside(running.child.stderr.take(), limits::GIT_COMPLAINT_BYTES_MAX);
    let check = || match () {
        () if is_cancelled() => Err(GitError::Cancelled),
        () if deadline.is_some_and(|deadline| Instant::now() >= deadline) => {
            Err(GitError::TimedOut)
        }
        () => Ok(()),
    };
    let output = loop {
        match output.recv_timeout(POLL) {
            Ok(read) => break read.map_err(|error| GitError::failed(error.to_string()))?,
            Err(RecvTimeoutError::Timeout) => check()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(GitError::failed("its output could not be read"));
            }
        }
    };
    if output.len() as u64 > limits::GIT_OUTPUT_BYTES_MAX {
        let most = limits::GIT_OUTPUT_BYTES_MAX;
        return Err(GitError::failed(format!("it printed more than {most} bytes")));
    }
    let status = loop {
        match running.child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) => check()?,
            Err(error) => return Err(GitError::failed(error.to_string())),
        }
        std::thread::sleep(Duration::from_micros(200));
    };
    let complaint = if status.success() { Vec::new() } else { collect(&complaint, COMPLAINT_WAIT) };
    Ok(Answer { status, output, complaint })
}

/// A child that is ended and reaped if it is still there when this goes.
struct Running {
    child: Child,
    ending: Ending,
}

impl Drop for Running {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            // Each fails only where the child is gone already.
            drop(match self.ending {
                Ending::Killed(_) => self.child.kill(),
                Ending::Asked => disk::end_group(&mut self.child),
            });
            drop(self.child.wait());
        }
    }
}

/// Reads at most one byte more than `max_bytes` on a thread of its own. The thread is not waited for:
/// it ends with the pipe.
fn read_beside(
    pipe: Option<impl Read + Send + 'static>,
    max_bytes: u64,
) -> Receiver<io::Result<Vec<u8>>> {
    let (sender, receiver) = mpsc::channel();
    if let Some(pipe) = pipe {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let read = pipe.take(max_bytes.saturating_add(1)).read_to_end(&mut bytes);
            // Nobody may be waiting any more.
            drop(sender.send(read.map(|_| bytes)));
        });
    }
    receiver
}

/// Reads what a child says on a thread of its own, and hands on the first `max_bytes` of it, each piece as it
/// comes. The rest is read and dropped: whoever finds nobody at the other end of a pipe is killed. The thread is
/// not waited for: it ends with the pipe.
fn listen_beside(pipe: Option<impl Read + Send + 'static>, max_bytes: u64) -> Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    if let Some(mut pipe) = pipe {
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            let mut first = pipe.by_ref().take(max_bytes);
            loop {
                match first.read(&mut buffer) {
                    Ok(length @ 1..) => {
                        // Nobody may be waiting any more.
                        drop(sender.send(buffer[..length].to_vec()));
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Ok(_) | Err(_) => break,
                }
            }
            // That is all there is to wait for.
            drop(sender);
            drop(io::copy(&mut pipe, &mut io::sink()));
        });
    }
    receiver
}

/// All that was handed on, or what of it came within `wait`: whatever git itself started may hold its stderr
/// open for as long as it likes.
fn collect(pieces: &Receiver<Vec<u8>>, wait: Duration) -> Vec<u8> {
    let until = Instant::now() + wait;
    let mut all = Vec::new();
    while let Ok(piece) = pieces.recv_timeout(until.saturating_duration_since(Instant::now())) {
        all.extend(piece);
    }
    all
}

#[cfg(test)]
mod tests;
