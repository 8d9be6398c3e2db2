//! Runs in work trees of their own, put together: a work tree, and checkpoints before and after.

use std::path::{Path, PathBuf};

use crate::capture::{CaptureOptions, CaptureOutcome};
use crate::clock::Timestamp;
use crate::disk::{self, Lock};
use crate::error::{Error, Result};
use crate::git::{self, Stays};
use crate::id::{CheckpointId, RunId, SessionName};
use crate::isolate::{self, BroughtAlong, Ground};
use crate::manifest::Trigger;
use crate::monitor::{Monitor, Notice, Undisturbed};
use crate::restore::RestoreOptions;
use crate::runs::{RunRecord, RunState, Runs};
use crate::settings::{Extras, ScopeSettings};
use crate::store::capturing::{Purpose, home_directory, open_workspace};
use crate::store::{Store, real_path, session_name};
use crate::workspaces::Workspaces;

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
    pub(super) record: RunRecord,
    pub(super) lock: Lock,
    before: CaptureOutcome,
    uncommitted: Option<u64>,
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

    /// How many paths of the checkout are not as in the commit that the run is made from, so that it lacks what
    /// was done at them; a whole directory that git does not track is one. `None` where a checkpoint was laid
    /// over the commit, or git does not say.
    pub fn uncommitted(&self) -> Option<u64> {
        self.uncommitted
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
                let stays = isolate::remove(&record, &found, Some(&record.commit), &lock)?;
                tell_branch(&record, stays.as_ref(), &undisturbed);
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

    pub(super) fn remembered_workspaces(&self) -> Workspaces {
        Workspaces::new(&self.inner.layout)
    }

    pub(super) fn remembered_runs(&self) -> Runs {
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
            further: Vec::new(),
            refs: Vec::new(),
            holds: None,
            applied: None,
        };
        runs.write(&record)?;
        Ok((record, lock))
    }

    /// Makes the work tree, lays a checkpoint over it, brings along what is to come, and captures it. With an
    /// error the lock comes back.
    fn make_run(
        &self,
        ground: &Ground,
        mut record: RunRecord,
        lock: Lock,
        options: &IsolateOptions,
        monitor: &dyn Monitor,
    ) -> Result<Run, (Error, Lock)> {
        let made = isolate::make(ground, &record, &lock, monitor).and_then(|uncommitted| {
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
            Ok((before, uncommitted.filter(|_| options.from.is_none()), brought))
        });
        let (before, uncommitted, brought) = match made {
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
        let scope = options.scope.clone();
        Ok(Run { record, lock, before, uncommitted, brought, directory, scope })
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
}

/// Says that the branch of a run stays, if it does.
pub(super) fn tell_branch(record: &RunRecord, stays: Option<&Stays>, monitor: &dyn Monitor) {
    let why = match stays {
        None => return,
        Some(Stays::Moved) => "it was moved while its work tree was removed".to_owned(),
        Some(Stays::CheckedOut(place)) => format!("it is checked out in {place}"),
    };
    let text = format!("branch {} stays: {why}", record.branch());
    monitor.notice(&Notice::Remark { text });
}

/// How the work tree of a run is captured.
pub(super) fn capture_options(record: &RunRecord) -> CaptureOptions {
    CaptureOptions {
        session: Some(record.session.to_string()),
        trigger: Trigger::EXEC,
        ..CaptureOptions::default()
    }
}
