//! Why a workspace cannot go back in the way that was asked for.

use std::path::PathBuf;

use super::ErrorClass;
use crate::id::SessionName;

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
}

impl GoingBackError {
    pub(super) const fn class(&self) -> ErrorClass {
        match self {
            Self::NoTurn { .. } => ErrorClass::Input,
        }
    }

    pub(super) const fn code(&self) -> &'static str {
        match self {
            Self::NoTurn { .. } => "no-turn",
        }
    }

    pub(super) fn hint(&self) -> String {
        match self {
            Self::NoTurn { session, .. } => {
                format!("`turnpoint list --session {session}` shows its checkpoints")
            }
        }
    }
}
