//! Manifests: the JSON files that are the truth about checkpoints.
//!
//! Pure: text in, values out. Where the bytes of a page come from is the caller's business
//! ([`PageSource`]). `docs/format.md` fixes every byte.

mod compare;
mod entry;
mod exchange;
mod page;
mod part;
#[cfg(test)]
mod tests;
mod text;
mod tree;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use compare::tree_differences;
pub use entry::{Entry, EntryKind, Listed, Mode, OmitReason};
pub(crate) use exchange::Exchange;
pub use page::{EncodedPage, Page, PageRef, PageTree, Tree, build, decode};
pub(crate) use page::{EntryText, Unchanged, decode_entries, encode_entries, rebuild};
pub(crate) use part::{Edits, read_part, splice, topmost};
pub(crate) use text::{from_fields, to_fields};
pub(crate) use tree::{Above, load, root_page};
pub use tree::{Difference, PageSource, differences, page_refs, read_entries, validate};

use crate::clock::Timestamp;
use crate::hash::{BlobHash, Digest};
use crate::id::{CheckpointId, OperationId, Seq, SessionName, WorkspaceId};
use crate::limits;

/// The version of the manifest's format that this program writes.
pub const FORMAT: u64 = 1;

/// What made a checkpoint: a short word of lower-case letters, digits and dashes. Callers may use
/// their own.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Trigger(Cow<'static, str>);

impl Trigger {
    /// A person or script asked for it.
    pub const MANUAL: Self = Self(Cow::Borrowed("manual"));
    /// A turn of an agent begins.
    pub const TURN_START: Self = Self(Cow::Borrowed("turn-start"));
    /// A turn of an agent has ended.
    pub const TURN_END: Self = Self(Cow::Borrowed("turn-end"));
    /// Before and after a command that was run.
    pub const EXEC: Self = Self(Cow::Borrowed("exec"));
    /// A restore saved what it was about to change: a safety checkpoint.
    pub const PRE_RESTORE: Self = Self(Cow::Borrowed("pre-restore"));

    /// Checks and takes `text`: 1 to 32 lower-case letters, digits and dashes.
    pub fn new(text: &str) -> Option<Self> {
        let fits = matches!(text.len(), 1..=32)
            && text.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'));
        fits.then(|| Self(Cow::Owned(text.to_owned())))
    }

    /// The word.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this marks a safety checkpoint.
    pub fn is_safety(&self) -> bool {
        *self == Self::PRE_RESTORE
    }
}

/// Another checkpoint, with the checksum of its manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointRef {
    /// Which one.
    pub id: CheckpointId,
    /// The digest in its manifest.
    pub digest: Digest,
}

/// How much of the workspace a checkpoint accounts for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Coverage {
    /// All of it was walked.
    Full,
    /// The caller promised that only these directories changed; the rest is the base's.
    Hinted(Vec<String>),
    /// Only given paths were looked at; the rest is the base's, and no evidence of absence.
    Paths,
}

/// Where the knowledge of what git tracks came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tracked {
    /// git was asked, or its answer is known to be still right.
    Fresh,
    /// git could not be asked; the set known from before was used.
    Stale,
    /// No repository, or git has never answered.
    None,
}

/// An ignore file outside the workspace whose rules applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IgnoreFile {
    /// Its absolute path.
    pub path: PathBuf,
    /// The hash of its content.
    pub hash: BlobHash,
}

/// By which rules a workspace was captured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// Content of a larger file is not held.
    pub file_limit_bytes: u64,
    /// Content beyond this sum is not held.
    pub total_limit_bytes: Option<u64>,
    /// Whether other file systems mounted below the root were entered.
    pub cross_mounts: bool,
    /// Names never entered unless git tracks something in them, as patterns.
    pub excluded: Vec<String>,
    /// Names whose content is never held, as patterns; one that begins with `!` is an exception.
    pub secrets: Vec<String>,
    /// Ignore files outside the tree; those inside are entries.
    pub ignore_files: Vec<IgnoreFile>,
    /// A checksum over path and content of every ignore file that applied, inside the tree too.
    pub ignore_digest: Digest,
    /// What was known of git.
    pub tracked: Tracked,
}

/// Where git's HEAD was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GitState {
    /// The commit, in hex; none before the first commit.
    pub head: Option<String>,
    /// The branch; none where HEAD is detached.
    pub branch: Option<String>,
}

/// What a safety checkpoint was made for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoreRecord {
    /// The command.
    pub verb: RestoreVerb,
    /// The checkpoint that the command was about.
    pub target: CheckpointRef,
    /// For an undo or redo: the safety checkpoint of what it takes back.
    pub undoes: Option<CheckpointRef>,
    /// One entry for each planned path as it will be afterwards.
    pub after: Tree,
}

/// Which command a safety checkpoint was made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RestoreVerb {
    /// A restore.
    Restore,
    /// An undo of a restore.
    Undo,
    /// A redo: an undo is taken back.
    Redo,
    /// What one checkpoint changed is taken back.
    Revert,
    /// What a run in a work tree of its own changed is brought to its checkout.
    Apply,
}

impl RestoreVerb {
    /// The word used in files, JSON and SQL.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Restore => "restore",
            Self::Undo => "undo",
            Self::Redo => "redo",
            Self::Revert => "revert",
            Self::Apply => "apply",
        }
    }
}

/// What a capture saw and did.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// Files and symlinks that were seen and are in scope, whether or not their content is held.
    pub files_observed: u64,
    /// Files whose content was known from before and was not read.
    pub files_reused: u64,
    /// Files that were read.
    pub files_read: u64,
    /// Bytes that were read from them.
    pub bytes_read: u64,
    /// Bytes that were added to the store, as stored.
    pub bytes_stored: u64,
    /// How many entries hold no content, by reason; a whole directory counts once.
    pub omitted: BTreeMap<OmitReason, u64>,
}

/// One checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// The operation that made it.
    pub op: OperationId,
    /// Its session and number.
    pub id: CheckpointId,
    /// When its capture began to be committed.
    pub created_at: Timestamp,
    /// The workspace.
    pub workspace: WorkspaceId,
    /// Where the workspace's root was.
    pub root_path: PathBuf,
    /// A name for people.
    pub label: Option<String>,
    /// What made it.
    pub trigger: Trigger,
    /// The checkpoint of this workspace before it.
    pub parent: Option<CheckpointRef>,
    /// By which rules.
    pub scope: Scope,
    /// How much of the workspace it accounts for.
    pub coverage: Coverage,
    /// Whether everything in scope could be read whole.
    pub complete: bool,
    /// Where git's HEAD was; none outside a repository.
    pub git: Option<GitState>,
    /// For a safety checkpoint: what it was made for.
    pub restore: Option<RestoreRecord>,
    /// The entries.
    pub tree: Tree,
    /// What the capture saw and did.
    pub counts: Counts,
}

/// What a file in a session's directory turned out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParsedManifest {
    /// A manifest and its digest.
    Valid(Box<Manifest>, Digest),
    /// A JSON object of another program that used this layout before: reserved, never touched.
    Legacy,
}

/// Why a file is not a manifest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidManifest {
    /// Written by a newer program.
    #[error("its format is {found}; this program knows up to {FORMAT}")]
    TooNew {
        /// The version found.
        found: u64,
    },
    /// The checksum does not match: the text was changed or cut.
    #[error("its checksum does not match its text")]
    Digest,
    /// It breaks the format.
    #[error("{0}")]
    Malformed(String),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireManifest<'a> {
    format: u64,
    op: String,
    session: Cow<'a, str>,
    seq: u64,
    created_at: String,
    workspace: WireWorkspace<'a>,
    label: Option<Cow<'a, str>>,
    trigger: Cow<'a, str>,
    parent: Option<WireCheckpointRef>,
    hash: Cow<'a, str>,
    scope: WireScope,
    coverage: Coverage,
    complete: bool,
    git: Option<GitState>,
    restore: Option<WireRestore>,
    root: String,
    root_size: u64,
    levels: u8,
    entries: u64,
    counts: Counts,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireWorkspace<'a> {
    id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    root: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    root_bytes: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireCheckpointRef {
    session: String,
    seq: u64,
    digest: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireScope {
    file_limit_bytes: u64,
    total_limit_bytes: Option<u64>,
    cross_mounts: bool,
    excluded: Vec<String>,
    secrets: Vec<String>,
    ignore_files: Vec<WireIgnoreFile>,
    ignore_digest: String,
    tracked: Tracked,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireIgnoreFile {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path_bytes: Option<String>,
    hash: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireRestore {
    verb: RestoreVerb,
    target: WireCheckpointRef,
    undoes: Option<WireCheckpointRef>,
    after: WireTree,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireTree {
    root: String,
    root_size: u64,
    levels: u8,
    entries: u64,
}

impl Manifest {
    /// The other checkpoints that it names, which may be gone by now.
    pub fn references(&self) -> impl Iterator<Item = &CheckpointId> {
        let restore = self.restore.as_ref();
        let undoes = restore.and_then(|restore| restore.undoes.as_ref());
        let named = [self.parent.as_ref(), restore.map(|restore| &restore.target), undoes];
        named.into_iter().flatten().map(|reference| &reference.id)
    }

    /// The canonical text and its digest. The digest is the last field and covers the text without
    /// it.
    pub fn encode(&self) -> (Vec<u8>, Digest) {
        let mut wire = self.to_wire();
        // Strings, integers and vectors always have a JSON form.
        let without = serde_json::to_vec(&wire).unwrap_or_default();
        let digest = Digest::of(&without);
        wire.digest = Some(digest.to_string());
        (serde_json::to_vec(&wire).unwrap_or_default(), digest)
    }

    fn to_wire(&self) -> WireManifest<'_> {
        let (root, root_bytes) = to_fields(self.root_path.as_os_str().as_bytes());
        WireManifest {
            format: FORMAT,
            op: self.op.to_string(),
            session: Cow::Borrowed(self.id.session.as_str()),
            seq: self.id.seq.get(),
            created_at: self.created_at.to_string(),
            workspace: WireWorkspace { id: self.workspace.to_string(), root, root_bytes },
            label: self.label.as_deref().map(Cow::Borrowed),
            trigger: Cow::Borrowed(self.trigger.as_str()),
            parent: self.parent.as_ref().map(wire_reference),
            hash: Cow::Borrowed("blake3"),
            scope: wire_scope(&self.scope),
            coverage: self.coverage.clone(),
            complete: self.complete,
            git: self.git.clone(),
            restore: self.restore.as_ref().map(|restore| WireRestore {
                verb: restore.verb,
                target: wire_reference(&restore.target),
                undoes: restore.undoes.as_ref().map(wire_reference),
                after: WireTree {
                    root: restore.after.root.to_string(),
                    root_size: restore.after.root_size,
                    levels: restore.after.levels,
                    entries: restore.after.entries,
                },
            }),
            root: self.tree.root.to_string(),
            root_size: self.tree.root_size,
            levels: self.tree.levels,
            entries: self.tree.entries,
            counts: self.counts.clone(),
            digest: None,
        }
    }

    /// Reads a manifest's text.
    ///
    /// # Errors
    /// See [`InvalidManifest`]. No input panics; memory is in proportion to the text.
    pub fn decode(bytes: &[u8]) -> Result<ParsedManifest, InvalidManifest> {
        let malformed = |problem: String| InvalidManifest::Malformed(problem);
        if bytes.len() as u64 > limits::MANIFEST_BYTES_MAX {
            return Err(malformed(format!(
                "it is longer than {} bytes",
                limits::MANIFEST_BYTES_MAX
            )));
        }
        let keys: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(bytes)
            .map_err(|error| malformed(format!("it is not a JSON object: {error}")))?;
        if !["format", "op", "root", "digest"].iter().any(|key| keys.contains_key(*key)) {
            return Ok(ParsedManifest::Legacy);
        }
        if let Ok(Version { format }) = serde_json::from_slice(bytes)
            && format > FORMAT
        {
            return Err(InvalidManifest::TooNew { found: format });
        }
        let wire: WireManifest<'_> =
            serde_json::from_slice(bytes).map_err(|error| malformed(error.to_string()))?;
        if wire.format == 0 {
            return Err(malformed("its format is 0".to_owned()));
        }
        let digest: Digest = wire
            .digest
            .as_deref()
            .ok_or_else(|| malformed("it has no digest".to_owned()))?
            .parse()
            .map_err(|error| malformed(format!("its digest is {error}")))?;
        let manifest = from_wire(wire).map_err(malformed)?;
        // The text must be the canonical one, to the byte: the digest covers it, and a reader in
        // another language may rely on it.
        let (canonical, computed) = manifest.encode();
        if computed != digest || canonical != bytes {
            return Err(InvalidManifest::Digest);
        }
        Ok(ParsedManifest::Valid(Box::new(manifest), digest))
    }
}

/// Reads the version alone, from a text whose other fields may be unknown.
#[derive(Deserialize)]
struct Version {
    format: u64,
}

fn wire_reference(reference: &CheckpointRef) -> WireCheckpointRef {
    WireCheckpointRef {
        session: reference.id.session.as_str().to_owned(),
        seq: reference.id.seq.get(),
        digest: reference.digest.to_string(),
    }
}

fn wire_scope(scope: &Scope) -> WireScope {
    let ignore_file = |file: &IgnoreFile| {
        let (path, path_bytes) = to_fields(file.path.as_os_str().as_bytes());
        WireIgnoreFile { path: path.map(Cow::into_owned), path_bytes, hash: file.hash.to_string() }
    };
    WireScope {
        file_limit_bytes: scope.file_limit_bytes,
        total_limit_bytes: scope.total_limit_bytes,
        cross_mounts: scope.cross_mounts,
        excluded: scope.excluded.clone(),
        secrets: scope.secrets.clone(),
        ignore_files: scope.ignore_files.iter().map(ignore_file).collect(),
        ignore_digest: scope.ignore_digest.to_string(),
        tracked: scope.tracked,
    }
}

fn from_wire(wire: WireManifest<'_>) -> Result<Manifest, String> {
    if wire.hash != "blake3" {
        return Err(format!("its blobs are named by `{}`, which is not known", wire.hash));
    }
    Ok(Manifest {
        op: parsed("op", &wire.op)?,
        id: checkpoint_id(&wire.session, wire.seq)?,
        created_at: parsed("created_at", &wire.created_at)?,
        workspace: parsed("workspace", &wire.workspace.id)?,
        root_path: os_path(wire.workspace.root, wire.workspace.root_bytes.as_deref())?,
        label: wire.label.map(Cow::into_owned),
        trigger: Trigger::new(&wire.trigger)
            .ok_or_else(|| format!("`{}` is not a trigger", wire.trigger))?,
        parent: wire.parent.as_ref().map(reference).transpose()?,
        scope: scope(wire.scope)?,
        coverage: wire.coverage,
        complete: wire.complete,
        git: wire.git,
        restore: wire.restore.as_ref().map(restore_record).transpose()?,
        tree: tree_of(&WireTree {
            root: wire.root,
            root_size: wire.root_size,
            levels: wire.levels,
            entries: wire.entries,
        })?,
        counts: wire.counts,
    })
}

fn parsed<T>(field: &str, text: &str) -> Result<T, String>
where
    T: std::str::FromStr,
    T::Err: std::fmt::Display,
{
    text.parse().map_err(|error| format!("`{field}`: {error}"))
}

fn checkpoint_id(session: &str, seq: u64) -> Result<CheckpointId, String> {
    let session = SessionName::new(session).map_err(|error| format!("`session`: {error}"))?;
    let seq = Seq::new(seq).ok_or_else(|| format!("`seq`: {seq} is too large"))?;
    Ok(CheckpointId { session, seq })
}

fn reference(wire: &WireCheckpointRef) -> Result<CheckpointRef, String> {
    Ok(CheckpointRef {
        id: checkpoint_id(&wire.session, wire.seq)?,
        digest: parsed("digest", &wire.digest)?,
    })
}

fn os_path(text: Option<Cow<'_, str>>, base64: Option<&str>) -> Result<PathBuf, String> {
    let bytes = from_fields(text, base64)?;
    Ok(PathBuf::from(std::ffi::OsString::from_vec(bytes)))
}

fn scope(wire: WireScope) -> Result<Scope, String> {
    let ignore_file = |file: WireIgnoreFile| {
        Ok(IgnoreFile {
            path: os_path(file.path.map(Cow::Owned), file.path_bytes.as_deref())?,
            hash: parsed("hash", &file.hash)?,
        })
    };
    Ok(Scope {
        file_limit_bytes: wire.file_limit_bytes,
        total_limit_bytes: wire.total_limit_bytes,
        cross_mounts: wire.cross_mounts,
        excluded: wire.excluded,
        secrets: wire.secrets,
        ignore_files: wire
            .ignore_files
            .into_iter()
            .map(ignore_file)
            .collect::<Result<_, String>>()?,
        ignore_digest: parsed("ignore_digest", &wire.ignore_digest)?,
        tracked: wire.tracked,
    })
}

fn restore_record(wire: &WireRestore) -> Result<RestoreRecord, String> {
    Ok(RestoreRecord {
        verb: wire.verb,
        target: reference(&wire.target)?,
        undoes: wire.undoes.as_ref().map(reference).transpose()?,
        after: tree_of(&wire.after)?,
    })
}

fn tree_of(wire: &WireTree) -> Result<Tree, String> {
    if wire.levels == 0 || wire.levels > limits::PAGE_LEVEL_MAX {
        return Err(format!("it has {} levels of pages", wire.levels));
    }
    if wire.root_size > limits::PAGE_BYTES_MAX {
        return Err(format!("its root page is {} bytes long", wire.root_size));
    }
    Ok(Tree {
        root: parsed("root", &wire.root)?,
        root_size: wire.root_size,
        levels: wire.levels,
        entries: wire.entries,
    })
}
