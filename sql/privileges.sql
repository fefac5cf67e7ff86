-- Of other users' plans the statistics are shown and the identity is masked, as in pg_stat_statements.
SET pg_rowsource.statistics_level = basic;
CREATE ROLE regress_rowsource_owner;
CREATE ROLE regress_rowsource_other;
CREATE ROLE regress_rowsource_stats;
GRANT pg_read_all_stats TO regress_rowsource_stats;
SELECT rowsource_reset();
CREATE TABLE hidden AS SELECT i AS id FROM generate_series(1, 10) i;
GRANT SELECT ON hidden TO regress_rowsource_owner;

SET ROLE regress_rowsource_owner;
SET pg_rowsource.statistics_level = typical;
SELECT count(*) AS secret FROM hidden WHERE id <> 4711;
SET pg_rowsource.statistics_level = basic;
SELECT queryid, planid FROM rowsource_last() \gset
\set plans 'SELECT userid::regrole, queryid IS NULL AS no_queryid, planid IS NULL AS no_planid, toplevel, query, calls, total_time > 0 AS timed, last_outcome FROM pg_stat_rowsource_plans;'
\set nodes 'SELECT userid::regrole, queryid IS NULL AS no_queryid, planid IS NULL AS no_planid, node_id, parent_id, depth, operation, object_name, executions, starts, rows, total_time > 0 AS timed FROM pg_stat_rowsource ORDER BY node_id;'
\set histogram 'SELECT DISTINCT userid::regrole, queryid IS NULL AS no_queryid, planid IS NULL AS no_planid, node_id, timed_calls > 0 AS timed FROM pg_stat_rowsource_histogram ORDER BY node_id;'

-- the user's own plan
:plans
:nodes
:histogram
SELECT count(*) > 0 AS displayed FROM rowsource_display(:queryid, :planid);
RESET ROLE;

-- another user's plan
SET ROLE regress_rowsource_other;
:plans
:nodes
:histogram
SELECT count(*) FROM rowsource_plan_flips;
SELECT count(*) FROM rowsource_misestimates WHERE queryid IS NOT NULL OR operation NOT LIKE '<%' OR object_name IS NOT NULL;
\set VERBOSITY sqlstate
SELECT rowsource_display(:queryid, :planid);
SELECT rowsource_display(planid => :planid);
-- the session's last statement belongs to the owner
SELECT rowsource_display();
SELECT * FROM rowsource_last();
\set VERBOSITY terse
SELECT rowsource_reset();
SELECT rowsource_reset(queryid => 1);
RESET ROLE;

-- with pg_read_all_stats
SET ROLE regress_rowsource_stats;
:plans
:nodes
SELECT count(*) > 0 AS displayed FROM rowsource_display(:queryid, :planid);
SELECT rowsource_reset();
RESET ROLE;

-- the superuser
:plans
GRANT EXECUTE ON FUNCTION rowsource_reset(oid, oid, bigint) TO regress_rowsource_stats;
SET ROLE regress_rowsource_stats;
SELECT rowsource_reset();
:plans
RESET ROLE;

REVOKE EXECUTE ON FUNCTION rowsource_reset(oid, oid, bigint) FROM regress_rowsource_stats;
DROP TABLE hidden;
DROP ROLE regress_rowsource_owner, regress_rowsource_other, regress_rowsource_stats;
RESET pg_rowsource.statistics_level;
