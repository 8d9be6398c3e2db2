//! The words by which a caller means a checkpoint.

use std::collections::BTreeMap;
use std::path::Path;
use std::str::FromStr;

use crate::checkpoint::CheckpointRow;
use crate::clock::Timestamp;
use crate::error::{Error, NoneSoOld, Result};
use crate::id::{CheckpointId, Seq, SessionName};
use crate::monitor::Monitor;
use crate::sessions::Found;
use crate::store::Store;
use crate::store::history::{CheckpointSummary, ListItem, ListQuery, Listing};

/// Which checkpoint a caller means: `SESSION:SEQ`, `SEQ`, `latest`, `latest~2`, `SESSION:latest`,
/// `@LABEL`, `SESSION:@LABEL`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// The session; the newest one of the workspace where none is named.
    pub session: Option<SessionName>,
    /// Which of its checkpoints.
    pub which: Which,
}

/// Which checkpoint of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    /// That number.
    Seq(Seq),
    /// The newest that is not a safety checkpoint, or so many before it.
    Latest {
        /// How many before the newest.
        back: u32,
    },
    /// The newest with that label.
    Label(String),
    /// The newest that was there at that time and is not a safety checkpoint. No text means it.
    At(Timestamp),
}

/// Text that is not a [`Spec`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a checkpoint: SEQ, SESSION:SEQ, latest, latest~N or @LABEL is expected")]
pub struct InvalidSpec {
    /// The text as given.
    pub text: String,
}

impl FromStr for Which {
    type Err = InvalidSpec;

    fn from_str(text: &str) -> std::result::Result<Self, InvalidSpec> {
        let invalid = || InvalidSpec { text: text.to_owned() };
        if let Some(rest) = text.strip_prefix("latest") {
            let back = match rest.strip_prefix('~') {
                Some(digits) => digits.parse().map_err(|_| invalid())?,
                None if rest.is_empty() => 0,
                None => return Err(invalid()),
            };
            return Ok(Self::Latest { back });
        }
        if let Some(label) = text.strip_prefix('@').filter(|label| !label.is_empty()) {
            return Ok(Self::Label(label.to_owned()));
        }
        text.parse().map(Self::Seq).map_err(|_| invalid())
    }
}

impl Spec {
    /// Which of the checkpoints of a workspace is meant, in the order in which they were made: those of one
    /// session, where the caller has left the others out.
    pub(super) fn among(&self, checkpoints: &[&CheckpointSummary]) -> Option<CheckpointId> {
        let mut plain = checkpoints.iter().rev().filter(|it| !it.is_safety());
        let found = match &self.which {
            Which::Seq(seq) => {
                let newest = newest(checkpoints)?;
                return Some(CheckpointId { session: newest.id.session.clone(), seq: *seq });
            }
            Which::Latest { back } => plain.nth(usize::try_from(*back).unwrap_or(usize::MAX)),
            // Newest is what was made last, as everywhere, whatever a clock that was set says.
            Which::At(at) => plain.find(|it| it.created_at <= *at),
            Which::Label(label) => {
                checkpoints.iter().rev().find(|it| it.label.as_ref() == Some(label))
            }
        };
        found.map(|it| it.id.clone())
    }
}

impl FromStr for Spec {
    type Err = InvalidSpec;

    fn from_str(text: &str) -> std::result::Result<Self, InvalidSpec> {
        let invalid = || InvalidSpec { text: text.to_owned() };
        // A label may hold any character, and a session's name no colon.
        let parts = match text.split_once(":@") {
            _ if text.starts_with('@') => None,
            Some((session, _)) => Some((session, text.split_at(session.len() + 1).1)),
            None => text.rsplit_once(':'),
        };
        match parts {
            Some((session, which)) => {
                let session = SessionName::new(session).map_err(|_| invalid())?;
                let which = which.parse().map_err(|_| invalid())?;
                Ok(Self { session: Some(session), which })
            }
            None => Ok(Self { session: None, which: text.parse()? }),
        }
    }
}

/// That whose session is the newest of the workspace.
fn newest<'a>(checkpoints: &[&'a CheckpointSummary]) -> Option<&'a CheckpointSummary> {
    let plain = checkpoints.iter().rev().find(|it| !it.is_safety());
    plain.or(checkpoints.last()).copied()
}

impl Store {
    /// Finds the checkpoint that `spec` means, seen from the workspace at `path`.
    ///
    /// # Errors
    /// [`Error::NoCheckpoint`], [`Error::NoneSoOld`], [`Error::LabelNotFound`],
    /// [`Error::SessionNotFound`], [`Error::CheckpointNotFound`] with what exists.
    /// [`Error::CheckpointUnreadable`] where one that cannot be read may be what is meant.
    pub fn resolve(&self, spec: &Spec, path: &Path, monitor: &dyn Monitor) -> Result<CheckpointId> {
        if let (Some(session), &Which::Seq(seq)) = (&spec.session, &spec.which) {
            // Whether it is there, and readable, the command itself finds out.
            let reading = self.reading(session, monitor)?;
            return Ok(CheckpointId { session: reading.session(session)?, seq });
        }
        let mut listing = self.list(&ListQuery::Workspace(path.to_owned()), monitor)?;
        let canonical = |name| self.reading(name, monitor)?.session(name);
        let session = spec.session.as_ref().map(canonical).transpose()?;
        if let Some(session) = &session {
            listing.items.retain(|item| item.id().session == *session);
        }
        let session = session.as_ref();
        let no_checkpoint = |existing| Error::NoCheckpoint {
            workspace: path.to_owned(),
            session: spec.session.clone(),
            existing,
        };
        let until = match spec.which {
            Which::At(at) => Some(at),
            _ => None,
        };
        let checkpoints: Vec<&CheckpointSummary> = listing.checkpoints().collect();
        if let Some(id) = spec.among(&checkpoints) {
            let since = match spec.which {
                // By its session.
                Which::Seq(_) => newest(&checkpoints).map_or(&id, |newest| &newest.id),
                Which::At(_) | Which::Latest { .. } => &id,
                Which::Label(_) => return Ok(id),
            };
            self.refuse_unreadable(&listing, Some(since), session, until, path, monitor)?;
            return Ok(id);
        }
        self.refuse_unreadable(&listing, None, session, until, path, monitor)?;
        if checkpoints.is_empty() {
            return Err(no_checkpoint(0));
        }
        let plain = checkpoints.iter().filter(|it| !it.is_safety());
        match &spec.which {
            Which::Label(label) => Err(unknown_label(&checkpoints, label)),
            &Which::At(at) => match plain.min_by_key(|it| it.created_at) {
                Some(oldest) => Err(Error::NoneSoOld(NoneSoOld {
                    at,
                    oldest: oldest.id.clone(),
                    created_at: oldest.created_at,
                })),
                None => Err(no_checkpoint(0)),
            },
            Which::Seq(_) | Which::Latest { .. } => Err(no_checkpoint(plain.count())),
        }
    }

    /// Refuses to take `since` for the newest there is, or was at the time `until`, where one was recorded after
    /// it, of `session` or of any, that cannot be read or is gone although nobody has dropped it: nobody can say
    /// that it is not the one that is meant. Without `since` any is one. Safety checkpoints are none.
    pub(super) fn refuse_unreadable(
        &self,
        listing: &Listing,
        since: Option<&CheckpointId>,
        session: Option<&SessionName>,
        until: Option<Timestamp>,
        path: &Path,
        monitor: &dyn Monitor,
    ) -> Result<()> {
        let Some(reading) = self.read(monitor)? else { return Ok(()) };
        let Some(workspace) = reading.workspace_at(path)? else { return Ok(()) };
        // The one recorded last first.
        let rows = reading.ask("list a workspace", |tx| tx.checkpoints_of_workspace(workspace))?;
        let rows = rows.unwrap_or_default();
        let place = match since {
            Some(since) => rows.iter().position(|row| row.id == *since).unwrap_or(0),
            None => rows.len(),
        };
        let is_meant = |row: &&CheckpointRow| {
            !row.is_safety()
                && session.is_none_or(|session| row.id.session == *session)
                && until.is_none_or(|until| row.created_at <= until)
        };
        let listed: BTreeMap<&CheckpointId, &ListItem> =
            listing.items.iter().map(|item| (item.id(), item)).collect();
        for row in rows.iter().take(place).filter(is_meant) {
            let (path, reason) = match listed.get(&row.id) {
                Some(ListItem::Checkpoint(_) | ListItem::Legacy(_)) => continue,
                Some(ListItem::Unreadable { path, reason, .. }) => (path.clone(), reason.clone()),
                // Somebody may have made or dropped it since the others were listed.
                None if !matches!(reading.sessions.read(&row.id), Found::Absent)
                    || reading.is_dropped(&row.id)? =>
                {
                    continue;
                }
                None => (
                    reading.sessions.manifest_path(&row.id),
                    "it is gone although nobody pruned it".to_owned(),
                ),
            };
            return Err(Error::CheckpointUnreadable { checkpoint: row.id.clone(), path, reason });
        }
        Ok(())
    }
}

/// That none has the label, with the newest labels that there are.
fn unknown_label(checkpoints: &[&CheckpointSummary], label: &str) -> Error {
    const NAMED_MAX: usize = 5;
    let mut nearest: Vec<String> = Vec::new();
    for own in checkpoints.iter().rev().filter_map(|it| it.label.as_ref()) {
        if nearest.len() < NAMED_MAX && !nearest.contains(own) {
            nearest.push(own.clone());
        }
    }
    Error::LabelNotFound { label: label.to_owned(), nearest }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_name_a_checkpoint() {
        let seq = |number| Which::Seq(Seq::new(number).unwrap());
        let spec = |text: &str| {
            text.parse::<Spec>()
                .map(|spec| (spec.session.map(|session| session.as_str().to_owned()), spec.which))
        };
        assert_eq!(spec("3"), Ok((None, seq(3))));
        assert_eq!(spec("a-b:3"), Ok((Some("a-b".to_owned()), seq(3))));
        assert_eq!(spec("latest"), Ok((None, Which::Latest { back: 0 })));
        assert_eq!(spec("s:latest~2"), Ok((Some("s".to_owned()), Which::Latest { back: 2 })));
        let label = |text: &str| Which::Label(text.to_owned());
        assert_eq!(spec("@before: all"), Ok((None, label("before: all"))));
        assert_eq!(spec("s:@a:@b"), Ok((Some("s".to_owned()), label("a:@b"))));
        for bad in [
            "@", "s:@", "../a:@x", "", "x", "a:", ":3", "latest~", "latest~x", "latest2", "../a:1",
            "03",
        ] {
            assert!(spec(bad).is_err(), "{bad:?}");
        }
    }
}
