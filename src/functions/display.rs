//! `rowsource_display()`: a plan as a table, and `rowsource_last()`: which statement was the last.

use super::fail;
use crate::pg::srf::{Value, text};
use crate::pg::{server, statement};
use crate::session::{self, Plan, PlanKey};
use pgrx::PgSqlErrorCode;
use pgrx::prelude::*;
use rowsource_core::figures::Outcome;
use rowsource_core::report::{self, FORMAT_WORDS, Format, Header};

/// The rows of `rowsource_display()`.
pub fn lines(queryid: Option<i64>, planid: Option<i64>, format: Option<&str>) -> Vec<Vec<Value>> {
    // Before all else: even if this call fails, its statement is not what the user wants to see next.
    statement::displaying();
    let format = parse(format.unwrap_or_default());
    let plan = if queryid.is_none() && planid.is_none() {
        last()
    } else {
        known(queryid, planid)
    };
    if !server::may_see(plan.key.userid) {
        fail(
            PgSqlErrorCode::ERRCODE_INSUFFICIENT_PRIVILEGE,
            "permission denied to see another user's statement",
            "Only roles with the privileges of pg_read_all_stats may see the statements of others.",
        );
    }
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
    let figures = if format.last() { &plan.last } else { &plan.total };
    let lines = report::display(&header, &plan.description.nodes, figures, &format);
    lines.iter().map(|line| vec![text(line)]).collect()
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

fn last() -> Plan {
    session::last().unwrap_or_else(|| {
        fail(PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            "no statement of this session has been measured",
            "Run one first. At pg_rowsource.statistics_level basic only statements with the hint /*+ gather_plan_statistics */ are measured."
        )
    })
}

fn known(queryid: Option<i64>, planid: Option<i64>) -> Plan {
    let wanted = |key: &PlanKey| {
        queryid.is_none_or(|id| id == key.queryid) && planid.is_none_or(|id| id == key.planid)
    };
    let mut plans: Vec<Plan> = session::plans()
        .into_iter()
        .filter(|plan| wanted(&plan.key))
        .collect();
    // Stable: among equals the most recently run stays first.
    plans.sort_by_key(|plan| {
        let key = &plan.key;
        let elsewhere = key.dbid != server::database_id();
        (
            !server::may_see(key.userid),
            elsewhere,
            key.userid != server::user_id(),
        )
    });
    plans.into_iter().next().unwrap_or_else(|| {
        let id = |id: Option<i64>| id.map_or("any".to_owned(), |id| id.to_string());
        fail(
            PgSqlErrorCode::ERRCODE_UNDEFINED_OBJECT,
            &format!(
                "no plan is kept for queryid {}, planid {}",
                id(queryid),
                id(planid)
            ),
            "The kept plans are listed in pg_stat_rowsource_plans.",
        )
    })
}

#[pg_extern(sql = false)]
fn rowsource_last()
-> TableIterator<'static, (name!(queryid, i64), name!(planid, i64), name!(outcome, String))> {
    statement::displaying();
    let row = session::last().map(|plan| {
        let outcome = outcome_name(plan.statistics.last_outcome).to_owned();
        (plan.key.queryid, plan.key.planid, outcome)
    });
    TableIterator::new(row)
}

pub fn outcome_name(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Completed => "completed",
        Outcome::Failed => "failed",
        Outcome::Cancelled => "cancelled",
    }
}
