//! What is wrong with a configuration, and where.

use std::fmt;
use std::path::PathBuf;

use crate::path::printable;

/// Where a setting is given a value.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// In the user's file.
    UserFile {
        /// Which one.
        path: PathBuf,
        /// Where in it; `None`: the file as a whole.
        position: Option<Position>,
    },
    /// In the file of a workspace.
    WorkspaceFile {
        /// Which one.
        path: PathBuf,
        /// As in the user's.
        position: Option<Position>,
    },
    /// In the environment.
    Environment {
        /// The name of the variable.
        variable: String,
    },
}

/// A place in a text, as editors count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UserFile { path, position } | Self::WorkspaceFile { path, position } => {
                f.write_str(&printable(path.as_os_str().as_encoded_bytes()))?;
                match position {
                    Some(Position { line, column }) => write!(f, ":{line}:{column}"),
                    None => Ok(()),
                }
            }
            Self::Environment { variable } => f.write_str(variable),
        }
    }
}

/// Something in a configuration that cannot be obeyed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigurationProblem {
    /// Where it stands.
    pub place: Place,
    /// What is wrong with it: the setting, its value, and what is expected.
    pub reason: String,
    /// What to do next.
    pub hint: String,
}

impl fmt::Display for ConfigurationProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.reason)
    }
}

/// A configuration that cannot be obeyed in full. Nothing was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigurationError {
    /// What is wrong with it, at least one thing; in the order in which it stands there.
    pub problems: Vec<ConfigurationProblem>,
}

impl std::error::Error for ConfigurationError {}

/// The first problem, and how many more there are.
impl fmt::Display for ConfigurationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.problems.as_slice() {
            [] => f.write_str("the configuration cannot be obeyed"),
            [only] => only.fmt(f),
            [first, others @ ..] => write!(f, "{first}, and {} more", others.len()),
        }
    }
}

impl ConfigurationError {
    /// What to do about the first problem.
    pub(crate) fn hint(&self) -> Option<String> {
        self.problems.first().map(|problem| problem.hint.clone())
    }
}
