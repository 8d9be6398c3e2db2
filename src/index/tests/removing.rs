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
