//! What the program did and how long it took, for whoever looks for the reason: `TURNPOINT_LOG`.
//!
//! The phases and notices that the library tells its [`turnpoint::Monitor`] anyway are written down, each
//! with a time; nothing is asked of the library for it, so nothing is slower without it.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use turnpoint::clock::Timestamp;
use turnpoint::path::printable;
use turnpoint::{Error, Phase};

use crate::cli::exit::Exit;
use crate::cli::failure::{Failure, Outcome};
use crate::cli::json::NoticeDocument;
use crate::cli::printer;

#[expect(clippy::cast_possible_wrap, reason = "a single low bit")]
const NOT_WAITING: i32 = OFlags::NONBLOCK.bits() as i32;

/// How much is written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    /// Phases, with what was counted and how long they took.
    Info,
    /// What was asked for and what the library had to say too: with paths, labels and names.
    Debug,
}

/// Where it goes.
#[derive(Debug, Clone)]
pub(crate) struct Trace {
    level: Level,
    /// Standard error where none is named.
    file: Option<Arc<File>>,
    begun: Instant,
}

impl Trace {
    /// As `TURNPOINT_LOG` and `--log-file` say; `None` where neither is there. A file that is named is
    /// reason enough: the level is `debug` then, unless it is said.
    pub(crate) fn open(file: Option<&Path>) -> Outcome<Option<Self>> {
        let named = std::env::var_os("TURNPOINT_LOG").filter(|level| !level.is_empty());
        let level = match named.as_ref().map(|level| level.to_str()) {
            None if file.is_none() => return Ok(None),
            None | Some(Some("debug")) => Level::Debug,
            Some(Some("info")) => Level::Info,
            Some(_) => {
                let message = "TURNPOINT_LOG is neither `info` nor `debug`";
                return Err(Failure::own(Exit::Usage, "usage", message));
            }
        };
        let opened = file.map(|path| {
            // Arguments are nobody else's business; and nobody need wait for a reader of a FIFO.
            let mut options = OpenOptions::new();
            options.append(true).create(true).mode(0o600).custom_flags(NOT_WAITING);
            let opened = options.open(path);
            opened.map(Arc::new).map_err(|source| Error::Io {
                verb: "open the log",
                path: path.to_owned(),
                source,
            })
        });
        Ok(Some(Self { level, file: opened.transpose()?, begun: Instant::now() }))
    }

    /// The beginning of the program.
    pub(crate) fn begin(&self) {
        let (version, pid) = (env!("CARGO_PKG_VERSION"), std::process::id());
        self.write(Level::Info, &format!("begin version={version} pid={pid}"));
        let arguments: Vec<String> = std::env::args_os()
            .skip(1)
            .map(|word| format!("`{}`", printable(word.as_encoded_bytes())))
            .collect();
        self.write(Level::Debug, &format!("arguments {}", arguments.join(" ")));
    }

    /// The end of the program.
    pub(crate) fn end(&self, exit: Exit) {
        let elapsed = milliseconds(self.begun.elapsed());
        self.write(Level::Info, &format!("end exit={} ms={elapsed}", exit.code()));
    }

    /// A phase has ended.
    pub(crate) fn phase(&self, phase: Phase, items: u64, bytes: u64, elapsed: Duration) {
        let name = format!("{phase:?}").to_lowercase();
        let elapsed = milliseconds(elapsed);
        self.write(Level::Info, &format!("phase {name} items={items} bytes={bytes} ms={elapsed}"));
    }

    /// The library had something to say.
    pub(crate) fn notice(&self, notice: &NoticeDocument) {
        self.write(Level::Debug, &format!("notice {}: {}", notice.code, notice.message));
    }

    /// One line. That it cannot be written is no reason to fail: it is about something else.
    fn write(&self, level: Level, text: &str) {
        if level > self.level {
            return;
        }
        let word = if level == Level::Info { "info" } else { "debug" };
        let line = format!("{} {word} {text}", Timestamp::now());
        match &self.file {
            // In one piece: several processes may write to the same file.
            Some(file) => {
                (&**file).write_all(format!("{line}\n").as_bytes()).ok();
            }
            None => printer::aside(&line),
        }
    }
}

fn milliseconds(elapsed: Duration) -> String {
    format!("{:.1}", elapsed.as_secs_f64() * 1_000.0)
}
