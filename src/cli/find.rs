//! `turnpoint find`.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::Serialize;
use turnpoint::clock::Timestamp;
use turnpoint::compare::NamePattern;
use turnpoint::id::SessionName;
use turnpoint::manifest::EntryKind;
use turnpoint::path::{printable, shell_word};
use turnpoint::{FoundPath, FoundPaths};

use crate::cli::arguments::FindArguments;
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::failure::Outcome;
use crate::cli::format;
use crate::cli::json::{PathDocument, UnreadableDocument};
use crate::cli::log::tell_unreadable;
use crate::cli::printer::Kind;
use crate::cli::table::{Align, Table};

/// From this width on there is room for the age and the number of versions.
const WIDE: usize = 72;

#[derive(Serialize)]
struct FindDocument<'a> {
    found: Vec<FoundDocument>,
    unreadable: Vec<UnreadableDocument<'a>>,
}

#[derive(Serialize)]
struct FoundDocument {
    #[serde(flatten)]
    path: PathDocument,
    session: String,
    first: u64,
    last: u64,
    last_created_at: String,
    checkpoints: u64,
    versions: u64,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
}

/// Finds paths of a name in history.
pub(crate) fn run(arguments: &FindArguments, context: &mut Context) -> Outcome<Exit> {
    context.report_open_restore();
    let root = context.root()?;
    let pattern = NamePattern::new(arguments.name.as_bytes());
    let session = arguments.session.as_deref();
    let found =
        context.run(|store, monitor| store.find_paths(&pattern, session, &root, monitor))?;
    if context.is_json() {
        context.document(&document(&found))?;
    } else {
        if !arguments.no_pager {
            context.page()?;
        }
        print(&found, arguments, context)?;
    }
    tell_unreadable(&found.unreadable, context);
    if arguments.session.is_none() {
        tell_removed_runs(&root, arguments, context);
    }
    Ok(Exit::damaged_if(!found.unreadable.is_empty()))
}

/// Says where the files of removed runs can be looked for: they are of other workspaces, and those are gone.
fn tell_removed_runs(root: &Path, arguments: &FindArguments, context: &mut Context) {
    // Outside of a repository there are no runs.
    let Ok(listing) = context.store.runs(root, true, &()) else { return };
    let kept = listing.runs.iter().filter_map(|run| run.kept.as_ref());
    let sessions: BTreeSet<&SessionName> = kept.map(|kept| &kept.session).collect();
    let Some(session) = sessions.last() else { return };
    let (name, session) = (shell_word(&arguments.name), shell_word(session.as_str()));
    let place = context.place();
    context.remark(format!(
        "what removed runs had was not looked through: `turnpoint {place}find {name} --session {session}`"
    ));
}

fn document(found: &FoundPaths) -> FindDocument<'_> {
    let one = |found: &FoundPath| FoundDocument {
        path: PathDocument::from(&found.entry.path),
        session: found.session.as_str().to_owned(),
        first: found.first.get(),
        last: found.last.get(),
        last_created_at: found.last_created_at.to_string(),
        checkpoints: found.checkpoints,
        versions: found.versions,
        kind: found.entry.kind.name(),
        size: found.entry.blob().map(|(_, size)| size),
        reason: match found.entry.kind {
            EntryKind::Omitted { reason, .. } => Some(reason.as_str()),
            _ => None,
        },
    };
    FindDocument {
        found: found.found.iter().map(one).collect(),
        unreadable: found.unreadable.iter().filter_map(UnreadableDocument::of).collect(),
    }
}

fn print(found: &FoundPaths, arguments: &FindArguments, context: &mut Context) -> io::Result<()> {
    let printer = &mut context.printer;
    if found.found.is_empty() {
        let shown = printable(arguments.name.as_bytes());
        let style = printer.style();
        style.complain(Kind::Note, &format!("no checkpoint has a path `{shown}`"));
        return Ok(());
    }
    let is_wide = printer.width().is_none_or(|width| width >= WIDE);
    let mut table = if is_wide {
        Table::new([
            ("CHECKPOINTS", Align::Left),
            ("AGE", Align::Right),
            ("VERSIONS", Align::Right),
            ("PATH", Align::Left),
        ])
    } else {
        Table::new([("CHECKPOINTS", Align::Left), ("PATH", Align::Left)])
    };
    let now = Timestamp::now();
    for one in &found.found {
        let mut cells = vec![range(one)];
        if is_wide {
            cells.push(format::age(one.last_created_at, now));
            cells.push(format::number(one.versions));
        }
        cells.push(name(one));
        table.row(cells);
    }
    table.print(printer)
}

/// `s:3`, or `s:3-7`.
fn range(found: &FoundPath) -> String {
    if found.first == found.last {
        format!("{}:{}", found.session, found.first)
    } else {
        format!("{}:{}-{}", found.session, found.first, found.last)
    }
}

fn name(found: &FoundPath) -> String {
    let path = &found.entry.path;
    match &found.entry.kind {
        EntryKind::Dir { .. } => format!("{path}/"),
        EntryKind::Symlink { target } => format!("{path} -> {}", printable(target)),
        EntryKind::Omitted { reason, .. } => format!("{path} [not held: {reason}]"),
        _ => path.to_string(),
    }
}
