-- Entries by their place in the page. With the path in the primary key each row of entries_by_blob held
-- the path again: 105 bytes of index for each entry, written at a random place; now it is about 12.

-- Views name the table while it is away, and are not to be looked at then.
PRAGMA legacy_alter_table = ON;

CREATE TABLE entries_by_position (
    page     INTEGER NOT NULL REFERENCES pages (blob),
    -- In the order of paths.
    position INTEGER NOT NULL CHECK (position >= 0),
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
    PRIMARY KEY (page, position)
) STRICT, WITHOUT ROWID;

INSERT INTO entries_by_position
SELECT page, row_number() OVER (PARTITION BY page ORDER BY path) - 1, path, kind, mode, size, mtime_ns,
    blob, target, reason, rest, listed, unstable
FROM entries ORDER BY page, path;

DROP TABLE entries;
ALTER TABLE entries_by_position RENAME TO entries;
CREATE INDEX entries_by_blob ON entries (blob) WHERE blob IS NOT NULL;

PRAGMA legacy_alter_table = OFF;
