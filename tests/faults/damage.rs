//! What is damaged in the store, one file and one way at a time.
//!
//! Every command runs as a user whom permissions stop. Whatever is damaged and however: nothing panics or
//! hangs; a file that says something is named by `verify`; what does not need it is listed and restored;
//! what needs it is restored right or not at all; a collection takes nothing that a checkpoint needs; and
//! when the file is put back, everything is as before.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::scene::BINARY;
use crate::support::fingerprint::{self, Fingerprint};
use crate::support::program::{Program, Run, run};

/// Nobody, on every Linux.
const USER: u32 = 65_534;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Truncate,
    Zero,
    Flip,
    FlipEnd,
    Delete,
    Directory,
    Symlink,
    Fifo,
    Unreadable,
}

const WAYS: [Way; 9] = [
    Way::Truncate,
    Way::Zero,
    Way::Flip,
    Way::FlipEnd,
    Way::Delete,
    Way::Directory,
    Way::Symlink,
    Way::Fifo,
    Way::Unreadable,
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    Content,
    Page,
    RootPage,
    Pack,
    Manifest,
    Pin,
    SessionFile,
    Index,
    Wal,
    Format,
    WorkspaceFile,
    StatCache,
    Lease,
    Log,
}

const TARGETS: [Target; 14] = [
    Target::Content,
    Target::Page,
    Target::RootPage,
    Target::Pack,
    Target::Manifest,
    Target::Pin,
    Target::SessionFile,
    Target::Index,
    Target::Wal,
    Target::Format,
    Target::WorkspaceFile,
    Target::StatCache,
    Target::Lease,
    Target::Log,
];

impl Target {
    /// Whether it says what nothing else says, so that its loss has to be told.
    fn is_truth(self) -> bool {
        !matches!(self, Self::Index | Self::Wal | Self::StatCache | Self::Lease | Self::Log)
    }

    /// Whether the checkpoint `s:1` cannot do without it. Nothing else needs any of them but the pack.
    fn concerns(self, checkpoint: &str) -> bool {
        match self {
            Self::Content | Self::Page | Self::RootPage | Self::Manifest => checkpoint == "s:1",
            Self::Pin => checkpoint == "s:1",
            Self::Pack => true,
            _ => false,
        }
    }
}

/// A store with a bit of everything, and what its checkpoints hold.
struct Store {
    program: Program,
    _readable: tempfile::TempDir,
    holds: BTreeMap<&'static str, Fingerprint>,
}

impl Store {
    fn new() -> Self {
        // The user may not be able to read where the tests were built.
        let readable = tempfile::Builder::new().prefix("turnpoint-binary-").tempdir().unwrap();
        let binary = readable.path().join("turnpoint");
        done(Command::new("cp").arg(BINARY).arg(&binary));
        fs::set_permissions(readable.path(), fs::Permissions::from_mode(0o755)).unwrap();
        // Copied and removed for each case, which is quicker in memory.
        let memory = Path::new("/dev/shm");
        let place = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let program = Program::below(binary.to_str().unwrap(), &place);
        let mut store = Self { program, _readable: readable, holds: BTreeMap::new() };
        Self::own(store.program.root());
        let work = store.program.workspace();
        for number in 0..120 {
            fs::write(work.join(format!("f{number:03}")), format!("{number} ").repeat(40)).unwrap();
        }
        store.capture("s:0");
        store.collect();
        assert_eq!(fs::read_dir(store.at("packs")).unwrap().count(), 1);
        for (seq, name) in [(1, "s:1"), (2, "s:2")] {
            fs::write(work.join("f050"), format!("edit {seq}")).unwrap();
            fs::write(work.join(format!("only-{seq}")), format!("only in {seq}")).unwrap();
            store.capture(name);
            fs::remove_file(work.join(format!("only-{seq}"))).unwrap();
        }
        store.run(&["label", "s:1", "a label given later"]).ok();
        store.run(&["capture", "--session", "r"]).ok();
        // Something is in the WAL, and a restore has written the log.
        store.run(&["restore", "s:2", "--yes", "--session", "s"]).ok();
        // As where a session was deleted and its numbers are remembered.
        fs::write(store.at("r/session.json"), r#"{"next_seq":9}"#).unwrap();
        fs::write(store.at("leases/0123456789abcdef0123456789abcdef"), "").unwrap();
        Self::own(&store.program.store());
        store
    }

    fn at(&self, name: &str) -> PathBuf {
        self.program.store().join(name)
    }

    fn own(place: &Path) {
        done(Command::new("chown").args(["-R", &format!("{USER}:{USER}")]).arg(place));
    }

    fn run(&self, arguments: &[&str]) -> Run {
        run(&mut self.command(arguments))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let user = [format!("--reuid={USER}"), format!("--regid={USER}")];
        let wrapper = ["setpriv", &user[0], &user[1], "--clear-groups"];
        self.program.under(&wrapper, arguments)
    }

    fn collect(&self) -> Run {
        run(self.command(&["gc"]).env("TURNPOINT_TEST_CLOCK_SHIFT_SECONDS", "3600"))
    }

    fn capture(&mut self, name: &'static str) {
        Self::own(&self.program.workspace());
        self.holds.insert(name, fingerprint::of(&self.program.workspace()));
        self.run(&["capture", "--session", "s"]).ok();
    }

    /// The page that `s:1` begins with, and the first of those below it that is a file of its own.
    fn pages(&self) -> (PathBuf, PathBuf) {
        let manifest: serde_json::Value =
            serde_json::from_slice(&fs::read(self.at("s/1.json")).unwrap()).unwrap();
        let root = self.blob(manifest["root"].as_str().unwrap());
        let mut zstd = Command::new("zstd");
        let text =
            zstd.args(["-dc"]).stdin(fs::File::open(&root).unwrap()).output().unwrap().stdout;
        let page: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let below = page["pages"].as_array().unwrap().iter();
        let mut below = below.map(|page| self.blob(page["hash"].as_str().unwrap()));
        (root, below.find(|page| page.exists()).unwrap())
    }

    fn blob(&self, hash: &str) -> PathBuf {
        self.at(&format!("blobs/{}/{hash}", hash.get(..2).unwrap()))
    }

    fn file_of(&self, target: Target) -> PathBuf {
        match target {
            Target::Content => self.blob(blake3::hash(b"only in 1").to_hex().as_str()),
            Target::Page => self.pages().1,
            Target::RootPage => self.pages().0,
            Target::Pack => fs::read_dir(self.at("packs")).unwrap().next().unwrap().unwrap().path(),
            Target::Manifest => self.at("s/1.json"),
            Target::Pin => self.at("s/1.pin"),
            Target::SessionFile => self.at("r/session.json"),
            Target::Index => self.at("index.db"),
            Target::Wal => self.at("index.db-wal"),
            Target::Format => self.at("format.json"),
            Target::WorkspaceFile => self.in_workspace("workspace.json"),
            Target::StatCache => self.in_workspace("stat-cache"),
            Target::Lease => self.at("leases/0123456789abcdef0123456789abcdef"),
            Target::Log => self.at("operations.jsonl"),
        }
    }

    fn in_workspace(&self, name: &str) -> PathBuf {
        let mut workspaces = fs::read_dir(self.at("workspaces")).unwrap();
        workspaces.next().unwrap().unwrap().path().join(name)
    }

    /// What `checkpoint` restores to; nothing where it was refused.
    fn restored(&self, checkpoint: &str, what: &str) -> Option<Fingerprint> {
        let into = self.program.root().join("into");
        let restored =
            self.run(&["restore", checkpoint, "--yes", "--into", into.to_str().unwrap()]);
        assert_ended(&restored, what);
        let found = (restored.code == 0).then(|| fingerprint::of(&into));
        drop(fs::remove_dir_all(&into));
        found
    }

    /// Every checkpoint that does not need the target is restored, and the others are right or refused.
    fn assert_restores(&self, concerned: impl Fn(&str) -> bool, what: &str) {
        for (&checkpoint, holds) in &self.holds {
            match self.restored(checkpoint, what) {
                Some(found) => {
                    let differ = fingerprint::differences(holds, &found);
                    assert!(differ.is_empty(), "{what}: {checkpoint} came back wrong:\n{differ}");
                }
                None => assert!(concerned(checkpoint), "{what}: {checkpoint} was not restored"),
            }
        }
    }
}

fn done(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[track_caller]
fn assert_ended(run: &Run, what: &str) {
    let said = format!("{}{}", run.stdout, run.stderr);
    let is_regular = matches!(run.code, 0..=5) && !said.contains("panicked");
    assert!(is_regular, "{what}: exit {}: {said}", run.code);
    assert!(
        run.code == 0 || !run.stderr.is_empty() || !run.stdout.is_empty(),
        "{what}: nothing said"
    );
}

/// Damages `file`; what was there is at `aside` afterwards.
fn damage(file: &Path, way: Way, aside: &Path) {
    done(Command::new("cp").arg("-a").arg(file).arg(aside));
    let length = fs::metadata(file).unwrap().len();
    let change = |at: u64, bytes: &[u8]| {
        let mut file = fs::File::options().write(true).open(file).unwrap();
        file.seek(SeekFrom::Start(at)).unwrap();
        file.write_all(bytes).unwrap();
    };
    let flip = |at: u64| {
        let byte = fs::read(file).unwrap()[usize::try_from(at).unwrap()];
        change(at, &[byte ^ 0x20]);
    };
    match way {
        Way::Truncate => {
            fs::File::options().write(true).open(file).unwrap().set_len(length / 2).unwrap();
        }
        Way::Zero => change(0, &vec![0; usize::try_from(length).unwrap()]),
        Way::Flip if length > 0 => flip(length / 2),
        Way::FlipEnd if length > 0 => flip(length - 1),
        Way::Flip | Way::FlipEnd => {}
        Way::Delete => fs::remove_file(file).unwrap(),
        Way::Directory => {
            fs::remove_file(file).unwrap();
            fs::create_dir(file).unwrap();
        }
        Way::Symlink => {
            // To the same content, elsewhere: it must not be taken for it.
            fs::remove_file(file).unwrap();
            symlink(aside, file).unwrap();
        }
        Way::Fifo => {
            fs::remove_file(file).unwrap();
            done(Command::new("mkfifo").arg(file));
        }
        Way::Unreadable => fs::set_permissions(file, fs::Permissions::from_mode(0o0)).unwrap(),
    }
    if way != Way::Delete {
        done(Command::new("chown").args(["-h", &format!("{USER}:{USER}")]).arg(file));
    }
}

fn put_back(file: &Path, aside: &Path) {
    if fs::symlink_metadata(file).is_ok_and(|stat| stat.is_dir()) {
        fs::remove_dir_all(file).unwrap();
    }
    drop(fs::remove_file(file));
    done(Command::new("mv").arg(aside).arg(file));
}

#[test]
fn whatever_is_damaged_of_what_is_held_is_named_and_nothing_else_is_lost() {
    damage_each(&TARGETS[..TARGETS.len() / 2]);
}

#[test]
fn whatever_is_damaged_of_what_is_known_is_named_and_nothing_is_lost() {
    damage_each(&TARGETS[TARGETS.len() / 2..]);
}

fn damage_each(targets: &[Target]) {
    let store = Store::new();
    let backup = store.program.root().join("backup");
    done(Command::new("cp").arg("-a").arg(store.program.store()).arg(&backup));
    let aside = store.program.root().join("aside");
    let mut failures = Vec::new();
    for &target in targets {
        for way in WAYS {
            let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                check(&store, target, way, &aside);
            }));
            if let Err(reason) = checked {
                let reason = reason.downcast_ref::<String>().cloned();
                failures.push(reason.unwrap_or_else(|| format!("{target:?} {way:?}")));
            }
            fs::remove_dir_all(store.program.store()).unwrap();
            drop(fs::remove_file(&aside));
            done(Command::new("cp").arg("-a").arg(&backup).arg(store.program.store()));
        }
    }
    assert!(failures.is_empty(), "{} cases:\n{}", failures.len(), failures.join("\n\n"));
}

fn check(store: &Store, target: Target, way: Way, aside: &Path) {
    let what = format!("{target:?}, {way:?}");
    let file = store.file_of(target);
    damage(&file, way, aside);
    let is_unchanged =
        fs::metadata(aside).unwrap().size() == 0 && matches!(way, Way::Flip | Way::FlipEnd);

    let listed = store.run(&["list", "--session", "s"]);
    assert_ended(&listed, &what);
    let verified = store.run(&["verify", "--read-data", "--json"]);
    assert_ended(&verified, &what);
    if target.is_truth() && !is_unchanged {
        let name = file.file_name().unwrap().to_str().unwrap();
        let is_named = verified.stdout.contains(name) || verified.stderr.contains(name);
        let said = format!("exit {}: {}{}", verified.code, verified.stdout, verified.stderr);
        // Of a pack that is gone only what was in it is known.
        let is_known = is_told(target, way);
        assert!(
            !is_known || is_named || (target, way) == (Target::Pack, Way::Delete),
            "{what}: {said}"
        );
        // Without the format nothing can be said.
        let is_closed = (target, way) == (Target::Format, Way::Unreadable);
        assert!(verified.code == 4 || !is_known || is_closed, "{what}: {said}");
    }
    store.assert_restores(
        |checkpoint| target.concerns(checkpoint) || target == Target::Format,
        &what,
    );

    let before = content_files(store);
    let collected = store.collect();
    assert_ended(&collected, &what);
    let after = content_files(store);
    if matches!(target, Target::Manifest | Target::Pin)
        && !(target == Target::Pin && way == Way::Delete)
    {
        assert_eq!(before, after, "{what}: a collection went on without knowing what is needed");
    }
    let captured = store.run(&["capture", "--session", "t", "--json"]);
    assert_ended(&captured, &what);
    if captured.code == 0 {
        let seq = captured.json()["seq"].as_u64().unwrap();
        let restored = store.restored(&format!("t:{seq}"), &what);
        let restored = restored.unwrap_or_else(|| panic!("{what}: t:{seq} was not restored"));
        let workspace = fingerprint::of(&store.program.workspace());
        let differ = fingerprint::differences(&workspace, &restored);
        assert!(differ.is_empty(), "{what}: t:{seq} came back wrong:\n{differ}");
    }

    // What nobody can do but the one who has a copy.
    let is_replaced = fs::symlink_metadata(&file).is_ok() && target != Target::Lease;
    if target.is_truth() && (is_replaced || way == Way::Delete) {
        put_back(&file, aside);
        let verified = store.run(&["verify", "--read-data"]);
        assert_eq!(verified.code, 0, "{what}, put back: {}{}", verified.stdout, verified.stderr);
        store.assert_restores(|_| false, &format!("{what}, put back"));
        store.run(&["capture", "--session", "s"]).ok();
    }
}

/// Whether anything is sure to tell that it is damaged: a label that is gone leaves nothing that misses it, and
/// what people are told or find out by themselves has no checksum.
fn is_told(target: Target, way: Way) -> bool {
    match target {
        Target::Pin => !matches!(way, Way::Delete | Way::Flip),
        Target::WorkspaceFile => way != Way::Flip,
        Target::SessionFile => !matches!(way, Way::Flip | Way::Delete),
        _ => true,
    }
}

/// The names of everything that holds content.
fn content_files(store: &Store) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for directory in ["packs", "blobs"] {
        for entry in fs::read_dir(store.at(directory)).unwrap() {
            let path = entry.unwrap().path();
            match fs::read_dir(&path) {
                Ok(inner) => files.extend(inner.map(|entry| entry.unwrap().path())),
                Err(_) => files.push(path),
            }
        }
    }
    files.sort();
    files
}

#[test]
fn a_session_that_is_moved_away_and_back_has_lost_nothing() {
    let store = Store::new();
    let away = store.program.root().join("away");
    fs::rename(store.at("s"), &away).unwrap();
    for _ in 0..2 {
        assert_ended(&store.run(&["list"]), "away");
        assert_ended(&store.collect(), "away");
        store.run(&["capture", "--session", "t"]).ok();
    }
    fs::rename(&away, store.at("s")).unwrap();
    store.run(&["verify", "--read-data"]).ok();
    store.assert_restores(|_| false, "moved back");
}
