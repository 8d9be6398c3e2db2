//! What is in a workspace: every path, what it is, and why its content is not held where it is not.
//!
//! The walk reads names and stats. It opens directories, ignore files and `format.json`, nothing
//! else: no file whose content is to be captured, no FIFO, socket or device, no database. Symlinks
//! are recorded and never followed. What is reported was seen through a directory handle opened
//! beneath the root, so nothing outside can get in, however the tree changes meanwhile; what changes
//! while it is looked at may be seen before or after the change.
//!
//! `dir` with [`Listed::Whole`] is evidence: every name that was there when the directory was listed
//! has an observation. In doubt a directory is [`Listed::Partial`].
//!
//! jwalk and the crate `ignore` are used here and nowhere else.

mod again;
mod directory;
mod graft;
mod known;
mod lack;
mod parallel;
mod part;
mod pattern;
mod rules;
mod tracked;

#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rayon::ThreadPool;

use crate::disk::{self, Dir, FileStat};
use crate::error::{Error, IoContext, Result};
use crate::git::{self, GitError, Repository};
use crate::hash::Digest;
use crate::limits;
use crate::manifest::{IgnoreFile, Listed, OmitReason, Tracked};
use crate::monitor::{Monitor, Notice, Phase};
use crate::path::RelPath;
use crate::settings::ScopeSettings;
use crate::threads;
use crate::walk::directory::{Policy, Tree};
use crate::walk::known::Revisit;
use crate::walk::rules::RuleFiles;
use crate::walk::tracked::{Answer, Job};

#[cfg(test)]
pub(crate) use graft::Forced;
pub(crate) use known::{
    CachedEntry, Census, KnownIgnoreFile, KnownRules, KnownTree, Remainder, Stamps,
};
pub(crate) use part::{WalkedPart, is_listed, walk_part};
pub(crate) use tracked::TrackedCache;

/// A file or directory by what it is, not by what it is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InodeId {
    pub(crate) dev: u64,
    pub(crate) ino: u64,
}

/// How much of what is as it was a walk reports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Detail {
    /// Every path with what the file system says of it now.
    #[default]
    All,
    /// Only what differs from what is known; [`Walked::kept`] says of the rest that it is there.
    Changes,
}

/// What a walk is told besides the settings.
#[derive(Debug, Clone)]
pub(crate) struct WalkOptions {
    /// Directories that are never entered: the sessions home and the store.
    pub(crate) stores: Vec<InodeId>,
    /// What the last walk of this workspace returned.
    pub(crate) tracked: TrackedCache,
    /// How many threads look at directories.
    pub(crate) threads: usize,
    /// How much to report.
    pub(crate) detail: Detail,
    /// The only paths that are not as they are known, as the caller promises: what is at and below them,
    /// and the names beside them, are looked at and nothing else. Only for [`Detail::Changes`], and as
    /// far as what is known is of use.
    pub(crate) hints: Option<Vec<RelPath>>,
}

impl Default for WalkOptions {
    fn default() -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        Self {
            stores: Vec::new(),
            tracked: TrackedCache::default(),
            threads: cores.min(limits::THREADS_MAX),
            detail: Detail::All,
            hints: None,
        }
    }
}

/// One path that the walk saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Observed {
    pub(crate) path: RelPath,
    /// What the file system said; all zero where it would not say or nothing is there, which only an
    /// omitted name can be.
    pub(crate) stat: FileStat,
    pub(crate) what: What,
}

/// What a path is to a capture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    /// A regular file whose content is to be held.
    File,
    /// A symbolic link, with its text.
    Symlink { target: Box<[u8]> },
    /// A directory that was entered.
    Dir { listed: Listed },
    /// A name whose content is not held; `rest` as in [`crate::manifest::EntryKind::Omitted`].
    Omitted { reason: OmitReason, rest: u64 },
}

/// What a walk found.
#[derive(Debug)]
pub(crate) struct Walked {
    /// Every path in order, the root first. Every other path's parent is a `dir` of the list, or is
    /// kept.
    pub(crate) observations: Vec<Observed>,
    /// Which of the known entries are there as they were and not in the list; empty where the list is
    /// of all.
    pub(crate) kept: Vec<bool>,
    /// The directories that were looked at, where hints were followed; else it was all of them.
    pub(crate) listed: Option<Vec<RelPath>>,
    /// Ignore files that counted and are not in the list.
    pub(crate) ignore_files: Vec<IgnoreFile>,
    /// A checksum over path and content of every ignore file that counted.
    pub(crate) ignore_digest: Digest,
    /// For the next walk: by which rules names were judged; none where that would not tell.
    pub(crate) rules: Option<KnownRules>,
    /// Directories of the workspace that are the top of a repository of their own.
    #[cfg(test)]
    pub(crate) nested_repositories: Vec<RelPath>,
    /// Whether git's knowledge of what it tracks was at hand.
    pub(crate) tracked: Tracked,
    /// For the next walk of this workspace.
    pub(crate) tracked_cache: TrackedCache,
    /// Directories some of whose names are not accounted for: a listing that broke off, a path
    /// longer or deeper than the bounds. They are partial, and the checkpoint is not complete.
    pub(crate) unfinished: Vec<RelPath>,
    /// Directories that changed at each look: something may have been moved past it. They are partial too,
    /// and the checkpoint is not complete.
    pub(crate) restless: Vec<RelPath>,
    /// Omitted names for which another stands.
    unlisted: Vec<Observed>,
    tree: Arc<Tree>,
}

impl Walked {
    /// What the walk saw of `path`.
    pub(crate) fn find(&self, path: &RelPath) -> Option<&Observed> {
        position(&self.observations, path).ok().map(|index| &self.observations[index])
    }

    /// Whether `path` was there and today's rules hold it. A restore deletes only such paths: that a
    /// path was observed as a file, symlink or directory *is* the statement that no rule excludes
    /// it.
    #[cfg(test)]
    pub(crate) fn is_in_scope(&self, path: &RelPath) -> bool {
        self.find(path).is_some_and(|observed| !matches!(observed.what, What::Omitted { .. }))
    }
}

/// Walks the workspace `root`, which is at `root_path`: absolute, without symlinks. What `known` says
/// of an earlier walk, all of it, saves listing what has not changed since.
///
/// # Errors
/// [`Error::Cancelled`]; [`Error::Io`] where the root cannot be listed or is no longer at its path
/// in the end, or where there are no handles or no memory left to look with;
/// [`Error::WorkspaceTooWide`] where it is a store. What is wrong below the root is in the result.
///
/// # Concurrency
/// Blocks; threads of its own do the work, and none of rayon's global pool. May be called from
/// anywhere, also from a job of another pool. Files may change meanwhile.
///
/// Cost: one stat for each name, one open for each directory, the listing of each that has changed,
/// and a run of git where the index of a repository or an ignore file has changed. Memory: about 200
/// bytes for each path.
pub(crate) fn walk(
    root: &Dir,
    root_path: &Path,
    settings: &ScopeSettings,
    options: &WalkOptions,
    known: Option<&KnownTree>,
    monitor: &dyn Monitor,
) -> Result<Walked> {
    let attempt = Attempt::new(root, root_path, settings, options, monitor)?;
    if let Some(known) = known
        // Where hints are followed no stamp of a directory is relied upon.
        && (options.hints.is_some() || disk::file_system(root)?.keeps_directory_stamps)
        && let Some(walked) = attempt.by_known(known)?
    {
        return Ok(walked);
    }
    attempt.anew()
}

/// Walks by hints, of which `options` has some, and by the part of an earlier walk that they need. `None`
/// where more than that part is needed: where git has something to say, rules are others, a directory of
/// which not all is at hand is gone.
///
/// # Errors
/// As [`walk`].
///
/// Cost: what is looked at, a stat for each ignore file, and a pass over the part.
pub(crate) fn walk_hinted(
    root: &Dir,
    root_path: &Path,
    settings: &ScopeSettings,
    options: &WalkOptions,
    known: &KnownTree,
    monitor: &dyn Monitor,
) -> Result<Option<Walked>> {
    let attempt = Attempt::new(root, root_path, settings, options, monitor)?;
    // Asking it takes longer than reading all.
    if !options.tracked.says_nothing(attempt.repository.as_ref()) {
        return Ok(None);
    }
    attempt.by_known(known)
}

/// One walk of a workspace, by what is known of it or anew.
struct Attempt<'a> {
    root: &'a Dir,
    root_path: &'a Path,
    settings: &'a ScopeSettings,
    options: &'a WalkOptions,
    repository: Option<Repository>,
    pool: Arc<ThreadPool>,
    monitor: &'a dyn Monitor,
}

impl<'a> Attempt<'a> {
    fn new(
        root: &'a Dir,
        root_path: &'a Path,
        settings: &'a ScopeSettings,
        options: &'a WalkOptions,
        monitor: &'a dyn Monitor,
    ) -> Result<Self> {
        monitor.phase(Phase::Walk, None);
        let repository = git::repository_of(root_path);
        let pool = Arc::new(threads::pool_of(options.threads, "walk")?);
        Ok(Self { root, root_path, settings, options, repository, pool, monitor })
    }

    /// `None` where what is known is of no use.
    fn by_known(&self, known: &KnownTree) -> Result<Option<Walked>> {
        let KnownTree { entries, rules: Some(rules), remainder } = known else { return Ok(None) };
        let (pool, monitor, detail) = (&self.pool, self.monitor, self.options.detail);
        let hints = self.options.hints.as_deref().filter(|_| detail == Detail::Changes);
        for round in 0..again::ROUNDS_MAX {
            if round > 0 {
                // What changed in the tick in which that walk ended is older than the next.
                wait_for_next_stamp();
            }
            let (tree, to_ask) = self.open()?;
            if !known::rules_hold(&tree, rules, entries) {
                return Ok(None);
            }
            let concerned = hints.map_or_else(|| rules.clone(), |hints| rules.concerning(hints));
            *locked(&tree.unread_rules) = Some(concerned);
            let walked = self.run(&tree, to_ask, Some(known), || match hints {
                Some(hints) => {
                    let remainder = remainder.as_ref();
                    known::revisit_hinted(&tree, entries, rules, remainder, hints, pool, monitor)
                }
                None => known::revisit(&tree, entries, rules, detail, pool, monitor),
            })?;
            if walked.is_some() || !locked(&tree.found).overtaken {
                return Ok(walked);
            }
        }
        Ok(None)
    }

    fn anew(&self) -> Result<Walked> {
        let (tree, to_ask) = self.open()?;
        let walked = self.run(&tree, to_ask, None, || {
            parallel::list(&tree, &self.pool, self.monitor)?;
            settle(&tree, self.monitor)?;
            Ok(Some(Revisit::default()))
        })?;
        // It always is of use.
        walked.ok_or(Error::Cancelled)
    }

    fn open(&self) -> Result<(Arc<Tree>, mpsc::Receiver<Job>)> {
        let (jobs, to_ask) = mpsc::channel();
        let repository = self.repository.as_ref();
        let (root, root_path) = (self.root, self.root_path);
        let tree = open(root, root_path, self.settings, self.options, repository, jobs)?;
        if let Some(repository) = repository {
            send(&tree, Job::Ask(RelPath::root(), repository.clone()));
        }
        Ok((Arc::new(tree), to_ask))
    }

    /// Has git asked beside `list`, and puts both together.
    fn run(
        &self,
        tree: &Arc<Tree>,
        to_ask: mpsc::Receiver<Job>,
        known: Option<&KnownTree>,
        list: impl FnOnce() -> Result<Option<Revisit>>,
    ) -> Result<Option<Walked>> {
        let (cache, monitor) = (&self.options.tracked, self.monitor);
        let entries = known.map_or(&[][..], |known| &known.entries);
        let (listed, answers) = thread::scope(|scope| {
            let asking = scope.spawn(move || {
                let is_cancelled = || tree.is_cancelled() || monitor.is_cancelled();
                tracked::ask(&to_ask, cache, tree, &is_cancelled)
            });
            let end = End(tree);
            let listed = list().and_then(|listed| {
                listed.map_or(Ok(None), |listed| self.complete(tree, listed, entries))
            });
            drop(end);
            let answers = asking.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            listed.map(|listed| (listed, answers))
        })?;
        let Some(listed) = listed else { return Ok(None) };
        let now = Dir::open(self.root_path)?.stat_self()?;
        if !now.is_same_inode(&tree.root_stat) {
            let replaced = std::io::Error::other("it was replaced meanwhile");
            return Err(replaced).at("walk", self.root_path);
        }
        finish(Arc::clone(tree), listed, known, answers, self.options, self.monitor)
    }

    /// Puts all that was found into one list, with what was moved meanwhile; `None` where that was not looked
    /// for, since hints were followed.
    fn complete(
        &self,
        tree: &Tree,
        mut listed: Revisit,
        known: &[CachedEntry],
    ) -> Result<Option<Revisit>> {
        let batches = std::mem::take(&mut locked(&tree.found).batches);
        listed.observations.reserve(batches.iter().map(Vec::len).sum());
        listed.observations.extend(batches.into_iter().flatten());
        graft::sort(&mut listed.observations);
        let may_miss = again::may_miss(tree, &listed.observations);
        if listed.is_hinted {
            if may_miss {
                // From one of the directories that it looks at to another.
                locked(&tree.found).overtaken = true;
                return Ok(None);
            }
            listed.note_listed();
        } else if may_miss {
            listed.report_all(known);
            again::look(tree, &mut listed.observations, &self.pool, self.monitor)?;
        }
        Ok(Some(listed))
    }
}

fn open(
    root: &Dir,
    root_path: &Path,
    settings: &ScopeSettings,
    options: &WalkOptions,
    repository: Option<&Repository>,
    jobs: mpsc::Sender<Job>,
) -> Result<Tree> {
    let root = root.open_dir(&RelPath::root())?;
    let root_stat = root.stat_self()?;
    let rule_files = RuleFiles::new(settings.obeys_ignore_files);
    let (prefix, root_rules) = rule_files.of_root(root_path, repository);
    let tree = Tree {
        root,
        root_path: root_path.to_owned(),
        root_stat,
        start_ns: disk::coarse_now_ns(),
        settings: settings.clone(),
        stores: options.stores.clone(),
        // Where the kernel does not say, device numbers do for most.
        mounts: disk::mounts_below(root_path).unwrap_or_default().into_iter().collect(),
        prefix,
        root_rules,
        rule_files,
        unread_rules: Mutex::default(),
        jobs,
        found: Mutex::default(),
        cancelled: AtomicBool::new(false),
    };
    let is_known = options.stores.contains(&InodeId { dev: root_stat.dev, ino: root_stat.ino });
    if is_known || tree.is_store_at(&RelPath::root()) {
        return Err(Error::WorkspaceTooWide {
            path: root_path.to_owned(),
            what: "a store of checkpoints",
        });
    }
    Ok(tree)
}

/// Waits until what changes has another stamp than what changes now.
fn wait_for_next_stamp() {
    let (begun, now_ns) = (Instant::now(), disk::coarse_now_ns());
    // Not for a clock that was set back.
    while disk::coarse_now_ns() <= now_ns && begun.elapsed() < limits::STAMP_GRANULARITY_KNOWN {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Tells the asking thread that there is nothing more to ask, also where a panic comes by: it would be
/// waited for else, for ever.
struct End<'a>(&'a Tree);

impl Drop for End<'_> {
    fn drop(&mut self) {
        send(self.0, Job::End);
    }
}

/// The asking thread outlives every sender, so a message is always taken.
fn send(tree: &Tree, job: Job) {
    drop(tree.jobs.send(job));
}

/// Looks by handles at what the parallel listing left.
fn settle(tree: &Tree, monitor: &dyn Monitor) -> Result<()> {
    let unsettled = std::mem::take(&mut locked(&tree.found).unsettled);
    for path in unsettled {
        tree.cancelled.store(monitor.is_cancelled(), Ordering::Relaxed);
        tree.descend(&path, Policy::Scope)?;
    }
    Ok(())
}

/// Puts together what the walk found, with what git had to say; `None` where that concerns what is not at
/// hand.
fn finish(
    tree: Arc<Tree>,
    listed: Revisit,
    known: Option<&KnownTree>,
    answers: Vec<Answer>,
    options: &WalkOptions,
    monitor: &dyn Monitor,
) -> Result<Option<Walked>> {
    let is_cancelled = || monitor.is_cancelled();
    let (mut unfinished, restless, nested_repositories, rules_moved) = {
        let mut found = locked(&tree.found);
        let unfinished = std::mem::take(&mut found.unfinished);
        let restless = std::mem::take(&mut found.restless);
        (unfinished, restless, std::mem::take(&mut found.nested), found.rules_moved)
    };
    let mut listed = listed;
    let rules = tree.rule_files.report();
    let are_telling = rules.skipped.is_empty()
        && nested_repositories.len() <= limits::NESTED_REPOSITORIES_MAX
        && !rules_moved;
    for (path, reason) in rules.skipped {
        monitor.notice(&Notice::IgnoreFileSkipped { path, reason });
    }
    // Where a repository begins the rules of those above it end.
    let mut in_force = [rules.digest, tree.settings.digest()].map(Digest::to_bytes).concat();
    for repository in &nested_repositories {
        in_force.extend_from_slice(repository.as_bytes());
        in_force.push(0);
    }
    let in_force = Digest::of(&in_force);
    // Lists that are made or obeyed are made of all paths and can concern any of them.
    if !tracked::is_as_known(&answers, &options.tracked, in_force)
        && let Some(known) = known
    {
        // What was held because git tracks it has not been judged anew where hints were followed, so it would
        // not be found among what rules leave out.
        let has_lifted = known.rules.as_ref().is_some_and(|rules| !rules.lifted.is_empty());
        let is_unjudged = listed.listed.is_some() && has_lifted;
        let is_new = !tracked::is_unchanged(&answers, &options.tracked, in_force);
        if known.remainder.is_some() || is_unjudged && is_new {
            return Ok(None);
        }
        listed.report_all(&known.entries);
    }
    let Revisit { mut observations, kept, listed, .. } = listed;
    let tracked =
        tracked::evaluate(&tree, &observations, in_force, answers, &options.tracked, &is_cancelled);
    let mut tracked_state = tracked.state;
    if let Some(failure) = &tracked.failure {
        if *failure == GitError::Cancelled {
            return Err(Error::Cancelled);
        }
        monitor.notice(&Notice::TrackedStale { reason: failure.to_string() });
    } else if nested_repositories.len() > limits::NESTED_REPOSITORIES_MAX {
        let most = limits::NESTED_REPOSITORIES_MAX;
        let reason = format!("more than {most} repositories are in the workspace");
        monitor.notice(&Notice::TrackedStale { reason });
        tracked_state = Tracked::Stale;
    }
    let mut lifted = tracked.excluded.clone();
    if listed.is_some() {
        // Nobody has judged anew what was held although rules leave it out: the next walk of all is to.
        lifted
            .extend(known.iter().flat_map(|known| &known.rules).flat_map(|it| &it.lifted).cloned());
    }
    lifted.sort_unstable();
    lifted.dedup();
    let known_rules = are_telling.then(|| KnownRules {
        digest: tree.rules_digest(rules.digest),
        ignore_files: rules.inside.into_iter().map(KnownIgnoreFile::of).collect(),
        repositories: nested_repositories.iter().cloned().collect(),
        lifted,
    });
    graft::add_tracked(&tree, &mut observations, &tracked.excluded, &mut unfinished)?;
    unfinished.sort();
    graft::mark_sparse(&tree, &mut observations, &tracked.sparse);
    tree.require_no_lack()?;
    let unlisted = graft::limit_omitted(&mut observations);
    Ok(Some(Walked {
        observations,
        kept,
        listed,
        ignore_files: rules.outside,
        ignore_digest: rules.digest,
        rules: known_rules,
        #[cfg(test)]
        nested_repositories: nested_repositories.into_iter().collect(),
        tracked: tracked_state,
        tracked_cache: tracked.cache,
        unfinished,
        restless: restless.into_iter().collect(),
        unlisted,
        tree,
    }))
}

/// Where `path` is in the sorted list, or would be.
fn position(observations: &[Observed], path: &RelPath) -> Result<usize, usize> {
    observations.binary_search_by(|observed| observed.path.cmp(path))
}

/// A panic of another thread is told by that thread; what it was doing is whole or not there.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
