//! Columns as `ls` prints them. The last column takes what is left of the line and wraps; where there is no
//! room for the others, each row is a list.

use std::io;

use crate::cli::format;
use crate::cli::printer::Printer;

/// Below this many characters the last column goes to lines of its own.
const LAST_COLUMN_MIN: usize = 16;
/// How far such lines are indented.
const OWN_LINE_INDENT: usize = 4;
/// Between two columns.
const GAP: usize = 2;

/// How a column's cells stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Rows of cells.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these headings; an empty heading for all columns means no line of headings.
    pub(crate) fn new<const N: usize>(columns: [(&'static str, Align); N]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row with one cell for each column.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Prints it.
    pub(crate) fn print(&self, printer: &mut Printer) -> io::Result<()> {
        let lines = self.lines(printer.width());
        let has_headings = self.has_headings() && !self.is_list(printer.width());
        for (at, line) in lines.iter().enumerate() {
            if at == 0 && has_headings {
                printer.heading(line)?;
            } else {
                printer.line(line)?;
            }
        }
        Ok(())
    }

    /// How many lines it has where the terminal is so wide.
    pub(crate) fn height(&self, width: Option<usize>) -> usize {
        self.lines(width).len()
    }

    fn has_headings(&self) -> bool {
        self.columns.iter().any(|(heading, _)| !heading.is_empty())
    }

    /// How wide each column but the last is.
    fn widths(&self) -> Vec<usize> {
        let fixed = self.columns.len().saturating_sub(1);
        let cells = |column: usize| self.rows.iter().map(move |row| length(&row[column]));
        (0..fixed)
            .map(|column| cells(column).max().unwrap_or(0).max(length(self.columns[column].0)))
            .collect()
    }

    /// Whether even without its last column it is wider than the terminal.
    fn is_list(&self, width: Option<usize>) -> bool {
        let fixed: usize = self.widths().iter().map(|width| width + GAP).sum();
        self.has_headings() && width.is_some_and(|width| fixed.saturating_sub(GAP) > width)
    }

    /// Each row as a list of headings and cells, with an empty line between two.
    fn lists(&self, width: usize) -> Vec<String> {
        let widest = self.columns.iter().map(|(heading, _)| length(heading)).max().unwrap_or(0);
        let indent = widest + GAP;
        let mut lines = Vec::new();
        for (at, row) in self.rows.iter().enumerate() {
            if at > 0 {
                lines.push(String::new());
            }
            for ((heading, _), cell) in self.columns.iter().zip(row) {
                let start = format!("{:indent$}", heading.to_lowercase());
                push_last(&mut lines, start, cell, indent, Some(width));
            }
        }
        lines
    }

    fn lines(&self, width: Option<usize>) -> Vec<String> {
        if let Some(width) = width.filter(|_| self.is_list(width)) {
            return self.lists(width);
        }
        let headings: Vec<String> =
            self.columns.iter().map(|(heading, _)| (*heading).to_owned()).collect();
        let all = self.has_headings().then_some(&headings).into_iter().chain(&self.rows);
        let fixed = self.columns.len().saturating_sub(1);
        let widths = self.widths();
        let start: usize = widths.iter().map(|width| width + GAP).sum();
        let mut lines = Vec::new();
        for row in all {
            let mut line = String::new();
            for (column, &width) in widths.iter().enumerate() {
                let padding = " ".repeat(width - length(&row[column]));
                match self.columns[column].1 {
                    Align::Left => line.extend([row[column].as_str(), padding.as_str()]),
                    Align::Right => line.extend([padding.as_str(), row[column].as_str()]),
                }
                line.push_str("  ");
            }
            push_last(&mut lines, line, &row[fixed], start, width);
        }
        lines
    }
}

/// Ends a row with its last cell: beside the others where it fits, wrapped below itself where there
/// is room, else below the row. A word, such as a path, that is whole only there goes there too.
fn push_last(
    lines: &mut Vec<String>,
    line: String,
    last: &str,
    start: usize,
    width: Option<usize>,
) {
    let fits = width.is_none_or(|width| start + length(last) <= width);
    if fits {
        lines.push((line + last).trim_end().to_owned());
        return;
    }
    let width = width.unwrap_or(usize::MAX);
    let room = width.saturating_sub(OWN_LINE_INDENT).max(1);
    let longest = format::words(last).iter().map(|word| length(word)).max().unwrap_or(0);
    let is_whole_below = start + longest > width && longest <= room;
    if start + LAST_COLUMN_MIN <= width && !is_whole_below {
        let mut first = Some(line);
        for part in format::wrapped(last, width - start) {
            let before = first.take().unwrap_or_else(|| " ".repeat(start));
            lines.push(before + &part);
        }
        return;
    }
    lines.push(line.trim_end().to_owned());
    lines.extend(
        format::wrapped(last, room)
            .iter()
            .map(|part| format!("{}{part}", " ".repeat(OWN_LINE_INDENT))),
    );
}

fn length(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table =
            Table::new([("N", Align::Right), ("WORD", Align::Left), ("NOTE", Align::Left)]);
        table.row(vec!["1".into(), "a".into(), String::new()]);
        table.row(vec!["10".into(), "longer".into(), "some words that need room".into()]);
        table
    }

    #[test]
    fn columns_line_up_and_nothing_trails() {
        assert_eq!(
            table().lines(None),
            [" N  WORD    NOTE", " 1  a", "10  longer  some words that need room"]
        );
    }

    #[test]
    fn a_path_is_broken_only_where_no_line_holds_it() {
        let mut table = Table::new([("", Align::Left), ("", Align::Left)]);
        for path in ["src/short.rs", "src/longer-than-the-rest.rs"] {
            table.row(vec!["-rw-r--r--".into(), path.into()]);
        }
        assert_eq!(
            table.lines(Some(31)),
            ["-rw-r--r--  src/short.rs", "-rw-r--r--", "    src/longer-than-the-rest.rs"]
        );
        assert_eq!(table.lines(Some(30))[1], "-rw-r--r--  src/longer-than-the-rest.rs");
    }

    #[test]
    fn a_command_goes_below_where_it_is_whole_only_there() {
        let mut table = Table::new([("", Align::Left), ("", Align::Left)]);
        table.row(vec!["what is not held".into(), "2 (`turnpoint ls --omitted`)".into()]);
        assert_eq!(table.lines(Some(36)), ["what is not held", "    2 (`turnpoint ls --omitted`)"]);
    }

    #[test]
    fn rows_are_lists_where_the_columns_have_no_room() {
        let mut table = Table::new([
            ("COUNT", Align::Right),
            ("LONG WORD", Align::Left),
            ("NOTE", Align::Left),
        ]);
        table.row(vec!["1".into(), "a".into(), String::new()]);
        table.row(vec!["10".into(), "b".into(), "words that wrap".into()]);
        let lists =
            ["count      1", "long word  a", "note", "", "count      10", "long word  b", "note"];
        let shown = table.lines(Some(15));
        assert_eq!(shown[..7], lists);
        assert_eq!(
            shown[7..].concat().split_whitespace().collect::<Vec<_>>(),
            ["words", "that", "wrap"]
        );
        assert!(shown.iter().all(|line| line.len() <= 15), "{shown:?}");
        assert_eq!(table.lines(Some(16))[0], "COUNT  LONG WORD");
    }

    #[test]
    fn the_last_column_wraps_and_loses_nothing() {
        assert_eq!(
            table().lines(Some(30)),
            [" N  WORD    NOTE", " 1  a", "10  longer  some words that", "            need room"]
        );
        assert_eq!(
            table().lines(Some(24)),
            [" N  WORD    NOTE", " 1  a", "10  longer", "    some words that need", "    room"]
        );
    }
}
