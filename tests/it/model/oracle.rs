//! What a capture must hold and what a restore must leave, said again in another way than the
//! library says it: by recursion over plain trees, without lists, pages or plans.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use turnpoint::manifest::{Entry, EntryKind, Listed};

use crate::support::fingerprint::{Fingerprint, Kind, Node};

/// Content of a file larger than this is not held in the model.
pub(crate) const FILE_LIMIT_BYTES: u64 = 4096;

/// Whether and why a present path is not in scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    In,
    /// A capture names it with this reason.
    Out(&'static str),
    /// It lies below a directory that is out, and no capture sees it.
    Below,
}

pub(crate) type Classes = BTreeMap<PathBuf, Class>;

/// One line of an ignore file, and the directory of that file.
struct Rule {
    base: PathBuf,
    pattern: String,
}

impl Rule {
    /// git's meaning, for patterns without wildcards, for `*`, and for `*` before a suffix.
    fn matches(&self, path: &Path, is_dir: bool) -> bool {
        let pattern = self.pattern.strip_prefix('!').unwrap_or(&self.pattern);
        let plain = pattern.strip_suffix('/').unwrap_or(pattern);
        if plain.len() != pattern.len() && !is_dir {
            return false;
        }
        if plain.contains('/') {
            let anchored = plain.strip_prefix('/').unwrap_or(plain);
            return path.strip_prefix(&self.base).is_ok_and(|below| below == Path::new(anchored));
        }
        let name = path.file_name().map_or(&b""[..], OsStr::as_bytes);
        match plain.strip_prefix('*') {
            Some(suffix) => name.ends_with(suffix.as_bytes()),
            None => name == plain.as_bytes(),
        }
    }
}

fn is_version_control(name: &OsStr) -> bool {
    let name = name.to_ascii_lowercase();
    name == ".git" || name == ".hg" || name == ".turnpoint"
}

fn is_secret(name: &OsStr) -> bool {
    let name = name.to_ascii_lowercase();
    name.as_bytes().starts_with(b".env") && name != ".env.example"
}

/// What no restore ever saves, and so never replaces.
fn is_never_held(path: &Path, node: &Node) -> bool {
    let name = path.file_name().unwrap_or_default();
    is_version_control(name) || is_secret(name) || matches!(node.kind, Kind::Other { .. })
}

/// Sorts the tree at `root` into what is in scope and what is not.
pub(crate) fn classify(root: &Path, tree: &Fingerprint) -> Classes {
    let mut classes = Classes::new();
    classes.insert(PathBuf::new(), Class::In);
    classify_below(root, tree, Path::new(""), &mut Vec::new(), &mut classes);
    classes
}

fn classify_below(
    root: &Path,
    tree: &Fingerprint,
    directory: &Path,
    rules: &mut Vec<Rule>,
    classes: &mut Classes,
) {
    let before = rules.len();
    let ignore_file = directory.join(".gitignore");
    if matches!(tree.get(&ignore_file), Some(Node { kind: Kind::File { .. }, .. })) {
        let text = std::fs::read_to_string(root.join(&ignore_file)).unwrap();
        let rule = |line: &str| Rule { base: directory.to_owned(), pattern: line.to_owned() };
        rules.extend(text.lines().filter(|line| !line.is_empty()).map(rule));
    }
    for path in children(tree, directory) {
        let class = classify_one(&path, &tree[&path], rules);
        classes.insert(path.clone(), class);
        if !matches!(tree[&path].kind, Kind::Dir) {
            continue;
        }
        if class == Class::In {
            classify_below(root, tree, &path, rules, classes);
        } else {
            for below in descendants(tree, &path) {
                classes.insert(below, Class::Below);
            }
        }
    }
    rules.truncate(before);
}

fn classify_one(path: &Path, node: &Node, rules: &[Rule]) -> Class {
    let name = path.file_name().unwrap_or_default();
    let is_dir = matches!(node.kind, Kind::Dir);
    if is_version_control(name) {
        return Class::Out("excluded");
    }
    if is_secret(name) {
        return Class::Out("secret");
    }
    if is_dir && name == "target" {
        return Class::Out("excluded");
    }
    let last = rules.iter().rev().find(|rule| rule.matches(path, is_dir));
    if last.is_some_and(|rule| !rule.pattern.starts_with('!')) {
        return Class::Out("ignored");
    }
    match node.kind {
        Kind::File { size, .. } if size > FILE_LIMIT_BYTES => Class::Out("over-file-limit"),
        Kind::Other { .. } => Class::Out("special"),
        _ => Class::In,
    }
}

/// The names directly in a directory.
pub(crate) fn children<T>(tree: &BTreeMap<PathBuf, T>, directory: &Path) -> Vec<PathBuf> {
    let below = tree.range(directory.to_owned()..).map(|(path, _)| path);
    below
        .take_while(|path| path.starts_with(directory))
        .filter(|path| *path != directory && path.parent() == Some(directory))
        .cloned()
        .collect()
}

/// Everything below a path, without it.
pub(crate) fn descendants<T>(tree: &BTreeMap<PathBuf, T>, above: &Path) -> Vec<PathBuf> {
    let below = tree.range(above.to_owned()..).map(|(path, _)| path);
    below
        .take_while(|path| path.starts_with(above))
        .filter(|path| *path != above)
        .cloned()
        .collect()
}

/// What a checkpoint says of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Then {
    Held(Node),
    Dir { mode: u32, whole: bool },
    Omitted(String),
}

pub(crate) type Thens = BTreeMap<PathBuf, Then>;

/// The entries of a checkpoint, as the library gives them.
pub(crate) fn thens(entries: &[Entry]) -> Thens {
    entries.iter().map(|entry| (entry.path.as_os().to_owned(), then(entry))).collect()
}

fn then(entry: &Entry) -> Then {
    let mode = entry.mode.bits();
    let kind = match &entry.kind {
        EntryKind::File { size, hash, .. } => {
            let content = blake3::Hash::from_hex(hash.to_string()).unwrap();
            Kind::File { size: *size, content }
        }
        EntryKind::Symlink { target } => {
            Kind::Link { target: PathBuf::from(OsStr::from_bytes(target)) }
        }
        EntryKind::Dir { listed } => return Then::Dir { mode, whole: *listed == Listed::Whole },
        EntryKind::Omitted { reason, rest } => {
            assert_eq!(*rest, 0);
            return Then::Omitted(reason.to_string());
        }
        EntryKind::Absent => panic!("{entry:?}"),
    };
    Then::Held(Node { kind, mode, stamps: None })
}

/// What a capture of this tree must say.
pub(crate) fn captured(tree: &Fingerprint, classes: &Classes) -> Thens {
    let mut thens = Thens::new();
    for (path, class) in classes {
        let node = &tree[path];
        let then = match class {
            Class::Below => continue,
            Class::Out(reason) => Then::Omitted((*reason).to_owned()),
            Class::In if matches!(node.kind, Kind::Dir) => {
                Then::Dir { mode: node.mode, whole: true }
            }
            Class::In => Then::Held(Node { stamps: None, ..node.clone() }),
        };
        thens.insert(path.clone(), then);
    }
    thens
}

/// What a checkpoint looks like restored into an empty directory.
pub(crate) fn restored_into(thens: &Thens) -> Fingerprint {
    let node = |then: &Then| match then {
        Then::Held(node) => Some(node.clone()),
        Then::Dir { mode, .. } => Some(Node { kind: Kind::Dir, mode: *mode, stamps: None }),
        Then::Omitted(_) => None,
    };
    thens.iter().filter_map(|(path, then)| Some((path.clone(), node(then)?))).collect()
}

/// Whether two nodes are the same but for stamps.
pub(crate) fn is_same(a: &Node, b: &Node) -> bool {
    a.kind == b.kind && a.mode == b.mode
}

/// What the workspace must be after a restore: a node with stamps is one that must not have been
/// touched. `only` are the paths that a checkpoint of given paths speaks of.
pub(crate) fn restored(
    before: &Fingerprint,
    classes: &Classes,
    thens: &Thens,
    selected: &[PathBuf],
    only: Option<&[PathBuf]>,
) -> Fingerprint {
    let mut restoring = Restoring {
        before,
        classes,
        thens,
        selected,
        only,
        kept_inodes: HashSet::new(),
        after: Fingerprint::new(),
    };
    restoring.kept_inodes = restoring.inodes_of_targets();
    restoring.visit(Path::new(""));
    restoring.after
}

struct Restoring<'a> {
    before: &'a Fingerprint,
    classes: &'a Classes,
    thens: &'a Thens,
    selected: &'a [PathBuf],
    only: Option<&'a [PathBuf]>,
    /// Of present files at paths that the target has.
    kept_inodes: HashSet<u64>,
    after: Fingerprint,
}

impl Restoring<'_> {
    fn inodes_of_targets(&self) -> HashSet<u64> {
        let mut inodes = HashSet::new();
        for (path, then) in self.thens {
            let Some(Node { kind: Kind::File { .. }, stamps, .. }) = self.before.get(path) else {
                continue;
            };
            let is_in = self.classes[path] == Class::In;
            let is_wanted = match then {
                Then::Omitted(_) => false,
                Then::Held(_) | Then::Dir { .. } => is_in || self.leads_to_selected(path),
            };
            if is_wanted {
                inodes.extend(stamps.map(|(inode, _, _)| inode));
            }
        }
        inodes
    }

    fn is_selected(&self, path: &Path) -> bool {
        if self.only.is_some_and(|only| !only.iter().any(|it| it == path)) {
            return false;
        }
        self.selected.is_empty() || self.selected.iter().any(|above| path.starts_with(above))
    }

    fn leads_to_selected(&self, path: &Path) -> bool {
        let named = self.only.unwrap_or(self.selected);
        let mut below = named.iter().filter(|below| below.starts_with(path));
        self.is_selected(path) || below.any(|below| self.only.is_none() || self.is_selected(below))
    }

    /// Whether something selected, which the target holds, lies at or below the path.
    fn leads_to_wanted(&self, path: &Path) -> bool {
        let is_wanted = |path: &PathBuf| {
            self.is_selected(path) && !matches!(self.thens[path], Then::Omitted(_))
        };
        is_wanted(&path.to_owned()) || descendants(self.thens, path).iter().any(is_wanted)
    }

    fn put(&mut self, path: &Path, kind: Kind, mode: u32) {
        self.after.insert(path.to_owned(), Node { kind, mode, stamps: None });
    }

    fn keep(&mut self, path: &Path) {
        self.after.insert(path.to_owned(), self.before[path].clone());
    }

    fn keep_all(&mut self, path: &Path) {
        if self.before.contains_key(path) {
            self.keep(path);
            for below in descendants(self.before, path) {
                self.keep(&below);
            }
        }
    }

    /// A path that the target names.
    fn visit(&mut self, path: &Path) {
        match &self.thens[path] {
            Then::Omitted(_) => self.keep_all(path),
            Then::Held(then) => self.visit_held(path, then),
            Then::Dir { mode, whole } => self.visit_dir(path, *mode, *whole),
        }
    }

    fn visit_held(&mut self, path: &Path, then: &Node) {
        let may_replace = match self.before.get(path) {
            None => true,
            Some(now) if is_same(now, then) => false,
            Some(now) if is_never_held(path, now) => false,
            Some(Node { kind: Kind::Dir, .. }) => {
                let below = descendants(self.before, path);
                !below.iter().any(|below| is_never_held(below, &self.before[below]))
            }
            Some(_) => true,
        };
        if self.is_selected(path) && may_replace {
            self.put(path, then.kind.clone(), then.mode);
        } else {
            self.keep_all(path);
        }
    }

    fn visit_dir(&mut self, path: &Path, mode: u32, whole: bool) {
        let now = self.before.get(path);
        let present_mode = match now {
            None if self.leads_to_wanted(path) => None,
            None => return,
            Some(now) if is_never_held(path, now) => return self.keep_all(path),
            Some(Node { kind: Kind::Dir, mode, .. }) => Some(*mode),
            Some(_) if self.is_selected(path) => None,
            Some(_) => return self.keep_all(path),
        };
        let mode = if self.is_selected(path) { mode } else { present_mode.unwrap_or(mode) };
        self.put(path, Kind::Dir, mode);
        for child in children(self.thens, path) {
            self.visit(&child);
        }
        if present_mode.is_none() {
            return;
        }
        for child in children(self.before, path) {
            if self.thens.contains_key(&child) {
                continue;
            }
            // Of absence a checkpoint of given paths is evidence at these alone.
            if whole || self.only.is_some() {
                self.visit_unnamed(&child);
            } else {
                self.keep_all(&child);
            }
        }
    }

    /// A path that the target shows not to have been there. Returns whether it goes.
    fn visit_unnamed(&mut self, path: &Path) -> bool {
        if self.classes[path] != Class::In {
            self.keep_all(path);
            return false;
        }
        let node = &self.before[path];
        let mut goes = self.is_selected(path);
        if let Kind::Dir = node.kind {
            for child in children(self.before, path) {
                goes &= self.visit_unnamed(&child);
            }
        } else if let (Kind::File { .. }, Some((inode, _, _))) = (&node.kind, node.stamps) {
            goes &= !self.kept_inodes.contains(&inode);
        }
        if !goes {
            self.keep(path);
        }
        goes
    }
}

/// What differs between what must be and what is; empty if nothing does. Directories have no stamps
/// to compare, since they change with what is in them; nor have change times, which a hard link's
/// other name changes.
pub(crate) fn violations(expected: &Fingerprint, found: &Fingerprint) -> Vec<String> {
    let mut problems = Vec::new();
    for (path, node) in expected {
        match found.get(path) {
            None => problems.push(format!("{path:?} is gone; it should be {node:?}")),
            Some(now) if !is_same(now, node) => {
                problems.push(format!("{path:?} is {now:?}; it should be {node:?}"));
            }
            Some(now) => {
                let stamps = |node: &Node| node.stamps.map(|(inode, mtime, _)| (inode, mtime));
                let is_dir = matches!(node.kind, Kind::Dir);
                if !is_dir && node.stamps.is_some() && stamps(now) != stamps(node) {
                    problems.push(format!("{path:?} was touched: {node:?}, now {now:?}"));
                }
            }
        }
    }
    let extra = found.keys().filter(|path| !expected.contains_key(*path));
    problems.extend(extra.map(|path| format!("{path:?} is there and should not be")));
    problems
}
