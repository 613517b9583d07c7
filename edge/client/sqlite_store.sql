-- name: schema
CREATE TABLE outbox (
    sequence INTEGER PRIMARY KEY,
    packet_id INTEGER NOT NULL,
    expires_s REAL NOT NULL,
    size INTEGER NOT NULL,
    qos INTEGER NOT NULL,
    retain INTEGER NOT NULL,
    topic TEXT NOT NULL,
    incarnation INTEGER NOT NULL,
    properties BLOB,
    payload BLOB NOT NULL
);
CREATE TABLE inbound (packet_id INTEGER PRIMARY KEY);
CREATE TABLE released (position INTEGER PRIMARY KEY, sequence INTEGER NOT NULL UNIQUE, reason INTEGER NOT NULL);
CREATE TABLE session (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    client_id TEXT NOT NULL,
    is_established INTEGER NOT NULL,
    last_packet_id INTEGER NOT NULL,
    last_sequence INTEGER NOT NULL,
    clock_s REAL NOT NULL,
    wall_s REAL NOT NULL,
    is_taken_over INTEGER NOT NULL DEFAULT 0
);

-- name: later_schema
CREATE TABLE IF NOT EXISTS identity (id INTEGER PRIMARY KEY CHECK (id = 1), incarnation INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS open_exchange (position INTEGER PRIMARY KEY, packet_id INTEGER NOT NULL UNIQUE);

-- name: add_is_taken_over
ALTER TABLE session ADD COLUMN is_taken_over INTEGER NOT NULL DEFAULT 0;

-- name: add_incarnation
ALTER TABLE outbox ADD COLUMN incarnation INTEGER NOT NULL DEFAULT 0;

-- name: set_incarnation
UPDATE outbox SET incarnation = (SELECT incarnation FROM identity);

-- name: identify
INSERT OR IGNORE INTO identity VALUES (1, ?);

-- name: incarnation
SELECT incarnation FROM identity;

-- name: totals
SELECT count(*), coalesce(sum(size), 0), coalesce(sum(packet_id = 0), 0) FROM outbox;

-- name: in_flight
SELECT sequence, topic, payload, qos, retain, properties, expires_s, size, packet_id, incarnation FROM outbox
WHERE packet_id > 0 ORDER BY sequence;

-- name: released
SELECT sequence, reason FROM released ORDER BY position;

-- name: inbound
SELECT packet_id FROM inbound ORDER BY packet_id;

-- name: open_exchanges
SELECT packet_id FROM open_exchange ORDER BY position;

-- name: session
SELECT client_id, is_established, last_packet_id, last_sequence, clock_s, wall_s, is_taken_over FROM session;

-- name: waiting
SELECT sequence, topic, payload, qos, retain, properties, expires_s, size, packet_id, incarnation FROM outbox
WHERE sequence > ? AND packet_id = 0 ORDER BY sequence LIMIT ?;

-- name: expired
SELECT sequence, topic, qos, size FROM outbox WHERE packet_id = 0 AND expires_s <= ? ORDER BY sequence LIMIT ?;

-- name: next_expiry
SELECT min(expires_s) FROM outbox WHERE packet_id = 0;

-- name: add
INSERT INTO outbox (sequence, topic, payload, qos, retain, properties, expires_s, size, packet_id, incarnation)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: assign
UPDATE outbox SET packet_id = ? WHERE sequence = ?;

-- name: release
INSERT INTO released (sequence, reason) VALUES (?, ?);

-- name: remove
DELETE FROM outbox WHERE sequence = ?;

-- name: forget_released
DELETE FROM released WHERE sequence = ?;

-- name: accept
INSERT OR IGNORE INTO inbound VALUES (?);

-- name: complete
DELETE FROM inbound WHERE packet_id = ?;

-- name: open_exchange
INSERT OR IGNORE INTO open_exchange (packet_id) VALUES (?);

-- name: end_exchange
DELETE FROM open_exchange WHERE packet_id = ?;

-- name: save_session
INSERT OR REPLACE INTO session (
    id, client_id, is_established, last_packet_id, last_sequence, clock_s, wall_s, is_taken_over
) VALUES (1, ?, ?, ?, ?, ?, ?, ?);
