//! The executor and utility hooks. They decide what is measured, count nesting, and handle every way a run can end.
//!
//! Invariants:
//! * Each hook calls the previous hook or the standard function exactly once.
//! * Whatever a run replaces (nesting, running account, clock) is restored when it ends, also after an error.
//! * A failure of the extension never becomes the statement's failure.
//! * No locks are taken, except when the targets of the trace are compared with the session again, and when a plan that is new in
//!   the session is looked up in the store.
//!
//! All hooks are plain frames, so an error may cross them. If something must be restored, `pg_try::pg_try` surrounds the
//! call. Each caller of the extension's own code catches its panics.

use super::statement::Statement;
use super::{
    explain, hinted, inner_query, nesting, own, parsed, planning, response, statement, traced, transactions,
    unmeasured, unnamed, untimed_explain, utility,
};
use crate::guc;
use crate::instrumentation::InstrumentationPlan;
use crate::pg::compat;
use crate::pg::hot::{beats, trace, usage, waits};
use crate::pg::server::backend_local::BackendLocal;
use crate::pg::server::contained::Raised;
use crate::pg::server::pg_try::{is_request, pg_try};
use crate::pg::server::{self, switch, unguarded};
use crate::pg::sql_trace::{level, lines, targets};
use pgrx::pg_sys::panic::{CaughtError, pgrx_extern_c_guard};
use pgrx::pg_sys::{self, NodeTag, QueryDesc};
use rowsource_core::model::Outcome;
use rowsource_core::sql_trace::event::Phase;
use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
static PREV_EXECUTOR_START: Previous<pg_sys::ExecutorStart_hook_type> = previous();
#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
static PREV_EXECUTOR_RUN: Previous<pg_sys::ExecutorRun_hook_type> = previous();
#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
static PREV_EXECUTOR_FINISH: Previous<pg_sys::ExecutorFinish_hook_type> = previous();
#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
static PREV_EXECUTOR_END: Previous<pg_sys::ExecutorEnd_hook_type> = previous();
#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
static PREV_PROCESS_UTILITY: Previous<pg_sys::ProcessUtility_hook_type> = previous();

/// The hook that was set before.
type Previous<Hook> = BackendLocal<Cell<Hook>>;

const fn previous<Hook>() -> Previous<Option<Hook>> {
    BackendLocal::new(Cell::new(None))
}

/// Sets the hooks. Sets none while pg_upgrade runs the server, because its statements are of no interest.
pub fn init() {
    if server::is_upgrading() {
        return;
    }
    planning::init();
    parsed::init();
    unmeasured::init();
    transactions::init();
    // SAFETY: _PG_init runs once, before any of these hooks can be called.
    unsafe {
        PREV_EXECUTOR_START.set(pg_sys::ExecutorStart_hook);
        pg_sys::ExecutorStart_hook = Some(executor_start);
        PREV_EXECUTOR_RUN.set(pg_sys::ExecutorRun_hook);
        pg_sys::ExecutorRun_hook = Some(executor_run_hook);
        PREV_EXECUTOR_FINISH.set(pg_sys::ExecutorFinish_hook);
        pg_sys::ExecutorFinish_hook = Some(executor_finish);
        PREV_EXECUTOR_END.set(pg_sys::ExecutorEnd_hook);
        pg_sys::ExecutorEnd_hook = Some(executor_end);
        PREV_PROCESS_UTILITY.set(pg_sys::ProcessUtility_hook);
        pg_sys::ProcessUtility_hook = Some(process_utility);
    }
}

/// Drops what is known of the next statement, because hooks pass on the ones between while the switch is off.
#[cold]
#[inline(never)]
fn forget_what_was_before() {
    planning::forget();
    take_own_waits();
    if level::is_on() {
        lines::pause();
    }
}

/// Leaves one nesting level. Wishes for no more beats if it was the outermost one.
fn unnest() {
    if nesting::leave() {
        beats::end();
    }
}

/// Runs `body`, a utility statement, one nesting level deeper, and records it if it runs other statements.
///
/// # Safety
/// * `planned` must be the live utility statement, `source` its text, and `completion` null or live.
/// * The frames of the caller and of `body` must be plain, because an error crosses them.
unsafe fn nested(
    planned: *const pg_sys::PlannedStmt,
    source: *const std::ffi::c_char,
    completion: *const pg_sys::QueryCompletion,
    body: impl FnOnce(),
) {
    // SAFETY: the frames are plain, and the statement and its text are live, by the caller's promise.
    unsafe {
        let queryid = unnamed::utility_queryid(planned, source);
        let running = utility::begin(planned, queryid, source);
        nesting::enter();
        let outer = statement::enter_utility(queryid);
        let leave = || {
            statement::leave_utility(outer);
            unnest();
        };
        let record = |outcome, completion| {
            if let Some(running) = &running {
                utility::end(running, outcome, completion);
            }
        };
        pg_try(body, leave, |outcome| record(outcome, std::ptr::null()));
        leave();
        record(Outcome::Completed, completion);
    }
}

/// Runs `body` one nesting level deeper, with the statement's accounts active, and then `after` with the statement, if it is
/// measured. If `body` fails, the statistics so far are recorded before the error is raised again.
///
/// # Safety
/// * `query` must be started, and must not end before this returns.
/// * The frames of the caller and of `body` must be plain, because an error crosses them.
unsafe fn run(query: *mut QueryDesc, body: impl FnOnce(), after: impl FnOnce(&statement::Statement)) {
    // SAFETY: by the caller's promise the frames are plain and the query is started. Each successful `enter` is followed by
    // exactly one `leave`.
    unsafe {
        nesting::enter();
        // The statement does not move while its query's memory is live, and no run lives longer than that memory.
        let entered = statement::find(query).filter(|statement| statement.enter());
        pg_try(
            body,
            || {
                if let Some(statement) = entered {
                    statement.interrupt();
                    statement.leave();
                }
                charge_current_account();
                unnest();
            },
            |outcome| {
                unmeasured::run_failed();
                if let Some(statement) = entered {
                    statement.outcome.set(outcome);
                    let _ = server::caught(|| statement.record(true));
                    statement.close();
                } else if statement::find(query).is_none() {
                    unmeasured::query_ended(query);
                }
            },
        );
        if let Some(statement) = entered {
            statement.leave();
            after(statement);
        }
        charge_current_account();
        unnest();
    }
}

/// Charges the running node with what a nested run used. If the nested run was not measured, it may have moved counters
/// that the wrapper of the running node does not check.
#[inline(always)]
fn charge_current_account() {
    if !usage::is_outside(usage::current()) {
        charge_running_node();
    }
}

/// Charges the running node.
#[cold]
#[inline(never)]
fn charge_running_node() {
    // SAFETY: the running account is always live, and stays the running one.
    unsafe { usage::switch(usage::current()) };
}

/// Returns how to measure the statement, or `None` if it is not measured. `is_sent` says that a client sent it.
///
/// # Safety
/// `query` must point to a QueryDesc that is not started yet.
#[inline(always)]
unsafe fn decide<const MAY_BE_TRACED: bool>(
    query: *mut QueryDesc,
    eflags: i32,
    is_sent: bool,
) -> Option<InstrumentationPlan> {
    // SAFETY: PostgreSQL passes a valid QueryDesc.
    unsafe {
        if eflags & pg_sys::EXEC_FLAG_EXPLAIN_ONLY as i32 != 0 {
            return None;
        }
        if server::is_parallel_worker() {
            let asked = (*query).instrument_options & statement::INSTRUMENT_ROWSOURCE != 0;
            return (asked && nesting::depth() == 0).then(InstrumentationPlan::as_leader);
        }
        let is_traced = || MAY_BE_TRACED && traced::is_written(query);
        let is_nested_wanted = || guc::track_all() || is_traced();
        if !is_sent && (!is_nested_wanted() || own::script_runs() || trace::is_of((*query).sourceText)) {
            return None;
        }
        InstrumentationPlan::from_settings(|| is_traced() || hinted::is_hinted(query))
    }
}

/// Starts a query.
///
/// # Safety
/// Only PostgreSQL may call this, as its hook of this name, with a valid `query` that is not started yet.
#[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot.rowsource"))]
unsafe extern "C-unwind" fn executor_start(query: *mut QueryDesc, eflags: i32) {
    // SAFETY: PostgreSQL passes a valid QueryDesc that is not started yet. The frames are plain.
    unsafe {
        if switch::passes_on() {
            switch::pass_on(move || {
                forget_what_was_before();
                let start = PREV_EXECUTOR_START.get();
                start.unwrap_or(unguarded::standard_ExecutorStart)(query, eflags);
            });
        } else if targets::begins() {
            start_traced(query, eflags);
        } else {
            start::<false>(query, eflags);
        }
    }
}

/// Starts a query of a session that may be traced.
///
/// # Safety
/// The same as for [`start`].
#[cold]
#[inline(never)]
unsafe fn start_traced(query: *mut QueryDesc, eflags: i32) {
    // SAFETY: the caller promises it.
    unsafe { start::<true>(query, eflags) }
}

/// Starts a query, and sets it up for measuring.
///
/// # Safety
/// * `query` must be a valid QueryDesc that is not started yet.
/// * The caller's frame must be plain, because an error crosses it.
#[inline(always)]
unsafe fn start<const MAY_BE_TRACED: bool>(query: *mut QueryDesc, eflags: i32) {
    // SAFETY: the caller passes a valid QueryDesc.
    unsafe {
        inner_query::starts(query);
        let toplevel = nesting::depth() == 0;
        let is_sent = toplevel && server::portal_or_background();
        let setting = decide::<MAY_BE_TRACED>(query, eflags, is_sent);
        let requested_by_others = (*query).instrument_options & !statement::INSTRUMENT_ROWSOURCE;
        // If others have core measure, the extension adds its bits to theirs. Otherwise core need not allocate its
        // instrumentation, because the extension has its own.
        let added_by_us = match setting {
            Some(_) if requested_by_others != 0 => {
                statement::INSTRUMENT_ROWSOURCE | statement::INSTRUMENT_ROWS
            }
            _ => 0,
        };
        (*query).instrument_options |= added_by_us;
        let start = || {
            PREV_EXECUTOR_START
                .get()
                .unwrap_or(unguarded::standard_ExecutorStart)(query, eflags);
        };
        if MAY_BE_TRACED && eflags & pg_sys::EXEC_FLAG_EXPLAIN_ONLY as i32 == 0 {
            traced::start(query, start);
        } else {
            start();
        }
        if setting.is_none() {
            unmeasured::begins(query);
        }
        if let Some(setting) = setting {
            let memory = pg_sys::CurrentMemoryContext;
            let held = server::HeldInterrupts::now();
            let attached = catch_unwind(AssertUnwindSafe(|| {
                statement::attach(
                    query,
                    &setting,
                    requested_by_others,
                    added_by_us,
                    toplevel,
                    is_sent,
                )
            }));
            match attached {
                Ok(true) => return,
                Ok(false) => {
                    unmeasured::not_attached(query);
                    withdraw_request((*query).estate);
                }
                Err(error) => {
                    pg_sys::CurrentMemoryContext = memory;
                    unmeasured::not_attached(query);
                    not_attached(query, error, &held);
                }
            }
        }
        if toplevel {
            response::record_commit();
        }
    }
}

/// Withdraws the request that parallel workers measure: nothing would read their reports.
///
/// # Safety
/// `estate` must be null or live.
#[cold]
unsafe fn withdraw_request(estate: *mut pg_sys::EState) {
    // SAFETY: it is null or live by the caller's promise, and nobody holds a reference to it.
    if let Some(estate) = unsafe { estate.as_mut() } {
        estate.es_instrument &= !statement::INSTRUMENT_ROWSOURCE;
    }
}

/// Handles a statement that could not be set up. It runs unmeasured. A cancel or shutdown request that
/// arrived meanwhile is raised again, and so is an error after which the transaction cannot go on.
///
/// # Safety
/// * `query` must be started.
/// * The caller's frame must be plain, because an error may cross it. The caller must hold no lightweight lock.
#[cold]
unsafe fn not_attached(query: *mut QueryDesc, error: Box<dyn Any + Send>, held: &server::HeldInterrupts) {
    let must_be_raised = error.downcast_ref::<CaughtError>().is_some_and(is_request);
    // SAFETY: the caller's frame is plain. The panic has a copy of the error. PostgreSQL's own record of it must be removed
    // unless it is raised again. The caller holds no lightweight lock, so all locks that are still held belong to the
    // failed set-up.
    unsafe {
        let error = match Raised::of(error) {
            Ok(raised) => return pgrx_extern_c_guard::<_, ()>(|| raised.raise()),
            Err(error) if must_be_raised => return pgrx_extern_c_guard::<_, ()>(|| resume_unwind(error)),
            Err(error) => error,
        };
        pg_sys::FlushErrorState();
        pg_sys::LWLockReleaseAll();
        held.restore();
        server::note_panic(&*error);
        withdraw_request((*query).estate);
        let _ = server::caught(|| {
            let message = server::message(&*error);
            server::log_alone(&format!("pg_rowsource: a statement is not measured: {message}"));
        });
    }
}

compat::executor_run::executor_run_hook!(executor_run_hook, executor_run);

/// Runs a query, and measures it if it was set up for that.
///
/// # Safety
/// * `query` must be started.
/// * The caller's frame must be plain: an error crosses it.
#[inline(always)]
unsafe fn executor_run(
    query: *mut QueryDesc,
    direction: pg_sys::ScanDirection::Type,
    count: u64,
    execute_once: bool,
) {
    // SAFETY: the caller promises a started `query` and a plain frame. The body is plain, because it only calls functions
    // of PostgreSQL and the previous hook.
    unsafe {
        if switch::passes_on() && statement::find(query).is_none() {
            return switch::pass_on(move || {
                compat::executor_run::call(PREV_EXECUTOR_RUN.get(), query, direction, count, execute_once);
            });
        }
        run(
            query,
            || {
                let run = || {
                    compat::executor_run::call(PREV_EXECUTOR_RUN.get(), query, direction, count, execute_once)
                };
                if level::is_on() {
                    traced::phase(Phase::Fetch, query, run);
                } else {
                    run();
                }
            },
            |statement| statement.note_read(query, direction, count),
        );
    }
}

/// Replaces what the hook of ExecutorRun calls when a statement is set up. Returns what it called before.
pub fn replace_executor_run(next: pg_sys::ExecutorRun_hook_type) -> pg_sys::ExecutorRun_hook_type {
    PREV_EXECUTOR_RUN.replace(next)
}

/// Finishes a query, and records its statistics.
///
/// # Safety
/// Only PostgreSQL may call this, as its hook of this name, with a started `query`.
#[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot.rowsource"))]
unsafe extern "C-unwind" fn executor_finish(query: *mut QueryDesc) {
    // SAFETY: PostgreSQL passes a started QueryDesc.
    unsafe {
        let finish = || {
            PREV_EXECUTOR_FINISH
                .get()
                .unwrap_or(unguarded::standard_ExecutorFinish)(query)
        };
        let statement = statement::find(query);
        if statement.is_none() && switch::passes_on() {
            return switch::pass_on(move || {
                let finish = PREV_EXECUTOR_FINISH.get();
                finish.unwrap_or(unguarded::standard_ExecutorFinish)(query);
                unmeasured::ended_while_off();
            });
        }
        if runs_at_finish(query, statement) {
            let finish = || {
                if level::is_on() {
                    traced::phase(Phase::Finish, query, finish);
                } else {
                    finish();
                }
            };
            run(query, finish, |_| ());
        } else {
            finish();
        }
        if let Some(statement) = statement {
            let _ = server::caught(|| statement.record(true));
        } else {
            unmeasured::query_ended(query);
        }
    }
}

/// Returns whether ExecutorFinish may fire triggers or has data-modifying CTEs to complete, or whether a trace shows it.
///
/// # Safety
/// `query` must be started. `statement` must be its statement, if it is measured.
#[inline(always)]
unsafe fn runs_at_finish(query: *mut QueryDesc, statement: Option<&Statement>) -> bool {
    // SAFETY: a started query has an executor state.
    unsafe {
        let estate = (*query).estate;
        if !(*estate).es_auxmodifytables.is_null() {
            return true;
        }
        (*estate).es_top_eflags & pg_sys::EXEC_FLAG_SKIP_TRIGGERS as i32 == 0
            && (level::is_on() || statement.is_none_or(|statement| statement.may_fire_triggers.get()))
    }
}

/// Ends a query.
///
/// # Safety
/// Only PostgreSQL may call this, as its hook of this name, with a started `query`.
#[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot.rowsource"))]
unsafe extern "C-unwind" fn executor_end(query: *mut QueryDesc) {
    // SAFETY: PostgreSQL passes a started QueryDesc.
    unsafe {
        // ExecutorFinish has recorded it, unless the caller skipped that.
        if let Some(statement) = statement::find(query).filter(|statement| statement.is_unrecorded()) {
            let _ = server::caught(|| statement.record(true));
        }
        let end = || PREV_EXECUTOR_END.get().unwrap_or(unguarded::standard_ExecutorEnd)(query);
        if level::is_on() && switch::is_on() && !is_explained_only(query) {
            traced::phase(Phase::Close, query, end);
        } else {
            end();
        }
        inner_query::ends(query);
    }
}

/// Returns whether a query was started only for EXPLAIN.
///
/// # Safety
/// `query` must be started.
unsafe fn is_explained_only(query: *mut QueryDesc) -> bool {
    // SAFETY: a started query has an executor state.
    unsafe { (*(*query).estate).es_top_eflags & pg_sys::EXEC_FLAG_EXPLAIN_ONLY as i32 != 0 }
}

/// Runs a utility statement. Statements inside utilities (CALL, DO, a COPY's triggers, an ALTER TABLE's checks) count as
/// nested, although no executor run surrounds them.
///
/// # Safety
/// Only PostgreSQL may call this, as its hook of this name.
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
    // SAFETY: PostgreSQL passes valid arguments, which are passed on unchanged.
    unsafe {
        if switch::passes_on() {
            return switch::pass_on(move || {
                forget_what_was_before();
                let counts =
                    !unmeasured::concerns_session(crate::pg::plan::tree::tag((*statement).utilityStmt));
                let process = PREV_PROCESS_UTILITY.get();
                process.unwrap_or(unguarded::standard_ProcessUtility)(
                    statement,
                    query_string,
                    read_only_tree,
                    context,
                    params,
                    query_env,
                    dest,
                    qc,
                );
                if counts {
                    unmeasured::ended_while_off();
                }
            });
        }
        let process_as = |statement: *mut pg_sys::PlannedStmt| {
            let run = || {
                PREV_PROCESS_UTILITY
                    .get()
                    .unwrap_or(unguarded::standard_ProcessUtility)(
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
            if targets::begins() {
                traced::utility(statement, query_string, qc, run);
            } else {
                run();
            }
        };
        let process = || process_as(statement);
        let utility = (*statement).utilityStmt;
        // This comes first, because it is frequent and short.
        if crate::pg::plan::tree::tag(utility) == NodeTag::T_ExecuteStmt {
            inner_query::around(statement, query_string, process);
            return take_own_waits();
        }
        response::record_commit();
        let counted = unmeasured::utility_begins(statement);
        let last_end = response::last_end();
        match crate::pg::plan::tree::tag(utility) {
            NodeTag::T_ExplainStmt => {
                let explain = untimed_explain::statement(statement, query_string);
                unnamed::around(statement, query_string, || {
                    explain::around(statement, query_string, || {
                        inner_query::around(statement, query_string, || process_as(explain));
                    });
                });
            }
            NodeTag::T_CreateTableAsStmt | NodeTag::T_RefreshMatViewStmt | NodeTag::T_DeclareCursorStmt => {
                unnamed::around(statement, query_string, || {
                    inner_query::around(statement, query_string, process);
                });
            }
            NodeTag::T_FetchStmt => {
                let cursor = (*utility.cast::<pg_sys::FetchStmt>()).portalname;
                process();
                utility::fetched(cursor);
            }
            _ if utility::nests(utility) => nested(statement, query_string, qc, process),
            _ => process(),
        }
        if nesting::depth() == 0 {
            response::utility_ended(last_end);
        }
        take_own_waits();
        if let Some(counted) = counted {
            unmeasured::utility_ended(&counted, query_string);
        }
    }
}

/// Takes what a utility statement of the client waited itself: all waits that no query in it has taken.
#[inline(always)]
fn take_own_waits() {
    if nesting::depth() == 0 && waits::waited_outside() {
        waits::take_outside();
    }
}
