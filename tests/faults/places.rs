//! Disks that are full for one file: an operation is run, and the one write that makes a file fails,
//! named by the file and not by its number. And files that may not grow beyond a limit.

use std::collections::BTreeMap;
use std::fs;

use crate::kills::{assert_nothing_left, scene, three_turns, write_many};
use crate::scene::{Saved, Scene};
use crate::steps::{self, Step, at_its_time};
use crate::support::fingerprint::{self, differences};
use crate::support::packs;
use crate::support::program::{Program, Run, run};

/// The calls by which this program and SQLite write.
const WRITES: [&str; 2] = ["write", "pwrite64"];

/// A write, as a rehearsal has shown it.
#[derive(Debug)]
struct Write {
    call: &'static str,
    /// Which of its name, by its thread.
    nth: usize,
    is_main: bool,
}

/// The log of a run under strace, with the path of each file that a call writes to.
fn logged(scene: &Scene, rules: &[&str], arguments: &[&str]) -> (Run, String) {
    let log = scene.program.root().join("strace");
    let trace = format!("trace=execve,{}", WRITES.join(","));
    let mut wrapper = vec!["strace", "-y", "-qq", "-s", "64", "-e", &trace];
    wrapper.extend(["-o", log.to_str().unwrap()]);
    wrapper.extend(rules);
    let run = run(&mut at_its_time(scene.program.under(&wrapper, arguments), arguments));
    (run, String::from_utf8_lossy(&fs::read(&log).unwrap()).into_owned())
}

/// Whether a call is a write of the file that `parts` describe: by its path or by what is written.
fn is_of(text: &str, parts: &[&str]) -> bool {
    parts.iter().all(|part| text.contains(part))
}

/// The writes of a file in the log of all threads, each with its place among those of its thread.
fn writes_of(log: &str, parts: &[&str]) -> Vec<Write> {
    let main = log.split(' ').next().unwrap();
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let mut found = Vec::new();
    for (thread, text) in log.lines().filter_map(|line| line.split_once(' ')) {
        let is_call = |call: &&&str| text.trim_start().starts_with(&format!("{call}("));
        let Some(call) = WRITES.iter().find(is_call) else { continue };
        let nth = counts.entry((thread, call)).or_default();
        *nth += 1;
        if is_of(text, parts) {
            found.push(Write { call, nth: *nth, is_main: thread == main });
        }
    }
    found
}

/// The calls in a log that were made to fail, from where they began if another thread came between.
fn injected(log: &str) -> Vec<&str> {
    let mut begun: BTreeMap<&str, &str> = BTreeMap::new();
    let mut found = Vec::new();
    for line in log.lines() {
        let thread = line.split(' ').next().unwrap();
        if line.contains("(INJECTED)") {
            found.push(if line.contains("<... ") { begun[thread] } else { line });
        }
        begun.insert(thread, line);
    }
    found
}

/// Which of the writes of a file fails.
#[derive(Debug, Clone, Copy)]
enum Which {
    First,
    Second,
    Last,
}

use Which::{First, Last, Second};

/// An operation, and the write of it that fails.
#[derive(Debug)]
struct Case {
    arguments: &'static [&'static str],
    /// What is in the line of strace that shows the write.
    parts: &'static [&'static str],
    which: Which,
}

const fn case(
    arguments: &'static [&'static str],
    parts: &'static [&'static str],
    which: Which,
) -> Case {
    Case { arguments, parts, which }
}

/// Runs an operation twice from the same state: once to see its writes, and once with one of those of a
/// file failing for want of room. The scene stays as the second leaves it.
///
/// A thread beside the main one is failed in all threads: then nothing may fail in them before it.
fn without_room(scene: &mut Scene, saved: &mut Saved, case: &Case) -> Run {
    let Case { arguments, parts, which } = *case;
    scene.put_back(saved);
    let (rehearsed, log) = logged(scene, &["-f"], arguments);
    assert_eq!(rehearsed.code, 0, "{case:?}: {}", rehearsed.stderr);
    scene.put_back(saved);
    let writes = writes_of(&log, parts);
    let write = match which {
        First => writes.first(),
        Second => writes.get(1),
        Last => writes.last(),
    };
    let Write { call, nth, is_main } =
        write.unwrap_or_else(|| panic!("{case:?}: there is none in\n{log}"));
    let rule = format!("inject={call}:error=ENOSPC:when={nth}");
    let threads = if *is_main { &[][..] } else { &["-f"] };
    let (run, log) = logged(scene, &[&["-e", &rule], threads].concat(), arguments);
    let is_met = injected(&log).iter().any(|text| is_of(text, parts));
    assert!(is_met, "{case:?}: {rule} met another file:\n{log}");
    run
}

/// It failed, said why, and what to do about it.
fn assert_told(run: &Run, case: &Case) {
    assert_eq!(run.code, 1, "{case:?}: {}{}", run.stdout, run.stderr);
    let is_told = ["No space left", "disk is full"].iter().any(|text| run.stderr.contains(text));
    assert!(is_told && run.stderr.contains("hint: free some space"), "{case:?}: {}", run.stderr);
}

// How strace shows a file, by its path or by how it begins.
const LOG_OF_THE_INDEX: &[&str] = &["/index.db-wal>"];
const BLOB: &[&str] = &["/checkpoints/tmp/", r"(\265/\375"];
const MANIFEST: &[&str] = &["/checkpoints/tmp/", r#"{\"format\":1,\"op\":"#];
const JOURNAL: &[&str] = &["/checkpoints/tmp/", r#"{\"format\":1,\"operation\":"#];
const SESSION: &[&str] = &["/checkpoints/tmp/", r#"{\"next_seq\":"#];
const PIN: &[&str] = &["/checkpoints/tmp/", r#"{\"pinned\":"#];
const TRAILER: &[&str] = &["/checkpoints/tmp/", r"^*M\30"];
const STAT_CACHE: &[&str] = &["tpstat04"];

const CAPTURE: &[&str] = &["capture", "--session", "s"];
const RESTORE: &[&str] = &["restore", "s:0", "--yes"];
const PRUNE: &[&str] = &["prune", "--session", "s", "--keep", "1", "--yes"];
const PIN_ONE: &[&str] = &["pin", "s", "0"];

#[test]
fn what_has_no_room_for_one_of_its_files_was_not_done() {
    let mut scene = three_turns();
    let mut saved = scene.save();
    let tree = fingerprint::of(&scene.program.workspace());
    for case in [
        case(CAPTURE, LOG_OF_THE_INDEX, First),
        case(CAPTURE, LOG_OF_THE_INDEX, Second),
        // Content, and a page.
        case(CAPTURE, BLOB, First),
        case(CAPTURE, BLOB, Last),
        case(CAPTURE, MANIFEST, First),
        // One that says that nothing has changed, and one that changing begins.
        case(RESTORE, JOURNAL, First),
        case(RESTORE, JOURNAL, Second),
        case(RESTORE, BLOB, First),
        case(RESTORE, MANIFEST, First),
        case(PRUNE, LOG_OF_THE_INDEX, First),
        case(PIN_ONE, PIN, First),
    ] {
        let what = format!("{case:?}");
        let numbers =
            |scene: &Scene| fs::read_dir(scene.program.store().join("s")).unwrap().count();
        let run = without_room(&mut scene, &mut saved, &case);
        assert_told(&run, &case);
        let found = fingerprint::of(&scene.program.workspace());
        assert!(found == tree, "{what}: {}", differences(&tree, &found));
        assert_eq!(numbers(&scene), 3, "{what}");
        scene.assert_whole(&what);
        assert_nothing_left(&scene, &what);
    }
}

#[test]
fn what_has_no_room_for_a_file_that_it_can_do_without_was_done() {
    let mut scene = three_turns();
    let mut saved = scene.save();
    let target = scene.acknowledged().next().unwrap().1.clone();
    for (case, told) in [
        (case(CAPTURE, LOG_OF_THE_INDEX, Last), "the checkpoint stands, but the index was not"),
        (case(CAPTURE, STAT_CACHE, First), "the checkpoint stands, but the stat cache was not"),
        (case(RESTORE, LOG_OF_THE_INDEX, Last), "database or disk is full"),
        (case(RESTORE, STAT_CACHE, First), ""),
        (case(RESTORE, &["operations.jsonl>"], First), ""),
    ] {
        let what = format!("{case:?}");
        let run = without_room(&mut scene, &mut saved, &case);
        let said = format!("{}{}", run.stdout, run.stderr);
        assert_eq!(run.code, 0, "{what}: {said}");
        assert!(said.contains(told), "{what}: {said}");
        if case.arguments == CAPTURE {
            scene.acknowledge_newest();
        } else {
            let found = fingerprint::of(&scene.program.workspace());
            assert!(found == target, "{what}: {}", differences(&target, &found));
        }
        scene.assert_whole(&what);
        assert_nothing_left(&scene, &what);
    }
}

#[test]
fn a_collection_without_room_for_a_pack_takes_nothing_away() {
    let mut scene = three_turns();
    write_many(&scene, 1);
    scene.capture();
    packs::make_loose(&scene.program.store());
    let mut saved = scene.save();
    let loose = |scene: &Scene| fingerprint::of(&scene.program.store().join("blobs")).len();
    let packs = |scene: &Scene| fs::read_dir(scene.program.store().join("packs")).unwrap().count();
    let before = loose(&scene);
    for case in [case(&["gc"], BLOB, First), case(&["gc"], TRAILER, First)] {
        let what = format!("{case:?}");
        let run = without_room(&mut scene, &mut saved, &case);
        assert_told(&run, &case);
        assert_eq!((loose(&scene), packs(&scene)), (before, 0), "{what}");
        scene.assert_whole(&what);
        assert_nothing_left(&scene, &what);
        assert_eq!(packs(&scene), 1, "{what}");
    }
}

#[test]
fn a_restore_that_cannot_be_discarded_for_want_of_room_is_discarded_later() {
    let mut scene = three_turns();
    let mut before = scene.save();
    let steps = steps::of(&scene.program, RESTORE);
    scene.put_back(&mut before);
    // The second time that the journal is given its name it says that changing begins.
    let is_journal = |step: &&Step| step.text.contains("renameat(") && step.text.contains(".json");
    let step = steps.iter().filter(is_journal).nth(1).unwrap();
    step.kill(&scene.program, RESTORE).exits(137);
    let tree = fingerprint::of(&scene.program.workspace());
    let mut saved = scene.save();
    let case = case(&["restore", "--continue"], SESSION, First);
    let run = without_room(&mut scene, &mut saved, &case);
    assert_eq!(run.code, 3, "{}", run.stderr);
    assert!(run.stderr.contains("No space left"), "{}", run.stderr);
    assert!(run.stderr.contains("`turnpoint restore --continue` tries again"), "{}", run.stderr);
    assert_eq!(fingerprint::of(&scene.program.workspace()), tree);
    scene.program.run(["restore", "--continue"]).ok();
    scene.assert_whole("discarded later");
    assert_nothing_left(&scene, "discarded later");
}

#[test]
fn a_file_that_may_not_grow_so_far_is_a_failed_write_and_kills_nobody() {
    let mut scene = three_turns();
    fs::write(scene.program.workspace().join("big"), noise(400_000)).unwrap();
    let mut saved = scene.save();
    let tree = fingerprint::of(&scene.program.workspace());
    // In KiB: content does not fit; nor does the log of the index; nor does what its readers share.
    for (limit, told) in [
        ("300", "hint: raise the limit on the size of a file"),
        ("100", "the index cannot"),
        ("16", "the index cannot be opened"),
    ] {
        for command in [CAPTURE, RESTORE, PRUNE] {
            scene.put_back(&mut saved);
            let what = format!("{command:?} with files of {limit} KiB");
            let run = limited(&scene.program, limit, command);
            // Nothing that a prune writes is longer than the log.
            let is_short = command == PRUNE && limit == "300";
            assert_eq!(run.code, i32::from(!is_short), "{what}: {}{}", run.stdout, run.stderr);
            assert!(is_short || run.stderr.contains(told), "{what}: {}", run.stderr);
            let found = fingerprint::of(&scene.program.workspace());
            assert!(found == tree, "{what}: {}", differences(&tree, &found));
            if is_short {
                (0..2).for_each(|seq| scene.forget(seq));
            }
            scene.assert_whole(&what);
        }
    }
    assert_nothing_left(&scene, "files that may not grow");
}

#[test]
fn a_first_capture_whose_files_may_not_grow_so_far_leaves_nothing_in_the_way() {
    // The index does not fit; the ballast does not.
    for (limit, code) in [("20", 1), ("300", 0)] {
        let mut scene = scene();
        let run = limited(&scene.program, limit, CAPTURE);
        assert_eq!(run.code, code, "{limit} KiB: {}{}", run.stdout, run.stderr);
        scene.capture();
        scene.assert_whole("after the limit");
        assert_nothing_left(&scene, "after the limit");
    }
}

fn limited(program: &Program, limit: &str, arguments: &[&str]) -> Run {
    let script = "ulimit -f $0; exec \"$@\"";
    run(&mut program.under(&["bash", "-c", script, limit], arguments))
}

/// Bytes that no compression makes shorter.
fn noise(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    blake3::Hasher::new().finalize_xof().fill(&mut bytes);
    bytes
}
