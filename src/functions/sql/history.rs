//! Views and reports of the snapshots.

use crate::functions::surface::objects;

objects! {
    // Shows what happened between each snapshot and the previous one. If the counters were reset in between,
    // shows their values since the reset.
    /// Requests to temporary files between each snapshot and the previous one
    VIEW rowsource_interval_tempfile_io TO PUBLIC {
        snap_id;
        /// When the previous snapshot was taken
        from_at: timestamptz;
        /// When the snapshot was taken
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
      FROM (SELECT s.snap_id, s.from_at, s.taken_at AS to_at, nullif(c.datid, 4294967295::oid) AS datid, c.datname, c.filetype, c.source,
                   greatest(c.small_reads - coalesce(p.small_reads, 0::bigint), 0::bigint) AS small_reads,
                   greatest(c.small_read_bytes - coalesce(p.small_read_bytes, 0::bigint), 0::bigint) AS small_read_bytes,
                   CASE WHEN c.small_read_time IS NOT NULL THEN greatest(c.small_read_time - coalesce(p.small_read_time, 0::float8), 0::float8) END
                       AS small_read_time,
                   greatest(c.large_reads - coalesce(p.large_reads, 0::bigint), 0::bigint) AS large_reads,
                   greatest(c.large_read_bytes - coalesce(p.large_read_bytes, 0::bigint), 0::bigint) AS large_read_bytes,
                   CASE WHEN c.large_read_time IS NOT NULL THEN greatest(c.large_read_time - coalesce(p.large_read_time, 0::float8), 0::float8) END
                       AS large_read_time,
                   greatest(c.small_writes - coalesce(p.small_writes, 0::bigint), 0::bigint) AS small_writes,
                   greatest(c.small_write_bytes - coalesce(p.small_write_bytes, 0::bigint), 0::bigint) AS small_write_bytes,
                   CASE WHEN c.small_write_time IS NOT NULL THEN greatest(c.small_write_time - coalesce(p.small_write_time, 0::float8), 0::float8) END
                       AS small_write_time,
                   greatest(c.large_writes - coalesce(p.large_writes, 0::bigint), 0::bigint) AS large_writes,
                   greatest(c.large_write_bytes - coalesce(p.large_write_bytes, 0::bigint), 0::bigint) AS large_write_bytes,
                   CASE WHEN c.large_write_time IS NOT NULL THEN greatest(c.large_write_time - coalesce(p.large_write_time, 0::float8), 0::float8) END
                       AS large_write_time
              FROM (SELECT snap_id, taken_at,
                           pg_catalog.lag(snap_id) OVER (ORDER BY snap_id) AS from_id,
                           pg_catalog.lag(taken_at) OVER (ORDER BY snap_id) AS from_at
                      FROM rowsource_snapshots) s
                   JOIN rowsource_snapshot_tempfile_io c ON c.snap_id = s.snap_id
                   LEFT JOIN rowsource_snapshot_tempfile_io p
                   ON p.snap_id = s.from_id AND p.datid = c.datid
                      AND p.filetype = c.filetype
                      AND p.stats_reset = c.stats_reset AND p.source = c.source
             WHERE s.from_id IS NOT NULL) d";

    // Shows the waits between each snapshot and the previous one. If the server restarted in between, shows
    // those since then.
    /// The waits between each snapshot and the previous one
    VIEW rowsource_interval_waits TO PUBLIC {
        /// The number of the snapshot at the end of the interval
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
    SELECT d.snap_id, d.from_at, d.to_at, d.backend_type, d.wait_event_type, d.wait_event, d.waits, d.wait_time,
           d.wait_time / nullif(d.waits, 0::bigint)::float8 AS mean_time
      FROM (SELECT s.snap_id, s.from_at, s.taken_at AS to_at, c.backend_type, nullif(c.wait_event_type, ''::text) AS wait_event_type,
                   c.wait_event,
                   c.waits - coalesce(p.waits, 0::bigint) AS waits,
                   greatest(c.wait_time - coalesce(p.wait_time, 0::float8), 0::float8) AS wait_time
              FROM (SELECT snap_id, taken_at,
                           pg_catalog.lag(snap_id) OVER (ORDER BY snap_id) AS from_id,
                           pg_catalog.lag(taken_at) OVER (ORDER BY snap_id) AS from_at
                      FROM rowsource_snapshots) s
                   JOIN rowsource_snapshot_waits c ON c.snap_id = s.snap_id
                   LEFT JOIN rowsource_snapshot_waits p
                   ON p.snap_id = s.from_id AND p.backend_type = c.backend_type
                      AND p.wait_event_type = c.wait_event_type AND p.wait_event = c.wait_event AND p.stats_reset = c.stats_reset
             WHERE s.from_id IS NOT NULL) d
     WHERE d.waits > 0::bigint OR d.wait_time > 0::float8";

    // If the snapshot with a plan's earlier figures was deleted, nothing is known of its first interval.
    /// What each plan did between a snapshot and the previous one that has the plan; NULL if that was deleted
    VIEW rowsource_interval_plans TO pg_read_all_stats {
        snap_id;
        /// When the snapshot was taken
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
    SELECT d.snap_id, d.to_at, u.rolname AS usename, b.datname, d.userid, d.datid, d.queryid, d.planid, d.toplevel, d.query, d.calls,
           d.total_time, d.total_time / nullif(d.calls, 0::bigint)::float8 AS mean_time, d.temp_blks_read,
           d.temp_blks_written, d.temp_blk_read_time, d.temp_blk_write_time
      FROM (SELECT p.snap_id, s.taken_at AS to_at, p.userid, p.datid, p.queryid, p.planid, p.toplevel,
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
              FROM rowsource_snapshot_plans p
                   JOIN rowsource_snapshots s ON s.snap_id = p.snap_id
                   LEFT JOIN LATERAL (
                       SELECT b.*, b.first_seen_at = p.first_seen_at AND b.calls <= p.calls AS goes_on
                         FROM rowsource_snapshot_plans b
                        WHERE b.userid = p.userid AND b.datid = p.datid AND b.queryid = p.queryid
                              AND b.planid = p.planid AND b.toplevel = p.toplevel
                              AND b.snap_id < p.snap_id
                        ORDER BY b.snap_id DESC LIMIT 1::bigint) f ON true
                   CROSS JOIN LATERAL (
                       SELECT f.snap_id IS NOT NULL
                              OR p.first_seen_at >= (SELECT pg_catalog.min(taken_at) FROM rowsource_snapshots) AS is_known) k
             WHERE p.snap_id > (SELECT pg_catalog.min(snap_id) FROM rowsource_snapshots)) d
           LEFT JOIN pg_catalog.pg_roles u ON u.oid = d.userid
           LEFT JOIN pg_catalog.pg_database b ON b.oid = d.datid";

    // Shows a plan as it was when a snapshot was taken. Of several plans it prefers those of this database,
    // then those of this user, then the one that took the most time.
    /// Shows a plan as it was when a snapshot was taken, also if it was evicted or reset since
    FUNCTION rowsource_display_snapshot(queryid: bigint, planid: bigint = "NULL", snap_id: bigint = "NULL", format: text = "'ALLSTATS'") TO pg_read_all_stats
        "STABLE CALLED ON NULL INPUT PARALLEL RESTRICTED" -> "SETOF text" {} "
BEGIN ATOMIC
    WITH w AS (
        SELECT coalesce(rowsource_display_snapshot.snap_id, pg_catalog.max(snap_id)) AS snap_id FROM rowsource_snapshots
    )
    SELECT pg_catalog.format('plan 1 of %s, by total time. rowsource_snapshot_plans lists all.', pg_catalog.count(*))
      FROM w, rowsource_snapshot_plans o
     WHERE o.snap_id = w.snap_id AND o.queryid = rowsource_display_snapshot.queryid
           AND (rowsource_display_snapshot.planid IS NULL OR o.planid = rowsource_display_snapshot.planid)
    HAVING pg_catalog.count(*) > 1::bigint
    UNION ALL
    SELECT rowsource_display_stored(
               w.snap_id, rowsource_display_snapshot.queryid, rowsource_display_snapshot.planid,
               (SELECT s.taken_at::text FROM rowsource_snapshots s WHERE s.snap_id = w.snap_id),
               p.userid, p.datid, p.queryid, p.planid, p.toplevel, d.description, p.statistics,
               rowsource_display_snapshot.format)
      FROM w
           LEFT JOIN LATERAL (
               SELECT * FROM rowsource_snapshot_plans o
                WHERE o.snap_id = w.snap_id AND o.queryid = rowsource_display_snapshot.queryid
                      AND (rowsource_display_snapshot.planid IS NULL OR o.planid = rowsource_display_snapshot.planid)
                ORDER BY (SELECT b.datname = pg_catalog.current_database() FROM pg_catalog.pg_database b WHERE b.oid = o.datid)
                         DESC NULLS LAST,
                         (SELECT u.rolname = current_user FROM pg_catalog.pg_roles u WHERE u.oid = o.userid) DESC NULLS LAST,
                         o.total_time DESC
                LIMIT 1::bigint) p ON true
           LEFT JOIN rowsource_snapshot_descriptions d
             ON d.userid = p.userid AND d.datid = p.datid AND d.queryid = p.queryid AND d.planid = p.planid
                AND d.toplevel = p.toplevel;
END";

    // Finds the two snapshots of a report: by default the last, and the one before. What does not exist is
    // NULL.
    /// Internal: the two snapshots of a report
    FUNCTION rowsource_interval(wanted_from: bigint, wanted_to: bigint) TO nobody
        "STABLE CALLED ON NULL INPUT PARALLEL RESTRICTED" -> "record" {
        /// The number of the first snapshot
        from_snap: bigint;
        /// The number of the last snapshot
        to_snap: bigint;
        /// When the first one was taken
        from_at: timestamptz;
        /// When the last one was taken
        to_at: timestamptz;
        /// Milliseconds of all statements that ended between them, in all databases
        active_time: float8;
    } "
BEGIN ATOMIC
    SELECT f.snap_id, l.snap_id, f.taken_at, l.taken_at, l.active_time - f.active_time
      FROM (SELECT) one
           LEFT JOIN rowsource_snapshots l
             ON l.snap_id = coalesce(rowsource_interval.wanted_to, (SELECT pg_catalog.max(snap_id) FROM rowsource_snapshots))
           LEFT JOIN rowsource_snapshots f
             ON f.snap_id = coalesce(rowsource_interval.wanted_from,
                                     (SELECT pg_catalog.max(s.snap_id) FROM rowsource_snapshots s
                                       WHERE s.snap_id < l.snap_id));
END";

    // Prints a report like Oracle's "IOStat by Filetype summary" between two snapshots. Without arguments:
    // between the last two. It runs with its owner's rights, so that only it needs to call the internal
    // function.
    /// Prints what happened to temporary files between two snapshots; without arguments, between the last two
    FUNCTION rowsource_tempfile_report(from_snap: bigint = "NULL", to_snap: bigint = "NULL") TO PUBLIC
        "STABLE CALLED ON NULL INPUT PARALLEL RESTRICTED SECURITY DEFINER" -> "SETOF text" {} "
BEGIN ATOMIC
    WITH snapshots AS (
        SELECT * FROM rowsource_interval(rowsource_tempfile_report.from_snap, rowsource_tempfile_report.to_snap)
    ), filetypes AS (
        SELECT h.filetype,
                   pg_catalog.json_build_object('requests', pg_catalog.sum(h.small_reads), 'bytes', pg_catalog.sum(h.small_read_bytes),
                       'time', pg_catalog.sum(h.small_read_time)) AS small_read,
                   pg_catalog.json_build_object('requests', pg_catalog.sum(h.large_reads), 'bytes', pg_catalog.sum(h.large_read_bytes),
                       'time', pg_catalog.sum(h.large_read_time)) AS large_read,
                   pg_catalog.json_build_object('requests', pg_catalog.sum(h.small_writes), 'bytes', pg_catalog.sum(h.small_write_bytes),
                       'time', pg_catalog.sum(h.small_write_time)) AS small_write,
                   pg_catalog.json_build_object('requests', pg_catalog.sum(h.large_writes), 'bytes', pg_catalog.sum(h.large_write_bytes),
                       'time', pg_catalog.sum(h.large_write_time)) AS large_write
          FROM rowsource_interval_tempfile_io h, snapshots i
         WHERE h.snap_id > i.from_snap AND h.snap_id <= i.to_snap
         GROUP BY h.filetype
    )
    SELECT rowsource_tempfile_lines(
               rowsource_tempfile_report.from_snap, rowsource_tempfile_report.to_snap,
               i.from_snap, i.to_snap, i.from_at::text, i.to_at::text, pg_catalog.date_part('epoch', i.to_at - i.from_at),
               (SELECT pg_catalog.json_agg(t.* ORDER BY t.filetype DESC)::text FROM filetypes t))
      FROM snapshots i;
END";

    // Prints a report like Oracle's "Top Timed Events" between two snapshots. Without arguments: between the
    // last two. It runs with its owner's rights, so that only it needs to call the internal function.
    /// Prints what sessions waited for between two snapshots, in percent of the database time; without
    /// arguments, between the last two
    FUNCTION rowsource_wait_report(from_snap: bigint = "NULL", to_snap: bigint = "NULL") TO PUBLIC
        "STABLE CALLED ON NULL INPUT PARALLEL RESTRICTED SECURITY DEFINER" -> "SETOF text" {} "
BEGIN ATOMIC
    WITH snapshots AS (
        SELECT * FROM rowsource_interval(rowsource_wait_report.from_snap, rowsource_wait_report.to_snap)
    ), waits AS (
        SELECT pg_catalog.json_build_object('backend_type', h.backend_type, 'wait_event_type', h.wait_event_type,
                   'wait_event', h.wait_event, 'waits', pg_catalog.sum(h.waits)::bigint,
                   'wait_time', pg_catalog.sum(h.wait_time)) AS event
          FROM rowsource_interval_waits h, snapshots i
         WHERE h.snap_id > i.from_snap AND h.snap_id <= i.to_snap
         GROUP BY h.backend_type, h.wait_event_type, h.wait_event
    )
    SELECT rowsource_wait_lines(
               rowsource_wait_report.from_snap, rowsource_wait_report.to_snap,
               i.from_snap, i.to_snap, i.from_at::text, i.to_at::text, pg_catalog.date_part('epoch', i.to_at - i.from_at),
               nullif(greatest(i.active_time, 0::float8), 0::float8),
               (SELECT pg_catalog.json_agg(w.event)::text FROM waits w))
      FROM snapshots i;
END";
}
