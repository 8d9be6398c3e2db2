//! Running a program and weighing what it did.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::Outcome;

/// A command that sees nothing of the caller's settings, with a home of its own in `home`.
pub(crate) fn bare(program: impl AsRef<OsStr>, home: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
        .env("HOME", home)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("LC_ALL", "C.UTF-8");
    command
}

/// The first line of what `command` prints; none where it is not there or fails.
pub(crate) fn first_line(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let line = String::from_utf8_lossy(&output.stdout).lines().next()?.trim().to_owned();
    (output.status.success() && !line.is_empty()).then_some(line)
}

/// Runs `command`, which must succeed, and gives its output.
pub(crate) fn succeed(command: &mut Command) -> Outcome<Vec<u8>> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{command:?}: {error}"))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{command:?}: {}\n{stderr}", output.status).into());
    }
    Ok(output.stdout)
}

/// As [`succeed`], with the output as a line.
pub(crate) fn answer(command: &mut Command) -> Outcome<String> {
    Ok(String::from_utf8(succeed(command)?)?.trim().to_owned())
}

/// One run of a command with all that it started.
#[derive(Clone, Copy)]
pub(crate) struct Measured {
    pub(crate) seconds: f64,
    /// Handed to the file system for writing.
    pub(crate) written_bytes: u64,
}

/// Runs `command`, which must succeed. The bytes are those that the kernel adds to this process's
/// account when it has waited for a child, children of children included.
pub(crate) fn measure(command: &mut Command) -> Outcome<Measured> {
    let before = written_bytes()?;
    let start = Instant::now();
    succeed(command)?;
    let seconds = start.elapsed().as_secs_f64();
    Ok(Measured { seconds, written_bytes: written_bytes()?.saturating_sub(before) })
}

/// Without what was cut off again before it went anywhere: SQLite empties its shared memory file at
/// the first opening.
fn written_bytes() -> Outcome<u64> {
    let account = fs::read_to_string("/proc/self/io")?;
    let field = |name: &str| -> Outcome<u64> {
        let line = account.lines().find_map(|line| line.strip_prefix(name));
        Ok(line.ok_or(format!("/proc/self/io has no {name}"))?.trim().parse()?)
    };
    Ok(field("write_bytes: ")?.saturating_sub(field("cancelled_write_bytes: ")?))
}

const GNU_TIME: &str = "/usr/bin/time";

/// Whether [`peak_bytes`] can tell.
pub(crate) fn can_tell_peak() -> bool {
    Path::new(GNU_TIME).exists()
}

/// Runs `command`. The greatest resident memory of any process that it starts, by GNU time: that
/// stands between, so that this process's own memory, which a child has before it becomes another
/// program, does not count.
pub(crate) fn peak_bytes(command: &Command, place: &Path) -> Outcome<u64> {
    let report = place.join("peak");
    let mut timed = Command::new(GNU_TIME);
    timed.args(["-f", "%M", "-o"]).arg(&report);
    timed.arg(command.get_program()).args(command.get_args());
    timed.env_clear();
    timed.envs(command.get_envs().filter_map(|(key, value)| Some((key, value?))));
    timed.current_dir(command.get_current_dir().unwrap_or(place));
    succeed(&mut timed)?;
    let kib: u64 = fs::read_to_string(&report)?.trim().parse()?;
    Ok(kib * 1024)
}

/// What a directory takes on disk, in whole blocks. A file with several names counts once.
pub(crate) fn allocated_bytes(dir: &Path) -> io::Result<u64> {
    let mut linked = HashSet::new();
    let mut sum = 0;
    let mut left = vec![dir.to_owned()];
    while let Some(dir) = left.pop() {
        sum += fs::symlink_metadata(&dir)?.blocks() * 512;
        for name in fs::read_dir(&dir)? {
            let name = name?;
            if name.file_type()?.is_dir() {
                left.push(name.path());
                continue;
            }
            let status = name.metadata()?;
            if status.nlink() == 1 || linked.insert(status.ino()) {
                sum += status.blocks() * 512;
            }
        }
    }
    Ok(sum)
}
