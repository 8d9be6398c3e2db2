//! Changing a file that is the user's, not the store's.

use std::fs::File;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use crate::disk::dir::{Dir, Placed, file_stat, unusable};
use crate::disk::lock::lock_directory;
use crate::disk::names::{copy_attributes, set_file_mode};
use crate::disk::small::{read_small, write_whole};
use crate::error::{IoContext, Result};
use crate::id::OperationId;
use crate::manifest::Mode;
use crate::monitor::Monitor;

/// Gives the file `name` of `dir`, not longer than `max_bytes`, the content that `edit` makes of the present
/// one; `None` is a file that is not there, and where `edit` gives back what there was nothing is written.
/// Mode, owner and extended attributes stay; a new file has the mode that the umask gives.
///
/// # Concurrency
/// The directory itself is locked from before the file is read until it is replaced: of two that change it
/// so neither loses what the other wrote. Nothing is made for it that could be somebody's file. Where a file
/// system cannot lock a directory it goes without.
///
/// # Durability
/// Whoever reads it, a power cut included, finds the old content or the new. A crash leaves at most a file
/// of another name beside it, which nothing reads and nothing waits for.
///
/// # Errors
/// As [`read_small`], what `edit` says, [`crate::Error::Busy`], [`crate::Error::Cancelled`],
/// [`crate::Error::Io`]: nothing has changed, unless it was the last step that failed, the sync of `dir`.
/// Then the new content is there, and the error says that it may not be durable.
pub(crate) fn edit_durably<T>(
    dir: &Dir,
    name: &[u8],
    max_bytes: u64,
    monitor: &dyn Monitor,
    edit: impl FnOnce(Option<&[u8]>) -> Result<(Vec<u8>, T)>,
) -> Result<T> {
    let path = dir.path_of(name);
    let _locked = lock_directory(dir, &path.display().to_string(), monitor)?;
    let old = read_small(&path, max_bytes)?;
    let (bytes, done) = edit(old.as_deref())?;
    if old.as_deref().unwrap_or_default() == bytes {
        return Ok(done);
    }
    let is_new = old.is_none();
    let temporary = format!(".turnpoint-{}", OperationId::random()).into_bytes();
    let placed = write_beside(dir, &temporary, name, is_new, &bytes).and_then(|()| {
        if is_new {
            // Whoever does not ask for the lock, as an editor, may have made it meanwhile.
            return dir.rename_no_replace(&temporary, dir, name);
        }
        dir.rename_to(&temporary, dir, name)?;
        Ok(Placed::Done)
    });
    if !matches!(placed, Ok(Placed::Done)) {
        // That it stays is harmless; why the file did not change is what matters.
        let _left = dir.try_unlink(&temporary);
    }
    if placed? == Placed::Taken {
        return Err(unusable("write", &path, "it was made by somebody else just now".to_owned()));
    }
    dir.sync()?;
    Ok(done)
}

/// Makes the file `temporary` as `name` shall be, and durable.
fn write_beside(
    dir: &Dir,
    temporary: &[u8],
    name: &[u8],
    is_new: bool,
    bytes: &[u8],
) -> Result<()> {
    let path = dir.path_of(name);
    let mut new = create_beside(dir, temporary, is_new)?;
    write_whole(&mut new, bytes, &path)?;
    if !is_new && let Some(old) = dir.try_open_file(name)? {
        // What cannot be carried over, as another's ownership, is no reason to leave the file as it was.
        let _lost = copy_attributes(&old, &new);
        set_file_mode(&new, file_stat(&old, &path)?.mode, &path)?;
    }
    new.sync_all().at("sync", &path)
}

/// What is there may be nobody else's business: until it has that one's mode the new file is this user's.
fn create_beside(dir: &Dir, temporary: &[u8], is_new: bool) -> Result<File> {
    if is_new {
        return dir.create_file_with(temporary, Mode::from_st_mode(0o666));
    }
    dir.create_file(temporary)
}

/// Makes the directory at `path` and what is missing above it, each this user's alone.
pub(crate) fn make_directories(path: &Path) -> Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(path).at("create", path)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::error::Error;
    use crate::monitor::Notice;

    #[expect(clippy::unnecessary_wraps, reason = "an edit may fail")]
    fn count(old: Option<&[u8]>) -> Result<(Vec<u8>, u32)> {
        let old: u32 = old.map_or(0, |old| std::str::from_utf8(old).unwrap().parse().unwrap());
        Ok(((old + 1).to_string().into_bytes(), old))
    }

    #[test]
    fn none_of_many_that_edit_at_once_loses_what_another_wrote() {
        let place = tempfile::tempdir().unwrap();
        let dir = Dir::open(place.path()).unwrap();
        // Somebody else's, whatever it is called.
        fs::write(place.path().join("n.lock"), "theirs").unwrap();
        std::thread::scope(|threads| {
            for _ in 0..8 {
                threads.spawn(|| {
                    for _ in 0..20 {
                        edit_durably(&dir, b"n", 100, &(), count).unwrap();
                    }
                });
            }
        });
        assert_eq!(fs::read(place.path().join("n")).unwrap(), b"160");
        assert_eq!(fs::read(place.path().join("n.lock")).unwrap(), b"theirs");
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 2);
    }

    #[test]
    fn the_mode_stays_and_what_is_refused_changes_nothing() {
        let place = tempfile::tempdir().unwrap();
        let dir = Dir::open(place.path()).unwrap();
        let path = place.path().join("n");
        for mode in [0o640, 0o444] {
            fs::write(&path, "7").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(edit_durably(&dir, b"n", 100, &(), count).unwrap(), 7);
            assert_eq!(fs::read(&path).unwrap(), b"8");
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, mode);
            fs::remove_file(&path).unwrap();
        }
        fs::write(&path, "8").unwrap();
        let refused =
            edit_durably(&dir, b"n", 100, &(), |_| Err::<(Vec<u8>, ()), _>(Error::Cancelled));
        assert!(matches!(refused, Err(Error::Cancelled)));
        assert_eq!(fs::read(&path).unwrap(), b"8");
        // Made by an editor after it was found missing.
        let late = edit_durably(&dir, b"late", 100, &(), |old| {
            assert_eq!(old, None);
            fs::write(place.path().join("late"), "theirs").unwrap();
            Ok((b"ours".to_vec(), ()))
        });
        assert!(matches!(late, Err(Error::Io { .. })), "{late:?}");
        assert_eq!(fs::read(place.path().join("late")).unwrap(), b"theirs");
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 2);
    }

    #[test]
    fn what_is_private_is_so_from_its_first_byte() {
        let place = tempfile::tempdir().unwrap();
        let dir = Dir::open(place.path()).unwrap();
        let mode_of = |file: File| file.metadata().unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode_of(create_beside(&dir, b"changed", false).unwrap()), 0o600);
        let plain = mode_of(File::create(place.path().join("plain")).unwrap());
        assert_eq!(mode_of(create_beside(&dir, b"new", true).unwrap()), plain);
    }

    /// Cancels once it was told that somebody waits.
    struct Impatient(AtomicU64);

    impl Monitor for Impatient {
        fn is_cancelled(&self) -> bool {
            self.0.load(Ordering::Relaxed) > 0
        }

        fn notice(&self, notice: &Notice) {
            if let Notice::Waiting { .. } = notice {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    #[test]
    fn who_waits_is_told_and_can_give_up() {
        let place = tempfile::tempdir().unwrap();
        let dir = Dir::open(place.path()).unwrap();
        let locked = lock_directory(&dir, "n", &()).unwrap();
        let monitor = Impatient(AtomicU64::new(0));
        let given_up = edit_durably(&dir, b"n", 100, &monitor, count);
        assert!(matches!(given_up, Err(Error::Cancelled)), "{given_up:?}");
        assert_eq!(dir.names().unwrap(), [b""; 0]);
        drop(locked);
        assert_eq!(edit_durably(&dir, b"n", 100, &monitor, count).unwrap(), 0);
    }
}
