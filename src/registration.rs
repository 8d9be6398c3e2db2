//! Operations in flight: registering one, protecting what it needs, and telling the dead from the
//! living.
//!
//! An operation is a row in the index and a lease, a file that its process keeps locked. The kernel
//! gives the lock up when the process ends, however it ends; so no clock and no process id is asked.
//! What an operation pins no sweep removes, and what it bases itself on no prune drops.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::access::Access;
use crate::clock::Timestamp;
use crate::disk::{self, Dir, Lease};
use crate::error::Result;
use crate::hash::BlobHash;
use crate::id::{CheckpointId, OperationId, WorkspaceId};
use crate::index::WriteTx;
use crate::limits;
use crate::operation::{Host, NewOperation, OperationKind, OperationRow};

/// A registered operation. Dropping it without [`Operation::end`] leaves its row for the next
/// command to reap, as a crash would.
#[derive(Debug)]
pub(crate) struct Operation<'a> {
    access: &'a Access,
    id: OperationId,
    kind: OperationKind,
    workspace: Option<WorkspaceId>,
    lease: Lease,
    ended: bool,
    /// A manifest may be on disk whose rows are not in: the row, and the pins with it, must outlive
    /// this process until somebody has adopted it.
    entrusted: bool,
    pins_all: AtomicBool,
}

impl<'a> Operation<'a> {
    /// Registers an operation. `choose` runs in the transaction that makes it known, so that what it
    /// chooses (a base) is protected from the moment it is chosen.
    pub(crate) fn begin<T>(
        access: &'a Access,
        kind: OperationKind,
        workspace: Option<WorkspaceId>,
        choose: impl FnOnce(&WriteTx<'_>) -> Result<(Option<CheckpointId>, T)>,
    ) -> Result<(Self, T)> {
        let id = OperationId::random();
        // The lease comes first: a row without one would be taken for a dead process's.
        let lease = Lease::create(&access.leases, id)?;
        let chosen = access.index.write("register an operation", |tx| {
            let (base, chosen) = choose(&tx)?;
            tx.insert_operation(&new_operation(id, kind, workspace, access.host, base))?;
            Ok(chosen)
        })?;
        let (ended, entrusted, pins_all) = (false, false, AtomicBool::new(false));
        Ok((Self { access, id, kind, workspace, lease, ended, entrusted, pins_all }, chosen))
    }

    /// Its id: the name of its lease and of its temporary directory.
    pub(crate) fn id(&self) -> OperationId {
        self.id
    }

    /// Protects more checkpoints.
    pub(crate) fn protect(&self, checkpoints: &[CheckpointId]) -> Result<()> {
        self.access
            .index
            .write("protect a checkpoint", |tx| tx.pin_checkpoints(self.id, checkpoints))
    }

    /// Pins hashes, in batches. Committed when it returns: only now may the blobs be looked at,
    /// because only now does a sweep see the pins. That order is what makes capture and sweep safe
    /// beside each other, whatever the clocks say.
    pub(crate) fn pin(&self, hashes: &[BlobHash]) -> Result<()> {
        if self.pins_all.load(Ordering::Acquire) {
            return Ok(());
        }
        for batch in hashes.chunks(limits::PIN_BATCH) {
            self.access.index.write("pin content", |tx| tx.pin_blobs(self.id, batch))?;
        }
        Ok(())
    }

    /// Pins everything: no sweep removes anything until this operation ends.
    pub(crate) fn pin_all(&self) -> Result<()> {
        self.access.index.write("pin all content", |tx| tx.set_pin_all(self.id))?;
        self.pins_all.store(true, Ordering::Release);
        Ok(())
    }

    /// Whether the row and the lease are still ours. They are, unless somebody removed the lease's
    /// file under a living process and another took it for dead.
    pub(crate) fn is_registered(&self, tx: &WriteTx<'_>) -> Result<bool> {
        Ok(tx.operation_exists(self.id)? && self.lease.still_holds()?)
    }

    /// Registers anew after the row or the lease was lost. Nothing is pinned.
    pub(crate) fn register_again(&mut self, base: Option<&CheckpointId>) -> Result<()> {
        let id = OperationId::random();
        let lease = Lease::create(&self.access.leases, id)?;
        let new = new_operation(id, self.kind, self.workspace, self.access.host, base.cloned());
        self.access.index.write("register an operation again", |tx| {
            tx.remove_operation(self.id)?;
            tx.insert_operation(&new)
        })?;
        self.id = id;
        self.lease = lease;
        self.pins_all = AtomicBool::new(false);
        Ok(())
    }

    /// Says that a manifest is about to be written. From here on the row is not removed by this
    /// process, whatever fails: whoever reaps it adopts the manifest in the same transaction.
    pub(crate) fn entrust(&mut self) {
        self.entrusted = true;
    }

    /// Says that the rows of the manifest are in.
    pub(crate) fn is_recorded(&mut self) {
        self.entrusted = false;
    }

    /// Removes the row, with its pins, and the lease.
    pub(crate) fn end(mut self) -> Result<()> {
        if self.entrusted {
            return Ok(());
        }
        self.access.index.write("end an operation", |tx| tx.remove_operation(self.id))?;
        self.ended = true;
        Ok(())
    }

    /// Says that another transaction has removed the row already.
    pub(crate) fn was_ended(&mut self) {
        self.ended = true;
    }
}

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        if !self.ended && !self.entrusted {
            // An error on the way out changes nothing: the row is reaped later.
            let removed =
                self.access.index.write("drop an operation", |tx| tx.remove_operation(self.id));
            drop(removed);
        }
    }
}

fn new_operation(
    id: OperationId,
    kind: OperationKind,
    workspace: Option<WorkspaceId>,
    host: Host,
    base: Option<CheckpointId>,
) -> NewOperation {
    NewOperation { id, kind, host, started_at: Timestamp::now(), workspace, base }
}

/// Whether an operation's process still runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Liveness {
    /// Its lease is locked.
    Alive,
    /// Its lease is free on this boot, or it is of an earlier boot of this machine.
    Dead,
    /// Of another machine: its lease says nothing here.
    Foreign,
}

/// Tells whether an operation's process still runs.
pub(crate) fn liveness(access: &Access, row: &OperationRow) -> Result<Liveness> {
    liveness_of(access.host, &access.leases, row)
}

/// As [`liveness`], seen from the host `this`.
pub(crate) fn liveness_of(this: Host, leases: &Dir, row: &OperationRow) -> Result<Liveness> {
    let host = row.operation.host;
    if host.boot == this.boot {
        let alive = disk::is_alive(leases, row.operation.id)?;
        return Ok(if alive { Liveness::Alive } else { Liveness::Dead });
    }
    let known = this.machine != [0; 16];
    Ok(if known && host.machine == this.machine { Liveness::Dead } else { Liveness::Foreign })
}
