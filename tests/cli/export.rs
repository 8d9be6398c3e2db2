//! Checkpoints written out, and read by other programs.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use crate::support::fingerprint::{self, Fingerprint};
use crate::support::packs;
use crate::support::program::{Program, Run, run};
use crate::support::tree::{build, dir, executable, file, link};

/// Names and targets that are short, long, and meant to break an archive.
fn program() -> Program {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    let root = program.workspace();
    let deep = format!("{}/{}.txt", "a-directory/".repeat(20), "n".repeat(200));
    let far = format!("{}x", "../far/".repeat(40));
    build(
        &root,
        [
            ("a.txt", file("one\n")),
            ("empty", file("")),
            ("block", file(vec![b'b'; 512])),
            ("run.sh", executable("#!/bin/sh\n")),
            ("src/b.txt", file("b\n")),
            ("an-empty-directory", dir()),
            ("link", link("./a.txt//")),
            ("far", link(&far)),
            (&deep, file("deep\n")),
            ("new\nline \x1b[31m", file("n\n")),
            (".env", file("KEY=1")),
            ("debug.log", file("l\n")),
            (".gitignore", file("*.log\n")),
        ],
    );
    fs::write(root.join(OsStr::from_bytes(b"not-utf8-\xff")), "n").unwrap();
    let stamp = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    fs::File::options().write(true).open(root.join("a.txt")).unwrap().set_modified(stamp).unwrap();
    program.run(["capture", "--session", "s", "-q"]).ok();
    program
}

/// What a checkpoint is to be: the workspace without what the rules leave out.
fn held(program: &Program) -> Fingerprint {
    fingerprint::without(&fingerprint::of(&program.workspace()), &[".env", "debug.log"])
}

/// Unpacks an archive with tar, under the umask of the test, and looks at the result.
fn unpacked(program: &Program, archive: &Path) -> Fingerprint {
    let into = program.root().join("unpacked");
    fs::create_dir(&into).unwrap();
    let mut tar = program.other("tar");
    run(tar.arg("-xpf").arg(archive).arg("-C").arg(&into)).ok();
    let found = fingerprint::of(&into);
    let time = fs::metadata(into.join("a.txt")).map(|it| it.modified().unwrap());
    if let Ok(time) = time {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(since.as_secs(), 1_700_000_000);
    }
    fs::remove_dir_all(&into).unwrap();
    found
}

/// Two trees without their roots, which no archive has.
#[track_caller]
fn assert_same_below(expected: &Fingerprint, found: &Fingerprint) {
    let below = |tree: &Fingerprint| -> Fingerprint {
        let own = tree.iter().filter(|(path, _)| !path.as_os_str().is_empty());
        own.map(|(path, node)| (path.clone(), node.clone())).collect()
    };
    assert!(expected.len() > 2);
    fingerprint::assert_same(&below(expected), &below(found));
}

fn assert_names_what_is_left_out(run: &Run) {
    let names = "note: 2 names are left out, which the checkpoint does not hold\n  .env: secret\n  \
                 debug.log: ignored\n";
    assert_eq!(run.stderr, names);
}

#[test]
fn tar_unpacks_what_was_captured() {
    let program = program();
    let archive = program.root().join("s.tar");
    let run = program.run(["export", "s", "0", "--tar", archive.to_str().unwrap()]).ok();
    assert_names_what_is_left_out(&run);
    assert_same_below(&held(&program), &unpacked(&program, &archive));
    // The same to standard output, and every time.
    let run = program.run(["export", "s:0", "--tar", "-"]).ok();
    assert_names_what_is_left_out(&run);
    assert_eq!(run.stdout_bytes, fs::read(&archive).unwrap());
    assert_eq!(run.stdout_bytes.len() % 512, 0);
    let script = "import sys, tarfile\n\
                  for it in tarfile.open(sys.argv[1]):\n    \
                  assert (it.uid, it.gid, it.uname, it.gname) == (0, 0, '', ''), it\n    \
                  print(it.type.decode(), oct(it.mode), it.linkname)";
    let mut python = program.other("python3");
    let seen = crate::support::program::run(python.args(["-c", script]).arg(&archive)).ok().stdout;
    assert!(seen.contains("2 0o777 ./a.txt//\n"), "{seen}");
    // Some of it, with the directories above.
    fs::remove_file(&archive).unwrap();
    let part = ["export", "s:0", "--tar", archive.to_str().unwrap(), "--", "src", "a.txt"];
    assert_eq!(program.run(part).ok().stderr, "");
    let found = unpacked(&program, &archive);
    let names: Vec<&str> = found.keys().map(|path| path.to_str().unwrap()).collect();
    assert_eq!(names, ["", "a.txt", "src", "src/b.txt"]);
}

#[test]
fn content_too_large_for_memory_is_in_the_archive() {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    let root = program.workspace();
    build(&root, [("a.txt", file("one\n")), ("z.txt", file("z\n"))]);
    program.run(["capture", "--session", "s", "-q"]).ok();
    let large: Vec<u8> = (0..(9 << 20) + 7_u32).map(|at| (at * 31).to_le_bytes()[1]).collect();
    fs::write(root.join("a.txt"), &large).unwrap();
    let before = fingerprint::of(&root);
    program.run(["restore", "s:0", "--session", "t", "--yes"]).ok();
    let archive = program.root().join("t.tar");
    program.run(["export", "t", "0", "--tar", archive.to_str().unwrap()]).ok();
    let into = program.root().join("into");
    fs::create_dir(&into).unwrap();
    run(program.other("tar").arg("-xpf").arg(&archive).arg("-C").arg(&into)).ok();
    assert_same_below(&before, &fingerprint::of(&into));
}

#[test]
fn a_directory_is_what_a_restore_into_one_makes() {
    let program = program();
    let at = |name: &str| program.root().join(name).to_str().unwrap().to_owned();
    let run = program.run(["export", "s", "0", &at("one")]).ok();
    let paths = held(&program).len() - 1;
    let said = format!("wrote {paths} paths of s:0 into /");
    assert!(run.stdout.starts_with(&said), "{}", run.stdout);
    assert_names_what_is_left_out(&run);
    program.run(["restore", "s:0", "--into", &at("two"), "-q"]).ok();
    let one = fingerprint::of(Path::new(&at("one")));
    fingerprint::assert_same(&one, &fingerprint::of(Path::new(&at("two"))));
    fingerprint::assert_same(&one, &held(&program));
    let run = program.run(["export", "s:0", &at("three"), "--json", "--", "src"]).ok().json();
    assert_eq!((&run["paths"], &run["omitted"]), (&json!(2), &json!([])));
    program.run(["export", "s", "0", &at("one")]).exits(3);
}

#[test]
fn lost_content_is_found_before_anything_is_written() {
    let program = program();
    packs::make_loose(&program.store());
    let hash = blake3::hash(b"b\n").to_hex().to_string();
    let blob = program.store().join("blobs").join(hash.split_at(2).0).join(&hash);
    let whole = fs::read(&blob).unwrap();
    let mut damaged = whole.clone();
    let last = damaged.len() - 6;
    damaged[last] ^= 1;
    let archive = program.root().join("s.tar");
    let into = program.root().join("into");
    for content in [Some(damaged), None] {
        match content {
            Some(content) => fs::write(&blob, content).unwrap(),
            None => fs::remove_file(&blob).unwrap(),
        }
        let piped = program.run(["export", "s:0", "--tar", "-"]).exits(3);
        assert_eq!(piped.stdout, "");
        assert!(piped.stderr.contains("  src/b.txt: "), "{}", piped.stderr);
        program.run(["export", "s:0", "--tar", archive.to_str().unwrap()]).exits(3);
        program.run(["export", "s:0", into.to_str().unwrap()]).exits(3);
        assert!(!archive.exists() && !into.exists());
    }
}

#[test]
fn what_is_there_already_is_never_overwritten() {
    let program = program();
    fs::write(program.root().join("mine"), "mine").unwrap();
    let run = program.run(["export", "s:0", "--tar", "../mine"]).exits(3);
    assert!(run.stderr.contains("is there already"), "{}", run.stderr);
    assert_eq!(fs::read_to_string(program.root().join("mine")).unwrap(), "mine");
    program.run(["export", "s:0", "--tar", "/dev/null"]).ok();
    for (arguments, said) in [
        (&["export", "s:0"][..], "one directory is expected"),
        (&["export", "s:0", "../x", "../y"], "one directory is expected"),
        (&["export", "s:0", "../x", "--tar", "y"], "one directory is expected"),
        (&["export", "s:0", "--tar", "-", "--json"], "so would the JSON document"),
        (&["export", "s:0", "--tar", "../x", "--", "scr"], "does not hold `scr`"),
    ] {
        let run = program.run(arguments).exits(2);
        assert!(run.stderr.contains(said), "{}", run.stderr);
        assert!(!program.root().join("x").exists() && run.stdout.is_empty());
    }
    let document = program.run(["export", "s:0", "--tar", "../z.tar", "--json"]).ok().json();
    let reasons: Vec<&Value> =
        document["omitted"].as_array().unwrap().iter().map(|it| &it["reason"]).collect();
    assert_eq!(reasons, ["secret", "ignored"]);
}

#[test]
fn a_reader_that_stops_reading_is_no_failure() {
    let program = program();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = program.command(["export", "s:0", "--tar", "-"]);
    let child = command.stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let child = program
        .command(["export", "s:0", "--tar", "-"])
        .stdout(full)
        .stderr(Stdio::piped())
        .spawn();
    assert_eq!(child.unwrap().wait_with_output().unwrap().status.code(), Some(1));
}

#[test]
fn nothing_is_written_among_the_files_of_the_store() {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    fs::write(program.workspace().join("a.txt"), "one").unwrap();
    program.run(["capture", "--session", "s"]).ok();
    std::os::unix::fs::symlink(program.store(), program.root().join("link")).unwrap();
    let link = program.root().join("file");
    std::os::unix::fs::symlink(program.store().join("s/0.json"), &link).unwrap();
    let before = fs::read(program.store().join("s/0.json")).unwrap();
    for place in [program.store().join("s/9.json"), program.root().join("link/s/9.json"), link] {
        let place = place.to_str().unwrap();
        program.run(["export", "s", "0", "--tar", place]).exits(3);
        program.run(["exec", "--report", place, "--", "true"]).exits(3);
        program.run(["list", "--log-file", place]).exits(3);
    }
    assert_eq!(fs::read(program.store().join("s/0.json")).unwrap(), before);
    assert!(!program.store().join("s/9.json").exists());
    assert_eq!(
        program.run(["list", "--json"]).ok().json()["checkpoints"].as_array().unwrap().len(),
        1
    );
    program.run(["gc"]).ok();
    // Nobody reads there.
    let fifo = program.root().join("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).unwrap();
    program.run(["list", "--log-file", fifo.to_str().unwrap()]).exits(1);
}
