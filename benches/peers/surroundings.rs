//! What the figures depend on besides the programs.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;

use crate::process::first_line;
use crate::settings::Settings;

/// What lies under a directory.
pub(crate) struct FileSystem {
    pub(crate) kind: String,
    source: String,
    /// ext4 keeps away from inodes that were freed a short while ago if it has no journal, so that
    /// making files is slow after many were deleted.
    pub(crate) is_slow_after_deleting: bool,
}

impl FileSystem {
    pub(crate) fn of(place: &Path) -> Self {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let (mut longest, mut kind, mut source) = (0, "unknown", "");
        for line in mounts.lines() {
            let Some((left, right)) = line.split_once(" - ") else { continue };
            let mut right = right.split(' ');
            let Some(point) = left.split(' ').nth(4) else { continue };
            // Of two mounts on one place the later lies on top.
            if place.starts_with(point) && point.len() >= longest {
                longest = point.len();
                kind = right.next().unwrap_or("unknown");
                source = right.next().unwrap_or_default();
            }
        }
        let device = format!("{}-", source.rsplit('/').next().unwrap_or_default());
        let mut journals = fs::read_dir("/proc/fs/jbd2").into_iter().flatten().flatten();
        let has_journal =
            journals.any(|name| name.file_name().to_string_lossy().starts_with(device.as_str()));
        Self {
            is_slow_after_deleting: kind == "ext4" && !has_journal,
            kind: kind.to_owned(),
            source: source.to_owned(),
        }
    }

    fn describe(&self) -> String {
        let Self { kind, source, .. } = self;
        match kind.as_str() {
            "ext4" if self.is_slow_after_deleting => format!(
                "{kind} on {source} WITHOUT A JOURNAL. For minutes after many files were deleted, \
                 making one takes up to 30 times as long there. Use --dir with another file \
                 system, or quote ratios of one run only."
            ),
            "ext4" => format!("{kind} on {source}, with a journal"),
            _ => format!("{kind} on {source}"),
        }
    }
}

pub(crate) fn print(settings: &Settings, file_system: &FileSystem) {
    let line = |command: &mut Command| first_line(command).unwrap_or_else(|| "unknown".to_owned());
    println!("date: {}", line(Command::new("date").args(["-u", "+%Y-%m-%dT%H:%M:%SZ"])));
    println!("kernel: {}", line(Command::new("uname").args(["-srm"])));
    let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        processor.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = thread::available_parallelism().map_or(0, std::num::NonZero::get);
    println!("processor: {}, {cores} cores", model.map_or("unknown", |(_, model)| model));
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = memory.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    println!("memory: {}", total.map_or("unknown", str::trim));
    println!("load: {}", load());
    println!("file system: {}", file_system.describe());
    println!("program: {}", settings.program.display());
}

/// Of the last minute.
pub(crate) fn load() -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').next().unwrap_or("unknown").to_owned()
}
