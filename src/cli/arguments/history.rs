//! What the commands are told that compare checkpoints, search them, and write them out.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use super::AtArguments;

/// Show what differs between two checkpoints, or a checkpoint and the disk
///
/// Without A: the newest checkpoint. Without B: the disk, looked at by the rules of a capture; nothing is
/// stored. Paths come after the
/// checkpoints, or after `--`: each with everything below it, or a pattern as in git. What a checkpoint
/// does not hold is not compared, and is counted.
#[derive(Debug, Args)]
#[command(override_usage = "turnpoint diff [OPTIONS] [[SESSION] A [B]] [-- PATH...]")]
#[command(after_help = "Examples:\n  \
                        turnpoint diff\n  \
                        turnpoint diff fix-login 0 2 --stat\n  \
                        turnpoint diff latest~1 latest --patch -- src '*.md'\n  \
                        turnpoint diff fix-login:0 -p | git apply --reverse")]
pub(crate) struct DiffArguments {
    /// A and B, each SEQ, SESSION SEQ, SESSION:SEQ, latest, latest~N, or @LABEL; then paths, as seen from here
    #[arg(value_name = "CHECKPOINT")]
    pub(crate) words: Vec<OsString>,
    #[command(flatten)]
    pub(crate) time: AtArguments,
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
#[command(override_usage = "turnpoint log [OPTIONS] PATH")]
#[command(after_help = "Examples:\n  \
                        turnpoint log src/main.rs\n  \
                        turnpoint log src --session fix-login --json\n  \
                        turnpoint log notes.txt --patch")]
pub(crate) struct LogArguments {
    /// A file or a directory, as seen from here
    #[arg(value_name = "PATH")]
    pub(crate) path: Option<OsString>,
    /// The session [default: that of the settings, else the newest of this workspace]
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
    /// SEQ, SESSION SEQ, SESSION:SEQ, latest, latest~N, or @LABEL; then a new or empty directory
    #[arg(value_name = "CHECKPOINT")]
    pub(crate) words: Vec<OsString>,
    #[command(flatten)]
    pub(crate) time: AtArguments,
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
