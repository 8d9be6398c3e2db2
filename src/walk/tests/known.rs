//! Walks by what an earlier walk saw. The oracle is a walk anew.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::walk::known::{revisit, rules_hold};

/// Long enough for what was written before it to be told from what is written after it.
const APART: Duration = Duration::from_millis(130);

/// What may happen to a tree between two walks.
#[derive(Debug, Clone)]
enum Edit {
    Write(&'static str, &'static str),
    Remove(&'static str),
    MakeDir(&'static str),
    Rename(&'static str, &'static str),
    Link(&'static str, &'static str),
    SetMode(&'static str, u32),
    ComeAndGo(&'static str),
    Init(&'static str),
    Track(&'static str),
    Untrack(&'static str),
}

const PLACES: [&str; 16] = [
    "a",
    "a/b",
    "a/b/c",
    "a/x.log",
    "a-b",
    "d",
    "d/e",
    "d/e/f.o",
    "d/.gitignore",
    ".gitignore",
    "d/format.json",
    "target",
    "target/t",
    "target/u/v",
    "z.log",
    "d/.env",
];

const CONTENTS: [&str; 6] =
    ["", "*.log\n", "*.o\n!a/\n", "e/\n", "*.json\n.gitignore\n", "{\"turnpoint_store\":1}"];

fn edit() -> impl Strategy<Value = Edit> {
    let place = || select(&PLACES[..]);
    prop_oneof![
        6 => (place(), select(&CONTENTS[..])).prop_map(|(at, content)| Edit::Write(at, content)),
        3 => place().prop_map(Edit::Remove),
        3 => place().prop_map(Edit::MakeDir),
        3 => (place(), place()).prop_map(|(from, to)| Edit::Rename(from, to)),
        2 => (place(), select(&["a", "b"][..])).prop_map(|(at, target)| Edit::Link(at, target)),
        1 => (place(), select(&[0o600, 0o755][..])).prop_map(|(at, mode)| Edit::SetMode(at, mode)),
        1 => place().prop_map(Edit::ComeAndGo),
        1 => select(&["a", "d", "d/e"][..]).prop_map(Edit::Init),
        2 => place().prop_map(Edit::Track),
        1 => place().prop_map(Edit::Untrack),
    ]
}

/// Does what can be done: much of it makes no sense in the tree as it is.
fn apply(case: &Case, edit: &Edit) {
    let at = |name: &str| case.path.join(name);
    let quietly = |directory: &Path, arguments: &[&str]| {
        git_command(directory).args(arguments).output().unwrap();
    };
    match edit {
        Edit::Write(name, content) => {
            drop(fs::create_dir_all(at(name).parent().unwrap()));
            drop(fs::write(at(name), content));
        }
        Edit::Remove(name) => {
            drop(fs::remove_file(at(name)).or_else(|_| fs::remove_dir_all(at(name))));
        }
        Edit::MakeDir(name) => drop(fs::create_dir_all(at(name))),
        Edit::Rename(from, to) => drop(fs::rename(at(from), at(to))),
        Edit::Link(name, target) => {
            // The next link is often given the inode of the last.
            if fs::read_link(at(name)).is_ok() {
                fs::remove_file(at(name)).unwrap();
            }
            drop(symlink(target, at(name)));
        }
        Edit::SetMode(name, mode) => {
            drop(fs::set_permissions(at(name), fs::Permissions::from_mode(*mode)));
        }
        Edit::ComeAndGo(name) => {
            let beside = at(&format!("{name}.new"));
            drop(fs::write(&beside, "").and_then(|()| fs::remove_file(&beside)));
        }
        Edit::Init(name) => {
            if at(name).is_dir() {
                quietly(&at(name), &["init", "-q"]);
            }
        }
        Edit::Track(name) => quietly(&case.path, &["add", "-f", "--", name]),
        Edit::Untrack(name) => quietly(&case.path, &["rm", "-q", "-r", "--cached", "--", name]),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..Default::default() })]

    #[test]
    fn whatever_happens_in_between_a_walk_by_what_is_known_comes_to_what_a_walk_anew_does(
        first in prop::collection::vec(edit(), 10..40),
        turns in prop::collection::vec((prop::collection::vec(edit(), 0..4), any::<bool>()), 1..4),
    ) {
        let mut case = Case::repository();
        for edit in &first {
            apply(&case, edit);
        }
        thread::sleep(APART);
        let mut start_ns = disk::coarse_now_ns();
        let mut walked = case.walk_once("", None).unwrap();
        for (edits, is_apart) in &turns {
            case.options.tracked = walked.tracked_cache.clone();
            for edit in edits {
                apply(&case, edit);
            }
            if *is_apart {
                thread::sleep(APART);
            }
            let known = known(&walked, Some(start_ns));
            start_ns = disk::coarse_now_ns();
            walked = case.walk_once("", None).unwrap();
            for detail in [Detail::All, Detail::Changes] {
                if let Some(again) = case.walk_by("", Some(&known), detail) {
                    assert_same(again, &known, detail, &walked);
                }
            }
        }
    }
}

/// A walk of a tree at rest, and what is known after it.
fn at_rest(case: &Case) -> KnownTree {
    thread::sleep(APART);
    let start_ns = disk::coarse_now_ns();
    known(&case.walk_once("", None).unwrap(), Some(start_ns))
}

#[test]
fn a_file_edited_in_place_in_a_directory_that_keeps_its_stamps_is_seen() {
    let case = Case::new();
    case.write("d/a", "one").write("d/b", "two");
    let known = at_rest(&case);
    fs::write(case.path.join("d/a"), "new").unwrap();
    let walked = case.walk_once("", Some(&known)).unwrap();
    let now = walked.find(&path("d/a")).unwrap();
    let stamps = |name: &str| {
        let is_at = |cached: &&CachedEntry| cached.entry.path == path(name);
        known.entries.iter().find(is_at).unwrap().stamps
    };
    assert_ne!(Stamps::of(&now.stat), stamps("d/a"));
    assert_eq!(Stamps::of(&walked.find(&path("d/b")).unwrap().stat), stamps("d/b"));
    assert_eq!(Stamps::of(&walked.find(&path("d")).unwrap().stat), stamps("d"));
}

#[test]
fn a_tree_at_rest_is_walked_without_listing_any_directory() {
    let case = Case::new();
    case.write_all(&["a", "d/b", "d/e/c", "d/.gitignore", "target/x", ".env"]);
    symlink("a", case.path.join("link")).unwrap();
    let known = at_rest(&case);
    let rules = known.rules.as_ref().unwrap();
    let root = Dir::open(&case.path).unwrap();
    let tree = open(&root, &case.path, &case.settings, &case.options, None, mpsc::channel().0);
    let tree = tree.unwrap();
    assert!(rules_hold(&tree, rules, &known.entries));
    let pool = threads::pool_of(2, "walk").unwrap();
    let entries = &known.entries;
    let seen = revisit(&tree, entries, rules, Detail::Changes, &pool, &()).unwrap().unwrap();
    assert_eq!(
        locked(&tree.found).batches,
        Vec::<Vec<Observed>>::new(),
        "nothing was looked at anew"
    );
    assert_eq!(seen.observations, []);
    assert_eq!(seen.kept, vec![true; entries.len()]);
}

#[test]
fn directories_that_have_changed_are_compared_with_what_they_had_however_many_they_are() {
    let case = Case::new();
    case.write(".gitignore", "x/\n");
    let count = 400;
    for number in 0..count {
        for name in ["keep", "goes", "file-to-dir/in", "x/ignored"] {
            case.write(&format!("d{number:03}/{name}"), name);
        }
        symlink("keep", case.path.join(format!("d{number:03}/link"))).unwrap();
    }
    let known = at_rest(&case);
    for number in 0..count {
        let at = |name: &str| case.path.join(format!("d{number:03}")).join(name);
        fs::remove_file(at("goes")).unwrap();
        fs::remove_dir_all(at("file-to-dir")).unwrap();
        fs::remove_dir_all(at("x")).unwrap();
        fs::remove_file(at("link")).unwrap();
        // In this order each has a chance of the inode that the last to go had.
        symlink("goes", at("link")).unwrap();
        fs::write(at("x"), "no directory now").unwrap();
        fs::write(at("file-to-dir"), "").unwrap();
        fs::create_dir_all(at("new/x")).unwrap();
        fs::create_dir_all(at("new/deep")).unwrap();
        fs::write(at("new/deep/file"), "").unwrap();
    }
    // What has changed since the walk began would all be looked at once more.
    thread::sleep(APART);
    let again = case.walk_by("", Some(&known), Detail::Changes).expect("it is of use");
    let kept = |name: &str| {
        let index = known.entries.binary_search_by(|known| known.entry.path.cmp(&path(name)));
        again.kept[index.unwrap()]
    };
    assert!(kept("d000/keep") && kept("d399/keep"), "what stayed was not looked at anew");
    assert_eq!(what(&again, "d007/link"), &What::Symlink { target: Box::from(*b"goes") });
    assert_eq!(what(&again, "d007/x"), &What::File);
    assert!(matches!(what(&again, "d007/new/x"), What::Omitted { .. }));
    assert_same(again, &known, Detail::Changes, &case.walk_once("", None).unwrap());
}

#[test]
fn a_directory_that_was_moved_is_found_where_it_is() {
    let case = Case::new();
    case.write_all(&["a/d/x", "a/d/e/y", "b/z"]);
    let known = at_rest(&case);
    fs::rename(case.path.join("a/d"), case.path.join("b/d")).unwrap();
    let walked = case.walk_once("", Some(&known)).unwrap();
    assert_eq!(what(&walked, "b/d/e/y"), &What::File);
    assert!(walked.find(&path("a/d")).is_none());
    assert_same(walked, &known, Detail::All, &case.walk_once("", None).unwrap());
}

#[test]
fn paths_that_were_lifted_out_of_the_rules_are_judged_anew() {
    let case = Case::new();
    case.write(".gitignore", "*.log\n/gone/\n").write_all(&["a.log", "b", "gone/x", "gone/y/z"]);
    let mut walked = case.walk_once("", None).unwrap();
    let plain = lines(&walked);
    walked.force(&[path("a.log"), path("gone")], &()).unwrap();
    assert_eq!(what(&walked, "a.log"), &What::File);
    assert_eq!(what(&walked, "gone/y/z"), &What::File);
    let known = known(&walked, None);
    let again = case.walk_once("", Some(&known)).unwrap();
    assert_eq!(lines(&again), plain);
}

#[test]
fn what_was_lifted_is_judged_anew_also_after_a_walk_by_hints() {
    let mut case = Case::new();
    case.write(".gitignore", "*.log\n/gone/\n").write_all(&["a.log", "d/b", "gone/x", "gone/y/z"]);
    let mut walked = case.walk_once("", None).unwrap();
    let plain = lines(&walked);
    walked.force(&[path("a.log"), path("gone")], &()).unwrap();
    let known = known(&walked, None);
    case.options.hints = Some(vec![path("d/b")]);
    let by_hints = case.walk_by("", Some(&known), Detail::Changes).unwrap();
    assert_eq!(by_hints.listed, Some(vec![path("d")]));
    case.options.hints = None;
    let known = KnownTree { rules: by_hints.rules, ..known };
    assert_eq!(lines(&case.walk_once("", Some(&known)).unwrap()), plain);
}

#[test]
fn other_settings_another_place_or_another_ignore_file_make_it_of_no_use() {
    let mut case = Case::new();
    case.write("d/.gitignore", "*.o\n").write_all(&["d/a.o", "d/b"]);
    let known = at_rest(&case);
    assert!(case.walk_once("", Some(&known)).is_some());
    let default = case.settings.clone();
    case.settings.file_limit_bytes = 3;
    assert!(case.walk_once("", Some(&known)).is_none());
    case.settings = default;
    case.write("d/.gitignore", "*.p\n");
    assert!(case.walk_once("", Some(&known)).is_none());
    case.write("d/.gitignore", "*.o\n");
    assert!(case.walk_once("", Some(&known)).is_some(), "other stamps, and the same content");
    fs::remove_file(case.path.join("d/.gitignore")).unwrap();
    assert!(case.walk_once("", Some(&known)).is_none());
}
