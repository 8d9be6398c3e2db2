//! The facade: one method per verb. The only place that puts operations together.
//!
//! A [`Store`] is cheap to make and to clone, and is `Send` and `Sync`. Every method takes the store's
//! lock itself and gives it back; none holds anything between two calls but the connection to the
//! index. All of it blocks.

mod accounting;
mod applying;
mod ballast;
mod between;
mod binding;
mod capturing;
mod comparing;
mod evicting;
mod examining;
mod forgetting;
mod history;
mod interrupted;
mod into;
mod isolating;
mod left;
mod log;
mod merging;
mod offering;
mod preparing;
mod purging;
mod quarantining;
mod querying;
mod removing;
mod repairing;
mod restoring;
mod retaining;
mod reversing;
mod reverting;
mod rules;
mod spec;
mod target;
mod tracing;
mod turns;

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

pub use accounting::{Accounts, DiskUse, Logged, OperationLog};
pub use between::StatesBetween;
pub use comparing::{CompareOptions, Compared, Comparison};
pub use examining::Examination;
pub use history::{
    CheckpointSummary, ListItem, ListQuery, Listing, OpenRestore, SessionSummary, ShownCheckpoint,
};
pub use isolating::{IsolateOptions, Run};
pub use querying::Answer;
pub use removing::{KeptRun, PrunedRuns, RunListing, RunSummary};
pub use repairing::{Mended, Treatment};
pub use restoring::EndedRestore;
pub use retaining::ForgottenOperation;
pub use spec::{InvalidSpec, Spec, Which};
pub use tracing::{FoundPath, FoundPaths, PathHistory, PathStep};
pub use turns::Turn;

use crate::access::Access;
use crate::blobs::Blobs;
use crate::disk::{self, Dir, LockKind};
use crate::error::{Error, PurgeError, Result};
use crate::git;
use crate::id::{CheckpointId, Seq, SessionName, StoreId, WorkspaceId};
use crate::index::{self, Index, Opened};
use crate::layout::Layout;
use crate::limits::{self, Packing};
use crate::monitor::{Monitor, Notice};
use crate::operation::Host;
use crate::purge::PurgePhase;
use crate::sessions::{Found, Sessions};
use crate::settings::{self, Upkeep};
use crate::store::capturing::Purpose;
use crate::verify::{self, RebuildOutcome, VerifyOptions, VerifyReport};
use crate::workspaces::Workspaces;

/// A checkpoint store below a sessions home. It is made on the first capture.
#[derive(Debug, Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    layout: Layout,
    packing: Packing,
    upkeep: Upkeep,
    /// The open index, kept from call to call as long as its file is the one in place.
    index: Mutex<Option<Arc<Index>>>,
}

/// What a reading command works with: the files, and the index where it can be had.
struct Reading<'a> {
    layout: Layout,
    sessions: Sessions,
    workspaces: Workspaces,
    blobs: Blobs,
    index: Option<Arc<Index>>,
    /// What is wrong with an index that is in place and cannot be opened.
    index_damage: Option<String>,
    /// What there is to say of a purge that is not at its end.
    open_purge: Option<String>,
    /// Whether it was told that the index is damaged; it is not asked any more then.
    is_index_given_up: Cell<bool>,
    monitor: &'a dyn Monitor,
    _lock: Option<disk::Lock>,
}

/// What is in the index's place.
enum InPlace {
    Ready(Arc<Index>),
    Missing,
    Damaged(String),
}

/// How often an index that vanishes between building and opening is built again.
const OPEN_TRIES_MAX: u32 = 5;

impl Store {
    /// The store below `home`, whether or not it exists yet. Nothing is looked at.
    pub fn at(home: &Path) -> Self {
        let layout = Layout::new(home);
        Self::of(layout, Packing::default(), Upkeep::default())
    }

    /// The same store, which keeps what `upkeep` says, and cleans up when that says.
    #[must_use]
    pub fn with_upkeep(&self, upkeep: Upkeep) -> Self {
        Self::of(self.inner.layout.clone(), self.inner.packing, upkeep)
    }

    fn of(layout: Layout, packing: Packing, upkeep: Upkeep) -> Self {
        Self { inner: Arc::new(Inner { layout, packing, upkeep, index: Mutex::new(None) }) }
    }

    /// The store below `home`, with other thresholds for packs.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    pub fn with_packing(home: &Path, packing: Packing) -> Self {
        Self::of(Layout::new(home), packing, Upkeep::default())
    }

    /// The directory of the store itself, where `index.db` is.
    pub fn root(&self) -> &Path {
        self.inner.layout.root()
    }

    /// Which directory a command means that names none: the nearest known workspace at or above
    /// `current`, else the top of its git repository, else `current` itself.
    ///
    /// # Errors
    /// [`Error::WorkspaceMissing`], or [`Error::Io`] where the path cannot be resolved.
    pub fn locate(&self, current: &Path) -> Result<PathBuf> {
        let current = real_path(current)?;
        if let Some(root) = self.known_root(&current) {
            return Ok(root);
        }
        if let Some(repository) = git::repository_of(&current) {
            return Ok(repository.top);
        }
        Ok(current)
    }

    /// The top of the git checkout that `current` lies in, and `current` itself where it lies in none: what a
    /// run that is made there is made from.
    ///
    /// # Errors
    /// As [`Store::locate`].
    pub fn checkout_at(current: &Path) -> Result<PathBuf> {
        let current = real_path(current)?;
        Ok(git::repository_of(&current).map_or(current, |repository| repository.top))
    }

    /// The nearest known workspace at or above `directory`, a real path. A store that is not there, or cannot
    /// be read, knows none.
    pub fn known_root(&self, directory: &Path) -> Option<PathBuf> {
        Workspaces::new(&self.inner.layout).nearest_root(directory).unwrap_or_default()
    }

    /// Lets reads of the index go to connections of their own from now on, beside the writing one and
    /// each other. For processes that keep a store open and ask it from several threads; a short
    /// process gains nothing.
    ///
    /// # Errors
    /// As for opening the store.
    pub fn use_readers(&self, monitor: &dyn Monitor) -> Result<()> {
        self.enter(monitor)?.index.use_readers()
    }

    /// Opens the store for an operation that writes; makes it where it is missing, and builds the
    /// index where that is missing or damaged.
    fn enter(&self, monitor: &dyn Monitor) -> Result<Access> {
        self.enter_to(Purpose::Work, monitor)
    }

    /// As [`Store::enter`]; who only looks brings no purge to its end that was interrupted.
    ///
    /// # Errors
    /// [`PurgeError::Interrupted`] for one who looks where such a purge has manifests to write.
    fn enter_to(&self, purpose: Purpose, monitor: &dyn Monitor) -> Result<Access> {
        let layout = &self.inner.layout;
        let mut was_tried = false;
        for _ in 0..OPEN_TRIES_MAX {
            layout.create_locks()?;
            let lock = disk::lock(&layout.store_lock(), LockKind::Shared, "the store", monitor)?;
            let Some(store) = layout.read_format()? else {
                drop(lock);
                self.create(monitor)?;
                continue;
            };
            // Before the index is looked at: in the middle of a purge it says what was.
            if let Some(phase) = self.open_purge()?
                && (phase == PurgePhase::Rewriting || !was_tried)
            {
                match (purpose, phase) {
                    (Purpose::Work, _) => {
                        drop(lock);
                        self.settle_purge(phase, monitor)?;
                        was_tried = true;
                        continue;
                    }
                    (Purpose::Look, PurgePhase::Rewriting) => {
                        return Err(PurgeError::Interrupted { path: layout.purge() }.into());
                    }
                    // What is left to be removed no checkpoint names: no plan needs it.
                    (Purpose::Look, PurgePhase::Removing) => {}
                }
            }
            let InPlace::Ready(index) = self.current_index()? else {
                drop(lock);
                self.rebuild_if_needed(monitor)?;
                continue;
            };
            return self.access(lock, store, index);
        }
        Err(Error::IndexDamaged {
            path: layout.root().join("index.db"),
            reason: "it was built several times and cannot be opened".to_owned(),
        })
    }

    /// As [`Store::enter`] for one who has the store to himself, with an index that is in its place.
    fn access_alone(&self, lock: disk::Lock) -> Result<Access> {
        let layout = &self.inner.layout;
        let path = layout.root().join(index::FILE_NAME);
        let Some(store) = layout.read_format()? else {
            let reason = "it was there a moment ago".to_owned();
            return Err(Error::FormatDamaged { path: layout.format_file(), reason });
        };
        match self.current_index()? {
            InPlace::Ready(index) => self.access(lock, store, index),
            InPlace::Damaged(reason) => Err(Error::IndexDamaged { path, reason }),
            InPlace::Missing => {
                Err(Error::IndexDamaged { path, reason: "it is missing".to_owned() })
            }
        }
    }

    fn access(&self, lock: disk::Lock, store: StoreId, index: Arc<Index>) -> Result<Access> {
        let layout = &self.inner.layout;
        Ok(Access {
            layout: layout.clone(),
            store,
            blobs: Blobs::open(layout.root(), self.inner.packing)?,
            index,
            sessions: Sessions::new(layout),
            workspaces: Workspaces::new(layout),
            upkeep: self.inner.upkeep,
            host: Host { machine: disk::machine_id(), boot: disk::boot_id() },
            leases: Dir::open(&layout.leases())?,
            tmp: Dir::open(&layout.tmp())?,
            lock,
        })
    }

    /// Opens a store that is there, for an operation that has nothing to do in a new one; `None` where
    /// there is none: only a capture makes one.
    fn enter_if_made(&self, monitor: &dyn Monitor) -> Result<Option<Access>> {
        self.enter_if_made_to(Purpose::Work, monitor)
    }

    /// As [`Store::enter_if_made`] and [`Store::enter_to`].
    fn enter_if_made_to(&self, purpose: Purpose, monitor: &dyn Monitor) -> Result<Option<Access>> {
        if !self.exists()? {
            require_no_checkpoints(&self.inner.layout)?;
            return Ok(None);
        }
        self.enter_to(purpose, monitor).map(Some)
    }

    /// As [`Store::enter_if_made`] for an operation on a session.
    fn enter_for(&self, session: &SessionName, monitor: &dyn Monitor) -> Result<Access> {
        self.enter_for_to(session, Purpose::Work, monitor)
    }

    /// As [`Store::enter_for`] and [`Store::enter_to`].
    fn enter_for_to(
        &self,
        session: &SessionName,
        purpose: Purpose,
        monitor: &dyn Monitor,
    ) -> Result<Access> {
        self.enter_if_made_to(purpose, monitor)?.ok_or_else(|| Error::SessionNotFound {
            session: session.to_string(),
            nearest: Vec::new(),
        })
    }

    /// Whether the store has been made.
    fn exists(&self) -> Result<bool> {
        Ok(self.inner.layout.read_format()?.is_some())
    }

    /// The index that is in place now. The caller holds the store's lock, so it stays in place.
    fn current_index(&self) -> Result<InPlace> {
        let mut cached = self.inner.index.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = cached.as_ref()
            && index.is_current()?
        {
            return Ok(InPlace::Ready(Arc::clone(index)));
        }
        *cached = None;
        let root = Dir::open(self.inner.layout.root())?;
        match Index::open(&root, index::Access::Write)? {
            Opened::Ready(index) => {
                let index = Arc::new(index);
                *cached = Some(Arc::clone(&index));
                Ok(InPlace::Ready(index))
            }
            Opened::Unavailable { reason } => {
                Err(Error::Index { statement: "be opened for writing", source: reason.into() })
            }
            Opened::Missing => Ok(InPlace::Missing),
            Opened::Damaged { reason } => Ok(InPlace::Damaged(reason)),
        }
    }

    fn forget_index(&self) {
        *self.inner.index.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Makes the store, once: whoever gets the lock second finds it made.
    fn create(&self, monitor: &dyn Monitor) -> Result<()> {
        let layout = &self.inner.layout;
        let _lock = disk::lock(&layout.store_lock(), LockKind::Exclusive, "the store", monitor)?;
        if layout.read_format()?.is_some() {
            return Ok(());
        }
        refuse_foreign(layout)?;
        Blobs::create(layout.root())?;
        layout.create()?;
        // For the day on which the disk is full. Where it cannot be kept, a collection tries again.
        drop(disk::reserve(&layout.ballast(), limits::BALLAST_BYTES));
        Ok(())
    }

    /// Builds the index, unless somebody else has while this process waited for the lock.
    fn rebuild_if_needed(&self, monitor: &dyn Monitor) -> Result<()> {
        let layout = &self.inner.layout;
        let _lock = disk::lock(&layout.store_lock(), LockKind::Exclusive, "the store", monitor)?;
        let root = Dir::open(layout.root())?;
        let damage = match Index::open(&root, index::Access::Write)? {
            Opened::Ready(_) => return Ok(()),
            Opened::Damaged { reason } => Some(reason),
            Opened::Missing | Opened::Unavailable { .. } => None,
        };
        let is_new = Sessions::new(layout).names()?.is_empty();
        let outcome = self.rebuild_locked(monitor)?;
        if !is_new {
            monitor.notice(&Notice::IndexRebuilt { damage, checkpoints: outcome.checkpoints });
        }
        Ok(())
    }

    /// Runs `body`, which is an operation that may be begun again; where it finds that the index is
    /// damaged inside, builds it anew and runs `body` once more.
    fn with_sound_index<T>(
        &self,
        monitor: &dyn Monitor,
        body: impl Fn() -> Result<T>,
    ) -> Result<T> {
        let damage = match body() {
            Err(Error::IndexDamaged { reason, .. }) => reason,
            other => return other,
        };
        let layout = &self.inner.layout;
        let lock = disk::lock(&layout.store_lock(), LockKind::Exclusive, "the store", monitor)?;
        let outcome = self.rebuild_locked(monitor)?;
        drop(lock);
        let checkpoints = outcome.checkpoints;
        monitor.notice(&Notice::IndexRebuilt { damage: Some(damage), checkpoints });
        body()
    }

    fn rebuild_locked(&self, monitor: &dyn Monitor) -> Result<RebuildOutcome> {
        self.forget_index();
        let layout = &self.inner.layout;
        let blobs = Blobs::open(layout.root(), self.inner.packing)?;
        verify::rebuild(layout, &Sessions::new(layout), &blobs, monitor)
    }

    /// Opens the store for reading; `None` where there is none yet. Makes and repairs nothing, and
    /// works on a store that cannot be written.
    fn read<'a>(&self, monitor: &'a dyn Monitor) -> Result<Option<Reading<'a>>> {
        if self.inner.layout.read_format()?.is_none() {
            require_no_checkpoints(&self.inner.layout)?;
            return Ok(None);
        }
        self.read_files(monitor).map(Some)
    }

    /// As [`Store::read`], whatever `format.json` says.
    fn read_files<'a>(&self, monitor: &'a dyn Monitor) -> Result<Reading<'a>> {
        let layout = &self.inner.layout;
        let lock = match disk::lock(&layout.store_lock(), LockKind::Shared, "the store", monitor) {
            Ok(lock) => Some(lock),
            Err(Error::Io { .. }) => None,
            Err(error) => return Err(error),
        };
        self.read_files_under(lock, monitor)
    }

    /// As [`Store::read_files`]. Without the lock a rebuild may exchange the index meanwhile; the files
    /// are still the truth.
    fn read_files_under<'a>(
        &self,
        lock: Option<disk::Lock>,
        monitor: &'a dyn Monitor,
    ) -> Result<Reading<'a>> {
        let layout = &self.inner.layout;
        let (index, index_damage) = match self.current_index() {
            Ok(InPlace::Ready(index)) => (Some(index), None),
            Ok(InPlace::Missing) => (None, None),
            Ok(InPlace::Damaged(reason)) => (None, Some(reason)),
            Err(error @ Error::StoreTooNew { .. }) => return Err(error),
            Err(_) => (self.read_only_index(), None),
        };
        Ok(Reading {
            layout: layout.clone(),
            sessions: Sessions::new(layout),
            workspaces: Workspaces::new(layout),
            blobs: Blobs::open(layout.root(), self.inner.packing)?,
            index,
            index_damage,
            open_purge: self.tell_open_purge(),
            is_index_given_up: Cell::new(false),
            monitor,
            _lock: lock,
        })
    }

    fn read_only_index(&self) -> Option<Arc<Index>> {
        let root = Dir::open(self.inner.layout.root()).ok()?;
        match Index::open(&root, index::Access::Read) {
            Ok(Opened::Ready(index)) => Some(Arc::new(index)),
            _ => None,
        }
    }

    /// Checks that everything the checkpoints name is there and whole.
    ///
    /// # Errors
    /// Only where the store as a whole cannot be read; damage is in the report.
    pub fn verify(&self, options: VerifyOptions, monitor: &dyn Monitor) -> Result<VerifyReport> {
        let format = self.inner.layout.read_format().and_then(|found| match found {
            Some(_) => Ok(true),
            None => require_no_checkpoints(&self.inner.layout).map(|()| false),
        });
        let format_damage = match format {
            Ok(true) => None,
            Ok(false) => return Ok(VerifyReport::default()),
            Err(Error::FormatDamaged { reason, .. }) => Some(reason),
            Err(error) => return Err(error),
        };
        let reading = self.read_files(monitor)?;
        verify::verify(reading.parts(format_damage.as_deref()), options, monitor)
    }
}

impl Reading<'_> {
    /// What a verification reads.
    fn parts<'a>(&'a self, format_damage: Option<&'a str>) -> verify::Parts<'a> {
        verify::Parts {
            layout: &self.layout,
            sessions: &self.sessions,
            workspaces: &self.workspaces,
            blobs: &self.blobs,
            index: self.index.as_deref(),
            index_damage: self.index_damage.as_deref(),
            open_purge: self.open_purge.as_deref(),
            format_damage,
        }
    }
}

/// Whether a directory without a sound `format.json` is a store all the same: it holds a checkpoint
/// that is understood, or an index.
///
/// Cost: the first manifest of each session.
fn holds_checkpoints(layout: &Layout) -> Result<bool> {
    if !disk::is_directory(layout.root())? {
        return Ok(false);
    }
    if disk::modified_ns(&layout.root().join(index::FILE_NAME))?.is_some() {
        return Ok(true);
    }
    let sessions = Sessions::new(layout);
    for session in sessions.names()? {
        let Ok(listing) = sessions.listing(&session) else { continue };
        let is_valid = |seq: &Seq| {
            let id = CheckpointId { session: session.clone(), seq: *seq };
            matches!(sessions.read(&id), Found::Valid { .. })
        };
        if listing.manifests.iter().any(is_valid) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// That `format.json` is missing must not look like a store without checkpoints.
fn require_no_checkpoints(layout: &Layout) -> Result<()> {
    if !holds_checkpoints(layout)? {
        return Ok(());
    }
    let reason = "it is missing, although checkpoints are there".to_owned();
    Err(Error::FormatDamaged { path: layout.format_file(), reason })
}

/// A directory that has something in it and no `format.json` is only taken for a store that was begun
/// if everything in it is ours.
fn refuse_foreign(layout: &Layout) -> Result<()> {
    const OURS: [&str; 8] =
        ["blobs", "journal", "leases", "locks", "packs", "quarantine", "tmp", "workspaces"];
    require_no_checkpoints(layout)?;
    for (name, _) in disk::list_dir(layout.root())? {
        if !OURS.iter().any(|ours| ours.as_bytes() == name) {
            return Err(Error::StoreForeign {
                path: layout.root().to_owned(),
                reason: format!("it holds `{}` and no format.json", crate::path::printable(&name)),
            });
        }
    }
    Ok(())
}

/// The real path of an existing directory or file.
fn real_path(path: &Path) -> Result<PathBuf> {
    disk::real_path(path).map_err(|error| match error {
        Error::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            Error::WorkspaceMissing { path: path.to_owned() }
        }
        other => other,
    })
}

/// Opens a workspace's root and says why it cannot be one.
fn open_root(path: &Path) -> Result<(Dir, PathBuf)> {
    let real = real_path(path)?;
    let dir = Dir::open(&real).map_err(|error| match error {
        Error::Io { source, .. } if source.kind() == std::io::ErrorKind::NotADirectory => {
            Error::WorkspaceNotDirectory { path: real.clone() }
        }
        other => other,
    })?;
    Ok((dir, real))
}

/// Refuses a directory that is the store or lies in it: what is changed there is changed behind the
/// store's back. `path` need not exist; what exists of it is looked at without symlinks.
fn refuse_inside_store(layout: &Layout, path: &Path) -> Result<()> {
    let Ok(store) = disk::real_path(layout.root()) else { return Ok(()) };
    let there = path.ancestors().find_map(|above| {
        let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
        disk::real_path(above).ok()
    });
    match there {
        Some(path) if path.starts_with(&store) => Err(Error::InsideStore { path, store }),
        _ => Ok(()),
    }
}

/// Refuses what is hardly a workspace: the root of the file system, the home directory, what contains
/// it, and a version-control directory, which is not to be written into.
fn refuse_too_wide(path: &Path, home: Option<&Path>) -> Result<()> {
    let what = if path.parent().is_none() {
        "the root of the file system"
    } else if path.iter().any(|name| settings::is_repository(name.as_encoded_bytes())) {
        "a version-control directory, or in one"
    } else {
        match home.and_then(|home| disk::real_path(home).ok()) {
            Some(home) if home == path => "the home directory",
            Some(home) if home.starts_with(path) => "a directory that contains the home directory",
            _ => return Ok(()),
        }
    };
    Err(Error::WorkspaceTooWide { path: path.to_owned(), what })
}

/// A session's name as the caller wrote it.
fn session_name(text: &str) -> Result<SessionName> {
    SessionName::new(text).map_err(|reason| Error::InvalidSession { name: text.to_owned(), reason })
}

/// Which workspace, where path and directory disagree.
type Chosen = Option<WorkspaceId>;
