//! Verify: is everything that the manifests name there, and whole?
//!
//! The truth is read: manifests, their pages, the blobs; the index is compared with it. What is found
//! is told, each thing once, with the checkpoints it concerns. Nothing is removed or repaired here;
//! damaged blobs are remembered, so that the next capture that has the bytes heals them.

mod rebuild;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::PathBuf;

use rayon::prelude::*;

pub use rebuild::RebuildOutcome;
pub(crate) use rebuild::rebuild;

use crate::blobs::{Blobs, Presence};
use crate::checkpoint::BlobState;
use crate::error::{BadFile, Error, Result};
use crate::hash::{BlobHash, Digest};
use crate::id::{CheckpointId, WorkspaceId};
use crate::index::{self, FILE_NAME, Index, ReadTx};
use crate::journal;
use crate::layout::Layout;
use crate::manifest::{Entry, Manifest, page_refs, read_entries, validate};
use crate::monitor::{Monitor, Phase};
use crate::path::RelPath;
use crate::sessions::{Found, Sessions, with_source};
use crate::threads;
use crate::workspaces::Workspaces;

/// How thoroughly to verify.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct VerifyOptions {
    /// Read every blob and compare its bytes with its name. Off: look whether it is there with the
    /// right length.
    pub read_data: bool,
}

/// What kind of thing is not as it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum FindingKind {
    /// A manifest is there and cannot be understood.
    ManifestUnreadable,
    /// The index has a checkpoint whose manifest is gone although nobody pruned it.
    ManifestMissing,
    /// A page cannot be read, or breaks the format.
    PageDamaged,
    /// Content is not in the store.
    BlobMissing,
    /// A blob's file does not hold what its name says.
    BlobDamaged,
    /// What the system does not let read: a blob of another user, or on a part of the disk that fails.
    BlobUnreadable,
    /// A pack cannot be read as one: what is in it cannot be found.
    PackDamaged,
    /// What was said about a checkpoint cannot be understood.
    PinUnreadable,
    /// The journal of an open restore cannot be understood.
    JournalUnreadable,
    /// What is remembered of a workspace that has checkpoints is missing or cannot be read.
    WorkspaceUnreadable,
    /// What no manifest says about a session cannot be read.
    SessionUnreadable,
    /// The store does not say which version wrote it.
    FormatDamaged,
    /// A directory of the store cannot be listed.
    DirectoryUnreadable,
    /// The index contradicts itself or the manifests.
    IndexDamaged,
    /// A purge was interrupted: what it is to remove is still in the store, or some of it.
    PurgeUnfinished,
}

impl FindingKind {
    /// The word used in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ManifestUnreadable => "manifest-unreadable",
            Self::ManifestMissing => "manifest-missing",
            Self::PageDamaged => "page-damaged",
            Self::BlobMissing => "blob-missing",
            Self::BlobDamaged => "blob-damaged",
            Self::BlobUnreadable => "blob-unreadable",
            Self::PackDamaged => "pack-damaged",
            Self::PinUnreadable => "pin-unreadable",
            Self::JournalUnreadable => "journal-unreadable",
            Self::WorkspaceUnreadable => "workspace-unreadable",
            Self::SessionUnreadable => "session-unreadable",
            Self::FormatDamaged => "format-damaged",
            Self::DirectoryUnreadable => "directory-unreadable",
            Self::IndexDamaged => "index-damaged",
            Self::PurgeUnfinished => "purge-unfinished",
        }
    }
}

/// One thing that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// What kind of thing.
    pub kind: FindingKind,
    /// The file of the store.
    pub file: PathBuf,
    /// What is wrong with it.
    pub reason: String,
    /// The checkpoints that need it; the first few.
    pub checkpoints: Vec<CheckpointId>,
    /// A path in the first of them whose content it is.
    pub path: Option<RelPath>,
}

/// What a verification saw.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
#[must_use]
pub struct VerifyReport {
    /// Manifests that were understood.
    pub checkpoints: u64,
    /// Different pages that they need.
    pub pages: u64,
    /// Different contents that they need.
    pub blobs: u64,
    /// The length of those contents in bytes, before compression.
    pub content_bytes: u64,
    /// Manifests of another program, which are left alone.
    pub legacy: Vec<PathBuf>,
    /// Everything that is not as it should be.
    pub findings: Vec<Finding>,
}

/// How many reasons the finding about the index names.
const REASONS_MAX: usize = 10;

/// How many checkpoints a finding names.
const NAMED_MAX: usize = 5;

/// The parts of a store that a verification reads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parts<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) sessions: &'a Sessions,
    pub(crate) workspaces: &'a Workspaces,
    pub(crate) blobs: &'a Blobs,
    /// Left out where it cannot be opened.
    pub(crate) index: Option<&'a Index>,
    /// Why it cannot, where that is damage.
    pub(crate) index_damage: Option<&'a str>,
    /// What there is to say of a purge that is not at its end.
    pub(crate) open_purge: Option<&'a str>,
    /// What is wrong with `format.json`.
    pub(crate) format_damage: Option<&'a str>,
}

/// Checks the whole store.
///
/// # Concurrency
/// Beside captures and sweeps: what vanished because it was pruned meanwhile is no finding.
///
/// Cost: every manifest and page is read; every blob is looked at, or read where that was asked for.
pub(crate) fn verify(
    parts: Parts<'_>,
    options: VerifyOptions,
    monitor: &dyn Monitor,
) -> Result<VerifyReport> {
    monitor.phase(Phase::Verify, None);
    let mut verifier = Verifier {
        parts,
        monitor,
        report: VerifyReport::default(),
        pages: HashSet::new(),
        contents: HashMap::new(),
        bad_pages: HashMap::new(),
        workspaces: BTreeMap::new(),
        contradictions: Vec::new(),
    };
    if let Some(reason) = parts.format_damage {
        let file = parts.layout.format_file();
        verifier.find(FindingKind::FormatDamaged, file, reason.to_owned(), vec![]);
    }
    if let Some(reason) = parts.open_purge {
        let file = parts.layout.purge();
        verifier.find(FindingKind::PurgeUnfinished, file, reason.to_owned(), vec![]);
    }
    if let Some(reason) = parts.index_damage {
        verifier.give_up_index(reason.to_owned());
    }
    verifier.check_packs()?;
    verifier.check_manifests()?;
    verifier.check_contents(options)?;
    verifier.check_workspaces();
    verifier.check_journals();
    verifier.check_index(options)?;
    verifier.report.findings.sort_by(|a, b| (a.kind, &a.file).cmp(&(b.kind, &b.file)));
    Ok(verifier.report)
}

/// Who needs a blob.
#[derive(Debug)]
struct Needed {
    size: u64,
    by: BTreeSet<CheckpointId>,
    path: RelPath,
}

/// What became of looking at a blob.
#[derive(Debug)]
enum Looked {
    At(Presence),
    Unreadable(Error),
}

struct Verifier<'a> {
    parts: Parts<'a>,
    monitor: &'a dyn Monitor,
    report: VerifyReport,
    pages: HashSet<BlobHash>,
    contents: HashMap<BlobHash, Needed>,
    /// Which finding is about which page.
    bad_pages: HashMap<BlobHash, usize>,
    /// The workspaces that manifests name, each with one of them.
    workspaces: BTreeMap<WorkspaceId, CheckpointId>,
    /// What rows say otherwise than the manifests.
    contradictions: Vec<String>,
}

impl Verifier<'_> {
    /// Asks the index, as long as it answers. That it is damaged is one finding, and what the files say
    /// is verified all the same.
    fn ask<T>(
        &mut self,
        statement: &'static str,
        body: impl FnOnce(ReadTx<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        let Some(index) = self.parts.index else { return Ok(None) };
        match index.read(statement, body) {
            Ok(answer) => Ok(Some(answer)),
            Err(error @ (Error::IndexDamaged { .. } | Error::Index { .. })) => {
                self.give_up_index(with_source(&error));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn give_up_index(&mut self, reason: String) {
        self.parts.index = None;
        let file = self.parts.layout.root().join(FILE_NAME);
        self.find(FindingKind::IndexDamaged, file, reason, vec![]);
    }

    fn find(&mut self, kind: FindingKind, file: PathBuf, reason: String, by: Vec<CheckpointId>) {
        self.report.findings.push(Finding { kind, file, reason, checkpoints: by, path: None });
    }

    fn check_packs(&mut self) -> Result<()> {
        for BadFile { path, reason } in self.parts.blobs.damaged_packs()? {
            self.find(FindingKind::PackDamaged, path, reason, vec![]);
        }
        Ok(())
    }

    fn check_manifests(&mut self) -> Result<()> {
        let sessions = self.parts.sessions;
        let mut on_disk: BTreeMap<CheckpointId, Option<Digest>> = BTreeMap::new();
        // A sweep refuses where there is one: nobody knows which checkpoints are behind it.
        for BadFile { path, reason } in sessions.unlisted()? {
            self.find(FindingKind::DirectoryUnreadable, path, reason, vec![]);
        }
        for session in sessions.names()? {
            let listing = match sessions.listing(&session) {
                Ok(listing) => listing,
                Err(error) => {
                    let file = self.parts.layout.session(&session);
                    self.find(FindingKind::DirectoryUnreadable, file, with_source(&error), vec![]);
                    continue;
                }
            };
            if let Err(error) = sessions.read_session_file(&session) {
                let file = sessions.session_file_path(&session);
                self.find(FindingKind::SessionUnreadable, file, with_source(&error), vec![]);
            }
            for seq in listing.manifests {
                if self.monitor.is_cancelled() {
                    return Err(Error::Cancelled);
                }
                let id = CheckpointId { session: session.clone(), seq };
                let digest = self.check_manifest(&id);
                on_disk.insert(id, digest);
            }
        }
        self.check_rows(&on_disk)
    }

    /// Gives the digest of the manifest, where it is understood.
    fn check_manifest(&mut self, id: &CheckpointId) -> Option<Digest> {
        let file = self.parts.sessions.manifest_path(id);
        match self.parts.sessions.read(id) {
            // Pruned since the listing.
            Found::Absent => None,
            Found::Legacy => {
                self.report.legacy.push(file);
                None
            }
            Found::Unreadable { reason } => {
                self.find(FindingKind::ManifestUnreadable, file, reason, vec![id.clone()]);
                None
            }
            Found::Valid { manifest, digest, .. } => {
                self.report.checkpoints += 1;
                self.workspaces.entry(manifest.workspace).or_insert_with(|| id.clone());
                self.monitor.advanced(1, 0);
                self.check_tree(id, &manifest);
                if let Err(error) = self.parts.sessions.read_pin(id) {
                    let file = self.parts.sessions.pin_path(id);
                    let by = vec![id.clone()];
                    self.find(FindingKind::PinUnreadable, file, with_source(&error), by);
                }
                Some(digest)
            }
        }
    }

    /// Reads the pages of a checkpoint and notes which contents it needs.
    fn check_tree(&mut self, id: &CheckpointId, manifest: &Manifest) {
        let whole = read_entries(self.parts.blobs, &manifest.tree);
        match whole {
            Ok(entries) => {
                if let Err(reason) = validate(&entries) {
                    let file = self.parts.sessions.manifest_path(id);
                    self.find(FindingKind::ManifestUnreadable, file, reason, vec![id.clone()]);
                }
                self.note_contents(id, &entries);
                self.note_pages(&manifest.tree);
            }
            Err(error) => self.note_bad_page(id, &error),
        }
        if let Some(restore) = &manifest.restore {
            match read_entries(self.parts.blobs, &restore.after) {
                Ok(entries) => {
                    self.note_contents(id, &entries);
                    self.note_pages(&restore.after);
                }
                Err(error) => self.note_bad_page(id, &error),
            }
        }
    }

    fn note_pages(&mut self, tree: &crate::manifest::Tree) {
        if let Ok(refs) = page_refs(self.parts.blobs, tree) {
            for (hash, _) in refs {
                self.pages.insert(hash);
            }
        }
    }

    fn note_contents(&mut self, id: &CheckpointId, entries: &[Entry]) {
        for entry in entries {
            let Some((hash, size)) = entry.blob() else { continue };
            let needed = self.contents.entry(hash).or_insert_with(|| Needed {
                size,
                by: BTreeSet::new(),
                path: entry.path.clone(),
            });
            if needed.by.len() < NAMED_MAX {
                needed.by.insert(id.clone());
            }
        }
    }

    fn note_bad_page(&mut self, id: &CheckpointId, error: &Error) {
        let (hash, state) = match error {
            Error::BlobMissing { hash } => (*hash, BlobState::Missing),
            Error::BlobDamaged { hash, .. } | Error::PageInvalid { hash, .. } => {
                (*hash, BlobState::Damaged)
            }
            Error::Io { path, .. } => {
                let (kind, by) = (FindingKind::BlobUnreadable, vec![id.clone()]);
                self.find(kind, path.clone(), with_source(error), by);
                return;
            }
            _ => {
                let file = self.parts.sessions.manifest_path(id);
                let by = vec![id.clone()];
                self.find(FindingKind::ManifestUnreadable, file, with_source(error), by);
                return;
            }
        };
        // Several checkpoints may need the page: it is one finding. Several pages may be in one pack.
        if let Some(&number) = self.bad_pages.get(&hash) {
            let finding = &mut self.report.findings[number];
            if finding.checkpoints.len() < NAMED_MAX {
                finding.checkpoints.push(id.clone());
            }
        } else {
            let file = self.parts.blobs.path(hash);
            self.bad_pages.insert(hash, self.report.findings.len());
            self.find(FindingKind::PageDamaged, file, with_source(error), vec![id.clone()]);
            self.remember(hash, state);
        }
    }

    /// Remembers what is wrong with a blob, where the index can be written.
    fn remember(&self, hash: BlobHash, state: BlobState) {
        if let Some(index) = self.parts.index {
            // A store that is only read is still verified.
            drop(index.write("remember damage", |tx| tx.set_blob_state(hash, state)));
        }
    }

    fn check_contents(&mut self, options: VerifyOptions) -> Result<()> {
        self.report.pages = self.pages.len() as u64;
        self.report.blobs = self.contents.len() as u64;
        self.report.content_bytes = self.contents.values().map(|needed| needed.size).sum();
        self.monitor.phase(Phase::Verify, Some(self.report.blobs));
        let hashes: Vec<BlobHash> = self.contents.keys().copied().collect();
        let stored: HashMap<BlobHash, u64> =
            self.ask("list stored lengths", |tx| tx.stored_sizes(&hashes))?.unwrap_or_default();
        let lost = self.ask("list lost blobs", |tx| tx.lost_blobs())?;
        let suspects: HashSet<BlobHash> =
            lost.into_iter().flatten().map(|(hash, _)| hash).collect();
        let (blobs, monitor) = (self.parts.blobs, self.monitor);
        let check = |(hash, needed): (&BlobHash, &Needed)| -> Result<Option<(BlobHash, Looked)>> {
            if monitor.is_cancelled() {
                return Err(Error::Cancelled);
            }
            // What was found damaged before is read in any case: it may have been healed.
            let looked = if options.read_data || suspects.contains(hash) {
                blobs.check(*hash, Some(needed.size))
            } else {
                blobs.look(*hash, needed.size, stored.get(hash).copied())
            };
            monitor.advanced(1, if options.read_data { needed.size } else { 0 });
            let looked = match looked {
                // One that is refused is one finding, and says nothing about the others.
                Err(error @ Error::Io { .. }) => Looked::Unreadable(error),
                other => Looked::At(other?),
            };
            let is_well = matches!(looked, Looked::At(Presence::Present { .. }));
            Ok((!is_well || suspects.contains(hash)).then_some((*hash, looked)))
        };
        let checked: Vec<Option<(BlobHash, Looked)>> = threads::pool("verify")?
            .install(|| self.contents.par_iter().map(check).collect::<Result<_>>())?;
        // A page that was read just now is well, whatever was noted of it.
        for hash in suspects.iter().filter(|hash| self.pages.contains(*hash)) {
            self.remember(*hash, BlobState::Ok);
        }
        for (hash, looked) in checked.into_iter().flatten() {
            self.take_looked(hash, looked);
        }
        Ok(())
    }

    fn take_looked(&mut self, hash: BlobHash, looked: Looked) {
        let (kind, reason, state) = match looked {
            Looked::At(Presence::Present { .. }) => {
                self.remember(hash, BlobState::Ok);
                return;
            }
            Looked::At(Presence::Absent) => {
                let reason = "it is missing".to_owned();
                (FindingKind::BlobMissing, reason, Some(BlobState::Missing))
            }
            Looked::At(Presence::Wrong { reason }) => {
                (FindingKind::BlobDamaged, reason, Some(BlobState::Damaged))
            }
            // Another user, or the next time, may find it whole.
            Looked::Unreadable(error) => (FindingKind::BlobUnreadable, with_source(&error), None),
        };
        // A checkpoint that was pruned since its manifest was read needs it no more.
        let Some(needed) = self.contents.get(&hash) else { return };
        let mut by: Vec<CheckpointId> = needed.by.iter().cloned().collect();
        by.retain(|id| !matches!(self.parts.sessions.read(id), Found::Absent));
        if by.is_empty() {
            return;
        }
        let path = Some(needed.path.clone());
        let file = self.parts.blobs.path(hash);
        if let Some(state) = state {
            self.remember(hash, state);
        }
        self.report.findings.push(Finding { kind, file, reason, checkpoints: by, path });
    }

    fn check_journals(&mut self) {
        match journal::survey(self.parts.layout) {
            Ok(journals) => {
                for (workspace, error) in journals.unreadable {
                    let file = self.parts.layout.journal(workspace);
                    self.find(FindingKind::JournalUnreadable, file, with_source(&error), vec![]);
                }
            }
            Err(error) => {
                let file = self.parts.layout.journals();
                self.find(FindingKind::DirectoryUnreadable, file, with_source(&error), vec![]);
            }
        }
    }

    /// Each workspace that a manifest names has a file that is understood; and what is there is
    /// understood, whether or not a manifest names it.
    fn check_workspaces(&mut self) {
        let survey = match self.parts.workspaces.survey() {
            Ok(survey) => survey,
            Err(error) => {
                let file = self.parts.layout.workspaces();
                self.find(FindingKind::DirectoryUnreadable, file, with_source(&error), vec![]);
                return;
            }
        };
        for workspace in survey.known {
            self.workspaces.remove(&workspace.id);
        }
        for (id, error) in survey.unreadable {
            let by = self.workspaces.remove(&id).into_iter().collect();
            let file = self.parts.workspaces.file(id);
            self.find(FindingKind::WorkspaceUnreadable, file, with_source(&error), by);
        }
        for (id, by) in std::mem::take(&mut self.workspaces) {
            let file = self.parts.workspaces.file(id);
            self.find(FindingKind::WorkspaceUnreadable, file, "it is missing".to_owned(), vec![by]);
        }
    }

    /// Rows without a manifest, or of another one than is there.
    fn check_rows(&mut self, on_disk: &BTreeMap<CheckpointId, Option<Digest>>) -> Result<()> {
        let Some(rows) = self.ask("list checkpoints", |tx| tx.all_checkpoints())? else {
            return Ok(());
        };
        for row in rows {
            if row.is_pruning() {
                continue;
            }
            if let Some(found) = on_disk.get(&row.id) {
                let other = found.filter(|digest| *digest != row.digest);
                // A purge writes manifests anew before it builds the index anew, and says so itself.
                if let Some(digest) = other.filter(|_| self.parts.open_purge.is_none()) {
                    self.contradictions.push(index::other_manifest(&row.id, digest, row.digest));
                }
                continue;
            }
            // Looked at again: it may have been committed, or pruned, since the listing.
            let there = !matches!(self.parts.sessions.read(&row.id), Found::Absent);
            let row_now = self.ask("find a checkpoint", |tx| tx.checkpoint(&row.id))?.flatten();
            if !there && row_now.is_some_and(|row| !row.is_pruning()) {
                let file = self.parts.sessions.manifest_path(&row.id);
                let reason = "it is gone although nobody pruned it".to_owned();
                self.find(FindingKind::ManifestMissing, file, reason, vec![row.id]);
            }
        }
        Ok(())
    }

    /// Whatever is wrong with the index is one finding: it is one file, and is built anew as a whole.
    fn check_index(&mut self, options: VerifyOptions) -> Result<()> {
        let mut reasons = std::mem::take(&mut self.contradictions);
        let own = self.ask("check itself", |tx| {
            let mut reasons = tx.integrity(options.read_data)?;
            reasons.extend(tx.broken_references()?);
            for mismatch in tx.recount()? {
                reasons.push(format!(
                    "blob {} counts {} references, its rows are {}",
                    mismatch.hash, mismatch.counter, mismatch.rows
                ));
            }
            Ok(reasons)
        })?;
        let Some(own) = own else { return Ok(()) };
        reasons.extend(own);
        let more = reasons.len().saturating_sub(REASONS_MAX);
        reasons.truncate(REASONS_MAX);
        if more > 0 {
            reasons.push(format!("and {more} more"));
        }
        if !reasons.is_empty() {
            self.give_up_index(reasons.join("; "));
        }
        Ok(())
    }
}
