//! Doctor: what is wrong with a store, or merely left in it, beyond what its checkpoints need.
//!
//! Looks at the store's own things: its directories and their permissions, the operations and restores
//! that did not end, what they left, the room there is. Whether the content is whole is `verify`'s
//! business; both are put together by the facade. Nothing here changes anything but [`tighten`], which
//! takes permissions away from others.

mod places;
mod remains;

use std::path::PathBuf;

pub(crate) use places::{obstructed, tighten};

use crate::clock::Timestamp;
use crate::disk::{self, Dir};
use crate::error::Result;
use crate::id::CheckpointId;
use crate::index::Index;
use crate::layout::Layout;
use crate::limits;
use crate::operation::Host;
use crate::sessions::Sessions;
use crate::verify::FindingKind;
use crate::workspaces::Workspaces;

/// How bad something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Severity {
    /// Something is lost or damaged, or a command will fail.
    Problem,
    /// Nothing is at risk; it can be cleared up, or is good to know.
    Note,
}

impl Severity {
    /// The word for people and scripts.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Problem => "problem",
            Self::Note => "note",
        }
    }
}

/// What can be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Condition {
    /// What a verification finds.
    Damage(FindingKind),
    /// A directory that the store needs is gone.
    DirectoryMissing,
    /// Others than the owner may read or change something of the store.
    PermissionsOpen,
    /// The owner may not read or change something of the store.
    PermissionsMissing,
    /// Something of the store belongs to another user.
    OwnerForeign,
    /// The index can neither be opened nor be called damaged.
    IndexUnavailable,
    /// There is little room on the disk.
    SpaceLow,
    /// A restore was interrupted while it changed files.
    RestoreHalfApplied,
    /// A restore was interrupted before it changed anything.
    RestoreDiscardable,
    /// A restore is open whose workspace is not there, or is another directory now.
    RestoreOutOfReach,
    /// There is no index.
    IndexMissing,
    /// A checkpoint is not in the index.
    CheckpointUnindexed,
    /// A workspace is remembered by nothing but an empty directory.
    WorkspaceEmpty,
    /// Another process has the store to itself.
    StoreBusy,
    /// An operation whose process is dead.
    OperationDead,
    /// An operation of another machine, which may still run.
    OperationForeign,
    /// The lease of an operation that is over.
    LeaseDead,
    /// Temporary files of a process that is dead.
    TemporaryLeft,
    /// An index whose building was interrupted.
    IndexUnfinished,
    /// What a restore staged or kept is left in a workspace, and no restore is open there.
    StageLeft,
    /// The index that was replaced is kept.
    IndexAside,
    /// Something damaged is kept beside what was made anew.
    DamagedKept,
    /// Something is in the quarantine.
    QuarantineKept,
    /// A name that is not the store's.
    NameUnknown,
    /// Content that no checkpoint needs takes room.
    ContentUnneeded,
    /// The file is missing that a collection gives up on a full disk.
    BallastMissing,
    /// A file has a time in the future.
    TimeAhead,
    /// The store is on a file system of another machine, or of a program.
    FileSystemRemote,
}

impl Condition {
    /// The word used in JSON; it never changes.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Damage(kind) => kind.as_str(),
            Self::DirectoryMissing => "directory-missing",
            Self::PermissionsOpen => "permissions-open",
            Self::PermissionsMissing => "permissions-missing",
            Self::OwnerForeign => "owner-foreign",
            Self::IndexUnavailable => "index-unavailable",
            Self::SpaceLow => "space-low",
            Self::RestoreHalfApplied => "restore-half-applied",
            Self::RestoreDiscardable => "restore-discardable",
            Self::RestoreOutOfReach => "restore-out-of-reach",
            Self::IndexMissing => "index-missing",
            Self::CheckpointUnindexed => "checkpoint-unindexed",
            Self::WorkspaceEmpty => "workspace-empty",
            Self::StoreBusy => "store-busy",
            Self::OperationDead => "operation-dead",
            Self::OperationForeign => "operation-foreign",
            Self::LeaseDead => "lease-dead",
            Self::TemporaryLeft => "temporary-left",
            Self::IndexUnfinished => "index-unfinished",
            Self::StageLeft => "stage-left",
            Self::IndexAside => "index-aside",
            Self::DamagedKept => "damaged-kept",
            Self::QuarantineKept => "quarantine-kept",
            Self::NameUnknown => "name-unknown",
            Self::ContentUnneeded => "content-unneeded",
            Self::BallastMissing => "ballast-missing",
            Self::TimeAhead => "time-ahead",
            Self::FileSystemRemote => "file-system-remote",
        }
    }

    /// How bad it is.
    pub const fn severity(self) -> Severity {
        match self {
            Self::Damage(_)
            | Self::DirectoryMissing
            | Self::PermissionsOpen
            | Self::OwnerForeign
            | Self::IndexUnavailable
            | Self::SpaceLow
            | Self::RestoreHalfApplied => Severity::Problem,
            _ => Severity::Note,
        }
    }
}

/// One thing that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Diagnosis {
    /// What it is.
    pub condition: Condition,
    /// What it is about: a file or directory of the store, or a workspace's.
    pub path: PathBuf,
    /// One sentence without a final period.
    pub message: String,
    /// What to do, as a sentence of the same kind that names a command where there is one.
    pub next: String,
    /// The checkpoints that need it; the first few.
    pub checkpoints: Vec<CheckpointId>,
    /// How many bytes it is about, where that is what matters: those that wait, or are free.
    pub bytes: Option<u64>,
}

impl Diagnosis {
    pub(crate) fn new(
        condition: Condition,
        path: impl Into<PathBuf>,
        message: impl Into<String>,
        next: impl Into<String>,
    ) -> Self {
        let (path, message, next) = (path.into(), message.into(), next.into());
        Self { condition, path, message, next, checkpoints: Vec::new(), bytes: None }
    }
}

/// What `doctor --fix` is told to do; it is the next step of much.
pub(crate) const FIX: &str = "`turnpoint doctor --fix`";

/// The parts of a store that are looked at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parts<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) sessions: &'a Sessions,
    pub(crate) workspaces: &'a Workspaces,
    /// Left out where it cannot be opened.
    pub(crate) index: Option<&'a Index>,
    pub(crate) host: Host,
}

/// What can be seen of the store without understanding what is in it: directories, permissions, names,
/// times, room.
///
/// # Errors
/// [`crate::Error::Io`] where the store's directory cannot be listed.
///
/// Cost: one `lstat` for each file of the store.
pub(crate) fn look_around(layout: &Layout) -> Result<Vec<Diagnosis>> {
    let mut found = places::look(layout)?;
    found.extend(room(layout)?);
    Ok(found)
}

/// What operations and restores that did not end have left. A process that runs is left in peace: its
/// lock is looked at, and not waited for.
///
/// # Errors
/// [`crate::Error::Io`].
///
/// Cost: the rows of operations, and the reading of what has no row.
pub(crate) fn look_for_remains(parts: &Parts<'_>) -> Result<Vec<Diagnosis>> {
    remains::look(parts)
}

/// The disk: how much room there is, whose it is, and whether a collection has something to give up.
fn room(layout: &Layout) -> Result<Vec<Diagnosis>> {
    let mut found = Vec::new();
    let root = Dir::open(layout.root())?;
    if !disk::file_system(&root)?.is_local {
        found.push(Diagnosis::new(
            Condition::FileSystemRemote,
            layout.root(),
            "it is on a network or FUSE file system: that locks hold, and that what was captured \
             survives a crash, is not promised there, least of all with several machines at work",
            "keep the store on a local disk: move the directory and set TURNPOINT_HOME",
        ));
    }
    let available = disk::available_bytes(&root)?;
    if available < limits::ROOM_NEEDED_BYTES {
        let mut low = Diagnosis::new(
            Condition::SpaceLow,
            layout.root(),
            format!(
                "less than {} MiB of the disk are free, which a large capture needs, and a collection \
                 that writes packs anew",
                limits::ROOM_NEEDED_BYTES >> 20
            ),
            "free some space; `turnpoint gc` frees what no checkpoint needs",
        );
        low.bytes = Some(available);
        found.push(low);
    }
    let ballast = layout.ballast();
    if disk::modified_ns(&ballast)?.is_none() {
        found.push(Diagnosis::new(
            Condition::BallastMissing,
            ballast,
            "it is missing: on a full disk a collection would have nothing to give up first",
            format!("{FIX} makes it again where there is room"),
        ));
    }
    Ok(found)
}

/// Whether a time is so far ahead that it is not the clock's resolution.
fn is_ahead(time_ns: i64) -> bool {
    Timestamp::now().until(Timestamp::from_ns(time_ns)) > limits::GRACE
}
