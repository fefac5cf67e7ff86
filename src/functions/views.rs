//! The rows of the statistics views.

use super::display::outcome_name;
use crate::pg::server;
use crate::pg::server::srf::{Rows, Value, oid, text, timestamp, value};
use crate::session;
use rowsource_core::histogram::CallTimes;
use rowsource_core::model::{Buffers, NodeStats, Plan, Time, Wal, clock_name};

/// Replaces the texts of other users' statements, as in pg_stat_statements.
const MASKED: &str = "<insufficient privilege>";

/// A stored plan, and whether the user may see its statement. All users may see its statistics.
struct Row {
    plan: Plan,
    visible: bool,
}

/// Visits the stored plans, one at a time.
fn each_plan(mut visit: impl FnMut(&Row)) {
    session::each_plan(|plan| {
        visit(&Row {
            visible: server::may_see(plan.key.userid),
            plan,
        });
    });
}

impl Row {
    /// Returns the first columns: userid, dbid, queryid, planid, plan_shape, toplevel.
    fn key(&self) -> Vec<Value> {
        let key = &self.plan.key;
        vec![
            oid(key.userid),
            oid(key.dbid),
            self.visible.then_some(key.queryid).and_then(value),
            self.visible.then_some(key.planid).and_then(value),
            self.visible.then_some(i64::from(key.shape())).and_then(value),
            value(key.toplevel()),
        ]
    }

    fn text_or_mask<'a>(&self, text: &'a str) -> &'a str {
        if self.visible { text } else { MASKED }
    }
}

/// Adds the rows of `pg_stat_rowsource`: one per node of each stored plan. Each statistic has two columns: the total, and the
/// last execution.
pub fn node_rows(rows: &mut Rows) {
    each_plan(|row| {
        for i in 0..row.plan.description.nodes.len() {
            rows.add(node_row(row, i));
        }
    });
}

fn node_row(row: &Row, i: usize) -> Vec<Value> {
    let plan = &row.plan;
    let node = &plan.description.nodes[i];
    let (total, last) = match plan.nodes.get(i) {
        Some(node) => (node_values(&node.total), node_values(&node.last)),
        None => (
            node_values(&NodeStats::default()),
            node_values(&NodeStats::default()),
        ),
    };
    let mut values = row.key();
    values.extend([
        value(node.id as i32),
        node.parent.and_then(|parent| value(parent as i32)),
        value(node.depth as i32),
        text(row.text_or_mask(&node.operation)),
        node.object_name.as_deref().filter(|_| row.visible).and_then(text),
        value(node.plan_rows),
        value(plan.statistics.times.calls as i64),
    ]);
    values.extend(
        total
            .into_iter()
            .zip(last)
            .flat_map(|(total, last)| [total, last]),
    );
    values
}

/// Returns the statistics in the order of the view's columns.
fn node_values(stats: &NodeStats) -> Vec<Value> {
    let time = |of: fn(&Time) -> f64| stats.time.get().as_ref().map(of).and_then(value);
    let blocks = |of: fn(&Buffers) -> i64| stats.buffers.get().as_ref().map(of).and_then(value);
    let io_time = |of: fn(&Buffers) -> f64| stats.buffers.get().as_ref().map(of).and_then(value);
    let wal = |of: fn(&Wal) -> i64| stats.wal.get().as_ref().map(of).and_then(value);
    let count = |n: u64| value(n as i64);
    vec![
        stats.starts.get().and_then(count),
        count(stats.rows),
        time(|t| t.total_ms),
        time(|t| t.startup_ms),
        time(|t| t.self_ms),
        time(|t| t.error_ms),
        count(stats.timed_calls),
        count(stats.timer_calls),
        count(stats.clock_backsteps),
        blocks(|b| b.shared_hit),
        blocks(|b| b.shared_read),
        blocks(|b| b.shared_dirtied),
        blocks(|b| b.shared_written),
        blocks(|b| b.local_hit),
        blocks(|b| b.local_read),
        blocks(|b| b.local_dirtied),
        blocks(|b| b.local_written),
        blocks(|b| b.temp_read),
        blocks(|b| b.temp_written),
        io_time(|b| b.shared_read_ms),
        io_time(|b| b.shared_write_ms),
        io_time(|b| b.local_read_ms),
        io_time(|b| b.local_write_ms),
        io_time(|b| b.temp_read_ms),
        io_time(|b| b.temp_write_ms),
        wal(|w| w.records),
        wal(|w| w.fpi),
        wal(|w| w.bytes as i64),
        stats.facts.memory_kb.get().and_then(count),
        stats.facts.disk_kb.get().and_then(count),
    ]
}

/// Adds the rows of `pg_stat_rowsource_histogram`: one per node, kind of call and bucket that is not empty.
pub fn histogram_rows(rows: &mut Rows) {
    each_plan(|row| {
        for (node, totals) in row.plan.nodes.iter().enumerate() {
            for (read, bucket, calls) in totals.histogram.counts() {
                let (from_us, to_us) = CallTimes::bounds_us(bucket);
                let mut values = row.key();
                values.extend([
                    value(node as i32),
                    value(read),
                    value(from_us),
                    to_us.and_then(value),
                    value(calls as i64),
                ]);
                rows.add(values);
            }
        }
    });
}

/// Adds the rows of `pg_stat_rowsource_plans`: one per stored plan.
pub fn plan_rows(rows: &mut Rows) {
    each_plan(|row| rows.add(plan_row(row)));
}

fn plan_row(row: &Row) -> Vec<Value> {
    let statistics = &row.plan.statistics;
    let times = &statistics.times;
    let mut values = row.key();
    values.extend([
        text(row.text_or_mask(&row.plan.description.text)),
        value(times.calls as i64),
        value(statistics.failed_calls as i64),
        value(statistics.cancelled_calls as i64),
        value(times.total_ms),
        value(times.min_ms),
        value(times.max_ms),
        value(times.mean_ms),
        value(times.stddev_ms()),
        value(statistics.planning.plans as i64),
        value(statistics.planning.total_ms),
        value(statistics.planning.min_ms),
        value(statistics.planning.max_ms),
        value(statistics.planning.mean_ms()),
        value(statistics.last_ms),
        value(outcome_name(statistics.last_outcome)),
        timestamp(statistics.first_seen),
        timestamp(statistics.last_seen),
        value(statistics.sampfreq),
        value(clock_name(statistics.clock)),
    ]);
    values
}
