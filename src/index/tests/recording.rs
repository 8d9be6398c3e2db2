//! Recording checkpoints, and how they come back.

use super::*;

#[test]
fn numbers_are_given_once_and_above_what_the_files_say() {
    let fixture = Fixture::new();
    let reserve = |name: &str, lowest| {
        let session = SessionName::new(name).unwrap();
        fixture.index.write("reserve", |tx| tx.reserve_seq(&session, lowest)).unwrap().get()
    };
    assert_eq!([reserve("s", 0), reserve("S", 0), reserve("s", 9), reserve("s", 3)], [0, 1, 9, 10]);
    let sessions = fixture.index.read("list sessions", |tx| tx.sessions()).unwrap();
    assert_eq!((sessions[0].name.as_str(), sessions[0].next_seq, sessions.len()), ("s", 11, 1));
}

#[test]
fn recording_twice_is_recording_once() {
    let mut fixture = Fixture::new();
    let first = fixture.record(&id("s", 4), &many(200));
    let counts = fixture.counts();
    assert_eq!((counts.checkpoints, counts.entries), (1, 201));
    assert_eq!(fixture.insert(&first).unwrap(), Recorded::Before);
    assert_eq!(fixture.counts(), counts);
    let other = Manifest { label: Some("x".to_owned()), ..first };
    assert!(matches!(fixture.insert(&other), Err(Error::IndexDamaged { .. })));
    let next = fixture.index.write("reserve", |tx| tx.reserve_seq(&id("s", 0).session, 0)).unwrap();
    assert_eq!(next.get(), 5, "an adopted number is not given again");
}

#[test]
fn only_pages_that_nothing_named_are_read() {
    let mut fixture = Fixture::new();
    let mut entries = many(5_000);
    fixture.record(&id("s", 0), &entries);
    fixture.pages.asked.set(0);
    fixture.record(&id("s", 1), &entries);
    assert_eq!(fixture.pages.asked.get(), 0);
    entries[2_500] = file("f02499", "edited");
    let tree = fixture.record(&id("s", 2), &entries).tree;
    assert_eq!(fixture.pages.asked.get(), usize::from(tree.levels));
}

#[test]
fn a_page_that_cannot_be_read_leaves_nothing_behind() {
    let mut fixture = Fixture::new();
    let tree = fixture.pages.add(&many(1_000));
    let lost = build(&many(1_000)).pages[3].reference.hash;
    fixture.pages.texts.remove(&lost);
    let found = fixture.insert(&manifest(id("s", 0), tree));
    assert!(matches!(found, Err(Error::BlobMissing { hash }) if hash == lost));
    assert_eq!(fixture.counts(), IndexCounts::default());
}

#[test]
fn a_checkpoint_comes_back_as_it_was_recorded() {
    let mut fixture = Fixture::new();
    let before = fixture.record(&id("s", 0), &many(2));
    let tree = fixture.pages.add(&many(3));
    let after = fixture.pages.add(&[file("f00001", "then"), entry("gone", EntryKind::Absent)]);
    let target = crate::manifest::CheckpointRef { id: before.id.clone(), digest: Digest::of(b"x") };
    let safety = Manifest {
        label: Some("own".to_owned()),
        trigger: Trigger::PRE_RESTORE,
        complete: false,
        restore: Some(RestoreRecord { verb: RestoreVerb::Restore, target, undoes: None, after }),
        ..manifest(id("s", 1), tree)
    };
    fixture.insert(&safety).unwrap();
    let pin = PinFile { pinned: true, label: Some("later".to_owned()), note: None };
    fixture.index.write("pin", |tx| tx.set_pin(&safety.id, &pin)).unwrap();

    let row = fixture.index.read("read", |tx| tx.checkpoint(&id("S", 1))).unwrap().unwrap();
    let (text, digest) = safety.encode();
    assert_eq!((&row.id, row.digest, row.op), (&safety.id, digest, safety.op));
    assert_eq!((row.manifest_bytes, row.workspace), (text.len() as u64, workspace()));
    assert_eq!((row.created_at, row.complete), (safety.created_at, false));
    assert_eq!((row.tree, row.after, row.state), (tree, Some(after), CheckpointState::Live));
    assert_eq!((row.label(), &row.pin, row.is_safety()), (Some("later"), &pin, true));

    fixture
        .index
        .read("read", |tx| {
            let seqs = |rows: Vec<crate::checkpoint::CheckpointRow>| {
                rows.iter().map(|row| row.id.seq.get()).collect::<Vec<_>>()
            };
            let newest = |safety| {
                let found = tx.newest_of_workspace(workspace(), safety).unwrap().unwrap();
                found.id.seq.get()
            };
            assert_eq!((newest(true), newest(false)), (1, 0));
            assert_eq!(seqs(tx.checkpoints_of_workspace(workspace())?), [1, 0]);
            assert_eq!(seqs(tx.checkpoints_of_session(&safety.id.session)?), [0, 1]);
            assert_eq!(seqs(tx.all_checkpoints()?), [0, 1]);
            assert_eq!(tx.checkpoint(&id("s", 2))?, None);
            assert_eq!(tx.newest_of_workspace(WorkspaceId::random(), true)?, None);
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_pruned_checkpoint_is_gone_for_those_who_would_rely_on_it() {
    let mut fixture = Fixture::new();
    for seq in 0..4 {
        fixture.record(&id("s", seq), &many(5));
    }
    let capture = operation(OperationKind::Capture, Some(id("s", 0)));
    let restore = operation(OperationKind::Restore, None);
    let index = &fixture.index;
    index
        .write("begin", |tx| {
            tx.insert_operation(&capture)?;
            tx.insert_operation(&restore)?;
            tx.pin_checkpoints(restore.id, &[id("s", 1)])
        })
        .unwrap();
    let all: Vec<_> = (0..3).map(|seq| id("s", seq)).collect();
    let marked = index.write_durably("prune", |tx| tx.mark_pruning(&all)).unwrap();
    assert_eq!(marked, [id("s", 2)]);
    assert_eq!(index.read("list", |tx| tx.pruning_checkpoints()).unwrap(), marked);

    let late = operation(OperationKind::Capture, Some(id("s", 2)));
    let pruned = |found: Result<()>| {
        assert!(
            matches!(found, Err(Error::Pruned { ref checkpoint }) if *checkpoint == id("s", 2))
        );
    };
    pruned(index.write("begin", |tx| tx.insert_operation(&late)));
    pruned(index.write("begin", |tx| tx.set_base(capture.id, Some(&id("s", 2)))));
    pruned(index.write("begin", |tx| tx.pin_checkpoints(restore.id, &[id("s", 2)])));
    pruned(index.write("pin", |tx| tx.set_pin(&id("s", 2), &PinFile::default())));
    let absent = index.write("begin", |tx| tx.set_base(capture.id, Some(&id("s", 9))));
    let nearest = [3, 1, 0].map(|seq| Seq::new(seq).unwrap());
    assert!(
        matches!(absent, Err(Error::CheckpointNotFound { nearest: found, .. }) if found == nearest)
    );

    // What an operation relies on cannot be deleted even by mistake.
    assert!(index.write("delete", |tx| tx.delete_checkpoint(&id("s", 0))).is_err());
    assert!(index.write("delete", |tx| tx.delete_checkpoint(&id("s", 1))).is_err());
    index.write("end", |tx| tx.remove_operation(capture.id)).unwrap();
    index.write("end", |tx| tx.remove_operation(restore.id)).unwrap();
    fixture.delete(&id("s", 2));
    fixture.delete(&id("s", 2));
    fixture.delete(&id("s", 0));
    assert_eq!(fixture.counts().checkpoints, 2);
}

#[test]
fn an_index_is_rebuilt_in_bulk_with_what_cannot_be_read_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let handle = Dir::open(dir.path()).unwrap();
    let mut pages = Pages::default();
    let readable = manifest(id("s", 0), pages.add(&many(300)));
    let lost = manifest(id("s", 1), build(&many(400)).tree);
    let index = Index::create_new(&handle).unwrap();
    for (manifest, ok) in [(&lost, false), (&readable, true)] {
        let (text, digest) = manifest.encode();
        let (stored, pin) = (HashMap::new(), PinFile::default());
        let found = index.write("record", |tx| {
            tx.insert_checkpoint(manifest, digest, text.len() as u64, &pin, &stored, &pages)
        });
        assert_eq!(found.is_ok(), ok, "{found:?}");
    }
    index.close_without_wal().unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    std::fs::rename(dir.path().join(NEW_FILE_NAME), dir.path().join(FILE_NAME)).unwrap();
    let index = open(dir.path());
    let counts = index.read("count", |tx| tx.counts()).unwrap();
    assert_eq!((counts.checkpoints, counts.entries, counts.sessions), (1, 301, 1));
    assert_eq!(index.read("check", |tx| tx.recount()).unwrap(), []);
}
