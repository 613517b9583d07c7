-- Views over the ledger's tables, one named block each, in the SQL that Spark, DuckDB, Polars and DataFusion have in
-- common. Names that one of them reserves, such as `at`, are in backticks. `||` with a null is null in all of them, but
-- concat is not. They share no function that turns a time into a number, so micros(time), microseconds since the epoch,
-- is replaced by each engine's own function (jobs/query/ledger_reader.py), and so is percentile(value, share). {view}
-- stands for another view's statement in parentheses, as not all of them know views.

-- name: message_journey
-- Everything that happened to a message, one row per step. Order the rows by `at`, and by step_order at equal times.
-- Accepting and delivering are timed by a gateway's clock, what agents of the mesh report (`mesh: …`) by theirs, the
-- other steps by the broker's. So steps that are only
-- milliseconds apart may appear in the wrong order.
SELECT id AS message_id,
       accepted AS `at`,
       1 AS step_order,
       'accepted' AS step,
       source AS who,
       'to ' || destination || ', QoS ' || CAST(qos AS STRING) || ', ' || CAST(payload_bytes AS STRING) || ' bytes' AS detail
FROM messages
UNION ALL
SELECT id,
       appended,
       2,
       'appended',
       'broker',
       'acknowledged: ingress partition ' || CAST(`partition` AS STRING) || ', offset ' || CAST(`offset` AS STRING)
FROM messages
UNION ALL
SELECT message_id,
       appended,
       3,
       'routed',
       'router ' || router,
       'to shard ' || CAST(shard AS STRING) || ', instruction ' || CAST(`number` AS STRING)
       || CASE WHEN scope = 'everyone' THEN ', to all shards: routes not known to be complete' ELSE '' END
       || coalesce(', last of ' || CAST(`limit` AS STRING), '')
FROM instructions
UNION ALL
SELECT message_id,
       `at`,
       CASE WHEN shard IS NULL THEN 4 ELSE 5 END,
       outcome,
       coalesce(client, 'shard ' || CAST(shard AS STRING), 'router'),
       coalesce('QoS ' || CAST(qos AS STRING) || ', ', '')
       || CASE WHEN shard IS NULL THEN 'no instruction: no route was active'
               WHEN `number` IS NOT NULL
                    THEN 'instruction ' || CAST(`number` AS STRING) || ' of shard ' || CAST(shard AS STRING)
               WHEN path = 'retained' THEN 'retained message, sent on SUBSCRIBE by shard ' || CAST(shard AS STRING)
               ELSE 'direct delivery by shard ' || CAST(shard AS STRING)
                    || CASE path WHEN 'direct' THEN ': its route was not active yet'
                                 ELSE ': retained, or its route was not active yet' END END
FROM outcomes
UNION ALL
SELECT message_id,
       completed,
       6,
       'completed',
       'completion',
       CAST(touches AS STRING) || CASE WHEN touches = 1 THEN ' instruction' ELSE ' instructions' END || ' finished'
FROM completions
UNION ALL
SELECT message_id,
       `at`,
       0,
       'mesh: ' || event,
       agent,
       trim(coalesce(CASE WHEN origin <> '' THEN 'of ' || origin || ' ' END, '')
            || coalesce(CASE WHEN peer <> '' THEN 'to ' || peer || ' ' END, '')
            || coalesce(CASE WHEN reason <> '' THEN 'because of ' || reason END, ''))
FROM message_presence_history

-- name: delivery_latency
-- Milliseconds from accepting a message to each of its deliveries, by the gateways' clocks; never below 0. Retained
-- messages sent on SUBSCRIBE are left out, because their age is not a latency, and so are the platform's own messages.
-- The latency includes the time for which a client was offline. If a message was sent twice with the same id, the
-- latency counts from accepting the copy that was delivered.
SELECT outcomes.message_id,
       outcomes.message_appended,
       messages.accepted,
       outcomes.client,
       outcomes.scope,
       outcomes.`number`,
       outcomes.outcome,
       outcomes.qos,
       CAST(greatest(micros(outcomes.`at`) - micros(messages.accepted), 0) AS DOUBLE) / 1000 AS ms
FROM outcomes
JOIN messages ON messages.id = outcomes.message_id AND messages.appended = outcomes.message_appended
WHERE outcomes.outcome IN ('delivered', 'sent')
  AND coalesce(outcomes.path, 'direct') <> 'retained'
  AND coalesce(messages.origin, CASE WHEN messages.destination LIKE '$presence/%' THEN 'platform' ELSE 'client' END) <> 'platform'

-- name: session_history
-- One row per connection of a client, by the gateways' clocks. `ended`, `how`, `reason` and `seconds` are null while the
-- connection is open. If the gateway was lost before it could report the end, the ledger adds one: `how` is `lost`,
-- `reason` is `gateway_lost`, and `ended` is when the loss was detected. A report by the gateway itself overrides that.
-- `connected` is null for a connection that began before the ledger.
SELECT client,
       epoch,
       gateway,
       `user`,
       protocol,
       peer,
       connected,
       ended,
       CASE WHEN ended IS NOT NULL THEN coalesce(how, 'lost') END AS how,
       CASE WHEN ended IS NOT NULL THEN coalesce(reason, 'gateway_lost') END AS reason,
       CAST(floor(CAST(micros(ended) - micros(connected) AS DOUBLE) / 1000000) AS BIGINT) AS seconds
FROM (
    SELECT client,
           epoch,
           gateway,
           `user`,
           protocol,
           peer,
           connected,
           coalesce(reported, CASE WHEN back IS NULL OR lost > back THEN lost END) AS ended,
           how,
           reason
    FROM (
        SELECT client,
               epoch,
               gateway,
               max(`user`) AS `user`,
               max(protocol) AS protocol,
               max(peer) AS peer,
               min(CASE WHEN event = 'connected' AND reason IS NULL THEN `at` END) AS connected,
               max(CASE WHEN event = 'connected' AND reason = 'gateway_back' THEN `at` END) AS back,
               max(CASE WHEN event <> 'connected' AND reason = 'gateway_lost' THEN `at` END) AS lost,
               max(CASE WHEN event <> 'connected' AND coalesce(reason, '') <> 'gateway_lost' THEN `at` END) AS reported,
               max(CASE WHEN event <> 'connected' AND coalesce(reason, '') <> 'gateway_lost' THEN event END) AS how,
               max(CASE WHEN event <> 'connected' AND reason <> 'gateway_lost' THEN reason END) AS reason
        FROM presence_history
        GROUP BY client, epoch, gateway
    ) AS events
    -- At its start a gateway reports the clients that it has lost; their connections have rows already.
    WHERE connected IS NOT NULL OR coalesce(reason, '') <> 'gateway_restarted'
) AS connections

-- name: topic_traffic
-- Messages by the hour in which Kafka stored them, and by the first two levels of their topic, which routing uses.
-- `level_2` is null for a topic of one level. All inboxes are one row, `@`. `deliveries` counts all deliveries so far,
-- acknowledged or at QoS 0, except retained messages sent on SUBSCRIBE. The platform's own messages are left out.
SELECT date,
       hour,
       level_1,
       level_2,
       count(*) AS messages,
       CAST(sum(payload_bytes) AS BIGINT) AS bytes,
       count(DISTINCT source) AS senders,
       CAST(sum(deliveries) AS BIGINT) AS deliveries,
       CAST(sum(deliveries) AS DOUBLE) / count(*) AS fan_out
FROM (
    SELECT messages.date,
           date_trunc('hour', messages.appended) AS hour,
           CASE WHEN messages.destination LIKE '@%' THEN '@' ELSE split_part(messages.destination, '/', 1) END AS level_1,
           CASE WHEN messages.destination LIKE '@%' THEN NULL
                WHEN messages.destination LIKE '%/%' THEN split_part(messages.destination, '/', 2) END AS level_2,
           messages.payload_bytes,
           messages.source,
           coalesce(made.deliveries, 0) AS deliveries
    FROM messages
    LEFT JOIN (
        SELECT message_id, message_appended, count(*) AS deliveries
        FROM outcomes
        WHERE outcome IN ('delivered', 'sent') AND coalesce(path, 'direct') <> 'retained'
        GROUP BY message_id, message_appended
    ) AS made ON made.message_id = messages.id AND made.message_appended = messages.appended
    WHERE coalesce(messages.origin, CASE WHEN messages.destination LIKE '$presence/%' THEN 'platform' ELSE 'client' END) <> 'platform'
) AS sent
GROUP BY date, hour, level_1, level_2

-- name: feed_messages
-- Messages of redundant feeds, one row for the copies of both slots. `appended` is when the first copy was appended,
-- `first_slot` which that was; `lag_ms` how much later the backup's copy was appended than the active's, negative if it
-- was earlier, null if there is only one. `is_different`: the two copies have different payloads. `payload` is the
-- active's, or the backup's if the active has no copy.
SELECT feed,
       stream,
       name,
       epoch,
       sequence,
       part,
       date,
       appended,
       CASE WHEN active_appended IS NULL OR backup_appended < active_appended THEN 'backup' ELSE 'active' END AS first_slot,
       CAST(micros(backup_appended) - micros(active_appended) AS DOUBLE) / 1000 AS lag_ms,
       active_appended IS NOT NULL AND backup_appended IS NOT NULL AS has_both,
       least_crc32 <> greatest_crc32 OR least_bytes <> greatest_bytes AS is_different,
       coalesce(active_bytes, greatest_bytes) AS payload_bytes,
       CASE WHEN active_appended IS NULL THEN backup_payload ELSE active_payload END AS payload
FROM (
    SELECT feed,
           stream,
           name,
           epoch,
           sequence,
           part,
           min(date) AS date,
           min(appended) AS appended,
           min(CASE WHEN slot = 'active' THEN appended END) AS active_appended,
           min(CASE WHEN slot = 'backup' THEN appended END) AS backup_appended,
           min(crc32) AS least_crc32,
           max(crc32) AS greatest_crc32,
           min(payload_bytes) AS least_bytes,
           max(payload_bytes) AS greatest_bytes,
           max(CASE WHEN slot = 'active' THEN payload_bytes END) AS active_bytes,
           max(CASE WHEN slot = 'active' THEN payload END) AS active_payload,
           max(CASE WHEN slot = 'backup' THEN payload END) AS backup_payload
    FROM feed_copies
    GROUP BY feed, stream, name, epoch, sequence, part
) AS pairs

-- name: feed_differences
-- Messages of redundant feeds of which the two copies have different payloads: both, and who wrote them.
SELECT active.feed,
       active.stream,
       active.sequence,
       active.part,
       active.adapter AS active_adapter,
       backup.adapter AS backup_adapter,
       active.crc32 AS active_crc32,
       backup.crc32 AS backup_crc32,
       active.payload_bytes AS active_bytes,
       backup.payload_bytes AS backup_bytes,
       active.payload AS active_payload,
       backup.payload AS backup_payload,
       active.appended AS active_appended,
       backup.appended AS backup_appended,
       active.date
FROM feed_copies AS active
JOIN feed_copies AS backup ON backup.feed = active.feed AND backup.stream = active.stream
     AND backup.sequence = active.sequence AND backup.part = active.part
WHERE active.slot = 'active' AND backup.slot = 'backup'
  AND (active.crc32 <> backup.crc32 OR active.payload_bytes <> backup.payload_bytes)

-- name: feed_gaps
-- Ranges of numbers that a slot of a redundant feed lacks, and with the slot `both` those that neither slot has. The
-- numbers of a source stream are known from the lowest that any copy has to the highest that any copy has or an adapter
-- has passed. `opened` is when the slot passed the range (the first higher number was appended, or the adapter said so);
-- for `both`, when the last of the slots did. `state`: `open`; `recent`, if it was opened less than a minute before the
-- newest record, so that the numbers may still come; `closed`, if they came at last, until `closed`; `before`, if the
-- slot began later; `behind`, if the slot has not got there yet. Of `both` there are no closed ranges. A source may send
-- any number up to 2^63-1: `numbers` is that at most.
WITH ends AS (
    SELECT feed,
           stream,
           slot,
           min(CASE WHEN part = 0 THEN sequence END) AS lowest,
           max(CASE WHEN part = 0 THEN sequence END) AS highest,
           max(sequence) AS reached,
           min(appended) AS began,
           max(appended) AS newest
    FROM feed_copies
    GROUP BY feed, stream, slot
),
passing AS (
    SELECT feed, stream, slot, max(passed) AS passed
    FROM feed_progress
    WHERE passed IS NOT NULL
    GROUP BY feed, stream, slot
),
marks AS (
    SELECT passing.feed, passing.stream, passing.slot, passing.passed, min(feed_progress.appended) AS said
    FROM passing
    JOIN feed_progress ON feed_progress.feed = passing.feed AND feed_progress.stream = passing.stream
         AND feed_progress.slot = passing.slot AND feed_progress.passed = passing.passed
    GROUP BY passing.feed, passing.stream, passing.slot, passing.passed
),
known AS (
    SELECT ends.feed,
           ends.stream,
           min(ends.lowest) AS base,
           max(CASE WHEN marks.passed > ends.reached THEN marks.passed ELSE ends.reached END) AS newest_number
    FROM ends
    LEFT JOIN marks ON marks.feed = ends.feed AND marks.stream = ends.stream
    GROUP BY ends.feed, ends.stream
),
slots AS (
    SELECT feed, slot FROM ends GROUP BY feed, slot
),
sides AS (
    SELECT known.feed,
           known.stream,
           slots.slot,
           known.base,
           known.newest_number,
           ends.lowest,
           coalesce(ends.highest, known.base - 1) AS highest,
           CASE WHEN marks.passed > coalesce(ends.reached, known.base - 1) THEN marks.passed
                ELSE coalesce(ends.reached, known.base - 1) END AS reached,
           ends.began,
           coalesce(marks.said, ends.newest) AS said
    FROM known
    JOIN slots ON slots.feed = known.feed
    LEFT JOIN ends ON ends.feed = known.feed AND ends.stream = known.stream AND ends.slot = slots.slot
    LEFT JOIN marks ON marks.feed = known.feed AND marks.stream = known.stream AND marks.slot = slots.slot
),
ordered AS (
    SELECT feed,
           stream,
           slot,
           sequence,
           appended,
           `offset`,
           lead(sequence) OVER (PARTITION BY feed, stream, slot ORDER BY sequence DESC) AS previous,
           min(appended) OVER (PARTITION BY feed, stream, slot ORDER BY sequence DESC) AS passed_at,
           min(`offset`) OVER (PARTITION BY feed, stream, slot ORDER BY sequence DESC) AS passed_offset
    FROM feed_copies
    WHERE part = 0
),
missing AS (
    SELECT feed, stream, slot, previous + 1 AS first_number, sequence - 1 AS last_number, 'open' AS state,
           passed_at AS opened
    FROM ordered
    WHERE sequence - 1 > previous
    UNION ALL
    SELECT feed, stream, slot, base, lowest - 1, 'before', began FROM sides WHERE lowest > base
    UNION ALL
    SELECT feed, stream, slot, highest + 1, reached, 'open', said FROM sides WHERE reached > highest
    UNION ALL
    SELECT feed, stream, slot, reached + 1, newest_number, 'behind', NULL FROM sides WHERE newest_number > reached
),
-- The ranges of a slot do not overlap. So of those of the other slot that begin no later, only the last can overlap.
beside AS (
    SELECT feed,
           stream,
           slot,
           first_number,
           last_number,
           max(CASE WHEN slot = 'active' THEN last_number END) OVER (PARTITION BY feed, stream ORDER BY first_number, slot) AS active_last,
           max(CASE WHEN slot = 'backup' THEN last_number END) OVER (PARTITION BY feed, stream ORDER BY first_number, slot) AS backup_last,
           max(opened) OVER (PARTITION BY feed, stream ORDER BY first_number, slot) AS both_opened,
           max(CASE WHEN state = 'behind' THEN 1 ELSE 0 END) OVER (PARTITION BY feed, stream ORDER BY first_number, slot) AS is_behind
    FROM missing
),
lost AS (
    SELECT feed,
           stream,
           first_number,
           CASE WHEN active_last < backup_last THEN active_last ELSE backup_last END AS last_number,
           is_behind,
           both_opened AS opened
    FROM beside
    WHERE active_last >= first_number AND backup_last >= first_number
    UNION ALL
    SELECT missing.feed, missing.stream, first_number, last_number, CASE WHEN state = 'behind' THEN 1 ELSE 0 END, opened
    FROM missing
    JOIN (SELECT feed FROM slots GROUP BY feed HAVING count(*) = 1) AS alone ON alone.feed = missing.feed
),
late AS (
    SELECT feed,
           stream,
           slot,
           sequence,
           appended,
           passed_at,
           sequence - row_number() OVER (PARTITION BY feed, stream, slot ORDER BY sequence) AS island
    FROM ordered
    WHERE `offset` > passed_offset
),
found AS (
    SELECT feed, stream, slot, first_number, last_number, state, opened, CASE WHEN 1 = 0 THEN opened END AS closed
    FROM missing
    UNION ALL
    SELECT feed, stream, 'both', first_number, last_number, CASE WHEN is_behind = 1 THEN 'behind' ELSE 'open' END,
           CASE WHEN is_behind = 0 THEN opened END, NULL
    FROM lost
    UNION ALL
    SELECT feed, stream, slot, min(sequence), max(sequence), 'closed', min(passed_at), max(appended)
    FROM late
    GROUP BY feed, stream, slot, island
)
SELECT found.feed,
       found.stream,
       found.slot,
       found.first_number,
       found.last_number,
       found.last_number - found.first_number
       + CASE WHEN found.last_number - found.first_number < 9223372036854775807 THEN 1 ELSE 0 END AS numbers,
       CASE WHEN found.state = 'open' AND micros(found.opened) > micros(now.newest) - 60000000 THEN 'recent'
            ELSE found.state END AS state,
       found.opened,
       found.closed
FROM found
CROSS JOIN (
    SELECT max(newest) AS newest
    FROM (SELECT newest FROM ends UNION ALL SELECT appended FROM feed_progress) AS records
) AS now

-- name: feed_health
-- Redundant feeds, one row for each slot. `duplicates` are copies that the slot brought again; `gaps` and `missing` are
-- the open ranges of `feed_gaps` and the numbers in them, `behind` the numbers that the slot has not got to yet,
-- `lost_in_both` those that neither slot has; each 2^63-1 at most. `differences`, `p50_lag_ms` and `p99_lag_ms` are of
-- the feed, the last two of `lag_ms` of `feed_messages`. `last_appended` is the last record of the slot's adapter;
-- `silent_since` is the same time if the other slot has had records since, otherwise null.
WITH brought AS (
    SELECT feed,
           slot,
           CAST(sum(copies) AS BIGINT) AS copies,
           CAST(sum(duplicates) AS BIGINT) AS duplicates,
           max(appended) AS last_appended
    FROM feed_progress
    GROUP BY feed, slot
),
newest AS (
    SELECT feed, max(last_appended) AS last_appended FROM brought GROUP BY feed
),
gaps AS (
    SELECT feed,
           slot,
           CAST(sum(CASE WHEN state = 'open' THEN 1 ELSE 0 END) AS BIGINT) AS gaps,
           sum(CAST(CASE WHEN state = 'open' THEN numbers ELSE 0 END AS DECIMAL(20, 0))) AS missing,
           sum(CAST(CASE WHEN state = 'behind' THEN numbers ELSE 0 END AS DECIMAL(20, 0))) AS behind
    FROM {feed_gaps} AS ranges
    GROUP BY feed, slot
),
counts AS (
    SELECT feed,
           slot,
           gaps,
           CAST(CASE WHEN missing < 9223372036854775807 THEN missing ELSE 9223372036854775807 END AS BIGINT) AS missing,
           CAST(CASE WHEN behind < 9223372036854775807 THEN behind ELSE 9223372036854775807 END AS BIGINT) AS behind
    FROM gaps
),
pairs AS (
    SELECT feed,
           CAST(sum(CASE WHEN is_different THEN 1 ELSE 0 END) AS BIGINT) AS differences,
           round(percentile(lag_ms, 0.5), 3) AS p50_lag_ms,
           round(percentile(lag_ms, 0.99), 3) AS p99_lag_ms
    FROM {feed_messages} AS messages_of_both
    GROUP BY feed
)
SELECT brought.feed,
       brought.slot,
       brought.copies,
       brought.duplicates,
       coalesce(counts.gaps, 0) AS gaps,
       coalesce(counts.missing, 0) AS missing,
       coalesce(counts.behind, 0) AS behind,
       coalesce(lost.missing, 0) AS lost_in_both,
       coalesce(pairs.differences, 0) AS differences,
       pairs.p50_lag_ms,
       pairs.p99_lag_ms,
       brought.last_appended,
       CASE WHEN brought.last_appended < newest.last_appended THEN brought.last_appended END AS silent_since
FROM brought
JOIN newest ON newest.feed = brought.feed
LEFT JOIN counts ON counts.feed = brought.feed AND counts.slot = brought.slot
LEFT JOIN counts AS lost ON lost.feed = brought.feed AND lost.slot = 'both'
LEFT JOIN pairs ON pairs.feed = brought.feed
