//! What a shell can offer while somebody types.
//!
//! Asked at each press of a key, perhaps while somebody else works: only files are read, no lock is
//! taken, the index is not opened, nothing is written, and what cannot be read is left out.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::path::Path;

use crate::blobs::Blobs;
use crate::error::Result;
use crate::id::{CheckpointId, RunId, SessionName};
use crate::limits;
use crate::manifest::{EntryKind, read_entries};
use crate::path::RelPath;
use crate::runs::{RunState, Runs};
use crate::sessions::{Found, Sessions};
use crate::store::history::{CheckpointSummary, ListItem};
use crate::store::{Reading, Spec, Store, Which, real_path};
use crate::workspaces::Workspaces;

impl Store {
    /// The names of the sessions, in order.
    ///
    /// # Errors
    /// Where the store cannot be listed, or is not there.
    pub fn offered_sessions(&self) -> Result<Vec<SessionName>> {
        self.reading_files_alone()?.sessions.names()
    }

    /// The newest checkpoints of a session, by number, the newest first: at most
    /// [`limits::OFFERED_MAX`].
    ///
    /// # Errors
    /// As [`Store::offered_sessions`]; [`crate::Error::SessionNotFound`].
    pub fn offered_checkpoints(&self, session: &SessionName) -> Result<Vec<CheckpointSummary>> {
        let reading = self.reading_files_alone()?;
        let mut ids = reading.ids_of(&reading.session(session)?)?;
        ids.sort_unstable_by_key(|id| std::cmp::Reverse(id.seq));
        ids.truncate(limits::OFFERED_MAX);
        let mut checkpoints = only_checkpoints(reading.items(ids)?);
        checkpoints.sort_by_key(|summary| std::cmp::Reverse(summary.id.seq));
        Ok(checkpoints)
    }

    /// All checkpoints of the workspace at `root`, the newest first.
    ///
    /// # Errors
    /// As [`Store::offered_sessions`].
    pub fn offered_of_workspace(&self, root: &Path) -> Result<Vec<CheckpointSummary>> {
        let reading = self.reading_files_alone()?;
        let Some(workspace) = reading.workspace_at(root)? else { return Ok(Vec::new()) };
        let mut checkpoints =
            only_checkpoints(reading.items(reading.candidates(&BTreeSet::from([workspace]))?)?);
        checkpoints.retain(|summary| summary.workspace == workspace);
        checkpoints.reverse();
        Ok(checkpoints)
    }

    /// The paths of files and symlinks in a directory of a checkpoint, and of the directories in it, each
    /// with whether it is one.
    ///
    /// # Errors
    /// As [`Store::offered_sessions`]; what reading a page gives.
    ///
    /// Cost: the pages of the checkpoint.
    pub fn offered_paths(
        &self,
        spec: &Spec,
        root: &Path,
        directory: &RelPath,
    ) -> Result<Vec<(RelPath, bool)>> {
        let Some(id) = self.offered(spec, root)? else { return Ok(Vec::new()) };
        let reading = self.reading_files_alone()?;
        let Found::Valid { manifest, .. } = reading.sessions.read(&id) else {
            return Ok(Vec::new());
        };
        let mut entries = read_entries(&reading.blobs, &manifest.tree)?;
        entries.retain(|entry| {
            let is_held = !matches!(entry.kind, EntryKind::Omitted { .. } | EntryKind::Absent);
            is_held && !entry.path.is_root() && entry.path.parent().as_ref() == Some(directory)
        });
        let is_dir = |kind: &EntryKind| matches!(kind, EntryKind::Dir { .. });
        Ok(entries.into_iter().map(|entry| (entry.path, is_dir(&entry.kind))).collect())
    }

    /// The runs that were made from a checkout which `directory` lies in, the newest first: how far each has
    /// come, and its command.
    ///
    /// # Errors
    /// As [`Store::offered_sessions`].
    pub fn offered_runs(&self, directory: &Path) -> Result<Vec<(RunId, RunState, Vec<String>)>> {
        let directory = real_path(directory)?;
        let (mut records, _) = Runs::new(&self.inner.layout).all()?;
        records.retain(|record| directory.starts_with(&record.top));
        records.reverse();
        Ok(records.into_iter().map(|it| (it.id, it.state, it.command)).collect())
    }

    /// The checkpoint that is meant.
    fn offered(&self, spec: &Spec, root: &Path) -> Result<Option<CheckpointId>> {
        if let (Some(session), &Which::Seq(seq)) = (&spec.session, &spec.which) {
            let session = self.reading_files_alone()?.session(session)?;
            return Ok(Some(CheckpointId { session, seq }));
        }
        let mut checkpoints = self.offered_of_workspace(root)?;
        if let Some(session) = &spec.session {
            checkpoints.retain(|summary| summary.id.session.folded() == session.folded());
        }
        checkpoints.reverse();
        Ok(spec.among(&checkpoints.iter().collect::<Vec<_>>()))
    }

    fn reading_files_alone(&self) -> Result<Reading<'static>> {
        let layout = &self.inner.layout;
        Ok(Reading {
            layout: layout.clone(),
            sessions: Sessions::new(layout),
            workspaces: Workspaces::new(layout),
            blobs: Blobs::open(layout.root(), self.inner.packing)?,
            index: None,
            index_damage: None,
            open_purge: None,
            is_index_given_up: Cell::new(true),
            monitor: &(),
            _lock: None,
        })
    }
}

fn only_checkpoints(items: Vec<ListItem>) -> Vec<CheckpointSummary> {
    let checkpoint = |item| match item {
        ListItem::Checkpoint(summary) => Some(*summary),
        _ => None,
    };
    items.into_iter().filter_map(checkpoint).collect()
}
