//! Why a run in a work tree of its own cannot be made, found, applied or removed.

use std::path::{Path, PathBuf};

use super::details::{of_the_rest, sides};
use super::{ErrorClass, MergeConflicts};
use crate::id::{CheckpointId, RunId};
use crate::limits;
use crate::path::{RelPath, shell_word};

/// What git is asked for last, when all of a work tree is held.
pub(crate) const REMOVE_WORK_TREE: &str = "remove the work tree";

/// Why a run cannot be made, found, applied or removed. Nothing is lost in any case.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IsolationError {
    /// The directory is in no repository.
    #[error("{} is not in a git repository", path.display())]
    NoRepository {
        /// The directory.
        path: PathBuf,
    },

    /// The repository has no work tree here.
    #[error("{} is in a bare git repository, which has no files to work on", path.display())]
    Bare {
        /// The directory.
        path: PathBuf,
    },

    /// The directory is in git's own.
    #[error("{} is in the directory of git itself", path.display())]
    InsideGit {
        /// The directory.
        path: PathBuf,
    },

    /// There is no commit to start from.
    #[error("the branch of {} has no commit yet", path.display())]
    Unborn {
        /// The top of the work tree.
        path: PathBuf,
    },

    /// There is no git.
    #[error("git is not installed")]
    NoGit,

    /// git refused, or ended with an error.
    #[error("git cannot {what}: {reason}")]
    Git {
        /// What was asked of it, as in `cannot make a work tree`.
        what: &'static str,
        /// What it said.
        reason: String,
    },

    /// No run of that id is recorded for this repository.
    #[error("there is no run {id} of this repository")]
    RunNotFound {
        /// The id as given.
        id: RunId,
    },

    /// It has been removed.
    #[error("run {id} was removed")]
    RunRemoved {
        /// Which one.
        id: RunId,
    },

    /// Its process, or git on its behalf, is at work.
    #[error("run {id} is at work")]
    RunAlive {
        /// Which one.
        id: RunId,
    },

    /// Processes have their working directory in it.
    #[error(
        "{} is the working directory of {}",
        path.display(),
        match processes.as_slice() {
            [one] => format!("process {one}"),
            more => {
                let more: Vec<String> = more.iter().map(ToString::to_string).collect();
                format!("processes {}", more.join(", "))
            }
        }
    )]
    InUse {
        /// The work tree.
        path: PathBuf,
        /// Their numbers.
        processes: Vec<u32>,
    },

    /// Something is mounted in it.
    #[error("something is mounted at {}", path.display())]
    Mounted {
        /// Where.
        path: PathBuf,
    },

    /// A person has locked the work tree.
    #[error(
        "the work tree {} is locked{}",
        path.display(),
        if reason.is_empty() { String::new() } else { format!(": {reason}") }
    )]
    Locked {
        /// The work tree.
        path: PathBuf,
        /// What was said then.
        reason: String,
    },

    /// A ref of the run is locked.
    #[error(
        "{} is there{}",
        path.display(),
        match processes.as_slice() {
            [] => ", and not old enough to be taken for what a killed git left".to_owned(),
            [one] => format!(", and may be of git, process {one}"),
            more => {
                let more: Vec<String> = more.iter().map(ToString::to_string).collect();
                format!(", and may be of git, processes {}", more.join(", "))
            }
        }
    )]
    RefLocked {
        /// The file.
        path: PathBuf,
        /// The runs of git that may have it.
        processes: Vec<u32>,
    },

    /// Something that takes several commands is not at its end in it.
    #[error("{what} has not ended in {}", path.display())]
    Unfinished {
        /// The work tree.
        path: PathBuf,
        /// What.
        what: &'static str,
    },

    /// The work tree has something in it that a checkpoint could not hold.
    #[error(
        "{} in {} could not be held and would be lost",
        match left.len() {
            1 => "1 path".to_owned(),
            more => format!("{more} paths"),
        },
        path.display()
    )]
    NotHeld {
        /// The work tree.
        path: PathBuf,
        /// Each, and why not.
        left: Vec<(RelPath, String)>,
        /// Whether what is ignored was to be held, too.
        ignored: bool,
    },

    /// Something in it is held, and cannot be removed.
    #[error(
        "{} in {} could not be removed",
        match stuck.len() {
            1 => "1 path".to_owned(),
            more => format!("{more} paths"),
        },
        path.display()
    )]
    NotRemoved {
        /// The work tree.
        path: PathBuf,
        /// Each, and why not.
        stuck: Vec<(RelPath, String)>,
    },

    /// Files change while they are saved, or came or changed while the work tree was being removed. What is not
    /// there any more is held.
    #[error("{} goes on changing", path.display())]
    Changing {
        /// The work tree.
        path: PathBuf,
    },

    /// What it changed was changed in the checkout too, so that both cannot be had. Nothing was written.
    #[error(
        "what run {id} changed cannot be applied: {}",
        match conflicts.against.len() {
            1 => "1 path stands against it".to_owned(),
            count => format!("{count} paths stand against it"),
        }
    )]
    ApplyConflicts {
        /// Which one.
        id: RunId,
        /// The checkpoint before its command.
        before: CheckpointId,
        /// The one that was to be applied.
        after: CheckpointId,
        /// The top of the checkout.
        checkout: PathBuf,
        /// What stands against it, and what does not.
        conflicts: Box<MergeConflicts>,
    },

    /// One of the two checkpoints is not there, between which its changes lie.
    #[error("what run {id} changed is not known: {reason}")]
    ChangesUnknown {
        /// Which one.
        id: RunId,
        /// What is missing.
        reason: String,
        /// The checkpoint that holds its files, if there is one.
        kept: Option<CheckpointId>,
    },

    /// Its removal was cut off, and something came into it after that: no single checkpoint has all that it
    /// changed.
    #[error(
        "what run {id} changed is in no single checkpoint: what came into its work tree after its removal had \
         begun is in {} alone",
        further.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    )]
    ChangesApart {
        /// Which one.
        id: RunId,
        /// The checkpoint that holds what was in it when its removal began.
        kept: CheckpointId,
        /// Those that hold what came after that.
        further: Vec<CheckpointId>,
    },

    /// Something else is in the place of the checkout that it was made from.
    #[error("{} is not the checkout that run {id} was made from", path.display())]
    OtherCheckout {
        /// Which one.
        id: RunId,
        /// The place.
        path: PathBuf,
    },

    /// This user may not look into it, so nobody can say what would be lost.
    #[error("{} may not be looked into", path.display())]
    Closed {
        /// The work tree.
        path: PathBuf,
    },

    /// The directory is there, and git does not know it as a work tree of this repository.
    #[error("git does not know {} as a work tree of its repository", path.display())]
    Unknown {
        /// The directory.
        path: PathBuf,
        /// The checkpoint that holds what was in it, where its removal had begun.
        kept: Option<CheckpointId>,
    },
}

impl IsolationError {
    pub(super) const fn class(&self) -> ErrorClass {
        match self {
            Self::NoRepository { .. }
            | Self::Bare { .. }
            | Self::InsideGit { .. }
            | Self::Unborn { .. }
            | Self::RunNotFound { .. }
            | Self::RunRemoved { .. } => ErrorClass::Input,
            Self::NoGit
            | Self::RunAlive { .. }
            | Self::InUse { .. }
            | Self::Mounted { .. }
            | Self::Locked { .. }
            | Self::RefLocked { .. }
            | Self::Unfinished { .. }
            | Self::NotHeld { .. }
            | Self::Changing { .. }
            | Self::ApplyConflicts { .. }
            | Self::ChangesUnknown { .. }
            | Self::ChangesApart { .. }
            | Self::OtherCheckout { .. }
            | Self::Closed { .. }
            | Self::Unknown { .. } => ErrorClass::Refused,
            Self::Git { .. } | Self::NotRemoved { .. } => ErrorClass::Failed,
        }
    }

    pub(super) const fn code(&self) -> &'static str {
        match self {
            Self::NoRepository { .. } => "no-repository",
            Self::Bare { .. } => "bare-repository",
            Self::InsideGit { .. } => "inside-git",
            Self::Unborn { .. } => "unborn-branch",
            Self::NoGit => "no-git",
            Self::Git { .. } => "git",
            Self::RunNotFound { .. } => "run-not-found",
            Self::RunRemoved { .. } => "run-removed",
            Self::RunAlive { .. } => "run-alive",
            Self::InUse { .. } => "worktree-in-use",
            Self::Mounted { .. } => "worktree-mounted",
            Self::Locked { .. } => "worktree-locked",
            Self::RefLocked { .. } => "ref-locked",
            Self::Unfinished { .. } => "worktree-unfinished",
            Self::NotHeld { .. } => "worktree-not-held",
            Self::NotRemoved { .. } => "worktree-not-removed",
            Self::Changing { .. } => "worktree-changing",
            Self::ApplyConflicts { .. } => "apply-conflicts",
            Self::ChangesUnknown { .. } => "run-changes-unknown",
            Self::ChangesApart { .. } => "run-changes-apart",
            Self::OtherCheckout { .. } => "run-other-checkout",
            Self::Closed { .. } => "worktree-closed",
            Self::Unknown { .. } => "worktree-unknown",
        }
    }

    pub(super) fn hint(&self) -> Option<String> {
        let text = match self {
            Self::NoRepository { .. } => {
                "a run needs a repository with a commit; without --worktree the command runs here"
                    .to_owned()
            }
            Self::Bare { .. } | Self::InsideGit { .. } => {
                "go to a work tree of the repository, or name one with -C".to_owned()
            }
            Self::Unborn { .. } => "commit something first".to_owned(),
            Self::NoGit => "install git, or run the command without --worktree".to_owned(),
            Self::RunNotFound { .. } => "`turnpoint worktree list` shows the runs".to_owned(),
            Self::RunRemoved { .. } => {
                "`turnpoint worktree list --removed` names what was kept of it".to_owned()
            }
            Self::RunAlive { .. } => "wait for it, or end its process".to_owned(),
            Self::InUse { .. } => {
                "leave the directory there, or end the process; then try again".to_owned()
            }
            Self::Mounted { path } => format!(
                "what is in it is not of the run: `umount {}`, and try again",
                shell_word(path)
            ),
            Self::Locked { path, .. } => {
                format!("`{} worktree unlock {}` takes the lock away", git(path), shell_word(path))
            }
            Self::RefLocked { path, processes } if processes.is_empty() => {
                let seconds = limits::REF_LOCK_DEAD_AFTER.as_secs();
                format!(
                    "try again in {seconds} s; if you know that no git is at work in the repository, \
                     remove {} now",
                    path.display()
                )
            }
            Self::RefLocked { .. } => "wait for it, or end the process; then try again".to_owned(),
            Self::Unfinished { .. } => "finish or abort it there, and try again".to_owned(),
            Self::NotHeld { path, left, ignored } => not_held(path, left, *ignored),
            Self::Changing { .. } => {
                "end what writes there, and try again; what has gone of it by now is held"
                    .to_owned()
            }
            Self::ApplyConflicts { id, before, after, checkout, conflicts } => {
                let [there, here] = sides(checkout, [before, after], before, &conflicts.against);
                let apply = format!("turnpoint -C {} worktree apply {id}", shell_word(checkout));
                let rest = of_the_rest(&apply, "brings", &conflicts.free);
                // The work tree may be gone, the checkpoint is there.
                format!(
                    "nothing was written; {there} shows what was done there, {here} what was done here; \
                     change one side, here or in the work tree of {id} if that is still there, and try again\
                     {rest}; `turnpoint cat {} PATH` writes what the run made of a file",
                    after.shell_word()
                )
            }
            Self::ChangesUnknown { kept: Some(kept), .. } => {
                format!(
                    "`turnpoint restore {} --into DIR` writes its files into a new directory",
                    kept.shell_word()
                )
            }
            Self::ChangesUnknown { kept: None, .. } => {
                "`turnpoint worktree list` shows what there is of it".to_owned()
            }
            Self::ChangesApart { kept, further, .. } => apart(kept, further),
            Self::OtherCheckout { .. } => {
                "`turnpoint worktree list --json` says where it was made from".to_owned()
            }
            Self::Closed { path } => format!("`chmod u+rwx {}`, and try again", shell_word(path)),
            Self::Unknown { path, kept: Some(kept) } => format!(
                "git could not remove all of it; {kept} holds what was in it then: look at what is left \
                 in {} and remove it yourself",
                shell_word(path)
            ),
            Self::Unknown { path, kept: None } => format!(
                "if it was moved, `{} worktree repair {}`; else look at what is in it and remove it yourself",
                git(path),
                shell_word(path)
            ),
            Self::Git { reason, .. } if reason.contains(".lock': File exists") => {
                "if no git is at work in the repository, remove that file, and try again".to_owned()
            }
            Self::Git { what: REMOVE_WORK_TREE, .. } | Self::NotRemoved { .. } => {
                "what was to be held of it is held; once what stood against it is out of the way \
                 `turnpoint worktree prune` removes the rest"
                    .to_owned()
            }
            Self::Git { .. } => return None,
        };
        Some(text)
    }
}

/// What to do with what could not be held. What --ignored holds is not to be given up with what it cannot hold.
fn not_held(path: &Path, left: &[(RelPath, String)], ignored: bool) -> String {
    let run = path.file_name().unwrap_or_default().display();
    if ignored {
        return format!(
            "move what you need elsewhere; `turnpoint worktree remove --ignored --discard {run}` gives the \
             rest of it up"
        );
    }
    let is_excluded = |(_, reason): &(RelPath, String)| reason == "excluded";
    let holds = if left.iter().any(is_excluded) {
        format!("`turnpoint worktree remove --ignored {run}` holds what is only excluded; ")
    } else {
        String::new()
    };
    format!(
        "move what you need elsewhere; {holds}`turnpoint worktree remove --discard {run}` gives all of it up"
    )
}

/// What a command of git about the work tree at `path` begins with, wherever one stands.
fn git(path: &Path) -> String {
    // It lies in `.turnpoint/worktrees` of the checkout.
    format!("git -C {}", shell_word(path.ancestors().nth(3).unwrap_or(path)))
}

/// What there is of a run of which no single checkpoint has all.
fn apart(kept: &CheckpointId, further: &[CheckpointId]) -> String {
    let kept = kept.shell_word();
    let shown = |later: &CheckpointId| format!("`turnpoint diff {kept} {}`", later.shell_word());
    let shown: Vec<String> = further.iter().map(shown).collect();
    format!(
        "`turnpoint restore {kept} --into DIR` writes its files into a new directory, as they were when its \
         removal began; {} shows what came after that, beside what was deleted by then",
        shown.join(", ")
    )
}
