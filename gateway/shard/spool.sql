-- name: schema
CREATE TABLE messages (
    number INTEGER PRIMARY KEY,
    mid INTEGER NOT NULL,
    expires INTEGER,
    size INTEGER NOT NULL,
    bundle TEXT,
    message BLOB NOT NULL,
    instructions BLOB NOT NULL
);
CREATE INDEX messages_by_mid ON messages (mid);
CREATE INDEX messages_by_bundle ON messages (bundle) WHERE bundle IS NOT NULL;
CREATE INDEX messages_by_expiry ON messages (expires) WHERE expires IS NOT NULL;
CREATE TABLE queue (
    row INTEGER PRIMARY KEY,
    mid INTEGER NOT NULL,
    session TEXT NOT NULL,
    entry BLOB NOT NULL
);
CREATE INDEX queue_by_session ON queue (session, row);
CREATE INDEX queue_by_message ON queue (mid);
CREATE TABLE finished (mid INTEGER PRIMARY KEY);
CREATE TABLE keyed (id TEXT PRIMARY KEY, print BLOB NOT NULL, at_ms INTEGER NOT NULL);
CREATE TABLE finished_clients (position INTEGER NOT NULL, part INTEGER NOT NULL, clients BLOB NOT NULL, PRIMARY KEY (position, part));
CREATE TABLE bundles (key BLOB PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE sources (key BLOB PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE fences (epoch INTEGER PRIMARY KEY);
CREATE TABLE unmended (key BLOB PRIMARY KEY);
CREATE TABLE leftovers (key BLOB PRIMARY KEY, row INTEGER, number INTEGER);
CREATE TABLE state (
    marker BLOB,
    next_offset INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    seen_mid INTEGER NOT NULL,
    seen_row INTEGER NOT NULL
);
INSERT INTO state VALUES (NULL, 0, 0, 0, 0);

-- name: tables
SELECT name FROM sqlite_master WHERE type = 'table';

-- name: put_message
INSERT OR REPLACE INTO messages (number, mid, expires, size, bundle, message, instructions) VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: forget_messages
DELETE FROM messages WHERE number IN (SELECT value FROM json_each(?)) RETURNING mid;

-- name: put_row
INSERT OR REPLACE INTO queue (row, mid, session, entry) VALUES (?, ?, ?, ?);

-- name: delete_rows
DELETE FROM queue WHERE row IN (SELECT value FROM json_each(?)) RETURNING mid;

-- name: delete_orphans
DELETE FROM queue WHERE NOT EXISTS (SELECT 1 FROM messages WHERE number = queue.mid) RETURNING mid;

-- name: not_finished
DELETE FROM finished WHERE mid IN (SELECT value FROM json_each(?));

-- name: put_finished
INSERT INTO finished (mid) SELECT DISTINCT mid FROM messages
WHERE mid IN (SELECT value FROM json_each(?)) AND NOT EXISTS (SELECT 1 FROM queue WHERE queue.mid = messages.mid);

-- name: finished
SELECT messages.number, messages.mid, messages.message, messages.instructions
FROM finished JOIN messages ON messages.mid = finished.mid ORDER BY messages.mid, messages.number;

-- name: further_instructions
SELECT mid, instructions FROM messages
WHERE mid IN (SELECT value FROM json_each(?)) AND number <> mid ORDER BY number;

-- name: put_keyed
INSERT OR REPLACE INTO keyed (id, print, at_ms) VALUES (?, ?, ?);

-- name: delete_keyed
DELETE FROM keyed WHERE id = ?;

-- name: keyed
SELECT id, print, at_ms FROM keyed ORDER BY at_ms, id;

-- name: put_bundles
INSERT OR REPLACE INTO bundles (key, value) VALUES (?, ?);

-- name: delete_bundles
DELETE FROM bundles WHERE key = ?;

-- name: bundles
SELECT value FROM bundles ORDER BY key;

-- name: put_sources
INSERT OR REPLACE INTO sources (key, value) VALUES (?, ?);

-- name: delete_sources
DELETE FROM sources WHERE key = ?;

-- name: sources
SELECT key, value FROM sources ORDER BY key;

-- name: put_part
INSERT OR REPLACE INTO finished_clients (position, part, clients) VALUES (?, ?, ?);

-- name: delete_part
DELETE FROM finished_clients WHERE position = ? AND part = ?;

-- name: finished_clients
SELECT position, part, clients FROM finished_clients ORDER BY position, part;

-- name: put_marker
UPDATE state SET marker = ?;

-- name: put_state
UPDATE state SET next_offset = ?, at_ms = ?, seen_mid = max(seen_mid, ?), seen_row = max(seen_row, ?);

-- name: state
SELECT marker, next_offset, at_ms FROM state;

-- name: last_numbers
SELECT seen_mid, seen_row FROM state;

-- name: delete_fences
DELETE FROM fences;

-- name: put_fence
INSERT INTO fences (epoch) VALUES (?);

-- name: fences
SELECT epoch FROM fences ORDER BY epoch;

-- name: delete_unmended
DELETE FROM unmended;

-- name: put_unmended
INSERT INTO unmended (key) VALUES (?);

-- name: unmended
SELECT key FROM unmended ORDER BY rowid;

-- name: message_value
SELECT mid, message, instructions FROM messages WHERE number = ?;

-- name: row_value
SELECT mid, session, entry FROM queue WHERE row = ?;

-- name: keyed_value
SELECT print, at_ms FROM keyed WHERE id = ?;

-- name: part_value
SELECT clients FROM finished_clients WHERE position = ? AND part = ?;

-- name: bundles_value
SELECT value FROM bundles WHERE key = ?;

-- name: sources_value
SELECT value FROM sources WHERE key = ?;

-- name: uncommitted_messages
SELECT number FROM messages WHERE number > ? ORDER BY number;

-- name: uncommitted_rows
SELECT row FROM queue WHERE row > ? ORDER BY row;

-- name: put_leftover
INSERT OR REPLACE INTO leftovers (key, row, number) VALUES (?, ?, ?);

-- name: delete_leftovers
DELETE FROM leftovers WHERE row <= ? OR number <= ?;

-- name: leftovers
SELECT key FROM leftovers ORDER BY number, row;

-- name: count_rows
SELECT count(*) FROM queue;

-- name: load
SELECT queue.row, queue.mid, queue.session, queue.entry, messages.message, messages.instructions
FROM queue JOIN messages ON messages.number = queue.mid
WHERE queue.session = ? AND queue.row > ? ORDER BY queue.row LIMIT ?;

-- name: scanned_to
SELECT max(row) FROM (SELECT row FROM queue WHERE session = ? AND row > ? ORDER BY row LIMIT ?);

-- name: bundle_rows
SELECT queue.row, queue.mid, queue.session, queue.entry, messages.message, messages.instructions
FROM queue JOIN messages ON messages.number = queue.mid
WHERE queue.session = ? AND queue.row > ? AND queue.row <= ? AND messages.bundle IS NOT NULL ORDER BY queue.row LIMIT ?;

-- name: rows_of_bundles
SELECT queue.row, queue.mid, queue.session, queue.entry, messages.message, messages.instructions
FROM messages JOIN queue ON queue.mid = messages.number
WHERE messages.bundle IN (SELECT value FROM json_each(?)) AND queue.session = ? ORDER BY queue.row;

-- name: expired
SELECT queue.row, queue.mid, queue.session, queue.entry, messages.message, messages.instructions
FROM messages JOIN queue ON queue.mid = messages.number
WHERE messages.expires <= ? AND queue.row > ? ORDER BY queue.row LIMIT 1000;

-- name: backlogs
SELECT queue.session, count(*), sum(messages.size) FROM queue
JOIN messages ON messages.number = queue.mid GROUP BY queue.session;
