//! Git's ignore rules: which files they come from, in which order they count, what they say.
//!
//! A rule counts below the directory of its file. The file of the deepest directory has the first
//! word, then those above it up to the top of the repository, then `info/exclude`, then the user's
//! own; within a file the last line that matches. A nested repository begins anew, as git there sees
//! nothing of the outer one.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder, gitconfig_excludes_path};

use crate::disk::{self, FileStat};
use crate::error::{Error, Result};
use crate::git::Repository;
use crate::hash::{BlobHash, Digest};
use crate::limits;
use crate::manifest::IgnoreFile;
use crate::path::RelPath;
use crate::walk::locked;
use crate::walk::pattern::translate;

/// The rules that hold in one directory: those of the nearest ignore file, and all that count less.
pub(super) type Rules = Option<Arc<Level>>;

/// The rules of one file.
#[derive(Debug)]
pub(super) struct Level {
    matcher: Arc<Gitignore>,
    /// How many bytes of a path lead to the directory for which the file speaks.
    base: usize,
    above: Rules,
}

/// Whether the rules leave out `path`, counted from where the bases are. Only for a path whose
/// directories they do not leave out: git never looks into one that is.
pub(super) fn ignores(rules: &Rules, path: &[u8], is_dir: bool) -> bool {
    let mut next = rules;
    while let Some(level) = next {
        let below = path.get(level.base..).unwrap_or_default();
        match level.matcher.matched(Path::new(OsStr::from_bytes(below)), is_dir) {
            Match::Ignore(_) => return true,
            Match::Whitelist(_) => return false,
            Match::None => next = &level.above,
        }
    }
    false
}

/// Reads ignore files and remembers which were read.
#[derive(Debug, Default)]
pub(super) struct RuleFiles {
    /// Whether any is read at all.
    are_obeyed: bool,
    /// The user's own rules, which count in every repository.
    global: Option<Arc<Gitignore>>,
    /// Equal files are common in large trees, and a matcher knows nothing of where it counts.
    compiled: Mutex<HashMap<BlobHash, Option<Arc<Gitignore>>>>,
    read: Mutex<FilesRead>,
}

/// Which ignore files were read, and which not.
#[derive(Debug, Default)]
struct FilesRead {
    inside: Vec<InsideFile>,
    outside: Vec<IgnoreFile>,
    skipped: Vec<(PathBuf, String)>,
    /// That the system had nothing left to read one with.
    lack: Option<Error>,
}

/// An ignore file in the tree.
#[derive(Debug, Clone)]
pub(super) struct InsideFile {
    pub(super) path: RelPath,
    pub(super) hash: BlobHash,
    /// From before it was read.
    pub(super) stat: FileStat,
}

/// What a walk reports of the ignore files.
#[derive(Debug)]
pub(super) struct RuleReport {
    /// In order of path.
    pub(super) inside: Vec<InsideFile>,
    pub(super) outside: Vec<IgnoreFile>,
    pub(super) digest: Digest,
    pub(super) skipped: Vec<(PathBuf, String)>,
}

impl RuleFiles {
    /// With the user's own rules: `core.excludesFile` of the user's or system's configuration, else
    /// `git/ignore` in the XDG configuration directory. Where they are not obeyed there are none.
    pub(super) fn new(are_obeyed: bool) -> Self {
        let mut files = Self { are_obeyed, ..Self::default() };
        let path = gitconfig_excludes_path().filter(|path| path.is_absolute());
        files.global = path.and_then(|path| files.outside(&path));
        files
    }

    /// The rules that hold in a workspace's root, and how many bytes lead from the place that their
    /// bases count from to the workspace: the path of the workspace in its repository, with a slash.
    ///
    /// Where the rules above the workspace leave out the workspace itself, they do not count: whoever
    /// works in a directory that another repository ignores does not want an empty checkpoint.
    pub(super) fn of_root(
        &self,
        root_path: &Path,
        repository: Option<&Repository>,
    ) -> (Vec<u8>, Rules) {
        let Some(repository) = repository else { return (Vec::new(), self.user(0)) };
        let Ok(below_top) = root_path.strip_prefix(&repository.top) else {
            return (Vec::new(), self.user(0));
        };
        let mut prefix = Vec::new();
        let mut rules = self.of_top(0, repository);
        let mut directory = repository.top.clone();
        for component in below_top.components() {
            if let Some(matcher) = self.nofollow(&directory.join(".gitignore")) {
                rules = level(matcher, prefix.len(), rules);
            }
            directory.push(component);
            prefix.extend_from_slice(component.as_os_str().as_bytes());
            let ignored = ignores(&rules, &prefix, true);
            prefix.push(b'/');
            if ignored {
                prefix = below_top.as_os_str().as_bytes().to_vec();
                prefix.push(b'/');
                let rules = self.user(prefix.len());
                return (prefix, rules);
            }
        }
        (prefix, rules)
    }

    /// The rules that hold at a repository's top before its own ignore file.
    pub(super) fn of_top(&self, base: usize, repository: &Repository) -> Rules {
        let rules = self.user(base);
        match self.outside(&repository.common_dir.join("info/exclude")) {
            Some(matcher) => level(matcher, base, rules),
            None => rules,
        }
    }

    fn user(&self, base: usize) -> Rules {
        self.global.as_ref().and_then(|matcher| level(Arc::clone(matcher), base, None))
    }

    /// Adds the rules of the ignore file of the directory `base` bytes long, whose content `read`
    /// is.
    pub(super) fn inside(
        &self,
        path: RelPath,
        stat: FileStat,
        root_path: &Path,
        read: Result<Option<Vec<u8>>>,
        base: usize,
        above: Rules,
    ) -> Rules {
        if !self.are_obeyed {
            return above;
        }
        let full = root_path.join(path.as_os());
        let Some(bytes) = self.taken(&full, read) else { return above };
        let hash = BlobHash::of(&bytes);
        self.known(path, hash, stat);
        match self.compiled(&full, hash, &bytes) {
            Some(matcher) => level(matcher, base, above),
            None => above,
        }
    }

    /// Remembers an ignore file of the tree that counts, and whose content is known.
    pub(super) fn known(&self, path: RelPath, hash: BlobHash, stat: FileStat) {
        locked(&self.read).inside.push(InsideFile { path, hash, stat });
    }

    /// An ignore file that may be a symlink: git follows those of the user and of the repository's
    /// own directory, not those of the work tree.
    fn outside(&self, path: &Path) -> Option<Arc<Gitignore>> {
        self.nofollow(&path.canonicalize().ok()?)
    }

    fn nofollow(&self, path: &Path) -> Option<Arc<Gitignore>> {
        if !self.are_obeyed {
            return None;
        }
        let bytes = self.taken(path, disk::read_small(path, limits::IGNORE_FILE_BYTES_MAX))?;
        let hash = BlobHash::of(&bytes);
        locked(&self.read).outside.push(IgnoreFile { path: path.to_owned(), hash });
        self.compiled(path, hash, &bytes)
    }

    /// What was read, unless there was nothing to obey; a file that could not be read is remembered.
    fn taken(&self, path: &Path, read: Result<Option<Vec<u8>>>) -> Option<Vec<u8>> {
        read.unwrap_or_else(|error| {
            let reason = std::error::Error::source(&error).map(ToString::to_string);
            self.skip(path, reason.unwrap_or_else(|| error.to_string()));
            if error.is_lack() {
                locked(&self.read).lack.get_or_insert(error);
            }
            None
        })
    }

    /// Why the walk cannot go by the rules that are there, if it cannot.
    pub(super) fn take_lack(&self) -> Option<Error> {
        locked(&self.read).lack.take()
    }

    fn skip(&self, path: &Path, reason: String) {
        locked(&self.read).skipped.push((path.to_owned(), reason));
    }

    fn compiled(&self, path: &Path, hash: BlobHash, bytes: &[u8]) -> Option<Arc<Gitignore>> {
        if let Some(known) = locked(&self.compiled).get(&hash) {
            return known.clone();
        }
        let matcher = match compile(bytes) {
            Ok(matcher) => (!matcher.is_empty()).then(|| Arc::new(matcher)),
            Err(error) => {
                self.skip(path, error.to_string());
                None
            }
        };
        locked(&self.compiled).insert(hash, matcher.clone());
        matcher
    }

    /// What was read so far. The digest covers path and content of every file that counted.
    pub(super) fn report(&self) -> RuleReport {
        let mut read = locked(&self.read);
        read.inside.sort_by(|a, b| (&a.path, &a.hash).cmp(&(&b.path, &b.hash)));
        read.inside.dedup_by(|a, b| (&a.path, &a.hash) == (&b.path, &b.hash));
        read.outside.sort_by(|a, b| a.path.cmp(&b.path));
        read.outside.dedup();
        let mut text = Vec::new();
        let outside =
            read.outside.iter().map(|file| (file.path.as_os_str().as_bytes(), &file.hash));
        let inside = read.inside.iter().map(|file| (file.path.as_bytes(), &file.hash));
        for (path, hash) in outside.chain(inside) {
            text.extend_from_slice(path);
            text.push(0);
            text.extend_from_slice(hash.as_bytes());
        }
        RuleReport {
            inside: read.inside.clone(),
            outside: read.outside.clone(),
            digest: Digest::of(&text),
            skipped: std::mem::take(&mut read.skipped),
        }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "it makes what every caller keeps")]
fn level(matcher: Arc<Gitignore>, base: usize, above: Rules) -> Rules {
    Some(Arc::new(Level { matcher, base, above }))
}

/// Reads the lines of an ignore file as git does.
fn compile(bytes: &[u8]) -> std::result::Result<Gitignore, ignore::Error> {
    let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
    let mut builder = GitignoreBuilder::new("");
    for line in bytes.split(|&byte| byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        for line in translate(line) {
            builder.add_line(None, &line)?;
        }
    }
    builder.build()
}
