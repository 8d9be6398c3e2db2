//! One path of a checkpoint.

use serde::{Deserialize, Serialize};

use crate::hash::BlobHash;
use crate::path::RelPath;

/// The permission bits of a file or directory, with set-user-id, set-group-id and sticky
/// (`0o7777` at most). Written as four octal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Mode(u16);

impl Mode {
    /// The permission bits of a `st_mode`; the kind of file is dropped.
    pub const fn from_st_mode(st_mode: u32) -> Self {
        Self((st_mode & 0o7777) as u16)
    }

    /// The bits.
    pub const fn bits(self) -> u32 {
        self.0 as u32
    }

    /// Whether a file with this mode runs as another user or group.
    pub const fn has_set_id(self) -> bool {
        self.0 & 0o6000 != 0
    }

    /// The same without set-user-id and set-group-id.
    #[must_use]
    pub const fn without_set_id(self) -> Self {
        Self(self.0 & !0o6000)
    }
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

impl std::str::FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let octal = text.len() == 4 && text.bytes().all(|digit| matches!(digit, b'0'..=b'7'));
        let bits = octal.then(|| u16::from_str_radix(text, 8).ok()).flatten();
        bits.map(Self).ok_or_else(|| format!("`{text}` is not a mode of four octal digits"))
    }
}

/// Whether a directory's entry accounts for every name that was in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Listed {
    /// Every name that the walk saw is an entry: what has none was not there.
    Whole,
    /// Some names have no entry: the absence of one says nothing.
    Partial,
}

/// Why a name's content is not held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum OmitReason {
    /// A version-control directory, a build directory, or excluded by a setting.
    Excluded,
    /// An ignore rule of git matches.
    Ignored,
    /// Its name says that it holds a secret.
    Secret,
    /// A store of checkpoints.
    Store,
    /// Another file system is mounted there.
    Mount,
    /// Larger than the limit for one file.
    OverFileLimit,
    /// The limit for all content together was reached before it.
    OverTotalLimit,
    /// Permission was denied.
    Unreadable,
    /// A FIFO, socket or device.
    Special,
    /// git keeps it out of the work tree (sparse checkout).
    Sparse,
    /// It could not be read or listed.
    IoError,
    /// It was removed from history on request.
    Purged,
}

impl OmitReason {
    /// The word used in files, JSON and SQL.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Excluded => "excluded",
            Self::Ignored => "ignored",
            Self::Secret => "secret",
            Self::Store => "store",
            Self::Mount => "mount",
            Self::OverFileLimit => "over-file-limit",
            Self::OverTotalLimit => "over-total-limit",
            Self::Unreadable => "unreadable",
            Self::Special => "special",
            Self::Sparse => "sparse",
            Self::IoError => "io-error",
            Self::Purged => "purged",
        }
    }

    /// Whether the checkpoint is incomplete for this reason. What rules and limits leave out is left
    /// out by intent.
    pub const fn is_failure(self) -> bool {
        matches!(self, Self::Unreadable | Self::IoError)
    }
}

impl std::fmt::Display for OmitReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// What a path was.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// A regular file whose content is held.
    File {
        /// Its length in bytes.
        size: u64,
        /// Its modification time, in nanoseconds since 1970, when this content was first captured.
        mtime_ns: i64,
        /// Its content.
        hash: BlobHash,
        /// It changed while it was read, each time: the content may never have been on disk as a
        /// whole.
        unstable: bool,
    },
    /// A symbolic link.
    Symlink {
        /// The text of the link; never followed.
        target: Box<[u8]>,
    },
    /// A directory that the walk entered.
    Dir {
        /// Whether every name in it has an entry.
        listed: Listed,
    },
    /// A name that was seen and whose content is not held.
    Omitted {
        /// Why.
        reason: OmitReason,
        /// How many more names of the same directory, sorted after this one and not listed, are
        /// left out as well.
        rest: u64,
    },
    /// Nothing: only in a restore's account of what it leaves.
    Absent,
}

impl EntryKind {
    /// The word used in files, JSON and SQL.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::File { .. } => "file",
            Self::Symlink { .. } => "symlink",
            Self::Dir { .. } => "dir",
            Self::Omitted { .. } => "omitted",
            Self::Absent => "absent",
        }
    }
}

/// One path of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Where, relative to the workspace.
    pub path: RelPath,
    /// Its permission bits; `0777` for a symlink, zero where they could not be read.
    pub mode: Mode,
    /// What it was.
    pub kind: EntryKind,
}

impl Entry {
    /// Whether a restore would find nothing to do between the two: kind, mode and content agree.
    /// Times, and how a directory was listed, do not count.
    pub fn is_same_state(&self, other: &Self) -> bool {
        self.mode == other.mode && self.is_same_content(other)
    }

    /// As [`Entry::is_same_state`], where nothing is a state too.
    pub fn are_same_state(one: Option<&Self>, other: Option<&Self>) -> bool {
        match (one, other) {
            (Some(one), Some(other)) => one.is_same_state(other),
            (one, other) => one.is_none() && other.is_none(),
        }
    }

    /// As [`Entry::is_same_state`] without the mode.
    pub fn is_same_content(&self, other: &Self) -> bool {
        match (&self.kind, &other.kind) {
            (EntryKind::File { hash, .. }, EntryKind::File { hash: other, .. }) => hash == other,
            (EntryKind::Symlink { target }, EntryKind::Symlink { target: other }) => {
                target == other
            }
            (EntryKind::Dir { .. }, EntryKind::Dir { .. })
            | (EntryKind::Absent, EntryKind::Absent) => true,
            (EntryKind::Omitted { reason, .. }, EntryKind::Omitted { reason: other, .. }) => {
                reason == other
            }
            _ => false,
        }
    }

    /// The blob that holds this entry's content.
    pub fn blob(&self) -> Option<(BlobHash, u64)> {
        match self.kind {
            EntryKind::File { hash, size, .. } => Some((hash, size)),
            _ => None,
        }
    }
}
