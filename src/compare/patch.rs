//! A change in git's extended form of a unified diff, as `git apply` takes it.

use std::fmt::Write as _;
use std::io;

use crate::compare::lines::{Side, hunks, is_binary};
use crate::compare::{Change, ChangeKind};
use crate::manifest::{Entry, EntryKind};
use crate::path::RelPath;

/// What a line of a patch is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchLineKind {
    /// It says which file, and what becomes of it.
    Header,
    /// It says where in the file.
    Place,
    /// In both.
    Context,
    /// In the second alone.
    Added,
    /// In the first alone.
    Removed,
}

/// A line of a patch.
#[derive(Debug, Clone, Copy)]
pub struct PatchLine<'a> {
    /// What it is.
    pub kind: PatchLineKind,
    /// The sign at its beginning, where it is of a file.
    pub sign: Option<u8>,
    /// Its bytes, without the newline that ends every line of a patch.
    pub text: &'a [u8],
}

/// The content of one side of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Text {
    /// All of it; a symlink's is its target.
    Whole(Vec<u8>),
    /// There is so much of it that it is not compared line by line.
    TooLong,
}

impl Text {
    /// The bytes, if it is text that can be compared by lines.
    pub fn lines(&self) -> Option<&[u8]> {
        match self {
            Self::Whole(bytes) if !is_binary(bytes) => Some(bytes),
            _ => None,
        }
    }
}

/// Where lines go.
type Out<'a> = &'a mut dyn FnMut(PatchLine<'_>) -> io::Result<()>;

/// Gives the lines of the patch for one change. `before` and `after` are the contents of its sides, which
/// need not be there where the side is not, or where only the name or the mode changes.
///
/// A change of kind is a deletion and an addition, as in git. Directories, and names whose content is not
/// held, have no place in a patch: of a change between one of these and a file only the file is told.
///
/// # Errors
/// What `each` gives.
pub fn patch(
    change: &Change,
    before: Option<&Text>,
    after: Option<&Text>,
    each: &mut dyn FnMut(PatchLine<'_>) -> io::Result<()>,
) -> io::Result<()> {
    let sides = (change.before.as_ref(), change.after.as_ref());
    match sides {
        (Some(old), Some(new)) if change.kind != ChangeKind::Type => {
            change_of_file(change, old, new, before, after, each)
        }
        (old, new) => {
            // A name whose content is not held may well be there as it was.
            let is_held = |entry: Option<&Entry>| {
                !entry.is_some_and(|entry| matches!(entry.kind, EntryKind::Omitted { .. }))
            };
            if let Some(old) = old.filter(|old| is_file(old) && is_held(new)) {
                deletion(old, before, each)?;
            }
            if let Some(new) = new.filter(|new| is_file(new) && is_held(old)) {
                addition(new, after, each)?;
            }
            Ok(())
        }
    }
}

impl Change {
    /// Whether a patch says all of it. One that leads to or from a name whose content is not held says
    /// nothing.
    pub fn is_in_patch(&self) -> bool {
        let is_held =
            |entry: &Entry| !matches!(entry.kind, EntryKind::Omitted { .. } | EntryKind::Absent);
        self.before.iter().chain(&self.after).all(is_held)
    }
}

fn is_file(entry: &Entry) -> bool {
    matches!(entry.kind, EntryKind::File { .. } | EntryKind::Symlink { .. })
}

fn change_of_file(
    change: &Change,
    old: &Entry,
    new: &Entry,
    before: Option<&Text>,
    after: Option<&Text>,
    each: Out<'_>,
) -> io::Result<()> {
    begin(&old.path, &new.path, each)?;
    if old.mode != new.mode && old.kind.name() == new.kind.name() {
        let (old_mode, new_mode) = match (git_mode(old), git_mode(new)) {
            // git has no word for it: the bits themselves.
            (same, other) if same == other => (exact_mode(old), exact_mode(new)),
            modes => modes,
        };
        header(&format!("old mode {old_mode}"), each)?;
        header(&format!("new mode {new_mode}"), each)?;
    }
    if change.kind == ChangeKind::Renamed {
        header("similarity index 100%", each)?;
        header(&format!("rename from {}", quoted("", &old.path)), each)?;
        header(&format!("rename to {}", quoted("", &new.path)), each)?;
    }
    match (before, after) {
        (Some(before), Some(after)) => {
            body(&named("a/", &old.path), &named("b/", &new.path), before, after, each)
        }
        _ => Ok(()),
    }
}

fn deletion(old: &Entry, before: Option<&Text>, each: Out<'_>) -> io::Result<()> {
    begin(&old.path, &old.path, each)?;
    header(&format!("deleted file mode {}", git_mode(old)), each)?;
    let before = before.unwrap_or(&Text::TooLong);
    body(&named("a/", &old.path), "/dev/null", before, &Text::Whole(Vec::new()), each)
}

fn addition(new: &Entry, after: Option<&Text>, each: Out<'_>) -> io::Result<()> {
    begin(&new.path, &new.path, each)?;
    header(&format!("new file mode {}", git_mode(new)), each)?;
    let after = after.unwrap_or(&Text::TooLong);
    body("/dev/null", &named("b/", &new.path), &Text::Whole(Vec::new()), after, each)
}

fn begin(old: &RelPath, new: &RelPath, each: Out<'_>) -> io::Result<()> {
    header(&format!("diff --git {} {}", quoted("a/", old), quoted("b/", new)), each)
}

fn header(text: &str, each: Out<'_>) -> io::Result<()> {
    each(PatchLine { kind: PatchLineKind::Header, sign: None, text: text.as_bytes() })
}

fn body(
    old_name: &str,
    new_name: &str,
    before: &Text,
    after: &Text,
    each: Out<'_>,
) -> io::Result<()> {
    let (Some(old), Some(new)) = (before.lines(), after.lines()) else {
        let trimmed = |name: &str| name.trim_end_matches('\t').to_owned();
        let (old_name, new_name) = (trimmed(old_name), trimmed(new_name));
        return header(&format!("Binary files {old_name} and {new_name} differ"), each);
    };
    let hunks = hunks(old, new);
    if hunks.is_empty() {
        return Ok(());
    }
    header(&format!("--- {old_name}"), each)?;
    header(&format!("+++ {new_name}"), each)?;
    for hunk in &hunks {
        let place = format!("@@ -{} +{} @@", range(&hunk.before), range(&hunk.after));
        each(PatchLine { kind: PatchLineKind::Place, sign: None, text: place.as_bytes() })?;
        for line in &hunk.lines {
            let (kind, sign) = match line.side {
                Side::Both => (PatchLineKind::Context, b' '),
                Side::Before => (PatchLineKind::Removed, b'-'),
                Side::After => (PatchLineKind::Added, b'+'),
            };
            let whole = line.text.strip_suffix(b"\n");
            each(PatchLine { kind, sign: Some(sign), text: whole.unwrap_or(line.text) })?;
            if whole.is_none() {
                let text = b"\\ No newline at end of file";
                each(PatchLine { kind: PatchLineKind::Context, sign: None, text })?;
            }
        }
    }
    Ok(())
}

/// Lines as a hunk's header has them: counted from 1, and where there are none from the one before.
fn range(lines: &std::ops::Range<usize>) -> String {
    match lines.len() {
        0 => format!("{},0", lines.start),
        1 => format!("{}", lines.start + 1),
        count => format!("{},{count}", lines.start + 1),
    }
}

/// The mode as git keeps it: it knows whether a file can be executed, and nothing else.
fn git_mode(entry: &Entry) -> String {
    let mode = match entry.kind {
        EntryKind::Symlink { .. } => "120000",
        _ if entry.mode.bits() & 0o100 != 0 => "100755",
        _ => "100644",
    };
    mode.to_owned()
}

fn exact_mode(entry: &Entry) -> String {
    format!("10{}", entry.mode)
}

/// A path after `---` or `+++`: where it has a space a tab ends it, or some programs would cut it there.
fn named(prefix: &str, path: &RelPath) -> String {
    let mut text = quoted(prefix, path);
    if path.as_bytes().contains(&b' ') {
        text.push('\t');
    }
    text
}

/// A path as git writes it: in double quotes, with escapes, where it has a quote, a backslash, a control
/// character or what is not UTF-8.
fn quoted(prefix: &str, path: &RelPath) -> String {
    let mut text = String::from(prefix);
    let mut is_quoted = false;
    for chunk in path.as_bytes().utf8_chunks() {
        for character in chunk.valid().chars() {
            let plain = crate::path::printable(character.encode_utf8(&mut [0; 4]).as_bytes());
            match character {
                '"' | '\\' => {
                    is_quoted = true;
                    text.extend(['\\', character]);
                }
                '\n' => {
                    is_quoted = true;
                    text.push_str("\\n");
                }
                '\t' => {
                    is_quoted = true;
                    text.push_str("\\t");
                }
                _ if plain.chars().eq([character]) => text.push(character),
                _ => {
                    is_quoted = true;
                    push_octal(&mut text, character.encode_utf8(&mut [0; 4]).as_bytes());
                }
            }
        }
        is_quoted |= !chunk.invalid().is_empty();
        push_octal(&mut text, chunk.invalid());
    }
    if is_quoted { format!("\"{text}\"") } else { text }
}

fn push_octal(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a string does not fail.
        write!(text, "\\{byte:03o}").ok();
    }
}
