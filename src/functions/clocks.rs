//! `rowsource_clocks()`: the cost and the behaviour of each clock source on this machine.

use crate::instrumentation::auto_clock;
use crate::pg::server::columns::{Columns, columns};
use crate::pg::server::srf::Rows;
use crate::pg::server::{self, fail};
use pgrx::PgSqlErrorCode;
use rowsource_core::clock::{Source, Survey, survey};

/// Reads each clock source `calls` times, and adds a row for it.
pub fn rows(rows: &mut Rows, calls: i32) {
    let Some(calls) = u32::try_from(calls).ok().filter(|&calls| calls > 0) else {
        fail(
            PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
            "the number of calls must be positive",
            "A million calls take less than a second with any clock source.",
        )
    };
    let columns = columns();
    for source in Source::ALL {
        let survey = survey(source, calls, server::check_for_interrupts);
        columns.add(rows, &(source, survey));
    }
}

/// The columns of `rowsource_clocks()`.
pub fn columns() -> Columns<(Source, Survey)> {
    columns! { |row: &(Source, Survey)|
        /// Its name, as setting pg_rowsource.clock_source has it
        clock_source: text = row.0.name();
        /// Whether it can be used
        usable: boolean = row.1.usable.is_ok();
        /// Why it cannot be used
        reason: text = row.1.usable.as_ref().err().map(|reason| reason.to_string());
        /// Whether pg_rowsource.clock_source = auto uses it
        auto: boolean = row.0 == auto_clock();
        /// Nanoseconds that a reading takes
        reading_ns: float8 = row.1.ns_per_reading;
        /// Its smallest step, in nanoseconds
        resolution_ns: float8 = row.1.resolution_ns;
        /// How often it went back
        backward_steps: bigint = row.1.usable.is_ok().then_some(row.1.backward_steps);
        /// Its largest step back, in nanoseconds
        largest_backward_step_ns: float8 = row.1.usable.is_ok().then_some(row.1.largest_backward_step_ns);
    }
}
