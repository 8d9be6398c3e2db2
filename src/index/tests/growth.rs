//! How much of the index a change writes.

use super::*;

/// How many pages `body` writes to the WAL.
fn pages_written(index: &Index, body: impl FnOnce()) -> i64 {
    let checkpoint = |mode: &str| -> i64 {
        let sql = format!("PRAGMA wal_checkpoint({mode})");
        index.lock().query_row(&sql, [], |row| row.get(1)).unwrap()
    };
    checkpoint("TRUNCATE");
    body();
    checkpoint("PASSIVE")
}

#[test]
fn a_turn_without_a_change_writes_a_few_pages_of_the_index() {
    let mut fixture = Fixture::new();
    let entries = many(2_000);
    // More than fits on one page of each table, so that no two tables or rows share one by chance.
    for seq in 0..30 {
        fixture.record(&id("s", seq), &entries);
    }
    let capture = operation(OperationKind::Capture, Some(id("s", 29)));
    let next = manifest(id("s", 30), build(&entries).tree);
    let (text, digest) = next.encode();
    let index = &fixture.index;
    let written = pages_written(index, || {
        index.write("begin", |tx| tx.insert_operation(&capture)).unwrap();
        index
            .write("reserve", |tx| {
                let seq = tx.reserve_seq(&next.id.session, 0)?;
                assert_eq!(seq, next.id.seq);
                tx.set_intent(capture.id, &next.id)
            })
            .unwrap();
        index
            .write("record", |tx| {
                let (stored, pin) = (HashMap::new(), PinFile::default());
                let bytes = text.len() as u64;
                tx.insert_checkpoint(&next, digest, bytes, &pin, &stored, &fixture.pages)?;
                tx.remove_operation(capture.id)
            })
            .unwrap();
    });
    assert!(written <= 7, "{written} pages of 4 KiB");
}

/// A tree shaped as a monorepo is: each package has 1,000 files in 50 folders.
fn packages(count: usize) -> Vec<Entry> {
    let mut entries = vec![dir("")];
    for package in 0..count {
        entries.push(dir(&format!("packages/package-{package:03}")));
        for module in 0..50 {
            let folder = format!("packages/package-{package:03}/source/module-{module:02}");
            entries.push(dir(&folder));
            for n in 0..20 {
                let path = format!("{folder}/component-{n:02}.rs");
                entries.push(file(&path, &format!("content of {path}")));
            }
        }
    }
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    entries
}

/// Records a first checkpoint and one more for each number of `edits`, which are spread over the
/// tree, and says how many pages of the index each wrote.
fn grow(index: &Index, mut entries: Vec<Entry>, edits: &[usize]) -> Vec<i64> {
    let mut pages = Pages::default();
    let files: Vec<usize> = (0..entries.len()).filter(|&at| entries[at].blob().is_some()).collect();
    let mut record = |seq: usize, entries: &[Entry]| {
        let trigger = Trigger::new(["turn-start", "turn-end"][seq % 2]).unwrap();
        let tree = pages.add(entries);
        let manifest = Manifest { trigger, ..manifest(id("large", seq as u64), tree) };
        let (text, digest) = manifest.encode();
        let (stored, pin) = (HashMap::new(), PinFile::default());
        let mut took = std::time::Duration::ZERO;
        let written = pages_written(index, || {
            let begin = std::time::Instant::now();
            index
                .write("record", |tx| {
                    let bytes = text.len() as u64;
                    tx.insert_checkpoint(&manifest, digest, bytes, &pin, &stored, &pages)
                })
                .unwrap();
            took = begin.elapsed();
        });
        println!("checkpoint {seq}: {took:?}, {written} pages");
        written
    };
    let mut written = vec![record(0, &entries)];
    for (seq, edits) in (1..).zip(edits) {
        for n in 0..*edits {
            let at = files[(n * 7_919 + seq * 104_729) % files.len()];
            let path = String::from_utf8(entries[at].path.as_bytes().to_vec()).unwrap();
            entries[at] = file(&path, &format!("{seq} of {path}"));
        }
        written.push(record(seq, &entries));
    }
    written
}

/// With `TURNPOINT_MEASURE=DIR` the index is left in that directory, holds 20 checkpoints of 100,000
/// files, and what each took is printed: docs/sql.md has the figures.
#[test]
fn what_an_edit_writes_to_the_index_does_not_depend_on_the_size_of_the_tree() {
    if let Some(place) = std::env::var_os("TURNPOINT_MEASURE").map(PathBuf::from) {
        make_index(&place);
        let edits = [&[100; 16][..], &[10, 1, 0]].concat();
        grow(&open(&place), packages(100), &edits);
        let begin = std::time::Instant::now();
        let index = open(&place);
        println!("opened: {:?}", begin.elapsed());
        let begin = std::time::Instant::now();
        index.write("delete", |tx| tx.delete_checkpoint(&id("large", 0))).unwrap();
        println!("deleted one: {:?}", begin.elapsed());
        return;
    }
    let fixture = Fixture::new();
    let written = grow(&fixture.index, packages(10), &[1, 10, 1, 0]);
    assert!(written[0] > 500, "the tree is large: {written:?}");
    assert!(written[1] <= 60 && written[2] <= 400, "{written:?}");
    assert!(written[3] <= 60 && written[4] <= 5, "{written:?}");
}
