//! What the last capture of a workspace saw, so that the next reads only what changed.
//!
//! Disposable: whoever cannot read it, or does not trust it, captures without it. It is read and
//! written under the workspace's lock only. `docs/format.md` gives the bytes.
//!
//! Layout: a header of fixed length with its own checksum, then the rules and the entries, covered by a
//! checksum in the header. A turn that changed nothing rewrites the header alone, in place: a torn header fails
//! its checksum, and the cache is as good as lost, which is allowed.

use std::path::Path;

use crate::disk::{self, Dir};
use crate::error::Result;
use crate::hash::{BlobHash, Digest};
use crate::id::{CheckpointId, Seq, SessionName, StoreId};
use crate::limits;
use crate::manifest::{Entry, EntryKind, Listed, Mode, OmitReason};
use crate::path::RelPath;
use crate::walk::{CachedEntry, KnownIgnoreFile, KnownRules, KnownTree, Stamps};

/// The name of the file.
const NAME: &str = "stat-cache";
const MAGIC: &[u8; 8] = b"tpstat02";
const HEADER_BYTES: usize = 512;
/// The checksum stands in the last bytes of the header and covers those before it.
const HEADER_COVERED: usize = HEADER_BYTES - 16;
/// Entries of a million files take about 150 MB; a file above this is not ours.
const CACHE_BYTES_MAX: u64 = 4 << 30;

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
    /// The length and checksum of the entries' bytes, to write the header again.
    body: (u64, Digest),
}

impl StatCache {
    /// Reads the cache of the workspace whose directory in the store is `dir`; `None` where there is
    /// none or it cannot be trusted.
    ///
    /// Cost: one pass over about 150 bytes an entry.
    pub(crate) fn read(dir: &Path) -> Option<Self> {
        let bytes = disk::read_small(&dir.join(NAME), CACHE_BYTES_MAX).ok()??;
        let (header, body) = bytes.split_at_checked(HEADER_BYTES)?;
        let (header, body_length, body_digest) = decode_header(header)?;
        if body.len() as u64 != body_length || Digest::of(body) != body_digest {
            return None;
        }
        Some(Self { header, tree: decode_tree(body)?, body: (body_length, body_digest) })
    }

    /// Reads what the cache is about, and not its entries; `None` where [`StatCache::read`] would give
    /// none for the sake of its header.
    pub(crate) fn peek(dir: &Path) -> Option<CacheHeader> {
        let head = disk::read_start(&dir.join(NAME), HEADER_BYTES).ok()?;
        decode_header(&head).map(|(header, ..)| header)
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
        encode_rules(rules, &mut bytes);
        for entry in entries {
            encode_entry(entry, &mut bytes);
        }
        let body = &bytes[HEADER_BYTES..];
        let head = encode_header(header, (body.len() as u64, Digest::of(body)));
        bytes[..HEADER_BYTES].copy_from_slice(&head);
        disk::replace(&Dir::open(dir)?, NAME.as_bytes(), &bytes, tmp)
    }

    /// Says that the same entries are those of another checkpoint now. Writes the header only.
    pub(crate) fn rewrite_header(&self, dir: &Path, header: &CacheHeader) -> Result<()> {
        disk::overwrite_start(&Dir::open(dir)?, NAME.as_bytes(), &encode_header(header, self.body))
    }

    /// Removes the cache, if there is one.
    pub(crate) fn discard(dir: &Path) -> Result<()> {
        disk::remove_file(&dir.join(NAME)).map(|_| ())
    }
}

fn encode_header(header: &CacheHeader, body: (u64, Digest)) -> [u8; HEADER_BYTES] {
    let mut bytes = Vec::with_capacity(HEADER_BYTES);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&header.store.to_bytes());
    bytes.extend_from_slice(&header.digest.to_bytes());
    bytes.extend_from_slice(&header.checkpoint.seq.get().to_le_bytes());
    bytes.extend_from_slice(&body.0.to_le_bytes());
    bytes.extend_from_slice(&body.1.to_bytes());
    put_bytes(&mut bytes, header.checkpoint.session.as_str().as_bytes());
    bytes.resize(HEADER_COVERED, 0);
    let checksum = Digest::of(&bytes);
    bytes.extend_from_slice(&checksum.to_bytes());
    let mut fixed = [0; HEADER_BYTES];
    fixed.copy_from_slice(&bytes);
    fixed
}

fn decode_header(bytes: &[u8]) -> Option<(CacheHeader, u64, Digest)> {
    let (covered, checksum) = bytes.split_at_checked(HEADER_COVERED)?;
    if Digest::of(covered).to_bytes() != checksum {
        return None;
    }
    let mut rest = covered.strip_prefix(MAGIC)?;
    let store = StoreId::from_bytes(take(&mut rest)?);
    let digest = Digest::from_bytes(take(&mut rest)?);
    let seq = Seq::new(u64::from_le_bytes(take(&mut rest)?))?;
    let body_length = u64::from_le_bytes(take(&mut rest)?);
    let body_digest = Digest::from_bytes(take(&mut rest)?);
    let session = SessionName::new(std::str::from_utf8(take_bytes(&mut rest)?).ok()?).ok()?;
    let checkpoint = CheckpointId { session, seq };
    Some((CacheHeader { store, checkpoint, digest }, body_length, body_digest))
}

const KIND_FILE: u8 = 0;
const KIND_SYMLINK: u8 = 1;
const KIND_DIR: u8 = 2;
const KIND_OMITTED: u8 = 3;
const FLAG_RACY: u8 = 1;
const FLAG_UNSTABLE: u8 = 2;
const FLAG_PARTIAL: u8 = 4;

/// The reasons by number, for the cache alone.
const REASONS: [OmitReason; 12] = [
    OmitReason::Excluded,
    OmitReason::Ignored,
    OmitReason::Secret,
    OmitReason::Store,
    OmitReason::Mount,
    OmitReason::OverFileLimit,
    OmitReason::OverTotalLimit,
    OmitReason::Unreadable,
    OmitReason::Special,
    OmitReason::Sparse,
    OmitReason::IoError,
    OmitReason::Purged,
];

fn encode_entry(cached: &CachedEntry, bytes: &mut Vec<u8>) {
    let entry = &cached.entry;
    let mut flags = if cached.racy { FLAG_RACY } else { 0 };
    let kind = match entry.kind {
        EntryKind::File { unstable, .. } => {
            flags |= if unstable { FLAG_UNSTABLE } else { 0 };
            KIND_FILE
        }
        EntryKind::Symlink { .. } => KIND_SYMLINK,
        EntryKind::Dir { listed } => {
            flags |= if listed == Listed::Partial { FLAG_PARTIAL } else { 0 };
            KIND_DIR
        }
        EntryKind::Omitted { .. } => KIND_OMITTED,
        // Only a restore's account has absent paths, and that is never cached.
        EntryKind::Absent => return,
    };
    bytes.extend_from_slice(&[kind, flags]);
    bytes.extend_from_slice(&entry.mode.bits().to_le_bytes());
    put_stamps(&cached.stamps, bytes);
    put_bytes(bytes, entry.path.as_bytes());
    match &entry.kind {
        EntryKind::File { size, mtime_ns, hash, .. } => {
            bytes.extend_from_slice(&size.to_le_bytes());
            bytes.extend_from_slice(&mtime_ns.to_le_bytes());
            bytes.extend_from_slice(hash.as_bytes());
        }
        EntryKind::Symlink { target } => put_bytes(bytes, target),
        EntryKind::Omitted { reason, rest } => {
            let number = REASONS.iter().position(|known| known == reason).unwrap_or_default();
            bytes.push(u8::try_from(number).unwrap_or_default());
            bytes.extend_from_slice(&rest.to_le_bytes());
        }
        EntryKind::Dir { .. } | EntryKind::Absent => {}
    }
}

const NO_RULES: u8 = 0;
const RULES: u8 = 1;

fn encode_rules(rules: Option<&KnownRules>, bytes: &mut Vec<u8>) {
    let Some(rules) = rules else {
        bytes.push(NO_RULES);
        return;
    };
    bytes.push(RULES);
    bytes.extend_from_slice(&rules.digest.to_bytes());
    put_count(rules.ignore_files.len(), bytes);
    for file in &rules.ignore_files {
        bytes.push(if file.racy { FLAG_RACY } else { 0 });
        bytes.extend_from_slice(file.hash.as_bytes());
        put_stamps(&file.stamps, bytes);
        put_bytes(bytes, file.path.as_bytes());
    }
    for paths in [&rules.repositories, &rules.lifted] {
        put_count(paths.len(), bytes);
        for path in paths {
            put_bytes(bytes, path.as_bytes());
        }
    }
}

fn decode_rules(rest: &mut &[u8]) -> Option<KnownRules> {
    let digest = Digest::from_bytes(take(rest)?);
    let ignore_files = take_list(rest, |rest| {
        let [flags] = take(rest)?;
        let hash = BlobHash::from_bytes(take(rest)?);
        let stamps = take_stamps(rest)?;
        let racy = flags & FLAG_RACY != 0;
        Some(KnownIgnoreFile { path: take_path(rest)?, hash, stamps, racy })
    })?;
    let repositories = take_list(rest, take_path)?;
    let lifted = take_list(rest, take_path)?;
    Some(KnownRules { digest, ignore_files, repositories, lifted })
}

fn decode_tree(mut rest: &[u8]) -> Option<KnownTree> {
    let rules = match take(&mut rest)? {
        [NO_RULES] => None,
        [RULES] => Some(decode_rules(&mut rest)?),
        _ => return None,
    };
    Some(KnownTree { entries: decode_entries(rest)?, rules })
}

fn decode_entries(mut rest: &[u8]) -> Option<Vec<CachedEntry>> {
    let mut entries: Vec<CachedEntry> = Vec::with_capacity(rest.len() / 128);
    while !rest.is_empty() {
        let entry = decode_entry(&mut rest)?;
        if entries.last().is_some_and(|last| last.entry.path >= entry.entry.path) {
            return None;
        }
        entries.push(entry);
    }
    Some(entries)
}

fn decode_entry(rest: &mut &[u8]) -> Option<CachedEntry> {
    let [kind, flags] = take(rest)?;
    let mode = Mode::from_st_mode(u32::from_le_bytes(take(rest)?));
    let stamps = take_stamps(rest)?;
    let path = take_path(rest)?;
    let kind = match kind {
        KIND_FILE => {
            let size = u64::from_le_bytes(take(rest)?);
            let mtime_ns = i64::from_le_bytes(take(rest)?);
            let hash = BlobHash::from_bytes(take(rest)?);
            EntryKind::File { size, mtime_ns, hash, unstable: flags & FLAG_UNSTABLE != 0 }
        }
        KIND_SYMLINK => EntryKind::Symlink { target: take_bytes(rest)?.into() },
        KIND_DIR if flags & FLAG_PARTIAL != 0 => EntryKind::Dir { listed: Listed::Partial },
        KIND_DIR => EntryKind::Dir { listed: Listed::Whole },
        KIND_OMITTED => {
            let [number] = take(rest)?;
            let reason = *REASONS.get(usize::from(number))?;
            EntryKind::Omitted { reason, rest: u64::from_le_bytes(take(rest)?) }
        }
        _ => return None,
    };
    Some(CachedEntry { entry: Entry { path, mode, kind }, stamps, racy: flags & FLAG_RACY != 0 })
}

fn put_bytes(bytes: &mut Vec<u8>, part: &[u8]) {
    // Paths and targets are bounded far below 4 GiB.
    let length = u32::try_from(part.len()).unwrap_or(u32::MAX);
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(part);
}

fn put_stamps(stamps: &Stamps, bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(&stamps.size.to_le_bytes());
    bytes.extend_from_slice(&stamps.mtime_ns.to_le_bytes());
    bytes.extend_from_slice(&stamps.ctime_ns.to_le_bytes());
    bytes.extend_from_slice(&stamps.inode.to_le_bytes());
}

fn take_stamps(rest: &mut &[u8]) -> Option<Stamps> {
    Some(Stamps {
        size: u64::from_le_bytes(take(rest)?),
        mtime_ns: i64::from_le_bytes(take(rest)?),
        ctime_ns: i64::from_le_bytes(take(rest)?),
        inode: u64::from_le_bytes(take(rest)?),
    })
}

fn put_count(count: usize, bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(&(count as u64).to_le_bytes());
}

/// The items, for which no room is made before they are there: the count may be wrong.
fn take_list<T>(rest: &mut &[u8], mut item: impl FnMut(&mut &[u8]) -> Option<T>) -> Option<Vec<T>> {
    let count = u64::from_le_bytes(take(rest)?);
    (0..count).map(|_| item(rest)).collect()
}

fn take_path(rest: &mut &[u8]) -> Option<RelPath> {
    RelPath::new(take_bytes(rest)?).ok()
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (part, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*part)
}

fn take_bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(u32::from_le_bytes(take(rest)?)).ok()?;
    if length > limits::PATH_BYTES_MAX {
        return None;
    }
    let (part, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str, kind: EntryKind) -> CachedEntry {
        let path = RelPath::new(path.as_bytes()).unwrap();
        let entry = Entry { path, mode: Mode::from_st_mode(0o644), kind };
        CachedEntry { entry, stamps: Stamps::default(), racy: false }
    }

    fn all_kinds() -> Vec<CachedEntry> {
        let hash = BlobHash::of(b"x");
        let mut file = entry("a", EntryKind::File { size: 3, mtime_ns: -5, hash, unstable: true });
        file.stamps = Stamps { size: 3, mtime_ns: 4, ctime_ns: 5, inode: 6 };
        file.racy = true;
        vec![
            entry("", EntryKind::Dir { listed: Listed::Whole }),
            file,
            entry("b", EntryKind::Symlink { target: b"../\xff".as_slice().into() }),
            entry("c", EntryKind::Dir { listed: Listed::Partial }),
            entry("d", EntryKind::Omitted { reason: OmitReason::Purged, rest: 9 }),
        ]
    }

    fn rules() -> KnownRules {
        let path = |text: &str| RelPath::new(text).unwrap();
        let stamps = Stamps { size: 9, mtime_ns: -1, ctime_ns: 2, inode: 3 };
        let hash = BlobHash::of(b"*.o");
        KnownRules {
            digest: Digest::of(b"rules"),
            ignore_files: vec![KnownIgnoreFile {
                path: path("a/.gitignore"),
                hash,
                stamps,
                racy: true,
            }],
            repositories: vec![path("b"), path("b/c")],
            lifted: vec![path("a/x.o")],
        }
    }

    fn header() -> CacheHeader {
        CacheHeader {
            store: StoreId::random(),
            checkpoint: CheckpointId {
                session: SessionName::new(&"s".repeat(128)).unwrap(),
                seq: Seq::new(7).unwrap(),
            },
            digest: Digest::of(b"manifest"),
        }
    }

    #[test]
    fn what_is_written_is_read_and_the_header_can_be_renewed_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path();
        let tmp = Dir::open(path).unwrap();
        let (first, second) = (header(), header());
        for rules in [Some(rules()), None] {
            StatCache::write(path, &first, &all_kinds(), rules.as_ref(), &tmp).unwrap();
            let cache = StatCache::read(path).unwrap();
            assert_eq!((&cache.header, &cache.tree.entries), (&first, &all_kinds()));
            assert_eq!(cache.tree.rules, rules);
            cache.rewrite_header(path, &second).unwrap();
            let cache = StatCache::read(path).unwrap();
            assert_eq!((&cache.header, &cache.tree.entries), (&second, &all_kinds()));
            assert_eq!(cache.tree.rules, rules);
        }
    }

    #[test]
    fn a_cache_with_one_byte_changed_or_cut_is_not_trusted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("stat-cache");
        let tmp = Dir::open(dir.path()).unwrap();
        StatCache::write(dir.path(), &header(), &all_kinds(), Some(&rules()), &tmp).unwrap();
        let good = std::fs::read(&path).unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            std::fs::write(&path, &bad).unwrap();
            assert!(StatCache::read(dir.path()).is_none(), "byte {at} flipped");
            std::fs::write(&path, &good[..at]).unwrap();
            assert!(StatCache::read(dir.path()).is_none(), "cut to {at} bytes");
        }
    }
}
