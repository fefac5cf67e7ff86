//! Describes a plan through PostgreSQL's own EXPLAIN (FORMAT JSON), once, not at each execution.
//!
//! A plan that the session knows is described anew only when its statement's text changed (then its literals may
//! have) and the session's budget allows: describing may cost 0.2 % of a session's time, saved up to a few hundred
//! descriptions. So an interactive user and a script see the literals of the last execution, and a connection that
//! sends thousands of statements a second pays next to nothing; its display says that its literals are older.

use super::one_thread::OneThread;
use super::tree::{self, tag};
use super::{raw, server};
use crate::session::{KnownPlan, PlanDescription};
use pgrx::pg_sys::{self, QueryDesc};
use pgrx::{PgSqlErrorCode, PgTryBuilder};
use rowsource_core::clock::system;
use rowsource_core::plan::{PlanNode, parse_explain_json};
use std::cell::Cell;
use std::ffi::CStr;
use std::rc::Rc;

/// Nanoseconds of describing that a session may save up; also what it begins with.
const MOST_SAVED: i64 = 10_000_000;
/// One nanosecond may be spent on describing in this many.
const SHARE: u64 = 500;

/// What a session may still spend on describing known plans anew.
#[derive(Clone, Copy)]
struct Budget {
    /// Below zero after a description that cost more than was saved.
    left: i64,
    /// When it was last topped up, in nanoseconds.
    at: u64,
}

impl Budget {
    /// Whether there is something left now.
    fn allows(now: u64) -> bool {
        let Budget { left, at } = BUDGET.get();
        let earned = i64::try_from(now.saturating_sub(at) / SHARE).unwrap_or(MOST_SAVED);
        let left = left.saturating_add(earned).min(MOST_SAVED);
        BUDGET.set(Budget { left, at: now });
        left > 0
    }

    fn pay(spent: u64) {
        let spent = i64::try_from(spent).unwrap_or(i64::MAX);
        let Budget { left, at } = BUDGET.get();
        BUDGET.set(Budget {
            left: left.saturating_sub(spent),
            at,
        });
    }
}

static BUDGET: OneThread<Cell<Budget>> = OneThread::new(Cell::new(Budget {
    left: MOST_SAVED,
    at: 0,
}));

/// The description of a started statement's plan of `count` nodes, and whether its literals are those of an earlier
/// execution; made now unless a good one is known.
///
/// # Safety
/// `query` must be started.
#[inline(never)]
pub unsafe fn description(
    query: *mut QueryDesc,
    known: Option<&KnownPlan>,
    count: usize,
) -> (Rc<PlanDescription>, bool) {
    // SAFETY: the caller's promise.
    unsafe {
        if let Some(known) = known {
            let known = known.description.borrow();
            if is_of(&known, query) {
                return (known.clone(), false);
            }
            if !Budget::allows(system::monotonic()) {
                return (known.clone(), true);
            }
        }
        (Rc::new(made(query, count)), false)
    }
}

/// Whether a description of a plan is good for an execution of it, to the literals.
///
/// # Safety
/// `query` must be valid.
#[inline(always)]
pub unsafe fn is_of(description: &PlanDescription, query: *mut QueryDesc) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        ((*query).params.is_null() || description.generic)
            && description.is_of(server::statement_text((*query).sourceText, (*query).plannedstmt))
    }
}

/// Describes the plan, and has the budget pay for it.
#[inline(never)]
unsafe fn made(query: *mut QueryDesc, count: usize) -> PlanDescription {
    let start = system::monotonic();
    // SAFETY: `query` is started.
    unsafe {
        let nodes = explained(query, count).unwrap_or_else(|| named(query));
        Budget::pay(system::monotonic().saturating_sub(start));
        let text = server::statement_text((*query).sourceText, (*query).plannedstmt);
        PlanDescription::new(text, nodes)
    }
}

/// EXPLAIN's view of the plan; `None` if it failed or has another number of nodes than we have.
unsafe fn explained(query: *mut QueryDesc, count: usize) -> Option<Vec<PlanNode>> {
    // SAFETY: `query` is started.
    let json = unsafe { explain_json(query) }?;
    // SAFETY: as above.
    let hidden = usize::from(unsafe { hidden_root(query) });
    match parse_explain_json(&json) {
        Ok(nodes) if nodes.len() + hidden == count => Some(nodes),
        Ok(nodes) => {
            pgrx::debug1!(
                "pg_rowsource: EXPLAIN shows {} nodes, the plan has {count}",
                nodes.len() + hidden
            );
            None
        }
        Err(error) => {
            pgrx::debug1!("pg_rowsource: EXPLAIN's output was not understood: {error}");
            None
        }
    }
}

unsafe fn hidden_root(query: *mut QueryDesc) -> bool {
    // SAFETY: a started query has a plan state.
    unsafe {
        let root = (*query).planstate;
        tag(root) == pg_sys::NodeTag::T_GatherState && (*(*root).plan.cast::<pg_sys::Gather>()).invisible
    }
}

/// Errors of EXPLAIN (a foreign data wrapper's, say) are swallowed: the statement itself must not fail for its
/// description. Cancel and shutdown are passed on.
unsafe fn explain_json(query: *mut QueryDesc) -> Option<String> {
    PgTryBuilder::new(move || {
        // SAFETY: all memory is taken from a context of its own, which goes with the output copied.
        unsafe {
            let context = pg_sys::AllocSetContextCreateInternal(
                pg_sys::CurrentMemoryContext,
                c"pg_rowsource description".as_ptr(),
                pg_sys::ALLOCSET_DEFAULT_MINSIZE as usize,
                pg_sys::ALLOCSET_DEFAULT_INITSIZE as usize,
                pg_sys::ALLOCSET_DEFAULT_MAXSIZE as usize,
            );
            let before = pg_sys::MemoryContextSwitchTo(context);
            let es = pg_sys::NewExplainState();
            (*es).format = pg_sys::ExplainFormat::EXPLAIN_FORMAT_JSON;
            (*es).costs = true;
            pg_sys::ExplainBeginOutput(es);
            pg_sys::ExplainPrintPlan(es, query);
            pg_sys::ExplainEndOutput(es);
            let json = server::from_database(CStr::from_ptr((*(*es).str_).data).to_bytes());
            pg_sys::MemoryContextSwitchTo(before);
            pg_sys::MemoryContextDelete(context);
            Some(json)
        }
    })
    .catch_others(|error| {
        if let pg_sys::panic::CaughtError::PostgresError(report) = &error
            && matches!(
                report.sql_error_code(),
                PgSqlErrorCode::ERRCODE_QUERY_CANCELED
                    | PgSqlErrorCode::ERRCODE_ADMIN_SHUTDOWN
                    | PgSqlErrorCode::ERRCODE_CRASH_SHUTDOWN
            )
        {
            error.rethrow();
        }
        None
    })
    .execute()
}

/// The plan by its node kinds alone, where EXPLAIN could not be had.
unsafe fn named(query: *mut QueryDesc) -> Vec<PlanNode> {
    // SAFETY: `query` is started.
    unsafe {
        raw::check_stack_depth();
        let hidden = i32::from(hidden_root(query));
        tree::walk((*query).planstate)
            .iter()
            .filter(|place| !place.hidden)
            .enumerate()
            .map(|(id, place)| {
                let plan = (*place.plan_state).plan;
                PlanNode {
                    id,
                    parent: usize::try_from(place.parent - hidden).ok(),
                    depth: usize::from(place.depth) - hidden as usize,
                    operation: format!("{:?}", tag(plan)).trim_start_matches("T_").to_owned(),
                    plan_rows: (*plan).plan_rows,
                    plan_width: f64::from((*plan).plan_width),
                    total_cost: (*plan).total_cost,
                    ..PlanNode::default()
                }
            })
            .collect()
    }
}
