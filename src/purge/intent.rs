//! What a purge has decided, written down before its first change: `journal/purge.json`.
//!
//! It holds the new text of every manifest that is written anew, so that it can be carried out to the
//! end without computing anything, by whoever comes next, as often as it takes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::disk::{self, Dir};
use crate::error::{BadFile, IoContext, PurgeError, Result, not_understood};
use crate::hash::Digest;
use crate::id::{CheckpointId, Seq, SessionName, WorkspaceId};
use crate::layout::Layout;
use crate::limits;
use crate::manifest::{Manifest, ParsedManifest};
use crate::sessions::{Found, Sessions};
use crate::workspaces::StatCache;

/// A manifest that is written anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rewrite {
    /// Where it lies.
    pub(crate) id: CheckpointId,
    /// Its digest until then.
    pub(crate) before: Digest,
    /// Its digest from then on.
    pub(crate) after: Digest,
    /// Its new text.
    pub(crate) text: Vec<u8>,
}

/// How far a purge has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PurgePhase {
    /// Manifests are written anew, and the index after them. Nobody else may write meanwhile.
    Rewriting,
    /// No checkpoint names the content any more. It is being removed, and others may work.
    Removing,
}

/// A purge that was decided and is not at its end.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Intent {
    /// How far it has come.
    pub(crate) phase: PurgePhase,
    /// Whose checkpoints they are.
    pub(crate) workspace: WorkspaceId,
    /// Those first that others name.
    pub(crate) rewrites: Vec<Rewrite>,
    /// Files in the quarantine that go, below the store.
    pub(crate) quarantined: Vec<PathBuf>,
    /// What the log of operations says in the end.
    pub(crate) account: Map<String, Value>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    format: u64,
    phase: PurgePhase,
    workspace: String,
    manifests: Vec<WireRewrite>,
    quarantined: Vec<PathBuf>,
    account: Map<String, Value>,
    digest: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireRewrite {
    session: String,
    seq: u64,
    before: String,
    text: String,
}

impl Intent {
    /// Reads it; `None` where no purge is open.
    ///
    /// # Errors
    /// [`crate::Error::Io`] naming the file; see [`crate::Error::is_damage`].
    pub(crate) fn read(layout: &Layout) -> Result<Option<Self>> {
        let path = layout.purge();
        let Some(text) = disk::read_small(&path, limits::PURGE_BYTES_MAX)? else {
            return Ok(None);
        };
        Self::decode(&text).map(Some).map_err(|reason| not_understood(&path, reason))
    }

    /// Refuses one that is longer than it may be.
    ///
    /// # Errors
    /// [`PurgeError::TooLong`].
    pub(crate) fn require_length(&self, layout: &Layout, bytes_max: u64) -> Result<()> {
        let path = layout.purge();
        let text = self.encode().map_err(std::io::Error::from).at("encode", &path)?;
        let bytes = text.len() as u64;
        if bytes > bytes_max {
            let manifests = self.rewrites.len();
            return Err(PurgeError::TooLong { path, manifests, bytes, bytes_max }.into());
        }
        Ok(())
    }

    /// Writes it. Durable when it returns.
    pub(crate) fn write(&self, layout: &Layout, tmp: &Dir) -> Result<()> {
        let path = layout.purge();
        let text = self.encode().map_err(std::io::Error::from).at("encode", &path)?;
        let (dir, name) = place(&path)?;
        disk::replace_durably(&dir, name, &text, tmp)
    }

    /// Removes it: the purge is over. Durable when it returns.
    pub(crate) fn close(layout: &Layout) -> Result<()> {
        let path = layout.purge();
        let (dir, name) = place(&path)?;
        disk::remove_durably(&dir, name).map(|_| ())
    }

    /// Gives one that cannot be understood another name, under which nobody takes it for one.
    pub(crate) fn set_aside(layout: &Layout) -> Result<Option<PathBuf>> {
        let path = layout.purge();
        let (dir, name) = place(&path)?;
        disk::set_aside(&dir, name, &dir)
    }

    /// Puts the new manifests in the places of the old ones, and removes the stat caches of the workspace,
    /// which say what the old ones held. Doing it twice is doing it once.
    ///
    /// A manifest that is neither the old nor the new one is left: somebody removed or damaged it since,
    /// and that is told by a verification. What is there is never written over unseen.
    ///
    /// # Durability
    /// All of it is durable when it returns. A crash on the way leaves each manifest as it was or as it
    /// is to be; each of both names pages that are there.
    pub(crate) fn rewrite(&self, layout: &Layout, sessions: &Sessions, tmp: &Dir) -> Result<()> {
        for rewrite in &self.rewrites {
            if matches!(sessions.read(&rewrite.id), Found::Valid { digest, .. } if digest == rewrite.before)
            {
                sessions.replace(&rewrite.id, &rewrite.text, tmp)?;
            }
        }
        // Once more, where a process died between a name and its being durable.
        let touched: BTreeSet<&SessionName> =
            self.rewrites.iter().map(|it| &it.id.session).collect();
        for session in touched {
            sessions.sync(session)?;
        }
        let workspace = layout.workspace(self.workspace);
        if disk::is_directory(&workspace)? {
            StatCache::discard(&workspace)?;
            Dir::open(&workspace)?.sync()?;
        }
        Ok(())
    }

    /// The manifests that are there and are not those that the purge wrote, such as an old one from a
    /// backup: they may name what is to be removed.
    pub(crate) fn others(&self, sessions: &Sessions) -> Vec<BadFile> {
        let is_other = |it: &&Rewrite| matches!(sessions.read(&it.id), Found::Valid { digest, .. } if digest != it.after);
        let bad = |it: &Rewrite| {
            BadFile {
            path: sessions.manifest_path(&it.id),
            reason: "it is not the one that a purge has put there; take it away to let the purge come to \
                     its end"
                .to_owned(),
        }
        };
        self.rewrites.iter().filter(is_other).map(bad).collect()
    }

    fn encode(&self) -> serde_json::Result<Vec<u8>> {
        let manifest = |it: &Rewrite| WireRewrite {
            session: it.id.session.as_str().to_owned(),
            seq: it.id.seq.get(),
            before: it.before.to_string(),
            // A manifest's text is JSON, and so is UTF-8.
            text: String::from_utf8_lossy(&it.text).into_owned(),
        };
        let mut wire = Wire {
            format: 1,
            phase: self.phase,
            workspace: self.workspace.to_string(),
            manifests: self.rewrites.iter().map(manifest).collect(),
            quarantined: self.quarantined.clone(),
            account: self.account.clone(),
            digest: String::new(),
        };
        wire.digest = Digest::of(&serde_json::to_vec(&wire)?).to_string();
        serde_json::to_vec(&wire)
    }

    fn decode(text: &[u8]) -> Result<Self, String> {
        let mut wire: Wire = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        if wire.format != 1 {
            return Err(format!("its format is {}", wire.format));
        }
        let digest = std::mem::take(&mut wire.digest);
        let computed = serde_json::to_vec(&wire).map_err(|error| error.to_string())?;
        if Digest::of(&computed).to_string() != digest {
            return Err("its checksum does not match its text".to_owned());
        }
        let is_below = |path: &PathBuf| {
            path.starts_with("quarantine")
                && path.components().all(|it| matches!(it, std::path::Component::Normal(_)))
        };
        if let Some(path) = wire.quarantined.iter().find(|path| !is_below(path)) {
            return Err(format!("{} is not in the quarantine", path.display()));
        }
        Ok(Self {
            phase: wire.phase,
            workspace: wire.workspace.parse().map_err(|_| "its workspace is not one".to_owned())?,
            rewrites: wire.manifests.into_iter().map(rewrite).collect::<Result<_, _>>()?,
            quarantined: wire.quarantined,
            account: wire.account,
        })
    }
}

fn rewrite(wire: WireRewrite) -> Result<Rewrite, String> {
    let session = SessionName::new(&wire.session).map_err(|error| error.to_string())?;
    let seq = Seq::new(wire.seq).ok_or("a number is too large")?;
    let id = CheckpointId { session, seq };
    let before = wire.before.parse().map_err(|_| "a digest is not one".to_owned())?;
    let text = wire.text.into_bytes();
    match Manifest::decode(&text) {
        Ok(ParsedManifest::Valid(manifest, after))
            if manifest.id.seq == id.seq && manifest.id.session.folded() == id.session.folded() =>
        {
            Ok(Rewrite { id, before, after, text })
        }
        _ => Err(format!("the new manifest of {id} is none")),
    }
}

/// The directory of a file of the store, and its name there.
fn place(path: &Path) -> Result<(Dir, &[u8])> {
    let dir = path.parent().unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    Ok((Dir::open(dir)?, name))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::mutation::{assert_stays_inside, changed, changes, config, near};

    /// A manifest in its own format, `tests/data/format-1`.
    const MANIFEST: &[u8] = include_bytes!("../../tests/data/format-1/manifest-full.json");

    fn sample() -> Intent {
        let Ok(ParsedManifest::Valid(manifest, after)) = Manifest::decode(MANIFEST) else {
            panic!("the sample is no manifest");
        };
        let before = Digest::of(b"as it was");
        let rewrite = Rewrite { id: manifest.id, before, after, text: MANIFEST.to_vec() };
        let mut account = Map::new();
        account.insert("paths".to_owned(), Value::from(vec!["a", "b"]));
        Intent {
            phase: PurgePhase::Rewriting,
            workspace: WorkspaceId::from_bytes([7; 16]),
            rewrites: vec![rewrite],
            quarantined: vec![PathBuf::from("quarantine/packs/x.pack")],
            account,
        }
    }

    /// What is accepted touches nothing outside of the store.
    fn assert_sound(text: &[u8]) -> bool {
        let Ok(intent) = Intent::decode(text) else { return false };
        for path in &intent.quarantined {
            assert_stays_inside(path.as_os_str().as_encoded_bytes());
        }
        true
    }

    /// The text with another checksum, that of what it says now.
    fn sealed(text: &[u8]) -> Vec<u8> {
        let Ok(mut wire) = serde_json::from_slice::<Wire>(text) else { return text.to_vec() };
        wire.digest = String::new();
        wire.digest = Digest::of(&serde_json::to_vec(&wire).unwrap()).to_string();
        serde_json::to_vec(&wire).unwrap()
    }

    #[test]
    fn what_was_decided_reads_as_it_was_written() {
        let text = sample().encode().unwrap();
        assert_eq!(Intent::decode(&text), Ok(sample()));
        // A manifest of another checkpoint would take the place of one.
        let mut other = sample();
        other.rewrites[0].id.seq = Seq::new(8).unwrap();
        assert!(Intent::decode(&other.encode().unwrap()).is_err());
        let mut outside = sample();
        outside.quarantined = vec![PathBuf::from("quarantine/../s/0.json")];
        assert!(Intent::decode(&outside.encode().unwrap()).is_err());
    }

    #[test]
    fn what_could_not_be_read_back_is_refused() {
        let (intent, layout) = (sample(), Layout::new(Path::new("/store")));
        let length = intent.encode().unwrap().len() as u64;
        intent.require_length(&layout, length).unwrap();
        let error = intent.require_length(&layout, length - 1).unwrap_err();
        assert_eq!(error.code(), "purge-too-long");
        assert!(error.to_string().contains("purge.json"), "{error}");
    }

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn no_bytes_in_its_place_do_harm(text in near(Just(sample().encode().unwrap()))) {
            if assert_sound(&text) {
                prop_assert_eq!(Intent::decode(&text), Ok(sample()));
            }
        }

        #[test]
        fn a_changed_one_with_its_checksum_made_right_is_sound_or_refused(changes in changes()) {
            assert_sound(&sealed(&changed(&sample().encode().unwrap(), &changes)));
        }
    }
}
