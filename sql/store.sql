-- The stored plans: a row per plan and a row per node, with the totals and the last execution.
SET pg_rowsource.statistics_level = basic;
SET pg_rowsource.sampfreq = 1;
CREATE TABLE stored (id int PRIMARY KEY, grp int);
INSERT INTO stored SELECT i, i % 10 FROM generate_series(1, 1000) i;
VACUUM ANALYZE stored;
SELECT rowsource_reset();
SELECT plans, bytes, evictions, refused, stats_reset <= now() AS reset FROM rowsource_info();

SET pg_rowsource.statistics_level = typical;
SELECT count(*) FROM stored WHERE grp < 5;
SELECT count(*) FROM stored WHERE grp < 2;
SELECT sum(10 / (id - 100)) FROM stored;
SET pg_rowsource.statistics_level = basic;
SELECT query, calls, failed_calls, cancelled_calls, last_outcome, total_time > 0 AS total, min_time <= mean_time AS min,
       max_time >= mean_time AS max, last_seen_at >= first_seen_at AS seen, sampfreq
  FROM pg_stat_rowsource_plans ORDER BY query COLLATE "C";
SELECT p.query, n.node_id, n.parent_id, n.depth, n.operation, n.object_name, n.executions, n.starts, n.last_starts,
       n.rows, n.last_rows, n.timed_calls, n.last_timed_calls, n.shared_blks_hit + n.shared_blks_read > 0 AS blocks
  FROM pg_stat_rowsource n JOIN pg_stat_rowsource_plans p USING (userid, datid, queryid, planid, toplevel)
 ORDER BY p.query COLLATE "C", n.node_id;

-- every timed call is in a bucket
SELECT n.operation, n.timed_calls, sum(h.timed_calls) AS in_buckets
  FROM pg_stat_rowsource n JOIN pg_stat_rowsource_histogram h USING (userid, datid, queryid, planid, toplevel, node_id)
 GROUP BY n.queryid, n.operation, n.timed_calls ORDER BY 1, 2;

-- another plan of the same query takes over
SET pg_rowsource.statistics_level = typical;
SELECT grp FROM stored WHERE id = 17;
SELECT grp FROM stored WHERE id = 17;
SELECT grp FROM stored WHERE id = 17;
SET enable_indexscan = off;
SET enable_bitmapscan = off;
SELECT grp FROM stored WHERE id = 17;
SELECT grp FROM stored WHERE id = 17;
SELECT grp FROM stored WHERE id = 17;
RESET enable_indexscan;
RESET enable_bitmapscan;
SET pg_rowsource.statistics_level = basic;
SELECT from_planid <> to_planid AS changed, query, calls_after, typical_time_after > 0 AS after, verdict <> '' AS verdict
  FROM rowsource_plan_flips;
SELECT toplevel, userid = (SELECT usesysid FROM pg_user WHERE usename = current_user) AS mine, calls_before,
       mean_time_before > 0 AND stderr_before > 0 AS before, mean_time_after > 0 AND stderr_after > 0 AS after, changed_at <= now() AS at
  FROM rowsource_plan_flips();

-- wrong estimates
SET pg_rowsource.statistics_level = typical;
SELECT count(*) FROM stored WHERE id + 0 = id AND grp + 0 = grp;
SET pg_rowsource.statistics_level = basic;
SELECT datname = current_database() AS datname, node_id, operation, object_name, plan_rows, actual_rows, max_factor, verdict,
       self_time > 0 AS self_time
  FROM rowsource_misestimates WHERE max_factor > 100;

-- reset of one query, of a user and a database without plans, and of everything
SELECT rowsource_reset(queryid => (SELECT queryid FROM pg_stat_rowsource_plans WHERE query LIKE 'SELECT sum%'));
SELECT query FROM pg_stat_rowsource_plans ORDER BY query COLLATE "C";
SELECT rowsource_reset(userid => 1), rowsource_reset(datid => 1);
SELECT count(*) FROM pg_stat_rowsource_plans;
SELECT rowsource_reset();
SELECT plans, bytes, evictions, refused FROM rowsource_info();
DROP TABLE stored;
RESET pg_rowsource.sampfreq;
RESET pg_rowsource.statistics_level;
