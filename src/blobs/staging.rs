//! Adding blobs: written and checked as temporaries, then published together.

mod packing;

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, Read, Write};
use std::mem;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::io::Errno;

use crate::blobs::staging::packing::{ForPacks, Gathering, OpenPack, publish_packs};
use crate::blobs::{Blobs, Presence, Survey, frame, is_errno, shard_name, shard_of};
use crate::disk::{self, Dir, Placed, ToSync, check_size, sync_all, write_whole};
use crate::error::{IoContext, Result};
use crate::hash::{BlobHash, BlobHasher, Hashed};
use crate::id::OperationId;
use crate::limits;
use crate::manifest::Mode;
use crate::path::RelPath;

/// How much of a source is read at one time.
const PIECE_BYTES: usize = 128 * 1024;

/// Names of temporaries are unique in the process, and the directory is the operation's own.
static NEXT_TEMP: AtomicU64 = AtomicU64::new(0);

/// Blobs that an operation is about to add. None is in the store before [`Staging::publish`]; what
/// was not published is removed when this is dropped. An operation may have several, one after
/// another or at the same time.
#[derive(Debug)]
pub(crate) struct Staging<'a> {
    blobs: &'a Blobs,
    operation: OperationId,
    /// Opened before the first write: a sync of the whole file system reports the errors since then.
    sync_on: Dir,
    state: Mutex<State>,
    packing: Mutex<ForPacks>,
    /// What was in the store when it was decided to write packs; what is put goes into packs since.
    survey: OnceLock<Survey>,
}

#[derive(Debug, Default)]
struct State {
    /// `tmp/<operation id>/`, made when first needed.
    dir: Option<Arc<Dir>>,
    temps: HashMap<BlobHash, Temp>,
    /// Fan-out directories of blobs that were there already and must be durable too.
    reused: BTreeSet<u8>,
    /// Whether one of these lies in a pack, whose name must be durable then.
    reuses_packs: bool,
}

/// A blob, compressed.
#[derive(Debug)]
struct Frame<'a> {
    hash: BlobHash,
    /// Of its content.
    size: u64,
    bytes: Cow<'a, [u8]>,
}

impl Frame<'_> {
    fn into_owned(self) -> Frame<'static> {
        Frame { hash: self.hash, size: self.size, bytes: self.bytes.into_owned().into() }
    }
}

/// A file under `tmp/`, whole and checked, not yet durable.
#[derive(Debug)]
struct Temp {
    name: String,
    size: u64,
    stored_size: u64,
    /// Kept while few enough to be synced one by one: a file that is closed and opened again may
    /// have lost the error of a failed write-back.
    file: Option<File>,
}

/// How [`Staging::put_stream`] ended.
#[derive(Debug)]
#[must_use]
pub(crate) enum PutOutcome {
    /// The content is staged under this hash.
    Put(BlobHash),
    /// The source has fewer bytes than expected: it was cut since its size was asked.
    TooShort,
    /// The source could not be read.
    Unreadable(io::Error),
}

/// What [`Staging::publish`] did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Published {
    /// How many blobs were added; not those that another process had added meanwhile.
    pub(crate) count: u64,
    /// The bytes of the files that were added.
    pub(crate) stored_bytes: u64,
    /// The length of each staged blob's file as it is now in the store, sorted by hash.
    pub(crate) sizes: Vec<(BlobHash, u64)>,
}

impl<'a> Staging<'a> {
    pub(super) fn new(blobs: &'a Blobs, operation: OperationId) -> Result<Self> {
        let sync_on = blobs.dir.open_dir(&RelPath::root())?;
        Ok(Self {
            blobs,
            operation,
            sync_on,
            state: Mutex::default(),
            packing: Mutex::default(),
            survey: OnceLock::new(),
        })
    }

    /// Stages `content`. May be called from many threads, also twice for one hash.
    ///
    /// # Errors
    /// [`crate::Error::Io`].
    pub(crate) fn put<T: AsRef<[u8]>>(&self, content: &Hashed<T>) -> Result<()> {
        self.put_by(content, |frame| self.gather(frame))
    }

    /// As [`Staging::put`], in a file of its own as long as not everything goes into packs: what is wrong
    /// in the place of a loose blob is replaced only so.
    pub(crate) fn put_anew<T: AsRef<[u8]>>(&self, content: &Hashed<T>) -> Result<()> {
        self.put_by(content, |frame| self.put_frame(&frame))
    }

    fn put_by<T: AsRef<[u8]>>(
        &self,
        content: &Hashed<T>,
        stage: impl FnOnce(Frame<'_>) -> Result<()>,
    ) -> Result<()> {
        let (hash, content) = (content.hash(), content.content());
        if self.is_staged(hash) {
            return Ok(());
        }
        let put = |bytes: &[u8]| {
            if self.survey.get().is_some() {
                return self.put_in_pack(hash, bytes);
            }
            stage(Frame { hash, size: content.len() as u64, bytes: bytes.into() })
        };
        frame::compress(content, put).at("compress", self.blobs.tmp.path())?
    }

    /// From now on small blobs go into one pack if they are enough, for those who put some tens: a file
    /// for each costs a call that makes it durable and half an empty block.
    pub(crate) fn gather_small(&self) {
        let mut packing = self.packing();
        if matches!(packing.gathering, Gathering::Off) {
            packing.gathering = Gathering::Waiting(Vec::new());
        }
    }

    fn gather(&self, frame: Frame<'_>) -> Result<()> {
        let rules = self.blobs.packing;
        let is_small = frame.bytes.len() as u64 <= limits::CONSOLIDATED_BYTES_MAX;
        let mut packing = self.packing();
        let waiting = match &mut packing.gathering {
            Gathering::IntoPack if is_small => {
                return self.put_in(&mut packing, frame.hash, &frame.bytes);
            }
            Gathering::Waiting(waiting) if is_small => waiting,
            _ => {
                drop(packing);
                return self.put_frame(&frame);
            }
        };
        // Two threads may have compressed the same content at the same time.
        if waiting.iter().all(|other| other.hash != frame.hash) {
            waiting.push(frame.into_owned());
        }
        if waiting.len() < rules.gather_from {
            return Ok(());
        }
        let are_crowded = self.blobs.packs.remembered()?.are_crowded(rules);
        let waiting = mem::take(waiting);
        if are_crowded {
            packing.gathering = Gathering::Off;
            drop(packing);
            return waiting.iter().try_for_each(|frame| self.put_frame(frame));
        }
        packing.gathering = Gathering::IntoPack;
        let mut waiting = waiting.iter();
        waiting.try_for_each(|frame| self.put_in(&mut packing, frame.hash, &frame.bytes))
    }

    /// Stages a frame as a file of its own.
    fn put_frame(&self, frame: &Frame<'_>) -> Result<()> {
        let mut temp = self.create_temp(frame.size)?;
        write_whole(&mut temp.file, &frame.bytes, &temp.dir.path_of(temp.name.as_bytes()))?;
        self.keep(frame.hash, temp, frame.bytes.len() as u64);
        Ok(())
    }

    /// From now on what is put goes into packs, many to a file: for those who put thousands. What comes
    /// as a stream does not. The caller has pinned everything before, so that what is in the store now
    /// stays.
    pub(crate) fn use_packs(&self) -> Result<()> {
        let survey = self.blobs.survey()?;
        // Another thread's is as good.
        drop(self.survey.set(survey));
        Ok(())
    }

    /// Whether it is known, without a look, that the store did not have the content.
    pub(crate) fn is_known_absent(&self, hash: BlobHash) -> bool {
        self.survey.get().is_some_and(|survey| survey.lacks(hash))
    }

    /// Stages a frame as it is, in a pack. The caller has made sure that its content has this hash.
    pub(crate) fn put_in_pack(&self, hash: BlobHash, frame: &[u8]) -> Result<()> {
        self.put_in(&mut self.packing(), hash, frame)
    }

    fn put_in(&self, packing: &mut ForPacks, hash: BlobHash, frame: &[u8]) -> Result<()> {
        // Two threads may have compressed the same content at the same time.
        if packing.blobs.contains_key(&hash) {
            return Ok(());
        }
        let bytes_max = self.blobs.packing.pack_bytes_max;
        let is_full = |open: &mut OpenPack| open.writer.is_full_for(frame.len(), bytes_max);
        if let Some(full) = packing.open.take_if(is_full) {
            packing.finish(full)?;
        }
        let mut open = match packing.open.take() {
            Some(open) => open,
            None => OpenPack::new(self.create_temp(0)?)?,
        };
        let added = open.writer.add(hash, frame);
        // After a failed write as well: the length of the file is compared at the end.
        packing.open = Some(open);
        packing.blobs.insert(hash, added?);
        Ok(())
    }

    /// Stages the next `size` bytes of `source`, in pieces, and says which hash they have.
    ///
    /// The caller pins that hash before it publishes: what it names is then protected, and publishing
    /// itself finds out whether the store has it.
    ///
    /// # Errors
    /// [`crate::Error::Io`] of the store; what is wrong with the source is an outcome.
    pub(crate) fn put_stream(&self, size: u64, source: &mut dyn Read) -> Result<PutOutcome> {
        let mut temp = self.create_temp(size)?;
        let path = temp.dir.path_of(temp.name.as_bytes());
        match compress_from(&mut temp.file, &path, size, source)? {
            Compressed::Done { hash, stored_size } => {
                check_size(&temp.file, stored_size, &path)?;
                self.keep(hash, temp, stored_size);
                Ok(PutOutcome::Put(hash))
            }
            Compressed::TooShort => Ok(PutOutcome::TooShort),
            Compressed::Unreadable(error) => Ok(PutOutcome::Unreadable(error)),
        }
    }

    /// Says that the caller is going to name a blob that it found in the store and did not put.
    ///
    /// Another process may have published it a moment ago and not yet made its name durable; a
    /// checkpoint that names it would then outlive it in a power cut. [`Staging::publish`] makes the
    /// names of these blobs durable too. (Their content is: no blob is published before that.)
    pub(crate) fn reuse(&self, hash: BlobHash) {
        let packs = self.blobs.packs.remembered();
        // Where that cannot be told it may be.
        let is_packed = packs.is_ok_and(|packs| packs.holds(hash).unwrap_or(true));
        let has_own_file = !is_packed || self.blobs.has_own_file(hash);
        let mut state = self.state();
        if has_own_file {
            state.reused.insert(shard_of(hash));
        }
        state.reuses_packs |= is_packed;
    }

    /// Gives every staged blob its name in the store.
    ///
    /// # Errors
    /// [`crate::Error::Io`]. If the content cannot be made durable nothing is published. If a later step
    /// fails some blobs may be: whole, checked, and named by nobody.
    ///
    /// # Durability
    /// Barrier 1: the content of all temporaries; that of packs began when each was full. Then the renames. Barrier 2: the names. When this
    /// returns, all staged blobs survive a power cut.
    ///
    /// # Concurrency
    /// A name that was taken meanwhile is never trusted: the other's blob is read and compared, kept
    /// if it is good and replaced if it is not.
    pub(crate) fn publish(self) -> Result<Published> {
        let mut published = Published::default();
        let mut packing = mem::take(&mut *self.packing());
        if let Gathering::Waiting(few) = mem::take(&mut packing.gathering) {
            few.iter().try_for_each(|frame| self.put_frame(frame))?;
        }
        if let Some(open) = packing.open.take() {
            packing.finish(open)?;
        }
        let (tmp, mut hashes) = {
            let state = self.state();
            (state.dir.clone(), state.temps.keys().copied().collect::<Vec<_>>())
        };
        let mut touched = mem::take(&mut self.state().reused);
        let needs_packs = !packing.finished.is_empty() || self.state().reuses_packs;
        let packs = needs_packs.then(|| self.blobs.packs.dir()).transpose()?;
        if let Some(tmp) = tmp {
            self.sync_temps(&tmp)?;
            // Beside these.
            packing.wait()?;
            if let Some(packs) = &packs {
                publish_packs(&mut packing, packs, &mut published)?;
            }
            hashes.sort_unstable();
            for of_one_shard in hashes.chunk_by(|left, right| shard_of(*left) == shard_of(*right)) {
                let shard = shard_of(of_one_shard[0]);
                let shard_dir = self.blobs.open_shard(shard)?;
                touched.insert(shard);
                for &hash in of_one_shard {
                    self.place(&tmp, &shard_dir, hash, &mut published)?;
                }
            }
        }
        let names: Vec<[u8; 2]> = touched.into_iter().map(shard_name).collect();
        let shards = names.iter().map(|name| ToSync::Named(&self.blobs.dir, name));
        let items: Vec<_> = shards.chain(packs.iter().map(ToSync::Directory)).collect();
        sync_all(&self.sync_on, &items)?;
        published.sizes.sort_unstable();
        Ok(published)
    }

    fn sync_temps(&self, tmp: &Dir) -> Result<()> {
        let state = self.state();
        let items: Vec<_> = state
            .temps
            .values()
            .map(|temp| match &temp.file {
                Some(file) => ToSync::Open(file, tmp, temp.name.as_bytes()),
                None => ToSync::Named(tmp, temp.name.as_bytes()),
            })
            .collect();
        sync_all(&self.sync_on, &items)
    }

    /// Moves one durable temporary to its place. It leaves the list only when it has left `tmp`.
    fn place(
        &self,
        tmp: &Dir,
        shard: &Dir,
        hash: BlobHash,
        published: &mut Published,
    ) -> Result<()> {
        let mut state = self.state();
        let Some(temp) = state.temps.get(&hash) else { return Ok(()) };
        let (name, place) = (temp.name.as_bytes(), hash.to_string());
        let mut added = true;
        let mut stored_size = temp.stored_size;
        if tmp.rename_no_replace(name, shard, place.as_bytes())? == Placed::Taken {
            // One that cannot be read is replaced like one that is wrong: ours is neither.
            if let Ok(Presence::Present { stored_size: theirs }) =
                self.blobs.check_loose(hash, Some(temp.size))
            {
                tmp.unlink(name)?;
                added = false;
                stored_size = theirs;
            } else {
                replace(tmp, name, shard, &place)?;
            }
        }
        state.temps.remove(&hash);
        published.sizes.push((hash, stored_size));
        if added {
            published.count += 1;
            published.stored_bytes += stored_size;
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // What a panicking thread left is a list of whole temporaries all the same.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn packing(&self) -> MutexGuard<'_, ForPacks> {
        // A frame of which only a part was written shows in the length of the file.
        self.packing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether content of this hash is going to be published.
    pub(crate) fn is_staged(&self, hash: BlobHash) -> bool {
        self.packing().holds(hash) || self.state().temps.contains_key(&hash)
    }

    /// Two threads may have written the same content at the same time: the second one's is dropped.
    fn keep(&self, hash: BlobHash, mut temp: NewTemp, stored_size: u64) {
        let mut state = self.state();
        if state.temps.contains_key(&hash) {
            return;
        }
        if state.temps.len() == limits::SYNC_EACH_MAX {
            for temp in state.temps.values_mut() {
                temp.file = None;
            }
        }
        let few = state.temps.len() < limits::SYNC_EACH_MAX;
        let file = few.then(|| temp.file.try_clone().ok()).flatten();
        let name = mem::take(&mut temp.name);
        state.temps.insert(hash, Temp { name, size: temp.size, stored_size, file });
    }

    fn create_temp(&self, size: u64) -> Result<NewTemp> {
        loop {
            let dir = self.dir()?;
            let name = NEXT_TEMP.fetch_add(1, Ordering::Relaxed).to_string();
            match dir.create_file(name.as_bytes()) {
                Ok(file) => return Ok(NewTemp { dir, name, size, file }),
                Err(error) if is_errno(&error, Errno::EXIST) => {}
                // Another staging of this operation has ended and found the directory empty.
                Err(error) if is_errno(&error, Errno::NOENT) => self.forget_dir(&dir),
                Err(error) => return Err(error),
            }
        }
    }

    fn dir(&self) -> Result<Arc<Dir>> {
        let mut state = self.state();
        if let Some(dir) = &state.dir {
            return Ok(Arc::clone(dir));
        }
        let name = self.operation.to_string();
        let tmp = &self.blobs.tmp;
        let dir = loop {
            match tmp.make_dir(name.as_bytes(), Mode::from_st_mode(0o700)) {
                Err(error) if !is_errno(&error, Errno::EXIST) => return Err(error),
                _ => {}
            }
            match tmp.open_child(name.as_bytes()) {
                Err(error) if is_errno(&error, Errno::NOENT) => {}
                other => break Arc::new(other?),
            }
        };
        state.dir = Some(Arc::clone(&dir));
        Ok(dir)
    }

    fn forget_dir(&self, gone: &Arc<Dir>) {
        let mut state = self.state();
        if state.dir.as_ref().is_some_and(|dir| Arc::ptr_eq(dir, gone)) {
            state.dir = None;
        }
    }
}

impl Drop for Staging<'_> {
    fn drop(&mut self) {
        // The temporaries of packs remove themselves.
        *self.packing() = ForPacks::default();
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let Some(dir) = state.dir.take() else { return };
        // What cannot be removed now is in the operation's directory, and goes with it when the
        // operation is reaped.
        for temp in mem::take(&mut state.temps).into_values() {
            drop(dir.try_unlink(temp.name.as_bytes()));
        }
        drop(self.blobs.tmp.remove_dir(self.operation.to_string().as_bytes()));
    }
}

/// A temporary that is being written; removed when dropped, unless its name was taken from it.
#[derive(Debug)]
struct NewTemp {
    dir: Arc<Dir>,
    name: String,
    size: u64,
    file: File,
}

impl Drop for NewTemp {
    fn drop(&mut self) {
        if !self.name.is_empty() {
            drop(self.dir.try_unlink(self.name.as_bytes()));
        }
    }
}

/// Puts a checked temporary in the place of something that is not the blob. A directory, which a file
/// cannot replace, is kept beside it under a name that is no blob's.
fn replace(tmp: &Dir, name: &[u8], shard: &Dir, place: &str) -> Result<()> {
    let renamed = tmp.rename_to(name, shard, place.as_bytes());
    if let Err(error) = &renamed
        && [Errno::ISDIR, Errno::NOTEMPTY, Errno::EXIST].into_iter().any(|no| is_errno(error, no))
    {
        disk::set_aside(shard, place.as_bytes(), shard)?;
        return tmp.rename_to(name, shard, place.as_bytes());
    }
    renamed
}

enum Compressed {
    Done { hash: BlobHash, stored_size: u64 },
    TooShort,
    Unreadable(io::Error),
}

fn compress_from(
    file: &mut dyn Write,
    path: &Path,
    size: u64,
    source: &mut dyn Read,
) -> Result<Compressed> {
    let mut encoder = frame::Encoder::begin(size).at("compress", path)?;
    let mut hasher = BlobHasher::default();
    let mut piece = vec![0; PIECE_BYTES];
    let mut left = size;
    while left > 0 {
        let most = usize::try_from(left).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
        let filled = match source.read(&mut piece[..most]) {
            Ok(0) => break,
            Ok(filled) => filled,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Ok(Compressed::Unreadable(error)),
        };
        left -= filled as u64;
        hasher.update(&piece[..filled]);
        encoder.push(&piece[..filled], file).at("write", path)?;
    }
    if left > 0 {
        return Ok(Compressed::TooShort);
    }
    let stored_size = encoder.finish(file).at("write", path)?;
    Ok(Compressed::Done { hash: hasher.finish(), stored_size })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blobs::pack::PackWriter;
    use crate::error::Error;

    #[test]
    fn nothing_is_published_if_the_content_cannot_be_made_durable() {
        let place = tempfile::tempdir().unwrap();
        let blobs = Blobs::create(place.path()).unwrap();
        let staging = blobs.stage(OperationId::random()).unwrap();
        let contents = [b"one", b"two", b"six"];
        for content in contents {
            staging.put(&Hashed::new(content)).unwrap();
        }
        // A file whose sync the kernel refuses, in the place of one of the three.
        let refusing = File::open("/proc/self/status").unwrap();
        assert!(refusing.sync_all().is_err());
        staging.state().temps.values_mut().next().unwrap().file = Some(refusing);
        assert!(matches!(staging.publish().unwrap_err(), Error::Io { verb: "sync", .. }));
        for content in contents {
            assert_eq!(blobs.look(BlobHash::of(content), 3, None).unwrap(), Presence::Absent);
        }
        assert_eq!(blobs.tmp.names().unwrap(), Vec::<Vec<u8>>::new());
    }

    /// A pack that is being written, whose disk is full.
    fn put_on_a_full_disk(staging: &Staging<'_>) {
        let temp = staging.create_temp(0).unwrap();
        let full = File::options().write(true).open("/dev/full").unwrap();
        let writer = PackWriter::new(full, "full".into());
        staging.packing().open = Some(OpenPack { temp, writer });
    }

    #[test]
    fn nothing_is_published_if_a_pack_cannot_be_written_or_made_durable() {
        let place = tempfile::tempdir().unwrap();
        let blobs = Blobs::create(place.path()).unwrap();
        let large = vec![7; 2 * limits::PACK_BUFFER_BYTES];
        let (small, before) = (Hashed::new(&b"small"[..]), Hashed::new(&b"before"[..]));
        let stage = || {
            let staging = blobs.stage(OperationId::random()).unwrap();
            staging.put(&before).unwrap();
            staging.use_packs().unwrap();
            staging
        };
        let is_absent = |what: &str| {
            for hash in [small.hash(), before.hash(), BlobHash::of(&large)] {
                assert_eq!(blobs.check(hash, None).unwrap(), Presence::Absent, "{what}");
            }
            assert_eq!(blobs.tmp.names().unwrap(), Vec::<Vec<u8>>::new(), "{what}");
            assert_eq!(blobs.packs.dir().unwrap().names().unwrap(), Vec::<Vec<u8>>::new());
        };

        let staging = stage();
        put_on_a_full_disk(&staging);
        staging.put(&small).unwrap();
        assert!(matches!(staging.publish().unwrap_err(), Error::Io { verb: "write", .. }));
        is_absent("the trailer did not fit");

        let staging = stage();
        put_on_a_full_disk(&staging);
        assert!(staging.put_in_pack(BlobHash::of(&large), &large).is_err());
        assert!(!staging.is_staged(BlobHash::of(&large)));
        assert!(staging.publish().is_err(), "after a failed write nothing is whole");
        is_absent("a frame did not fit");

        // A pack that was finished before the one that is open now.
        let staging = stage();
        staging.put(&small).unwrap();
        let mut packing = mem::take(&mut *staging.packing());
        let open = packing.open.take().unwrap();
        packing.finish(open).unwrap();
        packing.wait().unwrap();
        let failing = || Err(io::Error::from(Errno::IO));
        packing.syncing = Some(std::thread::spawn(failing));
        *staging.packing() = packing;
        assert!(matches!(staging.publish().unwrap_err(), Error::Io { verb: "sync", .. }));
        is_absent("a sync failed");

        let staging = stage();
        staging.put(&small).unwrap();
        drop(staging);
        is_absent("dropped");
    }

    #[test]
    fn files_stay_open_only_while_they_are_synced_one_by_one() {
        let place = tempfile::tempdir().unwrap();
        let blobs = Blobs::create(place.path()).unwrap();
        let staging = blobs.stage(OperationId::random()).unwrap();
        let open = || staging.state().temps.values().filter(|temp| temp.file.is_some()).count();
        for number in 1..=limits::SYNC_EACH_MAX + 1 {
            let content = number.to_string().into_bytes();
            staging.put(&Hashed::new(&content)).unwrap();
            assert_eq!(open(), if number <= limits::SYNC_EACH_MAX { number } else { 0 });
        }
        assert_eq!(staging.publish().unwrap().count, limits::SYNC_EACH_MAX as u64 + 1);
    }
}
