//! The account of what was restored, pruned and repaired, for people: `operations.jsonl`.

use serde_json::{Map, Value, json};

use crate::access::Access;
use crate::clock::Timestamp;
use crate::disk;
use crate::error::{Error, Result};
use crate::id::CheckpointId;
use crate::layout::Layout;
use crate::limits;
use crate::monitor::{Monitor, Notice};

/// One line of the log.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Logged {
    /// When it was done.
    pub at: Timestamp,
    /// What was done: `restore`, `undo`, `prune`, `sweep`, `doctor-fix` and others.
    pub verb: String,
    /// What else is known of it, by name; `docs/format.md` lists the names.
    pub details: Map<String, Value>,
}

/// The end of the log.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct OperationLog {
    /// In the order in which they were written.
    pub entries: Vec<Logged>,
    /// How many lines are none: a crash may have cut one short.
    pub skipped: u64,
}

/// Reads the newest `limit` lines.
pub(super) fn read(layout: &Layout, limit: usize) -> Result<OperationLog> {
    let path = layout.operations_log();
    let mut log = OperationLog::default();
    let Some((file, size)) = disk::open_small(&path, u64::MAX)? else { return Ok(log) };
    let start = size.saturating_sub(limits::LOG_BYTES_READ_MAX);
    let length = usize::try_from(size - start).unwrap_or(0);
    let cut_short = || crate::error::not_understood(&path, "it became shorter while it was read");
    let text = disk::read_range(&file, start, length).ok_or_else(cut_short)?;
    let mut lines = text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    if start > 0 {
        // The first is not whole.
        lines.next();
    }
    for line in lines.rev() {
        if log.entries.len() == limit {
            break;
        }
        match parse(line) {
            Some(entry) => log.entries.push(entry),
            None => log.skipped += 1,
        }
    }
    log.entries.reverse();
    Ok(log)
}

fn parse(line: &[u8]) -> Option<Logged> {
    let mut details: Map<String, Value> = serde_json::from_slice(line).ok()?;
    let at = details.remove("at")?.as_str()?.parse().ok()?;
    let verb = details.remove("verb")?.as_str()?.to_owned();
    Some(Logged { at, verb, details })
}

/// Appends one line: the time, the verb, and what the verb has to say.
pub(super) fn append(access: &Access, verb: &str, details: Value) -> Result<()> {
    append_to(&access.layout, verb, details)
}

/// As [`append`], without an open store.
pub(super) fn append_to(layout: &Layout, verb: &str, details: Value) -> Result<()> {
    disk::append_line(&layout.operations_log(), &line(verb, details))
}

/// As [`append`], for what happens at every turn and by rule: a power cut may take the line.
pub(super) fn append_routine(access: &Access, verb: &str, details: Value) -> Result<()> {
    disk::append_line_soon(&access.layout.operations_log(), &line(verb, details))
}

fn line(verb: &str, mut details: Value) -> Vec<u8> {
    if let Some(details) = details.as_object_mut() {
        details.insert("at".to_owned(), json!(Timestamp::now().to_string()));
        details.insert("verb".to_owned(), json!(verb));
    }
    serde_json::to_vec(&details).unwrap_or_default()
}

/// Tells that the log was not written. What it is about has happened, so that is no error.
pub(super) fn tell_unwritten(error: &Error, monitor: &dyn Monitor) {
    let text = format!("this was done and not written down: {}", error.with_source());
    monitor.notice(&Notice::Remark { text });
}

/// A checkpoint as the log names it.
pub(super) fn id(id: &CheckpointId) -> Value {
    json!({ "session": id.session.as_str(), "seq": id.seq.get() })
}
