//! What errors and outcomes say of a file or of content.

use std::path::{Path, PathBuf};

use crate::clock::Timestamp;
use crate::hash::BlobHash;
use crate::id::CheckpointId;
use crate::path::{RelPath, shell_path, shell_word};

/// All checkpoints that may be meant are younger than the time that was named.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no checkpoint is as old as {at}")]
pub struct NoneSoOld {
    /// The time.
    pub at: Timestamp,
    /// The oldest of them.
    pub oldest: CheckpointId,
    /// When that was made.
    pub created_at: Timestamp,
}

/// Two checkpoints do not begin and end a stretch of history.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{first} and {last} are no beginning and end: {reason}")]
pub struct InvalidRange {
    /// The first as given.
    pub first: CheckpointId,
    /// The second as given.
    pub last: CheckpointId,
    /// Why they are not.
    pub reason: &'static str,
}

/// A file of the store that cannot be understood, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadFile {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub reason: String,
}

/// A file of the store that was missing or damaged and was made anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repair {
    /// The file.
    pub file: PathBuf,
    /// What was wrong with it.
    pub reason: String,
    /// Where the damaged one is kept; none where it was missing.
    pub aside: Option<PathBuf>,
}

/// A path at which one side of a merge cannot be had without losing the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergeConflict {
    /// Where.
    pub path: RelPath,
    /// Why.
    pub reason: String,
}

/// Why a merge did not come about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergeConflicts {
    /// What stands against it, in order of path.
    pub against: Vec<MergeConflict>,
    /// The other paths that would change, in order, each with what is below it.
    pub free: Vec<RelPath>,
}

/// The commands that show both sides of the first of `conflicts` in the workspace `root`: what leads from one
/// checkpoint to the other, and what leads from `base` to the disk.
pub(super) fn sides(
    root: &Path,
    [from, to]: [&CheckpointId; 2],
    base: &CheckpointId,
    conflicts: &[MergeConflict],
) -> [String; 2] {
    let root = shell_word(root);
    let path = conflicts.first().map_or("PATH".to_owned(), |it| shell_word(it.path.as_os()));
    let diff = |sides: &str| format!("`turnpoint diff -C {root} {sides} -p -- {path}`");
    [diff(&format!("{} {}", from.shell_word(), to.shell_word())), diff(&base.shell_word())]
}

/// How many paths a hint names.
const FREE_NAMED_MAX: usize = 5;

/// Behind what a hint says already: what `command`, with paths after it, does with `free`, the paths of a merge
/// that nothing stands against. Empty where there is none.
pub(super) fn of_the_rest(command: &str, does: &str, free: &[RelPath]) -> String {
    match free.len() {
        0 => String::new(),
        1..=FREE_NAMED_MAX => {
            let paths: Vec<String> = free.iter().map(|path| shell_path(path.as_os())).collect();
            format!("; `{command} {}` {does} the rest", paths.join(" "))
        }
        count => format!("; `{command} PATH...` {does} what you name of the {count} other paths"),
    }
}

/// Content that a restore needs and the store cannot give.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostContent {
    /// Whose content.
    pub path: RelPath,
    /// Which blob.
    pub hash: BlobHash,
    /// `missing`, or how it is damaged.
    pub reason: String,
}
