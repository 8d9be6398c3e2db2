//! Tests of the index. The oracles are plain SQL written anew here, the `sqlite3` program, and lists
//! of entries in memory.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::process::Command;

use proptest::prelude::*;

use super::check::{CounterMismatch, IndexCounts};
use super::checkpoints::Recorded;
use super::*;
use crate::checkpoint::{BlobState, CheckpointState, PinFile};
use crate::clock::Timestamp;
use crate::hash::{BlobHash, Digest};
use crate::id::{CheckpointId, OperationId, Seq, SessionName, WorkspaceId};
use crate::manifest::{
    Counts, Coverage, Entry, EntryKind, Listed, Manifest, Mode, OmitReason, PageSource,
    RestoreRecord, RestoreVerb, Scope, Tracked, Tree, Trigger, build,
};
use crate::operation::{Host, NewOperation, OperationKind};
use crate::path::RelPath;

/// Pages in memory, counting how often one is asked for.
#[derive(Default)]
struct Pages {
    texts: HashMap<BlobHash, Vec<u8>>,
    asked: std::cell::Cell<usize>,
}

impl Pages {
    fn add(&mut self, entries: &[Entry]) -> Tree {
        let built = build(entries);
        self.texts.extend(built.pages.into_iter().map(|page| (page.reference.hash, page.text)));
        built.tree
    }
}

impl PageSource for Pages {
    fn page(&self, hash: BlobHash, _size: u64) -> Result<Vec<u8>> {
        self.asked.set(self.asked.get() + 1);
        self.texts.get(&hash).cloned().ok_or(Error::BlobMissing { hash })
    }
}

/// An index in a directory that goes away.
struct Fixture {
    dir: tempfile::TempDir,
    index: Index,
    pages: Pages,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        make_index(dir.path());
        let index = open(dir.path());
        Self { dir, index, pages: Pages::default() }
    }

    /// Records a checkpoint with these entries.
    fn record(&mut self, id: &CheckpointId, entries: &[Entry]) -> Manifest {
        let tree = self.pages.add(entries);
        let manifest = manifest(id.clone(), tree);
        assert_eq!(self.insert(&manifest).unwrap(), Recorded::New);
        manifest
    }

    fn insert(&self, manifest: &Manifest) -> Result<Recorded> {
        let (text, digest) = manifest.encode();
        self.index.write("record a checkpoint", |tx| {
            let (stored, pin) = (HashMap::new(), PinFile::default());
            tx.insert_checkpoint(manifest, digest, text.len() as u64, &pin, &stored, &self.pages)
        })
    }

    fn counts(&self) -> IndexCounts {
        self.index.read("count", |tx| tx.counts()).unwrap()
    }

    fn delete(&self, id: &CheckpointId) {
        self.index.write("delete a checkpoint", |tx| tx.delete_checkpoint(id)).unwrap();
    }

    /// The answer of the `sqlite3` program, opened read-only.
    fn sqlite3(&self, sql: &str) -> String {
        let file = self.dir.path().join(FILE_NAME);
        let output = Command::new("sqlite3").arg("-readonly").arg(file).arg(sql).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

fn make_index(dir: &Path) {
    Index::create_new(&Dir::open(dir).unwrap()).unwrap().close_without_wal().unwrap();
    std::fs::rename(dir.join(NEW_FILE_NAME), dir.join(FILE_NAME)).unwrap();
}

fn try_open(dir: &Path, access: Access) -> Result<Opened> {
    Index::open(&Dir::open(dir).unwrap(), access)
}

fn open(dir: &Path) -> Index {
    match try_open(dir, Access::Write).unwrap() {
        Opened::Ready(index) => index,
        other => panic!("{other:?}"),
    }
}

fn id(session: &str, seq: u64) -> CheckpointId {
    CheckpointId { session: SessionName::new(session).unwrap(), seq: Seq::new(seq).unwrap() }
}

fn workspace() -> WorkspaceId {
    WorkspaceId::from_bytes([7; 16])
}

fn manifest(id: CheckpointId, tree: Tree) -> Manifest {
    Manifest {
        op: OperationId::random(),
        created_at: Timestamp::from_ns(1_796_038_500_123_456_789),
        id,
        workspace: workspace(),
        root_path: PathBuf::from("/somewhere/project"),
        label: None,
        trigger: Trigger::MANUAL,
        parent: None,
        scope: Scope {
            file_limit_bytes: 1,
            total_limit_bytes: None,
            cross_mounts: false,
            excluded: Vec::new(),
            secrets: Vec::new(),
            ignore_files: Vec::new(),
            ignore_digest: Digest::of(b""),
            tracked: Tracked::None,
        },
        coverage: Coverage::Full,
        complete: true,
        git: None,
        restore: None,
        tree,
        counts: Counts::default(),
    }
}

fn entry(path: &str, kind: EntryKind) -> Entry {
    Entry { path: RelPath::new(path.as_bytes()).unwrap(), mode: Mode::from_st_mode(0o644), kind }
}

fn file(path: &str, content: &str) -> Entry {
    let kind = EntryKind::File {
        size: content.len() as u64,
        mtime_ns: 5,
        hash: BlobHash::of(content.as_bytes()),
        unstable: false,
    };
    entry(path, kind)
}

fn dir(path: &str) -> Entry {
    entry(path, EntryKind::Dir { listed: Listed::Whole })
}

/// A root directory with `count` files whose contents are all different.
fn many(count: u32) -> Vec<Entry> {
    let files = (0..count).map(|n| file(&format!("f{n:05}"), &format!("content {n}")));
    std::iter::once(dir("")).chain(files).collect()
}

fn operation(kind: OperationKind, base: Option<CheckpointId>) -> NewOperation {
    NewOperation {
        id: OperationId::random(),
        kind,
        host: Host { machine: [1; 16], boot: [2; 16] },
        started_at: Timestamp::from_ns(3),
        workspace: Some(workspace()),
        base,
    }
}

fn hash(content: &str) -> BlobHash {
    BlobHash::of(content.as_bytes())
}

fn candidates(index: &Index) -> Vec<BlobHash> {
    let far = Timestamp::from_ns(i64::MAX);
    let found = index.read("list candidates", |tx| tx.sweep_candidates(far, None, 10_000));
    found.unwrap().into_iter().map(|blob| blob.hash).collect()
}

#[test]
fn nothing_and_an_empty_file_are_missing_and_stay_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    for access in [Access::Write, Access::Read] {
        assert!(matches!(try_open(dir.path(), access).unwrap(), Opened::Missing));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
    std::fs::write(dir.path().join(FILE_NAME), b"").unwrap();
    assert!(matches!(try_open(dir.path(), Access::Write).unwrap(), Opened::Missing));
    assert_eq!(std::fs::read(dir.path().join(FILE_NAME)).unwrap(), b"");
}

#[test]
fn a_new_index_is_private_has_no_wal_and_is_in_wal_mode_once_opened() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    make_index(dir.path());
    let file = dir.path().join(FILE_NAME);
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o600);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    let index = open(dir.path());
    let wal = dir.path().join("index.db-wal");
    index.write("reserve", |tx| tx.reserve_seq(&id("s", 0).session, 0)).unwrap();
    assert_eq!(std::fs::metadata(&wal).unwrap().permissions().mode() & 0o7777, 0o600);
    drop(index);
    assert!(std::fs::metadata(&wal).unwrap().len() > 0, "the WAL is kept at the end");
    std::fs::write(dir.path().join(NEW_FILE_NAME), b"").unwrap();
    let found = Index::create_new(&Dir::open(dir.path()).unwrap());
    assert!(matches!(found, Err(Error::Io { .. })));
}

#[test]
fn many_processes_may_open_a_new_index_at_once() {
    let at_once = |path: &Path, body: &(dyn Fn() + Sync)| {
        let barrier = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    barrier.wait();
                    body();
                });
            }
        });
        let index = open(path);
        assert_eq!(index.read("check", |tx| tx.integrity(true)).unwrap(), Vec::<String>::new());
    };
    for _ in 0..10 {
        // Each switches to WAL.
        let made = tempfile::tempdir().unwrap();
        make_index(made.path());
        at_once(made.path(), &|| drop(open(made.path())));
        // Each makes the schema as well.
        let empty = tempfile::tempdir().unwrap();
        let file = empty.path().join(FILE_NAME);
        std::fs::write(&file, b"").unwrap();
        at_once(empty.path(), &|| {
            let mut connection = connection::open_file(&file, Access::Write).unwrap();
            connection::use_write_ahead_log(&connection, &file).unwrap();
            migrations::migrate(&mut connection).unwrap();
        });
    }
}

#[test]
fn a_newer_schema_and_a_foreign_database_are_refused() {
    let newer = tempfile::tempdir().unwrap();
    make_index(newer.path());
    let connection = Connection::open(newer.path().join(FILE_NAME)).unwrap();
    connection.pragma_update(None, "user_version", migrations::VERSION + 1).unwrap();
    drop(connection);
    let foreign = tempfile::tempdir().unwrap();
    let connection = Connection::open(foreign.path().join(FILE_NAME)).unwrap();
    connection.execute_batch("CREATE TABLE mine (x)").unwrap();
    drop(connection);
    for access in [Access::Write, Access::Read] {
        let found = try_open(newer.path(), access);
        assert!(matches!(found, Err(Error::StoreTooNew { found: 2, supported: 1, .. })));
        let found = try_open(foreign.path(), access);
        assert!(matches!(found, Err(Error::StoreForeign { .. })));
    }
}

#[test]
fn damage_is_found_and_named() {
    let mut fixture = Fixture::new();
    fixture.record(&id("s", 0), &many(3_000));
    let Fixture { dir, index, .. } = fixture;
    index.empty_wal().unwrap();
    drop(index);
    let file = dir.path().join(FILE_NAME);
    let whole = std::fs::read(&file).unwrap();

    std::fs::write(&file, [&[0; 100], &whole[100..]].concat()).unwrap();
    assert!(matches!(try_open(dir.path(), Access::Write).unwrap(), Opened::Damaged { .. }));
    assert!(matches!(try_open(dir.path(), Access::Read).unwrap(), Opened::Damaged { .. }));

    let mut garbage = whole.clone();
    garbage[4_096 * 2..].fill(0xA5);
    std::fs::write(&file, garbage).unwrap();
    match try_open(dir.path(), Access::Write).unwrap() {
        Opened::Damaged { .. } => {}
        Opened::Ready(index) => {
            let found = index.read("list checkpoints", |tx| tx.all_checkpoints());
            assert!(matches!(found, Err(Error::IndexDamaged { .. })), "{found:?}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_rebuilt_index_is_not_the_one_that_is_open() {
    let fixture = Fixture::new();
    assert!(fixture.index.is_current().unwrap());
    make_index(fixture.dir.path());
    assert!(!fixture.index.is_current().unwrap());
    std::fs::remove_file(fixture.dir.path().join(FILE_NAME)).unwrap();
    assert!(!fixture.index.is_current().unwrap());
}

#[test]
fn a_second_writer_is_told_that_the_index_is_busy() {
    let fixture = Fixture::new();
    let other = open(fixture.dir.path());
    other.lock().busy_timeout(std::time::Duration::ZERO).unwrap();
    fixture
        .index
        .write("hold", |_| {
            let found = other.write("reserve", |tx| tx.reserve_seq(&id("s", 0).session, 0));
            assert!(matches!(found, Err(Error::Busy { .. })), "{found:?}");
            Ok(())
        })
        .unwrap();
    other.write("reserve", |tx| tx.reserve_seq(&id("s", 0).session, 0)).unwrap();
}

#[test]
fn a_failed_transaction_leaves_nothing() {
    let fixture = Fixture::new();
    let found: Result<()> = fixture.index.write("reserve", |tx| {
        tx.reserve_seq(&id("s", 0).session, 0)?;
        Err(Error::Cancelled)
    });
    assert!(matches!(found, Err(Error::Cancelled)));
    assert_eq!(fixture.counts(), IndexCounts::default());
}

#[test]
fn readers_see_the_state_before_an_open_write() {
    let fixture = Fixture::new();
    fixture.index.use_readers().unwrap();
    fixture
        .index
        .write("reserve", |tx| {
            tx.reserve_seq(&id("s", 0).session, 0)?;
            let seen = fixture.index.read("list sessions", |tx| tx.sessions())?;
            assert!(seen.is_empty());
            Ok(())
        })
        .unwrap();
    assert_eq!(fixture.index.read("list sessions", |tx| tx.sessions()).unwrap().len(), 1);
}

#[test]
fn plain_sqlite3_reads_while_a_writer_is_open_and_after() {
    let mut fixture = Fixture::new();
    fixture.record(&id("s", 0), &many(3));
    let sql = "SELECT count(*) FROM entries";
    fixture
        .index
        .write("record", |tx| {
            tx.reserve_seq(&id("t", 0).session, 0)?;
            assert_eq!(fixture.sqlite3(sql), "4\n");
            Ok(())
        })
        .unwrap();
    let index = open(fixture.dir.path());
    drop(std::mem::replace(&mut fixture.index, index));
    assert_eq!(fixture.sqlite3(sql), "4\n");
    assert!(fixture.index.is_current().unwrap());
}

#[test]
fn numbers_are_given_once_and_above_what_the_files_say() {
    let fixture = Fixture::new();
    let reserve = |name: &str, lowest| {
        let session = SessionName::new(name).unwrap();
        fixture.index.write("reserve", |tx| tx.reserve_seq(&session, lowest)).unwrap().get()
    };
    assert_eq!([reserve("s", 0), reserve("S", 0), reserve("s", 9), reserve("s", 3)], [0, 1, 9, 10]);
    let sessions = fixture.index.read("list sessions", |tx| tx.sessions()).unwrap();
    assert_eq!((sessions[0].name.as_str(), sessions[0].next_seq, sessions.len()), ("s", 11, 1));
}

#[test]
fn recording_twice_is_recording_once() {
    let mut fixture = Fixture::new();
    let first = fixture.record(&id("s", 4), &many(200));
    let counts = fixture.counts();
    assert_eq!((counts.checkpoints, counts.entries), (1, 201));
    assert_eq!(fixture.insert(&first).unwrap(), Recorded::Before);
    assert_eq!(fixture.counts(), counts);
    let other = Manifest { label: Some("x".to_owned()), ..first };
    assert!(matches!(fixture.insert(&other), Err(Error::IndexDamaged { .. })));
    let next = fixture.index.write("reserve", |tx| tx.reserve_seq(&id("s", 0).session, 0)).unwrap();
    assert_eq!(next.get(), 5, "an adopted number is not given again");
}

#[test]
fn only_pages_that_nothing_named_are_read() {
    let mut fixture = Fixture::new();
    let mut entries = many(5_000);
    fixture.record(&id("s", 0), &entries);
    fixture.pages.asked.set(0);
    fixture.record(&id("s", 1), &entries);
    assert_eq!(fixture.pages.asked.get(), 0);
    entries[2_500] = file("f02499", "edited");
    let tree = fixture.record(&id("s", 2), &entries).tree;
    assert_eq!(fixture.pages.asked.get(), usize::from(tree.levels));
    let pages = fixture.index.read("list pages", |tx| tx.pages_of(tree.root)).unwrap();
    let built: HashSet<_> = build(&entries).pages.iter().map(|page| page.reference.hash).collect();
    assert_eq!(pages, built);
}

/// How many pages `body` writes to the WAL.
fn pages_written(index: &Index, body: impl FnOnce()) -> i64 {
    let checkpoint = |mode: &str| -> i64 {
        let sql = format!("PRAGMA wal_checkpoint({mode})");
        index.lock().query_row(&sql, [], |row| row.get(1)).unwrap()
    };
    checkpoint("TRUNCATE");
    body();
    checkpoint("PASSIVE")
}

#[test]
fn a_turn_without_a_change_writes_a_few_pages_of_the_index() {
    let mut fixture = Fixture::new();
    let entries = many(2_000);
    // More than fits on one page of each table, so that no two tables or rows share one by chance.
    for seq in 0..30 {
        fixture.record(&id("s", seq), &entries);
    }
    let capture = operation(OperationKind::Capture, Some(id("s", 29)));
    let next = manifest(id("s", 30), build(&entries).tree);
    let (text, digest) = next.encode();
    let index = &fixture.index;
    let written = pages_written(index, || {
        index.write("begin", |tx| tx.insert_operation(&capture)).unwrap();
        index
            .write("reserve", |tx| {
                let seq = tx.reserve_seq(&next.id.session, 0)?;
                assert_eq!(seq, next.id.seq);
                tx.set_intent(capture.id, &next.id)
            })
            .unwrap();
        index
            .write("record", |tx| {
                let (stored, pin) = (HashMap::new(), PinFile::default());
                let bytes = text.len() as u64;
                tx.insert_checkpoint(&next, digest, bytes, &pin, &stored, &fixture.pages)?;
                tx.remove_operation(capture.id)
            })
            .unwrap();
    });
    assert!(written <= 7, "{written} pages of 4 KiB");
}

#[test]
fn a_page_that_cannot_be_read_leaves_nothing_behind() {
    let mut fixture = Fixture::new();
    let tree = fixture.pages.add(&many(1_000));
    let lost = build(&many(1_000)).pages[3].reference.hash;
    fixture.pages.texts.remove(&lost);
    let found = fixture.insert(&manifest(id("s", 0), tree));
    assert!(matches!(found, Err(Error::BlobMissing { hash }) if hash == lost));
    assert_eq!(fixture.counts(), IndexCounts::default());
}

#[test]
fn a_checkpoint_comes_back_as_it_was_recorded() {
    let mut fixture = Fixture::new();
    let before = fixture.record(&id("s", 0), &many(2));
    let tree = fixture.pages.add(&many(3));
    let after = fixture.pages.add(&[file("f00001", "then"), entry("gone", EntryKind::Absent)]);
    let target = crate::manifest::CheckpointRef { id: before.id.clone(), digest: Digest::of(b"x") };
    let safety = Manifest {
        label: Some("own".to_owned()),
        trigger: Trigger::PRE_RESTORE,
        complete: false,
        restore: Some(RestoreRecord { verb: RestoreVerb::Restore, target, undoes: None, after }),
        ..manifest(id("s", 1), tree)
    };
    fixture.insert(&safety).unwrap();
    let pin = PinFile { pinned: true, label: Some("later".to_owned()), note: None };
    fixture.index.write("pin", |tx| tx.set_pin(&safety.id, &pin)).unwrap();

    let row = fixture.index.read("read", |tx| tx.checkpoint(&id("S", 1))).unwrap().unwrap();
    let (text, digest) = safety.encode();
    assert_eq!((&row.id, row.digest, row.op), (&safety.id, digest, safety.op));
    assert_eq!((row.manifest_bytes, row.workspace), (text.len() as u64, workspace()));
    assert_eq!((row.created_at, row.complete), (safety.created_at, false));
    assert_eq!((row.tree, row.after, row.state), (tree, Some(after), CheckpointState::Live));
    assert_eq!((row.label(), &row.pin, row.is_safety()), (Some("later"), &pin, true));

    fixture
        .index
        .read("read", |tx| {
            let seqs = |rows: Vec<crate::checkpoint::CheckpointRow>| {
                rows.iter().map(|row| row.id.seq.get()).collect::<Vec<_>>()
            };
            let newest = |safety| {
                let found = tx.newest_of_workspace(workspace(), safety).unwrap().unwrap();
                found.id.seq.get()
            };
            assert_eq!((newest(true), newest(false)), (1, 0));
            assert_eq!(seqs(tx.checkpoints_of_workspace(workspace())?), [1, 0]);
            assert_eq!(seqs(tx.checkpoints_of_session(&safety.id.session)?), [0, 1]);
            assert_eq!(seqs(tx.all_checkpoints()?), [0, 1]);
            assert_eq!(tx.checkpoint(&id("s", 2))?, None);
            assert_eq!(tx.newest_of_workspace(WorkspaceId::random(), true)?, None);
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_pruned_checkpoint_is_gone_for_those_who_would_rely_on_it() {
    let mut fixture = Fixture::new();
    for seq in 0..4 {
        fixture.record(&id("s", seq), &many(5));
    }
    let capture = operation(OperationKind::Capture, Some(id("s", 0)));
    let restore = operation(OperationKind::Restore, None);
    let index = &fixture.index;
    index
        .write("begin", |tx| {
            tx.insert_operation(&capture)?;
            tx.insert_operation(&restore)?;
            tx.pin_checkpoints(restore.id, &[id("s", 1)])
        })
        .unwrap();
    let all: Vec<_> = (0..3).map(|seq| id("s", seq)).collect();
    let marked = index.write_durably("prune", |tx| tx.mark_pruning(&all)).unwrap();
    assert_eq!(marked, [id("s", 2)]);
    assert_eq!(index.read("list", |tx| tx.pruning_checkpoints()).unwrap(), marked);

    let late = operation(OperationKind::Capture, Some(id("s", 2)));
    let pruned = |found: Result<()>| {
        assert!(
            matches!(found, Err(Error::Pruned { ref checkpoint }) if *checkpoint == id("s", 2))
        );
    };
    pruned(index.write("begin", |tx| tx.insert_operation(&late)));
    pruned(index.write("begin", |tx| tx.set_base(capture.id, Some(&id("s", 2)))));
    pruned(index.write("begin", |tx| tx.pin_checkpoints(restore.id, &[id("s", 2)])));
    pruned(index.write("pin", |tx| tx.set_pin(&id("s", 2), &PinFile::default())));
    let absent = index.write("begin", |tx| tx.set_base(capture.id, Some(&id("s", 9))));
    let nearest = [3, 1, 0].map(|seq| Seq::new(seq).unwrap());
    assert!(
        matches!(absent, Err(Error::CheckpointNotFound { nearest: found, .. }) if found == nearest)
    );

    // What an operation relies on cannot be deleted even by mistake.
    assert!(index.write("delete", |tx| tx.delete_checkpoint(&id("s", 0))).is_err());
    assert!(index.write("delete", |tx| tx.delete_checkpoint(&id("s", 1))).is_err());
    index.write("end", |tx| tx.remove_operation(capture.id)).unwrap();
    index.write("end", |tx| tx.remove_operation(restore.id)).unwrap();
    fixture.delete(&id("s", 2));
    fixture.delete(&id("s", 2));
    fixture.delete(&id("s", 0));
    assert_eq!(fixture.counts().checkpoints, 2);
}

#[test]
fn an_operation_comes_back_as_it_was_recorded() {
    let mut fixture = Fixture::new();
    fixture.record(&id("s", 0), &many(1));
    let new = operation(OperationKind::Capture, Some(id("s", 0)));
    let index = &fixture.index;
    index
        .write("begin", |tx| {
            tx.insert_operation(&new)?;
            tx.set_pin_all(new.id)?;
            tx.set_intent(new.id, &id("t", 6))?;
            tx.pin_blobs(new.id, &[hash("a"), hash("a"), hash("b")])
        })
        .unwrap();
    let found = index.read("list", |tx| tx.operations()).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!((&found[0].operation, found[0].pin_all), (&new, true));
    assert_eq!(found[0].intent, Some(id("t", 6)));
    assert!(index.read("look", |tx| tx.operation_exists(new.id)).unwrap());
    assert_eq!((fixture.counts().operations, fixture.counts().pins), (1, 2));
    index.write("end", |tx| tx.remove_operation(new.id)).unwrap();
    assert_eq!((fixture.counts().operations, fixture.counts().pins), (0, 0));
    assert!(!index.read("look", |tx| tx.operation_exists(new.id)).unwrap());
}

#[test]
fn only_a_blob_that_nothing_names_or_pins_is_removable() {
    let mut fixture = Fixture::new();
    fixture.record(&id("s", 0), &[dir(""), file("a", "named"), file("b", "twice")]);
    fixture.record(&id("s", 1), &[dir(""), file("b", "twice")]);
    let root = build(&[dir(""), file("b", "twice")]).tree.root;
    let index = &fixture.index;
    index.write("note", |tx| tx.note_blob(hash("stray"), None, Some(9))).unwrap();
    assert_eq!(candidates(index), [hash("stray")]);

    let removable = |hash| index.write("look", |tx| tx.is_removable(hash)).unwrap();
    let named = [hash("named"), hash("twice"), root];
    assert_eq!(named.map(removable), [false; 3]);
    for hash in named {
        assert!(index.write("delete", |tx| tx.delete_blob(hash)).is_err(), "rows name it");
    }
    fixture.delete(&id("s", 0));
    assert_eq!([removable(hash("named")), removable(hash("twice"))], [true, false]);

    let sweep = operation(OperationKind::Sweep, None);
    index.write("begin", |tx| tx.insert_operation(&sweep)).unwrap();
    index.write("pin", |tx| tx.pin_blobs(sweep.id, &[hash("stray")])).unwrap();
    assert!(!removable(hash("stray")) && removable(hash("named")));
    assert!(!candidates(index).contains(&hash("stray")));
    index.write("pin", |tx| tx.set_pin_all(sweep.id)).unwrap();
    assert!(!removable(hash("named")) && !removable(hash("no row")));
    index.write("end", |tx| tx.remove_operation(sweep.id)).unwrap();
    assert!(removable(hash("stray")) && removable(hash("no row")));
    index.write("delete", |tx| tx.delete_blob(hash("stray"))).unwrap();
    assert!(!candidates(index).contains(&hash("stray")));
}

#[test]
fn candidates_come_oldest_first_in_portions_and_never_too_young() {
    let fixture = Fixture::new();
    let index = &fixture.index;
    for n in 0..10 {
        index.write("note", |tx| tx.note_blob(hash(&n.to_string()), Some(1), None)).unwrap();
    }
    let stamp = "UPDATE blobs SET zero_since_ns = 100 + id / 3";
    index.lock().execute_batch(stamp).unwrap();
    let before = Timestamp::from_ns(102);
    let mut seen = Vec::new();
    loop {
        let portion = index.read("list", |tx| tx.sweep_candidates(before, seen.last(), 3)).unwrap();
        if portion.is_empty() {
            break;
        }
        assert!(portion.len() <= 3);
        seen.extend(portion);
    }
    assert!(seen.is_sorted_by_key(|blob| (blob.since, blob.hash)));
    let hashes: HashSet<_> = seen.iter().map(|blob| blob.hash).collect();
    assert_eq!((hashes.len(), seen.len()), (8, 8));
}

#[test]
fn what_is_known_of_a_blob_is_kept() {
    let mut fixture = Fixture::new();
    let index = &fixture.index;
    index.write("note", |tx| tx.note_blob(hash("x"), None, Some(7))).unwrap();
    index.write("note", |tx| tx.set_blob_state(hash("x"), BlobState::Missing)).unwrap();
    index.write("note", |tx| tx.set_blob_state(hash("no row"), BlobState::Damaged)).unwrap();
    fixture.record(&id("s", 0), &[dir(""), file("x", "x")]);
    let index = &fixture.index;
    let lost = index.read("list", |tx| tx.lost_blobs()).unwrap();
    assert_eq!(lost, [(hash("x"), BlobState::Missing)]);
    let sizes = index.read("list", |tx| tx.stored_sizes(&[hash("x"), hash("y")])).unwrap();
    assert_eq!(sizes, HashMap::from([(hash("x"), 7)]));
    index.write("note", |tx| tx.set_blob_state(hash("x"), BlobState::Ok)).unwrap();
    assert_eq!(index.read("list", |tx| tx.lost_blobs()).unwrap(), []);
    assert_eq!(candidates(index), [], "the reference counts for a row that was there before");
}

/// Paths and contents of a small tree: few of both, so that they meet again.
fn small_tree() -> impl Strategy<Value = BTreeMap<u8, u8>> {
    prop::collection::btree_map(0u8..120, 0u8..6, 0..60)
}

fn tree_entries(tree: &BTreeMap<u8, u8>) -> Vec<Entry> {
    let files =
        tree.iter().map(|(path, content)| file(&format!("p{path:03}"), &content.to_string()));
    std::iter::once(dir("")).chain(files).collect()
}

/// What the counters of blobs and of pages must be, from the trees in memory.
fn expected_counters(trees: &[Vec<Entry>]) -> [HashMap<BlobHash, i64>; 2] {
    let mut blobs: HashMap<BlobHash, i64> = HashMap::new();
    let mut pages: HashMap<BlobHash, i64> = HashMap::new();
    let mut seen = HashSet::new();
    for entries in trees {
        let built = build(entries);
        *pages.entry(built.tree.root).or_default() += 1;
        let mut rest = &entries[..];
        for page in &built.pages {
            let is_new = seen.insert(page.reference.hash);
            *blobs.entry(page.reference.hash).or_default() += i64::from(is_new);
            for child in &page.children {
                *pages.entry(*child).or_default() += i64::from(is_new);
            }
            if page.level == 0 {
                let count = usize::try_from(page.reference.entries).unwrap();
                let (own, others) = rest.split_at(count);
                rest = others;
                for (hash, _) in own.iter().filter_map(Entry::blob) {
                    *blobs.entry(hash).or_default() += i64::from(is_new);
                }
            }
        }
    }
    [blobs, pages]
}

/// The counters that `sql` asks for.
fn counters(index: &Index, sql: &str) -> HashMap<BlobHash, i64> {
    let connection = index.lock();
    let mut query = connection.prepare(sql).unwrap();
    query
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
        .map(|row| row.unwrap())
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..Default::default() })]

    #[test]
    fn counters_and_rows_follow_any_sequence_of_recording_and_deleting(
        steps in prop::collection::vec((small_tree(), prop::option::of(0usize..8)), 1..24),
    ) {
        let mut fixture = Fixture::new();
        let mut live: Vec<(CheckpointId, Vec<Entry>)> = Vec::new();
        for (seq, (tree, delete)) in steps.into_iter().enumerate() {
            if let Some(victim) = delete && victim < live.len() {
                let (victim, _) = live.swap_remove(victim);
                fixture.delete(&victim);
            } else {
                // Every fourth tree is the one before, as in a turn without a change.
                let entries = match live.last() {
                    Some((_, before)) if seq % 4 == 0 => before.clone(),
                    _ => tree_entries(&tree),
                };
                let id = id("s", seq as u64);
                fixture.record(&id, &entries);
                live.push((id, entries));
            }
            let trees: Vec<_> = live.iter().map(|(_, entries)| entries.clone()).collect();
            let [blobs, pages] = expected_counters(&trees);
            let index = &fixture.index;
            let sql = "SELECT hash, refs FROM blobs WHERE zero_since_ns IS NULL";
            prop_assert_eq!(counters(index, sql), blobs);
            let sql = "SELECT hash, pages.refs FROM pages JOIN blobs ON blob = id";
            prop_assert_eq!(counters(index, sql), pages);
            let distinct: HashSet<_> = trees
                .iter()
                .flat_map(|entries| build(entries).pages)
                .map(|page| (page.reference.hash, page.level, page.reference.entries))
                .collect();
            let leaves: u64 = distinct.iter().filter(|page| page.1 == 0).map(|page| page.2).sum();
            let counts = fixture.counts();
            prop_assert_eq!((counts.pages, counts.entries), (distinct.len() as u64, leaves));
            let checks = fixture.index.read("check", |tx| {
                Ok((tx.recount()?, tx.integrity(true)?, tx.broken_references()?))
            });
            prop_assert_eq!(checks.unwrap(), (vec![], vec![], vec![]));
        }
    }
}

#[test]
fn a_recount_names_a_counter_that_is_wrong() {
    let mut fixture = Fixture::new();
    fixture.record(&id("s", 0), &[dir(""), file("a", "x"), file("b", "x")]);
    let index = &fixture.index;
    index.lock().execute("UPDATE blobs SET refs = 5 WHERE hash = ?1", [hash("x")]).unwrap();
    let found = index.read("check", |tx| tx.recount()).unwrap();
    assert_eq!(found, [CounterMismatch { hash: hash("x"), counter: 5, rows: 2 }]);
    index.lock().execute("UPDATE blobs SET refs = 1 WHERE hash = ?1", [hash("x")]).unwrap();
    let found = index.write("delete", |tx| tx.delete_checkpoint(&id("s", 0)));
    assert!(matches!(found, Err(Error::IndexDamaged { .. })), "{found:?}");
    assert_eq!(fixture.counts().checkpoints, 1);
}

#[test]
fn content_that_is_also_a_page_is_counted_as_both() {
    let mut fixture = Fixture::new();
    let inner = vec![dir(""), file("a", "x")];
    let text = String::from_utf8(build(&inner).pages[0].text.clone()).unwrap();
    fixture.record(&id("s", 0), &inner);
    fixture.record(&id("s", 1), &[dir(""), file("copy of the page", &text)]);
    fixture.delete(&id("s", 0));
    assert_eq!(candidates(&fixture.index), [hash("x")]);
    assert_eq!(fixture.index.read("check", |tx| tx.recount()).unwrap(), []);
    assert!(!fixture.index.write("look", |tx| tx.is_removable(hash(&text))).unwrap());
    fixture.record(&id("s", 2), &inner);
    assert_eq!(candidates(&fixture.index), []);
    assert_eq!(fixture.index.read("check", |tx| tx.recount()).unwrap(), []);
}

/// One checkpoint of a made-up history.
#[derive(Debug, Clone)]
struct Made {
    session: &'static str,
    seq: u64,
    workspace: u8,
    trigger: &'static str,
    pruning: bool,
    entries: BTreeMap<String, Entry>,
}

/// What is at a path, by a small number: files of few contents and modes, links, folders, names
/// without content, and nothing.
fn made_entry(path: &str, what: u8) -> Option<Entry> {
    let made = match what {
        0..=3 => file(path, &format!("content {}", what % 3)),
        4 => Entry { mode: Mode::from_st_mode(0o755), ..file(path, "content 0") },
        5 | 6 => entry(path, EntryKind::Symlink { target: vec![b'a' + what].into() }),
        7 => dir(path),
        8 => Entry { mode: Mode::from_st_mode(0o700), ..dir(path) },
        9 => entry(path, EntryKind::Omitted { reason: OmitReason::Secret, rest: 0 }),
        10 => entry(path, EntryKind::Omitted { reason: OmitReason::Ignored, rest: 7 }),
        _ => return None,
    };
    Some(made)
}

fn history() -> impl Strategy<Value = Vec<Made>> {
    let edits = prop::collection::btree_map(0u8..150, 0u8..14, 0..40);
    let about = (0usize..2, 0u8..2, 0usize..5, prop::bool::weighted(0.15), 1u64..3);
    prop::collection::vec((about, edits), 1..14).prop_map(|steps| {
        let mut entries = BTreeMap::from([(String::new(), dir(""))]);
        let mut next = [0, 0];
        let mut history = Vec::new();
        for ((session, workspace, trigger, pruning, gap), edits) in steps {
            for (path, what) in edits {
                let path = format!("p{path:03}");
                match made_entry(&path, what) {
                    Some(entry) => entries.insert(path, entry),
                    None => entries.remove(&path),
                };
            }
            let triggers = ["turn-start", "turn-end", "turn-end", "manual", "pre-restore"];
            history.push(Made {
                session: ["one", "two"][session],
                seq: next[session],
                workspace,
                trigger: triggers[trigger],
                pruning,
                entries: entries.clone(),
            });
            next[session] += gap;
        }
        history
    })
}

fn record_history(history: &[Made]) -> Fixture {
    let mut fixture = Fixture::new();
    for made in history {
        let entries: Vec<_> = made.entries.values().cloned().collect();
        let tree = fixture.pages.add(&entries);
        let manifest = Manifest {
            workspace: WorkspaceId::from_bytes([made.workspace; 16]),
            trigger: Trigger::new(made.trigger).unwrap(),
            complete: made.seq % 3 != 0,
            ..manifest(id(made.session, made.seq), tree)
        };
        fixture.insert(&manifest).unwrap();
    }
    let marked: Vec<_> =
        history.iter().filter(|made| made.pruning).map(|made| id(made.session, made.seq)).collect();
    fixture.index.write("mark", |tx| tx.mark_pruning(&marked)).unwrap();
    fixture
}

/// What became of a path, or nothing; by the rules as docs/sql.md has them.
fn change(before: Option<&Entry>, after: Option<&Entry>) -> Option<&'static str> {
    let holds =
        |entry: &Entry| matches!(entry.kind, EntryKind::File { .. } | EntryKind::Symlink { .. });
    match (before, after) {
        (None, None) => None,
        (None, Some(after)) => holds(after).then_some("added"),
        (Some(before), None) => holds(before).then_some("deleted"),
        (Some(before), Some(after)) if before.kind.name() != after.kind.name() => Some("type"),
        (Some(before), Some(after)) if !holds(before) || before.is_same_state(after) => None,
        (Some(before), Some(after)) if before.is_same_content(after) => Some("mode"),
        _ => Some("modified"),
    }
}

/// The paths of two checkpoints and what became of each.
fn changes<'a>(before: Option<&'a Made>, after: &'a Made) -> Vec<(&'a str, &'static str)> {
    static EMPTY: BTreeMap<String, Entry> = BTreeMap::new();
    let old = before.map_or(&EMPTY, |made| &made.entries);
    let mut found = Vec::new();
    for path in old.keys().chain(after.entries.keys()).collect::<BTreeSet<_>>() {
        if let Some(change) = change(old.get(path), after.entries.get(path)) {
            found.push((path.as_str(), change));
        }
    }
    found
}

/// The rows of a view as the `sqlite3` program prints them, sorted.
fn printed(fixture: &Fixture, sql: &str) -> Vec<String> {
    let mut rows: Vec<_> = fixture.sqlite3(sql).lines().map(str::to_owned).collect();
    rows.sort();
    rows
}

/// That a query gives exactly these rows, in any order; a failure shows a few that differ.
fn assert_rows(fixture: &Fixture, sql: &str, mut expected: Vec<String>) {
    expected.sort();
    let found = printed(fixture, sql);
    if found != expected {
        let differ = |a: &[String], b: &[String]| {
            a.iter().filter(|row| !b.contains(row)).take(5).cloned().collect::<Vec<_>>()
        };
        let (more, less) = (differ(&found, &expected), differ(&expected, &found));
        panic!("{sql}\nnot expected: {more:#?}\nmissing: {less:#?}");
    }
}

fn check_views(history: &[Made]) {
    let fixture = record_history(history);
    let live: Vec<&Made> = history.iter().filter(|made| !made.pruning).collect();
    let lower = |made: &Made, fits: &dyn Fn(&Made) -> bool| -> Option<&Made> {
        let same = |other: &&&Made| {
            (other.session, other.workspace) == (made.session, made.workspace)
                && other.seq < made.seq
                && fits(other)
        };
        live.iter().filter(same).max_by_key(|other| other.seq).copied()
    };
    check_compared(&fixture, &live, &lower);
    check_turns(&fixture, &live, &lower);
    check_held(&fixture, &live);
}

type Lower<'a> = dyn Fn(&Made, &dyn Fn(&Made) -> bool) -> Option<&'a Made> + 'a;

fn check_compared(fixture: &Fixture, live: &[&Made], lower: &Lower<'_>) {
    let mut expected_changes = Vec::new();
    let mut expected_history = Vec::new();
    for made in live {
        let before = lower(made, &|_| true);
        for (path, change) in changes(before, made) {
            let Made { session, seq, .. } = made;
            if before.is_some() {
                expected_changes.push(format!("{session}|{seq}|{path}|{change}"));
            }
            let after = made.entries.get(path);
            let kind = after.map_or("", |entry| entry.kind.name());
            let mode = after.map_or(String::new(), |entry| entry.mode.to_string());
            let (hash, size) = match after.and_then(Entry::blob) {
                Some((hash, size)) => (hash.to_string(), size.to_string()),
                None => (String::new(), String::new()),
            };
            let row = format!("{session}|{seq}|{path}|{change}|{kind}|{mode}|{size}|{hash}");
            expected_history.push(row);
        }
    }
    let sql =
        "SELECT session, seq, path, change FROM changes WHERE path = CAST(path_bytes AS TEXT)";
    assert_rows(fixture, sql, expected_changes);
    let sql = "SELECT session, seq, path, change, kind, mode, size, hash FROM file_history";
    assert_rows(fixture, sql, expected_history);
}

fn check_turns(fixture: &Fixture, live: &[&Made], lower: &Lower<'_>) {
    let (mut turns, mut paths) = (Vec::new(), Vec::new());
    for end in live.iter().filter(|made| made.trigger == "turn-end") {
        let Some(start) = lower(end, &|made| made.trigger.starts_with("turn-")) else { continue };
        if start.trigger != "turn-start" {
            continue;
        }
        let found = changes(Some(start), end);
        let turn = format!("{}|{}|{}", end.session, start.seq, end.seq);
        let counts = ["added", "modified", "deleted", "mode", "type"]
            .map(|kind| found.iter().filter(|(_, change)| *change == kind).count().to_string());
        turns.push(format!("{turn}|{}", counts.join("|")));
        paths.extend(found.iter().map(|(path, change)| format!("{turn}|{path}|{change}")));
    }
    let sql = "SELECT session, start_seq, end_seq, added, modified, deleted, mode, type FROM turns";
    assert_rows(fixture, sql, turns);
    let sql = "SELECT session, start_seq, end_seq, path, change FROM turn_changes";
    assert_rows(fixture, sql, paths);
}

fn check_held(fixture: &Fixture, live: &[&Made]) {
    let (mut files, mut omitted) = (Vec::new(), Vec::new());
    for made in live {
        let Made { session, seq, .. } = made;
        for (path, entry) in &made.entries {
            let row = format!("{session}|{seq}|{path}");
            match &entry.kind {
                EntryKind::File { size, mtime_ns, hash, .. } => {
                    files.push(format!("{row}|file|{}|{size}|{mtime_ns}|{hash}|", entry.mode));
                }
                EntryKind::Symlink { target } => {
                    let target = String::from_utf8_lossy(target);
                    files.push(format!("{row}|symlink|{}||||{target}", entry.mode));
                }
                EntryKind::Omitted { reason, rest } => {
                    omitted.push(format!("{row}|{reason}|{rest}"));
                }
                _ => {}
            }
        }
    }
    let sql = "SELECT session, seq, path, kind, mode, size, mtime_ns, hash, target
               FROM checkpoint_files";
    assert_rows(fixture, sql, files);
    let sql = "SELECT session, seq, path, reason, rest FROM omitted";
    assert_rows(fixture, sql, omitted);
    check_sums(fixture, live);
}

/// Files and bytes of a checkpoint.
fn sums(made: &Made) -> (u64, u64) {
    made.entries.values().fold((0, 0), |(files, bytes), entry| match entry.kind {
        EntryKind::File { size, .. } => (files + 1, bytes + size),
        EntryKind::Symlink { .. } => (files + 1, bytes),
        _ => (files, bytes),
    })
}

fn check_sums(fixture: &Fixture, live: &[&Made]) {
    let mut summaries = Vec::new();
    let mut blobs: BTreeMap<&str, HashMap<BlobHash, u64>> = BTreeMap::new();
    let mut storage: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for made in live {
        let entries: Vec<_> = made.entries.values().cloned().collect();
        let held = blobs.entry(made.session).or_default();
        held.extend(entries.iter().filter_map(Entry::blob));
        held.extend(
            build(&entries).pages.iter().map(|page| (page.reference.hash, page.reference.size)),
        );
        let session = storage.entry(made.session).or_default();
        *session = (session.0 + 1, session.1 + sums(made).1);
    }
    for (session, (checkpoints, _)) in &storage {
        let own = || live.iter().filter(|made| made.session == *session);
        let safety = own().filter(|made| made.trigger == "pre-restore").count() as u64;
        let latest = own().filter(|made| made.trigger != "pre-restore").max_by_key(|made| made.seq);
        let incomplete = own().filter(|made| made.seq % 3 == 0).count();
        let latest = latest.map_or("||".to_owned(), |made| {
            let (files, bytes) = sums(made);
            format!("{}|{files}|{bytes}", made.seq)
        });
        summaries
            .push(format!("{session}|{}|{safety}|{latest}|{incomplete}", checkpoints - safety));
    }
    let sql =
        "SELECT session, checkpoints, safety_checkpoints, latest_seq, files, bytes, incomplete
               FROM session_summary";
    assert_rows(fixture, sql, summaries);

    let all: HashMap<BlobHash, u64> = blobs.values().flatten().map(|(a, b)| (*a, *b)).collect();
    let holders = |hash: &BlobHash| blobs.values().filter(|held| held.contains_key(hash)).count();
    let row = |name: &str, (checkpoints, logical): (u64, u64), held: &HashMap<BlobHash, u64>| {
        let stored: u64 = held.values().sum();
        let unique: u64 =
            held.iter().filter(|(hash, _)| holders(hash) == 1).map(|(_, size)| size).sum();
        format!("{name}|{checkpoints}|{logical}|{stored}|{unique}|{}", stored - unique)
    };
    let mut expected: Vec<_> =
        storage.iter().map(|(session, sums)| row(session, *sums, &blobs[session])).collect();
    let total = storage.values().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    expected.push(row("", total, &all));
    assert_rows(fixture, "SELECT * FROM storage", expected);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..Default::default() })]

    #[test]
    fn views_say_what_a_comparison_in_memory_says(history in history()) {
        check_views(&history);
    }
}

#[test]
fn views_compare_trees_of_different_heights() {
    let made = |seq: u64, entries: Vec<Entry>| Made {
        session: "one",
        seq,
        workspace: 0,
        trigger: ["turn-start", "turn-end"][usize::try_from(seq % 2).unwrap()],
        pruning: false,
        entries: entries
            .into_iter()
            .map(|entry| (String::from_utf8(entry.path.as_bytes().to_vec()).unwrap(), entry))
            .collect(),
    };
    let mut edited = many(5_000);
    for at in [1, 77, 2_500, 5_000] {
        let path = format!("f{:05}", at - 1);
        edited[at] = file(&path, "edited");
    }
    let history: Vec<_> = [many(3), many(5_000), edited, many(100), many(5_000), many(5_000)]
        .into_iter()
        .zip(0u64..)
        .map(|(entries, seq)| made(seq, entries))
        .collect();
    let levels =
        |made: &Made| build(&made.entries.values().cloned().collect::<Vec<_>>()).tree.levels;
    assert_eq!(history.iter().map(levels).collect::<HashSet<_>>().len(), 3);
    check_views(&history);
}

#[test]
fn views_show_times_labels_and_names_that_are_not_text() {
    let mut fixture = Fixture::new();
    let odd = Entry { path: RelPath::new(&b"odd \xff"[..]).unwrap(), ..file("x", "x") };
    fixture.record(&id("s", 0), &[dir("")]);
    fixture.record(&id("s", 1), &[dir(""), odd]);
    let pin = PinFile { pinned: true, label: Some("kept".to_owned()), note: None };
    fixture.index.write("pin", |tx| tx.set_pin(&id("s", 1), &pin)).unwrap();
    let sql =
        "SELECT seq, created_at, workspace, workspace_root, label, trigger, pinned, files, bytes
               FROM checkpoint_list";
    let uuid = workspace().to_string();
    assert_eq!(
        printed(&fixture, sql),
        [
            format!("0|2026-11-30T11:35:00.123456789Z|{uuid}|/somewhere/project||manual|0|0|0"),
            format!("1|2026-11-30T11:35:00.123456789Z|{uuid}|/somewhere/project|kept|manual|1|1|1"),
        ]
    );
    let sql = "SELECT seq, hex(path_bytes), change FROM changes";
    assert_eq!(printed(&fixture, sql), ["1|6F646420FF|added"]);
    let sql = "SELECT hex(path_bytes), hash FROM checkpoint_files WHERE seq = 1";
    assert_eq!(printed(&fixture, sql), [format!("6F646420FF|{}", hash("x"))]);
}

#[test]
fn an_index_that_cannot_be_read_from_here_is_not_called_damaged() {
    let dir = tempfile::tempdir().unwrap();
    make_index(dir.path());
    drop(open(dir.path()));
    // As where the directory is read-only: what SQLite needs beside the file cannot be opened. (These
    // tests may run as root, whom permissions do not stop.)
    std::fs::remove_file(dir.path().join("index.db-shm")).unwrap();
    std::os::unix::fs::symlink("nowhere", dir.path().join("index.db-shm")).unwrap();
    let found = try_open(dir.path(), Access::Read).unwrap();
    assert!(matches!(found, Opened::Unavailable { .. }), "{found:?}");
    let found = try_open(dir.path(), Access::Write);
    assert!(matches!(found, Err(Error::Index { .. })), "{found:?}");
}

#[test]
fn reading_access_reads_and_refuses_to_write() {
    let mut fixture = Fixture::new();
    fixture.record(&id("s", 0), &many(3));
    let Opened::Ready(reader) = try_open(fixture.dir.path(), Access::Read).unwrap() else {
        panic!("not opened");
    };
    assert_eq!(reader.read("list", |tx| tx.all_checkpoints()).unwrap().len(), 1);
    let found = reader.write("reserve", |tx| tx.reserve_seq(&id("s", 0).session, 0));
    assert!(matches!(found, Err(Error::Index { .. })), "{found:?}");
}

#[test]
fn an_index_is_rebuilt_in_bulk_with_what_cannot_be_read_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let handle = Dir::open(dir.path()).unwrap();
    let mut pages = Pages::default();
    let readable = manifest(id("s", 0), pages.add(&many(300)));
    let lost = manifest(id("s", 1), build(&many(400)).tree);
    let index = Index::create_new(&handle).unwrap();
    for (manifest, ok) in [(&lost, false), (&readable, true)] {
        let (text, digest) = manifest.encode();
        let (stored, pin) = (HashMap::new(), PinFile::default());
        let found = index.write("record", |tx| {
            tx.insert_checkpoint(manifest, digest, text.len() as u64, &pin, &stored, &pages)
        });
        assert_eq!(found.is_ok(), ok, "{found:?}");
    }
    index.close_without_wal().unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    std::fs::rename(dir.path().join(NEW_FILE_NAME), dir.path().join(FILE_NAME)).unwrap();
    let index = open(dir.path());
    let counts = index.read("count", |tx| tx.counts()).unwrap();
    assert_eq!((counts.checkpoints, counts.entries, counts.sessions), (1, 301, 1));
    assert_eq!(index.read("check", |tx| tx.recount()).unwrap(), []);
}

#[test]
fn what_shipped_stays() {
    // The first migration made every index that exists: a change of it would not reach them.
    let text = include_str!("../../migrations/0001_initial.sql");
    assert_eq!(
        BlobHash::of(text.as_bytes()).to_string(),
        "6eed3c0e45ad1c08e6106ae9b11edebaf733383bc4a890a7322df45add940a5e"
    );
    // Scripts rely on the columns of the views.
    let fixture = Fixture::new();
    let sql = "SELECT v.name || ': ' || group_concat(c.name, ' ')
               FROM sqlite_schema v, pragma_table_info(v.name) c WHERE v.type = 'view' GROUP BY v.name";
    let views = include_str!("../../docs/sql.md");
    for line in printed(&fixture, sql) {
        let (view, columns) = line.split_once(": ").unwrap();
        let is_inner = view.starts_with("step");
        let documented = views.contains(&format!("`{view}`"))
            && columns.split(' ').all(|column| views.contains(&format!("`{column}`")));
        assert!(is_inner || documented, "{line}");
    }
    let names = "SELECT name FROM sqlite_schema WHERE type = 'view' AND name NOT LIKE 'step%'";
    assert_eq!(
        printed(&fixture, names),
        [
            "changes",
            "checkpoint_files",
            "checkpoint_list",
            "file_history",
            "omitted",
            "session_summary",
            "storage",
            "turn_changes",
            "turns",
        ]
    );
}

#[test]
fn every_migration_is_embedded() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    let files = std::fs::read_dir(folder).unwrap().count();
    assert_eq!(i32::try_from(files).unwrap(), migrations::VERSION);
}

/// A tree shaped as a monorepo is: each package has 1,000 files in 50 folders.
fn packages(count: usize) -> Vec<Entry> {
    let mut entries = vec![dir("")];
    for package in 0..count {
        entries.push(dir(&format!("packages/package-{package:03}")));
        for module in 0..50 {
            let folder = format!("packages/package-{package:03}/source/module-{module:02}");
            entries.push(dir(&folder));
            for n in 0..20 {
                let path = format!("{folder}/component-{n:02}.rs");
                entries.push(file(&path, &format!("content of {path}")));
            }
        }
    }
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    entries
}

/// Records a first checkpoint and one more for each number of `edits`, which are spread over the
/// tree, and says how many pages of the index each wrote.
fn grow(index: &Index, mut entries: Vec<Entry>, edits: &[usize]) -> Vec<i64> {
    let mut pages = Pages::default();
    let files: Vec<usize> = (0..entries.len()).filter(|&at| entries[at].blob().is_some()).collect();
    let mut record = |seq: usize, entries: &[Entry]| {
        let trigger = Trigger::new(["turn-start", "turn-end"][seq % 2]).unwrap();
        let tree = pages.add(entries);
        let manifest = Manifest { trigger, ..manifest(id("large", seq as u64), tree) };
        let (text, digest) = manifest.encode();
        let (stored, pin) = (HashMap::new(), PinFile::default());
        let mut took = std::time::Duration::ZERO;
        let written = pages_written(index, || {
            let begin = std::time::Instant::now();
            index
                .write("record", |tx| {
                    let bytes = text.len() as u64;
                    tx.insert_checkpoint(&manifest, digest, bytes, &pin, &stored, &pages)
                })
                .unwrap();
            took = begin.elapsed();
        });
        println!("checkpoint {seq}: {took:?}, {written} pages");
        written
    };
    let mut written = vec![record(0, &entries)];
    for (seq, edits) in (1..).zip(edits) {
        for n in 0..*edits {
            let at = files[(n * 7_919 + seq * 104_729) % files.len()];
            let path = String::from_utf8(entries[at].path.as_bytes().to_vec()).unwrap();
            entries[at] = file(&path, &format!("{seq} of {path}"));
        }
        written.push(record(seq, &entries));
    }
    written
}

/// With `TURNPOINT_MEASURE=DIR` the index is left in that directory, holds 20 checkpoints of 100,000
/// files, and what each took is printed: docs/sql.md has the figures.
#[test]
fn what_an_edit_writes_to_the_index_does_not_depend_on_the_size_of_the_tree() {
    if let Some(place) = std::env::var_os("TURNPOINT_MEASURE").map(PathBuf::from) {
        make_index(&place);
        let edits = [&[100; 16][..], &[10, 1, 0]].concat();
        grow(&open(&place), packages(100), &edits);
        let begin = std::time::Instant::now();
        let index = open(&place);
        println!("opened: {:?}", begin.elapsed());
        let begin = std::time::Instant::now();
        index.write("delete", |tx| tx.delete_checkpoint(&id("large", 0))).unwrap();
        println!("deleted one: {:?}", begin.elapsed());
        return;
    }
    let fixture = Fixture::new();
    let written = grow(&fixture.index, packages(10), &[1, 10, 1, 0]);
    assert!(written[0] > 500, "the tree is large: {written:?}");
    assert!(written[1] <= 60 && written[2] <= 400, "{written:?}");
    assert!(written[3] <= 60 && written[4] <= 5, "{written:?}");
}
