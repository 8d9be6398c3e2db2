//! What errors and outcomes say of a file or of content.

use std::path::PathBuf;

use crate::hash::BlobHash;
use crate::path::RelPath;

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

/// A path at which a turn cannot be taken back without losing later work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevertConflict {
    /// Where.
    pub path: RelPath,
    /// Why.
    pub reason: String,
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
