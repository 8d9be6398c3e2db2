//! What can be typed.

mod asking;
mod bisect;
mod checkpoint;
mod config;
mod going_back;
mod history;
mod retention;
mod shell;

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use turnpoint::id::{OperationId, WorkspaceId};
use turnpoint::manifest::Trigger;

use crate::cli::{exec::ExecArguments, propose::ProposeArguments, worktree::WorktreeArguments};

pub(crate) use asking::{AnswerFormat, SqlArguments};
pub(crate) use bisect::BisectArguments;
pub(crate) use checkpoint::{AtArguments, CheckpointArguments, PathsArguments};
pub(crate) use config::{ConfigArguments, ConfigCommand};
pub(crate) use going_back::{
    ChangeArguments, PlanArguments, RedoArguments, RevertArguments, RewindArguments, UndoArguments,
};
pub(crate) use history::{DiffArguments, ExportArguments, FindArguments, LogArguments};
pub(crate) use retention::{GcArguments, PruneArguments, PurgeArguments};
pub(crate) use shell::{CompleteArguments, CompletionsArguments, ManArguments, Shell};

/// Checkpoints of a coding agent's workspace: capture each turn, look at it, go back to it.
///
/// A checkpoint is the state of a workspace (a directory tree) at one moment. It is named by its
/// session and its number there: `SESSION SEQ` or `SESSION:SEQ`. Without a session the one is meant that
/// `TURNPOINT_SESSION` names, else the newest of this workspace; `latest` is the newest checkpoint that
/// is no safety checkpoint, `latest~2` the second before it, and `@LABEL` the newest with that label.
///
/// The workspace is the directory given with -C; else the nearest known workspace at or above the
/// current directory; else the top of its git repository; else the current directory.
#[derive(Debug, Parser)]
#[command(
    name = "turnpoint",
    version,
    max_term_width = 100,
    after_help = "Examples:\n  \
                  turnpoint capture --label 'before the refactor'\n  \
                  turnpoint list\n  \
                  turnpoint restore --dry-run latest\n  \
                  turnpoint restore latest\n  \
                  turnpoint undo\n\n\
                  Ends with 0: done; 1: failed; 2: not understood, or not found; 3: refused, so that nothing \
                  is lost; 4: done, but something is damaged; 5: another process was in the way.\n\n\
                  The store is in TURNPOINT_HOME; by default in the `turnpoint` directory of the user's data."
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) global: GlobalArguments,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct GlobalArguments {
    /// Work in this directory: it is the workspace, and relative paths start there
    #[arg(short = 'C', global = true, value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,
    /// Which workspace this is, where path and directory disagree
    #[arg(long, global = true, value_name = "ID")]
    pub(crate) workspace: Option<WorkspaceId>,
    /// Answer with one JSON document; never ask
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Only what was asked for, warnings and errors
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Long lists in full
    #[arg(short, long, global = true, conflicts_with = "quiet")]
    pub(crate) verbose: bool,
    /// Append to FILE what is done and how long it takes
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) log_file: Option<PathBuf>,
    /// When to use colors: `auto` (on a terminal, unless `NO_COLOR` is set), `always`, `never`
    #[arg(long, global = true, value_enum, value_name = "WHEN", hide_possible_values = true)]
    pub(crate) color: Option<ColorWhen>,
}

/// When to use colors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorWhen {
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Capture(CaptureArguments),
    List(ListArguments),
    Show(ShowArguments),
    Ls(LsArguments),
    Cat(CatArguments),
    Diff(DiffArguments),
    Log(LogArguments),
    Find(FindArguments),
    Bisect(BisectArguments),
    Export(ExportArguments),
    Restore(RestoreArguments),
    Rewind(RewindArguments),
    Undo(UndoArguments),
    Redo(RedoArguments),
    Revert(RevertArguments),
    Exec(ExecArguments),
    Plan(ProposeArguments),
    Worktree(WorktreeArguments),
    Pin(PinArguments),
    Unpin(UnpinArguments),
    Label(LabelArguments),
    Prune(PruneArguments),
    Purge(PurgeArguments),
    Gc(GcArguments),
    Stats(StatsArguments),
    Operations(OperationsArguments),
    Verify(VerifyArguments),
    Doctor(DoctorArguments),
    Quarantine(QuarantineArguments),
    Sql(SqlArguments),
    Completions(CompletionsArguments),
    Man(ManArguments),
    #[command(hide = true)]
    Complete(CompleteArguments),
    Config(ConfigArguments),
    /// The names of another tool for `list` and `restore`
    Checkpoints {
        #[command(subcommand)]
        command: CheckpointsCommand,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum CheckpointsCommand {
    List(ListArguments),
    Restore(RestoreArguments),
}

/// Capture the workspace as a new checkpoint
///
/// Reads only what has changed since the last one. What a checkpoint does not hold (secrets by name,
/// ignored files, build folders, files above 8 MiB) it names with the reason. Ends with 4 if
/// something could not be read whole.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                        turnpoint capture\n  \
                        turnpoint capture --session fix-login --label 'before the refactor'\n  \
                        turnpoint capture --trigger turn-end --if-changed --json\n  \
                        printf 'src/main.rs\\n' | turnpoint capture --changed-from -")]
pub(crate) struct CaptureArguments {
    /// The session to add to [default: that of the settings, else that of the workspace]
    #[arg(long, value_name = "NAME")]
    pub(crate) session: Option<String>,
    /// A name for people
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    /// What made it: a short word such as turn-start or turn-end
    #[arg(long, value_name = "WORD", default_value = "manual", value_parser = trigger)]
    pub(crate) trigger: Trigger,
    /// Look only at the paths listed in FILE (`-`: standard input), and beside them: a promise that
    /// nothing else has changed since the newest checkpoint. One path a line, or with a NUL after each, as
    /// seen from here
    #[arg(long, value_name = "FILE")]
    pub(crate) changed_from: Option<PathBuf>,
    /// Make none if nothing differs from the newest checkpoint of the workspace
    #[arg(long)]
    pub(crate) if_changed: bool,
    /// Store nothing if something could not be read whole
    #[arg(long)]
    pub(crate) strict: bool,
    /// Capture `/`, the home directory, or what contains it
    #[arg(long)]
    pub(crate) force: bool,
}

/// A number that is counted with, from 1 on.
pub(super) fn count(text: &str) -> Result<NonZeroU32, String> {
    text.parse().map_err(|_| "a number from 1 on is expected".to_owned())
}

/// A number, which may be 0.
pub(super) fn number<N: FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| "a number is expected".to_owned())
}

/// A length of time as people write it: `7d`, `36h`, `1h30m`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let expected = || format!("a time such as 7d, 36h or 90m is expected, not `{text}`");
    turnpoint::clock::length_of(text).ok_or_else(expected)
}

fn trigger(text: &str) -> Result<Trigger, String> {
    match Trigger::new(text) {
        Some(trigger) if trigger.is_safety() => {
            Err("it is kept for what a restore saves first".to_owned())
        }
        Some(trigger) => Ok(trigger),
        None => Err("1 to 32 lower-case letters, digits and dashes are expected".to_owned()),
    }
}

/// List checkpoints, the newest last
///
/// Without options: those of this workspace, by session, that with the newest checkpoint last. READ is how
/// many files were read for it because they were new or seemed to have changed.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                        turnpoint list\n  \
                        turnpoint list -n 5\n  \
                        turnpoint list --sessions\n  \
                        turnpoint list fix-login --json")]
pub(crate) struct ListArguments {
    /// All checkpoints of this session, of whatever workspace
    #[arg(long, value_name = "NAME")]
    pub(crate) session: Option<String>,
    /// The same as --session
    #[arg(value_name = "SESSION", conflicts_with = "session")]
    pub(crate) word: Option<String>,
    /// The sessions of the whole store instead
    #[arg(long, conflicts_with_all = ["session", "word"])]
    pub(crate) sessions: bool,
    /// With --sessions: also those of runs whose work trees are gone
    #[arg(short, long, requires = "sessions")]
    pub(crate) all: bool,
    /// Only the newest N
    #[arg(short = 'n', long, value_name = "N", value_parser = count)]
    pub(crate) limit: Option<NonZeroU32>,
    /// Do not show the output with a pager
    #[arg(long)]
    pub(crate) no_pager: bool,
}

/// Show what is known about a checkpoint
///
/// Without CHECKPOINT: the newest of this workspace.
#[derive(Debug, Args)]
#[command(override_usage = "turnpoint show [OPTIONS] [[SESSION] SEQ]")]
#[command(after_help = "Examples:\n  \
                        turnpoint show\n  \
                        turnpoint show fix-login 3")]
pub(crate) struct ShowArguments {
    #[command(flatten)]
    pub(crate) checkpoint: CheckpointArguments,
}

/// List what a checkpoint holds in a directory
///
/// Without CHECKPOINT: the newest of this workspace. Paths are relative to the current directory.
#[derive(Debug, Args)]
#[command(override_usage = "turnpoint ls [OPTIONS] [[SESSION] SEQ] [PATH]")]
#[command(after_help = "Examples:\n  \
                        turnpoint ls latest src\n  \
                        turnpoint ls fix-login:3 --recursive\n  \
                        turnpoint ls latest --omitted")]
pub(crate) struct LsArguments {
    #[command(flatten)]
    pub(crate) target: PathsArguments,
    /// The session, where CHECKPOINT names none
    #[arg(long, value_name = "NAME")]
    pub(crate) session: Option<String>,
    /// Everything below, not only the names in the directory
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Only what is not held, everywhere below, with the reasons
    #[arg(long)]
    pub(crate) omitted: bool,
}

/// Write a file's content as a checkpoint holds it
#[derive(Debug, Args)]
#[command(override_usage = "turnpoint cat [OPTIONS] [SESSION] SEQ PATH")]
#[command(after_help = "Examples:\n  \
                        turnpoint cat latest src/main.rs\n  \
                        turnpoint cat fix-login:3 notes.txt > notes.old")]
pub(crate) struct CatArguments {
    #[command(flatten)]
    pub(crate) target: PathsArguments,
    /// The session, where CHECKPOINT names none
    #[arg(long, value_name = "NAME")]
    pub(crate) session: Option<String>,
}

/// Put the workspace, or some paths of it, back to a checkpoint
///
/// First the present state is saved as a safety checkpoint, so that `turnpoint undo` can take the
/// restore back; then everything new is staged and checked; then the changes are made. Only what
/// differs is touched, and nothing is removed that the checkpoint does not show to have been absent: one that
/// was made with `capture --changed-from` shows that only where it looked, and what is new elsewhere stays.
/// Shows the plan and asks; without a terminal it needs --yes. On a terminal, without a checkpoint, there
/// is a list to choose from.
#[derive(Debug, Args)]
#[command(
    override_usage = "turnpoint restore [OPTIONS] [[SESSION] SEQ] [PATH]...\n       turnpoint restore [OPTIONS] <--apply FILE|--continue|--abort>"
)]
#[command(after_help = "Examples:\n  \
                        turnpoint restore --dry-run latest\n  \
                        turnpoint restore latest~1\n  \
                        turnpoint restore fix-login 3 src/main.rs --yes\n  \
                        turnpoint restore --at 10m src\n  \
                        turnpoint restore fix-login:3 --into ../old")]
pub(crate) struct RestoreArguments {
    #[command(flatten)]
    pub(crate) target: PathsArguments,
    #[command(flatten)]
    pub(crate) plan: PlanArguments,
    #[command(flatten)]
    pub(crate) change: ChangeArguments,
    /// Carry out the plan in this file, or refuse if something is not as it was
    #[arg(long, value_name = "FILE", conflicts_with_all = ["words", "paths", "at", "plan_out", "thorough", "preserve_mtime"])]
    pub(crate) apply: Option<PathBuf>,
    /// Write the checkpoint into this new or empty directory, and leave the workspace alone
    #[arg(long, value_name = "DIR", conflicts_with_all = ["plan_out", "apply"])]
    pub(crate) into: Option<PathBuf>,
    /// With --into: DIR may hold something, of which nothing is deleted
    #[arg(long, requires = "into")]
    pub(crate) overlay: bool,
    /// Complete a restore of this workspace that was interrupted
    #[arg(long = "continue", conflicts_with_all = ["words", "paths", "at", "dry_run", "plan_out", "apply", "into", "abort"])]
    pub(crate) resume: bool,
    /// End a restore of this workspace that was interrupted, where it stands
    #[arg(long, conflicts_with_all = ["words", "paths", "at", "dry_run", "plan_out", "apply", "into"])]
    pub(crate) abort: bool,
}

/// Pin a checkpoint, so that it is never pruned
#[derive(Debug, Args)]
#[command(override_usage = "turnpoint pin [OPTIONS] [SESSION] SEQ")]
#[command(after_help = "Example:\n  turnpoint pin fix-login 3 --note 'last one that worked'")]
pub(crate) struct PinArguments {
    #[command(flatten)]
    pub(crate) checkpoint: CheckpointArguments,
    /// A remark for people
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,
}

/// Unpin a checkpoint
#[derive(Debug, Args)]
#[command(override_usage = "turnpoint unpin [OPTIONS] [SESSION] SEQ")]
#[command(after_help = "Example:\n  turnpoint unpin fix-login 3")]
pub(crate) struct UnpinArguments {
    #[command(flatten)]
    pub(crate) checkpoint: CheckpointArguments,
}

/// Give a checkpoint a label, in place of the one it has
///
/// A label does not keep a checkpoint from being pruned; `turnpoint pin` does.
#[derive(Debug, Args)]
#[command(
    override_usage = "turnpoint label [OPTIONS] [SESSION] SEQ TEXT\n       turnpoint label [OPTIONS] [SESSION] SEQ --clear"
)]
#[command(after_help = "Examples:\n  \
                        turnpoint label fix-login 3 'before the refactor'\n  \
                        turnpoint label latest --clear")]
pub(crate) struct LabelArguments {
    /// SEQ, SESSION SEQ, SESSION:SEQ, latest, latest~N, or @LABEL; then the label
    #[arg(value_name = "CHECKPOINT")]
    pub(crate) words: Vec<OsString>,
    #[command(flatten)]
    pub(crate) time: AtArguments,
    /// The session, where CHECKPOINT names none
    #[arg(long, value_name = "NAME")]
    pub(crate) session: Option<String>,
    /// Go back to the label it was captured with, if any
    #[arg(long)]
    pub(crate) clear: bool,
}

/// Show what holds the space
///
/// By session and in all: what as many plain copies would take, what is stored, and how much of that only
/// this session needs; what `turnpoint gc` would free; and what the store takes on the disk.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  turnpoint stats\n  turnpoint stats --session fix-login --json"
)]
pub(crate) struct StatsArguments {
    /// Only this session
    #[arg(long, value_name = "NAME")]
    pub(crate) session: Option<String>,
}

/// Show what was restored, dropped, removed and repaired, and why
///
/// Captures are not among it: `turnpoint list` shows those. The newest is last.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  turnpoint operations\n  turnpoint operations --limit 1000 --json"
)]
pub(crate) struct OperationsArguments {
    /// How many lines, the newest
    #[arg(short = 'n', long, value_name = "N", default_value_t = 30, value_parser = number::<usize>)]
    pub(crate) limit: usize,
}

/// Check that everything the checkpoints name is there and whole
///
/// Changes nothing. Ends with 4 if something is not as it should be.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  turnpoint verify\n  turnpoint verify --read-data")]
pub(crate) struct VerifyArguments {
    /// Read every file's content and compare it with its hash
    #[arg(long)]
    pub(crate) read_data: bool,
}

/// Find what is wrong with the store, or repair it
///
/// Looks at everything but content: what `turnpoint verify` checks, permissions, operations and
/// restores that did not end, what they left, content that nothing needs, the room there is. Names each
/// thing with the next step, and repairs nothing. Ends with 4 if there is a problem, with 0 if there are
/// only notes.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                        turnpoint doctor\n  \
                        turnpoint doctor --fix\n  \
                        turnpoint doctor --rebuild")]
pub(crate) struct DoctorArguments {
    /// Repair what can be repaired without losing anything, and say what was done and what is left.
    /// What is damaged and made anew is kept; what could be content is never removed
    #[arg(long, conflicts_with_all = ["rebuild", "forget_operation"])]
    pub(crate) fix: bool,
    /// Build the index anew from the checkpoints, and the store's own files that are damaged and
    /// follow from them; waits for running operations
    #[arg(long)]
    pub(crate) rebuild: bool,
    /// Forget an operation of another machine that is over, so that content can be removed again
    #[arg(long, value_name = "ID", conflicts_with = "rebuild")]
    pub(crate) forget_operation: Option<OperationId>,
}

/// Put a damaged file of the store out of the way
///
/// Moves a damaged manifest, pin, blob or pack into `quarantine/`, under the same path; what is whole of
/// a pack is saved first. The checkpoint of a manifest is given up with it: a manifest that cannot be
/// understood keeps `turnpoint gc` from deleting anything. Asks; without a terminal it needs --yes. To
/// take it back, move the file back.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                        turnpoint quarantine --dry-run fix-login/3.json\n  \
                        turnpoint quarantine fix-login/3.json")]
pub(crate) struct QuarantineArguments {
    /// The file, as `turnpoint doctor` names it: its path in the store, or from `/` on
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Show what would be done and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_of_the_arguments_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_trigger_is_a_short_word_and_not_that_of_a_safety_checkpoint() {
        assert!(trigger("turn-end").is_ok());
        assert!(trigger("Turn End").is_err());
        assert!(trigger("pre-restore").is_err());
    }
}
