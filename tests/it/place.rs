//! A store and a workspace that go away together.

use std::path::{Path, PathBuf};

use turnpoint::id::CheckpointId;
use turnpoint::{
    CaptureOptions, ListQuery, Notice, RestoreOptions, RestoreOutcome, Store, VerifyOptions,
};

use crate::support::fingerprint::{self, Fingerprint};
use crate::support::packs;

pub(crate) struct Place {
    home: tempfile::TempDir,
    workspace: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { home: tempfile::tempdir().unwrap(), workspace: tempfile::tempdir().unwrap() }
    }

    /// In memory, where there is such a place: a barrier costs nothing there.
    pub(crate) fn in_memory() -> Self {
        let memory = Path::new("/dev/shm");
        let place = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let make = || tempfile::tempdir_in(&place).unwrap();
        Self { home: make(), workspace: make() }
    }

    pub(crate) fn store(&self) -> Store {
        Store::at(self.home.path())
    }

    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    pub(crate) fn root(&self) -> &Path {
        self.workspace.path()
    }

    /// The file of a blob.
    pub(crate) fn blob(&self, hash: &str) -> PathBuf {
        self.store().root().join("blobs").join(hash.split_at(2).0).join(hash)
    }

    #[track_caller]
    pub(crate) fn capture(&self) -> CheckpointId {
        let outcome = self.store().capture(self.root(), &CaptureOptions::default(), &()).unwrap();
        assert!(outcome.complete, "{:?}", outcome.problems);
        outcome.checkpoint
    }

    /// A capture whose content, and all before it, is in loose blobs.
    #[track_caller]
    pub(crate) fn capture_loose(&self) -> CheckpointId {
        let id = self.capture();
        packs::make_loose(self.store().root());
        id
    }

    #[track_caller]
    pub(crate) fn restore(&self, id: &CheckpointId) -> RestoreOutcome {
        self.store().restore(self.root(), id, &RestoreOptions::default(), &()).unwrap()
    }

    /// A restore that leaves nothing undone.
    #[track_caller]
    pub(crate) fn go_back(&self, id: &CheckpointId) {
        let outcome = self.restore(id);
        assert_eq!((outcome.left.len(), outcome.plan.skips.len()), (0, 0));
        assert_eq!(outcome.changed, outcome.plan.changes.len() as u64);
    }

    #[track_caller]
    pub(crate) fn undo(&self) -> RestoreOutcome {
        self.store().undo(self.root(), &RestoreOptions::default(), &()).unwrap()
    }

    pub(crate) fn look(&self) -> Fingerprint {
        fingerprint::of(self.root())
    }

    pub(crate) fn look_closely(&self) -> Fingerprint {
        fingerprint::with_stamps(self.root())
    }

    pub(crate) fn checkpoints(&self) -> usize {
        self.store().list(&ListQuery::All, &()).unwrap().checkpoints().count()
    }

    #[track_caller]
    pub(crate) fn verify_clean(&self) {
        let mut options = VerifyOptions::default();
        options.read_data = true;
        let report = self.store().verify(options, &()).unwrap();
        assert_eq!(report.findings, []);
    }
}

/// Keeps what it is told.
#[derive(Debug, Default)]
pub(crate) struct Told(std::sync::Mutex<Vec<Notice>>);

impl Told {
    pub(crate) fn notices(&self) -> Vec<Notice> {
        self.0.lock().unwrap().clone()
    }
}

impl turnpoint::Monitor for Told {
    fn notice(&self, notice: &Notice) {
        self.0.lock().unwrap().push(notice.clone());
    }
}

/// The skips of a restore as `path reason`.
pub(crate) fn skips(outcome: &RestoreOutcome) -> Vec<String> {
    let shown = |skip: &turnpoint::plan::Skip| format!("{} {}", skip.path, skip.reason.as_str());
    outcome.plan.skips.iter().map(shown).collect()
}
