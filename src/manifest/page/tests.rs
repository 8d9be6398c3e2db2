//! Pages made from a list that is mostly known, against pages made from the list alone.

use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

fn entry(path: &str, mode: u32) -> Entry {
    let path = RelPath::new(path).unwrap();
    Entry { path, mode: Mode::from_st_mode(mode), kind: EntryKind::Dir { listed: Listed::Whole } }
}

/// The root and `count` paths in a few directories.
fn list(count: usize) -> Vec<Entry> {
    let mut paths: Vec<String> =
        (0..count).map(|number| format!("d{}/f{number:05}", number % 7)).collect();
    paths.push(String::new());
    paths.sort_unstable();
    paths.iter().map(|path| entry(path, 0o644)).collect()
}

fn leaves(tree: &PageTree) -> Vec<PageRef> {
    let leaves = tree.pages.iter().filter(|page| page.level == 0);
    leaves.map(|page| page.reference.clone()).collect()
}

/// Makes the pages of `now` from those of `before`, which must come to what the list alone gives. The
/// number of pages of entries that were made again is returned.
fn compare(before: &[Entry], now: &[Entry]) -> usize {
    let known = build(before);
    let paths: HashSet<&RelPath> = before
        .iter()
        .chain(now)
        .filter(|entry| {
            before.binary_search_by(|old| old.path.cmp(&entry.path)).ok().map(|at| &before[at])
                != now.binary_search_by(|new| new.path.cmp(&entry.path)).ok().map(|at| &now[at])
        })
        .map(|entry| &entry.path)
        .collect();
    let mut changed: Vec<RelPath> = paths.into_iter().cloned().collect();
    changed.sort_unstable();
    let leaves = leaves(&known);
    let unchanged = Unchanged { leaves: &leaves, changed: &changed };
    let rebuilt = rebuild(now, |entry| entry, &unchanged);
    let built = build(now);
    assert_eq!(rebuilt.tree, built.tree);
    let old: HashSet<BlobHash> = leaves.iter().map(|leaf| leaf.hash).collect();
    let missing: Vec<&EncodedPage> =
        built.pages.iter().filter(|page| !rebuilt.pages.iter().any(|made| made == *page)).collect();
    assert!(missing.iter().all(|page| old.contains(&page.reference.hash)), "{missing:?}");
    assert!(rebuilt.pages.iter().all(|page| built.pages.contains(page)));
    rebuilt.pages.iter().filter(|page| page.level == 0).count()
}

#[test]
fn one_edit_makes_one_page_of_entries_again() {
    let before = list(5_000);
    assert_eq!(compare(&before, &before), 0);
    let mut now = before.clone();
    now[2_500].mode = Mode::from_st_mode(0o755);
    assert_eq!(compare(&before, &now), 1);
    now.remove(2_500);
    assert!((1..=3).contains(&compare(&before, &now)));
    assert!(compare(&before, &[]) <= 1);
    assert_eq!(compare(&[], &before), leaves(&build(&before)).len());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..Default::default() })]

    #[test]
    fn pages_made_from_what_is_known_are_those_of_the_list_alone(
        count in 0usize..900,
        edits in prop::collection::vec((0usize..900, 0u8..4), 0..12),
    ) {
        let before = list(count);
        let mut now = before.clone();
        for (at, edit) in edits {
            let at = at % now.len();
            match edit {
                0 => drop(now.remove(at)),
                1 => now[at].mode = Mode::from_st_mode(0o700),
                2 => {
                    let path = format!("{}x", String::from_utf8_lossy(now[at].path.as_bytes()));
                    now.push(entry(&path, 0o600));
                }
                _ => now.truncate(at.max(1)),
            }
            if now.is_empty() {
                now.push(entry("", 0o644));
            }
            now.sort_by(|a, b| a.path.cmp(&b.path));
            now.dedup_by(|a, b| a.path == b.path);
        }
        compare(&before, &now);
    }
}
