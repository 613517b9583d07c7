-- name: schema
CREATE TABLE IF NOT EXISTS forwarded_from (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    spool INTEGER NOT NULL,
    number INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS forwarded_id (sequence INTEGER PRIMARY KEY, id TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS arrived (number INTEGER PRIMARY KEY AUTOINCREMENT, content BLOB NOT NULL)

-- name: position
SELECT number FROM forwarded_from WHERE spool = ?;

-- name: set_position
INSERT INTO forwarded_from VALUES (1, ?1, ?2)
ON CONFLICT (id) DO UPDATE SET spool = ?1, number = CASE spool WHEN ?1 THEN max(number, ?2) ELSE ?2 END;

-- name: add_id
INSERT OR REPLACE INTO forwarded_id VALUES (?, ?);

-- name: id
SELECT id FROM forwarded_id WHERE sequence = ?;

-- name: remove_id
DELETE FROM forwarded_id WHERE sequence = ?;

-- name: add_arrived
INSERT INTO arrived (content) VALUES (?);

-- name: last_arrived
SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'arrived';

-- name: arrived
SELECT number, content FROM arrived WHERE number > ? ORDER BY number LIMIT ?;

-- name: forget_arrived
DELETE FROM arrived WHERE number <= ?;
