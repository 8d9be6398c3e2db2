//! Changing the workspace, one path at a time, each step checked.
//!
//! Every step is written so that doing it again does no harm: it looks at what is there, and does
//! what is still to do. So the first run and the completion of an interrupted one are the same code.
//!
//! What is at a path is compared with what the safety checkpoint held there, before the step by its
//! stamps and after it by what came out. Whoever changed the file in between wins: the file goes back
//! and the path is reported.

use std::collections::{HashMap, HashSet};

use crate::access::Access;
use crate::disk::{self, Dir, Exchange, FileKind, FileStat, Placed, ToSync};
use crate::error::{Error, Result};
use crate::journal::{Action, Journal, Stamp};
use crate::manifest::{Entry, EntryKind, Mode};
use crate::monitor::{Monitor, Phase};
use crate::path::RelPath;
use crate::plan::{Skip, SkipReason};
use crate::restore::stage::{
    Stage, displaced_name, find_action, holds_one_of, is_mode_only, stage_one, staged_name,
};
use crate::sessions::with_source;

/// What applying a journal came to.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    /// How many changes are in place.
    pub(crate) changed: u64,
    /// What was left as it was.
    pub(crate) left: Vec<Skip>,
    /// What a person should know.
    pub(crate) remarks: Vec<String>,
}

/// How one step ended.
enum Step {
    Done,
    Left(SkipReason),
}

/// Makes every change of the journal that is not made yet: first what comes, parents before what is
/// in them; then what goes, deepest first; last the permission bits of directories.
///
/// # Durability
/// The names survive a power cut when it returns. In between each file is either the old or the new
/// one, never a torn one; the whole is not atomic.
pub(crate) fn apply(
    access: &Access,
    root: &Dir,
    stage: &Stage,
    journal: &Journal,
    monitor: &dyn Monitor,
) -> Result<Applied> {
    monitor.phase(Phase::Apply, Some(journal.actions.len() as u64));
    let mut applier = Applier {
        access,
        root,
        stage,
        journal,
        applied: Applied::default(),
        left: HashSet::new(),
        holds_left: HashSet::new(),
        touched: HashSet::new(),
        refused: HashSet::new(),
        put_in: HashMap::new(),
        inodes_in: HashMap::new(),
    };
    let indexed = || journal.actions.iter().enumerate();
    for (index, action) in indexed().filter(|(_, action)| action.after.is_some()) {
        applier.take(index, action, Applier::put);
        monitor.advanced(1, 0);
    }
    for (index, action) in indexed().filter(|(_, action)| action.after.is_some()) {
        applier.put_in.entry(action.path.parent().unwrap_or_default()).or_default().push(index);
    }
    for (index, action) in indexed().rev().filter(|(_, action)| action.after.is_none()) {
        applier.take(index, action, Applier::remove);
        monitor.advanced(1, 0);
    }
    for (_, action) in indexed().rev() {
        applier.close_directory(action);
    }
    applier.sync()?;
    applier.applied.left.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(applier.applied)
}

struct Applier<'a> {
    access: &'a Access,
    root: &'a Dir,
    stage: &'a Stage,
    journal: &'a Journal,
    applied: Applied,
    /// The paths of `applied.left`.
    left: HashSet<RelPath>,
    /// The directories that they are in.
    holds_left: HashSet<RelPath>,
    /// Directories in which a name changed.
    touched: HashSet<RelPath>,
    /// Directories that should have given way as a whole and did not: nothing in them goes.
    refused: HashSet<RelPath>,
    /// By directory, the changes that leave a name in it.
    put_in: HashMap<RelPath, Vec<usize>>,
    /// By directory from which something goes, the inodes of those names: looked up once.
    inodes_in: HashMap<RelPath, HashMap<u64, usize>>,
}

impl Applier<'_> {
    /// Runs one step. An error of the system concerns this path only: the others go on, and the
    /// path is reported.
    fn take(
        &mut self,
        index: usize,
        action: &Action,
        step: fn(&mut Self, usize, &Action) -> Result<Step>,
    ) {
        match step(self, index, action) {
            Ok(Step::Done) => self.applied.changed += 1,
            Ok(Step::Left(reason)) => self.leave_action(action, reason),
            Err(error) => {
                self.leave_action(action, SkipReason::Failed);
                self.applied.remarks.push(format!("`{}`: {}", action.path, with_source(&error)));
            }
        }
    }

    fn leave_action(&mut self, action: &Action, reason: SkipReason) {
        let is_dir = |entry: &Entry| matches!(entry.kind, EntryKind::Dir { .. });
        let was_dir = action.before.as_ref().is_some_and(|(before, _)| is_dir(before));
        if was_dir && action.after.as_ref().is_some_and(|after| !is_dir(after)) {
            self.refused.insert(action.path.clone());
        }
        self.leave(&action.path, reason);
    }

    fn leave(&mut self, path: &RelPath, reason: SkipReason) {
        self.left.insert(path.clone());
        self.holds_left.insert(path.parent().unwrap_or_default());
        self.applied.left.push(Skip { path: path.clone(), reason });
    }

    /// The directory that holds a path; `None` where it is not there or not a directory any more.
    fn parent(&self, path: &RelPath) -> Result<Option<Dir>> {
        self.root.try_open_dir(&path.parent().unwrap_or_default())
    }

    fn touch(&mut self, path: &RelPath) {
        self.touched.insert(path.parent().unwrap_or_default());
    }

    /// Puts a path's new state in place.
    fn put(&mut self, index: usize, action: &Action) -> Result<Step> {
        let Some(after) = &action.after else { return Ok(Step::Done) };
        if action.path.is_root() {
            // Only its permission bits can change, and they are set last.
            return Ok(Step::Done);
        }
        let Some(parent) = self.parent(&action.path)? else {
            return Ok(Step::Left(SkipReason::Blocked));
        };
        let there = parent.stat(action.path.name())?;
        self.touch(&action.path);
        match (there, &action.before) {
            (Some(stat), Some((before, stamp)))
                if is_as_saved(&parent, action.path.name(), &stat, before, stamp)? =>
            {
                self.replace(index, action, after, before, stamp, &parent)
            }
            (Some(_), _) if is_in_place(&parent, action, after)? => {
                set_file_mode(&parent, action, after)
            }
            (Some(_), _) => Ok(Step::Left(SkipReason::Conflict)),
            (None, Some(_)) if self.stage.dir.stat(&displaced_name(index))?.is_none() => {
                // Somebody removed it after it was saved.
                Ok(Step::Left(SkipReason::Conflict))
            }
            (None, _) => self.create(index, action, after, &parent),
        }
    }

    /// Nothing is there.
    fn create(
        &mut self,
        index: usize,
        action: &Action,
        after: &Entry,
        parent: &Dir,
    ) -> Result<Step> {
        let name = action.path.name();
        if matches!(after.kind, EntryKind::Dir { .. }) {
            // Its own permission bits come last: until then nobody else can look in, and we can
            // write.
            parent.make_dir(name, Mode::from_st_mode(0o700))?;
            return Ok(Step::Done);
        }
        self.ensure_staged(index, action)?;
        self.place(index, parent, name)
    }

    fn place(&self, index: usize, parent: &Dir, name: &[u8]) -> Result<Step> {
        match self.stage.place(index, parent, name)? {
            Placed::Done => Ok(Step::Done),
            Placed::Taken => Ok(Step::Left(SkipReason::Conflict)),
        }
    }

    /// The staged content is there, unless a completed step of an earlier run has used it up.
    fn ensure_staged(&self, index: usize, action: &Action) -> Result<()> {
        if self.stage.dir.stat(&staged_name(index))?.is_none() {
            let preserve_mtime = self.journal.preserve_mtime;
            stage_one(self.access, self.root, self.stage, index, action, preserve_mtime)?;
        }
        Ok(())
    }

    /// What is there is what the safety checkpoint holds.
    fn replace(
        &mut self,
        index: usize,
        action: &Action,
        after: &Entry,
        before: &Entry,
        stamp: &Stamp,
        parent: &Dir,
    ) -> Result<Step> {
        if is_mode_only(action) {
            return change_mode(action, after, stamp, parent);
        }
        let is_dir = |entry: &Entry| matches!(entry.kind, EntryKind::Dir { .. });
        match (is_dir(before), is_dir(after)) {
            (_, true) => {
                if !self.stage.displace(index, parent, action.path.name(), stamp)? {
                    return Ok(Step::Left(SkipReason::Conflict));
                }
                let created = self.create(index, action, after, parent);
                if created.is_err() {
                    // What was made of the directory, if anything, is empty.
                    drop(parent.remove_dir(action.path.name()));
                    self.stage.put_back(index, parent, action.path.name())?;
                }
                created
            }
            (true, false) => self.replace_directory(index, action, stamp, parent),
            (false, false) => self.exchange(index, action, stamp, parent),
        }
    }

    /// Exchanges the staged file with the one in place, and looks at what came out.
    fn exchange(
        &mut self,
        index: usize,
        action: &Action,
        stamp: &Stamp,
        parent: &Dir,
    ) -> Result<Step> {
        self.ensure_staged(index, action)?;
        let (name, staged) = (action.path.name(), staged_name(index));
        match self.stage.dir.exchange(&staged, parent, name)? {
            Exchange::Done => {
                let out = self.stage.dir.stat(&staged)?;
                if out.is_some_and(|stat| stamp.fits(&stat, true)) {
                    return Ok(Step::Done);
                }
                // An editor saved in the moment between: its file goes back. If it saved once more
                // meanwhile, that newer file is in the stage now, and finishing keeps it.
                match self.stage.dir.exchange(&staged, parent, name)? {
                    Exchange::Done | Exchange::Unsupported => Ok(Step::Left(SkipReason::Conflict)),
                }
            }
            Exchange::Unsupported => {
                if !self.stage.displace(index, parent, name, stamp)? {
                    return Ok(Step::Left(SkipReason::Conflict));
                }
                self.place(index, parent, name)
            }
        }
    }

    /// A directory gives way to a file: as a whole, if everything in it is what was saved.
    fn replace_directory(
        &mut self,
        index: usize,
        action: &Action,
        stamp: &Stamp,
        parent: &Dir,
    ) -> Result<Step> {
        self.ensure_staged(index, action)?;
        let (name, displaced) = (action.path.name(), displaced_name(index));
        if !self.stage.displace(index, parent, name, stamp)? {
            return Ok(Step::Left(SkipReason::Conflict));
        }
        // Looked at after it was moved: nobody can reach it by its path any more.
        let is_saved = self.is_all_saved(&self.stage.dir, &displaced, &action.path);
        if !matches!(is_saved, Ok(true)) {
            self.stage.put_back(index, parent, name)?;
            return is_saved.map(|_| Step::Left(SkipReason::Conflict));
        }
        self.place(index, parent, name)
    }

    fn is_all_saved(&self, parent: &Dir, name: &[u8], path: &RelPath) -> Result<bool> {
        let dir = parent.open_child(name)?;
        for inside in dir.names()? {
            let Ok(inside_path) = path.join(&inside) else { return Ok(false) };
            let saved =
                find_action(self.journal, &inside_path).and_then(|action| action.before.as_ref());
            let (Some(stat), Some((before, stamp))) = (dir.stat(&inside)?, saved) else {
                return Ok(false);
            };
            if !is_as_saved(&dir, &inside, &stat, before, stamp)? {
                return Ok(false);
            }
            if stat.kind == FileKind::Dir && !self.is_all_saved(&dir, &inside, &inside_path)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Takes a path away.
    fn remove(&mut self, index: usize, action: &Action) -> Result<Step> {
        let Some((before, stamp)) = &action.before else { return Ok(Step::Done) };
        if action.path.ancestors().any(|above| self.refused.contains(&above)) {
            return Ok(Step::Left(SkipReason::Blocked));
        }
        let Some(parent) = self.parent(&action.path)? else {
            // What was above it has given way, and took it along.
            return Ok(Step::Done);
        };
        let name = action.path.name();
        let Some(stat) = parent.stat(name)? else { return Ok(Step::Done) };
        if !is_as_saved(&parent, name, &stat, before, stamp)? {
            return Ok(Step::Left(SkipReason::Conflict));
        }
        self.touch(&action.path);
        if stat.kind == FileKind::Dir {
            if self.holds_left.contains(&action.path) {
                return Ok(Step::Left(SkipReason::NotEmpty));
            }
            return remove_empty_dir(&parent, name);
        }
        if self.is_another_name(&stat, &action.path, &parent)? {
            return Ok(Step::Left(SkipReason::OtherName));
        }
        if self.stage.displace(index, &parent, name, stamp)? {
            Ok(Step::Done)
        } else {
            Ok(Step::Left(SkipReason::Conflict))
        }
    }

    /// Whether a name about to go leads to the same file as a name that stays in its directory: on a
    /// file system that folds case or normal forms, removing one removes the other.
    ///
    /// Cost: one stat for each change in the directory, once; a listing where the inodes are the same.
    fn is_another_name(&mut self, stat: &FileStat, path: &RelPath, parent: &Dir) -> Result<bool> {
        let directory = path.parent().unwrap_or_default();
        if !self.inodes_in.contains_key(&directory) {
            let mut inodes = HashMap::new();
            for &index in self.put_in.get(&directory).into_iter().flatten() {
                let name = self.journal.actions[index].path.name();
                if let Some(there) = parent.stat(name)? {
                    inodes.insert(there.ino, index);
                }
            }
            self.inodes_in.insert(directory.clone(), inodes);
        }
        let same = self.inodes_in.get(&directory).and_then(|inodes| inodes.get(&stat.ino));
        let Some(&index) = same else { return Ok(false) };
        let stays = self.journal.actions[index].path.name();
        Ok(is_one_name(&parent.names()?, path.name(), stays))
    }

    /// Sets the final permission bits of a directory that was made or whose bits become fewer.
    fn close_directory(&mut self, action: &Action) {
        if self.left.contains(&action.path) {
            return;
        }
        if let Err(error) = set_directory_mode(self.root, action) {
            self.leave(&action.path, SkipReason::Failed);
            self.applied.remarks.push(format!("`{}`: {}", action.path, with_source(&error)));
        }
    }

    /// Makes the changed names durable, so that closing the journal does not come before them.
    fn sync(&self) -> Result<()> {
        let mut dirs = Vec::new();
        for path in &self.touched {
            dirs.extend(self.root.try_open_dir(path)?);
        }
        let items: Vec<ToSync<'_>> = dirs.iter().map(ToSync::Directory).collect();
        disk::sync_all(self.root, &items)
    }
}

/// Gives the directories that an interrupted restore has made the permission bits that they were to
/// have in the end.
pub(crate) fn close_made_directories(root: &Dir, journal: &Journal) -> Result<()> {
    let was_dir = |action: &Action| {
        let before = action.before.as_ref().map(|(before, _)| &before.kind);
        matches!(before, Some(EntryKind::Dir { .. }))
    };
    let mut made = journal.actions.iter().rev().filter(|action| !was_dir(action));
    made.try_for_each(|action| set_directory_mode(root, action))
}

/// Puts back what an interrupted restore has displaced where nothing has taken its place yet: so that
/// each path is as it was or as it was to be, which is what an undo knows to take back.
pub(crate) fn put_displaced_back(root: &Dir, journal: &Journal) -> Result<()> {
    let Some(stage) = Stage::open(root, journal)? else { return Ok(()) };
    // Parents come before what is in them.
    for (index, action) in journal.actions.iter().enumerate() {
        let parent = action.path.parent().unwrap_or_default();
        if action.after.is_some()
            && !action.path.is_root()
            && let Some(parent) = root.try_open_dir(&parent)?
        {
            stage.put_back(index, &parent, action.path.name())?;
        }
    }
    Ok(())
}

/// Sets the permission bits of the directory that an action leaves, if there is one.
fn set_directory_mode(root: &Dir, action: &Action) -> Result<()> {
    let Some(after) = &action.after else { return Ok(()) };
    if !matches!(after.kind, EntryKind::Dir { .. }) {
        return Ok(());
    }
    if action.path.is_root() {
        return root.set_own_mode(after.mode);
    }
    let parent = action.path.parent().unwrap_or_default();
    let Some(parent) = root.try_open_dir(&parent)? else { return Ok(()) };
    let name = action.path.name();
    match parent.stat(name)? {
        Some(stat) if stat.kind == FileKind::Dir && stat.mode != after.mode => {
            parent.set_mode(name, after.mode)
        }
        _ => Ok(()),
    }
}

/// Whether two names that lead to one file are one name to the file system. Hard links are two, and
/// both are listed; of names that differ only in what is folded, the directory lists one.
fn is_one_name(listed: &[Vec<u8>], goes: &[u8], stays: &[u8]) -> bool {
    let is_listed = |name: &[u8]| listed.iter().any(|known| known == name);
    !(is_listed(goes) && is_listed(stays))
}

/// Whether what is at a path is what the safety checkpoint holds.
fn is_as_saved(
    parent: &Dir,
    name: &[u8],
    stat: &FileStat,
    before: &Entry,
    stamp: &Stamp,
) -> Result<bool> {
    if stamp.fits(stat, false) {
        return Ok(true);
    }
    // Changing one name of a file moves the change time that its other names show: then the content
    // decides.
    let may_be = stamp.links > 1 && stamp.fits(stat, true);
    Ok(may_be && holds_one_of(parent, name, std::iter::once(before))?)
}

fn remove_empty_dir(parent: &Dir, name: &[u8]) -> Result<Step> {
    match parent.remove_dir(name) {
        Ok(()) => Ok(Step::Done),
        // Something was put into it meanwhile.
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::DirectoryNotEmpty => {
            Ok(Step::Left(SkipReason::Conflict))
        }
        Err(error) => Err(error),
    }
}

fn is_in_place(parent: &Dir, action: &Action, after: &Entry) -> Result<bool> {
    holds_one_of(parent, action.path.name(), std::iter::once(after))
}

/// Sets the permission bits of a file whose content is in place: they differ only where a
/// change of mode alone was interrupted.
fn set_file_mode(parent: &Dir, action: &Action, after: &Entry) -> Result<Step> {
    let name = action.path.name();
    let is_file = matches!(after.kind, EntryKind::File { .. });
    if is_file && parent.stat(name)?.is_some_and(|stat| stat.mode != after.mode) {
        parent.set_mode(name, after.mode)?;
    }
    Ok(Step::Done)
}

fn change_mode(action: &Action, after: &Entry, stamp: &Stamp, parent: &Dir) -> Result<Step> {
    let name = action.path.name();
    match after.kind {
        EntryKind::File { .. } => {
            // Through a handle, so that the file checked is the file changed.
            let file = parent.open_file(name)?;
            let path = parent.path_of(name);
            if !stamp.fits(&disk::file_stat(&file, &path)?, false) {
                return Ok(Step::Left(SkipReason::Conflict));
            }
            disk::set_file_mode(&file, after.mode, &path)?;
        }
        // A directory that becomes writable must be so before names in it change; one that
        // becomes less comes last.
        EntryKind::Dir { .. } if after.mode.bits() & 0o300 == 0o300 => {
            parent.set_mode(name, after.mode)?;
        }
        _ => {}
    }
    Ok(Step::Done)
}

#[cfg(test)]
mod tests {
    use super::is_one_name;

    #[test]
    fn names_that_are_folded_into_one_are_one_name_and_hard_links_are_two() {
        let listed = |names: &[&str]| -> Vec<Vec<u8>> {
            names.iter().map(|name| name.as_bytes().to_vec()).collect()
        };
        let (upper, lower) = (b"Name".as_slice(), b"name".as_slice());
        assert!(is_one_name(&listed(&["Name", "other"]), upper, lower));
        assert!(is_one_name(&listed(&["other", "name"]), upper, lower));
        assert!(!is_one_name(&listed(&["name", "Name"]), upper, lower));
        let (composed, decomposed) = ("\u{e9}", "e\u{301}");
        assert!(is_one_name(&listed(&[composed]), decomposed.as_bytes(), composed.as_bytes()));
    }
}
