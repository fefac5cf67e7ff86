//! Baselines, whose table is beside those of the snapshots, and what carries the history to another server.

use crate::functions::surface::objects;

objects! {
    // It runs with its owner's rights, so that the privilege to call it is enough.
    /// Gives a name to an interval, and keeps the snapshots around it from being thinned, merged and deleted.
    /// If none was taken since its end, takes one
    FUNCTION rowsource_baseline(name: text, from_time: text, to_time: text = "NULL") TO nobody
        "VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE SECURITY DEFINER" -> "void" {} "
BEGIN ATOMIC
    SELECT rowsource_snapshot()
      FROM _rowsource_interval(rowsource_baseline.from_time, rowsource_baseline.to_time) i
     WHERE NOT EXISTS (SELECT FROM rowsource_snapshots s WHERE s.taken_at >= i.to_at);
    SELECT rowsource_check_new_baseline(
               rowsource_baseline.name, EXISTS (SELECT FROM rowsource_baselines b WHERE b.name = rowsource_baseline.name),
               (SELECT pg_catalog.sum(s.bytes)::bigint
                  FROM rowsource_snapshots s
                 WHERE s.is_kept OR s.snap_id IN (SELECT v.snap_id FROM rowsource_intervals v WHERE v.to_at > i.from_at AND v.from_at < i.to_at)),
               (SELECT pg_catalog.count(*) FROM rowsource_intervals v
                 WHERE v.snap_id > 0::bigint AND v.to_at > i.from_at AND v.from_at < i.to_at))
      FROM _rowsource_interval(rowsource_baseline.from_time, rowsource_baseline.to_time) i;
    INSERT INTO rowsource_baselines (name, from_at, to_at)
    SELECT rowsource_baseline.name, pg_catalog.min(v.from_at), pg_catalog.max(v.to_at)
      FROM _rowsource_interval(rowsource_baseline.from_time, rowsource_baseline.to_time) i
           JOIN rowsource_intervals v ON v.snap_id > 0::bigint AND v.to_at > i.from_at AND v.from_at < i.to_at;
    -- What each of its plans had done before, in its first snapshot: a plan that ran long before it has that in one that will go.
    INSERT INTO rowsource_snapshot_plans
    SELECT f.snap_id, k.userid, k.datid, k.queryid, k.planid, k.toplevel, k.query, k.textid, k.gone_indexes, k.first_seen_at,
           k.calls, k.failed_calls, k.cancelled_calls, k.total_time, k.rows, k.shared_blks_hit,
           k.shared_blks_read, k.temp_blks_read, k.temp_blks_written, k.temp_blk_read_time,
           k.temp_blk_write_time, k.statistics
      FROM rowsource_baselines b JOIN rowsource_snapshots f ON f.taken_at = b.from_at
           CROSS JOIN LATERAL (
               SELECT DISTINCT p.userid, p.datid, p.queryid, p.planid, p.toplevel
                 FROM rowsource_snapshots s JOIN rowsource_snapshot_plans p ON p.snap_id = s.snap_id
                WHERE s.taken_at > b.from_at AND s.taken_at <= b.to_at) p
           CROSS JOIN LATERAL (
               SELECT * FROM rowsource_snapshot_plans o
                WHERE o.userid = p.userid AND o.datid = p.datid AND o.queryid = p.queryid AND o.planid = p.planid
                      AND o.toplevel = p.toplevel AND o.snap_id <= f.snap_id
                ORDER BY o.snap_id DESC, o.first_seen_at DESC LIMIT 1::bigint) k
     WHERE b.name = rowsource_baseline.name AND k.snap_id < f.snap_id
        ON CONFLICT DO NOTHING;
    UPDATE rowsource_snapshots s SET is_kept = true, bytes = CASE WHEN s.taken_at > b.from_at THEN s.bytes END
      FROM rowsource_baselines b
     WHERE b.name = rowsource_baseline.name AND s.taken_at BETWEEN b.from_at AND b.to_at;
END";

    /// Takes the name of an interval away. Its snapshots become fewer with age as all others, unless they are
    /// of another baseline
    FUNCTION rowsource_baseline_drop(name: text) TO nobody
        "VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE SECURITY DEFINER" -> "void" {} "
BEGIN ATOMIC
    SELECT rowsource_check_baseline(
               rowsource_baseline_drop.name,
               EXISTS (SELECT FROM rowsource_baselines b WHERE b.name = rowsource_baseline_drop.name));
    DELETE FROM rowsource_baselines b WHERE b.name = rowsource_baseline_drop.name;
    UPDATE rowsource_snapshots s SET is_kept = false
     WHERE s.is_kept AND NOT EXISTS (SELECT FROM rowsource_baselines b WHERE s.taken_at BETWEEN b.from_at AND b.to_at);
END";

    // A row is a line of its own, so that any part of a file can be read.
    /// Returns the history of an interval as lines for \copy: its snapshots, and those of baselines. Without
    /// arguments, of the last hour
    FUNCTION rowsource_export(from_time: text = "NULL", to_time: text = "NULL") TO pg_read_all_stats
        "STABLE CALLED ON NULL INPUT PARALLEL RESTRICTED SET bytea_output = hex SET extra_float_digits = 1" -> "SETOF text" {} "
BEGIN ATOMIC
    WITH wanted AS MATERIALIZED (
        SELECT s.* FROM rowsource_snapshots s
         WHERE s.is_kept
            OR EXISTS (SELECT FROM _rowsource_interval(rowsource_export.from_time, rowsource_export.to_time) i
                        WHERE s.taken_at >= coalesce((SELECT pg_catalog.max(b.taken_at) FROM rowsource_snapshots b WHERE b.taken_at <= i.from_at),
                                                     i.from_at)
                              AND s.taken_at <= coalesce((SELECT pg_catalog.min(a.taken_at) FROM rowsource_snapshots a WHERE a.taken_at >= i.to_at),
                                                         i.to_at))
    ), ends AS (
        SELECT i.snap_id
          FROM (SELECT s.snap_id, pg_catalog.lag(s.snap_id) OVER (ORDER BY s.snap_id) AS from_snap_id FROM rowsource_snapshots s) i
         WHERE i.snap_id IN (SELECT w.snap_id FROM wanted w) AND i.from_snap_id IN (SELECT w.snap_id FROM wanted w)
    ), before AS (
        -- What a plan had done when it ran last before these intervals.
        SELECT DISTINCT ON (f.snap_id, f.userid, f.datid, f.queryid, f.planid, f.toplevel) f.*
          FROM rowsource_snapshot_plans p JOIN ends e ON e.snap_id = p.snap_id
               CROSS JOIN LATERAL (
                   SELECT * FROM rowsource_snapshot_plans o
                    WHERE o.userid = p.userid AND o.datid = p.datid AND o.queryid = p.queryid AND o.planid = p.planid
                          AND o.toplevel = p.toplevel AND o.snap_id < p.snap_id
                    ORDER BY o.snap_id DESC, o.first_seen_at DESC LIMIT 1::bigint) f
         WHERE f.snap_id NOT IN (SELECT w.snap_id FROM wanted w)
    ), named AS (
        SELECT 'rowsource_snapshot_plans'::text AS rel, p.snap_id, pg_catalog.to_jsonb(p.*) AS row, p.userid, p.datid
          FROM rowsource_snapshot_plans p JOIN wanted w ON w.snap_id = p.snap_id
        UNION ALL
        SELECT 'rowsource_snapshot_plans'::text, p.snap_id, pg_catalog.to_jsonb(p.*), p.userid, p.datid FROM before p
        UNION ALL
        SELECT 'rowsource_snapshot_ash'::text, a.snap_id, pg_catalog.to_jsonb(a.*), a.userid, a.datid
          FROM rowsource_snapshot_ash a JOIN wanted w ON w.snap_id = a.snap_id
        UNION ALL
        SELECT 'rowsource_snapshot_descriptions'::text, NULL::bigint, pg_catalog.to_jsonb(d.*), d.userid, d.datid
          FROM rowsource_snapshot_descriptions d
         WHERE EXISTS (SELECT FROM rowsource_snapshot_plans p JOIN wanted w ON w.snap_id = p.snap_id
                        WHERE p.userid = d.userid AND p.datid = d.datid AND p.queryid = d.queryid AND p.planid = d.planid
                              AND p.toplevel = d.toplevel)
    ), rows AS (
        SELECT 'rowsource_baselines'::text AS rel, NULL::bigint AS snap_id, pg_catalog.to_jsonb(b.*) AS row FROM rowsource_baselines b
        UNION ALL
        SELECT 'rowsource_snapshots'::text, w.snap_id, pg_catalog.to_jsonb(w.*) FROM wanted w
        UNION ALL
        SELECT 'rowsource_snapshot_tempfile_io'::text, i.snap_id, pg_catalog.to_jsonb(i.*)
          FROM rowsource_snapshot_tempfile_io i JOIN wanted w ON w.snap_id = i.snap_id
        UNION ALL
        SELECT 'rowsource_snapshot_waits'::text, c.snap_id, pg_catalog.to_jsonb(c.*)
          FROM rowsource_snapshot_waits c JOIN wanted w ON w.snap_id = c.snap_id
        UNION ALL
        -- OIDs mean nothing elsewhere.
        SELECT n.rel, n.snap_id, n.row || pg_catalog.jsonb_build_object('usename', u.rolname, 'datname', d.datname)
          FROM named n LEFT JOIN pg_catalog.pg_roles u ON u.oid = n.userid LEFT JOIN pg_catalog.pg_database d ON d.oid = n.datid
    )
    -- It has no rows, and runs first, so that an error comes also with LIMIT.
    SELECT c.c FROM _rowsource_check_interval(rowsource_export.from_time, rowsource_export.to_time) c(c)
    UNION ALL
    SELECT pg_catalog.json_build_object(
               'rowsource_export', 1, 'line', pg_catalog.row_number() OVER (), 'origin', c.system_identifier::text, 'table', r.rel,
               'snap_id', r.snap_id, 'row', r.row)::text
      FROM rows r CROSS JOIN pg_catalog.pg_control_system() c;
END";

    /// Reads a line of rowsource_export() of another server into rowsource_imported. Returns whether it is
    /// new
    FUNCTION rowsource_import(line: text) TO nobody
        "VOLATILE STRICT PARALLEL UNSAFE SECURITY DEFINER SET TimeZone = 'UTC' SET bytea_output = hex SET extra_float_digits = 1" -> "boolean" {} "
BEGIN ATOMIC
    SELECT rowsource_check_writable('rowsource_imported'::regclass);
    SELECT rowsource_check_import(pg_catalog.pg_total_relation_size('rowsource_imported'::regclass));
    WITH new AS (
        -- What a row is of tells it apart: the rest becomes other with age.
        INSERT INTO rowsource_imported (origin, table_name, snap_id, content, hash)
        SELECT l.origin, l.table_name, l.snap_id, c.content || t.row,
               pg_catalog.md5((SELECT pg_catalog.jsonb_agg(t.row -> k.name ORDER BY k.number)
                                 FROM pg_catalog.unnest(CASE l.table_name
                                          WHEN 'rowsource_baselines'::text THEN ARRAY['name'::text, 'created_at'::text]
                                          WHEN 'rowsource_snapshots'::text THEN ARRAY['snap_id'::text]
                                          WHEN 'rowsource_snapshot_tempfile_io'::text THEN ARRAY['snap_id'::text, 'datid'::text, 'filetype'::text, 'stats_reset'::text]
                                          WHEN 'rowsource_snapshot_waits'::text THEN ARRAY['snap_id'::text, 'backend_type'::text, 'wait_event_type'::text, 'wait_event'::text, 'stats_reset'::text]
                                          WHEN 'rowsource_snapshot_ash'::text THEN ARRAY['sample_time'::text, 'pid'::text]
                                          ELSE ARRAY['snap_id'::text, 'userid'::text, 'datid'::text, 'queryid'::text, 'planid'::text, 'toplevel'::text, 'first_seen_at'::text]
                                      END) WITH ORDINALITY k (name, number))::text)
          FROM rowsource_imported_line(rowsource_import.line) l CROSS JOIN LATERAL (SELECT rowsource_import.line::jsonb -> 'row'::text) c (content)
         -- A value that no column takes is an error here, and not whenever somebody reads it.
               CROSS JOIN LATERAL (SELECT CASE l.table_name
                    WHEN 'rowsource_baselines'::text THEN pg_catalog.to_jsonb(pg_catalog.jsonb_populate_record(NULL::rowsource_baselines, c.content))
                    WHEN 'rowsource_snapshots'::text THEN pg_catalog.to_jsonb(pg_catalog.jsonb_populate_record(NULL::rowsource_snapshots, c.content))
                    WHEN 'rowsource_snapshot_tempfile_io'::text THEN pg_catalog.to_jsonb(pg_catalog.jsonb_populate_record(NULL::rowsource_snapshot_tempfile_io, c.content))
                    WHEN 'rowsource_snapshot_waits'::text THEN pg_catalog.to_jsonb(pg_catalog.jsonb_populate_record(NULL::rowsource_snapshot_waits, c.content))
                    WHEN 'rowsource_snapshot_plans'::text THEN pg_catalog.to_jsonb(pg_catalog.jsonb_populate_record(NULL::rowsource_snapshot_plans, c.content))
                    WHEN 'rowsource_snapshot_descriptions'::text THEN pg_catalog.to_jsonb(pg_catalog.jsonb_populate_record(NULL::rowsource_snapshot_descriptions, c.content))
                    WHEN 'rowsource_snapshot_ash'::text THEN pg_catalog.to_jsonb(pg_catalog.jsonb_populate_record(NULL::rowsource_snapshot_ash, c.content))
               END) t (row)
         WHERE t.row IS NOT NULL
            ON CONFLICT DO NOTHING
        RETURNING origin
    )
    SELECT pg_catalog.count(*) > 0::bigint FROM new;
END";
}
