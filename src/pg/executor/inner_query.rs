//! Tells the query of a utility statement from the statements that run beside it.
//!
//! The query of a CREATE TABLE AS, a REFRESH MATERIALIZED VIEW or an EXECUTE is what the client sent. It has
//! the nesting level of its statement. All else that starts meanwhile is nested in the statement: event
//! triggers, what a REFRESH CONCURRENTLY compares the new rows with, the functions of an index that is built,
//! and those in the arguments of an EXECUTE.

use super::listener::{Call, Listen, Utility};
use super::{nesting, statement, unnamed};
use crate::pg::border::{backend_local::BackendLocal, unguarded};
use crate::pg::compat;
use crate::pg::handles::{Handle, NewPlan, QueryRef, ToPlan};
use crate::pg::plan::tree::list;
use crate::pg::server::SourceText;
use crate::pg::server::pg_try::pg_try;
use pgrx::pg_sys::{self, ExecuteStmt, Node, NodeTag, Query, QueryDesc};
use std::cell::Cell;
use std::ffi::{CStr, c_char};

pub struct Listener;

impl Listen for Listener {
    #[inline(always)]
    fn before_start(call: &Call) {
        starts(call.query());
    }

    #[inline(always)]
    fn end(query: *const QueryDesc) {
        ends(query);
    }

    #[inline(always)]
    fn utility(utility: &Utility, body: impl FnOnce(&Utility)) {
        let execute = execute_in(utility.node());
        let runs_others = match utility.tag {
            NodeTag::T_CreateTableAsStmt | NodeTag::T_RefreshMatViewStmt => true,
            _ => execute.is_some_and(evaluates),
        };
        if runs_others {
            nest(utility, execute, body);
        } else {
            body(utility);
        }
    }

    #[inline(always)]
    fn execute(utility: &Utility, body: impl FnOnce(&Utility)) {
        Self::utility(utility, body);
    }
}

/// A running utility statement that has a query.
#[derive(Clone, Copy)]
struct Outer {
    /// The text of the query, if it is a part of the statement.
    source: *const c_char,
    /// The EXECUTE that names the query; null if there is none.
    execute: *const ExecuteStmt,
    /// The nesting level of the statement and of its query.
    depth: u32,
    /// The query, from ExecutorStart to ExecutorEnd; null before and after.
    query: *const QueryDesc,
}

const NONE: Outer = Outer {
    source: std::ptr::null(),
    execute: std::ptr::null(),
    depth: u32::MAX - 1,
    query: std::ptr::null(),
};

/// The innermost one.
#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
static OUTER: BackendLocal<Cell<Outer>> = BackendLocal::new(Cell::new(NONE));

/// Runs a utility statement that has a query, so that all but its query is nested in it.
/// `execute` is the EXECUTE in the statement.
#[cold]
#[inline(never)]
fn nest(utility: &Utility, execute: Option<Handle<ExecuteStmt>>, body: impl FnOnce(&Utility)) {
    let outer = OUTER.get();
    let depth = nesting::depth();
    let queryid = match queryid(utility.node(), execute) {
        0 => unnamed::utility_queryid(utility),
        queryid => queryid,
    };
    OUTER.set(Outer {
        source: utility.source,
        execute: execute.map_or(std::ptr::null(), |execute| execute.as_ptr().cast_const()),
        depth,
        query: std::ptr::null(),
    });
    nesting::enter();
    let caller = statement::enter_utility(queryid);
    let leave = || {
        statement::leave_utility(caller);
        OUTER.set(outer);
        nesting::set(depth + 1);
        nesting::leave();
    };
    pg_try(utility.frames, || body(utility), leave, |_| ());
    leave();
}

/// Returns the EXECUTE that a utility statement is, or whose query it runs.
fn execute_in(mut utility: Handle<'_, Node>) -> Option<Handle<'_, ExecuteStmt>> {
    loop {
        // What an EXPLAIN and a CREATE TABLE AS run has been analysed.
        let query = match utility.tag() {
            NodeTag::T_ExecuteStmt => return Some(utility.cast()),
            NodeTag::T_ExplainStmt => utility
                .cast::<pg_sys::ExplainStmt>()
                .follow(|explain| &explain.query),
            NodeTag::T_CreateTableAsStmt => created_by(utility.cast()),
            _ => None,
        };
        utility = query?.downcast::<Query>()?.follow(|query| &query.utilityStmt)?;
    }
}

/// Returns the query of a CREATE TABLE AS.
fn created_by(create: Handle<'_, pg_sys::CreateTableAsStmt>) -> Option<Handle<'_, Node>> {
    create.follow(|create| &create.query)
}

/// Returns whether an EXECUTE has arguments that may call functions: all but constants.
#[inline(always)]
fn evaluates(execute: Handle<ExecuteStmt>) -> bool {
    let mut arguments = execute.list::<Node>(|execute| &execute.params).iter();
    arguments.any(|argument| argument.tag() != NodeTag::T_A_Const)
}

/// Returns the queryid of the query that a utility statement runs; 0 if it is not known yet, or has none.
/// `execute` is the EXECUTE in it.
#[allow(ffi_unwind_calls, reason = "it raises nothing as it is called here")]
fn queryid(utility: Handle<Node>, execute: Option<Handle<ExecuteStmt>>) -> i64 {
    let query = match (execute, utility.downcast()) {
        // SAFETY: the function accepts each name. A prepared statement has its queries.
        (Some(execute), _) => unsafe {
            let prepared = unguarded::FetchPreparedStatement(execute.name, false).as_ref();
            let queries = prepared.map(|prepared| list::<Query>((*prepared.plansource).query_list));
            queries
                .and_then(|mut queries| queries.next())
                .map(|query| Handle::new(query))
        },
        (None, Some(create)) => created_by(create).and_then(Handle::downcast),
        (None, None) => None,
    };
    query.map_or(0, |query: Handle<Query>| compat::parsed_query_id(&query))
}

/// Returns whether a text is that of the query which the innermost utility statement is about to plan or to
/// start.
#[allow(ffi_unwind_calls, reason = "it raises nothing as it is called here")]
fn is_awaited(text: SourceText) -> bool {
    let outer = OUTER.get();
    if nesting::depth() != outer.depth + 1 || !outer.query.is_null() {
        return false;
    }
    if outer.execute.is_null() {
        return std::ptr::eq(text.source(), outer.source);
    }
    // PostgreSQL copies the text of a prepared statement. A trigger may have dropped it.
    // SAFETY: the EXECUTE lives as long as its statement runs. A prepared statement has its text.
    unsafe {
        let prepared = unguarded::FetchPreparedStatement((*outer.execute).name, false).as_ref();
        let of_prepared = prepared.map(|prepared| CStr::from_ptr((*prepared.plansource).query_string));
        of_prepared.is_some_and(|of_prepared| text.string() == Some(of_prepared))
    }
}

/// Plans a query with `planner`: that of the innermost utility statement at the level of the statement. If it
/// has a queryid, that is the caller of what the statement starts from then on.
#[inline(always)]
pub fn plan<'t>(query: ToPlan<'t>, planner: impl FnOnce(ToPlan<'t>) -> NewPlan) -> NewPlan {
    if nesting::depth() == 0 || !is_awaited(SourceText::of_parsed(&query)) {
        return planner(query);
    }
    let queryid = compat::parsed_query_id(&query.query());
    let depth = nesting::depth();
    nesting::set(depth - 1);
    // After an error, `nest` sets the level of its statement.
    let planned = planner(query);
    nesting::set(depth);
    if queryid != 0 {
        statement::enter_utility(queryid);
    }
    planned
}

/// Notes that a query starts. Until it ends, the query of a utility statement has the level of its statement.
#[inline(always)]
fn starts(query: QueryRef) {
    if nesting::depth() != 0 && is_awaited(SourceText::of(query)) {
        let outer = OUTER.get();
        let query = query.as_ptr();
        OUTER.set(Outer { query, ..outer });
        nesting::set(outer.depth);
    }
}

/// Notes that a query has ended.
#[inline(always)]
fn ends(query: *const QueryDesc) {
    let outer = OUTER.get();
    if std::ptr::eq(outer.query, query) {
        OUTER.set(Outer {
            query: std::ptr::null(),
            ..outer
        });
        nesting::set(outer.depth + 1);
    }
}
