//! Small files of the store: read with a bound, written whole and durable, or not at all.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{Mode as SystemMode, OFlags};
use rustix::io::{Errno, retry_on_intr};

use crate::disk::dir::{Dir, FileKind, Placed, file_stat, unusable};
use crate::disk::lock::open_appending;
use crate::disk::names::remove_tree;
use crate::error::{Error, IoContext, Result};
use crate::manifest::Mode;

/// How the making of a file ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Created {
    /// It is there, whole and durable.
    Done,
    /// The name was taken; nothing has changed.
    Exists,
}

/// The content of the file at `path`; `None` where there is no such name.
///
/// # Errors
/// [`Error::Io`]; with [`std::io::ErrorKind::InvalidData`] where it is not a regular file (a symlink
/// is not, and a FIFO is not waited for) or is longer than `max_bytes`.
pub(crate) fn read_small(path: &Path, max_bytes: u64) -> Result<Option<Vec<u8>>> {
    let Some((file, size)) = open_small(path, max_bytes)? else { return Ok(None) };
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    file.take(max_bytes.saturating_add(1)).read_to_end(&mut bytes).at("read", path)?;
    if bytes.len() as u64 > max_bytes {
        return Err(too_long(path, max_bytes));
    }
    Ok(Some(bytes))
}

/// Opens the file at `path` and says how long it is; `None` where there is no such name.
///
/// # Errors
/// As [`read_small`].
pub(crate) fn open_small(path: &Path, max_bytes: u64) -> Result<Option<(File, u64)>> {
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = retry_on_intr(|| rustix::fs::open(path, flags, SystemMode::empty()));
    let file: File = match opened {
        Ok(fd) => fd.into(),
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP | Errno::NXIO) => return Err(not_regular(path)),
        Err(error) => return Err(error).at("open", path),
    };
    let stat = file_stat(&file, path)?;
    if stat.kind != FileKind::File {
        return Err(not_regular(path));
    }
    if stat.size > max_bytes {
        return Err(too_long(path, max_bytes));
    }
    Ok(Some((file, stat.size)))
}

/// The `length` bytes from `offset` on; `None` where the file cannot be read or has not that many.
pub(crate) fn read_range(file: &File, offset: u64, length: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, offset).ok()?;
    Some(bytes)
}

fn too_long(path: &Path, max_bytes: u64) -> Error {
    unusable("read", path, format!("it is longer than {max_bytes} bytes"))
}

fn not_regular(path: &Path) -> Error {
    unusable("read", path, "it is not a regular file".to_owned())
}

/// Writes `bytes` to a new, empty file and checks that the file system took them all.
pub(crate) fn write_whole(file: &mut File, bytes: &[u8], path: &Path) -> Result<()> {
    file.write_all(bytes).at("write", path)?;
    check_size(file, bytes.len() as u64, path)
}

/// A write may claim more than it did (a broken file system, a fault on the way): what it leaves must
/// not be published.
pub(crate) fn check_size(file: impl AsFd, expected_bytes: u64, path: &Path) -> Result<()> {
    let size = file_stat(file, path)?.size;
    if size == expected_bytes {
        return Ok(());
    }
    Err(unusable("write", path, format!("{size} of {expected_bytes} bytes are there")))
}

/// Makes the file `name` in `dir` with `bytes`, mode 0600, unless the name is taken.
///
/// # Durability
/// File and name are on the disk when this returns [`Created::Done`]. A crash leaves no part of it
/// under that name, at most a temporary file in `tmp`, which is on the same file system. If the last
/// step, the sync of `dir`, fails, the file is there and whole, and the error says that its name may
/// not be durable.
pub(crate) fn create_durably(dir: &Dir, name: &[u8], bytes: &[u8], tmp: &Dir) -> Result<Created> {
    let temp = Temp::write(tmp, bytes)?;
    match tmp.rename_no_replace(&temp.name, dir, name)? {
        Placed::Done => temp.renamed(),
        Placed::Taken => return Ok(Created::Exists),
    }
    dir.sync()?;
    Ok(Created::Done)
}

/// As [`create_durably`], and takes the name from what had it: whoever reads it finds the old bytes
/// or the new ones.
pub(crate) fn replace_durably(dir: &Dir, name: &[u8], bytes: &[u8], tmp: &Dir) -> Result<()> {
    let temp = Temp::write(tmp, bytes)?;
    tmp.rename_to(&temp.name, dir, name)?;
    temp.renamed();
    dir.sync()
}

/// A temporary file, whole and durable; removed when dropped, unless it was renamed. It is locked as
/// long as its process lives, so that [`crate::disk::remove_abandoned`] can tell.
struct Temp<'a> {
    tmp: &'a Dir,
    name: Vec<u8>,
    present: bool,
    _locked: File,
}

/// Makes a temporary file under a name that no other has, and locks it for as long as it is open. One
/// that was taken for abandoned before it was locked is made again.
pub(super) fn create_temp(tmp: &Dir) -> Result<(File, Vec<u8>)> {
    create_locked(tmp, |name| tmp.create_file(name).map(Some))
}

/// As [`create_temp`], a private directory.
fn create_temp_dir(tmp: &Dir) -> Result<(File, Vec<u8>)> {
    create_locked(tmp, |name| {
        tmp.make_dir(name, Mode::from_st_mode(0o700))?;
        tmp.try_open_file(name)
    })
}

fn create_locked(
    tmp: &Dir,
    create: impl Fn(&[u8]) -> Result<Option<File>>,
) -> Result<(File, Vec<u8>)> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("write-{}-{number}", std::process::id()).into_bytes();
        match create(&name) {
            Ok(Some(file)) => {
                while let Err(error) = file.lock() {
                    if error.kind() != std::io::ErrorKind::Interrupted {
                        return Err(error).at("lock", tmp.path_of(&name));
                    }
                }
                if leads_to(tmp, &name, &file)? {
                    return Ok((file, name));
                }
            }
            // It was gone before it was opened.
            Ok(None) => {}
            // Of another process that has, or had, our process id.
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::AlreadyExists => {
            }
            Err(error) => return Err(error),
        }
    }
}

/// Makes the directory `name` of `dir` with one file in it. It gets its name when the file is in it and
/// durable: a crash leaves no directory without.
///
/// # Errors
/// [`Error::Io`], also where the name is taken.
pub(crate) fn create_dir_with(
    dir: &Dir,
    name: &[u8],
    file: &[u8],
    bytes: &[u8],
    tmp: &Dir,
) -> Result<()> {
    let (_locked, temporary) = create_temp_dir(tmp)?;
    let filled = tmp.open_child(&temporary).and_then(|made| {
        replace_durably(&made, file, bytes, tmp)?;
        tmp.rename_to(&temporary, dir, name)
    });
    if let Err(error) = filled {
        drop(remove_tree(tmp, &temporary));
        return Err(error);
    }
    dir.sync()
}

/// Whether a name leads to a file that is open.
pub(super) fn leads_to(dir: &Dir, name: &[u8], file: &File) -> Result<bool> {
    let own = file_stat(file, &dir.path_of(name))?;
    Ok(dir.stat(name)?.is_some_and(|named| named.is_same_inode(&own)))
}

impl<'a> Temp<'a> {
    fn write(tmp: &'a Dir, bytes: &[u8]) -> Result<Self> {
        let (mut file, name) = create_temp(tmp)?;
        let path = tmp.path_of(&name);
        let locked = file.try_clone().at("open", &path)?;
        let temp = Self { tmp, name, present: true, _locked: locked };
        write_whole(&mut file, bytes, &path)?;
        file.sync_all().at("sync", &path)?;
        Ok(temp)
    }

    fn renamed(mut self) {
        self.present = false;
    }
}

impl Drop for Temp<'_> {
    fn drop(&mut self) {
        if self.present {
            drop(self.tmp.try_unlink(&self.name));
        }
    }
}

/// Appends `line`, which holds no newline, to the file at `path` and makes it durable. The file is
/// made if it is not there.
///
/// A line that a crash cut short stays, on a line of its own; readers skip what they cannot read.
///
/// # Concurrency
/// Appending processes take turns; each line is one write.
pub(crate) fn append_line(path: &Path, line: &[u8]) -> Result<()> {
    let (file, made) = append(path, line)?;
    file.sync_all().at("sync", path)?;
    if made { parent_of(path)?.sync() } else { Ok(()) }
}

/// As [`append_line`], for a line that a power cut may take.
pub(crate) fn append_line_soon(path: &Path, line: &[u8]) -> Result<()> {
    append(path, line).map(|_| ())
}

/// Gives the file, and whether it was made.
fn append(path: &Path, line: &[u8]) -> Result<(File, bool)> {
    if line.contains(&b'\n') {
        return Err(unusable("write", path, "a line cannot hold a newline".to_owned()));
    }
    let (mut file, made) = open_appending(path)?;
    let before = file_stat(&file, path)?;
    if before.kind != FileKind::File {
        return Err(not_regular(path));
    }
    let mut bytes = Vec::with_capacity(line.len() + 2);
    if before.size > 0 {
        let mut last = [0];
        file.seek(SeekFrom::End(-1)).at("read", path)?;
        file.read_exact(&mut last).at("read", path)?;
        if last != *b"\n" {
            bytes.push(b'\n');
        }
    }
    bytes.extend_from_slice(line);
    bytes.push(b'\n');
    let written = file.write_all(&bytes).at("write", path);
    let expected_bytes = before.size + bytes.len() as u64;
    if let Err(error) = written.and_then(|()| check_size(&file, expected_bytes, path)) {
        // Where even this fails the line stays cut short, which readers know.
        drop(file.set_len(before.size));
        return Err(error);
    }
    Ok((file, made))
}

fn parent_of(path: &Path) -> Result<Dir> {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Dir::open(Path::new(".")),
        Some(parent) => Dir::open(parent),
        None => Dir::open(path),
    }
}

/// Removes the file `name`, durably; `false` where there was none.
pub(crate) fn remove_durably(dir: &Dir, name: &[u8]) -> Result<bool> {
    let removed = dir.try_unlink(name)?;
    if removed {
        dir.sync()?;
    }
    Ok(removed)
}

/// Gives what has the name `name` in `dir`, whatever it is, another name in `to`, on the same file
/// system, that nobody takes for truth: `name.damaged`, or `name.damaged-2` and so on where that is
/// taken. Returns the new path; `None` where there is nothing.
///
/// # Durability
/// The new name is durable when this returns.
pub(crate) fn set_aside(dir: &Dir, name: &[u8], to: &Dir) -> Result<Option<PathBuf>> {
    for number in 1..=SET_ASIDE_MAX {
        let suffix = if number == 1 { String::new() } else { format!("-{number}") };
        let aside = [name, b".damaged", suffix.as_bytes()].concat();
        if dir.stat(name)?.is_none() {
            return Ok(None);
        }
        if dir.rename_no_replace(name, to, &aside)? == Placed::Done {
            to.sync()?;
            dir.sync()?;
            return Ok(Some(to.path_of(&aside)));
        }
    }
    let reason = format!("{SET_ASIDE_MAX} damaged ones are there already");
    Err(unusable("set aside", &dir.path_of(name), reason))
}

/// How many damaged things of one name are kept.
const SET_ASIDE_MAX: u32 = 1_000;

/// Adds `line` at the end of a file that is not ours, unless it has that line; makes the file where it is
/// missing. Its last line may lack an end. One that has the line need not be writable.
///
/// # Concurrency
/// Of two that add the same line at the same time one finds it there.
pub(crate) fn append_missing_line(path: &Path, line: &[u8]) -> Result<()> {
    let has_line =
        |text: &[u8]| text.split(|&byte| byte == b'\n').any(|there| there.trim_ascii_end() == line);
    // A line that is there stays there: whoever writes adds.
    if std::fs::read(path).is_ok_and(|text| has_line(&text)) {
        return Ok(());
    }
    let file = File::options().read(true).append(true).create(true).open(path);
    let mut file = file.at("open", path)?;
    file.lock().at("lock", path)?;
    let mut text = Vec::new();
    file.read_to_end(&mut text).at("read", path)?;
    if has_line(&text) {
        return Ok(());
    }
    let is_open = text.last().is_some_and(|&last| last != b'\n');
    let start: &[u8] = if is_open { b"\n" } else { b"" };
    file.write_all(&[start, line, b"\n"].concat()).at("write", path)
}

/// Opens the directory `path`, which is this user's alone; makes it, and what is missing above it,
/// with mode 0700, durably.
///
/// # Errors
/// [`Error::StoreForeign`] where it is another user's or others may write to it; [`Error::Io`].
pub(crate) fn make_private_dir(path: &Path) -> Result<Dir> {
    let mut missing: Vec<&OsStr> = Vec::new();
    let mut at: PathBuf = path.to_owned();
    let mut dir = loop {
        match Dir::open(&at) {
            Ok(dir) => break dir,
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        // Only a name can be made; a path such as `a/..` with `a` missing has none.
        let depth = missing.len();
        let parent = path.ancestors().nth(depth);
        let name = parent.and_then(Path::file_name).ok_or(Errno::NOENT).at("create", path)?;
        missing.push(name);
        at = path.ancestors().nth(depth + 1).map_or_else(PathBuf::new, Path::to_owned);
        if at.as_os_str().is_empty() {
            at.push(".");
        }
    };
    for name in missing.into_iter().rev() {
        dir = make_child(&dir, name.as_bytes())?;
    }
    check_private(&dir)?;
    Ok(dir)
}

/// Makes and opens one directory; another process may make it at the same time.
fn make_child(dir: &Dir, name: &[u8]) -> Result<Dir> {
    match dir.make_dir(name, Mode::from_st_mode(0o700)) {
        Ok(()) => dir.sync()?,
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    dir.open_child(name)
}

fn check_private(dir: &Dir) -> Result<()> {
    let stat = dir.stat_self()?;
    let user = rustix::process::geteuid().as_raw();
    let reason = if stat.uid != user {
        format!("it belongs to user {}, not to user {user}", stat.uid)
    } else if stat.mode.bits() & 0o022 != 0 {
        format!("its mode {} lets others change it", stat.mode)
    } else {
        return Ok(());
    };
    Err(Error::StoreForeign { path: dir.path().to_owned(), reason })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn number_of(name: &[u8]) -> (String, u64) {
        let name = std::str::from_utf8(name).unwrap();
        let (start, number) = name.rsplit_once('-').unwrap();
        (start.to_owned(), number.parse().unwrap())
    }

    #[test]
    fn a_temporary_name_is_never_taken_from_another() {
        let place = tempfile::tempdir().unwrap();
        let tmp = Dir::open(place.path()).unwrap();
        let (_file, name) = create_temp(&tmp).unwrap();
        // Those of a process that had this process's id, and has died.
        let (start, number) = number_of(&name);
        let theirs: Vec<_> = (number + 1..number + 200)
            .map(|number| place.path().join(format!("{start}-{number}")))
            .collect();
        for path in &theirs {
            fs::write(path, "theirs").unwrap();
        }
        let (mut file, name) = create_temp(&tmp).unwrap();
        assert!(number_of(&name).1 >= number + 200);
        file.write_all(b"ours").unwrap();
        assert!(theirs.iter().all(|path| fs::read(path).unwrap() == b"theirs"));
    }

    #[test]
    fn threads_that_replace_one_file_at_once_leave_one_of_the_contents() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("tmp")).unwrap();
        let dir = Dir::open(place.path()).unwrap();
        let tmp = dir.open_child(b"tmp").unwrap();
        std::thread::scope(|threads| {
            for number in 0..8_u8 {
                let (dir, tmp) = (&dir, &tmp);
                threads.spawn(move || {
                    let content = vec![b'0' + number; 50_000];
                    for _ in 0..30 {
                        crate::disk::replace(dir, b"name", &content, tmp).unwrap();
                    }
                });
            }
        });
        let content = fs::read(place.path().join("name")).unwrap();
        assert!(content.len() == 50_000 && content.iter().all(|byte| *byte == content[0]));
        assert_eq!(tmp.names().unwrap(), [b""; 0]);
    }
}
