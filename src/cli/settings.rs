//! What the global arguments and the environment say, checked.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use etcetera::BaseStrategy;
use turnpoint::id::WorkspaceId;
use turnpoint::settings::{Configuration, Settings as Values};
use turnpoint::{ConfigurationProblem, Error, Place};

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
    /// What the environment and the user's file say.
    pub(crate) configuration: Configuration,
    /// What follows from it.
    pub(crate) values: Values,
}

impl Settings {
    /// Looks at arguments, environment and current directory.
    pub(crate) fn resolve(arguments: &GlobalArguments, user: UserFile) -> Outcome<Self> {
        let settings = Self::of_directory(arguments.directory.clone(), user)?;
        Ok(Self { workspace: arguments.workspace, ..settings })
    }

    /// Where a directory is named, or is not, and nothing else.
    pub(crate) fn of_directory(named: Option<PathBuf>, user: UserFile) -> Outcome<Self> {
        let is_named = named.is_some();
        let directory = named.unwrap_or_else(|| PathBuf::from("."));
        let configuration = match Configuration::read(user_file(user)?.as_deref(), variable) {
            Err(Error::Configuration(_)) if user != UserFile::Obeyed => {
                Configuration::read(None, variable)
            }
            read => read,
        };
        let configuration = configuration.map_err(with_way_out)?;
        let values = configuration.settings();
        Ok(Self {
            home: sessions_home(values.home.as_deref())?,
            directory: real_path(&directory)?,
            is_named,
            workspace: None,
            configuration,
            values,
        })
    }
}

/// Says also how to go without a file of the user's that cannot be obeyed: each command stops at it.
fn with_way_out(error: Error) -> Error {
    let Error::Configuration(mut error) = error else { return error };
    let first = error.problems.first_mut();
    if let Some(first) = first.filter(|first| matches!(first.place, Place::UserFile { .. })) {
        add_hint(
            first,
            "meanwhile `TURNPOINT_CONFIG= turnpoint COMMAND` goes without that file, which may also say where \
             the store is",
        );
    }
    error.into()
}

/// Adds what can be done besides.
pub(crate) fn add_hint(problem: &mut ConfigurationProblem, more: &str) {
    problem.hint.push_str(if problem.hint.ends_with('?') { " " } else { "; " });
    problem.hint.push_str(more);
}

/// What the user's settings file is to a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UserFile {
    /// Where it was named and is not there, or cannot be obeyed, going on would not do what it says.
    Obeyed,
    /// It is about to be changed: what is wrong in it may be mended by that.
    Changed,
    /// As [`UserFile::Changed`], and made where it is not there.
    Made,
}

/// Whether a path lies in the store, or where it would be.
pub(crate) fn is_in_store(path: &Path) -> bool {
    Settings::of_directory(None, UserFile::Obeyed)
        .is_ok_and(|settings| path.starts_with(settings.home))
}

/// The user's settings file: the one that `TURNPOINT_CONFIG` names, and none where that is empty; else the
/// one in its usual place, where it need not be, if that is known.
pub(crate) fn user_file(user: UserFile) -> Outcome<Option<PathBuf>> {
    let Some(named) = std::env::var_os("TURNPOINT_CONFIG") else {
        let directories = etcetera::base_strategy::Xdg::new().ok();
        return Ok(directories.map(|xdg| xdg.config_dir().join("turnpoint/config.toml")));
    };
    if named.is_empty() {
        return Ok(None);
    }
    let path = PathBuf::from(named);
    match path.symlink_metadata() {
        Err(source) if user != UserFile::Made || source.kind() != ErrorKind::NotFound => {
            Err(Error::Io { verb: "read", path, source }.into())
        }
        _ => Ok(Some(path)),
    }
}

/// A variable of the environment that stands for a setting. A directory in it may be relative, as in
/// every other variable for one; one that is not UTF-8 is taken by [`sessions_home`] alone.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    let value = std::env::var_os(name)?;
    if name != HOME || value.is_empty() {
        return Some(value);
    }
    let path = std::path::absolute(value).ok()?;
    path.to_str().is_some().then(|| path.into_os_string())
}

/// The variable that names the store's place.
const HOME: &str = "TURNPOINT_HOME";

fn sessions_home(configured: Option<&str>) -> Outcome<PathBuf> {
    let directories = || {
        etcetera::base_strategy::Xdg::new().map_err(|_| {
            let message = "no home directory is known, so there is no place for the store";
            Failure::own(Exit::Usage, "no-home", message)
                .hint("set TURNPOINT_HOME to a directory for it")
        })
    };
    let named = std::env::var_os(HOME).filter(|home| !home.is_empty());
    let home = match (named, configured) {
        (Some(home), _) => PathBuf::from(home),
        (None, Some(home)) => match home.strip_prefix("~/") {
            Some(below) => directories()?.home_dir().join(below),
            None => PathBuf::from(home),
        },
        (None, None) => directories()?.data_dir().join("turnpoint"),
    };
    std::path::absolute(&home)
        .map_err(|source| Error::Io { verb: "resolve", path: home, source }.into())
}

/// The real path of a directory that must exist.
fn real_path(directory: &Path) -> Outcome<PathBuf> {
    directory.canonicalize().map_err(|source| {
        let path = directory.to_owned();
        let is_missing = source.kind() == ErrorKind::NotFound;
        let error = if is_missing {
            Error::WorkspaceMissing { path }
        } else {
            Error::Io { verb: "resolve", path, source }
        };
        error.into()
    })
}
