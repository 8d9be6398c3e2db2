//! Part of a checkpoint: reading some of its entries, and exchanging some of them, at the cost of the
//! pages that hold them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use crate::error::{Error, Result};
use crate::limits;
use crate::manifest::entry::Entry;
use crate::manifest::page::{
    EncodedPage, Page, PageRef, PageTree, Tree, build, is_boundary, leaf, raise, stretch,
};
use crate::manifest::tree::{PageSource, load, read_entries, root_page};
use crate::path::RelPath;

/// Which paths are wanted: some, everything below them, and the directories above them.
#[derive(Debug)]
struct Wanted {
    /// None of them below another.
    tops: Vec<RelPath>,
    above: BTreeSet<RelPath>,
}

impl Wanted {
    fn includes(&self, path: &RelPath) -> bool {
        self.above.contains(path) || self.tops.iter().any(|top| path.is_at_or_below(top))
    }

    /// Whether a path that is wanted may lie from `first` on and before `next`.
    fn may_lie(&self, first: &RelPath, next: Option<&RelPath>) -> bool {
        if next.is_some_and(|next| next <= first) {
            // Out of order: reading it shows what is wrong.
            return true;
        }
        let is_before_next = |path: &[u8]| next.is_none_or(|next| path < next.as_bytes());
        let is_inside = |path: &RelPath| path >= first && is_before_next(path.as_bytes());
        let range = (Bound::Included(first), next.map_or(Bound::Unbounded, Bound::Excluded));
        self.above.range::<RelPath, _>(range).next().is_some()
            || self.tops.iter().any(|top| {
                // What is below begins with `top/`, and ends before `top0`, the next byte.
                let end = [top.as_bytes(), b"0"].concat();
                let start = [top.as_bytes(), b"/"].concat();
                top.is_root()
                    || is_inside(top)
                    || (is_before_next(&start) && first.as_bytes() < &*end)
            })
    }
}

/// The topmost of `paths`, in order: none lies below another.
pub(crate) fn topmost(paths: &[RelPath]) -> Vec<RelPath> {
    let mut sorted = paths.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let all: BTreeSet<&RelPath> = sorted.iter().collect();
    let is_top = |path: &&RelPath| !path.ancestors().any(|above| all.contains(&above));
    sorted.iter().filter(is_top).cloned().collect()
}

/// The entries at or below each of `paths`, and of the directories above them, in order of path.
///
/// # Errors
/// As [`read_entries`], of the pages that are read.
///
/// Cost: the pages that may hold them, and those above these.
pub(crate) fn read_part(
    source: &dyn PageSource,
    tree: &Tree,
    paths: &[RelPath],
) -> Result<Vec<Entry>> {
    let tops = topmost(paths);
    let above = tops.iter().flat_map(RelPath::ancestors).collect();
    let wanted = Wanted { tops, above };
    let mut entries = Vec::new();
    collect(source, root_page(source, tree)?, tree, None, &wanted, &mut entries)?;
    Ok(entries)
}

fn collect(
    source: &dyn PageSource,
    page: Page,
    tree: &Tree,
    end: Option<&RelPath>,
    wanted: &Wanted,
    into: &mut Vec<Entry>,
) -> Result<()> {
    match page {
        Page::Leaf(entries) => {
            for entry in entries.into_iter().filter(|entry| wanted.includes(&entry.path)) {
                if into.last().is_some_and(|last| last.path >= entry.path) {
                    let reason = format!("`{}` is out of order or there twice", entry.path);
                    return Err(Error::PageInvalid { hash: tree.root, reason });
                }
                into.push(entry);
            }
        }
        Page::Node { level, pages } => {
            for (index, reference) in pages.iter().enumerate() {
                let next = pages.get(index + 1).map(|next| &next.first).or(end);
                if wanted.may_lie(&reference.first, next) {
                    let below = load(source, reference, level.saturating_sub(1))?;
                    collect(source, below, tree, next, wanted, into)?;
                }
            }
        }
    }
    Ok(())
}

/// What becomes of single paths: an entry in place of what is there, or none.
pub(crate) type Edits = BTreeMap<RelPath, Option<Entry>>;

/// The tree of the same list with some entries exchanged: what [`build`] makes of that list. Among its
/// pages are those of level 0 that are new, and all above. `leaves` are those of the tree, as `Above::read` gives them.
///
/// # Errors
/// As [`read_entries`], of the pages that are read.
///
/// Cost: the pages of level 0 that change, and one or two beside each; the pages above are made anew.
pub(crate) fn splice(
    source: &dyn PageSource,
    tree: &Tree,
    leaves: &[PageRef],
    edits: &Edits,
) -> Result<PageTree> {
    if edits.is_empty() {
        return Ok(PageTree { pages: Vec::new(), tree: *tree });
    }
    if leaves.is_empty() {
        // The root is the one page of entries.
        let mut entries = read_entries(source, tree)?;
        exchange(&mut entries, edits.iter());
        return Ok(build(&entries));
    }
    if !leaves.is_sorted_by(|one, next| one.first < next.first) {
        let reason = "its pages are out of order".to_owned();
        return Err(Error::PageInvalid { hash: tree.root, reason });
    }
    let mut splicer = Splicer { source, edits, leaves, next: 0, uncut: Vec::new() };
    let (mut references, mut pages) = (Vec::new(), Vec::new());
    loop {
        match splicer.next_page()? {
            None if references.is_empty() => return Ok(build(&[])),
            None => return Ok(raise(references, pages)),
            Some(Cut::Same(reference)) => references.push(reference),
            Some(Cut::New(page)) => {
                references.push(page.reference.clone());
                pages.push(page);
            }
        }
    }
}

/// Puts edits into a sorted list.
fn exchange<'a>(
    entries: &mut Vec<Entry>,
    edits: impl Iterator<Item = (&'a RelPath, &'a Option<Entry>)>,
) {
    for (path, edit) in edits {
        match (entries.binary_search_by(|entry| entry.path.cmp(path)), edit) {
            (Ok(index), Some(entry)) => entries[index] = entry.clone(),
            (Ok(index), None) => drop(entries.remove(index)),
            (Err(index), Some(entry)) => entries.insert(index, entry.clone()),
            (Err(_), None) => {}
        }
    }
}

/// The next page of the new list.
enum Cut {
    /// One of the old list.
    Same(PageRef),
    New(EncodedPage),
}

struct Splicer<'a> {
    source: &'a dyn PageSource,
    edits: &'a Edits,
    leaves: &'a [PageRef],
    /// The first of the old pages whose entries are neither cut nor in `uncut`.
    next: usize,
    /// Entries of the new list; a page begins with the first.
    uncut: Vec<Entry>,
}

impl Splicer<'_> {
    fn next_page(&mut self) -> Result<Option<Cut>> {
        if self.uncut.is_empty() {
            if let Some(reference) = self.same() {
                self.next += 1;
                return Ok(Some(Cut::Same(reference)));
            }
            if !self.take_leaf()? && self.uncut.is_empty() {
                return Ok(None);
            }
        }
        loop {
            let length = stretch(&self.uncut, 0, |entry| &entry.path);
            let is_cut = length < self.uncut.len()
                || length == limits::PAGE_ENTRIES_MAX
                || self.ends_before_next();
            if is_cut || !self.take_leaf()? {
                if self.uncut.is_empty() {
                    return Ok(None);
                }
                let behind = self.uncut.split_off(length);
                let entries = std::mem::replace(&mut self.uncut, behind);
                return Ok(Some(Cut::New(leaf(&entries.iter().collect::<Vec<_>>()))));
            }
        }
    }

    /// The edits of the paths from the first of the old page `index` on to the next page's.
    fn edits_in(&self, index: usize) -> impl Iterator<Item = (&RelPath, &Option<Entry>)> {
        let first = self.leaves.get(index).filter(|_| index > 0).map(|leaf| &leaf.first);
        let next = self.leaves.get(index + 1).map(|leaf| &leaf.first);
        let from = first.map_or(Bound::Unbounded, Bound::Included);
        let to = next.map_or(Bound::Unbounded, Bound::Excluded);
        self.edits.range::<RelPath, _>((from, to))
    }

    /// Whether the first entry of an old page is still there.
    fn keeps_first(&self, leaf: &PageRef) -> bool {
        !matches!(self.edits.get(&leaf.first), Some(None))
    }

    /// The next old page, if it is one of the new list, where a page begins now: none of its entries has
    /// changed, and what follows it ends it as before.
    fn same(&self) -> Option<PageRef> {
        let leaf = self.leaves.get(self.next)?;
        let follows = self.leaves.get(self.next + 1).is_none_or(|next| self.keeps_first(next));
        (follows && self.edits_in(self.next).next().is_none()).then(|| leaf.clone())
    }

    /// Whether what is not cut is a page because of the path that follows it, which need not be read.
    fn ends_before_next(&self) -> bool {
        self.uncut.len() >= limits::PAGE_ENTRIES_MIN
            && self
                .leaves
                .get(self.next)
                .is_some_and(|next| self.keeps_first(next) && is_boundary(&next.first, 0))
    }

    /// Adds the entries of the next old page, as they are in the new list; `false` where there is none.
    fn take_leaf(&mut self) -> Result<bool> {
        let Some(reference) = self.leaves.get(self.next) else { return Ok(false) };
        let Page::Leaf(mut entries) = load(self.source, reference, 0)? else { return Ok(false) };
        exchange(&mut entries, self.edits_in(self.next));
        self.next += 1;
        self.uncut.append(&mut entries);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::hash::BlobHash;
    use crate::manifest::{Above, EntryKind, Listed, Mode};

    #[derive(Default)]
    struct Pages(HashMap<BlobHash, Vec<u8>>);

    impl PageSource for Pages {
        fn page(&self, hash: BlobHash, _size: u64) -> Result<Vec<u8>> {
            self.0.get(&hash).cloned().ok_or(Error::BlobMissing { hash })
        }
    }

    fn path(number: u16) -> RelPath {
        RelPath::new(format!("{:02}/{:03}", number / 100, number % 100)).unwrap()
    }

    fn entry(path: RelPath, mode: u32) -> Entry {
        let kind = EntryKind::Dir { listed: Listed::Whole };
        Entry { path, mode: Mode::from_st_mode(mode), kind }
    }

    fn stored(entries: &[Entry]) -> (Pages, Tree) {
        let built = build(entries);
        let pages = built.pages.into_iter().map(|page| (page.reference.hash, page.text));
        (Pages(pages.collect()), built.tree)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

        #[test]
        fn a_spliced_tree_is_that_of_the_whole_list(
            numbers in prop::collection::btree_set(0..3000u16, 0..900),
            edited in prop::collection::btree_map(0..3000u16, prop::option::of(0..3u32), 0..40),
            gone in prop::option::of((0..3000u16, 0..600u16)),
        ) {
            let mut list: BTreeMap<RelPath, Entry> =
                numbers.iter().map(|&number| (path(number), entry(path(number), 7))).collect();
            list.insert(RelPath::root(), entry(RelPath::root(), 7));
            let before: Vec<Entry> = list.values().cloned().collect();
            let mut edits = Edits::new();
            if let Some((from, count)) = gone {
                edits.extend((from..from + count).map(|number| (path(number), None)));
            }
            for (number, mode) in edited {
                edits.insert(path(number), mode.map(|mode| entry(path(number), mode)));
            }
            for (path, edit) in &edits {
                match edit {
                    Some(entry) => drop(list.insert(path.clone(), entry.clone())),
                    None => drop(list.remove(path)),
                }
            }
            let (mut pages, tree) = stored(&before);
            let leaves = Above::read(&pages, &tree).unwrap().leaves;
            let spliced = splice(&pages, &tree, &leaves, &edits).unwrap();
            let after: Vec<Entry> = list.into_values().collect();
            prop_assert_eq!(spliced.tree, build(&after).tree);
            let new = spliced.pages.into_iter().map(|page| (page.reference.hash, page.text));
            pages.0.extend(new);
            prop_assert_eq!(read_entries(&pages, &spliced.tree).unwrap(), after);
        }

        #[test]
        fn a_part_is_what_a_filter_of_the_whole_list_gives(
            numbers in prop::collection::btree_set(0..3000u16, 0..900),
            wanted in prop::collection::vec(0..3000u16, 0..6),
            directories in prop::collection::vec(0..32u16, 0..3),
        ) {
            let mut list: Vec<Entry> = vec![entry(RelPath::root(), 7)];
            list.extend(numbers.iter().map(|&number| entry(path(number), 7)));
            list.extend((0..30).map(|number| entry(path(number * 100).parent().unwrap(), 7)));
            list.sort_by(|a, b| a.path.cmp(&b.path));
            let (pages, tree) = stored(&list);
            let mut tops: Vec<RelPath> = wanted.into_iter().map(path).collect();
            tops.extend(directories.iter().map(|number| path(number * 100).parent().unwrap()));
            let found = read_part(&pages, &tree, &tops).unwrap();
            list.retain(|entry| tops.iter().any(|top| {
                entry.path.is_at_or_below(top) || top.is_at_or_below(&entry.path)
            }));
            prop_assert_eq!(found, list);
        }
    }

    #[test]
    fn only_pages_that_matter_are_read() {
        let mut list = vec![entry(RelPath::root(), 7)];
        list.extend((0..3000).map(|number| entry(path(number), 7)));
        let (mut pages, tree) = stored(&list);
        let Page::Node { .. } = root_page(&pages, &tree).unwrap() else { panic!("one page") };
        let leaves = Above::read(&pages, &tree).unwrap().leaves;
        let holds = |leaf: &PageRef| leaf.first <= path(1500);
        let own = leaves.iter().rfind(|leaf| holds(leaf)).unwrap().hash;
        let root = leaves[0].hash;
        let others = leaves.iter().map(|leaf| leaf.hash).filter(|hash| ![own, root].contains(hash));
        for hash in others.collect::<Vec<_>>() {
            pages.0.remove(&hash);
        }
        let edits = Edits::from([(path(1500), Some(entry(path(1500), 1)))]);
        assert_eq!(read_part(&pages, &tree, &[path(1500)]).unwrap().len(), 2);
        let spliced = splice(&pages, &tree, &leaves, &edits).unwrap();
        assert_eq!(spliced.pages.iter().filter(|page| page.level == 0).count(), 1);
    }
}
