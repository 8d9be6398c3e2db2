//! A change to a tree that can be made again and again, so that each peer has the same to take back.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::Outcome;
use crate::corpus::{Corpus, Random};

/// A regular file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct File {
    content: Vec<u8>,
    mode: u32,
}

/// For each path what is there without the change, and with it.
#[derive(Debug, Default)]
pub(crate) struct Patch {
    sides: BTreeMap<String, (Option<File>, Option<File>)>,
}

impl Patch {
    /// `count` files that are close to each other get another content.
    pub(crate) fn modify(corpus: &Corpus, random: &mut Random, count: usize) -> Outcome<Self> {
        let mut patch = Self::default();
        for path in near(corpus, random, count) {
            patch.put_modified(corpus, &path)?;
        }
        Ok(patch)
    }

    /// Of every ten paths one is new, one gone, one moved, and the rest have another content.
    pub(crate) fn mix(corpus: &Corpus, random: &mut Random, count: usize) -> Outcome<Self> {
        let mut patch = Self::default();
        for (number, path) in near(corpus, random, count).into_iter().enumerate() {
            match number % 10 {
                1 => {
                    let new = File { content: b"new\n".to_vec(), mode: 0o644 };
                    patch.sides.insert(format!("{path}.new"), (None, Some(new)));
                }
                4 => {
                    patch.sides.insert(path.clone(), (read(&corpus.root.join(path))?, None));
                }
                7 => {
                    let file = read(&corpus.root.join(&path))?;
                    patch.sides.insert(format!("{path}.moved"), (None, file.clone()));
                    patch.sides.insert(path, (file, None));
                }
                _ => patch.put_modified(corpus, &path)?,
            }
        }
        Ok(patch)
    }

    fn put_modified(&mut self, corpus: &Corpus, path: &str) -> Outcome<()> {
        let before = read(&corpus.root.join(path))?.ok_or(format!("{path} is gone"))?;
        let mut after = before.clone();
        after.content.extend_from_slice(b"// changed\n");
        self.sides.insert(path.to_owned(), (Some(before), Some(after)));
        Ok(())
    }

    pub(crate) fn paths(&self) -> Vec<String> {
        self.sides.keys().cloned().collect()
    }

    /// Makes the change in `root`.
    pub(crate) fn apply(&self, root: &Path) -> Outcome<()> {
        for (path, (_, after)) in &self.sides {
            let path = root.join(path);
            match after {
                None => fs::remove_file(&path)?,
                Some(file) => {
                    fs::write(&path, &file.content)?;
                    fs::set_permissions(&path, fs::Permissions::from_mode(file.mode))?;
                }
            }
        }
        Ok(())
    }

    /// The paths in `root` that are not as they are without the change.
    pub(crate) fn not_taken_back(&self, root: &Path) -> Outcome<Vec<&str>> {
        let mut found = Vec::new();
        for (path, (before, _)) in &self.sides {
            if read(&root.join(path))? != *before {
                found.push(path.as_str());
            }
        }
        Ok(found)
    }
}

/// Files that lie close to each other, as those of a turn do.
fn near(corpus: &Corpus, random: &mut Random, count: usize) -> Vec<String> {
    let usable = |path: &&String| !path.ends_with(".gitignore");
    let start = random.below(corpus.files.len());
    let from_there = corpus.files.iter().skip(start).chain(corpus.files.iter().take(start));
    from_there.filter(usable).step_by(3).take(count).cloned().collect()
}

fn read(path: &Path) -> Outcome<Option<File>> {
    let status = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    if !status.is_file() {
        return Err(format!("{} is no regular file", path.display()).into());
    }
    Ok(Some(File { content: fs::read(path)?, mode: status.permissions().mode() & 0o7777 }))
}
