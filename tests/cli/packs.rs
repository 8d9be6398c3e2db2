//! Packs, as the program makes, reads, tells of and repairs them.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::Value;
use turnpoint::limits::Packing;
use turnpoint::{CaptureOptions, Store};

use crate::support::corpus::Random;
use crate::support::fingerprint;
use crate::support::packs;
use crate::support::program::{Program, Run, run};

const FILES: usize = 80;

/// So many files that a collection moves them into a pack.
fn captured() -> Program {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    for number in 0..FILES {
        write(&program, number, "first");
    }
    program.run(["capture", "--session", "s"]).ok();
    packs::make_loose(&program.store());
    program
}

fn write(program: &Program, number: usize, text: &str) {
    let text = format!("{number} {text} ").repeat(5 + number % 7);
    fs::write(program.workspace().join(format!("f{number}")), text).unwrap();
}

/// Collects an hour later.
fn collecting(program: &Program, arguments: &[&str]) -> Command {
    let mut command = program.command([&["gc"], arguments].concat());
    command.env("TURNPOINT_TEST_CLOCK_SHIFT_SECONDS", "3600");
    command
}

fn collect(program: &Program, arguments: &[&str]) -> Run {
    run(&mut collecting(program, arguments))
}

fn files_in(program: &Program, directory: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(program.store().join(directory)).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

fn loose(program: &Program) -> usize {
    files_in(program, "blobs").iter().map(|shard| fs::read_dir(shard).unwrap().count()).sum()
}

fn the_pack(program: &Program) -> PathBuf {
    let packs = files_in(program, "packs");
    assert_eq!(packs.len(), 1);
    packs[0].clone()
}

/// Restores `s:0` elsewhere and compares it with `expected`.
#[track_caller]
fn assert_restored(program: &Program, expected: &fingerprint::Fingerprint) {
    let into = program.root().join("into");
    program.run([OsStr::new("restore"), "s:0".as_ref(), "--into".as_ref(), into.as_ref()]).ok();
    fingerprint::assert_same(expected, &fingerprint::of(&into));
    fs::remove_dir_all(into).unwrap();
}

#[test]
fn a_collection_says_what_it_moved_into_packs_and_it_reads_as_before() {
    let program = captured();
    let tree = fingerprint::of(&program.workspace());
    let before = loose(&program);
    let planned = collect(&program, &["--dry-run"]).ok();
    assert!(!planned.stdout.contains("packs"), "{}", planned.stdout);
    let told = collect(&program, &[]).ok();
    let line = format!("{before} small blobs were moved into packs, which take less room");
    assert!(told.stdout.contains(&line), "{}", told.stdout);
    assert_eq!((loose(&program), files_in(&program, "packs").len()), (0, 1));
    let again = collect(&program, &["--json"]).ok().json();
    assert_eq!((&again["blobs_packed"], &again["blobs_removed"]), (&0.into(), &0.into()));
    assert_restored(&program, &tree);
    program.run(["verify", "--read-data"]).ok();
    // The file as such is good input for zstd.
    let all = Command::new("zstd").arg("-dcq").arg(the_pack(&program)).output().unwrap();
    assert!(all.status.success() && all.stdout.len() > FILES);

    for number in 0..FILES {
        write(&program, number, "second");
    }
    program.run(["capture", "--session", "s"]).ok();
    packs::make_loose(&program.store());
    let packed = collect(&program, &["--json"]).ok().json();
    assert!(packed["blobs_packed"].as_u64().unwrap() >= FILES as u64, "{packed}");
    assert_restored(&program, &tree);
}

/// The independent reader on the store.
fn reader(program: &Program, arguments: &[&OsStr]) -> Run {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reader/read_store.py");
    run(program.other("python3").arg(script).arg(program.store()).args(arguments))
}

#[test]
fn the_independent_reader_reads_packs_and_sees_their_damage() {
    let program = captured();
    collect(&program, &[]).ok();
    assert_eq!(loose(&program), 0);
    let work = program.workspace();
    let check: [&OsStr; 5] =
        ["check".as_ref(), "--tree".as_ref(), work.as_ref(), "s".as_ref(), "0".as_ref()];
    assert_eq!(reader(&program, &check).ok().stdout, "");
    let content = fs::read(work.join("f7")).unwrap();
    let cat: [&OsStr; 4] = ["cat".as_ref(), "s".as_ref(), "0".as_ref(), "f7".as_ref()];
    assert_eq!(reader(&program, &cat).ok().stdout_bytes, content);
    let pack = the_pack(&program);
    let whole = fs::read(&pack).unwrap();
    for from_end in [1, 12, 28, 28 + 44, whole.len()] {
        let mut damaged = whole.clone();
        damaged[whole.len() - from_end] ^= 0x10;
        fs::write(&pack, damaged).unwrap();
        assert_ne!(reader(&program, &["check".as_ref()]).exits(1).stdout, "", "{from_end}");
    }
}

#[test]
fn a_damaged_trailer_is_named_blocks_deletion_and_is_repaired() {
    let program = captured();
    let tree = fingerprint::of(&program.workspace());
    collect(&program, &[]).ok();
    let pack = the_pack(&program);
    let mut bytes = fs::read(&pack).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&pack, &bytes).unwrap();

    let verified = program.run(["verify", "--json"]).exits(4).json();
    let findings = verified["findings"].as_array().unwrap();
    let kind = |finding: &&Value| finding["kind"] == "pack-damaged";
    let damaged: Vec<&Value> = findings.iter().filter(kind).collect();
    assert_eq!(damaged.len(), 1, "{verified}");
    assert_eq!(damaged[0]["file"]["path"], pack.to_str().unwrap());
    let told = program.run(["verify"]).exits(4);
    assert!(told.stderr.contains("pack-damaged: "), "{}", told.stderr);
    let refused = collect(&program, &[]).exits(3);
    assert!(refused.stderr.contains(pack.to_str().unwrap()), "{}", refused.stderr);
    assert_eq!(fs::read(&pack).unwrap(), bytes);

    let rebuilt = program.run(["doctor", "--rebuild", "--json"]).ok().json();
    assert_eq!(rebuilt["repaired"][0]["file"]["path"], pack.to_str().unwrap(), "{rebuilt}");
    program.run(["verify", "--read-data"]).ok();
    collect(&program, &[]).ok();
    assert_restored(&program, &tree);
    let kept = files_in(&program, "quarantine");
    assert_eq!((kept.len(), fs::read(&kept[0]).unwrap()), (1, bytes));
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(copied.success());
}

fn is_killed_after(program: &Program, microseconds: usize) -> bool {
    let mut command = collecting(program, &[]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    while begun.elapsed().as_micros() < microseconds as u128 {
        std::hint::spin_loop();
    }
    child.kill().unwrap();
    child.wait().unwrap().code().is_none()
}

fn is_killed_at_unlink(program: &Program, number: usize) -> bool {
    let inject = format!("inject=unlinkat:signal=KILL:when={number}");
    let wrapper = ["strace", "-f", "-o", "/dev/null", "-e", "trace=unlinkat", "-e", &inject];
    let mut command = program.under(&wrapper, ["gc"]);
    run(command.env("TURNPOINT_TEST_CLOCK_SHIFT_SECONDS", "3600")).code != 0
}

/// How often a collection is killed. `TURNPOINT_KILLS` asks for more.
const KILLS: u32 = 8;

#[test]
fn a_collection_that_is_killed_loses_nothing_and_the_next_leaves_nothing_behind() {
    let memory = Path::new("/dev/shm");
    let binary = env!("CARGO_BIN_EXE_turnpoint");
    let program =
        if memory.is_dir() { Program::below(binary, memory) } else { Program::new(binary) };
    // A pack of which a third is needed, and as many loose blobs as make another.
    for round in 0..2 {
        for number in 0..FILES {
            write(&program, number, ["old", "first"][round]);
        }
        let before = packs::all(&program.store());
        program.run(["capture", "--session", ["other", "s"][round]]).ok();
        let added = packs::all(&program.store()).difference(&before).cloned().collect();
        packs::make_loose_of(&program.store(), &added);
        if round == 0 {
            collect(&program, &[]).ok();
            for number in FILES / 3..FILES {
                fs::remove_file(program.workspace().join(format!("f{number}"))).unwrap();
            }
            program.run(["capture", "--session", "other"]).ok();
            program.run(["prune", "--session", "other", "--keep", "1", "--yes"]).ok();
        }
    }
    let tree = fingerprint::of(&program.workspace());
    let pristine = program.root().join("pristine");
    copy(&program.store(), &pristine);
    let begun = Instant::now();
    let done = collect(&program, &["--json"]).ok().json();
    let most = usize::try_from(begun.elapsed().as_micros()).unwrap();
    let moved = usize::try_from(done["blobs_packed"].as_u64().unwrap()).unwrap();
    assert!(moved >= FILES && done["blobs_removed"].as_u64().unwrap() > 0, "{done}");
    let packs = files_in(&program, "packs").len();

    let kills = std::env::var("TURNPOINT_KILLS").map_or(KILLS, |text| text.parse().unwrap());
    let mut random = Random::new(u64::from(kills));
    let mut killed = 0;
    for kill in 0..kills {
        fs::remove_dir_all(program.store()).unwrap();
        copy(&pristine, &program.store());
        killed += u32::from(if kill % 2 == 0 {
            is_killed_after(&program, random.below(most))
        } else {
            // Every one that moves is unlinked.
            is_killed_at_unlink(&program, 1 + random.below(moved))
        });

        assert_restored(&program, &tree);
        collect(&program, &[]).ok();
        // Fewer than 64 that were packed and not yet removed are not worth another look at them.
        assert!(loose(&program) < 64, "{} loose blobs", loose(&program));
        assert_eq!(files_in(&program, "packs").len(), packs);
        for directory in ["tmp", "leases"] {
            assert_eq!(files_in(&program, directory), [""; 0].map(PathBuf::from));
        }
        program.run(["verify", "--read-data"]).ok();
    }
    assert_restored(&program, &tree);
    assert!(killed >= kills / 2, "{killed} of {kills} were killed before their end");
}

/// A process has no more files open than it may, whatever there is in the store.
#[test]
fn a_store_with_more_packs_than_files_may_be_open_is_used_and_collected() {
    const PACKS: usize = 300;
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    for number in 0..PACKS {
        write(&program, number, "first");
    }
    let tree = fingerprint::of(&program.workspace());
    let one_each = Packing { above_files: 0, pack_bytes_max: 1, ..Packing::default() };
    let store = Store::with_packing(&program.sessions_home(), one_each);
    let mut options = CaptureOptions::default();
    options.session = Some("s".to_owned());
    drop(store.capture(&program.workspace(), &options, &()).unwrap());
    assert!(files_in(&program, "packs").len() > PACKS);

    let limit = ["sh", "-c", "ulimit -n 128 && exec \"$0\" \"$@\""];
    let limited = |arguments: &[&str]| {
        let mut command = program.under(&limit, arguments);
        run(command.env("TURNPOINT_TEST_CLOCK_SHIFT_SECONDS", "3600")).ok()
    };
    for number in 0..10 {
        write(&program, number, "second");
    }
    limited(&["capture", "--session", "s"]);
    limited(&["restore", "s:0", "--yes", "--session", "s"]);
    fingerprint::assert_same(&tree, &fingerprint::of(&program.workspace()));
    limited(&["verify", "--read-data"]);
    limited(&["gc"]);
    assert!(files_in(&program, "packs").len() < PACKS);
    limited(&["verify", "--read-data"]);
    assert_restored(&program, &tree);
}

/// Content in a pack that the disk does not give back may be there: to call it missing would be to have it
/// forgotten.
#[test]
fn what_cannot_be_read_is_not_called_missing() {
    let program = captured();
    collect(&program, &[]).ok();
    let (pack, log) = (the_pack(&program), program.root().join("strace"));
    let files = ["-o", log.to_str().unwrap(), "-P", pack.to_str().unwrap()];
    let mut unreadable = 0;
    // The first are those by which the pack is opened and its names are all read.
    for from in [5, 7, 12, 20] {
        let inject = format!("inject=pread64:error=EIO:when={from}+");
        let trace = ["strace", "-f", "-qq", "-e", "trace=pread64", "-e", &inject];
        let wrapper = [&trace[..], &files].concat();
        let told = run(&mut program.under(&wrapper, ["verify", "--json"])).exits(4).json();
        let findings = told["findings"].as_array().unwrap().iter();
        let kinds: Vec<&str> = findings.map(|it| it["kind"].as_str().unwrap()).collect();
        assert!(!kinds.contains(&"blob-missing"), "{from}: {told}");
        unreadable += kinds.iter().filter(|kind| **kind == "blob-unreadable").count();
        program.run(["verify"]).ok();
    }
    assert!(unreadable > 10, "{unreadable}");
}
