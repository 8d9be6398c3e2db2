//! What bytes a store holds, wherever they are.

use std::fs;
use std::path::Path;
use std::process::Command;

/// All bytes of the files below a directory, and beside them what `zstd` makes of each frame.
///
/// Of a copy that another process makes: whoever opens the index and closes it again takes away the locks that
/// this process has on it.
pub(crate) fn everything_and_frames(home: &Path) -> (Vec<u8>, Vec<u8>) {
    let copy = copy(home);
    let mut bytes = Vec::new();
    let mut frames = Vec::new();
    let mut directories = vec![copy.path().to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
                continue;
            }
            let content = fs::read(&path).unwrap();
            if content.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
                frames.push(path);
            }
            bytes.extend(content);
        }
    }
    assert!(!frames.is_empty());
    let output = Command::new("zstd").arg("-dcq").args(frames).output().unwrap();
    (bytes, output.stdout)
}

/// A copy of a directory.
pub(crate) fn copy(directory: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    let status = Command::new("cp").arg("-a").arg(directory).arg(copy.path()).status().unwrap();
    assert!(status.success());
    copy
}

/// The names of those of `wanted` whose bytes are somewhere in `bytes`.
pub(crate) fn among(bytes: &[u8], wanted: &[(&'static str, Vec<u8>)]) -> Vec<&'static str> {
    // As text with one character for each byte, which is quicker to search.
    let text = |bytes: &[u8]| bytes.iter().map(|byte| char::from(*byte)).collect::<String>();
    let all = text(bytes);
    let is_there = |wanted: &[u8]| all.contains(&text(wanted));
    wanted.iter().filter(|(_, bytes)| is_there(bytes)).map(|(name, _)| *name).collect()
}
