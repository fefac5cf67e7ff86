//! The rows of `pg_stat_rowsource_plans`.

use super::display::outcome_name;
use super::stored::{self, Key, Stored, block_columns, key_columns, wait_time, wal_columns};
use crate::pg::server;
use crate::pg::server::columns::{Columns, columns};
use crate::pg::server::srf::Rows;
use crate::session;
use rowsource_core::details::{self, Details};
use rowsource_core::model::{DatabaseSum, PlanIds, PlanStats, PlanTotals, StatementSums, clock_name};
use std::rc::Rc;

/// Adds the rows of `pg_stat_rowsource_plans`: one per stored plan that ran since a time in microseconds, and
/// up to two per database for what is not stored.
pub fn rows(rows: &mut Rows, since: Option<i64>) {
    let columns = columns();
    stored::each_since(since, |stored| columns.add(rows, &Row::of(stored)));
    for sum in session::others() {
        columns.add(rows, &Row::others(&sum));
    }
}

/// A stored plan, or the executions of a database whose plans are not stored: their statements and plans are
/// unknown.
pub struct Row {
    key: Key,
    stored: Option<Rc<Stored>>,
    totals: PlanTotals,
    details: Option<Details>,
}

impl Row {
    /// Returns the row of a stored plan.
    pub fn of(stored: &Rc<Stored>) -> Row {
        let sums = stored.plan.statement_sums();
        let names_from = stored.is_visible.then_some(stored.plan.key.datid);
        Row {
            key: stored.key(),
            details: statement_details(&sums, names_from),
            totals: PlanTotals {
                plan: stored.plan.statistics,
                statement: sums,
            },
            stored: Some(stored.clone()),
        }
    }

    fn others(sum: &DatabaseSum) -> Row {
        Row {
            key: Key {
                datid: Some(sum.datid).filter(|datid| *datid != 0),
                toplevel: Some(sum.toplevel),
                ..Key::default()
            },
            stored: None,
            totals: sum.totals,
            details: statement_details(&sum.totals.statement, None),
        }
    }

    /// Returns a time of executions that clients sent.
    fn sent(&self, ms: f64) -> Option<f64> {
        self.key.toplevel.unwrap_or(false).then_some(ms)
    }

    fn query(&self) -> &str {
        let stored = self.stored.as_ref();
        stored.map_or("others", |stored| {
            stored.text_or_mask(&stored.plan.description.text)
        })
    }

    /// Returns the numbers of the statement and of its plan, if the user may see them.
    fn ids(&self) -> Option<PlanIds> {
        let stored = self.stored.as_ref().filter(|stored| stored.is_visible)?;
        Some(stored.plan.description.ids)
    }

    /// Returns the indexes of the plan before that are gone, if there are some and the user may see them.
    fn gone_indexes(&self) -> Option<&[String]> {
        let stored = self.stored.as_ref().filter(|stored| stored.is_visible)?;
        Some(&*stored.plan.description.gone_indexes).filter(|gone| !gone.is_empty())
    }

    /// Returns what makes the planner choose the plan again, if that is known and the user may see it.
    fn plan_advice(&self) -> Option<&str> {
        let stored = self.stored.as_ref().filter(|stored| stored.is_visible)?;
        stored.plan.description.advice.as_deref()
    }

    fn caller(&self) -> Option<i64> {
        let is_visible = self.stored.as_ref().is_some_and(|stored| stored.is_visible);
        Some(self.totals.plan.caller).filter(|caller| *caller != 0 && is_visible)
    }

    /// Returns how many parallel workers were planned and launched.
    fn workers(&self) -> Option<[u64; 2]> {
        let nodes = &self.stored.as_ref()?.plan.nodes;
        let workers = nodes.iter().filter_map(|node| node.total.facts.workers());
        Some(workers.fold([0; 2], |sum, more| [sum[0] + more[0], sum[1] + more[1]]))
    }
}

/// Returns what PostgreSQL knows of a statement. Names the triggers if they are of this session's database.
fn statement_details(sums: &StatementSums, database: Option<u32>) -> Option<Details> {
    let may_name = database == Some(server::database_id());
    let name = |oid| may_name.then(|| server::trigger_name(oid)).flatten();
    details::statement_details(&sums.facts, name)
}

fn percentile(statistics: &PlanStats, part: f64) -> Option<f64> {
    let times = &statistics.times;
    statistics.durations.percentile(part, times.min_ms, times.max_ms)
}

/// The columns of `pg_stat_rowsource_plans()`.
pub fn columns() -> Columns<Row> {
    let query = columns! { |row: &Row|
        /// The text of the statement
        query: text = row.query();
        /// Identifies the statement by its text without constants, spaces and comments: the same on each
        /// server, where queryids differ
        textid: bigint = row.ids().map(|ids| ids.textid);
        /// The planid that PostgreSQL or another extension gave the plan, from 18 on
        assigned_planid: bigint = row.ids().map(|ids| ids.assigned).filter(|planid| *planid != 0);
        /// The indexes that the query's plan before used and that were gone when this plan was first seen, at
        /// most 8; NULL if none
        gone_indexes: texts = row.gone_indexes();
        /// What makes the planner choose this plan again, as a value of pg_plan_advice.advice: from 19 on, if
        /// pg_plan_advice.always_store_advice_details was on when the plan was first seen
        plan_advice: text = row.plan_advice();
        /// Executions, including failed and cancelled ones
        calls: bigint = row.totals.plan.times.calls;
        /// Executions that an error ended
        failed_calls: bigint = row.totals.plan.failed_calls;
        /// Executions that a cancel request or a timeout ended
        cancelled_calls: bigint = row.totals.plan.cancelled_calls;
        /// Executions that ended without an error before their last row: the cursor was closed early, or the
        /// caller needed only some rows, as SELECT INTO of PL/pgSQL does
        unfinished_calls: bigint = row.totals.plan.unfinished_calls;
        /// Executions by EXPLAIN (ANALYZE). No other column includes them
        explain_calls: bigint = row.totals.plan.explain_calls;
        /// The queryid of the statement that called the last execution: the function's, or that of CALL or
        /// DO; NULL for a statement that a client sent, or if the caller is not known
        caller_queryid: bigint = row.caller();
        /// Milliseconds in which the executor ran (ExecutorRun and ExecutorFinish), as in pg_stat_statements;
        /// without parsing, planning and the executor's start. The sum of all executions
        total_time: float8 = row.totals.plan.times.total_ms;
        /// Milliseconds of the shortest execution
        min_time: float8 = row.totals.plan.times.min_ms;
        /// Milliseconds of the longest execution
        max_time: float8 = row.totals.plan.times.max_ms;
        /// Milliseconds of an execution on average
        mean_time: float8 = row.totals.plan.times.mean_ms;
        /// Standard deviation of the milliseconds of an execution
        stddev_time: float8 = row.totals.plan.times.stddev_ms();
        /// Half of the executions took at most these milliseconds; estimated from a histogram, less than a
        /// quarter off
        p50_time: float8 = percentile(&row.totals.plan, 0.5);
        /// 95 % of the executions took at most these milliseconds
        p95_time: float8 = percentile(&row.totals.plan, 0.95);
        /// 99 % of the executions took at most these milliseconds
        p99_time: float8 = percentile(&row.totals.plan, 0.99);
        /// How often the planner made a plan for these executions
        plans: bigint = row.totals.plan.planning.plans;
        /// Milliseconds of all plannings
        total_plan_time: float8 = row.totals.plan.planning.total_ms;
        /// Milliseconds of the shortest planning
        min_plan_time: float8 = row.totals.plan.planning.min_ms;
        /// Milliseconds of the longest planning
        max_plan_time: float8 = row.totals.plan.planning.max_ms;
        /// Milliseconds of a planning on average
        mean_plan_time: float8 = row.totals.plan.planning.mean_ms();
        /// Executions with a generic plan of a prepared statement or of a function: one for all parameters
        generic_plan_calls: bigint = row.totals.plan.generic_plan_calls;
        /// Executions with a custom plan of a prepared statement or of a function: one that was made for the
        /// parameters of the execution
        custom_plan_calls: bigint = row.totals.plan.custom_plan_calls;
        /// Rows that the statement returned or changed
        rows: bigint = row.totals.statement.rows;
    };
    let last = columns! { |row: &Row|
        /// Milliseconds of the last execution
        last_time: float8 = row.totals.plan.last_ms;
        /// How the last execution ended: completed, failed or cancelled
        last_outcome: text = outcome_name(row.totals.plan.last_outcome);
        /// When the first execution ended
        first_seen_at: timestamptz = row.totals.plan.first_seen_at;
        /// When the last execution ended
        last_seen_at: timestamptz = row.totals.plan.last_seen_at;
        /// The sampling frequency of the last execution, see pg_rowsource.sampfreq
        sampfreq: int = row.totals.plan.sampfreq;
        /// The clock of the last execution; core if PostgreSQL itself measured
        clock_source: text = clock_name(row.totals.plan.clock);
        /// Parallel workers that the plan asked for, in all executions
        workers_planned: bigint = row.workers().map(|[planned, _]| planned);
        /// Parallel workers that were launched
        workers_launched: bigint = row.workers().map(|[_, launched]| launched);
        /// Triggers with calls and milliseconds, what just-in-time compilation did, and the blocks that
        /// planning used, in all executions; null if nothing of these
        details: jsonb = row.details.as_ref();
        /// Milliseconds that the statement's own process waited while it ran; a part of total_time. Not
        /// planning and commit, nor parallel workers: pg_stat_rowsource_waits shows these too. NULL if waits
        /// are not counted
        wait_time: float8 = wait_time(row.totals.plan.waits.run_ns() as f64 / 1e6);
        /// Milliseconds of wait_time in which it waited for the client: to send rows to it, for example
        client_time: float8 = wait_time(row.totals.plan.waits.client_ns() as f64 / 1e6);
        /// Milliseconds that clients waited for the executions: before_time, total_time and commit_time;
        /// without the way of messages. NULL for statements in functions
        response_time: float8 = row.sent(row.totals.plan.response_ms());
        /// Milliseconds of the response time of the execution for which a client waited longest
        max_response_time: float8 = row.sent(row.totals.plan.max_response_ms);
        /// Milliseconds from the arrival of the clients' messages to the executor: parsing, planning,
        /// binding, the executor's start, and waits for locks meanwhile
        before_time: float8 = row.sent(row.totals.plan.before_ms);
        /// Milliseconds from the end of the executions to that of their transactions, where these ended with
        /// them: deferred triggers, and waits for the disk and for standbys. The commit of a transaction
        /// block belongs to COMMIT. It is known when its session sends the next statement, or ends
        commit_time: float8 = row.sent(row.totals.plan.commit_ms);
    };
    Columns::new()
        .with(key_columns(), |row: &Row| &row.key)
        .and(query)
        .with(block_columns(), |row| &row.totals.statement.buffers)
        .with(wal_columns(), |row| &row.totals.statement.wal)
        .and(last)
}
