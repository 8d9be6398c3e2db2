-- The index: what manifests and pages say, in a form that can be asked.
--
-- Derived and disposable: a rebuild reads manifests and pages again. Only `operations` with its pins
-- says something that no file says; losing it is safe, since an operation looks for its row before
-- it commits. Tables are private and may change with any version; the views below are for people and
-- stay. docs/sql.md describes them. Nothing here is newer than SQLite 3.37.
--
-- A reference is a row: checkpoints.root_blob and after_root_blob name a page, page_links.child names
-- a page, entries.blob names content. blobs.refs counts these rows. A row of `pages`, with its
-- outgoing rows in page_links and entries, exists exactly while a checkpoint or a link names the page.
-- The foreign keys repeat the rule: a blob or page that a row names cannot be deleted.
--
-- Packs will need a table of frames (pack, offset, blob), since one blob may lie in two places; a blob
-- without a frame is loose. No column is kept for them here.

CREATE TABLE sessions (
    id          INTEGER PRIMARY KEY,
    name        TEXT    NOT NULL,
    name_folded TEXT    NOT NULL UNIQUE,
    -- Numbers below this were given; a number is never given twice.
    next_seq    INTEGER NOT NULL DEFAULT 0 CHECK (next_seq >= 0)
) STRICT;

CREATE TABLE workspaces (
    id   INTEGER PRIMARY KEY,
    uuid BLOB NOT NULL UNIQUE CHECK (length(uuid) = 16),
    -- The path of its root at the newest checkpoint, as bytes.
    root BLOB NOT NULL
) STRICT;

CREATE TABLE blobs (
    id            INTEGER PRIMARY KEY,
    hash          BLOB    NOT NULL UNIQUE CHECK (length(hash) = 32),
    -- Raw and as stored; null where not known (a file found without a row, an adopted manifest).
    size          INTEGER CHECK (size >= 0),
    stored_size   INTEGER CHECK (stored_size >= 0),
    refs          INTEGER NOT NULL CHECK (refs >= 0),
    -- When refs became 0, or when the row was made without a reference.
    zero_since_ns INTEGER CHECK ((zero_since_ns IS NULL) = (refs > 0)),
    -- 0 ok, 1 missing, 2 damaged
    state         INTEGER NOT NULL DEFAULT 0 CHECK (state BETWEEN 0 AND 2)
) STRICT;

CREATE INDEX blobs_unreferenced ON blobs (zero_since_ns) WHERE refs = 0;
CREATE INDEX blobs_not_ok ON blobs (state) WHERE state <> 0;

CREATE TABLE pages (
    blob  INTEGER PRIMARY KEY REFERENCES blobs (id),
    -- 0 where the page holds entries.
    level INTEGER NOT NULL CHECK (level BETWEEN 0 AND 7),
    -- Files and symlinks below it whose content is held, and the bytes of the files.
    files INTEGER NOT NULL,
    bytes INTEGER NOT NULL
) STRICT;

CREATE TABLE page_links (
    page     INTEGER NOT NULL REFERENCES pages (blob),
    position INTEGER NOT NULL,
    child    INTEGER NOT NULL REFERENCES pages (blob),
    PRIMARY KEY (page, position)
) STRICT, WITHOUT ROWID;

CREATE INDEX page_links_by_child ON page_links (child);

CREATE TABLE entries (
    page     INTEGER NOT NULL REFERENCES pages (blob),
    path     BLOB    NOT NULL,
    -- 0 file, 1 symlink, 2 dir, 3 omitted, 4 absent (only in what a restore leaves)
    kind     INTEGER NOT NULL CHECK (kind BETWEEN 0 AND 4),
    mode     INTEGER NOT NULL CHECK (mode BETWEEN 0 AND 4095),
    size     INTEGER,
    mtime_ns INTEGER,
    blob     INTEGER REFERENCES blobs (id) CHECK ((blob IS NULL) = (kind <> 0)),
    target   BLOB,
    reason   TEXT,
    rest     INTEGER,
    -- dir: 0 partial, 1 whole
    listed   INTEGER,
    unstable INTEGER,
    PRIMARY KEY (page, path)
) STRICT, WITHOUT ROWID;

CREATE INDEX entries_by_blob ON entries (blob) WHERE blob IS NOT NULL;

CREATE TABLE checkpoints (
    -- Ascending in the order of recording; never given twice.
    id                     INTEGER PRIMARY KEY AUTOINCREMENT,
    session                INTEGER NOT NULL REFERENCES sessions (id),
    seq                    INTEGER NOT NULL CHECK (seq >= 0),
    workspace              INTEGER NOT NULL REFERENCES workspaces (id),
    op                     BLOB    NOT NULL CHECK (length(op) = 16),
    digest                 BLOB    NOT NULL CHECK (length(digest) = 16),
    created_at_ns          INTEGER NOT NULL,
    -- The manifest's; a label given later is pin_label.
    label                  TEXT,
    trigger                TEXT    NOT NULL,
    parent_session         TEXT,
    parent_seq             INTEGER,
    parent_digest          BLOB,
    coverage               TEXT    NOT NULL CHECK (coverage IN ('full', 'hinted', 'paths')),
    complete               INTEGER NOT NULL CHECK (complete IN (0, 1)),
    -- A checkpoint marked `pruning` is gone for every reader.
    state                  TEXT    NOT NULL CHECK (state IN ('live', 'pruning')),
    pinned                 INTEGER NOT NULL CHECK (pinned IN (0, 1)),
    pin_label              TEXT,
    note                   TEXT,
    root_blob              INTEGER NOT NULL REFERENCES pages (blob),
    levels                 INTEGER NOT NULL,
    entries                INTEGER NOT NULL,
    after_root_blob        INTEGER REFERENCES pages (blob),
    after_levels           INTEGER,
    after_entries          INTEGER,
    files_observed         INTEGER NOT NULL,
    files_reused           INTEGER NOT NULL,
    files_read             INTEGER NOT NULL,
    bytes_read             INTEGER NOT NULL,
    bytes_stored           INTEGER NOT NULL,
    omitted                INTEGER NOT NULL,
    git_head               TEXT,
    git_branch             TEXT,
    restore_verb           TEXT,
    restore_target_session TEXT,
    restore_target_seq     INTEGER,
    restore_undoes_session TEXT,
    restore_undoes_seq     INTEGER,
    manifest_size          INTEGER NOT NULL,
    UNIQUE (session, seq)
) STRICT;

CREATE TABLE operations (
    id             BLOB    PRIMARY KEY CHECK (length(id) = 16),
    kind           TEXT    NOT NULL,
    -- Which machine, and which run of its kernel: whether the owner can still be alive.
    machine        BLOB    NOT NULL CHECK (length(machine) = 16),
    boot           BLOB    NOT NULL CHECK (length(boot) = 16),
    started_at_ns  INTEGER NOT NULL,
    workspace      BLOB,
    base           INTEGER REFERENCES checkpoints (id),
    -- The checkpoint whose manifest it is about to write.
    intent_session TEXT,
    intent_seq     INTEGER,
    -- Protects every blob there is.
    pin_all        INTEGER NOT NULL DEFAULT 0 CHECK (pin_all IN (0, 1))
) STRICT, WITHOUT ROWID;

CREATE TABLE pins (
    hash      BLOB NOT NULL CHECK (length(hash) = 32),
    operation BLOB NOT NULL REFERENCES operations (id),
    PRIMARY KEY (hash, operation)
) STRICT, WITHOUT ROWID;

CREATE TABLE pinned_checkpoints (
    checkpoint INTEGER NOT NULL REFERENCES checkpoints (id),
    operation  BLOB    NOT NULL REFERENCES operations (id),
    PRIMARY KEY (checkpoint, operation)
) STRICT, WITHOUT ROWID;
