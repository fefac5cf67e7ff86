//! The C functions that `pg_rowsource--*.sql` declares. Their names end with the version that added or changed them.

use super::{clocks, display, export, history, logical_io, store, temp_usage, tempfile, views};
use crate::pg::server::srf::{Call, Rows, Shape, export};
use pgrx::pg_sys::Datum;

/// The maximum length of a display format, in bytes: several times the length of all words together.
const MAX_FORMAT_BYTES: usize = 1_000;
/// The maximum length of a text that the SQL of a report passes, in bytes.
const MAX_REPORT_BYTES: usize = 64 << 10;

/// The maximum number of buckets of a histogram that is plotted.
const MAX_BUCKETS: usize = 10_000;

/// Returns the result of a set-returning function without arguments.
fn rows(call: &Call, make: fn(&mut Rows)) -> Datum {
    call.returns(Shape::Rows, |_, rows| make(rows))
}

/// The result of a function that returns nothing.
const VOID: usize = 0;

export! {
    rowsource_display_0_1 => |call: &Call| call.returns(Shape::Values, |call, rows| {
        let format = call.text(2, MAX_FORMAT_BYTES);
        display::lines(rows, call.argument(0), call.argument(1), format.as_deref());
    });
    rowsource_folded_0_1 => |call: &Call| call.returns(Shape::Values, |call, rows| {
        let which = call.text(2, MAX_FORMAT_BYTES);
        export::folded_lines(rows, call.argument(0), call.argument(1), which.as_deref());
    });
    rowsource_speedscope_0_1 => |call: &Call| call.returns(Shape::Values, |call, rows| {
        let which = call.text(2, MAX_FORMAT_BYTES);
        export::speedscope_row(rows, call.argument(0), call.argument(1), which.as_deref());
    });
    rowsource_histogram_plot_0_1 => |call: &Call| call.returns(Shape::Values, |call, rows| {
        export::plot_lines(rows, call.argument(0), call.argument(1), call.argument(2).unwrap_or(0));
    });
    rowsource_logical_io_0_1 => |call: &Call| call.returns(Shape::Rows, |call, rows| {
        // A missing relation, fork or pattern gives no rows, as in PostgreSQL's own functions.
        let (fork, pattern) = (call.text(1, MAX_FORMAT_BYTES), call.text(3, MAX_FORMAT_BYTES));
        if let (Some(relation), Some(fork), Some(pattern)) = (call.argument(0), fork, pattern) {
            logical_io::rows(rows, relation, &fork, call.argument(2), &pattern, call.argument(4));
        }
    });
    rowsource_histogram_lines_0_1 => |call: &Call| call.returns(Shape::Values, |call, rows| {
        export::histogram_lines(rows, call.array(0, MAX_BUCKETS), call.array(1, MAX_BUCKETS));
    });
    rowsource_last_0_1 => |call| rows(call, display::last_row);
    rowsource_clocks_0_1 => |call: &Call| call.returns(Shape::Rows, |call, rows| {
        clocks::rows(rows, call.argument(0).unwrap_or(0));
    });
    pg_stat_rowsource_0_1 => |call| rows(call, views::node_rows);
    pg_stat_rowsource_plans_0_1 => |call| rows(call, views::plan_rows);
    pg_stat_rowsource_histogram_0_1 => |call| rows(call, views::histogram_rows);
    rowsource_info_0_1 => |call| rows(call, store::info_row);
    rowsource_reset_0_1 => |call: &Call| {
        store::reset(
            call.argument(0).unwrap_or_default(),
            call.argument(1).unwrap_or_default(),
            call.argument(2).unwrap_or_default(),
        );
        Datum::from(VOID)
    };
    pg_stat_tempfile_io_0_1 => |call| rows(call, tempfile::io_rows);
    pg_stat_tempfile_io_histogram_0_1 => |call| rows(call, tempfile::histogram_rows);
    rowsource_tempfile_reset_0_1 => |call: &Call| {
        tempfile::reset(call.argument(0).unwrap_or_default());
        Datum::from(VOID)
    };
    rowsource_temp_files_0_1 => |call| rows(call, temp_usage::file_rows);
    rowsource_iostat_lines_0_1 => |call: &Call| call.returns(Shape::Values, |call, rows| {
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
}
