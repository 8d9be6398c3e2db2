//! Pages made from a list that is mostly known, against pages made from the list alone; and texts that
//! are not those of pages.

use std::collections::HashSet;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::mutation::{assert_stays_inside, config, near};

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
        edits in vec((0usize..900, 0u8..4), 0..12),
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

/// Names that sort around a slash, that lead out where they are not checked, that are not text.
fn any_path() -> impl Strategy<Value = RelPath> {
    let name = prop_oneof![
        select(&["a", "b", "a-b", "a0", "...", "\u{e9}", "\"\\\n"][..]).prop_map(Vec::from),
        vec(1..=255_u8, 1..6).prop_filter("a name has no slash", |name| !name.contains(&b'/')),
    ];
    vec(name, 0..4).prop_filter_map("a path", |names| RelPath::new(names.join(&b'/')).ok())
}

fn any_kind() -> impl Strategy<Value = EntryKind> {
    let file =
        (any::<(u64, i64, bool)>(), any::<u8>()).prop_map(|((size, mtime_ns, unstable), of)| {
            EntryKind::File { size, mtime_ns, hash: BlobHash::of(&[of]), unstable }
        });
    let listed = select(&[Listed::Whole, Listed::Partial][..]);
    let reason = select(&[OmitReason::Secret, OmitReason::OverTotalLimit, OmitReason::Purged][..]);
    prop_oneof![
        3 => file,
        1 => vec(1..=255_u8, 1..9).prop_map(|it| EntryKind::Symlink { target: it.into() }),
        1 => listed.prop_map(|listed| EntryKind::Dir { listed }),
        1 => (reason, any::<u64>()).prop_map(|(reason, rest)| EntryKind::Omitted { reason, rest }),
        1 => Just(EntryKind::Absent),
    ]
}

fn any_entries() -> impl Strategy<Value = Vec<Entry>> {
    btree_map(any_path(), (any::<u32>(), any_kind()), 0..12).prop_map(|entries| {
        let entry = |(path, (mode, kind)): (RelPath, (u32, EntryKind))| {
            let has_mode = kind != EntryKind::Absent;
            let mode = if has_mode { Mode::from_st_mode(mode) } else { Mode::default() };
            Entry { path, mode, kind }
        };
        entries.into_iter().map(entry).collect()
    })
}

fn any_references() -> impl Strategy<Value = Vec<PageRef>> {
    btree_map(any_path(), any::<(u64, u64)>(), 1..12).prop_map(|pages| {
        let page = |(first, (size, entries)): (RelPath, (u64, u64))| PageRef {
            hash: BlobHash::of(first.as_bytes()),
            first,
            size,
            entries,
        };
        pages.into_iter().map(page).collect()
    })
}

fn any_page() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => any_entries().prop_map(|entries| encode_entries(&entries)),
        1 => (1..9_u8, any_references()).prop_map(|(level, pages)| encode_node(level, &pages)),
    ]
}

/// What is taken for a page keeps to the format, and reads the same after it is written again.
#[track_caller]
fn assert_sound(text: &[u8]) -> usize {
    let mut taken = 0;
    for level in 0..9 {
        let Ok(page) = decode(text, level) else { continue };
        taken += 1;
        let (paths, again): (Vec<&RelPath>, _) = match &page {
            Page::Leaf(entries) => {
                (entries.iter().map(|it| &it.path).collect(), encode_entries(entries))
            }
            Page::Node { level, pages } => {
                (pages.iter().map(|it| &it.first).collect(), encode_node(*level, pages))
            }
        };
        assert!(paths.len() <= 96 && (level == 0 || !paths.is_empty()));
        assert!(paths.is_sorted_by(|a, b| a.as_bytes() < b.as_bytes()));
        for path in paths {
            assert_stays_inside(path.as_bytes());
        }
        assert_eq!(decode(&again, level), Ok(page));
    }
    if let Ok(entries) = decode_entries(text) {
        assert_eq!(decode_entries(&encode_entries(&entries)), Ok(entries));
    }
    assert!(taken <= 1, "a text is of one level");
    taken
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_list_of_entries_reads_as_it_was_written(entries in any_entries()) {
        let text = encode_entries(&entries);
        prop_assert_eq!(decode_entries(&text), Ok(entries));
        prop_assert_eq!(assert_sound(&text), 1);
    }

    #[test]
    fn every_list_of_pages_reads_as_it_was_written(level in 1..9_u8, pages in any_references()) {
        let text = encode_node(level, &pages);
        prop_assert_eq!(decode(&text, level), Ok(Page::Node { level, pages }));
        prop_assert_eq!(assert_sound(&text), 1);
    }

    #[test]
    fn no_text_in_the_place_of_a_page_does_harm(text in near(any_page())) {
        assert_sound(&text);
    }
}

#[test]
fn what_a_page_may_not_say_is_refused() {
    let dir =
        |path: &str| format!(r#"{{"path":"{path}","kind":"dir","mode":"0755","listed":"whole"}}"#);
    let leaf = |entries: &[String]| format!(r#"{{"level":0,"entries":[{}]}}"#, entries.join(","));
    let taken = |text: &str| assert_sound(text.as_bytes());
    assert_eq!(taken(&leaf(&[dir(""), dir("a"), dir("a/b")])), 1);
    for path in ["..", "../a", "a/..", "a/./b", "/a", "a/", "a//b", "a\\u0000", "."] {
        assert_eq!(taken(&leaf(&[dir(path)])), 0, "{path}");
    }
    let many = |count: usize| -> Vec<String> {
        (0..count).map(|number| dir(&format!("{number:04}"))).collect()
    };
    assert_eq!((taken(&leaf(&many(96))), taken(&leaf(&many(97)))), (1, 0));
    let file = r#"{"path":"f","kind":"file","mode":"0644","size":1,"mtime_ns":1,"hash":"#;
    let file = format!(r#"{file}"{}"}}"#, BlobHash::of(b"x"));
    assert_eq!(taken(&leaf(std::slice::from_ref(&file))), 1);
    for (from, to) in [
        (r#""size":1"#, r#""size":1,"size":1"#),
        (r#""size":1"#, r#""size":-1"#),
        (r#""size":1"#, r#""size":18446744073709551616"#),
        (r#""size":1"#, r#""size":1.0"#),
        (r#""mtime_ns":1"#, r#""mtime_ns":9223372036854775808"#),
        (r#""path":"f""#, r#""path":"f","path_bytes":"Zg==""#),
        (r#""path":"f""#, r#""path_bytes":"Zg==""#),
        (r#""path":"f""#, r#""path_bytes":"/w""#),
        (r#""path":"f","#, ""),
        (r#""mode":"0644""#, r#""mode":"644""#),
        (r#""mode":"0644""#, r#""mode":"10644""#),
        (r#""mode":"0644""#, r#""mode":"0644","unstable":false"#),
        (r#""mode":"0644""#, r#""mode":"0644","target":"x""#),
        (r#""kind":"file""#, r#""kind":"fifo""#),
    ] {
        assert!(file.contains(from));
        assert_eq!(taken(&leaf(&[file.replacen(from, to, 1)])), 0, "{from} {to}");
    }
    assert_eq!(taken(r#"{"level":1,"pages":[]}"#), 0);
    let longest = "x".repeat(limits::PATH_BYTES_MAX);
    assert_eq!(
        (taken(&leaf(&[dir(&longest)])), taken(&leaf(&[dir(&format!("{longest}x"))]))),
        (1, 0)
    );
    for deep in ["[".repeat(100_000), r#"{"level":0,"entries":["#.repeat(100_000)] {
        assert_eq!(taken(&deep), 0);
    }
}
