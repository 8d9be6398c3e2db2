//! The parts of a stat cache as bytes: blocks of entries, and the rules. Pure.

use std::sync::Arc;

use crate::hash::{BlobHash, Digest};
use crate::limits;
use crate::manifest::{Entry, EntryKind, Listed, Mode, OmitReason};
use crate::path::RelPath;
use crate::walk::{CachedEntry, Census, KnownIgnoreFile, KnownRules, Stamps};
use crate::workspaces::stat_cache::ENTRY_BYTES_MIN;

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

fn number_of(reason: OmitReason) -> u8 {
    let number = REASONS.iter().position(|known| *known == reason).unwrap_or_default();
    u8::try_from(number).unwrap_or_default()
}

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
    put_length(entry.path.as_bytes().len(), bytes);
    match &entry.kind {
        EntryKind::File { size, mtime_ns, hash, .. } => {
            bytes.extend_from_slice(&size.to_le_bytes());
            bytes.extend_from_slice(&mtime_ns.to_le_bytes());
            bytes.extend_from_slice(hash.as_bytes());
        }
        EntryKind::Symlink { target } => put_bytes(bytes, target),
        EntryKind::Omitted { reason, rest } => {
            bytes.push(number_of(*reason));
            bytes.extend_from_slice(&rest.to_le_bytes());
        }
        EntryKind::Dir { .. } | EntryKind::Absent => {}
    }
}

const NO_RULES: u8 = 0;
const RULES: u8 = 1;

/// The bytes of the rules by which names were judged.
pub(super) fn encode_rules(rules: Option<&KnownRules>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let Some(rules) = rules else {
        bytes.push(NO_RULES);
        return bytes;
    };
    bytes.push(RULES);
    bytes.extend_from_slice(&rules.digest.to_bytes());
    put_count(rules.ignore_files.len(), &mut bytes);
    for file in &rules.ignore_files {
        bytes.push(if file.racy { FLAG_RACY } else { 0 });
        bytes.extend_from_slice(file.hash.as_bytes());
        put_stamps(&file.stamps, &mut bytes);
        put_bytes(&mut bytes, file.path.as_bytes());
    }
    for paths in [&rules.repositories, &rules.lifted] {
        put_count(paths.len(), &mut bytes);
        for path in paths {
            put_bytes(&mut bytes, path.as_bytes());
        }
    }
    bytes
}

/// The reverse of [`encode_rules`]; the outer `None` where it is not that.
#[expect(clippy::option_option, reason = "no rules are not the same as none that can be read")]
pub(super) fn decode_rules(mut rest: &[u8]) -> Option<Option<KnownRules>> {
    let rules = match take(&mut rest)? {
        [NO_RULES] => None,
        [RULES] => Some(decode_known_rules(&mut rest)?),
        _ => return None,
    };
    rest.is_empty().then_some(rules)
}

fn decode_known_rules(rest: &mut &[u8]) -> Option<KnownRules> {
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

/// The bytes of a block: how long its paths are together, the paths, and a record for each entry.
pub(super) fn encode_block(entries: &[CachedEntry]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(4 + entries.len() * 160);
    let paths: usize = entries.iter().map(|cached| cached.entry.path.as_bytes().len()).sum();
    // A block has a few hundred paths of at most 32 KiB.
    bytes.extend_from_slice(&u32::try_from(paths).unwrap_or(u32::MAX).to_le_bytes());
    for cached in entries {
        bytes.extend_from_slice(cached.entry.path.as_bytes());
    }
    for cached in entries {
        encode_entry(cached, &mut bytes);
    }
    bytes
}

/// The entries of a block, whose paths share one buffer. `None` where it is not a block of `count`
/// entries in order.
pub(super) fn decode_block(bytes: &[u8], count: usize) -> Option<Vec<CachedEntry>> {
    let mut rest = bytes;
    let length = usize::try_from(u32::from_le_bytes(take(&mut rest)?)).ok()?;
    let (paths, mut rest) = rest.split_at_checked(length)?;
    let paths: Arc<[u8]> = paths.into();
    let mut start = 0;
    // No record is shorter than this.
    let mut entries: Vec<CachedEntry> = Vec::with_capacity(count.min(rest.len() / ENTRY_BYTES_MIN));
    for _ in 0..count {
        let entry = decode_entry(&mut rest, &paths, &mut start)?;
        if entries.last().is_some_and(|last| last.entry.path >= entry.entry.path) {
            return None;
        }
        entries.push(entry);
    }
    (rest.is_empty() && start == paths.len()).then_some(entries)
}

fn decode_entry(rest: &mut &[u8], paths: &Arc<[u8]>, start: &mut usize) -> Option<CachedEntry> {
    let [kind, flags] = take(rest)?;
    let mode = Mode::from_st_mode(u32::from_le_bytes(take(rest)?));
    let stamps = take_stamps(rest)?;
    let length = usize::try_from(u32::from_le_bytes(take(rest)?)).ok()?;
    let path = RelPath::shared(paths, *start, length).ok()?;
    *start += length;
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
            let reason = take_reason(rest)?;
            EntryKind::Omitted { reason, rest: u64::from_le_bytes(take(rest)?) }
        }
        _ => return None,
    };
    Some(CachedEntry { entry: Entry { path, mode, kind }, stamps, racy: flags & FLAG_RACY != 0 })
}

fn put_length(length: usize, bytes: &mut Vec<u8>) {
    // Paths and targets are bounded far below 4 GiB.
    bytes.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
}

pub(super) fn put_bytes(bytes: &mut Vec<u8>, part: &[u8]) {
    put_length(part.len(), bytes);
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

/// The bytes of what a block has.
pub(super) fn put_census(census: &Census, bytes: &mut Vec<u8>) {
    let Census { directories, files, unstable, symlinks, omitted } = census;
    for count in [directories, files, unstable, symlinks] {
        bytes.extend_from_slice(&count.to_le_bytes());
    }
    put_count(omitted.len(), bytes);
    for (reason, count) in omitted {
        bytes.push(number_of(*reason));
        bytes.extend_from_slice(&count.to_le_bytes());
    }
}

/// The reverse of [`put_census`].
pub(super) fn take_census(rest: &mut &[u8]) -> Option<Census> {
    let mut count = || Some(u64::from_le_bytes(take(rest)?));
    let [directories, files, unstable, symlinks] = [count()?, count()?, count()?, count()?];
    let omitted =
        take_list(rest, |rest| Some((take_reason(rest)?, u64::from_le_bytes(take(rest)?))))?;
    // Each reason once, as it is written.
    let is_in_order = omitted.is_sorted_by(|(one, _), (next, _)| one < next);
    is_in_order.then(|| Census {
        directories,
        files,
        unstable,
        symlinks,
        omitted: omitted.into_iter().collect(),
    })
}

fn take_reason(rest: &mut &[u8]) -> Option<OmitReason> {
    let [number] = take(rest)?;
    REASONS.get(usize::from(number)).copied()
}

fn put_count(count: usize, bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(&(count as u64).to_le_bytes());
}

/// The items, for which no room is made before they are there: the count may be wrong.
fn take_list<T>(rest: &mut &[u8], mut item: impl FnMut(&mut &[u8]) -> Option<T>) -> Option<Vec<T>> {
    let count = u64::from_le_bytes(take(rest)?);
    (0..count).map(|_| item(rest)).collect()
}

pub(super) fn take_path(rest: &mut &[u8]) -> Option<RelPath> {
    RelPath::new(take_bytes(rest)?).ok()
}

pub(super) fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (part, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*part)
}

pub(super) fn take_bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(u32::from_le_bytes(take(rest)?)).ok()?;
    if length > limits::PATH_BYTES_MAX {
        return None;
    }
    let (part, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(part)
}
