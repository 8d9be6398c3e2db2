//! Exchanging entries of trees for others at the same paths.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use crate::error::Result;
use crate::hash::BlobHash;
use crate::manifest::entry::Entry;
use crate::manifest::page::{EncodedPage, Page, PageRef, Tree, leaf, node};
use crate::manifest::tree::{PageSource, load, root_page};

/// Exchanges entries for others in many trees. What a page becomes depends on the page alone, so one
/// that trees share is read and written once.
pub(crate) struct Exchange<'a> {
    source: &'a dyn PageSource,
    /// What takes the place of an entry, at the same path; `None` where it stays.
    change: &'a dyn Fn(&Entry) -> Option<Entry>,
    done: HashMap<BlobHash, Exchanged>,
    pages: Vec<EncodedPage>,
    made: HashSet<BlobHash>,
}

/// What became of a page, or of a tree.
#[derive(Clone)]
struct Exchanged {
    hash: BlobHash,
    size: u64,
    /// The entries below it that others took the place of, in order.
    gone: Rc<[Entry]>,
}

impl<'a> Exchange<'a> {
    pub(crate) fn new(
        source: &'a dyn PageSource,
        change: &'a dyn Fn(&Entry) -> Option<Entry>,
    ) -> Self {
        Self { source, change, done: HashMap::new(), pages: Vec::new(), made: HashSet::new() }
    }

    /// The tree with the entries exchanged, and those that went, in order.
    ///
    /// Pages are cut by paths alone, and the paths stay: so the result is that of
    /// [`crate::manifest::build`] for the whole list.
    ///
    /// # Errors
    /// What the source gives; [`crate::Error::PageInvalid`].
    pub(crate) fn tree(&mut self, tree: &Tree) -> Result<(Tree, Rc<[Entry]>)> {
        let root = if let Some(root) = self.done.get(&tree.root) {
            root.clone()
        } else {
            let page = root_page(self.source, tree)?;
            self.page(page, tree.root, tree.root_size)?
        };
        Ok((Tree { root: root.hash, root_size: root.size, ..*tree }, root.gone))
    }

    /// The pages that were made: what the trees need besides what the source has.
    pub(crate) fn into_pages(self) -> Vec<EncodedPage> {
        self.pages
    }

    fn page(&mut self, page: Page, hash: BlobHash, size: u64) -> Result<Exchanged> {
        let exchanged = match page {
            Page::Leaf(entries) => self.leaf(entries, hash, size),
            Page::Node { level, pages } => self.node(level, pages, hash, size)?,
        };
        self.done.insert(hash, exchanged.clone());
        Ok(exchanged)
    }

    fn leaf(&mut self, mut entries: Vec<Entry>, hash: BlobHash, size: u64) -> Exchanged {
        let mut gone = Vec::new();
        for entry in &mut entries {
            if let Some(other) = (self.change)(entry) {
                gone.push(std::mem::replace(entry, other));
            }
        }
        if gone.is_empty() {
            return Exchanged { hash, size, gone: gone.into() };
        }
        let made = leaf(&entries.iter().collect::<Vec<_>>());
        self.keep(made, gone.into())
    }

    fn node(
        &mut self,
        level: u8,
        mut pages: Vec<PageRef>,
        hash: BlobHash,
        size: u64,
    ) -> Result<Exchanged> {
        let mut gone: Vec<Entry> = Vec::new();
        for reference in &mut pages {
            let below = if let Some(below) = self.done.get(&reference.hash) {
                below.clone()
            } else {
                let page = load(self.source, reference, level.saturating_sub(1))?;
                self.page(page, reference.hash, reference.size)?
            };
            (reference.hash, reference.size) = (below.hash, below.size);
            gone.extend_from_slice(&below.gone);
        }
        if gone.is_empty() {
            return Ok(Exchanged { hash, size, gone: gone.into() });
        }
        Ok(self.keep(node(level, &pages), gone.into()))
    }

    fn keep(&mut self, made: EncodedPage, gone: Rc<[Entry]>) -> Exchanged {
        let PageRef { hash, size, .. } = made.reference;
        // Two pages that differed only in what went are one now.
        if self.made.insert(hash) {
            self.pages.push(made);
        }
        Exchanged { hash, size, gone }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::error::Error;
    use crate::manifest::{EntryKind, Mode, OmitReason, build};
    use crate::path::RelPath;

    struct Pages(HashMap<BlobHash, Vec<u8>>);

    impl PageSource for Pages {
        fn page(&self, hash: BlobHash, _: u64) -> Result<Vec<u8>> {
            self.0.get(&hash).cloned().ok_or(Error::BlobMissing { hash })
        }
    }

    fn file(number: u16, content: u8) -> Entry {
        Entry {
            path: RelPath::new(format!("d/{number:05}")).unwrap(),
            mode: Mode::from_st_mode(0o644),
            kind: EntryKind::File {
                size: 1,
                mtime_ns: 0,
                hash: BlobHash::of(&[content]),
                unstable: false,
            },
        }
    }

    fn omitted(entry: &Entry) -> Entry {
        let kind = EntryKind::Omitted { reason: OmitReason::Purged, rest: 0 };
        Entry { kind, ..entry.clone() }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn the_trees_are_those_of_the_lists_with_the_entries_exchanged(
            contents in prop::collection::vec(0u8..40, 0..1_200),
            edited in prop::collection::btree_set(0usize..1_200, 0..5),
            gone in prop::collection::btree_set(0u16..1_200, 0..20),
        ) {
            let list = |shift: u8| -> Vec<Entry> {
                let numbered = (0u16..).zip(&contents);
                numbered.map(|(number, content)| {
                    let is_edited = edited.contains(&usize::from(number));
                    file(number, content + if is_edited { shift } else { 0 })
                }).collect()
            };
            let lists = [list(0), list(100)];
            let mut pages = Pages(HashMap::new());
            let trees = lists.each_ref().map(|list| {
                let built = build(list);
                for page in built.pages {
                    pages.0.insert(page.reference.hash, page.text);
                }
                built.tree
            });
            let is_gone = |entry: &Entry| {
                gone.iter().any(|number| file(*number, 0).path == entry.path)
            };
            let change = |entry: &Entry| is_gone(entry).then(|| omitted(entry));
            let mut exchange = Exchange::new(&pages, &change);
            for (list, tree) in lists.iter().zip(&trees) {
                let changed: Vec<Entry> =
                    list.iter().map(|entry| change(entry).unwrap_or_else(|| entry.clone())).collect();
                let expected: Vec<Entry> = list.iter().filter(|entry| is_gone(entry)).cloned().collect();
                let (found, went) = exchange.tree(tree).unwrap();
                prop_assert_eq!(found, build(&changed).tree);
                prop_assert_eq!(&*went, expected);
            }
            let made = exchange.into_pages();
            let mut names: Vec<BlobHash> = made.iter().map(|page| page.reference.hash).collect();
            prop_assert!(names.iter().all(|name| !pages.0.contains_key(name)), "one is not new");
            names.sort_unstable();
            let all = names.len();
            names.dedup();
            prop_assert_eq!(names.len(), all, "one was made twice");
            // Everything that the new lists need is there.
            for page in made {
                pages.0.insert(page.reference.hash, page.text);
            }
            for list in &lists {
                let changed: Vec<Entry> =
                    list.iter().map(|entry| change(entry).unwrap_or_else(|| entry.clone())).collect();
                let read = crate::manifest::read_entries(&pages, &build(&changed).tree).unwrap();
                prop_assert_eq!(read, changed);
            }
        }
    }
}
