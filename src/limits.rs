//! Every bound in one place, with its unit and the reason for its value.

use std::time::Duration;

/// The longest path, in bytes. Linux has no limit for a path reached step by step; 128 components of
/// 255 bytes is far beyond what people make and keeps a page's size in hand.
pub const PATH_BYTES_MAX: usize = 32 * 1024;

/// A directory this many levels below the root is observed and not entered.
pub const DEPTH_MAX: usize = 1_000;

/// A boundary falls before a path whose cut hash is a multiple of this. With the two bounds below a
/// page holds 45 entries on average. Part of the format; `docs/adr/0003-page-size.md` has the
/// figures.
pub const PAGE_ENTRIES_TARGET: u64 = 32;

/// A page but the last holds at least this many entries, which bounds the levels for paths made so
/// that every one is a boundary. Part of the format.
pub const PAGE_ENTRIES_MIN: usize = 16;

/// A page never holds more entries than this, whatever the cut hashes say: an edit rewrites the page
/// it falls in, and without this bound it most often falls in a long one. One page in twelve ends
/// here. Part of the format.
pub const PAGE_ENTRIES_MAX: usize = 96;

/// The highest level a page can have: a root of level 8 would stand over 16^8 entries at the least.
pub const PAGE_LEVEL_MAX: u8 = 8;

/// A page's text is never longer than this: [`PAGE_ENTRIES_MAX`] entries with the longest path and
/// target, escaped.
pub const PAGE_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// A manifest's text is never longer than this.
pub const MANIFEST_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// A plan that is kept in a file is never longer than this: half a million changes.
pub const PLAN_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// A small JSON file of the store (pin, session, workspace) is never longer than this.
pub const SMALL_FILE_BYTES_MAX: u64 = 1024 * 1024;

/// How many checkpoints of a session a shell offers at most: a manifest is read for each, while somebody
/// waits.
pub const OFFERED_MAX: usize = 100;

/// Content of a file above this is not held, by default: 8 MiB.
pub const FILE_BYTES_DEFAULT: u64 = 8 * 1024 * 1024;

/// A file up to this size is read into memory whole; a larger one is read in pieces.
pub const FILE_IN_MEMORY_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Files above this are named by a comparison, and not compared line by line: two of them, and what is
/// known of their lines, are in memory at one time.
pub const COMPARED_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// A file above this is not merged: three of it, and what is known of their lines, are in memory at one
/// time.
pub const MERGED_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// The frames of a pack are never longer than this together, unless it has one alone; the trailer comes
/// on top. What writes a pack anew needs as much free room, one at a time.
pub const PACK_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// A pack never holds more blobs than this: its trailer is read into memory by a collection.
pub const PACK_FRAMES_MAX: u32 = 1 << 16;

/// How many packs one look at the store keeps open at a time; it opens the others whenever it reads in them. A process
/// may often have no more than 256 files open, and has others.
pub const PACKS_OPEN_MAX: usize = 64;

/// More packs than this that are shorter than an eighth of [`PACK_BYTES_MAX`] are merged.
pub const SMALL_PACKS_MAX: usize = 8;

/// A blob up to this size as stored is worth a place in a pack, by a capture and by a collection: a file
/// takes whole blocks of 4 KiB, and a call that makes it durable.
pub const CONSOLIDATED_BYTES_MAX: u64 = 1024 * 1024;

/// From this many small blobs on a capture of few files writes one pack instead: the trailer of a pack is
/// as long as half a block.
pub const GATHER_FROM: usize = 8;

/// Where there are this many small packs a capture of few files adds none, and a collection is due: every
/// pack is open, and asked, when a blob is looked for.
pub const SMALL_PACKS_CROWDED: usize = 64;

/// From this many such loose blobs on it is worth it.
pub const CONSOLIDATE_FROM: usize = 64;

/// How much of a pack is collected before it is written.
pub const PACK_BUFFER_BYTES: usize = 1024 * 1024;

/// How much file content a capture or restore holds in memory at one time, over all threads.
pub const CONTENT_IN_MEMORY_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// How many hashes are pinned in one transaction.
pub const PIN_BATCH: usize = 256;

/// Above this many files to read one pin protects all of a capture's content at once, and it goes into
/// packs.
pub const PIN_ALL_ABOVE_FILES: usize = 1_000;

/// How often a capture begins anew because it found more of its base lost than it knew of.
pub const CAPTURE_ATTEMPTS_MAX: u32 = 3;

/// How often a capture looks at the tree because a file was gone when it was to be read. If one is gone the
/// last time too, the checkpoint is not complete.
pub const VANISHED_LOOKS_MAX: u32 = 4;

/// Before the work tree of a run is removed it is captured until nothing new is found, this often at most.
pub const REMOVAL_LOOKS_MAX: u32 = 5;

/// A lock of a ref that was not touched for so long, while no git is at work, was left by a killed one.
pub const REF_LOCK_DEAD_AFTER: Duration = Duration::from_secs(10);

/// A process that is in a work tree is given this time to leave before the removal is refused.
pub const LEAVING_WAIT_MAX: Duration = Duration::from_secs(2);

/// How often a file that changes under the reader is read again before it is kept as unstable.
pub const UNSTABLE_READS_MAX: u32 = 3;

/// How many names without content a directory lists; the rest is one entry.
pub const OMITTED_LISTED_MAX: usize = 1_000;

/// How many checkpoints of a session are kept, and how many of its safety checkpoints.
pub const KEEP_DEFAULT: u32 = 20;

/// How long after the last sweep a capture makes another, unless it was said otherwise.
pub const SWEEP_EVERY_DEFAULT: Duration = Duration::from_hours(24);

/// A safety checkpoint younger than this is never pruned.
pub const SAFETY_KEEP: Duration = Duration::from_hours(24);

/// The least time between a blob's writing, or its last loss of a reference, and its removal.
pub const GRACE: Duration = Duration::from_mins(1);

/// How many blobs a sweep removes in one transaction.
pub const SWEEP_BATCH: usize = 64;

/// How long an operation waits for the lock of a workspace, and a sweep for the other sweep.
pub const LOCK_WAIT_MAX: Duration = Duration::from_mins(1);

/// A wait longer than this is told.
pub const LOCK_WAIT_TOLD_AFTER: Duration = Duration::from_secs(1);

/// How often, and with which pause, a sweep looks whether a living process whose operation has no row
/// in the index gets one. From its lease to its row it is a moment.
pub const REGISTERING_LOOKS_MAX: u32 = 200;
/// See [`REGISTERING_LOOKS_MAX`].
pub const REGISTERING_PAUSE: Duration = Duration::from_millis(10);

/// How long SQLite waits for another writer.
pub const SQLITE_BUSY: Duration = Duration::from_secs(30);
/// How long one who waits for another writer of the index sleeps before it looks again: the first second so
/// long, and then ten times as long.
///
/// SQLite's own pauses grow to a tenth of a second, many times what a transaction takes: of ten captures at
/// once some would sleep while nobody writes.
pub const SQLITE_BUSY_PAUSE: Duration = Duration::from_millis(2);
/// How often the shorter pause is made.
pub const SQLITE_BUSY_SHORT_PAUSES: u32 = 500;

/// How much of the index SQLite holds in memory, for each connection. A first capture of 100,000 files
/// changes about 25 MiB in one transaction; what does not fit is written twice.
pub const SQLITE_CACHE_KIB: u32 = 64 * 1024;

/// The WAL is cut back to this when it starts over: a large transaction makes it longer for a while.
pub const SQLITE_WAL_KEPT_BYTES: u64 = 4 * 1024 * 1024;

/// How many pages of 4 KiB the WAL of the index has when it is copied back: every process that opens
/// an index nobody else has open reads the WAL once.
pub const SQLITE_WAL_PAGES: u32 = 100;

/// Fewer free bytes of the index than this are left to be used again.
pub const INDEX_GIVEN_BACK_BYTES_MIN: u64 = 1024 * 1024;

/// An index of which more than this stays is not written anew to give back its free pages: SQLite holds
/// the copy in memory.
pub const INDEX_COPIED_BYTES_MAX: u64 = 128 * 1024 * 1024;

/// How many prepared statements a connection keeps.
pub const SQLITE_STATEMENTS_CACHED: usize = 64;

/// How many connections read the index beside the writer, in a process that asked for them.
pub const SQLITE_READERS_MAX: u32 = 4;

/// How long a read waits for one of these connections.
pub const SQLITE_READER_WAIT: Duration = Duration::from_secs(5);

/// How long a query may take, unless it was said otherwise: the heaviest view answers on 20 checkpoints
/// of 100,000 files in about a second. An open query keeps the WAL from being started over.
pub const QUERY_TIME_DEFAULT: Duration = Duration::from_secs(30);

/// The text of a query is never longer than this.
pub const QUERY_BYTES_MAX: usize = 1024 * 1024;

/// A value of an answer, or of what leads to it, is never longer than this: one call of a function over
/// two such values cannot be stopped, and must end by itself.
pub const QUERY_VALUE_BYTES_MAX: usize = 256 * 1024;

/// A pattern of LIKE or GLOB is never longer than this, for the same reason.
pub const QUERY_PATTERN_BYTES_MAX: usize = 1_000;

/// An answer, and what leads to it, never has more columns than this.
pub const QUERY_COLUMNS_MAX: usize = 200;

/// A query is never compiled into more instructions than this; those of the views are some hundreds.
pub const QUERY_INSTRUCTIONS_MAX: usize = 250_000;

/// After how many instructions a query looks whether it is to stop: a fraction of a millisecond.
pub const QUERY_STEP_INSTRUCTIONS: u16 = 10_000;

/// How often it is asked whether a query is to stop.
pub const QUERY_CANCEL_POLL: Duration = Duration::from_millis(20);

/// The values of an answer that is collected are never longer than this together.
pub const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// How long a run of git may take before it is killed.
pub const GIT_DEADLINE: Duration = Duration::from_mins(1);

/// How much a run of git may print: the index of a repository of some ten million files.
pub const GIT_OUTPUT_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// How much of what git says on stderr is kept.
pub const GIT_COMPLAINT_BYTES_MAX: u64 = 64 * 1024;

/// An ignore file longer than this is not obeyed, and that is told.
pub const IGNORE_FILE_BYTES_MAX: u64 = 1024 * 1024;

/// A settings file longer than this is not obeyed.
pub const CONFIGURATION_BYTES_MAX: u64 = 64 * 1024;

/// How many patterns one place may add to a setting: each name of a walk is compared with them.
pub const PATTERNS_MAX: usize = 256;

/// How many paths one place may have brought along into the work tree of a run.
pub const EXTRAS_MAX: usize = 64;

/// More files than this are not copied into the work tree of a run: about what the dependencies of a very
/// large project have, and a minute.
pub const EXTRA_FILES_MAX: u64 = 500_000;

/// More bytes than this are not copied into the work tree of a run.
pub const EXTRA_BYTES_MAX: u64 = 16 << 30;

/// Directories that lie in one another deeper than this are not copied: each is open while what is in it is
/// copied.
pub const EXTRA_DEPTH_MAX: usize = 128;

/// A pattern of a setting is never longer than this: a directory's name, a slash and a name.
pub const PATTERN_BYTES_MAX: usize = 512;

/// How many repositories inside a workspace are asked which paths they track.
pub const NESTED_REPOSITORIES_MAX: usize = 64;

/// How many threads walk, hash and write at most.
pub const THREADS_MAX: usize = 8;

/// A modification stamp younger than this, seen from the start of the capture that took it, may hide
/// a later change in the same tick. For file systems whose granularity is known to be a few
/// milliseconds.
pub const STAMP_GRANULARITY_KNOWN: Duration = Duration::from_millis(100);

/// The same where the granularity is not known; FAT keeps two seconds.
pub const STAMP_GRANULARITY_UNKNOWN: Duration = Duration::from_secs(2);

/// A session's name is never longer than this many bytes.
pub const SESSION_NAME_BYTES_MAX: usize = 128;

/// How much of the end of the log of operations is read.
pub const LOG_BYTES_READ_MAX: u64 = 64 * 1024 * 1024;

/// What a purge writes down first is never longer: the text of every manifest that names another.
pub const PURGE_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// So many of those are named that hold the same content as a purged path.
pub const PURGE_HOLDERS_NAMED: usize = 20;

/// A label is never longer than this many bytes.
pub const LABEL_BYTES_MAX: usize = 512;

/// How much of the disk is left alone: a restore whose stage would go below this refuses.
pub const DISK_FLOOR_BYTES: u64 = 16 * 1024 * 1024;

/// The room that a large capture needs at a time, and a collection that writes packs anew.
pub const ROOM_NEEDED_BYTES: u64 = PACK_BYTES_MAX + DISK_FLOOR_BYTES;

/// The size of the file that garbage collection may give up on a full disk.
pub const BALLAST_BYTES: u64 = 4 * 1024 * 1024;

/// Up to this many files or directories are made durable one by one; above it the whole file system
/// is, which costs about as much as this many and does not grow.
pub const SYNC_EACH_MAX: usize = 64;

/// How many of them are in flight at one time: a disk merges what arrives together.
pub const SYNC_THREADS_MAX: usize = 32;

/// When content goes into packs. A value and not constants, so that tests of few files have packs too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packing {
    /// A capture that reads more files than this writes packs.
    pub above_files: usize,
    /// The frames of a pack are not longer together, unless it has one alone.
    pub pack_bytes_max: u64,
    /// A collection moves loose blobs into packs from this many on.
    pub consolidate_from: usize,
    /// A collection merges small packs if there are more.
    pub small_packs_max: usize,
    /// A capture that adds fewer small blobs than this, and reads few files, writes them as loose ones.
    pub gather_from: usize,
    /// Where there are this many small packs a capture that reads few files adds none.
    pub small_packs_crowded: usize,
}

impl Packing {
    /// Whether a pack of so many bytes is one of the small ones, which a collection merges.
    pub(crate) fn is_small(&self, pack_bytes: u64) -> bool {
        pack_bytes < self.pack_bytes_max / 8
    }
}

impl Default for Packing {
    fn default() -> Self {
        Self {
            above_files: PIN_ALL_ABOVE_FILES,
            pack_bytes_max: PACK_BYTES_MAX,
            consolidate_from: CONSOLIDATE_FROM,
            small_packs_max: SMALL_PACKS_MAX,
            gather_from: GATHER_FROM,
            small_packs_crowded: SMALL_PACKS_CROWDED,
        }
    }
}
