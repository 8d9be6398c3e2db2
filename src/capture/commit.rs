//! The commit point of a capture, and what comes after it.

use crate::access::Access;
use crate::blobs::Presence;
use crate::capture::audit::note_packs;
use crate::capture::hold::{Base, Held, StoredTrees};
use crate::checkpoint::PinFile;
use crate::clock::Timestamp;
use crate::disk::Created;
use crate::error::{Error, Result};
use crate::hash::{BlobHash, Digest};
use crate::id::{CheckpointId, Seq, SessionName, WorkspaceId};
use crate::manifest::{
    CheckpointRef, Coverage, Entry, GitState, Manifest, RestoreRecord, Scope, Trigger, read_entries,
};
use crate::monitor::{Monitor, Notice, Phase};
use crate::registration::Operation;
use crate::sessions::with_source;
use crate::workspaces::{CacheHeader, News, StatCache};

/// Everything a manifest says that the trees do not.
#[derive(Debug, Clone)]
pub(crate) struct Draft {
    /// The session to add to, as the caller wrote it.
    pub(crate) session: SessionName,
    /// A name for people.
    pub(crate) label: Option<String>,
    /// What made it.
    pub(crate) trigger: Trigger,
    /// The workspace.
    pub(crate) workspace: WorkspaceId,
    /// Where its root is.
    pub(crate) root_path: std::path::PathBuf,
    /// The checkpoint of this workspace before it.
    pub(crate) parent: Option<CheckpointRef>,
    /// By which rules.
    pub(crate) scope: Scope,
    /// How much of the workspace was looked at.
    pub(crate) coverage: Coverage,
    /// Where git's HEAD was.
    pub(crate) git: Option<GitState>,
    /// For a safety checkpoint: what it is made for; its `after` is the stored extra tree.
    pub(crate) restore: Option<RestoreRecord>,
}

/// Whether the operation is over with the commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finish {
    /// It ends, and its pins go, in the transaction that inserts the rows.
    End,
    /// It goes on: a restore that has saved the present.
    KeepGoing,
}

/// A checkpoint that stands.
#[derive(Debug, Clone)]
pub(crate) struct Committed {
    /// Which one.
    pub(crate) id: CheckpointId,
    /// Its digest.
    pub(crate) digest: Digest,
    /// The whole of it.
    pub(crate) manifest: Manifest,
}

/// How often a number that another process took meanwhile is replaced by a higher one.
const NUMBER_TRIES_MAX: u32 = 16;

/// Writes the manifest and then the rows.
///
/// # Durability
/// When it returns, the checkpoint survives a power cut. Errors after the commit point are told as
/// notices: the next command adopts the manifest.
pub(crate) fn commit(
    access: &Access,
    operation: &mut Operation<'_>,
    base: Option<&Base>,
    held: &Held,
    trees: &StoredTrees,
    draft: &Draft,
    finish: Finish,
    monitor: &dyn Monitor,
) -> Result<Committed> {
    monitor.phase(Phase::Commit, None);
    let created_at = Timestamp::now();
    for _ in 0..NUMBER_TRIES_MAX {
        let Some(id) = reserve(access, operation, &draft.session)? else {
            protect_again(access, operation, base.map(|base| &base.id), trees)?;
            continue;
        };
        let manifest = Manifest {
            op: operation.id(),
            id: id.clone(),
            created_at,
            workspace: draft.workspace,
            root_path: draft.root_path.clone(),
            label: draft.label.clone(),
            trigger: draft.trigger.clone(),
            parent: draft.parent.clone(),
            scope: draft.scope.clone(),
            coverage: draft.coverage.clone(),
            complete: held.complete,
            git: draft.git.clone(),
            restore: draft.restore.clone(),
            tree: trees.tree,
            counts: held.counts.clone(),
        };
        let (text, digest) = manifest.encode();
        operation.entrust();
        let pruned = unlink_marked(access, &id.session)?;
        // From here on the checkpoint exists; and with its name the unlinks in the same directory are
        // durable, so the rows of what was unlinked may go.
        if access.sessions.write(&id, &text, &access.tmp)? == Created::Done {
            let committed = Committed { id, digest, manifest };
            let rows = Rows { trees, pruned, file_bytes: text.len() as u64 };
            index(access, operation, &rows, &committed, finish, monitor);
            // Not noted, the next audit does not miss what comes here and is gone by then.
            drop(note_packs(access, draft.workspace));
            return Ok(committed);
        }
    }
    Err(Error::Busy {
        lock: format!("session `{}`", draft.session),
        waited: std::time::Duration::ZERO,
    })
}

/// Takes away the files of what a prune of the session has marked, as far as they are still there, and
/// gives those that have none now.
fn unlink_marked(access: &Access, session: &SessionName) -> Result<Vec<CheckpointId>> {
    let marked =
        access.index.read("list marked checkpoints", |tx| tx.pruning_of_session(session))?;
    let ids = marked.into_iter().map(|seq| CheckpointId { session: session.clone(), seq });
    // Why something cannot be unlinked is told by prune and gc, for which it is left.
    Ok(ids.filter(|id| access.sessions.remove(id).is_ok()).collect())
}

/// Takes the next number of the session and says in the index that it is about to be used; `None`
/// where the operation is not registered any more.
fn reserve(
    access: &Access,
    operation: &Operation<'_>,
    session: &SessionName,
) -> Result<Option<CheckpointId>> {
    // Files first: a number given by a process whose rows are lost is still in the directory.
    let on_disk = access.sessions.find(session)?.unwrap_or_else(|| session.clone());
    let lowest = access.sessions.next_seq(&on_disk)?;
    access.index.write("reserve a number", |tx| {
        if !operation.is_registered(&tx)? {
            return Ok(None);
        }
        // Two processes that begin `Foo` and `foo` at once agree here on one way of writing it.
        let session = tx.find_session(session)?.unwrap_or_else(|| on_disk.clone());
        let seq: Seq = tx.reserve_seq(&session, lowest)?;
        let id = CheckpointId { session, seq };
        tx.set_intent(operation.id(), &id)?;
        Ok(Some(id))
    })
}

/// Somebody took this operation for dead and dropped its pins. Registers again, pins everything the
/// manifest will name, reused content and all pages included, and then looks whether it is there.
///
/// # Errors
/// [`Error::BlobMissing`]: a sweep was faster. Nothing is committed; capturing again reads the file.
fn protect_again(
    access: &Access,
    operation: &mut Operation<'_>,
    base: Option<&CheckpointId>,
    trees: &StoredTrees,
) -> Result<()> {
    operation.register_again(base)?;
    let mut needed = Vec::new();
    // The second is what a restore is about to put in place: the checkpoint that has it was given up with
    // the pins, and what merging made no checkpoint has.
    for tree in [Some(trees.tree), trees.extra].into_iter().flatten() {
        collect_pages(access, tree, &mut needed)?;
        let entries = read_entries(&access.blobs, &tree)?;
        needed.extend(entries.iter().filter_map(Entry::blob));
    }
    needed.sort_unstable();
    needed.dedup();
    let hashes: Vec<BlobHash> = needed.iter().map(|(hash, _)| *hash).collect();
    operation.pin(&hashes)?;
    for (hash, size) in needed {
        if !matches!(access.blobs.look(hash, size, None)?, Presence::Present { .. }) {
            return Err(Error::BlobMissing { hash });
        }
    }
    Ok(())
}

fn collect_pages(
    access: &Access,
    tree: crate::manifest::Tree,
    needed: &mut Vec<(BlobHash, u64)>,
) -> Result<()> {
    for (hash, size) in crate::manifest::page_refs(&access.blobs, &tree)? {
        needed.push((hash, size));
    }
    Ok(())
}

/// What is written into the index for a checkpoint besides its manifest.
struct Rows<'a> {
    trees: &'a StoredTrees,
    /// Whose rows go.
    pruned: Vec<CheckpointId>,
    file_bytes: u64,
}

/// Inserts the rows. Whatever fails here is a notice: the manifest stands.
fn index(
    access: &Access,
    operation: &mut Operation<'_>,
    rows: &Rows<'_>,
    committed: &Committed,
    finish: Finish,
    monitor: &dyn Monitor,
) {
    let pin = PinFile::default();
    let owner = operation.id();
    let insert = |pruned: &[CheckpointId]| {
        access.index.write("insert a checkpoint", |tx| {
            tx.insert_checkpoint(
                &committed.manifest,
                committed.digest,
                rows.file_bytes,
                &pin,
                &rows.trees.stored_sizes,
                &access.blobs,
            )?;
            pruned.iter().try_for_each(|id| tx.delete_checkpoint(id))?;
            match finish {
                Finish::End => tx.remove_operation(owner),
                Finish::KeepGoing => tx.pin_checkpoints(owner, std::slice::from_ref(&committed.id)),
            }
        })
    };
    // What is wrong with an old checkpoint's rows must not keep the new one out.
    let inserted = match insert(&rows.pruned) {
        Err(_) if !rows.pruned.is_empty() => insert(&[]),
        inserted => inserted,
    };
    match inserted {
        Ok(()) => {
            operation.is_recorded();
            if finish == Finish::End {
                operation.was_ended();
            }
        }
        Err(error) => {
            let reason = format!("the index was not brought up to date: {}", with_source(&error));
            monitor.notice(&Notice::AfterCommit { reason });
        }
    }
}

/// Remembers what was seen, for the next capture, as the state of `checkpoint`, whose entries are those
/// of `held`. The caller still holds the workspace's lock.
///
/// Entries that were read although their stamps had not moved are written as trusted if they are by
/// now: so a tree that was just checked out is read twice and not for ever.
pub(crate) fn save_cache(
    access: &Access,
    workspace: WorkspaceId,
    base: Option<Base>,
    held: &Held,
    checkpoint: CheckpointRef,
) -> Result<()> {
    let dir = access.workspaces.directory(workspace);
    let CheckpointRef { id: checkpoint, digest } = checkpoint;
    let header = CacheHeader { store: access.store, checkpoint, digest };
    if let Some(cache) = base.and_then(|base| base.cache) {
        if held.cache_is_current {
            return cache.rewrite_header(&dir, &header);
        }
        let news = News {
            entries: &held.entries,
            touched: &held.touched,
            rules: held.rules.as_ref(),
            has_new_rules: held.has_new_rules,
        };
        return cache.update(&dir, &header, news, &access.tmp);
    }
    StatCache::write(&dir, &header, &held.entries, held.rules.as_ref(), &access.tmp)
}
