//! A directory by its handle, and what can be done to the names in it.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, OFlags, RawDir, RenameFlags, SeekFrom, StatxFlags, Timespec, Timestamps,
};
use rustix::io::{Errno, retry_on_intr};

use crate::disk::open;
use crate::error::{Error, IoContext, Result};
use crate::manifest::Mode;
use crate::path::RelPath;

/// How much of a directory the kernel is asked for at a time; a name takes at most 280 bytes.
const LISTED_BYTES: usize = 32 * 1024;

/// What kind of thing a name leads to; a symlink is itself, not its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Symlink,
    /// A FIFO, socket or device.
    Other,
}

/// What the file system says about a file, directory or symlink. Times are nanoseconds since 1970,
/// those beyond the years 1677 to 2262 are cut to that range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileStat {
    pub(crate) kind: FileKind,
    pub(crate) dev: u64,
    pub(crate) ino: u64,
    /// The length in bytes; of a symlink, of its target's text.
    pub(crate) size: u64,
    pub(crate) mtime_ns: i64,
    pub(crate) ctime_ns: i64,
    pub(crate) mode: Mode,
    pub(crate) nlink: u64,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// How much room it takes, in units of 512 bytes.
    pub(crate) blocks: u64,
}

/// The names in a directory, in order.
#[derive(Debug, Default)]
pub(crate) struct Names {
    bytes: Vec<u8>,
    ranges: Vec<Range<usize>>,
}

impl Names {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.ranges.iter().map(|range| &self.bytes[range.clone()])
    }
}

impl FileStat {
    #[expect(clippy::unnecessary_cast, reason = "the widths differ between architectures")]
    fn from_system(stat: &rustix::fs::Stat) -> Self {
        use rustix::fs::FileType;
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => FileKind::File,
            FileType::Directory => FileKind::Dir,
            FileType::Symlink => FileKind::Symlink,
            _ => FileKind::Other,
        };
        let ns = |seconds: i64, ns: u64| {
            seconds.saturating_mul(1_000_000_000).saturating_add(i64::try_from(ns).unwrap_or(0))
        };
        Self {
            kind,
            dev: stat.st_dev as u64,
            ino: stat.st_ino as u64,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            mtime_ns: ns(stat.st_mtime as i64, stat.st_mtime_nsec as u64),
            ctime_ns: ns(stat.st_ctime as i64, stat.st_ctime_nsec as u64),
            mode: Mode::from_st_mode(stat.st_mode),
            nlink: stat.st_nlink as u64,
            uid: stat.st_uid,
            gid: stat.st_gid,
            blocks: u64::try_from(stat.st_blocks).unwrap_or(0),
        }
    }

    /// Whether both are of the same inode on the same file system.
    pub(crate) fn is_same_inode(&self, other: &Self) -> bool {
        (self.dev, self.ino) == (other.dev, other.ino)
    }

    /// What it takes on the disk, in bytes.
    pub(crate) const fn allocated_bytes(&self) -> u64 {
        // POSIX leaves the unit open, and every system has this one.
        self.blocks.saturating_mul(512)
    }
}

/// What the file system says about an open file; `path` is for the error only.
pub(crate) fn file_stat(file: impl AsFd, path: &Path) -> Result<FileStat> {
    let stat = retry_on_intr(|| rustix::fs::fstat(file.as_fd())).at("examine", path)?;
    Ok(FileStat::from_system(&stat))
}

/// How a rename that never replaces ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Placed {
    /// The thing has its new name.
    Done,
    /// The name was taken; nothing has changed.
    Taken,
}

/// How an exchange ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Exchange {
    /// Each has the other's name.
    Done,
    /// The file system cannot exchange; nothing has changed.
    Unsupported,
}

/// An open directory. What it does to a name it does in the directory that was opened, wherever that
/// is by now; a `name` is one component, and a symlink of that name is never followed. The path is
/// kept for messages only. Closed on exec.
#[derive(Debug)]
pub(crate) struct Dir {
    fd: OwnedFd,
    path: PathBuf,
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Reading, as the owner may; where a special file is in the place of a regular one, opening it does
/// not wait for a writer and does not take over a terminal.
const READ: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Making a file anew, and nothing else.
pub(super) const CREATE: OFlags = OFlags::CREATE
    .union(OFlags::EXCL)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

impl Dir {
    /// Opens the directory at `path`, which is taken as any program would take it.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let fd = retry_on_intr(|| rustix::fs::open(path, DIRECTORY, rustix::fs::Mode::empty()));
        Ok(Self { fd: fd.at("open", path)?, path: path.to_owned() })
    }

    /// Opens a directory strictly beneath this one: a symlink anywhere on the way is an error, as is
    /// leaving this directory by any other means. The root is this directory, opened anew.
    pub(crate) fn open_dir(&self, path: &RelPath) -> Result<Self> {
        let full = self.path_beneath(path);
        let fd = self.open_beneath(path, DIRECTORY).at("open", &full)?;
        Ok(Self { fd, path: full })
    }

    /// As [`Dir::open_dir`]; `None` where there is no such directory: a component is missing, or is
    /// something else, a symlink for example.
    pub(crate) fn try_open_dir(&self, path: &RelPath) -> Result<Option<Self>> {
        let full = self.path_beneath(path);
        match self.open_beneath(path, DIRECTORY) {
            Ok(fd) => Ok(Some(Self { fd, path: full })),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(error) => Err(error).at("open", full),
        }
    }

    /// Opens the directory `name` in this one.
    pub(crate) fn open_child(&self, name: &[u8]) -> Result<Self> {
        let path = self.path_of(name);
        let flags = DIRECTORY | OFlags::NOFOLLOW;
        let fd = self.openat(name, flags, rustix::fs::Mode::empty()).at("open", &path)?;
        Ok(Self { fd, path })
    }

    fn open_beneath(&self, path: &RelPath, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let bytes = if path.is_root() { b"." } else { path.as_bytes() };
        open::beneath(self.fd.as_fd(), bytes, flags)
    }

    pub(super) fn openat(
        &self,
        name: &[u8],
        flags: OFlags,
        mode: rustix::fs::Mode,
    ) -> rustix::io::Result<OwnedFd> {
        let name = component(name)?;
        retry_on_intr(|| rustix::fs::openat(&self.fd, name, flags, mode))
    }

    /// Another handle of the same directory.
    pub(crate) fn try_clone(&self) -> Result<Self> {
        let fd = self.fd.try_clone().at("open", &self.path)?;
        Ok(Self { fd, path: self.path.clone() })
    }

    /// Where the directory was when it was opened. For messages.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// [`Dir::path`] and `name`. For messages.
    pub(crate) fn path_of(&self, name: &[u8]) -> PathBuf {
        self.path.join(OsStr::from_bytes(name))
    }

    fn path_beneath(&self, path: &RelPath) -> PathBuf {
        if path.is_root() { self.path.clone() } else { self.path.join(path.as_os()) }
    }

    /// What `name` is; `None` where there is none.
    pub(crate) fn stat(&self, name: &[u8]) -> Result<Option<FileStat>> {
        let stat = component(name).and_then(|name| {
            retry_on_intr(|| rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW))
        });
        match stat {
            Ok(stat) => Ok(Some(FileStat::from_system(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error).at("examine", self.path_of(name)),
        }
    }

    /// What this directory itself is.
    pub(crate) fn stat_self(&self) -> Result<FileStat> {
        file_stat(&self.fd, &self.path)
    }

    /// When this directory was made, in nanoseconds since 1970; `None` where the file system does not
    /// say.
    pub(crate) fn birth_time_ns(&self) -> Result<Option<i64>> {
        let asked = retry_on_intr(|| {
            rustix::fs::statx(&self.fd, c"", AtFlags::EMPTY_PATH, StatxFlags::BTIME)
        });
        let statx = match asked {
            Ok(statx) => statx,
            Err(Errno::NOSYS | Errno::PERM) => return Ok(None),
            Err(error) => return Err(error).at("examine", &self.path),
        };
        let known = StatxFlags::from_bits_retain(statx.stx_mask).contains(StatxFlags::BTIME);
        let birth = statx.stx_btime;
        Ok(known.then(|| {
            birth.tv_sec.saturating_mul(1_000_000_000).saturating_add(i64::from(birth.tv_nsec))
        }))
    }

    /// All names in this directory but `.` and `..`, in no order. A listing that fails halfway is an
    /// error, never a short list.
    pub(crate) fn names(&self) -> Result<Vec<Vec<u8>>> {
        // A listing that was interrupted cannot be taken up again, so it begins anew.
        retry_on_intr(|| self.try_names()).at("list", &self.path)
    }

    fn try_names(&self) -> rustix::io::Result<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.fd)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(name.to_vec());
            }
        }
        Ok(names)
    }

    /// As [`Dir::names`], in order, for one who has the handle alone: no other is opened to list by, and the
    /// names lie in one buffer.
    pub(crate) fn sorted_names(&mut self) -> Result<Names> {
        let mut names = self.list().at("list", &self.path)?;
        let Names { bytes, ranges } = &mut names;
        ranges.sort_unstable_by(|a, b| bytes[a.clone()].cmp(&bytes[b.clone()]));
        // A name that is replaced while it is listed may be given twice.
        ranges.dedup_by(|a, b| bytes[a.clone()] == bytes[b.clone()]);
        Ok(names)
    }

    fn list(&mut self) -> rustix::io::Result<Names> {
        let mut names = Names::default();
        let mut buffer = Vec::with_capacity(LISTED_BYTES);
        rustix::fs::seek(&self.fd, SeekFrom::Start(0))?;
        let mut entries = RawDir::new(&self.fd, buffer.spare_capacity_mut());
        // One call that was interrupted has given nothing, and the next goes on from there.
        while let Some(entry) = entries.next() {
            let entry = match entry {
                Err(Errno::INTR) => continue,
                other => other?,
            };
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                let start = names.bytes.len();
                names.bytes.extend_from_slice(name);
                names.ranges.push(start..names.bytes.len());
            }
        }
        Ok(names)
    }

    /// Opens `name` for reading. Special files are opened too, without waiting: look at
    /// [`file_stat`].
    pub(crate) fn open_file(&self, name: &[u8]) -> Result<File> {
        let flags = READ | OFlags::NOFOLLOW;
        let fd = self.openat(name, flags, rustix::fs::Mode::empty());
        Ok(fd.at("open", self.path_of(name))?.into())
    }

    /// As [`Dir::open_file`]; `None` where there is no such name.
    pub(crate) fn try_open_file(&self, name: &[u8]) -> Result<Option<File>> {
        match self.openat(name, READ | OFlags::NOFOLLOW, rustix::fs::Mode::empty()) {
            Ok(fd) => Ok(Some(fd.into())),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error).at("open", self.path_of(name)),
        }
    }

    /// As [`Dir::open_file`] for a path strictly beneath this directory, in the sense of
    /// [`Dir::open_dir`].
    pub(crate) fn open_file_beneath(&self, path: &RelPath) -> Result<File> {
        let fd = self.open_beneath(path, READ);
        Ok(fd.at("open", self.path_beneath(path))?.into())
    }

    /// Makes the file `name`, which must not exist, with mode 0600 whatever the umask, for reading and
    /// writing.
    pub(crate) fn create_file(&self, name: &[u8]) -> Result<File> {
        let path = self.path_of(name);
        let private = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        let flags = CREATE.union(OFlags::RDWR);
        let file: File = self.openat(name, flags, private).at("create", &path)?.into();
        make_private(&file, &path)?;
        Ok(file)
    }

    /// The target of the symlink `name`.
    pub(crate) fn read_link(&self, name: &[u8]) -> Result<Vec<u8>> {
        let target = component(name).and_then(|name| {
            retry_on_intr(|| rustix::fs::readlinkat(&self.fd, name, Vec::with_capacity(256)))
        });
        Ok(target.at("read", self.path_of(name))?.into_bytes())
    }

    /// Makes the symlink `name`, which must not exist.
    pub(crate) fn symlink(&self, target: &[u8], name: &[u8]) -> Result<()> {
        component(name)
            .and_then(|name| retry_on_intr(|| rustix::fs::symlinkat(target, &self.fd, name)))
            .at("create", self.path_of(name))
    }

    /// Makes the directory `name`, which must not exist, with exactly `mode`, whatever the umask and
    /// the set-group-id bit of this directory.
    pub(crate) fn make_dir(&self, name: &[u8], mode: Mode) -> Result<()> {
        // Only the owner's bits until the exact ones are set: never wider, not even for a moment.
        let narrow = rustix::fs::Mode::from_raw_mode(mode.bits() & 0o700);
        component(name)
            .and_then(|name| retry_on_intr(|| rustix::fs::mkdirat(&self.fd, name, narrow)))
            .at("create", self.path_of(name))?;
        match self.stat(name)? {
            Some(made) if made.mode == mode => Ok(()),
            _ => self.set_mode(name, mode),
        }
    }

    /// Renames `name` to `to_name` in `to`, on the same file system; what was there is replaced.
    pub(crate) fn rename_to(&self, name: &[u8], to: &Self, to_name: &[u8]) -> Result<()> {
        self.rename(name, to, to_name, RenameFlags::empty()).at("rename", self.path_of(name))
    }

    /// Renames `name` to `to_name` in `to`, on the same file system, if that name is free.
    pub(crate) fn rename_no_replace(
        &self,
        name: &[u8],
        to: &Self,
        to_name: &[u8],
    ) -> Result<Placed> {
        match self.rename(name, to, to_name, RenameFlags::NOREPLACE) {
            Ok(()) => Ok(Placed::Done),
            Err(Errno::EXIST) => Ok(Placed::Taken),
            // The file system cannot (NFS, some in user space): a second name, then the first away,
            // is as safe for files. Between the two steps the file has both names.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                self.link_then_unlink(name, to, to_name)
            }
            Err(error) => Err(error).at("rename", self.path_of(name)),
        }
    }

    pub(super) fn link_then_unlink(
        &self,
        name: &[u8],
        to: &Self,
        to_name: &[u8],
    ) -> Result<Placed> {
        let linked = component(name).and_then(|from| {
            let to_name = component(to_name)?;
            retry_on_intr(|| rustix::fs::linkat(&self.fd, from, &to.fd, to_name, AtFlags::empty()))
        });
        match linked {
            Ok(()) => self.unlink(name).map(|()| Placed::Done),
            Err(Errno::EXIST) => Ok(Placed::Taken),
            Err(error) => Err(error).at("rename", self.path_of(name)),
        }
    }

    /// Exchanges `name` with `to_name` in `to`, on the same file system, in one step. Both must exist.
    pub(crate) fn exchange(&self, name: &[u8], to: &Self, to_name: &[u8]) -> Result<Exchange> {
        match self.rename(name, to, to_name, RenameFlags::EXCHANGE) {
            Ok(()) => Ok(Exchange::Done),
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => Ok(Exchange::Unsupported),
            Err(error) => Err(error).at("exchange", self.path_of(name)),
        }
    }

    fn rename(
        &self,
        name: &[u8],
        to: &Self,
        to_name: &[u8],
        flags: RenameFlags,
    ) -> rustix::io::Result<()> {
        let (name, to_name) = (component(name)?, component(to_name)?);
        retry_on_intr(|| {
            if flags.is_empty() {
                rustix::fs::renameat(&self.fd, name, &to.fd, to_name)
            } else {
                rustix::fs::renameat_with(&self.fd, name, &to.fd, to_name, flags)
            }
        })
    }

    /// Removes the name of a file or symlink.
    pub(crate) fn unlink(&self, name: &[u8]) -> Result<()> {
        self.unlinkat(name, AtFlags::empty()).at("remove", self.path_of(name))
    }

    /// As [`Dir::unlink`]; `false` where there is no such name.
    pub(crate) fn try_unlink(&self, name: &[u8]) -> Result<bool> {
        match self.unlinkat(name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error).at("remove", self.path_of(name)),
        }
    }

    /// Removes an empty directory.
    pub(crate) fn remove_dir(&self, name: &[u8]) -> Result<()> {
        self.unlinkat(name, AtFlags::REMOVEDIR).at("remove", self.path_of(name))
    }

    fn unlinkat(&self, name: &[u8], flags: AtFlags) -> rustix::io::Result<()> {
        let name = component(name)?;
        retry_on_intr(|| rustix::fs::unlinkat(&self.fd, name, flags))
    }

    /// Sets the permission bits of a file or directory; that of a symlink is an error, and its target
    /// is never touched. Needs no permission to read the file.
    pub(crate) fn set_mode(&self, name: &[u8], mode: Mode) -> Result<()> {
        self.try_set_mode(name, mode).at("change the mode of", self.path_of(name))
    }

    fn try_set_mode(&self, name: &[u8], mode: Mode) -> rustix::io::Result<()> {
        let mode = rustix::fs::Mode::from_raw_mode(mode.bits());
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = self.openat(name, flags, rustix::fs::Mode::empty())?;
        let stat = retry_on_intr(|| rustix::fs::fstat(&handle))?;
        if FileStat::from_system(&stat).kind == FileKind::Symlink {
            return Err(Errno::LOOP);
        }
        // A handle of this sort cannot be given to fchmod, but its link in /proc leads to the very
        // inode that was opened, whatever the name leads to by now.
        let link = format!("/proc/self/fd/{}", handle.as_raw_fd());
        match retry_on_intr(|| rustix::fs::chmodat(CWD, &*link, mode, AtFlags::empty())) {
            Err(Errno::NOENT | Errno::NOTDIR) => {
                let flags = READ | OFlags::NOFOLLOW;
                let file = self.openat(name, flags, rustix::fs::Mode::empty())?;
                retry_on_intr(|| rustix::fs::fchmod(&file, mode))
            }
            other => other,
        }
    }

    /// Sets the time of the last modification, of a symlink its own.
    pub(crate) fn set_mtime(&self, name: &[u8], ns: i64) -> Result<()> {
        let times = Timestamps {
            last_access: Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT },
            last_modification: Timespec {
                tv_sec: ns.div_euclid(1_000_000_000),
                tv_nsec: ns.rem_euclid(1_000_000_000),
            },
        };
        component(name)
            .and_then(|name| {
                retry_on_intr(|| {
                    rustix::fs::utimensat(&self.fd, name, &times, AtFlags::SYMLINK_NOFOLLOW)
                })
            })
            .at("set the time of", self.path_of(name))
    }

    /// Makes the names in this directory durable. An error is final: see [`crate::disk::sync_all`].
    pub(crate) fn sync(&self) -> Result<()> {
        retry_on_intr(|| rustix::fs::fsync(&self.fd)).at("sync", &self.path)
    }
}

/// Refuses what is not one component, so that no name can lead out of its directory.
fn component(name: &[u8]) -> rustix::io::Result<&[u8]> {
    if matches!(name, b"" | b"." | b"..") || name.contains(&b'/') || name.contains(&0) {
        Err(Errno::INVAL)
    } else {
        Ok(name)
    }
}

/// Makes a new file's mode 0600 where the umask took more away.
pub(super) fn make_private(file: &File, path: &Path) -> Result<()> {
    let private = Mode::from_st_mode(0o600);
    if file_stat(file, path)?.mode != private {
        let mode = rustix::fs::Mode::from_raw_mode(private.bits());
        retry_on_intr(|| rustix::fs::fchmod(file, mode)).at("change the mode of", path)?;
    }
    Ok(())
}

/// An error of this module's own about a file that is not what it should be.
pub(super) fn unusable(verb: &'static str, path: &Path, reason: String) -> Error {
    Error::Io {
        verb,
        path: path.to_owned(),
        source: io::Error::new(io::ErrorKind::InvalidData, reason),
    }
}
