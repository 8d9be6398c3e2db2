//! Why a workspace cannot go back in the way that was asked for.

use std::path::PathBuf;

use super::ErrorClass;
use crate::id::{CheckpointId, SessionName};

/// Why a workspace cannot go back. Nothing has changed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum GoingBackError {
    /// The session has not so many turns in this workspace.
    #[error(
        "there {} of {} in session `{session}`",
        match existing {
            0 => "is no turn".to_owned(),
            1 => "is only 1 turn".to_owned(),
            count => format!("are only {count} turns"),
        },
        workspace.display()
    )]
    NoTurn {
        /// The workspace's root.
        workspace: PathBuf,
        /// The session.
        session: SessionName,
        /// How many there are, fewer than were counted back.
        existing: usize,
    },

    /// There is no undo of this workspace that has not been taken back, or a restore came after it.
    #[error("there is nothing to redo in {}", workspace.display())]
    NothingToRedo {
        /// The workspace's root.
        workspace: PathBuf,
        /// Where there is such an undo: what was saved before the newest restore, which came after it.
        since: Option<CheckpointId>,
    },
}

impl GoingBackError {
    pub(super) const fn class(&self) -> ErrorClass {
        match self {
            Self::NoTurn { .. } | Self::NothingToRedo { .. } => ErrorClass::Input,
        }
    }

    pub(super) const fn code(&self) -> &'static str {
        match self {
            Self::NoTurn { .. } => "no-turn",
            Self::NothingToRedo { .. } => "nothing-to-redo",
        }
    }

    pub(super) fn hint(&self) -> Option<String> {
        let text = match self {
            Self::NoTurn { session, .. } => {
                format!("`turnpoint list --session {session}` shows its checkpoints")
            }
            Self::NothingToRedo { since: Some(since), .. } => format!(
                "the restore that {since} was saved for came after the undo, and ended what could be redone"
            ),
            Self::NothingToRedo { since: None, .. } => return None,
        };
        Some(text)
    }
}
