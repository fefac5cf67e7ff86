//! Views and functions of what is measured now, written in SQL.

use crate::functions::surface::objects;

objects! {
    /// The targets of SQL traces. A session is traced if all conditions of a target hold that are not NULL
    VIEW rowsource_trace_targets TO pg_read_all_stats {
        /// Its number, for rowsource_trace_stop()
        target: int;
        /// Condition: the process of this session, until it ends
        pid: int;
        /// Condition: the session's application_name
        application_name: text;
        /// Condition: the session's user, or the role that SET ROLE has chosen
        role: name;
        /// Condition: the session's database
        database: text;
        /// Condition: the address of the client, or a network that contains it
        client_addr: inet;
        /// Only this statement is traced, with what it calls
        queryid: bigint;
        /// Whether each wait is listed
        waits: boolean;
        /// Whether the values of parameters are listed
        binds: boolean;
        /// Who has set it
        set_by: name;
        /// When it was set
        since: timestamptz;
        /// When it expires
        expires: timestamptz;
        /// How many sessions have found at their last look that it means them
        sessions: int;
    } "
    SELECT t.target, t.pid, t.application_name, pg_catalog.pg_get_userbyid(t.roleid) AS role,
           CASE WHEN t.dbid IS NOT NULL THEN coalesce(d.datname::text, 'unknown (OID=' || t.dbid::text || ')') END AS database,
           t.client_addr, t.queryid, t.waits, t.binds, pg_catalog.pg_get_userbyid(t.set_by) AS set_by, t.since, t.expires, t.sessions
      FROM rowsource_trace_targets() t LEFT JOIN pg_catalog.pg_database d ON d.oid = t.dbid";

    // Shows wrong estimates: nodes of which an execution had at least 1.1 times as many rows as the planner expected, or as few.
    // e_rows and a_rows: how many rows per start the planner expected, and how many there were, in the executions that say something
    // about the estimate. max_factor: the factor between both in the worst of them. The order: the node's own time, times the mean
    // of two logarithms: of the factor between e_rows and a_rows, and of max_factor. Nodes about which no execution says something
    // come last.
    /// Nodes that returned another number of rows than the planner expected, compared execution by execution:
    /// by a factor of 1.1 at least in one of them. The order: their own time and the size of the error. Nodes
    /// about which no execution says something come last
    VIEW rowsource_misestimates TO PUBLIC {
        datname; queryid; planid; node_id; operation; object_name;
        /// The rows per start that the planner expected in the executions that are compared; NULL if there are none
        e_rows: numeric;
        /// The rows per start that the node returned in the same executions; NULL if there are none
        a_rows: numeric;
        /// How many times too few or too many rows were expected in the worst of these executions
        max_factor: numeric;
        /// underestimated or overestimated; varying if wrong estimates of single executions cancel out. Or why no
        /// execution is compared: never started, may stop early (below a limit, a semi-join or EXISTS), not
        /// completed, starts not counted (sampfreq 3)
        verdict: text;
        self_time;
    } "
    SELECT coalesce(n.datname, n.dbid::text::name) AS datname, n.queryid, n.planid, n.node_id, n.operation, n.object_name,
           pg_catalog.trim_scale(pg_catalog.round(s.e_rows::numeric, 2)) AS e_rows,
           pg_catalog.trim_scale(pg_catalog.round(s.a_rows::numeric, 2)) AS a_rows,
           pg_catalog.round(m.max_factor::numeric, 1) AS max_factor,
           CASE WHEN f.ratio >= 1.1::float8 AND m.is_under THEN 'underestimated'::text
                WHEN f.ratio <= 1::float8 / 1.1::float8 AND NOT m.is_under THEN 'overestimated'::text
                WHEN m.max_factor IS NOT NULL THEN 'varying'::text
                WHEN n.starts IS NULL THEN 'starts not counted'::text
                WHEN n.starts = 0::bigint THEN 'never started'::text
                WHEN n.may_stop_early THEN 'may stop early'::text
                ELSE 'not completed'::text END AS verdict,
           pg_catalog.round(n.self_time::numeric, 3) AS self_time
      FROM pg_stat_rowsource n,
           LATERAL (SELECT greatest(n.max_underestimate, n.max_overestimate) AS max_factor,
                           coalesce(n.max_underestimate >= n.max_overestimate, n.max_overestimate IS NULL) AS is_under) m,
           LATERAL (SELECT n.estimated_rows / nullif(n.estimated_starts, 0::bigint)::float8 AS e_rows,
                           n.estimated_actual_rows::float8 / nullif(n.estimated_starts, 0::bigint)::float8 AS a_rows) s,
           LATERAL (SELECT CASE WHEN m.max_factor IS NOT NULL
                                THEN greatest(s.a_rows, 1::float8) / greatest(s.e_rows, 1::float8) END AS ratio) f
     WHERE CASE WHEN m.max_factor IS NOT NULL THEN m.max_factor >= 1.1::float8
                ELSE n.executions > 0::bigint AND n.plan_rows > 0::float8
                     AND n.operation NOT IN ('BitmapAnd'::text, 'BitmapOr'::text) END
     ORDER BY m.max_factor IS NULL,
              n.self_time * pg_catalog.ln(greatest(f.ratio, 1::float8 / f.ratio) * m.max_factor) DESC NULLS LAST,
              n.self_time DESC NULLS LAST";

    /// A row for each time that another plan of a query took over; those that cost the most come first
    VIEW rowsource_plan_flips TO PUBLIC {
        /// When the first execution of the new plan ended
        at: timestamptz;
        datname; queryid;
        /// The plan before
        from_planid: bigint;
        /// The plan that took over
        to_planid: bigint;
        /// Milliseconds of a typical execution of the plan before, since it took over itself: the geometric mean,
        /// which few very long executions hardly change
        typical_time_before: numeric;
        /// The same for the new plan, until another one took over
        typical_time_after: numeric;
        /// Executions of the new plan, until another one took over
        calls_after: bigint;
        /// Milliseconds that the executions of the new plan took longer in all than they would have taken before;
        /// negative if they took less. It is the difference of the mean times if that is more than chance, else
        /// that of the typical times
        extra_time: numeric;
        /// slower or faster: a typical execution is; slower or faster on average: only the mean is; or no
        /// difference that can be told. Tests at 95 % that need two executions of each plan
        verdict: text;
        /// The text of the statement; NULL if neither plan is stored any more
        query: text;
    } "
    SELECT f.at, coalesce(d.datname, f.dbid::text::name) AS datname, f.queryid, f.from_planid, f.to_planid,
           pg_catalog.round(f.typical_time_before::numeric, 3) AS typical_time_before,
           pg_catalog.round(f.typical_time_after::numeric, 3) AS typical_time_after,
           f.calls_after, pg_catalog.round(f.extra_time::numeric, 3) AS extra_time, f.verdict, f.query
      FROM rowsource_plan_flips() f
           LEFT JOIN pg_catalog.pg_database d ON d.oid = f.dbid
     ORDER BY f.extra_time DESC NULLS LAST, f.at DESC";

    /// Internal: a part of a whole in percent, with one digit. Everyone may call it, because the views call it
    /// with their reader's rights
    FUNCTION rowsource_percent(part: float8, whole: float8) TO PUBLIC
        "IMMUTABLE CALLED ON NULL INPUT PARALLEL SAFE" -> "numeric" {} "
RETURN pg_catalog.round((100::float8 * part / nullif(whole, 0::float8))::numeric, 1)";

    // The views for every day: 12 columns at most, milliseconds with three digits, the most expensive first: those for which clients waited
    // longest. A statement that clients sent and that also ran in functions is one row, so that user, database and queryid identify it. The
    // statements in
    // functions (pg_rowsource.track = all) have no part of all, because their time is part of the time of their callers. Each of
    // these callers has a row, also CALL and DO; if it was evicted, its time is in the row others.
    /// The statements for which clients waited longest: the plans of a statement together
    VIEW rowsource_top_statements TO PUBLIC {
        usename; datname; queryid;
        /// The number of different plans; NULL for others, which sums up the executions whose plans are not stored
        plans: bigint;
        /// Executions, including failed and cancelled ones
        calls: numeric;
        /// Milliseconds that clients waited for the executions: total_time, and parsing, planning, waits before the
        /// executor, and commit; NULL for a statement in a function. The order, or else total_time
        response_time: numeric;
        /// Milliseconds in which the executor ran (ExecutorRun and ExecutorFinish), as in pg_stat_statements;
        /// without parsing, planning and the executor's start. The sum of all executions
        total_time: numeric;
        /// Milliseconds of an execution on average
        mean_time: numeric;
        percent;
        /// Rows that the statement returned or changed
        rows: numeric;
        /// Blocks of tables, indexes and temporary tables read
        blks_read: numeric;
        /// The text of the statement; of several plans, that of the plan that ran last
        query: text;
    } "
    SELECT coalesce(s.usename, s.userid::text::name) AS usename, coalesce(s.datname, s.dbid::text::name) AS datname,
           s.queryid, s.plans, s.calls,
           pg_catalog.round(s.response_time::numeric, 3) AS response_time,
           pg_catalog.round(s.total_time::numeric, 3) AS total_time,
           pg_catalog.round((s.total_time / nullif(s.calls, 0::numeric)::float8)::numeric, 3) AS mean_time,
           rowsource_percent(s.response_time, pg_catalog.sum(s.response_time) OVER ()) AS percent,
           s.rows, s.blks_read, s.query
      FROM (SELECT usename, datname, userid, dbid, queryid,
                   CASE WHEN queryid IS NOT NULL THEN pg_catalog.count(DISTINCT (planid, plan_shape))
                        WHEN userid IS NOT NULL THEN pg_catalog.count(*) END AS plans,
                   pg_catalog.sum(calls) AS calls,
                   pg_catalog.sum(total_time) AS total_time,
                   pg_catalog.sum(coalesce(response_time, total_time)) FILTER (WHERE toplevel) AS response_time,
                   pg_catalog.sum(rows) AS rows,
                   pg_catalog.sum(shared_blks_read + local_blks_read) AS blks_read,
                   (pg_catalog.array_agg(query ORDER BY last_seen DESC NULLS LAST))[1] AS query
              FROM pg_stat_rowsource_plans
             GROUP BY usename, datname, userid, dbid, queryid) s
     ORDER BY coalesce(s.response_time, s.total_time) DESC NULLS LAST";

    /// Internal: what the daily views of nodes have in common
    VIEW rowsource_daily_nodes TO nobody {
        usename; datname; queryid; planid; node_id; operation; object_name; processes;
        /// Whether a client sent the statement; false if a function, procedure or trigger ran it
        toplevel: boolean;
        /// Milliseconds in the node itself, without the nodes below it
        self_time: float8;
        /// The part that the node itself has of the time of its statement
        percent_of_statement: float8;
        /// Blocks of tables, indexes and temporary tables that the node itself read
        blks_read: bigint;
        /// Milliseconds reading these blocks
        read_time: float8;
        /// Blocks of work files that the node itself wrote
        temp_written: bigint;
        /// Blocks of work files that the node itself read
        temp_read: bigint;
        /// Milliseconds writing and reading these blocks
        temp_time: float8;
        /// The sum of both
        temp_blks: bigint;
        /// Rows that the node returned
        rows: bigint;
        /// Rows that filters, join filters and rechecks of the node removed
        rows_removed: bigint;
        /// WAL records of the node itself
        wal_records: bigint;
        /// Full page images in the WAL of the node itself
        wal_fpi: bigint;
        /// Bytes of WAL of the node itself
        wal_bytes: bigint;
    } "
    SELECT coalesce(n.usename, n.userid::text::name) AS usename, coalesce(n.datname, n.dbid::text::name) AS datname,
           n.queryid, n.planid, n.node_id, n.operation, n.object_name,
           pg_catalog.round(n.processes::numeric, 1) AS processes, n.toplevel, n.self_time, n.percent_of_statement,
           n.self_blks_read AS blks_read, n.self_blk_read_time AS read_time,
           n.self_temp_blks_written AS temp_written, n.self_temp_blks_read AS temp_read, n.self_temp_blk_time AS temp_time,
           n.self_temp_blks_written + n.self_temp_blks_read AS temp_blks,
           n.rows, n.rows_removed, n.self_wal_records AS wal_records, n.self_wal_fpi AS wal_fpi, n.self_wal_bytes AS wal_bytes
      FROM pg_stat_rowsource n";

    /// The nodes that took the most time themselves
    VIEW rowsource_top_nodes TO PUBLIC {
        usename; datname; queryid; planid; node_id; operation; object_name; self_time;
        /// The part that the node itself has of the time of its statement. It can exceed 100 if several processes
        /// ran the node
        percent_of_statement: numeric;
        processes; percent;
    } "
    SELECT usename, datname, queryid, planid, node_id, operation, object_name,
           pg_catalog.round(self_time::numeric, 3) AS self_time,
           pg_catalog.round(percent_of_statement::numeric, 1) AS percent_of_statement,
           processes,
           rowsource_percent(CASE WHEN toplevel THEN self_time END,
                             pg_catalog.sum(self_time) FILTER (WHERE toplevel) OVER ()) AS percent
      FROM rowsource_daily_nodes n
     ORDER BY n.self_time DESC NULLS LAST";

    /// The nodes that themselves read the most blocks of tables, indexes and temporary tables
    VIEW rowsource_top_reads TO PUBLIC {
        usename; datname; queryid; planid; node_id; operation; object_name; processes;
        /// Blocks of tables, indexes and temporary tables that the node itself read
        blks_read: bigint;
        /// Milliseconds reading these blocks; without track_io_timing, the waits for reads
        read_time: numeric;
        percent;
    } "
    SELECT usename, datname, queryid, planid, node_id, operation, object_name, processes, blks_read,
           pg_catalog.round(nullif(read_time, 0::float8)::numeric, 3) AS read_time,
           rowsource_percent(CASE WHEN toplevel THEN blks_read::float8 END,
                             (pg_catalog.sum(blks_read) FILTER (WHERE toplevel) OVER ())::float8) AS percent
      FROM rowsource_daily_nodes n
     WHERE n.blks_read > 0::bigint
     ORDER BY n.blks_read DESC NULLS LAST";

    /// The nodes that themselves wrote and read the most blocks of work files
    VIEW rowsource_top_temp TO PUBLIC {
        usename; datname; queryid; planid; node_id; operation; processes;
        /// Blocks of work files that the node itself wrote
        blks_written: bigint;
        /// Blocks of work files that the node itself read
        blks_read: bigint;
        /// Milliseconds writing and reading these blocks; NULL if they were not timed
        temp_time: numeric;
        percent;
    } "
    SELECT usename, datname, queryid, planid, node_id, operation, processes,
           temp_written AS blks_written, temp_read AS blks_read,
           pg_catalog.round(nullif(temp_time, 0::float8)::numeric, 3) AS temp_time,
           rowsource_percent(CASE WHEN toplevel THEN temp_blks::float8 END,
                             (pg_catalog.sum(temp_blks) FILTER (WHERE toplevel) OVER ())::float8) AS percent
      FROM rowsource_daily_nodes n
     WHERE n.temp_blks > 0::bigint
     ORDER BY n.temp_blks DESC NULLS LAST";

    /// The nodes whose filters, join filters and rechecks removed the most rows
    VIEW rowsource_top_rows_removed TO PUBLIC {
        usename; datname; queryid; planid; node_id; operation; object_name;
        /// Rows that filters, join filters and rechecks of the node removed
        rows_removed: bigint;
        /// Rows that the node returned
        rows: bigint;
        self_time; percent;
    } "
    SELECT usename, datname, queryid, planid, node_id, operation, object_name, rows_removed, rows,
           pg_catalog.round(self_time::numeric, 3) AS self_time,
           rowsource_percent(CASE WHEN toplevel THEN rows_removed::float8 END,
                             (pg_catalog.sum(rows_removed) FILTER (WHERE toplevel) OVER ())::float8) AS percent
      FROM rowsource_daily_nodes n
     WHERE n.rows_removed > 0::bigint
     ORDER BY n.rows_removed DESC NULLS LAST";

    /// What statements waited for the longest, by node and wait event
    VIEW rowsource_top_waits TO PUBLIC {
        usename; datname; queryid; planid;
        /// The number of the node that waited, from 0 at the root, in the order of EXPLAIN; NULL outside of the
        /// nodes
        node_id: int;
        /// What the node does, as EXPLAIN calls it; outside the nodes: planning, commit, and sending rows to the
        /// client
        operation: text;
        object_name;
        /// The type and the event, as in pg_stat_activity. other: all other events of the plan
        wait_event: text;
        /// Waits, also those of parallel workers in this node
        waits: bigint;
        /// Milliseconds of these waits. The times of parallel processes add up
        total_time: numeric;
        percent;
    } "
    SELECT coalesce(w.usename, w.userid::text::name) AS usename, coalesce(w.datname, w.dbid::text::name) AS datname,
           w.queryid, w.planid, w.node_id,
           CASE WHEN w.queryid IS NOT NULL AND w.node_id IS NULL THEN 'outside the nodes'::text ELSE n.operation END AS operation,
           n.object_name, pg_catalog.concat_ws(':', w.wait_event_type, w.wait_event) AS wait_event, w.waits,
           pg_catalog.round(w.total_time::numeric, 3) AS total_time,
           rowsource_percent(CASE WHEN w.toplevel THEN w.total_time END,
                             pg_catalog.sum(w.total_time) FILTER (WHERE w.toplevel) OVER ()) AS percent
      FROM pg_stat_rowsource_waits w
           LEFT JOIN pg_stat_rowsource n
           ON n.userid = w.userid AND n.dbid = w.dbid AND n.queryid = w.queryid AND n.planid = w.planid
              AND n.plan_shape = w.plan_shape AND n.toplevel = w.toplevel AND n.node_id = w.node_id
     ORDER BY w.total_time DESC NULLS LAST";

    // The WAL of all measured statements, by what their nodes did and to which object. What a statement wrote outside its nodes has
    // no object but the statement: the rows of CREATE TABLE AS, for instance. Row others: statements whose plans are not stored.
    /// The WAL that measured statements wrote, by operation and object
    VIEW rowsource_wal TO PUBLIC {
        datname;
        /// What the node did, as EXPLAIN calls it; outside the nodes: the rest of a statement; others: statements
        /// whose plans are not stored
        operation: text;
        object_name;
        /// Whether a client sent the statement; false if a function, procedure or trigger ran it
        toplevel: boolean;
        /// WAL records
        wal_records: numeric;
        /// Full page images in the WAL
        wal_fpi: numeric;
        /// Bytes of WAL
        wal_bytes: numeric;
        percent;
        /// The text of the statement that wrote the WAL outside its nodes; NULL for nodes
        query: text;
    } "
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
     ORDER BY pg_catalog.sum(s.wal_bytes) DESC";

    /// Shows who uses temporary space now: a row per process and kind of file
    FUNCTION rowsource_temp_usage() TO PUBLIC
        "VOLATILE PARALLEL RESTRICTED" -> "SETOF record" {
        /// The process that made the files; NULL if it is not known
        pid: int;
        /// The user of its session
        usename: name;
        /// The database of its session, or of the temporary table
        datname: name;
        /// Identifies the statement that runs, as in pg_stat_activity; NULL if none runs, or if you may not see it
        queryid: bigint;
        /// work file, shared file set (of several processes) or temp table
        kind: text;
        /// The number of files
        files: bigint;
        /// Their size
        bytes: bigint;
        /// Milliseconds that the running statement has waited for all its temporary files, in all its processes
        temp_time: numeric;
        /// The same in percent of the time that the statement has run
        percent: numeric;
    } "
BEGIN ATOMIC
    SELECT f.pid, a.usename, coalesce(a.datname, d.datname), CASE WHEN a.state <> 'idle'::text THEN a.query_id END,
           f.kind, f.files, f.bytes, pg_catalog.round(t.temp_time::numeric, 3),
           rowsource_percent(t.temp_time,
                             pg_catalog.date_part('epoch', pg_catalog.clock_timestamp() - a.query_start) * 1000::float8)
      FROM rowsource_temp_files() f
           LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = f.pid
           LEFT JOIN pg_catalog.pg_database d ON d.oid = f.datid
           LEFT JOIN rowsource_temp_times() t
             ON t.pid = a.pid AND t.query_start = a.query_start AND a.state <> 'idle'::text
     ORDER BY f.bytes DESC, f.pid, f.kind;
END";
}
