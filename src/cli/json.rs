//! The parts that several JSON documents share. `docs/cli.md` describes every document.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use turnpoint::id::CheckpointId;
use turnpoint::manifest::{Counts, Entry, EntryKind};
use turnpoint::path::{RelPath, printable};
use turnpoint::plan::Skip;
use turnpoint::{BadFile, CaptureProblem, CheckpointSummary, ListItem};

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Something the library had to say although it went on.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct NoticeDocument {
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

/// A path: text, and the bytes in base64 beside it where they are not UTF-8.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct PathDocument {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_bytes: Option<String>,
}

/// As [`PathDocument`] for the root of a workspace.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct RootDocument {
    root: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    root_bytes: Option<String>,
}

/// Text, and the bytes in base64 where they are not UTF-8.
pub(crate) fn text_and_bytes(bytes: &[u8]) -> (String, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (text.to_owned(), None),
        Err(_) => (String::from_utf8_lossy(bytes).into_owned(), Some(STANDARD.encode(bytes))),
    }
}

impl From<&RelPath> for PathDocument {
    fn from(path: &RelPath) -> Self {
        let (path, path_bytes) = text_and_bytes(path.as_bytes());
        Self { path, path_bytes }
    }
}

impl From<&Path> for PathDocument {
    fn from(path: &Path) -> Self {
        let (path, path_bytes) = text_and_bytes(path.as_os_str().as_bytes());
        Self { path, path_bytes }
    }
}

impl PathDocument {
    /// The path as a terminal can show it.
    pub(crate) fn printable(&self) -> String {
        printable(self.path.as_bytes())
    }
}

impl From<&Path> for RootDocument {
    fn from(path: &Path) -> Self {
        let (root, root_bytes) = text_and_bytes(path.as_os_str().as_bytes());
        Self { root, root_bytes }
    }
}

/// A checkpoint's name.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct IdDocument {
    session: String,
    seq: u64,
}

impl From<&CheckpointId> for IdDocument {
    fn from(id: &CheckpointId) -> Self {
        Self { session: id.session.as_str().to_owned(), seq: id.seq.get() }
    }
}

/// A checkpoint, as lists and `show` have it.
#[derive(Serialize)]
pub(crate) struct CheckpointDocument<'a> {
    #[serde(flatten)]
    id: IdDocument,
    created_at: String,
    workspace: String,
    #[serde(flatten)]
    root: RootDocument,
    label: Option<&'a str>,
    trigger: &'a str,
    complete: bool,
    pinned: bool,
    part: bool,
    note: Option<&'a str>,
    entries: u64,
    counts: &'a Counts,
}

impl<'a> From<&'a CheckpointSummary> for CheckpointDocument<'a> {
    fn from(summary: &'a CheckpointSummary) -> Self {
        Self {
            id: IdDocument::from(&summary.id),
            created_at: summary.created_at.to_string(),
            workspace: summary.workspace.to_string(),
            root: RootDocument::from(summary.root.as_path()),
            label: summary.label.as_deref(),
            trigger: &summary.trigger,
            complete: summary.complete,
            pinned: summary.pinned,
            part: summary.is_part,
            note: summary.note.as_deref(),
            entries: summary.entries,
            counts: &summary.counts,
        }
    }
}

/// A checkpoint that cannot be understood.
#[derive(Serialize)]
pub(crate) struct UnreadableDocument<'a> {
    #[serde(flatten)]
    id: IdDocument,
    #[serde(flatten)]
    file: PathDocument,
    reason: &'a str,
}

impl<'a> UnreadableDocument<'a> {
    /// What is said of one; nothing of an item of another kind.
    pub(crate) fn of(item: &'a ListItem) -> Option<Self> {
        match item {
            ListItem::Unreadable { id, path, reason } => {
                let file = PathDocument::from(path.as_path());
                Some(Self { id: id.into(), file, reason })
            }
            _ => None,
        }
    }
}

/// What two sides of a path differ in beside their content.
#[derive(Serialize)]
pub(crate) struct DifferenceDocument {
    #[serde(skip_serializing_if = "Option::is_none")]
    kind_from: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind_to: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mode_from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mode_to: Option<String>,
}

impl DifferenceDocument {
    /// Nothing where a side is missing. The mode of what is not held is not known.
    pub(crate) fn between(before: Option<&Entry>, after: Option<&Entry>) -> Self {
        let (from, to) = before.zip(after).unzip();
        let has_kinds = from.map(|it| it.kind.name()) != to.map(|it| it.kind.name());
        let has_modes = from.map(|it| it.mode) != to.map(|it| it.mode);
        let kind = |side: Option<&Entry>| side.filter(|_| has_kinds).map(|it| it.kind.name());
        let mode = |side: Option<&Entry>| {
            let is_known = |entry: &&Entry| !matches!(entry.kind, EntryKind::Omitted { .. });
            side.filter(|_| has_modes).filter(is_known).map(|it| it.mode.to_string())
        };
        Self { kind_from: kind(from), kind_to: kind(to), mode_from: mode(from), mode_to: mode(to) }
    }

    /// Whether it is a change of kind.
    pub(crate) const fn is_of_kind(&self) -> bool {
        self.kind_from.is_some()
    }
}

/// A path and a word that says why.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ReasonDocument {
    #[serde(flatten)]
    pub(crate) path: PathDocument,
    pub(crate) reason: String,
}

impl From<&CaptureProblem> for ReasonDocument {
    fn from(problem: &CaptureProblem) -> Self {
        let reason = problem.reason.map_or("unstable", |reason| reason.as_str()).to_owned();
        Self { path: PathDocument::from(&problem.path), reason }
    }
}

impl From<&Skip> for ReasonDocument {
    fn from(skip: &Skip) -> Self {
        Self { path: PathDocument::from(&skip.path), reason: skip.reason.as_str().to_owned() }
    }
}

impl From<&BadFile> for ReasonDocument {
    fn from(file: &BadFile) -> Self {
        Self { path: PathDocument::from(file.path.as_path()), reason: file.reason.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_is_not_text_keeps_its_bytes() {
        let json = |bytes: &[u8]| {
            let path = RelPath::new(bytes).unwrap();
            serde_json::to_string(&PathDocument::from(&path)).unwrap()
        };
        assert_eq!(json(b"a\nb"), r#"{"path":"a\nb"}"#);
        assert_eq!(json(b"a\xff"), "{\"path\":\"a\u{fffd}\",\"path_bytes\":\"Yf8=\"}");
    }
}
