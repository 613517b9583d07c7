-- name: schema
CREATE TABLE IF NOT EXISTS failed (
    sequence INTEGER PRIMARY KEY,
    state TEXT NOT NULL,
    reason TEXT NOT NULL,
    topic TEXT NOT NULL,
    properties BLOB,
    payload BLOB NOT NULL
)

-- name: properties
SELECT properties FROM outbox WHERE sequence = ?;

-- name: keep_failed
INSERT OR REPLACE INTO failed
SELECT sequence, ?, ?, topic, properties, substr(payload, 1, ?) FROM outbox WHERE sequence = ?;

-- name: failed
SELECT sequence, state, reason, properties, payload FROM failed ORDER BY sequence LIMIT 1;

-- name: forget_failed
DELETE FROM failed WHERE sequence = ?;
