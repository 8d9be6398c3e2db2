//! An open store under its shared lock: what every operation that writes works with.
//!
//! Who holds an [`Access`] holds the store's lock shared, so the index cannot be exchanged under it:
//! a rebuild takes that lock alone.

use std::sync::Arc;

use crate::blobs::Blobs;
use crate::disk::{Dir, Lock};
use crate::id::StoreId;
use crate::index::Index;
use crate::layout::Layout;
use crate::operation::Host;
use crate::sessions::Sessions;
use crate::settings::Upkeep;
use crate::workspaces::{Workspace, Workspaces};

/// An open store. Dropping it gives the lock back.
#[derive(Debug)]
pub(crate) struct Access {
    /// Where things lie.
    pub(crate) layout: Layout,
    /// Which store it is.
    pub(crate) store: StoreId,
    /// The content.
    pub(crate) blobs: Blobs,
    /// The index; current as long as the lock is held.
    pub(crate) index: Arc<Index>,
    /// The manifests.
    pub(crate) sessions: Sessions,
    /// The workspaces.
    pub(crate) workspaces: Workspaces,
    /// What it keeps.
    pub(crate) upkeep: Upkeep,
    /// Which machine and which boot this is, for operations.
    pub(crate) host: Host,
    /// Where leases are.
    pub(crate) leases: Dir,
    /// Where temporary files are.
    pub(crate) tmp: Dir,
    /// Kept until the end.
    pub(crate) lock: Lock,
}

impl Access {
    /// Closes everything but the lock. Before an index is exchanged: a connection that is closed later
    /// would take away the log of the one in its place, by its name.
    pub(crate) fn into_lock(self) -> Lock {
        self.lock
    }
}

/// A workspace that is locked and open.
#[derive(Debug)]
pub(crate) struct OpenWorkspace {
    /// What is remembered of it.
    pub(crate) workspace: Workspace,
    /// Its root.
    pub(crate) dir: Dir,
    /// The real path of the root.
    pub(crate) path: std::path::PathBuf,
    /// Kept until the end: one capture or restore of a workspace at a time.
    pub(crate) _lock: Lock,
}
