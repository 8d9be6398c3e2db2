//! What is known about a checkpoint besides its entries: the model of the index's rows and of what
//! people said about a checkpoint later. Pure.

mod order;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::hash::{BlobHash, Digest};
use crate::id::{CheckpointId, OperationId, SessionName, WorkspaceId};
use crate::manifest::{OmitReason, Tree, Trigger};
use crate::path::RelPath;

pub(crate) use order::{Place, in_order_of_making};

/// Whether a checkpoint is there for readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CheckpointState {
    /// It can be listed, restored, pinned and taken as a base.
    Live,
    /// It is being pruned: gone for every reader although its files may still be there.
    Pruning,
}

/// What people said about a checkpoint after it was made: the content of `<seq>.pin`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PinFile {
    /// Whether retention must keep it.
    pub pinned: bool,
    /// A label given later; it takes the place of the manifest's.
    pub label: Option<String>,
    /// A remark.
    pub note: Option<String>,
}

/// What the index knows about one checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointRow {
    /// Its session and number.
    pub id: CheckpointId,
    /// The checksum of its manifest.
    pub digest: Digest,
    /// The length of its manifest in bytes.
    pub manifest_bytes: u64,
    /// The operation that made it.
    pub op: OperationId,
    /// The workspace.
    pub workspace: WorkspaceId,
    /// When its capture began to be committed.
    pub created_at: Timestamp,
    /// The label in its manifest; see [`CheckpointRow::label`] for the one to show.
    pub manifest_label: Option<String>,
    /// What made it.
    pub trigger: Trigger,
    /// Whether everything in scope could be read whole.
    pub complete: bool,
    /// Whether it is there for readers.
    pub state: CheckpointState,
    /// What people said about it later.
    pub pin: PinFile,
    /// Its entries.
    pub tree: Tree,
    /// For a safety checkpoint: the paths as the restore leaves them.
    pub after: Option<Tree>,
}

impl CheckpointRow {
    /// The label to show: the one given later, else the manifest's.
    pub fn label(&self) -> Option<&str> {
        self.pin.label.as_deref().or(self.manifest_label.as_deref())
    }

    /// Whether it is being pruned, and so gone for every reader.
    pub fn is_pruning(&self) -> bool {
        self.state == CheckpointState::Pruning
    }

    /// Whether a restore made it to save what it was about to change.
    pub fn is_safety(&self) -> bool {
        self.trigger.is_safety()
    }
}

/// What the index knows about one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRow {
    /// Its name as first written.
    pub name: SessionName,
    /// Numbers below this were given.
    pub next_seq: u64,
    /// How many live checkpoints it has, safety checkpoints included.
    pub checkpoints: u64,
}

/// What the checkpoints of one session, or of all, take. Lengths are in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Account {
    /// Which session; all of them where none is named.
    pub session: Option<SessionName>,
    /// How many checkpoints, safety checkpoints included.
    pub checkpoints: u64,
    /// What as many plain copies of the workspaces would take.
    pub logical_bytes: u64,
    /// What the blobs take that these checkpoints name, pages included, each once, as stored.
    pub stored_bytes: u64,
    /// Of these, what no other session names: what deleting the session would free.
    pub unique_bytes: u64,
    /// The others.
    pub shared_bytes: u64,
}

/// Whether a blob's bytes can be relied upon, as far as is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BlobState {
    /// Nothing is known against it.
    Ok,
    /// It was looked for and is not there.
    Missing,
    /// It was read and its bytes are not those of its name.
    Damaged,
}

/// A blob that no row refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreferencedBlob {
    /// Which one.
    pub hash: BlobHash,
    /// Its length where it is known.
    pub size: Option<u64>,
    /// The length of its file where it is known.
    pub stored_size: Option<u64>,
    /// Whether it is known to be missing or damaged.
    pub state: BlobState,
    /// Since when nothing refers to it.
    pub since: Timestamp,
}

/// A name in scope whose content could not be held whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaptureProblem {
    /// Where.
    pub path: RelPath,
    /// Why there is no content; `None` where it is held but changed while it was read.
    pub reason: Option<OmitReason>,
}
