/* pg_rowsource--0.1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION pg_rowsource" to load this file. \quit

-- A plan as a table, like DBMS_XPLAN's ALLSTATS LAST. Without ids: this session's last measured statement.
CREATE FUNCTION rowsource_display(
    queryid bigint DEFAULT NULL,
    planid bigint DEFAULT NULL,
    format text DEFAULT 'ALLSTATS LAST'
) RETURNS SETOF text
AS 'MODULE_PATHNAME', 'rowsource_display_wrapper'
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

GRANT SELECT ON pg_stat_rowsource, pg_stat_rowsource_plans TO PUBLIC;
