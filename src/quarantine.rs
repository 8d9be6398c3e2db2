//! Quarantine: taking something damaged out of the way, by explicit command only.
//!
//! A manifest that nobody can read stops every collection, since nobody knows what it names; giving it
//! up is a person's decision. Nothing is removed here: what goes keeps its path, below `quarantine/`.
//! What is sound never goes.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use crate::access::Access;
use crate::adoption;
use crate::blobs::Presence;
use crate::disk::{self, Dir};
use crate::error::{Error, Result};
use crate::hash::BlobHash;
use crate::id::{CheckpointId, PackId, Seq, SessionName};
use crate::journal;
use crate::limits;
use crate::manifest::{InvalidManifest, Manifest, Tree, page_refs, read_entries, validate};
use crate::monitor::{Monitor, Phase};
use crate::registration::{Liveness, liveness};
use crate::sessions::{Found, with_source};

/// What goes, or went, into the quarantine.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub struct Quarantined {
    /// What kind of file it is.
    pub kind: QuarantinedKind,
    /// Where it was.
    pub file: PathBuf,
    /// Where it goes.
    pub to: PathBuf,
    /// The pin file that goes with a manifest.
    pub pin: Option<PathBuf>,
    /// What is wrong with it.
    pub reason: String,
    /// The checkpoints that cannot be restored in whole: that of the manifest, or those that need
    /// content which is nowhere else.
    pub checkpoints: Vec<CheckpointId>,
}

/// What kind of file goes into the quarantine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum QuarantinedKind {
    /// A manifest, with its pin file: the checkpoint is given up.
    Manifest,
    /// A pin file: pin, label and note are given up.
    Pin,
    /// The file of one blob.
    Blob,
    /// A pack; what is whole in it is saved first.
    Pack,
}

impl QuarantinedKind {
    /// The word for people and scripts.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Manifest => "manifest",
            Self::Pin => "pin",
            Self::Blob => "blob",
            Self::Pack => "pack",
        }
    }
}

/// What a path in the store stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Thing {
    Manifest(CheckpointId),
    Pin(CheckpointId),
    Blob(BlobHash),
    Pack(PackId),
}

impl Thing {
    const fn kind(&self) -> QuarantinedKind {
        match self {
            Self::Manifest(_) => QuarantinedKind::Manifest,
            Self::Pin(_) => QuarantinedKind::Pin,
            Self::Blob(_) => QuarantinedKind::Blob,
            Self::Pack(_) => QuarantinedKind::Pack,
        }
    }
}

/// What would go, and why it may.
///
/// # Errors
/// [`Error::NotOfStore`], [`Error::QuarantineRefused`], [`Error::Io`].
pub(crate) fn plan(access: &Access, file: &Path, monitor: &dyn Monitor) -> Result<Quarantined> {
    monitor.phase(Phase::Verify, None);
    let relative = relative(access, file)?;
    let thing = thing_at(&relative).ok_or_else(|| Error::NotOfStore {
        path: file.to_owned(),
        reason:
            "a manifest, pin, blob or pack of the store is expected, as `turnpoint doctor` names it"
                .to_owned(),
    })?;
    let path = access.layout.root().join(&relative);
    let (reason, checkpoints) = match &thing {
        Thing::Manifest(id) => (manifest_damage(access, id, &path)?, vec![id.clone()]),
        Thing::Pin(id) => (pin_damage(access, id, &path)?, Vec::new()),
        Thing::Blob(hash) => blob_damage(access, *hash, &path, monitor)?,
        Thing::Pack(id) => pack_damage(access, *id, &path, monitor)?,
    };
    let to = match &thing {
        // Gone on with: it is there already.
        Thing::Manifest(id) if disk::modified_ns(&path)?.is_none() => moved_place(access, id),
        _ => place_for(access, &relative)?,
    };
    let pin = match &thing {
        Thing::Manifest(_) => Some(path.with_extension("pin")),
        _ => None,
    };
    let pin = pin.filter(|pin| matches!(disk::modified_ns(pin), Ok(Some(_))));
    Ok(Quarantined { kind: thing.kind(), file: path, to, pin, reason, checkpoints })
}

/// Does what [`plan`] says. The caller keeps everybody else out of the store.
///
/// # Errors
/// As [`plan`].
pub(crate) fn apply(access: &Access, file: &Path, monitor: &dyn Monitor) -> Result<Quarantined> {
    let planned = plan(access, file, monitor)?;
    let relative = relative(access, file)?;
    match thing_at(&relative) {
        Some(Thing::Manifest(id)) => {
            access.sessions.keep_number(&id, &access.tmp)?;
            // The pin first: a pin without a manifest would be damage of another kind.
            move_away(access, &relative.with_extension("pin"))?;
            move_away(access, &relative)?;
            forget(access, &id)?;
        }
        Some(Thing::Pack(id)) => {
            // Where it cannot be read nothing can be saved: then it goes as it is. But where there is no
            // room for what is whole in it, it stays.
            if let Err(error) = access.blobs.whole_in_pack(id) {
                let text = format!("nothing of it was saved: {}", with_source(&error));
                monitor.notice(&crate::monitor::Notice::Remark { text });
            } else {
                access.blobs.salvage_pack(id)?;
            }
            move_away(access, &relative)?;
        }
        _ => move_away(access, &relative)?,
    }
    Ok(planned)
}

/// Takes the checkpoint out of the index, after its manifest has gone: a crash in between leaves a row
/// without a manifest, which stops a collection until this is done again.
fn forget(access: &Access, id: &CheckpointId) -> Result<()> {
    for row in access.index.read("list operations", |tx| tx.operations())? {
        if row.intent.as_ref() == Some(id) && liveness(access, &row)? == Liveness::Dead {
            adoption::end_operation(access, &row)?;
        }
    }
    access.index.write_durably("forget a checkpoint", |tx| tx.delete_checkpoint(id))
}

/// The path below the store's directory.
fn relative(access: &Access, file: &Path) -> Result<PathBuf> {
    let root = access.layout.root();
    let below = if file.is_absolute() {
        let real = disk::real_path(root)?;
        file.strip_prefix(root).or_else(|_| file.strip_prefix(&real)).ok()
    } else {
        Some(file)
    };
    let is_plain = |path: &&Path| path.components().all(|it| matches!(it, Component::Normal(_)));
    below.filter(is_plain).map(Path::to_owned).ok_or_else(|| Error::NotOfStore {
        path: file.to_owned(),
        reason: format!("it is not below {}", root.display()),
    })
}

fn thing_at(relative: &Path) -> Option<Thing> {
    let parts: Vec<&str> = relative.iter().map(OsStr::to_str).collect::<Option<_>>()?;
    match parts[..] {
        ["blobs", shard, name] if name.starts_with(shard) && shard.len() == 2 => {
            name.parse().ok().map(Thing::Blob)
        }
        ["packs", name] => name.strip_suffix(".pack")?.parse().ok().map(Thing::Pack),
        [session, name] => {
            let session = SessionName::new(session).ok()?;
            let id = |seq: &str| Some(CheckpointId { session, seq: seq.parse::<Seq>().ok()? });
            match name.rsplit_once('.')? {
                (seq, "json") => id(seq).map(Thing::Manifest),
                (seq, "pin") => id(seq).map(Thing::Pin),
                _ => None,
            }
        }
        _ => None,
    }
}

fn refused(path: &Path, reason: impl Into<String>) -> Error {
    Error::QuarantineRefused { path: path.to_owned(), reason: reason.into() }
}

/// What is wrong with a manifest, or with what it needs to be understood.
fn manifest_damage(access: &Access, id: &CheckpointId, path: &Path) -> Result<String> {
    let reason = match access.sessions.read(id) {
        Found::Valid { manifest, .. } => tree_damage(access, &manifest, path)?
            .ok_or_else(|| refused(path, "it is sound; `turnpoint prune` drops old checkpoints"))?,
        Found::Legacy => return Err(refused(path, "another program wrote it")),
        Found::Unreadable { reason } => match disk::read_small(path, limits::MANIFEST_BYTES_MAX) {
            Err(error) if disk::is_withheld(&error) => return Err(refused(path, reason)),
            Ok(Some(text)) if is_of_newer_program(&text) => {
                return Err(refused(path, "a newer turnpoint wrote it, which can read it"));
            }
            _ => reason,
        },
        Found::Absent => {
            // Moved by a process that did not come to the end.
            let row = access.index.read("find a checkpoint", |tx| tx.checkpoint(id))?;
            if row.is_none() || !is_moved(access, id)? {
                return Err(not_there(path));
            }
            "it is gone, and the index still has its checkpoint".to_owned()
        }
    };
    let needed = journal::needed_by_journals(&access.layout)?;
    if needed.contains(id) {
        return Err(refused(path, "an open restore needs it: end that first"));
    }
    for row in access.index.read("list operations", |tx| tx.operations())? {
        if row.intent.as_ref() == Some(id) && liveness(access, &row)? == Liveness::Foreign {
            return Err(refused(path, "an operation of another machine is about to record it"));
        }
    }
    if access.index.read("find what is protected", |tx| tx.protected_checkpoints())?.contains(id) {
        return Err(refused(path, "an operation relies on it"));
    }
    Ok(reason)
}

/// Whether the manifest of that checkpoint is in the quarantine.
fn is_moved(access: &Access, id: &CheckpointId) -> Result<bool> {
    Ok(disk::modified_ns(&moved_place(access, id))?.is_some())
}

fn moved_place(access: &Access, id: &CheckpointId) -> PathBuf {
    let manifest = access.sessions.manifest_path(id);
    let below = manifest.strip_prefix(access.layout.root()).unwrap_or(&manifest);
    access.layout.quarantine().join(below)
}

fn not_there(path: &Path) -> Error {
    Error::NotOfStore { path: path.to_owned(), reason: "there is no such file".to_owned() }
}

fn is_of_newer_program(text: &[u8]) -> bool {
    matches!(Manifest::decode(text), Err(InvalidManifest::TooNew { .. }))
}

/// Why the entries of a checkpoint cannot be had; `None` where they can.
fn tree_damage(access: &Access, manifest: &Manifest, path: &Path) -> Result<Option<String>> {
    for tree in trees(manifest) {
        let damage = match read_entries(&access.blobs, tree) {
            Ok(entries) => validate(&entries).err(),
            Err(error) if disk::is_withheld(&error) => {
                return Err(refused(path, with_source(&error)));
            }
            Err(error @ Error::Io { .. }) => Some(with_source(&error)),
            Err(error) if error.is_lost_content() => Some(with_source(&error)),
            Err(error) => return Err(error),
        };
        if damage.is_some() {
            return Ok(damage);
        }
    }
    Ok(None)
}

fn trees(manifest: &Manifest) -> impl Iterator<Item = &Tree> {
    std::iter::once(&manifest.tree).chain(manifest.restore.as_ref().map(|restore| &restore.after))
}

fn pin_damage(access: &Access, id: &CheckpointId, path: &Path) -> Result<String> {
    if disk::modified_ns(path)?.is_none() {
        return Err(not_there(path));
    }
    match access.sessions.read_pin(id) {
        Ok(_) => Err(refused(path, "it is sound; `turnpoint unpin` takes a pin back")),
        Err(error) if disk::is_withheld(&error) => Err(refused(path, with_source(&error))),
        Err(error) => Ok(with_source(&error)),
    }
}

fn blob_damage(
    access: &Access,
    hash: BlobHash,
    path: &Path,
    monitor: &dyn Monitor,
) -> Result<(String, Vec<CheckpointId>)> {
    match access.blobs.check_loose(hash, None)? {
        Presence::Absent => Err(not_there(path)),
        Presence::Present { .. } => Err(refused(path, "it is sound")),
        Presence::Wrong { reason } => {
            let is_elsewhere = matches!(access.blobs.check(hash, None)?, Presence::Present { .. });
            let lost = |needed: BlobHash| needed == hash && !is_elsewhere;
            Ok((reason, that_need(access, lost, monitor)?))
        }
    }
}

fn pack_damage(
    access: &Access,
    id: PackId,
    path: &Path,
    monitor: &dyn Monitor,
) -> Result<(String, Vec<CheckpointId>)> {
    if disk::modified_ns(path)?.is_none() {
        return Err(not_there(path));
    }
    let Some(reason) = access.blobs.pack_damage(id)? else {
        return Err(refused(path, "it is sound"));
    };
    let whole: HashSet<BlobHash> = access.blobs.whole_in_pack(id).unwrap_or_default();
    let packs = access.blobs.packs()?;
    let lost = |hash: BlobHash| {
        let is_in_other = packs.find(hash).any(|(pack, _)| pack.id != id);
        !whole.contains(&hash) && !is_in_other && !access.blobs.has_own_file(hash)
    };
    Ok((reason, that_need(access, lost, monitor)?))
}

/// The checkpoints that need a lost blob, as content or as a page.
///
/// Cost: all manifests and pages are read.
fn that_need(
    access: &Access,
    lost: impl Fn(BlobHash) -> bool,
    monitor: &dyn Monitor,
) -> Result<Vec<CheckpointId>> {
    let mut ids = Vec::new();
    for session in access.sessions.names()? {
        // What cannot be listed or understood is told by a verification.
        let Ok(listing) = access.sessions.listing(&session) else { continue };
        for seq in listing.manifests {
            if monitor.is_cancelled() {
                return Err(Error::Cancelled);
            }
            let id = CheckpointId { session: session.clone(), seq };
            if let Found::Valid { manifest, .. } = access.sessions.read(&id)
                && trees(&manifest).any(|tree| needs(access, tree, &lost))
            {
                ids.push(id);
            }
        }
    }
    Ok(ids)
}

fn needs(access: &Access, tree: &Tree, lost: &impl Fn(BlobHash) -> bool) -> bool {
    let is_lost = |error: &Error| match error {
        Error::BlobMissing { hash }
        | Error::BlobDamaged { hash, .. }
        | Error::PageInvalid { hash, .. } => lost(*hash),
        _ => false,
    };
    let pages = match page_refs(&access.blobs, tree) {
        Ok(pages) => pages,
        Err(error) => return is_lost(&error),
    };
    if pages.iter().any(|(hash, _)| lost(*hash)) {
        return true;
    }
    match read_entries(&access.blobs, tree) {
        Ok(entries) => entries.iter().any(|entry| entry.blob().is_some_and(|(hash, _)| lost(hash))),
        Err(error) => is_lost(&error),
    }
}

/// A free name in the quarantine: the same path, with a number behind it where that is taken.
fn place_for(access: &Access, relative: &Path) -> Result<PathBuf> {
    let base = access.layout.quarantine().join(relative);
    let mut to = base.clone();
    for number in 2..=NAMES_MAX {
        if disk::modified_ns(&to)?.is_none() {
            return Ok(to);
        }
        let mut name = base.as_os_str().to_owned();
        name.push(format!(".{number}"));
        to = name.into();
    }
    Err(refused(&access.layout.root().join(relative), "too many of that name are there already"))
}

/// How many things of one name the quarantine takes.
const NAMES_MAX: u32 = 1_000;

/// Moves what is at that path, if anything is.
///
/// # Durability
/// Both names are durable when this returns.
fn move_away(access: &Access, relative: &Path) -> Result<()> {
    let from = access.layout.root().join(relative);
    let to = place_for(access, relative)?;
    let parent = |path: &Path| path.parent().unwrap_or(path).to_owned();
    let dir = match Dir::open(&parent(&from)) {
        Ok(dir) => dir,
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let name = |path: &Path| path.file_name().map_or(Vec::new(), |name| name.as_bytes().to_vec());
    if dir.stat(&name(&from))?.is_none() {
        return Ok(());
    }
    let there = disk::make_private_dir(&parent(&to))?;
    dir.rename_to(&name(&from), &there, &name(&to))?;
    there.sync()?;
    dir.sync()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_be_damaged_alone_is_something_to_put_away() {
        let hash = "ab".repeat(32);
        let blob = format!("blobs/ab/{hash}");
        for (path, kind) in [
            ("s/3.json", Some(QuarantinedKind::Manifest)),
            ("my session/3.json", Some(QuarantinedKind::Manifest)),
            ("s/3.pin", Some(QuarantinedKind::Pin)),
            (blob.as_str(), Some(QuarantinedKind::Blob)),
            ("packs/3f9c2ab17d5e4c8a9b06e1d2f4a7c835.pack", Some(QuarantinedKind::Pack)),
            ("s/03.json", None),
            ("s/session.json", None),
            ("s", None),
            ("index.db", None),
            ("format.json", None),
            ("quarantine/s/3.json", None),
            ("journal/3f9c2ab17d5e4c8a9b06e1d2f4a7c835.json", None),
            (&blob.replace("/ab/", "/ac/"), None),
            ("", None),
        ] {
            assert_eq!(thing_at(Path::new(path)).map(|it| it.kind()), kind, "{path}");
        }
    }
}
