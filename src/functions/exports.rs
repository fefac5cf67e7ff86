//! The SQL functions that are written in Rust. `make accept` writes what is declared here into the SQL script
//! and the book.

use super::surface::{Adds, MAX_FORMAT_BYTES, MAX_NAME_BYTES, View, functions};
use super::{
    again, call_trace, clocks, commands, compare, display, executions, explain, export, exports_of_history,
    flips, history, intervals, live, logical_io, nodes, partitions, plans, progress, regressions, sql,
    sql_trace, store, stored_report, tempfile, trace_targets, waits,
};
use crate::pg::server::srf::{Call, Shape, export};
use pgrx::pg_sys::Datum;

/// The maximum length of a text that the SQL of a report passes, in bytes.
const MAX_REPORT_BYTES: usize = 1 << 20;

/// The maximum number of buckets of a histogram that is plotted.
const MAX_BUCKETS: usize = 10_000;

/// Whose rows a view of statements that ran has, and where they ran.
const RAN: [&str; 2] = [
    "The user who ran the statement; NULL if the user was dropped",
    "The database in which the statement ran; NULL if it was dropped",
];
/// The same for statements that run.
const RUNS: [&str; 2] = ["The user who runs the statement", "The database in which it runs"];

functions! {
    /// The commands to begin with, with the ids of what the server has measured
    rowsource() TO PUBLIC "VOLATILE STRICT PARALLEL RESTRICTED"
        -> rows(commands::columns(), |rows| commands::rows(rows));

    /// Shows a plan as a table, like DBMS_XPLAN. Without ids it shows this session's last measured
    /// statement; with a pid, what that process runs now; with a pattern, the plan that took the most time of
    /// those whose statement contains it, in any letter case. In a pattern, % stands for any text
    rowsource_display(
        queryid: bigint = "NULL", planid: bigint = "NULL",
        pid: int = "NULL", pattern: text(MAX_FORMAT_BYTES) = "NULL", format: text(MAX_FORMAT_BYTES) = "'ALLSTATS LAST'"
    ) TO PUBLIC "VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED"
        -> lines(|rows| display::lines(rows, queryid, planid, format.as_deref(), pid, pattern.as_deref()));

    /// The partitions that took the longest in all executions of a plan: at most eight of each node that
    /// stands for partitions, and the rest as other. One that enters the list late counts from then on.
    /// Without ids, of the plan of this session's last measured statement
    rowsource_partitions(
        queryid: bigint = "NULL", planid: bigint = "NULL"
    ) TO PUBLIC "VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED"
        -> rows(partitions::columns(), |rows| display::partition_rows(rows, queryid, planid));

    /// Prints a plan as EXPLAIN (ANALYZE, BUFFERS, WAL) does. format: text, json, yaml or xml. which: last,
    /// mean, total, slowest, failed or cancelled
    rowsource_explain(
        queryid: bigint = "NULL", planid: bigint = "NULL", which: text(MAX_FORMAT_BYTES) = "'last'",
        format: text(MAX_FORMAT_BYTES) = "'text'"
    ) TO PUBLIC "VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED"
        -> lines(|rows| explain::rows(rows, [queryid, planid], format.as_deref(), which.as_deref()));

    /// Prints the statement of a kept execution so that psql runs it again. which: slowest, failed or
    /// cancelled
    rowsource_statement(
        queryid: bigint = "NULL", planid: bigint = "NULL", which: text(MAX_FORMAT_BYTES) = "'slowest'"
    ) TO PUBLIC "VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED"
        -> lines(|rows| again::lines(rows, queryid, planid, which.as_deref()));

    /// Does nothing: who may execute it sees the parameters of all users' statements in rowsource_statement()
    rowsource_statement_read_all() TO nobody "VOLATILE STRICT PARALLEL SAFE"
        -> void({});

    /// The rows of the view rowsource_executions
    rowsource_executions() TO PUBLIC "VOLATILE STRICT PARALLEL RESTRICTED"
        -> rows(executions::columns(), |rows| executions::rows(rows)),
        view: View { comment: "The last executions that took long, failed or were cancelled, of all sessions", adds: Adds::Names(RAN) };

    /// Says why a statement takes longer than before, or less long: a sentence with the cause, and a tree
    /// with both plans. a and b are planids, mean, last, slowest, failed or cancelled, both (like '42
    /// slowest'), intervals ('14:00..14:05'), 'baseline' and its name, or plans of other servers that
    /// rowsource_plan() wrote. By default, b is the plan of today, and a the one that it replaced, of this
    /// session's last statement. With one interval or baseline, the other side is what ran since its end.
    /// If the plan of b took over from that of a, and had run before, only what both did around that change
    /// is compared, if the snapshots have it.
    /// metric: self_time, total_time, starts, rows, blks_hit, blks_read,
    /// blk_read_time, temp_blks or wait_time. format: text or json
    rowsource_compare(
        queryid: bigint = "NULL", a: text(MAX_REPORT_BYTES) = "NULL", b: text(MAX_REPORT_BYTES) = "NULL",
        metric: text(MAX_FORMAT_BYTES) = "'self_time'", format: text(MAX_FORMAT_BYTES) = "'text'"
    ) TO PUBLIC "VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED"
        -> lines(|rows| compare::lines(rows, queryid, [a.as_deref(), b.as_deref()], metric.as_deref(), format.as_deref()));

    /// Writes a plan as JSON, so that rowsource_compare() compares it on another server. which: mean, total,
    /// last, slowest, failed or cancelled
    rowsource_plan(
        queryid: bigint = "NULL", planid: bigint = "NULL", which: text(MAX_FORMAT_BYTES) = "'mean'"
    ) TO PUBLIC "VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED"
        -> lines(|rows| compare::plan_row(rows, queryid, planid, which.as_deref()));

    /// Exports a plan as folded stacks, for flame graphs. which: last, mean, total, slowest, failed or
    /// cancelled
    rowsource_folded(
        queryid: bigint = "NULL", planid: bigint = "NULL", which: text(MAX_FORMAT_BYTES) = "'last'"
    ) TO PUBLIC "VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED"
        -> lines(|rows| export::folded_lines(rows, queryid, planid, which.as_deref()));

    /// Exports a plan as a file of speedscope. which: last, mean, total, slowest, failed or cancelled
    rowsource_speedscope(
        queryid: bigint = "NULL", planid: bigint = "NULL", which: text(MAX_FORMAT_BYTES) = "'last'"
    ) TO PUBLIC "VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED"
        -> lines(|rows| export::speedscope_row(rows, queryid, planid, which.as_deref()));

    /// Exports a plan as one page of HTML. which: last, mean, total, slowest, failed or cancelled
    rowsource_html(
        queryid: bigint = "NULL", planid: bigint = "NULL", which: text(MAX_FORMAT_BYTES) = "'last'"
    ) TO PUBLIC "VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED"
        -> lines(|rows| export::html_row(rows, queryid, planid, which.as_deref()));

    /// Plots how long the timed calls of a node took, in all executions
    rowsource_histogram_plot(
        queryid: bigint = "NULL", planid: bigint = "NULL", node_id: int = "0"
    ) TO PUBLIC "VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED"
        -> lines(|rows| export::plot_lines(rows, queryid, planid, node_id.unwrap_or(0)));

    /// Gets blocks of a relation, and returns how long that took. fork: main, fsm, vm or init. pattern:
    /// sequential or random
    rowsource_logical_io(
        rel: regclass, fork: text(MAX_FORMAT_BYTES) = "'main'", blocks: bigint = "NULL",
        pattern: text(MAX_FORMAT_BYTES) = "'sequential'", seed: bigint = "NULL"
    ) TO PUBLIC "VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED"
        -> rows(logical_io::bucket_columns(), |rows| {
            // A missing relation gives no rows, as in PostgreSQL's own functions.
            if let Some(rel) = rel {
                logical_io::rows(rows, rel, fork.as_deref(), blocks, pattern.as_deref(), seed);
            }
        });

    /// Runs a statement once, and lists the calls of its plan's nodes and the waits inside them. Its rows
    /// are not returned, and what it changes is rolled back; with keep, the changes stay
    rowsource_call_trace(query: statement, max_calls: int = "10000", keep: boolean = "false") TO PUBLIC "VOLATILE STRICT PARALLEL UNSAFE"
        -> rows(call_trace::columns(), |rows| {
            if let (Some(query), Some(max_calls), Some(keep)) = (query, max_calls, keep) {
                call_trace::rows(rows, query, max_calls, keep);
            }
        });

    /// Begins the SQL trace of this session, and returns the name of its file; with conditions, that of all
    /// sessions for which they hold, and returns the number of the target. with_waits: list each wait.
    /// with_binds: list the values of parameters. expires_after: how long the target counts
    rowsource_trace_start(
        queryid: bigint = "NULL", pid: int = "NULL", application_name: text(MAX_NAME_BYTES) = "NULL",
        usename: text(MAX_NAME_BYTES) = "NULL", datname: text(MAX_NAME_BYTES) = "NULL", client_addr: inet = "NULL",
        with_waits: boolean = "true", with_binds: boolean = "false", expires_after: interval = "NULL"
    ) TO nobody "VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE"
        -> lines(|rows| {
            let wanted = trace_targets::Wanted {
                waits: with_waits.unwrap_or(true),
                binds: with_binds.unwrap_or(false),
                pid,
                application_name,
                usename,
                datname,
                client_addr,
                queryid,
                expires_after,
            };
            if wanted.has_condition() {
                trace_targets::add(rows, &wanted);
            } else {
                trace_targets::refuse_expiry(&wanted);
                sql_trace::start(rows, wanted.waits, wanted.binds);
            }
        });

    /// Ends the SQL trace of this session, and returns the name of its last file; with target, removes this
    /// target, and with all_targets all of them
    rowsource_trace_stop(
        target: int = "NULL", all_targets: boolean = "false"
    ) TO nobody "VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE"
        -> lines(|rows| match (target, all_targets.unwrap_or(false)) {
            (Some(target), _) => trace_targets::remove(rows, target),
            (None, true) => trace_targets::remove_all(rows),
            (None, false) => sql_trace::stop(rows),
        });

    /// The rows of the view rowsource_trace_targets, with OIDs instead of names
    rowsource_trace_targets() TO pg_read_all_stats "VOLATILE STRICT PARALLEL UNSAFE"
        -> rows(trace_targets::columns(), |rows| trace_targets::rows(rows));

    /// The rows of the view rowsource_trace_files
    rowsource_trace_files() TO PUBLIC "VOLATILE STRICT PARALLEL UNSAFE"
        -> rows(sql_trace::file_columns(), |rows| sql_trace::file_rows(rows)),
        view: View { comment: "The files of SQL traces: all of them for those who may execute rowsource_trace_read_all(), else those of this session", adds: Adds::Nothing };

    /// Does nothing: who may execute it may read the trace files of all sessions
    rowsource_trace_read_all() TO nobody "VOLATILE STRICT PARALLEL SAFE"
        -> void({});

    /// Prints a report of trace files, like TKPROF. file_names: names separated by commas; pid: those of a
    /// process; without both, those of this session. sort: words like exeela
    rowsource_tkprof(
        file_names: text(MAX_REPORT_BYTES) = "NULL", pid: int = "NULL",
        sort: text(MAX_FORMAT_BYTES) = "NULL", statements: int = "NULL"
    ) TO PUBLIC "VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE"
        -> lines(|rows| sql_trace::report_lines(rows, file_names.as_deref(), pid, sort.as_deref(), statements));

    /// Prints the report of rowsource_tkprof() from the statistics of the plans, also of statements that
    /// were not traced. A dash stands for what these do not have. Texts of others are hidden, as in
    /// pg_stat_rowsource
    rowsource_tkprof_store(
        sort: text(MAX_FORMAT_BYTES) = "'totela'", statements: int = "NULL"
    ) TO PUBLIC "VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED"
        -> lines(|rows| stored_report::lines(rows, sort.as_deref().unwrap_or("totela"), statements));

    /// Returns trace files as Trace Event JSON, which Perfetto and speedscope open
    rowsource_trace_events(
        file_names: text(MAX_REPORT_BYTES) = "NULL", pid: int = "NULL"
    ) TO PUBLIC "VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE"
        -> lines(|rows| sql_trace::document_row(rows, file_names.as_deref(), pid));

    /// Plots a histogram: the lower bounds of its buckets in microseconds, and their counts
    rowsource_plot_buckets(
        bounds_us: float8s(MAX_BUCKETS), counts: bigints(MAX_BUCKETS)
    ) TO PUBLIC "VOLATILE STRICT PARALLEL RESTRICTED"
        -> lines(|rows| export::histogram_lines(rows, bounds_us, counts));

    /// Identifies this session's last measured statement, and tells how it ended
    rowsource_last() TO PUBLIC "VOLATILE STRICT PARALLEL RESTRICTED"
        -> rows(display::last_columns(), |rows| display::last_row(rows));

    /// Measures each clock of this machine with this many readings: its cost, its resolution, and its steps
    /// back
    rowsource_clocks(readings: int = "1000000") TO PUBLIC "VOLATILE STRICT PARALLEL RESTRICTED"
        -> rows(clocks::columns(), |rows| clocks::rows(rows, readings.unwrap_or(0)));

    /// The rows of the view pg_stat_rowsource
    pg_stat_rowsource() TO PUBLIC "VOLATILE STRICT PARALLEL RESTRICTED"
        -> rows(nodes::columns(), |rows| nodes::rows(rows, None)),
        view: View { comment: "A row per node of each stored plan. Columns that begin with last_ are of the last execution, the others of all", adds: Adds::Names(RAN) };

    /// Those of the plans that ran from a moment on
    pg_stat_rowsource[pg_stat_rowsource_since](from_at: timestamptz) TO PUBLIC "VOLATILE STRICT PARALLEL RESTRICTED"
        -> rows(nodes::columns(), |rows| nodes::rows(rows, from_at));

    /// The rows of the view pg_stat_rowsource_plans
    pg_stat_rowsource_plans() TO PUBLIC "VOLATILE STRICT PARALLEL RESTRICTED"
        -> rows(plans::columns(), |rows| plans::rows(rows, None)),
        view: View { comment: "A row per stored plan, with the sums of all its executions. The query others (one or two rows per database) is the sum of the executions whose plans are not stored: a row for client statements, and one for statements in functions", adds: Adds::Names(RAN) };

    /// Those of the plans that ran from a moment on
    pg_stat_rowsource_plans[pg_stat_rowsource_plans_since](from_at: timestamptz) TO PUBLIC "VOLATILE STRICT PARALLEL RESTRICTED"
        -> rows(plans::columns(), |rows| plans::rows(rows, from_at));

    /// The rows of the view pg_stat_rowsource_histogram
    pg_stat_rowsource_histogram() TO PUBLIC "VOLATILE STRICT PARALLEL RESTRICTED"
        -> rows(nodes::histogram_columns(), |rows| nodes::histogram_rows(rows)),
        view: View { comment: "How long the timed calls of each node took, in powers of two", adds: Adds::Names(RAN) };

    /// The changes of plans, with the mean times, their standard errors, and the typical times (geometric
    /// means)
    rowsource_plan_flips() TO PUBLIC "VOLATILE STRICT PARALLEL RESTRICTED"
        -> rows(flips::columns(), |rows| flips::rows(rows)),
        view: View { comment: "A row for each time that another plan of a query took over; those that cost the most come first", adds: Adds::Sorted(RAN, "s.extra_time DESC NULLS LAST, s.changed_at DESC") };

    /// The statements that became slower and were so in an interval, because another plan took over or with
    /// the same plan; without arguments, all that are known. The background worker looks each minute
    rowsource_regressions(
        from_time: moment = "NULL", to_time: moment = "NULL"
    ) TO PUBLIC "VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED"
        -> rows(regressions::columns(), |rows| regressions::rows(rows, from_time, to_time));

    /// The same for moments that are no texts, like now() - interval '5 min' or interval '5 min'
    rowsource_regressions[rowsource_regressions_between](
        from_time: moment_value, to_time: moment_value = "NULL"
    ) TO PUBLIC "VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED"
        -> rows(regressions::columns(), |rows| regressions::rows(rows, from_time, to_time));

    /// Lets the report leave out a regression until a moment; without one, for good
    rowsource_dismiss(
        id: bigint, until: timestamptz = "NULL"
    ) TO PUBLIC "VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED"
        -> void(regressions::dismiss(id, until));

    /// Internal: lets the background worker look for regressions now. With a moment, as if it were that one,
    /// and from then on only when this is called
    rowsource_judge(at: timestamptz = "NULL") TO nobody "VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED"
        -> void(regressions::judge(at));

    /// Describes the shared memory of the plans, and what was not measured, stored or kept
    rowsource_info() TO PUBLIC "VOLATILE STRICT PARALLEL RESTRICTED"
        -> row(store::info_columns(), |rows| store::info_row(rows));

    /// Deletes the plans of a user, a database or a query. 0 (default): of all
    rowsource_reset(
        userid: oid = "0", datid: oid = "0", queryid: bigint = "0"
    ) TO nobody "VOLATILE STRICT PARALLEL RESTRICTED"
        -> void(store::reset(userid.unwrap_or_default(), datid.unwrap_or_default(), queryid.unwrap_or_default()));

    /// The rows of the view pg_stat_rowsource_tempfile_io
    pg_stat_rowsource_tempfile_io() TO PUBLIC "VOLATILE STRICT PARALLEL RESTRICTED"
        -> rows(tempfile::io_columns(), |rows| tempfile::io_rows(rows)),
        view: View { comment: "Requests to temporary files since the last reset: a row per database and file type", adds: Adds::Database("The database") };

    /// The rows of the view pg_stat_rowsource_tempfile_io_histogram
    pg_stat_rowsource_tempfile_io_histogram() TO PUBLIC "VOLATILE STRICT PARALLEL RESTRICTED"
        -> rows(tempfile::histogram_columns(), |rows| tempfile::histogram_rows(rows)),
        view: View { comment: "How long the requests to temporary files took, in powers of two", adds: Adds::Database("The database") };

    /// Resets the counters of a database's temporary files. 0 (default): of all databases
    rowsource_tempfile_reset(datid: oid = "0") TO nobody "VOLATILE STRICT PARALLEL RESTRICTED"
        -> void(tempfile::reset(datid.unwrap_or_default()));

    /// The rows of the view pg_stat_rowsource_logical_io
    pg_stat_rowsource_logical_io() TO PUBLIC "VOLATILE STRICT PARALLEL RESTRICTED"
        -> rows(logical_io::node_columns(), |rows| logical_io::node_rows(rows)),
        view: View { comment: "How long hits and reads of blocks took in the nodes of each stored plan, in all its executions", adds: Adds::Names(RAN) };

    /// The rows of the view pg_stat_rowsource_live
    pg_stat_rowsource_live() TO PUBLIC "VOLATILE STRICT PARALLEL RESTRICTED"
        -> rows(live::columns(), |rows| live::rows(rows)),
        view: View { comment: "The measured statements that run now: a row per node, and per process that runs it", adds: Adds::Names(RUNS) };

    /// The rows of the view rowsource_progress
    rowsource_progress() TO PUBLIC "VOLATILE STRICT PARALLEL RESTRICTED"
        -> rows(progress::columns(), |rows| progress::rows(rows)),
        view: View { comment: "How far the measured statements are that run now: a row per statement, with its parallel workers", adds: Adds::Names(RUNS) };

    /// The rows of the view pg_stat_rowsource_waits
    pg_stat_rowsource_waits() TO PUBLIC "VOLATILE STRICT PARALLEL RESTRICTED"
        -> rows(waits::plan_columns(), |rows| waits::plan_rows(rows)),
        view: View { comment: "What the nodes of each stored plan waited for, and its statement outside of them, in all its executions", adds: Adds::Names(RAN) };

    /// The rows of the view pg_stat_rowsource_system_waits
    pg_stat_rowsource_system_waits() TO PUBLIC "VOLATILE STRICT PARALLEL RESTRICTED"
        -> rows(waits::system_columns(), |rows| waits::system_rows(rows)),
        view: View { comment: "The waits of all processes since the server started, those that have ended included", adds: Adds::Nothing };

    /// The rows of the view pg_stat_rowsource_session_waits
    pg_stat_rowsource_session_waits() TO PUBLIC "VOLATILE STRICT PARALLEL RESTRICTED"
        -> rows(waits::session_columns(), |rows| waits::session_rows(rows)),
        view: View { comment: "The waits of each running process since it started", adds: Adds::Session };

    /// The rows of the view pg_stat_rowsource_wait_histogram
    pg_stat_rowsource_wait_histogram() TO PUBLIC "VOLATILE STRICT PARALLEL RESTRICTED"
        -> rows(waits::histogram_columns(), |rows| waits::histogram_rows(rows)),
        view: View { comment: "How long the waits of all processes took, in powers of two", adds: Adds::Nothing };

    /// Internal: the waits of all processes, as a snapshot stores them. Everyone may call it, because
    /// rowsource_interval_waits does so with the rights of who reads it
    _rowsource_waits() TO PUBLIC "VOLATILE STRICT PARALLEL RESTRICTED"
        -> rows(waits::stored_columns(), |rows| waits::rows_to_store(rows));

    /// Internal: the moments that two texts mean: by default the last hour
    _rowsource_interval(
        from_time: moment, to_time: moment
    ) TO PUBLIC "STABLE CALLED ON NULL INPUT PARALLEL RESTRICTED"
        -> row(history::interval_columns(), |rows| history::interval_row(rows, from_time, to_time));

    /// Internal: fails if two texts mean no interval, and tells the client what of it snapshots do not have.
    /// Returns nothing
    _rowsource_check_interval(
        from_time: moment, to_time: moment
    ) TO PUBLIC "STABLE CALLED ON NULL INPUT PARALLEL RESTRICTED"
        -> lines(|_rows| intervals::check_interval(from_time, to_time));

    /// Prints what sessions waited for in an interval, in percent of the database time, like Oracle's "Top
    /// Timed Events", from the snapshots around it; without arguments, in the last hour
    rowsource_wait_report(
        from_time: moment = "NULL", to_time: moment = "NULL"
    ) TO PUBLIC "VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED"
        -> lines(|rows| history::wait_lines(rows, from_time, to_time));

    /// The same for moments that are no texts, like now() - interval '5 min' or interval '5 min'
    rowsource_wait_report[rowsource_wait_report_between](
        from_time: moment_value, to_time: moment_value = "NULL"
    ) TO PUBLIC "VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED"
        -> lines(|rows| history::wait_lines(rows, from_time, to_time));

    /// Prints what happened to temporary files in an interval, like Oracle's "IOStat by Filetype summary",
    /// from the snapshots around it; without arguments, in the last hour
    rowsource_tempfile_report(
        from_time: moment = "NULL", to_time: moment = "NULL"
    ) TO PUBLIC "VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED"
        -> lines(|rows| history::iostat_lines(rows, from_time, to_time));

    /// The same for moments that are no texts, like now() - interval '5 min' or interval '5 min'
    rowsource_tempfile_report[rowsource_tempfile_report_between](
        from_time: moment_value, to_time: moment_value = "NULL"
    ) TO PUBLIC "VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED"
        -> lines(|rows| history::iostat_lines(rows, from_time, to_time));
}

// The script and the book are made of what this returns: an object of JSON for each. The script need not
// declare it.
export!("rowsource_declarations_0_2", |call: &Call| call.returns(
    Shape::Values,
    |_, rows| {
        let all = [
            declared(),
            exports_of_history::declared(),
            sql::views::declared(),
            sql::blockers::declared(),
            sql::snapshots::declared(),
            sql::history::declared(),
            sql::baselines::declared(),
        ];
        for object in all.iter().flatten() {
            rows.add_line(&object.to_json().to_string());
        }
    }
));
