//! Where things lie in a store, and the file that says it is one.
//!
//! Only names and `format.json`; what is in the other files is their owners' business. `docs/format.md`
//! draws the directory.

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::disk::{self, Dir};
use crate::error::{Error, Result};
use crate::id::{SessionName, StoreId, WorkspaceId};
use crate::limits;

/// The name of the file that remembers how much there is. No session can have it.
pub(crate) const TALLY: &str = ".tally";

/// The version of the layout that this program writes.
pub const LAYOUT: u64 = 1;

/// The directory of a store, and the names in it.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    home: PathBuf,
    root: PathBuf,
}

/// What `format.json` says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Format {
    turnpoint_store: u64,
    id: String,
    hash: String,
}

/// The major version alone, from a text whose other fields may be unknown.
#[derive(Debug, Deserialize)]
struct Version {
    turnpoint_store: u64,
}

impl Layout {
    /// The layout below a sessions home. Nothing is looked at.
    pub(crate) fn new(home: &Path) -> Self {
        Self { home: home.to_owned(), root: home.join("checkpoints") }
    }

    /// The sessions home: never captured, whatever else lies in it.
    pub(crate) fn home(&self) -> &Path {
        &self.home
    }

    /// The store's own directory.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// What marks the directory as a store and says which version and which store.
    pub(crate) fn format_file(&self) -> PathBuf {
        self.root.join("format.json")
    }

    /// The lock that everyone shares and a rebuild takes alone.
    pub(crate) fn store_lock(&self) -> PathBuf {
        self.locks().join("store.lock")
    }

    /// The lock that one sweep holds at a time. Its modification time is that of the last sweep.
    pub(crate) fn sweep_lock(&self) -> PathBuf {
        self.locks().join("sweep.lock")
    }

    /// The lock of the workspace whose root directory this is.
    pub(crate) fn workspace_lock(&self, device: u64, inode: u64) -> PathBuf {
        self.locks().join(format!("ws-{device:x}-{inode:x}.lock"))
    }

    /// The directory of locks.
    pub(crate) fn locks(&self) -> PathBuf {
        self.root.join("locks")
    }

    /// One file for each living operation.
    pub(crate) fn leases(&self) -> PathBuf {
        self.root.join("leases")
    }

    /// One directory for each operation's temporary files.
    pub(crate) fn tmp(&self) -> PathBuf {
        self.root.join("tmp")
    }

    /// One file for each open restore.
    pub(crate) fn journals(&self) -> PathBuf {
        self.root.join("journal")
    }

    /// The journal of an open restore of this workspace.
    pub(crate) fn journal(&self, workspace: WorkspaceId) -> PathBuf {
        self.journals().join(format!("{workspace}.json"))
    }

    /// What a purge has decided, until it is done.
    pub(crate) fn purge(&self) -> PathBuf {
        self.journals().join("purge.json")
    }

    /// One directory for each workspace.
    pub(crate) fn workspaces(&self) -> PathBuf {
        self.root.join("workspaces")
    }

    /// The directory of one workspace.
    pub(crate) fn workspace(&self, id: WorkspaceId) -> PathBuf {
        self.workspaces().join(id.to_string())
    }

    /// What was set aside by an explicit command.
    pub(crate) fn quarantine(&self) -> PathBuf {
        self.root.join("quarantine")
    }

    /// The account of what was restored, pruned and repaired.
    pub(crate) fn operations_log(&self) -> PathBuf {
        self.root.join("operations.jsonl")
    }

    /// The file that a collection gives up on a full disk, so that it can write at all.
    pub(crate) fn ballast(&self) -> PathBuf {
        self.root.join("ballast")
    }

    /// What is remembered of how much there is in the store.
    pub(crate) fn tally(&self) -> PathBuf {
        self.root.join(TALLY)
    }

    /// The directory of one session.
    pub(crate) fn session(&self, session: &SessionName) -> PathBuf {
        self.root.join(session.as_str())
    }

    /// The directories without which nothing works; the others are made where they are needed.
    pub(crate) fn directories(&self) -> [PathBuf; 5] {
        [self.blobs(), self.leases(), self.tmp(), self.journals(), self.workspaces()]
    }

    /// The directory of loose blobs.
    pub(crate) fn blobs(&self) -> PathBuf {
        self.root.join("blobs")
    }

    /// The directory of packs, which a store may be without.
    pub(crate) fn packs(&self) -> PathBuf {
        self.root.join("packs")
    }

    /// Makes the directories but that of the blobs, where they are missing.
    pub(crate) fn create_directories(&self) -> Result<()> {
        for dir in
            [self.leases(), self.tmp(), self.journals(), self.workspaces(), self.quarantine()]
        {
            disk::make_private_dir(&dir)?;
        }
        Ok(())
    }

    /// Makes the directories and, last, `format.json`. The caller holds the store's lock alone.
    ///
    /// # Durability
    /// A crash before the end leaves no `format.json`, and the next call goes on.
    pub(crate) fn create(&self) -> Result<StoreId> {
        self.create_directories()?;
        let id = StoreId::random();
        let format =
            Format { turnpoint_store: LAYOUT, id: id.to_string(), hash: "blake3".to_owned() };
        // A struct of strings and integers always has a JSON form.
        let text = serde_json::to_vec(&format).unwrap_or_default();
        match disk::create_durably(
            &Dir::open(&self.root)?,
            b"format.json",
            &text,
            &Dir::open(&self.tmp())?,
        )? {
            disk::Created::Done => Ok(id),
            disk::Created::Exists => self.read_format()?.ok_or_else(|| Error::StoreForeign {
                path: self.format_file(),
                reason: "it appeared and vanished again".to_owned(),
            }),
        }
    }

    /// Makes the directory of the locks, where it is missing: the first thing of a new store.
    pub(crate) fn create_locks(&self) -> Result<()> {
        for dir in [self.home(), self.root(), &self.locks()] {
            disk::make_private_dir(dir)?;
        }
        Ok(())
    }

    /// Which store this is; `None` where there is none yet.
    ///
    /// # Errors
    /// [`Error::StoreTooNew`] and [`Error::StoreForeign`] where the file says something else;
    /// [`Error::FormatDamaged`] where it says nothing.
    pub(crate) fn read_format(&self) -> Result<Option<StoreId>> {
        let path = self.format_file();
        let text = match disk::read_small(&path, limits::SMALL_FILE_BYTES_MAX) {
            Ok(Some(text)) => text,
            Ok(None) => return Ok(None),
            Err(error) if error.is_damage() => {
                return Err(Error::FormatDamaged { path, reason: error.with_source() });
            }
            Err(error) => return Err(error),
        };
        if let Ok(Version { turnpoint_store: found }) = serde_json::from_slice(&text)
            && found > LAYOUT
        {
            return Err(Error::StoreTooNew { path, found, supported: LAYOUT });
        }
        let foreign = |reason: String| Error::StoreForeign { path: path.clone(), reason };
        let damaged = |reason: String| Error::FormatDamaged { path: path.clone(), reason };
        let format: Format =
            serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
        if format.hash != "blake3" || format.turnpoint_store == 0 {
            return Err(foreign(format!("its blobs are named by `{}`", format.hash)));
        }
        format.id.parse().map(Some).map_err(|error| damaged(format!("its id is {error}")))
    }
}
