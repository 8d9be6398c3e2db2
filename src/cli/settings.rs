//! What the global arguments and the environment say, checked.

use std::path::{Path, PathBuf};

use etcetera::BaseStrategy;
use turnpoint::Error;
use turnpoint::id::WorkspaceId;

use crate::cli::arguments::GlobalArguments;
use crate::cli::exit::Exit;
use crate::cli::failure::{Failure, Outcome};

/// What every command needs to know.
#[derive(Debug)]
pub(crate) struct Settings {
    /// The sessions home.
    pub(crate) home: PathBuf,
    /// The real path of the directory that relative paths start from.
    pub(crate) directory: PathBuf,
    /// Whether `directory` was named: it is the workspace then, whatever else is known.
    pub(crate) is_named: bool,
    /// Which workspace this is, where path and directory disagree.
    pub(crate) workspace: Option<WorkspaceId>,
}

impl Settings {
    /// Looks at arguments, environment and current directory.
    pub(crate) fn resolve(arguments: &GlobalArguments) -> Outcome<Self> {
        let settings = Self::of_directory(arguments.directory.clone())?;
        Ok(Self { workspace: arguments.workspace, ..settings })
    }

    /// Where a directory is named, or is not, and nothing else.
    pub(crate) fn of_directory(named: Option<PathBuf>) -> Outcome<Self> {
        let is_named = named.is_some();
        let directory = named.unwrap_or_else(|| PathBuf::from("."));
        Ok(Self {
            home: sessions_home()?,
            directory: real_path(&directory)?,
            is_named,
            workspace: None,
        })
    }
}

fn sessions_home() -> Outcome<PathBuf> {
    let named = std::env::var_os("TURNPOINT_HOME").filter(|home| !home.is_empty());
    let home = match named {
        Some(home) => PathBuf::from(home),
        None => etcetera::base_strategy::Xdg::new()
            .map_err(|_| {
                let message = "no home directory is known, so there is no place for the store";
                Failure::own(Exit::Usage, "no-home", message)
                    .hint("set TURNPOINT_HOME to a directory for it")
            })?
            .data_dir()
            .join("turnpoint"),
    };
    std::path::absolute(&home)
        .map_err(|source| Error::Io { verb: "resolve", path: home, source }.into())
}

/// The real path of a directory that must exist.
fn real_path(directory: &Path) -> Outcome<PathBuf> {
    directory.canonicalize().map_err(|source| {
        let path = directory.to_owned();
        let is_missing = source.kind() == std::io::ErrorKind::NotFound;
        let error = if is_missing {
            Error::WorkspaceMissing { path }
        } else {
            Error::Io { verb: "resolve", path, source }
        };
        error.into()
    })
}
