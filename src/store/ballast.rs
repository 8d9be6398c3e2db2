//! Room for those who make room.

use crate::disk::{self, Dir};
use crate::error::Result;
use crate::layout::Layout;
use crate::limits;

/// On a full disk a collection, or a purge, cannot even write that it removes something: it gives up a file
/// that was kept for this, and keeps one again when it is done.
pub(super) struct Ballast<'a>(&'a Layout);

impl<'a> Ballast<'a> {
    pub(super) fn give_up(layout: &'a Layout) -> Result<Self> {
        if disk::available_bytes(&Dir::open(&layout.tmp())?)? < limits::BALLAST_BYTES {
            disk::remove_file(&layout.ballast())?;
        }
        Ok(Self(layout))
    }
}

impl Drop for Ballast<'_> {
    fn drop(&mut self) {
        // Where it cannot be kept now, the next collection tries again.
        drop(disk::reserve(&self.0.ballast(), limits::BALLAST_BYTES));
    }
}
