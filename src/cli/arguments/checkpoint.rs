//! How a checkpoint is named.

use std::ffi::OsString;

use clap::Args;
use turnpoint::clock::Timestamp;

use crate::cli::moment::moment;

/// A time in place of a checkpoint's number.
#[derive(Debug, Args)]
pub(crate) struct AtArguments {
    /// In place of CHECKPOINT, the newest that was there at TIME, that no restore made: 10m, '2 days ago',
    /// yesterday, 09:30, '2026-11-29 09:30'
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub(crate) at: Option<Timestamp>,
}

/// The checkpoint that a command is about.
#[derive(Debug, Args)]
pub(crate) struct CheckpointArguments {
    /// SEQ, SESSION SEQ, SESSION:SEQ, latest, latest~N, or @LABEL
    #[arg(value_name = "CHECKPOINT")]
    pub(crate) words: Vec<OsString>,
    #[command(flatten)]
    pub(crate) time: AtArguments,
    /// The session, where CHECKPOINT names none
    #[arg(long, value_name = "NAME")]
    pub(crate) session: Option<String>,
}

/// A checkpoint and paths in it.
#[derive(Debug, Args)]
pub(crate) struct PathsArguments {
    /// SEQ, SESSION SEQ, SESSION:SEQ, latest, latest~N, or @LABEL; then paths, as seen from here
    #[arg(value_name = "CHECKPOINT")]
    pub(crate) words: Vec<OsString>,
    /// Paths that look like a number or an option, after `--`
    #[arg(last = true, value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
    #[command(flatten)]
    pub(crate) time: AtArguments,
}
