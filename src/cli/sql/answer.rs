//! An answer in the form that was asked for.
//!
//! Rows are held until the answer is whole, so that the index is not kept open while somebody reads.
//! What is too much for that goes on row by row, where it goes to a file or a pipe and in a form that
//! does not need to know all of it first.

use std::io::{self, IsTerminal};
use std::ops::ControlFlow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use csv::{Terminator, WriterBuilder};
use serde_json::json;
use turnpoint::path::printable;
use turnpoint::{QueryError, QueryOptions, QueryOutcome, Value, limits};

use super::grid::Grid;
use crate::cli::arguments::AnswerFormat;
use crate::cli::context::Context;
use crate::cli::failure::Outcome;
use crate::cli::format;
use crate::cli::json::NoticeDocument;
use crate::cli::printer::{Kind, Printer, SCHEMA};

/// Asks, and prints what is answered.
pub(super) fn print(
    sql: &str,
    options: &QueryOptions,
    format: AnswerFormat,
    context: &mut Context,
) -> Outcome<QueryOutcome> {
    let is_terminal = io::stdout().is_terminal();
    let may_stream = format != AnswerFormat::Table && !is_terminal;
    let mut held: Vec<Vec<Value>> = Vec::new();
    let mut bytes = 0;
    let mut stream: Option<Form> = None;
    let mut written = Ok(());
    let result = context.run_printing(|store, printer, monitor| {
        let each = |row: turnpoint::QueryRow<'_>| {
            if let Some(form) = &mut stream {
                written = form.row(&row.values, printer);
                return if written.is_ok() {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                };
            }
            bytes += row.values.iter().map(Value::len_in_memory).sum::<usize>();
            held.push(row.values);
            if bytes <= limits::ANSWER_BYTES_MAX {
                return ControlFlow::Continue(());
            }
            if may_stream {
                let mut form = Form::new(format, row.columns, is_terminal);
                written = form.all(&std::mem::take(&mut held), printer);
                stream = Some(form);
            }
            if may_stream && written.is_ok() {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        };
        store.query_each(sql, options, each, monitor)
    });
    written?;
    let outcome = result?;
    if stream.is_none() && bytes > limits::ANSWER_BYTES_MAX {
        let error = QueryError::TooLong { limit_bytes: limits::ANSWER_BYTES_MAX };
        return Err(turnpoint::Error::from(error).into());
    }
    if format == AnswerFormat::Table {
        let grid = Grid::new(&outcome.columns, &held);
        if grid.print(&mut context.printer)? && !context.is_quiet() {
            context.printer.flush()?;
            let message = "some cells are cut to fit; `--format csv` shows them whole";
            context.printer.style().complain(Kind::Note, message);
        }
        return Ok(outcome);
    }
    let mut form = stream.unwrap_or_else(|| Form::new(format, &outcome.columns, is_terminal));
    form.all(&held, &mut context.printer)?;
    form.end(outcome.has_more, &context.notices, &mut context.printer)?;
    Ok(outcome)
}

/// What is said of an answer that was not given whole.
pub(super) fn told_of_more(outcome: &QueryOutcome) -> String {
    let rows = format::counted(outcome.rows, "row", "rows");
    format!("these are the first {rows}; there are more")
}

/// A form that is written row by row.
struct Form {
    format: AnswerFormat,
    columns: Vec<String>,
    /// Whether what is written goes to a terminal, which must not be told anything by a value.
    is_terminal: bool,
    is_begun: bool,
    rows: u64,
}

impl Form {
    fn new(format: AnswerFormat, columns: &[String], is_terminal: bool) -> Self {
        let columns =
            if format == AnswerFormat::Ndjson { distinct(columns) } else { columns.to_vec() };
        Self { format, columns, is_terminal, is_begun: false, rows: 0 }
    }

    fn all(&mut self, rows: &[Vec<Value>], printer: &mut Printer) -> io::Result<()> {
        rows.iter().try_for_each(|row| self.row(row, printer))
    }

    fn begin(&mut self, printer: &mut Printer) -> io::Result<()> {
        if std::mem::replace(&mut self.is_begun, true) {
            return Ok(());
        }
        match self.format {
            AnswerFormat::Csv => printer.bytes().write_all(&self.record(self.columns.clone())?),
            AnswerFormat::Json => {
                let columns = self.harmless(serde_json::to_string(&self.columns)?);
                printer.line(format_args!(
                    "{{\n  \"schema\": {SCHEMA},\n  \"columns\": {columns},\n  \"rows\": ["
                ))
            }
            AnswerFormat::Ndjson | AnswerFormat::Table => Ok(()),
        }
    }

    fn row(&mut self, values: &[Value], printer: &mut Printer) -> io::Result<()> {
        self.begin(printer)?;
        self.rows += 1;
        match self.format {
            AnswerFormat::Csv => {
                let cells = values.iter().map(|value| match value {
                    Value::Null => String::new(),
                    value => plain(value),
                });
                printer.bytes().write_all(&self.record(cells.collect())?)
            }
            AnswerFormat::Json => {
                let row = serde_json::Value::Array(values.iter().map(json_value).collect());
                let row = self.harmless(row.to_string());
                // The comma stands before each row but the first: nobody knows which is the last.
                let before = if self.rows == 1 { "    " } else { ",\n    " };
                write!(printer.bytes(), "{before}{row}")
            }
            AnswerFormat::Ndjson | AnswerFormat::Table => {
                let field = |(name, value): (&String, &Value)| {
                    format!("{}:{}", serde_json::Value::from(name.as_str()), json_value(value))
                };
                let fields: Vec<String> = self.columns.iter().zip(values).map(field).collect();
                let line = format!("{{{}}}", fields.join(","));
                printer.line(self.harmless(line))
            }
        }
    }

    fn end(
        &mut self,
        has_more: bool,
        notices: &[NoticeDocument],
        printer: &mut Printer,
    ) -> io::Result<()> {
        self.begin(printer)?;
        if self.format != AnswerFormat::Json {
            return Ok(());
        }
        let newline = if self.rows == 0 { "" } else { "\n" };
        let notices = match notices {
            [] => String::new(),
            notices => format!(",\n  \"notices\": {}", serde_json::to_string(notices)?),
        };
        let end = format!("{newline}  ],\n  \"has_more\": {has_more}{notices}");
        printer.line(format_args!("{end}\n}}"))
    }

    /// A line of CSV as RFC 4180 has it.
    fn record(&self, mut cells: Vec<String>) -> io::Result<Vec<u8>> {
        if self.is_terminal {
            for cell in &mut cells {
                *cell = printable(cell.as_bytes());
            }
        }
        let mut writer = WriterBuilder::new()
            .terminator(Terminator::CRLF)
            .buffer_capacity(256)
            .from_writer(Vec::new());
        writer.write_record(&cells)?;
        writer.into_inner().map_err(csv::IntoInnerError::into_error)
    }

    /// JSON that says the same, without a character that a terminal obeys. There is none outside of
    /// strings.
    fn harmless(&self, json: String) -> String {
        if !self.is_terminal {
            return json;
        }
        let mut text = String::with_capacity(json.len());
        for character in json.chars() {
            let shown = printable(character.encode_utf8(&mut [0; 4]).as_bytes());
            if shown.starts_with('\\') && character != '\\' {
                text.push_str("\\u");
                let number = u32::from(character);
                text.extend([12, 8, 4, 0].map(|shift| digit(number >> shift)));
            } else {
                text.push(character);
            }
        }
        text
    }
}

/// A value as text: what tables and CSV have. Null is for the caller to show.
pub(super) fn plain(value: &Value) -> String {
    match value {
        Value::Null => "NULL".to_owned(),
        Value::Integer(integer) => integer.to_string(),
        Value::Real(real) => format!("{real:?}"),
        Value::Text(text) => text.clone(),
        Value::Blob(blob) => {
            let digits =
                blob.iter().flat_map(|&byte| [byte >> 4, byte].map(|half| digit(half.into())));
            format!("x'{}'", digits.collect::<String>())
        }
    }
}

/// The last hex digit of a number.
fn digit(number: u32) -> char {
    char::from_digit(number & 15, 16).unwrap_or_default()
}

fn json_value(value: &Value) -> serde_json::Value {
    match value {
        Value::Null => serde_json::Value::Null,
        Value::Integer(integer) => json!(integer),
        // JSON has no number for it.
        Value::Real(real) if real.is_infinite() => {
            json!(if *real > 0.0 { "Infinity" } else { "-Infinity" })
        }
        Value::Real(real) => json!(real),
        Value::Text(text) => json!(text),
        Value::Blob(blob) => json!({ "base64": STANDARD.encode(blob) }),
    }
}

/// The names, with a number after each that has been there before: a field of an object must not hide
/// another.
fn distinct(columns: &[String]) -> Vec<String> {
    let mut names: Vec<String> = Vec::with_capacity(columns.len());
    for column in columns {
        let mut name = column.clone();
        let mut number = 1;
        while names.contains(&name) {
            number += 1;
            name = format!("{column}_{number}");
        }
        names.push(name);
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_one_name_are_told_apart() {
        let columns = ["a", "a_2", "a", "b", "a"].map(str::to_owned);
        assert_eq!(distinct(&columns), ["a", "a_2", "a_3", "b", "a_4"]);
    }

    #[test]
    fn json_on_a_terminal_says_the_same_and_moves_nothing() {
        let form = Form::new(AnswerFormat::Json, &[], true);
        let text = "a\u{1b}[2J\\b\u{9b}\u{202e}é\"";
        let shown = form.harmless(serde_json::to_string(text).unwrap());
        assert!(shown.chars().all(|character| character == 'é' || character.is_ascii_graphic()));
        assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), text);
    }

    #[test]
    fn values_that_a_form_has_no_word_for() {
        assert_eq!(json_value(&Value::Real(f64::INFINITY)), json!("Infinity"));
        assert_eq!(json_value(&Value::Blob(vec![0, 255])), json!({ "base64": "AP8=" }));
        assert_eq!(plain(&Value::Blob(vec![0, 255])), "x'00ff'");
        assert_eq!(plain(&Value::Real(1.0)), "1.0");
    }
}
