//! The oracle is git where git decides, and the file system elsewhere.

mod again;
mod known;
mod names;
mod races;
mod rules;
mod scope;
mod tracked;

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use super::*;
use crate::manifest::EntryKind;
use crate::settings::NamePatterns;

/// A directory of a test's own, gone with it, and how to walk it.
struct Case {
    _guard: tempfile::TempDir,
    path: PathBuf,
    settings: ScopeSettings,
    options: WalkOptions,
}

impl Case {
    fn new() -> Self {
        let guard = tempfile::tempdir().unwrap();
        let path = guard.path().canonicalize().unwrap();
        let options = WalkOptions { threads: 2, ..WalkOptions::default() };
        Self { _guard: guard, path, settings: ScopeSettings::default(), options }
    }

    /// With a repository at the top that has no commit.
    fn repository() -> Self {
        let case = Self::new();
        git(&case.path, &["init", "-q"]);
        case
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> &Self {
        let path = self.path.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        self
    }

    fn write_all(&self, names: &[&str]) -> &Self {
        for name in names {
            self.write(name, name);
        }
        self
    }

    fn walk(&self) -> Walked {
        self.walk_at("")
    }

    /// Walks a directory of the case as a workspace of its own, and again by what that walk saw, which
    /// has to come to the same.
    fn walk_at(&self, below: &str) -> Walked {
        let walked = self.walk_once(below, None).unwrap();
        let known = known(&walked, None);
        for detail in [Detail::All, Detail::Changes] {
            if let Some(again) = self.walk_by(below, Some(&known), detail) {
                assert_same(again, &known, detail, &walked);
            }
        }
        walked
    }

    fn walk_once(&self, below: &str, known: Option<&KnownTree>) -> Option<Walked> {
        self.walk_by(below, known, Detail::All).inspect(check)
    }

    /// Walks anew, or by what is known if that is of use.
    fn walk_by(&self, below: &str, known: Option<&KnownTree>, detail: Detail) -> Option<Walked> {
        self.walk_in(&self.place(below), known, detail, &())
    }

    fn walk_watched(
        &self,
        known: Option<&KnownTree>,
        detail: Detail,
        monitor: &dyn Monitor,
    ) -> Option<Walked> {
        self.walk_in(&self.path, known, detail, monitor)
    }

    fn walk_in(
        &self,
        path: &Path,
        known: Option<&KnownTree>,
        detail: Detail,
        monitor: &dyn Monitor,
    ) -> Option<Walked> {
        let root = Dir::open(path).unwrap();
        let options = WalkOptions { detail, ..self.options.clone() };
        let attempt = Attempt::new(&root, path, &self.settings, &options, monitor).unwrap();
        match known {
            None => Some(attempt.anew().unwrap()),
            Some(known) => attempt.by_known(known).unwrap(),
        }
    }

    fn try_walk_at(&self, below: &str, monitor: &dyn Monitor) -> Result<Walked> {
        let path = self.place(below);
        let root = Dir::open(&path)?;
        walk(&root, &path, &self.settings, &self.options, None, monitor)
    }

    fn place(&self, below: &str) -> PathBuf {
        match below {
            "" => self.path.clone(),
            below => self.path.join(below),
        }
    }

    /// Walks, and gives the next walk what this one has to say to it.
    fn walk_on(&mut self) -> Walked {
        let walked = self.walk();
        self.options.tracked = walked.tracked_cache.clone();
        walked
    }
}

/// What a capture would keep of a walk that began at this time by the clock of stamps; without a time,
/// of one of a tree that has not changed for long.
fn known(walked: &Walked, start_ns: Option<i64>) -> KnownTree {
    let granularity_ns = i64::try_from(limits::STAMP_GRANULARITY_KNOWN.as_nanos()).unwrap();
    let are_racy =
        |stamps: &Stamps| start_ns.is_some_and(|start| stamps.are_racy(start, granularity_ns));
    let entry = |observed: &Observed| {
        let stat = observed.stat;
        let kind = match observed.what.clone() {
            What::File => {
                let hash = crate::hash::BlobHash::of(b"");
                EntryKind::File { size: stat.size, mtime_ns: stat.mtime_ns, hash, unstable: false }
            }
            What::Symlink { target } => EntryKind::Symlink { target },
            What::Dir { listed } => EntryKind::Dir { listed },
            What::Omitted { reason, rest } => EntryKind::Omitted { reason, rest },
        };
        let stamps = Stamps::of(&stat);
        let entry = crate::manifest::Entry { path: observed.path.clone(), mode: stat.mode, kind };
        CachedEntry { entry, stamps, racy: are_racy(&stamps) }
    };
    let mut rules = walked.rules.clone();
    for file in rules.iter_mut().flat_map(|rules| &mut rules.ignore_files) {
        file.racy = are_racy(&file.stamps);
    }
    KnownTree { entries: walked.observations.iter().map(entry).collect(), rules, remainder: None }
}

/// Asserts that two walks of one tree, which did not change between them, came to the same; the first
/// was by what is known.
#[track_caller]
fn assert_same(mut again: Walked, known: &KnownTree, detail: Detail, walked: &Walked) {
    // Of what is as it was the fields that matter are told.
    let told = |observed: &Observed| match observed.what {
        What::Omitted { .. } => (observed.path.clone(), Stamps::default(), observed.stat.mode),
        _ => (observed.path.clone(), Stamps::of(&observed.stat), observed.stat.mode),
    };
    if detail == Detail::All {
        assert_eq!(again.observations, walked.observations);
    }
    let kept = known.entries.iter().zip(std::mem::take(&mut again.kept));
    let kept = kept.filter(|(_, is_kept)| *is_kept);
    again.observations.extend(kept.map(|(known, _)| Observed::as_known(known)));
    graft::sort(&mut again.observations);
    check(&again);
    assert_eq!(lines(&again), lines(walked));
    let all_told = |walked: &Walked| walked.observations.iter().map(told).collect::<Vec<_>>();
    assert_eq!(all_told(&again), all_told(walked));
    assert_eq!(again.ignore_files, walked.ignore_files);
    assert_eq!(
        again.rules.as_ref().map(|rules| &rules.ignore_files),
        walked.rules.as_ref().map(|rules| &rules.ignore_files)
    );
    assert_eq!(again.ignore_digest, walked.ignore_digest);
    assert_eq!(again.nested_repositories, walked.nested_repositories);
    assert_eq!(again.tracked, walked.tracked);
    assert_eq!(lists(&again.tracked_cache), lists(&walked.tracked_cache));
    assert_eq!(again.unfinished, walked.unfinished);
    assert_eq!(again.rules, walked.rules);
}

/// What is remembered of git's answers, without the stamps of its indexes, which are kept only once
/// they are old enough.
fn lists(cache: &TrackedCache) -> serde_json::Value {
    let mut value = serde_json::to_value(cache).unwrap();
    for known in value["repositories"].as_array_mut().unwrap() {
        known.as_object_mut().unwrap().remove("stamp").unwrap();
    }
    value
}

/// What every walk's result has to keep.
#[track_caller]
fn check(walked: &Walked) {
    let observations = &walked.observations;
    assert!(observations[0].path.is_root());
    for pair in observations.windows(2) {
        assert!(pair[0].path < pair[1].path, "{:?} {:?}", pair[0].path, pair[1].path);
    }
    for observed in &observations[1..] {
        let parent = observed.path.parent().unwrap();
        let parent = walked.find(&parent).unwrap_or_else(|| panic!("{:?}", observed.path));
        assert!(matches!(parent.what, What::Dir { .. }), "{:?}", observed.path);
    }
}

/// One line for each path but the root: what it is, and its name.
fn lines(walked: &Walked) -> Vec<String> {
    walked.observations[1..].iter().map(line).collect()
}

fn line(observed: &Observed) -> String {
    let path = &observed.path;
    match &observed.what {
        What::File => format!("file {path}"),
        What::Symlink { target } => {
            format!("symlink {path} -> {}", crate::path::printable(target))
        }
        What::Dir { listed: Listed::Whole } => format!("dir {path}"),
        What::Dir { listed: Listed::Partial } => format!("partial {path}"),
        What::Omitted { reason, rest: 0 } => format!("{reason} {path}"),
        What::Omitted { reason, rest } => format!("{reason} {path} and {rest}"),
    }
}

#[track_caller]
fn assert_lines(walked: &Walked, expected: &[&str]) {
    assert_eq!(lines(walked), expected);
}

fn path(text: &str) -> RelPath {
    RelPath::new(text.as_bytes()).unwrap()
}

fn what<'a>(walked: &'a Walked, name: &str) -> &'a What {
    &walked.find(&path(name)).unwrap_or_else(|| panic!("{name} was not observed")).what
}

fn omitted(reason: OmitReason) -> What {
    What::Omitted { reason, rest: 0 }
}

fn git_command(directory: &Path) -> Command {
    let mut command = Command::new("git");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_bytes().starts_with(b"GIT_")) {
        command.env_remove(name);
    }
    command
        .args(["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false"])
        .args(["-c", "init.defaultBranch=main", "-c", "protocol.file.allow=always"])
        .args(["-c", "core.quotePath=false", "-c", "advice.addIgnoredFile=false"])
        .current_dir(directory)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1");
    command
}

fn git(directory: &Path, arguments: &[&str]) -> String {
    let output = git_command(directory).args(arguments).output().unwrap();
    assert!(output.status.success(), "git {arguments:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn commit_all(directory: &Path) {
    git(directory, &["add", "-A"]);
    git(directory, &["commit", "-q", "--allow-empty", "-m", "all"]);
}

/// Runs the test `name` again in a process of its own, for what cannot be set for one thread: the
/// environment, the user. The child finds `TURNPOINT_TEST_CHILD` set to `place`.
fn run_in_child(name: &str, place: &Path, prepare: impl FnOnce(&mut Command)) {
    run_in_child_by(Command::new(std::env::current_exe().unwrap()), name, place, prepare);
}

fn run_in_child_by(
    mut command: Command,
    name: &str,
    place: &Path,
    prepare: impl FnOnce(&mut Command),
) {
    command.args(["--exact", name, "--nocapture"]).env("TURNPOINT_TEST_CHILD", place);
    prepare(&mut command);
    let child = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && said.contains("1 passed"), "{child:?}");
}

fn place_of_child() -> Option<PathBuf> {
    std::env::var_os("TURNPOINT_TEST_CHILD").map(PathBuf::from)
}

/// Keeps what is told.
#[derive(Default)]
struct Recorder {
    notices: Mutex<Vec<Notice>>,
}

impl Monitor for Recorder {
    fn notice(&self, notice: &Notice) {
        self.notices.lock().unwrap().push(notice.clone());
    }
}

/// Makes directories below each other, by handles, so that no bound of the kernel is in the way.
fn deep(root: &Path, name: &[u8], levels: usize) -> Dir {
    let mut dir = Dir::open(root).unwrap();
    for _ in 0..levels {
        dir.make_dir(name, crate::manifest::Mode::from_st_mode(0o755)).unwrap();
        dir = dir.open_child(name).unwrap();
    }
    dir
}

/// The standard library holds a handle for each level while it removes; `rm` does not.
fn remove_deep(path: &Path) {
    assert!(Command::new("rm").arg("-rf").arg(path).status().unwrap().success());
}
