//! Plans in files: exactly that is carried out, or nothing is.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde_json::{Value, json};
use turnpoint::id::CheckpointId;
use turnpoint::{Error, GoingBackError, PruneRule, RestoreOptions, RestoreOutcome, Result};

use crate::place::Place;
use crate::support::fingerprint;
use crate::support::tree::{self, file};

/// A workspace that differs from its first checkpoint in four ways, and the place for plans.
fn scene() -> (Place, CheckpointId, tempfile::TempDir) {
    let place = Place::new();
    let nodes = [("a", file("0")), ("b", file("0")), ("d/x", file("0")), ("same", file("0"))];
    tree::build(place.root(), nodes);
    let first = place.capture();
    tree::build(place.root(), [("a", file("1")), ("new", file("1"))]);
    fs::remove_file(place.root().join("d/x")).unwrap();
    place.capture();
    (place, first, tempfile::tempdir().unwrap())
}

fn write(place: &Place, planned: &RestoreOutcome, file: &Path) -> Result<()> {
    place.store().write_plan(planned, &RestoreOptions::default(), file)
}

fn planned(place: &Place, id: &CheckpointId) -> RestoreOutcome {
    place.store().plan_restore(place.root(), id, &RestoreOptions::default(), &()).unwrap()
}

fn bound(place: &Place, file: &Path) -> RestoreOptions {
    let mut options = RestoreOptions::default();
    options.bind(place.store().read_plan(file).unwrap());
    options
}

fn apply(place: &Place, id: &CheckpointId, file: &Path) -> Result<RestoreOutcome> {
    place.store().restore(place.root(), id, &bound(place, file), &())
}

#[track_caller]
fn assert_outdated(place: &Place, id: &CheckpointId, file: &Path, expected: &[&str]) {
    let before = place.look_closely();
    let checkpoints = place.checkpoints();
    let planned = place.store().plan_restore(place.root(), id, &bound(place, file), &());
    for refused in [planned, apply(place, id, file)] {
        let error = refused.unwrap_err();
        let Error::GoingBack(GoingBackError::PlanOutdated { paths, .. }) = &error else {
            panic!("{error:?}");
        };
        let paths: Vec<String> = paths.iter().map(ToString::to_string).collect();
        assert_eq!(paths, expected);
    }
    fingerprint::assert_same(&before, &place.look_closely());
    assert_eq!(place.checkpoints(), checkpoints);
}

#[test]
fn exactly_the_plan_is_carried_out_or_nothing_is() {
    let (place, first, plans) = scene();
    let plan = plans.path().join("plan");
    let before = place.look_closely();
    let shown = planned(&place, &first);
    write(&place, &shown, &plan).unwrap();
    fingerprint::assert_same(&before, &place.look_closely());
    let read = place.store().read_plan(&plan).unwrap();
    assert_eq!((read.id(), &read.changes), (shown.plan.id(), &shown.plan.changes));

    let put = |name: &str, text: &str| fs::write(place.root().join(name), text).unwrap();
    // Another change to a path of the plan; one that would be a change now; one that is none any more.
    put("a", "2");
    put("newer", "2");
    put("d/x", "0");
    assert_outdated(&place, &first, &plan, &["a", "d/x", "newer"]);
    put("a", "1");
    fs::remove_file(place.root().join("newer")).unwrap();
    fs::remove_file(place.root().join("d/x")).unwrap();
    put("same", "2");
    assert_outdated(&place, &first, &plan, &["same"]);
    put("same", "0");
    // What has another time and nothing else is as it was.
    let file = fs::File::options().write(true).open(place.root().join("a")).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    let outcome = apply(&place, &first, &plan).unwrap();
    assert_eq!(outcome.changed, shown.plan.changes.len() as u64);
    assert_eq!(planned(&place, &first).plan.changes, []);
    assert_outdated(&place, &first, &plan, &["a", "d/x", "new"]);
    assert_eq!(place.undo().left, []);
    apply(&place, &first, &plan).unwrap().safety.unwrap();
    place.verify_clean();
}

#[test]
fn a_plan_keeps_the_paths_that_it_is_about() {
    let (place, first, plans) = scene();
    let plan = plans.path().join("plan");
    let mut options = RestoreOptions::default();
    options.paths = vec![turnpoint::path::RelPath::new(b"a").unwrap()];
    options.preserve_mtime = true;
    let shown = place.store().plan_restore(place.root(), &first, &options, &()).unwrap();
    place.store().write_plan(&shown, &options, &plan).unwrap();
    let options = bound(&place, &plan);
    assert_eq!((options.paths.len(), options.preserve_mtime), (1, true));
    // Nothing beside it counts.
    fs::write(place.root().join("newer"), "2").unwrap();
    assert_eq!(apply(&place, &first, &plan).unwrap().changed, 1);
}

#[test]
fn an_undo_is_bound_to_what_it_takes_back() {
    let (place, first, plans) = scene();
    let plan = plans.path().join("plan");
    place.go_back(&first);
    let undo = |options: &RestoreOptions| place.store().undo(place.root(), options, &());
    let shown = place.store().plan_undo(place.root(), &RestoreOptions::default(), &()).unwrap();
    write(&place, &shown, &plan).unwrap();
    assert_eq!(undo(&bound(&place, &plan)).unwrap().changed, 3);
    // It is undone: there is nothing left that the plan could be of.
    let refused = undo(&bound(&place, &plan)).unwrap_err();
    let target = |error: &Error| match error {
        Error::GoingBack(GoingBackError::PlanTarget { checkpoint, .. }) => Some(checkpoint.clone()),
        _ => None,
    };
    assert_eq!(target(&refused), Some(shown.plan.target.clone()), "{refused:?}");
    place.go_back(&first);
    let refused = undo(&bound(&place, &plan)).unwrap_err();
    assert_eq!(target(&refused), Some(shown.plan.target.clone()), "{refused:?}");
    // The same changes as a restore of that checkpoint are another command.
    let refused = apply(&place, &shown.plan.target, &plan).unwrap_err();
    assert_eq!(target(&refused), Some(shown.plan.target.clone()), "{refused:?}");
}

#[test]
fn a_revert_is_bound_to_what_the_turn_was_compared_with() {
    let (place, first, plans) = scene();
    let store = place.store();
    fs::write(place.root().join("a"), "2").unwrap();
    let turn = place.capture();
    let plan = plans.path().join("plan");
    let options = RestoreOptions::default();
    let shown = store.plan_revert(place.root(), &turn, &options, &()).unwrap();
    write(&place, &shown, &plan).unwrap();
    let second = shown.predecessor.unwrap().checkpoint.id;
    store.pin(&first, None, &()).unwrap();
    let mut rule = PruneRule::default();
    rule.keep = 1;
    drop(store.prune(None, rule, &()).unwrap());
    // Against the first it is the same change of `a` among others; it would not do if it were the only one.
    let before = place.look_closely();
    let bound = bound(&place, &plan);
    let planned = store.plan_revert(place.root(), &turn, &bound, &());
    for refused in [planned, store.revert(place.root(), &turn, &bound, &())] {
        let refused = refused.unwrap_err();
        let Error::GoingBack(GoingBackError::PlanPredecessor { before, found, .. }) = &refused
        else {
            panic!("{refused:?}");
        };
        assert_eq!((before, found.as_ref()), (&second, Some(&first)));
        let text = refused.to_string();
        assert!(text.ends_with(&format!(
            "takes back what {turn} changed since {second}, which is gone: the one before it is \
             {first} now"
        )), "{text}");
        assert_eq!(refused.class(), turnpoint::ErrorClass::Refused);
        assert!(refused.hint().unwrap().contains("make the plan anew"));
    }
    store.unpin(&first, &()).unwrap();
    drop(store.prune(None, rule, &()).unwrap());
    let refused = store.revert(place.root(), &turn, &bound, &()).unwrap_err();
    let is_gone =
        matches!(&refused, Error::GoingBack(GoingBackError::PlanPredecessor { found: None, .. }));
    assert!(is_gone, "{refused:?}");
    fingerprint::assert_same(&before, &place.look_closely());
}

#[test]
fn a_plan_has_a_new_file_that_is_no_part_of_what_it_is_about() {
    let (place, first, plans) = scene();
    let shown = planned(&place, &first);
    let taken = plans.path().join("taken");
    fs::write(&taken, "mine").unwrap();
    symlink(place.root().join("d"), plans.path().join("link")).unwrap();
    let before = place.look_closely();
    for (place_of_plan, why) in [
        (place.root().join("plan"), "it lies in the workspace"),
        (place.root().join("d/plan"), "it lies in the workspace"),
        (plans.path().join("link/plan"), "it lies in the workspace"),
        (taken.clone(), "it is there already"),
        (plans.path().join(".."), "it is no name of a file"),
    ] {
        let error = write(&place, &shown, &place_of_plan).unwrap_err();
        let is_expected = matches!(&error,
            Error::GoingBack(GoingBackError::PlanPlace { reason, .. }) if reason.starts_with(why));
        assert!(is_expected, "{}: {error:?}", place_of_plan.display());
        assert_eq!(error.class(), turnpoint::ErrorClass::Refused);
    }
    let in_store = write(&place, &shown, &place.store().root().join("plan"));
    assert!(matches!(in_store, Err(Error::InsideStore { .. })), "{in_store:?}");
    fingerprint::assert_same(&before, &place.look_closely());
    assert_eq!(fs::read(&taken).unwrap(), b"mine");
    let left: Vec<_> = fs::read_dir(plans.path()).unwrap().collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

fn edited(text: &Value, edit: impl FnOnce(&mut Value)) -> Vec<u8> {
    let mut text = text.clone();
    edit(&mut text);
    serde_json::to_vec(&text).unwrap()
}

#[test]
fn nothing_in_a_file_is_believed() {
    let (place, first, plans) = scene();
    let plan = plans.path().join("plan");
    write(&place, &planned(&place, &first), &plan).unwrap();
    let good: Value = serde_json::from_slice(&fs::read(&plan).unwrap()).unwrap();
    assert_eq!(good["schema"], 1);
    let path_of = |number: usize, path: Value| {
        edited(&good, |it| {
            for side in ["before", "after"] {
                if !it["changes"][number][side].is_null() {
                    it["changes"][number][side]["path"] = path.clone();
                }
            }
        })
    };
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("nothing", Vec::new()),
        ("no JSON", b"plan".to_vec()),
        ("a list", b"[]".to_vec()),
        ("deep", b"[".repeat(100_000)),
        ("cut", fs::read(&plan).unwrap()[..300].to_vec()),
        ("a newer form", edited(&good, |it| it["schema"] = json!(2))),
        ("another field", edited(&good, |it| it["more"] = json!(1))),
        ("a wrong type", edited(&good, |it| it["changes"] = json!("all"))),
        ("another type", edited(&good, |it| it["target"]["seq"] = json!(-1))),
        ("a number beyond all", edited(&good, |it| it["target"]["seq"] = json!(u64::MAX))),
        ("a verb that is none", edited(&good, |it| it["verb"] = json!("delete"))),
        ("a session that leads out", edited(&good, |it| it["target"]["session"] = json!("../s"))),
        ("a path that leads out", path_of(0, json!("../a"))),
        ("a path from the root", path_of(0, json!("/etc/passwd"))),
        ("an empty component", path_of(0, json!("a//b"))),
        ("two paths in one", edited(&good, |it| it["changes"][0]["before"]["path"] = json!("aa"))),
        ("out of order", edited(&good, |it| it["changes"].as_array_mut().unwrap().reverse())),
        (
            "nothing becomes nothing",
            edited(&good, |it| {
                it["changes"][0] = json!({ "action": "create", "before": null, "after": null });
            }),
        ),
        ("another action", edited(&good, |it| it["changes"][0]["action"] = json!("delete"))),
        (
            "fewer changes under one id",
            edited(&good, |it| {
                it["changes"].as_array_mut().unwrap().pop();
            }),
        ),
        (
            "selected paths that lead out",
            edited(&good, |it| {
                it["paths"] = json!([{ "path": "../x" }]);
            }),
        ),
    ];
    let before = place.look_closely();
    let hostile = plans.path().join("hostile");
    for (name, text) in &cases {
        fs::write(&hostile, text).unwrap();
        assert_unreadable(&place, &hostile, name);
    }
    let fifo = plans.path().join("fifo");
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let long = plans.path().join("long");
    let length = turnpoint::limits::PLAN_BYTES_MAX + 1;
    fs::File::create(&long).unwrap().set_len(length).unwrap();
    for special in [fifo, long, plans.path().to_owned(), plans.path().join("none")] {
        assert_unreadable(&place, &special, "special");
    }
    fingerprint::assert_same(&before, &place.look_closely());

    // What is well formed and not true.
    let forged = |text: Vec<u8>| -> PathBuf {
        fs::write(&hostile, text).unwrap();
        hostile.clone()
    };
    let elsewhere = forged(edited(&good, |it| it["workspace"] = json!("0".repeat(32))));
    let refused = apply(&place, &first, &elsewhere);
    assert!(matches!(refused, Err(Error::OtherWorkspace { .. })), "{refused:?}");
    let other = forged(edited(&good, |it| it["target"]["digest"] = json!("0".repeat(32))));
    let refused = apply(&place, &first, &other);
    let is_target = matches!(refused, Err(Error::GoingBack(GoingBackError::PlanTarget { .. })));
    assert!(is_target, "{refused:?}");
    fingerprint::assert_same(&before, &place.look_closely());
}

#[test]
fn a_plan_of_an_overlay_is_not_written() {
    let (place, first, plans) = scene();
    let plan = plans.path().join("plan");
    let mut options = RestoreOptions::default();
    options.overlay = true;
    let shown = place.store().plan_restore(place.root(), &first, &options, &()).unwrap();
    let error = place.store().write_plan(&shown, &options, &plan).unwrap_err();
    let expected = GoingBackError::PlanOfOverlay { root: shown.root };
    assert!(matches!(&error, Error::GoingBack(found) if *found == expected), "{error:?}");
    assert!(!plan.exists());
}

#[test]
fn a_bound_revert_whose_predecessor_is_gone_is_not_carried_out() {
    let (place, first, plans) = scene();
    let plan = plans.path().join("plan");
    let second = CheckpointId { seq: "1".parse().unwrap(), ..first.clone() };
    let options = RestoreOptions::default();
    let shown = place.store().plan_revert(place.root(), &second, &options, &()).unwrap();
    write(&place, &shown, &plan).unwrap();
    let mut rule = PruneRule::default();
    rule.keep = 1;
    let pruned = place.store().prune(Some(&first.session), rule, &()).unwrap();
    assert_eq!(pruned.pruned, [first]);
    let before = place.look_closely();
    let refused = place.store().revert(place.root(), &second, &bound(&place, &plan), &());
    let error = refused.unwrap_err();
    let is_gone =
        matches!(error, Error::GoingBack(GoingBackError::PlanPredecessor { found: None, .. }));
    assert!(is_gone, "{error:?}");
    assert_eq!(error.class(), turnpoint::ErrorClass::Refused);
    fingerprint::assert_same(&before, &place.look_closely());
}

#[track_caller]
fn assert_unreadable(place: &Place, file: &Path, name: &str) {
    let error = place.store().read_plan(file).unwrap_err();
    let is_expected = matches!(error, Error::GoingBack(GoingBackError::PlanUnreadable { .. }));
    assert!(is_expected, "{name}: {error:?}");
    assert_eq!(error.class(), turnpoint::ErrorClass::Input, "{name}");
}
