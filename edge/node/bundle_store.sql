-- name: schema
CREATE TABLE node (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    name TEXT NOT NULL,
    incarnation INTEGER NOT NULL,
    last_sequence INTEGER NOT NULL,
    clock_s REAL NOT NULL,
    wall_s REAL NOT NULL
);
CREATE TABLE bundle (
    number INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE,
    header BLOB NOT NULL,
    signature BLOB NOT NULL,
    hops INTEGER NOT NULL,
    age_s INTEGER NOT NULL,
    copies INTEGER,
    since REAL NOT NULL,
    size INTEGER NOT NULL
);
CREATE TABLE ciphertext (number INTEGER PRIMARY KEY, ciphertext BLOB NOT NULL);
CREATE TABLE unsealed (
    sequence INTEGER PRIMARY KEY,
    since REAL NOT NULL,
    size INTEGER NOT NULL,
    header BLOB NOT NULL,
    plaintext BLOB NOT NULL
);
CREATE TABLE receipt (number INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, receipt BLOB NOT NULL);
CREATE TABLE at_platform (
    sequence INTEGER PRIMARY KEY,
    recipient TEXT NOT NULL,
    until_s REAL NOT NULL,
    id TEXT NOT NULL
);
CREATE TABLE seen (
    number INTEGER PRIMARY KEY,
    source BLOB NOT NULL UNIQUE,
    low_water BLOB NOT NULL,
    used_s REAL NOT NULL
);
CREATE TABLE taken (source INTEGER NOT NULL, sequence BLOB NOT NULL, PRIMARY KEY (source, sequence)) WITHOUT ROWID;
CREATE TABLE inbox (
    number INTEGER PRIMARY KEY,
    size INTEGER NOT NULL,
    header BLOB NOT NULL,
    plaintext BLOB NOT NULL
);
CREATE TABLE notice (number INTEGER PRIMARY KEY, id TEXT NOT NULL, receipt BLOB, reason TEXT NOT NULL);
CREATE TABLE certificate (number INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, certificate BLOB NOT NULL);
CREATE TABLE revocations (id INTEGER PRIMARY KEY CHECK (id = 1), list BLOB NOT NULL);
CREATE TABLE report (number INTEGER PRIMARY KEY, event BLOB NOT NULL)

-- name: node
SELECT name, incarnation, last_sequence, clock_s, wall_s FROM node;

-- name: save_node
INSERT OR REPLACE INTO node VALUES (1, ?, ?, ?, ?, ?);

-- name: bundles
SELECT id, header, hops, age_s, copies, since, size FROM bundle ORDER BY number;

-- name: last_bundle
SELECT coalesce(max(number), 0) FROM bundle;

-- name: add
INSERT OR IGNORE INTO bundle VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: add_ciphertext
INSERT INTO ciphertext SELECT number, ? FROM bundle WHERE number = ?;

-- name: ciphertext
SELECT ciphertext, signature FROM bundle JOIN ciphertext USING (number) WHERE id = ?;

-- name: set_copies
UPDATE bundle SET copies = ? WHERE id = ?;

-- name: remove_ciphertext
DELETE FROM ciphertext WHERE number = (SELECT number FROM bundle WHERE id = ?);

-- name: remove
DELETE FROM bundle WHERE id = ?;

-- name: add_unsealed
INSERT INTO unsealed VALUES (?, ?, ?, ?, ?);

-- name: unsealed
SELECT since, size, header FROM unsealed ORDER BY sequence;

-- name: plaintext
SELECT plaintext FROM unsealed WHERE sequence = ?;

-- name: remove_unsealed
DELETE FROM unsealed WHERE sequence = ?;

-- name: add_receipt
INSERT OR REPLACE INTO receipt (id, receipt) VALUES (?, ?);

-- name: forget_receipt
DELETE FROM receipt WHERE id = ?;

-- name: bound_receipts
DELETE FROM receipt WHERE number <= (SELECT number FROM receipt ORDER BY number DESC LIMIT 1 OFFSET ?);

-- name: receipts
SELECT receipt FROM receipt ORDER BY number;

-- name: receipt
SELECT receipt FROM receipt WHERE id = ?;

-- name: at_platform
SELECT sequence, recipient, until_s, id FROM at_platform ORDER BY until_s;

-- name: save_at_platform
INSERT OR REPLACE INTO at_platform VALUES (?, ?, ?, ?);

-- name: remove_at_platform
DELETE FROM at_platform WHERE sequence = ?;

-- name: save_seen
INSERT INTO seen (source, low_water, used_s) VALUES (?, ?, ?)
ON CONFLICT (source) DO UPDATE SET low_water = excluded.low_water, used_s = excluded.used_s;

-- name: add_taken
INSERT OR IGNORE INTO taken SELECT number, ?2 FROM seen WHERE source = ?1 AND low_water <= ?2;

-- name: remove_taken_below
DELETE FROM taken WHERE source = (SELECT number FROM seen WHERE source = ?) AND sequence < ?;

-- name: forget_taken
DELETE FROM taken WHERE source = (SELECT number FROM seen WHERE source = ?);

-- name: forget_seen
DELETE FROM seen WHERE source = ?;

-- name: seen
SELECT number, source, low_water, used_s FROM seen ORDER BY used_s, number;

-- name: taken
SELECT sequence FROM taken WHERE source = ? ORDER BY sequence;

-- name: arrive
INSERT INTO inbox VALUES (?, ?, ?, ?);

-- name: inbox
SELECT number, size, header, plaintext FROM inbox WHERE number > ? ORDER BY number LIMIT ?;

-- name: inbox_totals
SELECT count(*), coalesce(sum(size), 0), coalesce(max(number), 0) FROM inbox;

-- name: hand_over
DELETE FROM inbox WHERE number = ?;

-- name: notify
INSERT INTO notice VALUES (?, ?, ?, ?);

-- name: notices
SELECT number, id, receipt, reason FROM notice WHERE number > ? ORDER BY number LIMIT ?;

-- name: last_notice
SELECT coalesce(max(number), 0) FROM notice;

-- name: tell
DELETE FROM notice WHERE number = ?;

-- name: add_certificate
INSERT OR REPLACE INTO certificate (key, certificate) VALUES (?, ?);

-- name: bound_certificates
DELETE FROM certificate WHERE number <= (SELECT max(number) FROM certificate) - ?;

-- name: certificates
SELECT certificate FROM certificate ORDER BY number;

-- name: save_revocations
INSERT OR REPLACE INTO revocations VALUES (1, ?);

-- name: revocations
SELECT list FROM revocations;

-- name: add_report
INSERT OR REPLACE INTO report VALUES (?, ?);

-- name: remove_report
DELETE FROM report WHERE number = ?;

-- name: reports
SELECT number, event FROM report ORDER BY number;
