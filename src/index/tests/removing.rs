//! Operations, pins, and which blobs may go.

use super::*;

#[test]
fn an_operation_comes_back_as_it_was_recorded() {
    let mut fixture = Fixture::new();
    fixture.record(&id("s", 0), &many(1));
    let new = operation(OperationKind::Capture, Some(id("s", 0)));
    let index = &fixture.index;
    index
        .write("begin", |tx| {
            tx.insert_operation(&new)?;
            tx.set_pin_all(new.id)?;
            tx.set_intent(new.id, &id("t", 6))?;
            tx.pin_blobs(new.id, &[hash("a"), hash("a"), hash("b")])
        })
        .unwrap();
    let found = index.read("list", |tx| tx.operations()).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!((&found[0].operation, found[0].pin_all), (&new, true));
    assert_eq!(found[0].intent, Some(id("t", 6)));
    assert!(index.read("look", |tx| tx.operation_exists(new.id)).unwrap());
    assert_eq!((fixture.counts().operations, fixture.counts().pins), (1, 2));
    index.write("end", |tx| tx.remove_operation(new.id)).unwrap();
    assert_eq!((fixture.counts().operations, fixture.counts().pins), (0, 0));
    assert!(!index.read("look", |tx| tx.operation_exists(new.id)).unwrap());
}

#[test]
fn only_a_blob_that_nothing_names_or_pins_is_removable() {
    let mut fixture = Fixture::new();
    fixture.record(&id("s", 0), &[dir(""), file("a", "named"), file("b", "twice")]);
    fixture.record(&id("s", 1), &[dir(""), file("b", "twice")]);
    let root = build(&[dir(""), file("b", "twice")]).tree.root;
    let index = &fixture.index;
    index.write("note", |tx| tx.note_blob(hash("stray"), None, Some(9))).unwrap();
    assert_eq!(candidates(index), [hash("stray")]);

    let removable = |hash| index.write("look", |tx| tx.is_removable(hash)).unwrap();
    let named = [hash("named"), hash("twice"), root];
    assert_eq!(named.map(removable), [false; 3]);
    for hash in named {
        assert!(index.write("delete", |tx| tx.delete_blob(hash)).is_err(), "rows name it");
    }
    fixture.delete(&id("s", 0));
    assert_eq!([removable(hash("named")), removable(hash("twice"))], [true, false]);

    let sweep = operation(OperationKind::Sweep, None);
    index.write("begin", |tx| tx.insert_operation(&sweep)).unwrap();
    index.write("pin", |tx| tx.pin_blobs(sweep.id, &[hash("stray")])).unwrap();
    assert!(!removable(hash("stray")) && removable(hash("named")));
    assert!(!candidates(index).contains(&hash("stray")));
    index.write("pin", |tx| tx.set_pin_all(sweep.id)).unwrap();
    assert!(!removable(hash("named")) && !removable(hash("no row")));
    index.write("end", |tx| tx.remove_operation(sweep.id)).unwrap();
    assert!(removable(hash("stray")) && removable(hash("no row")));
    index.write("delete", |tx| tx.delete_blob(hash("stray"))).unwrap();
    assert!(!candidates(index).contains(&hash("stray")));
}

#[test]
fn candidates_come_oldest_first_in_portions_and_never_too_young() {
    let fixture = Fixture::new();
    let index = &fixture.index;
    for n in 0..10 {
        index.write("note", |tx| tx.note_blob(hash(&n.to_string()), Some(1), None)).unwrap();
    }
    let stamp = "UPDATE blobs SET zero_since_ns = 100 + id / 3";
    index.lock().execute_batch(stamp).unwrap();
    let before = Timestamp::from_ns(102);
    let mut seen = Vec::new();
    loop {
        let portion = index.read("list", |tx| tx.sweep_candidates(before, seen.last(), 3)).unwrap();
        if portion.is_empty() {
            break;
        }
        assert!(portion.len() <= 3);
        seen.extend(portion);
    }
    assert!(seen.is_sorted_by_key(|blob| (blob.since, blob.hash)));
    let hashes: HashSet<_> = seen.iter().map(|blob| blob.hash).collect();
    assert_eq!((hashes.len(), seen.len()), (8, 8));
}

#[test]
fn what_is_known_of_a_blob_is_kept() {
    let mut fixture = Fixture::new();
    let index = &fixture.index;
    index.write("note", |tx| tx.note_blob(hash("x"), None, Some(7))).unwrap();
    index.write("note", |tx| tx.set_blob_state(hash("x"), BlobState::Missing)).unwrap();
    index.write("note", |tx| tx.set_blob_state(hash("no row"), BlobState::Damaged)).unwrap();
    fixture.record(&id("s", 0), &[dir(""), file("x", "x")]);
    let index = &fixture.index;
    let lost = index.read("list", |tx| tx.lost_blobs()).unwrap();
    assert_eq!(lost, [(hash("x"), BlobState::Missing)]);
    let sizes = index.read("list", |tx| tx.stored_sizes(&[hash("x"), hash("y")])).unwrap();
    assert_eq!(sizes, HashMap::from([(hash("x"), 7)]));
    index.write("note", |tx| tx.set_blob_state(hash("x"), BlobState::Ok)).unwrap();
    assert_eq!(index.read("list", |tx| tx.lost_blobs()).unwrap(), []);
    assert_eq!(candidates(index), [], "the reference counts for a row that was there before");
}

#[test]
fn an_index_of_which_most_is_free_gives_it_back_and_says_the_same_as_before() {
    let mut fixture = Fixture::new();
    let path = fixture.index.path.clone();
    let length = || std::fs::metadata(&path).unwrap().len();
    // The order in which a dump has views and indexes is not what matters.
    let lines = |fixture: &Fixture| {
        let dump = fixture.sqlite3(".dump");
        let mut lines: Vec<String> = dump.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    fixture.record(&id("s", 0), &many(60));
    fixture.record(&id("s", 1), &many(12_000));
    fixture.index.empty_wal().unwrap();
    let before = lines(&fixture);
    assert_eq!(fixture.index.give_back_space().unwrap(), 0, "nothing is free");

    fixture.delete(&id("s", 1));
    let gone = candidates(&fixture.index);
    let index = &fixture.index;
    index.write("delete", |tx| gone.iter().try_for_each(|blob| tx.delete_blob(*blob))).unwrap();
    let kept = lines(&fixture);
    assert!(kept.len() < before.len() / 3);
    index.empty_wal().unwrap();
    let full = length();
    // Somebody who reads meanwhile goes on seeing what he saw.
    let reader = open(path.parent().unwrap());
    let given_back = reader
        .read("look", |tx| {
            let checkpoints = tx.checkpoints_of_session(&id("s", 0).session)?;
            let given_back = fixture.index.give_back_space()?;
            assert_eq!(tx.checkpoints_of_session(&id("s", 0).session)?, checkpoints);
            Ok(given_back)
        })
        .unwrap();
    fixture.index.empty_wal().unwrap();
    assert_eq!(full - length(), given_back);
    assert!(length() < full / 4, "{} of {full}", length());
    assert!(lines(&fixture) == kept, "a row is another");
    assert_eq!(fixture.index.read("check", |tx| tx.integrity(true)).unwrap(), Vec::<String>::new());
    assert_eq!(fixture.index.give_back_space().unwrap(), 0);
}

#[test]
fn an_index_that_somebody_writes_to_is_left_as_it_is() {
    let mut fixture = Fixture::new();
    fixture.record(&id("s", 0), &many(12_000));
    fixture.delete(&id("s", 0));
    let gone = candidates(&fixture.index);
    let index = &fixture.index;
    index.write("delete", |tx| gone.iter().try_for_each(|blob| tx.delete_blob(*blob))).unwrap();
    index.lock().busy_timeout(std::time::Duration::ZERO).unwrap();
    let other = open(index.path.parent().unwrap());
    let given_back = other.write("hold", |_| index.give_back_space()).unwrap();
    assert_eq!(given_back, 0);
    assert!(index.give_back_space().unwrap() > limits::INDEX_GIVEN_BACK_BYTES_MIN);
}
