//! Looking at and tidying the store's own directories by path, and what a restore needs of single
//! files.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::{Errno, retry_on_intr};

use crate::clock::Timestamp;
use crate::disk::dir::{CREATE, Dir, FileKind, FileStat, file_stat, unusable};
use crate::disk::lock::{LockKind, try_flock};
use crate::disk::small::{create_temp, leads_to, write_whole};
use crate::disk::system::{mounts_below, user};
use crate::error::{Error, IoContext, Result};
use crate::hash::{BlobHash, BlobHasher};
use crate::limits;
use crate::manifest::Mode;
use crate::path::RelPath;

/// The names in the directory at `path`, in no order, each with whether it is a directory.
///
/// # Errors
/// One that cannot be listed to its end is an error, never a short list.
pub(crate) fn list_dir(path: &Path) -> Result<Vec<(Vec<u8>, bool)>> {
    let mut names = Vec::new();
    let entries = loop {
        match std::fs::read_dir(path) {
            // A signal came while it was opened; the library does not try again.
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            opened => break opened.at("list", path)?,
        }
    };
    for entry in entries {
        let entry = entry.at("list", path)?;
        let is_dir = entry.file_type().at("examine", entry.path())?.is_dir();
        names.push((entry.file_name().into_vec(), is_dir));
    }
    Ok(names)
}

/// Whether a directory, not a symlink to one, is at `path`.
pub(crate) fn is_directory(path: &Path) -> Result<bool> {
    match std::fs::symlink_metadata(path) {
        Ok(metadata) => Ok(metadata.is_dir()),
        Err(error) if is_nothing(&error) => Ok(false),
        Err(error) => Err(error).at("examine", path),
    }
}

/// Whether an error says that there is no such name: below a file there is none either.
fn is_nothing(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory)
}

/// The path of an existing file or directory without symlinks.
pub(crate) fn real_path(path: &Path) -> Result<PathBuf> {
    std::fs::canonicalize(path).at("find", path)
}

/// Removes the file at `path`; `false` where there is none. Not durable.
pub(crate) fn remove_file(path: &Path) -> Result<bool> {
    match std::fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).at("remove", path),
    }
}

/// The first `length` bytes of the regular file at `path`, or all of a shorter one.
pub(crate) fn read_start(path: &Path, length: usize) -> Result<Vec<u8>> {
    let (dir, name) = (path.parent().unwrap_or(path), path.file_name().unwrap_or_default());
    let file = Dir::open(dir)?.open_file(name.as_encoded_bytes())?;
    let mut bytes = Vec::with_capacity(length);
    file.take(length as u64).read_to_end(&mut bytes).at("read", path)?;
    Ok(bytes)
}

/// Puts `bytes` in the place of the file `name`, whole or not at all. Not durable: a power cut may
/// leave the old file, or one that is cut short, so its reader must be able to tell.
pub(crate) fn replace(dir: &Dir, name: &[u8], bytes: &[u8], tmp: &Dir) -> Result<()> {
    let (mut file, temp) = create_temp(tmp)?;
    let written = write_whole(&mut file, bytes, &tmp.path_of(&temp))
        .and_then(|()| tmp.rename_to(&temp, dir, name));
    if written.is_err() {
        tmp.try_unlink(&temp)?;
    }
    written
}

/// Writes into the file `name`, each of `writes` from its offset on. Neither durable nor atomic: its reader
/// must be able to tell.
pub(crate) fn overwrite(dir: &Dir, name: &[u8], writes: &[(u64, Vec<u8>)]) -> Result<()> {
    let path = dir.path_of(name);
    let file = std::fs::OpenOptions::new().write(true).open(&path).at("open", &path)?;
    writes
        .iter()
        .try_for_each(|(offset, bytes)| file.write_all_at(bytes, *offset))
        .at("write", &path)
}

/// When the file at `path` was modified, in nanoseconds since 1970; `None` where there is none.
pub(crate) fn modified_ns(path: &Path) -> Result<Option<i64>> {
    let stat = retry_on_intr(|| rustix::fs::lstat(path));
    match stat {
        // Below a file there is none either.
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        other => {
            let stat = other.at("examine", path)?;
            #[expect(clippy::unnecessary_cast, reason = "the widths differ between architectures")]
            let ns = (stat.st_mtime as i64)
                .saturating_mul(1_000_000_000)
                .saturating_add(i64::try_from(stat.st_mtime_nsec as u64).unwrap_or(0));
            Ok(Some(ns))
        }
    }
}

/// Gives the file at `path` the present time as that of its last modification.
pub(crate) fn touch(path: &Path) -> Result<()> {
    let now = Timestamp::now().as_ns();
    let (dir, name) = (path.parent().unwrap_or(path), path.file_name().unwrap_or_default());
    Dir::open(dir)?.set_mtime(name.as_encoded_bytes(), now)
}

/// Removes what `name` is, if it is older than a minute and nobody is writing it any more: the writer of
/// a temporary file or directory keeps it locked. Returns whether it went.
///
/// # Concurrency
/// The file is unlinked while it is locked here. A writer that has just made it, and gets its lock
/// after this, finds the name gone and takes another: no clock is relied upon.
pub(crate) fn remove_abandoned(dir: &Dir, name: &[u8]) -> Result<bool> {
    match abandoned(dir, name)? {
        None => Ok(false),
        // The lock is held until it is gone.
        Some((FileKind::Dir, _locked)) => remove_tree(dir, name).map(|()| true),
        Some((_, _locked)) => dir.try_unlink(name),
    }
}

/// Whether [`remove_abandoned`] would remove `name`.
pub(crate) fn is_abandoned(dir: &Dir, name: &[u8]) -> Result<bool> {
    Ok(abandoned(dir, name)?.is_some())
}

/// What `name` is, locked where that can be, if it is older than a minute and nobody is writing it.
fn abandoned(dir: &Dir, name: &[u8]) -> Result<Option<(FileKind, Option<File>)>> {
    let Some(stat) = dir.stat(name)? else { return Ok(None) };
    let age = Timestamp::from_ns(stat.mtime_ns).until(Timestamp::now());
    if age < limits::GRACE {
        return Ok(None);
    }
    if !matches!(stat.kind, FileKind::File | FileKind::Dir) {
        return Ok(Some((stat.kind, None)));
    }
    let Some(file) = dir.try_open_file(name)? else { return Ok(None) };
    let is_free =
        try_flock(&file, LockKind::Exclusive, &dir.path_of(name))? && leads_to(dir, name, &file)?;
    Ok(is_free.then_some((stat.kind, Some(file))))
}

/// Makes the file at `path`, mode 0600, take `bytes` of the disk, where it is missing and twice as
/// much is free.
pub(crate) fn reserve(path: &Path, bytes: u64) -> Result<()> {
    let dir = Dir::open(path.parent().unwrap_or(path))?;
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    if dir.stat(name)?.is_some() || crate::disk::available_bytes(&dir)? < bytes.saturating_mul(2) {
        return Ok(());
    }
    let file = dir.create_file(name)?;
    let flags = rustix::fs::FallocateFlags::empty();
    let reserved = retry_on_intr(|| rustix::fs::fallocate(&file, flags, 0, bytes));
    if reserved.is_err() {
        dir.try_unlink(name)?;
    }
    reserved.at("reserve", path)
}

/// Makes the directory at `path` where it is missing, with the mode that the umask gives. Returns whether
/// it was missing.
pub(crate) fn make_directory_if_missing(path: &Path) -> Result<bool> {
    match std::fs::create_dir(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error).at("create", path),
    }
}

/// Removes the directory at `path` if nothing is in it.
pub(crate) fn remove_directory_if_empty(path: &Path) {
    // What is in the way of that is in it.
    drop(std::fs::remove_dir(path));
}

/// What is at and below a name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Extent {
    /// How many things that are no directories.
    pub(crate) files: u64,
    /// How much of the disk they and the directories take.
    pub(crate) bytes: u64,
}

impl std::ops::AddAssign for Extent {
    fn add_assign(&mut self, other: Self) {
        self.files += other.files;
        self.bytes += other.bytes;
    }
}

/// What is at and below a name in `dir`. What goes meanwhile takes nothing.
///
/// # Errors
/// [`Error::Io`] where something cannot be looked at: that there is nothing in it is not known.
///
/// Cost: one open for each directory, of which one is open at a time.
pub(crate) fn extent(dir: &Dir, name: &[u8]) -> Result<Extent> {
    let mut all = Extent::default();
    let mut add = |stat: FileStat| {
        let is_dir = stat.kind == FileKind::Dir;
        all += Extent { files: u64::from(!is_dir), bytes: stat.allocated_bytes() };
        is_dir
    };
    let Some(stat) = dir.stat(name)? else { return Ok(all) };
    let mut pending =
        if add(stat) { vec![joined(dir, &RelPath::root(), name)?] } else { Vec::new() };
    while let Some(path) = pending.pop() {
        let Some(inside) = dir.try_open_dir(&path)? else { continue };
        for name in inside.names()? {
            if inside.stat(&name)?.is_some_and(&mut add) {
                pending.push(joined(dir, &path, &name)?);
            }
        }
    }
    Ok(all)
}

/// Gives the owner every permission for the directories of this user at and below `name` in `dir` that lack
/// one: without them what is in one cannot be removed. No symlink is followed, and nothing is done at and below
/// a mount point.
///
/// # Errors
/// [`Error::Io`] where one cannot be changed, or not be listed.
///
/// Cost: one open for each directory, of which one is open at a time.
pub(crate) fn open_up(dir: &Dir, name: &[u8]) -> Result<()> {
    let (user, device) = (user(), dir.stat_self()?.dev);
    // Where the kernel does not say, devices do.
    let mounts = mounts_below(dir.path()).unwrap_or_default();
    let is_entered = |above: &Dir, path: &RelPath| -> Result<bool> {
        let Some(stat) = above.stat(path.name())? else { return Ok(false) };
        // A part of the same file system may be mounted, too.
        if stat.kind != FileKind::Dir || stat.dev != device || mounts.contains(path) {
            return Ok(false);
        }
        let open = Mode::from_st_mode(stat.mode.bits() | 0o700);
        if stat.uid == user && stat.mode != open {
            above.set_mode(path.name(), open)?;
        }
        Ok(true)
    };
    let top = joined(dir, &RelPath::root(), name)?;
    let mut pending = if is_entered(dir, &top)? { vec![top] } else { Vec::new() };
    while let Some(path) = pending.pop() {
        let Some(inside) = dir.try_open_dir(&path)? else { continue };
        for name in inside.names()? {
            let path = joined(dir, &path, &name)?;
            if is_entered(&inside, &path)? {
                pending.push(path);
            }
        }
    }
    Ok(())
}

/// The path from `dir` of `name` in the directory `above`.
pub(crate) fn joined(dir: &Dir, above: &RelPath, name: &[u8]) -> Result<RelPath> {
    let full = || dir.path_of(&[above.as_bytes(), b"/", name].concat());
    above.join(name).map_err(|error| unusable("examine", &full(), error.to_string()))
}

/// Copies a file to a new name in `dir`, with mode 0600. Not durable.
pub(crate) fn copy_file(from: &Path, dir: &Dir, name: &[u8]) -> Result<()> {
    let mut source = File::open(from).at("open", from)?;
    let mut copy = dir.create_file(name)?;
    std::io::copy(&mut source, &mut copy).at("write", dir.path_of(name))?;
    Ok(())
}

/// Removes `name` and, if it is a directory, everything in it. Never follows a symlink.
pub(crate) fn remove_tree(dir: &Dir, name: &[u8]) -> Result<()> {
    // Nested as deep as what we make there: two levels, or what [`limits::EXTRA_DEPTH_MAX`] bounds.
    match dir.stat(name)? {
        None => Ok(()),
        Some(stat) if stat.kind == FileKind::Dir => {
            let inside = dir.open_child(name)?;
            for name in inside.names()? {
                remove_tree(&inside, &name)?;
            }
            dir.remove_dir(name)
        }
        Some(_) => dir.try_unlink(name).map(|_| ()),
    }
}

/// The hash of a file's content, from its present position on.
///
/// Cost: one pass, in pieces.
pub(crate) fn hash_file(mut file: &File, path: &Path) -> Result<BlobHash> {
    let mut hasher = BlobHasher::default();
    let mut buffer = vec![0; 128 * 1024];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(hasher.finish()),
            Ok(read) => hasher.update(&buffer[..read]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error).at("read", path),
        }
    }
}

/// Sets the permission bits of an open file.
pub(crate) fn set_file_mode(file: &File, mode: Mode, path: &Path) -> Result<()> {
    file.set_permissions(std::fs::Permissions::from_mode(mode.bits()))
        .at("change the mode of", path)
}

/// Ends the making of the file `name` in `dir`, which [`Dir::create_file_with`] began: checks that all of
/// it is there, and sets the permission bits where they are not what was asked for.
///
/// Cost: one call, and another where the bits differ.
pub(crate) fn finish_file(
    file: &File,
    expected_bytes: u64,
    mode: Mode,
    dir: &Dir,
    name: &[u8],
) -> Result<()> {
    let stat = file_stat(file, Path::new(OsStr::from_bytes(name)))?;
    if stat.size != expected_bytes {
        let reason = format!("{} of {expected_bytes} bytes are there", stat.size);
        return Err(unusable("write", &dir.path_of(name), reason));
    }
    if stat.mode == mode { Ok(()) } else { set_file_mode(file, mode, &dir.path_of(name)) }
}

/// Carries owner, group and extended attributes of one open file over to another. Returns what could
/// not be carried over, as words.
pub(crate) fn copy_attributes(from: &File, to: &File) -> Vec<&'static str> {
    let mut lost = Vec::new();
    let (source, target) = (file_stat(from, Path::new("")), file_stat(to, Path::new("")));
    if let (Ok(source), Ok(target)) = (source, target)
        && (source.uid, source.gid) != (target.uid, target.gid)
    {
        let uid = rustix::fs::Uid::from_raw(source.uid);
        let gid = rustix::fs::Gid::from_raw(source.gid);
        if rustix::fs::fchown(to, Some(uid), Some(gid)).is_err() {
            lost.push("owner");
        }
    }
    if copy_extended_attributes(from, to).is_err() {
        lost.push("extended attributes");
    }
    lost
}

fn copy_extended_attributes(from: &File, to: &File) -> rustix::io::Result<()> {
    // The kernel's own limit for the list and for one value.
    let mut names = vec![0u8; 64 * 1024];
    let length = match rustix::fs::flistxattr(from, &mut names) {
        Ok(length) => length,
        Err(Errno::OPNOTSUPP) => return Ok(()),
        Err(error) => return Err(error),
    };
    for name in names[..length].split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        // Like set-user-id: it would give other content the rights of this file.
        if name == b"security.capability" {
            continue;
        }
        let mut value = vec![0u8; 64 * 1024];
        let length = rustix::fs::fgetxattr(from, name, &mut value)?;
        rustix::fs::fsetxattr(to, name, &value[..length], rustix::fs::XattrFlags::empty())?;
    }
    Ok(())
}

impl Dir {
    /// Makes the file `name`, which must not exist, for writing. Its permission bits are those of `mode`
    /// less what the umask takes away, or what the list of this directory says: never more.
    pub(crate) fn create_file_with(&self, name: &[u8], mode: Mode) -> Result<File> {
        let mode = rustix::fs::Mode::from_raw_mode(mode.bits() & 0o777);
        match self.openat(name, CREATE.union(OFlags::WRONLY), mode) {
            Ok(fd) => Ok(fd.into()),
            Err(error) => Err(error).at("create", self.path_of(name)),
        }
    }

    /// Sets the permission bits of this directory itself.
    pub(crate) fn set_own_mode(&self, mode: Mode) -> Result<()> {
        let bits = rustix::fs::Mode::from_raw_mode(mode.bits());
        retry_on_intr(|| rustix::fs::fchmod(self, bits)).at("change the mode of", self.path())
    }
}

/// Checks that a directory has room for `needed_bytes` more, beside the last `floor_bytes` of the disk.
///
/// # Errors
/// [`Error::NoSpace`].
pub(crate) fn require_space(dir: &Dir, needed_bytes: u64, floor_bytes: u64) -> Result<()> {
    let available = crate::disk::available_bytes(dir)?;
    let available_bytes = available.saturating_sub(floor_bytes);
    if needed_bytes <= available_bytes {
        return Ok(());
    }
    Err(Error::NoSpace { path: dir.path().to_owned(), needed_bytes, available_bytes, floor_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Git with a table of refs has a file where others have the directory of branches.
    #[test]
    fn below_a_file_there_is_nothing() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("heads");
        std::fs::write(&file, "this is a file").unwrap();
        let below = file.join("turnpoint/one.lock");
        assert_eq!(modified_ns(&below).unwrap(), None);
        assert!(!is_directory(&below).unwrap());
        assert!(modified_ns(&file).unwrap().is_some());
        assert!(!is_directory(&file).unwrap());
        assert!(is_directory(place.path()).unwrap());
    }
}
