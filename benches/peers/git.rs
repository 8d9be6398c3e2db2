//! git, in the styles in which agents use it, each with a repository beside the tree.

use std::path::Path;
use std::process::Command;

use crate::Outcome;
use crate::peer::{Ability, Pace, Peer, Site, Task};
use crate::process::{answer, bare, first_line, succeed};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// A shadow repository: one index, one chain of commits.
    Shadow,
    /// The same with what git has to offer for large trees.
    Tuned,
    /// A temporary index for each capture, filled from the last one's tree: it has no stamps, so
    /// every file is read. Each capture has a name of its own and no parent.
    Ghost,
}

pub(crate) struct Git(pub(crate) Style);

const SHADOW: &str = "git add -A && tree=$(git write-tree) && \
                      commit=$(git commit-tree $PARENT -m turn $tree) && \
                      git update-ref refs/turns/bench $commit";
/// Of the same, told what has changed.
const HINTED: &str = "git add -A --pathspec-from-file=\"$1\" && tree=$(git write-tree) && \
                      commit=$(git commit-tree $PARENT -m turn $tree) && \
                      git update-ref refs/turns/bench $commit";
const GHOST: &str = "rm -f \"$GIT_INDEX_FILE\" && { [ -z \"$LAST\" ] || git read-tree $LAST; } && \
                     git add -A && tree=$(git write-tree) && \
                     commit=$(git commit-tree -m turn $tree) && git update-ref $REF $commit";
/// The names sort by age.
const GHOST_COLLECT: &str = "git for-each-ref --sort=-refname --format='delete %(refname)' | \
                             tail -n +$(($KEEP + 1)) | git update-ref --stdin && \
                             git gc --quiet --prune=now";

impl Git {
    /// `program` with git pointed at the store.
    fn with_git(&self, program: &str, site: &Site) -> Command {
        let mut command = bare(program, &site.home);
        command.env("GIT_DIR", &site.store).env("GIT_WORK_TREE", &site.tree);
        command.env("GIT_LITERAL_PATHSPECS", "1").current_dir(&site.tree);
        if self.0 == Style::Ghost {
            command.env("GIT_INDEX_FILE", site.store.join("ghost-index"));
        }
        command
    }

    fn script(&self, site: &Site, script: &str) -> Command {
        let mut command = self.with_git("sh", site);
        command.arg("-c").arg(script).arg("sh");
        command
    }

    fn capture(&self, site: &Site, number: usize) -> Command {
        if self.0 == Style::Ghost {
            let name = |number: usize| format!("refs/turns/{number:09}");
            let mut command = self.script(site, GHOST);
            let last = number.checked_sub(1).map(name);
            command.env("REF", name(number)).env("LAST", last.unwrap_or_default());
            return command;
        }
        let mut command = self.script(site, SHADOW);
        command.env("PARENT", parent(number));
        command
    }

    /// Into another directory, through an index of its own.
    fn into(&self, site: &Site, from: &str, out: &Path) -> Command {
        let mut command =
            self.script(site, "git read-tree $FROM && git checkout-index --all --prefix=\"$1/\"");
        command.env("GIT_INDEX_FILE", site.store.join("restore-index"));
        command.env("FROM", from).arg(out);
        command
    }
}

fn parent(number: usize) -> &'static str {
    if number == 0 { "" } else { "-p refs/turns/bench" }
}

impl Peer for Git {
    fn name(&self) -> &'static str {
        match self.0 {
            Style::Shadow => "git",
            Style::Tuned => "git-tuned",
            Style::Ghost => "git-ghost",
        }
    }

    fn version(&self) -> Option<String> {
        first_line(Command::new("git").arg("--version"))
    }

    fn pace(&self) -> Pace {
        if self.0 == Style::Ghost { Pace::Few } else { Pace::Every }
    }

    /// A chain of commits holds everything that ever was in it.
    fn drops_captures(&self) -> bool {
        self.0 == Style::Ghost
    }

    fn prepare(&self, site: &Site) -> Outcome<()> {
        let git = || bare("git", &site.home);
        succeed(git().args(["init", "--quiet", "--bare"]).arg(&site.store))?;
        let mut settings = vec![
            ("core.bare", "false"),
            ("user.name", "bench"),
            ("user.email", "bench@example.com"),
            ("gc.auto", "0"),
        ];
        if self.0 == Style::Tuned {
            settings.extend([
                ("feature.manyFiles", "true"),
                ("core.untrackedCache", "true"),
                ("index.version", "4"),
            ]);
        }
        for (key, value) in settings {
            succeed(git().env("GIT_DIR", &site.store).args(["config", key, value]))?;
        }
        Ok(())
    }

    fn command(&self, site: &Site, task: &Task<'_>) -> Ability {
        let mut command = self.with_git("git", site);
        match *task {
            Task::Hinted { number, changed, .. } if self.0 == Style::Tuned => {
                command = self.script(site, HINTED);
                command.env("PARENT", parent(number)).arg(changed);
            }
            Task::Capture { number, .. } | Task::Hinted { number, .. } => {
                command = self.capture(site, number);
            }
            Task::PathsBack { from, paths } if self.0 == Style::Ghost => {
                command.args(["restore", "--worktree", "--source", from, "--"]).args(paths);
            }
            Task::PathsBack { from, paths } => {
                command.args(["checkout", "--quiet", from, "--"]).args(paths);
            }
            Task::WholeBack { from } => {
                command = self.script(site, "git read-tree --reset -u $FROM && git clean -fdq");
                command.env("FROM", from);
            }
            Task::Into { from, out } => command = self.into(site, from, out),
            Task::List if self.0 == Style::Ghost => {
                command.args(["for-each-ref", "--sort=-refname", "--count=50"]);
                command.arg("--format=%(refname) %(committerdate:iso) %(subject)");
            }
            Task::List => {
                command.args(["log", "-n", "50", "--format=%H %ci %s", "refs/turns/bench"]);
            }
            Task::Views => return Ability::Cannot,
            Task::Diff { from, to } => {
                command.args(["diff-tree", "-r", "--name-status", from, to]);
            }
            Task::Collect { keep } if self.0 == Style::Ghost => {
                command = self.script(site, GHOST_COLLECT);
                command.env("KEEP", keep.to_string());
            }
            Task::Collect { .. } => {
                command.args(["gc", "--quiet", "--prune=now"]);
            }
        }
        Ability::Runs(command)
    }

    fn newest(&self, site: &Site) -> Outcome<String> {
        let mut git = self.with_git("git", site);
        answer(git.args([
            "for-each-ref",
            "--sort=-refname",
            "--count=1",
            "--format=%(objectname)",
            "refs/turns/",
        ]))
    }
}
