//! What there is of runs, and removing them: nothing goes that is not held elsewhere.

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::blobs::Presence;
use crate::capture::{self, CaptureOutcome, Depth};
use crate::clock::Timestamp;
use crate::compare::{Change, ChangeKind};
use crate::disk::Lock;
use crate::error::{BadFile, Error, IsolationError, Result};
use crate::hash::BlobHash;
use crate::id::{CheckpointId, RunId, SessionName, WorkspaceId};
use crate::isolate::{self, LeftOut, Leftover, RemoveOptions, RemovedRun, RunContent, Stage};
use crate::limits;
use crate::manifest::Entry;
use crate::monitor::{Monitor, Notice};
use crate::path::RelPath;
use crate::runs::{Holds, RunRecord, RunState};
use crate::store::isolating::{Run, capture_options, tell_branch};
use crate::store::{CompareOptions, Store, log, real_path};

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
    /// The checkpoints that hold what came into it after its removal had begun and was cut off.
    pub further: Vec<CheckpointId>,
    /// The refs that lead to commits which only it had.
    pub refs: Vec<String>,
    /// The checkpoint of it that was brought to its checkout last, whatever became of that since; `None` where
    /// none was.
    pub applied: Option<CheckpointId>,
    /// What is in its work tree; `None` where there is none, or git does not know it, or something of it cannot
    /// be read.
    pub content: Option<RunContent>,
}

impl RunSummary {
    /// Whether something is in it that the commit it was made from has not; also where nobody can say.
    pub fn has_work(&self) -> bool {
        let has_work =
            |content: &RunContent| content.changed + content.commits + content.ignored.files > 0;
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
    /// Those that are not due, and why not.
    pub kept: Vec<(RunId, KeptRun)>,
    /// How many that had been removed are forgotten now: nothing was left of them.
    pub forgotten: u64,
    /// Records of whatever repository that cannot be understood: nothing is done about their runs.
    pub unreadable: Vec<BadFile>,
    /// Whether it was stopped: runs that are due may be there that are not named here.
    pub is_cancelled: bool,
}

/// Why a run is not due to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeptRun {
    /// Its process, or git on its behalf, is at work.
    Alive,
    /// Its command ended then, and it was kept for a person to look at.
    Ended(Timestamp),
}

/// What holds the content of a work tree, and what does not.
#[derive(Debug, Default)]
struct Held {
    /// The commit that its branch led to.
    branch: Option<String>,
    left_out: LeftOut,
    /// What was in it before it was held, or what git has forgotten of it.
    leftover: Option<Leftover>,
    /// What git said of it then.
    seen: Option<isolate::Kept>,
}

impl Store {
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
        let record = self.record_of(directory, id, monitor)?;
        self.remove_recorded(&record, options, monitor)
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
        for path in isolate::clear_locks(record)? {
            let text = format!("removed {}, which a killed git had left", path.display());
            monitor.notice(&Notice::Remark { text });
        }
        if matches!(found.stage, Stage::Unlinked) {
            isolate::lead_back(record, &found)?;
            found = isolate::find(record)?;
        }
        if record.state == RunState::Removing && found.stage.is_whole() {
            self.put_back_rules(record, monitor)?;
        }
        let is_half_made = record.state == RunState::Making && !found.stage.is_whole();
        // What it is good for is gone with the work tree: nothing fails for it.
        let scaffold = self.scaffold_of(record).ok().flatten();
        let mut held = Held { branch: Some(record.commit.clone()), ..Held::default() };
        if !is_half_made {
            held = self.hold_to_the_end(record, &found, options, monitor)?;
            record.state = RunState::Removing;
            self.remembered_runs().write(record)?;
        }
        let Held { branch, left_out, leftover, .. } = held;
        if !left_out.paths.is_empty() {
            // Before it goes: who ends the program now still has it.
            let LeftOut { paths, files, bytes } = left_out.clone();
            monitor.notice(&Notice::LeftOut { path: record.path(), paths, files, bytes });
        }
        if let Some(leftover) = leftover {
            leftover.remove(record)?;
        }
        let stays = isolate::remove(record, &found, branch.as_deref(), lock)?;
        tell_branch(record, stays.as_ref(), monitor);
        drop(scaffold.map(|scaffold| self.take_down(&scaffold)));
        if is_half_made {
            self.remembered_runs().forget(record)?;
        } else {
            record.state = RunState::Removed;
            self.remembered_runs().write(record)?;
            self.log_removal(record, &left_out, monitor);
        }
        let RunRecord { id, kept, further, refs, .. } = record.clone();
        Ok(RemovedRun { id, kept, further, refs, left_out })
    }

    /// What a checkpoint holds; `None` where nobody can say any more.
    pub(super) fn entries_if_there(
        &self,
        id: &CheckpointId,
        monitor: &dyn Monitor,
    ) -> Result<Option<Vec<Entry>>> {
        match self.entries(id, &RelPath::root(), monitor) {
            Err(error) if is_lost(&error) => {
                // So a capture looks for all that the one before it has, and stores again what was lost.
                capture::remember(&self.enter(monitor)?, &error)?;
                Ok(None)
            }
            entries => entries.map(Some),
        }
    }

    /// What the checkpoints of a removal that was cut off hold, the newest last.
    pub(super) fn held_of(
        &self,
        record: &RunRecord,
        monitor: &dyn Monitor,
    ) -> Result<Vec<Vec<Entry>>> {
        let all = record.kept.iter().chain(&record.further);
        all.filter_map(|id| self.entries_if_there(id, monitor).transpose()).collect()
    }

    /// As [`Store::hold`], until nothing has come while what that takes was made durable.
    fn hold_to_the_end(
        &self,
        record: &mut RunRecord,
        found: &isolate::Found,
        options: &RemoveOptions,
        monitor: &dyn Monitor,
    ) -> Result<Held> {
        for _ in 0..limits::REMOVAL_LOOKS_MAX {
            let held = self.hold(record, found, options, monitor)?;
            // The record says that they lead there, and it is durable.
            isolate::make_durable(record)?;
            // That took a while.
            isolate::refuse_busy(record, &isolate::find(record)?)?;
            let is_seen = match &held.seen {
                Some(seen) => isolate::look(record, found, options, monitor)?.is_as(seen),
                None => true,
            };
            let is_still = held.leftover.as_ref().map_or(Ok(true), |it| it.is_still(record))?;
            if is_seen && is_still {
                return Ok(held);
            }
        }
        Err(IsolationError::Changing { path: record.path() }.into())
    }

    /// Has everything in the work tree, and every commit that only it has, held elsewhere, but for what git
    /// ignores.
    fn hold(
        &self,
        record: &mut RunRecord,
        found: &isolate::Found,
        options: &RemoveOptions,
        monitor: &dyn Monitor,
    ) -> Result<Held> {
        let path = record.path();
        // What an earlier removal began to hold this one goes on holding.
        let ignored = options.ignored || record.holds.is_some_and(|holds| holds.ignored);
        let options = &RemoveOptions { ignored, ..options.clone() };
        let mut may_be_held = record.state == RunState::Removing;
        let mut is_healing = false;
        for _ in 0..limits::REMOVAL_LOOKS_MAX {
            // Before everything else: what is written from here on is captured, or is not as it was then.
            let is_there = matches!(found.stage, Stage::Whole(_) | Stage::Forgotten);
            let leftover = is_there.then(|| Leftover::of(record)).transpose()?;
            let seen = isolate::look(record, found, options, monitor)?;
            record.refs = isolate::keep(record, found, &seen, monitor)?;
            let mut left = isolate::submodules(found)?;
            let branch = seen.branch();
            match (&found.stage, leftover.as_ref()) {
                (Stage::Whole(_), _) => {}
                (Stage::Forgotten, Some(forgotten)) => {
                    let held = self.held_of(record, monitor)?;
                    let reading = self.read(monitor)?;
                    let is_stored = |hash: BlobHash, size: u64| match &reading {
                        Some(reading) => {
                            let found = reading.blobs.check(hash, Some(size))?;
                            Ok(matches!(found, Presence::Present { .. }))
                        }
                        None => Ok(false),
                    };
                    left.extend(forgotten.not_held(record, &held, &is_stored, monitor)?);
                    refuse_lost(&path, &left, options)?;
                    let left_out = forgotten.left_out(left);
                    let leftover = leftover.map(|it| it.giving_up(&left_out.paths, &[]));
                    return Ok(Held { branch, left_out, leftover, seen: None });
                }
                (Stage::Gone, _) => {
                    refuse_lost(&path, &left, options)?;
                    let left_out = isolate::measure_given_up(record, found, left)?;
                    return Ok(Held { branch, left_out, ..Held::default() });
                }
                _ => return Err(isolate::unknown(record)),
            }
            let mut held = None;
            if may_be_held {
                held = self.held_before(record, &seen, options, monitor)?;
                may_be_held = held.is_some();
            }
            let (entries, created) = if let Some(entries) = held {
                (entries, None)
            } else {
                let (entries, outcome) = self.capture_all(record, options, monitor)?;
                (entries, Some(outcome))
            };
            left.extend(isolate::not_held(record, &entries, &seen, options)?);
            let closed = leftover.iter().flat_map(|it| it.closed_besides(seen.status.ignored()));
            let is_new =
                |(path, _): &(RelPath, String)| !left.iter().any(|(other, _)| other == path);
            let closed: Vec<_> = closed.filter(is_new).collect();
            left.extend(closed);
            refuse_lost(&path, &left, options)?;
            let is_captured = created.is_some();
            let is_new = created.as_ref().is_some_and(|outcome| outcome.created);
            if let Some(CaptureOutcome { checkpoint, .. }) = created {
                let is_begun = record.state == RunState::Removing;
                if let Some(holds) = &mut record.holds
                    && is_begun
                {
                    // In one of them it is by now: of what comes later no less is to be held.
                    holds.ignored |= ignored;
                }
                if !is_begun {
                    record.kept = Some(checkpoint);
                    record.holds = Some(Holds { ignored, all: !options.discard });
                } else if record.kept.as_ref() != Some(&checkpoint)
                    && !record.further.contains(&checkpoint)
                {
                    // Never in the place of the first, which alone has what git has deleted by now. Of this
                    // workspace only the newest checkpoint is safe from retention.
                    let note =
                        format!("what came into run {} while it was being removed", record.id);
                    self.pin(&checkpoint, Some(&note), monitor)?;
                    record.further.push(checkpoint);
                }
            }
            // Taken again, it finds nothing new: what was written while it was taken is in it. What it does
            // not hold is as it was judged.
            if !is_new && isolate::look(record, found, options, monitor)?.is_as(&seen) {
                // A capture does not look for what it takes over from the one before.
                let lost =
                    if is_captured { self.lost(&entries, &seen, monitor)? } else { Vec::new() };
                if !lost.is_empty() && !is_healing {
                    is_healing = true;
                    continue;
                }
                left.extend(lost);
                refuse_lost(&path, &left, options)?;
                let (left_out, closed) =
                    isolate::left_out(record, found, &entries, &seen, left, options)?;
                refuse_lost(&path, &closed, options)?;
                let leftover = leftover.map(|it| it.giving_up(&left_out.paths, &entries));
                return Ok(Held { branch, left_out, leftover, seen: Some(seen) });
            }
        }
        Err(IsolationError::Changing { path }.into())
    }

    /// Captures a work tree for its removal. Returns what is in the checkpoint, too.
    fn capture_all(
        &self,
        record: &RunRecord,
        options: &RemoveOptions,
        monitor: &dyn Monitor,
    ) -> Result<(Vec<Entry>, CaptureOutcome)> {
        let mut capture = capture_options(record);
        capture.scope = options.scope.before_deletion();
        capture.ignored = options.ignored;
        capture.if_changed = true;
        let outcome = self.capture(&record.path(), &capture, monitor)?;
        if let Some(entries) = self.entries_if_there(&outcome.checkpoint, monitor)? {
            return Ok((entries, outcome));
        }
        // What it took over of its pages was lost, and is stored again.
        let outcome = self.capture(&record.path(), &capture, monitor)?;
        let entries = self.entries(&outcome.checkpoint, &RelPath::root(), monitor)?;
        Ok((entries, outcome))
    }

    /// The files of a checkpoint of the work tree whose content the store has lost. The next capture reads
    /// them anew. What git has, too, is looked for, and all else is read.
    fn lost(
        &self,
        entries: &[Entry],
        seen: &isolate::Kept,
        monitor: &dyn Monitor,
    ) -> Result<Vec<(RelPath, String)>> {
        let files = || entries.iter().filter(|entry| entry.blob().is_some());
        let (twice, once): (Vec<&Entry>, Vec<&Entry>) =
            files().partition(|entry| seen.status.spares(&entry.path, false));
        let access = self.enter(monitor)?;
        let mut lost = HashSet::new();
        for (entries, depth) in [(twice, Depth::Place), (once, Depth::Content)] {
            let needed = entries.into_iter().filter_map(Entry::blob).collect();
            lost.extend(capture::find_lost(&access, needed, depth, monitor)?);
        }
        let is_lost = |entry: &&Entry| entry.blob().is_some_and(|(hash, _)| lost.contains(&hash));
        Ok(files().filter(is_lost).map(|it| (it.path.clone(), isolate::LOST.to_owned())).collect())
    }

    /// What is in the work tree, where a removal that was cut has held all of it: it has only taken things
    /// away. What it holds is not to be held once more without what is gone by now.
    fn held_before(
        &self,
        record: &RunRecord,
        seen: &isolate::Kept,
        options: &RemoveOptions,
        monitor: &dyn Monitor,
    ) -> Result<Option<Vec<Entry>>> {
        let Some(kept) = &record.kept else { return Ok(None) };
        // More may be asked of this removal than of that one.
        let is_enough = record.holds.is_some_and(|holds| {
            (holds.ignored || !options.ignored) && (holds.all || options.discard)
        });
        let mut compare = CompareOptions { renames: false, ..CompareOptions::default() };
        compare.scope = options.scope.before_deletion();
        let (path, ignored) = (record.path(), options.ignored);
        let (found, entries) =
            match self.compare_all_with_disk(kept, &path, &compare, ignored, monitor) {
                Err(error) if is_lost(&error) => return Ok(None),
                compared => compared?,
            };
        let held = self.held_of(record, monitor)?;
        let is_held = |change: &Change| {
            let now = at(&entries, change.path());
            let is_same = |held: &Vec<Entry>| Entry::are_same_state(at(held, change.path()), now);
            change.kind == ChangeKind::Deleted || held.iter().any(is_same)
        };
        // Of a checkpoint that is known the comparison reads nothing.
        let is_there = self.entries_if_there(kept, monitor)?.is_some();
        let is_all = is_there && found.problem_count == 0 && found.changes.iter().all(is_held);
        if is_enough && is_all {
            // What no checkpoint can hold is no change to it: it may have come since.
            let left = isolate::not_held(record, &entries, seen, options)?;
            let is_given_up = left.is_empty() || options.discard;
            if is_given_up && self.lost(&entries, seen, monitor)?.is_empty() {
                return Ok(Some(entries));
            }
        }
        // Somebody has worked there since, or more is to be held. Of this workspace only the newest
        // checkpoint is safe from retention.
        let note = format!("what was in run {} when its removal began", record.id);
        self.pin(kept, Some(&note), monitor)?;
        Ok(None)
    }

    fn log_removal(&self, record: &RunRecord, left_out: &LeftOut, monitor: &dyn Monitor) {
        let details = serde_json::json!({
            "run": record.id.to_string(),
            "path": record.path().to_string_lossy(),
            "kept": record.kept.as_ref().map(log::id),
            "further": record.further.iter().map(log::id).collect::<Vec<_>>(),
            "refs": record.refs,
            "left_out": { "files": left_out.files, "bytes": left_out.bytes },
        });
        if let Err(error) = log::append_to(&self.inner.layout, "worktree-remove", details) {
            log::tell_unwritten(&error, monitor);
        }
    }

    /// The runs of the repository that `directory` lies in: those that are there, or those that were removed.
    ///
    /// # Errors
    /// [`Error::Isolation`] where it lies in none.
    ///
    /// Cost: one small file for each run of the store; for each that is there git looks at all of its files.
    pub fn runs(
        &self,
        directory: &Path,
        removed: bool,
        monitor: &dyn Monitor,
    ) -> Result<RunListing> {
        let (mut records, unreadable) = self.runs_of(directory, monitor)?;
        records.retain(|record| (record.state == RunState::Removed) == removed);
        let runs = records.into_iter().map(|record| self.summary_of(record, monitor));
        Ok(RunListing { runs: runs.collect::<Result<_>>()?, unreadable })
    }

    /// One of the runs of the repository that `directory` lies in.
    ///
    /// # Errors
    /// [`IsolationError::RunNotFound`], and as [`Store::runs`].
    ///
    /// Cost: of no other run anything is read; if it is there git looks at all of its files.
    pub fn run(&self, directory: &Path, id: RunId, monitor: &dyn Monitor) -> Result<RunSummary> {
        self.summary_of(self.record_of(directory, id, monitor)?, monitor)
    }

    /// What is remembered of a run of the repository that `directory` lies in.
    pub(super) fn record_of(
        &self,
        directory: &Path,
        id: RunId,
        monitor: &dyn Monitor,
    ) -> Result<RunRecord> {
        let common_dir = isolate::common_dir(&real_path(directory)?, monitor)?;
        let mut found = self.remembered_runs().with_id(id)?.into_iter();
        let record = found.find(|record| record.repository == common_dir);
        Ok(record.ok_or(IsolationError::RunNotFound { id })?)
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
        let (is_alive, content) = match record.state {
            RunState::Removed => (false, None),
            _ => (self.remembered_runs().is_alive(&record)?, isolate::content(&record, monitor)?),
        };
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
            further: record.further,
            refs: record.refs,
            applied: record.applied,
            content,
        })
    }

    /// Removes the runs of the repository that `directory` lies in whose process ended before they did:
    /// what a killed one left. With `older_than` also those whose command ended so long ago. Where `dry_run`,
    /// says only which. Forgets those that were removed and of which no checkpoint and no ref is left.
    ///
    /// # Errors
    /// [`Error::Isolation`] where the directory lies in no repository. Why one run cannot be removed is in
    /// the outcome, and so is that the caller stopped it over one.
    pub fn prune_runs(
        &self,
        directory: &Path,
        older_than: Option<Duration>,
        dry_run: bool,
        options: &RemoveOptions,
        monitor: &dyn Monitor,
    ) -> Result<PrunedRuns> {
        let (records, unreadable) = self.runs_of(directory, monitor)?;
        let (runs, now) = (self.remembered_runs(), Timestamp::now());
        let workspaces: BTreeSet<WorkspaceId> = records.iter().map(|it| it.workspace).collect();
        if !dry_run {
            workspaces.into_iter().try_for_each(|workspace| runs.remove_stray_locks(workspace))?;
        }
        let mut pruned = PrunedRuns { unreadable, ..PrunedRuns::default() };
        let is_removed = |record: &RunRecord| record.state == RunState::Removed;
        let (removed, records): (Vec<_>, Vec<_>) = records.into_iter().partition(is_removed);
        if let Some(first) = removed.first().filter(|_| !dry_run) {
            pruned.forgotten = self.forget_runs(&first.repository, &removed, monitor)?;
        }
        for record in records {
            let not_due = match (record.state, record.ended_at) {
                _ if runs.is_alive(&record)? => Some(KeptRun::Alive),
                (RunState::Made, Some(ended))
                    if older_than.is_none_or(|age| ended.until(now) < age) =>
                {
                    Some(KeptRun::Ended(ended))
                }
                _ => None,
            };
            if let Some(why) = not_due {
                pruned.kept.push((record.id, why));
                continue;
            }
            if dry_run {
                pruned.planned.push(self.summary_of(record, monitor)?);
                continue;
            }
            match self.remove_recorded(&record, options, monitor) {
                Ok(removed) => pruned.removed.push(removed),
                // What was removed by now is told.
                Err(Error::Cancelled) => {
                    pruned.is_cancelled = true;
                    break;
                }
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

/// Refuses to lose what is `left`, unless it is given up.
fn refuse_lost(path: &Path, left: &[(RelPath, String)], options: &RemoveOptions) -> Result<()> {
    if left.is_empty() || options.discard {
        return Ok(());
    }
    let (path, left, ignored) = (path.to_owned(), left.to_vec(), options.ignored);
    Err(IsolationError::NotHeld { path, left, ignored }.into())
}

/// What a sorted list has of a path.
pub(super) fn at<'a>(entries: &'a [Entry], path: &RelPath) -> Option<&'a Entry> {
    entries.binary_search_by(|entry| entry.path.cmp(path)).ok().map(|index| &entries[index])
}

/// Whether what a checkpoint was to hold is not to be had: it was dropped, or purged, or cannot be read.
pub(super) const fn is_lost(error: &Error) -> bool {
    matches!(
        error,
        Error::SessionNotFound { .. }
            | Error::CheckpointNotFound { .. }
            | Error::CheckpointUnreadable { .. }
            | Error::Pruned { .. }
            | Error::BlobMissing { .. }
            | Error::BlobDamaged { .. }
            | Error::PageInvalid { .. }
    )
}
