//! Many at once for a while, with an oracle.
//!
//! Actors work on one store, each a loop of real processes that depends on a seed: captures of their own
//! workspaces (some of which share a session), restores and undos, prunes and collections with and without
//! the grace, readers; some of the processes are killed. What each checkpoint holds is written down by the
//! actors, outside of the store, when it is acknowledged. After each round, when nobody is at work,
//! everything is compared.
//!
//! Half a minute; `TURNPOINT_SOAK_MINUTES` lasts longer. `TURNPOINT_SOAK_SEED` takes other turns.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::recount::assert_counted;
use crate::scene::BINARY;
use crate::support::corpus::Random;
use crate::support::fingerprint::{self, Fingerprint, differences};
use crate::support::program::{Program, Run, run};

/// Contents that all actors use again and again, so that the same blobs die and are born anew.
const POOL: usize = 200;
const ROUND: Duration = Duration::from_secs(10);
/// Of the newest checkpoints of a session, those that no retention takes.
const KEPT_FOR_SURE: usize = 18;
/// What is never captured and never touched.
const SENTINELS: [&str; 4] = [".env", "target/artifact", "node_modules/m/index.js", ".git/config"];

/// One workspace, the session that it is captured into, and what was acknowledged.
struct Actor {
    seed: u64,
    workspace: PathBuf,
    session: &'static str,
    acknowledged: BTreeMap<u64, Fingerprint>,
    sentinels: Fingerprint,
}

/// What was done, to show that something was.
#[derive(Debug, Default)]
struct Done {
    captures: AtomicU64,
    killed: AtomicU64,
    restores: AtomicU64,
    collections: AtomicU64,
}

fn add(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

impl Actor {
    fn new(program: &Program, number: u64, session: &'static str) -> Self {
        let workspace = program.root().join(format!("actor-{number}"));
        for name in SENTINELS {
            let path = workspace.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("sentinel {number}")).unwrap();
        }
        symlink(program.root().join("outside"), workspace.join("out")).unwrap();
        let sentinels = sentinels(&workspace);
        Self { seed: number, workspace, session, acknowledged: BTreeMap::new(), sentinels }
    }

    /// A few edits of all kinds.
    fn edit(&self, random: &mut Random) {
        for _ in 0..=random.below(12) {
            let path = self.workspace.join(format!("d{}/f{}", random.below(5), random.below(12)));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let content = pooled(random.below(POOL));
            match random.below(10) {
                0 => drop(fs::remove_file(&path)),
                1 => {
                    drop(fs::rename(
                        &path,
                        self.workspace.join(format!("moved{}", random.below(4))),
                    ));
                }
                2 => {
                    let mode = random.choose(&[0o644, 0o755, 0o600]);
                    drop(fs::set_permissions(&path, fs::Permissions::from_mode(mode)));
                }
                3 => drop(fs::remove_dir_all(path.parent().unwrap())),
                4 => {
                    // The same length, and the same modification time.
                    if let Ok(before) = fs::metadata(&path) {
                        let length = usize::try_from(before.len()).unwrap();
                        fs::write(&path, vec![random.choose(b"abcdefgh"); length]).unwrap();
                        let file = fs::File::options().write(true).open(&path).unwrap();
                        file.set_modified(before.modified().unwrap()).unwrap();
                    }
                }
                5 => fs::write(&path, format!("unique {} {}", self.seed, random.next())).unwrap(),
                _ => fs::write(&path, content).unwrap(),
            }
        }
    }

    fn tree(&self) -> Fingerprint {
        let tree = fingerprint::of(&self.workspace);
        fingerprint::without(&tree, &[".env", "target", "node_modules", ".git"])
    }

    fn run(&self, program: &Program, arguments: &[&str]) -> Run {
        let mut command = program.command(arguments);
        run(command.current_dir(&self.workspace))
    }

    /// As [`Actor::run`], killed after some time; whether it ended by itself is told.
    fn run_killed(&self, program: &Program, arguments: &[&str], after: Duration) -> bool {
        // None at all would be for ever.
        let after = format!("{:.3}", after.as_secs_f64().max(0.001));
        let mut command = program.under(&["timeout", "-s", "KILL", &after], arguments);
        run(command.current_dir(&self.workspace)).code != 137
    }

    fn capture(&mut self, program: &Program, done: &Done) {
        let holds = self.tree();
        let captured = self.run(program, &["capture", "--session", self.session, "--json"]);
        assert_eq!(captured.code, 0, "{}{}", captured.stdout, captured.stderr);
        let seq = captured.json()["seq"].as_u64().unwrap();
        assert!(self.acknowledged.insert(seq, holds).is_none(), "{seq} was given twice");
        add(&done.captures);
    }

    fn work(&mut self, program: &Program, until: Instant, done: &Done) {
        let mut random = Random::new(seed().wrapping_mul(1_000).wrapping_add(self.seed));
        self.seed += 100;
        while Instant::now() < until {
            self.edit(&mut random);
            let delay = Duration::from_millis(random.below(120) as u64);
            match random.below(8) {
                0 => {
                    let arguments = ["capture", "--session", self.session];
                    let ended = self.run_killed(program, &arguments, delay);
                    done.killed.fetch_add(u64::from(!ended), Ordering::Relaxed);
                }
                1 => self.restore(program, &mut random, done),
                2 => self.restore_killed(program, &mut random, delay, done),
                _ => self.capture(program, done),
            }
        }
    }

    /// One of its own that is surely there.
    fn target(&self, random: &mut Random) -> Option<(String, Fingerprint)> {
        // Another workspace may capture into the same session: only the newest of them is safe.
        let back = random.below(4);
        let (seq, holds) = self.acknowledged.iter().rev().nth(back)?;
        Some((format!("{}:{seq}", self.session), holds.clone()))
    }

    fn restore(&mut self, program: &Program, random: &mut Random, done: &Done) {
        let Some((target, holds)) = self.target(random) else { return };
        let before = self.tree();
        let restored = self.run(program, &["restore", &target, "--yes"]);
        assert_eq!(restored.code, 0, "{target}: {}{}", restored.stdout, restored.stderr);
        let found = self.tree();
        assert!(found == holds, "{target}:\n{}", differences(&holds, &found));
        // Where nothing differed there is no restore to take back.
        if before != holds && random.below(2) == 0 {
            self.run(program, &["undo", "--yes"]).ok();
            let found = self.tree();
            assert!(found == before, "undo:\n{}", differences(&before, &found));
        }
        add(&done.restores);
    }

    fn restore_killed(
        &mut self,
        program: &Program,
        random: &mut Random,
        after: Duration,
        done: &Done,
    ) {
        let Some((target, holds)) = self.target(random) else { return };
        let before = self.tree();
        if self.run_killed(program, &["restore", &target, "--yes"], after) {
            return;
        }
        add(&done.killed);
        // Whatever it was at: to the end, or as if it had not begun.
        self.run(program, &["restore", "--continue"]);
        let found = self.tree();
        assert!(
            found == holds || found == before,
            "{target} was killed:\n{}\nfrom before:\n{}",
            differences(&holds, &found),
            differences(&before, &found)
        );
    }

    /// Everything that must still be there is, and is right.
    fn check(&mut self, program: &Program, random: &mut Random) {
        let listed = self.run(program, &["list", "--session", self.session, "--json"]).ok().json();
        let listed = listed["checkpoints"].as_array().unwrap().iter();
        let listed: Vec<u64> = listed.map(|it| it["seq"].as_u64().unwrap()).collect();
        assert!(listed.is_sorted_by(|a, b| a < b), "{listed:?}");
        let oldest = listed.iter().rev().nth(KEPT_FOR_SURE - 1).copied().unwrap_or(0);
        self.acknowledged.retain(|&seq, _| seq >= oldest);
        for (&seq, holds) in &self.acknowledged {
            assert!(listed.contains(&seq), "{}:{seq} is gone", self.session);
            // All of them at the end of a long run; some of them here.
            if random.below(3) > 0 {
                continue;
            }
            let into = program.root().join("into");
            let target = format!("{}:{seq}", self.session);
            self.run(program, &["restore", &target, "--yes", "--into", into.to_str().unwrap()])
                .ok();
            let found = fingerprint::of(&into);
            assert!(found == *holds, "{target}:\n{}", differences(holds, &found));
            fs::remove_dir_all(into).unwrap();
        }
        let now = sentinels(&self.workspace);
        assert!(now == self.sentinels, "{}", differences(&self.sentinels, &now));
    }
}

fn sentinels(workspace: &Path) -> Fingerprint {
    let tree = fingerprint::with_stamps(workspace);
    let is_sentinel = |path: &Path| SENTINELS.iter().any(|name| path == Path::new(name));
    tree.into_iter().filter(|(path, _)| is_sentinel(path)).collect()
}

fn pooled(number: usize) -> Vec<u8> {
    let mut bytes = vec![0; (number * 37) % 40_000];
    blake3::Hasher::new().update(&number.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

fn seed() -> u64 {
    std::env::var("TURNPOINT_SOAK_SEED").map_or(1, |seed| seed.parse().unwrap())
}

fn lasts() -> Duration {
    let minutes = std::env::var("TURNPOINT_SOAK_MINUTES").map(|text| text.parse::<u64>().unwrap());
    Duration::from_secs(minutes.map_or(20, |minutes| 60 * minutes))
}

fn collect(program: &Program, hours_later: u64) -> Run {
    let mut command = program.command(["gc"]);
    let shift = (3_600 * hours_later).to_string();
    run(command.env("TURNPOINT_TEST_CLOCK_SHIFT_SECONDS", shift))
}

/// Prunes, collects and reads beside the others; half of the collections without any grace.
fn upkeep(program: &Program, until: Instant, done: &Done) {
    let mut turn = 0u64;
    while Instant::now() < until {
        turn += 1;
        program.run(["prune"]).ok();
        collect(program, turn % 2).ok();
        add(&done.collections);
        let after = format!("0.0{}", 1 + turn % 9);
        let killed = run(&mut program.under(&["timeout", "-s", "KILL", &after], ["gc"]));
        done.killed.fetch_add(u64::from(killed.code == 137), Ordering::Relaxed);
        program.run(["list", "--sessions"]).ok();
        let verified = program.run(["verify"]);
        assert_eq!(verified.code, 0, "{}{}", verified.stdout, verified.stderr);
    }
}

/// When nobody is at work: the store is whole, the index is what the files say, and nothing is left over.
fn check_store(program: &Program, is_rebuilt: bool) {
    let verified = program.run(["verify", "--read-data"]);
    assert_eq!(verified.code, 0, "{}{}", verified.stdout, verified.stderr);
    if is_rebuilt {
        for name in ["index.db", "index.db-wal", "index.db-shm"] {
            fs::remove_file(program.store().join(name)).unwrap();
        }
    }
    // The first ends what is dead, and sees since when it is unneeded; the second removes it.
    for hours_later in [2, 3] {
        collect(program, hours_later).ok();
    }
    let left = |directory: &str| fs::read_dir(program.store().join(directory)).unwrap().count();
    assert_eq!(["tmp", "leases", "journal"].map(left), [0, 0, 0], "left in tmp, leases, journal");
    let ask = |sql: &str| {
        let mut sqlite = program.other("sqlite3");
        sqlite.arg("-readonly").arg(program.store().join("index.db")).arg(sql);
        run(&mut sqlite).ok().stdout
    };
    assert_eq!(ask("PRAGMA integrity_check; PRAGMA foreign_key_check"), "ok\n");
    // In a pack something unneeded may stay until it is a quarter of the pack.
    assert_counted(&program.store(), "after a round");
    assert_eq!(ask("SELECT count(*) FROM pins"), "0\n");
    let verified = program.run(["verify"]);
    assert_eq!(verified.code, 0, "{}{}", verified.stdout, verified.stderr);
}

#[test]
fn many_at_once_lose_nothing() {
    let program = Program::new(BINARY);
    let outside = program.root().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("canary"), "outside").unwrap();
    let canary = fingerprint::with_stamps(&outside);
    let sessions = ["own-0", "own-1", "shared", "shared"];
    let mut actors: Vec<Actor> = (0..)
        .zip(sessions)
        .map(|(number, session)| Actor::new(&program, number, session))
        .collect();
    let done = Done::default();
    let begin = Instant::now();
    let mut rounds = 0u64;
    while begin.elapsed() < lasts() {
        rounds += 1;
        let until = Instant::now() + ROUND.min(lasts());
        thread::scope(|scope| {
            for actor in &mut actors {
                scope.spawn(|| actor.work(&program, until, &done));
            }
            scope.spawn(|| upkeep(&program, until, &done));
        });
        let mut random = Random::new(rounds);
        for actor in &mut actors {
            actor.check(&program, &mut random);
        }
        check_store(&program, rounds.is_multiple_of(2));
        let now = fingerprint::with_stamps(&outside);
        assert!(now == canary, "{}", differences(&canary, &now));
    }
    let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
    assert!(count(&done.captures) > 4 * rounds, "{done:?}");
    assert!(count(&done.killed) > 0, "{done:?}");
    assert!(count(&done.restores) > 0, "{done:?}");
    assert!(count(&done.collections) > 0, "{done:?}");
}
