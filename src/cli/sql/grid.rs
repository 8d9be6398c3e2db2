//! An answer as a table. On a terminal it fits, and cells are cut for that; anywhere else nothing is.

use std::io;

use turnpoint::Value;
use turnpoint::path::printable;
use unicode_width::UnicodeWidthStr;

use super::answer::plain;
use crate::cli::format::shortened;
use crate::cli::printer::Printer;

/// Between two columns.
const GAP: usize = 2;
/// A column that has more in it is not made narrower than this: rather is each row shown as a list.
const COLUMN_MIN: usize = 8;

/// Rows of text.
#[derive(Debug)]
pub(super) struct Grid {
    headings: Vec<String>,
    rows: Vec<Vec<Cell>>,
    /// Whether a column holds numbers and nothing else, which stand at its right edge.
    is_numeric: Vec<bool>,
}

#[derive(Debug)]
struct Cell {
    text: String,
    is_null: bool,
}

/// Lines for a terminal or anything else.
#[derive(Debug)]
struct Layout {
    lines: Vec<String>,
    has_heading: bool,
    is_cut: bool,
}

impl Grid {
    pub(super) fn new(columns: &[String], rows: &[Vec<Value>]) -> Self {
        let is_number = |value: &Value| matches!(value, Value::Integer(_) | Value::Real(_));
        let is_numeric = (0..columns.len())
            .map(|column| {
                let mut values = rows.iter().map(|row| &row[column]);
                values.clone().any(is_number)
                    && values.all(|value| is_number(value) || *value == Value::Null)
            })
            .collect();
        let cell = |value: &Value| Cell {
            text: printable(plain(value).as_bytes()),
            is_null: *value == Value::Null,
        };
        Self {
            headings: columns.iter().map(|name| printable(name.as_bytes())).collect(),
            rows: rows.iter().map(|row| row.iter().map(cell).collect()).collect(),
            is_numeric,
        }
    }

    /// Prints it and says whether something was cut.
    pub(super) fn print(&self, printer: &mut Printer) -> io::Result<bool> {
        let faint = |text: &str| printer.faint(text);
        let Layout { lines, has_heading, is_cut } = self.lines(printer.width(), &faint);
        for (at, line) in lines.iter().enumerate() {
            if at == 0 && has_heading { printer.heading(line)? } else { printer.line(line)? }
        }
        Ok(is_cut)
    }

    fn lines(&self, width: Option<usize>, faint: &dyn Fn(&str) -> String) -> Layout {
        let mut widths: Vec<usize> = (0..self.headings.len())
            .map(|column| {
                let cells = self.rows.iter().map(|row| row[column].text.width());
                cells.chain([self.headings[column].width()]).max().unwrap_or(0)
            })
            .collect();
        let gaps = widths.len().saturating_sub(1) * GAP;
        if let Some(width) = width {
            let least: usize = widths.iter().map(|&natural| natural.min(COLUMN_MIN)).sum();
            if least + gaps > width {
                return self.lists(width, faint);
            }
            narrow(&mut widths, width - gaps);
        }
        let mut is_cut = false;
        let mut lines = Vec::with_capacity(self.rows.len() + 1);
        let mut line = |cells: &mut dyn Iterator<Item = (&str, bool)>| {
            let mut line = String::new();
            for (column, (text, is_null)) in cells.enumerate() {
                let cut = shortened(text, widths[column]);
                is_cut |= cut != text;
                let padding = " ".repeat(widths[column] - cut.width());
                let cut = if is_null { faint(&cut) } else { cut };
                let parts = if self.is_numeric[column] { [padding, cut] } else { [cut, padding] };
                line.extend(parts);
                line.push_str("  ");
            }
            line.truncate(line.trim_end().len());
            lines.push(line);
        };
        line(&mut self.headings.iter().map(|heading| (heading.as_str(), false)));
        for row in &self.rows {
            line(&mut row.iter().map(|cell| (cell.text.as_str(), cell.is_null)));
        }
        Layout { lines, has_heading: true, is_cut }
    }

    /// A row as a list of names and values, for a terminal with too little room for the columns.
    fn lists(&self, width: usize, faint: &dyn Fn(&str) -> String) -> Layout {
        let widest = self.headings.iter().map(|heading| heading.width()).max().unwrap_or(0);
        let of_names = widest.min(width / 2);
        let of_values = width.saturating_sub(of_names + GAP).max(1);
        let mut is_cut = false;
        let mut lines = Vec::new();
        for (at, row) in self.rows.iter().enumerate() {
            if at > 0 {
                lines.push(String::new());
            }
            for (heading, cell) in self.headings.iter().zip(row) {
                let name = shortened(heading, of_names);
                let value = shortened(&cell.text, of_values);
                is_cut |= name != *heading || value != cell.text;
                let padding = " ".repeat(of_names - name.width() + GAP);
                let value = if cell.is_null { faint(&value) } else { value };
                lines.push(format!("{name}{padding}{value}").trim_end().to_owned());
            }
        }
        Layout { lines, has_heading: false, is_cut }
    }
}

/// Takes from the widest columns until all fit into `room`.
fn narrow(widths: &mut [usize], room: usize) {
    for width in widths.iter_mut() {
        *width = (*width).min(room);
    }
    while widths.iter().sum::<usize>() > room {
        // The last of the widest: what is at the left is what one looks for.
        let Some(widest) = widths.iter_mut().rev().max_by_key(|width| **width) else { return };
        *widest -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(grid: &Grid, width: Option<usize>) -> (Vec<String>, bool) {
        let lines = grid.lines(width, &str::to_owned);
        if let Some(width) = width {
            assert!(lines.lines.iter().all(|line| line.width() <= width), "{lines:?}");
        }
        (lines.lines, lines.is_cut)
    }

    fn grid() -> Grid {
        let text = |text: &str| Value::Text(text.to_owned());
        Grid::new(
            &["path", "size", "note"].map(str::to_owned),
            &[
                vec![text("src/a-long-name.rs"), Value::Integer(7), text("a\nb\u{1b}[2J")],
                vec![text("文字文字文字"), Value::Null, Value::Blob(vec![0xab])],
            ],
        )
    }

    #[test]
    fn in_a_pipe_nothing_is_cut() {
        let (lines, is_cut) = lines(&grid(), None);
        assert_eq!(
            lines,
            [
                "path                size  note",
                "src/a-long-name.rs     7  a\\nb\\u{1b}[2J",
                "文字文字文字        NULL  x'ab'"
            ]
        );
        assert!(!is_cut);
    }

    #[test]
    fn on_a_terminal_the_widest_columns_are_cut() {
        let (shown, is_cut) = lines(&grid(), Some(30));
        assert_eq!(
            shown,
            [
                "path         size  note",
                "src/a-long…     7  a\\nb\\u{1b}…",
                "文字文字文…  NULL  x'ab'"
            ]
        );
        assert!(is_cut);
    }

    #[test]
    fn where_columns_have_no_room_each_row_is_a_list() {
        let (shown, is_cut) = lines(&grid(), Some(20));
        assert_eq!(
            shown,
            [
                "path  src/a-long-na…",
                "size  7",
                "note  a\\nb\\u{1b}[2J",
                "",
                "path  文字文字文字",
                "size  NULL",
                "note  x'ab'"
            ]
        );
        assert!(is_cut);
    }
}
