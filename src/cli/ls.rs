//! `turnpoint ls`.

use std::io;

use serde::Serialize;
use turnpoint::clock::Timestamp;
use turnpoint::id::CheckpointId;
use turnpoint::manifest::{Entry, EntryKind, Listed};
use turnpoint::path::{RelPath, printable};
use turnpoint::plan::Selection;

use crate::cli::arguments::LsArguments;
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::failure::{Failure, Outcome};
use crate::cli::format;
use crate::cli::json::{IdDocument, PathDocument, text_and_bytes};
use crate::cli::show;
use crate::cli::table::{Align, Table};
use crate::cli::target::{self, Target};

/// From this width on there is room for the time.
const WIDE: usize = 60;

#[derive(Serialize)]
struct LsDocument<'a> {
    #[serde(flatten)]
    id: IdDocument,
    entries: Vec<EntryDocument<'a>>,
}

#[derive(Serialize)]
struct EntryDocument<'a> {
    #[serde(flatten)]
    path: PathDocument,
    kind: &'static str,
    mode: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mtime: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hash: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unstable: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_bytes: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    listed: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rest: Option<u64>,
}

/// Lists entries.
pub(crate) fn run(arguments: &LsArguments, context: &mut Context) -> Outcome<Exit> {
    context.report_open_restore();
    let words = &arguments.target;
    let Target { spec, rest } = target::parse_or_latest(
        &words.words,
        arguments.session.as_deref(),
        words.time.at,
        Some(context),
    )?;
    let root = context.root()?;
    let paths = target::paths(context, &root, rest.iter().chain(&words.paths))?;
    let path = match &*paths {
        [] => RelPath::root(),
        [path] => path.clone(),
        _ => return Err(Failure::own(Exit::Usage, "usage", "one path is expected at most")),
    };
    let id = context.resolve(&spec)?;
    let mut entries = context.run(|store, monitor| store.entries(&id, &path, monitor))?;
    if let Some(only) = context.run(|store, monitor| store.paths_spoken_of(&id, monitor))? {
        let selection = Selection::Only(&only);
        entries.retain(|entry| selection.includes_or_leads_to(&entry.path));
        context.remark(format!("{id} {}; no others are listed", show::MADE_OF_PART));
    }
    select(&mut entries, &path, arguments);
    if context.is_json() {
        let entries = entries.iter().map(EntryDocument::from).collect();
        context.document(&LsDocument { id: IdDocument::from(&id), entries })?;
    } else {
        print(&id, &entries, context)?;
    }
    Ok(Exit::Done)
}

/// A directory's own entry stands for what is in it.
fn select(entries: &mut Vec<Entry>, path: &RelPath, arguments: &LsArguments) {
    if arguments.omitted {
        entries.retain(|entry| matches!(entry.kind, EntryKind::Omitted { .. }));
        return;
    }
    let is_directory =
        entries.first().is_some_and(|entry| matches!(entry.kind, EntryKind::Dir { .. }));
    if is_directory {
        entries.remove(0);
    }
    if !arguments.recursive && is_directory {
        entries.retain(|entry| entry.path.parent().as_ref() == Some(path));
    }
}

impl<'a> From<&'a Entry> for EntryDocument<'a> {
    fn from(entry: &'a Entry) -> Self {
        let mut document = Self {
            path: PathDocument::from(&entry.path),
            kind: entry.kind.name(),
            mode: entry.mode.to_string(),
            size: None,
            mtime: None,
            hash: None,
            unstable: None,
            target: None,
            target_bytes: None,
            listed: None,
            reason: None,
            rest: None,
        };
        match &entry.kind {
            EntryKind::File { size, mtime_ns, hash, unstable } => {
                document.size = Some(*size);
                document.mtime = Some(Timestamp::from_ns(*mtime_ns).to_string());
                document.hash = Some(hash.to_string());
                document.unstable = unstable.then_some(true);
            }
            EntryKind::Symlink { target } => {
                let (text, bytes) = text_and_bytes(target);
                document.target = Some(text);
                document.target_bytes = bytes;
            }
            EntryKind::Dir { listed } => {
                document.listed = Some(match listed {
                    Listed::Whole => "whole",
                    Listed::Partial => "partial",
                });
            }
            EntryKind::Omitted { reason, rest } => {
                document.reason = Some(reason.as_str());
                document.rest = (*rest > 0).then_some(*rest);
            }
            EntryKind::Absent => {}
        }
        document
    }
}

fn print(id: &CheckpointId, entries: &[Entry], context: &mut Context) -> io::Result<()> {
    let printer = &mut context.printer;
    if !printer.style().quiet {
        printer.prose(&format!("checkpoint {id}"))?;
    }
    let is_wide = printer.width().is_none_or(|width| width >= WIDE);
    let mut table = if is_wide {
        Table::new([("", Align::Left), ("", Align::Right), ("", Align::Left), ("", Align::Left)])
    } else {
        Table::new([("", Align::Left), ("", Align::Right), ("", Align::Left)])
    };
    for entry in entries {
        let (size, time) = match &entry.kind {
            EntryKind::File { size, mtime_ns, .. } => {
                (format::size(*size), format::minute(Timestamp::from_ns(*mtime_ns)))
            }
            _ => ("-".to_owned(), "-".to_owned()),
        };
        let mut cells = vec![mode_text(entry), size];
        if is_wide {
            cells.push(time);
        }
        cells.push(name(entry));
        table.row(cells);
    }
    table.print(printer)
}

/// As `ls -l` shows it; a name without content has no known kind.
fn mode_text(entry: &Entry) -> String {
    let kind = match entry.kind {
        EntryKind::Dir { .. } => 'd',
        EntryKind::Symlink { .. } => 'l',
        EntryKind::File { .. } => '-',
        EntryKind::Omitted { .. } | EntryKind::Absent => return "?---------".to_owned(),
    };
    let bits = entry.mode.bits();
    let mut text = String::from(kind);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits_here = bits >> shift;
        text.push(if bits_here & 4 == 0 { '-' } else { 'r' });
        text.push(if bits_here & 2 == 0 { '-' } else { 'w' });
        let runs = bits_here & 1 != 0;
        text.push(match (bits & special != 0, runs) {
            (false, false) => '-',
            (false, true) => 'x',
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
        });
    }
    text
}

fn name(entry: &Entry) -> String {
    let path = &entry.path;
    match &entry.kind {
        EntryKind::Dir { listed: Listed::Whole } => format!("{path}/"),
        EntryKind::Dir { listed: Listed::Partial } => format!("{path}/ [not all names listed]"),
        EntryKind::Symlink { target } => format!("{path} -> {}", printable(target)),
        EntryKind::File { unstable: true, .. } => format!("{path} [changed while it was read]"),
        EntryKind::Omitted { reason, rest: 0 } => format!("{path} [not held: {reason}]"),
        EntryKind::Omitted { reason, rest } => {
            format!("{path} [not held: {reason}] and {} more", format::number(*rest))
        }
        _ => path.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnpoint::manifest::Mode;

    #[test]
    fn modes_read_as_those_of_ls() {
        let text = |bits| {
            let kind = EntryKind::Dir { listed: Listed::Whole };
            mode_text(&Entry { path: RelPath::root(), mode: Mode::from_st_mode(bits), kind })
        };
        assert_eq!(text(0o755), "drwxr-xr-x");
        assert_eq!(text(0o1777), "drwxrwxrwt");
        assert_eq!(text(0o4644), "drwSr--r--");
        assert_eq!(text(0o2710), "drwx--s---");
    }
}
