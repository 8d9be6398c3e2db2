//! What a restore will do, computed before anything is touched.
//!
//! Pure: two lists of entries in, a list of changes and a list of skips out. A plan is shown, and then
//! applied exactly. The rules, in the order in which they bite:
//!
//! 1. What the target does not hold is left as it is.
//! 2. A path is deleted only on positive evidence that it was not there: its deepest ancestor in the
//!    target is a directory of which every name was listed, and the target covers the whole tree.
//! 3. Nothing is overwritten, replaced or deleted whose present bytes are not held.
//! 4. A directory gives way to a file only as a whole, and only if everything below it is held.
//! 5. Files that are already as they should be are not touched.

mod bound;
mod settle;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Bound;

use crate::hash::Digest;
use crate::id::CheckpointId;
use crate::manifest::{Entry, EntryKind, EntryText, Listed, Mode, OmitReason};
use crate::path::RelPath;

pub use bound::BoundPlan;
pub(crate) use settle::{Collision, Settled, settle};

/// A path as it is on disk now, held by the safety checkpoint unless its kind says otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Present {
    /// What it is.
    pub entry: Entry,
    /// The device it lies on.
    pub device: u64,
    /// Its inode there: two names of one file share it.
    pub inode: u64,
    /// Whether something else is mounted here, or above it and below the root. No device says so: a
    /// mount may be of the same file system, and the layers of one may have several.
    pub is_mounted: bool,
}

/// What happens to one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Where.
    pub path: RelPath,
    /// As it is now; `None` where nothing is.
    pub before: Option<Entry>,
    /// As it will be; `None` where it is deleted.
    pub after: Option<Entry>,
}

/// The four kinds of change, as plans list them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChangeKind {
    /// Nothing is there now.
    Create,
    /// Other content, another target, or another kind.
    Overwrite,
    /// It is removed.
    Delete,
    /// Only the permission bits.
    Mode,
}

impl Change {
    /// Which list of the plan it belongs to.
    pub fn kind(&self) -> ChangeKind {
        match (&self.before, &self.after) {
            (None, _) => ChangeKind::Create,
            (Some(_), None) => ChangeKind::Delete,
            (Some(before), Some(after)) if before.is_same_content(after) => ChangeKind::Mode,
            (Some(_), Some(_)) => ChangeKind::Overwrite,
        }
    }
}

/// Why a path is left as it is although the target differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum SkipReason {
    /// The target does not hold it, for this reason.
    NotCaptured(OmitReason),
    /// By rule it is never saved, so it is never replaced: a secret, a version-control directory, a
    /// store, a mount point; or a directory with one of these below it.
    Rule(OmitReason),
    /// Its present bytes cannot be held: unreadable, special, or changing while read.
    NotSaved,
    /// The target does not show that it was not there then.
    NoEvidence,
    /// A directory that the target does not have, in which something stays.
    NotEmpty,
    /// It is another name of a file that the target has.
    OtherName,
    /// A directory above it could not be put in place.
    Blocked,
    /// Everything is restored but the set-user-id and set-group-id bits, which never are.
    SetId,
    /// It changed between the plan and its turn, or since the restore that is taken back.
    Conflict,
    /// The system refused, for example for lack of permission.
    Failed,
}

impl SkipReason {
    /// The word used in JSON and in plans.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotCaptured(reason) | Self::Rule(reason) => reason.as_str(),
            Self::NotSaved => "not-saved",
            Self::NoEvidence => "no-evidence",
            Self::NotEmpty => "not-empty",
            Self::OtherName => "other-name",
            Self::Blocked => "blocked",
            Self::SetId => "set-id",
            Self::Conflict => "conflict",
            Self::Failed => "failed",
        }
    }

    /// Whether the outcome falls short of the plan's intent, and the program says so by its exit
    /// code. Skips by rule do not.
    pub fn is_shortfall(self) -> bool {
        matches!(self, Self::NotSaved | Self::Blocked | Self::Conflict | Self::Failed)
    }
}

/// A path that is left as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skip {
    /// Where.
    pub path: RelPath,
    /// Why.
    pub reason: SkipReason,
}

/// What a restore will do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The checkpoint to be restored.
    pub target: CheckpointId,
    /// In order of path.
    pub changes: Vec<Change>,
    /// In order of path.
    pub skips: Vec<Skip>,
}

impl Plan {
    /// A name for exactly these changes to exactly this state: two plans with one id do the same.
    ///
    /// Of the text that entries have in pages: the id is kept in files, and must outlive this program.
    pub fn id(&self) -> String {
        let mut text = format!("{}\n", self.target).into_bytes();
        for change in &self.changes {
            let entry = |entry: &'_ Option<Entry>| {
                entry.as_ref().map(|it| EntryText(Cow::Owned(it.clone())))
            };
            let sides = [entry(&change.before), entry(&change.after)];
            // Strings and integers always have a JSON form.
            text.extend_from_slice(&serde_json::to_vec(&sides).unwrap_or_default());
            text.push(b'\n');
        }
        Digest::of(&text).to_string()
    }

    /// The changes of one kind, in order of path.
    pub fn of_kind(&self, kind: ChangeKind) -> impl Iterator<Item = &Change> {
        self.changes.iter().filter(move |change| change.kind() == kind)
    }

    /// One entry for each changed path as it will be afterwards, for the safety checkpoint.
    pub fn after(&self) -> Vec<Entry> {
        let after = |change: &Change| {
            change.after.clone().unwrap_or_else(|| Entry {
                path: change.path.clone(),
                mode: Mode::default(),
                kind: EntryKind::Absent,
            })
        };
        self.changes.iter().map(after).collect()
    }
}

/// What a plan is computed from.
#[derive(Debug, Clone, Copy)]
pub struct PlanInput<'a> {
    /// The checkpoint to be restored.
    pub target: &'a CheckpointId,
    /// Its entries, sorted, beginning with the root.
    pub then: &'a [Entry],
    /// Whether `then` accounts for the whole tree; otherwise nothing in it is evidence of absence.
    pub then_is_full: bool,
    /// Whether `then` is laid over what is there: nothing goes.
    pub is_overlay: bool,
    /// The present state, sorted, beginning with the root.
    pub now: &'a [Present],
    /// Which paths.
    pub selection: Selection<'a>,
}

/// Which paths a plan is about.
#[derive(Debug, Clone, Copy)]
pub enum Selection<'a> {
    /// All.
    All,
    /// These, each with everything below it.
    Below(&'a [RelPath]),
    /// Exactly these: what an earlier restore touched, with what it left there. A path that is not
    /// as it was left has been worked on since, and is a conflict.
    Touched(&'a BTreeMap<RelPath, Entry>),
    /// Exactly these: what the two sides of a merge have in different ways, as it is now. That it was made
    /// by one is evidence enough only where the target shows that the other has nothing there.
    Changed(&'a BTreeMap<RelPath, Entry>),
    /// Exactly these: all that a checkpoint of given paths speaks of.
    Only(&'a BTreeSet<RelPath>),
}

/// Computes the plan. Cost: one merge of the two lists, and what is to be said of each path that differs;
/// where a file is to go, a hash set of the present inodes.
pub fn plan(input: PlanInput<'_>) -> Plan {
    let mut planner = Planner::new(input);
    planner.restore_what_was();
    planner.close_ways();
    planner.delete_what_was_not();
    planner.finish()
}

struct Planner<'a> {
    input: PlanInput<'a>,
    /// What is now at each path of the target.
    matched: Vec<Option<&'a Present>>,
    /// Whether the target names each present path.
    is_named: Vec<bool>,
    /// The inodes of present names that the target has too; found out when first asked for.
    kept_inodes: OnceCell<HashSet<(u64, u64)>>,
    changes: BTreeMap<RelPath, Change>,
    skips: BTreeMap<RelPath, SkipReason>,
    /// Paths of the target that stay as they are, so that nothing can be put below them; and what is
    /// said of that which was to be there.
    blocked: HashMap<RelPath, SkipReason>,
    /// Directories that give way to a file, and so take everything below with them.
    replaced: HashSet<RelPath>,
    /// Unselected directories that are made for what is below them, parents first.
    ways: Vec<RelPath>,
}

impl Selection<'_> {
    /// Whether a path is selected.
    pub fn includes(self, path: &RelPath) -> bool {
        match self {
            Selection::All => true,
            Selection::Below(paths) => paths.iter().any(|selected| path.is_at_or_below(selected)),
            Selection::Touched(left) | Selection::Changed(left) => left.contains_key(path),
            Selection::Only(paths) => paths.contains(path),
        }
    }

    /// Whether a path is selected, or lies above one that is.
    pub fn includes_or_leads_to(self, path: &RelPath) -> bool {
        self.includes(path)
            || match self {
                Selection::All => true,
                Selection::Below(paths) => paths.iter().any(|below| below.is_at_or_below(path)),
                Selection::Touched(left) | Selection::Changed(left) => {
                    let prefix = prefix_of(path);
                    let from = (Bound::Included(&*prefix), Bound::Unbounded);
                    let mut below = left.range::<[u8], _>(from).map(|(path, _)| path);
                    below.next().is_some_and(|below| below.as_bytes().starts_with(&prefix))
                }
                Selection::Only(paths) => {
                    let prefix = prefix_of(path);
                    let from = (Bound::Included(&*prefix), Bound::Unbounded);
                    let mut below = paths.range::<[u8], _>(from);
                    below.next().is_some_and(|below| below.as_bytes().starts_with(&prefix))
                }
            }
    }
}

impl<'a> Planner<'a> {
    fn new(input: PlanInput<'a>) -> Self {
        let mut matched = vec![None; input.then.len()];
        let mut is_named = vec![false; input.now.len()];
        let mut next = 0;
        for (then, matched) in input.then.iter().zip(&mut matched) {
            let path_of = |index: usize| input.now.get(index).map(|present| &present.entry.path);
            while path_of(next).is_some_and(|path| *path < then.path) {
                next += 1;
            }
            if path_of(next) == Some(&then.path) {
                *matched = input.now.get(next);
                is_named[next] = true;
            }
        }
        Self {
            input,
            matched,
            is_named,
            kept_inodes: OnceCell::new(),
            changes: BTreeMap::new(),
            skips: BTreeMap::new(),
            blocked: HashMap::new(),
            replaced: HashSet::new(),
            ways: Vec::new(),
        }
    }

    fn is_selected(&self, path: &RelPath) -> bool {
        self.input.selection.includes(path)
    }

    /// What the target has at a path.
    fn then(&self, path: &RelPath) -> Option<&'a Entry> {
        let index = self.input.then.binary_search_by(|entry| entry.path.cmp(path)).ok()?;
        self.input.then.get(index)
    }

    /// What is at a path now.
    fn now(&self, path: &RelPath) -> Option<&'a Present> {
        let index = self.input.now.binary_search_by(|present| present.entry.path.cmp(path)).ok()?;
        self.input.now.get(index)
    }

    /// Whether a present file is another name of one that the target has.
    fn is_kept_elsewhere(&self, present: &Present) -> bool {
        let inodes = self.kept_inodes.get_or_init(|| {
            let matched = self.input.then.iter().zip(&self.matched);
            let kept = matched.filter(|(then, _)| is_held(then)).filter_map(|(_, now)| *now);
            kept.filter(|present| matches!(present.entry.kind, EntryKind::File { .. }))
                .map(|present| (present.device, present.inode))
                .collect()
        });
        inodes.contains(&(present.device, present.inode))
    }

    /// Why a touched path cannot be taken for what the earlier restore left: it is not as it was left, or
    /// what was left is not known any more.
    fn why_not_as_left(&self, path: &RelPath) -> Option<SkipReason> {
        let (Selection::Touched(left) | Selection::Changed(left)) = self.input.selection else {
            return None;
        };
        let Some(left) = left.get(path) else { return Some(SkipReason::Conflict) };
        if let EntryKind::Omitted { reason: reason @ OmitReason::Purged, .. } = left.kind {
            return Some(SkipReason::NotCaptured(reason));
        }
        let is_as_left = match self.now(path) {
            Some(present) => present.entry.is_same_state(left),
            None => left.kind == EntryKind::Absent,
        };
        (!is_as_left).then_some(SkipReason::Conflict)
    }

    fn skip(&mut self, path: &RelPath, reason: SkipReason) {
        self.skips.insert(path.clone(), reason);
    }

    /// Notes that a path stays for `reason`. A rule that keeps it keeps what was to be below it too.
    fn block(&mut self, path: &RelPath, reason: SkipReason) {
        let below = match reason {
            SkipReason::Rule(_) | SkipReason::NotCaptured(_) => reason,
            _ => SkipReason::Blocked,
        };
        self.blocked.insert(path.clone(), below);
    }

    /// Goes over the target, parents before what is below them (a parent's path is a prefix, so it
    /// sorts first), and puts each path back.
    fn restore_what_was(&mut self) {
        for (index, then) in self.input.then.iter().enumerate() {
            let now = self.matched.get(index).copied().flatten();
            // Of almost every path, unless something above it stays: it is as it should be.
            let is_exact = now.is_some_and(|present| present.entry.is_same_state(then));
            if is_exact && self.blocked.is_empty() {
                continue;
            }
            let selected = self.is_selected(&then.path);
            if !self.input.selection.includes_or_leads_to(&then.path) {
                continue;
            }
            let parent = then.path.parent();
            if let Some(reason) = parent.and_then(|parent| self.blocked.get(&parent).copied()) {
                self.blocked.insert(then.path.clone(), reason);
                if selected && is_held(then) {
                    self.skip(&then.path, reason);
                }
                continue;
            }
            if !selected {
                self.make_way(then, now);
            } else if let EntryKind::Omitted { reason, .. } = then.kind {
                self.leave_omitted(then, now, reason);
            } else {
                self.put_back(then, now);
            }
        }
    }

    /// An unselected directory above the selection.
    fn make_way(&mut self, then: &Entry, now: Option<&Present>) {
        let is_dir = |entry: &Entry| matches!(entry.kind, EntryKind::Dir { .. });
        match now {
            None if is_dir(then) => {
                self.changes.insert(then.path.clone(), change(None, Some(then)));
                self.ways.push(then.path.clone());
            }
            Some(present) if is_dir(&present.entry) => {}
            _ => self.block(&then.path, SkipReason::Blocked),
        }
    }

    /// A directory is made on the way to what was selected, and not where nothing comes of it.
    fn close_ways(&mut self) {
        for way in std::mem::take(&mut self.ways).into_iter().rev() {
            let prefix = [way.as_bytes(), b"/"].concat();
            let mut below =
                self.changes.range::<[u8], _>((Bound::Included(&*prefix), Bound::Unbounded));
            if !below.next().is_some_and(|(path, _)| path.as_bytes().starts_with(&prefix)) {
                self.changes.remove(&way);
            }
        }
    }

    fn leave_omitted(&mut self, then: &Entry, now: Option<&Present>, reason: OmitReason) {
        // Both leave it out: nothing is known to differ, and a list of every ignored folder on every
        // restore would hide what matters.
        let differs = now.is_none_or(|present| is_held(&present.entry));
        if differs {
            self.skip(&then.path, SkipReason::NotCaptured(reason));
        }
    }

    fn put_back(&mut self, then: &Entry, now: Option<&Present>) {
        let wanted = wanted(then);
        let is_exact = now.is_some_and(|present| present.entry.is_same_state(then));
        if wanted.mode != then.mode && !is_exact {
            self.skip(&then.path, SkipReason::SetId);
        }
        let is_done = is_exact || now.is_some_and(|present| present.entry.is_same_state(&wanted));
        if is_done {
            return;
        }
        if let Some(reason) = self.why_not_as_left(&then.path) {
            self.skip(&then.path, reason);
            self.block(&then.path, reason);
            return;
        }
        let Some(present) = now else {
            self.put_new(then, &wanted);
            return;
        };
        let before = &present.entry;
        if let Some(reason) = self.why_not_replaced(present, &wanted) {
            self.skip(&then.path, reason);
            // Below a directory that is there, and whose mode alone cannot be set, work goes on.
            if !before.is_same_content(&wanted) {
                self.block(&then.path, reason);
            }
            return;
        }
        let is_dir = matches!(before.kind, EntryKind::Dir { .. });
        if is_dir && !matches!(wanted.kind, EntryKind::Dir { .. }) {
            self.replaced.insert(then.path.clone());
        }
        self.changes.insert(then.path.clone(), change(Some(before), Some(&wanted)));
    }

    fn put_new(&mut self, then: &Entry, wanted: &Entry) {
        let parent = then.path.parent().and_then(|parent| self.now(&parent));
        if parent.is_some_and(|parent| parent.is_mounted) {
            let reason = SkipReason::Rule(OmitReason::Mount);
            self.skip(&then.path, reason);
            self.block(&then.path, reason);
            return;
        }
        self.changes.insert(then.path.clone(), change(None, Some(wanted)));
    }

    /// Why what is there now must stay; `None` where it may be replaced.
    fn why_not_replaced(&self, present: &Present, wanted: &Entry) -> Option<SkipReason> {
        if present.is_mounted {
            return Some(SkipReason::Rule(OmitReason::Mount));
        }
        let before = &present.entry;
        if let Some(reason) = why_not_held(before) {
            return Some(reason);
        }
        let gives_way = matches!(before.kind, EntryKind::Dir { .. })
            && !matches!(wanted.kind, EntryKind::Dir { .. });
        match gives_way {
            true if self.input.is_overlay => Some(SkipReason::Blocked),
            true => self.why_not_removed(&before.path),
            false => None,
        }
    }

    /// Why the directory `path` cannot go as a whole.
    fn why_not_removed(&self, path: &RelPath) -> Option<SkipReason> {
        let mut worst = None;
        for present in self.below(path) {
            let partial = matches!(present.entry.kind, EntryKind::Dir { listed: Listed::Partial });
            let is_own = present.entry.path == *path;
            let not_as_left =
                || if is_own { None } else { self.why_not_as_left(&present.entry.path) };
            let reason = if present.is_mounted {
                Some(SkipReason::Rule(OmitReason::Mount))
            } else if let Some(reason) = not_as_left() {
                Some(reason)
            } else if partial {
                Some(SkipReason::NotSaved)
            } else {
                why_not_held(&present.entry)
            };
            match reason {
                Some(reason @ SkipReason::Rule(_)) => return Some(reason),
                Some(reason) => worst = Some(reason),
                None => {}
            }
        }
        worst
    }

    /// The present directory itself and everything below it, in order of path.
    fn below(&self, path: &RelPath) -> impl Iterator<Item = &'a Present> {
        let mut prefix = path.as_bytes().to_vec();
        prefix.push(b'/');
        let own = self.now(path);
        // The names below are contiguous: they are those that begin with `path/`.
        let start =
            self.input.now.partition_point(|present| present.entry.path.as_bytes() < &*prefix);
        let rest = self.input.now.get(start..).unwrap_or_default();
        own.into_iter().chain(
            rest.iter()
                .take_while(move |present| present.entry.path.as_bytes().starts_with(&prefix)),
        )
    }

    /// Goes over what is there now and the target does not name, deepest first, so that a directory
    /// comes after everything in it.
    fn delete_what_was_not(&mut self) {
        if self.input.is_overlay {
            return;
        }
        for (index, present) in self.input.now.iter().enumerate().rev() {
            let path = &present.entry.path;
            let is_named = self.is_named.get(index).copied().unwrap_or_default();
            if is_named || !is_in_scope(&present.entry) {
                continue;
            }
            if path.ancestors().any(|ancestor| self.replaced.contains(&ancestor)) {
                self.changes.insert(path.clone(), change(Some(&present.entry), None));
                continue;
            }
            if !self.is_selected(path) {
                continue;
            }
            match self.why_not_deleted(present) {
                Deletion::Allowed => {
                    self.changes.insert(path.clone(), change(Some(&present.entry), None));
                }
                Deletion::Refused(reason) => self.skip(path, reason),
                Deletion::StaysWithParent => {}
            }
        }
    }

    fn why_not_deleted(&self, present: &Present) -> Deletion {
        let path = &present.entry.path;
        let ancestor = path
            .ancestors()
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
            .find_map(|ancestor| self.then(&ancestor));
        // That an earlier restore made it is evidence enough that it was not there before; and a checkpoint of
        // given paths was made by looking at each of them.
        let is_made = matches!(self.input.selection, Selection::Touched(_) | Selection::Only(_));
        match ancestor.map(|entry| &entry.kind) {
            Some(EntryKind::Dir { .. }) if is_made => {}
            Some(EntryKind::Dir { listed: Listed::Whole }) if self.input.then_is_full => {}
            // Said once, at the path that the target names.
            Some(
                EntryKind::Omitted { .. } | EntryKind::File { .. } | EntryKind::Symlink { .. },
            ) => {
                return Deletion::StaysWithParent;
            }
            _ => return Deletion::Refused(SkipReason::NoEvidence),
        }
        if present.is_mounted {
            return Deletion::Refused(SkipReason::Rule(OmitReason::Mount));
        }
        if let Some(reason) = self.why_not_as_left(path) {
            return Deletion::Refused(reason);
        }
        if let Some(reason) = why_not_held(&present.entry) {
            return Deletion::Refused(reason);
        }
        let is_file = matches!(present.entry.kind, EntryKind::File { .. });
        if is_file && self.is_kept_elsewhere(present) {
            return Deletion::Refused(SkipReason::OtherName);
        }
        if let EntryKind::Dir { listed } = present.entry.kind {
            // Deepest first: what is to go from inside has been decided.
            let stays = |inside: &Present| {
                inside.entry.path != *path && !self.is_deleted(&inside.entry.path)
            };
            let mut staying = self.below(path).filter(|inside| stays(inside)).peekable();
            if listed == Listed::Partial || staying.peek().is_some() {
                // In a directory that a restore made somebody has put something, unless all that stays
                // in it is what nobody can tell about any more.
                let is_by_rule = listed == Listed::Whole
                    && staying.all(|inside| self.stays_by_rule(&inside.entry.path));
                let is_touched = matches!(self.input.selection, Selection::Touched(_));
                return Deletion::Refused(if is_touched && !is_by_rule {
                    SkipReason::Conflict
                } else {
                    SkipReason::NotEmpty
                });
            }
        }
        Deletion::Allowed
    }

    /// Whether a path that is not deleted stays because the checkpoint does not say what it is.
    fn stays_by_rule(&self, path: &RelPath) -> bool {
        matches!(self.skips.get(path), Some(SkipReason::NotCaptured(_) | SkipReason::NotEmpty))
    }

    fn is_deleted(&self, path: &RelPath) -> bool {
        self.changes.get(path).is_some_and(|change| change.after.is_none())
    }

    fn finish(self) -> Plan {
        let skip = |(path, reason)| Skip { path, reason };
        Plan {
            target: self.input.target.clone(),
            changes: self.changes.into_values().collect(),
            skips: self.skips.into_iter().map(skip).collect(),
        }
    }
}

/// What every path below `path` begins with: the first path after it tells whether there are any.
fn prefix_of(path: &RelPath) -> Vec<u8> {
    if path.is_root() { Vec::new() } else { [path.as_bytes(), b"/"].concat() }
}

enum Deletion {
    Allowed,
    Refused(SkipReason),
    /// The reason is given at a path above.
    StaysWithParent,
}

fn change(before: Option<&Entry>, after: Option<&Entry>) -> Change {
    let path = before.or(after).map(|entry| entry.path.clone()).unwrap_or_default();
    Change { path, before: before.cloned(), after: after.cloned() }
}

/// What a restore puts in place of an entry: files lose set-user-id and set-group-id, which could
/// give a stranger's content the rights of whoever restores.
fn wanted(then: &Entry) -> Entry {
    match then.kind {
        EntryKind::File { .. } => Entry { mode: then.mode.without_set_id(), ..then.clone() },
        _ => then.clone(),
    }
}

fn is_held(entry: &Entry) -> bool {
    matches!(entry.kind, EntryKind::File { .. } | EntryKind::Symlink { .. } | EntryKind::Dir { .. })
}

/// What today's rules leave out is nobody's to delete.
fn is_in_scope(entry: &Entry) -> bool {
    is_held(entry)
}

/// Why the present bytes at a path cannot be had back; `None` where they can.
fn why_not_held(entry: &Entry) -> Option<SkipReason> {
    match entry.kind {
        EntryKind::File { unstable: true, .. } => Some(SkipReason::NotSaved),
        EntryKind::Omitted { reason, .. } => Some(match reason {
            OmitReason::Secret | OmitReason::Excluded | OmitReason::Store | OmitReason::Mount => {
                SkipReason::Rule(reason)
            }
            _ => SkipReason::NotSaved,
        }),
        EntryKind::File { .. } | EntryKind::Symlink { .. } | EntryKind::Dir { .. } => None,
        EntryKind::Absent => Some(SkipReason::NotSaved),
    }
}
