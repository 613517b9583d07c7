-- name: schema
CREATE TABLE IF NOT EXISTS way (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    at_s REAL NOT NULL,
    part TEXT NOT NULL,
    event TEXT NOT NULL,
    detail TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS way_by_id ON way (id)

-- name: add
INSERT INTO way (id, at_s, part, event, detail) VALUES (?, ?, ?, ?, ?);

-- name: bound
DELETE FROM way WHERE number <= (SELECT max(number) FROM way) - ?;

-- name: newest
SELECT id, at_s, part, event, detail FROM way ORDER BY number DESC LIMIT ?;

-- name: of_message
SELECT id, at_s, part, event, detail FROM way WHERE id = ? ORDER BY number LIMIT ?;
