//! Locks between processes: `flock` on files of the store.
//!
//! The kernel gives a lock up when its holder ends, however it ends. A lock belongs to the open file,
//! so two [`Lock`]s of one process exclude each other too. Lock files are made when first needed;
//! one is removed only by who holds it alone, when what it is the lock of is gone.

use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};

use crate::disk::dir::{Dir, file_stat, make_private};
use crate::error::{Error, IoContext, Result};
use crate::limits;
use crate::monitor::{Monitor, Notice};

/// How a lock is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockKind {
    /// With others that share it.
    Shared,
    /// Alone.
    Exclusive,
}

/// A lock that is held until this is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
}

impl Lock {
    /// The locked file, for a process that is started: the lock is held until that process has ended too.
    pub(crate) fn shared_with_child(&self) -> std::io::Result<File> {
        self.file.try_clone()
    }
}

/// Takes the lock at `path`, waiting for other holders up to [`limits::LOCK_WAIT_MAX`].
///
/// `what` names it for people: `the workspace`. A wait of more than [`limits::LOCK_WAIT_TOLD_AFTER`]
/// is told to the monitor once. Where the store is read-only the lock can only be shared.
///
/// # Errors
/// [`Error::Busy`] after the longest wait, [`Error::Cancelled`], [`Error::Io`].
pub(crate) fn lock(path: &Path, kind: LockKind, what: &str, monitor: &dyn Monitor) -> Result<Lock> {
    lock_within(path, kind, what, limits::LOCK_WAIT_MAX, monitor)
}

pub(super) fn lock_within(
    path: &Path,
    kind: LockKind,
    what: &str,
    wait_max: Duration,
    monitor: &dyn Monitor,
) -> Result<Lock> {
    wait(what, wait_max, monitor, || try_lock(path, kind))
}

/// Takes the lock of a directory itself alone, waiting for other holders as [`lock`] does. `None`: its file
/// system has no such locks, as NFS, which locks only what can be written to.
pub(super) fn lock_directory(dir: &Dir, what: &str, monitor: &dyn Monitor) -> Result<Option<Lock>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // Opened anew: a lock belongs to the open file, and threads may share `dir`.
    let opened = retry_on_intr(|| rustix::fs::openat(dir, c".", flags, Mode::empty()));
    let file = File::from(opened.at("open", dir.path())?);
    let has_none = |error: &Error| {
        let Error::Io { source, .. } = error else { return false };
        [Errno::BADF, Errno::INVAL, Errno::NOLCK, Errno::OPNOTSUPP]
            .iter()
            .any(|none| source.raw_os_error() == Some(none.raw_os_error()))
    };
    let locked = wait(what, limits::LOCK_WAIT_MAX, monitor, || {
        Ok(try_flock(&file, LockKind::Exclusive, dir.path())?.then_some(()))
    });
    match locked {
        Ok(()) => Ok(Some(Lock { file })),
        Err(error) if has_none(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Tries again and again, up to `wait_max`.
fn wait<T>(
    what: &str,
    wait_max: Duration,
    monitor: &dyn Monitor,
    mut attempt: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let begun = Instant::now();
    let mut pause = Pause::default();
    let mut told = false;
    loop {
        if let Some(taken) = attempt()? {
            return Ok(taken);
        }
        if monitor.is_cancelled() {
            return Err(Error::Cancelled);
        }
        let waited = begun.elapsed();
        if waited >= wait_max {
            return Err(Error::Busy { lock: what.to_owned(), waited });
        }
        if !told && waited >= limits::LOCK_WAIT_TOLD_AFTER {
            monitor.notice(&Notice::Waiting { lock: what.to_owned(), waited });
            told = true;
        }
        pause.sleep();
    }
}

/// Takes the lock at `path` if it is free now.
pub(crate) fn try_lock(path: &Path, kind: LockKind) -> Result<Option<Lock>> {
    loop {
        let file = open_lock_file(path)?;
        if !try_flock(&file, kind, path)? {
            return Ok(None);
        }
        // Somebody may have removed the file by hand meanwhile: then the next process would make
        // another one and lock that.
        let named = retry_on_intr(|| rustix::fs::lstat(path));
        match named {
            Ok(named) => {
                let held = retry_on_intr(|| rustix::fs::fstat(&file)).at("examine", path)?;
                if (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino) {
                    return Ok(Some(Lock { file }));
                }
            }
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error).at("examine", path),
        }
    }
}

/// Takes the lock of the directory at `path` itself if it is free now; `None` also where there is none.
pub(crate) fn try_lock_directory(path: &Path, kind: LockKind) -> Result<Option<Lock>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = match retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty())) {
        Ok(fd) => File::from(fd),
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error).at("open", path),
    };
    if !try_flock(&file, kind, path)? {
        return Ok(None);
    }
    let held = retry_on_intr(|| rustix::fs::fstat(&file)).at("examine", path)?;
    match retry_on_intr(|| rustix::fs::lstat(path)) {
        Ok(named) if (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino) => {
            Ok(Some(Lock { file }))
        }
        // It was removed meanwhile.
        Ok(_) | Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error).at("examine", path),
    }
}

/// Locks an open file if nobody else holds it; `path` is for the error only.
pub(super) fn try_flock(file: &File, kind: LockKind, path: &Path) -> Result<bool> {
    loop {
        let locked = match kind {
            LockKind::Shared => file.try_lock_shared(),
            LockKind::Exclusive => file.try_lock(),
        };
        match locked {
            Ok(()) => return Ok(true),
            Err(TryLockError::WouldBlock) => return Ok(false),
            Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Interrupted => {}
            Err(TryLockError::Error(error)) => return Err(error).at("lock", path),
        }
    }
}

/// Waits between two attempts: short at first, never longer than 50 ms.
#[derive(Debug)]
pub(super) struct Pause(Duration);

impl Default for Pause {
    fn default() -> Self {
        Self(Duration::from_millis(1))
    }
}

impl Pause {
    pub(super) fn sleep(&mut self) {
        thread::sleep(self.0);
        self.0 = (self.0 * 2).min(Duration::from_millis(50));
    }
}

fn open_lock_file(path: &Path) -> Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let private = Mode::RUSR | Mode::WUSR;
    let open = |how: OFlags| retry_on_intr(|| rustix::fs::open(path, flags | how, private));
    loop {
        match open(OFlags::RDWR) {
            Ok(fd) => return Ok(fd.into()),
            Err(Errno::NOENT) => {}
            // A store that only can be read: a shared lock works on any open file.
            Err(Errno::ROFS | Errno::ACCESS) => {
                return Ok(open(OFlags::RDONLY).at("open", path)?.into());
            }
            Err(error) => return Err(error).at("open", path),
        }
        match open(OFlags::RDWR | OFlags::CREATE | OFlags::EXCL) {
            Ok(fd) => {
                let file = File::from(fd);
                make_private(&file, path)?;
                return Ok(file);
            }
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error).at("create", path),
        }
    }
}

/// Opens the file `path` for appending, made with mode 0600 if it is not there, and locks it alone;
/// the name leads to the file that is locked. Says whether it was made.
pub(super) fn open_appending(path: &Path) -> Result<(File, bool)> {
    let flags = OFlags::RDWR
        | OFlags::APPEND
        | OFlags::NOFOLLOW
        | OFlags::NONBLOCK
        | OFlags::NOCTTY
        | OFlags::CLOEXEC;
    let private = Mode::RUSR | Mode::WUSR;
    let open = |how: OFlags| retry_on_intr(|| rustix::fs::open(path, flags | how, private));
    let begun = Instant::now();
    let mut pause = Pause::default();
    loop {
        let (file, made) = match open(OFlags::empty()) {
            Ok(fd) => (File::from(fd), false),
            Err(Errno::NOENT) => match open(OFlags::CREATE | OFlags::EXCL) {
                Ok(fd) => (File::from(fd), true),
                Err(Errno::EXIST) => continue,
                Err(error) => return Err(error).at("create", path),
            },
            Err(error) => return Err(error).at("open", path),
        };
        if made {
            make_private(&file, path)?;
        }
        if try_flock(&file, LockKind::Exclusive, path)? {
            let held = file_stat(&file, path)?;
            match retry_on_intr(|| rustix::fs::lstat(path)) {
                Ok(named) if (named.st_dev, named.st_ino) == (held.dev, held.ino) => {
                    return Ok((file, made));
                }
                Ok(_) | Err(Errno::NOENT) => {}
                Err(error) => return Err(error).at("examine", path),
            }
        }
        let waited = begun.elapsed();
        if waited >= limits::LOCK_WAIT_MAX {
            return Err(Error::Busy { lock: path.display().to_string(), waited });
        }
        pause.sleep();
    }
}
