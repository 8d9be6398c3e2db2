//! Comparing two checkpoints page by page.

use std::collections::HashSet;

use crate::error::{Error, Result};
use crate::hash::BlobHash;
use crate::manifest::entry::Entry;
use crate::manifest::page::{Page, PageRef, Tree};
use crate::manifest::tree::{Difference, PageSource, differences, load, root_page};

/// One of the two trees while it is read from the top down: what the other does not have.
#[derive(Debug)]
struct Side {
    /// The level of the pages that are next.
    level: u8,
    pages: Vec<Next>,
}

/// A page that was not read yet.
#[derive(Debug)]
enum Next {
    /// The root, to which no reference leads but that of the manifest.
    Root(Tree),
    Below(PageRef),
}

impl Next {
    fn hash(&self) -> BlobHash {
        match self {
            Self::Root(tree) => tree.root,
            Self::Below(reference) => reference.hash,
        }
    }

    fn read(&self, source: &dyn PageSource, level: u8) -> Result<Page> {
        match self {
            Self::Root(tree) => root_page(source, tree),
            Self::Below(reference) => load(source, reference, level),
        }
    }
}

impl Side {
    fn of(tree: &Tree) -> Self {
        Self { level: tree.levels.saturating_sub(1), pages: vec![Next::Root(*tree)] }
    }

    /// Exchanges the pages for those below them.
    fn descend(&mut self, source: &dyn PageSource) -> Result<()> {
        let mut below = Vec::new();
        for page in &self.pages {
            if let Page::Node { pages, .. } = page.read(source, self.level)? {
                below.extend(pages.into_iter().map(Next::Below));
            }
        }
        self.level = self.level.saturating_sub(1);
        self.pages = below;
        Ok(())
    }

    fn hashes(&self) -> HashSet<BlobHash> {
        self.pages.iter().map(Next::hash).collect()
    }

    fn entries(&self, source: &dyn PageSource) -> Result<Vec<Entry>> {
        let mut entries: Vec<Entry> = Vec::new();
        for page in &self.pages {
            let Page::Leaf(mut more) = page.read(source, 0)? else { continue };
            // One page is sorted by its own check; two beside each other are compared here.
            if let (Some(last), Some(first)) = (entries.last(), more.first())
                && last.path >= first.path
            {
                let reason = format!("`{}` is out of order or there twice", first.path);
                return Err(Error::PageInvalid { hash: page.hash(), reason });
            }
            entries.append(&mut more);
        }
        Ok(entries)
    }
}

/// Compares the entries of two trees by kind, mode and content. The result is that of [`differences`]
/// on all their entries.
///
/// # Errors
/// As [`crate::manifest::read_entries`], of the pages that are read.
///
/// Cost: the pages that only one of the trees has, and those above them.
pub fn tree_differences(
    source: &dyn PageSource,
    before: &Tree,
    after: &Tree,
) -> Result<Vec<Difference>> {
    let (mut before, mut after) = (Side::of(before), Side::of(after));
    loop {
        if before.level == after.level {
            // What both have says the same of both: a path is in one page of a tree alone.
            let (old, new) = (before.hashes(), after.hashes());
            before.pages.retain(|page| !new.contains(&page.hash()));
            after.pages.retain(|page| !old.contains(&page.hash()));
            if before.level == 0 {
                break;
            }
        }
        let level = before.level.max(after.level);
        for side in [&mut before, &mut after] {
            if side.level == level {
                side.descend(source)?;
            }
        }
    }
    Ok(differences(&before.entries(source)?, &after.entries(source)?))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap};

    use proptest::prelude::*;

    use super::*;
    use crate::manifest::{EntryKind, Mode, build};
    use crate::path::RelPath;

    struct Pages(HashMap<BlobHash, Vec<u8>>);

    impl PageSource for Pages {
        fn page(&self, hash: BlobHash, _size: u64) -> Result<Vec<u8>> {
            self.0.get(&hash).cloned().ok_or(Error::BlobMissing { hash })
        }
    }

    type List = BTreeMap<RelPath, Entry>;

    fn put(list: &mut List, number: u16, content: u8) {
        let path = RelPath::new(format!("{:02}/{:03}", number / 100, number % 100)).unwrap();
        let hash = BlobHash::of(&[content]);
        let kind = EntryKind::File { size: 1, mtime_ns: 0, hash, unstable: false };
        list.insert(path.clone(), Entry { path, mode: Mode::from_st_mode(0o644), kind });
    }

    fn drop_at(list: &mut List, number: u16) {
        let path = RelPath::new(format!("{:02}/{:03}", number / 100, number % 100)).unwrap();
        list.remove(&path);
    }

    /// The pages that one of two lists has and the other has not, with both trees.
    fn pages_of_one(before: &List, after: &List) -> (Pages, Tree, Tree) {
        let [before, after] =
            [before, after].map(|list| build(&list.values().cloned().collect::<Vec<_>>()));
        let texts = |tree: &crate::manifest::PageTree| -> HashMap<BlobHash, Vec<u8>> {
            tree.pages.iter().map(|page| (page.reference.hash, page.text.clone())).collect()
        };
        let (old, new) = (texts(&before), texts(&after));
        let mut pages = old.clone();
        pages.extend(new.clone());
        pages.retain(|hash, _| !(old.contains_key(hash) && new.contains_key(hash)));
        (Pages(pages), before.tree, after.tree)
    }

    /// Looks at each path of either.
    fn one_by_one(before: &List, after: &List) -> Vec<Difference> {
        let paths: std::collections::BTreeSet<&RelPath> =
            before.keys().chain(after.keys()).collect();
        let both = paths.into_iter().map(|path| (path, before.get(path), after.get(path)));
        both.filter(|(_, old, new)| old != new)
            .map(|(path, old, new)| Difference {
                path: path.clone(),
                before: old.cloned(),
                after: new.cloned(),
            })
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

        #[test]
        fn what_differs_is_found_without_the_pages_that_both_have(
            // From one page to three levels, so that the trees may differ in height.
            numbers in prop_oneof![
                prop::collection::btree_set(0..3000u16, 1..40),
                prop::collection::btree_set(0..3000u16, 1..900),
            ],
            edited in prop::collection::btree_map(0..3000u16, prop::option::of(0..3u8), 0..30),
            gone in prop::option::of((0..3000u16, 0..3000u16)),
        ) {
            let mut before = List::new();
            for number in numbers {
                put(&mut before, number, 7);
            }
            let mut after = before.clone();
            if let Some((from, count)) = gone {
                for number in from..from + count {
                    drop_at(&mut after, number);
                }
            }
            for (number, content) in edited {
                match content {
                    Some(content) => put(&mut after, number, content),
                    None => drop_at(&mut after, number),
                }
            }
            for (before, after) in [(&before, &after), (&after, &before)] {
                let (pages, old, new) = pages_of_one(before, after);
                let found = tree_differences(&pages, &old, &new).unwrap();
                prop_assert_eq!(found, one_by_one(before, after));
            }
        }
    }

    #[test]
    fn a_page_that_is_needed_and_missing_is_told() {
        let mut before = List::new();
        for number in 0..500 {
            put(&mut before, number, 7);
        }
        let mut after = before.clone();
        put(&mut after, 250, 1);
        let (pages, old, new) = pages_of_one(&before, &after);
        assert_eq!(tree_differences(&pages, &old, &new).unwrap().len(), 1);
        for hash in pages.0.keys() {
            let mut fewer = Pages(pages.0.clone());
            fewer.0.remove(hash);
            let missing = tree_differences(&fewer, &old, &new);
            assert!(matches!(missing, Err(Error::BlobMissing { hash: it }) if it == *hash));
        }
    }
}
