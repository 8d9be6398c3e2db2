//! What a capture needs to read: a merge of what was seen with what is known. Nothing is opened here.

use std::collections::HashSet;
use std::iter::Peekable;

use crate::capture::hold::{Held, ReadOutcome, ReadResult};
use crate::checkpoint::CaptureProblem;
use crate::disk::FileStat;
use crate::hash::BlobHash;
use crate::manifest::{Counts, Entry, EntryKind, Mode, OmitReason};
use crate::path::RelPath;
use crate::settings::ScopeSettings;
use crate::walk::{CachedEntry, Observed, Stamps, What};

/// When the tree was looked at, and how well its file system tells times apart.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    pub(super) start_ns: i64,
    pub(super) granularity_ns: i64,
}

impl Moment {
    fn entry(self, entry: Entry, stat: &FileStat) -> CachedEntry {
        if matches!(entry.kind, EntryKind::Omitted { .. }) {
            // A log that grows and is not held is no news.
            let stamps = Stamps { inode: stat.ino, ..Stamps::default() };
            return CachedEntry { entry, stamps, racy: false };
        }
        let stamps = Stamps::of(stat);
        let racy = stamps.are_racy(self.start_ns, self.granularity_ns);
        CachedEntry { entry, stamps, racy }
    }
}

/// What is known of the tree before it is looked at.
#[derive(Debug)]
pub(super) struct Known {
    /// The base's entries, in order.
    pub(super) entries: Vec<CachedEntry>,
    /// Which of them the walk found as they were, and did not report; empty where it reported all.
    pub(super) kept: Vec<bool>,
    /// Whether equal stamps prove equal content.
    pub(super) are_trusted: bool,
}

/// A path on its way to becoming an entry.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) path: RelPath,
    pub(super) stat: FileStat,
    /// The base's entry at this path.
    known: Option<CachedEntry>,
    /// `None` until it was read, or if it vanished.
    now: Option<CachedEntry>,
}

impl Slot {
    /// Takes in what reading the file came to.
    pub(super) fn take_outcome(&mut self, outcome: &ReadOutcome, moment: Moment) {
        if let Some(stat) = outcome.stat {
            self.stat = stat;
        }
        let kind = match outcome.result {
            ReadResult::Vanished => return,
            ReadResult::Omitted(reason) => EntryKind::Omitted { reason, rest: 0 },
            ReadResult::Hashed { hash, size, unstable } => {
                // Where only the time moved the base's entry stays, so that its page does.
                let mtime_ns = match self.known.as_ref().map(|known| &known.entry.kind) {
                    Some(EntryKind::File { hash: old, mtime_ns, .. }) if *old == hash => *mtime_ns,
                    _ => self.stat.mtime_ns,
                };
                EntryKind::File { size, mtime_ns, hash, unstable }
            }
        };
        let entry = Entry { path: self.path.clone(), mode: self.stat.mode, kind };
        self.now = Some(moment.entry(entry, &self.stat));
    }
}

/// One path of the result, in order.
#[derive(Debug)]
enum Row {
    /// The base's entry, with what the file system said if the walk reported it.
    Reused(CachedEntry, Option<FileStat>),
    /// The next of the slots.
    Slot,
}

/// Which files need reading, and everything else already decided.
#[derive(Debug)]
pub(super) struct Decided {
    rows: Vec<Row>,
    pub(super) slots: Vec<Slot>,
    /// The slots whose files are to be read.
    pub(super) to_read: Vec<usize>,
    /// Paths that are known and were not found again.
    gone: Vec<RelPath>,
    are_trusted: bool,
}

/// Merges what was seen with what is known: which files need no reading.
pub(super) fn decide(
    observations: Vec<Observed>,
    known: Known,
    lost: &HashSet<BlobHash>,
    settings: &ScopeSettings,
    moment: Moment,
) -> Decided {
    let Known { entries, kept, are_trusted } = known;
    let mut decided = Decided {
        rows: Vec::with_capacity(entries.len().max(observations.len())),
        slots: Vec::new(),
        to_read: Vec::new(),
        gone: Vec::new(),
        are_trusted,
    };
    let kept = kept.into_iter().chain(std::iter::repeat(false));
    let mut known = entries.into_iter().zip(kept).peekable();
    let mut total_bytes = 0u64;
    for Observed { path, stat, what } in observations {
        decided.take_kept(&mut known, |known| known.entry.path < path, lost);
        let old = known.next_if(|(known, _)| known.entry.path == path).map(|(known, _)| known);
        let mut kind = match what {
            What::File => {
                total_bytes = total_bytes.saturating_add(stat.size);
                let limit = settings.total_limit_bytes;
                let is_over = limit.is_some_and(|limit| total_bytes > limit);
                is_over
                    .then_some(EntryKind::Omitted { reason: OmitReason::OverTotalLimit, rest: 0 })
            }
            What::Symlink { target } => Some(EntryKind::Symlink { target }),
            What::Dir { listed } => Some(EntryKind::Dir { listed }),
            What::Omitted { reason, rest } => Some(EntryKind::Omitted { reason, rest }),
        };
        let Some(kind) = kind.take() else {
            match old {
                Some(old) if are_trusted && vouches(&old, &stat, lost) => {
                    decided.rows.push(Row::Reused(old, Some(stat)));
                }
                old => decided.read(path, stat, old),
            }
            continue;
        };
        let mode = match kind {
            EntryKind::Symlink { .. } => Mode::from_st_mode(0o777),
            _ => stat.mode,
        };
        let now = moment.entry(Entry { path: path.clone(), mode, kind }, &stat);
        decided.rows.push(Row::Slot);
        decided.slots.push(Slot { path, stat, known: old, now: Some(now) });
    }
    decided.take_kept(&mut known, |_| true, lost);
    decided
}

/// Whether the content of a known entry is still that of the file with this stat, which need not be
/// opened then.
fn vouches(known: &CachedEntry, stat: &FileStat, lost: &HashSet<BlobHash>) -> bool {
    match known.entry.kind {
        EntryKind::File { hash, unstable: false, .. } => {
            !known.racy
                && known.stamps == Stamps::of(stat)
                && known.entry.mode == stat.mode
                && !lost.contains(&hash)
        }
        _ => false,
    }
}

impl Decided {
    fn read(&mut self, path: RelPath, stat: FileStat, known: Option<CachedEntry>) {
        self.to_read.push(self.slots.len());
        self.rows.push(Row::Slot);
        self.slots.push(Slot { path, stat, known, now: None });
    }

    /// Takes over what is known and was kept, as far as `before` says, and lets go of the others.
    fn take_kept(
        &mut self,
        known: &mut Peekable<impl Iterator<Item = (CachedEntry, bool)>>,
        before: impl Fn(&CachedEntry) -> bool,
        lost: &HashSet<BlobHash>,
    ) {
        while let Some((entry, is_kept)) = known.next_if(|(known, _)| before(known)) {
            let is_lost = || entry.entry.blob().is_some_and(|(hash, _)| lost.contains(&hash));
            match is_kept {
                false => self.gone.push(entry.entry.path),
                true if !lost.is_empty() && is_lost() => {
                    let Observed { path, stat, .. } = Observed::as_known(&entry);
                    self.read(path, stat, Some(entry));
                }
                true => self.rows.push(Row::Reused(entry, None)),
            }
        }
    }

    /// The result, when all that had to be read was.
    pub(super) fn finish(self, counts: Counts) -> Held {
        let Self { rows, slots, gone: mut changed, are_trusted, .. } = self;
        let mut held = Held {
            entries: Vec::with_capacity(rows.len()),
            stats: Vec::new(),
            rules: None,
            changed: Vec::new(),
            same_as_base: true,
            cache_is_current: are_trusted,
            counts,
            complete: true,
            problems: Vec::new(),
            problem_count: 0,
        };
        let mut slots = slots.into_iter();
        for row in rows {
            match row {
                Row::Reused(entry, stat) => {
                    let is_file = matches!(entry.entry.kind, EntryKind::File { .. });
                    held.counts.files_reused += u64::from(is_file);
                    held.stats.extend(stat);
                    held.add(entry);
                }
                Row::Slot => {
                    let Some(Slot { path, stat, known, now }) = slots.next() else { break };
                    let is_as_before = match (&known, &now) {
                        (Some(known), Some(now)) => known.entry == now.entry,
                        (None, None) => true,
                        _ => false,
                    };
                    if !is_as_before {
                        changed.push(path);
                    }
                    // It vanished.
                    let Some(now) = now else { continue };
                    held.cache_is_current &= known.as_ref() == Some(&now);
                    held.stats.push(stat);
                    held.add(now);
                }
            }
        }
        changed.sort_unstable();
        held.same_as_base = changed.is_empty();
        held.changed = changed;
        held.cache_is_current &= held.same_as_base;
        held.problem_count = held.problems.len() as u64;
        held
    }
}

impl Held {
    fn add(&mut self, cached: CachedEntry) {
        let path = &cached.entry.path;
        match &cached.entry.kind {
            EntryKind::File { unstable, .. } => {
                self.counts.files_observed += 1;
                if *unstable {
                    self.complete = false;
                    self.problems.push(CaptureProblem { path: path.clone(), reason: None });
                }
            }
            EntryKind::Symlink { .. } => self.counts.files_observed += 1,
            EntryKind::Omitted { reason, rest } => {
                *self.counts.omitted.entry(*reason).or_default() += 1 + rest;
                if reason.is_failure() {
                    self.complete = false;
                    let reason = Some(*reason);
                    self.problems.push(CaptureProblem { path: path.clone(), reason });
                }
            }
            EntryKind::Dir { .. } | EntryKind::Absent => {}
        }
        self.entries.push(cached);
    }
}
