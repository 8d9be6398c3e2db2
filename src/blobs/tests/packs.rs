//! Packs: what is in them, what becomes of it when they are damaged, and when it moves.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use proptest::prelude::*;

use super::{Store, content, flip, frame_of, make_fifo, zstd_decodes};
use crate::blobs::pack::{InPack, Pack};
use crate::blobs::{Blobs, CopyError, Presence, frame};
use crate::disk::Dir;
use crate::error::Error;
use crate::hash::{BlobHash, Digest, Hashed};
use crate::id::{OperationId, PackId};
use crate::limits::{self, Packing};
use crate::mutation::{changed, changes};

const TABLE_BYTES: usize = 256 * 4;
const LINE_BYTES: usize = 32 + 8 + 4;
const FOOTER_BYTES: usize = 16 + 4 + 8;

fn compressed(content: &[u8]) -> Vec<u8> {
    frame::compress(content, <[u8]>::to_vec).unwrap()
}

impl Store {
    fn packs(&self) -> PathBuf {
        self.root().join("packs")
    }

    /// The paths of the packs, sorted.
    fn pack_files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.packs()).into_iter().flatten();
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    }

    /// Writes one pack and gives its path.
    fn pack(&self, contents: &[Vec<u8>]) -> PathBuf {
        let before: BTreeSet<PathBuf> = self.pack_files().into_iter().collect();
        let staging = self.blobs.stage(OperationId::random()).unwrap();
        for content in contents {
            staging.put_in_pack(BlobHash::of(content), &compressed(content)).unwrap();
        }
        staging.publish().unwrap();
        self.pack_files().into_iter().find(|path| !before.contains(path)).unwrap()
    }

    /// As another process opens it, which remembers nothing.
    fn opened(&self) -> Blobs {
        Blobs::open(&self.root(), Packing::default()).unwrap()
    }

    fn damaged(&self) -> Vec<PathBuf> {
        let damaged = self.opened().damaged_packs().unwrap();
        let mut paths: Vec<PathBuf> = damaged.into_iter().map(|bad| bad.path).collect();
        paths.sort();
        paths
    }
}

/// What a trailer says of one blob: its hash, where its frame begins, and how long that is.
type Line = (BlobHash, u64, u32);

/// A trailer put together here from the description of the format.
fn trailer(lines: &[Line], change_table: impl FnOnce(&mut [u32; 256])) -> Vec<u8> {
    let mut table = [0; 256];
    for (first, count) in table.iter_mut().enumerate() {
        let most = lines.iter().filter(|(hash, ..)| usize::from(hash.as_bytes()[0]) <= first);
        *count = u32::try_from(most.count()).unwrap();
    }
    change_table(&mut table);
    let mut rows: Vec<u8> = table.iter().flat_map(|count| count.to_le_bytes()).collect();
    for (hash, begin, length) in lines {
        rows.extend([&hash.as_bytes()[..], &begin.to_le_bytes(), &length.to_le_bytes()].concat());
    }
    sealed(&rows)
}

/// The trailer of a table and the lines after it, right in all but these.
fn sealed(rows: &[u8]) -> Vec<u8> {
    let length = u32::try_from(rows.len() + FOOTER_BYTES).unwrap();
    let count = u32::try_from(rows.len().saturating_sub(TABLE_BYTES) / LINE_BYTES).unwrap();
    let mut trailer = [&[0x5e, 0x2a, 0x4d, 0x18][..], &length.to_le_bytes(), rows].concat();
    trailer.extend(Digest::of(rows).to_bytes());
    trailer.extend(count.to_le_bytes());
    trailer.extend(b"tppack01");
    trailer
}

/// Some small blobs, sorted by hash, and where each would be in a pack that has them in that order.
fn small(count: u64) -> (Vec<Vec<u8>>, Vec<Line>) {
    let mut contents: Vec<Vec<u8>> = (0..count).map(|seed| content(seed, 30)).collect();
    contents.sort_by_key(|content| BlobHash::of(content));
    let mut begin = 0;
    let mut lines = Vec::new();
    for content in &contents {
        let length = compressed(content).len();
        lines.push((BlobHash::of(content), begin, u32::try_from(length).unwrap()));
        begin += length as u64;
    }
    (contents, lines)
}

/// Stages these together, small ones gathered, and publishes them.
fn gather(blobs: &Blobs, contents: &[Vec<u8>]) -> Vec<(BlobHash, u64)> {
    let staging = blobs.stage(OperationId::random()).unwrap();
    staging.gather_small();
    for content in contents {
        staging.put(&Hashed::new(content)).unwrap();
        assert!(staging.is_staged(BlobHash::of(content)));
    }
    let published = staging.publish().unwrap();
    assert_eq!(published.sizes.len() as u64, published.count);
    published.sizes
}

#[test]
fn a_few_small_blobs_are_loose_and_more_of_them_are_a_pack() {
    let contents =
        |count: usize| (0..count as u64).map(|seed| content(seed, 500)).collect::<Vec<_>>();
    let noise = content(99, 5 * usize::try_from(limits::CONSOLIDATED_BYTES_MAX).unwrap());
    for (count, in_packs) in [(limits::GATHER_FROM - 1, 0), (limits::GATHER_FROM, 1)] {
        let store = Store::in_memory();
        let contents = contents(count);
        // What is put twice is there once, and what is long has a file of its own.
        let put = [contents.clone(), contents.clone(), vec![noise.clone()]].concat();
        let sizes = gather(&store.blobs, &put);
        assert_eq!(sizes.len(), count + 1);
        assert_eq!(store.pack_files().len(), in_packs);
        for content in &contents {
            let place = store.file(BlobHash::of(content));
            assert_eq!(place.exists(), in_packs == 0);
            assert_eq!(store.opened().read(BlobHash::of(content), 500).unwrap(), *content);
        }
        assert_eq!(zstd_decodes(&store.file(BlobHash::of(&noise))), noise);
        for path in store.pack_files() {
            assert_eq!(zstd_decodes(&path).len(), 500 * count);
        }
    }
}

#[test]
fn no_small_pack_is_added_where_there_are_too_many() {
    let store = Store::in_memory();
    let packing = Packing { small_packs_crowded: 2, ..Packing::default() };
    let turn =
        |number: u64| (0..9).map(|seed| content(100 * number + seed, 500)).collect::<Vec<_>>();
    for (number, packs, is_crowded) in [(1, 1, false), (2, 2, false), (3, 2, true)] {
        let blobs = Blobs::open(&store.root(), packing).unwrap();
        assert_eq!(gather(&blobs, &turn(number)).len(), 9);
        assert_eq!((store.pack_files().len(), blobs.are_packs_crowded()), (packs, is_crowded));
    }
    for content in turn(3) {
        assert_eq!(zstd_decodes(&store.file(BlobHash::of(&content))), content);
    }
}

#[test]
fn what_is_wrong_in_a_loose_place_is_replaced_although_more_is_gathered() {
    let store = Store::in_memory();
    let wrong = content(1, 500);
    let path = store.file(BlobHash::of(&wrong));
    fs::write(&path, "wrong").unwrap();
    let staging = store.blobs.stage(OperationId::random()).unwrap();
    staging.gather_small();
    for seed in 2..12 {
        staging.put(&Hashed::new(content(seed, 500))).unwrap();
    }
    staging.put_anew(&Hashed::new(&wrong)).unwrap();
    staging.publish().unwrap();
    assert_eq!((zstd_decodes(&path), store.pack_files().len()), (wrong, 1));
}

#[test]
fn a_pack_is_written_as_the_format_says_and_plain_tools_read_it() {
    let store = Store::in_memory();
    let (contents, lines) = small(70);
    let path = store.pack(&contents);
    let frames: Vec<u8> = contents.iter().flat_map(|content| compressed(content)).collect();
    assert_eq!(fs::read(&path).unwrap(), [frames, trailer(&lines, |_| ())].concat());
    assert_eq!(zstd_decodes(&path), contents.concat());
    for (content, (hash, begin, length)) in contents.iter().zip(&lines).step_by(10) {
        let cut = format!("tail -c +{} \"$0\" | head -c {length} | zstd -dcq", begin + 1);
        let output = Command::new("sh").args(["-c", &cut]).arg(&path).output().unwrap();
        assert_eq!(output.stdout, *content, "{hash}");
    }
    let opened = store.opened();
    let packs = opened.packs().unwrap();
    let found = packs.packs[0].frames().unwrap();
    let found: Vec<_> = found.iter().map(|it| (it.hash, it.offset, it.length)).collect();
    assert_eq!(found, lines);
    for (content, (hash, _, length)) in contents.iter().zip(&lines) {
        let present = Presence::Present { stored_size: u64::from(*length) };
        assert_eq!(opened.read(*hash, 30).unwrap(), *content);
        assert_eq!(opened.look(*hash, 30, Some(u64::from(*length))).unwrap(), present);
        assert_eq!(opened.check(*hash, None).unwrap(), present);
        assert_eq!(opened.path(*hash), path);
    }
    assert!(!packs.holds(BlobHash::of(b"another")).unwrap());
    assert_eq!((store.files().len(), store.temps()), (1, 0));
}

/// Who takes a pack for gone, or for one without blobs, takes it away.
#[test]
fn a_pack_that_is_opened_for_each_reading_is_gone_only_when_nothing_has_its_name() {
    let store = Store::in_memory();
    let (contents, lines) = small(70);
    let path = store.pack(&contents);
    let id = path.file_stem().unwrap().to_str().unwrap().parse().unwrap();
    let dir = Arc::new(Dir::open(&store.packs()).unwrap());
    let pack = Pack::open(&dir, id, false).unwrap();
    assert!(!pack.is_kept_open());
    let hash = lines[0].0;
    let is_readable = || {
        let is_found = matches!(pack.find(hash), Ok(InPack::At(_)));
        is_found && pack.frames().unwrap().len() == lines.len()
    };
    assert!(is_readable());
    // A backup links it, or somebody changes who may read it.
    let (linked, other) = (store.root().join("linked"), store.root().join("other"));
    fs::hard_link(&path, &linked).unwrap();
    assert!(is_readable());
    fs::copy(&path, &other).unwrap();
    fs::rename(&other, &path).unwrap();
    assert!(pack.frames().is_err());
    assert!(pack.find(lines[30].0).is_err());
    assert!(store.opened().read(hash, 30).is_ok());
    fs::remove_file(&path).unwrap();
    assert_eq!(pack.frames().unwrap(), []);
    assert!(matches!(pack.find(lines[60].0), Ok(InPack::Gone)));
}

#[test]
fn a_pack_of_nothing_and_one_of_the_longest_blobs_are_packs() {
    let store = Store::in_memory();
    fs::write(store.packs().join(format!("{}.pack", PackId::random())), trailer(&[], |_| ()))
        .unwrap();
    let most = usize::try_from(limits::FILE_IN_MEMORY_BYTES_MAX).unwrap();
    let contents = [content(1, most), Vec::new(), content(2, limits::PACK_BUFFER_BYTES * 3)];
    store.pack(&contents);
    assert_eq!(store.damaged(), [""; 0].map(PathBuf::from));
    let opened = store.opened();
    for content in &contents {
        let read = opened.read(BlobHash::of(content), content.len() as u64).unwrap();
        assert!(read == *content);
    }
    let mut copied = Vec::new();
    opened.copy_to(BlobHash::of(&contents[0]), most as u64, &mut copied).unwrap();
    assert!(copied == contents[0]);
}

/// Opens what is there as a pack: whatever it is, what is read is right or refused.
#[track_caller]
fn assert_never_wrong(store: &Store, contents: &[Vec<u8>]) -> usize {
    let opened = store.opened();
    let mut good = 0;
    for content in contents {
        match opened.read(BlobHash::of(content), content.len() as u64) {
            Ok(read) => {
                assert_eq!(read, *content);
                good += 1;
            }
            Err(Error::BlobMissing { .. } | Error::BlobDamaged { .. }) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
    good
}

#[test]
fn a_pack_that_is_cut_anywhere_is_named_as_damaged_and_never_misread() {
    let store = Store::in_memory();
    let (contents, _) = small(3);
    let path = store.pack(&contents);
    let whole = fs::read(&path).unwrap();
    for length in 0..whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        assert_eq!(assert_never_wrong(&store, &contents), 0, "{length}");
        assert_eq!(store.damaged(), [&*path], "{length}");
    }
    fs::write(&path, [&whole[..], b"\0"].concat()).unwrap();
    assert_eq!(assert_never_wrong(&store, &contents), 0);
    assert_eq!(store.damaged(), [&*path]);
}

#[test]
fn a_byte_that_is_changed_anywhere_in_a_trailer_is_named_and_nothing_is_misread() {
    let store = Store::in_memory();
    let (contents, lines) = small(3);
    let path = store.pack(&contents);
    let whole = fs::read(&path).unwrap();
    let (_, begin, length) = lines[2];
    let frames_end = usize::try_from(begin).unwrap() + usize::try_from(length).unwrap();
    for at in 0..whole.len() {
        for change in [0x01, 0xff] {
            let mut damaged = whole.clone();
            damaged[at] ^= change;
            fs::write(&path, damaged).unwrap();
            let good = assert_never_wrong(&store, &contents);
            if at < frames_end {
                assert_eq!((good, store.damaged().len()), (2, 0), "{at}");
            } else {
                assert_eq!(store.damaged(), [&*path], "{at}");
            }
        }
    }
}

#[test]
fn a_trailer_that_contradicts_itself_is_damaged_although_its_checksum_is_right() {
    let (contents, lines) = small(4);
    let frames: Vec<u8> = contents.iter().flat_map(|content| compressed(content)).collect();
    let end = frames.len() as u64;
    let changed = |change: &dyn Fn(&mut Vec<Line>)| {
        let mut lines = lines.clone();
        change(&mut lines);
        trailer(&lines, |_| ())
    };
    let first = usize::from(lines[1].0.as_bytes()[0]);
    let mut cases = vec![
        ("the names are not in order", changed(&|lines| lines.swap(0, 3))),
        ("a name is there twice", changed(&|lines| lines[1] = lines[0])),
        ("a frame begins behind the last", changed(&|lines| lines[0].1 = end)),
        ("a frame ends in the trailer", changed(&|lines| lines[3].2 += 1)),
        ("a frame begins beyond all numbers", changed(&|lines| lines[0].1 = u64::MAX)),
        ("a frame has no length", changed(&|lines| lines[0].2 = 0)),
        ("the table falls", trailer(&lines, |table| table[first] = u32::MAX)),
        ("the table counts too few", trailer(&lines, |table| table[255] = 3)),
        ("the table counts too many", trailer(&lines, |table| table[255] = 5)),
        ("nothing is counted", trailer(&lines, |table| *table = [0; 256])),
    ];
    let at_count = trailer(&lines, |_| ()).len() - 12;
    for count in [0, 3, 5, 65_536, 65_537, u32::MAX] {
        let mut trailer = trailer(&lines, |_| ());
        trailer[at_count..at_count + 4].copy_from_slice(&count.to_le_bytes());
        cases.push(("another count", trailer));
    }
    for (name, trailer) in cases {
        let store = Store::in_memory();
        let path = store.packs().join(format!("{}.pack", PackId::random()));
        fs::write(&path, [&frames[..], &trailer].concat()).unwrap();
        assert_eq!(store.damaged(), [path], "{name}");
        assert_never_wrong(&store, &contents);
    }
}

thread_local! {
    /// One for all cases: a store has 256 directories.
    static STORE: Store = Store::in_memory();
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 256, failure_persistence: None, ..ProptestConfig::default()
    })]

    /// Bytes of all kinds, from noise to a pack of which a little was changed, with its checksum made
    /// right or not.
    #[test]
    fn no_bytes_in_the_place_of_a_pack_do_harm(
        noise in proptest::collection::vec(any::<u8>(), 0..2_000),
        count in prop_oneof![0..4_u32, any::<u32>()],
        changes in changes(),
        kind in 0..6,
    ) {
        let (contents, lines) = small(3);
        STORE.with(|store| fs::remove_dir_all(store.packs())).unwrap();
        let path = STORE.with(|store| store.pack(&contents));
        let mut bytes = fs::read(&path).unwrap();
        match kind {
            0 => bytes = noise,
            1 => {
                bytes = noise;
                bytes.extend([&count.to_le_bytes()[..], b"tppack01"].concat());
            }
            2 | 3 => bytes = changed(&bytes, &changes),
            _ => {
                let (_, begin, length) = lines[2];
                let frames_end = usize::try_from(begin + u64::from(length)).unwrap();
                let rows = &bytes[frames_end + 8..bytes.len() - FOOTER_BYTES];
                let trailer = sealed(&changed(rows, &changes));
                bytes = [&bytes[..frames_end], &trailer].concat();
            }
        }
        fs::write(&path, &bytes).unwrap();
        STORE.with(|store| {
            assert_never_wrong(store, &contents);
            let aside = store.place.path().join("aside");
            let aside = crate::disk::make_private_dir(&aside).unwrap();
            let named = store.damaged();
            let (repairs, left) = store.opened().salvage_packs(&aside).unwrap();
            assert_eq!((repairs.len(), left.len()), (named.len(), 0));
            assert_eq!(store.damaged(), Vec::<PathBuf>::new());
            assert_never_wrong(store, &contents);
        });
    }
}

#[test]
fn what_does_not_fit_in_one_pack_is_published_in_several() {
    let store = Store::in_memory();
    let packing = Packing { pack_bytes_max: 2_000, ..Packing::default() };
    let blobs = Blobs::open(&store.root(), packing).unwrap();
    let contents: Vec<Vec<u8>> = (0..60).map(|seed| content(seed, 300)).collect();
    let staging = blobs.stage(OperationId::random()).unwrap();
    staging.use_packs().unwrap();
    for content in &contents {
        staging.put(&Hashed::new(content)).unwrap();
    }
    assert_eq!((store.pack_files().len(), assert_never_wrong(&store, &contents)), (0, 0));
    let published = staging.publish().unwrap();
    let frames: u64 = contents.iter().map(|content| compressed(content).len() as u64).sum();
    assert_eq!((published.count, published.stored_bytes), (60, frames));
    assert!(published.sizes.is_sorted() && published.sizes.len() == 60);
    let files = store.pack_files();
    // No two of them would have been one.
    assert!(files.len() as u64 >= frames.div_ceil(2_000), "{}", files.len());
    assert!((files.len() as u64) < frames / 1_500 + 2, "{}", files.len());
    for file in files {
        let blobs = fs::metadata(&file).unwrap().len() - (8 + TABLE_BYTES + FOOTER_BYTES) as u64;
        assert!(blobs <= 2_000 + (2_000 / 60 * LINE_BYTES) as u64);
        assert!(!zstd_decodes(&file).is_empty());
    }
    assert_eq!((assert_never_wrong(&store, &contents), store.temps()), (60, 0));
}

#[test]
fn a_frame_longer_than_a_pack_has_one_of_its_own() {
    let store = Store::in_memory();
    let packing = Packing { pack_bytes_max: 100, ..Packing::default() };
    let blobs = Blobs::open(&store.root(), packing).unwrap();
    let staging = blobs.stage(OperationId::random()).unwrap();
    staging.use_packs().unwrap();
    let contents = [content(1, 5_000), content(2, 5_000), b"x".to_vec(), b"y".to_vec()];
    for content in &contents {
        staging.put(&Hashed::new(content)).unwrap();
    }
    staging.publish().unwrap();
    assert_eq!((store.pack_files().len(), assert_never_wrong(&store, &contents)), (3, 4));
}

#[test]
fn the_same_content_twice_in_one_staging_is_one_frame() {
    let store = Store::in_memory();
    let bytes = content(1, 500);
    let staging = store.blobs.stage(OperationId::random()).unwrap();
    staging.use_packs().unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| staging.put(&Hashed::new(&bytes)).unwrap());
        }
    });
    assert!(staging.is_staged(BlobHash::of(&bytes)));
    assert_eq!(staging.publish().unwrap().count, 1);
    assert_eq!(zstd_decodes(&store.pack_files()[0]), bytes);
    assert_eq!((store.files().len(), store.temps()), (1, 0));
}

#[test]
fn what_is_in_the_store_is_not_taken_for_absent() {
    let store = Store::in_memory();
    let (contents, lines) = small(2);
    store.pack(&contents);
    let loose = store.add(b"loose");
    let blobs = store.opened();
    let staging = blobs.stage(OperationId::random()).unwrap();
    assert!(!staging.is_known_absent(BlobHash::of(b"new")), "nobody has looked yet");
    staging.use_packs().unwrap();
    for hash in [loose, lines[0].0, lines[1].0] {
        assert!(!staging.is_known_absent(hash));
    }
    assert!(staging.is_known_absent(BlobHash::of(b"new")));
}

#[test]
fn a_blob_in_two_places_is_there_as_long_as_one_of_them_is() {
    let store = Store::in_memory();
    let bytes = content(1, 400);
    let hash = store.add(&bytes);
    let first = store.pack(&[bytes.clone(), content(2, 400)]);
    let second = store.pack(&[content(3, 400), bytes.clone()]);
    let places = [store.file(hash), first, second];
    for kept in 0..3 {
        let aside = store.place.path().join("aside");
        let away: Vec<usize> = (0..3).filter(|place| *place != kept).collect();
        for place in &away {
            fs::rename(&places[*place], aside.with_extension(place.to_string())).unwrap();
        }
        let opened = store.opened();
        assert_eq!(opened.read(hash, 400).unwrap(), bytes);
        assert!(opened.is_there(hash, &opened.packs().unwrap()).unwrap());
        assert_eq!(opened.path(hash), places[kept]);
        for place in &away {
            fs::rename(aside.with_extension(place.to_string()), &places[*place]).unwrap();
        }
    }
    for place in &places {
        fs::remove_file(place).unwrap();
    }
    let opened = store.opened();
    assert!(!opened.is_there(hash, &opened.packs().unwrap()).unwrap());
    assert_eq!(opened.check(hash, None).unwrap(), Presence::Absent);
}

/// A blob by every way there is to ask for it.
#[track_caller]
fn assert_served(blobs: &Blobs, bytes: &[u8]) {
    let (hash, size) = (BlobHash::of(bytes), bytes.len() as u64);
    assert_eq!(blobs.read(hash, size).unwrap(), bytes);
    let mut copied = Vec::new();
    blobs.copy_to(hash, size, &mut copied).unwrap();
    assert_eq!(copied, bytes);
    assert!(matches!(blobs.check(hash, Some(size)).unwrap(), Presence::Present { .. }));
    assert!(matches!(blobs.look(hash, size, None).unwrap(), Presence::Present { .. }));
}

#[test]
fn a_blob_that_is_damaged_in_one_place_is_served_from_another() {
    // The damage: to its first byte, which a look sees, or to its last, which only a check sees.
    for at_end in [false, true] {
        for damaged in 0..3 {
            let store = Store::in_memory();
            let bytes = content(1, 400);
            let hash = store.add(&bytes);
            let length = compressed(&bytes).len();
            let packs = [store.pack(slice::from_ref(&bytes)), store.pack(slice::from_ref(&bytes))];
            let places = [&store.file(hash), &packs[0], &packs[1]];
            flip(places[damaged], if at_end { length - 1 } else { 0 });
            let opened = store.opened();
            assert_served(&opened, &bytes);
            // And without the loose one, which is looked at first.
            fs::remove_file(places[0]).unwrap();
            assert_served(&opened, &bytes);
            assert_served(&store.opened(), &bytes);
            for place in &packs {
                flip(place, length / 2);
            }
            let error = store.opened().read(hash, 400).unwrap_err();
            assert!(matches!(error, Error::BlobDamaged { .. }), "{error:?}");
            let error = store.opened().copy_to(hash, 400, &mut Vec::new()).unwrap_err();
            assert!(matches!(error, CopyError::Blob(Error::BlobDamaged { .. })), "{error:?}");
        }
    }
}

#[test]
fn a_good_frame_under_another_name_is_not_served() {
    let store = Store::in_memory();
    let (contents, mut lines) = small(2);
    let frames: Vec<u8> = contents.iter().flat_map(|content| compressed(content)).collect();
    let (first, second) = (lines[0].0, lines[1].0);
    (lines[0].0, lines[1].0) = (second, first);
    lines.sort();
    let path = store.packs().join(format!("{}.pack", PackId::random()));
    fs::write(path, [&frames[..], &trailer(&lines, |_| ())].concat()).unwrap();
    let opened = store.opened();
    for hash in [first, second] {
        assert!(matches!(opened.read(hash, 30).unwrap_err(), Error::BlobDamaged { .. }));
        super::assert_wrong(&opened.check(hash, None).unwrap(), "has the hash");
    }
}

#[test]
fn a_blob_that_moves_is_found_by_whoever_remembers_where_it_was() {
    let store = Store::in_memory();
    let bytes = content(1, 400);
    let hash = store.add(&bytes);
    let before_packs = store.opened();
    assert_served(&before_packs, &bytes);
    assert_eq!(before_packs.packs().unwrap().packs.len(), 0);
    // From its own file into a pack.
    let first = store.pack(slice::from_ref(&bytes));
    let with_first = store.opened();
    assert_eq!(with_first.packs().unwrap().packs.len(), 1);
    fs::remove_file(store.file(hash)).unwrap();
    assert_served(&before_packs, &bytes);
    assert_served(&with_first, &bytes);
    // From that pack into another; who has the first open reads on in it.
    let second = store.pack(&[bytes.clone(), content(2, 400)]);
    fs::remove_file(first).unwrap();
    assert_served(&before_packs, &bytes);
    assert_served(&with_first, &bytes);
    let stale = store.opened();
    assert_eq!(stale.packs().unwrap().packs.len(), 1);
    // And back into its own file.
    store.add(&bytes);
    fs::remove_file(second).unwrap();
    assert_served(&stale, &bytes);
    assert_eq!(stale.packs().unwrap().packs.len(), 0);
    // Gone for good.
    fs::remove_file(store.file(hash)).unwrap();
    for blobs in [&before_packs, &with_first, &stale] {
        assert_eq!(blobs.check(hash, None).unwrap(), Presence::Absent);
        assert!(matches!(blobs.read(hash, 400).unwrap_err(), Error::BlobMissing { .. }));
    }
}

#[test]
fn a_blob_that_moves_all_the_time_is_never_missed() {
    let store = Store::in_memory();
    let bytes = content(1, 400);
    let hash = BlobHash::of(&bytes);
    let frame = compressed(&bytes);
    let whole = fs::read(store.pack(slice::from_ref(&bytes))).unwrap();
    assert!(whole.starts_with(&frame));
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            // As a collection does it, without its waits for the disk.
            let mut last = store.pack_files().remove(0);
            let temporary = store.root().join("tmp/next");
            for _ in 0..3_000 {
                let next = store.packs().join(format!("{}.pack", PackId::random()));
                fs::write(&temporary, &whole).unwrap();
                fs::rename(&temporary, &next).unwrap();
                fs::remove_file(&last).unwrap();
                last = next;
            }
            is_over.store(true, Ordering::Relaxed);
        });
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let opened = store.opened();
                    assert!(opened.packs().unwrap().holds(hash).unwrap());
                    assert_eq!(opened.read(hash, 400).unwrap(), bytes);
                }
            });
        }
    });
}

#[test]
fn what_is_no_pack_in_the_directory_of_packs_stands_in_nobodys_way() {
    let store = Store::in_memory();
    let (contents, _) = small(3);
    let good = store.pack(&contents);
    let name = || store.packs().join(format!("{}.pack", PackId::random()));
    let mut wrong = [name(), name(), name(), name(), name()];
    wrong.sort();
    fs::write(&wrong[0], "garbage").unwrap();
    symlink(&good, &wrong[1]).unwrap();
    make_fifo(&wrong[2]);
    fs::create_dir(&wrong[3]).unwrap();
    fs::write(&wrong[4], "").unwrap();
    let foreign = [&b"notes"[..], b"short.pack", b"\xff\xfe.pack", b".pack"]
        .map(|name| store.packs().join(OsStr::from_bytes(name)));
    for path in &foreign {
        fs::write(path, "foreign").unwrap();
    }
    assert_eq!(assert_never_wrong(&store, &contents), 3);
    assert_eq!(store.damaged(), wrong);
    let more = [content(10, 100)];
    store.pack(&more);
    assert_eq!(assert_never_wrong(&store, &more), 1);

    let aside = store.place.path().join("aside");
    let kept = crate::disk::make_private_dir(&aside).unwrap();
    let (repairs, left) = store.opened().salvage_packs(&kept).unwrap();
    let mut repaired: Vec<&Path> = repairs.iter().map(|repair| &*repair.file).collect();
    repaired.sort();
    assert_eq!((repaired, left.len()), (wrong.iter().map(|path| &**path).collect(), 0));
    assert_eq!(fs::read_dir(&aside).unwrap().count(), 5);
    assert_eq!(store.damaged(), [""; 0].map(PathBuf::from));
    assert!(foreign.iter().all(|path| path.exists()));
    assert_eq!(assert_never_wrong(&store, &contents), 3);
}

#[test]
fn a_directory_of_packs_that_is_missing_is_one_without_packs() {
    let store = Store::in_memory();
    fs::remove_dir(store.packs()).unwrap();
    assert_eq!(store.opened().packs().unwrap().packs.len(), 0);
    assert_eq!(store.opened().check(BlobHash::of(b"x"), None).unwrap(), Presence::Absent);
    let (contents, _) = small(3);
    store.pack(&contents);
    assert_eq!(assert_never_wrong(&store, &contents), 3);
    // What cannot be listed is no empty list.
    fs::rename(store.packs(), store.root().join("aside")).unwrap();
    fs::write(store.packs(), "not a directory").unwrap();
    assert!(store.opened().packs().is_err());
    assert!(store.opened().read(BlobHash::of(&contents[0]), 30).is_err());
}

#[test]
fn what_is_whole_of_a_damaged_pack_is_saved() {
    let store = Store::in_memory();
    let mut contents: Vec<Vec<u8>> = (0..20).map(|seed| content(seed, 200)).collect();
    // One that holds what looks like a frame, and does not compress.
    let inner = store.place.path().join("inner");
    frame_of(&inner, &content(50, 3_000));
    contents.insert(10, fs::read(&inner).unwrap());
    let path = store.pack(&contents);
    let mut bytes = fs::read(&path).unwrap();
    // The fourth frame, and the end of the trailer.
    let begin: usize = contents[..3].iter().map(|content| compressed(content).len()).sum();
    bytes[begin + 20] ^= 0x40;
    *bytes.last_mut().unwrap() ^= 0x40;
    fs::write(&path, &bytes).unwrap();
    assert_eq!(assert_never_wrong(&store, &contents), 0);
    let aside = store.place.path().join("aside");
    let kept = crate::disk::make_private_dir(&aside).unwrap();
    let (repairs, left) = store.opened().salvage_packs(&kept).unwrap();
    assert_eq!((repairs.len(), left.len()), (1, 0));
    assert!(repairs[0].reason.ends_with("; 20 blobs of it were whole"), "{}", repairs[0].reason);
    assert_eq!(fs::read(repairs[0].aside.as_ref().unwrap()).unwrap(), bytes);
    assert_eq!(assert_never_wrong(&store, &contents), 20);
    let lost = store.opened().read(BlobHash::of(&contents[3]), 200).unwrap_err();
    assert!(matches!(lost, Error::BlobMissing { .. }));
    let salvaged = store.pack_files();
    assert_eq!((salvaged.len(), store.temps()), (1, 0));
    contents.remove(3);
    assert_eq!(zstd_decodes(&salvaged[0]), contents.concat());
}

#[test]
fn a_pack_is_removed_by_its_id() {
    let store = Store::in_memory();
    store.pack(&small(3).0);
    let opened = store.opened();
    let id = opened.packs().unwrap().packs[0].id;
    assert!(opened.remove_pack(id).unwrap());
    assert!(!opened.remove_pack(id).unwrap());
    assert_eq!(opened.packs().unwrap().packs.len(), 0);
    assert!(Dir::open(&store.packs()).unwrap().names().unwrap().is_empty());
}

#[test]
fn a_damaged_file_is_replaced_although_a_pack_has_the_blob() {
    let store = Store::in_memory();
    let bytes = content(1, 5_000);
    let hash = store.add(&bytes);
    store.pack(slice::from_ref(&bytes));
    flip(&store.file(hash), 2_000);
    let staging = store.blobs.stage(OperationId::random()).unwrap();
    staging.put(&Hashed::new(&bytes)).unwrap();
    assert_eq!(staging.publish().unwrap().count, 1);
    assert_eq!(zstd_decodes(&store.file(hash)), bytes);
}
