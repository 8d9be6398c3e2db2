//! What has changed between two states of a workspace, in the words of git.
//!
//! Pure: entries in, changes out. Files and symlinks are compared; a directory, or a name whose content
//! is not held, is told of only where the path held, or holds, something of another kind. The view
//! `changes` of the index says the same, but for renames, and but for a directory that a rule leaves out
//! on one side: that view says that what is below it was deleted.

mod lines;
mod merge;
mod patch;
mod selection;

use std::collections::{HashMap, HashSet, VecDeque};

pub use lines::{Hunk, Line, LineCount, Side, count_lines, hunks, is_binary};
pub use merge::merge;
pub use patch::{PatchLine, PatchLineKind, Text, patch};
pub use selection::{NamePattern, Selection};

use crate::hash::BlobHash;
use crate::manifest::{Difference, Entry, EntryKind};
use crate::path::RelPath;

/// What became of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChangeKind {
    /// It was not there.
    Added,
    /// Other content, or another target of a symlink; the permission bits may be others too.
    Modified,
    /// It is not there any more.
    Deleted,
    /// Only the permission bits.
    Mode,
    /// A file, a symlink, a directory, a name without content: one has become another.
    Type,
    /// The same content was at another path, where it is not any more.
    Renamed,
}

impl ChangeKind {
    /// The word used in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Modified => "modified",
            Self::Deleted => "deleted",
            Self::Mode => "mode",
            Self::Type => "type",
            Self::Renamed => "renamed",
        }
    }

    /// The letter that git has for it.
    pub const fn letter(self) -> char {
        match self {
            Self::Added => 'A',
            Self::Modified | Self::Mode => 'M',
            Self::Deleted => 'D',
            Self::Type => 'T',
            Self::Renamed => 'R',
        }
    }
}

/// One path that is not as before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// What became of it.
    pub kind: ChangeKind,
    /// As it was; of a rename at the old path. `None` where it was not there.
    pub before: Option<Entry>,
    /// As it is; `None` where it is not there.
    pub after: Option<Entry>,
}

impl Change {
    /// Where: of a rename, where it is now.
    pub fn path(&self) -> &RelPath {
        static ROOT: std::sync::LazyLock<RelPath> = std::sync::LazyLock::new(RelPath::root);
        self.after.as_ref().or(self.before.as_ref()).map_or(&*ROOT, |entry| &entry.path)
    }

    /// Where it was before a rename.
    pub fn from(&self) -> Option<&RelPath> {
        let before = self.before.as_ref().filter(|_| self.kind == ChangeKind::Renamed);
        before.map(|entry| &entry.path)
    }
}

/// Whether a change of this entry is told of by itself.
fn is_compared(entry: &Entry) -> bool {
    matches!(entry.kind, EntryKind::File { .. } | EntryKind::Symlink { .. })
}

/// What became of the path of a difference, if that is told of.
fn kind_of(before: Option<&Entry>, after: Option<&Entry>) -> Option<ChangeKind> {
    let kind = match (before, after) {
        (None, None) => return None,
        (None, Some(after)) => return is_compared(after).then_some(ChangeKind::Added),
        (Some(before), None) => return is_compared(before).then_some(ChangeKind::Deleted),
        (Some(before), Some(after)) if before.kind.name() != after.kind.name() => ChangeKind::Type,
        (Some(_), Some(after)) if !is_compared(after) => return None,
        (Some(before), Some(after)) if before.is_same_content(after) => ChangeKind::Mode,
        (Some(_), Some(_)) => ChangeKind::Modified,
    };
    Some(kind)
}

/// The changes that `differences` amount to, in their order. Renames are not looked for.
///
/// Where a directory is left out as a whole on one side, that one change stands for all below it: what is
/// not held was not deleted for that.
pub fn changes(differences: Vec<Difference>) -> Vec<Change> {
    let mut left_out: HashSet<RelPath> = HashSet::new();
    let mut changes = Vec::new();
    for Difference { path, before, after } in differences {
        let is_omitted = |side: &Option<Entry>| {
            side.as_ref().is_some_and(|entry| matches!(entry.kind, EntryKind::Omitted { .. }))
        };
        if path.ancestors().any(|above| left_out.contains(&above)) {
            continue;
        }
        if is_omitted(&before) || is_omitted(&after) {
            left_out.insert(path);
        }
        let kind = kind_of(before.as_ref(), after.as_ref());
        changes.extend(kind.map(|kind| Change { kind, before, after }));
    }
    changes
}

/// What a rename goes by: equal content under another name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Content<'a> {
    File(BlobHash),
    Symlink(&'a [u8]),
}

fn content(entry: &Entry) -> Option<Content<'_>> {
    match &entry.kind {
        EntryKind::File { hash, .. } => Some(Content::File(*hash)),
        EntryKind::Symlink { target } => Some(Content::Symlink(target)),
        _ => None,
    }
}

/// Joins each path that was added with one that was deleted and had the same content to one change.
/// Where several could be meant it is one of the same name, else the first. Content that is only alike
/// does not count.
///
/// Cost: one look at each change; no content is read.
pub fn join_renames(changes: Vec<Change>) -> Vec<Change> {
    let source_of = pairs(&changes);
    if source_of.is_empty() {
        return changes;
    }
    let mut changes: Vec<Option<Change>> = changes.into_iter().map(Some).collect();
    for (added, deleted) in source_of {
        let before = changes[deleted].take().and_then(|change| change.before);
        if let Some(change) = &mut changes[added] {
            change.kind = ChangeKind::Renamed;
            change.before = before;
        }
    }
    changes.into_iter().flatten().collect()
}

/// Which of the changes that add a path go with which that delete one.
///
/// Cost: two looks at each change.
fn pairs(changes: &[Change]) -> Vec<(usize, usize)> {
    let name_of = |index: usize| changes[index].path().name();
    let mut by_name: HashMap<(Content<'_>, &[u8]), VecDeque<usize>> = HashMap::new();
    for (index, change) in changes.iter().enumerate() {
        if change.kind == ChangeKind::Deleted
            && let Some(content) = change.before.as_ref().and_then(content)
        {
            by_name.entry((content, name_of(index))).or_default().push_back(index);
        }
    }
    let added: Vec<(usize, Content<'_>)> = changes
        .iter()
        .enumerate()
        .filter(|(_, change)| change.kind == ChangeKind::Added)
        .filter_map(|(index, change)| Some((index, change.after.as_ref().and_then(content)?)))
        .collect();
    let mut pairs = Vec::new();
    let mut others = Vec::new();
    // Those that kept their name choose first: what is left goes to whoever comes.
    for (index, content) in added {
        let source = by_name.get_mut(&(content, name_of(index))).and_then(VecDeque::pop_front);
        match source {
            Some(source) => pairs.push((index, source)),
            None => others.push((index, content)),
        }
    }
    let mut left: Vec<(usize, Content<'_>)> = by_name
        .into_iter()
        .flat_map(|((content, _), sources)| sources.into_iter().map(move |it| (it, content)))
        .collect();
    left.sort_unstable_by_key(|(index, _)| *index);
    let mut by_content: HashMap<Content<'_>, VecDeque<usize>> = HashMap::new();
    for (index, content) in left {
        by_content.entry(content).or_default().push_back(index);
    }
    for (index, content) in others {
        if let Some(source) = by_content.get_mut(&content).and_then(VecDeque::pop_front) {
            pairs.push((index, source));
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{Listed, Mode, OmitReason, differences};

    fn entry(path: &str, kind: EntryKind) -> Entry {
        let path = RelPath::new(path).unwrap();
        Entry { path, mode: Mode::from_st_mode(0o644), kind }
    }

    fn file(path: &str, content: &str) -> Entry {
        let hash = BlobHash::of(content.as_bytes());
        entry(path, EntryKind::File { size: 1, mtime_ns: 0, hash, unstable: false })
    }

    fn dir(path: &str) -> Entry {
        entry(path, EntryKind::Dir { listed: Listed::Whole })
    }

    fn omitted(path: &str) -> Entry {
        entry(path, EntryKind::Omitted { reason: OmitReason::Ignored, rest: 0 })
    }

    /// One line for each change, as git has it.
    fn told(before: &[Entry], after: &[Entry]) -> Vec<String> {
        let joined = join_renames(changes(differences(before, after)));
        let line = |change: &Change| {
            let from = change.from().map(|from| format!("{from} ")).unwrap_or_default();
            format!("{} {from}{}", change.kind.letter(), change.path())
        };
        joined.iter().map(line).collect()
    }

    #[test]
    fn directories_are_told_of_only_where_something_else_was_or_is() {
        let before = [dir(""), dir("a"), dir("b"), file("b/x", "x"), file("c", "c")];
        let after = [dir(""), file("b", "b"), dir("c"), file("c/y", "y"), dir("d")];
        assert_eq!(told(&before, &after), ["T b", "D b/x", "T c", "A c/y"]);
    }

    #[test]
    fn what_a_rule_leaves_out_was_not_deleted_nor_added() {
        let held = [
            dir(""),
            dir("a"),
            file("a-b", "1"),
            file("a/x", "x"),
            file("a/y", "y"),
            file("b", "b"),
        ];
        // `a-b` comes between `a` and what is below it.
        let left_out = [dir(""), omitted("a"), omitted("a-b"), omitted("b"), omitted("c")];
        assert_eq!(told(&held, &left_out), ["T a", "T a-b", "T b"]);
        assert_eq!(told(&left_out, &held), ["T a", "T a-b", "T b"]);
        assert_eq!(told(&left_out, &left_out[..4]), Vec::<String>::new());
    }

    #[test]
    fn a_rename_is_equal_content_and_a_kept_name_comes_first() {
        let before = [file("a/one", "same"), file("a/two", "same"), file("b", "other")];
        let after = [file("c/three", "same"), file("d/one", "same"), file("e", "changed")];
        let expected = ["D b", "R a/two c/three", "R a/one d/one", "A e"];
        assert_eq!(told(&before, &after), expected);
        // More of one than of the other.
        assert_eq!(told(&before[..1], &after[..2]), ["A c/three", "R a/one d/one"]);
        // A file that stays is no source of a rename.
        assert_eq!(told(&before[..1], &[before[0].clone(), after[0].clone()]), ["A c/three"]);
    }
}
