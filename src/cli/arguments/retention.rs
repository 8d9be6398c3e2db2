//! What can be typed to drop checkpoints and to remove content.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;

use super::{duration, number};

/// Drop old checkpoints by rules, of all workspaces
///
/// What the settings say stays: of each session of the store the newest 20, with as many safety checkpoints, unless
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
    #[arg(long, value_name = "N", value_parser = number::<u32>)]
    pub(crate) keep: Option<u32>,
    /// Those of the last days or hours stay too, such as `7d` or `36h`
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) keep_within: Option<Duration>,
    /// The newest of each of the last N hours that have one stays too
    #[arg(long, value_name = "N", value_parser = number::<u32>)]
    pub(crate) keep_hourly: Option<u32>,
    /// The newest of each of the last N days that have one stays too
    #[arg(long, value_name = "N", value_parser = number::<u32>)]
    pub(crate) keep_daily: Option<u32>,
    /// The newest of each of the last N weeks that have one stays too
    #[arg(long, value_name = "N", value_parser = number::<u32>)]
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

/// Take a path's content out of history
///
/// For a secret or a huge file that was captured by mistake: its content goes from all checkpoints of
/// this workspace, pinned ones and safety checkpoints too, and then from the store. The checkpoints stay
/// and say `omitted: purged`; names stay. A restore leaves such a path as it is. Shows first what goes,
/// and what stays because something else has the same content; then asks, or needs --yes. This cannot be
/// taken back. Files in the workspace are not touched: what is still there is captured again.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                        turnpoint purge --dry-run config/key.txt\n  \
                        turnpoint purge config/key.txt\n  \
                        turnpoint purge '*.sqlite' --session import-data")]
pub(crate) struct PurgeArguments {
    /// Paths, each with everything below it; one with `*`, `?` or `[` in it is a pattern too, whose `*`
    /// matches slashes
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<OsString>,
    /// Only the checkpoints of this session
    #[arg(long, value_name = "NAME")]
    pub(crate) session: Option<String>,
    /// Show what would be done and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
}

/// Free the space of what was dropped, and drop what the rules drop
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
