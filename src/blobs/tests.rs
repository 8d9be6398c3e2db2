mod packs;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::thread;

use tempfile::TempDir;

use super::*;
use crate::hash::Hashed;

/// Content that compresses a little, the same for the same seed.
fn content(seed: u64, size: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        bytes.extend_from_slice(format!("{} ", state >> 40).as_bytes());
    }
    bytes.truncate(size);
    bytes
}

struct Store {
    place: TempDir,
    blobs: Blobs,
}

impl Store {
    fn new() -> Self {
        Self::below(&std::env::temp_dir())
    }

    /// In memory where there is such a place: a barrier costs nothing there.
    fn in_memory() -> Self {
        let memory = Path::new("/dev/shm");
        if memory.is_dir() { Self::below(memory) } else { Self::new() }
    }

    fn below(directory: &Path) -> Self {
        let place = tempfile::tempdir_in(directory).unwrap();
        let blobs = Blobs::create(&place.path().join("store")).unwrap();
        Self { place, blobs }
    }

    fn root(&self) -> PathBuf {
        self.place.path().join("store")
    }

    /// The place of a blob, worked out apart from the code under test.
    fn file(&self, hash: BlobHash) -> PathBuf {
        let name = hash.to_string();
        self.root().join("blobs").join(name.get(..2).unwrap()).join(name)
    }

    fn add(&self, content: &[u8]) -> BlobHash {
        let hash = BlobHash::of(content);
        let staging = self.blobs.stage(OperationId::random()).unwrap();
        staging.put(&Hashed::new(content)).unwrap();
        staging.publish().unwrap();
        hash
    }

    /// Every file of the store with its size, by path.
    fn files(&self) -> BTreeMap<PathBuf, u64> {
        let mut found = BTreeMap::new();
        let mut open = vec![self.root()];
        while let Some(dir) = open.pop() {
            for entry in fs::read_dir(dir).unwrap() {
                let entry = entry.unwrap();
                if entry.file_type().unwrap().is_dir() {
                    open.push(entry.path());
                } else {
                    found.insert(entry.path(), entry.metadata().unwrap().len());
                }
            }
        }
        found
    }

    fn temps(&self) -> usize {
        fs::read_dir(self.root().join("tmp")).unwrap().count()
    }
}

fn zstd_decodes(path: &Path) -> Vec<u8> {
    let output = Command::new("zstd").args(["-q", "-dc"]).arg(path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

#[track_caller]
fn assert_wrong(presence: &Presence, part: &str) {
    assert!(
        matches!(presence, Presence::Wrong { reason } if reason.contains(part)),
        "{presence:?}"
    );
}

#[test]
fn a_new_store_has_every_fan_out_directory_and_making_it_again_mends_it() {
    let store = Store::new();
    let names = |dir: &Path| fs::read_dir(dir).unwrap().count();
    assert_eq!(names(&store.root().join("blobs")), 256);
    let hash = store.add(b"kept");
    for name in ["00", "7f", "ff"] {
        let dir = store.root().join("blobs").join(name);
        assert_eq!(fs::metadata(&dir).unwrap().mode() & 0o7777, 0o700);
        if !store.file(hash).starts_with(&dir) {
            fs::remove_dir(dir).unwrap();
        }
    }
    Blobs::create(&store.root()).unwrap();
    assert_eq!(names(&store.root().join("blobs")), 256);
    assert_eq!(store.blobs.read(hash, 4).unwrap(), b"kept");
}

#[test]
fn what_is_published_is_a_plain_zstd_file_that_says_its_size() {
    let store = Store::new();
    for size in [0, 1, 255, 256, 4_000, 65_791, 65_792, 131_072, 131_073, 3_000_000] {
        let bytes = content(size as u64, size);
        let hash = BlobHash::of(&bytes);
        for streamed in [false, true] {
            let staging = store.blobs.stage(OperationId::random()).unwrap();
            if streamed {
                let outcome = staging.put_stream(size as u64, &mut &*bytes).unwrap();
                assert!(matches!(outcome, PutOutcome::Put(found) if found == hash));
            } else {
                staging.put(&Hashed::new(&bytes)).unwrap();
            }
            let published = staging.publish().unwrap();
            let path = store.file(hash);
            let stored_size = fs::metadata(&path).unwrap().len();
            assert_eq!((published.count, published.stored_bytes), (1, stored_size));
            assert_eq!(published.sizes, [(hash, stored_size)]);
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
            assert_eq!(store.blobs.path(hash), path);

            assert_eq!(zstd_decodes(&path), bytes);
            let said = Command::new("zstd").args(["-l", "-v"]).arg(&path).output().unwrap();
            let said = String::from_utf8(said.stdout).unwrap();
            assert!(said.contains("Check: XXH64"), "{said}");
            assert!(said.contains(&format!("({size} B)")), "{said}");

            let present = Presence::Present { stored_size };
            assert_eq!(store.blobs.look(hash, size as u64, Some(stored_size)).unwrap(), present);
            assert_eq!(store.blobs.check(hash, None).unwrap(), present);
            assert_eq!(store.blobs.read(hash, size as u64).unwrap(), bytes);
            assert!(store.blobs.remove(hash).unwrap());
            assert!(!store.blobs.remove(hash).unwrap());
            assert_eq!(store.blobs.look(hash, size as u64, None).unwrap(), Presence::Absent);
        }
    }
    assert_eq!((store.files().len(), store.temps()), (0, 0));
}

#[test]
fn a_frame_that_another_program_wrote_is_read() {
    let store = Store::new();
    let bytes = content(7, 300_000);
    let hash = BlobHash::of(&bytes);
    let source = store.place.path().join("source");
    fs::write(&source, &bytes).unwrap();
    let made =
        Command::new("zstd").args(["-q", "-19", "-o"]).arg(store.file(hash)).arg(&source).status();
    assert!(made.unwrap().success());
    assert!(matches!(store.blobs.look(hash, 300_000, None).unwrap(), Presence::Present { .. }));
    assert_eq!(store.blobs.page(hash, 300_000).unwrap(), bytes);
}

#[test]
fn nothing_is_in_the_store_before_it_is_published() {
    let store = Store::new();
    let operation = OperationId::random();
    let staging = store.blobs.stage(operation).unwrap();
    assert_eq!(store.temps(), 0);
    let bytes = content(1, 1_000);
    let hash = BlobHash::of(&bytes);
    staging.put(&Hashed::new(&bytes)).unwrap();
    assert_eq!(store.blobs.look(hash, 1_000, None).unwrap(), Presence::Absent);
    assert!(store.root().join("tmp").join(operation.to_string()).is_dir());
    drop(staging);
    assert_eq!((store.files().len(), store.temps()), (0, 0));
}

#[test]
fn an_operation_may_publish_several_times_and_at_the_same_time() {
    let store = Store::new();
    let operation = OperationId::random();
    let first = store.blobs.stage(operation).unwrap();
    let second = store.blobs.stage(operation).unwrap();
    let bytes = [content(1, 100), content(2, 100), content(3, 100)];
    first.put(&Hashed::new(&bytes[0])).unwrap();
    second.put(&Hashed::new(&bytes[1])).unwrap();
    assert_eq!(first.publish().unwrap().count, 1);
    assert_eq!(second.publish().unwrap().count, 1);
    // This one knows the directory that the next one removes.
    let third = store.blobs.stage(operation).unwrap();
    third.put(&Hashed::new(&bytes[2])).unwrap();
    let mut fails = io::Cursor::new(b"other");
    let short = third.put_stream(100, &mut fails).unwrap();
    assert!(matches!(short, PutOutcome::TooShort));
    assert_eq!(third.publish().unwrap().count, 1);
    for bytes in &bytes {
        assert_eq!(store.blobs.read(BlobHash::of(bytes), 100).unwrap(), *bytes);
    }
    assert_eq!((store.files().len(), store.temps()), (3, 0));
}

#[test]
fn a_staging_survives_that_another_one_removes_their_directory() {
    let store = Store::new();
    let operation = OperationId::random();
    let staging = store.blobs.stage(operation).unwrap();
    let outcome = staging.put_stream(1, &mut io::empty()).unwrap();
    assert!(matches!(outcome, PutOutcome::TooShort));
    fs::remove_dir(store.root().join("tmp").join(operation.to_string())).unwrap();
    staging.put(&Hashed::new(b"x")).unwrap();
    assert_eq!(staging.publish().unwrap().count, 1);
    assert_eq!(store.blobs.read(BlobHash::of(b"x"), 1).unwrap(), b"x");
    assert_eq!(store.temps(), 0);
}

#[test]
fn the_same_content_twice_in_one_staging_is_one_blob() {
    let store = Store::new();
    let bytes = content(5, 50_000);
    let hash = BlobHash::of(&bytes);
    let staging = store.blobs.stage(OperationId::random()).unwrap();
    let start = Barrier::new(4);
    thread::scope(|scope| {
        for thread in 0..4 {
            let (staging, start, bytes) = (&staging, &start, &bytes);
            scope.spawn(move || {
                start.wait();
                if thread % 2 == 0 {
                    staging.put(&Hashed::new(bytes)).unwrap();
                } else {
                    let put = staging.put_stream(50_000, &mut &**bytes).unwrap();
                    assert!(matches!(put, PutOutcome::Put(found) if found == hash));
                }
            });
        }
    });
    let published = staging.publish().unwrap();
    assert_eq!((published.count, published.sizes.len()), (1, 1));
    assert_eq!(zstd_decodes(&store.file(hash)), bytes);
    assert_eq!((store.files().len(), store.temps()), (1, 0));
}

#[test]
fn two_operations_that_race_on_the_same_content_both_find_it() {
    let store = Store::new();
    let all: Vec<Vec<u8>> = (0..150).map(|seed| content(seed, 2_000)).collect();
    let start = Barrier::new(3);
    let counts: Vec<u64> = thread::scope(|scope| {
        let work = || {
            let staging = store.blobs.stage(OperationId::random()).unwrap();
            for bytes in &all {
                staging.put(&Hashed::new(bytes)).unwrap();
            }
            start.wait();
            let published = staging.publish().unwrap();
            assert_eq!(published.sizes.len(), all.len());
            for (hash, stored_size) in published.sizes {
                let present = Presence::Present { stored_size };
                assert_eq!(store.blobs.look(hash, 2_000, Some(stored_size)).unwrap(), present);
            }
            published.count
        };
        let threads = [scope.spawn(work), scope.spawn(work), scope.spawn(work)];
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(counts.iter().sum::<u64>(), 150, "{counts:?}");
    assert_eq!((store.files().len(), store.temps()), (150, 0));
    for bytes in &all {
        assert_eq!(zstd_decodes(&store.file(BlobHash::of(bytes))), *bytes);
    }
}

struct Broken;

impl Read for Broken {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::other("broken"))
    }
}

#[test]
fn a_stream_that_is_not_as_long_as_said_is_not_taken() {
    let store = Store::new();
    let staging = store.blobs.stage(OperationId::random()).unwrap();
    let hash = BlobHash::of(b"right");
    let short = staging.put_stream(5, &mut b"righ".as_slice()).unwrap();
    assert!(matches!(short, PutOutcome::TooShort));
    // No more is taken than the size says.
    let longer = staging.put_stream(5, &mut b"right and more".as_slice()).unwrap();
    assert!(matches!(longer, PutOutcome::Put(found) if found == hash));
    let outcome = staging.put_stream(5, &mut b"ri".chain(Broken)).unwrap();
    assert!(matches!(outcome, PutOutcome::Unreadable(error) if error.to_string() == "broken"));
    // The right content is taken after all that.
    staging.put(&Hashed::new(b"right")).unwrap();
    assert_eq!(staging.publish().unwrap().count, 1);
    assert_eq!(store.blobs.read(hash, 5).unwrap(), b"right");
    assert_eq!((store.files().len(), store.temps()), (1, 0));
}

/// Ways to spoil the file of a blob of 10,000 bytes, what a look says of it (it reads the header
/// only), and what a full check says.
type Spoil = (&'static str, fn(&Path), Option<&'static str>, &'static str);

const SPOILS: [Spoil; 12] = [
    ("truncated", |path| truncate(path, -1), Some("bytes where"), "ends within the frame"),
    ("truncated in the header", |path| set_len(path, 3), Some("zstd frame"), "zstd frame"),
    ("emptied", |path| set_len(path, 0), Some("empty"), "empty"),
    ("grown", |path| truncate(path, 1), Some("bytes where"), "follows its frame"),
    ("flipped in the middle", |path| flip(path, 2_000), None, ""),
    ("flipped in the checksum", |path| flip(path, usize::MAX), None, "checksum"),
    ("flipped in the magic", |path| flip(path, 0), Some("zstd frame"), "zstd frame"),
    (
        "other content",
        |path| frame_of(path, &content(2, 10_000)),
        Some("bytes where"),
        "has the hash",
    ),
    ("other size", |path| frame_of(path, b"short"), Some("declares 5 bytes"), "declares 5 bytes"),
    (
        "a symlink",
        |path| other(path, |path| symlink("/etc/hostname", path).unwrap()),
        Some("symlink"),
        "symlink",
    ),
    ("a fifo", |path| other(path, make_fifo), Some("special"), "special"),
    (
        "a directory",
        |path| other(path, |path| fs::create_dir(path).unwrap()),
        Some("directory"),
        "directory",
    ),
];

fn set_len(path: &Path, size: u64) {
    fs::OpenOptions::new().write(true).open(path).unwrap().set_len(size).unwrap();
}

fn truncate(path: &Path, by: i64) {
    set_len(path, fs::metadata(path).unwrap().len().checked_add_signed(by).unwrap());
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    let at = at.min(bytes.len() - 1);
    bytes[at] ^= 0x10;
    fs::write(path, bytes).unwrap();
}

/// Another good frame in the place, made by the command.
fn frame_of(path: &Path, content: &[u8]) {
    let source = path.with_extension("source");
    fs::write(&source, content).unwrap();
    let made = Command::new("zstd").args(["-q", "-f", "-1", "-o"]).arg(path).arg(&source).status();
    assert!(made.unwrap().success());
    fs::remove_file(source).unwrap();
}

fn other(path: &Path, make: fn(&Path)) {
    fs::remove_file(path).unwrap();
    make(path);
}

fn make_fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).stdout(Stdio::null()).status().unwrap().success());
}

#[test]
fn a_damaged_blob_is_seen_never_served_and_replaced_by_good_bytes() {
    for (name, spoil, look, check) in SPOILS {
        let store = Store::new();
        let bytes = content(1, 10_000);
        let hash = store.add(&bytes);
        let Presence::Present { stored_size } = store.blobs.check(hash, None).unwrap() else {
            panic!("{name}");
        };
        spoil(&store.file(hash));

        let looked = store.blobs.look(hash, 10_000, Some(stored_size)).unwrap();
        match look {
            Some(part) => assert_wrong(&looked, part),
            None => assert_eq!(looked, Presence::Present { stored_size }, "{name}"),
        }
        assert_wrong(
            &store.blobs.check(hash, None).unwrap(),
            if name == "other size" { "has the hash" } else { check },
        );
        assert_wrong(&store.blobs.check(hash, Some(10_000)).unwrap(), check);
        let error = store.blobs.read(hash, 10_000).unwrap_err();
        assert!(
            matches!(error, Error::BlobDamaged { hash: named, .. } if named == hash),
            "{name}: {error}"
        );

        let staging = store.blobs.stage(OperationId::random()).unwrap();
        staging.put(&Hashed::new(&bytes)).unwrap();
        assert_eq!(staging.publish().unwrap().count, 1, "{name}");
        assert_eq!(zstd_decodes(&store.file(hash)), bytes, "{name}");
        // What a file cannot replace is kept.
        let aside = store.file(hash).with_extension("damaged");
        assert_eq!(aside.is_dir(), name == "a directory", "{name}");
        assert_eq!(store.temps(), 0, "{name}");
    }
}

#[test]
fn a_good_blob_that_is_there_already_is_left_as_it_is() {
    let store = Store::new();
    let bytes = content(1, 10_000);
    let hash = store.add(&bytes);
    let before = fs::metadata(store.file(hash)).unwrap();
    let staging = store.blobs.stage(OperationId::random()).unwrap();
    staging.put(&Hashed::new(&bytes)).unwrap();
    let published = staging.publish().unwrap();
    assert_eq!((published.count, published.stored_bytes), (0, 0));
    assert_eq!(published.sizes, [(hash, before.len())]);
    let after = fs::metadata(store.file(hash)).unwrap();
    assert_eq!((before.ino(), before.mtime_nsec()), (after.ino(), after.mtime_nsec()));
    assert_eq!((store.files().len(), store.temps()), (1, 0));
}

#[test]
fn a_blob_that_is_not_there_or_of_another_size_is_not_read() {
    let store = Store::new();
    let hash = store.add(b"content");
    let missing = BlobHash::of(b"never stored");
    assert!(matches!(store.blobs.read(missing, 5).unwrap_err(), Error::BlobMissing { .. }));
    assert_eq!(store.blobs.check(missing, None).unwrap(), Presence::Absent);
    for size in [0, 6, 8, u64::MAX] {
        assert!(matches!(store.blobs.read(hash, size).unwrap_err(), Error::BlobDamaged { .. }));
        assert_wrong(&store.blobs.look(hash, size, None).unwrap(), "declares 7 bytes");
    }
}

#[test]
fn a_frame_that_holds_more_than_it_declares_ends_at_the_bound() {
    let store = Store::new();
    let bytes = vec![0; 4_000_000];
    let hash = store.add(&bytes);
    // The four bytes of the content's size come last in the header: magic, descriptor, window, size.
    let mut frame = fs::read(store.file(hash)).unwrap();
    let at = (5..8).find(|&at| frame[at..at + 4] == 4_000_000_u32.to_le_bytes()).unwrap();
    frame[at..at + 4].copy_from_slice(&1_000_000_u32.to_le_bytes());
    fs::write(store.file(hash), frame).unwrap();
    let mut received = Vec::new();
    let error = store.blobs.copy_to(hash, 1_000_000, &mut received).unwrap_err();
    assert!(matches!(error, CopyError::Blob(Error::BlobDamaged { .. })), "{error:?}");
    assert!(received.len() <= 1_000_000);
}

#[test]
fn a_receiver_that_fails_is_told_from_a_blob_that_is_wrong() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let store = Store::new();
    let hash = store.add(b"content");
    let error = store.blobs.copy_to(hash, 7, &mut Full).unwrap_err();
    assert!(
        matches!(&error, CopyError::Output(source) if source.kind() == io::ErrorKind::StorageFull)
    );
    let error = error.at("write", "there");
    assert!(matches!(error, Error::Io { path, .. } if path == Path::new("there")));
    let mut received = Vec::new();
    store.blobs.copy_to(hash, 7, &mut received).unwrap();
    assert_eq!(received, b"content");
}

#[test]
fn a_listing_names_every_blob_and_every_stranger_or_fails() {
    let store = Store::new();
    let hashes: Vec<_> = (0..40).map(|seed| store.add(&content(seed, 100))).collect();
    let shard = shard_of(hashes[0]);
    let dir = store.file(hashes[0]).parent().unwrap().to_owned();
    let elsewhere = hashes.iter().find(|hash| shard_of(**hash) != shard).unwrap();
    fs::copy(store.file(*elsewhere), dir.join(elsewhere.to_string())).unwrap();
    fs::write(dir.join("notes"), "x").unwrap();
    let mut folder = hashes[0].to_string();
    folder.replace_range(62.., if folder.ends_with("00") { "11" } else { "00" });
    fs::create_dir(dir.join(&folder)).unwrap();

    let mut found = Vec::new();
    for shard in 0..=u8::MAX {
        for loose in store.blobs.list_shard(shard).unwrap().blobs {
            let stat = fs::metadata(store.file(loose.hash)).unwrap();
            assert_eq!(loose.stored_size, stat.len());
            assert_eq!(loose.mtime_ns, stat.mtime() * 1_000_000_000 + stat.mtime_nsec());
            found.push(loose.hash);
        }
    }
    let mut expected = hashes.clone();
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
    let mut strangers = store.blobs.list_shard(shard).unwrap().strangers;
    strangers.sort();
    let mut expected = [dir.join(elsewhere.to_string()), dir.join("notes"), dir.join(folder)];
    expected.sort();
    assert_eq!(strangers, expected);

    fs::rename(&dir, store.root().join("aside")).unwrap();
    assert_eq!(store.blobs.list_shard(shard).unwrap(), Shard::default());
    fs::write(&dir, "not a directory").unwrap();
    assert!(store.blobs.list_shard(shard).is_err());
}

#[test]
fn a_fan_out_directory_that_was_removed_is_made_again() {
    let store = Store::new();
    let hash = BlobHash::of(b"content");
    fs::remove_dir(store.file(hash).parent().unwrap()).unwrap();
    assert_eq!(store.blobs.look(hash, 7, None).unwrap(), Presence::Absent);
    assert!(!store.blobs.remove(hash).unwrap());
    store.add(b"content");
    assert_eq!(store.blobs.read(hash, 7).unwrap(), b"content");
}

#[test]
fn many_blobs_from_many_threads_are_all_there() {
    let store = Store::new();
    let all: Vec<Vec<u8>> =
        (0..400).map(|seed| content(seed, 50 + usize::try_from(seed).unwrap() * 20)).collect();
    let staging = store.blobs.stage(OperationId::random()).unwrap();
    thread::scope(|scope| {
        for part in all.chunks(100) {
            let staging = &staging;
            scope.spawn(move || {
                for bytes in part {
                    staging.put(&Hashed::new(bytes)).unwrap();
                }
            });
        }
    });
    let published = staging.publish().unwrap();
    let files = store.files();
    assert_eq!((published.count, files.len(), store.temps()), (400, 400, 0));
    assert_eq!(published.stored_bytes, files.values().sum::<u64>());
    assert!(published.sizes.is_sorted());
    for bytes in &all {
        assert_eq!(store.blobs.read(BlobHash::of(bytes), bytes.len() as u64).unwrap(), *bytes);
    }
}

#[test]
fn a_blob_found_in_the_store_is_made_durable_with_the_others() {
    let store = Store::new();
    let hash = store.add(b"content");
    let staging = store.blobs.stage(OperationId::random()).unwrap();
    staging.reuse(hash);
    assert_eq!(staging.publish().unwrap(), Published::default());
    // The sync of its directory is what can fail here, and then does.
    let staging = store.blobs.stage(OperationId::random()).unwrap();
    staging.reuse(hash);
    fs::rename(store.file(hash).parent().unwrap(), store.root().join("aside")).unwrap();
    assert!(staging.publish().is_err());
}

#[test]
fn the_temporaries_of_a_dead_operation_are_removed_and_no_others() {
    let store = Store::new();
    let (dead, alive) = (OperationId::random(), OperationId::random());
    let staging = store.blobs.stage(dead).unwrap();
    staging.put(&Hashed::new(b"x")).unwrap();
    std::mem::forget(staging);
    let staging = store.blobs.stage(alive).unwrap();
    staging.put(&Hashed::new(b"y")).unwrap();
    store.blobs.discard_temps(dead).unwrap();
    store.blobs.discard_temps(dead).unwrap();
    assert_eq!(store.temps(), 1);
    assert_eq!(staging.publish().unwrap().count, 1);
    assert_eq!((store.files().len(), store.temps()), (1, 0));
}
