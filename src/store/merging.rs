//! Merging what leads from one checkpoint to another into what is on disk.
//!
//! Each path at which the two differ is settled on its own from three states of it: as the base has it, as
//! the other, theirs, has it, as it is on disk. What comes of that takes the place of the target in the plan;
//! from there on a merge is a restore. Content that merging made is put into the store with what is saved
//! first, whose account of what the restore leaves names it: so it is protected, found again after a
//! crash, and checked while it is staged, as any content is.

use std::cell::LazyCell;
use std::collections::{BTreeMap, HashSet};
use std::io::Read as _;
use std::path::PathBuf;

use crate::access::{Access, OpenWorkspace};
use crate::capture::Storing;
use crate::compare::{is_binary, merge};
use crate::error::{
    Error, GoingBackError, IsolationError, LostContent, MergeConflict, MergeConflicts, Result,
};
use crate::git;
use crate::hash::{BlobHash, Hashed};
use crate::id::{CheckpointId, RunId};
use crate::limits;
use crate::manifest::{Difference, Entry, EntryKind, Listed, Mode as FileMode, OmitReason};
use crate::monitor::Monitor;
use crate::path::{RelPath, shell_word};
use crate::plan::{Change, Collision, Plan, Present, Selection, Settled, Skip, SkipReason, settle};
use crate::restore::Predecessor;
use crate::store::target::Target;

const NOT_SAVED: &str = "its present content cannot be saved";

/// What a merge is for: by it its conflicts are told.
#[derive(Debug, Clone)]
pub(super) enum Purpose {
    /// What a checkpoint changed is taken back.
    Revert {
        /// How many between it and the one before it are gone.
        gone_between: u64,
    },
    /// What this run changed is brought to the checkout that it was made from.
    Apply(RunId),
}

impl Purpose {
    fn reason(&self, collision: Collision) -> &'static str {
        match self {
            Self::Revert { .. } => collision.since_then(),
            Self::Apply(_) => collision.in_both(),
        }
    }

    /// Why a path that the plan leaves alone stands against it.
    fn shortfall(&self, reason: SkipReason) -> &'static str {
        match (reason, self) {
            (SkipReason::NotSaved, _) => NOT_SAVED,
            (SkipReason::Blocked, _) => "what is above it stays as it is",
            (_, Self::Revert { .. }) => "something in it was made or changed since",
            (_, Self::Apply(_)) => "something in it was made or changed here",
        }
    }
}

/// Two checkpoints, of which what leads from one to the other is to be had beside what is on disk.
pub(super) struct Merge {
    purpose: Purpose,
    /// From which both sides set out.
    pub(super) base: CheckpointId,
    /// What is brought in.
    pub(super) theirs: Target,
    /// Other checkpoints that say what theirs is.
    pub(super) through: Vec<CheckpointId>,
    /// Where they differ, in order of path: `before` is theirs, `after` the base.
    changes: Vec<Difference>,
    /// What was asked for: all where empty.
    paths: Vec<RelPath>,
}

/// What is to be at the changed paths.
pub(super) struct Resolved {
    /// What the whole is to be: the entries of theirs, with what was settled.
    pub(super) then: Vec<Entry>,
    /// The changed paths as they are now.
    pub(super) touched: BTreeMap<RelPath, Entry>,
    merged: BTreeMap<RelPath, BlobHash>,
    skips: Vec<Skip>,
    conflicts: Vec<MergeConflict>,
}

/// Whether a path is asked for: all are where none is given.
pub(super) fn is_meant(paths: &[RelPath], path: &RelPath) -> bool {
    paths.is_empty() || Selection::Below(paths).includes(path)
}

fn absent(path: &RelPath) -> Entry {
    Entry { path: path.clone(), mode: FileMode::default(), kind: EntryKind::Absent }
}

fn is_omitted(entry: &Entry) -> Option<SkipReason> {
    match entry.kind {
        EntryKind::Omitted { reason, .. } => Some(SkipReason::NotCaptured(reason)),
        _ => None,
    }
}

/// Whether that `entries` have none of a path says nothing of it: what is above it is not held, or not listed
/// whole. It was not deleted then.
fn is_unknown(entries: &BTreeMap<RelPath, Entry>, path: &RelPath) -> bool {
    let deepest = path.ancestors().filter_map(|above| entries.get(&above)).last();
    deepest.is_some_and(|entry| {
        matches!(entry.kind, EntryKind::Omitted { .. } | EntryKind::Dir { listed: Listed::Partial })
    })
}

/// Something that is found out once it is needed.
type Lazy<'a, T> = LazyCell<T, Box<dyn FnOnce() -> T + 'a>>;

/// The work tree of git that a workspace lies in, by what git leaves out of it.
struct Sparse<'a> {
    open: &'a OpenWorkspace,
    /// Its top, and whether it is a sparse checkout.
    top: Lazy<'a, (PathBuf, bool)>,
    /// The files that git leaves out, as it says itself. In a directory that is there and has nothing else of
    /// git's they have no entry.
    left_out: Lazy<'a, HashSet<RelPath>>,
}

impl<'a> Sparse<'a> {
    fn new(open: &'a OpenWorkspace, monitor: &'a dyn Monitor) -> Self {
        let top = || match git::repository_of(&open.path) {
            Some(repository) => {
                // Where git does not say, most are.
                let is_sparse = git::is_sparse(&repository).unwrap_or(true);
                (repository.top, is_sparse)
            }
            None => (open.path.clone(), true),
        };
        let left_out = || {
            let Some(repository) = git::repository_of(&open.path) else { return HashSet::new() };
            // Where git does not say, a conflict is told without a way.
            let tracked = git::tracked(&repository, &open.path, &|| monitor.is_cancelled());
            let tracked = tracked.unwrap_or_default().into_iter();
            tracked.filter(|it| it.skip_worktree).map(|it| it.path).collect()
        };
        Self {
            open,
            top: LazyCell::new(Box::new(top)),
            left_out: LazyCell::new(Box::new(left_out)),
        }
    }

    /// Why what was changed at a path cannot come here: git keeps the path, or one above it, out of the work
    /// tree. What was put there all the same git would take for unchanged. `is_gone` says that the path was to
    /// be here, and is not.
    fn reason(&self, now: &[Present], path: &RelPath, is_gone: bool) -> Option<String> {
        let is_left_out = |path: &RelPath| {
            let index = now.binary_search_by(|present| present.entry.path.cmp(path)).ok();
            let reason = index.and_then(|index| is_omitted(&now[index].entry));
            reason == Some(SkipReason::NotCaptured(OmitReason::Sparse))
        };
        let is_known = is_left_out(path)
            || path.ancestors().any(|above| is_left_out(&above))
            || (is_gone && self.left_out.contains(path));
        if !is_known {
            return None;
        }
        let (open, (top, is_sparse)) = (self.open, &*self.top);
        let below_top = |path: &RelPath| {
            let full = open.path.join(path.as_os());
            shell_word(full.strip_prefix(top).unwrap_or(&full))
        };
        let at_top = shell_word(top);
        if !is_sparse {
            let what = below_top(path);
            return Some(format!(
                "git leaves it out here; `git -C {at_top} update-index --no-skip-worktree {what} && git -C {at_top} \
                 checkout -- {what}` brings it"
            ));
        }
        // Folders are what most sparse checkouts are made of.
        let above = path.parent().filter(|above| !above.is_root());
        let what = below_top(above.as_ref().unwrap_or(path));
        Some(format!(
            "a sparse checkout leaves it out here; `git -C {at_top} sparse-checkout add {what}` brings it"
        ))
    }
}

/// What a directory says of names that are not there is what theirs says.
fn with_evidence(wanted: Entry, theirs: Option<&Entry>) -> Entry {
    match (&wanted.kind, theirs.map(|theirs| &theirs.kind)) {
        (EntryKind::Dir { .. }, Some(kind @ EntryKind::Dir { .. })) => {
            Entry { kind: kind.clone(), ..wanted }
        }
        _ => wanted,
    }
}

impl Merge {
    /// A merge of where `theirs` differs from `base`: `before` of a change is theirs.
    pub(super) fn new(
        purpose: Purpose,
        base: CheckpointId,
        theirs: Target,
        changes: Vec<Difference>,
        paths: &[RelPath],
    ) -> Self {
        Self { purpose, base, theirs, through: Vec::new(), changes, paths: paths.to_vec() }
    }

    /// What a revert compared its checkpoint with.
    pub(super) fn predecessor(&self) -> Option<Predecessor> {
        let checkpoint = self.theirs.reference.clone();
        match self.purpose {
            Purpose::Revert { gone_between } => {
                Some(Predecessor { checkpoint, gone: gone_between })
            }
            Purpose::Apply(_) => None,
        }
    }

    /// The given paths at which the two do not differ.
    pub(super) fn unchanged(&self) -> Vec<RelPath> {
        let is_changed =
            |path: &&RelPath| !self.changes.iter().any(|change| change.path.is_at_or_below(path));
        self.paths.iter().filter(is_changed).cloned().collect()
    }

    /// The changed paths, as the base has them.
    pub(super) fn touched(&self) -> BTreeMap<RelPath, Entry> {
        let left = |change: &Difference| {
            (change.path.clone(), change.after.clone().unwrap_or_else(|| absent(&change.path)))
        };
        self.changes.iter().map(left).collect()
    }

    fn refusal(&self, open: &OpenWorkspace, conflicts: MergeConflicts) -> Error {
        let (base, theirs) = (self.base.clone(), self.theirs.reference.id.clone());
        let (workspace, conflicts) = (open.path.clone(), Box::new(conflicts));
        match self.purpose {
            Purpose::Revert { .. } => GoingBackError::RevertConflicts {
                checkpoint: base,
                before: theirs,
                workspace,
                conflicts,
            }
            .into(),
            Purpose::Apply(id) => IsolationError::ApplyConflicts {
                id,
                before: base,
                after: theirs,
                checkout: workspace,
                conflicts,
            }
            .into(),
        }
    }

    /// What both held and lost to a purge. They say the same of it now, and whether one of them changed it
    /// nobody can tell any more.
    fn purged_in_both(&self, theirs: &[Entry]) -> Vec<Skip> {
        let changed: HashSet<&RelPath> = self.changes.iter().map(|change| &change.path).collect();
        let purged = SkipReason::NotCaptured(OmitReason::Purged);
        let is_purged = |entry: &&Entry| {
            is_omitted(entry) == Some(purged)
                && !changed.contains(&entry.path)
                && is_meant(&self.paths, &entry.path)
        };
        let skip = |entry: &Entry| Skip { path: entry.path.clone(), reason: purged };
        theirs.iter().filter(is_purged).map(skip).collect()
    }

    /// Settles each changed path. `entries` are those of theirs. Content that merging makes is staged, where
    /// `storing` says so.
    ///
    /// Cost: of the files that both sides changed, all three contents, one file at a time.
    pub(super) fn resolve(
        &self,
        access: &Access,
        open: &OpenWorkspace,
        entries: Vec<Entry>,
        now: &[Present],
        storing: Option<Storing<'_>>,
        monitor: &dyn Monitor,
    ) -> Result<Resolved> {
        let mut skips = self.purged_in_both(&entries);
        let mut then: BTreeMap<RelPath, Entry> =
            entries.into_iter().map(|entry| (entry.path.clone(), entry)).collect();
        let (mut touched, mut merged) = (BTreeMap::new(), BTreeMap::new());
        let (mut conflicts, mut lost) = (Vec::new(), Vec::new());
        let sparse = Sparse::new(open, monitor);
        for Difference { path, before: theirs, after: base } in &self.changes {
            if monitor.is_cancelled() {
                return Err(Error::Cancelled);
            }
            let (theirs, base) = (theirs.as_ref(), base.as_ref());
            let ours = now.binary_search_by(|present| present.entry.path.cmp(path)).ok();
            let ours = ours.and_then(|index| now.get(index)).map(|present| &present.entry);
            touched.insert(path.clone(), ours.cloned().unwrap_or_else(|| absent(path)));
            // Theirs may be what a restore left since its checkpoint.
            match theirs {
                Some(theirs) => then.insert(path.clone(), theirs.clone()),
                None => then.remove(path),
            };
            if (theirs.is_none() && is_unknown(&then, path))
                || theirs.and_then(is_omitted).is_some()
            {
                // There is nothing to be put back; the plan says so.
                continue;
            }
            let is_gone = base.is_some() && ours.is_none();
            let settled = if let Some(reason) = sparse.reason(now, path, is_gone) {
                conflicts.push(MergeConflict { path: path.clone(), reason });
                Settled::Stays
            } else if let Some(reason) = base.and_then(is_omitted) {
                // Nobody can tell whether it is as it was left. What was never held is not spoken of.
                let is_held = ours.is_some_and(|ours| is_omitted(ours).is_none());
                let is_known = settle(base, theirs, ours) == Settled::Stays;
                if !is_known && (is_held || theirs.is_some()) {
                    skips.push(Skip { path: path.clone(), reason });
                }
                Settled::Stays
            } else if ours.and_then(is_omitted).is_some() {
                // What is not held now is not replaced, and the plan says why. Nor does it go.
                if theirs.is_none() {
                    let reason = NOT_SAVED.to_owned();
                    conflicts.push(MergeConflict { path: path.clone(), reason });
                }
                continue;
            } else {
                settle(base, theirs, ours)
            };
            let settled = match settled {
                Settled::Merged(mode) => {
                    let sides = Sides { access, open, base, theirs, ours };
                    match sides.merge(mode, storing, &mut lost)? {
                        Ok(entry) => {
                            merged.extend(entry.blob().map(|(hash, _)| (path.clone(), hash)));
                            Settled::Becomes(Some(entry))
                        }
                        Err(collision) => Settled::Conflict(collision),
                    }
                }
                settled => settled,
            };
            let wanted = match settled {
                Settled::Becomes(wanted) => wanted,
                Settled::Conflict(collision) => {
                    let reason = self.purpose.reason(collision).to_owned();
                    conflicts.push(MergeConflict { path: path.clone(), reason });
                    ours.cloned()
                }
                Settled::Stays | Settled::Merged(_) => ours.cloned(),
            };
            match wanted {
                Some(entry) => then.insert(path.clone(), with_evidence(entry, theirs)),
                None => then.remove(path),
            };
        }
        if !lost.is_empty() {
            return Err(Error::ContentLost { lost });
        }
        let then = then.into_values().collect();
        Ok(Resolved { then, touched, merged, skips, conflicts })
    }
}

impl Resolved {
    /// The plan of `merge` with what was left out, and the content that was made for it by path.
    ///
    /// # Errors
    /// [`GoingBackError::RevertConflicts`] or [`IsolationError::ApplyConflicts`], also where the plan falls
    /// short for another reason: what one side did is brought in as a whole, or not at all.
    pub(super) fn finish(
        self,
        merge: &Merge,
        open: &OpenWorkspace,
        mut plan: Plan,
    ) -> Result<(Plan, BTreeMap<RelPath, BlobHash>)> {
        let Self { merged, skips, mut conflicts, .. } = self;
        let short = plan.skips.iter().filter(|skip| skip.reason.is_shortfall());
        conflicts.extend(short.map(|skip| MergeConflict {
            path: skip.path.clone(),
            reason: merge.purpose.shortfall(skip.reason).to_owned(),
        }));
        if !conflicts.is_empty() {
            conflicts.sort_by(|a, b| a.path.cmp(&b.path));
            let free = free(&plan, &conflicts);
            return Err(merge.refusal(open, MergeConflicts { against: conflicts, free }));
        }
        plan.skips.extend(skips);
        plan.skips.sort_by(|a, b| a.path.cmp(&b.path));
        Ok((plan, merged))
    }
}

/// What of a plan stays possible beside `conflicts`, both in order of path: the topmost paths that have none of
/// them at, below or above.
fn free(plan: &Plan, conflicts: &[MergeConflict]) -> Vec<RelPath> {
    let against: HashSet<&RelPath> = conflicts.iter().map(|conflict| &conflict.path).collect();
    let above: HashSet<RelPath> = conflicts.iter().flat_map(|it| it.path.ancestors()).collect();
    let mut free: HashSet<&RelPath> = HashSet::new();
    for Change { path, .. } in &plan.changes {
        let mut all = path.ancestors().chain([path.clone()]);
        if !above.contains(path) && all.all(|it| !against.contains(&it) && !free.contains(&it)) {
            free.insert(path);
        }
    }
    let mut free: Vec<RelPath> = free.into_iter().cloned().collect();
    free.sort_unstable();
    free
}

/// The three states of a file.
struct Sides<'a> {
    access: &'a Access,
    open: &'a OpenWorkspace,
    base: Option<&'a Entry>,
    theirs: Option<&'a Entry>,
    ours: Option<&'a Entry>,
}

impl Sides<'_> {
    /// The file that merging the three gives. What the store lacks of them is added to `lost`.
    fn merge(
        &self,
        mode: FileMode,
        storing: Option<Storing<'_>>,
        lost: &mut Vec<LostContent>,
    ) -> Result<Result<Entry, Collision>> {
        let entries = [self.base, self.theirs, self.ours];
        let [Some(base), Some(theirs), Some(ours)] = entries else {
            return Ok(Err(Collision::Content));
        };
        let is_long =
            |entry: &&Entry| entry.blob().is_none_or(|(_, size)| size > limits::MERGED_BYTES_MAX);
        if [base, theirs, ours].iter().any(is_long) {
            return Ok(Err(Collision::TooLong));
        }
        let (base, theirs) = (self.stored(base, lost)?, self.stored(theirs, lost)?);
        let (Some(base), Some(theirs)) = (base, theirs) else {
            return Ok(Err(Collision::Content));
        };
        let Some(present) = self.present(ours) else { return Ok(Err(Collision::Moving)) };
        if [&base, &theirs, &present].into_iter().any(|text| is_binary(text)) {
            return Ok(Err(Collision::Binary));
        }
        let Some(text) = merge(&base, &present, &theirs) else {
            return Ok(Err(Collision::Lines));
        };
        let size = text.len() as u64;
        if size > limits::MERGED_BYTES_MAX {
            return Ok(Err(Collision::TooLong));
        }
        let content = Hashed::new(text);
        let hash = content.hash();
        if let Some(Storing { operation, staging }) = storing {
            // Pinned before it is published, as all content: a sweep beside this leaves it alone.
            operation.pin(&[hash])?;
            staging.put_anew(&content)?;
        }
        let mtime_ns = match ours.kind {
            EntryKind::File { mtime_ns, .. } => mtime_ns,
            _ => 0,
        };
        let kind = EntryKind::File { size, mtime_ns, hash, unstable: false };
        Ok(Ok(Entry { path: ours.path.clone(), mode, kind }))
    }

    fn stored(&self, entry: &Entry, lost: &mut Vec<LostContent>) -> Result<Option<Vec<u8>>> {
        let Some((hash, size)) = entry.blob() else { return Ok(None) };
        match self.access.blobs.read(hash, size) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.is_lost_content() => {
                let reason = match &error {
                    Error::BlobDamaged { reason, .. } => reason.clone(),
                    _ => "missing".to_owned(),
                };
                drop(crate::capture::remember(self.access, &error));
                lost.push(LostContent { path: entry.path.clone(), hash, reason });
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The content on disk, if it is still what was found there: that is what is saved and merged.
    fn present(&self, entry: &Entry) -> Option<Vec<u8>> {
        let (hash, size) = entry.blob()?;
        let file = self.open.dir.open_file_beneath(&entry.path).ok()?;
        let mut bytes = Vec::new();
        file.take(size.saturating_add(1)).read_to_end(&mut bytes).ok()?;
        (BlobHash::of(&bytes) == hash).then_some(bytes)
    }
}

/// The content that was made and is nowhere yet.
pub(super) fn hashes(merged: &BTreeMap<RelPath, BlobHash>) -> HashSet<BlobHash> {
    merged.values().copied().collect()
}
