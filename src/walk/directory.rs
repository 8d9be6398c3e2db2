//! One directory at a time: which names it has, what each is, and whether it is held.
//!
//! Everything here goes through directory handles opened beneath the root. Nothing is followed,
//! and nothing is opened but directories, ignore files and `format.json`.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;

use rustix::fs::{AtFlags, StatxAttributes, StatxFlags};
use serde::Deserialize;

use crate::disk::{Dir, FileKind, FileStat, file_stat};
use crate::error::{Error, IoContext, Result};
use crate::git::Repository;
use crate::hash::{BlobHash, Digest};
use crate::limits;
use crate::manifest::{Listed, OmitReason};
use crate::path::RelPath;
use crate::settings::{ScopeSettings, is_version_control};
use crate::walk::known::{KnownIgnoreFile, KnownRules, Stamps};
use crate::walk::rules::{RuleFiles, Rules, ignores};
use crate::walk::tracked::Job;
use crate::walk::{InodeId, Observed, What, locked};

/// How often a name that changes its kind while it is looked at is looked at again.
const LOOKS_MAX: u32 = 16;

/// Which of the reasons to leave a name out count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Policy {
    /// All.
    Scope,
    /// All but exclusions and ignore rules: git tracks the path.
    Tracked,
    /// Only those that no one can lift: version control, stores, secrets, mounts.
    Everything,
}

/// A directory that is to be entered: its name and what it was when its parent was visited.
pub(super) type Child = (Box<[u8]>, FileStat);

/// How the visit of a directory ended.
#[derive(Debug)]
pub(super) enum Visit {
    /// Its names were looked at; these are to be entered.
    Entered { rules: Rules, children: Vec<Child> },
    /// It is accounted for and has nothing to enter.
    Closed,
    /// There is no such directory any more, or another one.
    Gone,
    /// It cannot be listed.
    Failed(OmitReason),
}

/// What a name turned out to be.
#[derive(Debug)]
pub(super) enum Seen {
    /// It is accounted for.
    Leaf(Observed),
    /// It is a directory in scope.
    Directory(FileStat),
    /// It is not there.
    Gone,
}

/// What the visits have found so far, in no order.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) batches: Vec<Vec<Observed>>,
    /// Paths that still have to be looked at, one by one.
    pub(super) unsettled: Vec<RelPath>,
    /// Directories some of whose names could not be accounted for.
    pub(super) unfinished: Vec<RelPath>,
    /// Directories that changed at each look.
    pub(super) restless: BTreeSet<RelPath>,
    pub(super) nested: BTreeSet<RelPath>,
    /// A name was gone when it was looked at: it may be somewhere else.
    pub(super) missed: bool,
    /// Something may have been moved past a walk by hints.
    pub(super) overtaken: bool,
    /// A directory has other rules than those by which what is below it was judged.
    pub(super) rules_moved: bool,
    /// The system had nothing left to look with: what was not seen may be there, and whole.
    pub(super) lack: Option<Error>,
    /// The rules of each directory that adds some to its parent's, and where it has them from.
    rules: HashMap<RelPath, (Rules, OwnRules)>,
}

/// Where a directory has rules from that those above it do not have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct OwnRules {
    /// It is the top of a repository.
    pub(super) repository: bool,
    /// It has an ignore file.
    pub(super) ignore_file: bool,
}

/// A workspace while it is walked, shared by all threads.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) root: Dir,
    pub(super) root_path: PathBuf,
    pub(super) root_stat: FileStat,
    /// When the walk began, by the clock that stamps files.
    pub(super) start_ns: i64,
    pub(super) settings: ScopeSettings,
    pub(super) stores: Vec<InodeId>,
    /// Where something is mounted, as far as the kernel says.
    pub(super) mounts: HashSet<RelPath>,
    /// The path of the workspace in its repository, with a slash at the end; empty where it is the
    /// top. Bases of rules count from there.
    pub(super) prefix: Vec<u8>,
    pub(super) root_rules: Rules,
    pub(super) rule_files: RuleFiles,
    /// Rules of an earlier walk that hold and were not read yet in this one.
    pub(super) unread_rules: Mutex<Option<KnownRules>>,
    pub(super) jobs: Sender<Job>,
    pub(super) found: Mutex<Found>,
    pub(super) cancelled: AtomicBool,
}

/// The one field by which a store is known.
#[derive(Deserialize)]
struct StoreFormat {
    #[serde(rename = "turnpoint_store")]
    _layout: u64,
}

/// Names of a directory, as far as they are known before it is opened.
#[derive(Debug, Clone, Copy)]
pub(super) struct Listing<'a> {
    pub(super) names: &'a [&'a [u8]],
    pub(super) is_whole: bool,
}

impl Listing<'_> {
    /// Nothing is known: the directory is listed through its handle.
    pub(super) const UNKNOWN: Self = Self { names: &[], is_whole: false };
}

impl Tree {
    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Opens `path`, lists it unless `listing` is of exactly that directory in exactly that state,
    /// and accounts for all its names but the directories to enter.
    ///
    /// `listing` was made by path, so it may be of something else: a directory that was swapped for
    /// another, or a symlink out of the workspace, between two looks. It is believed only if the
    /// directory opened beneath the root has the inode and the stamps of `expected`, which its
    /// parent's visit saw before the listing was made.
    pub(super) fn visit(
        &self,
        path: &RelPath,
        expected: &FileStat,
        listing: Listing<'_>,
        above: &Rules,
        policy: Policy,
    ) -> Visit {
        let (dir, stat) = match self.open(path) {
            Ok(Some(opened)) => opened,
            Ok(None) => return Visit::Gone,
            Err(reason) => return Visit::Failed(reason),
        };
        if !stat.is_same_inode(expected) {
            return Visit::Gone;
        }
        let stamps = |stat: &FileStat| (stat.mtime_ns, stat.ctime_ns);
        let is_same = stamps(&stat) == stamps(expected);
        let listing = if is_same { listing } else { Listing { is_whole: false, ..listing } };
        self.visit_opened(&dir, stat, path, listing, above, policy)
    }

    /// The directory at `path` and what it is; `None` where there is no directory.
    pub(super) fn open(&self, path: &RelPath) -> Result<Option<(Dir, FileStat)>, OmitReason> {
        let Some(dir) = self.root.try_open_dir(path).map_err(|error| self.reason_of(error))? else {
            return Ok(None);
        };
        let stat = dir.stat_self().map_err(|error| self.reason_of(error))?;
        Ok(Some((dir, stat)))
    }

    /// As [`Tree::visit`], for a directory that is open; what `stat` says of it was seen before it was
    /// listed.
    pub(super) fn visit_opened(
        &self,
        dir: &Dir,
        stat: FileStat,
        path: &RelPath,
        listing: Listing<'_>,
        above: &Rules,
        policy: Policy,
    ) -> Visit {
        let own_names;
        let mut names: Vec<&[u8]>;
        let mut is_whole = true;
        if listing.is_whole {
            names = listing.names.to_vec();
        } else {
            match dir.names() {
                Ok(listed) => {
                    self.note_change(dir, &stat);
                    own_names = listed;
                    names = own_names.iter().map(Vec::as_slice).collect();
                }
                Err(error) if listing.names.is_empty() => {
                    return Visit::Failed(self.reason_of(error));
                }
                Err(error) => {
                    self.note_lack(error);
                    names = listing.names.to_vec();
                    is_whole = false;
                }
            }
        }
        names.sort_unstable();
        // One that is replaced while it is listed may be given twice.
        names.dedup();
        if names.binary_search(&&b"format.json"[..]).is_ok() && self.is_store(dir) {
            self.push(vec![omitted(path.clone(), stat, OmitReason::Store)]);
            return Visit::Closed;
        }
        let rules = self.rules_in(dir, path, &names, above);
        let mut visitor = Visitor { tree: self, dir, path, rules: &rules, policy };
        let children = visitor.visit(&names, stat, is_whole);
        Visit::Entered { rules, children }
    }

    /// Notes where a directory has changed since `stat`, which was taken before it was listed: what was
    /// moved away in between, to one that had been listed by then, is in neither list, and neither
    /// has stamps that tell.
    pub(super) fn note_change(&self, dir: &Dir, stat: &FileStat) {
        let is_as_it_was = dir.stat_self().is_ok_and(|now| Stamps::of(&now) == Stamps::of(stat));
        if !is_as_it_was {
            locked(&self.found).missed = true;
        }
    }

    /// The rules in the directory `path` with these names, whose parent's are `above`.
    fn rules_in(&self, dir: &Dir, path: &RelPath, names: &[&[u8]], above: &Rules) -> Rules {
        let has = |name: &[u8]| names.binary_search(&name).is_ok();
        // The root's own repository was found before the walk.
        let is_inner = !path.is_root() && has(b".git");
        let repository = is_inner.then(|| Repository::at(&self.root_path.join(path.as_os())));
        let repository = repository.flatten();
        if let Some(repository) = &repository {
            self.found_repository(path, repository);
        }
        self.add_rules(dir, path, above, repository.as_ref(), has(b".gitignore"))
    }

    /// Has git asked about a repository below the root, once.
    pub(super) fn found_repository(&self, path: &RelPath, repository: &Repository) {
        let mut found = locked(&self.found);
        let is_new = found.nested.insert(path.clone());
        if is_new && found.nested.len() <= limits::NESTED_REPOSITORIES_MAX {
            // Nobody listens any more when a restore looks again after the walk.
            drop(self.jobs.send(Job::Ask(path.clone(), repository.clone())));
        }
    }

    /// Adds the rules of the directory `path` itself to those above it.
    pub(super) fn add_rules(
        &self,
        dir: &Dir,
        path: &RelPath,
        above: &Rules,
        repository: Option<&Repository>,
        has_ignore_file: bool,
    ) -> Rules {
        let base = match path.as_bytes().len() {
            0 => self.prefix.len(),
            length => self.prefix.len() + length + 1,
        };
        let mut rules =
            repository.map_or_else(|| above.clone(), |top| self.rule_files.of_top(base, top));
        let mut own = OwnRules { repository: repository.is_some(), ignore_file: false };
        if has_ignore_file
            && let Ok(file) = path.join(b".gitignore")
            && let Some(stat) = self.unless_lacking(dir.stat(b".gitignore"))
            // git does not follow a symlink here either.
            && stat.kind == FileKind::File
        {
            let read = read_in(dir, b".gitignore", limits::IGNORE_FILE_BYTES_MAX);
            rules = self.rule_files.inside(file, stat, &self.root_path, read, base, rules);
            own.ignore_file = true;
        }
        if own != OwnRules::default() {
            locked(&self.found).rules.insert(path.clone(), (rules.clone(), own));
        }
        rules
    }

    /// Where the directory `path`, which was visited, has rules of its own from.
    pub(super) fn own_rules(&self, path: &RelPath) -> OwnRules {
        locked(&self.found).rules.get(path).map(|(_, own)| *own).unwrap_or_default()
    }

    pub(super) fn forget_rules(&self, path: &RelPath) {
        locked(&self.found).rules.remove(path);
    }

    /// The hash of an ignore file's content and its stat from before it was read; it is read only if
    /// its stamps do not vouch for it.
    pub(super) fn ignore_file(&self, known: &KnownIgnoreFile) -> Option<(BlobHash, FileStat)> {
        let dir = self.root.try_open_dir(&known.path.parent()?).ok()??;
        let stat = dir.stat(known.path.name()).ok()??;
        if stat.kind != FileKind::File {
            return None;
        }
        if !known.racy && Stamps::of(&stat) == known.stamps {
            return Some((known.hash, stat));
        }
        let read = read_in(&dir, known.path.name(), limits::IGNORE_FILE_BYTES_MAX).ok()??;
        Some((BlobHash::of(&read), stat))
    }

    /// A checksum over all by which names are judged, given that over the ignore files.
    pub(super) fn rules_digest(&self, ignore_files: Digest) -> Digest {
        let place = self.root_path.as_os_str().as_bytes();
        let digests = [ignore_files, self.settings.digest()].map(Digest::to_bytes).concat();
        Digest::of(&[&digests, &self.prefix[..], b"\0", place].concat())
    }

    /// The rules in the directory `path`, or in the nearest above it that was visited.
    pub(super) fn rules_of(&self, path: &RelPath) -> Rules {
        self.load_known_rules();
        self.nearest_rules(path)
    }

    /// As [`Tree::rules_of`], by the rules that were read so far.
    pub(super) fn nearest_rules(&self, path: &RelPath) -> Rules {
        let found = locked(&self.found);
        let mut next = Some(path.clone());
        while let Some(directory) = next {
            if let Some((rules, _)) = found.rules.get(&directory) {
                return rules.clone();
            }
            next = directory.parent();
        }
        self.root_rules.clone()
    }

    /// Whether the rules leave out `path`, whose directories they do not.
    pub(super) fn ignores(&self, rules: &Rules, path: &RelPath, is_dir: bool) -> bool {
        if rules.is_none() {
            return false;
        }
        if self.prefix.is_empty() {
            return ignores(rules, path.as_bytes(), is_dir);
        }
        ignores(rules, &[&self.prefix, path.as_bytes()].concat(), is_dir)
    }

    /// Looks at `name` in the directory `dir`, which is at `parent`.
    pub(super) fn look(
        &self,
        dir: &Dir,
        parent: &RelPath,
        name: &[u8],
        rules: &Rules,
        policy: Policy,
    ) -> Result<Seen, crate::path::InvalidPath> {
        let path = parent.join(name)?;
        for _ in 0..LOOKS_MAX {
            let stat = match dir.stat(name) {
                Ok(Some(stat)) => stat,
                Ok(None) => return Ok(Seen::Gone),
                Err(error) => {
                    // A name is enough to know these, and no reason to call the walk incomplete.
                    let by_name = self.reason_by_name(parent, name);
                    let reason = by_name.unwrap_or_else(|| self.reason_of(error));
                    return Ok(Seen::Leaf(omitted(path, unknown_stat(), reason)));
                }
            };
            if let Some(reason) = self.reason(dir, &path, parent, &stat, rules, policy) {
                return Ok(Seen::Leaf(omitted(path, stat, reason)));
            }
            let what = match stat.kind {
                FileKind::Dir => return Ok(Seen::Directory(stat)),
                FileKind::File => What::File,
                FileKind::Other => What::Omitted { reason: OmitReason::Special, rest: 0 },
                FileKind::Symlink => match dir.read_link(name) {
                    Ok(target) => What::Symlink { target: target.into() },
                    // It was replaced since: look again.
                    Err(error) => {
                        self.note_lack(error);
                        continue;
                    }
                },
            };
            return Ok(Seen::Leaf(Observed { path, stat, what }));
        }
        Ok(Seen::Leaf(omitted(path, unknown_stat(), OmitReason::IoError)))
    }

    /// Reasons that need no more than names.
    fn reason_by_name(&self, parent: &RelPath, name: &[u8]) -> Option<OmitReason> {
        if is_version_control(name) {
            return Some(OmitReason::Excluded);
        }
        self.is_secret(parent, name).then_some(OmitReason::Secret)
    }

    /// Whether `name`, in the directory at `parent`, is that of a secret.
    pub(super) fn is_secret(&self, parent: &RelPath, name: &[u8]) -> bool {
        self.settings.is_secret(self.name_of(parent), name)
    }

    /// A directory's own name, the root's too.
    fn name_of<'a>(&'a self, path: &'a RelPath) -> &'a [u8] {
        if path.is_root() {
            self.root_path.file_name().map_or(b"", OsStr::as_bytes)
        } else {
            path.name()
        }
    }

    /// Why the content at `path`, in the directory `dir` at `parent`, is not held; in the order in
    /// which the reasons count.
    fn reason(
        &self,
        dir: &Dir,
        path: &RelPath,
        parent: &RelPath,
        stat: &FileStat,
        rules: &Rules,
        policy: Policy,
    ) -> Option<OmitReason> {
        let name = path.name();
        let is_dir = stat.kind == FileKind::Dir;
        if is_version_control(name) {
            return Some(OmitReason::Excluded);
        }
        if self.stores.contains(&InodeId { dev: stat.dev, ino: stat.ino }) {
            return Some(OmitReason::Store);
        }
        if let Some(reason) = self.reason_by_name(parent, name) {
            return Some(reason);
        }
        if self.is_mount(dir, path, stat) {
            return Some(OmitReason::Mount);
        }
        if policy == Policy::Scope {
            if self.is_excluded(parent, name, is_dir) {
                return Some(OmitReason::Excluded);
            }
            if self.ignores(rules, path, is_dir) {
                return Some(OmitReason::Ignored);
            }
        }
        let is_over = stat.kind == FileKind::File && stat.size > self.settings.file_limit_bytes;
        (is_over && policy != Policy::Everything).then_some(OmitReason::OverFileLimit)
    }

    /// Whether a setting leaves the name out.
    pub(super) fn is_excluded(&self, parent: &RelPath, name: &[u8], is_dir: bool) -> bool {
        let parent = self.name_of(parent);
        if is_dir {
            self.settings.excludes_directory(parent, name)
        } else {
            self.settings.excludes_file(parent, name)
        }
    }

    /// Whether something else is mounted at `path`, in the directory `dir`. The kernel has a list; what
    /// came after it was read is on another device. So may files be that are not mounts, where layers
    /// of an overlay lie on several file systems: of those the kernel is asked.
    fn is_mount(&self, dir: &Dir, path: &RelPath, stat: &FileStat) -> bool {
        if self.settings.cross_mounts {
            return false;
        }
        if self.mounts.contains(path) {
            return true;
        }
        if stat.dev == self.root_stat.dev {
            return false;
        }
        if stat.kind == FileKind::Dir {
            return true;
        }
        let name = path.name();
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let asked = rustix::fs::statx(dir, name, flags, StatxFlags::empty());
        asked.map_or(true, |answer| {
            !answer.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT)
                || answer.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
        })
    }

    /// Accounts for `path` and everything below it, by handles alone and on this thread: for what the
    /// parallel listing could not do, and for restores. A path that is not there leaves no trace.
    pub(super) fn descend(&self, path: &RelPath, policy: Policy) -> Result<()> {
        let mut open: Vec<(RelPath, Policy)> = vec![(path.clone(), policy)];
        while let Some((path, policy)) = open.pop() {
            if self.is_cancelled() {
                return Err(Error::Cancelled);
            }
            // What git tracks is one path; what lies below it is in scope or not by itself.
            let below = if policy == Policy::Tracked { Policy::Scope } else { policy };
            let children = self.settle(&path, policy, below);
            open.extend(
                children.iter().filter_map(|(name, _)| Some((path.join(name).ok()?, below))),
            );
        }
        Ok(())
    }

    /// Accounts for one path by `policy`, and for the names in it by `below`; the directories among
    /// those that are to be entered are returned.
    pub(super) fn settle(&self, path: &RelPath, policy: Policy, below: Policy) -> Vec<Child> {
        let parent = path.parent();
        let above = parent.as_ref().map_or_else(|| self.root_rules.clone(), |p| self.rules_of(p));
        for _ in 0..LOOKS_MAX {
            let seen = match self.look_at(path, policy) {
                Seen::Gone => {
                    locked(&self.found).missed = true;
                    return Vec::new();
                }
                Seen::Leaf(observed) => {
                    self.push(vec![observed]);
                    return Vec::new();
                }
                Seen::Directory(stat) => stat,
            };
            let (dir, stat) = match self.open(path) {
                Ok(Some(opened)) => opened,
                Ok(None) => continue,
                Err(reason) => {
                    self.push(vec![omitted(path.clone(), seen, reason)]);
                    return Vec::new();
                }
            };
            // Another directory than the one looked at may be a mount or a store.
            if !stat.is_same_inode(&seen) && self.reason_to_stay_out(&stat) {
                continue;
            }
            match self.visit_opened(&dir, stat, path, Listing::UNKNOWN, &above, below) {
                Visit::Entered { children, .. } => return children,
                Visit::Closed | Visit::Gone => return Vec::new(),
                Visit::Failed(reason) => {
                    self.push(vec![omitted(path.clone(), stat, reason)]);
                    return Vec::new();
                }
            }
        }
        self.push(vec![omitted(path.clone(), unknown_stat(), OmitReason::IoError)]);
        Vec::new()
    }

    fn reason_to_stay_out(&self, stat: &FileStat) -> bool {
        let id = InodeId { dev: stat.dev, ino: stat.ino };
        let is_elsewhere = stat.dev != self.root_stat.dev && !self.settings.cross_mounts;
        is_elsewhere || self.stores.contains(&id)
    }

    /// As [`Tree::look`], by path.
    pub(super) fn look_at(&self, path: &RelPath, policy: Policy) -> Seen {
        let Some(parent) = path.parent() else {
            return self.root.stat_self().map_or(Seen::Gone, Seen::Directory);
        };
        match self.root.try_open_dir(&parent) {
            Ok(Some(dir)) => {
                let rules = self.rules_of(&parent);
                self.look(&dir, &parent, path.name(), &rules, policy).unwrap_or(Seen::Gone)
            }
            Ok(None) => Seen::Gone,
            Err(error) => {
                let reason = self.reason_of(error);
                Seen::Leaf(omitted(path.clone(), unknown_stat(), reason))
            }
        }
    }

    /// Whether the directory at `path` says of itself that it is a store.
    pub(super) fn is_store_at(&self, path: &RelPath) -> bool {
        self.unless_lacking(self.root.try_open_dir(path)).is_some_and(|dir| self.is_store(&dir))
    }

    /// Whether the directory's `format.json` says that it is a store of checkpoints.
    fn is_store(&self, dir: &Dir) -> bool {
        match read_in(dir, b"format.json", limits::SMALL_FILE_BYTES_MAX) {
            Ok(text) => {
                text.is_some_and(|text| serde_json::from_slice::<StoreFormat>(&text).is_ok())
            }
            Err(error) => {
                self.note_lack(error);
                false
            }
        }
    }

    pub(super) fn push(&self, batch: Vec<Observed>) {
        locked(&self.found).batches.push(batch);
    }
}

/// The visit of one directory.
struct Visitor<'a> {
    tree: &'a Tree,
    dir: &'a Dir,
    path: &'a RelPath,
    rules: &'a Rules,
    policy: Policy,
}

impl Visitor<'_> {
    /// Accounts for the directory, which `stat` is of, and for `names`; the children to enter are
    /// returned in order of name.
    fn visit(&mut self, names: &[&[u8]], stat: FileStat, is_whole: bool) -> Vec<Child> {
        let mut batch = Vec::with_capacity(names.len() + 1);
        let mut children = Vec::new();
        let mut is_whole = is_whole;
        let is_deepest = self.path.components().count() + 1 >= limits::DEPTH_MAX;
        let listed = |is_whole| if is_whole { Listed::Whole } else { Listed::Partial };
        batch.push(Observed {
            path: self.path.clone(),
            stat,
            what: What::Dir { listed: Listed::Whole },
        });
        for name in names {
            match self.tree.look(self.dir, self.path, name, self.rules, self.policy) {
                Ok(Seen::Leaf(observed)) => batch.push(observed),
                Ok(Seen::Directory(stat)) if !is_deepest => children.push(((*name).into(), stat)),
                Ok(Seen::Directory(stat)) => {
                    if let Ok(path) = self.path.join(name) {
                        locked(&self.tree.found).unfinished.push(path.clone());
                        batch.push(Observed {
                            path,
                            stat,
                            what: What::Dir { listed: Listed::Partial },
                        });
                    }
                }
                Ok(Seen::Gone) => locked(&self.tree.found).missed = true,
                Err(_too_long) => is_whole = false,
            }
        }
        batch[0].what = What::Dir { listed: listed(is_whole) };
        let mut found = locked(&self.tree.found);
        if !is_whole {
            found.unfinished.push(self.path.clone());
        }
        found.batches.push(batch);
        children
    }
}

pub(super) fn omitted(path: RelPath, stat: FileStat, reason: OmitReason) -> Observed {
    Observed { path, stat, what: What::Omitted { reason, rest: 0 } }
}

/// What is written where the file system would not say.
pub(super) fn unknown_stat() -> FileStat {
    FileStat {
        kind: FileKind::Other,
        dev: 0,
        ino: 0,
        size: 0,
        mtime_ns: 0,
        ctime_ns: 0,
        mode: crate::manifest::Mode::default(),
        nlink: 0,
        uid: 0,
        gid: 0,
        blocks: 0,
    }
}

/// The content of a regular file of at most `max_bytes`; `None` where there is none.
fn read_in(dir: &Dir, name: &[u8], max_bytes: u64) -> Result<Option<Vec<u8>>> {
    let refuse = |reason: String| {
        let error = io::Error::new(io::ErrorKind::InvalidData, reason);
        Err(error).at("read", dir.path_of(name))
    };
    // Opening a FIFO or a device does something; what it is can be known before.
    if dir.stat(name)?.is_none_or(|stat| stat.kind != FileKind::File) {
        return Ok(None);
    }
    let Some(file) = dir.try_open_file(name)? else { return Ok(None) };
    let stat = file_stat(&file, &dir.path_of(name))?;
    if stat.kind != FileKind::File {
        return Ok(None);
    }
    let mut bytes = Vec::with_capacity(usize::try_from(stat.size.min(max_bytes)).unwrap_or(0));
    file.take(max_bytes.saturating_add(1)).read_to_end(&mut bytes).at("read", dir.path_of(name))?;
    if bytes.len() as u64 > max_bytes {
        return refuse(format!("it is longer than {max_bytes} bytes"));
    }
    Ok(Some(bytes))
}
