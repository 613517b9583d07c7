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
SELECT client, outcome, shard, "number", qos, "at", message_appended
FROM outcomes
WHERE message_id = ? AND date >= ?
ORDER BY "at", client

-- name: completion
SELECT touches, completed, message_appended
FROM completions
WHERE message_id = ? AND date >= ?
ORDER BY completed

-- name: routes_known
-- The time up to which the routes table has all events, and the latest times at which one of them starts or ends a route.
SELECT (SELECT max(as_of) FROM routes) AS as_of,
       max(target.effective_from) AS latest_start,
       max(target.effective_until) FILTER (target.effective_until < TIMESTAMPTZ '9999-01-01 00:00:00+00') AS latest_end
FROM (SELECT unnest(targets) AS target FROM routes) AS known

-- name: history_known
-- The same of the events of the last days: each kind takes effect in the order of its events, as the other one may not.
SELECT max(effective) FILTER (op = 'add') AS latest_start, max(effective) FILTER (op = 'drop') AS latest_end
FROM routes_history
WHERE date >= ?
