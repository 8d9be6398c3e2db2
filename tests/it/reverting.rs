//! Reverts: what one checkpoint changed is taken back and later work stays, or nothing is written.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use proptest::prelude::*;
use proptest::test_runner::Config;
use turnpoint::compare::merge;
use turnpoint::id::{CheckpointId, SessionName};
use turnpoint::manifest::RestoreVerb;
use turnpoint::path::RelPath;
use turnpoint::{
    CaptureOptions, Error, GoingBackError, MergeConflicts, PruneRule, RestoreOptions,
    RestoreOutcome, Result,
};

use crate::place::{Place, skips};
use crate::sides::{lines, one_side, other_side, start};
use crate::support::fingerprint::{self, Fingerprint};
use crate::support::tree::{self, Node, dir, executable, file, link};

fn revert(place: &Place, id: &CheckpointId) -> Result<RestoreOutcome> {
    place.store().revert(place.root(), id, &RestoreOptions::default(), &())
}

/// A revert that leaves nothing undone, and was planned as it is done.
#[track_caller]
fn go_back(place: &Place, id: &CheckpointId) -> RestoreOutcome {
    let before = place.look_closely();
    let checkpoints = place.checkpoints();
    let options = RestoreOptions::default();
    let planned = place.store().plan_revert(place.root(), id, &options, &()).unwrap();
    fingerprint::assert_same(&before, &place.look_closely());
    assert_eq!(place.checkpoints(), checkpoints);
    let outcome = revert(place, id).unwrap();
    assert_eq!((&outcome.plan, &outcome.merged), (&planned.plan, &planned.merged));
    assert_eq!((outcome.left.len(), outcome.verb), (0, RestoreVerb::Revert));
    assert_eq!(outcome.changed, outcome.plan.changes.len() as u64);
    outcome
}

fn at(paths: &[&str]) -> RestoreOptions {
    let mut options = RestoreOptions::default();
    options.paths = paths.iter().map(|path| RelPath::new(path.as_bytes()).unwrap()).collect();
    options
}

#[test]
fn at_given_paths_alone_what_was_changed_elsewhere_neither_moves_nor_stands_against_it() {
    let place = Place::new();
    tree::build(place.root(), [("a", file("0")), ("b", file("0")), ("d/x", file("0"))]);
    place.capture();
    tree::build(place.root(), [("a", file("1")), ("b", file("1")), ("d2/new", file("1"))]);
    fs::remove_dir_all(place.root().join("d")).unwrap();
    let turn = place.capture();
    // What would stand against the whole.
    write(&place, "b", "2");
    let store = place.store();
    let refused = revert(&place, &turn).unwrap_err();
    assert!(matches!(refused, Error::GoingBack(GoingBackError::RevertConflicts { .. })));
    let reverted = |paths| store.revert(place.root(), &turn, &at(paths), &()).unwrap();
    let changed: Vec<String> =
        reverted(&["a", "d"]).plan.changes.iter().map(|it| it.path.to_string()).collect();
    assert_eq!(changed, ["a", "d", "d/x"]);
    assert_eq!(
        (read(&place, "a"), read(&place, "b"), read(&place, "d/x")),
        ("0".into(), "2".into(), "0".into())
    );
    assert_eq!(read(&place, "d2/new"), "1");
    assert_eq!(place.undo().left, []);
    assert_eq!((read(&place, "a"), place.root().join("d").exists()), ("1".into(), false));
    // A directory above it comes back with it, and nothing else in it is needed for that.
    assert_eq!(reverted(&["d/x"]).changed, 2);
    assert_eq!(read(&place, "d/x"), "0");
    // A path that it did not change is nothing to do, and one that nobody knows is a mistake.
    assert_eq!(reverted(&["d/x"]).changed, 0);
    let unknown = store.revert(place.root(), &turn, &at(&["d", "nowhere"]), &()).unwrap_err();
    assert!(
        matches!(&unknown, Error::PathNotFound { path, .. } if path.to_string() == "nowhere"),
        "{unknown:?}"
    );
    place.verify_clean();
}

/// What the history of the workspace says that its newest step changed.
fn newest_step(place: &Place, session: &SessionName) -> Vec<String> {
    let history = place.store().path_history(session, &RelPath::root(), place.root(), &());
    let changes = history.unwrap().steps.pop().unwrap().changes;
    changes.iter().map(|change| change.path().to_string()).collect()
}

/// What was restored before a turn is not the turn's doing: not of all paths, nor of some, nor one after the
/// other.
#[test]
fn what_was_restored_before_a_turn_stays_as_it_was_restored() {
    let names = |place: &Place| -> Vec<String> {
        let names = fs::read_dir(place.root()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    };
    let place = Place::new();
    write(&place, "f1", "1");
    let first = place.capture();
    write(&place, "f2", "2");
    write(&place, "f3", "3");
    place.capture();
    place.go_back(&first);
    write(&place, "g", "4");
    let turn = place.capture();
    assert_eq!(names(&place), ["f1", "g"]);
    assert_eq!(newest_step(&place, &turn.session), ["g"]);
    let outcome = go_back(&place, &turn);
    assert_eq!((outcome.changed, names(&place)), (1, vec!["f1".to_owned()]));

    let place = Place::new();
    write(&place, "a", "1");
    write(&place, "b", "1");
    let first = place.capture();
    write(&place, "a", "2");
    let second = place.capture();
    for id in [&first, &second, &first] {
        drop(place.store().restore(place.root(), id, &at(&["a"]), &()).unwrap());
    }
    write(&place, "b", "3");
    write(&place, "c", "3");
    let turn = place.capture();
    assert_eq!(newest_step(&place, &turn.session), ["b", "c"]);
    let outcome = go_back(&place, &turn);
    assert_eq!((outcome.changed, names(&place)), (2, vec!["a".to_owned(), "b".to_owned()]));
    assert_eq!((read(&place, "a"), read(&place, "b")), ("1".to_owned(), "1".to_owned()));
    place.verify_clean();
}

/// Safety checkpoints go to the session of the workspace, and turns of an agent to its own.
#[test]
fn what_was_restored_counts_whatever_session_it_was_saved_in() {
    let place = Place::new();
    let mut options = CaptureOptions::default();
    options.session = Some("agent".to_owned());
    let turn = || place.store().capture(place.root(), &options, &()).unwrap().checkpoint;
    let is = |names: [&str; 3]| names.map(|name| read(&place, name));
    tree::build(place.root(), [("a", file("1")), ("b", file("1")), ("c", file("1"))]);
    let first = turn();
    write(&place, "a", "2");
    write(&place, "b", "2");
    let second = turn();
    // One of given paths, one of all, and of some again: what the last has left counts.
    drop(place.store().restore(place.root(), &first, &at(&["b"]), &()).unwrap());
    place.go_back(&second);
    drop(place.store().restore(place.root(), &first, &at(&["a"]), &()).unwrap());
    write(&place, "c", "3");
    let third = turn();
    assert_eq!((third.seq.get(), is(["a", "b", "c"])), (2, ["1", "2", "3"].map(String::from)));
    assert_eq!(newest_step(&place, &third.session), ["c"]);
    assert_eq!(go_back(&place, &third).changed, 1);
    assert_eq!(is(["a", "b", "c"]), ["1", "2", "1"].map(String::from));

    // What was restored before the turn before is no part of it, and what comes after neither.
    drop(place.undo());
    write(&place, "b", "4");
    let fourth = turn();
    place.go_back(&first);
    assert_eq!(newest_step(&place, &fourth.session), ["b"]);
    drop(place.undo());
    assert_eq!(go_back(&place, &fourth).changed, 1);
    assert_eq!(is(["a", "b", "c"]), ["1", "2", "3"].map(String::from));
    place.verify_clean();
}

#[test]
fn what_a_turn_is_compared_with_is_told_where_those_between_are_gone() {
    let place = Place::new();
    let store = place.store();
    let mut ids = Vec::new();
    for content in ["0", "1", "2", "3"] {
        write(&place, "a", content);
        write(&place, &format!("in-{content}"), content);
        ids.push(place.capture());
    }
    let predecessor = |id: &CheckpointId| {
        let planned = store.plan_revert(place.root(), id, &RestoreOptions::default(), &()).unwrap();
        let before = planned.predecessor.unwrap();
        (before.checkpoint.id.seq.get(), before.gone)
    };
    assert_eq!(predecessor(&ids[3]), (2, 0));
    store.pin(&ids[0], None, &()).unwrap();
    let mut rule = PruneRule::default();
    rule.keep = 1;
    drop(store.prune(None, rule, &()).unwrap());
    assert_eq!(predecessor(&ids[3]), (0, 2));
    let outcome = go_back(&place, &ids[3]);
    assert_eq!(outcome.predecessor.unwrap().gone, 2);
    assert_eq!(read(&place, "a"), "0");
    assert!(["1", "2", "3"].iter().all(|name| !place.root().join(format!("in-{name}")).exists()));
}

#[test]
fn a_number_that_is_of_no_turn_of_the_workspace_is_no_gap() {
    let place = Place::new();
    write(&place, "a", "0");
    let first = place.capture();
    let session = place.store().root().join(first.session.as_str());
    // Of another program; and a number that nobody has.
    fs::write(session.join("1.json"), r#"{"files":[]}"#).unwrap();
    fs::write(session.join("2.pin"), r#"{"pinned":true,"label":null,"note":null}"#).unwrap();
    write(&place, "a", "1");
    let turn = place.capture();
    assert_eq!(turn.seq.get(), 3);
    fs::remove_file(session.join("2.pin")).unwrap();
    let before = go_back(&place, &turn).predecessor.unwrap();
    assert_eq!((before.checkpoint.id, before.gone), (first, 0));
    assert_eq!(read(&place, "a"), "0");
}

fn read(place: &Place, name: &str) -> String {
    fs::read_to_string(place.root().join(name)).unwrap()
}

fn write(place: &Place, name: &str, text: &str) {
    fs::write(place.root().join(name), text).unwrap();
}

#[test]
fn what_was_not_touched_since_is_put_back_and_later_work_stays() {
    let place = Place::new();
    tree::build(place.root(), start());
    place.capture();
    let before = place.look();
    one_side(place.root());
    tree::build(place.root(), [("empty", dir())]);
    let turn = place.capture();
    other_side(place.root());
    place.capture();
    let at_last = place.look();

    let outcome = go_back(&place, &turn);
    assert_eq!(outcome.target.id, turn);
    let merged: Vec<String> = outcome.merged.iter().map(ToString::to_string).collect();
    assert_eq!(
        (skips(&outcome), merged),
        (vec!["made not-empty".to_owned()], vec!["text".to_owned()])
    );
    assert_eq!(read(&place, "text"), lines(&[(19, "nineteen")]));
    let later = ["later", "made", "new", "text"];
    fingerprint::assert_same(
        &fingerprint::without(&before, &later),
        &fingerprint::without(&place.look(), &later),
    );
    assert_eq!((read(&place, "later"), read(&place, "made/later")), ("2".into(), "2".into()));
    assert!(!place.root().join("made/x").exists() && place.root().join("new/x").exists());
    // It is taken back, and that too, and once it is done there is nothing to do.
    let reverted = place.look();
    assert_eq!(place.undo().left, []);
    fingerprint::assert_same(&at_last, &place.look());
    let again = place.store().redo(place.root(), &RestoreOptions::default(), &()).unwrap();
    assert_eq!(again.left, []);
    fingerprint::assert_same(&reverted, &place.look());
    assert!(revert(&place, &turn).unwrap().safety.is_none());
    place.verify_clean();
}

#[test]
fn a_text_that_was_changed_since_is_merged_and_what_is_merged_is_kept() {
    let place = Place::new();
    write(&place, "text", &lines(&[]));
    tree::build(place.root(), [("other", file("0"))]);
    place.capture();
    write(&place, "text", &lines(&[(10, "ten")]));
    fs::set_permissions(place.root().join("text"), fs::Permissions::from_mode(0o755)).unwrap();
    tree::build(place.root(), [("other", file("1"))]);
    let turn = place.capture();
    write(&place, "text", &lines(&[(10, "ten"), (19, "nineteen"), (1, "one")]));
    let before = place.look();

    let outcome = go_back(&place, &turn);
    assert_eq!(outcome.merged.iter().map(ToString::to_string).collect::<Vec<_>>(), ["text"]);
    assert_eq!(read(&place, "text"), lines(&[(19, "nineteen"), (1, "one")]));
    let mode = fs::metadata(place.root().join("text")).unwrap().permissions().mode();
    assert_eq!((mode & 0o777, read(&place, "other")), (0o644, "0".into()));
    place.verify_clean();
    // No checkpoint was ever captured with it, and it comes back all the same.
    let merged = place.look();
    assert_eq!(place.undo().left, []);
    fingerprint::assert_same(&before, &place.look());
    place.store().gc(&()).map(drop).unwrap();
    let again = place.store().redo(place.root(), &RestoreOptions::default(), &()).unwrap();
    assert_eq!(again.left, []);
    fingerprint::assert_same(&merged, &place.look());
    place.verify_clean();
}

#[test]
fn turns_that_touch_different_lines_are_taken_back_in_any_order() {
    let place = Place::new();
    write(&place, "text", &lines(&[]));
    place.capture();
    let turn = |others: &[(usize, &str)]| {
        write(&place, "text", &lines(others));
        place.capture()
    };
    let first = turn(&[(2, "two")]);
    let second = turn(&[(2, "two"), (10, "ten")]);
    let third = turn(&[(2, "two"), (10, "ten"), (18, "eighteen")]);
    drop(go_back(&place, &second));
    assert_eq!(read(&place, "text"), lines(&[(2, "two"), (18, "eighteen")]));
    drop(go_back(&place, &first));
    drop(go_back(&place, &third));
    assert_eq!(read(&place, "text"), lines(&[]));
}

/// Fails unless the revert is refused for these paths, in plan and deed, and nothing at all happens.
#[track_caller]
fn assert_refused(place: &Place, turn: &CheckpointId, expected: &[(&str, &str)]) {
    let before = place.look_closely();
    let checkpoints = place.checkpoints();
    let options = RestoreOptions::default();
    for refused in
        [place.store().plan_revert(place.root(), turn, &options, &()), revert(place, turn)]
    {
        let error = refused.unwrap_err();
        assert_eq!(error.class(), turnpoint::ErrorClass::Refused);
        let Error::GoingBack(GoingBackError::RevertConflicts { checkpoint, conflicts, .. }) = error
        else {
            panic!("{error:?}");
        };
        assert_eq!(checkpoint, *turn);
        let found: Vec<(String, &str)> =
            conflicts.against.iter().map(|it| (it.path.to_string(), it.reason.as_str())).collect();
        let found: Vec<(&str, &str)> = found.iter().map(|(path, why)| (&**path, *why)).collect();
        assert_eq!(found, expected);
    }
    fingerprint::assert_same(&before, &place.look_closely());
    assert_eq!(place.checkpoints(), checkpoints);
}

#[test]
fn where_both_exclude_each_other_nothing_is_written_and_each_path_is_named() {
    let place = Place::new();
    let nodes = [
        ("apart", file(lines(&[]))),
        ("binary", file(b"0\0".as_slice())),
        ("deleted", file("0")),
        ("gone", file("0")),
        ("lines", file(lines(&[]))),
        ("link", link("a")),
        ("mode", file("0")),
        ("was-dir/x", file("0")),
    ];
    tree::build(place.root(), nodes);
    place.capture();
    let nodes = [
        ("added", file("1")),
        ("apart", file(lines(&[(3, "three")]))),
        ("binary", file(b"1\0".as_slice())),
        ("gone", file("1")),
        ("lines", file(lines(&[(3, "three")]))),
        ("link", link("b")),
        ("mode", executable("0")),
    ];
    tree::build(place.root(), nodes);
    fs::remove_file(place.root().join("deleted")).unwrap();
    fs::remove_dir_all(place.root().join("was-dir")).unwrap();
    tree::build(place.root(), [("was-dir", file("1"))]);
    let turn = place.capture();
    let nodes = [
        ("added", file("2")),
        ("apart", file(lines(&[(3, "three"), (15, "fifteen")]))),
        ("binary", file(b"2\0".as_slice())),
        ("deleted", file("2")),
        ("lines", file(lines(&[(3, "three"), (4, "four")]))),
        ("link", link("c")),
        ("was-dir", file("2")),
    ];
    tree::build(place.root(), nodes);
    fs::remove_file(place.root().join("gone")).unwrap();
    fs::set_permissions(place.root().join("mode"), fs::Permissions::from_mode(0o600)).unwrap();
    assert_refused(
        &place,
        &turn,
        &[
            ("added", "it was made then, and changed since"),
            ("binary", "it was changed since, and is not text that could be merged"),
            ("deleted", "it was deleted then, and made again since"),
            ("gone", "it was changed then, and deleted since"),
            ("lines", "the same lines were changed since, or lines beside them"),
            ("link", "it was changed since"),
            ("mode", "its mode was changed since"),
            ("was-dir", "it was changed since"),
        ],
    );
}

#[test]
fn a_directory_that_the_turn_made_of_a_file_stays_with_later_work_in_it() {
    let place = Place::new();
    tree::build(place.root(), [("kind", file("0"))]);
    place.capture();
    fs::remove_file(place.root().join("kind")).unwrap();
    tree::build(place.root(), [("kind/x", file("1"))]);
    let turn = place.capture();
    tree::build(place.root(), [("kind/later", file("2"))]);
    assert_refused(&place, &turn, &[("kind", "something in it was made or changed since")]);
    fs::remove_file(place.root().join("kind/later")).unwrap();
    drop(go_back(&place, &turn));
    assert_eq!(read(&place, "kind"), "0");
}

#[test]
fn what_is_not_known_of_is_left_alone() {
    let place = Place::new();
    let first = place.capture();
    let refused = revert(&place, &first).unwrap_err();
    let expected = GoingBackError::NoPredecessor { checkpoint: first };
    assert!(matches!(&refused, Error::GoingBack(found) if *found == expected), "{refused:?}");

    tree::build(place.root(), [("logs/old", file("0")), ("text", file("0")), ("x/out", file("0"))]);
    place.capture();
    // The turn leaves a folder out from now on, and so says nothing of what is in it.
    tree::build(place.root(), [(".gitignore", file("logs\n")), ("text", file("1"))]);
    let turn = place.capture();
    fs::remove_file(place.root().join("logs/old")).unwrap();
    tree::build(place.root(), [("logs/new", file("2"))]);
    drop(go_back(&place, &turn));
    assert_eq!((read(&place, "text"), read(&place, "logs/new")), ("0".into(), "2".into()));
    assert!(!place.root().join("logs/old").exists() && !place.root().join(".gitignore").exists());

    // What was never held does not stand against it.
    tree::build(place.root(), [(".gitignore", file("*.log\n"))]);
    place.capture();
    tree::build(place.root(), [("text", file("1")), ("x/a.log", file("1")), (".env", file("1"))]);
    let turn = place.capture();
    drop(go_back(&place, &turn));
    assert_eq!((read(&place, "text"), read(&place, "x/a.log")), ("0".into(), "1".into()));
    assert_eq!(read(&place, ".env"), "1");

    // What was ignored before the turn may have been there.
    tree::build(place.root(), [(".gitignore", file("x\n"))]);
    place.capture();
    fs::remove_file(place.root().join(".gitignore")).unwrap();
    let turn = place.capture();
    drop(go_back(&place, &turn));
    assert_eq!((read(&place, "x/out"), read(&place, ".gitignore")), ("0".into(), "x\n".into()));

    // What was done in it since stands against nothing either.
    drop(place.undo());
    write(&place, "x/out", "3");
    let outcome = go_back(&place, &turn);
    assert_eq!((read(&place, "x/out"), read(&place, ".gitignore")), ("3".into(), "x\n".into()));
    assert!(skips(&outcome).contains(&"x ignored".to_owned()), "{:?}", skips(&outcome));
    place.verify_clean();
}

#[test]
fn what_may_have_been_there_before_the_turn_stays() {
    let place = Place::new();
    tree::build(place.root(), [(".gitignore", file("*.log\n")), ("many/kept", file("0"))]);
    let log = |number: usize| place.root().join(format!("many/{number:04}.log"));
    (0..1_010).for_each(|number| fs::write(log(number), "").unwrap());
    place.capture();
    let set_mode = |mode| {
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(place.root().join("many"), mode).unwrap();
    };
    // The turn's checkpoint lists the whole directory, the one before it does not.
    (0..1_010).for_each(|number| fs::remove_file(log(number)).unwrap());
    tree::build(place.root(), [("many/kept", file("1")), ("many/new", file("1"))]);
    set_mode(0o700);
    let turn = place.capture();
    set_mode(0o755);
    let outcome = go_back(&place, &turn);
    let skips = skips(&outcome);
    assert!(skips.contains(&"many/new no-evidence".to_owned()), "{skips:?}");
    assert_eq!((read(&place, "many/kept"), read(&place, "many/new")), ("0".into(), "1".into()));
}

#[test]
fn what_the_turn_made_and_rules_leave_out_by_now_goes_all_the_same() {
    let place = Place::new();
    tree::build(place.root(), [("text", file("0"))]);
    place.capture();
    tree::build(place.root(), [("made", file("1")), ("text", file("1"))]);
    let turn = place.capture();
    tree::build(place.root(), [(".gitignore", file("made\ntext\n"))]);
    drop(go_back(&place, &turn));
    assert!(!place.root().join("made").exists());
    assert_eq!(read(&place, "text"), "0");
    assert_eq!(place.undo().left, []);
    assert_eq!((read(&place, "made"), read(&place, "text")), ("1".into(), "1".into()));
}

#[test]
fn nothing_changes_while_content_to_merge_from_is_missing() {
    let place = Place::new();
    tree::build(place.root(), [("a", file("0")), ("text", file(lines(&[])))]);
    place.capture();
    tree::build(place.root(), [("a", file("1")), ("text", file(lines(&[(3, "three")])))]);
    let turn = place.capture();
    write(&place, "text", &lines(&[(3, "three"), (15, "fifteen")]));
    let hash = blake3::hash(lines(&[(3, "three")]).as_bytes()).to_hex();
    let blob = place.blob(&hash);
    let kept = fs::read(&blob).unwrap();
    fs::remove_file(&blob).unwrap();
    let before = place.look_closely();
    let refused = revert(&place, &turn).unwrap_err();
    let Error::ContentLost { lost } = &refused else { panic!("{refused:?}") };
    assert_eq!((lost.len(), lost[0].path.to_string()), (1, "text".to_owned()));
    fingerprint::assert_same(&before, &place.look_closely());
    fs::write(&blob, kept).unwrap();
    drop(go_back(&place, &turn));
    assert_eq!(read(&place, "text"), lines(&[(15, "fifteen")]));
}

fn git(root: &Path, arguments: &[&str]) -> (i32, Vec<u8>) {
    let settings =
        ["user.name=t", "user.email=t@localhost", "merge.renames=false", "core.fileMode=true"];
    let output = Command::new("git")
        .args(settings.iter().flat_map(|setting| ["-c", setting]))
        .args(arguments)
        .current_dir(root)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .unwrap();
    (output.status.code().unwrap(), output.stdout)
}

/// What a side does to each line of the base.
#[derive(Debug, Clone)]
enum LineEdit {
    Keep,
    Delete,
    Replace,
    Insert,
    /// As the other side may do too.
    Common,
}

fn side() -> impl Strategy<Value = (Vec<LineEdit>, bool)> {
    let edit = prop_oneof![
        12 => Just(LineEdit::Keep),
        1 => Just(LineEdit::Delete),
        1 => Just(LineEdit::Replace),
        1 => Just(LineEdit::Insert),
        1 => Just(LineEdit::Common),
    ];
    (prop::collection::vec(edit, 14), prop::bool::weighted(0.8))
}

fn edited(name: &str, (edits, has_end): &(Vec<LineEdit>, bool)) -> String {
    let line = |(number, edit): (usize, &LineEdit)| match edit {
        LineEdit::Keep => format!("line {number}\n"),
        LineEdit::Delete => String::new(),
        LineEdit::Replace => format!("{name} {number}\n"),
        LineEdit::Insert => format!("line {number}\n{name} after {number}\n"),
        LineEdit::Common => format!("both {number}\n"),
    };
    let mut text: String = edits.iter().enumerate().map(line).collect();
    if !has_end {
        text.pop();
    }
    text
}

#[test]
fn texts_are_merged_as_git_merges_them() {
    let place = tempfile::tempdir().unwrap();
    let (merges, conflicts) = (Cell::new(0), Cell::new(0));
    let config = Config { failure_persistence: None, ..Config::with_cases(120) };
    proptest!(config, |(ours in side(), theirs in side(), base_has_end in prop::bool::weighted(0.8))| {
        let kept = (vec![LineEdit::Keep; 14], base_has_end);
        let (base, ours, theirs) =
            (edited("base", &kept), edited("ours", &ours), edited("theirs", &theirs));
        for (name, text) in [("base", &base), ("ours", &ours), ("theirs", &theirs)] {
            fs::write(place.path().join(name), text).unwrap();
        }
        let (code, text) = git(place.path(), &["merge-file", "-p", "ours", "base", "theirs"]);
        let merged = merge(base.as_bytes(), ours.as_bytes(), theirs.as_bytes());
        prop_assert!((0..128).contains(&code));
        prop_assert_eq!(merged.is_some(), code == 0);
        if let Some(merged) = merged {
            prop_assert_eq!(String::from_utf8(merged).unwrap(), String::from_utf8(text).unwrap());
            merges.set(merges.get() + 1);
        } else {
            conflicts.set(conflicts.get() + 1);
        }
    });
    assert!(
        merges.get() > 10 && conflicts.get() > 10,
        "{merges:?} merges, {conflicts:?} conflicts"
    );
}

/// Paths that depend on one another, where one group does not on the other.
const GROUPS: [&[&str]; 6] =
    [&["a"], &["b"], &["d/x", "d/y"], &["e/f/x", "e/g"], &["k", "k/x", "k/y/z"], &["l"]];

/// By group, what each path becomes; nothing where it stays as it is.
type Edits = Vec<Option<Vec<Option<u8>>>>;

fn edits(weight: f64) -> impl Strategy<Value = Edits> {
    let group = |paths: &&[&str]| {
        let node = prop::option::weighted(0.7, 0..4u8);
        prop::option::weighted(weight, prop::collection::vec(node, paths.len()))
    };
    GROUPS.iter().map(group).collect::<Vec<_>>()
}

type State = BTreeMap<PathBuf, Node>;

fn apply(state: &mut State, edits: &Edits, turn: usize) {
    for (paths, nodes) in GROUPS.iter().zip(edits) {
        let Some(nodes) = nodes else { continue };
        for (path, node) in paths.iter().zip(nodes) {
            state.remove(Path::new(path));
            let Some(node) = node else { continue };
            // Nothing lies in a file.
            let path = PathBuf::from(path);
            state.retain(|other, _| !other.starts_with(&path) && !path.starts_with(other));
            let text = format!("{} in turn {turn}\n", path.display());
            let node = match node {
                0 => executable(text),
                1 => link(&format!("to-{turn}")),
                _ => file(text),
            };
            state.insert(path, node);
        }
    }
}

fn put(root: &Path, state: &State) {
    for name in fs::read_dir(root).unwrap() {
        let path = name.unwrap().path();
        if path.ends_with(".git") {
            continue;
        }
        let is_dir = path.symlink_metadata().unwrap().is_dir();
        if is_dir { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
    }
    tree::build(root, state.iter().map(|(path, node)| (path, node.clone())));
}

fn without_git(root: &Path) -> Fingerprint {
    fingerprint::without(&fingerprint::of(root), &[".git"])
}

#[test]
fn a_turn_whose_paths_were_not_touched_since_is_taken_back_as_git_takes_it_back() {
    let config = Config { failure_persistence: None, ..Config::with_cases(5) };
    proptest!(config, |(first in edits(0.9), turn in edits(0.4), later in edits(0.6))| {
        let place = Place::new();
        let repository = tempfile::tempdir().unwrap();
        let root = repository.path();
        git(root, &["init", "-q"]);
        let mut state = State::new();
        let mut step = |edits: &Edits, number: usize| {
            apply(&mut state, edits, number);
            put(place.root(), &state);
            put(root, &state);
            git(root, &["add", "-A"]);
            prop_assert_eq!(git(root, &["commit", "-q", "--allow-empty", "-m", "x"]).0, 0);
            Ok(place.capture())
        };
        step(&first, 0)?;
        let captured = step(&turn, 1)?;
        let untouched = later.iter().zip(&turn).map(|(later, turn)| {
            if turn.is_some() { None } else { later.clone() }
        });
        step(&untouched.collect(), 2)?;
        // Empty commits cannot be reverted.
        let is_empty = git(root, &["diff", "--quiet", "HEAD~2", "HEAD~1"]).0 == 0;
        if !is_empty {
            prop_assert_eq!(git(root, &["revert", "--no-edit", "HEAD~1"]).0, 0);
        }
        drop(go_back(&place, &captured));
        let (git, own) = (without_git(root), place.look());
        prop_assert_eq!(fingerprint::differences(&git, &own), "");
    });
}

#[test]
fn what_a_refused_revert_names_as_free_can_be_taken_back_by_itself() {
    let refusals = Cell::new(0);
    let config = Config { failure_persistence: None, ..Config::with_cases(24) };
    proptest!(config, |(first in edits(0.9), turn in edits(0.8), later in edits(0.5))| {
        let place = Place::new();
        let mut state = State::new();
        let mut step = |edits: &Edits, number: usize| {
            apply(&mut state, edits, number);
            put(place.root(), &state);
            (place.capture(), state.clone())
        };
        let (_, before) = step(&first, 0);
        let (captured, after) = step(&turn, 1);
        let (_, now) = step(&later, 2);
        let Err(error) = revert(&place, &captured) else { return Ok(()) };
        let Error::GoingBack(GoingBackError::RevertConflicts { conflicts, .. }) = error else {
            return Err(TestCaseError::fail(format!("{error:?}")));
        };
        let MergeConflicts { against, free } = *conflicts;
        prop_assert!(!against.is_empty());
        if free.is_empty() {
            return Ok(());
        }
        refusals.set(refusals.get() + 1);
        let is_free = |path: &Path| free.iter().any(|it| path.starts_with(it.as_os()));
        prop_assert!(!against.iter().any(|it| is_free(it.path.as_os())));
        let mut options = RestoreOptions::default();
        options.paths.clone_from(&free);
        let outcome = place.store().revert(place.root(), &captured, &options, &()).unwrap();
        prop_assert_eq!(outcome.left, []);
        prop_assert!(outcome.changed > 0);
        let mut expected = now;
        for path in before.keys().chain(after.keys()).filter(|path| is_free(path)) {
            match before.get(path) {
                unchanged if unchanged == after.get(path) => {}
                Some(node) => drop(expected.insert(path.clone(), node.clone())),
                None => drop(expected.remove(path)),
            }
        }
        let copy = tempfile::tempdir().unwrap();
        put(copy.path(), &expected);
        prop_assert_eq!(fingerprint::differences(&without_git(copy.path()), &place.look()), "");
    });
    assert!(refusals.get() > 5, "{refusals:?}");
}
