-- Entries are found by their page and by nothing else. Newer versions of SQLite make an index of their own
-- for `kind = 3`, or for a condition on a path or a size, and then go through all pages of a checkpoint for
-- each row that it gives: half a minute instead of half a second. The sign `+` keeps a column out of that,
-- and takes its affinity: with the cast a number is compared with a text as before.

DROP VIEW checkpoint_files;
DROP VIEW omitted;
DROP VIEW step_paths;

CREATE VIEW checkpoint_files AS
SELECT
    s.name AS session,
    c.seq AS seq,
    CAST(e.path AS TEXT) AS path,
    +e.path AS path_bytes,
    CASE e.kind WHEN 0 THEN 'file' ELSE 'symlink' END AS kind,
    printf('%04o', e.mode) AS mode,
    CAST(+e.size AS INTEGER) AS size,
    CAST(+e.mtime_ns AS INTEGER) AS mtime_ns,
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
WHERE +e.kind <= 1;

CREATE VIEW omitted AS
SELECT
    s.name AS session,
    c.seq AS seq,
    CAST(e.path AS TEXT) AS path,
    +e.path AS path_bytes,
    +e.reason AS reason,
    coalesce(e.rest, 0) AS rest
FROM sessions s
CROSS JOIN checkpoints c ON c.session = s.id AND c.state = 'live'
CROSS JOIN entries e ON e.page IN (
    WITH RECURSIVE tree (page) AS (
        SELECT c.root_blob
        UNION ALL SELECT l.child FROM tree CROSS JOIN page_links l ON l.page = tree.page)
    SELECT page FROM tree)
WHERE +e.kind = 3;

-- As before but for the sign.
CREATE VIEW step_paths AS
WITH sides (side) AS (VALUES (0), (1))
SELECT
    t.step, t.session, t.start_seq, t.seq, +e.path AS path,
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
GROUP BY t.seq, +e.path, t.start_seq, t.session, t.step;
