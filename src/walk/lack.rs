//! What stands in the way of one look, and what stands in the way of all.

use std::io;

use crate::error::{Error, Result};
use crate::manifest::OmitReason;
use crate::walk::directory::Tree;
use crate::walk::locked;

impl Tree {
    /// The word for why one thing could not be looked at. What stands in the way of every look is noted as
    /// well: it is the walk's own failure.
    pub(super) fn reason_of(&self, error: Error) -> OmitReason {
        let reason = match &error {
            Error::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                OmitReason::Unreadable
            }
            _ => OmitReason::IoError,
        };
        self.note_lack(error);
        reason
    }

    pub(super) fn note_lack(&self, error: Error) {
        if error.is_lack() {
            locked(&self.found).lack.get_or_insert(error);
        }
    }

    /// What was looked for; nothing where it cannot be looked at, of which is noted what stands in the way of
    /// every look.
    pub(super) fn unless_lacking<T>(&self, looked: Result<Option<T>>) -> Option<T> {
        looked.unwrap_or_else(|error| {
            self.note_lack(error);
            None
        })
    }

    /// Fails where the system had nothing left to look with at some time. Asked at the end of each walk: one
    /// that took what it did not see for unreadable would make a checkpoint without it.
    pub(super) fn require_no_lack(&self) -> Result<()> {
        let lack = locked(&self.found).lack.take().or_else(|| self.rule_files.take_lack());
        lack.map_or(Ok(()), Err)
    }
}
