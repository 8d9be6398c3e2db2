//! Capture: the state of a workspace becomes a checkpoint.
//!
//! Four steps that the facade puts together, because a restore needs the first three as well:
//! [`observe`] walks the tree, [`hold`] reads what changed and puts it into the store, `store_tree`
//! makes content and pages durable, [`commit`] writes the manifest. Until the manifest is written
//! nothing has happened; once it is, the checkpoint stands whatever fails later.

mod audit;
mod commit;
mod content;
mod decide;
mod entries;
mod hold;
mod part;

pub(crate) use audit::{Depth, audit, find_lost, remember};
pub(crate) use commit::{Committed, Draft, Finish, commit, save_cache};
pub(crate) use entries::entries_of;
pub(crate) use hold::{Base, Held, ReadSoFar, Storing, hold, lost_blobs, store_tree};
pub(crate) use part::{Part, observe_part, store_part};

use crate::access::{Access, OpenWorkspace};
use crate::checkpoint::CaptureProblem;
use crate::disk::{self, Dir};
use crate::error::Result;
use crate::id::{CheckpointId, WorkspaceId};
use crate::manifest::{Counts, Coverage, Scope, Trigger};
use crate::monitor::Monitor;
use crate::path::RelPath;
use crate::settings::ScopeSettings;
use crate::walk::{self, Detail, InodeId, KnownTree, TrackedCache, WalkOptions, Walked};

/// What git tracks of a million paths takes less.
const TRACKED_BYTES_MAX: u64 = 1 << 28;

/// How to capture.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CaptureOptions {
    /// The session to add to; the workspace's default session where none is named.
    pub session: Option<String>,
    /// A name for people.
    pub label: Option<String>,
    /// What made it.
    pub trigger: Trigger,
    /// By which rules.
    pub scope: ScopeSettings,
    /// If nothing differs from the workspace's newest checkpoint, make none and answer with that.
    pub if_changed: bool,
    /// If something in scope could not be held whole, fail and store nothing.
    pub strict: bool,
    /// Capture `/`, the home directory, or what contains it.
    pub force: bool,
    /// Which workspace this is, where path and directory disagree.
    pub workspace: Option<WorkspaceId>,
    /// Hold what is ignored or excluded, too. Secrets, version control, stores and mounts are left out as
    /// ever.
    pub ignored: bool,
    /// The caller's promise that since the newest checkpoint of the workspace nothing has changed but
    /// what is at or below these paths. Only they, and the names beside them, are looked at, and the
    /// checkpoint says so ([`crate::manifest::Coverage::Hinted`]): it is evidence of what is *not* there
    /// only for the directories it names. A promise that is not kept leaves changes out until the next
    /// capture without one; nothing else comes to harm. Where too little is known, all is looked at.
    pub changed: Option<Vec<RelPath>>,
}

impl Default for CaptureOptions {
    fn default() -> Self {
        Self {
            session: None,
            label: None,
            trigger: Trigger::MANUAL,
            scope: ScopeSettings::default(),
            if_changed: false,
            strict: false,
            force: false,
            workspace: None,
            ignored: false,
            changed: None,
        }
    }
}

/// What a capture did.
#[derive(Debug, Clone)]
#[non_exhaustive]
#[must_use]
pub struct CaptureOutcome {
    /// The checkpoint: a new one, or the newest where nothing had changed and that was asked for.
    pub checkpoint: CheckpointId,
    /// Whether it was made now.
    pub created: bool,
    /// The root that was captured.
    pub root: std::path::PathBuf,
    /// How much of the workspace was looked at.
    pub coverage: Coverage,
    /// Whether everything in scope is held whole.
    pub complete: bool,
    /// What was seen and done.
    pub counts: Counts,
    /// What is not held whole although it is in scope; the first hundred.
    pub problems: Vec<CaptureProblem>,
    /// How many of these there are in all.
    pub problem_count: u64,
    /// Of [`CaptureOptions::changed`], the first that is neither on the disk nor in the checkpoint that this one
    /// builds on: perhaps it was not written as was meant.
    pub first_unknown: Option<RelPath>,
    /// How many of these there are in all.
    pub unknown_count: u64,
    /// Older checkpoints that the rules of retention dropped because of the new one.
    pub dropped: Vec<CheckpointId>,
    /// How long it took, in milliseconds.
    pub elapsed_ms: u64,
}

/// What a walk saw, and when it began.
#[derive(Debug)]
pub(crate) struct Observation {
    /// The tree.
    pub(crate) walked: Walked,
    /// When the walk began, by the clock that stamps files.
    pub(crate) start_ns: i64,
}

/// How much of the workspace is looked at.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Look<'a> {
    /// All of it.
    Whole(Detail),
    /// What is at or below these paths, and what is beside them; nothing else has changed.
    Hinted(&'a [RelPath]),
}

/// What a checkpoint that is made of the walk accounts for.
pub(crate) fn coverage_of(walked: &Walked) -> Coverage {
    match &walked.listed {
        None => Coverage::Full,
        // One whose name is not text cannot be named, and is no evidence then.
        Some(listed) => Coverage::Hinted(
            listed
                .iter()
                .filter_map(|path| std::str::from_utf8(path.as_bytes()).ok())
                .map(str::to_owned)
                .collect(),
        ),
    }
}

/// Walks the workspace, by what is known of it.
///
/// Cost: one stat a name, the listing of each directory that has changed, the reading of ignore files;
/// git is asked beside it where its index changed.
pub(crate) fn observe(
    access: &Access,
    open: &OpenWorkspace,
    settings: &ScopeSettings,
    known: Option<&KnownTree>,
    look: Look<'_>,
    monitor: &dyn Monitor,
) -> Result<Observation> {
    let options = walk_options(access, open)?;
    let before = options.tracked.clone();
    let observation = look_at(open, settings, options, known, look, monitor)?;
    if observation.walked.tracked_cache != before {
        // Only a hint for the next time; a struct of strings always has a JSON form.
        let text = serde_json::to_vec(&observation.walked.tracked_cache).unwrap_or_default();
        // A workspace that is only looked at has no directory.
        if let Ok(dir) = Dir::open(&access.layout.workspace(open.workspace.id)) {
            drop(disk::replace(&dir, b"tracked", &text, &access.tmp));
        }
    }
    Ok(observation)
}

/// As [`observe`] by hints, and by the part of what is known that they need. `None` where that part does
/// not do: see [`walk::walk_hinted`]; and where anything of the store is known to be lost, which a look at
/// everything heals.
///
/// Cost: as [`walk::walk_hinted`].
pub(crate) fn observe_hinted(
    access: &Access,
    open: &OpenWorkspace,
    settings: &ScopeSettings,
    known: &KnownTree,
    hints: &[RelPath],
    monitor: &dyn Monitor,
) -> Result<Option<Observation>> {
    if !lost_blobs(access)?.is_empty() {
        return Ok(None);
    }
    let start_ns = disk::coarse_now_ns();
    let hints = Some(hints.to_vec());
    let detail = Detail::Changes;
    let options = WalkOptions { detail, hints, ..walk_options(access, open)? };
    let walked = walk::walk_hinted(&open.dir, &open.path, settings, &options, known, monitor)?;
    Ok(walked.map(|walked| Observation { walked, start_ns }))
}

/// As [`observe`], and leaves nothing behind, not even a hint for the next time.
pub(crate) fn only_look(
    access: &Access,
    open: &OpenWorkspace,
    settings: &ScopeSettings,
    known: Option<&KnownTree>,
    detail: Detail,
    monitor: &dyn Monitor,
) -> Result<Observation> {
    // The limit for all together counts every file.
    let is_limited = settings.total_limit_bytes.is_some();
    let look = Look::Whole(if is_limited { Detail::All } else { detail });
    look_at(open, settings, walk_options(access, open)?, known, look, monitor)
}

fn look_at(
    open: &OpenWorkspace,
    settings: &ScopeSettings,
    options: WalkOptions,
    known: Option<&KnownTree>,
    look: Look<'_>,
    monitor: &dyn Monitor,
) -> Result<Observation> {
    // Taken before the first stat: what changes later has a stamp that is not older.
    let start_ns = disk::coarse_now_ns();
    let (detail, hints) = match look {
        Look::Whole(detail) => (detail, None),
        Look::Hinted(hints) => (Detail::Changes, Some(hints.to_vec())),
    };
    let options = WalkOptions { detail, hints, ..options };
    let walked = walk::walk(&open.dir, &open.path, settings, &options, known, monitor)?;
    Ok(Observation { walked, start_ns })
}

/// What a walk of the workspace is told.
fn walk_options(access: &Access, open: &OpenWorkspace) -> Result<WalkOptions> {
    let place = access.layout.workspace(open.workspace.id).join("tracked");
    let text = disk::read_small(&place, TRACKED_BYTES_MAX).ok().flatten();
    let tracked: TrackedCache =
        text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
    Ok(WalkOptions { stores: stores(access)?, tracked, ..WalkOptions::default() })
}

/// By which rules the walk went, for the manifest.
pub(crate) fn scope_of(walked: &Walked, settings: &ScopeSettings) -> Scope {
    let excluded = settings.excluded_directories.texts().iter().map(|text| format!("{text}/"));
    let files = settings.excluded_files.texts().iter().cloned();
    Scope {
        file_limit_bytes: settings.file_limit_bytes,
        total_limit_bytes: settings.total_limit_bytes,
        cross_mounts: settings.cross_mounts,
        excluded: excluded.chain(files).collect(),
        secrets: settings.secrets.texts().to_vec(),
        ignore_files: walked.ignore_files.clone(),
        ignore_digest: walked.ignore_digest,
        tracked: walked.tracked,
    }
}

/// The directories that are never captured because this store lives in them.
fn stores(access: &Access) -> Result<Vec<InodeId>> {
    let mut stores = Vec::new();
    for path in [access.layout.home(), access.layout.root()] {
        let stat = Dir::open(path)?.stat_self()?;
        stores.push(InodeId { dev: stat.dev, ino: stat.ino });
    }
    Ok(stores)
}
