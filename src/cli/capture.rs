//! `turnpoint capture`.

use serde::Serialize;
use turnpoint::manifest::Counts;
use turnpoint::path::printable;
use turnpoint::{CaptureOptions, CaptureOutcome, CaptureProblem};

use std::collections::BTreeMap;
use std::io;
use std::os::unix::ffi::OsStrExt;

use crate::cli::arguments::CaptureArguments;
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::failure::{NAMED_MAX, Outcome};
use crate::cli::format;
use crate::cli::json::{IdDocument, ReasonDocument, RootDocument};
use crate::cli::printer::{self, Kind, Style};

#[derive(Serialize)]
struct CaptureDocument<'a> {
    #[serde(flatten)]
    id: IdDocument,
    created: bool,
    complete: bool,
    #[serde(flatten)]
    root: RootDocument,
    counts: &'a Counts,
    problems: Vec<ReasonDocument>,
    problem_count: u64,
    elapsed_ms: u64,
}

/// Captures the workspace.
pub(crate) fn run(arguments: &CaptureArguments, context: &mut Context) -> Outcome<Exit> {
    let root = context.root()?;
    let mut options = CaptureOptions::default();
    options.session.clone_from(&arguments.session);
    options.label.clone_from(&arguments.label);
    options.trigger = arguments.trigger.clone();
    options.if_changed = arguments.if_changed;
    options.strict = arguments.strict;
    options.force = arguments.force;
    options.workspace = context.settings.workspace;
    let outcome = context.run(|store, monitor| store.capture(&root, &options, monitor))?;
    if context.is_json() {
        context.document(&CaptureDocument {
            id: IdDocument::from(&outcome.checkpoint),
            created: outcome.created,
            complete: outcome.complete,
            root: RootDocument::from(outcome.root.as_path()),
            counts: &outcome.counts,
            problems: outcome.problems.iter().map(ReasonDocument::from).collect(),
            problem_count: outcome.problem_count,
            elapsed_ms: outcome.elapsed_ms,
        })?;
    } else {
        print(&outcome, context)?;
    }
    Ok(Exit::damaged_if(!outcome.complete))
}

fn print(outcome: &CaptureOutcome, context: &mut Context) -> io::Result<()> {
    let printer = &mut context.printer;
    let style = printer.style();
    if !style.quiet {
        let root = printable(outcome.root.as_os_str().as_bytes());
        let id = &outcome.checkpoint;
        if outcome.created {
            printer.prose(&format!("captured {id} of {root}"))?;
        } else {
            printer.prose(&format!("nothing has changed in {root} since {id}"))?;
        }
        printer.prose(&work_done(&outcome.counts, outcome.elapsed_ms))?;
        if !outcome.counts.omitted.is_empty() {
            printer.hanging("not held: ", &omitted(&outcome.counts.omitted))?;
        }
        printer.flush()?;
    }
    if !outcome.complete {
        let text = "the checkpoint is incomplete: some paths could not be held whole";
        style.complain(Kind::Warning, text);
        name_problems(&outcome.problems, outcome.problem_count, style);
    }
    Ok(())
}

fn work_done(counts: &Counts, elapsed_ms: u64) -> String {
    let Counts { files_observed, files_read, bytes_read, bytes_stored, .. } = counts;
    let files = format::counted(*files_observed, "file", "files");
    let read = match files_read {
        0 => "none read".to_owned(),
        _ => format!("{} read ({})", format::number(*files_read), format::size(*bytes_read)),
    };
    let (stored, elapsed) = (format::size(*bytes_stored), format::elapsed(elapsed_ms));
    format!("{files}, {read}, {stored} stored, {elapsed}")
}

/// How many names are not held, by reason.
pub(crate) fn omitted(omitted: &BTreeMap<turnpoint::manifest::OmitReason, u64>) -> String {
    let parts: Vec<String> = omitted
        .iter()
        .map(|(reason, count)| format!("{} {reason}", format::number(*count)))
        .collect();
    parts.join(", ")
}

/// Names paths that could not be held whole, each with the reason.
pub(crate) fn name_problems(problems: &[CaptureProblem], count: u64, style: Style) {
    let most = if style.verbose { usize::MAX } else { NAMED_MAX };
    for problem in problems.iter().take(most) {
        let why = problem.reason.map_or("changed while it was read", |reason| reason.as_str());
        printer::aside(&format!("  {}: {why}", problem.path));
    }
    let more = count - problems.len().min(most) as u64;
    if more > 0 {
        let hint = if problems.len() > most { " (--verbose names more)" } else { "" };
        printer::aside(&format!("  and {} more{hint}", format::number(more)));
    }
}
