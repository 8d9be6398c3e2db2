//! Capture, restore and undo, against plain copies of the tree.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use turnpoint::RestoreOptions;

use crate::place::Place;
use crate::support::fingerprint;
use crate::support::tree::{self, dir, executable, file, link};

fn first_state(root: &Path) {
    tree::build(
        root,
        [
            ("a.txt", file("one")),
            ("src/b.txt", file("two")),
            ("src/run.sh", executable("#!/bin/sh\n")),
            ("src/deep/er/c", file("")),
            ("empty", dir()),
            ("link", link("src/b.txt")),
            ("dangling", link("nowhere")),
            ("swap-dir", dir()),
            ("swap-dir/x", file("x")),
            ("swap-file", file("was a file")),
            ("swap-link", link("a.txt")),
        ],
    );
}

fn second_state(root: &Path) {
    fs::write(root.join("a.txt"), "changed").unwrap();
    fs::remove_file(root.join("src/b.txt")).unwrap();
    fs::set_permissions(root.join("src/run.sh"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::remove_dir_all(root.join("src/deep")).unwrap();
    fs::remove_dir(root.join("empty")).unwrap();
    fs::remove_file(root.join("link")).unwrap();
    fs::remove_dir_all(root.join("swap-dir")).unwrap();
    fs::remove_file(root.join("swap-file")).unwrap();
    fs::remove_file(root.join("swap-link")).unwrap();
    tree::build(
        root,
        [
            ("link", link("elsewhere")),
            ("swap-dir", file("now a file")),
            ("swap-file/in/side", file("now a directory")),
            ("swap-link/in", file("now a directory")),
            ("new/file", file("new")),
            ("new/dir", dir()),
        ],
    );
}

#[test]
fn a_restore_gives_back_the_state_and_undo_takes_it_back() {
    let place = Place::new();
    first_state(place.root());
    let first_look = place.look();
    let first = place.capture();
    second_state(place.root());
    let second_look = place.look();
    place.capture();

    let restored =
        place.store().restore(place.root(), &first, &RestoreOptions::default(), &()).unwrap();
    assert_eq!(restored.left, []);
    fingerprint::assert_same(&first_look, &place.look());
    place.verify_clean();

    let undone = place.store().undo(place.root(), &RestoreOptions::default(), &()).unwrap();
    assert_eq!(undone.left, []);
    fingerprint::assert_same(&second_look, &place.look());
    place.verify_clean();
}

#[test]
fn a_second_restore_to_the_same_state_changes_nothing() {
    let place = Place::new();
    first_state(place.root());
    let first = place.capture();
    let look = fingerprint::with_stamps(place.root());
    let restored =
        place.store().restore(place.root(), &first, &RestoreOptions::default(), &()).unwrap();
    assert_eq!(restored.plan.changes, []);
    assert_eq!(restored.safety, None);
    assert_eq!(fingerprint::with_stamps(place.root()), look);
}

/// The file of a blob in the store: named by the content's hash, so found without turnpoint's help.
fn blob_of(place: &Place, content: &[u8]) -> std::path::PathBuf {
    place.blob(&blake3::hash(content).to_hex())
}

#[test]
fn what_a_restore_takes_away_is_held_even_if_the_store_had_lost_it() {
    for flip in [false, true] {
        let place = Place::new();
        tree::build(place.root(), [("kept", file("kept"))]);
        let first = place.capture();
        tree::build(place.root(), [("goes", file("precious")), ("kept", file("worked on"))]);
        let old = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_hours(24);
        for name in ["goes", "kept"] {
            let file = fs::File::options().write(true).open(place.root().join(name)).unwrap();
            file.set_modified(old).unwrap();
        }
        let before = place.look();
        // Until the stat cache vouches for the files.
        for _ in 0..3 {
            std::thread::sleep(std::time::Duration::from_millis(120));
            place.capture();
        }
        for content in [b"precious".as_slice(), b"worked on"] {
            let blob = blob_of(&place, content);
            if flip {
                let mut bytes = fs::read(&blob).unwrap();
                *bytes.last_mut().unwrap() ^= 1;
                fs::write(&blob, bytes).unwrap();
            } else {
                fs::remove_file(&blob).unwrap();
            }
        }
        let store = place.store();
        let options = RestoreOptions::default();
        assert!(!store.restore(place.root(), &first, &options, &()).unwrap().is_short());
        assert!(!place.root().join("goes").exists());
        assert!(!store.undo(place.root(), &options, &()).unwrap().is_short());
        fingerprint::assert_same(&before, &place.look());
        place.verify_clean();
    }
}
