//! EXPLAIN (ANALYZE) with `pg_rowsource.explain` while `pg_rowsource.sampfreq` times nothing.
//!
//! EXPLAIN asks core for times unless it has the option TIMING. Core would then time every call, which costs
//! more than any sampling. So the statement runs as if it had TIMING OFF. Two other options say what to show,
//! and have priority: TIMING itself, and SAMPFREQ from PostgreSQL 18 on.

use super::listener::{Listen, Utility};
use super::utility::setting;
use crate::guc;
use crate::instrumentation::InstrumentationLevel;
use crate::pg::plan::tree::list;
use crate::pg::server;
use pgrx::pg_sys::{self, DefElem, ExplainStmt, NodeTag, PlannedStmt};
use std::ffi::{CStr, c_char};

pub struct Listener;

impl Listen for Listener {
    #[inline(always)]
    fn utility(utility: &Utility, body: impl FnOnce(&Utility)) {
        if utility.tag == NodeTag::T_ExplainStmt {
            // SAFETY: the statement is an EXPLAIN. It and its text are live, as `Utility` promises.
            let replaced = unsafe { utility.replaced(statement(utility.statement, utility.source)) };
            body(&replaced);
        } else {
            body(utility);
        }
    }
}

/// Returns the statement, or a copy that has the option TIMING OFF if the sampler measures it without times.
///
/// # Safety
/// `statement` must be the live EXPLAIN that is about to run, and `source` its text or null.
#[inline(never)]
unsafe fn statement(statement: *mut PlannedStmt, source: *const c_char) -> *mut PlannedStmt {
    if !guc::explain() {
        return statement;
    }
    // SAFETY: the caller promises what the functions require.
    let made = server::attempt("let EXPLAIN run without times", || unsafe {
        (is_measured_without_times(statement, source) && !says_what_to_time(statement))
            .then(|| with_timing_off(statement))
    });
    // Without memory for the copy, core measures the times.
    made.flatten().unwrap_or(statement)
}

/// Returns whether the query inside will be measured, but not timed.
///
/// # Safety
/// `statement` must be the live EXPLAIN that is about to run, and `source` its text or null.
unsafe fn is_measured_without_times(statement: *const PlannedStmt, source: *const c_char) -> bool {
    // SAFETY: the caller promises what the function requires.
    let plan = unsafe { setting(statement, source) };
    plan.is_some_and(|plan| plan.level != InstrumentationLevel::Timed)
}

/// Returns whether the options of an EXPLAIN say what to time.
///
/// # Safety
/// `statement` must be a live EXPLAIN.
unsafe fn says_what_to_time(statement: *const PlannedStmt) -> bool {
    // SAFETY: the statement is live by the caller's promise. Its options are a list of these items, each with
    // a name.
    unsafe {
        let explain = (*statement).utilityStmt.cast::<ExplainStmt>();
        list::<DefElem>((*explain).options).any(|option| {
            let name = CStr::from_ptr((*option).defname);
            name == c"timing" || name == c"sampfreq"
        })
    }
}

/// Copies an EXPLAIN, and adds TIMING OFF to its options. It has no effect without ANALYZE.
///
/// # Safety
/// `statement` must be a live EXPLAIN. May raise.
unsafe fn with_timing_off(statement: *const PlannedStmt) -> *mut PlannedStmt {
    // SAFETY: the statement is live by the caller's promise. The copies of the nodes share all that is not
    // changed, and live as long as the current context, in which PostgreSQL runs the statement.
    unsafe {
        let copy = pg_sys::palloc(size_of::<PlannedStmt>()).cast::<PlannedStmt>();
        *copy = *statement;
        let explain = pg_sys::palloc(size_of::<ExplainStmt>()).cast::<ExplainStmt>();
        *explain = *(*statement).utilityStmt.cast::<ExplainStmt>();
        let name = pg_sys::pstrdup(c"timing".as_ptr());
        let off = pg_sys::makeString(pg_sys::pstrdup(c"off".as_ptr()));
        let option = pg_sys::makeDefElem(name, off.cast(), -1);
        (*explain).options = pg_sys::lappend(pg_sys::list_copy((*explain).options), option.cast());
        (*copy).utilityStmt = explain.cast();
        copy
    }
}
