//! The table `checkpoints`.

use std::collections::HashMap;

use rusqlite::{Row, params};

use super::pages::TreeWriter;
use super::transaction::{ReadTx, WriteTx};
use super::values::Amount;
use crate::checkpoint::{CheckpointRow, CheckpointState, PinFile};
use crate::error::Result;
use crate::hash::{BlobHash, Digest};
use crate::id::{CheckpointId, OperationId, Seq, SessionName, WorkspaceId};
use crate::manifest::{Coverage, Manifest, PageSource, Tree};

/// What recording a checkpoint found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recorded {
    /// It was not known.
    New,
    /// It was recorded before, from the same manifest, whatever its state is now.
    Before,
}

/// How many numbers an error offers in place of one that does not exist.
const NEAREST: i64 = 5;

macro_rules! select_checkpoints {
    ($rest:literal) => {
        concat!(
            "SELECT s.name, c.seq, c.digest, c.manifest_size, c.op, w.uuid, c.created_at_ns,
                 c.label, c.trigger, c.complete, c.state, c.pinned, c.pin_label, c.note,
                 r.hash, r.size, c.levels, c.entries, a.hash, a.size, c.after_levels, c.after_entries
             FROM checkpoints c
             CROSS JOIN sessions s ON s.id = c.session
             CROSS JOIN workspaces w ON w.id = c.workspace
             CROSS JOIN blobs r ON r.id = c.root_blob
             LEFT JOIN blobs a ON a.id = c.after_root_blob ",
            $rest
        )
    };
}

impl ReadTx<'_> {
    /// One checkpoint, whatever its state.
    pub(crate) fn checkpoint(&self, id: &CheckpointId) -> Result<Option<CheckpointRow>> {
        let Some((row, _)) = self.checkpoint_id(id)? else { return Ok(None) };
        self.row(select_checkpoints!("WHERE c.id = ?1"), [row], checkpoint_row)
    }

    /// The checkpoints of a session by number, whatever their state.
    pub(crate) fn checkpoints_of_session(&self, name: &SessionName) -> Result<Vec<CheckpointRow>> {
        let Some(session) = self.session_id(name)? else { return Ok(Vec::new()) };
        self.rows(
            select_checkpoints!("WHERE c.session = ?1 ORDER BY c.seq"),
            [session],
            checkpoint_row,
        )
    }

    /// The live checkpoints of a workspace, the one recorded last first.
    pub(crate) fn checkpoints_of_workspace(&self, id: WorkspaceId) -> Result<Vec<CheckpointRow>> {
        self.rows(
            select_checkpoints!("WHERE w.uuid = ?1 AND c.state = 'live' ORDER BY c.id DESC"),
            [id],
            checkpoint_row,
        )
    }

    /// The live checkpoint of a workspace that was recorded last; with `safety`, also one that a
    /// restore made.
    pub(crate) fn newest_of_workspace(
        &self,
        id: WorkspaceId,
        safety: bool,
    ) -> Result<Option<CheckpointRow>> {
        self.row(
            select_checkpoints!(
                "WHERE c.workspace = (SELECT id FROM workspaces WHERE uuid = ?1)
                     AND c.state = 'live' AND (?2 OR c.trigger <> 'pre-restore')
                 ORDER BY c.id DESC LIMIT 1"
            ),
            params![id, safety],
            checkpoint_row,
        )
    }

    /// The checkpoint that an operation made.
    pub(crate) fn checkpoint_of_operation(
        &self,
        operation: OperationId,
    ) -> Result<Option<CheckpointId>> {
        self.row(
            "SELECT s.name, c.seq FROM checkpoints c JOIN sessions s ON s.id = c.session
             WHERE c.op = ?1",
            [operation],
            |row| Ok(CheckpointId { session: row.get(0)?, seq: row.get(1)? }),
        )
    }

    /// Every checkpoint, whatever its state, in the order of recording.
    pub(crate) fn all_checkpoints(&self) -> Result<Vec<CheckpointRow>> {
        self.rows(select_checkpoints!("ORDER BY c.id"), [], checkpoint_row)
    }

    /// The checkpoints whose prune was decided and not finished.
    pub(crate) fn pruning_checkpoints(&self) -> Result<Vec<CheckpointId>> {
        self.rows(
            "SELECT s.name, c.seq FROM checkpoints c JOIN sessions s ON s.id = c.session
             WHERE c.state = 'pruning' ORDER BY c.id",
            [],
            |row| Ok(CheckpointId { session: row.get(0)?, seq: row.get(1)? }),
        )
    }

    /// For the safety checkpoint of each undo and redo that of what it took back, where both are there for
    /// readers.
    ///
    /// Cost: the rows of all checkpoints.
    pub(crate) fn taken_back(&self) -> Result<HashMap<CheckpointId, CheckpointId>> {
        let pairs = self.rows(
            "SELECT s.name, c.seq, e.name, b.seq
             FROM checkpoints c
             JOIN sessions s ON s.id = c.session
             JOIN sessions e ON e.name = c.restore_undoes_session
             JOIN checkpoints b ON b.session = e.id AND b.seq = c.restore_undoes_seq
             WHERE c.restore_undoes_seq IS NOT NULL AND c.state = 'live' AND b.state = 'live'",
            [],
            |row| {
                let link = CheckpointId { session: row.get(0)?, seq: row.get(1)? };
                Ok((link, CheckpointId { session: row.get(2)?, seq: row.get(3)? }))
            },
        )?;
        Ok(pairs.into_iter().collect())
    }

    /// Those of one session, in order of number.
    pub(crate) fn pruning_of_session(&self, session: &SessionName) -> Result<Vec<Seq>> {
        self.rows(
            "SELECT c.seq FROM checkpoints c JOIN sessions s ON s.id = c.session
             WHERE s.name = ?1 AND c.state = 'pruning' ORDER BY c.seq",
            [session],
            |row| row.get(0),
        )
    }

    pub(super) fn checkpoint_id(
        &self,
        id: &CheckpointId,
    ) -> Result<Option<(i64, CheckpointState)>> {
        let Some(session) = self.session_id(&id.session)? else { return Ok(None) };
        self.row(
            "SELECT id, state FROM checkpoints WHERE session = ?1 AND seq = ?2",
            params![session, id.seq],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
    }

    /// The pages that a checkpoint's row names: the roots of its trees.
    pub(super) fn roots_of(&self, row: i64) -> Result<Vec<i64>> {
        let roots: Option<(i64, Option<i64>)> = self.row(
            "SELECT root_blob, after_root_blob FROM checkpoints WHERE id = ?1",
            [row],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        Ok(roots.into_iter().flat_map(|(root, after)| [Some(root), after]).flatten().collect())
    }

    pub(super) fn nearest_seqs(&self, id: &CheckpointId) -> Result<Vec<Seq>> {
        let Some(session) = self.session_id(&id.session)? else { return Ok(Vec::new()) };
        self.rows(
            "SELECT seq FROM checkpoints WHERE session = ?1 AND state = 'live'
             ORDER BY abs(seq - ?2), seq LIMIT ?3",
            params![session, id.seq, NEAREST],
            |row| row.get(0),
        )
    }
}

impl WriteTx<'_> {
    /// Records a checkpoint from its manifest: its row, the rows of its pages that have none yet, and
    /// the counters. Doing it twice is doing it once.
    ///
    /// `stored` says how long the blobs that this capture wrote are as stored. `source` is asked only
    /// for pages that no recorded checkpoint has.
    ///
    /// # Errors
    /// [`crate::Error::IndexDamaged`] where the number was recorded from another manifest; what
    /// `source` gives. Nothing is recorded then.
    ///
    /// # Cost
    /// With the base's root a few rows, on four pages of the file. Otherwise every entry of the pages
    /// that differ, about 10 us each, and for each edit some 20 to 70 pages of the file.
    pub(crate) fn insert_checkpoint(
        &self,
        manifest: &Manifest,
        digest: Digest,
        manifest_bytes: u64,
        pin: &PinFile,
        stored: &HashMap<BlobHash, u64>,
        source: &dyn PageSource,
    ) -> Result<Recorded> {
        let session = self.ensure_session(&manifest.id.session)?;
        let recorded: Option<Digest> = self.row(
            "SELECT digest FROM checkpoints WHERE session = ?1 AND seq = ?2",
            params![session, manifest.id.seq],
            |row| row.get(0),
        )?;
        match recorded {
            Some(recorded) if recorded == digest => return Ok(Recorded::Before),
            Some(recorded) => {
                let reason = other_manifest(&manifest.id, digest, recorded);
                return Err(self.contradiction(reason));
            }
            None => {}
        }
        let mut trees = TreeWriter::new(self, source, stored)?;
        let root = trees.refer_to_tree(&manifest.tree)?;
        let after = manifest.restore.as_ref().map(|restore| trees.refer_to_tree(&restore.after));
        drop(trees);
        let after = after.transpose()?;
        self.insert_row(manifest, digest, manifest_bytes, pin, session, (root, after))?;
        self.raise_next_seq(session, manifest.id.seq.get() + 1)?;
        Ok(Recorded::New)
    }

    fn insert_row(
        &self,
        manifest: &Manifest,
        digest: Digest,
        manifest_bytes: u64,
        pin: &PinFile,
        session: i64,
        (root, after): (i64, Option<i64>),
    ) -> Result<()> {
        let workspace = self.ensure_workspace(manifest.workspace, &manifest.root_path)?;
        let parent = manifest.parent.as_ref();
        let coverage = match manifest.coverage {
            Coverage::Full => "full",
            Coverage::Hinted(_) => "hinted",
            Coverage::Paths => "paths",
        };
        let restore = manifest.restore.as_ref();
        let verb = restore.map(|restore| restore.verb.as_str());
        let target = restore.map(|restore| &restore.target.id);
        let undoes = restore.and_then(|restore| restore.undoes.as_ref()).map(|undone| &undone.id);
        let git = manifest.git.as_ref();
        let counts = &manifest.counts;
        self.execute(
            "INSERT INTO checkpoints (session, seq, workspace, op, digest, created_at_ns, label,
                 trigger, parent_session, parent_seq, parent_digest, coverage, complete, state,
                 pinned, pin_label, note, root_blob, levels, entries, after_root_blob, after_levels,
                 after_entries, files_observed, files_reused, files_read, bytes_read, bytes_stored,
                 omitted, git_head, git_branch, restore_verb, restore_target_session,
                 restore_target_seq, restore_undoes_session, restore_undoes_seq, manifest_size)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, 'live', ?14, ?15, ?16,
                 ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29, ?30, ?31, ?32, ?33,
                 ?34, ?35, ?36)",
            params![
                session,
                manifest.id.seq,
                workspace,
                manifest.op,
                digest,
                manifest.created_at,
                manifest.label,
                manifest.trigger,
                parent.map(|parent| &parent.id.session),
                parent.map(|parent| parent.id.seq),
                parent.map(|parent| parent.digest),
                coverage,
                manifest.complete,
                pin.pinned,
                pin.label,
                pin.note,
                root,
                manifest.tree.levels,
                Amount(manifest.tree.entries),
                after,
                restore.map(|restore| restore.after.levels),
                restore.map(|restore| Amount(restore.after.entries)),
                Amount(counts.files_observed),
                Amount(counts.files_reused),
                Amount(counts.files_read),
                Amount(counts.bytes_read),
                Amount(counts.bytes_stored),
                Amount(counts.omitted.values().sum()),
                git.and_then(|git| git.head.as_deref()),
                git.and_then(|git| git.branch.as_deref()),
                verb,
                target.map(|target| &target.session),
                target.map(|target| target.seq),
                undoes.map(|undoes| &undoes.session),
                undoes.map(|undoes| undoes.seq),
                Amount(manifest_bytes),
            ],
        )?;
        Ok(())
    }

    /// Decides that checkpoints are pruned, but for those that an operation relies on, and gives those
    /// decided. From the commit on they are gone for every reader; commit it with
    /// [`super::Index::write_durably`], before a manifest is unlinked: a power cut must not bring
    /// the row of an unlinked manifest back as a live one.
    pub(crate) fn mark_pruning(&self, ids: &[CheckpointId]) -> Result<Vec<CheckpointId>> {
        let protected = self.protected_checkpoints()?;
        let mut marked = Vec::new();
        for id in ids.iter().filter(|id| !protected.contains(id)) {
            let Some((row, _)) = self.checkpoint_id(id)? else { continue };
            self.execute("UPDATE checkpoints SET state = 'pruning' WHERE id = ?1", [row])?;
            marked.push(id.clone());
        }
        Ok(marked)
    }

    /// Deletes a checkpoint's row and the rows of what only it named. Its manifest is gone before.
    /// Does nothing where there is none; fails where an operation relies on it.
    pub(crate) fn delete_checkpoint(&self, id: &CheckpointId) -> Result<()> {
        let Some((row, _)) = self.checkpoint_id(id)? else { return Ok(()) };
        let roots = self.roots_of(row)?;
        self.execute("DELETE FROM checkpoints WHERE id = ?1", [row])?;
        self.release_pages(roots)
    }

    /// Repeats in the row what the pin file of a checkpoint says now.
    ///
    /// # Errors
    /// [`crate::Error::Pruned`] where it is being pruned: the caller, who writes the file after this and
    /// inside the same transaction, writes none then. Decided in this transaction, as the mark is in
    /// its own, so one of the two sees the other.
    /// [`crate::Error::CheckpointNotFound`].
    pub(crate) fn set_pin(&self, id: &CheckpointId, pin: &PinFile) -> Result<()> {
        let row = self.require_live(id)?;
        self.execute(
            "UPDATE checkpoints SET pinned = ?2, pin_label = ?3, note = ?4 WHERE id = ?1",
            params![row, pin.pinned, pin.label, pin.note],
        )?;
        Ok(())
    }
}

/// What is wrong with an index whose row of a checkpoint was made from another manifest.
pub(crate) fn other_manifest(id: &CheckpointId, digest: Digest, recorded: Digest) -> String {
    format!("checkpoint {id} has digest {digest}, its row has {recorded}")
}

fn checkpoint_row(row: &Row<'_>) -> rusqlite::Result<CheckpointRow> {
    let tree = |first: usize| -> rusqlite::Result<Option<Tree>> {
        let Some(root) = row.get::<_, Option<BlobHash>>(first)? else { return Ok(None) };
        let Amount(root_size) = row.get(first + 1)?;
        let Amount(entries) = row.get(first + 3)?;
        Ok(Some(Tree { root, root_size, levels: row.get(first + 2)?, entries }))
    };
    let Amount(manifest_bytes) = row.get(3)?;
    Ok(CheckpointRow {
        id: CheckpointId { session: row.get(0)?, seq: row.get(1)? },
        digest: row.get(2)?,
        manifest_bytes,
        op: row.get(4)?,
        workspace: row.get(5)?,
        created_at: row.get(6)?,
        manifest_label: row.get(7)?,
        trigger: row.get(8)?,
        complete: row.get(9)?,
        state: row.get(10)?,
        pin: PinFile { pinned: row.get(11)?, label: row.get(12)?, note: row.get(13)? },
        tree: tree(14)?.ok_or(rusqlite::Error::QueryReturnedNoRows)?,
        after: tree(18)?,
    })
}
