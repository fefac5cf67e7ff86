//! The executor and utility hooks: what is measured, nesting, and the ways a run can be left.
//!
//! Invariants: each hook calls the previous hook or the standard function exactly once; what a run replaced
//! (nesting, running account, clock) is put back on every way out, errors included; our own failures never
//! become the statement's. No locks are taken.
//!
//! All hooks are plain old frames, which an error from below may cross; where something must be put back,
//! `protect::or_else` stands around the call. Our own work that may panic is caught where it is called.

use super::backend_local::BackendLocal;
use super::hot::tick;
use super::protect::{is_cancel, or_else};
use super::statement;
use super::{compat, explain, raw, server, usage};
use crate::guc;
use pgrx::pg_sys::panic::{CaughtError, pgrx_extern_c_guard};
use pgrx::pg_sys::{self, NodeTag, QueryDesc};
use rowsource_core::hint;
use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

static PREV_EXECUTOR_START: Previous<pg_sys::ExecutorStart_hook_type> = previous();
static PREV_EXECUTOR_RUN: Previous<pg_sys::ExecutorRun_hook_type> = previous();
static PREV_EXECUTOR_FINISH: Previous<pg_sys::ExecutorFinish_hook_type> = previous();
static PREV_EXECUTOR_END: Previous<pg_sys::ExecutorEnd_hook_type> = previous();
static PREV_PROCESS_UTILITY: Previous<pg_sys::ProcessUtility_hook_type> = previous();

/// The hook that stood before ours.
type Previous<Hook> = BackendLocal<Cell<Hook>>;

const fn previous<Hook>() -> Previous<Option<Hook>> {
    BackendLocal::new(Cell::new(None))
}

/// How deep we are in runs of statements, procedures and DO blocks.
static NESTING: BackendLocal<Cell<u32>> = BackendLocal::new(Cell::new(0));

/// Measures nothing while pg_upgrade works: its statements are nobody's.
pub fn init() {
    if server::is_upgrading() {
        return;
    }
    usage::init();
    // SAFETY: _PG_init runs once, before any of these hooks can be called.
    unsafe {
        PREV_EXECUTOR_START.set(pg_sys::ExecutorStart_hook);
        pg_sys::ExecutorStart_hook = Some(executor_start);
        PREV_EXECUTOR_RUN.set(pg_sys::ExecutorRun_hook);
        pg_sys::ExecutorRun_hook = Some(compat::executor_run::hook);
        PREV_EXECUTOR_FINISH.set(pg_sys::ExecutorFinish_hook);
        pg_sys::ExecutorFinish_hook = Some(executor_finish);
        PREV_EXECUTOR_END.set(pg_sys::ExecutorEnd_hook);
        pg_sys::ExecutorEnd_hook = Some(executor_end);
        PREV_PROCESS_UTILITY.set(pg_sys::ProcessUtility_hook);
        pg_sys::ProcessUtility_hook = Some(process_utility);
    }
}

/// How deep we are now.
pub fn depth() -> u32 {
    NESTING.get()
}

/// Leaves a level of nesting. The tick must not outlive the outermost level, whatever that is.
fn unnest() {
    NESTING.set(NESTING.get() - 1);
    if NESTING.get() == 0 {
        tick::disarm();
    }
}

/// Runs `body` as one more level of nesting.
///
/// # Safety
/// The caller's frame and those of `body` must be plain: an error crosses those of `body`, and leaves the caller.
unsafe fn nested(body: impl FnOnce()) {
    // SAFETY: called by plain frames, with a plain body.
    unsafe {
        NESTING.set(NESTING.get() + 1);
        or_else(body, |_| unnest(), || {});
        unnest();
    }
}

/// Runs `body` as one more level of nesting, with the statement's accounts in force. If it fails, the figures
/// reached so far are recorded before the error goes on.
///
/// # Safety
/// * `query` must be started, and stay so until this returns.
/// * The caller's frame and those of `body` must be plain: an error crosses those of `body`, and leaves the caller.
unsafe fn run(query: *mut QueryDesc, body: impl FnOnce()) {
    // SAFETY: called by plain frames, with a plain body, for a started query; what is entered is left once.
    unsafe {
        NESTING.set(NESTING.get() + 1);
        // It stays where it is as long as its query's memory, which no run of the query outlives.
        let entered = statement::find(query).filter(|statement| statement.enter());
        or_else(
            body,
            |outcome| {
                if let Some(statement) = entered {
                    statement.interrupt(outcome);
                    statement.leave();
                }
                settle();
                unnest();
            },
            || {
                if let Some(statement) = entered {
                    let _ = server::caught(|| statement.record(true));
                    statement.close();
                }
            },
        );
        if let Some(statement) = entered {
            statement.leave();
        }
        settle();
        unnest();
    }
}

/// Books what a nested run used to the node that runs now: a run that is not measured itself may have used what its
/// surroundings do not look at.
fn settle() {
    let current = usage::current();
    if !usage::is_outside(current) {
        // SAFETY: the running account is always live, and stays the running one.
        unsafe { usage::switch(current) };
    }
}

/// How the statement is to be measured, if at all.
///
/// # Safety
/// `query` must point to a QueryDesc that is about to be started.
unsafe fn decide(query: *mut QueryDesc, eflags: i32, toplevel: bool) -> Option<guc::Measuring> {
    // SAFETY: PostgreSQL passes a valid QueryDesc.
    unsafe {
        if eflags & pg_sys::EXEC_FLAG_EXPLAIN_ONLY as i32 != 0 {
            return None;
        }
        if server::is_parallel_worker() {
            let asked = (*query).instrument_options & statement::INSTRUMENT_ROWSOURCE != 0;
            return (asked && NESTING.get() == 0).then(guc::measuring_as_leader);
        }
        if !toplevel && !guc::track_all() {
            return None;
        }
        guc::measuring(|| hint::present(server::commented_text((*query).sourceText, (*query).plannedstmt)))
    }
}

/// Starts a query, and sets it up for measuring.
///
/// # Safety
/// To be called by PostgreSQL as its hook of this name, with a `query` that is to be started.
#[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot.rowsource"))]
unsafe extern "C-unwind" fn executor_start(query: *mut QueryDesc, eflags: i32) {
    // SAFETY: PostgreSQL passes a valid QueryDesc.
    unsafe {
        let toplevel = NESTING.get() == 0 && server::portal_or_background();
        let measuring = decide(query, eflags, toplevel);
        let others = (*query).instrument_options & !statement::INSTRUMENT_ROWSOURCE;
        // Where others let core measure, our bits go with theirs; else core need not allocate what we have ourselves.
        let added = match measuring {
            Some(_) if others != 0 => statement::INSTRUMENT_ROWSOURCE | statement::INSTRUMENT_ROWS,
            _ => 0,
        };
        (*query).instrument_options |= added;
        PREV_EXECUTOR_START.get().unwrap_or(raw::standard_ExecutorStart)(query, eflags);
        if let Some(measuring) = measuring {
            let memory = pg_sys::CurrentMemoryContext;
            let held = server::HeldInterrupts::now();
            let attached = catch_unwind(AssertUnwindSafe(|| {
                statement::attach(query, &measuring, others, added, toplevel);
            }));
            if let Err(error) = attached {
                pg_sys::CurrentMemoryContext = memory;
                not_attached(query, error, &held);
            }
        }
    }
}

/// A statement could not be set up: it runs unmeasured. A cancel or shutdown request that came meanwhile goes on.
///
/// # Safety
/// * `query` must be started.
/// * The caller's frame must be plain, for an error may cross it, and hold no lightweight lock.
#[cold]
unsafe fn not_attached(query: *mut QueryDesc, error: Box<dyn Any + Send>, held: &server::HeldInterrupts) {
    let cancel = match error.downcast_ref::<CaughtError>() {
        Some(CaughtError::PostgresError(report) | CaughtError::ErrorReport(report)) => {
            is_cancel(report.sql_error_code() as i32)
        }
        _ => false,
    };
    // SAFETY: called by a plain frame, which keeps nothing of its own. What was raised has been copied into the panic;
    // PostgreSQL's own record of it must go unless it is raised again. Nobody starts a statement with a lightweight lock
    // in hand.
    unsafe {
        if cancel {
            pgrx_extern_c_guard::<_, ()>(|| resume_unwind(error));
            return;
        }
        pg_sys::FlushErrorState();
        pg_sys::LWLockReleaseAll();
        held.put_back();
        let estate = (*query).estate;
        if !estate.is_null() {
            // Nobody takes in what parallel workers would report.
            (*estate).es_instrument &= !statement::INSTRUMENT_ROWSOURCE;
        }
        let _ = server::caught(|| {
            let message = server::message(&*error);
            server::log_alone(&format!("pg_rowsource: a statement is not measured: {message}"));
        });
    }
}

/// Called by the version's own hook in `compat`, a plain frame.
///
/// # Safety
/// `query` must be started.
#[inline(always)]
pub unsafe fn executor_run(
    query: *mut QueryDesc,
    direction: pg_sys::ScanDirection::Type,
    count: u64,
    execute_once: bool,
) {
    // SAFETY: `query` is started by the caller's promise. The caller's frame and the body are plain.
    unsafe {
        run(query, || {
            compat::executor_run::call(PREV_EXECUTOR_RUN.get(), query, direction, count, execute_once)
        });
    }
}

/// Finishes a query, and records what it took.
///
/// # Safety
/// To be called by PostgreSQL as its hook of this name, with a started `query`.
#[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot.rowsource"))]
unsafe extern "C-unwind" fn executor_finish(query: *mut QueryDesc) {
    // SAFETY: PostgreSQL passes a started QueryDesc.
    unsafe {
        let finish = || PREV_EXECUTOR_FINISH.get().unwrap_or(raw::standard_ExecutorFinish)(query);
        if runs_at_finish(query) {
            run(query, finish);
        } else {
            finish();
        }
        if let Some(statement) = statement::find(query) {
            let _ = server::caught(|| statement.record(true));
        }
    }
}

/// Whether ExecutorFinish has triggers to fire, or data-modifying CTEs to run to their end.
///
/// # Safety
/// `query` must be started.
unsafe fn runs_at_finish(query: *mut QueryDesc) -> bool {
    // SAFETY: a started query has an executor state.
    unsafe {
        let estate = (*query).estate;
        !(*estate).es_auxmodifytables.is_null()
            || (*estate).es_top_eflags & pg_sys::EXEC_FLAG_SKIP_TRIGGERS as i32 == 0
    }
}

/// Ends a query.
///
/// # Safety
/// To be called by PostgreSQL as its hook of this name, with a started `query`.
#[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot.rowsource"))]
unsafe extern "C-unwind" fn executor_end(query: *mut QueryDesc) {
    // SAFETY: PostgreSQL passes a started QueryDesc.
    unsafe {
        // Recorded by ExecutorFinish, unless a caller left that out.
        if let Some(statement) = statement::find(query).filter(|statement| statement.is_unrecorded()) {
            let _ = server::caught(|| statement.record(true));
        }
        PREV_EXECUTOR_END.get().unwrap_or(raw::standard_ExecutorEnd)(query);
    }
}

/// Whether the queries that a utility statement runs are nested in it. Not those that the client wrote into it.
///
/// # Safety
/// `utility` must point to a live utility statement, whose tag tells its type.
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
///
/// # Safety
/// To be called by PostgreSQL as its hook of this name.
#[allow(clippy::too_many_arguments, reason = "PostgreSQL's signature")]
#[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot.rowsource"))]
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
        let process = || {
            PREV_PROCESS_UTILITY.get().unwrap_or(raw::standard_ProcessUtility)(
                statement,
                query_string,
                read_only_tree,
                context,
                params,
                query_env,
                dest,
                qc,
            );
        };
        let utility = (*statement).utilityStmt;
        if super::tree::tag(utility) == NodeTag::T_ExplainStmt {
            explain::around(process);
        } else if nests(utility) {
            nested(process);
        } else {
            process();
        }
    }
}
