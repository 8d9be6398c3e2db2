//! How many lines of each file differ, as `git diff --stat` shows it.

use std::io;

use turnpoint::Comparison;
use turnpoint::compare::{Change, LineCount, Text, count_lines};
use turnpoint::manifest::{Entry, EntryKind};

use crate::cli::context::Context;
use crate::cli::failure::Outcome;
use crate::cli::format;
use crate::cli::patch::{AfterIs, Sides, contents, tell_unreadable};
use crate::cli::printer::{Paint, Printer};

/// As wide as git where no terminal says how wide a line may be.
const WIDTH: usize = 80;
/// The bars are never longer than this.
const BAR_MAX: usize = 40;
/// Below this many characters for the bar the path goes to a line of its own.
const BAR_MIN: usize = 10;

/// What is said of one change.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Count {
    /// So many lines.
    Lines(LineCount),
    /// It is not text, or too long: only its size.
    Size { before: Option<u64>, after: Option<u64> },
    /// It cannot be read.
    Unknown,
}

/// Counts the lines of each change; `false` beside them where content could not be read, which is told.
pub(crate) fn count(found: &Comparison, context: &mut Context) -> Outcome<(Vec<Count>, bool)> {
    let mut is_whole = true;
    let counts = context.run_printing(|store, printer, monitor| -> Outcome<Vec<Count>> {
        let mut counts = Vec::with_capacity(found.changes.len());
        for change in &found.changes {
            counts.push(match contents(change, AfterIs::of(found), store, monitor) {
                Ok(sides) => count_of(change, &sides),
                Err(error) => {
                    tell_unreadable(change, error, printer)?;
                    is_whole = false;
                    Count::Unknown
                }
            });
        }
        Ok(counts)
    })?;
    Ok((counts, is_whole))
}

fn count_of(change: &Change, (before, after): &Sides) -> Count {
    fn lines(text: Option<&Text>) -> Option<&[u8]> {
        text.map_or(Some(&[]), Text::lines)
    }
    // Of what a checkpoint does not hold nobody knows how many lines it had.
    let is_omitted = |entry: &Option<Entry>| {
        entry.as_ref().is_some_and(|entry| matches!(entry.kind, EntryKind::Omitted { .. }))
    };
    if is_omitted(&change.before) || is_omitted(&change.after) {
        return Count::Unknown;
    }
    if let (Some(before), Some(after)) = (lines(before.as_ref()), lines(after.as_ref())) {
        return Count::Lines(count_lines(before, after));
    }
    let size = |entry: &Option<Entry>| entry.as_ref()?.blob().map(|(_, size)| size);
    Count::Size { before: size(&change.before), after: size(&change.after) }
}

/// Prints a line for each change, and the sum.
pub(crate) fn print(found: &Comparison, counts: &[Count], printer: &mut Printer) -> io::Result<()> {
    let width = printer.width().unwrap_or(WIDTH);
    let names: Vec<String> = found.changes.iter().map(name).collect();
    let numbers: Vec<String> = counts.iter().map(number).collect();
    let longest = |texts: &[String]| texts.iter().map(|it| it.chars().count()).max().unwrap_or(0);
    let (name_width, number_width) = (longest(&names), longest(&numbers));
    // ` name | number bar`
    let beside = name_width + number_width + 5;
    let is_beside = beside + BAR_MIN <= width;
    let room = if is_beside { width - beside } else { width.saturating_sub(number_width + 7) };
    let room = room.clamp(1, BAR_MAX);
    let most = counts.iter().map(total).max().unwrap_or(0);
    for ((name, number), count) in names.iter().zip(&numbers).zip(counts) {
        if is_beside {
            let padding = " ".repeat(name_width - name.chars().count());
            printer.paint(Paint::Plain, format!(" {name}{padding} | ").as_bytes())?;
        } else {
            printer.line(format_args!(" {name}"))?;
            printer.paint(Paint::Plain, b"   | ")?;
        }
        let padding = " ".repeat(number_width - number.chars().count());
        let number = match count {
            Count::Lines(_) => format!("{padding}{number}"),
            _ => number.clone(),
        };
        printer.paint(Paint::Plain, number.as_bytes())?;
        if let Count::Lines(lines) = count {
            print_bar(*lines, most, room, printer)?;
        }
        printer.paint(Paint::Plain, b"\n")?;
    }
    print_sum(counts, printer)
}

fn print_bar(lines: LineCount, most: u64, room: usize, printer: &mut Printer) -> io::Result<()> {
    let room = room as u64;
    // Every line that differs is seen as long as there is room; above it nothing vanishes.
    let scaled = |count: u64| match count {
        0 => 0,
        count if most <= room => count,
        count => (count * room / most).max(1),
    };
    let signs = |sign: &str, count: u64| sign.repeat(usize::try_from(scaled(count)).unwrap_or(0));
    if lines.added + lines.removed > 0 {
        printer.paint(Paint::Plain, b" ")?;
    }
    printer.paint(Paint::Added, signs("+", lines.added).as_bytes())?;
    printer.paint(Paint::Removed, signs("-", lines.removed).as_bytes())
}

fn print_sum(counts: &[Count], printer: &mut Printer) -> io::Result<()> {
    if counts.is_empty() || printer.style().quiet {
        return Ok(());
    }
    let sum = |of: fn(&LineCount) -> u64| -> u64 {
        let lines = counts.iter().filter_map(|count| match count {
            Count::Lines(lines) => Some(of(lines)),
            _ => None,
        });
        lines.sum()
    };
    let files = format::counted(counts.len() as u64, "file", "files");
    let added = format::counted(sum(|lines| lines.added), "line", "lines");
    let removed = format::counted(sum(|lines| lines.removed), "line", "lines");
    printer.prose(&format!("{files} changed, {added} added, {removed} removed"))
}

fn name(change: &Change) -> String {
    match change.from() {
        Some(from) => format!("{from} => {}", change.path()),
        None => change.path().to_string(),
    }
}

fn number(count: &Count) -> String {
    match count {
        Count::Lines(lines) => format::number(lines.added + lines.removed),
        Count::Size { before, after } => {
            let size = |size: &Option<u64>| size.map_or_else(|| "0 B".to_owned(), format::size);
            format!("Bin {} -> {}", size(before), size(after))
        }
        Count::Unknown => "?".to_owned(),
    }
}

fn total(count: &Count) -> u64 {
    match count {
        Count::Lines(lines) => lines.added + lines.removed,
        _ => 0,
    }
}
