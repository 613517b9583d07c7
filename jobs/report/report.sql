-- Queries about a date, for `waystation report` (DuckDB), one per named block. The tables have only rows of that date,
-- except where a block says otherwise. `slot` counts time steps from the start of the plots: $1 is that start and $2 the
-- step, µs. In rankings $1 is the number of rows.
--
-- The platform's own messages, about clients that connect and disconnect and about shards that change their owner, are
-- left out, with the rows about them in the other tables.

-- name: make_is_platform
CREATE OR REPLACE TEMP MACRO is_platform(origin, destination) AS
coalesce(origin, CASE WHEN destination LIKE '$presence/%' THEN 'platform' ELSE 'client' END) = 'platform'

-- name: make_platform
CREATE TEMP TABLE platform AS SELECT id FROM messages WHERE is_platform(origin, destination)

-- name: make_user_messages
CREATE TEMP VIEW user_messages AS SELECT * FROM messages WHERE NOT is_platform(origin, destination)

-- name: make_user_instructions
CREATE TEMP VIEW user_instructions AS SELECT * FROM instructions WHERE message_id NOT IN (SELECT id FROM platform)

-- name: make_user_outcomes
CREATE TEMP VIEW user_outcomes AS
SELECT * FROM outcomes WHERE origin IS DISTINCT FROM 'platform' AND message_id NOT IN (SELECT id FROM platform)

-- name: make_user_completions
CREATE TEMP VIEW user_completions AS SELECT * FROM completions WHERE message_id NOT IN (SELECT id FROM platform)

-- name: totals
SELECT *
FROM (SELECT count(*) AS messages, coalesce(sum(payload_bytes), 0)::BIGINT AS bytes, count(DISTINCT source) AS senders
      FROM user_messages),
     (SELECT count(*) AS instructions FROM user_instructions),
     (SELECT count(*) FILTER (outcome IN ('delivered', 'sent')) AS deliveries,
             count(DISTINCT client) FILTER (outcome IN ('delivered', 'sent')) AS recipients
      FROM user_outcomes),
     (SELECT count(*) AS completions FROM user_completions)

-- name: traffic
SELECT (epoch_us(appended) - $1) // $2 AS slot, qos, count(*) AS messages, sum(payload_bytes)::BIGINT AS bytes
FROM user_messages
GROUP BY ALL
ORDER BY slot, qos

-- name: deliveries
SELECT (epoch_us(appended) - $1) // $2 AS slot, count(*) AS copies
FROM user_outcomes
WHERE outcome IN ('delivered', 'sent')
GROUP BY ALL
ORDER BY slot

-- name: outcomes
SELECT outcome, count(*) AS rows, count(DISTINCT client) AS clients
FROM user_outcomes
GROUP BY outcome
ORDER BY rows DESC, outcome

-- name: make_latencies
-- Number of rows by latency, rounded to three digits, so that there are few values however many rows. Deliveries
-- without an instruction are left out, because a retained message may wait for its subscriber for years.
CREATE TEMP TABLE latencies AS
SELECT stage,
       qos,
       (at_us - $1) // $2 AS slot,
       CASE WHEN us > 0 THEN round(us / 1000, 2 - floor(log10(us / 1000))::INTEGER) ELSE 0 END AS ms,
       count(*) AS rows
FROM (
    SELECT 'routed' AS stage, NULL AS qos, epoch_us(appended) AS at_us, epoch_us(appended) - epoch_us(message_appended) AS us
    FROM user_instructions
    UNION ALL
    SELECT 'delivered', qos, epoch_us(appended), epoch_us("at") - epoch_us(message_appended)
    FROM user_outcomes
    WHERE outcome IN ('delivered', 'sent') AND "number" IS NOT NULL
    UNION ALL
    SELECT 'completed', NULL, epoch_us(appended), epoch_us(completed) - epoch_us(message_appended)
    FROM user_completions
) AS taken
GROUP BY ALL

-- name: latency
-- By stage and slot, by stage (slot null), and by stage and QoS of the delivery (slot null): the lowest value that the
-- share of rows does not exceed.
SELECT stage, slot, qos, any_value(total)::BIGINT AS rows,
       min(ms) FILTER (reached >= 0.5 * total) AS p50,
       min(ms) FILTER (reached >= 0.9 * total) AS p90,
       min(ms) FILTER (reached >= 0.99 * total) AS p99,
       min(ms) FILTER (reached >= 0.999 * total) AS p999,
       max(ms) AS greatest
FROM (
    SELECT stage, slot, qos, ms,
           sum(rows) OVER (PARTITION BY stage, slot, qos ORDER BY ms) AS reached,
           sum(rows) OVER (PARTITION BY stage, slot, qos) AS total
    FROM (
        SELECT stage, slot, NULL AS qos, ms, sum(rows) AS rows FROM latencies GROUP BY stage, slot, ms
        UNION ALL
        SELECT stage, NULL, NULL, ms, sum(rows) FROM latencies GROUP BY stage, ms
        UNION ALL
        SELECT stage, NULL, qos, ms, sum(rows) FROM latencies WHERE qos IS NOT NULL GROUP BY stage, qos, ms
    ) AS counted
) AS ranked
GROUP BY stage, slot, qos
ORDER BY stage, slot NULLS FIRST, qos NULLS FIRST

-- name: completion_times
-- By the lowest of the bounds $1, ms, that is not exceeded; null above the highest.
SELECT list_min(list_filter($1::DOUBLE[], lambda bound: bound >= ms)) AS up_to_ms, sum(rows)::BIGINT AS messages
FROM latencies
WHERE stage = 'completed'
GROUP BY up_to_ms
ORDER BY up_to_ms NULLS LAST

-- name: talkers
-- The top clients by messages, and the top clients by bytes; a client may be in both.
SELECT *,
       row_number() OVER (ORDER BY messages DESC, source) AS by_messages,
       row_number() OVER (ORDER BY bytes DESC, source) AS by_bytes
FROM (SELECT source, count(*) AS messages, sum(payload_bytes)::BIGINT AS bytes FROM user_messages GROUP BY source)
QUALIFY least(by_messages, by_bytes) <= $1
ORDER BY by_messages

-- name: topics
SELECT level_1,
       level_2,
       sum(messages)::BIGINT AS messages,
       sum(bytes)::BIGINT AS bytes,
       sum(deliveries)::BIGINT AS deliveries,
       sum(deliveries) / sum(messages) AS fan_out
FROM topic_traffic
GROUP BY level_1, level_2
ORDER BY messages DESC, level_1, level_2
LIMIT $1

-- name: fan_outs
-- Messages of other dates have neither source nor destination. A message that was sent again has several rows: the first.
SELECT widest.message_id,
       min_by(messages.source, messages.appended) AS source,
       min_by(messages.destination, messages.appended) AS destination,
       min(messages.appended) AS appended,
       widest.copies
FROM (
    SELECT message_id, count(*) AS copies
    FROM user_outcomes
    WHERE outcome IN ('delivered', 'sent')
    GROUP BY message_id
    ORDER BY copies DESC, message_id
    LIMIT $1
) AS widest
LEFT JOIN user_messages AS messages ON messages.id = widest.message_id
GROUP BY widest.message_id, widest.copies
ORDER BY copies DESC, message_id

-- name: routing
SELECT router, scope, count(*) AS instructions
FROM user_instructions
GROUP BY ALL
ORDER BY instructions DESC, router, scope

-- name: losses
SELECT outcome, client, count(*) AS messages
FROM user_outcomes
WHERE outcome IN ('dropped', 'expired', 'ended')
GROUP BY ALL
ORDER BY messages DESC, outcome, client
LIMIT $1

-- name: flagged
SELECT source, count(*) AS messages, sum(payload_bytes)::BIGINT AS bytes, sum(count(*)) OVER ()::BIGINT AS all_of_them
FROM user_messages
WHERE contains(flags, 'a')
GROUP BY source
ORDER BY messages DESC, source
LIMIT $1

-- name: quarantined
SELECT topic, reason, count(*) AS records, min("at") AS first, max("at") AS last,
       sum(count(*)) OVER ()::BIGINT AS all_of_them
FROM quarantine
GROUP BY ALL
ORDER BY records DESC, topic, reason
LIMIT $1

-- name: expectations
-- From the last run of `waystation quality` that judged the date.
SELECT expectation, success, unexpected, judged, run_at
FROM quality_results
WHERE run_id = (SELECT run_id FROM quality_results ORDER BY run_at DESC LIMIT 1)
ORDER BY success, expectation

-- name: waiting
-- Over tables from the date on: incomplete messages of the date, oldest first, and their total number. $1 is the date,
-- $2 how many to show.
SELECT id, source, destination, qos, appended, expires, count(*) OVER () AS all_of_them
FROM messages
WHERE date = $1 AND NOT is_platform(origin, destination) AND NOT EXISTS (
    SELECT 1 FROM completions
    WHERE completions.message_id = messages.id AND completions.message_appended < $1::DATE + INTERVAL 1 DAY
)
ORDER BY appended, id
LIMIT $2

-- name: make_connections
-- Over tables from the date on: connections that existed on the date, even for a moment. The epoch of a connection is
-- when it began. Ends are as in the view session_history: a gateway's own report overrides `gateway_lost`, which the
-- ledger adds, and `gateway_back` cancels that. `lives` is false for a connection without an end whose gateway was lost
-- before the ledger added such ends: `presence` has it neither as live nor as ended, or not at all any more. Both
-- tables are written independently, so what only one of them has yet proves nothing: `presence` lags if the connection
-- is newer than all its rows (less the 10 s by which the partitions of a topic may differ), `presence_history` if it
-- lacks the client's newer connection. $1 and $2 are start and end of the date, µs.
CREATE TEMP TABLE connections AS
WITH told AS (
    SELECT * EXCLUDE (reported_us, lost_us, back_us, how, reason),
           coalesce(reported_us, CASE WHEN back_us IS NULL OR lost_us > back_us THEN lost_us END) AS ended_us,
           CASE WHEN ended_us IS NOT NULL THEN coalesce(how, 'lost') END AS how,
           CASE WHEN ended_us IS NOT NULL THEN coalesce(reason, 'gateway_lost') END AS reason
    FROM (
        SELECT client, epoch, max(gateway) AS gateway, max("user") AS "user", max(protocol) AS protocol,
               bool_or(event = 'connected') AS is_connection,
               max(epoch_us("at")) FILTER (event <> 'connected' AND reason IS DISTINCT FROM 'gateway_lost') AS reported_us,
               max(epoch_us("at")) FILTER (event <> 'connected' AND reason = 'gateway_lost') AS lost_us,
               max(epoch_us("at")) FILTER (event = 'connected' AND reason = 'gateway_back') AS back_us,
               max(event) FILTER (event <> 'connected' AND reason IS DISTINCT FROM 'gateway_lost') AS how,
               max(reason) FILTER (event <> 'connected' AND reason <> 'gateway_lost') AS reason,
               max(appended) AS appended
        FROM presence_history
        GROUP BY client, epoch
    )
    WHERE is_connection OR reason IS DISTINCT FROM 'gateway_restarted'
), known AS (
    SELECT client, one.epoch AS epoch, max(one.gateway) AS gateway, max(one."user") AS "user",
           max(one.protocol) AS protocol, bool_or(one.live) AS live, bool_or(one.reason <> '') AS ended
    FROM (SELECT client, unnest(attachments) AS one FROM presence)
    GROUP BY client, one.epoch
), ahead AS (
    SELECT client, max(epoch) AS epoch FROM known ANTI JOIN told USING (client, epoch) GROUP BY client
), reach AS (
    SELECT max(updated) - INTERVAL 10 SECOND AS presence FROM presence
)
SELECT client, epoch AS begun_us, coalesce(told.gateway, known.gateway) AS gateway,
       coalesce(told."user", known."user") AS "user", coalesce(told.protocol, known.protocol) AS protocol,
       ended_us, how, told.reason AS reason,
       CASE WHEN known.live IS NOT NULL THEN known.live OR coalesce(known.ended, FALSE)
            ELSE coalesce(told.appended > reach.presence, TRUE) OR coalesce(ahead.epoch > epoch, FALSE) END AS lives
FROM told FULL JOIN known USING (client, epoch) LEFT JOIN ahead USING (client) CROSS JOIN reach
WHERE epoch < $2 AND coalesce(ended_us, $1) >= $1 AND (told.appended IS NOT NULL OR known.live)

-- name: connected
-- For slots in which that changed: the maximum connected after a change, and the number at the slot's end. A connection
-- whose end nobody reported does not count. $3 is the end of the date, µs.
SELECT slot, max(connected)::BIGINT AS most, arg_max(connected, nth)::BIGINT AS at_end
FROM (
    SELECT (at_us - $1) // $2 AS slot,
           row_number() OVER in_order AS nth,
           sum(change) OVER in_order AS connected
    FROM (
        SELECT greatest(begun_us, $1) AS at_us, 1 AS change FROM connections WHERE ended_us IS NOT NULL OR lives
        UNION ALL
        SELECT greatest(ended_us, $1), -1 FROM connections WHERE ended_us < $3
    ) AS changes
    WINDOW in_order AS (ORDER BY at_us, change DESC ROWS UNBOUNDED PRECEDING)
) AS running
GROUP BY slot
ORDER BY slot

-- name: comings_and_goings
-- $3 and $4 are start and end of the date, µs.
SELECT (at_us - $1) // $2 AS slot,
       count(*) FILTER (event = 'connected') AS connected,
       count(*) FILTER (event = 'disconnected') AS disconnected,
       count(*) FILTER (event = 'lost') AS lost
FROM (
    SELECT begun_us AS at_us, 'connected' AS event FROM connections WHERE begun_us >= $3
    UNION ALL
    SELECT ended_us, how FROM connections WHERE ended_us < $4
) AS events
GROUP BY slot
ORDER BY slot

-- name: longest_connections
-- Those that have not ended lasted at least until $2, µs.
SELECT client, gateway, "user", protocol, make_timestamptz(begun_us) AS connected, make_timestamptz(ended_us) AS ended,
       reason, (coalesce(ended_us, $2) - begun_us) // 1000000 AS seconds
FROM connections
WHERE ended_us IS NOT NULL OR lives
ORDER BY seconds DESC, client, begun_us
LIMIT $1

-- name: ends
-- How the connections of the date had ended by its end, $1, µs; `how` is null for those still open, and `unreported` if
-- unknown.
SELECT how, reason, count(*) AS connections, quantile_disc(seconds, 0.5)::BIGINT AS median_s
FROM (
    SELECT CASE WHEN ended_us < $1 THEN how WHEN ended_us IS NULL AND NOT lives THEN 'unreported' END AS how,
           CASE WHEN ended_us < $1 THEN reason END AS reason,
           CASE WHEN ended_us < $1 THEN (ended_us - begun_us) // 1000000 END AS seconds
    FROM connections
) AS ended
GROUP BY how, reason
ORDER BY connections DESC, how, reason

-- name: left_out
-- The number of the platform's own messages.
SELECT count(*) AS messages FROM platform

-- name: backlog
-- By slot in which that changed: how many messages of the date were accepted by its end, and not complete. $3 is the
-- start of the date, µs.
SELECT slot, sum(sum(change)) OVER (ORDER BY slot)::BIGINT AS waiting
FROM (
    SELECT (epoch_us(appended) - $1) // $2 AS slot, 1 AS change FROM user_messages
    UNION ALL
    SELECT (epoch_us(appended) - $1) // $2, -1 FROM user_completions WHERE epoch_us(message_appended) >= $3
) AS changes
GROUP BY slot
ORDER BY slot

-- name: shards
SELECT shard, count(*) AS instructions FROM user_instructions GROUP BY shard ORDER BY shard

-- name: sizes
-- By the lowest of the bounds $1, bytes, that is not exceeded; null above the highest.
SELECT list_min(list_filter($1::BIGINT[], lambda bound: bound >= payload_bytes)) AS up_to_bytes, count(*) AS messages
FROM user_messages
GROUP BY up_to_bytes
ORDER BY up_to_bytes NULLS LAST

-- name: stages
-- Milliseconds spent in each stage, in order.
SELECT stage, count(*) AS rows, quantile_disc(ms, 0.5) AS p50, quantile_disc(ms, 0.99) AS p99
FROM (
    SELECT 1 AS place, 'accepted to stored' AS stage, (epoch_us(appended) - epoch_us(accepted)) / 1000 AS ms FROM user_messages
    UNION ALL
    SELECT 2, 'stored to routed', (epoch_us(appended) - epoch_us(message_appended)) / 1000 FROM user_instructions
    UNION ALL
    SELECT 3, 'routed to delivered', (epoch_us(outcomes."at") - epoch_us(instructions.appended)) / 1000
    FROM user_outcomes AS outcomes
    JOIN user_instructions AS instructions USING (message_id, message_appended, scope, "number")
    WHERE outcomes.outcome IN ('delivered', 'sent')
    UNION ALL
    SELECT 4, 'stored to completed', (epoch_us(completed) - epoch_us(message_appended)) / 1000 FROM user_completions
) AS taken
GROUP BY place, stage
ORDER BY place

-- name: slowest_clients
-- Milliseconds from append to delivery by instruction, of the clients with the highest 99th percentile.
SELECT client, count(*) AS rows, quantile_disc(ms, 0.5) AS p50, quantile_disc(ms, 0.99) AS p99
FROM (
    SELECT client, greatest(epoch_us("at") - epoch_us(message_appended), 0) / 1000 AS ms
    FROM user_outcomes
    WHERE outcome IN ('delivered', 'sent') AND "number" IS NOT NULL
) AS taken
GROUP BY client
ORDER BY p99 DESC, client
LIMIT $1

-- name: undelivered
-- Copies that did not reach a recipient, and unreadable records.
SELECT (epoch_us(appended) - $1) // $2 AS slot, outcome AS kind, count(*) AS rows
FROM user_outcomes
WHERE outcome IN ('dropped', 'expired', 'ended')
GROUP BY ALL
UNION ALL
SELECT (epoch_us(appended) - $1) // $2, 'quarantined', count(*) FROM quarantine GROUP BY ALL
ORDER BY slot, kind

-- name: restarts
-- When a gateway was found lost, or reported a restart.
SELECT (epoch_us("at") - $1) // $2 AS slot, gateway, min("at") AS "at", count(DISTINCT client) AS clients
FROM presence_history
WHERE reason IN ('gateway_lost', 'gateway_restarted')
GROUP BY ALL
ORDER BY "at", gateway

-- name: days
-- Over tables from some dates before to the date itself.
SELECT date, messages, bytes, deliveries, lost, p50, p99
FROM (
    SELECT date, count(*) AS messages, sum(payload_bytes)::BIGINT AS bytes
    FROM messages
    WHERE NOT is_platform(origin, destination)
    GROUP BY date
)
LEFT JOIN (
    SELECT date,
           count(*) FILTER (outcome IN ('delivered', 'sent')) AS deliveries,
           count(*) FILTER (outcome IN ('dropped', 'expired', 'ended')) AS lost,
           approx_quantile((epoch_us("at") - epoch_us(message_appended)) / 1000, 0.5)
               FILTER (outcome IN ('delivered', 'sent') AND "number" IS NOT NULL) AS p50,
           approx_quantile((epoch_us("at") - epoch_us(message_appended)) / 1000, 0.99)
               FILTER (outcome IN ('delivered', 'sent') AND "number" IS NOT NULL) AS p99
    FROM outcomes
    WHERE origin IS DISTINCT FROM 'platform'
    GROUP BY date
) USING (date)
ORDER BY date DESC

-- name: feeds
-- Redundant feeds by slot. Numbers that a slot lacks at the beginning or the end of the date are on another page.
SELECT * FROM feed_health ORDER BY feed, slot LIMIT $1

-- name: feed_lags
-- How far apart the two copies of a message were appended, whichever came first, ms.
SELECT (epoch_us(appended) - $1) // $2 AS slot,
       quantile_disc(abs(lag_ms), 0.5) AS p50,
       quantile_disc(abs(lag_ms), 0.9) AS p90,
       quantile_disc(abs(lag_ms), 0.99) AS p99
FROM feed_messages
WHERE lag_ms IS NOT NULL
GROUP BY ALL
ORDER BY slot

-- name: feed_missing
SELECT (epoch_us(opened) - $1) // $2 AS slot, slot AS feed_slot, least(sum(numbers), 9223372036854775807)::BIGINT AS numbers
FROM feed_gaps
WHERE state = 'open'
GROUP BY ALL
ORDER BY slot, feed_slot

-- name: feed_lost
-- The longest ranges that neither slot has.
SELECT feed, stream, first_number, last_number, numbers, opened
FROM feed_gaps
WHERE slot = 'both' AND state = 'open'
ORDER BY numbers DESC, opened, stream, first_number
LIMIT $1
