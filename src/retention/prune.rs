//! Which checkpoints go, and how they go.
//!
//! A checkpoint is dropped in three steps, each of which the next command can find and finish: its
//! row is marked, durably; its files are unlinked; its row is deleted. From the mark on it is gone for
//! every reader. The mark comes before the unlink so that a manifest that is missing without one is
//! known to be damage.

use std::collections::{HashMap, HashSet};

use crate::access::Access;
use crate::checkpoint::{CheckpointRow, CheckpointState};
use crate::clock::{Period, Timestamp, Zone};
use crate::error::Result;
use crate::id::{CheckpointId, Seq, SessionName, WorkspaceId};
use crate::index::ReadTx;
use crate::journal;
use crate::limits;
use crate::manifest::Trigger;
use crate::retention::{KeepReason, PruneOutcome};
use crate::runs::Runs;
use crate::sessions::Found;
use crate::settings::PruneRule;

/// Keeps the newest of each of the last so many periods in which there is one.
struct Periods<'a> {
    zone: &'a Zone,
    period: Period,
    count: u32,
    seen: HashSet<i64>,
}

impl Periods<'_> {
    /// Whether a checkpoint of that time stays; those after it have been asked about before.
    fn keep(&mut self, time: Timestamp) -> bool {
        self.seen.len() < self.count as usize
            && self.seen.insert(self.zone.period(time, self.period))
    }
}

/// What stays whatever is asked for: pinned checkpoints, the newest of each workspace in each session, safety
/// checkpoints younger than a day, and what `protected` names. Pure.
pub(super) struct Always<'a> {
    protected: &'a HashSet<CheckpointId>,
    now: Timestamp,
    seen: HashSet<(String, WorkspaceId)>,
}

impl<'a> Always<'a> {
    pub(super) fn new(protected: &'a HashSet<CheckpointId>, now: Timestamp) -> Self {
        Self { protected, now, seen: HashSet::new() }
    }

    /// Why this one stays, if it does; of a session those with higher numbers have been asked about before.
    pub(super) fn keeps(&mut self, row: &CheckpointRow) -> Option<KeepReason> {
        // A capture builds upon the newest of its workspace, whatever made it.
        let is_newest = self.seen.insert((row.id.session.folded(), row.workspace));
        let is_young_safety =
            row.is_safety() && row.created_at.until(self.now) < limits::SAFETY_KEEP;
        let reasons = [
            (is_young_safety, KeepReason::Safety),
            (row.pin.pinned, KeepReason::Pinned),
            (is_newest, KeepReason::Newest),
            (self.protected.contains(&row.id), KeepReason::Needed),
        ];
        reasons.into_iter().find_map(|(is_so, reason)| is_so.then_some(reason))
    }
}

/// A checkpoint, and why it stays; nothing where it goes.
type Verdict<'a> = (&'a CheckpointRow, Option<KeepReason>);

/// Computes which checkpoints of a session stay by a rule, and which go; in order. Pure.
///
/// Kept: what the rule keeps, pinned or not, safety checkpoints counted apart; and what [`Always`] keeps. Newer
/// is what has the higher number; that a time lies in the future makes a checkpoint no younger than new.
fn by_rule<'a>(
    rows: &'a [CheckpointRow],
    rule: PruneRule,
    protected: &HashSet<CheckpointId>,
    now: Timestamp,
    zone: &Zone,
) -> Vec<Verdict<'a>> {
    let mut live: Vec<&CheckpointRow> =
        rows.iter().filter(|row| row.state == CheckpointState::Live).collect();
    live.sort_by_key(|row| std::cmp::Reverse(row.id.seq));
    let keep = rule.keep as usize;
    let mut periods = [
        (Period::Hour, rule.keep_hourly),
        (Period::Day, rule.keep_daily),
        (Period::Week, rule.keep_weekly),
    ]
    .map(|(period, count)| Periods { zone, period, count, seen: HashSet::new() });
    let plain_numbers = live.iter().filter(|row| !row.is_safety()).map(|row| row.id.seq);
    let first = plain_numbers.min().filter(|_| rule.keep_first);
    let (mut plain, mut safety) = (0, 0);
    let mut always = Always::new(protected, now);
    let mut verdicts = Vec::new();
    for row in live {
        let count = if row.is_safety() { &mut safety } else { &mut plain };
        *count += 1;
        let is_young = !row.is_safety() && row.created_at.until(now) < rule.keep_within;
        let mut is_of_period = false;
        if !row.is_safety() {
            for periods in &mut periods {
                is_of_period |= periods.keep(row.created_at);
            }
        }
        let is_by_rule = *count <= keep || is_young || is_of_period || first == Some(row.id.seq);
        let of_rule = if row.is_safety() { KeepReason::Safety } else { KeepReason::Rule };
        // Asked in any case: it remembers which were the newest.
        let in_any_case = always.keeps(row);
        verdicts.push((row, is_by_rule.then_some(of_rule).or(in_any_case)));
    }
    verdicts.reverse();
    verdicts
}

/// The same where the session is deleted: all go but those that `protected` names, those after `last`, and
/// pinned ones where these are not to go too. Pure.
fn by_deletion<'a>(
    rows: &'a [CheckpointRow],
    with_pinned: bool,
    last: Option<Seq>,
    protected: &HashSet<CheckpointId>,
) -> Vec<Verdict<'a>> {
    let verdict = |row: &'a CheckpointRow| {
        let reasons = [
            (!with_pinned && row.pin.pinned, KeepReason::Pinned),
            (protected.contains(&row.id), KeepReason::Needed),
            (last.is_some_and(|last| row.id.seq > last), KeepReason::Newer),
        ];
        (row, reasons.into_iter().find_map(|(is_so, reason)| is_so.then_some(reason)))
    };
    let live = rows.iter().filter(|row| row.state == CheckpointState::Live);
    let mut verdicts: Vec<Verdict<'_>> = live.map(verdict).collect();
    verdicts.sort_unstable_by_key(|(row, _)| row.id.seq);
    verdicts
}

/// Leaves those out of `going` that say of one that stays that it was taken back: without them the next undo
/// or redo would be about it again. Pure.
///
/// `taken_back` has for the safety checkpoint of each undo and redo that of what it took back.
pub(super) fn leave_links(
    going: &mut Vec<CheckpointId>,
    taken_back: &HashMap<CheckpointId, CheckpointId>,
) {
    loop {
        let goes: HashSet<&CheckpointId> = going.iter().collect();
        let is_link =
            |id: &CheckpointId| taken_back.get(id).is_some_and(|earlier| !goes.contains(earlier));
        // What stays may itself be what another took back.
        let links: HashSet<CheckpointId> = going.iter().filter(|id| is_link(id)).cloned().collect();
        if links.is_empty() {
            return;
        }
        going.retain(|id| !links.contains(id));
    }
}

/// Whether the checkpoint's file says that it is pinned, or cannot be understood: the row only repeats
/// it, and a power cut may have taken what it repeated last.
pub(super) fn is_pinned(access: &Access, id: &CheckpointId) -> bool {
    !access.sessions.read_pin(id).is_ok_and(|pin| !pin.pinned)
}

/// By which decision checkpoints go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Going<'a> {
    /// By rule.
    Rule {
        /// Which one.
        rule: PruneRule,
        /// Of what it drops these alone, where somebody has agreed to them.
        agreed: Option<&'a HashSet<CheckpointId>>,
    },
    /// The session is deleted: all go but what an operation or an open restore relies on, and but pinned
    /// ones where these are not to go too.
    Session {
        /// Whether pinned ones go too.
        with_pinned: bool,
        /// Those with higher numbers stay: they came after it was decided.
        last: Option<Seq>,
    },
}

/// What a prune of these sessions would drop once those that are `missing` are given up.
///
/// # Errors
/// A journal that cannot be understood stops it: nobody knows what that restore needs.
pub(crate) fn plan_prune(
    access: &Access,
    sessions: &[SessionName],
    going: Going<'_>,
    missing: &[CheckpointId],
) -> Result<PruneOutcome> {
    access.index.read("plan a prune", |tx| plan_in(access, &tx, sessions, going, missing))
}

/// The plan, seen from inside a transaction.
fn plan_in(
    access: &Access,
    tx: &ReadTx<'_>,
    sessions: &[SessionName],
    going: Going<'_>,
    missing: &[CheckpointId],
) -> Result<PruneOutcome> {
    let mut protected = tx.protected_checkpoints()?;
    protected.extend(journal::needed_by_journals(&access.layout)?);
    let (now, zone) = (Timestamp::now(), Zone::local());
    let mut outcome = PruneOutcome::default();
    let (mut has_safety, mut of_commands) = (false, HashSet::new());
    for session in sessions {
        let mut rows = tx.checkpoints_of_session(session)?;
        rows.retain(|row| !missing.contains(&row.id));
        let is_agreed = |id: &CheckpointId| match going {
            Going::Rule { agreed: Some(agreed), .. } => agreed.contains(id),
            _ => true,
        };
        let verdicts = match going {
            Going::Rule { rule, .. } => by_rule(&rows, rule, &protected, now, &zone),
            Going::Session { with_pinned, last } => {
                by_deletion(&rows, with_pinned, last, &protected)
            }
        };
        let with_pinned = matches!(going, Going::Session { with_pinned: true, .. });
        for (row, stays) in verdicts {
            let id = row.id.clone();
            let is_pinned =
                || (!with_pinned && is_pinned(access, &id)).then_some(KeepReason::Pinned);
            let is_newer = || (!is_agreed(&id)).then_some(KeepReason::Newer);
            if let Some(reason) = stays.or_else(is_pinned).or_else(is_newer) {
                outcome.kept.push((id, reason));
                continue;
            }
            has_safety |= row.is_safety();
            if row.trigger == Trigger::EXEC {
                of_commands.insert(id.clone());
            }
            outcome.pruned.push(id);
        }
    }
    // A session that is deleted goes as a whole. Else few prunes concern a safety checkpoint, and only
    // these look at all rows.
    if has_safety && matches!(going, Going::Rule { .. }) {
        let mut going = outcome.pruned.clone();
        leave_links(&mut going, &tx.taken_back()?);
        let going: HashSet<CheckpointId> = going.into_iter().collect();
        spare(&mut outcome, KeepReason::Undo, |id| !going.contains(id));
    }
    // Nor does the end of each turn look at all runs.
    if !of_commands.is_empty() && matches!(going, Going::Rule { .. }) {
        let begun = Runs::new(&access.layout).beginnings()?.unwrap_or(of_commands);
        spare(&mut outcome, KeepReason::Run, |id| begun.contains(id));
    }
    Ok(outcome)
}

/// Some of those that were to go stay after all.
fn spare(
    outcome: &mut PruneOutcome,
    reason: KeepReason,
    is_spared: impl Fn(&CheckpointId) -> bool,
) {
    let (spared, pruned) = outcome.pruned.drain(..).partition(is_spared);
    outcome.pruned = pruned;
    let spared: Vec<CheckpointId> = spared;
    outcome.kept.extend(spared.into_iter().map(|id| (id, reason)));
    outcome.kept.sort();
}

/// Drops checkpoints. A base or target that an operation came to rely on after the plan stays.
///
/// # Durability
/// The marks survive a power cut before the first file is unlinked.
pub(crate) fn prune(
    access: &Access,
    sessions: &[SessionName],
    going: Going<'_>,
) -> Result<PruneOutcome> {
    let outcome = mark(access, sessions, going)?;
    drop_marked(access, &outcome.pruned)?;
    Ok(outcome)
}

/// Marks what a prune of one session, by the rule of the store, would drop: to every reader that is as
/// good as gone.
///
/// The files are unlinked by [`unlink`], and the next checkpoint of the session takes the rows away in
/// its own transaction, once its own name, and with it these unlinks, are durable. It also unlinks what
/// a killed process did not.
pub(crate) fn mark_behind(access: &Access, session: &SessionName) -> Result<PruneOutcome> {
    let going = Going::Rule { rule: access.upkeep.rule, agreed: None };
    mark(access, std::slice::from_ref(session), going)
}

/// Unlinks the files of checkpoints that [`mark_behind`] has marked. What cannot be unlinked is left to
/// the next checkpoint of the session, to a prune or to a collection.
pub(crate) fn unlink(access: &Access, marked: &[CheckpointId]) {
    for id in marked {
        drop(access.sessions.remove(id));
    }
}

fn mark(access: &Access, sessions: &[SessionName], going: Going<'_>) -> Result<PruneOutcome> {
    let planned = plan_prune(access, sessions, going, &[])?;
    if planned.pruned.is_empty() {
        return Ok(planned);
    }
    // Planned again where it is decided: a pin, or an operation, that came in between is seen here.
    access.index.write_durably("mark checkpoints", |tx| {
        let mut outcome = plan_in(access, &tx, sessions, going, &[])?;
        outcome.pruned = tx.mark_pruning(&outcome.pruned)?;
        Ok(outcome)
    })
}

/// Drops one checkpoint, whatever the rules say: what a restore had saved that did not happen. It stays
/// if somebody has pinned it. Returns whether it was dropped.
///
/// # Durability
/// As [`prune`].
pub(crate) fn drop_one(access: &Access, id: &CheckpointId) -> Result<bool> {
    let marked = access.index.write_durably("mark a checkpoint", |tx| {
        if tx.checkpoint(id)?.is_some_and(|row| row.pin.pinned) || is_pinned(access, id) {
            return Ok(Vec::new());
        }
        tx.mark_pruning(std::slice::from_ref(id))
    })?;
    drop_marked(access, &marked)?;
    Ok(!marked.is_empty())
}

/// The checkpoints of a session whose manifests are gone although nobody pruned them.
pub(crate) fn missing(access: &Access, session: &SessionName) -> Result<Vec<CheckpointId>> {
    let read = |tx: ReadTx<'_>| tx.checkpoints_of_session(session);
    let is_gone = |row: &CheckpointRow| {
        row.state == CheckpointState::Live && matches!(access.sessions.read(&row.id), Found::Absent)
    };
    let gone: Vec<CheckpointId> = access
        .index
        .read("list a session", read)?
        .into_iter()
        .filter(is_gone)
        .map(|row| row.id)
        .collect();
    if gone.is_empty() {
        return Ok(gone);
    }
    // Asked again: one that was pruned in between is not missing.
    let live: HashSet<CheckpointId> = access
        .index
        .read("list a session", read)?
        .into_iter()
        .filter(|row| row.state == CheckpointState::Live)
        .map(|row| row.id)
        .collect();
    Ok(gone.into_iter().filter(|id| live.contains(id)).collect())
}

/// Decides that checkpoints whose manifests are missing are gone: the rows go, and what only they
/// named may be swept. Gives those dropped; one that an operation relies on stays.
///
/// # Durability
/// As [`prune`].
pub(crate) fn drop_missing(access: &Access, ids: &[CheckpointId]) -> Result<Vec<CheckpointId>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let marked = access.index.write_durably("mark checkpoints", |tx| tx.mark_pruning(ids))?;
    drop_marked(access, &marked)?;
    Ok(marked)
}

/// Finishes what a capture or an interrupted prune has marked.
pub(crate) fn finish_pruning(access: &Access) -> Result<()> {
    let marked = access.index.read("list marked checkpoints", |tx| tx.pruning_checkpoints())?;
    drop_marked(access, &marked)
}

fn drop_marked(access: &Access, marked: &[CheckpointId]) -> Result<()> {
    let mut highest: HashMap<&SessionName, &CheckpointId> = HashMap::new();
    for id in marked {
        let known = highest.entry(&id.session).or_insert(id);
        if known.seq < id.seq {
            *known = id;
        }
    }
    // Before the files go that say it was given: no index may be left to know it.
    for id in highest.into_values() {
        access.sessions.keep_number(id, &access.tmp)?;
    }
    for id in marked {
        access.sessions.remove(id)?;
    }
    // The unlinks are durable before the rows go: a power cut in between must not bring a manifest
    // back whose blobs a sweep has taken since.
    let sessions: HashSet<&SessionName> = marked.iter().map(|id| &id.session).collect();
    for session in sessions {
        access.sessions.sync(session)?;
    }
    for id in marked {
        access.index.write("delete a checkpoint", |tx| tx.delete_checkpoint(id))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::checkpoint::PinFile;
    use crate::hash::{BlobHash, Digest};
    use crate::id::OperationId;
    use crate::manifest::{Tree, Trigger};

    const MINUTE: i64 = 60 * 1_000_000_000;
    const DAY: i64 = 24 * 60 * MINUTE;

    fn row(seq: u64, at_ns: i64, trigger: Trigger) -> CheckpointRow {
        CheckpointRow {
            id: CheckpointId { session: "s".parse().unwrap(), seq: Seq::new(seq).unwrap() },
            digest: Digest::of(b""),
            manifest_bytes: 0,
            op: OperationId::random(),
            workspace: WorkspaceId::from_bytes([1; 16]),
            created_at: Timestamp::from_ns(at_ns),
            manifest_label: None,
            trigger,
            complete: true,
            state: CheckpointState::Live,
            pin: PinFile::default(),
            tree: Tree { root: BlobHash::of(b""), root_size: 0, levels: 1, entries: 0 },
            after: None,
        }
    }

    /// The numbers that stay of checkpoints that were made at these times, the first with number 0.
    fn kept(times_ns: &[i64], rule: PruneRule, now_ns: i64) -> Vec<u64> {
        let rows: Vec<CheckpointRow> =
            (0..).zip(times_ns).map(|(seq, &at)| row(seq, at, Trigger::MANUAL)).collect();
        let now = Timestamp::from_ns(now_ns);
        let protected = HashSet::new();
        let verdicts = by_rule(&rows, rule, &protected, now, &Zone::utc());
        assert_eq!(verdicts.len(), rows.len());
        let stay = verdicts.iter().filter(|(_, stays)| stays.is_some());
        stay.map(|(row, _)| row.id.seq.get()).collect()
    }

    const NONE: PruneRule = PruneRule {
        keep: 0,
        keep_within: Duration::ZERO,
        keep_hourly: 0,
        keep_daily: 0,
        keep_weekly: 0,
        keep_first: false,
    };

    #[test]
    fn each_rule_keeps_the_newest_of_its_periods_and_together_they_keep_what_each_keeps() {
        // Four a day, at 0, 6, 12 and 18 o'clock, for ten days that begin on a Thursday.
        let times: Vec<i64> = (0..40).map(|number| number * 6 * 60 * MINUTE).collect();
        let now = 10 * DAY;
        assert_eq!(kept(&times, NONE, now), [39], "the newest of the workspace stays");
        assert_eq!(kept(&times, PruneRule { keep: 3, ..NONE }, now), [37, 38, 39]);
        assert_eq!(kept(&times, PruneRule { keep_daily: 3, ..NONE }, now), [31, 35, 39]);
        assert_eq!(kept(&times, PruneRule { keep_hourly: 2, ..NONE }, now), [38, 39]);
        // Monday is the fifth day.
        assert_eq!(kept(&times, PruneRule { keep_weekly: 5, ..NONE }, now), [15, 39]);
        let day = Duration::from_hours(24);
        assert_eq!(kept(&times, PruneRule { keep_within: day, ..NONE }, now), [37, 38, 39]);
        assert_eq!(kept(&times, PruneRule { keep: 2, keep_first: true, ..NONE }, now), [0, 38, 39]);
        let all = PruneRule { keep: 2, keep_daily: 2, keep_weekly: 2, keep_within: day, ..NONE };
        assert_eq!(kept(&times, all, now), [15, 35, 37, 38, 39]);
    }

    #[test]
    fn a_clock_that_was_set_back_does_not_make_an_older_number_the_newest() {
        let times = [9 * DAY, 9 * DAY + MINUTE, 2 * DAY, 2 * DAY + MINUTE];
        assert_eq!(kept(&times, PruneRule { keep_daily: 1, ..NONE }, 3 * DAY), [3]);
        assert_eq!(kept(&times, PruneRule { keep_daily: 2, ..NONE }, 3 * DAY), [1, 3]);
        // What is from the future is not old.
        let rule = PruneRule { keep_within: Duration::from_secs(1), ..NONE };
        assert_eq!(kept(&times, rule, 3 * DAY), [0, 1, 3]);
    }

    #[test]
    fn periods_are_about_what_people_made() {
        let rows = [
            row(0, 0, Trigger::MANUAL),
            row(1, MINUTE, Trigger::PRE_RESTORE),
            row(2, 3 * DAY, Trigger::MANUAL),
        ];
        let rule = PruneRule { keep_daily: 2, ..NONE };
        let now = Timestamp::from_ns(5 * DAY);
        let reasons = |verdicts: Vec<Verdict<'_>>| -> Vec<Option<KeepReason>> {
            verdicts.into_iter().map(|(_, stays)| stays).collect()
        };
        let by_rule = |protected: &HashSet<CheckpointId>| {
            reasons(by_rule(&rows, rule, protected, now, &Zone::utc()))
        };
        let (kept, needed) = (Some(KeepReason::Rule), Some(KeepReason::Needed));
        assert_eq!(by_rule(&HashSet::new()), [kept, None, kept]);
        let protected = HashSet::from([rows[1].id.clone()]);
        assert_eq!(by_rule(&protected), [kept, needed, kept]);
        let newer = Some(KeepReason::Newer);
        assert_eq!(reasons(by_deletion(&rows, true, None, &protected)), [None, needed, None]);
        let last = Seq::new(0);
        assert_eq!(reasons(by_deletion(&rows, true, last, &protected)), [None, needed, newer]);
    }

    #[test]
    fn each_that_stays_has_the_first_of_its_reasons() {
        let pinned = |seq, trigger| {
            let pin = PinFile { pinned: true, ..PinFile::default() };
            CheckpointRow { pin, ..row(seq, 0, trigger) }
        };
        let of_other = |row: CheckpointRow| {
            let workspace = WorkspaceId::random();
            CheckpointRow { workspace, ..row }
        };
        let rows = [
            row(0, 0, Trigger::MANUAL),
            of_other(pinned(1, Trigger::MANUAL)),
            of_other(row(2, 0, Trigger::MANUAL)),
            pinned(3, Trigger::PRE_RESTORE),
            row(4, 5 * DAY - MINUTE, Trigger::PRE_RESTORE),
            row(5, 0, Trigger::PRE_RESTORE),
            pinned(6, Trigger::MANUAL),
        ];
        let rule = PruneRule { keep: 1, ..NONE };
        let protected = HashSet::new();
        let verdicts = by_rule(&rows, rule, &protected, Timestamp::from_ns(5 * DAY), &Zone::utc());
        let reasons: Vec<_> = verdicts.into_iter().map(|(_, stays)| stays).collect();
        let [rule, safety, pinned, newest] =
            [KeepReason::Rule, KeepReason::Safety, KeepReason::Pinned, KeepReason::Newest]
                .map(Some);
        assert_eq!(reasons, [None, pinned, newest, pinned, safety, safety, rule]);
    }
}
