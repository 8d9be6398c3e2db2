//! What can go wrong, as one enum for callers.
//!
//! A variant exists where a caller can act differently on it. Every variant names the path or id it
//! is about; [`Error::hint`] says what to do next. Texts follow the Rust API guidelines: lower case,
//! no final period, the source's text is not repeated.

mod class;
mod configuration;
mod context;
mod details;
mod going_back;
mod hint;
mod isolation;
mod purge;
mod query;
mod system;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::hash::BlobHash;
use crate::id::{CheckpointId, InvalidSessionName, OperationId, Seq, SessionName, WorkspaceId};
use crate::path::RelPath;
pub use class::ErrorClass;
pub use configuration::{ConfigurationError, ConfigurationProblem, Place, Position};
pub(crate) use context::{IoContext, not_understood};
pub use details::{
    BadFile, InvalidRange, LostContent, MergeConflict, MergeConflicts, NoneSoOld, Repair,
};
pub use going_back::GoingBackError;
pub use isolation::IsolationError;
pub(crate) use isolation::REMOVE_WORK_TREE;
pub use purge::PurgeError;
pub use query::QueryError;

/// The result of everything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong. See [`Error::class`] for what a caller can do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed.
    #[error("cannot {verb} {}", path.display())]
    Io {
        /// What was tried, as in `cannot open x`.
        verb: &'static str,
        /// On which path.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },

    /// A statement on the index failed.
    #[error("the index cannot {statement}")]
    Index {
        /// What the statement does, as in `cannot insert a checkpoint`.
        statement: &'static str,
        /// Why it failed.
        source: Box<dyn std::error::Error + Send + Sync>,
    },

    /// The index is not a database, or contradicts itself. It can be built anew.
    #[error("the index {} is damaged: {reason}", path.display())]
    IndexDamaged {
        /// The database file.
        path: PathBuf,
        /// What SQLite or a check found.
        reason: String,
    },

    /// The session's name cannot be used.
    #[error("`{}` cannot be a session's name: {reason}", name.escape_debug())]
    InvalidSession {
        /// The text as given.
        name: String,
        /// The rule it breaks.
        reason: InvalidSessionName,
    },

    /// A label is too long or holds control characters.
    #[error("`{}` cannot be a label: {reason}", label.escape_debug())]
    InvalidLabel {
        /// The text as given.
        label: String,
        /// The rule it breaks.
        reason: &'static str,
    },

    /// A path given by the caller is not one inside the workspace.
    #[error("`{}` is not a path inside the workspace: {reason}", path.display())]
    InvalidPath {
        /// The path as given.
        path: PathBuf,
        /// The rule it breaks.
        reason: String,
    },

    /// No session of that name has checkpoints.
    #[error("there is no session `{session}`")]
    SessionNotFound {
        /// The name as given.
        session: String,
        /// Sessions that exist, the most alike first; a few.
        nearest: Vec<SessionName>,
    },

    /// No checkpoint has that label.
    #[error("no checkpoint is labeled `{}`", crate::path::printable(label.as_bytes()))]
    LabelNotFound {
        /// The label as given.
        label: String,
        /// Labels that there are, the newest first.
        nearest: Vec<String>,
    },

    /// This workspace has no checkpoint, or none in the session that was named, or not so many.
    #[error(
        "there {} of {}{}",
        match existing {
            0 => "is no checkpoint".to_owned(),
            1 => "is only 1 checkpoint".to_owned(),
            count => format!("are only {count} checkpoints"),
        },
        workspace.display(),
        session.as_ref().map(|session| format!(" in session `{session}`")).unwrap_or_default()
    )]
    NoCheckpoint {
        /// The workspace's root.
        workspace: PathBuf,
        /// The session, where one was named.
        session: Option<SessionName>,
        /// How many there are, fewer than were counted back.
        existing: usize,
    },

    /// All checkpoints that may be meant are younger than the time that was named.
    #[error(transparent)]
    NoneSoOld(#[from] NoneSoOld),

    /// Two checkpoints do not begin and end a stretch of history.
    #[error(transparent)]
    InvalidRange(#[from] InvalidRange),

    /// The session exists, the number does not.
    #[error("there is no checkpoint {session}:{seq}")]
    CheckpointNotFound {
        /// The session.
        session: SessionName,
        /// The number asked for.
        seq: Seq,
        /// Numbers that exist, the nearest first; a few.
        nearest: Vec<Seq>,
    },

    /// The checkpoint is being pruned: it is gone although its file may still be there.
    #[error("checkpoint {checkpoint} is gone: it was pruned")]
    Pruned {
        /// Which one.
        checkpoint: CheckpointId,
    },

    /// The checkpoint holds no such path.
    #[error("checkpoint {checkpoint} does not hold `{path}`")]
    PathNotFound {
        /// Which checkpoint.
        checkpoint: CheckpointId,
        /// The path asked for.
        path: RelPath,
        /// Why it is not held, where the checkpoint says so.
        omitted: Option<crate::manifest::OmitReason>,
    },

    /// The checkpoint was made of the paths that a restore was about to change, and this is none of them.
    #[error(
        "checkpoint {checkpoint} was made of the paths that a restore was about to change, and `{path}` is \
         not one of them"
    )]
    PathNotCovered {
        /// Which checkpoint.
        checkpoint: CheckpointId,
        /// The path asked for.
        path: RelPath,
        /// The checkpoint before it.
        before: Option<CheckpointId>,
    },

    /// The manifest, or a page of it, cannot be read or understood.
    #[error("checkpoint {checkpoint} cannot be read: {}: {reason}", path.display())]
    CheckpointUnreadable {
        /// Which checkpoint.
        checkpoint: CheckpointId,
        /// The file at fault.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },

    /// The checkpoint is of another workspace.
    #[error("checkpoint {checkpoint} is of another workspace: {}", root.display())]
    OtherWorkspace {
        /// Which checkpoint.
        checkpoint: CheckpointId,
        /// Where that workspace was when it was captured.
        root: PathBuf,
    },

    /// The workspace does not exist.
    #[error("there is no directory {}", path.display())]
    WorkspaceMissing {
        /// The path as given.
        path: PathBuf,
    },

    /// The workspace is not a directory.
    #[error("{} is not a directory", path.display())]
    WorkspaceNotDirectory {
        /// The path as given.
        path: PathBuf,
    },

    /// `/`, the home directory or what contains it: not captured unless forced.
    #[error("{} is {what}, which is hardly a workspace", path.display())]
    WorkspaceTooWide {
        /// The directory.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },

    /// The path says one workspace, the directory itself another.
    #[error("{} was workspace {by_path}, but the directory there now is workspace {by_inode}", path.display())]
    WorkspaceAmbiguous {
        /// The directory.
        path: PathBuf,
        /// The workspace last seen at this path.
        by_path: WorkspaceId,
        /// The workspace whose root this directory is.
        by_inode: WorkspaceId,
    },

    /// No workspace has that id.
    #[error("there is no workspace {id}")]
    WorkspaceNotFound {
        /// The id as given.
        id: WorkspaceId,
    },

    /// The store's layout is newer than this program.
    #[error("the store {} has format {found}; this program knows up to {supported}", path.display())]
    StoreTooNew {
        /// The store, its index, or a manifest.
        path: PathBuf,
        /// The version found.
        found: u64,
        /// The newest version known.
        supported: u64,
    },

    /// The directory holds something else than a store, or a store that others can change.
    #[error("{} cannot be used as a store: {reason}", path.display())]
    StoreForeign {
        /// The directory or file.
        path: PathBuf,
        /// What was found.
        reason: String,
    },

    /// `format.json` is missing or damaged in a directory that holds checkpoints: nobody can say which
    /// version wrote them.
    #[error("{} does not say what the store's format is: {reason}", path.display())]
    FormatDamaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },

    /// The journal of an open restore cannot be understood: nobody knows which checkpoints it needs,
    /// so none is pruned.
    #[error("the journal {} of an open restore cannot be understood: {reason}", path.display())]
    JournalUnreadable {
        /// The journal.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
        /// Where the workspace was, if that is known.
        root: Option<PathBuf>,
    },

    /// The path is none that can be put into the quarantine.
    #[error("{} cannot be put into the quarantine: {reason}", path.display())]
    NotOfStore {
        /// The path as given.
        path: PathBuf,
        /// What is expected.
        reason: String,
    },

    /// The file is not damaged, or somebody needs it: it stays where it is.
    #[error("{} stays where it is: {reason}", path.display())]
    QuarantineRefused {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },

    /// No operation of that id is recorded.
    #[error("there is no operation {id}")]
    OperationNotFound {
        /// The id as given.
        id: OperationId,
    },

    /// The operation's process runs: what it relies on must stay.
    #[error("operation {id} is running")]
    OperationAlive {
        /// Which one.
        id: OperationId,
    },

    /// The directory belongs to the store.
    #[error("{} belongs to the store {}", path.display(), store.display())]
    InsideStore {
        /// The directory as found.
        path: PathBuf,
        /// The store.
        store: PathBuf,
    },

    /// Another process holds a lock.
    #[error("{lock} is in use by another process; waited {} s", waited.as_secs())]
    Busy {
        /// What is in use.
        lock: String,
        /// How long this process waited.
        waited: Duration,
    },

    /// The [`crate::Monitor`] asked to stop. The store is as after a crash at that point: whole.
    #[error("cancelled")]
    Cancelled,

    /// A blob is not in the store.
    #[error("blob {hash} is missing")]
    BlobMissing {
        /// Which one.
        hash: BlobHash,
    },

    /// A blob's file does not hold the bytes its name says.
    #[error("blob {hash} is damaged: {reason}")]
    BlobDamaged {
        /// Which one.
        hash: BlobHash,
        /// What is wrong.
        reason: String,
    },

    /// A page of a manifest breaks the format.
    #[error("page {hash} breaks the format: {reason}")]
    PageInvalid {
        /// Which one.
        hash: BlobHash,
        /// Which rule it breaks.
        reason: String,
    },

    /// A restore needs content that the store cannot give. Nothing was changed.
    #[error("the store lacks the content of {} of the paths to restore", .lost.len())]
    ContentLost {
        /// What is lacking.
        lost: Vec<LostContent>,
    },

    /// Not enough room. Nothing was changed.
    #[error(
        "{} needs {needed_bytes} bytes more and has {available_bytes} to use{}",
        path.display(),
        match floor_bytes {
            0 => String::new(),
            bytes => format!("; the last {bytes} of a disk are left alone"),
        }
    )]
    NoSpace {
        /// A directory on the file system in question.
        path: PathBuf,
        /// What the operation needs.
        needed_bytes: u64,
        /// What it may use.
        available_bytes: u64,
        /// What of the disk is left alone.
        floor_bytes: u64,
    },

    /// Something else has the name of a directory that turnpoint makes in the workspace. Nothing was
    /// changed.
    #[error("{} is in the place of a directory that is needed", path.display())]
    PlaceTaken {
        /// What it is.
        path: PathBuf,
    },

    /// A restore of this workspace was interrupted and could not be completed.
    #[error("an interrupted restore of {} could not be completed: {reason}", workspace.display())]
    RestoreOpen {
        /// The workspace's root.
        workspace: PathBuf,
        /// What stands in the way.
        reason: String,
    },

    /// No restore of this workspace is open.
    #[error("no restore of {} was interrupted", workspace.display())]
    NoOpenRestore {
        /// The workspace's root.
        workspace: PathBuf,
    },

    /// The disk has changed since the plan was shown: another plan would be carried out. Nothing has
    /// changed.
    #[error("the disk has changed since plan {expected} was made")]
    PlanChanged {
        /// The plan that was agreed to.
        expected: String,
        /// The plan that it would be now.
        found: String,
    },

    /// There is no restore of this workspace that has not been undone.
    #[error("there is nothing to undo in {}", workspace.display())]
    NothingToUndo {
        /// The workspace's root.
        workspace: PathBuf,
    },

    /// The workspace cannot go back in the way that was asked for. Nothing has changed.
    #[error(transparent)]
    GoingBack(#[from] GoingBackError),

    /// A restore into a directory that has something in it.
    #[error("{} is not empty", path.display())]
    IntoNotEmpty {
        /// The directory.
        path: PathBuf,
    },

    /// Nothing may be deleted from the store while these cannot be understood.
    #[error("nothing was deleted: {} files of the store cannot be understood", .files.len())]
    DeletionBlocked {
        /// Each file and what is wrong with it.
        files: Vec<BadFile>,
    },

    /// A run cannot be made, found or removed.
    #[error(transparent)]
    Isolation(#[from] IsolationError),

    /// A purge is not at its end, or cannot be begun.
    #[error(transparent)]
    Purge(#[from] PurgeError),

    /// A query of the index has no answer, or not this way.
    #[error(transparent)]
    Query(#[from] QueryError),

    /// The configuration cannot be obeyed.
    #[error(transparent)]
    Configuration(#[from] ConfigurationError),

    /// A strict capture could not hold everything; nothing was stored.
    #[error("{problems} paths could not be held whole")]
    Incomplete {
        /// How many.
        problems: u64,
    },
}

impl Error {
    /// What a caller can do about it.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Query(error) => error.class(),
            Self::GoingBack(error) => error.class(),
            Self::Isolation(error) => error.class(),
            Self::Purge(error) => error.class(),
            Self::Io { .. }
            | Self::Index { .. }
            | Self::NoSpace { .. }
            | Self::Incomplete { .. } => ErrorClass::Failed,
            Self::InvalidSession { .. }
            | Self::InvalidLabel { .. }
            | Self::InvalidPath { .. }
            | Self::SessionNotFound { .. }
            | Self::NoCheckpoint { .. }
            | Self::NoneSoOld(_)
            | Self::InvalidRange(_)
            | Self::LabelNotFound { .. }
            | Self::CheckpointNotFound { .. }
            | Self::Pruned { .. }
            | Self::PathNotFound { .. }
            | Self::PathNotCovered { .. }
            | Self::WorkspaceMissing { .. }
            | Self::WorkspaceNotDirectory { .. }
            | Self::WorkspaceNotFound { .. }
            | Self::OperationNotFound { .. }
            | Self::NotOfStore { .. }
            | Self::Configuration(_)
            | Self::NoOpenRestore { .. }
            | Self::NothingToUndo { .. } => ErrorClass::Input,
            Self::OtherWorkspace { .. }
            | Self::WorkspaceTooWide { .. }
            | Self::WorkspaceAmbiguous { .. }
            | Self::StoreTooNew { .. }
            | Self::StoreForeign { .. }
            | Self::FormatDamaged { .. }
            | Self::JournalUnreadable { .. }
            | Self::OperationAlive { .. }
            | Self::QuarantineRefused { .. }
            | Self::InsideStore { .. }
            | Self::ContentLost { .. }
            | Self::RestoreOpen { .. }
            | Self::PlanChanged { .. }
            | Self::IntoNotEmpty { .. }
            | Self::PlaceTaken { .. }
            | Self::DeletionBlocked { .. } => ErrorClass::Refused,
            Self::IndexDamaged { .. }
            | Self::CheckpointUnreadable { .. }
            | Self::BlobMissing { .. }
            | Self::BlobDamaged { .. }
            | Self::PageInvalid { .. } => ErrorClass::Damaged,
            Self::Busy { .. } => ErrorClass::Busy,
            Self::Cancelled => ErrorClass::Cancelled,
        }
    }

    /// Whether a file was there and was not what it should be, and not that the system failed to read
    /// it: the same file would be found damaged again.
    pub(crate) fn is_damage(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::InvalidData)
    }

    /// Whether the system had no handles or no memory left. That says nothing about the file, and would
    /// stand in the way of any other.
    pub(crate) fn is_lack(&self) -> bool {
        // ENOMEM, ENFILE, EMFILE
        let lacks = |source: &io::Error| matches!(source.raw_os_error(), Some(12 | 23 | 24));
        matches!(self, Self::Io { source, .. } if lacks(source))
    }

    /// Whether a blob is missing, or its bytes are not what its name says: what a capture that has the
    /// right bytes heals.
    pub(crate) const fn is_lost_content(&self) -> bool {
        matches!(
            self,
            Self::BlobMissing { .. } | Self::BlobDamaged { .. } | Self::PageInvalid { .. }
        )
    }

    /// The error with what caused it, for a reason that is one string.
    pub(crate) fn with_source(&self) -> String {
        match std::error::Error::source(self) {
            Some(source) => format!("{self}: {source}"),
            None => self.to_string(),
        }
    }

    /// The variant as a word for scripts: the name in kebab-case, which never changes.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Io { .. } => "io",
            Self::Index { .. } => "index",
            Self::IndexDamaged { .. } => "index-damaged",
            Self::InvalidSession { .. } => "invalid-session",
            Self::InvalidLabel { .. } => "invalid-label",
            Self::InvalidPath { .. } => "invalid-path",
            Self::SessionNotFound { .. } => "session-not-found",
            Self::NoCheckpoint { .. } => "no-checkpoint",
            Self::NoneSoOld(_) => "none-so-old",
            Self::InvalidRange(_) => "invalid-range",
            Self::LabelNotFound { .. } => "label-not-found",
            Self::CheckpointNotFound { .. } => "checkpoint-not-found",
            Self::Pruned { .. } => "pruned",
            Self::PathNotFound { .. } => "path-not-found",
            Self::PathNotCovered { .. } => "path-not-covered",
            Self::CheckpointUnreadable { .. } => "checkpoint-unreadable",
            Self::OtherWorkspace { .. } => "other-workspace",
            Self::WorkspaceMissing { .. } => "workspace-missing",
            Self::WorkspaceNotDirectory { .. } => "workspace-not-directory",
            Self::WorkspaceTooWide { .. } => "workspace-too-wide",
            Self::WorkspaceAmbiguous { .. } => "workspace-ambiguous",
            Self::WorkspaceNotFound { .. } => "workspace-not-found",
            Self::StoreTooNew { .. } => "store-too-new",
            Self::StoreForeign { .. } => "store-foreign",
            Self::FormatDamaged { .. } => "format-damaged",
            Self::JournalUnreadable { .. } => "journal-unreadable",
            Self::OperationNotFound { .. } => "operation-not-found",
            Self::OperationAlive { .. } => "operation-alive",
            Self::NotOfStore { .. } => "not-of-store",
            Self::QuarantineRefused { .. } => "quarantine-refused",
            Self::InsideStore { .. } => "inside-store",
            Self::Busy { .. } => "busy",
            Self::Cancelled => "cancelled",
            Self::BlobMissing { .. } => "blob-missing",
            Self::BlobDamaged { .. } => "blob-damaged",
            Self::PageInvalid { .. } => "page-invalid",
            Self::ContentLost { .. } => "content-lost",
            Self::NoSpace { .. } => "no-space",
            Self::PlaceTaken { .. } => "place-taken",
            Self::RestoreOpen { .. } => "restore-open",
            Self::NoOpenRestore { .. } => "no-open-restore",
            Self::PlanChanged { .. } => "plan-changed",
            Self::NothingToUndo { .. } => "nothing-to-undo",
            Self::IntoNotEmpty { .. } => "into-not-empty",
            Self::DeletionBlocked { .. } => "deletion-blocked",
            Self::Query(error) => error.code(),
            Self::GoingBack(error) => error.code(),
            Self::Configuration(_) => "configuration",
            Self::Isolation(error) => error.code(),
            Self::Purge(error) => error.code(),
            Self::Incomplete { .. } => "incomplete",
        }
    }
}
