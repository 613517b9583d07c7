-- Violations, one row each: its `date`, and an `example` by which a person finds it. Rows of dates other than the
-- judged ones are ignored. Or measurements, one row each. One named block per expectation
-- (pipelines/quality/expectations.py).
--
-- `judged_<table>` are the rows to judge, `recent_<table>` these and those of the day before, and `<table>` everything
-- they can refer to: from `since` to the day after. `quarantined`: positions on `ingress` of records that were
-- quarantined. messages_watermark, instructions_watermark, outcomes_watermark: the youngest append time in the table; a
-- row that refers to something younger is not judged yet. skew: seconds by which clocks may differ.
--
-- An id of version 8 is derived from the sender's own key of the message, and appears again when the message is sent
-- again. So a message is identified by id and append time.

-- name: unique_message_id
SELECT date, 'message ' || id AS example
FROM (
    SELECT max(date) AS date, id FROM {recent_messages} WHERE substr(id, 15, 1) <> '8' GROUP BY id HAVING count(*) > 1
) AS copied

-- name: unique_outcomes
-- Two decisions on a message (scopes) use the same numbers. In rows written before scopes existed, a shard may have got
-- the same number twice.
WITH copied AS (
    SELECT max(date) AS date, message_id, scope, shard, `number`, client, outcome, count(*) AS copies
    FROM {recent_outcomes}
    GROUP BY message_id, message_appended, scope, shard, `number`, client, outcome, offered
    HAVING count(*) > 1
), decisions AS (
    SELECT message_id, shard, `number`, count(*) AS decisions
    FROM {instructions} LEFT SEMI JOIN copied USING (message_id)
    GROUP BY message_id, shard, `number`
)
SELECT date,
       'message ' || message_id || ', ' || outcome || coalesce(' to ' || client, '')
       || coalesce(', number ' || `number`, '') AS example
FROM copied LEFT JOIN decisions USING (message_id, shard, `number`)
WHERE copies > CASE WHEN scope IS NULL THEN coalesce(decisions, 1) ELSE 1 END

-- name: message_of_instruction
SELECT i.date, 'message ' || i.message_id || ', shard ' || i.shard || ', number ' || i.`number` AS example
FROM {judged_instructions} AS i
LEFT ANTI JOIN {messages} AS m
    ON m.id = i.message_id AND m.`partition` = i.`partition` AND m.`offset` = i.`offset`
LEFT ANTI JOIN {quarantined} AS q ON q.`partition` = i.`partition` AND q.`offset` = i.`offset`
WHERE i.message_appended >= TIMESTAMP {since} AND i.message_appended <= TIMESTAMP {messages_watermark}

-- name: message_of_outcome
-- Direct deliveries (without a number, to a client) may concern retained messages of any age.
SELECT o.date, 'message ' || o.message_id || ', ' || o.outcome || coalesce(' to ' || o.client, '') AS example
FROM {judged_outcomes} AS o
LEFT ANTI JOIN {messages} AS m ON m.id = o.message_id
LEFT ANTI JOIN (
    SELECT i.message_id
    FROM {instructions} AS i JOIN {quarantined} AS q ON q.`partition` = i.`partition` AND q.`offset` = i.`offset`
) AS x ON x.message_id = o.message_id
WHERE (o.`number` IS NOT NULL OR o.outcome = 'untouched')
  AND o.message_appended >= TIMESTAMP {since} AND o.message_appended <= TIMESTAMP {messages_watermark}

-- name: message_of_completion
SELECT c.date, 'message ' || c.message_id AS example
FROM {judged_completions} AS c
LEFT ANTI JOIN {messages} AS m ON m.id = c.message_id
LEFT ANTI JOIN (
    SELECT i.message_id
    FROM {instructions} AS i JOIN {quarantined} AS q ON q.`partition` = i.`partition` AND q.`offset` = i.`offset`
) AS x ON x.message_id = c.message_id
WHERE c.message_appended >= TIMESTAMP {since} AND c.message_appended <= TIMESTAMP {messages_watermark}

-- name: instruction_of_outcome
SELECT o.date,
       'message ' || o.message_id || ', shard ' || o.shard || ', number ' || o.`number` || ', ' || o.outcome AS example
FROM {judged_outcomes} AS o
LEFT ANTI JOIN {instructions} AS i
    ON i.message_id = o.message_id AND i.shard = o.shard AND i.`number` = o.`number`
WHERE o.`number` IS NOT NULL AND o.message_appended >= TIMESTAMP {since} AND o.appended <= TIMESTAMP {instructions_watermark}

-- name: touches
-- If there are two decisions on a message (scopes), the one that is finished first completes it.
WITH counted AS (
    SELECT c.date, c.message_id, c.touches, coalesce(i.routed, 0) AS routed, coalesce(i.everyone, 0) AS everyone
    FROM {judged_completions} AS c
    LEFT JOIN (
        SELECT message_id, message_appended, count_if(scope = 'routed') AS routed, count_if(scope = 'everyone') AS everyone
        FROM {instructions}
        GROUP BY message_id, message_appended
    ) AS i ON i.message_id = c.message_id AND i.message_appended = c.message_appended
    WHERE c.message_appended >= TIMESTAMP {since} AND c.completed <= TIMESTAMP {instructions_watermark}
), odd AS (
    SELECT * FROM counted WHERE NOT (touches = routed OR (touches = everyone AND everyone > 0))
), again AS (
    -- Messages sent again within the hour: completion counts both together.
    SELECT m.id AS message_id FROM {messages} AS m LEFT SEMI JOIN odd ON odd.message_id = m.id
    GROUP BY m.id HAVING count(*) > count(DISTINCT date_trunc('HOUR', m.appended))
)
SELECT o.date,
       'message ' || o.message_id || ': ' || o.touches || ' touches; instructions: ' || o.routed || ' routed, '
           || o.everyone || ' to everyone' AS example
FROM odd AS o LEFT ANTI JOIN again AS a ON a.message_id = o.message_id

-- name: completion_last
-- Uses the first report for each recipient, because a home may repeat itself after a crash. An outcome after the
-- completion is no violation if the completion may be of the message's other decision (scope): if it counts as many
-- instructions as the decision that the outcome does not belong to. By the routes, nobody may have wanted the message
-- (`untouched`, no instruction) while the other router sent it to every shard.
WITH finished AS (
    SELECT date, message_id, message_appended, shard, `number`, client, min(appended) AS appended
    FROM {judged_outcomes}
    WHERE `number` IS NOT NULL
    GROUP BY date, message_id, message_appended, shard, `number`, client
), late AS (
    SELECT f.*, c.completed, c.touches
    FROM finished AS f
    JOIN {completions} AS c
        ON c.message_id = f.message_id AND c.message_appended = f.message_appended AND c.completed < f.appended
), again AS (
    SELECT m.id AS message_id FROM {messages} AS m LEFT SEMI JOIN late ON late.message_id = m.id
    GROUP BY m.id HAVING count(*) > count(DISTINCT date_trunc('HOUR', m.appended))
), involved AS (
    SELECT i.message_id, i.shard, i.`number`, i.scope
    FROM {instructions} AS i LEFT SEMI JOIN late ON late.message_id = i.message_id
), decisions AS (
    SELECT message_id, scope, count(*) AS instructions FROM involved GROUP BY message_id, scope
), excused AS (
    SELECT i.message_id, i.shard, i.`number`, coalesce(d.instructions, 0) AS instructions
    FROM involved AS i LEFT JOIN decisions AS d ON d.message_id = i.message_id AND d.scope <> i.scope
    WHERE d.instructions IS NOT NULL OR i.scope = 'everyone'
)
SELECT l.date,
       'message ' || l.message_id || ', completed ' || l.completed || ', shard ' || l.shard || ' finished ' || l.appended
           AS example
FROM late AS l
LEFT ANTI JOIN excused AS e
    ON e.message_id = l.message_id AND e.shard = l.shard AND e.`number` = l.`number` AND e.instructions = l.touches
LEFT ANTI JOIN again AS a ON a.message_id = l.message_id

-- name: outcome_of_completion
-- Every shard of the complete decision must have reported an outcome by then. Compared by shard, not by number: a shard
-- that got both decisions reports for only one of them, and a direct delivery has no number.
WITH counted AS (
    SELECT c.date, c.message_id, c.completed, c.touches, i.scope, i.shard
    FROM {judged_completions} AS c
    JOIN {instructions} AS i ON i.message_id = c.message_id AND i.message_appended = c.message_appended
    WHERE c.message_appended >= TIMESTAMP {since}
      AND c.completed <= TIMESTAMP {instructions_watermark} AND c.completed <= TIMESTAMP {outcomes_watermark}
), reported AS (
    SELECT message_id, shard, min(appended) AS appended
    FROM {outcomes}
    WHERE shard IS NOT NULL
    GROUP BY message_id, shard
), decisions AS (
    SELECT c.date, c.message_id, c.completed, c.scope, min(CASE WHEN o.shard IS NULL THEN c.shard END) AS silent
    FROM counted AS c
    LEFT JOIN reported AS o ON o.message_id = c.message_id AND o.shard = c.shard AND o.appended <= c.completed
    GROUP BY c.date, c.message_id, c.completed, c.scope, c.touches
    HAVING count(*) = c.touches
), early AS (
    SELECT date, message_id, completed, min(silent) AS silent
    FROM decisions
    GROUP BY date, message_id, completed
    HAVING count(silent) = count(*)
), again AS (
    -- Messages sent again: of outcomes that differ only in the shard, the ledger has only the first.
    SELECT m.id AS message_id FROM {messages} AS m LEFT SEMI JOIN early ON early.message_id = m.id
    GROUP BY m.id HAVING count(*) > 1
)
SELECT e.date,
       'message ' || e.message_id || ', completed ' || e.completed || ', nothing of shard ' || e.silent || ' by then'
           AS example
FROM early AS e LEFT ANTI JOIN again AS a ON a.message_id = e.message_id

-- name: time_of_message
SELECT i.date, 'message ' || i.message_id || ', by the instruction ' || i.message_appended || ', was ' || m.appended AS example
FROM {judged_instructions} AS i
JOIN {messages} AS m ON m.id = i.message_id AND m.`partition` = i.`partition` AND m.`offset` = i.`offset`
WHERE m.appended <> i.message_appended

-- name: time_of_instruction
SELECT o.date, 'message ' || o.message_id || ', shard ' || o.shard || ', number ' || o.`number` AS example
FROM {judged_outcomes} AS o
JOIN (
    SELECT message_id, shard, `number`, min(appended) AS appended
    FROM {instructions}
    GROUP BY message_id, shard, `number`
) AS i ON i.message_id = o.message_id AND i.shard = o.shard AND i.`number` = o.`number`
WHERE i.appended > o.appended + INTERVAL {skew} SECONDS

-- name: offsets
-- Starts at the last offset of each partition before the first date (`earlier_messages`). Where a topic begins is
-- arbitrary, because retention removes its beginning. A recreated topic counts from 0: an offset no larger than the
-- smallest before it, with a later append time, begins another topic. A broker's clock that goes back by some seconds
-- may look the same. So a record fills a gap if its append time is within the skew of those at the gap's ends.
WITH placed AS (
    SELECT date, `partition`, `offset`, appended FROM {placed_messages}
    UNION ALL
    SELECT date, `partition`, `offset`, appended FROM {earlier_messages}
), lowest AS (
    SELECT *,
           min(`offset`) OVER (
               PARTITION BY `partition` ORDER BY appended, `offset` ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
           ) AS smallest
    FROM placed
), topics AS (
    SELECT *,
           sum(CASE WHEN `offset` <= smallest THEN 1 ELSE 0 END) OVER (
               PARTITION BY `partition` ORDER BY appended, `offset` ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
           ) AS topic
    FROM lowest
), steps AS (
    SELECT *,
           lag(`offset`) OVER (PARTITION BY `partition`, topic ORDER BY `offset`) AS before,
           lag(appended) OVER (PARTITION BY `partition`, topic ORDER BY `offset`) AS before_at
    FROM topics
), gaps AS (
    SELECT date, `partition`, topic, before + 1 AS first, `offset` - 1 AS last,
           least(before_at, appended) - INTERVAL {skew} SECONDS AS since,
           greatest(before_at, appended) + INTERVAL {skew} SECONDS AS until
    FROM steps
    WHERE `offset` > before + 1
), held AS (
    SELECT `partition`, `offset`, CAST(NULL AS TIMESTAMP) AS appended FROM {quarantined}
    UNION ALL
    SELECT `partition`, `offset`, appended FROM {messages}
), found AS (
    SELECT *, CAST(NULL AS BIGINT) AS `offset` FROM gaps
    UNION ALL
    SELECT /*+ BROADCAST(gaps) */ gaps.*, held.`offset`
    FROM held JOIN gaps
        ON held.`partition` = gaps.`partition` AND held.`offset` BETWEEN gaps.first AND gaps.last
        AND (held.appended IS NULL OR held.appended BETWEEN gaps.since AND gaps.until)
)
SELECT date, 'partition ' || `partition` || ', offsets ' || first || ' to ' || last AS example
FROM found
GROUP BY date, `partition`, topic, first, last
HAVING count(DISTINCT `offset`) < last - first + 1

-- name: progress_of_copy
-- A batch's row in `feed_progress` has the append time of the last of its records, so none is older than its copies.
SELECT date, 'feed ' || feed || ', stream ' || stream || ', ' || slot || ', from ' || newest || ' on' AS example
FROM (
    SELECT c.date, c.feed, c.stream, c.slot, c.newest, p.newest AS counted
    FROM (SELECT date, feed, stream, slot, max(appended) AS newest FROM {judged_feed_copies} GROUP BY ALL) AS c
    LEFT JOIN (SELECT feed, stream, slot, max(appended) AS newest FROM {feed_progress} GROUP BY ALL) AS p
        ON p.feed = c.feed AND p.stream = c.stream AND p.slot = c.slot
) AS both
WHERE counted IS NULL OR counted < newest

-- name: routing_latency
-- Milliseconds of each row; `message_id` names it.
SELECT date, message_id, unix_millis(appended) - unix_millis(message_appended) AS ms FROM {judged_instructions}

-- name: delivery_latency
-- Milliseconds of each row; `message_id` names it.
SELECT date, message_id, unix_millis(`at`) - unix_millis(message_appended) AS ms
FROM {judged_outcomes}
WHERE outcome = 'sent' AND `number` IS NOT NULL AND NOT origin <=> 'platform'
