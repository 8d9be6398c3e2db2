//! The account of what was restored, pruned and repaired, for people: `operations.jsonl`.

use serde_json::{Value, json};

use crate::access::Access;
use crate::clock::Timestamp;
use crate::disk;
use crate::error::{Error, Result};
use crate::id::CheckpointId;
use crate::layout::Layout;
use crate::monitor::{Monitor, Notice};

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
