//! Views of the snapshots, and the plans in them.

use crate::functions::surface::objects;

objects! {
    // PostgreSQL puts its expression in the place of a call.
    /// Internal: the other server whose history is shown; NULL if it is this one
    FUNCTION _rowsource_history_origin() TO PUBLIC "STABLE PARALLEL SAFE" -> "text" {} "
RETURN nullif(pg_catalog.current_setting('pg_rowsource.history_origin', true), ''::text)";

    // Now counts as one more snapshot, unless the snapshots are those of another server. These are in a
    // standby's own tables, or were imported: of whose, pg_rowsource.history_origin says.
    /// The intervals between snapshots. The last one lasts until now; if there is no snapshot, it begins with
    /// the counters
    VIEW rowsource_intervals TO PUBLIC {
        /// The number of the snapshot at the end of the interval; 0 if it lasts until now
        snap_id: bigint;
        /// The number of the snapshot at its beginning; NULL if there is none
        from_snap_id: bigint;
        /// When the interval began
        from_at: timestamptz;
        /// When the interval ended
        to_at: timestamptz;
        /// Milliseconds of all statements that ended in it, in all databases
        active_time: float8;
    } "
    SELECT i.snap_id, i.from_snap_id, i.from_at, i.to_at,
           i.active_time - CASE WHEN i.active_time >= i.from_active_time THEN i.from_active_time ELSE 0::float8 END AS active_time
      FROM (SELECT s.snap_id, pg_catalog.lag(s.snap_id) OVER w AS from_snap_id,
                   coalesce(pg_catalog.lag(s.taken_at) OVER w,
                            CASE WHEN s.snap_id = 0::bigint
                                 THEN least(pg_catalog.pg_postmaster_start_time(),
                                            (SELECT pg_catalog.min(t.stats_reset) FROM pg_stat_rowsource_tempfile_io t)) END) AS from_at,
                   s.taken_at AS to_at, s.active_time, pg_catalog.lag(s.active_time) OVER w AS from_active_time
              FROM (SELECT k.snap_id, k.taken_at, k.active_time FROM rowsource_snapshots k
                     WHERE NOT pg_catalog.pg_is_in_recovery() AND _rowsource_history_origin() IS NULL
                    UNION ALL
                    SELECT 0::bigint, pg_catalog.clock_timestamp(), (SELECT pg_catalog.sum(d.active_time) FROM pg_catalog.pg_stat_database d)
                     WHERE _rowsource_history_origin() IS NULL
                    UNION ALL
                    SELECT r.snap_id, r.taken_at, r.active_time
                      FROM rowsource_imported m CROSS JOIN LATERAL pg_catalog.jsonb_populate_record(NULL::rowsource_snapshots, m.content) r
                     WHERE m.origin = _rowsource_history_origin() AND m.table_name = 'rowsource_snapshots'::text) s
            WINDOW w AS (ORDER BY nullif(s.snap_id, 0::bigint))) i
     WHERE i.from_at IS NOT NULL";

    // Shows what happened between each snapshot and the previous one. If the counters were reset in between,
    // shows their values since the reset.
    /// Requests to temporary files between each snapshot and the previous one
    VIEW rowsource_interval_tempfile_io TO PUBLIC {
        /// The number of the snapshot at the end of the interval; 0 if it lasts until now
        snap_id: bigint;
        /// When the interval began
        from_at: timestamptz;
        /// When the interval ended
        to_at: timestamptz;
        /// The OID of the database; 0 for processes without one, NULL if several databases share one set of
        /// counters
        datid: oid;
        /// The database
        datname: name;
        /// work file (sorts, hashes, materialised results) or temp table
        filetype: text;
        /// Read requests of one block or less
        small_reads: bigint;
        /// Bytes read by these requests
        small_read_bytes: bigint;
        /// Milliseconds of these requests; NULL if they were not timed
        small_read_time: float8;
        /// Milliseconds of such a request on average
        small_read_mean_time: float8;
        /// Read requests of more than one block
        large_reads: bigint;
        /// Bytes read by these requests
        large_read_bytes: bigint;
        /// Milliseconds of these requests; NULL if they were not timed
        large_read_time: float8;
        /// Milliseconds of such a request on average
        large_read_mean_time: float8;
        /// Write requests of one block or less
        small_writes: bigint;
        /// Bytes written by these requests
        small_write_bytes: bigint;
        /// Milliseconds of these requests; NULL if they were not timed
        small_write_time: float8;
        /// Milliseconds of such a request on average
        small_write_mean_time: float8;
        /// Write requests of more than one block
        large_writes: bigint;
        /// Bytes written by these requests
        large_write_bytes: bigint;
        /// Milliseconds of these requests; NULL if they were not timed
        large_write_time: float8;
        /// Milliseconds of such a request on average
        large_write_mean_time: float8;
        /// request: each request was counted. counter: core counted the blocks
        source: text;
    } "
    WITH stored AS NOT MATERIALIZED (
        SELECT k.* FROM rowsource_snapshot_tempfile_io k WHERE _rowsource_history_origin() IS NULL
        UNION ALL
        SELECT r.*
          FROM rowsource_imported m CROSS JOIN LATERAL pg_catalog.jsonb_populate_record(NULL::rowsource_snapshot_tempfile_io, m.content) r
         WHERE m.origin = _rowsource_history_origin() AND m.table_name = 'rowsource_snapshot_tempfile_io'::text
    )
    SELECT d.snap_id, d.from_at, d.to_at, d.datid, d.datname, d.filetype,
           d.small_reads, d.small_read_bytes, d.small_read_time,
           d.small_read_time / nullif(d.small_reads, 0::bigint)::float8 AS small_read_mean_time,
           d.large_reads, d.large_read_bytes, d.large_read_time,
           d.large_read_time / nullif(d.large_reads, 0::bigint)::float8 AS large_read_mean_time,
           d.small_writes, d.small_write_bytes, d.small_write_time,
           d.small_write_time / nullif(d.small_writes, 0::bigint)::float8 AS small_write_mean_time,
           d.large_writes, d.large_write_bytes, d.large_write_time,
           d.large_write_time / nullif(d.large_writes, 0::bigint)::float8 AS large_write_mean_time,
           d.source
      FROM (SELECT i.snap_id, i.from_at, i.to_at, nullif(c.datid, 4294967295::oid) AS datid, c.datname, c.filetype, c.source,
                   c.small_reads - coalesce(p.small_reads, 0::bigint) AS small_reads,
                   c.small_read_bytes - coalesce(p.small_read_bytes, 0::bigint) AS small_read_bytes,
                   c.small_read_time - coalesce(p.small_read_time, 0::float8) AS small_read_time,
                   c.large_reads - coalesce(p.large_reads, 0::bigint) AS large_reads,
                   c.large_read_bytes - coalesce(p.large_read_bytes, 0::bigint) AS large_read_bytes,
                   c.large_read_time - coalesce(p.large_read_time, 0::float8) AS large_read_time,
                   c.small_writes - coalesce(p.small_writes, 0::bigint) AS small_writes,
                   c.small_write_bytes - coalesce(p.small_write_bytes, 0::bigint) AS small_write_bytes,
                   c.small_write_time - coalesce(p.small_write_time, 0::float8) AS small_write_time,
                   c.large_writes - coalesce(p.large_writes, 0::bigint) AS large_writes,
                   c.large_write_bytes - coalesce(p.large_write_bytes, 0::bigint) AS large_write_bytes,
                   c.large_write_time - coalesce(p.large_write_time, 0::float8) AS large_write_time
              FROM rowsource_intervals i
                   JOIN (SELECT * FROM stored
                         UNION ALL SELECT * FROM _rowsource_tempfile_io(0::bigint)) c ON c.snap_id = i.snap_id
                   LEFT JOIN stored p
                   ON p.snap_id = i.from_snap_id AND p.datid = c.datid
                      AND p.filetype = c.filetype
                      AND p.stats_reset = c.stats_reset AND p.source = c.source) d";

    // Shows the waits between each snapshot and the previous one. If the server restarted in between, shows
    // those since then.
    /// The waits between each snapshot and the previous one
    VIEW rowsource_interval_waits TO PUBLIC {
        /// The number of the snapshot at the end of the interval; 0 if it lasts until now
        snap_id: bigint;
        /// When the interval began
        from_at: timestamptz;
        /// When the interval ended
        to_at: timestamptz;
        /// The type of the processes
        backend_type: text;
        /// The type of the event, as in pg_stat_activity; NULL if the event has no counters of its own
        wait_event_type: text;
        /// The event, as in pg_stat_activity. other: all events that have no counters of their own
        wait_event: text;
        /// Waits of the interval
        waits: bigint;
        /// Milliseconds of these waits
        wait_time: float8;
        /// Milliseconds of such a wait on average
        mean_time: float8;
    } "
    WITH stored AS NOT MATERIALIZED (
        SELECT k.* FROM rowsource_snapshot_waits k WHERE _rowsource_history_origin() IS NULL
        UNION ALL
        SELECT r.*
          FROM rowsource_imported m CROSS JOIN LATERAL pg_catalog.jsonb_populate_record(NULL::rowsource_snapshot_waits, m.content) r
         WHERE m.origin = _rowsource_history_origin() AND m.table_name = 'rowsource_snapshot_waits'::text
    )
    SELECT d.snap_id, d.from_at, d.to_at, d.backend_type, d.wait_event_type, d.wait_event, d.waits, d.wait_time,
           d.wait_time / nullif(d.waits, 0::bigint)::float8 AS mean_time
      FROM (SELECT i.snap_id, i.from_at, i.to_at, c.backend_type, nullif(c.wait_event_type, ''::text) AS wait_event_type,
                   c.wait_event, c.waits - coalesce(p.waits, 0::bigint) AS waits,
                   c.wait_time - coalesce(p.wait_time, 0::float8) AS wait_time
              FROM rowsource_intervals i
                   JOIN (SELECT * FROM stored
                         UNION ALL
                         SELECT 0::bigint, n.backend_type, coalesce(n.wait_event_type, ''::text), n.wait_event, n.waits, n.wait_time,
                                n.stats_reset
                           FROM _rowsource_waits() n) c ON c.snap_id = i.snap_id
                   LEFT JOIN stored p
                   ON p.snap_id = i.from_snap_id AND p.backend_type = c.backend_type
                      AND p.wait_event_type = c.wait_event_type AND p.wait_event = c.wait_event AND p.stats_reset = c.stats_reset) d
     WHERE d.waits > 0::bigint OR d.wait_time > 0::float8";

    // If the snapshot with a plan's earlier figures was deleted, nothing is known of its first interval.
    /// What each plan did between a snapshot and the previous one that has the plan; NULL if that was deleted
    VIEW rowsource_interval_plans TO pg_read_all_stats {
        /// The number of the snapshot at the end of the interval; 0 if it lasts until now
        snap_id: bigint;
        /// When the interval ended
        to_at: timestamptz;
        usename; datname; userid; datid; queryid; planid; toplevel;
        /// The text of the statement
        query: text;
        /// Executions since the previous snapshot with this plan
        calls: bigint;
        /// Milliseconds of these executions
        total_time: float8;
        /// Milliseconds of an execution on average
        mean_time: float8;
        /// Blocks of work files (sorts, hashes, materialised results) read by these executions
        temp_blks_read: bigint;
        /// Blocks of work files written by these executions
        temp_blks_written: bigint;
        /// Milliseconds reading blocks of work files by these executions
        temp_blk_read_time: float8;
        /// Milliseconds writing blocks of work files by these executions
        temp_blk_write_time: float8;
    } "
    SELECT d.snap_id, d.to_at, coalesce(d.usename, u.rolname) AS usename, coalesce(d.datname, b.datname) AS datname, d.userid, d.datid, d.queryid, d.planid, d.toplevel, d.query, d.calls,
           d.total_time, d.total_time / nullif(d.calls, 0::bigint)::float8 AS mean_time, d.temp_blks_read,
           d.temp_blks_written, d.temp_blk_read_time, d.temp_blk_write_time
      FROM (SELECT p.snap_id, s.to_at, p.usename, p.datname, p.userid, p.datid, p.queryid, p.planid, p.toplevel,
                   p.query,
                   CASE WHEN f.goes_on THEN p.calls - f.calls WHEN k.is_known THEN p.calls END AS calls,
                   CASE WHEN f.goes_on THEN p.total_time - f.total_time WHEN k.is_known THEN p.total_time END AS total_time,
                   CASE WHEN f.goes_on THEN p.temp_blks_read - f.temp_blks_read WHEN k.is_known THEN p.temp_blks_read END
                       AS temp_blks_read,
                   CASE WHEN f.goes_on THEN p.temp_blks_written - f.temp_blks_written WHEN k.is_known THEN p.temp_blks_written END
                       AS temp_blks_written,
                   CASE WHEN f.goes_on THEN p.temp_blk_read_time - f.temp_blk_read_time WHEN k.is_known THEN p.temp_blk_read_time END
                       AS temp_blk_read_time,
                   CASE WHEN f.goes_on THEN p.temp_blk_write_time - f.temp_blk_write_time WHEN k.is_known THEN p.temp_blk_write_time END
                       AS temp_blk_write_time
              FROM (SELECT k.snap_id, NULL::name AS usename, NULL::name AS datname,
                           k.userid, k.datid, k.queryid, k.planid, k.toplevel, k.query, k.first_seen_at, k.calls, k.total_time,
                           k.temp_blks_read, k.temp_blks_written, k.temp_blk_read_time, k.temp_blk_write_time
                      FROM rowsource_snapshot_plans k WHERE _rowsource_history_origin() IS NULL
                    UNION ALL
                    SELECT r.snap_id, (m.content ->> 'usename'::text)::name, (m.content ->> 'datname'::text)::name,
                           r.userid, r.datid, r.queryid, r.planid, r.toplevel, r.query, r.first_seen_at, r.calls, r.total_time,
                           r.temp_blks_read, r.temp_blks_written, r.temp_blk_read_time, r.temp_blk_write_time
                      FROM rowsource_imported m CROSS JOIN LATERAL pg_catalog.jsonb_populate_record(NULL::rowsource_snapshot_plans, m.content) r
                     WHERE m.origin = _rowsource_history_origin() AND m.table_name = 'rowsource_snapshot_plans'::text
                    UNION ALL
                    SELECT 0::bigint, NULL::name, NULL::name, n.userid, n.datid, n.queryid, n.planid, n.toplevel, n.query, n.first_seen_at, n.calls, n.total_time,
                           n.temp_blks_read, n.temp_blks_written, n.temp_blk_read_time, n.temp_blk_write_time
                      FROM pg_stat_rowsource_plans((SELECT pg_catalog.max(taken_at) FROM rowsource_snapshots)) n
                     WHERE n.queryid IS NOT NULL AND n.last_seen_at >= (SELECT pg_catalog.max(taken_at) FROM rowsource_snapshots)) p
                   JOIN rowsource_intervals s ON s.snap_id = p.snap_id
                   LEFT JOIN LATERAL (
                       SELECT b.*, b.first_seen_at = p.first_seen_at AND b.calls <= p.calls AS goes_on
                         FROM (SELECT k.* FROM rowsource_snapshot_plans k WHERE _rowsource_history_origin() IS NULL
                               UNION ALL
                               SELECT r.*
                                 FROM rowsource_imported m CROSS JOIN LATERAL pg_catalog.jsonb_populate_record(NULL::rowsource_snapshot_plans, m.content) r
                                WHERE m.origin = _rowsource_history_origin() AND m.table_name = 'rowsource_snapshot_plans'::text
                                     AND (m.content ->> 'queryid'::text) = p.queryid::text) b
                        WHERE b.userid = p.userid AND b.datid = p.datid AND b.queryid = p.queryid
                              AND b.planid = p.planid AND b.toplevel = p.toplevel
                              AND b.snap_id < coalesce(nullif(p.snap_id, 0::bigint), 9223372036854775807::bigint)
                        ORDER BY b.snap_id DESC, b.first_seen_at DESC LIMIT 1::bigint) f ON true
                   CROSS JOIN LATERAL (
                       SELECT f.snap_id IS NOT NULL
                              OR p.first_seen_at >= (SELECT pg_catalog.min(i.from_at) FROM rowsource_intervals i WHERE i.from_snap_id IS NOT NULL)
                              AS is_known) k
             -- The first snapshot of a baseline also has plans that did not run before it.
             WHERE s.from_snap_id IS NOT NULL AND (f.goes_on AND f.calls = p.calls AND f.total_time = p.total_time) IS NOT TRUE) d
           LEFT JOIN pg_catalog.pg_roles u ON u.oid = d.userid AND _rowsource_history_origin() IS NULL
           LEFT JOIN pg_catalog.pg_database b ON b.oid = d.datid AND _rowsource_history_origin() IS NULL";

    // The first part of each of these functions has no rows. It runs first, so that an error comes also with
    // LIMIT.
    /// The rows of the view of this name that are of an interval, between the snapshots around it; without
    /// arguments, of the last hour
    FUNCTION rowsource_interval_tempfile_io(from_time: text = "NULL", to_time: text = "NULL") TO PUBLIC
        "STABLE CALLED ON NULL INPUT PARALLEL RESTRICTED" -> "SETOF rowsource_interval_tempfile_io" {} "
BEGIN ATOMIC
    SELECT (NULL::rowsource_interval_tempfile_io).*
      FROM _rowsource_check_interval(rowsource_interval_tempfile_io.from_time, rowsource_interval_tempfile_io.to_time)
    UNION ALL
    SELECT v.*
      FROM _rowsource_interval(rowsource_interval_tempfile_io.from_time, rowsource_interval_tempfile_io.to_time) i
           JOIN rowsource_intervals s ON s.to_at > i.from_at AND s.from_at < i.to_at
           JOIN rowsource_interval_tempfile_io v ON v.snap_id = s.snap_id;
END";

    /// The rows of the view of this name that are of an interval, between the snapshots around it; without
    /// arguments, of the last hour
    FUNCTION rowsource_interval_waits(from_time: text = "NULL", to_time: text = "NULL") TO PUBLIC
        "STABLE CALLED ON NULL INPUT PARALLEL RESTRICTED" -> "SETOF rowsource_interval_waits" {} "
BEGIN ATOMIC
    SELECT (NULL::rowsource_interval_waits).*
      FROM _rowsource_check_interval(rowsource_interval_waits.from_time, rowsource_interval_waits.to_time)
    UNION ALL
    SELECT v.*
      FROM _rowsource_interval(rowsource_interval_waits.from_time, rowsource_interval_waits.to_time) i
           JOIN rowsource_intervals s ON s.to_at > i.from_at AND s.from_at < i.to_at
           JOIN rowsource_interval_waits v ON v.snap_id = s.snap_id;
END";

    // Its estimated cost has the server compile it for seconds.
    /// The rows of the view of this name that are of an interval, between the snapshots around it; without
    /// arguments, of the last hour
    FUNCTION rowsource_interval_plans(from_time: text = "NULL", to_time: text = "NULL") TO pg_read_all_stats
        "STABLE CALLED ON NULL INPUT PARALLEL RESTRICTED SET jit = off" -> "SETOF rowsource_interval_plans" {} "
BEGIN ATOMIC
    SELECT (NULL::rowsource_interval_plans).*
      FROM _rowsource_check_interval(rowsource_interval_plans.from_time, rowsource_interval_plans.to_time)
    UNION ALL
    SELECT v.*
      FROM _rowsource_interval(rowsource_interval_plans.from_time, rowsource_interval_plans.to_time) i
           JOIN rowsource_intervals s ON s.to_at > i.from_at AND s.from_at < i.to_at
           JOIN rowsource_interval_plans v ON v.snap_id = s.snap_id;
END";

    // Shows a plan as it was when a snapshot was taken. Of several plans it prefers those of this database,
    // then those of this user, then the one that took the most time.
    /// Shows a plan as it was when a snapshot was taken, also if it was evicted or reset since
    FUNCTION rowsource_display_snapshot(queryid: bigint, planid: bigint = "NULL", snap_id: bigint = "NULL", format: text = "'ALLSTATS'") TO pg_read_all_stats
        "STABLE CALLED ON NULL INPUT PARALLEL RESTRICTED" -> "SETOF text" {} "
BEGIN ATOMIC
    WITH snapshots AS NOT MATERIALIZED (
        SELECT k.* FROM rowsource_snapshots k WHERE _rowsource_history_origin() IS NULL
        UNION ALL
        SELECT r.*
          FROM rowsource_imported m CROSS JOIN LATERAL pg_catalog.jsonb_populate_record(NULL::rowsource_snapshots, m.content) r
         WHERE m.origin = _rowsource_history_origin() AND m.table_name = 'rowsource_snapshots'::text
    ), plans AS NOT MATERIALIZED (
        SELECT k.*, u.rolname AS usename, b.datname FROM rowsource_snapshot_plans k
               LEFT JOIN pg_catalog.pg_roles u ON u.oid = k.userid LEFT JOIN pg_catalog.pg_database b ON b.oid = k.datid
         WHERE _rowsource_history_origin() IS NULL
        UNION ALL
        SELECT r.*, (m.content ->> 'usename'::text)::name, (m.content ->> 'datname'::text)::name
          FROM rowsource_imported m CROSS JOIN LATERAL pg_catalog.jsonb_populate_record(NULL::rowsource_snapshot_plans, m.content) r
         WHERE m.origin = _rowsource_history_origin() AND m.table_name = 'rowsource_snapshot_plans'::text
    ), descriptions AS NOT MATERIALIZED (
        SELECT k.* FROM rowsource_snapshot_descriptions k WHERE _rowsource_history_origin() IS NULL
        UNION ALL
        SELECT r.*
          FROM rowsource_imported m CROSS JOIN LATERAL pg_catalog.jsonb_populate_record(NULL::rowsource_snapshot_descriptions, m.content) r
         WHERE m.origin = _rowsource_history_origin() AND m.table_name = 'rowsource_snapshot_descriptions'::text
    ), w AS (
        SELECT coalesce(rowsource_display_snapshot.snap_id, pg_catalog.max(snap_id)) AS snap_id FROM snapshots
    )
    SELECT pg_catalog.format('plan 1 of %s, by total time. rowsource_snapshot_plans lists all.', pg_catalog.count(*))
      FROM w, plans o
     WHERE o.snap_id = w.snap_id AND o.queryid = rowsource_display_snapshot.queryid
           AND (rowsource_display_snapshot.planid IS NULL OR o.planid = rowsource_display_snapshot.planid)
    HAVING pg_catalog.count(*) > 1::bigint
    UNION ALL
    SELECT rowsource_display_stored(
               w.snap_id, rowsource_display_snapshot.queryid, rowsource_display_snapshot.planid,
               (SELECT s.taken_at::text FROM snapshots s WHERE s.snap_id = w.snap_id),
               p.userid, p.datid, p.queryid, p.planid, p.toplevel, d.description, p.statistics,
               p.usename::text, p.datname::text, rowsource_display_snapshot.format)
      FROM w
           LEFT JOIN LATERAL (
               SELECT * FROM plans o
                WHERE o.snap_id = w.snap_id AND o.queryid = rowsource_display_snapshot.queryid
                      AND (rowsource_display_snapshot.planid IS NULL OR o.planid = rowsource_display_snapshot.planid)
                ORDER BY (o.datname = pg_catalog.current_database()) DESC NULLS LAST, (o.usename = current_user) DESC NULLS LAST,
                         o.total_time DESC
                LIMIT 1::bigint) p ON true
           LEFT JOIN descriptions d
             ON d.userid = p.userid AND d.datid = p.datid AND d.queryid = p.queryid AND d.planid = p.planid
                AND d.toplevel = p.toplevel;
END";
}
