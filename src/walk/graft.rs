//! Paths added to a walk although the rules leave them out.
//!
//! Two need it: what git tracks, and what a restore is about to change and must save first. A
//! directory that was left out as a whole and has such a path becomes a `dir` that is `partial`: it
//! holds these paths and says nothing about others. Version control, stores, secrets and mounts are
//! never added.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::{Bound, Range};
use std::sync::atomic::Ordering;

use crate::disk::FileStat;
use crate::error::Result;
use crate::git::Repository;
use crate::limits;
use crate::manifest::{Listed, OmitReason};
use crate::monitor::Monitor;
use crate::path::RelPath;
use crate::walk::directory::{Policy, Seen, Tree, omitted, unknown_stat};
use crate::walk::{Observed, Walked, What, locked, position};

/// What became of a path that a restore asked to add.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Forced {
    /// It is observed, and so is everything below it: the capture may hold all of it.
    Held,
    /// There is no such path.
    Missing,
    /// This path, the one asked for or one above or below it, cannot be held.
    Left {
        /// Which one.
        path: RelPath,
        /// Why not.
        reason: OmitReason,
    },
}

/// Why a directory cannot be entered for a path below it.
#[derive(Debug, Clone)]
enum Barrier {
    Missing,
    Left(RelPath, OmitReason),
}

/// Additions to a list of observations, applied at the end.
struct Grafting<'a> {
    tree: &'a Tree,
    observations: &'a mut Vec<Observed>,
    /// Those of them that are taken out, by their places: the list keeps its order to the end.
    removed: HashSet<usize>,
    added: BTreeMap<RelPath, Observed>,
    barriers: HashMap<RelPath, Barrier>,
}

/// Adds what git tracks and rules leave out: see [`crate::walk::tracked`].
pub(super) fn add_tracked(
    tree: &Tree,
    observations: &mut Vec<Observed>,
    paths: &[RelPath],
    unfinished: &mut Vec<RelPath>,
) -> Result<()> {
    let mut grafting = Grafting::new(tree, observations);
    for path in paths {
        grafting.add_tracked(path, unfinished)?;
    }
    grafting.apply();
    Ok(())
}

/// Marks what git keeps out of the work tree: where such a path would be, the deepest directory that
/// exists is `partial`, and the next name on the way is `omitted: sparse`.
pub(super) fn mark_sparse(tree: &Tree, observations: &mut Vec<Observed>, paths: &[RelPath]) {
    let mut grafting = Grafting::new(tree, observations);
    for path in paths {
        grafting.mark_sparse(path);
    }
    grafting.apply();
}

impl Walked {
    /// Adds each of `paths`, and everything below it where it is a directory, whatever limits,
    /// exclusions and ignore rules say: for a restore, which must save what it is about to change.
    /// What became of each path is returned in the same order. Version control, stores, secrets and
    /// mounts are left out here too.
    ///
    /// What was known of a path and of those below it is replaced by what is there now.
    ///
    /// # Errors
    /// [`crate::Error::Cancelled`]; [`crate::Error::Io`] where there are no handles or no memory left to look
    /// with.
    ///
    /// Cost: one stat for each path and each name below it.
    pub(crate) fn force(
        &mut self,
        paths: &[RelPath],
        monitor: &dyn Monitor,
    ) -> Result<Vec<Forced>> {
        count_out(&mut self.observations, &self.unlisted);
        // What was put among the observations since is said once.
        self.unlisted.retain(|seen| position(&self.observations, &seen.path).is_err());
        self.observations.append(&mut self.unlisted);
        sort(&mut self.observations);
        let tree = &self.tree;
        let mut grafting = Grafting::new(tree, &mut self.observations);
        let mut outcomes = Vec::with_capacity(paths.len());
        for path in paths {
            tree.cancelled.store(monitor.is_cancelled(), Ordering::Relaxed);
            outcomes.push(grafting.force(path, &mut self.unfinished)?);
        }
        grafting.apply();
        tree.require_no_lack()?;
        self.unlisted = limit_omitted(&mut self.observations);
        self.lift(paths);
        Ok(outcomes)
    }

    /// Says that `paths` are in the list against the rules, so that the next walk judges them, and what
    /// is below them, anew.
    pub(crate) fn lift(&mut self, paths: &[RelPath]) {
        if let Some(rules) = &mut self.rules {
            rules.lifted.extend_from_slice(paths);
            rules.lifted.sort_unstable();
            rules.lifted.dedup();
        }
    }
}

impl<'a> Grafting<'a> {
    fn new(tree: &'a Tree, observations: &'a mut Vec<Observed>) -> Self {
        Self {
            tree,
            observations,
            removed: HashSet::new(),
            added: BTreeMap::new(),
            barriers: HashMap::new(),
        }
    }

    /// Where a path is among the observations that count.
    fn place(&self, path: &RelPath) -> Option<usize> {
        position(self.observations, path).ok().filter(|index| !self.removed.contains(index))
    }

    /// The places of what lies below `path`, which are next to each other.
    fn places_below(&self, path: &RelPath) -> Range<usize> {
        let prefix = prefix_of(path);
        let start = self.observations.partition_point(|seen| seen.path.as_bytes() < &*prefix);
        let below = self.observations[start..]
            .partition_point(|seen| seen.path.as_bytes().starts_with(&prefix));
        start..start + below
    }

    /// What was added below `path`.
    fn added_below(&self, path: &RelPath) -> impl Iterator<Item = &RelPath> {
        let prefix = prefix_of(path);
        let from = (Bound::Included(&*prefix), Bound::Unbounded);
        let after = self.added.range::<[u8], _>(from).map(|(path, _)| path);
        after.take_while(move |path| path.as_bytes().starts_with(&prefix))
    }

    fn what(&self, path: &RelPath) -> Option<&What> {
        if let Some(added) = self.added.get(path) {
            return Some(&added.what);
        }
        Some(&self.observations[self.place(path)?].what)
    }

    fn add(&mut self, observed: Observed) {
        self.added.insert(observed.path.clone(), observed);
    }

    fn add_tracked(&mut self, path: &RelPath, unfinished: &mut Vec<RelPath>) -> Result<()> {
        // Nothing to add if it is not on the disk, and no directory is opened up for it.
        let seen = self.tree.look_at(path, Policy::Tracked);
        if matches!(seen, Seen::Gone) || !self.may_replace(path) || self.reach(path).is_err() {
            return Ok(());
        }
        match seen {
            Seen::Leaf(observed) => self.add(observed),
            // A submodule; a directory in place of a tracked file is not what git tracks.
            Seen::Directory(_) => {
                if Repository::at(&self.tree.root_path.join(path.as_os())).is_some() {
                    unfinished.extend(self.descend(path, Policy::Tracked)?);
                }
            }
            Seen::Gone => {}
        }
        Ok(())
    }

    /// Whether what is known of the path leaves something to add.
    fn may_replace(&self, path: &RelPath) -> bool {
        matches!(
            self.what(path),
            None | Some(What::Omitted { reason: OmitReason::Ignored | OmitReason::Excluded, .. })
        )
    }

    /// Makes every directory above `path` one that the list has.
    fn reach(&mut self, path: &RelPath) -> Result<(), Barrier> {
        for directory in path.ancestors() {
            if matches!(self.what(&directory), Some(What::Dir { .. })) {
                continue;
            }
            if let Some(barrier) = self.barriers.get(&directory) {
                return Err(barrier.clone());
            }
            match self.look_at_directory(&directory) {
                Ok(stat) => {
                    let what = What::Dir { listed: Listed::Partial };
                    self.add(Observed { path: directory, stat, what });
                }
                Err(barrier) => {
                    self.barriers.insert(directory, barrier.clone());
                    return Err(barrier);
                }
            }
        }
        Ok(())
    }

    fn look_at_directory(&self, directory: &RelPath) -> Result<FileStat, Barrier> {
        match self.tree.look_at(directory, Policy::Everything) {
            Seen::Directory(_) if self.tree.is_store_at(directory) => {
                Err(Barrier::Left(directory.clone(), OmitReason::Store))
            }
            Seen::Directory(stat) => Ok(stat),
            Seen::Leaf(Observed { path, what: What::Omitted { reason, .. }, .. }) => {
                Err(Barrier::Left(path, reason))
            }
            Seen::Leaf(_) | Seen::Gone => Err(Barrier::Missing),
        }
    }

    fn force(&mut self, path: &RelPath, unfinished: &mut Vec<RelPath>) -> Result<Forced> {
        match self.reach(path) {
            Ok(()) => {}
            Err(Barrier::Missing) => return Ok(Forced::Missing),
            Err(Barrier::Left(path, reason)) => return Ok(Forced::Left { path, reason }),
        }
        match self.tree.look_at(path, Policy::Everything) {
            Seen::Gone => {
                self.remove(path);
                Ok(Forced::Missing)
            }
            Seen::Leaf(observed) => {
                self.remove(path);
                let outcome = match observed.what {
                    What::Omitted { reason, .. } => Forced::Left { path: path.clone(), reason },
                    _ => Forced::Held,
                };
                self.add(observed);
                Ok(outcome)
            }
            Seen::Directory(_) => {
                self.remove(path);
                let cut = self.descend(path, Policy::Everything)?;
                let outcome = self.outcome_of_directory(path, &cut);
                unfinished.extend(cut);
                Ok(outcome)
            }
        }
    }

    fn outcome_of_directory(&self, path: &RelPath, cut: &[RelPath]) -> Forced {
        let below = self.added.range(path.clone()..).map(|(_, observed)| observed);
        let below =
            below.take_while(|observed| observed.path.as_bytes().starts_with(path.as_bytes()));
        for observed in below.filter(|observed| observed.path.is_at_or_below(path)) {
            if let What::Omitted { reason, .. } = observed.what {
                return Forced::Left { path: observed.path.clone(), reason };
            }
        }
        match cut.first() {
            Some(cut) => Forced::Left { path: cut.clone(), reason: OmitReason::IoError },
            None if self.what(path).is_some() => Forced::Held,
            None => Forced::Missing,
        }
    }

    /// Takes out what is known of `path` and of everything below it.
    fn remove(&mut self, path: &RelPath) {
        self.removed.extend(self.place(path));
        self.removed.extend(self.places_below(path));
        self.added.remove(path);
        let below: Vec<RelPath> = self.added_below(path).cloned().collect();
        for path in below {
            self.added.remove(&path);
        }
    }

    /// Adds `path` and everything below it as it is now; directories that could not be listed to the
    /// end are returned.
    fn descend(&mut self, path: &RelPath, policy: Policy) -> Result<Vec<RelPath>> {
        self.tree.descend(path, policy)?;
        let (batches, unfinished) = {
            let mut found = locked(&self.tree.found);
            (std::mem::take(&mut found.batches), std::mem::take(&mut found.unfinished))
        };
        for observed in batches.into_iter().flatten() {
            self.add(observed);
        }
        Ok(unfinished)
    }

    fn mark_sparse(&mut self, path: &RelPath) {
        let mut parent = RelPath::root();
        for step in path.ancestors().skip(1).chain([path.clone()]) {
            match self.what(&step) {
                Some(What::Dir { .. }) => {}
                // It is there after all, or left out for another reason.
                Some(_) => return,
                None => {
                    self.make_partial(&parent);
                    self.add(omitted(step, unknown_stat(), OmitReason::Sparse));
                    return;
                }
            }
            parent = step;
        }
        // The directory is there, perhaps with files of the user's own, and git keeps what it has in
        // it and below it out of the work tree.
        let known = self.observations[self.places_below(path)].iter().map(|seen| &seen.path);
        let below: Vec<RelPath> = known.chain(self.added_below(path)).cloned().collect();
        for directory in std::iter::once(path.clone()).chain(below) {
            self.make_partial(&directory);
        }
    }

    fn make_partial(&mut self, path: &RelPath) {
        let place = self.place(path);
        let observed = match (self.added.get_mut(path), place) {
            (Some(added), _) => added,
            (None, Some(index)) => &mut self.observations[index],
            (None, None) => return,
        };
        if let What::Dir { listed } = &mut observed.what {
            *listed = Listed::Partial;
        }
    }

    fn apply(self) {
        let Self { observations, removed, added, .. } = self;
        if added.is_empty() && removed.is_empty() {
            return;
        }
        let mut place = 0..;
        let mut left_behind: HashMap<RelPath, u64> = HashMap::new();
        observations.retain(|observed| {
            let is_removed = place.next().is_some_and(|place| removed.contains(&place));
            let stays = !is_removed && !added.contains_key(&observed.path);
            if !stays && let What::Omitted { rest: rest @ 1.., .. } = observed.what {
                left_behind.insert(observed.path.parent().unwrap_or_default(), rest);
            }
            stays
        });
        observations.extend(added.into_values());
        sort(observations);
        hand_over(observations, left_behind);
    }
}

/// Lets the last name without content of each of these directories stand for so many others: the one that
/// did is held now, or gone.
fn hand_over(observations: &mut [Observed], mut left_behind: HashMap<RelPath, u64>) {
    for observed in observations.iter_mut().rev() {
        if left_behind.is_empty() {
            return;
        }
        if let What::Omitted { rest, .. } = &mut observed.what
            && let Some(more) = left_behind.remove(&observed.path.parent().unwrap_or_default())
        {
            *rest += more;
        }
    }
}

/// What every path below `path` begins with.
fn prefix_of(path: &RelPath) -> Vec<u8> {
    if path.is_root() { Vec::new() } else { [path.as_bytes(), b"/"].concat() }
}

/// In order of path, which is the order of a checkpoint.
pub(super) fn sort(observations: &mut [Observed]) {
    observations.sort_by(|a, b| a.path.cmp(&b.path));
}

/// The names without content that a directory has.
#[derive(Debug, Clone, Copy, Default)]
struct Unheld {
    /// How many are among the observations.
    observed: u64,
    /// How many more there are that the last of them stands for.
    rest: u64,
}

/// Where a directory has more names without content than are listed, the one behind the last listed
/// stands for the rest, and the directory is partial. What is no longer in the list is returned.
///
/// One that stands for others already goes on to do so: nobody looked at those.
pub(super) fn limit_omitted(observations: &mut Vec<Observed>) -> Vec<Observed> {
    const SHOWN_MAX: u64 = limits::OMITTED_LISTED_MAX as u64 + 1;
    let mut unheld: HashMap<RelPath, Unheld> = HashMap::new();
    for observed in observations.iter_mut() {
        if let What::Omitted { rest, .. } = &mut observed.what {
            let unheld = unheld.entry(observed.path.parent().unwrap_or_default()).or_default();
            unheld.observed += 1;
            unheld.rest += std::mem::take(rest);
        }
    }
    unheld.retain(|_, unheld| unheld.observed > SHOWN_MAX || unheld.rest > 0);
    if unheld.is_empty() {
        return Vec::new();
    }
    let mut shown: HashMap<RelPath, u64> = HashMap::new();
    let mut unlisted = Vec::new();
    let mut kept = Vec::with_capacity(observations.len());
    for mut observed in observations.drain(..) {
        match &mut observed.what {
            What::Dir { listed } if unheld.contains_key(&observed.path) => {
                *listed = Listed::Partial;
            }
            What::Omitted { rest, .. } => {
                let parent = observed.path.parent().unwrap_or_default();
                if let Some(unheld) = unheld.get(&parent) {
                    let shown = shown.entry(parent).or_default();
                    *shown += 1;
                    if *shown > SHOWN_MAX {
                        unlisted.push(observed);
                        continue;
                    }
                    if *shown == unheld.observed.min(SHOWN_MAX) {
                        *rest = unheld.observed - *shown + unheld.rest;
                    }
                }
            }
            _ => {}
        }
        kept.push(observed);
    }
    *observations = kept;
    unlisted
}

/// Lets nothing stand for `unlisted` any more, which are about to be among the observations again.
fn count_out(observations: &mut [Observed], unlisted: &[Observed]) {
    let mut counts: HashMap<RelPath, u64> = HashMap::new();
    for observed in unlisted {
        *counts.entry(observed.path.parent().unwrap_or_default()).or_default() += 1;
    }
    for observed in observations {
        if let What::Omitted { rest: rest @ 1.., .. } = &mut observed.what
            && let Some(count) = counts.remove(&observed.path.parent().unwrap_or_default())
        {
            *rest = rest.saturating_sub(count);
        }
    }
}
