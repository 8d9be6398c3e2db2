//! `turnpoint purge` as a process: what it says, how it ends, and what other commands say afterwards.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::support::program::{Program, run};
use crate::support::tree::{build, file, link};

fn captured() -> Program {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    let root = program.workspace();
    build(&root, [("a.txt", file("one\n")), ("key.txt", file("secret\n")), ("l", link("to/key"))]);
    program.run(["capture", "--session", "s"]).ok();
    build(&root, [("a.txt", file("two\n")), ("copy.txt", file("secret\n"))]);
    program.run(["capture", "--session", "s"]).ok();
    program.run(["pin", "s:0"]).ok();
    fs::remove_file(root.join("key.txt")).unwrap();
    program
}

#[test]
fn it_shows_what_goes_and_needs_a_yes() {
    let program = captured();
    let shown = program.run(["purge", "key.txt", "--dry-run"]).ok();
    assert_eq!(shown.stderr, "");
    let said = [
        "would purge 1 path from 2 checkpoints of ",
        "\n  key.txt: 2 checkpoints, 1 version, 7 B\n",
        "\n  s: 0-1\n",
        "\npinned, which is no protection here:\n  s: 0\n",
        "\n  key.txt (7 B) is also\n    copy.txt, in 1 checkpoint, the newest s:1: `turnpoint purge copy.txt`\n",
        "\nnone of it leaves the store:\nthe same content stays",
    ];
    for part in said {
        assert!(shown.stdout.contains(part), "{part:?} is not in\n{}", shown.stdout);
    }
    assert!(!shown.stdout.contains("still in the workspace"), "{}", shown.stdout);
    let manifest = program.store().join("s/0.json");
    let before = fs::read(&manifest).unwrap();
    for arguments in [&["purge", "key.txt"][..], &["purge", "key.txt", "--json"]] {
        let refused = program.run(arguments).exits(3);
        assert!(refused.stdout.contains("key.txt"), "the plan is printed");
        assert!(refused.stderr.contains("needs a yes"), "{}", refused.stderr);
    }
    assert_eq!(fs::read(&manifest).unwrap(), before);
    program.run(["purge", "nothing.txt", "--yes"]).exits(2);
    program.run(["purge", "key.txt", "--session", "t", "--yes"]).exits(2);
    program.run(["purge"]).exits(2);
    // From a directory below, as paths are seen from there.
    fs::create_dir(program.workspace().join("d")).unwrap();
    let mut below = program.command(["purge", "../key.txt", "--dry-run"]);
    let below = below.current_dir(program.workspace().join("d"));
    let below = run(below).ok().stdout;
    assert_eq!(below, shown.stdout.replace("purge copy.txt", "purge ../copy.txt"));
    // Typed there as it stands, that is the other one.
    let mut other = program.command(["purge", "../copy.txt", "--dry-run"]);
    let other = other.current_dir(program.workspace().join("d"));
    let other = run(other).ok().stdout;
    assert!(other.contains("\n  copy.txt: 1 checkpoint, 1 version, 7 B\n"), "{other}");
}

/// Another place that has the content is named by a command that a shell takes as it is meant.
#[test]
fn the_command_for_another_place_can_be_run_as_it_stands() {
    let program = captured();
    let there = program.root().join("it's there");
    fs::create_dir(&there).unwrap();
    fs::write(there.join("k [1]*.txt"), "secret\n").unwrap();
    fs::write(there.join("k 1x.txt"), "another\n").unwrap();
    let place = there.to_str().unwrap();
    program.run(["-C", place, "capture", "--session", "t"]).ok();
    let advice = || {
        let shown = program.run(["purge", "key.txt", "--dry-run"]).ok().stdout;
        let line = shown.lines().find(|line| line.contains("t:0")).unwrap().to_owned();
        line.split('`').nth(1).unwrap().to_owned()
    };
    let purge = r"purge 'k \[1\]\*.txt'";
    assert_eq!(advice(), format!("turnpoint -C '{}' {purge}", place.replace('\'', r"'\''")));
    let listed = program.run(["list", "--session", "t", "--json"]).ok().json();
    let id = listed["checkpoints"][0]["workspace"].as_str().unwrap().to_owned();
    fs::remove_dir_all(&there).unwrap();
    let command = advice();
    assert_eq!(command, format!("turnpoint --workspace {id} {purge}"));
    program.run(["--workspace", &id, "purge", r"k \[1\]\*.txt", "--yes"]).ok();
    let omitted = program.run(["ls", "t:0", "--omitted"]).ok().stdout;
    assert!(omitted.contains("k [1]*.txt [not held: purged]"), "{omitted}");
    assert_eq!(program.run(["cat", "t:0", "k 1x.txt"]).ok().stdout, "another\n");
}

/// A command that purges for good reaches what it was told about, wherever it is typed.
#[test]
fn the_command_for_the_same_content_is_of_the_workspace_that_was_named() {
    let program = captured();
    let root = program.workspace();
    let place = root.to_str().unwrap();
    let listed = program.run(["list", "--json"]).ok().json();
    let id = listed["checkpoints"][0]["workspace"].as_str().unwrap().to_owned();
    // Another workspace has a path of that name.
    let other = program.root().join("other");
    build(&other, [("copy.txt", file("of another\n")), ("d/x", file("x\n"))]);
    program.run(["-C", other.to_str().unwrap(), "capture", "--session", "t"]).ok();
    let told = |words: &[&str], directory: &Path| {
        let mut command = program.command([words, &["--dry-run"]].concat());
        let shown = run(command.current_dir(directory)).ok();
        let commands = shown.commands();
        let [advice] = &*commands else { panic!("{commands:?}") };
        let pasted = program.paste(&format!("{advice} --dry-run --json"), directory).ok().json();
        assert_eq!(pasted["workspace"], *id, "{advice}");
        assert_eq!(pasted["paths"][0]["path"], "copy.txt", "{advice}");
        advice.clone()
    };
    let by_id = ["--workspace", &id, "purge", "key.txt"];
    assert_eq!(told(&by_id, &other), format!("turnpoint --workspace {id} purge copy.txt"));
    let below = ["--workspace", &id, "purge", "../key.txt"];
    let expected = format!("turnpoint --workspace {id} purge ../copy.txt");
    assert_eq!(told(&below, &other.join("d")), expected);
    let named = ["-C", place, "purge", "key.txt"];
    assert_eq!(told(&named, &other), format!("turnpoint -C {place} purge copy.txt"));
}

/// A workspace whose directory is gone has the content too, and somebody stands below another one.
#[test]
fn the_command_for_a_workspace_that_is_gone_is_typed_where_one_stands() {
    let program = captured();
    let gone = program.root().join("gone");
    build(&gone, [("k.txt", file("secret\n"))]);
    program.run(["-C", gone.to_str().unwrap(), "capture", "--session", "t"]).ok();
    fs::remove_dir_all(&gone).unwrap();
    let below = program.workspace().join("d");
    fs::create_dir(&below).unwrap();
    let place = program.workspace();
    let named = ["-C", place.to_str().unwrap(), "purge", "key.txt", "--dry-run"];
    for (words, directory) in
        [(&["purge", "../key.txt", "--dry-run"][..], &*below), (&named, Path::new("/"))]
    {
        let shown = run(program.command(words).current_dir(directory)).ok();
        let advice = shown.commands().into_iter().find(|it| it.contains("k.txt")).unwrap();
        let pasted = program.paste(&format!("{advice} --dry-run"), directory).ok().stdout;
        assert!(pasted.contains("\n  k.txt: 1 checkpoint, 1 version, 7 B\n"), "{advice}: {pasted}");
    }
}

#[test]
fn afterwards_every_command_says_that_it_was_purged() {
    let program = captured();
    let plan =
        program.run(["purge", "key.txt", "l", "copy.txt", "--dry-run", "--json"]).ok().json();
    assert_eq!(
        (&plan["schema"], &plan["dry_run"], &plan["removed"]),
        (&json!(1), &json!(true), &json!(null))
    );
    let done = program.run(["purge", "key.txt", "l", "copy.txt", "--yes", "--json"]).ok().json();
    assert_eq!(done["plan"], plan["plan"]);
    assert_eq!(
        done["checkpoints"],
        json!([
            { "session": "s", "seq": 0, "pinned": true, "safety": false, "paths": 2 },
            { "session": "s", "seq": 1, "pinned": false, "safety": false, "paths": 3 },
        ])
    );
    assert_eq!(
        done["paths"],
        json!([
            { "path": "copy.txt", "checkpoints": 1, "versions": 1, "bytes": 7, "on_disk": true },
            { "path": "key.txt", "checkpoints": 2, "versions": 1, "bytes": 7, "on_disk": false },
            { "path": "l", "checkpoints": 2, "versions": 1, "bytes": 6, "on_disk": true },
        ])
    );
    assert_eq!(
        (&done["contents"], &done["bytes"], &done["kept"]),
        (&json!(1), &json!(7), &json!([]))
    );
    // The content, and the pages that named it.
    assert!(done["removed"]["blobs"].as_u64().unwrap() >= 3, "{done}");

    let listed = program.run(["ls", "s:0", "--omitted"]).ok().stdout;
    assert!(listed.contains("key.txt") && listed.contains("purged"), "{listed}");
    assert!(program.run(["show", "s:0"]).ok().stdout.contains("2 purged"));
    let cat = program.run(["cat", "s:0", "key.txt"]);
    assert!(cat.code != 0 && cat.stderr.contains("purged"), "{}", cat.stderr);
    let sql = "SELECT seq, path, reason FROM omitted WHERE reason = 'purged' ORDER BY 1, 2";
    let rows = program.run(["sql", "--format", "csv", sql]).ok().stdout;
    assert_eq!(
        rows.lines().skip(1).collect::<Vec<_>>(),
        ["0,key.txt,purged", "0,l,purged", "1,copy.txt,purged", "1,key.txt,purged", "1,l,purged"]
    );
    let log = program.run(["operations"]).ok().stdout;
    assert!(log.contains("purge") && log.contains("key.txt, l, copy.txt from s: 0-1"), "{log}");
    // What is there stays there, and is captured again.
    let skips = program.run(["restore", "s:1", "--dry-run", "--json"]).ok().json()["skip"].clone();
    let reasons: Vec<_> = skips.as_array().unwrap().iter().map(|it| &it["reason"]).collect();
    assert_eq!(reasons, ["purged", "purged", "purged"], "{skips}");
    program.run(["restore", "s:1", "--yes"]).ok();
    assert_eq!(fs::read(program.workspace().join("copy.txt")).unwrap(), b"secret\n");
    program.run(["capture", "--session", "s"]).ok();
    let again = program.run(["purge", "copy.txt", "--dry-run"]).ok().stdout;
    assert!(again.contains("still in the workspace, and captured again"), "{again}");
    assert_eq!(
        program.run(["purge", "key.txt", "--yes"]).ok().stdout,
        "nothing to purge: it was purged before\n"
    );
    program.run(["verify", "--read-data"]).ok();
}

#[test]
fn a_workspace_that_is_gone_is_named_by_its_id() {
    let program = captured();
    let listed = program.run(["list", "--json"]).ok().json();
    let id = listed["checkpoints"][0]["workspace"].as_str().unwrap().to_owned();
    fs::rename(program.workspace(), program.root().join("gone")).unwrap();
    let elsewhere = program.root().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let purge = |more: &[&str]| {
        let arguments = [&["purge", "key.txt", "copy.txt"], more].concat();
        let mut command = program.command(arguments);
        run(command.current_dir(&elsewhere))
    };
    purge(&["--dry-run"]).exits(2);
    let said = purge(&["--workspace", &id, "--yes"]).ok().stdout;
    let first = format!("purges 2 paths from 2 checkpoints of workspace {id}\n");
    assert!(said.starts_with(&first), "{said}");
    let again = purge(&["--workspace", &id, "--yes"]).ok().stdout;
    assert_eq!(again, "nothing to purge: it was purged before\n");
}

#[test]
fn what_no_checkpoint_holds_is_told_and_a_checkpoint_is_no_path() {
    let program = captured();
    let all = || program.run(["ls", "latest", "--recursive", "--json"]).ok().json();
    let before = all();
    let refused = program.run(["purge", "s:0", "key.txt", "--yes"]).exits(2);
    assert!(refused.stderr.contains("`s:0` is no path that a checkpoint holds"), "{refused:?}");
    assert!(refused.stderr.contains("--session narrows it"), "{refused:?}");
    assert_eq!(all(), before);
    let dry = program.run(["purge", "kei.txt", "key.txt", "--dry-run"]).ok();
    assert!(dry.stderr.contains("note: no checkpoint holds `kei.txt`"), "{dry:?}");
}
