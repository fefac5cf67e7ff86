//! `rowsource_call_trace()`: the calls of a statement's nodes, one by one.

use super::wait_names;
use crate::guc;
use crate::instrumentation::auto_clock;
use crate::pg::executor::call_trace::{self, Listing, Node};
use crate::pg::server::columns::{Columns, columns};
use crate::pg::server::contained::rolled_back;
use crate::pg::server::fail;
use crate::pg::server::srf::Rows;
use pgrx::PgSqlErrorCode;
use rowsource_core::call_trace::{Entry, Kind, line, omitted_line};
use std::ffi::CStr;

/// The maximal number of calls. A line takes 40 bytes of memory, and there are up to three for a call.
const MAX_CALLS: i32 = 100_000;

/// Runs a statement, and adds a row for each call that begins or ends, and for each wait. What the statement
/// changes is rolled back, unless `keep`.
pub fn rows(rows: &mut Rows, statement: &CStr, max_calls: i32, keep: bool) {
    if !(1..=MAX_CALLS).contains(&max_calls) {
        fail(
            PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
            &format!("max_calls must be between 1 and {MAX_CALLS}"),
            "The statement runs to its end in any case: calls beyond max_calls are only counted.",
        )
    }
    let clock = guc::clock_source().unwrap_or_else(auto_clock);
    let scale = clock.scale();
    let run = || call_trace::run(statement, max_calls as usize, clock.read_fn());
    let listing = if keep { run() } else { rolled_back(run) };
    let us = |ticks: u64| scale.nanoseconds(ticks) / 1e3;
    let columns = columns();
    for (i, entry) in listing.list.entries().iter().enumerate() {
        let at_us = us(entry.at.saturating_sub(listing.began));
        let elapsed_us = match entry.kind {
            Kind::Enter => None,
            Kind::Leave => Some(us(entry.elapsed)),
            Kind::Wait => Some(entry.elapsed as f64 / 1e3),
        };
        columns.add(rows, &row(&listing, i, entry, at_us, elapsed_us));
    }
    let (calls, waits) = listing.list.omitted();
    if calls + waits > 0 {
        let last = Line {
            seq: listing.list.entries().len() + 1,
            at_us: None,
            depth: None,
            event: "OMITTED",
            node: None,
            wait: None,
            elapsed_us: None,
            rows: None,
            line: omitted_line(max_calls, calls, waits),
        };
        columns.add(rows, &last);
    }
}

/// A line of the list.
pub struct Line<'a> {
    seq: usize,
    at_us: Option<f64>,
    depth: Option<u32>,
    event: &'static str,
    node: Option<&'a Node>,
    /// The type and the name of the event.
    wait: Option<(String, String)>,
    elapsed_us: Option<f64>,
    rows: Option<u32>,
    line: String,
}

/// The columns of `rowsource_call_trace()`.
pub fn columns<'a>() -> Columns<Line<'a>> {
    columns! { |line: &Line<'_>|
        /// Numbers the lines from 1 on
        seq: bigint = line.seq;
        /// Microseconds since the statement began
        at_us: float8 = line.at_us;
        /// The number of calls in which this one is, or this wait
        depth: int = line.depth;
        /// ENTER: a call began; LEAVE: it ended; WAIT: a wait ended; OMITTED: what is not listed
        event: text = line.event;
        /// The number of the node, as in EXPLAIN
        node_id: int = line.node.map(|node| node.id);
        /// What the node does
        operation: text = line.node.map(|node| &node.operation);
        /// The index, table or other object that it works on
        object_name: text = line.node.and_then(|node| node.object_name.as_ref());
        /// The type of the event of a wait
        wait_event_type: text = line.wait.as_ref().map(|(kind, _)| kind);
        /// The event
        wait_event: text = line.wait.as_ref().map(|(_, event)| event);
        /// Microseconds that the call or the wait took
        elapsed_us: float8 = line.elapsed_us;
        /// 1 if a call that ended returned a row, else 0
        rows: bigint = line.rows;
        /// The same as indented text
        line: text = &line.line;
    }
}

/// Returns the row of a line.
fn row<'a>(listing: &'a Listing, i: usize, entry: &Entry, at_us: f64, elapsed_us: Option<f64>) -> Line<'a> {
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
    Line {
        seq: i + 1,
        at_us: Some(at_us),
        depth: Some(entry.depth),
        event: name,
        node,
        wait,
        elapsed_us,
        rows: (entry.kind == Kind::Leave).then_some(u32::from(entry.has_row)),
        line: line(at_us, entry.depth, &what, elapsed_us),
    }
}

/// Returns what a line calls a node.
fn label(node: Option<&Node>) -> String {
    node.map_or_else(String::new, |node| match &node.object_name {
        Some(object) => format!("{} {object}", node.operation),
        None => node.operation.clone(),
    })
}
