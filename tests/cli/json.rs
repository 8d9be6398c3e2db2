//! The JSON documents: names that scripts rely on.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};

use serde_json::{Value, json};

use crate::support::program::Program;
use crate::support::tree::{build, dir, file, link};

fn program() -> Program {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    build(
        &program.workspace(),
        [("a.txt", file("one")), ("src/b.txt", file("two")), (".env", file("KEY=1"))],
    );
    program
}

/// Runs with `--json`; the exit code must be 0.
#[track_caller]
fn answer(program: &Program, arguments: &[&str]) -> Value {
    let document = program.run(arguments.iter().chain(&["--json"])).ok().json();
    assert_eq!(document["schema"], 1, "{document}");
    document
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn capture_says_what_it_made() {
    let program = program();
    let first = answer(&program, &["capture", "--session", "s", "--label", "one"]);
    assert_eq!(first["session"], "s");
    assert_eq!(first["seq"], 0);
    assert_eq!(first["created"], true);
    assert_eq!(first["complete"], true);
    assert_eq!(first["root"], program.workspace().to_str().unwrap());
    assert_eq!(first["problems"], json!([]));
    assert!(first["elapsed_ms"].is_u64());
    let counts = &first["counts"];
    assert_eq!(counts["files_observed"], 2);
    assert_eq!(counts["files_read"], 2);
    assert_eq!(counts["bytes_read"], 6);
    assert!(counts["bytes_stored"].as_u64().unwrap() > 0);
    assert_eq!(counts["omitted"], json!({ "secret": 1 }));

    let same = answer(&program, &["capture", "--session", "s", "--if-changed"]);
    assert_eq!((&same["seq"], &same["created"]), (&json!(0), &json!(false)));
    let next = answer(&program, &["capture", "--session", "s"]);
    assert_eq!((&next["seq"], &next["created"]), (&json!(1), &json!(true)));
}

#[test]
fn list_has_every_checkpoint_of_a_session_from_whatever_workspace() {
    let program = program();
    answer(&program, &["capture", "--session", "s", "--label", "one", "--trigger", "turn-start"]);
    let other = program.root().join("other");
    fs::create_dir(&other).unwrap();
    answer(&program, &["capture", "--session", "S", "-C", other.to_str().unwrap()]);

    let list = answer(&program, &["list", "--session", "s"]);
    assert_eq!((&list["unreadable"], &list["legacy"]), (&json!([]), &json!([])));
    let checkpoints = list["checkpoints"].as_array().unwrap();
    assert_eq!(checkpoints.len(), 2);
    let first = &checkpoints[0];
    assert_eq!(first["session"], "s");
    assert_eq!(first["seq"], 0);
    assert_eq!(first["label"], "one");
    assert_eq!(first["trigger"], "turn-start");
    assert_eq!(first["complete"], true);
    assert_eq!(first["pinned"], false);
    assert_eq!(first["root"], program.workspace().to_str().unwrap());
    assert_eq!(first["counts"]["omitted"]["secret"], 1);
    let created_at = first["created_at"].as_str().unwrap();
    assert!(created_at.len() == 30 && created_at.ends_with('Z'), "{created_at}");
    assert_eq!(checkpoints[1]["root"], other.to_str().unwrap());
    assert_ne!(first["workspace"], checkpoints[1]["workspace"]);

    // Without a session: those of the workspace.
    let here = answer(&program, &["list"]);
    assert_eq!(here["checkpoints"].as_array().unwrap().len(), 1);
    let id = checkpoints[1]["workspace"].as_str().unwrap();
    let there = answer(&program, &["list", "--workspace", id]);
    assert_eq!(there["checkpoints"], json!([checkpoints[1]]));

    let sessions = answer(&program, &["list", "--sessions"]);
    let session = &sessions["sessions"][0];
    assert_eq!(session["session"], "s");
    assert_eq!(session["checkpoints"], 2);
    assert_eq!(session["latest"], 1);
    assert_eq!(session["roots"].as_array().unwrap().len(), 2);
}

#[test]
fn a_plan_lists_every_path_by_what_happens_to_it() {
    let program = program();
    let root = program.workspace();
    build(&root, [("run.sh", file("x")), ("kind", file("x")), ("gone/deep/f", file("x"))]);
    answer(&program, &["capture", "--session", "s"]);
    fs::write(root.join("a.txt"), "changed").unwrap();
    fs::remove_dir_all(root.join("gone")).unwrap();
    fs::remove_file(root.join("kind")).unwrap();
    fs::remove_file(root.join(".env")).unwrap();
    fs::set_permissions(root.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    build(&root, [("kind", dir()), ("kind/below", file("x")), ("new", link("a.txt"))]);

    let plan = answer(&program, &["restore", "--dry-run", "s", "0"]);
    let paths = |list: &str| -> Vec<&str> {
        plan[list].as_array().unwrap().iter().map(|item| item["path"].as_str().unwrap()).collect()
    };
    assert_eq!(paths("create"), ["gone", "gone/deep", "gone/deep/f"]);
    assert_eq!(paths("overwrite"), ["a.txt", "kind"]);
    assert_eq!(paths("delete"), ["kind/below", "new"]);
    assert_eq!(paths("mode"), ["run.sh"]);
    assert_eq!(plan["skip"], json!([{ "path": ".env", "reason": "secret" }]));
    assert_eq!(plan["overwrite"][0], json!({ "path": "a.txt", "kind": "file" }));
    let kind = json!({
        "path": "kind", "kind_from": "dir", "kind_to": "file", "mode_from": "0755", "mode_to": "0644"
    });
    assert_eq!(plan["overwrite"][1], kind);
    let mode = &plan["mode"][0];
    assert_eq!((&mode["mode_from"], &mode["mode_to"]), (&json!("0755"), &json!("0644")));
    assert_eq!((&plan["dry_run"], &plan["safety"]), (&json!(true), &json!(null)));
    assert!(plan["plan"].is_string());

    // The same is then done, and the same lists say so.
    let done = answer(&program, &["restore", "s", "0", "--yes"]);
    for list in ["plan", "create", "overwrite", "delete", "mode", "skip"] {
        assert_eq!(done[list], plan[list], "{list}");
    }
    assert_eq!(done["changed"], 8);
    assert_eq!((&done["dry_run"], &done["left"]), (&json!(false), &json!([])));
    assert!(done["safety"]["session"].as_str().unwrap().starts_with("work-"));
    assert_eq!(fs::read_to_string(root.join("kind")).unwrap(), "x");
    assert!(!root.join("new").exists() && !root.join(".env").exists());

    let undone = answer(&program, &["undo", "--yes"]);
    assert_eq!(undone["changed"], 8);
    assert_eq!(fs::read_to_string(root.join("kind/below")).unwrap(), "x");
}

#[test]
fn names_that_are_not_text_come_with_their_bytes() {
    let program = program();
    let root = program.workspace();
    let name = OsStr::from_bytes(b"bad\xff");
    fs::write(root.join(name), "x").unwrap();
    symlink(OsStr::from_bytes(b"\xfe"), root.join("link")).unwrap();
    answer(&program, &["capture", "--session", "s"]);
    let listed = answer(&program, &["ls", "s:0"]);
    let entries = listed["entries"].as_array().unwrap();
    let bad = entries.iter().find(|entry| entry["path_bytes"].is_string()).unwrap();
    assert_eq!((&bad["path"], &bad["path_bytes"]), (&json!("bad\u{fffd}"), &json!("YmFk/w==")));
    let link = entries.iter().find(|entry| entry["path"] == "link").unwrap();
    assert_eq!((&link["target"], &link["target_bytes"]), (&json!("\u{fffd}"), &json!("/g==")));

    fs::remove_file(root.join(name)).unwrap();
    let plan = answer(&program, &["restore", "s:0", "--dry-run"]);
    assert_eq!(plan["create"][0]["path_bytes"], "YmFk/w==");
}

#[test]
fn ls_tells_each_kind_apart() {
    let program = program();
    build(&program.workspace(), [("link", link("a.txt"))]);
    answer(&program, &["capture", "--session", "s"]);
    let listed = answer(&program, &["ls", "s", "0", "--recursive"]);
    let entries = listed["entries"].as_array().unwrap();
    let entry = |path: &str| entries.iter().find(|entry| entry["path"] == path).unwrap();
    assert_eq!(keys(entry("a.txt")), ["hash", "kind", "mode", "mtime", "path", "size"]);
    assert_eq!(entry("a.txt")["size"], 3);
    assert_eq!(entry("src")["listed"], "whole");
    assert_eq!(entry("link")["target"], "a.txt");
    assert_eq!(entry(".env")["reason"], "secret");
    assert_eq!(entry("src/b.txt")["kind"], "file");
    let top = answer(&program, &["ls", "s", "0"]);
    assert_eq!(top["entries"].as_array().unwrap().len(), 4);
    let omitted = answer(&program, &["ls", "s", "0", "--omitted"]);
    assert_eq!(omitted["entries"], json!([entry(".env")]));
    let content = answer(&program, &["cat", "s", "0", "src/b.txt"]);
    assert_eq!((&content["content"], &content["size"]), (&json!("two"), &json!(3)));
}

#[test]
fn what_is_said_about_a_checkpoint_is_shown() {
    let program = program();
    answer(&program, &["capture", "--session", "s", "--label", "first"]);
    assert_eq!(answer(&program, &["pin", "s", "0", "--note", "good"])["pinned"], true);
    assert_eq!(answer(&program, &["label", "s", "0", "5"])["label"], "5");
    let shown = answer(&program, &["show", "s", "0"]);
    assert_eq!((&shown["pinned"], &shown["note"]), (&json!(true), &json!("good")));
    assert_eq!(shown["label"], "5");
    assert_eq!(shown["scope"]["file_limit_bytes"], 8 * 1024 * 1024);
    assert_eq!(shown["coverage"], "full");
    assert_eq!((&shown["parent"], &shown["git"]), (&json!(null), &json!(null)));
    let manifest = shown["manifest"]["path"].as_str().unwrap();
    let manifest: Value = serde_json::from_slice(&fs::read(manifest).unwrap()).unwrap();
    assert_eq!(shown["digest"], manifest["digest"]);
    assert_eq!(answer(&program, &["label", "s:0", "--clear"])["label"], "first");
    assert_eq!(answer(&program, &["unpin", "s:0"])["pinned"], false);
}

#[test]
fn upkeep_counts_what_it_did() {
    let program = program();
    for _ in 0..3 {
        answer(&program, &["capture", "--session", "s"]);
    }
    let planned = answer(&program, &["prune", "--keep", "1", "--dry-run"]);
    let pruned = json!([{ "session": "s", "seq": 0 }, { "session": "s", "seq": 1 }]);
    assert_eq!((&planned["pruned"], &planned["kept"]), (&pruned, &json!(1)));
    let done = answer(&program, &["prune", "--keep", "1", "--yes"]);
    assert_eq!((&done["pruned"], &done["dry_run"]), (&pruned, &json!(false)));
    let list = answer(&program, &["list", "--session", "s"]);
    assert_eq!(list["checkpoints"].as_array().unwrap().len(), 1);
    let collected = answer(&program, &["gc"]);
    let expected = [
        "adopted",
        "blobs_packed",
        "blobs_removed",
        "blobs_waiting",
        "bytes_removed",
        "dry_run",
        "evicted",
        "evicted_because",
        "failed",
        "index_bytes_freed",
        "kept",
        "leftovers_removed",
        "pruned",
        "released_bytes",
        "schema",
        "short_bytes",
    ];
    assert_eq!(keys(&collected), expected);
    let verified = answer(&program, &["verify", "--read-data"]);
    assert_eq!((&verified["ok"], &verified["checkpoints"]), (&json!(true), &json!(1)));
    assert_eq!((&verified["blobs"], &verified["content_bytes"]), (&json!(2), &json!(6)));
    let rebuilt = answer(&program, &["doctor", "--rebuild"]);
    assert_eq!((&rebuilt["checkpoints"], &rebuilt["unreadable"]), (&json!(1), &json!([])));
}

#[test]
fn a_checkpoint_is_written_into_another_directory() {
    let program = program();
    answer(&program, &["capture", "--session", "s"]);
    let into = program.root().join("into");
    let made = answer(&program, &["restore", "s", "0", "--into", into.to_str().unwrap()]);
    assert_eq!(made["into"]["path"], into.to_str().unwrap());
    assert_eq!(fs::read_to_string(into.join("src/b.txt")).unwrap(), "two");
    assert_eq!(fs::read_dir(&into).unwrap().count(), 2);
}

#[test]
fn an_error_is_one_document_on_standard_error() {
    let program = program();
    answer(&program, &["capture", "--session", "s"]);
    let document = |arguments: &[&str], code: i32| -> Value {
        let run = program.run(arguments).exits(code);
        assert_eq!(run.stdout, "");
        serde_json::from_str(&run.stderr).unwrap()
    };
    let error = document(&["show", "s", "9", "--json"], 2);
    assert_eq!((&error["schema"], &error["code"]), (&json!(1), &json!("checkpoint-not-found")));
    assert!(error["message"].is_string() && error["hint"].is_string(), "{error}");
    let error = document(&["cat", "s:0", ".env", "--json"], 2);
    assert_eq!(error["code"], "path-not-found");
    assert_eq!(error["paths"], json!([{ "path": ".env", "reason": "secret" }]));
    let error = document(&["list", "--nonsense", "--json"], 2);
    assert_eq!(error["code"], "usage");
    // The plan goes to standard output, and the refusal to standard error.
    fs::write(program.workspace().join("a.txt"), "changed").unwrap();
    let run = program.run(["restore", "s", "0", "--json"]).exits(3);
    assert_eq!(run.json()["overwrite"][0]["path"], "a.txt");
    let error: Value = serde_json::from_str(&run.stderr).unwrap();
    assert_eq!(error["code"], "confirmation-needed");
    assert_eq!(fs::read_to_string(program.workspace().join("a.txt")).unwrap(), "changed");
}
