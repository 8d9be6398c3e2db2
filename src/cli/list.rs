//! `turnpoint list`.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::Serialize;
use turnpoint::clock::Timestamp;
use turnpoint::id::SessionName;
use turnpoint::path::printable;
use turnpoint::{CheckpointSummary, ListItem, ListQuery, Listing, SessionSummary};

use crate::cli::arguments::ListArguments;
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::failure::Outcome;
use crate::cli::format;
use crate::cli::json::{CheckpointDocument, IdDocument, RootDocument, UnreadableDocument};
use crate::cli::printer::{Kind, Printer};
use crate::cli::show;
use crate::cli::table::{Align, Table};

/// From this width on there is room for the time of day and the number of files.
const WIDE: usize = 72;

#[derive(Serialize)]
struct ListDocument<'a> {
    checkpoints: Vec<CheckpointDocument<'a>>,
    unreadable: Vec<UnreadableDocument<'a>>,
    legacy: Vec<IdDocument>,
}

#[derive(Serialize)]
struct SessionsDocument {
    sessions: Vec<SessionDocument>,
}

#[derive(Serialize)]
struct SessionDocument {
    session: String,
    checkpoints: u64,
    safety_checkpoints: u64,
    latest: Option<u64>,
    first_created_at: Option<String>,
    last_created_at: Option<String>,
    roots: Vec<RootDocument>,
    unreadable: u64,
}

/// Lists checkpoints or sessions.
pub(crate) fn run(arguments: &ListArguments, context: &mut Context) -> Outcome<Exit> {
    context.report_open_restore();
    if arguments.sessions {
        return sessions(arguments, context);
    }
    let root = context.root()?;
    let shown_root = printable(root.as_os_str().as_bytes());
    let (query, of_what) = match (
        arguments.session.as_ref().or(arguments.word.as_ref()),
        context.settings.workspace,
    ) {
        (Some(session), _) => (ListQuery::Session(session.clone()), None),
        (None, Some(id)) => (ListQuery::All, Some(format!("workspace {id}"))),
        (None, None) => (ListQuery::Workspace(root), Some(format!("workspace {shown_root}"))),
    };
    let mut listing = context.run(|store, monitor| store.list(&query, monitor))?;
    if let (ListQuery::All, Some(workspace)) = (&query, context.settings.workspace) {
        listing.items.retain(|item| match item {
            ListItem::Checkpoint(summary) => summary.workspace == workspace,
            // Nobody knows whose it is: better shown here than nowhere.
            ListItem::Unreadable { .. } => true,
            _ => false,
        });
    }
    if let Some(limit) = arguments.limit {
        keep_newest(&mut listing.items, limit.get() as usize);
    }
    if context.is_json() {
        context.document(&document(&listing))?;
    } else {
        let blocks = blocks(&listing, context.printer.width());
        if !arguments.no_pager {
            // Above each table are its session's name and, in between, an empty line.
            let width = context.printer.width();
            let lines = blocks.iter().map(|block| 2 + block.table.height(width)).sum();
            context.page_list(lines)?;
        }
        print(&listing, &blocks, of_what.as_deref(), context)?;
    }
    Ok(Exit::damaged_if(listing.unreadable() > 0))
}

/// Leaves the newest checkpoints, so many, and whatever cannot be read: what is damaged is always told.
fn keep_newest(items: &mut Vec<ListItem>, limit: usize) {
    let is_counted = |item: &ListItem| !matches!(item, ListItem::Unreadable { .. });
    let mut older = items.iter().filter(|item| is_counted(item)).count().saturating_sub(limit);
    items.retain(|item| {
        let is_older = older > 0 && is_counted(item);
        older -= usize::from(is_older);
        !is_older
    });
}

fn document(listing: &Listing) -> ListDocument<'_> {
    let mut document =
        ListDocument { checkpoints: Vec::new(), unreadable: Vec::new(), legacy: Vec::new() };
    for item in &listing.items {
        match item {
            ListItem::Checkpoint(summary) => {
                document.checkpoints.push(CheckpointDocument::from(&**summary));
            }
            ListItem::Unreadable { .. } => {
                document.unreadable.extend(UnreadableDocument::of(item));
            }
            ListItem::Legacy(id) => document.legacy.push(id.into()),
            _ => {}
        }
    }
    document
}

/// What is shown of one session.
struct Block<'a> {
    session: &'a SessionName,
    items: Vec<&'a ListItem>,
    table: Table,
}

/// That with the newest checkpoint is the last, as the newest line of all is.
fn blocks(listing: &Listing, width: Option<usize>) -> Vec<Block<'_>> {
    let block = |session| {
        let is_of_it = |item: &&ListItem| session_of(item) == Some(session);
        let items: Vec<&ListItem> = listing.items.iter().filter(is_of_it).collect();
        let table = table(&items, width);
        Block { session, items, table }
    };
    sessions_in_order(listing).into_iter().map(block).collect()
}

/// `of_what` is said first; where it is nothing, each session says its workspaces.
fn print(
    listing: &Listing,
    blocks: &[Block<'_>],
    of_what: Option<&str>,
    context: &mut Context,
) -> io::Result<()> {
    let printer = &mut context.printer;
    let style = printer.style();
    if listing.items.is_empty() {
        let of_what = of_what.unwrap_or("this session");
        style.complain(Kind::Note, &format!("there is no checkpoint of {of_what} yet"));
        style.complain(
            Kind::Hint,
            "`turnpoint capture` makes the first; `turnpoint list --sessions` shows all sessions",
        );
        return Ok(());
    }
    if let Some(of_what) = of_what {
        printer.prose(of_what)?;
    }
    for Block { session, items, table } in blocks {
        if of_what.is_some() {
            printer.gap()?;
        }
        printer.prose(&format!("session {session}"))?;
        if of_what.is_none() {
            print_roots(items, printer)?;
        }
        table.print(printer)?;
    }
    printer.flush()?;
    let unreadable = listing.unreadable() as u64;
    if unreadable > 0 {
        let count = format::counted(unreadable, "checkpoint", "checkpoints");
        style.complain(
            Kind::Warning,
            &format!("{count} cannot be read; `turnpoint verify` says more"),
        );
    }
    Ok(())
}

fn print_roots(items: &[&ListItem], printer: &mut Printer) -> io::Result<()> {
    let roots: BTreeSet<&Path> = items
        .iter()
        .filter_map(|item| match item {
            ListItem::Checkpoint(summary) => Some(summary.root.as_path()),
            _ => None,
        })
        .collect();
    for root in roots {
        printer.prose(&format!("workspace {}", printable(root.as_os_str().as_bytes())))?;
    }
    Ok(())
}

/// Sessions by their newest line.
fn sessions_in_order(listing: &Listing) -> Vec<&SessionName> {
    let mut sessions: Vec<&SessionName> = Vec::new();
    for session in listing.items.iter().filter_map(session_of) {
        sessions.retain(|known| *known != session);
        sessions.push(session);
    }
    sessions
}

fn session_of(item: &ListItem) -> Option<&SessionName> {
    match item {
        ListItem::Checkpoint(summary) => Some(&summary.id.session),
        ListItem::Legacy(id) | ListItem::Unreadable { id, .. } => Some(&id.session),
        _ => None,
    }
}

fn table(items: &[&ListItem], width: Option<usize>) -> Table {
    let is_wide = width.is_none_or(|width| width >= WIDE);
    let mut table = if is_wide {
        Table::new([
            ("SEQ", Align::Right),
            ("TIME", Align::Left),
            ("AGE", Align::Right),
            ("FILES", Align::Right),
            ("READ", Align::Right),
            ("TRIGGER", Align::Left),
            ("LABEL", Align::Left),
        ])
    } else {
        Table::new([
            ("SEQ", Align::Right),
            ("AGE", Align::Right),
            ("TRIGGER", Align::Left),
            ("LABEL", Align::Left),
        ])
    };
    let now = Timestamp::now();
    for item in items {
        let (seq, summary, text) = match item {
            ListItem::Checkpoint(summary) => (summary.id.seq, Some(summary), remarks(summary)),
            ListItem::Legacy(id) => (id.seq, None, "of another program, left alone".to_owned()),
            ListItem::Unreadable { id, reason, .. } => {
                (id.seq, None, format!("[unreadable] {}", printable(reason.as_bytes())))
            }
            _ => continue,
        };
        let cell = |show: &dyn Fn(&CheckpointSummary) -> String| {
            summary.map_or_else(|| "-".to_owned(), |summary| show(summary))
        };
        let mut cells = vec![seq.to_string()];
        if is_wide {
            cells.push(cell(&|summary| format::minute(summary.created_at)));
        }
        cells.push(cell(&|summary| format::age(summary.created_at, now)));
        if is_wide {
            cells.push(cell(&|summary| format::number(summary.counts.files_observed)));
            cells.push(cell(&|summary| format::number(summary.counts.files_read)));
        }
        cells.push(cell(&|summary| summary.trigger.clone()));
        cells.push(text);
        table.row(cells);
    }
    table
}

/// The marks, the label, or what a safety checkpoint was made before, and the note.
fn remarks(summary: &CheckpointSummary) -> String {
    let mut parts = Vec::new();
    if !summary.complete {
        parts.push("[incomplete]".to_owned());
    }
    if summary.pinned {
        parts.push("[pinned]".to_owned());
    }
    if summary.is_part {
        parts.push("[some paths]".to_owned());
    }
    match (&summary.label, &summary.restore) {
        (Some(label), _) => parts.push(printable(label.as_bytes())),
        (None, Some(restore)) => parts.push(format!("({})", show::before(restore))),
        (None, None) => {}
    }
    if let Some(note) = &summary.note {
        parts.push(format!("({})", printable(note.as_bytes())));
    }
    parts.join(" ")
}

fn sessions(arguments: &ListArguments, context: &mut Context) -> Outcome<Exit> {
    let mut sessions = context.run(|store, monitor| store.sessions(monitor))?;
    let unreadable: u64 = sessions.iter().map(|session| session.unreadable).sum();
    let all = sessions.len();
    if !arguments.all && !context.is_json() {
        sessions.retain(|session| !session.is_of_removed_run);
    }
    let left_out = (all - sessions.len()) as u64;
    if let Some(limit) = arguments.limit {
        let mut older = sessions.len().saturating_sub(limit.get() as usize);
        // What is damaged is always told.
        sessions.retain(|session| {
            let is_older = older > 0;
            older -= usize::from(is_older);
            !is_older || session.unreadable > 0
        });
    }
    if context.is_json() {
        let sessions = sessions.iter().map(session_document).collect();
        context.document(&SessionsDocument { sessions })?;
    } else if all == 0 {
        let style = context.printer.style();
        style.complain(Kind::Note, "there is no session yet");
        style.complain(Kind::Hint, "`turnpoint capture` makes the first checkpoint");
    } else {
        let table = sessions_table(&sessions);
        if !arguments.no_pager {
            context.page_list(table.height(context.printer.width()))?;
        }
        if !sessions.is_empty() {
            table.print(&mut context.printer)?;
        }
        if left_out > 0 {
            let text = if left_out == 1 {
                "1 session of a run whose work tree is gone is left out".to_owned()
            } else {
                let count = format::number(left_out);
                format!("{count} sessions of runs whose work trees are gone are left out")
            };
            context.printer.flush()?;
            context.remark(format!("{text}; `turnpoint list --sessions --all` shows all"));
        }
    }
    Ok(Exit::damaged_if(unreadable > 0))
}

fn session_document(session: &SessionSummary) -> SessionDocument {
    SessionDocument {
        session: session.name.as_str().to_owned(),
        checkpoints: session.checkpoints,
        safety_checkpoints: session.safety_checkpoints,
        latest: session.latest.map(turnpoint::id::Seq::get),
        first_created_at: session.span.map(|(first, _)| first.to_string()),
        last_created_at: session.span.map(|(_, last)| last.to_string()),
        roots: session.roots.iter().map(|root| RootDocument::from(root.as_path())).collect(),
        unreadable: session.unreadable,
    }
}

/// How many workspaces of a session a line of a list names; the others are counted.
const ROOTS_SHOWN_MAX: usize = 3;

fn sessions_table(sessions: &[SessionSummary]) -> Table {
    let mut table = Table::new([
        ("AGE", Align::Right),
        ("LATEST", Align::Right),
        ("COUNT", Align::Right),
        ("SAFETY", Align::Right),
        ("SESSION, WORKSPACE", Align::Left),
    ]);
    let now = Timestamp::now();
    for session in sessions {
        let mut parts = vec![session.name.to_string()];
        let roots = session.roots.iter().map(|root| printable(root.as_os_str().as_bytes()));
        parts.extend(roots.take(ROOTS_SHOWN_MAX));
        let more = session.roots.len().saturating_sub(ROOTS_SHOWN_MAX);
        if more > 0 {
            parts.push(format!("[{} more]", format::number(more as u64)));
        }
        if session.unreadable > 0 {
            parts.push(format!("[{} unreadable]", session.unreadable));
        }
        table.row(vec![
            session.span.map_or_else(|| "-".to_owned(), |(_, last)| format::age(last, now)),
            session.latest.map_or_else(|| "-".to_owned(), |seq| seq.to_string()),
            format::number(session.checkpoints),
            format::number(session.safety_checkpoints),
            parts.join("  "),
        ]);
    }
    table
}
