//! The rows of `pg_stat_rowsource` and of its histogram.

use super::stored::{self, Key, Stored, block_columns, key_columns, wait_time, wal_columns};
use super::wait_names;
use crate::pg::server::columns::{Columns, columns};
use crate::pg::server::srf::Rows;
use rowsource_core::details::{self, Details};
use rowsource_core::histogram::CallTimes;
use rowsource_core::model::{
    NodeStats, NodeTotals, OwnIo, Plan, Time, Wal, own_errors, own_io, own_wal, processes,
};
use rowsource_core::plan::PlanNode;
use std::rc::Rc;

/// A node of a stored plan.
pub struct Row {
    key: Key,
    stored: Rc<Stored>,
    node: usize,
    totals: NodeTotals,
    /// What the node itself used, without the nodes below it.
    own_io: Option<OwnIo>,
    own_wal: Option<Wal>,
    all: Part,
    last: Part,
}

/// What a node did in all executions, or in the last one.
struct Part {
    stats: NodeStats,
    /// The time of the statement in the same executions.
    statement_ms: f64,
    /// One standard error of the time of the node itself.
    self_error_ms: Option<f64>,
    /// How many processes ran the node.
    processes: Option<f64>,
    rows_removed: Option<u64>,
    details: Option<Details>,
}

impl Part {
    fn new(plan: &Plan, i: usize, of: fn(&NodeTotals) -> &NodeStats, statement_ms: f64) -> Part {
        let nodes = &plan.description.nodes;
        let stats = plan.nodes.get(i).map(of).copied().unwrap_or_default();
        Part {
            stats,
            statement_ms,
            self_error_ms: None,
            processes: None,
            rows_removed: details::rows_removed(&nodes[i], &stats.facts),
            details: details::details(nodes, |i| plan.nodes.get(i).map(of), i),
        }
    }

    fn time(&self, of: fn(&Time) -> f64) -> Option<f64> {
        self.stats.time.get().as_ref().map(of)
    }

    fn percent_of_statement(&self) -> Option<f64> {
        let self_ms = self
            .time(|time| time.self_ms)
            .filter(|_| self.statement_ms > 0.0)?;
        Some(100.0 * self_ms / self.statement_ms)
    }
}

impl Row {
    fn described(&self) -> &PlanNode {
        &self.stored.plan.description.nodes[self.node]
    }

    fn plan_rows(&self) -> f64 {
        let estimated = f64::from(self.totals.sum().estimate.plan_rows);
        if estimated > 0.0 {
            estimated
        } else {
            self.described().plan_rows
        }
    }

    fn percentile(&self, part: f64) -> Option<f64> {
        let longest_ms = self.stored.plan.statistics.times.max_ms;
        self.totals.histogram.quantile_ms(part, longest_ms)
    }
}

/// Adds the rows of `pg_stat_rowsource`: one per node of each stored plan that ran since a time in
/// microseconds.
pub fn rows(rows: &mut Rows, since: Option<i64>) {
    let columns = columns();
    stored::each_since(since, |stored| {
        let plan = &stored.plan;
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
        let processes = [starts(|node| &node.total), starts(|node| &node.last)];
        let errors = |which: fn(&NodeTotals) -> &NodeStats| {
            own_errors(described, move |i| plan.nodes.get(i).map(which).copied())
        };
        let errors = [errors(|node| &node.total), errors(|node| &node.last)];
        for node in 0..described.len() {
            let mut all = Part::new(plan, node, |node| &node.total, plan.statistics.times.total_ms);
            let mut last = Part::new(plan, node, |node| &node.last, plan.statistics.last_ms);
            [all.self_error_ms, last.self_error_ms] = [0, 1].map(|i| errors[i].get(node).copied());
            [all.processes, last.processes] = [0, 1].map(|i| processes[i].get(node).copied().flatten());
            let row = Row {
                key: stored.key(),
                stored: stored.clone(),
                node,
                totals: plan.nodes.get(node).copied().unwrap_or_default(),
                own_io: io.get(node).copied().flatten(),
                own_wal: wal.get(node).copied().flatten(),
                all,
                last,
            };
            columns.add(rows, &row);
        }
    });
}

/// The columns of what a node did in some executions.
fn part_columns() -> Columns<Part> {
    const WHERE: &str = "in the node and all nodes below it";
    let first = columns! { |part: &Part|
        /// How often the node was started, in all processes (the loops of EXPLAIN)
        starts: bigint = part.stats.starts.get();
        /// Rows that the node returned in all executions, in all processes
        rows: bigint = part.stats.rows;
        /// Milliseconds in the node and all nodes below it, in all executions. The times of parallel
        /// processes add up
        total_time: float8 = part.time(|time| time.total_ms);
        /// Milliseconds until the first row of each start, in all processes
        startup_time: float8 = part.time(|time| time.startup_ms);
        /// Milliseconds in the node itself, without the nodes below it. The times of parallel processes add
        /// up
        self_time: float8 = part.time(|time| time.self_ms);
        /// The part that the node itself has of the time of its statement, in percent. The times of parallel
        /// processes add up, so this can exceed 100 below a Gather
        percent_of_statement: float8 = part.percent_of_statement();
        /// Processes that ran the node, on average: 1, or more below a Gather. NULL below a Gather that was
        /// never started, or without starts
        processes: float8 = part.processes;
        /// One standard error of total_time, in milliseconds; 0 if every call was timed
        time_error: float8 = part.time(|time| time.error_ms);
        /// One standard error of self_time, in milliseconds: that of the node and of all nodes right below it
        self_time_error: float8 = part.self_error_ms.filter(|_| part.stats.time.get().is_some());
        /// Calls of the node that were timed
        timed_calls: bigint = part.stats.timed_calls;
        /// How often the clock was read for the node
        timer_calls: bigint = part.stats.timer_calls;
        /// How often the clock stepped back
        clock_backsteps: bigint = part.stats.clock_backsteps;
    };
    let memory = columns! { |part: &Part|
        /// The largest working memory of one process, in kB
        memory_kb: bigint = part.stats.facts.memory_kb.get();
        /// The largest disk space of the work area, in kB
        disk_kb: bigint = part.stats.facts.disk_kb.get();
    };
    first
        .with(block_columns().about(WHERE), |part| &part.stats.buffers)
        .with(wal_columns().about(WHERE), |part| &part.stats.wal)
        .and(memory)
}

/// The columns of what else is known of these.
fn fact_columns() -> Columns<Part> {
    columns! { |part: &Part|
        /// Rows that filters, join filters and rechecks of the node removed; null if it has none
        rows_removed: bigint = part.rows_removed;
        /// Rows of the table that an index-only scan had to visit, because their pages may hold invisible
        /// rows
        heap_fetches: bigint = part.stats.facts.heap_fetches();
        /// What else EXPLAIN (ANALYZE) knows of the node, by its keys: counts are sums over all processes and
        /// executions, other numbers the largest of any execution
        details: jsonb = part.details.as_ref();
        /// Milliseconds that the node itself waited, in all its processes; a part of self_time. The rest of
        /// that is processor time, and time spent waiting for a processor. NULL if waits are not counted, or
        /// only rows are
        wait_time: float8 = part.stats.buffers.get().and_then(|_| wait_time(part.stats.wait_ms));
    }
}

/// The columns of `pg_stat_rowsource()`.
pub fn columns() -> Columns<Row> {
    let node = columns! { |row: &Row|
        /// The number of the node in the plan, from 0 at the root, in the order of EXPLAIN
        node_id: int = row.described().id;
        /// The number of the node above; NULL for the root
        parent_id: int = row.described().parent;
        /// The number of nodes above
        depth: int = row.described().depth;
        /// What the node does, as EXPLAIN calls it
        operation: text = row.stored.operation(row.described());
        /// The index, table, function or other object that the node works on
        object_name: text = row.stored.object_name(row.described());
        /// The rows per start that the planner expected: the mean of the executions that say something about
        /// the estimate; if there are none, the estimate of the last execution
        plan_rows: float8 = row.plan_rows();
        /// The executions that say something about the estimate: they completed, the node started, and
        /// nothing stopped it before its last row
        compared_executions: bigint = row.totals.estimates.executions;
        /// How often the node was started in these executions
        compared_starts: bigint = row.totals.estimates.starts;
        /// The rows that the planner expected in these executions: the sum of the estimate times the starts
        /// of each
        compared_plan_rows: float8 = row.totals.estimates.expected_rows;
        /// The rows that the node returned in these executions
        compared_rows: bigint = row.totals.estimates.actual_rows;
        /// How many times more rows than expected one of these executions had at most; 1 if none had more
        max_underestimate: float8 = row.totals.estimates.max_underestimate();
        /// How many times fewer rows than expected one of these executions had at most; 1 if none had fewer
        max_overestimate: float8 = row.totals.estimates.max_overestimate();
        /// Whether a node above (a limit, a semi-join, EXISTS) may stop this one before its last row
        may_stop_early: boolean = row.described().may_stop_early;
        /// The executions of the statement with this plan
        executions: bigint = row.stored.plan.statistics.times.calls;
    };
    let own = columns! { |row: &Row|
        /// Half of the timed calls of the node took at most these milliseconds, with all nodes below it;
        /// estimated from the histogram, at most twice or half as long; NULL if no call was timed
        p50_time: float8 = row.percentile(0.5);
        /// 95 % of the timed calls took at most these milliseconds
        p95_time: float8 = row.percentile(0.95);
        /// 99 % of the timed calls took at most these milliseconds
        p99_time: float8 = row.percentile(0.99);
        /// Blocks of tables, indexes and temporary tables that the node itself read
        self_blks_read: bigint = row.own_io.as_ref().map(|own| own.read);
        /// Milliseconds reading those blocks; without track_io_timing, the waits for reads
        self_blk_read_time: float8 = row.own_io.as_ref().map(|own| own.read_ms);
        /// Blocks of work files that the node itself read
        self_temp_blks_read: bigint = row.own_io.as_ref().map(|own| own.temp_read);
        /// Blocks of work files that the node itself wrote
        self_temp_blks_written: bigint = row.own_io.as_ref().map(|own| own.temp_written);
        /// Milliseconds reading and writing those blocks
        self_temp_blk_time: float8 = row.own_io.as_ref().map(|own| own.temp_ms);
        /// WAL records of the node itself
        self_wal_records: bigint = row.own_wal.as_ref().map(|own| own.records);
        /// Full page images in the WAL of the node itself
        self_wal_fpi: bigint = row.own_wal.as_ref().map(|own| own.fpi);
        /// Bytes of WAL of the node itself
        self_wal_bytes: bigint = row.own_wal.as_ref().map(|own| own.bytes);
    };
    Columns::new()
        .with(key_columns(), |row: &Row| &row.key)
        .and(node)
        .pairs(part_columns(), |row| &row.all, |row| &row.last)
        .and(own)
        .pairs(fact_columns(), |row| &row.all, |row| &row.last)
}

/// Timed calls of a node in a bucket.
pub struct Bucket {
    key: Key,
    node: usize,
    did_read: bool,
    bounds_us: (f64, Option<f64>),
    calls: u64,
}

/// Adds the rows of `pg_stat_rowsource_histogram`: one per node, kind of call and bucket that is not empty.
pub fn histogram_rows(rows: &mut Rows) {
    let columns = histogram_columns();
    stored::each(|stored| {
        for (node, totals) in stored.plan.nodes.iter().enumerate() {
            for (did_read, bucket, calls) in totals.histogram.counts() {
                let row = Bucket {
                    key: stored.key(),
                    node,
                    did_read,
                    bounds_us: CallTimes::bounds_us(bucket),
                    calls,
                };
                columns.add(rows, &row);
            }
        }
    });
}

/// The columns of `pg_stat_rowsource_histogram()`.
pub fn histogram_columns() -> Columns<Bucket> {
    let columns = columns! { |row: &Bucket|
        /// The number of the node in the plan, from 0 at the root, in the order of EXPLAIN
        node_id: int = row.node;
        /// Whether these calls read a block
        did_read: boolean = row.did_read;
        /// The lower bound of the bucket, in microseconds
        from_us: float8 = row.bounds_us.0;
        /// The upper bound of the bucket, in microseconds; NULL if it has none
        to_us: float8 = row.bounds_us.1;
        /// Timed calls of the node that took this long
        timed_calls: bigint = row.calls;
    };
    Columns::new()
        .with(key_columns(), |row: &Bucket| &row.key)
        .and(columns)
}
