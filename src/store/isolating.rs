//! Runs in work trees of their own, put together: a work tree, checkpoints before and after, and a
//! removal that loses nothing.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::capture::{CaptureOptions, CaptureOutcome};
use crate::clock::Timestamp;
use crate::compare::{Change, ChangeKind};
use crate::disk::{self, Lock};
use crate::error::{BadFile, Error, IsolationError, Result};
use crate::git;
use crate::id::{CheckpointId, RunId, SessionName, WorkspaceId};
use crate::isolate::{self, BroughtAlong, Ground, RemoveOptions, RemovedRun, Stage};
use crate::limits;
use crate::manifest::Trigger;
use crate::monitor::{Monitor, Notice, Undisturbed};
use crate::path::RelPath;
use crate::restore::RestoreOptions;
use crate::runs::{Holds, RunRecord, RunState, Runs};
use crate::settings::{Extras, ScopeSettings};
use crate::store::capturing::{Purpose, home_directory, open_workspace};
use crate::store::{CompareOptions, Store, log, real_path, session_name};

/// How to make a run.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct IsolateOptions {
    /// The session of its checkpoints; one for all runs of the repository where none is named.
    pub session: Option<String>,
    /// A name for people, for the checkpoint before the command.
    pub label: Option<String>,
    /// A checkpoint, of whatever workspace, that is laid over the commit: what it holds is created or
    /// overwritten, and nothing is deleted.
    pub from: Option<CheckpointId>,
    /// The command that is to run, for people.
    pub command: Vec<String>,
    /// What the checkpoints before and after the command hold, and what of `from` is laid over.
    pub scope: ScopeSettings,
    /// What of the checkout is brought along.
    pub extras: Extras,
}

/// A run: a work tree in which a command may be started. While this exists nobody else removes it.
#[derive(Debug)]
pub struct Run {
    record: RunRecord,
    lock: Lock,
    before: CaptureOutcome,
    brought: BroughtAlong,
    directory: PathBuf,
    scope: ScopeSettings,
}

impl Run {
    /// Its id.
    pub fn id(&self) -> RunId {
        self.record.id
    }

    /// The top of its work tree.
    pub fn path(&self) -> PathBuf {
        self.record.path()
    }

    /// Where the command is to start: as far below the top as the caller stood, if that is there.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Its branch.
    pub fn branch(&self) -> String {
        self.record.branch()
    }

    /// What was captured before the command.
    pub fn before(&self) -> &CaptureOutcome {
        &self.before
    }

    /// What was brought along from the checkout, and what could not be.
    pub fn brought_along(&self) -> &BroughtAlong {
        &self.brought
    }

    /// The variables of the surroundings that must not be inherited: they would have git work on another
    /// repository.
    pub fn variables_to_remove() -> &'static [&'static str] {
        &git::LOCAL_VARIABLES
    }
}

/// A run as it is remembered, and what there is of it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RunSummary {
    /// Which one.
    pub id: RunId,
    /// How far it has come.
    pub state: RunState,
    /// Whether its process, or git on its behalf, is at work.
    pub is_alive: bool,
    /// Where its work tree is, or was.
    pub path: PathBuf,
    /// Its branch.
    pub branch: String,
    /// The top of the checkout that it was made from.
    pub checkout: PathBuf,
    /// The commit that it was made from.
    pub commit: String,
    /// The session of its checkpoints.
    pub session: SessionName,
    /// The command.
    pub command: Vec<String>,
    /// When it was begun.
    pub started_at: Timestamp,
    /// When the command had ended.
    pub ended_at: Option<Timestamp>,
    /// What the command ended with.
    pub status: Option<u8>,
    /// The checkpoint before the command.
    pub before: Option<CheckpointId>,
    /// The checkpoint that holds what was in it when it was removed.
    pub kept: Option<CheckpointId>,
    /// The refs that lead to commits which only it had.
    pub refs: Vec<String>,
    /// What is in its work tree; `None` where there is none, or git does not know it.
    pub content: Option<RunContent>,
}

/// What is in the work tree of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunContent {
    /// How many paths git finds changed, those that are not tracked too.
    pub changed: u64,
    /// How many commits only the run has.
    pub commits: u64,
    /// How much of the disk it takes.
    pub bytes: u64,
}

impl RunSummary {
    /// Whether something would be kept of it if it were removed now; also where nobody can say.
    pub fn has_work(&self) -> bool {
        let has_work = |content: &RunContent| content.changed + content.commits > 0;
        self.content.as_ref().is_none_or(has_work)
    }
}

/// The runs of a repository.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct RunListing {
    /// In order of their beginning.
    pub runs: Vec<RunSummary>,
    /// Records of whatever repository that cannot be understood.
    pub unreadable: Vec<BadFile>,
}

/// What a removal of several runs did.
#[derive(Debug, Default)]
#[non_exhaustive]
#[must_use]
pub struct PrunedRuns {
    /// Those that were removed.
    pub removed: Vec<RemovedRun>,
    /// Those that would be, where that was all that was asked.
    pub planned: Vec<RunSummary>,
    /// Those that stay although they are due, and why.
    pub refused: Vec<(RunId, Error)>,
}

impl Store {
    /// Makes a run from the checkout that `directory` lies in, with a checkpoint of it.
    ///
    /// # Errors
    /// [`Error::Isolation`], mostly before anything is changed; what was made by then is removed again.
    ///
    /// # Durability
    /// The run is recorded before the repository is changed. Killed at any moment, it is found and
    /// cleared by [`Store::prune_runs`].
    pub fn isolate(
        &self,
        directory: &Path,
        options: &IsolateOptions,
        monitor: &dyn Monitor,
    ) -> Result<Run> {
        let directory = real_path(directory)?;
        let ground = isolate::ground(&directory, monitor)?;
        let session = match &options.session {
            Some(name) => session_name(name)?,
            None => isolate::session_name(&ground.repository.common_dir)?,
        };
        if let Some(from) = &options.from {
            // That it cannot be read is told before there is anything to remove.
            drop(self.show(from, monitor)?);
        }
        let (record, lock) = self.begin_run(&ground, session, options, monitor)?;
        let runs = self.remembered_runs();
        self.make_run(&ground, record.clone(), lock, options, monitor).map_err(|(error, lock)| {
            let undisturbed = Undisturbed(monitor);
            // Nothing was run in it: all of it is of the commit, or of a checkpoint.
            let removed = isolate::find(&record).and_then(|found| {
                let is_gone = isolate::remove(&record, &found, Some(&record.commit), &lock)?;
                tell_branch(&record, is_gone, &undisturbed);
                runs.forget(&record)
            });
            let id = record.id;
            let text = match removed {
                Ok(()) => format!("run {id} is removed again"),
                Err(error) => format!(
                    "run {id} could not be removed again: {}; `turnpoint worktree prune` tries it once \
                     more",
                    error.with_source()
                ),
            };
            undisturbed.notice(&Notice::Remark { text });
            error
        })
    }

    fn remembered_runs(&self) -> Runs {
        Runs::new(&self.inner.layout)
    }

    /// Chooses an id and records the run, durably. Nothing of the repository has changed.
    fn begin_run(
        &self,
        ground: &Ground,
        session: SessionName,
        options: &IsolateOptions,
        monitor: &dyn Monitor,
    ) -> Result<(RunRecord, Lock)> {
        let top = &ground.repository.top;
        let access = self.enter(monitor)?;
        let home = home_directory();
        let home = home.as_deref();
        let open = open_workspace(&access, top, false, home, None, Purpose::Work, monitor)?;
        let runs = self.remembered_runs();
        let workspace = open.workspace.id;
        let (id, lock) = loop {
            let id = RunId::random();
            if ground.is_free(id)?
                && runs.read(workspace, id)?.is_none()
                && let Some(lock) = runs.lock(workspace, id)?
            {
                break (id, lock);
            }
        };
        let record = RunRecord {
            id,
            state: RunState::Making,
            workspace,
            session,
            repository: ground.repository.common_dir.clone(),
            top: top.clone(),
            commit: ground.commit.clone(),
            command: options.command.clone(),
            started_at: Timestamp::now(),
            ended_at: None,
            status: None,
            before: None,
            kept: None,
            refs: Vec::new(),
            holds: None,
        };
        runs.write(&record)?;
        Ok((record, lock))
    }

    /// Makes the work tree, lays a checkpoint over it, brings along what is to be, and captures it. With an error the lock comes back.
    fn make_run(
        &self,
        ground: &Ground,
        mut record: RunRecord,
        lock: Lock,
        options: &IsolateOptions,
        monitor: &dyn Monitor,
    ) -> Result<Run, (Error, Lock)> {
        let made = isolate::make(ground, &record, &lock, monitor).and_then(|()| {
            let path = record.path();
            if isolate::has_submodules(&path)? {
                let text = "submodules are empty in the work tree; `git submodule update --init` there \
                            fetches them";
                monitor.notice(&Notice::Remark { text: text.to_owned() });
            }
            if let Some(from) = &options.from {
                self.lay_over(&path, from, &record.session, &options.scope, monitor)?;
            }
            // Last, since it takes no place that is taken.
            let store = self.inner.layout.home();
            let brought = isolate::bring_along(&record, &options.extras, store, monitor)?;
            let mut capture = capture_options(&record);
            capture.label.clone_from(&options.label);
            capture.scope.clone_from(&options.scope);
            let before = self.capture(&path, &capture, monitor)?;
            record.before = Some(before.checkpoint.clone());
            record.state = RunState::Made;
            self.remembered_runs().write(&record)?;
            Ok((before, brought))
        });
        let (before, brought) = match made {
            Ok(made) => made,
            Err(error) => return Err((error, lock)),
        };
        let mut directory = record.path();
        // Component by component, as joining an empty path adds a slash.
        directory.extend(&ground.below);
        if !disk::is_directory(&directory).unwrap_or(false) {
            directory = record.path();
            let below = ground.below.display();
            let text = format!("{below} is not in the commit: the command starts at the top");
            monitor.notice(&Notice::Remark { text });
        }
        Ok(Run { record, lock, before, brought, directory, scope: options.scope.clone() })
    }

    fn lay_over(
        &self,
        path: &Path,
        from: &CheckpointId,
        session: &SessionName,
        scope: &ScopeSettings,
        monitor: &dyn Monitor,
    ) -> Result<()> {
        let options = RestoreOptions {
            overlay: true,
            scope: scope.clone(),
            session: Some(session.to_string()),
            ..RestoreOptions::default()
        };
        let outcome = self.restore(path, from, &options, monitor)?;
        if outcome.is_short() {
            let text = format!("not all of {from} could be laid over the commit");
            monitor.notice(&Notice::Remark { text });
        }
        Ok(())
    }

    /// Captures what the command has left, and records how it ended.
    ///
    /// # Errors
    /// As [`Store::capture`]; that it has ended is recorded all the same.
    pub fn end_run(
        &self,
        run: &mut Run,
        status: u8,
        monitor: &dyn Monitor,
    ) -> Result<CaptureOutcome> {
        run.record.ended_at = Some(Timestamp::now());
        run.record.status = Some(status);
        let recorded = self.remembered_runs().write(&run.record);
        let mut capture = capture_options(&run.record);
        capture.scope.clone_from(&run.scope);
        let after = self.capture(&run.path(), &capture, monitor)?;
        recorded.map(|()| after)
    }

    /// Removes the work tree and the branch of a run, once everything in them is held.
    ///
    /// # Errors
    /// [`Error::Isolation`]: the work tree stays, and nothing is lost.
    pub fn remove_run(
        &self,
        run: Run,
        options: &RemoveOptions,
        monitor: &dyn Monitor,
    ) -> Result<RemovedRun> {
        let Run { mut record, lock, .. } = run;
        self.remove_locked(&mut record, &lock, options, monitor)
    }

    /// As [`Store::remove_run`] of a run that was made before, of the repository that `directory` lies in.
    ///
    /// # Errors
    /// [`IsolationError::RunNotFound`], [`IsolationError::RunAlive`], and as [`Store::remove_run`].
    pub fn remove_run_of(
        &self,
        directory: &Path,
        id: RunId,
        options: &RemoveOptions,
        monitor: &dyn Monitor,
    ) -> Result<RemovedRun> {
        let record = self.recorded(directory, id, monitor)?;
        self.remove_recorded(&record, options, monitor)
    }

    /// What is remembered of a run of the repository that `directory` lies in.
    pub(super) fn recorded(
        &self,
        directory: &Path,
        id: RunId,
        monitor: &dyn Monitor,
    ) -> Result<RunRecord> {
        let (records, _) = self.runs_of(directory, monitor)?;
        let record = records.into_iter().find(|record| record.id == id);
        record.ok_or_else(|| IsolationError::RunNotFound { id }.into())
    }

    /// Has nobody else work on a run as long as its lock is held. Only what is written down then counts: it
    /// may have gone on since it was listed.
    pub(super) fn take_run(&self, record: &RunRecord) -> Result<(RunRecord, Lock)> {
        let (runs, id) = (self.remembered_runs(), record.id);
        let lock = runs.lock(record.workspace, id)?.ok_or(IsolationError::RunAlive { id })?;
        let record = runs.read(record.workspace, id)?;
        Ok((record.ok_or(IsolationError::RunNotFound { id })?, lock))
    }

    fn remove_recorded(
        &self,
        record: &RunRecord,
        options: &RemoveOptions,
        monitor: &dyn Monitor,
    ) -> Result<RemovedRun> {
        let (mut record, lock) = self.take_run(record)?;
        if record.state == RunState::Removed {
            return Err(IsolationError::RunRemoved { id: record.id }.into());
        }
        self.remove_locked(&mut record, &lock, options, monitor)
    }

    /// Nobody else is at work on the run.
    fn remove_locked(
        &self,
        record: &mut RunRecord,
        lock: &Lock,
        options: &RemoveOptions,
        monitor: &dyn Monitor,
    ) -> Result<RemovedRun> {
        let mut found = isolate::find(record)?;
        isolate::refuse_busy(record, &found)?;
        if matches!(found.stage, Stage::HalfRemoved) {
            isolate::lead_back(record, &found)?;
            found = isolate::find(record)?;
        }
        let is_half_made = record.state == RunState::Making && !found.stage.is_whole();
        let mut branch = Some(record.commit.clone());
        if !is_half_made {
            branch = self.hold(record, &found, options, monitor)?;
            // That took a while.
            isolate::refuse_busy(record, &found)?;
            record.state = RunState::Removing;
            record.holds = Some(Holds { ignored: options.ignored, all: !options.discard });
            self.remembered_runs().write(record)?;
        }
        let is_gone = isolate::remove(record, &found, branch.as_deref(), lock)?;
        tell_branch(record, is_gone, monitor);
        if is_half_made {
            self.remembered_runs().forget(record)?;
        } else {
            record.state = RunState::Removed;
            self.remembered_runs().write(record)?;
            self.log_removal(record, monitor);
        }
        Ok(RemovedRun { id: record.id, kept: record.kept.clone(), refs: record.refs.clone() })
    }

    /// Has everything in the work tree, and every commit that only it has, held elsewhere. Returns the
    /// commit that its branch led to then.
    fn hold(
        &self,
        record: &mut RunRecord,
        found: &isolate::Found,
        options: &RemoveOptions,
        monitor: &dyn Monitor,
    ) -> Result<Option<String>> {
        let path = record.path();
        for look in 0..limits::REMOVAL_LOOKS_MAX {
            let seen = isolate::look(record, found, options, monitor)?;
            record.refs = isolate::keep(record, found, &seen)?;
            let mut left = isolate::submodules(found)?;
            let is_held =
                !found.stage.is_whole() || (look == 0 && self.is_held(record, options, monitor)?);
            if is_held {
                if !left.is_empty() && !options.discard {
                    return Err(IsolationError::NotHeld { path, left }.into());
                }
                return Ok(seen.branch());
            }
            let mut capture = capture_options(record);
            capture.scope = options.scope.before_deletion();
            capture.ignored = options.ignored;
            capture.if_changed = true;
            let outcome = self.capture(&path, &capture, monitor)?;
            let entries = self.entries(&outcome.checkpoint, &RelPath::root(), monitor)?;
            left.extend(isolate::not_held(&entries, &seen, options));
            if !left.is_empty() && !options.discard {
                return Err(IsolationError::NotHeld { path, left }.into());
            }
            record.kept = Some(outcome.checkpoint);
            // Taken again, it finds nothing new: what was written while it was taken is in it.
            if !outcome.created && isolate::look(record, found, options, monitor)?.is_as(&seen) {
                return Ok(seen.branch());
            }
        }
        Err(IsolationError::Changing { path }.into())
    }

    /// Whether a removal that was killed has held all that is there: it has only taken things away. What
    /// it holds is not to be held once more without what is gone by now.
    fn is_held(
        &self,
        record: &RunRecord,
        options: &RemoveOptions,
        monitor: &dyn Monitor,
    ) -> Result<bool> {
        let kept = record.kept.as_ref().filter(|_| record.state == RunState::Removing);
        let Some(kept) = kept else { return Ok(false) };
        // More may be asked of this removal than of that one.
        let is_enough = record.holds.is_some_and(|holds| {
            (holds.ignored || !options.ignored) && (holds.all || options.discard)
        });
        let mut compare = CompareOptions { renames: false, ..CompareOptions::default() };
        compare.scope = options.scope.before_deletion();
        let found = self.compare_with_disk(kept, &record.path(), &compare, monitor)?;
        let is_gone = |change: &Change| change.kind == ChangeKind::Deleted;
        if is_enough && found.problem_count == 0 && found.changes.iter().all(is_gone) {
            return Ok(true);
        }
        // Somebody has worked there since, or more is to be held. Of this workspace only the newest
        // checkpoint is safe from retention.
        let note = format!("what was in run {} when its removal began", record.id);
        self.pin(kept, Some(&note), monitor)?;
        Ok(false)
    }

    fn log_removal(&self, record: &RunRecord, monitor: &dyn Monitor) {
        let details = serde_json::json!({
            "run": record.id.to_string(),
            "path": record.path().to_string_lossy(),
            "kept": record.kept.as_ref().map(log::id),
            "refs": record.refs,
        });
        if let Err(error) = log::append_to(&self.inner.layout, "worktree-remove", details) {
            log::tell_unwritten(&error, monitor);
        }
    }

    /// The runs of the repository that `directory` lies in.
    ///
    /// # Errors
    /// [`Error::Isolation`] where it lies in none.
    ///
    /// Cost: one small file for each run; for each that is there git looks at all of its files.
    pub fn runs(&self, directory: &Path, monitor: &dyn Monitor) -> Result<RunListing> {
        let (records, unreadable) = self.runs_of(directory, monitor)?;
        let runs = records.into_iter().map(|record| self.summary_of(record, monitor));
        Ok(RunListing { runs: runs.collect::<Result<_>>()?, unreadable })
    }

    /// One of them.
    ///
    /// # Errors
    /// [`IsolationError::RunNotFound`]; else as [`Store::runs`].
    pub fn run_of(&self, directory: &Path, id: RunId, monitor: &dyn Monitor) -> Result<RunSummary> {
        let record = self.recorded(directory, id, monitor)?;
        self.summary_of(record, monitor)
    }

    fn runs_of(
        &self,
        directory: &Path,
        monitor: &dyn Monitor,
    ) -> Result<(Vec<RunRecord>, Vec<BadFile>)> {
        let common_dir = isolate::common_dir(&real_path(directory)?, monitor)?;
        let (mut records, unreadable) = self.remembered_runs().all()?;
        records.retain(|record| record.repository == common_dir);
        Ok((records, unreadable))
    }

    fn summary_of(&self, record: RunRecord, monitor: &dyn Monitor) -> Result<RunSummary> {
        let is_alive = self.remembered_runs().is_alive(&record)?;
        let content = match record.state {
            RunState::Removed => None,
            _ => isolate::content(&record, monitor)?,
        };
        let content =
            content.map(|(changed, commits, bytes)| RunContent { changed, commits, bytes });
        Ok(RunSummary {
            path: record.path(),
            branch: record.branch(),
            checkout: record.top,
            id: record.id,
            state: record.state,
            is_alive,
            commit: record.commit,
            session: record.session,
            command: record.command,
            started_at: record.started_at,
            ended_at: record.ended_at,
            status: record.status,
            before: record.before,
            kept: record.kept,
            refs: record.refs,
            content,
        })
    }

    /// Removes the runs of the repository that `directory` lies in whose process ended before they did:
    /// what a killed one left. With `older_than` also those that ended so long ago, and are kept. Where
    /// `dry_run`, says only which.
    ///
    /// # Errors
    /// [`Error::Isolation`] where the directory lies in no repository. Why one run cannot be removed is in
    /// the outcome.
    pub fn prune_runs(
        &self,
        directory: &Path,
        older_than: Option<Duration>,
        dry_run: bool,
        options: &RemoveOptions,
        monitor: &dyn Monitor,
    ) -> Result<PrunedRuns> {
        let (records, _) = self.runs_of(directory, monitor)?;
        let (runs, now) = (self.remembered_runs(), Timestamp::now());
        let workspaces: BTreeSet<WorkspaceId> = records.iter().map(|it| it.workspace).collect();
        if !dry_run {
            workspaces.into_iter().try_for_each(|workspace| runs.remove_stray_locks(workspace))?;
        }
        let mut pruned = PrunedRuns::default();
        for record in records {
            let is_due = match (record.state, record.ended_at) {
                (RunState::Removed, _) => false,
                (RunState::Made, Some(ended)) => {
                    older_than.is_some_and(|age| ended.until(now) >= age)
                }
                _ => true,
            };
            if !is_due || runs.is_alive(&record)? {
                continue;
            }
            if dry_run {
                pruned.planned.push(self.summary_of(record, monitor)?);
                continue;
            }
            match self.remove_recorded(&record, options, monitor) {
                Ok(removed) => pruned.removed.push(removed),
                Err(Error::Cancelled) => return Err(Error::Cancelled),
                // Somebody else has begun, or ended it, meanwhile.
                Err(Error::Isolation(
                    IsolationError::RunAlive { .. }
                    | IsolationError::RunRemoved { .. }
                    | IsolationError::RunNotFound { .. },
                )) => {}
                Err(error) => pruned.refused.push((record.id, error)),
            }
        }
        Ok(pruned)
    }
}

fn tell_branch(record: &RunRecord, is_gone: bool, monitor: &dyn Monitor) {
    if !is_gone {
        let branch = record.branch();
        let text = format!("branch {branch} stays: it was moved while its work tree was removed");
        monitor.notice(&Notice::Remark { text });
    }
}

/// How the work tree of a run is captured.
pub(super) fn capture_options(record: &RunRecord) -> CaptureOptions {
    CaptureOptions {
        session: Some(record.session.to_string()),
        trigger: Trigger::EXEC,
        ..CaptureOptions::default()
    }
}
