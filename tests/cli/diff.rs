//! Comparing checkpoints, seen from outside: by git, and by looking at both trees.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::support::corpus::{Corpus, EVERYTHING, Shape};
use crate::support::fingerprint::{self, Fingerprint, Kind};
use crate::support::program::{Program, run};
use crate::support::tree::{build, executable, file, link};

fn program() -> Program {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    build(
        &program.workspace(),
        [
            ("a.txt", file("one\ntwo\nthree\n")),
            ("src/b.txt", file("b\n")),
            ("src/c.txt", file("c\n")),
            (".env", file("KEY=1")),
        ],
    );
    program
}

fn capture(program: &Program) {
    program.run(["capture", "--session", "s", "-q"]).ok();
}

/// Two checkpoints with a change of each simple kind.
fn changed() -> Program {
    let program = program();
    capture(&program);
    let root = program.workspace();
    fs::write(root.join("a.txt"), "one\n2\nthree\n").unwrap();
    fs::remove_file(root.join("src/b.txt")).unwrap();
    fs::rename(root.join("src/c.txt"), root.join("moved.txt")).unwrap();
    fs::write(root.join("new.txt"), "new\n").unwrap();
    capture(&program);
    program
}

fn changes(document: &Value) -> BTreeSet<(String, String)> {
    let changes = document["changes"].as_array().unwrap();
    let one = |change: &Value| {
        let text = |name: &str| change[name].as_str().unwrap().to_owned();
        (text("path"), text("change"))
    };
    let set: BTreeSet<_> = changes.iter().map(one).collect();
    assert_eq!(set.len(), changes.len(), "a path is told twice: {document}");
    set
}

/// What differs between two trees, by looking at both.
fn plain_comparison(before: &Fingerprint, after: &Fingerprint) -> BTreeSet<(String, String)> {
    let number = |kind: &Kind| match kind {
        Kind::File { .. } => 0,
        Kind::Link { .. } => 1,
        Kind::Dir => 2,
        Kind::Other { .. } => panic!("nothing special is made"),
    };
    let paths: BTreeSet<&PathBuf> = before.keys().chain(after.keys()).collect();
    let mut found = BTreeSet::new();
    for path in paths {
        let change = match (before.get(path), after.get(path)) {
            (None, Some(new)) if number(&new.kind) < 2 => "added",
            (Some(old), None) if number(&old.kind) < 2 => "deleted",
            (Some(old), Some(new)) if number(&old.kind) != number(&new.kind) => "type",
            (Some(old), Some(new)) if number(&new.kind) < 2 && old.kind != new.kind => "modified",
            (Some(old), Some(new)) if number(&new.kind) < 2 && old.mode != new.mode => "mode",
            _ => continue,
        };
        found.insert((path.to_str().unwrap().to_owned(), change.to_owned()));
    }
    found
}

#[test]
fn changes_are_those_that_both_trees_show() {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    let shape = Shape { mean_bytes: 500, ..Shape::of(300) };
    let mut corpus = Corpus::generate(&program.workspace(), shape).unwrap();
    let mut trees = Vec::new();
    let mut kinds = BTreeSet::new();
    for turn in 0..6 {
        capture(&program);
        trees.push(fingerprint::of(&program.workspace()));
        corpus.turn(turn, 12, EVERYTHING).unwrap();
    }
    let now = fingerprint::of(&program.workspace());
    let store = || fingerprint::without(&fingerprint::of(&program.store()), &["locks"]);
    let before = store();
    let diff = |arguments: &[&str]| {
        let always = ["diff", "--json", "--no-renames"];
        changes(&program.run(always.iter().chain(arguments)).ok().json())
    };
    for (a, old) in trees.iter().enumerate() {
        for (b, new) in trees.iter().enumerate() {
            let expected = plain_comparison(old, new);
            kinds.extend(expected.iter().map(|(_, change)| change.clone()));
            assert_eq!(diff(&["s", &a.to_string(), &b.to_string()]), expected, "{a} {b}");
        }
        assert_eq!(diff(&["s", &a.to_string()]), plain_comparison(old, &now), "{a} and the disk");
    }
    assert_eq!(kinds.len(), 5, "{kinds:?}");
    let is_index = |path: &PathBuf| path.to_str().unwrap().starts_with("index.db");
    let kept = |mut tree: Fingerprint| {
        tree.retain(|path, _| !is_index(path));
        tree
    };
    fingerprint::assert_same(&kept(before), &kept(store()));
}

/// Everything that a patch can say, and names and contents that are meant to break it.
fn first_state(root: &Path) {
    build(
        root,
        [
            ("edited.txt", file("a\nb\nc\nd\ne\nf\ng\nh\ni\nj\nk\nl\n")),
            ("endless.txt", file("no newline")),
            ("gains-end.txt", file("x")),
            ("crlf.txt", file("one\r\ntwo\r\n\rthree\n")),
            ("latin.txt", file(b"caf\xe9\nx\n")),
            ("script.sh", file("#!/bin/sh\n")),
            ("private.txt", file("p\n")),
            ("link", link("edited.txt")),
            ("old/name.txt", file("renamed as it is\n")),
            ("old/tool.sh", executable("#!/bin/sh\necho renamed\n")),
            ("becomes-link", file("text\n")),
            ("becomes-file", link("nowhere")),
            ("becomes-dir", file("text\n")),
            ("was-dir/x", file("x\n")),
            ("empty-gone", file("")),
            ("gone.txt", file("1\n2\n")),
            ("with space.txt", file("s\n")),
            ("quote\" back\\slash", file("q\n")),
            ("new\nline\tand \x1b[31mred", file("n\n")),
            ("caf\u{e9} \u{202e}.txt", file("u\n")),
            ("-- a/looks.txt", file("-- like a header\n++ another\n")),
            ("diff --git a/x b/x", file("d\n")),
        ],
    );
    fs::write(root.join(OsStr::from_bytes(b"not-utf8-\xff")), "n\n").unwrap();
}

fn second_state(root: &Path) {
    let replace = |path: &str| fs::remove_file(root.join(path)).unwrap();
    replace("becomes-dir");
    fs::remove_dir_all(root.join("was-dir")).unwrap();
    fs::rename(root.join("old/name.txt"), root.join("name moved.txt")).unwrap();
    fs::rename(root.join("old/tool.sh"), root.join("tool.sh")).unwrap();
    build(
        root,
        [
            ("edited.txt", file("a\nB\nc\nd\ne\nf\ng\nh\ni\nj\nK\nl\nm\n")),
            ("endless.txt", file("another without")),
            ("gains-end.txt", file("x\n")),
            ("crlf.txt", file("one\ntwo\r\n\rthree\r\n")),
            ("latin.txt", file(b"caf\xe9s\nx\n")),
            ("script.sh", executable("#!/bin/sh\n")),
            ("link", link("elsewhere/\u{e9}")),
            ("becomes-link", link("text")),
            ("becomes-file", file("file\n")),
            ("becomes-dir/inside", file("i\n")),
            ("was-dir", file("file now\n")),
            ("empty-new", file("")),
            ("added/deep/file.txt", file("deep\n")),
            ("with space.txt", file("s2\n")),
            ("quote\" back\\slash", file("q2\n")),
            ("new\nline\tand \x1b[31mred", file("n2\x1b[2J\n")),
            ("caf\u{e9} \u{202e}.txt", file("u2\n")),
            ("-- a/looks.txt", file("--- like a header\n+++ another\n@@ -1 +1 @@\n")),
            ("diff --git a/x b/x", file("d2\n")),
        ],
    );
    fs::set_permissions(root.join("tool.sh"), fs::Permissions::from_mode(0o644)).unwrap();
    replace("empty-gone");
    replace("gone.txt");
    fs::write(root.join(OsStr::from_bytes(b"not-utf8-\xff")), "n2\n").unwrap();
}

/// What git knows of a tree: no empty directories, and of the mode only whether it can be executed.
fn as_git_sees(root: &Path) -> BTreeMap<PathBuf, (Kind, bool)> {
    let all = fingerprint::without(&fingerprint::of(root), &[".git"]);
    let known = all.into_iter().filter(|(_, node)| node.kind != Kind::Dir);
    known.map(|(path, node)| (path, (node.kind, node.mode & 0o100 != 0))).collect()
}

#[test]
fn git_applies_the_patch_in_both_directions() {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    let root = program.workspace();
    first_state(&root);
    capture(&program);
    let first = as_git_sees(&root);
    second_state(&root);
    let second = as_git_sees(&root);
    let on_disk = program.run(["diff", "s:0", "--patch"]).ok();
    capture(&program);
    let patch = program.run(["diff", "s", "0", "1", "-p"]).ok();
    assert_eq!(patch.stdout_bytes, on_disk.stdout_bytes);
    assert_eq!(patch.stderr, "");
    for said in
        ["rename from old/name.txt\n", "old mode 100755\nnew mode 100644\n", "\\ No newline"]
    {
        assert!(patch.stdout.contains(said), "{}", patch.stdout);
    }
    let plain = program.run(["diff", "s", "0", "1", "-p", "--no-renames"]).ok();
    assert!(!plain.stdout.contains("rename from"));
    for (number, text) in [&patch, &plain].into_iter().enumerate() {
        let place = program.root().join(format!("copy-{number}"));
        program.run(["restore", "s:0", "--into", place.to_str().unwrap(), "-q"]).ok();
        let given = program.root().join("given.patch");
        fs::write(&given, &text.stdout_bytes).unwrap();
        let git = |arguments: &[&str]| {
            run(program.other("git").arg("-C").arg(&place).args(arguments)).ok();
        };
        git(&["init", "-q"]);
        git(&["apply", "--whitespace=nowarn", given.to_str().unwrap()]);
        assert_eq!(as_git_sees(&place), second, "forwards, patch {number}");
        git(&["apply", "--whitespace=nowarn", "--reverse", given.to_str().unwrap()]);
        // Taking back a deletion, git forgets that it was a link, or could be executed; also with a
        // patch of its own.
        let comparable = |mut tree: BTreeMap<PathBuf, (Kind, bool)>| {
            assert!(tree.remove(Path::new("becomes-file")).is_some());
            assert!(tree.remove(Path::new("old/tool.sh")).is_some());
            tree
        };
        let (back, meant) = (comparable(as_git_sees(&place)), comparable(first.clone()));
        let wrong = |(path, node): &(&PathBuf, &(Kind, bool))| back.get(*path) != Some(*node);
        let wrong: Vec<_> = meant.iter().filter(wrong).collect();
        assert_eq!(wrong, [], "backwards, patch {number}");
        assert_eq!(back.len(), meant.len(), "backwards, patch {number}");
    }
}

#[test]
fn a_change_of_bits_that_git_does_not_know_is_told() {
    let program = program();
    capture(&program);
    let path = program.workspace().join("a.txt");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let patch = program.run(["diff", "s", "0", "-p"]).ok().stdout;
    assert_eq!(patch, "diff --git a/a.txt b/a.txt\nold mode 100644\nnew mode 100600\n");
    let summary = program.run(["diff", "s", "0"]).ok().stdout;
    assert!(
        summary.contains("\nM  a.txt [mode 0644 -> 0600]\n\n1 with another mode\n"),
        "{summary}"
    );
}

#[test]
fn what_is_not_text_is_named_and_not_shown() {
    let program = program();
    let root = program.workspace();
    fs::write(root.join("pixels"), b"\x89PNG\0one").unwrap();
    capture(&program);
    fs::write(root.join("pixels"), b"\x89PNG\0two!").unwrap();
    fs::write(root.join("more"), b"\0").unwrap();
    let patch = program.run(["diff", "s", "0", "-p"]).ok().stdout;
    let expected = "diff --git a/more b/more\nnew file mode 100644\n\
                    Binary files /dev/null and b/more differ\n\
                    diff --git a/pixels b/pixels\nBinary files a/pixels and b/pixels differ\n";
    assert_eq!(patch, expected);
    let stat = program.run(["diff", "s", "0", "--stat"]).ok().stdout;
    assert!(stat.contains("\n pixels | Bin 8 B -> 9 B\n"), "{stat}");
}

#[test]
fn what_is_too_large_is_named_and_not_compared_line_by_line() {
    let program = program();
    capture(&program);
    let large = vec![b'x'; 9 << 20];
    fs::write(program.workspace().join("a.txt"), &large).unwrap();
    // A capture leaves it out; what a restore is about to overwrite is saved whatever its size.
    let left_out = program.run(["diff", "s", "0"]).ok().stdout;
    assert!(left_out.contains("T  a.txt [file -> not held: over-file-limit]"), "{left_out}");
    program.run(["restore", "s:0", "--session", "t", "--yes"]).ok();
    let run = program.run(["diff", "s:0", "t:0", "--patch"]).ok();
    let expected = "diff --git a/a.txt b/a.txt\nBinary files a/a.txt and b/a.txt differ\n";
    assert_eq!(run.stdout, expected);
    assert!(run.stderr.contains("`a.txt` is too large to be compared line by line"), "{run:?}");
}

#[test]
fn each_form_says_the_same() {
    let program = changed();
    let summary = program.run(["diff", "s", "0", "1"]).ok().stdout;
    assert_eq!(
        summary,
        "changes from s:0 to s:1\n\
         M  a.txt\nR  src/c.txt -> moved.txt\nA  new.txt\nD  src/b.txt\n\n\
         1 added, 1 modified, 1 deleted, 1 renamed\nnot compared: 1 secret\n"
    );
    let names = program.run(["diff", "s", "0", "1", "--name-status"]).ok().stdout;
    assert_eq!(names, "M\ta.txt\nR100\tsrc/c.txt\tmoved.txt\nA\tnew.txt\nD\tsrc/b.txt\n");
    let nul = program.run(["diff", "s", "0", "1", "-z"]).ok().stdout;
    assert_eq!(nul, names.replace(['\t', '\n'], "\0"));
    let stat = program.run(["diff", "s", "0", "1", "--stat"]).ok().stdout;
    assert_eq!(
        stat,
        "changes from s:0 to s:1\n\
         \x20a.txt                  | 2 +-\n\
         \x20src/c.txt => moved.txt | 0\n\
         \x20new.txt                | 1 +\n\
         \x20src/b.txt              | 1 -\n\
         4 files changed, 2 lines added, 2 lines removed\nnot compared: 1 secret\n"
    );
    let document = program.run(["diff", "s", "0", "1", "--stat", "--json"]).ok().json();
    let expected = [
        ("a.txt", "modified"),
        ("moved.txt", "renamed"),
        ("new.txt", "added"),
        ("src/b.txt", "deleted"),
    ];
    let expected = expected.map(|(path, change)| (path.to_owned(), change.to_owned()));
    assert_eq!(changes(&document), BTreeSet::from(expected));
    assert_eq!(document["changes"][1]["from"], "src/c.txt");
    let counted =
        (&document["changes"][0]["added_lines"], &document["changes"][0]["removed_lines"]);
    assert_eq!(counted, (&json!(1), &json!(1)));
    assert_eq!((&document["before"]["seq"], &document["after"]["seq"]), (&json!(0), &json!(1)));
    assert_eq!(document["before"]["omitted"], json!({ "secret": 1 }));
    // Other names for the same two.
    for words in [&["s:0", "s:1"][..], &["0", "1"], &["latest~1", "latest"], &["s", "0", "s", "1"]]
    {
        assert_eq!(program.run(["diff"].iter().chain(words)).ok().stdout, summary, "{words:?}");
    }
    // Where none is named it is the newest, against the disk.
    let newest = program.run(["diff", "latest"]).ok().stdout;
    assert_eq!(program.run(["diff"]).ok().stdout, newest);
    assert!(newest.contains("s:1"), "{newest}");
    let below = program.run(["diff", "--json", "--", "src"]).ok().json();
    assert_eq!(below["before"]["seq"], 1);
    let of_session = program.run(["diff", "--session", "none"]).exits(2).stderr;
    assert!(of_session.contains("there is no session `none`"), "{of_session}");
    // Of the workspace, whatever session it is in, on either side.
    program.run(["capture", "--session", "other", "-q"]).ok();
    let compared =
        |words: [&str; 2]| program.run(["diff", "--json"].iter().chain(&words)).ok().json();
    for words in [["latest~2", "latest"], ["s:0", "other:0"]] {
        let found = compared(words);
        let side = |name: &str| (found[name]["session"].clone(), found[name]["seq"].clone());
        assert_eq!(
            (side("before"), side("after")),
            ((json!("s"), json!(0)), (json!("other"), json!(0))),
            "{words:?}"
        );
    }
    assert_eq!(compared(["s:0", "latest"])["after"]["session"], "s");
    let disk = program.run(["diff", "s", "0", "--json"]).ok().json();
    assert_eq!(changes(&disk), changes(&document));
    assert_eq!(disk["after"].get("seq"), None);
    assert_eq!(disk["after"]["root"], program.workspace().to_str().unwrap());
}

#[test]
fn a_path_or_a_pattern_narrows_it_down() {
    let program = changed();
    let names = |words: &[&str]| {
        let always = ["diff", "s", "0", "1", "--name-status", "--"];
        program.run(always.iter().chain(words)).ok().stdout
    };
    // As in git, a rename out of what is asked for is a deletion.
    assert_eq!(names(&["src"]), "D\tsrc/b.txt\nD\tsrc/c.txt\n");
    assert_eq!(names(&["s*/b*"]), "D\tsrc/b.txt\n");
    assert_eq!(names(&["*.txt"]), names(&["."]));
    assert_eq!(names(&["a.txt", "new.txt"]), "M\ta.txt\nA\tnew.txt\n");
    assert_eq!(names(&["*.rs"]), "");
    let inside = program.run(["diff", "s", "0", "1", "--name-status", "-C", "src"]);
    inside.exits(0);
    let typo = program.run(["diff", "s", "0", "1", "--", "scr"]).exits(2);
    assert!(typo.stderr.contains("does not hold `scr`"), "{}", typo.stderr);
    let secret = program.run(["diff", "s", "0", "--", ".env"]).exits(2);
    assert!(secret.stderr.contains("  .env: secret\n"), "{}", secret.stderr);
}

#[test]
fn the_exit_code_tells_on_request() {
    let program = changed();
    program.run(["diff", "s", "0", "1"]).ok();
    for form in [&[][..], &["--stat"], &["-p"], &["-z"], &["--name-status"], &["--json"]] {
        let run =
            |a: &str, b: &str| program.run(["diff", "s", a, b, "--exit-code"].iter().chain(form));
        assert_eq!(run("0", "1").exits(1).stderr, "");
        run("1", "1").ok();
    }
    let same = program.run(["diff", "s", "1", "--exit-code"]).ok().stdout;
    assert!(same.starts_with("nothing differs between s:1 and /"), "{same}");
    let refused = program.run(["diff", "s", "0", "1", "-p", "--json"]).exits(2);
    assert!(refused.stderr.contains("\"code\": \"usage\""), "{}", refused.stderr);
}

#[test]
fn what_is_not_held_is_never_taken_for_unchanged() {
    let program = program();
    capture(&program);
    fs::write(program.workspace().join(".env"), "KEY=2").unwrap();
    let same = program.run(["diff", "s", "0"]).ok().stdout;
    assert!(same.ends_with("\nnot compared: 1 secret\n"), "{same}");
    // A file that a rule leaves out from now on is still there, and was not deleted.
    fs::write(program.workspace().join(".gitignore"), "src\n").unwrap();
    let found = program.run(["diff", "s", "0", "--json"]).ok().json();
    let of = |path: &str| {
        let all = found["changes"].as_array().unwrap();
        all.iter().find(|change| change["path"] == path).cloned().unwrap_or_default()
    };
    let folder = of("src");
    assert_eq!((&folder["change"], &folder["kind_to"]), (&json!("type"), &json!("omitted")));
    assert_eq!(folder["reason_to"], "ignored");
    assert_eq!(of("src/b.txt"), Value::Null, "{found}");
    let patch = program.run(["diff", "s", "0", "-p", "--", "src"]).ok();
    assert_eq!(patch.stdout, "");
    assert!(patch.stderr.contains("`src` is not in the patch"), "{}", patch.stderr);
}

#[test]
fn two_workspaces_are_compared_and_that_is_told() {
    let program = program();
    capture(&program);
    let other = program.root().join("other");
    build(&other, [("a.txt", file("one\ntwo\nthree\n")), ("x.txt", file("x\n"))]);
    let other = other.to_str().unwrap();
    let disk = program.run(["-C", other, "diff", "s:0", "--name-status"]).ok();
    assert_eq!(disk.stdout, "D\tsrc/b.txt\nD\tsrc/c.txt\nA\tx.txt\n");
    assert!(disk.stderr.contains("two workspaces are compared"), "{}", disk.stderr);
    program.run(["-C", other, "capture", "--session", "t", "-q"]).ok();
    let both = program.run(["diff", "s:0", "t:0", "--name-status"]).ok();
    assert_eq!((both.stdout, both.stderr), (disk.stdout, disk.stderr));
    let document = program.run(["diff", "s:0", "t:0", "--json"]).ok().json();
    assert_eq!(document["notices"][0]["code"], "remark");
}

#[test]
fn damage_is_named_and_the_rest_is_shown() {
    let program = changed();
    let hash = blake3::hash(b"one\n2\nthree\n").to_hex().to_string();
    let blob = program.store().join("blobs").join(hash.split_at(2).0).join(&hash);
    fs::remove_file(blob).unwrap();
    let patch = program.run(["diff", "s", "0", "1", "-p"]).exits(4);
    assert!(patch.stdout.contains("+new\n") && !patch.stdout.contains("a.txt"), "{}", patch.stdout);
    assert!(patch.stderr.contains("the content of `a.txt` is left out: blob"), "{}", patch.stderr);
    let stat = program.run(["diff", "s", "0", "1", "--stat", "-q"]).exits(4);
    assert!(stat.stdout.contains(" a.txt                  | ?\n"), "{}", stat.stdout);
    // Names alone need no content.
    program.run(["diff", "s", "0", "1"]).ok();
    for suffix in ["", "-wal", "-shm"] {
        fs::write(program.store().join(format!("index.db{suffix}")), "no database").unwrap();
    }
    let names = program.run(["diff", "s", "0", "1", "--name-status"]).exits(4);
    assert!(names.stdout.starts_with("M\ta.txt\n"), "{}", names.stdout);
    assert!(names.stderr.contains("the files were read in its place"), "{}", names.stderr);
}

#[test]
fn a_name_cannot_act_on_a_terminal_or_break_a_line() {
    let program = program();
    capture(&program);
    let name = b"x\n\x1b[31m\xff\t";
    fs::write(program.workspace().join(OsStr::from_bytes(name)), "x\n").unwrap();
    symlink("t\n\x1b", program.workspace().join("l\r")).unwrap();
    for form in [&[][..], &["--stat"], &["--name-status"], &["--json"]] {
        let run = program.run(["diff", "s", "0"].iter().chain(form)).ok();
        let is_safe = |character: char| character == '\n' || character == '\t' || character >= ' ';
        assert!(run.stdout.chars().all(is_safe), "{form:?} {:?}", run.stdout);
        assert!(!run.stdout.contains("x\n"), "{form:?} {:?}", run.stdout);
    }
    let nul = program.run(["diff", "s", "0", "-z"]).ok().stdout_bytes;
    assert_eq!(nul, [&b"A\0l\r\0A\0"[..], name, b"\0"].concat());
    let patch = program.run(["diff", "s", "0", "-p"]).ok().stdout;
    assert!(patch.contains("\"b/x\\n\\033[31m\\377\\t\"\n"), "{patch}");
}

#[test]
fn a_reader_that_stops_reading_is_no_failure() {
    let program = changed();
    for form in [&[][..], &["--stat"], &["-p"], &["-z"], &["--json"]] {
        let mut command = program.command(["diff", "s", "0", "1"].iter().chain(form));
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let child = command.stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{form:?}");
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "", "{form:?}");
    }
}

#[test]
fn two_labels_are_compared_and_one_that_is_a_path_too_is_not_guessed() {
    let program = changed();
    program.run(["label", "s:0", "one"]).ok();
    program.run(["label", "s:1", "two"]).ok();
    build(&program.workspace(), [("d.txt", file("d"))]);
    program.run(["capture", "--session", "t", "--label", "one"]).ok();
    let sides = |words: &[&str]| {
        let found = program.run([&["diff", "--json"], words].concat()).ok().json();
        let id = |side: &Value| format!("{}:{}", side["session"].as_str().unwrap(), side["seq"]);
        (id(&found["before"]), id(&found["after"]))
    };
    let is = |before: &str, after: &str| (before.to_owned(), after.to_owned());
    assert_eq!(sides(&["--session", "s", "@one", "@two"]), is("s:0", "s:1"));
    assert_eq!(sides(&["s", "@one", "@two"]), is("s:0", "s:1"));
    assert_eq!(sides(&["s", "0", "@two", "a.txt"]), is("s:0", "s:1"));
    assert_eq!(sides(&["@two", "@one"]), is("s:1", "t:0"), "the newest of the workspace");
    assert_eq!(sides(&["@two", "0"]), is("s:1", "s:0"), "a number is of the session of A");
    let unknown = program.run(["diff", "0", "@three"]).exits(2).stderr;
    assert!(unknown.contains("comes after `--`") && unknown.contains("@one"), "{unknown}");

    build(&program.workspace(), [("@two", file("a file")), ("@types/x.ts", file("x"))]);
    let two = program.run(["diff", "s:0", "@two"]).exits(2).stderr;
    assert!(two.contains("`@two` is a path, and the label of s:1"), "{two}");
    assert!(two.contains("`s:1` in its place") && two.contains("`-- @two` the path"), "{two}");
    for words in [&["t:0", "--", "@two"][..], &["t:0", "@types"]] {
        let found = program.run([&["diff", "--json"], words].concat()).ok().json();
        assert_eq!(changes(&found).len(), 1, "{found}");
        assert_eq!(found["after"]["seq"], Value::Null);
    }
    // No session was named, and nothing was taken for a label of the one that the variable names.
    let mut with_session = program.command(["diff", "0", "@types", "--json"]);
    let found = run(with_session.env("TURNPOINT_SESSION", "s")).ok().json();
    assert_eq!(found["notices"], Value::Null, "{found}");
    assert_eq!(changes(&found).len(), 1, "{found}");
}

/// What is gone from the disk is what is asked about most.
#[test]
fn a_path_that_begins_as_a_label_and_is_only_in_the_checkpoint_is_a_path() {
    let program = changed();
    build(&program.workspace(), [("@types/x.ts", file("x")), ("@gone", file("y"))]);
    program.run(["capture", "--session", "s"]).ok();
    fs::remove_dir_all(program.workspace().join("@types")).unwrap();
    fs::remove_file(program.workspace().join("@gone")).unwrap();
    for word in ["@types/x.ts", "@types", "@types/*", "@gone"] {
        let found = program.run(["diff", "latest", word, "--json"]).ok().json();
        let changes = changes(&found);
        assert_eq!(changes.len(), 1, "{word}: {found}");
        assert_eq!(found["changes"][0]["change"], "deleted", "{word}: {found}");
        assert_eq!(found["after"]["seq"], Value::Null, "{word}: {found}");
    }
    program.run(["label", "s:0", "gone"]).ok();
    let refused = program.run(["diff", "latest", "@gone", "--json"]).exits(2);
    let refused: Value = serde_json::from_str(&refused.stderr).unwrap();
    assert_eq!(refused["code"], "ambiguous");
    assert!(refused["hint"].as_str().unwrap().contains("`s:0` in its place"), "{refused}");
    // Before there was such a path the label is all that it can be.
    let found = program.run(["diff", "s:1", "@gone", "--json"]).ok().json();
    assert_eq!(found["after"]["seq"], 0, "{found}");
}
