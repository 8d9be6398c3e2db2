//! Repairing a store without losing anything: what follows from the rest is made anew, what the dead
//! left is cleared up, and what could be content is left alone.

use crate::access::Access;
use crate::adoption;
use crate::blobs::Blobs;
use crate::disk::{self, Dir, LockKind};
use crate::doctor::{self, Condition, Diagnosis};
use crate::error::{BadFile, Error, Repair, Result};
use crate::id::WorkspaceId;
use crate::index;
use crate::journal::{self, Journal, JournalPhase};
use crate::layout::Layout;
use crate::limits;
use crate::monitor::{Monitor, Notice};
use crate::retention;
use crate::sessions::Sessions;
use crate::store::capturing::{Purpose, open_workspace};
use crate::store::examining::Examination;
use crate::store::{InPlace, Store, holds_checkpoints, interrupted, log};
use crate::verify::{FindingKind, RebuildOutcome};
use crate::workspaces::{Workspace, Workspaces};

use std::path::{Path, PathBuf};

/// One thing that was put right.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mended {
    /// What had been found.
    pub condition: Condition,
    /// What it was about.
    pub path: PathBuf,
    /// What was done, as a sentence without a final period.
    pub message: String,
    /// Where something damaged is kept.
    pub aside: Option<PathBuf>,
}

/// What [`Store::mend`] did, and what is left.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
#[must_use]
pub struct Treatment {
    /// What was put right, in the order in which it was.
    pub mended: Vec<Mended>,
    /// What is found now.
    pub left: Examination,
}

/// What is put right may bring to light what could not be seen before: a directory that was missing, and
/// then what is in it.
const ROUNDS_MAX: u32 = 4;

/// What making things anew includes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Anew {
    /// The index too.
    WithIndex,
    /// Only the files of the store that are damaged.
    Files,
}

impl Store {
    /// Puts right what can be put right without losing anything: makes directories again and takes from
    /// others what they may do with the store's files; makes `format.json`, `workspace.json`,
    /// `session.json` and the index anew where they are damaged; saves what is whole in a damaged pack;
    /// ends dead operations, removes what they left, and adds what they had committed to the index;
    /// discards restores that had not changed anything. What was damaged is kept. Content, manifests,
    /// journals of restores that changed something, and whatever is not the store's are left alone.
    ///
    /// # Errors
    /// [`Error::Busy`] where running operations are in the way for longer than a minute;
    /// [`Error::Io`] and [`Error::NoSpace`] where something cannot be written. What was done until then
    /// stays done, and a second call goes on.
    ///
    /// # Concurrency
    /// Beside captures and restores, but for making files anew, which waits for all of them.
    ///
    /// # Durability
    /// What is made anew is durable before what it replaces has another name.
    ///
    /// Cost: an [`Store::examine`] before, and one after each round.
    pub fn mend(&self, monitor: &dyn Monitor) -> Result<Treatment> {
        let mut treatment = Treatment { left: self.examine(monitor)?, ..Treatment::default() };
        for _ in 0..ROUNDS_MAX {
            let found = std::mem::take(&mut treatment.left.findings);
            let Some(repairs) = self.mend_once(&found, monitor)? else {
                treatment.left.findings = found;
                break;
            };
            treatment.left = self.examine(monitor)?;
            let mended = mended(&treatment.left, found, &repairs);
            if mended.is_empty() {
                break;
            }
            treatment.mended.extend(mended);
        }
        if !treatment.mended.is_empty() {
            let what = |it: &Mended| serde_json::json!({ "what": it.condition.as_str(), "path": it.path.to_string_lossy() });
            let what: Vec<_> = treatment.mended.iter().map(what).collect();
            let details = serde_json::json!({ "mended": what });
            if let Err(error) = log::append_to(&self.inner.layout, "doctor-fix", details) {
                log::tell_unwritten(&error, monitor);
            }
        }
        Ok(treatment)
    }

    /// Treats everything that was found and can be treated; `None` where there is nothing of that kind.
    fn mend_once(&self, found: &[Diagnosis], monitor: &dyn Monitor) -> Result<Option<Vec<Repair>>> {
        let layout = &self.inner.layout;
        let has = |wanted: &[Condition]| found.iter().any(|it| wanted.contains(&it.condition));
        let (mut repairs, mut is_treated) = (Vec::new(), false);
        if has(&[Condition::PermissionsOpen]) {
            doctor::tighten(layout)?;
            is_treated = true;
        }
        if has(&[Condition::DirectoryMissing]) {
            make_directories(layout, found)?;
            // What is in them is seen only now.
            return Ok(Some(repairs));
        }
        if has(&REBUILT) || has(&MADE_ANEW) {
            let what = if has(&REBUILT) { Anew::WithIndex } else { Anew::Files };
            repairs = self.make_anew(what, monitor)?.repaired;
            is_treated = true;
        }
        if has(&CLEARED_UP) {
            let Some(access) = self.enter_if_made(monitor)? else { return Ok(None) };
            let lock = layout.sweep_lock();
            let _lock = disk::lock(&lock, LockKind::Exclusive, "another sweep", monitor)?;
            adoption::compare_all(&access)?;
            retention::remove_leftovers(&access)?;
            is_treated = true;
        }
        if has(&[Condition::RestoreDiscardable]) {
            let Some(access) = self.enter_if_made(monitor)? else { return Ok(None) };
            discard_restores(&access, monitor)?;
            is_treated = true;
        }
        if has(&[Condition::BallastMissing]) {
            disk::reserve(&layout.ballast(), limits::BALLAST_BYTES)?;
            is_treated = true;
        }
        if has(&[Condition::IndexUnfinished]) {
            // Whoever builds one has the store to himself; where anybody is at work it can wait.
            let lock = disk::try_lock(&layout.store_lock(), LockKind::Exclusive)?;
            if lock.is_some() {
                index::remove_unfinished(&Dir::open(layout.root())?)?;
                is_treated = true;
            }
        }
        Ok(is_treated.then_some(repairs))
    }

    /// Builds the index anew from manifests, pages and pins, after making anew what of the store's own
    /// files is damaged and follows from others: `format.json`, `workspace.json`, `session.json`. What
    /// was damaged is kept beside. Waits for every running operation.
    ///
    /// # Errors
    /// [`Error::Busy`] where operations run on; what building it gives.
    pub fn rebuild_index(&self, monitor: &dyn Monitor) -> Result<RebuildOutcome> {
        let layout = &self.inner.layout;
        let is_made = match layout.read_format() {
            Ok(found) => found.is_some(),
            Err(Error::FormatDamaged { .. }) => false,
            Err(error) => return Err(error),
        };
        if !is_made && !holds_checkpoints(layout)? {
            // An error here says what else is wrong with `format.json`.
            layout.read_format()?;
            return Ok(RebuildOutcome::default());
        }
        let outcome = self.make_anew(Anew::WithIndex, monitor)?;
        let repaired = outcome.repaired.iter().map(|repair| repair.file.to_string_lossy());
        let details = serde_json::json!({
            "checkpoints": outcome.checkpoints,
            "repaired": repaired.collect::<Vec<_>>(),
            "unreadable": outcome.unreadable.len(),
        });
        if let Err(error) = log::append_to(layout, "doctor-rebuild", details) {
            log::tell_unwritten(&error, monitor);
        }
        Ok(outcome)
    }

    /// Makes anew what is damaged, with everybody else kept out of the store.
    fn make_anew(&self, what: Anew, monitor: &dyn Monitor) -> Result<RebuildOutcome> {
        let layout = &self.inner.layout;
        layout.create_locks()?;
        // First: what it has decided is the truth about manifests that it has not written yet. Where
        // nobody can tell what that was, the index may say what some of them were.
        let purge = self.settle_or_set_aside(monitor)?;
        let what = if purge.is_some() { Anew::WithIndex } else { what };
        let _lock = disk::lock(&layout.store_lock(), LockKind::Exclusive, "the store", monitor)?;
        let format = self.repair_format()?;
        let (workspaces, mut unreadable) = Workspaces::new(layout).repair()?;
        // Before the index: pages are in packs too.
        let quarantine = disk::make_private_dir(&layout.quarantine())?;
        let (packs, unread) =
            Blobs::open(layout.root(), self.inner.packing)?.salvage_packs(&quarantine)?;
        unreadable.extend(unread);
        let mut outcome = match what {
            Anew::WithIndex => self.rebuild_locked(monitor)?,
            Anew::Files => RebuildOutcome::default(),
        };
        let sessions = self.repair_sessions()?;
        let (journals, mut left) = self.set_orphaned_journals_aside()?;
        let repaired = purge.into_iter().chain(format).chain(workspaces).chain(packs);
        let repaired = repaired.chain(sessions).chain(journals);
        outcome.repaired = repaired.collect();
        unreadable.append(&mut outcome.unreadable);
        unreadable.append(&mut left);
        outcome.unreadable = unreadable;
        Ok(outcome)
    }

    /// Makes `format.json` anew where it is missing or damaged, with a new id: stat caches, which name
    /// the id, are not believed any more. The caller has seen checkpoints of this format.
    fn repair_format(&self) -> Result<Option<Repair>> {
        let layout = &self.inner.layout;
        let reason = match layout.read_format() {
            Ok(Some(_)) => return Ok(None),
            Ok(None) => "the checkpoints say which format it is".to_owned(),
            Err(Error::FormatDamaged { reason, .. }) => reason,
            Err(error) => return Err(error),
        };
        // Beside it, it would look like something in a session's place.
        let quarantine = disk::make_private_dir(&layout.quarantine())?;
        let aside = disk::set_aside(&Dir::open(layout.root())?, b"format.json", &quarantine)?;
        layout.create()?;
        Ok(Some(Repair { file: layout.format_file(), reason, aside }))
    }

    /// Sets journals aside that cannot be understood and whose workspace is gone: nobody could end them
    /// there. Every other one is left and named: it is for `restore --abort`, which sees what is in the
    /// workspace, or for a person, where nobody else can tell whether the workspace is gone.
    fn set_orphaned_journals_aside(&self) -> Result<(Vec<Repair>, Vec<BadFile>)> {
        let layout = &self.inner.layout;
        // Where they cannot be listed, none is known to be gone.
        let known = Workspaces::new(layout).all_remembered().unwrap_or_default();
        let (mut repairs, mut left) = (Vec::new(), Vec::new());
        for (id, error) in journal::survey(layout)?.unreadable {
            let file = layout.journal(id);
            let workspace = known.iter().find(|workspace| workspace.id == id);
            match (&error, workspace) {
                (Error::JournalUnreadable { reason, .. }, Some(workspace))
                    if is_gone(workspace) =>
                {
                    let aside = Journal::set_aside(layout, id)?;
                    let reason =
                        format!("{reason}; its workspace is gone, and with it what it was about");
                    repairs.push(Repair { file, reason, aside });
                }
                _ => {
                    let hint = error.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
                    let reason = format!("{}{hint}", error.with_source());
                    left.push(BadFile { path: file, reason });
                }
            }
        }
        Ok((repairs, left))
    }

    /// Makes damaged `session.json` anew, with what the index knows of the numbers given.
    fn repair_sessions(&self) -> Result<Vec<Repair>> {
        let layout = &self.inner.layout;
        let InPlace::Ready(index) = self.current_index()? else { return Ok(Vec::new()) };
        let known = index.read("list sessions", |tx| tx.sessions())?;
        let sessions = Sessions::new(layout);
        let tmp = Dir::open(&layout.tmp())?;
        let mut repairs = Vec::new();
        for name in sessions.names()? {
            let row = known.iter().find(|row| row.name.folded() == name.folded());
            let given = row.map_or(0, |row| row.next_seq);
            repairs.extend(sessions.repair_session_file(&name, given, &tmp)?);
        }
        Ok(repairs)
    }
}

/// Makes the directories that were found missing.
fn make_directories(layout: &Layout, found: &[Diagnosis]) -> Result<()> {
    let missing = found.iter().filter(|it| it.condition == Condition::DirectoryMissing);
    for path in missing.map(|it| &it.path) {
        if *path == layout.blobs() {
            Blobs::create(layout.root())?;
        } else {
            disk::make_private_dir(path)?;
        }
    }
    Ok(())
}

/// What is put right by building the index anew.
const REBUILT: [Condition; 2] =
    [Condition::IndexMissing, Condition::Damage(FindingKind::IndexDamaged)];

/// What is put right by making files anew.
const MADE_ANEW: [Condition; 7] = [
    Condition::WorkspaceEmpty,
    Condition::Damage(FindingKind::FormatDamaged),
    Condition::Damage(FindingKind::WorkspaceUnreadable),
    Condition::Damage(FindingKind::SessionUnreadable),
    Condition::Damage(FindingKind::PackDamaged),
    Condition::Damage(FindingKind::JournalUnreadable),
    Condition::Damage(FindingKind::PurgeUnfinished),
];

/// What is put right as at the start and the end of a collection.
const CLEARED_UP: [Condition; 4] = [
    Condition::OperationDead,
    Condition::LeaseDead,
    Condition::TemporaryLeft,
    Condition::CheckpointUnindexed,
];

/// What was found before a round and is not found any more, with what was done about it.
fn mended(now: &Examination, before: Vec<Diagnosis>, repairs: &[Repair]) -> Vec<Mended> {
    let is_there = |it: &Diagnosis| {
        now.findings.iter().any(|now| now.condition == it.condition && now.path == it.path)
    };
    let mut mended: Vec<Mended> = Vec::new();
    for it in before.into_iter().filter(|it| !is_there(it)) {
        let repair = repairs.iter().find(|repair| repair.file.starts_with(&it.path));
        let Some(done) = done(it.condition) else { continue };
        mended.push(Mended {
            condition: it.condition,
            path: it.path,
            message: match repair {
                Some(Repair { reason, .. }) => format!("{done}: {reason}"),
                None => done.to_owned(),
            },
            aside: repair.and_then(|repair| repair.aside.clone()),
        });
    }
    mended
}

/// What is done about it; `None` for what only a person can put right.
const fn done(condition: Condition) -> Option<&'static str> {
    Some(match condition {
        Condition::PermissionsOpen => "took from others what they may do with the store's files",
        Condition::DirectoryMissing => "made it again",
        Condition::IndexMissing | Condition::Damage(FindingKind::IndexDamaged) => {
            "built it anew from the checkpoints"
        }
        Condition::Damage(FindingKind::PackDamaged) => "saved what was whole in it",
        Condition::Damage(FindingKind::PurgeUnfinished) => {
            "brought it to its end, or set aside what could not be understood"
        }
        Condition::Damage(FindingKind::JournalUnreadable) => {
            "set it aside: its workspace is gone, and with it what it was about"
        }
        Condition::Damage(
            FindingKind::FormatDamaged
            | FindingKind::WorkspaceUnreadable
            | FindingKind::SessionUnreadable,
        ) => "made it anew",
        Condition::WorkspaceEmpty => "put it into the quarantine",
        Condition::OperationDead => "ended it; what it had committed is there",
        Condition::LeaseDead | Condition::TemporaryLeft | Condition::IndexUnfinished => {
            "removed it"
        }
        Condition::CheckpointUnindexed => "added it to the index",
        Condition::RestoreDiscardable => "discarded it: nothing had been changed",
        Condition::BallastMissing => "made it again",
        _ => return None,
    })
}

/// Discards the restores that were interrupted before they changed anything and whose workspace is
/// there. One that had begun to change something is left, whatever happens meanwhile. One that cannot be
/// discarded is told, and stops no other.
fn discard_restores(access: &Access, monitor: &dyn Monitor) -> Result<()> {
    let journals = journal::readable(&access.layout).unwrap_or_default();
    let known = access.workspaces.all_remembered().unwrap_or_default();
    for (id, journal) in journals {
        let root = known.iter().find(|it| it.id == id).and_then(Workspace::root);
        let Some(root) = root.filter(|_| journal.phase == JournalPhase::Staging) else { continue };
        match discard_restore(access, id, root, monitor) {
            Ok(()) => {}
            Err(error @ Error::Cancelled) => return Err(error),
            Err(error) => {
                let root = crate::path::printable(root.as_os_str().as_encoded_bytes());
                let error = error.with_source();
                let text = format!("the restore in {root} was not discarded: {error}");
                monitor.notice(&Notice::Remark { text });
            }
        }
    }
    Ok(())
}

fn discard_restore(
    access: &Access,
    id: WorkspaceId,
    root: &Path,
    monitor: &dyn Monitor,
) -> Result<()> {
    let open = open_workspace(access, root, true, None, None, Purpose::Look, monitor)?;
    // Read again under the workspace's lock: it may have gone on.
    let journal = Journal::read(&access.layout, id)?;
    let is_staging = journal.is_some_and(|journal| journal.phase == JournalPhase::Staging);
    if open.workspace.id == id && is_staging {
        interrupted::recover(access, &open, monitor)?;
    }
    Ok(())
}

/// Whether a workspace's root is known to have been removed: nothing is at its path, and the directory
/// that held it is there, on the disk that the root was on. A disk that is not mounted leaves an empty
/// directory, of another disk, in its place.
fn is_gone(workspace: &Workspace) -> bool {
    let Some(root) = workspace.roots.first() else { return false };
    let is_absent = matches!(disk::modified_ns(root), Ok(None));
    let above =
        root.parent().and_then(|above| Dir::open(above).and_then(|dir| dir.stat_self()).ok());
    is_absent && above.is_some_and(|above| above.dev == workspace.identity.device)
}
