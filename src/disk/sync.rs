//! Making many things durable at once.

use std::fs::File;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rustix::io::retry_on_intr;

use crate::disk::dir::Dir;
use crate::disk::system::file_system;
use crate::error::{IoContext, Result};
use crate::limits;

/// Something to make durable.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ToSync<'a> {
    /// A file that is open; the directory and name are for the error.
    Open(&'a File, &'a Dir, &'a [u8]),
    /// A directory that is open.
    Directory(&'a Dir),
    /// The file or directory of that name.
    Named(&'a Dir, &'a [u8]),
}

/// Makes `items`, all on the file system of `on`, durable: file content, or the names in a directory.
///
/// # Errors
/// [`crate::Error::Io`]. It is final: after a failed sync the kernel may count the lost pages as
/// written, so a second one that succeeds proves nothing. What was to be published must be written
/// anew, under a new inode.
///
/// # Cost
/// Up to [`limits::SYNC_EACH_MAX`] items one `fsync` each, some at a time; above that one `syncfs`,
/// which also writes what other programs left to write. A `syncfs` reports the errors since `on` was
/// opened, so `on` has to be opened before the items are written. Where it is not known to report
/// errors (a kernel before 5.8, network and layered file systems) every item has its own `fsync`.
pub(crate) fn sync_all(on: &Dir, items: &[ToSync<'_>]) -> Result<()> {
    if items.len() > limits::SYNC_EACH_MAX
        && file_system(on)?.syncs_whole
        && syncfs_reports_errors()
    {
        return sync_file_system(on);
    }
    sync_each(items)
}

/// Makes all durable that was written to the file system of `on`, by whomever.
///
/// # Errors
/// [`crate::Error::Io`]. Where it is not known to report errors, as in [`sync_all`], there may be some that
/// nobody is told of.
pub(crate) fn sync_file_system(on: &Dir) -> Result<()> {
    retry_on_intr(|| rustix::fs::syncfs(on)).at("sync", on.path())
}

fn sync_each(items: &[ToSync<'_>]) -> Result<()> {
    let [first, rest @ ..] = items else { return Ok(()) };
    if rest.is_empty() {
        return sync_one(first);
    }
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            sync_one(item)?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let others = items.len().min(limits::SYNC_THREADS_MAX) - 1;
        // Where the system gives no thread, this one does the work.
        let threads: Vec<_> = (0..others)
            .map_while(|_| thread::Builder::new().spawn_scoped(scope, work).ok())
            .collect();
        let mut outcome = work();
        for thread in threads {
            // A panic there would be one here too: nothing in it can.
            outcome = outcome.and(thread.join().unwrap_or(Ok(())));
        }
        outcome
    })
}

fn sync_one(item: &ToSync<'_>) -> Result<()> {
    match *item {
        ToSync::Open(file, dir, name) => file.sync_all().at("sync", dir.path_of(name)),
        ToSync::Directory(dir) => dir.sync(),
        ToSync::Named(dir, name) => dir.open_file(name)?.sync_all().at("sync", dir.path_of(name)),
    }
}

/// Whether the kernel is 5.8 or newer: before, `syncfs` returned success after a failed write-back.
fn syncfs_reports_errors() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        is_release_at_least(&release, (5, 8))
    })
}

pub(super) fn is_release_at_least(release: &str, least: (u32, u32)) -> bool {
    let mut numbers = release.split(|character: char| !character.is_ascii_digit());
    let mut number = || numbers.next().and_then(|digits| digits.parse::<u32>().ok());
    match (number(), number()) {
        (Some(major), Some(minor)) => (major, minor) >= least,
        _ => false,
    }
}
