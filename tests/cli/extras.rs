//! What is brought along into the work tree of a run, and that it harms neither side.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use serde_json::{Value, json};

use crate::support::fingerprint;
use crate::support::ground::ground;
use crate::support::program::Program;
use crate::support::tree::{build, executable, file, link};
use crate::worktree::{assert_cleared, exec, only, program};
use crate::worktree_removal::bound;

fn say(program: &Program, text: &str) {
    let directory = program.root().join("home/.config/turnpoint");
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("config.toml"), text).unwrap();
}

/// With dependencies, a secret and a cache that git ignores, which the settings name.
fn with_extras() -> Program {
    let program = program();
    let root = program.workspace();
    fs::write(root.join(".git/info/exclude"), "node_modules/\n").unwrap();
    build(
        &root,
        [
            ("node_modules/dep/index.js", file("dependency\n")),
            ("node_modules/.bin/dep", link("../dep/index.js")),
            (".env", file("SECRET=1\n")),
            ("build/cache/tool", executable("tool\n")),
            ("build/cache/.git/HEAD", file("not ours\n")),
            ("build/cache/link", link("tool")),
        ],
    );
    let set_mode = |name: &str, mode| {
        fs::set_permissions(root.join(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    set_mode(".env", 0o600);
    set_mode("build/cache", 0o555);
    let old = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    File::open(root.join("build/cache/tool")).unwrap().set_modified(old).unwrap();
    say(
        &program,
        "[extras]\ncopy = [\".env\", \"build/cache/\", \"missing\"]\nsymlink = [\"node_modules\"]\n",
    );
    program
}

#[test]
fn what_is_named_comes_along_and_git_and_checkpoints_do_not_see_it() {
    let program = with_extras();
    let root = program.workspace();
    let dependencies = fingerprint::of(&root.join("node_modules"));
    let before = ground(&program);
    let script = "git status --porcelain --untracked-files=all; cat node_modules/.bin/dep .env \
                  build/cache/link; echo changed > build/cache/tool; echo made > made.txt; \
                  git add -A; git commit -qm all; git show --name-only --format=";
    let run = exec(&program, &["--report", "../report.json"], script).ok();
    assert_eq!(run.stdout, "dependency\nSECRET=1\ntool\nmade.txt\n");
    let told =
        "note: brought along: node_modules (symlink), .env (copied, 1 file, 9 B), build/cache ";
    assert!(run.stderr.contains(told), "{}", run.stderr);
    let told = "note: not brought along: missing (it is not there)\n";
    assert!(run.stderr.contains(told), "{}", run.stderr);
    let report = fs::read(program.root().join("report.json")).unwrap();
    let report: Value = serde_json::from_slice(&report).unwrap();
    let node_modules = json!({"path": "node_modules", "how": "symlink", "files": 0, "bytes": 0});
    assert_eq!(report["brought_along"][0], node_modules);
    assert_eq!(report["brought_along"][2]["files"], 1);
    assert_eq!(
        report["not_brought_along"],
        json!([{"path": "missing", "reason": "it is not there"}])
    );

    let (id, path) = only(&program);
    let of = |top: &Path, name: &str| fs::symlink_metadata(top.join(name)).unwrap();
    assert_eq!(of(&path, ".env").mode() & 0o7777, 0o600);
    assert_eq!(of(&path, "build/cache/tool").mode() & 0o7777, 0o755);
    // Nothing could be removed from a directory that may not be written.
    assert_eq!(of(&path, "build/cache").mode() & 0o7777, 0o755);
    assert_eq!(of(&path, "build/cache").mtime(), of(&root, "build/cache").mtime());
    assert_eq!(fs::read_link(path.join("node_modules")).unwrap(), root.join("node_modules"));
    assert!(!path.join("build/cache/.git").exists());
    // Neither what was brought along, nor what became of it.
    assert_eq!(report["changes"], json!([{"path": "made.txt", "change": "added"}]));
    let after =
        format!("{}:{}", report["after"]["session"].as_str().unwrap(), report["after"]["seq"]);
    let held = program.run(["ls", &after, "--recursive", "--json"]).ok().json();
    let is_held = |entry: &&Value| entry["kind"] != "omitted";
    let held = held["entries"].as_array().unwrap().iter().filter(is_held);
    let held: Vec<&str> = held.map(|entry| entry["path"].as_str().unwrap()).collect();
    assert_eq!(held, [".gitignore", "a.txt", "c.txt", "made.txt", "src", "src/b.txt"]);
    let planned = program.run(["worktree", "apply", &id, "--dry-run", "--json"]).ok().json();
    assert_eq!(planned["create"], json!([{"path": "made.txt", "kind": "file"}]));
    assert_eq!((&planned["overwrite"], &planned["delete"]), (&json!([]), &json!([])));

    program.run(["worktree", "remove", &id, "--yes", "-q"]).ok();
    assert_cleared(&program);
    assert_eq!(ground(&program), before);
    fingerprint::assert_same(&dependencies, &fingerprint::of(&root.join("node_modules")));
    assert_eq!(fs::read_to_string(root.join("build/cache/tool")).unwrap(), "tool\n");
    let excluded = fs::read_to_string(root.join(".git/info/exclude")).unwrap();
    assert_eq!(excluded, "node_modules/\n/.turnpoint/\n/node_modules\n");
}

#[test]
fn a_removal_takes_a_link_and_nothing_behind_it() {
    let program = with_extras();
    let root = program.workspace();
    let before = fingerprint::of(&root.join("node_modules"));
    // By itself, where the command fails, and with all that is ignored held first.
    exec(&program, &[], "exit 3").exits(3);
    assert_cleared(&program);
    fingerprint::assert_same(&before, &fingerprint::of(&root.join("node_modules")));
    say(&program, "extras.symlink = [\"node_modules\"]\n");
    exec(&program, &[], "echo made > made.txt").ok();
    let (id, _) = only(&program);
    program.run(["worktree", "remove", &id, "--ignored", "--yes"]).ok();
    assert_cleared(&program);
    fingerprint::assert_same(&before, &fingerprint::of(&root.join("node_modules")));
    // Where git is told to take all away that it does not track, too.
    exec(&program, &[], "git clean -ffdxq").ok();
    let (id, _) = only(&program);
    program.run(["worktree", "remove", &id, "--yes"]).ok();
    fingerprint::assert_same(&before, &fingerprint::of(&root.join("node_modules")));
}

#[test]
fn what_cannot_come_is_named_and_the_run_is_made() {
    let program = program();
    let root = program.workspace();
    build(
        &root,
        [
            ("plain.db", file("untracked")),
            ("plain/x", file("untracked")),
            ("elsewhere/x.log", file("elsewhere")),
            ("build/there.log", file("there")),
        ],
    );
    symlink("elsewhere", root.join("way")).unwrap();
    symlink("new.txt", root.join("link.log")).unwrap();
    let huge = File::create(root.join("huge.log")).unwrap();
    huge.set_len(17 << 30).unwrap();
    let made = rustix::fs::mkfifoat(rustix::fs::CWD, root.join("pipe.log"), rustix::fs::Mode::RUSR);
    made.unwrap();
    // The store lies in the workspace, and is ignored.
    let store = root.join("build/home");
    say(
        &program,
        "[extras]\ncopy = [\"plain.db\", \"plain\", \"a.txt\", \"way/x.log\", \"link.log\", \
         \"huge.log\", \"pipe.log\", \"build\", \"build/there.log\"]\nsymlink = [\"plain\"]\n",
    );
    let words = ["exec", "--worktree", "--report", "../report.json", "--", "true"];
    let mut command = program.command(words);
    command.env("TURNPOINT_HOME", &store);
    crate::support::program::run(&mut command).ok();
    let report = fs::read(program.root().join("report.json")).unwrap();
    let report: Value = serde_json::from_slice(&report).unwrap();
    let left = report["not_brought_along"].as_array().unwrap().iter();
    let told = |it: &Value| {
        format!("{}: {}", it["path"].as_str().unwrap(), it["reason"].as_str().unwrap())
    };
    assert_eq!(
        left.map(told).collect::<Vec<_>>(),
        [
            "plain: git does not ignore it, so it would be committed",
            "plain.db: git does not ignore it, so it would be committed",
            "plain: git does not ignore it, so it would be committed",
            "a.txt: the work tree has it already",
            "way/x.log: a symlink is on the way to it",
            "link.log: it is a symlink",
            "huge.log: with it there would be more than 16 GiB to copy",
            "pipe.log: it is neither a file nor a directory",
            "build: the store is in it",
        ]
    );
    let path = Path::new(report["root"].as_str().unwrap());
    assert_eq!(fs::read_to_string(path.join("build/there.log")).unwrap(), "there");
    assert_eq!(fs::read_to_string(path.join("a.txt")).unwrap(), "one\n");
    for name in ["plain", "plain.db", "way", "link.log", "huge.log", "pipe.log", "build/home"] {
        assert!(!path.join(name).exists(), "{name}");
    }
    let git = program.git(["-C", path.to_str().unwrap(), "status", "--porcelain"]);
    assert_eq!(git, "");
}

/// To root nothing is unreadable.
#[test]
fn what_cannot_be_read_is_named_and_nothing_of_it_comes() {
    let program = program();
    let root = program.workspace();
    build(
        &root,
        [
            ("build/closed/deep/x", file("not to be had\n")),
            ("build/file/a", file("to be had\n")),
            ("build/file/z", file("not to be had\n")),
            ("build/file/deep/y", file("to be had\n")),
            ("build/above/x", file("not to be had\n")),
            ("build/there", file("there\n")),
        ],
    );
    let set_mode = |name: &str, mode| {
        fs::set_permissions(root.join(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    let closed = [("build/closed/deep", 0o755), ("build/file/z", 0o644), ("build/above", 0o755)];
    for (name, _) in closed {
        set_mode(name, 0);
    }
    say(&program, "extras.copy = ['build/closed', 'build/file', 'build/above/x', 'build/there']\n");
    let words = ["exec", "--worktree", "--report", "../report.json", "--", "cat", "build/there"];
    let run = crate::support::program::run(&mut bound(&program, &words)).ok();
    for (name, mode) in closed {
        set_mode(name, mode);
    }
    assert_eq!(run.stdout, "there\n");
    let report = fs::read(program.root().join("report.json")).unwrap();
    let report: Value = serde_json::from_slice(&report).unwrap();
    assert_eq!(report["brought_along"].as_array().unwrap().len(), 1, "{report}");
    let left = report["not_brought_along"].as_array().unwrap();
    let of = |name: &str| {
        format!("cannot open {}: Permission denied (os error 13)", root.join(name).display())
    };
    let told = [
        ("build/closed", of("build/closed/deep")),
        ("build/file", of("build/file/z")),
        ("build/above/x", of("build/above")),
    ];
    let told = told.map(|(path, reason)| json!({"path": path, "reason": reason}));
    assert_eq!(*left, told);
    // Neither a part of it, which would be taken for all.
    let path = Path::new(report["root"].as_str().unwrap());
    for name in ["build/closed", "build/file", "build/above/x"] {
        assert!(path.join(name).symlink_metadata().is_err(), "{name}");
    }
}

#[test]
fn the_file_of_a_workspace_brings_nothing_along() {
    let program = program();
    let root = program.workspace();
    build(
        &root,
        [(".env", file("SECRET=1\n")), (".turnpoint.toml", file("extras.copy = ['.env']\n"))],
    );
    let run = exec(&program, &[], "test ! -e .env").ok();
    let told = "`extras.copy` is not for the file of a workspace; take it out; only `extras.copy` in the \
                user's file, or TURNPOINT_EXTRAS_COPY, may say this";
    assert!(run.stderr.contains(told), "{}", run.stderr);
    assert!(!run.stderr.contains("brought along"), "{}", run.stderr);
    let (_, path) = only(&program);
    assert!(!path.join(".env").exists());
}
