//! The rows of the statistics views.

use super::display::outcome_name;
use super::wait_names;
use super::words::MASKED;
use crate::pg::server;
use crate::pg::server::columns::{Columns, columns};
use crate::pg::server::srf::{Rows, Value, json, oid, text, timestamp, value};
use crate::pg::waits;
use crate::session;
use rowsource_core::details;
use rowsource_core::histogram::CallTimes;
use rowsource_core::model::{
    Buffers, DatabaseSum, Measured, NodeStats, NodeTotals, OwnIo, Plan, PlanKey, PlanStats, StatementSums,
    Time, Wal, clock_name, own_io, own_wal, processes,
};
use rowsource_core::plan::PlanNode;
use std::rc::Rc;

/// A stored plan, and whether the user may see its statement. All users may see its statistics.
pub(super) struct Row {
    pub(super) plan: Plan,
    visible: bool,
}

/// Visits the stored plans, one at a time.
pub(super) fn each_plan(mut visit: impl FnMut(&Rc<Row>)) {
    session::each_plan(|plan| {
        visit(&Rc::new(Row {
            visible: server::may_see(plan.key.userid),
            plan,
        }));
    });
}

impl Row {
    /// Returns the first columns: userid, dbid, queryid, planid, plan_shape, toplevel.
    pub(super) fn key(&self) -> Vec<Value> {
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

    /// Returns what the node does, if the user may see that.
    pub(super) fn operation<'a>(&self, node: &'a PlanNode) -> &'a str {
        self.text_or_mask(&node.operation)
    }

    /// Returns what the node works on, if the user may see that.
    pub(super) fn object_name<'a>(&self, node: &'a PlanNode) -> Option<&'a str> {
        node.object_name.as_deref().filter(|_| self.visible)
    }

    fn text_or_mask<'a>(&self, text: &'a str) -> &'a str {
        if self.visible { text } else { MASKED }
    }
}

/// The first columns of what is about a stored plan.
pub(super) fn key_columns() -> Columns<Option<Rc<Row>>> {
    fn of<T>(row: &Option<Rc<Row>>, value: fn(&PlanKey) -> T) -> Option<T> {
        row.as_ref().map(|row| value(&row.plan.key))
    }
    fn seen<T>(row: &Option<Rc<Row>>, value: fn(&PlanKey) -> T) -> Option<T> {
        row.as_ref()
            .filter(|row| row.visible)
            .map(|row| value(&row.plan.key))
    }
    columns! { |row: &Option<Rc<Row>>|
        /// The OID of the user who ran the statement
        userid: oid = of(row, |key| key.userid);
        /// The OID of the database in which the statement ran
        dbid: oid = of(row, |key| key.dbid);
        /// Identifies the statement, as in pg_stat_statements and pg_stat_activity
        queryid: bigint = seen(row, |key| key.queryid);
        /// Identifies the plan by its nodes, objects and strategies
        planid: bigint = seen(row, |key| key.planid);
        /// Distinguishes different plans with the same planid; 0 if the planid is pg_rowsource's own
        plan_shape: bigint = seen(row, PlanKey::shape);
        /// Whether a client sent the statement; false if another statement ran it: in a function, procedure
        /// or trigger
        toplevel: boolean = of(row, PlanKey::toplevel);
    }
}

/// Adds the rows of `pg_stat_rowsource`: one per node of each stored plan. Each statistic has two columns: the total, and the
/// last execution.
pub fn node_rows(rows: &mut Rows) {
    each_plan(|row| {
        let plan = &row.plan;
        let described = &plan.description.nodes;
        let (mut io, wal) = (own_io(described, &plan.nodes), own_wal(described, &plan.nodes));
        // Without track_io_timing, the waits say how long reads took.
        for (node, waits) in wait_names::reads(&plan.statistics.waits) {
            if let Some(Some(own)) = io.get_mut(node)
                && own.read > 0
                && own.read_ms == 0.0
            {
                own.read_ms = waits.ns as f64 / 1e6;
            }
        }
        let starts = |which: fn(&NodeTotals) -> &NodeStats| {
            processes(described, move |i| which(plan.nodes.get(i)?).starts.get())
        };
        let (total, last) = (starts(|node| &node.total), starts(|node| &node.last));
        for i in 0..described.len() {
            let processes = [&total, &last].map(|list| list.get(i).copied().flatten());
            let own = (io.get(i).copied().flatten(), wal.get(i).copied().flatten());
            rows.add(node_row(row, i, own, processes));
        }
    });
}

/// Returns the row of a node. `own` is what the node itself used, without the nodes below it. `processes` is how many processes ran
/// it, in all executions and in the last one.
fn node_row(
    row: &Row,
    i: usize,
    own: (Option<OwnIo>, Option<Wal>),
    processes: [Option<f64>; 2],
) -> Vec<Value> {
    let (io, wal) = own;
    let plan = &row.plan;
    let node = &plan.description.nodes[i];
    let node_totals = plan.nodes.get(i).copied().unwrap_or_default();
    let statistics = &plan.statistics;
    let total = node_values(&node_totals.total, statistics.times.total_ms, processes[0]);
    let last = node_values(&node_totals.last, statistics.last_ms, processes[1]);
    let estimates = &node_totals.estimates;
    let plan_rows = f64::from(node_totals.sum().estimate.plan_rows);
    let plan_rows = if plan_rows > 0.0 {
        plan_rows
    } else {
        node.plan_rows
    };
    let mut values = row.key();
    values.extend([
        value(node.id as i32),
        node.parent.and_then(|parent| value(parent as i32)),
        value(node.depth as i32),
    ]);
    values.extend([text(row.operation(node)), row.object_name(node).and_then(text)]);
    values.extend([
        value(plan_rows),
        value(estimates.executions as i64),
        value(estimates.starts as i64),
        value(estimates.expected_rows),
        value(estimates.actual_rows as i64),
        estimates.max_underestimate().and_then(value),
        estimates.max_overestimate().and_then(value),
        value(node.may_stop_early),
        value(plan.statistics.times.calls as i64),
    ]);
    values.extend(
        total
            .into_iter()
            .zip(last)
            .flat_map(|(total, last)| [total, last]),
    );
    let percentile = |part| {
        let longest_ms = statistics.times.max_ms;
        node_totals
            .histogram
            .quantile_ms(part, longest_ms)
            .and_then(value)
    };
    values.extend([0.5, 0.95, 0.99].map(percentile));
    let count = |of: fn(&OwnIo) -> i64| io.as_ref().map(of).and_then(value);
    let time = |of: fn(&OwnIo) -> f64| io.as_ref().map(of).and_then(value);
    values.extend([
        count(|own| own.read),
        time(|own| own.read_ms),
        count(|own| own.temp_read),
        count(|own| own.temp_written),
        time(|own| own.temp_ms),
    ]);
    values.extend(wal_values(wal.as_ref()));
    values.extend(fact_values(plan, i));
    let times = [&node_totals.total, &node_totals.last];
    values.extend(times.map(|stats| wait_time(stats.wait_ms).filter(|_| stats.buffers.get().is_some())));
    values
}

/// Returns the milliseconds of waits; nothing if waits are not counted.
fn wait_time(ms: f64) -> Value {
    value(ms).filter(|_| waits::refused().is_none())
}

/// Returns the time that statements waited while they ran, and that part of it in which they waited for the client.
fn wait_times(statistics: &PlanStats) -> [Value; 2] {
    let waits = &statistics.waits;
    [waits.run_ns(), waits.client_ns()].map(|ns| wait_time(ns as f64 / 1e6))
}

/// Returns the statistics in the order of the view's columns. `statement_ms` is the time of the statement in the same executions.
fn node_values(stats: &NodeStats, statement_ms: f64, processes: Option<f64>) -> Vec<Value> {
    let time = |of: fn(&Time) -> f64| stats.time.get().as_ref().map(of).and_then(value);
    let count = |n: u64| value(n as i64);
    let mut values = vec![
        stats.starts.get().and_then(count),
        count(stats.rows),
        time(|t| t.total_ms),
        time(|t| t.startup_ms),
        time(|t| t.self_ms),
        stats
            .time
            .get()
            .filter(|_| statement_ms > 0.0)
            .map(|t| 100.0 * t.self_ms / statement_ms)
            .and_then(value),
        processes.and_then(value),
        time(|t| t.error_ms),
        count(stats.timed_calls),
        count(stats.timer_calls),
        count(stats.clock_backsteps),
    ];
    values.extend(usage_values(&stats.buffers, &stats.wal));
    values.extend([
        stats.facts.memory_kb.get().map(u64::from).and_then(count),
        stats.facts.disk_kb.get().map(u64::from).and_then(count),
    ]);
    values
}

/// Returns what PostgreSQL knows of node `i`, in the order of the view's columns.
fn fact_values(plan: &Plan, i: usize) -> Vec<Value> {
    let nodes = &plan.description.nodes;
    let of = |which: fn(&NodeTotals) -> &NodeStats| {
        let facts = plan
            .nodes
            .get(i)
            .map(|node| which(node).facts)
            .unwrap_or_default();
        let all = |i: usize| plan.nodes.get(i).map(which);
        [
            details::rows_removed(&nodes[i], &facts).and_then(|rows| value(rows as i64)),
            facts.heap_fetches().and_then(|blocks| value(blocks as i64)),
            details::details(nodes, all, i).and_then(json),
        ]
    };
    let (total, last) = (of(|node| &node.total), of(|node| &node.last));
    total
        .into_iter()
        .zip(last)
        .flat_map(|(total, last)| [total, last])
        .collect()
}

/// Returns blocks, their times and WAL in the order of the views' columns.
fn usage_values(buffers: &Measured<Buffers>, wal: &Measured<Wal>) -> Vec<Value> {
    let blocks = |of: fn(&Buffers) -> i64| buffers.get().as_ref().map(of).and_then(value);
    let io_time = |of: fn(&Buffers) -> f64| buffers.get().as_ref().map(of).and_then(value);
    let mut values = vec![
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
    ];
    values.extend(wal_values(wal.get().as_ref()));
    values
}

/// Returns WAL in the order of the views' columns.
fn wal_values(wal: Option<&Wal>) -> [Value; 3] {
    let wal = |of: fn(&Wal) -> i64| wal.map(of).and_then(value);
    [wal(|w| w.records), wal(|w| w.fpi), wal(|w| w.bytes as i64)]
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

/// Adds the rows of `pg_stat_rowsource_plans`: one per stored plan, and up to two per database for what is not stored.
pub fn plan_rows(rows: &mut Rows) {
    each_plan(|row| rows.add(plan_row(row)));
    for sum in session::others() {
        rows.add(others_row(&sum));
    }
}

/// Returns the row of the executions of a database whose plans are not stored. Its statement and its plan are unknown.
fn others_row(sum: &DatabaseSum) -> Vec<Value> {
    let dbid = Some(sum.dbid).filter(|dbid| *dbid != 0);
    let toplevel = value(sum.toplevel);
    let mut values = vec![
        None,
        dbid.and_then(oid),
        None,
        None,
        None,
        toplevel,
        text("others"),
    ];
    values.extend(plan_values(&sum.totals.plan, &sum.totals.statement, false));
    values.extend([None, None, statement_details(&sum.totals.statement, None)]);
    values.extend(wait_times(&sum.totals.plan));
    values
}

fn plan_row(row: &Row) -> Vec<Value> {
    let mut values = row.key();
    values.push(text(row.text_or_mask(&row.plan.description.text)));
    let sums = row.plan.statement_sums();
    values.extend(plan_values(&row.plan.statistics, &sums, row.visible));
    let workers = row
        .plan
        .nodes
        .iter()
        .filter_map(|node| node.total.facts.workers());
    let [planned, launched] = workers.fold([0; 2], |sum, more| [sum[0] + more[0], sum[1] + more[1]]);
    let names_from = row.visible.then_some(row.plan.key.dbid);
    values.extend([
        value(planned as i64),
        value(launched as i64),
        statement_details(&sums, names_from),
    ]);
    values.extend(wait_times(&row.plan.statistics));
    values
}

/// Returns what PostgreSQL knows of a statement. Names the triggers if they are of this session's database.
fn statement_details(sums: &StatementSums, database: Option<u32>) -> Value {
    let may_name = database == Some(server::database_id());
    let name = |oid| may_name.then(|| server::trigger_name(oid)).flatten();
    details::statement_details(&sums.facts, name).and_then(json)
}

/// Returns the statistics in the order of the view's columns. `visible` says that the user may see the caller's queryid.
fn plan_values(statistics: &PlanStats, sums: &StatementSums, visible: bool) -> Vec<Value> {
    let times = &statistics.times;
    let percentile = |part| {
        let found = statistics.durations.percentile(part, times.min_ms, times.max_ms);
        found.and_then(value)
    };
    let mut values = vec![
        value(times.calls as i64),
        value(statistics.failed_calls as i64),
        value(statistics.cancelled_calls as i64),
        value(statistics.unfinished_calls as i64),
        value(statistics.explain_calls as i64),
        Some(statistics.caller)
            .filter(|caller| *caller != 0 && visible)
            .and_then(value),
        value(times.total_ms),
        value(times.min_ms),
        value(times.max_ms),
        value(times.mean_ms),
        value(times.stddev_ms()),
        percentile(0.5),
        percentile(0.95),
        percentile(0.99),
        value(statistics.planning.plans as i64),
        value(statistics.planning.total_ms),
        value(statistics.planning.min_ms),
        value(statistics.planning.max_ms),
        value(statistics.planning.mean_ms()),
        value(statistics.generic_plan_calls as i64),
        value(statistics.custom_plan_calls as i64),
    ];
    values.push(value(sums.rows as i64));
    values.extend(usage_values(&sums.buffers, &sums.wal));
    values.extend([
        value(statistics.last_ms),
        value(outcome_name(statistics.last_outcome)),
        timestamp(statistics.first_seen),
        timestamp(statistics.last_seen),
        value(statistics.sampfreq),
        value(clock_name(statistics.clock)),
    ]);
    values
}
