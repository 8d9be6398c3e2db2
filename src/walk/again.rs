//! A last look, for what was moved while the tree was walked.
//!
//! What is moved from a directory that was not visited yet to one that was is in neither, although it
//! was there all the time. But then the directory that was visited later has stamps from after the
//! walk began, or a name was gone when its turn came. Where neither is so, nothing can have slipped
//! through; else the stamps of all directories are looked at once more, and those that have changed
//! are listed again.

use std::collections::{HashMap, HashSet};

use rayon::ThreadPool;
use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::manifest::Listed;
use crate::monitor::Monitor;
use crate::path::RelPath;
use crate::walk::directory::{Policy, Tree};
use crate::walk::known::{Stamps, explore, is_at_or_below_any};
use crate::walk::{Observed, What, graft, locked};

/// How often a tree that goes on changing is looked at again.
pub(super) const ROUNDS_MAX: usize = 3;

/// Whether something may have been moved past the walk.
pub(super) fn may_miss(tree: &Tree, observations: &[Observed]) -> bool {
    let is_new = |observed: &Observed| {
        let (modified_ns, changed_ns) = (observed.stat.mtime_ns, observed.stat.ctime_ns);
        // Where it lies in the future it was set by somebody, or the other tells as well.
        let newest_ns =
            if modified_ns > tree.start_ns { changed_ns } else { modified_ns.max(changed_ns) };
        is_directory(observed) && newest_ns >= tree.start_ns
    };
    locked(&tree.found).missed || observations.iter().any(is_new)
}

/// Brings `observations`, which are of every path, up to date. Of a directory that goes on changing it is
/// said that not all of its names may be known: something may have been moved past each look.
///
/// # Errors
/// [`Error::Cancelled`].
///
/// Cost: one open for each directory, and the listing of those that have changed; up to three times, and
/// where they still change the opens once more.
pub(super) fn look(
    tree: &Tree,
    observations: &mut Vec<Observed>,
    pool: &ThreadPool,
    monitor: &dyn Monitor,
) -> Result<()> {
    for _ in 0..ROUNDS_MAX {
        let changed = changed(tree, observations, pool);
        if changed.is_empty() {
            return Ok(());
        }
        list_again(tree, observations, &changed, pool, monitor)?;
    }
    let changed = changed(tree, observations, pool);
    for seen in observations.iter_mut().filter(|seen| changed.contains(&seen.path)) {
        seen.what = What::Dir { listed: Listed::Partial };
    }
    locked(&tree.found).restless.extend(changed);
    Ok(())
}

/// The directories that are not as they were seen.
fn changed(tree: &Tree, observations: &[Observed], pool: &ThreadPool) -> HashSet<RelPath> {
    pool.install(|| {
        let directories = observations.par_iter().filter(|observed| is_directory(observed));
        let changed = directories.filter(|seen| has_changed(tree, seen));
        changed.map(|seen| seen.path.clone()).collect()
    })
}

fn is_directory(observed: &Observed) -> bool {
    matches!(observed.what, What::Dir { .. })
}

fn has_changed(tree: &Tree, seen: &Observed) -> bool {
    match tree.open(&seen.path) {
        Ok(Some((_, stat))) => Stamps::of(&stat) != Stamps::of(&seen.stat),
        // Its parent has changed too, unless it became unreadable.
        Ok(None) => false,
        Err(_) => true,
    }
}

fn list_again(
    tree: &Tree,
    observations: &mut Vec<Observed>,
    changed: &HashSet<RelPath>,
    pool: &ThreadPool,
    monitor: &dyn Monitor,
) -> Result<()> {
    let mut paths: Vec<&RelPath> = changed.iter().collect();
    paths.sort_unstable();
    let mut known: HashMap<RelPath, Vec<(RelPath, u64)>> = HashMap::new();
    for seen in observations.iter().filter(|seen| is_directory(seen)) {
        if let Some(parent) = seen.path.parent().filter(|parent| changed.contains(parent)) {
            known.entry(parent).or_default().push((seen.path.clone(), seen.stat.ino));
        }
    }
    let mut gone = Vec::new();
    let mut new = Vec::new();
    tree.load_known_rules();
    for path in paths {
        if monitor.is_cancelled() {
            return Err(Error::Cancelled);
        }
        if is_at_or_below_any(&gone, path) {
            continue;
        }
        let rules = tree.own_rules(path);
        tree.forget_rules(path);
        let entered = tree.settle(path, Policy::Scope, Policy::Scope);
        if tree.own_rules(path) != rules {
            // What lies below was judged by other rules: the next walk is to judge it anew.
            locked(&tree.found).rules_moved = true;
        }
        let entered =
            entered.into_iter().filter_map(|(name, stat)| Some((path.join(&name).ok()?, stat.ino)));
        let mut entered: HashSet<(RelPath, u64)> = entered.collect();
        let before = known.remove(path).unwrap_or_default();
        gone.extend(
            before.into_iter().filter_map(|child| (!entered.remove(&child)).then_some(child.0)),
        );
        gone.sort_unstable();
        new.extend(entered.into_iter().map(|(child, _)| child));
    }
    observations.retain(|seen| {
        let in_changed = seen.path.parent().is_some_and(|parent| changed.contains(&parent));
        let is_replaced = changed.contains(&seen.path) || in_changed && !is_directory(seen);
        !is_replaced && !is_at_or_below_any(&gone, &seen.path)
    });
    explore(tree, new, pool, monitor)?;
    let batches = std::mem::take(&mut locked(&tree.found).batches);
    observations.extend(batches.into_iter().flatten());
    graft::sort(observations);
    observations.dedup_by(|later, first| later.path == first.path);
    Ok(())
}
