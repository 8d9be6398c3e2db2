//! What git tracks although rules leave it out, and what git keeps out of the work tree.
//!
//! git is asked beside the walk, on a thread of its own, and only where its answer can have changed:
//! the index of a repository, or the rules. In between the two short lists that follow from its
//! answer are kept in a [`TrackedCache`].

use std::collections::{BTreeSet, HashSet};
use std::sync::mpsc::Receiver;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::disk;
use crate::git::{self, GitError, IndexStamp, Repository, TrackedPath};
use crate::hash::Digest;
use crate::manifest::{OmitReason, Tracked};
use crate::path::RelPath;
use crate::settings::is_version_control;
use crate::walk::directory::Tree;
use crate::walk::{Observed, What, position};

/// What is remembered from one walk of a workspace to the next. Losing it costs one run of git.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TrackedCache {
    /// Of the ignore files and settings under which the lists were made, in hex.
    rules: String,
    repositories: Vec<Known>,
}

/// What is known of one repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Known {
    /// Its place in the workspace; the root for the one that contains the workspace.
    #[serde(serialize_with = "write_path", deserialize_with = "read_path")]
    directory: RelPath,
    /// The state of its index that the lists were made from; none where that cannot be told from a
    /// later one.
    stamp: Option<IndexStamp>,
    /// Paths that it tracks and rules leave out.
    #[serde(serialize_with = "write_paths", deserialize_with = "read_paths")]
    excluded: Vec<RelPath>,
    /// Paths that it keeps out of the work tree; a directory stands for all that is in it.
    #[serde(serialize_with = "write_paths", deserialize_with = "read_paths")]
    sparse: Vec<RelPath>,
}

/// For the thread that asks git.
#[derive(Debug)]
pub(super) enum Job {
    /// The repository at this place in the workspace.
    Ask(RelPath, Repository),
    /// There are no more.
    End,
}

/// One repository, and what is known of it after it was perhaps asked.
#[derive(Debug)]
pub(super) struct Answer {
    directory: RelPath,
    repository: Repository,
    stamp: Option<IndexStamp>,
    asked_ns: i64,
    tracked: Outcome,
}

#[derive(Debug)]
enum Outcome {
    /// git said.
    Fresh(Vec<TrackedPath>),
    /// The index is the one that the cache knows.
    Unchanged,
    /// git did not say.
    Failed(GitError),
}

/// What the walk has to add: see [`Known`].
#[derive(Debug)]
pub(super) struct TrackedReport {
    pub(super) excluded: Vec<RelPath>,
    pub(super) sparse: Vec<RelPath>,
    pub(super) state: Tracked,
    pub(super) cache: TrackedCache,
    /// Why the state is not fresh.
    pub(super) failure: Option<GitError>,
}

/// Asks git about each repository of `jobs` whose index is not the one that `cache` knows.
pub(super) fn ask(
    jobs: &Receiver<Job>,
    cache: &TrackedCache,
    tree: &Tree,
    is_cancelled: &dyn Fn() -> bool,
) -> Vec<Answer> {
    let mut answers = Vec::new();
    while let Ok(Job::Ask(directory, repository)) = jobs.recv() {
        // Before git reads it: a state written in between is then taken for a change.
        let stamp = git::index_stamp(&repository);
        let known = cache.known(&directory).and_then(|known| known.stamp);
        let mut answer = Answer {
            directory,
            repository,
            stamp,
            asked_ns: disk::coarse_now_ns(),
            tracked: Outcome::Unchanged,
        };
        if stamp.is_none() || stamp != known {
            answer.ask(tree, is_cancelled);
        }
        answers.push(answer);
    }
    answers
}

impl Answer {
    fn ask(&mut self, tree: &Tree, is_cancelled: &dyn Fn() -> bool) {
        if self.stamp.is_none() {
            self.tracked = Outcome::Fresh(Vec::new());
            return;
        }
        let is_outer = self.directory.is_root();
        let directory = if is_outer { &tree.root_path } else { &self.repository.top };
        self.tracked = match git::tracked(&self.repository, directory, is_cancelled) {
            Ok(paths) => Outcome::Fresh(paths),
            Err(error) => Outcome::Failed(error),
        };
    }
}

impl TrackedCache {
    /// Whether it is known of the repository that contains the workspace, and of no other, and as its
    /// index is now, that git keeps nothing out of the work tree.
    pub(super) fn is_plain(&self, repository: &Repository) -> bool {
        let stamp = git::index_stamp(repository);
        let is_plain = |known: &Known| {
            known.directory.is_root()
                && known.sparse.is_empty()
                && known.stamp.is_some()
                && known.stamp == stamp
        };
        self.repositories.len() == 1 && self.repositories.iter().all(is_plain)
    }

    /// Whether it is known of the repository that contains the workspace, as its index is now, and of no
    /// other, that git tracks nothing that rules leave out, and keeps nothing out of the work tree; or that
    /// there is no repository.
    pub(super) fn says_nothing(&self, repository: Option<&Repository>) -> bool {
        let known = match repository {
            None => return self.repositories.is_empty(),
            Some(repository) => self.is_plain(repository),
        };
        known && self.repositories.iter().all(|known| known.excluded.is_empty())
    }

    fn known(&self, directory: &RelPath) -> Option<&Known> {
        self.repositories.iter().find(|known| known.directory == *directory)
    }
}

/// Whether git had nothing new to say, under the same rules, and had said that there is nothing to add
/// and nothing to mark.
pub(super) fn is_as_known(answers: &[Answer], cache: &TrackedCache, rules: Digest) -> bool {
    let says_nothing = |known: &Known| known.excluded.is_empty() && known.sparse.is_empty();
    is_unchanged(answers, cache, rules) && cache.repositories.iter().all(says_nothing)
}

/// Whether git had nothing new to say, under the same rules.
pub(super) fn is_unchanged(answers: &[Answer], cache: &TrackedCache, rules: Digest) -> bool {
    let is_unchanged = |answer: &Answer| matches!(answer.tracked, Outcome::Unchanged);
    answers.iter().all(is_unchanged) && (answers.is_empty() || cache.rules == rules.to_string())
}

/// Works out the lists, from git's answers and, where it was not asked or gave none, from the cache.
/// Where the rules are not those of the cache, git is asked now what it was not asked before.
pub(super) fn evaluate(
    tree: &Tree,
    observations: &[Observed],
    rules: Digest,
    mut answers: Vec<Answer>,
    cache: &TrackedCache,
    is_cancelled: &dyn Fn() -> bool,
) -> TrackedReport {
    let rules = rules.to_string();
    let mut report = TrackedReport {
        excluded: Vec::new(),
        sparse: Vec::new(),
        state: Tracked::None,
        cache: TrackedCache { rules: rules.clone(), repositories: Vec::new() },
        failure: None,
    };
    let granularity = disk::file_system(&tree.root).map(|system| system.stamp_granularity);
    let granularity = granularity.unwrap_or(crate::limits::STAMP_GRANULARITY_UNKNOWN);
    let granularity_ns = i64::try_from(granularity.as_nanos()).unwrap_or(i64::MAX);
    let mut all_fresh = true;
    // They come in the order in which threads found the repositories.
    answers.sort_by(|a, b| a.directory.cmp(&b.directory));
    for answer in &mut answers {
        if matches!(answer.tracked, Outcome::Unchanged) && cache.rules != rules {
            answer.ask(tree, is_cancelled);
        }
        let before = cache.known(&answer.directory);
        let known = match (&answer.tracked, before) {
            (Outcome::Fresh(paths), _) => {
                // A later state written within the same tick may have the same stamp.
                let is_old = |stamp: &IndexStamp| {
                    stamp.newest_ns().saturating_add(granularity_ns) < answer.asked_ns
                };
                let stamp = answer.stamp.filter(is_old);
                Some(Known::of(tree, observations, &answer.directory, stamp, paths))
            }
            (Outcome::Unchanged, before) => before.cloned(),
            (Outcome::Failed(error), before) => {
                all_fresh = false;
                report.failure.get_or_insert_with(|| error.clone());
                before.map(|known| Known { stamp: None, ..known.clone() })
            }
        };
        if let Some(known) = known {
            report.state = Tracked::Fresh;
            report.excluded.extend_from_slice(&known.excluded);
            report.sparse.extend_from_slice(&known.sparse);
            report.cache.repositories.push(known);
        }
    }
    if !all_fresh && report.state == Tracked::Fresh {
        report.state = Tracked::Stale;
    }
    report
}

impl Known {
    fn of(
        tree: &Tree,
        observations: &[Observed],
        directory: &RelPath,
        stamp: Option<IndexStamp>,
        paths: &[TrackedPath],
    ) -> Self {
        let place = |path: &RelPath| {
            if directory.is_root() {
                return Some(path.clone());
            }
            RelPath::new([directory.as_bytes(), b"/", path.as_bytes()].concat()).ok()
        };
        let (skipped, present): (Vec<&TrackedPath>, Vec<&TrackedPath>) =
            paths.iter().partition(|path| path.skip_worktree);
        let mut exclusions = Exclusions { tree, observations, verdict: None };
        let excluded = present.iter().filter_map(|tracked| place(&tracked.path));
        let excluded = excluded.filter(|path| exclusions.leave_out(path)).collect();
        let mut sparse = Vec::new();
        if !skipped.is_empty() {
            sparse.extend(tops(&skipped, &present).iter().filter_map(place));
        }
        Self { directory: directory.clone(), stamp, excluded, sparse }
    }
}

/// For each skipped path the highest directory in which nothing is present, or the path itself.
fn tops(skipped: &[&TrackedPath], present: &[&TrackedPath]) -> BTreeSet<RelPath> {
    let mut inhabited: HashSet<&[u8]> = HashSet::new();
    for tracked in present {
        inhabited.extend(directories(&tracked.path));
    }
    let top = |path: &RelPath| {
        let directory = directories(path).find(|directory| !inhabited.contains(directory));
        directory.and_then(|directory| RelPath::new(directory).ok())
    };
    skipped.iter().map(|tracked| top(&tracked.path).unwrap_or(tracked.path.clone())).collect()
}

/// The directories above a path, from the top, without the root.
fn directories(path: &RelPath) -> impl Iterator<Item = &[u8]> {
    let bytes = path.as_bytes();
    bytes.iter().enumerate().filter(|&(_, &byte)| byte == b'/').map(|(end, _)| &bytes[..end])
}

/// Whether exclusions and ignore rules leave a path out, for paths in order.
struct Exclusions<'a> {
    tree: &'a Tree,
    observations: &'a [Observed],
    /// The last directory asked about, and the answer.
    verdict: Option<(RelPath, Verdict)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// In scope.
    Held,
    /// Left out by rules that do not count for what git tracks.
    LeftOut,
    /// Never held.
    Never,
}

impl Exclusions<'_> {
    fn leave_out(&mut self, path: &RelPath) -> bool {
        let seen = position(self.observations, path).ok().map(|at| &self.observations[at].what);
        match seen {
            Some(What::Omitted { reason: OmitReason::Ignored, .. }) => return true,
            Some(What::Omitted { reason: OmitReason::Excluded, .. }) => {
                return !is_version_control(path.name());
            }
            // What it is when its mount is gone, or it is smaller, the rules say.
            Some(What::Omitted { .. }) | None => {}
            Some(_) => return false,
        }
        // Not there, or in a directory that was not entered. It is not known what it will be: the place
        // of a submodule that is not checked out is a directory's then.
        let Some(parent) = path.parent() else { return false };
        match self.directory(&parent) {
            Verdict::LeftOut => true,
            Verdict::Never => false,
            Verdict::Held => [false, true]
                .into_iter()
                .any(|is_dir| self.verdict_of(&parent, path, is_dir) == Verdict::LeftOut),
        }
    }

    fn directory(&mut self, path: &RelPath) -> Verdict {
        if let Some((last, verdict)) = &self.verdict
            && last == path
        {
            return *verdict;
        }
        let mut verdict = Verdict::Held;
        let whole = [path.clone()];
        for directory in path.ancestors().chain(whole).filter(|directory| !directory.is_root()) {
            let parent = directory.parent().unwrap_or_default();
            // One that never is held decides, however deep it is.
            verdict = match (verdict, self.verdict_of(&parent, &directory, true)) {
                (_, Verdict::Never) => Verdict::Never,
                (Verdict::Held, found) => found,
                (verdict, _) => verdict,
            };
            if verdict == Verdict::Never {
                break;
            }
        }
        self.verdict = Some((path.clone(), verdict));
        verdict
    }

    fn verdict_of(&self, parent: &RelPath, path: &RelPath, is_dir: bool) -> Verdict {
        let name = path.name();
        if is_version_control(name) || self.tree.is_secret(parent, name) {
            return Verdict::Never;
        }
        let rules = self.tree.rules_of(parent);
        let is_left_out =
            self.tree.is_excluded(parent, name, is_dir) || self.tree.ignores(&rules, path, is_dir);
        if is_left_out { Verdict::LeftOut } else { Verdict::Held }
    }
}

/// Paths as one text: in base64, each ended by a NUL, which no path holds.
fn write_paths<S: Serializer>(paths: &[RelPath], to: S) -> Result<S::Ok, S::Error> {
    let mut bytes = Vec::new();
    for path in paths {
        bytes.extend_from_slice(path.as_bytes());
        bytes.push(0);
    }
    to.serialize_str(&STANDARD_NO_PAD.encode(bytes))
}

fn read_paths<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<RelPath>, D::Error> {
    use serde::de::Error;
    let text = String::deserialize(from)?;
    let bytes = STANDARD_NO_PAD.decode(text).map_err(D::Error::custom)?;
    let mut paths: Vec<&[u8]> = bytes.split(|&byte| byte == 0).collect();
    match paths.pop() {
        Some(b"") => {}
        _ => return Err(D::Error::custom("the last path has no end")),
    }
    paths.into_iter().map(|path| RelPath::new(path).map_err(D::Error::custom)).collect()
}

fn write_path<S: Serializer>(path: &RelPath, to: S) -> Result<S::Ok, S::Error> {
    write_paths(std::slice::from_ref(path), to)
}

fn read_path<'de, D: Deserializer<'de>>(from: D) -> Result<RelPath, D::Error> {
    use serde::de::Error;
    let mut paths = read_paths(from)?.into_iter();
    match (paths.next(), paths.next()) {
        (Some(path), None) => Ok(path),
        _ => Err(D::Error::custom("one path is expected")),
    }
}
