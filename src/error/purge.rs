//! Why a purge is not at its end, or was not begun.

use std::path::PathBuf;

use super::{Error, ErrorClass};

/// What a purge, or one that was interrupted, stands in the way with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PurgeError {
    /// A plan changes nothing, and so it cannot bring a purge to its end that was interrupted while it wrote
    /// manifests anew: until then nobody knows what they will say.
    #[error("a purge was interrupted, and a plan does not bring it to its end: {}", path.display())]
    Interrupted {
        /// What it has decided.
        path: PathBuf,
    },

    /// Something failed after the purge was decided: it will be carried out all the same.
    #[error("the purge was decided and is not at its end")]
    Unfinished {
        /// What failed.
        source: Box<Error>,
    },

    /// What the purge has to write down first is too long. Nothing has changed.
    #[error(
        "the purge would write {manifests} manifests anew, {bytes} bytes, and {bytes_max} can be written \
         down in {}",
        path.display()
    )]
    TooLong {
        /// Where it would be written down.
        path: PathBuf,
        /// How many manifests.
        manifests: usize,
        /// How long it is.
        bytes: u64,
        /// How long it may be.
        bytes_max: u64,
    },
}

impl PurgeError {
    pub(super) fn class(&self) -> ErrorClass {
        match self {
            Self::Interrupted { .. } | Self::TooLong { .. } => ErrorClass::Refused,
            Self::Unfinished { source } => source.class(),
        }
    }

    pub(super) const fn code(&self) -> &'static str {
        match self {
            Self::Interrupted { .. } => "purge-interrupted",
            Self::Unfinished { .. } => "purge-unfinished",
            Self::TooLong { .. } => "purge-too-long",
        }
    }

    pub(super) fn hint(&self) -> String {
        match self {
            Self::Interrupted { .. } => {
                "the next command that writes completes it, such as `turnpoint capture`".to_owned()
            }
            Self::Unfinished { source } => {
                let first = source.hint().map(|hint| format!("{hint}; ")).unwrap_or_default();
                format!("{first}the next command that writes completes it")
            }
            Self::TooLong { .. } => {
                "name one session after the other with --session, or drop checkpoints first with \
                 `turnpoint prune`"
                    .to_owned()
            }
        }
    }
}
