//! What can be typed.

mod config;

pub(crate) use config::{ConfigArguments, ConfigCommand};

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use turnpoint::id::{OperationId, WorkspaceId};
use turnpoint::manifest::Trigger;

/// Checkpoints of a coding agent's workspace: capture each turn, look at it, go back to it.
///
/// A checkpoint is the state of a workspace (a directory tree) at one moment. It is named by its
/// session and its number there: `SESSION SEQ` or `SESSION:SEQ`. Without a session the newest one of
/// this workspace is meant; `latest` is the newest checkpoint, `latest~2` the second before it, and
/// `@LABEL` the newest with that label.
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
    /// Which workspace the directory is, where its path and the directory itself disagree
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
    /// When to use colors; `auto`: on a terminal, unless `NO_COLOR` is set
    #[arg(long, global = true, value_enum, value_name = "WHEN")]
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
    Export(ExportArguments),
    Restore(RestoreArguments),
    Undo(UndoArguments),
    Pin(PinArguments),
    Unpin(UnpinArguments),
    Label(LabelArguments),
    Prune(PruneArguments),
    Gc(GcArguments),
    Stats(StatsArguments),
    Operations(OperationsArguments),
    Verify(VerifyArguments),
    Doctor(DoctorArguments),
    Quarantine(QuarantineArguments),
    Sql(SqlArguments),
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
    /// The session to add to [default: that of the workspace]
    #[arg(long, value_name = "NAME")]
    pub(crate) session: Option<String>,
    /// A name for people
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    /// What made it: a short word such as turn-start or turn-end
    #[arg(long, value_name = "WORD", default_value = "manual", value_parser = trigger)]
    pub(crate) trigger: Trigger,
    /// Look only at the paths listed in FILE (`-`: standard input), and beside them: a promise that
    /// nothing else has changed since the newest checkpoint. One path a line, or with a NUL after each
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

/// A length of time as people write it: `7d`, `36h`, `1h30m`.
fn duration(text: &str) -> Result<Duration, String> {
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
/// Without options: those of this workspace, by session.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                        turnpoint list\n  \
                        turnpoint list --sessions\n  \
                        turnpoint list --session fix-login --json")]
pub(crate) struct ListArguments {
    /// All checkpoints of this session, of whatever workspace
    #[arg(long, value_name = "NAME")]
    pub(crate) session: Option<String>,
    /// The sessions of the whole store instead
    #[arg(long, conflicts_with = "session")]
    pub(crate) sessions: bool,
}

/// The checkpoint that a command is about.
#[derive(Debug, Args)]
pub(crate) struct CheckpointArguments {
    /// SEQ, SESSION SEQ, SESSION:SEQ, latest, or latest~N
    #[arg(value_name = "CHECKPOINT")]
    pub(crate) words: Vec<OsString>,
    /// The session, where CHECKPOINT names none
    #[arg(long, value_name = "NAME")]
    pub(crate) session: Option<String>,
}

/// A checkpoint and paths in it.
#[derive(Debug, Args)]
pub(crate) struct PathsArguments {
    /// SEQ, SESSION SEQ, SESSION:SEQ, latest, or latest~N; then paths, as seen from here
    #[arg(value_name = "CHECKPOINT")]
    pub(crate) words: Vec<OsString>,
    /// Paths that look like a number or an option, after `--`
    #[arg(last = true, value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
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

/// Show what differs between two checkpoints, or a checkpoint and the disk
///
/// Without B: the disk, looked at by the rules of a capture; nothing is stored. Paths come after the
/// checkpoints, or after `--`: each with everything below it, or a pattern as in git. What a checkpoint
/// does not hold is not compared, and is counted.
#[derive(Debug, Args)]
#[command(override_usage = "turnpoint diff [OPTIONS] [SESSION] A [B] [-- PATH...]")]
#[command(after_help = "Examples:\n  \
                        turnpoint diff latest\n  \
                        turnpoint diff fix-login 0 2 --stat\n  \
                        turnpoint diff latest~1 latest --patch -- src '*.md'\n  \
                        turnpoint diff fix-login:0 -p | git apply --reverse")]
pub(crate) struct DiffArguments {
    /// A and B, each SEQ, SESSION SEQ, SESSION:SEQ, latest, or latest~N; then paths, as seen from here
    #[arg(value_name = "CHECKPOINT", required = true)]
    pub(crate) words: Vec<OsString>,
    /// Paths that look like a checkpoint or an option, after `--`
    #[arg(last = true, value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
    /// The session, where A names none
    #[arg(long, value_name = "NAME")]
    pub(crate) session: Option<String>,
    /// How many lines of each file were added and removed
    #[arg(long, conflicts_with_all = ["name_status", "patch", "nul"])]
    pub(crate) stat: bool,
    /// One letter and one path a line, as git has them, and nothing else
    #[arg(long, conflicts_with = "patch")]
    pub(crate) name_status: bool,
    /// The lines that differ, as a patch that `git apply` takes
    #[arg(short, long)]
    pub(crate) patch: bool,
    /// As --name-status, with a NUL after each field and names as they are
    #[arg(short = 'z', conflicts_with = "patch")]
    pub(crate) nul: bool,
    /// End with 1 if anything differs
    #[arg(long)]
    pub(crate) exit_code: bool,
    /// A path that was renamed is one that was deleted and one that was added
    #[arg(long)]
    pub(crate) no_renames: bool,
    /// Do not show the output with a pager
    #[arg(long)]
    pub(crate) no_pager: bool,
    /// Look at `/`, the home directory, or what contains it
    #[arg(long)]
    pub(crate) force: bool,
}

/// Show which checkpoints of a session changed a path, the newest last
///
/// Of a directory: what changed below it. The first checkpoint of a session adds everything it holds;
/// each other is compared with the one before it. A rename is a deletion and an addition here.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                        turnpoint log src/main.rs\n  \
                        turnpoint log src --session fix-login --json\n  \
                        turnpoint log notes.txt --patch")]
pub(crate) struct LogArguments {
    /// A file or a directory, as seen from here
    #[arg(value_name = "PATH")]
    pub(crate) path: OsString,
    /// The session [default: the newest of this workspace]
    #[arg(long, value_name = "NAME")]
    pub(crate) session: Option<String>,
    /// The lines that each checkpoint changed
    #[arg(short, long)]
    pub(crate) patch: bool,
    /// Do not show the output with a pager
    #[arg(long)]
    pub(crate) no_pager: bool,
}

/// Find which checkpoints have a path of some name, the newest first
///
/// A name, or a pattern such as '*.rs', is compared with the last name of each path; with a slash in it,
/// with whole paths from the top of the workspace. Checkpoints that follow one another are one line.
/// Names whose content is not held are found too, with the reason.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                        turnpoint find parser.rs\n  \
                        turnpoint find 'src/**/*.sql' --json\n  \
                        turnpoint find notes.txt --session fix-login")]
pub(crate) struct FindArguments {
    /// A name or a pattern
    #[arg(value_name = "NAME")]
    pub(crate) name: OsString,
    /// Only in this session, of whatever workspace
    #[arg(long, value_name = "NAME")]
    pub(crate) session: Option<String>,
    /// Do not show the output with a pager
    #[arg(long)]
    pub(crate) no_pager: bool,
}

/// Write a checkpoint, of whatever workspace, as a directory or a tar archive
///
/// All of its content is there and whole before an archive is begun; what the checkpoint does not hold is
/// not in it, and is named. The same checkpoint gives the same archive, to the byte.
#[derive(Debug, Args)]
#[command(
    override_usage = "turnpoint export [OPTIONS] [SESSION] SEQ <DIR|--tar FILE> [-- PATH...]"
)]
#[command(after_help = "Examples:\n  \
                        turnpoint export fix-login 3 ../old\n  \
                        turnpoint export latest --tar state.tar -- src\n  \
                        turnpoint export fix-login:3 --tar - | zstd > state.tar.zst")]
pub(crate) struct ExportArguments {
    /// SEQ, SESSION SEQ, SESSION:SEQ, latest, or latest~N; then a new or empty directory
    #[arg(value_name = "CHECKPOINT", required = true)]
    pub(crate) words: Vec<OsString>,
    /// Only these paths, each with everything below it, after `--`
    #[arg(last = true, value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
    /// The session, where CHECKPOINT names none
    #[arg(long, value_name = "NAME")]
    pub(crate) session: Option<String>,
    /// Write an archive: a new file, or standard output (`-`)
    #[arg(long, value_name = "FILE")]
    pub(crate) tar: Option<PathBuf>,
}

/// Put the workspace, or some paths of it, back to a checkpoint
///
/// First the present state is saved as a safety checkpoint, so that `turnpoint undo` can take the
/// restore back; then everything new is staged and checked; then the changes are made. Only what
/// differs is touched, and nothing is removed that the checkpoint does not show to have been absent.
/// Shows the plan and asks; without a terminal it needs --yes.
#[derive(Debug, Args)]
#[command(
    override_usage = "turnpoint restore [OPTIONS] [SESSION] SEQ [PATH]...\n       turnpoint restore [OPTIONS] <--continue|--abort>"
)]
#[command(after_help = "Examples:\n  \
                        turnpoint restore --dry-run latest\n  \
                        turnpoint restore latest~1\n  \
                        turnpoint restore fix-login 3 src/main.rs --yes\n  \
                        turnpoint restore fix-login:3 --into ../old")]
pub(crate) struct RestoreArguments {
    #[command(flatten)]
    pub(crate) target: PathsArguments,
    /// Show the plan and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) change: ChangeArguments,
    /// Write the checkpoint into this directory, which is new or empty, and leave the workspace alone
    #[arg(long, value_name = "DIR", conflicts_with = "dry_run")]
    pub(crate) into: Option<PathBuf>,
    /// Complete a restore of this workspace that was interrupted
    #[arg(long = "continue", conflicts_with_all = ["words", "paths", "dry_run", "into", "abort"])]
    pub(crate) resume: bool,
    /// End a restore of this workspace that was interrupted, where it stands
    #[arg(long, conflicts_with_all = ["words", "paths", "dry_run", "into"])]
    pub(crate) abort: bool,
}

/// How the workspace is changed.
#[derive(Debug, Args)]
pub(crate) struct ChangeArguments {
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// The session that the safety checkpoint goes to, and that of CHECKPOINT where it names none
    #[arg(long, value_name = "NAME")]
    pub(crate) session: Option<String>,
    /// Compare every file by content, and trust no time stamp
    #[arg(long)]
    pub(crate) thorough: bool,
    /// Put recorded modification times back, instead of the present time that builds rely on
    #[arg(long)]
    pub(crate) preserve_mtime: bool,
    /// Restore `/`, the home directory, or what contains it
    #[arg(long)]
    pub(crate) force: bool,
}

/// Take back the newest restore of this workspace
///
/// Only the paths that it touched. What was worked on since is a conflict and stays as it is.
/// Repeated, it goes further back. Shows the plan and asks; without a terminal it needs --yes.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                        turnpoint undo --dry-run\n  \
                        turnpoint undo")]
pub(crate) struct UndoArguments {
    /// Show the plan and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) change: ChangeArguments,
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
    /// SEQ, SESSION SEQ, SESSION:SEQ, latest, or latest~N; then the label
    #[arg(value_name = "CHECKPOINT", required = true)]
    pub(crate) words: Vec<OsString>,
    /// The session, where CHECKPOINT names none
    #[arg(long, value_name = "NAME")]
    pub(crate) session: Option<String>,
    /// Go back to the label it was captured with, if any
    #[arg(long)]
    pub(crate) clear: bool,
}

/// Drop old checkpoints
///
/// What the settings say stays: of each session the newest 20, with as many safety checkpoints, unless
/// `retention.keep` and its like say otherwise. Each capture does this for its own session. A --keep-...
/// rule takes the place of its setting for this once; what one rule keeps stays. Pinned checkpoints, and
/// the newest of each workspace, always stay. With a rule it asks; without a terminal it needs --yes.
/// `turnpoint gc` then frees the space.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                        turnpoint prune --dry-run\n  \
                        turnpoint prune --keep 5 --session fix-login\n  \
                        turnpoint prune --keep 0 --keep-within 7d --keep-daily 30\n  \
                        turnpoint prune --session fix-login --delete")]
pub(crate) struct PruneArguments {
    /// The newest N of a session stay
    #[arg(long, value_name = "N")]
    pub(crate) keep: Option<u32>,
    /// Those of the last days or hours stay too, such as `7d` or `36h`
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) keep_within: Option<Duration>,
    /// The newest of each of the last N hours that have one stays too
    #[arg(long, value_name = "N")]
    pub(crate) keep_hourly: Option<u32>,
    /// The newest of each of the last N days that have one stays too
    #[arg(long, value_name = "N")]
    pub(crate) keep_daily: Option<u32>,
    /// The newest of each of the last N weeks that have one stays too
    #[arg(long, value_name = "N")]
    pub(crate) keep_weekly: Option<u32>,
    /// Only this session
    #[arg(long, value_name = "NAME")]
    pub(crate) session: Option<String>,
    /// Delete the session: all its checkpoints, the newest too, but pinned ones
    #[arg(
        long,
        requires = "session",
        conflicts_with_all = ["keep", "keep_within", "keep_hourly", "keep_daily", "keep_weekly"]
    )]
    pub(crate) delete: bool,
    /// With --delete: pinned checkpoints too
    #[arg(long, requires = "delete")]
    pub(crate) pinned: bool,
    /// Show what would be dropped and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
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
    #[arg(short = 'n', long, value_name = "N", default_value_t = 30)]
    pub(crate) limit: usize,
}

/// Drop old checkpoints and free the space that they took
///
/// Removes the content that no checkpoint needs any more. Content that lost its last checkpoint less
/// than a minute ago stays until the next time. While something in the store cannot be understood
/// that may name content nothing is deleted, and that is named.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  turnpoint gc --dry-run\n  turnpoint gc")]
pub(crate) struct GcArguments {
    /// Show what would be removed and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
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

/// Ask a question in SQL about the history
///
/// One SELECT, given as QUERY or in standard input; on a terminal without QUERY a prompt. It only reads,
/// whatever the text says. --schema shows the views that can be asked; docs/sql.md has ready-made
/// questions.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                        turnpoint sql --schema\n  \
                        turnpoint sql 'SELECT path, change FROM turn_changes'\n  \
                        turnpoint sql --format csv 'SELECT * FROM session_summary' > sessions.csv\n  \
                        turnpoint sql --json --limit 10 < query.sql")]
pub(crate) struct SqlArguments {
    /// The query; `-`: what standard input says
    #[arg(value_name = "QUERY", conflicts_with = "schema")]
    pub(crate) query: Option<String>,
    /// How to print the answer [default: table]
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) format: Option<AnswerFormat>,
    /// Show the views and their columns instead; with --verbose, what each column means
    #[arg(long)]
    pub(crate) schema: bool,
    /// Stop a query after so many seconds; 0: never [default: 30]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) timeout: Option<Duration>,
    /// Only the first rows of the answer
    #[arg(long, value_name = "ROWS")]
    pub(crate) limit: Option<u64>,
}

/// How an answer is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AnswerFormat {
    /// Columns, for people
    Table,
    /// Comma-separated values, as RFC 4180 has them
    Csv,
    /// One JSON document
    Json,
    /// One JSON object a line for each row
    Ndjson,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "a number of seconds is expected".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|_| "a number of seconds is expected".to_owned())
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
