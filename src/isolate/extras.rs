//! Bringing along into the work tree of a run what git does not put there: dependencies, caches, settings.
//!
//! Nothing is followed but what the user named, nothing is written over, and nothing comes that git would take
//! for a new file: it would be committed with the rest. What cannot come is named, and stops no run.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::failed;
use crate::disk::{self, Dir, FileKind, FileStat};
use crate::error::{Error, Result};
use crate::git;
use crate::limits;
use crate::manifest::Mode;
use crate::monitor::Monitor;
use crate::path::RelPath;
use crate::runs::RunRecord;
use crate::settings::{Extras, is_version_control};

/// Something that was brought along.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Extra {
    /// Where, in the checkout and in the work tree.
    pub path: RelPath,
    /// In which way.
    pub how: ExtraKind,
    /// How many files were copied.
    pub files: u64,
    /// How many bytes they have.
    pub bytes: u64,
}

/// In which way something was brought along.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExtraKind {
    /// A symlink leads to what is in the checkout.
    Symlink,
    /// Its files are copies that share their content on the disk.
    Reflink,
    /// Its files are copies.
    Copy,
}

impl ExtraKind {
    /// As a word for scripts, which never changes.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Symlink => "symlink",
            Self::Reflink => "reflink",
            Self::Copy => "copy",
        }
    }
}

/// What was brought along into the work tree of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BroughtAlong {
    /// In the order in which the settings name it, links first.
    pub extras: Vec<Extra>,
    /// What was not, and why.
    pub left: Vec<(RelPath, String)>,
}

/// Why something does not come.
enum Stop {
    /// The run does without, for this reason.
    Left(String),
    /// There is no run then.
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

const NOT_IGNORED: &str = "git does not ignore it, so it would be committed";
const GONE: &str = "it went while it was looked at";

fn left(reason: impl Into<String>) -> Stop {
    Stop::Left(reason.into())
}

/// What was looked at in the checkout: `None` where it went, or became something else, meanwhile. Nothing there
/// that cannot be read stops the run.
fn there<T>(looked: Result<T>) -> Result<Option<T>, Stop> {
    match looked {
        Ok(found) => Ok(Some(found)),
        Err(error) if disk::is_gone(&error) => Ok(None),
        Err(error) if error.is_lack() => Err(Stop::Failed(error)),
        Err(error @ Error::Io { .. }) => Err(left(error.with_source())),
        Err(error) => Err(Stop::Failed(error)),
    }
}

/// Brings `extras` along from the checkout of a run into its work tree. `store` is where the store is, which
/// never comes.
///
/// # Errors
/// What the system says of a copy, [`Error::NoSpace`], [`Error::Cancelled`]; some of it may be there then.
pub(crate) fn bring_along(
    record: &RunRecord,
    extras: &Extras,
    store: &Path,
    monitor: &dyn Monitor,
) -> Result<BroughtAlong> {
    let mut brought = BroughtAlong::default();
    if *extras == Extras::default() {
        return Ok(brought);
    }
    let store = disk::real_path(store).unwrap_or_else(|_| store.to_owned());
    let mut bringing = Bringing {
        record,
        from: Dir::open(&record.top)?,
        to: Dir::open(&record.path())?,
        store: &store,
        files: 0,
        bytes: 0,
        is_roomy: false,
        monitor,
    };
    let linked = extras.linked.iter().map(|path| (path, true));
    for (path, is_linked) in linked.chain(extras.copied.iter().map(|path| (path, false))) {
        match if is_linked { bringing.link(path) } else { bringing.copy(path) } {
            Ok(extra) => brought.extras.push(extra),
            Err(Stop::Left(reason)) => brought.left.push((path.clone(), reason)),
            Err(Stop::Failed(error)) => return Err(error),
        }
    }
    Ok(brought)
}

struct Bringing<'a> {
    record: &'a RunRecord,
    from: Dir,
    to: Dir,
    store: &'a Path,
    /// How much has been copied so far.
    files: u64,
    bytes: u64,
    /// Whether there is known to be room for what is being copied.
    is_roomy: bool,
    monitor: &'a dyn Monitor,
}

/// Where something is, and where it is to be.
struct Ends {
    from: Dir,
    stat: FileStat,
    to: Dir,
}

/// How much something has.
#[derive(Default)]
struct Extent {
    files: u64,
    bytes: u64,
}

/// What was copied so far of one thing.
#[derive(Default)]
struct Copied {
    files: u64,
    bytes: u64,
    /// Of how many files the file system shares the content.
    shared: u64,
}

impl Bringing<'_> {
    fn link(&mut self, path: &RelPath) -> Result<Extra, Stop> {
        let Ends { to, .. } = self.ends(path)?;
        let name = path.name();
        if !is_ignored(&self.record.top, path)? {
            return Err(left(NOT_IGNORED));
        }
        let target = self.record.top.join(path.as_os());
        to.symlink(target.as_os_str().as_bytes(), name)?;
        let tree = self.record.path();
        if !is_ignored(&tree, path)? {
            // A rule such as `node_modules/` is of directories, and a link is none. In the checkout nothing
            // of that name is shown as it is.
            git::exclude(&self.record.repository, &pattern(path))?;
            if !is_ignored(&tree, path)? {
                to.unlink(name)?;
                return Err(left(NOT_IGNORED));
            }
        }
        Ok(Extra { path: path.clone(), how: ExtraKind::Symlink, files: 0, bytes: 0 })
    }

    fn copy(&mut self, path: &RelPath) -> Result<Extra, Stop> {
        let Ends { from, stat, to } = self.ends(path)?;
        let name = path.name();
        let mut extent = Extent::default();
        self.measure(&from, name, &stat, 0, &mut extent)?;
        let is_dir = stat.kind == FileKind::Dir;
        if is_dir {
            // git goes by what is there: some rules are of directories alone.
            to.make_dir(name, Mode::from_st_mode(0o700))?;
        }
        if !is_ignored(&self.record.path(), path)? {
            if is_dir {
                to.remove_dir(name)?;
            }
            return Err(left(NOT_IGNORED));
        }
        self.is_roomy = false;
        let copied = match self.copy_all(&from, &to, name, &stat, extent.bytes) {
            Err(Stop::Left(reason)) => {
                // A part of it would be taken for all.
                disk::remove_tree(&to, name)?;
                return Err(left(reason));
            }
            copied => copied?,
        };
        let Copied { files, bytes, shared } = copied;
        self.files += files;
        self.bytes += bytes;
        let how = if files > 0 && shared == files { ExtraKind::Reflink } else { ExtraKind::Copy };
        Ok(Extra { path: path.clone(), how, files, bytes })
    }

    fn ends(&self, path: &RelPath) -> Result<Ends, Stop> {
        let (parent, name) = (path.parent().unwrap_or_default(), path.name());
        let Some(from) = there(self.from.try_open_dir(&parent))?.flatten() else {
            return Err(left(match self.record.top.join(path.as_os()).symlink_metadata() {
                Ok(_) => "a symlink is on the way to it",
                Err(_) => "it is not there",
            }));
        };
        let stat = match there(from.stat(name))?.flatten() {
            None => return Err(left("it is not there")),
            Some(stat) if stat.kind == FileKind::Symlink => return Err(left("it is a symlink")),
            Some(stat) if stat.kind == FileKind::Other => {
                return Err(left("it is neither a file nor a directory"));
            }
            Some(stat) => stat,
        };
        let place = self.record.top.join(path.as_os());
        if self.store.starts_with(&place) || place.starts_with(self.store) {
            return Err(left("the store is in it"));
        }
        let mut to = self.to.try_clone()?;
        for name in parent.components() {
            match to.stat(name)?.map(|stat| stat.kind) {
                None => to.make_dir(name, Mode::from_st_mode(0o755))?,
                Some(FileKind::Dir) => {}
                Some(_) => return Err(left("the work tree has something else above it")),
            }
            to = to.open_child(name)?;
        }
        if to.stat(name)?.is_some() {
            return Err(left("the work tree has it already"));
        }
        Ok(Ends { from, stat, to })
    }

    /// Adds up what there is, up to what may come.
    fn measure(
        &self,
        dir: &Dir,
        name: &[u8],
        stat: &FileStat,
        depth: usize,
        extent: &mut Extent,
    ) -> Result<(), Stop> {
        self.go_on()?;
        match stat.kind {
            FileKind::File | FileKind::Symlink => {
                extent.files += 1;
                extent.bytes += stat.size;
            }
            FileKind::Other => {}
            FileKind::Dir if depth == limits::EXTRA_DEPTH_MAX => {
                let most = limits::EXTRA_DEPTH_MAX;
                return Err(left(format!("its directories lie in one another, more than {most}")));
            }
            FileKind::Dir => {
                let Some(inside) = there(dir.open_child(name))? else { return Ok(()) };
                for name in there(inside.names())?.unwrap_or_default() {
                    let Some(stat) = there(inside.stat(&name))?.flatten() else { continue };
                    if !is_version_control(&name) {
                        self.measure(&inside, &name, &stat, depth + 1, extent)?;
                    }
                }
            }
        }
        if self.files + extent.files > limits::EXTRA_FILES_MAX {
            let most = limits::EXTRA_FILES_MAX;
            return Err(left(format!("with it there would be more than {most} files to copy")));
        }
        if self.bytes + extent.bytes > limits::EXTRA_BYTES_MAX {
            let most = limits::EXTRA_BYTES_MAX >> 30;
            return Err(left(format!("with it there would be more than {most} GiB to copy")));
        }
        Ok(())
    }

    /// Copies `name`; where it is a directory that is there, with nothing in it yet.
    fn copy_all(
        &mut self,
        from: &Dir,
        to: &Dir,
        name: &[u8],
        stat: &FileStat,
        needed: u64,
    ) -> Result<Copied, Stop> {
        let mut copied = Copied::default();
        if stat.kind == FileKind::Dir {
            let inside = there(from.open_child(name))?.ok_or_else(|| left(GONE))?;
            self.copy_into(&inside, &to.open_child(name)?, needed, &mut copied)?;
            finish(to, name, stat)?;
        } else {
            self.copy_file(from, to, name, needed, &mut copied)?;
            if copied.files == 0 {
                return Err(left(GONE));
            }
        }
        Ok(copied)
    }

    fn copy_into(
        &mut self,
        from: &Dir,
        to: &Dir,
        needed: u64,
        copied: &mut Copied,
    ) -> Result<(), Stop> {
        for name in there(from.names())?.unwrap_or_default() {
            self.go_on()?;
            // What went meanwhile is not missed.
            let Some(stat) = there(from.stat(&name))?.flatten() else { continue };
            // What belongs to a repository, or to turnpoint, is nobody's cache.
            if is_version_control(&name) {
                continue;
            }
            match stat.kind {
                FileKind::File => self.copy_file(from, to, &name, needed, copied)?,
                FileKind::Symlink => {
                    if let Some(target) = there(from.read_link(&name))? {
                        to.symlink(&target, &name)?;
                    }
                }
                FileKind::Dir => {
                    let Some(inside) = there(from.open_child(&name))? else { continue };
                    to.make_dir(&name, Mode::from_st_mode(0o700))?;
                    self.copy_into(&inside, &to.open_child(&name)?, needed, copied)?;
                    finish(to, &name, &stat)?;
                }
                FileKind::Other => {}
            }
        }
        Ok(())
    }

    fn copy_file(
        &mut self,
        from: &Dir,
        to: &Dir,
        name: &[u8],
        needed: u64,
        copied: &mut Copied,
    ) -> Result<(), Stop> {
        let Some(source) = there(from.open_file(name))? else { return Ok(()) };
        let stat = disk::file_stat(&source, &from.path_of(name))?;
        if stat.kind != FileKind::File {
            return Ok(());
        }
        let file = to.create_file(name)?;
        if disk::share_content(&source, &file) {
            copied.shared += 1;
        } else {
            if !self.is_roomy {
                disk::require_space(to, needed, limits::DISK_FLOOR_BYTES)?;
                self.is_roomy = true;
            }
            disk::copy_content(&source, &file, &to.path_of(name))?;
        }
        copied.files += 1;
        copied.bytes += stat.size;
        Ok(finish(to, name, &stat)?)
    }

    fn go_on(&self) -> Result<()> {
        if self.monitor.is_cancelled() { Err(Error::Cancelled) } else { Ok(()) }
    }
}

fn is_ignored(top: &Path, path: &RelPath) -> Result<bool> {
    git::is_ignored(top, path).map_err(failed("say whether it ignores a path"))
}

/// Mode and time are those of the original: programs take a cache for stale by its time. But git could not
/// remove what is in a directory that its owner may not write.
fn finish(dir: &Dir, name: &[u8], stat: &FileStat) -> Result<()> {
    dir.set_mtime(name, stat.mtime_ns)?;
    let least = if stat.kind == FileKind::Dir { 0o700 } else { 0 };
    dir.set_mode(name, Mode::from_st_mode(stat.mode.without_set_id().bits() | least))
}

/// The pattern by which git ignores exactly this path.
fn pattern(path: &RelPath) -> String {
    let mut pattern = "/".to_owned();
    for character in path.to_string().chars() {
        if matches!(character, '*' | '?' | '[' | '\\' | ' ') {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_of_one_path_alone() {
        let of = |path: &str| pattern(&RelPath::new(path).unwrap());
        assert_eq!(of("a/node_modules"), "/a/node_modules");
        assert_eq!(of("!a*b? [c]\\"), "/!a\\*b\\?\\ \\[c]\\\\");
    }
}
