//! Trees that change while they are walked.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;

use super::*;

const WALKS: usize = 60;

/// Says that it is over when it goes, also where an assertion fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Runs `disturb` over and over while the case is walked, anew and by what the last walk saw in turn;
/// each result goes to `judge`.
fn while_disturbed(case: &Case, disturb: impl Fn() + Sync, mut judge: impl FnMut(&Walked)) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                disturb();
            }
        });
        let _over = Over(&is_over);
        for _ in 0..WALKS {
            let start_ns = disk::coarse_now_ns();
            let walked = case.walk_once("", None).unwrap();
            judge(&walked);
            case.walk_once("", Some(&known(&walked, Some(start_ns)))).iter().for_each(&mut judge);
        }
    });
}

fn children(walked: &Walked, directory: &str) -> BTreeSet<String> {
    let directory = path(directory);
    let of_directory = |observed: &&Observed| observed.path.parent().as_ref() == Some(&directory);
    let observations = walked.observations.iter().filter(of_directory);
    observations.map(|observed| crate::path::printable(observed.path.name())).collect()
}

fn named(start: &str, count: usize) -> BTreeSet<String> {
    (0..count).map(|number| format!("{start}{number}")).collect()
}

#[test]
fn nothing_outside_gets_in_through_a_directory_swapped_for_a_symlink() {
    let outside = Case::new();
    let case = Case::new();
    for number in 0..20 {
        outside.write(&format!("outside{number}"), "").write(&format!("sub/outside{number}"), "");
        case.write(&format!("d/inside{number}"), "").write(&format!("d/sub/deep{number}"), "");
    }
    let at = case.path.join("d");
    let aside = case.path.join("aside");
    let mut kinds = BTreeSet::new();
    while_disturbed(
        &case,
        || {
            fs::rename(&at, &aside).unwrap();
            symlink(&outside.path, &at).unwrap();
            fs::remove_file(&at).unwrap();
            fs::rename(&aside, &at).unwrap();
        },
        |walked| {
            for observed in &walked.observations {
                assert!(!observed.path.name().starts_with(b"outside"), "{:?}", observed.path);
            }
            // Where it was seen as a directory that is whole, all that is in it was seen.
            if let Some(Observed { what: What::Dir { listed: Listed::Whole }, .. }) =
                walked.find(&path("d"))
            {
                let mut expected = named("inside", 20);
                // The directory below is looked at later, and by then it may have moved.
                expected.extend(children(walked, "d").contains("sub").then(|| "sub".to_owned()));
                assert_eq!(children(walked, "d"), expected);
            }
            kinds.insert(walked.find(&path("d")).map(line));
        },
    );
    assert!(kinds.len() > 1, "the directory was never caught in the act: {kinds:?}");
}

#[test]
fn a_listing_is_of_the_directory_that_was_there_and_of_no_other() {
    let case = Case::new();
    for number in 0..30 {
        case.write(&format!("d/a{number}"), "").write(&format!("e/b{number}"), "");
    }
    let (d, e) = (case.path.join("d"), case.path.join("e"));
    let exchange = || {
        let flags = rustix::fs::RenameFlags::EXCHANGE;
        rustix::fs::renameat_with(rustix::fs::CWD, &d, rustix::fs::CWD, &e, flags).unwrap();
    };
    let mut seen = BTreeSet::new();
    while_disturbed(&case, exchange, |walked| {
        for directory in ["d", "e"] {
            if let Some(observed) = walked.find(&path(directory)) {
                // One that was exchanged at each look is not called whole.
                let is_restless = walked.restless.contains(&path(directory));
                let listed = if is_restless { Listed::Partial } else { Listed::Whole };
                assert_eq!(observed.what, What::Dir { listed });
                let children = children(walked, directory);
                assert!(children == named("a", 30) || children == named("b", 30), "{children:?}");
                seen.insert((directory, children));
            }
        }
    });
    assert_eq!(seen.len(), 4, "the two were never exchanged in time");
}

#[test]
fn names_that_come_and_go_are_there_or_not_and_never_an_error() {
    let case = Case::new();
    case.write("stays", "");
    let at = |name: &str| case.path.join(name);
    while_disturbed(
        &case,
        || {
            fs::create_dir_all(at("d/e")).unwrap();
            fs::write(at("d/e/f"), "").unwrap();
            fs::remove_dir_all(at("d")).unwrap();
            fs::write(at("d"), "").unwrap();
            fs::remove_file(at("d")).unwrap();
            symlink("stays", at("d")).unwrap();
            fs::remove_file(at("d")).unwrap();
        },
        |walked| {
            assert_eq!(what(walked, "stays"), &What::File);
            for observed in &walked.observations {
                assert!(!matches!(observed.what, What::Omitted { .. }), "{}", line(observed));
            }
            assert_eq!(walked.unfinished, []);
        },
    );
}

#[test]
fn a_root_that_is_replaced_meanwhile_is_an_error() {
    let case = Case::new();
    case.write("w/a", "").write("other/b", "");
    let root = Dir::open(&case.path.join("w")).unwrap();
    fs::rename(case.path.join("w"), case.path.join("moved")).unwrap();
    fs::rename(case.path.join("other"), case.path.join("w")).unwrap();
    let at = case.path.join("w");
    let walked = walk(&root, &at, &case.settings, &case.options, None, &());
    assert!(matches!(&walked, Err(Error::Io { path, .. }) if *path == at), "{walked:?}");
}
