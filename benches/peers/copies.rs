//! Copies of the tree: what needs no format at all.

use std::process::Command;

use crate::Outcome;
use crate::peer::{Ability, Pace, Peer, Site, Task};
use crate::process::{answer, bare, first_line};

/// `rsync --link-dest`: each capture is a directory, and what has not changed is a link to the file
/// in the one before.
pub(crate) struct Rsync;

const COLLECT: &str = "ls -1r | tail -n +$(($KEEP + 1)) | xargs -r rm -rf --";

/// Their names sort by age.
fn name_of(number: usize) -> String {
    format!("{number:09}")
}

impl Peer for Rsync {
    fn name(&self) -> &'static str {
        "rsync"
    }

    fn version(&self) -> Option<String> {
        first_line(Command::new("rsync").arg("--version"))
    }

    fn pace(&self) -> Pace {
        Pace::Few
    }

    /// Its filters are of another kind: `!` means something else to it.
    fn obeys_ignore_files(&self) -> bool {
        false
    }

    fn command(&self, site: &Site, task: &Task<'_>) -> Ability {
        let mut command = bare("rsync", &site.home);
        command.arg("-a");
        match *task {
            Task::Capture { number, .. } | Task::Hinted { number, .. } => {
                if let Some(last) = number.checked_sub(1) {
                    command.arg("--link-dest").arg(site.store.join(name_of(last)));
                }
                command.arg("./").arg(site.store.join(name_of(number)));
                command.current_dir(&site.tree);
            }
            Task::PathsBack { from, paths } => {
                command.arg("-R").args(paths).arg(&site.tree).current_dir(site.store.join(from));
            }
            Task::WholeBack { from } => {
                command.args(["--delete", "./"]).arg(&site.tree);
                command.current_dir(site.store.join(from));
            }
            Task::Into { from, out } => {
                command.arg("./").arg(out).current_dir(site.store.join(from));
            }
            Task::List => {
                command = bare("ls", &site.home);
                command.arg(&site.store);
            }
            // It lists what it would copy, which says nothing of what is gone.
            Task::Views | Task::Diff { .. } => return Ability::Cannot,
            Task::Collect { keep } => {
                command = bare("sh", &site.home);
                command.args(["-c", COLLECT]).env("KEEP", keep.to_string());
                command.current_dir(&site.store);
            }
        }
        Ability::Runs(command)
    }

    fn newest(&self, site: &Site) -> Outcome<String> {
        let mut list = bare("ls", &site.home);
        let names = answer(list.arg(&site.store))?;
        Ok(names.lines().last().ok_or("rsync has no capture")?.to_owned())
    }
}

/// `cp -a`: what writing a tree costs.
pub(crate) struct Copy;

impl Peer for Copy {
    fn name(&self) -> &'static str {
        "cp"
    }

    fn version(&self) -> Option<String> {
        first_line(Command::new("cp").arg("--version"))
    }

    fn pace(&self) -> Pace {
        Pace::Once
    }

    fn obeys_ignore_files(&self) -> bool {
        false
    }

    fn command(&self, site: &Site, task: &Task<'_>) -> Ability {
        let mut command = bare("cp", &site.home);
        command.args(["-a", "."]).current_dir(&site.tree);
        match *task {
            Task::Capture { .. } => command.arg(site.store.join("copy")),
            Task::Into { out, .. } => command.arg(out),
            _ => return Ability::Cannot,
        };
        Ability::Runs(command)
    }

    fn newest(&self, _site: &Site) -> Outcome<String> {
        Err("cp keeps one copy, and no more".into())
    }
}
