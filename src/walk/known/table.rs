//! The known entries by directory. Pure.

use std::collections::HashMap;

use crate::manifest::EntryKind;
use crate::path::RelPath;
use crate::walk::CachedEntry;

/// The known directories and what is in them, as indices into the entries.
pub(super) struct Table<'a> {
    pub(super) entries: &'a [CachedEntry],
    /// The entries that are directories.
    pub(super) directories: Vec<usize>,
    /// The entries directly in each of the directories, which `starts` parts.
    children: Vec<usize>,
    starts: Vec<usize>,
    /// Which of the directories each entry is.
    pub(super) numbers: Vec<Option<usize>>,
}

impl<'a> Table<'a> {
    /// `None` where an entry's parent is no directory of the list.
    pub(super) fn of(entries: &'a [CachedEntry]) -> Option<Self> {
        let mut directories = Vec::new();
        let mut numbers = vec![None; entries.len()];
        let mut by_path: HashMap<&[u8], usize> = HashMap::new();
        let mut parents = Vec::with_capacity(entries.len());
        let mut last: (&[u8], usize) = (b"", 0);
        for (index, known) in entries.iter().enumerate() {
            let path = known.entry.path.as_bytes();
            if index > 0 {
                let end = path.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
                let parent = &path[..end];
                if last.0 != parent {
                    last = (parent, *by_path.get(parent)?);
                }
                parents.push(last.1);
            }
            if matches!(known.entry.kind, EntryKind::Dir { .. }) {
                by_path.insert(path, directories.len());
                numbers[index] = Some(directories.len());
                directories.push(index);
            } else if index == 0 {
                return None;
            }
        }
        if directories.is_empty() {
            return None;
        }
        let mut starts = vec![0; directories.len() + 1];
        for &parent in &parents {
            starts[parent + 1] += 1;
        }
        for number in 0..directories.len() {
            starts[number + 1] += starts[number];
        }
        let mut next = starts.clone();
        let mut children = vec![0; parents.len()];
        for (index, &parent) in parents.iter().enumerate() {
            children[next[parent]] = index + 1;
            next[parent] += 1;
        }
        Some(Self { entries, directories, children, starts, numbers })
    }

    /// The entries directly in a directory.
    pub(super) fn children(&self, number: usize) -> &[usize] {
        &self.children[self.starts[number]..self.starts[number + 1]]
    }

    /// Which of the directories is at `path`.
    pub(super) fn number(&self, path: &RelPath) -> Option<usize> {
        let index = self.entries.binary_search_by(|known| known.entry.path.cmp(path)).ok()?;
        self.numbers[index]
    }

    /// The path of a directory.
    pub(super) fn path(&self, number: usize) -> &'a RelPath {
        &self.entries[self.directories[number]].entry.path
    }
}
