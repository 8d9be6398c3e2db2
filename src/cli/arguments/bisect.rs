//! What `turnpoint bisect` is told.

use std::ffi::OsString;

use clap::Args;

/// Find the checkpoint that broke something, by trying some of those in between
///
/// Writes checkpoints between GOOD and BAD into a temporary directory, one after the other, and runs
/// COMMAND there: 0 says that one is good, 1 to 127 that it is bad, 125 that nobody can tell, and
/// anything else ends the search. Both ends are tried first. The workspace is left alone. What had changed
/// where a checkpoint made with `capture --changed-from` did not look is found in a later one.
#[derive(Debug, Args)]
#[command(
    override_usage = "turnpoint bisect [OPTIONS] [SESSION] GOOD BAD -- COMMAND [ARGUMENT]..."
)]
#[command(after_help = "Examples:\n  \
                        turnpoint bisect fix-login 0 12 -- cargo test\n  \
                        turnpoint bisect latest~5 latest -- sh -c '! grep -rq unwrap src'")]
pub(crate) struct BisectArguments {
    /// GOOD and BAD, each SEQ, SESSION SEQ, SESSION:SEQ, latest, latest~N, or @LABEL; BAD is of the session of GOOD
    #[arg(value_name = "CHECKPOINT", required = true)]
    pub(crate) words: Vec<OsString>,
    /// What tells good from bad, with its arguments, after `--`; it runs at the top of the directory
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
    /// The session, where GOOD names none
    #[arg(long, value_name = "NAME")]
    pub(crate) session: Option<String>,
}
