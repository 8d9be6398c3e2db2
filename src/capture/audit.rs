//! Whether the base's content is all there, looked at where there is reason to doubt it.
//!
//! A power cut on a disk that did not keep its promise leaves blobs missing or cut short under good
//! names; somebody removes a pack; a verification finds a page damaged. Files that have not changed
//! would never be read again, and a checkpoint that takes them over from the base could not be
//! restored. So all of the base is looked for once a boot, and again when a pack is gone or has another
//! length, when its root is not there, or when something is known to be lost that was not known at the
//! last look. A pack that came since gives no reason: every capture may add one.
//! What is lost is remembered, so that this capture reads those files and heals them. What nobody had
//! reason to doubt (one loose blob that was removed by hand, bits that flipped) is left to a
//! verification.

use std::collections::{BTreeMap, HashSet};

use rayon::prelude::*;

use crate::access::Access;
use crate::blobs::Presence;
use crate::capture::hold::Base;
use crate::checkpoint::BlobState;
use crate::disk::{self, Dir};
use crate::error::{Error, Result};
use crate::hash::{BlobHash, Digest};
use crate::id::{PackId, WorkspaceId};
use crate::limits;
use crate::manifest::{Entry, page_refs, read_entries};
use crate::monitor::{Monitor, Notice};
use crate::threads;
use crate::workspaces::StatCache;

/// The file that says in which circumstances a workspace's base was looked at last, and which packs there
/// were.
const NAME: &str = "audited";

/// Looks for every blob of the base, its pages included, unless that was done in the present
/// circumstances. What cannot be read now is told, and looked for again the next time: whether it is
/// lost nobody knows.
///
/// # Errors
/// [`Error::Cancelled`]; where the index cannot be asked.
///
/// Cost: one small query, the listing of the packs with a stat for each, the reading of one small file, its
/// writing where packs came, and a look at the base's root. Where there is reason to look, also the reading
/// of all pages, and one open and one short read for each content.
pub(crate) fn audit(
    access: &Access,
    workspace: WorkspaceId,
    base: &Base,
    monitor: &dyn Monitor,
) -> Result<()> {
    // The packs before the looks: one that goes meanwhile is noticed the next time.
    let packs = access.blobs.pack_lengths()?;
    let mut known: BTreeMap<BlobHash, BlobState> =
        access.index.read("list lost blobs", |tx| tx.lost_blobs())?.into_iter().collect();
    let audited = read_audited(access, workspace, &known);
    let root = (base.tree.root, base.tree.root_size);
    if let Some(audited) = audited
        && are_among(&audited, &packs)
        && (known.contains_key(&root.0) || matches!(look_at(access, root, None), Ok(None)))
    {
        if audited.len() < packs.len() {
            write_audited(access, workspace, &known, &packs);
        }
        return Ok(());
    }
    let Findings { lost, unread } = look_at_all(access, workspace, base, monitor)?;
    remember_all(access, &lost)?;
    if let Some(error) = unread.first() {
        let more = unread.len() - 1;
        let more = if more > 0 { format!("; and {more} more like it") } else { String::new() };
        let reason = format!("{}{more}", error.with_source());
        monitor.notice(&Notice::Unread { reason });
        return Ok(());
    }
    // Not what is known to be lost by now: what another process found meanwhile was not looked for.
    known.extend(lost);
    write_audited(access, workspace, &known, &packs);
    Ok(())
}

/// Remembers, once a capture stands, the packs that there are by now: it relies on those that it has added
/// and on those in which it found something. The next audit misses them when they are gone.
///
/// Cost: one small query, the listing of the packs with a stat for each, the reading of one small file, and
/// its writing where packs came.
pub(super) fn note_packs(access: &Access, workspace: WorkspaceId) -> Result<()> {
    let packs = access.blobs.pack_lengths()?;
    let known = access.index.read("list lost blobs", |tx| tx.lost_blobs())?.into_iter().collect();
    let Some(audited) = read_audited(access, workspace, &known) else { return Ok(()) };
    if audited.len() < packs.len() && are_among(&audited, &packs) {
        write_audited(access, workspace, &known, &packs);
    }
    Ok(())
}

/// Packs, and how long each is in bytes.
type Packs = BTreeMap<PackId, u64>;

fn are_among(audited: &Packs, packs: &Packs) -> bool {
    audited.iter().all(|(id, bytes)| packs.get(id) == Some(bytes))
}

/// The packs that there were at the last look; `None` where there is reason to look again.
fn read_audited(
    access: &Access,
    workspace: WorkspaceId,
    known: &BTreeMap<BlobHash, BlobState>,
) -> Option<Packs> {
    let place = access.workspaces.directory(workspace).join(NAME);
    let text = disk::read_small(&place, limits::SMALL_FILE_BYTES_MAX).ok()??;
    decode(&text, reasons(access, known))
}

/// Not written, the look is done again.
fn write_audited(
    access: &Access,
    workspace: WorkspaceId,
    known: &BTreeMap<BlobHash, BlobState>,
    packs: &Packs,
) {
    let dir = Dir::open(&access.workspaces.directory(workspace));
    let text = encode(reasons(access, known), packs);
    drop(dir.and_then(|dir| disk::replace(&dir, NAME.as_bytes(), &text, &access.tmp)));
}

/// What looking for all blobs of a checkpoint came to.
#[derive(Default)]
struct Findings {
    lost: Vec<(BlobHash, BlobState)>,
    /// Why something could not be looked at.
    unread: Vec<Error>,
}

impl Findings {
    fn take(&mut self, error: Error) -> Result<()> {
        match lost_by(&error) {
            Some(lost) => self.lost.push(lost),
            None if matches!(error, Error::Io { .. }) => self.unread.push(error),
            None => return Err(error),
        }
        Ok(())
    }
}

fn look_at_all(
    access: &Access,
    workspace: WorkspaceId,
    base: &Base,
    monitor: &dyn Monitor,
) -> Result<Findings> {
    let mut findings = Findings::default();
    let mut needed = page_refs(&access.blobs, &base.tree).or_else(|error| {
        findings.take(error).map(|()| vec![(base.tree.root, base.tree.root_size)])
    })?;
    match read_entries(&access.blobs, &base.tree) {
        Ok(entries) => needed.extend(entries.iter().filter_map(Entry::blob)),
        Err(error) => {
            findings.take(error)?;
            // That one is damaged says nothing for the others, and a look does not tell.
            for (hash, size) in &needed {
                match access.blobs.check(*hash, Some(*size)) {
                    Ok(Presence::Wrong { .. }) => findings.lost.push((*hash, BlobState::Damaged)),
                    Ok(Presence::Present { .. } | Presence::Absent) => {}
                    Err(error) => findings.take(error)?,
                }
            }
            // What the capture will take over without reading it is what the stat cache says.
            needed.extend(cached_blobs(access, workspace, base));
        }
    }
    look_at_each(access, needed, Depth::Place, &mut findings, monitor)?;
    Ok(findings)
}

/// How closely contents are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    /// Whether each is in its place, with its length.
    Place,
    /// All of it.
    Content,
}

/// Those of `needed` that are lost. They are remembered, so that the next capture that has their bytes heals
/// them.
///
/// # Errors
/// [`Error::Cancelled`]; [`Error::Io`] where one cannot be looked at: whether it is lost nobody knows.
///
/// Cost: one open and one short read for each content, or the reading of all of it.
pub(crate) fn find_lost(
    access: &Access,
    needed: Vec<(BlobHash, u64)>,
    depth: Depth,
    monitor: &dyn Monitor,
) -> Result<HashSet<BlobHash>> {
    let mut findings = Findings::default();
    look_at_each(access, needed, depth, &mut findings, monitor)?;
    let Findings { lost, unread } = findings;
    remember_all(access, &lost)?;
    match unread.into_iter().next() {
        Some(error) => Err(error),
        None => Ok(lost.into_iter().map(|(hash, _)| hash).collect()),
    }
}

fn look_at_each(
    access: &Access,
    mut needed: Vec<(BlobHash, u64)>,
    depth: Depth,
    findings: &mut Findings,
    monitor: &dyn Monitor,
) -> Result<()> {
    needed.sort_unstable();
    needed.dedup();
    let hashes: Vec<BlobHash> = needed.iter().map(|(hash, _)| *hash).collect();
    let stored = access.index.read("list stored lengths", |tx| tx.stored_sizes(&hashes))?;
    let look = |&(hash, size): &(BlobHash, u64)| {
        if monitor.is_cancelled() {
            return Err(Error::Cancelled);
        }
        let found = match depth {
            Depth::Place => access.blobs.look(hash, size, stored.get(&hash).copied()),
            Depth::Content => access.blobs.check(hash, Some(size)),
        };
        found.map(|found| lost_as(hash, &found))
    };
    let looked: Vec<Result<_>> =
        threads::pool("audit")?.install(|| needed.par_iter().map(look).collect());
    for looked in looked {
        match looked {
            Ok(lost) => findings.lost.extend(lost),
            Err(error) => findings.take(error)?,
        }
    }
    Ok(())
}

/// What gives reason to look again, whatever the packs are: another boot, and that more, or less, is known to
/// be lost.
fn reasons(access: &Access, lost: &BTreeMap<BlobHash, BlobState>) -> [u8; REASONS_BYTES] {
    let lost: Vec<u8> = lost.keys().flat_map(|hash| *hash.as_bytes()).collect();
    let mut reasons = [0; REASONS_BYTES];
    reasons[..16].copy_from_slice(&access.host.boot);
    reasons[16..].copy_from_slice(&Digest::of(&lost).to_bytes());
    reasons
}

const REASONS_BYTES: usize = 32;
/// The id of a pack and its length.
const PACK_BYTES: usize = 16 + 8;

fn encode(reasons: [u8; REASONS_BYTES], packs: &Packs) -> Vec<u8> {
    let mut text = reasons.to_vec();
    for (id, bytes) in packs {
        text.extend_from_slice(&id.to_bytes());
        text.extend_from_slice(&bytes.to_le_bytes());
    }
    text
}

/// The reverse of [`encode`]; `None` where the reasons are others.
fn decode(text: &[u8], reasons: [u8; REASONS_BYTES]) -> Option<Packs> {
    let packs = text.strip_prefix(&reasons)?;
    let (packs, rest) = packs.as_chunks::<PACK_BYTES>();
    rest.is_empty().then(|| {
        let pack = |pack: &[u8; PACK_BYTES]| {
            let (id, bytes) = pack.split_first_chunk::<16>()?;
            Some((PackId::from_bytes(*id), u64::from_le_bytes(*bytes.first_chunk()?)))
        };
        packs.iter().filter_map(pack).collect()
    })
}

fn cached_blobs(access: &Access, workspace: WorkspaceId, base: &Base) -> Vec<(BlobHash, u64)> {
    let cache = StatCache::read(&access.workspaces.directory(workspace));
    let cache = cache.filter(|cache| cache.header == base.described(access.store));
    let entries = cache.iter().flat_map(|cache| &cache.tree.entries);
    entries.filter_map(|cached| cached.entry.blob()).collect()
}

/// What is wrong with a blob; `None` where nothing is. `stored` is the length of its file, where known.
fn look_at(
    access: &Access,
    (hash, size): (BlobHash, u64),
    stored: Option<u64>,
) -> Result<Option<(BlobHash, BlobState)>> {
    Ok(lost_as(hash, &access.blobs.look(hash, size, stored)?))
}

fn lost_as(hash: BlobHash, found: &Presence) -> Option<(BlobHash, BlobState)> {
    match found {
        Presence::Present { .. } => None,
        Presence::Absent => Some((hash, BlobState::Missing)),
        Presence::Wrong { .. } => Some((hash, BlobState::Damaged)),
    }
}

fn remember_all(access: &Access, lost: &[(BlobHash, BlobState)]) -> Result<()> {
    if lost.is_empty() {
        return Ok(());
    }
    access.index.write("remember lost blobs", |tx| {
        lost.iter().try_for_each(|(hash, state)| tx.set_blob_state(*hash, *state))
    })
}

/// Remembers the blob that an error is about, so that the next capture that has its bytes heals it.
/// Does nothing for an error that is about something else.
pub(crate) fn remember(access: &Access, error: &Error) -> Result<()> {
    let Some((hash, state)) = lost_by(error) else { return Ok(()) };
    access.index.write("remember damage", |tx| tx.set_blob_state(hash, state))
}

/// The blob that an error says is lost.
fn lost_by(error: &Error) -> Option<(BlobHash, BlobState)> {
    match error {
        Error::BlobMissing { hash } => Some((*hash, BlobState::Missing)),
        Error::BlobDamaged { hash, .. } | Error::PageInvalid { hash, .. } => {
            Some((*hash, BlobState::Damaged))
        }
        _ => None,
    }
}
