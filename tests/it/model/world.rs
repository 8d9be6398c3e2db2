//! A workspace, a store, and what is known about both without asking the library.

mod purge;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use turnpoint::id::{CheckpointId, SessionName};
use turnpoint::limits::Packing;
use turnpoint::manifest::Coverage;
use turnpoint::path::RelPath;
use turnpoint::plan::SkipReason;
use turnpoint::settings::ScopeSettings;
use turnpoint::{
    CaptureOptions, Error, GcOutcome, ListQuery, PruneRule, RestoreOptions, RestoreOutcome, Store,
};

use super::oracle::{self, Classes, Thens};
use super::truth::{self, Id};
use super::{MODES, PATHS, RULES, Step, TARGETS};
use crate::support::fingerprint::{self, Fingerprint, Node};

const SESSIONS: [&str; 2] = ["main", "other"];

/// A living checkpoint.
#[derive(Debug)]
struct Checkpoint {
    thens: Thens,
    /// The directories of which it says what was not there; none where it does of all.
    looked_at: Option<BTreeSet<PathBuf>>,
    is_safety: bool,
    /// The paths that it speaks of, where it is of given paths.
    only: Option<Vec<PathBuf>>,
    is_pinned: bool,
    label: Option<String>,
}

impl Checkpoint {
    /// What it says, and of what was not there only as far as it looked.
    fn evidence(&self) -> Thens {
        let mut thens = self.thens.clone();
        for (path, then) in &mut thens {
            if let oracle::Then::Dir { whole, .. } = then {
                *whole &= self.looked_at.as_ref().is_none_or(|looked_at| looked_at.contains(path));
            }
        }
        thens
    }
}

fn looked_at(coverage: &Coverage) -> Option<BTreeSet<PathBuf>> {
    match coverage {
        Coverage::Full => None,
        Coverage::Hinted(listed) => Some(listed.iter().map(PathBuf::from).collect()),
        Coverage::Paths => Some(BTreeSet::new()),
    }
}

/// A restore that can be undone.
#[derive(Debug)]
struct Restored {
    before: Fingerprint,
    after: Fingerprint,
    /// Paths of which nobody knows any more what was there before and after.
    purged: BTreeSet<PathBuf>,
}

pub(super) struct World {
    store: Store,
    packing: Packing,
    home: tempfile::TempDir,
    workspace: tempfile::TempDir,
    living: BTreeMap<Id, Checkpoint>,
    restores: Vec<Restored>,
    /// The workspace at the newest checkpoint.
    last: Option<Fingerprint>,
    /// What every checkpoint said that ever was.
    said: Vec<Thens>,
    /// Which captures are checked for reading nothing: few, since they have to wait.
    captures: u32,
}

/// The present tree, and what is in scope of it.
struct Present {
    tree: Fingerprint,
    classes: Classes,
}

impl World {
    pub(super) fn new(is_on_disk: bool, packing: Packing) -> Self {
        let memory = Path::new("/dev/shm");
        let place =
            if is_on_disk || !memory.is_dir() { std::env::temp_dir() } else { memory.to_owned() };
        let make =
            || tempfile::Builder::new().prefix("turnpoint-test-").tempdir_in(&place).unwrap();
        let world = Self {
            store: Store::at(Path::new("/nowhere")),
            packing,
            home: make(),
            workspace: make(),
            living: BTreeMap::new(),
            restores: Vec::new(),
            last: None,
            said: Vec::new(),
            captures: 0,
        };
        fs::create_dir_all(world.root().join(".git/info")).unwrap();
        fs::write(world.root().join(".git/info/x"), "not a repository").unwrap();
        Self { store: world.opened(), ..world }
    }

    /// The store, as another process opens it.
    fn opened(&self) -> Store {
        Store::with_packing(self.home.path(), self.packing)
    }

    fn root(&self) -> &Path {
        self.workspace.path()
    }

    /// Where an edit takes place; an error where a symlink would lead it elsewhere.
    fn path(&self, at: usize) -> std::io::Result<PathBuf> {
        let path = self.root().join(relative(at));
        let above = path.ancestors().skip(1).take_while(|above| *above != self.root());
        for above in above {
            if above.is_symlink() {
                return Err(refused());
            }
        }
        Ok(path)
    }

    fn look(&self) -> Present {
        let tree = fingerprint::with_stamps(self.root());
        let classes = oracle::classify(self.root(), &tree);
        Present { tree, classes }
    }

    fn scope() -> ScopeSettings {
        let mut scope = ScopeSettings::default();
        scope.file_limit_bytes = oracle::FILE_LIMIT_BYTES;
        scope
    }

    fn restore_options() -> RestoreOptions {
        let mut options = RestoreOptions::default();
        options.scope = Self::scope();
        options.session = Some(SESSIONS[0].to_owned());
        options
    }

    pub(super) fn take(&mut self, step: &Step) {
        match step {
            Step::Capture { session, if_changed, hinted } => {
                self.capture(*session, *if_changed, *hinted);
            }
            Step::Restore { which, thorough, preserve_mtime } => {
                let mut options = Self::restore_options();
                options.thorough = *thorough;
                options.preserve_mtime = *preserve_mtime;
                self.restore(*which, &options);
            }
            Step::RestorePaths { which, paths } => {
                let mut options = Self::restore_options();
                let path = |at: &usize| RelPath::new(PATHS[*at]).unwrap();
                options.paths = paths.iter().map(path).collect();
                self.restore(*which, &options);
            }
            Step::Undo => self.undo(),
            Step::Prune { session, keep } => self.prune(*session, *keep),
            Step::Collect { aged } => self.collect(*aged),
            Step::Purge { session, path } => self.purge(*session, *path),
            Step::Pin { which, pinned } => self.pin(*which, *pinned),
            Step::Label { which, label } => self.label(*which, label.map(|n| format!("label {n}"))),
            Step::Reopen => self.store = self.opened(),
            Step::DeleteIndex => self.delete_index(),
            Step::DeleteStatCache => self.delete_stat_cache(),
            // An edit that makes no sense where it falls changes nothing.
            edit => drop(self.edit(edit)),
        }
    }

    fn edit(&self, step: &Step) -> std::io::Result<()> {
        match step {
            Step::Write { at, content } => self.write(*at, &content_of(*content)),
            Step::Append { at } => {
                let old = fs::read(regular(&self.path(*at)?)?)?;
                fs::write(self.path(*at)?, [&old[..], b"more\n"].concat())
            }
            Step::RewriteSilently { at } => rewrite_silently(&regular(&self.path(*at)?)?),
            Step::Remove { at } => remove(&self.path(*at)?),
            Step::Rename { from, to } => {
                make_parent(&self.path(*to)?)?;
                fs::rename(self.path(*from)?, self.path(*to)?)
            }
            Step::Chmod { at, mode } => {
                let path = self.path(*at)?;
                let mode = if fs::symlink_metadata(&path)?.is_dir() {
                    MODES[*mode] | 0o700
                } else {
                    // Set-id bits of files are never restored: a test of its own.
                    MODES[*mode] & 0o777
                };
                fs::set_permissions(not_link(&path)?, Permissions::from_mode(mode))
            }
            Step::Symlink { at, target } => {
                make_parent(&self.path(*at)?)?;
                symlink(OsStr::from_bytes(TARGETS[*target]), self.path(*at)?)
            }
            Step::MakeDir { at } => fs::create_dir_all(self.path(*at)?),
            Step::HardLink { from, to } => {
                make_parent(&self.path(*to)?)?;
                fs::hard_link(regular(&self.path(*from)?)?, self.path(*to)?)
            }
            Step::Fifo { at } => {
                make_parent(&self.path(*at)?)?;
                let mode = rustix::fs::Mode::from_raw_mode(0o644);
                let kind = rustix::fs::FileType::Fifo;
                let cwd = rustix::fs::CWD;
                Ok(rustix::fs::mknodat(cwd, self.path(*at)?, kind, mode, 0)?)
            }
            Step::Swap { at, to } => {
                remove(&self.path(*at)?)?;
                match to {
                    0 => self.write(*at, b"swapped"),
                    1 => symlink("swapped", self.path(*at)?),
                    _ => fs::create_dir_all(self.path(*at)?),
                }
            }
            Step::Ignore { below, rules } => {
                let directory = if *below { self.root().join("d") } else { self.root().to_owned() };
                let lines: Vec<&str> = rules.iter().map(|&rule| RULES[rule]).collect();
                fs::write(directory.join(".gitignore"), lines.join("\n"))
            }
            Step::TouchAll => {
                for (path, node) in fingerprint::of(self.root()) {
                    if matches!(node.kind, fingerprint::Kind::File { .. }) {
                        File::open(self.root().join(path))?.set_modified(now())?;
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn write(&self, at: usize, content: &[u8]) -> std::io::Result<()> {
        let path = self.path(at)?;
        make_parent(&path)?;
        if path.symlink_metadata().is_ok() {
            fs::write(regular(&path)?, content)
        } else {
            fs::write(path, content)
        }
    }

    /// Every path of which something is not as it was at the newest checkpoint.
    fn changed_since_last(&self, present: &Present) -> Option<Vec<RelPath>> {
        let last = self.last.as_ref()?;
        let paths = last.keys().chain(present.tree.keys());
        let changed = paths.filter(|path| last.get(*path) != present.tree.get(*path));
        // A directory's own stamps move with the names in it, and those are in the list. All that is
        // below it would be looked at.
        let is_dir = |path: &Path| {
            [last, &present.tree]
                .iter()
                .all(|tree| tree.get(path).is_some_and(|node| node.kind == fingerprint::Kind::Dir))
        };
        let told = changed.filter(|path| {
            let mode = |tree: &Fingerprint| tree.get(*path).map(|node| node.mode);
            !is_dir(path) || mode(last) != mode(&present.tree)
        });
        Some(told.map(|path| RelPath::new(path.as_os_str().as_bytes()).unwrap()).collect())
    }

    fn capture(&mut self, session: bool, if_changed: bool, hinted: bool) {
        let mut options = CaptureOptions::default();
        options.session = Some(SESSIONS[usize::from(session)].to_owned());
        options.if_changed = if_changed;
        options.scope = Self::scope();
        let present = self.look();
        options.changed = if hinted { self.changed_since_last(&present) } else { None };
        let outcome = self.store.capture(self.root(), &options, &()).unwrap();
        options.changed = None;
        assert!(outcome.complete, "{:?}", outcome.problems);
        let now = fingerprint::with_stamps(self.root());
        assert_eq!(oracle::violations(&present.tree, &now), [""; 0], "a capture changes nothing");

        let expected = oracle::captured(&present.tree, &present.classes);
        let thens = self.thens(&outcome.checkpoint);
        assert_thens(&expected, &thens);
        let is_file = |then: &&oracle::Then| matches!(then, oracle::Then::Held(_));
        let files = expected.values().filter(is_file).count() as u64;
        assert_eq!(outcome.counts.files_observed, files);
        assert!(outcome.created || if_changed);
        if outcome.created {
            let id = id_of(&outcome.checkpoint);
            assert!(!self.living.contains_key(&id));
            self.insert(id.clone(), thens, false, None);
            self.living.get_mut(&id).unwrap().looked_at = looked_at(&outcome.coverage);
            self.retain(&id.0, 20);
            self.last = Some(now);
        }
        self.assert_list();
        self.captures += 1;
        if self.captures == 7 {
            self.assert_nothing_is_read(&options);
        }
    }

    /// After two captures, the second when every stamp is old enough to be relied upon, nothing is
    /// opened.
    fn assert_nothing_is_read(&mut self, options: &CaptureOptions) {
        for settled in [false, false, true] {
            std::thread::sleep(Duration::from_millis(120));
            let outcome = self.store.capture(self.root(), options, &()).unwrap();
            let id = id_of(&outcome.checkpoint);
            if outcome.created {
                let thens = self.thens(&outcome.checkpoint);
                self.insert(id.clone(), thens, false, None);
                self.retain(&id.0, 20);
            }
            if settled {
                assert_eq!(outcome.counts.files_read, 0);
            }
        }
    }

    /// Remembers a checkpoint. `only` are the paths that it speaks of, if not of all.
    fn insert(&mut self, id: Id, thens: Thens, is_safety: bool, only: Option<Vec<PathBuf>>) {
        self.said.push(thens.clone());
        let (looked_at, is_pinned, label) = (None, false, None);
        let checkpoint = Checkpoint { thens, looked_at, is_safety, only, is_pinned, label };
        self.living.insert(id, checkpoint);
    }

    fn thens(&self, id: &CheckpointId) -> Thens {
        oracle::thens(&self.store.entries(id, &RelPath::root(), &()).unwrap())
    }

    fn choose(&self, which: usize) -> Option<Id> {
        self.living.keys().nth(which % self.living.len().max(1)).cloned()
    }

    fn restore(&mut self, which: usize, options: &RestoreOptions) {
        let Some(id) = self.choose(which) else { return };
        let present = self.look();
        let selected: Vec<PathBuf> =
            options.paths.iter().map(|path| path.as_os().to_owned()).collect();
        let only = self.living[&id].only.clone();
        let thens = &self.living[&id].evidence();
        let result = self.store.restore(self.root(), &checkpoint_id(&id), options, &());
        let now = fingerprint::with_stamps(self.root());
        let outcome = match result {
            Ok(outcome) => outcome,
            Err(Error::PathNotFound { path, .. }) => {
                let path = path.as_os();
                let named = thens.keys().any(|named| named.starts_with(path));
                let seen =
                    present.classes.get(path).is_some_and(|&class| class != oracle::Class::Below);
                assert!(!named && !seen, "{path:?}");
                assert_eq!(oracle::violations(&present.tree, &now), [""; 0]);
                return;
            }
            Err(Error::PathNotCovered { path, .. }) => {
                let path = path.as_os();
                let only = only.unwrap();
                assert!(!only.iter().any(|only| only.starts_with(path)), "{path:?}: {only:?}");
                assert_eq!(oracle::violations(&present.tree, &now), [""; 0]);
                return;
            }
            Err(error) => panic!("{error}: {error:?}"),
        };
        let only = only.as_deref();
        let expected = oracle::restored(&present.tree, &present.classes, thens, &selected, only);
        let context = (&outcome.plan.changes, &outcome.plan.skips);
        assert_eq!(oracle::violations(&expected, &now), [""; 0], "{context:#?}");
        assert_eq!(outcome.left, []);
        assert_eq!(outcome.remarks, [""; 0]);
        self.note_restore(&outcome, present, now, &selected, true);
    }

    /// Checks the safety checkpoint of a restore or undo, and remembers it.
    fn note_restore(
        &mut self,
        outcome: &RestoreOutcome,
        present: Present,
        now: Fingerprint,
        selected: &[PathBuf],
        can_be_undone: bool,
    ) {
        let Some(safety) = &outcome.safety else {
            assert_eq!(oracle::violations(&present.tree, &now), [""; 0]);
            return;
        };
        let thens = self.thens(safety);
        let expected = oracle::captured(&present.tree, &present.classes);
        let manifest = self.store.show(safety, &()).unwrap().manifest;
        let is_part = match manifest.coverage {
            Coverage::Full => false,
            Coverage::Paths => true,
            Coverage::Hinted(_) => panic!("nobody gave hints"),
        };
        let is_gone = |above: &Path| !present.tree.contains_key(above);
        let is_looked_at = |path: &Path| {
            !is_part
                || selected.iter().any(|top| {
                    let mut gone = top.ancestors().filter(|above| is_gone(above));
                    path.starts_with(top) || gone.any(|above| path.starts_with(above))
                })
                || outcome.plan.changes.iter().any(|change| change.path.as_os() == path)
        };
        let leads = |path: &Path| selected.iter().any(|top| top.starts_with(path));
        let outside = |thens: &Thens| -> Thens {
            let kept = thens.iter().filter(|(path, _)| !is_looked_at(path) && !leads(path));
            kept.map(|(path, then)| (path.clone(), then.clone())).collect()
        };
        if is_part {
            let others = outside(&thens);
            assert!(
                self.said.iter().any(|said| outside(said) == others),
                "no base says {others:?}"
            );
        }
        for (path, then) in thens.iter().filter(|(path, _)| is_looked_at(path) || leads(path)) {
            assert!(present.tree.contains_key(path), "{path:?} is not there and saved");
            let is_true = match then {
                oracle::Then::Held(held) => oracle::is_same(held, &present.tree[path]),
                oracle::Then::Dir { mode, .. } => *mode == present.tree[path].mode,
                oracle::Then::Omitted(_) => present.classes[path] != oracle::Class::In,
            };
            assert!(is_true, "{path:?}: {then:?}, was {:?}", present.tree.get(path));
        }
        for (path, then) in expected.iter().filter(|(path, _)| is_looked_at(path)) {
            let is_out = matches!(then, oracle::Then::Omitted(_));
            assert!(is_out || thens.contains_key(path), "{path:?} was in scope and is not saved");
        }
        for (path, node) in &present.tree {
            let is_changed = now.get(path).is_none_or(|now| !oracle::is_same(now, node));
            let is_saved =
                matches!(thens.get(path), Some(oracle::Then::Held(_) | oracle::Then::Dir { .. }));
            assert!(is_saved || !is_changed, "{path:?} was changed and is not saved");
        }
        let id = id_of(safety);
        self.last = Some(present.tree.clone());
        let planned = || {
            let changes = outcome.plan.changes.iter();
            changes.map(|change| change.path.as_os().to_owned()).collect()
        };
        self.insert(id.clone(), thens, true, is_part.then(planned));
        self.retain(&id.0, 20);
        self.assert_list();
        if can_be_undone {
            let purged = BTreeSet::new();
            self.restores.push(Restored { before: present.tree, after: now, purged });
        }
    }

    fn undo(&mut self) {
        let present = self.look();
        let result = self.store.undo(self.root(), &Self::restore_options(), &());
        let now = fingerprint::with_stamps(self.root());
        let Some(restored) = self.restores.pop() else {
            assert!(matches!(result, Err(Error::NothingToUndo { .. })), "{result:?}");
            return;
        };
        let outcome = result.unwrap();
        let problems = undone(&restored, &present.tree, &now, &outcome);
        let context = (&outcome.plan.changes, &outcome.plan.skips);
        assert_eq!(problems, [""; 0], "{context:#?}");
        if outcome.safety.is_none() {
            // All of it is in conflict with later work, or purged: it has not been undone.
            assert!(outcome.is_short() || !restored.purged.is_empty());
            self.restores.push(restored);
        }
        self.note_restore(&outcome, present, now, &[], false);
    }

    /// What retention keeps of a session.
    fn retain(&mut self, session: &str, keep: usize) {
        let mut newest = true;
        let mut plain = 0;
        let mut gone = Vec::new();
        for (id, checkpoint) in self.living.iter().rev().filter(|(id, _)| id.0 == session) {
            plain += usize::from(!checkpoint.is_safety);
            // No safety checkpoint here is a day old.
            let stays = newest || checkpoint.is_safety || checkpoint.is_pinned || plain <= keep;
            newest = false;
            if !stays {
                gone.push(id.clone());
            }
        }
        for id in gone {
            self.living.remove(&id);
        }
    }

    fn prune(&mut self, session: bool, keep: u32) {
        let name = SESSIONS[usize::from(session)];
        let mut rule = PruneRule::default();
        rule.keep = keep;
        let before = self.living.len();
        let result = self.store.prune(Some(&SessionName::new(name).unwrap()), rule, &());
        if !self.living.keys().any(|id| id.0 == name) {
            assert!(matches!(result, Err(Error::SessionNotFound { .. })), "{result:?}");
            return;
        }
        self.retain(name, keep as usize);
        assert_eq!(result.unwrap().pruned.len(), before - self.living.len());
        self.assert_list();
    }

    fn collect(&mut self, aged: bool) {
        if self.living.is_empty() {
            return;
        }
        if aged {
            truth::age(self.store.root());
        }
        let told = |outcome: &GcOutcome| (outcome.sweep.blobs_removed, outcome.sweep.bytes_removed);
        let planned = told(&self.store.plan_gc(&()).unwrap());
        let outcome = self.store.gc(&()).unwrap();
        assert_eq!(told(&outcome), planned);
        assert_eq!(outcome.prune.pruned, []);
        assert_eq!(outcome.sweep.failed, []);
        self.assert_list();
        let truth = self.check_truth();
        if aged {
            assert_eq!(outcome.sweep.blobs_waiting, 0);
            self.assert_nothing_is_kept_in_vain(&truth);
        }
    }

    /// After a collection for which everything was old enough.
    fn assert_nothing_is_kept_in_vain(&self, truth: &truth::Truth) {
        let loose: BTreeSet<String> = truth::blobs_on_disk(self.store.root())
            .iter()
            .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
            .collect();
        let unnamed = loose.iter().find(|hash| !truth.references.contains_key(*hash));
        assert_eq!(unnamed, None, "it has a file and nothing names it");
        // All content in the model is small.
        assert!(loose.len() < self.packing.consolidate_from, "{} loose blobs", loose.len());
        let packs = truth::packs(self.store.root());
        for pack in &packs {
            // What dropping a frame gives back: the frame and its line in the trailer.
            let bytes = |is_counted: &dyn Fn(&str) -> bool| -> usize {
                let counted = pack.frames.iter().filter(|(hash, _)| is_counted(hash));
                counted.map(|(_, frame)| frame.len() + 44).sum()
            };
            let (all, named) =
                (bytes(&|_| true), bytes(&|hash| truth.references.contains_key(hash)));
            assert!(named > 0 && named >= all - all / 4, "{named} of {all} bytes are needed");
        }
        for hash in truth::sql(self.store.root(), "SELECT lower(hex(hash)) FROM blobs") {
            let is_packed = packs.iter().any(|pack| pack.frames.contains_key(&hash));
            assert!(is_packed || loose.contains(&hash), "{hash} has a row and is nowhere");
        }
    }

    fn pin(&mut self, which: usize, pinned: bool) {
        let Some(id) = self.choose(which) else { return };
        let checkpoint = checkpoint_id(&id);
        if pinned {
            self.store.pin(&checkpoint, Some("a note"), &()).unwrap();
        } else {
            self.store.unpin(&checkpoint, &()).unwrap();
        }
        self.living.get_mut(&id).unwrap().is_pinned = pinned;
        self.assert_list();
    }

    fn label(&mut self, which: usize, label: Option<String>) {
        let Some(id) = self.choose(which) else { return };
        self.store.label(&checkpoint_id(&id), label.as_deref(), &()).unwrap();
        self.living.get_mut(&id).unwrap().label = label;
        self.assert_list();
    }

    fn delete_index(&self) {
        for name in ["index.db", "index.db-wal", "index.db-shm"] {
            // Not there before the first capture.
            drop(fs::remove_file(self.store.root().join(name)));
        }
    }

    fn delete_stat_cache(&self) {
        let Ok(workspaces) = fs::read_dir(self.store.root().join("workspaces")) else { return };
        for workspace in workspaces {
            drop(fs::remove_file(workspace.unwrap().path().join("stat-cache")));
        }
    }

    fn assert_list(&self) {
        let listing = self.store.list(&ListQuery::All, &()).unwrap();
        assert_eq!(listing.unreadable(), 0);
        let mut listed: Vec<_> = listing
            .checkpoints()
            .map(|summary| (id_of(&summary.id), summary.pinned, summary.label.clone()))
            .collect();
        listed.sort();
        let living = self.living.iter();
        let expected: Vec<_> =
            living.map(|(id, known)| (id.clone(), known.is_pinned, known.label.clone())).collect();
        assert_eq!(listed, expected);
    }

    fn check_truth(&self) -> truth::Truth {
        let truth = truth::read(self.store.root());
        assert_eq!(
            truth.checkpoints.keys().collect::<Vec<_>>(),
            self.living.keys().collect::<Vec<_>>()
        );
        for (id, checkpoint) in &self.living {
            assert_thens(&checkpoint.thens, &truth.checkpoints[id]);
        }
        truth::assert_index_is(self.store.root(), &truth);
        truth
    }

    /// At the end of a case: every checkpoint can be had back, and files and index say the same.
    pub(super) fn check_everything(&mut self) {
        if self.living.is_empty() {
            return;
        }
        // Makes the index anew, should it have been deleted last.
        self.store = self.opened();
        drop(self.store.plan_gc(&()).unwrap());
        self.check_truth();
        let into = tempfile::tempdir_in(self.home.path()).unwrap();
        for (number, (id, checkpoint)) in self.living.iter().enumerate() {
            let place = into.path().join(number.to_string());
            let options = Self::restore_options();
            self.store.restore_into(&checkpoint_id(id), &place, &options, &()).unwrap();
            let expected = oracle::restored_into(&checkpoint.thens);
            fingerprint::assert_same(&expected, &fingerprint::of(&place));
        }
        for leftover in ["tmp", "leases", "journal"] {
            let found = fs::read_dir(self.store.root().join(leftover)).unwrap().count();
            assert_eq!(found, 0, "{leftover}");
        }
    }
}

/// What is wrong with an undo: a path that the restore changed and nobody since must be as it was
/// before; everything else must not have been touched.
fn undone(
    restored: &Restored,
    before: &Fingerprint,
    after: &Fingerprint,
    outcome: &RestoreOutcome,
) -> Vec<String> {
    let state = |tree: &Fingerprint, path: &Path| {
        tree.get(path).map(|node| Node { stamps: None, ..node.clone() })
    };
    let mut problems = Vec::new();
    let paths = restored.before.keys().chain(restored.after.keys()).chain(before.keys());
    for path in paths {
        if restored.purged.iter().any(|purged| path.starts_with(purged)) {
            if state(before, path) != state(after, path) {
                problems.push(format!("{path:?} was purged and is touched"));
            }
            continue;
        }
        if restored.purged.iter().any(|purged| purged.starts_with(path)) {
            // Whether it goes depends on what is below it, and that stays.
            continue;
        }
        let (was, left) = (state(&restored.before, path), state(&restored.after, path));
        let (now, then) = (state(before, path), state(after, path));
        let is_conflict = was != left && now != left && now != was;
        let stays = was == left || is_conflict || now == was;
        if stays || is_in_one_that_stays(path, restored, before) {
            if then != now {
                problems.push(format!("{path:?} was not to be touched: {now:?}, now {then:?}"));
            }
        } else if then != was && !is_in_the_way(path, restored, before, outcome) {
            problems.push(format!("{path:?} was to become {was:?} and is {then:?}"));
        }
        let is_told = outcome.plan.skips.iter().any(|skip| {
            let skipped = skip.path.as_os();
            skip.reason == SkipReason::Conflict
                && (skipped == path.as_path() || path.starts_with(skipped))
        });
        if is_conflict && !is_told {
            problems.push(format!("{path:?} is a conflict and is not named"));
        }
    }
    problems
}

/// Whether a path is, or lies in, a directory that the restore made in the place of something else and
/// in which something is there by now that the restore did not leave so. A directory gives way as a
/// whole or not at all: what came after is never destroyed, so all of it stays.
fn is_in_one_that_stays(path: &Path, restored: &Restored, now: &Fingerprint) -> bool {
    let is_dir = |node: &Node| node.kind == fingerprint::Kind::Dir;
    path.ancestors().any(|above| {
        let has_given_way = restored.before.get(above).is_some_and(|node| !is_dir(node));
        let is_made = has_given_way && restored.after.get(above).is_some_and(is_dir);
        let is_there = is_made && now.get(above).is_some_and(is_dir);
        is_there
            && now.iter().filter(|(other, _)| other.starts_with(above)).any(|(other, node)| {
                restored.after.get(other).is_none_or(|left| !oracle::is_same(left, node))
            })
    })
}

/// Whether somebody's later work above or below a path keeps it from being taken back.
fn is_in_the_way(
    path: &Path,
    restored: &Restored,
    before: &Fingerprint,
    outcome: &RestoreOutcome,
) -> bool {
    let differs = |tree: &Fingerprint, path: &Path| {
        let stateless = |node: &Node| Node { stamps: None, ..node.clone() };
        tree.get(path).map(stateless) != before.get(path).map(stateless)
    };
    let is_near = |other: &Path| other.starts_with(path) || path.starts_with(other);
    let is_worked_on = restored
        .after
        .keys()
        .chain(before.keys())
        .any(|other| is_near(other) && differs(&restored.after, other));
    let is_skipped = || outcome.plan.skips.iter().any(|skip| is_near(skip.path.as_os()));
    let is_dir = before.get(path).is_some_and(|node| node.kind == fingerprint::Kind::Dir);
    is_worked_on && (is_dir || is_skipped())
}

fn assert_thens(expected: &Thens, found: &Thens) {
    let paths = expected.keys().chain(found.keys());
    let differing: Vec<_> = paths
        .filter(|path| expected.get(*path) != found.get(*path))
        .map(|path| (path, expected.get(path), found.get(path)))
        .collect();
    assert!(differing.is_empty(), "expected, found: {differing:#?}");
}

fn relative(at: usize) -> &'static Path {
    Path::new(OsStr::from_bytes(PATHS[at]))
}

fn id_of(id: &CheckpointId) -> Id {
    (id.session.as_str().to_owned(), id.seq.get())
}

fn checkpoint_id(id: &Id) -> CheckpointId {
    let session = SessionName::new(&id.0).unwrap();
    CheckpointId { session, seq: turnpoint::id::Seq::new(id.1).unwrap() }
}

fn content_of(number: u8) -> Vec<u8> {
    match number {
        0 => Vec::new(),
        1..=3 => vec![b'0' + number],
        4 => b"some text, not long\n".repeat(20),
        5 => b"another text, as long\n".repeat(20),
        6 => b"too large for the limit\n".repeat(300),
        _ => b"line\r\n\0binary\xff".to_vec(),
    }
}

#[expect(clippy::disallowed_methods, reason = "files are to get the present time")]
fn now() -> SystemTime {
    SystemTime::now()
}

fn make_parent(path: &Path) -> std::io::Result<()> {
    fs::create_dir_all(path.parent().unwrap())
}

fn refused() -> std::io::Error {
    std::io::ErrorKind::Unsupported.into()
}

fn not_link(path: &Path) -> std::io::Result<PathBuf> {
    if fs::symlink_metadata(path)?.is_symlink() { Err(refused()) } else { Ok(path.to_owned()) }
}

fn regular(path: &Path) -> std::io::Result<PathBuf> {
    if fs::symlink_metadata(path)?.is_file() { Ok(path.to_owned()) } else { Err(refused()) }
}

fn rewrite_silently(path: &Path) -> std::io::Result<()> {
    let modified = fs::metadata(path)?.modified()?;
    let content: Vec<u8> = fs::read(path)?.iter().map(|byte| byte ^ 1).collect();
    fs::write(path, content)?;
    File::open(path)?.set_modified(modified)
}

fn remove(path: &Path) -> std::io::Result<()> {
    if fs::symlink_metadata(path)?.is_dir() {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    }
}
