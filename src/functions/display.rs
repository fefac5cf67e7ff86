//! `rowsource_display()` shows a plan as a table. `rowsource_last()` identifies the last statement.

use crate::pg::executor::statement;
use crate::pg::server::srf::{Rows, value};
use crate::pg::server::{self, fail, memory};
use crate::session::{self, LastStatement};
use pgrx::{PgSqlErrorCode, pg_sys};
use rowsource_core::model::{NodeStats, Outcome, Plan, PlanKey, clock_name};
use rowsource_core::report::{self, FORMAT_WORDS, Format, Header};

/// Adds the rows of `rowsource_display()`.
pub fn lines(rows: &mut Rows, queryid: Option<i64>, planid: Option<i64>, format: Option<&str>) {
    // This comes first, so that the calling statement is excluded even if the call fails.
    statement::exclude_running_from_last();
    let format = parse(format.unwrap_or_default());
    let (plan, last) = find(queryid, planid).unwrap_or_else(|| fail_not_kept(queryid, planid));
    // The whole table is made in memory, because each column is as wide as its widest value.
    memory::ensure_headroom(plan.description.nodes.len());
    let statistics = &plan.statistics;
    let header = Header {
        queryid: plan.key.queryid,
        planid: plan.key.planid,
        executions: statistics.times.calls,
        sampfreq: statistics.sampfreq,
        clock: clock_name(statistics.clock).to_owned(),
        outcome: statistics.last_outcome,
        last: format.last(),
        failed_calls: statistics.failed_calls,
        cancelled_calls: statistics.cancelled_calls,
        block_size: pg_sys::BLCKSZ,
        older_literals: plan.older_literals,
    };
    let stats = statistics_of(&plan, last, format.last());
    for line in report::display(&header, &plan.description.nodes, &stats, &format) {
        rows.add_line(&line);
    }
}

/// Returns the plan with these ids. Without ids, returns the session's last statement, and the statistics of its execution.
/// Returns `None` if no such plan is kept.
///
/// # Errors
/// Raises an error if there are no ids and no last statement, or if the user may not see it.
pub(super) fn find(queryid: Option<i64>, planid: Option<i64>) -> Option<(Plan, Option<Vec<NodeStats>>)> {
    if queryid.is_none() && planid.is_none() {
        let LastStatement { plan, stats } = last();
        return Some((plan, Some(stats)));
    }
    Some((stored_plan(queryid, planid)?, None))
}

/// Returns the statistics of the nodes: those of the last execution, or the totals. `last` is the last execution, if that is
/// not the one that `plan` has.
pub(super) fn statistics_of(plan: &Plan, last: Option<Vec<NodeStats>>, is_last: bool) -> Vec<NodeStats> {
    last.filter(|_| is_last).unwrap_or_else(|| {
        let mut stats = memory::with_room(plan.nodes.len());
        let nodes = plan.nodes.iter();
        stats.extend(nodes.map(|node| if is_last { node.last } else { node.total }));
        stats
    })
}

/// Parses a display format, or raises an error that lists the known words.
fn parse(words: &str) -> Format {
    words.parse().unwrap_or_else(|error: report::FormatError| {
        fail(
            PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
            &format!("unknown word \"{}\" in display format", error.word),
            &format!(
                "Known words, each with an optional + or -: {}.",
                FORMAT_WORDS.join(", ")
            ),
        )
    })
}

/// Returns the session's last statement, or raises an error if the user may not see it or there is none.
fn last() -> LastStatement {
    let last = session::last().unwrap_or_else(|| {
        fail(PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            "no statement of this session has been measured",
            "Run one first. If pg_rowsource.statistics_level is basic, only statements with the hint /*+ gather_plan_statistics */ are measured."
        )
    });
    if !server::may_see(last.plan.key.userid) {
        fail(
            PgSqlErrorCode::ERRCODE_INSUFFICIENT_PRIVILEGE,
            "permission denied to see another user's statement",
            "Only roles with the privileges of pg_read_all_stats may see the statements of others.",
        );
    }
    last
}

/// Raises the error that no plan with these ids is kept.
fn fail_not_kept(queryid: Option<i64>, planid: Option<i64>) -> ! {
    let id = |id: Option<i64>| id.map_or("any".to_owned(), |id| id.to_string());
    fail(
        PgSqlErrorCode::ERRCODE_UNDEFINED_OBJECT,
        &format!(
            "no plan is kept for queryid {}, planid {}",
            id(queryid),
            id(planid)
        ),
        "pg_stat_rowsource_plans lists the kept plans. Roles with the privileges of pg_read_all_stats also see those of other roles.",
    )
}

/// Returns the plan with these ids, if there is one. Prefers plans of this database, then plans of the user. Ignores plans that
/// the user may not see: an error that mentions them would reveal that they exist.
fn stored_plan(queryid: Option<i64>, planid: Option<i64>) -> Option<Plan> {
    let matches = |key: &&PlanKey| {
        queryid.is_none_or(|id| id == key.queryid)
            && planid.is_none_or(|id| id == key.planid)
            && server::may_see(key.userid)
    };
    let distance = |key: &&PlanKey| {
        let other_database = key.dbid != server::database_id();
        (other_database, key.userid != server::user_id())
    };
    // The keys are sorted by use. So among equally near plans, this takes the one that ran last.
    let key = session::keys()
        .iter()
        .filter(matches)
        .min_by_key(distance)
        .copied();
    key.and_then(|key| session::plan(&key))
}

/// Adds the row of `rowsource_last()`, if a statement was measured.
pub fn last_row(rows: &mut Rows) {
    statement::exclude_running_from_last();
    if let Some((key, outcome)) = session::last_outcome() {
        rows.add([
            value(key.queryid),
            value(key.planid),
            value(outcome_name(outcome)),
        ]);
    }
}

/// Returns the name of an outcome in the views.
pub fn outcome_name(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Completed => "completed",
        Outcome::Failed => "failed",
        Outcome::Cancelled => "cancelled",
    }
}
