//! What the last capture of a workspace saw, so that the next reads only what changed.
//!
//! Disposable: whoever cannot read it, or does not trust it, captures without it. It is read and
//! written under the workspace's lock only. `docs/format.md` gives the bytes.
//!
//! Layout: a header of fixed length with its own checksum, which says where the table is; the table, with
//! where the rules and the blocks of entries are; these, each with its checksum in the table. A turn writes
//! the blocks that it changed, and a table, where nothing of the present cache is, and then the header anew,
//! in place; one that changed nothing rewrites the header alone. A torn header fails its checksum, and the
//! cache is as good as lost, which is allowed. When more than half of the file is not used it is written
//! whole.
//!
//! The table also says where each block begins and how much is in it, so that who knows what has changed
//! reads the blocks concerned and no others.

mod block;
mod part;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use rayon::prelude::*;

use crate::disk::{self, Dir, File};
use crate::error::Result;
use crate::hash::Digest;
use crate::id::{CheckpointId, Seq, SessionName, StoreId};
use crate::path::RelPath;
use crate::threads;
use crate::walk::{CachedEntry, Census, KnownRules, KnownTree};
use crate::workspaces::stat_cache::block::{
    decode_block, decode_rules, encode_block, encode_rules, put_bytes, put_census, take,
    take_bytes, take_census, take_path,
};
use crate::workspaces::stat_cache::part::Blocks;

/// The name of the file.
const NAME: &str = "stat-cache";
const MAGIC: &[u8; 8] = b"tpstat04";
const HEADER_BYTES: usize = 512;
/// The checksum stands in the last bytes of the header and covers those before it.
const HEADER_COVERED: usize = HEADER_BYTES - 16;
/// Entries of a million files take about 150 MB; a file above this is not ours.
const CACHE_BYTES_MAX: u64 = 4 << 30;
/// How many entries a block has when all is written anew. A turn writes a block for each place where
/// something changed.
const BLOCK_ENTRIES: usize = 128;
/// The shortest record of an entry.
const ENTRY_BYTES_MIN: usize = 42;
/// A block that has grown beyond this is split.
const BLOCK_ENTRIES_MAX: usize = 2 * BLOCK_ENTRIES;
/// Threads cost more than the decoding of fewer blocks.
const BLOCKS_IN_PARALLEL_ABOVE: usize = 8;

/// What a cache is about. A hash may be reused only if all of it still holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CacheHeader {
    /// The store whose blobs the hashes are in.
    pub(crate) store: StoreId,
    /// The checkpoint whose entries these are.
    pub(crate) checkpoint: CheckpointId,
    /// The digest in its manifest.
    pub(crate) digest: Digest,
}

/// A cache that was read.
#[derive(Debug)]
pub(crate) struct StatCache {
    /// What it is about.
    pub(crate) header: CacheHeader,
    /// What was seen.
    pub(crate) tree: KnownTree,
    parts: Parts,
}

/// Where the parts of a cache are in its file.
#[derive(Debug)]
struct Parts {
    table: Place,
    rules: Place,
    blocks: Vec<Block>,
    /// The length of the file.
    end: u64,
    /// What is in the blocks that were read, by number, where not all were.
    part: Option<BTreeMap<usize, Vec<CachedEntry>>>,
}

/// A stretch of the file, and its checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    offset: u64,
    length: u64,
    digest: Digest,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Block {
    place: Place,
    count: usize,
    /// The path of its first entry.
    first: RelPath,
    /// What there is in it.
    census: Census,
}

impl Block {
    /// `None` where there are no entries.
    fn of(entries: &[CachedEntry], place: Place) -> Option<Self> {
        let first = entries.first()?.entry.path.clone();
        Some(Self { place, count: entries.len(), first, census: Census::of(entries) })
    }

    /// Its entries, if they are what the table says of them.
    fn read(&self, file: &File, size: u64) -> Option<Vec<CachedEntry>> {
        let entries = decode_block(&read_place(file, size, &self.place)?, self.count)?;
        let is_as_said =
            entries.first()?.entry.path == self.first && Census::of(&entries) == self.census;
        is_as_said.then_some(entries)
    }
}

/// What is new in a cache since it was read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct News<'a> {
    /// All entries as they are now, in order; of a cache of which a part was read, those of the part.
    pub(crate) entries: &'a [CachedEntry],
    /// The paths of those that are new or not to the letter what they were, and of those that are gone; in
    /// order.
    pub(crate) touched: &'a [RelPath],
    /// By which rules names were judged.
    pub(crate) rules: Option<&'a KnownRules>,
    /// Whether by others than those that are in the cache.
    pub(crate) has_new_rules: bool,
}

impl StatCache {
    /// Reads the cache of the workspace whose directory in the store is `dir`; `None` where there is
    /// none or it cannot be trusted.
    ///
    /// Cost: one pass over about 150 bytes an entry, on several threads.
    pub(crate) fn read(dir: &Path) -> Option<Self> {
        let Opened { file, header, rules, parts } = Opened::open(dir)?;
        let (blocks, size) = (&parts.blocks, parts.end);
        // No entry takes less: the table may say more than there is.
        let most = usize::try_from(size).ok()? / ENTRY_BYTES_MIN;
        let count = |blocks: &[Block]| {
            blocks.iter().fold(0, |sum: usize, block| sum.saturating_add(block.count)).min(most)
        };
        let decode = |block: &Block| block.read(&file, size);
        let entries = if blocks.len() > BLOCKS_IN_PARALLEL_ABOVE {
            let pool = threads::pool("cache").ok()?;
            let stretch = blocks.len().div_ceil(pool.current_num_threads());
            // The first has room for all: they need not be moved.
            let one = |(number, stretch): (usize, &[Block])| {
                let expected = if number == 0 { count(blocks) } else { count(stretch) };
                decode_all(stretch, expected, decode)
            };
            let stretches = blocks.par_chunks(stretch).enumerate().map(one);
            let stretches: Vec<Vec<CachedEntry>> =
                pool.install(|| stretches.collect::<Option<_>>())?;
            let mut stretches = stretches.into_iter();
            let mut entries = stretches.next().unwrap_or_default();
            stretches.for_each(|mut stretch| entries.append(&mut stretch));
            entries
        } else {
            decode_all(blocks, count(blocks), decode)?
        };
        let mut start = 0;
        for block in blocks {
            let first = &entries.get(start)?.entry.path;
            if start > 0 && entries[start - 1].entry.path >= *first {
                return None;
            }
            start += block.count;
        }
        let tree = KnownTree { entries, rules, remainder: None };
        Some(Self { header, tree, parts })
    }

    /// Reads what a walk by `hints` needs to know, and the blocks that updating the cache by that walk needs;
    /// `None` where [`StatCache::read`] may give more, or that is as fast.
    ///
    /// Cost: the table, about a hundredth of the cache, and the blocks that have something of the
    /// hints, of the directories they are in, or of the names in these.
    pub(crate) fn read_part(dir: &Path, hints: &[RelPath]) -> Option<Self> {
        let Opened { file, header, rules, mut parts } = Opened::open(dir)?;
        let mut blocks = Blocks::new(&file, &parts);
        let part = blocks.select(hints)?;
        let read = blocks.into_read();
        parts.part = Some(read);
        let (entries, remainder) = (part.entries, Some(part.remainder));
        Some(Self { header, tree: KnownTree { entries, rules, remainder }, parts })
    }

    /// Reads what the cache is about, and not its entries; `None` where [`StatCache::read`] would give
    /// none for the sake of its header.
    pub(crate) fn peek(dir: &Path) -> Option<CacheHeader> {
        let head = disk::read_start(&dir.join(NAME), HEADER_BYTES).ok()?;
        decode_header(&head).map(|(header, _)| header)
    }

    /// Writes a cache anew. Not durable: a power cut may lose it, and its checksums tell.
    pub(crate) fn write(
        dir: &Path,
        header: &CacheHeader,
        entries: &[CachedEntry],
        rules: Option<&KnownRules>,
        tmp: &Dir,
    ) -> Result<()> {
        let mut bytes = vec![0; HEADER_BYTES];
        let rules = append(&mut bytes, &encode_rules(rules));
        let block = |chunk: &[CachedEntry]| {
            let place = append(&mut bytes, &encode_block(chunk));
            Block::of(chunk, place)
        };
        let blocks: Vec<Block> = entries.chunks(BLOCK_ENTRIES).filter_map(block).collect();
        let table = append(&mut bytes, &encode_table(&rules, &blocks));
        bytes[..HEADER_BYTES].copy_from_slice(&encode_header(header, &table));
        disk::replace(&Dir::open(dir)?, NAME.as_bytes(), &bytes, tmp)
    }

    /// Says that the same entries are those of another checkpoint now. Writes the header only.
    pub(crate) fn rewrite_header(&self, dir: &Path, header: &CacheHeader) -> Result<()> {
        let head = (0, encode_header(header, &self.parts.table).to_vec());
        disk::overwrite(&Dir::open(dir)?, NAME.as_bytes(), &[head])
    }

    /// Brings the cache up to date as the state of another checkpoint. Not durable, as
    /// [`StatCache::write`].
    ///
    /// Cost: writing the blocks where something changed, and about 120 bytes for each block; now and then all.
    pub(crate) fn update(
        &self,
        dir: &Path,
        header: &CacheHeader,
        news: News<'_>,
        tmp: &Dir,
    ) -> Result<()> {
        let mut writing =
            Writing { free: self.parts.free(), end: self.parts.end, writes: Vec::new() };
        let mut rules = self.parts.rules;
        if news.has_new_rules {
            rules = writing.put(encode_rules(news.rules));
        }
        let cut = match &self.parts.part {
            None => cut(&self.parts.blocks, news.entries, news.touched),
            Some(read) => cut_part(&self.parts.blocks, read, &news),
        };
        let Some(cut) = cut else { return self.write_anew(dir, header, &news, tmp) };
        let mut blocks = Vec::with_capacity(self.parts.blocks.len());
        for piece in cut {
            let entries = match piece {
                Piece::Same(block) => {
                    blocks.push(block.clone());
                    continue;
                }
                Piece::New(entries) => entries,
            };
            let length =
                if entries.len() > BLOCK_ENTRIES_MAX { BLOCK_ENTRIES } else { BLOCK_ENTRIES_MAX };
            for chunk in entries.chunks(length) {
                blocks.extend(Block::of(chunk, writing.put(encode_block(chunk))));
            }
        }
        let table = writing.put(encode_table(&rules, &blocks));
        let used = blocks.iter().map(|block| block.place.length).sum::<u64>()
            + rules.length
            + table.length
            + HEADER_BYTES as u64;
        if writing.end > 2 * used {
            return self.write_anew(dir, header, &news, tmp);
        }
        let dir = Dir::open(dir)?;
        disk::overwrite(&dir, NAME.as_bytes(), &writing.writes)?;
        // Last: what was there is good until then.
        let head = (0, encode_header(header, &table).to_vec());
        disk::overwrite(&dir, NAME.as_bytes(), &[head])
    }

    /// Writes all of it anew. Where a part was read it is all read now, unless that cannot be trusted: then
    /// the cache goes.
    fn write_anew(
        &self,
        dir: &Path,
        header: &CacheHeader,
        news: &News<'_>,
        tmp: &Dir,
    ) -> Result<()> {
        if self.parts.part.is_none() {
            return Self::write(dir, header, news.entries, news.rules, tmp);
        }
        let Some(whole) = Self::read(dir).filter(|whole| whole.header == self.header) else {
            return Self::discard(dir);
        };
        let entries = news.exchange(news.touched, whole.tree.entries);
        Self::write(dir, header, &entries, news.rules, tmp)
    }

    /// Removes the cache, if there is one.
    pub(crate) fn discard(dir: &Path) -> Result<()> {
        disk::remove_file(&dir.join(NAME)).map(|_| ())
    }
}

impl Parts {
    /// Where in the file nothing of this cache is, in order.
    fn free(&self) -> Vec<Range<u64>> {
        let mut used: Vec<Range<u64>> = [&self.table, &self.rules]
            .into_iter()
            .chain(self.blocks.iter().map(|block| &block.place))
            .map(|place| place.offset..place.offset.saturating_add(place.length))
            .collect();
        used.sort_unstable_by_key(|used| used.start);
        let mut free = Vec::new();
        let mut reached = HEADER_BYTES as u64;
        for used in used {
            if used.start > reached {
                free.push(reached..used.start);
            }
            reached = reached.max(used.end);
        }
        free
    }
}

/// What is about to be written beside what is there.
struct Writing {
    free: Vec<Range<u64>>,
    /// Where the file will end.
    end: u64,
    /// Each with where it goes.
    writes: Vec<(u64, Vec<u8>)>,
}

impl Writing {
    /// Finds a place for a part.
    fn put(&mut self, part: Vec<u8>) -> Place {
        let (length, digest) = (part.len() as u64, Digest::of(&part));
        let fits = self.free.iter_mut().find(|free| free.end - free.start >= length);
        let offset = if let Some(free) = fits {
            free.start += length;
            free.start - length
        } else {
            self.end += length;
            self.end - length
        };
        self.writes.push((offset, part));
        Place { offset, length, digest }
    }
}

/// The entries of some blocks, one after another, with room for `expected`.
fn decode_all(
    blocks: &[Block],
    expected: usize,
    decode: impl Fn(&Block) -> Option<Vec<CachedEntry>>,
) -> Option<Vec<CachedEntry>> {
    let mut entries = Vec::with_capacity(expected);
    for block in blocks {
        entries.append(&mut decode(block)?);
    }
    Some(entries)
}

/// What becomes of a block.
enum Piece<'a> {
    /// Nothing in it was touched.
    Same(&'a Block),
    /// These are its entries now.
    New(Cow<'a, [CachedEntry]>),
}

/// The block that a path is in, or would be. What comes before the first belongs to it.
fn owner(blocks: &[Block], path: &[u8]) -> usize {
    blocks.partition_point(|block| block.first.as_bytes() <= path).saturating_sub(1)
}

/// What becomes of each block; `None` where the entries cannot be those of the blocks but for what was
/// touched.
fn cut<'a>(
    blocks: &'a [Block],
    entries: &'a [CachedEntry],
    touched: &[RelPath],
) -> Option<Vec<Piece<'a>>> {
    let mut is_touched = vec![false; blocks.len()];
    for path in touched {
        if let Some(is_touched) = is_touched.get_mut(owner(blocks, path.as_bytes())) {
            *is_touched = true;
        }
    }
    let mut pieces = Vec::with_capacity(blocks.len());
    let mut start = 0;
    for (number, block) in blocks.iter().enumerate() {
        let rest = &entries[start..];
        if !is_touched[number] {
            if rest.len() < block.count || rest[0].entry.path != block.first {
                return None;
            }
            pieces.push(Piece::Same(block));
            start += block.count;
            continue;
        }
        let before = |path: &RelPath| rest.partition_point(|cached| cached.entry.path < *path);
        let count = blocks.get(number + 1).map_or(rest.len(), |next| before(&next.first));
        pieces.push(Piece::New(rest[..count].into()));
        start += count;
    }
    if blocks.is_empty() {
        pieces.push(Piece::New(entries.into()));
    } else if start < entries.len() {
        return None;
    }
    Some(pieces)
}

/// What becomes of each block, of which some were read; `None` where something was touched in another.
fn cut_part<'a>(
    blocks: &'a [Block],
    read: &BTreeMap<usize, Vec<CachedEntry>>,
    news: &News<'_>,
) -> Option<Vec<Piece<'a>>> {
    let mut edited: BTreeMap<usize, Vec<CachedEntry>> = BTreeMap::new();
    let same_owner = |one: &RelPath, next: &RelPath| {
        owner(blocks, one.as_bytes()) == owner(blocks, next.as_bytes())
    };
    for touched in news.touched.chunk_by(same_owner) {
        let number = owner(blocks, touched.first()?.as_bytes());
        edited.insert(number, news.exchange(touched, read.get(&number)?.clone()));
    }
    let piece = |(number, block)| match edited.remove(&number) {
        Some(entries) => Piece::New(entries.into()),
        None => Piece::Same(block),
    };
    Some(blocks.iter().enumerate().map(piece).collect())
}

impl News<'_> {
    /// Puts what is at some of the touched paths now in the place of what `entries` have there.
    fn exchange(&self, touched: &[RelPath], mut entries: Vec<CachedEntry>) -> Vec<CachedEntry> {
        entries.retain(|cached| touched.binary_search(&cached.entry.path).is_err());
        let now = |path: &RelPath| {
            let place = self.entries.binary_search_by(|cached| cached.entry.path.cmp(path));
            place.ok().map(|at| self.entries[at].clone())
        };
        entries.extend(touched.iter().filter_map(now));
        // Two lists in order behind each other, which this puts together in one pass.
        entries.sort_by(|one, next| one.entry.path.cmp(&next.entry.path));
        entries
    }
}

/// Adds `part` to the bytes of a file.
fn append(bytes: &mut Vec<u8>, part: &[u8]) -> Place {
    let offset = bytes.len() as u64;
    bytes.extend_from_slice(part);
    Place { offset, length: part.len() as u64, digest: Digest::of(part) }
}

/// What is at `place` in a file of `size` bytes, if it is what was written there.
fn read_place(file: &File, size: u64, place: &Place) -> Option<Vec<u8>> {
    let end = place.offset.checked_add(place.length)?;
    if end > size {
        return None;
    }
    let bytes = disk::read_range(file, place.offset, usize::try_from(place.length).ok()?)?;
    (Digest::of(&bytes) == place.digest).then_some(bytes)
}

fn put_place(place: &Place, bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(&place.offset.to_le_bytes());
    bytes.extend_from_slice(&place.length.to_le_bytes());
    bytes.extend_from_slice(&place.digest.to_bytes());
}

fn take_place(rest: &mut &[u8]) -> Option<Place> {
    Some(Place {
        offset: u64::from_le_bytes(take(rest)?),
        length: u64::from_le_bytes(take(rest)?),
        digest: Digest::from_bytes(take(rest)?),
    })
}

fn encode_table(rules: &Place, blocks: &[Block]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(32 + blocks.len() * 160);
    put_place(rules, &mut bytes);
    for Block { place, count, first, census } in blocks {
        put_place(place, &mut bytes);
        bytes.extend_from_slice(&(*count as u64).to_le_bytes());
        put_bytes(&mut bytes, first.as_bytes());
        put_census(census, &mut bytes);
    }
    bytes
}

fn decode_table(mut rest: &[u8]) -> Option<(Place, Vec<Block>)> {
    let rules = take_place(&mut rest)?;
    let mut blocks: Vec<Block> = Vec::new();
    while !rest.is_empty() {
        let place = take_place(&mut rest)?;
        let count = usize::try_from(u64::from_le_bytes(take(&mut rest)?)).ok()?;
        let first = take_path(&mut rest)?;
        // None is ever written of nothing, and they are told apart by their first entries.
        let census = take_census(&mut rest)?;
        let is_first_behind = blocks.last().is_none_or(|last| last.first < first);
        if count == 0 || !is_first_behind || !census.is_of(count) {
            return None;
        }
        blocks.push(Block { place, count, first, census });
    }
    Some((rules, blocks))
}

/// A cache whose blocks are not read yet.
struct Opened {
    file: File,
    header: CacheHeader,
    rules: Option<KnownRules>,
    parts: Parts,
}

impl Opened {
    fn open(dir: &Path) -> Option<Self> {
        let (file, size) = disk::open_small(&dir.join(NAME), CACHE_BYTES_MAX).ok()??;
        let head = disk::read_range(&file, 0, HEADER_BYTES)?;
        let (header, table) = decode_header(&head)?;
        let (rules_place, blocks) = decode_table(&read_place(&file, size, &table)?)?;
        // No two blocks are in one place: what is made of them is in proportion to the file.
        let lengths = blocks.iter().map(|block| block.place.length);
        if lengths.fold(0, u64::saturating_add) > size {
            return None;
        }
        let rules = decode_rules(&read_place(&file, size, &rules_place)?)?;
        let parts = Parts { table, rules: rules_place, blocks, end: size, part: None };
        Some(Self { file, header, rules, parts })
    }
}

fn encode_header(header: &CacheHeader, table: &Place) -> [u8; HEADER_BYTES] {
    let mut bytes = Vec::with_capacity(HEADER_BYTES);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&header.store.to_bytes());
    bytes.extend_from_slice(&header.digest.to_bytes());
    bytes.extend_from_slice(&header.checkpoint.seq.get().to_le_bytes());
    put_place(table, &mut bytes);
    put_bytes(&mut bytes, header.checkpoint.session.as_str().as_bytes());
    bytes.resize(HEADER_COVERED, 0);
    let checksum = Digest::of(&bytes);
    bytes.extend_from_slice(&checksum.to_bytes());
    let mut fixed = [0; HEADER_BYTES];
    fixed.copy_from_slice(&bytes);
    fixed
}

fn decode_header(bytes: &[u8]) -> Option<(CacheHeader, Place)> {
    let (covered, checksum) = bytes.split_at_checked(HEADER_COVERED)?;
    if Digest::of(covered).to_bytes() != checksum {
        return None;
    }
    let mut rest = covered.strip_prefix(MAGIC)?;
    let store = StoreId::from_bytes(take(&mut rest)?);
    let digest = Digest::from_bytes(take(&mut rest)?);
    let seq = Seq::new(u64::from_le_bytes(take(&mut rest)?))?;
    let table = take_place(&mut rest)?;
    let session = SessionName::new(std::str::from_utf8(take_bytes(&mut rest)?).ok()?).ok()?;
    let checkpoint = CheckpointId { session, seq };
    Some((CacheHeader { store, checkpoint, digest }, table))
}

#[cfg(test)]
mod tests;
