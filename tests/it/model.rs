//! Any sequence of edits, captures, restores and collections, against plain copies of the tree.
//!
//! After each step what the library did is compared with what [`oracle`] says it must have done; at
//! the end of each case every living checkpoint is restored into an empty directory, and the store
//! is read without the library ([`truth`]). `TURNPOINT_MODEL_CASES` sets how many cases each of the
//! tests runs.
#![expect(clippy::unnecessary_debug_formatting, reason = "a name may hold a newline")]

mod oracle;
pub(crate) mod truth;
mod world;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, FileFailurePersistence, RngSeed, TestRunner};

use turnpoint::limits::Packing;
use world::World;

/// Where things are put. Chosen so that names collide, nest and change their kind often.
const PATHS: &[&[u8]] = &[
    b"a",
    b"A",
    b"b",
    b"d",
    b"d/a",
    b"d/b",
    b"d/e",
    b"d/e/a",
    b"d/e/b",
    b"b/a",
    b"b/d",
    b"b/d/x",
    b"a/a",
    b"new\nline",
    b"d/\xff\xfe",
    b"\xff/a",
    b"x.log",
    b"d/x.log",
    b"d/log/y.log",
    b".env",
    b"d/.Env",
    b"d/.env.example",
    b"target",
    b"target/a",
    b"d/target",
    b"d/.git",
    b"d/.git/a",
];
const MODES: &[u32] = &[0o644, 0o755, 0o600, 0o444, 0o400, 0o000, 0o1777, 0o2755];
const TARGETS: &[&[u8]] = &[b"a", b"nowhere", b"..", b"d/e", b"/etc/passwd", b"\xff"];
const RULES: &[&str] = &[
    "a", "/a", "b/", "*.log", "!x.log", "d/e", "!a", "d/", "/d/b", "*", "!d/", "log", "e/",
    "!*.log",
];

/// What is purged: paths and patterns, with what each matches.
const PURGED: &[&str] = &["a", "d/a", "d", "b/d", "x.log", "*.log", "A"];

type At = usize;

/// One step. Places and checkpoints are numbers; those of checkpoints count among what lives then.
#[derive(Debug, Clone)]
enum Step {
    Write {
        at: At,
        content: u8,
    },
    Append {
        at: At,
    },
    /// Other bytes of the same size under the old modification time.
    RewriteSilently {
        at: At,
    },
    Remove {
        at: At,
    },
    Rename {
        from: At,
        to: At,
    },
    Chmod {
        at: At,
        mode: usize,
    },
    Symlink {
        at: At,
        target: usize,
    },
    MakeDir {
        at: At,
    },
    HardLink {
        from: At,
        to: At,
    },
    Fifo {
        at: At,
    },
    /// Whatever is there gives way to a file, a link or a directory.
    Swap {
        at: At,
        to: u8,
    },
    Ignore {
        below: bool,
        rules: Vec<usize>,
    },
    TouchAll,
    Capture {
        session: bool,
        if_changed: bool,
        /// With a list of what has changed since the last one.
        hinted: bool,
    },
    Restore {
        which: usize,
        thorough: bool,
        preserve_mtime: bool,
    },
    RestorePaths {
        which: usize,
        paths: Vec<At>,
    },
    Undo,
    Prune {
        session: bool,
        keep: u32,
    },
    Collect {
        aged: bool,
    },
    /// A path, with what is below it, or a pattern.
    Purge {
        session: Option<bool>,
        path: usize,
    },
    Pin {
        which: usize,
        pinned: bool,
    },
    Label {
        which: usize,
        label: Option<u8>,
    },
    Reopen,
    DeleteIndex,
    DeleteStatCache,
}

fn at() -> impl Strategy<Value = At> {
    0..PATHS.len()
}

fn edit() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (at(), 0..8u8).prop_map(|(at, content)| Step::Write { at, content }),
        2 => at().prop_map(|at| Step::Append { at }),
        3 => at().prop_map(|at| Step::RewriteSilently { at }),
        4 => at().prop_map(|at| Step::Remove { at }),
        4 => (at(), at()).prop_map(|(from, to)| Step::Rename { from, to }),
        3 => (at(), 0..MODES.len()).prop_map(|(at, mode)| Step::Chmod { at, mode }),
        3 => (at(), 0..TARGETS.len()).prop_map(|(at, target)| Step::Symlink { at, target }),
        3 => at().prop_map(|at| Step::MakeDir { at }),
        5 => (at(), at()).prop_map(|(from, to)| Step::HardLink { from, to }),
        1 => at().prop_map(|at| Step::Fifo { at }),
        5 => (at(), 0..3u8).prop_map(|(at, to)| Step::Swap { at, to }),
        3 => (any::<bool>(), vec(0..RULES.len(), 0..4))
            .prop_map(|(below, rules)| Step::Ignore { below, rules }),
        1 => Just(Step::TouchAll),
    ]
}

fn capture() -> impl Strategy<Value = Step> {
    (prop::bool::weighted(0.2), prop::bool::weighted(0.2), prop::bool::weighted(0.3))
        .prop_map(|(session, if_changed, hinted)| Step::Capture { session, if_changed, hinted })
}

fn restore() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (any::<usize>(), prop::bool::weighted(0.2), prop::bool::weighted(0.2)).prop_map(
            |(which, thorough, preserve_mtime)| Step::Restore { which, thorough, preserve_mtime }
        ),
        2 => (any::<usize>(), vec(at(), 1..3))
            .prop_map(|(which, paths)| Step::RestorePaths { which, paths }),
        4 => Just(Step::Undo),
    ]
}

fn keep() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (any::<bool>(), 1..4u32).prop_map(|(session, keep)| Step::Prune { session, keep }),
        3 => prop::bool::weighted(0.8).prop_map(|aged| Step::Collect { aged }),
        1 => (prop::option::weighted(0.3, any::<bool>()), 0..PURGED.len())
            .prop_map(|(session, path)| Step::Purge { session, path }),
        2 => (any::<usize>(), any::<bool>()).prop_map(|(which, pinned)| Step::Pin { which, pinned }),
        1 => (any::<usize>(), prop::option::of(0..3u8))
            .prop_map(|(which, label)| Step::Label { which, label }),
        1 => Just(Step::Reopen),
        1 => Just(Step::DeleteIndex),
        1 => Just(Step::DeleteStatCache),
    ]
}

/// Mostly in memory, where a barrier costs nothing; sometimes on a disk, whose file system gives the
/// number of a deleted inode to the next file.
fn is_on_disk() -> impl Strategy<Value = bool> {
    prop::bool::weighted(0.06)
}

/// When content goes into packs: at once, or never, and anything between.
fn packing() -> impl Strategy<Value = Packing> {
    let above_files = prop_oneof![3 => Just(0), 2 => Just(3), 1 => Just(1_000)];
    let pack_bytes_max =
        prop_oneof![Just(200), Just(1_500), Just(20_000), Just(Packing::default().pack_bytes_max)];
    let consolidate_from = prop_oneof![Just(1), Just(5), Just(20), Just(64)];
    let small_packs_max = prop_oneof![Just(0), Just(2), Just(8)];
    let gathering =
        (prop_oneof![Just(1), Just(4), Just(8)], prop_oneof![Just(0), Just(3), Just(64)]);
    (above_files, pack_bytes_max, consolidate_from, small_packs_max, gathering).prop_map(
        |(above_files, pack_bytes_max, consolidate_from, small_packs_max, gathering)| {
            let (gather_from, small_packs_crowded) = gathering;
            Packing {
                above_files,
                pack_bytes_max,
                consolidate_from,
                small_packs_max,
                gather_from,
                small_packs_crowded,
            }
        },
    )
}

/// The same cases in every run; `TURNPOINT_MODEL_SEED` chooses others, to look for new ones.
const SEED: u64 = 20_261_129;

fn run(cases: u32, step: impl Strategy<Value = Step>, steps: usize) {
    let cases = std::env::var("TURNPOINT_MODEL_CASES").map_or(cases, |text| text.parse().unwrap());
    let regressions = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/model-regressions.txt");
    let seed = std::env::var("TURNPOINT_MODEL_SEED").map_or(SEED, |text| text.parse().unwrap());
    let config = Config {
        cases,
        rng_seed: RngSeed::Fixed(seed),
        max_shrink_iters: 4000,
        max_shrink_time: 120_000,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(regressions))),
        ..Config::default()
    };
    let strategy = (is_on_disk(), packing(), vec(step, 1..steps));
    let outcome = TestRunner::new(config).run(&strategy, |(is_on_disk, packing, steps)| {
        let mut world = World::new(is_on_disk, packing);
        for step in &steps {
            world.take(step);
        }
        world.check_everything();
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

#[test]
fn any_sequence_of_edits_and_restores_keeps_the_promises() {
    run(160, prop_oneof![10 => edit(), 4 => capture(), 5 => restore()], 40);
}

#[test]
fn any_sequence_of_captures_and_collections_keeps_the_promises() {
    run(96, prop_oneof![6 => edit(), 5 => capture(), 3 => restore(), 5 => keep()], 50);
}
