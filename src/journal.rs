//! The journal of an open restore: enough to complete it, or to discard it, after a crash.
//!
//! One JSON file for each workspace, outside the workspace. It is there before the first temporary
//! file is, and it says `applying` before the first change is made; it goes away last.

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::disk::{self, Dir, FileKind, FileStat};
use crate::error::{Error, Result};
use crate::hash::Digest;
use crate::id::{CheckpointId, OperationId, Seq, SessionName, WorkspaceId};
use crate::layout::Layout;
use crate::manifest::{
    CheckpointRef, Entry, EntryKind, Mode, RestoreVerb, decode_entries, encode_entries,
};
use crate::path::RelPath;
use crate::workspaces::{DirectoryIdentity, Workspaces};

/// A journal of a million changes takes about half of this.
const JOURNAL_BYTES_MAX: u64 = 1 << 30;

/// How far a restore has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum JournalPhase {
    /// Nothing in the workspace has changed: whoever finds it discards it.
    Staging,
    /// Everything is staged and checked: whoever finds it completes it.
    Applying,
}

/// What a path was when the safety checkpoint held it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Stamp {
    /// Its inode.
    pub(crate) inode: u64,
    /// Its length in bytes.
    pub(crate) size: u64,
    /// Its modification time.
    pub(crate) mtime_ns: i64,
    /// Its change time.
    pub(crate) ctime_ns: i64,
    /// How many names it has.
    pub(crate) links: u64,
}

impl Stamp {
    /// The stamp of a file, directory or symlink.
    pub(crate) fn of(stat: &FileStat) -> Self {
        Self {
            inode: stat.ino,
            size: stat.size,
            mtime_ns: stat.mtime_ns,
            ctime_ns: stat.ctime_ns,
            links: stat.nlink,
        }
    }

    /// Whether what is at a path now is what the safety checkpoint held. Renaming a file changes its
    /// change time, so a thing that was just moved is compared without it. A directory's times and
    /// size change with what is in it: it is known by its inode.
    pub(crate) fn fits(&self, stat: &FileStat, moved: bool) -> bool {
        if self.inode != stat.ino {
            return false;
        }
        match stat.kind {
            FileKind::Dir => true,
            _ => {
                self.size == stat.size
                    && self.mtime_ns == stat.mtime_ns
                    && (moved || self.ctime_ns == stat.ctime_ns)
            }
        }
    }
}

/// One change of the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Action {
    /// Where.
    pub(crate) path: RelPath,
    /// As the safety checkpoint holds it.
    pub(crate) before: Option<(Entry, Stamp)>,
    /// As it will be.
    pub(crate) after: Option<Entry>,
}

/// An open restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Journal {
    /// The operation that began it; it names the staging directory.
    pub(crate) operation: OperationId,
    /// The workspace.
    pub(crate) workspace: WorkspaceId,
    /// The directory that is changed: another one at its path is not to be touched.
    pub(crate) root: DirectoryIdentity,
    /// What was asked for.
    pub(crate) verb: RestoreVerb,
    /// The checkpoint to be restored.
    pub(crate) target: CheckpointRef,
    /// The checkpoint that holds the present; none while `staging`, since it may not be made yet. The
    /// one that the operation made is of no use then.
    pub(crate) safety: Option<CheckpointRef>,
    /// Whether `.turnpoint` was made by this restore.
    pub(crate) made_directory: bool,
    /// Whether recorded modification times are put back.
    pub(crate) preserve_mtime: bool,
    /// How far it has come.
    pub(crate) phase: JournalPhase,
    /// In order of path.
    pub(crate) actions: Vec<Action>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireJournal {
    format: u64,
    operation: String,
    workspace: String,
    root: DirectoryIdentity,
    verb: RestoreVerb,
    target: WireRef,
    safety: Option<WireRef>,
    made_directory: bool,
    preserve_mtime: bool,
    phase: JournalPhase,
    /// The entries before and after, each as a leaf of any length; `absent` where there is none.
    before: String,
    after: String,
    stamps: Vec<Option<Stamp>>,
    digest: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireRef {
    session: String,
    seq: u64,
    digest: String,
}

impl Journal {
    /// The name of the staging directory inside `.turnpoint`.
    pub(crate) fn stage_name(&self) -> String {
        format!("stage-{}", self.operation)
    }

    /// Where a file that nobody knows is kept, inside `.turnpoint`.
    pub(crate) fn kept_name(&self) -> String {
        format!("kept-{}", self.operation)
    }

    /// Writes it. Durable when it returns.
    pub(crate) fn write(&self, layout: &Layout, tmp: &Dir) -> Result<()> {
        let name = format!("{}.json", self.workspace);
        let dir = Dir::open(&layout.journals())?;
        disk::replace_durably(&dir, name.as_bytes(), &self.encode(), tmp)
    }

    /// Removes it: the restore is over. Durable when it returns.
    pub(crate) fn close(&self, layout: &Layout) -> Result<()> {
        let name = format!("{}.json", self.workspace);
        let dir = Dir::open(&layout.journals())?;
        disk::remove_durably(&dir, name.as_bytes()).map(|_| ())
    }

    /// Whether a restore of any workspace may be open; in doubt it may.
    pub(crate) fn may_exist(layout: &Layout) -> bool {
        let names = Dir::open(&layout.journals()).and_then(|dir| dir.names());
        !names.is_ok_and(|names| names.is_empty())
    }

    /// Reads the journal of a workspace; `None` where no restore is open.
    ///
    /// # Errors
    /// [`Error::JournalUnreadable`] where it is there and cannot be understood; [`Error::Io`].
    pub(crate) fn read(layout: &Layout, workspace: WorkspaceId) -> Result<Option<Self>> {
        let path = layout.journal(workspace);
        let unreadable = |reason: String| {
            let known = Workspaces::new(layout).all_remembered().unwrap_or_default();
            let root = known.into_iter().find(|it| it.id == workspace);
            let root = root.and_then(|workspace| workspace.roots.into_iter().next());
            Error::JournalUnreadable { path: path.clone(), reason, root }
        };
        let text = match disk::read_small(&path, JOURNAL_BYTES_MAX) {
            Ok(Some(text)) => text,
            Ok(None) => return Ok(None),
            Err(error) if error.is_damage() => return Err(unreadable(error.with_source())),
            Err(error) => return Err(error),
        };
        Self::decode(&text).map(Some).map_err(unreadable)
    }

    /// Gives the journal of a workspace another name, under which nobody takes it for one; `None`
    /// where there is none. For one that cannot be understood.
    pub(crate) fn set_aside(
        layout: &Layout,
        workspace: WorkspaceId,
    ) -> Result<Option<std::path::PathBuf>> {
        let name = format!("{workspace}.json");
        let dir = Dir::open(&layout.journals())?;
        disk::set_aside(&dir, name.as_bytes(), &dir)
    }

    fn encode(&self) -> Vec<u8> {
        let absent = |path: &RelPath| Entry {
            path: path.clone(),
            mode: Mode::default(),
            kind: EntryKind::Absent,
        };
        let before = |action: &Action| match &action.before {
            Some((entry, _)) => entry.clone(),
            None => absent(&action.path),
        };
        let after = |action: &Action| action.after.clone().unwrap_or_else(|| absent(&action.path));
        let before: Vec<Entry> = self.actions.iter().map(before).collect();
        let after: Vec<Entry> = self.actions.iter().map(after).collect();
        let text =
            |entries: &[Entry]| String::from_utf8_lossy(&encode_entries(entries)).into_owned();
        let stamp = |action: &Action| action.before.as_ref().map(|(_, stamp)| *stamp);
        let mut wire = WireJournal {
            format: 1,
            operation: self.operation.to_string(),
            workspace: self.workspace.to_string(),
            root: self.root,
            verb: self.verb,
            target: wire_ref(&self.target),
            safety: self.safety.as_ref().map(wire_ref),
            made_directory: self.made_directory,
            preserve_mtime: self.preserve_mtime,
            phase: self.phase,
            before: text(&before),
            after: text(&after),
            stamps: self.actions.iter().map(stamp).collect(),
            digest: String::new(),
        };
        // Strings, integers and vectors always have a JSON form.
        wire.digest = Digest::of(&serde_json::to_vec(&wire).unwrap_or_default()).to_string();
        serde_json::to_vec(&wire).unwrap_or_default()
    }

    fn decode(text: &[u8]) -> Result<Self, String> {
        let mut wire: WireJournal =
            serde_json::from_slice(text).map_err(|error| error.to_string())?;
        if wire.format != 1 {
            return Err(format!("its format is {}", wire.format));
        }
        let digest = std::mem::take(&mut wire.digest);
        let computed = Digest::of(&serde_json::to_vec(&wire).unwrap_or_default());
        if computed.to_string() != digest {
            return Err("its checksum does not match its text".to_owned());
        }
        let before = decode_entries(wire.before.as_bytes())?;
        let after = decode_entries(wire.after.as_bytes())?;
        if before.len() != after.len() || before.len() != wire.stamps.len() {
            return Err("its lists differ in length".to_owned());
        }
        let mut actions = Vec::with_capacity(before.len());
        for ((before, after), stamp) in before.into_iter().zip(after).zip(wire.stamps) {
            if before.path != after.path {
                return Err(format!("`{}` and `{}` are one change", before.path, after.path));
            }
            let is_there = before.kind != EntryKind::Absent;
            let path = before.path.clone();
            let before = match (is_there, stamp) {
                (true, Some(stamp)) => Some((before, stamp)),
                (false, None) => None,
                _ => return Err(format!("`{path}` has no stamp, or one too many")),
            };
            let after = Some(after).filter(|after| after.kind != EntryKind::Absent);
            actions.push(Action { path, before, after });
        }
        if wire.phase == JournalPhase::Applying && wire.safety.is_none() {
            return Err("it does not name what was saved".to_owned());
        }
        let id = |error: crate::id::InvalidId| error.to_string();
        Ok(Self {
            operation: wire.operation.parse().map_err(id)?,
            workspace: wire.workspace.parse().map_err(id)?,
            root: wire.root,
            verb: wire.verb,
            target: from_wire_ref(&wire.target)?,
            safety: wire.safety.as_ref().map(from_wire_ref).transpose()?,
            made_directory: wire.made_directory,
            preserve_mtime: wire.preserve_mtime,
            phase: wire.phase,
            actions,
        })
    }
}

fn wire_ref(reference: &CheckpointRef) -> WireRef {
    WireRef {
        session: reference.id.session.as_str().to_owned(),
        seq: reference.id.seq.get(),
        digest: reference.digest.to_string(),
    }
}

fn from_wire_ref(wire: &WireRef) -> Result<CheckpointRef, String> {
    let session = SessionName::new(&wire.session).map_err(|error| error.to_string())?;
    let seq = Seq::new(wire.seq).ok_or("its number is too large")?;
    let digest = wire.digest.parse().map_err(|_| "its digest is not one".to_owned())?;
    Ok(CheckpointRef { id: CheckpointId { session, seq }, digest })
}

/// Removes the journals that were set aside: they have what links led to that a restore was to touch.
///
/// # Durability
/// They stay removed when this returns.
pub(crate) fn forget_set_aside(layout: &Layout) -> Result<()> {
    let journals = Dir::open(&layout.journals())?;
    let is_aside = |name: &[u8]| name.windows(ASIDE.len()).any(|part| part == ASIDE);
    for name in journals.names()?.iter().filter(|name| is_aside(name)) {
        journals.try_unlink(name)?;
    }
    journals.sync()
}

/// In the name of a journal that was set aside.
const ASIDE: &[u8] = b".json.damaged";

/// What all open restores need.
#[derive(Debug, Default)]
pub(crate) struct Journals {
    /// Their targets and what they saved first.
    pub(crate) needed: Vec<CheckpointId>,
    /// The journals that cannot be read, each with the reason: nobody knows what they need.
    pub(crate) unreadable: Vec<(WorkspaceId, Error)>,
}

/// Reads the journals of all workspaces.
///
/// # Errors
/// Where they cannot be listed.
pub(crate) fn survey(layout: &Layout) -> Result<Journals> {
    let mut journals = Journals::default();
    for workspace in workspaces(layout)? {
        match Journal::read(layout, workspace) {
            Ok(Some(journal)) => {
                let named = [Some(journal.target), journal.safety];
                journals.needed.extend(named.into_iter().flatten().map(|it| it.id));
            }
            Ok(None) => {}
            Err(error) => journals.unreadable.push((workspace, error)),
        }
    }
    Ok(journals)
}

/// The journals of all workspaces that can be understood.
///
/// # Errors
/// Where they cannot be listed.
pub(crate) fn readable(layout: &Layout) -> Result<Vec<(WorkspaceId, Journal)>> {
    let read = |workspace| Some((workspace, Journal::read(layout, workspace).ok()??));
    Ok(workspaces(layout)?.into_iter().filter_map(read).collect())
}

/// The workspaces that have a journal, by the names of the files.
fn workspaces(layout: &Layout) -> Result<Vec<WorkspaceId>> {
    let workspace = |name: &[u8]| -> Option<WorkspaceId> {
        std::str::from_utf8(name).ok()?.strip_suffix(".json")?.parse().ok()
    };
    Ok(disk::list_dir(&layout.journals())?
        .into_iter()
        .filter_map(|(name, _)| workspace(&name))
        .collect())
}

/// The directory of this program in a workspace's root.
pub(crate) const DIRECTORY: &[u8] = b".turnpoint";

/// The names in [`DIRECTORY`] that restores have left below `root`: stages, and what was kept.
pub(crate) fn left_in(root: &Dir) -> Result<Vec<Vec<u8>>> {
    if root.stat(DIRECTORY)?.is_none_or(|stat| stat.kind != FileKind::Dir) {
        return Ok(Vec::new());
    }
    let mut names = root.open_child(DIRECTORY)?.names()?;
    names.retain(|name| name.starts_with(b"stage-") || name.starts_with(b"kept-"));
    names.sort();
    Ok(names)
}

/// The checkpoints that open restores need.
///
/// # Errors
/// A journal that cannot be understood is an error: nobody knows what it needs, so nothing may be
/// pruned.
pub(crate) fn needed_by_journals(layout: &Layout) -> Result<Vec<CheckpointId>> {
    let journals = survey(layout)?;
    match journals.unreadable.into_iter().next() {
        Some((_, error)) => Err(error),
        None => Ok(journals.needed),
    }
}
