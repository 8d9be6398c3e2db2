//! The pure parts of a capture and of a restore, one by one: naming content, which names are left
//! out, cutting and encoding the entry list, reading it back, planning.
//!
//! The stat cache, the index and ignore files are the library's own affair, out of a bench's reach. They
//! are measured by what they cost in a capture of a small tree, in this process: with and without
//! ignore files where every directory is listed, with and without edits, and by building the index
//! anew.
//!
//! `cargo bench --bench micro`
#![allow(missing_docs, reason = "a bench has no readers of its interface")]
#![allow(clippy::unwrap_used, reason = "a bench fails by panicking")]

use std::fs;
use std::hint::black_box;
use std::path::PathBuf;
use std::time::Duration;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use turnpoint::hash::{BlobHash, Digest, cut_hash};
use turnpoint::id::{CheckpointId, Seq};
use turnpoint::manifest::{Entry, EntryKind, Listed, Mode, build, decode, differences};
use turnpoint::path::RelPath;
use turnpoint::plan::{PlanInput, Present, Selection, plan};
use turnpoint::settings::ScopeSettings;
use turnpoint::{CaptureOptions, ListQuery, QueryOptions, Store};

const ENTRIES: usize = 10_000;

/// Sorted entries of files in directories of twenty, as in a source tree.
fn entries() -> Vec<Entry> {
    let entry = |path: String, mode, kind| Entry {
        path: RelPath::new(path.into_bytes()).unwrap(),
        mode: Mode::from_st_mode(mode),
        kind,
    };
    let mut entries = vec![entry(String::new(), 0o755, EntryKind::Dir { listed: Listed::Whole })];
    for number in 0..ENTRIES {
        let directory = format!("packages/package-{:04}/src", number / 20);
        if number % 20 == 0 {
            entries.push(entry(directory.clone(), 0o755, EntryKind::Dir { listed: Listed::Whole }));
        }
        let hash = BlobHash::of(&number.to_le_bytes());
        let kind = EntryKind::File {
            size: 4000,
            mtime_ns: 1_700_000_000_000_000_000,
            hash,
            unstable: false,
        };
        entries.push(entry(format!("{directory}/module_{number:05}.rs"), 0o644, kind));
    }
    entries
}

fn hashing(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("hash");
    for size in [4 << 10, 1 << 20] {
        let content = vec![b'x'; size];
        group.throughput(Throughput::Bytes(size as u64));
        group.bench_with_input(BenchmarkId::new("blob", size), &content, |bencher, content| {
            bencher.iter(|| BlobHash::of(black_box(content)));
        });
        group.bench_with_input(BenchmarkId::new("digest", size), &content, |bencher, content| {
            bencher.iter(|| Digest::of(black_box(content)));
        });
    }
    group.finish();
}

fn pages(criterion: &mut Criterion) {
    let entries = entries();
    let mut group = criterion.benchmark_group("pages");
    group.throughput(Throughput::Elements(entries.len() as u64));
    group.bench_function("cut points", |bencher| {
        bencher.iter(|| {
            entries
                .iter()
                .map(|entry| cut_hash(entry.path.as_bytes(), 0))
                .fold(0, u64::wrapping_add)
        });
    });
    group.bench_function("build", |bencher| bencher.iter(|| build(black_box(&entries))));
    let tree = build(&entries);
    group.bench_function("decode", |bencher| {
        bencher.iter(|| {
            tree.pages
                .iter()
                .map(|page| decode(&page.text, page.level).unwrap())
                .collect::<Vec<_>>()
        });
    });
    let mut edited = entries.clone();
    edited.remove(ENTRIES / 2);
    group.bench_function("differences", |bencher| {
        bencher.iter(|| differences(black_box(&entries), black_box(&edited)));
    });
    group.finish();
}

/// A name is asked about three times in a walk.
fn names(criterion: &mut Criterion) {
    let settings = ScopeSettings::default();
    let entries = entries();
    let mut group = criterion.benchmark_group("names");
    group.throughput(Throughput::Elements(entries.len() as u64));
    group.bench_function("left out", |bencher| {
        bencher.iter(|| {
            let is_left_out = |entry: &&Entry| {
                let (parent, name) = parent_and_name(entry.path.as_bytes());
                settings.is_secret(parent, name)
                    || settings.excludes_directory(parent, name)
                    || settings.excludes_file(parent, name)
            };
            black_box(&entries).iter().filter(is_left_out).count()
        });
    });
    group.finish();
}

/// The last part of a path, and the one before it.
fn parent_and_name(path: &[u8]) -> (&[u8], &[u8]) {
    let mut parts = path.rsplit(|&byte| byte == b'/');
    let name = parts.next().unwrap_or_default();
    (parts.next().unwrap_or_default(), name)
}

fn plans(criterion: &mut Criterion) {
    let then = entries();
    let mut now: Vec<Present> = (1..)
        .zip(&then)
        .map(|(inode, entry)| Present { entry: entry.clone(), device: 1, inode, is_mounted: false })
        .collect();
    let mut group = criterion.benchmark_group("plan");
    group.throughput(Throughput::Elements(then.len() as u64));
    let target = CheckpointId { session: "bench".parse().unwrap(), seq: Seq::new(0).unwrap() };
    // One in a thousand has another content, the last one is gone.
    for present in now.iter_mut().skip(2).step_by(1000) {
        if let EntryKind::File { hash, .. } = &mut present.entry.kind {
            *hash = BlobHash::of(b"changed");
        }
    }
    let last = now.pop().unwrap();
    let below = [last.entry.path];
    for (name, selection) in [("all", Selection::All), ("one path", Selection::Below(&below))] {
        let input = PlanInput {
            target: &target,
            then: &then,
            then_is_full: true,
            is_overlay: false,
            now: &now,
            selection,
        };
        assert!(!plan(input).changes.is_empty(), "there is something to restore");
        group.bench_function(name, |bencher| bencher.iter(|| plan(black_box(input))));
    }
    group.finish();
}

/// Files in directories of twenty, and a store beside them.
struct Workspace {
    _guard: tempfile::TempDir,
    root: PathBuf,
    store: Store,
}

impl Workspace {
    fn new(ignore_lines: usize) -> Self {
        let guard = tempfile::tempdir().unwrap();
        let root = guard.path().join("work");
        for number in 0..TURN_FILES {
            let directory = root.join(format!("package-{:04}", number / 20));
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join(format!("module_{number:05}.rs")), number.to_string())
                .unwrap();
        }
        if ignore_lines > 0 {
            let lines = (0..ignore_lines).map(|line| format!("*.generated-{line}\n"));
            fs::write(root.join(".gitignore"), lines.collect::<String>()).unwrap();
        }
        let store = Store::at(&guard.path().join("home"));
        let workspace = Self { _guard: guard, root, store };
        workspace.capture();
        workspace
    }

    fn capture(&self) {
        let mut options = CaptureOptions::default();
        options.session = Some("bench".to_owned());
        assert!(self.store.capture(&self.root, &options, &()).unwrap().complete);
    }

    fn edit(&self, round: usize) {
        for number in (0..TURN_FILES).step_by(TURN_FILES / 10) {
            let file = format!("package-{:04}/module_{number:05}.rs", number / 20);
            fs::write(self.root.join(file), format!("{round} {number}")).unwrap();
        }
    }

    /// Changes the stamps of every directory.
    fn touch_directories(&self) {
        for number in 0..TURN_FILES / 20 {
            let name = self.root.join(format!("package-{number:04}/new"));
            fs::write(&name, "").unwrap();
            fs::remove_file(name).unwrap();
        }
    }
}

const TURN_FILES: usize = 4_000;

fn turns(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("turn");
    group.throughput(Throughput::Elements(TURN_FILES as u64));
    for ignore_lines in [0, 200] {
        let workspace = Workspace::new(ignore_lines);
        let name = format!("every directory listed, {ignore_lines} ignore lines");
        group.bench_function(name, |bencher| {
            let touched = || workspace.touch_directories();
            bencher.iter_batched(touched, |()| workspace.capture(), BatchSize::PerIteration);
        });
    }
    let workspace = Workspace::new(0);
    group.bench_function("nothing changed", |bencher| bencher.iter(|| workspace.capture()));
    let mut round = 0;
    group.bench_function("ten edits", |bencher| {
        let edited = || {
            round += 1;
            workspace.edit(round);
        };
        bencher.iter_batched(edited, |()| workspace.capture(), BatchSize::PerIteration);
    });
    group.finish();

    let mut group = criterion.benchmark_group("index");
    let query = ListQuery::default();
    group.bench_function("list", |bencher| {
        bencher.iter(|| workspace.store.list(black_box(&query), &()).unwrap());
    });
    group.bench_function("rebuild", |bencher| {
        bencher.iter(|| workspace.store.rebuild_index(&()).unwrap());
    });
    let workspace = Workspace::new(0);
    for round in 1..20 {
        workspace.edit(round);
        workspace.capture();
    }
    group.bench_function("heaviest view, 20 checkpoints", |bencher| {
        let sql = "SELECT count(*) FROM file_history";
        let options = QueryOptions::default();
        bencher.iter(|| workspace.store.query(black_box(sql), &options, &()).unwrap());
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = hashing, names, pages, plans, turns
}
criterion_main!(benches);
