//! A change to the text of a settings file: what it is not about stays as it is, comments and order
//! included.

use toml_edit::{Document, DocumentMut, Item, TableLike, Value};

use crate::settings::value::Written;

/// `text` with `name` given a value. A comment behind the old one stays.
///
/// # Errors
/// Why that cannot be.
pub(super) fn with(text: &str, name: &str, written: &Written) -> Result<String, String> {
    let mut document: DocumentMut = text.parse().map_err(unreadable)?;
    let mut value = value(written).ok_or("the value is of no type that a file can hold")?;
    let (section, key) = split(name);
    let table: &mut dyn TableLike = match section {
        None => document.as_table_mut(),
        Some(section) => document
            .entry(section)
            .or_insert_with(toml_edit::table)
            .as_table_like_mut()
            .ok_or_else(|| format!("`{section}` is no section there"))?,
    };
    match table.get_mut(key) {
        Some(item) => {
            if let Some(old) = item.as_value() {
                *value.decor_mut() = old.decor().clone();
            }
            *item = Item::Value(value);
        }
        None => {
            table.insert(key, Item::Value(value));
        }
    }
    Ok(document.to_string())
}

/// `text` without `name`; `None` where it does not name it. Comments above it stay: they may be about more.
///
/// # Errors
/// Why that cannot be.
pub(super) fn without(text: &str, name: &str) -> Result<Option<String>, String> {
    let document = Document::parse(text).map_err(unreadable)?;
    let (section, key) = split(name);
    let root = document.as_table();
    let table: Option<&dyn TableLike> = match section {
        None => Some(root),
        Some(section) => root.get(section).and_then(Item::as_table_like),
    };
    let Some(item) = table.and_then(|table| table.get(key)) else { return Ok(None) };
    if let Some(section) = section
        && root.get(section).is_some_and(Item::is_inline_table)
    {
        let mut document = document.into_mut();
        if let Some(table) = document.get_mut(section).and_then(Item::as_table_like_mut) {
            table.remove(key);
        }
        return Ok(Some(document.to_string()));
    }
    // What a table in its place says is a problem of the file, told where it is read.
    let span = item.as_value().and_then(Value::span).ok_or("it is no value there")?;
    let (before, after) = (text.get(..span.start), text.get(span.end..));
    let (before, after) = before.zip(after).ok_or("the parser lost its place")?;
    // A name and its value take lines of their own.
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let rest = after.split_once('\n').map_or("", |(_, rest)| rest);
    Ok(Some(format!("{}{rest}", before.get(..start).unwrap_or_default())))
}

fn split(name: &str) -> (Option<&str>, &str) {
    name.split_once('.').map_or((None, name), |(section, key)| (Some(section), key))
}

fn unreadable(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn value(written: &Written) -> Option<Value> {
    match written {
        Written::Switch(value) => Some((*value).into()),
        Written::Integer(digits) => digits.parse::<i64>().ok().map(Into::into),
        Written::Text(text) => Some(text.as_str().into()),
        Written::List(list) => {
            list.iter().map(value).collect::<Option<toml_edit::Array>>().map(Into::into)
        }
        Written::Other(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# My settings.\n\ncolor = \"never\"   # for screenshots\n\n# Large things.\n\
                        [capture]\n# Models.\nfile_limit = \"1GiB\" # not more\nexclude = [\n  \"a\", # old\n]\n\n\
                        [retention]\nkeep = 7\n# The end.\n";

    #[track_caller]
    fn replaced(from: &str, to: &str) -> String {
        assert_eq!(FILE.matches(from).count(), 1);
        FILE.replace(from, to)
    }

    #[test]
    fn nothing_but_the_value_changes() {
        let text = |text: &str| Written::Text(text.to_owned());
        let changed = with(FILE, "capture.file_limit", &text("64MiB")).unwrap();
        assert_eq!(changed, replaced("\"1GiB\"", "\"64MiB\""));
        let changed = with(FILE, "color", &text("auto")).unwrap();
        assert_eq!(changed, replaced("\"never\"", "\"auto\""));
        let list = Written::List(vec![text("b"), text("c")]);
        let changed = with(FILE, "capture.exclude", &list).unwrap();
        assert_eq!(changed, replaced("[\n  \"a\", # old\n]", "[\"b\", \"c\"]"));
        assert_eq!(with(FILE, "retention.keep", &Written::Integer("7".into())).unwrap(), FILE);
    }

    #[test]
    fn what_is_new_goes_to_the_end_of_its_section() {
        let on = Written::Switch(true);
        let changed = with(FILE, "capture.cross_mounts", &on).unwrap();
        assert_eq!(changed, replaced("]\n\n[ret", "]\ncross_mounts = true\n\n[ret"));
        let changed = with(FILE, "gc.every", &Written::Text("7d".into())).unwrap();
        assert_eq!(Document::parse(&*changed).unwrap()["gc"]["every"].as_str(), Some("7d"));
        assert_eq!(changed.replacen("\n[gc]\nevery = \"7d\"\n", "", 1), FILE);
        assert_eq!(
            with("", "capture.cross_mounts", &on).unwrap(),
            "[capture]\ncross_mounts = true\n"
        );
        let dotted = with("capture.exclude = []\n", "capture.cross_mounts", &on).unwrap();
        assert_eq!(dotted, "capture.exclude = []\ncapture.cross_mounts = true\n");
        let inline = with("capture = { exclude = [] }\n", "capture.cross_mounts", &on).unwrap();
        assert_eq!(inline, "capture = { exclude = [] , cross_mounts = true }\n");
        assert!(with("capture = 3\n", "capture.cross_mounts", &on).is_err());
    }

    #[test]
    fn what_is_taken_out_takes_no_comment_of_others_with_it() {
        let without = |text, name| without(text, name).unwrap();
        assert_eq!(
            without(FILE, "color").unwrap(),
            replaced("color = \"never\"   # for screenshots\n", "")
        );
        assert_eq!(
            without(FILE, "capture.exclude").unwrap(),
            replaced("exclude = [\n  \"a\", # old\n]\n", "")
        );
        assert_eq!(without(FILE, "retention.keep").unwrap(), replaced("keep = 7\n", ""));
        assert_eq!(without(FILE, "gc.every"), None);
        assert_eq!(without(FILE, "retention.keep_first"), None);
        assert_eq!(without("session = 'x'", "session").unwrap(), "");
        let inline =
            without("capture = { file_limit = 4096, exclude = [] }\n", "capture.file_limit");
        assert_eq!(inline.unwrap(), "capture = { exclude = [] }\n");
    }
}
