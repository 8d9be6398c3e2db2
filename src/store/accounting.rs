//! What holds the space, and what was done to the store.

use crate::checkpoint::Account;
use crate::disk::{self, Dir};
use crate::error::Result;
use crate::id::SessionName;
use crate::index;
use crate::layout::Layout;
use crate::monitor::Monitor;
use crate::retention;
use crate::store::{InPlace, Store, log};

pub use log::{Logged, OperationLog};

/// What the store takes on the disk, in whole blocks, as `du` counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DiskUse {
    /// Blobs and packs.
    pub content_bytes: u64,
    /// Sessions: manifests, pins, `session.json`.
    pub manifests_bytes: u64,
    /// The index.
    pub index_bytes: u64,
    /// What is known of workspaces, stat caches for the most part.
    pub workspaces_bytes: u64,
    /// Everything else: the ballast, the quarantine, what is in the works.
    pub other_bytes: u64,
}

impl DiskUse {
    /// All together.
    pub const fn total_bytes(self) -> u64 {
        self.content_bytes
            + self.manifests_bytes
            + self.index_bytes
            + self.workspaces_bytes
            + self.other_bytes
    }
}

/// The accounts of a store.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
#[must_use]
pub struct Accounts {
    /// Those of each session that has checkpoints, in order of name, and that of all last.
    pub accounts: Vec<Account>,
    /// How many blobs a collection would remove now.
    pub unneeded_blobs: u64,
    /// What they take as stored.
    pub unneeded_bytes: u64,
    /// How many nobody needs, but which are too young, or protected by a running operation.
    pub waiting_blobs: u64,
    /// What the store takes on the disk.
    pub disk: DiskUse,
}

impl Store {
    /// What holds the space: by session, in all, and on the disk. Nothing where there is no store.
    ///
    /// # Errors
    /// [`crate::Error::IndexDamaged`], also where there is no index: only it knows what is shared;
    /// [`crate::Error::DeletionBlocked`] where the trailer of a pack is damaged.
    ///
    /// Cost: the rows of all pages, about half a second for 20 checkpoints of 100,000 files; one `lstat`
    /// for each file of the store.
    pub fn accounts(&self, monitor: &dyn Monitor) -> Result<Accounts> {
        let Some(reading) = self.read(monitor)? else { return Ok(Accounts::default()) };
        let Some(index) = reading.index.as_deref() else {
            let path = self.inner.layout.root().join(index::FILE_NAME);
            let reason = match self.current_index()? {
                InPlace::Damaged(reason) => reason,
                _ => "it is missing".to_owned(),
            };
            return Err(crate::Error::IndexDamaged { path, reason });
        };
        let accounts = index.read("account for the space", |tx| tx.accounts())?;
        let unneeded = retention::unneeded(&reading.blobs, index)?;
        Ok(Accounts {
            accounts,
            unneeded_blobs: unneeded.blobs_removed,
            unneeded_bytes: unneeded.bytes_removed,
            waiting_blobs: unneeded.blobs_waiting,
            disk: disk_use(&self.inner.layout)?,
        })
    }

    /// What was restored, dropped, removed and repaired, and why: the newest `limit` lines of the store's
    /// log, the newest last.
    ///
    /// # Errors
    /// [`crate::Error::Io`] where the log cannot be read. What is no line of a log is counted, and is no
    /// error.
    ///
    /// Cost: the reading of the log's end, up to [`crate::limits::LOG_BYTES_READ_MAX`].
    pub fn operations(&self, limit: usize) -> Result<OperationLog> {
        log::read(&self.inner.layout, limit)
    }
}

fn disk_use(layout: &Layout) -> Result<DiskUse> {
    let root = Dir::open(layout.root())?;
    let mut used =
        DiskUse { other_bytes: root.stat_self()?.allocated_bytes(), ..DiskUse::default() };
    for name in root.names()? {
        let bytes = disk::extent(&root, &name)?.bytes;
        let part = match &*name {
            b"blobs" | b"packs" => &mut used.content_bytes,
            b"workspaces" => &mut used.workspaces_bytes,
            b"index.db" | b"index.db-wal" | b"index.db-shm" => &mut used.index_bytes,
            b"ballast" | b"format.json" | b"journal" | b"leases" | b"locks"
            | b"operations.jsonl" | b"quarantine" | b"tmp" => &mut used.other_bytes,
            name if std::str::from_utf8(name).is_ok_and(|name| SessionName::new(name).is_ok()) => {
                &mut used.manifests_bytes
            }
            _ => &mut used.other_bytes,
        };
        *part += bytes;
    }
    Ok(used)
}
