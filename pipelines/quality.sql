-- What is not as expected, a row each: its `date` and an `example` by which a person finds it; those of other dates than
-- the judged are passed over. Or, what is measured, a row each. One named block an expectation (pipelines/expectations.py).
--
-- `judged_<table>` are the rows to judge, `recent_<table>` these and those of the day before, and `<table>` all that they
-- can refer to: from `since` to the day after. `quarantined`: places on `ingress` of records that were
-- quarantined. messages_reach, instructions_reach: the youngest append time in the table; a row that refers to
-- something younger is not yet judged for that. skew: seconds that clocks may differ by.

-- name: unique_message_id
SELECT date, 'message ' || id AS example
FROM (SELECT max(date) AS date, id FROM {recent_messages} GROUP BY id HAVING count(*) > 1) AS copied

-- name: unique_outcomes
-- Two decisions on a message (scopes) number their instructions alike: a shard may have got the same number twice.
WITH copied AS (
    SELECT max(date) AS date, message_id, shard, `number`, client, outcome, count(*) AS copies
    FROM {recent_outcomes}
    GROUP BY message_id, shard, `number`, client, outcome
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
WHERE copies > coalesce(decisions, 1)

-- name: message_of_instruction
SELECT i.date, 'message ' || i.message_id || ', shard ' || i.shard || ', number ' || i.`number` AS example
FROM {judged_instructions} AS i
LEFT ANTI JOIN {messages} AS m ON m.id = i.message_id
LEFT ANTI JOIN {quarantined} AS q ON q.`partition` = i.`partition` AND q.`offset` = i.`offset`
WHERE i.message_appended >= TIMESTAMP {since} AND i.message_appended <= TIMESTAMP {messages_reach}

-- name: message_of_outcome
-- Own copies (without a number, to a client) may be of retained messages of any age.
SELECT o.date, 'message ' || o.message_id || ', ' || o.outcome || coalesce(' to ' || o.client, '') AS example
FROM {judged_outcomes} AS o
LEFT ANTI JOIN {messages} AS m ON m.id = o.message_id
LEFT ANTI JOIN (
    SELECT i.message_id
    FROM {instructions} AS i JOIN {quarantined} AS q ON q.`partition` = i.`partition` AND q.`offset` = i.`offset`
) AS x ON x.message_id = o.message_id
WHERE (o.`number` IS NOT NULL OR o.outcome = 'untouched')
  AND o.message_appended >= TIMESTAMP {since} AND o.message_appended <= TIMESTAMP {messages_reach}

-- name: message_of_completion
SELECT c.date, 'message ' || c.message_id AS example
FROM {judged_completions} AS c
LEFT ANTI JOIN {messages} AS m ON m.id = c.message_id
LEFT ANTI JOIN (
    SELECT i.message_id
    FROM {instructions} AS i JOIN {quarantined} AS q ON q.`partition` = i.`partition` AND q.`offset` = i.`offset`
) AS x ON x.message_id = c.message_id
WHERE c.message_appended >= TIMESTAMP {since} AND c.message_appended <= TIMESTAMP {messages_reach}

-- name: instruction_of_outcome
SELECT o.date,
       'message ' || o.message_id || ', shard ' || o.shard || ', number ' || o.`number` || ', ' || o.outcome AS example
FROM {judged_outcomes} AS o
LEFT ANTI JOIN {instructions} AS i
    ON i.message_id = o.message_id AND i.shard = o.shard AND i.`number` = o.`number`
WHERE o.`number` IS NOT NULL AND o.message_appended >= TIMESTAMP {since} AND o.appended <= TIMESTAMP {instructions_reach}

-- name: touches
-- Of two decisions on a message (scopes) the one that is finished first completes it.
SELECT date,
       'message ' || message_id || ': ' || touches || ' touches; instructions: ' || routed || ' routed, '
           || everyone || ' to everyone' AS example
FROM (
    SELECT c.date, c.message_id, c.touches, coalesce(i.routed, 0) AS routed, coalesce(i.everyone, 0) AS everyone
    FROM {judged_completions} AS c
    LEFT JOIN (
        SELECT message_id, count_if(scope = 'routed') AS routed, count_if(scope = 'everyone') AS everyone
        FROM {instructions}
        GROUP BY message_id
    ) AS i ON i.message_id = c.message_id
    WHERE c.message_appended >= TIMESTAMP {since} AND c.completed <= TIMESTAMP {instructions_reach}
) AS counted
WHERE NOT (touches = routed OR (touches = everyone AND everyone > 0))

-- name: completion_last
-- By the first word on each recipient: after a crash a home may repeat itself. An outcome after the completion is no
-- fault if it can be that of the message's other decision (scope): the completion counts as many as that one has not.
-- By the routes nobody may have wanted it (`untouched`, no instruction), while the other router asked everyone.
WITH finished AS (
    SELECT date, message_id, shard, `number`, client, min(appended) AS appended
    FROM {judged_outcomes}
    WHERE `number` IS NOT NULL
    GROUP BY date, message_id, shard, `number`, client
), late AS (
    SELECT f.*, c.completed, c.touches
    FROM finished AS f JOIN {completions} AS c ON c.message_id = f.message_id AND c.completed < f.appended
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

-- name: time_of_message
SELECT i.date, 'message ' || i.message_id || ', by the instruction ' || i.message_appended || ', was ' || m.appended AS example
FROM {judged_instructions} AS i JOIN {messages} AS m ON m.id = i.message_id
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
-- From the last offset of the day before on. Where a topic begins is arbitrary: retention takes its beginning.
WITH gaps AS (
    SELECT date, `partition`, before + 1 AS first, `offset` - 1 AS last
    FROM (
        SELECT date, `partition`, `offset`, lag(`offset`) OVER (PARTITION BY `partition` ORDER BY `offset`) AS before
        FROM {placed_messages}
    ) AS steps
    WHERE `offset` > before + 1
), held AS (
    SELECT `partition`, `offset` FROM {quarantined}
    UNION ALL
    SELECT `partition`, `offset` FROM {messages}
), found AS (
    SELECT *, CAST(NULL AS BIGINT) AS `offset` FROM gaps
    UNION ALL
    SELECT /*+ BROADCAST(gaps) */ gaps.*, held.`offset`
    FROM held JOIN gaps ON held.`partition` = gaps.`partition` AND held.`offset` BETWEEN gaps.first AND gaps.last
)
SELECT date, 'partition ' || `partition` || ', offsets ' || first || ' to ' || last AS example
FROM found
GROUP BY date, `partition`, first, last
HAVING count(DISTINCT `offset`) < last - first + 1

-- name: routing_latency
-- Milliseconds of each row; `message_id` names it.
SELECT date, message_id, unix_millis(appended) - unix_millis(message_appended) AS ms FROM {judged_instructions}

-- name: delivery_latency
-- Milliseconds of each row; `message_id` names it.
SELECT date, message_id, unix_millis(`at`) - unix_millis(message_appended) AS ms
FROM {judged_outcomes}
WHERE outcome = 'sent' AND `number` IS NOT NULL
