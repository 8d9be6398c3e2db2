//! `turnpoint worktree`.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde::Serialize;
use turnpoint::clock::Timestamp;
use turnpoint::id::{CheckpointId, RunId};
use turnpoint::path::{RelPath, printable};
use turnpoint::{
    BadFile, Error, IsolationError, KeptRun, LeftOut, PrunedRuns, RemoveOptions, RemovedRun,
    RestoreOptions, RunState, RunSummary,
};

use crate::cli::arguments::duration;
use crate::cli::ask;
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::failure::{self, Failure, Outcome};
use crate::cli::format;
use crate::cli::json::{IdDocument, PathDocument, ReasonDocument};
use crate::cli::plan::{self, Asked, Verb};
use crate::cli::printer::Kind;
use crate::cli::table::{Align, Table};
use crate::cli::target;

/// How many paths a line names.
const NAMED_IN_LINE_MAX: usize = 5;

/// List, apply or remove the work trees of `turnpoint exec --worktree` and `turnpoint plan`
///
/// A work tree is removed only once a checkpoint holds its files, and refs lead to the commits that only
/// it has. It stays where something in it could not be held, and where a process works in it. What git
/// ignores is held with --ignored only; else it is named before it goes.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                        turnpoint worktree list\n  \
                        turnpoint worktree apply 3f9c2ab1 --dry-run\n  \
                        turnpoint worktree remove 3f9c2ab1\n  \
                        turnpoint worktree prune --older-than 7d --dry-run")]
pub(crate) struct WorktreeArguments {
    #[command(subcommand)]
    command: WorktreeCommand,
}

#[derive(Debug, Subcommand)]
enum WorktreeCommand {
    /// Show the runs of this repository, and what is in their work trees
    List(ListArguments),
    /// Bring what a run changed to the checkout that it was made from
    Apply(ApplyArguments),
    /// Remove the work tree and the branch of a run
    Remove(RemoveArguments),
    /// Remove what runs left that were killed, and those that ended long ago
    Prune(PruneArguments),
}

#[derive(Debug, Args)]
struct ListArguments {
    /// Those that were removed instead, with what was kept of them
    #[arg(long)]
    removed: bool,
}

/// What is held before a work tree goes.
#[derive(Debug, Args)]
struct HoldArguments {
    /// Hold what git ignores or turnpoint excludes, too: build folders, dependencies
    #[arg(long)]
    ignored: bool,
}

/// Bring what a run changed to the checkout that it was made from
///
/// What it changed is what is not as in the checkpoint before its command; commits count by what they hold.
/// A file that was not touched here becomes as it is there; a text that was changed here too is merged line
/// by line. Where both changed the same lines, or a file that is not text, nothing at all is written and
/// each such path is named, with 3; what stands against nothing comes by naming it. Shows the plan and asks;
/// without a terminal it needs --yes. `turnpoint undo` takes it back. The work tree stays.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                        turnpoint worktree apply 3f9c2ab1 --dry-run\n  \
                        turnpoint worktree apply 3f9c2ab1\n  \
                        turnpoint worktree apply 3f9c2ab1 src/parser.rs tests")]
struct ApplyArguments {
    /// Which run, as `turnpoint worktree list` names it
    #[arg(value_name = "RUN")]
    run: RunId,
    /// Only these paths, each with everything below it [default: all that it changed]
    #[arg(value_name = "PATH")]
    paths: Vec<OsString>,
    /// Show the plan and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    /// The session for the safety checkpoint [default: that of the workspace]
    #[arg(long, value_name = "NAME")]
    session: Option<String>,
}

#[derive(Debug, Args)]
struct RemoveArguments {
    /// Which run, as `turnpoint worktree list` names it
    #[arg(value_name = "RUN")]
    run: RunId,
    #[command(flatten)]
    hold: HoldArguments,
    /// Give up what a checkpoint cannot hold, such as private keys, and a merge that has not ended
    #[arg(long)]
    discard: bool,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

#[derive(Debug, Args)]
struct PruneArguments {
    /// Those too whose command ended at least so long ago, such as `7d` or `36h`
    #[arg(long, value_name = "TIME", value_parser = duration)]
    older_than: Option<Duration>,
    #[command(flatten)]
    hold: HoldArguments,
    /// Show which would be removed and change nothing
    #[arg(long)]
    dry_run: bool,
}

impl WorktreeArguments {
    /// Whether the checkout is to be changed.
    pub(crate) const fn applies(&self) -> bool {
        matches!(self.command, WorktreeCommand::Apply(_))
    }
}

/// Lists, applies or removes runs.
pub(crate) fn run(arguments: &WorktreeArguments, context: &mut Context) -> Outcome<Exit> {
    let done = match &arguments.command {
        WorktreeCommand::List(arguments) => list(arguments, context),
        WorktreeCommand::Apply(arguments) => apply(arguments, context),
        WorktreeCommand::Remove(arguments) => remove(arguments, context),
        WorktreeCommand::Prune(arguments) => prune(arguments, context),
    };
    done.map_err(|failure| match failure.error() {
        Some(Error::Isolation(IsolationError::NoRepository { .. })) => failure.hint(
            "runs belong to a repository: go to it or to one of its work trees, or name it with -C",
        ),
        _ => failure,
    })
}

#[derive(Serialize)]
struct ListDocument<'a> {
    runs: Vec<RunDocument<'a>>,
    unreadable: Vec<ReasonDocument>,
}

#[derive(Serialize)]
struct RunDocument<'a> {
    run: String,
    state: &'static str,
    #[serde(flatten)]
    path: PathDocument,
    branch: &'a str,
    checkout: PathDocument,
    commit: &'a str,
    session: &'a str,
    command: &'a [String],
    started_at: String,
    ended_at: Option<String>,
    status: Option<u8>,
    before: Option<IdDocument>,
    changed: Option<u64>,
    commits: Option<u64>,
    bytes: Option<u64>,
    ignored: Option<LeftOutDocument>,
    kept: Option<IdDocument>,
    further: Vec<IdDocument>,
    refs: &'a [String],
    applied: Option<IdDocument>,
}

impl<'a> From<&'a RunSummary> for RunDocument<'a> {
    fn from(run: &'a RunSummary) -> Self {
        Self {
            run: run.id.to_string(),
            state: state(run),
            path: PathDocument::from(run.path.as_path()),
            branch: &run.branch,
            checkout: PathDocument::from(run.checkout.as_path()),
            commit: &run.commit,
            session: run.session.as_str(),
            command: &run.command,
            started_at: run.started_at.to_string(),
            ended_at: run.ended_at.map(|time| time.to_string()),
            status: run.status,
            before: run.before.as_ref().map(IdDocument::from),
            changed: run.content.as_ref().map(|content| content.changed),
            commits: run.content.as_ref().map(|content| content.commits),
            bytes: run.content.as_ref().map(|content| content.bytes),
            ignored: run.content.as_ref().map(|content| LeftOutDocument::from(&content.ignored)),
            kept: run.kept.as_ref().map(IdDocument::from),
            further: run.further.iter().map(IdDocument::from).collect(),
            refs: &run.refs,
            applied: run.applied.as_ref().map(IdDocument::from),
        }
    }
}

/// How far a run has come, in a word.
fn state(run: &RunSummary) -> &'static str {
    match (run.state, run.is_alive) {
        (RunState::Removed, _) => "removed",
        (_, true) => "running",
        (RunState::Made, false) if run.ended_at.is_some() => "ended",
        // What was to be held of it is held, and not all of it could be removed.
        (RunState::Removing, false) => "removing",
        // Its process is no more, and had not come to its end.
        _ => "killed",
    }
}

fn list(arguments: &ListArguments, context: &mut Context) -> Outcome<Exit> {
    let directory = context.settings.directory.clone();
    let removed = arguments.removed;
    let listing = context.run(|store, monitor| store.runs(&directory, removed, monitor))?;
    if context.is_json() {
        let runs = listing.runs.iter().map(RunDocument::from).collect();
        let unreadable = listing.unreadable.iter().map(ReasonDocument::from).collect();
        context.document(&ListDocument { runs, unreadable })?;
    } else if listing.runs.is_empty() {
        let what = if arguments.removed { "no run was removed" } else { "there is no run" };
        context.printer.style().complain(Kind::Note, &format!("{what} of this repository"));
    } else if arguments.removed {
        print_removed(&listing.runs, context)?;
    } else {
        table(&listing.runs).print(&mut context.printer)?;
    }
    if !context.is_json() {
        tell_unreadable(&listing.unreadable, context);
    }
    Ok(Exit::damaged_if(!listing.unreadable.is_empty()))
}

fn tell_unreadable(files: &[BadFile], context: &Context) {
    for file in files {
        let path = printable(file.path.as_os_str().as_bytes());
        let text = format!("{path} cannot be understood: {}", file.reason);
        context.printer.style().complain(Kind::Warning, &text);
    }
}

fn table(runs: &[RunSummary]) -> Table {
    let mut table = Table::new([
        ("RUN", Align::Left),
        ("STATE", Align::Left),
        ("AGE", Align::Right),
        ("SIZE", Align::Right),
        ("CHANGED", Align::Right),
        ("COMMITS", Align::Right),
        ("COMMAND", Align::Left),
    ]);
    let now = Timestamp::now();
    let unknown = || "-".to_owned();
    for run in runs {
        table.row(vec![
            run.id.to_string(),
            if run.applied.is_some() {
                format!("{}, applied", state(run))
            } else {
                state(run).to_owned()
            },
            format::age(run.started_at, now),
            run.content.as_ref().map_or_else(unknown, |content| format::size(content.bytes)),
            run.content.as_ref().map_or_else(unknown, |content| format::number(content.changed)),
            run.content.as_ref().map_or_else(unknown, |content| format::number(content.commits)),
            command(run),
        ]);
    }
    table
}

fn command(run: &RunSummary) -> String {
    printable(run.command.join(" ").as_bytes())
}

fn print_removed(runs: &[RunSummary], context: &mut Context) -> io::Result<()> {
    let now = Timestamp::now();
    let mut can_be_applied = false;
    for run in runs {
        let age = format::age(run.started_at, now);
        context.printer.line(format_args!("{}  {age}  {}", run.id, command(run)))?;
        for line in left(run.kept.as_ref(), &run.further, &run.refs, 0) {
            context.printer.line(format_args!("  {line}"))?;
        }
        if let Some(applied) = &run.applied {
            context.printer.line(format_args!("  {applied} of it was applied"))?;
        }
        let is_known = has_beginning(run, context);
        if !is_known {
            let text = "it cannot be applied any more: the checkpoint before its command is gone";
            context.printer.line(format_args!("  {text}"))?;
        }
        can_be_applied |= is_known;
    }
    if !context.is_quiet() {
        context.printer.flush()?;
        let place = context.place();
        let apply = if can_be_applied {
            format!("`turnpoint {place}worktree apply RUN` brings here what one of them changed, ")
        } else {
            String::new()
        };
        let text = format!(
            "{apply}`turnpoint {place}restore CHECKPOINT --into DIR` writes the files of one into a new \
             directory"
        );
        context.printer.style().complain(Kind::Hint, &text);
    }
    Ok(())
}

/// Whether the checkpoint is there against which its changes count.
fn has_beginning(run: &RunSummary, context: &Context) -> bool {
    run.before.as_ref().is_some_and(|before| {
        !matches!(
            context.store.show(before, &()),
            Err(Error::CheckpointNotFound { .. }
                | Error::SessionNotFound { .. }
                | Error::Pruned { .. })
        )
    })
}

/// The first of some paths, each with what is to be said of it, and how many more there are.
pub(crate) fn named(paths: &[(RelPath, String)]) -> String {
    let shown = |(path, reason): &(RelPath, String)| format!("{path} ({reason})");
    let mut named: Vec<String> = paths.iter().take(NAMED_IN_LINE_MAX).map(shown).collect();
    let more = paths.len().saturating_sub(NAMED_IN_LINE_MAX);
    if more > 0 {
        named.push(format!("and {} more", format::number(more as u64)));
    }
    named.join(", ")
}

/// What is left of a run that was removed, a line each; `gone` files of it are not.
pub(crate) fn left(
    kept: Option<&CheckpointId>,
    further: &[CheckpointId],
    refs: &[String],
    gone: u64,
) -> Vec<String> {
    let but = match gone {
        0 => String::new(),
        _ => format!(", but for {} that went with it", format::counted(gone, "file", "files")),
    };
    let files = kept.map(|kept| format!("{kept} holds its files{but}"));
    let further =
        further.iter().map(|id| format!("{id} holds what came while it was being removed"));
    files
        .into_iter()
        .chain(further)
        .chain(refs.iter().map(|name| format!("{name} leads to its work")))
        .collect()
}

#[derive(Serialize)]
pub(crate) struct RemovedDocument {
    run: String,
    kept: Option<IdDocument>,
    further: Vec<IdDocument>,
    refs: Vec<String>,
    left_out: LeftOutDocument,
}

/// What is, or was, in a work tree and is held by nothing.
#[derive(Serialize)]
pub(crate) struct LeftOutDocument {
    files: u64,
    bytes: u64,
    paths: Vec<ReasonDocument>,
}

impl From<&LeftOut> for LeftOutDocument {
    fn from(left_out: &LeftOut) -> Self {
        let one = |(path, reason): &(RelPath, String)| ReasonDocument {
            path: PathDocument::from(path),
            reason: reason.clone(),
        };
        let paths = left_out.paths.iter().map(one).collect();
        Self { files: left_out.files, bytes: left_out.bytes, paths }
    }
}

impl From<&RemovedRun> for RemovedDocument {
    fn from(removed: &RemovedRun) -> Self {
        Self {
            run: removed.id.to_string(),
            kept: removed.kept.as_ref().map(IdDocument::from),
            further: removed.further.iter().map(IdDocument::from).collect(),
            refs: removed.refs.clone(),
            left_out: LeftOutDocument::from(&removed.left_out),
        }
    }
}

fn apply(arguments: &ApplyArguments, context: &mut Context) -> Outcome<Exit> {
    let directory = context.settings.directory.clone();
    let id = arguments.run;
    let run = context.run(|store, monitor| store.run(&directory, id, monitor))?;
    // Whoever stands in the work tree names what is there.
    let is_inside = context.settings.directory.starts_with(&run.path);
    let root = if is_inside { &run.path } else { &run.checkout };
    let mut options = RestoreOptions::default();
    options.paths = target::paths(context, root, &arguments.paths)?;
    options.session.clone_from(&arguments.session);
    let may_go = run.state != RunState::Removed && options.paths.is_empty();
    let verb = Verb::Apply { run: id, may_go };
    let asked = Asked::new(arguments.dry_run, arguments.yes);
    plan::perform(&verb, &run.checkout, options, asked, context)
}

/// How a run is removed. Only the user's own settings count: those of the work tree may have been written by
/// what ran there.
pub(crate) fn removal(context: &Context) -> RemoveOptions {
    let mut options = RemoveOptions::default();
    options.scope = context.settings.configuration.settings().scope;
    options
}

fn remove(arguments: &RemoveArguments, context: &mut Context) -> Outcome<Exit> {
    let directory = context.settings.directory.clone();
    let id = arguments.run;
    if !arguments.yes {
        let run = context.run(|store, monitor| store.run(&directory, id, monitor))?;
        let needs_yes = arguments.discard || (run.state != RunState::Removed && run.has_work());
        if needs_yes {
            if !context.is_json() {
                context.printer.prose(&work_in(&run, arguments.hold.ignored))?;
            }
            if !ask::can_ask(context) {
                context.printer.flush()?;
                return Err(ask::needs_yes("removing a work tree with work in it"));
            }
            let ignored = run.content.as_ref().map(|content| content.ignored.files);
            let question = if arguments.discard {
                "Remove it, with what could not be held?"
            } else {
                match ignored {
                    _ if arguments.hold.ignored => "Remove it, once all of it is held?",
                    Some(0) => "Remove it, once all of it is held?",
                    Some(_) => {
                        "Remove it, once the rest is held, and lose these (--ignored holds them, too)?"
                    }
                    None => "Remove it, once what git does not ignore is held?",
                }
            };
            if !ask::confirm(context, question)? {
                return Ok(Exit::Refused);
            }
        }
    }
    let mut options = removal(context);
    options.ignored = arguments.hold.ignored;
    options.discard = arguments.discard;
    let removed =
        context.run(|store, monitor| store.remove_run_of(&directory, id, &options, monitor))?;
    if context.is_json() {
        context.document(&RemovedDocument::from(&removed))?;
    } else if !context.is_quiet() {
        tell(&removed, context)?;
    }
    Ok(Exit::Done)
}

fn work_in(run: &RunSummary, holds_ignored: bool) -> String {
    let path = printable(run.path.as_os_str().as_bytes());
    let Some(content) = &run.content else { return format!("what is in {path} is not known") };
    let changed = format::counted(content.changed, "changed path", "changed paths");
    let commits = format::counted(content.commits, "commit", "commits");
    let text = format!("{path} has {changed}, and {} has {commits} of its own", run.branch);
    let ignored = &content.ignored;
    if ignored.files == 0 || holds_ignored {
        return text;
    }
    let files = format::counted(ignored.files, "file", "files");
    let (size, named) = (format::size(ignored.bytes), named(&ignored.paths));
    format!("{text}; {files} ({size}) there will not be held: {named}")
}

fn tell(removed: &RemovedRun, context: &mut Context) -> io::Result<()> {
    context.printer.prose(&format!("removed run {}", removed.id))?;
    let RemovedRun { kept, further, refs, left_out, .. } = removed;
    for line in left(kept.as_ref(), further, refs, left_out.files) {
        context.printer.line(format_args!("  {line}"))?;
    }
    Ok(())
}

#[derive(Serialize)]
struct PruneDocument<'a> {
    dry_run: bool,
    planned: Vec<RunDocument<'a>>,
    removed: Vec<RemovedDocument>,
    refused: Vec<RefusedDocument>,
    kept: Vec<KeptDocument>,
    forgotten: u64,
    unreadable: Vec<ReasonDocument>,
    cancelled: bool,
}

#[derive(Serialize)]
struct KeptDocument {
    run: String,
    reason: &'static str,
    ended_at: Option<String>,
}

impl From<&(RunId, KeptRun)> for KeptDocument {
    fn from((run, why): &(RunId, KeptRun)) -> Self {
        let (reason, ended_at) = match why {
            KeptRun::Ended(at) => ("ended", Some(at.to_string())),
            _ => ("running", None),
        };
        Self { run: run.to_string(), reason, ended_at }
    }
}

#[derive(Serialize)]
struct RefusedDocument {
    run: String,
    code: &'static str,
    reason: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    paths: Vec<ReasonDocument>,
}

/// How a prune ends: by what failed, else by what cannot be understood, else by what was refused.
fn exit_of(pruned: &PrunedRuns) -> Exit {
    let mut exits = pruned.refused.iter().map(|(_, error)| Exit::from(error.class()));
    match exits.find(|exit| *exit != Exit::Refused) {
        Some(failed) => failed,
        None if pruned.unreadable.is_empty() && !pruned.refused.is_empty() => Exit::Refused,
        None => Exit::damaged_if(!pruned.unreadable.is_empty()),
    }
}

fn prune(arguments: &PruneArguments, context: &mut Context) -> Outcome<Exit> {
    let directory = context.settings.directory.clone();
    let mut options = removal(context);
    options.ignored = arguments.hold.ignored;
    let (older_than, dry_run) = (arguments.older_than, arguments.dry_run);
    let pruned = context.run(|store, monitor| {
        store.prune_runs(&directory, older_than, dry_run, &options, monitor)
    })?;
    let ended =
        if pruned.is_cancelled { Err(Error::Cancelled.into()) } else { Ok(exit_of(&pruned)) };
    if context.is_json() {
        let refused = |(id, error): (RunId, Error)| {
            let (code, failure) = (error.code(), Failure::from(error));
            let reason = [vec![failure.message()], failure.causes()].concat().join(": ");
            RefusedDocument { run: id.to_string(), code, reason, paths: failure.paths() }
        };
        context.document(&PruneDocument {
            dry_run,
            planned: pruned.planned.iter().map(RunDocument::from).collect(),
            removed: pruned.removed.iter().map(RemovedDocument::from).collect(),
            refused: pruned.refused.into_iter().map(refused).collect(),
            kept: pruned.kept.iter().map(KeptDocument::from).collect(),
            forgotten: pruned.forgotten,
            unreadable: pruned.unreadable.iter().map(ReasonDocument::from).collect(),
            cancelled: pruned.is_cancelled,
        })?;
        return ended;
    }
    if !pruned.planned.is_empty() {
        context.printer.prose("would remove")?;
        table(&pruned.planned).print(&mut context.printer)?;
    } else if is_idle(&pruned) && !context.is_quiet() {
        context.printer.prose("there is nothing to remove")?;
    }
    if !context.is_quiet() {
        for removed in &pruned.removed {
            tell(removed, context)?;
        }
        if pruned.forgotten > 0 {
            let runs = format::counted(pruned.forgotten, "removed run", "removed runs");
            context.printer.prose(&format!("forgot {runs} of which nothing was left"))?;
        }
        tell_kept(&pruned.kept, arguments, context)?;
    }
    context.printer.flush()?;
    tell_unreadable(&pruned.unreadable, context);
    for (id, error) in pruned.refused {
        let style = context.printer.style();
        style.complain(Kind::Warning, &format!("run {id} stays"));
        let failure = Failure::from(error).seen_from(&context.place());
        failure::report(&failure, style, &[], Exit::Failed);
    }
    ended
}

fn is_idle(pruned: &PrunedRuns) -> bool {
    pruned.removed.is_empty() && pruned.refused.is_empty() && !pruned.is_cancelled
}

/// Which runs were not due, why, and what removes them.
fn tell_kept(
    kept: &[(RunId, KeptRun)],
    arguments: &PruneArguments,
    context: &mut Context,
) -> io::Result<()> {
    let now = Timestamp::now();
    let mut has_ended = false;
    for (id, why) in kept {
        let why = match why {
            KeptRun::Ended(at) => {
                has_ended = true;
                format!("its command ended {}", format::age(*at, now))
            }
            _ => "it is at work".to_owned(),
        };
        context.printer.prose(&format!("run {id} stays: {why}"))?;
    }
    if has_ended {
        context.printer.flush()?;
        let which =
            if arguments.older_than.is_some() { "a shorter TIME" } else { "`--older-than TIME`" };
        let place = context.place();
        let text = format!(
            "{which} removes those that have ended, `turnpoint {place}worktree remove RUN` one"
        );
        context.printer.style().complain(Kind::Hint, &text);
    }
    Ok(())
}
