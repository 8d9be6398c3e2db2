//! How an operation tells what it is doing and is told to stop.
//!
//! The library prints nothing. Each operation takes a [`Monitor`] as its last argument; `&()` is the
//! one that shows nothing and never cancels.

use std::path::PathBuf;
use std::time::Duration;

use crate::path::RelPath;

/// A part of an operation that may take long enough to be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// Listing directories; counts entries.
    Walk,
    /// Reading, hashing and storing content; counts files and bytes.
    Store,
    /// Making content durable and writing the manifest.
    Commit,
    /// Comparing the disk with a checkpoint.
    Plan,
    /// Putting a restore's contents beside their places.
    Stage,
    /// Changing the workspace.
    Apply,
    /// Reading manifests and pages anew for the index.
    Rebuild,
    /// Removing content that nothing names.
    Sweep,
    /// Finding out what a purge would do; counts checkpoints.
    Purge,
    /// Checking manifests, pages and blobs.
    Verify,
    /// Answering a query.
    Query,
}

/// Something a person should know although the operation goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// Another process holds `lock`; this one has waited for `waited` so far.
    Waiting {
        /// What is waited for: `the workspace`, `another sweep`.
        lock: String,
        /// How long by now.
        waited: Duration,
    },
    /// A restore that had been interrupted before its first change was discarded.
    RestoreDiscarded,
    /// A restore that had been interrupted while it changed files was completed.
    RestoreCompleted {
        /// How many paths were still to be done.
        paths: u64,
    },
    /// A restore that had been interrupted could not be completed; `reason` says why.
    RestoreLeftOpen {
        /// What stood in the way.
        reason: String,
    },
    /// A purge that had been interrupted was completed.
    PurgeCompleted {
        /// How many manifests it had to write anew.
        manifests: u64,
    },
    /// A purge that was interrupted could not be completed: content that it is to remove is still in the
    /// store, although no checkpoint names it.
    PurgeLeftOpen {
        /// What stood in the way.
        reason: String,
    },
    /// Something about a path that a restore completed or left.
    Remark {
        /// A sentence without a final period.
        text: String,
    },
    /// A work tree is about to be removed with something in it that no checkpoint holds, by the rules of its
    /// removal.
    LeftOut {
        /// The work tree.
        path: PathBuf,
        /// Each path in it, a whole directory being one, and why.
        paths: Vec<(RelPath, String)>,
        /// How many files these are.
        files: u64,
        /// How much of the disk they take.
        bytes: u64,
    },
    /// The index was missing or damaged and was built anew from the manifests.
    IndexRebuilt {
        /// What was wrong with the old one; `None` where there was none.
        damage: Option<String>,
        /// How many checkpoints it holds.
        checkpoints: u64,
    },
    /// The index is damaged; the files answered in its place.
    IndexDamaged {
        /// The database file.
        path: PathBuf,
        /// What was found.
        reason: String,
    },
    /// A directory of the store could not be listed; what is in it is not in the answer.
    Unlisted {
        /// The directory.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// Something that the checkpoint builds on could not be read: whether it is there is not known.
    Unread {
        /// What, and why.
        reason: String,
    },
    /// A file of the store was missing or damaged and was made anew.
    Repaired {
        /// The file.
        path: PathBuf,
        /// What was wrong with it.
        reason: String,
        /// Where the damaged one is kept; none where it was missing.
        aside: Option<PathBuf>,
    },
    /// Something after the commit point failed; the checkpoint stands.
    AfterCommit {
        /// What failed.
        reason: String,
    },
    /// There was more in the store, or less free on its disk, than the settings allow.
    Evicted {
        /// How many checkpoints were dropped for it, the oldest.
        checkpoints: u64,
        /// Why: `budget` or `free-space`.
        because: &'static str,
        /// How many bytes of content nobody needs any more with them; a sweep removes it.
        released_bytes: u64,
        /// How much is still too much, because nothing more may go.
        short_bytes: u64,
    },
    /// git could not say what it tracks; the paths known from the last capture were used.
    TrackedStale {
        /// Why.
        reason: String,
    },
    /// An ignore file was not obeyed; what it leaves out is captured.
    IgnoreFileSkipped {
        /// Where it is.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The workspace was found at a new place or its root was made anew.
    WorkspaceChanged {
        /// What was found, as a sentence.
        what: String,
    },
}

/// Receives progress and notices, and may cancel. Called from worker threads too.
pub trait Monitor: Sync {
    /// A phase begins; `total` counts in the phase's unit where it is known.
    fn phase(&self, _phase: Phase, _total: Option<u64>) {}

    /// The present phase has done `items` more, with `bytes` of content.
    fn advanced(&self, _items: u64, _bytes: u64) {}

    /// Something to tell a person.
    fn notice(&self, _notice: &Notice) {}

    /// Whether the operation should end with [`crate::Error::Cancelled`]. Asked once per file, so one
    /// very large file is finished first.
    fn is_cancelled(&self) -> bool {
        false
    }
}

impl Monitor for () {}

/// A monitor for what is to be done also where the caller has asked to stop.
pub(crate) struct Undisturbed<'a>(pub(crate) &'a dyn Monitor);

impl Monitor for Undisturbed<'_> {
    fn phase(&self, phase: Phase, total: Option<u64>) {
        self.0.phase(phase, total);
    }

    fn advanced(&self, items: u64, bytes: u64) {
        self.0.advanced(items, bytes);
    }

    fn notice(&self, notice: &Notice) {
        self.0.notice(notice);
    }
}
