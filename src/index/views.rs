//! The views that stay, as `docs/sql.md` describes them; tests compare this with both the document and
//! the schema.

/// A view of the index that keeps its columns and their meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct View {
    /// Its name.
    pub name: &'static str,
    /// What a row of it is: one sentence with its period.
    pub about: &'static str,
    /// Its columns, in their order.
    pub columns: &'static [ViewColumn],
}

/// A column of a [`View`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ViewColumn {
    /// Its name.
    pub name: &'static str,
    /// What its values are where they are not null: `text`, `integer` or `blob`.
    pub kind: &'static str,
    /// What they mean: not a sentence.
    pub about: &'static str,
}

const fn text(name: &'static str, about: &'static str) -> ViewColumn {
    ViewColumn { name, kind: "text", about }
}

const fn integer(name: &'static str, about: &'static str) -> ViewColumn {
    ViewColumn { name, kind: "integer", about }
}

const fn blob(name: &'static str, about: &'static str) -> ViewColumn {
    ViewColumn { name, kind: "blob", about }
}

const SESSION: ViewColumn = text("session", "name of the session");
const SEQ: ViewColumn = integer("seq", "number of the checkpoint in its session");
const PATH: ViewColumn = text("path", "relative to the workspace; lossy where it is not UTF-8");
const PATH_BYTES: ViewColumn = blob("path_bytes", "the same as bytes; a condition on it is fast");
const CHANGE: ViewColumn =
    text("change", "`added`, `modified`, `deleted`, `mode` or `type`, as explained below");
const START_SEQ: ViewColumn = integer("start_seq", "number of the checkpoint at its start");
const END_SEQ: ViewColumn = integer("end_seq", "number of the checkpoint at its end");

/// All of them.
pub const VIEWS: &[View] = &[
    View {
        name: "checkpoint_list",
        about: "One row for each checkpoint.",
        columns: &[
            SESSION,
            SEQ,
            text("created_at", "when its capture began to be committed"),
            text("workspace", "id of the workspace"),
            text("workspace_root", "where the workspace was at its newest checkpoint"),
            text("label", "the label given later, else the one given at the capture"),
            text(
                "trigger",
                "what made it: `manual`, `turn-start`, `turn-end`, `exec`, `pre-restore`, or a caller's \
                 own word",
            ),
            integer("complete", "0 where something could not be read whole, else 1"),
            text("coverage", "`full`, `hinted` or `paths`"),
            integer("pinned", "1 where retention must keep it, else 0"),
            text("note", "a remark"),
            integer("files", "files and symlinks whose content it holds"),
            integer("bytes", "length of these files together"),
            integer(
                "omitted",
                "names seen without holding their content; a whole directory is one",
            ),
            integer("files_observed", "files that the capture saw"),
            integer("files_reused", "files that it did not have to read"),
            integer("files_read", "files that it read"),
            integer("bytes_read", "how much it read"),
            integer("bytes_stored", "how much it added to the store"),
            text("git_head", "commit that git's HEAD was at"),
            text("git_branch", "branch that HEAD was on"),
            text("restore_verb", "of a safety checkpoint: the command it was made for"),
            text(
                "restore_target_session",
                "of a safety checkpoint: session of the checkpoint that the command was about",
            ),
            integer("restore_target_seq", "of a safety checkpoint: number of that checkpoint"),
        ],
    },
    View {
        name: "checkpoint_files",
        about: "One row for each file and symlink of each checkpoint.",
        columns: &[
            SESSION,
            SEQ,
            PATH,
            PATH_BYTES,
            text("kind", "`file` or `symlink`"),
            text("mode", "permissions, four octal digits"),
            integer("size", "length of a file"),
            integer("mtime_ns", "modification stamp of a file when its content was first held"),
            text("hash", "name of a file's content"),
            text("target", "where a symlink leads; lossy where it is not UTF-8"),
        ],
    },
    View {
        name: "changes",
        about: "One row for each path that is not as it was in the next lower checkpoint of the same \
                session and workspace; the first checkpoint has none.",
        columns: &[SESSION, SEQ, PATH, CHANGE, PATH_BYTES],
    },
    View {
        name: "file_history",
        about: "One row for each path and each checkpoint in which it is not as in the next lower one \
                of the same session and workspace; in the first each path is `added`.",
        columns: &[
            SESSION,
            SEQ,
            PATH,
            CHANGE,
            text("kind", "`file`, `symlink`, `dir` or `omitted`; null where it is gone"),
            text("mode", "permissions afterwards"),
            integer("size", "length afterwards"),
            text("hash", "name of the content afterwards"),
            PATH_BYTES,
        ],
    },
    View {
        name: "turns",
        about: "One row for each turn: a checkpoint with the trigger `turn-start` and the next one of its \
                session and workspace with `turn-end`.",
        columns: &[
            SESSION,
            START_SEQ,
            END_SEQ,
            text("started_at", "when the checkpoint at its start was made"),
            text("ended_at", "when the checkpoint at its end was made"),
            integer("added", "how many paths it added"),
            integer("modified", "how many it modified"),
            integer("deleted", "how many it deleted"),
            integer("mode", "of how many it changed the mode alone"),
            integer("type", "how many it made another kind of thing"),
        ],
    },
    View {
        name: "turn_changes",
        about: "One row for each path that is at the end of a turn not as it was at its start.",
        columns: &[SESSION, START_SEQ, END_SEQ, PATH, CHANGE, PATH_BYTES],
    },
    View {
        name: "session_summary",
        about: "One row for each session that has checkpoints.",
        columns: &[
            SESSION,
            integer("checkpoints", "how many, without safety checkpoints"),
            integer("safety_checkpoints", "how many safety checkpoints"),
            text("first_at", "when its first checkpoint was made"),
            text("last_at", "when its last was made"),
            integer("latest_seq", "number of the newest that is not a safety checkpoint"),
            integer("files", "files and symlinks in that one"),
            integer("bytes", "length of its files together"),
            integer("incomplete", "how many are not complete"),
        ],
    },
    View {
        name: "storage",
        about: "What holds the space: one row for each session, and one for all, whose session is null.",
        columns: &[
            text("session", "name of the session, or null"),
            integer("checkpoints", "how many, safety checkpoints included"),
            integer("logical_bytes", "what as many plain copies would take"),
            integer(
                "stored_bytes",
                "blobs that these checkpoints name, pages included, each once, as stored",
            ),
            integer(
                "unique_bytes",
                "of these, blobs that no other session names: what deleting the session would free",
            ),
            integer("shared_bytes", "the others"),
        ],
    },
    View {
        name: "omitted",
        about: "One row for each name that a checkpoint saw and whose content it does not hold.",
        columns: &[
            SESSION,
            SEQ,
            PATH,
            PATH_BYTES,
            text("reason", "why, in a word, such as `ignored` or `secret`"),
            integer(
                "rest",
                "how many names after this one are left out without a row of their own",
            ),
        ],
    },
];
