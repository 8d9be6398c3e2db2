//! The first capture after a boot looks whether the base's content is all there.
//!
//! A power cut on a disk that did not keep its promise leaves blobs missing or cut short under good
//! names. Nobody would notice before they are needed, and files that have not changed would never be
//! read again. Once a boot they are looked for; what is lost is remembered, so that this capture
//! reads those files and heals them.

use std::collections::HashMap;

use rayon::prelude::*;

use crate::access::Access;
use crate::blobs::Presence;
use crate::capture::hold::Base;
use crate::checkpoint::BlobState;
use crate::disk::{self, Dir};
use crate::error::{Error, Result};
use crate::hash::BlobHash;
use crate::id::WorkspaceId;
use crate::manifest::{Entry, page_refs, read_entries};
use crate::threads;

/// The file that says at which boot a workspace's base was looked at last.
const NAME: &str = "audited";

/// Looks for every blob of the base, its pages included, unless that was done since the machine
/// booted.
///
/// Cost: once a boot one open and one short read for each blob; otherwise the reading of one small
/// file.
pub(crate) fn audit_after_boot(access: &Access, workspace: WorkspaceId, base: &Base) -> Result<()> {
    let place = access.workspaces.directory(workspace);
    let boot = access.host.boot;
    if disk::read_small(&place.join(NAME), 64).ok().flatten().as_deref() == Some(&boot[..]) {
        return Ok(());
    }
    let mut needed = pages_of(access, base)?;
    match read_entries(&access.blobs, &base.tree) {
        Ok(entries) => needed.extend(entries.iter().filter_map(Entry::blob)),
        Err(error) => remember(access, &error)?,
    }
    needed.sort_unstable();
    needed.dedup();
    let hashes: Vec<BlobHash> = needed.iter().map(|(hash, _)| *hash).collect();
    let stored = access.index.read("list stored lengths", |tx| tx.stored_sizes(&hashes))?;
    let lost = look_for(access, &needed, &stored)?;
    if !lost.is_empty() {
        access.index.write("remember lost blobs", |tx| {
            lost.iter().try_for_each(|(hash, state)| tx.set_blob_state(*hash, *state))
        })?;
    }
    disk::replace(&Dir::open(&place)?, NAME.as_bytes(), &boot, &access.tmp)
}

fn pages_of(access: &Access, base: &Base) -> Result<Vec<(BlobHash, u64)>> {
    match page_refs(&access.blobs, &base.tree) {
        Ok(pages) => Ok(pages),
        Err(error) => remember(access, &error).map(|()| Vec::new()),
    }
}

fn look_for(
    access: &Access,
    needed: &[(BlobHash, u64)],
    stored: &HashMap<BlobHash, u64>,
) -> Result<Vec<(BlobHash, BlobState)>> {
    let look = |&(hash, size): &(BlobHash, u64)| -> Result<Option<(BlobHash, BlobState)>> {
        let state = match access.blobs.look(hash, size, stored.get(&hash).copied())? {
            Presence::Present { .. } => return Ok(None),
            Presence::Absent => BlobState::Missing,
            Presence::Wrong { .. } => BlobState::Damaged,
        };
        Ok(Some((hash, state)))
    };
    let looked: Vec<Option<(BlobHash, BlobState)>> =
        threads::pool("audit")?.install(|| needed.par_iter().map(look).collect::<Result<_>>())?;
    Ok(looked.into_iter().flatten().collect())
}

/// Remembers the blob that an error is about, so that the next capture that has its bytes heals it.
/// Does nothing for an error that is about something else.
pub(crate) fn remember(access: &Access, error: &Error) -> Result<()> {
    let (hash, state) = match error {
        Error::BlobMissing { hash } => (*hash, BlobState::Missing),
        Error::BlobDamaged { hash, .. } | Error::PageInvalid { hash, .. } => {
            (*hash, BlobState::Damaged)
        }
        _ => return Ok(()),
    };
    access.index.write("remember damage", |tx| tx.set_blob_state(hash, state))
}
