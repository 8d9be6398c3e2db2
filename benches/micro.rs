//! The pure parts of a capture and of a restore, one by one: naming content, which names are left
//! out, cutting and encoding the entry list, reading it back, planning.
//!
//! The stat cache, the index and ignore files are the library's own affair, out of a bench's reach:
//! `peers` has them in whole captures.
//!
//! `cargo bench --bench micro`
#![allow(missing_docs, reason = "a bench has no readers of its interface")]
#![allow(clippy::unwrap_used, reason = "a bench fails by panicking")]

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use turnpoint::hash::{BlobHash, Digest, cut_hash};
use turnpoint::id::{CheckpointId, Seq};
use turnpoint::manifest::{Entry, EntryKind, Listed, Mode, build, decode, differences};
use turnpoint::path::RelPath;
use turnpoint::plan::{PlanInput, Present, Selection, plan};
use turnpoint::settings::ScopeSettings;

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
        let input =
            PlanInput { target: &target, then: &then, then_is_full: true, now: &now, selection };
        assert!(!plan(input).changes.is_empty(), "there is something to restore");
        group.bench_function(name, |bencher| bencher.iter(|| plan(black_box(input))));
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = hashing, names, pages, plans
}
criterion_main!(benches);
