//! Purge: a path's content is taken out of history.
//!
//! The one operation that destroys on purpose. [`plan`] reads every manifest and every page, and says
//! which entries become `omitted: purged`, which manifests are written anew for that or because they
//! name one that is, and which content goes or stays. The facade makes the new pages durable, writes
//! the plan down ([`Intent`]), and from there on carries it out to the end, whoever dies meanwhile:
//! [`Intent::rewrite`], an index built anew, [`remove`]. The caller keeps everybody else out of the
//! store. Nothing here decides by an index, by times or by ages of files what may go.

mod intent;
mod plan;
mod quarantined;
mod remove;

use std::path::PathBuf;

pub(crate) use intent::{Intent, PurgePhase, Rewrite};
pub(crate) use plan::{Parts, Scope, plan};
pub(crate) use remove::remove;

use crate::hash::{BlobHash, Digest};
use crate::id::{CheckpointId, SessionName, WorkspaceId};
use crate::manifest::EncodedPage;
use crate::path::RelPath;

/// What to take out of history.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PurgeRequest {
    /// The root of the workspace. Other workspaces' checkpoints are never changed.
    pub root: PathBuf,
    /// Which workspace it is, where it is not the one at `root`, or that is gone.
    pub workspace: Option<WorkspaceId>,
    /// Paths, each with everything below it, and patterns, as for a comparison.
    pub paths: Vec<RelPath>,
    /// Only the checkpoints of this session; all of the workspace's where none is named.
    pub session: Option<SessionName>,
}

impl PurgeRequest {
    /// These paths, in all checkpoints of the workspace at `root`.
    pub fn new(root: PathBuf, paths: Vec<RelPath>) -> Self {
        Self { root, workspace: None, paths, session: None }
    }
}

/// A checkpoint that loses content.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PurgedCheckpoint {
    /// Which one.
    pub checkpoint: CheckpointId,
    /// Whether somebody has pinned it, which is no protection here.
    pub pinned: bool,
    /// Whether a restore made it: what that restore overwrote cannot be taken back for these paths.
    pub is_safety: bool,
    /// How many of its paths lose their content.
    pub paths: u64,
}

/// A path that loses its content.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PurgedPath {
    /// Where.
    pub path: RelPath,
    /// In how many checkpoints.
    pub checkpoints: u64,
    /// How many different contents.
    pub versions: u64,
    /// Their length together, before compression.
    pub bytes: u64,
    /// Whether something is there in the workspace now, which the next capture may hold again.
    pub is_on_disk: bool,
}

/// Content of a purged path that stays in the store, because something else has the same.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeptContent {
    /// Its name in the store.
    pub hash: BlobHash,
    /// Its length.
    pub bytes: u64,
    /// One of the paths that lose it.
    pub path: RelPath,
    /// Who has it, the first [`crate::limits::PURGE_HOLDERS_NAMED`].
    pub held_by: Vec<Holder>,
    /// How many there are in all.
    pub holders: u64,
}

/// A path outside of the plan with the same content.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Holder {
    /// Its workspace.
    pub workspace: WorkspaceId,
    /// Where that workspace was, by the newest of these checkpoints.
    pub root: PathBuf,
    /// Where in it.
    pub path: RelPath,
    /// The newest of the checkpoints.
    pub checkpoint: CheckpointId,
    /// How many there are.
    pub checkpoints: u64,
}

/// What a purge does, or would do.
#[derive(Debug, Clone)]
#[non_exhaustive]
#[must_use]
pub struct PurgePlan {
    /// The workspace.
    pub workspace: WorkspaceId,
    /// The checkpoints that lose content, as they were made.
    pub checkpoints: Vec<PurgedCheckpoint>,
    /// The paths that lose it, in order.
    pub paths: Vec<PurgedPath>,
    /// How many further manifests are written anew, because they name one of those.
    pub linked: u64,
    /// How many different contents leave the store.
    pub contents: u64,
    /// Their length together, before compression.
    pub bytes: u64,
    /// What stays although it is content of these paths.
    pub kept: Vec<KeptContent>,
    /// Files in the quarantine that hold what is purged, and go too.
    pub quarantined: Vec<PathBuf>,
    /// How many entries at these paths an earlier purge has emptied.
    pub purged_before: u64,
    /// Every manifest that is written anew, those first that others name.
    pub(crate) rewrites: Vec<Rewrite>,
    /// The pages that these need and the store does not have.
    pub(crate) pages: Vec<EncodedPage>,
}

impl PurgePlan {
    /// Whether no checkpoint holds anything at these paths.
    pub fn is_empty(&self) -> bool {
        self.checkpoints.is_empty()
    }

    /// A name for this plan: another one if anything else would be done, or other content would stay, or
    /// stay for another path. Which checkpoints have it there is left out: each turn of another workspace
    /// makes one more, and on a busy store nothing could be agreed to.
    pub fn id(&self) -> String {
        let mut text = Vec::new();
        for Rewrite { id, before, after, .. } in &self.rewrites {
            text.extend_from_slice(format!("{id} {before} {after}\n").as_bytes());
        }
        for kept in &self.kept {
            text.extend_from_slice(format!("{} {}\n", kept.hash, kept.holders).as_bytes());
            for holder in &kept.held_by {
                let Holder { workspace, path, .. } = holder;
                text.extend_from_slice(format!("{workspace} {path:?}\n").as_bytes());
            }
        }
        text.extend_from_slice(format!("{:?}", self.quarantined).as_bytes());
        Digest::of(&text).to_string()
    }
}

/// What a purge did.
#[derive(Debug, Clone)]
#[non_exhaustive]
#[must_use]
pub struct PurgeOutcome {
    /// What was planned, and done.
    pub plan: PurgePlan,
    /// What was removed, with everything else that no checkpoint named.
    pub removed: Removed,
}

/// What was removed from the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Removed {
    /// Blobs, loose or in packs: contents and pages.
    pub blobs: u64,
    /// Their length as stored.
    pub bytes: u64,
    /// Packs that were written anew without them.
    pub packs: u64,
}
