//! The words by which a caller means a checkpoint.

use std::str::FromStr;

use crate::clock::Timestamp;
use crate::id::{CheckpointId, Seq, SessionName};
use crate::manifest::Trigger;
use crate::store::history::CheckpointSummary;

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

    fn from_str(text: &str) -> Result<Self, InvalidSpec> {
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
        let is_plain = |it: &&&CheckpointSummary| it.trigger != Trigger::PRE_RESTORE.as_str();
        let mut plain = checkpoints.iter().rev().filter(is_plain);
        let found = match &self.which {
            Which::Seq(seq) => {
                let newest = plain.next().or(checkpoints.last())?;
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

    fn from_str(text: &str) -> Result<Self, InvalidSpec> {
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
