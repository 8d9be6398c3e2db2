//! Runs in work trees of their own: where one can be made, making it, what is brought along, what it changed
//! unseen, and removing it.
//!
//! The facade puts checkpoints in between. Of a work tree nothing is deleted but what is still as it was when it
//! was held, or what nobody holds and that was said of; git takes away what it keeps of it.

mod extras;
mod leftover;
mod making;
mod removing;
mod unseen;

pub(crate) use extras::bring_along;
pub use extras::{BroughtAlong, Extra, ExtraKind};
pub(crate) use leftover::Leftover;
pub(crate) use making::{Ground, common_dir, ground, has_submodules, make, session_name};
pub(crate) use removing::{
    Found, Kept, Stage, clear_locks, content, find, keep, lead_back, left_out, look, make_durable,
    measure_given_up, not_held, refuse_busy, remove, runs_with_refs, submodules, unknown,
};
pub(crate) use unseen::{Unseen, unseen};

use crate::error::{Error, IsolationError};
use crate::git::GitError;
use crate::id::{CheckpointId, RunId};
use crate::path::RelPath;
use crate::settings::ScopeSettings;

/// Why something is not held that a checkpoint names.
pub(crate) const LOST: &str = "lost from its checkpoint";

/// How to remove the work tree of a run.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct RemoveOptions {
    /// Hold what is ignored or excluded, too, before it goes.
    pub ignored: bool,
    /// Give up what a checkpoint cannot hold, and what has not ended in it.
    pub discard: bool,
    /// What is a secret, and what of the usual exclusions is taken back. Its limits and its own exclusions
    /// have no part in a removal: what they leave out would be gone.
    pub scope: ScopeSettings,
}

/// What of a work tree no checkpoint holds and git does not have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeftOut {
    /// Each path, a whole directory being one, and why.
    pub paths: Vec<(RelPath, String)>,
    /// How many files these are.
    pub files: u64,
    /// How much of the disk they take.
    pub bytes: u64,
}

/// What is in the work tree of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunContent {
    /// How many paths git finds changed, those that are not tracked too.
    pub changed: u64,
    /// How many commits only the run has.
    pub commits: u64,
    /// How much of the disk it takes.
    pub bytes: u64,
    /// What git ignores, which a removal holds only where that is asked of it.
    pub ignored: LeftOut,
}

/// What was removed, and what is left of it.
#[derive(Debug, Clone)]
#[non_exhaustive]
#[must_use]
pub struct RemovedRun {
    /// Which run.
    pub id: RunId,
    /// The checkpoint that holds the files that were in its work tree; `None` where it had none of its own.
    pub kept: Option<CheckpointId>,
    /// The checkpoints that hold what came into it after its removal had begun and was cut off.
    pub further: Vec<CheckpointId>,
    /// The refs that lead to commits which only it had.
    pub refs: Vec<String>,
    /// What went with it and is held nowhere: what git ignores, and what was given up.
    pub left_out: LeftOut,
}

/// What git's failure at `what` is to the caller.
fn failed(what: &'static str) -> impl FnOnce(GitError) -> Error {
    move |error| match error {
        GitError::NotInstalled => IsolationError::NoGit.into(),
        GitError::Cancelled => Error::Cancelled,
        GitError::Failed { reason } => {
            let reason = reason.trim_start_matches("fatal: ").trim_start_matches("error: ");
            IsolationError::Git { what, reason: reason.to_owned() }.into()
        }
        GitError::TimedOut => IsolationError::Git { what, reason: error.to_string() }.into(),
    }
}
