-- name: schema
CREATE TABLE IF NOT EXISTS messages (
    mid INTEGER PRIMARY KEY,
    shard INTEGER NOT NULL,
    expires INTEGER,
    message BLOB NOT NULL,
    instructions BLOB NOT NULL,
    payload_bytes INTEGER
);
CREATE TABLE IF NOT EXISTS queue (
    row INTEGER PRIMARY KEY,
    mid INTEGER NOT NULL,
    session TEXT NOT NULL,
    entry BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS queue_by_session ON queue (session, row);
CREATE INDEX IF NOT EXISTS queue_by_message ON queue (mid);
CREATE INDEX IF NOT EXISTS messages_by_expiry ON messages (expires) WHERE expires IS NOT NULL;
CREATE TABLE IF NOT EXISTS finished (mid INTEGER PRIMARY KEY, message BLOB NOT NULL, instructions BLOB NOT NULL, shard INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS positions (name TEXT PRIMARY KEY, state BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS keyed (id TEXT PRIMARY KEY, print BLOB NOT NULL, at_ms INTEGER NOT NULL);

-- name: has_payload_bytes
SELECT count(*) FROM pragma_table_info('messages') WHERE name = 'payload_bytes';

-- name: add_payload_bytes
ALTER TABLE messages ADD COLUMN payload_bytes INTEGER;

-- name: add_message
INSERT INTO messages (mid, shard, expires, message, instructions, payload_bytes) VALUES (?, ?, ?, ?, ?, ?);

-- name: instructions_of
SELECT instructions FROM messages WHERE mid = ?;

-- name: put_instructions
UPDATE messages SET instructions = ? WHERE mid = ?;

-- name: add_finished
INSERT INTO finished (mid, message, instructions, shard) VALUES (?, ?, ?, ?);

-- name: add_row
INSERT INTO queue (row, mid, session, entry) VALUES (?, ?, ?, ?);

-- name: delete_row
DELETE FROM queue WHERE row = ? RETURNING mid;

-- name: delete_session
DELETE FROM queue WHERE session = ? RETURNING mid;

-- name: finish_message
INSERT OR IGNORE INTO finished (mid, message, instructions, shard)
SELECT mid, message, instructions, shard FROM messages
WHERE mid = ?1 AND NOT EXISTS (SELECT 1 FROM queue WHERE mid = ?1);

-- name: delete_finished_message
DELETE FROM messages WHERE mid IN (SELECT mid FROM finished);

-- name: finished
SELECT mid, message, instructions, shard FROM finished ORDER BY mid;

-- name: forget_finished
DELETE FROM finished WHERE mid = ?;

-- name: put_position
INSERT INTO positions (name, state) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET state = excluded.state;

-- name: delete_position
DELETE FROM positions WHERE name = ?;

-- name: count_rows
SELECT count(*) FROM queue;

-- name: put_keyed
INSERT INTO keyed (id, print, at_ms) VALUES (?, ?, ?)
ON CONFLICT (id) DO UPDATE SET print = excluded.print, at_ms = excluded.at_ms;

-- name: delete_keyed
DELETE FROM keyed WHERE id = ?;

-- name: keyed
SELECT id, print, at_ms FROM keyed ORDER BY at_ms;

-- name: positions
SELECT name, state FROM positions;

-- name: load
SELECT queue.row, queue.session, queue.entry, messages.message, messages.instructions, messages.shard
FROM queue JOIN messages ON messages.mid = queue.mid
WHERE queue.session = ? AND queue.row > ? ORDER BY queue.row LIMIT ?;

-- name: expired
SELECT queue.row, queue.session, queue.entry, messages.message, messages.instructions, messages.shard
FROM messages JOIN queue ON queue.mid = messages.mid
WHERE messages.expires <= ? LIMIT 1000;

-- name: backlogs
SELECT queue.session, count(*), sum(coalesce(messages.payload_bytes, length(messages.message))) FROM queue
JOIN messages ON messages.mid = queue.mid GROUP BY queue.session;

-- name: last_numbers
SELECT coalesce((SELECT max(mid) FROM (SELECT mid FROM messages UNION ALL SELECT mid FROM finished)), 0),
       coalesce((SELECT max(row) FROM queue), 0);
