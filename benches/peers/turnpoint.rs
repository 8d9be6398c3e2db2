//! turnpoint itself.

use std::path::PathBuf;
use std::process::Command;

use crate::Outcome;
use crate::peer::{Ability, Peer, Site, Task};
use crate::process::{bare, first_line, succeed};

/// The view with the most rows: a row for each file of each checkpoint.
/// The heaviest of the views, of the session in which as many are kept as by default.
const VIEWS: &str = "SELECT count(*) FROM checkpoint_files WHERE session = 'bench'";

pub(crate) struct Turnpoint {
    program: PathBuf,
    has_hints: bool,
    has_diff: bool,
    has_sql: bool,
}

impl Turnpoint {
    /// Asks the program what it can do.
    pub(crate) fn new(program: PathBuf) -> Self {
        let help = |arguments: &[&str]| {
            let output = Command::new(&program).args(arguments).output();
            output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        };
        let has_hints = help(&["capture", "--help"])
            .is_ok_and(|text| text.split_whitespace().any(|word| word == "--changed-from"));
        let has = |command: &str| {
            help(&["help"]).is_ok_and(|text| {
                text.lines().any(|line| {
                    line.starts_with("  ") && line.split_whitespace().next() == Some(command)
                })
            })
        };
        let (has_diff, has_sql) = (has("diff"), has("sql"));
        Self { program, has_hints, has_diff, has_sql }
    }

    fn turnpoint(&self, site: &Site) -> Command {
        let mut command = bare(&self.program, &site.home);
        command.env("TURNPOINT_HOME", &site.store).arg("-C").arg(&site.tree);
        command
    }

    fn capture(&self, site: &Site, session: &str) -> Command {
        let mut command = self.turnpoint(site);
        command.args(["capture", "--session", session, "--json"]);
        command
    }
}

impl Peer for Turnpoint {
    fn name(&self) -> &'static str {
        "turnpoint"
    }

    fn version(&self) -> Option<String> {
        first_line(Command::new(&self.program).arg("--version"))
    }

    fn command(&self, site: &Site, task: &Task<'_>) -> Ability {
        let mut command = self.turnpoint(site);
        match *task {
            Task::Capture { session, .. } => command = self.capture(site, session),
            Task::Hinted { .. } if !self.has_hints => return Ability::Missing,
            Task::Hinted { session, changed, .. } => {
                command = self.capture(site, session);
                command.arg("--changed-from").arg(changed);
            }
            Task::PathsBack { from, paths } => {
                command.args(["restore", from, "--yes", "--"]).args(paths);
            }
            Task::WholeBack { from } => {
                command.args(["restore", from, "--yes"]);
            }
            Task::Into { from, out } => {
                command.args(["restore", from, "--into"]).arg(out);
            }
            Task::List => {
                command.arg("list");
            }
            Task::Diff { .. } if !self.has_diff => return Ability::Missing,
            Task::Diff { from, to } => {
                command.args(["diff", from, to]);
            }
            Task::Views if !self.has_sql => return Ability::Missing,
            Task::Views => {
                command.args(["sql", "--timeout", "600", VIEWS]);
            }
            // Each capture drops what is too old in its session, so 20 stay here.
            Task::Collect { .. } => {
                command.arg("gc");
            }
        }
        Ability::Runs(command)
    }

    /// The newest that a restore did not make.
    fn newest(&self, site: &Site) -> Outcome<String> {
        let list = succeed(self.turnpoint(site).args(["show", "latest", "--json"]))?;
        let shown: serde_json::Value = serde_json::from_slice(&list)?;
        let (Some(session), Some(seq)) = (shown["session"].as_str(), shown["seq"].as_u64()) else {
            return Err("turnpoint shows no newest checkpoint".into());
        };
        Ok(format!("{session}:{seq}"))
    }
}
