-- Queries over the table `quality_results`, in DuckDB's SQL, one per named block.

-- name: judged
-- For each date and table: the number of rows in the last run of that date, the time up to which they were checked,
-- whether all expectations passed, and the time of that run.
SELECT "date", table_name, max(table_rows) AS table_rows, max(judged_until) AS judged_until,
       bool_and(success) AS holds, max(run_at) AS run_at
FROM quality_results
JOIN (SELECT "date", max(run_at) AS run_at FROM quality_results GROUP BY "date") USING ("date", run_at)
GROUP BY "date", table_name

-- name: trend
-- For each date, oldest first: how many expectations failed in its last run, and the two latencies in milliseconds.
SELECT "date", count(*) FILTER (NOT success) AS failed,
       max(observed) FILTER (suite = 'latency is within bounds' AND table_name = 'instructions') AS routing_ms,
       max(observed) FILTER (suite = 'latency is within bounds' AND table_name = 'outcomes') AS sending_ms
FROM quality_results
JOIN (SELECT "date", max(run_at) AS run_at FROM quality_results GROUP BY "date") USING ("date", run_at)
GROUP BY "date"
ORDER BY "date"

-- name: last_runs
-- For each date and suite: how many expectations were checked in the last run of that date, and how many failed.
SELECT "date", suite, max(run_at) AS run_at, count(*) AS expectations, count(*) FILTER (NOT success) AS failed
FROM quality_results
JOIN (SELECT "date", max(run_at) AS run_at FROM quality_results GROUP BY "date") USING ("date", run_at)
GROUP BY "date", suite
ORDER BY "date" DESC, suite
