-- name: schema
CREATE TABLE IF NOT EXISTS seen (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, is_written INTEGER NOT NULL)

-- name: find
SELECT is_written FROM seen WHERE id = ?;

-- name: add
INSERT INTO seen (id, is_written) VALUES (?, 0);

-- name: written
UPDATE seen SET is_written = 1 WHERE id = ?;

-- name: unwritten
SELECT id FROM seen WHERE is_written = 0;

-- name: bound
DELETE FROM seen WHERE number <= (SELECT max(number) FROM seen) - ?;
