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

/// A tree of directories in directories with files of all kinds of names, in order.
fn tree(numbers: &[u16]) -> Vec<CachedEntry> {
    let mut entries: BTreeMap<RelPath, CachedEntry> = BTreeMap::new();
    for &number in numbers {
        let file = near_path(number);
        for above in file.ancestors() {
            let text = std::str::from_utf8(above.as_bytes()).unwrap().to_owned();
            entries.insert(above, entry(&text, EntryKind::Dir { listed: Listed::Whole }));
        }
        let text = std::str::from_utf8(file.as_bytes()).unwrap();
        entries.insert(file.clone(), leaf(text, number));
    }
    entries.into_values().collect()
}

/// One of many paths: no name of a directory is one of a file. `-` sorts before the slash, `0` behind it.
fn near_path(number: u16) -> RelPath {
    let names = ["a", "a-b", "a0", "b", "c.d"];
    let digit = |place: u32| usize::from(number / 5_u16.pow(place) % 5);
    let depth = number % 4;
    let mut text = String::new();
    for place in 0..u32::from(depth) {
        text = format!("{text}{}/", names[digit(place)]);
    }
    RelPath::new(format!("{text}f{}{}", names[digit(4)], number % 7)).unwrap()
}

fn leaf(path: &str, number: u16) -> CachedEntry {
    let hash = BlobHash::of(&number.to_le_bytes());
    let kind = match number % 11 {
        0 => EntryKind::Symlink { target: b"x".as_slice().into() },
        1 => EntryKind::Omitted { reason: OmitReason::Ignored, rest: u64::from(number) },
        _ => EntryKind::File { size: 1, mtime_ns: 1, hash, unstable: false },
    };
    entry(path, kind)
}

/// Writes a cache of small blocks.
fn write_in_blocks(dir: &Path, entries: &[CachedEntry], block_entries: usize) {
    let made = Made::of(entries, block_entries, Some(&rules()));
    std::fs::write(dir.join(NAME), made.file(Part::Header, &[])).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..config() })]

    /// Against the rule itself, over the whole list.
    #[test]
    fn a_part_is_what_the_hints_need_and_can_be_brought_up_to_date(
        // Few enough for all blocks to be read.
        numbers in vec(any::<u16>(), 1..30),
        hints in vec(any::<u16>(), 1..4),
        depths in vec(0..4_usize, 4),
        edits in vec((any::<u16>(), any::<u16>(), any::<bool>()), 0..12),
        block_entries in 3..9_usize,
    ) {
        let entries = tree(&numbers);
        let find = |path: &RelPath| entries.iter().find(|cached| cached.entry.path == *path);
        let is_dir = |path: &RelPath| {
            find(path).is_some_and(|cached| matches!(cached.entry.kind, EntryKind::Dir { .. }))
        };
        // Files, known or not, and directories above them.
        let hints: Vec<RelPath> = hints.iter().zip(depths).map(|(&number, up)| {
            let path = near_path(number);
            let above: Vec<RelPath> = path.ancestors().skip(1).collect();
            above.get(up).cloned().unwrap_or(path)
        }).collect();
        let nearest = |hint: &RelPath| hint.ancestors().filter(&is_dir).last().unwrap();
        let listed: Vec<RelPath> = hints.iter().map(nearest).collect();
        let is_below = |path: &RelPath| hints.iter().any(|hint| path.is_at_or_below(hint));
        let is_whole = |path: &RelPath| listed.contains(path) || is_below(path);
        let is_wanted = |path: &RelPath| {
            is_below(path)
                || path.parent().is_none_or(|parent| listed.contains(&parent))
                || hints.iter().any(|hint| hint.is_at_or_below(path))
        };
        PLACE.with(|place| {
            let (dir, tmp) = (place.path(), Dir::open(place.path()).unwrap());
            write_in_blocks(dir, &entries, block_entries);
            let part = StatCache::read_part(dir, &hints).unwrap();
            let wanted = || entries.iter().filter(|cached| is_wanted(&cached.entry.path));
            assert!(part.tree.entries.iter().eq(wanted()), "{hints:?}");
            let remainder = part.tree.remainder.as_ref().unwrap();
            let paths = wanted().map(|cached| &cached.entry.path);
            let closed = paths.filter(|path| is_dir(path) && !is_whole(path));
            assert!(remainder.closed.iter().eq(closed), "{hints:?}");
            let besides = entries.iter().filter(|cached| !is_wanted(&cached.entry.path));
            assert_eq!(remainder.census, Census::of(besides));

            // Whatever comes, changes and goes where it was looked.
            let mut now: BTreeMap<RelPath, CachedEntry> =
                part.tree.entries.iter().map(|c| (c.entry.path.clone(), c.clone())).collect();
            let mut all: BTreeMap<RelPath, CachedEntry> =
                entries.iter().map(|c| (c.entry.path.clone(), c.clone())).collect();
            let mut touched = std::collections::BTreeSet::new();
            for (number, other, stays) in edits {
                let path = near_path(number);
                let parent = path.parent().unwrap();
                if !is_whole(&parent) || !now.contains_key(&parent) {
                    continue;
                }
                touched.insert(path.clone());
                if stays {
                    let new = leaf(std::str::from_utf8(path.as_bytes()).unwrap(), other);
                    now.insert(path.clone(), new.clone());
                    all.insert(path, new);
                } else {
                    now.remove(&path);
                    all.remove(&path);
                }
            }
            let now: Vec<CachedEntry> = now.into_values().collect();
            let all: Vec<CachedEntry> = all.into_values().collect();
            let touched: Vec<RelPath> = touched.into_iter().collect();
            let rules = part.tree.rules.as_ref();
            let news = News { entries: &now, touched: &touched, rules, has_new_rules: false };
            // Not by way of reading all of it: only where it has grown too long.
            assert!(cut_part(&part.parts.blocks, part.parts.part.as_ref().unwrap(), &news).is_some());
            let header = header();
            part.update(dir, &header, news, &tmp).unwrap();
            let read = StatCache::read(dir).unwrap();
            assert_eq!((&read.header, &read.tree.entries), (&header, &all));
            assert_eq!(read.tree.rules.as_ref(), rules);
        });
    }
}

/// A turn in a large tree reads and writes what it concerns.
#[test]
fn a_part_is_read_without_the_blocks_that_it_does_not_need() {
    let dir = tempfile::tempdir().unwrap();
    let tmp = Dir::open(dir.path()).unwrap();
    let mut entries = vec![entry("", EntryKind::Dir { listed: Listed::Whole })];
    for directory in 0..100 {
        entries.push(entry(&format!("d{directory:02}"), EntryKind::Dir { listed: Listed::Whole }));
        entries.extend((0..200).map(|n| leaf(&format!("d{directory:02}/f{n:03}"), 2)));
    }
    StatCache::write(dir.path(), &header(), &entries, None, &tmp).unwrap();
    let whole = StatCache::read(dir.path()).unwrap();
    let hint = RelPath::new("d50/f100").unwrap();
    let mut part = StatCache::read_part(dir.path(), std::slice::from_ref(&hint)).unwrap();
    assert_eq!(part.tree.entries.len(), 202);
    assert!(part.parts.part.as_ref().unwrap().len() < 6);
    // A block that nobody asks for may be as it likes; one that is needed may not.
    let file = dir.path().join(NAME);
    let good = std::fs::read(&file).unwrap();
    let injure = |number: usize| {
        let mut bad = good.clone();
        bad[usize::try_from(whole.parts.blocks[number].place.offset).unwrap() + 9] ^= 1;
        std::fs::write(&file, bad).unwrap();
        let hints = std::slice::from_ref(&hint);
        (StatCache::read(dir.path()).is_none(), StatCache::read_part(dir.path(), hints).is_none())
    };
    assert_eq!(injure(140), (true, false));
    assert_eq!(injure(owner(&whole.parts.blocks, b"d50/f100")), (true, true));
    std::fs::write(&file, &good).unwrap();
    // Too many of them: all is read.
    let everywhere: Vec<RelPath> =
        (0..90).map(|n| RelPath::new(format!("d{n:02}/f000")).unwrap()).collect();
    assert!(StatCache::read_part(dir.path(), &everywhere).is_none());
    assert!(StatCache::read_part(dir.path(), &[RelPath::root()]).is_none());
    for turn in 0..100_u16 {
        let at = part.tree.entries.iter().position(|c| c.entry.path == hint).unwrap();
        part.tree.entries[at] = leaf("d50/f100", turn);
        let touched = std::slice::from_ref(&hint);
        let entries = &part.tree.entries;
        let news = News { entries, touched, rules: None, has_new_rules: false };
        part.update(dir.path(), &header(), news, &tmp).unwrap();
        part = StatCache::read_part(dir.path(), touched).unwrap();
    }
    assert!(std::fs::metadata(&file).unwrap().len() < good.len() as u64 * 3 / 2);
    let mut expected = entries;
    let at = expected.iter().position(|cached| cached.entry.path == hint).unwrap();
    expected[at] = leaf("d50/f100", 99);
    assert_eq!(StatCache::read(dir.path()).unwrap().tree.entries, expected);
    // As where it has grown too long.
    let at = part.tree.entries.iter().position(|cached| cached.entry.path == hint).unwrap();
    part.tree.entries.remove(at);
    expected.retain(|cached| cached.entry.path != hint);
    let (entries, touched) = (&part.tree.entries[..], std::slice::from_ref(&hint));
    let news = News { entries, touched, rules: None, has_new_rules: false };
    part.write_anew(dir.path(), &header(), &news, &tmp).unwrap();
    assert_eq!(StatCache::read(dir.path()).unwrap().tree.entries, expected);
}

/// What is not held whole has to be named, so it is not left out.
#[test]
fn what_is_not_held_whole_is_not_left_out_of_a_part() {
    let hash = BlobHash::of(b"x");
    let unstable = EntryKind::File { size: 1, mtime_ns: 1, hash, unstable: true };
    let failed = EntryKind::Omitted { reason: OmitReason::Unreadable, rest: 0 };
    let dir_kind = EntryKind::Dir { listed: Listed::Whole };
    for kind in [unstable, failed] {
        let entries = [
            entry("", dir_kind.clone()),
            entry("a", dir_kind.clone()),
            entry("a/b", dir_kind.clone()),
            entry("a/b/c", kind),
            entry("a/f", EntryKind::File { size: 1, mtime_ns: 1, hash, unstable: false }),
        ];
        let dir = tempfile::tempdir().unwrap();
        write_in_blocks(dir.path(), &entries, 2);
        let read = |hint| StatCache::read_part(dir.path(), &[RelPath::new(hint).unwrap()]);
        assert!(read("a/f").is_none());
        assert!(read("a/b/c").is_some());
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
    /// With what the table says of each, but for its place.
    blocks: Vec<(Vec<u8>, Block)>,
}

/// A place where nothing is.
fn nowhere() -> Place {
    Place { offset: 0, length: 0, digest: Digest::of(b"") }
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
        let block = |entries: &[CachedEntry]| {
            (encode_block(entries), Block::of(entries, nowhere()).unwrap())
        };
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
        for (number, (bytes, block)) in self.blocks.iter().enumerate() {
            let place = append(&mut file, &part_of(Part::Block(number), bytes));
            blocks.push(Block { place, ..block.clone() });
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
        blocks in vec((any::<[u64; 2]>(), 8..usize::MAX, any::<[u64; 4]>()), 0..5),
        changes in changes(),
    ) {
        let place = |[offset, length]: [u64; 2]| Place { offset, length, digest: Digest::of(b"x") };
        let block = |(number, (at, count, counts)): (usize, ([u64; 2], usize, [u64; 4]))| {
            // No more of them than there are entries.
            let [directories, files, symlinks] = [0, 1, 2].map(|at| counts[at] % (count as u64 / 4));
            let omitted = [(OmitReason::Ignored, counts[3]), (OmitReason::Purged, 1)].into();
            let census = Census { directories, files, unstable: files, symlinks, omitted };
            let first = RelPath::new(format!("d/{number}")).unwrap();
            Block { place: place(at), count, first, census }
        };
        let blocks: Vec<Block> = blocks.into_iter().enumerate().map(block).collect();
        let bytes = encode_table(&place([1, 2]), &blocks);
        if let Some((rules, blocks)) = decode_table(&changed(&bytes, &changes)) {
            prop_assert!(blocks.is_sorted_by(|one, next| one.first < next.first));
            for block in &blocks {
                assert_stays_inside(block.first.as_bytes());
            }
            prop_assert_eq!(decode_table(&encode_table(&rules, &blocks)), Some((rules, blocks)));
        } else {
            prop_assert!(!changes.is_empty());
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
        made.blocks[2].1.count = count;
        assert!(assert_sound(&made.file(Part::Header, &[])).is_none(), "{count}");
    }
    // A block of nothing before others: what comes after it may go, and then it is the last.
    let mut made = Made::of(&entries, 8, None);
    let empty = Block { count: 0, ..made.blocks[2].1.clone() };
    made.blocks.insert(2, (encode_block(&[]), empty));
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
    let named = |number| {
        let first = RelPath::new(format!("f{number:05}")).unwrap();
        Block { first, ..Block::of(&many, block).unwrap() }
    };
    let blocks: Vec<Block> = (0..20_000).map(named).collect();
    let table = append(&mut file, &encode_table(&rules, &blocks));
    file[..HEADER_BYTES].copy_from_slice(&encode_header(&header(), &table));
    assert!(assert_sound(&file).is_none());
}
