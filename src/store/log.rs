//! The account of what was restored, pruned and repaired, for people: `operations.jsonl`.

use serde_json::{Value, json};

use crate::access::Access;
use crate::clock::Timestamp;
use crate::disk;
use crate::error::Result;
use crate::id::CheckpointId;

/// Appends one line: the time, the verb, and what the verb has to say.
pub(super) fn append(access: &Access, verb: &str, mut details: Value) -> Result<()> {
    if let Some(details) = details.as_object_mut() {
        details.insert("at".to_owned(), json!(Timestamp::now().to_string()));
        details.insert("verb".to_owned(), json!(verb));
    }
    let line = serde_json::to_vec(&details).unwrap_or_default();
    disk::append_line(&access.layout.operations_log(), &line)
}

/// A checkpoint as the log names it.
pub(super) fn id(id: &CheckpointId) -> Value {
    json!({ "session": id.session.as_str(), "seq": id.seq.get() })
}
