//! `rowsource_plan_flips()`: the queries that changed their plan.

use super::words::MASKED;
use crate::pg::server;
use crate::pg::server::srf::{Rows, Value, oid, text, timestamp, value};
use crate::pg::store;
use rowsource_core::flips::{Event, Sample, extra_ms, verdict};

/// Adds the rows of `rowsource_plan_flips()`: one per change of a plan. There are none without a shared store.
pub fn rows(rows: &mut Rows) {
    for event in store::flips().unwrap_or_default() {
        server::check_for_interrupts();
        rows.add(row(&event));
    }
}

fn row(event: &Event) -> Vec<Value> {
    let (from, to) = (event.from, event.to());
    let visible = server::may_see(from.userid);
    let number = |number: i64| visible.then_some(number).and_then(value);
    // The later plan is more likely to be stored still.
    let stored = || store::plan(&to).or_else(|| store::plan(&from));
    let query = match visible {
        true => stored().and_then(|plan| text(&plan.description.text)),
        false => text(MASKED),
    };
    let mut values = vec![
        timestamp(event.at),
        oid(from.userid),
        oid(from.dbid),
        number(from.queryid),
        value(from.toplevel()),
        number(from.planid),
        number(i64::from(from.shape())),
        number(to.planid),
        number(i64::from(to.shape())),
    ];
    for sample in [&event.before, &event.after] {
        let time = |of: fn(&Sample) -> f64| (sample.calls > 0).then(|| of(sample)).and_then(value);
        values.extend([
            value(sample.calls as i64),
            time(|sample| sample.mean_ms),
            sample.error_ms().and_then(value),
            time(Sample::typical_ms),
        ]);
    }
    values.extend([
        extra_ms(&event.before, &event.after).and_then(value),
        value(verdict(&event.before, &event.after).name()),
        query,
    ]);
    values
}
