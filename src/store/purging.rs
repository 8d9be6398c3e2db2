//! Taking a path's content out of history.
//!
//! A purge is planned from the files, agreed to, planned again with everybody kept out of the store, and
//! then carried out to its end, by this process or by the next one that writes. See
//! [`crate::purge`] for its parts and `docs/adr/0011-purge.md` for why it is done in this order.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::{Map, Value, json};

use crate::access::Access;
use crate::adoption;
use crate::compare::Selection;
use crate::disk::{self, Dir, Lock, LockKind};
use crate::error::{BadFile, Error, PurgeError, Repair, Result};
use crate::hash::Hashed;
use crate::journal;
use crate::layout::Layout;
use crate::limits;
use crate::monitor::{Monitor, Notice, Undisturbed};
use crate::operation::OperationKind;
use crate::purge::{
    self, Intent, Parts, PurgeOutcome, PurgePhase, PurgePlan, PurgeRequest, Removed, Scope,
};
use crate::registration::Operation;
use crate::retention;
use crate::sessions::Sessions;
use crate::store::ballast::Ballast;
use crate::store::{InPlace, Reading, Store, log};

impl Store {
    /// What [`Store::purge`] would do. Changes nothing.
    ///
    /// # Errors
    /// [`Error::NoCheckpoint`], [`Error::SessionNotFound`]; [`Error::DeletionBlocked`] where a manifest, a
    /// page or something in the quarantine cannot be read.
    ///
    /// Cost: every manifest and page of the store is read.
    pub fn plan_purge(&self, request: &PurgeRequest, monitor: &dyn Monitor) -> Result<PurgePlan> {
        let reading = self.read(monitor)?.ok_or_else(|| no_checkpoint(request))?;
        let scope = reading.scope(request)?;
        let parts =
            Parts { layout: &reading.layout, sessions: &reading.sessions, blobs: &reading.blobs };
        let mut plan = purge::plan(parts, &scope, &reading.pruning()?, monitor)?;
        look_on_disk(request, &mut plan);
        Ok(plan)
    }

    /// Completes a purge that was interrupted, as any method does that writes.
    ///
    /// # Errors
    /// As [`Store::capture`] before it looks at a workspace.
    pub fn complete_purge(&self, monitor: &dyn Monitor) -> Result<()> {
        self.enter_if_made(monitor).map(drop)
    }

    /// Takes the content of paths out of all checkpoints of a workspace, or those of one session, pinned
    /// ones and safety checkpoints too: their entries become `omitted: purged`, the manifests and those
    /// that name them are written anew, and what no checkpoint names any more is removed from the store
    /// without grace. `expected` is the id of the plan that was agreed to.
    ///
    /// Not removed is what has the same content under another name; the plan lists it. Files in
    /// workspaces are not touched.
    ///
    /// # Errors
    /// [`Error::PlanChanged`]; [`Error::DeletionBlocked`] where something cannot be understood that may
    /// name content, a restore is open, or an operation may still run; [`Error::NoSpace`];
    /// [`Error::Busy`] where operations run on for more than a minute; [`PurgeError::TooLong`]. Nothing of
    /// the plan has been done then. [`PurgeError::Unfinished`] with the cause where something fails after
    /// the plan was written down: the next command that writes completes it.
    ///
    /// # Concurrency
    /// Waits for every running operation, and lets none begin.
    ///
    /// # Durability
    /// From the moment on that the plan is written down, a crash delays it and does not stop it. When it
    /// returns, all of it survives a power cut.
    pub fn purge(
        &self,
        request: &PurgeRequest,
        expected: &str,
        monitor: &dyn Monitor,
    ) -> Result<PurgeOutcome> {
        // With an index that can be asked.
        self.complete_purge(monitor)?;
        let layout = &self.inner.layout;
        let lock = disk::lock(&layout.store_lock(), LockKind::Exclusive, "the store", monitor)?;
        refuse_another(layout)?;
        let _ballast = Ballast::give_up(layout)?;
        let access = self.access_alone(lock)?;
        require_quiet(&access)?;
        // What was dropped is not written anew, and its content goes with the rest.
        retention::finish_pruning(&access)?;
        let scope = self.read_files_under(None, monitor)?.scope(request)?;
        let parts =
            Parts { layout: &access.layout, sessions: &access.sessions, blobs: &access.blobs };
        let mut plan = purge::plan(parts, &scope, &BTreeSet::new(), monitor)?;
        look_on_disk(request, &mut plan);
        if plan.id() != expected {
            return Err(Error::PlanChanged { expected: expected.to_owned(), found: plan.id() });
        }
        if plan.is_empty() {
            return Ok(PurgeOutcome { plan, removed: Removed::default() });
        }
        require_room(&access)?;
        let intent = decide(&access, request, &plan)?;
        // From here on it is carried out, whatever happens; nobody is asked whether to go on.
        let lock = access.into_lock();
        let monitor = Undisturbed(monitor);
        let carried_out =
            self.rewrite(intent, &monitor).and_then(|intent| self.remove(&intent, lock, &monitor));
        match carried_out {
            Ok(removed) => Ok(PurgeOutcome { plan, removed }),
            Err(source) => Err(PurgeError::Unfinished { source: Box::new(source) }.into()),
        }
    }

    /// Whether a purge was interrupted, and how far it has come.
    ///
    /// # Errors
    /// Where what it has decided cannot be understood: nobody knows which manifests it has written.
    pub(super) fn open_purge(&self) -> Result<Option<PurgePhase>> {
        match Intent::read(&self.inner.layout) {
            Ok(intent) => Ok(intent.map(|intent| intent.phase)),
            Err(error) if error.is_damage() => {
                let reason = format!(
                    "a purge was interrupted, and what it had decided cannot be read: {}; `turnpoint \
                     doctor --rebuild` sets that aside, and the purge can be begun again",
                    error.with_source()
                );
                Err(Error::DeletionBlocked {
                    files: vec![BadFile { path: self.inner.layout.purge(), reason }],
                })
            }
            Err(error) => Err(error),
        }
    }

    /// What there is to say of a purge that is not at its end. That it cannot be looked for stops no reader.
    pub(super) fn tell_open_purge(&self) -> Option<String> {
        match self.open_purge() {
            Ok(None) => None,
            Ok(Some(PurgePhase::Rewriting)) => Some(
                "a purge was interrupted while it wrote manifests anew: all that it is to remove is still \
                 there"
                    .to_owned(),
            ),
            Ok(Some(PurgePhase::Removing)) => Some(
                "a purge was interrupted: what no checkpoint names any more is still there, or some of it"
                    .to_owned(),
            ),
            Err(error) => Some(why(&error)),
        }
    }

    /// Completes a purge that was interrupted. Where only content is left to be removed and that cannot be
    /// done now, it is told and left for the next time: nothing that others do needs it.
    pub(super) fn settle_purge(&self, phase: PurgePhase, monitor: &dyn Monitor) -> Result<()> {
        let layout = &self.inner.layout;
        let lock = match phase {
            PurgePhase::Rewriting => {
                Some(disk::lock(&layout.store_lock(), LockKind::Exclusive, "the store", monitor)?)
            }
            // Who is at work now is not waited for.
            PurgePhase::Removing => disk::try_lock(&layout.store_lock(), LockKind::Exclusive)?,
        };
        let Some(lock) = lock else { return Ok(()) };
        // Another process may have done it since.
        let Some(intent) = Intent::read(layout)? else { return Ok(()) };
        let manifests = match intent.phase {
            PurgePhase::Rewriting => intent.rewrites.len() as u64,
            PurgePhase::Removing => 0,
        };
        // Whoever wants to make room would wait for this for ever otherwise.
        let _ballast = Ballast::give_up(layout)?;
        let intent = self.rewrite(intent, monitor)?;
        match self.remove(&intent, lock, monitor) {
            Ok(_) => monitor.notice(&Notice::PurgeCompleted { manifests }),
            Err(Error::Cancelled) => return Err(Error::Cancelled),
            Err(error) => monitor.notice(&Notice::PurgeLeftOpen { reason: why(&error) }),
        }
        Ok(())
    }

    /// As [`Store::settle_purge`], before something is made anew: sets aside what cannot be understood.
    pub(super) fn settle_or_set_aside(&self, monitor: &dyn Monitor) -> Result<Option<Repair>> {
        let layout = &self.inner.layout;
        match Intent::read(layout) {
            Ok(None) => Ok(None),
            Ok(Some(intent)) => self.settle_purge(intent.phase, monitor).map(|()| None),
            Err(error) if error.is_damage() => {
                let lock = &layout.store_lock();
                let _lock = disk::lock(lock, LockKind::Exclusive, "the store", monitor)?;
                let aside = Intent::set_aside(layout)?;
                let reason = format!("{}; purge again", error.with_source());
                Ok(Some(Repair { file: layout.purge(), reason, aside }))
            }
            Err(error) => Err(error),
        }
    }

    /// Writes the manifests anew, and the index from them. The caller has the store to itself.
    fn rewrite(&self, mut intent: Intent, monitor: &dyn Monitor) -> Result<Intent> {
        if intent.phase == PurgePhase::Removing {
            return Ok(intent);
        }
        let layout = &self.inner.layout;
        let tmp = Dir::open(&layout.tmp())?;
        intent.rewrite(layout, &Sessions::new(layout), &tmp)?;
        // What is known against blobs stands nowhere else. That it cannot be had stops nobody.
        let lost = match self.current_index() {
            Ok(InPlace::Ready(index)) => {
                index.read("list lost blobs", |tx| tx.lost_blobs()).unwrap_or_default()
            }
            _ => Vec::new(),
        };
        // Not row by row: a page of the database that is free again would keep what was in it.
        let _outcome = self.rebuild_locked(monitor)?;
        if let InPlace::Ready(index) = self.current_index()? {
            index.write("remember damage", |tx| {
                lost.iter().try_for_each(|(hash, state)| tx.set_blob_state(*hash, *state))
            })?;
        }
        intent.phase = PurgePhase::Removing;
        intent.write(layout, &tmp)?;
        Ok(intent)
    }

    /// Removes what no checkpoint names any more, and ends the purge.
    fn remove(&self, intent: &Intent, lock: Lock, monitor: &dyn Monitor) -> Result<Removed> {
        let access = self.access_alone(lock)?;
        let others = intent.others(&access.sessions);
        if !others.is_empty() {
            return Err(Error::DeletionBlocked { files: others });
        }
        require_quiet(&access)?;
        let removed = purge::remove(&access, intent, monitor)?;
        retention::remove_leftovers(&access)?;
        access.index.empty_wal()?;
        // Before the end: a crash in between writes the line twice, and not never.
        let mut account = intent.account.clone();
        account.insert("blobs".to_owned(), json!(removed.blobs));
        account.insert("bytes".to_owned(), json!(removed.bytes));
        if let Err(error) = log::append(&access, "purge", Value::Object(account)) {
            log::tell_unwritten(&error, monitor);
        }
        Intent::close(&access.layout)?;
        Ok(removed)
    }
}

impl Reading<'_> {
    /// What the request is about.
    fn scope(&self, request: &PurgeRequest) -> Result<Scope> {
        // No path at all would mean all of them.
        if request.paths.is_empty() {
            return Err(Error::InvalidPath {
                path: PathBuf::new(),
                reason: "no path is named".to_owned(),
            });
        }
        let workspace = match request.workspace {
            Some(workspace) => Some(workspace),
            None => self.workspace_at(&request.root)?,
        };
        let workspace = workspace.ok_or_else(|| no_checkpoint(request))?;
        let session = request.session.as_ref().map(|name| self.session(name)).transpose()?;
        Ok(Scope { workspace, session, selection: Selection::new(request.paths.clone()) })
    }
}

fn no_checkpoint(request: &PurgeRequest) -> Error {
    Error::NoCheckpoint {
        workspace: request.root.clone(),
        session: request.session.clone(),
        existing: 0,
    }
}

/// Notes which paths are there in the workspace now. What cannot be looked at is not called there, nor what
/// lies in a directory that need not be the workspace's.
fn look_on_disk(request: &PurgeRequest, plan: &mut PurgePlan) {
    if request.workspace.is_some() {
        return;
    }
    let Ok(root) = Dir::open(&request.root) else { return };
    for purged in &mut plan.paths {
        let parent = purged.path.parent().unwrap_or_default();
        let stat = root.open_dir(&parent).and_then(|dir| dir.stat(purged.path.name()));
        purged.is_on_disk = matches!(stat, Ok(Some(_)));
    }
}

/// An error, with the files that it names.
fn why(error: &Error) -> String {
    match error {
        Error::DeletionBlocked { files } => {
            let named = files.iter().map(|it| format!("{}: {}", it.path.display(), it.reason));
            named.collect::<Vec<_>>().join("; ")
        }
        other => other.with_source(),
    }
}

/// Refuses while an earlier purge is not at its end: there is room for one decision.
fn refuse_another(layout: &Layout) -> Result<()> {
    if disk::modified_ns(&layout.purge())?.is_none() {
        return Ok(());
    }
    let reason =
        "an earlier purge is not at its end; the next command that writes says why".to_owned();
    Err(Error::DeletionBlocked { files: vec![BadFile { path: layout.purge(), reason }] })
}

/// Refuses where anything may name or need content that cannot be asked, and where a restore is open or
/// an operation may run: what they rely on must not change. The dead are ended, and what they had
/// committed is adopted.
fn require_quiet(access: &Access) -> Result<()> {
    let compared = adoption::compare_all(access)?;
    retention::refuse_if_blind(access, &compared)?;
    let mut files = Vec::new();
    for row in access.index.read("list operations", |tx| tx.operations())? {
        let path = access.layout.leases().join(row.operation.id.to_string());
        let reason = format!("a {} may still run", row.operation.kind.as_str());
        files.push(BadFile { path, reason });
    }
    for (workspace, journal) in journal::readable(&access.layout)? {
        let path = access.layout.journal(workspace);
        let reason = format!(
            "a restore of {} is open: end it in its workspace with `turnpoint restore --continue` or \
             `--abort`",
            journal.target.id
        );
        files.push(BadFile { path, reason });
    }
    if files.is_empty() { Ok(()) } else { Err(Error::DeletionBlocked { files }) }
}

/// The room for a second index, which is written twice on the way, and for one pack at a time. Asked before
/// anything is decided. Nothing is left alone beyond that: a purge gives back more than it takes.
fn require_room(access: &Access) -> Result<()> {
    let root = Dir::open(access.layout.root())?;
    let index = root.stat(crate::index::FILE_NAME.as_bytes())?.map_or(0, |stat| stat.size);
    let packs = disk::extent(&root, b"packs")?.bytes.min(access.blobs.packing().pack_bytes_max);
    disk::require_space(&access.tmp, 2 * index + packs, 0)
}

/// Makes the new pages durable and then writes down what is going to be done: the point of no return.
fn decide(access: &Access, request: &PurgeRequest, plan: &PurgePlan) -> Result<Intent> {
    let intent = Intent {
        phase: PurgePhase::Rewriting,
        workspace: plan.workspace,
        rewrites: plan.rewrites.clone(),
        quarantined: plan.quarantined.clone(),
        account: account(request, plan),
    };
    // One that is longer than what is read back would be decided and never carried out.
    intent.require_length(&access.layout, limits::PURGE_BYTES_MAX)?;
    let (operation, ()) = Operation::begin(access, OperationKind::Sweep, None, |_| Ok((None, ())))?;
    let staging = access.blobs.stage(operation.id())?;
    for page in &plan.pages {
        staging.put(&Hashed::new(page.text.as_slice()))?;
    }
    // Some may be there, from another purge.
    staging.publish()?;
    operation.end()?;
    intent.write(&access.layout, &access.tmp)?;
    Ok(intent)
}

/// What the log says: which paths and checkpoints, and nothing of what was in them.
fn account(request: &PurgeRequest, plan: &PurgePlan) -> Map<String, Value> {
    let checkpoints = plan.checkpoints.iter().map(|it| log::id(&it.checkpoint));
    let paths = request.paths.iter().map(ToString::to_string);
    let mut account = Map::new();
    account.insert("workspace".to_owned(), json!(plan.workspace.to_string()));
    account.insert("session".to_owned(), json!(request.session.as_ref().map(ToString::to_string)));
    account.insert("paths".to_owned(), paths.collect());
    account.insert("checkpoints".to_owned(), checkpoints.collect());
    account.insert("kept".to_owned(), json!(plan.kept.len()));
    account.insert("why".to_owned(), json!("asked for"));
    account
}
