//! Caches that are read, brought up to date, and not as they were written.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::hash::BlobHash;
use crate::manifest::{Entry, EntryKind, Listed, Mode, OmitReason};
use crate::mutation::{Change, assert_stays_inside, changed, changes, config, near};
use crate::walk::{KnownIgnoreFile, Stamps};

fn entry(path: &str, kind: EntryKind) -> CachedEntry {
    let path = RelPath::new(path.as_bytes()).unwrap();
    let entry = Entry { path, mode: Mode::from_st_mode(0o644), kind };
    CachedEntry { entry, stamps: Stamps::default(), racy: false }
}

fn all_kinds() -> Vec<CachedEntry> {
    let hash = BlobHash::of(b"x");
    let mut file = entry("a", EntryKind::File { size: 3, mtime_ns: -5, hash, unstable: true });
    file.stamps = Stamps { size: 3, mtime_ns: 4, ctime_ns: 5, inode: 6 };
    file.racy = true;
    vec![
        entry("", EntryKind::Dir { listed: Listed::Whole }),
        file,
        entry("b", EntryKind::Symlink { target: b"../\xff".as_slice().into() }),
        entry("c", EntryKind::Dir { listed: Listed::Partial }),
        entry("d", EntryKind::Omitted { reason: OmitReason::Purged, rest: 9 }),
    ]
}

fn rules() -> KnownRules {
    let path = |text: &str| RelPath::new(text).unwrap();
    let stamps = Stamps { size: 9, mtime_ns: -1, ctime_ns: 2, inode: 3 };
    let hash = BlobHash::of(b"*.o");
    KnownRules {
        digest: Digest::of(b"rules"),
        ignore_files: vec![KnownIgnoreFile {
            path: path("a/.gitignore"),
            hash,
            stamps,
            racy: true,
        }],
        repositories: vec![path("b"), path("b/c")],
        lifted: vec![path("a/x.o")],
    }
}

fn header() -> CacheHeader {
    CacheHeader {
        store: StoreId::random(),
        checkpoint: CheckpointId {
            session: SessionName::new(&"s".repeat(128)).unwrap(),
            seq: Seq::new(7).unwrap(),
        },
        digest: Digest::of(b"manifest"),
    }
}

#[test]
fn what_is_written_is_read_and_the_header_can_be_renewed_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    let tmp = Dir::open(path).unwrap();
    let (first, second) = (header(), header());
    for rules in [Some(rules()), None] {
        StatCache::write(path, &first, &all_kinds(), rules.as_ref(), &tmp).unwrap();
        let cache = StatCache::read(path).unwrap();
        assert_eq!((&cache.header, &cache.tree.entries), (&first, &all_kinds()));
        assert_eq!(cache.tree.rules, rules);
        cache.rewrite_header(path, &second).unwrap();
        let cache = StatCache::read(path).unwrap();
        assert_eq!((&cache.header, &cache.tree.entries), (&second, &all_kinds()));
        assert_eq!(cache.tree.rules, rules);
    }
}

#[test]
fn a_cache_with_one_byte_changed_or_cut_is_not_trusted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("stat-cache");
    let tmp = Dir::open(dir.path()).unwrap();
    StatCache::write(dir.path(), &header(), &all_kinds(), Some(&rules()), &tmp).unwrap();
    let good = std::fs::read(&path).unwrap();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1;
        std::fs::write(&path, &bad).unwrap();
        assert!(StatCache::read(dir.path()).is_none(), "byte {at} flipped");
        std::fs::write(&path, &good[..at]).unwrap();
        assert!(StatCache::read(dir.path()).is_none(), "cut to {at} bytes");
    }
}
/// Whatever is changed, added and taken away: what is read after an update is what was to be
/// written, and only the blocks concerned were.
#[test]
fn an_update_leaves_what_writing_it_anew_would() {
    let dir = tempfile::tempdir().unwrap();
    let (path, file) = (dir.path(), dir.path().join("stat-cache"));
    let tmp = Dir::open(path).unwrap();
    let file_entry = |number: usize, size| {
        let hash = BlobHash::of(b"x");
        let kind = EntryKind::File { size, mtime_ns: 1, hash, unstable: false };
        entry(&format!("f{number:05}"), kind)
    };
    let mut entries: Vec<CachedEntry> = (0..3_000).map(|n| file_entry(2 * n, 1)).collect();
    StatCache::write(path, &header(), &entries, None, &tmp).unwrap();
    let whole = std::fs::metadata(&file).unwrap().len();
    let changes: [(&[usize], &[usize], &[usize]); 7] = [
        (&[4], &[], &[]),
        (&[], &[1, 3, 5_997], &[]),
        (&[], &[], &[0, 4_000]),
        (&[700, 5_998], &[5_999, 701], &[5_996]),
        (&[], &[], &[]),
        // A whole block, and more, goes.
        (&[], &[], &(1_000..2_400).step_by(2).collect::<Vec<_>>()),
        // A block is split.
        (&[], &(2_401..5_901).step_by(2).collect::<Vec<_>>(), &[]),
    ];
    for (round, (changed, added, gone)) in changes.into_iter().enumerate() {
        let touch = |number: &usize| file_entry(*number, 2 + round as u64);
        for new in changed.iter().chain(added).map(touch) {
            match entries.binary_search_by(|old| old.entry.path.cmp(&new.entry.path)) {
                Ok(at) => entries[at] = new,
                Err(at) => entries.insert(at, new),
            }
        }
        let gone_paths: Vec<RelPath> = gone.iter().map(|n| touch(n).entry.path).collect();
        entries.retain(|cached| !gone_paths.contains(&cached.entry.path));
        let numbers = changed.iter().chain(added).chain(gone);
        let touched: Vec<RelPath> = numbers.map(|n| touch(n).entry.path).collect();
        let rules = (round % 2 == 1).then(rules);
        let (rules, header) = (rules.as_ref(), header());
        let news = News { entries: &entries, touched: &touched, rules, has_new_rules: true };
        let before = std::fs::metadata(&file).unwrap().len();
        StatCache::read(path).unwrap().update(path, &header, news, &tmp).unwrap();
        let after = std::fs::metadata(&file).unwrap().len();
        if touched.len() < 10 {
            assert!(after - before < whole / 3, "{round}: {before} {after} of {whole}");
        }
        let read = StatCache::read(path).unwrap();
        assert_eq!((&read.header, read.tree.rules.as_ref()), (&header, rules));
        assert_eq!(read.tree.entries, entries, "{round}");
        assert!(read.parts.blocks.iter().all(|block| block.count <= BLOCK_ENTRIES_MAX));
    }
    // What is not used any more does not grow for ever.
    for _ in 0..100 {
        let touched: Vec<RelPath> = entries.iter().map(|e| e.entry.path.clone()).collect();
        let news = News { entries: &entries, touched: &touched, rules: None, has_new_rules: false };
        StatCache::read(path).unwrap().update(path, &header(), news, &tmp).unwrap();
    }
    assert!(std::fs::metadata(&file).unwrap().len() < 3 * whole);
}

/// A cache by its parts, each of which can be changed while all checksums are right.
struct Made {
    header: CacheHeader,
    rules: Vec<u8>,
    /// With the number of entries that the table says.
    blocks: Vec<(Vec<u8>, usize)>,
}

/// Which part is changed.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Part {
    Header,
    Table,
    Rules,
    Block(usize),
}

impl Made {
    fn of(entries: &[CachedEntry], block_entries: usize, rules: Option<&KnownRules>) -> Self {
        let block = |entries: &[CachedEntry]| (encode_block(entries), entries.len());
        let blocks = entries.chunks(block_entries).map(block).collect();
        Self { header: header(), rules: encode_rules(rules), blocks }
    }

    /// The bytes of a file of these parts, of which `part` is changed before it gets its checksum.
    fn file(&self, part: Part, changes: &[Change]) -> Vec<u8> {
        let part_of = |now: Part, bytes: &[u8]| {
            if now == part { changed(bytes, changes) } else { bytes.to_vec() }
        };
        let mut file = vec![0; HEADER_BYTES];
        let rules = append(&mut file, &part_of(Part::Rules, &self.rules));
        let mut blocks = Vec::new();
        for (number, (block, count)) in self.blocks.iter().enumerate() {
            blocks.push((append(&mut file, &part_of(Part::Block(number), block)), *count));
        }
        let table = part_of(Part::Table, &encode_table(&rules, &blocks));
        let table = append(&mut file, &table);
        let head = encode_header(&self.header, &table);
        let mut covered = part_of(Part::Header, &head[..HEADER_COVERED]);
        covered.resize(HEADER_COVERED, 0);
        file[..HEADER_COVERED].copy_from_slice(&covered);
        file[HEADER_COVERED..HEADER_BYTES].copy_from_slice(&Digest::of(&covered).to_bytes());
        file
    }
}

/// Entries of all kinds in a few blocks.
fn some_entries() -> Vec<CachedEntry> {
    let mut entries = all_kinds();
    let more = (0..40).map(|number| {
        let kind = EntryKind::File {
            size: number,
            mtime_ns: 1,
            hash: BlobHash::of(b"x"),
            unstable: false,
        };
        entry(&format!("e/{number:03}"), kind)
    });
    entries.push(entry("e", EntryKind::Dir { listed: Listed::Whole }));
    entries.extend(more);
    entries
}

thread_local! {
    static PLACE: tempfile::TempDir = tempfile::tempdir().unwrap();
}

/// What is taken for a cache keeps to the format, reads the same after it is written again, and can be
/// brought up to date.
#[track_caller]
fn assert_sound(bytes: &[u8]) -> Option<(CacheHeader, KnownTree)> {
    let read_again = |dir: &Path| StatCache::read(dir).map(|cache| (cache.header, cache.tree));
    PLACE.with(|place| {
        let (dir, tmp) = (place.path(), Dir::open(place.path()).unwrap());
        std::fs::write(dir.join(NAME), bytes).unwrap();
        let peeked = StatCache::peek(dir);
        let cache = StatCache::read(dir)?;
        assert_eq!(peeked.as_ref(), Some(&cache.header));
        let entries = &cache.tree.entries;
        assert!(entries.is_sorted_by(|a, b| a.entry.path < b.entry.path));
        for cached in entries {
            assert_stays_inside(cached.entry.path.as_bytes());
        }
        // Everything that follows some path is gone, and all else as it was.
        for left in [0, entries.len() / 2, entries.len().saturating_sub(1)] {
            std::fs::write(dir.join(NAME), bytes).unwrap();
            let touched: Vec<RelPath> =
                entries[left..].iter().map(|cached| cached.entry.path.clone()).collect();
            let (entries, rules) = (&entries[..left], cache.tree.rules.as_ref());
            let news = News { entries, touched: &touched, rules, has_new_rules: false };
            cache.update(dir, &cache.header, news, &tmp).unwrap();
            let (_, tree) = read_again(dir).unwrap();
            assert_eq!((&*tree.entries, tree.rules.as_ref()), (entries, rules));
        }
        let rules = cache.tree.rules.as_ref();
        StatCache::write(dir, &cache.header, entries, rules, &tmp).unwrap();
        let again = read_again(dir).unwrap();
        assert_eq!((&again.0, &again.1.entries), (&cache.header, entries));
        assert_eq!(again.1.rules.as_ref(), rules);
        Some(again)
    })
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_changed_cache_with_its_checksums_made_right_is_sound_or_refused(
        part in prop_oneof![
            Just(Part::Header), Just(Part::Table), Just(Part::Rules), (0..6_usize).prop_map(Part::Block),
        ],
        changes in changes(),
        has_rules in any::<bool>(),
    ) {
        let (entries, rules) = (some_entries(), rules());
        let made = Made::of(&entries, 8, has_rules.then_some(&rules));
        let read = assert_sound(&made.file(part, &changes));
        if changes.is_empty() {
            let (header, tree) = read.unwrap();
            prop_assert_eq!((header, tree.entries), (made.header, entries));
        }
    }

    #[test]
    fn no_bytes_in_the_place_of_a_cache_do_harm(
        bytes in near(Just(Made::of(&some_entries(), 8, Some(&rules())).file(Part::Header, &[]))),
    ) {
        assert_sound(&bytes);
    }

    #[test]
    fn no_bytes_in_the_place_of_a_block_do_harm(
        bytes in near(Just(encode_block(&all_kinds()))),
        count in prop_oneof![0..10_usize, Just(usize::MAX)],
    ) {
        if let Some(entries) = decode_block(&bytes, count) {
            prop_assert_eq!(entries.len(), count);
            prop_assert!(entries.is_sorted_by(|a, b| a.entry.path < b.entry.path));
            for cached in &entries {
                assert_stays_inside(cached.entry.path.as_bytes());
            }
            prop_assert_eq!(decode_block(&encode_block(&entries), count), Some(entries));
        }
    }

    #[test]
    fn no_bytes_in_the_place_of_rules_do_harm(
        bytes in near(prop_oneof![Just(encode_rules(Some(&rules()))), Just(encode_rules(None))]),
    ) {
        if let Some(rules) = decode_rules(&bytes) {
            let known = rules.iter().flat_map(|rules| {
                let files = rules.ignore_files.iter().map(|file| &file.path);
                files.chain(&rules.repositories).chain(&rules.lifted)
            });
            known.for_each(|path| assert_stays_inside(path.as_bytes()));
            prop_assert_eq!(decode_rules(&encode_rules(rules.as_ref())), Some(rules));
        }
    }

    #[test]
    fn no_bytes_in_the_place_of_a_table_do_harm(
        blocks in vec((any::<[u64; 2]>(), any::<usize>()), 0..5),
        changes in changes(),
    ) {
        let place = |[offset, length]: [u64; 2]| Place { offset, length, digest: Digest::of(b"x") };
        let blocks: Vec<(Place, usize)> =
            blocks.into_iter().map(|(at, count)| (place(at), count)).collect();
        let bytes = encode_table(&place([1, 2]), &blocks);
        if let Some((rules, blocks)) = decode_table(&changed(&bytes, &changes)) {
            prop_assert_eq!(decode_table(&encode_table(&rules, &blocks)), Some((rules, blocks)));
        }
    }
}

#[test]
fn a_table_that_says_more_than_there_is_is_refused_before_anything_is_made_of_it() {
    let entries = some_entries();
    let good = Made::of(&entries, 8, None);
    assert!(assert_sound(&good.file(Part::Header, &[])).is_some());
    // More entries than there are bytes.
    for count in [9, usize::MAX / 2, usize::MAX] {
        let mut made = Made::of(&entries, 8, None);
        made.blocks[2].1 = count;
        assert!(assert_sound(&made.file(Part::Header, &[])).is_none(), "{count}");
    }
    // A block of nothing before others: what comes after it may go, and then it is the last.
    let mut made = Made::of(&entries, 8, None);
    made.blocks.insert(2, (encode_block(&[]), 0));
    assert!(assert_sound(&made.file(Part::Header, &[])).is_none());
    // One large block, named again and again: as entries they would fill any memory.
    let file_entry = |number| {
        let kind =
            EntryKind::File { size: 1, mtime_ns: 1, hash: BlobHash::of(b"x"), unstable: false };
        entry(&format!("f{number:05}"), kind)
    };
    let many: Vec<CachedEntry> = (0..20_000).map(file_entry).collect();
    let mut file = vec![0; HEADER_BYTES];
    let rules = append(&mut file, &encode_rules(None));
    let block = append(&mut file, &encode_block(&many));
    let table = append(&mut file, &encode_table(&rules, &vec![(block, many.len()); 20_000]));
    file[..HEADER_BYTES].copy_from_slice(&encode_header(&header(), &table));
    assert!(assert_sound(&file).is_none());
}
