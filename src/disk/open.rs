//! Opening strictly beneath a directory: no symlink is followed, no `..`, no magic link.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::{Errno, Result, retry_on_intr};

/// The kernel takes paths shorter than this, the final NUL included (`PATH_MAX`).
const PATH_MAX: usize = 4096;

/// `RESOLVE_BENEATH` gives up when a rename elsewhere raced with it; that many times it is asked
/// again before the path is walked by component, which cannot race that way.
const RACED_RENAMES_MAX: u32 = 64;

/// Set once the kernel, or a sandbox in front of it, has refused `openat2` as such.
static OPENAT2_MISSING: AtomicBool = AtomicBool::new(false);

/// Opens `path`, relative, normalized and not empty, beneath `root`. A path longer than the kernel
/// takes at once is opened in pieces.
pub(super) fn beneath(root: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd> {
    let mut rest = path;
    let mut reached: Option<OwnedFd> = None;
    loop {
        let from = reached.as_ref().map_or(root, AsFd::as_fd);
        if rest.len() < PATH_MAX {
            return piece(from, rest, flags);
        }
        let cut = rest[..PATH_MAX].iter().rposition(|&byte| byte == b'/');
        let cut = cut.ok_or(Errno::NAMETOOLONG)?;
        let next = piece(from, &rest[..cut], OFlags::PATH | OFlags::DIRECTORY)?;
        reached = Some(next);
        rest = &rest[cut + 1..];
    }
}

fn piece(from: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd> {
    if OPENAT2_MISSING.load(Ordering::Relaxed) {
        return by_component(from, path, flags);
    }
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    for _ in 0..RACED_RENAMES_MAX {
        let opened =
            retry_on_intr(|| rustix::fs::openat2(from, path, flags, Mode::empty(), resolve));
        match opened {
            Err(Errno::AGAIN) => {}
            // Old seccomp profiles answer EPERM for calls they do not know. The walk by component
            // is right in any case, so a true EPERM costs speed and nothing else.
            Err(Errno::NOSYS | Errno::PERM) => {
                OPENAT2_MISSING.store(true, Ordering::Relaxed);
                break;
            }
            other => return other,
        }
    }
    by_component(from, path, flags)
}

/// Opens component by component, each without following a symlink.
pub(super) fn by_component(from: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd> {
    let always = OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut reached: Option<OwnedFd> = None;
    let mut components = path.split(|&byte| byte == b'/').peekable();
    while let Some(name) = components.next() {
        let here = reached.as_ref().map_or(from, AsFd::as_fd);
        let wanted = match components.peek() {
            // A directory on the way need not be readable, only searchable.
            Some(_) => OFlags::PATH | OFlags::DIRECTORY,
            None => flags,
        };
        reached =
            Some(retry_on_intr(|| rustix::fs::openat(here, name, wanted | always, Mode::empty()))?);
    }
    reached.ok_or(Errno::NOENT)
}
