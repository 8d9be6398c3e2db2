//! Back to the start of a turn, and forth again: rewind and redo.

use std::fs;
use std::num::NonZeroU32;

use proptest::prelude::*;
use proptest::test_runner::Config;

use turnpoint::id::{CheckpointId, SessionName};
use turnpoint::manifest::Trigger;
use turnpoint::{CaptureOptions, Error, GoingBackError, RestoreOptions, RestoreOutcome, Result};

use crate::place::{Place, skips};
use crate::support::fingerprint::{self, Fingerprint};
use crate::support::tree::{self, executable, file, link};

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
    let mut options = RestoreOptions::default();
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
    let mut options = RestoreOptions::default();
    options.session = Some("s".to_owned());
    let target = start(&place, None, 1).unwrap();
    assert_eq!(target, second);
    place.store().restore(place.root(), &target, &options, &()).unwrap().safety.unwrap();
    assert_eq!(fs::read(place.root().join("file")).unwrap(), b"1");
    assert_eq!(start(&place, None, 1).unwrap(), second);
    assert_eq!(start(&place, None, 2).unwrap(), first);
}

fn redo(place: &Place) -> Result<RestoreOutcome> {
    place.store().redo(place.root(), &RestoreOptions::default(), &())
}

#[track_caller]
fn assert_nothing_to_redo(place: &Place, since: Option<&CheckpointId>) {
    let before = place.look_closely();
    let refused = redo(place);
    let expected =
        GoingBackError::NothingToRedo { workspace: place.root().to_owned(), since: since.cloned() };
    assert!(matches!(&refused, Err(Error::GoingBack(found)) if *found == expected), "{refused:?}");
    fingerprint::assert_same(&before, &place.look_closely());
}

/// Four states of a workspace, in which files, modes, kinds and directories differ.
fn four_states(place: &Place) -> Vec<CheckpointId> {
    let states = [
        vec![("a", file("0")), ("d/x", file("0")), ("kind", file("0"))],
        vec![("a", file("1")), ("d/y", file("1")), ("kind/below", file("1"))],
        vec![("a", executable("1")), ("kind", link("a")), ("new", file("2"))],
        vec![("b", file("0")), ("d/x/deep", file("3"))],
    ];
    let state = |nodes| {
        for name in fs::read_dir(place.root()).unwrap() {
            let path = name.unwrap().path();
            let is_dir = path.symlink_metadata().unwrap().is_dir();
            if is_dir { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
        }
        tree::build(place.root(), nodes);
        place.capture()
    };
    states.into_iter().map(state).collect()
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Restore(usize),
    Undo,
    Redo,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..4usize).prop_map(Step::Restore),
        3 => Just(Step::Undo),
        3 => Just(Step::Redo),
    ]
}

/// What an editor does: two stacks of copies of the tree.
#[derive(Default)]
struct Stacks {
    undo: Vec<Fingerprint>,
    redo: Vec<Fingerprint>,
}

#[test]
fn undo_and_redo_do_what_two_stacks_of_copies_do() {
    let config = Config { failure_persistence: None, ..Config::with_cases(5) };
    proptest!(config, |(steps in prop::collection::vec(step(), 6..14))| {
        let place = Place::new();
        let states = four_states(&place);
        let mut stacks = Stacks::default();
        for step in steps {
            let present = place.look();
            match step {
                Step::Restore(which) => {
                    place.go_back(&states[which]);
                    // Where nothing changed nothing was done that could be taken back.
                    if !fingerprint::differences(&present, &place.look()).is_empty() {
                        stacks.undo.push(present);
                        stacks.redo.clear();
                    }
                }
                Step::Undo => {
                    let done = place.store().undo(place.root(), &RestoreOptions::default(), &());
                    let wanted = stacks.undo.pop();
                    prop_assert_eq!(done.is_ok(), wanted.is_some());
                    if let Some(wanted) = wanted {
                        prop_assert_eq!(fingerprint::differences(&wanted, &place.look()), "");
                        stacks.redo.push(present);
                    }
                }
                Step::Redo => {
                    let done = redo(&place);
                    let wanted = stacks.redo.pop();
                    prop_assert_eq!(done.is_ok(), wanted.is_some());
                    if let Some(wanted) = wanted {
                        prop_assert_eq!(fingerprint::differences(&wanted, &place.look()), "");
                        stacks.undo.push(present);
                    }
                }
            }
        }
        place.verify_clean();
    });
}

#[test]
fn redo_leaves_what_was_worked_on_since_and_goes_on_all_the_same() {
    let place = Place::new();
    tree::build(place.root(), [("a", file("0")), ("b", file("0")), ("c", file("0"))]);
    let first = place.capture();
    tree::build(place.root(), [("a", file("1")), ("b", file("1"))]);
    place.go_back(&first);
    assert_eq!(place.undo().left, []);
    fs::write(place.root().join("a"), "worked on").unwrap();
    fs::write(place.root().join("c"), "another's").unwrap();
    let outcome = redo(&place).unwrap();
    assert_eq!(skips(&outcome), ["a conflict"]);
    assert!(outcome.is_short());
    let read = |name: &str| fs::read_to_string(place.root().join(name)).unwrap();
    assert_eq!(
        (read("a"), read("b"), read("c")),
        ("worked on".into(), "0".into(), "another's".into())
    );
    // It took back what it could, and that is taken back again.
    assert_nothing_to_redo(&place, None);
    let outcome = place.undo();
    assert_eq!((outcome.changed, skips(&outcome)), (1, Vec::new()));
    assert_eq!((read("a"), read("b")), ("worked on".into(), "1".into()));
}

#[test]
fn a_restore_ends_what_could_be_redone_and_its_own_undo_can_be() {
    let place = Place::new();
    assert_nothing_to_redo(&place, None);
    let states = four_states(&place);
    assert_nothing_to_redo(&place, None);
    place.go_back(&states[0]);
    assert_eq!(place.undo().left, []);
    let safety = place.restore(&states[1]).safety.unwrap();
    assert_nothing_to_redo(&place, Some(&safety));
    let at_second = place.look();
    assert_eq!(place.undo().left, []);
    assert_eq!(redo(&place).unwrap().left, []);
    fingerprint::assert_same(&at_second, &place.look());
    // The undo of the first restore was never redone, and never will be.
    assert_nothing_to_redo(&place, Some(&safety));
    // A restore that finds nothing to do ends nothing.
    assert_eq!(place.undo().left, []);
    assert!(place.restore(&states[3]).safety.is_none());
    assert_eq!(redo(&place).unwrap().left, []);
    fingerprint::assert_same(&at_second, &place.look());
}

#[test]
fn a_redo_of_what_was_put_back_by_hand_gets_behind_it() {
    let place = Place::new();
    tree::build(place.root(), [("a", file("0")), ("b", file("0"))]);
    let first = place.capture();
    fs::write(place.root().join("a"), "1").unwrap();
    place.go_back(&first);
    fs::write(place.root().join("b"), "1").unwrap();
    place.go_back(&first);
    assert_eq!(place.undo().changed, 1);
    assert_eq!(place.undo().changed, 1);
    fs::write(place.root().join("a"), "0").unwrap();
    let outcome = redo(&place).unwrap();
    assert_eq!((outcome.changed, outcome.is_short(), outcome.safety.is_some()), (0, false, true));
    assert_eq!(redo(&place).unwrap().changed, 1);
    assert_eq!(fs::read(place.root().join("b")).unwrap(), b"0");
}
