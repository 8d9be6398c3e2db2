//! Packs in a store: what a collection makes of them, and what it must not.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use turnpoint::id::CheckpointId;
use turnpoint::limits::Packing;
use turnpoint::{
    CaptureOptions, Error, FindingKind, GcOutcome, PruneRule, RestoreOptions, Store, VerifyOptions,
};

use crate::model::truth::{self, sql};
use crate::place::Place;
use crate::support::fingerprint;

/// Every capture writes packs, and a collection writes few of them anew.
const AT_ONCE: Packing = Packing {
    above_files: 0,
    pack_bytes_max: 64 * 1024 * 1024,
    consolidate_from: 1_000,
    small_packs_max: 8,
    gather_from: 8,
    small_packs_crowded: 64,
};

fn text(number: usize) -> String {
    // Long enough not to be short beside its line in the trailer.
    let digits = (0..40).map(|round| (number * 7_919 + round) * 104_729 % 1_000_003);
    digits.map(|digits| digits.to_string() + " ").collect()
}

fn write(place: &Place, numbers: impl IntoIterator<Item = usize>) {
    for number in numbers {
        let directory = place.root().join(format!("d{}", number % 10));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(format!("f{number}")), text(number)).unwrap();
    }
}

fn remove(place: &Place, numbers: impl IntoIterator<Item = usize>) {
    for number in numbers {
        fs::remove_file(place.root().join(format!("d{}/f{number}", number % 10))).unwrap();
    }
}

fn hash(number: usize) -> String {
    blake3::hash(text(number).as_bytes()).to_hex().to_string()
}

struct Packed {
    place: Place,
    store: Store,
}

impl Packed {
    fn new(packing: Packing) -> Self {
        let place = Place::new();
        let store = Store::with_packing(place.home(), packing);
        Self { place, store }
    }

    fn capture(&self) -> CheckpointId {
        let options = CaptureOptions::default();
        self.store.capture(self.place.root(), &options, &()).unwrap().checkpoint
    }

    /// Only the newest stays, and everything is old.
    fn prune(&self) {
        let mut rule = PruneRule::default();
        rule.keep = 1;
        drop(self.store.prune(None, rule, &()).unwrap());
        truth::age(self.store.root());
    }

    fn gc(&self) -> GcOutcome {
        let outcome = self.store.gc(&()).unwrap();
        assert_eq!(outcome.sweep.failed, []);
        outcome
    }

    fn files(&self) -> BTreeSet<PathBuf> {
        truth::packs_on_disk(self.store.root()).into_iter().collect()
    }

    /// Which packs hold each blob.
    fn packed(&self) -> BTreeMap<String, Vec<PathBuf>> {
        let mut packed: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
        for pack in truth::packs(self.store.root()) {
            for hash in pack.frames.into_keys() {
                packed.entry(hash).or_default().push(pack.path.clone());
            }
        }
        packed
    }

    fn flip_frame(&self, number: usize) {
        let mut packs = truth::packs(self.store.root());
        let pack = packs.iter_mut().rfind(|pack| pack.frames.contains_key(&hash(number))).unwrap();
        pack.bytes[pack.frames[&hash(number)].end - 1] ^= 1;
        fs::write(&pack.path, &pack.bytes).unwrap();
    }

    /// Restores a checkpoint elsewhere and compares it with the workspace.
    fn assert_kept(&self, id: &CheckpointId) {
        let into = self.place.home().join("into");
        self.store.restore_into(id, &into, &RestoreOptions::default(), &()).unwrap();
        fingerprint::assert_same(&self.place.look(), &fingerprint::of(&into));
        fs::remove_dir_all(into).unwrap();
    }

    fn findings(&self) -> Vec<(FindingKind, PathBuf)> {
        let mut options = VerifyOptions::default();
        options.read_data = true;
        let report = self.store.verify(options, &()).unwrap();
        report.findings.into_iter().map(|finding| (finding.kind, finding.file)).collect()
    }
}

fn removed(outcome: &GcOutcome) -> (u64, u64) {
    (outcome.sweep.blobs_removed, outcome.sweep.bytes_removed)
}

#[test]
fn a_large_capture_is_one_pack_and_what_is_pruned_of_it_is_given_back() {
    let packed = Packed::new(Packing::default());
    write(&packed.place, 0..1_010);
    packed.capture();
    assert_eq!((packed.files().len(), truth::blobs_on_disk(packed.store.root()).len()), (1, 0));
    remove(&packed.place, 0..600);
    let id = packed.capture();
    let before = packed.files();
    assert_eq!(removed(&packed.gc()), (0, 0));
    assert_eq!(packed.files(), before, "all of it is needed");
    packed.prune();
    let room = || -> u64 {
        let directory = packed.store.root().join("packs");
        let du = Command::new("du").args(["-s", "-B1"]).arg(directory).output().unwrap();
        String::from_utf8(du.stdout).unwrap().split('\t').next().unwrap().parse().unwrap()
    };
    let room_before = room();
    let planned = removed(&packed.store.plan_gc(&()).unwrap());
    assert_eq!(packed.files(), before, "a plan changes nothing");
    let collected = removed(&packed.gc());
    assert_eq!(collected, planned);
    assert!(collected.0 >= 600, "{collected:?}");
    let freed = room_before - room();
    assert!(freed > collected.1 && freed < collected.1 * 2, "{freed}, {}", collected.1);
    assert_eq!(packed.findings(), []);
    packed.assert_kept(&id);
    truth::assert_index_is(packed.store.root(), &truth::read(packed.store.root()));
    let after = packed.files();
    assert_eq!(removed(&packed.gc()), (0, 0));
    assert_eq!(packed.files(), after);
}

#[test]
fn a_pack_of_tiny_blobs_is_left_alone() {
    let packed = Packed::new(AT_ONCE);
    for number in 0..200 {
        fs::write(packed.place.root().join(format!("f{number}")), format!("{number}")).unwrap();
    }
    let id = packed.capture();
    let before = packed.files();
    truth::age(packed.store.root());
    assert_eq!(removed(&packed.gc()), (0, 0));
    assert_eq!((packed.files(), before.len()), (before, 1));
    packed.assert_kept(&id);
}

#[test]
fn what_is_in_two_packs_is_in_one_after_a_collection() {
    let packed = Packed::new(AT_ONCE);
    write(&packed.place, 0..30);
    packed.capture();
    write(&packed.place, 30..60);
    let id = packed.capture();
    // As of captures that ran beside: the same frames under another name.
    for (number, pack) in packed.files().into_iter().enumerate() {
        let name = format!("{number:032x}.pack");
        fs::copy(&pack, pack.with_file_name(name)).unwrap();
    }
    let is_double = |packs: &Vec<PathBuf>| packs.len() > 1;
    assert!(packed.packed().values().filter(|packs| is_double(packs)).count() >= 60);
    truth::age(packed.store.root());
    let planned = removed(&packed.store.plan_gc(&()).unwrap());
    let collected = removed(&packed.gc());
    assert_eq!(collected, planned);
    assert!(collected.0 == 0 && collected.1 > 60 * 50, "{collected:?}");
    assert_eq!(packed.packed().values().filter(|packs| is_double(packs)).count(), 0);
    assert_eq!((packed.files().len(), packed.findings()), (2, vec![]));
    packed.assert_kept(&id);
}

#[test]
fn two_large_captures_of_the_same_at_once_end_as_one_copy() {
    let packed = Packed::new(AT_ONCE);
    write(&packed.place, 0..300);
    let copy = packed.place.home().join("copy");
    let copied = Command::new("cp").arg("-a").arg(packed.place.root()).arg(&copy).status();
    assert!(copied.unwrap().success());
    let start = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        for (root, session) in [(packed.place.root(), "one"), (&copy, "two")] {
            let start = &start;
            let home = packed.place.home();
            scope.spawn(move || {
                let store = Store::with_packing(home, AT_ONCE);
                let mut options = CaptureOptions::default();
                options.session = Some(session.to_owned());
                start.wait();
                drop(store.capture(root, &options, &()).unwrap());
            });
        }
    });
    truth::age(packed.store.root());
    drop(packed.gc());
    assert!(packed.packed().values().all(|packs| packs.len() == 1));
    assert_eq!(packed.findings(), []);
    assert_eq!(truth::read(packed.store.root()).checkpoints.len(), 2);
}

#[test]
fn a_pack_stays_if_something_that_is_needed_is_damaged_in_it() {
    let packed = Packed::new(AT_ONCE);
    write(&packed.place, 0..30);
    packed.capture();
    remove(&packed.place, 0..20);
    let id = packed.capture();
    packed.prune();
    packed.flip_frame(25);
    let before: BTreeMap<PathBuf, Vec<u8>> =
        packed.files().into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect();
    for _ in 0..3 {
        drop(packed.gc());
        let (named, kept) = (packed.packed(), packed.files());
        assert!((20..30).all(|number| named.contains_key(&hash(number))));
        for (path, bytes) in &before {
            if !kept.contains(path) {
                continue;
            }
            assert_eq!(fs::read(path).unwrap(), *bytes);
        }
        // The one that is damaged, and none that repeats what is in it.
        assert_eq!(named[&hash(25)].len(), 1);
        assert!((20..30).all(|number| named[&hash(number)] == named[&hash(25)]));
        assert!(before.contains_key(&named[&hash(25)][0]));
    }
    let path = packed.packed()[&hash(25)][0].clone();
    assert_eq!(packed.findings(), [(FindingKind::BlobDamaged, path.clone())]);
    // A capture that has the bytes heals it, and then the rest can go.
    fs::write(packed.place.root().join("d5/f25"), text(25)).unwrap();
    let healed = packed.capture();
    assert_eq!(packed.findings(), []);
    truth::age(packed.store.root());
    drop(packed.gc());
    assert!(!path.exists());
    assert_eq!(packed.findings(), []);
    packed.assert_kept(&id);
    packed.assert_kept(&healed);
}

#[test]
fn what_is_damaged_in_an_older_pack_is_kept_from_a_newer_one() {
    let packed = Packed::new(AT_ONCE);
    write(&packed.place, 0..30);
    let id = packed.capture();
    // The copies are newer; in the last of the older ones something is damaged.
    let older = packed.files();
    packed.flip_frame(7);
    let damaged = packed.packed()[&hash(7)][0].clone();
    let name = format!("{:032x}.pack", 7);
    let copy = damaged.with_file_name(name);
    let mut bytes = fs::read(&damaged).unwrap();
    let end = truth::packs(packed.store.root())
        .into_iter()
        .find_map(|pack| pack.frames.get(&hash(7)).map(|frame| frame.end))
        .unwrap();
    bytes[end - 1] ^= 1;
    fs::write(&copy, bytes).unwrap();
    assert_eq!(older.len(), 1);
    truth::age(packed.store.root());
    for _ in 0..3 {
        drop(packed.gc());
        assert_eq!(packed.findings(), []);
        packed.assert_kept(&id);
    }
}

/// Two captures at once have both healed what is damaged in the oldest pack, and all three go together.
#[test]
fn good_copies_that_go_together_do_not_rely_on_each_other() {
    let packed = Packed::new(Packing { small_packs_max: 0, ..AT_ONCE });
    write(&packed.place, 0..30);
    let id = packed.capture();
    let first = packed.files().into_iter().next().unwrap();
    for name in ["0", "1"] {
        fs::copy(&first, first.with_file_name(format!("{}{name}.pack", "0".repeat(31)))).unwrap();
    }
    let mut packs = truth::packs(packed.store.root());
    let damaged = packs.iter_mut().find(|pack| pack.path == first).unwrap();
    damaged.bytes[damaged.frames[&hash(3)].end - 1] ^= 1;
    fs::write(&first, &damaged.bytes).unwrap();
    truth::age(packed.store.root());
    let older = fs::metadata(&first).unwrap().modified().unwrap() - Duration::from_hours(1);
    fs::File::options().write(true).open(&first).unwrap().set_modified(older).unwrap();
    drop(packed.gc());
    assert_eq!(packed.files().len(), 1);
    assert_eq!(packed.findings(), []);
    packed.assert_kept(&id);
}

/// Whatever the collection protects the content with, done in the moment between its survey and its
/// removal of a pack: when it begins to write another.
fn when_a_pack_is_written(packed: &Packed, statement: &str) {
    let trigger = format!(
        "CREATE TRIGGER meanwhile AFTER INSERT ON operations WHEN NEW.kind = 'sweep'
            BEGIN {statement}; END"
    );
    sql(packed.store.root(), &trigger);
}

#[test]
fn what_is_pinned_after_the_survey_is_not_removed_with_its_pack() {
    let packed = Packed::new(AT_ONCE);
    write(&packed.place, 0..30);
    packed.capture();
    remove(&packed.place, 0..20);
    let id = packed.capture();
    packed.prune();
    let pin = format!("INSERT INTO pins (hash, operation) VALUES (x'{}', NEW.id)", hash(3));
    when_a_pack_is_written(&packed, &pin);
    let before = packed.packed()[&hash(3)].clone();
    drop(packed.gc());
    sql(packed.store.root(), "DROP TRIGGER meanwhile");
    let kept = packed.packed();
    let numbers: Vec<usize> = (0..30).filter(|number| kept.contains_key(&hash(*number))).collect();
    assert_eq!(numbers, [&[3][..], &(20..30).collect::<Vec<_>>()].concat());
    assert!(!before[0].exists(), "it was written anew");
    // A capture that has pinned it finds it, and need not store it.
    write(&packed.place, [3]);
    let again = packed.capture();
    assert_eq!(packed.findings(), []);
    packed.assert_kept(&again);
    remove(&packed.place, [3]);
    packed.assert_kept(&id);
}

#[test]
fn nothing_is_removed_with_a_pack_once_somebody_has_pinned_everything() {
    let packed = Packed::new(AT_ONCE);
    write(&packed.place, 0..30);
    packed.capture();
    remove(&packed.place, 0..20);
    packed.capture();
    packed.prune();
    let before = packed.packed();
    when_a_pack_is_written(&packed, "UPDATE operations SET pin_all = 1 WHERE id = NEW.id");
    drop(packed.gc());
    sql(packed.store.root(), "DROP TRIGGER meanwhile");
    assert_eq!(
        packed.packed().into_keys().collect::<Vec<_>>(),
        before.into_keys().collect::<Vec<_>>()
    );
    truth::age(packed.store.root());
    drop(packed.gc());
    let kept = packed.packed();
    assert!((0..20).all(|number| !kept.contains_key(&hash(number))));
    assert_eq!(packed.findings(), []);
}

#[test]
fn without_room_for_a_pack_as_much_is_written_anew_as_there_is_room_for() {
    // More than there is.
    let packed = Packed::new(Packing {
        pack_bytes_max: 1 << 60,
        consolidate_from: 1,
        above_files: 5,
        ..AT_ONCE
    });
    write(&packed.place, 0..20);
    packed.capture();
    remove(&packed.place, 0..20);
    write(&packed.place, 20..40);
    packed.capture();
    remove(&packed.place, 20..39);
    packed.capture();
    write(&packed.place, 40..42);
    let id = packed.capture();
    packed.prune();
    drop(packed.gc());
    let kept = packed.packed();
    assert!(kept.contains_key(&hash(39)));
    assert!((0..39).all(|number| !kept.contains_key(&hash(number))));
    // These go into packs only where there is room for a whole one.
    assert_ne!(truth::blobs_on_disk(packed.store.root()).len(), 0);
    assert_eq!(packed.findings(), []);
    packed.assert_kept(&id);
}

#[test]
fn what_nothing_names_stays_in_its_pack_for_a_minute() {
    let packed = Packed::new(AT_ONCE);
    write(&packed.place, 0..30);
    packed.capture();
    remove(&packed.place, 0..25);
    packed.capture();
    // The pack is old, and its content lost its name just now.
    truth::age(packed.store.root());
    let mut rule = PruneRule::default();
    rule.keep = 1;
    drop(packed.store.prune(None, rule, &()).unwrap());
    let before = packed.files();
    assert_eq!(removed(&packed.gc()), (0, 0));
    assert_eq!(packed.files(), before);
    truth::age(packed.store.root());
    assert!(removed(&packed.gc()).0 >= 25);
}

#[test]
fn small_packs_become_one_when_there_are_many() {
    let packed = Packed::new(Packing { small_packs_max: 4, ..AT_ONCE });
    for turn in 0..4 {
        write(&packed.place, turn * 5..turn * 5 + 5);
        packed.capture();
    }
    truth::age(packed.store.root());
    let before = packed.files();
    drop(packed.gc());
    assert_eq!((packed.files().len(), packed.files()), (4, before));
    write(&packed.place, 20..25);
    let id = packed.capture();
    truth::age(packed.store.root());
    drop(packed.gc());
    assert_eq!((packed.files().len(), packed.findings()), (1, vec![]));
    packed.assert_kept(&id);
}

/// Also one that came with the newest capture, and whose root is elsewhere.
#[test]
fn a_pack_that_goes_at_once_is_missed() {
    let rules = Packing { above_files: 1_000, pack_bytes_max: 3_000, ..AT_ONCE };
    let packed = Packed::new(rules);
    write(&packed.place, 0..2);
    packed.capture();
    packed.capture();
    write(&packed.place, 2..40);
    let id = packed.capture();
    let path = packed.store.root().join(id.session.as_str()).join(format!("{}.json", id.seq));
    let manifest: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let root = manifest["root"].as_str().unwrap();
    let packs = truth::packs(packed.store.root());
    let other = packs.iter().find(|pack| !pack.frames.contains_key(root)).unwrap();
    fs::remove_file(&other.path).unwrap();
    let id = packed.capture();
    packed.assert_kept(&id);
}

/// A sweep is due ten minutes after the last where there are too many small packs, and not after a day.
#[test]
fn the_packs_of_many_turns_are_merged_by_a_later_turn() {
    let rules =
        Packing { above_files: 1_000, small_packs_max: 1, small_packs_crowded: 3, ..AT_ONCE };
    let packed = Packed::new(rules);
    let turn = |number: usize| {
        write(&packed.place, number * 10..number * 10 + 10);
        packed.capture();
    };
    let mut counts = Vec::new();
    let mut made = None;
    for number in 0..6 {
        turn(number);
        counts.push(packed.files().len());
        // The last sweep: before the last turn it is long enough ago.
        let lock = fs::File::open(packed.store.root().join("locks/sweep.lock")).unwrap();
        let made = *made.get_or_insert_with(|| lock.metadata().unwrap().modified().unwrap());
        lock.set_modified(made - Duration::from_mins(if number == 4 { 11 } else { 8 })).unwrap();
    }
    // From the third on none is added; the last turn finds that they have to be merged.
    assert_eq!(counts, [1, 2, 3, 3, 3, 1]);
    let id = packed.capture();
    assert_eq!(packed.findings(), []);
    packed.assert_kept(&id);
}

#[test]
fn small_blobs_move_into_a_pack_and_a_damaged_one_stays_where_it_is() {
    let rules = Packing { above_files: 1_000, gather_from: 1_000, consolidate_from: 30, ..AT_ONCE };
    let packed = Packed::new(rules);
    write(&packed.place, 0..40);
    fs::write(packed.place.root().join("large"), {
        let mut state = 1_u64;
        let next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        };
        std::iter::repeat_with(next).take(1_100_000).collect::<Vec<u8>>()
    })
    .unwrap();
    let id = packed.capture();
    drop(packed.gc());
    assert_eq!(packed.files().len(), 0, "all are young");
    let damaged = packed.place.blob(&hash(5));
    let good = fs::read(&damaged).unwrap();
    let mut bytes = good.clone();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&damaged, &bytes).unwrap();
    truth::age(packed.store.root());
    let loose = truth::blobs_on_disk(packed.store.root()).len();
    let outcome = packed.gc();
    let left = truth::blobs_on_disk(packed.store.root());
    assert_eq!((packed.files().len(), left.len()), (1, 2));
    assert_eq!(outcome.sweep.blobs_packed, (loose - 2) as u64);
    assert_eq!(removed(&outcome), (0, 0));
    assert_eq!(packed.findings(), [(FindingKind::BlobDamaged, damaged.clone())]);
    fs::write(&damaged, good).unwrap();
    assert_eq!(packed.findings(), []);
    truth::assert_index_is(packed.store.root(), &truth::read(packed.store.root()));
    packed.assert_kept(&id);
    assert_eq!(packed.gc().sweep.blobs_packed, 0, "one is not worth it");
    // Without the index all of it is found as before.
    for name in ["index.db", "index.db-wal", "index.db-shm"] {
        drop(fs::remove_file(packed.store.root().join(name)));
    }
    assert_eq!(removed(&packed.gc()), (0, 0));
    assert_eq!(packed.findings(), []);
    packed.assert_kept(&id);
}

#[test]
fn a_damaged_trailer_blocks_deletion_and_what_is_in_the_pack_is_saved() {
    let packed = Packed::new(AT_ONCE);
    write(&packed.place, 0..30);
    packed.capture();
    remove(&packed.place, 0..10);
    let id = packed.capture();
    packed.prune();
    let pack = packed.packed()[&hash(25)][0].clone();
    let whole = fs::read(&pack).unwrap();
    for from_end in [1, 20, 28 + 10, 28 + 44 * 20, 28 + 44 * 31 + 1_000] {
        let mut bytes = whole.clone();
        let at = bytes.len() - from_end;
        bytes[at] ^= 1;
        fs::write(&pack, &bytes).unwrap();
        let before = packed.files();
        let error = packed.store.gc(&()).unwrap_err();
        let Error::DeletionBlocked { files } = &error else { panic!("{error:?}") };
        assert_eq!(files.iter().map(|file| &file.path).collect::<Vec<_>>(), [&pack]);
        assert_eq!(packed.files(), before);
        let found = packed.findings();
        assert!(found.contains(&(FindingKind::PackDamaged, pack.clone())), "{found:?}");
    }
    let outcome = packed.store.rebuild_index(&()).unwrap();
    let repaired: Vec<_> = outcome.repaired.iter().map(|repair| &repair.file).collect();
    assert_eq!((repaired, outcome.unreadable), (vec![&pack], vec![]));
    assert_eq!(packed.findings(), []);
    packed.assert_kept(&id);
    let quarantine = fs::read_dir(packed.store.root().join("quarantine")).unwrap();
    assert_eq!(quarantine.count(), 1);
    truth::age(packed.store.root());
    drop(packed.gc());
    assert!((0..10).all(|number| !packed.packed().contains_key(&hash(number))));
    packed.assert_kept(&id);
}
