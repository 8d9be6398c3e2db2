//! What a tree looks like, seen with nothing but `std::fs`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Every name below a directory, the directory itself as the empty path.
pub(crate) type Fingerprint = BTreeMap<PathBuf, Node>;

/// What one name is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) kind: Kind,
    /// The 07777 bits.
    pub(crate) mode: u32,
    /// Inode, modification and change time: only where a test asks whether something was touched.
    pub(crate) stamps: Option<(u64, i128, i128)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    File { size: u64, content: blake3::Hash },
    Link { target: PathBuf },
    Dir,
    Other { st_mode: u32 },
}

/// Kind, mode, content and link text of everything below `root`.
#[track_caller]
pub(crate) fn of(root: &Path) -> Fingerprint {
    take(root, false).unwrap()
}

/// As [`of`], with inodes and times: equal only if nothing was written to, not even the same bytes.
#[track_caller]
pub(crate) fn with_stamps(root: &Path) -> Fingerprint {
    take(root, true).unwrap()
}

/// As [`of`], but for `names` in `root`, which nobody looks into.
#[track_caller]
pub(crate) fn beside(root: &Path, names: &[&str]) -> Fingerprint {
    let mut found = Fingerprint::new();
    for entry in fs::read_dir(root).unwrap() {
        let name = entry.unwrap().file_name();
        if !names.iter().any(|other| name == *other) {
            visit(root, name.into(), false, &mut found).unwrap();
        }
    }
    found
}

fn take(root: &Path, stamps: bool) -> io::Result<Fingerprint> {
    let mut found = Fingerprint::new();
    visit(root, PathBuf::new(), stamps, &mut found)?;
    Ok(found)
}

fn visit(root: &Path, relative: PathBuf, stamps: bool, found: &mut Fingerprint) -> io::Result<()> {
    let path = root.join(&relative);
    let status = fs::symlink_metadata(&path)?;
    let kind = if status.is_dir() {
        for name in fs::read_dir(&path)? {
            visit(root, relative.join(name?.file_name()), stamps, found)?;
        }
        Kind::Dir
    } else if status.is_symlink() {
        Kind::Link { target: fs::read_link(&path)? }
    } else if status.is_file() {
        Kind::File { size: status.len(), content: blake3::hash(&fs::read(&path)?) }
    } else {
        Kind::Other { st_mode: status.mode() }
    };
    let ns = |seconds: i64, ns: i64| i128::from(seconds) * 1_000_000_000 + i128::from(ns);
    let stamps = stamps.then(|| {
        let modified = ns(status.mtime(), status.mtime_nsec());
        (status.ino(), modified, ns(status.ctime(), status.ctime_nsec()))
    });
    found.insert(relative, Node { kind, mode: status.mode() & 0o7777, stamps });
    Ok(())
}

/// The part of a fingerprint that is not at or below one of `paths`.
pub(crate) fn without(fingerprint: &Fingerprint, paths: &[&str]) -> Fingerprint {
    let outside = |path: &Path| !paths.iter().any(|above| path.starts_with(above));
    fingerprint
        .iter()
        .filter(|(path, _)| outside(path))
        .map(|(path, node)| (path.clone(), node.clone()))
        .collect()
}

/// One line for each path that differs; empty if none does.
pub(crate) fn differences(before: &Fingerprint, after: &Fingerprint) -> String {
    let mut lines = String::new();
    let paths: std::collections::BTreeSet<_> = before.keys().chain(after.keys()).collect();
    for path in paths {
        let (old, new) = (before.get(path), after.get(path));
        if old != new {
            let shown = |node: Option<&Node>| node.map_or("nothing".to_owned(), show);
            writeln!(lines, "{}: {} -> {}", path.display(), shown(old), shown(new)).unwrap();
        }
    }
    lines
}

fn show(node: &Node) -> String {
    let kind = match &node.kind {
        Kind::File { size, content } => format!("file of {size} bytes {}", content.to_hex()),
        Kind::Link { target } => format!("link to {}", target.display()),
        Kind::Dir => "directory".to_owned(),
        Kind::Other { st_mode } => format!("special {st_mode:o}"),
    };
    match node.stamps {
        None => format!("{kind} {:04o}", node.mode),
        Some(stamps) => format!("{kind} {:04o} {stamps:?}", node.mode),
    }
}

/// Fails with one line for each path that differs.
#[track_caller]
pub(crate) fn assert_same(before: &Fingerprint, after: &Fingerprint) {
    let lines = differences(before, after);
    assert!(lines.is_empty(), "the trees differ:\n{lines}");
}
