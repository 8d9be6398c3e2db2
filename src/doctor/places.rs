//! Every file and directory of the store from outside: does it belong there, may others read it, can
//! its owner, is its time in the future.
//!
//! No file is opened, and no symlink followed.

use std::path::{Path, PathBuf};

use crate::disk::{self, Dir, FileKind, FileStat};
use crate::doctor::{Condition, Diagnosis, FIX, is_ahead};
use crate::error::{Error, Result};
use crate::hash::BlobHash;
use crate::id::{OperationId, PackId, RunId, Seq, SessionName, WorkspaceId};
use crate::layout::Layout;
use crate::manifest::Mode;
use crate::path::shell_word;
use crate::verify::FindingKind;

/// The directories of a store, and what is in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Root,
    Session,
    Blobs,
    Shard,
    Packs,
    Workspaces,
    Workspace,
    Runs,
    Journals,
    Leases,
    Locks,
    Temporary,
    Quarantine,
}

/// What a name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sort {
    Directory(Place),
    File,
    /// Kept when something was made anew, under a name that nobody reads.
    Kept,
    /// The index that was replaced.
    Aside,
    /// An index that is being built, or was.
    Unfinished,
    Unknown,
}

/// What was seen of one kind: where first, and how often.
#[derive(Debug, Default)]
struct Tally {
    first: Option<(PathBuf, String)>,
    more: u64,
}

impl Tally {
    fn add(&mut self, path: &Path, what: impl FnOnce() -> String) {
        if self.first.is_none() {
            self.first = Some((path.to_owned(), what()));
        } else {
            self.more += 1;
        }
    }

    fn diagnosis(
        self,
        condition: Condition,
        next: impl FnOnce(&Path) -> String,
    ) -> Option<Diagnosis> {
        let (path, mut message) = self.first?;
        if self.more > 0 {
            message = format!("{message}; and {} more like it", self.more);
        }
        let next = next(&path);
        Some(Diagnosis::new(condition, path, message, next))
    }
}

#[derive(Debug, Default)]
struct Seen {
    user: u32,
    open: Tally,
    closed: Tally,
    foreign: Tally,
    owner: u32,
    ahead: Tally,
    unknown: Tally,
    kept: Tally,
    aside: Tally,
    unfinished: Tally,
    quarantine: (u64, u64),
    unlisted: Vec<Diagnosis>,
}

/// Looks at everything in the store's directory.
pub(super) fn look(layout: &Layout) -> Result<Vec<Diagnosis>> {
    let root = Dir::open(layout.root())?;
    let mut seen = Seen { user: disk::user(), ..Seen::default() };
    seen.note(layout.root(), &root.stat_self()?);
    seen.enter(Place::Root, &root)?;
    let mut found = obstructed(layout)?;
    for path in layout.directories() {
        if disk::modified_ns(&path)?.is_none() {
            let next = format!("{FIX} makes it again");
            let message = "the directory is missing";
            found.push(Diagnosis::new(Condition::DirectoryMissing, path, message, next));
        }
    }
    found.extend(home_open_to_others(layout, seen.user)?);
    found.extend(seen.diagnoses(layout));
    Ok(found)
}

/// What is in the place of a directory without which no command works.
pub(crate) fn obstructed(layout: &Layout) -> Result<Vec<Diagnosis>> {
    let mut found = Vec::new();
    let optional = [layout.packs(), layout.quarantine(), layout.locks()];
    for path in layout.directories().into_iter().chain(optional) {
        if disk::modified_ns(&path)?.is_some() && !disk::is_directory(&path)? {
            let word = shell_word(&path);
            let next = format!("look at it, and move it away: `ls -ld {word}`; then {FIX}");
            let condition = Condition::Damage(FindingKind::DirectoryUnreadable);
            let message = "something else is in the place of the directory";
            found.push(Diagnosis::new(condition, path, message, next));
        }
    }
    Ok(found)
}

/// The sessions home may be of any mode that lets nobody else rename what is in it; a store that others
/// could exchange is refused by every command.
fn home_open_to_others(layout: &Layout, user: u32) -> Result<Option<Diagnosis>> {
    let stat = Dir::open(layout.home())?.stat_self()?;
    let word = shell_word(layout.home());
    let (condition, message, next) = if stat.uid != user {
        let message = format!("it belongs to user {}, not to user {user}", stat.uid);
        (Condition::OwnerForeign, message, belongs_to_other(stat.uid, user, &word, ""))
    } else if stat.mode.bits() & 0o022 != 0 {
        let message = format!("its mode {} lets others exchange the store", stat.mode);
        (Condition::PermissionsOpen, message, format!("`chmod go-w {word}`"))
    } else {
        return Ok(None);
    };
    Ok(Some(Diagnosis::new(condition, layout.home(), message, next)))
}

/// What to do about something that belongs to `owner`. Root does not take it for itself: the store is
/// that user's, who could not use it any more.
fn belongs_to_other(owner: u32, user: u32, word: &str, option: &str) -> String {
    match user {
        0 => format!(
            "run turnpoint as user {owner}, or `chown {option}0 {word}` if it is to be root's"
        ),
        _ => format!("`chown {option}{user} {word}`, as root"),
    }
}

impl Seen {
    /// Looks at the names in `dir`, and then into the directories among them.
    fn enter(&mut self, place: Place, dir: &Dir) -> Result<()> {
        let mut names = dir.names()?;
        names.sort_unstable();
        let mut inside: Vec<(Place, Vec<u8>)> = Vec::new();
        for name in names {
            // Gone since the listing.
            let Some(stat) = dir.stat(&name)? else { continue };
            let path = dir.path_of(&name);
            let sort = sort_of(place, &name, stat.kind);
            if !matches!(sort, Sort::Unknown) {
                self.note(&path, &stat);
            }
            match sort {
                Sort::Directory(place) => inside.push((place, name)),
                Sort::File => {}
                Sort::Kept => {
                    self.kept
                        .add(&path, || "it was damaged and is kept; nothing reads it".to_owned());
                }
                Sort::Aside => self.aside.add(&path, || {
                    "it was the index before that was built anew; nothing reads it".to_owned()
                }),
                Sort::Unfinished => self.unfinished.add(&path, || {
                    "the building of an index was interrupted, or goes on now".to_owned()
                }),
                Sort::Unknown => self.unknown.add(&path, || "it is no part of a store".to_owned()),
            }
            if place == Place::Quarantine && stat.kind != FileKind::Dir {
                self.quarantine.0 += 1;
                self.quarantine.1 += stat.size;
            }
        }
        for (place, name) in inside {
            let entered = dir.open_child(&name).and_then(|dir| self.enter(place, &dir));
            if let Err(error) = entered
                // Gone since the listing.
                && dir.stat(&name)?.is_some()
            {
                let path = dir.path_of(&name);
                let next = format!("look at it: `ls -ld {}`", shell_word(&path));
                let kind = Condition::Damage(FindingKind::DirectoryUnreadable);
                self.unlisted.push(Diagnosis::new(kind, path, error.with_source(), next));
            }
        }
        Ok(())
    }

    fn note(&mut self, path: &Path, stat: &FileStat) {
        let bits = stat.mode.bits();
        let needed = match stat.kind {
            FileKind::Dir => 0o700,
            FileKind::File => 0o600,
            // The mode of a symlink says nothing.
            _ => return,
        };
        if stat.uid != self.user {
            let user = self.user;
            if self.foreign.first.is_none() {
                self.owner = stat.uid;
            }
            let what = || format!("it belongs to user {}, not to user {user}", stat.uid);
            self.foreign.add(path, what);
        }
        if bits & 0o077 != 0 {
            self.open.add(path, || format!("its mode {} is not for its owner alone", stat.mode));
        }
        if bits & needed != needed {
            let what =
                || format!("its mode {} keeps its owner from reading or changing it", stat.mode);
            self.closed.add(path, what);
        }
        if is_ahead(stat.mtime_ns) {
            self.ahead.add(path, || {
                "its time is in the future: the clock was ahead, or is behind now; what is \
                 new by its time is not removed by a collection"
                    .to_owned()
            });
        }
    }

    fn diagnoses(self, layout: &Layout) -> Vec<Diagnosis> {
        let remove = |path: &Path| format!("`rm -r {}`, if you do not want it", shell_word(path));
        let (owner, user) = (self.owner, self.user);
        let mut found = self.unlisted;
        found.extend(
            self.open.diagnosis(Condition::PermissionsOpen, |_| format!("{FIX} takes that away")),
        );
        found.extend(self.closed.diagnosis(Condition::PermissionsMissing, |_| {
            format!("`chmod -R u+rwX {}`, unless it is meant", shell_word(layout.root()))
        }));
        found.extend(self.foreign.diagnosis(Condition::OwnerForeign, |_| {
            belongs_to_other(owner, user, &shell_word(layout.root()), "-R ")
        }));
        found.extend(self.ahead.diagnosis(Condition::TimeAhead, |path| {
            format!("set the clock right: `date` and `ls -l {}`", shell_word(path))
        }));
        found.extend(self.unknown.diagnosis(Condition::NameUnknown, |path| {
            format!("move it out of the store, if it is yours: `ls -ld {}`", shell_word(path))
        }));
        found.extend(self.kept.diagnosis(Condition::DamagedKept, remove));
        found.extend(self.aside.diagnosis(Condition::IndexAside, |_| {
            let store = shell_word(layout.root());
            format!("`rm {store}/index.db.aside*`, if you do not want it")
        }));
        found.extend(
            self.unfinished.diagnosis(Condition::IndexUnfinished, |_| format!("{FIX} removes it")),
        );
        if let (files @ 1.., bytes) = self.quarantine {
            let quarantine = layout.quarantine();
            let files =
                if files == 1 { "1 file is".to_owned() } else { format!("{files} files are") };
            let message = format!("{files} kept there, which nothing reads");
            let next = format!(
                "look at it, and remove what you do not want: `ls -lR {}`",
                shell_word(&quarantine)
            );
            let condition = Condition::QuarantineKept;
            let mut kept = Diagnosis::new(condition, quarantine, message, next);
            kept.bytes = Some(bytes);
            found.push(kept);
        }
        found
    }
}

/// What a name in a place of the store is.
fn sort_of(place: Place, name: &[u8], kind: FileKind) -> Sort {
    let Ok(name) = std::str::from_utf8(name) else {
        return if place == Place::Quarantine { in_quarantine(kind) } else { Sort::Unknown };
    };
    match place {
        Place::Quarantine => return in_quarantine(kind),
        // What an operation does there is its own business.
        Place::Temporary => return Sort::File,
        _ => {}
    }
    if is_kept_name(name) && place != Place::Root {
        return Sort::Kept;
    }
    match kind {
        FileKind::Dir => directory_in(place, name).map_or(Sort::Unknown, Sort::Directory),
        // What is in the place of a directory of the store is told for itself.
        _ if place == Place::Root && is_own_directory(name) => Sort::File,
        FileKind::File if place == Place::Root => file_in_root(name),
        FileKind::File if is_file_of(place, name) => Sort::File,
        // What is in the place of a session's directory, or a blob, is a verification's to tell.
        _ if place == Place::Root && SessionName::new(name).is_ok() => Sort::File,
        _ if place == Place::Shard => Sort::File,
        _ => Sort::Unknown,
    }
}

const fn in_quarantine(kind: FileKind) -> Sort {
    match kind {
        FileKind::Dir => Sort::Directory(Place::Quarantine),
        _ => Sort::File,
    }
}

/// Whether the directory of that name in the store's is not a session's.
fn is_own_directory(name: &str) -> bool {
    directory_in(Place::Root, name).is_some_and(|place| place != Place::Session)
}

fn directory_in(place: Place, name: &str) -> Option<Place> {
    match (place, name) {
        (Place::Root, "blobs") => Some(Place::Blobs),
        (Place::Root, "packs") => Some(Place::Packs),
        (Place::Root, "workspaces") => Some(Place::Workspaces),
        (Place::Root, "journal") => Some(Place::Journals),
        (Place::Root, "leases") => Some(Place::Leases),
        (Place::Root, "locks") => Some(Place::Locks),
        (Place::Root, "tmp") => Some(Place::Temporary),
        (Place::Root, "quarantine") => Some(Place::Quarantine),
        (Place::Root, name) => SessionName::new(name).is_ok().then_some(Place::Session),
        (Place::Blobs, name) => {
            let is_shard =
                name.len() == 2 && name.bytes().all(|byte| b"0123456789abcdef".contains(&byte));
            is_shard.then_some(Place::Shard)
        }
        (Place::Workspaces, name) => {
            name.parse::<WorkspaceId>().is_ok().then_some(Place::Workspace)
        }
        (Place::Workspace, "runs") => Some(Place::Runs),
        _ => None,
    }
}

fn file_in_root(name: &str) -> Sort {
    let index = crate::index::FILE_NAME;
    match name {
        "format.json" | "operations.jsonl" | "ballast" | ".tally" => Sort::File,
        _ if name.starts_with(&format!("{index}.aside")) => Sort::Aside,
        _ if name.starts_with(crate::index::NEW_FILE_NAME) => Sort::Unfinished,
        _ if name.strip_prefix(index).is_some_and(|rest| matches!(rest, "" | "-wal" | "-shm")) => {
            Sort::File
        }
        _ if SessionName::new(name).is_ok() => Sort::File,
        _ => Sort::Unknown,
    }
}

fn is_file_of(place: Place, name: &str) -> bool {
    let stem = |suffix: &str| name.strip_suffix(suffix);
    match place {
        Place::Session => {
            let is_number = |stem: Option<&str>| stem.is_some_and(|it| it.parse::<Seq>().is_ok());
            name == "session.json" || is_number(stem(".json")) || is_number(stem(".pin"))
        }
        Place::Shard => name.parse::<BlobHash>().is_ok(),
        Place::Packs => stem(".pack").is_some_and(|stem| stem.parse::<PackId>().is_ok()),
        Place::Workspace => {
            matches!(name, "workspace.json" | "stat-cache" | "tracked" | "audited")
        }
        Place::Runs => {
            let run = stem(".json").or_else(|| stem(".lock"));
            run.is_some_and(|run| run.parse::<RunId>().is_ok())
        }
        Place::Journals => {
            name == "purge.json"
                || stem(".json").is_some_and(|stem| stem.parse::<WorkspaceId>().is_ok())
        }
        Place::Leases => name.parse::<OperationId>().is_ok(),
        Place::Locks => stem(".lock").is_some(),
        Place::Temporary | Place::Quarantine => true,
        Place::Root | Place::Blobs | Place::Workspaces => false,
    }
}

/// Names that [`disk::set_aside`] gives.
fn is_kept_name(name: &str) -> bool {
    name.rsplit_once(".damaged").is_some_and(|(_, rest)| {
        rest.is_empty()
            || rest.strip_prefix('-').is_some_and(|number| number.parse::<u32>().is_ok())
    })
}

/// Takes from everybody but the owner what they may do with the store's own directories and files.
/// Nothing is given to anybody. Symlinks are left alone.
///
/// # Errors
/// [`Error::Io`], but not for what belongs to another user.
pub(crate) fn tighten(layout: &Layout) -> Result<()> {
    let root = Dir::open(layout.root())?;
    let stat = root.stat_self()?;
    if stat.mode.bits() & 0o077 != 0 {
        root.set_own_mode(Mode::from_st_mode(stat.mode.bits() & 0o700))?;
    }
    tighten_in(Place::Root, &root)
}

fn tighten_in(place: Place, dir: &Dir) -> Result<()> {
    for name in dir.names()? {
        let Some(stat) = dir.stat(&name)? else { continue };
        let sort = sort_of(place, &name, stat.kind);
        let allowed = match stat.kind {
            // What is no part of a store is somebody else's.
            _ if matches!(sort, Sort::Unknown) => continue,
            FileKind::Dir => 0o700,
            FileKind::File => 0o600,
            _ => continue,
        };
        if stat.mode.bits() & 0o077 != 0 {
            match dir.set_mode(&name, Mode::from_st_mode(stat.mode.bits() & allowed)) {
                // It belongs to another user, which is told as such, and stops nothing else.
                Err(Error::Io { source, .. })
                    if source.kind() == std::io::ErrorKind::PermissionDenied => {}
                other => other?,
            }
        }
        if let Sort::Directory(place) = sort {
            tighten_in(place, &dir.open_child(&name)?)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_its_place() {
        let id = "3f9c2ab17d5e4c8a9b06e1d2f4a7c835";
        let hash = "ab".repeat(32);
        let (file, dir) = (FileKind::File, FileKind::Dir);
        let sort = |place, name: &str, kind| sort_of(place, name.as_bytes(), kind);
        for (place, name, kind, expected) in [
            (Place::Root, "format.json", file, Sort::File),
            (Place::Root, "index.db", file, Sort::File),
            (Place::Root, "index.db-wal", file, Sort::File),
            (Place::Root, "index.db.aside-wal", file, Sort::Aside),
            (Place::Root, "index.db.new", file, Sort::Unfinished),
            (Place::Root, "index.dbx", file, Sort::Unknown),
            (Place::Root, "fix.damaged", dir, Sort::Directory(Place::Session)),
            (Place::Root, ".hidden", file, Sort::Unknown),
            (Place::Root, "a\nb", dir, Sort::Unknown),
            (Place::Workspace, "runs", dir, Sort::Directory(Place::Runs)),
            (Place::Runs, "00aa11bb.json", file, Sort::File),
            (Place::Runs, "00aa11bb.lock", file, Sort::File),
            (Place::Runs, "1.json", file, Sort::Unknown),
            (Place::Session, "12.json", file, Sort::File),
            (Place::Session, "12.pin", file, Sort::File),
            (Place::Session, "session.json.damaged-2", file, Sort::Kept),
            (Place::Session, "12.json", dir, Sort::Unknown),
            (Place::Session, "notes.txt", file, Sort::Unknown),
            (Place::Blobs, "ab", dir, Sort::Directory(Place::Shard)),
            (Place::Blobs, "AB", dir, Sort::Unknown),
            (Place::Shard, hash.as_str(), file, Sort::File),
            (Place::Leases, id, file, Sort::File),
            (Place::Workspaces, id, dir, Sort::Directory(Place::Workspace)),
            (Place::Quarantine, "anything", file, Sort::File),
        ] {
            assert_eq!(sort(place, name, kind), expected, "{place:?} {name}");
        }
        assert_eq!(sort_of(Place::Root, b"\xff", file), Sort::Unknown);
    }
}
