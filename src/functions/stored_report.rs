//! `rowsource_tkprof_store()`: the report of the SQL trace, from the plans of the store.
//!
//! The plans are read twice, one at a time: first to add them up and to order the statements, then to print
//! those that are wanted. So the texts of all plans are never in memory together.

use super::sql_trace::sort_keys;
use super::wait_names;
use super::words::MASKED;
use crate::pg::server::srf::Rows;
use crate::pg::server::{self, fail, memory};
use crate::pg::{store, waits};
use crate::session;
use pgrx::PgSqlErrorCode;
use rowsource_core::model::{Plan, PlanKey};
use rowsource_core::sql_trace::report::{
    Statement, StoredTotals, calls_of_others, never_stored, sort_value, sort_value_of_user, stored_calls,
    stored_head,
};
use rowsource_core::waits::Event;
use std::cmp::Reverse;
use std::collections::HashMap;

/// Identifies a statement: its user, database and queryid, and whether clients sent it.
type Key = (u32, u32, i64, bool);

/// A statement, or the sum of those of a database whose plans are not stored.
struct Listed {
    /// What the statements are ordered by.
    value: u64,
    /// The place of the sum among those of the databases, if it is one.
    others: Option<usize>,
}

/// Returns the name of an event as trace files have it.
fn event_name(event: Event) -> String {
    match wait_names::name(event) {
        Some((of, name)) => format!("{of} {name}"),
        None => "other".to_owned(),
    }
}

/// Returns what replaces the texts of a plan, if the user may not see them.
fn mask(plan: &Plan) -> Option<&'static str> {
    (!server::may_see(plan.key.userid)).then_some(MASKED)
}

/// Adds the lines of `rowsource_tkprof_store()`.
pub fn lines(rows: &mut Rows, sort: &str, limit: Option<i32>) {
    let keys = sort_keys(sort);
    if let Some(word) = never_stored(sort, &keys) {
        fail(
            PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
            &format!("the store does not know what \"{word}\" in sort adds up"),
            "Sort by totela, fchela, fchdsk, fchqry, fchrow, execnt or plnela, or trace the statements and call rowsource_tkprof().",
        );
    }
    let limit = limit.map(|limit| usize::try_from(limit).unwrap_or(0));
    let (plans, others) = (session::keys(), session::others());
    let mut totals = StoredTotals::default();
    let mut listed: Vec<Listed> = memory::with_room(plans.len() + others.len());
    // The plans with the places of their statements.
    let mut placed: Vec<(usize, PlanKey)> = memory::with_room(plans.len());
    let mut places: HashMap<Key, usize> = HashMap::new();
    if places.try_reserve(plans.len()).is_err() {
        memory::out_of_memory();
    }
    for key in &plans {
        let Some(plan) = read(key) else { continue };
        let calls = stored_calls(&plan);
        let is_recursive = !key.toplevel();
        totals.add(is_recursive, &calls, &plan.statistics.waits, event_name);
        let statement = (key.userid, key.datid, key.queryid, is_recursive);
        let place = *places.entry(statement).or_insert_with(|| {
            totals.statements[usize::from(is_recursive)] += 1;
            listed.push(Listed {
                value: sort_value_of_user(Some(u64::from(key.userid)), &keys),
                others: None,
            });
            listed.len() - 1
        });
        let value = &mut listed[place].value;
        *value = value.saturating_add(sort_value(&calls, &keys));
        placed.push((place, *key));
    }
    drop(places);
    for (at, sum) in others.iter().enumerate() {
        let calls = calls_of_others(sum);
        totals.add(!sum.toplevel, &calls, &sum.totals.plan.waits, event_name);
        listed.push(Listed {
            value: sort_value(&calls, &keys),
            others: Some(at),
        });
    }
    add(rows, &stored_head(title(placed.len()), &keys, limit));
    let mut order: Vec<usize> = memory::with_room(listed.len());
    order.extend(0..listed.len());
    // The sort is stable: without keys, the values are equal.
    order.sort_by_key(|place| Reverse(listed[*place].value));
    order.truncate(limit.unwrap_or(usize::MAX));
    placed.sort_by_key(|(place, _)| *place);
    for place in order {
        if let Some(at) = listed[place].others {
            add(
                rows,
                &Statement::of_others(&others[at], event_name).stored_lines(),
            );
            continue;
        }
        let first = placed.partition_point(|of| of.0 < place);
        let own = placed[first..].iter().take_while(|of| of.0 == place);
        let mut statement = None;
        for plan in own.filter_map(|(_, key)| read(key)) {
            let mask = mask(&plan);
            statement
                .get_or_insert_with(|| Statement::of_plan(&plan, mask))
                .add_plan(&plan, mask, event_name);
        }
        // The plans may have been evicted meanwhile.
        if let Some(statement) = statement {
            add(rows, &statement.stored_lines());
        }
    }
    add(rows, &totals.lines());
    if let Some(reason) = waits::refused() {
        rows.add_line(&format!("Waits are not counted: {reason}"));
    }
}

/// Returns a copy of a plan, unless it was evicted.
fn read(key: &PlanKey) -> Option<Plan> {
    server::check_for_interrupts();
    memory::ensure();
    session::plan(key)
}

/// Returns what the report is about.
fn title(plans: usize) -> String {
    match store::info() {
        Some(info) => {
            let since = server::shown_time(info.reset_at);
            format!("Statistics of all sessions: {plans} plans since {since}")
        }
        None => format!("Statistics of this session: {plans} plans"),
    }
}

fn add(rows: &mut Rows, lines: &[String]) {
    lines.iter().for_each(|line| rows.add_line(line));
}
