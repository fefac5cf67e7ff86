/* pg_rowsource--0.1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION pg_rowsource" to load this file. \quit

-- A plan as a table, like DBMS_XPLAN's ALLSTATS LAST. Without ids: this session's last measured statement.
CREATE FUNCTION rowsource_display(
    queryid bigint DEFAULT NULL,
    planid bigint DEFAULT NULL,
    format text DEFAULT 'ALLSTATS LAST'
) RETURNS SETOF text
AS 'MODULE_PATHNAME', 'rowsource_display_0_1'
LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED;

-- Which statement that was.
CREATE FUNCTION rowsource_last(OUT queryid bigint, OUT planid bigint, OUT outcome text) RETURNS SETOF record
AS 'MODULE_PATHNAME', 'rowsource_last_wrapper'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

-- What each clock source costs on this machine, and how it behaves.
CREATE FUNCTION rowsource_clocks(
    calls int DEFAULT 1000000,
    OUT clock_source text,
    OUT usable bool,
    OUT reason text,
    OUT auto bool,
    OUT reading_ns float8,
    OUT resolution_ns float8,
    OUT backward_steps bigint,
    OUT largest_backward_step_ns float8
) RETURNS SETOF record
AS 'MODULE_PATHNAME', 'rowsource_clocks_wrapper'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

-- A row per node of each kept plan.
CREATE FUNCTION pg_stat_rowsource(
    OUT userid oid,
    OUT dbid oid,
    OUT queryid bigint,
    OUT planid bigint,
    OUT toplevel bool,
    OUT node_id int,
    OUT parent_id int,
    OUT depth int,
    OUT operation text,
    OUT object_name text,
    OUT plan_rows float8,
    OUT executions bigint,
    OUT starts bigint,
    OUT last_starts bigint,
    OUT rows bigint,
    OUT last_rows bigint,
    OUT total_time float8,
    OUT last_total_time float8,
    OUT startup_time float8,
    OUT last_startup_time float8,
    OUT self_time float8,
    OUT last_self_time float8,
    OUT time_error float8,
    OUT last_time_error float8,
    OUT timed_calls bigint,
    OUT last_timed_calls bigint,
    OUT timer_calls bigint,
    OUT last_timer_calls bigint,
    OUT clock_backsteps bigint,
    OUT last_clock_backsteps bigint,
    OUT shared_blks_hit bigint,
    OUT last_shared_blks_hit bigint,
    OUT shared_blks_read bigint,
    OUT last_shared_blks_read bigint,
    OUT shared_blks_dirtied bigint,
    OUT last_shared_blks_dirtied bigint,
    OUT shared_blks_written bigint,
    OUT last_shared_blks_written bigint,
    OUT local_blks_hit bigint,
    OUT last_local_blks_hit bigint,
    OUT local_blks_read bigint,
    OUT last_local_blks_read bigint,
    OUT local_blks_dirtied bigint,
    OUT last_local_blks_dirtied bigint,
    OUT local_blks_written bigint,
    OUT last_local_blks_written bigint,
    OUT temp_blks_read bigint,
    OUT last_temp_blks_read bigint,
    OUT temp_blks_written bigint,
    OUT last_temp_blks_written bigint,
    OUT shared_blk_read_time float8,
    OUT last_shared_blk_read_time float8,
    OUT shared_blk_write_time float8,
    OUT last_shared_blk_write_time float8,
    OUT local_blk_read_time float8,
    OUT last_local_blk_read_time float8,
    OUT local_blk_write_time float8,
    OUT last_local_blk_write_time float8,
    OUT temp_blk_read_time float8,
    OUT last_temp_blk_read_time float8,
    OUT temp_blk_write_time float8,
    OUT last_temp_blk_write_time float8,
    OUT wal_records bigint,
    OUT last_wal_records bigint,
    OUT wal_fpi bigint,
    OUT last_wal_fpi bigint,
    OUT wal_bytes bigint,
    OUT last_wal_bytes bigint,
    OUT memory_kb bigint,
    OUT last_memory_kb bigint,
    OUT disk_kb bigint,
    OUT last_disk_kb bigint
) RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pg_stat_rowsource_0_1'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

CREATE VIEW pg_stat_rowsource AS
    SELECT * FROM pg_stat_rowsource();

-- A row per kept plan.
CREATE FUNCTION pg_stat_rowsource_plans(
    OUT userid oid,
    OUT dbid oid,
    OUT queryid bigint,
    OUT planid bigint,
    OUT toplevel bool,
    OUT query text,
    OUT calls bigint,
    OUT failed_calls bigint,
    OUT cancelled_calls bigint,
    OUT total_time float8,
    OUT min_time float8,
    OUT max_time float8,
    OUT mean_time float8,
    OUT stddev_time float8,
    OUT last_time float8,
    OUT last_outcome text,
    OUT first_seen timestamptz,
    OUT last_seen timestamptz,
    OUT sampfreq int,
    OUT clock_source text
) RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pg_stat_rowsource_plans_0_1'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

CREATE VIEW pg_stat_rowsource_plans AS
    SELECT * FROM pg_stat_rowsource_plans();

-- How long a node's timed calls took: a row per bucket that holds any, split by whether the call read blocks inside.
CREATE FUNCTION pg_stat_rowsource_histogram(
    OUT userid oid,
    OUT dbid oid,
    OUT queryid bigint,
    OUT planid bigint,
    OUT toplevel bool,
    OUT node_id int,
    OUT did_read bool,
    OUT from_us float8,
    OUT to_us float8,
    OUT timed_calls bigint
) RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pg_stat_rowsource_histogram_0_1'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

CREATE VIEW pg_stat_rowsource_histogram AS
    SELECT * FROM pg_stat_rowsource_histogram();

-- Where estimates went wrong: nodes that returned another number of rows a start than the planner expected, those that
-- cost most first. factor: how many times too few or too many; weight: milliseconds of the node itself times log2(factor).
CREATE VIEW rowsource_misestimates AS
    SELECT n.userid, n.dbid, n.queryid, n.planid, n.toplevel, n.node_id, n.operation, n.object_name, n.executions,
           n.starts, n.plan_rows AS e_rows, f.a_rows,
           CASE WHEN f.a_rows > n.plan_rows THEN 'underestimated' ELSE 'overestimated' END AS direction,
           f.factor, n.self_time,
           n.self_time * pg_catalog.ln(f.factor) / pg_catalog.ln(2::float8) AS weight
      FROM pg_stat_rowsource n,
           LATERAL (SELECT n.rows::float8 / n.starts::float8 AS a_rows) a,
           LATERAL (SELECT a.a_rows,
                           greatest(a.a_rows, 1::float8) / greatest(n.plan_rows, 1::float8) AS ratio) r,
           LATERAL (SELECT r.a_rows, greatest(r.ratio, 1::float8 / r.ratio) AS factor) f
     WHERE n.starts > 0::bigint AND f.factor > 1::float8
     ORDER BY weight DESC NULLS LAST;

-- Queries that changed their plan: a row per change, with the time per call before and after, the worst first.
CREATE VIEW rowsource_plan_changes AS
    SELECT userid, dbid, queryid, toplevel, changed_at, previous_planid, planid, previous_calls, calls,
           previous_mean_time, mean_time, mean_time / nullif(previous_mean_time, 0::float8) AS ratio
      FROM (SELECT p.*, p.first_seen AS changed_at,
                   pg_catalog.lag(planid) OVER w AS previous_planid,
                   pg_catalog.lag(calls) OVER w AS previous_calls,
                   pg_catalog.lag(mean_time) OVER w AS previous_mean_time
              FROM pg_stat_rowsource_plans p
             WHERE queryid <> 0::bigint
            WINDOW w AS (PARTITION BY userid, dbid, queryid, toplevel ORDER BY first_seen, planid)) changes
     WHERE previous_planid IS NOT NULL
     ORDER BY ratio DESC NULLS LAST;

-- About the shared store.
CREATE FUNCTION rowsource_info(
    OUT plans bigint,
    OUT max_plans int,
    OUT bytes bigint,
    OUT evictions bigint,
    OUT refused bigint,
    OUT stats_reset timestamptz
) RETURNS SETOF record
AS 'MODULE_PATHNAME', 'rowsource_info_wrapper'
LANGUAGE C VOLATILE STRICT ROWS 1 PARALLEL RESTRICTED;

-- Forgets plans: of a user, a database, a query; 0 stands for any.
CREATE FUNCTION rowsource_reset(userid oid DEFAULT 0, dbid oid DEFAULT 0, queryid bigint DEFAULT 0) RETURNS void
AS 'MODULE_PATHNAME', 'rowsource_reset_wrapper'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

-- Requests to temporary files since the last reset: a row per database and file type. small: one block or less.
CREATE FUNCTION pg_stat_tempfile_io(
    OUT datid oid,
    OUT filetype text,
    OUT small_read_reqs bigint,
    OUT small_read_bytes bigint,
    OUT small_read_service_time float8,
    OUT small_read_avg_time float8,
    OUT small_read_max_time float8,
    OUT large_read_reqs bigint,
    OUT large_read_bytes bigint,
    OUT large_read_service_time float8,
    OUT large_read_avg_time float8,
    OUT large_read_max_time float8,
    OUT small_write_reqs bigint,
    OUT small_write_bytes bigint,
    OUT small_write_service_time float8,
    OUT small_write_avg_time float8,
    OUT small_write_max_time float8,
    OUT large_write_reqs bigint,
    OUT large_write_bytes bigint,
    OUT large_write_service_time float8,
    OUT large_write_avg_time float8,
    OUT large_write_max_time float8,
    OUT source text,
    OUT stats_reset timestamptz
) RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pg_stat_tempfile_io_0_1'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

CREATE VIEW pg_stat_tempfile_io AS
    SELECT f.datid, d.datname, f.filetype,
           f.small_read_reqs, f.small_read_bytes, f.small_read_service_time, f.small_read_avg_time, f.small_read_max_time,
           f.large_read_reqs, f.large_read_bytes, f.large_read_service_time, f.large_read_avg_time, f.large_read_max_time,
           f.small_write_reqs, f.small_write_bytes, f.small_write_service_time, f.small_write_avg_time, f.small_write_max_time,
           f.large_write_reqs, f.large_write_bytes, f.large_write_service_time, f.large_write_avg_time, f.large_write_max_time,
           f.source, f.stats_reset
      FROM pg_stat_tempfile_io() f LEFT JOIN pg_catalog.pg_database d ON d.oid = f.datid;

-- How long they took: a row per bucket that holds any.
CREATE FUNCTION pg_stat_tempfile_io_histogram(
    OUT datid oid,
    OUT filetype text,
    OUT operation text,
    OUT size text,
    OUT from_us float8,
    OUT to_us float8,
    OUT reqs bigint
) RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pg_stat_tempfile_io_histogram_0_1'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

CREATE VIEW pg_stat_tempfile_io_histogram AS
    SELECT f.datid, d.datname, f.filetype, f.operation, f.size, f.from_us, f.to_us, f.reqs
      FROM pg_stat_tempfile_io_histogram() f LEFT JOIN pg_catalog.pg_database d ON d.oid = f.datid;

-- Begins anew with a database's temporary files, or with those of all with 0.
CREATE FUNCTION rowsource_tempfile_reset(dbid oid DEFAULT 0) RETURNS void
AS 'MODULE_PATHNAME', 'rowsource_tempfile_reset_wrapper'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

REVOKE ALL ON FUNCTION rowsource_reset(oid, oid, bigint), rowsource_tempfile_reset(oid) FROM PUBLIC;

GRANT SELECT ON pg_stat_rowsource, pg_stat_rowsource_plans, pg_stat_rowsource_histogram, rowsource_misestimates,
    rowsource_plan_changes, pg_stat_tempfile_io, pg_stat_tempfile_io_histogram TO PUBLIC;
