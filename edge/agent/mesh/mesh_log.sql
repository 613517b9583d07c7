-- name: schema
CREATE TABLE IF NOT EXISTS own_mail (
    number INTEGER PRIMARY KEY,
    bundle TEXT NOT NULL UNIQUE,
    properties BLOB NOT NULL,
    head BLOB NOT NULL,
    state TEXT NOT NULL DEFAULT '',
    reason TEXT NOT NULL DEFAULT ''
);
CREATE INDEX IF NOT EXISTS own_mail_failed ON own_mail (number) WHERE state != '';
CREATE TABLE IF NOT EXISTS bundle_of (
    number INTEGER PRIMARY KEY,
    bundle TEXT NOT NULL,
    message TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS bundle_of_bundle ON bundle_of (bundle);
CREATE INDEX IF NOT EXISTS bundle_of_message ON bundle_of (message);
CREATE TABLE IF NOT EXISTS taken_from (
    lane TEXT PRIMARY KEY,
    spool INTEGER NOT NULL,
    number INTEGER NOT NULL
)

-- name: keep
INSERT INTO own_mail (bundle, properties, head) VALUES (?, ?, ?);

-- name: delivered
DELETE FROM own_mail WHERE bundle = ?;

-- name: fails
UPDATE own_mail SET state = ?, reason = ? WHERE bundle = ?;

-- name: failed
SELECT number, state, reason, properties, head FROM own_mail WHERE state != '' ORDER BY number LIMIT 1;

-- name: forget
DELETE FROM own_mail WHERE number = ?;

-- name: name
INSERT INTO bundle_of (bundle, message) VALUES (?, ?);

-- name: bound_names
DELETE FROM bundle_of WHERE number <= (SELECT max(number) FROM bundle_of) - ?;

-- name: messages
SELECT DISTINCT message FROM bundle_of WHERE bundle = ? LIMIT 100;

-- name: bundles
SELECT DISTINCT bundle FROM bundle_of WHERE message = ? LIMIT 100;

-- name: position
SELECT number FROM taken_from WHERE lane = ? AND spool = ?;

-- name: set_position
INSERT INTO taken_from VALUES (?1, ?2, ?3)
ON CONFLICT (lane) DO UPDATE SET spool = ?2, number = CASE spool WHEN ?2 THEN max(number, ?3) ELSE ?3 END;
