//! Rewind: back to the start of a turn.

use std::fs;
use std::num::NonZeroU32;

use turnpoint::id::{CheckpointId, SessionName};
use turnpoint::manifest::Trigger;
use turnpoint::{CaptureOptions, Error, GoingBackError, Result};

use crate::place::Place;

fn capture(place: &Place, session: &str, trigger: &str, content: &str) -> CheckpointId {
    fs::write(place.root().join("file"), content).unwrap();
    let mut options = CaptureOptions::default();
    options.session = Some(session.to_owned());
    options.trigger = Trigger::new(trigger).unwrap();
    place.store().capture(place.root(), &options, &()).unwrap().checkpoint
}

fn start(place: &Place, session: Option<&str>, turn: u32) -> Result<CheckpointId> {
    let session = session.map(|name| SessionName::new(name).unwrap());
    let turn = NonZeroU32::new(turn).unwrap();
    place.store().start_of_turn(session.as_ref(), turn, place.root(), &())
}

#[test]
fn turns_are_counted_in_one_session_of_one_workspace() {
    let place = Place::new();
    let nothing = start(&place, None, 1);
    assert!(matches!(nothing, Err(Error::NoCheckpoint { existing: 0, .. })), "{nothing:?}");
    let a0 = capture(&place, "a", "turn-start", "0");
    capture(&place, "a", "turn-end", "1");
    let b0 = capture(&place, "b", "turn-start", "2");
    let a1 = capture(&place, "a", "turn-start", "3");
    let a2 = capture(&place, "a", "turn-end", "4");
    let elsewhere = tempfile::tempdir().unwrap();
    let mut options = CaptureOptions::default();
    options.session = Some("a".to_owned());
    options.trigger = Trigger::TURN_START;
    drop(place.store().capture(elsewhere.path(), &options, &()).unwrap());

    assert_eq!(start(&place, None, 1).unwrap(), a1);
    assert_eq!(start(&place, Some("A"), 2).unwrap(), a0);
    assert_eq!(start(&place, Some("b"), 1).unwrap(), b0);
    let error = start(&place, Some("a"), 3).unwrap_err();
    let expected = GoingBackError::NoTurn {
        workspace: place.root().to_owned(),
        session: SessionName::new("a").unwrap(),
        existing: 2,
    };
    assert!(matches!(&error, Error::GoingBack(found) if *found == expected), "{error:?}");
    assert_eq!((error.code(), error.class()), ("no-turn", turnpoint::ErrorClass::Input));

    // What a restore saves is no turn, in whatever session it lies.
    let mut options = turnpoint::RestoreOptions::default();
    options.session = Some("a".to_owned());
    place.store().restore(place.root(), &a0, &options, &()).unwrap().safety.unwrap();
    assert_eq!(start(&place, Some("a"), 1).unwrap(), a1);
    assert!(place.store().show(&a2, &()).is_ok());
}

#[test]
fn without_turns_the_newest_checkpoint_that_no_restore_made_is_the_start_of_the_last() {
    let place = Place::new();
    let first = capture(&place, "s", "manual", "0");
    let second = capture(&place, "s", "exec", "1");
    fs::write(place.root().join("file"), "2").unwrap();
    let mut options = turnpoint::RestoreOptions::default();
    options.session = Some("s".to_owned());
    let target = start(&place, None, 1).unwrap();
    assert_eq!(target, second);
    place.store().restore(place.root(), &target, &options, &()).unwrap().safety.unwrap();
    assert_eq!(fs::read(place.root().join("file")).unwrap(), b"1");
    assert_eq!(start(&place, None, 1).unwrap(), second);
    assert_eq!(start(&place, None, 2).unwrap(), first);
}
