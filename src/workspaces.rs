//! Which directory is which workspace, and what is remembered of it.
//!
//! A workspace is known by the path of its root and by the identity of the directory itself (device,
//! inode, birth time). The two can disagree: a directory is moved, copied, or made anew. [`identify`]
//! decides; it is pure, so that every case is a test.
//!
//! A file that cannot be read concerns its own workspace only. Manifests name their workspace and its
//! root, so it is made anew from them: by path, since they do not know the directory itself.

mod stat_cache;

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub(crate) use stat_cache::{CacheHeader, News, StatCache};

use crate::checkpoint::{Place, in_order_of_making};
use crate::disk::{self, Dir};
use crate::error::{BadFile, Error, IoContext, Repair, Result, not_understood};
use crate::id::{CheckpointId, SessionName, WorkspaceId};
use crate::layout::Layout;
use crate::limits;
use crate::manifest::{Manifest, from_fields, to_fields};
use crate::monitor::{Monitor, Notice};
use crate::sessions::{Found, Sessions};

/// The files of a workspace that may be deleted.
const DERIVED: [&str; 3] = ["stat-cache", "tracked", "audited"];

/// What tells one directory from every other, as long as it exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DirectoryIdentity {
    /// The device it lies on.
    pub(crate) device: u64,
    /// Its inode there.
    pub(crate) inode: u64,
    /// When it was made, in nanoseconds since 1970, where the file system keeps that: an inode's
    /// number is given again.
    pub(crate) birth_ns: Option<i64>,
}

impl DirectoryIdentity {
    /// That of no directory: nothing is known but the path.
    const UNKNOWN: Self = Self { device: 0, inode: 0, birth_ns: None };

    /// Whether a directory is still the one that it was. A device may have another number after a boot:
    /// an inode that was made at the same nanosecond is still the same directory.
    pub(crate) fn is_one(self, now: Self) -> bool {
        let is_alike = self.inode == now.inode && self.birth_ns == now.birth_ns;
        is_alike && (self.device == now.device || now.birth_ns.is_some())
    }
}

/// A workspace as remembered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Workspace {
    /// Its id, for ever.
    pub(crate) id: WorkspaceId,
    /// Where a checkpoint goes if the caller names no session.
    pub(crate) default_session: SessionName,
    /// Where its root was, the newest place first.
    pub(crate) roots: Vec<PathBuf>,
    /// The directory that is its root.
    pub(crate) identity: DirectoryIdentity,
}

/// What the files say of all workspaces.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// Those whose file is understood, by id.
    pub(crate) known: Vec<Workspace>,
    /// Those whose file is there and cannot be read, each with the reason.
    pub(crate) unreadable: Vec<(WorkspaceId, Error)>,
    /// Those that have a directory and no file: it is lost.
    pub(crate) without_file: Vec<WorkspaceId>,
}

impl Workspace {
    /// Where its root was last.
    pub(crate) fn root(&self) -> Option<&Path> {
        self.roots.first().map(PathBuf::as_path)
    }
}

impl Survey {
    /// Whether every workspace that has a directory is known.
    fn is_whole(&self) -> bool {
        self.unreadable.is_empty() && self.without_file.is_empty()
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireWorkspace {
    format: u64,
    id: String,
    default_session: String,
    roots: Vec<WireRoot>,
    identity: DirectoryIdentity,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireRoot {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path_bytes: Option<String>,
}

/// The version alone, from a text whose other fields may be unknown.
#[derive(Deserialize)]
struct Version {
    format: u64,
}

/// The version of `workspace.json`.
const FORMAT: u64 = 1;

/// The name of the file.
const FILE: &str = "workspace.json";

/// How many former places of a workspace are remembered.
const ROOTS_MAX: usize = 16;

/// What the two signs say together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Identified {
    /// Path and directory agree, or only the directory is known at a new place.
    Known {
        /// Which one.
        id: WorkspaceId,
        /// What was found to have changed.
        change: Option<Change>,
    },
    /// Neither is known.
    New,
    /// The path says one, the directory another, and the first one's directory still exists.
    Ambiguous {
        /// The workspace last seen at this path.
        by_path: WorkspaceId,
        /// The workspace whose root this directory is.
        by_inode: WorkspaceId,
    },
}

/// How a known workspace differs from what is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// Its root was made anew at the same path.
    RootRecreated,
    /// Its root is on a device that has another number than it had, as after a boot. It may be a copy of
    /// the device, from another time: what was seen in it is not relied upon.
    Remounted,
    /// Its root was moved.
    Moved,
    /// Its file was lost or damaged; what is known of it is from its checkpoints.
    Remade,
}

/// Decides which workspace the directory `identity` at `path` is. `still_exists` says whether the
/// directory remembered for a workspace exists at another place that is remembered for it.
///
/// A device whose number has changed cannot be told from a copy of it, such as a snapshot. A copy is at
/// another place, while the directory that it is of is where it was.
pub(crate) fn identify(
    known: &[Workspace],
    path: &Path,
    identity: DirectoryIdentity,
    still_exists: impl Fn(&Workspace) -> bool,
) -> Identified {
    let by_path = known.iter().find(|workspace| workspace.root() == Some(path));
    let is_one = |workspace: &&Workspace| workspace.identity.is_one(identity);
    let by_inode = known
        .iter()
        .find(|workspace| workspace.identity == identity)
        .or_else(|| by_path.filter(is_one))
        .or_else(|| known.iter().find(|it| is_one(it) && !still_exists(it)));
    match (by_path, by_inode) {
        (Some(path), Some(inode)) if path.id == inode.id => {
            let is_remounted = inode.identity != identity;
            let change = is_remounted.then_some(Change::Remounted);
            Identified::Known { id: path.id, change }
        }
        (Some(path), Some(inode)) if still_exists(path) => {
            Identified::Ambiguous { by_path: path.id, by_inode: inode.id }
        }
        // The path's own directory is nowhere any more: the directory that is here decides.
        (_, Some(inode)) => Identified::Known { id: inode.id, change: Some(Change::Moved) },
        (Some(path), None) => {
            Identified::Known { id: path.id, change: Some(Change::RootRecreated) }
        }
        (None, None) => Identified::New,
    }
}

/// The identity of the directory behind a handle.
pub(crate) fn identity_of(dir: &Dir) -> Result<DirectoryIdentity> {
    let stat = dir.stat_self()?;
    Ok(DirectoryIdentity { device: stat.dev, inode: stat.ino, birth_ns: dir.birth_time_ns()? })
}

/// The workspaces of a store.
#[derive(Debug, Clone)]
pub(crate) struct Workspaces {
    layout: Layout,
}

impl Workspaces {
    /// The workspaces of the store at `layout`.
    pub(crate) fn new(layout: &Layout) -> Self {
        Self { layout: layout.clone() }
    }

    /// All workspaces, with those that only their checkpoints remember. A damaged file is no reason to
    /// stop the others.
    ///
    /// Cost: one small file each; every manifest where a file is missing or cannot be read.
    pub(crate) fn all_remembered(&self) -> Result<Vec<Workspace>> {
        self.with_remembered(self.survey()?)
    }

    fn with_remembered(&self, survey: Survey) -> Result<Vec<Workspace>> {
        let is_whole = survey.is_whole();
        let mut all = survey.known;
        if !is_whole {
            all.extend(self.named_by_manifests(&all)?);
        }
        Ok(all)
    }

    /// The root of a workspace that is `path` or the nearest above it; `None` where none is known.
    ///
    /// Cost: one small file for each workspace. Every manifest where a file is missing or cannot be
    /// read, unless `path` itself is a root: none can be nearer then.
    pub(crate) fn nearest_root(&self, path: &Path) -> Result<Option<PathBuf>> {
        let nearest = |known: &[Workspace]| {
            let roots: HashSet<&Path> = known.iter().filter_map(Workspace::root).collect();
            path.ancestors().find(|above| roots.contains(above)).map(Path::to_owned)
        };
        let survey = self.survey()?;
        let found = nearest(&survey.known);
        if survey.is_whole() || found.as_deref() == Some(path) {
            return Ok(found);
        }
        Ok(nearest(&self.with_remembered(survey)?))
    }

    /// Removes what only makes captures of a workspace quick.
    pub(crate) fn discard_derived(&self, id: WorkspaceId) -> Result<()> {
        let dir = self.layout.workspace(id);
        DERIVED.iter().try_for_each(|name| disk::remove_file(&dir.join(name)).map(drop))
    }

    /// Forgets a workspace that is nowhere any more, and of which there is no checkpoint. One that runs were
    /// started from stays; returns whether it is gone.
    pub(crate) fn forget(&self, id: WorkspaceId) -> Result<bool> {
        let (all, tmp) = (Dir::open(&self.layout.workspaces())?, Dir::open(&self.layout.tmp())?);
        let name = id.to_string();
        if all.open_child(name.as_bytes())?.stat(b"runs")?.is_some() {
            return Ok(false);
        }
        // As one: a directory without its file would be taken for one whose file was lost.
        all.rename_to(name.as_bytes(), &tmp, name.as_bytes())?;
        all.sync()?;
        disk::remove_tree(&tmp, name.as_bytes())?;
        Ok(true)
    }

    /// What the files say of all workspaces.
    ///
    /// # Errors
    /// [`Error::Io`] where their directory cannot be listed.
    pub(crate) fn survey(&self) -> Result<Survey> {
        let dir = self.layout.workspaces();
        let mut survey = Survey::default();
        if !disk::is_directory(&dir)? {
            return Ok(survey);
        }
        for (name, _) in disk::list_dir(&dir)? {
            let Some(id) = std::str::from_utf8(&name).ok().and_then(|name| name.parse().ok())
            else {
                continue;
            };
            match self.read(id) {
                Ok(Some(workspace)) => survey.known.push(workspace),
                Ok(None) => survey.without_file.push(id),
                Err(error) => survey.unreadable.push((id, error)),
            }
        }
        survey.known.sort_by_key(|workspace| workspace.id);
        Ok(survey)
    }

    /// The file of a workspace.
    pub(crate) fn file(&self, id: WorkspaceId) -> PathBuf {
        self.layout.workspace(id).join(FILE)
    }

    fn read(&self, id: WorkspaceId) -> Result<Option<Workspace>> {
        let path = self.file(id);
        let Some(text) = disk::read_small(&path, limits::SMALL_FILE_BYTES_MAX)? else {
            return Ok(None);
        };
        if let Ok(Version { format: found }) = serde_json::from_slice(&text)
            && found > FORMAT
        {
            return Err(Error::StoreTooNew { path, found, supported: FORMAT });
        }
        let wire: WireWorkspace = serde_json::from_slice(&text)
            .map_err(|error| not_understood(&path, error.to_string()))?;
        decode(wire, id).map(Some).map_err(|reason| not_understood(&path, reason))
    }

    /// The workspaces that checkpoints name and that are not in `known`, as far as manifests say: not
    /// which directory is the root. That with the newest checkpoint comes first.
    ///
    /// Cost: every manifest is read.
    fn named_by_manifests(&self, known: &[Workspace]) -> Result<Vec<Workspace>> {
        let sessions = Sessions::new(&self.layout);
        let mut manifests = Vec::new();
        for session in sessions.names()? {
            // What cannot be listed is named by `verify`; the others still remember.
            let Ok(listing) = sessions.listing(&session) else { continue };
            for seq in listing.manifests {
                let id = CheckpointId { session: session.clone(), seq };
                if let Found::Valid { manifest, .. } = sessions.read(&id)
                    && known.iter().all(|workspace| workspace.id != manifest.workspace)
                {
                    manifests.push(*manifest);
                }
            }
        }
        remembered(manifests)
    }

    /// Makes the files anew that are damaged, or missing and named by a checkpoint. Damaged ones are
    /// kept beside. What holds nothing that can be understood, and is named by no checkpoint, is put
    /// into the quarantine. The caller holds the store's lock alone.
    ///
    /// Gives what was made, and what can neither be read nor made anew.
    pub(crate) fn repair(&self) -> Result<(Vec<Repair>, Vec<BadFile>)> {
        let Survey { mut known, mut unreadable, without_file } = self.survey()?;
        let (mut repairs, mut bad) = (Vec::new(), Vec::new());
        for mut workspace in self.named_by_manifests(&known)? {
            let id = workspace.id;
            let damage = unreadable.iter().position(|(damaged, _)| *damaged == id);
            let damage = damage.map(|index| unreadable.remove(index).1);
            if let Some(error) = damage.as_ref().filter(|error| !error.is_damage()) {
                bad.push(BadFile { path: self.file(id), reason: error.with_source() });
                continue;
            }
            let root = workspace.roots.first();
            let there =
                root.and_then(|root| Dir::open(root).and_then(|dir| identity_of(&dir)).ok());
            // The directory that is there now may be another workspace's, moved there since.
            let is_free = |there: &DirectoryIdentity| known.iter().all(|it| it.identity != *there);
            workspace.identity = there.filter(is_free).unwrap_or(DirectoryIdentity::UNKNOWN);
            repairs.push(self.remake(&workspace, damage.as_ref())?);
            known.push(workspace);
        }
        for id in without_file.into_iter().filter(|id| !is_among(&known, *id)) {
            repairs.extend(self.give_up(id, "it is missing")?);
        }
        for (id, error) in unreadable {
            let reason = error.with_source();
            if error.is_damage() {
                repairs.extend(self.give_up(id, &reason)?);
            } else {
                bad.push(BadFile { path: self.file(id), reason });
            }
        }
        Ok((repairs, bad))
    }

    /// Puts the directory of a workspace that nobody remembers into the quarantine: as long as it is
    /// among the others every manifest is read to find out whose it is.
    fn give_up(&self, id: WorkspaceId, reason: &str) -> Result<Option<Repair>> {
        let quarantine = disk::make_private_dir(&self.layout.quarantine())?;
        let all = Dir::open(&self.layout.workspaces())?;
        let aside = disk::set_aside(&all, id.to_string().as_bytes(), &quarantine)?;
        let reason = format!("{reason}; no checkpoint is of it");
        Ok(aside.map(|aside| Repair { file: self.file(id), reason, aside: Some(aside) }))
    }

    /// Writes a file anew; what was in its place is kept beside it. A crash in between leaves none, and
    /// the next one finds the workspace in its manifests again.
    fn remake(&self, workspace: &Workspace, damage: Option<&Error>) -> Result<Repair> {
        let dir = disk::make_private_dir(&self.layout.workspace(workspace.id))?;
        let aside = disk::set_aside(&dir, FILE.as_bytes(), &dir)?;
        self.write(workspace)?;
        let reason =
            damage.map_or_else(|| "its checkpoints remember it".to_owned(), Error::with_source);
        Ok(Repair { file: self.file(workspace.id), reason, aside })
    }

    /// Finds the workspace whose root `dir` is, or mints one. The caller holds the workspace's lock.
    ///
    /// `path` is the real path of the root. `chosen` decides where path and directory disagree, and
    /// is remembered.
    ///
    /// # Errors
    /// [`Error::WorkspaceAmbiguous`] where they disagree and nothing was chosen,
    /// [`Error::WorkspaceNotFound`] for an unknown choice.
    pub(crate) fn find_or_mint(
        &self,
        dir: &Dir,
        path: &Path,
        chosen: Option<WorkspaceId>,
        monitor: &dyn Monitor,
    ) -> Result<Workspace> {
        if let Some((workspace, change)) = self.find(dir, path, chosen)? {
            if change.is_some() {
                // What the cache says was seen through another directory, or nobody knows which. It
                // goes first: once the file names this directory, a cache that is there is believed.
                StatCache::discard(&self.layout.workspace(workspace.id))?;
            }
            match change {
                None => {}
                Some(Change::Remounted) => self.write(&workspace)?,
                Some(Change::Remade) => {
                    let damage = self.read(workspace.id).err();
                    let Repair { file, reason, aside } =
                        self.remake(&workspace, damage.as_ref())?;
                    monitor.notice(&Notice::Repaired { path: file, reason, aside });
                }
                Some(Change::RootRecreated | Change::Moved) => {
                    self.write(&workspace)?;
                    let what = match change {
                        Some(Change::Moved) => "the workspace was moved",
                        _ => "the root directory was made anew",
                    };
                    let what = format!("{what}: it is now {}", path.display());
                    monitor.notice(&Notice::WorkspaceChanged { what });
                }
            }
            return Ok(workspace);
        }
        let workspace = minted(dir, path)?;
        self.create(&workspace)?;
        Ok(workspace)
    }

    /// As [`Workspaces::find_or_mint`], but writes nothing: one that is not known is as it would be
    /// minted, and is forgotten.
    ///
    /// # Errors
    /// As [`Workspaces::find_or_mint`].
    pub(crate) fn find_or_imagine(
        &self,
        dir: &Dir,
        path: &Path,
        chosen: Option<WorkspaceId>,
    ) -> Result<Workspace> {
        match self.find(dir, path, chosen)? {
            Some((workspace, _)) => Ok(workspace),
            None => minted(dir, path),
        }
    }

    /// As [`Workspaces::find_or_mint`], but changes nothing and mints nothing.
    pub(crate) fn find(
        &self,
        dir: &Dir,
        path: &Path,
        chosen: Option<WorkspaceId>,
    ) -> Result<Option<(Workspace, Option<Change>)>> {
        let Survey { mut known, unreadable, .. } = self.survey()?;
        let identity = identity_of(dir)?;
        let still_exists = |workspace: &Workspace| {
            workspace.roots.iter().any(|root| {
                Dir::open(root)
                    .and_then(|dir| identity_of(&dir))
                    .is_ok_and(|found| workspace.identity.is_one(found))
            })
        };
        let mut identified = identify(&known, path, identity, still_exists);
        let readable = known.len();
        if identified == Identified::New || chosen.is_some_and(|id| !is_among(&known, id)) {
            // Before a second id is minted for a tree: its checkpoints may remember the first.
            known.extend(self.named_by_manifests(&known)?);
            if let Some(id) = chosen.filter(|id| !is_among(&known, *id))
                && unreadable.iter().any(|(damaged, _)| *damaged == id)
            {
                // No checkpoint remembers it, but the caller says that it is this one.
                let (default_session, roots) = (default_session(path, id)?, Vec::new());
                let identity = DirectoryIdentity::UNKNOWN;
                known.push(Workspace { id, default_session, roots, identity });
            }
            identified = identify(&known, path, identity, still_exists);
        }
        let (id, change) = match (chosen, identified) {
            (Some(id), Identified::Known { id: found, change }) if id == found => (id, change),
            (Some(id), _) => (id, Some(Change::Moved)),
            (None, Identified::Known { id, change }) => (id, change),
            (None, Identified::New) => return Ok(None),
            (None, Identified::Ambiguous { by_path, by_inode }) => {
                return Err(Error::WorkspaceAmbiguous { path: path.to_owned(), by_path, by_inode });
            }
        };
        let is_readable = is_among(&known[..readable], id);
        let change = if is_readable { change } else { Some(Change::Remade) };
        if let Some((_, error)) =
            unreadable.into_iter().find(|(unread, error)| *unread == id && !error.is_damage())
        {
            // Not damaged: of a newer program, or not to be read now. Nothing is made in its place.
            return Err(error);
        }
        let mut workspace = known
            .into_iter()
            .find(|workspace| workspace.id == id)
            .ok_or(Error::WorkspaceNotFound { id })?;
        if change.is_some() {
            workspace.roots.retain(|root| root != path);
            workspace.roots.insert(0, path.to_owned());
            workspace.roots.truncate(ROOTS_MAX);
            workspace.identity = identity;
        }
        Ok(Some((workspace, change)))
    }

    /// Writes the file of a new workspace. Its directory gets its name when the file is in it: a crash
    /// leaves no directory without one, which would have to be told from a lost file.
    fn create(&self, workspace: &Workspace) -> Result<()> {
        let all = Dir::open(&self.layout.workspaces())?;
        let tmp = Dir::open(&self.layout.tmp())?;
        let name = workspace.id.to_string();
        disk::create_dir_with(&all, name.as_bytes(), FILE.as_bytes(), &encode(workspace)?, &tmp)
    }

    fn write(&self, workspace: &Workspace) -> Result<()> {
        let home = disk::make_private_dir(&self.layout.workspace(workspace.id))?;
        let tmp = Dir::open(&self.layout.tmp())?;
        disk::replace_durably(&home, FILE.as_bytes(), &encode(workspace)?, &tmp)
    }

    /// The directory in which a workspace's stat cache is.
    pub(crate) fn directory(&self, id: WorkspaceId) -> PathBuf {
        self.layout.workspace(id)
    }
}

fn encode(workspace: &Workspace) -> Result<Vec<u8>> {
    let root = |root: &PathBuf| {
        let (path, path_bytes) = to_fields(root.as_os_str().as_bytes());
        WireRoot { path: path.map(std::borrow::Cow::into_owned), path_bytes }
    };
    let wire = WireWorkspace {
        format: FORMAT,
        id: workspace.id.to_string(),
        default_session: workspace.default_session.as_str().to_owned(),
        roots: workspace.roots.iter().map(root).collect(),
        identity: workspace.identity,
    };
    serde_json::to_vec(&wire).map_err(std::io::Error::from).at("encode", Path::new(FILE))
}

fn decode(wire: WireWorkspace, id: WorkspaceId) -> Result<Workspace, String> {
    if wire.format != FORMAT {
        return Err(format!("its format is {}", wire.format));
    }
    if wire.id != id.to_string() {
        return Err(format!("it says that it is {}", wire.id));
    }
    let root = |root: WireRoot| {
        let bytes = from_fields(root.path.map(Into::into), root.path_bytes.as_deref())?;
        Ok(PathBuf::from(std::ffi::OsStr::from_bytes(&bytes)))
    };
    Ok(Workspace {
        id,
        default_session: SessionName::new(&wire.default_session)
            .map_err(|error| format!("its default session: {error}"))?,
        roots: wire.roots.into_iter().map(root).collect::<Result<_, String>>()?,
        identity: wire.identity,
    })
}

fn minted(dir: &Dir, path: &Path) -> Result<Workspace> {
    let id = WorkspaceId::random();
    Ok(Workspace {
        id,
        default_session: default_session(path, id)?,
        roots: vec![path.to_owned()],
        identity: identity_of(dir)?,
    })
}

fn is_among(workspaces: &[Workspace], id: WorkspaceId) -> bool {
    workspaces.iter().any(|workspace| workspace.id == id)
}

/// What manifests say of their workspaces. That with the newest manifest comes first.
fn remembered(manifests: Vec<Manifest>) -> Result<Vec<Workspace>> {
    let in_order = in_order_of_making(manifests, |manifest| Place {
        id: &manifest.id,
        parent: manifest.parent.as_ref().map(|parent| &parent.id),
        created_at: Some(manifest.created_at),
    });
    let mut workspaces: Vec<Workspace> = Vec::new();
    for manifest in in_order.into_iter().rev() {
        let id = manifest.workspace;
        let is_default = is_default_session(&manifest.id.session, id);
        let known = workspaces.iter().position(|workspace| workspace.id == id);
        let place = if let Some(known) = known {
            known
        } else {
            let default_session = default_session(&manifest.root_path, id)?;
            let identity = DirectoryIdentity::UNKNOWN;
            workspaces.push(Workspace { id, default_session, roots: Vec::new(), identity });
            workspaces.len() - 1
        };
        let workspace = &mut workspaces[place];
        if is_default {
            // The name of the directory is in it that was its root when it was minted.
            workspace.default_session = manifest.id.session;
        }
        if !workspace.roots.contains(&manifest.root_path) && workspace.roots.len() < ROOTS_MAX {
            workspace.roots.push(manifest.root_path);
        }
    }
    Ok(workspaces)
}

/// Whether a session is the one that captures of a workspace go to where none is named, by its name.
pub(crate) fn is_default_session(session: &SessionName, id: WorkspaceId) -> bool {
    session.as_str().ends_with(&default_ending(id))
}

fn default_ending(id: WorkspaceId) -> String {
    let digits: String = id.to_string().chars().take(8).collect();
    format!("-{digits}")
}

/// `<name of the directory>-<8 digits of the id>`, with whatever a session's name cannot hold
/// replaced by `_`.
fn default_session(path: &Path, id: WorkspaceId) -> Result<SessionName> {
    let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let mut text: String = name
        .chars()
        .map(|character| {
            let plain = character.is_alphanumeric() || matches!(character, '-' | '_' | '.');
            if plain { character } else { '_' }
        })
        .collect();
    while text.starts_with(['-', '.']) {
        text.remove(0);
    }
    // Leaves room for the dash and the digits.
    while text.len() > limits::SESSION_NAME_BYTES_MAX - 16 {
        text.pop();
    }
    if text.is_empty() {
        text.push_str("workspace");
    }
    let name = format!("{text}{}", default_ending(id));
    // A device's name with a suffix such as `con.x-1234` is still one: the prefix keeps it apart.
    SessionName::new(&name)
        .or_else(|_| SessionName::new(&format!("w-{name}")))
        .map_err(|reason| Error::InvalidSession { name, reason })
}

#[cfg(test)]
mod tests;
