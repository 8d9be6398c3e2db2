//! Why a query of the index has no answer.

use std::path::PathBuf;
use std::time::Duration;

use super::ErrorClass;

/// Why a query has no answer. It has changed nothing in any case.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    /// There is no store yet.
    #[error("there is no store in {} yet", path.display())]
    NoStore {
        /// Where it would be.
        path: PathBuf,
    },

    /// The index is missing or cannot be opened from here, which says nothing against it.
    #[error("the index {} cannot be asked: {reason}", path.display())]
    NoIndex {
        /// The database file.
        path: PathBuf,
        /// What stands in the way.
        reason: String,
    },

    /// The text is no single statement that SQLite understands, or a value in it makes no sense.
    #[error(
        "the query cannot be answered: {reason}{}",
        offset.map(|offset| format!(" (at character {})", offset + 1)).unwrap_or_default()
    )]
    Invalid {
        /// What SQLite says.
        reason: String,
        /// How many characters of the text come before the place, where it has one.
        offset: Option<usize>,
    },

    /// It would do something else than read the index.
    #[error("a query only reads: {what} is not allowed")]
    Refused {
        /// What it would do.
        what: String,
    },

    /// It took longer than it may.
    #[error("the query was stopped after {} s", limit.as_secs_f64())]
    TimedOut {
        /// How long it may take.
        limit: Duration,
    },

    /// The answer is to be held in memory and is too long for that.
    #[error("the answer is longer than {} MiB", limit_bytes >> 20)]
    TooLong {
        /// How long it may be.
        limit_bytes: usize,
    },
}

impl QueryError {
    pub(super) const fn class(&self) -> ErrorClass {
        match self {
            Self::NoStore { .. } | Self::Invalid { .. } | Self::Refused { .. } => ErrorClass::Input,
            Self::NoIndex { .. } | Self::TimedOut { .. } | Self::TooLong { .. } => {
                ErrorClass::Failed
            }
        }
    }

    pub(super) const fn code(&self) -> &'static str {
        match self {
            Self::NoStore { .. } => "query-no-store",
            Self::NoIndex { .. } => "query-no-index",
            Self::Invalid { .. } => "query-invalid",
            Self::Refused { .. } => "query-refused",
            Self::TimedOut { .. } => "query-timed-out",
            Self::TooLong { .. } => "query-too-long",
        }
    }

    pub(super) fn hint(&self) -> String {
        match self {
            Self::NoStore { .. } => "`turnpoint capture` makes it",
            Self::NoIndex { .. } => {
                "a command that writes, such as `turnpoint capture`, builds it; where the store cannot be \
                 written, copy it and ask the copy with TURNPOINT_HOME"
            }
            Self::Invalid { .. } => "`turnpoint sql --schema` shows what can be asked",
            Self::Refused { .. } => {
                "ask with one SELECT; `turnpoint sql --schema` shows what can be asked"
            }
            Self::TimedOut { .. } => {
                "ask for less, such as one `session` and `seq`, or allow more with --timeout"
            }
            Self::TooLong { .. } => {
                "ask for less, or take less with --limit, or all of it through a pipe with --format csv"
            }
        }
        .to_owned()
    }
}
