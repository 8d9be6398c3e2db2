//! Things that are moved while the tree is walked: they are there all the time, so they are seen.

use std::sync::atomic::AtomicUsize;

use super::*;
use crate::walk::directory::Listing;

/// Moves something when the walk comes to a directory for the n-th time.
struct MoveAt {
    left: AtomicUsize,
    from: PathBuf,
    to: PathBuf,
}

impl Monitor for MoveAt {
    fn advanced(&self, _: u64, _: u64) {
        if self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            fs::rename(&self.from, &self.to).unwrap();
        }
    }
}

const DIRECTORIES: usize = 12;

/// A dozen directories, the first and the last of which things are moved between.
fn case() -> Case {
    let mut case = Case::new();
    case.options.threads = 1;
    for number in 0..DIRECTORIES {
        case.write(&format!("d{number:02}/{number}"), "");
    }
    case
}

#[test]
fn what_is_moved_past_a_walk_by_what_is_known_is_seen() {
    for (from, to) in [("d11", "d00"), ("d00", "d11"), ("d11", ""), ("", "d00")] {
        for detail in [Detail::All, Detail::Changes] {
            for at in 1..=DIRECTORIES + 4 {
                let case = case();
                for name in ["moved/deep/file", "alone"] {
                    case.write(Path::new(from).join(name).to_str().unwrap(), "");
                }
                let known = known(&case.walk_once("", None).unwrap(), None);
                for name in ["moved", "alone"] {
                    let monitor = MoveAt {
                        left: AtomicUsize::new(at),
                        from: case.path.join(from).join(name),
                        to: case.path.join(to).join(name),
                    };
                    let walked = case.walk_watched(Some(&known), detail, &monitor).unwrap();
                    let seen = all_paths(&walked, &known);
                    let places = [from, to].map(|place| Path::new(place).join(name));
                    let is_there = |place: &Path, below: &str| {
                        let path = place.join(below);
                        let path = path.as_os_str().as_bytes();
                        seen.contains(
                            &RelPath::new(path.strip_suffix(b"/").unwrap_or(path)).unwrap(),
                        )
                    };
                    let below = if name == "moved" { "deep/file" } else { "" };
                    let found = places.iter().filter(|place| is_there(place, below)).count();
                    assert_eq!(found, 1, "{from} {to} {at} {name} {detail:?}: {seen:?}");
                    if monitor.to.exists() {
                        fs::rename(&monitor.to, &monitor.from).unwrap();
                    }
                }
            }
        }
    }
}

/// What was reported and what was kept.
fn all_paths(walked: &Walked, known: &KnownTree) -> Vec<RelPath> {
    let kept = known.entries.iter().zip(&walked.kept).filter(|(_, is_kept)| **is_kept);
    let kept = kept.map(|(known, _)| known.entry.path.clone());
    walked.observations.iter().map(|observed| observed.path.clone()).chain(kept).collect()
}

/// As [`MoveAt`], when the walk asks for the n-th time whether to go on.
struct MoveWhenAsked(MoveAt);

impl Monitor for MoveWhenAsked {
    fn is_cancelled(&self) -> bool {
        self.0.advanced(1, 0);
        false
    }
}

#[test]
fn what_is_moved_past_a_walk_by_hints_is_seen() {
    let mut moved = 0;
    for (from, to) in [("d11", "d00"), ("d00", "d11"), ("d11", "d00/sub"), ("d00/sub", "d11")] {
        for at in 1..=4 {
            let mut case = case();
            case.write("d00/sub/x", "").write(&format!("{from}/alone"), "");
            let known = known(&case.walk_once("", None).unwrap(), None);
            case.options.hints = Some(vec![path("d00"), path("d11/11")]);
            let monitor = MoveWhenAsked(MoveAt {
                left: AtomicUsize::new(at),
                from: case.path.join(from).join("alone"),
                to: case.path.join(to).join("alone"),
            });
            let walked = case.walk_watched(Some(&known), Detail::Changes, &monitor).unwrap();
            moved += u32::from(monitor.0.to.exists());
            let seen = all_paths(&walked, &known);
            let places = [from, to].map(|place| path(&format!("{place}/alone")));
            let found = places.iter().filter(|place| seen.contains(place)).count();
            assert_eq!(found, 1, "{from} {to} {at}: {seen:?}");
        }
    }
    assert!(moved >= 8, "{moved}");
}

#[test]
fn what_is_moved_past_a_walk_anew_is_seen() {
    let case = case();
    case.write("d11/moved/deep/file", "");
    let places = ["d00/moved", "d11/moved"].map(|place| case.path.join(place));
    thread::scope(|scope| {
        // In here, so that a failed assertion ends the other thread too.
        let (walk, finished) = mpsc::sync_channel(0);
        let places = &places;
        scope.spawn(move || {
            let mut from = 1;
            for spin in finished {
                // Somewhere in the middle of the walk.
                (0..spin).for_each(|_| std::hint::spin_loop());
                fs::rename(&places[from], &places[1 - from]).unwrap();
                from = 1 - from;
            }
        });
        for number in 0..200 {
            walk.send(number * 200).unwrap();
            let walked = case.walk_once("", None).unwrap();
            let found = ["d00", "d11"]
                .iter()
                .filter(|place| walked.find(&path(&format!("{place}/moved/deep/file"))).is_some());
            assert_eq!(found.count(), 1, "{:?}", lines(&walked));
        }
    });
}

#[test]
fn an_ignore_file_that_comes_during_a_walk_is_obeyed_by_the_next() {
    let mut came = 0;
    for at in 1..=DIRECTORIES {
        let case = case();
        case.write("d05/sub/a.o", "").write("d05/b.o", "").write("d11/rules", "*.o\n");
        let before = known(&case.walk_once("", None).unwrap(), None);
        let monitor = MoveAt {
            left: AtomicUsize::new(at),
            from: case.path.join("d11/rules"),
            to: case.path.join("d05/.gitignore"),
        };
        // Where the walk met it on its way it is of no use.
        let walked = case.walk_watched(Some(&before), Detail::All, &monitor);
        let anew = lines(&case.walk_once("", None).unwrap());
        assert!(anew.contains(&"ignored d05/sub/a.o".to_owned()), "{anew:?}");
        let Some(walked) = walked else { continue };
        came += 1;
        let next = case.walk_once("", Some(&known(&walked, None)));
        assert_eq!(next.as_ref().map_or(anew.clone(), lines), anew, "{at}");
    }
    assert!(came > 0, "it was always met on the way");
}

/// What is moved out of a directory between the look at it and its listing is in no list, and the
/// directory's stamps are from before.
#[test]
fn a_directory_that_changes_before_it_is_listed_is_noticed() {
    let case = case();
    for has_changed in [false, true] {
        let root = Dir::open(&case.path).unwrap();
        let (jobs, _asked) = mpsc::channel();
        let tree = open(&root, &case.path, &case.settings, &case.options, None, jobs).unwrap();
        let (dir, stat) = tree.open(&path("d03")).unwrap().unwrap();
        // The clock of stamps has to have moved on.
        while disk::coarse_now_ns() <= stat.ctime_ns {
            thread::yield_now();
        }
        if has_changed {
            fs::rename(case.path.join("d03/3"), case.path.join("d00/3")).unwrap();
        }
        let rules = tree.root_rules.clone();
        tree.visit_opened(&dir, stat, &path("d03"), Listing::UNKNOWN, &rules, Policy::Scope);
        assert_eq!(locked(&tree.found).missed, has_changed);
    }
}

/// Moves something to and fro whenever the walk comes to a directory or asks whether to go on, each time
/// with another stamp.
struct MoveToAndFro(Mutex<[PathBuf; 2]>);

impl MoveToAndFro {
    fn go(&self) {
        let mut places = self.0.lock().unwrap();
        let now_ns = disk::coarse_now_ns();
        while disk::coarse_now_ns() <= now_ns {
            thread::sleep(Duration::from_millis(1));
        }
        fs::rename(&places[0], &places[1]).unwrap();
        places.swap(0, 1);
    }
}

impl Monitor for MoveToAndFro {
    fn advanced(&self, _: u64, _: u64) {
        self.go();
    }

    fn is_cancelled(&self) -> bool {
        self.go();
        false
    }
}

#[test]
fn what_never_rests_is_not_called_whole() {
    for at in ["d00", "d11"].into_iter().cycle().take(8) {
        let case = case();
        case.write(&format!("{at}/moved"), "");
        let known = known(&case.walk_once("", None).unwrap(), None);
        let mut places = ["d00", "d11"].map(|place| case.path.join(place).join("moved"));
        if at == "d11" {
            places.swap(0, 1);
        }
        let monitor = MoveToAndFro(Mutex::new(places));
        // By what is known it may be of no use, and is done anew then.
        let walked = case.walk_watched(Some(&known), Detail::All, &monitor);
        let walked = walked.or_else(|| case.walk_watched(None, Detail::All, &monitor)).unwrap();
        assert!(!walked.restless.is_empty());
        for place in &walked.restless {
            let what = &walked.find(place).unwrap().what;
            assert_eq!(*what, What::Dir { listed: Listed::Partial }, "{place}");
        }
        let is_at = if case.path.join("d00/moved").exists() { "d00" } else { "d11" };
        let is_seen = walked.find(&path(&format!("{is_at}/moved"))).is_some();
        assert!(is_seen || walked.restless.contains(&path(is_at)), "{is_at}: {:?}", lines(&walked));
    }
}

#[test]
fn a_directory_of_a_time_that_is_yet_to_come_has_not_changed() {
    let mut case = case();
    let directory = fs::File::open(case.path.join("d00")).unwrap();
    let ahead = directory.metadata().unwrap().modified().unwrap() + Duration::from_hours(24);
    directory.set_modified(ahead).unwrap();
    case.options.hints = Some(vec![path("d00")]);
    let changed_ns = Dir::open(&case.path.join("d00")).unwrap().stat_self().unwrap().ctime_ns;
    while disk::coarse_now_ns() <= changed_ns {
        thread::sleep(Duration::from_millis(1));
    }
    let known = known(&case.walk_once("", None).unwrap(), None);
    assert!(case.walk_watched(Some(&known), Detail::Changes, &()).is_some());
}
