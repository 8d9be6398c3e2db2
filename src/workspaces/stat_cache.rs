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

mod block;

use std::ops::Range;
use std::path::Path;

use rayon::prelude::*;

use crate::disk::{self, Dir, File};
use crate::error::Result;
use crate::hash::Digest;
use crate::id::{CheckpointId, Seq, SessionName, StoreId};
use crate::path::RelPath;
use crate::threads;
use crate::walk::{CachedEntry, KnownRules, KnownTree};
use crate::workspaces::stat_cache::block::{
    decode_block, decode_rules, encode_block, encode_rules, put_bytes, take, take_bytes,
};

/// The name of the file.
const NAME: &str = "stat-cache";
const MAGIC: &[u8; 8] = b"tpstat03";
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
}

/// A stretch of the file, and its checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    offset: u64,
    length: u64,
    digest: Digest,
}

#[derive(Debug, Clone)]
struct Block {
    place: Place,
    count: usize,
    /// The path of its first entry.
    first: RelPath,
}

/// What is new in a cache since it was read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct News<'a> {
    /// All entries as they are now, in order.
    pub(crate) entries: &'a [CachedEntry],
    /// The paths of those that are new or not to the letter what they were, and of those that are gone.
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
        let (file, size) = disk::open_small(&dir.join(NAME), CACHE_BYTES_MAX).ok()??;
        let head = disk::read_range(&file, 0, HEADER_BYTES)?;
        let (header, table) = decode_header(&head)?;
        let (rules_place, blocks) = decode_table(&read_place(&file, size, &table)?)?;
        // No two blocks are in one place: what is made of them is in proportion to the file.
        let lengths = blocks.iter().map(|(place, _)| place.length);
        if lengths.fold(0, u64::saturating_add) > size {
            return None;
        }
        let rules = decode_rules(&read_place(&file, size, &rules_place)?)?;
        let decode = |(place, count): &(Place, usize)| {
            decode_block(&read_place(&file, size, place)?, *count)
        };
        // No entry takes less: the table may say more than there is.
        let most = usize::try_from(size).ok()? / ENTRY_BYTES_MIN;
        let count = |blocks: &[(Place, usize)]| {
            blocks.iter().fold(0, |sum: usize, (_, count)| sum.saturating_add(*count)).min(most)
        };
        let entries = if blocks.len() > BLOCKS_IN_PARALLEL_ABOVE {
            let pool = threads::pool("cache").ok()?;
            let stretch = blocks.len().div_ceil(pool.current_num_threads());
            // The first has room for all: they need not be moved.
            let one = |(number, stretch): (usize, &[(Place, usize)])| {
                let expected = if number == 0 { count(&blocks) } else { count(stretch) };
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
            decode_all(&blocks, count(&blocks), decode)?
        };
        let mut parts = Parts { table, rules: rules_place, blocks: Vec::new(), end: size };
        let mut start = 0;
        for (place, count) in blocks {
            let first = entries.get(start)?.entry.path.clone();
            if start > 0 && entries[start - 1].entry.path >= first {
                return None;
            }
            parts.blocks.push(Block { place, count, first });
            start += count;
        }
        Some(Self { header, tree: KnownTree { entries, rules }, parts })
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
        let blocks: Vec<(Place, usize)> = entries
            .chunks(BLOCK_ENTRIES)
            .map(|chunk| (append(&mut bytes, &encode_block(chunk)), chunk.len()))
            .collect();
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
    /// Cost: writing the blocks where something changed, and 40 bytes for each block; now and then all.
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
        let mut blocks = Vec::with_capacity(self.parts.blocks.len());
        let Some(cut) = cut(&self.parts.blocks, news.entries, news.touched) else {
            return Self::write(dir, header, news.entries, news.rules, tmp);
        };
        for (range, known) in cut {
            let entries = &news.entries[range];
            if let Some(place) = known {
                blocks.push((place, entries.len()));
                continue;
            }
            let length =
                if entries.len() > BLOCK_ENTRIES_MAX { BLOCK_ENTRIES } else { BLOCK_ENTRIES_MAX };
            for chunk in entries.chunks(length) {
                blocks.push((writing.put(encode_block(chunk)), chunk.len()));
            }
        }
        let table = writing.put(encode_table(&rules, &blocks));
        let used = blocks.iter().map(|(place, _)| place.length).sum::<u64>()
            + rules.length
            + table.length
            + HEADER_BYTES as u64;
        if writing.end > 2 * used {
            return Self::write(dir, header, news.entries, news.rules, tmp);
        }
        let dir = Dir::open(dir)?;
        disk::overwrite(&dir, NAME.as_bytes(), &writing.writes)?;
        // Last: what was there is good until then.
        let head = (0, encode_header(header, &table).to_vec());
        disk::overwrite(&dir, NAME.as_bytes(), &[head])
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
    blocks: &[(Place, usize)],
    expected: usize,
    decode: impl Fn(&(Place, usize)) -> Option<Vec<CachedEntry>>,
) -> Option<Vec<CachedEntry>> {
    let mut entries = Vec::with_capacity(expected);
    for block in blocks {
        entries.append(&mut decode(block)?);
    }
    Some(entries)
}

/// Which of `entries` each block has now, and where the block is if nothing in it was touched; `None` where
/// the entries cannot be those of the blocks but for what was touched.
fn cut(
    blocks: &[Block],
    entries: &[CachedEntry],
    touched: &[RelPath],
) -> Option<Vec<(Range<usize>, Option<Place>)>> {
    let mut is_touched = vec![false; blocks.len()];
    for path in touched {
        // What comes before the first block belongs to it.
        let after = blocks.partition_point(|block| block.first <= *path);
        if let Some(is_touched) = is_touched.get_mut(after.saturating_sub(1)) {
            *is_touched = true;
        }
    }
    let mut ranges = Vec::with_capacity(blocks.len());
    let mut start = 0;
    for (number, block) in blocks.iter().enumerate() {
        let rest = &entries[start..];
        let before = |path: &RelPath| rest.partition_point(|cached| cached.entry.path < *path);
        let count = match blocks.get(number + 1) {
            _ if !is_touched[number] => {
                if rest.len() < block.count || rest[0].entry.path != block.first {
                    return None;
                }
                block.count
            }
            None => rest.len(),
            Some(next) => before(&next.first),
        };
        let end = start + count;
        ranges.push((start..end, (!is_touched[number]).then_some(block.place)));
        start = end;
    }
    if blocks.is_empty() {
        ranges.push((0..entries.len(), None));
    } else if start < entries.len() {
        return None;
    }
    Some(ranges)
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

fn encode_table(rules: &Place, blocks: &[(Place, usize)]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(32 + blocks.len() * 40);
    put_place(rules, &mut bytes);
    for (place, count) in blocks {
        put_place(place, &mut bytes);
        bytes.extend_from_slice(&(*count as u64).to_le_bytes());
    }
    bytes
}

fn decode_table(mut rest: &[u8]) -> Option<(Place, Vec<(Place, usize)>)> {
    let rules = take_place(&mut rest)?;
    let mut blocks = Vec::with_capacity(rest.len() / 40);
    while !rest.is_empty() {
        let place = take_place(&mut rest)?;
        let count = usize::try_from(u64::from_le_bytes(take(&mut rest)?)).ok()?;
        // None is ever written of nothing, and the others are told apart by their first entries.
        if count == 0 {
            return None;
        }
        blocks.push((place, count));
    }
    Some((rules, blocks))
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
