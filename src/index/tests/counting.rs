//! References are rows, and counters repeat them.

use super::*;

/// Paths and contents of a small tree: few of both, so that they meet again.
fn small_tree() -> impl Strategy<Value = BTreeMap<u8, u8>> {
    prop::collection::btree_map(0u8..120, 0u8..6, 0..60)
}

fn tree_entries(tree: &BTreeMap<u8, u8>) -> Vec<Entry> {
    let files =
        tree.iter().map(|(path, content)| file(&format!("p{path:03}"), &content.to_string()));
    std::iter::once(dir("")).chain(files).collect()
}

/// What the counters of blobs and of pages must be, from the trees in memory.
fn expected_counters(trees: &[Vec<Entry>]) -> [HashMap<BlobHash, i64>; 2] {
    let mut blobs: HashMap<BlobHash, i64> = HashMap::new();
    let mut pages: HashMap<BlobHash, i64> = HashMap::new();
    let mut seen = HashSet::new();
    for entries in trees {
        let built = build(entries);
        *pages.entry(built.tree.root).or_default() += 1;
        let mut rest = &entries[..];
        for page in &built.pages {
            let is_new = seen.insert(page.reference.hash);
            *blobs.entry(page.reference.hash).or_default() += i64::from(is_new);
            for child in &page.children {
                *pages.entry(*child).or_default() += i64::from(is_new);
            }
            if page.level == 0 {
                let count = usize::try_from(page.reference.entries).unwrap();
                let (own, others) = rest.split_at(count);
                rest = others;
                for (hash, _) in own.iter().filter_map(Entry::blob) {
                    *blobs.entry(hash).or_default() += i64::from(is_new);
                }
            }
        }
    }
    [blobs, pages]
}

/// The counters that `sql` asks for.
fn counters(index: &Index, sql: &str) -> HashMap<BlobHash, i64> {
    let connection = index.lock();
    let mut query = connection.prepare(sql).unwrap();
    query
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
        .map(|row| row.unwrap())
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..Default::default() })]

    #[test]
    fn counters_and_rows_follow_any_sequence_of_recording_and_deleting(
        steps in prop::collection::vec((small_tree(), prop::option::of(0usize..8)), 1..24),
    ) {
        let mut fixture = Fixture::new();
        let mut live: Vec<(CheckpointId, Vec<Entry>)> = Vec::new();
        for (seq, (tree, delete)) in steps.into_iter().enumerate() {
            if let Some(victim) = delete && victim < live.len() {
                let (victim, _) = live.swap_remove(victim);
                fixture.delete(&victim);
            } else {
                // Every fourth tree is the one before, as in a turn without a change.
                let entries = match live.last() {
                    Some((_, before)) if seq % 4 == 0 => before.clone(),
                    _ => tree_entries(&tree),
                };
                let id = id("s", seq as u64);
                fixture.record(&id, &entries);
                live.push((id, entries));
            }
            let trees: Vec<_> = live.iter().map(|(_, entries)| entries.clone()).collect();
            let [blobs, pages] = expected_counters(&trees);
            let index = &fixture.index;
            let sql = "SELECT hash, refs FROM blobs WHERE zero_since_ns IS NULL";
            prop_assert_eq!(counters(index, sql), blobs);
            let sql = "SELECT hash, pages.refs FROM pages JOIN blobs ON blob = id";
            prop_assert_eq!(counters(index, sql), pages);
            let distinct: HashSet<_> = trees
                .iter()
                .flat_map(|entries| build(entries).pages)
                .map(|page| (page.reference.hash, page.level, page.reference.entries))
                .collect();
            let leaves: u64 = distinct.iter().filter(|page| page.1 == 0).map(|page| page.2).sum();
            let counts = fixture.counts();
            prop_assert_eq!((counts.pages, counts.entries), (distinct.len() as u64, leaves));
            let checks = fixture.index.read("check", |tx| {
                Ok((tx.recount()?, tx.integrity(true)?, tx.broken_references()?))
            });
            prop_assert_eq!(checks.unwrap(), (vec![], vec![], vec![]));
        }
    }
}

#[test]
fn a_recount_names_a_counter_that_is_wrong() {
    let mut fixture = Fixture::new();
    fixture.record(&id("s", 0), &[dir(""), file("a", "x"), file("b", "x")]);
    let index = &fixture.index;
    index.lock().execute("UPDATE blobs SET refs = 5 WHERE hash = ?1", [hash("x")]).unwrap();
    let found = index.read("check", |tx| tx.recount()).unwrap();
    assert_eq!(found, [CounterMismatch { hash: hash("x"), counter: 5, rows: 2 }]);
    index.lock().execute("UPDATE blobs SET refs = 1 WHERE hash = ?1", [hash("x")]).unwrap();
    let found = index.write("delete", |tx| tx.delete_checkpoint(&id("s", 0)));
    assert!(matches!(found, Err(Error::IndexDamaged { .. })), "{found:?}");
    assert_eq!(fixture.counts().checkpoints, 1);
}

#[test]
fn content_that_is_also_a_page_is_counted_as_both() {
    let mut fixture = Fixture::new();
    let inner = vec![dir(""), file("a", "x")];
    let text = String::from_utf8(build(&inner).pages[0].text.clone()).unwrap();
    fixture.record(&id("s", 0), &inner);
    fixture.record(&id("s", 1), &[dir(""), file("copy of the page", &text)]);
    fixture.delete(&id("s", 0));
    assert_eq!(candidates(&fixture.index), [hash("x")]);
    assert_eq!(fixture.index.read("check", |tx| tx.recount()).unwrap(), []);
    assert!(!fixture.index.write("look", |tx| tx.is_removable(hash(&text))).unwrap());
    fixture.record(&id("s", 2), &inner);
    assert_eq!(candidates(&fixture.index), []);
    assert_eq!(fixture.index.read("check", |tx| tx.recount()).unwrap(), []);
}
