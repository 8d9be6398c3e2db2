//! Building the index anew from what it is derived from: manifests, pages, pins.

use crate::blobs::Blobs;
use crate::checkpoint::{Place, SessionRow, in_order_of_making};
use crate::disk::{self, Dir, FileKind};
use crate::error::{BadFile, Error, Repair, Result};
use crate::hash::Digest;
use crate::id::CheckpointId;
use crate::index::{self, Access, FILE_NAME, Index, NEW_FILE_NAME, Opened};
use crate::layout::Layout;
use crate::manifest::Manifest;
use crate::monitor::{Monitor, Phase};
use crate::sessions::{Found, Sessions, with_source};

/// What a rebuild did.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
#[must_use]
pub struct RebuildOutcome {
    /// Checkpoints that the new index has.
    pub checkpoints: u64,
    /// Files that could not be understood: manifests, pages, pins, journals. They were left as they are,
    /// and while there are any nothing is deleted.
    pub unreadable: Vec<BadFile>,
    /// Files of the store that were missing or damaged and were made anew.
    pub repaired: Vec<Repair>,
}

/// Builds the index anew and puts it in place of the old one, which is moved aside with its
/// companions. The caller holds the store's lock alone, so nobody has the old one open in an
/// operation.
///
/// # Durability
/// The rename is the commit: before it the old index is in place, or none.
pub(crate) fn rebuild(
    layout: &Layout,
    sessions: &Sessions,
    blobs: &Blobs,
    monitor: &dyn Monitor,
) -> Result<RebuildOutcome> {
    let root = Dir::open(layout.root())?;
    let given = numbers_given(&root);
    index::remove_unfinished(&root)?;
    let mut outcome =
        RebuildOutcome { unreadable: sessions.unlisted()?, ..RebuildOutcome::default() };
    let manifests = read_all(sessions, &mut outcome)?;
    monitor.phase(Phase::Rebuild, Some(manifests.len() as u64));
    let index = Index::create_new(&root)?;
    let stored = blobs.stored_sizes();
    for Readable { id, manifest, digest, file_bytes } in in_order(manifests) {
        if monitor.is_cancelled() {
            return Err(Error::Cancelled);
        }
        let pin = match sessions.read_pin(&id) {
            Ok(pin) => pin,
            Err(error) => {
                outcome.unreadable.push(bad(sessions.pin_path(&id), &error));
                continue;
            }
        };
        let inserted = index.write("insert a checkpoint", |tx| {
            // A checkpoint that is named was given its number, whether or not it is still there.
            for named in manifest.references() {
                tx.keep_numbers(&named.session, named.seq.get() + 1)?;
            }
            tx.insert_checkpoint(&manifest, digest, file_bytes, &pin, &stored, blobs)
        });
        match inserted {
            Ok(_) => outcome.checkpoints += 1,
            Err(error) if error.is_lost_content() => {
                outcome.unreadable.push(bad(sessions.manifest_path(&id), &error));
            }
            Err(error) => return Err(error),
        }
        monitor.advanced(1, 0);
    }
    index.write("keep the numbers given", |tx| {
        given.iter().try_for_each(|row| tx.keep_numbers(&row.name, row.next_seq))
    })?;
    index.close_without_wal()?;
    // The old database goes first, and durably: without its log it would be taken for an index, of an
    // earlier time. The log goes before the new database comes: beside it, it would be taken for its own.
    move_aside(layout, &root, "")?;
    root.sync()?;
    for suffix in ["-wal", "-shm"] {
        move_aside(layout, &root, suffix)?;
    }
    root.rename_to(NEW_FILE_NAME.as_bytes(), &root, FILE_NAME.as_bytes())?;
    root.sync()?;
    Ok(outcome)
}

/// What the index that is to be replaced knows of the numbers given, as far as it can be read: files
/// alone do not know those of checkpoints that are gone.
fn numbers_given(root: &Dir) -> Vec<SessionRow> {
    match Index::open(root, Access::Read) {
        Ok(Opened::Ready(index)) => {
            index.read("list sessions", |tx| tx.sessions()).unwrap_or_default()
        }
        _ => Vec::new(),
    }
}

fn bad(path: std::path::PathBuf, error: &Error) -> BadFile {
    BadFile { path, reason: with_source(error) }
}

/// Gives the old index another name, in place of the one that had it. What is no file, and so no index,
/// goes into the quarantine: it could not take the name of a file, nor a file its name.
fn move_aside(layout: &Layout, root: &Dir, suffix: &str) -> Result<()> {
    let name = format!("{FILE_NAME}{suffix}");
    let aside = format!("{FILE_NAME}.aside{suffix}");
    for name in [&name, &aside] {
        if root.stat(name.as_bytes())?.is_some_and(|stat| stat.kind != FileKind::File) {
            let quarantine = disk::make_private_dir(&layout.quarantine())?;
            disk::set_aside(root, name.as_bytes(), &quarantine)?;
        }
    }
    if root.stat(name.as_bytes())?.is_none() {
        return Ok(());
    }
    root.rename_to(name.as_bytes(), root, aside.as_bytes())
}

struct Readable {
    id: CheckpointId,
    manifest: Box<Manifest>,
    digest: Digest,
    file_bytes: u64,
}

fn read_all(sessions: &Sessions, outcome: &mut RebuildOutcome) -> Result<Vec<Readable>> {
    let mut manifests = Vec::new();
    for session in sessions.names()? {
        // One session that cannot be listed does not take the others with it.
        let listing = match sessions.listing(&session) {
            Ok(listing) => listing,
            Err(error) => {
                outcome.unreadable.push(bad(sessions.directory(&session), &error));
                continue;
            }
        };
        for seq in listing.manifests {
            let id = CheckpointId { session: session.clone(), seq };
            match sessions.read(&id) {
                Found::Valid { manifest, digest, file_bytes } => {
                    manifests.push(Readable { id, manifest, digest, file_bytes });
                }
                Found::Unreadable { reason } => {
                    let path = sessions.manifest_path(&id);
                    outcome.unreadable.push(BadFile { path, reason });
                }
                Found::Legacy | Found::Absent => {}
            }
        }
    }
    Ok(manifests)
}

/// As they were made: the newest checkpoint of a workspace is the last inserted, and a clock that was
/// set back must not change which one that is.
fn in_order(manifests: Vec<Readable>) -> Vec<Readable> {
    in_order_of_making(manifests, |Readable { id, manifest, .. }| Place {
        id,
        parent: manifest.parent.as_ref().map(|parent| &parent.id),
        created_at: Some(manifest.created_at),
    })
}
