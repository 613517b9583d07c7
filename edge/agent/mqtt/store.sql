-- name: schema
CREATE TABLE IF NOT EXISTS session (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    client_id TEXT NOT NULL UNIQUE,
    user TEXT NOT NULL,
    expiry_s INTEGER NOT NULL,
    ends_s REAL,
    last_packet_id INTEGER NOT NULL,
    sent INTEGER NOT NULL,
    messages INTEGER NOT NULL,
    bytes INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS subscription (
    session INTEGER NOT NULL,
    filter TEXT NOT NULL,
    qos INTEGER NOT NULL,
    no_local INTEGER NOT NULL,
    as_published INTEGER NOT NULL,
    identifier INTEGER NOT NULL,
    PRIMARY KEY (session, filter)
);
CREATE TABLE IF NOT EXISTS message (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL,
    topic TEXT NOT NULL,
    payload BLOB NOT NULL,
    properties BLOB NOT NULL,
    expires_s REAL,
    size INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS delivery (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    session INTEGER NOT NULL,
    message INTEGER NOT NULL,
    packet_id INTEGER NOT NULL,
    qos INTEGER NOT NULL,
    retain INTEGER NOT NULL,
    is_released INTEGER NOT NULL,
    identifiers BLOB NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS delivery_by_packet_id ON delivery (session, packet_id);
CREATE INDEX IF NOT EXISTS delivery_by_number ON delivery (session, number);
CREATE INDEX IF NOT EXISTS delivery_by_message ON delivery (message);
CREATE TABLE IF NOT EXISTS inbound (session INTEGER NOT NULL, packet_id INTEGER NOT NULL, PRIMARY KEY (session, packet_id));
CREATE TABLE IF NOT EXISTS retained (
    topic TEXT PRIMARY KEY,
    payload BLOB NOT NULL,
    qos INTEGER NOT NULL,
    properties BLOB NOT NULL,
    expires_s REAL,
    size INTEGER NOT NULL,
    platform_topic TEXT NOT NULL DEFAULT ''
);
CREATE TABLE IF NOT EXISTS spool (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    lane TEXT NOT NULL,
    target TEXT NOT NULL,
    id TEXT NOT NULL,
    topic TEXT NOT NULL,
    payload BLOB NOT NULL,
    qos INTEGER NOT NULL,
    retain INTEGER NOT NULL,
    properties BLOB NOT NULL,
    expires_s REAL,
    size INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS spool_by_lane ON spool (lane, number);
CREATE TABLE IF NOT EXISTS used (name TEXT PRIMARY KEY, messages INTEGER NOT NULL, bytes INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS seen (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS taken_from (
    source TEXT PRIMARY KEY,
    incarnation INTEGER NOT NULL,
    number INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS identity (id INTEGER PRIMARY KEY CHECK (id = 1), incarnation INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS far_filter (place TEXT NOT NULL, filter TEXT NOT NULL, PRIMARY KEY (place, filter));
CREATE TABLE IF NOT EXISTS clock (id INTEGER PRIMARY KEY CHECK (id = 1), clock_s REAL NOT NULL, wall_s REAL NOT NULL)

-- name: add_platform_topic
ALTER TABLE retained ADD COLUMN platform_topic TEXT NOT NULL DEFAULT '';

-- name: identify
INSERT OR IGNORE INTO identity VALUES (1, ?);

-- name: incarnation
SELECT incarnation FROM identity;

-- name: renew
UPDATE identity SET incarnation = ?;

-- name: last_spooled
SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'spool';

-- name: clock
SELECT clock_s, wall_s FROM clock;

-- name: set_clock
INSERT OR REPLACE INTO clock VALUES (1, ?, ?);

-- name: used
SELECT messages, bytes FROM used WHERE name = ?;

-- name: use
INSERT INTO used VALUES (?, ?, ?)
ON CONFLICT (name) DO UPDATE SET messages = messages + excluded.messages, bytes = bytes + excluded.bytes;

-- name: session
SELECT number, user FROM session WHERE client_id = ?;

-- name: add_session
INSERT INTO session (client_id, user, expiry_s, ends_s, last_packet_id, sent, messages, bytes)
VALUES (?, ?, ?, NULL, 0, 0, 0, 0);

-- name: resume_session
UPDATE session SET expiry_s = ?, ends_s = NULL WHERE number = ?;

-- name: count_sessions
SELECT count(*) FROM session;

-- name: leave_session
UPDATE session SET expiry_s = ?, ends_s = ?, sent = max(sent, ?) WHERE number = ?;

-- name: interrupted
SELECT number, client_id, expiry_s FROM session WHERE ends_s IS NULL;

-- name: may_have_been_sent
SELECT max(number) FROM (SELECT number FROM delivery WHERE session = ? ORDER BY number LIMIT ?);

-- name: ended_sessions
SELECT number, client_id FROM session WHERE ends_s <= ?;

-- name: remove_session
DELETE FROM session WHERE number = ?;

-- name: remove_subscriptions
DELETE FROM subscription WHERE session = ?;

-- name: remove_inbound
DELETE FROM inbound WHERE session = ?;

-- name: session_deliveries
SELECT number FROM delivery WHERE session = ?;

-- name: subscriptions
SELECT session.number, session.client_id, filter, qos, no_local, as_published, identifier
FROM subscription JOIN session ON session.number = subscription.session;

-- name: has_subscription
SELECT EXISTS (SELECT 1 FROM subscription WHERE session = ? AND filter = ?);

-- name: count_subscriptions
SELECT count(*) FROM subscription WHERE session = ?;

-- name: subscribe
INSERT OR REPLACE INTO subscription VALUES (?, ?, ?, ?, ?, ?);

-- name: unsubscribe
DELETE FROM subscription WHERE session = ? AND filter = ?;

-- name: status
SELECT count(*), coalesce(sum(messages), 0), (SELECT count(*) FROM subscription) FROM session;

-- name: filters
SELECT DISTINCT filter FROM subscription;

-- name: queue
SELECT messages, bytes, last_packet_id FROM session WHERE number = ?;

-- name: set_queue
UPDATE session SET messages = messages + ?, bytes = bytes + ?, last_packet_id = ? WHERE number = ?;

-- name: unqueue
UPDATE session SET messages = messages - 1, bytes = bytes - ? WHERE number = ?;

-- name: has_packet_id
SELECT EXISTS (SELECT 1 FROM delivery WHERE session = ? AND packet_id = ?);

-- name: add_message
INSERT INTO message (id, topic, payload, properties, expires_s, size) VALUES (?, ?, ?, ?, ?, ?);

-- name: add_delivery
INSERT INTO delivery (session, message, packet_id, qos, retain, is_released, identifiers) VALUES (?, ?, ?, ?, ?, 0, ?);

-- name: deliveries
SELECT delivery.number, packet_id, qos, retain, is_released, identifiers, id, topic, payload, properties, expires_s
FROM delivery JOIN message ON message.number = delivery.message
WHERE session = ? AND delivery.number > ? ORDER BY delivery.number LIMIT ?;

-- name: sent
SELECT sent FROM session WHERE number = ?;

-- name: release
UPDATE delivery SET is_released = 1 WHERE number = ?;

-- name: delivery
SELECT delivery.session, delivery.message, size, id FROM delivery JOIN message ON message.number = delivery.message
WHERE delivery.number = ?;

-- name: remove_delivery
DELETE FROM delivery WHERE number = ?;

-- name: remove_message
DELETE FROM message WHERE number = ?1 AND NOT EXISTS (SELECT 1 FROM delivery WHERE message = ?1);

-- name: overdue
SELECT delivery.number, id FROM delivery JOIN message ON message.number = delivery.message
JOIN session ON session.number = delivery.session
WHERE expires_s <= ? AND ends_s IS NOT NULL AND is_released = 0
AND (delivery.qos < 2 OR delivery.number > session.sent) LIMIT 1000;

-- name: has_inbound
SELECT EXISTS (SELECT 1 FROM inbound WHERE session = ? AND packet_id = ?);

-- name: add_inbound
INSERT INTO inbound VALUES (?, ?);

-- name: end_inbound
DELETE FROM inbound WHERE session = ? AND packet_id = ?;

-- name: retained_topics
SELECT topic FROM retained WHERE expires_s IS NULL OR expires_s > ? ORDER BY topic;

-- name: retained
SELECT payload, qos, properties, expires_s FROM retained WHERE topic = ?;

-- name: retained_size
SELECT size FROM retained WHERE topic = ?;

-- name: retain
INSERT OR REPLACE INTO retained VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: remove_retained
DELETE FROM retained WHERE topic = ?;

-- name: retained_of_platform
SELECT topic, size, platform_topic FROM retained WHERE platform_topic <> '';

-- name: overdue_retained
SELECT topic, size FROM retained WHERE expires_s <= ?;

-- name: add_spooled
INSERT INTO spool (lane, target, id, topic, payload, qos, retain, properties, expires_s, size)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: spooled
SELECT number, target, id, topic, payload, qos, retain, properties, expires_s FROM spool
WHERE lane = ? AND number > ? ORDER BY number LIMIT ?;

-- name: waiting
SELECT count(*), coalesce(sum(size), 0) FROM spool WHERE lane = ? AND number <= ?;

-- name: forwarded
DELETE FROM spool WHERE lane = ? AND number <= ?;

-- name: is_seen
SELECT EXISTS (SELECT 1 FROM seen WHERE id = ?);

-- name: see
INSERT INTO seen (id) VALUES (?);

-- name: bound_seen
DELETE FROM seen WHERE number <= (SELECT max(number) FROM seen) - ?;

-- name: position
SELECT number FROM taken_from WHERE source = ? AND incarnation = ?;

-- name: set_position
INSERT OR REPLACE INTO taken_from VALUES (?, ?, ?);

-- name: far_filters
SELECT filter FROM far_filter WHERE place = ?;

-- name: add_far_filter
INSERT OR IGNORE INTO far_filter VALUES (?, ?);

-- name: remove_far_filter
DELETE FROM far_filter WHERE place = ? AND filter = ?;
