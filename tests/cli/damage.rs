//! A store in which something is damaged: it concerns as little as possible, is named, and is repaired
//! from what else is known; nothing is lost on the way.

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::fingerprint;
use crate::support::packs;
use crate::support::program::{Program, Run, run};
use crate::support::tree::{build, file};

const GARBAGE: &[u8] = b"\x00\xffgarbage";

/// Two checkpoints of the workspace in session `s`, and one in its default session.
fn captured() -> Program {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    build(&program.workspace(), [("a.txt", file("one")), ("sub/b.txt", file("two"))]);
    program.run(["capture", "--session", "s"]).ok();
    fs::write(program.workspace().join("a.txt"), "changed").unwrap();
    program.run(["capture"]).ok();
    program.run(["capture", "--session", "s"]).ok();
    program
}

/// Another workspace in the same store.
fn other(program: &Program) -> PathBuf {
    let other = program.root().join("other");
    build(&other, [("c.txt", file("three"))]);
    other
}

/// The only directory in `workspaces`.
fn workspace_file(program: &Program) -> PathBuf {
    let mut all = fs::read_dir(program.store().join("workspaces")).unwrap();
    let dir = all.next().unwrap().unwrap().path();
    assert!(all.next().is_none());
    dir.join("workspace.json")
}

fn findings(program: &Program) -> Vec<(String, PathBuf)> {
    let run = program.run(["verify", "--read-data", "--json"]);
    let json = run.json();
    let found: Vec<_> = json["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            (text(&finding["kind"]), PathBuf::from(text(&finding["file"]["path"])))
        })
        .collect();
    run.exits(if found.is_empty() { 0 } else { 4 });
    found
}

/// Every checkpoint as `session:seq workspace`.
fn checkpoints(program: &Program, session: &str) -> Vec<String> {
    let json = program.run(["list", "--session", session, "--json"]).json();
    let shown = |it: &Value| format!("{} {}", it["seq"], it["workspace"].as_str().unwrap());
    json["checkpoints"].as_array().unwrap().iter().map(shown).collect()
}

fn said(run: &Run, text: &str) {
    assert!(run.stderr.contains(text), "{text:?} is not in\n{}", run.stderr);
}

fn log(program: &Program) -> Vec<Value> {
    let text = fs::read_to_string(program.store().join("operations.jsonl")).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn default_session(program: &Program) -> String {
    let json = program.run(["list", "--sessions", "--json"]).json();
    let sessions = json["sessions"].as_array().unwrap().iter();
    let names = sessions.map(|session| session["session"].as_str().unwrap().to_owned());
    names.into_iter().find(|name| name.starts_with("work-")).unwrap()
}

#[test]
fn a_damaged_workspace_file_concerns_its_own_workspace_and_is_made_anew() {
    let program = captured();
    let damaged = workspace_file(&program);
    let (other, session) = (other(&program), default_session(&program));
    let before = checkpoints(&program, "s");
    for is_lost in [false, true] {
        if is_lost {
            fs::remove_file(&damaged).unwrap();
        } else {
            fs::write(&damaged, GARBAGE).unwrap();
        }
        let in_other = |words: &[&str]| {
            program.run(words.iter().copied().chain(["-C", other.to_str().unwrap()]))
        };
        in_other(&["capture", "--session", "t"]).ok();
        in_other(&["list"]).ok();
        let found = ("workspace-unreadable".to_owned(), damaged.clone());
        assert_eq!(findings(&program), [found]);
        // Reading answers from the checkpoints and repairs nothing.
        assert_eq!(checkpoints(&program, "s"), before);
        program.run(["show", "s:latest"]).ok();
        assert_eq!(damaged.exists(), !is_lost);
        // Below the root too it is known whose the directory is.
        let mut below = program.command(["capture"]);
        let made = run(below.current_dir(program.workspace().join("sub"))).ok();
        said(&made, "workspace.json was");
        assert!(made.stdout.contains(&format!("captured {session}:")), "{}", made.stdout);
        assert_eq!(findings(&program), []);
    }
    let aside = damaged.with_file_name("workspace.json.damaged");
    assert_eq!(fs::read(aside).unwrap(), GARBAGE);
    let id = damaged.parent().unwrap().file_name().unwrap().to_str().unwrap();
    assert!(checkpoints(&program, &session).iter().all(|line| line.ends_with(id)));
}

#[test]
fn doctor_makes_workspace_files_anew_so_that_a_moved_workspace_is_known() {
    let program = captured();
    let damaged = workspace_file(&program);
    fs::remove_file(&damaged).unwrap();
    fs::create_dir(&damaged).unwrap();
    assert_eq!(findings(&program), [("workspace-unreadable".to_owned(), damaged.clone())]);
    let json = program.run(["doctor", "--rebuild", "--json"]).ok().json();
    assert_eq!(json["repaired"][0]["file"]["path"], damaged.to_str().unwrap());
    let aside = json["repaired"][0]["aside"]["path"].as_str().unwrap();
    assert!(Path::new(aside).is_dir());
    assert_eq!(findings(&program), []);
    assert_eq!(log(&program).last().unwrap()["verb"], "doctor-rebuild");
    let (here, moved) = (program.workspace(), program.root().join("moved"));
    fs::rename(&here, &moved).unwrap();
    fs::create_dir(&here).unwrap();
    let capture = ["capture", "-C", moved.to_str().unwrap()];
    said(&program.run(capture).ok(), "the workspace was moved");
    assert_eq!(workspace_file(&program), damaged);
}

/// A device may have another number after a boot. What was seen on it is not relied upon: it may be a copy.
#[test]
fn a_device_that_has_another_number_is_no_news() {
    let program = captured();
    let file = workspace_file(&program);
    let right = fs::read(&file).unwrap();
    let change_device = || {
        let mut remembered: Value = serde_json::from_slice(&right).unwrap();
        let device = remembered["identity"]["device"].as_u64().unwrap();
        remembered["identity"]["device"] = (device + 1).into();
        fs::write(&file, remembered.to_string()).unwrap();
    };
    program.run(["capture"]).ok();
    change_device();
    let captured = program.run(["capture"]).ok();
    assert_eq!(captured.stderr, "");
    assert!(captured.stdout.contains("2 files, 2 read"), "{}", captured.stdout);
    assert_eq!(fs::read(&file).unwrap(), right);
    // Moved as well.
    change_device();
    let moved = program.root().join("moved");
    fs::rename(program.workspace(), &moved).unwrap();
    let mut capture = program.command(["capture"]);
    said(&run(capture.current_dir(&moved)).ok(), "the workspace was moved");
    assert_eq!(workspace_file(&program), file);
}

#[test]
fn a_workspace_file_of_a_newer_program_is_left_alone() {
    let program = captured();
    let newer = workspace_file(&program);
    fs::write(&newer, r#"{"format":2,"more":true}"#).unwrap();
    said(&program.run(["capture"]).exits(3), "has format 2");
    program.run(["doctor", "--rebuild"]).exits(4);
    assert_eq!(fs::read_to_string(&newer).unwrap(), r#"{"format":2,"more":true}"#);
    let other = other(&program);
    program.run(["capture", "-C", other.to_str().unwrap()]).ok();
}

#[test]
fn no_number_is_given_twice_whatever_becomes_of_session_file_and_index() {
    let program = captured();
    let session_file = program.store().join("s/session.json");
    // Numbers up to 40 were given, as only this file knows.
    fs::write(&session_file, r#"{"next_seq":41,"agent":"of a later version"}"#).unwrap();
    assert_eq!(findings(&program), []);
    program.run(["capture", "--session", "s"]).ok();
    fs::remove_file(program.store().join("s/41.json")).unwrap();
    fs::write(&session_file, GARBAGE).unwrap();
    let found = findings(&program);
    assert!(found.contains(&("session-unreadable".to_owned(), session_file.clone())), "{found:?}");
    // Other sessions go on, and so does this one.
    program.run(["capture", "--session", "t"]).ok();
    let made = program.run(["capture", "--session", "s"]).ok();
    assert!(made.stdout.contains("captured s:42"), "{}", made.stdout);
    said(&made, "session.json was damaged");
    let aside = session_file.with_file_name("session.json.damaged");
    assert_eq!(fs::read(aside).unwrap(), GARBAGE);
    // What the index knows survives its rebuilding, and goes into the file.
    fs::write(&session_file, GARBAGE).unwrap();
    fs::remove_file(program.store().join("s/42.json")).unwrap();
    program.run(["doctor", "--rebuild"]).ok();
    assert_eq!(fs::read_to_string(&session_file).unwrap(), r#"{"next_seq":43}"#);
    for name in ["index.db", "index.db-wal", "index.db-shm"] {
        fs::remove_file(program.store().join(name)).ok();
    }
    let made = program.run(["capture", "--session", "s"]).ok();
    assert!(made.stdout.contains("captured s:43"), "{}", made.stdout);
    assert_eq!(findings(&program), []);
}

#[test]
fn a_journal_that_cannot_be_understood_is_named_and_can_be_ended() {
    let program = captured();
    let workspace = workspace_file(&program);
    let id = workspace.parent().unwrap().file_name().unwrap().to_str().unwrap();
    let journal = program.store().join(format!("journal/{id}.json"));
    fs::write(&journal, GARBAGE).unwrap();
    let stage = program.workspace().join(".turnpoint/stage-00");
    build(&stage, [("0", file("displaced"))]);
    assert_eq!(findings(&program), [("journal-unreadable".to_owned(), journal.clone())]);
    let abort = format!("`turnpoint -C {} restore --abort`", program.workspace().display());
    said(&program.run(["capture"]).ok(), "--abort");
    said(&program.run(["prune"]).exits(3), &abort);
    said(&program.run(["gc"]).exits(3), &abort);
    said(&program.run(["restore", "s:0", "--yes"]).exits(3), "--abort");
    said(&program.run(["list"]).exits(4), &abort);
    program.run(["restore", "--continue"]).exits(3);
    said(&program.run(["restore", "--abort"]).exits(3), "needs a yes");
    assert!(journal.exists());
    let ended = program.run(["restore", "--abort", "--yes"]).ok();
    said(&ended, ".turnpoint/stage-00 was left as it is");
    let aside = journal.with_extension("json.damaged");
    said(&ended, &format!("it is kept as {}", aside.display()));
    assert_eq!(fs::read(aside).unwrap(), GARBAGE);
    assert_eq!(fs::read_to_string(stage.join("0")).unwrap(), "displaced");
    assert_eq!(log(&program).last().unwrap()["verb"], "restore-abort");
    assert_eq!(findings(&program), []);
    program.run(["restore", "--abort", "--yes"]).exits(2);
    program.run(["gc"]).ok();
    program.run(["restore", "s:0", "--yes"]).ok();
    assert_eq!(fs::read_to_string(program.workspace().join("a.txt")).unwrap(), "one");
}

#[test]
fn an_operation_of_another_machine_is_forgotten_only_when_told_to() {
    let program = captured();
    let id = "0123456789abcdef0123456789abcdef";
    let insert = format!(
        "INSERT INTO operations (id, kind, machine, boot, started_at_ns) \
         VALUES (x'{id}', 'capture', zeroblob(16), x'ffffffffffffffffffffffffffffffff', 1)"
    );
    change_index(&program, &insert);
    said(&program.run(["gc"]).exits(3), &format!("`turnpoint doctor --forget-operation {id}`"));
    let forget = ["doctor", "--forget-operation", id, "--json"];
    // A lock that is held tells the truth, wherever the holder runs.
    let lease = program.store().join("leases").join(id);
    let held = fs::File::create(&lease).unwrap();
    held.lock().unwrap();
    let refused = program.run(forget).exits(3);
    said(&refused, "operation-alive");
    drop(held);
    let json = program.run(forget).ok().json();
    let is_foreign = &json["is_foreign"];
    assert_eq!(
        (&json["operation"], &json["kind"], is_foreign),
        (&Value::from(id), &Value::from("capture"), &Value::from(true))
    );
    assert!(!lease.exists());
    assert_eq!(log(&program).last().unwrap()["operation"], id);
    program.run(["gc"]).ok();
    program.run(forget).exits(2);
}

#[test]
fn a_store_without_its_format_is_no_empty_store() {
    let program = captured();
    let format = program.store().join("format.json");
    for damage in [None, Some(GARBAGE)] {
        fs::remove_file(&format).unwrap();
        if let Some(garbage) = damage {
            fs::write(&format, garbage).unwrap();
        }
        assert_eq!(findings(&program), [("format-damaged".to_owned(), format.clone())]);
        let checked = program.run(["verify"]).exits(4);
        assert!(checked.stdout.contains("3 checkpoints"), "{}", checked.stdout);
        for refused in [&["list"][..], &["list", "--sessions"], &["show", "s:0"], &["capture"]] {
            said(&program.run(refused).exits(3), "`turnpoint doctor --rebuild`");
        }
        program.run(["doctor"]).exits(4);
        let repaired = program.run(["doctor", "--rebuild"]).ok();
        assert!(repaired.stdout.contains("repaired"), "{}", repaired.stdout);
        assert_eq!(findings(&program), []);
        assert_eq!(checkpoints(&program, "s").len(), 2);
    }
    program.run(["capture"]).ok();
    // A directory without any checkpoint of ours is somebody else's still.
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    build(&program.store(), [("s/0.json", file(r#"{"of":"another program"}"#))]);
    program.run(["verify"]).ok();
    said(&program.run(["capture"]).exits(3), "cannot be used as a store");
}

/// Overwrites all of the index but its first page, which holds the header and the names of tables.
fn spoil_index(program: &Program) {
    let mut sqlite = program.other("sqlite3");
    let index = program.store().join("index.db");
    run(sqlite.arg(&index).arg("PRAGMA wal_checkpoint(TRUNCATE)")).ok();
    let length = fs::metadata(&index).unwrap().len();
    let mut file = fs::File::options().write(true).open(&index).unwrap();
    file.seek(SeekFrom::Start(4096)).unwrap();
    file.write_all(&vec![0xa5; usize::try_from(length).unwrap() - 4096]).unwrap();
}

#[test]
fn a_damaged_index_does_not_keep_the_files_from_answering() {
    let program = captured();
    let commands = [
        &["list", "--json"][..],
        &["list", "--session", "s", "--json"],
        &["list", "--sessions", "--json"],
        &["show", "s:0", "--json"],
        &["show", "latest", "--json"],
        &["ls", "s:1", "--json"],
        &["cat", "s:0", "a.txt"],
    ];
    let answer = |command: &[&str], code: i32| {
        let run = program.run(command).exits(code);
        match serde_json::from_str::<Value>(&run.stdout) {
            Ok(mut json) => {
                let notices = json.as_object_mut().unwrap().remove("notices");
                let notices = notices.map(|notices| notices.as_array().unwrap().len());
                assert_eq!(notices, (code == 4).then_some(1), "{command:?}");
                json.to_string()
            }
            Err(_) => run.stdout,
        }
    };
    let before: Vec<String> = commands.iter().map(|command| answer(command, 0)).collect();
    let index = program.store().join("index.db");
    for is_header_damaged in [false, true] {
        if is_header_damaged {
            fs::write(&index, GARBAGE.repeat(1000)).unwrap();
        } else {
            spoil_index(&program);
        }
        for (command, before) in commands.iter().zip(&before) {
            assert_eq!(answer(command, 4), *before, "{command:?}");
        }
        let listed = program.run(["list"]).exits(4);
        assert_eq!(listed.stderr.matches("index.db is damaged").count(), 1, "{}", listed.stderr);
        assert_eq!(findings(&program), [("index-damaged".to_owned(), index.clone())]);
        program.run(["doctor", "--rebuild"]).ok();
        assert_eq!(findings(&program), []);
        for (command, before) in commands.iter().zip(&before) {
            assert_eq!(answer(command, 0), *before, "{command:?}");
        }
    }
    // A capture builds it anew and goes on.
    spoil_index(&program);
    said(&program.run(["capture", "--session", "s"]).ok(), "was built anew");
    assert_eq!(findings(&program), []);
}

#[test]
fn a_clock_that_was_set_back_does_not_decide_what_is_newest() {
    let program = captured();
    let other = other(&program);
    let at = |seconds: i64, words: &[&str]| {
        let mut command = program.command(words);
        run(command.env("TURNPOINT_TEST_CLOCK_SHIFT_SECONDS", seconds.to_string())).ok()
    };
    at(7_200, &["capture", "--session", "late"]);
    at(-7_200, &["capture", "--session", "early"]);
    at(-9_000, &["capture", "--session", "late"]);
    // Of another workspace, and so of no account here.
    at(9_000, &["capture", "--session", "late", "-C", other.to_str().unwrap()]);
    let shown = |spec: &str| {
        let json = program.run(["show", spec, "--json"]).ok().json();
        format!("{}:{}", json["session"].as_str().unwrap(), json["seq"])
    };
    let check = || {
        for (spec, id) in [
            ("latest", "late:1"),
            ("latest~1", "early:0"),
            ("latest~2", "late:0"),
            ("late:latest", "late:1"),
            ("late:latest~1", "late:0"),
            ("early:latest", "early:0"),
            ("s:latest", "s:1"),
        ] {
            assert_eq!(shown(spec), id, "{spec}");
        }
        let none = program.run(["show", "early:latest", "-C", other.to_str().unwrap()]).exits(2);
        said(&none, "in session `early`");
        let json = program.run(["list", "--session", "late", "--json"]).ok().json();
        let seqs: Vec<_> =
            json["checkpoints"].as_array().unwrap().iter().map(|it| it["seq"].as_u64()).collect();
        assert_eq!(seqs, [Some(0), Some(1), Some(2)]);
        let json = program.run(["list", "--sessions", "--json"]).ok().json();
        assert_eq!(json["sessions"][3]["session"], "late");
    };
    check();
    // The same is told by the files alone, and by an index that was built from them.
    for name in ["index.db", "index.db-wal", "index.db-shm"] {
        fs::remove_file(program.store().join(name)).ok();
    }
    check();
    program.run(["doctor", "--rebuild"]).ok();
    check();
    let json = program.run(["capture", "--json", "--session", "s"]).ok().json();
    let manifest = program.store().join(format!("s/{}.json", json["seq"]));
    let manifest: Value = serde_json::from_slice(&fs::read(manifest).unwrap()).unwrap();
    assert_eq!(
        (&manifest["parent"]["session"], &manifest["parent"]["seq"]),
        (&Value::from("late"), &Value::from(1))
    );
}

#[test]
fn what_is_in_a_blobs_place_is_healed_whatever_it_is() {
    let program = captured();
    let json = program.run(["ls", "s:1", "a.txt", "--json"]).ok().json();
    let hash = json["entries"][0]["hash"].as_str().unwrap().to_owned();
    let blob_file = |hash: &str| {
        let (shard, _) = hash.split_at(2);
        program.store().join("blobs").join(shard).join(hash)
    };
    let blob = blob_file(&hash);
    let root = program.run(["show", "s:1", "--json"]).ok().json()["root_page"].clone();
    let root = root.as_str().unwrap();
    let page = blob_file(root);
    for (round, what) in ["directory", "full", "fifo", "symlink", "empty"].iter().enumerate() {
        for place in [&blob, &page] {
            fs::remove_file(place).unwrap();
            match *what {
                "directory" => fs::create_dir(place).unwrap(),
                "full" => build(place, [("kept", file("kept"))]),
                "fifo" => drop(run(program.other("mkfifo").arg(place)).ok()),
                "symlink" => std::os::unix::fs::symlink("/dev/null", place).unwrap(),
                _ => drop(fs::File::create(place).unwrap()),
            }
        }
        // In another workspace, which has the same content and does not know that it was stored.
        let other = program.root().join(format!("other-{round}"));
        build(&other, [("a.txt", file("changed"))]);
        program.run(["capture", "--session", "t", "-C", other.to_str().unwrap()]).ok();
        assert_eq!(program.run(["cat", "s:1", "a.txt", "-C", "."]).code, 4, "{what}: no page yet");
        program.run(["verify"]).exits(4);
        program.run(["capture"]).ok();
        assert_eq!(program.run(["cat", "s:1", "a.txt"]).ok().stdout, "changed", "{what}");
        assert_eq!(findings(&program), [], "{what}");
    }
    let aside = |place: &Path, name: &str| {
        place.with_file_name(format!("{}{name}", place.file_name().unwrap().to_str().unwrap()))
    };
    assert!(aside(&blob, ".damaged").is_dir());
    assert_eq!(fs::read_to_string(aside(&page, ".damaged-2").join("kept")).unwrap(), "kept");
    program.run(["gc"]).ok();
}

#[test]
fn nothing_is_captured_in_the_store_or_written_into_it() {
    let program = captured();
    let store = program.store();
    let link = program.root().join("link");
    std::os::unix::fs::symlink(store.join("s"), &link).unwrap();
    for inside in [store.clone(), store.join("blobs"), store.join("s"), link] {
        let inside = inside.to_str().unwrap();
        for command in [&["capture", "-C", inside][..], &["restore", "s:0", "--yes", "-C", inside]]
        {
            said(&program.run(command).exits(3), "belongs to the store");
        }
        let new = format!("{inside}/new");
        for into in [inside, &new] {
            let run = program.run(["restore", "s:0", "--into", into, "--json"]).exits(3);
            said(&run, "inside-store");
        }
        assert!(!Path::new(&new).exists());
    }
    assert_eq!(findings(&program), []);
}

/// The index as `sqlite3` changes it.
fn change_index(program: &Program, statement: &str) {
    let mut sqlite = program.other("sqlite3");
    run(sqlite.arg(program.store().join("index.db")).arg(statement)).ok();
}

#[test]
fn a_missing_manifest_is_given_up_by_a_prune_of_its_session_alone() {
    let program = captured();
    fs::remove_file(program.store().join("s/1.json")).unwrap();
    said(&program.run(["gc"]).exits(3), "it is gone although nobody pruned it");
    program.run(["prune"]).ok();
    said(&program.run(["gc"]).exits(3), "1.json");
    let planned = program.run(["prune", "--session", "s", "--dry-run", "--json"]).ok().json();
    assert_eq!(planned["missing"][0]["seq"], 1);
    assert_eq!((&planned["kept"], &planned["pruned"]), (&1.into(), &Value::Array(vec![])));
    let done = program.run(["prune", "--session", "s"]).ok();
    assert!(done.stdout.contains("gave up 1 checkpoint without a manifest"), "{}", done.stdout);
    assert_eq!(log(&program).last().unwrap()["why"], "the manifest was missing");
    program.run(["gc"]).ok();
    assert_eq!(findings(&program), []);
    // It was the highest number, and is not given again, even if the index is lost.
    for name in ["index.db", "index.db-wal", "index.db-shm"] {
        fs::remove_file(program.store().join(name)).ok();
    }
    let made = program.run(["capture", "--session", "s"]).ok();
    assert!(made.stdout.contains("captured s:2"), "{}", made.stdout);
}

#[test]
fn a_prune_plans_what_it_does_where_manifests_are_missing() {
    let program = captured();
    for number in 0..3 {
        fs::write(program.workspace().join("a.txt"), number.to_string()).unwrap();
        program.run(["capture", "--session", "s"]).ok();
    }
    fs::remove_file(program.store().join("s/4.json")).unwrap();
    let prune = ["prune", "--session", "s", "--keep", "2", "--json"];
    let planned = program.run([&prune[..], &["--dry-run"]].concat()).ok().json();
    let done = program.run([&prune[..], &["--yes"]].concat()).ok().json();
    for key in ["pruned", "kept", "missing"] {
        assert_eq!(planned[key], done[key], "{key}");
    }
    let seqs = |key: &str| -> Vec<u64> {
        done[key].as_array().unwrap().iter().map(|it| it["seq"].as_u64().unwrap()).collect()
    };
    assert_eq!((seqs("pruned"), seqs("missing"), &done["kept"]), (vec![0, 1], vec![4], &2.into()));
}

/// Nobody can say that it is not the one that is meant.
#[test]
fn a_checkpoint_that_cannot_be_read_is_not_passed_over_for_an_older_one() {
    let program = captured();
    fs::write(program.workspace().join("a.txt"), "later").unwrap();
    program.run(["capture", "--session", "s"]).ok();
    let manifest = program.store().join("s/2.json");
    let text = fs::read(&manifest).unwrap();
    fs::write(&manifest, &text[..text.len() / 2]).unwrap();
    for (code, words) in [
        (3, &["restore", "latest", "--yes"][..]),
        (3, &["restore", "s:latest", "--yes"]),
        (3, &["restore", "S:latest", "--yes"]),
        (3, &["restore", "--at", "now", "--yes"]),
        (3, &["rewind", "--yes"]),
        (3, &["rewind", "--session", "s", "--yes"]),
        (4, &["diff"]),
        (4, &["ls", "latest"]),
    ] {
        let refused = program.run(words).exits(code);
        assert!(refused.stderr.contains("checkpoint s:2 cannot be read"), "{}", refused.stderr);
        let content = fs::read_to_string(program.workspace().join("a.txt")).unwrap();
        assert_eq!(content, "later");
    }
    // One that was made after the time that is asked for is not meant.
    let old = program.run(["ls", "--at", "2000-01-01"]).exits(2);
    assert!(old.stderr.contains("no checkpoint is as old"), "{}", old.stderr);
    // Nor is one that is gone passed over, nor is it said that there are none so far back.
    fs::rename(&manifest, program.root().join("aside")).unwrap();
    for words in [&["restore", "latest", "--yes"][..], &["rewind", "--yes"]] {
        let refused = program.run(words).exits(3);
        let told = "s/2.json: it is gone although nobody pruned it";
        assert!(refused.stderr.contains(told), "{}", refused.stderr);
    }
    fs::rename(program.root().join("aside"), &manifest).unwrap();
    for words in [&["ls", "s:latest~7"][..], &["rewind", "7", "--session", "s", "--dry-run"]] {
        let refused = program.run(words);
        assert!(refused.stderr.contains("checkpoint s:2 cannot be read"), "{}", refused.stderr);
    }
    // What is named is what is meant.
    program.run(["restore", "s:0", "--yes"]).ok();
    assert_eq!(fs::read_to_string(program.workspace().join("a.txt")).unwrap(), "one");
    program.run(["quarantine", "s/2.json", "--yes"]).ok();
    assert_eq!(program.run(["cat", "latest", "a.txt"]).ok().stdout, "changed");
}

#[test]
fn a_prune_is_not_stuck_where_directories_are_in_the_place_of_its_files() {
    let program = captured();
    change_index(&program, "UPDATE checkpoints SET state = 'pruning' WHERE seq = 0");
    let session = program.store().join("s");
    fs::remove_file(session.join("0.json")).unwrap();
    build(&session, [("0.json/kept", file("kept")), ("0.pin/kept", file("kept"))]);
    program.run(["gc"]).ok();
    for aside in ["0.json.damaged/kept", "0.pin.damaged/kept"] {
        assert_eq!(fs::read_to_string(session.join(aside)).unwrap(), "kept");
    }
    assert_eq!(findings(&program), []);
}

#[test]
fn what_was_done_stands_although_it_cannot_be_written_down() {
    let program = captured();
    let log = program.store().join("operations.jsonl");
    fs::remove_file(&log).ok();
    fs::create_dir(&log).unwrap();
    let pruned = program.run(["prune", "--session", "s", "--keep", "1", "--yes"]).ok();
    said(&pruned, "this was done and not written down");
    assert_eq!(checkpoints(&program, "s").len(), 1);
    program.run(["gc"]).ok();
    program.run(["doctor", "--rebuild"]).ok();
}

#[test]
fn a_new_store_has_something_to_give_up_on_a_full_disk() {
    let program = captured();
    assert_eq!(fs::metadata(program.store().join("ballast")).unwrap().len(), 4 << 20);
}

#[test]
fn a_journal_whose_workspace_is_gone_stops_nothing_for_ever() {
    let program = captured();
    let other = other(&program);
    program.run(["capture", "-C", other.to_str().unwrap()]).ok();
    let directories = fs::read_dir(program.store().join("workspaces")).unwrap();
    for directory in directories {
        let id = directory.unwrap().file_name().into_string().unwrap();
        fs::write(program.store().join(format!("journal/{id}.json")), GARBAGE).unwrap();
    }
    fs::remove_dir_all(other).unwrap();
    program.run(["prune"]).exits(3);
    let json = program.run(["doctor", "--rebuild", "--json"]).exits(4).json();
    assert_eq!(json["repaired"].as_array().unwrap().len(), 1, "{json}");
    // That of the workspace that is there is for its own command to end.
    assert_eq!(json["unreadable"].as_array().unwrap().len(), 1, "{json}");
    said(&program.run(["prune"]).exits(3), "restore --abort");
    program.run(["restore", "--abort", "--yes"]).ok();
    program.run(["prune"]).ok();
    assert_eq!(findings(&program), []);
}

#[test]
fn a_journal_is_kept_whose_workspace_may_only_be_out_of_reach() {
    let program = captured();
    let directory = workspace_file(&program).parent().unwrap().to_owned();
    let id = directory.file_name().unwrap().to_str().unwrap();
    let journal = program.store().join(format!("journal/{id}.json"));
    fs::write(&journal, GARBAGE).unwrap();
    let is_left = || {
        let json = program.run(["doctor", "--rebuild", "--json"]).exits(4).json();
        assert_eq!(json["unreadable"][0]["path"], journal.to_str().unwrap(), "{json}");
        assert_eq!(fs::read(&journal).unwrap(), GARBAGE);
    };
    let text = fs::read_to_string(workspace_file(&program)).unwrap();
    let remember = |change: &dyn Fn(&mut Value)| {
        let mut said: Value = serde_json::from_str(&text).unwrap();
        change(&mut said);
        fs::write(directory.join("workspace.json"), said.to_string()).unwrap();
    };
    // Nothing is where the disk would be mounted.
    let elsewhere = program.root().join("disk/workspace");
    remember(&|said| said["roots"][0]["path"] = elsewhere.to_str().unwrap().into());
    is_left();
    // The mount point is there, of another disk than the workspace was on.
    fs::create_dir(program.root().join("disk")).unwrap();
    remember(&|said| {
        said["roots"][0]["path"] = elsewhere.to_str().unwrap().into();
        said["identity"]["device"] = 999_999.into();
    });
    is_left();
    // Nobody can say where the workspace was.
    for session in ["s".to_owned(), default_session(&program)] {
        fs::remove_dir_all(program.store().join(session)).unwrap();
    }
    fs::remove_dir_all(&directory).unwrap();
    is_left();
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("workspace.json"), GARBAGE).unwrap();
    is_left();
}

/// Permissions mean nothing to root, so the program runs as another user there.
#[test]
fn a_session_that_cannot_be_listed_does_not_take_the_others_with_it() {
    let program = captured();
    let closed = program.store().join(default_session(&program));
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
    let as_another = |arguments: &[&str]| {
        if !rustix::process::geteuid().is_root() {
            return program.run(arguments);
        }
        let binary = program.root().join("turnpoint");
        program.copy_binary(&binary);
        run(program.other("chown").args(["-R", "65534:65534"]).arg(program.root())).ok();
        let mut command = program.other("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        run(command.arg(binary).args(arguments))
    };
    let listed = as_another(&["list", "--json"]).exits(4).json();
    assert_eq!(listed["checkpoints"].as_array().unwrap().len(), 2);
    assert_eq!(listed["notices"][0]["code"], "unlisted");
    as_another(&["list", "--sessions"]).exits(4);
    let verified = as_another(&["verify", "--json"]).exits(4).json();
    assert_eq!(verified["findings"][0]["kind"], "directory-unreadable");
    let rebuilt = as_another(&["doctor", "--rebuild", "--json"]).exits(4).json();
    assert_eq!(
        (&rebuilt["checkpoints"], &rebuilt["unreadable"][0]["path"]),
        (&Value::from(2), &Value::from(closed.to_str().unwrap()))
    );
    as_another(&["capture", "--session", "s"]).ok();
    as_another(&["gc"]).exits(3);
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    as_another(&["gc"]).ok();
    assert_eq!(
        as_another(&["list", "--json"]).ok().json()["checkpoints"].as_array().unwrap().len(),
        4
    );
}

#[test]
fn a_workspace_that_nobody_remembers_is_put_away() {
    let program = captured();
    let all = program.store().join("workspaces");
    let names = || {
        let names = fs::read_dir(&all).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    };
    let before = names();
    let (empty, damaged) = ("0".repeat(32), "1".repeat(32));
    build(&all, [(format!("{damaged}/workspace.json"), file(GARBAGE))]);
    fs::create_dir(all.join(&empty)).unwrap();
    // Below a root the manifests are asked whether a nearer one is; at a root they need not be.
    for directory in ["", "sub"] {
        let mut list = program.command(["list", "--json"]);
        let json = run(list.current_dir(program.workspace().join(directory))).ok().json();
        assert_eq!(json["checkpoints"].as_array().unwrap().len(), 3, "{json}");
    }
    let json = program.run(["doctor", "--rebuild", "--json"]).ok().json();
    let repaired = json["repaired"].as_array().unwrap();
    let aside = |repair: &Value| PathBuf::from(repair["aside"]["path"].as_str().unwrap());
    assert_eq!(
        repaired.iter().map(aside).collect::<Vec<_>>(),
        [&empty, &damaged].map(|id| program.store().join(format!("quarantine/{id}.damaged")))
    );
    assert_eq!(fs::read(aside(&repaired[1]).join("workspace.json")).unwrap(), GARBAGE);
    assert_eq!(names(), before);
    assert_eq!(findings(&program), []);
}

#[test]
fn a_checkpoint_whose_pin_cannot_be_understood_is_damaged_and_not_unknown() {
    let program = captured();
    let listed = program.run(["list", "--json"]).ok().json();
    let session = listed["checkpoints"][0]["session"].as_str().unwrap().to_owned();
    program.run(["pin", &session, "0"]).ok();
    let pin = program.store().join(&session).join("0.pin");
    fs::write(&pin, GARBAGE).unwrap();
    program.run(["doctor", "--rebuild"]).exits(4);
    let id = format!("{session}:0");
    let refused = program.run(["restore", &id, "--yes"]).exits(3);
    assert!(refused.stderr.contains("0.pin"), "{}", refused.stderr);
    let into = program.root().join("into");
    program.run(["restore", &id, "--into", into.to_str().unwrap()]).ok();
    assert_eq!(fs::read(into.join("a.txt")).unwrap(), b"one");
}

#[test]
fn a_copy_of_a_store_that_lost_empty_directories_can_be_collected() {
    let program = captured();
    let empty = ["-type", "d", "-empty", "-name", "??", "-delete"];
    run(program.other("find").arg(program.store().join("blobs")).args(empty)).ok();
    program.run(["gc"]).ok();
    fs::write(program.workspace().join("a.txt"), "after").unwrap();
    program.run(["capture"]).ok();
    program.run(["verify", "--read-data"]).ok();
}

#[test]
fn what_is_in_a_sessions_place_is_named_by_all_who_refuse_for_it() {
    let program = captured();
    let stray = program.store().join("notes");
    fs::write(&stray, "mine").unwrap();
    said(&program.run(["gc"]).exits(3), &format!("  {}: ", stray.display()));
    assert_eq!(findings(&program), [("directory-unreadable".to_owned(), stray.clone())]);
    fs::remove_file(&stray).unwrap();
    program.run(["gc"]).ok();
    assert_eq!(findings(&program), []);
}

#[test]
fn a_verification_makes_no_directory() {
    let program = captured();
    let packs = program.store().join("packs");
    fs::remove_dir(&packs).unwrap();
    assert_eq!(findings(&program), []);
    assert!(!packs.exists());
}

/// What is captured after a loss is there in whole, although no file has changed since.
#[test]
fn what_is_captured_after_a_loss_can_be_restored() {
    const PACK: &str = "rm \"$S\"/packs/*.pack";
    const LOOSE: &str = "rm \"$S\"/blobs/??/*";
    const EDIT: &str = "printf new > \"$W\"/1.txt";
    for (files, lose, edit, option) in [
        (1_200, PACK, "true", "--json"),
        (1_200, PACK, "true", "--if-changed"),
        (1_200, PACK, EDIT, "--if-changed"),
        (1_200, PACK, "\"$T\" verify || true", "--json"),
        (1_200, "truncate -s 4000 \"$S\"/packs/*.pack", "rm \"$W\"/1.txt", "--json"),
        (30, PACK, "true", "--if-changed"),
        (5, LOOSE, "true", "--if-changed"),
        (5, LOOSE, EDIT, "--json"),
    ] {
        let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
        for number in 0..files {
            fs::write(program.workspace().join(format!("{number}.txt")), number.to_string())
                .unwrap();
        }
        // The second has a base, all of which is looked at; the third has no reason to look again.
        for _ in 0..3 {
            program.run(["capture", "--session", "s"]).ok();
        }
        assert!(workspace_file(&program).with_file_name("audited").exists());
        let mut injure = program.other("sh");
        injure.args(["-ec", &format!("{lose}; {edit}")]).env("S", program.store());
        injure.env("W", program.workspace()).env("T", env!("CARGO_BIN_EXE_turnpoint"));
        run(&mut injure).ok();
        program.run(["capture", "--session", "s", option]).ok();
        let into = program.root().join("into");
        let newest = ["restore", "--session", "s", "latest", "--into", into.to_str().unwrap()];
        program.run(newest).ok();
        let workspace = fingerprint::of(&program.workspace());
        assert_eq!(fingerprint::of(&into), workspace, "{lose} {edit} {option}");
    }
}

/// A pack that a turn added is missed as well, long after: but that it came is no reason to look at all.
#[test]
fn a_pack_that_came_with_a_turn_is_missed_when_it_goes() {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    let write = |numbers: std::ops::Range<usize>, text: &str| {
        for number in numbers {
            fs::write(
                program.workspace().join(format!("{number}.txt")),
                format!("{number} {text}"),
            )
            .unwrap();
        }
    };
    let packs = || packs::all(&program.store());
    let capture = || drop(program.run(["capture", "--session", "s"]).ok());
    // A loose blob that nobody looks for until there is a reason.
    write(0..1, "loose");
    capture();
    let hash = blake3::hash(b"0 loose").to_hex().to_string();
    let loose = program.store().join("blobs").join(hash.split_at(2).0).join(&hash);
    write(1..30, "first");
    capture();
    capture();
    let first = packs();
    write(10..30, "second");
    capture();
    let added: Vec<PathBuf> = packs().difference(&first).cloned().collect();
    assert_eq!((first.len(), added.len()), (1, 1));
    // The root of the newest is in neither.
    write(1..2, "third");
    capture();
    fs::remove_file(&loose).unwrap();
    capture();
    assert!(!loose.exists(), "all was looked at although nothing gave reason");
    fs::remove_file(&added[0]).unwrap();
    capture();
    assert!(loose.exists(), "nothing was looked at although a pack was gone");
    let into = program.root().join("into");
    let newest = ["restore", "--session", "s", "latest", "--into", into.to_str().unwrap()];
    program.run(newest).ok();
    assert_eq!(fingerprint::of(&into), fingerprint::of(&program.workspace()));
}

/// One damaged page of entries does not hide another.
#[test]
fn pages_that_are_damaged_together_are_healed_together() {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    for number in 0..400 {
        fs::write(program.workspace().join(format!("{number}.txt")), number.to_string()).unwrap();
    }
    for _ in 0..3 {
        program.run(["capture", "--session", "s"]).ok();
    }
    packs::make_loose(&program.store());
    // All pages of entries: what is in a blob's file as JSON, and not the root.
    let script = r#"cd "$S"; root=$(sed -n 's/.*"root":"\([0-9a-f]*\)".*/\1/p' s/2.json | head -c 64)
        for f in blobs/??/*; do
            if [ "${f##*/}" != "$root" ] && zstd -dcq "$f" | head -c 1 | grep -q '[{\[]'; then
                size=$(stat -c %s "$f"); printf '\377' | dd of="$f" bs=1 seek=$((size - 3)) conv=notrunc 2>/dev/null
                echo "$f"
            fi
        done
        rm "$S"/workspaces/*/audited"#;
    let mut injure = program.other("sh");
    let injured = run(injure.args(["-ec", script]).env("S", program.store())).ok();
    assert!(injured.stdout.lines().count() > 3, "{}", injured.stdout);
    program.run(["capture", "--session", "s"]).ok();
    let into = program.root().join("into");
    program.run(["restore", "s:3", "--into", into.to_str().unwrap()]).ok();
    assert_eq!(fingerprint::of(&into), fingerprint::of(&program.workspace()));
    assert_eq!(findings(&program), []);
}
