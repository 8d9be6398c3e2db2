//! `turnpoint exec`.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use clap::{Args, ValueEnum};
use serde::Serialize;
use turnpoint::compare::{Change, ChangeKind};
use turnpoint::id::{CheckpointId, RunId};
use turnpoint::manifest::Trigger;
use turnpoint::path::{RelPath, printable};
use turnpoint::{
    BroughtAlong, CaptureOptions, CaptureOutcome, CompareOptions, Comparison, Error, Extra,
    ExtraKind, IsolateOptions, RemovedRun, Run, Store,
};

use crate::cli::context::Context;
use crate::cli::diff::{ChangeDocument, described};
use crate::cli::exit::Exit;
use crate::cli::failure::{self, Failure, NAMED_MAX, Outcome};
use crate::cli::format;
use crate::cli::json::{
    IdDocument, NoticeDocument, PathDocument, ReasonDocument, RootDocument, text_and_bytes,
};
use crate::cli::printer::{self, Kind};
use crate::cli::target;
use crate::cli::worktree::{self, RemovedDocument};

/// turnpoint itself failed.
pub(crate) const FAILED: u8 = 125;
/// The command was found and cannot be run.
const NOT_EXECUTABLE: u8 = 126;
/// There is no such command.
const NOT_FOUND: u8 = 127;

/// Run a command, with a checkpoint before and after it
///
/// Input, output and exit status are the command's own; what it changed is told at the end, on standard
/// error. Ends with 125 if there is something wrong with turnpoint itself, and then the command was not
/// started unless that is said; with 126 if the command cannot be run, with 127 if there is none of that
/// name. With --worktree it runs in a work tree of its own, where it cannot harm what is here; that is kept if
/// the command succeeds, and else removed once everything in it is held. It is made from the commit of HEAD:
/// what is not committed here is not in it, unless `--from latest` lays the newest checkpoint over it.
#[derive(Debug, Args)]
#[command(override_usage = "turnpoint exec [OPTIONS] -- COMMAND [ARGUMENT]...")]
#[command(after_help = "Examples:\n  \
                        turnpoint exec -- make generate\n  \
                        turnpoint exec --session fix-login --label 'cargo fix' -- cargo fix\n  \
                        turnpoint exec --worktree -- ./agent 'fix the login'")]
pub(crate) struct ExecArguments {
    /// Run it in a work tree of its own
    #[arg(long)]
    worktree: bool,
    /// Lay this checkpoint over the commit first: what it holds is created or overwritten, and nothing is
    /// deleted
    #[arg(long, value_name = "CHECKPOINT", requires = "worktree")]
    from: Option<OsString>,
    /// When the work tree is kept
    #[arg(
        long,
        value_enum,
        value_name = "WHEN",
        default_value_t = KeepWhen::Success,
        requires = "worktree"
    )]
    keep: KeepWhen,
    /// Before the work tree is removed hold what git ignores or turnpoint excludes, too
    #[arg(long, requires = "worktree")]
    ignored: bool,
    /// The session to add to [default: that of the workspace; with --worktree one for all such runs]
    #[arg(long, value_name = "NAME")]
    session: Option<String>,
    /// A name for people, for both checkpoints
    #[arg(long, value_name = "TEXT")]
    label: Option<String>,
    /// Write what happened into FILE, as one JSON document: standard output is the command's
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl ExecArguments {
    /// Whether it is about a repository, and not about a workspace.
    pub(crate) const fn is_isolated(&self) -> bool {
        self.worktree
    }
}

/// When a work tree is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum KeepWhen {
    /// Whatever the command ends with
    Always,
    /// If it ends with 0
    Success,
}

/// A command that is to run in a work tree of its own.
pub(crate) struct Isolated<'a> {
    pub(crate) command: &'a [OsString],
    pub(crate) session: Option<&'a String>,
    pub(crate) label: Option<&'a String>,
    pub(crate) from: Option<&'a OsString>,
    /// Whether the work tree is kept if the command fails, too.
    pub(crate) is_kept_always: bool,
    /// Whether what is ignored is held, too, before the work tree is removed.
    pub(crate) holds_ignored: bool,
    /// Whether what it prints goes to standard error.
    pub(crate) output_is_aside: bool,
}

/// What there is to tell at the end.
pub(crate) struct Account<'a> {
    command: &'a [OsString],
    /// `None` where the command could not be started.
    ended: Option<ExitStatus>,
    /// What the command ended with, or what stands for that.
    pub(crate) code: u8,
    root: PathBuf,
    before: CheckpointId,
    after: Option<CheckpointId>,
    /// What it changed; `None` where that is not known.
    pub(crate) compared: Option<Comparison>,
    run: Option<RunAccount>,
    is_proposal: bool,
}

/// What became of a work tree.
struct RunAccount {
    id: RunId,
    branch: String,
    uncommitted: Option<u64>,
    brought: BroughtAlong,
    /// `None` where it is there.
    removed: Option<RemovedRun>,
}

/// Runs the command. What it ended with is what the program ends with.
pub(crate) fn run(arguments: &ExecArguments, context: &mut Context) -> Outcome<Exit> {
    if context.is_json() {
        let message = "the command has standard output for itself";
        let failure = Failure::own(Exit::Usage, "usage", message)
            .hint("`--report FILE` writes the JSON document into a file");
        return Err(failure);
    }
    // Before anything is done: the command's status is not to be lost for it.
    if let Some(file) = &arguments.report {
        context.refuse_in_store(file, "the report")?;
        let place = context.settings.directory.join(file);
        if fs::metadata(&place).is_ok_and(|it| it.is_file() && it.len() > 0) {
            let message = format!("{} is there already", printable(place.as_os_str().as_bytes()));
            let failure = Failure::own(Exit::Refused, "file-exists", message);
            return Err(failure.hint("name a new file, or remove that one"));
        }
    }
    if arguments.worktree {
        let ran = in_work_tree(arguments, context);
        return Ok(ran.unwrap_or_else(|failure| give_up(failure, context)));
    }
    Ok(in_place(arguments, context).unwrap_or_else(|failure| match report(failure, context) {
        exit @ Exit::Interrupted => exit,
        _ => Exit::Command(FAILED),
    }))
}

fn report(failure: Failure, context: &Context) -> Exit {
    let failure = failure.seen_from(&context.place());
    failure::report(&failure, context.printer.style(), &context.notices, Exit::Failed)
}

/// Tells why a run was not made, as every command tells it, or why its command could not be waited for.
pub(crate) fn give_up(failure: Failure, context: &Context) -> Exit {
    match report(failure, context) {
        // Whoever reads what is printed has seen enough.
        exit @ (Exit::Done | Exit::Interrupted | Exit::Usage | Exit::Refused) => exit,
        _ => Exit::Command(FAILED),
    }
}

fn in_place(arguments: &ExecArguments, context: &mut Context) -> Outcome<Exit> {
    let root = context.root()?;
    let before = capture(arguments, &root, context)?;
    let mut command = command(&arguments.command);
    command.current_dir(&context.settings.directory);
    let ended = match start(&mut command, context)? {
        Ok(status) => status,
        Err(code) => return Ok(Exit::Command(code)),
    };
    // From here on the command's status is what counts, whatever fails beside it.
    let after = capture(arguments, &root, context);
    let after = after_or_told(after, context);
    let account = Account {
        command: &arguments.command,
        ended: Some(ended),
        code: code_of(ended),
        compared: compare(&before, after.as_ref(), context),
        root,
        before,
        after,
        run: None,
        is_proposal: false,
    };
    tell(&account, context);
    write_report(arguments, &account, context);
    Ok(Exit::Command(account.code))
}

/// Runs the command in a work tree of its own.
fn in_work_tree(arguments: &ExecArguments, context: &mut Context) -> Outcome<Exit> {
    let asked = Isolated {
        command: &arguments.command,
        session: arguments.session.as_ref(),
        label: arguments.label.as_ref(),
        from: arguments.from.as_ref(),
        is_kept_always: arguments.keep == KeepWhen::Always,
        holds_ignored: arguments.ignored,
        output_is_aside: false,
    };
    let (account, failure) = isolated(&asked, context)?;
    tell(&account, context);
    write_report(arguments, &account, context);
    failure.map_or(Ok(Exit::Command(account.code)), Err)
}

/// The checkpoint after the command; where it could not be made that is told.
fn after_or_told(after: Outcome<CheckpointId>, context: &Context) -> Option<CheckpointId> {
    after
        .map_err(|failure| {
            report(failure, context);
            if !context.is_json() {
                let text = "what the command left is in no checkpoint";
                context.printer.style().complain(Kind::Warning, text);
            }
        })
        .ok()
}

/// Makes a work tree, runs the command in it, and removes it again where it is not to be kept. With the
/// account comes why the command could not be waited for, if that is so.
///
/// Fails where nothing was done.
pub(crate) fn isolated<'a>(
    asked: &Isolated<'a>,
    context: &mut Context,
) -> Outcome<(Account<'a>, Option<Failure>)> {
    let mut options = IsolateOptions::default();
    options.session = asked.session.cloned();
    options.label = asked.label.cloned();
    options.command = asked.command.iter().map(|word| word.to_string_lossy().into()).collect();
    if let Some(from) = asked.from {
        let spec = target::parse_alone(std::slice::from_ref(from), None, None, Some(context))?;
        options.from = Some(context.resolve(&spec)?);
    }
    let directory = context.settings.directory.clone();
    // What it is made from, whatever of it is a workspace of its own.
    let root = Store::checkout_at(&directory)?;
    let values = context.configuration_as_understood(&root).settings();
    (options.scope, options.extras) = (values.scope, values.extras);
    let mut run = context.run(|store, monitor| store.isolate(&directory, &options, monitor))?;
    tell_incomplete(run.before(), context);
    let (uncommitted, brought) = (run.uncommitted(), run.brought_along().clone());
    tell_lacking(uncommitted, context);
    tell_brought(&brought, context);
    let mut command = command(asked.command);
    if asked.output_is_aside {
        command.stdout(Stdio::from(io::stderr()));
    }
    // A program may believe PWD and not ask where it is.
    command.current_dir(run.directory()).env("PWD", run.directory());
    for name in Run::variables_to_remove() {
        command.env_remove(name);
    }
    let started = start(&mut command, context);
    // A signal was the command's; what follows is not to be stopped by it.
    context.interrupt.forget();
    let (ended, code, failure) = match started {
        Ok(Ok(status)) => (Some(status), code_of(status), None),
        Ok(Err(code)) => (None, code, None),
        Err(failure) => (None, FAILED, Some(failure)),
    };
    let after = context.run(|store, monitor| store.end_run(&mut run, code, monitor));
    if let Ok(after) = &after {
        tell_incomplete(after, context);
    }
    let after = after.map(|outcome| outcome.checkpoint).map_err(Failure::from);
    let (root, before) = (run.path(), run.before().checkpoint.clone());
    let after = after_or_told(after, context);
    let compared = compare(&before, after.as_ref(), context);
    let (id, branch) = (run.id(), run.branch());
    let is_kept = code == 0 || (asked.is_kept_always && ended.is_some());
    let removed = if is_kept { None } else { remove(run, asked.holds_ignored, context) };
    let account = Account {
        command: asked.command,
        ended,
        code,
        root,
        before,
        after,
        compared,
        run: Some(RunAccount { id, branch, uncommitted, brought, removed }),
        is_proposal: asked.output_is_aside,
    };
    Ok((account, failure))
}

/// Says that what is not committed here is not there.
fn tell_lacking(uncommitted: Option<u64>, context: &Context) {
    let Some(count) = uncommitted.filter(|count| *count > 0) else { return };
    if !context.is_json() && !context.is_quiet() {
        let (paths, place) = (format::counted(count, "path", "paths"), context.place());
        let text = format!(
            "what is not committed here ({paths}) is not in the run; after `turnpoint {place}capture` `--from \
             latest` brings what is new or changed, not what was deleted"
        );
        context.printer.style().complain(Kind::Note, &text);
    }
}

/// Says what the command has that git did not put there, and what it lacks.
fn tell_brought(brought: &BroughtAlong, context: &Context) {
    if context.is_json() || context.is_quiet() {
        return;
    }
    let style = context.printer.style();
    let one = |extra: &Extra| {
        let extent = || {
            let files = format::counted(extra.files, "file", "files");
            format!("{files}, {}", format::size(extra.bytes))
        };
        let how = match extra.how {
            ExtraKind::Symlink => "symlink".to_owned(),
            ExtraKind::Reflink => format!("copied, sharing the disk, {}", extent()),
            _ => format!("copied, {}", extent()),
        };
        format!("{} ({how})", extra.path)
    };
    let extras: Vec<String> = brought.extras.iter().map(one).collect();
    if !extras.is_empty() {
        style.complain(Kind::Note, &format!("brought along: {}", extras.join(", ")));
    }
    let left = brought.left.iter().map(|(path, reason)| format!("{path} ({reason})"));
    let left: Vec<String> = left.collect();
    if !left.is_empty() {
        style.complain(Kind::Note, &format!("not brought along: {}", left.join(", ")));
    }
}

fn left_out(brought: &BroughtAlong) -> Vec<ReasonDocument> {
    let one = |(path, reason): &(RelPath, String)| ReasonDocument {
        path: PathDocument::from(path),
        reason: reason.clone(),
    };
    brought.left.iter().map(one).collect()
}

/// Removes the work tree of a command that failed; where something in it would be lost it stays, which is
/// told.
fn remove(run: Run, ignored: bool, context: &mut Context) -> Option<RemovedRun> {
    let mut options = worktree::removal(context);
    options.ignored = ignored;
    let removed = context.run(|store, monitor| store.remove_run(run, &options, monitor));
    removed.map_err(|error| report(error.into(), context)).ok()
}

/// A checkpoint of the workspace.
fn capture(arguments: &ExecArguments, root: &Path, context: &mut Context) -> Outcome<CheckpointId> {
    let values = context.configuration_as_understood(root).settings();
    let mut options = CaptureOptions::default();
    options.scope = values.scope;
    options.session = arguments.session.clone().or(values.session);
    options.label.clone_from(&arguments.label);
    options.trigger = Trigger::EXEC;
    options.workspace = context.settings.workspace;
    let outcome = context.run(|store, monitor| store.capture(root, &options, monitor))?;
    tell_incomplete(&outcome, context);
    Ok(outcome.checkpoint)
}

fn tell_incomplete(outcome: &CaptureOutcome, context: &mut Context) {
    if !outcome.complete {
        if context.is_json() {
            let message = format!("{} is incomplete", outcome.checkpoint);
            context.notices.push(NoticeDocument { code: "incomplete", message });
            return;
        }
        let style = context.printer.style();
        let text = format!("{} is incomplete: some paths could not be held", outcome.checkpoint);
        style.complain(Kind::Warning, &text);
        super::capture::name_problems(&outcome.problems, outcome.problem_count, style);
    }
}

fn command(words: &[OsString]) -> Command {
    // The parser does not let an empty one through.
    let mut words = words.iter();
    let mut command =
        Command::new(words.next().map_or(std::ffi::OsStr::new(""), OsString::as_os_str));
    command.args(words);
    command
}

/// Starts the command and waits for its end; the exit code where it could not be started, which was told.
fn start(command: &mut Command, context: &mut Context) -> Outcome<Result<ExitStatus, u8>> {
    context.printer.flush()?;
    let passing = context.interrupt.pass_on()?;
    if context.interrupt.came() {
        passing.end()?;
        return Err(Error::Cancelled.into());
    }
    match command.spawn() {
        Ok(mut child) => Ok(Ok(passing.wait(&mut child)?)),
        Err(error) => {
            passing.end()?;
            let name = printable(command.get_program().as_encoded_bytes());
            if context.is_json() {
                let message = format!("cannot run {name}: {error}");
                context.notices.push(NoticeDocument { code: "cannot-run", message });
            } else {
                let style = context.printer.style();
                style.complain(Kind::Error, &format!("cannot run {name}"));
                style.complain(Kind::Cause, &error.to_string());
            }
            let is_missing = error.kind() == io::ErrorKind::NotFound;
            Ok(Err(if is_missing { NOT_FOUND } else { NOT_EXECUTABLE }))
        }
    }
}

/// As a shell has it: 128 and the number of the signal that ended the command.
fn code_of(status: ExitStatus) -> u8 {
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(FAILED)
}

/// What the command changed; `None` where it cannot be told, which is no failure of the command.
fn compare(
    before: &CheckpointId,
    after: Option<&CheckpointId>,
    context: &mut Context,
) -> Option<Comparison> {
    let after = after?;
    let options = CompareOptions::default();
    match context.run(|store, monitor| store.compare(before, after, &options, monitor)) {
        Ok(found) => Some(found),
        Err(error) => {
            report(error.into(), context);
            None
        }
    }
}

/// Says on standard error what has changed, but for a proposal, which is the answer; and what became of the
/// work tree.
pub(crate) fn tell(account: &Account<'_>, context: &Context) {
    if context.is_quiet() {
        return;
    }
    if let Some(after) =
        account.after.as_ref().filter(|_| !account.is_proposal || account.code != 0)
    {
        tell_changes(account, after, context);
    }
    let (style, place) = (context.printer.style(), context.place());
    let path = printable(account.root.as_os_str().as_encoded_bytes());
    let is_same = account.compared.as_ref().is_some_and(|it| it.changes.is_empty());
    match &account.run {
        None if is_same => {}
        None => {
            let text = format!(
                "`turnpoint {place}restore {}` goes back to before it",
                account.before.shell_word()
            );
            style.complain(Kind::Hint, &text);
        }
        Some(RunAccount { id, branch, removed: None, .. }) => {
            style.complain(Kind::Note, &format!("it is in {path}, on branch {branch}"));
            if !is_same {
                if let Some(after) = &account.after {
                    let (before, after) = (account.before.shell_word(), after.shell_word());
                    let text = format!(
                        "`turnpoint {place}diff {before} {after} --patch` shows it line by line"
                    );
                    style.complain(Kind::Hint, &text);
                }
                let text =
                    format!("`turnpoint {place}worktree apply {id}` brings here what it changed");
                style.complain(Kind::Hint, &text);
            }
            let text = format!(
                "`turnpoint {place}worktree remove {id}` removes it once what is in it is held"
            );
            style.complain(Kind::Hint, &text);
        }
        Some(RunAccount { removed: Some(removed), .. }) => {
            style.complain(Kind::Note, &format!("its work tree {path} was removed"));
            let RemovedRun { kept, further, refs, left_out, .. } = removed;
            for line in worktree::left(kept.as_ref(), further, refs, left_out.files) {
                printer::aside(&format!("  {line}"));
            }
        }
    }
}

fn tell_changes(account: &Account<'_>, after: &CheckpointId, context: &Context) {
    let Some(ended) = account.ended else { return };
    let before = &account.before;
    let style = context.printer.style();
    let name = printable(account.command[0].as_encoded_bytes());
    let end = match (ended.code(), ended.signal()) {
        (Some(0), _) => String::new(),
        (Some(code), _) => format!(", ended with {code}"),
        (None, Some(signal)) => format!(", killed by signal {signal}"),
        (None, None) => String::new(),
    };
    let Some(Comparison { changes, .. }) = &account.compared else {
        let text = format!("{name}{end}: what it changed is not known");
        return style.complain(Kind::Note, &text);
    };
    if changes.is_empty() {
        let text = format!("{name}{end}: nothing changed between {before} and {after}");
        return style.complain(Kind::Note, &text);
    }
    let text = format!("{name}{end}: {} between {before} and {after}", counted(changes));
    style.complain(Kind::Note, &text);
    name_changes(changes, context);
}

/// How many paths became what.
pub(crate) fn counted(changes: &[Change]) -> String {
    let kinds = [
        ChangeKind::Added,
        ChangeKind::Modified,
        ChangeKind::Mode,
        ChangeKind::Type,
        ChangeKind::Renamed,
        ChangeKind::Deleted,
    ];
    let counted = kinds.iter().filter_map(|kind| {
        let count = changes.iter().filter(|change| change.kind == *kind).count();
        (count > 0).then(|| format!("{} {}", format::number(count as u64), kind.as_str()))
    });
    counted.collect::<Vec<_>>().join(", ")
}

/// A line for each of the first.
fn name_changes(changes: &[Change], context: &Context) {
    let most = if context.printer.style().verbose { usize::MAX } else { NAMED_MAX };
    for change in changes.iter().take(most) {
        printer::aside(&format!("  {}  {}", change.kind.letter(), described(change)));
    }
    if changes.len() > most {
        let more = format::number((changes.len() - most) as u64);
        printer::aside(&format!("  and {more} more (--verbose names all)"));
    }
}

#[derive(Serialize)]
struct WordDocument {
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    text_bytes: Option<String>,
}

#[derive(Serialize)]
pub(crate) struct ReportDocument {
    command: Vec<WordDocument>,
    status: u8,
    signal: Option<i32>,
    #[serde(flatten)]
    root: RootDocument,
    before: IdDocument,
    after: Option<IdDocument>,
    changes: Option<Vec<ChangeDocument>>,
    #[serde(flatten)]
    run: Option<RunDocument>,
}

#[derive(Serialize)]
struct RunDocument {
    run: String,
    branch: String,
    uncommitted: Option<u64>,
    brought_along: Vec<ExtraDocument>,
    not_brought_along: Vec<ReasonDocument>,
    removed: Option<RemovedDocument>,
}

#[derive(Serialize)]
struct ExtraDocument {
    #[serde(flatten)]
    path: PathDocument,
    how: &'static str,
    files: u64,
    bytes: u64,
}

impl From<&Extra> for ExtraDocument {
    fn from(extra: &Extra) -> Self {
        Self {
            path: PathDocument::from(&extra.path),
            how: extra.how.as_str(),
            files: extra.files,
            bytes: extra.bytes,
        }
    }
}

/// What happened.
pub(crate) fn document(account: &Account<'_>) -> ReportDocument {
    let word = |word: &OsString| {
        let (text, text_bytes) = text_and_bytes(word.as_encoded_bytes());
        WordDocument { text, text_bytes }
    };
    ReportDocument {
        command: account.command.iter().map(word).collect(),
        status: account.code,
        signal: account.ended.and_then(|ended| ended.signal()),
        root: RootDocument::from(account.root.as_path()),
        before: IdDocument::from(&account.before),
        after: account.after.as_ref().map(IdDocument::from),
        changes: account
            .compared
            .as_ref()
            .map(|found| found.changes.iter().map(ChangeDocument::from).collect()),
        run: account.run.as_ref().map(|run| RunDocument {
            run: run.id.to_string(),
            branch: run.branch.clone(),
            uncommitted: run.uncommitted,
            brought_along: run.brought.extras.iter().map(ExtraDocument::from).collect(),
            not_brought_along: left_out(&run.brought),
            removed: run.removed.as_ref().map(RemovedDocument::from),
        }),
    }
}

/// Writes the document that was asked for. That this fails is told, and changes nothing else.
fn write_report(arguments: &ExecArguments, account: &Account<'_>, context: &Context) {
    let Some(file) = &arguments.report else { return };
    let path = context.settings.directory.join(file);
    let written = printer::document(&document(account), &context.notices)
        .and_then(|text| fs::write(&path, text + "\n"));
    if let Err(source) = written {
        let error = Error::Io { verb: "write", path, source };
        failure::report(&error.into(), context.printer.style(), &[], Exit::Failed);
    }
}
