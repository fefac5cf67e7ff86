//! The SQL functions of the history: samples, lists of an interval, reports, and what snapshots need.

use super::history::{Stored, Wanted};
use super::regressions::Earlier;
use super::surface::{Adds, MAX_FORMAT_BYTES, MAX_NAME_BYTES, View, functions};
use super::{
    advice, ash, blockers, health, history, interval_top, regressions, report, temp_usage, transfer,
};
use crate::pg::server::srf::{Call, Shape};
use pgrx::pg_sys::Datum;
use rowsource_core::model::PlanKey;
use rowsource_core::model::archive;

/// The maximum length of a line of the history of another server, in bytes: that of a plan whose bytes are
/// hexadecimal digits, and its text.
const MAX_LINE_BYTES: usize = 3 * (archive::MAX_DESCRIPTION + archive::MAX_STATISTICS);

functions! {
    /// The samples of active sessions in an interval, of memory and snapshots; without a beginning those of
    /// memory; without arguments, the rows of the view rowsource_ash
    rowsource_ash(
        from_time: moment = "NULL", to_time: moment = "NULL"
    ) TO PUBLIC "VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED"
        -> rows(ash::columns(), |rows| ash::rows(rows, from_time, to_time)),
        view: View { comment: "Active session history: a row for each session that was active when the sessions were sampled", adds: Adds::Names(["The user of the statement", "The database of the session"]) };

    /// The same for moments that are no texts, like now() - interval '5 min' or interval '5 min'
    rowsource_ash[rowsource_ash_between](
        from_time: moment_value, to_time: moment_value = "NULL"
    ) TO PUBLIC "VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED"
        -> rows(ash::columns(), |rows| ash::rows(rows, from_time, to_time));

    /// Internal: the moments after the last one that is stored: no row if there are none
    rowsource_moments_to_store(stored: timestamptz) TO nobody "VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED"
        -> row(ash::moments_columns(), |rows| ash::moments_row(rows, stored));

    /// Internal: their samples until another moment, as a snapshot stores them
    rowsource_ash_to_store(stored: timestamptz, until: timestamptz) TO nobody "VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED"
        -> rows(ash::columns(), |rows| ash::rows_to_store(rows, stored, until));

    /// What sessions did most in an interval: samples by statement, plan, node and wait event, or by one of
    /// them only; without arguments, in the last hour. by: statement, plan, node, wait, application, user,
    /// database or relation
    rowsource_top_activity(
        from_time: moment = "NULL", to_time: moment = "NULL", by: text(MAX_FORMAT_BYTES) = "NULL"
    ) TO PUBLIC "VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED"
        -> rows(ash::top_columns(), |rows| ash::top_rows(rows, from_time, to_time, by.as_deref())),
        view: View { comment: "What sessions did most in the last hour: samples by statement, plan, node and wait event", adds: Adds::Names(["The user of the statement", "The database of the sessions"]) };

    /// The same for moments that are no texts, like now() - interval '5 min' or interval '5 min'
    rowsource_top_activity[rowsource_top_activity_between](
        from_time: moment_value, to_time: moment_value = "NULL", by: text(MAX_FORMAT_BYTES) = "NULL"
    ) TO PUBLIC "VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED"
        -> rows(ash::top_columns(), |rows| ash::top_rows(rows, from_time, to_time, by.as_deref()));

    /// What ran in an interval, counted between the snapshots around it, now being one; without arguments, in
    /// the last hour. by: statement, user, database, node, relation or wait. The sum of the rows is all that
    /// ran with plans that are stored. Without the privileges of pg_read_all_stats, all since the statistics
    /// were reset
    rowsource_top(
        from_time: moment = "NULL", to_time: moment = "NULL", by: text(MAX_FORMAT_BYTES) = "'statement'"
    ) TO PUBLIC "VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED"
        -> rows(interval_top::columns(), |rows| interval_top::rows(rows, from_time, to_time, by.as_deref()));

    /// The same for moments that are no texts, like now() - interval '5 min' or interval '5 min'
    rowsource_top[rowsource_top_between](
        from_time: moment_value, to_time: moment_value = "NULL", by: text(MAX_FORMAT_BYTES) = "'statement'"
    ) TO PUBLIC "VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED"
        -> rows(interval_top::columns(), |rows| interval_top::rows(rows, from_time, to_time, by.as_deref()));

    /// Prints what sessions did in an interval, like Oracle's ASH report; without arguments, in the last
    /// hour
    rowsource_ash_report(
        from_time: moment = "NULL", to_time: moment = "NULL"
    ) TO PUBLIC "VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED"
        -> lines(|rows| ash::report_lines(rows, from_time, to_time));

    /// The same for moments that are no texts, like now() - interval '5 min' or interval '5 min'
    rowsource_ash_report[rowsource_ash_report_between](
        from_time: moment_value, to_time: moment_value = "NULL"
    ) TO PUBLIC "VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED"
        -> lines(|rows| ash::report_lines(rows, from_time, to_time));

    /// Who waited for whom in an interval: the trees of the view rowsource_blockers, from the samples of
    /// active sessions; without arguments, in the last hour
    rowsource_blockers(
        from_time: moment = "NULL", to_time: moment = "NULL"
    ) TO PUBLIC "VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED"
        -> rows(blockers::columns(), |rows| blockers::rows(rows, from_time, to_time));

    /// The same for moments that are no texts, like now() - interval '5 min' or interval '5 min'
    rowsource_blockers[rowsource_blockers_between](
        from_time: moment_value, to_time: moment_value = "NULL"
    ) TO PUBLIC "VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED"
        -> rows(blockers::columns(), |rows| blockers::rows(rows, from_time, to_time));

    /// Prints what happened in an interval and what to look at next: what is wrong, the load, the statements
    /// and nodes that took the most time, what changed, waits, temporary files, and what is not known;
    /// without arguments, in the last hour. format: text, or html for one page
    rowsource_report(
        from_time: moment = "NULL", to_time: moment = "NULL", format: text(MAX_FORMAT_BYTES) = "'text'"
    ) TO PUBLIC "VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED"
        -> lines(|rows| report::rows(rows, None, from_time, to_time, format.as_deref()));

    /// The same for one statement
    rowsource_report[rowsource_report_of](
        queryid: bigint, from_time: moment = "NULL", to_time: moment = "NULL",
        format: text(MAX_FORMAT_BYTES) = "'text'"
    ) TO PUBLIC "VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED"
        -> lines(|rows| report::rows(rows, queryid, from_time, to_time, format.as_deref()));

    /// The same for moments that are no texts, like now() - interval '5 min' or interval '5 min'
    rowsource_report[rowsource_report_between](
        from_time: moment_value, to_time: moment_value = "NULL", format: text(MAX_FORMAT_BYTES) = "'text'"
    ) TO PUBLIC "VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED"
        -> lines(|rows| report::rows(rows, None, from_time, to_time, format.as_deref()));

    /// What could be done better, from what the stored plans did: a row for each node with a finding that can
    /// save ten seconds, or one percent of the time of all client statements. Nothing of it is run
    rowsource_advice() TO PUBLIC "VOLATILE STRICT PARALLEL RESTRICTED"
        -> rows(advice::columns(), |rows| advice::rows(rows));

    /// Says of each part of the library whether it works, and what mends it
    rowsource_health() TO PUBLIC "VOLATILE STRICT PARALLEL RESTRICTED"
        -> rows(health::columns(), |rows| health::rows(rows));

    /// Starts the background worker that samples the sessions, if the server has not preloaded
    /// pg_rowsource, and returns its pid
    rowsource_ash_start() TO nobody "VOLATILE STRICT PARALLEL UNSAFE"
        -> int(ash::start());

    /// Internal: how long the last statement of each session has waited for temporary files. Everyone may
    /// call it, because rowsource_tempfile_usage() runs with its caller's rights. Statements of others are
    /// left out, as in pg_stat_activity
    _rowsource_tempfile_times() TO PUBLIC "VOLATILE STRICT PARALLEL RESTRICTED"
        -> rows(temp_usage::time_columns(), |rows| temp_usage::time_rows(rows));

    /// Internal: the temporary files on disk. Everyone may call it, because rowsource_tempfile_usage() runs
    /// with its caller's rights
    _rowsource_tempfiles() TO PUBLIC "VOLATILE STRICT PARALLEL RESTRICTED"
        -> rows(temp_usage::file_columns(), |rows| temp_usage::file_rows(rows));

    /// Internal: locks a table of snapshots for writing, and fails with a hint on a standby, in a read-only
    /// transaction, and if a trigger or foreign key of somebody else would run
    rowsource_check_writable(rel: regclass) TO nobody "VOLATILE STRICT PARALLEL RESTRICTED"
        -> void(history::check_writable(rel.map(|oid| oid.to_u32())));

    /// Internal: fails if an interval cannot get a name
    rowsource_check_new_baseline(
        name: text(MAX_FORMAT_BYTES), is_there: boolean, bytes: bigint, snapshots: bigint
    ) TO nobody "VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED"
        -> void(transfer::check_new_baseline(
            name.as_deref(),
            is_there.unwrap_or(false),
            bytes.unwrap_or(0),
            snapshots.unwrap_or(0),
        ));

    /// Internal: fails if no baseline has a name
    rowsource_check_baseline(
        name: text(MAX_FORMAT_BYTES), is_there: boolean
    ) TO nobody "VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED"
        -> void(transfer::check_baseline(name.as_deref(), is_there.unwrap_or(false)));

    /// Internal: fails if the history of other servers takes too much
    rowsource_check_import(bytes: bigint) TO nobody "VOLATILE STRICT PARALLEL RESTRICTED"
        -> void(transfer::check_import(bytes.unwrap_or(0)));

    /// Internal: what a line of rowsource_export() says. Fails if it is none
    rowsource_imported_line(line: text(MAX_LINE_BYTES)) TO nobody "VOLATILE STRICT PARALLEL RESTRICTED"
        -> row(transfer::imported_columns(), |rows| {
            if let Some(line) = line {
                transfer::imported_row(rows, &line);
            }
        });

    /// Internal: the roles and databases of which the history has nothing
    _rowsource_excluded() TO PUBLIC "STABLE STRICT PARALLEL RESTRICTED"
        -> rows(history::excluded_columns(), |rows| history::excluded_rows(rows));

    /// Internal: notes that snapshots were deleted because of their size
    rowsource_note_removed(snapshots: bigint) TO nobody "VOLATILE STRICT PARALLEL RESTRICTED"
        -> void(history::note_removed(snapshots.unwrap_or(0)));

    /// Internal: the plans that ran since a time, as rowsource_snapshot() stores them
    rowsource_plans_to_store(since: timestamptz) TO nobody "VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED"
        -> rows(history::plan_columns(), |rows| history::plans_to_store(rows, since));

    /// Internal: notes at a snapshot what a plan did in an earlier interval: its statistics until the end,
    /// and until the beginning. Without a reference, that it ran
    rowsource_note_reference(
        at: timestamptz, reference: int, from_time: timestamptz, to_time: timestamptz, userid: oid, datid: oid,
        queryid: bigint, planid: bigint, toplevel: boolean, statistics: bytea(archive::WHOLE_BYTES),
        earlier: bytea(archive::WHOLE_BYTES)
    ) TO nobody "VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED"
        -> void({
            let key = || Some(PlanKey::new(
                userid?.to_u32(),
                datid?.to_u32(),
                queryid?,
                planid?,
                toplevel?,
            ));
            if let (Some(at), Some(key)) = (at, key()) {
                regressions::note_reference(&key, at, &Earlier {
                    reference,
                    interval: [from_time, to_time],
                    statistics: statistics.as_deref(),
                    earlier: earlier.as_deref(),
                });
            }
        });

    /// Internal: formats the plan of rowsource_display_snapshot()
    rowsource_display_stored(
        wanted_snap: bigint, wanted_queryid: bigint, wanted_planid: bigint,
        taken_at: text(MAX_FORMAT_BYTES), userid: oid, datid: oid, queryid: bigint, planid: bigint,
        toplevel: boolean, description: bytea(archive::MAX_DESCRIPTION),
        statistics: bytea(archive::MAX_STATISTICS), usename: text(MAX_NAME_BYTES), datname: text(MAX_NAME_BYTES),
        format: text(MAX_FORMAT_BYTES)
    ) TO pg_read_all_stats "STABLE CALLED ON NULL INPUT PARALLEL RESTRICTED"
        -> lines(|rows| {
            let wanted = Wanted {
                snapshot: wanted_snap,
                queryid: wanted_queryid,
                planid: wanted_planid,
            };
            let find = || Some(Stored {
                key: PlanKey::new(
                    userid?.to_u32(),
                    datid?.to_u32(),
                    queryid?,
                    planid?,
                    toplevel?,
                ),
                description: description?,
                statistics: statistics?,
            });
            history::stored_lines(rows, &wanted, taken_at.as_deref(), find, [usename, datname], format.as_deref())
        });
}
