//! The bare walk: the least that any capture has to do. Two threads read every directory that no
//! ignore file excludes, ask for the status of every name, and keep the sorted result.

use std::collections::VecDeque;
use std::error::Error;
use std::ffi::{CString, OsStr};
use std::fs;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::{AtFlags, Dir, Mode, OFlags, Stat, openat, statat};

use crate::Outcome;
use crate::peer::{Ability, Peer, Site, Task};
use crate::process::bare;

const THREADS: usize = 2;

/// What this program is told to be the walk by.
pub(crate) const ARGUMENT: &str = "--walk";

/// The walk as a peer: this program again, as a process of its own.
pub(crate) struct Walk;

impl Peer for Walk {
    fn name(&self) -> &'static str {
        "walk"
    }

    fn version(&self) -> Option<String> {
        Some(format!("{THREADS} threads, with ignore files; nothing is stored"))
    }

    fn keeps_captures(&self) -> bool {
        false
    }

    fn command(&self, site: &Site, task: &Task<'_>) -> Ability {
        let Ok(program) = std::env::current_exe() else { return Ability::Missing };
        match task {
            Task::Capture { .. } | Task::Hinted { .. } => {
                let mut command = bare(program, &site.home);
                command.arg(ARGUMENT).arg(&site.tree);
                Ability::Runs(command)
            }
            _ => Ability::Cannot,
        }
    }

    fn newest(&self, _site: &Site) -> Outcome<String> {
        Err("the walk keeps nothing".into())
    }
}

type Failure = Box<dyn Error + Send + Sync>;

/// Walks `root` and says how many names there are.
pub(crate) fn run(root: &Path) -> Result<usize, Failure> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(root, flags, Mode::empty())?;
    let queue = Queue::default();
    queue.add([Directory { path: PathBuf::new(), rules: None }]);
    let mut listed: Vec<Listed> = thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| {
                    let mut listed = Vec::new();
                    while let Some(directory) = queue.take() {
                        // Whatever happens, the others must learn that this one is done.
                        let result = list(&root, &directory, &queue);
                        queue.done();
                        listed.push(result?);
                    }
                    Ok(listed)
                })
            })
            .collect();
        let results = workers.into_iter().map(|worker| match worker.join() {
            Ok(result) => result,
            Err(_) => Err(Failure::from("a thread of the walk panicked")),
        });
        Ok::<_, Failure>(results.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
    })?;
    listed.sort_unstable_by(|one, other| one.path.cmp(&other.path));
    Ok(listed.iter().map(|directory| directory.entries.len()).sum())
}

/// A directory that is to be listed, with the ignore files above it.
struct Directory {
    path: PathBuf,
    rules: Option<Arc<Rules>>,
}

/// What a directory holds.
struct Listed {
    path: PathBuf,
    entries: Vec<(CString, Stat)>,
}

/// An ignore file, and those above it.
struct Rules {
    own: Gitignore,
    above: Option<Arc<Self>>,
}

impl Rules {
    /// The innermost file that says anything about `path` decides.
    fn ignores(mut self: &Arc<Self>, path: &Path, is_dir: bool) -> bool {
        loop {
            match self.own.matched(path, is_dir) {
                ignore::Match::Ignore(_) => return true,
                ignore::Match::Whitelist(_) => return false,
                ignore::Match::None => match &self.above {
                    Some(above) => self = above,
                    None => return false,
                },
            }
        }
    }
}

fn list(root: &OwnedFd, directory: &Directory, queue: &Queue) -> Result<Listed, Failure> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = if directory.path.as_os_str().is_empty() {
        openat(root, ".", flags, Mode::empty())?
    } else {
        openat(root, &directory.path, flags, Mode::empty())?
    };
    let mut names = Vec::new();
    for name in Dir::read_from(&opened)? {
        let name = name?;
        if !matches!(name.file_name().to_bytes(), b"." | b".." | b".git" | b".jj") {
            names.push(name.file_name().to_owned());
        }
    }
    let mut rules = directory.rules.clone();
    if names.iter().any(|name| name.as_bytes() == b".gitignore") {
        let own = read_rules(&opened, &directory.path)?;
        rules = Some(Arc::new(Rules { own, above: rules }));
    }
    names.sort_unstable();
    let mut entries = Vec::with_capacity(names.len());
    let mut below = Vec::new();
    for name in names {
        let status = statat(&opened, &name, AtFlags::SYMLINK_NOFOLLOW)?;
        let is_dir = rustix::fs::FileType::from_raw_mode(status.st_mode).is_dir();
        let path = directory.path.join(OsStr::from_bytes(name.as_bytes()));
        if rules.as_ref().is_some_and(|rules| rules.ignores(&path, is_dir)) {
            continue;
        }
        if is_dir {
            below.push(Directory { path, rules: rules.clone() });
        }
        entries.push((name, status));
    }
    queue.add(below);
    Ok(Listed { path: directory.path.clone(), entries })
}

fn read_rules(directory: &OwnedFd, path: &Path) -> Result<Gitignore, Failure> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = openat(directory.as_fd(), ".gitignore", flags, Mode::empty())?;
    let mut text = String::new();
    fs::File::from(file).read_to_string(&mut text)?;
    let mut builder = GitignoreBuilder::new(path);
    for line in text.lines() {
        builder.add_line(None, line)?;
    }
    Ok(builder.build()?)
}

/// Directories that nobody has listed yet.
#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    more: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Directory>,
    /// Waiting or being listed.
    unfinished: usize,
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, directories: impl IntoIterator<Item = Directory>) {
        let mut state = self.state();
        let before = state.waiting.len();
        state.waiting.extend(directories);
        state.unfinished += state.waiting.len() - before;
        drop(state);
        self.more.notify_all();
    }

    /// The one added last, so that few wait; none when everything is done.
    fn take(&self) -> Option<Directory> {
        let state = self.state();
        let nothing_yet = |state: &mut State| state.waiting.is_empty() && state.unfinished > 0;
        let waited = self.more.wait_while(state, nothing_yet);
        waited.unwrap_or_else(PoisonError::into_inner).waiting.pop_back()
    }

    fn done(&self) {
        let mut state = self.state();
        state.unfinished -= 1;
        let last = state.unfinished == 0;
        drop(state);
        if last {
            self.more.notify_all();
        }
    }
}
