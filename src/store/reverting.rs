//! Revert: what one checkpoint changed is taken back, and later work is kept.
//!
//! A checkpoint changed what is not as in the one before it in its session, as the view `changes` has it.
//! Each of these paths is settled on its own from three states of it: as the checkpoint has it, as the one
//! before has it, as it is on disk. What comes of that takes the place of the target in the plan; from
//! there on a revert is a restore. Content that merging made is put into the store with what is saved
//! first, whose account of what the restore leaves names it: so it is protected, found again after a
//! crash, and checked while it is staged, as any content is.

use std::collections::{BTreeMap, HashSet};
use std::io::Read as _;
use std::path::Path;

use crate::access::{Access, OpenWorkspace};
use crate::capture::Storing;
use crate::compare::{is_binary, merge};
use crate::error::{Error, GoingBackError, LostContent, Result, RevertConflict};
use crate::hash::{BlobHash, Hashed};
use crate::id::{CheckpointId, Seq};
use crate::limits;
use crate::manifest::{
    Difference, Entry, EntryKind, Listed, Mode as FileMode, OmitReason, RestoreVerb,
    tree_differences,
};
use crate::monitor::Monitor;
use crate::path::RelPath;
use crate::plan::{Collision, Plan, Present, Selection, Settled, Skip, SkipReason, settle};
use crate::restore::{Predecessor, RestoreOptions, RestoreOutcome};
use crate::sessions::Found;
use crate::store::Store;
use crate::store::restoring::{Mode, Wish};
use crate::store::target::{Intent, Needed, Target, load_target};

impl Store {
    /// Computes what [`Store::revert`] would do.
    ///
    /// # Errors
    /// As [`Store::revert`].
    pub fn plan_revert(
        &self,
        path: &Path,
        checkpoint: &CheckpointId,
        options: &RestoreOptions,
        monitor: &dyn Monitor,
    ) -> Result<RestoreOutcome> {
        self.go_back(&Wish::Revert(checkpoint), Mode::Plan, path, options, monitor)
    }

    /// Takes back what a checkpoint changed against the one before it in its session and workspace, and
    /// keeps what was done later: a file that was changed since is merged line by line. Where paths are
    /// given, only what it changed there is taken back.
    ///
    /// Where checkpoints between the two are gone, what they changed is taken back too: nobody can tell it
    /// apart. [`RestoreOutcome::predecessor`] says so.
    ///
    /// # Errors
    /// [`GoingBackError::RevertConflicts`] where the checkpoint and later work exclude each other: nothing
    /// has changed then, also where they do not. [`GoingBackError::NoPredecessor`]; else as
    /// [`Store::restore`].
    ///
    /// # Durability
    /// As [`Store::restore`].
    pub fn revert(
        &self,
        path: &Path,
        checkpoint: &CheckpointId,
        options: &RestoreOptions,
        monitor: &dyn Monitor,
    ) -> Result<RestoreOutcome> {
        self.go_back(&Wish::Revert(checkpoint), Mode::CarryOut, path, options, monitor)
    }
}

const NOT_SAVED: &str = "its present content cannot be saved";

/// What a checkpoint changed.
pub(super) struct Reverted {
    /// The checkpoint before it.
    pub(super) before: Target,
    /// How many checkpoints between the two are gone.
    gone: u64,
    /// What was asked for: all where empty.
    paths: Vec<RelPath>,
    /// In order of path.
    changes: Vec<Difference>,
}

/// What is to be at the changed paths.
pub(super) struct Resolved {
    /// What the whole is to be: the entries of the checkpoint before, with what was settled.
    pub(super) then: Vec<Entry>,
    /// The changed paths as they are now.
    pub(super) touched: BTreeMap<RelPath, Entry>,
    merged: BTreeMap<RelPath, BlobHash>,
    skips: Vec<Skip>,
    conflicts: Vec<RevertConflict>,
}

/// Finds out what a checkpoint changed, at the paths that are given or everywhere.
pub(super) fn find_revert(
    access: &Access,
    open: &OpenWorkspace,
    id: &CheckpointId,
    paths: &[RelPath],
) -> Result<(Target, Intent)> {
    let after = load_target(access, open, id, false)?;
    let id = &after.reference.id;
    let before = load_target(access, open, &predecessor(access, open, id)?, false)?;
    let lacking = gone_between(access, &before.reference.id, id)?;
    let mut changes = tree_differences(&access.blobs, &before.tree, &after.tree)
        .inspect_err(|error| drop(crate::capture::remember(access, error)))?;
    if let Some(only) = &after.only {
        // Of the other paths it says what an earlier checkpoint says.
        changes.retain(|change| only.contains(&change.path));
    }
    changes.retain(|change| is_meant(paths, &change.path));
    let gone: Vec<RelPath> = changes
        .iter()
        .filter(|change| change.after.is_none())
        .map(|change| change.path.clone())
        .collect();
    if !gone.is_empty() {
        // What it has no entry of was not deleted where it did not look.
        let evidence = after.entries(access, None, Needed::Of(&gone))?;
        changes.retain(|change| change.after.is_some() || is_gone(&evidence, &change.path));
    }
    let left = |change: &Difference| {
        (change.path.clone(), change.after.clone().unwrap_or_else(|| absent(&change.path)))
    };
    let intent = Intent {
        verb: RestoreVerb::Revert,
        undoes: None,
        takes_back: None,
        touched: Some(changes.iter().map(left).collect()),
        reverts: Some(Reverted { before, gone: lacking, paths: paths.to_vec(), changes }),
    };
    let target = Target { only: None, listed: None, is_part: false, ..after };
    Ok((target, intent))
}

/// The next lower checkpoint of the same session and workspace.
fn predecessor(access: &Access, open: &OpenWorkspace, id: &CheckpointId) -> Result<CheckpointId> {
    let mut lower = access.sessions.listing(&id.session)?.manifests;
    lower.retain(|seq| *seq < id.seq);
    for seq in lower.into_iter().rev() {
        let other = CheckpointId { session: id.session.clone(), seq };
        let row = access.index.read("find a checkpoint", |tx| tx.checkpoint(&other))?;
        let workspace = match row {
            Some(row) if row.is_pruning() => continue,
            Some(row) => row.workspace,
            // One of another program says nothing of any workspace.
            None if matches!(access.sessions.read(&other), Found::Legacy) => continue,
            None => access.sessions.require(&other)?.0.workspace,
        };
        if workspace == open.workspace.id {
            return Ok(other);
        }
    }
    Err(GoingBackError::NoPredecessor { checkpoint: id.clone() }.into())
}

/// How many numbers between a checkpoint and the one before it are of checkpoints that are gone, as far as is
/// known: none where one leads to the other from parent to parent. A number may be lacking because a
/// capture failed, or was another workspace's.
fn gone_between(access: &Access, before: &CheckpointId, id: &CheckpointId) -> Result<u64> {
    let there = access.sessions.listing(&id.session)?.manifests;
    let is_between = |seq: &&Seq| before.seq < **seq && **seq < id.seq;
    let between = there.iter().filter(is_between).count() as u64;
    let missing = (id.seq.get() - before.seq.get() - 1).saturating_sub(between);
    // Whatever files say, nothing is read twice.
    let mut seen = HashSet::new();
    let mut at = id.clone();
    while missing > 0 && seen.insert(at.clone()) {
        let Found::Valid { manifest, .. } = access.sessions.read(&at) else { break };
        match manifest.parent {
            Some(parent) if parent.id == *before => return Ok(0),
            Some(parent) => at = parent.id,
            None => break,
        }
    }
    Ok(missing)
}

fn is_meant(paths: &[RelPath], path: &RelPath) -> bool {
    paths.is_empty() || Selection::Below(paths).includes(path)
}

/// Whether `evidence`, which has what is above the path, shows that nothing was there.
fn is_gone(evidence: &[Entry], path: &RelPath) -> bool {
    let find = |path: &RelPath| {
        let index = evidence.binary_search_by(|entry| entry.path.cmp(path)).ok()?;
        evidence.get(index)
    };
    let mut above: Vec<RelPath> = path.ancestors().collect();
    above.sort();
    match above.iter().rev().find_map(find).map(|entry| &entry.kind) {
        Some(EntryKind::Dir { listed }) => *listed == Listed::Whole,
        Some(EntryKind::File { .. } | EntryKind::Symlink { .. }) => true,
        _ => false,
    }
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

/// What a directory says of names that were not there is what the checkpoint before said.
fn with_evidence(wanted: Entry, theirs: Option<&Entry>) -> Entry {
    match (&wanted.kind, theirs.map(|theirs| &theirs.kind)) {
        (EntryKind::Dir { .. }, Some(kind @ EntryKind::Dir { .. })) => {
            Entry { kind: kind.clone(), ..wanted }
        }
        _ => wanted,
    }
}

impl Reverted {
    /// What the checkpoint was compared with.
    pub(super) fn predecessor(&self) -> Predecessor {
        Predecessor { checkpoint: self.before.reference.clone(), gone: self.gone }
    }

    /// The given paths at which the checkpoint changed nothing.
    pub(super) fn unchanged(&self) -> Vec<RelPath> {
        let is_changed =
            |path: &&RelPath| !self.changes.iter().any(|change| change.path.is_at_or_below(path));
        self.paths.iter().filter(is_changed).cloned().collect()
    }

    /// What the checkpoint and the one before it held and lost to a purge. Both say the same of it now, and
    /// whether the checkpoint changed it nobody can tell any more.
    fn purged_in_both(&self, before: &[Entry]) -> Vec<Skip> {
        let changed: HashSet<&RelPath> = self.changes.iter().map(|change| &change.path).collect();
        let purged = SkipReason::NotCaptured(OmitReason::Purged);
        let is_purged = |entry: &&Entry| {
            is_omitted(entry) == Some(purged)
                && !changed.contains(&entry.path)
                && is_meant(&self.paths, &entry.path)
        };
        let skip = |entry: &Entry| Skip { path: entry.path.clone(), reason: purged };
        before.iter().filter(is_purged).map(skip).collect()
    }

    /// Settles each changed path. Content that merging makes is staged, where `storing` says so.
    ///
    /// Cost: of the files that were changed since, all three contents, one file at a time.
    pub(super) fn resolve(
        &self,
        access: &Access,
        open: &OpenWorkspace,
        before: Vec<Entry>,
        now: &[Present],
        storing: Option<Storing<'_>>,
        monitor: &dyn Monitor,
    ) -> Result<Resolved> {
        let mut skips = self.purged_in_both(&before);
        let mut then: BTreeMap<RelPath, Entry> =
            before.into_iter().map(|entry| (entry.path.clone(), entry)).collect();
        let (mut touched, mut merged) = (BTreeMap::new(), BTreeMap::new());
        let (mut conflicts, mut lost) = (Vec::new(), Vec::new());
        for Difference { path, before: theirs, after: base } in &self.changes {
            if monitor.is_cancelled() {
                return Err(Error::Cancelled);
            }
            let (theirs, base) = (theirs.as_ref(), base.as_ref());
            let ours = now.binary_search_by(|present| present.entry.path.cmp(path)).ok();
            let ours = ours.and_then(|index| now.get(index)).map(|present| &present.entry);
            touched.insert(path.clone(), ours.cloned().unwrap_or_else(|| absent(path)));
            if theirs.and_then(is_omitted).is_some() {
                // There is nothing to be put back; the plan says so.
                continue;
            }
            let settled = if let Some(reason) = base.and_then(is_omitted) {
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
                    conflicts.push(RevertConflict { path: path.clone(), reason });
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
                    let reason = collision.as_str().to_owned();
                    conflicts.push(RevertConflict { path: path.clone(), reason });
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
    /// The plan with what was left out, and the content that was made for it by path.
    ///
    /// # Errors
    /// [`GoingBackError::RevertConflicts`], also where the plan falls short for another reason: a turn is
    /// taken back as a whole.
    pub(super) fn finish(
        self,
        checkpoint: &CheckpointId,
        mut plan: Plan,
    ) -> Result<(Plan, BTreeMap<RelPath, BlobHash>)> {
        let Self { merged, skips, mut conflicts, .. } = self;
        let short = plan.skips.iter().filter(|skip| skip.reason.is_shortfall());
        conflicts.extend(short.map(|skip| {
            RevertConflict {
                path: skip.path.clone(),
                reason: match skip.reason {
                    SkipReason::NotSaved => NOT_SAVED,
                    SkipReason::Blocked => "what is above it stays as it is",
                    _ => "something in it was made or changed since",
                }
                .to_owned(),
            }
        }));
        if !conflicts.is_empty() {
            conflicts.sort_by(|a, b| a.path.cmp(&b.path));
            let checkpoint = checkpoint.clone();
            return Err(GoingBackError::RevertConflicts { checkpoint, conflicts }.into());
        }
        plan.skips.extend(skips);
        plan.skips.sort_by(|a, b| a.path.cmp(&b.path));
        Ok((plan, merged))
    }
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
            staging.put(&content)?;
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
