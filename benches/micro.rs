//! The pure parts of a capture, one by one: naming content, cutting and encoding the entry list,
//! reading it back.
//!
//! `cargo bench --bench micro`
#![allow(missing_docs, reason = "a bench has no readers of its interface")]
#![allow(clippy::unwrap_used, reason = "a bench fails by panicking")]

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use turnpoint::hash::{BlobHash, Digest, cut_hash};
use turnpoint::manifest::{Entry, EntryKind, Listed, Mode, build, decode, differences};
use turnpoint::path::RelPath;

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

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = hashing, pages
}
criterion_main!(benches);
