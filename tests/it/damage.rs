//! A store that has lost something: what is remembered, healed and refused.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use turnpoint::hash::{BlobHash, Digest};
use turnpoint::id::CheckpointId;
use turnpoint::{Error, RestoreOptions, VerifyOptions};

use crate::place::Place;
use crate::support::fingerprint;
use crate::support::tree::{self, file};

fn manifest_path(place: &Place, id: &CheckpointId) -> PathBuf {
    place.store().root().join(id.session.as_str()).join(format!("{}.json", id.seq))
}

fn root_page(place: &Place, id: &CheckpointId) -> PathBuf {
    let manifest: Value =
        serde_json::from_slice(&fs::read(manifest_path(place, id)).unwrap()).unwrap();
    place.blob(manifest["root"].as_str().unwrap())
}

fn flip_last_byte(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(path, bytes).unwrap();
}

/// A workspace of which two captures have said the same, so that the next one looks at nothing.
fn settled() -> (Place, CheckpointId) {
    let place = Place::new();
    tree::build(place.root(), [("a", file("a")), ("d/b", file("b"))]);
    place.capture();
    let id = place.capture();
    (place, id)
}

#[test]
fn a_page_that_a_restore_found_lost_is_written_again() {
    for into in [false, true] {
        let (place, id) = settled();
        let page = root_page(&place, &id);
        fs::remove_file(&page).unwrap();
        let options = RestoreOptions::default();
        let error = if into {
            let into = place.home().join("into");
            place.store().restore_into(&id, &into, &options, &()).unwrap_err()
        } else {
            place.store().restore(place.root(), &id, &options, &()).unwrap_err()
        };
        assert!(matches!(error, Error::BlobMissing { .. }), "{error:?}");
        place.capture();
        assert!(page.exists());
        place.go_back(&id);
        place.verify_clean();
    }
}

/// Pages above the entries, and what may happen to one.
#[test]
fn a_page_above_the_entries_that_is_damaged_is_written_again() {
    let damages: [fn(&Path); 2] = [|page| fs::remove_file(page).unwrap(), flip_last_byte];
    for damage in damages {
        let place = Place::new();
        for number in 0..400 {
            fs::write(place.root().join(format!("f{number:03}")), format!("{number}")).unwrap();
        }
        let first = place.capture();
        fs::write(place.root().join("f200"), "edited").unwrap();
        let second = place.capture();
        let before = place.look();

        // A restore saves the present, whose pages are those of the damaged checkpoint.
        damage(&root_page(&place, &second));
        let restored = place.restore(&first);
        assert_eq!(restored.changed, 1);
        assert_eq!(place.undo().changed, 1);
        assert_eq!(place.look(), before);
        place.go_back(&second);
        place.verify_clean();

        // A capture that finds nothing changed names the same pages.
        let third = place.capture();
        damage(&root_page(&place, &third));
        let report = place.store().verify(VerifyOptions::default(), &()).unwrap();
        assert!(!report.findings.is_empty());
        let fourth = place.capture();
        assert_eq!(root_page(&place, &fourth), root_page(&place, &third));
        place.verify_clean();
        place.go_back(&third);
    }
}

#[test]
fn a_page_found_well_again_blocks_nothing_any_more() {
    let (place, id) = settled();
    let page = root_page(&place, &id);
    let good = fs::read(&page).unwrap();
    flip_last_byte(&page);
    let mut options = VerifyOptions::default();
    options.read_data = true;
    assert_ne!(place.store().verify(options, &()).unwrap().findings, []);
    assert!(matches!(place.store().gc(&()), Err(Error::DeletionBlocked { .. })));
    fs::write(&page, good).unwrap();
    place.verify_clean();
    assert_eq!(place.store().gc(&()).unwrap().sweep.failed, []);
}

#[test]
fn what_a_restore_took_away_can_be_named_even_if_the_page_was_damaged() {
    let place = Place::new();
    // More than one page, so that most are shared with the base.
    let many =
        (0..400).map(|number| (format!("d{}/f{number}", number % 7), file(format!("{number}"))));
    tree::build(place.root(), many);
    tree::build(place.root(), [("a", file("first"))]);
    let first = place.capture_loose();
    fs::write(place.root().join("a"), "second").unwrap();
    let second = place.capture_loose();
    let before = place.look();
    // A page that both name, and that the restore has no need to read for itself.
    let text = |path: &Path| {
        let output = Command::new("zstd").arg("-dcq").arg(path).output().unwrap();
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let pages = |id: &CheckpointId| -> Vec<String> {
        let page = text(&root_page(&place, id));
        let pages = page["pages"].as_array().unwrap();
        pages.iter().map(|page| page["hash"].as_str().unwrap().to_owned()).collect()
    };
    let (of_first, of_second) = (pages(&first), pages(&second));
    let only_second = of_second.iter().find(|page| !of_first.contains(page)).unwrap();
    flip_last_byte(&place.blob(only_second));
    assert_eq!(place.restore(&first).left, []);
    assert_eq!(fs::read(place.root().join("a")).unwrap(), b"first");
    assert_eq!(place.undo().left, []);
    fingerprint::assert_same(&before, &place.look());
    place.verify_clean();
}

/// Puts a page in the place of a checkpoint's only one, and makes the checksum of its manifest fit.
fn replace_page(place: &Place, id: &CheckpointId, change: impl Fn(&str) -> String) {
    let page = root_page(place, id);
    let text = Command::new("zstd").arg("-dcq").arg(&page).output().unwrap().stdout;
    let changed = change(std::str::from_utf8(&text).unwrap());
    let hash = BlobHash::of(changed.as_bytes()).to_string();
    let plain = place.home().join("page");
    fs::write(&plain, &changed).unwrap();
    let stored = place.blob(&hash);
    let made = Command::new("zstd").arg("-qfC").arg(&plain).arg("-o").arg(stored).status().unwrap();
    assert!(made.success());
    let manifest = fs::read_to_string(manifest_path(place, id)).unwrap();
    let old = page.file_name().unwrap().to_str().unwrap();
    let manifest = manifest.replace(old, &hash);
    let (body, _) = manifest.rsplit_once(",\"digest\":").unwrap();
    let digest = Digest::of(format!("{body}}}").as_bytes());
    fs::write(manifest_path(place, id), format!("{body},\"digest\":\"{digest}\"}}")).unwrap();
}

#[test]
fn a_list_that_reaches_into_a_version_control_directory_is_refused() {
    for (name, crafted) in [("xgit", ".git"), ("xJJ", ".JJ"), ("xturnpoint", ".turnpoint")] {
        let place = Place::new();
        tree::build(place.root(), [(format!("{name}/hooks/post"), file("#!/bin/sh\n"))]);
        let id = place.capture();
        replace_page(&place, &id, |text| text.replace(name, crafted));
        fs::remove_dir_all(place.root().join(name)).unwrap();
        let before = place.look();
        let options = RestoreOptions::default();
        let into = place.home().join("into");
        for error in [
            place.store().restore(place.root(), &id, &options, &()).unwrap_err(),
            place.store().restore_into(&id, &into, &options, &()).unwrap_err(),
        ] {
            let Error::CheckpointUnreadable { reason, .. } = &error else { panic!("{error:?}") };
            assert!(reason.contains("version-control"), "{reason}");
        }
        fingerprint::assert_same(&before, &place.look());
        assert!(!into.exists());
    }
}

#[test]
fn a_workspace_whose_file_is_damaged_is_waited_for_by_a_restore_around_it() {
    /// Gives up once it is told that it waits.
    #[derive(Default)]
    struct Impatient(std::sync::Mutex<Option<String>>);
    impl turnpoint::Monitor for Impatient {
        fn notice(&self, notice: &turnpoint::Notice) {
            if let turnpoint::Notice::Waiting { lock, .. } = notice {
                *self.0.lock().unwrap() = Some(lock.clone());
            }
        }
        fn is_cancelled(&self) -> bool {
            self.0.lock().unwrap().is_some()
        }
    }
    let place = Place::new();
    tree::build(place.root(), [("a", file("before")), ("inner/b", file("b"))]);
    let id = place.capture();
    let inner = place.root().join("inner");
    let options = turnpoint::CaptureOptions::default();
    let captured = place.store().capture(&inner, &options, &()).unwrap();
    let manifest: Value =
        serde_json::from_slice(&fs::read(manifest_path(&place, &captured.checkpoint)).unwrap())
            .unwrap();
    let directory = place.store().root().join("workspaces");
    let damaged =
        directory.join(manifest["workspace"]["id"].as_str().unwrap()).join("workspace.json");
    fs::write(damaged, "garbage").unwrap();
    fs::write(place.root().join("a"), "after").unwrap();
    let stat = fs::metadata(&inner).unwrap();
    let lock = format!("locks/ws-{:x}-{:x}.lock", stat.dev(), stat.ino());
    let held = fs::File::open(place.store().root().join(lock)).unwrap();
    held.lock().unwrap();
    let told = Impatient::default();
    let restored = place.store().restore(place.root(), &id, &RestoreOptions::default(), &told);
    assert!(matches!(restored, Err(Error::Cancelled)), "{restored:?}");
    assert_eq!(told.0.into_inner().unwrap().as_deref(), Some("a workspace that overlaps"));
    assert_eq!(fs::read_to_string(place.root().join("a")).unwrap(), "after");
    held.unlock().unwrap();
    place.go_back(&id);
}

#[test]
fn a_stat_cache_is_gone_before_another_directory_is_the_workspaces() {
    let place = Place::new();
    let (here, moved) = (place.root().join("here"), place.root().join("moved"));
    tree::build(&here, [("a", file("a"))]);
    let capture = |root: &Path| {
        let options = turnpoint::CaptureOptions::default();
        place.store().capture(root, &options, &()).map(drop)
    };
    capture(&here).unwrap();
    let mut directories = fs::read_dir(place.store().root().join("workspaces")).unwrap();
    let directory = directories.next().unwrap().unwrap().path();
    let before = fs::read(directory.join("workspace.json")).unwrap();
    // Stopped where the cache is removed: by a directory, which cannot be.
    let cache = directory.join("stat-cache");
    fs::remove_file(&cache).unwrap();
    fs::create_dir(&cache).unwrap();
    fs::rename(&here, &moved).unwrap();
    assert!(capture(&moved).is_err());
    assert_eq!(fs::read(directory.join("workspace.json")).unwrap(), before);
    fs::remove_dir(&cache).unwrap();
    capture(&moved).unwrap();
    assert_ne!(fs::read(directory.join("workspace.json")).unwrap(), before);
}
