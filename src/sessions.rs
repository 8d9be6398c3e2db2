//! The directories of sessions: manifests, pins and what no manifest says.
//!
//! The files here are the truth; the index repeats them. Nothing here decides what may be removed.

#[cfg(test)]
mod tests;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::checkpoint::PinFile;
use crate::disk::{self, Created, Dir};
use crate::error::{BadFile, Error, IoContext, Repair, Result, not_understood};
use crate::hash::Digest;
use crate::id::{CheckpointId, Seq, SessionName};
use crate::layout::Layout;
use crate::limits;
use crate::manifest::{InvalidManifest, Manifest, ParsedManifest};

/// What no manifest says about a session: `session.json`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct SessionFile {
    /// Numbers below this were given, even if no checkpoint shows it.
    #[serde(default)]
    pub(crate) next_seq: u64,
    /// What this program does not know: it is no damage, and is kept.
    #[serde(flatten)]
    other: serde_json::Map<String, serde_json::Value>,
}

/// The name of the file with what no manifest says.
const SESSION_FILE: &str = "session.json";

/// A manifest as found on disk.
#[derive(Debug, Clone)]
pub(crate) enum Found {
    /// Understood, and the checksum fits.
    Valid { manifest: Box<Manifest>, digest: Digest, file_bytes: u64 },
    /// Of another program; its number is reserved, and nothing else is known.
    Legacy,
    /// There and not understood.
    Unreadable { reason: String },
    /// Not there.
    Absent,
}

/// The names in a session's directory, as numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SessionListing {
    /// Numbers with a manifest, ascending.
    pub(crate) manifests: Vec<Seq>,
    /// Numbers with a pin file, ascending.
    pub(crate) pins: Vec<Seq>,
}

impl SessionListing {
    /// The lowest number above every one that was given.
    pub(crate) fn next(&self) -> u64 {
        let highest = self.manifests.last().max(self.pins.last());
        highest.map_or(0, |seq| seq.get() + 1)
    }
}

/// The sessions of a store.
#[derive(Debug, Clone)]
pub(crate) struct Sessions {
    layout: Layout,
}

impl Sessions {
    /// The sessions of the store at `layout`.
    pub(crate) fn new(layout: &Layout) -> Self {
        Self { layout: layout.clone() }
    }

    /// The names of all sessions: the directories of the store whose names are session names.
    ///
    /// # Errors
    /// A store that cannot be listed is an error, never an empty one.
    pub(crate) fn names(&self) -> Result<Vec<SessionName>> {
        let mut names = Vec::new();
        for (name, is_dir) in disk::list_dir(self.layout.root())? {
            let session =
                std::str::from_utf8(&name).ok().and_then(|text| SessionName::new(text).ok());
            if let Some(session) = session
                && is_dir
            {
                names.push(session);
            }
        }
        names.sort();
        Ok(names)
    }

    /// Names in the store that could be a session's and are no directory: a symlink to one, say. What
    /// they hold cannot be relied on, and must not be taken for absent.
    pub(crate) fn unlisted(&self) -> Result<Vec<BadFile>> {
        let mut unlisted = Vec::new();
        for (name, is_dir) in disk::list_dir(self.layout.root())? {
            let session =
                std::str::from_utf8(&name).ok().and_then(|text| SessionName::new(text).ok());
            if let Some(session) = session
                && !is_dir
            {
                let reason = "it is named like a session and is no directory".to_owned();
                unlisted.push(BadFile { path: self.layout.session(&session), reason });
            }
        }
        Ok(unlisted)
    }

    /// The session of that name as it is written on disk; `None` where there is none.
    pub(crate) fn find(&self, name: &SessionName) -> Result<Option<SessionName>> {
        if disk::is_directory(&self.layout.session(name))? {
            return Ok(Some(name.clone()));
        }
        let folded = name.folded();
        Ok(self.names()?.into_iter().find(|known| known.folded() == folded))
    }

    /// The numbers in a session's directory; empty where there is no directory.
    pub(crate) fn listing(&self, session: &SessionName) -> Result<SessionListing> {
        let dir = self.layout.session(session);
        if !disk::is_directory(&dir)? {
            return Ok(SessionListing::default());
        }
        let mut listing = SessionListing::default();
        for (name, _) in disk::list_dir(&dir)? {
            let Ok(name) = std::str::from_utf8(&name) else { continue };
            if let Some(seq) = name.strip_suffix(".json").and_then(|stem| stem.parse().ok()) {
                listing.manifests.push(seq);
            } else if let Some(seq) = name.strip_suffix(".pin").and_then(|stem| stem.parse().ok()) {
                listing.pins.push(seq);
            }
        }
        listing.manifests.sort_unstable();
        listing.pins.sort_unstable();
        Ok(listing)
    }

    /// The directory of a session.
    pub(crate) fn directory(&self, session: &SessionName) -> PathBuf {
        self.layout.session(session)
    }

    /// The file of a manifest.
    pub(crate) fn manifest_path(&self, id: &CheckpointId) -> PathBuf {
        self.layout.session(&id.session).join(format!("{}.json", id.seq))
    }

    /// The file of a pin.
    pub(crate) fn pin_path(&self, id: &CheckpointId) -> PathBuf {
        self.layout.session(&id.session).join(format!("{}.pin", id.seq))
    }

    /// Reads a manifest. That it cannot be understood is an answer; that the disk fails is one too,
    /// since nothing may be concluded from it.
    pub(crate) fn read(&self, id: &CheckpointId) -> Found {
        let text = match disk::read_small(&self.manifest_path(id), limits::MANIFEST_BYTES_MAX) {
            Ok(None) => return Found::Absent,
            Ok(Some(text)) => text,
            Err(error) => return Found::Unreadable { reason: with_source(&error) },
        };
        match Manifest::decode(&text) {
            Ok(ParsedManifest::Legacy) => Found::Legacy,
            Ok(ParsedManifest::Valid(manifest, digest)) => {
                let stands_elsewhere = manifest.id.seq != id.seq
                    || manifest.id.session.folded() != id.session.folded();
                if stands_elsewhere {
                    let reason = format!("it says that it is {}", manifest.id);
                    return Found::Unreadable { reason };
                }
                Found::Valid { manifest, digest, file_bytes: text.len() as u64 }
            }
            Err(error @ InvalidManifest::TooNew { .. }) => {
                Found::Unreadable { reason: error.to_string() }
            }
            Err(error) => Found::Unreadable { reason: error.to_string() },
        }
    }

    /// A manifest that must be there and be understood.
    ///
    /// # Errors
    /// [`Error::CheckpointUnreadable`], or [`Error::CheckpointNotFound`] with the nearest numbers.
    pub(crate) fn require(&self, id: &CheckpointId) -> Result<(Manifest, Digest)> {
        let unreadable = |reason: String| Error::CheckpointUnreadable {
            checkpoint: id.clone(),
            path: self.manifest_path(id),
            reason,
        };
        match self.read(id) {
            Found::Valid { manifest, digest, .. } => Ok((*manifest, digest)),
            Found::Legacy => Err(unreadable("another program wrote it".to_owned())),
            Found::Unreadable { reason } => Err(unreadable(reason)),
            Found::Absent => {
                let mut nearest = self.listing(&id.session)?.manifests;
                nearest.sort_by_key(|seq| seq.get().abs_diff(id.seq.get()));
                nearest.truncate(5);
                nearest.sort_unstable();
                Err(Error::CheckpointNotFound { session: id.session.clone(), seq: id.seq, nearest })
            }
        }
    }

    /// Writes a manifest: the commit point of a capture. `Exists` where the number is taken.
    ///
    /// # Durability
    /// When it returns, the file and its name survive a power cut.
    pub(crate) fn write(&self, id: &CheckpointId, text: &[u8], tmp: &Dir) -> Result<Created> {
        // Where it is new its own name is durable too, before the manifest in it is.
        let dir = disk::make_private_dir(&self.layout.session(&id.session))?;
        disk::create_durably(&dir, format!("{}.json", id.seq).as_bytes(), text, tmp)
    }

    /// Puts another text in the place of a manifest. Whoever reads it finds the old one or the new one.
    ///
    /// # Durability
    /// As [`Sessions::write`].
    pub(crate) fn replace(&self, id: &CheckpointId, text: &[u8], tmp: &Dir) -> Result<()> {
        let dir = Dir::open(&self.layout.session(&id.session))?;
        disk::replace_durably(&dir, format!("{}.json", id.seq).as_bytes(), text, tmp)
    }

    /// Removes a manifest and its pin file. A directory in the place of one is kept beside it: nobody
    /// knows what is in it. Durable only after [`Sessions::sync`].
    pub(crate) fn remove(&self, id: &CheckpointId) -> Result<()> {
        // The pin goes first: a pin without a manifest would be damage, a manifest without its pin
        // is a checkpoint that is being pruned.
        for path in [self.pin_path(id), self.manifest_path(id)] {
            if disk::is_directory(&path)? {
                let name = path.file_name().unwrap_or_default().as_encoded_bytes();
                let dir = Dir::open(&self.layout.session(&id.session))?;
                disk::set_aside(&dir, name, &dir)?;
            } else {
                disk::remove_file(&path)?;
            }
        }
        Ok(())
    }

    /// Makes what was removed from a session's directory durable.
    pub(crate) fn sync(&self, session: &SessionName) -> Result<()> {
        let dir = self.layout.session(session);
        if disk::is_directory(&dir)? { Dir::open(&dir)?.sync() } else { Ok(()) }
    }

    /// What people said about a checkpoint; the default where nothing was said.
    ///
    /// # Errors
    /// A pin that cannot be understood is an error: taken for "not pinned" it would be lost.
    pub(crate) fn read_pin(&self, id: &CheckpointId) -> Result<PinFile> {
        let path = self.pin_path(id);
        match disk::read_small(&path, limits::SMALL_FILE_BYTES_MAX)? {
            None => Ok(PinFile::default()),
            Some(text) => {
                serde_json::from_slice(&text).map_err(|error| Error::CheckpointUnreadable {
                    checkpoint: id.clone(),
                    path,
                    reason: error.to_string(),
                })
            }
        }
    }

    /// Writes what people said about a checkpoint; removes the file where nothing is left to say.
    /// Durable when it returns.
    pub(crate) fn write_pin(&self, id: &CheckpointId, pin: &PinFile, tmp: &Dir) -> Result<()> {
        let path = self.pin_path(id);
        if *pin == PinFile::default() {
            let removed = disk::remove_file(&path)?;
            return if removed { self.sync(&id.session) } else { Ok(()) };
        }
        let text = serde_json::to_vec(pin).map_err(std::io::Error::from).at("encode", &path)?;
        let dir = Dir::open(&self.layout.session(&id.session))?;
        disk::replace_durably(&dir, format!("{}.pin", id.seq).as_bytes(), &text, tmp)
    }

    /// The file with what no manifest says about the session.
    pub(crate) fn session_file_path(&self, session: &SessionName) -> PathBuf {
        self.layout.session(session).join(SESSION_FILE)
    }

    /// What no manifest says about the session; the default where nothing was said.
    ///
    /// # Errors
    /// [`Error::Io`] naming the file; see [`Error::is_damage`].
    pub(crate) fn read_session_file(&self, session: &SessionName) -> Result<SessionFile> {
        let path = self.session_file_path(session);
        match disk::read_small(&path, limits::SMALL_FILE_BYTES_MAX)? {
            None => Ok(SessionFile::default()),
            Some(text) => {
                let file: SessionFile = serde_json::from_slice(&text)
                    .map_err(|error| not_understood(&path, error.to_string()))?;
                // Believed, it would leave the session without a number for ever.
                if file.next_seq > Seq::MAX.get() + 1 {
                    let reason = format!("{} is more than any number given", file.next_seq);
                    return Err(not_understood(&path, reason));
                }
                Ok(file)
            }
        }
    }

    /// Puts a sound `session.json` in the place of a damaged one, which is kept beside it; does
    /// nothing where there is no damage. `given` is what else is known, from the index: numbers below
    /// it were given.
    ///
    /// The lowest number that may be given is then the highest that index and files know. It cannot
    /// be too low for what has been done since the index was built; what only the damaged file knew is
    /// in the file that is kept.
    pub(crate) fn repair_session_file(
        &self,
        session: &SessionName,
        given: u64,
        tmp: &Dir,
    ) -> Result<Option<Repair>> {
        let damage = match self.read_session_file(session) {
            Err(error) if error.is_damage() => error,
            _ => return Ok(None),
        };
        let dir = Dir::open(&self.layout.session(session))?;
        let next_seq = self.next_seq(session)?.max(given);
        let file = SessionFile { next_seq, ..SessionFile::default() };
        let path = self.session_file_path(session);
        let text = serde_json::to_vec(&file).map_err(std::io::Error::from).at("encode", &path)?;
        let aside = disk::set_aside(&dir, SESSION_FILE.as_bytes(), &dir)?;
        disk::replace_durably(&dir, SESSION_FILE.as_bytes(), &text, tmp)?;
        Ok(Some(Repair { file: path, reason: with_source(&damage), aside }))
    }

    /// Keeps the number of a checkpoint that is about to be removed from being given again, where it is
    /// the highest of its session: then no other file, and after its loss no index, tells that it was
    /// given. Durable when it returns.
    pub(crate) fn keep_number(&self, id: &CheckpointId, tmp: &Dir) -> Result<()> {
        let next = id.seq.get() + 1;
        let listing = self.listing(&id.session)?;
        let is_told = listing.manifests.last().is_some_and(|highest| *highest > id.seq);
        let mut file = match self.read_session_file(&id.session) {
            // The next capture makes it anew, with what the index knows.
            Err(error) if error.is_damage() => return Ok(()),
            read => read?,
        };
        if is_told || file.next_seq >= next {
            return Ok(());
        }
        file.next_seq = next;
        let path = self.session_file_path(&id.session);
        let text = serde_json::to_vec(&file).map_err(std::io::Error::from).at("encode", path)?;
        let dir = disk::make_private_dir(&self.layout.session(&id.session))?;
        disk::replace_durably(&dir, SESSION_FILE.as_bytes(), &text, tmp)
    }

    /// The lowest number of a session that the files do not know as given: above its manifests and
    /// pins, `session.json`, and what was set aside in the quarantine.
    pub(crate) fn next_seq(&self, session: &SessionName) -> Result<u64> {
        let mut next = self.listing(session)?.next();
        // A damaged one says nothing: the index knows what was given, and is asked too.
        match self.read_session_file(session) {
            Ok(file) => next = next.max(file.next_seq),
            Err(error) if error.is_damage() => {}
            Err(error) => return Err(error),
        }
        for name in self.names_in_quarantine(session)? {
            let stem = name.split('.').next().and_then(|seq| seq.parse::<Seq>().ok());
            next = next.max(stem.map_or(0, |seq| seq.get() + 1));
        }
        Ok(next)
    }

    /// What of a session was put into the quarantine: `3.json`, `3.json.2`.
    fn names_in_quarantine(&self, session: &SessionName) -> Result<Vec<String>> {
        let quarantine = self.layout.quarantine();
        if !disk::is_directory(&quarantine)? {
            return Ok(Vec::new());
        }
        let mut names = Vec::new();
        for (name, is_dir) in disk::list_dir(&quarantine)? {
            let of = std::str::from_utf8(&name).ok().and_then(|name| SessionName::new(name).ok());
            if let Some(of) = of.filter(|of| is_dir && of.folded() == session.folded()) {
                let inside = disk::list_dir(&quarantine.join(of.as_str()))?;
                names.extend(
                    inside.into_iter().filter_map(|(name, _)| String::from_utf8(name).ok()),
                );
            }
        }
        Ok(names)
    }
}

/// The error with what caused it, for a reason that is one string.
pub(crate) fn with_source(error: &Error) -> String {
    error.with_source()
}
