//! Capture, put together.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::access::{Access, OpenWorkspace};
use crate::adoption::{self, Compared};
use crate::capture::{
    self, Base, CaptureOptions, CaptureOutcome, Committed, Draft, Finish, Held, Look, ReadSoFar,
    Storing,
};
use crate::checkpoint::CheckpointRow;
use crate::disk::{self, LockKind};
use crate::error::{Error, Repair, Result};
use crate::git;
use crate::id::{CheckpointId, SessionName, WorkspaceId};
use crate::index::{ReadTx, WriteTx};
use crate::limits;
use crate::manifest::{CheckpointRef, Coverage, EntryKind, GitState, OmitReason, Scope, read_part};
use crate::monitor::{Monitor, Notice};
use crate::operation::OperationKind;
use crate::path::RelPath;
use crate::registration::Operation;
use crate::retention::{self, PruneOutcome};
use crate::sessions::with_source;
use crate::settings::is_version_control;
use crate::store::{
    Chosen, Store, evicting, interrupted, log, open_root, refuse_inside_store, refuse_too_wide,
    session_name,
};
use crate::walk::{Detail, Walked, What};
use crate::workspaces::{CacheHeader, StatCache};

/// What a capture builds on.
pub(super) struct Foundation {
    pub(super) base: Option<Base>,
    pub(super) parent: Option<CheckpointRef>,
    /// Whether a list of what has changed since the newest checkpoint tells all of it: that one is not
    /// what a restore saved before it changed the workspace, and nothing is missing in it.
    pub(super) takes_hints: bool,
}

impl Store {
    /// Captures the workspace at `path` as a new checkpoint.
    ///
    /// # Errors
    /// Nothing was stored then, but for content that the next capture profits from. See
    /// [`Error::class`].
    ///
    /// # Durability
    /// When it returns, the checkpoint survives the death of the process and of the machine.
    ///
    /// # Concurrency
    /// Captures and restores of one workspace wait for each other, up to a minute. Everything else
    /// goes on beside it.
    ///
    /// # Cost
    /// One stat for each name, the reading of what changed, two or three durable writes.
    pub fn capture(
        &self,
        path: &Path,
        options: &CaptureOptions,
        monitor: &dyn Monitor,
    ) -> Result<CaptureOutcome> {
        self.with_sound_index(monitor, || {
            let started = Instant::now();
            // Each time more is known to be lost, and read anew for it.
            for _ in 0..limits::CAPTURE_ATTEMPTS_MAX {
                if let Some(mut outcome) = self.try_capture(path, options, monitor)? {
                    outcome.elapsed_ms = elapsed_ms(started);
                    return Ok(outcome);
                }
            }
            Err(losing())
        })
    }

    /// `None` where something of the base was found lost only after it was decided what to read: what
    /// the checkpoint would take over from the base may be lost too.
    fn try_capture(
        &self,
        path: &Path,
        options: &CaptureOptions,
        monitor: &dyn Monitor,
    ) -> Result<Option<CaptureOutcome>> {
        if let Some(label) = &options.label {
            check_label(label)?;
        }
        let asked = options.session.as_deref().map(session_name).transpose()?;
        let access = self.enter(monitor)?;
        let home = home_directory();
        let forced = options.force;
        let (home, chosen) = (home.as_deref(), options.workspace);
        let open = open_workspace(&access, path, forced, home, chosen, Purpose::Work, monitor)?;
        recover_before_capture(&access, &open, monitor);
        let session = asked.unwrap_or_else(|| open.workspace.default_session.clone());
        adopt_own(&access, &session)?;
        repair_session_file(&access, &session, monitor);
        let (mut operation, foundation) = begin(&access, &open, OperationKind::Capture)?;
        require_own_manifests(&access, &foundation)?;
        let Foundation { mut base, parent, takes_hints } = foundation;

        if let Some(base) = &base {
            capture::audit(&access, open.workspace.id, base, monitor)?;
        }
        // The limit for all together counts every file.
        let is_limited = options.scope.total_limit_bytes.is_some();
        let look = match &options.changed {
            _ if is_limited || options.ignored => Look::Whole(Detail::All),
            Some(hints) if takes_hints && is_newest(base.as_ref(), parent.as_ref()) => {
                Look::Hinted(hints)
            }
            _ => Look::Whole(Detail::Changes),
        };
        let unknown = unknown(&access, &open, base.as_ref(), options.changed.as_deref());
        let staging = access.blobs.stage(operation.id())?;
        staging.gather_small();
        let storing = Storing { operation: &operation, staging: &staging };
        let seen = look_and_hold(&access, &open, base.as_mut(), options, look, storing, monitor)?;
        let Seen { mut held, scope, coverage, git } = seen;
        if options.strict && !held.complete {
            return Err(Error::Incomplete { problems: held.problem_count });
        }
        let unchanged = if options.if_changed && held.same_as_base {
            unchanged_since(&access, base.as_ref(), parent.as_ref(), &coverage)?
        } else {
            None
        };
        // What was lost is stored again also where nothing has changed.
        if let Some(checkpoint) = unchanged.as_ref().filter(|_| held.lost.is_empty()) {
            operation.end()?;
            remember_unchanged(&access, &open, base, &held, monitor);
            return Ok(Some(outcome(checkpoint.clone(), false, &open, coverage, held, unknown)));
        }
        let trees =
            capture::store_tree(&access, &operation, base.as_ref(), &mut held, staging, None)?;
        if trees.found_loss {
            operation.end()?;
            return Ok(None);
        }
        if let Some(checkpoint) = unchanged {
            operation.end()?;
            remember_unchanged(&access, &open, base, &held, monitor);
            return Ok(Some(outcome(checkpoint, false, &open, coverage, held, unknown)));
        }
        let draft = Draft {
            session,
            label: options.label.clone(),
            trigger: options.trigger.clone(),
            workspace: open.workspace.id,
            root_path: open.path.clone(),
            parent,
            scope,
            coverage,
            git,
            restore: None,
        };
        let committed = capture::commit(
            &access,
            &mut operation,
            base.as_ref(),
            &held,
            &trees,
            &draft,
            Finish::End,
            monitor,
        )?;
        drop(operation);
        remember_seen(&access, &open, base, &held, &committed, monitor);
        let dropped = after_commit(&access, &committed, monitor);
        let coverage = committed.manifest.coverage;
        let outcome = outcome(committed.id, true, &open, coverage, held, unknown);
        Ok(Some(CaptureOutcome { dropped, ..outcome }))
    }
}

/// What was seen of a workspace, and is held.
struct Seen {
    held: Held,
    scope: Scope,
    coverage: Coverage,
    git: Option<GitState>,
}

/// Walks, and reads what has changed; again where a file had vanished when it was to be read. One that was
/// moved then, into a directory that had been listed, is in neither place.
fn look_and_hold(
    access: &Access,
    open: &OpenWorkspace,
    mut base: Option<&mut Base>,
    options: &CaptureOptions,
    look: Look<'_>,
    storing: Storing<'_>,
    monitor: &dyn Monitor,
) -> Result<Seen> {
    let settings = &options.scope;
    let mut so_far = ReadSoFar::default();
    let mut looks = 0;
    loop {
        looks += 1;
        let (mut observation, git) =
            observe_with_git(access, open, base.as_deref_mut(), settings, look, monitor)?;
        if options.ignored {
            let left_out = left_out_by_rule(&observation.walked);
            observation.walked.force(&left_out, monitor)?;
        }
        let scope = capture::scope_of(&observation.walked, settings);
        let coverage = capture::coverage_of(&observation.walked);
        let (base, storing) = (base.as_deref_mut(), Some(storing));
        let mut held = capture::hold(
            access,
            open,
            base,
            observation,
            settings,
            storing,
            &mut so_far,
            monitor,
        )?;
        let is_last = looks == limits::VANISHED_LOOKS_MAX;
        if held.vanished.is_empty() || is_last {
            held.give_up_vanished();
            return Ok(Seen { held, scope, coverage, git });
        }
    }
}

/// What is ignored or excluded.
pub(super) fn left_out_by_rule(walked: &Walked) -> Vec<RelPath> {
    let is_by_rule = |what: &What| {
        let What::Omitted { reason, .. } = what else { return false };
        matches!(reason, OmitReason::Ignored | OmitReason::Excluded)
    };
    let seen = walked.observations.iter().filter(|seen| is_by_rule(&seen.what));
    seen.filter(|seen| !is_version_control(seen.path.name()))
        .map(|seen| seen.path.clone())
        .collect()
}

/// Which of `hints` are neither on the disk nor in the base. Where that cannot be told none is: it is only for
/// whoever made the list.
///
/// Cost: a stat for each, and the pages of the base that may have those which are not there.
fn unknown(
    access: &Access,
    open: &OpenWorkspace,
    base: Option<&Base>,
    hints: Option<&[RelPath]>,
) -> Vec<RelPath> {
    let is_gone = |path: &&RelPath| {
        let stat = open.path.join(path.as_os()).symlink_metadata();
        stat.is_err_and(|error| {
            matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
        })
    };
    let mut gone: Vec<RelPath> =
        hints.unwrap_or_default().iter().filter(is_gone).cloned().collect();
    let Some(base) = base.filter(|_| !gone.is_empty()) else { return gone };
    let Ok(entries) = read_part(&access.blobs, &base.tree, &gone) else { return Vec::new() };
    let known: HashMap<&RelPath, bool> = entries
        .iter()
        .map(|entry| (&entry.path, matches!(entry.kind, EntryKind::Omitted { .. })))
        .collect();
    // What was left out as a whole may have had it.
    let is_left_out =
        |path: &RelPath| path.ancestors().any(|above| known.get(&above) == Some(&true));
    gone.retain(|path| !known.contains_key(path) && !is_left_out(path));
    gone
}

fn elapsed_ms(started: Instant) -> u64 {
    u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX)
}

fn outcome(
    checkpoint: CheckpointId,
    created: bool,
    open: &OpenWorkspace,
    coverage: Coverage,
    held: Held,
    unknown: Vec<RelPath>,
) -> CaptureOutcome {
    CaptureOutcome {
        unknown_count: unknown.len() as u64,
        first_unknown: unknown.into_iter().next(),
        checkpoint,
        created,
        root: open.path.clone(),
        coverage,
        complete: held.complete,
        counts: held.counts,
        problem_count: held.problem_count,
        problems: held.problems,
        dropped: Vec::new(),
        elapsed_ms: 0,
    }
}

/// The error of one who found something else lost each time.
pub(super) fn losing() -> Error {
    let path = PathBuf::from("the checkpoint that this one builds on");
    let reason = "something else of it was found lost each time it was read; try again";
    let source = std::io::Error::new(ErrorKind::InvalidData, reason);
    Error::Io { verb: "read", path, source }
}

/// A label is one line that a terminal can show.
pub(super) fn check_label(label: &str) -> Result<()> {
    let reason = if label.is_empty() {
        "it is empty"
    } else if label.len() > limits::LABEL_BYTES_MAX {
        "it is too long"
    } else if label.chars().any(char::is_control) {
        "it holds control characters"
    } else {
        return Ok(());
    };
    Err(Error::InvalidLabel { label: label.to_owned(), reason })
}

/// The home directory as the environment says it.
pub(super) fn home_directory() -> Option<PathBuf> {
    std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute())
}

/// What a workspace is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To capture or to change it: one that is not known is minted, and what was learned is written.
    Work,
    /// To look what would be done: nothing is written.
    Look,
}

/// Opens and locks a workspace, and finds or mints its identity.
pub(super) fn open_workspace(
    access: &Access,
    path: &Path,
    force: bool,
    home: Option<&Path>,
    chosen: Chosen,
    purpose: Purpose,
    monitor: &dyn Monitor,
) -> Result<OpenWorkspace> {
    let (dir, path) = open_root(path)?;
    refuse_inside_store(&access.layout, &path)?;
    if !force {
        refuse_too_wide(&path, home)?;
    }
    let stat = dir.stat_self()?;
    let lock = access.layout.workspace_lock(stat.dev, stat.ino);
    let lock = disk::lock(&lock, LockKind::Exclusive, "the workspace", monitor)?;
    let workspace = match purpose {
        Purpose::Work => access.workspaces.find_or_mint(&dir, &path, chosen, monitor)?,
        Purpose::Look => access.workspaces.find_or_imagine(&dir, &path, chosen)?,
    };
    Ok(OpenWorkspace { workspace, dir, path, _lock: lock })
}

/// Ends an interrupted restore first. A capture goes on where that cannot be done: it captures what
/// is there, and says so.
fn recover_before_capture(access: &Access, open: &OpenWorkspace, monitor: &dyn Monitor) {
    if let Err(error) = interrupted::recover(access, open, monitor) {
        monitor.notice(&Notice::RestoreLeftOpen { reason: with_source(&error) });
    }
}

/// Makes a damaged `session.json` anew. Where that fails the capture goes on: the index knows which
/// numbers were given.
fn repair_session_file(access: &Access, session: &SessionName, monitor: &dyn Monitor) {
    let repaired = access.sessions.find(session).and_then(|session| {
        let Some(session) = session else { return Ok(None) };
        let is_sound = access.sessions.read_session_file(&session).is_ok();
        if is_sound {
            return Ok(None);
        }
        let given = access.index.read("list sessions", |tx| tx.sessions())?;
        let row = given.iter().find(|row| row.name.folded() == session.folded());
        let given = row.map_or(0, |row| row.next_seq);
        access.sessions.repair_session_file(&session, given, &access.tmp)
    });
    match repaired {
        Ok(None) => {}
        Ok(Some(Repair { file, reason, aside })) => {
            monitor.notice(&Notice::Repaired { path: file, reason, aside });
        }
        Err(error) => monitor.notice(&Notice::Remark { text: error.with_source() }),
    }
}

/// Looks at dead operations and at one session's directory.
pub(super) fn adopt_own(access: &Access, session: &SessionName) -> Result<()> {
    let mut compared = Compared::default();
    let living = adoption::reap(access, &mut compared)?;
    if let Some(session) = access.sessions.find(session)? {
        adoption::adopt_session(access, &session, &living, &mut compared)?;
    }
    Ok(())
}

/// Ends the operations of the dead and adopts what lies in any session without a row.
pub(super) fn adopt_all(access: &Access) -> Result<()> {
    adoption::compare_all(access).map(|_| ())
}

/// Registers the operation and, in the same transaction, chooses what it builds on.
pub(super) fn begin<'a>(
    access: &'a Access,
    open: &OpenWorkspace,
    kind: OperationKind,
) -> Result<(Operation<'a>, Foundation)> {
    let id = open.workspace.id;
    let described = described(access, open);
    let choose = |tx: &WriteTx<'_>| {
        let foundation = foundation(tx, id, described.as_ref())?;
        Ok((foundation.base.as_ref().map(|base| base.id.clone()), foundation))
    };
    Operation::begin(access, kind, Some(id), choose)
}

/// Requires that the index knows what is built on from the manifests that are there.
///
/// # Errors
/// [`Error::IndexDamaged`].
fn require_own_manifests(access: &Access, foundation: &Foundation) -> Result<()> {
    let base = foundation.base.as_ref().map(|base| (&base.id, base.digest));
    let parent = foundation.parent.as_ref().map(|parent| (&parent.id, parent.digest));
    // Most often they are one.
    let parent = parent.filter(|parent| base != Some(*parent));
    base.into_iter()
        .chain(parent)
        .try_for_each(|(id, digest)| adoption::require_own_manifest(access, id, digest))
}

/// What an operation would build on that only looks: nothing is registered, so a prune may take the
/// base away under it, which then fails.
pub(super) fn look_for_foundation(access: &Access, open: &OpenWorkspace) -> Result<Foundation> {
    let described = described(access, open);
    access.index.read("choose a base", |tx| foundation(&tx, open.workspace.id, described.as_ref()))
}

/// What the stat cache describes.
fn described(access: &Access, open: &OpenWorkspace) -> Option<CacheHeader> {
    StatCache::peek(&access.workspaces.directory(open.workspace.id))
        .filter(|header| header.store == access.store)
}

/// The checkpoint that the stat cache describes, if it is live, else the workspace's newest.
fn foundation(
    tx: &ReadTx<'_>,
    id: WorkspaceId,
    described: Option<&CacheHeader>,
) -> Result<Foundation> {
    let newest = tx.newest_of_workspace(id, true)?;
    let cached = match described {
        None => None,
        Some(header) => tx
            .checkpoint(&header.checkpoint)?
            .filter(|row| row.digest == header.digest && row.workspace == id && !row.is_pruning()),
    };
    let reference = |row: &CheckpointRow| CheckpointRef { id: row.id.clone(), digest: row.digest };
    let parent = newest.as_ref().map(reference);
    let takes_hints = newest.as_ref().is_some_and(|row| !row.is_safety() && row.complete);
    let base = cached.or(newest);
    let base = base.map(|row| Base { id: row.id, digest: row.digest, tree: row.tree, cache: None });
    Ok(Foundation { base, parent, takes_hints })
}

/// Whether the base is the newest checkpoint of the workspace: what is said to have changed since that
/// one says nothing of what changed since another. A restore of given paths makes a newer one that knows
/// less.
fn is_newest(base: Option<&Base>, parent: Option<&CheckpointRef>) -> bool {
    matches!((base, parent), (Some(base), Some(parent)) if base.id == parent.id)
}

/// Walks, by the stat cache if it describes exactly the base, and beside it asks git where HEAD is.
pub(super) fn observe_with_git(
    access: &Access,
    open: &OpenWorkspace,
    base: Option<&mut Base>,
    scope: &crate::settings::ScopeSettings,
    look: Look<'_>,
    monitor: &dyn Monitor,
) -> Result<(capture::Observation, Option<GitState>)> {
    beside_git(open, monitor, || {
        let Some(base) = base else {
            return capture::observe(access, open, scope, None, look, monitor);
        };
        let directory = access.workspaces.directory(open.workspace.id);
        let describes = |cache: &StatCache| cache.header == base.described(access.store);
        if let Look::Hinted(hints) = look
            && let Some(part) = StatCache::read_part(&directory, hints).filter(describes)
            && let observed =
                capture::observe_hinted(access, open, scope, &part.tree, hints, monitor)?
            && let Some(observation) = observed
        {
            base.cache = Some(part);
            return Ok(observation);
        }
        base.cache = StatCache::read(&directory).filter(describes);
        let known = base.cache.as_ref().map(|cache| &cache.tree);
        capture::observe(access, open, scope, known, look, monitor)
    })
}

/// Does something, and beside it asks git where HEAD is.
pub(super) fn beside_git<T>(
    open: &OpenWorkspace,
    monitor: &dyn Monitor,
    work: impl FnOnce() -> Result<T>,
) -> Result<(T, Option<GitState>)> {
    std::thread::scope(|threads| {
        let head = threads.spawn(|| {
            let repository = git::repository_of(&open.path)?;
            // That git cannot say is no reason not to capture.
            git::head(&repository, &|| monitor.is_cancelled()).ok()
        });
        let done = work()?;
        let git = head.join().ok().flatten();
        Ok((done, git))
    })
}

/// The checkpoint that is to be answered with instead of a new one, whose entries would be those of the
/// base: the newest, if it has the same, and accounts for as much of the workspace.
fn unchanged_since(
    access: &Access,
    base: Option<&Base>,
    parent: Option<&CheckpointRef>,
    coverage: &Coverage,
) -> Result<Option<CheckpointId>> {
    let (Some(base), Some(parent)) = (base, parent) else { return Ok(None) };
    let row = access.index.read("find a checkpoint", |tx| tx.checkpoint(&parent.id))?;
    if row.is_none_or(|row| row.tree.root != base.tree.root) {
        return Ok(None);
    }
    let accounts_for_as_much = match access.sessions.require(&parent.id)?.0.coverage {
        Coverage::Full => true,
        Coverage::Hinted(_) => matches!(coverage, Coverage::Hinted(_)),
        Coverage::Paths => false,
    };
    Ok(accounts_for_as_much.then(|| parent.id.clone()))
}

/// Notes that files which had to be read, although they are as in the base, can be relied upon by
/// their stamps now. Without this a caller that asks only for changes reads them each time.
fn remember_unchanged(
    access: &Access,
    open: &OpenWorkspace,
    base: Option<Base>,
    held: &Held,
    monitor: &dyn Monitor,
) {
    let Some(base) = base.filter(|_| !held.cache_is_current) else { return };
    let reference = CheckpointRef { id: base.id.clone(), digest: base.digest };
    let saved = capture::save_cache(access, open.workspace.id, Some(base), held, reference);
    if let Err(error) = saved {
        let reason = format!("the stat cache was not written: {}", with_source(&error));
        monitor.notice(&Notice::AfterCommit { reason });
    }
}

/// Remembers what was seen of the workspace, for the next capture.
pub(super) fn remember_seen(
    access: &Access,
    open: &OpenWorkspace,
    base: Option<Base>,
    held: &Held,
    committed: &Committed,
    monitor: &dyn Monitor,
) {
    let checkpoint = CheckpointRef { id: committed.id.clone(), digest: committed.digest };
    let saved = capture::save_cache(access, open.workspace.id, base, held, checkpoint);
    if let Err(error) = saved {
        let reason = format!("the stat cache was not written: {}", with_source(&error));
        monitor.notice(&Notice::AfterCommit { reason });
    }
}

/// What follows a commit and is never part of its success. Returns what the rules of retention dropped.
pub(super) fn after_commit(
    access: &Access,
    committed: &Committed,
    monitor: &dyn Monitor,
) -> Vec<CheckpointId> {
    let tell = |what: &str, error: &Error| {
        let hint = error.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
        let reason = format!("{what}: {}{hint}", with_source(error));
        monitor.notice(&Notice::AfterCommit { reason });
    };
    let marked = if access.upkeep.prunes {
        retention::mark_behind(access, &committed.id.session)
    } else {
        Ok(PruneOutcome::default())
    };
    let mut dropped = Vec::new();
    match marked {
        Ok(marked) if marked.pruned.is_empty() => {}
        Ok(marked) => {
            // Written down first: whoever finishes this after a crash does not know why it was done.
            let ids: Vec<_> = marked.pruned.iter().map(log::id).collect();
            let details = serde_json::json!({ "checkpoints": ids, "why": "retention" });
            if let Err(error) = log::append_routine(access, "prune", details) {
                tell("the log was not written", &error);
            }
            retention::unlink(access, &marked.pruned);
            dropped = marked.pruned;
        }
        Err(error) => tell("old checkpoints were not pruned", &error),
    }
    let stored = committed.manifest.counts.bytes_stored;
    let is_tight = evicting::evict_if_needed(access, stored, monitor).unwrap_or_else(|error| {
        tell("old checkpoints were not evicted", &error);
        false
    });
    if let Err(error) = super::retaining::sweep_if_due(access, is_tight, monitor) {
        tell("unused content was not swept", &error);
    }
    if let Err(error) = access.index.trim_wal() {
        tell("the log of the index was not emptied", &error);
    }
    dropped
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::mutation::{config, near_text};

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn a_label_is_one_line_that_a_terminal_can_show(
            text in near_text(&["before the change", "\u{e9}\u{65e5}", "a\tb", "x"]),
        ) {
            let is_label = (1..=512).contains(&text.len())
                && text.chars().all(|character| !character.is_control());
            match check_label(&text) {
                Ok(()) => prop_assert!(is_label),
                Err(Error::InvalidLabel { label, .. }) => {
                    prop_assert!(!is_label);
                    prop_assert_eq!(label, text);
                }
                Err(error) => panic!("{error:?}"),
            }
        }
    }
}
