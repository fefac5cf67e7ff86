//! Has EXPLAIN print a plan, and reads what it printed.

use super::constants::Changed;
use super::foreign::{self, Muted};
use super::only_first::OnlyFirst;
use super::printing;
use super::symbols::Symbols;
use crate::pg::handles::StartedQuery;
use crate::pg::plan::fold::Shown;
use crate::pg::plan::tree::Found;
use crate::pg::server;
use crate::pg::server::contained::{Unlocked, contained_with_others};
use pgrx::pg_sys;
use rowsource_core::plan::{ExplainedPlan, parse_explain_json};

/// Returns the plan as EXPLAIN shows it. Returns `None` if it would be too long, if EXPLAIN fails, or if the
/// number of nodes differs from `shown`.
///
/// # Safety
/// The caller must allow errors: those that must reach the user are raised again. No reference to any part of
/// the query is in use.
pub unsafe fn explained<'q>(
    query: StartedQuery<'q>,
    shown: &Shown<'_, 'q>,
    symbols: Option<Symbols>,
) -> Option<ExplainedPlan> {
    let found = shown.found();
    // SAFETY: a statement is set up, so the session holds no lock.
    let unlocked = &mut unsafe { Unlocked::promised() };
    let runs_others = foreign::may_run(found);
    let print = || {
        // SAFETY: the constants and the nodes are restored below, before the memory context is deleted.
        // Meanwhile only EXPLAIN reads the plan, by the caller's promise.
        unsafe {
            let only_first = OnlyFirst::set(query, shown);
            let mut constants = Changed::nothing();
            printing::bound(query, found, symbols, &mut constants)?;
            let muted = Muted::new(found)?;
            let json = explain_json(query, &mut constants);
            drop(only_first);
            drop(muted);
            let parsed = parse_explain_json(server::as_utf8(json));
            let (cut, next) = (constants.cut(), constants.next_symbol());
            let lists = constants.take_lists();
            drop(constants);
            Some(parsed.map(|mut plan| {
                plan.cut += cut;
                plan.lists = lists;
                if let Some(next) = next {
                    plan.hide_strings(next);
                }
                plan
            }))
        }
    };
    let parsed = in_scratch(|| contained_with_others(unlocked, runs_others, print))?;
    let hidden = usize::from(found[0].hidden);
    match parsed {
        Ok(plan) if is_of(&plan, &found[hidden..]) => Some(plan),
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

/// Returns whether a plan has these nodes. A subplan that several nodes share may be shown below another one
/// if only some of them are.
fn is_of(plan: &ExplainedPlan, found: &[Found]) -> bool {
    let first = found.first().map_or(0, |root| root.depth);
    let depths = found.iter().map(|place| usize::from(place.depth - first));
    plan.nodes.iter().map(|node| node.depth).eq(depths)
}

/// Runs a body in a memory context of its own, which is deleted at the end.
pub(super) fn in_scratch<T>(body: impl FnOnce() -> T) -> T {
    // SAFETY: the new context is a child of the current one, which is there until the body has ended.
    let _scratch = unsafe {
        let context = pg_sys::AllocSetContextCreateInternal(
            pg_sys::CurrentMemoryContext,
            c"pg_rowsource description".as_ptr(),
            pg_sys::ALLOCSET_DEFAULT_MINSIZE as usize,
            pg_sys::ALLOCSET_DEFAULT_INITSIZE as usize,
            pg_sys::ALLOCSET_DEFAULT_MAXSIZE as usize,
        );
        let before = pg_sys::MemoryContextSwitchTo(context);
        Scratch { context, before }
    };
    body()
}

/// A memory context for one description. Dropping this deletes it.
struct Scratch {
    context: pg_sys::MemoryContext,
    before: pg_sys::MemoryContext,
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // SAFETY: nothing in the context is used any more. The previous context is still there.
        unsafe {
            pg_sys::MemoryContextSwitchTo(self.before);
            pg_sys::MemoryContextDelete(self.context);
        }
    }
}

/// Returns what EXPLAIN (FORMAT JSON) prints, in the memory context that the caller has entered.
fn explain_json<'a>(query: StartedQuery, _changed: &'a mut Changed) -> &'a mut [u8] {
    // SAFETY: a StringInfo has `len` bytes at `data`. They live as long as the context, which the changed
    // constants need too.
    unsafe {
        let es = pg_sys::NewExplainState();
        (*es).format = pg_sys::ExplainFormat::EXPLAIN_FORMAT_JSON;
        (*es).costs = true;
        pg_sys::ExplainBeginOutput(es);
        pg_sys::ExplainOpenGroup(c"Query".as_ptr(), std::ptr::null(), true, es);
        pg_sys::ExplainPrintPlan(es, query.as_ptr());
        pg_sys::ExplainCloseGroup(c"Query".as_ptr(), std::ptr::null(), true, es);
        pg_sys::ExplainEndOutput(es);
        let text = &*(*es).str_;
        std::slice::from_raw_parts_mut(text.data.cast(), text.len as usize)
    }
}
