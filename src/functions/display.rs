//! `rowsource_display()`: a plan as a table, and `rowsource_last()`: which statement was the last.

use super::fail;
use crate::pg::srf::Rows;
use crate::pg::{memory, server, statement};
use crate::session::{self, LastStatement};
use pgrx::PgSqlErrorCode;
use pgrx::prelude::*;
use rowsource_core::model::{Outcome, Plan, PlanKey};
use rowsource_core::report::{self, FORMAT_WORDS, Format, Header};

/// The rows of `rowsource_display()`.
pub fn lines(rows: &mut Rows, queryid: Option<i64>, planid: Option<i64>, format: Option<&str>) {
    // Before all else: even if this call fails, its statement is not what the user wants to see next.
    statement::displaying();
    let format = parse(format.unwrap_or_default());
    let (plan, last) = if queryid.is_none() && planid.is_none() {
        let LastStatement { plan, stats } = last();
        (plan, Some(stats))
    } else {
        (known(queryid, planid), None)
    };
    // The table of a large plan is made in memory.
    memory::ensure_headroom(plan.description.nodes.len());
    let statistics = &plan.statistics;
    let header = Header {
        queryid: plan.key.queryid,
        planid: plan.key.planid,
        executions: statistics.times.calls,
        sampfreq: statistics.sampfreq,
        clock: statistics.clock.as_str().to_owned(),
        outcome: statistics.last_outcome,
        last: format.last(),
        failed_calls: statistics.failed_calls,
        cancelled_calls: statistics.cancelled_calls,
        block_size: pg_sys::BLCKSZ,
        older_literals: plan.older_literals,
    };
    let stats = last.filter(|_| format.last()).unwrap_or_else(|| {
        let mut stats = memory::with_room(plan.nodes.len());
        let nodes = plan.nodes.iter();
        stats.extend(nodes.map(|node| if format.last() { node.last } else { node.total }));
        stats
    });
    for line in report::display(&header, &plan.description.nodes, &stats, &format) {
        rows.add_line(&line);
    }
}

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

fn last() -> LastStatement {
    let last = session::last().unwrap_or_else(|| {
        fail(PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            "no statement of this session has been measured",
            "Run one first. At pg_rowsource.statistics_level basic only statements with the hint /*+ gather_plan_statistics */ are measured."
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

/// The plan that is meant: this database's rather than another's, and the user's own rather than another user's. Plans
/// that the user may not see do not count: an error that told them from others would say that they exist.
fn known(queryid: Option<i64>, planid: Option<i64>) -> Plan {
    let wanted = |key: &&PlanKey| {
        queryid.is_none_or(|id| id == key.queryid)
            && planid.is_none_or(|id| id == key.planid)
            && server::may_see(key.userid)
    };
    let distance = |key: &&PlanKey| {
        let elsewhere = key.dbid != server::database_id();
        (elsewhere, key.userid != server::user_id())
    };
    // Of several that are as near, the first is the one that ran last.
    let key = session::keys()
        .iter()
        .filter(wanted)
        .min_by_key(distance)
        .copied();
    key.and_then(|key| session::plan(&key)).unwrap_or_else(|| {
        let id = |id: Option<i64>| id.map_or("any".to_owned(), |id| id.to_string());
        fail(
            PgSqlErrorCode::ERRCODE_UNDEFINED_OBJECT,
            &format!(
                "no plan is kept for queryid {}, planid {}",
                id(queryid),
                id(planid)
            ),
            "pg_stat_rowsource_plans lists the kept plans. Those of other roles are shown to roles with the privileges of pg_read_all_stats.",
        )
    })
}

#[pg_extern(sql = false)]
fn rowsource_last()
-> TableIterator<'static, (name!(queryid, i64), name!(planid, i64), name!(outcome, String))> {
    statement::displaying();
    let row = session::last_outcome()
        .map(|(key, outcome)| (key.queryid, key.planid, outcome_name(outcome).to_owned()));
    TableIterator::new(row)
}

pub fn outcome_name(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Completed => "completed",
        Outcome::Failed => "failed",
        Outcome::Cancelled => "cancelled",
    }
}
