//! Why a workspace cannot go back in the way that was asked for.

use std::path::PathBuf;

use super::details::{of_the_rest, sides};
use super::{ErrorClass, MergeConflicts};
use crate::id::{CheckpointId, SessionName};
use crate::path::{RelPath, shell_word};

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

    /// No checkpoint is there that says what was before.
    #[error(
        "what {checkpoint} changed is not known: it is the first of its workspace in its session"
    )]
    NoPredecessor {
        /// Which checkpoint.
        checkpoint: CheckpointId,
    },

    /// What the checkpoint changed was changed again, so that both cannot be had. Nothing was written.
    #[error(
        "{checkpoint} cannot be taken back: {}",
        match conflicts.against.len() {
            1 => "1 path that it changed stands against it".to_owned(),
            count => format!("{count} paths that it changed stand against it"),
        }
    )]
    RevertConflicts {
        /// Which checkpoint.
        checkpoint: CheckpointId,
        /// The one before it, with which it was compared.
        before: CheckpointId,
        /// The workspace's root.
        workspace: PathBuf,
        /// What stands against it, and what does not.
        conflicts: Box<MergeConflicts>,
    },

    /// The file holds no plan.
    #[error("{} holds no plan: {reason}", path.display())]
    PlanUnreadable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },

    /// A plan cannot be kept there.
    #[error("the plan cannot be written to {}: {reason}", path.display())]
    PlanPlace {
        /// The file.
        path: PathBuf,
        /// What stands in the way.
        reason: String,
    },

    /// A plan of a checkpoint that is laid over a directory cannot be kept.
    #[error("a plan of what is laid over {} cannot be kept in a file", root.display())]
    PlanOfOverlay {
        /// The directory.
        root: PathBuf,
    },

    /// A plan of what a run changed cannot be kept.
    #[error("a plan of what a run changed cannot be kept in a file")]
    PlanOfRun,

    /// The plan is bound to a checkpoint that is not what the command would be about now.
    #[error(
        "{checkpoint} is not what it was when plan {plan} was made, or the command is about another"
    )]
    PlanTarget {
        /// The plan.
        plan: String,
        /// The checkpoint that it is bound to.
        checkpoint: CheckpointId,
    },

    /// The plan takes back what a checkpoint changed against one that is not before it any more, or is not what
    /// it was.
    #[error(
        "plan {plan} takes back what {checkpoint} changed since {before}, {}",
        match found {
            Some(found) if found == before => "which is not what it was then".to_owned(),
            Some(found) => format!("which is gone: the one before it is {found} now"),
            None => "which is gone".to_owned(),
        }
    )]
    PlanPredecessor {
        /// The plan.
        plan: String,
        /// The checkpoint whose changes it takes back.
        checkpoint: CheckpointId,
        /// The one that this was compared with.
        before: CheckpointId,
        /// The one that it would be compared with now.
        found: Option<CheckpointId>,
    },

    /// The disk has changed since the plan was made.
    #[error(
        "the disk has changed since plan {plan} was made: {} not as it says",
        match paths.len() {
            1 => "1 path is".to_owned(),
            count => format!("{count} paths are"),
        }
    )]
    PlanOutdated {
        /// The plan.
        plan: String,
        /// At which paths another change would be made, or none, or to something else.
        paths: Vec<RelPath>,
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
            Self::NoTurn { .. }
            | Self::NoPredecessor { .. }
            | Self::NothingToRedo { .. }
            | Self::PlanOfOverlay { .. }
            | Self::PlanOfRun
            | Self::PlanUnreadable { .. } => ErrorClass::Input,
            Self::RevertConflicts { .. }
            | Self::PlanPlace { .. }
            | Self::PlanTarget { .. }
            | Self::PlanPredecessor { .. }
            | Self::PlanOutdated { .. } => ErrorClass::Refused,
        }
    }

    pub(super) const fn code(&self) -> &'static str {
        match self {
            Self::NoTurn { .. } => "no-turn",
            Self::NoPredecessor { .. } => "no-predecessor",
            Self::RevertConflicts { .. } => "revert-conflicts",
            Self::PlanUnreadable { .. } => "plan-unreadable",
            Self::PlanPlace { .. } => "plan-place",
            Self::PlanOfOverlay { .. } => "plan-of-overlay",
            Self::PlanOfRun => "plan-of-run",
            Self::PlanTarget { .. } => "plan-target",
            Self::PlanPredecessor { .. } => "plan-predecessor",
            Self::PlanOutdated { .. } => "plan-outdated",
            Self::NothingToRedo { .. } => "nothing-to-redo",
        }
    }

    pub(super) fn hint(&self) -> Option<String> {
        let text = match self {
            Self::NoTurn { session, .. } => {
                let session = shell_word(session.as_str());
                format!("`turnpoint list --session {session}` shows its checkpoints")
            }
            Self::NothingToRedo { since: Some(since), .. } => format!(
                "the restore that {since} was saved for came after the undo, and ended what could be redone"
            ),
            Self::NothingToRedo { since: None, .. } => return None,
            Self::NoPredecessor { checkpoint } => format!(
                "`turnpoint list --session {}` shows what there is; `turnpoint restore` goes back to one",
                shell_word(checkpoint.session.as_str())
            ),
            Self::RevertConflicts { checkpoint, before, workspace, conflicts } => {
                let [changed, since] =
                    sides(workspace, [before, checkpoint], checkpoint, &conflicts.against);
                let (root, id) = (shell_word(workspace), checkpoint.shell_word());
                let revert = format!("turnpoint revert -C {root} {id}");
                let rest = of_the_rest(&revert, "takes back", &conflicts.free);
                format!(
                    "nothing was written; {changed} shows what it changed, {since} what was done since{rest}"
                )
            }
            Self::PlanUnreadable { .. } => {
                "`turnpoint restore --plan-out FILE` writes one".to_owned()
            }
            Self::PlanPlace { .. } => "name a new file outside of the workspace".to_owned(),
            Self::PlanOfOverlay { .. } => {
                "look at the plan with `--dry-run`, then lay the checkpoint over at once".to_owned()
            }
            Self::PlanOfRun => {
                "look at the plan with `--dry-run`, then apply it at once".to_owned()
            }
            Self::PlanTarget { .. } | Self::PlanPredecessor { .. } | Self::PlanOutdated { .. } => {
                "nothing was changed; make the plan anew and look at it".to_owned()
            }
        };
        Some(text)
    }
}
