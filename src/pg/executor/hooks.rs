//! The hooks of the executor and of utility statements: nesting, the order of calls, and every way a run can
//! end. What features do at a hook is in their listeners ([`Listeners`]).
//!
//! Invariants:
//! * Each hook calls the previous hook or the standard function exactly once.
//! * Whatever a run replaces (nesting, running account, clock) is restored when it ends, also after an error.
//! * A failure of the extension never becomes the statement's failure.
//! * No locks are taken, except to compare the session with targets of traces, and to find its new plans.
//!
//! Closures take what they need by value: what they refer to would be written to memory for each statement.
//!
//! All hooks are plain frames, so an error may cross them. `pg_try::pg_try` surrounds what must be restored.
//! Each caller of the extension's own code catches its panics.
#![allow(ffi_unwind_calls, reason = "an error crosses only plain frames")]

use super::listener::{Call, Listen, Utility, listeners};
use super::statement::{self, Ending, Statement};
use super::{
    explain, inner_query, nesting, own_waits, parsed, planning, response, starting, traced, transactions,
    unmeasured, unnamed, untimed_explain, utility,
};
use crate::pg::border::{backend_local::BackendLocal, unguarded};
use crate::pg::compat;
use crate::pg::hot::usage;
use crate::pg::server::pg_try::pg_try;
use crate::pg::server::{self, switch};
use crate::pg::sql_trace::targets;
use pgrx::pg_sys::{self, NodeTag, QueryDesc};
use rowsource_core::sql_trace::event::Phase;
use std::cell::Cell;
use std::ffi::c_char;

/// All features that watch statements, from the outermost to the innermost.
type Listeners = listeners![
    parsed::Listener,
    planning::Listener,
    transactions::Listener,
    unmeasured::Listener,
    own_waits::Listener,
    response::Listener,
    untimed_explain::Listener,
    unnamed::Listener,
    explain::Listener,
    inner_query::Listener,
    utility::Listener,
    traced::Listener,
];

/// Declares where the hooks are kept that were set before, and what sets them.
macro_rules! hooks {
    ($($previous:ident: $type:ident = $hook:ident, $ours:ident;)*) => {
        $(#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
        static $previous: BackendLocal<Cell<pg_sys::$type>> = BackendLocal::new(Cell::new(None));)*

        /// Sets the hooks. Sets none while pg_upgrade runs the server.
        pub fn init() {
            if server::is_upgrading() {
                return;
            }
            Listeners::init();
            // SAFETY: _PG_init runs once, before any of these hooks can be called.
            unsafe {
                $($previous.set(pg_sys::$hook);
                pg_sys::$hook = Some($ours);)*
            }
        }
    };
}

hooks! {
    PREV_EXECUTOR_START: ExecutorStart_hook_type = ExecutorStart_hook, executor_start;
    PREV_EXECUTOR_RUN: ExecutorRun_hook_type = ExecutorRun_hook, executor_run_hook;
    PREV_EXECUTOR_FINISH: ExecutorFinish_hook_type = ExecutorFinish_hook, executor_finish;
    PREV_EXECUTOR_END: ExecutorEnd_hook_type = ExecutorEnd_hook, executor_end;
    PREV_PROCESS_UTILITY: ProcessUtility_hook_type = ProcessUtility_hook, process_utility;
}

/// Runs `body` one nesting level deeper, with the statement active, then `after` if it is measured.
/// If `body` fails, records the statistics so far before the error is raised again.
fn run(call: impl Fn() -> Call + Copy, body: impl FnOnce(), after: impl FnOnce(&Statement)) {
    // SAFETY: the frames are plain and the query is started (see `Call`). Each `enter` has one `leave`.
    unsafe {
        let Call { query, frames, .. } = call();
        nesting::enter();
        // The statement does not move while its query's memory is live, and that outlives each run.
        let entered = statement::find(query).filter(|statement| statement.enter());
        pg_try(
            frames,
            move || Listeners::run(&call(), body),
            move || {
                if let Some(statement) = entered {
                    statement.interrupt();
                    statement.leave();
                }
                usage::charge_running_node();
                nesting::leave();
            },
            move |outcome| {
                let is_measured = statement::find(query).is_some();
                if let Some(statement) = entered {
                    statement.outcome.set(outcome);
                    server::attempt("record a statement", || Ending::new(statement, true).record());
                    statement.close();
                }
                Listeners::has_run(&call(), is_measured, true);
            },
        );
        if let Some(statement) = entered {
            statement.leave();
            after(statement);
        }
        usage::charge_running_node();
        nesting::leave();
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
                Listeners::begins_while_off();
                let start = PREV_EXECUTOR_START.get();
                start.unwrap_or(unguarded::standard_ExecutorStart)(query, eflags);
            });
        } else if targets::begins() {
            switch::pass_on(move || start::<true>(query, eflags));
        } else {
            start::<false>(query, eflags);
        }
    }
}

/// Starts a query, and sets it up for measuring. What a traced session does costs others nothing.
///
/// # Safety
/// `query` must be valid and not started yet. The caller's frame must be plain, because an error crosses it.
#[inline(always)]
unsafe fn start<const IS_TRACED: bool>(query: *mut QueryDesc, eflags: i32) {
    // SAFETY: the caller passes a valid QueryDesc, no lock is held, and the frames are plain.
    unsafe {
        let call = &Call::of_start(query, eflags, IS_TRACED);
        Listeners::before_start(call);
        let decided = starting::decide(call);
        Listeners::run(call, || {
            let start = PREV_EXECUTOR_START.get();
            start.unwrap_or(unguarded::standard_ExecutorStart)(query, eflags);
        });
        Listeners::after_start(call, starting::set_up(call, decided));
    }
}

compat::executor_run::executor_run_hook!(executor_run_hook, executor_run);

/// Runs a query, and measures it if it was set up for that.
///
/// # Safety
/// `query` must be started. The caller's frame must be plain, because an error crosses it.
#[inline(always)]
unsafe fn executor_run(
    query: *mut QueryDesc,
    direction: pg_sys::ScanDirection::Type,
    count: u64,
    execute_once: bool,
) {
    // SAFETY: the caller promises a started `query` and a plain frame. So is the body, which only calls on.
    unsafe {
        let next = move || {
            compat::executor_run::call(PREV_EXECUTOR_RUN.get(), query, direction, count, execute_once)
        };
        if switch::passes_on() && statement::find(query).is_none() {
            return switch::pass_on(next);
        }
        let after = |statement: &Statement| statement.note_read(direction, count);
        run(move || Call::of_started(query, Phase::Fetch), next, after);
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
    // SAFETY: PostgreSQL passes a started QueryDesc, and the frames are plain.
    unsafe {
        let finish = move || {
            let finish = PREV_EXECUTOR_FINISH.get();
            finish.unwrap_or(unguarded::standard_ExecutorFinish)(query);
        };
        let statement = statement::find(query);
        if statement.is_none() && switch::passes_on() {
            return switch::pass_on(move || {
                finish();
                Listeners::ended_while_off(None);
            });
        }
        let call = move || Call::of_started(query, Phase::Finish);
        if call().runs_at_finish(|| statement.is_none_or(|statement| statement.may_fire_triggers.get())) {
            run(call, finish, |_| ());
        } else {
            finish();
        }
        if let Some(statement) = statement {
            server::attempt("record a statement", || Ending::new(statement, true).record());
        }
        Listeners::has_run(&call(), statement.is_some(), false);
    }
}

/// Ends a query.
///
/// # Safety
/// Only PostgreSQL may call this, as its hook of this name, with a started `query`.
#[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot.rowsource"))]
unsafe extern "C-unwind" fn executor_end(query: *mut QueryDesc) {
    // SAFETY: PostgreSQL passes a started QueryDesc, and the frames are plain.
    unsafe {
        // ExecutorFinish has recorded it, unless the caller skipped that.
        if let Some(statement) = statement::find(query).filter(|statement| statement.is_unrecorded()) {
            server::attempt("record a statement", || Ending::new(statement, true).record());
        }
        Listeners::run(&Call::of_started(query, Phase::Close), || {
            let end = PREV_EXECUTOR_END.get();
            end.unwrap_or(unguarded::standard_ExecutorEnd)(query);
        });
        Listeners::end(query);
    }
}

/// Runs a utility statement. Statements inside utilities (CALL, DO, a COPY's triggers, an ALTER TABLE's
/// checks) count as nested, although no executor run surrounds them.
///
/// # Safety
/// Only PostgreSQL may call this, as its hook of this name.
#[allow(clippy::too_many_arguments, reason = "PostgreSQL's signature")]
#[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot.rowsource"))]
unsafe extern "C-unwind" fn process_utility(
    statement: *mut pg_sys::PlannedStmt,
    source: *const c_char,
    read_only: bool,
    context: pg_sys::ProcessUtilityContext::Type,
    params: pg_sys::ParamListInfo,
    env: *mut pg_sys::QueryEnvironment,
    dest: *mut pg_sys::DestReceiver,
    done: *mut pg_sys::QueryCompletion,
) {
    // SAFETY: PostgreSQL passes valid arguments, which are passed on unchanged. The frames are plain.
    unsafe {
        let process = move |statement| {
            let process = PREV_PROCESS_UTILITY.get();
            let process = process.unwrap_or(unguarded::standard_ProcessUtility);
            process(statement, source, read_only, context, params, env, dest, done);
        };
        let utility = &Utility::new(statement, source, done);
        if switch::passes_on() {
            let tag = utility.tag;
            return switch::pass_on(move || {
                Listeners::begins_while_off();
                process(statement);
                Listeners::ended_while_off(Some(tag));
            });
        }
        if utility.tag == NodeTag::T_ExecuteStmt {
            Listeners::execute(utility, move |_| process(statement));
        } else {
            Listeners::utility(utility, move |utility| process(utility.statement));
        }
    }
}
