//! What keeps content from being removed too soon, where something failed or two did it at once.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::inotify;
use turnpoint::{CaptureOptions, Error, ListQuery, Notice, PruneRule, RestoreOptions};

use crate::model::truth::{self, blobs_on_disk, sql};
use crate::place::{Place, Told};
use crate::support::fingerprint;
use crate::support::tree::{self, file};

/// Makes every insertion of a checkpoint's row fail, as a full disk would.
const REFUSE: &str = "CREATE TRIGGER refuse BEFORE INSERT ON checkpoints
    BEGIN SELECT RAISE(ABORT, 'refused'); END";
const ALLOW: &str = "DROP TRIGGER refuse";

fn count(place: &Place, table: &str) -> u64 {
    let rows = sql(place.store().root(), &format!("SELECT count(*) FROM {table}"));
    rows[0].parse().unwrap()
}

fn age(place: &Place) {
    truth::age(place.store().root());
}

fn is_blocked(place: &Place, path: &Path) -> bool {
    match place.store().gc(&()) {
        Err(Error::DeletionBlocked { files }) => files.iter().any(|file| file.path == path),
        other => panic!("{other:?}"),
    }
}

fn session_directory(place: &Place) -> PathBuf {
    let id = place.capture();
    place.store().root().join(id.session.as_str())
}

#[test]
fn pins_outlive_a_capture_whose_rows_could_not_be_inserted() {
    let place = Place::new();
    tree::build(place.root(), [("a", file("first"))]);
    place.capture();
    sql(place.store().root(), REFUSE);
    tree::build(place.root(), [("a", file("second")), ("b", file("new"))]);
    let told = Told::default();
    let options = CaptureOptions::default();
    let captured = place.store().capture(place.root(), &options, &told).unwrap();
    let is_told = |notice: &Notice| matches!(notice, Notice::AfterCommit { .. });
    assert!(told.notices().iter().any(is_told), "{:?}", told.notices());
    // The new contents and the page.
    assert_eq!((count(&place, "operations"), count(&place, "pins")), (1, 3));
    sql(place.store().root(), ALLOW);
    age(&place);
    let collected = place.store().gc(&()).unwrap();
    assert_eq!((collected.sweep.adopted, collected.sweep.blobs_removed), (1, 0));
    assert_eq!((count(&place, "operations"), count(&place, "pins")), (0, 0));
    fs::write(place.root().join("a"), "third").unwrap();
    place.go_back(&captured.checkpoint);
    assert_eq!(fs::read(place.root().join("a")).unwrap(), b"second");
    place.verify_clean();
}

#[test]
fn undo_finds_a_restore_whose_rows_could_not_be_inserted() {
    let place = Place::new();
    tree::build(place.root(), [("a", file("first"))]);
    let first = place.capture();
    fs::write(place.root().join("a"), "second").unwrap();
    let before = place.look();
    sql(place.store().root(), REFUSE);
    let mut options = RestoreOptions::default();
    options.session = Some("elsewhere".to_owned());
    let restored = place.store().restore(place.root(), &first, &options, &()).unwrap();
    assert_eq!(restored.left, []);
    assert_eq!(fs::read(place.root().join("a")).unwrap(), b"first");
    sql(place.store().root(), ALLOW);
    assert_eq!(place.undo().changed, 1);
    fingerprint::assert_same(&before, &place.look());
}

/// A writing transaction of another process: begun, and not committed before [`Elsewhere::commit`].
struct Elsewhere(std::process::Child);

impl Elsewhere {
    fn begin(place: &Place, statement: &str) -> Self {
        let mut child = Command::new("sqlite3")
            .args(["-cmd", ".timeout 10000"])
            .arg(place.store().root().join("index.db"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let statement = format!("BEGIN IMMEDIATE; {statement}; SELECT 'begun';");
        writeln!(child.stdin.as_mut().unwrap(), "{statement}").unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "begun\n");
        Self(child)
    }

    fn commit(mut self) {
        writeln!(self.0.stdin.take().unwrap(), "COMMIT;").unwrap();
        assert!(self.0.wait().unwrap().success());
    }
}

/// Says when a file that is there now has been read, by whomever.
struct Read(OwnedFd);

impl Read {
    fn of(path: &Path) -> Self {
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        let watch = inotify::init(flags).unwrap();
        inotify::add_watch(&watch, path, inotify::WatchFlags::CLOSE_NOWRITE).unwrap();
        Self(watch)
    }

    #[track_caller]
    fn wait(self) {
        let begun = Instant::now();
        while rustix::io::read(&self.0, &mut [0; 4096]).is_err() {
            assert!(begun.elapsed() < Duration::from_mins(1), "nobody has read it");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn a_checkpoint_that_is_pinned_while_a_prune_waits_is_kept() {
    let place = Place::new();
    let mut ids = Vec::new();
    for number in 0..3 {
        tree::build(place.root(), [("a", file(format!("{number}")))]);
        ids.push(place.capture());
    }
    // So that there is a file which a plan that would drop it reads.
    place.store().label(&ids[0], Some("a label"), &()).unwrap();
    let session = place.store().root().join(ids[0].session.as_str());
    let planned = Read::of(&session.join("0.pin"));
    let pin = Elsewhere::begin(&place, "UPDATE checkpoints SET pinned = 1 WHERE seq = 0");
    let pruned = std::thread::scope(|scope| {
        let pruning = scope.spawn(|| {
            let mut rule = PruneRule::default();
            rule.keep = 1;
            place.store().prune(None, rule, &()).unwrap()
        });
        // It is to be dropped, by what is committed, and marking it waits for the other transaction.
        planned.wait();
        assert!(!pruning.is_finished());
        pin.commit();
        pruning.join().unwrap()
    });
    let pruned: Vec<u64> = pruned.pruned.iter().map(|id| id.seq.get()).collect();
    assert_eq!(pruned, [1]);
    assert_eq!(place.checkpoints(), 2);
}

#[test]
fn a_manifest_that_goes_while_it_is_adopted_gets_no_row() {
    let place = Place::new();
    tree::build(place.root(), [("a", file("first"))]);
    let first = place.capture();
    place.store().label(&first, Some("a label"), &()).unwrap();
    let session = place.store().root().join(first.session.as_str());
    sql(place.store().root(), REFUSE);
    fs::write(place.root().join("a"), "second").unwrap();
    let second = place.capture();
    sql(place.store().root(), ALLOW);
    // A pin file is read once its manifest has been.
    let pin = session.join(format!("{}.pin", second.seq));
    fs::copy(session.join("0.pin"), &pin).unwrap();
    let adopting = Read::of(&pin);
    let elsewhere = Elsewhere::begin(&place, "DELETE FROM checkpoints WHERE 0");
    let collected = std::thread::scope(|scope| {
        let collecting = scope.spawn(|| place.store().gc(&()).unwrap());
        adopting.wait();
        assert!(!collecting.is_finished());
        // As the last step of a prune.
        fs::remove_file(session.join(format!("{}.json", second.seq))).unwrap();
        fs::remove_file(&pin).unwrap();
        elsewhere.commit();
        collecting.join().unwrap()
    });
    assert_eq!((collected.sweep.adopted, count(&place, "checkpoints")), (0, 1));
    place.verify_clean();
}

#[test]
fn two_changes_of_one_pin_at_once_both_hold() {
    let place = Place::new();
    tree::build(place.root(), [("a", file("a"))]);
    let id = place.capture();
    for round in 0..20 {
        place.store().unpin(&id, &()).unwrap();
        place.store().label(&id, None, &()).unwrap();
        let label = format!("round {round}");
        std::thread::scope(|scope| {
            scope.spawn(|| place.store().pin(&id, Some("a note"), &()).unwrap());
            scope.spawn(|| place.store().label(&id, Some(&label), &()).unwrap());
        });
        let pin = place.store().root().join(id.session.as_str()).join(format!("{}.pin", id.seq));
        let pin: serde_json::Value = serde_json::from_slice(&fs::read(pin).unwrap()).unwrap();
        let said = (&pin["pinned"], pin["note"].as_str(), pin["label"].as_str());
        assert_eq!(said, (&true.into(), Some("a note"), Some(&*label)));
    }
}

#[test]
fn what_is_said_about_a_checkpoint_without_a_row_is_not_lost() {
    let place = Place::new();
    tree::build(place.root(), [("a", file("a"))]);
    let id = place.capture();
    place.store().pin(&id, Some("a note"), &()).unwrap();
    let session = place.store().root().join(id.session.as_str());
    let pin = session.join(format!("{}.pin", id.seq));
    let before = fs::read(&pin).unwrap();
    let text = fs::read(session.join(format!("{}.json", id.seq))).unwrap();
    let manifest: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let page = manifest["root"].as_str().unwrap();
    // Without its page the manifest gets no row when the index is built anew.
    fs::remove_file(place.blob(page)).unwrap();
    for name in ["index.db", "index.db-wal", "index.db-shm"] {
        drop(fs::remove_file(place.store().root().join(name)));
    }
    assert!(place.store().label(&id, Some("a label"), &()).is_err());
    assert_eq!(fs::read(&pin).unwrap(), before);
}

#[test]
fn a_session_that_is_a_symlink_blocks_deletion() {
    let place = Place::new();
    tree::build(place.root(), [("a", file("a"))]);
    let session = session_directory(&place);
    let elsewhere = place.home().join("elsewhere");
    fs::rename(&session, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &session).unwrap();
    for name in ["index.db", "index.db-wal", "index.db-shm"] {
        drop(fs::remove_file(place.store().root().join(name)));
    }
    // Makes the index anew; of what the link leads to it knows nothing.
    assert!(is_blocked(&place, &session));
    age(&place);
    let blobs = blobs_on_disk(place.store().root()).len();
    assert!(is_blocked(&place, &session));
    assert_eq!(blobs_on_disk(place.store().root()).len(), blobs);
    fs::remove_file(&session).unwrap();
    fs::rename(&elsewhere, &session).unwrap();
    assert_eq!(place.store().gc(&()).unwrap().sweep.adopted, 1);
    place.verify_clean();
}

#[test]
fn several_may_reap_one_dead_operation() {
    let place = Place::new();
    tree::build(place.root(), [("a", file("first"))]);
    place.capture();
    // One operation of this boot without a process, for the others to be like.
    sql(place.store().root(), REFUSE);
    fs::write(place.root().join("a"), "second").unwrap();
    place.capture();
    sql(place.store().root(), ALLOW);
    for round in 1..=6 {
        let statement = format!(
            "INSERT INTO operations SELECT CAST(char({round}) || printf('%015d', value) AS BLOB),
                kind, machine, boot, started_at_ns, workspace, base, NULL, NULL, 0
                FROM operations, (WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL
                SELECT value + 1 FROM n WHERE value < 40) SELECT value FROM n) LIMIT 40;
             SELECT lower(hex(id)) FROM operations"
        );
        for id in sql(place.store().root(), &statement) {
            let temporary = place.store().root().join("tmp").join(&id);
            fs::create_dir_all(&temporary).unwrap();
            fs::write(temporary.join("0"), "half written").unwrap();
            fs::write(place.store().root().join("leases").join(&id), "").unwrap();
        }
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| place.store().plan_gc(&()).unwrap());
            }
        });
        for directory in ["tmp", "leases"] {
            let left = fs::read_dir(place.store().root().join(directory)).unwrap().count();
            assert_eq!(left, 0, "{directory}");
        }
        if round < 6 {
            sql(place.store().root(), REFUSE);
            fs::write(place.root().join("a"), format!("round {round}")).unwrap();
            place.capture();
            sql(place.store().root(), ALLOW);
        }
    }
    assert_eq!((count(&place, "operations"), count(&place, "pins")), (0, 0));
    place.verify_clean();
}

#[test]
fn what_a_capture_prunes_is_gone_at_once_and_its_row_with_the_next() {
    let place = Place::new();
    let manifests = || {
        let directory = place.store().root().join(session_name(&place));
        let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
        let names = names.map(|name| name.into_string().unwrap());
        let mut numbers: Vec<u64> =
            names.filter_map(|name| name.strip_suffix(".json")?.parse().ok()).collect();
        numbers.sort_unstable();
        numbers
    };
    let rows = |state: &str| {
        let query = format!("SELECT seq FROM checkpoints WHERE state = '{state}' ORDER BY seq");
        sql(place.store().root(), &query)
    };
    for number in 0..22 {
        tree::build(place.root(), [("a", file(format!("{number}")))]);
        place.capture();
    }
    assert_eq!(manifests(), (2..22).collect::<Vec<_>>());
    assert_eq!(rows("pruning"), ["1"], "the row of 0 went with the capture of 21");
    assert_eq!(place.checkpoints(), 20);
    place.verify_clean();

    // A prune that was killed between its mark and the unlink.
    sql(place.store().root(), "UPDATE checkpoints SET state = 'pruning' WHERE seq IN (2, 3)");
    tree::build(place.root(), [("a", file("last"))]);
    place.capture();
    assert_eq!(manifests(), (4..23).collect::<Vec<_>>());
    assert_eq!(rows("pruning"), Vec::<String>::new());
    assert_eq!(rows("live").len(), 19);
    place.verify_clean();
}

#[test]
fn a_collection_does_what_its_plan_said() {
    let place = Place::new();
    for number in 0..22 {
        tree::build(place.root(), [("a", file(format!("{number}"))), ("b", file("same"))]);
        place.capture();
    }
    let told = |outcome: &turnpoint::GcOutcome| {
        let (prune, sweep) = (&outcome.prune, &outcome.sweep);
        let sweep = (sweep.blobs_removed, sweep.bytes_removed, sweep.blobs_waiting);
        (prune.pruned.clone(), prune.kept.len(), sweep)
    };
    age(&place);
    let plan = told(&place.store().plan_gc(&()).unwrap());
    let run = told(&place.store().gc(&()).unwrap());
    // The capture has told that it dropped the first two. The row of the second went only now, and
    // its page and its file wait for a minute to be over.
    assert_eq!((&run.0, run.1, run.2.0, run.2.2), (&vec![], 20, 2, 2));
    assert_eq!(plan, run);

    // Two are to be dropped, one of them with the tree of one that stays.
    tree::build(place.root(), [("a", file("twice"))]);
    let dropped = [place.capture(), place.capture()];
    for id in &dropped {
        place.store().pin(id, None, &()).unwrap();
    }
    tree::build(place.root(), [("a", file("once"))]);
    let once = place.capture();
    place.store().pin(&once, None, &()).unwrap();
    for number in 30..52 {
        tree::build(place.root(), [("a", file(format!("{number}")))]);
        place.capture();
    }
    for id in [&dropped[1], &once] {
        place.store().unpin(id, &()).unwrap();
    }
    age(&place);
    let plan = told(&place.store().plan_gc(&()).unwrap());
    let run = told(&place.store().gc(&()).unwrap());
    // The page and the file of the one, those of the row that was left behind, and nothing of the
    // other.
    assert_eq!((&run.0, run.2.2), (&vec![dropped[1].clone(), once], 4));
    assert_eq!(plan, run);
    place.verify_clean();
}

#[test]
fn a_prune_finishes_what_an_earlier_one_has_marked() {
    let place = Place::new();
    for number in 0..3 {
        tree::build(place.root(), [("a", file(format!("{number}")))]);
        place.capture();
    }
    // Killed between its mark and the unlink.
    sql(place.store().root(), "UPDATE checkpoints SET state = 'pruning' WHERE seq = 0");
    let outcome = place.store().prune(None, PruneRule::default(), &()).unwrap();
    assert_eq!((outcome.pruned, outcome.kept.len()), (vec![], 2));
    assert_eq!(count(&place, "checkpoints"), 2);
    let manifest = place.store().root().join(session_name(&place)).join("0.json");
    assert!(!manifest.exists());
    place.verify_clean();
}

fn session_name(place: &Place) -> String {
    let listing = place.store().list(&ListQuery::All, &()).unwrap();
    listing.checkpoints().next().unwrap().id.session.to_string()
}

#[test]
fn a_pin_whose_row_was_lost_still_protects() {
    let place = Place::new();
    tree::build(place.root(), [("a", file("pinned"))]);
    let pinned = place.capture();
    place.store().pin(&pinned, None, &()).unwrap();
    // What a power cut may do: the file is durable, the row need not be.
    sql(place.store().root(), "UPDATE checkpoints SET pinned = 0");
    for number in 0..22 {
        tree::build(place.root(), [("a", file(format!("{number}")))]);
        place.capture();
    }
    assert_eq!(place.checkpoints(), 20 + 1);
    drop(place.store().prune(None, PruneRule::default(), &()).unwrap());
    let restored = place.restore(&pinned);
    assert_eq!(restored.changed, 1);
    assert_eq!(fs::read(place.root().join("a")).unwrap(), b"pinned");
}
