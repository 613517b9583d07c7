-- name: schema
CREATE TABLE streams (stream TEXT PRIMARY KEY, state BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE partitions (partition INTEGER PRIMARY KEY, position INTEGER NOT NULL, append_ms INTEGER NOT NULL);
CREATE TABLE ended (name TEXT PRIMARY KEY, epoch INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE subscriber (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    name TEXT NOT NULL,
    feed TEXT NOT NULL,
    source TEXT NOT NULL,
    current INTEGER NOT NULL
)

-- name: begin
INSERT INTO subscriber VALUES (1, ?, ?, ?, 0);

-- name: subscriber
SELECT name, feed, source, current FROM subscriber;

-- name: streams
SELECT state FROM streams;

-- name: partitions
SELECT partition, position, append_ms FROM partitions;

-- name: ended
SELECT name, epoch FROM ended;

-- name: save_stream
INSERT INTO streams VALUES (?, ?) ON CONFLICT (stream) DO UPDATE SET state = excluded.state;

-- name: remove_stream
DELETE FROM streams WHERE stream = ?;

-- name: save_partition
INSERT INTO partitions VALUES (?, ?, ?)
ON CONFLICT (partition) DO UPDATE SET position = excluded.position, append_ms = excluded.append_ms;

-- name: remove_partition
DELETE FROM partitions WHERE partition = ?;

-- name: save_ended
INSERT INTO ended VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET epoch = excluded.epoch;

-- name: save_current
UPDATE subscriber SET current = ?;
