//! The rows of `pg_stat_rowsource_system_waits`, `pg_stat_rowsource_session_waits`,
//! `pg_stat_rowsource_wait_histogram` and `pg_stat_rowsource_waits`.

use super::stored::{self, Key};
use super::wait_names::{self, Name};
use crate::pg::server::columns::{Columns, columns};
use crate::pg::server::srf::Rows;
use crate::pg::server::{fail, may_see, pid};
use crate::pg::waits::{names, refused, slots};
use pgrx::PgSqlErrorCode;
use rowsource_core::waits::plan::EventWaits;
use rowsource_core::waits::{Event, WaitTimes, Waits};
use std::collections::BTreeMap;

const NS_PER_MS: f64 = 1e6;

/// Returns the waits by the names of their events. Locks that another extension has not named in this session
/// share a name.
fn by_name<K: Ord>(waits: impl Iterator<Item = (K, Event, Waits)>) -> BTreeMap<(K, Name), Waits> {
    let mut sums: BTreeMap<(K, Name), Waits> = BTreeMap::new();
    for (key, event, waits) in waits {
        sums.entry((key, wait_names::name(event)))
            .or_default()
            .add(&waits);
    }
    sums
}

/// What is shown of an event: its type and its name.
type Shown = (Option<String>, String);

fn shown(name: Name) -> Shown {
    let (event_type, event) = name.unzip();
    (event_type, event.unwrap_or_else(|| "other".to_owned()))
}

/// Returns what is shown instead if waits are not counted: the reason.
fn refusal() -> Option<Shown> {
    refused().map(|reason| (None, format!("not counted: {reason}")))
}

/// Waits of processes: `who` is their type, or one of them. A bucket has its number and its count.
pub struct Row<K> {
    who: Option<K>,
    event: Shown,
    waits: Option<Waits>,
    bucket: Option<(usize, u64)>,
}

impl<K> Row<K> {
    fn new((who, name): (K, Name), waits: Waits) -> Row<K> {
        Row {
            who: Some(who),
            event: shown(name),
            waits: Some(waits),
            bucket: None,
        }
    }

    fn total_ms(&self) -> Option<f64> {
        self.waits.map(|waits| waits.ns as f64 / NS_PER_MS)
    }
}

/// The names of the event.
fn event_columns<K>() -> Columns<Row<K>> {
    columns! { |row: &Row<K>|
        /// The type of the event, as in pg_stat_activity; NULL if the event has no counters of its own
        wait_event_type: text = row.event.0.as_ref();
        /// The event, as in pg_stat_activity. other: all events that have no counters of their own. not
        /// counted: the reason why waits are not counted
        wait_event: text = &row.event.1;
    }
}

/// The numbers.
fn number_columns<K>() -> Columns<Row<K>> {
    columns! { |row: &Row<K>|
        /// Waits that have ended
        waits: bigint = row.waits.map(|waits| waits.count());
        /// Milliseconds of these waits
        wait_time: float8 = row.total_ms();
        /// Milliseconds of such a wait on average
        mean_time: float8 = row.waits.filter(|waits| waits.count() > 0)
            .and_then(|waits| Some(row.total_ms()? / waits.count() as f64));
        /// Milliseconds of the longest such wait
        max_time: float8 = row.waits.map(|waits| waits.max_ns as f64 / NS_PER_MS);
        /// Milliseconds that 99 % of these waits took at most, estimated from the histogram
        p99_time: float8 = row.waits.and_then(|waits| waits.quantile_ns(0.99)).map(|ns| ns / NS_PER_MS);
    }
}

fn backend_type_columns() -> Columns<Row<String>> {
    columns! { |row: &Row<String>|
        /// The type of the processes, as in pg_stat_activity. Of the background workers, only parallel
        /// workers are told apart
        backend_type: text = row.who.as_ref();
    }
}

/// The columns of `pg_stat_rowsource_system_waits()`.
pub fn system_columns() -> Columns<Row<String>> {
    backend_type_columns().and(event_columns()).and(number_columns())
}

/// The columns of `pg_stat_rowsource_session_waits()`.
pub fn session_columns() -> Columns<Row<i32>> {
    let pid = columns! { |row: &Row<i32>|
        /// The process
        pid: int = row.who;
    };
    pid.and(event_columns()).and(number_columns())
}

/// The columns of `pg_stat_rowsource_wait_histogram()`.
pub fn histogram_columns() -> Columns<Row<String>> {
    let bucket = columns! { |row: &Row<String>|
        /// The lower bound of the bucket, in microseconds
        from_us: float8 = row.bucket.map(|(bucket, _)| WaitTimes::bounds_us(bucket).0);
        /// The upper bound of the bucket, in microseconds; NULL if it has none
        to_us: float8 = row.bucket.and_then(|(bucket, _)| WaitTimes::bounds_us(bucket).1);
        /// Waits that took this long
        waits: bigint = row.bucket.map(|(_, count)| count);
    };
    backend_type_columns().and(event_columns()).and(bucket)
}

/// The columns of `rowsource_waits_to_store()`.
pub fn stored_columns() -> Columns<Row<String>> {
    let numbers = columns! { |row: &Row<String>|
        /// Waits that have ended
        waits: bigint = row.waits.map(|waits| waits.count());
        /// Milliseconds of these waits
        wait_time: float8 = row.total_ms();
        /// Since when they are counted
        stats_reset: timestamptz = slots::stats_reset();
    };
    backend_type_columns().and(event_columns()).and(numbers)
}

/// Adds a row that says why waits are not counted, and returns whether that is so.
fn add_refusal<K>(rows: &mut Rows, columns: &Columns<Row<K>>) -> bool {
    let (who, waits, bucket) = (None, None, None);
    let refusal = refusal().map(|event| Row {
        who,
        event,
        waits,
        bucket,
    });
    if let Some(refusal) = &refusal {
        columns.add(rows, refusal);
    }
    refusal.is_some()
}

/// What the nodes of a plan waited for an event.
pub struct OfPlan {
    key: Key,
    node: Option<usize>,
    event: Shown,
    waits: Option<EventWaits>,
}

/// The columns of `pg_stat_rowsource_waits()`.
pub fn plan_columns() -> Columns<OfPlan> {
    let ms = |ns: u64| ns as f64 / NS_PER_MS;
    let columns = columns! { |row: &OfPlan|
        /// The number of the node that waited, from 0 at the root, in the order of EXPLAIN; NULL outside of
        /// the nodes: the statement was parsed, planned, started, ended or committed, or sent rows to the
        /// client
        node_id: int = row.node;
        /// The type of the event, as in pg_stat_activity; NULL for the row other
        wait_event_type: text = row.event.0.as_ref();
        /// The event, as in pg_stat_activity. other: the plan keeps 8 pairs of a node and an event, and all
        /// others add up in this row. not counted: the reason why waits are not counted
        wait_event: text = &row.event.1;
        /// Waits, also those of parallel workers in this node
        waits: bigint = row.waits.map(|of| of.waits);
        /// Milliseconds of these waits
        wait_time: float8 = row.waits.map(|of| ms(of.ns));
        /// Milliseconds of such a wait on average
        mean_time: float8 = row.waits.map(|of| ms(of.ns) / of.waits.max(1) as f64);
        /// Milliseconds of the longest such wait
        max_time: float8 = row.waits.map(|of| ms(of.max_ns));
    };
    Columns::new()
        .with(stored::key_columns(), |row: &OfPlan| &row.key)
        .and(columns)
}

/// Adds the rows of `pg_stat_rowsource_waits`: one per stored plan, node and event.
pub fn plan_rows(rows: &mut Rows) {
    let columns = plan_columns();
    let mut add = |key, node, event, waits| {
        columns.add(
            rows,
            &OfPlan {
                key,
                node,
                event,
                waits,
            },
        )
    };
    if let Some(reason) = refusal() {
        return add(Key::default(), None, reason, None);
    }
    stored::each(|stored| {
        for ((node, name), waits) in wait_names::by_node(&stored.plan.statistics.waits) {
            add(stored.key(), node, shown(name), Some(waits));
        }
    });
}

/// Returns the waits of all processes. Fails if only those of this session are counted.
fn system() -> BTreeMap<(String, Name), Waits> {
    let Some(total) = slots::total() else {
        fail(
            PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            "pg_rowsource counts only the waits of this session",
            "Add pg_rowsource to \"shared_preload_libraries\" and restart the server. Until then, pg_stat_rowsource_session_waits shows the waits of this session since it loaded the library.",
        )
    };
    by_type(total)
}

/// Returns the waits by the names of the types of processes and of the events.
fn by_type(total: BTreeMap<(u32, Event), Waits>) -> BTreeMap<(String, Name), Waits> {
    let named = total
        .into_iter()
        .map(|((of, event), waits)| (names::backend_type_name(of), event, waits));
    by_name(named)
}

/// Adds the rows of `rowsource_waits_to_store()`: none if the waits of all processes are not counted.
pub fn rows_to_store(rows: &mut Rows) {
    let (None, Some(total), Some(_)) = (refused(), slots::total(), slots::stats_reset()) else {
        return;
    };
    let columns = stored_columns();
    for (of, waits) in by_type(total) {
        columns.add(rows, &Row::new(of, waits));
    }
}

/// Adds the rows of `pg_stat_rowsource_system_waits`: one per type of processes and event.
pub fn system_rows(rows: &mut Rows) {
    let columns = system_columns();
    if add_refusal(rows, &columns) {
        return;
    }
    for (of, waits) in system() {
        columns.add(rows, &Row::new(of, waits));
    }
}

/// Adds the rows of `pg_stat_rowsource_session_waits`: one per running process and event. As in
/// pg_stat_activity, processes of other users are left out unless the user may see them.
pub fn session_rows(rows: &mut Rows) {
    let columns = session_columns();
    if add_refusal(rows, &columns) {
        return;
    }
    let me = pid();
    for session in slots::sessions().filter(|session| session.pid == me || may_see(session.userid)) {
        let waits = session
            .waits
            .into_iter()
            .map(|(event, waits)| (session.pid, event, waits));
        for (of, waits) in by_name(waits) {
            columns.add(rows, &Row::new(of, waits));
        }
    }
}

/// Adds the rows of `pg_stat_rowsource_wait_histogram`: one per type of processes, event and bucket that is
/// not empty.
pub fn histogram_rows(rows: &mut Rows) {
    let columns = histogram_columns();
    if add_refusal(rows, &columns) {
        return;
    }
    for (of, waits) in system() {
        let mut row = Row::new(of, waits);
        for (bucket, &count) in waits.histogram.iter().enumerate() {
            if count > 0 {
                row.bucket = Some((bucket, count));
                columns.add(rows, &row);
            }
        }
    }
}
