-- Over the table `quality_results`, as DuckDB has it. One named block a query.

-- name: judged
-- Of each date and table: how many rows there were, and until when they had been judged, in the last run.
SELECT "date", table_name, arg_max(table_rows, run_at) AS table_rows, arg_max(judged_until, run_at) AS judged_until
FROM quality_results
GROUP BY "date", table_name

-- name: last_runs
-- Of each date and suite: how many expectations were judged in the last run of that date, and how many failed.
SELECT "date", suite, max(run_at) AS run_at, count(*) AS expectations, count(*) FILTER (NOT success) AS failed
FROM quality_results
JOIN (SELECT "date", max(run_at) AS run_at FROM quality_results GROUP BY "date") USING ("date", run_at)
GROUP BY "date", suite
ORDER BY "date" DESC, suite
