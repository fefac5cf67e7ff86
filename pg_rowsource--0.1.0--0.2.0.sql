/* pg_rowsource--0.1.0--0.2.0.sql */

\echo Use "ALTER EXTENSION pg_rowsource UPDATE TO '0.2.0'" to load this file. \quit

-- Fails with a hint on a standby and in a read-only transaction.
CREATE FUNCTION rowsource_check_writable() RETURNS void
AS 'MODULE_PATHNAME', 'rowsource_check_writable_0_2'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
REVOKE ALL ON FUNCTION rowsource_check_writable() FROM PUBLIC;
COMMENT ON FUNCTION rowsource_check_writable() IS 'Internal: fails with a hint on a standby and in a read-only transaction';

-- It has other columns.
DROP FUNCTION rowsource_info();
CREATE FUNCTION rowsource_info(
    OUT plans bigint,
    OUT max_plans int,
    OUT bytes bigint,
    OUT max_bytes bigint,
    OUT evictions bigint,
    OUT incomplete_since timestamptz,
    OUT refused bigint,
    OUT truncated bigint,
    OUT stats_reset timestamptz,
    OUT off_since timestamptz,
    OUT sessions_without_beats bigint,
    OUT snapshots_removed bigint,
    OUT sessions_stopped bigint,
    OUT last_stop text
) RETURNS SETOF record
AS 'MODULE_PATHNAME', 'rowsource_info_0_2'
LANGUAGE C VOLATILE STRICT ROWS 1 PARALLEL RESTRICTED;
COMMENT ON FUNCTION rowsource_info() IS 'Describes the shared memory of the plans. evictions: plans that made room for others. refused: executions that could not be stored. incomplete_since: when the first of these happened; NULL if the plans contain all executions. off_since: since when pg_rowsource.enabled is off; NULL while it is on. sessions_without_beats: sessions in which long calls without I/O may be missed. snapshots_removed: snapshots that were deleted because of pg_rowsource.snapshot_max_size since the server started. sessions_stopped: sessions that measure no more, because that cost more than pg_rowsource.max_overhead or failed. last_stop: the last of them since the server started, and why';

COMMENT ON VIEW pg_stat_rowsource_plans IS 'A row per stored plan, with the sums of all its executions. Rows with the query others, one or two per database, sum up the executions whose plans are not stored: those of statements that clients sent, and those of statements in functions';
COMMENT ON COLUMN pg_stat_rowsource_plans.total_time IS 'Milliseconds in which the executor ran (ExecutorRun and ExecutorFinish), as in pg_stat_statements; without parsing, planning and the executor''s start. The sum of all executions';
COMMENT ON COLUMN pg_stat_rowsource.self_blk_read_time IS 'Milliseconds reading those blocks; without track_io_timing, the waits for reads';
COMMENT ON COLUMN rowsource_top_reads.read_time IS 'Milliseconds reading these blocks; without track_io_timing, the waits for reads';
COMMENT ON COLUMN rowsource_progress.running_since IS 'When the call of that node that is in progress began, some milliseconds too early (see Beats in the chapter about time); NULL if the node is not timed';
COMMENT ON COLUMN rowsource_top_statements.total_time IS 'Milliseconds in which the executor ran (ExecutorRun and ExecutorFinish), as in pg_stat_statements; without parsing, planning and the executor''s start. The sum of all executions';

ALTER TABLE rowsource_snapshots ADD COLUMN bytes bigint;
COMMENT ON COLUMN rowsource_snapshots.bytes IS 'What it takes on disk, with indexes, about; NULL: the next snapshot adds it up';

-- Notes that snapshots were deleted because of their size.
CREATE FUNCTION rowsource_note_removed(snapshots bigint) RETURNS void
AS 'MODULE_PATHNAME', 'rowsource_note_removed_0_2'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
REVOKE ALL ON FUNCTION rowsource_note_removed(bigint) FROM PUBLIC;
COMMENT ON FUNCTION rowsource_note_removed(bigint) IS 'Internal: notes that snapshots were deleted because of their size';

-- Stores a snapshot. Deletes those that are older than pg_rowsource.snapshot_retention, and the oldest if all
-- take more than pg_rowsource.snapshot_max_size. It runs with its owner's rights, so it stores the statements of
-- all users for every caller.
CREATE OR REPLACE FUNCTION rowsource_snapshot() RETURNS bigint
LANGUAGE SQL VOLATILE PARALLEL UNSAFE SECURITY DEFINER
BEGIN ATOMIC
    SELECT rowsource_check_writable();
    WITH earlier AS (
        SELECT pg_catalog.max(taken_at) AS taken_at FROM rowsource_snapshots
    ), snapshot AS (
        INSERT INTO rowsource_snapshots (active_time)
        SELECT pg_catalog.sum(active_time) FROM pg_catalog.pg_stat_database
        RETURNING snap_id, taken_at
    ), tempfile_io AS (
        INSERT INTO rowsource_snapshot_tempfile_io
        SELECT s.snap_id, i.datid, i.datname, i.filetype,
           i.small_read_reqs, i.small_read_bytes, i.small_read_service_time,
           i.large_read_reqs, i.large_read_bytes, i.large_read_service_time,
           i.small_write_reqs, i.small_write_bytes, i.small_write_service_time,
           i.large_write_reqs, i.large_write_bytes, i.large_write_service_time,
           i.source, i.stats_reset
          FROM snapshot s, pg_stat_tempfile_io i
    ), waits AS (
        INSERT INTO rowsource_snapshot_waits
        SELECT s.snap_id, w.backend_type, w.wait_event_type, w.wait_event, w.waits, w.total_time, w.counted_since
          FROM snapshot s, rowsource_waits_to_store() w
    ), ash AS (
        INSERT INTO rowsource_snapshot_ash
        SELECT s.snap_id, a.*
          FROM snapshot s
               CROSS JOIN LATERAL rowsource_ash_to_store(
                   (SELECT pg_catalog.max(k.sample_time) FROM rowsource_snapshot_ash k), 10) a
            ON CONFLICT DO NOTHING
    ), stored AS MATERIALIZED (
        SELECT n.* FROM earlier e CROSS JOIN LATERAL rowsource_plans_to_store(e.taken_at) n
    ), plans AS (
        INSERT INTO rowsource_snapshot_plans
        SELECT s.snap_id, p.userid, p.dbid, p.queryid, p.planid, p.plan_shape, p.toplevel, p.query, p.first_seen,
               p.calls, p.failed_calls, p.cancelled_calls, p.total_time, p.rows, p.shared_blks_hit,
               p.shared_blks_read, p.temp_blks_read, p.temp_blks_written, p.temp_blk_read_time,
               p.temp_blk_write_time, n.statistics
          FROM snapshot s CROSS JOIN earlier e CROSS JOIN pg_stat_rowsource_plans() p
               LEFT JOIN stored n ON n.userid = p.userid AND n.dbid = p.dbid AND n.queryid = p.queryid
                   AND n.planid = p.planid AND n.plan_shape = p.plan_shape AND n.toplevel = p.toplevel
         WHERE p.queryid IS NOT NULL AND (e.taken_at IS NULL OR p.last_seen >= e.taken_at)
    ), descriptions AS (
        INSERT INTO rowsource_snapshot_descriptions
        SELECT n.userid, n.dbid, n.queryid, n.planid, n.plan_shape, n.toplevel, s.snap_id, n.description
          FROM snapshot s CROSS JOIN stored n
            ON CONFLICT DO NOTHING
    ), unused AS (
        -- The plans of the snapshots that the previous call deleted.
        DELETE FROM rowsource_snapshot_descriptions d
         WHERE d.first_snap_id < (SELECT pg_catalog.min(snap_id) FROM rowsource_snapshots)
               AND NOT EXISTS (
                   SELECT FROM rowsource_snapshot_plans p
                    WHERE p.userid = d.userid AND p.dbid = d.dbid AND p.queryid = d.queryid AND p.planid = d.planid
                          AND p.plan_shape = d.plan_shape AND p.toplevel = d.toplevel)
               AND NOT EXISTS (
                   SELECT FROM stored n
                    WHERE n.userid = d.userid AND n.dbid = d.dbid AND n.queryid = d.queryid AND n.planid = d.planid
                          AND n.plan_shape = d.plan_shape AND n.toplevel = d.toplevel)
    ), old AS (
        DELETE FROM rowsource_snapshots o USING snapshot s
         WHERE o.taken_at < s.taken_at
               - nullif(pg_catalog.current_setting('pg_rowsource.snapshot_retention', true), '0'::text)::interval
    )
    SELECT snap_id FROM snapshot;
    -- What the new snapshot takes on disk: its rows, and for each so many bytes more in pages and in indexes.
    UPDATE rowsource_snapshots s
       SET bytes = (SELECT coalesce(pg_catalog.sum(pg_catalog.pg_column_size(a.*) + 50), 0::bigint)
                      FROM rowsource_snapshot_ash a WHERE a.snap_id = s.snap_id)
                 + (SELECT coalesce(pg_catalog.sum(pg_catalog.pg_column_size(w.*) + 90), 0::bigint)
                      FROM rowsource_snapshot_waits w WHERE w.snap_id = s.snap_id)
                 + (SELECT coalesce(pg_catalog.sum(pg_catalog.pg_column_size(i.*) + 60), 0::bigint)
                      FROM rowsource_snapshot_tempfile_io i WHERE i.snap_id = s.snap_id)
                 + (SELECT coalesce(pg_catalog.sum(pg_catalog.pg_column_size(p.query)
                                                   + coalesce(pg_catalog.pg_column_size(p.statistics), 0) + 350), 0::bigint)
                      FROM rowsource_snapshot_plans p WHERE p.snap_id = s.snap_id)
                 + (SELECT coalesce(pg_catalog.sum(pg_catalog.pg_column_size(d.description) + 165), 0::bigint)
                      FROM rowsource_snapshot_descriptions d WHERE d.first_snap_id = s.snap_id)
     WHERE s.bytes IS NULL;
    -- A third is left for deleted rows that no VACUUM has removed yet, and for room in pages.
    WITH kept AS (
        SELECT snap_id, pg_catalog.sum(bytes) OVER (ORDER BY snap_id DESC) AS bytes, pg_catalog.max(snap_id) OVER () AS newest
          FROM rowsource_snapshots
    ), excess AS (
        DELETE FROM rowsource_snapshots o USING kept k
         WHERE o.snap_id = k.snap_id AND k.snap_id < k.newest
               AND k.bytes * 3::numeric > 2::numeric * pg_catalog.pg_size_bytes(
                   nullif(pg_catalog.current_setting('pg_rowsource.snapshot_max_size', true), '0'::text))::numeric
        RETURNING o.snap_id
    )
    SELECT pg_catalog.currval('rowsource_snapshots_snap_id_seq'::regclass)
      FROM (SELECT rowsource_note_removed(pg_catalog.count(*)) FROM excess) noted;
END;
COMMENT ON FUNCTION rowsource_snapshot() IS 'Stores a snapshot, and deletes those older than pg_rowsource.snapshot_retention, and the oldest beyond pg_rowsource.snapshot_max_size';
COMMENT ON COLUMN pg_stat_rowsource_live.blocks_until IS 'What the figures include. now: everything; last switch: blocks up to the last time that another node ran; last call: calls that have ended; private memory: a measured statement whose nodes are not known, because there was no shared memory for them';

-- What a modifying CTE wrote after all other nodes is not outside the nodes.
CREATE OR REPLACE VIEW rowsource_wal AS
    SELECT s.datname, s.operation, s.object_name, s.toplevel,
           pg_catalog.sum(s.wal_records) AS wal_records, pg_catalog.sum(s.wal_fpi) AS wal_fpi,
           pg_catalog.sum(s.wal_bytes) AS wal_bytes,
           rowsource_percent(CASE WHEN s.toplevel THEN pg_catalog.sum(s.wal_bytes)::float8 END,
                             (pg_catalog.sum(pg_catalog.sum(s.wal_bytes)) FILTER (WHERE s.toplevel) OVER ())::float8) AS percent,
           s.query
      FROM (SELECT datname, operation, object_name, toplevel, wal_records, wal_fpi, wal_bytes, NULL::text AS query
              FROM rowsource_daily_nodes
            UNION ALL
            SELECT coalesce(p.datname, p.dbid::text::name),
                   CASE WHEN p.userid IS NULL THEN 'others'::text ELSE 'outside the nodes'::text END, NULL::text, p.toplevel,
                   p.wal_records - coalesce(n.wal_records, 0::bigint), p.wal_fpi - coalesce(n.wal_fpi, 0::bigint),
                   p.wal_bytes - coalesce(n.wal_bytes, 0::bigint), CASE WHEN p.userid IS NOT NULL THEN p.query END
              FROM pg_stat_rowsource_plans p
                   LEFT JOIN (SELECT userid, dbid, queryid, planid, plan_shape, toplevel,
                                     pg_catalog.sum(self_wal_records)::bigint AS wal_records,
                                     pg_catalog.sum(self_wal_fpi)::bigint AS wal_fpi,
                                     pg_catalog.sum(self_wal_bytes)::bigint AS wal_bytes
                                FROM pg_stat_rowsource
                               GROUP BY userid, dbid, queryid, planid, plan_shape, toplevel) n
                   ON n.userid = p.userid AND n.dbid = p.dbid AND n.queryid = p.queryid AND n.planid = p.planid
                      AND n.plan_shape = p.plan_shape AND n.toplevel = p.toplevel) s
     WHERE s.wal_bytes > 0::bigint
     GROUP BY s.datname, s.operation, s.object_name, s.toplevel, s.query
     ORDER BY pg_catalog.sum(s.wal_bytes) DESC;
