-- The index: what manifests and pages say, in a form that can be asked.
--
-- Derived and disposable: a rebuild reads manifests and pages again. Only `operations` with its pins
-- says something that no file says; losing it is safe, since an operation looks for its row before
-- it commits. Tables are private and may change with any version; the views below are for people and
-- stay. docs/sql.md describes them. Nothing here is newer than SQLite 3.37.
--
-- A reference is a row. checkpoints.root_blob and after_root_blob, and page_links.child, name a page;
-- pages.refs counts them. A row of `pages`, with its outgoing rows in page_links and entries, exists
-- exactly while something names the page. A row of `pages`, and entries.blob, name a blob; blobs.refs
-- counts them. The foreign keys repeat the rule: what a row names cannot be deleted. Pages have a
-- counter of their own because an edit gives a new parent to all pages beside the edited one: their
-- counters lie close together here, and far apart among the blobs.
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
    refs  INTEGER NOT NULL CHECK (refs > 0),
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
    -- Ascending in the order of recording. AUTOINCREMENT would write one more page with each
    -- checkpoint; foreign keys keep an id that is in use from being given anew.
    id                     INTEGER PRIMARY KEY,
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

-- Views for people. A checkpoint that is being pruned is in none of them. They follow pages, so that
-- two checkpoints are compared by the pages that differ. CROSS JOIN fixes the order of the loops.

CREATE VIEW checkpoint_list AS
SELECT
    s.name AS session,
    c.seq AS seq,
    strftime('%Y-%m-%dT%H:%M:%S', c.created_at_ns / 1000000000, 'unixepoch')
        || printf('.%09dZ', c.created_at_ns % 1000000000) AS created_at,
    lower(hex(w.uuid)) AS workspace,
    CAST(w.root AS TEXT) AS workspace_root,
    coalesce(c.pin_label, c.label) AS label,
    c.trigger AS trigger,
    c.complete AS complete,
    c.coverage AS coverage,
    c.pinned AS pinned,
    c.note AS note,
    p.files AS files,
    p.bytes AS bytes,
    c.omitted AS omitted,
    c.files_observed AS files_observed,
    c.files_reused AS files_reused,
    c.files_read AS files_read,
    c.bytes_read AS bytes_read,
    c.bytes_stored AS bytes_stored,
    c.git_head AS git_head,
    c.git_branch AS git_branch,
    c.restore_verb AS restore_verb,
    c.restore_target_session AS restore_target_session,
    c.restore_target_seq AS restore_target_seq
FROM sessions s
CROSS JOIN checkpoints c ON c.session = s.id AND c.state = 'live'
CROSS JOIN workspaces w ON w.id = c.workspace
CROSS JOIN pages p ON p.blob = c.root_blob;

CREATE VIEW checkpoint_files AS
SELECT
    s.name AS session,
    c.seq AS seq,
    CAST(e.path AS TEXT) AS path,
    e.path AS path_bytes,
    CASE e.kind WHEN 0 THEN 'file' ELSE 'symlink' END AS kind,
    printf('%04o', e.mode) AS mode,
    e.size AS size,
    e.mtime_ns AS mtime_ns,
    lower(hex(b.hash)) AS hash,
    CAST(e.target AS TEXT) AS target
FROM sessions s
CROSS JOIN checkpoints c ON c.session = s.id AND c.state = 'live'
CROSS JOIN entries e ON e.page IN (
    WITH RECURSIVE tree (page) AS (
        SELECT c.root_blob
        UNION ALL SELECT l.child FROM tree CROSS JOIN page_links l ON l.page = tree.page)
    SELECT page FROM tree)
LEFT JOIN blobs b ON b.id = e.blob
WHERE e.kind <= 1;

CREATE VIEW omitted AS
SELECT
    s.name AS session,
    c.seq AS seq,
    CAST(e.path AS TEXT) AS path,
    e.path AS path_bytes,
    e.reason AS reason,
    coalesce(e.rest, 0) AS rest
FROM sessions s
CROSS JOIN checkpoints c ON c.session = s.id AND c.state = 'live'
CROSS JOIN entries e ON e.page IN (
    WITH RECURSIVE tree (page) AS (
        SELECT c.root_blob
        UNION ALL SELECT l.child FROM tree CROSS JOIN page_links l ON l.page = tree.page)
    SELECT page FROM tree)
WHERE e.kind = 3;

-- Not for people: which checkpoint is compared with which. `first`: with nothing; `next`: with the
-- next lower number of the same session and workspace; `turn`: the end of a turn with its start.
CREATE VIEW steps AS
SELECT
    'first' AS step, s.name AS session, NULL AS start_seq, c.seq AS seq,
    NULL AS before, c.id AS after
FROM sessions s
CROSS JOIN checkpoints c ON c.session = s.id AND c.state = 'live'
WHERE NOT EXISTS (
    SELECT 1 FROM checkpoints q
    WHERE q.session = c.session AND q.seq < c.seq AND q.workspace = c.workspace
        AND q.state = 'live')
UNION ALL
SELECT 'next', s.name, p.seq, c.seq, p.id, c.id
FROM sessions s
CROSS JOIN checkpoints c ON c.session = s.id AND c.state = 'live'
CROSS JOIN checkpoints p ON p.id = (
    SELECT q.id FROM checkpoints q
    WHERE q.session = c.session AND q.seq < c.seq AND q.workspace = c.workspace
        AND q.state = 'live'
    ORDER BY q.seq DESC LIMIT 1)
UNION ALL
SELECT 'turn', s.name, p.seq, c.seq, p.id, c.id
FROM sessions s
CROSS JOIN checkpoints c ON c.session = s.id AND c.state = 'live' AND c.trigger = 'turn-end'
CROSS JOIN checkpoints p ON p.trigger = 'turn-start' AND p.id = (
    SELECT q.id FROM checkpoints q
    WHERE q.session = c.session AND q.seq < c.seq AND q.workspace = c.workspace
        AND q.state = 'live' AND q.trigger IN ('turn-start', 'turn-end')
    ORDER BY q.seq DESC LIMIT 1);

-- Not for people: the paths of a step that lie in pages of one side only, both sides beside each
-- other; side 0 before, side 1 after. From the highest level of pages down, a page that both sides
-- have goes away with all below it, so only what differs is visited. The list of pages is asked for
-- one step at a time, so that a condition on session, seq or step saves the work for the others.
CREATE VIEW step_paths AS
WITH sides (side) AS (VALUES (0), (1))
SELECT
    t.step, t.session, t.start_seq, t.seq, e.path,
    max(e.kind) FILTER (WHERE w.side = 0) AS old_kind,
    max(e.mode) FILTER (WHERE w.side = 0) AS old_mode,
    max(e.blob) FILTER (WHERE w.side = 0) AS old_blob,
    max(e.target) FILTER (WHERE w.side = 0) AS old_target,
    max(e.kind) FILTER (WHERE w.side = 1) AS kind,
    max(e.mode) FILTER (WHERE w.side = 1) AS mode,
    max(e.blob) FILTER (WHERE w.side = 1) AS blob,
    max(e.target) FILTER (WHERE w.side = 1) AS target,
    max(e.size) FILTER (WHERE w.side = 1) AS size
FROM steps t
CROSS JOIN sides w
CROSS JOIN entries e ON e.page IN (
    WITH
        roots (level, page, side) AS (
            SELECT levels - 1, root_blob, 0 FROM checkpoints WHERE id = t.before
            UNION ALL SELECT levels - 1, root_blob, 1 FROM checkpoints WHERE id = t.after),
        d7 AS (SELECT page, min(side) AS side FROM (
            SELECT page, side FROM roots WHERE level = 7)
            GROUP BY page HAVING count(*) = 1),
        d6 AS (SELECT page, min(side) AS side FROM (
            SELECT l.child AS page, d.side AS side
            FROM d7 d CROSS JOIN page_links l ON l.page = d.page
            UNION ALL SELECT page, side FROM roots WHERE level = 6)
            GROUP BY page HAVING count(*) = 1),
        d5 AS (SELECT page, min(side) AS side FROM (
            SELECT l.child AS page, d.side AS side
            FROM d6 d CROSS JOIN page_links l ON l.page = d.page
            UNION ALL SELECT page, side FROM roots WHERE level = 5)
            GROUP BY page HAVING count(*) = 1),
        d4 AS (SELECT page, min(side) AS side FROM (
            SELECT l.child AS page, d.side AS side
            FROM d5 d CROSS JOIN page_links l ON l.page = d.page
            UNION ALL SELECT page, side FROM roots WHERE level = 4)
            GROUP BY page HAVING count(*) = 1),
        d3 AS (SELECT page, min(side) AS side FROM (
            SELECT l.child AS page, d.side AS side
            FROM d4 d CROSS JOIN page_links l ON l.page = d.page
            UNION ALL SELECT page, side FROM roots WHERE level = 3)
            GROUP BY page HAVING count(*) = 1),
        d2 AS (SELECT page, min(side) AS side FROM (
            SELECT l.child AS page, d.side AS side
            FROM d3 d CROSS JOIN page_links l ON l.page = d.page
            UNION ALL SELECT page, side FROM roots WHERE level = 2)
            GROUP BY page HAVING count(*) = 1),
        d1 AS (SELECT page, min(side) AS side FROM (
            SELECT l.child AS page, d.side AS side
            FROM d2 d CROSS JOIN page_links l ON l.page = d.page
            UNION ALL SELECT page, side FROM roots WHERE level = 1)
            GROUP BY page HAVING count(*) = 1),
        d0 AS (SELECT page, min(side) AS side FROM (
            SELECT l.child AS page, d.side AS side
            FROM d1 d CROSS JOIN page_links l ON l.page = d.page
            UNION ALL SELECT page, side FROM roots WHERE level = 0)
            GROUP BY page HAVING count(*) = 1)
    SELECT page FROM d0 WHERE side = w.side)
GROUP BY t.seq, e.path, t.start_seq, t.session, t.step;

-- Not for people: what became of each path of a step that is not as before. Files and symlinks; a
-- directory or an omitted name only where the path held, or holds, something of another kind.
CREATE VIEW step_changes AS
SELECT *,
    CASE
        WHEN kind IS NULL THEN CASE WHEN old_kind <= 1 THEN 'deleted' END
        WHEN old_kind IS NULL THEN CASE WHEN kind <= 1 THEN 'added' END
        WHEN old_kind <> kind THEN 'type'
        WHEN kind > 1 THEN NULL
        WHEN old_blob IS NOT blob OR old_target IS NOT target THEN 'modified'
        WHEN old_mode <> mode THEN 'mode'
    END AS change
FROM step_paths;

CREATE VIEW changes AS
SELECT session, seq, CAST(path AS TEXT) AS path, change, path AS path_bytes
FROM step_changes
WHERE step = 'next' AND change IS NOT NULL;

CREATE VIEW file_history AS
SELECT
    h.session AS session,
    h.seq AS seq,
    CAST(h.path AS TEXT) AS path,
    h.change AS change,
    CASE h.kind
        WHEN 0 THEN 'file' WHEN 1 THEN 'symlink' WHEN 2 THEN 'dir' WHEN 3 THEN 'omitted'
    END AS kind,
    CASE WHEN h.mode IS NOT NULL THEN printf('%04o', h.mode) END AS mode,
    h.size AS size,
    lower(hex(b.hash)) AS hash,
    h.path AS path_bytes
FROM step_changes h
LEFT JOIN blobs b ON b.id = h.blob
WHERE h.step IN ('first', 'next') AND h.change IS NOT NULL;

CREATE VIEW turn_changes AS
SELECT session, start_seq, seq AS end_seq, CAST(path AS TEXT) AS path, change, path AS path_bytes
FROM step_changes
WHERE step = 'turn' AND change IS NOT NULL;

CREATE VIEW turns AS
SELECT
    t.session AS session,
    t.start_seq AS start_seq,
    t.seq AS end_seq,
    a.created_at AS started_at,
    z.created_at AS ended_at,
    count(*) FILTER (WHERE x.change = 'added') AS added,
    count(*) FILTER (WHERE x.change = 'modified') AS modified,
    count(*) FILTER (WHERE x.change = 'deleted') AS deleted,
    count(*) FILTER (WHERE x.change = 'mode') AS mode,
    count(*) FILTER (WHERE x.change = 'type') AS type
FROM steps t
JOIN checkpoint_list a ON a.session = t.session AND a.seq = t.start_seq
JOIN checkpoint_list z ON z.session = t.session AND z.seq = t.seq
LEFT JOIN turn_changes x
    ON x.session = t.session AND x.start_seq = t.start_seq AND x.end_seq = t.seq
WHERE t.step = 'turn'
GROUP BY t.session, t.start_seq, t.seq;

CREATE VIEW session_summary AS
SELECT
    c.session AS session,
    count(*) FILTER (WHERE c.trigger <> 'pre-restore') AS checkpoints,
    count(*) FILTER (WHERE c.trigger = 'pre-restore') AS safety_checkpoints,
    min(c.created_at) AS first_at,
    max(c.created_at) AS last_at,
    max(c.seq) FILTER (WHERE c.trigger <> 'pre-restore') AS latest_seq,
    (SELECT l.files FROM checkpoint_list l
     WHERE l.session = c.session AND l.trigger <> 'pre-restore'
     ORDER BY l.seq DESC LIMIT 1) AS files,
    (SELECT l.bytes FROM checkpoint_list l
     WHERE l.session = c.session AND l.trigger <> 'pre-restore'
     ORDER BY l.seq DESC LIMIT 1) AS bytes,
    count(*) FILTER (WHERE c.complete = 0) AS incomplete
FROM checkpoint_list c
GROUP BY c.session;

CREATE VIEW storage AS
WITH RECURSIVE
    held (session, page) AS (
        SELECT session, root_blob FROM checkpoints WHERE state = 'live'
        UNION SELECT session, after_root_blob FROM checkpoints
        WHERE state = 'live' AND after_root_blob IS NOT NULL
        UNION SELECT held.session, l.child
        FROM held CROSS JOIN page_links l ON l.page = held.page),
    named (session, blob) AS MATERIALIZED (
        SELECT session, page FROM held
        UNION SELECT held.session, e.blob
        FROM held CROSS JOIN entries e ON e.page = held.page WHERE e.blob IS NOT NULL),
    shares (session, sessions, blob) AS MATERIALIZED (
        SELECT min(session), count(*), blob FROM named GROUP BY blob),
    sizes (blob, sessions, stored) AS MATERIALIZED (
        SELECT h.blob, h.sessions, coalesce(b.stored_size, b.size, 0)
        FROM shares h CROSS JOIN blobs b ON b.id = h.blob),
    logical (session, checkpoints, bytes) AS MATERIALIZED (
        SELECT c.session, count(*), sum(p.bytes)
        FROM checkpoints c CROSS JOIN pages p ON p.blob = c.root_blob
        WHERE c.state = 'live' GROUP BY c.session)
SELECT
    s.name AS session,
    g.checkpoints AS checkpoints,
    g.bytes AS logical_bytes,
    sum(z.stored) AS stored_bytes,
    coalesce(sum(z.stored) FILTER (WHERE z.sessions = 1), 0) AS unique_bytes,
    coalesce(sum(z.stored) FILTER (WHERE z.sessions > 1), 0) AS shared_bytes
FROM sessions s
JOIN logical g ON g.session = s.id
JOIN named n ON n.session = s.id
JOIN sizes z ON z.blob = n.blob
GROUP BY s.id
UNION ALL
SELECT
    NULL,
    (SELECT coalesce(sum(checkpoints), 0) FROM logical),
    (SELECT coalesce(sum(bytes), 0) FROM logical),
    coalesce(sum(stored), 0),
    coalesce(sum(stored) FILTER (WHERE sessions = 1), 0),
    coalesce(sum(stored) FILTER (WHERE sessions > 1), 0)
FROM sizes;
