//! Apply: what a run in a work tree of its own changed is brought to the checkout that it was made from.
//!
//! It changed what is not as in the checkpoint before its command. Each of these paths is merged
//! ([`crate::store::merging`]) from that checkpoint, from what is in the work tree now, which is captured
//! first, and from what is on the disk of the checkout. Commits that were made in it count by what they hold:
//! nothing of git's is looked at or written.

use std::path::Path;

use crate::access::{Access, OpenWorkspace};
use crate::capture::CaptureOptions;
use crate::error::{Error, IsolationError, MergeConflict, MergeConflicts, Result};
use crate::id::{CheckpointId, RunId, WorkspaceId};
use crate::isolate::{self, Unseen};
use crate::manifest::{Entry, EntryKind, RestoreVerb, tree_differences};
use crate::monitor::{Monitor, Notice};
use crate::path::{RelPath, shell_word};
use crate::restore::{RestoreOptions, RestoreOutcome};
use crate::runs::{RunRecord, RunState};
use crate::settings::ScopeSettings;
use crate::store::Store;
use crate::store::isolating::capture_options;
use crate::store::merging::{Merge, Purpose, is_meant};
use crate::store::removing::at;
use crate::store::restoring::{Mode, Wish};
use crate::store::target::{Intent, Target, load_target};

/// What a run changed: what leads from one checkpoint to the other.
#[derive(Debug, Clone)]
pub(super) struct RunChange {
    id: RunId,
    /// The workspace of the checkout that it was made from.
    workspace: WorkspaceId,
    before: CheckpointId,
    pub(super) after: CheckpointId,
}

impl Store {
    /// Computes what [`Store::apply_run`] would do. What is in the work tree of the run is captured all the
    /// same.
    ///
    /// # Errors
    /// As [`Store::apply_run`].
    pub fn plan_apply(
        &self,
        directory: &Path,
        id: RunId,
        options: &RestoreOptions,
        monitor: &dyn Monitor,
    ) -> Result<RestoreOutcome> {
        self.apply(Mode::Plan, directory, id, options, monitor)
    }

    /// Brings what a run changed to the checkout that it was made from, at the paths of `options` or
    /// everywhere, and keeps what was done there: a file that both changed is merged line by line. The run, of
    /// the repository that `directory` lies in, stays as it is; it counts as applied only where all of it was.
    /// Where it was removed, what was held of it then counts. The workspace of `options` is not looked at.
    ///
    /// # Errors
    /// [`IsolationError::ApplyConflicts`] where the two exclude each other: nothing has changed then, also
    /// where they do not. [`Error::PathNotFound`] for a path that neither side has.
    /// [`IsolationError::RunNotFound`], [`IsolationError::RunAlive`], [`IsolationError::ChangesUnknown`],
    /// [`IsolationError::ChangesApart`], [`IsolationError::OtherCheckout`]; else as [`Store::restore`].
    ///
    /// # Durability
    /// As [`Store::restore`].
    pub fn apply_run(
        &self,
        directory: &Path,
        id: RunId,
        options: &RestoreOptions,
        monitor: &dyn Monitor,
    ) -> Result<RestoreOutcome> {
        self.apply(Mode::CarryOut, directory, id, options, monitor)
    }

    fn apply(
        &self,
        mode: Mode,
        directory: &Path,
        id: RunId,
        options: &RestoreOptions,
        monitor: &dyn Monitor,
    ) -> Result<RestoreOutcome> {
        let record = self.record_of(directory, id, monitor)?;
        // Held to the end: nobody removes the work tree, or begins to, while it is looked at.
        let (mut record, _lock) = self.take_run(&record)?;
        let change = self.change_of(&record, &options.scope, monitor)?;
        refuse_unseen(&record, &change, &options.paths, monitor)?;
        let options = RestoreOptions { workspace: None, ..options.clone() };
        let outcome = self.go_back(&Wish::Apply(&change), mode, &record.top, &options, monitor)?;
        if mode == Mode::CarryOut && options.paths.is_empty() {
            record.applied = Some(change.after);
            // It is done: that a listing does not show it is no failure.
            if let Err(error) = self.remembered_runs().write(&record) {
                let reason = error.with_source();
                let text = format!("that run {id} was applied could not be written down: {reason}");
                monitor.notice(&Notice::Remark { text });
            }
        }
        Ok(outcome)
    }

    /// The two checkpoints between which the changes of a run lie. What is in its work tree is captured where
    /// its newest checkpoint does not hold it.
    fn change_of(
        &self,
        record: &RunRecord,
        scope: &ScopeSettings,
        monitor: &dyn Monitor,
    ) -> Result<RunChange> {
        let RunRecord { id, workspace, .. } = *record;
        let kept = record.kept.clone();
        let unknown = |reason: &str| -> Error {
            let (reason, kept) = (reason.to_owned(), record.kept.clone());
            IsolationError::ChangesUnknown { id, reason, kept }.into()
        };
        let before = record.before.clone().ok_or_else(|| unknown("nothing was run in it"))?;
        let after = match record.state {
            RunState::Made => {
                if !isolate::find(record)?.stage.is_whole() {
                    return Err(unknown("its work tree is gone"));
                }
                self.capture_run(record, scope, monitor)?
            }
            // Of a removal that was killed only what was held is whole.
            RunState::Making | RunState::Removing | RunState::Removed => {
                let kept = kept.ok_or_else(|| unknown("nothing is held of it"))?;
                let further = self.with_more(record, &kept, monitor)?;
                if !further.is_empty() {
                    return Err(IsolationError::ChangesApart { id, kept, further }.into());
                }
                if record.holds.is_some_and(|holds| holds.ignored) {
                    return Err(unknown(
                        "what was held of it when it was removed has what is ignored in it, too",
                    ));
                }
                kept
            }
        };
        Ok(RunChange { id, workspace, before, after })
    }

    /// Those checkpoints of a removal that was cut off that hold something which the first, `kept`, does not:
    /// all that the run changed is in no single one then. What is only missing git had deleted, or is left out
    /// by a rule; and a directory has another mode once a removal has opened it.
    fn with_more(
        &self,
        record: &RunRecord,
        kept: &CheckpointId,
        monitor: &dyn Monitor,
    ) -> Result<Vec<CheckpointId>> {
        if record.further.is_empty() {
            return Ok(Vec::new());
        }
        let first = self.entries(kept, &RelPath::root(), monitor)?;
        let is_more = |entry: &Entry| {
            let then = at(&first, &entry.path);
            match entry.kind {
                EntryKind::Omitted { .. } => false,
                EntryKind::Dir { .. } => {
                    then.is_none_or(|then| !matches!(then.kind, EntryKind::Dir { .. }))
                }
                _ => !Entry::are_same_state(then, Some(entry)),
            }
        };
        let mut more = Vec::new();
        for id in &record.further {
            // Of one that cannot be read nobody knows.
            let entries = self.entries_if_there(id, monitor)?;
            if entries.is_none_or(|entries| entries.iter().any(is_more)) {
                more.push(id.clone());
            }
        }
        Ok(more)
    }

    /// By the settings of the checkout, as the checkpoint before, but of whatever size: what is made there is
    /// to come here.
    fn capture_run(
        &self,
        record: &RunRecord,
        scope: &ScopeSettings,
        monitor: &dyn Monitor,
    ) -> Result<CheckpointId> {
        let scope =
            ScopeSettings { file_limit_bytes: u64::MAX, total_limit_bytes: None, ..scope.clone() };
        let capture = CaptureOptions { scope, if_changed: true, ..capture_options(record) };
        let outcome = self.capture(&record.path(), &capture, monitor)?;
        if !outcome.complete {
            let text =
                format!("{} is incomplete: some paths could not be held", outcome.checkpoint);
            monitor.notice(&Notice::Remark { text });
        }
        Ok(outcome.checkpoint)
    }
}

/// Refuses to apply a run that changed something which its own sparse checkout leaves out: it would stay behind, and
/// nobody would know. `paths` are those asked for. Of a run that was removed git has no index any more.
fn refuse_unseen(
    record: &RunRecord,
    change: &RunChange,
    paths: &[RelPath],
    monitor: &dyn Monitor,
) -> Result<()> {
    if record.state != RunState::Made {
        return Ok(());
    }
    let Some(Unseen { paths: unseen, tip }) = isolate::unseen(record, monitor)? else {
        return Ok(());
    };
    let (checkout, tip) = (shell_word(&record.top), shell_word(tip));
    let conflict = |path: RelPath| {
        let reason = format!(
            "a sparse checkout leaves it out there; once it is committed there `git -C {checkout} merge {tip}` \
             brings it"
        );
        MergeConflict { path, reason }
    };
    let asked = unseen.into_iter().filter(|path| is_meant(paths, path));
    let against: Vec<MergeConflict> = asked.map(conflict).collect();
    if against.is_empty() {
        return Ok(());
    }
    // What else it changed nobody has looked at yet.
    let conflicts = Box::new(MergeConflicts { against, free: Vec::new() });
    let (id, checkout) = (record.id, record.top.clone());
    let RunChange { before, after, .. } = change.clone();
    Err(IsolationError::ApplyConflicts { id, before, after, checkout, conflicts }.into())
}

/// Finds out what a run changed.
pub(super) fn find_apply(
    access: &Access,
    open: &OpenWorkspace,
    run: &RunChange,
    paths: &[RelPath],
) -> Result<(Target, Intent)> {
    let id = run.id;
    if open.workspace.id != run.workspace {
        return Err(IsolationError::OtherCheckout { id, path: open.path.clone() }.into());
    }
    let theirs = load_target(access, open, &run.after, true)?;
    let base = load_target(access, open, &run.before, true).map_err(|error| match error {
        Error::CheckpointNotFound { .. } | Error::Pruned { .. } => {
            let reason = format!("{}, the checkpoint that it began with, is gone", run.before);
            let kept = Some(run.after.clone());
            IsolationError::ChangesUnknown { id, reason, kept }.into()
        }
        error => error,
    })?;
    let mut changes = tree_differences(&access.blobs, &theirs.tree, &base.tree)
        .inspect_err(|error| drop(crate::capture::remember(access, error)))?;
    changes.retain(|change| is_meant(paths, &change.path));
    let merge = Merge::new(Purpose::Apply(id), base.reference.id, theirs.clone(), changes, paths);
    Ok((theirs, Intent::merge(RestoreVerb::Apply, merge)))
}
