//! Finding out what a restore or undo will do: the present, saved or only looked at, and the plan.

use std::collections::{BTreeMap, BTreeSet};

use crate::access::{Access, OpenWorkspace};
use crate::capture::{self, Base, Held, Look, Observation, Part, ReadSoFar, Storing};
use crate::disk;
use crate::error::Result;
use crate::hash::BlobHash;
use crate::manifest::{Entry, GitState, Listed, Scope};
use crate::monitor::{Monitor, Phase};
use crate::path::{RelPath, at_or_below};
use crate::plan::{Plan, PlanInput, Present, Selection, plan};
use crate::restore::RestoreOptions;
use crate::settings::ScopeSettings;
use crate::store::capturing::{beside_git, observe_with_git};
use crate::store::target::{Intent, Needed, Target, force_in, require_selected, require_spoken_of};
use crate::walk::{self, Detail, Observed, What};

/// What the present was found to be, and what is to be done about it.
pub(super) struct Prepared {
    /// The paths that were looked at, if not all were.
    pub(super) part: Option<Part>,
    pub(super) held: Held,
    pub(super) scope: Scope,
    pub(super) git: Option<GitState>,
    pub(super) plan: Plan,
    /// Content that is made for the plan, and staged, by path.
    pub(super) merged: BTreeMap<RelPath, BlobHash>,
}

/// What a restore goes by.
struct Restoring<'a> {
    access: &'a Access,
    open: &'a OpenWorkspace,
    storing: Option<Storing<'a>>,
    target: &'a Target,
    intent: &'a Intent,
    options: &'a RestoreOptions,
    /// The rules by which the present is captured. What is about to change is saved whatever the limit
    /// for all together says.
    settings: &'a ScopeSettings,
    monitor: &'a dyn Monitor,
}

/// What was seen of the workspace, or of part of it, and what the target has there.
struct Seen {
    part: Option<Part>,
    observation: Observation,
    git: Option<GitState>,
    then: Vec<Entry>,
}

/// Walks and hashes the present, forcing in what the target is about to change, and computes the plan.
pub(super) fn prepare(
    access: &Access,
    open: &OpenWorkspace,
    storing: Option<Storing<'_>>,
    mut base: Option<&mut Base>,
    target: &Target,
    intent: &Intent,
    options: &RestoreOptions,
    monitor: &dyn Monitor,
) -> Result<Prepared> {
    let settings = &ScopeSettings { total_limit_bytes: None, ..options.scope.clone() };
    let restoring = Restoring { access, open, storing, target, intent, options, settings, monitor };
    let part = match base.as_deref() {
        Some(base) => restoring.see_part(base)?,
        None => None,
    };
    let seen = match part {
        Some(seen) => seen,
        None => restoring.see_all(base.as_deref_mut())?,
    };
    restoring.plan(base, seen)
}

impl Restoring<'_> {
    /// Looks at the given paths alone, where that tells as much of them as the whole.
    fn see_part(&self, base: &Base) -> Result<Option<Seen>> {
        let Self { access, open, target, options, settings, monitor, .. } = *self;
        let paths = &options.paths;
        if paths.is_empty() || self.intent.touched.is_some() || target.only.is_some() {
            return Ok(None);
        }
        let observe = || capture::observe_part(access, open, base, paths, settings, monitor);
        let (seen, git) = beside_git(open, monitor, observe)?;
        let Some((observation, part)) = seen else { return Ok(None) };
        let then = target.entries(access, None, Needed::Of(paths))?;
        let may_go = |seen: &&Observed| {
            !matches!(seen.what, What::Dir { listed: Listed::Partial })
                && then.binary_search_by(|then| then.path.cmp(&seen.path)).is_err()
        };
        for seen in observation.walked.observations.iter().filter(may_go) {
            // Another name of the same file may be one that the target has.
            let has_others = seen.what == What::File && seen.stat.nlink > 1;
            let is_given = paths.contains(&seen.path);
            if has_others || (is_given && !walk::is_listed(&open.dir, &seen.path)?) {
                return Ok(None);
            }
        }
        Ok(Some(Seen { part: Some(part), observation, git, then }))
    }

    /// Walks the whole workspace.
    fn see_all(&self, mut base: Option<&mut Base>) -> Result<Seen> {
        let Self { access, open, settings, monitor, .. } = *self;
        let (observation, git) = observe_with_git(
            access,
            open,
            base.as_deref_mut(),
            settings,
            Look::Whole(Detail::All),
            monitor,
        )?;
        let mut touched: Vec<RelPath> =
            self.intent.touched.iter().flat_map(BTreeMap::keys).cloned().collect();
        touched.extend(self.target.only.iter().flatten().cloned());
        let source = self.intent.source(self.target);
        let needed = if source.is_part { Needed::AtLeast(&touched) } else { Needed::All };
        let then = source.entries(access, base.as_deref(), needed)?;
        if self.options.thorough
            && let Some(base) = base
        {
            base.cache = None;
        }
        Ok(Seen { part: None, observation, git, then })
    }

    fn plan(&self, base: Option<&mut Base>, seen: Seen) -> Result<Prepared> {
        let Self { access, open, storing, target, options, settings, monitor, .. } = *self;
        let Seen { part, mut observation, git, then } = seen;
        // A checkpoint of given paths speaks of these alone.
        if let Some(only) = &target.only
            && self.intent.touched.is_none()
        {
            let parent = target.parent.as_ref();
            require_spoken_of(&target.reference.id, parent, only, &options.paths)?;
        }
        let only: Option<BTreeSet<RelPath>> = target.only.as_ref().map(|only| {
            let is_given = |path: &&RelPath| {
                options.paths.is_empty() || Selection::Below(&options.paths).includes(path)
            };
            only.iter().filter(is_given).cloned().collect()
        });
        let selection = match (&self.intent.touched, &only) {
            (Some(touched), _) if self.intent.merge.is_some() => Selection::Changed(touched),
            (Some(touched), _) => Selection::Touched(touched),
            (None, Some(only)) => Selection::Only(only),
            (None, None) if options.paths.is_empty() => Selection::All,
            (None, None) => Selection::Below(&options.paths),
        };
        force_in(open, &mut observation.walked, &then, selection, monitor)?;
        let scope = capture::scope_of(&observation.walked, settings);
        // What is known of the whole is not needed for a part.
        let base = base.filter(|_| part.is_none());
        // What vanished meanwhile is not there to be changed.
        let so_far = &mut ReadSoFar::default();
        let held =
            capture::hold(access, open, base, observation, settings, storing, so_far, monitor)?;
        monitor.phase(Phase::Plan, None);
        let now = present(open, &held);
        if self.intent.touched.is_none() && !options.paths.is_empty() {
            require_selected(&target.reference.id, &then, Some(&now), &options.paths)?;
        }
        if let Some(merge) = &self.intent.merge {
            let unchanged = merge.unchanged();
            require_selected(&target.reference.id, &then, Some(&now), &unchanged)?;
        }
        let input = PlanInput {
            target: &target.reference.id,
            then: &then,
            then_is_full: self.intent.source(target).is_full,
            is_overlay: options.overlay,
            now: &now,
            selection,
        };
        let (plan, merged) = match &self.intent.merge {
            None => (plan(input), BTreeMap::new()),
            Some(merge) => {
                let theirs = then.clone();
                let resolved = merge.resolve(access, open, theirs, &now, storing, monitor)?;
                let selection = Selection::Changed(&resolved.touched);
                let planned = plan(PlanInput { then: &resolved.then, selection, ..input });
                resolved.finish(merge, open, planned)?
            }
        };
        Ok(Prepared { part, held, scope, git, plan, merged })
    }
}

fn present(open: &OpenWorkspace, held: &Held) -> Vec<Present> {
    // Where the kernel does not say, every directory of another device is taken for one.
    let mounts = disk::mounts_below(&open.path).unwrap_or_else(|_| other_devices(held));
    let one = |(cached, stat): (&walk::CachedEntry, &disk::FileStat)| Present {
        entry: cached.entry.clone(),
        device: stat.dev,
        inode: stat.ino,
        is_mounted: false,
    };
    let mut present: Vec<Present> = held.entries.iter().zip(&held.stats).map(one).collect();
    for mount in &mounts {
        let below: Vec<usize> = at_or_below(&present, mount, |it| &it.entry.path).collect();
        for index in below {
            present[index].is_mounted = true;
        }
    }
    present
}

fn other_devices(held: &Held) -> Vec<RelPath> {
    let root = held.stats.first().map(|stat| stat.dev);
    let is_other = |stat: &disk::FileStat| {
        stat.kind == disk::FileKind::Dir && root.is_some_and(|root| root != stat.dev)
    };
    let entries = held.entries.iter().zip(&held.stats);
    entries.filter(|(_, stat)| is_other(stat)).map(|(it, _)| it.entry.path.clone()).collect()
}
