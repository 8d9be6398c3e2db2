//! Holding what was observed: reading the files that changed and putting their content into the
//! store.

use std::collections::{HashMap, HashSet};

use rayon::prelude::*;

use crate::access::Access;
use crate::access::OpenWorkspace;
use crate::blobs::{PackList, Presence, Published, PutOutcome, Staging};
use crate::capture::Observation;
use crate::capture::audit::remember;
use crate::capture::content::{self, ReadFile};
use crate::capture::decide::{Known, Moment, Slot, decide};
use crate::checkpoint::CaptureProblem;
use crate::disk::{FileStat, file_stat, file_system, hash_file};
use crate::error::{Error, Result};
use crate::hash::{BlobHash, Digest, Hashed};
use crate::id::{CheckpointId, StoreId};
use crate::limits;
use crate::manifest::{
    self, Above, Counts, Entry, OmitReason, PageRef, PageTree, Tree, Unchanged, read_entries,
    splice,
};
use crate::monitor::{Monitor, Phase};
use crate::path::RelPath;
use crate::registration::Operation;
use crate::settings::ScopeSettings;
use crate::threads;
use crate::walk::{CachedEntry, KnownRules, Stamps, Walked};
use crate::workspaces::{CacheHeader, StatCache};

/// The checkpoint that a capture builds on, protected by its operation.
#[derive(Debug)]
pub(crate) struct Base {
    /// Which one.
    pub(crate) id: CheckpointId,
    /// The checksum of its manifest.
    pub(crate) digest: Digest,
    /// Its entries' pages.
    pub(crate) tree: Tree,
    /// What the stat cache knows of it, where it describes exactly this checkpoint.
    pub(crate) cache: Option<StatCache>,
}

impl Base {
    /// The header of a stat cache that describes exactly this checkpoint of this store.
    pub(crate) fn described(&self, store: StoreId) -> CacheHeader {
        CacheHeader { store, checkpoint: self.id.clone(), digest: self.digest }
    }
}

/// The state of a workspace with all its content hashed, and held where that was asked for.
#[derive(Debug)]
pub(crate) struct Held {
    /// In order of path, with the stamps of each file.
    pub(crate) entries: Vec<CachedEntry>,
    /// Whether these are only a part: all that may have changed is among them, and the base has the others.
    pub(crate) is_part: bool,
    /// What the file system said about each, in the same order; of a file, when it was read. Empty where
    /// the walk left out what is as it was.
    pub(crate) stats: Vec<FileStat>,
    /// By which rules the names were judged.
    pub(crate) rules: Option<KnownRules>,
    /// Whether by others than the base's stat cache says.
    pub(crate) has_new_rules: bool,
    /// The paths whose entries are not to the letter those of the base, in order; those that are gone too.
    pub(crate) changed: Vec<RelPath>,
    /// The paths of which the base's stat cache, or without one the base, does not say just this; those of
    /// `changed` among them. In order.
    pub(crate) touched: Vec<RelPath>,
    /// Whether the entries are to the letter those of the base.
    pub(crate) same_as_base: bool,
    /// Whether the base's stat cache says the same as these entries, stamps and rules.
    pub(crate) cache_is_current: bool,
    /// What was seen and done; `bytes_stored` is known after [`store_tree`].
    pub(crate) counts: Counts,
    /// Whether everything in scope is held whole.
    pub(crate) complete: bool,
    /// What is not; the first of them.
    pub(crate) problems: Vec<CaptureProblem>,
    /// How many of these there are in all.
    pub(crate) problem_count: u64,
    /// The blobs that were known to be lost when it was decided which files to read.
    pub(crate) lost: HashSet<BlobHash>,
    /// Files that were seen, and gone when they were to be read: they may be somewhere else, where they
    /// were not seen.
    pub(crate) vanished: Vec<RelPath>,
}

impl Held {
    /// Says of the files that had vanished, which nobody looks for any more, that their directories
    /// changed meanwhile: what was moved from there may be missing.
    pub(crate) fn give_up_vanished(&mut self) {
        let mut directories: Vec<RelPath> =
            self.vanished.iter().map(|path| path.parent().unwrap_or_default()).collect();
        directories.sort_unstable();
        directories.dedup();
        self.complete &= directories.is_empty();
        self.problem_count += directories.len() as u64;
        let problem = |path| CaptureProblem { path, reason: None };
        self.problems.extend(directories.into_iter().map(problem));
        self.problems.truncate(PROBLEMS_NAMED_MAX);
    }
}

/// What one capture has read so far. It looks at the tree again where a file had vanished when it was to
/// be read, and does not read the others again.
#[derive(Debug, Default)]
pub(crate) struct ReadSoFar {
    files: HashMap<RelPath, ReadOutcome>,
    files_read: u64,
    bytes_read: u64,
}

impl ReadSoFar {
    /// What was read of a file that is still as it was then.
    fn find(&self, slot: &Slot) -> Option<&ReadOutcome> {
        let outcome = self.files.get(&slot.path)?;
        let stat = outcome.stat.as_ref()?;
        (Stamps::of(stat) == Stamps::of(&slot.stat) && stat.mode == slot.stat.mode)
            .then_some(outcome)
    }

    /// Remembers what was read. A file that may have been changed since without any stamp showing it is
    /// read again.
    fn remember(&mut self, slot: &Slot, outcome: ReadOutcome, moment: Moment) {
        let is_settled = matches!(outcome.result, ReadResult::Hashed { unstable: false, .. })
            && outcome.stat.as_ref().is_some_and(|stat| !moment.is_racy(stat));
        if is_settled {
            self.files.insert(slot.path.clone(), outcome);
        }
    }
}

/// Where content goes that is to be kept: the operation that pins it and its temporaries.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Storing<'a> {
    /// Pins each hash before the store is looked at.
    pub(crate) operation: &'a Operation<'a>,
    /// Takes what the store does not have.
    pub(crate) staging: &'a Staging<'a>,
}

/// Threads cost more than so few pages.
const PAGES_IN_PARALLEL_ABOVE: usize = 64;

/// How many problems are named; the others are counted.
const PROBLEMS_NAMED_MAX: usize = 100;

/// Reads and hashes every file that the base does not vouch for, and keeps what is new where that is
/// asked for.
///
/// # Concurrency
/// Own thread pool. Per batch the hashes are pinned, and committed, before the store is looked at.
///
/// Cost: reading, hashing and compressing what changed; about 64 MiB of memory.
pub(crate) fn hold(
    access: &Access,
    open: &OpenWorkspace,
    base: Option<&mut Base>,
    observation: Observation,
    settings: &ScopeSettings,
    storing: Option<Storing<'_>>,
    so_far: &mut ReadSoFar,
    monitor: &dyn Monitor,
) -> Result<Held> {
    let granularity_ns = file_system(&open.dir)?.stamp_granularity.as_nanos();
    let granularity_ns = i64::try_from(granularity_ns).unwrap_or(i64::MAX);
    let moment = Moment { start_ns: observation.start_ns, granularity_ns };
    let lost = lost_blobs(access)?;
    let (known, known_rules, trusted, besides) = match base {
        None => (Vec::new(), None, false, None),
        Some(base) => match base.cache.as_mut() {
            Some(StatCache { tree, .. }) => {
                let besides = tree.remainder.take().map(|remainder| remainder.census);
                (std::mem::take(&mut tree.entries), tree.rules.take(), true, besides)
            }
            None => (untrusted(readable_entries(access, base)?), None, false, None),
        },
    };
    let Walked { observations, kept, unfinished, restless, mut rules, .. } = observation.walked;
    if let Some(rules) = &mut rules {
        rules.judge(moment.start_ns, moment.granularity_ns);
    }
    let known = Known { entries: known, kept, are_trusted: trusted, besides };
    let mut decided = decide(observations, known, &lost, settings, moment);
    let reader = Reader {
        access,
        open,
        storing,
        lost: &lost,
        limit_bytes: settings.file_limit_bytes,
        monitor,
    };
    let mut to_read = std::mem::take(&mut decided.to_read);
    to_read.retain(|&index| match so_far.find(&decided.slots[index]) {
        Some(outcome) => {
            decided.take_outcome(index, outcome, moment);
            false
        }
        None => true,
    });
    monitor.phase(Phase::Store, Some(to_read.len() as u64));
    let read = reader.read_all(&decided.slots, &to_read)?;
    let mut vanished = Vec::new();
    for (index, outcome) in &read {
        decided.take_outcome(*index, outcome, moment);
        so_far.files_read += 1;
        so_far.bytes_read += outcome.bytes_read;
        if matches!(outcome.result, ReadResult::Vanished) {
            vanished.push(decided.slots[*index].path.clone());
        }
    }
    // Only then there is another look, for which it is worth the memory.
    if !vanished.is_empty() {
        for (index, outcome) in read {
            so_far.remember(&decided.slots[index], outcome, moment);
        }
    }
    let (files_read, bytes_read) = (so_far.files_read, so_far.bytes_read);
    let counts = Counts { files_read, bytes_read, ..Counts::default() };
    let mut held = decided.finish(counts);
    held.has_new_rules = rules != known_rules;
    held.cache_is_current &= !held.has_new_rules;
    held.rules = rules;
    held.complete &= unfinished.is_empty() && restless.is_empty();
    let unread = unfinished.into_iter().map(|path| (path, Some(OmitReason::IoError)));
    let unseen = restless.into_iter().map(|path| (path, None));
    let problem = |(path, reason)| CaptureProblem { path, reason };
    held.problems.extend(unread.chain(unseen).map(problem));
    held.problem_count = held.problems.len() as u64;
    held.problems.truncate(PROBLEMS_NAMED_MAX);
    held.lost = lost;
    held.vanished = vanished;
    Ok(held)
}

/// The blobs that are known to be missing or damaged; normally none.
pub(crate) fn lost_blobs(access: &Access) -> Result<HashSet<BlobHash>> {
    let lost = access.index.read("list lost blobs", |tx| tx.lost_blobs())?;
    Ok(lost.into_iter().map(|(hash, _)| hash).collect())
}

/// The base's entries from its pages. Where a page is lost nothing is known, and everything is read
/// anew: a damaged checkpoint must not stop the next one.
fn readable_entries(access: &Access, base: &Base) -> Result<Vec<Entry>> {
    unless_lost(access, read_entries(&access.blobs, &base.tree))
}

/// Nothing where a page was lost, which is remembered.
fn unless_lost<T: Default>(access: &Access, read: Result<T>) -> Result<T> {
    match read {
        Err(error) if error.is_lost_content() => remember(access, &error).map(|()| T::default()),
        other => other,
    }
}

fn untrusted(entries: Vec<Entry>) -> Vec<CachedEntry> {
    let cached = |entry| CachedEntry { entry, stamps: Stamps::default(), racy: true };
    entries.into_iter().map(cached).collect()
}

/// What reading one file came to.
#[derive(Debug)]
pub(super) struct ReadOutcome {
    pub(super) result: ReadResult,
    /// What it was when it was read.
    pub(super) stat: Option<FileStat>,
    bytes_read: u64,
}

#[derive(Debug)]
pub(super) enum ReadResult {
    Vanished,
    Omitted(OmitReason),
    Hashed { hash: BlobHash, size: u64, unstable: bool },
}

struct Reader<'a> {
    access: &'a Access,
    open: &'a OpenWorkspace,
    storing: Option<Storing<'a>>,
    lost: &'a HashSet<BlobHash>,
    limit_bytes: u64,
    monitor: &'a dyn Monitor,
}

impl Reader<'_> {
    /// Reads the files at `to_read`. Few of them: batch by batch, pins first. Many: one pin over
    /// everything, and no batches.
    fn read_all(&self, slots: &[Slot], to_read: &[usize]) -> Result<Vec<(usize, ReadOutcome)>> {
        if to_read.is_empty() {
            return Ok(Vec::new());
        }
        let pool = threads::pool("store")?;
        if to_read.len() > self.access.blobs.packing().above_files {
            if let Some(storing) = self.storing {
                storing.operation.pin_all()?;
                storing.staging.use_packs()?;
            }
            let packs = self.packs()?;
            let one = |&index: &usize| {
                let read = self.read(&slots[index])?;
                self.store(read, &slots[index], &packs).map(|outcome| (index, outcome))
            };
            return pool.install(|| to_read.par_iter().map(one).collect());
        }
        let mut outcomes = Vec::with_capacity(to_read.len());
        for batch in batches(slots, to_read) {
            let read: Vec<(usize, ReadFile)> = pool.install(|| {
                let one = |&index: &usize| self.read(&slots[index]).map(|read| (index, read));
                batch.par_iter().map(one).collect::<Result<_>>()
            })?;
            if let Some(Storing { operation, .. }) = self.storing {
                let hashes: Vec<BlobHash> =
                    read.iter().filter_map(|(_, read)| hash_of(read)).collect();
                operation.pin(&hashes)?;
            }
            let packs = self.packs()?;
            let stored: Vec<(usize, ReadOutcome)> = pool.install(|| {
                let one = |(index, read): (usize, ReadFile)| {
                    self.store(read, &slots[index], &packs).map(|outcome| (index, outcome))
                };
                read.into_par_iter().map(one).collect::<Result<_>>()
            })?;
            outcomes.extend(stored);
        }
        Ok(outcomes)
    }

    /// The packs as they are now, where content is to be kept.
    fn packs(&self) -> Result<PackList> {
        self.storing.map_or_else(|| Ok(PackList::default()), |_| self.access.blobs.packs())
    }

    fn read(&self, slot: &Slot) -> Result<ReadFile> {
        // The walk takes a file above the limit for one only where a restore must save it.
        let is_forced = slot.stat.size > self.limit_bytes;
        let limit_bytes = if is_forced { u64::MAX } else { self.limit_bytes };
        content::read_file(&self.open.dir, &slot.path, limit_bytes, self.monitor)
    }

    /// `packs`: those that there are since what was read is pinned.
    fn store(&self, read: ReadFile, slot: &Slot, packs: &PackList) -> Result<ReadOutcome> {
        let outcome = match read {
            ReadFile::Vanished => {
                ReadOutcome { result: ReadResult::Vanished, stat: None, bytes_read: 0 }
            }
            ReadFile::Omitted { reason, stat } => {
                ReadOutcome { result: ReadResult::Omitted(reason), stat, bytes_read: 0 }
            }
            ReadFile::Content { content, stat, unstable } => {
                let (hash, size) = (content.hash(), content.content().len() as u64);
                if let Some(Storing { staging, .. }) = self.storing {
                    put_if_absent(self.access, staging, packs, self.lost, &content)?;
                }
                content::give_back(content.into_content());
                let result = ReadResult::Hashed { hash, size, unstable };
                ReadOutcome { result, stat: Some(stat), bytes_read: size }
            }
            ReadFile::Large { file, stat } => self.store_large(&file, stat, slot)?,
        };
        self.monitor.advanced(1, outcome.bytes_read);
        Ok(outcome)
    }

    /// A file too large for memory goes into a temporary file while it is hashed; publishing it finds
    /// out whether the store has it. So the store is not looked at before the hash is pinned here
    /// either.
    fn store_large(
        &self,
        file: &crate::disk::File,
        before: FileStat,
        slot: &Slot,
    ) -> Result<ReadOutcome> {
        use std::io::Seek as _;
        let mut before = before;
        for attempt in 0..=limits::UNSTABLE_READS_MAX {
            let mut source = file;
            let path = || slot.path.as_os().to_owned();
            source.rewind().map_err(|source| Error::Io { verb: "rewind", path: path(), source })?;
            let size = before.size;
            let put = match self.storing {
                Some(Storing { staging, .. }) => staging.put_stream(size, &mut source)?,
                None => PutOutcome::Put(hash_file(file, slot.path.as_os())?),
            };
            let after = file_stat(file, slot.path.as_os())?;
            let stable = Stamps::of(&before) == Stamps::of(&after);
            let hash = match put {
                PutOutcome::Put(hash) => hash,
                PutOutcome::TooShort => {
                    before = after;
                    continue;
                }
                PutOutcome::Unreadable(error) => {
                    let result = ReadResult::Omitted(content::reason_of(&error));
                    return Ok(ReadOutcome { result, stat: Some(after), bytes_read: 0 });
                }
            };
            if stable || attempt == limits::UNSTABLE_READS_MAX {
                if let Some(Storing { operation, .. }) = self.storing {
                    operation.pin(&[hash])?;
                }
                let result = ReadResult::Hashed { hash, size, unstable: !stable };
                return Ok(ReadOutcome { result, stat: Some(after), bytes_read: size });
            }
            before = after;
        }
        // Cut shorter during every reading: there was never a whole of it to keep.
        let result = ReadResult::Omitted(OmitReason::IoError);
        Ok(ReadOutcome { result, stat: Some(before), bytes_read: 0 })
    }
}

/// Looks whether the store has the content, and stages it if not. The hash was pinned before `packs` were
/// listed.
fn put_if_absent(
    access: &Access,
    staging: &Staging<'_>,
    packs: &PackList,
    lost: &HashSet<BlobHash>,
    content: &Hashed<Vec<u8>>,
) -> Result<()> {
    let hash = content.hash();
    if lost.contains(&hash) {
        // A look cannot tell flipped bits: publishing compares the content and replaces it.
        return staging.put_anew(content);
    }
    if staging.is_known_absent(hash) {
        return staging.put(content);
    }
    match access.blobs.look_once(hash, content.content().len() as u64, packs)? {
        Presence::Present { .. } => {
            // Another process may have published it a moment ago, its name not durable yet.
            staging.reuse(hash);
            Ok(())
        }
        Presence::Absent => staging.put(content),
        Presence::Wrong { .. } => staging.put_anew(content),
    }
}

fn hash_of(read: &ReadFile) -> Option<BlobHash> {
    match read {
        ReadFile::Content { content, .. } => Some(content.hash()),
        _ => None,
    }
}

/// Cuts the files to read into batches of at most [`limits::PIN_BATCH`] files whose content fits in
/// memory together.
fn batches<'a>(slots: &[Slot], to_read: &'a [usize]) -> Vec<&'a [usize]> {
    let mut batches = Vec::new();
    let (mut start, mut bytes) = (0, 0u64);
    for (at, &index) in to_read.iter().enumerate() {
        let size = slots[index].stat.size.min(limits::FILE_IN_MEMORY_BYTES_MAX);
        let full =
            at - start >= limits::PIN_BATCH || bytes + size > limits::CONTENT_IN_MEMORY_BYTES_MAX;
        if full && at > start {
            batches.push(&to_read[start..at]);
            (start, bytes) = (at, 0);
        }
        bytes += size;
    }
    batches.push(&to_read[start..]);
    batches
}

/// Makes the content of `held` and its pages durable; the tree is ready to be named by a manifest.
///
/// `extra` is a second list of entries to be stored as a tree of its own: a restore's account of
/// what it leaves.
///
/// # Durability
/// When it returns, everything the trees name is in the store and survives a power cut.
pub(crate) fn store_tree(
    access: &Access,
    operation: &Operation<'_>,
    base: Option<&Base>,
    held: &mut Held,
    staging: Staging<'_>,
    extra: Option<&[Entry]>,
) -> Result<StoredTrees> {
    // Nothing new is to be named, and nothing is known to be lost: no need to look.
    let is_plain = held.same_as_base && extra.is_none() && lost_blobs(access)?.is_empty();
    let above = match base {
        Some(base) if !is_plain => {
            unless_lost(access, Above::read(&access.blobs, &base.tree).map(Some))?
        }
        _ => None,
    };
    let is_unreadable = base.is_some() && !is_plain && above.is_none();
    // Only now: the page that could not be read is among them.
    let lost = lost_blobs(access)?;
    let known: HashSet<BlobHash> =
        above.iter().flat_map(Above::pages).map(|(hash, _)| hash).collect();
    let is_whole = !is_unreadable && known.is_disjoint(&lost);
    let leaves = above.map(|above| above.leaves).unwrap_or_default();
    let mut built = Vec::new();
    let tree = match base {
        // What is lost may be anywhere, and only a part was looked at.
        Some(base) if held.is_part && !lost.is_empty() => return Ok(StoredTrees::lost(base.tree)),
        Some(base) if held.same_as_base && is_whole => base.tree,
        Some(base) if held.is_part => {
            let Some(spliced) = splice_onto(access, base, &leaves, held)? else {
                return Ok(StoredTrees::lost(base.tree));
            };
            built.extend(spliced.pages);
            spliced.tree
        }
        // A page that was lost is written again; the entries are at hand.
        _ => {
            let mut leaves = leaves;
            leaves.retain(|leaf| !lost.contains(&leaf.hash));
            let unchanged = Unchanged { leaves: &leaves, changed: &held.changed };
            let rebuilt = manifest::rebuild(&held.entries, |cached| &cached.entry, &unchanged);
            built.extend(rebuilt.pages);
            rebuilt.tree
        }
    };
    let extra = extra.map(|entries| {
        let extra = manifest::build(entries);
        built.extend(extra.pages);
        extra.tree
    });
    // What the base has is protected with it, but for what it has lost.
    built.retain(|page| {
        let hash = page.reference.hash;
        !known.contains(&hash) || lost.contains(&hash)
    });
    let published = store_pages(access, operation, staging, built, &lost, is_unreadable)?;
    held.counts.bytes_stored = published.stored_bytes;
    let found_loss = !lost.is_subset(&held.lost);
    Ok(StoredTrees { tree, extra, found_loss, stored_sizes: published.sizes.into_iter().collect() })
}

/// The base's tree with what changed in it; `None` where a page of it was lost, which is remembered.
fn splice_onto(
    access: &Access,
    base: &Base,
    leaves: &[PageRef],
    held: &Held,
) -> Result<Option<PageTree>> {
    let now = |path: &RelPath| {
        let place = held.entries.binary_search_by(|cached| cached.entry.path.cmp(path));
        place.ok().map(|at| held.entries[at].entry.clone())
    };
    let edits = held.changed.iter().map(|path| (path.clone(), now(path))).collect();
    unless_lost(access, splice(&access.blobs, &base.tree, leaves, &edits).map(Some))
}

/// Makes pages, and what is staged already, durable. What is in `lost` is written although it seems to be
/// there, and is lost no more; with `is_unreadable` all pages are.
pub(super) fn store_pages(
    access: &Access,
    operation: &Operation<'_>,
    staging: Staging<'_>,
    mut built: Vec<manifest::EncodedPage>,
    lost: &HashSet<BlobHash>,
    is_unreadable: bool,
) -> Result<Published> {
    built.sort_unstable_by_key(|page| page.reference.hash);
    built.dedup_by_key(|page| page.reference.hash);
    let hashes: Vec<BlobHash> = built.iter().map(|page| page.reference.hash).collect();
    operation.pin(&hashes)?;
    let packs = if built.is_empty() { PackList::default() } else { access.blobs.packs()? };
    let put = |page: manifest::EncodedPage| {
        let text = Hashed::new(page.text);
        if is_unreadable {
            // Where one page is damaged others may be, and a look does not tell.
            return staging.put_anew(&text);
        }
        put_if_absent(access, &staging, &packs, lost, &text)
    };
    if built.len() > PAGES_IN_PARALLEL_ABOVE {
        threads::pool("pages")?.install(|| built.into_par_iter().try_for_each(put))?;
    } else {
        built.into_iter().try_for_each(put)?;
    }
    let published = staging.publish()?;
    let healed: Vec<(BlobHash, u64)> =
        published.sizes.iter().filter(|(hash, _)| lost.contains(hash)).copied().collect();
    if !healed.is_empty() {
        access.index.write("note healed blobs", |tx| {
            healed.iter().try_for_each(|(hash, size)| tx.note_healed(*hash, *size))
        })?;
    }
    Ok(published)
}

/// Trees that are in the store.
#[derive(Debug)]
pub(crate) struct StoredTrees {
    /// The workspace's state.
    pub(crate) tree: Tree,
    /// The second list, where there was one.
    pub(crate) extra: Option<Tree>,
    /// Whether something was found lost after it was decided which files to read.
    pub(crate) found_loss: bool,
    /// The stored length of what was added, in bytes.
    pub(crate) stored_sizes: HashMap<BlobHash, u64>,
}

impl StoredTrees {
    /// Nothing was stored, since something of `base` is lost.
    fn lost(base: Tree) -> Self {
        Self { tree: base, extra: None, found_loss: true, stored_sizes: HashMap::new() }
    }
}
