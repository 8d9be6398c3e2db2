//! The walk on several threads.
//!
//! jwalk lists directories and hands them out to the threads of a pool made for this walk; all that
//! is done with a directory is done in its callback. What jwalk itself yields is only looked at for
//! the directories that it could not list.

use std::any::Any;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use jwalk::{DirEntry, Parallelism, WalkDirGeneric};
use rayon::ThreadPool;

use crate::disk::FileStat;
use crate::error::{Error, Result};
use crate::monitor::Monitor;
use crate::path::RelPath;
use crate::walk::directory::{Child, Listing, Policy, Tree, Visit};
use crate::walk::locked;
use crate::walk::rules::Rules;

/// The longest path that the kernel takes at once, without the NUL at its end. What lies deeper is
/// reached through handles.
const LISTED_PATH_BYTES_MAX: usize = 4095;

/// How often the waiting thread looks up.
const POLL: Duration = Duration::from_millis(5);

/// How long the waiting thread goes without news at least, and at most, before it lets jwalk do the
/// waiting, which takes a core. A large directory, or a busy machine, is silent for some time too.
const PATIENCE_MIN: Duration = Duration::from_millis(30);
const PATIENCE_MAX: Duration = Duration::from_millis(100);

/// What a directory's visit leaves for those of its children.
#[derive(Debug, Clone, Default)]
struct Above {
    rules: Rules,
    children: Arc<Vec<Child>>,
}

type Entries = Vec<jwalk::Result<DirEntry<(Above, ())>>>;

/// How far the walk is, for the thread that waits.
#[derive(Debug, Default)]
struct Progress {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Directories given to jwalk and not yet visited.
    outstanding: usize,
    visited: u64,
    panic: Option<Panic>,
}

/// A panic of the callback, which must not unwind into the pool: that would end the process.
struct Panic(Box<dyn Any + Send>);

impl std::fmt::Debug for Panic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Panic")
    }
}

/// Visits every directory in scope that can be listed by path; the others are left as unsettled.
///
/// # Errors
/// [`Error::Cancelled`], and [`Error::Io`] where the root cannot be listed.
pub(super) fn list(tree: &Arc<Tree>, pool: &Arc<ThreadPool>, monitor: &dyn Monitor) -> Result<()> {
    let progress = Arc::new(Progress::default());
    locked(&progress.state).outstanding = 1;
    let above = Above { rules: tree.root_rules.clone(), children: Arc::default() };
    let listing = WalkDirGeneric::<(Above, ())>::new(&tree.root_path)
        .skip_hidden(false)
        .follow_links(false)
        .root_read_dir_state(above)
        // No thread of the pool is busy with anything else, so there is nothing to wait for.
        .parallelism(Parallelism::RayonExistingPool { pool: Arc::clone(pool), busy_timeout: None })
        .process_read_dir({
            let tree = Arc::clone(tree);
            let progress = Arc::clone(&progress);
            move |depth, path, above, entries| {
                // The root as an entry of its parent.
                if depth.is_none() {
                    return;
                }
                let visit = AssertUnwindSafe(|| enter(&tree, path, above, entries));
                let panic = catch_unwind(visit).err();
                if panic.is_some() || tree.is_cancelled() {
                    entries.clear();
                }
                progress.visited(entries.len(), panic);
            }
        })
        .into_iter();
    progress.wait(tree, monitor);
    // jwalk's iterator turns in place while it waits, so it is asked only now that all is done, or
    // when nothing more is heard: directories that could not be listed are not heard of.
    for entry in listing {
        match entry {
            Ok(entry) => {
                let path = entry.path();
                if let Some(error) = entry.read_children_error {
                    unlisted(tree, entry.depth, &path, error)?;
                }
            }
            Err(error) => return Err(root_error(tree, error)),
        }
        if monitor.is_cancelled() {
            tree.cancelled.store(true, Ordering::Relaxed);
        }
    }
    if let Some(Panic(payload)) = locked(&progress.state).panic.take() {
        resume_unwind(payload);
    }
    if tree.is_cancelled() { Err(Error::Cancelled) } else { Ok(()) }
}

impl Progress {
    fn visited(&self, entered: usize, panic: Option<Box<dyn Any + Send>>) {
        let mut state = locked(&self.state);
        state.visited += 1;
        state.outstanding = (state.outstanding + entered).saturating_sub(1);
        state.panic = state.panic.take().or(panic.map(Panic));
        if state.outstanding == 0 {
            self.changed.notify_all();
        }
    }

    /// Returns when every directory was visited, or none for an eighth of the time it took so far.
    fn wait(&self, tree: &Tree, monitor: &dyn Monitor) {
        let mut state = locked(&self.state);
        let mut told = 0;
        let start = Instant::now();
        let mut heard = start;
        loop {
            let visited = state.visited;
            let waited = self.changed.wait_timeout(state, POLL);
            state = waited.map_or_else(|poisoned| poisoned.into_inner().0, |(state, _)| state);
            monitor.advanced(state.visited - told, 0);
            told = state.visited;
            if monitor.is_cancelled() {
                tree.cancelled.store(true, Ordering::Relaxed);
            }
            if state.visited != visited {
                heard = Instant::now();
            }
            let patience = ((heard - start) / 8).clamp(PATIENCE_MIN, PATIENCE_MAX);
            if state.outstanding == 0 || heard.elapsed() >= patience {
                return;
            }
        }
    }
}

/// The callback for one directory: visits it, and leaves in `entries` what jwalk is to list next.
fn enter(tree: &Tree, path: &Path, above: &mut Above, entries: &mut Entries) {
    let Some(relative) = relative(tree, path) else {
        entries.clear();
        return;
    };
    if tree.is_cancelled() {
        entries.clear();
        return;
    }
    let expected = expected(tree, &relative, above);
    let visit = expected.map_or(Visit::Gone, |expected| {
        let names: Vec<&[u8]> =
            entries.iter().flatten().map(|entry| entry.file_name.as_bytes()).collect();
        let listing = Listing { names: &names, is_whole: names.len() == entries.len() };
        tree.visit(&relative, &expected, listing, &above.rules, Policy::Scope)
    });
    let Visit::Entered { rules, children } = visit else {
        if !matches!(visit, Visit::Closed) {
            locked(&tree.found).unsettled.push(relative);
        }
        entries.clear();
        return;
    };
    let is_child = |name: &OsStr| {
        children.binary_search_by(|(child, _)| child.as_ref().cmp(name.as_bytes())).is_ok()
    };
    // A path too long for the kernel; jwalk could only fail.
    let fits = |name: &[u8]| path.as_os_str().len() + 1 + name.len() <= LISTED_PATH_BYTES_MAX;
    entries.retain(|entry| {
        entry.as_ref().is_ok_and(|entry| {
            entry.read_children_path.is_some()
                && is_child(&entry.file_name)
                && fits(entry.file_name.as_bytes())
        })
    });
    if entries.len() < children.len() {
        let kept: Vec<&OsStr> =
            entries.iter().flatten().map(|entry| entry.file_name.as_os_str()).collect();
        let left = children.iter().filter(|(name, _)| !kept.contains(&OsStr::from_bytes(name)));
        let left = left.filter_map(|(name, _)| relative.join(name).ok());
        locked(&tree.found).unsettled.extend(left);
    }
    *above = Above { rules, children: Arc::new(children) };
}

/// What the parent's visit saw of the directory.
fn expected(tree: &Tree, relative: &RelPath, above: &Above) -> Option<FileStat> {
    if relative.is_root() {
        return Some(tree.root_stat);
    }
    let name = relative.name();
    let index = above.children.binary_search_by(|(child, _)| child.as_ref().cmp(name)).ok()?;
    Some(above.children[index].1)
}

fn relative(tree: &Tree, path: &Path) -> Option<RelPath> {
    let below = path.strip_prefix(&tree.root_path).ok()?;
    RelPath::new(below.as_os_str().as_bytes()).ok()
}

/// jwalk could not list the directory at `path`. By its handle it may be possible, or it has gone.
fn unlisted(tree: &Tree, depth: usize, path: &Path, error: jwalk::Error) -> Result<()> {
    if depth == 0 {
        return Err(root_error(tree, error));
    }
    if let Some(relative) = relative(tree, path) {
        locked(&tree.found).unsettled.push(relative);
    }
    Ok(())
}

fn root_error(tree: &Tree, error: jwalk::Error) -> Error {
    let source = error.into_io_error().unwrap_or_else(|| std::io::Error::other("it is busy"));
    Error::Io { verb: "list", path: tree.root_path.clone(), source }
}
