//! Keeping a store within its budget, and room on its disk.

use std::time::Duration;

use crate::access::Access;
use crate::clock::Timestamp;
use crate::disk::{self, Dir};
use crate::error::Result;
use crate::layout::TALLY;
use crate::monitor::{Monitor, Notice};
use crate::retention::{self, EvictOutcome, Tightness};
use crate::store::log;

/// How long after it was told that nothing more may go a capture looks again.
const LOOK_AGAIN: Duration = Duration::from_mins(10);

/// The longest text of a tally.
const TALLY_BYTES_MAX: u64 = 256;

/// What is remembered between two captures, so that a turn need not count the content of the store.
/// Only a hint: where it is lost, or several captures write it at once, it is too high or too low until
/// the content is counted again, which is before anything goes, and after each sweep.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Tally {
    /// How many bytes of content are named, at most.
    content_bytes: Option<u64>,
    /// When it was last found that they are too many and none may go, if it was so then. Not the time of
    /// the file, which each capture writes.
    told_at: Option<Timestamp>,
}

impl Tally {
    fn read(access: &Access) -> Self {
        let text = disk::read_small(&access.layout.tally(), TALLY_BYTES_MAX).ok().flatten();
        let text = text.and_then(|text| String::from_utf8(text).ok()).unwrap_or_default();
        let mut words = text.split_whitespace();
        let content_bytes = words.next().and_then(|word| word.parse().ok());
        let told_at = words.next().and_then(|word| word.parse().ok()).map(Timestamp::from_ns);
        Self { content_bytes, told_at }
    }

    fn write(self, access: &Access) -> Result<()> {
        let Some(bytes) = self.content_bytes else { return Ok(()) };
        let text = match self.told_at {
            Some(told_at) => format!("{bytes} {}\n", told_at.as_ns()),
            None => format!("{bytes}\n"),
        };
        let root = Dir::open(access.layout.root())?;
        disk::replace(&root, TALLY.as_bytes(), text.as_bytes(), &access.tmp)
    }

    /// Whether there is nothing to look for yet. A time that is yet to come, as of a clock that was set
    /// back, says nothing.
    fn was_just_told(self, now: Timestamp) -> bool {
        self.told_at.is_some_and(|told_at| told_at <= now && told_at.until(now) < LOOK_AGAIN)
    }
}

/// Forgets what was remembered: content went, and nobody has counted how much of it.
pub(super) fn forget_tally(access: &Access) -> Result<()> {
    disk::remove_file(&access.layout.tally()).map(|_| ())
}

/// After a capture that stored so many bytes: drops the oldest checkpoints if there is too much. Says
/// whether there was, so that a sweep is worth it earlier.
///
/// Cost: reading and writing one small file, and asking the file system how much is free. More only where
/// there seems to be too much.
pub(super) fn evict_if_needed(
    access: &Access,
    stored_bytes: u64,
    monitor: &dyn Monitor,
) -> Result<bool> {
    let (budget, floor) = (access.upkeep.budget_bytes, access.upkeep.floor_bytes);
    if budget.is_none() && floor.is_none() {
        return Ok(false);
    }
    let mut tally = Tally::read(access);
    let known = tally.content_bytes.map(|bytes| bytes.saturating_add(stored_bytes));
    let is_over = budget.is_some_and(|budget| known.is_none_or(|known| known > budget));
    let is_low = match floor {
        Some(floor) => disk::available_bytes(&access.tmp)? < floor,
        None => false,
    };
    if tally.was_just_told(Timestamp::now()) {
        // What this capture stored is counted all the same: else it would never be, and a raised budget
        // would find less than there is.
        tally.content_bytes = known;
        tally.write(access)?;
        return Ok(is_over || is_low);
    }
    let is_tight = if is_over || is_low {
        let outcome = evict(access, monitor)?;
        if !outcome.evicted.is_empty() || (outcome.short_bytes > 0 && tally.told_at.is_none()) {
            monitor.notice(&Notice::Evicted {
                checkpoints: outcome.evicted.len() as u64,
                because: outcome.because.map_or("", Tightness::as_str),
                released_bytes: outcome.released_bytes,
                short_bytes: outcome.short_bytes,
            });
        }
        tally.told_at = (outcome.short_bytes > 0).then(Timestamp::now);
        tally.content_bytes = Some(outcome.content_bytes);
        // Where nobody had counted the content may fit the budget. What is to be swept counts as free: that
        // the disk is short says that it is time.
        is_low || outcome.because.is_some()
    } else {
        tally = Tally { content_bytes: known, told_at: None };
        false
    };
    tally.write(access)?;
    Ok(is_tight)
}

/// Drops the oldest checkpoints if there is too much.
pub(super) fn evict(access: &Access, monitor: &dyn Monitor) -> Result<EvictOutcome> {
    let planned = retention::plan_eviction(access, &[])?;
    let outcome = retention::mark_evicted(access, planned)?;
    let Some(because) = outcome.because else { return Ok(outcome) };
    if !outcome.evicted.is_empty() {
        // Written down first: whoever finishes this after a crash does not know why it was done.
        let ids: Vec<_> = outcome.evicted.iter().map(log::id).collect();
        let details = serde_json::json!({
            "checkpoints": ids,
            "why": because.as_str(),
            "bytes": outcome.released_bytes,
        });
        if let Err(error) = log::append(access, "evict", details) {
            log::tell_unwritten(&error, monitor);
        }
        retention::finish_pruning(access)?;
    }
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use crate::hash::Digest;
    use crate::id::{Seq, SessionName};
    use crate::retention;
    use crate::settings::Upkeep;
    use crate::{CaptureOptions, ListQuery, Store};

    /// Captures 400,000 bytes that no compression makes shorter, others for each number.
    fn capture(store: &Store, root: &Path, session: &str, number: u64) {
        let digest = |word: u64| Digest::of(&[word.to_le_bytes(), number.to_le_bytes()].concat());
        let noise: Vec<u8> = (0..25_000).flat_map(|word| digest(word).to_bytes()).collect();
        fs::write(root.join("noise"), noise).unwrap();
        let options =
            CaptureOptions { session: Some(session.to_owned()), ..CaptureOptions::default() };
        let _outcome = store.capture(root, &options, &()).unwrap();
    }

    /// A budget that nobody has counted against is no reason for a sweep after each turn.
    #[test]
    fn a_store_within_its_budget_is_not_tight_where_nobody_has_counted() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("workspace");
        fs::create_dir(&root).unwrap();
        let store = Store::at(&place.path().join("home"));
        capture(&store, &root, "s", 0);
        for (budget, is_tight) in [(1_000_000_000, false), (1_000, true)] {
            let upkeep = Upkeep { budget_bytes: Some(budget), ..Upkeep::default() };
            let access =
                Store::at(&place.path().join("home")).with_upkeep(upkeep).enter(&()).unwrap();
            super::forget_tally(&access).unwrap();
            assert_eq!(super::evict_if_needed(&access, 0, &()).unwrap(), is_tight);
        }
    }

    /// Between what was planned and what is marked another process may prune what is enough by itself.
    #[test]
    fn what_others_have_dropped_meanwhile_is_not_dropped_twice() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("workspace");
        fs::create_dir(&root).unwrap();
        let store = Store::at(&place.path().join("home"));
        let other: SessionName = "t".parse().unwrap();
        for number in 0..3 {
            capture(&store, &root, "s", number);
        }
        for number in 3..6 {
            capture(&store, &root, "t", number);
        }
        let upkeep = Upkeep { budget_bytes: Some(1_400_000), ..Upkeep::default() };
        let store = store.with_upkeep(upkeep);
        let access = store.enter(&()).unwrap();
        let planned = retention::plan_eviction(&access, &[]).unwrap();
        assert_eq!(planned.outcome.evicted.len(), 3);
        store.delete_session(&other, false, None, &()).unwrap();
        let done = retention::mark_evicted(&access, planned).unwrap();
        assert_eq!(done.evicted, []);
        let left = store.list(&ListQuery::Session("s".to_owned()), &()).unwrap();
        assert_eq!(
            left.checkpoints().map(|it| it.id.seq).collect::<Vec<_>>(),
            [0, 1, 2].map(|seq| Seq::new(seq).unwrap())
        );
    }
}
