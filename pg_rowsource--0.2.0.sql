/* pg_rowsource--0.2.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION pg_rowsource" to load this file. \quit

-- `make accept` writes this file: it has what the library declares in src/functions.

CREATE FUNCTION rowsource(
    OUT question text,
    OUT command text
) RETURNS SETOF record
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'rowsource_0_2';
COMMENT ON FUNCTION rowsource() IS 'The commands to begin with, with the ids of what the server has measured';

CREATE FUNCTION rowsource_display(
    queryid bigint DEFAULT NULL,
    planid bigint DEFAULT NULL,
    pid int DEFAULT NULL,
    pattern text DEFAULT NULL,
    format text DEFAULT 'ALLSTATS LAST'
) RETURNS SETOF text
LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'rowsource_display_0_2';
COMMENT ON FUNCTION rowsource_display(bigint, bigint, int, text, text) IS 'Shows a plan as a table, like DBMS_XPLAN. Without ids it shows this session''s last measured statement; with a pid, what that process runs now; with a pattern, the plan that took the most time of those whose statement contains it, in any letter case. In a pattern, % stands for any text';

CREATE FUNCTION rowsource_partitions(
    queryid bigint DEFAULT NULL,
    planid bigint DEFAULT NULL,
    OUT node_id int,
    OUT relid oid,
    OUT object_name text,
    OUT rows bigint,
    OUT blocks bigint,
    OUT total_time float8
) RETURNS SETOF record
LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'rowsource_partitions_0_2';
COMMENT ON FUNCTION rowsource_partitions(bigint, bigint) IS 'The partitions that took the longest in all executions of a plan: at most eight of each node that stands for partitions, and the rest as other. One that enters the list late counts from then on. Without ids, of the plan of this session''s last measured statement';

CREATE FUNCTION rowsource_explain(
    queryid bigint DEFAULT NULL,
    planid bigint DEFAULT NULL,
    which text DEFAULT 'last',
    format text DEFAULT 'text'
) RETURNS SETOF text
LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'rowsource_explain_0_2';
COMMENT ON FUNCTION rowsource_explain(bigint, bigint, text, text) IS 'Prints a plan as EXPLAIN (ANALYZE, BUFFERS, WAL) does. format: text, json, yaml or xml. which: last, mean, total, slowest, failed or cancelled';

CREATE FUNCTION rowsource_statement(
    queryid bigint DEFAULT NULL,
    planid bigint DEFAULT NULL,
    which text DEFAULT 'slowest'
) RETURNS SETOF text
LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'rowsource_statement_0_2';
COMMENT ON FUNCTION rowsource_statement(bigint, bigint, text) IS 'Prints the statement of a kept execution so that psql runs it again. which: slowest, failed or cancelled';

CREATE FUNCTION rowsource_statement_read_all() RETURNS void
LANGUAGE C VOLATILE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'rowsource_statement_read_all_0_2';
COMMENT ON FUNCTION rowsource_statement_read_all() IS 'Does nothing: who may execute it sees the parameters of all users'' statements in rowsource_statement(). For superusers, and for others after GRANT EXECUTE ON FUNCTION rowsource_statement_read_all() TO them';
REVOKE ALL ON FUNCTION rowsource_statement_read_all() FROM PUBLIC;

CREATE FUNCTION rowsource_executions(
    OUT userid oid,
    OUT datid oid,
    OUT queryid bigint,
    OUT planid bigint,
    OUT toplevel boolean,
    OUT pid int,
    OUT application_name text,
    OUT ended_at timestamptz,
    OUT outcome text,
    OUT total_time float8,
    OUT response_time float8,
    OUT before_time float8,
    OUT commit_time float8,
    OUT nodes jsonb,
    OUT parameters text[]
) RETURNS SETOF record
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'rowsource_executions_0_2';
COMMENT ON FUNCTION rowsource_executions() IS 'The rows of the view rowsource_executions';

CREATE VIEW rowsource_executions AS
    SELECT u.rolname AS usename, d.datname, s.*
      FROM rowsource_executions() s
           LEFT JOIN pg_catalog.pg_roles u ON u.oid = s.userid
           LEFT JOIN pg_catalog.pg_database d ON d.oid = s.datid;
COMMENT ON VIEW rowsource_executions IS 'The last executions that took long, failed or were cancelled, of all sessions';
COMMENT ON COLUMN rowsource_executions.usename IS 'The user who ran the statement; NULL if the user was dropped';
COMMENT ON COLUMN rowsource_executions.datname IS 'The database in which the statement ran; NULL if it was dropped';
COMMENT ON COLUMN rowsource_executions.userid IS 'The OID of the user who ran the statement';
COMMENT ON COLUMN rowsource_executions.datid IS 'The OID of the database in which the statement ran';
COMMENT ON COLUMN rowsource_executions.queryid IS 'Identifies the statement, as in pg_stat_statements and pg_stat_activity';
COMMENT ON COLUMN rowsource_executions.planid IS 'Identifies the plan by its nodes, objects and strategies';
COMMENT ON COLUMN rowsource_executions.toplevel IS 'Whether a client sent the statement; false if another statement ran it: in a function, procedure or trigger';
COMMENT ON COLUMN rowsource_executions.pid IS 'The process of the session';
COMMENT ON COLUMN rowsource_executions.application_name IS 'The session''s application_name';
COMMENT ON COLUMN rowsource_executions.ended_at IS 'When it ended';
COMMENT ON COLUMN rowsource_executions.outcome IS 'How it ended: completed, failed or cancelled';
COMMENT ON COLUMN rowsource_executions.total_time IS 'Milliseconds in which the executor ran, as in pg_stat_rowsource_plans';
COMMENT ON COLUMN rowsource_executions.response_time IS 'Milliseconds that its client waited for it: before the executor, in it, and for the commit, if that is known';
COMMENT ON COLUMN rowsource_executions.before_time IS 'Milliseconds before the executor';
COMMENT ON COLUMN rowsource_executions.commit_time IS 'Milliseconds of its commit, if the transaction ended with it and that is known';
COMMENT ON COLUMN rowsource_executions.nodes IS 'What each node did, by its node_id: starts, rows, total_time, self_time, blks_hit, blks_read, temp_blks. Of large plans, the first nodes';
COMMENT ON COLUMN rowsource_executions.parameters IS 'The values of its parameters as SQL, if they are kept, if you may see them, and in its database. ? is one that is not known';
GRANT SELECT ON rowsource_executions TO PUBLIC;

CREATE FUNCTION rowsource_compare(
    queryid bigint DEFAULT NULL,
    a text DEFAULT NULL,
    b text DEFAULT NULL,
    metric text DEFAULT 'self_time',
    format text DEFAULT 'text'
) RETURNS SETOF text
LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'rowsource_compare_0_2';
COMMENT ON FUNCTION rowsource_compare(bigint, text, text, text, text) IS 'Says why a statement takes longer than before, or less long: a sentence with the cause, and a tree with both plans. a and b are planids, mean, last, slowest, failed or cancelled, both (like ''42 slowest''), intervals (''14:00..14:05''), ''baseline'' and its name, or plans of other servers that rowsource_plan() wrote. By default, b is the plan of today, and a the one that it replaced, of this session''s last statement. With one interval or baseline, the other side is what ran since its end. If the plan of b took over from that of a, and had run before, only what both did around that change is compared, if the snapshots have it. metric: self_time, total_time, starts, rows, blks_hit, blks_read, blk_read_time, temp_blks or wait_time. format: text or json';

CREATE FUNCTION rowsource_plan(
    queryid bigint DEFAULT NULL,
    planid bigint DEFAULT NULL,
    which text DEFAULT 'mean'
) RETURNS SETOF text
LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'rowsource_plan_0_2';
COMMENT ON FUNCTION rowsource_plan(bigint, bigint, text) IS 'Writes a plan as JSON, so that rowsource_compare() compares it on another server. which: mean, total, last, slowest, failed or cancelled';

CREATE FUNCTION rowsource_folded(
    queryid bigint DEFAULT NULL,
    planid bigint DEFAULT NULL,
    which text DEFAULT 'last'
) RETURNS SETOF text
LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'rowsource_folded_0_2';
COMMENT ON FUNCTION rowsource_folded(bigint, bigint, text) IS 'Exports a plan as folded stacks, for flame graphs. which: last, mean, total, slowest, failed or cancelled';

CREATE FUNCTION rowsource_speedscope(
    queryid bigint DEFAULT NULL,
    planid bigint DEFAULT NULL,
    which text DEFAULT 'last'
) RETURNS SETOF text
LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'rowsource_speedscope_0_2';
COMMENT ON FUNCTION rowsource_speedscope(bigint, bigint, text) IS 'Exports a plan as a file of speedscope. which: last, mean, total, slowest, failed or cancelled';

CREATE FUNCTION rowsource_html(
    queryid bigint DEFAULT NULL,
    planid bigint DEFAULT NULL,
    which text DEFAULT 'last'
) RETURNS SETOF text
LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'rowsource_html_0_2';
COMMENT ON FUNCTION rowsource_html(bigint, bigint, text) IS 'Exports a plan as one page of HTML. which: last, mean, total, slowest, failed or cancelled';

CREATE FUNCTION rowsource_histogram_plot(
    queryid bigint DEFAULT NULL,
    planid bigint DEFAULT NULL,
    node_id int DEFAULT 0
) RETURNS SETOF text
LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'rowsource_histogram_plot_0_2';
COMMENT ON FUNCTION rowsource_histogram_plot(bigint, bigint, int) IS 'Plots how long the timed calls of a node took, in all executions';

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
LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'rowsource_logical_io_0_2';
COMMENT ON FUNCTION rowsource_logical_io(regclass, text, bigint, text, bigint) IS 'Gets blocks of a relation, and returns how long that took. fork: main, fsm, vm or init. pattern: sequential or random';

CREATE FUNCTION rowsource_call_trace(
    query text,
    max_calls int DEFAULT 10000,
    keep boolean DEFAULT false,
    OUT seq bigint,
    OUT at_us float8,
    OUT depth int,
    OUT event text,
    OUT node_id int,
    OUT operation text,
    OUT object_name text,
    OUT wait_event_type text,
    OUT wait_event text,
    OUT elapsed_us float8,
    OUT rows bigint,
    OUT line text
) RETURNS SETOF record
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'rowsource_call_trace_0_2';
COMMENT ON FUNCTION rowsource_call_trace(text, int, boolean) IS 'Runs a statement once, and lists the calls of its plan''s nodes and the waits inside them. Its rows are not returned, and what it changes is rolled back; with keep, the changes stay';

CREATE FUNCTION rowsource_trace_start(
    queryid bigint DEFAULT NULL,
    pid int DEFAULT NULL,
    application_name text DEFAULT NULL,
    usename text DEFAULT NULL,
    datname text DEFAULT NULL,
    client_addr inet DEFAULT NULL,
    with_waits boolean DEFAULT true,
    with_binds boolean DEFAULT false,
    expires_after interval DEFAULT NULL
) RETURNS SETOF text
LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'rowsource_trace_start_0_2';
COMMENT ON FUNCTION rowsource_trace_start(bigint, int, text, text, text, inet, boolean, boolean, interval) IS 'Begins the SQL trace of this session, and returns the name of its file; with conditions, that of all sessions for which they hold, and returns the number of the target. with_waits: list each wait. with_binds: list the values of parameters. expires_after: how long the target counts. For superusers, and for others after GRANT EXECUTE ON FUNCTION rowsource_trace_start(bigint, int, text, text, text, inet, boolean, boolean, interval) TO them';
REVOKE ALL ON FUNCTION rowsource_trace_start(bigint, int, text, text, text, inet, boolean, boolean, interval) FROM PUBLIC;

CREATE FUNCTION rowsource_trace_stop(
    target int DEFAULT NULL,
    all_targets boolean DEFAULT false
) RETURNS SETOF text
LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'rowsource_trace_stop_0_2';
COMMENT ON FUNCTION rowsource_trace_stop(int, boolean) IS 'Ends the SQL trace of this session, and returns the name of its last file; with target, removes this target, and with all_targets all of them. For superusers, and for others after GRANT EXECUTE ON FUNCTION rowsource_trace_stop(int, boolean) TO them';
REVOKE ALL ON FUNCTION rowsource_trace_stop(int, boolean) FROM PUBLIC;

CREATE FUNCTION rowsource_trace_targets(
    OUT target int,
    OUT pid int,
    OUT application_name text,
    OUT userid oid,
    OUT datid oid,
    OUT client_addr inet,
    OUT queryid bigint,
    OUT with_waits boolean,
    OUT with_binds boolean,
    OUT set_by_userid oid,
    OUT set_at timestamptz,
    OUT expires_at timestamptz,
    OUT sessions bigint
) RETURNS SETOF record
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'rowsource_trace_targets_0_2';
COMMENT ON FUNCTION rowsource_trace_targets() IS 'The rows of the view rowsource_trace_targets, with OIDs instead of names. For those with the privileges of pg_read_all_stats, and for others after GRANT pg_read_all_stats TO them';
REVOKE ALL ON FUNCTION rowsource_trace_targets() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION rowsource_trace_targets() TO pg_read_all_stats;

CREATE FUNCTION rowsource_trace_files(
    OUT file text,
    OUT pid int,
    OUT part int,
    OUT bytes bigint,
    OUT backend_start timestamptz,
    OUT modified_at timestamptz,
    OUT is_own boolean,
    OUT lost_lines bigint
) RETURNS SETOF record
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'rowsource_trace_files_0_2';
COMMENT ON FUNCTION rowsource_trace_files() IS 'The rows of the view rowsource_trace_files';

CREATE VIEW rowsource_trace_files AS
    SELECT * FROM rowsource_trace_files();
COMMENT ON VIEW rowsource_trace_files IS 'The files of SQL traces: all of them for those who may execute rowsource_trace_read_all(), else those of this session';
COMMENT ON COLUMN rowsource_trace_files.file IS 'The name of the file in the folder pgsql_tmp_rowsource_trace of the data directory';
COMMENT ON COLUMN rowsource_trace_files.pid IS 'The process that wrote it';
COMMENT ON COLUMN rowsource_trace_files.part IS 'The files of a session are numbered from 1 on';
COMMENT ON COLUMN rowsource_trace_files.bytes IS 'Its size in bytes';
COMMENT ON COLUMN rowsource_trace_files.backend_start IS 'When the process began';
COMMENT ON COLUMN rowsource_trace_files.modified_at IS 'When it was last written';
COMMENT ON COLUMN rowsource_trace_files.is_own IS 'Whether this session writes it';
COMMENT ON COLUMN rowsource_trace_files.lost_lines IS 'Lines of all files of this session that could not be written; NULL for other sessions';
GRANT SELECT ON rowsource_trace_files TO PUBLIC;

CREATE FUNCTION rowsource_trace_read_all() RETURNS void
LANGUAGE C VOLATILE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'rowsource_trace_read_all_0_2';
COMMENT ON FUNCTION rowsource_trace_read_all() IS 'Does nothing: who may execute it may read the trace files of all sessions. For superusers, and for others after GRANT EXECUTE ON FUNCTION rowsource_trace_read_all() TO them';
REVOKE ALL ON FUNCTION rowsource_trace_read_all() FROM PUBLIC;

CREATE FUNCTION rowsource_tkprof(
    file_names text DEFAULT NULL,
    pid int DEFAULT NULL,
    sort text DEFAULT NULL,
    statements int DEFAULT NULL
) RETURNS SETOF text
LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'rowsource_tkprof_0_2';
COMMENT ON FUNCTION rowsource_tkprof(text, int, text, int) IS 'Prints a report of trace files, like TKPROF. file_names: names separated by commas; pid: those of a process; without both, those of this session. sort: words like exeela';

CREATE FUNCTION rowsource_tkprof_store(
    sort text DEFAULT 'totela',
    statements int DEFAULT NULL
) RETURNS SETOF text
LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'rowsource_tkprof_store_0_2';
COMMENT ON FUNCTION rowsource_tkprof_store(text, int) IS 'Prints the report of rowsource_tkprof() from the statistics of the plans, also of statements that were not traced. A dash stands for what these do not have. Texts of others are hidden, as in pg_stat_rowsource';

CREATE FUNCTION rowsource_trace_events(
    file_names text DEFAULT NULL,
    pid int DEFAULT NULL
) RETURNS SETOF text
LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'rowsource_trace_events_0_2';
COMMENT ON FUNCTION rowsource_trace_events(text, int) IS 'Returns trace files as Trace Event JSON, which Perfetto and speedscope open';

CREATE FUNCTION rowsource_plot_buckets(
    bounds_us float8[],
    counts bigint[]
) RETURNS SETOF text
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'rowsource_plot_buckets_0_2';
COMMENT ON FUNCTION rowsource_plot_buckets(float8[], bigint[]) IS 'Plots a histogram: the lower bounds of its buckets in microseconds, and their counts';

CREATE FUNCTION rowsource_last(
    OUT queryid bigint,
    OUT planid bigint,
    OUT outcome text
) RETURNS SETOF record
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'rowsource_last_0_2';
COMMENT ON FUNCTION rowsource_last() IS 'Identifies this session''s last measured statement, and tells how it ended';

CREATE FUNCTION rowsource_clocks(
    readings int DEFAULT 1000000,
    OUT clock_source text,
    OUT usable boolean,
    OUT reason text,
    OUT auto boolean,
    OUT reading_ns float8,
    OUT resolution_ns float8,
    OUT backward_steps bigint,
    OUT largest_backward_step_ns float8
) RETURNS SETOF record
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'rowsource_clocks_0_2';
COMMENT ON FUNCTION rowsource_clocks(int) IS 'Measures each clock of this machine with this many readings: its cost, its resolution, and its steps back';

CREATE FUNCTION pg_stat_rowsource(
    OUT userid oid,
    OUT datid oid,
    OUT queryid bigint,
    OUT planid bigint,
    OUT toplevel boolean,
    OUT node_id int,
    OUT parent_id int,
    OUT depth int,
    OUT operation text,
    OUT object_name text,
    OUT plan_rows float8,
    OUT compared_executions bigint,
    OUT compared_starts bigint,
    OUT compared_plan_rows float8,
    OUT compared_rows bigint,
    OUT max_underestimate float8,
    OUT max_overestimate float8,
    OUT may_stop_early boolean,
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
    OUT percent_of_statement float8,
    OUT last_percent_of_statement float8,
    OUT processes float8,
    OUT last_processes float8,
    OUT time_error float8,
    OUT last_time_error float8,
    OUT self_time_error float8,
    OUT last_self_time_error float8,
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
    OUT last_disk_kb bigint,
    OUT p50_time float8,
    OUT p95_time float8,
    OUT p99_time float8,
    OUT self_blks_read bigint,
    OUT self_blk_read_time float8,
    OUT self_temp_blks_read bigint,
    OUT self_temp_blks_written bigint,
    OUT self_temp_blk_time float8,
    OUT self_wal_records bigint,
    OUT self_wal_fpi bigint,
    OUT self_wal_bytes bigint,
    OUT rows_removed bigint,
    OUT last_rows_removed bigint,
    OUT heap_fetches bigint,
    OUT last_heap_fetches bigint,
    OUT details jsonb,
    OUT last_details jsonb,
    OUT wait_time float8,
    OUT last_wait_time float8
) RETURNS SETOF record
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'pg_stat_rowsource_0_2';
COMMENT ON FUNCTION pg_stat_rowsource() IS 'The rows of the view pg_stat_rowsource';

CREATE VIEW pg_stat_rowsource AS
    SELECT u.rolname AS usename, d.datname, s.*
      FROM pg_stat_rowsource() s
           LEFT JOIN pg_catalog.pg_roles u ON u.oid = s.userid
           LEFT JOIN pg_catalog.pg_database d ON d.oid = s.datid;
COMMENT ON VIEW pg_stat_rowsource IS 'A row per node of each stored plan. Columns that begin with last_ are of the last execution, the others of all';
COMMENT ON COLUMN pg_stat_rowsource.usename IS 'The user who ran the statement; NULL if the user was dropped';
COMMENT ON COLUMN pg_stat_rowsource.datname IS 'The database in which the statement ran; NULL if it was dropped';
COMMENT ON COLUMN pg_stat_rowsource.userid IS 'The OID of the user who ran the statement';
COMMENT ON COLUMN pg_stat_rowsource.datid IS 'The OID of the database in which the statement ran';
COMMENT ON COLUMN pg_stat_rowsource.queryid IS 'Identifies the statement, as in pg_stat_statements and pg_stat_activity';
COMMENT ON COLUMN pg_stat_rowsource.planid IS 'Identifies the plan by its nodes, objects and strategies';
COMMENT ON COLUMN pg_stat_rowsource.toplevel IS 'Whether a client sent the statement; false if another statement ran it: in a function, procedure or trigger';
COMMENT ON COLUMN pg_stat_rowsource.node_id IS 'The number of the node in the plan, from 0 at the root, in the order of EXPLAIN';
COMMENT ON COLUMN pg_stat_rowsource.parent_id IS 'The number of the node above; NULL for the root';
COMMENT ON COLUMN pg_stat_rowsource.depth IS 'The number of nodes above';
COMMENT ON COLUMN pg_stat_rowsource.operation IS 'What the node does, as EXPLAIN calls it';
COMMENT ON COLUMN pg_stat_rowsource.object_name IS 'The index, table, function or other object that the node works on';
COMMENT ON COLUMN pg_stat_rowsource.plan_rows IS 'The rows per start that the planner expected: the mean of the executions that say something about the estimate; if there are none, the estimate of the last execution';
COMMENT ON COLUMN pg_stat_rowsource.compared_executions IS 'The executions that say something about the estimate: they completed, the node started, and nothing stopped it before its last row';
COMMENT ON COLUMN pg_stat_rowsource.compared_starts IS 'How often the node was started in these executions';
COMMENT ON COLUMN pg_stat_rowsource.compared_plan_rows IS 'The rows that the planner expected in these executions: the sum of the estimate times the starts of each';
COMMENT ON COLUMN pg_stat_rowsource.compared_rows IS 'The rows that the node returned in these executions';
COMMENT ON COLUMN pg_stat_rowsource.max_underestimate IS 'How many times more rows than expected one of these executions had at most; 1 if none had more';
COMMENT ON COLUMN pg_stat_rowsource.max_overestimate IS 'How many times fewer rows than expected one of these executions had at most; 1 if none had fewer';
COMMENT ON COLUMN pg_stat_rowsource.may_stop_early IS 'Whether a node above (a limit, a semi-join, EXISTS) may stop this one before its last row';
COMMENT ON COLUMN pg_stat_rowsource.executions IS 'The executions of the statement with this plan';
COMMENT ON COLUMN pg_stat_rowsource.starts IS 'How often the node was started, in all processes (the loops of EXPLAIN)';
COMMENT ON COLUMN pg_stat_rowsource.last_starts IS 'starts of the last execution';
COMMENT ON COLUMN pg_stat_rowsource.rows IS 'Rows that the node returned in all executions, in all processes';
COMMENT ON COLUMN pg_stat_rowsource.last_rows IS 'rows of the last execution';
COMMENT ON COLUMN pg_stat_rowsource.total_time IS 'Milliseconds in the node and all nodes below it, in all executions. The times of parallel processes add up';
COMMENT ON COLUMN pg_stat_rowsource.last_total_time IS 'total_time of the last execution';
COMMENT ON COLUMN pg_stat_rowsource.startup_time IS 'Milliseconds until the first row of each start, in all processes';
COMMENT ON COLUMN pg_stat_rowsource.last_startup_time IS 'startup_time of the last execution';
COMMENT ON COLUMN pg_stat_rowsource.self_time IS 'Milliseconds in the node itself, without the nodes below it. The times of parallel processes add up';
COMMENT ON COLUMN pg_stat_rowsource.last_self_time IS 'self_time of the last execution';
COMMENT ON COLUMN pg_stat_rowsource.percent_of_statement IS 'The part that the node itself has of the time of its statement, in percent. The times of parallel processes add up, so this can exceed 100 below a Gather';
COMMENT ON COLUMN pg_stat_rowsource.last_percent_of_statement IS 'percent_of_statement of the last execution';
COMMENT ON COLUMN pg_stat_rowsource.processes IS 'Processes that ran the node, on average: 1, or more below a Gather. NULL below a Gather that was never started, or without starts';
COMMENT ON COLUMN pg_stat_rowsource.last_processes IS 'processes of the last execution';
COMMENT ON COLUMN pg_stat_rowsource.time_error IS 'One standard error of total_time, in milliseconds; 0 if every call was timed';
COMMENT ON COLUMN pg_stat_rowsource.last_time_error IS 'time_error of the last execution';
COMMENT ON COLUMN pg_stat_rowsource.self_time_error IS 'One standard error of self_time, in milliseconds: that of the node and of all nodes right below it';
COMMENT ON COLUMN pg_stat_rowsource.last_self_time_error IS 'self_time_error of the last execution';
COMMENT ON COLUMN pg_stat_rowsource.timed_calls IS 'Calls of the node that were timed';
COMMENT ON COLUMN pg_stat_rowsource.last_timed_calls IS 'timed_calls of the last execution';
COMMENT ON COLUMN pg_stat_rowsource.timer_calls IS 'How often the clock was read for the node';
COMMENT ON COLUMN pg_stat_rowsource.last_timer_calls IS 'timer_calls of the last execution';
COMMENT ON COLUMN pg_stat_rowsource.clock_backsteps IS 'How often the clock stepped back';
COMMENT ON COLUMN pg_stat_rowsource.last_clock_backsteps IS 'clock_backsteps of the last execution';
COMMENT ON COLUMN pg_stat_rowsource.shared_blks_hit IS 'Blocks of tables and indexes found in shared buffers, in the node and all nodes below it';
COMMENT ON COLUMN pg_stat_rowsource.last_shared_blks_hit IS 'shared_blks_hit of the last execution';
COMMENT ON COLUMN pg_stat_rowsource.shared_blks_read IS 'Blocks of tables and indexes read, in the node and all nodes below it';
COMMENT ON COLUMN pg_stat_rowsource.last_shared_blks_read IS 'shared_blks_read of the last execution';
COMMENT ON COLUMN pg_stat_rowsource.shared_blks_dirtied IS 'Blocks of tables and indexes changed, in the node and all nodes below it';
COMMENT ON COLUMN pg_stat_rowsource.last_shared_blks_dirtied IS 'shared_blks_dirtied of the last execution';
COMMENT ON COLUMN pg_stat_rowsource.shared_blks_written IS 'Blocks of tables and indexes written, in the node and all nodes below it';
COMMENT ON COLUMN pg_stat_rowsource.last_shared_blks_written IS 'shared_blks_written of the last execution';
COMMENT ON COLUMN pg_stat_rowsource.local_blks_hit IS 'Blocks of temporary tables found in local buffers, in the node and all nodes below it';
COMMENT ON COLUMN pg_stat_rowsource.last_local_blks_hit IS 'local_blks_hit of the last execution';
COMMENT ON COLUMN pg_stat_rowsource.local_blks_read IS 'Blocks of temporary tables read, in the node and all nodes below it';
COMMENT ON COLUMN pg_stat_rowsource.last_local_blks_read IS 'local_blks_read of the last execution';
COMMENT ON COLUMN pg_stat_rowsource.local_blks_dirtied IS 'Blocks of temporary tables changed, in the node and all nodes below it';
COMMENT ON COLUMN pg_stat_rowsource.last_local_blks_dirtied IS 'local_blks_dirtied of the last execution';
COMMENT ON COLUMN pg_stat_rowsource.local_blks_written IS 'Blocks of temporary tables written, in the node and all nodes below it';
COMMENT ON COLUMN pg_stat_rowsource.last_local_blks_written IS 'local_blks_written of the last execution';
COMMENT ON COLUMN pg_stat_rowsource.temp_blks_read IS 'Blocks of work files (sorts, hashes, materialised results) read, in the node and all nodes below it';
COMMENT ON COLUMN pg_stat_rowsource.last_temp_blks_read IS 'temp_blks_read of the last execution';
COMMENT ON COLUMN pg_stat_rowsource.temp_blks_written IS 'Blocks of work files written, in the node and all nodes below it';
COMMENT ON COLUMN pg_stat_rowsource.last_temp_blks_written IS 'temp_blks_written of the last execution';
COMMENT ON COLUMN pg_stat_rowsource.shared_blk_read_time IS 'Milliseconds reading blocks of tables and indexes, in the node and all nodes below it; 0 without track_io_timing';
COMMENT ON COLUMN pg_stat_rowsource.last_shared_blk_read_time IS 'shared_blk_read_time of the last execution';
COMMENT ON COLUMN pg_stat_rowsource.shared_blk_write_time IS 'Milliseconds writing blocks of tables and indexes, in the node and all nodes below it; 0 without track_io_timing';
COMMENT ON COLUMN pg_stat_rowsource.last_shared_blk_write_time IS 'shared_blk_write_time of the last execution';
COMMENT ON COLUMN pg_stat_rowsource.local_blk_read_time IS 'Milliseconds reading blocks of temporary tables, in the node and all nodes below it';
COMMENT ON COLUMN pg_stat_rowsource.last_local_blk_read_time IS 'local_blk_read_time of the last execution';
COMMENT ON COLUMN pg_stat_rowsource.local_blk_write_time IS 'Milliseconds writing blocks of temporary tables, in the node and all nodes below it';
COMMENT ON COLUMN pg_stat_rowsource.last_local_blk_write_time IS 'local_blk_write_time of the last execution';
COMMENT ON COLUMN pg_stat_rowsource.temp_blk_read_time IS 'Milliseconds reading blocks of work files, in the node and all nodes below it';
COMMENT ON COLUMN pg_stat_rowsource.last_temp_blk_read_time IS 'temp_blk_read_time of the last execution';
COMMENT ON COLUMN pg_stat_rowsource.temp_blk_write_time IS 'Milliseconds writing blocks of work files, in the node and all nodes below it';
COMMENT ON COLUMN pg_stat_rowsource.last_temp_blk_write_time IS 'temp_blk_write_time of the last execution';
COMMENT ON COLUMN pg_stat_rowsource.wal_records IS 'WAL records, in the node and all nodes below it';
COMMENT ON COLUMN pg_stat_rowsource.last_wal_records IS 'wal_records of the last execution';
COMMENT ON COLUMN pg_stat_rowsource.wal_fpi IS 'Full page images in the WAL, in the node and all nodes below it';
COMMENT ON COLUMN pg_stat_rowsource.last_wal_fpi IS 'wal_fpi of the last execution';
COMMENT ON COLUMN pg_stat_rowsource.wal_bytes IS 'Bytes of WAL, in the node and all nodes below it';
COMMENT ON COLUMN pg_stat_rowsource.last_wal_bytes IS 'wal_bytes of the last execution';
COMMENT ON COLUMN pg_stat_rowsource.memory_kb IS 'The largest working memory of one process, in kB';
COMMENT ON COLUMN pg_stat_rowsource.last_memory_kb IS 'memory_kb of the last execution';
COMMENT ON COLUMN pg_stat_rowsource.disk_kb IS 'The largest disk space of the work area, in kB';
COMMENT ON COLUMN pg_stat_rowsource.last_disk_kb IS 'disk_kb of the last execution';
COMMENT ON COLUMN pg_stat_rowsource.p50_time IS 'Half of the timed calls of the node took at most these milliseconds, with all nodes below it; estimated from the histogram, at most twice or half as long; NULL if no call was timed';
COMMENT ON COLUMN pg_stat_rowsource.p95_time IS '95 % of the timed calls took at most these milliseconds';
COMMENT ON COLUMN pg_stat_rowsource.p99_time IS '99 % of the timed calls took at most these milliseconds';
COMMENT ON COLUMN pg_stat_rowsource.self_blks_read IS 'Blocks of tables, indexes and temporary tables that the node itself read';
COMMENT ON COLUMN pg_stat_rowsource.self_blk_read_time IS 'Milliseconds reading those blocks; without track_io_timing, the waits for reads';
COMMENT ON COLUMN pg_stat_rowsource.self_temp_blks_read IS 'Blocks of work files that the node itself read';
COMMENT ON COLUMN pg_stat_rowsource.self_temp_blks_written IS 'Blocks of work files that the node itself wrote';
COMMENT ON COLUMN pg_stat_rowsource.self_temp_blk_time IS 'Milliseconds reading and writing those blocks';
COMMENT ON COLUMN pg_stat_rowsource.self_wal_records IS 'WAL records of the node itself';
COMMENT ON COLUMN pg_stat_rowsource.self_wal_fpi IS 'Full page images in the WAL of the node itself';
COMMENT ON COLUMN pg_stat_rowsource.self_wal_bytes IS 'Bytes of WAL of the node itself';
COMMENT ON COLUMN pg_stat_rowsource.rows_removed IS 'Rows that filters, join filters and rechecks of the node removed; null if it has none';
COMMENT ON COLUMN pg_stat_rowsource.last_rows_removed IS 'rows_removed of the last execution';
COMMENT ON COLUMN pg_stat_rowsource.heap_fetches IS 'Rows of the table that an index-only scan had to visit, because their pages may hold invisible rows';
COMMENT ON COLUMN pg_stat_rowsource.last_heap_fetches IS 'heap_fetches of the last execution';
COMMENT ON COLUMN pg_stat_rowsource.details IS 'What else EXPLAIN (ANALYZE) knows of the node, by its keys: counts are sums over all processes and executions, other numbers the largest of any execution';
COMMENT ON COLUMN pg_stat_rowsource.last_details IS 'details of the last execution';
COMMENT ON COLUMN pg_stat_rowsource.wait_time IS 'Milliseconds that the node itself waited, in all its processes; a part of self_time. The rest of that is processor time, and time spent waiting for a processor. NULL if waits are not counted, or only rows are';
COMMENT ON COLUMN pg_stat_rowsource.last_wait_time IS 'wait_time of the last execution';
GRANT SELECT ON pg_stat_rowsource TO PUBLIC;

CREATE FUNCTION pg_stat_rowsource(
    from_at timestamptz,
    OUT userid oid,
    OUT datid oid,
    OUT queryid bigint,
    OUT planid bigint,
    OUT toplevel boolean,
    OUT node_id int,
    OUT parent_id int,
    OUT depth int,
    OUT operation text,
    OUT object_name text,
    OUT plan_rows float8,
    OUT compared_executions bigint,
    OUT compared_starts bigint,
    OUT compared_plan_rows float8,
    OUT compared_rows bigint,
    OUT max_underestimate float8,
    OUT max_overestimate float8,
    OUT may_stop_early boolean,
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
    OUT percent_of_statement float8,
    OUT last_percent_of_statement float8,
    OUT processes float8,
    OUT last_processes float8,
    OUT time_error float8,
    OUT last_time_error float8,
    OUT self_time_error float8,
    OUT last_self_time_error float8,
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
    OUT last_disk_kb bigint,
    OUT p50_time float8,
    OUT p95_time float8,
    OUT p99_time float8,
    OUT self_blks_read bigint,
    OUT self_blk_read_time float8,
    OUT self_temp_blks_read bigint,
    OUT self_temp_blks_written bigint,
    OUT self_temp_blk_time float8,
    OUT self_wal_records bigint,
    OUT self_wal_fpi bigint,
    OUT self_wal_bytes bigint,
    OUT rows_removed bigint,
    OUT last_rows_removed bigint,
    OUT heap_fetches bigint,
    OUT last_heap_fetches bigint,
    OUT details jsonb,
    OUT last_details jsonb,
    OUT wait_time float8,
    OUT last_wait_time float8
) RETURNS SETOF record
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'pg_stat_rowsource_since_0_2';
COMMENT ON FUNCTION pg_stat_rowsource(timestamptz) IS 'Those of the plans that ran from a moment on';

CREATE FUNCTION pg_stat_rowsource_plans(
    OUT userid oid,
    OUT datid oid,
    OUT queryid bigint,
    OUT planid bigint,
    OUT toplevel boolean,
    OUT query text,
    OUT textid bigint,
    OUT assigned_planid bigint,
    OUT gone_indexes text[],
    OUT plan_advice text,
    OUT calls bigint,
    OUT failed_calls bigint,
    OUT cancelled_calls bigint,
    OUT unfinished_calls bigint,
    OUT explain_calls bigint,
    OUT caller_queryid bigint,
    OUT total_time float8,
    OUT min_time float8,
    OUT max_time float8,
    OUT mean_time float8,
    OUT stddev_time float8,
    OUT p50_time float8,
    OUT p95_time float8,
    OUT p99_time float8,
    OUT plans bigint,
    OUT total_plan_time float8,
    OUT min_plan_time float8,
    OUT max_plan_time float8,
    OUT mean_plan_time float8,
    OUT generic_plan_calls bigint,
    OUT custom_plan_calls bigint,
    OUT rows bigint,
    OUT shared_blks_hit bigint,
    OUT shared_blks_read bigint,
    OUT shared_blks_dirtied bigint,
    OUT shared_blks_written bigint,
    OUT local_blks_hit bigint,
    OUT local_blks_read bigint,
    OUT local_blks_dirtied bigint,
    OUT local_blks_written bigint,
    OUT temp_blks_read bigint,
    OUT temp_blks_written bigint,
    OUT shared_blk_read_time float8,
    OUT shared_blk_write_time float8,
    OUT local_blk_read_time float8,
    OUT local_blk_write_time float8,
    OUT temp_blk_read_time float8,
    OUT temp_blk_write_time float8,
    OUT wal_records bigint,
    OUT wal_fpi bigint,
    OUT wal_bytes bigint,
    OUT last_time float8,
    OUT last_outcome text,
    OUT first_seen_at timestamptz,
    OUT last_seen_at timestamptz,
    OUT sampfreq int,
    OUT clock_source text,
    OUT workers_planned bigint,
    OUT workers_launched bigint,
    OUT details jsonb,
    OUT wait_time float8,
    OUT client_time float8,
    OUT response_time float8,
    OUT max_response_time float8,
    OUT before_time float8,
    OUT commit_time float8
) RETURNS SETOF record
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'pg_stat_rowsource_plans_0_2';
COMMENT ON FUNCTION pg_stat_rowsource_plans() IS 'The rows of the view pg_stat_rowsource_plans';

CREATE VIEW pg_stat_rowsource_plans AS
    SELECT u.rolname AS usename, d.datname, s.*
      FROM pg_stat_rowsource_plans() s
           LEFT JOIN pg_catalog.pg_roles u ON u.oid = s.userid
           LEFT JOIN pg_catalog.pg_database d ON d.oid = s.datid;
COMMENT ON VIEW pg_stat_rowsource_plans IS 'A row per stored plan, with the sums of all its executions. The query others (one or two rows per database) is the sum of the executions whose plans are not stored: a row for client statements, and one for statements in functions';
COMMENT ON COLUMN pg_stat_rowsource_plans.usename IS 'The user who ran the statement; NULL if the user was dropped';
COMMENT ON COLUMN pg_stat_rowsource_plans.datname IS 'The database in which the statement ran; NULL if it was dropped';
COMMENT ON COLUMN pg_stat_rowsource_plans.userid IS 'The OID of the user who ran the statement';
COMMENT ON COLUMN pg_stat_rowsource_plans.datid IS 'The OID of the database in which the statement ran';
COMMENT ON COLUMN pg_stat_rowsource_plans.queryid IS 'Identifies the statement, as in pg_stat_statements and pg_stat_activity';
COMMENT ON COLUMN pg_stat_rowsource_plans.planid IS 'Identifies the plan by its nodes, objects and strategies';
COMMENT ON COLUMN pg_stat_rowsource_plans.toplevel IS 'Whether a client sent the statement; false if another statement ran it: in a function, procedure or trigger';
COMMENT ON COLUMN pg_stat_rowsource_plans.query IS 'The text of the statement';
COMMENT ON COLUMN pg_stat_rowsource_plans.textid IS 'Identifies the statement by its text without constants, spaces and comments: the same on each server, where queryids differ';
COMMENT ON COLUMN pg_stat_rowsource_plans.assigned_planid IS 'The planid that PostgreSQL or another extension gave the plan, from 18 on';
COMMENT ON COLUMN pg_stat_rowsource_plans.gone_indexes IS 'The indexes that the query''s plan before used and that were gone when this plan was first seen, at most 8; NULL if none';
COMMENT ON COLUMN pg_stat_rowsource_plans.plan_advice IS 'What makes the planner choose this plan again, as a value of pg_plan_advice.advice: from 19 on, if pg_plan_advice.always_store_advice_details was on when the plan was first seen';
COMMENT ON COLUMN pg_stat_rowsource_plans.calls IS 'Executions, including failed and cancelled ones';
COMMENT ON COLUMN pg_stat_rowsource_plans.failed_calls IS 'Executions that an error ended';
COMMENT ON COLUMN pg_stat_rowsource_plans.cancelled_calls IS 'Executions that a cancel request or a timeout ended';
COMMENT ON COLUMN pg_stat_rowsource_plans.unfinished_calls IS 'Executions that ended without an error before their last row: the cursor was closed early, or the caller needed only some rows, as SELECT INTO of PL/pgSQL does';
COMMENT ON COLUMN pg_stat_rowsource_plans.explain_calls IS 'Executions by EXPLAIN (ANALYZE). No other column includes them';
COMMENT ON COLUMN pg_stat_rowsource_plans.caller_queryid IS 'The queryid of the statement that called the last execution: the function''s, or that of CALL or DO; NULL for a statement that a client sent, or if the caller is not known';
COMMENT ON COLUMN pg_stat_rowsource_plans.total_time IS 'Milliseconds in which the executor ran (ExecutorRun and ExecutorFinish), as in pg_stat_statements; without parsing, planning and the executor''s start. The sum of all executions';
COMMENT ON COLUMN pg_stat_rowsource_plans.min_time IS 'Milliseconds of the shortest execution';
COMMENT ON COLUMN pg_stat_rowsource_plans.max_time IS 'Milliseconds of the longest execution';
COMMENT ON COLUMN pg_stat_rowsource_plans.mean_time IS 'Milliseconds of an execution on average';
COMMENT ON COLUMN pg_stat_rowsource_plans.stddev_time IS 'Standard deviation of the milliseconds of an execution';
COMMENT ON COLUMN pg_stat_rowsource_plans.p50_time IS 'Half of the executions took at most these milliseconds; estimated from a histogram, less than a quarter off';
COMMENT ON COLUMN pg_stat_rowsource_plans.p95_time IS '95 % of the executions took at most these milliseconds';
COMMENT ON COLUMN pg_stat_rowsource_plans.p99_time IS '99 % of the executions took at most these milliseconds';
COMMENT ON COLUMN pg_stat_rowsource_plans.plans IS 'How often the planner made a plan for these executions';
COMMENT ON COLUMN pg_stat_rowsource_plans.total_plan_time IS 'Milliseconds of all plannings';
COMMENT ON COLUMN pg_stat_rowsource_plans.min_plan_time IS 'Milliseconds of the shortest planning';
COMMENT ON COLUMN pg_stat_rowsource_plans.max_plan_time IS 'Milliseconds of the longest planning';
COMMENT ON COLUMN pg_stat_rowsource_plans.mean_plan_time IS 'Milliseconds of a planning on average';
COMMENT ON COLUMN pg_stat_rowsource_plans.generic_plan_calls IS 'Executions with a generic plan of a prepared statement or of a function: one for all parameters';
COMMENT ON COLUMN pg_stat_rowsource_plans.custom_plan_calls IS 'Executions with a custom plan of a prepared statement or of a function: one that was made for the parameters of the execution';
COMMENT ON COLUMN pg_stat_rowsource_plans.rows IS 'Rows that the statement returned or changed';
COMMENT ON COLUMN pg_stat_rowsource_plans.shared_blks_hit IS 'Blocks of tables and indexes found in shared buffers';
COMMENT ON COLUMN pg_stat_rowsource_plans.shared_blks_read IS 'Blocks of tables and indexes read';
COMMENT ON COLUMN pg_stat_rowsource_plans.shared_blks_dirtied IS 'Blocks of tables and indexes changed';
COMMENT ON COLUMN pg_stat_rowsource_plans.shared_blks_written IS 'Blocks of tables and indexes written';
COMMENT ON COLUMN pg_stat_rowsource_plans.local_blks_hit IS 'Blocks of temporary tables found in local buffers';
COMMENT ON COLUMN pg_stat_rowsource_plans.local_blks_read IS 'Blocks of temporary tables read';
COMMENT ON COLUMN pg_stat_rowsource_plans.local_blks_dirtied IS 'Blocks of temporary tables changed';
COMMENT ON COLUMN pg_stat_rowsource_plans.local_blks_written IS 'Blocks of temporary tables written';
COMMENT ON COLUMN pg_stat_rowsource_plans.temp_blks_read IS 'Blocks of work files (sorts, hashes, materialised results) read';
COMMENT ON COLUMN pg_stat_rowsource_plans.temp_blks_written IS 'Blocks of work files written';
COMMENT ON COLUMN pg_stat_rowsource_plans.shared_blk_read_time IS 'Milliseconds reading blocks of tables and indexes; 0 without track_io_timing';
COMMENT ON COLUMN pg_stat_rowsource_plans.shared_blk_write_time IS 'Milliseconds writing blocks of tables and indexes; 0 without track_io_timing';
COMMENT ON COLUMN pg_stat_rowsource_plans.local_blk_read_time IS 'Milliseconds reading blocks of temporary tables';
COMMENT ON COLUMN pg_stat_rowsource_plans.local_blk_write_time IS 'Milliseconds writing blocks of temporary tables';
COMMENT ON COLUMN pg_stat_rowsource_plans.temp_blk_read_time IS 'Milliseconds reading blocks of work files';
COMMENT ON COLUMN pg_stat_rowsource_plans.temp_blk_write_time IS 'Milliseconds writing blocks of work files';
COMMENT ON COLUMN pg_stat_rowsource_plans.wal_records IS 'WAL records';
COMMENT ON COLUMN pg_stat_rowsource_plans.wal_fpi IS 'Full page images in the WAL';
COMMENT ON COLUMN pg_stat_rowsource_plans.wal_bytes IS 'Bytes of WAL';
COMMENT ON COLUMN pg_stat_rowsource_plans.last_time IS 'Milliseconds of the last execution';
COMMENT ON COLUMN pg_stat_rowsource_plans.last_outcome IS 'How the last execution ended: completed, failed or cancelled';
COMMENT ON COLUMN pg_stat_rowsource_plans.first_seen_at IS 'When the first execution ended';
COMMENT ON COLUMN pg_stat_rowsource_plans.last_seen_at IS 'When the last execution ended';
COMMENT ON COLUMN pg_stat_rowsource_plans.sampfreq IS 'The sampling frequency of the last execution, see pg_rowsource.sampfreq';
COMMENT ON COLUMN pg_stat_rowsource_plans.clock_source IS 'The clock of the last execution; core if PostgreSQL itself measured';
COMMENT ON COLUMN pg_stat_rowsource_plans.workers_planned IS 'Parallel workers that the plan asked for, in all executions';
COMMENT ON COLUMN pg_stat_rowsource_plans.workers_launched IS 'Parallel workers that were launched';
COMMENT ON COLUMN pg_stat_rowsource_plans.details IS 'Triggers with calls and milliseconds, what just-in-time compilation did, and the blocks that planning used, in all executions; null if nothing of these';
COMMENT ON COLUMN pg_stat_rowsource_plans.wait_time IS 'Milliseconds that the statement''s own process waited while it ran; a part of total_time. Not planning and commit, nor parallel workers: pg_stat_rowsource_waits shows these too. NULL if waits are not counted';
COMMENT ON COLUMN pg_stat_rowsource_plans.client_time IS 'Milliseconds of wait_time in which it waited for the client: to send rows to it, for example';
COMMENT ON COLUMN pg_stat_rowsource_plans.response_time IS 'Milliseconds that clients waited for the executions: before_time, total_time and commit_time; without the way of messages. NULL for statements in functions';
COMMENT ON COLUMN pg_stat_rowsource_plans.max_response_time IS 'Milliseconds of the response time of the execution for which a client waited longest';
COMMENT ON COLUMN pg_stat_rowsource_plans.before_time IS 'Milliseconds from the arrival of the clients'' messages to the executor: parsing, planning, binding, the executor''s start, and waits for locks meanwhile';
COMMENT ON COLUMN pg_stat_rowsource_plans.commit_time IS 'Milliseconds from the end of the executions to that of their transactions, where these ended with them: deferred triggers, and waits for the disk and for standbys. The commit of a transaction block belongs to COMMIT. It is known when its session sends the next statement, or ends';
GRANT SELECT ON pg_stat_rowsource_plans TO PUBLIC;

CREATE FUNCTION pg_stat_rowsource_plans(
    from_at timestamptz,
    OUT userid oid,
    OUT datid oid,
    OUT queryid bigint,
    OUT planid bigint,
    OUT toplevel boolean,
    OUT query text,
    OUT textid bigint,
    OUT assigned_planid bigint,
    OUT gone_indexes text[],
    OUT plan_advice text,
    OUT calls bigint,
    OUT failed_calls bigint,
    OUT cancelled_calls bigint,
    OUT unfinished_calls bigint,
    OUT explain_calls bigint,
    OUT caller_queryid bigint,
    OUT total_time float8,
    OUT min_time float8,
    OUT max_time float8,
    OUT mean_time float8,
    OUT stddev_time float8,
    OUT p50_time float8,
    OUT p95_time float8,
    OUT p99_time float8,
    OUT plans bigint,
    OUT total_plan_time float8,
    OUT min_plan_time float8,
    OUT max_plan_time float8,
    OUT mean_plan_time float8,
    OUT generic_plan_calls bigint,
    OUT custom_plan_calls bigint,
    OUT rows bigint,
    OUT shared_blks_hit bigint,
    OUT shared_blks_read bigint,
    OUT shared_blks_dirtied bigint,
    OUT shared_blks_written bigint,
    OUT local_blks_hit bigint,
    OUT local_blks_read bigint,
    OUT local_blks_dirtied bigint,
    OUT local_blks_written bigint,
    OUT temp_blks_read bigint,
    OUT temp_blks_written bigint,
    OUT shared_blk_read_time float8,
    OUT shared_blk_write_time float8,
    OUT local_blk_read_time float8,
    OUT local_blk_write_time float8,
    OUT temp_blk_read_time float8,
    OUT temp_blk_write_time float8,
    OUT wal_records bigint,
    OUT wal_fpi bigint,
    OUT wal_bytes bigint,
    OUT last_time float8,
    OUT last_outcome text,
    OUT first_seen_at timestamptz,
    OUT last_seen_at timestamptz,
    OUT sampfreq int,
    OUT clock_source text,
    OUT workers_planned bigint,
    OUT workers_launched bigint,
    OUT details jsonb,
    OUT wait_time float8,
    OUT client_time float8,
    OUT response_time float8,
    OUT max_response_time float8,
    OUT before_time float8,
    OUT commit_time float8
) RETURNS SETOF record
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'pg_stat_rowsource_plans_since_0_2';
COMMENT ON FUNCTION pg_stat_rowsource_plans(timestamptz) IS 'Those of the plans that ran from a moment on';

CREATE FUNCTION pg_stat_rowsource_histogram(
    OUT userid oid,
    OUT datid oid,
    OUT queryid bigint,
    OUT planid bigint,
    OUT toplevel boolean,
    OUT node_id int,
    OUT did_read boolean,
    OUT from_us float8,
    OUT to_us float8,
    OUT timed_calls bigint
) RETURNS SETOF record
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'pg_stat_rowsource_histogram_0_2';
COMMENT ON FUNCTION pg_stat_rowsource_histogram() IS 'The rows of the view pg_stat_rowsource_histogram';

CREATE VIEW pg_stat_rowsource_histogram AS
    SELECT u.rolname AS usename, d.datname, s.*
      FROM pg_stat_rowsource_histogram() s
           LEFT JOIN pg_catalog.pg_roles u ON u.oid = s.userid
           LEFT JOIN pg_catalog.pg_database d ON d.oid = s.datid;
COMMENT ON VIEW pg_stat_rowsource_histogram IS 'How long the timed calls of each node took, in powers of two';
COMMENT ON COLUMN pg_stat_rowsource_histogram.usename IS 'The user who ran the statement; NULL if the user was dropped';
COMMENT ON COLUMN pg_stat_rowsource_histogram.datname IS 'The database in which the statement ran; NULL if it was dropped';
COMMENT ON COLUMN pg_stat_rowsource_histogram.userid IS 'The OID of the user who ran the statement';
COMMENT ON COLUMN pg_stat_rowsource_histogram.datid IS 'The OID of the database in which the statement ran';
COMMENT ON COLUMN pg_stat_rowsource_histogram.queryid IS 'Identifies the statement, as in pg_stat_statements and pg_stat_activity';
COMMENT ON COLUMN pg_stat_rowsource_histogram.planid IS 'Identifies the plan by its nodes, objects and strategies';
COMMENT ON COLUMN pg_stat_rowsource_histogram.toplevel IS 'Whether a client sent the statement; false if another statement ran it: in a function, procedure or trigger';
COMMENT ON COLUMN pg_stat_rowsource_histogram.node_id IS 'The number of the node in the plan, from 0 at the root, in the order of EXPLAIN';
COMMENT ON COLUMN pg_stat_rowsource_histogram.did_read IS 'Whether these calls read a block';
COMMENT ON COLUMN pg_stat_rowsource_histogram.from_us IS 'The lower bound of the bucket, in microseconds';
COMMENT ON COLUMN pg_stat_rowsource_histogram.to_us IS 'The upper bound of the bucket, in microseconds; NULL if it has none';
COMMENT ON COLUMN pg_stat_rowsource_histogram.timed_calls IS 'Timed calls of the node that took this long';
GRANT SELECT ON pg_stat_rowsource_histogram TO PUBLIC;

CREATE FUNCTION rowsource_plan_flips(
    OUT changed_at timestamptz,
    OUT userid oid,
    OUT datid oid,
    OUT queryid bigint,
    OUT toplevel boolean,
    OUT from_planid bigint,
    OUT to_planid bigint,
    OUT calls_before bigint,
    OUT mean_time_before float8,
    OUT stderr_before float8,
    OUT typical_time_before float8,
    OUT calls_after bigint,
    OUT mean_time_after float8,
    OUT stderr_after float8,
    OUT typical_time_after float8,
    OUT extra_time float8,
    OUT verdict text,
    OUT query text,
    OUT gone_indexes text[]
) RETURNS SETOF record
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'rowsource_plan_flips_0_2';
COMMENT ON FUNCTION rowsource_plan_flips() IS 'The changes of plans, with the mean times, their standard errors, and the typical times (geometric means)';

CREATE VIEW rowsource_plan_flips AS
    SELECT u.rolname AS usename, d.datname, s.*
      FROM rowsource_plan_flips() s
           LEFT JOIN pg_catalog.pg_roles u ON u.oid = s.userid
           LEFT JOIN pg_catalog.pg_database d ON d.oid = s.datid
     ORDER BY s.extra_time DESC NULLS LAST, s.changed_at DESC;
COMMENT ON VIEW rowsource_plan_flips IS 'A row for each time that another plan of a query took over; those that cost the most come first';
COMMENT ON COLUMN rowsource_plan_flips.usename IS 'The user who ran the statement; NULL if the user was dropped';
COMMENT ON COLUMN rowsource_plan_flips.datname IS 'The database in which the statement ran; NULL if it was dropped';
COMMENT ON COLUMN rowsource_plan_flips.changed_at IS 'When the first execution of the new plan ended';
COMMENT ON COLUMN rowsource_plan_flips.userid IS 'The OID of the user who ran the statement';
COMMENT ON COLUMN rowsource_plan_flips.datid IS 'The OID of the database in which the statement ran';
COMMENT ON COLUMN rowsource_plan_flips.queryid IS 'Identifies the statement, as in pg_stat_statements and pg_stat_activity';
COMMENT ON COLUMN rowsource_plan_flips.toplevel IS 'Whether a client sent the statement; false if another statement ran it';
COMMENT ON COLUMN rowsource_plan_flips.from_planid IS 'The plan before';
COMMENT ON COLUMN rowsource_plan_flips.to_planid IS 'The plan that took over';
COMMENT ON COLUMN rowsource_plan_flips.calls_before IS 'Executions of the plan before, since it took over itself';
COMMENT ON COLUMN rowsource_plan_flips.mean_time_before IS 'Milliseconds of these executions on average';
COMMENT ON COLUMN rowsource_plan_flips.stderr_before IS 'The standard error of that mean, in milliseconds';
COMMENT ON COLUMN rowsource_plan_flips.typical_time_before IS 'Milliseconds of a typical execution of the plan before, since it took over itself, without waits for locks, LWLocks, clients and timeouts: the geometric mean, which few very long executions hardly change';
COMMENT ON COLUMN rowsource_plan_flips.calls_after IS 'Executions of the new plan, until another one took over';
COMMENT ON COLUMN rowsource_plan_flips.mean_time_after IS 'Milliseconds of these executions on average';
COMMENT ON COLUMN rowsource_plan_flips.stderr_after IS 'The standard error of that mean, in milliseconds';
COMMENT ON COLUMN rowsource_plan_flips.typical_time_after IS 'Milliseconds of a typical execution of the new plan, until another one took over, without these waits';
COMMENT ON COLUMN rowsource_plan_flips.extra_time IS 'Milliseconds that the executions of the new plan took longer in all than they would have taken before; negative if they took less. It is the difference of the mean times if that is more than chance, else that of the typical times. NULL if the query went back to an earlier plan that takes less';
COMMENT ON COLUMN rowsource_plan_flips.verdict IS 'slower: a regression, by the rules of rowsource_regressions(); faster: the same, with the plans exchanged; or no difference that can be told';
COMMENT ON COLUMN rowsource_plan_flips.query IS 'The text of the statement; NULL if neither plan is stored any more';
COMMENT ON COLUMN rowsource_plan_flips.gone_indexes IS 'The indexes that the query''s plan before used and that were gone when the new plan was first seen; NULL if none, or if the new plan is not stored any more';
GRANT SELECT ON rowsource_plan_flips TO PUBLIC;

CREATE FUNCTION rowsource_regressions(
    from_time text DEFAULT NULL,
    to_time text DEFAULT NULL,
    OUT id bigint,
    OUT state text,
    OUT changed_at timestamptz,
    OUT opened_at timestamptz,
    OUT closed_at timestamptz,
    OUT closing_reason text,
    OUT userid oid,
    OUT datid oid,
    OUT queryid bigint,
    OUT toplevel boolean,
    OUT from_planid bigint,
    OUT to_planid bigint,
    OUT ratio float8,
    OUT extra_time float8,
    OUT calls_before bigint,
    OUT mean_time_before float8,
    OUT mean_busy_time_before float8,
    OUT calls_after bigint,
    OUT mean_time_after float8,
    OUT mean_busy_time_after float8,
    OUT basis text,
    OUT chance float8,
    OUT cause text,
    OUT command text,
    OUT advice_command text,
    OUT dismissal_ends_at timestamptz,
    OUT query text
) RETURNS SETOF record
LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'rowsource_regressions_0_2';
COMMENT ON FUNCTION rowsource_regressions(text, text) IS 'The statements that became slower and were so in an interval, because another plan took over or with the same plan; without arguments, all that are known. The background worker looks each minute';

CREATE FUNCTION rowsource_regressions(
    from_time anycompatible,
    to_time anycompatible DEFAULT NULL,
    OUT id bigint,
    OUT state text,
    OUT changed_at timestamptz,
    OUT opened_at timestamptz,
    OUT closed_at timestamptz,
    OUT closing_reason text,
    OUT userid oid,
    OUT datid oid,
    OUT queryid bigint,
    OUT toplevel boolean,
    OUT from_planid bigint,
    OUT to_planid bigint,
    OUT ratio float8,
    OUT extra_time float8,
    OUT calls_before bigint,
    OUT mean_time_before float8,
    OUT mean_busy_time_before float8,
    OUT calls_after bigint,
    OUT mean_time_after float8,
    OUT mean_busy_time_after float8,
    OUT basis text,
    OUT chance float8,
    OUT cause text,
    OUT command text,
    OUT advice_command text,
    OUT dismissal_ends_at timestamptz,
    OUT query text
) RETURNS SETOF record
LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'rowsource_regressions_between_0_2';
COMMENT ON FUNCTION rowsource_regressions(anycompatible, anycompatible) IS 'The same for moments that are no texts, like now() - interval ''5 min'' or interval ''5 min''';

CREATE FUNCTION rowsource_dismiss(
    id bigint,
    until timestamptz DEFAULT NULL
) RETURNS void
LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'rowsource_dismiss_0_2';
COMMENT ON FUNCTION rowsource_dismiss(bigint, timestamptz) IS 'Lets the report leave out a regression until a moment; without one, for good';

CREATE FUNCTION rowsource_judge(
    at timestamptz DEFAULT NULL
) RETURNS void
LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'rowsource_judge_0_2';
COMMENT ON FUNCTION rowsource_judge(timestamptz) IS 'Internal: lets the background worker look for regressions now. With a moment, as if it were that one, and from then on only when this is called';
REVOKE ALL ON FUNCTION rowsource_judge(timestamptz) FROM PUBLIC;

CREATE FUNCTION rowsource_info(
    OUT plans bigint,
    OUT max_plans int,
    OUT bytes bigint,
    OUT max_bytes bigint,
    OUT evictions bigint,
    OUT incomplete_at timestamptz,
    OUT refused bigint,
    OUT truncated bigint,
    OUT stats_reset timestamptz,
    OUT disabled_at timestamptz,
    OUT sessions_without_beats bigint,
    OUT without_beats_because text,
    OUT snapshots_removed bigint,
    OUT snapshot_datname text,
    OUT snapshots_taken bigint,
    OUT snapshots_refused bigint,
    OUT snapshots_failed bigint,
    OUT last_snapshot_at timestamptz,
    OUT last_snapshot_error text,
    OUT sessions_stopped bigint,
    OUT last_stop text,
    OUT errors bigint
) RETURNS SETOF record
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED ROWS 1
AS 'MODULE_PATHNAME', 'rowsource_info_0_2';
COMMENT ON FUNCTION rowsource_info() IS 'Describes the shared memory of the plans, and what was not measured, stored or kept';

CREATE FUNCTION rowsource_reset(
    userid oid DEFAULT 0,
    datid oid DEFAULT 0,
    queryid bigint DEFAULT 0
) RETURNS void
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'rowsource_reset_0_2';
COMMENT ON FUNCTION rowsource_reset(oid, oid, bigint) IS 'Deletes the plans of a user, a database or a query. 0 (default): of all. For superusers, and for others after GRANT EXECUTE ON FUNCTION rowsource_reset(oid, oid, bigint) TO them';
REVOKE ALL ON FUNCTION rowsource_reset(oid, oid, bigint) FROM PUBLIC;

CREATE FUNCTION pg_stat_rowsource_tempfile_io(
    OUT datid oid,
    OUT filetype text,
    OUT small_reads bigint,
    OUT small_read_bytes bigint,
    OUT small_read_time float8,
    OUT small_read_mean_time float8,
    OUT small_read_max_time float8,
    OUT large_reads bigint,
    OUT large_read_bytes bigint,
    OUT large_read_time float8,
    OUT large_read_mean_time float8,
    OUT large_read_max_time float8,
    OUT small_writes bigint,
    OUT small_write_bytes bigint,
    OUT small_write_time float8,
    OUT small_write_mean_time float8,
    OUT small_write_max_time float8,
    OUT large_writes bigint,
    OUT large_write_bytes bigint,
    OUT large_write_time float8,
    OUT large_write_mean_time float8,
    OUT large_write_max_time float8,
    OUT source text,
    OUT stats_reset timestamptz
) RETURNS SETOF record
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'pg_stat_rowsource_tempfile_io_0_2';
COMMENT ON FUNCTION pg_stat_rowsource_tempfile_io() IS 'The rows of the view pg_stat_rowsource_tempfile_io';

CREATE VIEW pg_stat_rowsource_tempfile_io AS
    SELECT f.datid, d.datname, f.filetype, f.small_reads, f.small_read_bytes, f.small_read_time, f.small_read_mean_time, f.small_read_max_time, f.large_reads, f.large_read_bytes, f.large_read_time, f.large_read_mean_time, f.large_read_max_time, f.small_writes, f.small_write_bytes, f.small_write_time, f.small_write_mean_time, f.small_write_max_time, f.large_writes, f.large_write_bytes, f.large_write_time, f.large_write_mean_time, f.large_write_max_time, f.source, f.stats_reset
      FROM pg_stat_rowsource_tempfile_io() f LEFT JOIN pg_catalog.pg_database d ON d.oid = f.datid;
COMMENT ON VIEW pg_stat_rowsource_tempfile_io IS 'Requests to temporary files since the last reset: a row per database and file type';
COMMENT ON COLUMN pg_stat_rowsource_tempfile_io.datid IS 'The OID of the database; 0 for processes without one, NULL if several databases share one set of counters';
COMMENT ON COLUMN pg_stat_rowsource_tempfile_io.datname IS 'The database';
COMMENT ON COLUMN pg_stat_rowsource_tempfile_io.filetype IS 'work file (sorts, hashes, materialised results) or temp table';
COMMENT ON COLUMN pg_stat_rowsource_tempfile_io.small_reads IS 'Read requests of one block or less';
COMMENT ON COLUMN pg_stat_rowsource_tempfile_io.small_read_bytes IS 'Bytes read by these requests';
COMMENT ON COLUMN pg_stat_rowsource_tempfile_io.small_read_time IS 'Milliseconds of these requests; NULL if they were not timed';
COMMENT ON COLUMN pg_stat_rowsource_tempfile_io.small_read_mean_time IS 'Milliseconds of such a request on average';
COMMENT ON COLUMN pg_stat_rowsource_tempfile_io.small_read_max_time IS 'Milliseconds of the longest such request; NULL if only blocks were counted';
COMMENT ON COLUMN pg_stat_rowsource_tempfile_io.large_reads IS 'Read requests of more than one block';
COMMENT ON COLUMN pg_stat_rowsource_tempfile_io.large_read_bytes IS 'Bytes read by these requests';
COMMENT ON COLUMN pg_stat_rowsource_tempfile_io.large_read_time IS 'Milliseconds of these requests; NULL if they were not timed';
COMMENT ON COLUMN pg_stat_rowsource_tempfile_io.large_read_mean_time IS 'Milliseconds of such a request on average';
COMMENT ON COLUMN pg_stat_rowsource_tempfile_io.large_read_max_time IS 'Milliseconds of the longest such request; NULL if only blocks were counted';
COMMENT ON COLUMN pg_stat_rowsource_tempfile_io.small_writes IS 'Write requests of one block or less';
COMMENT ON COLUMN pg_stat_rowsource_tempfile_io.small_write_bytes IS 'Bytes written by these requests';
COMMENT ON COLUMN pg_stat_rowsource_tempfile_io.small_write_time IS 'Milliseconds of these requests; NULL if they were not timed';
COMMENT ON COLUMN pg_stat_rowsource_tempfile_io.small_write_mean_time IS 'Milliseconds of such a request on average';
COMMENT ON COLUMN pg_stat_rowsource_tempfile_io.small_write_max_time IS 'Milliseconds of the longest such request; NULL if only blocks were counted';
COMMENT ON COLUMN pg_stat_rowsource_tempfile_io.large_writes IS 'Write requests of more than one block';
COMMENT ON COLUMN pg_stat_rowsource_tempfile_io.large_write_bytes IS 'Bytes written by these requests';
COMMENT ON COLUMN pg_stat_rowsource_tempfile_io.large_write_time IS 'Milliseconds of these requests; NULL if they were not timed';
COMMENT ON COLUMN pg_stat_rowsource_tempfile_io.large_write_mean_time IS 'Milliseconds of such a request on average';
COMMENT ON COLUMN pg_stat_rowsource_tempfile_io.large_write_max_time IS 'Milliseconds of the longest such request; NULL if only blocks were counted';
COMMENT ON COLUMN pg_stat_rowsource_tempfile_io.source IS 'request: each request was counted. counter: core counted the blocks';
COMMENT ON COLUMN pg_stat_rowsource_tempfile_io.stats_reset IS 'When these counters were last reset';
GRANT SELECT ON pg_stat_rowsource_tempfile_io TO PUBLIC;

CREATE FUNCTION pg_stat_rowsource_tempfile_io_histogram(
    OUT datid oid,
    OUT filetype text,
    OUT operation text,
    OUT size text,
    OUT from_us float8,
    OUT to_us float8,
    OUT requests bigint
) RETURNS SETOF record
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'pg_stat_rowsource_tempfile_io_histogram_0_2';
COMMENT ON FUNCTION pg_stat_rowsource_tempfile_io_histogram() IS 'The rows of the view pg_stat_rowsource_tempfile_io_histogram';

CREATE VIEW pg_stat_rowsource_tempfile_io_histogram AS
    SELECT f.datid, d.datname, f.filetype, f.operation, f.size, f.from_us, f.to_us, f.requests
      FROM pg_stat_rowsource_tempfile_io_histogram() f LEFT JOIN pg_catalog.pg_database d ON d.oid = f.datid;
COMMENT ON VIEW pg_stat_rowsource_tempfile_io_histogram IS 'How long the requests to temporary files took, in powers of two';
COMMENT ON COLUMN pg_stat_rowsource_tempfile_io_histogram.datid IS 'The OID of the database; 0 for processes without one, NULL if several databases share one set of counters';
COMMENT ON COLUMN pg_stat_rowsource_tempfile_io_histogram.datname IS 'The database';
COMMENT ON COLUMN pg_stat_rowsource_tempfile_io_histogram.filetype IS 'work file (sorts, hashes, materialised results) or temp table';
COMMENT ON COLUMN pg_stat_rowsource_tempfile_io_histogram.operation IS 'read or write';
COMMENT ON COLUMN pg_stat_rowsource_tempfile_io_histogram.size IS 'small: one block or less. large: more than one block';
COMMENT ON COLUMN pg_stat_rowsource_tempfile_io_histogram.from_us IS 'The lower bound of the bucket, in microseconds';
COMMENT ON COLUMN pg_stat_rowsource_tempfile_io_histogram.to_us IS 'The upper bound of the bucket, in microseconds; NULL if it has none';
COMMENT ON COLUMN pg_stat_rowsource_tempfile_io_histogram.requests IS 'Requests that took this long';
GRANT SELECT ON pg_stat_rowsource_tempfile_io_histogram TO PUBLIC;

CREATE FUNCTION rowsource_tempfile_reset(
    datid oid DEFAULT 0
) RETURNS void
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'rowsource_tempfile_reset_0_2';
COMMENT ON FUNCTION rowsource_tempfile_reset(oid) IS 'Resets the counters of a database''s temporary files. 0 (default): of all databases. For superusers, and for others after GRANT EXECUTE ON FUNCTION rowsource_tempfile_reset(oid) TO them';
REVOKE ALL ON FUNCTION rowsource_tempfile_reset(oid) FROM PUBLIC;

CREATE FUNCTION pg_stat_rowsource_logical_io(
    OUT userid oid,
    OUT datid oid,
    OUT queryid bigint,
    OUT planid bigint,
    OUT toplevel boolean,
    OUT node_id int,
    OUT operation text,
    OUT object_name text,
    OUT hits bigint,
    OUT hit_us float8,
    OUT hit_error_us float8,
    OUT self_blks_read bigint,
    OUT reads bigint,
    OUT read_us float8,
    OUT read_error_us float8,
    OUT read_max_us float8
) RETURNS SETOF record
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'pg_stat_rowsource_logical_io_0_2';
COMMENT ON FUNCTION pg_stat_rowsource_logical_io() IS 'The rows of the view pg_stat_rowsource_logical_io';

CREATE VIEW pg_stat_rowsource_logical_io AS
    SELECT u.rolname AS usename, d.datname, s.*
      FROM pg_stat_rowsource_logical_io() s
           LEFT JOIN pg_catalog.pg_roles u ON u.oid = s.userid
           LEFT JOIN pg_catalog.pg_database d ON d.oid = s.datid;
COMMENT ON VIEW pg_stat_rowsource_logical_io IS 'How long hits and reads of blocks took in the nodes of each stored plan, in all its executions';
COMMENT ON COLUMN pg_stat_rowsource_logical_io.usename IS 'The user who ran the statement; NULL if the user was dropped';
COMMENT ON COLUMN pg_stat_rowsource_logical_io.datname IS 'The database in which the statement ran; NULL if it was dropped';
COMMENT ON COLUMN pg_stat_rowsource_logical_io.userid IS 'The OID of the user who ran the statement';
COMMENT ON COLUMN pg_stat_rowsource_logical_io.datid IS 'The OID of the database in which the statement ran';
COMMENT ON COLUMN pg_stat_rowsource_logical_io.queryid IS 'Identifies the statement, as in pg_stat_statements and pg_stat_activity';
COMMENT ON COLUMN pg_stat_rowsource_logical_io.planid IS 'Identifies the plan by its nodes, objects and strategies';
COMMENT ON COLUMN pg_stat_rowsource_logical_io.toplevel IS 'Whether a client sent the statement; false if another statement ran it: in a function, procedure or trigger';
COMMENT ON COLUMN pg_stat_rowsource_logical_io.node_id IS 'The number of the node, from 0 at the root, in the order of EXPLAIN';
COMMENT ON COLUMN pg_stat_rowsource_logical_io.operation IS 'What the node does, as EXPLAIN calls it';
COMMENT ON COLUMN pg_stat_rowsource_logical_io.object_name IS 'The index, table, function or other object that the node works on';
COMMENT ON COLUMN pg_stat_rowsource_logical_io.hits IS 'Blocks that the node itself found in buffers';
COMMENT ON COLUMN pg_stat_rowsource_logical_io.hit_us IS 'Microseconds by which a sampled call is longer for each block that it finds in a buffer: the get, and what the node does once per block. NULL where that cannot be told: few sampled calls got no block or got one, the node has inputs, its filter removes most rows, or the error is larger than the time';
COMMENT ON COLUMN pg_stat_rowsource_logical_io.hit_error_us IS 'One standard error of hit_us, in microseconds';
COMMENT ON COLUMN pg_stat_rowsource_logical_io.self_blks_read IS 'Blocks that the node itself read';
COMMENT ON COLUMN pg_stat_rowsource_logical_io.reads IS 'The waits for these reads. From 17 on, a read may be of several blocks. From 18 on, another process may read ahead, so that there is nothing to wait for. NULL if waits are not counted';
COMMENT ON COLUMN pg_stat_rowsource_logical_io.read_us IS 'Microseconds of such a wait on average';
COMMENT ON COLUMN pg_stat_rowsource_logical_io.read_error_us IS 'Microseconds that reading the clock adds to each wait at most';
COMMENT ON COLUMN pg_stat_rowsource_logical_io.read_max_us IS 'Microseconds of the longest wait';
GRANT SELECT ON pg_stat_rowsource_logical_io TO PUBLIC;

CREATE FUNCTION pg_stat_rowsource_live(
    OUT pid int,
    OUT leader_pid int,
    OUT userid oid,
    OUT datid oid,
    OUT queryid bigint,
    OUT planid bigint,
    OUT toplevel boolean,
    OUT nesting_level int,
    OUT state text,
    OUT age float8,
    OUT elapsed_time float8,
    OUT node_id int,
    OUT parent_id int,
    OUT depth int,
    OUT operation text,
    OUT object_name text,
    OUT plan_rows float8,
    OUT starts bigint,
    OUT rows bigint,
    OUT total_time float8,
    OUT self_time float8,
    OUT time_error float8,
    OUT self_time_error float8,
    OUT shared_blks_hit bigint,
    OUT shared_blks_read bigint,
    OUT shared_blks_dirtied bigint,
    OUT shared_blks_written bigint,
    OUT local_blks_hit bigint,
    OUT local_blks_read bigint,
    OUT temp_blks_read bigint,
    OUT temp_blks_written bigint,
    OUT wait_time float8,
    OUT running boolean,
    OUT wait_event_type text,
    OUT wait_event text,
    OUT blocks_until text
) RETURNS SETOF record
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'pg_stat_rowsource_live_0_2';
COMMENT ON FUNCTION pg_stat_rowsource_live() IS 'The rows of the view pg_stat_rowsource_live';

CREATE VIEW pg_stat_rowsource_live AS
    SELECT u.rolname AS usename, d.datname, s.*
      FROM pg_stat_rowsource_live() s
           LEFT JOIN pg_catalog.pg_roles u ON u.oid = s.userid
           LEFT JOIN pg_catalog.pg_database d ON d.oid = s.datid;
COMMENT ON VIEW pg_stat_rowsource_live IS 'The measured statements that run now: a row per node, and per process that runs it';
COMMENT ON COLUMN pg_stat_rowsource_live.usename IS 'The user who runs the statement';
COMMENT ON COLUMN pg_stat_rowsource_live.datname IS 'The database in which it runs';
COMMENT ON COLUMN pg_stat_rowsource_live.pid IS 'The process that runs it';
COMMENT ON COLUMN pg_stat_rowsource_live.leader_pid IS 'If the process is a parallel worker, the process of its leader';
COMMENT ON COLUMN pg_stat_rowsource_live.userid IS 'The OID of the user who runs the statement';
COMMENT ON COLUMN pg_stat_rowsource_live.datid IS 'The OID of the database in which it runs';
COMMENT ON COLUMN pg_stat_rowsource_live.queryid IS 'Identifies the statement, as in pg_stat_statements and pg_stat_activity; NULL if you may not see it';
COMMENT ON COLUMN pg_stat_rowsource_live.planid IS 'Identifies the plan by its nodes, objects and strategies; NULL if you may not see it';
COMMENT ON COLUMN pg_stat_rowsource_live.toplevel IS 'Whether a client sent the statement; false if another statement runs it: in a function, procedure or trigger';
COMMENT ON COLUMN pg_stat_rowsource_live.nesting_level IS 'In how many measured statements of the session it is nested';
COMMENT ON COLUMN pg_stat_rowsource_live.state IS 'running, or idle in cursor: between two fetches';
COMMENT ON COLUMN pg_stat_rowsource_live.age IS 'Milliseconds since the statement began to run';
COMMENT ON COLUMN pg_stat_rowsource_live.elapsed_time IS 'Milliseconds in which it ran, without those in which its cursor was idle';
COMMENT ON COLUMN pg_stat_rowsource_live.node_id IS 'The number of the node in the plan, from 0 at the root, in the order of EXPLAIN';
COMMENT ON COLUMN pg_stat_rowsource_live.parent_id IS 'The number of its parent';
COMMENT ON COLUMN pg_stat_rowsource_live.depth IS 'The number of nodes above it';
COMMENT ON COLUMN pg_stat_rowsource_live.operation IS 'What the node does, as EXPLAIN calls it';
COMMENT ON COLUMN pg_stat_rowsource_live.object_name IS 'The table, index, function or other object that the node works on';
COMMENT ON COLUMN pg_stat_rowsource_live.plan_rows IS 'Rows per start that the planner expects';
COMMENT ON COLUMN pg_stat_rowsource_live.starts IS 'How often the node was started';
COMMENT ON COLUMN pg_stat_rowsource_live.rows IS 'Rows that it has returned so far';
COMMENT ON COLUMN pg_stat_rowsource_live.total_time IS 'Milliseconds in the node and all nodes below it so far, its current call included';
COMMENT ON COLUMN pg_stat_rowsource_live.self_time IS 'Milliseconds in the node itself';
COMMENT ON COLUMN pg_stat_rowsource_live.time_error IS 'One standard error of total_time, in milliseconds';
COMMENT ON COLUMN pg_stat_rowsource_live.self_time_error IS 'One standard error of self_time, in milliseconds';
COMMENT ON COLUMN pg_stat_rowsource_live.shared_blks_hit IS 'Blocks of tables and indexes that the node and those below it found in shared buffers';
COMMENT ON COLUMN pg_stat_rowsource_live.shared_blks_read IS 'Such blocks that they read';
COMMENT ON COLUMN pg_stat_rowsource_live.shared_blks_dirtied IS 'Such blocks that they changed first';
COMMENT ON COLUMN pg_stat_rowsource_live.shared_blks_written IS 'Such blocks that they wrote';
COMMENT ON COLUMN pg_stat_rowsource_live.local_blks_hit IS 'Blocks of temporary tables that they found in buffers';
COMMENT ON COLUMN pg_stat_rowsource_live.local_blks_read IS 'Such blocks that they read';
COMMENT ON COLUMN pg_stat_rowsource_live.temp_blks_read IS 'Blocks of work files that they read';
COMMENT ON COLUMN pg_stat_rowsource_live.temp_blks_written IS 'Blocks of work files that they wrote';
COMMENT ON COLUMN pg_stat_rowsource_live.wait_time IS 'Milliseconds of the node''s own waits that have ended';
COMMENT ON COLUMN pg_stat_rowsource_live.running IS 'Whether this is the node that runs; false for all nodes of a statement that runs none of them, or if that is not known';
COMMENT ON COLUMN pg_stat_rowsource_live.wait_event_type IS 'The type of what the process waits for, as in pg_stat_activity, in the row of the node that runs, else of the root; NULL if it does not wait';
COMMENT ON COLUMN pg_stat_rowsource_live.wait_event IS 'What it waits for';
COMMENT ON COLUMN pg_stat_rowsource_live.blocks_until IS 'What the figures include. now: everything; last switch: blocks up to the last time that another node ran; last call: calls that have ended; private memory: a measured statement whose nodes are not known, because there was no shared memory for them';
GRANT SELECT ON pg_stat_rowsource_live TO PUBLIC;

CREATE FUNCTION rowsource_progress(
    OUT pid int,
    OUT userid oid,
    OUT datid oid,
    OUT queryid bigint,
    OUT planid bigint,
    OUT toplevel boolean,
    OUT nesting_level int,
    OUT state text,
    OUT elapsed_time float8,
    OUT percent_done float8,
    OUT percent_low float8,
    OUT percent_high float8,
    OUT basis text,
    OUT time_left float8,
    OUT time_left_low float8,
    OUT time_left_high float8,
    OUT node_id int,
    OUT operation text,
    OUT object_name text,
    OUT call_started_at timestamptz
) RETURNS SETOF record
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'rowsource_progress_0_2';
COMMENT ON FUNCTION rowsource_progress() IS 'The rows of the view rowsource_progress';

CREATE VIEW rowsource_progress AS
    SELECT u.rolname AS usename, d.datname, s.*
      FROM rowsource_progress() s
           LEFT JOIN pg_catalog.pg_roles u ON u.oid = s.userid
           LEFT JOIN pg_catalog.pg_database d ON d.oid = s.datid;
COMMENT ON VIEW rowsource_progress IS 'How far the measured statements are that run now: a row per statement, with its parallel workers';
COMMENT ON COLUMN rowsource_progress.usename IS 'The user who runs the statement';
COMMENT ON COLUMN rowsource_progress.datname IS 'The database in which it runs';
COMMENT ON COLUMN rowsource_progress.pid IS 'The process that runs it; of a parallel statement, the leader';
COMMENT ON COLUMN rowsource_progress.userid IS 'The OID of the user who runs the statement';
COMMENT ON COLUMN rowsource_progress.datid IS 'The OID of the database in which it runs';
COMMENT ON COLUMN rowsource_progress.queryid IS 'Identifies the statement, as in pg_stat_statements and pg_stat_activity; NULL if you may not see it';
COMMENT ON COLUMN rowsource_progress.planid IS 'Identifies the plan by its nodes, objects and strategies; NULL if you may not see it';
COMMENT ON COLUMN rowsource_progress.toplevel IS 'Whether a client sent the statement; false if another statement runs it: in a function, procedure or trigger';
COMMENT ON COLUMN rowsource_progress.nesting_level IS 'In how many measured statements of the session it is nested';
COMMENT ON COLUMN rowsource_progress.state IS 'running, or idle in cursor: between two fetches';
COMMENT ON COLUMN rowsource_progress.elapsed_time IS 'Milliseconds in which it ran, without those in which its cursor was idle';
COMMENT ON COLUMN rowsource_progress.percent_done IS 'How much of its work is done in percent, about; NULL if nothing can be said';
COMMENT ON COLUMN rowsource_progress.percent_low IS 'How many percent of its work are done at least. The work is the rows that its nodes scan, take and return, each weighted by its kind';
COMMENT ON COLUMN rowsource_progress.percent_high IS 'How many percent of its work are done at most, if the statement is read to its end';
COMMENT ON COLUMN rowsource_progress.basis IS 'What percent_done rests on. rows: mostly rows and blocks that were counted, and sizes of tables; planner: mostly the planners estimates';
COMMENT ON COLUMN rowsource_progress.time_left IS 'Milliseconds that the rest takes if it is as fast as what is done; NULL if nothing is done, and for an idle cursor';
COMMENT ON COLUMN rowsource_progress.time_left_low IS 'Milliseconds that the rest takes at least: the same from percent_high';
COMMENT ON COLUMN rowsource_progress.time_left_high IS 'Milliseconds that the rest takes at most: the same from percent_low; NULL if percent_low is 0';
COMMENT ON COLUMN rowsource_progress.node_id IS 'The number of the node that runs, from 0 at the root, in the order of EXPLAIN; NULL if none runs, or if it is not known';
COMMENT ON COLUMN rowsource_progress.operation IS 'What that node does, as EXPLAIN calls it';
COMMENT ON COLUMN rowsource_progress.object_name IS 'The table, index, function or other object that it works on';
COMMENT ON COLUMN rowsource_progress.call_started_at IS 'When the call of that node that is in progress began, some milliseconds too early (see Beats in the chapter about time); NULL if the node is not timed';
GRANT SELECT ON rowsource_progress TO PUBLIC;

CREATE FUNCTION pg_stat_rowsource_waits(
    OUT userid oid,
    OUT datid oid,
    OUT queryid bigint,
    OUT planid bigint,
    OUT toplevel boolean,
    OUT node_id int,
    OUT wait_event_type text,
    OUT wait_event text,
    OUT waits bigint,
    OUT wait_time float8,
    OUT mean_time float8,
    OUT max_time float8
) RETURNS SETOF record
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'pg_stat_rowsource_waits_0_2';
COMMENT ON FUNCTION pg_stat_rowsource_waits() IS 'The rows of the view pg_stat_rowsource_waits';

CREATE VIEW pg_stat_rowsource_waits AS
    SELECT u.rolname AS usename, d.datname, s.*
      FROM pg_stat_rowsource_waits() s
           LEFT JOIN pg_catalog.pg_roles u ON u.oid = s.userid
           LEFT JOIN pg_catalog.pg_database d ON d.oid = s.datid;
COMMENT ON VIEW pg_stat_rowsource_waits IS 'What the nodes of each stored plan waited for, and its statement outside of them, in all its executions';
COMMENT ON COLUMN pg_stat_rowsource_waits.usename IS 'The user who ran the statement; NULL if the user was dropped';
COMMENT ON COLUMN pg_stat_rowsource_waits.datname IS 'The database in which the statement ran; NULL if it was dropped';
COMMENT ON COLUMN pg_stat_rowsource_waits.userid IS 'The OID of the user who ran the statement';
COMMENT ON COLUMN pg_stat_rowsource_waits.datid IS 'The OID of the database in which the statement ran';
COMMENT ON COLUMN pg_stat_rowsource_waits.queryid IS 'Identifies the statement, as in pg_stat_statements and pg_stat_activity';
COMMENT ON COLUMN pg_stat_rowsource_waits.planid IS 'Identifies the plan by its nodes, objects and strategies';
COMMENT ON COLUMN pg_stat_rowsource_waits.toplevel IS 'Whether a client sent the statement; false if another statement ran it: in a function, procedure or trigger';
COMMENT ON COLUMN pg_stat_rowsource_waits.node_id IS 'The number of the node that waited, from 0 at the root, in the order of EXPLAIN; NULL outside of the nodes: the statement was parsed, planned, started, ended or committed, or sent rows to the client';
COMMENT ON COLUMN pg_stat_rowsource_waits.wait_event_type IS 'The type of the event, as in pg_stat_activity; NULL for the row other';
COMMENT ON COLUMN pg_stat_rowsource_waits.wait_event IS 'The event, as in pg_stat_activity. other: the plan keeps 8 pairs of a node and an event, and all others add up in this row. not counted: the reason why waits are not counted';
COMMENT ON COLUMN pg_stat_rowsource_waits.waits IS 'Waits, also those of parallel workers in this node';
COMMENT ON COLUMN pg_stat_rowsource_waits.wait_time IS 'Milliseconds of these waits';
COMMENT ON COLUMN pg_stat_rowsource_waits.mean_time IS 'Milliseconds of such a wait on average';
COMMENT ON COLUMN pg_stat_rowsource_waits.max_time IS 'Milliseconds of the longest such wait';
GRANT SELECT ON pg_stat_rowsource_waits TO PUBLIC;

CREATE FUNCTION pg_stat_rowsource_system_waits(
    OUT backend_type text,
    OUT wait_event_type text,
    OUT wait_event text,
    OUT waits bigint,
    OUT wait_time float8,
    OUT mean_time float8,
    OUT max_time float8,
    OUT p99_time float8
) RETURNS SETOF record
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'pg_stat_rowsource_system_waits_0_2';
COMMENT ON FUNCTION pg_stat_rowsource_system_waits() IS 'The rows of the view pg_stat_rowsource_system_waits';

CREATE VIEW pg_stat_rowsource_system_waits AS
    SELECT * FROM pg_stat_rowsource_system_waits();
COMMENT ON VIEW pg_stat_rowsource_system_waits IS 'The waits of all processes since the server started, those that have ended included';
COMMENT ON COLUMN pg_stat_rowsource_system_waits.backend_type IS 'The type of the processes, as in pg_stat_activity. Of the background workers, only parallel workers are told apart';
COMMENT ON COLUMN pg_stat_rowsource_system_waits.wait_event_type IS 'The type of the event, as in pg_stat_activity; NULL if the event has no counters of its own';
COMMENT ON COLUMN pg_stat_rowsource_system_waits.wait_event IS 'The event, as in pg_stat_activity. other: all events that have no counters of their own. not counted: the reason why waits are not counted';
COMMENT ON COLUMN pg_stat_rowsource_system_waits.waits IS 'Waits that have ended';
COMMENT ON COLUMN pg_stat_rowsource_system_waits.wait_time IS 'Milliseconds of these waits';
COMMENT ON COLUMN pg_stat_rowsource_system_waits.mean_time IS 'Milliseconds of such a wait on average';
COMMENT ON COLUMN pg_stat_rowsource_system_waits.max_time IS 'Milliseconds of the longest such wait';
COMMENT ON COLUMN pg_stat_rowsource_system_waits.p99_time IS 'Milliseconds that 99 % of these waits took at most, estimated from the histogram';
GRANT SELECT ON pg_stat_rowsource_system_waits TO PUBLIC;

CREATE FUNCTION pg_stat_rowsource_session_waits(
    OUT pid int,
    OUT wait_event_type text,
    OUT wait_event text,
    OUT waits bigint,
    OUT wait_time float8,
    OUT mean_time float8,
    OUT max_time float8,
    OUT p99_time float8
) RETURNS SETOF record
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'pg_stat_rowsource_session_waits_0_2';
COMMENT ON FUNCTION pg_stat_rowsource_session_waits() IS 'The rows of the view pg_stat_rowsource_session_waits';

CREATE VIEW pg_stat_rowsource_session_waits AS
    SELECT a.usename, a.datname, a.usesysid AS userid, a.datid, s.*
      FROM pg_stat_rowsource_session_waits() s
           LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = s.pid;
COMMENT ON VIEW pg_stat_rowsource_session_waits IS 'The waits of each running process since it started';
COMMENT ON COLUMN pg_stat_rowsource_session_waits.usename IS 'The user of the session';
COMMENT ON COLUMN pg_stat_rowsource_session_waits.datname IS 'The database of the session';
COMMENT ON COLUMN pg_stat_rowsource_session_waits.userid IS 'The OID of the user of the session';
COMMENT ON COLUMN pg_stat_rowsource_session_waits.datid IS 'The OID of the database of the session';
COMMENT ON COLUMN pg_stat_rowsource_session_waits.pid IS 'The process';
COMMENT ON COLUMN pg_stat_rowsource_session_waits.wait_event_type IS 'The type of the event, as in pg_stat_activity; NULL if the event has no counters of its own';
COMMENT ON COLUMN pg_stat_rowsource_session_waits.wait_event IS 'The event, as in pg_stat_activity. other: all events that have no counters of their own. not counted: the reason why waits are not counted';
COMMENT ON COLUMN pg_stat_rowsource_session_waits.waits IS 'Waits that have ended';
COMMENT ON COLUMN pg_stat_rowsource_session_waits.wait_time IS 'Milliseconds of these waits';
COMMENT ON COLUMN pg_stat_rowsource_session_waits.mean_time IS 'Milliseconds of such a wait on average';
COMMENT ON COLUMN pg_stat_rowsource_session_waits.max_time IS 'Milliseconds of the longest such wait';
COMMENT ON COLUMN pg_stat_rowsource_session_waits.p99_time IS 'Milliseconds that 99 % of these waits took at most, estimated from the histogram';
GRANT SELECT ON pg_stat_rowsource_session_waits TO PUBLIC;

CREATE FUNCTION pg_stat_rowsource_wait_histogram(
    OUT backend_type text,
    OUT wait_event_type text,
    OUT wait_event text,
    OUT from_us float8,
    OUT to_us float8,
    OUT waits bigint
) RETURNS SETOF record
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'pg_stat_rowsource_wait_histogram_0_2';
COMMENT ON FUNCTION pg_stat_rowsource_wait_histogram() IS 'The rows of the view pg_stat_rowsource_wait_histogram';

CREATE VIEW pg_stat_rowsource_wait_histogram AS
    SELECT * FROM pg_stat_rowsource_wait_histogram();
COMMENT ON VIEW pg_stat_rowsource_wait_histogram IS 'How long the waits of all processes took, in powers of two';
COMMENT ON COLUMN pg_stat_rowsource_wait_histogram.backend_type IS 'The type of the processes, as in pg_stat_activity. Of the background workers, only parallel workers are told apart';
COMMENT ON COLUMN pg_stat_rowsource_wait_histogram.wait_event_type IS 'The type of the event, as in pg_stat_activity; NULL if the event has no counters of its own';
COMMENT ON COLUMN pg_stat_rowsource_wait_histogram.wait_event IS 'The event, as in pg_stat_activity. other: all events that have no counters of their own. not counted: the reason why waits are not counted';
COMMENT ON COLUMN pg_stat_rowsource_wait_histogram.from_us IS 'The lower bound of the bucket, in microseconds';
COMMENT ON COLUMN pg_stat_rowsource_wait_histogram.to_us IS 'The upper bound of the bucket, in microseconds; NULL if it has none';
COMMENT ON COLUMN pg_stat_rowsource_wait_histogram.waits IS 'Waits that took this long';
GRANT SELECT ON pg_stat_rowsource_wait_histogram TO PUBLIC;

CREATE FUNCTION _rowsource_waits(
    OUT backend_type text,
    OUT wait_event_type text,
    OUT wait_event text,
    OUT waits bigint,
    OUT wait_time float8,
    OUT stats_reset timestamptz
) RETURNS SETOF record
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', '_rowsource_waits_0_2';
COMMENT ON FUNCTION _rowsource_waits() IS 'Internal: the waits of all processes, as a snapshot stores them. Everyone may call it, because rowsource_interval_waits does so with the rights of who reads it';

CREATE FUNCTION _rowsource_interval(
    from_time text,
    to_time text,
    OUT from_at timestamptz,
    OUT to_at timestamptz
) RETURNS SETOF record
LANGUAGE C STABLE CALLED ON NULL INPUT PARALLEL RESTRICTED ROWS 1
AS 'MODULE_PATHNAME', '_rowsource_interval_0_2';
COMMENT ON FUNCTION _rowsource_interval(text, text) IS 'Internal: the moments that two texts mean: by default the last hour';

CREATE FUNCTION _rowsource_check_interval(
    from_time text,
    to_time text
) RETURNS SETOF text
LANGUAGE C STABLE CALLED ON NULL INPUT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', '_rowsource_check_interval_0_2';
COMMENT ON FUNCTION _rowsource_check_interval(text, text) IS 'Internal: fails if two texts mean no interval, and tells the client what of it snapshots do not have. Returns nothing';

CREATE FUNCTION rowsource_wait_report(
    from_time text DEFAULT NULL,
    to_time text DEFAULT NULL
) RETURNS SETOF text
LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'rowsource_wait_report_0_2';
COMMENT ON FUNCTION rowsource_wait_report(text, text) IS 'Prints what sessions waited for in an interval, in percent of the database time, like Oracle''s "Top Timed Events", from the snapshots around it; without arguments, in the last hour';

CREATE FUNCTION rowsource_wait_report(
    from_time anycompatible,
    to_time anycompatible DEFAULT NULL
) RETURNS SETOF text
LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'rowsource_wait_report_between_0_2';
COMMENT ON FUNCTION rowsource_wait_report(anycompatible, anycompatible) IS 'The same for moments that are no texts, like now() - interval ''5 min'' or interval ''5 min''';

CREATE FUNCTION rowsource_tempfile_report(
    from_time text DEFAULT NULL,
    to_time text DEFAULT NULL
) RETURNS SETOF text
LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'rowsource_tempfile_report_0_2';
COMMENT ON FUNCTION rowsource_tempfile_report(text, text) IS 'Prints what happened to temporary files in an interval, like Oracle''s "IOStat by Filetype summary", from the snapshots around it; without arguments, in the last hour';

CREATE FUNCTION rowsource_tempfile_report(
    from_time anycompatible,
    to_time anycompatible DEFAULT NULL
) RETURNS SETOF text
LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'rowsource_tempfile_report_between_0_2';
COMMENT ON FUNCTION rowsource_tempfile_report(anycompatible, anycompatible) IS 'The same for moments that are no texts, like now() - interval ''5 min'' or interval ''5 min''';

CREATE FUNCTION rowsource_ash(
    from_time text DEFAULT NULL,
    to_time text DEFAULT NULL,
    OUT sample_time timestamptz,
    OUT pid int,
    OUT leader_pid int,
    OUT backend_type text,
    OUT userid oid,
    OUT datid oid,
    OUT application_name text,
    OUT queryid bigint,
    OUT planid bigint,
    OUT toplevel boolean,
    OUT node_id int,
    OUT operation text,
    OUT object_name text,
    OUT wait_event_type text,
    OUT wait_event text,
    OUT blocking_pid int,
    OUT moments int,
    OUT mode text,
    OUT command text
) RETURNS SETOF record
LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'rowsource_ash_0_2';
COMMENT ON FUNCTION rowsource_ash(text, text) IS 'The samples of active sessions in an interval, of memory and snapshots; without a beginning those of memory; without arguments, the rows of the view rowsource_ash';

CREATE VIEW rowsource_ash AS
    SELECT u.rolname AS usename, d.datname, s.*
      FROM rowsource_ash(NULL::text, NULL::text) s
           LEFT JOIN pg_catalog.pg_roles u ON u.oid = s.userid
           LEFT JOIN pg_catalog.pg_database d ON d.oid = s.datid;
COMMENT ON VIEW rowsource_ash IS 'Active session history: a row for each session that was active when the sessions were sampled';
COMMENT ON COLUMN rowsource_ash.usename IS 'The user of the statement';
COMMENT ON COLUMN rowsource_ash.datname IS 'The database of the session';
COMMENT ON COLUMN rowsource_ash.sample_time IS 'When the session was sampled';
COMMENT ON COLUMN rowsource_ash.pid IS 'The process of the session';
COMMENT ON COLUMN rowsource_ash.leader_pid IS 'If the process is a parallel worker, the process of its leader';
COMMENT ON COLUMN rowsource_ash.backend_type IS 'The type of the process; NULL, as all further columns, if you may not see what the session did';
COMMENT ON COLUMN rowsource_ash.userid IS 'The OID of the user of the statement';
COMMENT ON COLUMN rowsource_ash.datid IS 'The OID of the database of the session';
COMMENT ON COLUMN rowsource_ash.application_name IS 'The name of the application';
COMMENT ON COLUMN rowsource_ash.queryid IS 'Identifies the statement that ran, the innermost that is measured; NULL if it is not known';
COMMENT ON COLUMN rowsource_ash.planid IS 'Identifies its plan; NULL if no measured plan runs: also during parsing, planning and commit, or while the statement waits for its table';
COMMENT ON COLUMN rowsource_ash.toplevel IS 'Whether a client sent the statement; false if another statement ran it: in a function, procedure or trigger';
COMMENT ON COLUMN rowsource_ash.node_id IS 'The node that ran; NULL if none did: during planning or commit, or while rows were sent';
COMMENT ON COLUMN rowsource_ash.operation IS 'What the node does, as in EXPLAIN; NULL if the plan is not stored any more';
COMMENT ON COLUMN rowsource_ash.object_name IS 'The table, index, function or other object that the node works on, or a command without a plan';
COMMENT ON COLUMN rowsource_ash.wait_event_type IS 'The type of the event that the session waited for; NULL if it was on the processor, or waited for it';
COMMENT ON COLUMN rowsource_ash.wait_event IS 'The event that the session waited for';
COMMENT ON COLUMN rowsource_ash.blocking_pid IS 'The process that the session waited for, if it waited for a heavyweight lock and that is known; 0 is a prepared transaction';
COMMENT ON COLUMN rowsource_ash.moments IS 'How many moments the sample stands for: more if it is older, because fewer are kept';
COMMENT ON COLUMN rowsource_ash.mode IS 'The mode in which the session waited to lock, if it waited for a heavyweight lock';
COMMENT ON COLUMN rowsource_ash.command IS 'What kind of command ran, if it has no plan: ALTER TABLE';
GRANT SELECT ON rowsource_ash TO PUBLIC;

CREATE FUNCTION rowsource_ash(
    from_time anycompatible,
    to_time anycompatible DEFAULT NULL,
    OUT sample_time timestamptz,
    OUT pid int,
    OUT leader_pid int,
    OUT backend_type text,
    OUT userid oid,
    OUT datid oid,
    OUT application_name text,
    OUT queryid bigint,
    OUT planid bigint,
    OUT toplevel boolean,
    OUT node_id int,
    OUT operation text,
    OUT object_name text,
    OUT wait_event_type text,
    OUT wait_event text,
    OUT blocking_pid int,
    OUT moments int,
    OUT mode text,
    OUT command text
) RETURNS SETOF record
LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'rowsource_ash_between_0_2';
COMMENT ON FUNCTION rowsource_ash(anycompatible, anycompatible) IS 'The same for moments that are no texts, like now() - interval ''5 min'' or interval ''5 min''';

CREATE FUNCTION rowsource_moments_to_store(
    stored timestamptz,
    OUT first_sample_at timestamptz,
    OUT last_sample_at timestamptz,
    OUT sampled_moments bigint
) RETURNS SETOF record
LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED ROWS 1
AS 'MODULE_PATHNAME', 'rowsource_moments_to_store_0_2';
COMMENT ON FUNCTION rowsource_moments_to_store(timestamptz) IS 'Internal: the moments after the last one that is stored: no row if there are none';
REVOKE ALL ON FUNCTION rowsource_moments_to_store(timestamptz) FROM PUBLIC;

CREATE FUNCTION rowsource_ash_to_store(
    stored timestamptz,
    until timestamptz,
    OUT sample_time timestamptz,
    OUT pid int,
    OUT leader_pid int,
    OUT backend_type text,
    OUT userid oid,
    OUT datid oid,
    OUT application_name text,
    OUT queryid bigint,
    OUT planid bigint,
    OUT toplevel boolean,
    OUT node_id int,
    OUT operation text,
    OUT object_name text,
    OUT wait_event_type text,
    OUT wait_event text,
    OUT blocking_pid int,
    OUT moments int,
    OUT mode text,
    OUT command text
) RETURNS SETOF record
LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'rowsource_ash_to_store_0_2';
COMMENT ON FUNCTION rowsource_ash_to_store(timestamptz, timestamptz) IS 'Internal: their samples until another moment, as a snapshot stores them';
REVOKE ALL ON FUNCTION rowsource_ash_to_store(timestamptz, timestamptz) FROM PUBLIC;

CREATE FUNCTION rowsource_top_activity(
    from_time text DEFAULT NULL,
    to_time text DEFAULT NULL,
    by text DEFAULT NULL,
    OUT userid oid,
    OUT datid oid,
    OUT queryid bigint,
    OUT planid bigint,
    OUT toplevel boolean,
    OUT node_id int,
    OUT operation text,
    OUT object_name text,
    OUT wait_event_type text,
    OUT wait_event text,
    OUT application_name text,
    OUT samples bigint,
    OUT percent float8,
    OUT average_active_sessions float8
) RETURNS SETOF record
LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'rowsource_top_activity_0_2';
COMMENT ON FUNCTION rowsource_top_activity(text, text, text) IS 'What sessions did most in an interval: samples by statement, plan, node and wait event, or by one of them only; without arguments, in the last hour. by: statement, plan, node, wait, application, user, database or relation';

CREATE VIEW rowsource_top_activity AS
    SELECT u.rolname AS usename, d.datname, s.*
      FROM rowsource_top_activity(NULL::text, NULL::text, NULL::text) s
           LEFT JOIN pg_catalog.pg_roles u ON u.oid = s.userid
           LEFT JOIN pg_catalog.pg_database d ON d.oid = s.datid;
COMMENT ON VIEW rowsource_top_activity IS 'What sessions did most in the last hour: samples by statement, plan, node and wait event';
COMMENT ON COLUMN rowsource_top_activity.usename IS 'The user of the statement';
COMMENT ON COLUMN rowsource_top_activity.datname IS 'The database of the sessions';
COMMENT ON COLUMN rowsource_top_activity.userid IS 'The OID of the user of the statement; NULL, as all columns up to wait_event, if you may not see what the sessions did';
COMMENT ON COLUMN rowsource_top_activity.datid IS 'The OID of the database of the sessions';
COMMENT ON COLUMN rowsource_top_activity.queryid IS 'Identifies the statement that ran; NULL if it is not known';
COMMENT ON COLUMN rowsource_top_activity.planid IS 'Identifies its plan; NULL if no measured plan runs: also during parsing, planning and commit, or while the statement waits for its table';
COMMENT ON COLUMN rowsource_top_activity.toplevel IS 'Whether a client sent the statement; false if another statement ran it: in a function, procedure or trigger';
COMMENT ON COLUMN rowsource_top_activity.node_id IS 'The node that ran; NULL if none did';
COMMENT ON COLUMN rowsource_top_activity.operation IS 'What the node does; NULL if the plan is not stored any more';
COMMENT ON COLUMN rowsource_top_activity.object_name IS 'The table, index, function or other object that the node works on; by relation: its table';
COMMENT ON COLUMN rowsource_top_activity.wait_event_type IS 'The type of the event that the sessions waited for; NULL if they were on the processor';
COMMENT ON COLUMN rowsource_top_activity.wait_event IS 'The event';
COMMENT ON COLUMN rowsource_top_activity.application_name IS 'The name of the application, by application; else NULL';
COMMENT ON COLUMN rowsource_top_activity.samples IS 'How often sessions were seen doing this. A sample that stands for many moments counts as many';
COMMENT ON COLUMN rowsource_top_activity.percent IS 'The same in percent of all samples of the interval';
COMMENT ON COLUMN rowsource_top_activity.average_active_sessions IS 'How many sessions did this on average';
GRANT SELECT ON rowsource_top_activity TO PUBLIC;

CREATE FUNCTION rowsource_top_activity(
    from_time anycompatible,
    to_time anycompatible DEFAULT NULL,
    by text DEFAULT NULL,
    OUT userid oid,
    OUT datid oid,
    OUT queryid bigint,
    OUT planid bigint,
    OUT toplevel boolean,
    OUT node_id int,
    OUT operation text,
    OUT object_name text,
    OUT wait_event_type text,
    OUT wait_event text,
    OUT application_name text,
    OUT samples bigint,
    OUT percent float8,
    OUT average_active_sessions float8
) RETURNS SETOF record
LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'rowsource_top_activity_between_0_2';
COMMENT ON FUNCTION rowsource_top_activity(anycompatible, anycompatible, text) IS 'The same for moments that are no texts, like now() - interval ''5 min'' or interval ''5 min''';

CREATE FUNCTION rowsource_top(
    from_time text DEFAULT NULL,
    to_time text DEFAULT NULL,
    by text DEFAULT 'statement',
    OUT from_at timestamptz,
    OUT to_at timestamptz,
    OUT usename name,
    OUT datname name,
    OUT userid oid,
    OUT datid oid,
    OUT queryid bigint,
    OUT planid bigint,
    OUT toplevel boolean,
    OUT node_id int,
    OUT operation text,
    OUT object_name text,
    OUT wait_event_type text,
    OUT wait_event text,
    OUT calls bigint,
    OUT total_time float8,
    OUT mean_time float8,
    OUT starts bigint,
    OUT self_time float8,
    OUT percent float8,
    OUT rows bigint,
    OUT rows_removed bigint,
    OUT blks_hit bigint,
    OUT blks_read bigint,
    OUT temp_blks bigint,
    OUT wal_bytes bigint,
    OUT waits bigint,
    OUT wait_time float8,
    OUT query text
) RETURNS SETOF record
LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'rowsource_top_0_2';
COMMENT ON FUNCTION rowsource_top(text, text, text) IS 'What ran in an interval, counted between the snapshots around it, now being one; without arguments, in the last hour. by: statement, user, database, node, relation or wait. The sum of the rows is all that ran with plans that are stored. Without the privileges of pg_read_all_stats, all since the statistics were reset';

CREATE FUNCTION rowsource_top(
    from_time anycompatible,
    to_time anycompatible DEFAULT NULL,
    by text DEFAULT 'statement',
    OUT from_at timestamptz,
    OUT to_at timestamptz,
    OUT usename name,
    OUT datname name,
    OUT userid oid,
    OUT datid oid,
    OUT queryid bigint,
    OUT planid bigint,
    OUT toplevel boolean,
    OUT node_id int,
    OUT operation text,
    OUT object_name text,
    OUT wait_event_type text,
    OUT wait_event text,
    OUT calls bigint,
    OUT total_time float8,
    OUT mean_time float8,
    OUT starts bigint,
    OUT self_time float8,
    OUT percent float8,
    OUT rows bigint,
    OUT rows_removed bigint,
    OUT blks_hit bigint,
    OUT blks_read bigint,
    OUT temp_blks bigint,
    OUT wal_bytes bigint,
    OUT waits bigint,
    OUT wait_time float8,
    OUT query text
) RETURNS SETOF record
LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'rowsource_top_between_0_2';
COMMENT ON FUNCTION rowsource_top(anycompatible, anycompatible, text) IS 'The same for moments that are no texts, like now() - interval ''5 min'' or interval ''5 min''';

CREATE FUNCTION rowsource_ash_report(
    from_time text DEFAULT NULL,
    to_time text DEFAULT NULL
) RETURNS SETOF text
LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'rowsource_ash_report_0_2';
COMMENT ON FUNCTION rowsource_ash_report(text, text) IS 'Prints what sessions did in an interval, like Oracle''s ASH report; without arguments, in the last hour';

CREATE FUNCTION rowsource_ash_report(
    from_time anycompatible,
    to_time anycompatible DEFAULT NULL
) RETURNS SETOF text
LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'rowsource_ash_report_between_0_2';
COMMENT ON FUNCTION rowsource_ash_report(anycompatible, anycompatible) IS 'The same for moments that are no texts, like now() - interval ''5 min'' or interval ''5 min''';

CREATE FUNCTION rowsource_blockers(
    from_time text DEFAULT NULL,
    to_time text DEFAULT NULL,
    OUT root_pid int,
    OUT blocked_sessions bigint,
    OUT blocked_time float8,
    OUT depth int,
    OUT pid int,
    OUT blocking_pid int,
    OUT userid oid,
    OUT usename name,
    OUT datid oid,
    OUT datname name,
    OUT application_name text,
    OUT wait_event text,
    OUT mode text,
    OUT relation text,
    OUT first_seen_at timestamptz,
    OUT last_seen_at timestamptz,
    OUT samples bigint,
    OUT wait_time float8,
    OUT queryid bigint,
    OUT query text
) RETURNS SETOF record
LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'rowsource_blockers_0_2';
COMMENT ON FUNCTION rowsource_blockers(text, text) IS 'Who waited for whom in an interval: the trees of the view rowsource_blockers, from the samples of active sessions; without arguments, in the last hour';

CREATE FUNCTION rowsource_blockers(
    from_time anycompatible,
    to_time anycompatible DEFAULT NULL,
    OUT root_pid int,
    OUT blocked_sessions bigint,
    OUT blocked_time float8,
    OUT depth int,
    OUT pid int,
    OUT blocking_pid int,
    OUT userid oid,
    OUT usename name,
    OUT datid oid,
    OUT datname name,
    OUT application_name text,
    OUT wait_event text,
    OUT mode text,
    OUT relation text,
    OUT first_seen_at timestamptz,
    OUT last_seen_at timestamptz,
    OUT samples bigint,
    OUT wait_time float8,
    OUT queryid bigint,
    OUT query text
) RETURNS SETOF record
LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'rowsource_blockers_between_0_2';
COMMENT ON FUNCTION rowsource_blockers(anycompatible, anycompatible) IS 'The same for moments that are no texts, like now() - interval ''5 min'' or interval ''5 min''';

CREATE FUNCTION rowsource_report(
    from_time text DEFAULT NULL,
    to_time text DEFAULT NULL,
    format text DEFAULT 'text'
) RETURNS SETOF text
LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'rowsource_report_0_2';
COMMENT ON FUNCTION rowsource_report(text, text, text) IS 'Prints what happened in an interval and what to look at next: what is wrong, the load, the statements and nodes that took the most time, what changed, waits, temporary files, and what is not known; without arguments, in the last hour. format: text, or html for one page';

CREATE FUNCTION rowsource_report(
    queryid bigint,
    from_time text DEFAULT NULL,
    to_time text DEFAULT NULL,
    format text DEFAULT 'text'
) RETURNS SETOF text
LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'rowsource_report_of_0_2';
COMMENT ON FUNCTION rowsource_report(bigint, text, text, text) IS 'The same for one statement';

CREATE FUNCTION rowsource_report(
    from_time anycompatible,
    to_time anycompatible DEFAULT NULL,
    format text DEFAULT 'text'
) RETURNS SETOF text
LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'rowsource_report_between_0_2';
COMMENT ON FUNCTION rowsource_report(anycompatible, anycompatible, text) IS 'The same for moments that are no texts, like now() - interval ''5 min'' or interval ''5 min''';

CREATE FUNCTION rowsource_advice(
    OUT rule text,
    OUT max_saved_time float8,
    OUT percent float8,
    OUT datname name,
    OUT datid oid,
    OUT usename name,
    OUT userid oid,
    OUT queryid bigint,
    OUT planid bigint,
    OUT toplevel boolean,
    OUT node_id int,
    OUT operation text,
    OUT object_name text,
    OUT figures text,
    OUT try_query text,
    OUT disproved_by text,
    OUT first_seen_at timestamptz,
    OUT last_seen_at timestamptz,
    OUT command text,
    OUT query text
) RETURNS SETOF record
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'rowsource_advice_0_2';
COMMENT ON FUNCTION rowsource_advice() IS 'What could be done better, from what the stored plans did: a row for each node with a finding that can save ten seconds, or one percent of the time of all client statements. Nothing of it is run';

CREATE FUNCTION rowsource_health(
    OUT component text,
    OUT verdict text,
    OUT finding text,
    OUT mend text
) RETURNS SETOF record
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'rowsource_health_0_2';
COMMENT ON FUNCTION rowsource_health() IS 'Says of each part of the library whether it works, and what mends it';

CREATE FUNCTION rowsource_ash_start() RETURNS int
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'rowsource_ash_start_0_2';
COMMENT ON FUNCTION rowsource_ash_start() IS 'Starts the background worker that samples the sessions, if the server has not preloaded pg_rowsource, and returns its pid. For superusers, and for others after GRANT EXECUTE ON FUNCTION rowsource_ash_start() TO them';
REVOKE ALL ON FUNCTION rowsource_ash_start() FROM PUBLIC;

CREATE FUNCTION _rowsource_tempfile_times(
    OUT pid int,
    OUT query_start timestamptz,
    OUT wait_time float8
) RETURNS SETOF record
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', '_rowsource_tempfile_times_0_2';
COMMENT ON FUNCTION _rowsource_tempfile_times() IS 'Internal: how long the last statement of each session has waited for temporary files. Everyone may call it, because rowsource_tempfile_usage() runs with its caller''s rights. Statements of others are left out, as in pg_stat_activity';

CREATE FUNCTION _rowsource_tempfiles(
    OUT pid int,
    OUT datid oid,
    OUT filetype text,
    OUT files bigint,
    OUT bytes bigint
) RETURNS SETOF record
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', '_rowsource_tempfiles_0_2';
COMMENT ON FUNCTION _rowsource_tempfiles() IS 'Internal: the temporary files on disk. Everyone may call it, because rowsource_tempfile_usage() runs with its caller''s rights';

CREATE FUNCTION rowsource_check_writable(
    rel regclass
) RETURNS void
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'rowsource_check_writable_0_2';
COMMENT ON FUNCTION rowsource_check_writable(regclass) IS 'Internal: locks a table of snapshots for writing, and fails with a hint on a standby, in a read-only transaction, and if a trigger or foreign key of somebody else would run';
REVOKE ALL ON FUNCTION rowsource_check_writable(regclass) FROM PUBLIC;

CREATE FUNCTION rowsource_check_new_baseline(
    name text,
    is_there boolean,
    bytes bigint,
    snapshots bigint
) RETURNS void
LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'rowsource_check_new_baseline_0_2';
COMMENT ON FUNCTION rowsource_check_new_baseline(text, boolean, bigint, bigint) IS 'Internal: fails if an interval cannot get a name';
REVOKE ALL ON FUNCTION rowsource_check_new_baseline(text, boolean, bigint, bigint) FROM PUBLIC;

CREATE FUNCTION rowsource_check_baseline(
    name text,
    is_there boolean
) RETURNS void
LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'rowsource_check_baseline_0_2';
COMMENT ON FUNCTION rowsource_check_baseline(text, boolean) IS 'Internal: fails if no baseline has a name';
REVOKE ALL ON FUNCTION rowsource_check_baseline(text, boolean) FROM PUBLIC;

CREATE FUNCTION rowsource_check_import(
    bytes bigint
) RETURNS void
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'rowsource_check_import_0_2';
COMMENT ON FUNCTION rowsource_check_import(bigint) IS 'Internal: fails if the history of other servers takes too much';
REVOKE ALL ON FUNCTION rowsource_check_import(bigint) FROM PUBLIC;

CREATE FUNCTION rowsource_imported_line(
    line text,
    OUT origin text,
    OUT table_name text,
    OUT snap_id bigint
) RETURNS SETOF record
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED ROWS 1
AS 'MODULE_PATHNAME', 'rowsource_imported_line_0_2';
COMMENT ON FUNCTION rowsource_imported_line(text) IS 'Internal: what a line of rowsource_export() says. Fails if it is none';
REVOKE ALL ON FUNCTION rowsource_imported_line(text) FROM PUBLIC;

CREATE FUNCTION _rowsource_excluded(
    OUT userid oid,
    OUT datid oid
) RETURNS SETOF record
LANGUAGE C STABLE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', '_rowsource_excluded_0_2';
COMMENT ON FUNCTION _rowsource_excluded() IS 'Internal: the roles and databases of which the history has nothing';

CREATE FUNCTION rowsource_note_removed(
    snapshots bigint
) RETURNS void
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'rowsource_note_removed_0_2';
COMMENT ON FUNCTION rowsource_note_removed(bigint) IS 'Internal: notes that snapshots were deleted because of their size';
REVOKE ALL ON FUNCTION rowsource_note_removed(bigint) FROM PUBLIC;

CREATE FUNCTION rowsource_plans_to_store(
    since timestamptz,
    OUT userid oid,
    OUT datid oid,
    OUT queryid bigint,
    OUT planid bigint,
    OUT toplevel boolean,
    OUT query text,
    OUT textid bigint,
    OUT assigned_planid bigint,
    OUT gone_indexes text[],
    OUT plan_advice text,
    OUT calls bigint,
    OUT failed_calls bigint,
    OUT cancelled_calls bigint,
    OUT unfinished_calls bigint,
    OUT explain_calls bigint,
    OUT caller_queryid bigint,
    OUT total_time float8,
    OUT min_time float8,
    OUT max_time float8,
    OUT mean_time float8,
    OUT stddev_time float8,
    OUT p50_time float8,
    OUT p95_time float8,
    OUT p99_time float8,
    OUT plans bigint,
    OUT total_plan_time float8,
    OUT min_plan_time float8,
    OUT max_plan_time float8,
    OUT mean_plan_time float8,
    OUT generic_plan_calls bigint,
    OUT custom_plan_calls bigint,
    OUT rows bigint,
    OUT shared_blks_hit bigint,
    OUT shared_blks_read bigint,
    OUT shared_blks_dirtied bigint,
    OUT shared_blks_written bigint,
    OUT local_blks_hit bigint,
    OUT local_blks_read bigint,
    OUT local_blks_dirtied bigint,
    OUT local_blks_written bigint,
    OUT temp_blks_read bigint,
    OUT temp_blks_written bigint,
    OUT shared_blk_read_time float8,
    OUT shared_blk_write_time float8,
    OUT local_blk_read_time float8,
    OUT local_blk_write_time float8,
    OUT temp_blk_read_time float8,
    OUT temp_blk_write_time float8,
    OUT wal_records bigint,
    OUT wal_fpi bigint,
    OUT wal_bytes bigint,
    OUT last_time float8,
    OUT last_outcome text,
    OUT first_seen_at timestamptz,
    OUT last_seen_at timestamptz,
    OUT sampfreq int,
    OUT clock_source text,
    OUT workers_planned bigint,
    OUT workers_launched bigint,
    OUT details jsonb,
    OUT wait_time float8,
    OUT client_time float8,
    OUT response_time float8,
    OUT max_response_time float8,
    OUT before_time float8,
    OUT commit_time float8,
    OUT description bytea,
    OUT statistics bytea
) RETURNS SETOF record
LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'rowsource_plans_to_store_0_2';
COMMENT ON FUNCTION rowsource_plans_to_store(timestamptz) IS 'Internal: the plans that ran since a time, as rowsource_snapshot() stores them';
REVOKE ALL ON FUNCTION rowsource_plans_to_store(timestamptz) FROM PUBLIC;

CREATE FUNCTION rowsource_note_reference(
    at timestamptz,
    reference int,
    from_time timestamptz,
    to_time timestamptz,
    userid oid,
    datid oid,
    queryid bigint,
    planid bigint,
    toplevel boolean,
    statistics bytea,
    earlier bytea
) RETURNS void
LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'rowsource_note_reference_0_2';
COMMENT ON FUNCTION rowsource_note_reference(timestamptz, int, timestamptz, timestamptz, oid, oid, bigint, bigint, boolean, bytea, bytea) IS 'Internal: notes at a snapshot what a plan did in an earlier interval: its statistics until the end, and until the beginning. Without a reference, that it ran';
REVOKE ALL ON FUNCTION rowsource_note_reference(timestamptz, int, timestamptz, timestamptz, oid, oid, bigint, bigint, boolean, bytea, bytea) FROM PUBLIC;

CREATE FUNCTION rowsource_display_stored(
    wanted_snap bigint,
    wanted_queryid bigint,
    wanted_planid bigint,
    taken_at text,
    userid oid,
    datid oid,
    queryid bigint,
    planid bigint,
    toplevel boolean,
    description bytea,
    statistics bytea,
    usename text,
    datname text,
    format text
) RETURNS SETOF text
LANGUAGE C STABLE CALLED ON NULL INPUT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'rowsource_display_stored_0_2';
COMMENT ON FUNCTION rowsource_display_stored(bigint, bigint, bigint, text, oid, oid, bigint, bigint, boolean, bytea, bytea, text, text, text) IS 'Internal: formats the plan of rowsource_display_snapshot()';
REVOKE ALL ON FUNCTION rowsource_display_stored(bigint, bigint, bigint, text, oid, oid, bigint, bigint, boolean, bytea, bytea, text, text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION rowsource_display_stored(bigint, bigint, bigint, text, oid, oid, bigint, bigint, boolean, bytea, bytea, text, text, text) TO pg_read_all_stats;

CREATE VIEW rowsource_trace_targets AS
    SELECT t.target, t.pid, t.application_name, pg_catalog.pg_get_userbyid(t.userid) AS usename,
           CASE WHEN t.datid IS NOT NULL THEN coalesce(d.datname, ('unknown (OID=' || t.datid::text || ')')::name) END AS datname,
           t.userid, t.datid, t.client_addr, t.queryid, t.with_waits, t.with_binds,
           pg_catalog.pg_get_userbyid(t.set_by_userid) AS set_by, t.set_at, t.expires_at, t.sessions
      FROM rowsource_trace_targets() t LEFT JOIN pg_catalog.pg_database d ON d.oid = t.datid;
COMMENT ON VIEW rowsource_trace_targets IS 'The targets of SQL traces. A session is traced if it meets all conditions of a target; NULL is no condition. For those with the privileges of pg_read_all_stats, and for others after GRANT pg_read_all_stats TO them';
COMMENT ON COLUMN rowsource_trace_targets.target IS 'Its number, for rowsource_trace_stop()';
COMMENT ON COLUMN rowsource_trace_targets.pid IS 'Condition: the process of this session, until it ends';
COMMENT ON COLUMN rowsource_trace_targets.application_name IS 'Condition: the session''s application_name';
COMMENT ON COLUMN rowsource_trace_targets.usename IS 'Condition: the session''s user, or the role that SET ROLE has chosen';
COMMENT ON COLUMN rowsource_trace_targets.datname IS 'Condition: the session''s database';
COMMENT ON COLUMN rowsource_trace_targets.userid IS 'The OID of that user';
COMMENT ON COLUMN rowsource_trace_targets.datid IS 'The OID of that database';
COMMENT ON COLUMN rowsource_trace_targets.client_addr IS 'Condition: the address of the client, or a network that contains it';
COMMENT ON COLUMN rowsource_trace_targets.queryid IS 'Only this statement is traced, with what it calls';
COMMENT ON COLUMN rowsource_trace_targets.with_waits IS 'Whether each wait is listed';
COMMENT ON COLUMN rowsource_trace_targets.with_binds IS 'Whether the values of parameters are listed';
COMMENT ON COLUMN rowsource_trace_targets.set_by IS 'Who has set it';
COMMENT ON COLUMN rowsource_trace_targets.set_at IS 'When it was set';
COMMENT ON COLUMN rowsource_trace_targets.expires_at IS 'When it expires';
COMMENT ON COLUMN rowsource_trace_targets.sessions IS 'How many sessions it traces, as far as they have noticed it';
GRANT SELECT ON rowsource_trace_targets TO pg_read_all_stats;

CREATE VIEW rowsource_misestimates AS
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
              n.self_time DESC NULLS LAST;
COMMENT ON VIEW rowsource_misestimates IS 'Nodes that returned another number of rows than the planner expected, compared execution by execution: by a factor of 1.1 at least in one of them. The order: their own time and the size of the error. Nodes about which no execution says something come last';
COMMENT ON COLUMN rowsource_misestimates.usename IS 'The user who ran the statement; NULL if the user was dropped';
COMMENT ON COLUMN rowsource_misestimates.datname IS 'The database in which the statement ran; NULL if it was dropped';
COMMENT ON COLUMN rowsource_misestimates.userid IS 'The OID of the user who ran the statement';
COMMENT ON COLUMN rowsource_misestimates.datid IS 'The OID of the database in which the statement ran';
COMMENT ON COLUMN rowsource_misestimates.queryid IS 'Identifies the statement, as in pg_stat_statements and pg_stat_activity';
COMMENT ON COLUMN rowsource_misestimates.planid IS 'Identifies the plan by its nodes, objects and strategies';
COMMENT ON COLUMN rowsource_misestimates.toplevel IS 'Whether a client sent the statement; false if another statement ran it: in a function, procedure or trigger';
COMMENT ON COLUMN rowsource_misestimates.node_id IS 'The number of the node in the plan, from 0 at the root, in the order of EXPLAIN';
COMMENT ON COLUMN rowsource_misestimates.operation IS 'What the node does, as EXPLAIN calls it';
COMMENT ON COLUMN rowsource_misestimates.object_name IS 'The index, table, function or other object that the node works on';
COMMENT ON COLUMN rowsource_misestimates.plan_rows IS 'The rows per start that the planner expected in the executions that are compared; NULL if there are none';
COMMENT ON COLUMN rowsource_misestimates.actual_rows IS 'The rows per start that the node returned in the same executions; NULL if there are none';
COMMENT ON COLUMN rowsource_misestimates.max_factor IS 'How many times too few or too many rows were expected in the worst of these executions';
COMMENT ON COLUMN rowsource_misestimates.verdict IS 'underestimated or overestimated; varying if wrong estimates of single executions cancel out. Or why no execution is compared: never started, may stop early (below a limit, a semi-join or EXISTS), not completed, starts not counted (sampfreq 3)';
COMMENT ON COLUMN rowsource_misestimates.self_time IS 'Milliseconds in the node itself, without the nodes below it. The times of parallel processes add up';
COMMENT ON COLUMN rowsource_misestimates.self_time_error IS 'One standard error of self_time, in milliseconds';
GRANT SELECT ON rowsource_misestimates TO PUBLIC;

CREATE VIEW rowsource_top_statements AS
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
     ORDER BY coalesce(s.response_time, s.total_time) DESC NULLS LAST;
COMMENT ON VIEW rowsource_top_statements IS 'The statements for which clients waited longest: the plans of a statement together';
COMMENT ON COLUMN rowsource_top_statements.usename IS 'The user who ran the statement; NULL if the user was dropped';
COMMENT ON COLUMN rowsource_top_statements.datname IS 'The database in which the statement ran; NULL if it was dropped';
COMMENT ON COLUMN rowsource_top_statements.userid IS 'The OID of the user who ran the statement';
COMMENT ON COLUMN rowsource_top_statements.datid IS 'The OID of the database in which the statement ran';
COMMENT ON COLUMN rowsource_top_statements.queryid IS 'Identifies the statement, as in pg_stat_statements and pg_stat_activity';
COMMENT ON COLUMN rowsource_top_statements.plans IS 'The number of different plans; NULL for others, which sums up the executions whose plans are not stored';
COMMENT ON COLUMN rowsource_top_statements.calls IS 'Executions, including failed and cancelled ones';
COMMENT ON COLUMN rowsource_top_statements.response_time IS 'Milliseconds that clients waited for the executions: total_time, and parsing, planning, waits before the executor, and commit; NULL for a statement in a function. The order; where it is NULL, total_time';
COMMENT ON COLUMN rowsource_top_statements.total_time IS 'Milliseconds in which the executor ran (ExecutorRun and ExecutorFinish), as in pg_stat_statements; without parsing, planning and the executor''s start. The sum of all executions';
COMMENT ON COLUMN rowsource_top_statements.mean_time IS 'Milliseconds of an execution on average';
COMMENT ON COLUMN rowsource_top_statements.percent IS 'Percent of all client statements; NULL inside functions, because the caller already includes it';
COMMENT ON COLUMN rowsource_top_statements.rows IS 'Rows that the statement returned or changed';
COMMENT ON COLUMN rowsource_top_statements.blks_read IS 'Blocks of tables, indexes and temporary tables read';
COMMENT ON COLUMN rowsource_top_statements.query IS 'The text of the statement; of several plans, that of the plan that ran last';
GRANT SELECT ON rowsource_top_statements TO PUBLIC;

CREATE VIEW rowsource_top_nodes AS
    SELECT usename, datname, userid, datid, queryid, planid, toplevel, node_id, operation, object_name, self_time,
           self_time_error, percent_of_statement, processes,
           100::float8 * CASE WHEN toplevel THEN self_time END
               / nullif(pg_catalog.sum(self_time) FILTER (WHERE toplevel) OVER (), 0::float8) AS percent
      FROM pg_stat_rowsource
     ORDER BY self_time DESC NULLS LAST;
COMMENT ON VIEW rowsource_top_nodes IS 'The nodes that took the most time themselves';
COMMENT ON COLUMN rowsource_top_nodes.usename IS 'The user who ran the statement; NULL if the user was dropped';
COMMENT ON COLUMN rowsource_top_nodes.datname IS 'The database in which the statement ran; NULL if it was dropped';
COMMENT ON COLUMN rowsource_top_nodes.userid IS 'The OID of the user who ran the statement';
COMMENT ON COLUMN rowsource_top_nodes.datid IS 'The OID of the database in which the statement ran';
COMMENT ON COLUMN rowsource_top_nodes.queryid IS 'Identifies the statement, as in pg_stat_statements and pg_stat_activity';
COMMENT ON COLUMN rowsource_top_nodes.planid IS 'Identifies the plan by its nodes, objects and strategies';
COMMENT ON COLUMN rowsource_top_nodes.toplevel IS 'Whether a client sent the statement; false if another statement ran it: in a function, procedure or trigger';
COMMENT ON COLUMN rowsource_top_nodes.node_id IS 'The number of the node in the plan, from 0 at the root, in the order of EXPLAIN';
COMMENT ON COLUMN rowsource_top_nodes.operation IS 'What the node does, as EXPLAIN calls it';
COMMENT ON COLUMN rowsource_top_nodes.object_name IS 'The index, table, function or other object that the node works on';
COMMENT ON COLUMN rowsource_top_nodes.self_time IS 'Milliseconds in the node itself, without the nodes below it. The times of parallel processes add up';
COMMENT ON COLUMN rowsource_top_nodes.self_time_error IS 'One standard error of self_time, in milliseconds';
COMMENT ON COLUMN rowsource_top_nodes.percent_of_statement IS 'The part that the node itself has of the time of its statement, in percent. It can exceed 100 if several processes ran the node';
COMMENT ON COLUMN rowsource_top_nodes.processes IS 'Processes that ran the node on average: 1, or more below a Gather. The times of all of them add up';
COMMENT ON COLUMN rowsource_top_nodes.percent IS 'Percent of all client statements; NULL inside functions, because the caller already includes it';
GRANT SELECT ON rowsource_top_nodes TO PUBLIC;

CREATE VIEW rowsource_top_reads AS
    SELECT usename, datname, userid, datid, queryid, planid, toplevel, node_id, operation, object_name, processes,
           self_blks_read, nullif(self_blk_read_time, 0::float8) AS self_blk_read_time,
           100::float8 * CASE WHEN toplevel THEN self_blks_read::float8 END
               / nullif((pg_catalog.sum(self_blks_read) FILTER (WHERE toplevel) OVER ())::float8, 0::float8) AS percent
      FROM pg_stat_rowsource
     WHERE self_blks_read > 0::bigint
     ORDER BY self_blks_read DESC NULLS LAST;
COMMENT ON VIEW rowsource_top_reads IS 'The nodes that themselves read the most blocks of tables, indexes and temporary tables';
COMMENT ON COLUMN rowsource_top_reads.usename IS 'The user who ran the statement; NULL if the user was dropped';
COMMENT ON COLUMN rowsource_top_reads.datname IS 'The database in which the statement ran; NULL if it was dropped';
COMMENT ON COLUMN rowsource_top_reads.userid IS 'The OID of the user who ran the statement';
COMMENT ON COLUMN rowsource_top_reads.datid IS 'The OID of the database in which the statement ran';
COMMENT ON COLUMN rowsource_top_reads.queryid IS 'Identifies the statement, as in pg_stat_statements and pg_stat_activity';
COMMENT ON COLUMN rowsource_top_reads.planid IS 'Identifies the plan by its nodes, objects and strategies';
COMMENT ON COLUMN rowsource_top_reads.toplevel IS 'Whether a client sent the statement; false if another statement ran it: in a function, procedure or trigger';
COMMENT ON COLUMN rowsource_top_reads.node_id IS 'The number of the node in the plan, from 0 at the root, in the order of EXPLAIN';
COMMENT ON COLUMN rowsource_top_reads.operation IS 'What the node does, as EXPLAIN calls it';
COMMENT ON COLUMN rowsource_top_reads.object_name IS 'The index, table, function or other object that the node works on';
COMMENT ON COLUMN rowsource_top_reads.processes IS 'Processes that ran the node on average: 1, or more below a Gather. The times of all of them add up';
COMMENT ON COLUMN rowsource_top_reads.self_blks_read IS 'Blocks of tables, indexes and temporary tables that the node itself read';
COMMENT ON COLUMN rowsource_top_reads.self_blk_read_time IS 'Milliseconds reading these blocks; without track_io_timing, the waits for reads';
COMMENT ON COLUMN rowsource_top_reads.percent IS 'Percent of all client statements; NULL inside functions, because the caller already includes it';
GRANT SELECT ON rowsource_top_reads TO PUBLIC;

CREATE VIEW rowsource_top_temp AS
    SELECT n.usename, n.datname, n.userid, n.datid, n.queryid, n.planid, n.toplevel, n.node_id, n.operation,
           n.processes, n.self_temp_blks_written, n.self_temp_blks_read,
           nullif(n.self_temp_blk_time, 0::float8) AS self_temp_blk_time,
           100::float8 * CASE WHEN n.toplevel THEN t.blks::float8 END
               / nullif((pg_catalog.sum(t.blks) FILTER (WHERE n.toplevel) OVER ())::float8, 0::float8) AS percent
      FROM pg_stat_rowsource n, LATERAL (SELECT n.self_temp_blks_written + n.self_temp_blks_read AS blks) t
     WHERE t.blks > 0::bigint
     ORDER BY t.blks DESC NULLS LAST;
COMMENT ON VIEW rowsource_top_temp IS 'The nodes that themselves wrote and read the most blocks of work files';
COMMENT ON COLUMN rowsource_top_temp.usename IS 'The user who ran the statement; NULL if the user was dropped';
COMMENT ON COLUMN rowsource_top_temp.datname IS 'The database in which the statement ran; NULL if it was dropped';
COMMENT ON COLUMN rowsource_top_temp.userid IS 'The OID of the user who ran the statement';
COMMENT ON COLUMN rowsource_top_temp.datid IS 'The OID of the database in which the statement ran';
COMMENT ON COLUMN rowsource_top_temp.queryid IS 'Identifies the statement, as in pg_stat_statements and pg_stat_activity';
COMMENT ON COLUMN rowsource_top_temp.planid IS 'Identifies the plan by its nodes, objects and strategies';
COMMENT ON COLUMN rowsource_top_temp.toplevel IS 'Whether a client sent the statement; false if another statement ran it: in a function, procedure or trigger';
COMMENT ON COLUMN rowsource_top_temp.node_id IS 'The number of the node in the plan, from 0 at the root, in the order of EXPLAIN';
COMMENT ON COLUMN rowsource_top_temp.operation IS 'What the node does, as EXPLAIN calls it';
COMMENT ON COLUMN rowsource_top_temp.processes IS 'Processes that ran the node on average: 1, or more below a Gather. The times of all of them add up';
COMMENT ON COLUMN rowsource_top_temp.self_temp_blks_written IS 'Blocks of work files that the node itself wrote';
COMMENT ON COLUMN rowsource_top_temp.self_temp_blks_read IS 'Blocks of work files that the node itself read';
COMMENT ON COLUMN rowsource_top_temp.self_temp_blk_time IS 'Milliseconds writing and reading these blocks; NULL if they were not timed';
COMMENT ON COLUMN rowsource_top_temp.percent IS 'Percent of all client statements; NULL inside functions, because the caller already includes it';
GRANT SELECT ON rowsource_top_temp TO PUBLIC;

CREATE VIEW rowsource_top_rows_removed AS
    SELECT usename, datname, userid, datid, queryid, planid, toplevel, node_id, operation, object_name, rows_removed, rows,
           self_time, self_time_error,
           100::float8 * CASE WHEN toplevel THEN rows_removed::float8 END
               / nullif((pg_catalog.sum(rows_removed) FILTER (WHERE toplevel) OVER ())::float8, 0::float8) AS percent
      FROM pg_stat_rowsource
     WHERE rows_removed > 0::bigint
     ORDER BY rows_removed DESC NULLS LAST;
COMMENT ON VIEW rowsource_top_rows_removed IS 'The nodes whose filters, join filters and rechecks removed the most rows';
COMMENT ON COLUMN rowsource_top_rows_removed.usename IS 'The user who ran the statement; NULL if the user was dropped';
COMMENT ON COLUMN rowsource_top_rows_removed.datname IS 'The database in which the statement ran; NULL if it was dropped';
COMMENT ON COLUMN rowsource_top_rows_removed.userid IS 'The OID of the user who ran the statement';
COMMENT ON COLUMN rowsource_top_rows_removed.datid IS 'The OID of the database in which the statement ran';
COMMENT ON COLUMN rowsource_top_rows_removed.queryid IS 'Identifies the statement, as in pg_stat_statements and pg_stat_activity';
COMMENT ON COLUMN rowsource_top_rows_removed.planid IS 'Identifies the plan by its nodes, objects and strategies';
COMMENT ON COLUMN rowsource_top_rows_removed.toplevel IS 'Whether a client sent the statement; false if another statement ran it: in a function, procedure or trigger';
COMMENT ON COLUMN rowsource_top_rows_removed.node_id IS 'The number of the node in the plan, from 0 at the root, in the order of EXPLAIN';
COMMENT ON COLUMN rowsource_top_rows_removed.operation IS 'What the node does, as EXPLAIN calls it';
COMMENT ON COLUMN rowsource_top_rows_removed.object_name IS 'The index, table, function or other object that the node works on';
COMMENT ON COLUMN rowsource_top_rows_removed.rows_removed IS 'Rows that filters, join filters and rechecks of the node removed';
COMMENT ON COLUMN rowsource_top_rows_removed.rows IS 'Rows that the node returned';
COMMENT ON COLUMN rowsource_top_rows_removed.self_time IS 'Milliseconds in the node itself, without the nodes below it. The times of parallel processes add up';
COMMENT ON COLUMN rowsource_top_rows_removed.self_time_error IS 'One standard error of self_time, in milliseconds';
COMMENT ON COLUMN rowsource_top_rows_removed.percent IS 'Percent of all client statements; NULL inside functions, because the caller already includes it';
GRANT SELECT ON rowsource_top_rows_removed TO PUBLIC;

CREATE VIEW rowsource_top_waits AS
    SELECT w.usename, w.datname, w.userid, w.datid, w.queryid, w.planid, w.toplevel, w.node_id,
           CASE WHEN w.queryid IS NOT NULL AND w.node_id IS NULL THEN 'outside the nodes'::text ELSE n.operation END AS operation,
           n.object_name, w.wait_event_type, w.wait_event, w.waits, w.wait_time,
           100::float8 * CASE WHEN w.toplevel THEN w.wait_time END
               / nullif(pg_catalog.sum(w.wait_time) FILTER (WHERE w.toplevel) OVER (), 0::float8) AS percent
      FROM pg_stat_rowsource_waits w
           LEFT JOIN pg_stat_rowsource n
           ON n.userid = w.userid AND n.datid = w.datid AND n.queryid = w.queryid AND n.planid = w.planid
              AND n.toplevel = w.toplevel AND n.node_id = w.node_id
     ORDER BY w.wait_time DESC NULLS LAST;
COMMENT ON VIEW rowsource_top_waits IS 'What statements waited for the longest, by node and wait event';
COMMENT ON COLUMN rowsource_top_waits.usename IS 'The user who ran the statement; NULL if the user was dropped';
COMMENT ON COLUMN rowsource_top_waits.datname IS 'The database in which the statement ran; NULL if it was dropped';
COMMENT ON COLUMN rowsource_top_waits.userid IS 'The OID of the user who ran the statement';
COMMENT ON COLUMN rowsource_top_waits.datid IS 'The OID of the database in which the statement ran';
COMMENT ON COLUMN rowsource_top_waits.queryid IS 'Identifies the statement, as in pg_stat_statements and pg_stat_activity';
COMMENT ON COLUMN rowsource_top_waits.planid IS 'Identifies the plan by its nodes, objects and strategies';
COMMENT ON COLUMN rowsource_top_waits.toplevel IS 'Whether a client sent the statement; false if another statement ran it: in a function, procedure or trigger';
COMMENT ON COLUMN rowsource_top_waits.node_id IS 'The number of the node that waited, from 0 at the root, in the order of EXPLAIN; NULL outside of the nodes';
COMMENT ON COLUMN rowsource_top_waits.operation IS 'What the node does, as EXPLAIN calls it; outside the nodes: planning, commit, and sending rows to the client';
COMMENT ON COLUMN rowsource_top_waits.object_name IS 'The index, table, function or other object that the node works on';
COMMENT ON COLUMN rowsource_top_waits.wait_event_type IS 'The type of the event, as in pg_stat_activity; NULL for the row other';
COMMENT ON COLUMN rowsource_top_waits.wait_event IS 'The event, as in pg_stat_activity. other: all other events of the plan';
COMMENT ON COLUMN rowsource_top_waits.waits IS 'Waits, also those of parallel workers in this node';
COMMENT ON COLUMN rowsource_top_waits.wait_time IS 'Milliseconds of these waits. The times of parallel processes add up';
COMMENT ON COLUMN rowsource_top_waits.percent IS 'Percent of all client statements; NULL inside functions, because the caller already includes it';
GRANT SELECT ON rowsource_top_waits TO PUBLIC;

CREATE VIEW rowsource_wal AS
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
     ORDER BY pg_catalog.sum(s.wal_bytes) DESC;
COMMENT ON VIEW rowsource_wal IS 'The WAL that measured statements wrote, by operation and object';
COMMENT ON COLUMN rowsource_wal.datname IS 'The database in which the statement ran; NULL if it was dropped';
COMMENT ON COLUMN rowsource_wal.datid IS 'The OID of the database in which the statement ran';
COMMENT ON COLUMN rowsource_wal.operation IS 'What the node did, as EXPLAIN calls it; outside the nodes: the rest of a statement; others: statements whose plans are not stored';
COMMENT ON COLUMN rowsource_wal.object_name IS 'The index, table, function or other object that the node works on';
COMMENT ON COLUMN rowsource_wal.toplevel IS 'Whether a client sent the statement; false if another statement ran it: in a function, procedure or trigger';
COMMENT ON COLUMN rowsource_wal.wal_records IS 'WAL records';
COMMENT ON COLUMN rowsource_wal.wal_fpi IS 'Full page images in the WAL';
COMMENT ON COLUMN rowsource_wal.wal_bytes IS 'Bytes of WAL';
COMMENT ON COLUMN rowsource_wal.percent IS 'Percent of all client statements; NULL inside functions, because the caller already includes it';
COMMENT ON COLUMN rowsource_wal.query IS 'The text of the statement that wrote the WAL outside its nodes; NULL for nodes';
GRANT SELECT ON rowsource_wal TO PUBLIC;

CREATE FUNCTION rowsource_tempfile_usage(
    OUT pid int,
    OUT usename name,
    OUT datname name,
    OUT userid oid,
    OUT datid oid,
    OUT queryid bigint,
    OUT filetype text,
    OUT files bigint,
    OUT bytes bigint,
    OUT wait_time float8,
    OUT percent float8
) RETURNS SETOF record
LANGUAGE SQL VOLATILE PARALLEL RESTRICTED
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
END;
COMMENT ON FUNCTION rowsource_tempfile_usage() IS 'Shows who uses temporary space now: a row per process and type of file';

CREATE VIEW rowsource_blockers AS
    WITH RECURSIVE wanted AS MATERIALIZED (
        -- Who waits for the end of a transaction to lock a row has locked the row's place.
        SELECT l.pid, pg_catalog.max(l.locktype) FILTER (WHERE NOT l.granted) AS locktype,
               pg_catalog.max(l.mode) FILTER (WHERE NOT l.granted) AS mode,
               pg_catalog.max(l.waitstart) AS waitstart,
               (pg_catalog.array_agg(l.database ORDER BY l.granted) FILTER (WHERE l.relation IS NOT NULL))[1] AS database,
               (pg_catalog.array_agg(l.relation ORDER BY l.granted) FILTER (WHERE l.relation IS NOT NULL))[1] AS relation
          FROM pg_catalog.pg_locks l
         WHERE NOT l.granted OR l.locktype = 'tuple'::text
         GROUP BY l.pid
        HAVING pg_catalog.count(*) FILTER (WHERE NOT l.granted) > 0::bigint
    ), waiting AS MATERIALIZED (
        SELECT l.pid, b.pid AS blocking_pid
          FROM wanted l CROSS JOIN LATERAL (SELECT (pg_catalog.pg_blocking_pids(l.pid))[1] AS pid) b
         WHERE b.pid IS NOT NULL
    ), tree AS (
        SELECT DISTINCT r.blocking_pid AS root_pid, 0 AS depth, r.blocking_pid AS pid, NULL::int AS blocking_pid,
               ARRAY[r.blocking_pid] AS path
          FROM waiting r
         WHERE NOT EXISTS (SELECT FROM waiting o WHERE o.pid = r.blocking_pid)
        UNION ALL
        SELECT t.root_pid, t.depth + 1, w.pid, w.blocking_pid, pg_catalog.array_append(t.path, w.pid)
          FROM tree t JOIN waiting w ON w.blocking_pid = t.pid
    )
    SELECT t.root_pid, pg_catalog.count(*) OVER (PARTITION BY t.root_pid) - 1::bigint AS blocked_sessions, t.depth, t.pid, t.blocking_pid,
           a.usesysid AS userid, a.usename, a.datid, a.datname, a.application_name,
           CASE WHEN t.pid = 0 THEN 'prepared transaction'::text ELSE a.state END AS state, a.xact_start,
           w.locktype, w.mode,
           CASE WHEN w.database IN (0::oid, d.oid) THEN w.relation::pg_catalog.regclass::text ELSE w.relation::text END AS relation,
           w.waitstart, a.query_id AS queryid, a.query
      FROM tree t
           LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = t.pid
           LEFT JOIN wanted w ON w.pid = t.pid
           LEFT JOIN pg_catalog.pg_database d ON d.datname = pg_catalog.current_database()
     ORDER BY blocked_sessions DESC, t.path;
COMMENT ON VIEW rowsource_blockers IS 'Who waits for whom now: a tree for each session that others wait for and that waits for no lock itself';
COMMENT ON COLUMN rowsource_blockers.root_pid IS 'The session at the root of the tree: all the others in it wait for it';
COMMENT ON COLUMN rowsource_blockers.blocked_sessions IS 'How many sessions wait for the root, directly or behind others';
COMMENT ON COLUMN rowsource_blockers.depth IS '0 for the root, 1 for those that wait for it, 2 for those that wait for these';
COMMENT ON COLUMN rowsource_blockers.pid IS 'The process of the session; 0 is a prepared transaction';
COMMENT ON COLUMN rowsource_blockers.blocking_pid IS 'The process that it waits for; NULL for the root';
COMMENT ON COLUMN rowsource_blockers.userid IS 'The OID of its user';
COMMENT ON COLUMN rowsource_blockers.usename IS 'Its user';
COMMENT ON COLUMN rowsource_blockers.datid IS 'The OID of its database';
COMMENT ON COLUMN rowsource_blockers.datname IS 'Its database';
COMMENT ON COLUMN rowsource_blockers.application_name IS 'The name of its application';
COMMENT ON COLUMN rowsource_blockers.state IS 'What it does, as in pg_stat_activity; NULL, as is what follows, if you may not see that';
COMMENT ON COLUMN rowsource_blockers.xact_start IS 'When its transaction began';
COMMENT ON COLUMN rowsource_blockers.locktype IS 'The kind of what it waits to lock, as in pg_locks';
COMMENT ON COLUMN rowsource_blockers.mode IS 'The mode in which it waits to lock that';
COMMENT ON COLUMN rowsource_blockers.relation IS 'The relation that it waits to lock, or a row of it; of another database, its OID as text';
COMMENT ON COLUMN rowsource_blockers.waitstart IS 'When it began to wait';
COMMENT ON COLUMN rowsource_blockers.queryid IS 'Identifies its statement, or its last one if it is idle';
COMMENT ON COLUMN rowsource_blockers.query IS 'The text of that statement';
GRANT SELECT ON rowsource_blockers TO PUBLIC;

CREATE TABLE rowsource_snapshots (
    snap_id bigint GENERATED BY DEFAULT AS IDENTITY (SEQUENCE NAME rowsource_snapshots_snap_id_seq) PRIMARY KEY,
    taken_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    active_time float8,
    bytes bigint,
    format_version int NOT NULL DEFAULT 4 CONSTRAINT snapshot_of_this_version CHECK (format_version = 4),
    is_thinned boolean NOT NULL DEFAULT false,
    is_kept boolean NOT NULL DEFAULT false,
    first_sample_at timestamptz,
    last_sample_at timestamptz,
    sampled_moments bigint NOT NULL DEFAULT 0
);
COMMENT ON SEQUENCE rowsource_snapshots_snap_id_seq IS 'Numbers the snapshots';
COMMENT ON TABLE rowsource_snapshots IS 'The snapshots that rowsource_snapshot() took. A snapshot that is deleted here is deleted from all tables';
COMMENT ON COLUMN rowsource_snapshots.snap_id IS 'The number of the snapshot';
COMMENT ON COLUMN rowsource_snapshots.taken_at IS 'When the snapshot was taken';
COMMENT ON COLUMN rowsource_snapshots.active_time IS 'Milliseconds of all statements that had ended, in all databases, as in pg_stat_database';
COMMENT ON COLUMN rowsource_snapshots.bytes IS 'Bytes that it takes on disk, with indexes, about; NULL: the next snapshot adds them up';
COMMENT ON COLUMN rowsource_snapshots.format_version IS 'The format of its rows in all tables. Rows of another one cannot be copied into them';
COMMENT ON COLUMN rowsource_snapshots.is_thinned IS 'Whether its samples are those of one moment in a thousand';
COMMENT ON COLUMN rowsource_snapshots.is_kept IS 'Whether it is of a baseline, and stays as it is';
COMMENT ON COLUMN rowsource_snapshots.first_sample_at IS 'The first moment at which the sessions were sampled and which it has stored; NULL if there is none';
COMMENT ON COLUMN rowsource_snapshots.last_sample_at IS 'The last one that was stored until then. The next snapshot stores those after it';
COMMENT ON COLUMN rowsource_snapshots.sampled_moments IS 'How many moments it has stored. Those at which no session was active have no samples';
GRANT SELECT ON rowsource_snapshots TO PUBLIC;

CREATE TABLE rowsource_snapshot_tempfile_io (
    snap_id bigint NOT NULL REFERENCES rowsource_snapshots ON DELETE CASCADE,
    datid oid NOT NULL,
    datname name,
    filetype text NOT NULL,
    small_reads bigint,
    small_read_bytes bigint,
    small_read_time float8,
    large_reads bigint,
    large_read_bytes bigint,
    large_read_time float8,
    small_writes bigint,
    small_write_bytes bigint,
    small_write_time float8,
    large_writes bigint,
    large_write_bytes bigint,
    large_write_time float8,
    source text NOT NULL,
    stats_reset timestamptz NOT NULL
);
ALTER TABLE rowsource_snapshot_tempfile_io ADD PRIMARY KEY (snap_id, datid, filetype, stats_reset);
COMMENT ON TABLE rowsource_snapshot_tempfile_io IS 'The counters of temporary files in each snapshot';
COMMENT ON COLUMN rowsource_snapshot_tempfile_io.snap_id IS 'The number of the snapshot';
COMMENT ON COLUMN rowsource_snapshot_tempfile_io.datid IS 'The OID of the database; 0 for processes without one, 4294967295 if several databases share one set of counters';
COMMENT ON COLUMN rowsource_snapshot_tempfile_io.datname IS 'The database';
COMMENT ON COLUMN rowsource_snapshot_tempfile_io.filetype IS 'work file (sorts, hashes, materialised results) or temp table';
COMMENT ON COLUMN rowsource_snapshot_tempfile_io.small_reads IS 'Read requests of one block or less until the snapshot';
COMMENT ON COLUMN rowsource_snapshot_tempfile_io.small_read_bytes IS 'Bytes read by these requests until the snapshot';
COMMENT ON COLUMN rowsource_snapshot_tempfile_io.small_read_time IS 'Milliseconds of these requests; NULL if they were not timed until the snapshot';
COMMENT ON COLUMN rowsource_snapshot_tempfile_io.large_reads IS 'Read requests of more than one block until the snapshot';
COMMENT ON COLUMN rowsource_snapshot_tempfile_io.large_read_bytes IS 'Bytes read by these requests until the snapshot';
COMMENT ON COLUMN rowsource_snapshot_tempfile_io.large_read_time IS 'Milliseconds of these requests; NULL if they were not timed until the snapshot';
COMMENT ON COLUMN rowsource_snapshot_tempfile_io.small_writes IS 'Write requests of one block or less until the snapshot';
COMMENT ON COLUMN rowsource_snapshot_tempfile_io.small_write_bytes IS 'Bytes written by these requests until the snapshot';
COMMENT ON COLUMN rowsource_snapshot_tempfile_io.small_write_time IS 'Milliseconds of these requests; NULL if they were not timed until the snapshot';
COMMENT ON COLUMN rowsource_snapshot_tempfile_io.large_writes IS 'Write requests of more than one block until the snapshot';
COMMENT ON COLUMN rowsource_snapshot_tempfile_io.large_write_bytes IS 'Bytes written by these requests until the snapshot';
COMMENT ON COLUMN rowsource_snapshot_tempfile_io.large_write_time IS 'Milliseconds of these requests; NULL if they were not timed until the snapshot';
COMMENT ON COLUMN rowsource_snapshot_tempfile_io.source IS 'request: each request was counted. counter: core counted the blocks';
COMMENT ON COLUMN rowsource_snapshot_tempfile_io.stats_reset IS 'When these counters were last reset';
GRANT SELECT ON rowsource_snapshot_tempfile_io TO PUBLIC;

CREATE TABLE rowsource_snapshot_waits (
    snap_id bigint NOT NULL REFERENCES rowsource_snapshots ON DELETE CASCADE,
    backend_type text NOT NULL,
    wait_event_type text NOT NULL,
    wait_event text NOT NULL,
    waits bigint NOT NULL,
    wait_time float8 NOT NULL,
    stats_reset timestamptz NOT NULL
);
ALTER TABLE rowsource_snapshot_waits ADD PRIMARY KEY (snap_id, backend_type, wait_event_type, wait_event, stats_reset);
COMMENT ON TABLE rowsource_snapshot_waits IS 'The waits of all processes in each snapshot';
COMMENT ON COLUMN rowsource_snapshot_waits.snap_id IS 'The number of the snapshot';
COMMENT ON COLUMN rowsource_snapshot_waits.backend_type IS 'The type of the processes';
COMMENT ON COLUMN rowsource_snapshot_waits.wait_event_type IS 'The type of the event, as in pg_stat_activity; empty if the event has no counters of its own';
COMMENT ON COLUMN rowsource_snapshot_waits.wait_event IS 'The event, as in pg_stat_activity. other: all events that have no counters of their own';
COMMENT ON COLUMN rowsource_snapshot_waits.waits IS 'Waits since stats_reset';
COMMENT ON COLUMN rowsource_snapshot_waits.wait_time IS 'Milliseconds of these waits';
COMMENT ON COLUMN rowsource_snapshot_waits.stats_reset IS 'When the server started to count them';
GRANT SELECT ON rowsource_snapshot_waits TO PUBLIC;

CREATE TABLE rowsource_snapshot_plans (
    snap_id bigint NOT NULL REFERENCES rowsource_snapshots ON DELETE CASCADE,
    userid oid NOT NULL,
    datid oid NOT NULL,
    queryid bigint NOT NULL,
    planid bigint NOT NULL,
    toplevel boolean NOT NULL,
    query text NOT NULL,
    textid bigint,
    gone_indexes text[],
    first_seen_at timestamptz NOT NULL,
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
    statistics bytea
);
ALTER TABLE rowsource_snapshot_plans ADD PRIMARY KEY (snap_id, userid, datid, queryid, planid, toplevel, first_seen_at);
-- rowsource_interval_plans uses this index to find the previous snapshot of each plan.
CREATE INDEX rowsource_snapshot_plans_plan_idx
    ON rowsource_snapshot_plans (queryid, planid, userid, datid, toplevel, snap_id);
COMMENT ON TABLE rowsource_snapshot_plans IS 'The plans that ran before each snapshot and after the previous one. For those with the privileges of pg_read_all_stats, and for others after GRANT pg_read_all_stats TO them';
COMMENT ON COLUMN rowsource_snapshot_plans.snap_id IS 'The number of the snapshot';
COMMENT ON COLUMN rowsource_snapshot_plans.userid IS 'The OID of the user who ran the statement';
COMMENT ON COLUMN rowsource_snapshot_plans.datid IS 'The OID of the database in which the statement ran';
COMMENT ON COLUMN rowsource_snapshot_plans.queryid IS 'Identifies the statement, as in pg_stat_statements and pg_stat_activity';
COMMENT ON COLUMN rowsource_snapshot_plans.planid IS 'Identifies the plan by its nodes, objects and strategies';
COMMENT ON COLUMN rowsource_snapshot_plans.toplevel IS 'Whether a client sent the statement; false if another statement ran it: in a function, procedure or trigger';
COMMENT ON COLUMN rowsource_snapshot_plans.query IS 'The text of the statement';
COMMENT ON COLUMN rowsource_snapshot_plans.textid IS 'Identifies the statement by its text: the same on each server';
COMMENT ON COLUMN rowsource_snapshot_plans.gone_indexes IS 'The indexes that the query''s plan before used and that were gone when this plan was first seen; NULL if none';
COMMENT ON COLUMN rowsource_snapshot_plans.first_seen_at IS 'When the first execution ended';
COMMENT ON COLUMN rowsource_snapshot_plans.calls IS 'Executions, including failed and cancelled ones until the snapshot';
COMMENT ON COLUMN rowsource_snapshot_plans.failed_calls IS 'Executions that an error ended until the snapshot';
COMMENT ON COLUMN rowsource_snapshot_plans.cancelled_calls IS 'Executions that a cancel request or a timeout ended until the snapshot';
COMMENT ON COLUMN rowsource_snapshot_plans.total_time IS 'Milliseconds of all executions until the snapshot';
COMMENT ON COLUMN rowsource_snapshot_plans.rows IS 'Rows that the plan returned or changed until the snapshot';
COMMENT ON COLUMN rowsource_snapshot_plans.shared_blks_hit IS 'Blocks of tables and indexes found in shared buffers until the snapshot';
COMMENT ON COLUMN rowsource_snapshot_plans.shared_blks_read IS 'Blocks of tables and indexes read until the snapshot';
COMMENT ON COLUMN rowsource_snapshot_plans.temp_blks_read IS 'Blocks of work files (sorts, hashes, materialised results) read until the snapshot';
COMMENT ON COLUMN rowsource_snapshot_plans.temp_blks_written IS 'Blocks of work files written until the snapshot';
COMMENT ON COLUMN rowsource_snapshot_plans.temp_blk_read_time IS 'Milliseconds reading blocks of work files until the snapshot';
COMMENT ON COLUMN rowsource_snapshot_plans.temp_blk_write_time IS 'Milliseconds writing blocks of work files until the snapshot';
COMMENT ON COLUMN rowsource_snapshot_plans.statistics IS 'The statistics of the nodes until the snapshot. rowsource_display_snapshot() shows them';
GRANT SELECT ON rowsource_snapshot_plans TO pg_read_all_stats;

CREATE TABLE rowsource_snapshot_descriptions (
    userid oid NOT NULL,
    datid oid NOT NULL,
    queryid bigint NOT NULL,
    planid bigint NOT NULL,
    toplevel boolean NOT NULL,
    first_snap_id bigint NOT NULL,
    description bytea NOT NULL
);
ALTER TABLE rowsource_snapshot_descriptions ADD PRIMARY KEY (queryid, planid, userid, datid, toplevel);
COMMENT ON TABLE rowsource_snapshot_descriptions IS 'The nodes of the plans in the snapshots: once per plan. For those with the privileges of pg_read_all_stats, and for others after GRANT pg_read_all_stats TO them';
COMMENT ON COLUMN rowsource_snapshot_descriptions.userid IS 'The OID of the user who ran the statement';
COMMENT ON COLUMN rowsource_snapshot_descriptions.datid IS 'The OID of the database in which the statement ran';
COMMENT ON COLUMN rowsource_snapshot_descriptions.queryid IS 'Identifies the statement, as in pg_stat_statements and pg_stat_activity';
COMMENT ON COLUMN rowsource_snapshot_descriptions.planid IS 'Identifies the plan by its nodes, objects and strategies';
COMMENT ON COLUMN rowsource_snapshot_descriptions.toplevel IS 'Whether a client sent the statement; false if another statement ran it: in a function, procedure or trigger';
COMMENT ON COLUMN rowsource_snapshot_descriptions.first_snap_id IS 'The first snapshot with this plan';
COMMENT ON COLUMN rowsource_snapshot_descriptions.description IS 'The text of the statement, the nodes, their estimates and predicates. rowsource_display_snapshot() shows them';
GRANT SELECT ON rowsource_snapshot_descriptions TO pg_read_all_stats;

CREATE TABLE rowsource_snapshot_ash (
    snap_id bigint NOT NULL REFERENCES rowsource_snapshots ON DELETE CASCADE,
    sample_time timestamptz NOT NULL,
    pid int NOT NULL,
    leader_pid int,
    backend_type text,
    userid oid,
    datid oid,
    application_name text,
    queryid bigint,
    planid bigint,
    toplevel boolean,
    node_id int,
    operation text,
    object_name text,
    wait_event_type text,
    wait_event text,
    blocking_pid int,
    moments int NOT NULL DEFAULT 10,
    mode text,
    command text
);
ALTER TABLE rowsource_snapshot_ash ADD PRIMARY KEY (sample_time, pid);
CREATE INDEX rowsource_snapshot_ash_snap_id_idx ON rowsource_snapshot_ash (snap_id);
COMMENT ON TABLE rowsource_snapshot_ash IS 'The samples of active sessions that a snapshot stored: those of one moment in a tenth of a second, or of fewer. For those with the privileges of pg_read_all_stats, and for others after GRANT pg_read_all_stats TO them';
COMMENT ON COLUMN rowsource_snapshot_ash.snap_id IS 'The number of the snapshot';
COMMENT ON COLUMN rowsource_snapshot_ash.sample_time IS 'When the session was sampled';
COMMENT ON COLUMN rowsource_snapshot_ash.pid IS 'The process of the session';
COMMENT ON COLUMN rowsource_snapshot_ash.leader_pid IS 'If the process is a parallel worker, the process of its leader';
COMMENT ON COLUMN rowsource_snapshot_ash.backend_type IS 'The type of the process';
COMMENT ON COLUMN rowsource_snapshot_ash.userid IS 'The OID of the user of the statement; NULL for a process without a user, such as an autovacuum worker';
COMMENT ON COLUMN rowsource_snapshot_ash.datid IS 'The OID of the database of the session; NULL for a process without a database';
COMMENT ON COLUMN rowsource_snapshot_ash.application_name IS 'The name of the application';
COMMENT ON COLUMN rowsource_snapshot_ash.queryid IS 'Identifies the statement that ran, the innermost that is measured; NULL if it is not known';
COMMENT ON COLUMN rowsource_snapshot_ash.planid IS 'Identifies its plan; NULL if no measured plan runs: also during parsing, planning and commit, or while the statement waits for its table';
COMMENT ON COLUMN rowsource_snapshot_ash.toplevel IS 'Whether a client sent the statement; false if another statement ran it: in a function, procedure or trigger';
COMMENT ON COLUMN rowsource_snapshot_ash.node_id IS 'The node that ran; NULL if none did: during planning or commit, or while rows were sent';
COMMENT ON COLUMN rowsource_snapshot_ash.operation IS 'What the node does, as in EXPLAIN; NULL if the plan is not stored any more';
COMMENT ON COLUMN rowsource_snapshot_ash.object_name IS 'The table, index, function or other object that the node works on';
COMMENT ON COLUMN rowsource_snapshot_ash.wait_event_type IS 'The type of the event that the session waited for; NULL if it was on the processor, or waited for it';
COMMENT ON COLUMN rowsource_snapshot_ash.wait_event IS 'The event that the session waited for';
COMMENT ON COLUMN rowsource_snapshot_ash.blocking_pid IS 'The process that the session waited for, if it waited for a heavyweight lock and that is known; 0 is a prepared transaction';
COMMENT ON COLUMN rowsource_snapshot_ash.moments IS 'How many moments the sample stands for: more if fewer were kept, and after a day; 0 of a session that others waited for: it may have been idle';
COMMENT ON COLUMN rowsource_snapshot_ash.mode IS 'The mode in which the session waited to lock, if it waited for a heavyweight lock';
COMMENT ON COLUMN rowsource_snapshot_ash.command IS 'What kind of command ran, if it has no plan';
GRANT SELECT ON rowsource_snapshot_ash TO pg_read_all_stats;

CREATE TABLE rowsource_baselines (
    name text PRIMARY KEY,
    from_at timestamptz NOT NULL,
    to_at timestamptz NOT NULL,
    created_at timestamptz NOT NULL DEFAULT pg_catalog.now()
);
COMMENT ON TABLE rowsource_baselines IS 'Intervals that were given a name. Their snapshots stay as they are';
COMMENT ON COLUMN rowsource_baselines.name IS 'The name';
COMMENT ON COLUMN rowsource_baselines.from_at IS 'When the interval began: the moment of a snapshot';
COMMENT ON COLUMN rowsource_baselines.to_at IS 'When the interval ended: the moment of a snapshot';
COMMENT ON COLUMN rowsource_baselines.created_at IS 'When the name was given';
GRANT SELECT ON rowsource_baselines TO PUBLIC;

CREATE TABLE rowsource_imported (
    origin text NOT NULL,
    table_name text NOT NULL,
    snap_id bigint,
    content jsonb NOT NULL,
    hash text NOT NULL
);
ALTER TABLE rowsource_imported ADD PRIMARY KEY (origin, table_name, hash);
-- rowsource_interval_plans uses this index to find the snapshots of a plan.
CREATE INDEX rowsource_imported_plan_idx ON rowsource_imported (origin, table_name, (content ->> 'queryid'::text));
COMMENT ON TABLE rowsource_imported IS 'The history of other servers, which rowsource_import() has read. For those with the privileges of pg_read_all_stats, and for others after GRANT pg_read_all_stats TO them';
COMMENT ON COLUMN rowsource_imported.origin IS 'The server that it is of: its system_identifier';
COMMENT ON COLUMN rowsource_imported.table_name IS 'The table there that has the row';
COMMENT ON COLUMN rowsource_imported.snap_id IS 'The number of its snapshot there; NULL for descriptions of plans and for baselines';
COMMENT ON COLUMN rowsource_imported.content IS 'The row, with the names of its user and its database';
COMMENT ON COLUMN rowsource_imported.hash IS 'Tells rows apart';
GRANT SELECT ON rowsource_imported TO pg_read_all_stats;

CREATE FUNCTION _rowsource_tempfile_io(
    snap_id bigint
) RETURNS SETOF rowsource_snapshot_tempfile_io
LANGUAGE SQL STABLE PARALLEL RESTRICTED
BEGIN ATOMIC
    SELECT _rowsource_tempfile_io.snap_id, coalesce(i.datid, 4294967295::oid), i.datname, i.filetype,
           i.small_reads, i.small_read_bytes, i.small_read_time,
           i.large_reads, i.large_read_bytes, i.large_read_time,
           i.small_writes, i.small_write_bytes, i.small_write_time,
           i.large_writes, i.large_write_bytes, i.large_write_time,
           i.source, i.stats_reset
      FROM pg_stat_rowsource_tempfile_io i
     WHERE NOT EXISTS (SELECT FROM _rowsource_excluded() x WHERE x.datid = i.datid);
END;
COMMENT ON FUNCTION _rowsource_tempfile_io(bigint) IS 'Internal: the counters of temporary files, as a snapshot of this number stores them. Everyone may call it, because rowsource_interval_tempfile_io does so with the rights of who reads it';

CREATE FUNCTION rowsource_snapshot_bytes(
    snap_id bigint
) RETURNS bigint
LANGUAGE SQL STABLE PARALLEL RESTRICTED
BEGIN ATOMIC
    SELECT ((SELECT coalesce(pg_catalog.sum(pg_catalog.pg_column_size(a.*) + 50), 0::bigint)
              FROM rowsource_snapshot_ash a WHERE a.snap_id = rowsource_snapshot_bytes.snap_id)
         + (SELECT coalesce(pg_catalog.sum(pg_catalog.pg_column_size(w.*) + 98), 0::bigint)
              FROM rowsource_snapshot_waits w WHERE w.snap_id = rowsource_snapshot_bytes.snap_id)
         + (SELECT coalesce(pg_catalog.sum(pg_catalog.pg_column_size(i.*) + 68), 0::bigint)
              FROM rowsource_snapshot_tempfile_io i WHERE i.snap_id = rowsource_snapshot_bytes.snap_id)
         + (SELECT coalesce(pg_catalog.sum(pg_catalog.pg_column_size(p.query)
                                           + coalesce(pg_catalog.pg_column_size(p.statistics), 0) + 358), 0::bigint)
              FROM rowsource_snapshot_plans p WHERE p.snap_id = rowsource_snapshot_bytes.snap_id)
         + (SELECT coalesce(pg_catalog.sum(pg_catalog.pg_column_size(d.description) + 165), 0::bigint)
              FROM rowsource_snapshot_descriptions d WHERE d.first_snap_id = rowsource_snapshot_bytes.snap_id))::bigint;
END;
COMMENT ON FUNCTION rowsource_snapshot_bytes(bigint) IS 'Internal: the bytes that a snapshot takes on disk, with indexes, about';
REVOKE ALL ON FUNCTION rowsource_snapshot_bytes(bigint) FROM PUBLIC;

CREATE FUNCTION rowsource_snapshot() RETURNS bigint
LANGUAGE SQL VOLATILE PARALLEL UNSAFE SECURITY DEFINER
BEGIN ATOMIC
    SELECT rowsource_check_writable(t.rel)
      FROM (VALUES ('rowsource_snapshots'::regclass), ('rowsource_snapshot_tempfile_io'::regclass),
                   ('rowsource_snapshot_waits'::regclass), ('rowsource_snapshot_plans'::regclass),
                   ('rowsource_snapshot_descriptions'::regclass), ('rowsource_snapshot_ash'::regclass)) t (rel);
    WITH earlier AS MATERIALIZED (
        SELECT pg_catalog.max(taken_at) AS taken_at, pg_catalog.max(last_sample_at) AS last_sample_at FROM rowsource_snapshots
    ), snapshot AS (
        INSERT INTO rowsource_snapshots (active_time, first_sample_at, last_sample_at, sampled_moments)
        SELECT (SELECT pg_catalog.sum(d.active_time) FROM pg_catalog.pg_stat_database d),
               m.first_sample_at, coalesce(m.last_sample_at, e.last_sample_at), coalesce(m.sampled_moments, 0::bigint)
          FROM earlier e LEFT JOIN LATERAL rowsource_moments_to_store(e.last_sample_at) m ON true
        RETURNING snap_id, taken_at, last_sample_at
    ), tempfile_io AS (
        INSERT INTO rowsource_snapshot_tempfile_io
        SELECT i.* FROM snapshot s CROSS JOIN LATERAL _rowsource_tempfile_io(s.snap_id) i
    ), waits AS (
        INSERT INTO rowsource_snapshot_waits
        SELECT s.snap_id, w.backend_type, coalesce(w.wait_event_type, ''::text), w.wait_event, w.waits, w.wait_time, w.stats_reset
          FROM snapshot s, _rowsource_waits() w
    ), ash AS (
        INSERT INTO rowsource_snapshot_ash
        SELECT s.snap_id, a.*
          FROM snapshot s CROSS JOIN earlier e CROSS JOIN LATERAL rowsource_ash_to_store(e.last_sample_at, s.last_sample_at) a
            ON CONFLICT DO NOTHING
    ), stored AS MATERIALIZED (
        -- The only one here that reads the plans: each row of a plan has what it did until the same moment.
        SELECT n.userid, n.datid, n.queryid, n.planid, n.toplevel, n.query, n.textid, n.gone_indexes, n.first_seen_at,
               n.calls, n.failed_calls, n.cancelled_calls, n.total_time, n.rows, n.shared_blks_hit,
               n.shared_blks_read, n.temp_blks_read, n.temp_blks_written, n.temp_blk_read_time,
               n.temp_blk_write_time, n.description, n.statistics
          FROM earlier e CROSS JOIN LATERAL rowsource_plans_to_store(e.taken_at) n
         WHERE n.queryid IS NOT NULL AND NOT EXISTS (SELECT FROM _rowsource_excluded() x WHERE x.userid = n.userid OR x.datid = n.datid)
    ), plans AS (
        INSERT INTO rowsource_snapshot_plans
        SELECT s.snap_id, n.userid, n.datid, n.queryid, n.planid, n.toplevel, n.query, n.textid, n.gone_indexes,
               n.first_seen_at,
               n.calls, n.failed_calls, n.cancelled_calls, n.total_time, n.rows, n.shared_blks_hit,
               n.shared_blks_read, n.temp_blks_read, n.temp_blks_written, n.temp_blk_read_time,
               n.temp_blk_write_time, n.statistics
          FROM snapshot s CROSS JOIN stored n
    ), descriptions AS (
        INSERT INTO rowsource_snapshot_descriptions
        SELECT n.userid, n.datid, n.queryid, n.planid, n.toplevel, s.snap_id, n.description
          FROM snapshot s CROSS JOIN stored n
         WHERE n.description IS NOT NULL
            ON CONFLICT DO NOTHING
    )
    SELECT snap_id FROM snapshot;
    -- All that follows is done for a few old snapshots and many of their rows, and goes on with the next call: what takes too long
    -- would be rolled back for ever. First the plans of the snapshots that earlier calls deleted.
    DELETE FROM rowsource_snapshot_descriptions d
     WHERE d.ctid = ANY (ARRAY(
               SELECT u.ctid FROM rowsource_snapshot_descriptions u
                WHERE u.first_snap_id < (SELECT pg_catalog.min(snap_id) FROM rowsource_snapshots)
                      AND NOT EXISTS (
                          SELECT FROM rowsource_snapshot_plans p
                           WHERE p.userid = u.userid AND p.datid = u.datid AND p.queryid = u.queryid AND p.planid = u.planid
                                 AND p.toplevel = u.toplevel)
                LIMIT 20000::bigint));
    -- Samples are thinned after a day, or when newer snapshots take a third of what all may take: to those of one moment in a
    -- thousand. That is one in ten seconds, if 100 are sampled in a second. Those that stand for so many already stay, and
    -- the last one of each session that others waited for.
    WITH all_snapshots AS (
        SELECT snap_id, is_thinned, taken_at < pg_catalog.max(taken_at) OVER () - '1 day'::interval AS is_old,
               is_kept, pg_catalog.sum(bytes) OVER (ORDER BY is_kept DESC, snap_id DESC) AS bytes
          FROM rowsource_snapshots
    ), thick AS MATERIALIZED (
        SELECT snap_id FROM all_snapshots
         WHERE NOT is_thinned AND NOT is_kept
               AND (is_old OR bytes * 3::numeric > pg_catalog.pg_size_bytes(
                        nullif(pg_catalog.current_setting('pg_rowsource.snapshot_max_size', true), '0'::text))::numeric)
         ORDER BY snap_id LIMIT 2::bigint
    ), slice AS MATERIALIZED (
        SELECT a.ctid AS at,
               (pg_catalog.timestamp_hash(pg_catalog.timezone('UTC'::text, a.sample_time)) & 2147483647) % 1000 < a.moments AS stays
          FROM thick t JOIN rowsource_snapshot_ash a ON a.snap_id = t.snap_id
         WHERE a.moments < 1000
               AND (a.moments > 0 OR EXISTS (
                       SELECT FROM rowsource_snapshot_ash l
                        WHERE l.snap_id = a.snap_id AND l.pid = a.pid AND l.moments = 0 AND l.sample_time > a.sample_time))
         LIMIT 150000::bigint
    ), thinned AS (
        UPDATE rowsource_snapshots s SET is_thinned = true, bytes = NULL FROM thick t
         WHERE s.snap_id = t.snap_id AND (SELECT pg_catalog.count(*) FROM slice) < 150000::bigint
    ), left_out AS (
        DELETE FROM rowsource_snapshot_ash a WHERE a.ctid = ANY (ARRAY(SELECT s.at FROM slice s WHERE NOT s.stays))
    )
    UPDATE rowsource_snapshot_ash a SET moments = 1000 WHERE a.ctid = ANY (ARRAY(SELECT s.at FROM slice s WHERE s.stays));
    -- After two days the last snapshot of an hour stays, after a week that of a day (UTC), but not while the hour of a week ago begins
    -- in that day: the snapshots around it may be of an hour before, and a week may have an hour more. The one that stays gets the
    -- samples of the others, and the counters and plans that it does not have itself: those that were reset. The rest of them goes with
    -- them. Nothing moves past a snapshot that stays: the last ones of an hour go first, and those of a baseline divide it.
    WITH newest AS (
        SELECT pg_catalog.max(taken_at) AS taken_at FROM rowsource_snapshots
    ), aged AS (
        SELECT s.snap_id, s.taken_at,
               CASE WHEN s.is_kept OR NOT s.is_thinned OR s.taken_at >= pg_catalog.date_trunc('hour', n.taken_at - '2 days'::interval, 'UTC')
                    THEN NULL::text
                    WHEN s.taken_at < pg_catalog.date_trunc('day', n.taken_at - '7 days 03:00'::interval, 'UTC') THEN 'day'::text
                    ELSE 'hour'::text END AS unit
          FROM rowsource_snapshots s, newest n
    ), divided AS (
        SELECT snap_id, unit, pg_catalog.date_trunc(unit, taken_at, 'UTC') AS begins_at,
               pg_catalog.count(*) FILTER (WHERE unit IS NULL) OVER (ORDER BY snap_id) AS staying
          FROM aged
    ), units AS (
        SELECT snap_id, pg_catalog.max(snap_id) OVER (PARTITION BY unit, begins_at, staying) AS last_id
          FROM divided WHERE unit IS NOT NULL
    ), merged AS MATERIALIZED (
        SELECT snap_id, last_id FROM units WHERE snap_id < last_id ORDER BY last_id, snap_id DESC LIMIT 4::bigint
    ), samples AS (
        UPDATE rowsource_snapshot_ash a SET snap_id = m.last_id FROM merged m WHERE a.snap_id = m.snap_id
    ), tempfile_io AS (
        UPDATE rowsource_snapshot_tempfile_io c SET snap_id = m.last_id FROM merged m
         WHERE c.snap_id = m.snap_id
               AND NOT EXISTS (
                   SELECT FROM rowsource_snapshot_tempfile_io n
                    WHERE n.datid = c.datid AND n.filetype = c.filetype AND n.stats_reset = c.stats_reset
                          AND n.snap_id > c.snap_id AND n.snap_id <= m.last_id)
    ), waits AS (
        UPDATE rowsource_snapshot_waits c SET snap_id = m.last_id FROM merged m
         WHERE c.snap_id = m.snap_id
               AND NOT EXISTS (
                   SELECT FROM rowsource_snapshot_waits n
                    WHERE n.backend_type = c.backend_type AND n.wait_event_type = c.wait_event_type
                          AND n.wait_event = c.wait_event AND n.stats_reset = c.stats_reset
                          AND n.snap_id > c.snap_id AND n.snap_id <= m.last_id)
    ), plans AS (
        UPDATE rowsource_snapshot_plans p SET snap_id = m.last_id FROM merged m
         WHERE p.snap_id = m.snap_id
               AND NOT EXISTS (
                   SELECT FROM rowsource_snapshot_plans n
                    WHERE n.userid = p.userid AND n.datid = p.datid AND n.queryid = p.queryid AND n.planid = p.planid
                          AND n.toplevel = p.toplevel AND n.first_seen_at = p.first_seen_at
                          AND n.snap_id > p.snap_id AND n.snap_id <= m.last_id)
    ), descriptions AS (
        UPDATE rowsource_snapshot_descriptions d SET first_snap_id = m.last_id FROM merged m WHERE d.first_snap_id = m.snap_id
    ), grown AS (
        UPDATE rowsource_snapshots s
           SET bytes = NULL, sampled_moments = s.sampled_moments + a.sampled_moments, first_sample_at = least(s.first_sample_at, a.first_sample_at)
          FROM (SELECT m.last_id, pg_catalog.sum(k.sampled_moments)::bigint AS sampled_moments, pg_catalog.min(k.first_sample_at) AS first_sample_at
                  FROM merged m JOIN rowsource_snapshots k ON k.snap_id = m.snap_id
                 GROUP BY m.last_id) a
         WHERE s.snap_id = a.last_id
    )
    DELETE FROM rowsource_snapshots s USING merged m WHERE s.snap_id = m.snap_id;
    UPDATE rowsource_snapshots s SET bytes = rowsource_snapshot_bytes(s.snap_id)
     WHERE s.snap_id IN (SELECT n.snap_id FROM rowsource_snapshots n WHERE n.bytes IS NULL ORDER BY n.snap_id DESC LIMIT 8::bigint);
    -- What each plan that ran since the previous snapshot did in the newest baseline (0), at this hour a week ago (1) and yesterday (2):
    -- the background worker has no database, and compares with that. The hour is that between the snapshots around it.
    -- A row without a reference says that the plan ran: what the previous snapshot noted holds no more.
    WITH this AS MATERIALIZED (
        SELECT s.snap_id, s.taken_at FROM rowsource_snapshots s
         WHERE s.snap_id = pg_catalog.currval('rowsource_snapshots_snap_id_seq'::regclass)
    ), wanted (reference, from_at, to_at) AS (
        (SELECT 0, b.from_at, b.to_at FROM rowsource_baselines b ORDER BY b.created_at DESC, b.name LIMIT 1::bigint)
        UNION ALL SELECT 1, t.taken_at - '7 days 01:00'::interval, t.taken_at - '7 days'::interval FROM this t
        UNION ALL SELECT 2, t.taken_at - '1 day 01:00'::interval, t.taken_at - '1 day'::interval FROM this t
    ), ends AS MATERIALIZED (
        SELECT w.reference, f.snap_id AS from_snap_id, f.taken_at AS from_at, u.snap_id AS to_snap_id, u.taken_at AS to_at
          FROM wanted w
               CROSS JOIN LATERAL (SELECT s.snap_id, s.taken_at FROM rowsource_snapshots s
                                    WHERE s.taken_at <= w.from_at ORDER BY s.taken_at DESC LIMIT 1::bigint) f
               CROSS JOIN LATERAL (SELECT s.snap_id, s.taken_at FROM rowsource_snapshots s
                                    WHERE s.taken_at >= w.to_at ORDER BY s.taken_at LIMIT 1::bigint) u
         WHERE w.reference = 0 OR f.taken_at >= w.from_at - '01:00'::interval AND u.taken_at <= w.to_at + '01:00'::interval
    )
    SELECT rowsource_note_reference(
               t.taken_at, NULL::integer, NULL::timestamptz, NULL::timestamptz, p.userid, p.datid, p.queryid, p.planid, p.toplevel,
               NULL::bytea, NULL::bytea)
      FROM this t JOIN rowsource_snapshot_plans p ON p.snap_id = t.snap_id
    UNION ALL
    SELECT rowsource_note_reference(
               t.taken_at, e.reference, e.from_at, e.to_at, p.userid, p.datid, p.queryid, p.planid, p.toplevel,
               pg_catalog.substring(u.statistics, 1, 4096), pg_catalog.substring(f.statistics, 1, 4096))
      FROM this t JOIN rowsource_snapshot_plans p ON p.snap_id = t.snap_id CROSS JOIN ends e
           CROSS JOIN LATERAL (
               SELECT k.statistics, k.first_seen_at FROM rowsource_snapshot_plans k
                WHERE k.queryid = p.queryid AND k.planid = p.planid AND k.userid = p.userid AND k.datid = p.datid
                      AND k.toplevel = p.toplevel AND k.snap_id > e.from_snap_id AND k.snap_id <= e.to_snap_id
                ORDER BY k.snap_id DESC, k.first_seen_at DESC LIMIT 1::bigint) u
           LEFT JOIN LATERAL (
               SELECT k.snap_id, k.statistics FROM rowsource_snapshot_plans k
                WHERE k.queryid = p.queryid AND k.planid = p.planid AND k.userid = p.userid AND k.datid = p.datid
                      AND k.toplevel = p.toplevel AND k.snap_id <= e.from_snap_id AND k.first_seen_at = u.first_seen_at
                ORDER BY k.snap_id DESC LIMIT 1::bigint) f ON true
     WHERE u.statistics IS NOT NULL AND (f.statistics IS NOT NULL OR f.snap_id IS NULL AND u.first_seen_at >= e.from_at);
    -- Those that are too old go, and the oldest of too many. A third is left for deleted rows that no VACUUM has removed yet, and for
    -- room in pages. One with too many samples loses some of them first.
    WITH all_snapshots AS (
        SELECT snap_id, is_kept OR snap_id = pg_catalog.max(snap_id) OVER () AS stays,
               taken_at < pg_catalog.max(taken_at) OVER ()
                   - nullif(pg_catalog.current_setting('pg_rowsource.snapshot_retention', true), '0'::text)::interval AS is_old,
               pg_catalog.sum(bytes) OVER (ORDER BY is_kept DESC, snap_id DESC) * 3::numeric
                   > 2::numeric * pg_catalog.pg_size_bytes(
                         nullif(pg_catalog.current_setting('pg_rowsource.snapshot_max_size', true), '0'::text))::numeric AS is_excess
          FROM rowsource_snapshots
    ), gone AS MATERIALIZED (
        SELECT snap_id, is_old IS NOT TRUE AS is_excess FROM all_snapshots
         WHERE NOT stays AND (is_old OR is_excess) ORDER BY snap_id LIMIT 4::bigint
    ), sized AS MATERIALIZED (
        SELECT g.snap_id, g.is_excess, pg_catalog.sum(n.rows) OVER (ORDER BY g.snap_id) <= 50000::numeric AS is_small
          FROM gone g CROSS JOIN LATERAL (
                   SELECT pg_catalog.count(*) AS rows
                     FROM (SELECT FROM rowsource_snapshot_ash a WHERE a.snap_id = g.snap_id LIMIT 50001::bigint) a) n
    ), samples AS (
        DELETE FROM rowsource_snapshot_ash a
         WHERE a.ctid = ANY (ARRAY(
                   SELECT l.ctid FROM rowsource_snapshot_ash l
                    WHERE l.snap_id = (SELECT pg_catalog.min(snap_id) FROM sized WHERE NOT is_small) LIMIT 50000::bigint))
    ), deleted AS (
        DELETE FROM rowsource_snapshots o USING sized s WHERE o.snap_id = s.snap_id AND s.is_small
        RETURNING s.is_excess
    )
    SELECT pg_catalog.currval('rowsource_snapshots_snap_id_seq'::regclass)
      FROM (SELECT rowsource_note_removed(pg_catalog.count(*) FILTER (WHERE is_excess)) FROM deleted) noted;
END;
COMMENT ON FUNCTION rowsource_snapshot() IS 'Stores a snapshot, and returns its number. Deletes those older than pg_rowsource.snapshot_retention, and the oldest beyond pg_rowsource.snapshot_max_size. For superusers, and for others after GRANT EXECUTE ON FUNCTION rowsource_snapshot() TO them';
REVOKE ALL ON FUNCTION rowsource_snapshot() FROM PUBLIC;

CREATE FUNCTION _rowsource_history_origin() RETURNS text
LANGUAGE SQL STABLE PARALLEL SAFE
RETURN nullif(pg_catalog.current_setting('pg_rowsource.history_origin', true), ''::text);
COMMENT ON FUNCTION _rowsource_history_origin() IS 'Internal: the other server whose history is shown; NULL if it is this one';

CREATE VIEW rowsource_intervals AS
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
     WHERE i.from_at IS NOT NULL;
COMMENT ON VIEW rowsource_intervals IS 'The intervals between snapshots. The last one lasts until now; if there is no snapshot, it begins with the counters';
COMMENT ON COLUMN rowsource_intervals.snap_id IS 'The number of the snapshot at the end of the interval; 0 if it lasts until now';
COMMENT ON COLUMN rowsource_intervals.from_snap_id IS 'The number of the snapshot at its beginning; NULL if there is none';
COMMENT ON COLUMN rowsource_intervals.from_at IS 'When the interval began';
COMMENT ON COLUMN rowsource_intervals.to_at IS 'When the interval ended';
COMMENT ON COLUMN rowsource_intervals.active_time IS 'Milliseconds of all statements that ended in it, in all databases';
GRANT SELECT ON rowsource_intervals TO PUBLIC;

CREATE VIEW rowsource_interval_tempfile_io AS
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
                      AND p.stats_reset = c.stats_reset AND p.source = c.source) d;
COMMENT ON VIEW rowsource_interval_tempfile_io IS 'Requests to temporary files between each snapshot and the previous one';
COMMENT ON COLUMN rowsource_interval_tempfile_io.snap_id IS 'The number of the snapshot at the end of the interval; 0 if it lasts until now';
COMMENT ON COLUMN rowsource_interval_tempfile_io.from_at IS 'When the interval began';
COMMENT ON COLUMN rowsource_interval_tempfile_io.to_at IS 'When the interval ended';
COMMENT ON COLUMN rowsource_interval_tempfile_io.datid IS 'The OID of the database; 0 for processes without one, NULL if several databases share one set of counters';
COMMENT ON COLUMN rowsource_interval_tempfile_io.datname IS 'The database';
COMMENT ON COLUMN rowsource_interval_tempfile_io.filetype IS 'work file (sorts, hashes, materialised results) or temp table';
COMMENT ON COLUMN rowsource_interval_tempfile_io.small_reads IS 'Read requests of one block or less';
COMMENT ON COLUMN rowsource_interval_tempfile_io.small_read_bytes IS 'Bytes read by these requests';
COMMENT ON COLUMN rowsource_interval_tempfile_io.small_read_time IS 'Milliseconds of these requests; NULL if they were not timed';
COMMENT ON COLUMN rowsource_interval_tempfile_io.small_read_mean_time IS 'Milliseconds of such a request on average';
COMMENT ON COLUMN rowsource_interval_tempfile_io.large_reads IS 'Read requests of more than one block';
COMMENT ON COLUMN rowsource_interval_tempfile_io.large_read_bytes IS 'Bytes read by these requests';
COMMENT ON COLUMN rowsource_interval_tempfile_io.large_read_time IS 'Milliseconds of these requests; NULL if they were not timed';
COMMENT ON COLUMN rowsource_interval_tempfile_io.large_read_mean_time IS 'Milliseconds of such a request on average';
COMMENT ON COLUMN rowsource_interval_tempfile_io.small_writes IS 'Write requests of one block or less';
COMMENT ON COLUMN rowsource_interval_tempfile_io.small_write_bytes IS 'Bytes written by these requests';
COMMENT ON COLUMN rowsource_interval_tempfile_io.small_write_time IS 'Milliseconds of these requests; NULL if they were not timed';
COMMENT ON COLUMN rowsource_interval_tempfile_io.small_write_mean_time IS 'Milliseconds of such a request on average';
COMMENT ON COLUMN rowsource_interval_tempfile_io.large_writes IS 'Write requests of more than one block';
COMMENT ON COLUMN rowsource_interval_tempfile_io.large_write_bytes IS 'Bytes written by these requests';
COMMENT ON COLUMN rowsource_interval_tempfile_io.large_write_time IS 'Milliseconds of these requests; NULL if they were not timed';
COMMENT ON COLUMN rowsource_interval_tempfile_io.large_write_mean_time IS 'Milliseconds of such a request on average';
COMMENT ON COLUMN rowsource_interval_tempfile_io.source IS 'request: each request was counted. counter: core counted the blocks';
GRANT SELECT ON rowsource_interval_tempfile_io TO PUBLIC;

CREATE VIEW rowsource_interval_waits AS
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
     WHERE d.waits > 0::bigint OR d.wait_time > 0::float8;
COMMENT ON VIEW rowsource_interval_waits IS 'The waits between each snapshot and the previous one';
COMMENT ON COLUMN rowsource_interval_waits.snap_id IS 'The number of the snapshot at the end of the interval; 0 if it lasts until now';
COMMENT ON COLUMN rowsource_interval_waits.from_at IS 'When the interval began';
COMMENT ON COLUMN rowsource_interval_waits.to_at IS 'When the interval ended';
COMMENT ON COLUMN rowsource_interval_waits.backend_type IS 'The type of the processes';
COMMENT ON COLUMN rowsource_interval_waits.wait_event_type IS 'The type of the event, as in pg_stat_activity; NULL if the event has no counters of its own';
COMMENT ON COLUMN rowsource_interval_waits.wait_event IS 'The event, as in pg_stat_activity. other: all events that have no counters of their own';
COMMENT ON COLUMN rowsource_interval_waits.waits IS 'Waits of the interval';
COMMENT ON COLUMN rowsource_interval_waits.wait_time IS 'Milliseconds of these waits';
COMMENT ON COLUMN rowsource_interval_waits.mean_time IS 'Milliseconds of such a wait on average';
GRANT SELECT ON rowsource_interval_waits TO PUBLIC;

CREATE VIEW rowsource_interval_plans AS
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
           LEFT JOIN pg_catalog.pg_database b ON b.oid = d.datid AND _rowsource_history_origin() IS NULL;
COMMENT ON VIEW rowsource_interval_plans IS 'What each plan did between a snapshot and the previous one that has the plan; NULL if that was deleted. For those with the privileges of pg_read_all_stats, and for others after GRANT pg_read_all_stats TO them';
COMMENT ON COLUMN rowsource_interval_plans.snap_id IS 'The number of the snapshot at the end of the interval; 0 if it lasts until now';
COMMENT ON COLUMN rowsource_interval_plans.to_at IS 'When the interval ended';
COMMENT ON COLUMN rowsource_interval_plans.usename IS 'The user who ran the statement; NULL if the user was dropped';
COMMENT ON COLUMN rowsource_interval_plans.datname IS 'The database in which the statement ran; NULL if it was dropped';
COMMENT ON COLUMN rowsource_interval_plans.userid IS 'The OID of the user who ran the statement';
COMMENT ON COLUMN rowsource_interval_plans.datid IS 'The OID of the database in which the statement ran';
COMMENT ON COLUMN rowsource_interval_plans.queryid IS 'Identifies the statement, as in pg_stat_statements and pg_stat_activity';
COMMENT ON COLUMN rowsource_interval_plans.planid IS 'Identifies the plan by its nodes, objects and strategies';
COMMENT ON COLUMN rowsource_interval_plans.toplevel IS 'Whether a client sent the statement; false if another statement ran it: in a function, procedure or trigger';
COMMENT ON COLUMN rowsource_interval_plans.query IS 'The text of the statement';
COMMENT ON COLUMN rowsource_interval_plans.calls IS 'Executions since the previous snapshot with this plan';
COMMENT ON COLUMN rowsource_interval_plans.total_time IS 'Milliseconds of these executions';
COMMENT ON COLUMN rowsource_interval_plans.mean_time IS 'Milliseconds of an execution on average';
COMMENT ON COLUMN rowsource_interval_plans.temp_blks_read IS 'Blocks of work files (sorts, hashes, materialised results) read by these executions';
COMMENT ON COLUMN rowsource_interval_plans.temp_blks_written IS 'Blocks of work files written by these executions';
COMMENT ON COLUMN rowsource_interval_plans.temp_blk_read_time IS 'Milliseconds reading blocks of work files by these executions';
COMMENT ON COLUMN rowsource_interval_plans.temp_blk_write_time IS 'Milliseconds writing blocks of work files by these executions';
GRANT SELECT ON rowsource_interval_plans TO pg_read_all_stats;

CREATE FUNCTION rowsource_interval_tempfile_io(
    from_time text DEFAULT NULL,
    to_time text DEFAULT NULL
) RETURNS SETOF rowsource_interval_tempfile_io
LANGUAGE SQL STABLE CALLED ON NULL INPUT PARALLEL RESTRICTED
BEGIN ATOMIC
    SELECT (NULL::rowsource_interval_tempfile_io).*
      FROM _rowsource_check_interval(rowsource_interval_tempfile_io.from_time, rowsource_interval_tempfile_io.to_time)
    UNION ALL
    SELECT v.*
      FROM _rowsource_interval(rowsource_interval_tempfile_io.from_time, rowsource_interval_tempfile_io.to_time) i
           JOIN rowsource_intervals s ON s.to_at > i.from_at AND s.from_at < i.to_at
           JOIN rowsource_interval_tempfile_io v ON v.snap_id = s.snap_id;
END;
COMMENT ON FUNCTION rowsource_interval_tempfile_io(text, text) IS 'The rows of the view of this name that are of an interval, between the snapshots around it; without arguments, of the last hour';

CREATE FUNCTION rowsource_interval_waits(
    from_time text DEFAULT NULL,
    to_time text DEFAULT NULL
) RETURNS SETOF rowsource_interval_waits
LANGUAGE SQL STABLE CALLED ON NULL INPUT PARALLEL RESTRICTED
BEGIN ATOMIC
    SELECT (NULL::rowsource_interval_waits).*
      FROM _rowsource_check_interval(rowsource_interval_waits.from_time, rowsource_interval_waits.to_time)
    UNION ALL
    SELECT v.*
      FROM _rowsource_interval(rowsource_interval_waits.from_time, rowsource_interval_waits.to_time) i
           JOIN rowsource_intervals s ON s.to_at > i.from_at AND s.from_at < i.to_at
           JOIN rowsource_interval_waits v ON v.snap_id = s.snap_id;
END;
COMMENT ON FUNCTION rowsource_interval_waits(text, text) IS 'The rows of the view of this name that are of an interval, between the snapshots around it; without arguments, of the last hour';

CREATE FUNCTION rowsource_interval_plans(
    from_time text DEFAULT NULL,
    to_time text DEFAULT NULL
) RETURNS SETOF rowsource_interval_plans
LANGUAGE SQL STABLE CALLED ON NULL INPUT PARALLEL RESTRICTED SET jit = off
BEGIN ATOMIC
    SELECT (NULL::rowsource_interval_plans).*
      FROM _rowsource_check_interval(rowsource_interval_plans.from_time, rowsource_interval_plans.to_time)
    UNION ALL
    SELECT v.*
      FROM _rowsource_interval(rowsource_interval_plans.from_time, rowsource_interval_plans.to_time) i
           JOIN rowsource_intervals s ON s.to_at > i.from_at AND s.from_at < i.to_at
           JOIN rowsource_interval_plans v ON v.snap_id = s.snap_id;
END;
COMMENT ON FUNCTION rowsource_interval_plans(text, text) IS 'The rows of the view of this name that are of an interval, between the snapshots around it; without arguments, of the last hour. For those with the privileges of pg_read_all_stats, and for others after GRANT pg_read_all_stats TO them';
REVOKE ALL ON FUNCTION rowsource_interval_plans(text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION rowsource_interval_plans(text, text) TO pg_read_all_stats;

CREATE FUNCTION rowsource_display_snapshot(
    queryid bigint,
    planid bigint DEFAULT NULL,
    snap_id bigint DEFAULT NULL,
    format text DEFAULT 'ALLSTATS'
) RETURNS SETOF text
LANGUAGE SQL STABLE CALLED ON NULL INPUT PARALLEL RESTRICTED
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
END;
COMMENT ON FUNCTION rowsource_display_snapshot(bigint, bigint, bigint, text) IS 'Shows a plan as it was when a snapshot was taken, also if it was evicted or reset since. For those with the privileges of pg_read_all_stats, and for others after GRANT pg_read_all_stats TO them';
REVOKE ALL ON FUNCTION rowsource_display_snapshot(bigint, bigint, bigint, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION rowsource_display_snapshot(bigint, bigint, bigint, text) TO pg_read_all_stats;

CREATE FUNCTION rowsource_baseline(
    name text,
    from_time text,
    to_time text DEFAULT NULL
) RETURNS void
LANGUAGE SQL VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE SECURITY DEFINER
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
END;
COMMENT ON FUNCTION rowsource_baseline(text, text, text) IS 'Gives a name to an interval, and keeps the snapshots around it from being thinned, merged and deleted. If none was taken since its end, takes one. For superusers, and for others after GRANT EXECUTE ON FUNCTION rowsource_baseline(text, text, text) TO them';
REVOKE ALL ON FUNCTION rowsource_baseline(text, text, text) FROM PUBLIC;

CREATE FUNCTION rowsource_baseline_drop(
    name text
) RETURNS void
LANGUAGE SQL VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE SECURITY DEFINER
BEGIN ATOMIC
    SELECT rowsource_check_baseline(
               rowsource_baseline_drop.name,
               EXISTS (SELECT FROM rowsource_baselines b WHERE b.name = rowsource_baseline_drop.name));
    DELETE FROM rowsource_baselines b WHERE b.name = rowsource_baseline_drop.name;
    UPDATE rowsource_snapshots s SET is_kept = false
     WHERE s.is_kept AND NOT EXISTS (SELECT FROM rowsource_baselines b WHERE s.taken_at BETWEEN b.from_at AND b.to_at);
END;
COMMENT ON FUNCTION rowsource_baseline_drop(text) IS 'Takes the name of an interval away. Its snapshots become fewer with age as all others, unless they are of another baseline. For superusers, and for others after GRANT EXECUTE ON FUNCTION rowsource_baseline_drop(text) TO them';
REVOKE ALL ON FUNCTION rowsource_baseline_drop(text) FROM PUBLIC;

CREATE FUNCTION rowsource_export(
    from_time text DEFAULT NULL,
    to_time text DEFAULT NULL
) RETURNS SETOF text
LANGUAGE SQL STABLE CALLED ON NULL INPUT PARALLEL RESTRICTED SET bytea_output = hex SET extra_float_digits = 1
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
END;
COMMENT ON FUNCTION rowsource_export(text, text) IS 'Returns the history of an interval as lines for \copy: its snapshots, and those of baselines. Without arguments, of the last hour. For those with the privileges of pg_read_all_stats, and for others after GRANT pg_read_all_stats TO them';
REVOKE ALL ON FUNCTION rowsource_export(text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION rowsource_export(text, text) TO pg_read_all_stats;

CREATE FUNCTION rowsource_import(
    line text
) RETURNS boolean
LANGUAGE SQL VOLATILE STRICT PARALLEL UNSAFE SECURITY DEFINER SET TimeZone = 'UTC' SET bytea_output = hex SET extra_float_digits = 1
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
END;
COMMENT ON FUNCTION rowsource_import(text) IS 'Reads a line of rowsource_export() of another server into rowsource_imported. Returns whether it is new. For superusers, and for others after GRANT EXECUTE ON FUNCTION rowsource_import(text) TO them';
REVOKE ALL ON FUNCTION rowsource_import(text) FROM PUBLIC;

-- This call registers the database for snapshots, when the transaction commits.
SELECT pg_catalog.count(*) FROM _rowsource_excluded();
