//! A long walk through everything on a real tree: the unpacked sources of the crates that this
//! project builds with.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::support::corpus::{Corpus, EVERYTHING};
use crate::support::fingerprint;
use crate::support::program::{Program, run};

const BINARY: &str = env!("CARGO_BIN_EXE_turnpoint");
const FILES: usize = 10_000;
/// Larger ones (import libraries) would be most of the bytes.
const FILE_BYTES_MAX: u64 = 256 * 1024;

/// Copies crates until the tree has [`FILES`] files; twice over, under other names, where there are
/// not enough. Names that a capture leaves out by rule are not copied, so that the whole tree is in
/// scope and can be compared to the last byte.
fn copy_crates(to: &Path) {
    let registry = cargo_home().join("registry/src");
    let mut crates: Vec<PathBuf> = Vec::new();
    for index in fs::read_dir(&registry).unwrap() {
        for source in fs::read_dir(index.unwrap().path()).unwrap() {
            crates.push(source.unwrap().path());
        }
    }
    crates.sort();
    assert!(!crates.is_empty(), "no unpacked crates in {}", registry.display());
    let mut files = 0;
    for round in 0..100 {
        for source in &crates {
            if files >= FILES {
                return;
            }
            let name = source.file_name().unwrap().to_str().unwrap();
            files += copy_tree(source, &to.join(format!("{round}-{name}"))).unwrap();
        }
    }
    panic!("only {files} files in {}", registry.display());
}

fn cargo_home() -> PathBuf {
    match std::env::var_os("CARGO_HOME") {
        Some(home) => home.into(),
        None => PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cargo"),
    }
}

fn is_left_out(name: &str) -> bool {
    let folded = name.to_lowercase();
    ["target", "dist", "node_modules", ".git", ".gitignore", ".svn", ".hg"].contains(&&*folded)
        || folded.starts_with(".env")
        || [".pem", ".key", ".p12", ".pfx"].iter().any(|suffix| folded.ends_with(suffix))
}

fn copy_tree(from: &Path, to: &Path) -> io::Result<usize> {
    fs::create_dir(to)?;
    let mut files = 0;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        if is_left_out(&name.to_string_lossy()) {
            continue;
        }
        let (source, target) = (entry.path(), to.join(&name));
        let kind = entry.file_type()?;
        if kind.is_dir() {
            files += copy_tree(&source, &target)?;
        } else if kind.is_symlink() {
            symlink(fs::read_link(&source)?, &target)?;
        } else if entry.metadata()?.len() <= FILE_BYTES_MAX {
            fs::copy(&source, &target)?;
            files += 1;
        }
    }
    Ok(files)
}

#[test]
fn a_long_walk_on_ten_thousand_files() {
    let program = Program::new(BINARY);
    let workspace = program.workspace();
    copy_crates(&workspace);
    let json = |arguments: &[&str]| program.run(arguments).ok().json();

    let first_tree = fingerprint::of(&workspace);
    let first = json(&["capture", "--session", "walk", "--json"]);
    assert_eq!(first["complete"], true, "{first}");
    assert_eq!(first["counts"]["omitted"], serde_json::json!({}), "{first}");
    assert!(first["counts"]["files_read"].as_u64().unwrap() >= FILES as u64);

    let mut corpus = Corpus::adopt(&workspace, 1).unwrap();
    let edits = corpus.turn(1, 60, EVERYTHING).unwrap();
    assert!(edits.len() >= 60);
    let second_tree = fingerprint::of(&workspace);
    json(&["capture", "--session", "walk", "--json"]);

    let target = format!("walk:{}", first["seq"]);
    program.run(["restore", &target, "--yes", "--session", "walk"]).ok();
    fingerprint::assert_same(&first_tree, &fingerprint::of(&workspace));
    program.run(["undo", "--yes", "--session", "walk"]).ok();
    fingerprint::assert_same(&second_tree, &fingerprint::of(&workspace));
    assert!(!workspace.join(".turnpoint").exists());

    for turn in 2..32 {
        corpus.turn(turn, 5, EVERYTHING).unwrap();
        json(&["capture", "--session", "walk", "--json"]);
    }
    let last_tree = fingerprint::of(&workspace);
    let collect = || {
        let mut collect = program.command(["gc", "--json"]);
        collect.env("TURNPOINT_TEST_CLOCK_SHIFT_SECONDS", "3600");
        run(&mut collect).ok().json()
    };
    let collected = collect();
    assert!(collected["blobs_removed"].as_u64().unwrap() > 0, "{collected}");
    let report = json(&["verify", "--read-data", "--json"]);
    assert_eq!(report["findings"], serde_json::json!([]));

    let into = program.root().join("out");
    program.run(["restore", "latest", "--into", into.to_str().unwrap()]).ok();
    fingerprint::assert_same(&last_tree, &fingerprint::of(&into));

    // What nobody keeps takes no room, in the index either.
    let index = program.store().join("index.db");
    let length = || fs::metadata(&index).unwrap().len();
    let before = length();
    program.run(["prune", "--session", "walk", "--delete", "--yes"]).ok();
    let collected = collect();
    assert!(length() < before / 4, "{} of {before}: {collected}", length());
    assert!(collected["index_bytes_freed"].as_u64().unwrap() >= before - length(), "{collected}");
    let list =
        run(program.other("sqlite3").arg("-readonly").arg(&index).arg("PRAGMA freelist_count"));
    assert_eq!(list.ok().stdout, "0\n");
}
