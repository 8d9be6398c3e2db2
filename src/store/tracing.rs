//! A path through history: which checkpoints changed it, and which hold one of a name.
//!
//! Manifests and pages are read, the truth: the few pages that hold a path are found from the top, and a
//! page that many checkpoints share is read once. So a damaged index is no obstacle.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use crate::clock::Timestamp;
use crate::compare::{Change, NamePattern, changes};
use crate::error::{Error, Result};
use crate::hash::BlobHash;
use crate::id::{CheckpointId, Seq, SessionName, WorkspaceId};
use crate::manifest::{
    self, Above, Coverage, Difference, Entry, EntryKind, Manifest, OmitReason, Page, PageRef, Tree,
    differences, read_entries, read_part, tree_differences,
};
use crate::monitor::Monitor;
use crate::path::RelPath;
use crate::sessions::{Found, with_source};
use crate::store::comparing::{Presence, standing};
use crate::store::history::{ListItem, ListQuery};
use crate::store::left::LeftByRestores;
use crate::store::{Reading, Store, session_name};

/// What a checkpoint changed below a path.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PathStep {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// When it was made.
    pub created_at: Timestamp,
    /// The one that it is compared with: the next lower number of the same session and workspace that is no
    /// safety checkpoint of given paths, with what restores have left since. `None` for the first, to which
    /// everything is new.
    pub before: Option<CheckpointId>,
    /// In order of path; not empty.
    pub changes: Vec<Change>,
}

/// The history of a path in a session.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct PathHistory {
    /// The checkpoints that changed it, by number.
    pub steps: Vec<PathStep>,
    /// Checkpoints that cannot be read; what they changed counts as changed by the next.
    pub unreadable: Vec<ListItem>,
    /// Whether any checkpoint holds something there.
    pub is_held: bool,
    /// Why the newest that knows of the path does not hold it.
    pub omitted: Option<OmitReason>,
}

/// A path, in checkpoints of a session that follow one another.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FoundPath {
    /// The session.
    pub session: SessionName,
    /// The oldest of the checkpoints.
    pub first: Seq,
    /// The newest of them.
    pub last: Seq,
    /// When the newest was made.
    pub last_created_at: Timestamp,
    /// How many there are.
    pub checkpoints: u64,
    /// How many different contents they hold.
    pub versions: u64,
    /// The path as the newest of them has it.
    pub entry: Entry,
}

/// What a search found.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct FoundPaths {
    /// The one in the newest checkpoint first.
    pub found: Vec<FoundPath>,
    /// Checkpoints that cannot be read, and were not searched.
    pub unreadable: Vec<ListItem>,
}

impl Reading<'_> {
    /// The checkpoints among `items` that can be read, in their order, and the others.
    fn manifests(&self, items: Vec<ListItem>) -> (Vec<Manifest>, Vec<ListItem>) {
        let (mut manifests, mut unreadable) = (Vec::new(), Vec::new());
        for item in items {
            match (&item, self.sessions.read(item.id())) {
                (ListItem::Legacy(_), _) | (_, Found::Absent | Found::Legacy) => {}
                // Also where only its pin cannot be understood: that says nothing about paths.
                (_, Found::Valid { manifest, .. }) => manifests.push(*manifest),
                (_, Found::Unreadable { .. }) => unreadable.push(item),
            }
        }
        (manifests, unreadable)
    }
}

impl Store {
    /// Which checkpoints of a session changed `path`, or anything below it. Of a session with several
    /// workspaces that at `root` counts, where it is one of them.
    ///
    /// # Errors
    /// [`crate::Error::SessionNotFound`]; what reading a page gives.
    ///
    /// Cost: of each checkpoint of the session the pages that hold the path; of the whole tree those that
    /// differ. Of the other sessions of its workspaces the manifests, and what restores have left.
    pub fn path_history(
        &self,
        session: &SessionName,
        path: &RelPath,
        root: &Path,
        monitor: &dyn Monitor,
    ) -> Result<PathHistory> {
        let reading = self.reading(session, monitor)?;
        let session = reading.session(session)?;
        let (own, mut unreadable) = reading.manifests(reading.items(reading.ids_of(&session)?)?);
        let mut workspaces: BTreeSet<WorkspaceId> = own.iter().map(|it| it.workspace).collect();
        if let Some(here) = reading.workspace_at(root)?
            && workspaces.contains(&here)
        {
            workspaces = BTreeSet::from([here]);
        }
        // What was there before a restore is mostly in another session: that of the workspace.
        let (mut manifests, others) =
            reading.manifests(reading.items(reading.candidates(&workspaces)?)?);
        manifests.retain(|manifest| workspaces.contains(&manifest.workspace));
        // What a restore did that is not known there is taken for the doing of what comes after it.
        let is_restore = |item: &ListItem| {
            let row = reading.ask("find a checkpoint", |tx| tx.checkpoint(item.id()));
            Ok::<_, Error>(row?.flatten().is_some_and(|row| row.is_safety()))
        };
        for item in others.into_iter().filter(|item| item.id().session != session) {
            if is_restore(&item)? {
                unreadable.push(item);
            }
        }
        let mut history = PathHistory { unreadable, ..PathHistory::default() };
        let mut before: BTreeMap<WorkspaceId, State> = BTreeMap::new();
        let mut left: BTreeMap<WorkspaceId, LeftByRestores> = BTreeMap::new();
        for manifest in manifests {
            if monitor.is_cancelled() {
                return Err(Error::Cancelled);
            }
            let workspace = manifest.workspace;
            let previous = before.get(&workspace);
            let is_own = manifest.id.session == session;
            // Before the first there is nothing that it could be compared with.
            if !is_own && (previous.is_none() || manifest.restore.is_none()) {
                continue;
            }
            let left = left.entry(workspace).or_default();
            let after = match &manifest.restore {
                Some(record) => read_entries(&reading.blobs, &record.after),
                None => Ok(Vec::new()),
            };
            let after = match after {
                // One session is not stopped by what another has lost.
                Err(error) if !is_own && error.is_lost_content() => {
                    let path = reading.sessions.manifest_path(&manifest.id);
                    let (id, reason) = (manifest.id, with_source(&error));
                    history.unreadable.push(ListItem::Unreadable { id, path, reason });
                    continue;
                }
                after => after?,
            };
            if !is_own {
                left.add_newer(after);
                continue;
            }
            let state = reading.state(manifest, path)?;
            let is_part = state.manifest.coverage == Coverage::Paths;
            let only = is_part.then_some(after.as_slice());
            let changes = reading.changes_of(previous, left, &state, only, path)?;
            let part = state.part.as_deref();
            match part.map_or(Presence::Held, |part| standing(part, path)) {
                Presence::Held => history.is_held = true,
                Presence::Omitted(reason) => history.omitted = Some(reason),
                Presence::Absent => {}
            }
            if !changes.is_empty() {
                history.steps.push(PathStep {
                    checkpoint: state.manifest.id.clone(),
                    created_at: state.manifest.created_at,
                    before: previous.map(|previous| previous.manifest.id.clone()),
                    changes,
                });
            }
            if !is_part || previous.is_none() {
                *left = LeftByRestores::default();
                before.insert(workspace, state);
            }
            left.add_newer(after);
        }
        Ok(history)
    }

    /// Where in history there is a path of that name, in all checkpoints of the workspace at `root`, or of
    /// one session. Names whose content is not held are found too.
    ///
    /// # Errors
    /// As [`Store::list`]; what reading a page gives.
    ///
    /// Cost: each page is read once, however many checkpoints share it.
    pub fn find_paths(
        &self,
        pattern: &NamePattern,
        session: Option<&str>,
        root: &Path,
        monitor: &dyn Monitor,
    ) -> Result<FoundPaths> {
        let query = match session {
            Some(session) => ListQuery::Session(session_name(session)?.to_string()),
            None => ListQuery::Workspace(root.to_owned()),
        };
        let items = self.list(&query, monitor)?.items;
        let Some(reading) = self.read(monitor)? else { return Ok(FoundPaths::default()) };
        let (manifests, unreadable) = reading.manifests(items);
        let mut search = Search { reading: &reading, pattern, pages: HashMap::new() };
        let mut ranges = Ranges::default();
        for manifest in &manifests {
            if monitor.is_cancelled() {
                return Err(Error::Cancelled);
            }
            ranges.add(manifest, search.entries(&manifest.tree)?);
        }
        Ok(FoundPaths { found: ranges.newest_first(), unreadable })
    }
}

/// A checkpoint, and what it has at, below and above a path.
struct State {
    manifest: Manifest,
    /// `None` where the path is the root: of whole trees only the pages that differ are read.
    part: Option<Vec<Entry>>,
}

impl Reading<'_> {
    fn state(&self, manifest: Manifest, path: &RelPath) -> Result<State> {
        let read = || read_part(&self.blobs, &manifest.tree, std::slice::from_ref(path));
        let part = if path.is_root() { None } else { Some(read()?) };
        Ok(State { manifest, part })
    }

    /// What `after` changed against the one before it and what restores have `left` since then; of a safety
    /// checkpoint of given paths, at those alone.
    fn changes_of(
        &self,
        before: Option<&State>,
        left: &LeftByRestores,
        after: &State,
        only: Option<&[Entry]>,
        path: &RelPath,
    ) -> Result<Vec<Change>> {
        let tree = |state: &State| state.manifest.tree;
        let mut found = match (before, &after.part) {
            (None, Some(part)) => all_new(part.clone()),
            (None, None) => all_new(read_entries(&self.blobs, &tree(after))?),
            (Some(State { part: Some(old), .. }), Some(new)) => differences(old, new),
            (Some(before), _) => tree_differences(&self.blobs, &tree(before), &tree(after))?,
        };
        left.correct(&mut found);
        if let Some(only) = only {
            found.retain(|it| only.binary_search_by(|entry| entry.path.cmp(&it.path)).is_ok());
        }
        let mut changes = changes(found);
        // What is above it concerns it where it was left out as a whole, or is not any more.
        let is_about = |change: &Change| {
            let changed = change.path();
            changed.is_at_or_below(path) || (path.is_at_or_below(changed) && !change.is_in_patch())
        };
        changes.retain(is_about);
        Ok(changes)
    }
}

fn all_new(entries: Vec<Entry>) -> Vec<Difference> {
    let new =
        |entry: Entry| Difference { path: entry.path.clone(), before: None, after: Some(entry) };
    entries.into_iter().map(new).collect()
}

/// What matches in each page that was read.
struct Search<'a> {
    reading: &'a Reading<'a>,
    pattern: &'a NamePattern,
    pages: HashMap<BlobHash, Vec<Entry>>,
}

impl Search<'_> {
    fn entries(&mut self, tree: &Tree) -> Result<Vec<Entry>> {
        let blobs = &self.reading.blobs;
        let mut leaves: Vec<(BlobHash, Option<PageRef>)> = Vec::new();
        if tree.levels == 1 {
            leaves.push((tree.root, None));
        } else {
            let above = Above::read(blobs, tree)?.leaves;
            leaves.extend(above.into_iter().map(|leaf| (leaf.hash, Some(leaf))));
        }
        let mut entries = Vec::new();
        for (hash, leaf) in leaves {
            if !self.pages.contains_key(&hash) {
                let read = match leaf {
                    None => read_entries(blobs, tree)?,
                    Some(leaf) => match manifest::load(blobs, &leaf, 0)? {
                        Page::Leaf(read) => read,
                        Page::Node { .. } => Vec::new(),
                    },
                };
                let mut matching = read;
                matching.retain(|entry| self.pattern.matches(&entry.path));
                self.pages.insert(hash, matching);
            }
            entries.extend(self.pages.get(&hash).into_iter().flatten().cloned());
        }
        Ok(entries)
    }
}

/// Checkpoints that follow one another, path by path.
#[derive(Default)]
struct Ranges {
    /// Each with the place of its newest checkpoint in the order of making.
    done: Vec<(u64, FoundPath)>,
    open: BTreeMap<(SessionName, WorkspaceId), BTreeMap<RelPath, Open>>,
    /// How many checkpoints were seen.
    seen: u64,
}

/// A range that may go on.
struct Open {
    at: u64,
    range: FoundPath,
}

impl Ranges {
    fn add(&mut self, manifest: &Manifest, entries: Vec<Entry>) {
        self.seen += 1;
        let at = self.seen;
        let of_session =
            self.open.entry((manifest.id.session.clone(), manifest.workspace)).or_default();
        let mut before = std::mem::take(of_session);
        for entry in entries {
            let is_held = |entry: &Entry| !matches!(entry.kind, EntryKind::Omitted { .. });
            let goes_on = |open: &Open| is_held(&open.range.entry) == is_held(&entry);
            let range = match before.remove(&entry.path) {
                Some(open) if goes_on(&open) => {
                    let mut range = open.range;
                    range.versions += u64::from(!range.entry.is_same_content(&entry));
                    range.checkpoints += 1;
                    FoundPath {
                        last: manifest.id.seq,
                        last_created_at: manifest.created_at,
                        entry,
                        ..range
                    }
                }
                other => {
                    self.done.extend(other.map(|open| (open.at, open.range)));
                    FoundPath {
                        session: manifest.id.session.clone(),
                        first: manifest.id.seq,
                        last: manifest.id.seq,
                        last_created_at: manifest.created_at,
                        checkpoints: 1,
                        versions: 1,
                        entry,
                    }
                }
            };
            of_session.insert(range.entry.path.clone(), Open { at, range });
        }
        // What this checkpoint has not ends here.
        self.done.extend(before.into_values().map(|open| (open.at, open.range)));
    }

    fn newest_first(self) -> Vec<FoundPath> {
        let open = self.open.into_values().flatten().map(|(_, open)| (open.at, open.range));
        let mut all: Vec<(u64, FoundPath)> = self.done.into_iter().chain(open).collect();
        all.sort_by(|(a, one), (b, other)| {
            b.cmp(a).then_with(|| one.entry.path.cmp(&other.entry.path))
        });
        all.into_iter().map(|(_, range)| range).collect()
    }
}
