use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::io::Errno;
use tempfile::TempDir;

use super::dir::Exchange;
use super::lock::lock_within;
use super::small::leads_to;
use super::sync::is_release_at_least;
use super::system::{by_number, mounts_in};
use super::*;
use crate::error::{Error, Result};
use crate::id::OperationId;
use crate::limits;
use crate::manifest::Mode;
use crate::monitor::{Monitor, Notice};
use crate::path::RelPath;

fn scratch() -> (TempDir, Dir) {
    let place = tempfile::tempdir().unwrap();
    let dir = Dir::open(place.path()).unwrap();
    (place, dir)
}

fn rel(text: &str) -> RelPath {
    RelPath::new(text.as_bytes()).unwrap()
}

fn mode_of(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

#[track_caller]
fn run(program: &str, arguments: &[&str]) {
    let status = Command::new(program).args(arguments).status().unwrap();
    assert!(status.success(), "{program} {arguments:?}");
}

#[track_caller]
fn error_kind<T: std::fmt::Debug>(result: Result<T>) -> std::io::ErrorKind {
    match result.unwrap_err() {
        Error::Io { source, .. } => source.kind(),
        other => panic!("{other:?}"),
    }
}

/// A child process that is killed when the test ends, however it ends.
struct Running(Child);

impl Running {
    /// Locks `path` exclusively in another process, and returns when the lock is held.
    fn flock(path: &Path) -> Self {
        let mut command = Command::new("flock");
        command.args(["--no-fork", "-x"]).arg(path).args(["sleep", "600"]);
        let mut child = Self(command.spawn().unwrap());
        let deadline = Instant::now() + Duration::from_secs(20);
        while try_flock_from_outside(path) {
            assert!(child.0.try_wait().unwrap().is_none() && Instant::now() < deadline);
            thread::yield_now();
        }
        child
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Whether another process can lock `path` alone now.
fn try_flock_from_outside(path: &Path) -> bool {
    Command::new("flock").args(["-n", "-x"]).arg(path).arg("true").status().unwrap().success()
}

#[test]
fn no_symlink_is_followed_beneath_a_directory() {
    let (place, dir) = scratch();
    fs::create_dir_all(place.path().join("a/b/c")).unwrap();
    symlink("a", place.path().join("link")).unwrap();
    symlink("/", place.path().join("a/out")).unwrap();
    fs::write(place.path().join("a/file"), "x").unwrap();

    let found = dir.open_dir(&rel("a/b/c")).unwrap().stat_self().unwrap();
    assert_eq!(found.ino, fs::metadata(place.path().join("a/b/c")).unwrap().ino());
    let root = dir.open_dir(&RelPath::root()).unwrap().stat_self().unwrap();
    assert_eq!(root.ino, fs::metadata(place.path()).unwrap().ino());

    for path in ["link", "link/b", "a/out", "a/out/etc", "a/file", "a/file/x", "gone", "gone/x"] {
        assert!(dir.try_open_dir(&rel(path)).unwrap().is_none(), "{path}");
        assert!(dir.open_dir(&rel(path)).is_err(), "{path}");
        // The way without openat2 gives the same answers.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let walked = open::by_component(std::os::fd::AsFd::as_fd(&dir), path.as_bytes(), flags);
        let expected = [Errno::NOENT, Errno::NOTDIR, Errno::LOOP];
        assert!(expected.contains(&walked.unwrap_err()), "{path}");
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let walked = open::by_component(std::os::fd::AsFd::as_fd(&dir), b"a/b/c", flags).unwrap();
    assert_eq!(file_stat(walked, Path::new("")).unwrap().ino, found.ino);
    assert!(dir.open_child(b"link").is_err());
    assert!(dir.open_file(b"link").is_err());
    assert!(dir.open_file_beneath(&rel("link/file")).is_err());
    assert!(dir.open_file_beneath(&rel("a/file")).is_ok());
}

#[test]
fn a_directory_exchanged_with_a_symlink_never_leads_outside() {
    let (place, dir) = scratch();
    let outside = tempfile::tempdir().unwrap();
    fs::create_dir(outside.path().join("inner")).unwrap();
    fs::create_dir_all(place.path().join("a/inner")).unwrap();
    symlink(outside.path(), place.path().join("b")).unwrap();
    let within = fs::metadata(place.path().join("a/inner")).unwrap().ino();

    let stop = AtomicBool::new(false);
    let (mut opened, mut refused) = (0, 0);
    thread::scope(|scope| {
        scope.spawn(|| {
            let dir = Dir::open(place.path()).unwrap();
            while !stop.load(Ordering::Relaxed) {
                assert_eq!(dir.exchange(b"a", &dir, b"b").unwrap(), Exchange::Done);
            }
        });
        for _ in 0..20_000 {
            match dir.try_open_dir(&rel("a/inner")).unwrap() {
                Some(found) => {
                    opened += 1;
                    assert_eq!(found.stat_self().unwrap().ino, within);
                }
                None => refused += 1,
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(opened > 0 && refused > 0, "the race did not happen: {opened} and {refused}");
}

#[test]
fn a_path_longer_than_the_kernel_takes_is_opened_in_pieces() {
    let (_place, root) = scratch();
    let name = "n".repeat(250);
    let mut dir = root.try_clone().unwrap();
    for _ in 0..40 {
        dir.make_dir(name.as_bytes(), Mode::from_st_mode(0o700)).unwrap();
        dir = dir.open_child(name.as_bytes()).unwrap();
    }
    dir.create_file(b"leaf").unwrap();
    let path = rel(&vec![name.as_str(); 40].join("/"));
    assert!(path.as_bytes().len() > 2 * 4096);
    let found = root.open_dir(&path).unwrap();
    assert_eq!(found.stat_self().unwrap(), dir.stat_self().unwrap());
    assert_eq!(found.names().unwrap(), [b"leaf".to_vec()]);
    assert!(root.open_file_beneath(&path.join(b"leaf").unwrap()).is_ok());
    assert!(root.try_open_dir(&path.join(b"gone").unwrap()).unwrap().is_none());
}

#[test]
fn a_name_is_one_component() {
    let (place, dir) = scratch();
    fs::create_dir(place.path().join("sub")).unwrap();
    fs::write(place.path().join("sub/file"), "x").unwrap();
    for name in ["", ".", "..", "sub/file", "../x", "a\0b"] {
        let name = name.as_bytes();
        assert!(dir.stat(name).is_err());
        assert!(dir.open_file(name).is_err());
        assert!(dir.create_file(name).is_err());
        assert!(dir.open_child(name).is_err());
        assert!(dir.unlink(name).is_err());
        assert!(dir.rename_to(b"sub", &dir, name).is_err());
    }
    assert_eq!(fs::read(place.path().join("sub/file")).unwrap(), b"x");
}

#[test]
fn a_stat_agrees_with_the_system() {
    let (place, dir) = scratch();
    fs::write(place.path().join("file"), "seven b").unwrap();
    fs::set_permissions(place.path().join("file"), fs::Permissions::from_mode(0o4751)).unwrap();
    symlink("nowhere", place.path().join("link")).unwrap();
    fs::create_dir(place.path().join("dir")).unwrap();
    run("mkfifo", &[place.path().join("fifo").to_str().unwrap()]);
    dir.set_mtime(b"file", -1).unwrap();
    dir.set_mtime(b"link", 1_700_000_000_123_456_789).unwrap();

    for (name, kind) in [
        ("file", FileKind::File),
        ("link", FileKind::Symlink),
        ("dir", FileKind::Dir),
        ("fifo", FileKind::Other),
    ] {
        let ours = dir.stat(name.as_bytes()).unwrap().unwrap();
        let theirs = fs::symlink_metadata(place.path().join(name)).unwrap();
        assert_eq!(ours.kind, kind);
        assert_eq!((ours.dev, ours.ino), (theirs.dev(), theirs.ino()));
        assert_eq!(
            (ours.size, ours.blocks, ours.nlink),
            (theirs.len(), theirs.blocks(), theirs.nlink())
        );
        assert_eq!(ours.mode.bits(), theirs.mode() & 0o7777);
        assert_eq!(ours.mtime_ns, theirs.mtime() * 1_000_000_000 + theirs.mtime_nsec());
        assert_eq!(ours.ctime_ns, theirs.ctime() * 1_000_000_000 + theirs.ctime_nsec());
        assert_eq!((ours.uid, ours.gid), (theirs.uid(), theirs.gid()));
    }
    assert_eq!(dir.stat(b"file").unwrap().unwrap().mtime_ns, -1);
    assert_eq!(dir.stat(b"link").unwrap().unwrap().mtime_ns, 1_700_000_000_123_456_789);
    assert_eq!(dir.stat(b"gone").unwrap(), None);
    let mut names = dir.names().unwrap();
    names.sort();
    assert_eq!(names, [b"dir".to_vec(), b"fifo".to_vec(), b"file".to_vec(), b"link".to_vec()]);

    let said = Command::new("stat").args(["-c", "%W"]).arg(place.path()).output().unwrap();
    let said: i64 = String::from_utf8(said.stdout).unwrap().trim().parse().unwrap();
    let birth = dir.birth_time_ns().unwrap().map_or(0, |ns| ns / 1_000_000_000);
    assert_eq!(birth, said);
}

#[test]
fn a_mode_is_set_on_the_file_and_never_through_a_symlink() {
    let (place, dir) = scratch();
    fs::write(place.path().join("file"), "x").unwrap();
    fs::set_permissions(place.path().join("file"), fs::Permissions::from_mode(0o640)).unwrap();
    symlink("file", place.path().join("link")).unwrap();
    assert!(dir.set_mode(b"link", Mode::from_st_mode(0o777)).is_err());
    assert_eq!(mode_of(&place.path().join("file")), 0o640);
    dir.set_mode(b"file", Mode::from_st_mode(0o4711)).unwrap();
    assert_eq!(mode_of(&place.path().join("file")), 0o4711);
    dir.set_mode(b"file", Mode::from_st_mode(0)).unwrap();
    assert_eq!(mode_of(&place.path().join("file")), 0);
}

#[test]
fn names_move_only_as_asked() {
    let (place, dir) = scratch();
    let sub = {
        dir.make_dir(b"sub", Mode::from_st_mode(0o1755)).unwrap();
        dir.open_child(b"sub").unwrap()
    };
    assert_eq!(mode_of(&place.path().join("sub")), 0o1755);
    let write = |name: &str| fs::write(place.path().join(name), name).unwrap();
    let read = |name: &str| fs::read_to_string(place.path().join(name)).ok();
    write("one");
    write("two");

    assert_eq!(dir.rename_no_replace(b"one", &dir, b"two").unwrap(), Placed::Taken);
    assert_eq!(dir.link_then_unlink(b"one", &dir, b"two").unwrap(), Placed::Taken);
    assert_eq!((read("one"), read("two")), (Some("one".into()), Some("two".into())));
    assert_eq!(dir.rename_no_replace(b"one", &sub, b"one").unwrap(), Placed::Done);
    assert_eq!(dir.link_then_unlink(b"two", &sub, b"two").unwrap(), Placed::Done);
    assert_eq!((read("one"), read("two")), (None, None));
    assert_eq!((read("sub/one"), read("sub/two")), (Some("one".into()), Some("two".into())));

    assert_eq!(sub.exchange(b"one", &sub, b"two").unwrap(), Exchange::Done);
    assert_eq!((read("sub/one"), read("sub/two")), (Some("two".into()), Some("one".into())));
    sub.rename_to(b"one", &dir, b"three").unwrap();
    sub.rename_to(b"two", &dir, b"three").unwrap();
    assert_eq!(read("three"), Some("one".into()));

    dir.symlink(b"sub/\xff", b"link").unwrap();
    assert_eq!(dir.read_link(b"link").unwrap(), b"sub/\xff");
    assert_eq!(error_kind(dir.symlink(b"x", b"link")), std::io::ErrorKind::AlreadyExists);
    dir.unlink(b"link").unwrap();
    assert!(!dir.try_unlink(b"link").unwrap());
    dir.remove_dir(b"sub").unwrap();
    assert_eq!(dir.names().unwrap(), [b"three".to_vec()]);
}

/// Runs itself again in a child process with each umask, since a umask belongs to the whole process.
#[test]
fn modes_are_exact_whatever_the_umask() {
    const PLACE: &str = "TURNPOINT_TEST_UMASK_PLACE";
    if let Some(place) = std::env::var_os(PLACE).map(PathBuf::from) {
        drop(make_private_dir(&place.join("new/deep")).unwrap());
        let dir = Dir::open(&place).unwrap();
        dir.make_dir(b"shared", Mode::from_st_mode(0o2775)).unwrap();
        drop(dir.create_file(b"file").unwrap());
        assert_eq!(create_durably(&dir, b"created", b"x", &dir).unwrap(), Created::Done);
        replace_durably(&dir, b"replaced", b"x", &dir).unwrap();
        append_line(&place.join("lines"), b"x").unwrap();
        drop(lock(&place.join("lock"), LockKind::Exclusive, "x", &()).unwrap());
        return;
    }
    for umask in ["000", "077", "0777"] {
        let (place, _dir) = scratch();
        let script = format!("umask {umask}; exec \"$0\" \"$@\"");
        let name = "disk::tests::modes_are_exact_whatever_the_umask";
        let status = Command::new("sh")
            .args(["-c", &script])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", name, "--quiet"])
            .env(PLACE, place.path())
            .stdout(std::process::Stdio::null())
            .status()
            .unwrap();
        assert!(status.success());
        for (name, mode) in [
            ("new", 0o700),
            ("new/deep", 0o700),
            ("shared", 0o2775),
            ("file", 0o600),
            ("created", 0o600),
            ("replaced", 0o600),
            ("lines", 0o600),
            ("lock", 0o600),
        ] {
            assert_eq!(mode_of(&place.path().join(name)), mode, "{name} with umask {umask}");
        }
    }
}

#[test]
fn a_directory_that_others_can_change_is_not_private() {
    let (place, _dir) = scratch();
    let path = place.path().join("store");
    make_private_dir(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    make_private_dir(&path).unwrap();
    assert_eq!(mode_of(&path), 0o755);
    for mode in [0o770, 0o702] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let error = make_private_dir(&path).unwrap_err();
        assert!(matches!(error, Error::StoreForeign { path: named, .. } if named == path));
    }
    let file = place.path().join("file");
    fs::write(&file, "x").unwrap();
    assert_eq!(error_kind(make_private_dir(&file)), std::io::ErrorKind::NotADirectory);
}

/// Only root can give a directory away; the tests run as root where this matters.
#[test]
fn a_directory_of_another_user_is_not_private() {
    let (place, _dir) = scratch();
    let path = place.path().join("store");
    make_private_dir(&path).unwrap();
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&path, Some(12345), None).unwrap();
        let error = make_private_dir(&path).unwrap_err();
        assert!(matches!(error, Error::StoreForeign { reason, .. } if reason.contains("12345")));
    } else {
        let error = make_private_dir(Path::new("/")).unwrap_err();
        assert!(matches!(error, Error::StoreForeign { reason, .. } if reason.contains("user 0")));
    }
}

#[derive(Default)]
struct Recorder {
    notices: Mutex<Vec<Notice>>,
    cancelled: bool,
}

impl Monitor for Recorder {
    fn notice(&self, notice: &Notice) {
        self.notices.lock().unwrap().push(notice.clone());
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled
    }
}

#[test]
fn locks_exclude_each_other_and_are_free_when_dropped() {
    let (place, _dir) = scratch();
    let path = place.path().join("lock");
    let shared = lock(&path, LockKind::Shared, "the store", &()).unwrap();
    let second = try_lock(&path, LockKind::Shared).unwrap();
    assert!(second.is_some());
    assert!(try_lock(&path, LockKind::Exclusive).unwrap().is_none());
    assert!(!try_flock_from_outside(&path));
    drop((shared, second));
    assert!(try_flock_from_outside(&path));
    let alone = try_lock(&path, LockKind::Exclusive).unwrap();
    assert!(alone.is_some() && try_lock(&path, LockKind::Shared).unwrap().is_none());
    drop(alone);
    assert!(path.exists());
}

#[test]
fn a_wait_for_a_lock_is_told_once_then_ends() {
    let (place, _dir) = scratch();
    let path = place.path().join("lock");
    fs::write(&path, "").unwrap();
    let mut holder = Running::flock(&path);

    let monitor = Recorder::default();
    let wait = limits::LOCK_WAIT_TOLD_AFTER + Duration::from_millis(300);
    let error = lock_within(&path, LockKind::Shared, "the workspace", wait, &monitor).unwrap_err();
    let busy = matches!(&error, Error::Busy { lock, waited } if lock == "the workspace" && *waited >= wait);
    assert!(busy, "{error:?}");
    let notices = monitor.notices.into_inner().unwrap();
    assert!(matches!(&*notices, [Notice::Waiting { lock, .. }] if lock == "the workspace"));

    let monitor = Recorder { cancelled: true, ..Recorder::default() };
    let error = lock(&path, LockKind::Shared, "the workspace", &monitor).unwrap_err();
    assert!(matches!(error, Error::Cancelled));

    holder.kill();
    lock(&path, LockKind::Exclusive, "the workspace", &()).unwrap();
}

#[test]
fn a_lock_on_a_file_that_lost_its_name_is_not_taken_for_the_lock() {
    let (place, _dir) = scratch();
    let path = place.path().join("lock");
    let _old = lock(&path, LockKind::Exclusive, "x", &()).unwrap();
    fs::remove_file(&path).unwrap();
    // The name is free again: the next one makes a file of its own and holds that.
    let _new = try_lock(&path, LockKind::Exclusive).unwrap().unwrap();
    assert!(!try_flock_from_outside(&path));
}

#[test]
fn a_lease_lives_as_long_as_its_process() {
    let (place, leases_dir) = scratch();
    let (ours, theirs) = (OperationId::random(), OperationId::random());
    let path = |id: OperationId| place.path().join(id.to_string());

    let lease = Lease::create(&leases_dir, ours).unwrap();
    assert_eq!(mode_of(&path(ours)), 0o600);
    assert!(!try_flock_from_outside(&path(ours)));
    assert!(lease.still_holds().unwrap() && is_alive(&leases_dir, ours).unwrap());
    assert!(!remove_dead(&leases_dir, ours).unwrap());
    assert_eq!(error_kind(Lease::create(&leases_dir, ours)), std::io::ErrorKind::AlreadyExists);

    fs::write(path(theirs), "").unwrap();
    let mut process = Running::flock(&path(theirs));
    assert!(is_alive(&leases_dir, theirs).unwrap());
    assert!(!remove_dead(&leases_dir, theirs).unwrap());
    let mut listed = leases(&leases_dir).unwrap();
    listed.sort();
    let mut both = [ours, theirs];
    both.sort();
    assert_eq!(listed, both);
    process.kill();
    assert!(!is_alive(&leases_dir, theirs).unwrap());
    assert!(path(theirs).exists());
    assert!(remove_dead(&leases_dir, theirs).unwrap());
    assert!(!path(theirs).exists());

    drop(lease);
    assert_eq!(leases(&leases_dir).unwrap(), []);
    assert!(!is_alive(&leases_dir, ours).unwrap() && !path(ours).exists());
}

#[test]
fn a_lease_whose_file_is_taken_away_says_so_and_spares_the_next_file_of_that_name() {
    let (place, leases_dir) = scratch();
    let id = OperationId::random();
    let path = place.path().join(id.to_string());
    let lease = Lease::create(&leases_dir, id).unwrap();
    fs::remove_file(&path).unwrap();
    assert!(!lease.still_holds().unwrap());
    fs::write(&path, "").unwrap();
    assert!(!lease.still_holds().unwrap());
    drop(lease);
    assert!(path.exists());
}

#[test]
fn reapers_never_take_a_lease_that_was_created() {
    let (_place, leases_dir) = scratch();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    for id in leases(&leases_dir).unwrap() {
                        let _gone = remove_dead(&leases_dir, id).unwrap();
                    }
                }
            });
        }
        let outcome = std::panic::catch_unwind(|| {
            for _ in 0..2_000 {
                let id = OperationId::random();
                let lease = Lease::create(&leases_dir, id).unwrap();
                assert!(is_alive(&leases_dir, id).unwrap());
                assert!(lease.still_holds().unwrap());
            }
        });
        stop.store(true, Ordering::Relaxed);
        outcome.unwrap();
    });
    assert_eq!(leases(&leases_dir).unwrap(), []);
}

#[test]
fn only_a_regular_file_within_the_bound_is_read() {
    let (place, _dir) = scratch();
    let path = |name: &str| place.path().join(name);
    fs::write(path("file"), "12345").unwrap();
    symlink("file", path("link")).unwrap();
    fs::create_dir(path("dir")).unwrap();
    run("mkfifo", &[path("fifo").to_str().unwrap()]);
    let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();

    assert_eq!(read_small(&path("file"), 5).unwrap().unwrap(), b"12345");
    assert_eq!(read_small(&path("gone"), 5).unwrap(), None);
    assert!(read_small(&path("file"), 4).unwrap_err().class() == crate::ErrorClass::Failed);
    for name in ["link", "dir", "fifo", "socket"] {
        let kind = error_kind(read_small(&path(name), 5));
        assert_eq!(kind, std::io::ErrorKind::InvalidData, "{name}");
    }
    // Says that it is empty and is not.
    let version = read_small(Path::new("/proc/version"), 4096).unwrap().unwrap();
    assert_eq!(version, fs::read("/proc/version").unwrap());
    let error = read_small(Path::new("/proc/version"), 3);
    assert_eq!(error_kind(error), std::io::ErrorKind::InvalidData);
}

#[test]
fn a_file_is_made_whole_or_not_at_all() {
    let (place, dir) = scratch();
    dir.make_dir(b"tmp", Mode::from_st_mode(0o700)).unwrap();
    let tmp = dir.open_child(b"tmp").unwrap();
    let read = || fs::read_to_string(place.path().join("name")).unwrap();

    assert_eq!(create_durably(&dir, b"name", b"first", &tmp).unwrap(), Created::Done);
    assert_eq!(create_durably(&dir, b"name", b"second", &tmp).unwrap(), Created::Exists);
    assert_eq!(read(), "first");
    replace_durably(&dir, b"name", b"third", &tmp).unwrap();
    assert_eq!(read(), "third");
    // Neither a symlink nor what it leads to is written through.
    fs::write(place.path().join("target"), "mine").unwrap();
    fs::remove_file(place.path().join("name")).unwrap();
    symlink("target", place.path().join("name")).unwrap();
    assert_eq!(create_durably(&dir, b"name", b"x", &tmp).unwrap(), Created::Exists);
    replace_durably(&dir, b"name", b"fourth", &tmp).unwrap();
    assert_eq!(
        (read(), fs::read(place.path().join("target")).unwrap()),
        ("fourth".into(), b"mine".to_vec())
    );
    // A directory in the way is an error, and no temporary is left.
    fs::create_dir(place.path().join("full")).unwrap();
    assert!(replace_durably(&dir, b"full", b"x", &tmp).is_err());
    assert_eq!(tmp.names().unwrap(), Vec::<Vec<u8>>::new());

    assert!(remove_durably(&dir, b"name").unwrap());
    assert!(!remove_durably(&dir, b"name").unwrap());
    assert_eq!(dir.stat(b"name").unwrap(), None);
}

#[test]
fn a_write_that_took_less_than_it_said_is_an_error() {
    let (_place, dir) = scratch();
    let mut file = dir.create_file(b"file").unwrap();
    file.write_all(b"abc").unwrap();
    assert!(check_size(&file, 3, Path::new("file")).is_ok());
    for wrong in [2, 4] {
        assert_eq!(
            error_kind(check_size(&file, wrong, Path::new("file"))),
            std::io::ErrorKind::InvalidData
        );
    }
}

#[test]
fn lines_of_many_writers_are_whole_and_a_torn_one_stays_alone() {
    let (place, _dir) = scratch();
    let path = place.path().join("lines");
    thread::scope(|scope| {
        for writer in 0..4 {
            let path = &path;
            scope.spawn(move || {
                for line in 0..25 {
                    append_line(path, format!("{writer} {line}").as_bytes()).unwrap();
                }
            });
        }
    });
    let text = fs::read_to_string(&path).unwrap();
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    lines.dedup();
    assert!(text.ends_with('\n') && lines.len() == 100);
    assert!(lines.iter().all(|line| line.split(' ').count() == 2));

    fs::write(&path, "whole\nto").unwrap();
    append_line(&path, b"next").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "whole\nto\nnext\n");
    assert!(append_line(&path, b"a\nb").is_err());
    assert_eq!(fs::read_to_string(&path).unwrap(), "whole\nto\nnext\n");
}

#[test]
fn a_sync_of_few_opens_each_and_a_sync_of_many_none() {
    let (_place, dir) = scratch();
    let file = dir.create_file(b"file").unwrap();
    sync_all(&dir, &[]).unwrap();
    sync_all(&dir, &[ToSync::Open(&file, &dir, b"file")]).unwrap();
    let mut items = vec![ToSync::Named(&dir, b"file"); limits::SYNC_EACH_MAX - 1];
    sync_all(&dir, &items).unwrap();
    // A name that is not there shows which way was taken.
    items.push(ToSync::Named(&dir, b"gone"));
    assert_eq!(error_kind(sync_all(&dir, &items)), std::io::ErrorKind::NotFound);
    items.push(ToSync::Named(&dir, b"file"));
    assert_eq!(sync_all(&dir, &items).is_ok(), file_system(&dir).unwrap().syncs_whole);
}

#[test]
fn releases_of_the_kernel_are_compared_by_number() {
    for (release, answer) in [
        ("5.8.0-1-amd64\n", true),
        ("5.10", true),
        ("6.1.0", true),
        ("5.7.19", false),
        ("4.19.0", false),
        ("", false),
    ] {
        assert_eq!(is_release_at_least(release, (5, 8)), answer, "{release}");
    }
}

#[test]
fn the_system_is_asked_right() {
    let (place, dir) = scratch();
    let said = Command::new("stat").args(["-f", "-c", "%t"]).arg(place.path()).output().unwrap();
    let number = i128::from_str_radix(String::from_utf8(said.stdout).unwrap().trim(), 16).unwrap();
    assert_eq!(file_system(&dir).unwrap(), by_number(number));
    assert_eq!(by_number(0xef53).stamp_granularity, limits::STAMP_GRANULARITY_KNOWN);
    // vfat is local, and its stamps are two seconds apart.
    assert_eq!(by_number(0x4d44).stamp_granularity, limits::STAMP_GRANULARITY_UNKNOWN);
    assert!(by_number(0x4d44).is_local && !by_number(0x6969).is_local);

    let said =
        Command::new("df").args(["-B1", "--output=avail"]).arg(place.path()).output().unwrap();
    let text = String::from_utf8(said.stdout).unwrap();
    let said: u64 = text.lines().nth(1).unwrap().trim().parse().unwrap();
    let ours = available_bytes(&dir).unwrap();
    assert!(ours.abs_diff(said) < 1 << 30, "{ours} and {said}");

    let before = coarse_now_ns();
    drop(File::create(place.path().join("now")).unwrap());
    let stamp = dir.stat(b"now").unwrap().unwrap().mtime_ns;
    assert!(before <= stamp && stamp - before < 10_000_000_000);

    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    assert_eq!(uuid::Uuid::from_bytes(boot_id()).to_string(), boot.trim());
    let known = fs::read("/etc/machine-id").is_ok_and(|id| id.len() > 30);
    assert_eq!(machine_id() != [0; 16], known);
    assert_eq!(machine_id(), machine_id());
}

#[test]
fn a_temporary_file_goes_only_when_it_is_old_and_nobody_writes_it() {
    let place = tempfile::tempdir().unwrap();
    let tmp = Dir::open(place.path()).unwrap();
    let old = crate::clock::Timestamp::now().as_ns() - 120_000_000_000;
    for name in ["young", "written", "left"] {
        fs::write(place.path().join(name), name).unwrap();
    }
    for name in ["made", "empty"] {
        fs::create_dir(place.path().join(name)).unwrap();
        tmp.set_mtime(name.as_bytes(), old).unwrap();
    }
    let made = File::open(place.path().join("made")).unwrap();
    made.lock().unwrap();
    let written = File::open(place.path().join("written")).unwrap();
    written.lock().unwrap();
    tmp.set_mtime(b"written", old).unwrap();
    tmp.set_mtime(b"left", old).unwrap();
    let removed = |name: &str| remove_abandoned(&tmp, name.as_bytes()).unwrap();
    assert_eq!(["young", "written", "left", "nowhere"].map(removed), [false, false, true, false]);
    assert!(place.path().join("written").exists() && !place.path().join("left").exists());
    assert_eq!(["made", "empty"].map(removed), [false, true]);
    assert!(place.path().join("made").exists() && !place.path().join("empty").exists());
}

#[test]
fn a_name_leads_to_a_file_only_while_it_is_that_file_s() {
    let place = tempfile::tempdir().unwrap();
    let dir = Dir::open(place.path()).unwrap();
    let file = dir.create_file(b"temporary").unwrap();
    assert!(leads_to(&dir, b"temporary", &file).unwrap());
    dir.try_unlink(b"temporary").unwrap();
    assert!(!leads_to(&dir, b"temporary", &file).unwrap());
    fs::write(place.path().join("temporary"), "another").unwrap();
    assert!(!leads_to(&dir, b"temporary", &file).unwrap());
}

#[test]
fn only_what_is_mounted_below_the_root_counts() {
    let mountinfo = b"22 1 254:0 / / rw shared:1 - ext4 /dev/root rw\n\
        30 22 254:0 /x /w/of\\040one/m rw - ext4 /dev/root rw\n\
        31 22 0:30 / /w/of\\040one/d/back\\134slash\\012 rw - tmpfs none rw\n\
        32 22 0:31 / /w/of\\040one rw - tmpfs none rw\n\
        33 22 0:32 / /w/of\\040onemore rw - tmpfs none rw\n\
        34 22 0:33 / /w rw - tmpfs none rw\n\n";
    let found = mounts_in(mountinfo, Path::new("/w/of one"));
    let expected = [b"m".as_slice(), b"d/back\\slash\n"];
    assert_eq!(found, expected.map(|path| RelPath::new(path).unwrap()));
}

#[test]
fn an_extent_counts_what_is_below_however_deep_and_leads_nowhere_else() {
    let home = TempDir::new().unwrap();
    let dir = Dir::open(home.path()).unwrap();
    let top = home.path().join("top");
    // Deeper than files may be open at once.
    let mut deepest = top.clone();
    deepest.extend(std::iter::repeat_n("d", 1500));
    fs::create_dir_all(&deepest).unwrap();
    fs::write(deepest.join("file"), "x").unwrap();
    symlink(home.path(), top.join("link")).unwrap();
    assert_eq!(extent(&dir, b"top").unwrap().files, 2);
    assert_eq!(extent(&dir, b"none").unwrap(), Extent::default());
    // What takes the rest away goes into each directory from the one above.
    fs::remove_file(deepest.join("file")).unwrap();
    while deepest != top {
        fs::remove_dir(&deepest).unwrap();
        deepest.pop();
    }
}
