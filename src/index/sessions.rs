//! The tables `sessions` and `workspaces`.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rusqlite::params;

use super::transaction::{ReadTx, WriteTx};
use super::values::Amount;
use crate::checkpoint::{Account, SessionRow};
use crate::error::{Error, Result};
use crate::id::{Seq, SessionName, WorkspaceId};

impl ReadTx<'_> {
    /// All sessions in order of name, those without checkpoints too.
    pub(crate) fn sessions(&self) -> Result<Vec<SessionRow>> {
        self.rows(
            "SELECT name, next_seq,
                 (SELECT count(*) FROM checkpoints c WHERE c.session = s.id AND c.state = 'live')
             FROM sessions s ORDER BY name_folded",
            [],
            |row| {
                let (Amount(next_seq), Amount(checkpoints)) = (row.get(1)?, row.get(2)?);
                Ok(SessionRow { name: row.get(0)?, next_seq, checkpoints })
            },
        )
    }

    /// What each session takes, in order of name, and all together last.
    ///
    /// Cost: the rows of all pages.
    pub(crate) fn accounts(&self) -> Result<Vec<Account>> {
        self.rows(
            "SELECT session, checkpoints, logical_bytes, stored_bytes, unique_bytes, shared_bytes
             FROM storage ORDER BY session IS NULL, session",
            [],
            |row| {
                let amount = |column: usize| row.get(column).map(|Amount(amount)| amount);
                Ok(Account {
                    session: row.get(0)?,
                    checkpoints: amount(1)?,
                    logical_bytes: amount(2)?,
                    stored_bytes: amount(3)?,
                    unique_bytes: amount(4)?,
                    shared_bytes: amount(5)?,
                })
            },
        )
    }

    /// The session of that name, compared without case, as it was first written.
    pub(crate) fn find_session(&self, name: &SessionName) -> Result<Option<SessionName>> {
        self.row("SELECT name FROM sessions WHERE name_folded = ?1", [name.folded()], |row| {
            row.get(0)
        })
    }

    pub(super) fn session_id(&self, name: &SessionName) -> Result<Option<i64>> {
        self.row("SELECT id FROM sessions WHERE name_folded = ?1", [name.folded()], |row| {
            row.get(0)
        })
    }
}

impl WriteTx<'_> {
    /// Gives out a number of the session: above every one given before and at least `lowest`, which is
    /// what the files say. A number that is not used stays a gap.
    ///
    /// # Errors
    /// [`Error::Index`] where no number is left.
    pub(crate) fn reserve_seq(&self, session: &SessionName, lowest: u64) -> Result<Seq> {
        let id = self.ensure_session(session)?;
        let next = self.row("SELECT next_seq FROM sessions WHERE id = ?1", [id], |row| {
            row.get(0).map(|Amount(next)| next)
        })?;
        let number = next.unwrap_or_default().max(lowest);
        let seq = Seq::new(number).ok_or_else(|| Error::Index {
            statement: "give out a number",
            source: format!("session {session} has no number left").into(),
        })?;
        self.raise_next_seq(id, number + 1)?;
        Ok(seq)
    }

    /// Numbers of a session below `next` are not given out any more. The session need not be known.
    pub(crate) fn keep_numbers(&self, session: &SessionName, next: u64) -> Result<()> {
        let id = self.ensure_session(session)?;
        self.raise_next_seq(id, next)
    }

    /// Numbers below `next` are not given out any more.
    pub(super) fn raise_next_seq(&self, session: i64, next: u64) -> Result<()> {
        // The condition keeps a page clean that would be written with the same content.
        let sql = "UPDATE sessions SET next_seq = ?2 WHERE id = ?1 AND next_seq < ?2";
        self.execute(sql, params![session, Amount(next)])?;
        Ok(())
    }

    pub(super) fn ensure_session(&self, name: &SessionName) -> Result<i64> {
        if let Some(id) = self.session_id(name)? {
            return Ok(id);
        }
        self.execute(
            "INSERT INTO sessions (name, name_folded) VALUES (?1, ?2)",
            params![name, name.folded()],
        )?;
        Ok(self.inserted_id())
    }

    pub(super) fn ensure_workspace(&self, id: WorkspaceId, root: &Path) -> Result<i64> {
        let root = root.as_os_str().as_bytes();
        let found: Option<(i64, Vec<u8>)> =
            self.row("SELECT id, root FROM workspaces WHERE uuid = ?1", [id], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?;
        let Some((row, known)) = found else {
            let sql = "INSERT INTO workspaces (uuid, root) VALUES (?1, ?2)";
            self.execute(sql, params![id, root])?;
            return Ok(self.inserted_id());
        };
        if known != root {
            self.execute("UPDATE workspaces SET root = ?2 WHERE id = ?1", params![row, root])?;
        }
        Ok(row)
    }
}
