//! `quarantine` puts away what is damaged, and nothing else.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::fingerprint;
use crate::support::program::{Program, Run, run};
use crate::support::tree::{build, file};

/// Three checkpoints of session `s`.
fn captured() -> Program {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    for text in ["one", "two", "three"] {
        build(&program.workspace(), [("a.txt", file(text)), ("sub/b.txt", file("same"))]);
        program.run(["capture", "--session", "s"]).ok();
    }
    program
}

fn later(program: &Program, arguments: &[&str]) -> Run {
    run(program.command(arguments).env("TURNPOINT_TEST_CLOCK_SHIFT_SECONDS", "3600"))
}

#[track_caller]
fn restored(program: &Program, id: &str) -> fingerprint::Fingerprint {
    let into = program.root().join("into");
    program.run(["restore", id, "--into", into.to_str().unwrap()]).ok();
    let restored = fingerprint::of(&into);
    fs::remove_dir_all(&into).unwrap();
    restored
}

fn seqs(program: &Program) -> Vec<u64> {
    let json = program.run(["list", "--session", "s", "--json"]).json();
    json["checkpoints"].as_array().unwrap().iter().map(|it| it["seq"].as_u64().unwrap()).collect()
}

/// The loose blob whose content is `text`.
fn blob(program: &Program, text: &str) -> PathBuf {
    let shards = fs::read_dir(program.store().join("blobs")).unwrap();
    let files = shards.flat_map(|shard| fs::read_dir(shard.unwrap().path()).unwrap());
    files
        .map(|file| file.unwrap().path())
        .find(|path| run(program.other("zstd").arg("-dcq").arg(path)).stdout == text)
        .unwrap()
}

#[test]
fn a_manifest_that_stops_every_collection_is_put_away_and_the_others_stay() {
    let program = captured();
    let manifest = program.store().join("s/1.json");
    let (sound, others) = (fs::read(&manifest).unwrap(), ["s:0", "s:2"]);
    let before = others.map(|id| restored(&program, id));
    program.run(["pin", "s:1", "--note", "kept"]).ok();
    fs::write(&manifest, &sound[..sound.len() / 2]).unwrap();
    // The index that knew what it names is lost too.
    for name in ["index.db", "index.db-wal", "index.db-shm"] {
        fs::remove_file(program.store().join(name)).ok();
    }
    later(&program, &["gc"]).exits(3);
    // Without a yes nothing happens.
    let refused = program.run(["quarantine", "s/1.json"]).exits(3);
    assert!(refused.stdout.starts_with("would move "), "{}", refused.stdout);
    assert!(refused.stderr.contains("needs a yes"), "{}", refused.stderr);
    let planned = program.run(["quarantine", "s/1.json", "--dry-run", "--json"]).ok().json();
    assert_eq!(planned["dry_run"], true);
    assert!(manifest.exists());
    let done = program.run(["quarantine", "s/1.json", "--yes", "--json"]).ok().json();
    assert_eq!((&done["kind"], &done["to"]), (&Value::from("manifest"), &planned["to"]));
    assert_eq!(done["checkpoints"], serde_json::json!([{ "session": "s", "seq": 1 }]));
    assert_eq!(done["pin"]["path"], manifest.with_extension("pin").to_str().unwrap());
    let kept = program.store().join("quarantine/s/1.json");
    assert_eq!(done["to"]["path"], kept.to_str().unwrap());
    assert_eq!(fs::read(&kept).unwrap(), sound[..sound.len() / 2]);
    assert!(kept.with_extension("pin").exists() && !manifest.with_extension("pin").exists());
    assert_eq!(seqs(&program), [0, 2]);
    later(&program, &["gc"]).ok();
    program.run(["verify", "--read-data"]).ok();
    assert_eq!(others.map(|id| restored(&program, id)), before);
    let log = fs::read_to_string(program.store().join("operations.jsonl")).unwrap();
    assert!(log.lines().any(|line| line.contains("\"verb\":\"quarantine\"")), "{log}");
    program.run(["quarantine", "s/1.json", "--yes"]).exits(2);
}

#[test]
fn a_checkpoint_is_given_up_although_the_index_knows_it() {
    let program = captured();
    let manifest = program.store().join("s/2.json");
    let sound = fs::read(&manifest).unwrap();
    fs::write(&manifest, "x").unwrap();
    program.run(["quarantine", manifest.to_str().unwrap(), "--yes"]).ok();
    assert_eq!(seqs(&program), [0, 1]);
    program.run(["verify"]).ok();
    // Its number stays given, whatever else is lost.
    for name in ["index.db", "index.db-wal", "index.db-shm", "s/session.json"] {
        fs::remove_file(program.store().join(name)).ok();
    }
    fs::write(program.workspace().join("a.txt"), "four").unwrap();
    let json = program.run(["capture", "--session", "s", "--json"]).ok().json();
    assert_eq!(json["seq"], 3);
    // Moved back by hand, and whole again, it is a checkpoint as before.
    fs::rename(program.store().join("quarantine/s/2.json"), &manifest).unwrap();
    fs::write(&manifest, sound).unwrap();
    let found = program.run(["doctor", "--json"]).ok().json();
    assert_eq!(found["findings"][0]["id"], "checkpoint-unindexed", "{found:#}");
    program.run(["doctor", "--fix"]).ok();
    assert_eq!(seqs(&program), [0, 1, 2, 3]);
    restored(&program, "s:2");
}

#[test]
fn a_crash_between_the_file_and_the_row_is_gone_on_with() {
    let program = captured();
    let moved = program.store().join("quarantine/s/1.json");
    fs::create_dir(moved.parent().unwrap()).unwrap();
    fs::rename(program.store().join("s/1.json"), &moved).unwrap();
    later(&program, &["gc"]).exits(3);
    program.run(["quarantine", "s/1.json", "--yes"]).ok();
    later(&program, &["gc"]).ok();
    program.run(["verify", "--read-data"]).ok();
    assert_eq!(seqs(&program), [0, 2]);
}

#[test]
fn what_is_sound_or_no_part_of_the_store_stays() {
    let program = captured();
    program.run(["pin", "s:0"]).ok();
    let sound = blob(&program, "one").strip_prefix(program.store()).unwrap().to_owned();
    for (path, code) in [
        ("s/1.json", 3),
        ("s/0.pin", 3),
        (sound.to_str().unwrap(), 3),
        ("s/9.json", 2),
        ("s/session.json", 2),
        ("index.db", 2),
        ("../a.txt", 2),
        ("s/../s/1.json", 2),
        ("/etc/passwd", 2),
        ("s\u{1b}[2J/1.json", 2),
    ] {
        for arguments in [["--yes", "--json"], ["--dry-run", "--json"]] {
            let run = program.run([&["quarantine", path], &arguments[..]].concat()).exits(code);
            let document: Value = serde_json::from_str(&run.stderr).unwrap();
            let expected = if code == 3 { "quarantine-refused" } else { "not-of-store" };
            assert_eq!(document["code"], expected, "{path}");
        }
    }
    let shown = program.run(["quarantine", "s\u{1b}[2J/1.json", "--yes"]).exits(2);
    assert!(!shown.stderr.contains('\u{1b}'), "{}", shown.stderr);
    assert_eq!(fs::read_dir(program.store().join("quarantine")).unwrap().count(), 0);
    // A newer program can read it.
    let manifest = program.store().join("s/1.json");
    let newer = fs::read_to_string(&manifest).unwrap().replacen("\"format\":1", "\"format\":9", 1);
    fs::write(&manifest, newer).unwrap();
    let refused = program.run(["quarantine", "s/1.json", "--yes"]).exits(3);
    assert!(refused.stderr.contains("newer"), "{}", refused.stderr);
}

#[test]
fn a_damaged_blob_is_put_away_and_stored_anew() {
    let program = captured();
    let damaged = blob(&program, "three");
    fs::write(&damaged, "garbage").unwrap();
    let done =
        program.run(["quarantine", damaged.to_str().unwrap(), "--yes", "--json"]).ok().json();
    assert_eq!(done["checkpoints"], serde_json::json!([{ "session": "s", "seq": 2 }]));
    let below = damaged.strip_prefix(program.store()).unwrap();
    assert_eq!(fs::read(program.store().join("quarantine").join(below)).unwrap(), b"garbage");
    assert!(!damaged.exists());
    program.run(["doctor"]).exits(4);
    program.run(["capture", "--session", "s"]).ok();
    program.run(["verify", "--read-data"]).ok();
    restored(&program, "s:2");
}

#[test]
fn a_checkpoint_whose_page_is_lost_can_be_given_up() {
    let program = captured();
    let before = ["s:0", "s:1"].map(|id| restored(&program, id));
    let manifest = fs::read_to_string(program.store().join("s/2.json")).unwrap();
    let manifest: Value = serde_json::from_str(&manifest).unwrap();
    let root = manifest["root"].as_str().unwrap();
    fs::remove_file(program.store().join("blobs").join(root.split_at(2).0).join(root)).unwrap();
    program.run(["verify"]).exits(4);
    later(&program, &["gc"]).exits(3);
    program.run(["quarantine", "s/2.json", "--yes"]).ok();
    program.run(["verify", "--read-data"]).ok();
    later(&program, &["gc"]).ok();
    assert_eq!(["s:0", "s:1"].map(|id| restored(&program, id)), before);
    program.run(["capture", "--session", "s"]).ok();
}

#[test]
fn a_pin_that_cannot_be_understood_is_given_up_and_the_checkpoint_stays() {
    let program = captured();
    program.run(["pin", "s:0"]).ok();
    fs::write(program.store().join("s/0.pin"), "x").unwrap();
    program.run(["verify"]).exits(4);
    let done = program.run(["quarantine", "s/0.pin", "--yes"]).ok();
    assert!(done.stdout.contains("the checkpoint stays"), "{}", done.stdout);
    program.run(["verify"]).ok();
    assert_eq!(seqs(&program), [0, 1, 2]);
}

#[test]
fn what_is_whole_in_a_damaged_pack_is_saved_before_it_goes() {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    for number in 0..80 {
        let text = format!("{number} text ").repeat(9);
        fs::write(program.workspace().join(format!("f{number}")), text).unwrap();
    }
    program.run(["capture", "--session", "s"]).ok();
    let before = restored(&program, "s:0");
    later(&program, &["gc"]).ok();
    let packs: Vec<PathBuf> = fs::read_dir(program.store().join("packs"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    let [pack] = &packs[..] else { panic!("{packs:?}") };
    let mut bytes = fs::read(pack).unwrap();
    // One byte of a frame, and nothing of the trailer.
    bytes[40] ^= 1;
    fs::write(pack, &bytes).unwrap();
    let planned =
        program.run(["quarantine", pack.to_str().unwrap(), "--dry-run", "--json"]).ok().json();
    assert!(planned["reason"].as_str().unwrap().starts_with("1 of 8"), "{planned:#}");
    assert_eq!(planned["checkpoints"].as_array().unwrap().len(), 1);
    program.run(["quarantine", pack.to_str().unwrap(), "--yes"]).ok();
    let name = pack.file_name().unwrap();
    assert_eq!(fs::read(program.store().join("quarantine/packs").join(name)).unwrap(), bytes);
    assert!(!Path::new(pack).exists());
    // The one that was damaged is stored anew; all others were saved.
    program.run(["capture", "--session", "s"]).ok();
    program.run(["verify", "--read-data"]).ok();
    assert_eq!(restored(&program, "s:0"), before);
}

#[test]
fn an_open_restore_keeps_what_it_needs() {
    for at in 1..40 {
        let program = captured();
        let inject = format!("inject=renameat2:signal=KILL:when={at}");
        let strace = ["strace", "-f", "-o", "/dev/null", "-e", "trace=renameat2", "-e", &inject];
        if run(&mut program.under(&strace, ["restore", "s:0", "--yes"])).code == 0 {
            break;
        }
        if !program.run(["list"]).ok().stderr.contains("was interrupted while it changed files") {
            continue;
        }
        fs::write(program.store().join("s/0.json"), "x").unwrap();
        let refused = program.run(["quarantine", "s/0.json", "--yes"]).exits(3);
        assert!(refused.stderr.contains("an open restore needs it"), "{}", refused.stderr);
        assert!(program.store().join("s/0.json").exists());
        return;
    }
    panic!("no death of a restore left it half applied");
}

/// Only what `quarantine` itself moved is gone on with: of another manifest of the session nobody knows
/// where it is.
#[test]
fn a_manifest_that_was_lost_by_hand_is_not_given_up() {
    let program = captured();
    let (lost, moved) = (program.store().join("s/1.json"), program.root().join("1.json"));
    let other = program.store().join("quarantine/s/2.json");
    fs::create_dir(other.parent().unwrap()).unwrap();
    fs::write(&other, "{").unwrap();
    fs::rename(&lost, &moved).unwrap();
    program.run(["quarantine", "s/1.json", "--yes"]).exits(2);
    fs::rename(&moved, &lost).unwrap();
    assert_eq!(seqs(&program), [0, 1, 2]);
    restored(&program, "s:1");
}
