-- What is measured at each statistics_level, and in how much detail at each sampfreq.
SET pg_rowsource.statistics_level = basic;
CREATE TABLE levels AS SELECT i AS id FROM generate_series(1, 1000) i;
VACUUM ANALYZE levels;
CREATE FUNCTION last_nodes(OUT operation text, OUT starts bigint, OUT rows bigint, OUT timed bool, OUT every_call bool, OUT blocks bool)
RETURNS SETOF record LANGUAGE sql AS $$
    SELECT operation, last_starts, last_rows, last_total_time IS NOT NULL, last_timed_calls > s.last_rows, last_shared_blks_hit IS NOT NULL
    FROM pg_stat_rowsource s JOIN rowsource_last() l USING (queryid, planid) ORDER BY node_id
$$;

-- basic: nothing
SELECT count(*) FROM levels;
SELECT * FROM last_nodes();

-- typical: everything, at sampfreq
SET pg_rowsource.statistics_level = typical;
SELECT count(*) FROM levels;
SET pg_rowsource.statistics_level = basic;
SELECT * FROM last_nodes();

-- all: everything, every call timed, unless sampfreq was set explicitly
SET pg_rowsource.statistics_level = 'all';
SELECT count(id) FROM levels;
SET pg_rowsource.statistics_level = basic;
SELECT * FROM last_nodes();
SET pg_rowsource.sampfreq = 1000000;
SET pg_rowsource.statistics_level = 'all';
SELECT count(id + 1) FROM levels;
SET pg_rowsource.statistics_level = basic;
SELECT * FROM last_nodes();
-- even if it was set to the default
SET pg_rowsource.sampfreq = 128;
SET pg_rowsource.statistics_level = 'all';
SELECT count(id + 2) FROM levels;
SET pg_rowsource.statistics_level = basic;
SELECT every_call FROM last_nodes();
-- but not after RESET
RESET pg_rowsource.sampfreq;
SET pg_rowsource.statistics_level = 'all';
SELECT count(id + 3) FROM levels;
SET pg_rowsource.statistics_level = basic;
SELECT every_call FROM last_nodes();

-- 0: starts and blocks, no time
SET pg_rowsource.statistics_level = typical;
SET pg_rowsource.sampfreq = 0;
SELECT count(id + 4) FROM levels;
SET pg_rowsource.statistics_level = basic;
SELECT * FROM last_nodes();

-- 3: rows only
SET client_min_messages = warning;
SET pg_rowsource.sampfreq = 3;
RESET client_min_messages;
SET pg_rowsource.statistics_level = typical;
SELECT count(id + 5) FROM levels;
SET pg_rowsource.statistics_level = basic;
SELECT * FROM last_nodes();

-- Executions are summed; last_ columns show the last execution.
RESET pg_rowsource.sampfreq;
PREPARE up_to (int) AS SELECT count(*) FROM levels WHERE id <= $1;
SET plan_cache_mode = force_generic_plan;
SET pg_rowsource.statistics_level = typical;
EXECUTE up_to (10);
EXECUTE up_to (500);
EXECUTE up_to (20);
SET pg_rowsource.statistics_level = basic;
SELECT operation, object_name, executions, starts, last_starts, rows, last_rows,
       total_time >= last_total_time AS total_time, self_time <= total_time AS self_time
FROM pg_stat_rowsource JOIN rowsource_last() l USING (queryid, planid) ORDER BY node_id;
SELECT query, calls, failed_calls, cancelled_calls, last_outcome, total_time >= last_time AS total_time, first_seen_at <= last_seen_at AS seen
FROM pg_stat_rowsource_plans JOIN rowsource_last() l USING (queryid, planid);

DEALLOCATE up_to;
DROP FUNCTION last_nodes();
DROP TABLE levels;
RESET pg_rowsource.statistics_level;
