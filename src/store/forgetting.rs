//! What the store forgets of runs that were removed, so that it does not grow with each for ever.

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use crate::checkpoint::CheckpointState;
use crate::disk::{self, Dir, LockKind};
use crate::error::Result;
use crate::id::{RunId, WorkspaceId};
use crate::isolate;
use crate::monitor::Monitor;
use crate::runs::RunRecord;
use crate::store::Store;
use crate::store::capturing::adopt_own;

/// What makes captures of a work tree quick, and what keeps two of them apart: of no use once it is gone.
#[derive(Debug)]
pub(super) struct Scaffold {
    workspace: WorkspaceId,
    lock: PathBuf,
}

impl Store {
    /// What is to be taken down once the work tree of a run is gone; `None` where nothing is known of it.
    pub(super) fn scaffold_of(&self, record: &RunRecord) -> Result<Option<Scaffold>> {
        let path = record.path();
        if !disk::is_directory(&path)? {
            return Ok(None);
        }
        let dir = Dir::open(&path)?;
        let stat = dir.stat_self()?;
        let lock = self.inner.layout.workspace_lock(stat.dev, stat.ino);
        let found = self.remembered_workspaces().find(&dir, &path, None)?;
        Ok(found.map(|(workspace, _)| Scaffold { workspace: workspace.id, lock }))
    }

    /// Takes down what only captures needed.
    pub(super) fn take_down(&self, scaffold: &Scaffold) -> Result<()> {
        self.remembered_workspaces().discard_derived(scaffold.workspace)?;
        // Whoever waits for it finds the name gone, or another file, and begins again.
        if let Some(_held) = disk::try_lock(&scaffold.lock, LockKind::Exclusive)? {
            disk::remove_file(&scaffold.lock)?;
        }
        Ok(())
    }

    /// Forgets those of `removed`, runs of the repository `common_dir`, of which nothing is left: no checkpoint
    /// of their work trees, and no ref. Returns how many.
    pub(super) fn forget_runs(
        &self,
        common_dir: &Path,
        removed: &[RunRecord],
        monitor: &dyn Monitor,
    ) -> Result<u64> {
        let with_refs: HashSet<RunId> = isolate::runs_with_refs(common_dir)?;
        let without: Vec<&RunRecord> =
            removed.iter().filter(|record| !with_refs.contains(&record.id)).collect();
        if without.is_empty() {
            return Ok(0);
        }
        let Some(access) = self.enter_if_made(monitor)? else { return Ok(0) };
        // What a killed capture has left without a row is a checkpoint, too.
        let sessions: BTreeSet<_> = without.iter().map(|record| &record.session).collect();
        sessions.into_iter().try_for_each(|session| adopt_own(&access, session))?;
        let (runs, workspaces) = (self.remembered_runs(), self.remembered_workspaces());
        let survey = workspaces.survey()?;
        let is_live = |record: &RunRecord| -> Result<bool> {
            for id in record.kept.iter().chain(&record.further) {
                let row = access.index.read("look for a checkpoint", |tx| tx.checkpoint(id))?;
                if row.is_some_and(|row| row.state == CheckpointState::Live) {
                    return Ok(true);
                }
            }
            Ok(false)
        };
        let mut forgotten = 0;
        for record in without {
            let path = record.path();
            let own =
                survey.known.iter().find(|workspace| workspace.root() == Some(path.as_path()));
            let has_checkpoints = match own {
                Some(own) => !access
                    .index
                    .read("list checkpoints", |tx| tx.checkpoints_of_workspace(own.id))?
                    .is_empty(),
                None => false,
            };
            // Where the file of its workspace cannot be read, what holds the work may be there all the same.
            let is_held = has_checkpoints
                || (own.is_none() && !survey.unreadable.is_empty())
                || is_live(record)?;
            if is_held {
                continue;
            }
            if let Some(own) = own
                && !workspaces.forget(own.id)?
            {
                continue;
            }
            if let Some(_lock) = runs.lock(record.workspace, record.id)? {
                runs.forget(record)?;
                forgotten += 1;
            }
        }
        Ok(forgotten)
    }
}
