//! What an earlier walk saw, so that this one need not list what has the same names.
//!
//! The modification and change time of a directory move whenever a name in it comes, goes or is
//! replaced. A directory whose stamps are those of the last walk, and were old enough then that no
//! change can hide behind them, has the names that it had, and each name leads to the inode that it
//! led to: its names are not listed, sorted and matched against rules again, each is only asked for
//! its stat. After git's untracked cache.
//!
//! It holds only while the rules are the same, so whatever can change them is looked at first; if
//! they differ, nothing here is used. And only on file systems known to keep such stamps.

mod hinted;
mod look;
mod part;
mod table;

pub(super) use hinted::revisit_hinted;
pub(crate) use part::{Census, Remainder};

use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::ThreadPool;
use rayon::prelude::*;

use crate::disk::{FileKind, FileStat};
use crate::error::{Error, Result};
use crate::git::Repository;
use crate::hash::{BlobHash, Digest};
use crate::limits;
use crate::manifest::{Entry, EntryKind, OmitReason};
use crate::monitor::Monitor;
use crate::path::RelPath;
use crate::walk::directory::{OwnRules, Policy, Seen, Tree, unknown_stat};
use crate::walk::known::look::{Same, look};
use crate::walk::known::table::Table;
use crate::walk::rules::InsideFile;
use crate::walk::{Detail, Observed, What, graft, locked};

/// Of the directories known, one in this many may have to be judged anew, and a few more; if more have, the
/// whole tree is walked anew on all threads, which is faster than these one after another.
const CHANGED_ONE_IN: usize = 8;
const CHANGED_FEW: usize = 32;

/// What the file system says about a file that changes when its content does, and about a directory
/// that changes when its names do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Stamps {
    /// Its length, in bytes.
    pub(crate) size: u64,
    /// Its modification time, in nanoseconds since 1970.
    pub(crate) mtime_ns: i64,
    /// The time of its last change of any kind, in nanoseconds since 1970.
    pub(crate) ctime_ns: i64,
    /// Its inode.
    pub(crate) inode: u64,
}

impl Stamps {
    /// The stamps of a file or directory.
    pub(crate) fn of(stat: &FileStat) -> Self {
        Self { size: stat.size, mtime_ns: stat.mtime_ns, ctime_ns: stat.ctime_ns, inode: stat.ino }
    }

    /// Whether something with these stamps, looked at by a capture that began at `start_ns`, may have
    /// been changed after the look without any stamp showing it.
    ///
    /// A change sets the change time to the present tick. So a change time older than the start by
    /// more than a tick rules it out; the modification time counts too, for file systems that do not
    /// keep the other, unless it lies in the future and so says nothing. A time in whole seconds is
    /// taken for one of a file system that keeps no more: ext4 with small inodes for example. After
    /// git's racy-git documentation.
    pub(crate) fn are_racy(&self, start_ns: i64, granularity_ns: i64) -> bool {
        let changed_ns =
            if self.mtime_ns > start_ns { self.ctime_ns } else { self.ctime_ns.max(self.mtime_ns) };
        let is_whole = changed_ns % 1_000_000_000 == 0;
        let coarse_ns = i64::try_from(limits::STAMP_GRANULARITY_UNKNOWN.as_nanos());
        let granularity_ns = match coarse_ns {
            Ok(coarse_ns) if is_whole => granularity_ns.max(coarse_ns),
            _ => granularity_ns,
        };
        changed_ns >= start_ns.saturating_sub(granularity_ns)
    }
}

/// An entry, and the stamps under which it was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CachedEntry {
    /// As in the checkpoint.
    pub(crate) entry: Entry,
    /// The stamps when its content was read, or its names were listed; of what is not held, the inode.
    pub(crate) stamps: Stamps,
    /// Equal stamps do not prove equal content: the last change is too near to the look.
    pub(crate) racy: bool,
}

/// All that a walk saw, or a part of it.
#[derive(Debug)]
pub(crate) struct KnownTree {
    /// In order of path, the root first.
    pub(crate) entries: Vec<CachedEntry>,
    /// The rules by which the names were judged; none where that cannot be told from later ones, and
    /// then only the files are known.
    pub(crate) rules: Option<KnownRules>,
    /// What is not among the entries, where these are what a walk by hints needs.
    pub(crate) remainder: Option<Remainder>,
}

/// Everything that decided, besides the tree's names, what is in scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KnownRules {
    /// Over settings, place of the workspace, and path and content of each ignore file that counted.
    pub(crate) digest: Digest,
    /// The ignore files in the tree.
    pub(crate) ignore_files: Vec<KnownIgnoreFile>,
    /// The directories below the root that are the top of a repository.
    pub(crate) repositories: Vec<RelPath>,
    /// Paths that were held although the rules leave them out, in order: tracked by git, or saved
    /// before a restore. What is at or below them is looked at as if nothing were known.
    pub(crate) lifted: Vec<RelPath>,
}

/// An ignore file in the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KnownIgnoreFile {
    pub(crate) path: RelPath,
    pub(crate) hash: BlobHash,
    pub(crate) stamps: Stamps,
    /// As in [`CachedEntry`].
    pub(crate) racy: bool,
}

impl KnownIgnoreFile {
    pub(super) fn of(file: InsideFile) -> Self {
        let InsideFile { path, hash, stat } = file;
        // Until it is judged.
        Self { path, hash, stamps: Stamps::of(&stat), racy: true }
    }
}

impl KnownRules {
    /// The directories that have rules of their own, in order.
    fn directories(&self) -> Vec<RelPath> {
        let directory = |file: &KnownIgnoreFile| file.path.parent().unwrap_or_default();
        let mut directories: Vec<RelPath> = self.ignore_files.iter().map(directory).collect();
        directories.extend(self.repositories.iter().cloned());
        directories.sort_unstable();
        directories.dedup();
        directories
    }

    /// Those by which names at, below and above `paths`, and beside these, are judged.
    pub(super) fn concerning(&self, paths: &[RelPath]) -> Self {
        let concerns = |directory: &RelPath| {
            let is_near =
                |path: &RelPath| path.is_at_or_below(directory) || directory.is_at_or_below(path);
            paths.iter().any(is_near)
        };
        let mut near = self.clone();
        near.ignore_files.retain(|file| concerns(&file.path.parent().unwrap_or_default()));
        near.repositories.retain(concerns);
        near
    }

    /// Where a directory had rules of its own from.
    fn own(&self, directory: &RelPath) -> OwnRules {
        let has = |file: RelPath| {
            self.ignore_files.binary_search_by(|known| known.path.cmp(&file)).is_ok()
        };
        OwnRules {
            repository: self.repositories.binary_search(directory).is_ok(),
            ignore_file: directory.join(b".gitignore").is_ok_and(has),
        }
    }

    /// Marks the ignore files whose stamps do not vouch for their content.
    pub(crate) fn judge(&mut self, start_ns: i64, granularity_ns: i64) {
        for file in &mut self.ignore_files {
            file.racy = file.stamps.are_racy(start_ns, granularity_ns);
        }
    }

    fn lifts(&self, path: &RelPath) -> bool {
        is_at_or_below_any(&self.lifted, path)
    }
}

/// Whether `path` is one of `tops`, which are in order, or lies below one.
pub(super) fn is_at_or_below_any(tops: &[RelPath], path: &RelPath) -> bool {
    if tops.is_empty() {
        return false;
    }
    let is_top = |path: &[u8]| tops.binary_search_by(|top| top.as_bytes().cmp(path)).is_ok();
    let bytes = path.as_bytes();
    let mut ends = bytes.iter().enumerate().filter(|&(_, &byte)| byte == b'/');
    is_top(b"") || is_top(bytes) || ends.any(|(end, _)| is_top(&bytes[..end]))
}

impl Observed {
    /// What is known to be as it was. Of the stat only stamps, kind and mode are told.
    pub(crate) fn as_known(known: &CachedEntry) -> Self {
        let (kind, what) = match &known.entry.kind {
            EntryKind::File { .. } => (FileKind::File, What::File),
            EntryKind::Symlink { target } => {
                (FileKind::Symlink, What::Symlink { target: target.clone() })
            }
            EntryKind::Dir { listed } => (FileKind::Dir, What::Dir { listed: *listed }),
            EntryKind::Omitted { reason, rest } => {
                (FileKind::Other, What::Omitted { reason: *reason, rest: *rest })
            }
            EntryKind::Absent => {
                (FileKind::Other, What::Omitted { reason: OmitReason::IoError, rest: 0 })
            }
        };
        let Stamps { size, mtime_ns, mut ctime_ns, inode } = known.stamps;
        // Its names were listed too near to its last change to be relied upon, and were not listed again:
        // it must not pass for one whose stamps are old by now.
        if known.racy && kind == FileKind::Dir {
            ctime_ns = i64::MAX;
        }
        let mode = known.entry.mode;
        let stat = FileStat { kind, ino: inode, size, mtime_ns, ctime_ns, mode, ..unknown_stat() };
        Self { path: known.entry.path.clone(), stat, what }
    }
}

/// Whether the rules of today are `rules`. What is said to the tree on the way (files read,
/// repositories to ask) is what a listing would say.
pub(super) fn rules_hold(tree: &Tree, rules: &KnownRules, known: &[CachedEntry]) -> bool {
    for directory in &rules.repositories {
        let Some(repository) = Repository::at(&tree.root_path.join(directory.as_os())) else {
            return false;
        };
        tree.rule_files.of_top(0, &repository);
        tree.found_repository(directory, &repository);
    }
    let dot_git = known.iter().map(|known| &known.entry.path).filter(|path| path.name() == b".git");
    for directory in dot_git.filter_map(RelPath::parent).filter(|directory| !directory.is_root()) {
        let is_known = rules.repositories.binary_search(&directory).is_ok();
        if !is_known && Repository::at(&tree.root_path.join(directory.as_os())).is_some() {
            return false;
        }
    }
    for file in &rules.ignore_files {
        let Some((hash, stat)) = tree.ignore_file(file) else { return false };
        if hash != file.hash {
            return false;
        }
        tree.rule_files.known(file.path.clone(), hash, stat);
    }
    let report = tree.rule_files.report();
    report.skipped.is_empty() && tree.rules_digest(report.digest) == rules.digest
}

/// What became of a directory that was known.
#[derive(Debug)]
enum Revisited {
    /// It is there, and what it has is known.
    Same(Same),
    /// It is not there, or is another one. Where what it was in still has the name, that is looked at anew.
    Gone,
    /// All its names have to be judged.
    Changed,
}

/// What was found of what is known.
#[derive(Debug, Default)]
pub(super) struct Revisit {
    /// What is to be reported, in order.
    pub(super) observations: Vec<Observed>,
    /// As in [`crate::walk::Walked::kept`].
    pub(super) kept: Vec<bool>,
    /// Whether hints were followed.
    pub(super) is_hinted: bool,
    /// As in [`crate::walk::Walked::listed`].
    pub(super) listed: Option<Vec<RelPath>>,
}

impl Revisit {
    /// Notes which directories were looked at: those that are reported by now.
    pub(super) fn note_listed(&mut self) {
        let directories =
            self.observations.iter().filter(|seen| matches!(seen.what, What::Dir { .. }));
        self.listed = Some(directories.map(|seen| seen.path.clone()).collect());
    }

    /// Reports what was kept too.
    pub(super) fn report_all(&mut self, known: &[CachedEntry]) {
        let kept = std::mem::take(&mut self.kept);
        let kept = known.iter().zip(kept).filter(|(_, is_kept)| *is_kept);
        self.observations.extend(kept.map(|(known, _)| Observed::as_known(known)));
        graft::sort(&mut self.observations);
    }
}

/// Walks by what is known: every path of `known` and every new one is accounted for. What is new goes
/// to the tree's findings, what was known is returned; `None` where too much has changed for this to be
/// of use.
///
/// # Errors
/// [`Error::Cancelled`].
///
/// Cost: one open and one stat for each known directory, one stat for each other name.
pub(super) fn revisit(
    tree: &Tree,
    known: &[CachedEntry],
    rules: &KnownRules,
    detail: Detail,
    pool: &ThreadPool,
    monitor: &dyn Monitor,
) -> Result<Option<Revisit>> {
    let Some(table) = Table::of(known) else { return Ok(None) };
    let most = changed_max(table.directories.len());
    let changed = AtomicUsize::new(0);
    let revisited: Vec<Revisited> = pool.install(|| {
        let one = |number| {
            if number % 64 == 0 && monitor.is_cancelled() {
                tree.cancelled.store(true, Ordering::Relaxed);
            }
            // It is of no use any more.
            if tree.is_cancelled() || changed.load(Ordering::Relaxed) > most {
                return Revisited::Changed;
            }
            monitor.advanced(1, 0);
            let revisited = look(tree, &table, number, rules, detail);
            let is_changed = matches!(revisited, Revisited::Changed);
            changed.fetch_add(usize::from(is_changed), Ordering::Relaxed);
            revisited
        };
        (0..table.directories.len()).into_par_iter().with_min_len(8).map(one).collect()
    });
    if tree.is_cancelled() {
        return Err(Error::Cancelled);
    }
    let account = account(tree, &table, rules, None, revisited, pool, monitor)?;
    let Some(mut revisit) = account else { return Ok(None) };
    if detail == Detail::All {
        revisit.kept = Vec::new();
    }
    Ok(Some(revisit))
}

/// How many of so many directories may have changed for what is known to be of use.
fn changed_max(directories: usize) -> usize {
    (directories / CHANGED_ONE_IN).saturating_add(CHANGED_FEW)
}

/// Accounts for every known path and every new one, by what became of each known directory; `None` where
/// too much has changed.
fn account(
    tree: &Tree,
    table: &Table<'_>,
    rules: &KnownRules,
    remainder: Option<&Remainder>,
    revisited: Vec<Revisited>,
    pool: &ThreadPool,
    monitor: &dyn Monitor,
) -> Result<Option<Revisit>> {
    let changed = revisited.iter().filter(|revisited| matches!(revisited, Revisited::Changed));
    let besides = remainder.map_or(0, |remainder| remainder.census.directories);
    let directories =
        revisited.len().saturating_add(usize::try_from(besides).unwrap_or(usize::MAX));
    if changed.count() > changed_max(directories) {
        return Ok(None);
    }
    let confirmed = confirm(tree, table, rules, remainder, revisited, monitor)?;
    let Some(confirmed) = confirmed else { return Ok(None) };
    let known = table.entries;
    let Confirmed { mut seen, kept, new } = confirmed;
    explore(tree, new, pool, monitor)?;
    seen.sort_unstable_by_key(|(index, ..)| *index);
    let observed = |(index, stat, what): (usize, FileStat, What)| Observed {
        path: known[index].entry.path.clone(),
        stat,
        what,
    };
    let observations = seen.into_iter().map(observed).collect();
    Ok(Some(Revisit { observations, kept, ..Revisit::default() }))
}

/// What counts of what was found.
struct Confirmed {
    /// To be reported, by index of entry.
    seen: Vec<(usize, FileStat, What)>,
    /// Which entries are as they were, if they are not reported.
    kept: Vec<bool>,
    /// Directories that were not known.
    new: Vec<RelPath>,
}

/// Goes through the known directories from the top: a directory counts only if the one above it still
/// leads to it. Those that have changed are listed.
/// `None` where a directory has other ignore rules than it had, and where what became of one concerns what
/// is not at hand.
fn confirm(
    tree: &Tree,
    table: &Table<'_>,
    rules: &KnownRules,
    remainder: Option<&Remainder>,
    revisited: Vec<Revisited>,
    monitor: &dyn Monitor,
) -> Result<Option<Confirmed>> {
    let mut leads = vec![false; revisited.len()];
    leads[0] = true;
    let mut kept = vec![false; table.entries.len()];
    let mut all_seen = Vec::new();
    let mut new = Vec::new();
    for (number, revisited) in revisited.into_iter().enumerate() {
        if !leads[number] {
            continue;
        }
        let path = table.path(number);
        let Revisited::Same(same) = revisited else {
            if monitor.is_cancelled() {
                return Err(Error::Cancelled);
            }
            tree.load_known_rules();
            // Only a directory that is entered has rules.
            tree.forget_rules(path);
            let children = tree.settle(path, Policy::Scope, Policy::Scope);
            if tree.own_rules(path) != rules.own(path) {
                return Ok(None);
            }
            for (name, stat) in children {
                let Ok(child) = path.join(&name) else { continue };
                match table.number(&child) {
                    Some(known) if is_same(table, known, &stat) => leads[known] = true,
                    _ => new.push(child),
                }
            }
            continue;
        };
        kept[table.directories[number]] = true;
        for &index in table.children(number) {
            match table.numbers[index] {
                Some(child) => leads[child] = true,
                None => kept[index] = true,
            }
        }
        for (index, ..) in &same.seen {
            kept[*index] = false;
        }
        all_seen.extend(same.seen);
        if let Some(listed) = same.listed {
            for index in listed.gone {
                kept[index] = false;
                if let Some(number) = table.numbers[index] {
                    leads[number] = false;
                }
            }
            tree.push(listed.leaves);
            new.extend(listed.directories);
        }
        for index in same.again {
            kept[index] = false;
            let child = &table.entries[index].entry.path;
            let number = table.numbers[index];
            let seen = tree.look_at(child, Policy::Scope);
            if let (Seen::Directory(stat), Some(number)) = (&seen, number)
                && is_same(table, number, stat)
            {
                continue;
            }
            if let Some(number) = number {
                leads[number] = false;
            }
            match seen {
                Seen::Directory(_) => new.push(child.clone()),
                Seen::Leaf(observed) => tree.push(vec![observed]),
                Seen::Gone => locked(&tree.found).missed = true,
            }
        }
    }
    // Their rules were counted before it was known whether they are still reached.
    let is_reached = |directory: &RelPath| match table.number(directory) {
        Some(number) => leads[number],
        None => remainder.is_some_and(|remainder| lies_beyond(table, remainder, directory)),
    };
    let is_as_it_was = |closed: &RelPath| {
        table.number(closed).is_some_and(|number| kept[table.directories[number]])
    };
    let is_accounted_for = rules.directories().iter().all(is_reached)
        && remainder.is_none_or(|remainder| remainder.closed.iter().all(is_as_it_was));
    Ok(is_accounted_for.then_some(Confirmed { seen: all_seen, kept, new }))
}

/// Whether a directory that is not at hand lies in one that is, as it was.
fn lies_beyond(table: &Table<'_>, remainder: &Remainder, directory: &RelPath) -> bool {
    let above: Vec<RelPath> = directory.ancestors().collect();
    let nearest = above.iter().rev().find(|above| table.number(above).is_some());
    nearest.is_some_and(|nearest| remainder.is_closed(nearest))
}

/// Whether `stat` is of the known directory. Its names are known by the inode.
fn is_same(table: &Table<'_>, number: usize, stat: &FileStat) -> bool {
    table.entries[table.directories[number]].stamps.inode == stat.ino
}

/// Accounts for directories that were not known and for everything below them.
pub(super) fn explore(
    tree: &Tree,
    directories: Vec<RelPath>,
    pool: &ThreadPool,
    monitor: &dyn Monitor,
) -> Result<()> {
    pool.scope(|scope| {
        for path in directories {
            scope.spawn(move |scope| enter(scope, tree, &path, monitor));
        }
    });
    if tree.is_cancelled() { Err(Error::Cancelled) } else { Ok(()) }
}

fn enter<'s>(scope: &rayon::Scope<'s>, tree: &'s Tree, path: &RelPath, monitor: &'s dyn Monitor) {
    if monitor.is_cancelled() {
        tree.cancelled.store(true, Ordering::Relaxed);
    }
    if tree.is_cancelled() {
        return;
    }
    monitor.advanced(1, 0);
    for (name, _) in tree.settle(path, Policy::Scope, Policy::Scope) {
        if let Ok(child) = path.join(&name) {
            scope.spawn(move |scope| enter(scope, tree, &child, monitor));
        }
    }
}

impl Tree {
    /// Reads the ignore files that were known, once, so that names can be judged by them.
    pub(super) fn load_known_rules(&self) {
        // Held until all is read: nobody is to judge by half of it.
        let mut unread = locked(&self.unread_rules);
        let Some(known) = unread.take() else { return };
        for path in known.directories() {
            let Ok(Some((dir, _))) = self.open(&path) else { continue };
            let above = path.parent().map(|parent| self.nearest_rules(&parent));
            let above = above.unwrap_or_else(|| self.root_rules.clone());
            let is_top = known.repositories.binary_search(&path).is_ok();
            let repository = is_top.then(|| Repository::at(&self.root_path.join(path.as_os())));
            self.add_rules(&dir, &path, &above, repository.flatten().as_ref(), true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{Listed, Mode};

    #[test]
    fn stamps_near_the_start_of_the_capture_are_racy() {
        let stamps = |mtime_ns, ctime_ns| Stamps { size: 1, mtime_ns, ctime_ns, inode: 1 };
        assert!(!stamps(100, 200).are_racy(1_000, 100));
        assert!(stamps(100, 950).are_racy(1_000, 100), "changed just before, with an old mtime");
        assert!(stamps(950, 100).are_racy(1_000, 100), "a file system without change times");
        assert!(!stamps(9_999, 100).are_racy(1_000, 100), "a future mtime says nothing");
        assert!(stamps(9_999, 1_005).are_racy(1_000, 100));
        let second = 1_000_000_000;
        assert!(stamps(second, second).are_racy(3 * second - 1, 100), "whole seconds");
        assert!(!stamps(second, second).are_racy(3 * second + 1, 100));
        assert!(!stamps(second, second + 1).are_racy(3 * second - 1, 100));
    }
    #[test]
    fn a_directory_that_was_listed_too_early_does_not_grow_old() {
        let stamps = Stamps { size: 1, mtime_ns: 100, ctime_ns: 200, inode: 7 };
        let kind = EntryKind::Dir { listed: Listed::Whole };
        let entry =
            Entry { path: RelPath::new("d").unwrap(), mode: Mode::from_st_mode(0o755), kind };
        for racy in [true, false] {
            let known = CachedEntry { entry: entry.clone(), stamps, racy };
            let later = Stamps::of(&Observed::as_known(&known).stat);
            assert_eq!(later.are_racy(1_000_000, 100), racy);
            assert_eq!(later == stamps, !racy, "the next walk is to list it");
        }
    }
}
