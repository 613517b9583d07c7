-- Inputs and results of a routing decision, for `waystation explain` (DuckDB), one query per named block.

-- name: message
SELECT id, source, destination, qos, "partition", "offset", accepted, appended
FROM messages
WHERE id = ?
ORDER BY "partition", "offset"

-- name: changes
-- The events of the message's candidate keys.
SELECT route_key, "offset", op, shard, effective, appended
FROM routes_history
WHERE route_key IN (SELECT unnest(?))
ORDER BY "offset"

-- name: instructions
SELECT "partition", "offset", scope, shard, "number", "limit", router, appended
FROM instructions
WHERE message_id = ? AND date >= ?
ORDER BY scope, "number", shard

-- name: outcomes
SELECT client, outcome, shard, "number", qos, "at"
FROM outcomes
WHERE message_id = ? AND date >= ?
ORDER BY "at", client

-- name: completion
SELECT touches, completed
FROM completions
WHERE message_id = ? AND date >= ?

-- name: routes_known
-- The time up to which the routes table has all events, and the latest time at which one of them takes effect.
SELECT (SELECT max(as_of) FROM routes) AS as_of,
       max(CASE WHEN target.effective_until < TIMESTAMPTZ '9999-01-01 00:00:00+00'
                THEN target.effective_until ELSE target.effective_from END) AS latest
FROM (SELECT unnest(targets) AS target FROM routes) AS known
