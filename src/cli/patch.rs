//! Printing changes line by line.

use std::io;
use std::path::Path;

use turnpoint::compare::{self, Change, ChangeKind, PatchLine, PatchLineKind, Text};
use turnpoint::limits::COMPARED_BYTES_MAX;
use turnpoint::manifest::{Entry, EntryKind};
use turnpoint::path::printable;
use turnpoint::{Comparison, Error, Monitor, Store};

use crate::cli::context::Context;
use crate::cli::failure::Outcome;
use crate::cli::printer::{Kind, Paint, Printer};

/// Where the second side of a change is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum AfterIs<'a> {
    /// In the store.
    Checkpoint,
    /// In the workspace that is there.
    Disk(&'a Path),
}

impl<'a> AfterIs<'a> {
    /// That of a comparison.
    pub(crate) fn of(found: &'a Comparison) -> Self {
        match found.after.checkpoint {
            Some(_) => Self::Checkpoint,
            None => Self::Disk(&found.after.root),
        }
    }
}

/// The contents of the sides of a change.
pub(crate) type Sides = (Option<Text>, Option<Text>);

/// Reads the content of both sides of a change, as far as it matters.
pub(crate) fn contents(
    change: &Change,
    after_is: AfterIs<'_>,
    store: &Store,
    monitor: &dyn Monitor,
) -> turnpoint::Result<Sides> {
    if monitor.is_cancelled() {
        return Err(Error::Cancelled);
    }
    if matches!(change.kind, ChangeKind::Mode | ChangeKind::Renamed) {
        return Ok((None, None));
    }
    let has_content =
        |entry: &&Entry| matches!(entry.kind, EntryKind::File { .. } | EntryKind::Symlink { .. });
    let before = change.before.as_ref().filter(has_content);
    let before = before.map(|entry| store.text(entry, COMPARED_BYTES_MAX, monitor)).transpose()?;
    let after = change.after.as_ref().filter(has_content);
    let after = after.map(|entry| match after_is {
        AfterIs::Checkpoint => store.text(entry, COMPARED_BYTES_MAX, monitor),
        AfterIs::Disk(root) => store.text_on_disk(root, entry, COMPARED_BYTES_MAX),
    });
    Ok((before, after.transpose()?))
}

/// Tells that the content of a change cannot be read, or gives the error back if it is none of one path.
pub(crate) fn tell_unreadable(
    change: &Change,
    error: Error,
    printer: &Printer,
) -> turnpoint::Result<()> {
    if matches!(error, Error::Cancelled) {
        return Err(error);
    }
    let mut text = format!("the content of `{}` is left out: {error}", change.path());
    if let Some(source) = std::error::Error::source(&error) {
        text = format!("{text}: {source}");
    }
    printer.style().complain(Kind::Warning, &printable(text.as_bytes()));
    Ok(())
}

/// Prints the patch of all changes; `false` where content could not be read, which is told.
pub(crate) fn print(
    changes: &[Change],
    after_is: AfterIs<'_>,
    context: &mut Context,
) -> Outcome<bool> {
    let style = context.printer.style();
    let mut is_whole = true;
    for change in changes.iter().filter(|change| !change.is_in_patch() && !style.quiet) {
        let text = "is not in the patch: one side does not hold its content";
        style.complain(Kind::Note, &format!("`{}` {text}", change.path()));
    }
    let printed = context.run_printing(|store, printer, monitor| -> Outcome<()> {
        for change in changes {
            match contents(change, after_is, store, monitor) {
                Ok((before, after)) => {
                    for text in [&before, &after] {
                        if *text == Some(Text::TooLong) && !style.quiet {
                            let text = "is too large to be compared line by line";
                            style.complain(Kind::Note, &format!("`{}` {text}", change.path()));
                            break;
                        }
                    }
                    compare::patch(change, before.as_ref(), after.as_ref(), &mut |line| {
                        print_line(line, printer)
                    })?;
                }
                Err(error) => {
                    tell_unreadable(change, error, printer)?;
                    is_whole = false;
                }
            }
        }
        Ok(())
    });
    printed?;
    Ok(is_whole)
}

/// A person is shown what a terminal would act on escaped; a program gets the bytes.
pub(crate) fn print_line(line: PatchLine<'_>, printer: &mut Printer) -> io::Result<()> {
    let paint = match line.kind {
        PatchLineKind::Header => Paint::Header,
        PatchLineKind::Place => Paint::Place,
        PatchLineKind::Context => Paint::Plain,
        PatchLineKind::Added => Paint::Added,
        PatchLineKind::Removed => Paint::Removed,
    };
    let mut bytes: Vec<u8> = line.sign.into_iter().collect();
    if printer.is_terminal() {
        let parts: Vec<String> = line.text.split(|&byte| byte == b'\t').map(printable).collect();
        bytes.extend_from_slice(parts.join("\t").as_bytes());
    } else {
        bytes.extend_from_slice(line.text);
    }
    printer.paint(paint, &bytes)?;
    printer.paint(Paint::Plain, b"\n")
}
