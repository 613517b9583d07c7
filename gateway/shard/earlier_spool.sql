-- name: tables
SELECT count(*) FROM sqlite_master WHERE type = 'table';

-- name: messages
SELECT mid, shard, message, instructions FROM messages UNION ALL SELECT mid, shard, message, instructions FROM finished
ORDER BY mid;

-- name: rows
SELECT queue.row, queue.mid, messages.shard, queue.session, queue.entry
FROM queue JOIN messages ON messages.mid = queue.mid ORDER BY queue.row;

-- name: positions
SELECT name, state FROM positions;

-- name: keyed
SELECT id, print, at_ms FROM keyed ORDER BY at_ms;

-- name: last_numbers
SELECT coalesce((SELECT max(mid) FROM (SELECT mid FROM messages UNION ALL SELECT mid FROM finished)), 0),
       coalesce((SELECT max(row) FROM queue), 0);
