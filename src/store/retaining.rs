//! Pins, labels, prune, sweep and collection, put together.

use std::time::Duration;

use crate::access::Access;
use crate::adoption;
use crate::checkpoint::PinFile;
use crate::clock::Timestamp;
use crate::disk::{self, LockKind};
use crate::error::{Error, Result};
use crate::id::{CheckpointId, OperationId, Seq, SessionName};
use crate::monitor::Monitor;
use crate::operation::OperationKind;
use crate::registration::{self, Liveness};
use crate::retention::{self, Effort, GcOutcome, Going, PruneOutcome, SweepOutcome};
use crate::settings::PruneRule;
use crate::store::ballast::Ballast;
use crate::store::capturing::{Purpose, adopt_own, check_label};
use crate::store::{Store, evicting, log};

impl Store {
    /// Pins a checkpoint: retention keeps it.
    ///
    /// # Errors
    /// [`Error::Pruned`] where it is being pruned, [`Error::CheckpointNotFound`].
    pub fn pin(&self, id: &CheckpointId, note: Option<&str>, monitor: &dyn Monitor) -> Result<()> {
        self.change_pin(id, monitor, |pin| {
            pin.pinned = true;
            if let Some(note) = note {
                pin.note = Some(note.to_owned());
            }
        })
    }

    /// Unpins a checkpoint: retention may drop it.
    ///
    /// # Errors
    /// As [`Store::pin`].
    pub fn unpin(&self, id: &CheckpointId, monitor: &dyn Monitor) -> Result<()> {
        self.change_pin(id, monitor, |pin| {
            pin.pinned = false;
            pin.note = None;
        })
    }

    /// Gives a checkpoint a label, in place of the one it was captured with; `None` takes it back. A
    /// label does not keep a checkpoint from being pruned.
    ///
    /// # Errors
    /// As [`Store::pin`]; [`Error::InvalidLabel`].
    pub fn label(
        &self,
        id: &CheckpointId,
        label: Option<&str>,
        monitor: &dyn Monitor,
    ) -> Result<()> {
        if let Some(label) = label {
            check_label(label)?;
        }
        self.change_pin(id, monitor, |pin| pin.label = label.map(str::to_owned))
    }

    /// Forgets an operation of another machine, which nobody here can tell to be over; or one whose
    /// process is dead. A checkpoint that it had committed stays; what it protected besides may be
    /// removed.
    ///
    /// # Errors
    /// [`Error::OperationNotFound`]; [`Error::OperationAlive`] where its lease is locked.
    pub fn forget_operation(
        &self,
        id: OperationId,
        monitor: &dyn Monitor,
    ) -> Result<ForgottenOperation> {
        let access = self.enter_if_made(monitor)?.ok_or(Error::OperationNotFound { id })?;
        let rows = access.index.read("list operations", |tx| tx.operations())?;
        let row = rows.into_iter().find(|row| row.operation.id == id);
        let row = row.ok_or(Error::OperationNotFound { id })?;
        let is_foreign = registration::liveness(&access, &row)? == Liveness::Foreign;
        // A lock that is seen tells the truth, wherever its holder runs.
        if disk::is_alive(&access.leases, id)? {
            return Err(Error::OperationAlive { id });
        }
        adoption::end_operation(&access, &row)?;
        let (kind, started_at) = (row.operation.kind, row.operation.started_at);
        let details = serde_json::json!({
            "operation": id.to_string(),
            "kind": kind.as_str(),
            "started_at": started_at.to_string(),
            "foreign": is_foreign,
        });
        if let Err(error) = log::append(&access, "forget-operation", details) {
            log::tell_unwritten(&error, monitor);
        }
        Ok(ForgottenOperation { kind, started_at, is_foreign })
    }

    fn change_pin(
        &self,
        id: &CheckpointId,
        monitor: &dyn Monitor,
        change: impl Fn(&mut PinFile),
    ) -> Result<()> {
        let access = self.enter_for(&id.session, monitor)?;
        let session = access.sessions.find(&id.session)?.unwrap_or_else(|| id.session.clone());
        let id = CheckpointId { session, seq: id.seq };
        adopt_own(&access, &id.session)?;
        // What cannot be read is not pinned over: its label and note would be lost.
        access.sessions.require(&id)?;
        // Read, noted and written in one transaction: two changes at once are one after the other, and
        // a prune decides before or after, never between. The row says first whether it is gone: a pin
        // file without a manifest would be left for ever. The file, which is the truth, is durable
        // before the row is.
        access.index.write("note a pin", |tx| {
            let mut pin = access.sessions.read_pin(&id)?;
            change(&mut pin);
            tx.set_pin(&id, &pin)?;
            access.sessions.write_pin(&id, &pin, &access.tmp)
        })
    }

    /// What [`Store::prune`] would drop.
    ///
    /// # Errors
    /// As [`Store::prune`].
    pub fn plan_prune(
        &self,
        session: Option<&SessionName>,
        rule: PruneRule,
        monitor: &dyn Monitor,
    ) -> Result<PruneOutcome> {
        self.plan_going(session, Going::Rule { rule, agreed: None }, monitor)
    }

    /// Drops old checkpoints of one session, or of all. What an earlier prune had marked, and did not
    /// come to the end of, is finished and not told again.
    ///
    /// Where a session is named, it is also decided that checkpoints of it whose manifests are missing
    /// are gone. Until then they are damage, and nothing is deleted from the store.
    ///
    /// # Errors
    /// A journal that cannot be understood stops it.
    pub fn prune(
        &self,
        session: Option<&SessionName>,
        rule: PruneRule,
        monitor: &dyn Monitor,
    ) -> Result<PruneOutcome> {
        let Some(access) = self.enter_to_prune(session, Purpose::Work, monitor)? else {
            return Ok(PruneOutcome::default());
        };
        prune(&access, session, Going::Rule { rule, agreed: None }, monitor)
    }

    /// As [`Store::prune`], but of what it would drop, and give up, only what `planned` has: what a person was
    /// shown, and agreed to.
    ///
    /// # Errors
    /// As [`Store::prune`].
    pub fn prune_planned(
        &self,
        session: Option<&SessionName>,
        rule: PruneRule,
        planned: &PruneOutcome,
        monitor: &dyn Monitor,
    ) -> Result<PruneOutcome> {
        let Some(access) = self.enter_to_prune(session, Purpose::Work, monitor)? else {
            return Ok(PruneOutcome::default());
        };
        let agreed = planned.pruned.iter().chain(&planned.missing).cloned().collect();
        prune(&access, session, Going::Rule { rule, agreed: Some(&agreed) }, monitor)
    }

    /// What [`Store::delete_session`] would drop.
    ///
    /// # Errors
    /// As [`Store::delete_session`].
    pub fn plan_session_deletion(
        &self,
        session: &SessionName,
        with_pinned: bool,
        monitor: &dyn Monitor,
    ) -> Result<PruneOutcome> {
        self.plan_going(Some(session), Going::Session { with_pinned, last: None }, monitor)
    }

    /// Drops all checkpoints of a session, the newest too: all but pinned ones, where these are not to
    /// go with it, and but what a running operation or an open restore relies on, which `kept` counts.
    /// The numbers stay given: a session of that name goes on counting. With `last` those with higher
    /// numbers stay: what was captured since a person was asked.
    ///
    /// Where an undo that goes took back a restore whose safety checkpoint is in another session,
    /// [`Store::undo`] is about that restore again.
    ///
    /// # Errors
    /// [`Error::SessionNotFound`]; a journal that cannot be understood stops it.
    ///
    /// # Durability
    /// As [`Store::prune`]: what a crash interrupts the next command finishes.
    pub fn delete_session(
        &self,
        session: &SessionName,
        with_pinned: bool,
        last: Option<Seq>,
        monitor: &dyn Monitor,
    ) -> Result<PruneOutcome> {
        let access = self.enter_for(session, monitor)?;
        // What a dead process had committed is of the session too.
        adopt_own(&access, session)?;
        prune(&access, Some(session), Going::Session { with_pinned, last }, monitor)
    }

    fn plan_going(
        &self,
        session: Option<&SessionName>,
        going: Going<'_>,
        monitor: &dyn Monitor,
    ) -> Result<PruneOutcome> {
        let Some(access) = self.enter_to_prune(session, Purpose::Look, monitor)? else {
            return Ok(PruneOutcome::default());
        };
        let sessions = sessions(&access, session)?;
        let missing = if session.is_some() { missing(&access, &sessions)? } else { Vec::new() };
        let outcome = retention::plan_prune(&access, &sessions, going, &missing)?;
        Ok(PruneOutcome { missing, ..outcome })
    }

    fn enter_to_prune(
        &self,
        session: Option<&SessionName>,
        purpose: Purpose,
        monitor: &dyn Monitor,
    ) -> Result<Option<Access>> {
        match session {
            Some(session) => self.enter_for_to(session, purpose, monitor).map(Some),
            None => self.enter_if_made_to(purpose, monitor),
        }
    }

    /// What [`Store::gc`] would drop and remove.
    ///
    /// # Errors
    /// As [`Store::gc`].
    pub fn plan_gc(&self, monitor: &dyn Monitor) -> Result<GcOutcome> {
        let Some(access) = self.enter_if_made_to(Purpose::Look, monitor)? else {
            return Ok(GcOutcome::default());
        };
        let sessions = sessions(&access, None)?;
        let prune = retention::plan_prune(&access, &sessions, by_rule(&access), &[])?;
        let marked = access.index.read("list marked checkpoints", |tx| tx.pruning_checkpoints())?;
        let evict = retention::plan_eviction(&access, &prune.pruned)?.outcome;
        let mut dropped = [prune.pruned.as_slice(), &marked, &evict.evicted].concat();
        // What was marked since the plan is in both, and goes once.
        dropped.sort_unstable();
        dropped.dedup();
        let sweep = retention::plan_sweep(&access, &dropped, monitor)?;
        Ok(GcOutcome { prune, evict, sweep, index_bytes_freed: 0 })
    }

    /// Drops old checkpoints, as [`Store::prune`] does, and more of them if there is too much; and removes
    /// the content that nothing names any more.
    ///
    /// Content that lost its last name less than a minute ago stays until the next time.
    ///
    /// # Errors
    /// [`Error::DeletionBlocked`] while something in the store cannot be understood;
    /// [`Error::Busy`] where another sweep runs for more than a minute.
    ///
    /// # Concurrency
    /// Beside captures and restores; it waits for no operation, only for another sweep.
    pub fn gc(&self, monitor: &dyn Monitor) -> Result<GcOutcome> {
        self.with_sound_index(monitor, || self.try_gc(monitor))
    }

    fn try_gc(&self, monitor: &dyn Monitor) -> Result<GcOutcome> {
        let Some(access) = self.enter_if_made(monitor)? else { return Ok(GcOutcome::default()) };
        let lock = access.layout.sweep_lock();
        let _lock = disk::lock(&lock, LockKind::Exclusive, "another sweep", monitor)?;
        let _ballast = Ballast::give_up(&access.layout)?;
        // Before anything is dropped: what was dropped is told by who goes on to the end.
        adoption::require_own_manifests(&access)?;
        let prune = prune(&access, None, by_rule(&access), monitor)?;
        let evict = evicting::evict(&access, monitor)?;
        let sweep = sweep(&access, Effort::All, monitor)?;
        let index_bytes_freed = access.index.give_back_space()?;
        access.index.empty_wal()?;
        Ok(GcOutcome { prune, evict, sweep, index_bytes_freed })
    }
}

/// An operation that was forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ForgottenOperation {
    /// What it did.
    pub kind: OperationKind,
    /// When it began, by the clock of its machine.
    pub started_at: Timestamp,
    /// Whether it was of another machine; else its process was dead.
    pub is_foreign: bool,
}

fn sessions(access: &Access, session: Option<&SessionName>) -> Result<Vec<SessionName>> {
    let known = access.sessions.names()?;
    let Some(asked) = session else { return Ok(known) };
    match access.sessions.find(asked)? {
        Some(session) => Ok(vec![session]),
        None => Err(Error::SessionNotFound {
            session: asked.to_string(),
            nearest: super::history::nearest(asked.as_str(), known),
        }),
    }
}

fn by_rule(access: &Access) -> Going<'static> {
    Going::Rule { rule: access.upkeep.rule, agreed: None }
}

fn missing(access: &Access, sessions: &[SessionName]) -> Result<Vec<CheckpointId>> {
    let of_each = sessions.iter().map(|session| retention::missing(access, session));
    Ok(of_each.collect::<Result<Vec<_>>>()?.concat())
}

fn prune(
    access: &Access,
    session: Option<&SessionName>,
    going: Going<'_>,
    monitor: &dyn Monitor,
) -> Result<PruneOutcome> {
    // What an earlier prune decided it has told, and so has the capture that left a row behind.
    retention::finish_pruning(access)?;
    let named = session.is_some();
    let sessions = sessions(access, session)?;
    let mut missing = if named { missing(access, &sessions)? } else { Vec::new() };
    if let Going::Rule { agreed: Some(agreed), .. } = going {
        missing.retain(|id| agreed.contains(id));
    }
    missing = retention::drop_missing(access, &missing)?;
    if !missing.is_empty() {
        let ids: Vec<_> = missing.iter().map(log::id).collect();
        let details = serde_json::json!({ "checkpoints": ids, "why": "the manifest was missing" });
        if let Err(error) = log::append(access, "prune", details) {
            log::tell_unwritten(&error, monitor);
        }
    }
    let mut outcome = retention::prune(access, &sessions, going)?;
    outcome.missing = missing;
    if !outcome.pruned.is_empty() {
        let ids: Vec<_> = outcome.pruned.iter().map(log::id).collect();
        let why = match going {
            Going::Rule { rule, .. } if rule == access.upkeep.rule => "retention",
            Going::Rule { .. } => "asked for",
            Going::Session { .. } => "the session was deleted",
        };
        let details = serde_json::json!({ "checkpoints": ids, "why": why });
        if let Err(error) = log::append(access, "prune", details) {
            log::tell_unwritten(&error, monitor);
        }
    }
    Ok(outcome)
}

/// Sweeps under the sweep's lock, and notes when.
fn sweep(access: &Access, effort: Effort, monitor: &dyn Monitor) -> Result<SweepOutcome> {
    let outcome = retention::sweep(access, effort, monitor)?;
    disk::touch(&access.layout.sweep_lock())?;
    evicting::forget_tally(access)?;
    if outcome.blobs_removed > 0 {
        let details = serde_json::json!({
            "blobs": outcome.blobs_removed,
            "bytes": outcome.bytes_removed,
        });
        if let Err(error) = log::append(access, "sweep", details) {
            log::tell_unwritten(&error, monitor);
        }
    }
    Ok(outcome)
}

/// How long after the last sweep a capture makes another where there is too much, or too many small packs.
const SWEEP_EVERY_IF_TIGHT: Duration = Duration::from_mins(10);

/// After a capture: sweeps if the last sweep is as long ago as it may be and no other runs.
pub(super) fn sweep_if_due(access: &Access, is_tight: bool, monitor: &dyn Monitor) -> Result<()> {
    let Some(mut every) = access.upkeep.sweep_every else { return Ok(()) };
    let if_tight = every.min(SWEEP_EVERY_IF_TIGHT);
    if is_tight {
        every = if_tight;
    }
    let file = access.layout.sweep_lock();
    // A new store has nothing to sweep; its first sweep is due in so long.
    let Some(last_ns) = disk::modified_ns(&file)? else {
        return disk::try_lock(&file, LockKind::Exclusive).map(drop);
    };
    let (last, now) = (Timestamp::from_ns(last_ns), Timestamp::now());
    // A time that is yet to come is of a clock that was set back since, and says nothing.
    let is_over = |wait: Duration| last > now || last.until(now) >= wait;
    let is_due = is_over(every);
    let do_packs_wait = is_over(if_tight) && access.blobs.are_packs_crowded();
    if !is_due && !do_packs_wait {
        return Ok(());
    }
    let Some(_lock) = disk::try_lock(&file, LockKind::Exclusive)? else { return Ok(()) };
    if !is_due {
        // Where nothing may be deleted, not every capture tries again for the sake of packs.
        disk::touch(&file)?;
    }
    retention::finish_pruning(access)?;
    // The next capture of the workspace waits for this one.
    let swept = sweep(access, Effort::One, monitor);
    if matches!(swept, Err(Error::IndexDamaged { .. })) {
        // It is told, and not every capture reads all manifests to tell it again.
        disk::touch(&file)?;
    }
    swept.map(|_| ())
}
