//! Taking a path's content out of history: what goes to the last byte, what stays, and what is refused.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::Value;
use turnpoint::id::{CheckpointId, SessionName};
use turnpoint::limits::Packing;
use turnpoint::manifest::{EntryKind, OmitReason};
use turnpoint::path::RelPath;
use turnpoint::{
    CaptureOptions, Error, ErrorClass, FindingKind, Notice, PurgeOutcome, PurgePlan, PurgeRequest,
    RestoreOptions, Result, Store, VerifyOptions,
};

use crate::model::truth;
use crate::place::{Place, Told, skips};
use crate::support::fingerprint::{self, Fingerprint};
use crate::support::traces::{among, copy, everything_and_frames};
use crate::support::tree::{self, file, link};

const LINE: &str = "the same line again and again, which no frame holds as it is\n";
const TARGET: &str = "where-the-link-of-the-test-leads";

/// Bytes that do not compress, the same for one seed.
fn noise(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..2_000).flat_map(|_| next()).collect()
}

fn secret(place: &Place, seed: u64) {
    tree::build(
        place.root(),
        [
            ("keys/noise", file(noise(seed))),
            ("keys/lines", file(LINE.repeat(400))),
            ("keys/link", link(TARGET)),
        ],
    );
}

fn others(place: &Place, turn: usize) {
    let many = (0..30).map(|n| (format!("many/{n:02}"), file(format!("file {n} of {turn}\n"))));
    tree::build(place.root(), many);
    tree::build(place.root(), [("a.txt", file(format!("turn {turn}\n")))]);
}

fn rel(text: &str) -> RelPath {
    RelPath::new(text.as_bytes()).unwrap()
}

fn request(place: &Place, paths: &[&str]) -> PurgeRequest {
    PurgeRequest::new(place.root().to_owned(), paths.iter().map(|path| rel(path)).collect())
}

fn plan(store: &Store, request: &PurgeRequest) -> PurgePlan {
    store.plan_purge(request, &()).unwrap()
}

fn purge(store: &Store, request: &PurgeRequest) -> Result<PurgeOutcome> {
    store.purge(request, &plan(store, request).id(), &())
}

/// All that is in the files below a directory.
fn raw(home: &Path) -> Vec<u8> {
    everything_and_frames(home).0
}

/// The same, and what `zstd` makes of each frame.
fn everything(home: &Path) -> Vec<u8> {
    let (mut bytes, unpacked) = everything_and_frames(home);
    bytes.extend(unpacked);
    bytes
}

/// Which of the contents are somewhere below `home`.
fn found(home: &Path, wanted: &[(&'static str, Vec<u8>)]) -> Vec<&'static str> {
    among(&everything(home), wanted)
}

/// What must be gone of two turns of [`secret`]: the content, and what it was called in the store.
fn traces() -> Vec<(&'static str, Vec<u8>)> {
    let hash = |bytes: &[u8]| blake3::hash(bytes);
    let lines = LINE.repeat(400);
    vec![
        ("the noise of the first", noise(1)[3_000..3_064].to_vec()),
        ("the noise of the second", noise(2)[3_000..3_064].to_vec()),
        ("the lines", LINE.repeat(2).into_bytes()),
        ("the link", TARGET.as_bytes().to_vec()),
        ("the hash of noise in hex", hash(&noise(1)).to_hex().as_bytes().to_vec()),
        ("the hash of noise", hash(&noise(1)).as_bytes().to_vec()),
        ("the hash of lines", hash(lines.as_bytes()).as_bytes().to_vec()),
    ]
}

/// Four turns, of which the first three have secrets, with a plain copy of each.
fn turns(place: &Place, store: &Store) -> Vec<(CheckpointId, Fingerprint)> {
    let mut taken = Vec::new();
    for turn in 0..4 {
        others(place, turn);
        match turn {
            0 | 1 => secret(place, turn as u64 + 1),
            3 => fs::remove_dir_all(place.root().join("keys")).unwrap(),
            _ => {}
        }
        let outcome = store.capture(place.root(), &CaptureOptions::default(), &()).unwrap();
        taken.push((outcome.checkpoint, place.look()));
    }
    taken
}

fn restored(place: &Place, store: &Store, id: &CheckpointId) -> Fingerprint {
    let into = tempfile::tempdir_in(place.home()).unwrap();
    let options = RestoreOptions::default();
    store.restore_into(id, &into.path().join("it"), &options, &()).unwrap();
    fingerprint::of(&into.path().join("it"))
}

/// Everything else comes back to the letter, and index and files say the same.
#[track_caller]
fn assert_others_whole(place: &Place, store: &Store, taken: &[(CheckpointId, Fingerprint)]) {
    for (id, before) in taken {
        let gone = ["keys/noise", "keys/lines", "keys/link"];
        fingerprint::assert_same(&fingerprint::without(before, &gone), &restored(place, store, id));
    }
    place.verify_clean();
    truth::assert_index_is(store.root(), &truth::read(store.root()));
}

fn omitted(store: &Store, id: &CheckpointId) -> Vec<String> {
    let entries = store.entries(id, &RelPath::root(), &()).unwrap();
    let purged =
        |kind: &EntryKind| matches!(kind, EntryKind::Omitted { reason: OmitReason::Purged, .. });
    let purged = entries.iter().filter(|entry| purged(&entry.kind));
    purged.map(|entry| entry.path.to_string()).collect()
}

/// The manifests of a store by path.
fn manifests(store: &Store) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for directory in fs::read_dir(store.root()).unwrap() {
        let directory = directory.unwrap().path();
        for entry in fs::read_dir(&directory).into_iter().flatten() {
            let path = entry.unwrap().path();
            let is_number = |stem: &str| stem.bytes().all(|byte| byte.is_ascii_digit());
            let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
            if path.extension().is_some_and(|end| end == "json") && is_number(stem) {
                found.insert(path.clone(), fs::read(&path).unwrap());
            }
        }
    }
    assert!(!found.is_empty());
    found
}

/// Each manifest that another names has the digest by which it is named.
#[track_caller]
fn assert_chained(store: &Store) {
    let mut links = 0;
    for text in manifests(store).values() {
        let manifest: Value = serde_json::from_slice(text).unwrap();
        let named =
            [&manifest["parent"], &manifest["restore"]["target"], &manifest["restore"]["undoes"]];
        for reference in named.into_iter().filter(|it| !it.is_null()) {
            let path = store.root().join(reference["session"].as_str().unwrap());
            let path = path.join(format!("{}.json", reference["seq"]));
            let named: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
            assert_eq!(named["digest"], reference["digest"], "{reference}");
            links += 1;
        }
    }
    assert!(links > 0);
}

#[test]
fn no_byte_stays_anywhere_and_everything_else_does() {
    // Loose, and in packs of several sizes.
    let small = Packing { above_files: 0, pack_bytes_max: 6_000, ..Packing::default() };
    let loose = Packing { gather_from: usize::MAX, ..Packing::default() };
    for packing in [loose, small, Packing::default()] {
        let place = Place::in_memory();
        let store = Store::with_packing(place.home(), packing);
        let taken = turns(&place, &store);
        store.pin(&taken[1].0, None, &()).unwrap();
        // A restore, so that a safety checkpoint and what it left hold them too.
        let outcome = store.restore(place.root(), &taken[0].0, &RestoreOptions::default(), &());
        assert!(outcome.unwrap().safety.is_some());
        // As `restore --abort` keeps a journal that cannot be understood.
        let (_, link) = traces().into_iter().find(|(name, _)| name.contains("link")).unwrap();
        fs::write(store.root().join("journal/0.json.damaged-2"), link).unwrap();
        let all: Vec<&str> = traces().iter().map(|(name, _)| *name).collect();
        assert_eq!(found(place.home(), &traces()), all, "the test looks in the right places");

        let request = request(&place, &["keys"]);
        let plan = plan(&store, &request);
        let named: Vec<String> =
            plan.checkpoints.iter().map(|it| it.checkpoint.seq.to_string()).collect();
        assert_eq!(named, ["0", "1", "2", "4"]);
        let pinned: Vec<bool> = plan.checkpoints.iter().map(|it| it.pinned).collect();
        assert_eq!(pinned, [false, true, false, false]);
        assert!(plan.checkpoints[3].is_safety && plan.linked == 1);
        let paths: Vec<_> = plan
            .paths
            .iter()
            .map(|it| (it.path.to_string(), it.checkpoints, it.versions))
            .collect();
        let expected = [("keys/lines", 4, 1), ("keys/link", 4, 1), ("keys/noise", 4, 2)];
        assert_eq!(paths, expected.map(|(path, of, versions)| (path.to_owned(), of, versions)));
        let lines = LINE.len() as u64 * 400;
        assert_eq!((plan.contents, plan.bytes), (3, lines + 2 * 16_000));
        assert!(plan.kept.is_empty() && plan.paths.iter().all(|it| it.is_on_disk));

        let work = place.look_closely();
        let outcome = store.purge(&request, &plan.id(), &()).unwrap();
        assert!(outcome.removed.blobs >= 3, "{:?}", outcome.removed);
        assert_eq!(found(place.home(), &traces()), [""; 0], "{packing:?}");
        fingerprint::assert_same(&work, &place.look_closely());
        assert_others_whole(&place, &store, &taken);
        assert_chained(&store);
        for (id, _) in &taken[..3] {
            assert_eq!(omitted(&store, id), ["keys/lines", "keys/link", "keys/noise"]);
            let manifest = store.show(id, &()).unwrap().manifest;
            assert_eq!(manifest.counts.omitted.get(&OmitReason::Purged), Some(&3));
        }
        assert_eq!(omitted(&store, &taken[3].0), [""; 0]);
        // The index says the same when it is built anew.
        let before = truth::sql(store.root(), "SELECT * FROM checkpoint_files ORDER BY 1, 2, 3, 4");
        let rebuilt = store.rebuild_index(&()).unwrap();
        assert_eq!((rebuilt.checkpoints, rebuilt.unreadable.len()), (5, 0));
        let after = truth::sql(store.root(), "SELECT * FROM checkpoint_files ORDER BY 1, 2, 3, 4");
        assert_eq!(before, after);
        assert!(!before.is_empty());
        let log = fs::read_to_string(store.root().join("operations.jsonl")).unwrap();
        let line: Value = serde_json::from_str(
            log.lines().find(|line| line.contains("\"verb\":\"purge\"")).unwrap(),
        )
        .unwrap();
        assert_eq!(line["paths"], serde_json::json!(["keys"]));
        assert_eq!(line["checkpoints"].as_array().unwrap().len(), 4);
        assert_eq!(fs::read_dir(store.root().join("journal")).unwrap().count(), 0);
        // Again is nothing.
        let again = self::plan(&store, &request);
        assert!(again.is_empty() && again.purged_before > 0);
    }
}

#[test]
fn what_is_purged_is_left_alone_by_restores_and_undos() {
    let place = Place::in_memory();
    let store = place.store();
    let taken = turns(&place, &store);
    place.go_back(&taken[0].0);
    drop(purge(&store, &request(&place, &["keys"])).unwrap());
    // The restore made them; that this is still so nobody can tell any more.
    fs::write(place.root().join("keys/lines"), "mine now").unwrap();
    let outcome = place.undo();
    let expected = ["keys/lines purged", "keys/link purged", "keys/noise purged"];
    let told: Vec<String> = skips(&outcome).into_iter().filter(|it| it.contains('/')).collect();
    assert_eq!(told[..3], expected, "{told:?}");
    assert!(!outcome.is_short(), "{:?} {:?}", outcome.plan.skips, outcome.left);
    let read = |path: &str| fs::read(place.root().join(path)).unwrap();
    assert_eq!(read("keys/lines"), b"mine now");
    assert_eq!(read("keys/noise"), noise(1));
    assert_eq!(read("a.txt"), b"turn 3\n");
    // To a checkpoint that held them, and to one that did.
    let outcome = place.restore(&taken[1].0);
    assert_eq!(skips(&outcome), expected);
    assert_eq!(read("keys/lines"), b"mine now");
    assert_eq!(read("a.txt"), b"turn 1\n");
    // What is on the disk is captured again.
    let id = place.capture();
    let entries = store.entries(&id, &rel("keys/lines"), &()).unwrap();
    assert!(matches!(entries.last().unwrap().kind, EntryKind::File { size: 8, .. }));
    place.verify_clean();
}

/// What both sides of a turn have lost is as equal as what it never touched: that is said, and not that
/// nothing is left of the turn.
#[test]
fn a_turn_whose_paths_were_purged_is_not_called_taken_back() {
    let place = Place::in_memory();
    let store = place.store();
    secret(&place, 1);
    place.capture();
    secret(&place, 2);
    let turn = place.capture();
    let planned =
        || store.plan_revert(place.root(), &turn, &RestoreOptions::default(), &()).unwrap();
    let before = planned();
    assert!(!before.plan.changes.is_empty() && skips(&before).is_empty(), "{:?}", before.plan);
    drop(purge(&store, &request(&place, &["keys"])).unwrap());
    let expected = ["keys/lines purged", "keys/link purged", "keys/noise purged"];
    let after = planned();
    assert_eq!(
        (skips(&after), after.plan.changes.len()),
        (expected.map(str::to_owned).to_vec(), 0)
    );
}

#[test]
fn other_workspaces_are_not_touched_and_what_they_hold_stays_and_is_named() {
    let (place, other) = (Place::in_memory(), tempfile::tempdir().unwrap());
    let store = place.store();
    let taken = turns(&place, &store);
    fs::write(place.root().join("copy"), LINE.repeat(400)).unwrap();
    place.capture();
    fs::write(other.path().join("borrowed"), noise(1)).unwrap();
    let mut options = CaptureOptions::default();
    options.session = Some("theirs".to_owned());
    let theirs = store.capture(other.path(), &options, &()).unwrap().checkpoint;
    let manifest = store.root().join("theirs/0.json");
    let before = fs::read(&manifest).unwrap();
    let request = request(&place, &["keys/noise", "keys/lines"]);
    let plan = plan(&store, &request);
    let kept: Vec<_> = plan
        .kept
        .iter()
        .map(|kept| (kept.path.to_string(), kept.held_by[0].path.to_string(), kept.holders))
        .collect();
    let mut expected = [
        ("keys/lines".to_owned(), "copy".to_owned(), 1),
        ("keys/noise".to_owned(), "borrowed".to_owned(), 1),
    ];
    expected.sort();
    let mut sorted = kept.clone();
    sorted.sort();
    assert_eq!(sorted, expected);
    let foreign = plan.kept.iter().find(|kept| kept.path == rel("keys/noise")).unwrap();
    assert_eq!(foreign.held_by[0].checkpoint, theirs);
    assert_eq!(foreign.held_by[0].root, other.path().canonicalize().unwrap());
    assert_eq!(plan.contents, 1, "the noise of the second turn");
    // That they go on capturing what they hold changes nothing about what was agreed to.
    fs::write(other.path().join("more"), "more").unwrap();
    let newest = store.capture(other.path(), &options, &()).unwrap().checkpoint;
    fs::remove_file(other.path().join("more")).unwrap();
    let again = store.plan_purge(&request, &()).unwrap();
    let held = again.kept.iter().find(|kept| kept.path == rel("keys/noise")).unwrap();
    assert_eq!((&held.held_by[0].checkpoint, held.held_by[0].checkpoints), (&newest, 2));
    drop(store.purge(&request, &plan.id(), &()).unwrap());
    assert_eq!(fs::read(&manifest).unwrap(), before);
    let traces = traces();
    let left = found(place.home(), &traces);
    assert!(left.contains(&"the noise of the first") && left.contains(&"the lines"), "{left:?}");
    assert!(!left.contains(&"the noise of the second") && left.contains(&"the link"), "{left:?}");
    let got = restored(&place, &store, &theirs);
    assert_eq!(got, fingerprint::of(other.path()));
    assert_eq!(omitted(&store, &taken[0].0), ["keys/lines", "keys/noise"]);
    place.verify_clean();
    // Purged where it is held, it goes.
    let there = PurgeRequest::new(other.path().to_owned(), vec![rel("borrowed")]);
    drop(purge(&store, &there).unwrap());
    assert!(!found(place.home(), &traces).contains(&"the noise of the first"));
}

#[test]
fn one_session_is_purged_and_those_that_follow_it_are_chained_anew() {
    let place = Place::in_memory();
    let store = place.store();
    let capture = |session: &str, turn: usize| {
        others(&place, turn);
        let mut options = CaptureOptions::default();
        options.session = Some(session.to_owned());
        store.capture(place.root(), &options, &()).unwrap().checkpoint
    };
    secret(&place, 1);
    let (first, second) = (capture("one", 0), capture("two", 1));
    let third = capture("one", 2);
    let mut request = request(&place, &["keys/n*"]);
    request.session = Some(SessionName::new("ONE").unwrap());
    let plan = plan(&store, &request);
    assert_eq!((plan.checkpoints.len(), plan.linked, plan.contents), (2, 1, 0));
    assert_eq!(plan.kept[0].held_by[0].checkpoint, second);
    drop(store.purge(&request, &plan.id(), &()).unwrap());
    assert_eq!(omitted(&store, &first), ["keys/noise"]);
    assert_eq!(omitted(&store, &second), [""; 0]);
    assert_eq!(omitted(&store, &third), ["keys/noise"]);
    assert_chained(&store);
    place.verify_clean();
    // The next capture builds on what is there now, and says so.
    let next = capture("two", 3);
    assert_eq!(omitted(&store, &next), [""; 0]);
    assert_chained(&store);
    request.session = Some(SessionName::new("three").unwrap());
    let missing = store.plan_purge(&request, &()).unwrap_err();
    assert!(matches!(missing, Error::SessionNotFound { .. }), "{missing:?}");
}

/// The whole store, but for its index and its locks.
fn files(store: &Store) -> Fingerprint {
    let copy = copy(store.root());
    let all = fingerprint::of(&copy.path().join("checkpoints"));
    fingerprint::without(&all, &["index.db", "index.db-wal", "index.db-shm", "locks"])
}

#[track_caller]
fn assert_refused(store: &Store, request: &PurgeRequest, expected: &str, named: &str) {
    let before = files(store);
    let error = store.purge(request, expected, &()).unwrap_err();
    let Error::DeletionBlocked { files: blocked } = &error else { panic!("{error:?}") };
    let shown = |file: &turnpoint::BadFile| file.path.ends_with(named);
    assert!(blocked.iter().any(shown), "{blocked:?} does not name {named}");
    fingerprint::assert_same(&before, &files(store));
}

#[test]
fn nothing_is_changed_where_something_cannot_be_understood_or_changed_meanwhile() {
    let place = Place::in_memory();
    let store = place.store();
    let taken = turns(&place, &store);
    let request = request(&place, &["keys"]);
    let expected = plan(&store, &request).id();
    let session = store.root().join(taken[0].0.session.as_str());

    // A checkpoint more that holds one.
    secret(&place, 3);
    let id = place.capture_loose();
    let before = files(&store);
    let error = store.purge(&request, &expected, &()).unwrap_err();
    assert!(matches!(error, Error::PlanChanged { .. }), "{error:?}");
    fingerprint::assert_same(&before, &files(&store));
    let expected = plan(&store, &request).id();

    // A manifest, in any session.
    let manifest = session.join("3.json");
    let text = fs::read(&manifest).unwrap();
    fs::write(&manifest, &text[1..]).unwrap();
    assert_refused(&store, &request, &expected, "3.json");
    let planned = store.plan_purge(&request, &()).unwrap_err();
    assert!(matches!(planned, Error::DeletionBlocked { .. }), "{planned:?}");
    fs::write(&manifest, &text).unwrap();

    // A page of a checkpoint.
    let manifest: Value = serde_json::from_slice(&text).unwrap();
    let page = place.blob(manifest["root"].as_str().unwrap());
    let kept = fs::read(&page).unwrap();
    fs::remove_file(&page).unwrap();
    assert_refused(&store, &request, &expected, "3.json");
    fs::write(&page, kept).unwrap();

    // A pack that is none, an operation of another machine, an open restore, a decision before this.
    let pack = store.root().join("packs/00112233445566778899aabbccddeeff.pack");
    fs::write(&pack, "no pack").unwrap();
    assert_refused(&store, &request, &expected, "00112233445566778899aabbccddeeff.pack");
    fs::remove_file(&pack).unwrap();
    let foreign = "11223344556677889900aabbccddeeff";
    truth::sql(
        store.root(),
        &format!(
            "INSERT INTO operations (id, kind, machine, boot, started_at_ns) \
             VALUES (x'{foreign}', 'capture', x'{foreign}', x'{foreign}', 0)"
        ),
    );
    assert_refused(&store, &request, &expected, foreign);
    truth::sql(store.root(), "DELETE FROM operations");
    let journal = store.root().join("journal").join(format!("{}.json", "0".repeat(32)));
    fs::write(&journal, "{}").unwrap();
    assert_refused(&store, &request, &expected, journal.file_name().unwrap().to_str().unwrap());
    fs::remove_file(&journal).unwrap();

    // And then it is done.
    drop(store.purge(&request, &expected, &()).unwrap());
    assert_eq!(omitted(&store, &id), ["keys/lines", "keys/link", "keys/noise"]);
    assert_eq!(found(place.home(), &traces()), [""; 0]);
}

#[test]
fn a_damaged_frame_beside_a_purged_one_stays_as_damaged_as_it_was() {
    let place = Place::in_memory();
    let packing = Packing { above_files: 0, ..Packing::default() };
    let store = Store::with_packing(place.home(), packing);
    turns(&place, &store);
    let hash = blake3::hash(b"file 7 of 0\n").to_hex().to_string();
    let packs = truth::packs(store.root());
    let pack = packs.iter().find(|pack| pack.frames.contains_key(&hash)).unwrap();
    let mut bytes = pack.bytes.clone();
    let range = pack.frames[&hash].clone();
    bytes[range.end - 1] ^= 1;
    let damaged = bytes[range].to_vec();
    fs::write(&pack.path, bytes).unwrap();
    drop(purge(&store, &request(&place, &["keys"])).unwrap());
    assert!(!pack.path.exists());
    assert_eq!(
        among(&raw(place.home()), &traces()),
        [""; 0],
        "what is damaged cannot be decompressed"
    );
    let packs = truth::packs(store.root());
    let copies: Vec<_> = packs
        .iter()
        .filter_map(|pack| Some(pack.bytes[pack.frames.get(&hash)?.clone()].to_vec()))
        .collect();
    assert_eq!(copies, [damaged]);
    let mut options = VerifyOptions::default();
    options.read_data = true;
    let kinds: Vec<FindingKind> =
        store.verify(options, &()).unwrap().findings.iter().map(|it| it.kind).collect();
    assert_eq!(kinds, [FindingKind::BlobDamaged]);
}

#[test]
fn copies_in_the_quarantine_go_too_and_what_cannot_be_told_is_refused() {
    let place = Place::in_memory();
    let packing = Packing { above_files: 0, ..Packing::default() };
    let store = Store::with_packing(place.home(), packing);
    turns(&place, &store);
    let quarantine = store.root().join("quarantine");
    let hash = blake3::hash(&noise(1)).to_hex().to_string();
    // As `quarantine` puts them there: a damaged blob, and a pack of which everything was saved.
    let blob = quarantine.join("blobs").join(hash.split_at(2).0).join(format!("{hash}.2"));
    fs::create_dir_all(blob.parent().unwrap()).unwrap();
    fs::write(&blob, noise(1)).unwrap();
    let pack = truth::packs(store.root()).remove(0);
    fs::create_dir_all(quarantine.join("packs")).unwrap();
    let copy = quarantine.join("packs").join(pack.path.file_name().unwrap());
    fs::copy(&pack.path, &copy).unwrap();
    let unrelated = quarantine.join("blobs").join(format!("{}.2", "ab".repeat(32)));
    fs::write(&unrelated, "something else").unwrap();
    let request = request(&place, &["keys"]);
    let plan = plan(&store, &request);
    assert_eq!(plan.quarantined.len(), 2, "{:?}", plan.quarantined);

    // Cut short it cannot be told; nor may it go with something in it that is nowhere else.
    let whole = fs::read(&copy).unwrap();
    fs::write(&copy, &whole[..whole.len() - 40]).unwrap();
    let named = copy.file_name().unwrap().to_str().unwrap().to_owned();
    assert_refused(&store, &request, &plan.id(), &named);
    fs::write(&copy, whole).unwrap();

    drop(store.purge(&request, &plan.id(), &()).unwrap());
    assert!(!blob.exists() && !copy.exists() && unrelated.exists());
    assert_eq!(found(place.home(), &traces()), [""; 0]);
    place.verify_clean();
}

#[test]
fn what_was_dropped_before_goes_with_it() {
    let place = Place::in_memory();
    let packing = Packing { above_files: 0, ..Packing::default() };
    let store = Store::with_packing(place.home(), packing);
    let taken = turns(&place, &store);
    let mut rule = turnpoint::PruneRule::default();
    rule.keep = 2;
    drop(store.prune(None, rule, &()).unwrap());
    // A collection leaves it: it lost its last name a moment ago.
    drop(store.gc(&()).unwrap());
    assert!(found(place.home(), &traces()).contains(&"the noise of the first"));
    drop(purge(&store, &request(&place, &["keys"])).unwrap());
    assert_eq!(found(place.home(), &traces()), [""; 0]);
    assert_others_whole(&place, &store, &taken[2..]);
}

/// A purge that has nothing left to do but to remove what no checkpoint names, as one that was killed
/// then has left it.
fn removing(place: &Place) -> PathBuf {
    interrupted(place, "removing")
}

fn interrupted(place: &Place, phase: &str) -> PathBuf {
    let text = |digest: &str| {
        format!(
            "{{\"format\":1,\"phase\":\"{phase}\",\"workspace\":\"{}\",\"manifests\":[],\
             \"quarantined\":[],\"account\":{{\"paths\":[\"x\"]}},\"digest\":\"{digest}\"}}",
            "0".repeat(32)
        )
    };
    let digest = turnpoint::hash::Digest::of(text("").as_bytes()).to_string();
    let path = place.store().root().join("journal/purge.json");
    fs::write(&path, text(&digest)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path
}

/// What is told, when anything is. A command does not wait for the store, and for a moment a process that
/// another test starts may have inherited the lock that was given back.
#[track_caller]
fn told_by(mut command: impl FnMut(&Told)) -> Vec<Notice> {
    for _ in 0..100 {
        let told = Told::default();
        command(&told);
        if !told.notices().is_empty() {
            return told.notices();
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("nothing is told");
}

#[test]
fn a_removal_that_was_interrupted_is_completed_or_left_for_later_and_stops_nobody() {
    let place = Place::in_memory();
    let store = place.store();
    let taken = turns(&place, &store);
    let mut rule = turnpoint::PruneRule::default();
    rule.keep = 1;
    drop(store.prune(None, rule, &()).unwrap());
    let path = removing(&place);
    let kinds = |store: &Store| -> Vec<FindingKind> {
        let report = store.verify(VerifyOptions::default(), &()).unwrap();
        report.findings.iter().map(|it| it.kind).collect()
    };
    assert_eq!(kinds(&store), [FindingKind::PurgeUnfinished]);
    // Where something cannot be understood nothing is removed, and a capture goes on.
    let session = store.root().join(taken[0].0.session.as_str());
    fs::write(session.join("90.json"), "what is this").unwrap();
    let mut captured = None;
    let told = told_by(|told| {
        let outcome = store.capture(place.root(), &CaptureOptions::default(), told).unwrap();
        assert!(outcome.created);
        captured = Some(outcome.checkpoint);
    });
    let is_left = |notice: &Notice| matches!(notice, Notice::PurgeLeftOpen { reason } if reason.contains("90.json"));
    assert!(told.iter().any(is_left), "{told:?}");
    assert!(path.exists() && found(place.home(), &traces()).contains(&"the noise of the first"));
    // Another purge waits for this one.
    let error = store.purge(&request(&place, &["a.txt"]), "", &()).unwrap_err();
    assert!(matches!(error, Error::DeletionBlocked { .. }), "{error:?}");
    fs::remove_file(session.join("90.json")).unwrap();
    let captured = captured.unwrap();
    let told = told_by(|told| store.pin(&captured, None, told).unwrap());
    assert_eq!(told, [Notice::PurgeCompleted { manifests: 0 }]);
    assert!(!path.exists());
    let left = found(place.home(), &traces());
    // Of the index only what was built anew before this phase is free of them.
    let is_content = |it: &&str| it.starts_with("the noise of") || *it == "the lines";
    assert!(!left.iter().any(is_content), "{left:?}");
    place.verify_clean();
}

#[test]
fn a_plan_leaves_an_interrupted_purge_as_it_is() {
    let place = Place::in_memory();
    let store = place.store();
    let taken = turns(&place, &store);
    let (session, options) = (&taken[0].0.session, RestoreOptions::default());
    let mut rule = turnpoint::PruneRule::default();
    rule.keep = 1;
    let plans: [&dyn Fn() -> Result<()>; 5] = [
        &|| store.plan_restore(place.root(), &taken[0].0, &options, &()).map(drop),
        &|| store.plan_revert(place.root(), &taken[3].0, &options, &()).map(drop),
        &|| store.plan_gc(&()).map(drop),
        &|| store.plan_prune(None, rule, &()).map(drop),
        &|| store.plan_session_deletion(session, false, &()).map(drop),
    ];
    for plan in plans {
        plan().unwrap();
    }
    let path = interrupted(&place, "rewriting");
    let before = files(&store);
    for plan in plans {
        let error = plan().unwrap_err();
        assert_eq!((error.code(), error.class()), ("purge-interrupted", ErrorClass::Refused));
        assert!(error.to_string().contains("journal/purge.json"), "{error}");
        fingerprint::assert_same(&before, &files(&store));
    }
    // Where only content is left to be removed, a plan has all that it needs.
    removing(&place);
    let before = files(&store);
    for plan in plans {
        plan().unwrap();
        fingerprint::assert_same(&before, &files(&store));
    }
    interrupted(&place, "rewriting");
    store.pin(&taken[0].0, None, &()).unwrap();
    assert!(!path.exists());
    place.verify_clean();
}

#[test]
fn what_fails_after_the_decision_says_that_it_was_decided() {
    let place = Place::in_memory();
    let store = place.store();
    turns(&place, &store);
    let request = request(&place, &["keys"]);
    // In the place of the new index.
    let in_the_way = store.root().join("index.db.new");
    fs::create_dir_all(in_the_way.join("full")).unwrap();
    let error = purge(&store, &request).unwrap_err();
    assert_eq!(error.code(), "purge-unfinished", "{error:?}");
    let hint = error.hint().unwrap();
    assert!(hint.ends_with("the next command that writes completes it"), "{hint}");
    let decided = store.root().join("journal/purge.json");
    assert!(decided.exists());
    fs::remove_dir_all(in_the_way).unwrap();
    place.capture();
    assert!(!decided.exists());
    assert_eq!(found(place.home(), &traces()), [""; 0]);
    place.verify_clean();
}

#[test]
fn a_decision_that_cannot_be_read_stops_writers_until_it_is_set_aside() {
    let place = Place::in_memory();
    let store = place.store();
    turns(&place, &store);
    let path = removing(&place);
    let text = fs::read_to_string(&path).unwrap().replace("removing", "rewriting");
    fs::write(&path, text).unwrap();
    let error = store.capture(place.root(), &CaptureOptions::default(), &()).unwrap_err();
    let Error::DeletionBlocked { files } = &error else { panic!("{error:?}") };
    assert!(files[0].reason.contains("doctor --rebuild"), "{}", files[0].reason);
    let report = store.verify(VerifyOptions::default(), &()).unwrap();
    assert_eq!(report.findings[0].kind, FindingKind::PurgeUnfinished);
    let treatment = store.mend(&()).unwrap();
    let mended: Vec<_> = treatment.mended.iter().map(|it| it.condition.as_str()).collect();
    assert_eq!(mended, ["purge-unfinished"]);
    assert!(treatment.mended[0].aside.as_ref().unwrap().exists() && !path.exists());
    place.capture();
    place.verify_clean();
}
