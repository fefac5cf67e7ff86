//! The C functions that `pg_rowsource--*.sql` declares. Their names end with the version that added or changed them.

use super::history::{Stored, Wanted};
use super::{
    ash, call_trace, clocks, display, explain, export, flips, history, live, logical_io, progress, sql_trace,
    store, stored_report, temp_usage, tempfile, trace_targets, views, waits,
};
use crate::pg::server::srf::{Call, Rows, Shape, export};
use pgrx::pg_sys::{self, Datum};
use rowsource_core::model::archive;
use rowsource_core::model::{PlanId, PlanKey};

/// The maximum length of a display format, in bytes: several times the length of all words together.
const MAX_FORMAT_BYTES: usize = 1_000;
/// The maximum length of a name, in bytes. Those that are longer than PostgreSQL's get an error of their own.
const MAX_NAME_BYTES: usize = 1_000;
/// The maximum length of a text that the SQL of a report passes, in bytes.
const MAX_REPORT_BYTES: usize = 1 << 20;

/// The maximum number of buckets of a histogram that is plotted.
const MAX_BUCKETS: usize = 10_000;

/// Returns the result of a set-returning function without arguments.
fn rows(call: &Call, make: fn(&mut Rows)) -> Datum {
    call.returns(Shape::Rows, |_, rows| make(rows))
}

/// The result of a function that returns nothing.
const VOID: usize = 0;

export! {
    rowsource_display_0_2 => |call: &Call| call.returns(Shape::Values, |call, rows| {
        let format = call.text(2, MAX_FORMAT_BYTES);
        let ids = (call.argument(0), call.argument(1));
        display::lines(rows, ids.0, ids.1, format.as_deref(), call.argument(3));
    });
    rowsource_explain_0_2 => |call: &Call| call.returns(Shape::Values, |call, rows| {
        let (format, which) = (call.text(2, MAX_FORMAT_BYTES), call.text(3, MAX_FORMAT_BYTES));
        let ids = [call.argument(0), call.argument(1)];
        explain::rows(rows, ids, format.as_deref(), which.as_deref());
    });
    rowsource_folded_0_2 => |call: &Call| call.returns(Shape::Values, |call, rows| {
        let which = call.text(2, MAX_FORMAT_BYTES);
        export::folded_lines(rows, call.argument(0), call.argument(1), which.as_deref());
    });
    rowsource_speedscope_0_2 => |call: &Call| call.returns(Shape::Values, |call, rows| {
        let which = call.text(2, MAX_FORMAT_BYTES);
        export::speedscope_row(rows, call.argument(0), call.argument(1), which.as_deref());
    });
    rowsource_html_0_2 => |call: &Call| call.returns(Shape::Values, |call, rows| {
        let which = call.text(2, MAX_FORMAT_BYTES);
        export::html_row(rows, call.argument(0), call.argument(1), which.as_deref());
    });
    rowsource_histogram_plot_0_2 => |call: &Call| call.returns(Shape::Values, |call, rows| {
        export::plot_lines(rows, call.argument(0), call.argument(1), call.argument(2).unwrap_or(0));
    });
    rowsource_logical_io_0_2 => |call: &Call| call.returns(Shape::Rows, |call, rows| {
        let (fork, pattern) = (call.text(1, MAX_FORMAT_BYTES), call.text(3, MAX_FORMAT_BYTES));
        // A missing relation gives no rows, as in PostgreSQL's own functions.
        if let Some(relation) = call.argument(0) {
            logical_io::rows(rows, relation, fork.as_deref(), call.argument(2), pattern.as_deref(), call.argument(4));
        }
    });
    rowsource_call_trace_0_2 => |call: &Call| call.returns(Shape::Rows, |call, rows| {
        if let (Some(statement), Some(max_calls)) = (call.database_text(0), call.argument(1)) {
            call_trace::rows(rows, statement, max_calls);
        }
    });
    rowsource_trace_start_0_2 => |call: &Call| call.returns(Shape::Values, |call, rows| {
        let wanted = trace_targets::Wanted {
            waits: call.argument(0).unwrap_or(true),
            binds: call.argument(1).unwrap_or(false),
            pid: call.argument(2),
            application_name: call.text(3, MAX_NAME_BYTES),
            role: call.text(4, MAX_NAME_BYTES),
            database: call.text(5, MAX_NAME_BYTES),
            client_addr: call.inet(6),
            queryid: call.argument(7),
            expires_after: call.interval(8),
        };
        if wanted.has_condition() {
            trace_targets::add(rows, &wanted);
        } else {
            trace_targets::refuse_expiry(&wanted);
            sql_trace::start(rows, wanted.waits, wanted.binds);
        }
    });
    rowsource_trace_stop_0_2 => |call: &Call| call.returns(Shape::Values, |call, rows| {
        match (call.argument(0), call.argument(1).unwrap_or(false)) {
            (Some(target), _) => trace_targets::remove(rows, target),
            (None, true) => trace_targets::remove_all(rows),
            (None, false) => sql_trace::stop(rows),
        }
    });
    rowsource_trace_targets_0_2 => |call| rows(call, trace_targets::rows);
    rowsource_trace_files_0_2 => |call| rows(call, sql_trace::file_rows);
    rowsource_tkprof_0_2 => |call: &Call| call.returns(Shape::Values, |call, rows| {
        let (files, sort) = (call.text(0, MAX_REPORT_BYTES), call.text(2, MAX_FORMAT_BYTES));
        sql_trace::report_lines(rows, files.as_deref(), call.argument(1), sort.as_deref(), call.argument(3));
    });
    rowsource_tkprof_store_0_2 => |call: &Call| call.returns(Shape::Values, |call, rows| {
        let sort = call.text(0, MAX_FORMAT_BYTES);
        stored_report::lines(rows, sort.as_deref().unwrap_or("totela"), call.argument(1));
    });
    rowsource_trace_events_0_2 => |call: &Call| call.returns(Shape::Values, |call, rows| {
        let files = call.text(0, MAX_REPORT_BYTES);
        sql_trace::document_row(rows, files.as_deref(), call.argument(1));
    });
    rowsource_histogram_lines_0_2 => |call: &Call| call.returns(Shape::Values, |call, rows| {
        export::histogram_lines(rows, call.array(0, MAX_BUCKETS), call.array(1, MAX_BUCKETS));
    });
    rowsource_last_0_2 => |call| rows(call, display::last_row);
    rowsource_clocks_0_2 => |call: &Call| call.returns(Shape::Rows, |call, rows| {
        clocks::rows(rows, call.argument(0).unwrap_or(0));
    });
    pg_stat_rowsource_0_2 => |call| rows(call, views::node_rows);
    pg_stat_rowsource_plans_0_2 => |call| rows(call, views::plan_rows);
    pg_stat_rowsource_histogram_0_2 => |call| rows(call, views::histogram_rows);
    rowsource_plan_flips_0_2 => |call| rows(call, flips::rows);
    rowsource_info_0_2 => |call| rows(call, store::info_row);
    rowsource_reset_0_2 => |call: &Call| {
        store::reset(
            call.argument(0).unwrap_or_default(),
            call.argument(1).unwrap_or_default(),
            call.argument(2).unwrap_or_default(),
        );
        Datum::from(VOID)
    };
    pg_stat_tempfile_io_0_2 => |call| rows(call, tempfile::io_rows);
    pg_stat_tempfile_io_histogram_0_2 => |call| rows(call, tempfile::histogram_rows);
    rowsource_tempfile_reset_0_2 => |call: &Call| {
        tempfile::reset(call.argument(0).unwrap_or_default());
        Datum::from(VOID)
    };
    pg_stat_rowsource_logical_io_0_2 => |call| rows(call, logical_io::node_rows);
    pg_stat_rowsource_live_0_2 => |call| rows(call, live::rows);
    rowsource_progress_0_2 => |call| rows(call, progress::rows);
    pg_stat_rowsource_waits_0_2 => |call| rows(call, waits::plan_rows);
    rowsource_system_waits_0_2 => |call| rows(call, waits::system_rows);
    rowsource_session_waits_0_2 => |call| rows(call, waits::session_rows);
    rowsource_wait_histogram_0_2 => |call| rows(call, waits::histogram_rows);
    rowsource_waits_to_store_0_2 => |call| rows(call, waits::rows_to_store);
    rowsource_wait_lines_0_2 => |call: &Call| call.returns(Shape::Values, |call, rows| {
        let waits = call.text(8, MAX_REPORT_BYTES);
        history::wait_lines(
            rows,
            [call.argument(0), call.argument(1)],
            [call.argument(2), call.argument(3)],
            [call.text(4, MAX_REPORT_BYTES), call.text(5, MAX_REPORT_BYTES)],
            call.argument(6),
            call.argument(7),
            waits.as_deref(),
        );
    });
    rowsource_ash_0_2 => |call: &Call| call.returns(Shape::Rows, |call, rows| {
        ash::rows(rows, call.argument(0), call.argument(1));
    });
    rowsource_ash_to_store_0_2 => |call: &Call| call.returns(Shape::Rows, |call, rows| {
        ash::rows_to_store(rows, call.argument(0), call.argument(1));
    });
    rowsource_top_activity_0_2 => |call: &Call| call.returns(Shape::Rows, |call, rows| {
        ash::top_rows(rows, call.argument(0), call.argument(1));
    });
    rowsource_ash_report_0_2 => |call: &Call| call.returns(Shape::Values, |call, rows| {
        ash::report_lines(rows, call.argument(0), call.argument(1));
    });
    rowsource_ash_start_0_2 => |_: &Call| Datum::from(ash::start());
    rowsource_temp_times_0_2 => |call| rows(call, temp_usage::time_rows);
    rowsource_temp_files_0_2 => |call| rows(call, temp_usage::file_rows);
    rowsource_iostat_lines_0_2 => |call: &Call| call.returns(Shape::Values, |call, rows| {
        let filetypes = call.text(7, MAX_REPORT_BYTES);
        history::iostat_lines(
            rows,
            [call.argument(0), call.argument(1)],
            [call.argument(2), call.argument(3)],
            [call.text(4, MAX_REPORT_BYTES), call.text(5, MAX_REPORT_BYTES)],
            call.argument(6),
            filetypes.as_deref(),
        );
    });
    rowsource_check_writable_0_2 => |_: &Call| {
        history::check_writable();
        Datum::from(VOID)
    };
    rowsource_note_removed_0_2 => |call: &Call| {
        history::note_removed(call.argument(0).unwrap_or(0));
        Datum::from(VOID)
    };
    rowsource_plans_to_store_0_2 => |call: &Call| call.returns(Shape::Rows, |call, rows| {
        history::plans_to_store(rows, call.argument(0));
    });
    rowsource_display_stored_0_2 => |call: &Call| call.returns(Shape::Values, |call, rows| {
        let wanted = Wanted {
            snapshot: call.argument(0),
            queryid: call.argument(1),
            planid: call.argument(2),
        };
        let (taken_at, format) = (call.text(3, MAX_FORMAT_BYTES), call.text(12, MAX_FORMAT_BYTES));
        let find = || Some(Stored {
            key: PlanKey::new(
                call.argument::<pg_sys::Oid>(4)?.to_u32(),
                call.argument::<pg_sys::Oid>(5)?.to_u32(),
                call.argument(6)?,
                PlanId { number: call.argument(7)?, shape: call.argument::<i64>(8)? as u32 },
                call.argument(9)?,
            ),
            description: call.bytes(10, archive::MAX_DESCRIPTION)?,
            statistics: call.bytes(11, archive::MAX_STATISTICS)?,
        });
        history::stored_lines(rows, &wanted, taken_at.as_deref(), find, format.as_deref());
    });
}
