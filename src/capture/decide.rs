//! What a capture needs to read: a merge of what was seen with what is known. Nothing is opened here.

use std::collections::HashSet;
use std::ops::Range;

use crate::capture::hold::{Held, ReadOutcome, ReadResult};
use crate::checkpoint::CaptureProblem;
use crate::disk::FileStat;
use crate::hash::BlobHash;
use crate::manifest::{Counts, Entry, EntryKind, Mode, OmitReason};
use crate::path::RelPath;
use crate::settings::ScopeSettings;
use crate::walk::{CachedEntry, Census, Observed, Stamps, What};

/// When the tree was looked at, and how well its file system tells times apart.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    pub(super) start_ns: i64,
    pub(super) granularity_ns: i64,
}

impl Moment {
    /// Whether a file with this stat may have been changed since it was looked at without any stamp
    /// showing it.
    pub(super) fn is_racy(self, stat: &FileStat) -> bool {
        Stamps::of(stat).are_racy(self.start_ns, self.granularity_ns)
    }

    fn entry(self, entry: Entry, stat: &FileStat) -> CachedEntry {
        if matches!(entry.kind, EntryKind::Omitted { .. }) {
            // A log that grows and is not held is no news.
            let stamps = Stamps { inode: stat.ino, ..Stamps::default() };
            return CachedEntry { entry, stamps, racy: false };
        }
        CachedEntry { entry, stamps: Stamps::of(stat), racy: self.is_racy(stat) }
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
    /// What there is besides the entries, all of it as it was, where these are a part.
    pub(super) besides: Option<Census>,
}

/// A path on its way to becoming an entry.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) path: RelPath,
    pub(super) stat: FileStat,
    /// Which of the known entries is at this path.
    known: Option<usize>,
    /// `None` until it was read, or if it vanished.
    now: Option<CachedEntry>,
}

/// What becomes of the list of known entries at one place.
#[derive(Debug)]
struct Edit {
    /// The index of a known entry, or of the one before which something comes.
    at: usize,
    step: Step,
}

#[derive(Debug)]
enum Step {
    /// The entry stays; this is what the file system said.
    Stay(FileStat),
    /// It goes.
    Go,
    /// The next of the slots takes its place.
    Replace,
    /// The next of the slots comes before it.
    Insert,
}

/// Which files need reading, and everything else already decided.
#[derive(Debug)]
pub(super) struct Decided {
    /// The base's entries, in order. Those for which there is no edit stay.
    known: Vec<CachedEntry>,
    edits: Vec<Edit>,
    pub(super) slots: Vec<Slot>,
    /// The slots whose files are to be read.
    pub(super) to_read: Vec<usize>,
    are_trusted: bool,
    besides: Option<Census>,
}

/// Merges what was seen with what is known: which files need no reading.
///
/// Cost: what was seen, and a bit for each known entry.
pub(super) fn decide(
    observations: Vec<Observed>,
    known: Known,
    lost: &HashSet<BlobHash>,
    settings: &ScopeSettings,
    moment: Moment,
) -> Decided {
    let Known { entries: known, kept, are_trusted, besides } = known;
    let (edits, slots, to_read) = (Vec::new(), Vec::new(), Vec::new());
    let mut decided = Decided { known, edits, slots, to_read, are_trusted, besides };
    let mut at = 0;
    let mut total_bytes = 0u64;
    for Observed { path, stat, what } in observations {
        let found = decided.find(at, &path);
        let (Ok(next) | Err(next)) = found;
        decided.pass(at..next, &kept, lost);
        at = next + usize::from(found.is_ok());
        let old = found.ok();
        let kind = match what {
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
        let Some(kind) = kind else {
            match old {
                Some(old) if are_trusted && vouches(&decided.known[old], &stat, lost) => {
                    decided.edits.push(Edit { at: old, step: Step::Stay(stat) });
                }
                old => decided.read(path, stat, old, next),
            }
            continue;
        };
        let mode = match kind {
            EntryKind::Symlink { .. } => Mode::from_st_mode(0o777),
            _ => stat.mode,
        };
        let now = moment.entry(Entry { path: path.clone(), mode, kind }, &stat);
        decided.put(Slot { path, stat, known: old, now: Some(now) }, next);
    }
    let end = decided.known.len();
    decided.pass(at..end, &kept, lost);
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
    /// Where `path` is among the known entries from `from` on, or would be. What is looked for is most
    /// often near.
    fn find(&self, from: usize, path: &RelPath) -> Result<usize, usize> {
        let rest = &self.known[from..];
        let mut reach = 1;
        while rest.get(reach - 1).is_some_and(|known| known.entry.path < *path) {
            reach *= 2;
        }
        let (start, end) = (reach / 2, reach.min(rest.len()));
        let found = rest[start..end].binary_search_by(|known| known.entry.path.cmp(path));
        found.map(|at| from + start + at).map_err(|at| from + start + at)
    }

    fn put(&mut self, slot: Slot, at: usize) {
        let step = if slot.known.is_some() { Step::Replace } else { Step::Insert };
        self.edits.push(Edit { at, step });
        self.slots.push(slot);
    }

    fn read(&mut self, path: RelPath, stat: FileStat, known: Option<usize>, at: usize) {
        self.to_read.push(self.slots.len());
        self.put(Slot { path, stat, known, now: None }, at);
    }

    /// Goes past known entries that were not reported: those that the walk did not keep are gone.
    fn pass(&mut self, range: Range<usize>, kept: &[bool], lost: &HashSet<BlobHash>) {
        for at in range {
            let is_kept = kept.get(at).copied().unwrap_or(false);
            if !is_kept {
                self.edits.push(Edit { at, step: Step::Go });
            } else if !lost.is_empty() {
                let known = &self.known[at];
                if known.entry.blob().is_some_and(|(hash, _)| lost.contains(&hash)) {
                    let Observed { path, stat, .. } = Observed::as_known(known);
                    self.read(path, stat, Some(at), at);
                }
            }
        }
    }

    /// Takes in what reading the file of a slot came to.
    pub(super) fn take_outcome(&mut self, slot: usize, outcome: &ReadOutcome, moment: Moment) {
        let slot = &mut self.slots[slot];
        if let Some(stat) = outcome.stat {
            slot.stat = stat;
        }
        let kind = match outcome.result {
            ReadResult::Vanished => return,
            ReadResult::Omitted(reason) => EntryKind::Omitted { reason, rest: 0 },
            ReadResult::Hashed { hash, size, unstable } => {
                // Where only the time moved the base's entry stays, so that its page does.
                let known = slot.known.map(|at| &self.known[at].entry.kind);
                let mtime_ns = match known {
                    Some(EntryKind::File { hash: old, mtime_ns, .. }) if *old == hash => *mtime_ns,
                    _ => slot.stat.mtime_ns,
                };
                EntryKind::File { size, mtime_ns, hash, unstable }
            }
        };
        let entry = Entry { path: slot.path.clone(), mode: slot.stat.mode, kind };
        slot.now = Some(moment.entry(entry, &slot.stat));
    }

    /// The result, when all that had to be read was.
    pub(super) fn finish(self, counts: Counts) -> Held {
        let Self { known, edits, slots, are_trusted, besides, .. } = self;
        let mut held = Held {
            entries: Vec::new(),
            is_part: besides.is_some(),
            stats: Vec::new(),
            rules: None,
            has_new_rules: false,
            changed: Vec::new(),
            touched: Vec::new(),
            same_as_base: true,
            cache_is_current: are_trusted,
            counts,
            complete: true,
            problems: Vec::new(),
            problem_count: 0,
            lost: HashSet::new(),
            vanished: Vec::new(),
        };
        let is_file = |slot: &&Slot| {
            slot.now.as_ref().is_some_and(|now| matches!(now.entry.kind, EntryKind::File { .. }))
        };
        let not_reused = slots.iter().filter(is_file).count() as u64;
        let moves = |edit: &Edit| matches!(edit.step, Step::Go | Step::Insert);
        let entries = if edits.iter().any(moves) || slots.iter().any(|slot| slot.now.is_none()) {
            held.merge(known, edits, slots)
        } else {
            held.replace(known, edits, slots)
        };
        for cached in &entries {
            held.count(cached);
        }
        held.counts.files_reused -= not_reused;
        if let Some(besides) = besides {
            held.count_besides(&besides);
        }
        held.entries = entries;
        held.changed.sort_unstable();
        held.touched.sort_unstable();
        held.same_as_base = held.changed.is_empty();
        held.cache_is_current &= held.touched.is_empty();
        held.problem_count = held.problems.len() as u64;
        held
    }
}

impl Held {
    /// The entries where as many stay as there were.
    fn replace(
        &mut self,
        mut entries: Vec<CachedEntry>,
        edits: Vec<Edit>,
        slots: Vec<Slot>,
    ) -> Vec<CachedEntry> {
        let mut slots = slots.into_iter();
        for Edit { at, step } in edits {
            match step {
                Step::Stay(stat) => self.stats.push(stat),
                Step::Go | Step::Insert | Step::Replace => {
                    let Some(slot) = slots.next() else { break };
                    if let Some(now) = self.settle(entries.get(at), slot) {
                        entries[at] = now;
                    }
                }
            }
        }
        entries
    }

    /// The entries where some come or go.
    fn merge(
        &mut self,
        known: Vec<CachedEntry>,
        edits: Vec<Edit>,
        slots: Vec<Slot>,
    ) -> Vec<CachedEntry> {
        let mut entries = Vec::with_capacity(known.len() + slots.len());
        let mut slots = slots.into_iter();
        let mut known = known.into_iter().enumerate().peekable();
        for Edit { at, step } in edits {
            while let Some((_, stays)) = known.next_if(|(index, _)| *index < at) {
                entries.push(stays);
            }
            match step {
                Step::Stay(stat) => {
                    self.stats.push(stat);
                    entries.extend(known.next().map(|(_, stays)| stays));
                }
                Step::Go => {
                    let Some((_, gone)) = known.next() else { continue };
                    self.changed.push(gone.entry.path.clone());
                    self.touched.push(gone.entry.path);
                }
                Step::Replace => {
                    let old = known.next().map(|(_, old)| old);
                    let Some(slot) = slots.next() else { continue };
                    entries.extend(self.settle(old.as_ref(), slot));
                }
                Step::Insert => {
                    let Some(slot) = slots.next() else { continue };
                    entries.extend(self.settle(None, slot));
                }
            }
        }
        entries.extend(known.map(|(_, stays)| stays));
        entries
    }

    /// Notes what has become of a path, and gives its entry, unless it vanished.
    fn settle(&mut self, old: Option<&CachedEntry>, slot: Slot) -> Option<CachedEntry> {
        let Slot { path, stat, now, .. } = slot;
        if old.map(|old| &old.entry) != now.as_ref().map(|now| &now.entry) {
            self.changed.push(path.clone());
        }
        if old != now.as_ref() {
            self.touched.push(path);
        }
        let now = now?;
        self.stats.push(stat);
        Some(now)
    }

    /// Counts what is there besides the entries, all of it whole and as it was.
    fn count_besides(&mut self, besides: &Census) {
        let add = |counted: &mut u64, more: u64| *counted = counted.saturating_add(more);
        add(&mut self.counts.files_observed, besides.files);
        add(&mut self.counts.files_observed, besides.symlinks);
        add(&mut self.counts.files_reused, besides.files);
        for (reason, count) in &besides.omitted {
            add(self.counts.omitted.entry(*reason).or_default(), *count);
        }
    }

    fn count(&mut self, cached: &CachedEntry) {
        let path = &cached.entry.path;
        match &cached.entry.kind {
            EntryKind::File { unstable, .. } => {
                self.counts.files_observed += 1;
                self.counts.files_reused += 1;
                if *unstable {
                    self.complete = false;
                    self.problems.push(CaptureProblem { path: path.clone(), reason: None });
                }
            }
            EntryKind::Symlink { .. } => self.counts.files_observed += 1,
            EntryKind::Omitted { reason, rest } => {
                let count = self.counts.omitted.entry(*reason).or_default();
                *count = count.saturating_add(1).saturating_add(*rest);
                if reason.is_failure() {
                    self.complete = false;
                    let reason = Some(*reason);
                    self.problems.push(CaptureProblem { path: path.clone(), reason });
                }
            }
            EntryKind::Dir { .. } | EntryKind::Absent => {}
        }
    }
}
