//! Going back: what the commands share that change the workspace, and the arguments of those that take little.

use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::Args;
use turnpoint::Spec;

use super::count;
use crate::cli::arguments::PathsArguments;

/// What is done with a plan beside carrying it out.
#[derive(Debug, Args)]
pub(crate) struct PlanArguments {
    /// Show the plan and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Write the plan to this new file outside of the workspace, and change nothing
    #[arg(long, value_name = "FILE", conflicts_with = "yes")]
    pub(crate) plan_out: Option<PathBuf>,
}

/// How the workspace is changed.
#[derive(Debug, Args)]
pub(crate) struct ChangeArguments {
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// The session of the safety checkpoint, and of a checkpoint without one
    #[arg(long, value_name = "NAME")]
    pub(crate) session: Option<String>,
    /// Compare every file by content, and trust no time stamp
    #[arg(long)]
    pub(crate) thorough: bool,
    /// Put recorded modification times back, by which builds do not see the change
    #[arg(long)]
    pub(crate) preserve_mtime: bool,
    /// Restore `/`, the home directory, or what contains it
    #[arg(long)]
    pub(crate) force: bool,
}

/// Put the workspace back to the start of a turn
///
/// N is 1 for the last turn, 2 for the one before it. Turns are those of one session: each begins at a
/// checkpoint with the trigger turn-start, whether or not it came to its end, and one that has an end and
/// no start begins at the checkpoint before its end. In a session without such triggers each checkpoint
/// that no restore made is the start of a turn. They are counted in what was captured, not from where a
/// rewind has led: the same command again finds nothing to do.
///
/// Everything else is as in `turnpoint restore` of that checkpoint: where it was made with
/// `capture --changed-from`, what is new outside of where it looked stays.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                        turnpoint rewind\n  \
                        turnpoint rewind 1 --dry-run\n  \
                        turnpoint rewind 3 --session fix-login")]
pub(crate) struct RewindArguments {
    /// Which turn, counted from the last; without it a list to choose from on a terminal, else 1
    #[arg(value_name = "N", value_parser = turns)]
    pub(crate) turns: Option<NonZeroU32>,
    #[command(flatten)]
    pub(crate) plan: PlanArguments,
    #[command(flatten)]
    pub(crate) change: ChangeArguments,
}

fn turns(text: &str) -> Result<NonZeroU32, String> {
    // A number is of a turn, whatever is wrong with it.
    let is_checkpoint = text.parse::<Spec>().is_ok() && text.parse::<u64>().is_err();
    let hint =
        if is_checkpoint { "\n\nhint: `turnpoint restore` goes back to a checkpoint" } else { "" };
    count(text).map_err(|error| format!("{error}{hint}"))
}

/// Take back the newest restore of this workspace
///
/// Only the paths that it touched. What was worked on since is a conflict and stays as it is.
/// Repeated, it goes further back;
/// `turnpoint redo` takes it back. Shows the plan and asks; without a terminal it needs --yes.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                        turnpoint undo --dry-run\n  \
                        turnpoint undo")]
pub(crate) struct UndoArguments {
    #[command(flatten)]
    pub(crate) plan: PlanArguments,
    #[command(flatten)]
    pub(crate) change: ChangeArguments,
}

/// Take back the newest undo of this workspace
///
/// Only the paths that it touched. What was worked on since is a conflict and stays as it is.
/// Repeated, it goes on to the undo before; `turnpoint undo` takes it back. A restore in between ends
/// it, as in editors. Shows the plan and asks; without a terminal it needs --yes.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                        turnpoint redo --dry-run\n  \
                        turnpoint redo")]
pub(crate) struct RedoArguments {
    #[command(flatten)]
    pub(crate) plan: PlanArguments,
    #[command(flatten)]
    pub(crate) change: ChangeArguments,
}

/// Take back what one checkpoint changed, and keep later work
///
/// What it changed is what is not as in the checkpoint before it in its session. A file that is still as it
/// left it is put back; a text that was changed since is merged line by line. Where later work changed the
/// same lines, or a file that is not text, nothing at all is written and each such path is named, with 3.
/// With paths only what it changed there is taken back, and nothing else stands against it.
/// Where the checkpoint before it was made with `capture --changed-from`, what is new outside of where that
/// one looked stays.
/// Shows the plan and asks; without a terminal it needs --yes. `turnpoint undo` takes it back.
#[derive(Debug, Args)]
#[command(override_usage = "turnpoint revert [OPTIONS] [SESSION] SEQ [PATH]...")]
#[command(after_help = "Examples:\n  \
                        turnpoint revert --dry-run fix-login 3\n  \
                        turnpoint revert latest~1\n  \
                        turnpoint revert fix-login 3 src/parser.rs")]
pub(crate) struct RevertArguments {
    #[command(flatten)]
    pub(crate) target: PathsArguments,
    #[command(flatten)]
    pub(crate) plan: PlanArguments,
    #[command(flatten)]
    pub(crate) change: ChangeArguments,
}
