//! What to do about each error.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::Error;
use super::system::{FREE_SOME_SPACE, hint_of_system};
use crate::id::{CheckpointId, Seq};
use crate::manifest::OmitReason;
use crate::path::{RelPath, shell_path, shell_word};

impl Error {
    /// What to do next, as one sentence without a final period; `None` where the error says it all.
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::SessionNotFound { nearest, .. } if nearest.is_empty() => {
                "`turnpoint list --sessions` shows the sessions".to_owned()
            }
            Self::SessionNotFound { nearest, .. } => {
                let words = nearest.iter().map(|name| shell_word(name.as_str()));
                format!("these exist: {}", listed(words))
            }
            Self::CheckpointNotFound { nearest, .. } if !nearest.is_empty() => {
                format!("the nearest that exist: {}", listed(nearest.iter().map(Seq::to_string)))
            }
            Self::LabelNotFound { nearest, .. } if nearest.is_empty() => {
                "`turnpoint label` gives one; `turnpoint list` shows them".to_owned()
            }
            Self::LabelNotFound { nearest, .. } => {
                let words = nearest.iter().map(|label| shell_word(format!("@{label}")));
                format!("these exist: {}", listed(words))
            }
            Self::NoneSoOld(it) => format!("the oldest is {}, of {}", it.oldest, it.created_at),
            Self::NoCheckpoint { existing: 1.., .. } => {
                "`turnpoint list` shows them; `latest~1` is the one before the newest".to_owned()
            }
            Self::NoCheckpoint { session: None, .. } => {
                "`turnpoint list` shows what there is; `turnpoint capture` makes the first".to_owned()
            }
            Self::NoCheckpoint { session: Some(session), .. } => {
                format!(
                    "`latest` is the newest of this workspace; `turnpoint list --session {}` shows those \
                     of every workspace",
                    shell_word(session.as_str())
                )
            }
            Self::InvalidSession { .. } => {
                "use letters, digits, `-` and `_`, for example the agent's session id".to_owned()
            }
            Self::WorkspaceTooWide { .. } => {
                "name another directory with -C, or add --force if you mean it".to_owned()
            }
            Self::WorkspaceAmbiguous { by_path, by_inode, .. } => {
                format!("say which one with --workspace {by_path} or --workspace {by_inode}")
            }
            Self::OtherWorkspace { root, .. } => {
                format!("run it with -C {}, or restore with --into DIR", shell_word(root))
            }
            Self::StoreTooNew { .. } => "use the newer turnpoint that wrote it".to_owned(),
            Self::StoreForeign { .. } => "set TURNPOINT_HOME to another directory".to_owned(),
            Self::FormatDamaged { .. } => {
                "`turnpoint doctor --rebuild` makes it anew; `turnpoint verify` says what else there is"
                    .to_owned()
            }
            Self::JournalUnreadable { root: Some(root), .. } => {
                let place = shell_word(root);
                format!(
                    "if it can be read again, `turnpoint -C {place} restore --continue` goes on with \
                     it; `turnpoint -C {place} restore --abort` sets it aside and leaves the workspace \
                     as it is"
                )
            }
            Self::JournalUnreadable { root: None, .. } => {
                "`turnpoint restore --abort` in its workspace sets it aside; if the workspace is gone \
                 for good, give the file another name"
                    .to_owned()
            }
            Self::NotOfStore { .. } => "`turnpoint doctor` names what is damaged".to_owned(),
            Self::OperationAlive { .. } => "wait for it, or end its process".to_owned(),
            Self::InsideStore { .. } => "name a directory outside of it".to_owned(),
            Self::Busy { .. } => "try again when it has finished".to_owned(),
            Self::IndexDamaged { .. } => "`turnpoint doctor --rebuild` builds it anew".to_owned(),
            Self::ContentLost { .. } | Self::BlobMissing { .. } | Self::BlobDamaged { .. } => {
                "`turnpoint verify --read-data` names all damage; a capture of files that still have \
                 this content heals it"
                    .to_owned()
            }
            Self::RestoreOpen { .. } => {
                "`turnpoint restore --continue` tries again, `turnpoint restore --abort` ends it as \
                 it is"
                    .to_owned()
            }
            Self::PlanChanged { .. } => "look at the new plan and decide again".to_owned(),
            Self::IntoNotEmpty { .. } => "name a new or empty directory".to_owned(),
            Self::DeletionBlocked { .. } => {
                "`turnpoint doctor` says what to do about each; nothing is deleted until then".to_owned()
            }
            Self::PlaceTaken { .. } => {
                "turnpoint keeps its own things under that name: move yours away, and try again".to_owned()
            }
            Self::NoSpace { .. } => FREE_SOME_SPACE.to_owned(),
            Self::Io { source, .. } => hint_of_system(source)?.to_owned(),
            Self::Index { source, .. } => hint_of_system(source.downcast_ref()?)?.to_owned(),
            Self::PathNotFound { checkpoint: id, path, omitted } => not_held(id, path, *omitted),
            Self::PathNotCovered { checkpoint: id, before, .. } => not_covered(id, before.as_ref()),
            Self::Query(error) => error.hint(),
            Self::GoingBack(error) => error.hint()?,
            Self::Configuration(error) => return error.hint(),
            Self::Isolation(error) => return error.hint(),
            Self::Purge(error) => error.hint(),
            _ => return None,
        };
        Some(text)
    }
}

/// What a checkpoint holds, and where else the name is, unless this one has it without its content.
fn not_held(checkpoint: &CheckpointId, path: &RelPath, omitted: Option<OmitReason>) -> String {
    let holds = format!("`turnpoint ls {}` shows what it holds", checkpoint.shell_word());
    if omitted.is_some() {
        return holds;
    }
    let name = shell_path(OsStr::from_bytes(path.name()));
    format!("{holds}, `turnpoint find {name}` where such a name is")
}

/// Which paths a checkpoint of given paths was made of, and where to look for the others.
fn not_covered(checkpoint: &CheckpointId, before: Option<&CheckpointId>) -> String {
    let before = before.map(|before| format!("; {before} is the one before it"));
    format!(
        "`turnpoint ls {} --recursive` shows which it was made of{}",
        checkpoint.shell_word(),
        before.unwrap_or_default()
    )
}

fn listed(words: impl Iterator<Item = String>) -> String {
    words.collect::<Vec<_>>().join(", ")
}
