//! `turnpoint log`.

use std::io;

use serde::Serialize;
use turnpoint::clock::Timestamp;
use turnpoint::id::CheckpointId;
use turnpoint::path::RelPath;
use turnpoint::{ListItem, PathHistory, PathStep, Spec, Which};

use crate::cli::arguments::LogArguments;
use crate::cli::context::Context;
use crate::cli::diff::{ChangeDocument, described};
use crate::cli::exit::Exit;
use crate::cli::failure::{Failure, Outcome};
use crate::cli::format;
use crate::cli::json::{IdDocument, UnreadableDocument};
use crate::cli::patch::{self, AfterIs};
use crate::cli::printer::{Kind, Printer};
use crate::cli::table::{Align, Table};
use crate::cli::target;

#[derive(Serialize)]
struct LogDocument<'a> {
    entries: Vec<EntryDocument>,
    unreadable: Vec<UnreadableDocument<'a>>,
}

#[derive(Serialize)]
struct EntryDocument {
    #[serde(flatten)]
    id: IdDocument,
    created_at: String,
    before: Option<u64>,
    #[serde(flatten)]
    change: ChangeDocument,
}

/// Shows which checkpoints changed a path.
pub(crate) fn run(arguments: &LogArguments, context: &mut Context) -> Outcome<Exit> {
    if context.is_json() && arguments.patch {
        let message = "--patch is no JSON; leave it out, or --json";
        return Err(Failure::own(Exit::Usage, "usage", message));
    }
    let Some(word) = &arguments.path else {
        // In git it is what `list` is here.
        let place = context.place();
        return Err(Failure::own(Exit::Usage, "usage", "no path is named").hint(format!(
            "`turnpoint {place}list` shows the checkpoints, `turnpoint {place}log .` what each changed below this \
             directory"
        )));
    };
    context.report_open_restore();
    let root = context.root()?;
    let paths = target::paths(context, &root, [word])?;
    let path = paths.into_iter().next().unwrap_or_default();
    let named = match &arguments.session {
        Some(session) => Some(target::session_name(session)?),
        None => context.default_session()?,
    };
    let session = if let Some(session) = named {
        session
    } else {
        let newest = Spec { session: None, which: Which::Latest { back: 0 } };
        let session = context.resolve(&newest)?.session;
        context.tell_of_other_sessions(&session, &root);
        session
    };
    let history =
        context.run(|store, monitor| store.path_history(&session, &path, &root, monitor))?;
    if !history.is_held && history.steps.is_empty() {
        return Err(not_held(&history, &path, session.as_str(), context));
    }
    let is_whole = if context.is_json() {
        context.document(&document(&history))?;
        true
    } else if arguments.patch {
        if !arguments.no_pager {
            context.page()?;
        }
        print_patches(&history, context)?
    } else {
        let width = context.printer.width();
        let table = table(&history, width);
        if !arguments.no_pager {
            // Above it is the session's name.
            context.page_list(1 + table.height(width))?;
        }
        print(&history, &table, &path, context)?;
        true
    };
    tell_unreadable(&history.unreadable, context);
    Ok(Exit::damaged_if(!is_whole || !history.unreadable.is_empty()))
}

fn not_held(history: &PathHistory, path: &RelPath, session: &str, context: &Context) -> Failure {
    let reason = history.omitted.map(|reason| format!(": {reason}")).unwrap_or_default();
    let message = format!("no checkpoint of session `{session}` holds `{path}`{reason}");
    let place = context.place();
    Failure::own(Exit::Usage, "path-not-found", message)
        .hint(format!("`turnpoint {place}find NAME` searches all checkpoints of this workspace"))
}

/// Names checkpoints that an answer could not take into account.
pub(crate) fn tell_unreadable(unreadable: &[ListItem], context: &Context) {
    if unreadable.is_empty() || context.is_json() {
        return;
    }
    let count = format::counted(unreadable.len() as u64, "checkpoint", "checkpoints");
    let names: Vec<String> = unreadable.iter().map(|item| item.id().to_string()).collect();
    let text = format!(
        "{count} cannot be read and {} left out: {}; `turnpoint verify` says more",
        if unreadable.len() == 1 { "is" } else { "are" },
        names.join(", ")
    );
    context.printer.style().complain(Kind::Warning, &text);
}

fn document(history: &PathHistory) -> LogDocument<'_> {
    let mut entries = Vec::new();
    for step in &history.steps {
        entries.extend(step.changes.iter().map(|change| EntryDocument {
            id: IdDocument::from(&step.checkpoint),
            created_at: step.created_at.to_string(),
            before: step.before.as_ref().map(|before| before.seq.get()),
            change: ChangeDocument::from(change),
        }));
    }
    let unreadable = history.unreadable.iter().filter_map(UnreadableDocument::of).collect();
    LogDocument { entries, unreadable }
}

fn print(
    history: &PathHistory,
    table: &Table,
    path: &RelPath,
    context: &mut Context,
) -> io::Result<()> {
    let printer = &mut context.printer;
    let Some(step) = history.steps.first() else {
        return printer.prose(&format!("nothing at or below {path} has changed"));
    };
    if !printer.style().quiet {
        printer.prose(&format!("session {}", step.checkpoint.session))?;
    }
    table.print(printer)
}

/// One line for each change, the newest last, as in `turnpoint list`.
fn table(history: &PathHistory, width: Option<usize>) -> Table {
    let is_narrow = width.is_some_and(|width| width < 60);
    let mut table = if is_narrow {
        Table::new([("SEQ", Align::Right), ("CHANGE", Align::Left), ("PATH", Align::Left)])
    } else {
        Table::new([
            ("SEQ", Align::Right),
            ("TIME", Align::Left),
            ("AGE", Align::Right),
            ("CHANGE", Align::Left),
            ("PATH", Align::Left),
        ])
    };
    let now = Timestamp::now();
    for step in &history.steps {
        for change in &step.changes {
            let mut cells = vec![step.checkpoint.seq.to_string()];
            if !is_narrow {
                cells.push(format::minute(step.created_at));
                cells.push(format::age(step.created_at, now));
            }
            cells.push(change.kind.as_str().to_owned());
            cells.push(described(change));
            table.row(cells);
        }
    }
    table
}

/// Each step with what it changed, line by line.
fn print_patches(history: &PathHistory, context: &mut Context) -> Outcome<bool> {
    let mut is_whole = true;
    for (at, step) in history.steps.iter().enumerate() {
        if at > 0 {
            context.printer.gap()?;
        }
        heading(step, &mut context.printer)?;
        is_whole &= patch::print(&step.changes, AfterIs::Checkpoint, context)?;
    }
    Ok(is_whole)
}

fn heading(step: &PathStep, printer: &mut Printer) -> io::Result<()> {
    let time = format::second(step.created_at);
    let before = |before: &CheckpointId| format!(", compared with {before}");
    let before = step.before.as_ref().map(before).unwrap_or_default();
    printer.heading(&format!("checkpoint {}{before}", step.checkpoint))?;
    printer.line(time)?;
    printer.gap()
}
