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

/// Why something does not come; the run does without.
type Left = String;

const NOT_IGNORED: &str = "git does not ignore it, so it would be committed";

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
        match if is_linked { bringing.link(path) } else { bringing.copy(path) }? {
            Ok(extra) => brought.extras.push(extra),
            Err(reason) => brought.left.push((path.clone(), reason)),
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
    fn link(&mut self, path: &RelPath) -> Result<Result<Extra, Left>> {
        let Ends { to, .. } = match self.ends(path)? {
            Ok(ends) => ends,
            Err(left) => return Ok(Err(left)),
        };
        let name = path.name();
        if !is_ignored(&self.record.top, path)? {
            return Ok(Err(NOT_IGNORED.to_owned()));
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
                return Ok(Err(NOT_IGNORED.to_owned()));
            }
        }
        Ok(Ok(Extra { path: path.clone(), how: ExtraKind::Symlink, files: 0, bytes: 0 }))
    }

    fn copy(&mut self, path: &RelPath) -> Result<Result<Extra, Left>> {
        let Ends { from, stat, to } = match self.ends(path)? {
            Ok(ends) => ends,
            Err(left) => return Ok(Err(left)),
        };
        let name = path.name();
        let mut extent = Extent::default();
        if let Some(left) = self.measure(&from, name, &stat, 0, &mut extent)? {
            return Ok(Err(left));
        }
        let is_dir = stat.kind == FileKind::Dir;
        if is_dir {
            // git goes by what is there: some rules are of directories alone.
            to.make_dir(name, Mode::from_st_mode(0o700))?;
        }
        if !is_ignored(&self.record.path(), path)? {
            if is_dir {
                to.remove_dir(name)?;
            }
            return Ok(Err(NOT_IGNORED.to_owned()));
        }
        let mut copied = Copied::default();
        self.is_roomy = false;
        if is_dir {
            self.copy_into(
                &from.open_child(name)?,
                &to.open_child(name)?,
                extent.bytes,
                &mut copied,
            )?;
            finish(&to, name, &stat)?;
        } else {
            self.copy_file(&from, &to, name, extent.bytes, &mut copied)?;
        }
        let Copied { files, bytes, shared } = copied;
        self.files += files;
        self.bytes += bytes;
        let how = if files > 0 && shared == files { ExtraKind::Reflink } else { ExtraKind::Copy };
        Ok(Ok(Extra { path: path.clone(), how, files, bytes }))
    }

    fn ends(&self, path: &RelPath) -> Result<Result<Ends, Left>> {
        let left = |reason: &str| Ok(Err(reason.to_owned()));
        let (parent, name) = (path.parent().unwrap_or_default(), path.name());
        let Some(from) = self.from.try_open_dir(&parent)? else {
            return left(match self.record.top.join(path.as_os()).symlink_metadata() {
                Ok(_) => "a symlink is on the way to it",
                Err(_) => "it is not there",
            });
        };
        let stat = match from.stat(name)? {
            None => return left("it is not there"),
            Some(stat) if stat.kind == FileKind::Symlink => return left("it is a symlink"),
            Some(stat) if stat.kind == FileKind::Other => {
                return left("it is neither a file nor a directory");
            }
            Some(stat) => stat,
        };
        let place = self.record.top.join(path.as_os());
        if self.store.starts_with(&place) || place.starts_with(self.store) {
            return left("the store is in it");
        }
        let mut to = self.to.try_clone()?;
        for name in parent.components() {
            match to.stat(name)?.map(|stat| stat.kind) {
                None => to.make_dir(name, Mode::from_st_mode(0o755))?,
                Some(FileKind::Dir) => {}
                Some(_) => return left("the work tree has something else above it"),
            }
            to = to.open_child(name)?;
        }
        if to.stat(name)?.is_some() {
            return left("the work tree has it already");
        }
        Ok(Ok(Ends { from, stat, to }))
    }

    /// Adds up what there is, up to what may come; the reason where that is too much.
    fn measure(
        &self,
        dir: &Dir,
        name: &[u8],
        stat: &FileStat,
        depth: usize,
        extent: &mut Extent,
    ) -> Result<Option<Left>> {
        self.go_on()?;
        match stat.kind {
            FileKind::File | FileKind::Symlink => {
                extent.files += 1;
                extent.bytes += stat.size;
            }
            FileKind::Other => {}
            FileKind::Dir if depth == limits::EXTRA_DEPTH_MAX => {
                let most = limits::EXTRA_DEPTH_MAX;
                return Ok(Some(format!("its directories lie in one another, more than {most}")));
            }
            FileKind::Dir => {
                let inside = dir.open_child(name)?;
                for name in inside.names()? {
                    let Some(stat) = inside.stat(&name)? else { continue };
                    if is_version_control(&name) {
                        continue;
                    }
                    let left = self.measure(&inside, &name, &stat, depth + 1, extent)?;
                    if left.is_some() {
                        return Ok(left);
                    }
                }
            }
        }
        if self.files + extent.files > limits::EXTRA_FILES_MAX {
            let most = limits::EXTRA_FILES_MAX;
            return Ok(Some(format!("with it there would be more than {most} files to copy")));
        }
        if self.bytes + extent.bytes > limits::EXTRA_BYTES_MAX {
            let most = limits::EXTRA_BYTES_MAX >> 30;
            return Ok(Some(format!("with it there would be more than {most} GiB to copy")));
        }
        Ok(None)
    }

    fn copy_into(&mut self, from: &Dir, to: &Dir, needed: u64, copied: &mut Copied) -> Result<()> {
        for name in from.names()? {
            self.go_on()?;
            // What went meanwhile is not missed.
            let Some(stat) = from.stat(&name)? else { continue };
            // What belongs to a repository, or to turnpoint, is nobody's cache.
            if is_version_control(&name) {
                continue;
            }
            match stat.kind {
                FileKind::File => self.copy_file(from, to, &name, needed, copied)?,
                FileKind::Symlink => to.symlink(&from.read_link(&name)?, &name)?,
                FileKind::Dir => {
                    to.make_dir(&name, Mode::from_st_mode(0o700))?;
                    let (inside, into) = (from.open_child(&name)?, to.open_child(&name)?);
                    self.copy_into(&inside, &into, needed, copied)?;
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
    ) -> Result<()> {
        let Some(source) = from.try_open_file(name)? else { return Ok(()) };
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
        finish(to, name, &stat)
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
