//! What a purge would do: computed from manifests, pages and the quarantine alone.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::rc::Rc;

use crate::blobs::Blobs;
use crate::checkpoint::{Place, in_order_of_making};
use crate::compare::Selection;
use crate::error::{BadFile, Error, Result};
use crate::hash::{BlobHash, Digest};
use crate::id::{CheckpointId, SessionName, WorkspaceId};
use crate::layout::Layout;
use crate::limits;
use crate::manifest::{
    CheckpointRef, Entry, EntryKind, Exchange, Manifest, OmitReason, Page, PageSource, Tree, load,
    root_page,
};
use crate::monitor::{Monitor, Phase};
use crate::path::RelPath;
use crate::purge::{
    Holder, KeptContent, PurgePlan, PurgedCheckpoint, PurgedPath, Rewrite, quarantined,
};
use crate::sessions::{Found, Sessions, with_source};

/// The parts of a store that are read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parts<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) sessions: &'a Sessions,
    pub(crate) blobs: &'a Blobs,
}

/// Which entries lose their content.
#[derive(Debug)]
pub(crate) struct Scope {
    pub(crate) workspace: WorkspaceId,
    pub(crate) session: Option<SessionName>,
    pub(crate) selection: Selection,
}

impl Scope {
    fn includes(&self, read: &Read) -> bool {
        let session = self.session.as_ref().map(SessionName::folded);
        read.manifest.workspace == self.workspace
            && session.is_none_or(|session| session == read.id.session.folded())
    }

    /// What takes the place of an entry that holds content at one of the paths. The name, the mode, and
    /// that something was there stay: a restore must not take it for absent.
    fn exchanged(&self, entry: &Entry) -> Option<Entry> {
        let holds = matches!(entry.kind, EntryKind::File { .. } | EntryKind::Symlink { .. });
        let kind = EntryKind::Omitted { reason: OmitReason::Purged, rest: 0 };
        (holds && self.selection.includes(&entry.path)).then(|| Entry { kind, ..entry.clone() })
    }
}

/// A manifest that was read.
struct Read {
    /// Where it lies. The session is as its directory is written.
    id: CheckpointId,
    manifest: Manifest,
    digest: Digest,
}

impl Read {
    fn key(&self) -> Key {
        key(&self.id)
    }
}

/// A checkpoint's name as it is compared.
type Key = (String, u64);

fn key(id: &CheckpointId) -> Key {
    (id.session.folded(), id.seq.get())
}

/// Computes what a purge does. `gone` are checkpoints whose prune was decided.
///
/// # Errors
/// [`Error::DeletionBlocked`] where a manifest, a page, a pin or something in the quarantine cannot be
/// read: it may hold or need what is to go.
///
/// Cost: every manifest and page is read, twice those of checkpoints with anything to purge.
pub(crate) fn plan(
    parts: Parts<'_>,
    scope: &Scope,
    gone: &BTreeSet<CheckpointId>,
    monitor: &dyn Monitor,
) -> Result<PurgePlan> {
    let reads = read_all(parts, gone)?;
    monitor.phase(Phase::Purge, Some(reads.len() as u64));
    let change = |entry: &Entry| scope.exchanged(entry);
    let mut exchange = Exchange::new(parts.blobs, &change);
    let mut changes = Changes::default();
    let mut rewrites = Vec::new();
    let mut plan = empty(scope.workspace);
    for read in in_order_of_naming(&reads) {
        refuse_if_cancelled(monitor)?;
        let mut manifest = read.manifest.clone();
        if scope.includes(read) {
            let lost = exchanged(parts, read, &mut manifest, &mut exchange)?;
            if let Some(lost) = lost {
                plan.checkpoints.push(changes.note(parts, read, &lost)?);
            }
        }
        changes.follow(&mut manifest);
        let (text, digest) = manifest.encode();
        if digest != read.digest {
            changes.digests.insert(read.key(), digest);
            let (id, before) = (read.id.clone(), read.digest);
            rewrites.push(Rewrite { id, before, after: digest, text });
        }
        monitor.advanced(1, 0);
    }
    plan.linked = (rewrites.len() - plan.checkpoints.len()) as u64;
    plan.rewrites = rewrites;
    plan.pages = exchange.into_pages();
    let made: HashMap<&CheckpointId, usize> =
        reads.iter().enumerate().map(|(at, read)| (&read.id, at)).collect();
    plan.checkpoints.sort_by_key(|it| made.get(&it.checkpoint).copied());
    plan.paths = changes.paths();
    let held = held_otherwise(parts, scope, &reads, &changes.contents, &mut plan, monitor)?;
    let goes = |hash: &BlobHash| !held.pages.contains(hash) && !held.contents.contains_key(hash);
    let contents: Vec<_> = changes.contents.iter().filter(|(hash, _)| goes(hash)).collect();
    plan.contents = contents.len() as u64;
    plan.bytes = contents.iter().map(|(_, content)| content.bytes).sum();
    plan.kept = kept(&changes.contents, held.contents);
    if !plan.is_empty() {
        let mut going: HashSet<BlobHash> = contents.iter().map(|(hash, _)| **hash).collect();
        // The text of a link is nowhere else.
        going.extend(held.exchanged.difference(&held.pages));
        plan.quarantined = quarantined::find(parts, &going)?;
    }
    Ok(plan)
}

fn empty(workspace: WorkspaceId) -> PurgePlan {
    PurgePlan {
        workspace,
        checkpoints: Vec::new(),
        paths: Vec::new(),
        linked: 0,
        contents: 0,
        bytes: 0,
        kept: Vec::new(),
        quarantined: Vec::new(),
        purged_before: 0,
        rewrites: Vec::new(),
        pages: Vec::new(),
    }
}

fn refuse_if_cancelled(monitor: &dyn Monitor) -> Result<()> {
    if monitor.is_cancelled() { Err(Error::Cancelled) } else { Ok(()) }
}

/// Every manifest of the store, in the order of making. That of another program names nothing.
fn read_all(parts: Parts<'_>, gone: &BTreeSet<CheckpointId>) -> Result<Vec<Read>> {
    let mut reads = Vec::new();
    let mut files = parts.sessions.unlisted()?;
    for session in parts.sessions.names()? {
        let listing = match parts.sessions.listing(&session) {
            Ok(listing) => listing,
            Err(error) => {
                let path = parts.sessions.directory(&session);
                files.push(BadFile { path, reason: with_source(&error) });
                continue;
            }
        };
        for seq in listing.manifests {
            let id = CheckpointId { session: session.clone(), seq };
            match parts.sessions.read(&id) {
                _ if gone.contains(&id) => {}
                Found::Valid { manifest, digest, .. } => {
                    reads.push(Read { id, manifest: *manifest, digest });
                }
                Found::Legacy | Found::Absent => {}
                Found::Unreadable { reason } => {
                    files.push(BadFile { path: parts.sessions.manifest_path(&id), reason });
                }
            }
        }
    }
    if !files.is_empty() {
        return Err(Error::DeletionBlocked { files });
    }
    Ok(in_order_of_making(reads, |read| Place {
        id: &read.id,
        parent: read.manifest.parent.as_ref().map(|parent| &parent.id),
        created_at: Some(read.manifest.created_at),
    }))
}

/// The manifests, each after those that it names: its new text has their new digests in it. Of some that
/// name each other in a circle, which none of ours do, the digests stay as they are.
fn in_order_of_naming(reads: &[Read]) -> Vec<&Read> {
    let at: HashMap<Key, usize> =
        reads.iter().enumerate().map(|(at, read)| (read.key(), at)).collect();
    let mut named_by: Vec<Vec<usize>> = vec![Vec::new(); reads.len()];
    let mut waits_for = vec![0usize; reads.len()];
    for (number, read) in reads.iter().enumerate() {
        for named in read.manifest.references().filter_map(|id| at.get(&key(id))) {
            named_by[*named].push(number);
            waits_for[number] += 1;
        }
    }
    let mut ready: Vec<usize> =
        (0..reads.len()).rev().filter(|number| waits_for[*number] == 0).collect();
    let mut ordered = Vec::with_capacity(reads.len());
    while let Some(number) = ready.pop() {
        ordered.push(&reads[number]);
        for next in &named_by[number] {
            waits_for[*next] -= 1;
            if waits_for[*next] == 0 {
                ready.push(*next);
            }
        }
    }
    ordered.extend((0..reads.len()).filter(|at| waits_for[*at] > 0).map(|at| &reads[at]));
    ordered
}

/// The entries that a manifest's trees lose; in `manifest` they are exchanged. `None` where nothing is.
fn exchanged(
    parts: Parts<'_>,
    read: &Read,
    manifest: &mut Manifest,
    exchange: &mut Exchange<'_>,
) -> Result<Option<Lost>> {
    let blocked = |error: Error| blocked(parts, &read.id, error);
    let (tree, gone) = exchange.tree(&manifest.tree).map_err(blocked)?;
    manifest.tree = tree;
    let mut after_gone: Rc<[Entry]> = Rc::default();
    if let Some(restore) = &mut manifest.restore {
        (restore.after, after_gone) = exchange.tree(&restore.after).map_err(blocked)?;
    }
    if gone.is_empty() && after_gone.is_empty() {
        return Ok(None);
    }
    if !gone.is_empty() {
        *manifest.counts.omitted.entry(OmitReason::Purged).or_default() += gone.len() as u64;
    }
    Ok(Some(Lost { tree: gone, after: after_gone }))
}

/// A page that cannot be read may name anything.
fn blocked(parts: Parts<'_>, id: &CheckpointId, error: Error) -> Error {
    if error.is_lost_content() || matches!(error, Error::Io { .. }) {
        let path = parts.sessions.manifest_path(id);
        let reason = format!("its pages cannot be read: {}", with_source(&error));
        return Error::DeletionBlocked { files: vec![BadFile { path, reason }] };
    }
    error
}

/// What the trees of one checkpoint lose.
struct Lost {
    tree: Rc<[Entry]>,
    /// Of what its restore left.
    after: Rc<[Entry]>,
}

/// Content that some entry loses.
#[derive(Debug)]
struct Content {
    bytes: u64,
    path: RelPath,
}

/// What is lost, over all checkpoints.
#[derive(Default)]
struct Changes {
    /// The new digests of manifests that are written anew.
    digests: HashMap<Key, Digest>,
    contents: BTreeMap<BlobHash, Content>,
    paths: BTreeMap<RelPath, OfPath>,
}

#[derive(Default)]
struct OfPath {
    checkpoints: u64,
    /// Each with its length. A link's text is as good as content.
    versions: BTreeMap<BlobHash, u64>,
}

impl Changes {
    fn note(&mut self, parts: Parts<'_>, read: &Read, lost: &Lost) -> Result<PurgedCheckpoint> {
        let mut paths: BTreeSet<&RelPath> = BTreeSet::new();
        for entry in lost.tree.iter().chain(lost.after.iter()) {
            let (hash, bytes) = match &entry.kind {
                EntryKind::Symlink { target } => (BlobHash::of(target), target.len() as u64),
                _ => entry.blob().unwrap_or((BlobHash::of(b""), 0)),
            };
            if let Some((hash, bytes)) = entry.blob() {
                let path = entry.path.clone();
                self.contents.entry(hash).or_insert(Content { bytes, path });
            }
            let of_path = self.paths.entry(entry.path.clone()).or_default();
            of_path.versions.insert(hash, bytes);
            of_path.checkpoints += u64::from(paths.insert(&entry.path));
        }
        let pin = parts.sessions.read_pin(&read.id).map_err(|error| {
            let path = parts.sessions.pin_path(&read.id);
            Error::DeletionBlocked { files: vec![BadFile { path, reason: with_source(&error) }] }
        })?;
        Ok(PurgedCheckpoint {
            checkpoint: read.id.clone(),
            pinned: pin.pinned,
            is_safety: read.manifest.trigger.is_safety(),
            paths: paths.len() as u64,
        })
    }

    /// Makes a manifest name the new digests of what it names.
    fn follow(&self, manifest: &mut Manifest) {
        let follow = |reference: &mut CheckpointRef| {
            if let Some(digest) = self.digests.get(&key(&reference.id)) {
                reference.digest = *digest;
            }
        };
        manifest.parent.as_mut().map(follow);
        if let Some(restore) = &mut manifest.restore {
            follow(&mut restore.target);
            restore.undoes.as_mut().map(follow);
        }
    }

    fn paths(&self) -> Vec<PurgedPath> {
        let paths = self.paths.iter().map(|(path, of_path)| PurgedPath {
            path: path.clone(),
            checkpoints: of_path.checkpoints,
            versions: of_path.versions.len() as u64,
            bytes: of_path.versions.values().sum(),
            is_on_disk: false,
        });
        paths.collect()
    }
}

/// What is named after the purge.
#[derive(Default)]
struct Held {
    /// The pages that something names as they are.
    pages: HashSet<BlobHash>,
    /// Those that others take the place of, somewhere at least.
    exchanged: HashSet<BlobHash>,
    /// Of the contents that some entry loses those that others have, each with who.
    contents: BTreeMap<BlobHash, BTreeMap<(WorkspaceId, RelPath), Holder>>,
}

/// Finds who else has the contents that are lost, and counts what was purged before.
fn held_otherwise(
    parts: Parts<'_>,
    scope: &Scope,
    reads: &[Read],
    contents: &BTreeMap<BlobHash, Content>,
    plan: &mut PurgePlan,
    monitor: &dyn Monitor,
) -> Result<Held> {
    let mut names = Names { source: parts.blobs, scope, contents, found: HashMap::new() };
    let mut held = Held::default();
    for read in reads {
        refuse_if_cancelled(monitor)?;
        let is_in_scope = scope.includes(read);
        let after = read.manifest.restore.as_ref().map(|restore| &restore.after);
        let mut of_checkpoint: BTreeSet<(BlobHash, RelPath)> = BTreeSet::new();
        for tree in std::iter::once(&read.manifest.tree).chain(after) {
            let found = names
                .of_tree(tree, is_in_scope)
                .map_err(|error| blocked(parts, &read.id, error))?;
            plan.purged_before += found.purged_before;
            of_checkpoint.extend(found.names.iter().cloned());
        }
        for (hash, path) in of_checkpoint {
            let (workspace, root) = (read.manifest.workspace, &read.manifest.root_path);
            let holders = held.contents.entry(hash).or_default();
            let holder = holders.entry((workspace, path.clone())).or_insert_with(|| Holder {
                workspace,
                root: root.clone(),
                path,
                checkpoint: read.id.clone(),
                checkpoints: 0,
            });
            holder.checkpoints += 1;
            (holder.root, holder.checkpoint) = (root.clone(), read.id.clone());
        }
    }
    for ((hash, _), named) in names.found {
        let pages = if named.is_exchanged { &mut held.exchanged } else { &mut held.pages };
        pages.insert(hash);
    }
    Ok(held)
}

/// Finds in pages who has one of the contents after the purge. A page that trees share is read once.
struct Names<'a> {
    source: &'a dyn PageSource,
    scope: &'a Scope,
    contents: &'a BTreeMap<BlobHash, Content>,
    /// By page, and by whether entries at the paths lose their content there.
    found: HashMap<(BlobHash, bool), Named>,
}

#[derive(Clone, Default)]
struct Named {
    names: Rc<[(BlobHash, RelPath)]>,
    purged_before: u64,
    /// Whether an entry below it loses its content: then another page takes its place.
    is_exchanged: bool,
}

impl Names<'_> {
    fn of_tree(&mut self, tree: &Tree, is_in_scope: bool) -> Result<Named> {
        if let Some(found) = self.found.get(&(tree.root, is_in_scope)) {
            return Ok(found.clone());
        }
        let page = root_page(self.source, tree)?;
        self.of_page(page, tree.root, is_in_scope)
    }

    fn of_page(&mut self, page: Page, hash: BlobHash, is_in_scope: bool) -> Result<Named> {
        let mut found = Named::default();
        let mut names = Vec::new();
        match page {
            Page::Leaf(entries) => {
                for entry in entries {
                    let is_purged = EntryKind::Omitted { reason: OmitReason::Purged, rest: 0 };
                    if is_in_scope && self.scope.exchanged(&entry).is_some() {
                        found.is_exchanged = true;
                    } else if let Some((hash, _)) = entry.blob() {
                        if self.contents.contains_key(&hash) {
                            names.push((hash, entry.path));
                        }
                    } else if is_in_scope
                        && entry.kind == is_purged
                        && self.scope.selection.includes(&entry.path)
                    {
                        found.purged_before += 1;
                    }
                }
            }
            Page::Node { level, pages } => {
                for reference in pages {
                    let known = self.found.get(&(reference.hash, is_in_scope));
                    let below = if let Some(below) = known {
                        below.clone()
                    } else {
                        let page = load(self.source, &reference, level.saturating_sub(1))?;
                        self.of_page(page, reference.hash, is_in_scope)?
                    };
                    names.extend(below.names.iter().cloned());
                    found.purged_before += below.purged_before;
                    found.is_exchanged |= below.is_exchanged;
                }
            }
        }
        found.names = names.into();
        self.found.insert((hash, is_in_scope), found.clone());
        Ok(found)
    }
}

fn kept(
    contents: &BTreeMap<BlobHash, Content>,
    held: BTreeMap<BlobHash, BTreeMap<(WorkspaceId, RelPath), Holder>>,
) -> Vec<KeptContent> {
    let kept = held.into_iter().filter_map(|(hash, holders)| {
        let Content { bytes, path } = contents.get(&hash)?;
        Some(KeptContent {
            hash,
            bytes: *bytes,
            path: path.clone(),
            holders: holders.len() as u64,
            held_by: holders.into_values().take(limits::PURGE_HOLDERS_NAMED).collect(),
        })
    });
    kept.collect()
}
