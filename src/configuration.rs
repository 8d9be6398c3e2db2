//! The files that settings stand in.
//!
//! That of the user is trusted; it may be a symlink, as those who keep such files elsewhere make it. That
//! of a workspace comes with the files of others: nothing is followed, and nothing in its place is
//! waited for.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::disk;
use crate::error::{ConfigurationError, ConfigurationProblem, Error, Place, Result};
use crate::limits;
use crate::monitor::Monitor;
use crate::settings::{Configuration, Kind, SETTINGS, Setting, SettingChange, SettingsFile};

/// The name of the file at the root of a workspace.
pub const WORKSPACE_FILE: &str = ".turnpoint.toml";

impl Configuration {
    /// Reads the user's file, where there is one, and the environment.
    ///
    /// # Errors
    /// [`Error::Configuration`] with everything that cannot be obeyed. What they say decides where the
    /// store is, what is never held and how long checkpoints stay: going on without would do what the
    /// user does not want, and some of that could not be taken back.
    pub fn read(
        user_file: Option<&Path>,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self> {
        let mut configuration = Self::default();
        let mut problems = Vec::new();
        if let Some(path) = user_file {
            match followed(path) {
                Ok(Some(bytes)) => problems.extend(configuration.take_user(path, &bytes)),
                Ok(None) => {}
                Err(error) => {
                    let place = Place::UserFile { path: path.to_owned(), position: None };
                    problems.push(unreadable(place, &error));
                }
            }
        }
        for setting in SETTINGS {
            let Some(text) = variable(&setting.variable()) else { continue };
            // Where a variable cannot be taken away it is set to nothing. No command is a command.
            if text.is_empty() && setting.kind != Kind::Command {
                continue;
            }
            problems.extend(configuration.take_variable(setting, text.to_str()));
        }
        if problems.is_empty() {
            return Ok(configuration);
        }
        Err(ConfigurationError { problems }.into())
    }

    /// The same with what the file of the workspace at `root` says, and what of that cannot be obeyed.
    /// Each setting in it counts by itself.
    pub fn of_workspace(&self, root: &Path) -> (Self, Vec<ConfigurationProblem>) {
        let mut configuration = self.clone();
        let path = root.join(WORKSPACE_FILE);
        let problems = match disk::read_small(&path, limits::CONFIGURATION_BYTES_MAX) {
            Ok(Some(bytes)) => configuration.take_workspace(&path, &bytes),
            Ok(None) => Vec::new(),
            // The root is no directory: whoever works on it says so.
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotADirectory => {
                Vec::new()
            }
            Err(error) => {
                vec![unreadable(Place::WorkspaceFile { path, position: None }, &error)]
            }
        };
        (configuration, problems)
    }

    /// Gives `setting` the value in a settings file that `text` stands for, or takes it out of there where
    /// there is none. Comments, order and line ends stay; the file and, for the user's, its directory are
    /// made where they are missing. `text` is as in a variable of the environment: a word, a number or a size
    /// as it is, a list as `["build/", "*.iso"]`.
    ///
    /// # Concurrency
    /// Of two that change a file at once neither loses what the other wrote. A wait for the other one is told
    /// to the monitor, which may end it.
    ///
    /// # Errors
    /// [`Error::Configuration`] where the value, or anything else in the file, cannot be obeyed;
    /// [`Error::Io`], also where a symlink is in the place of a workspace's file; [`Error::Busy`],
    /// [`Error::Cancelled`]. Nothing was changed then, unless it was the last step that failed, the sync of
    /// the directory: then the file is changed, and the error says that this may not be durable.
    pub fn change(
        &self,
        file: SettingsFile<'_>,
        setting: &'static Setting,
        text: Option<&str>,
        monitor: &dyn Monitor,
    ) -> Result<SettingChange> {
        let path = match file {
            SettingsFile::Workspace(root) => root.join(WORKSPACE_FILE),
            SettingsFile::User(path) => target(path)?,
        };
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Error::Io { verb: "write", path, source: ErrorKind::IsADirectory.into() });
        };
        let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
        let changed = |bytes: &[u8]| {
            let changed = self.changed((file, &path), bytes, setting, text);
            changed.map_err(|problems| Error::from(ConfigurationError { problems }))
        };
        let dir = match disk::Dir::open(above) {
            Err(Error::Io { source, .. })
                if source.kind() == ErrorKind::NotFound
                    && matches!(file, SettingsFile::User(_)) =>
            {
                // Before anything is made: what is refused leaves nothing.
                let (_, change) = changed(&[])?;
                if !change.is_written {
                    return Ok(change);
                }
                disk::make_directories(above)?;
                disk::Dir::open(above)?
            }
            opened => opened?,
        };
        let most = limits::CONFIGURATION_BYTES_MAX;
        disk::edit_durably(&dir, name.as_encoded_bytes(), most, monitor, |old| {
            let (text, change) = changed(old.unwrap_or_default())?;
            Ok((text.into_bytes(), change))
        })
    }
}

/// The path behind symlinks, also where the last of them leads to a name that is not there.
fn target(path: &Path) -> Result<PathBuf> {
    /// As many as the kernel follows.
    const LINKS_MAX: usize = 40;
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        match disk::real_path(&path) {
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {}
            real => return real,
        }
        let Ok(link) = path.read_link() else { return Ok(path) };
        path = path.parent().unwrap_or(Path::new("/")).join(link);
    }
    disk::real_path(&path)
}

/// The content of a file that may be a symlink; `None` where there is no such name.
fn followed(path: &Path) -> Result<Option<Vec<u8>>> {
    match disk::real_path(path) {
        Ok(real) => disk::read_small(&real, limits::CONFIGURATION_BYTES_MAX),
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn unreadable(place: Place, error: &Error) -> ConfigurationProblem {
    let source = std::error::Error::source(error);
    let why = source.map_or_else(|| error.to_string(), ToString::to_string);
    let reason = format!("it cannot be read: {why}");
    ConfigurationProblem { place, reason, hint: "mend it, or move it away".to_owned() }
}
