//! A restore or undo whose process is killed: at each point at which it tells its progress, and at
//! any moment. The next command completes it, or nothing has changed.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use turnpoint::id::CheckpointId;
use turnpoint::{CaptureOptions, Error, Monitor, Notice, Phase, RestoreOptions, Store};

use crate::place::{Place, Told};
use crate::support::corpus::Random;
use crate::support::fingerprint::{self, Fingerprint, Kind};
use crate::support::tree::{self, dir, executable, file, link};

const KILLED: i32 = 9;

/// Where a process dies: after so many calls of its monitor.
#[derive(Debug, Clone, Copy)]
enum Dies {
    Never,
    After(u64),
    /// Counted from where it begins to change the workspace.
    Applying(u64),
}

impl Dies {
    /// The next point: one after the other up to the first change, and then from there.
    fn next(self, found: Left) -> Self {
        match self {
            Self::Never => Self::Never,
            Self::After(_) if found == Left::Applying => Self::Applying(0),
            Self::After(calls) => Self::After(calls + 1),
            Self::Applying(calls) => Self::Applying(calls + 1),
        }
    }
}

/// Ends the process at one of the points at which an operation calls its monitor.
struct Dying {
    after: u64,
    only_applying: bool,
    is_applying: AtomicBool,
    calls: AtomicU64,
}

impl Dying {
    fn count(&self) {
        if self.only_applying && !self.is_applying.load(Ordering::Relaxed) {
            return;
        }
        if self.calls.fetch_add(1, Ordering::Relaxed) == self.after {
            let own = rustix::process::getpid();
            rustix::process::kill_process(own, rustix::process::Signal::KILL).unwrap();
        }
    }
}

impl Monitor for Dying {
    fn phase(&self, phase: Phase, _: Option<u64>) {
        self.is_applying.fetch_or(phase == Phase::Apply, Ordering::Relaxed);
        self.count();
    }

    fn advanced(&self, _: u64, _: u64) {
        self.count();
    }

    fn is_cancelled(&self) -> bool {
        self.count();
        false
    }
}

/// The child process: restores or undoes, and dies when it is told to. In the test process itself
/// there is nothing to do.
#[test]
fn child() {
    let Ok(home) = std::env::var("TURNPOINT_CHILD_HOME") else { return };
    let root = std::env::var("TURNPOINT_CHILD_ROOT").unwrap();
    let dies = std::env::var("TURNPOINT_CHILD_DIES").unwrap();
    let (only_applying, after) = match dies.strip_prefix("applying ") {
        Some(after) => (true, after),
        None => (false, &*dies),
    };
    let monitor = Dying {
        after: after.parse().unwrap(),
        only_applying,
        is_applying: AtomicBool::new(false),
        calls: AtomicU64::new(0),
    };
    let store = Store::at(Path::new(&home));
    let options = RestoreOptions::default();
    let outcome = match std::env::var("TURNPOINT_CHILD_RESTORES") {
        Err(_) => store.undo(Path::new(&root), &options, &monitor).unwrap(),
        Ok(text) => {
            let id = checkpoint(&text);
            store.restore(Path::new(&root), &id, &options, &monitor).unwrap()
        }
    };
    assert_eq!(outcome.left, []);
}

fn checkpoint(text: &str) -> CheckpointId {
    let (session, seq) = text.rsplit_once(':').unwrap();
    let seq = turnpoint::id::Seq::new(seq.parse().unwrap()).unwrap();
    CheckpointId { session: session.parse().unwrap(), seq }
}

/// Starts the child; without a checkpoint it undoes.
fn start(place: &Place, restores: Option<&CheckpointId>, dies: Dies) -> Child {
    let dies = match dies {
        Dies::Never => u64::MAX.to_string(),
        Dies::After(calls) => calls.to_string(),
        Dies::Applying(calls) => format!("applying {calls}"),
    };
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "interrupted::child", "--test-threads=1"])
        .env("TURNPOINT_CHILD_HOME", place.home())
        .env("TURNPOINT_CHILD_ROOT", place.root())
        .env("TURNPOINT_CHILD_DIES", dies)
        .env_remove("TURNPOINT_CHILD_RESTORES")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if let Some(id) = restores {
        command.env("TURNPOINT_CHILD_RESTORES", id.to_string());
    }
    command.spawn().unwrap()
}

/// Runs the child to its end. Returns whether it was killed.
fn run(place: &Place, restores: Option<&CheckpointId>, dies: Dies) -> bool {
    let status = start(place, restores, dies).wait().unwrap();
    assert!(status.success() || status.signal() == Some(KILLED), "{status}");
    !status.success()
}

/// What a kill left open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    Nothing,
    Staging,
    Applying,
}

fn left(place: &Place) -> Left {
    let journals = place.store().root().join("journal");
    let mut files = fs::read_dir(journals).unwrap().map(|file| file.unwrap().path());
    let Some(journal) = files.next() else { return Left::Nothing };
    let journal: serde_json::Value = serde_json::from_slice(&fs::read(journal).unwrap()).unwrap();
    match journal["phase"].as_str().unwrap() {
        "staging" => Left::Staging,
        "applying" => Left::Applying,
        other => panic!("{other}"),
    }
}

/// A workspace between two states that differ in every way.
struct Between {
    place: Place,
    first: CheckpointId,
    at_first: Fingerprint,
    at_second: Fingerprint,
}

impl Between {
    fn new() -> Self {
        let place = Place::new();
        let root = place.root();
        tree::build(
            root,
            [
                ("same", file("the same")),
                ("changed", file("first")),
                ("mode", executable("mode")),
                ("to-dir", file("was a file")),
                ("to-file/in/side", file("was in a directory")),
                ("to-link/in", file("was in a directory")),
                ("link", link("first")),
                ("gone/deep/er", file("first")),
                ("empty", dir()),
                ("pair/a", file("pair")),
                ("out.log", file("first")),
            ],
        );
        fs::hard_link(root.join("pair/a"), root.join("pair/b")).unwrap();
        let first = place.capture();
        // The captures of a test would push it out.
        place.store().pin(&first, None, &()).unwrap();
        let at_first = place.look();
        for name in ["to-file", "to-link", "gone"] {
            fs::remove_dir_all(root.join(name)).unwrap();
        }
        for name in ["mode", "to-dir", "empty"] {
            fs::remove_file(root.join(name)).or_else(|_| fs::remove_dir(root.join(name))).unwrap();
        }
        fs::write(root.join("pair/a"), "other").unwrap();
        tree::build(
            root,
            [
                ("changed", file("second")),
                ("mode", file("mode")),
                ("to-dir/in/side", file("now in a directory")),
                ("to-file", file("now a file")),
                ("to-link", link("same")),
                ("link", link("second")),
                ("new/deep/er", file("second")),
                ("new-empty", dir()),
                ("out.log", file("precious, and ignored by now")),
                (".gitignore", file("*.log\n")),
                (".env", file("KEY=1")),
            ],
        );
        fs::hard_link(root.join("new/deep/er"), root.join("new/other")).unwrap();
        let at_second = place.look();
        Self { place, first, at_first, at_second }
    }

    /// Between the two states a file is one or the other, and what is in neither is not there.
    #[track_caller]
    fn assert_nothing_is_torn(&self) {
        let state = |tree: &Fingerprint, path: &Path| tree.get(path).map(|node| node.kind.clone());
        for (path, node) in self.place.look() {
            if path.starts_with(".turnpoint") || node.kind == Kind::Dir {
                continue;
            }
            let kind = Some(node.kind);
            let is_whole =
                kind == state(&self.at_first, &path) || kind == state(&self.at_second, &path);
            assert!(is_whole, "{}: {kind:?}", path.display());
        }
    }

    /// As the first checkpoint, with what it never held.
    fn restored(&self) -> Fingerprint {
        let mut expected = self.at_first.clone();
        expected.insert(".env".into(), self.at_second[Path::new(".env")].clone());
        expected
    }

    /// Brings the workspace back to the second state and makes sure that nothing is left over.
    #[track_caller]
    fn take_back(&self, what: Left) {
        let now = self.place.look();
        if what == Left::Applying {
            fingerprint::assert_same(&self.restored(), &now);
            let undone = self.place.undo();
            assert_eq!(undone.left, []);
            fingerprint::assert_same(&self.at_second, &self.place.look());
        } else {
            fingerprint::assert_same(&self.at_second, &now);
        }
        assert_eq!(left(&self.place), Left::Nothing);
    }
}

fn capture(place: &Place) -> Vec<Notice> {
    let told = Told::default();
    let mut options = CaptureOptions::default();
    options.if_changed = true;
    let outcome = place.store().capture(place.root(), &options, &told).unwrap();
    assert!(outcome.complete);
    told.notices()
}

#[test]
fn a_restore_killed_at_any_point_is_completed_or_has_changed_nothing() {
    let between = Between::new();
    let place = &between.place;
    let (mut staging, mut applying) = (0, 0);
    let mut dies = Dies::After(0);
    while run(place, Some(&between.first), dies) {
        let what = left(place);
        dies = dies.next(what);
        between.assert_nothing_is_torn();
        if what != Left::Applying {
            let visible = fingerprint::without(&place.look(), &[".turnpoint"]);
            fingerprint::assert_same(&between.at_second, &visible);
        }
        let notices = capture(place);
        let completed = |notice: &Notice| matches!(notice, Notice::RestoreCompleted { .. });
        assert_eq!(notices.contains(&Notice::RestoreDiscarded), what == Left::Staging);
        assert_eq!(notices.iter().any(completed), what == Left::Applying);
        staging += u32::from(what == Left::Staging);
        applying += u32::from(what == Left::Applying);
        between.take_back(what);
    }
    assert!(staging > 10 && applying > 10, "{staging} and {applying}");
    between.take_back(Left::Applying);
    place.verify_clean();
}

#[test]
fn an_undo_killed_at_any_point_is_completed_or_can_be_done_again() {
    let between = Between::new();
    let place = &between.place;
    // An earlier restore, which no undo below may come to.
    tree::build(place.root(), [("early", file("early"))]);
    let early = place.capture();
    fs::write(place.root().join("early"), "later").unwrap();
    place.go_back(&early);
    let at_second = place.look();
    assert_eq!(place.restore(&between.first).left, []);
    let restored = place.look();
    let mut dies = Dies::After(0);
    while run(place, None, dies) {
        let what = left(place);
        dies = dies.next(what);
        capture(place);
        if what == Left::Applying {
            fingerprint::assert_same(&at_second, &place.look());
            assert_eq!(place.restore(&between.first).left, []);
        }
        fingerprint::assert_same(&restored, &place.look());
    }
    fingerprint::assert_same(&at_second, &place.look());
    assert_eq!(place.undo().left, []);
    assert_eq!(fs::read(place.root().join("early")).unwrap(), b"later");
}

#[test]
fn an_interrupted_restore_that_is_given_up_can_be_undone() {
    let between = Between::new();
    let place = &between.place;
    let options = RestoreOptions::default();
    let mut given_up = 0;
    let mut dies = Dies::After(0);
    while run(place, Some(&between.first), dies) {
        let what = left(place);
        dies = dies.next(what);
        let aborted = place.store().abort_restore(place.root(), &options, &());
        match what {
            Left::Nothing => {
                assert!(matches!(aborted, Err(Error::NoOpenRestore { .. })), "{aborted:?}");
            }
            Left::Staging => assert_eq!(aborted.unwrap().remarks, [""; 0]),
            Left::Applying => {
                assert_eq!(aborted.unwrap().remarks, [""; 0]);
                between.assert_nothing_is_torn();
                assert!(!place.root().join(".turnpoint").exists());
                assert_eq!(place.undo().left, []);
                given_up += 1;
            }
        }
        fingerprint::assert_same(&between.at_second, &place.look());
    }
    assert!(given_up > 10, "{given_up}");
}

#[test]
fn work_done_between_a_kill_and_the_completion_is_not_lost() {
    for step in [0, 1, 2, 4, 7, 10, 13, 16, 19] {
        let between = Between::new();
        let place = &between.place;
        assert!(run(place, Some(&between.first), Dies::Applying(step)));
        assert_eq!(left(place), Left::Applying);
        let mut work = Vec::new();
        for (number, (path, node)) in place.look().into_iter().enumerate() {
            let is_file = matches!(node.kind, Kind::File { .. });
            if is_file && !path.starts_with(".turnpoint") && number % 2 == 0 {
                let text = format!("work {number}");
                fs::write(place.root().join(&path), &text).unwrap();
                work.push(text.into_bytes());
            }
        }
        let mine = [("gone/deep/mine", file("mine")), ("to-link-", file("mine too"))];
        tree::build(place.root(), mine);
        work.extend([b"mine".to_vec(), b"mine too".to_vec()]);
        capture(place);
        let contents: Vec<Vec<u8>> = place
            .look()
            .into_iter()
            .filter(|(_, node)| matches!(node.kind, Kind::File { .. }))
            .map(|(path, _)| fs::read(place.root().join(path)).unwrap())
            .collect();
        for text in work {
            let shown = String::from_utf8_lossy(&text).into_owned();
            assert!(contents.contains(&text), "{shown} is lost (step {step})");
        }
        assert_eq!(left(place), Left::Nothing);
    }
}

#[test]
fn a_restore_killed_at_any_moment_is_completed_or_has_changed_nothing() {
    let place = Place::new();
    let many = |text: &str| {
        let one =
            |number: u32| (format!("d{}/f{number}", number % 7), file(format!("{text} {number}")));
        (0..200).map(one).collect::<Vec<_>>()
    };
    tree::build(place.root(), many("first"));
    let first = place.capture();
    let at_first = place.look();
    tree::build(place.root(), many("second"));
    tree::build(place.root(), [("new/x", file("x"))]);
    let second = place.capture();
    let at_second = place.look();

    let started = Instant::now();
    assert!(!run(&place, Some(&first), Dies::Never));
    // How long one takes; less where it has ended before it was killed.
    let mut whole = started.elapsed();
    let mut is_first = true;
    let mut random = Random::new(7);
    let mut killed = 0;
    let mut tries = 0;
    while killed < 12 {
        tries += 1;
        assert!(tries < 200, "of {tries} restores {killed} were killed");
        let target = if is_first { &second } else { &first };
        let mut process = start(&place, Some(target), Dies::Never);
        std::thread::sleep(whole.mul_f64(random.unit()));
        process.kill().unwrap();
        if process.wait().unwrap().success() {
            whole = whole.mul_f64(0.8);
        } else {
            killed += 1;
        }
        // What the killed process held is let go of when it is gone.
        let what = left(&place);
        capture(&place);
        let now = place.look();
        if now != at_first {
            fingerprint::assert_same(&at_second, &now);
        }
        if what == Left::Applying {
            assert_eq!(now == at_first, !is_first);
        }
        is_first = now == at_first;
    }
    place.verify_clean();
}

#[test]
fn a_restore_begun_in_another_directory_touches_nothing_here() {
    for phase in [Left::Staging, Left::Applying] {
        let between = Between::new();
        let place = &between.place;
        let mut dies = match phase {
            Left::Applying => Dies::Applying(3),
            _ => Dies::After(0),
        };
        while run(place, Some(&between.first), dies) && left(place) != phase {
            dies = dies.next(left(place));
            capture(place);
        }
        assert_eq!(left(place), phase);
        // Where the first directory was there is another one, which looks alike.
        let aside = place.home().join("aside");
        fs::rename(place.root(), &aside).unwrap();
        let copied = Command::new("cp").arg("-a").arg(&aside).arg(place.root()).status().unwrap();
        assert!(copied.success());
        drop(fs::remove_dir_all(place.root().join(".turnpoint")));
        fs::create_dir(place.root().join(".turnpoint")).unwrap();
        let before = place.look_closely();
        let options = RestoreOptions::default();
        let refused = place.store().restore(place.root(), &between.first, &options, &());
        assert!(matches!(refused, Err(Error::RestoreOpen { .. })), "{refused:?}");
        let told = Told::default();
        let options_of_capture = CaptureOptions::default();
        drop(place.store().capture(place.root(), &options_of_capture, &told).unwrap());
        let is_told = |notice: &Notice| matches!(notice, Notice::RestoreLeftOpen { .. });
        assert!(told.notices().iter().any(is_told), "{:?}", told.notices());
        fingerprint::assert_same(&before, &place.look_closely());
        let ended = place.store().abort_restore(place.root(), &options, &()).unwrap();
        assert_eq!(ended.remarks.len(), 1);
        fingerprint::assert_same(&before, &place.look_closely());
        assert_eq!(left(place), Left::Nothing);
    }
}
