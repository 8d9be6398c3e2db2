//! Where the turns of a session begin.

use std::num::NonZeroU32;
use std::path::Path;

use crate::error::{Error, GoingBackError, Result};
use crate::id::{CheckpointId, SessionName};
use crate::manifest::Trigger;
use crate::monitor::Monitor;
use crate::store::Store;
use crate::store::history::{CheckpointSummary, ListQuery, Listing};

/// A turn of a session.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Turn {
    /// The checkpoint at its start.
    pub start: CheckpointSummary,
    /// The first after that which shows what was done in it; `None` where nothing was captured since.
    pub end: Option<CheckpointId>,
}

impl Store {
    /// The turns of the workspace at `path`, the last one first: those of `session`, or of the newest session
    /// of the workspace, and which session that is.
    ///
    /// A turn begins at a checkpoint with the trigger `turn-start`, whether or not it came to its end. One
    /// that has a `turn-end` and no start of its own begins at the checkpoint before its end. In a session
    /// without such triggers each checkpoint that is not a safety checkpoint is the start of a turn.
    ///
    /// # Errors
    /// [`Error::NoCheckpoint`], [`Error::SessionNotFound`].
    ///
    /// Cost: that of [`Store::list`].
    pub fn turns(
        &self,
        session: Option<&SessionName>,
        path: &Path,
        monitor: &dyn Monitor,
    ) -> Result<(SessionName, Vec<Turn>)> {
        let listing = self.list(&ListQuery::Workspace(path.to_owned()), monitor)?;
        self.turns_among(&listing, session, path, monitor)
    }

    fn turns_among(
        &self,
        listing: &Listing,
        session: Option<&SessionName>,
        path: &Path,
        monitor: &dyn Monitor,
    ) -> Result<(SessionName, Vec<Turn>)> {
        let session =
            session.map(|session| self.reading(session, monitor)?.session(session)).transpose()?;
        let plain: Vec<&CheckpointSummary> =
            listing.checkpoints().filter(|it| !it.is_safety()).collect();
        let newest = || plain.last().map(|it| it.id.session.clone());
        let session = session.or_else(newest).ok_or_else(|| Error::NoCheckpoint {
            workspace: path.to_owned(),
            session: None,
            existing: 0,
        })?;
        let of_session: Vec<&CheckpointSummary> =
            plain.into_iter().filter(|it| it.id.session == session).collect();
        let triggers: Vec<&str> = of_session.iter().map(|it| it.trigger.as_str()).collect();
        let mut turns: Vec<Turn> = bounds_of_turns(&triggers)
            .into_iter()
            .map(|(start, end)| Turn {
                start: of_session[start].clone(),
                end: end.map(|end| of_session[end].id.clone()),
            })
            .collect();
        turns.reverse();
        Ok((session, turns))
    }

    /// The checkpoint at the start of a turn of the workspace at `path`: of the last one for 1, of the one
    /// before it for 2.
    ///
    /// # Errors
    /// [`GoingBackError::NoTurn`]; [`Error::CheckpointUnreadable`] where one that cannot be read may be of a
    /// later turn; else as [`Store::turns`].
    ///
    /// Cost: that of [`Store::list`].
    pub fn start_of_turn(
        &self,
        session: Option<&SessionName>,
        turn: NonZeroU32,
        path: &Path,
        monitor: &dyn Monitor,
    ) -> Result<CheckpointId> {
        let listing = self.list(&ListQuery::Workspace(path.to_owned()), monitor)?;
        let (own, turns) = self.turns_among(&listing, session, path, monitor)?;
        if session.is_none()
            && let Some(newest) = listing.checkpoints().filter(|it| !it.is_safety()).last()
        {
            self.refuse_unreadable(&listing, Some(&newest.id), None, None, path, monitor)?;
        }
        let back = usize::try_from(turn.get()).unwrap_or(usize::MAX) - 1;
        let (workspace, existing) = (path.to_owned(), turns.len());
        let found = turns.into_iter().nth(back).map(|turn| turn.start.id);
        self.refuse_unreadable(&listing, found.as_ref(), Some(&own), None, path, monitor)?;
        found.ok_or_else(|| GoingBackError::NoTurn { workspace, session: own, existing }.into())
    }
}

/// At which of the checkpoints with these triggers a turn begins, and which shows what was done in it: its own
/// end, else the start of the next one, else the last of all.
fn bounds_of_turns(triggers: &[&str]) -> Vec<(usize, Option<usize>)> {
    let starts = starts_of_turns(triggers);
    let bounds = starts.iter().enumerate().map(|(at, &start)| {
        let next = starts.get(at + 1).copied();
        let last = next.unwrap_or(triggers.len().saturating_sub(1));
        let is_end = |index: &usize| triggers[*index] == Trigger::TURN_END.as_str();
        let end = (start + 1..=last).find(is_end).unwrap_or(last);
        (start, Some(end).filter(|end| *end > start))
    });
    bounds.collect()
}

/// At which of the checkpoints with these triggers a turn begins.
fn starts_of_turns(triggers: &[&str]) -> Vec<usize> {
    let (start, end) = (Trigger::TURN_START, Trigger::TURN_END);
    let is_of_turn = |trigger: &str| trigger == start.as_str() || trigger == end.as_str();
    if !triggers.iter().any(|trigger| is_of_turn(trigger)) {
        return (0..triggers.len()).collect();
    }
    let mut starts = Vec::new();
    let mut has_begun = false;
    for (index, trigger) in triggers.iter().enumerate() {
        if *trigger == start.as_str() {
            starts.push(index);
            has_begun = true;
        } else if *trigger == end.as_str() {
            if !has_begun {
                // Of the first checkpoint of all nobody knows what was before it.
                starts.extend(index.checked_sub(1));
            }
            has_begun = false;
        }
    }
    starts
}

#[cfg(test)]
mod tests {
    use super::bounds_of_turns;

    /// `s` turn-start, `e` turn-end, anything else another trigger.
    fn bounds(triggers: &str) -> Vec<(usize, Option<usize>)> {
        let word = |letter| match letter {
            's' => "turn-start",
            'e' => "turn-end",
            _ => "manual",
        };
        bounds_of_turns(&triggers.chars().map(word).collect::<Vec<_>>())
    }

    fn starts(triggers: &str) -> Vec<usize> {
        bounds(triggers).into_iter().map(|(start, _)| start).collect()
    }

    #[test]
    fn what_was_done_in_a_turn_is_seen_at_its_end_or_at_the_next_start() {
        assert_eq!(bounds("semse"), [(0, Some(1)), (3, Some(4))]);
        assert_eq!(bounds("smsm"), [(0, Some(2)), (2, Some(3))]);
        assert_eq!(bounds("s"), [(0, None)]);
        assert_eq!(bounds("mme"), [(1, Some(2))]);
        assert_eq!(bounds("mmm"), [(0, Some(1)), (1, Some(2)), (2, None)]);
    }

    #[test]
    fn a_turn_begins_at_its_start_whether_or_not_it_ended() {
        assert_eq!(starts("sese"), [0, 2]);
        assert_eq!(starts("ses"), [0, 2]);
        assert_eq!(starts("sse"), [0, 1]);
        assert_eq!(starts("m-s-m-e-m"), [2]);
    }

    #[test]
    fn a_turn_without_a_start_begins_at_the_checkpoint_before_its_end() {
        assert_eq!(starts("eee"), [0, 1]);
        assert_eq!(starts("meme"), [0, 2]);
        assert_eq!(starts("see"), [0, 1]);
        assert_eq!(starts("e"), [] as [usize; 0]);
    }

    #[test]
    fn without_turns_each_checkpoint_is_the_start_of_one() {
        assert_eq!(starts("mmm"), [0, 1, 2]);
        assert_eq!(starts(""), [] as [usize; 0]);
    }
}
