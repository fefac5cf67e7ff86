//! `rowsource_display()` shows a plan as a table. `rowsource_last()` identifies the last statement.

use super::words::{EXPLAIN_FORMATS, WHERE_IDS_ARE};
use super::{live, partitions, triggers, wait_names};
use crate::pg::executor::{statement, unmeasured};
use crate::pg::live::{lacks_beats, sessions_without_beats};
use crate::pg::server::columns::{Columns, columns};
use crate::pg::server::srf::Rows;
use crate::pg::server::{self, fail, memory};
use crate::pg::waits;
use crate::session::{self, LastStatement};
use pgrx::{PgSqlErrorCode, pg_sys};
use rowsource_core::model::{
    Exemplar, KeptExecution, NodeStats, Outcome, PackError, Plan, PlanKey, clock_name,
};
use rowsource_core::report::{self, Format, Header, Shown, format_words};

/// Adds the rows of `rowsource_display()`.
pub fn lines(
    rows: &mut Rows,
    queryid: Option<i64>,
    planid: Option<i64>,
    format: Option<&str>,
    pid: Option<i32>,
    pattern: Option<&str>,
) {
    // This comes first, so that the calling statement is excluded even if the call fails.
    statement::exclude_running_from_last();
    let format = parse(format.unwrap_or_default());
    let has_ids = queryid.is_some() || planid.is_some();
    if has_ids as u8 + pid.is_some() as u8 + pattern.is_some() as u8 > 1 {
        fail(
            PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
            "a pid, a pattern and the ids of a plan exclude each other",
            "With a pid, rowsource_display() shows what that process runs now; with a pattern, a kept plan whose statement contains it.",
        )
    }
    if let Some(pid) = pid {
        return live::lines(rows, pid, &format);
    }
    let is_of_session = queryid.is_none() && pattern.is_none();
    let find = |finds: fn(Option<i64>, Option<i64>) -> Found| match pattern {
        Some(pattern) => find_pattern(pattern),
        None => finds(queryid, planid),
    };
    let (mut plan, stats, choice) = match format.shown() {
        Shown::Kept(which) => {
            let Found { mut plan, choice, .. } = find(find_stored);
            let kept = take_kept(&mut plan, which).unwrap_or_else(|| fail_none_kept(&plan, which));
            (plan, kept.nodes, choice)
        }
        shown => {
            let Found {
                mut plan,
                last,
                choice,
            } = find(self::find);
            let stats = statistics_of(&mut plan, last, shown == Shown::Last);
            (plan, stats, choice)
        }
    };
    let are_sums = format.shown() == Shown::Totals;
    memory::ensure_headroom(plan.description.nodes.len());
    plan.description.estimate_as(&stats, are_sums);
    let warning = if is_of_session {
        unmeasured::reason(Some(plan.statistics.last_seen_at)).map(|reason| reason.text)
    } else {
        choice
    };
    // Of the last execution, only its session knows them.
    let facts = match format.shown() {
        Shown::Totals => Some(plan.statement_sums().facts),
        Shown::Last if is_of_session => session::last_summary().map(|(_, facts)| facts),
        _ if plan.statistics.times.calls == 1 => Some(plan.statement_sums().facts),
        _ => None,
    };
    let triggers = facts.map_or_else(Vec::new, |facts| {
        let called = triggers::named(plan.key.datid, &facts).into_iter();
        called
            .map(|trigger| trigger.line(true, (trigger.ms, trigger.calls)))
            .collect()
    });
    for line in table_with_warning(&plan, &stats, &format, (warning, triggers)) {
        rows.add_line(&line);
    }
}

/// Returns the lines of a plan's table. `stats` are the statistics of the nodes.
pub(super) fn table(plan: &Plan, stats: &[NodeStats], format: &Format) -> Vec<String> {
    table_with_warning(plan, stats, format, (None, Vec::new()))
}

/// Returns the same of a plan of snapshots, which knows the names of its user and its database.
pub(super) fn stored_table(
    plan: &Plan,
    stats: &[NodeStats],
    format: &Format,
    [user, database]: [Option<String>; 2],
) -> Vec<String> {
    memory::ensure_headroom(plan.description.nodes.len());
    let header = Header {
        user: user.unwrap_or_default(),
        database: database.unwrap_or_default(),
        ..header(plan, format.shown())
    };
    report::display(&header, &plan.description.nodes, stats, format)
}

/// Returns the lines of a plan's table behind a warning, with the triggers that were called.
fn table_with_warning(
    plan: &Plan,
    stats: &[NodeStats],
    format: &Format,
    (warning, triggers): (Option<String>, Vec<String>),
) -> Vec<String> {
    // The whole table is made in memory, because each column is as wide as its widest value.
    memory::ensure_headroom(plan.description.nodes.len());
    let header = Header {
        warning,
        triggers,
        // The record does not have it. The executions may be of any session.
        beats_missing: lacks_beats() || sessions_without_beats().0 > 0,
        ..header(plan, format.shown())
    };
    report::display(&header, &plan.description.nodes, stats, format)
}

/// Returns what the display says about a plan as a whole: about all executions, or about the one in the place
/// of the last.
fn header(plan: &Plan, shown: Shown) -> Header {
    let statistics = &plan.statistics;
    let is_one = shown != Shown::Totals;
    Header {
        queryid: plan.key.queryid,
        planid: plan.key.planid,
        executions: statistics.times.calls,
        sampfreq: statistics.sampfreq,
        clock: clock_name(statistics.clock).to_owned(),
        text: plan.description.text.clone(),
        user: server::user_name(plan.key.userid).unwrap_or_default(),
        database: server::database_name(plan.key.datid).unwrap_or_default(),
        first_seen_at: server::shown_time(statistics.first_seen_at),
        last_seen_at: server::shown_time(statistics.last_seen_at),
        elapsed_ms: if is_one {
            statistics.last_ms
        } else {
            statistics.times.total_ms
        },
        around_ms: plan.around_ms,
        outcome: statistics.last_outcome,
        unfinished: statistics.last_unfinished,
        explained: is_one && plan.explained,
        shown,
        failed_calls: statistics.failed_calls,
        cancelled_calls: statistics.cancelled_calls,
        unfinished_calls: statistics.unfinished_calls,
        block_size: pg_sys::BLCKSZ,
        older_literals: plan.older_literals,
        older_text: plan.older_text,
        search_path: server::search_path(),
        warning: None,
        waits: wait_names::shown(plan, is_one),
        partitions: match shown {
            Shown::Totals => partitions::named(plan),
            _ => Vec::new(),
        },
        triggers: Vec::new(),
        waits_missing: waits::refused().map(str::to_owned),
        beats_missing: false,
        now: None,
    }
}

/// A plan that was looked for.
pub(super) struct Found {
    pub plan: Plan,
    /// The statistics of the session's last statement, if that is its execution.
    pub last: Option<Vec<NodeStats>>,
    /// Which one of several plans it is, and how to see the others.
    pub choice: Option<String>,
}

/// Returns the plan with these ids. Without ids, returns the session's last statement, and the statistics of
/// its execution.
///
/// # Errors
/// Raises an error if no such plan is kept, if there is a planid without a queryid, if there are no ids and
/// no last statement, or if the user may not see the last statement.
pub(super) fn find(queryid: Option<i64>, planid: Option<i64>) -> Found {
    let Some(queryid) = queryid else {
        if planid.is_some() {
            fail(
                PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
                "a planid needs the queryid of its statement",
                "pg_stat_rowsource_plans lists the ids of the kept plans.",
            )
        }
        let LastStatement { plan, stats } = last();
        return Found {
            plan,
            last: Some(stats),
            choice: None,
        };
    };
    let is_wanted = |key: &PlanKey| queryid == key.queryid && planid.is_none_or(|id| id == key.planid);
    stored_plan(is_wanted, |_| true).unwrap_or_else(|| fail_not_kept(queryid, planid))
}

/// Returns the plan with these ids as it is stored. Without ids, returns that of the session's last
/// statement.
///
/// # Errors
/// Raises the errors of [`find`].
pub(super) fn find_stored(queryid: Option<i64>, planid: Option<i64>) -> Found {
    let mut found = find(queryid, planid);
    if found.last.take().is_some() {
        // It shows the literals of the last execution.
        let PlanKey { queryid, planid, .. } = found.plan.key;
        found.plan = session::plan(&found.plan.key).unwrap_or_else(|| fail_not_kept(queryid, Some(planid)));
    }
    found
}

/// Adds the rows of `rowsource_partitions()`.
pub fn partition_rows(rows: &mut Rows, queryid: Option<i64>, planid: Option<i64>) {
    let columns = partitions::columns();
    for partition in partitions::named(&find_stored(queryid, planid).plan) {
        columns.add(rows, &partition);
    }
}

/// Returns a plan whose statement contains a pattern, in which % stands for any text. Letter case does not
/// matter.
///
/// # Errors
/// Raises an error if there is none.
fn find_pattern(pattern: &str) -> Found {
    stored_plan(|_| true, |plan| contains(&plan.description.text, pattern)).unwrap_or_else(|| {
        fail(
            PgSqlErrorCode::ERRCODE_UNDEFINED_OBJECT,
            &format!("no plan is kept of a statement that contains \"{pattern}\""),
            &format!("% stands for any text, and constants may be kept as $1. {WHERE_IDS_ARE}"),
        )
    })
}

/// Returns whether a text contains a pattern.
fn contains(text: &str, pattern: &str) -> bool {
    let mut rest = text.as_bytes();
    pattern.split('%').filter(|part| !part.is_empty()).all(|part| {
        let found = rest
            .windows(part.len())
            .position(|window| window.eq_ignore_ascii_case(part.as_bytes()));
        rest = found.map_or(&[], |place| &rest[place + part.len()..]);
        found.is_some()
    })
}

/// Returns an execution that was kept whole, and puts it in the place of the plan's last one. Returns `None`
/// if there is none.
///
/// # Errors
/// Raises "out of memory".
pub(super) fn take_kept(plan: &mut Plan, which: Exemplar) -> Option<KeptExecution> {
    memory::ensure_headroom(plan.description.nodes.len());
    let kept = match plan.exemplars.get(which)? {
        Ok(kept) => kept,
        Err(PackError::Memory) => memory::out_of_memory(),
        Err(PackError::Damaged) => return None,
    };
    plan.statistics = plan.statistics.with_last(&kept.run);
    plan.last_waits = Some(kept.waits);
    plan.around_ms = plan
        .key
        .toplevel()
        .then_some([kept.run.before_ms, kept.run.commit_ms]);
    plan.explained = false;
    Some(kept)
}

/// Raises the error that no such execution of a plan is kept.
pub(super) fn fail_none_kept(plan: &Plan, which: Exemplar) -> ! {
    let (queryid, planid) = (plan.key.queryid, plan.key.planid);
    let name = which.name();
    let hint = match which {
        Exemplar::Slowest => {
            "The slowest execution of a plan is kept if it completed and took more than 1 ms."
        }
        Exemplar::Failed => "The last execution of a plan that failed is kept.",
        Exemplar::Cancelled => "The last execution of a plan that was cancelled is kept.",
    };
    fail(
        PgSqlErrorCode::ERRCODE_UNDEFINED_OBJECT,
        &format!("no {name} execution is kept of queryid {queryid}, planid {planid}"),
        hint,
    )
}

/// Returns the statistics of the nodes: those of the last execution, or the totals. `last` is the last
/// execution, if that is not the one that `plan` has. The totals are those of the folded plan.
pub(super) fn statistics_of(plan: &mut Plan, last: Option<Vec<NodeStats>>, is_last: bool) -> Vec<NodeStats> {
    if let Some(folded) = plan.folded.take_if(|_| !is_last) {
        plan.description = folded;
    }
    last.filter(|_| is_last).unwrap_or_else(|| {
        let mut stats = memory::with_room(plan.nodes.len());
        let nodes = plan.nodes.iter();
        stats.extend(nodes.map(|node| if is_last { node.last } else { node.sum() }));
        stats
    })
}

/// Parses a display format, or raises an error that lists the known words.
pub(super) fn parse(words: &str) -> Format {
    words.parse().unwrap_or_else(|error: report::FormatError| {
        let explain = EXPLAIN_FORMATS.iter().map(|(name, _)| *name);
        let explain = explain
            .filter(|name| name.eq_ignore_ascii_case(&error.word))
            .map(|name| format!("rowsource_explain(format => '{name}') prints a plan in this format. "));
        fail(
            PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
            &format!("unknown word \"{}\" in display format", error.word),
            &format!(
                "{}Known words, each with an optional + or -: {}.",
                explain.collect::<String>(),
                format_words().collect::<Vec<_>>().join(", ")
            ),
        )
    })
}

/// Returns the session's last statement, or raises an error if the user may not see it or there is none.
fn last() -> LastStatement {
    let last = session::last().unwrap_or_else(|| {
        let hint = match unmeasured::reason(None) {
            Some(reason) => format!("{}. {}", reason.text, reason.advice),
            None => unmeasured::advice().to_owned(),
        };
        fail(
            PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            "no statement of this session has been measured",
            &hint,
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
fn fail_not_kept(queryid: i64, planid: Option<i64>) -> ! {
    let planid = planid.map_or_else(String::new, |planid| format!(", planid {planid}"));
    fail(
        PgSqlErrorCode::ERRCODE_UNDEFINED_OBJECT,
        &format!("no plan is kept for queryid {queryid}{planid}"),
        WHERE_IDS_ARE,
    )
}

/// What decides which of several plans is shown: whether it is of another database and of another user, and
/// its total time.
type Rank = ((bool, bool), f64, PlanKey);

/// Returns whether a plan is of another database, and of another user.
pub(super) fn distance(key: &PlanKey) -> (bool, bool) {
    (
        key.datid != server::database_id(),
        key.userid != server::user_id(),
    )
}

/// Returns a wanted plan, if there is one. Prefers plans of this database, then plans of the user, then the
/// one that took the most time. Ignores plans that the user may not see: an error that mentions them would
/// reveal that they exist.
fn stored_plan(is_wanted: impl Fn(&PlanKey) -> bool, fits: impl Fn(&Plan) -> bool) -> Option<Found> {
    let mut keys = session::keys();
    keys.retain(|key| is_wanted(key) && server::may_see(key.userid));
    // By distance, and then by time.
    let is_before = |one: &Rank, other: &Rank| (one.0, -one.1) < (other.0, -other.1);
    let (mut plans, mut first, mut next) = (0, None::<(Rank, Plan)>, None::<Rank>);
    for key in keys {
        server::check_for_interrupts();
        memory::ensure();
        let Some(plan) = session::plan(&key).filter(&fits) else {
            continue;
        };
        let rank = (distance(&key), plan.statistics.times.total_ms, key);
        plans += 1;
        if first.as_ref().is_none_or(|(first, _)| is_before(&rank, first)) {
            next = first.replace((rank, plan)).map(|(rank, _)| rank);
        } else if next.is_none_or(|next| is_before(&rank, &next)) {
            next = Some(rank);
        }
    }
    let ((distance, _, key), plan) = first?;
    let choice = next.map(|(further, _, next)| {
        let nearer = if distance == further {
            ""
        } else {
            "this database, this user and "
        };
        let ids = |key: &PlanKey| (key.queryid, key.planid);
        let next = match ids(&next) == ids(&key) {
            true => String::new(),
            false => format!(
                "The next one is rowsource_display({}, {}). ",
                next.queryid, next.planid
            ),
        };
        format!("plan 1 of {plans}, by {nearer}total time. {next}pg_stat_rowsource_plans lists all.")
    });
    Some(Found {
        plan,
        last: None,
        choice,
    })
}

/// Returns the plan of a query that ran last, as far as it is stored. Prefers this database, then this user.
///
/// # Errors
/// Raises an error if there is none that the user may see.
pub(super) fn newest_plan(queryid: i64) -> PlanKey {
    let is_wanted = |key: &PlanKey| queryid == key.queryid && server::may_see(key.userid);
    // Of those at the same distance it is the first one, and those that ran last come first.
    let mut keys = session::keys();
    keys.retain(is_wanted);
    let newest = keys.into_iter().min_by_key(distance);
    newest.unwrap_or_else(|| fail_not_kept(queryid, None))
}

/// Adds the row of `rowsource_last()`, if a statement was measured. The ids of another user's statement are
/// hidden, as in the views.
pub fn last_row(rows: &mut Rows) {
    statement::exclude_running_from_last();
    if let Some(last) = session::last_outcome() {
        last_columns().add(rows, &last);
    }
}

/// The columns of `rowsource_last()`.
pub fn last_columns() -> Columns<(PlanKey, Outcome)> {
    let seen = |key: &PlanKey, id: i64| server::may_see(key.userid).then_some(id);
    columns! { |row: &(PlanKey, Outcome)|
        /// Identifies the statement, as in pg_stat_statements
        queryid: bigint = seen(&row.0, row.0.queryid);
        /// Identifies its plan
        planid: bigint = seen(&row.0, row.0.planid);
        /// How it ended: completed, failed or cancelled
        outcome: text = outcome_name(row.1);
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
