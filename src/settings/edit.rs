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
    Ok(in_place(text, &document.to_string()))
}

/// `new` with the lines that it shares with `old` at the beginning and at the end as they are there: a
/// document is written with `\n` alone. What is new ends as the first line of `old` does.
fn in_place(old: &str, new: &str) -> String {
    let old_lines: Vec<&str> = old.split_inclusive('\n').collect();
    let new_lines: Vec<&str> = new.lines().collect();
    let is_same = |old: &str, new: &str| old.lines().eq([new]);
    let pairs = old_lines.iter().zip(&new_lines);
    let head = pairs.take_while(|(old, new)| is_same(old, new)).count();
    let (old_rest, new_rest) = (&old_lines[head..], &new_lines[head..]);
    let pairs = old_rest.iter().rev().zip(new_rest.iter().rev());
    let tail = pairs.take_while(|(old, new)| is_same(old, new)).count();
    let line_end =
        if old_lines.first().is_some_and(|first| first.ends_with("\r\n")) { "\r\n" } else { "\n" };
    let mut text = old_lines[..head].concat();
    let changed = &new_rest[..new_rest.len() - tail];
    if !changed.is_empty() && head > 0 && !text.ends_with('\n') {
        text.push_str(line_end);
    }
    for line in changed {
        text.extend([*line, line_end]);
    }
    text + &old_rest[old_rest.len() - tail..].concat()
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
        return Ok(Some(in_place(text, &document.to_string())));
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

    /// All of them, some of them, or none at the end: those of what does not change stay.
    #[test]
    fn line_ends_stay() {
        let text = |text: &str| Written::Text(text.to_owned());
        let windows = FILE.replace('\n', "\r\n");
        let mixed = FILE.replace("[capture]\n", "[capture]\r\n");
        for old in [&windows, &mixed] {
            let changed = with(old, "retention.keep", &Written::Integer("8".into())).unwrap();
            assert_eq!(changed, old.replace("keep = 7", "keep = 8"));
            let changed = with(old, "capture.cross_mounts", &Written::Switch(true)).unwrap();
            let line_end = if *old == windows { "\r\n" } else { "\n" };
            let added = format!("]{line_end}cross_mounts = true{line_end}{line_end}[ret");
            assert_eq!(changed, old.replace(&format!("]{line_end}{line_end}[ret"), &added));
        }
        let changed = with(&windows, "gc.every", &text("7d")).unwrap();
        assert_eq!(changed.replacen("\r\n[gc]\r\nevery = \"7d\"\r\n", "", 1), windows);
        let changed = with("color = 'never'", "session", &text("s")).unwrap();
        assert_eq!(changed, "color = 'never'\nsession = \"s\"\n");
        let inline = "# A.\r\ncapture = { file_limit = 4096, exclude = [] }\r\n";
        let changed = without(inline, "capture.file_limit").unwrap();
        assert_eq!(changed.unwrap(), "# A.\r\ncapture = { exclude = [] }\r\n");
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
