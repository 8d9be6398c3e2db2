//! Operations in flight: what the index remembers about a capture, restore, prune or sweep so that
//! others leave alone what it relies on, and so that its death can be noticed. Pure.

use crate::clock::Timestamp;
use crate::id::{CheckpointId, OperationId, WorkspaceId};

/// What an operation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OperationKind {
    /// Makes a checkpoint.
    Capture,
    /// Changes a workspace, after a safety checkpoint.
    Restore,
    /// Drops checkpoints.
    Prune,
    /// Removes blobs.
    Sweep,
}

impl OperationKind {
    /// The word used in the index and for people.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Capture => "capture",
            Self::Restore => "restore",
            Self::Prune => "prune",
            Self::Sweep => "sweep",
        }
    }

    /// The reverse of [`OperationKind::as_str`].
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Capture, Self::Restore, Self::Prune, Self::Sweep]
            .into_iter()
            .find(|kind| kind.as_str() == word)
    }
}

/// Where a process runs: its machine, and which run of that machine's kernel. A lock says whether a
/// process lives only to a process of the same two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Host {
    /// A name of the machine.
    pub machine: [u8; 16],
    /// A name of the present run of its kernel.
    pub boot: [u8; 16],
}

/// An operation that begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewOperation {
    /// Its id, also the name of its lease.
    pub id: OperationId,
    /// What it does.
    pub kind: OperationKind,
    /// Where it runs.
    pub host: Host,
    /// When it began.
    pub started_at: Timestamp,
    /// The workspace it works on; none for a sweep.
    pub workspace: Option<WorkspaceId>,
    /// The checkpoint it builds upon, which is not pruned while the operation lasts.
    pub base: Option<CheckpointId>,
}

/// An operation as the index knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationRow {
    /// What was known when it began, with the base of now.
    pub operation: NewOperation,
    /// The checkpoint whose manifest it has written or is about to write.
    pub intent: Option<CheckpointId>,
    /// Whether it protects every blob.
    pub pin_all: bool,
}
