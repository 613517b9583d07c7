-- name: schema
CREATE TABLE IF NOT EXISTS mail (
    id TEXT PRIMARY KEY,
    sender TEXT NOT NULL,
    smtputf8 INTEGER NOT NULL,
    expires_s REAL NOT NULL,
    next_s REAL NOT NULL,
    attempts INTEGER NOT NULL,
    size INTEGER NOT NULL,
    content BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS mail_by_next ON mail (next_s);
CREATE INDEX IF NOT EXISTS mail_by_expiry ON mail (expires_s);
CREATE TABLE IF NOT EXISTS recipient (
    id TEXT NOT NULL,
    address TEXT NOT NULL,
    state TEXT NOT NULL,
    doubtful INTEGER NOT NULL,
    reply TEXT NOT NULL,
    is_reported INTEGER NOT NULL,
    PRIMARY KEY (id, address)
);
CREATE INDEX IF NOT EXISTS recipient_by_state ON recipient (state);
CREATE TABLE IF NOT EXISTS finished (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS clock (id INTEGER PRIMARY KEY CHECK (id = 1), clock_s REAL NOT NULL, wall_s REAL NOT NULL)

-- name: is_known
SELECT EXISTS (SELECT 1 FROM mail WHERE id = ?1) OR EXISTS (SELECT 1 FROM finished WHERE id = ?1);

-- name: totals
SELECT count(*), coalesce(sum(size), 0) FROM mail;

-- name: add
INSERT INTO mail VALUES (?, ?, ?, ?, ?, 0, ?, ?);

-- name: add_recipient
INSERT INTO recipient VALUES (?, ?, 'waiting', 0, '', 0);

-- name: due
SELECT id FROM mail WHERE next_s <= ? ORDER BY next_s LIMIT 1;

-- name: over
SELECT id FROM mail WHERE expires_s <= ? AND EXISTS (
    SELECT 1 FROM recipient WHERE recipient.id = mail.id AND state IN ('waiting', 'held')
) ORDER BY expires_s LIMIT 1;

-- name: next
SELECT min(next_s), min(expires_s) FROM mail;

-- name: mail
SELECT id, sender, smtputf8, expires_s, attempts, content FROM mail WHERE id = ?;

-- name: recipients
SELECT address, state, doubtful, reply, is_reported FROM recipient WHERE id = ? ORDER BY address;

-- name: set_state
UPDATE recipient SET state = ?, doubtful = ?, reply = ? WHERE id = ? AND address = ?;

-- name: set_sending
UPDATE recipient SET state = 'sending' WHERE id = ? AND address = ?;

-- name: set_next
UPDATE mail SET next_s = ?, attempts = ? WHERE id = ?;

-- name: interrupted
SELECT DISTINCT id FROM recipient WHERE state = 'sending';

-- name: unreported
SELECT id FROM recipient WHERE state IN ('refused', 'expired') AND is_reported = 0 ORDER BY id LIMIT 1;

-- name: set_reported
UPDATE recipient SET is_reported = 1 WHERE id = ? AND address = ?;

-- name: is_open
SELECT EXISTS (SELECT 1 FROM recipient WHERE id = ? AND (state IN ('waiting', 'sending', 'held')
    OR (state IN ('refused', 'expired') AND is_reported = 0)));

-- name: remove
DELETE FROM mail WHERE id = ?;

-- name: remove_recipients
DELETE FROM recipient WHERE id = ?;

-- name: finish
INSERT OR IGNORE INTO finished (id) VALUES (?);

-- name: bound_finished
DELETE FROM finished WHERE number <= (SELECT max(number) FROM finished) - ?;

-- name: count
INSERT INTO counter VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = value + excluded.value;

-- name: counters
SELECT name, value FROM counter ORDER BY name;

-- name: states
SELECT state, count(*) FROM recipient GROUP BY state;

-- name: clock
SELECT clock_s, wall_s FROM clock;

-- name: set_clock
INSERT OR REPLACE INTO clock VALUES (1, ?, ?);
