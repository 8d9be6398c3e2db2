//! The peers with what they have done so far, and the trees that they work on.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, utimensat};

use crate::Outcome;
use crate::corpus::{Corpus, Edit, Kind, Random, Shape};
use crate::fingerprint::{self, Fingerprint};
use crate::operation::Operation;
use crate::peer::{Ability, Pace, Peer, Site, Task};
use crate::process::{measure, succeed};
use crate::settings::Settings;
use crate::surroundings::FileSystem;

/// The session of turnpoint's that the rounds go to.
pub(crate) const SESSION: &str = "bench";

/// A peer with what it did.
pub(crate) struct Contestant {
    pub(crate) peer: Box<dyn Peer>,
    place: PathBuf,
    /// How many captures each of its stores has.
    captures: BTreeMap<usize, usize>,
    /// By operation: the round, and the figure.
    pub(crate) figures: BTreeMap<Operation, Vec<(usize, f64)>>,
    /// What this version does not do yet.
    pub(crate) missing: BTreeSet<Operation>,
}

impl Contestant {
    pub(crate) fn new(peer: Box<dyn Peer>, place: &Path) -> Self {
        Self {
            peer,
            place: place.to_owned(),
            captures: BTreeMap::new(),
            figures: BTreeMap::new(),
            missing: BTreeSet::new(),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.peer.name()
    }

    pub(crate) fn site(&self, store: usize) -> Site {
        let path = self.place.join(format!("{}-{store}", self.name()));
        Site { home: path.with_extension("home"), store: path, tree: self.tree() }
    }

    pub(crate) fn tree(&self) -> PathBuf {
        if self.peer.directory_in_tree().is_some() {
            self.place.join(format!("tree-of-{}", self.name()))
        } else {
            self.place.join("tree")
        }
    }

    /// What is in `root` besides what the peer has put there.
    pub(crate) fn fingerprint(&self, root: &Path) -> Fingerprint {
        let mut found = fingerprint::of(root);
        if let Some(own) = self.peer.directory_in_tree() {
            found.retain(|path, _| !path.starts_with(own));
        }
        found
    }

    /// Makes and selects an empty store.
    pub(crate) fn open_store(&mut self, store: usize) -> Outcome<()> {
        let site = self.site(store);
        fs::create_dir(&site.store)?;
        fs::create_dir(&site.home)?;
        self.captures.insert(store, 0);
        self.peer.prepare(&site)?;
        self.peer.select(&site)
    }

    /// What runs the next capture into `store`; counts it.
    pub(crate) fn capture(&mut self, store: usize, session: &str) -> Ability {
        let number = self.next_number(store);
        self.peer.command(&self.site(store), &Task::Capture { number, session })
    }

    pub(crate) fn hinted_capture(&mut self, store: usize, changed: &Path) -> Ability {
        let number = self.next_number(store);
        let task = Task::Hinted { number, session: SESSION, changed };
        self.peer.command(&self.site(store), &task)
    }

    /// Whether this version cannot be told what has changed, and a later one can.
    pub(crate) fn lacks_hints(&self, store: usize, changed: &Path) -> bool {
        let task = Task::Hinted { number: 0, session: SESSION, changed };
        matches!(self.peer.command(&self.site(store), &task), Ability::Missing)
    }

    fn next_number(&mut self, store: usize) -> usize {
        let number = self.captures.entry(store).or_default();
        *number += 1;
        *number - 1
    }

    /// A capture that does not count.
    pub(crate) fn capture_quietly(&mut self, store: usize, session: &str) -> Outcome<()> {
        if let Ability::Runs(mut command) = self.capture(store, session) {
            succeed(&mut command)?;
        }
        Ok(())
    }

    /// Runs what the peer is able to, and keeps the time it took. Says whether it ran.
    pub(crate) fn time(
        &mut self,
        operation: Operation,
        round: usize,
        ability: Ability,
    ) -> Outcome<bool> {
        match ability {
            Ability::Runs(mut command) => {
                let measured = measure(&mut command)?;
                self.record(operation, round, measured.seconds * 1000.0);
                if operation == Operation::Unchanged {
                    self.record(Operation::Written, round, kilo(measured.written_bytes));
                }
                return Ok(true);
            }
            Ability::Missing => {
                self.missing.insert(operation);
            }
            Ability::Cannot => {}
        }
        Ok(false)
    }

    pub(crate) fn record(&mut self, operation: Operation, round: usize, figure: f64) {
        self.figures.entry(operation).or_default().push((round, figure));
    }
}

/// Everything that a run works with.
pub(crate) struct Contest<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) place: PathBuf,
    pub(crate) file_system: FileSystem,
    pub(crate) random: Random,
    pub(crate) contestants: Vec<Contestant>,
    /// The tree, and the copies of it that some have for themselves.
    trees: Vec<Corpus>,
    turn: u64,
    started: Instant,
}

impl<'a> Contest<'a> {
    pub(crate) fn new(
        settings: &'a Settings,
        place: &Path,
        file_system: FileSystem,
        contestants: Vec<Contestant>,
    ) -> Outcome<Self> {
        let shape = Shape { seed: settings.seed, ..Shape::of(settings.files) };
        let mut trees = vec![Corpus::generate(&place.join("tree"), shape)?];
        for contestant in contestants.iter().filter(|one| one.peer.directory_in_tree().is_some()) {
            let mut copy = trees[0].clone();
            copy.root = contestant.tree();
            let mut command = Command::new("cp");
            succeed(command.arg("-a").arg(&trees[0].root).arg(&copy.root))?;
            trees.push(copy);
        }
        Ok(Self {
            settings,
            place: place.to_owned(),
            file_system,
            random: Random::new(settings.seed),
            contestants,
            trees,
            turn: 0,
            started: Instant::now(),
        })
    }

    /// The tree that most share.
    pub(crate) fn corpus(&self) -> &Corpus {
        &self.trees[0]
    }

    /// The same turn of edits in every tree.
    pub(crate) fn edit(&mut self, count: usize, kinds: &[(Kind, u32)]) -> Outcome<Vec<Edit>> {
        self.turn += 1;
        let mut edits = Vec::new();
        for tree in &mut self.trees {
            edits = tree.turn(self.turn, count, kinds)?;
        }
        Ok(edits)
    }

    /// Gives every directory new stamps, as a checkout does that makes and removes names in it.
    pub(crate) fn touch_directories(&self) -> Outcome<()> {
        for tree in &self.trees {
            touch_below(&tree.root)?;
        }
        Ok(())
    }

    /// In every tree.
    pub(crate) fn remove_empty_directories(&self) -> Outcome<()> {
        for tree in &self.trees {
            for name in fs::read_dir(&tree.root)? {
                let name = name?;
                if name.file_type()?.is_dir() {
                    remove_if_empty(&name.path())?;
                }
            }
        }
        Ok(())
    }

    /// The contestants of `round` in a new order.
    pub(crate) fn shuffled(&mut self, round: usize) -> Vec<&mut Contestant> {
        self.random.shuffle(&mut self.contestants);
        let slow_rounds = self.settings.slow_rounds;
        let takes_part = |contestant: &&mut Contestant| match contestant.peer.pace() {
            Pace::Every => true,
            Pace::Few => round <= slow_rounds,
            Pace::Once => false,
        };
        self.contestants.iter_mut().filter(takes_part).collect()
    }

    /// Makes `store` the one in use.
    pub(crate) fn select(&self, store: usize) -> Outcome<()> {
        for contestant in &self.contestants {
            if contestant.peer.pace() != Pace::Once {
                contestant.peer.select(&contestant.site(store))?;
            }
        }
        Ok(())
    }

    /// One capture by each that does not count.
    pub(crate) fn capture_all(&mut self, store: usize, round: usize) -> Outcome<()> {
        for contestant in self.shuffled(round) {
            contestant.capture_quietly(store, SESSION)?;
        }
        Ok(())
    }

    /// Whether nothing is deleted during the run: because that is wanted, or because it would slow
    /// down what comes after.
    pub(crate) fn keeps_everything(&self) -> bool {
        self.settings.keep || self.file_system.is_slow_after_deleting
    }

    /// A run takes long: where it is goes to standard error.
    pub(crate) fn tell(&self, phase: &str) {
        eprintln!("{:>6.0} s  {phase}", self.started.elapsed().as_secs_f64());
    }
}

fn touch_below(directory: &Path) -> Outcome<()> {
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let now = Timestamps { last_access: now, last_modification: now };
    let mut left = vec![directory.to_owned()];
    while let Some(directory) = left.pop() {
        utimensat(CWD, &directory, &now, AtFlags::SYMLINK_NOFOLLOW)?;
        for name in fs::read_dir(&directory)? {
            let name = name?;
            if name.file_type()?.is_dir() {
                left.push(name.path());
            }
        }
    }
    Ok(())
}

/// Removes what holds nothing but empty directories. Says whether it did.
fn remove_if_empty(directory: &Path) -> io::Result<bool> {
    let mut is_empty = true;
    for name in fs::read_dir(directory)? {
        let name = name?;
        is_empty &= name.file_type()?.is_dir() && remove_if_empty(&name.path())?;
    }
    if is_empty {
        fs::remove_dir(directory)?;
    }
    Ok(is_empty)
}

/// Deletes what is no longer needed, unless everything is kept.
pub(crate) fn discard(directory: &Path, keeps_everything: bool) -> io::Result<()> {
    if keeps_everything { Ok(()) } else { fs::remove_dir_all(directory) }
}

/// Hands everything that was written to the disk, so that the next to be timed does not pay for it.
pub(crate) fn settle() {
    rustix::fs::sync();
}

#[expect(clippy::cast_precision_loss, reason = "shown with one digit")]
pub(crate) fn kilo(bytes: u64) -> f64 {
    bytes as f64 / 1e3
}

pub(crate) fn mega(bytes: u64) -> f64 {
    kilo(bytes) / 1e3
}
