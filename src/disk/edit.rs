//! Changing a file that is the user's, not the store's.

use std::fs::File;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::Instant;

use rustix::fs::{Mode, OFlags};
use rustix::io::retry_on_intr;

use crate::disk::dir::{Dir, FileKind, file_stat, unusable};
use crate::disk::lock::{LockKind, Pause, try_flock};
use crate::disk::names::{copy_attributes, set_file_mode};
use crate::disk::small::{leads_to, read_small, write_whole};
use crate::error::{Error, IoContext, Result};
use crate::limits;

/// Gives the file `name` of `dir`, not longer than `max_bytes`, the content that `edit` makes of the present
/// one; `None` is a file that is not there, and where `edit` gives back what there was nothing is written.
/// Mode, owner and extended attributes stay; a new file has the mode that the umask gives.
///
/// # Concurrency
/// `name.lock` beside it is locked from before the file is read until it is replaced: of two that change
/// it neither loses what the other wrote. It is the new file itself, so nothing is left but by a crash, and
/// what a crash left is taken over.
///
/// # Durability
/// Whoever reads it, a power cut included, finds the old content or the new.
///
/// # Errors
/// As [`read_small`], what `edit` says, [`Error::Busy`], [`Error::Io`]: nothing has changed.
pub(crate) fn edit_durably<T>(
    dir: &Dir,
    name: &[u8],
    max_bytes: u64,
    edit: impl FnOnce(Option<&[u8]>) -> Result<(Vec<u8>, T)>,
) -> Result<T> {
    let path = dir.path_of(name);
    let lock_name = [name, b".lock"].concat();
    let mut new = locked(dir, &lock_name)?;
    let made = edited(&mut new, dir, name, &path, max_bytes, edit);
    if !matches!(made, Ok((_, true))) {
        // Still locked: nobody else is writing to it.
        dir.try_unlink(&lock_name)?;
        return made.map(|(done, _)| done);
    }
    let renamed = dir.rename_to(&lock_name, dir, name);
    if renamed.is_err() {
        dir.try_unlink(&lock_name)?;
    }
    renamed?;
    dir.sync()?;
    made.map(|(done, _)| done)
}

/// Writes to `new` what the file shall be; `false`: it is that already.
fn edited<T>(
    new: &mut File,
    dir: &Dir,
    name: &[u8],
    path: &Path,
    max_bytes: u64,
    edit: impl FnOnce(Option<&[u8]>) -> Result<(Vec<u8>, T)>,
) -> Result<(T, bool)> {
    let old = read_small(path, max_bytes)?;
    let (bytes, done) = edit(old.as_deref())?;
    if old.as_deref().unwrap_or_default() == bytes {
        return Ok((done, false));
    }
    write_whole(new, &bytes, path)?;
    if let Some(old) = dir.try_open_file(name)? {
        // What cannot be carried over, as another's ownership, is no reason to leave the file as it was.
        let _lost = copy_attributes(&old, new);
        set_file_mode(new, file_stat(&old, path)?.mode, path)?;
    }
    new.sync_all().at("sync", path)?;
    Ok((done, true))
}

/// Makes the directory at `path` and what is missing above it, each this user's alone.
pub(crate) fn make_directories(path: &Path) -> Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(path).at("create", path)
}

/// The empty file `name`, locked.
fn locked(dir: &Dir, name: &[u8]) -> Result<File> {
    let path = dir.path_of(name);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let begun = Instant::now();
    let mut pause = Pause::default();
    loop {
        let opened = retry_on_intr(|| {
            rustix::fs::open(&path, flags | OFlags::CLOEXEC, Mode::from_raw_mode(0o666))
        });
        let file: File = opened.at("create", &path)?.into();
        // Who had it before may have given it the name of the file: then it is no lock any more.
        if try_flock(&file, LockKind::Exclusive, &path)? && leads_to(dir, name, &file)? {
            // Whoever put something else there, or another name of it elsewhere, does not get it written to.
            let stat = file_stat(&file, &path)?;
            if stat.kind != FileKind::File || stat.nlink > 1 {
                return Err(unusable("write", &path, "it is no file of its own".to_owned()));
            }
            file.set_len(0).at("write", &path)?;
            return Ok(file);
        }
        let waited = begun.elapsed();
        if waited >= limits::LOCK_WAIT_MAX {
            return Err(Error::Busy { lock: path.display().to_string(), waited });
        }
        pause.sleep();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[expect(clippy::unnecessary_wraps, reason = "an edit may fail")]
    fn count(old: Option<&[u8]>) -> Result<(Vec<u8>, u32)> {
        let old: u32 = old.map_or(0, |old| std::str::from_utf8(old).unwrap().parse().unwrap());
        Ok(((old + 1).to_string().into_bytes(), old))
    }

    #[test]
    fn none_of_many_that_edit_at_once_loses_what_another_wrote() {
        let place = tempfile::tempdir().unwrap();
        let dir = Dir::open(place.path()).unwrap();
        // What somebody who died left.
        fs::write(place.path().join("n.lock"), "half of someth").unwrap();
        std::thread::scope(|threads| {
            for _ in 0..8 {
                threads.spawn(|| {
                    for _ in 0..20 {
                        edit_durably(&dir, b"n", 100, count).unwrap();
                    }
                });
            }
        });
        assert_eq!(fs::read(place.path().join("n")).unwrap(), b"160");
        assert_eq!(dir.names().unwrap(), [b"n"]);
    }

    #[test]
    fn the_mode_stays_and_what_is_refused_changes_nothing() {
        let place = tempfile::tempdir().unwrap();
        let dir = Dir::open(place.path()).unwrap();
        let path = place.path().join("n");
        fs::write(&path, "7").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(edit_durably(&dir, b"n", 100, count).unwrap(), 7);
        assert_eq!(fs::read(&path).unwrap(), b"8");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o640);
        let mine = place.path().join("mine");
        fs::write(&mine, "mine").unwrap();
        fs::hard_link(&mine, place.path().join("n.lock")).unwrap();
        edit_durably(&dir, b"n", 100, count).unwrap_err();
        assert_eq!(
            (fs::read(&mine).unwrap(), fs::read(&path).unwrap()),
            (b"mine".into(), b"8".into())
        );
        fs::remove_file(place.path().join("n.lock")).unwrap();
        fs::remove_file(mine).unwrap();
        let refused = edit_durably(&dir, b"n", 100, |_| Err::<(Vec<u8>, ()), _>(Error::Cancelled));
        assert!(matches!(refused, Err(Error::Cancelled)));
        assert_eq!(fs::read(&path).unwrap(), b"8");
        assert_eq!(dir.names().unwrap(), [b"n"]);
    }
}
