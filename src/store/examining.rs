//! What is wrong with the store: a verification, and what a look around finds besides.

use std::collections::HashSet;
use std::path::PathBuf;

use crate::disk::{self, LockKind};
use crate::doctor::{self, Condition, Diagnosis, FIX};
use crate::error::{Error, Result};
use crate::index;
use crate::layout::Layout;
use crate::monitor::Monitor;
use crate::operation::Host;
use crate::path::shell_word;
use crate::retention;
use crate::store::{InPlace, Reading, Store, holds_checkpoints};
use crate::verify::{self, Finding, FindingKind, VerifyOptions, VerifyReport};
use crate::workspaces::{Workspace, Workspaces};

/// What was found in a store.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
#[must_use]
pub struct Examination {
    /// Whether there is a store at all; nothing is found where there is none.
    pub is_made: bool,
    /// Manifests that were understood.
    pub checkpoints: u64,
    /// Different contents that they need.
    pub blobs: u64,
    /// The length of those contents in bytes, before compression.
    pub content_bytes: u64,
    /// The version of SQLite that reads the index.
    pub sqlite: &'static str,
    /// What was found, problems first.
    pub findings: Vec<Diagnosis>,
}

impl Store {
    /// Finds what is wrong with the store, or left in it: all that [`Store::verify`] finds without
    /// reading content, permissions, operations and restores that did not end, what they left, content
    /// that nothing needs, the room there is.
    ///
    /// Nothing is changed but the index: what it remembers of lost content, and its version where an
    /// older program made it. Nothing is waited for but another writer of the index.
    ///
    /// # Errors
    /// [`Error::StoreTooNew`], [`Error::StoreForeign`] for a directory that is none of ours, and
    /// [`Error::Io`] where the store as a whole cannot be read. Damage is a finding.
    ///
    /// Cost: that of a verification, and one `lstat` for each file of the store.
    pub fn examine(&self, monitor: &dyn Monitor) -> Result<Examination> {
        let layout = &self.inner.layout;
        let mut examination = Examination { sqlite: index::sqlite_version(), ..Default::default() };
        let format_damage = match layout.read_format() {
            Ok(Some(_)) => None,
            Ok(None) if !holds_checkpoints(layout)? => return Ok(examination),
            Ok(None) => Some("it is missing, although checkpoints are there".to_owned()),
            Err(Error::FormatDamaged { reason, .. }) => Some(reason),
            Err(error) => return Err(error),
        };
        examination.is_made = true;
        let mut found = doctor::look_around(layout)?;
        // The content can be looked at where its directories are there.
        let is_whole = found.iter().all(|it| it.condition != Condition::DirectoryMissing)
            && doctor::obstructed(layout)?.is_empty();
        if is_whole {
            let report = self.examine_content(format_damage.as_deref(), &mut found, monitor)?;
            examination.checkpoints = report.checkpoints;
            examination.blobs = report.blobs;
            examination.content_bytes = report.content_bytes;
            // Where it cannot be asked, no root is known.
            let known = Workspaces::new(layout).all_remembered().unwrap_or_default();
            found.extend(report.findings.iter().map(|it| diagnosis(layout, &known, it)));
        }
        let mut seen = HashSet::new();
        found.retain(|it| seen.insert((it.condition, it.path.clone())));
        found.sort_by(|a, b| {
            let key = |it: &Diagnosis| (it.condition.severity(), it.condition, it.path.clone());
            key(a).cmp(&key(b))
        });
        examination.findings = found;
        Ok(examination)
    }

    /// Verifies, and finds what can only be found by those who read what is in the store.
    fn examine_content(
        &self,
        format_damage: Option<&str>,
        found: &mut Vec<Diagnosis>,
        monitor: &dyn Monitor,
    ) -> Result<VerifyReport> {
        let layout = &self.inner.layout;
        let lock = if disk::modified_ns(&layout.store_lock())?.is_some() {
            let lock = disk::try_lock(&layout.store_lock(), LockKind::Shared);
            if matches!(lock, Ok(None)) {
                found.push(Diagnosis::new(
                    Condition::StoreBusy,
                    layout.store_lock(),
                    "another process has the store to itself, to build its index anew for example: \
                     what is said here may be over by now",
                    "look again when it has finished: `turnpoint doctor`",
                ));
                // An index that is being exchanged must not be opened: what is written to it would lie
                // beside the new one.
                return Ok(VerifyReport::default());
            }
            lock.ok().flatten()
        } else {
            None
        };
        let reading = self.read_files_under(lock, monitor)?;
        if reading.index.is_none() && reading.index_damage.is_none() {
            found.push(self.no_index());
        }
        found.extend(
            doctor::look_for_remains(&doctor::Parts {
                layout,
                sessions: &reading.sessions,
                workspaces: &reading.workspaces,
                index: reading.index.as_deref(),
                host: Host { machine: disk::machine_id(), boot: disk::boot_id() },
            })
            .or_else(|error| match error {
                // That is told by the verification.
                Error::IndexDamaged { .. } => Ok(Vec::new()),
                other => Err(other),
            })?,
        );
        found.extend(unneeded(&reading, layout));
        for id in reading.workspaces.survey()?.without_file {
            found.push(Diagnosis::new(
                Condition::WorkspaceEmpty,
                layout.workspace(id),
                "it does not say which workspace it is, and no checkpoint does",
                format!("{FIX} puts it into the quarantine"),
            ));
        }
        let report =
            verify::verify(reading.parts(format_damage), VerifyOptions::default(), monitor)?;
        // What a checkpoint remembers is damage, and is made anew from it.
        let damaged: HashSet<PathBuf> =
            report.findings.iter().map(|finding| finding.file.clone()).collect();
        found.retain(|it| {
            it.condition != Condition::WorkspaceEmpty
                || !damaged.contains(&it.path.join("workspace.json"))
        });
        Ok(report)
    }

    /// Why there is no index, which is not damaged.
    fn no_index(&self) -> Diagnosis {
        let file = self.inner.layout.root().join(index::FILE_NAME);
        let reason = match self.current_index() {
            Ok(InPlace::Missing) => {
                let message = "it is missing; the next command that writes builds it anew";
                let next = format!("{FIX} builds it now");
                return Diagnosis::new(Condition::IndexMissing, file, message, next);
            }
            Ok(InPlace::Damaged(reason)) => reason,
            Ok(InPlace::Ready(_)) => "it could not be opened a moment ago".to_owned(),
            Err(error) => error.with_source(),
        };
        let next = format!("look at it: `ls -l {}`", shell_word(&file));
        Diagnosis::new(Condition::IndexUnavailable, file, reason, next)
    }
}

/// Content that a collection would remove now. Where it cannot be counted something is damaged, which
/// is told anyhow.
fn unneeded(reading: &Reading<'_>, layout: &Layout) -> Option<Diagnosis> {
    let outcome = retention::unneeded(&reading.blobs, reading.index.as_deref()?).ok()?;
    if outcome.blobs_removed == 0 {
        return None;
    }
    let count = match outcome.blobs_removed {
        1 => "1 blob that no checkpoint needs takes room".to_owned(),
        count => format!("{count} blobs that no checkpoint needs take room"),
    };
    let mut unneeded = Diagnosis::new(
        Condition::ContentUnneeded,
        layout.root().join("blobs"),
        count,
        "`turnpoint gc` removes what nobody needs",
    );
    unneeded.bytes = Some(outcome.bytes_removed);
    Some(unneeded)
}

/// What a verification found, with what can be done about it.
fn diagnosis(layout: &Layout, known: &[Workspace], finding: &Finding) -> Diagnosis {
    let file = shell_word(finding.file.strip_prefix(layout.root()).unwrap_or(&finding.file));
    let heals = "a capture of files that still have this content heals it: `turnpoint capture`";
    let next = match finding.kind {
        FindingKind::ManifestUnreadable => format!(
            "put it back from a backup, or give the checkpoint up: `turnpoint quarantine {file}`"
        ),
        FindingKind::ManifestMissing => {
            let session = finding.checkpoints.first().map(|id| id.session.as_str());
            let session = shell_word(session.unwrap_or_default());
            format!(
                "put it back from a backup, or give the checkpoint up: `turnpoint prune --session \
                 {session}`"
            )
        }
        FindingKind::PageDamaged => match finding.checkpoints.first() {
            Some(id) => format!(
                "{heals}; `turnpoint quarantine {}` gives a checkpoint up",
                id.manifest_word()
            ),
            None => heals.to_owned(),
        },
        FindingKind::BlobMissing | FindingKind::BlobDamaged => heals.to_owned(),
        FindingKind::PackDamaged => format!("{FIX} saves what is whole in it"),
        FindingKind::PinUnreadable => format!(
            "put it back from a backup, or give pin, label and note up: `turnpoint quarantine {file}`"
        ),
        FindingKind::JournalUnreadable => {
            let of = known.iter().find(|it| layout.journal(it.id) == finding.file);
            let place =
                of.and_then(Workspace::root).map(|root| format!("-C {} ", shell_word(root)));
            format!(
                "`turnpoint {}restore --abort` sets it aside and leaves its workspace as it is",
                place.unwrap_or_default()
            )
        }
        FindingKind::DirectoryUnreadable | FindingKind::BlobUnreadable => {
            format!("look at it: `ls -ld {}`", shell_word(&finding.file))
        }
        FindingKind::WorkspaceUnreadable
        | FindingKind::SessionUnreadable
        | FindingKind::FormatDamaged => format!("{FIX} makes it anew and keeps what was damaged"),
        FindingKind::IndexDamaged => format!("{FIX} builds it anew from the checkpoints"),
        FindingKind::PurgeUnfinished => {
            format!("{FIX}, or any command that writes, brings it to its end")
        }
    };
    let message = match &finding.path {
        Some(path) => format!("{}; it is `{path}`", finding.reason),
        None => finding.reason.clone(),
    };
    let condition = Condition::Damage(finding.kind);
    let mut diagnosis = Diagnosis::new(condition, &finding.file, message, next);
    diagnosis.checkpoints.clone_from(&finding.checkpoints);
    diagnosis
}
