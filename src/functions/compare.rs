//! `rowsource_compare()`: why a statement takes longer than before. `rowsource_plan()` writes a plan so that
//! another server can compare it.

use super::export::{self, Exported, WHICH, Which, chosen, executions};
use super::interval_plans::{IntervalEnd, Ran};
use super::plan_changes::{Change, Changes, gone_indexes, narrow};
use super::words::choose;
use super::{ash, blockers, display, interval_plans, intervals, wait_names};
use crate::pg::executor::statement;
use crate::pg::server::moment::moment;
use crate::pg::server::srf::Rows;
use crate::pg::server::{self, fail, memory, query};
use crate::pg::store;
use crate::session;
use pgrx::PgSqlErrorCode;
use rowsource_core::compare::{Cause, Difference, Node, Side, TableStatistics, Verdict, difference};
use rowsource_core::export::Syntax;
use rowsource_core::model::{Exemplar, MAX_NODES, PlanKey, PlanOrigin};
use rowsource_core::report::comparison::{Comparison, Metric, NOT_KNOWN};
use std::cell::LazyCell;

/// What the lines of `rowsource_compare()` are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Text,
    Json,
}

const FORMS: [(&str, Form); 2] = [("text", Form::Text), ("json", Form::Json)];

/// How a side is written.
const HOW: &str = "Write a planid, mean, last, slowest, failed or cancelled, both (like '42 slowest'), an interval ('14:00..14:05'), 'baseline' and its name, or what rowsource_plan() returns.";

/// Selects whether a table was never analysed, as far as the user may know that, and how many of its rows
/// have changed since it was: of a partitioned table, all of its partitions, unless there are more than a
/// thousand, which would take long. The time of the last ANALYZE is lost in a crash, and who may not read the
/// table sees no statistics of its columns.
const ANALYSED: &str = "
    WITH RECURSIVE tables AS (
        SELECT c.oid, c.relkind, n.nspname, c.relname
          FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
         WHERE n.nspname OPERATOR(pg_catalog.=) pg_catalog.convert_from(pg_catalog.decode('[schema]', 'hex'), 'UTF8')
               AND c.relname OPERATOR(pg_catalog.=) pg_catalog.convert_from(pg_catalog.decode('[table]', 'hex'), 'UTF8')
        UNION ALL
        SELECT c.oid, c.relkind, n.nspname, c.relname
          FROM tables t JOIN pg_catalog.pg_inherits i ON i.inhparent OPERATOR(pg_catalog.=) t.oid
               JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) i.inhrelid
               JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
         WHERE t.relkind OPERATOR(pg_catalog.=) 'p'::pg_catalog.\"char\")
    SELECT pg_catalog.json_build_array(
               pg_catalog.bool_and(
                   pg_catalog.pg_stat_get_last_analyze_time(t.oid) IS NULL
                   AND pg_catalog.pg_stat_get_last_autoanalyze_time(t.oid) IS NULL
                   AND pg_catalog.has_table_privilege(t.oid, 'SELECT') AND NOT pg_catalog.row_security_active(t.oid)
                   AND NOT EXISTS (SELECT FROM pg_catalog.pg_stats s
                                    WHERE s.schemaname OPERATOR(pg_catalog.=) t.nspname AND s.tablename OPERATOR(pg_catalog.=) t.relname)),
               pg_catalog.sum(pg_catalog.pg_stat_get_mod_since_analyze(t.oid)))
      FROM (SELECT * FROM tables LIMIT 1001) t
     WHERE t.relkind OPERATOR(pg_catalog.=) ANY ('{r,m}'::pg_catalog.\"char\"[])
    HAVING pg_catalog.count(*) OPERATOR(pg_catalog.<=) 1000";

/// A side of a comparison.
enum Wanted {
    /// A plan of this server, the plan of today if there is no planid. Unless it is said which executions,
    /// it is their mean: of all, or of those around the change from one plan to the other.
    Here(Option<i64>, Option<Which>),
    /// What the query did in an interval.
    Then(i64, i64),
    /// What `rowsource_plan()` returned.
    Written(Box<Side>),
}

/// Executions of this server are looked at for at most this time before the last one, in microseconds.
const BLOCKERS_US: i64 = 3_600_000_000;

/// A side, and what is known of one of this server.
struct Found {
    side: Side,
    ran: Option<Ran>,
}

/// Adds the rows of `rowsource_compare()`.
///
/// # Errors
/// Raises an error if an argument is wrong, or if no such plan or execution is kept.
pub fn lines(
    rows: &mut Rows,
    queryid: Option<i64>,
    sides: [Option<&str>; 2],
    metric: Option<&str>,
    form: Option<&str>,
) {
    // This comes first, so that the calling statement is excluded even if the call fails.
    statement::exclude_running_from_last();
    let metric = choose(
        "metric",
        metric,
        &Metric::ALL.map(|metric| (metric.name(), metric)),
    );
    let form = choose("format", form, &FORMS);
    let changes = Changes::default();
    let (wanted_means, [mut first, mut second]) = found(queryid, sides, &changes);
    memory::ensure_headroom(2 * MAX_NODES);
    note_change([&mut first, &mut second], wanted_means, &changes);
    let (
        first,
        Found {
            side: mut second,
            ran,
        },
    ) = (first.side, second);
    let difference = difference(&first, &second);
    if let Some(Ran { key, interval, .. }) = ran
        && difference.total.total() > 0.0
    {
        explain(&mut second, &difference, &key, Some(interval));
    }
    let comparison = Comparison {
        first: &first,
        second: &second,
        difference: &difference,
    };
    match form {
        Form::Text => {
            for line in comparison.lines(metric) {
                rows.add_line(&line);
            }
        }
        Form::Json => match comparison.json() {
            Ok(json) => export::add_document(rows, &json, Syntax::Json),
            Err(_) => memory::out_of_memory(),
        },
    }
}

/// Adds the row of `rowsource_plan()`.
///
/// # Errors
/// Raises the errors of [`chosen`].
pub fn plan_row(rows: &mut Rows, queryid: Option<i64>, planid: Option<i64>, which: Option<&str>) {
    let Found { side, .. } = side(chosen(queryid, planid, which));
    match serde_json::to_string(&side) {
        Ok(json) => export::add_document(rows, &json, Syntax::Json),
        Err(_) => memory::out_of_memory(),
    }
}

/// Returns both sides. If one is not given, it is the mean of the plan of today, or what ran since the
/// interval of the other one. If both are not, the other one is the plan that it replaced; without such, the
/// sides are the mean and the slowest execution. Also returns whether nothing says which executions of two
/// plans are wanted.
fn found(queryid: Option<i64>, sides: [Option<&str>; 2], changes: &Changes) -> (bool, [Found; 2]) {
    // By default that of the session's last statement. Plans of other servers need none.
    let queryid = LazyCell::new(|| queryid.unwrap_or_else(|| display::find(None, None).plan.key.queryid));
    let mean = |planid| Wanted::Here(Some(planid), None);
    let wanted = match sides {
        [None, None] => match plans(*queryid, changes) {
            (now, Some(before)) => [mean(before), mean(now)],
            (now, None) => [
                mean(now),
                Wanted::Here(Some(now), Some(Which::Kept(Exemplar::Slowest))),
            ],
        },
        sides => {
            let given = sides.map(|side| side.map(parsed));
            let interval = given.iter().flatten().find_map(Wanted::interval);
            given.map(|side| side.unwrap_or_else(|| other_side(interval)))
        }
    };
    let wanted = wanted.map(|wanted| match wanted {
        Wanted::Here(None, which) => Wanted::Here(Some(display::newest_plan(*queryid).planid), which),
        other => other,
    });
    let is_same = match (&wanted, sides) {
        ([Wanted::Here(first, one), Wanted::Here(second, other)], _) => {
            let [one, other] = [one, other].map(|which| which.unwrap_or(Which::Mean));
            (first, one) == (second, other)
        }
        // An interval without an end lasts until now.
        (_, [Some(first), Some(second)]) => first.trim() == second.trim(),
        _ => false,
    };
    if is_same {
        fail(
            PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
            "both sides are the same executions",
            HOW,
        )
    }
    let wanted_means = wanted
        .iter()
        .all(|wanted| matches!(wanted, Wanted::Here(_, None)));
    let found = wanted.map(|wanted| match wanted {
        Wanted::Here(planid, which) => side(executions(Some(*queryid), planid, which.unwrap_or(Which::Mean))),
        Wanted::Then(from, to) => {
            let (ran, side) = interval_plans::side(*queryid, (from, to));
            let ran = Some(ran);
            Found { side, ran }
        }
        Wanted::Written(side) => Found {
            side: *side,
            ran: None,
        },
    });
    // Each interval is that between the snapshots around it.
    let [first, second] = [0, 1].map(|side: usize| found[side].ran.as_ref().and_then(|ran| ran.snapshots));
    if first.is_some() && first == second {
        fail(
            PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            &format!(
                "no snapshot tells the intervals apart: both are {}",
                found[0].side.name
            ),
            &intervals::how_to_take(),
        )
    }
    (wanted_means, found)
}

impl Wanted {
    fn interval(&self) -> Option<(i64, i64)> {
        match self {
            Wanted::Then(from, to) => Some((*from, *to)),
            Wanted::Here(..) | Wanted::Written(_) => None,
        }
    }
}

/// Returns the side that is not given, if the other one is of an interval: what ran since that. Else it is
/// the mean of the plan of today.
///
/// # Errors
/// Raises an error if no snapshot tells what ran since.
fn other_side(interval: Option<(i64, i64)>) -> Wanted {
    let Some((from, to)) = interval else {
        return Wanted::Here(None, None);
    };
    match interval_plans::end((from, to)) {
        Some(IntervalEnd::Snapshot(end)) => {
            let (from, to) = ash::interval(Some(end), None);
            Wanted::Then(from, to)
        }
        Some(IntervalEnd::Now(since)) => fail(
            PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            &format!("no snapshot ends the interval, so it lasts until now, from {since} on"),
            "To compare with what runs from now on, take one with SELECT rowsource_snapshot(). Or give the other side: 'mean' is of all executions of the plan of today.",
        ),
        // The given side says that no snapshot is as old.
        None => Wanted::Then(from, to),
    }
}

/// Returns what an argument says.
fn parsed(argument: &str) -> Wanted {
    let argument = argument.trim();
    if argument.starts_with('{') {
        // The text is limited; in memory, a node takes a few times as much.
        memory::ensure_headroom(MAX_NODES);
        let side = Side::from_json(argument).unwrap_or_else(|error| {
            fail(
                PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
                &error.to_string(),
                "rowsource_plan() writes a plan on the other server.",
            )
        });
        return Wanted::Written(Box::new(side));
    }
    if let Some((from, to)) = argument.split_once("..") {
        let to = match to.trim() {
            "" => None,
            to => Some(moment(to)),
        };
        let (from, to) = ash::interval(Some(moment(from)), to);
        return Wanted::Then(from, to);
    }
    if let Some(("baseline", name)) = argument.split_once(char::is_whitespace) {
        let (from, to) = interval_plans::baseline(name.trim());
        return Wanted::Then(from, to);
    }
    let (mut planid, mut which) = (None, None);
    for word in argument.split_whitespace() {
        let known = WHICH.iter().find(|(name, _)| name.eq_ignore_ascii_case(word));
        match (word.parse::<i64>(), known) {
            (Ok(id), _) if planid.is_none() => planid = Some(id),
            (Err(_), Some((_, found))) if which.is_none() => which = Some(*found),
            _ => fail(
                PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
                &format!("\"{argument}\" is no side of a comparison"),
                HOW,
            ),
        }
    }
    Wanted::Here(planid, which)
}

/// Returns the plan of a query that is used now, and the one that it replaced, if that is still kept.
///
/// # Errors
/// Raises an error if the query has no plan that the user may see.
fn plans(queryid: i64, changes: &Changes) -> (i64, Option<i64>) {
    let now = display::newest_plan(queryid);
    let last = changes.last(|event| event.from.is_same_query(&now));
    let before = last.filter(|last| last.to == now).map(|last| last.from);
    let before = before.filter(|before| session::plan(before).is_some());
    (now.planid, before.map(|before| before.planid))
}

/// Notes on the second side which indexes of the first one are gone, if its plan took over from that of the
/// first one. What is stored with it is of the moment at which it was first seen, and holds for that change.
/// If it had been known before, the catalog says what is gone now; and of the means, executions before the
/// change are left out.
fn note_change([first, second]: [&mut Found; 2], are_means: bool, changes: &Changes) {
    let Some((before, after)) = first.ran.as_ref().zip(second.ran.as_mut()) else {
        return;
    };
    if !before.key.is_same_query(&after.key) || before.key == after.key {
        return;
    }
    let change = changes.between(&before.key, &after.key, after.interval.1);
    // Without a known change, all executions of the plan before may be older than it.
    let at = change.as_ref().map_or(before.interval.1, |change| change.at);
    if after.first_seen_at >= at {
        return;
    }
    if let Some(change) = change.filter(|_| are_means) {
        let sides = [&mut first.side, &mut second.side];
        narrow(Some(changes), &change, before.first_seen_at, sides);
        after.interval.0 = after.interval.0.max(change.at);
    }
    second.side.gone_indexes = gone_indexes(&first.side, after.key.datid);
}

/// Why a statement takes longer.
pub(super) enum Why {
    /// What stands behind "because", or [`NOT_KNOWN`].
    Known(String),
    /// Executions from before the change are included, and nothing tells them apart.
    Mixed,
}

impl Why {
    /// Returns the cause, if there are executions that tell it.
    pub(super) fn known(self) -> Option<String> {
        match self {
            Why::Known(cause) => Some(cause),
            Why::Mixed => None,
        }
    }
}

/// Returns why the mean execution of a plan takes longer than that of the plan before, if both are kept. If
/// it had run before, `changes` tells the executions since apart, if they are asked.
pub(super) fn cause(change: &Change, changes: Option<&Changes>) -> Option<Why> {
    let [first, second] = [change.from, change.to].map(|key| {
        let plan = store::plan(&key)?;
        memory::ensure_headroom(plan.description.nodes.len());
        let side = Side::of(&plan, &wait_names::shown(&plan, false));
        Some((side, plan.statistics.first_seen_at))
    });
    let ((mut first, first_seen_at), (mut second, second_seen_at)) = (first?, second?);
    if second_seen_at < change.at {
        narrow(changes, change, first_seen_at, [&mut first, &mut second]);
        second.gone_indexes = gone_indexes(&first, change.to.datid);
    }
    Some(cause_of(&first, second, &change.to, None))
}

/// Returns why the mean execution of a plan took longer in the second of two intervals, if the history has
/// both.
pub(super) fn cause_since(key: &PlanKey, [first, second]: [(i64, i64); 2]) -> Option<Why> {
    let [before, after] = [first, second].map(|interval| interval_plans::side_of(key, interval));
    Some(cause_of(&before?, after?, key, Some(second)))
}

/// Returns the cause of a difference; [`NOT_KNOWN`] if there is none, or no difference. `key` is the plan of
/// the second side, and `ran` says when it ran.
fn cause_of(first: &Side, second: Side, key: &PlanKey, ran: Option<(i64, i64)>) -> Why {
    let mut second = second;
    let difference = difference(first, &second);
    // It may have lasted for weeks.
    let ran = ran.map(|(from, to)| (from.max(to.saturating_sub(BLOCKERS_US)), to));
    explain(&mut second, &difference, key, ran);
    let comparison = Comparison {
        first,
        second: &second,
        difference: &difference,
    };
    match difference.verdict {
        Verdict::Mixed => Why::Mixed,
        _ => Why::Known(comparison.cause().unwrap_or_else(|| NOT_KNOWN.to_owned())),
    }
}

/// Notes on the second side what is known of its cause beyond the figures: who held the locks for which its
/// plan waited, and whether the table was analysed whose estimate is wrong. `ran` says when the plan ran.
fn explain(second: &mut Side, difference: &Difference, key: &PlanKey, ran: Option<(i64, i64)>) {
    match (difference.cause(), ran) {
        (Some((Cause::Locks, _)), Some(interval)) => second.blocker = blockers::longest(key, interval),
        (Some((Cause::WrongEstimate, _)), _) => {
            let node = difference.misestimated_node.map(|i| &second.nodes[i]);
            second.statistics = node.and_then(|node| statistics(node, key.datid));
        }
        _ => {}
    }
}

/// Returns what is known of the statistics of a node's table, in the database of its plan. `None` if it has
/// none, or if nothing has changed since it was analysed.
fn statistics(node: &Node, datid: u32) -> Option<TableStatistics> {
    let (schema, table) = node
        .schema
        .as_ref()
        .zip(node.table.as_ref().or(node.object.as_ref()))?;
    if datid != server::database_id() {
        return Some(TableStatistics::InDatabase(server::database_name(datid)?));
    }
    let sql = ANALYSED
        .replace("[schema]", &query::hex(schema))
        .replace("[table]", &query::hex(table));
    let mut found = None;
    query::each(&sql, (0, 0), |row| {
        found = match (row[0].as_bool(), row[1].as_u64()) {
            (Some(true), _) => Some(TableStatistics::NeverAnalysed),
            (_, Some(changed)) if changed > 0 => Some(TableStatistics::Changed(changed)),
            _ => None,
        };
    });
    found
}

/// Returns executions as a side.
fn side(exported: Exported) -> Found {
    let waits = exported.waits();
    let Exported {
        mut plan,
        stats,
        which,
        kept,
        ..
    } = exported;
    memory::ensure_headroom(plan.description.nodes.len());
    let (key, last_at) = (plan.key, plan.statistics.last_seen_at);
    let first_seen_at = plan.statistics.first_seen_at;
    let mut since = first_seen_at.max(last_at.saturating_sub(BLOCKERS_US));
    if !matches!(which, Which::Mean | Which::Total) {
        let is_generic = match kept {
            Some(kept) => kept.run.origin == PlanOrigin::Generic,
            None => plan.statistics.generic_plan_calls == plan.statistics.times.calls,
        };
        plan.become_one(&stats, is_generic);
        since = last_at.saturating_sub((plan.statistics.last_ms * 1e3) as i64);
    }
    let mut side = Side::of(&plan, &waits);
    let (executions, seen) = match which {
        Which::Mean | Which::Total => (format!("mean of {}", side.count()), "the last one"),
        Which::Last => ("last execution".to_owned(), "it"),
        Which::Kept(which) => (format!("{} execution", which.name()), "it"),
    };
    side.name = format!(
        "planid {}, {executions}, {seen} ended at {}",
        key.planid,
        server::shown_time(last_at)
    );
    let ran = Some(Ran {
        key,
        interval: (since, last_at),
        first_seen_at,
        snapshots: None,
    });
    Found { side, ran }
}
