//! Reading the part of a cache that a walk by hints needs.
//!
//! Such a walk lists the directories that the hints are in, and everything below the hints. So it needs
//! the names in these directories, everything below the hints, and the directories above; of another
//! directory in one of these only that it is there. What lies below that one is stepped over.

use std::collections::{BTreeMap, BTreeSet};

use crate::disk::File;
use crate::manifest::{EntryKind, topmost};
use crate::path::RelPath;
use crate::walk::{CachedEntry, Census, Remainder};
use crate::workspaces::stat_cache::{Block, Parts, owner};

/// Where more than one block in so many is needed, and more than a few, reading all on all threads is
/// as fast.
const READ_ONE_IN: usize = 4;
const READ_FEW: usize = 32;

/// What was selected.
pub(super) struct Part {
    /// In order.
    pub(super) entries: Vec<CachedEntry>,
    /// What is not among them.
    pub(super) remainder: Remainder,
}

/// The blocks of a cache, read as they are needed.
pub(super) struct Blocks<'a> {
    file: &'a File,
    size: u64,
    table: &'a [Block],
    read: BTreeMap<usize, Vec<CachedEntry>>,
}

/// How to go on after an entry.
enum Step {
    Next,
    /// With the first that is not before this path, which is behind the entry's.
    From(Vec<u8>),
    Stop,
}

impl<'a> Blocks<'a> {
    pub(super) fn new(file: &'a File, parts: &'a Parts) -> Self {
        Self { file, size: parts.end, table: &parts.blocks, read: BTreeMap::new() }
    }

    /// The blocks that were read, by number.
    pub(super) fn into_read(self) -> BTreeMap<usize, Vec<CachedEntry>> {
        self.read
    }

    /// What a walk by `hints` needs; `None` where that is too much, or cannot be trusted, or what is left
    /// out is not held whole, which a checkpoint would have to say by name.
    ///
    /// Whatever comes or goes in what is selected belongs into a block that was read.
    pub(super) fn select(&mut self, hints: &[RelPath]) -> Option<Part> {
        let mut taken: BTreeMap<RelPath, CachedEntry> = BTreeMap::new();
        let (mut listed, mut below) = (BTreeSet::new(), BTreeSet::new());
        // Also where nothing has changed.
        let root = self.find(&RelPath::root())?.filter(is_directory)?;
        taken.insert(path(&root), root);
        for hint in topmost(hints) {
            let mut nearest = None;
            for above in hint.ancestors() {
                let Some(found) = self.find(&above)?.filter(is_directory) else { break };
                taken.insert(above.clone(), found);
                nearest = Some(above);
            }
            // The root has none above it, and all is looked at where it is meant.
            listed.insert(nearest?);
            let found = self.find(&hint)?;
            below.extend(found.iter().filter(|found| is_directory(found)).map(path));
            taken.extend(found.map(|found| (path(&found), found)));
            let prefix = prefix_of(&hint);
            self.visit(&prefix, |cached| {
                if !cached.entry.path.as_bytes().starts_with(&prefix) {
                    return Step::Stop;
                }
                below.extend(Some(cached).filter(|cached| is_directory(cached)).map(path));
                taken.insert(path(cached), cached.clone());
                Step::Next
            })?;
        }
        for directory in &listed {
            let prefix = prefix_of(directory);
            self.visit(&prefix, |cached| {
                let bytes = cached.entry.path.as_bytes();
                let Some(name) = bytes.strip_prefix(&*prefix) else { return Step::Stop };
                if let Some(end) = name.iter().position(|&byte| byte == b'/') {
                    // Behind everything that begins with this name and a slash.
                    return Step::From([&prefix, &name[..end], b"0"].concat());
                }
                taken.insert(path(cached), cached.clone());
                Step::Next
            })?;
        }
        let directories = taken.values().filter(|cached| is_directory(cached)).map(path);
        let is_closed = |path: &RelPath| !listed.contains(path) && !below.contains(path);
        let closed = directories.filter(is_closed).collect();
        let census = self.census_without(&taken);
        let entries = taken.into_values().collect();
        let is_complete = census.is_complete();
        is_complete.then_some(Part { entries, remainder: Remainder { closed, census } })
    }

    /// How much there is besides what was taken.
    fn census_without(&self, taken: &BTreeMap<RelPath, CachedEntry>) -> Census {
        let read = self.read.values().flatten();
        let mut census = Census::of(read.filter(|cached| !taken.contains_key(&cached.entry.path)));
        for (number, block) in self.table.iter().enumerate() {
            if !self.read.contains_key(&number) {
                census.add(&block.census);
            }
        }
        census
    }

    /// The entry of a path; the outer `None` where the cache cannot be trusted.
    #[expect(
        clippy::option_option,
        reason = "nothing there is not the same as nothing that is known"
    )]
    fn find(&mut self, path: &RelPath) -> Option<Option<CachedEntry>> {
        let mut found = None;
        self.visit(path.as_bytes(), |cached| {
            found = (cached.entry.path == *path).then(|| cached.clone());
            Step::Stop
        })?;
        Some(found)
    }

    /// Goes through the entries in order, from the first that is not before `from`.
    fn visit(&mut self, from: &[u8], mut step: impl FnMut(&CachedEntry) -> Step) -> Option<()> {
        let mut from = from.to_vec();
        'from: loop {
            // Also where it has nothing from there on: it is where something between would belong.
            let number = owner(self.table, &from);
            for number in number..self.table.len() {
                let entries = self.block(number)?;
                let start = entries.partition_point(|cached| cached.entry.path.as_bytes() < &*from);
                for cached in &entries[start..] {
                    match step(cached) {
                        Step::Next => {}
                        Step::Stop => return Some(()),
                        Step::From(path) => {
                            from = path;
                            continue 'from;
                        }
                    }
                }
            }
            return Some(());
        }
    }

    /// What is in a block; `None` where that is not what the table says, or too many were read.
    fn block(&mut self, number: usize) -> Option<&[CachedEntry]> {
        let (table, file, size) = (self.table, self.file, self.size);
        if !self.read.contains_key(&number) {
            if self.read.len() >= READ_FEW + table.len() / READ_ONE_IN {
                return None;
            }
            let entries = table.get(number)?.read(file, size)?;
            let last = entries.last().map(|last| &last.entry.path);
            if table.get(number + 1).is_some_and(|next| last >= Some(&next.first)) {
                return None;
            }
            self.read.insert(number, entries);
        }
        self.read.get(&number).map(Vec::as_slice)
    }
}

/// What every path below `directory` begins with.
fn prefix_of(directory: &RelPath) -> Vec<u8> {
    if directory.is_root() { Vec::new() } else { [directory.as_bytes(), b"/"].concat() }
}

fn path(cached: &CachedEntry) -> RelPath {
    cached.entry.path.clone()
}

fn is_directory(cached: &CachedEntry) -> bool {
    matches!(cached.entry.kind, EntryKind::Dir { .. })
}
