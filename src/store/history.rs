//! Looking at history: list, show, ls, cat, and finding the checkpoint that a word means.
//!
//! Manifests and pages are read, the truth; the index is asked which checkpoints are being pruned,
//! and, as a short cut, which are of one workspace. All of it works on a store that cannot be
//! written, and without an index.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::slice;

use crate::checkpoint::{PinFile, Place, in_order_of_making};
use crate::clock::Timestamp;
use crate::disk::{self, LockKind};
use crate::error::{Error, Result};
use crate::hash::Digest;
use crate::id::{CheckpointId, Seq, SessionName, WorkspaceId};
use crate::index::{FILE_NAME, ReadTx};
use crate::journal::{Journal, JournalPhase};
use crate::manifest::{
    Counts, Coverage, Entry, EntryKind, Manifest, RestoreRecord, Trigger, read_entries, read_part,
};
use crate::monitor::{Monitor, Notice};
use crate::path::RelPath;
use crate::runs;
use crate::sessions::{Found, with_source};
use crate::store::target::{part_of, require_spoken_of};
use crate::store::{Reading, Store, open_root, session_name};
use crate::workspaces::is_default_session;

/// Which checkpoints to list.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub enum ListQuery {
    /// All of one session, of whatever workspace.
    Session(String),
    /// All of the workspace at this path, of whatever session.
    Workspace(PathBuf),
    /// All.
    #[default]
    All,
}

/// One checkpoint in a list.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CheckpointSummary {
    /// Its session and number.
    pub id: CheckpointId,
    /// When it was made.
    pub created_at: Timestamp,
    /// The workspace.
    pub workspace: WorkspaceId,
    /// Where the workspace was.
    pub root: PathBuf,
    /// Its label: the one given last.
    pub label: Option<String>,
    /// What made it.
    pub trigger: String,
    /// Whether everything in scope is held whole.
    pub complete: bool,
    /// Whether retention keeps it.
    pub pinned: bool,
    /// A remark.
    pub note: Option<String>,
    /// What the capture saw and did.
    pub counts: Counts,
    /// How many paths it has.
    pub entries: u64,
    /// Whether it is a checkpoint of given paths: it speaks of those that a restore was about to change
    /// ([`Store::paths_spoken_of`]), and elsewhere says what the one before it says.
    pub is_part: bool,
    /// For a safety checkpoint: the restore that it was made for.
    pub restore: Option<RestoreRecord>,
}

/// One line of a list.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ListItem {
    /// A checkpoint.
    Checkpoint(Box<CheckpointSummary>),
    /// A manifest of another program: its number is reserved, and it is left alone.
    Legacy(CheckpointId),
    /// A manifest, or its pin, that cannot be understood.
    Unreadable {
        /// Which one.
        id: CheckpointId,
        /// The file at fault.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

impl ListItem {
    /// Which checkpoint it is about.
    pub fn id(&self) -> &CheckpointId {
        match self {
            Self::Checkpoint(summary) => &summary.id,
            Self::Legacy(id) | Self::Unreadable { id, .. } => id,
        }
    }
}

/// Checkpoints, the oldest first.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Listing {
    /// In the order in which they were made, whatever the clock said then.
    pub items: Vec<ListItem>,
}

impl Listing {
    /// How many items cannot be understood.
    pub fn unreadable(&self) -> usize {
        self.items.iter().filter(|item| matches!(item, ListItem::Unreadable { .. })).count()
    }

    /// The checkpoints alone.
    pub fn checkpoints(&self) -> impl Iterator<Item = &CheckpointSummary> {
        self.items.iter().filter_map(|item| match item {
            ListItem::Checkpoint(summary) => Some(&**summary),
            _ => None,
        })
    }
}

/// One session in a list.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SessionSummary {
    /// Its name.
    pub name: SessionName,
    /// How many checkpoints it has, safety checkpoints not counted.
    pub checkpoints: u64,
    /// How many safety checkpoints it has.
    pub safety_checkpoints: u64,
    /// When its first and last checkpoint were made; none where none can be read.
    pub span: Option<(Timestamp, Timestamp)>,
    /// The newest number.
    pub latest: Option<Seq>,
    /// Where its workspaces are.
    pub roots: Vec<PathBuf>,
    /// How many manifests cannot be understood.
    pub unreadable: u64,
    /// Whether nobody gave it its name and nothing is captured into it any more: checkpoints of the work tree
    /// of a run went to it by themselves, and that is not there any more.
    pub is_of_removed_run: bool,
}

/// A checkpoint with all that its manifest says.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ShownCheckpoint {
    /// What its manifest says.
    pub manifest: Manifest,
    /// The checksum of the manifest.
    pub digest: Digest,
    /// What was said about it later.
    pub pin: PinFile,
    /// The file of the manifest.
    pub file: PathBuf,
}

/// A restore of a workspace that has begun and not ended: its process died, or runs.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct OpenRestore {
    /// The checkpoint to be restored.
    pub target: CheckpointId,
    /// The checkpoint that holds what was there before; none where nothing has changed.
    pub safety: Option<CheckpointId>,
    /// How many changes it is to make.
    pub changes: u64,
    /// Whether it may have made some of them.
    pub has_begun: bool,
    /// Whether a process is still at work on the workspace.
    pub is_running: bool,
}

impl Reading<'_> {
    /// The session of that name as it is written on disk.
    pub(super) fn session(&self, name: &SessionName) -> Result<SessionName> {
        match self.sessions.find(name)? {
            Some(session) => Ok(session),
            None => Err(Error::SessionNotFound {
                session: name.to_string(),
                nearest: nearest(name.as_str(), self.sessions.names()?),
            }),
        }
    }

    /// A manifest that must be there, understood, and not pruned.
    pub(super) fn require(&self, id: &CheckpointId) -> Result<(Manifest, Digest)> {
        let id = CheckpointId { session: self.session(&id.session)?, seq: id.seq };
        if self.is_pruning(&id)? {
            return Err(Error::Pruned { checkpoint: id });
        }
        self.sessions.require(&id)
    }

    /// Whether the index does not have a checkpoint any more, or has it marked to be dropped.
    pub(super) fn is_dropped(&self, id: &CheckpointId) -> Result<bool> {
        let row = self.ask("find a checkpoint", |tx| tx.checkpoint(id))?.flatten();
        Ok(row.is_none_or(|row| row.is_pruning()))
    }

    /// Asks the index; `None` where there is none, and where it is damaged: the files are the truth, and
    /// answer in its place. That is told once.
    pub(super) fn ask<T>(
        &self,
        statement: &'static str,
        body: impl FnOnce(ReadTx<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        if self.is_index_given_up.get() {
            return Ok(None);
        }
        let damage = match (&self.index, &self.index_damage) {
            (None, None) => return Ok(None),
            (None, Some(reason)) => reason.clone(),
            (Some(index), _) => match index.read(statement, body) {
                Ok(answer) => return Ok(Some(answer)),
                Err(error @ (Error::IndexDamaged { .. } | Error::Index { .. })) => {
                    with_source(&error)
                }
                Err(error) => return Err(error),
            },
        };
        self.is_index_given_up.set(true);
        let path = self.layout.root().join(FILE_NAME);
        self.monitor.notice(&Notice::IndexDamaged { path, reason: damage });
        Ok(None)
    }

    fn is_pruning(&self, id: &CheckpointId) -> Result<bool> {
        let row = self.ask("find a checkpoint", |tx| tx.checkpoint(id))?;
        Ok(row.flatten().is_some_and(|row| row.is_pruning()))
    }

    pub(super) fn pruning(&self) -> Result<BTreeSet<CheckpointId>> {
        let marked = self.ask("list marked checkpoints", |tx| tx.pruning_checkpoints())?;
        Ok(marked.into_iter().flatten().collect())
    }

    /// The checkpoints that may be of one of some workspaces: those whose rows say so, and those without a row.
    pub(super) fn candidates(
        &self,
        workspaces: &BTreeSet<WorkspaceId>,
    ) -> Result<Vec<CheckpointId>> {
        let all = self.all_ids()?;
        let rows = self.ask("list checkpoints", |tx| tx.all_checkpoints())?;
        let other: BTreeSet<CheckpointId> = rows
            .into_iter()
            .flatten()
            .filter(|row| !workspaces.contains(&row.workspace))
            .map(|row| row.id)
            .collect();
        Ok(all.into_iter().filter(|id| !other.contains(id)).collect())
    }

    /// The paths that a checkpoint of given paths speaks of.
    fn spoken_of(&self, manifest: &Manifest) -> Result<Option<BTreeSet<RelPath>>> {
        let Some(record) = part_of(manifest) else { return Ok(None) };
        let after = read_entries(&self.blobs, &record.after)?;
        Ok(Some(after.into_iter().map(|entry| entry.path).collect()))
    }

    fn all_ids(&self) -> Result<Vec<CheckpointId>> {
        let mut ids = Vec::new();
        for session in self.sessions.names()? {
            match self.ids_of(&session) {
                Ok(of_session) => ids.extend(of_session),
                // One session that cannot be listed does not take the others with it.
                Err(error) => self.monitor.notice(&Notice::Unlisted {
                    path: self.sessions.directory(&session),
                    reason: with_source(&error),
                }),
            }
        }
        Ok(ids)
    }

    pub(super) fn ids_of(&self, session: &SessionName) -> Result<Vec<CheckpointId>> {
        let listing = self.sessions.listing(session)?;
        let id = |seq| CheckpointId { session: session.clone(), seq };
        Ok(listing.manifests.into_iter().map(id).collect())
    }

    pub(super) fn items(&self, ids: Vec<CheckpointId>) -> Result<Vec<ListItem>> {
        let pruning = self.pruning()?;
        let items: Vec<(ListItem, Option<CheckpointId>)> = ids
            .into_iter()
            .filter(|id| !pruning.contains(id))
            .filter_map(|id| self.item(id))
            .collect();
        let ordered = in_order_of_making(items, |(item, parent)| Place {
            id: item.id(),
            parent: parent.as_ref(),
            created_at: match item {
                ListItem::Checkpoint(summary) => Some(summary.created_at),
                ListItem::Legacy(_) | ListItem::Unreadable { .. } => None,
            },
        });
        Ok(ordered.into_iter().map(|(item, _)| item).collect())
    }

    /// A line of a list, and the checkpoint before it.
    fn item(&self, id: CheckpointId) -> Option<(ListItem, Option<CheckpointId>)> {
        let item = match self.sessions.read(&id) {
            Found::Absent => return None,
            Found::Legacy => ListItem::Legacy(id),
            Found::Unreadable { reason } => {
                let path = self.sessions.manifest_path(&id);
                ListItem::Unreadable { id, path, reason }
            }
            Found::Valid { manifest, .. } => {
                let parent = manifest.parent.as_ref().map(|parent| parent.id.clone());
                let item = match self.sessions.read_pin(&id) {
                    Ok(pin) => ListItem::Checkpoint(Box::new(summary(*manifest, pin))),
                    Err(error) => {
                        let path = self.sessions.pin_path(&id);
                        let reason = match error {
                            Error::CheckpointUnreadable { reason, .. } => reason,
                            error => with_source(&error),
                        };
                        ListItem::Unreadable { id, path, reason }
                    }
                };
                return Some((item, parent));
            }
        };
        Some((item, None))
    }

    pub(super) fn workspace_at(&self, path: &Path) -> Result<Option<WorkspaceId>> {
        let (dir, path) = open_root(path)?;
        Ok(self.workspaces.find(&dir, &path, None)?.map(|(workspace, _)| workspace.id))
    }
}

pub(super) fn summary(manifest: Manifest, pin: PinFile) -> CheckpointSummary {
    CheckpointSummary {
        id: manifest.id,
        created_at: manifest.created_at,
        workspace: manifest.workspace,
        root: manifest.root_path,
        label: pin.label.or(manifest.label),
        trigger: manifest.trigger.as_str().to_owned(),
        complete: manifest.complete,
        pinned: pin.pinned,
        note: pin.note,
        counts: manifest.counts,
        entries: manifest.tree.entries,
        is_part: manifest.coverage == Coverage::Paths,
        restore: manifest.restore,
    }
}

impl CheckpointSummary {
    /// Whether a restore made it, of what it was about to change.
    pub fn is_safety(&self) -> bool {
        self.trigger == Trigger::PRE_RESTORE.as_str()
    }
}

impl ShownCheckpoint {
    /// The same as a list shows it.
    pub fn summary(&self) -> CheckpointSummary {
        summary(self.manifest.clone(), self.pin.clone())
    }
}

impl Store {
    /// Lists checkpoints.
    ///
    /// # Errors
    /// [`Error::SessionNotFound`]. What cannot be understood is in the list.
    ///
    /// Cost: one small file each.
    pub fn list(&self, query: &ListQuery, monitor: &dyn Monitor) -> Result<Listing> {
        let Some(reading) = self.read(monitor)? else {
            return match query {
                ListQuery::Session(name) => {
                    let session = session_name(name)?.to_string();
                    Err(Error::SessionNotFound { session, nearest: Vec::new() })
                }
                _ => Ok(Listing::default()),
            };
        };
        let (ids, workspace) = match query {
            ListQuery::All => (reading.all_ids()?, None),
            ListQuery::Session(name) => {
                let session = reading.session(&session_name(name)?)?;
                (reading.ids_of(&session)?, None)
            }
            ListQuery::Workspace(path) => match reading.workspace_at(path)? {
                None => return Ok(Listing::default()),
                Some(workspace) => {
                    (reading.candidates(&BTreeSet::from([workspace]))?, Some(workspace))
                }
            },
        };
        let mut items = reading.items(ids)?;
        if let Some(workspace) = workspace {
            items.retain(|item| match item {
                ListItem::Checkpoint(summary) => summary.workspace == workspace,
                // Nobody knows whose it is: better shown here than nowhere.
                ListItem::Unreadable { .. } => true,
                ListItem::Legacy(_) => false,
            });
        }
        Ok(Listing { items })
    }

    /// Lists sessions, the one with the newest checkpoint last.
    ///
    /// # Errors
    /// Where the store cannot be listed.
    pub fn sessions(&self, monitor: &dyn Monitor) -> Result<Vec<SessionSummary>> {
        let Some(reading) = self.read(monitor)? else { return Ok(Vec::new()) };
        let mut by_session: Vec<(SessionName, Vec<ListItem>)> = Vec::new();
        for item in reading.items(reading.all_ids()?)? {
            let name = item.id().session.clone();
            let known = by_session.iter().position(|(known, _)| *known == name);
            // That with the newest checkpoint so far goes to the end.
            let mut session =
                known.map_or_else(|| (name, Vec::new()), |known| by_session.remove(known));
            session.1.push(item);
            by_session.push(session);
        }
        Ok(by_session.into_iter().map(|(name, items)| session_summary(name, &items)).collect())
    }

    /// Everything that is known about one checkpoint, without its entries.
    ///
    /// # Errors
    /// [`Error::CheckpointNotFound`], [`Error::CheckpointUnreadable`], [`Error::Pruned`].
    pub fn show(&self, id: &CheckpointId, monitor: &dyn Monitor) -> Result<ShownCheckpoint> {
        let reading = self.reading(&id.session, monitor)?;
        let (manifest, digest) = reading.require(id)?;
        let pin = reading.sessions.read_pin(&manifest.id)?;
        let file = reading.sessions.manifest_path(&manifest.id);
        Ok(ShownCheckpoint { manifest, digest, pin, file })
    }

    /// The paths that a checkpoint speaks of, where it was made of those that a restore was about to change;
    /// `None` where it speaks of all.
    ///
    /// # Errors
    /// As [`Store::show`]; what reading the list gives.
    pub fn paths_spoken_of(
        &self,
        id: &CheckpointId,
        monitor: &dyn Monitor,
    ) -> Result<Option<BTreeSet<RelPath>>> {
        let reading = self.reading(&id.session, monitor)?;
        reading.spoken_of(&reading.require(id)?.0)
    }

    /// The entries of a checkpoint at and below `path`, in order of path. Where it is one of given paths
    /// ([`Store::paths_spoken_of`]), the others are as the checkpoint before it has them.
    ///
    /// # Errors
    /// As [`Store::show`]; [`Error::PathNotFound`].
    ///
    /// Cost: the pages that may have them.
    pub fn entries(
        &self,
        id: &CheckpointId,
        path: &RelPath,
        monitor: &dyn Monitor,
    ) -> Result<Vec<Entry>> {
        let reading = self.reading(&id.session, monitor)?;
        let (manifest, _) = reading.require(id)?;
        let (source, tree) = (&reading.blobs, &manifest.tree);
        if path.is_root() {
            return read_entries(source, tree);
        }
        // With what is above it, which may have been left out as a whole.
        let mut entries = read_part(source, tree, slice::from_ref(path))?;
        let omitted = entries.iter().find_map(|entry| match entry.kind {
            EntryKind::Omitted { reason, .. } if path.is_at_or_below(&entry.path) => Some(reason),
            _ => None,
        });
        entries.retain(|entry| entry.path.is_at_or_below(path));
        if entries.is_empty() {
            let checkpoint = manifest.id;
            return Err(Error::PathNotFound { checkpoint, path: path.clone(), omitted });
        }
        Ok(entries)
    }

    /// Writes the content of a file, or the target of a symlink, as a checkpoint holds it. Content
    /// whose hash does not match ends in an error, after what was written by then.
    ///
    /// # Errors
    /// As [`Store::entries`]; [`Error::PathNotCovered`], [`Error::BlobMissing`], [`Error::BlobDamaged`]; what `out` gives.
    pub fn cat(
        &self,
        id: &CheckpointId,
        path: &RelPath,
        out: &mut dyn Write,
        monitor: &dyn Monitor,
    ) -> Result<()> {
        let reading = self.reading(&id.session, monitor)?;
        let (manifest, _) = reading.require(id)?;
        if let Some(only) = reading.spoken_of(&manifest)? {
            let parent = manifest.parent.as_ref().map(|parent| &parent.id);
            require_spoken_of(&manifest.id, parent, &only, slice::from_ref(path))?;
        }
        let entries = self.entries(id, path, monitor)?;
        match entries.first().filter(|entry| entry.path == *path).map(|entry| &entry.kind) {
            Some(EntryKind::File { hash, size, .. }) => {
                let copied = reading.blobs.copy_to(*hash, *size, out);
                copied.map_err(|error| error.at("write", "the output"))
            }
            Some(EntryKind::Symlink { target }) => out.write_all(target).map_err(|source| {
                Error::Io { verb: "write", path: PathBuf::from("the output"), source }
            }),
            Some(EntryKind::Omitted { reason, .. }) => Err(Error::PathNotFound {
                checkpoint: id.clone(),
                path: path.clone(),
                omitted: Some(*reason),
            }),
            _ => Err(Error::InvalidPath {
                path: path.as_os().to_owned(),
                reason: "it is a directory".to_owned(),
            }),
        }
    }

    /// The checkpoints of the workspace at `path` that have the same number in other sessions, the newest
    /// first.
    ///
    /// # Errors
    /// Where the store cannot be listed.
    ///
    /// Cost: one small file for each session that has the number.
    pub fn namesakes(
        &self,
        id: &CheckpointId,
        path: &Path,
        monitor: &dyn Monitor,
    ) -> Result<Vec<CheckpointId>> {
        let Some(reading) = self.read(monitor)? else { return Ok(Vec::new()) };
        let Some(workspace) = reading.workspace_at(path)? else { return Ok(Vec::new()) };
        let others = reading.sessions.names()?.into_iter().filter(|name| *name != id.session);
        let ids = others.map(|session| CheckpointId { session, seq: id.seq }).collect();
        let listing = Listing { items: reading.items(ids)? };
        let of_workspace = listing.checkpoints().filter(|summary| summary.workspace == workspace);
        let mut namesakes: Vec<CheckpointId> =
            of_workspace.map(|summary| summary.id.clone()).collect();
        namesakes.reverse();
        Ok(namesakes)
    }

    /// The restore of the workspace at `path` that has not ended, if there is one. Waits for nothing
    /// and changes nothing.
    ///
    /// # Errors
    /// [`Error::Io`] where its journal cannot be understood.
    pub fn open_restore(&self, path: &Path, monitor: &dyn Monitor) -> Result<Option<OpenRestore>> {
        // Asked by every command, and nearly always there is none: the index need not be opened to say so.
        if !Journal::may_exist(&self.inner.layout) {
            return Ok(None);
        }
        let Some(reading) = self.read(monitor)? else { return Ok(None) };
        let Some(workspace) = reading.workspace_at(path)? else { return Ok(None) };
        let Some(journal) = Journal::read(&reading.layout, workspace)? else { return Ok(None) };
        let (dir, _) = open_root(path)?;
        let stat = dir.stat_self()?;
        let lock = reading.layout.workspace_lock(stat.dev, stat.ino);
        // Where the lock cannot be asked for, the store is read-only: nobody is at work.
        let is_running = matches!(disk::try_lock(&lock, LockKind::Shared), Ok(None));
        Ok(Some(OpenRestore {
            target: journal.target.id,
            safety: journal.safety.map(|safety| safety.id),
            changes: journal.actions.len() as u64,
            has_begun: journal.phase == JournalPhase::Applying,
            is_running,
        }))
    }

    pub(super) fn reading<'a>(
        &self,
        session: &SessionName,
        monitor: &'a dyn Monitor,
    ) -> Result<Reading<'a>> {
        self.read(monitor)?.ok_or_else(|| Error::SessionNotFound {
            session: session.to_string(),
            nearest: Vec::new(),
        })
    }
}

fn session_summary(name: SessionName, items: &[ListItem]) -> SessionSummary {
    let mut is_by_itself = true;
    let mut summary = SessionSummary {
        name,
        checkpoints: 0,
        safety_checkpoints: 0,
        span: None,
        latest: None,
        roots: Vec::new(),
        unreadable: 0,
        is_of_removed_run: false,
    };
    let mut roots: BTreeSet<PathBuf> = BTreeSet::new();
    for item in items {
        match item {
            ListItem::Unreadable { .. } => summary.unreadable += 1,
            ListItem::Legacy(_) => {}
            ListItem::Checkpoint(checkpoint) => {
                is_by_itself &= is_default_session(&checkpoint.id.session, checkpoint.workspace);
                if checkpoint.is_safety() {
                    summary.safety_checkpoints += 1;
                } else {
                    summary.checkpoints += 1;
                }
                let at = checkpoint.created_at;
                let (first, last) = summary.span.unwrap_or((at, at));
                summary.span = Some((first.min(at), last.max(at)));
                summary.latest = summary.latest.max(Some(checkpoint.id.seq));
                roots.insert(checkpoint.root.clone());
            }
        }
    }
    summary.roots = roots.into_iter().collect();
    // Only of such is it no news that they are gone. One that cannot be looked for may be there.
    let is_gone = |root: &PathBuf| {
        runs::is_place_of_run(root) && disk::is_directory(root).is_ok_and(|is_there| !is_there)
    };
    summary.is_of_removed_run = is_by_itself
        && summary.unreadable == 0
        && !summary.roots.is_empty()
        && summary.roots.iter().all(is_gone);
    summary
}

/// Up to five names that are most like `name`: those that contain it or are contained in it, then by
/// the length of the common beginning.
pub(super) fn nearest(name: &str, mut known: Vec<SessionName>) -> Vec<SessionName> {
    let folded = name.to_lowercase();
    known.sort_by_cached_key(|candidate| {
        let candidate = candidate.folded();
        let related = candidate.contains(&folded) || folded.contains(&candidate);
        let common = candidate.chars().zip(folded.chars()).take_while(|(a, b)| a == b).count();
        (!related, std::cmp::Reverse(common), candidate)
    });
    known.truncate(5);
    known
}
