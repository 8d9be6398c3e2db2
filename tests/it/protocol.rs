//! The protocol by which captures and sweeps share a store, as a model that is tried in every order.
//!
//! SQLite and files are real, each actor has a connection of its own, and there is no grace. The actors run
//! in one thread, step by step, in an order that is given; one that finds the index locked waits for its
//! next turn. So the orders that need a process to be held up at the worst moment are tried like all
//! others, and nothing rests on time: of one capture and one sweep every order, of more actors some
//! hundred long orders, which are the same in every run.
//!
//! In the model: pins that are committed before the store is looked at; the manifest as the point from
//! which a checkpoint exists; rows that take the place of pins in one transaction; prunes; sweeps that ask
//! again and unlink inside their write transaction. Protocols that lack one of these rules are tried in
//! the same orders and judged by the same check, which must find what they lose.
//!
//! Not in the model: crashes, leases and the reaping of the dead, adoption, what cannot be read,
//! durability, pages, packs. `tests/faults` kills and holds the program itself.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use rusqlite::{Connection, ErrorCode, params};

/// What is kept to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    /// All of it.
    Whole,
    /// A capture looks what is there before it pins it.
    LookBeforePin,
    /// A capture gives up its pins before its rows are in.
    UnpinBeforeRows,
    /// A sweep unlinks after its transaction.
    CommitBeforeUnlink,
    /// A sweep does not ask again inside its transaction.
    AskOnce,
}

const MUTANTS: [Protocol; 4] = [
    Protocol::LookBeforePin,
    Protocol::UnpinBeforeRows,
    Protocol::CommitBeforeUnlink,
    Protocol::AskOnce,
];

/// A store: `blobs/<hash>`, `manifests/<checkpoint>` with the hashes that it names, and an index.
struct Place {
    directory: tempfile::TempDir,
    /// One for each actor.
    connections: Vec<Connection>,
    /// How often a capture found what it was going to name, a sweep removed a file, and either waited.
    reused: u64,
    swept: u64,
    waited: u64,
}

impl Place {
    fn new(actors: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in ["blobs", "manifests"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        let connect = |_| {
            let connection = Connection::open(directory.path().join("index.db")).unwrap();
            connection.pragma_update(None, "journal_mode", "wal").unwrap();
            connection.pragma_update(None, "synchronous", "off").unwrap();
            connection.busy_timeout(std::time::Duration::ZERO).unwrap();
            connection
        };
        let connections: Vec<Connection> = (0..actors).map(connect).collect();
        connections[0]
            .execute_batch(
                "CREATE TABLE blobs (hash INTEGER PRIMARY KEY);
                 CREATE TABLE refs (checkpoint INTEGER, hash INTEGER, UNIQUE (hash, checkpoint));
                 CREATE TABLE pins (operation INTEGER, hash INTEGER, UNIQUE (hash, operation));",
            )
            .unwrap();
        Self { directory, connections, reused: 0, swept: 0, waited: 0 }
    }

    /// A store that has the contents `old`, which nothing names, and nothing else.
    fn reset(&self, old: &[u32]) {
        for connection in self.connections.iter().filter(|connection| !connection.is_autocommit()) {
            connection.execute_batch("ROLLBACK").unwrap();
        }
        let index = &self.connections[0];
        index.execute_batch("DELETE FROM blobs; DELETE FROM refs; DELETE FROM pins;").unwrap();
        for name in ["blobs", "manifests"] {
            for file in fs::read_dir(self.directory.path().join(name)).unwrap() {
                fs::remove_file(file.unwrap().path()).unwrap();
            }
        }
        for hash in old {
            fs::write(self.blob(*hash), "content").unwrap();
            index.execute("INSERT INTO blobs VALUES (?1)", [hash]).unwrap();
        }
    }

    fn blob(&self, hash: u32) -> PathBuf {
        self.directory.path().join("blobs").join(hash.to_string())
    }

    fn manifest(&self, checkpoint: u32) -> PathBuf {
        self.directory.path().join("manifests").join(checkpoint.to_string())
    }

    /// Asserts that all that makes it dangerous has happened many times.
    fn assert_busy(&self) {
        let Self { reused, swept, waited, .. } = self;
        assert!(
            [reused, swept, waited].iter().all(|count| **count > 50),
            "{reused} {swept} {waited}"
        );
    }

    /// Whether a checkpoint that is there lacks what it names.
    fn is_broken(&self) -> bool {
        fs::read_dir(self.directory.path().join("manifests")).unwrap().any(|manifest| {
            let text = fs::read_to_string(manifest.unwrap().path()).unwrap();
            text.split_whitespace().any(|hash| !self.blob(hash.parse().unwrap()).exists())
        })
    }

    /// Begins a write transaction; `false` where another has one open.
    fn begin(&self, actor: usize) -> bool {
        match self.connections[actor].execute_batch("BEGIN IMMEDIATE") {
            Ok(()) => true,
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => false,
            Err(error) => panic!("{error}"),
        }
    }

    fn execute(&self, actor: usize, sql: &str, row: (u32, u32)) {
        self.connections[actor]
            .prepare_cached(sql)
            .unwrap()
            .execute(params![row.0, row.1])
            .unwrap();
    }

    fn commit(&self, actor: usize) {
        self.connections[actor].execute_batch("COMMIT").unwrap();
    }

    /// Whether no row names a blob and nobody has pinned it.
    fn is_free(&self, actor: usize, hash: u32) -> bool {
        let sql = "SELECT EXISTS (SELECT 1 FROM refs WHERE hash = ?1)
                       OR EXISTS (SELECT 1 FROM pins WHERE hash = ?1)";
        let mut statement = self.connections[actor].prepare_cached(sql).unwrap();
        !statement.query_row([hash], |row| row.get::<_, bool>(0)).unwrap()
    }
}

/// What one actor does at one time.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// Pins what the capture is going to name.
    Pin,
    /// Looks which of it is there.
    Look,
    /// Writes the rest.
    Write,
    /// Writes the manifest: from here on the checkpoint exists.
    Manifest,
    /// Records it, and gives up the pins, all at once.
    Rows,
    /// Gives up the pins.
    Unpin,
    /// Removes the manifest of the checkpoint, for a prune.
    Forget,
    /// Removes its rows.
    Unrow,
    /// Lists what a sweep may remove.
    Select,
    /// Begins its transaction, and asks again.
    Ask,
    /// Removes one of the files.
    Unlink,
    /// Removes the rows, and commits.
    Commit,
}

const UNPIN: &str = "DELETE FROM pins WHERE operation = ?1 AND hash = ?2";

const CAPTURE: [Step; 5] = [Step::Pin, Step::Look, Step::Write, Step::Manifest, Step::Rows];
const PRUNE: [Step; 2] = [Step::Forget, Step::Unrow];
/// Two files at most are removed in one transaction.
const SWEEP: [Step; 5] = [Step::Select, Step::Ask, Step::Unlink, Step::Unlink, Step::Commit];

/// The steps of a capture or sweep as the protocol has them.
fn steps(whole: &[Step], protocol: Protocol) -> Vec<Step> {
    use Step::{Ask, Commit, Look, Manifest, Pin, Rows, Select, Unlink, Unpin, Write};
    match (whole[0], protocol) {
        (Pin, Protocol::LookBeforePin) => vec![Look, Pin, Write, Manifest, Rows],
        (Pin, Protocol::UnpinBeforeRows) => vec![Pin, Look, Write, Manifest, Unpin, Rows],
        (Select, Protocol::CommitBeforeUnlink) => vec![Select, Ask, Commit, Unlink, Unlink],
        _ => whole.to_vec(),
    }
}

/// One process: what it has yet to do, and what it knows.
struct Actor {
    number: usize,
    protocol: Protocol,
    steps: Vec<Step>,
    done: usize,
    checkpoint: u32,
    /// What the capture names.
    contents: Vec<u32>,
    /// What it found missing.
    absent: Vec<u32>,
    /// What the sweep is about to remove.
    candidates: Vec<u32>,
}

impl Actor {
    fn new(number: usize, protocol: Protocol, steps: Vec<Step>, contents: &[u32]) -> Self {
        let (checkpoint, contents) = (u32::try_from(number).unwrap(), contents.to_vec());
        let (absent, candidates) = (Vec::new(), Vec::new());
        Self { number, protocol, steps, done: 0, checkpoint, contents, absent, candidates }
    }

    fn has_ended(&self) -> bool {
        self.done == self.steps.len()
    }

    /// Takes its turn.
    fn turn(&mut self, place: &mut Place) {
        let Some(step) = self.steps.get(self.done) else { return };
        let (me, checkpoint) = (self.number, self.checkpoint);
        let writes = matches!(step, Step::Pin | Step::Rows | Step::Unpin | Step::Unrow | Step::Ask);
        if writes && !place.begin(me) {
            place.waited += 1;
            return;
        }
        let each = |sql: &str| {
            self.contents.iter().for_each(|hash| place.execute(me, sql, (checkpoint, *hash)));
        };
        match step {
            Step::Pin => each("INSERT INTO pins VALUES (?1, ?2)"),
            Step::Rows => {
                each("INSERT OR IGNORE INTO blobs SELECT ?2 WHERE ?1 IS NOT NULL");
                each("INSERT INTO refs VALUES (?1, ?2)");
                each(UNPIN);
            }
            Step::Unpin => each(UNPIN),
            Step::Unrow => each("DELETE FROM refs WHERE checkpoint = ?1 AND hash = ?2"),
            Step::Look => {
                let is_absent = |hash: &u32| !place.blob(*hash).exists();
                self.absent = self.contents.iter().copied().filter(is_absent).collect();
                place.reused += (self.contents.len() - self.absent.len()) as u64;
            }
            Step::Write => {
                let write = |hash: &u32| fs::write(place.blob(*hash), "content").unwrap();
                self.absent.iter().for_each(write);
            }
            Step::Manifest => {
                let names: Vec<String> = self.contents.iter().map(u32::to_string).collect();
                fs::write(place.manifest(checkpoint), names.join(" ")).unwrap();
            }
            Step::Forget => fs::remove_file(place.manifest(checkpoint)).unwrap(),
            Step::Select => {
                let files = fs::read_dir(place.directory.path().join("blobs")).unwrap();
                let hashes =
                    files.map(|file| file.unwrap().file_name().to_str().unwrap().parse().unwrap());
                let hashes: BTreeSet<u32> = hashes.filter(|it| place.is_free(me, *it)).collect();
                self.candidates = hashes.into_iter().take(2).collect();
            }
            Step::Ask if self.protocol == Protocol::AskOnce => {}
            Step::Ask => self.candidates.retain(|hash| place.is_free(me, *hash)),
            Step::Unlink => {
                let at =
                    self.steps[..self.done].iter().filter(|it| matches!(it, Step::Unlink)).count();
                // Another sweep may have been faster.
                let removed =
                    self.candidates.get(at % 2).map(|it| fs::remove_file(place.blob(*it)));
                place.swept += u64::from(removed.is_some_and(|removed| removed.is_ok()));
            }
            Step::Commit => {
                let sql = "DELETE FROM blobs WHERE hash = ?2 AND ?1 IS NOT NULL";
                self.candidates.iter().for_each(|hash| place.execute(me, sql, (0, *hash)));
            }
        }
        if matches!(step, Step::Commit) || (writes && !matches!(step, Step::Ask)) {
            place.commit(me);
        }
        self.done += 1;
    }
}

/// Lets the actors take their turns, and then those that are left until all have ended. Whether a
/// checkpoint was broken at any moment.
fn breaks(place: &mut Place, actors: &mut [Actor], order: impl IntoIterator<Item = usize>) -> bool {
    let count = actors.len();
    let rest = (0..count).cycle().take(1_000);
    for turn in order.into_iter().chain(rest) {
        actors[turn].turn(place);
        if place.is_broken() {
            return true;
        }
        if actors.iter().all(Actor::has_ended) {
            return false;
        }
    }
    panic!("they wait for each other");
}

/// Every order of `first` turns of actor 0 and `second` of actor 1.
fn orders(first: usize, second: usize) -> Vec<Vec<usize>> {
    if first == 0 || second == 0 {
        return vec![[vec![0; first], vec![1; second]].concat()];
    }
    let after = |turn: usize, rest: Vec<Vec<usize>>| {
        rest.into_iter().map(move |order| [vec![turn], order].concat())
    };
    after(0, orders(first - 1, second)).chain(after(1, orders(first, second - 1))).collect()
}

/// In how many of all orders a capture that finds one content in the store, and another not, is
/// broken by a sweep.
fn broken_by_one_sweep(place: &mut Place, protocol: Protocol) -> usize {
    let (capture, sweep) = (steps(&CAPTURE, protocol), steps(&SWEEP, protocol));
    let mut broken = 0;
    for order in orders(capture.len(), sweep.len()) {
        place.reset(&[1, 2]);
        let mut actors = [
            Actor::new(0, protocol, capture.clone(), &[2, 3]),
            Actor::new(1, protocol, sweep.clone(), &[]),
        ];
        broken += usize::from(breaks(place, &mut actors, order));
    }
    broken
}

#[test]
fn no_order_of_a_capture_and_a_sweep_breaks_a_checkpoint() {
    let mut place = Place::new(2);
    assert_eq!(broken_by_one_sweep(&mut place, Protocol::Whole), 0);
    place.assert_busy();
}

#[test]
fn every_rule_of_the_protocol_is_needed() {
    let mut place = Place::new(2);
    for mutant in MUTANTS {
        assert_ne!(broken_by_one_sweep(&mut place, mutant), 0, "{mutant:?}");
    }
}

/// Numbers that are the same in every run (xorshift64).
fn numbers(seed: u64) -> impl FnMut(u64) -> u32 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |bound| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        u32::try_from((state >> 33) % bound).unwrap()
    }
}

/// Three that capture and prune, again and again, what they share, and two that sweep: whether a
/// checkpoint is broken in one long order.
fn breaks_in_a_crowd(place: &mut Place, protocol: Protocol, seed: u64) -> bool {
    let mut number = numbers(seed);
    place.reset(&[1, 2, 3]);
    let mut actors: Vec<Actor> = Vec::new();
    for at in 0..5 {
        let round = if at < 3 {
            [&steps(&CAPTURE, protocol)[..], &PRUNE].concat()
        } else {
            steps(&SWEEP, protocol)
        };
        let contents = BTreeSet::from([1 + number(5), 1 + number(5)]);
        let contents: Vec<u32> = contents.into_iter().collect();
        actors.push(Actor::new(at, protocol, round.repeat(6), &contents));
    }
    let order: Vec<usize> = (0..200).map(|_| usize::try_from(number(5)).unwrap()).collect();
    breaks(place, &mut actors, order)
}

#[test]
fn no_crowd_of_captures_prunes_and_sweeps_breaks_a_checkpoint() {
    let mut place = Place::new(5);
    for seed in 0..40 {
        assert!(!breaks_in_a_crowd(&mut place, Protocol::Whole, seed), "{seed}");
    }
    place.assert_busy();
    for mutant in MUTANTS {
        let is_caught = (0..40).any(|seed| breaks_in_a_crowd(&mut place, mutant, seed));
        assert!(is_caught, "{mutant:?}");
    }
}
