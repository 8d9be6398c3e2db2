//! The staging directory: new contents beside their places, and what they displace.
//!
//! `.turnpoint/stage-<operation>` at the root of the workspace, so that putting a file in place is one
//! rename on one file system. The staged content of change `n` is named `n`; what it displaces is
//! there under `n` too, after an exchange, or under `old-n`.

use rayon::prelude::*;

use crate::access::Access;
use crate::disk::{self, Dir, Exchange, FileKind, Placed, ToSync};
use crate::error::{Error, Result};
use crate::hash::BlobHash;
use crate::journal::{Action, Journal, Stamp};
use crate::limits;
use crate::manifest::{Entry, EntryKind, Mode};
use crate::monitor::{Monitor, Phase};
use crate::path::RelPath;
use crate::threads;

/// The directory of ours in a workspace.
const TURNPOINT: &[u8] = b".turnpoint";

/// The longest name that Linux file systems take.
const NAME_BYTES_MAX: usize = 255;

/// How many versions of one path are kept aside in one restore, besides the first.
const KEPT_UNDER_ONE_NAME_MAX: usize = 1000;

/// An open staging directory.
#[derive(Debug)]
pub(crate) struct Stage {
    /// `.turnpoint`.
    pub(crate) turnpoint: Dir,
    /// The staging directory in it.
    pub(crate) dir: Dir,
}

/// The name of a change's staged content.
pub(crate) fn staged_name(index: usize) -> Vec<u8> {
    index.to_string().into_bytes()
}

/// The name of what a change displaced where it could not be exchanged.
pub(crate) fn displaced_name(index: usize) -> Vec<u8> {
    format!("old-{index}").into_bytes()
}

impl Stage {
    /// Opens the staging directory of `journal`; makes it where it is missing.
    pub(crate) fn open_or_make(root: &Dir, journal: &Journal) -> Result<Self> {
        make_if_missing(root, TURNPOINT)?;
        let turnpoint = root.open_child(TURNPOINT)?;
        let name = journal.stage_name();
        make_if_missing(&turnpoint, name.as_bytes())?;
        let dir = turnpoint.open_child(name.as_bytes())?;
        Ok(Self { turnpoint, dir })
    }

    /// Opens the staging directory of `journal`; `None` where there is none.
    pub(crate) fn open(root: &Dir, journal: &Journal) -> Result<Option<Self>> {
        let name = journal.stage_name();
        let Some(stat) = root.stat(TURNPOINT)? else { return Ok(None) };
        if stat.kind != FileKind::Dir {
            return Ok(None);
        }
        let turnpoint = root.open_child(TURNPOINT)?;
        if turnpoint.stat(name.as_bytes())?.is_none() {
            return Ok(None);
        }
        let dir = turnpoint.open_child(name.as_bytes())?;
        Ok(Some(Self { turnpoint, dir }))
    }

    /// Gives the staged thing of a change its name, if that is free. Where that fails, what the change
    /// had displaced is put back.
    pub(crate) fn place(&self, index: usize, parent: &Dir, name: &[u8]) -> Result<Placed> {
        let placed = self.dir.rename_no_replace(&staged_name(index), parent, name);
        if placed.is_err() {
            self.put_back(index, parent, name)?;
        }
        placed
    }

    /// Moves what has a name into the stage, and puts it back if it is not what `stamp` is of. Returns
    /// whether it was.
    pub(crate) fn displace(
        &self,
        index: usize,
        parent: &Dir,
        name: &[u8],
        stamp: &Stamp,
    ) -> Result<bool> {
        let displaced = displaced_name(index);
        if parent.rename_no_replace(name, &self.dir, &displaced)? == Placed::Taken {
            return Ok(false);
        }
        let out = self.dir.stat(&displaced);
        if matches!(&out, Ok(Some(stat)) if stamp.fits(stat, true)) {
            return Ok(true);
        }
        self.put_back(index, parent, name)?;
        out.map(|_| false)
    }

    /// Puts back what a change has displaced, if anything. Where its name is taken by now, finishing
    /// compares and keeps it.
    pub(crate) fn put_back(&self, index: usize, parent: &Dir, name: &[u8]) -> Result<()> {
        let displaced = displaced_name(index);
        if self.dir.stat(&displaced)?.is_none() {
            return Ok(());
        }
        match self.dir.rename_no_replace(&displaced, parent, name)? {
            Placed::Done | Placed::Taken => Ok(()),
        }
    }
}

/// Whether `.turnpoint` is there before a restore begins: if not, it goes when the restore ends.
pub(crate) fn has_own_directory(root: &Dir) -> Result<bool> {
    Ok(root.stat(TURNPOINT)?.is_some())
}

fn make_if_missing(dir: &Dir, name: &[u8]) -> Result<()> {
    match dir.stat(name)? {
        None => dir.make_dir(name, Mode::from_st_mode(0o700)),
        Some(stat) if stat.kind == FileKind::Dir => Ok(()),
        Some(_) => Err(Error::PlaceTaken { path: dir.path_of(name) }),
    }
}

/// Puts the contents of every change into the staging directory, checked while they are written, with
/// their final modes. Returns remarks: what of a replaced file could not be carried over.
///
/// # Errors
/// [`Error::NoSpace`] before anything is written where the file system has not enough room. After
/// any error the caller discards the stage; the workspace has not changed.
///
/// # Durability
/// Everything staged survives a power cut when it returns.
pub(crate) fn stage(
    access: &Access,
    root: &Dir,
    journal: &Journal,
    monitor: &dyn Monitor,
) -> Result<(Stage, Vec<String>)> {
    let needed: u64 = journal.actions.iter().filter_map(staged_content).map(|(_, size)| size).sum();
    monitor.phase(Phase::Stage, Some(journal.actions.len() as u64));
    disk::require_space(root, needed, limits::DISK_FLOOR_BYTES)?;
    let stage = Stage::open_or_make(root, journal)?;
    let one = |(index, action): (usize, &Action)| -> Result<Option<String>> {
        if monitor.is_cancelled() {
            return Err(Error::Cancelled);
        }
        let remark = stage_one(access, root, &stage, index, action, journal.preserve_mtime)?;
        monitor.advanced(1, staged_content(action).map_or(0, |(_, size)| size));
        Ok(remark)
    };
    let remarks: Vec<Option<String>> = threads::pool("stage")?
        .install(|| journal.actions.par_iter().enumerate().map(one).collect::<Result<_>>())?;
    let names: Vec<Vec<u8>> = journal
        .actions
        .iter()
        .enumerate()
        .filter(|(_, action)| staged_content(action).is_some())
        .map(|(index, _)| staged_name(index))
        .collect();
    let mut items: Vec<ToSync<'_>> =
        names.iter().map(|name| ToSync::Named(&stage.dir, name)).collect();
    let own_name = journal.stage_name();
    items.push(ToSync::Named(&stage.turnpoint, own_name.as_bytes()));
    items.push(ToSync::Named(root, TURNPOINT));
    disk::sync_all(&stage.dir, &items)?;
    root.sync()?;
    Ok((stage, remarks.into_iter().flatten().collect()))
}

/// The blob that a change needs in the stage.
fn staged_content(action: &Action) -> Option<(BlobHash, u64)> {
    if is_mode_only(action) { None } else { action.after.as_ref().and_then(Entry::blob) }
}

/// Whether a change is about permission bits alone. A file with another name is replaced for it: the
/// bits are those of both names, and the other is not to change.
pub(crate) fn is_mode_only(action: &Action) -> bool {
    match (&action.before, &action.after) {
        (Some((before, stamp)), Some(after)) => {
            let is_file = matches!(before.kind, EntryKind::File { .. });
            before.is_same_content(after) && !(is_file && stamp.links > 1)
        }
        _ => false,
    }
}

/// Stages one change. Also used when an interrupted restore finds a staged file gone.
pub(crate) fn stage_one(
    access: &Access,
    root: &Dir,
    stage: &Stage,
    index: usize,
    action: &Action,
    preserve_mtime: bool,
) -> Result<Option<String>> {
    let name = staged_name(index);
    let Some(after) = action.after.as_ref().filter(|_| !is_mode_only(action)) else {
        return Ok(None);
    };
    match &after.kind {
        EntryKind::Symlink { target } => {
            stage.dir.symlink(target, &name)?;
            Ok(None)
        }
        EntryKind::File { size, mtime_ns, hash, .. } => {
            let mut file = stage.dir.create_file(&name)?;
            let path = stage.dir.path_of(&name);
            let copied = access.blobs.copy_to(*hash, *size, &mut file);
            copied.map_err(|error| error.at("write", &path))?;
            disk::check_size(&file, *size, &path)?;
            let remark = match &action.before {
                Some((Entry { kind: EntryKind::File { .. }, .. }, _)) => {
                    keep_attributes(root, &action.path, &file)
                }
                _ => None,
            };
            // On the handle, and before the file has its name: nobody ever sees another mode.
            disk::set_file_mode(&file, after.mode, &path)?;
            if preserve_mtime {
                stage.dir.set_mtime(&name, *mtime_ns)?;
            }
            Ok(remark)
        }
        _ => Ok(None),
    }
}

/// Carries owner and extended attributes (access control lists among them) of the file that is
/// about to be replaced over to `file`. What cannot be carried over is said.
fn keep_attributes(root: &Dir, path: &RelPath, file: &disk::File) -> Option<String> {
    let old = root.open_file_beneath(path).ok()?;
    let lost = disk::copy_attributes(&old, file);
    if lost.is_empty() {
        None
    } else {
        Some(format!("`{path}` could not keep its {}", lost.join(", ")))
    }
}

/// Empties and removes the staging directory, and closes the journal.
///
/// Before anything is removed it is compared by content: what is neither our staged content nor what
/// the safety checkpoint holds for that path was written by somebody at the last moment. It goes back
/// to its path if that still has what the restore put there, else it is kept aside and named.
///
/// Returns remarks and the paths that are conflicts.
pub(crate) fn finish(
    access: &Access,
    root: &Dir,
    journal: &Journal,
) -> Result<(Vec<String>, Vec<RelPath>)> {
    let mut remarks = Vec::new();
    let mut conflicts = Vec::new();
    if let Some(stage) = Stage::open(root, journal)? {
        for name in stage.dir.names()? {
            if let Some(action) = action_of(&name, journal) {
                let emptier = Emptier { root, stage: &stage, journal, action };
                emptier.empty(&name, &mut remarks, &mut conflicts)?;
            }
        }
        let name = journal.stage_name();
        remove_dir_if_empty(&stage.turnpoint, name.as_bytes())?;
    }
    if journal.made_directory {
        remove_dir_if_empty(root, TURNPOINT)?;
    }
    journal.close(&access.layout)?;
    Ok((remarks, conflicts))
}

fn remove_dir_if_empty(parent: &Dir, name: &[u8]) -> Result<()> {
    match parent.remove_dir(name) {
        Err(Error::Io { source, .. })
            if matches!(
                source.kind(),
                std::io::ErrorKind::NotFound | std::io::ErrorKind::DirectoryNotEmpty
            ) =>
        {
            Ok(())
        }
        other => other,
    }
}

fn action_of<'a>(name: &[u8], journal: &'a Journal) -> Option<&'a Action> {
    let text = std::str::from_utf8(name).ok()?;
    let index: usize = text.strip_prefix("old-").unwrap_or(text).parse().ok()?;
    journal.actions.get(index)
}

struct Emptier<'a> {
    root: &'a Dir,
    stage: &'a Stage,
    journal: &'a Journal,
    action: &'a Action,
}

impl Emptier<'_> {
    fn empty(
        &self,
        name: &[u8],
        remarks: &mut Vec<String>,
        conflicts: &mut Vec<RelPath>,
    ) -> Result<()> {
        let dir = &self.stage.dir;
        let Some(stat) = dir.stat(name)? else { return Ok(()) };
        if stat.kind == FileKind::Dir {
            return self.empty_dir(dir, name, &self.action.path, remarks, conflicts);
        }
        let before = self.action.before.as_ref().map(|(entry, _)| entry);
        let known = [before, self.action.after.as_ref()].into_iter().flatten();
        if holds_one_of(dir, name, known)? {
            return dir.unlink(name);
        }
        conflicts.push(self.action.path.clone());
        self.give_back(name, remarks)
    }

    /// Puts an unknown thing back to its path, where that still has what the restore put there.
    fn give_back(&self, name: &[u8], remarks: &mut Vec<String>) -> Result<()> {
        let path = &self.action.path;
        let dir = &self.stage.dir;
        let parent = path.parent().unwrap_or_default();
        if let Some(parent) = self.root.try_open_dir(&parent)? {
            let is_back = match (&self.action.after, parent.stat(path.name())?) {
                (None, None) => dir.rename_no_replace(name, &parent, path.name())? == Placed::Done,
                (Some(after), Some(_)) => self.exchange_back(name, after, &parent)?,
                _ => false,
            };
            if is_back {
                return Ok(());
            }
        }
        self.keep(dir, name, path, remarks)
    }

    /// Takes the restore's own file out of its place again, in exchange for the unknown one.
    fn exchange_back(&self, name: &[u8], after: &Entry, parent: &Dir) -> Result<bool> {
        let (dir, place) = (&self.stage.dir, self.action.path.name());
        let is_ours = |dir: &Dir, name: &[u8]| holds_one_of(dir, name, std::iter::once(after));
        if !is_ours(parent, place)? || dir.exchange(name, parent, place)? != Exchange::Done {
            return Ok(false);
        }
        // What came out is the restore's own, unless somebody exchanged it once more.
        if is_ours(dir, name)? {
            dir.unlink(name)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Moves an unknown thing to where it is kept.
    fn keep(
        &self,
        dir: &Dir,
        name: &[u8],
        path: &RelPath,
        remarks: &mut Vec<String>,
    ) -> Result<()> {
        let kept = self.journal.kept_name();
        make_if_missing(&self.stage.turnpoint, kept.as_bytes())?;
        let mut to = self.stage.turnpoint.open_child(kept.as_bytes())?;
        let mut shown = format!(".turnpoint/{kept}");
        for component in path.parent().unwrap_or_default().components() {
            let chosen = kept_directory(&to, component)?;
            to = to.open_child(&chosen)?;
            shown = format!("{shown}/{}", crate::path::printable(&chosen));
        }
        // A path can be kept twice: what was exchanged, and what was renamed.
        for to_name in numbered(path.name()) {
            if dir.rename_no_replace(name, &to, &to_name)? == Placed::Done {
                let place = crate::path::printable(&to_name);
                remarks.push(format!(
                    "`{path}` was changed during the restore; that version is kept as \
                     {shown}/{place}"
                ));
                return Ok(());
            }
        }
        remarks.push(format!(
            "`{path}` was changed during the restore; that version stays in {}",
            dir.path_of(name).display()
        ));
        Ok(())
    }

    /// Removes a displaced directory: what the safety checkpoint holds goes, the rest is kept.
    fn empty_dir(
        &self,
        parent: &Dir,
        name: &[u8],
        path: &RelPath,
        remarks: &mut Vec<String>,
        conflicts: &mut Vec<RelPath>,
    ) -> Result<()> {
        let listed = parent.open_child(name).and_then(|dir| dir.names().map(|names| (dir, names)));
        let Ok((dir, names)) = listed else {
            // Nobody can say what is in it, so all of it is kept.
            conflicts.push(path.clone());
            return self.keep(parent, name, path, remarks);
        };
        for inside in names {
            let Some(stat) = dir.stat(&inside)? else { continue };
            let Ok(inside_path) = path.join(&inside) else {
                // Longer than any path that is captured.
                conflicts.push(path.clone());
                self.keep(&dir, &inside, path, remarks)?;
                continue;
            };
            if stat.kind == FileKind::Dir {
                self.empty_dir(&dir, &inside, &inside_path, remarks, conflicts)?;
                continue;
            }
            let before = find_action(self.journal, &inside_path)
                .and_then(|action| action.before.as_ref())
                .map(|(entry, _)| entry);
            if holds_one_of(&dir, &inside, before.into_iter())? {
                dir.unlink(&inside)?;
            } else {
                conflicts.push(inside_path.clone());
                self.keep(&dir, &inside, &inside_path, remarks)?;
            }
        }
        remove_dir_if_empty(parent, name)
    }
}

/// The name under which a directory of a kept path is kept: its own, unless a file is kept under
/// that one.
fn kept_directory(parent: &Dir, component: &[u8]) -> Result<Vec<u8>> {
    for name in numbered(component) {
        match parent.stat(&name)? {
            Some(stat) if stat.kind != FileKind::Dir => {}
            Some(_) => return Ok(name),
            None => {
                make_if_missing(parent, &name)?;
                return Ok(name);
            }
        }
    }
    Ok(component.to_vec())
}

/// A name, and others for when it is taken.
fn numbered(name: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let others = (1..=KEPT_UNDER_ONE_NAME_MAX).map(|number| {
        let suffix = format!(".{number}");
        let room = name.len().min(NAME_BYTES_MAX - suffix.len());
        [&name[..room], suffix.as_bytes()].concat()
    });
    std::iter::once(name.to_vec()).chain(others)
}

/// The change of a path. Changes are in order of path.
pub(crate) fn find_action<'a>(journal: &'a Journal, path: &RelPath) -> Option<&'a Action> {
    let index = journal.actions.binary_search_by(|action| action.path.cmp(path)).ok()?;
    journal.actions.get(index)
}

/// Whether the file or symlink `name` has the content of one of `entries`.
pub(crate) fn holds_one_of<'a>(
    dir: &Dir,
    name: &[u8],
    entries: impl Iterator<Item = &'a Entry>,
) -> Result<bool> {
    let Some(stat) = dir.stat(name)? else { return Ok(false) };
    let mut content: Option<BlobHash> = None;
    for entry in entries {
        let same = match (&entry.kind, stat.kind) {
            (EntryKind::File { size, hash, .. }, FileKind::File) if *size == stat.size => {
                let found = match content {
                    Some(found) => found,
                    None => disk::hash_file(&dir.open_file(name)?, &dir.path_of(name))?,
                };
                content = Some(found);
                found == *hash
            }
            (EntryKind::Symlink { target }, FileKind::Symlink) => dir.read_link(name)? == **target,
            (EntryKind::Dir { .. }, FileKind::Dir) => true,
            _ => false,
        };
        if same {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Removes the staging directory of a restore that had not begun to change anything: everything in
/// it was put there by us.
pub(crate) fn discard(access: &Access, root: &Dir, journal: &Journal) -> Result<()> {
    if let Some(stage) = Stage::open(root, journal)? {
        for name in stage.dir.names()? {
            if action_of(&name, journal).is_some() {
                stage.dir.try_unlink(&name)?;
            }
        }
        let name = journal.stage_name();
        remove_dir_if_empty(&stage.turnpoint, name.as_bytes())?;
    }
    if journal.made_directory {
        remove_dir_if_empty(root, TURNPOINT)?;
    }
    journal.close(&access.layout)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    struct Place {
        root: tempfile::TempDir,
        parent: Dir,
        stage: Stage,
    }

    impl Place {
        fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            fs::create_dir_all(root.path().join("turnpoint/stage")).unwrap();
            let parent = Dir::open(root.path()).unwrap();
            let turnpoint = parent.open_child(b"turnpoint").unwrap();
            let dir = turnpoint.open_child(b"stage").unwrap();
            Self { root, parent, stage: Stage { turnpoint, dir } }
        }

        fn write(&self, path: &str, text: &str) {
            fs::write(self.root.path().join(path), text).unwrap();
        }

        fn read(&self, path: &str) -> Option<String> {
            fs::read_to_string(self.root.path().join(path)).ok()
        }

        fn stamp(&self, name: &[u8]) -> Stamp {
            Stamp::of(&self.parent.stat(name).unwrap().unwrap())
        }
    }

    #[test]
    fn what_was_displaced_is_put_back_where_nothing_can_take_its_place() {
        let place = Place::new();
        place.write("name", "the user's");
        assert!(place.stage.displace(3, &place.parent, b"name", &place.stamp(b"name")).unwrap());
        assert_eq!(place.read("name"), None);
        // The staged content is gone, so the last step fails.
        place.stage.place(3, &place.parent, b"name").unwrap_err();
        assert_eq!(place.read("name").unwrap(), "the user's");
        assert_eq!(place.stage.dir.names().unwrap(), [b""; 0]);
        // Nothing was displaced: nothing is put back.
        place.stage.place(4, &place.parent, b"other").unwrap_err();
        assert_eq!(place.read("other"), None);
    }

    #[test]
    fn what_is_not_what_was_saved_is_not_displaced() {
        let place = Place::new();
        place.write("name", "saved");
        let stamp = place.stamp(b"name");
        place.write("name", "saved by an editor since");
        assert!(!place.stage.displace(0, &place.parent, b"name", &stamp).unwrap());
        assert_eq!(place.read("name").unwrap(), "saved by an editor since");
    }

    #[test]
    fn a_name_that_was_taken_meanwhile_is_left_and_so_is_what_was_displaced() {
        let place = Place::new();
        place.write("name", "the user's");
        place.write("turnpoint/stage/0", "staged");
        assert!(place.stage.displace(0, &place.parent, b"name", &place.stamp(b"name")).unwrap());
        place.write("name", "another's");
        assert_eq!(place.stage.place(0, &place.parent, b"name").unwrap(), Placed::Taken);
        place.stage.put_back(0, &place.parent, b"name").unwrap();
        assert_eq!(place.read("name").unwrap(), "another's");
        assert_eq!(place.read("turnpoint/stage/old-0").unwrap(), "the user's");
    }

    #[test]
    fn kept_names_end_and_fit_the_file_system() {
        let long = [b'x'; NAME_BYTES_MAX];
        let names: Vec<Vec<u8>> = numbered(&long).collect();
        assert_eq!((&names[0][..], names.len()), (&long[..], KEPT_UNDER_ONE_NAME_MAX + 1));
        assert!(names[1].ends_with(b"x.1") && names[1].len() == NAME_BYTES_MAX);
        let different: std::collections::BTreeSet<&Vec<u8>> = names.iter().collect();
        assert_eq!(different.len(), names.len());
    }
}
