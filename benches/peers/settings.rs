//! What a run is asked to do.

use std::path::PathBuf;

use crate::Outcome;
use crate::operation::{Operation, Phase};

pub(crate) const USAGE: &str = "\
peers [--quick | --full] [--peers A,B] [--operations A,B] [--dir DIR] [--program FILE]
      [--files N] [--rounds N] [--slow-rounds N] [--first-rounds N] [--edits N] [--seed N] [--keep]

  --quick         10,000 files; git, the bare walk and turnpoint: under three minutes
  --full          100,000 files and every peer: under forty minutes
  --peers         these alone: turnpoint, git, jj, walk, git-tuned, git-ghost, cp, restic,
                  rustic, rsync
  --operations    these alone: first, unchanged, void, edited, hinted, paths, whole, into, list,
                  diff, gc, size, growth, size-gc, growth-gc, written, peak-first, peak
  --dir           where to work: on the file system to be measured (where temporary files go)
  --program       the turnpoint to run (the one that was built with this bench)
  --files         size of the tree (10,000)
  --rounds        counted rounds (7)
  --slow-rounds   how many of them the slow peers take part in (2)
  --first-rounds  counted rounds of what writes a whole tree (2)
  --edits         how many files a turn changes (10)
  --seed          of the tree, the edits and the order of the peers (1)
  --keep          leave everything there at the end";

/// The peers of `--quick`.
const QUICK: &[&str] = &["turnpoint", "git", "walk"];

pub(crate) struct Settings {
    pub(crate) files: usize,
    pub(crate) rounds: usize,
    pub(crate) slow_rounds: usize,
    pub(crate) first_rounds: usize,
    pub(crate) edits: usize,
    pub(crate) seed: u64,
    pub(crate) dir: PathBuf,
    pub(crate) program: PathBuf,
    /// All where none are named.
    pub(crate) peers: Option<Vec<String>>,
    pub(crate) operations: Vec<Operation>,
    pub(crate) keep: bool,
}

impl Settings {
    /// `None` where help is asked for. What stands later wins.
    pub(crate) fn parse(mut arguments: impl Iterator<Item = String>) -> Outcome<Option<Self>> {
        let mut settings = Self {
            files: 10_000,
            rounds: 7,
            slow_rounds: 2,
            first_rounds: 2,
            edits: 10,
            seed: 1,
            dir: std::env::temp_dir(),
            program: env!("CARGO_BIN_EXE_turnpoint").into(),
            peers: None,
            operations: Operation::ALL.to_vec(),
            keep: false,
        };
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
            match argument.as_str() {
                // What cargo itself adds.
                "--bench" => {}
                "--quick" => settings.peers = Some(QUICK.iter().map(ToString::to_string).collect()),
                "--full" => settings.files = 100_000,
                "--peers" => {
                    settings.peers = Some(value()?.split(',').map(str::to_owned).collect());
                }
                "--operations" => settings.operations = Operation::parse_list(&value()?)?,
                "--files" => settings.files = value()?.parse()?,
                "--rounds" => settings.rounds = value()?.parse()?,
                "--slow-rounds" => settings.slow_rounds = value()?.parse()?,
                "--first-rounds" => settings.first_rounds = value()?.parse()?,
                "--edits" => settings.edits = value()?.parse()?,
                "--seed" => settings.seed = value()?.parse()?,
                "--dir" => settings.dir = value()?.into(),
                "--program" => settings.program = std::fs::canonicalize(value()?)?,
                "--keep" => settings.keep = true,
                "--help" | "-h" => return Ok(None),
                other => return Err(format!("`{other}` is not known").into()),
            }
        }
        if settings.files < 100 || settings.rounds == 0 || settings.first_rounds == 0 {
            return Err("at least 100 files and one round of each".into());
        }
        if settings.edits == 0 || settings.edits > settings.files / 10 {
            return Err("at least one edit, and at most one for ten files".into());
        }
        Ok(Some(settings))
    }

    pub(crate) fn wants(&self, operation: Operation) -> bool {
        self.operations.contains(&operation)
    }

    pub(crate) fn wants_phase(&self, phase: Phase) -> bool {
        self.operations.iter().any(|operation| operation.phase() == phase)
    }
}
