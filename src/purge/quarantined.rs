//! What in the quarantine holds content that a purge removes.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use crate::blobs::Blobs;
use crate::disk::{self, Dir};
use crate::error::{BadFile, Error, Result};
use crate::hash::BlobHash;
use crate::id::PackId;
use crate::purge::plan::Parts;

/// The files of the quarantine that hold one of `going`, below the store: blobs of that name, and packs
/// with one in them. What else is whole in such a pack the store has, or it is needed by nobody.
///
/// # Errors
/// [`Error::DeletionBlocked`] where a pack there is damaged so that it cannot be told what it holds, or
/// has something that the store has not: that is a person's decision.
pub(super) fn find(parts: Parts<'_>, going: &HashSet<BlobHash>) -> Result<Vec<PathBuf>> {
    let top = parts.layout.quarantine();
    if !disk::is_directory(&top)? {
        return Ok(Vec::new());
    }
    let (mut found, mut files) = (Vec::new(), Vec::new());
    let mut directories = vec![top];
    while let Some(directory) = directories.pop() {
        let dir = Dir::open(&directory)?;
        for (name, is_dir) in disk::list_dir(&directory)? {
            let path = dir.path_of(&name);
            if is_dir {
                directories.push(path);
                continue;
            }
            let Ok(name) = std::str::from_utf8(&name) else { continue };
            let holds = match kind_of(name) {
                Some(Kind::Blob(hash)) => Ok(going.contains(&hash)),
                Some(Kind::Pack) => pack_holds(parts, &dir, name, going)?,
                None => Ok(false),
            };
            match holds {
                Ok(true) => found.push(below_store(parts, &path)),
                Ok(false) => {}
                Err(reason) => files.push(BadFile { path, reason }),
            }
        }
    }
    if !files.is_empty() {
        return Err(Error::DeletionBlocked { files });
    }
    found.sort();
    Ok(found)
}

fn below_store(parts: Parts<'_>, path: &Path) -> PathBuf {
    path.strip_prefix(parts.layout.root()).unwrap_or(path).to_owned()
}

enum Kind {
    Blob(BlobHash),
    Pack,
}

/// What a file was before it came here: names get `.2` or `.damaged` at their end.
fn kind_of(name: &str) -> Option<Kind> {
    let mut parts = name.split('.');
    let stem = parts.next()?;
    if let Ok(hash) = stem.parse() {
        return Some(Kind::Blob(hash));
    }
    (stem.parse::<PackId>().is_ok() && parts.next() == Some("pack")).then_some(Kind::Pack)
}

/// Whether a pack holds one of `going`; why that, or what would be lost with it, cannot be told.
fn pack_holds(
    parts: Parts<'_>,
    dir: &Dir,
    name: &str,
    going: &HashSet<BlobHash>,
) -> Result<Result<bool, String>> {
    let content = Blobs::whole_in_file(dir, name)?;
    if !content.is_all {
        let reason = "not all of it can be read, and it may hold what is to be purged: remove it, or move \
                      it out of the store, and purge again";
        return Ok(Err(reason.to_owned()));
    }
    if content.hashes.is_disjoint(going) {
        return Ok(Ok(false));
    }
    let packs = parts.blobs.packs()?;
    for hash in content.hashes.difference(going) {
        if !parts.blobs.is_there(*hash, &packs)? {
            let reason = format!(
                "it holds what is to be purged, and {hash}, which is nowhere else: move it back to \
                 `packs/`, or remove it, and purge again"
            );
            return Ok(Err(reason));
        }
    }
    Ok(Ok(true))
}
