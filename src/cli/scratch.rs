//! A temporary directory in which another program works.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use turnpoint::Error;
use turnpoint::path::printable;

use crate::cli::exit::Exit;
use crate::cli::failure::{Failure, Outcome};

/// A place that is emptied for each piece of work, and removed at the end, whatever the end is.
#[derive(Debug)]
pub(crate) struct Scratch {
    dir: TempDir,
    /// The place itself: always the same path, and called as the workspace is.
    place: PathBuf,
}

impl Scratch {
    /// Makes one outside of the workspace at `root`. Only the user may look into it.
    pub(crate) fn new(root: &Path) -> Outcome<Self> {
        let above = std::env::temp_dir();
        let above = above.canonicalize().map_err(failed("resolve", &above))?;
        if above.starts_with(root) {
            let shown = printable(above.as_os_str().as_bytes());
            let message =
                format!("the directory for temporary files, {shown}, is in the workspace");
            return Err(Failure::own(Exit::Usage, "scratch-inside", message)
                .hint("set TMPDIR to a directory outside of it"));
        }
        let dir = tempfile::Builder::new()
            .prefix("turnpoint-bisect-")
            .tempdir_in(&above)
            .map_err(failed("make a directory in", &above))?;
        let place = dir.path().join(root.file_name().unwrap_or("workspace".as_ref()));
        Ok(Self { dir, place })
    }

    /// The place, which need not exist.
    pub(crate) fn place(&self) -> &Path {
        &self.place
    }

    /// Removes the place with all that is in it.
    pub(crate) fn empty(&self) -> Outcome<()> {
        Ok(remove(&self.place).map_err(failed("remove", &self.place))?)
    }

    /// Removes everything.
    pub(crate) fn close(self) -> Outcome<()> {
        self.empty()?;
        let path = self.dir.path();
        Ok(fs::remove_dir(path).map_err(failed("remove", path))?)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The directory above it goes by itself, but only where this one can.
        remove(&self.place).ok();
    }
}

fn failed(verb: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Io { verb, path, source }
}

/// Removes a tree, also one in which directories cannot be written, as caches of packages are.
fn remove(place: &Path) -> io::Result<()> {
    match fs::remove_dir_all(place) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            open_directories(place)?;
            fs::remove_dir_all(place)
        }
        other => other,
    }
}

/// Gives the owner every permission on the directories of a tree. No link is followed.
fn open_directories(directory: &Path) -> io::Result<()> {
    fs::set_permissions(directory, Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            open_directories(&entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn the_directories_of_a_tree_are_opened_and_none_elsewhere() {
        let dir = tempfile::tempdir().unwrap();
        let (tree, elsewhere) = (dir.path().join("tree"), dir.path().join("elsewhere"));
        fs::create_dir_all(tree.join("a/b")).unwrap();
        fs::create_dir(&elsewhere).unwrap();
        symlink(&elsewhere, tree.join("a/link")).unwrap();
        let close = |path: &Path| fs::set_permissions(path, Permissions::from_mode(0o555)).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        for path in [&elsewhere, &tree.join("a/b"), &tree.join("a"), &tree] {
            close(path);
        }
        open_directories(&tree).unwrap();
        let modes = [&*tree, &tree.join("a"), &tree.join("a/b"), &elsewhere].map(mode);
        assert_eq!(modes, [0o700, 0o700, 0o700, 0o555]);
        remove(&tree).unwrap();
        assert!(!tree.exists() && elsewhere.exists());
        remove(&tree).unwrap();
    }
}
