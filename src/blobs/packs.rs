//! The directory of packs.
//!
//! Which packs there are is asked of the directory and remembered for the process. A pack may come or
//! go at any time, so whoever does not find something in those that are remembered asks again.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::io::Errno;

use crate::blobs::is_errno;
use crate::blobs::pack::{Frame, InPack, OpenError, Pack, file_name, id_of};
use crate::disk::{Dir, make_private_dir};
use crate::error::Result;
use crate::hash::BlobHash;
use crate::id::PackId;
use crate::limits::{self, Packing};

const NAME: &str = "packs";

/// Which packs there are.
#[derive(Debug, Clone, Default)]
pub(crate) struct PackList {
    /// In no order.
    pub(crate) packs: Arc<[Arc<Pack>]>,
    /// What has the name of a pack and cannot be read as one, with the reason.
    pub(super) damaged: Arc<[(PackId, String)]>,
}

impl PackList {
    /// The packs that hold a blob, each with where, as far as they can be read.
    pub(crate) fn find(&self, hash: BlobHash) -> impl Iterator<Item = (&Arc<Pack>, Frame)> {
        self.packs.iter().filter_map(move |pack| match pack.find(hash) {
            Ok(InPack::At(frame)) => Some((pack, frame)),
            Ok(InPack::Nowhere | InPack::Gone) | Err(_) => None,
        })
    }

    /// Whether there are so many small ones that no more should be added.
    pub(super) fn are_crowded(&self, packing: Packing) -> bool {
        let small = self.packs.iter().filter(|pack| packing.is_small(pack.bytes()));
        small.count() >= packing.small_packs_crowded
    }

    /// Whether one of the packs holds a blob, by its trailer.
    ///
    /// # Errors
    /// [`crate::Error::Io`] where none is known to and one cannot be read.
    pub(crate) fn holds(&self, hash: BlobHash) -> Result<bool> {
        let mut unread = None;
        for pack in self.packs.iter() {
            match pack.find(hash) {
                Ok(InPack::At(_)) => return Ok(true),
                Ok(InPack::Nowhere | InPack::Gone) => {}
                Err(error) => unread = Some(error),
            }
        }
        unread.map_or(Ok(false), Err)
    }
}

#[derive(Debug)]
pub(super) struct Packs {
    store: PathBuf,
    remembered: Mutex<Option<PackList>>,
}

impl Packs {
    pub(super) fn new(store: &Path) -> Self {
        Self { store: store.to_owned(), remembered: Mutex::default() }
    }

    /// Where a pack is, or would be.
    pub(super) fn path(&self, id: PackId) -> PathBuf {
        self.store.join(NAME).join(file_name(id))
    }

    /// The directory, made where it is missing.
    pub(super) fn dir(&self) -> Result<Dir> {
        make_private_dir(&self.store.join(NAME))
    }

    /// The packs as they were when this process looked last, if it has.
    pub(super) fn known(&self) -> Option<PackList> {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The packs as they were when this process looked last; they are looked for where it has not.
    pub(super) fn remembered(&self) -> Result<PackList> {
        self.known().map_or_else(|| self.list(), Ok)
    }

    /// The names of the packs as they are now and how long each is, none of them opened.
    pub(super) fn lengths(&self) -> Result<BTreeMap<PackId, u64>> {
        let dir = match Dir::open(&self.store.join(NAME)) {
            Ok(dir) => dir,
            Err(error) if is_errno(&error, Errno::NOENT) => return Ok(BTreeMap::new()),
            Err(error) => return Err(error),
        };
        let mut lengths = BTreeMap::new();
        for name in dir.names()? {
            if let (Some(id), Some(stat)) = (id_of(&name), dir.stat(&name)?) {
                lengths.insert(id, stat.size);
            }
        }
        Ok(lengths)
    }

    /// The packs as they are now.
    ///
    /// # Errors
    /// [`crate::Error::Io`] where the directory or a pack in it cannot be read: never a list that is
    /// too short.
    ///
    /// # Cost
    /// One listing, and the opening of those that are new.
    pub(super) fn list(&self) -> Result<PackList> {
        let dir = match Dir::open(&self.store.join(NAME)) {
            Ok(dir) => Arc::new(dir),
            // Made before there were packs, or a copy that lost empty directories.
            Err(error) if is_errno(&error, Errno::NOENT) => return Ok(PackList::default()),
            Err(error) => return Err(error),
        };
        let mut remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        let known: HashMap<PackId, Arc<Pack>> = remembered
            .iter()
            .flat_map(|list| list.packs.iter())
            .map(|pack| (pack.id, Arc::clone(pack)))
            .collect();
        // What was in one that went since the listing may be in one that came since.
        let list = loop {
            if let Some(list) = open_all(&dir, &known)? {
                break list;
            }
        };
        *remembered = Some(list.clone());
        Ok(list)
    }
}

/// Opens all packs of the directory but those that are known; `None` where one went meanwhile. The files of
/// some are kept open.
fn open_all(dir: &Arc<Dir>, known: &HashMap<PackId, Arc<Pack>>) -> Result<Option<PackList>> {
    let (mut packs, mut damaged) = (Vec::new(), Vec::new());
    let names = dir.names()?;
    // Those that are known keep theirs, whatever comes before them in the listing.
    let mut kept = known.values().filter(|pack| pack.is_kept_open()).count();
    for name in names {
        // Anything else is not ours.
        let Some(id) = id_of(&name) else { continue };
        if let (Some(pack), Some(now)) = (known.get(&id), dir.stat(&name)?)
            && pack.is_as_opened(&now)
        {
            packs.push(Arc::clone(pack));
            continue;
        }
        match Pack::open(dir, id, kept < limits::PACKS_OPEN_MAX) {
            Ok(pack) => {
                kept += usize::from(pack.is_kept_open());
                packs.push(Arc::new(pack));
            }
            Err(OpenError::Gone) => return Ok(None),
            Err(OpenError::Damaged(reason)) => damaged.push((id, reason)),
            Err(OpenError::Store(error)) => return Err(error),
        }
    }
    Ok(Some(PackList { packs: packs.into(), damaged: damaged.into() }))
}
