//! `rowsource_clocks()`: what each clock source costs and how it behaves on this machine.

use super::fail;
use crate::instrumentation::auto_clock;
use crate::pg::server;
use pgrx::PgSqlErrorCode;
use pgrx::prelude::*;
use rowsource_core::clock::{Source, survey};

type Row = (
    name!(clock_source, String),
    name!(usable, bool),
    name!(reason, Option<String>),
    name!(auto, bool),
    name!(reading_ns, Option<f64>),
    name!(resolution_ns, Option<f64>),
    name!(backward_steps, Option<i64>),
    name!(largest_backward_step_ns, Option<f64>),
);

#[pg_extern(sql = false)]
#[allow(clippy::type_complexity, reason = "pgrx reads the columns from the signature")]
fn rowsource_clocks(
    calls: i32,
) -> TableIterator<
    'static,
    (
        name!(clock_source, String),
        name!(usable, bool),
        name!(reason, Option<String>),
        name!(auto, bool),
        name!(reading_ns, Option<f64>),
        name!(resolution_ns, Option<f64>),
        name!(backward_steps, Option<i64>),
        name!(largest_backward_step_ns, Option<f64>),
    ),
> {
    let Some(calls) = u32::try_from(calls).ok().filter(|&calls| calls > 0) else {
        fail(
            PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
            "the number of calls must be positive",
            "A million calls take less than a second with any clock source.",
        )
    };
    TableIterator::new(Source::ALL.map(|source| row(source, calls)))
}

fn row(source: Source, calls: u32) -> Row {
    let survey = survey(source, calls, server::check_for_interrupts);
    let read = survey.usable.is_ok();
    (
        source.name().to_owned(),
        read,
        survey.usable.err().map(|reason| reason.to_string()),
        source == auto_clock(),
        survey.ns_per_reading,
        survey.resolution_ns,
        read.then_some(survey.backward_steps as i64),
        read.then_some(survey.largest_backward_step_ns),
    )
}
