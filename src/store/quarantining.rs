//! Putting something damaged into the quarantine.

use std::path::Path;

use crate::adoption::{self, Compared};
use crate::disk::{self, LockKind};
use crate::error::{Error, Result};
use crate::monitor::Monitor;
use crate::quarantine::{self, Quarantined};
use crate::store::{Store, log};

impl Store {
    /// What [`Store::quarantine`] would do.
    ///
    /// # Errors
    /// As [`Store::quarantine`].
    ///
    /// Cost: all manifests and pages are read, and of a pack all of it.
    pub fn plan_quarantine(&self, file: &Path, monitor: &dyn Monitor) -> Result<Quarantined> {
        let access = self.enter_if_made(monitor)?.ok_or_else(|| no_store(file))?;
        quarantine::plan(&access, file, monitor)
    }

    /// Moves a damaged manifest, pin, blob or pack into `quarantine/`, under the path that it had in the
    /// store: `file` is that path, or an absolute one. What is whole of a pack is saved first. Nothing is
    /// removed, and moving the file back by hand takes it back.
    ///
    /// A checkpoint whose manifest goes is given up: it is not listed any more, its number stays given,
    /// and what only it needs is removed by the next collection, which a manifest that cannot be
    /// understood stops.
    ///
    /// # Errors
    /// [`Error::NotOfStore`] where it is no such file; [`Error::QuarantineRefused`] where it is sound, of
    /// another or a newer program, or needed by an open restore or an operation of another machine;
    /// [`Error::Busy`] where operations run on for more than a minute.
    ///
    /// # Concurrency
    /// Waits for every running operation.
    ///
    /// # Durability
    /// The new name is durable when it returns. A crash in between leaves the file in one of the two
    /// places, and the same call goes on.
    pub fn quarantine(&self, file: &Path, monitor: &dyn Monitor) -> Result<Quarantined> {
        // With an index that can be asked, and that is built before where it cannot.
        drop(self.enter_if_made(monitor)?.ok_or_else(|| no_store(file))?);
        let layout = &self.inner.layout;
        let lock = disk::lock(&layout.store_lock(), LockKind::Exclusive, "the store", monitor)?;
        let access = self.access_alone(lock)?;
        // Nobody else is at work, and what the dead protected goes first.
        adoption::reap(&access, &mut Compared::default())?;
        let outcome = quarantine::apply(&access, file, monitor)?;
        let details = serde_json::json!({
            "file": outcome.file.to_string_lossy(),
            "to": outcome.to.to_string_lossy(),
            "pin": outcome.pin.as_ref().map(|pin| pin.to_string_lossy()),
            "why": outcome.reason,
            "checkpoints": outcome.checkpoints.iter().map(log::id).collect::<Vec<_>>(),
        });
        if let Err(error) = log::append(&access, "quarantine", details) {
            log::tell_unwritten(&error, monitor);
        }
        Ok(outcome)
    }
}

fn no_store(file: &Path) -> Error {
    Error::NotOfStore { path: file.to_owned(), reason: "there is no store yet".to_owned() }
}
