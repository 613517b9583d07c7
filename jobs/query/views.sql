-- Views over the ledger's tables, one named block each, in words that Spark SQL, DuckDB, Polars and DataFusion have in
-- common (names that one of them reserves stand in backticks; `at` is one. `||` with a null is null in all, concat is
-- not). They have none for a time as a number: micros(time), the microseconds since the epoch, is put into the words of
-- each (jobs/query/ledger_reader.py).

-- name: message_journey
-- Everything that happened to a message, a row a step; ORDER BY `at`, step_order. Accepting and delivering have the time of
-- a gateway's clock, the rest of the broker's: steps a few milliseconds apart may change places.
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
       || coalesce(', the last of ' || CAST(`limit` AS STRING), '')
FROM instructions
UNION ALL
SELECT message_id,
       `at`,
       CASE WHEN shard IS NULL THEN 4 ELSE 5 END,
       outcome,
       coalesce(client, 'shard ' || CAST(shard AS STRING), 'router'),
       coalesce('QoS ' || CAST(qos AS STRING) || ', ', '')
       || CASE WHEN shard IS NULL THEN 'no instruction: no route was active for it'
               WHEN `number` IS NULL THEN 'direct delivery by shard ' || CAST(shard AS STRING)
                    || ': retained, or its route was not active yet'
               ELSE 'instruction ' || CAST(`number` AS STRING) || ' of shard ' || CAST(shard AS STRING) END
FROM outcomes
UNION ALL
SELECT message_id,
       completed,
       6,
       'completed',
       'completion',
       CAST(touches AS STRING) || CASE WHEN touches = 1 THEN ' instruction' ELSE ' instructions' END || ' finished'
FROM completions

-- name: delivery_latency
-- Milliseconds from accepting a message to each of its deliveries, by the gateways' clocks; never below 0. Of a message
-- that was sent again with the same id, from accepting that which was delivered; without an instruction, the first.
SELECT message_id,
       client,
       qos,
       CAST(greatest(micros(`at`) - micros(accepted), 0) AS DOUBLE) / 1000 AS ms
FROM (
    SELECT outcomes.message_id, outcomes.client, outcomes.qos, outcomes.`at`, messages.accepted
    FROM outcomes
    JOIN messages ON messages.id = outcomes.message_id AND messages.appended = outcomes.message_appended
    WHERE outcomes.outcome IN ('delivered', 'sent') AND outcomes.`number` IS NOT NULL
    UNION ALL
    -- Own copies: of a retained message the append time is another, that on its topic.
    SELECT outcomes.message_id,
           outcomes.client,
           outcomes.qos,
           max(outcomes.`at`) AS `at`,
           coalesce(
               min(CASE WHEN messages.appended = outcomes.message_appended THEN messages.accepted END),
               min(messages.accepted)
           ) AS accepted
    FROM outcomes
    JOIN messages ON messages.id = outcomes.message_id
    WHERE outcomes.outcome IN ('delivered', 'sent') AND outcomes.`number` IS NULL
    GROUP BY outcomes.message_id, outcomes.client, outcomes.qos, outcomes.outcome
) AS deliveries

-- name: session_history
-- A row a connection of a client, by the gateways' clocks: `ended`, `how`, `reason`, `seconds` are null while it lasts.
-- So they stay where its gateway was killed: started again, that reports `gateway_restarted` of clients with persistent
-- sessions, a row of its own without `connected`. Nor has a connection one that is older than the ledger.
SELECT client,
       epoch,
       gateway,
       `user`,
       protocol,
       peer,
       connected,
       ended,
       how,
       reason,
       CAST(floor(CAST(micros(ended) - micros(connected) AS DOUBLE) / 1000000) AS BIGINT) AS seconds
FROM (
    SELECT client,
           epoch,
           max(gateway) AS gateway,
           max(`user`) AS `user`,
           max(protocol) AS protocol,
           max(peer) AS peer,
           min(CASE WHEN event = 'connected' THEN `at` END) AS connected,
           max(CASE WHEN event <> 'connected' THEN `at` END) AS ended,
           max(CASE WHEN event <> 'connected' THEN event END) AS how,
           max(CASE WHEN event <> 'connected' THEN reason END) AS reason
    FROM presence_history
    GROUP BY client, epoch
) AS connections

-- name: topic_traffic
-- Messages by the hour in which they were accepted by Kafka and the two leading levels of their topic, which are what
-- routes go by; `level_2` is null for a topic of one level. Inboxes are one line, `@`. Deliveries are those made so far,
-- at any time, acknowledged or at QoS 0.
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
        SELECT message_id, count(*) AS deliveries
        FROM outcomes
        WHERE outcome IN ('delivered', 'sent')
        GROUP BY message_id
    ) AS made ON made.message_id = messages.id
) AS sent
GROUP BY date, hour, level_1, level_2
