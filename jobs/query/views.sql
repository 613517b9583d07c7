-- Views over the ledger's tables, one named block each, in the SQL that Spark, DuckDB, Polars and DataFusion have in
-- common. Names that one of them reserves, such as `at`, are in backticks. `||` with a null is null in all of them, but
-- concat is not. They share no function that turns a time into a number, so micros(time), microseconds since the epoch,
-- is replaced by each engine's own function (jobs/query/ledger_reader.py).

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
