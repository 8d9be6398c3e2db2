//! Comparing two checkpoints, or a checkpoint with the disk.
//!
//! Nothing of the workspace is stored or changed. Of two checkpoints only the pages that differ are read.
//! With the disk, the index is asked what is known of it, and is built where it is missing.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::access::{Access, OpenWorkspace};
use crate::capture::{self, Held, ReadSoFar};
use crate::checkpoint::CaptureProblem;
use crate::compare::{Change, Selection, Text, changes, join_renames};
use crate::disk::Dir;
use crate::error::{Error, IoContext, Result};
use crate::id::{CheckpointId, WorkspaceId};
use crate::manifest::{
    Coverage, Difference, Entry, EntryKind, Manifest, OmitReason, PageSource, Tree, differences,
    read_part, tree_differences,
};
use crate::monitor::{Monitor, Phase};
use crate::path::{RelPath, at_or_below};
use crate::settings::ScopeSettings;
use crate::store::capturing::{
    Purpose, home_directory, left_out_by_rule, look_for_foundation, open_workspace,
};
use crate::store::{Store, open_root};
use crate::walk::Detail;
use crate::workspaces::StatCache;

/// How to compare.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CompareOptions {
    /// Which paths; all by default.
    pub paths: Selection,
    /// Whether a path that was added and one that was deleted with the same content are one change. On by
    /// default.
    pub renames: bool,
    /// The rules by which the disk is looked at.
    pub scope: ScopeSettings,
    /// Look at `/`, the home directory, or what contains it.
    pub force: bool,
    /// Which workspace this is, where path and directory disagree.
    pub workspace: Option<WorkspaceId>,
}

impl Default for CompareOptions {
    fn default() -> Self {
        Self {
            paths: Selection::default(),
            renames: true,
            scope: ScopeSettings::default(),
            force: false,
            workspace: None,
        }
    }
}

/// One side of a comparison.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Compared {
    /// Which checkpoint; `None`: the disk.
    pub checkpoint: Option<CheckpointId>,
    /// The workspace.
    pub workspace: WorkspaceId,
    /// Where it is, or was.
    pub root: PathBuf,
    /// Whether everything in scope could be read whole.
    pub complete: bool,
    /// Whether it is a checkpoint of given paths: elsewhere it says what the one before it says.
    pub is_part: bool,
    /// How many names have no content on this side, by reason. What they hold is not compared.
    pub omitted: BTreeMap<OmitReason, u64>,
}

/// What a comparison found.
#[derive(Debug, Clone)]
#[non_exhaustive]
#[must_use]
pub struct Comparison {
    /// The first side.
    pub before: Compared,
    /// The second.
    pub after: Compared,
    /// In order of path.
    pub changes: Vec<Change>,
    /// What of the disk could not be read whole, the first hundred.
    pub problems: Vec<CaptureProblem>,
    /// How many of these there are in all.
    pub problem_count: u64,
}

impl Compared {
    fn of(manifest: &Manifest) -> Self {
        Self {
            checkpoint: Some(manifest.id.clone()),
            workspace: manifest.workspace,
            root: manifest.root_path.clone(),
            complete: manifest.complete,
            is_part: manifest.coverage == Coverage::Paths,
            omitted: manifest.counts.omitted.clone(),
        }
    }
}

impl Store {
    /// Compares two checkpoints, of whatever workspaces.
    ///
    /// # Errors
    /// As [`Store::show`]; [`Error::PathNotFound`] for a path that was asked for and that neither holds;
    /// what reading a page gives.
    ///
    /// Cost: the pages that only one of the two has.
    pub fn compare(
        &self,
        before: &CheckpointId,
        after: &CheckpointId,
        options: &CompareOptions,
        monitor: &dyn Monitor,
    ) -> Result<Comparison> {
        let reading = self.reading(&before.session, monitor)?;
        let (old, _) = reading.require(before)?;
        let (new, _) = reading.require(after)?;
        let found = tree_differences(&reading.blobs, &old.tree, &new.tree)?;
        let changes = selected(found, options);
        for path in unmatched(&options.paths, &changes) {
            let in_old = presence(&reading.blobs, &old.tree, path)?;
            let in_new = presence(&reading.blobs, &new.tree, path)?;
            require_present(&old.id, path, &[in_old, in_new])?;
        }
        let (before, after) = (Compared::of(&old), Compared::of(&new));
        Ok(Comparison { before, after, changes, problems: Vec::new(), problem_count: 0 })
    }

    /// Compares a checkpoint, of whatever workspace, with what is in the directory `path` now. The disk is
    /// looked at as a capture would, by the stat cache and under the same rules; nothing is stored.
    ///
    /// # Errors
    /// As [`Store::compare`], and as [`Store::plan_restore`] where the disk cannot be looked at.
    ///
    /// # Concurrency
    /// Waits for a capture or restore of the workspace.
    ///
    /// Cost: one stat for each name, and the reading of what changed.
    pub fn compare_with_disk(
        &self,
        before: &CheckpointId,
        path: &Path,
        options: &CompareOptions,
        monitor: &dyn Monitor,
    ) -> Result<Comparison> {
        self.compare_all_with_disk(before, path, options, false, monitor).map(|(found, _)| found)
    }

    /// As [`Store::compare_with_disk`], with `ignored` also of what is ignored or excluded. Returns what is on
    /// the disk, too.
    pub(super) fn compare_all_with_disk(
        &self,
        before: &CheckpointId,
        path: &Path,
        options: &CompareOptions,
        ignored: bool,
        monitor: &dyn Monitor,
    ) -> Result<(Comparison, Vec<Entry>)> {
        let access = self.enter_for(&before.session, monitor)?;
        let old = self.reading(&before.session, monitor)?.require(before)?.0;
        let home = home_directory();
        let (home, force, chosen) = (home.as_deref(), options.force, options.workspace);
        let open = open_workspace(&access, path, force, home, chosen, Purpose::Look, monitor)?;
        let (then, held) = look(&access, &open, &old.tree, &options.scope, ignored, monitor)?;
        monitor.phase(Phase::Plan, None);
        let now: Vec<Entry> = held.entries.into_iter().map(|cached| cached.entry).collect();
        let changes = selected(differences(&then, &now), options);
        for path in unmatched(&options.paths, &changes) {
            require_present(&old.id, path, &[standing(&then, path), standing(&now, path)])?;
        }
        let after = Compared {
            checkpoint: None,
            workspace: open.workspace.id,
            root: open.path.clone(),
            complete: held.complete,
            is_part: false,
            omitted: held.counts.omitted,
        };
        let (problems, problem_count) = (held.problems, held.problem_count);
        let before = Compared::of(&old);
        Ok((Comparison { before, after, changes, problems, problem_count }, now))
    }

    /// The content of a file or symlink of a checkpoint, to be compared line by line. What is longer than
    /// `bytes_max` ([`crate::limits::COMPARED_BYTES_MAX`] is usual) is not read.
    ///
    /// # Errors
    /// [`Error::BlobMissing`], [`Error::BlobDamaged`].
    pub fn text(&self, entry: &Entry, bytes_max: u64, monitor: &dyn Monitor) -> Result<Text> {
        match &entry.kind {
            EntryKind::File { size, .. } if *size > bytes_max => Ok(Text::TooLong),
            EntryKind::File { hash, size, .. } => {
                let reading = self.read(monitor)?;
                let reading = reading.ok_or(Error::BlobMissing { hash: *hash })?;
                Ok(Text::Whole(reading.blobs.read(*hash, *size)?))
            }
            EntryKind::Symlink { target } => Ok(Text::Whole(target.to_vec())),
            _ => Ok(Text::Whole(Vec::new())),
        }
    }

    /// As [`Store::text`] of what is in the workspace at `root` now. A file that has changed since it was
    /// compared is read as it is.
    ///
    /// # Errors
    /// [`Error::Io`] where it cannot be read, or is gone by now.
    pub fn text_on_disk(&self, root: &Path, entry: &Entry, bytes_max: u64) -> Result<Text> {
        let target = match &entry.kind {
            EntryKind::File { .. } => None,
            EntryKind::Symlink { target } => Some(target.to_vec()),
            _ => Some(Vec::new()),
        };
        if let Some(target) = target {
            return Ok(Text::Whole(target));
        }
        let (dir, _): (Dir, _) = open_root(root)?;
        let file = dir.open_file_beneath(&entry.path)?;
        let mut bytes = Vec::new();
        let read = file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes);
        let length = read.at("read", root.join(entry.path.as_os()))?;
        if length as u64 > bytes_max { Ok(Text::TooLong) } else { Ok(Text::Whole(bytes)) }
    }
}

/// The entries of the checkpoint, and the present state, hashed and not stored.
fn look(
    access: &Access,
    open: &OpenWorkspace,
    tree: &Tree,
    scope: &ScopeSettings,
    ignored: bool,
    monitor: &dyn Monitor,
) -> Result<(Vec<Entry>, Held)> {
    let mut base = look_for_foundation(access, open)?.base;
    if let Some(base) = &mut base {
        let cache = StatCache::read(&access.workspaces.directory(open.workspace.id));
        base.cache = cache.filter(|cache| cache.header == base.described(access.store));
    }
    let known = base.as_ref().and_then(|base| base.cache.as_ref()).map(|cache| &cache.tree);
    let detail = if ignored { Detail::All } else { Detail::Changes };
    let mut observation = capture::only_look(access, open, scope, known, detail, monitor)?;
    if ignored {
        observation.walked.force(&left_out_by_rule(&observation.walked), monitor)?;
    }
    // Before the present is hashed: that takes the base's entries out of the cache.
    let then = capture::entries_of(access, tree, base.as_ref())?;
    let so_far = &mut ReadSoFar::default();
    let mut held =
        capture::hold(access, open, base.as_mut(), observation, scope, None, so_far, monitor)?;
    held.give_up_vanished();
    Ok((then, held))
}

/// The changes that were asked for. Only among these renames are looked for, as in git.
pub(super) fn selected(found: Vec<Difference>, options: &CompareOptions) -> Vec<Change> {
    let mut changes = changes(found);
    changes.retain(|change| options.paths.includes(change.path()));
    if options.renames { join_renames(changes) } else { changes }
}

/// The paths that were asked for and are in no change: there may be nothing to tell of them, or they may
/// not be there at all.
fn unmatched<'a>(
    paths: &'a Selection,
    changes: &'a [Change],
) -> impl Iterator<Item = &'a RelPath> + 'a {
    let is_met = |path: &RelPath| {
        changes.iter().any(|change| {
            let both = change.from().into_iter().chain([change.path()]);
            both.into_iter().any(|changed| changed.is_at_or_below(path))
        })
    };
    paths.plain().filter(move |path| !is_met(path))
}

/// What one side says of a path.
#[derive(Debug, Clone, Copy)]
pub(super) enum Presence {
    Held,
    Omitted(OmitReason),
    Absent,
}

fn presence(source: &dyn PageSource, tree: &Tree, path: &RelPath) -> Result<Presence> {
    Ok(standing(&read_part(source, tree, std::slice::from_ref(path))?, path))
}

/// What a sorted list that has the path, if it is there, and what is above it, says of it.
pub(super) fn standing(entries: &[Entry], path: &RelPath) -> Presence {
    let is_held = |index: usize| !matches!(entries[index].kind, EntryKind::Omitted { .. });
    if at_or_below(entries, path, |entry| &entry.path).any(is_held) {
        return Presence::Held;
    }
    let omitted = path.ancestors().chain([path.clone()]).find_map(|above| {
        let index = entries.binary_search_by(|entry| entry.path.cmp(&above)).ok()?;
        match entries[index].kind {
            EntryKind::Omitted { reason, .. } => Some(reason),
            _ => None,
        }
    });
    omitted.map_or(Presence::Absent, Presence::Omitted)
}

/// Refuses a path of which no side holds anything: that nothing of it has changed is not known.
fn require_present(checkpoint: &CheckpointId, path: &RelPath, sides: &[Presence]) -> Result<()> {
    if sides.iter().any(|side| matches!(side, Presence::Held)) {
        return Ok(());
    }
    let omitted = sides.iter().find_map(|side| match side {
        Presence::Omitted(reason) => Some(*reason),
        _ => None,
    });
    Err(Error::PathNotFound { checkpoint: checkpoint.clone(), path: path.clone(), omitted })
}
