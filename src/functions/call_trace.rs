//! `rowsource_call_trace()`: the calls of a statement's nodes, one by one.

use super::wait_names;
use crate::guc;
use crate::instrumentation::auto_clock;
use crate::pg::executor::call_trace::{self, Listing, Node};
use crate::pg::server::fail;
use crate::pg::server::srf::{Rows, Value, text, value};
use pgrx::PgSqlErrorCode;
use rowsource_core::call_trace::{Entry, Kind, line, omitted_line};
use std::ffi::CStr;

/// The maximal number of calls. A line takes 40 bytes of memory, and there are up to three for a call.
const MAX_CALLS: i32 = 100_000;

/// Runs a statement, and adds a row for each call that begins or ends, and for each wait.
pub fn rows(rows: &mut Rows, statement: &CStr, max_calls: i32) {
    if !(1..=MAX_CALLS).contains(&max_calls) {
        fail(
            PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
            &format!("max_calls must be between 1 and {MAX_CALLS}"),
            "The statement runs to its end in any case: calls beyond max_calls are only counted.",
        )
    }
    let clock = guc::clock_source().unwrap_or_else(auto_clock);
    let scale = clock.scale();
    let listing = call_trace::run(statement, max_calls as usize, clock.read_fn());
    let us = |ticks: u64| scale.nanoseconds(ticks) / 1e3;
    for (i, entry) in listing.list.entries().iter().enumerate() {
        let at_us = us(entry.at.saturating_sub(listing.began));
        let elapsed_us = match entry.kind {
            Kind::Enter => None,
            Kind::Leave => Some(us(entry.elapsed)),
            Kind::Wait => Some(entry.elapsed as f64 / 1e3),
        };
        rows.add(row(&listing, i, entry, at_us, elapsed_us));
    }
    let (calls, waits) = listing.list.omitted();
    if calls + waits > 0 {
        let mut values = vec![
            value(listing.list.entries().len() as i64 + 1),
            None,
            None,
            text("OMITTED"),
        ];
        values.resize(11, None);
        values.push(text(&omitted_line(max_calls, calls, waits)));
        rows.add(values);
    }
}

/// Returns the row of a line.
fn row(listing: &Listing, i: usize, entry: &Entry, at_us: f64, elapsed_us: Option<f64>) -> Vec<Value> {
    let node = listing.nodes.get(entry.node as usize);
    let wait = (entry.kind == Kind::Wait).then(|| {
        let (of, event) = wait_names::name(entry.event).unzip();
        (
            of.unwrap_or_default(),
            event.unwrap_or_else(|| "other".to_owned()),
        )
    });
    let (name, what) = match entry.kind {
        Kind::Enter => ("ENTER", format!("-> {}", label(node))),
        Kind::Leave => {
            let result = if entry.has_row { "row" } else { "end" };
            ("LEAVE", format!("<- {}  {result}", label(node)))
        }
        Kind::Wait => {
            let (of, event) = wait.clone().unwrap_or_default();
            ("WAIT", format!("{of} {event}"))
        }
    };
    let (of, event) = wait.unzip();
    vec![
        value(i as i64 + 1),
        value(at_us),
        value(entry.depth as i32),
        text(name),
        node.and_then(|node| value(node.id as i32)),
        node.and_then(|node| text(&node.operation)),
        node.and_then(|node| text(node.object_name.as_deref()?)),
        of.and_then(|of| text(&of)),
        event.and_then(|event| text(&event)),
        elapsed_us.and_then(value),
        (entry.kind == Kind::Leave)
            .then_some(i64::from(entry.has_row))
            .and_then(value),
        text(&line(at_us, entry.depth, &what, elapsed_us)),
    ]
}

/// Returns what a line calls a node.
fn label(node: Option<&Node>) -> String {
    node.map_or_else(String::new, |node| match &node.object_name {
        Some(object) => format!("{} {object}", node.operation),
        None => node.operation.clone(),
    })
}
