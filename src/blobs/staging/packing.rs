//! Packs that an operation is about to add: which small blobs go into one, and how it becomes durable.

use std::collections::HashMap;
use std::io;
use std::thread::JoinHandle;

use crate::blobs::pack::{self, PackWriter};
use crate::blobs::staging::{Frame, NewTemp, Published};
use crate::disk::Dir;
use crate::error::{IoContext, Result};
use crate::hash::BlobHash;
use crate::id::PackId;

/// What goes into packs. Locked before the list of temporaries where both are.
#[derive(Debug, Default)]
pub(super) struct ForPacks {
    pub(super) gathering: Gathering,
    pub(super) open: Option<OpenPack>,
    /// Whole, and all but the last durable.
    pub(super) finished: Vec<NewTemp>,
    /// Makes the last of them durable, beside the writing of the next.
    pub(super) syncing: Option<JoinHandle<io::Result<()>>>,
    /// What is in any of them, with its stored length.
    pub(super) blobs: HashMap<BlobHash, u32>,
}

/// What becomes of small blobs.
#[derive(Debug, Default)]
pub(super) enum Gathering {
    /// Each gets a file of its own.
    #[default]
    Off,
    /// They wait until it is known whether they are enough for a pack.
    Waiting(Vec<Frame<'static>>),
    /// They go into packs.
    IntoPack,
}

/// The pack that is being written.
#[derive(Debug)]
pub(super) struct OpenPack {
    pub(super) temp: NewTemp,
    pub(super) writer: PackWriter,
}

impl ForPacks {
    pub(super) fn holds(&self, hash: BlobHash) -> bool {
        let is_waiting = match &self.gathering {
            Gathering::Waiting(waiting) => waiting.iter().any(|frame| frame.hash == hash),
            Gathering::Off | Gathering::IntoPack => false,
        };
        is_waiting || self.blobs.contains_key(&hash)
    }

    /// Writes the trailer of a pack and begins to make it durable.
    pub(super) fn finish(&mut self, open: OpenPack) -> Result<()> {
        // One at a time: a disk that is slower than the compression holds it back.
        self.wait()?;
        let temp = open.finish()?;
        let path = temp.dir.path_of(temp.name.as_bytes());
        let file = temp.file.try_clone().at("sync", &path)?;
        let sync = std::thread::Builder::new().name("turnpoint-sync".to_owned());
        match sync.spawn(move || file.sync_all()) {
            Ok(syncing) => self.syncing = Some(syncing),
            // Where the system gives no thread, this one does the work.
            Err(_) => temp.file.sync_all().at("sync", &path)?,
        }
        self.finished.push(temp);
        Ok(())
    }

    /// Waits until all finished packs are durable.
    pub(super) fn wait(&mut self) -> Result<()> {
        let Some(syncing) = self.syncing.take() else { return Ok(()) };
        let ended = |_| Err(io::Error::other("the thread that did it has ended"));
        let synced = syncing.join().unwrap_or_else(ended);
        let path = self.finished.last().map(|temp| temp.dir.path_of(temp.name.as_bytes()));
        synced.at("sync", path.unwrap_or_default())
    }
}

impl OpenPack {
    pub(super) fn new(temp: NewTemp) -> Result<Self> {
        let path = temp.dir.path_of(temp.name.as_bytes());
        let file = temp.file.try_clone().at("write", &path)?;
        Ok(Self { temp, writer: PackWriter::new(file, path) })
    }

    /// Writes its trailer.
    fn finish(self) -> Result<NewTemp> {
        self.writer.finish()?;
        Ok(self.temp)
    }
}

/// Gives durable packs their names. All of them are new, so nothing is ever replaced.
pub(super) fn publish_packs(
    packing: &mut ForPacks,
    to: &Dir,
    published: &mut Published,
) -> Result<()> {
    for mut temp in packing.finished.drain(..) {
        let place = pack::file_name(PackId::random());
        temp.dir.rename_to(temp.name.as_bytes(), to, place.as_bytes())?;
        temp.name.clear();
    }
    let sizes = packing.blobs.drain().map(|(hash, length)| (hash, u64::from(length)));
    let before = published.sizes.len();
    published.sizes.extend(sizes);
    published.count += (published.sizes.len() - before) as u64;
    published.stored_bytes += published.sizes[before..].iter().map(|(_, size)| size).sum::<u64>();
    Ok(())
}
