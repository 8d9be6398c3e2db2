//! Mounts below a workspace. Each test runs in a process that has mounts of its own, which end with it
//! however it ends.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use turnpoint::plan::SkipReason;
use turnpoint::{IsolateOptions, IsolationError, Monitor, Phase, RemoveOptions, RestoreOptions};

use crate::isolating::{git, isolation};
use crate::model::truth::sql;
use crate::place::{Place, skips};
use crate::support::fingerprint;
use crate::support::tree::{self, dir, file, link};

/// In the test process: runs the test again where it can mount things, and returns `false`. There:
/// `true`.
fn is_among_own_mounts(test: &str) -> bool {
    const NAME: &str = "TURNPOINT_OWN_MOUNTS";
    if std::env::var_os(NAME).is_some() {
        return true;
    }
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private"]);
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command.arg(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--test-threads=1", "--nocapture"]).env(NAME, "1");
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("1 passed"), "{text}{output:?}");
    false
}

/// A mount that goes before the directory that it is on does.
struct Mount(PathBuf);

impl Mount {
    fn new<A: AsRef<OsStr>>(arguments: &[A], on: &Path) -> Self {
        let output = Command::new("mount").args(arguments).arg(on).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        Self(on.to_owned())
    }

    fn bind(from: &Path, on: &Path) -> Self {
        Self::new(&["--bind".as_ref(), from.as_os_str()], on)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("--lazy").arg(&self.0).output());
    }
}

#[test]
fn what_is_mounted_from_the_same_file_system_is_not_changed() {
    if !is_among_own_mounts("mounts::what_is_mounted_from_the_same_file_system_is_not_changed") {
        return;
    }
    let place = Place::new();
    let root = place.root();
    tree::build(root, [("a", file("first")), ("m/f", file("first")), ("one", file("first"))]);
    let id = place.capture();
    let outside = place.home().join("outside");
    let nodes = [("f", file("outside")), ("extra", file("outside")), ("empty", dir())];
    tree::build(&outside, nodes);
    tree::build(place.home(), [("one", file("outside"))]);
    fs::write(root.join("a"), "second").unwrap();
    let mounts = [
        Mount::bind(&outside, &root.join("m")),
        Mount::bind(&place.home().join("one"), &root.join("one")),
    ];
    let before = fingerprint::with_stamps(&outside);
    // Neither of the two captures lists what is mounted: one knows the directory, one does not.
    for _ in 0..2 {
        let seq = place.capture().seq;
        let query = format!("SELECT path, reason FROM omitted WHERE seq = {seq} ORDER BY path");
        assert_eq!(sql(place.store().root(), &query), ["m|mount", "one|mount"]);
    }
    let outcome = place.restore(&id);
    assert_eq!(fs::read(root.join("a")).unwrap(), b"first");
    fingerprint::assert_same(&before, &fingerprint::with_stamps(&outside));
    assert_eq!(fs::read(place.home().join("one")).unwrap(), b"outside");
    let skips = skips(&outcome);
    assert!(!skips.is_empty() && skips.iter().all(|skip| skip.ends_with(" mount")), "{skips:?}");
    assert!(!outcome.is_short(), "{:?}", outcome.left);
    drop(mounts);
    assert_eq!(fs::read(root.join("m/f")).unwrap(), b"first");
}

#[test]
fn what_is_mounted_in_the_work_tree_of_a_run_is_not_removed_with_it() {
    let name = "mounts::what_is_mounted_in_the_work_tree_of_a_run_is_not_removed_with_it";
    if !is_among_own_mounts(name) {
        return;
    }
    let place = Place::new();
    let root = place.root().canonicalize().unwrap();
    tree::build(&root, [("a", file("first"))]);
    git(&root, &["init", "-q"]);
    git(&root, &["add", "a"]);
    git(&root, &["commit", "-q", "-m", "first"]);
    let mut run = place.store().isolate(&root, &IsolateOptions::default(), &()).unwrap();
    place.store().end_run(&mut run, 0, &()).map(drop).unwrap();
    let (id, mounted) = (run.id(), run.path().join("m"));
    drop(run);
    let outside = place.home().join("outside");
    tree::build(&outside, [("f", file("outside")), ("closed/g", file("outside"))]);
    fs::set_permissions(outside.join("closed"), fs::Permissions::from_mode(0o555)).unwrap();
    fs::create_dir(&mounted).unwrap();
    let mount = Mount::bind(&outside, &mounted);
    let before = fingerprint::with_stamps(&outside);
    let mut removal = RemoveOptions::default();
    for discard in [false, true] {
        removal.discard = discard;
        let refused = place.store().remove_run_of(&root, id, &removal, &()).unwrap_err();
        assert_eq!(isolation(refused), IsolationError::Mounted { path: mounted.clone() });
        fingerprint::assert_same(&before, &fingerprint::with_stamps(&outside));
    }
    let deeper = mounted.join("closed");
    let over = Mount::bind(&place.home().join("outside"), &deeper);
    let refused = place.store().remove_run_of(&root, id, &removal, &()).unwrap_err();
    assert_eq!(isolation(refused), IsolationError::Mounted { path: deeper });
    drop((over, mount));
    // On the work tree itself.
    let tree = mounted.parent().unwrap();
    let over = Mount::bind(tree, tree);
    let refused = place.store().remove_run_of(&root, id, &removal, &()).unwrap_err();
    assert_eq!(isolation(refused), IsolationError::Mounted { path: tree.to_owned() });
    assert_eq!(fs::read(tree.join("a")).unwrap(), b"first");
    drop(over);
    place.store().remove_run_of(&root, id, &RemoveOptions::default(), &()).map(drop).unwrap();
    assert!(!root.join(".turnpoint").exists());
    fingerprint::assert_same(&before, &fingerprint::with_stamps(&outside));
}

#[test]
fn files_of_every_layer_of_an_overlay_are_restored() {
    if !is_among_own_mounts("mounts::files_of_every_layer_of_an_overlay_are_restored") {
        return;
    }
    let place = Place::new();
    let root = place.root();
    tree::build(root, [("a", file("first")), ("d/b", file("first"))]);
    let id = place.capture();
    let at_first = place.look();
    // Two layers below, on file systems of their own, and one above on a third.
    let layer = |name: &str| {
        let path = place.home().join(name);
        fs::create_dir(&path).unwrap();
        let mount = Mount::new(&["-t", "tmpfs", "none"], &path);
        (path, mount)
    };
    let (low, _low) = layer("low");
    let (middle, _middle) = layer("middle");
    let (high, _high) = layer("high");
    tree::build(&low, [("a", file("low")), ("low", file("low")), ("d/low", file("low"))]);
    tree::build(&middle, [("d/b", file("middle")), ("d/middle", file("middle")), ("l", link("a"))]);
    fs::create_dir(high.join("upper")).unwrap();
    fs::create_dir(high.join("work")).unwrap();
    let options = format!(
        "lowerdir={}:{},upperdir={},workdir={}",
        middle.display(),
        low.display(),
        high.join("upper").display(),
        high.join("work").display()
    );
    let _overlay = Mount::new(&["-t", "overlay", "overlay", "-o", &options], root);
    let before = place.look();
    let outcome = place.restore(&id);
    assert_eq!((skips(&outcome).len(), outcome.left.len()), (0, 0), "{:?}", outcome.plan.skips);
    let below = |mut look: fingerprint::Fingerprint| {
        // The root itself is another directory.
        look.remove(Path::new(""));
        look
    };
    fingerprint::assert_same(&below(at_first), &below(place.look()));
    assert_eq!(place.undo().left, []);
    fingerprint::assert_same(&before, &place.look());
}

/// Uses up every inode of a file system at the moment at which the changes begin.
struct Filling<'a>(&'a Path);

impl Monitor for Filling<'_> {
    fn phase(&self, phase: Phase, _: Option<u64>) {
        if phase == Phase::Apply {
            let filled =
                (0..100_000).find(|number| fs::write(self.0.join(number.to_string()), "").is_err());
            assert!(filled.is_some());
        }
    }
}

#[test]
fn a_file_is_put_back_where_the_directory_in_its_place_cannot_be_made() {
    if !is_among_own_mounts(
        "mounts::a_file_is_put_back_where_the_directory_in_its_place_cannot_be_made",
    ) {
        return;
    }
    let place = Place::new();
    let _full = Mount::new(&["-t", "tmpfs", "-o", "nr_inodes=64", "none"], place.root());
    let root = place.root().join("workspace");
    tree::build(&root, [("d/x", file("x"))]);
    let store = place.store();
    let id = store.capture(&root, &turnpoint::CaptureOptions::default(), &()).unwrap().checkpoint;
    fs::remove_dir_all(root.join("d")).unwrap();
    tree::build(&root, [("d", file("the user's"))]);
    let filling = place.root().join("filling");
    fs::create_dir(&filling).unwrap();
    let options = RestoreOptions::default();
    let outcome = store.restore(&root, &id, &options, &Filling(&filling)).unwrap();
    assert_eq!(fs::read(root.join("d")).unwrap(), b"the user's");
    let left: Vec<_> =
        outcome.left.iter().map(|skip| (skip.path.to_string(), skip.reason)).collect();
    let expected = [("d", SkipReason::Failed), ("d/x", SkipReason::Blocked)];
    assert_eq!(left, expected.map(|(path, reason)| (path.to_owned(), reason)));
    fs::remove_dir_all(&filling).unwrap();
    assert_eq!(store.restore(&root, &id, &options, &()).unwrap().left, []);
    assert_eq!(fs::read(root.join("d/x")).unwrap(), b"x");
}
