//! Small trees written by hand, for tests that need to see every file.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// What to put at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Node {
    /// A regular file, mode 0644.
    File(Vec<u8>),
    /// A regular file, mode 0755.
    Executable(Vec<u8>),
    /// A symbolic link with this text.
    Link(String),
    /// A directory, which may stay empty.
    Dir,
}

/// A file with this content.
pub(crate) fn file(content: impl AsRef<[u8]>) -> Node {
    Node::File(content.as_ref().to_vec())
}

/// An executable file with this content.
pub(crate) fn executable(content: impl AsRef<[u8]>) -> Node {
    Node::Executable(content.as_ref().to_vec())
}

/// A symbolic link.
pub(crate) fn link(target: &str) -> Node {
    Node::Link(target.to_owned())
}

/// An empty directory.
pub(crate) fn dir() -> Node {
    Node::Dir
}

/// Puts `nodes` below `root`, making directories as needed. Whatever else is there stays; a file or
/// link that is in the way is replaced.
#[track_caller]
pub(crate) fn build<P: AsRef<Path>>(root: &Path, nodes: impl IntoIterator<Item = (P, Node)>) {
    for (path, node) in nodes {
        put(&root.join(path), &node).unwrap();
    }
}

fn put(path: &Path, node: &Node) -> std::io::Result<()> {
    if let Node::Dir = node {
        fs::create_dir_all(path)?;
        return fs::set_permissions(path, fs::Permissions::from_mode(0o755));
    }
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    if path.symlink_metadata().is_ok() {
        fs::remove_file(path)?;
    }
    let (content, mode) = match node {
        Node::File(content) => (content, 0o644),
        Node::Executable(content) => (content, 0o755),
        Node::Link(target) => return symlink(target, path),
        Node::Dir => return Ok(()),
    };
    fs::write(path, content)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}
