//! What a restore and an undo do to a workspace, case by case.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use turnpoint::id::CheckpointId;
use turnpoint::manifest::{Coverage, OmitReason};
use turnpoint::path::RelPath;
use turnpoint::plan::ChangeKind;
use turnpoint::settings::ScopeSettings;
use turnpoint::{CaptureOptions, Error, RestoreOptions, RestoreOutcome, Result};

use crate::place::{Place, Told, skips};
use crate::support::fingerprint::{self, Kind};
use crate::support::tree::{self, dir, executable, file, link};

fn rel(text: &str) -> RelPath {
    RelPath::new(text.as_bytes()).unwrap()
}

fn of_paths(paths: &[&str]) -> RestoreOptions {
    let mut options = RestoreOptions::default();
    options.paths = paths.iter().map(|text| rel(text)).collect();
    options
}

fn restore_paths(place: &Place, id: &CheckpointId, paths: &[&str]) -> Result<RestoreOutcome> {
    place.store().restore(place.root(), id, &of_paths(paths), &())
}

fn changed(outcome: &RestoreOutcome) -> Vec<String> {
    outcome.plan.changes.iter().map(|change| change.path.to_string()).collect()
}

fn fifo(path: &Path) {
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, 0).unwrap();
}

fn set_mode(path: impl AsRef<Path>, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Fails unless nothing at all happened in the workspace.
#[track_caller]
fn assert_untouched(place: &Place, before: &fingerprint::Fingerprint) {
    fingerprint::assert_same(before, &place.look_closely());
}

fn a_few_files(place: &Place) -> CheckpointId {
    tree::build(
        place.root(),
        [
            ("a", file("a")),
            ("b", file("b")),
            ("d/a", file("da")),
            ("d/e/a", file("dea")),
            ("d/e/b", file("deb")),
            ("d-", file("not in d")),
            ("link", link("a")),
        ],
    );
    place.capture()
}

#[test]
fn a_given_file_comes_back_and_nothing_else_changes() {
    let place = Place::new();
    let id = a_few_files(&place);
    for name in ["a", "b", "d/a"] {
        fs::write(place.root().join(name), "changed").unwrap();
    }
    fs::write(place.root().join("new"), "new").unwrap();
    let before = place.look_closely();
    let outcome = restore_paths(&place, &id, &["a"]).unwrap();
    assert_eq!(changed(&outcome), ["a"]);
    assert_eq!(fs::read(place.root().join("a")).unwrap(), b"a");
    let others = |mut look: fingerprint::Fingerprint| {
        look.retain(|path, _| path != Path::new("") && path != Path::new("a"));
        look
    };
    fingerprint::assert_same(&others(before), &others(place.look_closely()));
}

#[test]
fn a_given_directory_comes_back_with_everything_below_it() {
    let place = Place::new();
    let id = a_few_files(&place);
    let at_capture = place.look();
    fs::write(place.root().join("a"), "changed").unwrap();
    fs::write(place.root().join("d-"), "changed").unwrap();
    fs::write(place.root().join("d/a"), "changed").unwrap();
    fs::write(place.root().join("d/new"), "new").unwrap();
    fs::remove_dir_all(place.root().join("d/e")).unwrap();
    let outcome = restore_paths(&place, &id, &["d"]).unwrap();
    assert_eq!(changed(&outcome), ["d/a", "d/e", "d/e/a", "d/e/b", "d/new"]);
    let after = place.look();
    let apart = ["a", "d-"];
    fingerprint::assert_same(
        &fingerprint::without(&at_capture, &apart),
        &fingerprint::without(&after, &apart),
    );
    assert_eq!(fs::read(place.root().join("d-")).unwrap(), b"changed");
}

#[test]
fn a_given_file_that_is_gone_comes_back_with_its_directories() {
    let place = Place::new();
    let id = a_few_files(&place);
    fs::remove_dir_all(place.root().join("d")).unwrap();
    let outcome = restore_paths(&place, &id, &["d/e/a"]).unwrap();
    assert_eq!(changed(&outcome), ["d", "d/e", "d/e/a"]);
    assert_eq!(fs::read(place.root().join("d/e/a")).unwrap(), b"dea");
    assert_eq!(place.look().len(), 8);
}

#[test]
fn a_given_file_that_was_not_there_goes() {
    let place = Place::new();
    let id = a_few_files(&place);
    let at_capture = place.look();
    fs::create_dir(place.root().join("d/new")).unwrap();
    fs::write(place.root().join("d/new/x"), "new").unwrap();
    let outcome = restore_paths(&place, &id, &["d/new"]).unwrap();
    assert_eq!(changed(&outcome), ["d/new", "d/new/x"]);
    fingerprint::assert_same(&at_capture, &place.look());
}

#[test]
fn a_given_path_that_is_nowhere_is_an_error_and_nothing_changes() {
    let place = Place::new();
    tree::build(place.root(), [("target/debug/x", file("x"))]);
    let id = a_few_files(&place);
    fs::write(place.root().join("a"), "changed").unwrap();
    let before = place.look_closely();
    let error = restore_paths(&place, &id, &["a", "nowhere"]).unwrap_err();
    assert!(
        matches!(&error, Error::PathNotFound { path, omitted: None, .. } if *path == rel("nowhere")),
        "{error:?}"
    );
    let error = restore_paths(&place, &id, &["target/debug/x"]).unwrap_err();
    let excluded = Some(OmitReason::Excluded);
    assert!(
        matches!(&error, Error::PathNotFound { omitted, .. } if *omitted == excluded),
        "{error:?}"
    );
    assert_untouched(&place, &before);
    assert_eq!(place.checkpoints(), 1);
}

fn coverage(place: &Place, id: &CheckpointId) -> Coverage {
    place.store().show(id, &()).unwrap().manifest.coverage
}

/// The files that a checkpoint holds, written out.
fn written_out(place: &Place, id: &CheckpointId) -> fingerprint::Fingerprint {
    let into = tempfile::tempdir().unwrap();
    let options = RestoreOptions::default();
    assert!(place.store().restore_into(id, &into.path().join("x"), &options, &()).unwrap() > 0);
    fingerprint::of(&into.path().join("x"))
}

#[test]
fn a_restore_of_given_paths_saves_these_alone() {
    let place = Place::new();
    let id = a_few_files(&place);
    let at_capture = place.look();
    for name in ["a", "b", "d/a", "d/e/b"] {
        fs::write(place.root().join(name), format!("changed {name}")).unwrap();
    }
    fs::remove_file(place.root().join("link")).unwrap();
    fs::write(place.root().join("d/e/new"), "new").unwrap();
    let before = place.look();
    let outcome = restore_paths(&place, &id, &["a", "d/e", "link"]).unwrap();
    assert_eq!(changed(&outcome), ["a", "d/e/b", "d/e/new", "link"]);
    let safety = outcome.safety.unwrap();
    assert_eq!(coverage(&place, &safety), Coverage::Paths);
    let counts = place.store().show(&safety, &()).unwrap().manifest.counts;
    assert_eq!((counts.files_observed, counts.files_read), (4, 4));
    // The present of the given paths, and of the others what was captured.
    let mut expected = at_capture.clone();
    for path in ["a", "d/e/b", "d/e/new"] {
        expected.insert(path.into(), before[Path::new(path)].clone());
    }
    expected.remove(Path::new("link"));
    fingerprint::assert_same(&expected, &written_out(&place, &safety));
    assert_eq!(place.undo().left, []);
    fingerprint::assert_same(&before, &place.look());
    place.verify_clean();
}

#[test]
fn a_checkpoint_of_given_paths_gives_back_these_and_is_no_evidence() {
    let place = Place::new();
    let first = a_few_files(&place);
    fs::write(place.root().join("a"), "second a").unwrap();
    fs::write(place.root().join("d/a"), "second d/a").unwrap();
    let second = place.capture();
    let at_second = place.look();
    let outcome = restore_paths(&place, &first, &["a"]).unwrap();
    let safety = outcome.safety.unwrap();
    assert_eq!(coverage(&place, &safety), Coverage::Paths);
    tree::build(place.root(), [("d/a", file("third d/a")), ("new", file("new")), ("b", file("c"))]);
    // It is not the answer to a capture that asks for changes, and not `latest`.
    assert_eq!(changed(&place.restore(&safety)), ["a"]);
    assert_eq!(fs::read(place.root().join("d/a")).unwrap(), b"third d/a");
    assert_eq!(fs::read(place.root().join("new")).unwrap(), b"new");
    for (name, content) in [("d/a", "second d/a"), ("b", "b")] {
        fs::write(place.root().join(name), content).unwrap();
    }
    fs::remove_file(place.root().join("new")).unwrap();
    fingerprint::assert_same(&at_second, &place.look());
    let outcome = restore_paths(&place, &second, &["a"]).unwrap();
    assert_eq!((outcome.changed, outcome.safety), (0, None));
    let outcome = restore_paths(&place, &first, &["a"]).unwrap();
    assert_eq!(coverage(&place, &outcome.safety.unwrap()), Coverage::Paths);
    fs::write(place.root().join("a"), "second a").unwrap();
    let mut options = CaptureOptions::default();
    options.if_changed = true;
    let answer = place.store().capture(place.root(), &options, &()).unwrap();
    assert_ne!(coverage(&place, &answer.checkpoint), Coverage::Paths);
    place.verify_clean();
}

#[test]
fn what_may_depend_on_more_than_the_given_paths_is_saved_whole() {
    let place = Place::new();
    tree::build(place.root(), [(".gitignore", file("*.log\n")), ("d/x.log", file("log"))]);
    let id = a_few_files(&place);
    let is_whole = |paths: &[&str]| {
        let safety = restore_paths(&place, &id, paths).unwrap().safety.unwrap();
        coverage(&place, &safety) == Coverage::Full
    };
    let change = |path: &str| fs::write(place.root().join(path), "changed").unwrap();
    change("d/a");
    assert!(is_whole(&["d"]), "something in it is ignored, and git may track it");
    change("d/a");
    assert!(!is_whole(&["d/a"]));
    change("a");
    assert!(is_whole(&["."].map(|_| "")), "everything was asked for");
    // Another name of a file that is to stay.
    fs::hard_link(place.root().join("b"), place.root().join("other")).unwrap();
    change("a");
    let outcome = restore_paths(&place, &id, &["a", "other"]).unwrap();
    assert_eq!(coverage(&place, &outcome.safety.clone().unwrap()), Coverage::Full);
    assert_eq!(skips(&outcome), ["other other-name"]);
    // Without anything to build on.
    let fresh = Place::new();
    let id = a_few_files(&fresh);
    fs::write(fresh.root().join("a"), "changed").unwrap();
    assert_eq!(changed(&restore_paths(&fresh, &id, &["a"]).unwrap()), ["a"]);
}

#[test]
fn the_next_capture_reads_what_a_restore_wrote_and_nothing_else() {
    for paths in [&[][..], &["d/e", "a"]] {
        let place = Place::new();
        let id = a_few_files(&place);
        for name in ["a", "d/e/a"] {
            fs::write(place.root().join(name), "changed").unwrap();
        }
        // Old enough for its stamps to be relied upon.
        std::thread::sleep(Duration::from_millis(120));
        place.capture();
        place.capture();
        let outcome = restore_paths(&place, &id, paths).unwrap();
        assert_eq!(changed(&outcome), ["a", "d/e/a"]);
        let options = CaptureOptions::default();
        let outcome = place.store().capture(place.root(), &options, &()).unwrap();
        assert_eq!(outcome.counts.files_read, 2);
    }
}

#[test]
fn undo_goes_back_one_restore_at_a_time() {
    let place = Place::new();
    let first = a_few_files(&place);
    tree::build(place.root(), [("a", file("second")), ("second", file("x"))]);
    let second = place.capture();
    tree::build(place.root(), [("a", file("third")), ("third/x", file("x"))]);
    let at_third = place.look();
    place.go_back(&second);
    let at_second = place.look();
    assert_eq!(place.restore(&first).left, []);
    assert_eq!(place.undo().left, []);
    fingerprint::assert_same(&at_second, &place.look());
    assert_eq!(place.undo().left, []);
    fingerprint::assert_same(&at_third, &place.look());
    let nothing = place.store().undo(place.root(), &RestoreOptions::default(), &());
    assert!(matches!(nothing, Err(Error::NothingToUndo { .. })), "{nothing:?}");
    place.verify_clean();
}

#[test]
fn undo_takes_back_a_restore_made_after_an_undo() {
    let place = Place::new();
    let first = a_few_files(&place);
    fs::write(place.root().join("a"), "second").unwrap();
    let look = place.look();
    place.go_back(&first);
    assert_eq!(place.undo().left, []);
    place.go_back(&first);
    assert_eq!(place.undo().left, []);
    fingerprint::assert_same(&look, &place.look());
}

#[test]
fn undo_gets_behind_a_restore_that_was_put_back_by_hand() {
    let place = Place::new();
    let first = a_few_files(&place);
    fs::write(place.root().join("a"), "second").unwrap();
    place.go_back(&first);
    fs::write(place.root().join("b"), "second").unwrap();
    place.go_back(&first);
    fs::write(place.root().join("b"), "second").unwrap();
    let before = place.look_closely();
    let outcome = place.undo();
    assert_eq!((outcome.changed, outcome.is_short()), (0, false));
    assert_untouched(&place, &before);
    assert_eq!(place.undo().changed, 1);
    assert_eq!(fs::read(place.root().join("a")).unwrap(), b"second");
}

#[test]
fn undo_leaves_what_was_worked_on_since_and_names_it() {
    let place = Place::new();
    let first = a_few_files(&place);
    fs::write(place.root().join("a"), "second a").unwrap();
    fs::write(place.root().join("b"), "second b").unwrap();
    fs::write(place.root().join("made"), "second").unwrap();
    place.go_back(&first);
    fs::write(place.root().join("a"), "worked on").unwrap();
    fs::write(place.root().join("made"), "made anew").unwrap();
    let outcome = place.undo();
    assert_eq!(skips(&outcome), ["a conflict", "made conflict"]);
    assert!(outcome.is_short());
    assert_eq!(fs::read(place.root().join("a")).unwrap(), b"worked on");
    assert_eq!(fs::read(place.root().join("b")).unwrap(), b"second b");
    assert_eq!(fs::read(place.root().join("made")).unwrap(), b"made anew");
}

#[test]
fn what_is_ignored_by_now_is_saved_before_it_is_overwritten() {
    let place = Place::new();
    tree::build(place.root(), [("log/a", file("old")), ("b.log", file("old"))]);
    let first = place.capture();
    tree::build(
        place.root(),
        [
            (".gitignore", file("log/\n*.log\n")),
            ("log/a", file("precious")),
            ("log/other", file("never seen")),
            ("b.log", file("precious")),
        ],
    );
    let before = place.look();
    let outcome = place.restore(&first);
    assert_eq!(changed(&outcome), [".gitignore", "b.log", "log/a"]);
    assert_eq!(fs::read(place.root().join("log/a")).unwrap(), b"old");
    assert_eq!(fs::read(place.root().join("log/other")).unwrap(), b"never seen");
    let mut saved = Vec::new();
    let safety = outcome.safety.unwrap();
    place.store().cat(&safety, &rel("log/a"), &mut saved, &()).unwrap();
    assert_eq!(saved, b"precious");
    assert_eq!(place.undo().left, []);
    fingerprint::assert_same(&before, &place.look());
}

#[test]
fn what_a_restore_made_where_rules_leave_it_out_by_now_is_taken_back() {
    let place = Place::new();
    tree::build(place.root(), [("out/a", file("old")), ("out/deep/b", file("old"))]);
    let first = place.capture();
    fs::remove_dir_all(place.root().join("out")).unwrap();
    tree::build(place.root(), [(".gitignore", file("out/\n"))]);
    let second = place.capture();
    let before = place.look();
    place.go_back(&first);
    // The ignore file is back before the undo.
    assert_eq!(restore_paths(&place, &second, &[".gitignore"]).unwrap().changed, 1);
    assert_eq!(place.undo().left, []);
    let outcome = place.undo();
    assert_eq!((outcome.left.len(), outcome.plan.skips.len()), (0, 0));
    fingerprint::assert_same(&before, &place.look());
}

#[test]
fn an_ignored_file_in_the_place_of_a_directory_is_saved_and_gives_way() {
    let place = Place::new();
    tree::build(place.root(), [("x/a", file("a"))]);
    let first = place.capture();
    fs::remove_dir_all(place.root().join("x")).unwrap();
    tree::build(place.root(), [("x", file("precious")), (".git", dir())]);
    fs::create_dir(place.root().join(".git/info")).unwrap();
    tree::build(place.root(), [(".gitignore", file("x\n"))]);
    let before = place.look();
    let outcome = place.restore(&first);
    assert_eq!(skips(&outcome), [""; 0]);
    assert_eq!(fs::read(place.root().join("x/a")).unwrap(), b"a");
    assert_eq!(place.undo().left, []);
    fingerprint::assert_same(&before, &place.look());
}

#[test]
fn a_directory_with_something_unsaved_in_it_is_not_replaced() {
    type Put = fn(&Path);
    let unsaved: [(&str, Put); 4] = [
        ("secret", |below| fs::write(below.join(".env"), "KEY=1").unwrap()),
        ("not-saved", |below| fifo(&below.join("pipe"))),
        ("excluded", |below| fs::create_dir(below.join(".git")).unwrap()),
        ("secret", |below| {
            // Below a directory that rules leave out.
            fs::create_dir_all(below.join("node_modules/p")).unwrap();
            fs::write(below.join("node_modules/p/server.key"), "key").unwrap();
        }),
    ];
    for (reason, put) in unsaved {
        let place = Place::new();
        tree::build(place.root(), [("x", file("was a file")), ("a", file("a"))]);
        let first = place.capture();
        fs::remove_file(place.root().join("x")).unwrap();
        tree::build(place.root(), [("x/sub/b", file("b")), ("a", file("changed"))]);
        put(&place.root().join("x/sub"));
        let before = fingerprint::with_stamps(&place.root().join("x"));
        let outcome = place.restore(&first);
        assert_eq!(skips(&outcome), [format!("x {reason}")]);
        fingerprint::assert_same(&before, &fingerprint::with_stamps(&place.root().join("x")));
        assert_eq!(fs::read(place.root().join("a")).unwrap(), b"a");
    }
}

#[test]
fn a_directory_gives_way_with_what_rules_leave_out_and_comes_back_with_it() {
    let place = Place::new();
    tree::build(place.root(), [("x", file("was a file"))]);
    let first = place.capture();
    fs::remove_file(place.root().join("x")).unwrap();
    tree::build(
        place.root(),
        [
            ("x/.gitignore", file("*.log\n")),
            ("x/a.log", file("ignored")),
            ("x/node_modules/p/index.js", file("excluded")),
            ("x/empty", dir()),
            ("x/link", link("nowhere")),
        ],
    );
    let before = place.look();
    assert_eq!(skips(&place.restore(&first)), [""; 0]);
    assert_eq!(fs::read(place.root().join("x")).unwrap(), b"was a file");
    assert_eq!(place.undo().left, []);
    fingerprint::assert_same(&before, &place.look());
}

#[test]
fn a_secret_or_special_thing_in_the_way_is_left() {
    let place = Place::new();
    tree::build(place.root(), [("a", file("a")), ("x/b", file("b"))]);
    let first = place.capture();
    fs::remove_file(place.root().join("a")).unwrap();
    fs::remove_dir_all(place.root().join("x")).unwrap();
    fifo(&place.root().join("a"));
    fifo(&place.root().join("x"));
    let before = place.look_closely();
    let outcome = place.restore(&first);
    assert_eq!(skips(&outcome), ["a not-saved", "x not-saved", "x/b blocked"]);
    assert!(outcome.is_short());
    assert_untouched(&place, &before);
}

fn blob_of(place: &Place, content: &str) -> PathBuf {
    place.blob(&blake3::hash(content.as_bytes()).to_hex())
}

#[test]
fn nothing_changes_while_needed_content_is_missing_or_wrong() {
    let place = Place::new();
    let first = a_few_files(&place);
    for name in ["a", "b", "d/a"] {
        fs::write(place.root().join(name), "changed").unwrap();
    }
    fs::remove_dir_all(place.root().join("d/e")).unwrap();
    fs::remove_file(blob_of(&place, "a")).unwrap();
    let flipped = blob_of(&place, "dea");
    let mut frame = fs::read(&flipped).unwrap();
    let at = frame.len() / 2;
    frame[at] ^= 1;
    set_mode(&flipped, 0o600);
    fs::write(&flipped, frame).unwrap();
    fs::write(blob_of(&place, "deb"), "").unwrap();

    let before = place.look_closely();
    for _ in 0..2 {
        let result = place.store().restore(place.root(), &first, &RestoreOptions::default(), &());
        let Err(Error::ContentLost { mut lost }) = result else { panic!("{result:?}") };
        lost.sort_by(|a, b| a.path.cmp(&b.path));
        let named: Vec<String> = lost.iter().map(|lost| lost.path.to_string()).collect();
        assert_eq!(named, ["a", "d/e/a", "d/e/b"]);
        assert_eq!(lost[0].reason, "missing");
    }
    assert_untouched(&place, &before);
    assert_eq!(place.checkpoints(), 1);
    // What is whole can be had.
    let outcome = restore_paths(&place, &first, &["b", "d/a"]).unwrap();
    assert_eq!(changed(&outcome), ["b", "d/a"]);
    // A file that still has the content brings it back.
    fs::write(place.root().join("a"), "a").unwrap();
    fs::write(place.root().join("copy"), "dea").unwrap();
    fs::write(place.root().join("other"), "deb").unwrap();
    place.capture();
    fs::write(place.root().join("a"), "changed again").unwrap();
    assert_eq!(place.restore(&first).left, []);
    assert_eq!(fs::read(place.root().join("d/e/a")).unwrap(), b"dea");
    place.verify_clean();
}

#[test]
fn no_hard_link_is_written_through() {
    let place = Place::new();
    let outside = tempfile::tempdir_in(place.home()).unwrap();
    tree::build(
        place.root(),
        [("content", file("then")), ("mode", executable("then")), ("both", file("then"))],
    );
    let first = place.capture();
    for name in ["content", "mode", "both"] {
        let path = place.root().join(name);
        fs::remove_file(&path).unwrap();
        fs::write(&path, if name == "mode" { "then" } else { "now" }).unwrap();
        set_mode(&path, 0o640);
        fs::hard_link(&path, outside.path().join(name)).unwrap();
        fs::hard_link(&path, place.root().join(format!("{name}.other"))).unwrap();
    }
    let linked = fingerprint::of(outside.path());
    let before = place.look();
    let outcome = place.restore(&first);
    assert_eq!(outcome.left, []);
    fingerprint::assert_same(&linked, &fingerprint::of(outside.path()));
    for name in ["content", "mode", "both"] {
        let status = fs::metadata(place.root().join(name)).unwrap();
        assert_eq!(fs::read(place.root().join(name)).unwrap(), b"then");
        assert_eq!(status.mode() & 0o777, if name == "mode" { 0o755 } else { 0o644 });
        let other = fs::metadata(place.root().join(format!("{name}.other"))).unwrap();
        assert_eq!(other.mode() & 0o777, 0o640);
    }
    assert_eq!(place.undo().left, []);
    fingerprint::assert_same(&before, &place.look());
    fingerprint::assert_same(&linked, &fingerprint::of(outside.path()));
}

#[test]
fn every_name_of_a_file_that_was_not_there_goes() {
    let place = Place::new();
    tree::build(place.root(), [("a", file("a"))]);
    let first = place.capture();
    let at_capture = place.look();
    tree::build(place.root(), [("d/one", file("x"))]);
    for name in ["two", "d/three"] {
        fs::hard_link(place.root().join("d/one"), place.root().join(name)).unwrap();
    }
    let before = place.look();
    let outcome = place.restore(&first);
    assert_eq!((outcome.left.len(), outcome.plan.skips.len()), (0, 0));
    fingerprint::assert_same(&at_capture, &place.look());
    assert_eq!(place.undo().left, []);
    fingerprint::assert_same(&before, &place.look());
}

#[test]
fn modes_come_back_to_the_bit() {
    let place = Place::new();
    let modes: [(&str, u32); 9] = [
        ("private", 0o600),
        ("read-only", 0o444),
        ("none", 0o000),
        ("sticky", 0o1644),
        ("all", 0o777),
        ("dirs/group", 0o2755),
        ("dirs/sticky", 0o1777),
        ("dirs/closed", 0o500),
        ("dirs", 0o711),
    ];
    for (name, mode) in modes {
        if name.starts_with("dirs") {
            tree::build(place.root(), [(format!("{name}/inside"), file(name))]);
        } else {
            tree::build(place.root(), [(name, file(name))]);
        }
        set_mode(place.root().join(name), mode);
    }
    let first = place.capture();
    let at_capture = place.look();
    for (name, _) in modes {
        set_mode(place.root().join(name), if name.starts_with("dirs") { 0o750 } else { 0o666 });
    }
    let outcome = place.restore(&first);
    assert_eq!(outcome.plan.of_kind(ChangeKind::Mode).count(), modes.len());
    assert_eq!(outcome.left, []);
    fingerprint::assert_same(&at_capture, &place.look());

    fs::remove_dir_all(place.root().join("dirs")).unwrap();
    for name in ["private", "read-only", "none"] {
        fs::write(place.root().join(name), "changed").unwrap();
        set_mode(place.root().join(name), 0o644);
    }
    assert_eq!(place.restore(&first).left, []);
    fingerprint::assert_same(&at_capture, &place.look());
}

#[test]
fn set_id_bits_of_a_file_do_not_come_back_and_that_is_said() {
    let place = Place::new();
    tree::build(place.root(), [("tool", executable("tool")), ("same", executable("same"))]);
    set_mode(place.root().join("tool"), 0o4755);
    set_mode(place.root().join("same"), 0o2755);
    let first = place.capture();
    fs::write(place.root().join("tool"), "changed").unwrap();
    let outcome = place.restore(&first);
    assert_eq!(skips(&outcome), ["tool set-id"]);
    assert!(!outcome.is_short());
    let mode = |name: &str| fs::metadata(place.root().join(name)).unwrap().mode() & 0o7777;
    assert_eq!((mode("tool"), mode("same")), (0o755, 0o2755));
}

#[test]
fn files_that_are_as_they_should_be_are_not_touched() {
    let place = Place::new();
    let first = a_few_files(&place);
    let before = place.look_closely();
    fs::write(place.root().join("b"), "changed").unwrap();
    fs::write(place.root().join("new"), "new").unwrap();
    for thorough in [false, true] {
        let mut options = RestoreOptions::default();
        options.thorough = thorough;
        let outcome = place.store().restore(place.root(), &first, &options, &()).unwrap();
        assert_eq!(changed(&outcome).len(), if thorough { 0 } else { 2 });
        let after = place.look_closely();
        for (path, node) in &before {
            if node.kind != Kind::Dir && path != Path::new("b") {
                assert_eq!(after.get(path), Some(node), "{}", path.display());
            }
        }
    }
}

#[test]
fn an_edit_that_hides_behind_its_old_time_is_seen() {
    let place = Place::new();
    let first = a_few_files(&place);
    let path = place.root().join("d/e/a");
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    fs::write(&path, "xyz").unwrap();
    File::open(&path).unwrap().set_modified(modified).unwrap();
    assert_eq!(changed(&place.restore(&first)), ["d/e/a"]);
    assert_eq!(fs::read(&path).unwrap(), b"dea");
}

#[test]
fn files_get_the_present_time_unless_the_old_one_is_asked_for() {
    let place = Place::new();
    let old = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    tree::build(place.root(), [("a", file("a"))]);
    let path = place.root().join("a");
    File::open(&path).unwrap().set_modified(old).unwrap();
    let first = place.capture();
    for preserve in [true, false] {
        fs::write(&path, "changed").unwrap();
        let mut options = RestoreOptions::default();
        options.preserve_mtime = preserve;
        let outcome = place.store().restore(place.root(), &first, &options, &()).unwrap();
        assert_eq!(outcome.changed, 1);
        assert_eq!(fs::metadata(&path).unwrap().modified().unwrap() == old, preserve);
    }
}

#[test]
fn a_directory_that_was_not_listed_whole_is_no_evidence() {
    let place = Place::new();
    tree::build(place.root(), [(".gitignore", file("*.log\n")), ("many/kept", file("x"))]);
    for number in 0..1_010 {
        File::create(place.root().join(format!("many/{number:04}.log"))).unwrap();
    }
    let first = place.capture();
    let entries = place.store().entries(&first, &rel("many"), &()).unwrap();
    assert_eq!(entries.len(), 1 + 1_001 + 1, "the directory, names left out, and the file");
    tree::build(
        place.root(),
        [("many/new", file("new")), ("many/kept", file("changed")), ("many/sub/x", file("x"))],
    );
    let outcome = place.restore(&first);
    let expected = ["many/new no-evidence", "many/sub no-evidence", "many/sub/x no-evidence"];
    assert_eq!(skips(&outcome), expected);
    assert_eq!(fs::read(place.root().join("many/kept")).unwrap(), b"x");
    assert_eq!(fs::read(place.root().join("many/new")).unwrap(), b"new");
    assert_eq!(fs::read_dir(place.root().join("many")).unwrap().count(), 1_013);
    // Undo knows by what the restore changed.
    assert_eq!(place.undo().left, []);
    assert_eq!(fs::read(place.root().join("many/kept")).unwrap(), b"changed");
}

#[test]
fn a_directory_with_more_names_than_are_listed_gives_way_once_all_are_saved() {
    let place = Place::new();
    tree::build(place.root(), [("many", file("was a file"))]);
    let first = place.capture();
    fs::remove_file(place.root().join("many")).unwrap();
    tree::build(place.root(), [("many/.gitignore", file("*.log\n"))]);
    for number in 0..1_010 {
        fs::write(place.root().join(format!("many/{number:04}.log")), number.to_string()).unwrap();
    }
    let before = place.look();
    assert_eq!(skips(&place.restore(&first)), [""; 0]);
    assert_eq!(fs::read(place.root().join("many")).unwrap(), b"was a file");
    assert_eq!(place.undo().left, []);
    fingerprint::assert_same(&before, &place.look());
}

#[test]
fn a_file_above_the_limit_is_saved_before_it_is_overwritten() {
    let place = Place::new();
    tree::build(place.root(), [("grown", file("small")), ("x", file("a file"))]);
    let first = place.capture();
    fs::remove_file(place.root().join("x")).unwrap();
    let large: Vec<u8> = (0..9 << 20).map(|at: u32| at.to_le_bytes()[at as usize % 3]).collect();
    tree::build(
        place.root(),
        [("grown", file(&large)), ("x/large", file(&large)), ("new-large", file(&large))],
    );
    let before = place.look();
    let outcome = place.restore(&first);
    assert_eq!(outcome.left, []);
    assert_eq!(fs::read(place.root().join("grown")).unwrap(), b"small");
    assert_eq!(fs::read(place.root().join("x")).unwrap(), b"a file");
    // Out of scope, and in nobody's way.
    assert_eq!(fs::metadata(place.root().join("new-large")).unwrap().len(), large.len() as u64);
    assert_eq!(place.undo().left, []);
    fingerprint::assert_same(&before, &place.look());
    place.verify_clean();
}

#[test]
fn a_total_limit_does_not_count_for_what_is_saved() {
    let place = Place::new();
    tree::build(place.root(), [("a", file("a")), ("b", file("b"))]);
    let first = place.capture();
    tree::build(place.root(), [("a", file("aaaa")), ("b", file("bbbb"))]);
    let before = place.look();
    let mut options = RestoreOptions::default();
    let mut scope = ScopeSettings::default();
    scope.total_limit_bytes = Some(5);
    options.scope = scope;
    let outcome = place.store().restore(place.root(), &first, &options, &()).unwrap();
    assert_eq!(changed(&outcome), ["a", "b"]);
    assert_eq!(place.undo().left, []);
    fingerprint::assert_same(&before, &place.look());
}

#[test]
fn a_plan_that_was_agreed_to_is_carried_out_or_nothing_is() {
    let place = Place::new();
    let first = a_few_files(&place);
    fs::write(place.root().join("a"), "changed").unwrap();
    let plan = |place: &Place| {
        let options = RestoreOptions::default();
        place.store().plan_restore(place.root(), &first, &options, &()).unwrap().plan
    };
    let before = place.look_closely();
    let agreed = plan(&place);
    assert_untouched(&place, &before);
    assert_eq!(place.checkpoints(), 1);
    fs::write(place.root().join("b"), "changed").unwrap();
    let before = place.look_closely();
    let mut options = RestoreOptions::default();
    options.expected_plan = Some(agreed.id());
    let result = place.store().restore(place.root(), &first, &options, &());
    assert!(matches!(result, Err(Error::PlanChanged { .. })), "{result:?}");
    assert_untouched(&place, &before);
    let now = plan(&place);
    options.expected_plan = Some(now.id());
    let outcome = place.store().restore(place.root(), &first, &options, &()).unwrap();
    assert_eq!(outcome.plan, now);
}

#[test]
fn a_symlink_in_the_place_of_a_directory_is_replaced_and_never_followed() {
    let place = Place::new();
    let outside = tempfile::tempdir_in(place.home()).unwrap();
    tree::build(outside.path(), [("a", file("outside"))]);
    let linked = fingerprint::with_stamps(outside.path());
    tree::build(place.root(), [("d/a", file("inside"))]);
    let first = place.capture();
    fs::remove_dir_all(place.root().join("d")).unwrap();
    symlink(outside.path(), place.root().join("d")).unwrap();
    assert_eq!(place.restore(&first).left, []);
    assert_eq!(fs::read(place.root().join("d/a")).unwrap(), b"inside");
    fingerprint::assert_same(&linked, &fingerprint::with_stamps(outside.path()));
    assert_eq!(place.undo().left, []);
    assert_eq!(fs::read_link(place.root().join("d")).unwrap(), outside.path());
    fingerprint::assert_same(&linked, &fingerprint::with_stamps(outside.path()));
}

#[test]
fn a_checkpoint_of_another_workspace_is_refused() {
    let place = Place::new();
    let first = a_few_files(&place);
    let other = tempfile::tempdir().unwrap();
    let options = CaptureOptions::default();
    assert!(place.store().capture(other.path(), &options, &()).unwrap().created);
    let result = place.store().restore(other.path(), &first, &RestoreOptions::default(), &());
    assert!(matches!(result, Err(Error::OtherWorkspace { .. })), "{result:?}");
    assert_eq!(fs::read_dir(other.path()).unwrap().count(), 0);
}

#[test]
fn only_a_new_or_empty_directory_is_restored_into() {
    let place = Place::new();
    let first = a_few_files(&place);
    let at_capture = place.look();
    let into = tempfile::tempdir().unwrap();
    let store = place.store();
    let options = RestoreOptions::default();
    let new = into.path().join("new");
    assert_eq!(store.restore_into(&first, &new, &options, &()).unwrap(), 9);
    fingerprint::assert_same(&at_capture, &fingerprint::of(&new));
    let again = store.restore_into(&first, &new, &options, &());
    assert!(matches!(again, Err(Error::IntoNotEmpty { .. })), "{again:?}");
    let part = into.path().join("part");
    assert_eq!(store.restore_into(&first, &part, &of_paths(&["d/e"]), &()).unwrap(), 4);
    assert_eq!(fs::read(part.join("d/e/a")).unwrap(), b"dea");
    assert!(!part.join("a").exists());
}

/// The same file in every mode of a list, in directories that hold more than one task makes.
#[test]
fn a_tree_of_large_directories_and_odd_modes_is_written_as_it_was() {
    let place = Place::new();
    tree::build(
        place.root(),
        (0..700).map(|number| (format!("many/{number:03}"), file(number.to_string()))),
    );
    tree::build(place.root(), (0..3).map(|number| (format!("many/d{number}/e/x"), file("x"))));
    tree::build(place.root(), [("many-", file("")), ("empty", dir()), ("link", link("many/000"))]);
    for (number, mode) in [0o777, 0o666, 0o444, 0o000, 0o1644, 0o2755].into_iter().enumerate() {
        set_mode(place.root().join(format!("many/{number:03}")), mode);
    }
    let large: Vec<u8> = (0..9 << 20).map(|at: u32| at.to_le_bytes()[at as usize % 3]).collect();
    fs::write(place.root().join("large"), &large).unwrap();
    for (path, mode) in [("many/d0", 0o555), ("many/d1/e", 0o000), ("many/d2", 0o1777)] {
        set_mode(place.root().join(path), mode);
    }
    let mut capture = CaptureOptions::default();
    capture.scope.file_limit_bytes = 1 << 30;
    let id = place.store().capture(place.root(), &capture, &()).unwrap().checkpoint;
    set_mode(place.root().join("many/005"), 0o0755);
    let into = tempfile::tempdir().unwrap();
    let new = into.path().join("new");
    let paths = place.store().restore_into(&id, &new, &RestoreOptions::default(), &()).unwrap();
    let at_capture = place.look();
    assert_eq!(paths, at_capture.len() as u64 - 1);
    fingerprint::assert_same(&at_capture, &fingerprint::of(&new));
}

#[test]
fn what_is_damaged_is_named_whole_and_nothing_stays_of_what_was_written() {
    let place = Place::new();
    let content = |number: usize| format!("content of {number}");
    let path = |number: usize| format!("d{}/{number:03}", number % 3);
    tree::build(place.root(), (0..900).map(|number| (path(number), file(content(number)))));
    let id = place.capture_loose();
    let blob =
        |number: usize| place.blob(blake3::hash(content(number).as_bytes()).to_hex().as_str());
    let damaged = [0, 299, 450, 898];
    for number in damaged {
        let mut bytes = fs::read(blob(number)).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(blob(number), bytes).unwrap();
    }
    let into = tempfile::tempdir().unwrap();
    let (new, old) = (into.path().join("new"), into.path().join("old"));
    fs::create_dir(&old).unwrap();
    let lost = |into: &Path| {
        let options = RestoreOptions::default();
        let error = place.store().restore_into(&id, into, &options, &()).unwrap_err();
        let Error::ContentLost { lost } = error else { panic!("{error:?}") };
        lost.into_iter().map(|lost| lost.path.to_string()).collect::<Vec<_>>()
    };
    let mut expected: Vec<String> = damaged.map(path).into();
    expected.sort();
    assert_eq!(lost(&new), expected);
    assert_eq!(lost(&old), expected);
    assert!(!new.exists());
    assert_eq!(fs::read_dir(&old).unwrap().count(), 0);
    // What is missing is known before anything is written.
    fs::remove_file(blob(7)).unwrap();
    assert_eq!(lost(&new), [path(7)]);
    assert!(!new.exists());
}

#[test]
fn many_directories_that_are_ignored_by_now_are_each_accounted_for_once() {
    let place = Place::new();
    let path = |number: u32| format!("d/{number:04}/f");
    tree::build(place.root(), (0..1200).map(|number| (path(number), file("before"))));
    tree::build(place.root(), (0..1200).map(|number| (format!("e/{number:04}"), dir())));
    let id = place.capture();
    let then = place.look();
    // More than are listed one by one.
    tree::build(place.root(), [(".gitignore", file("/d/*\n/e/*\n"))]);
    for number in [0, 600, 1100, 1199] {
        fs::write(place.root().join(path(number)), "after").unwrap();
    }
    fs::remove_dir_all(place.root().join("d/0700")).unwrap();
    fs::remove_dir_all(place.root().join("d/1150")).unwrap();
    let now = place.look();
    place.go_back(&id);
    fingerprint::assert_same(&then, &place.look());
    place.verify_clean();
    assert_eq!(place.undo().left, []);
    fingerprint::assert_same(&now, &place.look());
    place.verify_clean();
}

#[test]
fn a_checkpoint_of_given_paths_says_that_of_them_and_refuses_the_others() {
    let place = Place::new();
    let first = a_few_files(&place);
    fs::remove_file(place.root().join("a")).unwrap();
    fs::write(place.root().join("b"), "changed").unwrap();
    let safety = restore_paths(&place, &first, &["a"]).unwrap().safety.unwrap();
    assert_eq!(coverage(&place, &safety), Coverage::Paths);
    let store = place.store();
    assert_eq!(store.paths_spoken_of(&first, &()).unwrap(), None);
    assert_eq!(store.paths_spoken_of(&safety, &()).unwrap(), Some([rel("a")].into()));
    // It has what the first has of `b`, which was another by then.
    let with_restored = place.look_closely();
    let mut written = Vec::new();
    let refusals = [
        store.cat(&safety, &rel("b"), &mut written, &()),
        restore_paths(&place, &safety, &["b"]).map(drop),
        restore_paths(&place, &safety, &["a", "d"]).map(drop),
    ];
    for (refused, name) in refusals.into_iter().zip(["b", "b", "d"]) {
        let Err(Error::PathNotCovered { checkpoint, path, before }) = refused else {
            panic!("{name}: {refused:?}");
        };
        assert_eq!((checkpoint, path, before), (safety.clone(), rel(name), Some(first.clone())));
    }
    assert_eq!(written, b"");
    assert_untouched(&place, &with_restored);
    // That `a` was not there it does say.
    let outcome = restore_paths(&place, &safety, &["a"]).unwrap();
    assert_eq!((changed(&outcome), skips(&outcome).len()), (vec!["a".to_owned()], 0));
    assert!(!place.root().join("a").exists());
    assert_eq!(fs::read(place.root().join("b")).unwrap(), b"changed");
    place.verify_clean();
}

#[test]
fn writing_out_what_was_made_of_given_paths_says_so() {
    let place = Place::new();
    let id = a_few_files(&place);
    let told_of = |id: &CheckpointId| {
        let into = tempfile::tempdir().unwrap();
        let (told, options) = (Told::default(), RestoreOptions::default());
        place.store().restore_into(id, &into.path().join("out"), &options, &told).unwrap();
        told.notices().len()
    };
    fs::write(place.root().join("a"), "changed").unwrap();
    let safety = restore_paths(&place, &id, &["a"]).unwrap().safety.unwrap();
    assert_eq!(coverage(&place, &safety), Coverage::Paths);
    assert_eq!((told_of(&id), told_of(&safety)), (0, 1));
}
