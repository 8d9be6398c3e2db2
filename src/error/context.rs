//! Making errors of what the system said.

use std::io;
use std::path::PathBuf;

use super::{Error, Result};

/// The error of a file that is there and cannot be understood.
pub(crate) fn not_understood(path: &std::path::Path, reason: impl Into<String>) -> Error {
    let source = io::Error::new(io::ErrorKind::InvalidData, reason.into());
    Error::Io { verb: "understand", path: path.to_owned(), source }
}

/// Puts the path and the verb into an I/O error.
pub(crate) trait IoContext<T> {
    /// `verb` continues the sentence `cannot …`.
    fn at(self, verb: &'static str, path: impl Into<PathBuf>) -> Result<T>;
}

impl<T, E: Into<io::Error>> IoContext<T> for std::result::Result<T, E> {
    fn at(self, verb: &'static str, path: impl Into<PathBuf>) -> Result<T> {
        self.map_err(|source| Error::Io { verb, path: path.into(), source: source.into() })
    }
}
