//! EXPLAIN (ANALYZE) with `pg_rowsource.explain` while `pg_rowsource.sampfreq` times nothing.
//!
//! EXPLAIN asks core for times unless it has the option TIMING. Core would then time every call, which costs
//! more than any sampling. So the statement runs as if it had TIMING OFF. Two other options say what to show,
//! and have priority: TIMING itself, and SAMPFREQ from PostgreSQL 18 on.

use super::listener::{Listen, Utility};
use super::utility::setting;
use crate::guc;
use crate::instrumentation::InstrumentationLevel;
use crate::pg::handles::{Handle, PlannedStmtRef};
use crate::pg::server;
use pgrx::pg_sys::{self, DefElem, ExplainStmt, NodeTag, PlannedStmt};

pub struct Listener;

impl Listen for Listener {
    #[inline(always)]
    fn utility(utility: &Utility, body: impl FnOnce(&Utility)) {
        if utility.tag == NodeTag::T_ExplainStmt {
            // SAFETY: what replaces it is live, and of the same type, text and place.
            let replaced = unsafe { utility.replaced(statement(utility)) };
            body(&replaced);
        } else {
            body(utility);
        }
    }
}

/// Returns the statement, or a copy that has the option TIMING OFF if the sampler measures it without times.
#[inline(never)]
fn statement(utility: &Utility) -> *mut PlannedStmt {
    if !guc::explain() {
        return utility.statement;
    }
    let explain = utility.node().cast::<ExplainStmt>();
    let made = server::attempt("let EXPLAIN run without times", || {
        (is_measured_without_times(utility) && !says_what_to_time(explain))
            .then(|| with_timing_off(utility.plan(), explain))
    });
    // Without memory for the copy, core measures the times.
    made.flatten().unwrap_or(utility.statement)
}

/// Returns whether the query inside will be measured, but not timed.
fn is_measured_without_times(utility: &Utility) -> bool {
    setting(utility).is_some_and(|plan| plan.level != InstrumentationLevel::Timed)
}

/// Returns whether the options of an EXPLAIN say what to time.
fn says_what_to_time(explain: Handle<ExplainStmt>) -> bool {
    let options = explain.list::<DefElem>(|explain| &explain.options);
    let mut names = options
        .iter()
        .filter_map(|option| option.string(|option| &option.defname));
    names.any(|name| name == c"timing" || name == c"sampfreq")
}

/// Copies an EXPLAIN, and adds TIMING OFF to its options. It has no effect without ANALYZE.
/// May raise.
fn with_timing_off(statement: PlannedStmtRef, original: Handle<ExplainStmt>) -> *mut PlannedStmt {
    // SAFETY: the copies of the nodes share all that is not changed, and live as long as the current context,
    // in which PostgreSQL runs the statement.
    unsafe {
        let copy = pg_sys::palloc(size_of::<PlannedStmt>()).cast::<PlannedStmt>();
        *copy = *statement.get();
        let explain = pg_sys::palloc(size_of::<ExplainStmt>()).cast::<ExplainStmt>();
        *explain = *original.get();
        let name = pg_sys::pstrdup(c"timing".as_ptr());
        let off = pg_sys::makeString(pg_sys::pstrdup(c"off".as_ptr()));
        let option = pg_sys::makeDefElem(name, off.cast(), -1);
        (*explain).options = pg_sys::lappend(pg_sys::list_copy((*explain).options), option.cast());
        (*copy).utilityStmt = explain.cast();
        copy
    }
}
