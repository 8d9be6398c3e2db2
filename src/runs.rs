//! Runs in work trees of their own: what is remembered of each, and whether somebody is at work on it.
//!
//! The record is durable before the repository is changed, and the lock beside it is held as long as
//! somebody is at work: who takes the lock knows that the record is all there is to know.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::disk::{self, Dir, Lock, LockKind};
use crate::error::{BadFile, Error, IoContext, Result, not_understood};
use crate::id::{CheckpointId, RunId, Seq, SessionName, WorkspaceId};
use crate::layout::Layout;
use crate::limits;
use crate::manifest::{from_fields, to_fields};

/// The version of the record.
const FORMAT: u64 = 1;

/// How often a lock that is held is tried, and the pause between.
const LOCK_TRIES: u32 = 10;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// How far a run has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunState {
    /// Its work tree is being made; nothing was run in it.
    Making,
    /// Its work tree is there, for whatever runs or ran in it.
    Made,
    /// Everything in it is held elsewhere, and it is being removed.
    Removing,
    /// It is gone.
    Removed,
}

/// What is remembered of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunRecord {
    pub(crate) id: RunId,
    pub(crate) state: RunState,
    /// The workspace of the checkout that it was started from.
    pub(crate) workspace: WorkspaceId,
    /// The session of its checkpoints.
    pub(crate) session: SessionName,
    /// What the work trees of the repository share.
    pub(crate) repository: PathBuf,
    /// The top of the checkout that it was started from.
    pub(crate) top: PathBuf,
    /// The commit it was made from.
    pub(crate) commit: String,
    /// The command, for people.
    pub(crate) command: Vec<String>,
    pub(crate) started_at: Timestamp,
    pub(crate) ended_at: Option<Timestamp>,
    /// What the command ended with.
    pub(crate) status: Option<u8>,
    /// The checkpoint before the command.
    pub(crate) before: Option<CheckpointId>,
    /// The checkpoint that holds what was in the work tree when it was removed.
    pub(crate) kept: Option<CheckpointId>,
    /// The checkpoints that hold what came into the work tree after that: its removal had begun, and was cut off.
    pub(crate) further: Vec<CheckpointId>,
    /// The refs that lead to commits which only the run had.
    pub(crate) refs: Vec<String>,
    /// What its removal was to hold; `None` before one.
    pub(crate) holds: Option<Holds>,
    /// The checkpoint of it that was applied last.
    pub(crate) applied: Option<CheckpointId>,
}

/// What a removal was to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Holds {
    /// What is ignored or excluded, too: in one of its checkpoints it is.
    pub(crate) ignored: bool,
    /// All of the rest: what cannot be held was not given up for the first of them.
    pub(crate) all: bool,
}

impl RunRecord {
    /// Where its work tree is, or was.
    pub(crate) fn path(&self) -> PathBuf {
        place(&self.top).join(self.id.to_string())
    }

    /// Its branch.
    pub(crate) fn branch(&self) -> String {
        format!("turnpoint/{}", self.id)
    }
}

/// Where the work trees of the runs are that were started from the checkout `top`.
pub(crate) fn place(top: &Path) -> PathBuf {
    top.join(".turnpoint").join("worktrees")
}

/// Whether a directory is where the work tree of a run is, or was.
pub(crate) fn is_place_of_run(path: &Path) -> bool {
    let top = path.ancestors().nth(3);
    top.is_some_and(|top| path.parent() == Some(&place(top)))
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireRecord {
    format: u64,
    run: String,
    state: RunState,
    session: String,
    repository: WirePath,
    top: WirePath,
    commit: String,
    command: Vec<String>,
    started_at: String,
    ended_at: Option<String>,
    status: Option<u8>,
    before: Option<WireCheckpoint>,
    kept: Option<WireCheckpoint>,
    refs: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    holds: Option<Holds>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    further: Vec<WireCheckpoint>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    applied: Option<WireCheckpoint>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WirePath {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path_bytes: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireCheckpoint {
    session: String,
    seq: u64,
}

/// The version alone, from a text whose other fields may be unknown.
#[derive(Deserialize)]
struct Version {
    format: u64,
}

/// The records of a store.
#[derive(Debug, Clone)]
pub(crate) struct Runs {
    layout: Layout,
}

impl Runs {
    /// The runs that the store at `layout` remembers.
    pub(crate) fn new(layout: &Layout) -> Self {
        Self { layout: layout.clone() }
    }

    fn directory(&self, workspace: WorkspaceId) -> PathBuf {
        self.layout.workspace(workspace).join("runs")
    }

    /// Takes the lock of a run, if nobody is at work on it.
    pub(crate) fn lock(&self, workspace: WorkspaceId, id: RunId) -> Result<Option<Lock>> {
        disk::make_private_dir(&self.directory(workspace))?;
        let path = self.directory(workspace).join(format!("{id}.lock"));
        for _ in 1..LOCK_TRIES {
            if let Some(lock) = disk::try_lock(&path, LockKind::Exclusive)? {
                return Ok(Some(lock));
            }
            // It may only be somebody who looks whether the run is alive.
            std::thread::sleep(LOCK_PAUSE);
        }
        disk::try_lock(&path, LockKind::Exclusive)
    }

    /// Whether somebody is at work on a run. Holds its lock for a moment to find out.
    pub(crate) fn is_alive(&self, record: &RunRecord) -> Result<bool> {
        let path = self.directory(record.workspace).join(format!("{}.lock", record.id));
        if disk::modified_ns(&path)?.is_none() {
            return Ok(false);
        }
        Ok(disk::try_lock(&path, LockKind::Shared)?.is_none())
    }

    /// Writes a record, durably. The caller holds the run's lock.
    pub(crate) fn write(&self, record: &RunRecord) -> Result<()> {
        let dir = disk::make_private_dir(&self.directory(record.workspace))?;
        let text = encode(record)?;
        let tmp = Dir::open(&self.layout.tmp())?;
        disk::replace_durably(&dir, format!("{}.json", record.id).as_bytes(), &text, &tmp)
    }

    /// Forgets a run. The caller holds the run's lock, which has no meaning afterwards.
    pub(crate) fn forget(&self, record: &RunRecord) -> Result<()> {
        let dir = Dir::open(&self.directory(record.workspace))?;
        disk::remove_durably(&dir, format!("{}.json", record.id).as_bytes())?;
        dir.try_unlink(format!("{}.lock", record.id).as_bytes())?;
        Ok(())
    }

    /// Removes the locks of runs that were never recorded: their processes were killed just before that.
    pub(crate) fn remove_stray_locks(&self, workspace: WorkspaceId) -> Result<()> {
        let dir = Dir::open(&self.directory(workspace))?;
        for name in dir.names()? {
            let Some(id) = name.strip_suffix(b".lock").and_then(parsed::<RunId>) else { continue };
            let record = format!("{id}.json");
            if dir.stat(record.as_bytes())?.is_none()
                && let Some(_lock) = disk::try_lock(&dir.path_of(&name), LockKind::Exclusive)?
                // Recorded since, or not: who would record it now finds the name gone, or taken.
                && dir.stat(record.as_bytes())?.is_none()
            {
                dir.try_unlink(&name)?;
            }
        }
        Ok(())
    }

    /// The runs with this id: of more than one repository there may be one.
    ///
    /// Cost: one look for each workspace, and one small file.
    pub(crate) fn with_id(&self, id: RunId) -> Result<Vec<RunRecord>> {
        let workspaces = self.layout.workspaces();
        if !disk::is_directory(&workspaces)? {
            return Ok(Vec::new());
        }
        let names = disk::list_dir(&workspaces)?.into_iter();
        let ids = names.filter_map(|(name, _)| parsed(&name));
        ids.filter_map(|workspace| self.read(workspace, id).transpose()).collect()
    }

    /// Every run, in order of its beginning, and the records that cannot be understood.
    ///
    /// Cost: one small file each.
    pub(crate) fn all(&self) -> Result<(Vec<RunRecord>, Vec<BadFile>)> {
        let (mut records, mut bad) = (Vec::new(), Vec::new());
        let workspaces = self.layout.workspaces();
        if !disk::is_directory(&workspaces)? {
            return Ok((records, bad));
        }
        for (name, _) in disk::list_dir(&workspaces)? {
            let Some(workspace) = parsed(&name) else { continue };
            let dir = self.directory(workspace);
            if !disk::is_directory(&dir)? {
                continue;
            }
            for (name, _) in disk::list_dir(&dir)? {
                let Some(id) = name.strip_suffix(b".json").and_then(parsed) else { continue };
                match self.read(workspace, id) {
                    Ok(record) => records.extend(record),
                    Err(error @ Error::StoreTooNew { .. }) => return Err(error),
                    Err(error) => {
                        let path = dir.join(OsStr::from_bytes(&name));
                        bad.push(BadFile { path, reason: error.with_source() });
                    }
                }
            }
        }
        records.sort_by_key(|record| (record.started_at, record.id));
        Ok((records, bad))
    }

    /// The checkpoints that the runs which are there began with: without them nobody could tell any more what
    /// was changed in one. `None` where one of the records cannot be understood: then any checkpoint that was
    /// taken for a command may be one.
    ///
    /// Cost: as [`Self::all`].
    pub(crate) fn beginnings(&self) -> Result<Option<HashSet<CheckpointId>>> {
        let (records, bad) = self.all()?;
        if !bad.is_empty() {
            return Ok(None);
        }
        let is_there = |record: &RunRecord| record.state != RunState::Removed;
        Ok(Some(records.into_iter().filter(is_there).filter_map(|record| record.before).collect()))
    }

    /// What is remembered of a run now; `None` where it was forgotten.
    pub(crate) fn read(&self, workspace: WorkspaceId, id: RunId) -> Result<Option<RunRecord>> {
        let path = self.directory(workspace).join(format!("{id}.json"));
        let Some(text) = disk::read_small(&path, limits::SMALL_FILE_BYTES_MAX)? else {
            return Ok(None);
        };
        if let Ok(Version { format: found }) = serde_json::from_slice(&text)
            && found > FORMAT
        {
            return Err(Error::StoreTooNew { path, found, supported: FORMAT });
        }
        let wire: WireRecord = serde_json::from_slice(&text)
            .map_err(|error| not_understood(&path, error.to_string()))?;
        decode(wire, workspace, id).map(Some).map_err(|reason| not_understood(&path, reason))
    }
}

fn parsed<T: std::str::FromStr>(name: &[u8]) -> Option<T> {
    std::str::from_utf8(name).ok().and_then(|name| name.parse().ok())
}

fn encode(record: &RunRecord) -> Result<Vec<u8>> {
    let path = |path: &Path| {
        let (path, path_bytes) = to_fields(path.as_os_str().as_bytes());
        WirePath { path: path.map(std::borrow::Cow::into_owned), path_bytes }
    };
    let checkpoint = |id: &CheckpointId| WireCheckpoint {
        session: id.session.as_str().to_owned(),
        seq: id.seq.get(),
    };
    let wire = WireRecord {
        format: FORMAT,
        run: record.id.to_string(),
        state: record.state,
        session: record.session.as_str().to_owned(),
        repository: path(&record.repository),
        top: path(&record.top),
        commit: record.commit.clone(),
        command: record.command.clone(),
        started_at: record.started_at.to_string(),
        ended_at: record.ended_at.map(|time| time.to_string()),
        status: record.status,
        before: record.before.as_ref().map(checkpoint),
        kept: record.kept.as_ref().map(checkpoint),
        further: record.further.iter().map(checkpoint).collect(),
        refs: record.refs.clone(),
        holds: record.holds,
        applied: record.applied.as_ref().map(checkpoint),
    };
    serde_json::to_vec(&wire).map_err(std::io::Error::from).at("encode", Path::new("a run"))
}

fn decode(wire: WireRecord, workspace: WorkspaceId, id: RunId) -> Result<RunRecord, String> {
    if wire.format != FORMAT {
        return Err(format!("its format is {}", wire.format));
    }
    if wire.run != id.to_string() {
        return Err(format!("it says that it is {}", wire.run));
    }
    let path = |wire: WirePath| {
        let bytes = from_fields(wire.path.map(Into::into), wire.path_bytes.as_deref())?;
        Ok::<_, String>(PathBuf::from(OsStr::from_bytes(&bytes)))
    };
    let session =
        |text: &str| SessionName::new(text).map_err(|error| format!("its session: {error}"));
    let checkpoint = |wire: WireCheckpoint| {
        let seq = Seq::new(wire.seq).ok_or_else(|| format!("{} is no number", wire.seq))?;
        Ok::<_, String>(CheckpointId { session: session(&wire.session)?, seq })
    };
    let time = |text: &str| text.parse().map_err(|error| format!("`{text}`: {error}"));
    Ok(RunRecord {
        id,
        state: wire.state,
        workspace,
        session: session(&wire.session)?,
        repository: path(wire.repository)?,
        top: path(wire.top)?,
        commit: wire.commit,
        command: wire.command,
        started_at: time(&wire.started_at)?,
        ended_at: wire.ended_at.as_deref().map(time).transpose()?,
        status: wire.status,
        before: wire.before.map(checkpoint).transpose()?,
        kept: wire.kept.map(checkpoint).transpose()?,
        further: wire.further.into_iter().map(checkpoint).collect::<Result<_, _>>()?,
        refs: wire.refs,
        holds: wire.holds,
        applied: wire.applied.map(checkpoint).transpose()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let home = tempfile::tempdir().unwrap();
        let layout = Layout::new(home.path());
        layout.create_directories().unwrap();
        let runs = Runs::new(&layout);
        let session = SessionName::new("s").unwrap();
        let checkpoint =
            |seq| CheckpointId { session: session.clone(), seq: Seq::new(seq).unwrap() };
        let mut record = RunRecord {
            id: RunId::random(),
            state: RunState::Making,
            workspace: WorkspaceId::random(),
            session: session.clone(),
            repository: PathBuf::from("/r/.git"),
            top: PathBuf::from(OsStr::from_bytes(b"/r/\xff\n")),
            commit: "0".repeat(40),
            command: vec!["make".to_owned(), String::new()],
            started_at: Timestamp::from_ns(1_790_000_000_000_000_001),
            ended_at: None,
            status: None,
            before: None,
            kept: None,
            further: Vec::new(),
            refs: Vec::new(),
            holds: None,
            applied: None,
        };
        let all = || runs.all().unwrap();
        runs.write(&record).unwrap();
        assert_eq!(all(), (vec![record.clone()], vec![]));
        record.state = RunState::Removed;
        record.ended_at = Some(Timestamp::from_ns(1_790_000_000_000_000_002));
        (record.status, record.before, record.kept) =
            (Some(3), Some(checkpoint(0)), Some(checkpoint(7)));
        record.refs = vec!["refs/turnpoint/removed/x/branch".to_owned()];
        record.holds = Some(Holds { ignored: true, all: false });
        record.further = vec![checkpoint(8), checkpoint(9)];
        record.applied = Some(checkpoint(6));
        runs.write(&record).unwrap();
        assert_eq!(all(), (vec![record.clone()], vec![]));

        let lock = runs.lock(record.workspace, record.id).unwrap().unwrap();
        assert!(runs.is_alive(&record).unwrap());
        assert!(runs.lock(record.workspace, record.id).unwrap().is_none());
        drop(lock);
        assert!(!runs.is_alive(&record).unwrap());

        let file = runs.directory(record.workspace).join(format!("{}.json", record.id));
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, text.replace("\"removed\"", "\"lost\"")).unwrap();
        let (none, bad) = all();
        assert_eq!((none, &bad[0].path), (vec![], &file));
        std::fs::write(&file, text).unwrap();
        runs.forget(&record).unwrap();
        assert_eq!(all(), (vec![], vec![]));

        // A process that was killed before it recorded its run leaves a lock, one that lives holds it.
        let lock =
            |id| disk::modified_ns(&runs.directory(record.workspace).join(format!("{id}.lock")));
        let (dead, living) = (RunId::random(), RunId::random());
        drop(runs.lock(record.workspace, dead).unwrap().unwrap());
        let _held = runs.lock(record.workspace, living).unwrap().unwrap();
        runs.remove_stray_locks(record.workspace).unwrap();
        assert_eq!((lock(dead).unwrap(), lock(living).unwrap().is_some()), (None, true));
    }
}
