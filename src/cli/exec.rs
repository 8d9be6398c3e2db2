//! `turnpoint exec`.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use clap::Args;
use serde::Serialize;
use turnpoint::compare::{Change, ChangeKind};
use turnpoint::id::CheckpointId;
use turnpoint::manifest::Trigger;
use turnpoint::path::printable;
use turnpoint::{CaptureOptions, CompareOptions, Error};

use crate::cli::context::Context;
use crate::cli::diff::{ChangeDocument, described};
use crate::cli::exit::Exit;
use crate::cli::failure::{self, Failure, NAMED_MAX, Outcome};
use crate::cli::format;
use crate::cli::json::{IdDocument, RootDocument, text_and_bytes};
use crate::cli::printer::{self, Kind};

/// turnpoint itself failed.
const FAILED: u8 = 125;
/// The command was found and cannot be run.
const NOT_EXECUTABLE: u8 = 126;
/// There is no such command.
const NOT_FOUND: u8 = 127;

/// Run a command, with a checkpoint before and after it
///
/// Input, output and exit status are the command's own; what it changed is told at the end, on standard
/// error. Ends with 125 if there is something wrong with turnpoint itself, and then the command was not
/// started unless that is said; with 126 if the command cannot be run, with 127 if there is none of that
/// name.
#[derive(Debug, Args)]
#[command(override_usage = "turnpoint exec [OPTIONS] -- COMMAND [ARGUMENT]...")]
#[command(after_help = "Examples:\n  \
                        turnpoint exec -- make generate\n  \
                        turnpoint exec --session fix-login --label 'cargo fix' -- cargo fix")]
pub(crate) struct ExecArguments {
    /// The session to add to [default: that of the workspace]
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

/// Runs the command. What it ended with is what the program ends with.
pub(crate) fn run(arguments: &ExecArguments, context: &mut Context) -> Outcome<Exit> {
    if context.is_json() {
        let message = "the command has standard output for itself";
        let failure = Failure::own(Exit::Usage, "usage", message)
            .hint("`--report FILE` writes the JSON document into a file");
        return Err(failure);
    }
    Ok(in_place(arguments, context).unwrap_or_else(|failure| own(&failure, context)))
}

/// Tells a failure of turnpoint itself.
fn own(failure: &Failure, context: &Context) -> Exit {
    let style = context.printer.style();
    let exit = failure::report(failure, style, &context.notices, Exit::Failed);
    if exit == Exit::Interrupted { exit } else { Exit::Command(FAILED) }
}

fn in_place(arguments: &ExecArguments, context: &mut Context) -> Outcome<Exit> {
    let root = context.root()?;
    let before = capture(arguments, &root, context)?;
    let mut command = command(arguments);
    command.current_dir(&context.settings.directory);
    let ended = match start(&mut command, context)? {
        Ok(status) => status,
        Err(code) => return Ok(Exit::Command(code)),
    };
    // From here on the command's status is what counts, whatever fails beside it.
    let after = match capture(arguments, &root, context) {
        Ok(after) => Some(after),
        Err(failure) => {
            let style = context.printer.style();
            failure::report(&failure, style, &context.notices, Exit::Failed);
            let text = "what the command left is in no checkpoint";
            style.complain(Kind::Warning, text);
            None
        }
    };
    let changes = changes(&before, after.as_ref(), context);
    tell(arguments, ended, &before, after.as_ref(), &changes, context);
    write_report(arguments, &root, ended, &before, after.as_ref(), &changes, context);
    Ok(Exit::Command(code_of(ended)))
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
    if !outcome.complete {
        let style = context.printer.style();
        let text = format!("{} is incomplete: some paths could not be held", outcome.checkpoint);
        style.complain(Kind::Warning, &text);
        super::capture::name_problems(&outcome.problems, outcome.problem_count, style);
    }
    Ok(outcome.checkpoint)
}

fn command(arguments: &ExecArguments) -> Command {
    // The parser does not let an empty one through.
    let mut words = arguments.command.iter();
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
            let style = context.printer.style();
            style.complain(Kind::Error, &format!("cannot run {name}"));
            style.complain(Kind::Cause, &error.to_string());
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

/// What the command changed. That it cannot be told is no failure of the command.
fn changes(
    before: &CheckpointId,
    after: Option<&CheckpointId>,
    context: &mut Context,
) -> Vec<Change> {
    let Some(after) = after else { return Vec::new() };
    let options = CompareOptions::default();
    match context.run(|store, monitor| store.compare(before, after, &options, monitor)) {
        Ok(found) => found.changes,
        Err(error) => {
            let style = context.printer.style();
            failure::report(&error.into(), style, &context.notices, Exit::Failed);
            Vec::new()
        }
    }
}

/// Says on standard error what has changed.
fn tell(
    arguments: &ExecArguments,
    ended: ExitStatus,
    before: &CheckpointId,
    after: Option<&CheckpointId>,
    changes: &[Change],
    context: &Context,
) {
    let Some(after) = after.filter(|_| !context.is_quiet()) else { return };
    let style = context.printer.style();
    let name = printable(arguments.command[0].as_encoded_bytes());
    let end = match (ended.code(), ended.signal()) {
        (Some(0), _) => String::new(),
        (Some(code), _) => format!(", ended with {code}"),
        (None, Some(signal)) => format!(", killed by signal {signal}"),
        (None, None) => String::new(),
    };
    if changes.is_empty() {
        let text = format!("{name}{end}: nothing changed between {before} and {after}");
        return style.complain(Kind::Note, &text);
    }
    let text = format!("{name}{end}: {} between {before} and {after}", counted(changes));
    style.complain(Kind::Note, &text);
    name_changes(changes, context);
    style.complain(Kind::Hint, &format!("`turnpoint restore {before}` goes back to before it"));
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
struct ReportDocument {
    command: Vec<WordDocument>,
    status: u8,
    signal: Option<i32>,
    #[serde(flatten)]
    root: RootDocument,
    before: IdDocument,
    after: Option<IdDocument>,
    changes: Vec<ChangeDocument>,
}

/// Writes the document that was asked for. That this fails is told, and changes nothing else.
fn write_report(
    arguments: &ExecArguments,
    root: &Path,
    ended: ExitStatus,
    before: &CheckpointId,
    after: Option<&CheckpointId>,
    changes: &[Change],
    context: &Context,
) {
    let Some(file) = &arguments.report else { return };
    let word = |word: &OsString| {
        let (text, text_bytes) = text_and_bytes(word.as_encoded_bytes());
        WordDocument { text, text_bytes }
    };
    let document = ReportDocument {
        command: arguments.command.iter().map(word).collect(),
        status: code_of(ended),
        signal: ended.signal(),
        root: RootDocument::from(root),
        before: IdDocument::from(before),
        after: after.map(IdDocument::from),
        changes: changes.iter().map(ChangeDocument::from).collect(),
    };
    let path = context.settings.directory.join(file);
    let written = printer::document(&document, &context.notices)
        .and_then(|text| fs::write(&path, text + "\n"));
    if let Err(source) = written {
        let error = Error::Io { verb: "write", path, source };
        failure::report(&error.into(), context.printer.style(), &[], Exit::Failed);
    }
}
