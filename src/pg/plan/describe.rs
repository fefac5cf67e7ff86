//! Describes a plan with PostgreSQL's EXPLAIN (FORMAT JSON), once, not at each execution.
//!
//! A plan that the session knows is described again only if its statement's text has changed, because then its literals may
//! have changed too, and only if the session's budget allows it. Describing may take 0.2 % of a session's time. A session
//! can save time for a few hundred descriptions. So an interactive user or a script sees the literals of the last
//! execution. For a connection that sends thousands of statements a second, the cost is negligible, and the display says
//! that the literals are older.
//!
//! The cost and the size of a description are bounded for any statement. `printing` makes EXPLAIN shorten long constants.
//! If the conditions are still too long, the plan is described without them (`named`).

mod constants;
mod named;
mod printing;

use super::tree::Found;
use crate::pg::server::backend_local::BackendLocal;
use crate::pg::server::contained::contained_or_cancelled;
use crate::pg::server::{self, memory};
use pgrx::pg_sys::{self, QueryDesc};
use rowsource_core::clock::system;
use rowsource_core::model::PlanDescription;
use rowsource_core::plan::{ExplainedPlan, parse_explain_json};
use std::cell::Cell;
use std::rc::Rc;

/// The maximal budget of a session in nanoseconds, which is also the initial one.
const MAX_BUDGET: i64 = 10_000_000;
/// A session may spend one of this many nanoseconds on describing.
const SHARE: u64 = 500;

/// The time that a session may still spend on describing known plans again.
#[derive(Clone, Copy)]
struct Budget {
    /// Nanoseconds. Negative after a description that took longer than the budget allowed.
    left: i64,
    /// When it was last increased, in nanoseconds.
    at: u64,
}

impl Budget {
    /// Increases the budget by the time since the last call. Returns whether any budget is left.
    fn allows(now: u64) -> bool {
        let Budget { left, at } = BUDGET.get();
        let earned = i64::try_from(now.saturating_sub(at) / SHARE).unwrap_or(MAX_BUDGET);
        let left = left.saturating_add(earned).min(MAX_BUDGET);
        BUDGET.set(Budget { left, at: now });
        left > 0
    }

    /// Subtracts the nanoseconds that a description took.
    fn pay(spent: u64) {
        let spent = i64::try_from(spent).unwrap_or(i64::MAX);
        let Budget { left, at } = BUDGET.get();
        BUDGET.set(Budget {
            left: left.saturating_sub(spent),
            at,
        });
    }
}

static BUDGET: BackendLocal<Cell<Budget>> = BackendLocal::new(Cell::new(Budget {
    left: MAX_BUDGET,
    at: 0,
}));

/// Returns the description of a started statement's plan, and whether its literals are those of an earlier execution.
/// Creates the description unless a usable one is known. Returns `None` if there is no memory for it.
///
/// # Safety
/// `query` must be started, and `found` must be the nodes of its plan.
#[inline(never)]
pub unsafe fn description(
    query: *mut QueryDesc,
    known: Option<&Rc<PlanDescription>>,
    found: &[Found],
) -> Option<(Rc<PlanDescription>, bool)> {
    // SAFETY: `query` is started and `found` are its nodes, by the caller's promise.
    unsafe {
        let has_memory = || memory::has_headroom(found.len());
        if let Some(known) = known {
            if is_of(known, query) {
                return Some((known.clone(), false));
            }
            if !Budget::allows(system::monotonic()) || !has_memory() {
                return Some((known.clone(), true));
            }
        } else if !has_memory() {
            return None;
        }
        Some((Rc::new(describe(query, found)), false))
    }
}

/// Returns whether a plan's description is right for an execution, including the literals.
///
/// # Safety
/// `query` must be valid.
#[inline(always)]
pub unsafe fn is_of(description: &PlanDescription, query: *mut QueryDesc) -> bool {
    // SAFETY: `query` is valid by the caller's promise, and so are its text and its planned statement.
    unsafe {
        ((*query).params.is_null() || description.generic)
            && description.is_of(server::statement_text((*query).sourceText, (*query).plannedstmt))
    }
}

/// Longer statement texts are cut, because a plan's statistics must not hold megabytes.
const MAX_TEXT: usize = 16 * 1024;

/// Describes the plan, and subtracts the time from the budget.
///
/// # Safety
/// * `query` must be started, and `found` must be the nodes of its plan.
/// * The caller must allow errors: a cancel request is raised again.
#[inline(never)]
unsafe fn describe(query: *mut QueryDesc, found: &[Found]) -> PlanDescription {
    let start = system::monotonic();
    // SAFETY: `query` is started, and `found` are its nodes, by the caller's promise.
    unsafe {
        let plan = explained(query, found).unwrap_or_else(|| named::plan(query, found));
        Budget::pay(system::monotonic().saturating_sub(start));
        let text = server::statement_text((*query).sourceText, (*query).plannedstmt);
        let kept = server::first_bytes(text, MAX_TEXT);
        let is_cut = kept.len() < text.len();
        let mark = if is_cut { "..." } else { "" };
        // It is allocated in one piece, because a text that grows leaves holes in the heap.
        let shown = [&server::from_database(kept), mark].concat();
        PlanDescription::new(text, shown, is_cut, plan)
    }
}

/// Returns the plan as EXPLAIN shows it. Returns `None` if it would be too long, if EXPLAIN fails, or if the number of
/// nodes differs from `found`.
///
/// # Safety
/// * `query` must be started, and `found` must be the nodes of its plan.
/// * The caller must allow errors: a cancel request is raised again.
unsafe fn explained(query: *mut QueryDesc, found: &[Found]) -> Option<ExplainedPlan> {
    // SAFETY: `query` is started, and `found` are its nodes, by the caller's promise. Everything is allocated in a separate
    // context, which is deleted at the end. The constants are restored before that.
    unsafe {
        let _memory = Scratch::enter();
        let parsed = contained_or_cancelled(|| {
            let constants = printing::bounded(query, found)?;
            let parsed = parse_explain_json(server::as_utf8(explain_json(query)));
            let cut = constants.cut();
            drop(constants);
            Some(parsed.map(|plan| ExplainedPlan {
                cut: plan.cut + cut,
                ..plan
            }))
        })?;
        let hidden = usize::from(found[0].hidden);
        match parsed {
            Ok(plan) if plan.nodes.len() + hidden == found.len() => Some(plan),
            Ok(plan) => {
                pgrx::debug1!(
                    "pg_rowsource: EXPLAIN shows {} nodes, the plan has {}",
                    plan.nodes.len() + hidden,
                    found.len()
                );
                None
            }
            Err(error) => {
                pgrx::debug1!("pg_rowsource: EXPLAIN's output was not understood: {error}");
                None
            }
        }
    }
}

/// A memory context for one description. Dropping this deletes it.
struct Scratch {
    context: pg_sys::MemoryContext,
    before: pg_sys::MemoryContext,
}

impl Scratch {
    /// Creates a memory context, and makes it the current one.
    ///
    /// # Safety
    /// The current memory context must stay current and live until the result is dropped.
    unsafe fn enter() -> Scratch {
        // SAFETY: the new context is a child of the current one, which outlives it by the caller's promise.
        unsafe {
            let context = pg_sys::AllocSetContextCreateInternal(
                pg_sys::CurrentMemoryContext,
                c"pg_rowsource description".as_ptr(),
                pg_sys::ALLOCSET_DEFAULT_MINSIZE as usize,
                pg_sys::ALLOCSET_DEFAULT_INITSIZE as usize,
                pg_sys::ALLOCSET_DEFAULT_MAXSIZE as usize,
            );
            let before = pg_sys::MemoryContextSwitchTo(context);
            Scratch { context, before }
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // SAFETY: `enter` created the context, and nothing in it is used any more. The previous context is live by the
        // promise of `enter`'s caller.
        unsafe {
            pg_sys::MemoryContextSwitchTo(self.before);
            pg_sys::MemoryContextDelete(self.context);
        }
    }
}

/// Returns what EXPLAIN (FORMAT JSON) prints, in the current memory context.
///
/// # Safety
/// * `query` must be started.
/// * The current memory context must outlive the result.
unsafe fn explain_json<'a>(query: *mut QueryDesc) -> &'a mut [u8] {
    // SAFETY: `query` is started by the caller's promise. A StringInfo has `len` bytes at `data`.
    unsafe {
        let es = pg_sys::NewExplainState();
        (*es).format = pg_sys::ExplainFormat::EXPLAIN_FORMAT_JSON;
        (*es).costs = true;
        pg_sys::ExplainBeginOutput(es);
        pg_sys::ExplainOpenGroup(c"Query".as_ptr(), std::ptr::null(), true, es);
        pg_sys::ExplainPrintPlan(es, query);
        pg_sys::ExplainCloseGroup(c"Query".as_ptr(), std::ptr::null(), true, es);
        pg_sys::ExplainEndOutput(es);
        let text = &*(*es).str_;
        std::slice::from_raw_parts_mut(text.data.cast(), text.len as usize)
    }
}
