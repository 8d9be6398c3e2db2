//! What a restore or undo is about: the checkpoint, read and checked, and what of the present it
//! touches.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use crate::access::{Access, OpenWorkspace};
use crate::blobs::Blobs;
use crate::capture::{self, Base};
use crate::disk::FileKind;
use crate::error::{Error, Result};
use crate::id::CheckpointId;
use crate::manifest::{
    CheckpointRef, Coverage, Entry, EntryKind, Listed, Manifest, OmitReason, RestoreRecord,
    RestoreVerb, Tree, read_entries, read_part, validate,
};
use crate::monitor::Monitor;
use crate::path::{RelPath, at_or_below};
use crate::plan::{Present, Selection};
use crate::restore::TakenBack;
use crate::sessions::Sessions;
use crate::settings::is_version_control;
use crate::store::merging::Merge;
use crate::walk::{Observed, Walked, What};

/// What is to be restored.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) reference: CheckpointRef,
    pub(super) tree: Tree,
    pub(super) is_full: bool,
    /// Whether it is a checkpoint of given paths.
    pub(super) is_part: bool,
    /// All paths that it speaks of, where it is a checkpoint of given paths.
    pub(super) only: Option<BTreeSet<RelPath>>,
    /// The checkpoint before it.
    pub(super) parent: Option<CheckpointId>,
    /// The directories that it listed, where it was made of hints.
    pub(super) listed: Option<Vec<String>>,
}

/// Which of a target's entries are needed.
#[derive(Clone, Copy)]
pub(super) enum Needed<'a> {
    All,
    /// Those at, below and above these.
    Of(&'a [RelPath]),
    /// All, but where pages are lost those at, below and above these are enough: what a restore of given
    /// paths shares with its base it has not looked at.
    AtLeast(&'a [RelPath]),
}

/// Which command, and for an undo or redo what it takes back.
pub(super) struct Intent {
    pub(super) verb: RestoreVerb,
    pub(super) undoes: Option<CheckpointRef>,
    /// What that was saved for.
    pub(super) takes_back: Option<TakenBack>,
    pub(super) touched: Option<BTreeMap<RelPath, Entry>>,
    /// For a revert and the like: what is merged into what is there.
    pub(super) merge: Option<Merge>,
}

impl Intent {
    /// The checkpoint that holds what is put back.
    pub(super) fn source<'a>(&'a self, target: &'a Target) -> &'a Target {
        self.merge.as_ref().map_or(target, |merge| &merge.theirs)
    }

    pub(super) fn restore() -> Self {
        Self {
            verb: RestoreVerb::Restore,
            undoes: None,
            takes_back: None,
            touched: None,
            merge: None,
        }
    }

    pub(super) fn merge(verb: RestoreVerb, merge: Merge) -> Self {
        Self { verb, touched: Some(merge.touched()), merge: Some(merge), ..Self::restore() }
    }

    /// The checkpoints that the store must not lose meanwhile.
    pub(super) fn needed(&self, target: &Target) -> Vec<CheckpointId> {
        let merged = self.merge.iter().flat_map(|merge| merge.through.iter().chain([&merge.base]));
        let read = [target, self.source(target)].map(|target| target.reference.id.clone());
        read.into_iter().chain(merged.cloned()).collect()
    }
}

/// Finds the checkpoint that is to be restored. Writes nothing, but for what is found lost.
pub(super) fn load_target(
    access: &Access,
    open: &OpenWorkspace,
    id: &CheckpointId,
    is_overlay: bool,
) -> Result<Target> {
    let session = access.sessions.find(&id.session)?.ok_or_else(|| Error::SessionNotFound {
        session: id.session.to_string(),
        nearest: Vec::new(),
    })?;
    let id = CheckpointId { session, seq: id.seq };
    let row = access.index.read("find a checkpoint", |tx| tx.checkpoint(&id))?;
    if row.as_ref().is_some_and(crate::checkpoint::CheckpointRow::is_pruning) {
        return Err(Error::Pruned { checkpoint: id });
    }
    let (manifest, digest) = access.sessions.require(&id)?;
    if row.is_none() {
        // A pin that cannot be understood keeps a manifest from being counted, and so from being
        // protected while it is restored.
        access.sessions.read_pin(&id)?;
    }
    if manifest.workspace != open.workspace.id && !is_overlay {
        return Err(Error::OtherWorkspace { checkpoint: id, root: manifest.root_path });
    }
    let is_part = manifest.coverage == Coverage::Paths;
    let only = match part_of(&manifest) {
        Some(record) => {
            let after = after_of(access, &id, record)?;
            Some(after.into_iter().map(|entry| entry.path).collect())
        }
        None => None,
    };
    let listed = match manifest.coverage {
        Coverage::Hinted(listed) => Some(listed),
        Coverage::Full | Coverage::Paths => None,
    };
    let parent = manifest.parent.map(|parent| parent.id);
    let reference = CheckpointRef { id, digest };
    Ok(Target { reference, tree: manifest.tree, is_full: !is_part, is_part, only, parent, listed })
}

/// Of a checkpoint that was made of hints, only the directories that it listed itself say what was not
/// there.
fn keep_evidence(entries: &mut [Entry], listed: &[String]) {
    let listed: HashSet<&[u8]> = listed.iter().map(String::as_bytes).collect();
    for entry in entries {
        if let EntryKind::Dir { listed: whole } = &mut entry.kind
            && !listed.contains(entry.path.as_bytes())
        {
            *whole = Listed::Partial;
        }
    }
}

/// The restore whose paths alone a checkpoint speaks of, where it does not speak of all.
pub(super) fn part_of(manifest: &Manifest) -> Option<&RestoreRecord> {
    manifest.restore.as_ref().filter(|_| manifest.coverage == Coverage::Paths)
}

/// What a restore left, path by path, from its safety checkpoint.
pub(super) fn after_of(
    access: &Access,
    id: &CheckpointId,
    record: &RestoreRecord,
) -> Result<Vec<Entry>> {
    let after = read_entries(&access.blobs, &record.after)
        .inspect_err(|error| drop(capture::remember(access, error)))?;
    refuse_version_control(&after).map_err(|reason| Error::CheckpointUnreadable {
        checkpoint: id.clone(),
        path: access.sessions.manifest_path(id),
        reason,
    })?;
    Ok(after)
}

impl Target {
    /// Its entries.
    ///
    /// Cost: each page that holds one is read, but for those that the stat cache knows: what they say was
    /// kept there, under a checksum, when the base was made.
    pub(super) fn entries(
        &self,
        access: &Access,
        base: Option<&Base>,
        needed: Needed<'_>,
    ) -> Result<Vec<Entry>> {
        let read = match needed {
            Needed::All => capture::entries_of(access, &self.tree, base),
            Needed::Of(paths) => read_part(&access.blobs, &self.tree, paths),
            Needed::AtLeast(paths) => {
                capture::entries_of(access, &self.tree, base).or_else(|error| {
                    drop(capture::remember(access, &error));
                    read_part(&access.blobs, &self.tree, paths)
                })
            }
        };
        // A page that is lost is remembered, so that the next capture writes it again.
        let mut entries = read.inspect_err(|error| drop(capture::remember(access, error)))?;
        fit_to_restore(&access.sessions, &self.reference.id, &entries)?;
        if let Some(listed) = &self.listed {
            keep_evidence(&mut entries, listed);
        }
        Ok(entries)
    }
}

/// All entries of a checkpoint, fit to be restored.
///
/// # Errors
/// [`Error::CheckpointUnreadable`] where the list breaks a rule that only the whole of it shows, or
/// would put something into a version-control directory: no capture writes such a list.
pub(super) fn whole_entries(
    blobs: &Blobs,
    sessions: &Sessions,
    id: &CheckpointId,
    manifest: &Manifest,
) -> Result<Vec<Entry>> {
    let entries = read_entries(blobs, &manifest.tree)?;
    fit_to_restore(sessions, id, &entries)?;
    Ok(entries)
}

/// Refuses a list as [`whole_entries`] does.
fn fit_to_restore(sessions: &Sessions, id: &CheckpointId, entries: &[Entry]) -> Result<()> {
    let unreadable = |reason: String| Error::CheckpointUnreadable {
        checkpoint: id.clone(),
        path: sessions.manifest_path(id),
        reason,
    };
    validate(entries).map_err(unreadable)?;
    refuse_version_control(entries).map_err(unreadable)
}

/// Refuses a list of what a restore is to put in place, or has, that reaches into a version-control
/// directory.
fn refuse_version_control(entries: &[Entry]) -> Result<(), String> {
    let is_inside = |entry: &&Entry| {
        !matches!(entry.kind, EntryKind::Omitted { .. })
            && entry.path.components().any(is_version_control)
    };
    match entries.iter().find(is_inside) {
        Some(entry) => Err(format!("`{}` belongs to a version-control system", entry.path)),
        None => Ok(()),
    }
}

/// Adds to the walk what the rules leave out and the restore would overwrite, replace or delete: the
/// safety checkpoint must hold it.
pub(super) fn force_in(
    open: &OpenWorkspace,
    walked: &mut Walked,
    then: &[Entry],
    selection: Selection<'_>,
    monitor: &dyn Monitor,
) -> Result<()> {
    let mut forced = Vec::new();
    let mut revealed = BTreeMap::new();
    let mut seen = walked.observations.iter().peekable();
    for entry in then {
        while seen.next_if(|seen| seen.path < entry.path).is_some() {}
        let seen = seen.peek().filter(|seen| seen.path == entry.path).map(|seen| &seen.what);
        // Almost every path is seen, and in scope.
        let is_held = match seen {
            Some(What::File | What::Symlink { .. }) => true,
            Some(What::Dir { .. }) => matches!(entry.kind, EntryKind::Dir { .. }),
            Some(What::Omitted { .. }) | None => false,
        };
        if is_held || !selection.includes_or_leads_to(&entry.path) {
            continue;
        }
        match entry.kind {
            EntryKind::File { .. } | EntryKind::Symlink { .. } => {
                // A directory in its place must be held with everything in it.
                forced.push(entry.path.clone());
            }
            EntryKind::Dir { .. } => {
                reveal(open, walked, &entry.path, &mut revealed, &mut forced)?;
            }
            EntryKind::Omitted { .. } | EntryKind::Absent => {}
        }
    }
    // What the earlier restore, or the turn, made is to go again.
    if let Selection::Touched(left) | Selection::Changed(left) = selection {
        let is_named = |path: &RelPath| then.binary_search_by(|entry| entry.path.cmp(path)).is_ok();
        for (path, left) in left.iter().filter(|(path, _)| !is_named(path)) {
            if left.kind != EntryKind::Absent {
                reveal(open, walked, path, &mut revealed, &mut forced)?;
            }
        }
    }
    if forced.is_empty() && revealed.is_empty() {
        return Ok(());
    }
    let paths: Vec<RelPath> = revealed.keys().cloned().collect();
    merge(walked, revealed);
    // What cannot be held is in the list of observations, with the reason: the plan goes by that.
    walked.force(&forced, monitor)?;
    walked.lift(&paths);
    paths.iter().try_for_each(|path| complete_listing(open, walked, path))
}

/// Accounts for a path that today's rules leave out.
///
/// A directory is there all the same: a restore puts files into it, and need not hold what else is in
/// it. It becomes an entry that is partial, in `revealed`. Anything else must be held.
fn reveal(
    open: &OpenWorkspace,
    walked: &Walked,
    path: &RelPath,
    revealed: &mut BTreeMap<RelPath, Observed>,
    forced: &mut Vec<RelPath>,
) -> Result<()> {
    match walked.find(path).map(|seen| &seen.what) {
        None => {}
        Some(What::Omitted { reason, .. }) => {
            if matches!(reason, OmitReason::Secret | OmitReason::Store | OmitReason::Mount) {
                return Ok(());
            }
        }
        Some(_) => return Ok(()),
    }
    let Some(parent) = path.parent() else { return Ok(()) };
    let parent_is_seen = revealed.contains_key(&parent)
        || walked.find(&parent).is_some_and(|seen| matches!(seen.what, What::Dir { .. }));
    if !parent_is_seen {
        return Ok(());
    }
    let Some(parent) = open.dir.try_open_dir(&parent)? else { return Ok(()) };
    let Some(stat) = parent.stat(path.name())? else { return Ok(()) };
    if stat.kind != FileKind::Dir {
        forced.push(path.clone());
        return Ok(());
    }
    let what = What::Dir { listed: Listed::Partial };
    revealed.insert(path.clone(), Observed { path: path.clone(), stat, what });
    Ok(())
}

/// Puts what was revealed into the list of observations, in place of what was said of it.
fn merge(walked: &mut Walked, revealed: BTreeMap<RelPath, Observed>) {
    walked.observations.retain(|seen| !revealed.contains_key(&seen.path));
    walked.observations.extend(revealed.into_values());
    walked.observations.sort_by(|a, b| a.path.cmp(&b.path));
}

/// A directory of which every name is accounted for by now is not partial any more.
fn complete_listing(open: &OpenWorkspace, walked: &mut Walked, path: &RelPath) -> Result<()> {
    let Some(dir) = open.dir.try_open_dir(path)? else { return Ok(()) };
    for name in dir.names()? {
        let is_seen = path.join(&name).is_ok_and(|inside| walked.find(&inside).is_some());
        if !is_seen {
            return Ok(());
        }
    }
    if let Ok(index) = walked.observations.binary_search_by(|seen| seen.path.cmp(path))
        && let What::Dir { listed } = &mut walked.observations[index].what
    {
        *listed = Listed::Whole;
    }
    Ok(())
}

/// A path that was asked for must be one that a checkpoint of given paths, `only`, speaks of, or lie above
/// one: of others it has what an earlier checkpoint has, which was not the state that it is of.
pub(super) fn require_spoken_of(
    checkpoint: &CheckpointId,
    parent: Option<&CheckpointId>,
    only: &BTreeSet<RelPath>,
    selected: &[RelPath],
) -> Result<()> {
    let is_spoken_of = |path: &&RelPath| Selection::Only(only).includes_or_leads_to(path);
    match selected.iter().find(|path| !is_spoken_of(path)) {
        Some(path) => Err(Error::PathNotCovered {
            checkpoint: checkpoint.clone(),
            path: path.clone(),
            before: parent.cloned(),
        }),
        None => Ok(()),
    }
}

/// A path that was asked for must be in the checkpoint or on disk.
pub(super) fn require_selected(
    checkpoint: &CheckpointId,
    then: &[Entry],
    now: Option<&[Present]>,
    selected: &[RelPath],
) -> Result<()> {
    for path in selected {
        let in_target = at_or_below(then, path, |entry| &entry.path).next().is_some();
        let on_disk = now.is_some_and(|now| {
            at_or_below(now, path, |present| &present.entry.path).next().is_some()
        });
        if !in_target && !on_disk {
            let omitted = then.iter().find_map(|entry| match entry.kind {
                EntryKind::Omitted { reason, .. } if path.is_at_or_below(&entry.path) => {
                    Some(reason)
                }
                _ => None,
            });
            return Err(Error::PathNotFound {
                checkpoint: checkpoint.clone(),
                path: path.clone(),
                omitted,
            });
        }
    }
    Ok(())
}
