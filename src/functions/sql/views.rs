//! Views and functions of what is measured now, written in SQL.

use crate::functions::surface::objects;

objects! {
    /// The targets of SQL traces. A session is traced if it meets all conditions of a target; NULL is no
    /// condition
    VIEW rowsource_trace_targets TO pg_read_all_stats {
        /// Its number, for rowsource_trace_stop()
        target: int;
        /// Condition: the process of this session, until it ends
        pid: int;
        /// Condition: the session's application_name
        application_name: text;
        /// Condition: the session's user, or the role that SET ROLE has chosen
        usename: name;
        /// Condition: the session's database
        datname: name;
        /// The OID of that user
        userid: oid;
        /// The OID of that database
        datid: oid;
        /// Condition: the address of the client, or a network that contains it
        client_addr: inet;
        /// Only this statement is traced, with what it calls
        queryid: bigint;
        /// Whether each wait is listed
        with_waits: boolean;
        /// Whether the values of parameters are listed
        with_binds: boolean;
        /// Who has set it
        set_by: name;
        /// When it was set
        set_at: timestamptz;
        /// When it expires
        expires_at: timestamptz;
        /// How many sessions it traces, as far as they have noticed it
        sessions: bigint;
    } "
    SELECT t.target, t.pid, t.application_name, pg_catalog.pg_get_userbyid(t.userid) AS usename,
           CASE WHEN t.datid IS NOT NULL THEN coalesce(d.datname, ('unknown (OID=' || t.datid::text || ')')::name) END AS datname,
           t.userid, t.datid, t.client_addr, t.queryid, t.with_waits, t.with_binds,
           pg_catalog.pg_get_userbyid(t.set_by_userid) AS set_by, t.set_at, t.expires_at, t.sessions
      FROM rowsource_trace_targets() t LEFT JOIN pg_catalog.pg_database d ON d.oid = t.datid";

    // Shows wrong estimates: nodes of which an execution had at least 1.1 times as many rows as the planner
    // expected, or as few. plan_rows and actual_rows: how many rows per start the planner expected, and how
    // many there were, in the executions that say something about the estimate. max_factor: the factor
    // between both in the worst of them. The order: the node's own time, times the mean of two logarithms: of
    // the factor between plan_rows and actual_rows, and of max_factor. Nodes about which no execution says
    // something come last.
    /// Nodes that returned another number of rows than the planner expected, compared execution by execution:
    /// by a factor of 1.1 at least in one of them. The order: their own time and the size of the error. Nodes
    /// about which no execution says something come last
    VIEW rowsource_misestimates TO PUBLIC {
        usename; datname; userid; datid; queryid; planid; toplevel; node_id; operation; object_name;
        /// The rows per start that the planner expected in the executions that are compared; NULL if there
        /// are none
        plan_rows: float8;
        /// The rows per start that the node returned in the same executions; NULL if there are none
        actual_rows: float8;
        /// How many times too few or too many rows were expected in the worst of these executions
        max_factor: float8;
        /// underestimated or overestimated; varying if wrong estimates of single executions cancel out. Or
        /// why no execution is compared: never started, may stop early (below a limit, a semi-join or
        /// EXISTS), not completed, starts not counted (sampfreq 3)
        verdict: text;
        self_time; self_time_error;
    } "
    SELECT n.usename, n.datname, n.userid, n.datid, n.queryid, n.planid, n.toplevel, n.node_id, n.operation,
           n.object_name, s.plan_rows, s.actual_rows, m.max_factor,
           CASE WHEN f.ratio >= 1.1::float8 AND m.is_under THEN 'underestimated'::text
                WHEN f.ratio <= 1::float8 / 1.1::float8 AND NOT m.is_under THEN 'overestimated'::text
                WHEN m.max_factor IS NOT NULL THEN 'varying'::text
                WHEN n.starts IS NULL THEN 'starts not counted'::text
                WHEN n.starts = 0::bigint THEN 'never started'::text
                WHEN n.may_stop_early THEN 'may stop early'::text
                ELSE 'not completed'::text END AS verdict,
           n.self_time, n.self_time_error
      FROM pg_stat_rowsource n,
           LATERAL (SELECT greatest(n.max_underestimate, n.max_overestimate) AS max_factor,
                           coalesce(n.max_underestimate >= n.max_overestimate, n.max_overestimate IS NULL) AS is_under) m,
           LATERAL (SELECT n.compared_plan_rows / nullif(n.compared_starts, 0::bigint)::float8 AS plan_rows,
                           n.compared_rows::float8 / nullif(n.compared_starts, 0::bigint)::float8 AS actual_rows) s,
           LATERAL (SELECT CASE WHEN m.max_factor IS NOT NULL
                                THEN greatest(s.actual_rows, 1::float8) / greatest(s.plan_rows, 1::float8) END AS ratio) f
     WHERE CASE WHEN m.max_factor IS NOT NULL THEN m.max_factor >= 1.1::float8
                ELSE n.executions > 0::bigint AND n.plan_rows > 0::float8
                     AND n.operation NOT IN ('BitmapAnd'::text, 'BitmapOr'::text) END
     ORDER BY m.max_factor IS NULL,
              n.self_time * pg_catalog.ln(greatest(f.ratio, 1::float8 / f.ratio) * m.max_factor) DESC NULLS LAST,
              n.self_time DESC NULLS LAST";

    // The views for every day: the most expensive first, those for which clients waited longest. A statement
    // that clients sent and that also ran in functions is one row, so that user, database and queryid
    // identify it. The statements in functions (pg_rowsource.track = all) have no part of all, because their
    // time is part of the time of their callers. Each of these callers has a row, also CALL and DO; if it was
    // evicted, its time is in the row others.
    /// The statements for which clients waited longest: the plans of a statement together
    VIEW rowsource_top_statements TO PUBLIC {
        usename; datname; userid; datid; queryid;
        /// The number of different plans; NULL for others, which sums up the executions whose plans are not
        /// stored
        plans: bigint;
        /// Executions, including failed and cancelled ones
        calls: bigint;
        /// Milliseconds that clients waited for the executions: total_time, and parsing, planning, waits
        /// before the executor, and commit; NULL for a statement in a function. The order; where it is NULL,
        /// total_time
        response_time: float8;
        /// Milliseconds in which the executor ran (ExecutorRun and ExecutorFinish), as in pg_stat_statements;
        /// without parsing, planning and the executor's start. The sum of all executions
        total_time: float8;
        /// Milliseconds of an execution on average
        mean_time: float8;
        percent;
        /// Rows that the statement returned or changed
        rows: bigint;
        /// Blocks of tables, indexes and temporary tables read
        blks_read: bigint;
        /// The text of the statement; of several plans, that of the plan that ran last
        query: text;
    } "
    SELECT s.usename, s.datname, s.userid, s.datid, s.queryid, s.plans, s.calls, s.response_time, s.total_time,
           s.total_time / nullif(s.calls, 0::bigint)::float8 AS mean_time,
           100::float8 * s.response_time / nullif(pg_catalog.sum(s.response_time) OVER (), 0::float8) AS percent,
           s.rows, s.blks_read, s.query
      FROM (SELECT usename, datname, userid, datid, queryid,
                   CASE WHEN queryid IS NOT NULL THEN pg_catalog.count(DISTINCT planid)
                        WHEN userid IS NOT NULL THEN pg_catalog.count(*) END AS plans,
                   pg_catalog.sum(calls)::bigint AS calls,
                   pg_catalog.sum(total_time) AS total_time,
                   pg_catalog.sum(coalesce(response_time, total_time)) FILTER (WHERE toplevel) AS response_time,
                   pg_catalog.sum(rows)::bigint AS rows,
                   pg_catalog.sum(shared_blks_read + local_blks_read)::bigint AS blks_read,
                   (pg_catalog.array_agg(query ORDER BY last_seen_at DESC NULLS LAST))[1] AS query
              FROM pg_stat_rowsource_plans
             GROUP BY usename, datname, userid, datid, queryid) s
     ORDER BY coalesce(s.response_time, s.total_time) DESC NULLS LAST";

    /// The nodes that took the most time themselves
    VIEW rowsource_top_nodes TO PUBLIC {
        usename; datname; userid; datid; queryid; planid; toplevel; node_id; operation; object_name; self_time;
        self_time_error;
        /// The part that the node itself has of the time of its statement, in percent. It can exceed 100 if
        /// several processes ran the node
        percent_of_statement: float8;
        processes; percent;
    } "
    SELECT usename, datname, userid, datid, queryid, planid, toplevel, node_id, operation, object_name, self_time,
           self_time_error, percent_of_statement, processes,
           100::float8 * CASE WHEN toplevel THEN self_time END
               / nullif(pg_catalog.sum(self_time) FILTER (WHERE toplevel) OVER (), 0::float8) AS percent
      FROM pg_stat_rowsource
     ORDER BY self_time DESC NULLS LAST";

    /// The nodes that themselves read the most blocks of tables, indexes and temporary tables
    VIEW rowsource_top_reads TO PUBLIC {
        usename; datname; userid; datid; queryid; planid; toplevel; node_id; operation; object_name; processes;
        /// Blocks of tables, indexes and temporary tables that the node itself read
        self_blks_read: bigint;
        /// Milliseconds reading these blocks; without track_io_timing, the waits for reads
        self_blk_read_time: float8;
        percent;
    } "
    SELECT usename, datname, userid, datid, queryid, planid, toplevel, node_id, operation, object_name, processes,
           self_blks_read, nullif(self_blk_read_time, 0::float8) AS self_blk_read_time,
           100::float8 * CASE WHEN toplevel THEN self_blks_read::float8 END
               / nullif((pg_catalog.sum(self_blks_read) FILTER (WHERE toplevel) OVER ())::float8, 0::float8) AS percent
      FROM pg_stat_rowsource
     WHERE self_blks_read > 0::bigint
     ORDER BY self_blks_read DESC NULLS LAST";

    /// The nodes that themselves wrote and read the most blocks of work files
    VIEW rowsource_top_temp TO PUBLIC {
        usename; datname; userid; datid; queryid; planid; toplevel; node_id; operation; processes;
        /// Blocks of work files that the node itself wrote
        self_temp_blks_written: bigint;
        /// Blocks of work files that the node itself read
        self_temp_blks_read: bigint;
        /// Milliseconds writing and reading these blocks; NULL if they were not timed
        self_temp_blk_time: float8;
        percent;
    } "
    SELECT n.usename, n.datname, n.userid, n.datid, n.queryid, n.planid, n.toplevel, n.node_id, n.operation,
           n.processes, n.self_temp_blks_written, n.self_temp_blks_read,
           nullif(n.self_temp_blk_time, 0::float8) AS self_temp_blk_time,
           100::float8 * CASE WHEN n.toplevel THEN t.blks::float8 END
               / nullif((pg_catalog.sum(t.blks) FILTER (WHERE n.toplevel) OVER ())::float8, 0::float8) AS percent
      FROM pg_stat_rowsource n, LATERAL (SELECT n.self_temp_blks_written + n.self_temp_blks_read AS blks) t
     WHERE t.blks > 0::bigint
     ORDER BY t.blks DESC NULLS LAST";

    /// The nodes whose filters, join filters and rechecks removed the most rows
    VIEW rowsource_top_rows_removed TO PUBLIC {
        usename; datname; userid; datid; queryid; planid; toplevel; node_id; operation; object_name;
        /// Rows that filters, join filters and rechecks of the node removed
        rows_removed: bigint;
        /// Rows that the node returned
        rows: bigint;
        self_time; self_time_error; percent;
    } "
    SELECT usename, datname, userid, datid, queryid, planid, toplevel, node_id, operation, object_name, rows_removed, rows,
           self_time, self_time_error,
           100::float8 * CASE WHEN toplevel THEN rows_removed::float8 END
               / nullif((pg_catalog.sum(rows_removed) FILTER (WHERE toplevel) OVER ())::float8, 0::float8) AS percent
      FROM pg_stat_rowsource
     WHERE rows_removed > 0::bigint
     ORDER BY rows_removed DESC NULLS LAST";

    /// What statements waited for the longest, by node and wait event
    VIEW rowsource_top_waits TO PUBLIC {
        usename; datname; userid; datid; queryid; planid; toplevel;
        /// The number of the node that waited, from 0 at the root, in the order of EXPLAIN; NULL outside of
        /// the nodes
        node_id: int;
        /// What the node does, as EXPLAIN calls it; outside the nodes: planning, commit, and sending rows to
        /// the client
        operation: text;
        object_name;
        /// The type of the event, as in pg_stat_activity; NULL for the row other
        wait_event_type: text;
        /// The event, as in pg_stat_activity. other: all other events of the plan
        wait_event: text;
        /// Waits, also those of parallel workers in this node
        waits: bigint;
        /// Milliseconds of these waits. The times of parallel processes add up
        wait_time: float8;
        percent;
    } "
    SELECT w.usename, w.datname, w.userid, w.datid, w.queryid, w.planid, w.toplevel, w.node_id,
           CASE WHEN w.queryid IS NOT NULL AND w.node_id IS NULL THEN 'outside the nodes'::text ELSE n.operation END AS operation,
           n.object_name, w.wait_event_type, w.wait_event, w.waits, w.wait_time,
           100::float8 * CASE WHEN w.toplevel THEN w.wait_time END
               / nullif(pg_catalog.sum(w.wait_time) FILTER (WHERE w.toplevel) OVER (), 0::float8) AS percent
      FROM pg_stat_rowsource_waits w
           LEFT JOIN pg_stat_rowsource n
           ON n.userid = w.userid AND n.datid = w.datid AND n.queryid = w.queryid AND n.planid = w.planid
              AND n.toplevel = w.toplevel AND n.node_id = w.node_id
     ORDER BY w.wait_time DESC NULLS LAST";

    // The WAL of all measured statements, by what their nodes did and to which object. What a statement wrote
    // outside its nodes has no object but the statement: the rows of CREATE TABLE AS, for instance. Row
    // others: statements whose plans are not stored.
    /// The WAL that measured statements wrote, by operation and object
    VIEW rowsource_wal TO PUBLIC {
        datname; datid;
        /// What the node did, as EXPLAIN calls it; outside the nodes: the rest of a statement; others:
        /// statements whose plans are not stored
        operation: text;
        object_name; toplevel;
        /// WAL records
        wal_records: bigint;
        /// Full page images in the WAL
        wal_fpi: bigint;
        /// Bytes of WAL
        wal_bytes: bigint;
        percent;
        /// The text of the statement that wrote the WAL outside its nodes; NULL for nodes
        query: text;
    } "
    SELECT s.datname, s.datid, s.operation, s.object_name, s.toplevel,
           pg_catalog.sum(s.wal_records)::bigint AS wal_records, pg_catalog.sum(s.wal_fpi)::bigint AS wal_fpi,
           pg_catalog.sum(s.wal_bytes)::bigint AS wal_bytes,
           100::float8 * CASE WHEN s.toplevel THEN pg_catalog.sum(s.wal_bytes)::float8 END
               / nullif((pg_catalog.sum(pg_catalog.sum(s.wal_bytes)) FILTER (WHERE s.toplevel) OVER ())::float8, 0::float8) AS percent,
           s.query
      FROM (SELECT datname, datid, operation, object_name, toplevel, self_wal_records AS wal_records, self_wal_fpi AS wal_fpi,
                   self_wal_bytes AS wal_bytes, NULL::text AS query
              FROM pg_stat_rowsource
            UNION ALL
            SELECT p.datname, p.datid,
                   CASE WHEN p.userid IS NULL THEN 'others'::text ELSE 'outside the nodes'::text END, NULL::text, p.toplevel,
                   p.wal_records - coalesce(n.wal_records, 0::bigint), p.wal_fpi - coalesce(n.wal_fpi, 0::bigint),
                   p.wal_bytes - coalesce(n.wal_bytes, 0::bigint), CASE WHEN p.userid IS NOT NULL THEN p.query END
              FROM pg_stat_rowsource_plans p
                   LEFT JOIN (SELECT userid, datid, queryid, planid, toplevel,
                                     pg_catalog.sum(self_wal_records)::bigint AS wal_records,
                                     pg_catalog.sum(self_wal_fpi)::bigint AS wal_fpi,
                                     pg_catalog.sum(self_wal_bytes)::bigint AS wal_bytes
                                FROM pg_stat_rowsource
                               GROUP BY userid, datid, queryid, planid, toplevel) n
                   ON n.userid = p.userid AND n.datid = p.datid AND n.queryid = p.queryid AND n.planid = p.planid
                      AND n.toplevel = p.toplevel) s
     WHERE s.wal_bytes > 0::bigint
     GROUP BY s.datname, s.datid, s.operation, s.object_name, s.toplevel, s.query
     ORDER BY pg_catalog.sum(s.wal_bytes) DESC";

    /// Shows who uses temporary space now: a row per process and type of file
    FUNCTION rowsource_tempfile_usage() TO PUBLIC
        "VOLATILE PARALLEL RESTRICTED" -> "SETOF record" {
        /// The process that made the files; NULL if it is not known
        pid: int;
        /// The user of its session
        usename: name;
        /// The database of its session, or of the temporary table
        datname: name;
        /// The OID of that user
        userid: oid;
        /// The OID of that database
        datid: oid;
        /// Identifies the statement that runs, as in pg_stat_activity; NULL if none runs, or if you may not
        /// see it
        queryid: bigint;
        /// work file, shared file set (of several processes) or temp table
        filetype: text;
        /// The number of files
        files: bigint;
        /// Their size in bytes
        bytes: bigint;
        /// Milliseconds that the running statement has waited for all its temporary files, in all its
        /// processes
        wait_time: float8;
        /// The same in percent of the time that the statement has run
        percent: float8;
    } "
BEGIN ATOMIC
    SELECT f.pid, a.usename, coalesce(a.datname, d.datname), a.usesysid, coalesce(a.datid, f.datid),
           CASE WHEN a.state <> 'idle'::text THEN a.query_id END, f.filetype, f.files, f.bytes, t.wait_time,
           100::float8 * t.wait_time
               / nullif(pg_catalog.date_part('epoch', pg_catalog.clock_timestamp() - a.query_start) * 1000::float8, 0::float8)
      FROM _rowsource_tempfiles() f
           LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = f.pid
           LEFT JOIN pg_catalog.pg_database d ON d.oid = f.datid
           LEFT JOIN _rowsource_tempfile_times() t
             ON t.pid = a.pid AND t.query_start = a.query_start AND a.state <> 'idle'::text
     ORDER BY f.bytes DESC, f.pid, f.filetype;
END";
}
