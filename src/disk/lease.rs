//! Leases: how other processes know that an operation is alive.
//!
//! A lease is a file named by the operation, locked by the process that runs it for as long as it
//! runs. The kernel frees the lock when the process ends, however it ends, and keeps it while the
//! process is stopped: no process id, heartbeat or clock is asked.

use std::fs::File;
use std::time::Instant;

use crate::disk::dir::{Dir, FileStat, file_stat};
use crate::disk::lock::{LockKind, Pause, try_flock};
use crate::error::{Error, Result};
use crate::id::OperationId;
use crate::limits;

/// This process's lease for one operation. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Lease {
    leases: Dir,
    operation: OperationId,
    stat: FileStat,
    _file: File,
}

impl Lease {
    /// Makes and locks the file `operation` in the directory `leases`.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Busy`] where others keep the new file locked or keep removing it.
    ///
    /// # Concurrency
    /// Between its making and its locking the file looks dead, so another process may remove it. When
    /// this returns, the name leads to the locked file, and nobody removes a locked one.
    pub(crate) fn create(leases: &Dir, operation: OperationId) -> Result<Self> {
        let name = operation.to_string();
        let path = leases.path_of(name.as_bytes());
        let begun = Instant::now();
        let mut pause = Pause::default();
        loop {
            let file = leases.create_file(name.as_bytes())?;
            // Only a process that asks whether the file is dead can hold it, for a moment.
            while !try_flock(&file, LockKind::Exclusive, &path)? {
                if begun.elapsed() >= limits::LOCK_WAIT_MAX {
                    leases.try_unlink(name.as_bytes())?;
                    return Err(Error::Busy { lock: name, waited: begun.elapsed() });
                }
                pause.sleep();
            }
            let stat = file_stat(&file, &path)?;
            let lease = Self { leases: leases.try_clone()?, operation, stat, _file: file };
            if lease.still_holds()? {
                return Ok(lease);
            }
            if begun.elapsed() >= limits::LOCK_WAIT_MAX {
                return Err(Error::Busy { lock: name, waited: begun.elapsed() });
            }
        }
    }

    /// Whether the name still leads to the file that this process has locked. `false` means that
    /// somebody removed it by hand, and that others may take the operation for dead.
    pub(crate) fn still_holds(&self) -> Result<bool> {
        let named = self.leases.stat(self.operation.to_string().as_bytes())?;
        Ok(named.is_some_and(|named| named.is_same_inode(&self.stat)))
    }
}

impl Drop for Lease {
    /// The name goes before the lock, so that no free file is seen. If it cannot be removed the next
    /// process that looks finds a dead lease and removes it.
    fn drop(&mut self) {
        if self.still_holds().unwrap_or(false) {
            drop(self.leases.try_unlink(self.operation.to_string().as_bytes()));
        }
    }
}

/// Whether a process runs `operation` now. Holds a shared lock for a moment to find out; makes no
/// file.
pub(crate) fn is_alive(leases: &Dir, operation: OperationId) -> Result<bool> {
    let name = operation.to_string();
    let Some(file) = leases.try_open_file(name.as_bytes())? else { return Ok(false) };
    let free = try_flock(&file, LockKind::Shared, &leases.path_of(name.as_bytes()))?;
    Ok(!free)
}

/// Removes the lease of `operation` if it is dead; says whether it is gone.
pub(crate) fn remove_dead(leases: &Dir, operation: OperationId) -> Result<bool> {
    let name = operation.to_string();
    let path = leases.path_of(name.as_bytes());
    let Some(file) = leases.try_open_file(name.as_bytes())? else { return Ok(true) };
    if !try_flock(&file, LockKind::Exclusive, &path)? {
        return Ok(false);
    }
    // The lock may be on a file that lost its name to another one since it was opened.
    let held = file_stat(&file, &path)?;
    match leases.stat(name.as_bytes())? {
        Some(named) if named.is_same_inode(&held) => leases.try_unlink(name.as_bytes()),
        Some(_) => Ok(false),
        None => Ok(true),
    }
}

/// The operations that have a lease, dead or alive, in no order. Names that are no operation's are
/// left out.
pub(crate) fn leases(leases: &Dir) -> Result<Vec<OperationId>> {
    let ids = leases
        .names()?
        .into_iter()
        .filter_map(|name| std::str::from_utf8(&name).ok().and_then(|text| text.parse().ok()));
    Ok(ids.collect())
}
