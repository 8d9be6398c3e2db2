//! jj: each snapshot of the working copy is an operation that can be gone back to. It has a
//! directory in the tree, so a tree of its own.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::process::Command;

use crate::Outcome;
use crate::peer::{Ability, Peer, Site, Task};
use crate::process::{answer, bare, first_line, succeed};

pub(crate) struct Jj;

/// `jj op abandon ..OP` gives up what is before an operation, and needs one to be there.
const COLLECT: &str = "oldest=$(jj op log --ignore-working-copy --no-graph -T 'id ++ \"\\n\"' | \
                       sed -n \"${KEEP}p\") && \
                       { [ -z \"$oldest\" ] || \
                         jj op abandon --ignore-working-copy \"..$oldest\"; } && \
                       jj util gc --ignore-working-copy --expire now";

/// A snapshot of the size of the corpus has files above jj's limit for new ones.
const SETTINGS: &str = "user.name = \"bench\"\n\
                        user.email = \"bench@example.com\"\n\
                        snapshot.max-new-file-size = \"1GiB\"\n\
                        ui.paginate = \"never\"\n\
                        ui.color = \"never\"\n";

impl Jj {
    fn with_jj(program: &str, site: &Site) -> Command {
        let mut command = bare(program, &site.home);
        command.env("JJ_CONFIG", site.home.join("jj.toml")).current_dir(&site.tree);
        command
    }
}

impl Peer for Jj {
    fn name(&self) -> &'static str {
        "jj"
    }

    fn version(&self) -> Option<String> {
        first_line(Command::new("jj").arg("--version"))
    }

    fn directory_in_tree(&self) -> Option<&'static str> {
        Some(".jj")
    }

    fn prepare(&self, site: &Site) -> Outcome<()> {
        fs::write(site.home.join("jj.toml"), SETTINGS)?;
        remove_link(site)?;
        // What it makes in the tree is moved to the store, and a link stands for it.
        let mut init = Self::with_jj("jj", site);
        succeed(init.args(["git", "init", "--quiet", "--no-colocate"]))?;
        fs::rename(site.tree.join(".jj"), site.store.join("jj"))?;
        Ok(())
    }

    fn select(&self, site: &Site) -> Outcome<()> {
        remove_link(site)?;
        symlink(site.store.join("jj"), site.tree.join(".jj"))?;
        Ok(())
    }

    fn command(&self, site: &Site, task: &Task<'_>) -> Ability {
        let mut command = Self::with_jj("jj", site);
        match *task {
            Task::Capture { .. } | Task::Hinted { .. } => {
                command.args(["util", "snapshot", "--quiet"]);
            }
            Task::PathsBack { from, paths } => {
                command.args(["restore", "--quiet", "--from", commit_of(from), "--"]);
                command.args(paths.iter().map(|path| format!("root-file:\"{path}\"")));
            }
            Task::WholeBack { from } => {
                command.args(["op", "restore", "--quiet", operation_of(from)]);
            }
            Task::Into { from, out } => {
                command.args(["workspace", "add", "--quiet", "--revision", commit_of(from)]);
                command.arg(out);
            }
            // Without the snapshot that comes before every command of jj.
            Task::List => {
                command.args(["op", "log", "--ignore-working-copy", "--no-graph", "--limit", "50"]);
            }
            Task::Views => return Ability::Cannot,
            Task::Diff { from, to } => {
                command.args(["diff", "--ignore-working-copy", "--summary"]);
                command.args(["--from", commit_of(from), "--to", commit_of(to)]);
            }
            Task::Collect { keep } => {
                command = Self::with_jj("sh", site);
                command.args(["-c", COLLECT]).env("KEEP", keep.to_string());
            }
        }
        Ability::Runs(command)
    }

    /// The operation, and the commit that was the working copy then.
    fn newest(&self, site: &Site) -> Outcome<String> {
        let ask = |arguments: &[&str]| {
            let mut jj = Self::with_jj("jj", site);
            answer(jj.args(arguments).args(["--ignore-working-copy", "--no-graph", "--limit", "1"]))
        };
        let operation = ask(&["op", "log", "-T", "id"])?;
        let commit = ask(&["log", "-r", "@", "-T", "commit_id"])?;
        Ok(format!("{operation} {commit}"))
    }
}

fn operation_of(newest: &str) -> &str {
    newest.split_once(' ').map_or(newest, |(operation, _)| operation)
}

fn commit_of(newest: &str) -> &str {
    newest.split_once(' ').map_or(newest, |(_, commit)| commit)
}

fn remove_link(site: &Site) -> io::Result<()> {
    match fs::remove_file(site.tree.join(".jj")) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
