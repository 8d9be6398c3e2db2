//! Restore and undo, put together.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use crate::access::{Access, OpenWorkspace};
use crate::capture::{self, Base, Committed, Draft, Finish, Held, Storing};
use crate::disk::{self, Dir, Lock, LockKind};
use crate::error::{Error, GoingBackError, Result};
use crate::hash::BlobHash;
use crate::id::CheckpointId;
use crate::journal::{Action, Journal, JournalPhase, Stamp};
use crate::limits;
use crate::manifest::{CheckpointRef, Coverage, RestoreRecord, Trigger, page_refs};
use crate::monitor::Monitor;
use crate::operation::OperationKind;
use crate::path::RelPath;
use crate::plan::Plan;
use crate::registration::Operation;
use crate::restore::{self, Recovered, RestoreOptions, RestoreOutcome, Saving, Stage};
use crate::sessions::with_source;
use crate::store::applying::{RunChange, find_apply};
use crate::store::capturing::{
    Purpose, adopt_all, adopt_own, after_commit, begin, home_directory, look_for_foundation,
    losing, open_workspace, remember_seen,
};
use crate::store::into::tolerate_unwritable;
use crate::store::merging::Merge;
use crate::store::preparing::{Prepared, prepare};
use crate::store::reversing::{find_redo, find_undo};
use crate::store::reverting::find_revert;
use crate::store::target::{Intent, Target, load_target};
use crate::store::{Store, binding, interrupted, log, merging, open_root, session_name};
use crate::workspaces::identity_of;

/// What became of an interrupted restore that was ended by hand.
#[derive(Debug, Clone)]
#[non_exhaustive]
#[must_use]
pub struct EndedRestore {
    /// The checkpoint that holds what was there before; `None` where nothing had changed.
    pub safety: Option<CheckpointId>,
    /// Paths that were left as they were.
    pub left: Vec<crate::plan::Skip>,
    /// What a person should know.
    pub remarks: Vec<String>,
}

/// What is asked for.
pub(super) enum Wish<'a> {
    /// To go back to this checkpoint.
    Restore(&'a CheckpointId),
    /// To take the newest restore back.
    Undo,
    /// To take the newest undo back.
    Redo,
    /// To take back what this checkpoint changed.
    Revert(&'a CheckpointId),
    /// To have what a run changed.
    Apply(&'a RunChange),
}

/// Whether it is done, or only computed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Plan,
    CarryOut,
}

impl Store {
    /// Computes what [`Store::restore`] would do, and does nothing: not even content is stored.
    ///
    /// # Errors
    /// As [`Store::restore`].
    pub fn plan_restore(
        &self,
        path: &Path,
        checkpoint: &CheckpointId,
        options: &RestoreOptions,
        monitor: &dyn Monitor,
    ) -> Result<RestoreOutcome> {
        self.go_back(&Wish::Restore(checkpoint), Mode::Plan, path, options, monitor)
    }

    /// Puts the workspace back to a checkpoint.
    ///
    /// First the present is saved as a safety checkpoint, in it everything that will change whatever
    /// limits and rules say; then all new content is staged and checked; then the changes are made,
    /// one path at a time.
    ///
    /// # Errors
    /// Before the first change: [`Error::ContentLost`], [`Error::NoSpace`],
    /// [`Error::OtherWorkspace`], [`Error::RestoreOpen`], [`Error::PlanChanged`] and others; nothing
    /// has changed then. Paths that could not be changed are in the outcome.
    ///
    /// # Durability
    /// Killed before the changes, the next writing command discards the restore; killed among them,
    /// the next writing command completes it.
    pub fn restore(
        &self,
        path: &Path,
        checkpoint: &CheckpointId,
        options: &RestoreOptions,
        monitor: &dyn Monitor,
    ) -> Result<RestoreOutcome> {
        self.go_back(&Wish::Restore(checkpoint), Mode::CarryOut, path, options, monitor)
    }

    /// Computes what [`Store::undo`] would do.
    ///
    /// # Errors
    /// As [`Store::undo`].
    pub fn plan_undo(
        &self,
        path: &Path,
        options: &RestoreOptions,
        monitor: &dyn Monitor,
    ) -> Result<RestoreOutcome> {
        self.go_back(&Wish::Undo, Mode::Plan, path, options, monitor)
    }

    /// Takes back the newest restore or redo of the workspace that has not been taken back, on the paths
    /// that it touched. A path that was worked on since is a conflict and is left. Repeated, it goes
    /// further back; where nothing of a restore is left to be taken back, the next one does.
    ///
    /// # Errors
    /// [`Error::NothingToUndo`]; else as [`Store::restore`].
    pub fn undo(
        &self,
        path: &Path,
        options: &RestoreOptions,
        monitor: &dyn Monitor,
    ) -> Result<RestoreOutcome> {
        self.go_back(&Wish::Undo, Mode::CarryOut, path, options, monitor)
    }

    pub(super) fn go_back(
        &self,
        wish: &Wish<'_>,
        mode: Mode,
        path: &Path,
        options: &RestoreOptions,
        monitor: &dyn Monitor,
    ) -> Result<RestoreOutcome> {
        let purpose = match mode {
            Mode::Plan => Purpose::Look,
            Mode::CarryOut => Purpose::Work,
        };
        let access = match wish {
            Wish::Restore(checkpoint) | Wish::Revert(checkpoint) => {
                self.enter_for_to(&checkpoint.session, purpose, monitor)?
            }
            Wish::Apply(run) => self.enter_for_to(&run.after.session, purpose, monitor)?,
            Wish::Undo => self
                .enter_if_made_to(purpose, monitor)?
                .ok_or_else(|| Error::NothingToUndo { workspace: path.to_owned() })?,
            Wish::Redo => self.enter_if_made_to(purpose, monitor)?.ok_or_else(|| {
                GoingBackError::NothingToRedo { workspace: path.to_owned(), since: None }
            })?,
        };
        let (open, _others) = open_for_restore(&access, path, options, purpose, monitor)?;
        if mode == Mode::CarryOut {
            interrupted::recover(&access, &open, monitor)?;
        }
        binding::require_workspace(options, &open)?;
        let found = find_target(&access, &open, wish, options, mode);
        let (target, intent) = binding::require_target(options, found)?;
        match mode {
            Mode::Plan => dry_run(&access, &open, &target, &intent, options, monitor),
            Mode::CarryOut => {
                for _ in 0..limits::CAPTURE_ATTEMPTS_MAX {
                    let done = carry_out(&access, &open, &target, &intent, options, monitor)?;
                    if let Some(outcome) = done {
                        return Ok(outcome);
                    }
                }
                Err(losing())
            }
        }
    }

    /// Tries again to complete a restore of the workspace that was interrupted.
    ///
    /// # Errors
    /// [`Error::RestoreOpen`] where it still cannot be completed.
    pub fn continue_restore(
        &self,
        path: &Path,
        options: &RestoreOptions,
        monitor: &dyn Monitor,
    ) -> Result<EndedRestore> {
        let none = || Error::NoOpenRestore { workspace: path.to_owned() };
        let access = self.enter_if_made(monitor)?.ok_or_else(none)?;
        let (open, _others) = open_for_restore(&access, path, options, Purpose::Work, monitor)?;
        let ended = match interrupted::recover(&access, &open, monitor)? {
            Recovered::Nothing => {
                return Err(Error::NoOpenRestore { workspace: open.path.clone() });
            }
            Recovered::Discarded => EndedRestore { safety: None, left: vec![], remarks: vec![] },
            Recovered::Completed { left, remarks, safety, .. } => {
                EndedRestore { safety, left, remarks }
            }
        };
        Ok(ended)
    }

    /// Ends an interrupted restore of the workspace where it stands. What it had displaced is removed
    /// only if the safety checkpoint holds it.
    ///
    /// # Errors
    /// [`Error::NoOpenRestore`] where there is none.
    pub fn abort_restore(
        &self,
        path: &Path,
        options: &RestoreOptions,
        monitor: &dyn Monitor,
    ) -> Result<EndedRestore> {
        let none = || Error::NoOpenRestore { workspace: path.to_owned() };
        let access = self.enter_if_made(monitor)?.ok_or_else(none)?;
        let (open, _others) = open_for_restore(&access, path, options, Purpose::Work, monitor)?;
        if let Some(remarks) = interrupted::set_journal_aside(&access, &open)? {
            let details = serde_json::json!({
                "workspace": open.workspace.id.to_string(),
                "root": open.path.to_string_lossy(),
                "remarks": remarks,
            });
            if let Err(error) = log::append(&access, "restore-abort", details) {
                log::tell_unwritten(&error, monitor);
            }
            return Ok(EndedRestore { safety: None, left: vec![], remarks });
        }
        interrupted::forget_what_was_saved(&access, &open)?;
        let Some((safety, remarks)) = restore::abort(&access, &open)? else {
            return Err(Error::NoOpenRestore { workspace: open.path.clone() });
        };
        if let Some(safety) = &safety {
            log_it(&access, &open, "restore-abort", None, safety);
        }
        Ok(EndedRestore { safety, left: vec![], remarks })
    }
}

/// What the wish is about.
fn find_target(
    access: &Access,
    open: &OpenWorkspace,
    wish: &Wish<'_>,
    options: &RestoreOptions,
    mode: Mode,
) -> Result<(Target, Intent)> {
    if let Wish::Apply(run) = wish {
        if mode == Mode::CarryOut {
            adopt_own(access, &run.after.session)?;
        }
        return find_apply(access, open, run, &options.paths);
    }
    if let Wish::Restore(checkpoint) | Wish::Revert(checkpoint) = wish {
        if mode == Mode::CarryOut {
            // Only a checkpoint with a row can be protected.
            adopt_own(access, &checkpoint.session)?;
        }
        if let Wish::Restore(_) = wish {
            let target = load_target(access, open, checkpoint, options.overlay)?;
            return Ok((target, Intent::restore()));
        }
    }
    // A restore that is sought may be one whose rows are not in.
    let adopted = adopt_all(access);
    match mode {
        Mode::Plan => tolerate_unwritable(adopted)?,
        Mode::CarryOut => adopted?,
    }
    match wish {
        Wish::Revert(checkpoint) => find_revert(access, open, checkpoint, &options.paths),
        Wish::Redo => find_redo(access, open),
        _ => find_undo(access, open),
    }
}

fn dry_run(
    access: &Access,
    open: &OpenWorkspace,
    target: &Target,
    intent: &Intent,
    options: &RestoreOptions,
    monitor: &dyn Monitor,
) -> Result<RestoreOutcome> {
    // Nothing is registered, pinned or stored: only hashes are compared, and the newest checkpoint of a
    // workspace is never pruned.
    let mut base = look_for_foundation(access, open)?.base;
    let prepared = prepare(access, open, None, base.as_mut(), target, intent, options, monitor)?;
    // What the restore would refuse is refused here: a plan that cannot be carried out is none.
    binding::require_plan(options, &prepared.plan)?;
    require_content(access, &prepared.plan, &merging::hashes(&prepared.merged), monitor)?;
    let merged = prepared.merged.into_keys().collect();
    let outcome = nothing_done(open, target, intent, prepared.plan, prepared.held);
    Ok(RestoreOutcome { merged, ..outcome })
}

/// Refuses a plan that needs content which the store lacks, and remembers what is lost.
fn require_content(
    access: &Access,
    plan: &Plan,
    made: &HashSet<BlobHash>,
    monitor: &dyn Monitor,
) -> Result<()> {
    let checked = restore::check_content(&access.blobs, plan, made, monitor);
    if let Err(error) = &checked {
        // What is lost is what is told, whether or not it can be remembered.
        drop(remember_lost(access, error));
    }
    checked
}

/// The pages that the safety checkpoint will share with its base. One that cannot be read is
/// remembered, and so written again.
fn pages_of(access: &Access, base: Option<&Base>) -> Result<Vec<(BlobHash, u64)>> {
    match base.map(|base| page_refs(&access.blobs, &base.tree)).transpose() {
        Ok(pages) => Ok(pages.unwrap_or_default()),
        Err(error) => capture::remember(access, &error).map(|()| Vec::new()),
    }
}

/// `None`, and nothing has changed, where something of the base was found lost only after it was decided
/// what to read for the safety checkpoint.
fn carry_out(
    access: &Access,
    open: &OpenWorkspace,
    target: &Target,
    intent: &Intent,
    options: &RestoreOptions,
    monitor: &dyn Monitor,
) -> Result<Option<RestoreOutcome>> {
    let session = match &options.session {
        Some(name) => session_name(name)?,
        None => open.workspace.default_session.clone(),
    };
    adopt_own(access, &session)?;
    let (mut operation, foundation) = begin(access, open, OperationKind::Restore)?;
    operation.protect(&intent.needed(target))?;
    let mut base = foundation.base;
    if let Some(base) = &base {
        capture::audit(access, open.workspace.id, base, monitor)?;
    }
    let staging = access.blobs.stage(operation.id())?;
    staging.gather_small();
    let prepared = prepare(
        access,
        open,
        Some(Storing { operation: &operation, staging: &staging }),
        base.as_mut(),
        target,
        intent,
        options,
        monitor,
    )?;
    let Prepared { part, mut held, scope, git, plan, merged } = prepared;
    refuse_other_plan(options, &plan)?;
    binding::require_plan(options, &plan)?;
    // An undo or redo that finds everything as it is to be is recorded all the same: the next one goes
    // further.
    let is_undone =
        intent.undoes.is_some() && !plan.skips.iter().any(|skip| skip.reason.is_shortfall());
    if plan.changes.is_empty() && !is_undone {
        operation.end()?;
        return Ok(Some(nothing_done(open, target, intent, plan, held)));
    }
    require_content(access, &plan, &merging::hashes(&merged), monitor)?;
    let saving = Saving { access, root: &open.dir, operation: &operation, staging: &staging };
    // Of a part, the pages that name what changes are read on the way.
    let pages = if part.is_some() { Vec::new() } else { pages_of(access, base.as_ref())? };
    restore::ensure_saved(&saving, &pages, &plan, monitor)?;
    let after = plan.after();
    let (trees, coverage) = if let (Some(part), Some(base)) = (&part, &base) {
        let held = &mut held;
        let stored = capture::store_part(access, &operation, base, part, held, staging, &after);
        (stored?, Coverage::Paths)
    } else {
        let (base, held) = (base.as_ref(), &mut held);
        let stored = capture::store_tree(access, &operation, base, held, staging, Some(&after));
        (stored?, Coverage::Full)
    };
    if trees.found_loss {
        operation.end()?;
        return Ok(None);
    }
    let draft = Draft {
        session,
        label: None,
        trigger: Trigger::PRE_RESTORE,
        workspace: open.workspace.id,
        root_path: open.path.clone(),
        parent: foundation.parent,
        scope,
        coverage,
        git,
        restore: trees.extra.map(|after| RestoreRecord {
            verb: intent.verb,
            target: target.reference.clone(),
            undoes: intent.undoes.clone(),
            after,
        }),
    };
    let save = |operation: &mut Operation<'_>, finish| {
        capture::commit(access, operation, base.as_ref(), &held, &trees, &draft, finish, monitor)
    };
    let (committed, changed, left, remarks) = if plan.changes.is_empty() {
        let committed = save(&mut operation, Finish::KeepGoing)?;
        operation.end()?;
        (committed, 0, Vec::new(), Vec::new())
    } else {
        let journal = journal_of(&operation, open, target, intent, options, &plan, &held)?;
        change_workspace(access, open, operation, journal, save, monitor)?
    };
    log_it(access, open, intent.verb.as_str(), Some(&target.reference.id), &committed.id);
    if part.is_none() {
        // What was known of the whole goes on to be known where only a part was looked at.
        remember_seen(access, open, base, &held, &committed, monitor);
    }
    drop(after_commit(access, &committed, monitor));
    let outcome = nothing_done(open, target, intent, plan, held);
    let (safety, merged) = (Some(committed.id), merged.into_keys().collect());
    Ok(Some(RestoreOutcome { merged, safety, changed, left, remarks, ..outcome }))
}

/// Saves the present and stages the new, and then says durably that changing begins. After an error
/// nothing in the workspace has changed.
fn make_ready(
    access: &Access,
    open: &OpenWorkspace,
    operation: &mut Operation<'_>,
    journal: &mut Journal,
    save: impl FnOnce(&mut Operation<'_>, Finish) -> Result<Committed>,
    monitor: &dyn Monitor,
) -> Result<(Committed, Stage, Vec<String>)> {
    let saved = save(operation, Finish::KeepGoing);
    if journal.operation != operation.id() {
        // It had to register again, and the checkpoint is its new self's, also one that was written
        // before something failed.
        journal.operation = operation.id();
        journal.write(&access.layout, &access.tmp)?;
    }
    let committed = saved?;
    let (stage, remarks) = restore::stage(access, &open.dir, journal, monitor)?;
    if monitor.is_cancelled() {
        return Err(Error::Cancelled);
    }
    // The point of no return: from here on whoever finds the journal completes it.
    let begun = Journal {
        phase: JournalPhase::Applying,
        safety: Some(CheckpointRef { id: committed.id.clone(), digest: committed.digest }),
        ..journal.clone()
    };
    begun.write(&access.layout, &access.tmp)?;
    *journal = begun;
    Ok((committed, stage, remarks))
}

/// Remembers what a restore found lost, so that the next capture that has the bytes heals it.
pub(super) fn remember_lost(access: &Access, error: &Error) -> Result<()> {
    let Error::ContentLost { lost } = error else { return Ok(()) };
    for content in lost {
        let damaged = Error::BlobDamaged { hash: content.hash, reason: content.reason.clone() };
        capture::remember(access, &damaged)?;
    }
    Ok(())
}

/// The outcome where nothing was changed.
fn nothing_done(
    open: &OpenWorkspace,
    target: &Target,
    intent: &Intent,
    plan: Plan,
    held: Held,
) -> RestoreOutcome {
    RestoreOutcome {
        verb: intent.verb,
        workspace: open.workspace.id,
        target: target.reference.clone(),
        predecessor: intent.merge.as_ref().and_then(Merge::predecessor),
        takes_back: intent.takes_back.clone(),
        merged: Vec::new(),
        plan,
        root: open.path.clone(),
        safety: None,
        changed: 0,
        left: Vec::new(),
        remarks: Vec::new(),
        problem_count: held.problem_count,
        problems: held.problems,
    }
}

fn refuse_other_plan(options: &RestoreOptions, plan: &Plan) -> Result<()> {
    match &options.expected_plan {
        Some(expected) if *expected != plan.id() => {
            Err(Error::PlanChanged { expected: expected.clone(), found: plan.id() })
        }
        _ => Ok(()),
    }
}

fn journal_of(
    operation: &Operation<'_>,
    open: &OpenWorkspace,
    target: &Target,
    intent: &Intent,
    options: &RestoreOptions,
    plan: &Plan,
    held: &Held,
) -> Result<Journal> {
    let stamp_of = |path: &RelPath| {
        let index = held.entries.binary_search_by(|cached| cached.entry.path.cmp(path)).ok()?;
        held.stats.get(index).map(Stamp::of)
    };
    let mut actions = Vec::with_capacity(plan.changes.len());
    for change in &plan.changes {
        let before = match &change.before {
            None => None,
            Some(entry) => stamp_of(&change.path).map(|stamp| (entry.clone(), stamp)),
        };
        actions.push(Action { path: change.path.clone(), before, after: change.after.clone() });
    }
    Ok(Journal {
        operation: operation.id(),
        workspace: open.workspace.id,
        root: identity_of(&open.dir)?,
        verb: intent.verb,
        target: target.reference.clone(),
        safety: None,
        made_directory: !restore::has_own_directory(&open.dir)?,
        preserve_mtime: options.preserve_mtime,
        phase: JournalPhase::Staging,
        actions,
    })
}

/// Saves the present, stages the new, and applies. An error before the point of no return leaves no
/// trace.
fn change_workspace(
    access: &Access,
    open: &OpenWorkspace,
    mut operation: Operation<'_>,
    mut journal: Journal,
    save: impl FnOnce(&mut Operation<'_>, Finish) -> Result<Committed>,
    monitor: &dyn Monitor,
) -> Result<(Committed, u64, Vec<crate::plan::Skip>, Vec<String>)> {
    // The journal is durable before what would say that a restore happened, and before the first
    // temporary file: a crash right after must find its way back to both.
    journal.write(&access.layout, &access.tmp)?;
    let ready = make_ready(access, open, &mut operation, &mut journal, save, monitor);
    let (committed, stage, mut remarks) = match ready {
        Ok(ready) => ready,
        Err(error) => {
            // What went wrong first is what is told; the next command discards what is left.
            drop(interrupted::give_up(access, open, operation, &journal));
            return Err(error);
        }
    };
    let stuck = |error: &Error| Error::RestoreOpen {
        workspace: open.path.clone(),
        reason: with_source(error),
    };
    let applied = apply_all(access, &open.dir, &stage, &journal, monitor);
    let (changed, left, more) = applied.map_err(|error| stuck(&error))?;
    remarks.extend(more);
    // The restore is done, and whoever made it is to be told so: a row that stays is reaped later.
    if let Err(error) = operation.end() {
        remarks.push(with_source(&error));
    }
    Ok((committed, changed, left, remarks))
}

fn apply_all(
    access: &Access,
    root: &Dir,
    stage: &Stage,
    journal: &Journal,
    monitor: &dyn Monitor,
) -> Result<(u64, Vec<crate::plan::Skip>, Vec<String>)> {
    let mut applied = restore::apply(access, root, stage, journal, monitor)?;
    let (remarks, conflicts) = restore::finish(access, root, journal)?;
    applied.remarks.extend(remarks);
    restore::add_conflicts(&mut applied.left, conflicts);
    Ok((applied.changed, applied.left, applied.remarks))
}

fn log_it(
    access: &Access,
    open: &OpenWorkspace,
    verb: &str,
    target: Option<&CheckpointId>,
    safety: &CheckpointId,
) {
    let details = serde_json::json!({
        "workspace": open.workspace.id.to_string(),
        "root": open.path.to_string_lossy(),
        "target": target.map(log::id),
        "safety": log::id(safety),
    });
    // The log is for people; the safety checkpoint says the same.
    drop(log::append(access, verb, details));
}

/// Opens the workspace, and locks it and every known workspace that contains it or lies in it, in
/// order of path, so that two restores of nested workspaces cannot wait for each other.
fn open_for_restore(
    access: &Access,
    path: &Path,
    options: &RestoreOptions,
    purpose: Purpose,
    monitor: &dyn Monitor,
) -> Result<(OpenWorkspace, Vec<Lock>)> {
    let (own, path) = open_root(path)?;
    let own = own.stat_self()?;
    let mut related: BTreeMap<std::path::PathBuf, (u64, u64)> = BTreeMap::new();
    for workspace in access.workspaces.all_remembered()? {
        let Some(root) = workspace.roots.first() else { continue };
        if !(root.starts_with(&path) || path.starts_with(root)) {
            continue;
        }
        // By what is there now, as whoever works in it locks it; what is remembered may be of a
        // directory that was made anew, or not known.
        let Ok(stat) = Dir::open(root).and_then(|dir| dir.stat_self()) else { continue };
        let identity = (stat.dev, stat.ino);
        // One lock file is taken once: two workspaces can be remembered at one place.
        let is_locked =
            identity == (own.dev, own.ino) || related.values().any(|known| *known == identity);
        if !is_locked {
            related.insert(root.clone(), identity);
        }
    }
    let lock = |(device, inode): (u64, u64)| {
        let file = access.layout.workspace_lock(device, inode);
        disk::lock(&file, LockKind::Exclusive, "a workspace that overlaps", monitor)
    };
    let mut locks = Vec::new();
    for (_, identity) in related.range(..path.clone()) {
        locks.push(lock(*identity)?);
    }
    let home = home_directory();
    let (home, chosen) = (home.as_deref(), options.workspace);
    let open = open_workspace(access, &path, options.force, home, chosen, purpose, monitor)?;
    for (_, identity) in related.range(path..) {
        locks.push(lock(*identity)?);
    }
    Ok((open, locks))
}
