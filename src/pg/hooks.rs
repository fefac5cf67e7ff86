//! The executor and utility hooks: what is measured, nesting, and the ways a run can be left.
//!
//! Invariants: each hook calls the previous hook or the standard function exactly once; what a run replaced
//! (nesting, running account, clock) is put back on every way out, errors included; our own failures never
//! become the statement's. No locks are taken.
//!
//! Where something must be put back after an error, a previous hook (a bare function pointer) is called inside an FFI
//! boundary; pgrx's own bindings are boundaries already, and must not stand inside another: a panic cannot cross
//! one. The other hooks are plain frames, and only what may panic in them is guarded.

use super::statement::{self, Entered, Statement};
use super::{compat, raw, server, tick, usage};
use crate::{guc, hint};
use pgrx::pg_sys::panic::{CaughtError, pgrx_extern_c_guard};
use pgrx::pg_sys::{self, NodeTag, QueryDesc, ffi::pg_guard_ffi_boundary};
use pgrx::{PgSqlErrorCode, pg_guard};
use rowsource_core::figures::Outcome;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

static mut PREV_EXECUTOR_START: pg_sys::ExecutorStart_hook_type = None;
static mut PREV_EXECUTOR_RUN: pg_sys::ExecutorRun_hook_type = None;
static mut PREV_EXECUTOR_FINISH: pg_sys::ExecutorFinish_hook_type = None;
static mut PREV_EXECUTOR_END: pg_sys::ExecutorEnd_hook_type = None;
static mut PREV_PROCESS_UTILITY: pg_sys::ProcessUtility_hook_type = None;

/// How deep we are in runs of statements, procedures and DO blocks.
static mut NESTING: u32 = 0;

pub fn init() {
    usage::init();
    // SAFETY: _PG_init runs once, before any of these hooks can be called.
    unsafe {
        PREV_EXECUTOR_START = pg_sys::ExecutorStart_hook;
        pg_sys::ExecutorStart_hook = Some(executor_start);
        PREV_EXECUTOR_RUN = pg_sys::ExecutorRun_hook;
        pg_sys::ExecutorRun_hook = Some(compat::executor_run::hook);
        PREV_EXECUTOR_FINISH = pg_sys::ExecutorFinish_hook;
        pg_sys::ExecutorFinish_hook = Some(executor_finish);
        PREV_EXECUTOR_END = pg_sys::ExecutorEnd_hook;
        pg_sys::ExecutorEnd_hook = Some(executor_end);
        PREV_PROCESS_UTILITY = pg_sys::ProcessUtility_hook;
        pg_sys::ProcessUtility_hook = Some(process_utility);
    }
}

/// Counts a level of nesting while it lives.
struct Nested;

impl Nested {
    fn new() -> Self {
        // SAFETY: one thread.
        unsafe { NESTING += 1 };
        Nested
    }
}

impl Drop for Nested {
    fn drop(&mut self) {
        // SAFETY: one thread. The tick must not outlive the outermost level, whatever that is.
        unsafe {
            NESTING -= 1;
            if NESTING == 0 {
                tick::disarm();
            }
        }
    }
}

/// A run of a measured statement; leaves it when dropped.
struct Run {
    query: *mut QueryDesc,
    entered: Option<Entered>,
}

impl Run {
    unsafe fn enter(query: *mut QueryDesc) -> Self {
        let entered = statement::find(query).map(|statement| {
            // SAFETY: main thread; dropped on every way out.
            unsafe { statement.enter() }
        });
        Run { query, entered }
    }

    fn statement(&self) -> Option<&'static mut Statement> {
        self.entered.as_ref().and_then(|_| statement::find(self.query))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if let (Some(entered), Some(statement)) = (&self.entered, statement::find(self.query)) {
            // SAFETY: the one leave for the one enter.
            unsafe { statement.leave(entered) }
        }
    }
}

/// Books what a nested run used to the node that runs now.
struct Settle;

impl Drop for Settle {
    fn drop(&mut self) {
        // SAFETY: main thread; the running account stays as it is.
        unsafe {
            usage::switch(usage::CURRENT);
        }
    }
}

/// Runs `body` as one more level of nesting, with the statement's accounts in force. If it fails, the figures
/// reached so far are recorded before the error goes on.
unsafe fn run(query: *mut QueryDesc, body: impl FnOnce()) {
    let _nested = Nested::new();
    // SAFETY: a started query.
    let run = unsafe { Run::enter(query) };
    // A run that is not measured itself may have used what its surroundings do not look at.
    let _settle = Settle;
    let result = catch_unwind(AssertUnwindSafe(body));
    if let Err(error) = result {
        let outcome = outcome(&*error);
        let mut statement = run.statement();
        if let Some(statement) = &mut statement {
            // SAFETY: before the run is left.
            unsafe { statement.interrupt() }
        }
        drop(run);
        if let Some(statement) = statement {
            statement.record(outcome, true);
        }
        statement::close(query, false);
        resume_unwind(error);
    }
}

fn outcome(error: &(dyn Any + Send)) -> Outcome {
    let report = match error.downcast_ref::<CaughtError>() {
        Some(CaughtError::PostgresError(report) | CaughtError::ErrorReport(report)) => report,
        _ => return Outcome::Failed,
    };
    match report.sql_error_code() {
        PgSqlErrorCode::ERRCODE_QUERY_CANCELED | PgSqlErrorCode::ERRCODE_ADMIN_SHUTDOWN => Outcome::Cancelled,
        _ => Outcome::Failed,
    }
}

/// How the statement is to be measured, if at all.
unsafe fn decide(query: *mut QueryDesc, eflags: i32, toplevel: bool) -> Option<guc::Measuring> {
    // SAFETY: PostgreSQL passes a valid QueryDesc.
    unsafe {
        if eflags & pg_sys::EXEC_FLAG_EXPLAIN_ONLY as i32 != 0 {
            return None;
        }
        if server::is_parallel_worker() {
            let asked = (*query).instrument_options & statement::OURS != 0;
            return (asked && NESTING == 0).then(guc::measuring_as_leader);
        }
        if !toplevel && !guc::track_all() {
            return None;
        }
        guc::measuring(|| hint::present(server::statement_text((*query).sourceText, (*query).plannedstmt)))
    }
}

/// A plain frame: an error below may cross it, and a statement that is not measured pays for no guard.
unsafe extern "C-unwind" fn executor_start(query: *mut QueryDesc, eflags: i32) {
    // SAFETY: PostgreSQL passes a valid QueryDesc.
    unsafe {
        let toplevel = NESTING == 0 && server::portal_or_background();
        let measuring = decide(query, eflags, toplevel);
        let others = (*query).instrument_options & !statement::OURS;
        // Where others let core measure, our bits go with theirs; else core need not allocate what we have ourselves.
        let added = match measuring {
            Some(_) if others != 0 => statement::OURS | statement::ROWS,
            _ => 0,
        };
        (*query).instrument_options |= added;
        match PREV_EXECUTOR_START {
            Some(previous) => previous(query, eflags),
            None => raw::standard_ExecutorStart(query, eflags),
        }
        if let Some(measuring) = measuring {
            pgrx_extern_c_guard(|| statement::attach(query, &measuring, others, added, toplevel));
        }
    }
}

/// Called by the version's own hook in `compat`.
///
/// # Safety
/// `query` must be started.
pub unsafe fn executor_run(
    query: *mut QueryDesc,
    direction: pg_sys::ScanDirection::Type,
    count: u64,
    execute_once: bool,
) {
    // SAFETY: the caller's promise.
    unsafe {
        run(query, || {
            compat::executor_run::call(PREV_EXECUTOR_RUN, query, direction, count, execute_once)
        });
    }
}

/// A plain frame where nothing is run: see `executor_start`.
unsafe extern "C-unwind" fn executor_finish(query: *mut QueryDesc) {
    // SAFETY: PostgreSQL passes a started QueryDesc.
    unsafe {
        if runs_at_finish(query) {
            pgrx_extern_c_guard(|| {
                run(query, || match PREV_EXECUTOR_FINISH {
                    Some(previous) => pg_guard_ffi_boundary(|| previous(query)),
                    None => pg_sys::standard_ExecutorFinish(query),
                });
            });
        } else {
            match PREV_EXECUTOR_FINISH {
                Some(previous) => previous(query),
                None => raw::standard_ExecutorFinish(query),
            }
        }
        if statement::find(query).is_some() {
            pgrx_extern_c_guard(|| {
                if let Some(statement) = statement::find(query) {
                    statement.record(Outcome::Completed, true);
                }
            });
        }
    }
}

/// Whether ExecutorFinish has triggers to fire, or data-modifying CTEs to run to their end.
unsafe fn runs_at_finish(query: *mut QueryDesc) -> bool {
    // SAFETY: a started query has an executor state.
    unsafe {
        let estate = (*query).estate;
        !(*estate).es_auxmodifytables.is_null()
            || (*estate).es_top_eflags & pg_sys::EXEC_FLAG_SKIP_TRIGGERS as i32 == 0
    }
}

/// A plain frame: see `executor_start`.
unsafe extern "C-unwind" fn executor_end(query: *mut QueryDesc) {
    // SAFETY: PostgreSQL passes a started QueryDesc.
    unsafe {
        // Recorded by ExecutorFinish, unless a caller left that out.
        if statement::is_unrecorded(query) {
            pgrx_extern_c_guard(|| {
                if let Some(statement) = statement::find(query) {
                    statement.end();
                }
            });
        }
        match PREV_EXECUTOR_END {
            Some(previous) => previous(query),
            None => raw::standard_ExecutorEnd(query),
        }
    }
}

/// Whether the queries that a utility statement runs are nested in it. Not those that the client wrote into it.
unsafe fn nests(utility: *mut pg_sys::Node) -> bool {
    // SAFETY: a utility statement; the cast follows its tag.
    unsafe {
        match super::tree::tag(utility) {
            NodeTag::T_ExecuteStmt
            | NodeTag::T_PrepareStmt
            | NodeTag::T_DeallocateStmt
            | NodeTag::T_ExplainStmt
            | NodeTag::T_CreateTableAsStmt
            | NodeTag::T_RefreshMatViewStmt
            | NodeTag::T_DeclareCursorStmt
            | NodeTag::T_FetchStmt => false,
            NodeTag::T_CopyStmt => (*utility.cast::<pg_sys::CopyStmt>()).query.is_null(),
            _ => true,
        }
    }
}

/// Statements inside other utilities (CALL, DO, a COPY's triggers, an ALTER TABLE's checks) are nested, though no
/// executor run surrounds them.
#[pg_guard]
#[allow(clippy::too_many_arguments, reason = "PostgreSQL's signature")]
unsafe extern "C-unwind" fn process_utility(
    statement: *mut pg_sys::PlannedStmt,
    query_string: *const std::ffi::c_char,
    read_only_tree: bool,
    context: pg_sys::ProcessUtilityContext::Type,
    params: pg_sys::ParamListInfo,
    query_env: *mut pg_sys::QueryEnvironment,
    dest: *mut pg_sys::DestReceiver,
    qc: *mut pg_sys::QueryCompletion,
) {
    // SAFETY: PostgreSQL passes valid arguments, which go down unchanged.
    unsafe {
        let _nested = nests((*statement).utilityStmt).then(Nested::new);
        match PREV_PROCESS_UTILITY {
            Some(previous) => pg_guard_ffi_boundary(|| {
                previous(
                    statement,
                    query_string,
                    read_only_tree,
                    context,
                    params,
                    query_env,
                    dest,
                    qc,
                )
            }),
            None => pg_sys::standard_ProcessUtility(
                statement,
                query_string,
                read_only_tree,
                context,
                params,
                query_env,
                dest,
                qc,
            ),
        }
    }
}
