//! Backup programs: every capture opens a repository that is encrypted and cut into chunks.

use std::process::Command;

use crate::Outcome;
use crate::peer::{Ability, Pace, Peer, Site, Task};
use crate::process::{answer, bare, first_line, succeed};

pub(crate) struct Restic;

impl Restic {
    fn restic(site: &Site) -> Command {
        let mut command = bare("restic", &site.home);
        command.env("RESTIC_REPOSITORY", &site.store).env("RESTIC_PASSWORD", "bench");
        command.arg("--quiet").current_dir(&site.tree);
        command
    }
}

impl Peer for Restic {
    fn name(&self) -> &'static str {
        "restic"
    }

    fn version(&self) -> Option<String> {
        first_line(Command::new("restic").arg("version"))
    }

    fn pace(&self) -> Pace {
        Pace::Few
    }

    fn obeys_ignore_files(&self) -> bool {
        false
    }

    fn prepare(&self, site: &Site) -> Outcome<()> {
        succeed(Self::restic(site).arg("init"))?;
        Ok(())
    }

    fn command(&self, site: &Site, task: &Task<'_>) -> Ability {
        let mut command = Self::restic(site);
        match *task {
            Task::Capture { .. } | Task::Hinted { .. } => command.args(["backup", "."]),
            Task::PathsBack { from, paths } => {
                command.args(["restore", from, "--target"]).arg(&site.tree);
                for path in paths {
                    command.arg("--include").arg(format!("/{path}"));
                }
                &mut command
            }
            // It removes nothing that is not in the snapshot.
            Task::WholeBack { .. } => return Ability::Cannot,
            Task::Into { from, out } => command.args(["restore", from, "--target"]).arg(out),
            Task::List => command.arg("snapshots"),
            Task::Views => return Ability::Cannot,
            Task::Diff { from, to } => command.args(["diff", from, to]),
            Task::Collect { keep } => {
                command.args(["forget", "--prune", "--keep-last", &keep.to_string()])
            }
        };
        Ability::Runs(command)
    }

    fn newest(&self, site: &Site) -> Outcome<String> {
        newest_snapshot(Self::restic(site).args(["snapshots", "--json"]))
    }
}

pub(crate) struct Rustic;

impl Rustic {
    fn rustic(site: &Site) -> Command {
        let mut command = bare("rustic", &site.home);
        command.env("RUSTIC_REPOSITORY", &site.store).env("RUSTIC_PASSWORD", "bench");
        command.env("RUSTIC_NO_PROGRESS", "true").env("RUSTIC_LOG_LEVEL", "warn");
        command.current_dir(&site.tree);
        command
    }
}

impl Peer for Rustic {
    fn name(&self) -> &'static str {
        "rustic"
    }

    fn version(&self) -> Option<String> {
        first_line(Command::new("rustic").arg("--version"))
    }

    fn pace(&self) -> Pace {
        Pace::Few
    }

    fn obeys_ignore_files(&self) -> bool {
        false
    }

    fn prepare(&self, site: &Site) -> Outcome<()> {
        succeed(Self::rustic(site).arg("init"))?;
        Ok(())
    }

    fn command(&self, site: &Site, task: &Task<'_>) -> Ability {
        let mut command = Self::rustic(site);
        match *task {
            Task::Capture { .. } | Task::Hinted { .. } => {
                command.arg("backup").arg(&site.tree);
            }
            // One path a command.
            Task::PathsBack { .. } => return Ability::Cannot,
            Task::WholeBack { from } => {
                command.args(["restore", "--delete"]).arg(inside(from, site)).arg(&site.tree);
            }
            Task::Into { from, out } => {
                command.arg("restore").arg(inside(from, site)).arg(out);
            }
            Task::List => {
                command.arg("snapshots");
            }
            Task::Views => return Ability::Cannot,
            Task::Diff { from, to } => {
                command.args(["diff", from, to]);
            }
            Task::Collect { keep } => {
                command.args(["forget", "--prune", "--keep-last", &keep.to_string()]);
            }
        }
        Ability::Runs(command)
    }

    fn newest(&self, site: &Site) -> Outcome<String> {
        newest_snapshot(Self::rustic(site).args(["snapshots", "--json"]))
    }
}

/// The tree in a snapshot, which holds it under its whole path.
fn inside(snapshot: &str, site: &Site) -> String {
    format!("{snapshot}:{}", site.tree.display())
}

/// Of what `snapshots --json` prints: a list of snapshots, or of groups of them.
fn newest_snapshot(command: &mut Command) -> Outcome<String> {
    let listed: serde_json::Value = serde_json::from_str(&answer(command)?)?;
    let mut newest = ("", "");
    let mut left = vec![&listed];
    while let Some(value) = left.pop() {
        match value {
            serde_json::Value::Array(values) => left.extend(values),
            serde_json::Value::Object(fields) => match (fields["id"].as_str(), &fields["time"]) {
                (Some(id), serde_json::Value::String(time)) => newest = newest.max((time, id)),
                _ => left.extend(fields.values()),
            },
            _ => {}
        }
    }
    if newest.1.is_empty() { Err("no snapshot is listed".into()) } else { Ok(newest.1.to_owned()) }
}
