//! Tests of the index. The oracles are plain SQL written anew here, the `sqlite3` program, and lists
//! of entries in memory.

mod counting;
mod growth;
mod migrating;
mod opening;
mod recording;
mod removing;
mod shipped;
mod views;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
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

fn printed(fixture: &Fixture, sql: &str) -> Vec<String> {
    let mut rows: Vec<_> = fixture.sqlite3(sql).lines().map(str::to_owned).collect();
    rows.sort();
    rows
}
