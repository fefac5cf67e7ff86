//! `rowsource_clocks()`: the cost and the behaviour of each clock source on this machine.

use crate::instrumentation::auto_clock;
use crate::pg::server::srf::{Rows, Value, text, value};
use crate::pg::server::{self, fail};
use pgrx::PgSqlErrorCode;
use rowsource_core::clock::{Source, survey};

/// Reads each clock source `calls` times, and adds a row for it.
pub fn rows(rows: &mut Rows, calls: i32) {
    let Some(calls) = u32::try_from(calls).ok().filter(|&calls| calls > 0) else {
        fail(
            PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
            "the number of calls must be positive",
            "A million calls take less than a second with any clock source.",
        )
    };
    for source in Source::ALL {
        rows.add(row(source, calls));
    }
}

fn row(source: Source, calls: u32) -> [Value; 8] {
    let survey = survey(source, calls, server::check_for_interrupts);
    let is_usable = survey.usable.is_ok();
    [
        text(source.name()),
        value(is_usable),
        survey.usable.err().and_then(|reason| text(&reason.to_string())),
        value(source == auto_clock()),
        survey.ns_per_reading.and_then(value),
        survey.resolution_ns.and_then(value),
        is_usable.then_some(survey.backward_steps as i64).and_then(value),
        is_usable
            .then_some(survey.largest_backward_step_ns)
            .and_then(value),
    ]
}
