//! What the system says about itself: file systems, free space, the clock of stamps, machine and boot.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::{Errno, retry_on_intr};
use rustix::process::{Pid, Signal};
use rustix::time::ClockId;

use crate::disk::dir::Dir;
use crate::disk::small::read_small;
use crate::error::{Error, IoContext, Result};
use crate::hash::BlobHash;
use crate::limits;
use crate::path::RelPath;

/// Whether a file may be whole, and could only not be read: another user may, or another time. An I/O
/// error is none of these: the disk has lost it.
pub(crate) fn is_withheld(error: &Error) -> bool {
    let Error::Io { source, .. } = error else { return false };
    let withheld = [Errno::ACCESS, Errno::PERM, Errno::MFILE, Errno::NFILE, Errno::NOMEM];
    Errno::from_io_error(source).is_some_and(|errno| withheld.contains(&errno))
}

/// Whether the system says that what was looked at is not there any more, or is something else by now, such as a
/// symlink.
pub(crate) fn is_gone(error: &Error) -> bool {
    let Error::Io { source, .. } = error else { return false };
    let gone = [Errno::NOENT, Errno::NOTDIR, Errno::LOOP];
    Errno::from_io_error(source).is_some_and(|errno| gone.contains(&errno))
}

/// What can be relied on in a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileSystem {
    /// Two changes within this time may leave the same modification stamp.
    pub(crate) stamp_granularity: Duration,
    /// Whether it is not known to be on another machine or run by a program (FUSE).
    pub(crate) is_local: bool,
    /// Whether a directory's stamps are known to move with every change of its names.
    pub(crate) keeps_directory_stamps: bool,
    /// Whether one `syncfs` makes all of it durable and reports what could not be written.
    pub(super) syncs_whole: bool,
}

/// Which file system `dir` is on, by the number that the kernel has for its type (see
/// `statfs(2)` and the kernel's `magic.h`).
pub(crate) fn file_system(dir: &Dir) -> Result<FileSystem> {
    let answer = retry_on_intr(|| rustix::fs::fstatfs(dir)).at("examine", dir.path())?;
    // Wider than any type the field has; the numbers are 32 bits.
    let number = i128::from(answer.f_type) & 0xffff_ffff;
    Ok(by_number(number))
}

pub(super) fn by_number(number: i128) -> FileSystem {
    let known = limits::STAMP_GRANULARITY_KNOWN;
    let unknown = limits::STAMP_GRANULARITY_UNKNOWN;
    // ext2 to ext4, xfs, btrfs, tmpfs, zfs.
    let keeps_directory_stamps =
        matches!(number, 0xef53 | 0x5846_5342 | 0x9123_683e | 0x0102_1994 | 0x2fc1_2fc1);
    let (stamp_granularity, is_local, syncs_whole) = match number {
        // ext2, ext3 and ext4 share one; xfs, btrfs, tmpfs, f2fs, bcachefs.
        0xef53 | 0x5846_5342 | 0x9123_683e | 0x0102_1994 | 0xf2f5_2010 | 0xca45_1a4e => {
            (known, true, true)
        }
        // zfs keeps its own account of what is written, beside the kernel's.
        0x2fc1_2fc1 => (known, true, false),
        // NFS, SMB (three), AFS, Coda, Ceph, 9p, FUSE, Lustre, GFS2, OCFS2.
        0x6969 | 0x517b | 0xff53_4d42 | 0xfe53_4d42 | 0x5346_414f | 0x7375_7245 | 0x00c3_6400
        | 0x0102_1997 | 0x6573_5546 | 0x0bd0_0bd0 | 0x0116_1970 | 0x7461_636f => {
            (unknown, false, false)
        }
        _ => (unknown, true, false),
    };
    FileSystem { stamp_granularity, is_local, keeps_directory_stamps, syncs_whole }
}

/// Where something is mounted below `root`, a path without symlinks, in no order. A part of the same
/// file system may be: then no device number shows it.
///
/// # Errors
/// [`crate::Error::Io`] where the kernel does not say.
pub(crate) fn mounts_below(root: &Path) -> Result<Vec<RelPath>> {
    let path = Path::new("/proc/self/mountinfo");
    Ok(mounts_in(&std::fs::read(path).at("read", path)?, root))
}

/// The mount points of `mountinfo`, see `proc_pid_mountinfo(5)`, that lie below `root`.
pub(super) fn mounts_in(mountinfo: &[u8], root: &Path) -> Vec<RelPath> {
    let below = |line: &[u8]| {
        let point = unescaped(line.split(|&byte| byte == b' ').nth(4)?);
        let rest = Path::new(OsStr::from_bytes(&point)).strip_prefix(root).ok()?;
        RelPath::new(rest.as_os_str().as_bytes()).ok().filter(|path| !path.is_root())
    };
    mountinfo.split(|&byte| byte == b'\n').filter_map(below).collect()
}

/// Blanks, tabs, newlines and backslashes are given as a backslash and three octal digits.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| first == b'\\');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        if let Some(byte) = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            bytes.push(byte);
            rest = &after[3..];
        } else {
            bytes.push(first);
            rest = after;
        }
    }
    bytes
}

/// How many bytes this user can still write to the file system of `dir`.
pub(crate) fn available_bytes(dir: &Dir) -> Result<u64> {
    let answer = retry_on_intr(|| rustix::fs::fstatvfs(dir)).at("examine", dir.path())?;
    Ok(answer.f_bavail.saturating_mul(answer.f_frsize))
}

/// The time by the clock that stamps files, in nanoseconds since 1970. It advances with the kernel's
/// tick, so a file written after this was read never has an older stamp.
pub(crate) fn coarse_now_ns() -> i64 {
    let now = rustix::time::clock_gettime(ClockId::RealtimeCoarse);
    now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec)
}

/// Asks a process that was started here as the first of a group, and all that it has started in that, to
/// end, and waits until they have: none of them writes anything afterwards. One that does not heed it is
/// waited for as long as for a lock.
pub(crate) fn end_group(child: &mut std::process::Child) -> std::io::Result<()> {
    let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
    rustix::process::kill_process_group(id, Signal::TERM)?;
    child.wait()?;
    let begun = Instant::now();
    while rustix::process::test_kill_process_group(id).is_ok() {
        if begun.elapsed() >= limits::LOCK_WAIT_MAX {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// The processes that go on having `directory`, a real path, or one in it, as their working directory: those
/// that leave it within [`limits::LEAVING_WAIT_MAX`] are none, such as what git starts in the background
/// after a commit.
///
/// Cost: one call for each process of the machine.
pub(crate) fn processes_that_stay_in(directory: &Path) -> Result<Vec<u32>> {
    staying(|id| {
        // One that has ended meanwhile, or is another user's, says nothing.
        let place = std::fs::read_link(format!("/proc/{id}/cwd"));
        place.is_ok_and(|place| place.starts_with(directory))
    })
}

/// The processes that go on being at work in one of `places`, and of which `is_one` is true by the words that
/// they were started with: their working directory is there, or one of their words names it, or this user may
/// not know.
///
/// Cost: two calls for each process of the machine.
pub(crate) fn programs_that_stay_in(
    is_one: impl Fn(&[String]) -> bool,
    places: &[PathBuf],
) -> Result<Vec<u32>> {
    staying(|id| {
        let words = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        let words: Vec<String> = words
            .split(|&byte| byte == 0)
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect();
        if !is_one(&words) {
            return false;
        }
        let is_in_one = |place: &Path| places.iter().any(|one| place.starts_with(one));
        let is_named = || {
            let mut places = places.iter().map(|place| place.to_string_lossy());
            places.any(|place| words.iter().any(|word| word.contains(place.as_ref())))
        };
        match std::fs::read_link(format!("/proc/{id}/cwd")) {
            Ok(place) => is_in_one(&place) || is_named(),
            Err(error) => error.kind() == std::io::ErrorKind::PermissionDenied,
        }
    })
}

/// The processes of which `is_one` goes on being true, in order, without this one.
fn staying(is_one: impl Fn(u32) -> bool) -> Result<Vec<u32>> {
    let begun = Instant::now();
    loop {
        // Names alone: what they are of may be gone by now.
        let names = Dir::open(Path::new("/proc"))?.names()?.into_iter();
        let ids = names.filter_map(|name| std::str::from_utf8(&name).ok()?.parse().ok());
        let mut found: Vec<u32> =
            ids.filter(|&id| id != std::process::id() && is_one(id)).collect();
        if found.is_empty() || begun.elapsed() >= limits::LEAVING_WAIT_MAX {
            found.sort_unstable();
            return Ok(found);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The number of the user that this process acts as.
pub(crate) fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// A name of this machine that stays over reboots and says nothing else about it; all zero where the
/// system has none.
pub(crate) fn machine_id() -> [u8; 16] {
    let text = text_of("/etc/machine-id");
    if text.is_empty() || text == b"uninitialized" {
        return [0; 16];
    }
    // The id itself is not to leave the machine (machine-id(5)), and the store may be copied.
    let mut id = [0; 16];
    id.copy_from_slice(&BlobHash::of(&text).as_bytes()[..16]);
    id
}

/// A name of this boot of the machine; all zero where the system has none.
pub(crate) fn boot_id() -> [u8; 16] {
    let text = text_of("/proc/sys/kernel/random/boot_id");
    let id = std::str::from_utf8(&text).ok().and_then(|text| uuid::Uuid::parse_str(text).ok());
    id.map_or([0; 16], uuid::Uuid::into_bytes)
}

fn text_of(path: &str) -> Vec<u8> {
    let bytes = read_small(Path::new(path), 4096).ok().flatten().unwrap_or_default();
    bytes.trim_ascii().to_vec()
}
