//! The text of a settings file: TOML.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

use crate::error::Position;
use crate::settings::Setting;
use crate::settings::value::Written;

/// What editors of Windows put before a text.
pub(super) const BYTE_ORDER_MARK: &str = "\u{feff}";

/// What a text says: names with values, and where each value stands.
pub(super) type Said = Vec<(String, Written, Position)>;

/// Reads a file.
///
/// # Errors
/// Why it is not TOML, and where. Nothing in it counts then.
pub(super) fn read(bytes: &[u8]) -> Result<Said, (String, Option<Position>)> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let valid = bytes.get(..error.valid_up_to()).unwrap_or_default();
        let at = position(&String::from_utf8_lossy(valid), error.valid_up_to());
        let is_utf_16 = bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff");
        let reason = if is_utf_16 { "it is UTF-16, not UTF-8" } else { "it is not UTF-8" };
        (reason.to_owned(), Some(at))
    })?;
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    let table = DeTable::parse(text).map_err(|error| complaint(&error, text))?;
    let mut said = Vec::new();
    take(table.get_ref(), "", text, &mut said);
    said.sort_by_key(|(_, _, at)| (at.line, at.column));
    Ok(said)
}

/// Reads one value, as it would stand after a `=`.
pub(super) fn read_value(text: &str) -> Option<Written> {
    DeValue::parse(text).ok().map(|value| written(value.get_ref()))
}

fn complaint(error: &toml::de::Error, text: &str) -> (String, Option<Position>) {
    let at = error.span().map(|span: Range<usize>| position(text, span.start));
    (format!("it is not TOML: {}", error.message()), at)
}

/// Takes the values of a table, and of those in it, by their full names.
fn take(table: &DeTable<'_>, prefix: &str, text: &str, said: &mut Said) {
    for (key, value) in table {
        let key = key.get_ref();
        // A dot in a key is no end of a section's name.
        let key = if key.contains('.') { format!("{key:?}") } else { key.to_string() };
        let name = if prefix.is_empty() { key } else { format!("{prefix}.{key}") };
        match value.get_ref() {
            DeValue::Table(inner) if Setting::named(&name).is_none() => {
                take(inner, &name, text, said);
            }
            other => said.push((name, written(other), position(text, value.span().start))),
        }
    }
}

fn written(value: &DeValue<'_>) -> Written {
    match value {
        DeValue::Boolean(value) => Written::Switch(*value),
        DeValue::Integer(number) if number.radix() == 10 => {
            Written::Integer(number.as_str().to_owned())
        }
        DeValue::String(text) => Written::Text(text.to_string()),
        DeValue::Array(list) => {
            Written::List(list.iter().map(|value| written(value.get_ref())).collect())
        }
        DeValue::Integer(_) => Written::Other("a number that is not decimal"),
        DeValue::Float(_) => Written::Other("a number with a fraction"),
        DeValue::Datetime(_) => Written::Other("a date or time"),
        DeValue::Table(_) => Written::Other("a table"),
    }
}

/// Where the byte at `offset` stands.
fn position(text: &str, offset: usize) -> Position {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    Position { line, column }
}
