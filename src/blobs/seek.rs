//! Looking for a blob in all the places where it may be.

use crate::blobs::checked::{declared_size, other_size};
use crate::blobs::pack::{InPack, Section};
use crate::blobs::packs::PackList;
use crate::blobs::{Blobs, Found, Presence};
use crate::error::{Error, Result};
use crate::hash::BlobHash;

/// Where a blob's frame was found.
pub(super) struct Place<'a> {
    pub(super) frame: Section<'a>,
    pub(super) stored_size: u64,
}

/// What looking at one place came to.
pub(super) enum Tried<T> {
    Good(T),
    /// Another place may have it.
    Wrong(String),
}

/// What looking at all places came to.
pub(super) enum Sought<T> {
    Good(T),
    Absent,
    Wrong(String),
}

/// What was met where a blob was looked for and not found good.
#[derive(Default)]
pub(super) struct Met {
    /// What is wrong with one.
    wrong: Option<String>,
    /// Why a pack could not be read: whether the blob is in it nobody knows.
    pub(super) unread: Option<Error>,
    /// A pack was gone when it was to be read.
    has_gone: bool,
}

impl Met {
    pub(super) fn sought<T>(self) -> Result<Sought<T>> {
        match self {
            Self { unread: Some(error), .. } => Err(error),
            Self { wrong: Some(reason), .. } => Ok(Sought::Wrong(reason)),
            _ => Ok(Sought::Absent),
        }
    }
}

impl Blobs {
    /// Shows `each` the places of a blob, one after another, until it finds one good.
    ///
    /// A blob may be on its way from one place to another: a collection moves loose ones into packs, and
    /// from pack to pack, and takes away the old only when the new is there. So before it is said that
    /// there is none, the packs are listed anew and everything is looked at again. Of the packs that are
    /// remembered one may have been removed, with what nobody needed of it: who has pinned a blob and
    /// asks for it must not be shown that one, although it is open.
    ///
    /// Where this process knows packs already they are asked first: that costs least.
    ///
    /// # Errors
    /// [`Error::Io`] where it is in no place and one of the packs cannot be read.
    pub(super) fn seek<T, E: From<Error>>(
        &self,
        hash: BlobHash,
        mut each: impl FnMut(Place<'_>) -> Result<Tried<T>, E>,
    ) -> Result<Sought<T>, E> {
        let mut met = Met::default();
        let known = self.packs.known();
        if let Some(packs) = &known
            && let Some(good) = seek_packed(packs, hash, false, &mut each, &mut met)?
        {
            return Ok(Sought::Good(good));
        }
        if let Some(good) = self.seek_loose(hash, &mut each, &mut met)? {
            return Ok(Sought::Good(good));
        }
        if known.is_none()
            && let packs = self.packs.remembered()?
            && let Some(good) = seek_packed(&packs, hash, false, &mut each, &mut met)?
        {
            return Ok(Sought::Good(good));
        }
        loop {
            if let Some(good) = self.seek_loose(hash, &mut each, &mut met)? {
                return Ok(Sought::Good(good));
            }
            met = Met { wrong: met.wrong, ..Met::default() };
            let packs = self.packs.list()?;
            if let Some(good) = seek_packed(&packs, hash, true, &mut each, &mut met)? {
                return Ok(Sought::Good(good));
            }
            // What was in one that went since it was listed is in another by now.
            if !met.has_gone {
                return Ok(met.sought()?);
            }
        }
    }

    /// As [`Blobs::seek`], in the loose blob's place alone.
    pub(super) fn seek_loose<T, E: From<Error>>(
        &self,
        hash: BlobHash,
        each: &mut impl FnMut(Place<'_>) -> Result<Tried<T>, E>,
        met: &mut Met,
    ) -> Result<Option<T>, E> {
        match self.find_loose(hash)? {
            Found::File(file, stat) => {
                let frame = Section::whole(&file, stat.size);
                match each(Place { frame, stored_size: stat.size })? {
                    Tried::Good(good) => return Ok(Some(good)),
                    Tried::Wrong(reason) => met.wrong = Some(reason),
                }
            }
            Found::Absent => {}
            Found::Wrong(reason) => met.wrong = Some(reason),
        }
        Ok(None)
    }
}

/// As [`Blobs::seek`], in packs alone; `are_new` says that they have just been listed.
pub(super) fn seek_packed<T, E: From<Error>>(
    packs: &PackList,
    hash: BlobHash,
    are_new: bool,
    each: &mut impl FnMut(Place<'_>) -> Result<Tried<T>, E>,
    met: &mut Met,
) -> Result<Option<T>, E> {
    for pack in packs.packs.iter() {
        let frame = match pack.find(hash) {
            Ok(InPack::Nowhere) => continue,
            Ok(InPack::At(frame)) => frame,
            Ok(InPack::Gone) => {
                met.has_gone = true;
                continue;
            }
            Err(error) => {
                met.unread = Some(error);
                continue;
            }
        };
        if !are_new && pack.is_removed()? {
            continue;
        }
        let file = match pack.file() {
            Ok(Some(file)) => file,
            Ok(None) => {
                met.has_gone = true;
                continue;
            }
            Err(error) => {
                met.unread = Some(error);
                continue;
            }
        };
        let stored_size = u64::from(frame.length);
        match each(Place { frame: Section::of_frame(&file, &frame), stored_size })? {
            Tried::Good(good) => return Ok(Some(good)),
            Tried::Wrong(reason) => met.wrong = Some(reason),
        }
    }
    Ok(None)
}

/// Whether a frame declares just that size, and is as long as it should be, where that is known.
pub(super) fn declares(place: &Place<'_>, size: u64, stored_size: Option<u64>) -> Tried<u64> {
    let stored = place.stored_size;
    match (declared_size(&place.frame), stored_size) {
        (Err(reason), _) => Tried::Wrong(reason),
        (Ok(declared), _) if declared != size => Tried::Wrong(other_size(declared, size)),
        (Ok(_), Some(expected)) if expected != stored => {
            Tried::Wrong(format!("its file has {stored} bytes where {expected} are expected"))
        }
        (Ok(_), _) => Tried::Good(stored),
    }
}

pub(super) fn presence(sought: Sought<u64>) -> Presence {
    match sought {
        Sought::Good(stored_size) => Presence::Present { stored_size },
        Sought::Absent => Presence::Absent,
        Sought::Wrong(reason) => Presence::Wrong { reason },
    }
}
