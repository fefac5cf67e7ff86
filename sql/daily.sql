-- The views for every day.
SET pg_rowsource.statistics_level = basic;
SET work_mem = '64kB';
SET max_parallel_workers_per_gather = 0;
SELECT rowsource_reset();
CREATE TABLE daily AS SELECT i, repeat('x', 100) AS pad FROM generate_series(1, 5000) i;
CREATE FUNCTION daily_inner() RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN RETURN (SELECT count(*) FROM daily WHERE i % 2 = 0); END $$;
SET pg_rowsource.statistics_level = typical;
SET pg_rowsource.sampfreq = 1;
SET pg_rowsource.track = 'all';
SELECT count(*) FROM (SELECT * FROM daily ORDER BY pad, i DESC OFFSET 0) s;
SELECT daily_inner();
SELECT daily_inner();
SET pg_rowsource.statistics_level = basic;
SET pg_rowsource.track = top;

-- A statement in a function has no part of all, because its time is part of its caller's.
SELECT usename = current_user AS mine, datname = current_database() AS here, queryid IS NOT NULL AS queryid, plans, calls, total_time > 0 AS timed, mean_time <= total_time AS mean,
       percent > 0 AS percent, rows, blks_read >= 0 AS blks_read, left(query, 20) AS query
  FROM rowsource_top_statements ORDER BY left(query, 22) COLLATE "C";
SELECT sum(percent) BETWEEN 99.9 AND 100.1 AS "percent of all" FROM rowsource_top_statements;
SELECT usename = current_user AS mine, datname = current_database() AS here, queryid IS NOT NULL AS queryid, planid IS NOT NULL AS planid, node_id, operation, object_name, self_time >= 0 AS timed,
       percent_of_statement BETWEEN 0 AND 100 AS of_statement, processes, percent >= 0 AS percent
  FROM rowsource_top_nodes n
 ORDER BY (SELECT query FROM pg_stat_rowsource_plans p WHERE p.queryid = n.queryid AND p.planid = n.planid) COLLATE "C", node_id;
SELECT sum(percent) BETWEEN 99 AND 101 AS "percent of all" FROM rowsource_top_nodes;
SELECT usename = current_user AS mine, datname = current_database() AS here, queryid IS NOT NULL AS queryid, planid IS NOT NULL AS planid, node_id, operation, processes, self_temp_blks_written > 0 AS written,
       self_temp_blks_read > 0 AS read, self_temp_blk_time > 0 AS timed, percent
  FROM rowsource_top_temp;
-- Rows that filters removed.
SELECT operation, object_name, rows_removed, rows, self_time >= 0 AS timed, percent FROM rowsource_top_rows_removed;
-- The most expensive come first.
SELECT bool_and(ordered) AS ordered FROM (SELECT coalesce(response_time, total_time) <= lag(coalesce(response_time, total_time)) OVER () AS ordered FROM rowsource_top_statements) s;
SELECT bool_and(ordered) AS ordered FROM (SELECT self_time <= lag(self_time) OVER () AS ordered FROM rowsource_top_nodes) s;
-- A node's percent is that of its own time in the time of its statement.
SELECT bool_and(percent_of_statement BETWEEN 0 AND 100.001) AS of_statement,
       bool_and(abs(percent_of_statement - 100 * n.self_time / p.total_time) < 1e-6) AS of_all,
       bool_and(abs(last_percent_of_statement - 100 * n.last_self_time / p.last_time) < 1e-6) AS of_last
  FROM pg_stat_rowsource n JOIN pg_stat_rowsource_plans p USING (queryid, planid, toplevel);
-- Nodes that were not timed come last.
SET pg_rowsource.statistics_level = typical;
SET pg_rowsource.sampfreq = 0;
SELECT count(*) AS untimed FROM daily;
SET pg_rowsource.statistics_level = basic;
RESET pg_rowsource.sampfreq;
SELECT operation, self_time, percent_of_statement, percent FROM (SELECT * FROM rowsource_top_nodes OFFSET 7) untimed ORDER BY operation COLLATE "C";

DROP FUNCTION daily_inner();
DROP TABLE daily;
RESET work_mem;
RESET max_parallel_workers_per_gather;
RESET pg_rowsource.track;
RESET pg_rowsource.statistics_level;
