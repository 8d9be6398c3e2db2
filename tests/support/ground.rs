//! What a run in a work tree of its own must leave as it is.

use std::collections::BTreeMap;
use std::fs;

use crate::support::fingerprint;
use crate::support::program::Program;

/// A checkout: git's own files, what git says of it, and its other files, by what was looked at.
pub(crate) type Ground = BTreeMap<String, String>;

/// The checkout that is the workspace of `program`.
#[track_caller]
pub(crate) fn ground(program: &Program) -> Ground {
    let git = program.workspace().join(".git");
    let mut seen = Ground::new();
    for name in ["config", "index", "HEAD"] {
        let content = fs::read(git.join(name)).unwrap();
        seen.insert(name.to_owned(), blake3::hash(&content).to_string());
    }
    let asked: [&[&str]; 5] = [
        &["--no-optional-locks", "status", "--porcelain", "--untracked-files=all"],
        &["stash", "list"],
        &["for-each-ref", "--exclude=refs/turnpoint", "--exclude=refs/heads/turnpoint"],
        &["rev-parse", "HEAD"],
        &["fsck", "--no-dangling", "--no-progress"],
    ];
    for words in asked {
        seen.insert(words.join(" "), program.git(words));
    }
    for (path, node) in fingerprint::beside(&program.workspace(), &[".git", ".turnpoint"]) {
        seen.insert(format!("./{}", path.display()), format!("{node:?}"));
    }
    seen
}

/// What of it is git's, and stays also where files are changed.
pub(crate) fn of_git(mut ground: Ground) -> Ground {
    ground.retain(|looked_at, _| !looked_at.starts_with("./") && !looked_at.contains("status"));
    ground
}
