//! The rows of `rowsource_system_waits`, `rowsource_session_waits`, `rowsource_wait_histogram` and `pg_stat_rowsource_waits`.

use super::views;
use super::wait_names::{self, Name};
use crate::pg::server::srf::{Rows, Value, timestamp, value};
use crate::pg::server::{fail, may_see, pid};
use crate::pg::waits::{names, refused, slots};
use pgrx::PgSqlErrorCode;
use rowsource_core::waits::{Event, WaitTimes, Waits};
use std::collections::BTreeMap;

const NS_PER_MS: f64 = 1e6;

/// Returns the waits by the names of their events. Locks that another extension has not named in this session share a name.
fn by_name<K: Ord>(waits: impl Iterator<Item = (K, Event, Waits)>) -> BTreeMap<(K, Name), Waits> {
    let mut sums: BTreeMap<(K, Name), Waits> = BTreeMap::new();
    for (key, event, waits) in waits {
        sums.entry((key, wait_names::name(event)))
            .or_default()
            .add(&waits);
    }
    sums
}

/// Returns the columns of an event's names.
fn event(name: &Name) -> [Value; 2] {
    match name {
        Some((of, name)) => [value(of.as_str()), value(name.as_str())],
        None => [None, value("other")],
    }
}

/// Adds the rows of `pg_stat_rowsource_waits`: one per stored plan, node and event.
pub fn plan_rows(rows: &mut Rows) {
    if let Some(reason) = refusal() {
        return rows.add(
            [const { None }; 7]
                .into_iter()
                .chain(reason)
                .chain([const { None }; 4]),
        );
    }
    views::each_plan(|row| {
        for ((node, name), waits) in wait_names::by_node(&row.plan.statistics.waits) {
            let total = waits.ns as f64 / NS_PER_MS;
            let mut values = row.key();
            values.push(node.and_then(|node| value(node as i32)));
            values.extend(event(&name));
            values.extend([
                value(waits.waits as i64),
                value(total),
                value(total / waits.waits.max(1) as f64),
                value(waits.max_ns as f64 / NS_PER_MS),
            ]);
            rows.add(values);
        }
    });
}

/// Returns what says that waits are not counted, in the place of an event.
fn refusal() -> Option<[Value; 2]> {
    refused().map(|reason| [None, value(format!("not counted: {reason}").as_str())])
}

/// Returns the number of waits, and the total, the mean, the maximum and the 99th percentile of their times in milliseconds.
fn numbers(waits: &Waits) -> [Value; 5] {
    let (count, total) = (waits.count(), waits.ns as f64 / NS_PER_MS);
    [
        value(count as i64),
        value(total),
        (count > 0).then(|| total / count as f64).and_then(value),
        value(waits.max_ns as f64 / NS_PER_MS),
        waits.quantile_ns(0.99).map(|ns| ns / NS_PER_MS).and_then(value),
    ]
}

/// Returns the waits of all processes. Fails if only those of this session are counted.
fn system() -> BTreeMap<(String, Name), Waits> {
    let Some(total) = slots::total() else {
        fail(
            PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            "pg_rowsource counts only the waits of this session",
            "Add pg_rowsource to \"shared_preload_libraries\" and restart the server. Until then, rowsource_session_waits shows the waits of this session since it loaded the library.",
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
    let (None, Some(total), Some(since)) = (refused(), slots::total(), slots::counted_since()) else {
        return;
    };
    for ((of, name), waits) in by_type(total) {
        let numbers = [
            value(waits.count() as i64),
            value(waits.ns as f64 / NS_PER_MS),
            timestamp(since),
        ];
        rows.add(
            [value(of.as_str())]
                .into_iter()
                .chain(event(&name))
                .chain(numbers),
        );
    }
}

/// Adds the rows of `rowsource_system_waits`: one per type of processes and event.
pub fn system_rows(rows: &mut Rows) {
    if let Some(reason) = refusal() {
        return rows.add([None].into_iter().chain(reason).chain([None; 5]));
    }
    for ((of, name), waits) in system() {
        rows.add(
            [value(of.as_str())]
                .into_iter()
                .chain(event(&name))
                .chain(numbers(&waits)),
        );
    }
}

/// Adds the rows of `rowsource_session_waits`: one per running process and event. As in pg_stat_activity, processes of other
/// users are left out unless the user may see them.
pub fn session_rows(rows: &mut Rows) {
    if let Some(reason) = refusal() {
        return rows.add([None].into_iter().chain(reason).chain([None; 5]));
    }
    let me = pid();
    for session in slots::sessions().filter(|session| session.pid == me || may_see(session.userid)) {
        let waits = session
            .waits
            .into_iter()
            .map(|(event, waits)| (session.pid, event, waits));
        for ((pid, name), waits) in by_name(waits) {
            rows.add(
                [value(pid)]
                    .into_iter()
                    .chain(event(&name))
                    .chain(numbers(&waits)),
            );
        }
    }
}

/// Adds the rows of `rowsource_wait_histogram`: one per type of processes, event and bucket that is not empty.
pub fn histogram_rows(rows: &mut Rows) {
    if let Some(reason) = refusal() {
        return rows.add([None].into_iter().chain(reason).chain([None; 3]));
    }
    for ((of, name), waits) in system() {
        for (bucket, &count) in waits
            .histogram
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0)
        {
            let (from_us, to_us) = WaitTimes::bounds_us(bucket);
            let numbers = [value(from_us), to_us.and_then(value), value(count as i64)];
            rows.add(
                [value(of.as_str())]
                    .into_iter()
                    .chain(event(&name))
                    .chain(numbers),
            );
        }
    }
}
