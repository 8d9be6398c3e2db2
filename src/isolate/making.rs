//! Where a run can be made, and making it.

use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use super::failed;
use crate::disk::{self, Dir, Lock, LockKind};
use crate::error::{Error, IsolationError, Result};
use crate::git::{self, Place, Repository};
use crate::hash::BlobHash;
use crate::id::{RunId, SessionName};
use crate::limits;
use crate::monitor::Monitor;
use crate::path::RelPath;
use crate::runs::{RunRecord, place};

/// What git shows nowhere: the work trees of runs are no files of the checkout that they lie in.
const EXCLUDED: &str = "/.turnpoint/";

/// How often somebody tries to hold the directories of runs, and the pause between.
const LOCK_TRIES: u32 = 200;
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// As [`LOCK_TRIES`] for those who leave, whom others of these hold up for a moment only.
const LEAVE_TRIES: u32 = 20;

/// How long a command that is to run waits for a note.
const COUNT_WAIT: Duration = Duration::from_secs(2);

/// How long git is waited for that was asked to end.
const END_WAIT: Duration = Duration::from_secs(1);

/// Where a run is made from.
#[derive(Debug)]
pub(crate) struct Ground {
    /// The checkout that one stands in.
    pub(crate) repository: Repository,
    /// The commit that its HEAD is at.
    pub(crate) commit: String,
    /// Where one stands, below its top.
    pub(crate) below: PathBuf,
}

/// Finds out what a run that is started in `directory`, a real path, is made from.
///
/// # Errors
/// [`IsolationError`], by what is missing.
pub(crate) fn ground(directory: &Path, monitor: &dyn Monitor) -> Result<Ground> {
    let path = directory.to_owned();
    let place = git::place_of(directory, &|| monitor.is_cancelled());
    match place.map_err(failed("find the repository"))? {
        Place::Nowhere => Err(IsolationError::NoRepository { path }.into()),
        Place::Bare => Err(IsolationError::Bare { path }.into()),
        Place::InsideGit => Err(IsolationError::InsideGit { path }.into()),
        Place::WorkTree(repository, None) => {
            Err(IsolationError::Unborn { path: repository.top }.into())
        }
        Place::WorkTree(mut repository, Some(commit)) => {
            repository.top = disk::real_path(&repository.top)?;
            repository.common_dir = disk::real_path(&repository.common_dir)?;
            let below = directory.strip_prefix(&repository.top).unwrap_or(Path::new(""));
            Ok(Ground { commit, below: below.to_owned(), repository })
        }
    }
}

/// What the work trees of the repository share that `directory` lies in.
///
/// # Errors
/// [`IsolationError::NoRepository`], and what git says.
pub(crate) fn common_dir(directory: &Path, monitor: &dyn Monitor) -> Result<PathBuf> {
    let found = git::common_dir(directory, &|| monitor.is_cancelled());
    let none = || IsolationError::NoRepository { path: directory.to_owned() };
    disk::real_path(&found.map_err(failed("find the repository"))?.ok_or_else(none)?)
}

impl Ground {
    /// Whether neither a directory nor a branch has the name of the run.
    pub(crate) fn is_free(&self, id: RunId) -> Result<bool> {
        let directory = place(&self.repository.top).join(id.to_string());
        if directory.symlink_metadata().is_ok() {
            return Ok(false);
        }
        let branch = format!("refs/heads/turnpoint/{id}");
        let taken = git::exists(&self.repository.common_dir, &branch);
        Ok(!taken.map_err(failed("look for a branch"))?)
    }
}

/// The session that runs of a repository go to where none is named: one for all its work trees, and not
/// that of a workspace, in which retention counts turns.
pub(crate) fn session_name(common_dir: &Path) -> Result<SessionName> {
    let named = match common_dir.file_name() {
        Some(name) if name == ".git" => common_dir.parent().and_then(Path::file_name),
        name => name,
    };
    let name = named.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let mut text: String = name
        .trim_end_matches(".git")
        .chars()
        .map(|character| {
            let is_plain = character.is_alphanumeric() || matches!(character, '-' | '_' | '.');
            if is_plain { character } else { '_' }
        })
        .collect();
    while text.starts_with(['-', '.']) {
        text.remove(0);
    }
    let digits = BlobHash::of(common_dir.as_os_str().as_bytes()).to_string();
    let digits: String = digits.chars().take(8).collect();
    while text.len() > limits::SESSION_NAME_BYTES_MAX - 32 {
        text.pop();
    }
    let name = format!("{text}-runs-{digits}");
    let name = if text.is_empty() { format!("runs-{digits}") } else { name };
    // The name of a device with a suffix is still one: the prefix keeps it apart.
    SessionName::new(&name)
        .or_else(|_| SessionName::new(&format!("r-{name}")))
        .map_err(|reason| Error::InvalidSession { name, reason })
}

/// Makes the work tree of a run that is recorded. Returns how many paths of the checkout are not as in its
/// commit, which it lacks; `None` where git does not say.
///
/// # Errors
/// What was begun is git's to take away then, and the caller's to look after.
///
/// Cost: git looks at the checkout while it makes the work tree, and for two seconds after that, or three, at
/// most.
pub(crate) fn make(
    ground: &Ground,
    record: &RunRecord,
    lock: &Lock,
    monitor: &dyn Monitor,
) -> Result<Option<u64>> {
    let Ground { repository, commit, .. } = ground;
    // Before there is anything to be shown.
    git::exclude(&repository.common_dir, EXCLUDED)?;
    let place = place(&repository.top);
    // To the end, when the run's own directory is in it.
    let _held = make_place(&repository.top, &place)?;
    hide(&repository.top, &place)?;
    disk::require_space(&Dir::open(&place)?, 0, limits::DISK_FLOOR_BYTES)?;
    let (path, branch) = (record.path(), record.branch());
    let is_cancelled = || monitor.is_cancelled();
    let counting = Counting::begin(repository);
    git::add_worktree(repository, &path, &branch, commit, lock, &is_cancelled)
        .map_err(failed("make a work tree"))?;
    Ok(counting.end())
}

/// git that counts what is changed in a checkout, beside something that matters more. It is ended when this goes,
/// and waited for, since the program may end then; but not for long: a file system may not answer at all.
struct Counting {
    is_over: Arc<AtomicBool>,
    count: Receiver<Option<u64>>,
}

impl Counting {
    fn begin(repository: &Repository) -> Self {
        let (is_over, (sender, count)) = (Arc::new(AtomicBool::new(false)), mpsc::channel());
        let (repository, is_asked_to_end) = (repository.clone(), Arc::clone(&is_over));
        // Where the system gives no thread nobody counts, and there is no note.
        let thread = std::thread::Builder::new().name("turnpoint-count".to_owned());
        let counting = thread.spawn(move || {
            let is_cancelled = || is_asked_to_end.load(Ordering::Relaxed);
            let count = git::count_changed(&repository, &is_cancelled).ok();
            // Nobody may wait for it any more.
            sender.send(count).ok();
        });
        drop(counting);
        Self { is_over, count }
    }

    /// The number, if git comes to it soon.
    fn end(self) -> Option<u64> {
        self.count.recv_timeout(COUNT_WAIT).ok().flatten()
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // Nothing is left to come where it has said what it had to say.
        self.count.recv_timeout(END_WAIT).ok();
    }
}

/// Makes the directories in which runs are, and holds them: whoever finds them empty, because another run
/// has just gone, does not remove them then. What is no directory of ours is not gone through.
fn make_place(top: &Path, place: &Path) -> Result<Lock> {
    for _ in 1..LOCK_TRIES {
        match make_directories(top, place) {
            // Removed between two of these steps.
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {}
            made => made?,
        }
        if let Some(lock) = disk::try_lock_directory(place, LockKind::Shared)? {
            return Ok(lock);
        }
        std::thread::sleep(LOCK_PAUSE);
    }
    make_directories(top, place)?;
    let busy =
        || Error::Busy { lock: place.display().to_string(), waited: LOCK_PAUSE * (LOCK_TRIES - 1) };
    disk::try_lock_directory(place, LockKind::Shared)?.ok_or_else(busy)
}

/// The ignore file of the directory in which runs are.
const OWN_RULES: &str = ".gitignore";

/// Has git ignore what is in `place` also where a `.gitignore` takes back what is excluded: one that ignores all
/// but what it names lists every directory again.
fn hide(top: &Path, place: &Path) -> Result<()> {
    let below = place.strip_prefix(top).unwrap_or(place);
    let Ok(below) = RelPath::new(below.as_os_str().as_bytes()) else { return Ok(()) };
    if git::is_ignored(top, &below).map_err(failed("look for ignore rules"))? {
        return Ok(());
    }
    disk::append_missing_line(&place.join(OWN_RULES), b"*")
}

fn make_directories(top: &Path, place: &Path) -> Result<()> {
    let mut dir = Dir::open(top)?;
    for name in place.strip_prefix(top).unwrap_or(place) {
        let path = dir.path_of(name.as_bytes());
        disk::make_directory_if_missing(&path)?;
        dir = dir.open_child(name.as_bytes()).map_err(|error| match error {
            Error::Io { source, .. } if source.kind() == ErrorKind::NotFound => {
                Error::Io { verb: "open", path, source }
            }
            _ => Error::PlaceTaken { path },
        })?;
    }
    Ok(())
}

/// Removes the directories in which runs are, where they are empty and nobody is about to make one.
pub(super) fn leave(top: &Path) {
    let place = place(top);
    for _ in 0..LEAVE_TRIES {
        match disk::try_lock_directory(&place, LockKind::Exclusive) {
            Ok(Some(_alone)) => {
                let (names, rules) = (disk::list_dir(&place), place.join(OWN_RULES));
                let are_ours = || {
                    disk::read_small(&rules, limits::SMALL_FILE_BYTES_MAX)
                        .is_ok_and(|text| text.as_deref() == Some(b"*\n"))
                };
                if names.is_ok_and(|names| names.len() == 1) && are_ours() {
                    // What stays is found, and goes, the next time.
                    drop(disk::remove_file(&rules));
                }
                disk::remove_directory_if_empty(&place);
                break;
            }
            // Gone, or held: for a moment by somebody who leaves too, or by who makes a run and removes it.
            _ if place.symlink_metadata().is_ok() => std::thread::sleep(LOCK_PAUSE),
            _ => break,
        }
    }
    if let Some(own) = place.parent() {
        disk::remove_directory_if_empty(own);
    }
}

/// Whether git has left directories empty in a new work tree: it does not fetch submodules into one.
pub(crate) fn has_submodules(path: &Path) -> Result<bool> {
    Ok(disk::modified_ns(&path.join(".gitmodules"))?.is_some())
}
