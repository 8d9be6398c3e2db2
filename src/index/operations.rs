//! The tables `operations`, `pins` and `pinned_checkpoints`: who relies on what at this moment.

use std::collections::HashSet;

use rusqlite::{Row, params};

use super::transaction::{ReadTx, WriteTx};
use crate::checkpoint::CheckpointState;
use crate::error::{Error, Result};
use crate::hash::BlobHash;
use crate::id::{CheckpointId, OperationId};
use crate::operation::{Host, NewOperation, OperationRow};

impl ReadTx<'_> {
    /// Whether the operation is recorded. It is not any more if it was taken for dead, or if the index
    /// was built anew: then nothing protects what it relied on.
    pub(crate) fn operation_exists(&self, id: OperationId) -> Result<bool> {
        self.exists("SELECT 1 FROM operations WHERE id = ?1", [id])
    }

    /// All operations, the oldest first.
    pub(crate) fn operations(&self) -> Result<Vec<OperationRow>> {
        self.rows(
            "SELECT o.id, o.kind, o.machine, o.boot, o.started_at_ns, o.workspace,
                 s.name, c.seq, o.intent_session, o.intent_seq, o.pin_all
             FROM operations o
             LEFT JOIN checkpoints c ON c.id = o.base
             LEFT JOIN sessions s ON s.id = c.session
             ORDER BY o.started_at_ns, o.id",
            [],
            operation_row,
        )
    }

    /// The checkpoints that an operation builds upon or has pinned: prune leaves them.
    pub(crate) fn protected_checkpoints(&self) -> Result<HashSet<CheckpointId>> {
        let rows = self.rows(
            "SELECT s.name, c.seq
             FROM (SELECT base AS id FROM operations WHERE base IS NOT NULL
                   UNION SELECT checkpoint FROM pinned_checkpoints) p
             JOIN checkpoints c ON c.id = p.id
             JOIN sessions s ON s.id = c.session",
            [],
            |row| Ok(CheckpointId { session: row.get(0)?, seq: row.get(1)? }),
        )?;
        Ok(rows.into_iter().collect())
    }

    /// The row of a checkpoint that is there for readers.
    ///
    /// # Errors
    /// [`Error::Pruned`] where it is being pruned, [`Error::CheckpointNotFound`] where it is not known.
    pub(super) fn require_live(&self, id: &CheckpointId) -> Result<i64> {
        match self.checkpoint_id(id)? {
            Some((row, CheckpointState::Live)) => Ok(row),
            Some((_, CheckpointState::Pruning)) => Err(Error::Pruned { checkpoint: id.clone() }),
            None => Err(Error::CheckpointNotFound {
                session: id.session.clone(),
                seq: id.seq,
                nearest: self.nearest_seqs(id)?,
            }),
        }
    }
}

impl WriteTx<'_> {
    /// Records an operation. From its commit on the base is not pruned.
    ///
    /// # Errors
    /// [`Error::Pruned`] or [`Error::CheckpointNotFound`] for the base.
    pub(crate) fn insert_operation(&self, operation: &NewOperation) -> Result<()> {
        let NewOperation { id, kind, host, started_at, workspace, base } = operation;
        let base = base.as_ref().map(|base| self.require_live(base)).transpose()?;
        self.execute(
            "INSERT INTO operations (id, kind, machine, boot, started_at_ns, workspace, base)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            params![id, kind, &host.machine[..], &host.boot[..], started_at, workspace, base],
        )?;
        Ok(())
    }

    /// Lets an operation build upon another checkpoint, or none.
    ///
    /// # Errors
    /// [`Error::Pruned`] or [`Error::CheckpointNotFound`] for the base.
    #[cfg(test)]
    pub(crate) fn set_base(&self, id: OperationId, base: Option<&CheckpointId>) -> Result<()> {
        let base = base.map(|base| self.require_live(base)).transpose()?;
        self.execute("UPDATE operations SET base = ?2 WHERE id = ?1", params![id, base])?;
        Ok(())
    }

    /// Lets an operation protect every blob there is and will be, until it ends.
    pub(crate) fn set_pin_all(&self, id: OperationId) -> Result<()> {
        self.execute("UPDATE operations SET pin_all = 1 WHERE id = ?1", [id])?;
        Ok(())
    }

    /// Says which manifest an operation is about to write, for whoever finds the operation dead.
    pub(crate) fn set_intent(&self, id: OperationId, checkpoint: &CheckpointId) -> Result<()> {
        self.execute(
            "UPDATE operations SET intent_session = ?2, intent_seq = ?3 WHERE id = ?1",
            params![id, checkpoint.session, checkpoint.seq],
        )?;
        Ok(())
    }

    /// Forgets an operation and all it protects. Does nothing where it is not recorded.
    pub(crate) fn remove_operation(&self, id: OperationId) -> Result<()> {
        self.execute("DELETE FROM pins WHERE operation = ?1", [id])?;
        self.execute("DELETE FROM pinned_checkpoints WHERE operation = ?1", [id])?;
        self.execute("DELETE FROM operations WHERE id = ?1", [id])?;
        Ok(())
    }

    /// Protects blobs from every sweep batch that begins after this commit, whether or not they are
    /// there yet. Look for a blob's file only after the commit: in that order no sweep can come
    /// between.
    pub(crate) fn pin_blobs(&self, id: OperationId, hashes: &[BlobHash]) -> Result<()> {
        let mut insert =
            self.prepare("INSERT OR IGNORE INTO pins (hash, operation) VALUES (?1, ?2)")?;
        for hash in hashes {
            insert.execute(params![hash, id])?;
        }
        Ok(())
    }

    /// Protects checkpoints from prune while the operation lasts: the target of a restore and its
    /// safety checkpoint.
    ///
    /// # Errors
    /// [`Error::Pruned`] or [`Error::CheckpointNotFound`].
    pub(crate) fn pin_checkpoints(
        &self,
        id: OperationId,
        checkpoints: &[CheckpointId],
    ) -> Result<()> {
        for checkpoint in checkpoints {
            let row = self.require_live(checkpoint)?;
            self.execute(
                "INSERT OR IGNORE INTO pinned_checkpoints (checkpoint, operation) VALUES (?1, ?2)",
                params![row, id],
            )?;
        }
        Ok(())
    }
}

fn operation_row(row: &Row<'_>) -> rusqlite::Result<OperationRow> {
    let checkpoint = |session: usize| {
        let (session, seq) = (row.get::<_, Option<_>>(session)?, row.get(session + 1)?);
        Ok::<_, rusqlite::Error>(
            session.zip(seq).map(|(session, seq)| CheckpointId { session, seq }),
        )
    };
    Ok(OperationRow {
        operation: NewOperation {
            id: row.get(0)?,
            kind: row.get(1)?,
            host: Host { machine: row.get(2)?, boot: row.get(3)? },
            started_at: row.get(4)?,
            workspace: row.get(5)?,
            base: checkpoint(6)?,
        },
        intent: checkpoint(8)?,
        pin_all: row.get(10)?,
    })
}
