/* pg_rowsource--0.1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION pg_rowsource" to load this file. \quit

-- Shows a plan as a table, like DBMS_XPLAN's ALLSTATS LAST. Without ids it shows this session's last measured statement.
CREATE FUNCTION rowsource_display(
    queryid bigint DEFAULT NULL,
    planid bigint DEFAULT NULL,
    format text DEFAULT 'ALLSTATS LAST'
) RETURNS SETOF text
AS 'MODULE_PATHNAME', 'rowsource_display_0_1'
LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED;

-- Exports a plan as folded stacks, as flamegraph.pl, inferno and speedscope read them. The weight of a node is its own time in
-- microseconds. which: last, mean or total. Without ids it exports this session's last measured statement.
CREATE FUNCTION rowsource_folded(
    queryid bigint DEFAULT NULL,
    planid bigint DEFAULT NULL,
    which text DEFAULT 'last'
) RETURNS SETOF text
AS 'MODULE_PATHNAME', 'rowsource_folded_0_1'
LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED;

-- Exports a plan as a file of speedscope.
CREATE FUNCTION rowsource_speedscope(
    queryid bigint DEFAULT NULL,
    planid bigint DEFAULT NULL,
    which text DEFAULT 'last'
) RETURNS SETOF text
AS 'MODULE_PATHNAME', 'rowsource_speedscope_0_1'
LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED;

-- Plots how long a node's timed calls took, as text.
CREATE FUNCTION rowsource_histogram_plot(
    queryid bigint DEFAULT NULL,
    planid bigint DEFAULT NULL,
    node_id int DEFAULT 0
) RETURNS SETOF text
AS 'MODULE_PATHNAME', 'rowsource_histogram_plot_0_1'
LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED;

-- Plots a histogram as text: the lower bounds of its buckets in microseconds, and their counts.
CREATE FUNCTION rowsource_histogram_plot(from_us float8[], counts bigint[]) RETURNS SETOF text
AS 'MODULE_PATHNAME', 'rowsource_histogram_lines_0_1'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

-- Gets blocks of a relation through the buffer manager, and returns how long that took: a row per bucket of times. hits found
-- the block in a buffer, reads had to read it. Each row repeats the summaries of all gets. Times are microseconds, without what
-- reading the clock took (timer_us). pattern: sequential or random.
CREATE FUNCTION rowsource_logical_io(
    rel regclass,
    fork text DEFAULT 'main',
    blocks bigint DEFAULT NULL,
    pattern text DEFAULT 'sequential',
    seed bigint DEFAULT NULL,
    OUT from_us float8,
    OUT to_us float8,
    OUT hits bigint,
    OUT reads bigint,
    OUT hit_min_us float8,
    OUT hit_mean_us float8,
    OUT hit_p50_us float8,
    OUT hit_p99_us float8,
    OUT hit_max_us float8,
    OUT read_min_us float8,
    OUT read_mean_us float8,
    OUT read_p50_us float8,
    OUT read_p99_us float8,
    OUT read_max_us float8,
    OUT timer_us float8
) RETURNS SETOF record
AS 'MODULE_PATHNAME', 'rowsource_logical_io_0_1'
LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED;

-- Identifies this session's last measured statement.
CREATE FUNCTION rowsource_last(OUT queryid bigint, OUT planid bigint, OUT outcome text) RETURNS SETOF record
AS 'MODULE_PATHNAME', 'rowsource_last_0_1'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

-- Measures the cost and the behaviour of each clock source on this machine.
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
AS 'MODULE_PATHNAME', 'rowsource_clocks_0_1'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

-- Returns a row per node of each stored plan.
CREATE FUNCTION pg_stat_rowsource(
    OUT userid oid,
    OUT dbid oid,
    OUT queryid bigint,
    OUT planid bigint,
    OUT plan_shape bigint,
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

-- Returns a row per stored plan.
CREATE FUNCTION pg_stat_rowsource_plans(
    OUT userid oid,
    OUT dbid oid,
    OUT queryid bigint,
    OUT planid bigint,
    OUT plan_shape bigint,
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
    OUT plans bigint,
    OUT total_plan_time float8,
    OUT min_plan_time float8,
    OUT max_plan_time float8,
    OUT mean_plan_time float8,
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

-- Returns how long a node's timed calls took: a row per bucket that is not empty. Calls that read blocks have separate rows.
CREATE FUNCTION pg_stat_rowsource_histogram(
    OUT userid oid,
    OUT dbid oid,
    OUT queryid bigint,
    OUT planid bigint,
    OUT plan_shape bigint,
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

-- Shows wrong estimates: nodes that returned another number of rows per start than the planner expected. factor: how many
-- times too few or too many rows were expected. weight, the order: the node's own milliseconds times log2(factor).
CREATE VIEW rowsource_misestimates AS
    SELECT n.userid, n.dbid, n.queryid, n.planid, n.plan_shape, n.toplevel, n.node_id, n.operation, n.object_name, n.executions,
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

-- Shows queries that changed their plan: a row per change, with the time per call before and after, the worst first.
CREATE VIEW rowsource_plan_changes AS
    SELECT userid, dbid, queryid, toplevel, changed_at, previous_planid, previous_plan_shape, planid, plan_shape,
           previous_calls, calls, previous_mean_time, mean_time, mean_time / nullif(previous_mean_time, 0::float8) AS ratio
      FROM (SELECT p.*, p.first_seen AS changed_at,
                   pg_catalog.lag(planid) OVER w AS previous_planid,
                   pg_catalog.lag(plan_shape) OVER w AS previous_plan_shape,
                   pg_catalog.lag(calls) OVER w AS previous_calls,
                   pg_catalog.lag(mean_time) OVER w AS previous_mean_time
              FROM pg_stat_rowsource_plans p
             WHERE queryid <> 0::bigint
            WINDOW w AS (PARTITION BY userid, dbid, queryid, toplevel ORDER BY first_seen, planid, plan_shape)) changes
     WHERE previous_planid IS NOT NULL
     ORDER BY ratio DESC NULLS LAST;

-- Describes the shared store.
CREATE FUNCTION rowsource_info(
    OUT plans bigint,
    OUT max_plans int,
    OUT bytes bigint,
    OUT max_bytes bigint,
    OUT evictions bigint,
    OUT refused bigint,
    OUT truncated bigint,
    OUT stats_reset timestamptz
) RETURNS SETOF record
AS 'MODULE_PATHNAME', 'rowsource_info_0_1'
LANGUAGE C VOLATILE STRICT ROWS 1 PARALLEL RESTRICTED;

-- Deletes plans of a user, a database or a query. 0 stands for any.
CREATE FUNCTION rowsource_reset(userid oid DEFAULT 0, dbid oid DEFAULT 0, queryid bigint DEFAULT 0) RETURNS void
AS 'MODULE_PATHNAME', 'rowsource_reset_0_1'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

-- Returns the requests to temporary files since the last reset: a row per database and file type. small: one block or less.
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

-- Returns how long the requests took: a row per bucket that is not empty.
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

-- Resets the counters of a database's temporary files. 0 stands for all databases.
CREATE FUNCTION rowsource_tempfile_reset(dbid oid DEFAULT 0) RETURNS void
AS 'MODULE_PATHNAME', 'rowsource_tempfile_reset_0_1'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

-- Returns the temporary files on disk, summed by the process that created them and by kind.
CREATE FUNCTION rowsource_temp_files(
    OUT pid int,
    OUT datid oid,
    OUT kind text,
    OUT files bigint,
    OUT bytes bigint
) RETURNS SETOF record
AS 'MODULE_PATHNAME', 'rowsource_temp_files_0_1'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

-- Shows who uses temporary space now, like V$TEMPSEG_USAGE. The queryid is masked as in pg_stat_activity.
CREATE FUNCTION rowsource_temp_usage(
    OUT pid int,
    OUT usename name,
    OUT datname name,
    OUT queryid bigint,
    OUT kind text,
    OUT files bigint,
    OUT bytes bigint
) RETURNS SETOF record
LANGUAGE SQL VOLATILE PARALLEL RESTRICTED
BEGIN ATOMIC
    SELECT f.pid, a.usename, coalesce(a.datname, d.datname), CASE WHEN a.state <> 'idle'::text THEN a.query_id END,
           f.kind, f.files, f.bytes
      FROM rowsource_temp_files() f
           LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = f.pid
           LEFT JOIN pg_catalog.pg_database d ON d.oid = f.datid
     ORDER BY f.bytes DESC, f.pid, f.kind;
END;

-- The history: rowsource_snapshot() fills these tables. pg_rowsource.snapshot_retention says how long rows are kept.
CREATE TABLE rowsource_snapshots (
    snap_id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    taken_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
);

CREATE TABLE rowsource_snapshot_tempfile_io (
    snap_id bigint NOT NULL REFERENCES rowsource_snapshots ON DELETE CASCADE,
    datid oid,
    datname name,
    filetype text NOT NULL,
    small_read_reqs bigint,
    small_read_bytes bigint,
    small_read_service_time float8,
    large_read_reqs bigint,
    large_read_bytes bigint,
    large_read_service_time float8,
    small_write_reqs bigint,
    small_write_bytes bigint,
    small_write_service_time float8,
    large_write_reqs bigint,
    large_write_bytes bigint,
    large_write_service_time float8,
    source text NOT NULL,
    stats_reset timestamptz NOT NULL
);

-- datid is NULL if several databases share one set of counters.
CREATE UNIQUE INDEX rowsource_snapshot_tempfile_io_idx
    ON rowsource_snapshot_tempfile_io (snap_id, coalesce(datid, 0::oid), filetype);

-- The plans that ran since the previous snapshot, with the statistics of their root node.
CREATE TABLE rowsource_snapshot_plans (
    snap_id bigint NOT NULL REFERENCES rowsource_snapshots ON DELETE CASCADE,
    userid oid NOT NULL,
    dbid oid NOT NULL,
    queryid bigint NOT NULL,
    planid bigint NOT NULL,
    plan_shape bigint NOT NULL,
    toplevel bool NOT NULL,
    query text NOT NULL,
    first_seen timestamptz NOT NULL,
    calls bigint NOT NULL,
    failed_calls bigint NOT NULL,
    cancelled_calls bigint NOT NULL,
    total_time float8 NOT NULL,
    rows bigint,
    shared_blks_hit bigint,
    shared_blks_read bigint,
    temp_blks_read bigint,
    temp_blks_written bigint,
    temp_blk_read_time float8,
    temp_blk_write_time float8,
    PRIMARY KEY (snap_id, userid, dbid, queryid, planid, plan_shape, toplevel)
);

-- rowsource_plan_history uses this index to find the previous snapshot of each plan.
CREATE INDEX rowsource_snapshot_plans_plan_idx
    ON rowsource_snapshot_plans (queryid, planid, plan_shape, userid, dbid, toplevel, snap_id);

SELECT pg_catalog.pg_extension_config_dump('rowsource_snapshots', '');
SELECT pg_catalog.pg_extension_config_dump('rowsource_snapshots_snap_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('rowsource_snapshot_tempfile_io', '');
SELECT pg_catalog.pg_extension_config_dump('rowsource_snapshot_plans', '');

-- Stores a snapshot and deletes those that are older than pg_rowsource.snapshot_retention. It runs with its owner's rights,
-- so it stores the statements of all users for every caller.
CREATE FUNCTION rowsource_snapshot() RETURNS bigint
LANGUAGE SQL VOLATILE PARALLEL UNSAFE SECURITY DEFINER
BEGIN ATOMIC
    WITH earlier AS (
        SELECT pg_catalog.max(taken_at) AS taken_at FROM rowsource_snapshots
    ), snapshot AS (
        INSERT INTO rowsource_snapshots DEFAULT VALUES RETURNING snap_id, taken_at
    ), tempfile_io AS (
        INSERT INTO rowsource_snapshot_tempfile_io
        SELECT s.snap_id, i.datid, i.datname, i.filetype,
    i.small_read_reqs, i.small_read_bytes, i.small_read_service_time,
           i.large_read_reqs, i.large_read_bytes, i.large_read_service_time,
           i.small_write_reqs, i.small_write_bytes, i.small_write_service_time,
           i.large_write_reqs, i.large_write_bytes, i.large_write_service_time,
           i.source, i.stats_reset
          FROM snapshot s, pg_stat_tempfile_io i
    ), plans AS (
        INSERT INTO rowsource_snapshot_plans
        SELECT s.snap_id, p.userid, p.dbid, p.queryid, p.planid, p.plan_shape, p.toplevel, p.query, p.first_seen,
               p.calls, p.failed_calls, p.cancelled_calls, p.total_time, n.rows, n.shared_blks_hit,
               n.shared_blks_read, n.temp_blks_read, n.temp_blks_written, n.temp_blk_read_time,
               n.temp_blk_write_time
          FROM snapshot s CROSS JOIN earlier e CROSS JOIN pg_stat_rowsource_plans p
               LEFT JOIN pg_stat_rowsource n ON n.userid = p.userid AND n.dbid = p.dbid AND n.queryid = p.queryid
                   AND n.planid = p.planid AND n.plan_shape = p.plan_shape AND n.toplevel = p.toplevel
                   AND n.node_id = 0::int
         WHERE p.queryid IS NOT NULL AND (e.taken_at IS NULL OR p.last_seen >= e.taken_at)
    ), old AS (
        DELETE FROM rowsource_snapshots o USING snapshot s
         WHERE o.taken_at < s.taken_at
               - nullif(pg_catalog.current_setting('pg_rowsource.snapshot_retention', true), '0'::text)::interval
    )
    SELECT snap_id FROM snapshot;
END;

-- Shows what happened between each snapshot and the previous one. If the counters were reset in between, shows their values
-- since the reset.
CREATE VIEW rowsource_tempfile_history AS
    SELECT d.snap_id, d.from_at, d.to_at, d.datid, d.datname, d.filetype,
           d.small_read_reqs, d.small_read_bytes, d.small_read_service_time,
           d.small_read_service_time / nullif(d.small_read_reqs, 0::bigint)::float8 AS small_read_avg_time,
           d.large_read_reqs, d.large_read_bytes, d.large_read_service_time,
           d.large_read_service_time / nullif(d.large_read_reqs, 0::bigint)::float8 AS large_read_avg_time,
           d.small_write_reqs, d.small_write_bytes, d.small_write_service_time,
           d.small_write_service_time / nullif(d.small_write_reqs, 0::bigint)::float8 AS small_write_avg_time,
           d.large_write_reqs, d.large_write_bytes, d.large_write_service_time,
           d.large_write_service_time / nullif(d.large_write_reqs, 0::bigint)::float8 AS large_write_avg_time,
           d.source
      FROM (SELECT s.snap_id, s.from_at, s.taken_at AS to_at, c.datid, c.datname, c.filetype, c.source,
                   greatest(c.small_read_reqs - coalesce(p.small_read_reqs, 0::bigint), 0::bigint) AS small_read_reqs,
                   greatest(c.small_read_bytes - coalesce(p.small_read_bytes, 0::bigint), 0::bigint) AS small_read_bytes,
                   greatest(c.small_read_service_time - coalesce(p.small_read_service_time, 0::float8), 0::float8) AS small_read_service_time,
                   greatest(c.large_read_reqs - coalesce(p.large_read_reqs, 0::bigint), 0::bigint) AS large_read_reqs,
                   greatest(c.large_read_bytes - coalesce(p.large_read_bytes, 0::bigint), 0::bigint) AS large_read_bytes,
                   greatest(c.large_read_service_time - coalesce(p.large_read_service_time, 0::float8), 0::float8) AS large_read_service_time,
                   greatest(c.small_write_reqs - coalesce(p.small_write_reqs, 0::bigint), 0::bigint) AS small_write_reqs,
                   greatest(c.small_write_bytes - coalesce(p.small_write_bytes, 0::bigint), 0::bigint) AS small_write_bytes,
                   greatest(c.small_write_service_time - coalesce(p.small_write_service_time, 0::float8), 0::float8) AS small_write_service_time,
                   greatest(c.large_write_reqs - coalesce(p.large_write_reqs, 0::bigint), 0::bigint) AS large_write_reqs,
                   greatest(c.large_write_bytes - coalesce(p.large_write_bytes, 0::bigint), 0::bigint) AS large_write_bytes,
                   greatest(c.large_write_service_time - coalesce(p.large_write_service_time, 0::float8), 0::float8) AS large_write_service_time
              FROM (SELECT snap_id, taken_at,
                           pg_catalog.lag(snap_id) OVER (ORDER BY snap_id) AS from_id,
                           pg_catalog.lag(taken_at) OVER (ORDER BY snap_id) AS from_at
                      FROM rowsource_snapshots) s
                   JOIN rowsource_snapshot_tempfile_io c ON c.snap_id = s.snap_id
                   LEFT JOIN rowsource_snapshot_tempfile_io p
                   ON p.snap_id = s.from_id AND coalesce(p.datid, 0::oid) = coalesce(c.datid, 0::oid)
                      AND p.filetype = c.filetype
                      AND p.stats_reset = c.stats_reset AND p.source = c.source
             WHERE s.from_id IS NOT NULL) d;

-- Shows the same for plans.
CREATE VIEW rowsource_plan_history AS
    SELECT d.snap_id, d.to_at, d.userid, d.dbid, d.queryid, d.planid, d.plan_shape, d.toplevel, d.query, d.calls,
           d.total_time, d.total_time / nullif(d.calls, 0::bigint)::float8 AS mean_time, d.temp_blks_read,
           d.temp_blks_written, d.temp_blk_read_time, d.temp_blk_write_time
      FROM (SELECT p.snap_id, s.taken_at AS to_at, p.userid, p.dbid, p.queryid, p.planid, p.plan_shape, p.toplevel,
                   p.query,
                   CASE WHEN f.goes_on THEN p.calls - f.calls ELSE p.calls END AS calls,
                   CASE WHEN f.goes_on THEN p.total_time - f.total_time ELSE p.total_time END AS total_time,
                   CASE WHEN f.goes_on THEN p.temp_blks_read - f.temp_blks_read ELSE p.temp_blks_read END
                       AS temp_blks_read,
                   CASE WHEN f.goes_on THEN p.temp_blks_written - f.temp_blks_written ELSE p.temp_blks_written END
                       AS temp_blks_written,
                   CASE WHEN f.goes_on THEN p.temp_blk_read_time - f.temp_blk_read_time ELSE p.temp_blk_read_time END
                       AS temp_blk_read_time,
                   CASE WHEN f.goes_on THEN p.temp_blk_write_time - f.temp_blk_write_time
                        ELSE p.temp_blk_write_time END AS temp_blk_write_time
              FROM rowsource_snapshot_plans p
                   JOIN rowsource_snapshots s ON s.snap_id = p.snap_id
                   LEFT JOIN LATERAL (
                       SELECT b.*, b.first_seen = p.first_seen AND b.calls <= p.calls AS goes_on
                         FROM rowsource_snapshot_plans b
                        WHERE b.userid = p.userid AND b.dbid = p.dbid AND b.queryid = p.queryid
                              AND b.planid = p.planid AND b.plan_shape = p.plan_shape AND b.toplevel = p.toplevel
                              AND b.snap_id < p.snap_id
                        ORDER BY b.snap_id DESC LIMIT 1::bigint) f ON true
             WHERE p.snap_id > (SELECT pg_catalog.min(snap_id) FROM rowsource_snapshots)) d;

-- Formats a report, or returns the reason why there is none.
CREATE FUNCTION rowsource_iostat_lines(
    wanted_from bigint,
    wanted_to bigint,
    from_snap bigint,
    to_snap bigint,
    from_at text,
    to_at text,
    seconds float8,
    filetypes text
) RETURNS SETOF text
AS 'MODULE_PATHNAME', 'rowsource_iostat_lines_0_1'
LANGUAGE C STABLE CALLED ON NULL INPUT PARALLEL RESTRICTED;

-- Prints a report like Oracle's "IOStat by Filetype summary" between two snapshots. Without arguments: between the last two.
CREATE FUNCTION rowsource_iostat_report(from_snap bigint DEFAULT NULL, to_snap bigint DEFAULT NULL) RETURNS SETOF text
LANGUAGE SQL STABLE CALLED ON NULL INPUT PARALLEL RESTRICTED
BEGIN ATOMIC
    WITH last AS (
        SELECT * FROM rowsource_snapshots
         WHERE snap_id = coalesce(rowsource_iostat_report.to_snap,
                                  (SELECT pg_catalog.max(snap_id) FROM rowsource_snapshots))
    ), first AS (
        SELECT * FROM rowsource_snapshots
         WHERE snap_id = coalesce(rowsource_iostat_report.from_snap,
                                  (SELECT pg_catalog.max(s.snap_id) FROM rowsource_snapshots s, last l
                                    WHERE s.snap_id < l.snap_id))
    ), filetypes AS (
        SELECT h.filetype,
                   pg_catalog.json_build_object('reqs', pg_catalog.sum(h.small_read_reqs), 'bytes', pg_catalog.sum(h.small_read_bytes),
                       'service_time', pg_catalog.sum(h.small_read_service_time)) AS small_read,
                   pg_catalog.json_build_object('reqs', pg_catalog.sum(h.large_read_reqs), 'bytes', pg_catalog.sum(h.large_read_bytes),
                       'service_time', pg_catalog.sum(h.large_read_service_time)) AS large_read,
                   pg_catalog.json_build_object('reqs', pg_catalog.sum(h.small_write_reqs), 'bytes', pg_catalog.sum(h.small_write_bytes),
                       'service_time', pg_catalog.sum(h.small_write_service_time)) AS small_write,
                   pg_catalog.json_build_object('reqs', pg_catalog.sum(h.large_write_reqs), 'bytes', pg_catalog.sum(h.large_write_bytes),
                       'service_time', pg_catalog.sum(h.large_write_service_time)) AS large_write
          FROM rowsource_tempfile_history h, first f, last l
         WHERE h.snap_id > f.snap_id AND h.snap_id <= l.snap_id
         GROUP BY h.filetype
    )
    SELECT rowsource_iostat_lines(
               rowsource_iostat_report.from_snap, rowsource_iostat_report.to_snap,
               (SELECT snap_id FROM first), (SELECT snap_id FROM last),
               (SELECT taken_at::text FROM first), (SELECT taken_at::text FROM last),
               (SELECT pg_catalog.date_part('epoch', l.taken_at - f.taken_at) FROM first f, last l),
               (SELECT pg_catalog.json_agg(t.* ORDER BY t.filetype DESC)::text FROM filetypes t));
END;

REVOKE ALL ON FUNCTION rowsource_reset(oid, oid, bigint), rowsource_tempfile_reset(oid), rowsource_snapshot() FROM PUBLIC;

GRANT SELECT ON pg_stat_rowsource, pg_stat_rowsource_plans, pg_stat_rowsource_histogram, rowsource_misestimates,
    rowsource_plan_changes, pg_stat_tempfile_io, pg_stat_tempfile_io_histogram, rowsource_snapshots,
    rowsource_snapshot_tempfile_io, rowsource_tempfile_history TO PUBLIC;
-- These contain the texts and identifiers of all users' statements.
GRANT SELECT ON rowsource_snapshot_plans, rowsource_plan_history TO pg_read_all_stats;
