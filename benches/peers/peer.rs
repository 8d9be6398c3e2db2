//! What a peer is: a program that does some of the tasks, each as one command.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Outcome;

/// Where a peer works.
#[derive(Debug, Clone)]
pub(crate) struct Site {
    /// A directory of the peer's own.
    pub(crate) store: PathBuf,
    /// A home directory of the peer's own: settings and caches.
    pub(crate) home: PathBuf,
    /// The tree: one for all, or the peer's own copy.
    pub(crate) tree: PathBuf,
}

/// What is to be done.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Task<'a> {
    /// The capture `number` into this store; 0 is the first.
    Capture { number: usize, session: &'a str },
    /// The same after changes to nothing but the paths that the file names, one a line.
    Hinted { number: usize, session: &'a str, changed: &'a Path },
    /// These paths back as in the capture `from`, and nothing else.
    PathsBack { from: &'a str, paths: &'a [String] },
    /// Everything back as in the capture `from`.
    WholeBack { from: &'a str },
    /// The capture `from` written to the empty directory `out`.
    Into { from: &'a str, out: &'a Path },
    /// The newest 50 captures, or all there are.
    List,
    /// The names that differ between two captures.
    Diff { from: &'a str, to: &'a str },
    /// How many files the captures of a session have, by a query over all files of each.
    Views,
    /// Everything away but the newest `keep` captures.
    Collect { keep: usize },
}

/// Whether a peer does a task.
pub(crate) enum Ability {
    Runs(Command),
    /// It has nothing of the kind.
    Cannot,
    /// It will have, and this version does not yet.
    Missing,
}

/// How often a peer is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// In every round.
    Every,
    /// In as many as `--slow-rounds` says: it takes seconds where others take a fraction of one.
    Few,
    /// Only for what writes a whole tree.
    Once,
}

/// A program that captures a tree.
pub(crate) trait Peer {
    fn name(&self) -> &'static str;

    /// One line that says which one it is; none where it is not there.
    fn version(&self) -> Option<String>;

    fn pace(&self) -> Pace {
        Pace::Every
    }

    /// What it puts into the tree, which others must not see: it gets a copy.
    fn directory_in_tree(&self) -> Option<&'static str> {
        None
    }

    /// Whether it leaves out what the ignore files name; else it holds more than the others.
    fn obeys_ignore_files(&self) -> bool {
        true
    }

    /// Whether it keeps captures.
    fn keeps_captures(&self) -> bool {
        true
    }

    /// Whether `Collect` really drops old captures.
    fn drops_captures(&self) -> bool {
        true
    }

    /// Makes what a first capture needs and is not part of it, in the new directory `site.store`.
    fn prepare(&self, _site: &Site) -> Outcome<()> {
        Ok(())
    }

    /// Makes `site.store` the one that the commands to come work on.
    fn select(&self, _site: &Site) -> Outcome<()> {
        Ok(())
    }

    /// Everything that has to be run for `task`, as one command.
    fn command(&self, site: &Site, task: &Task<'_>) -> Ability;

    /// What names the newest capture, in the form that [`Task`] takes it.
    fn newest(&self, site: &Site) -> Outcome<String>;
}
