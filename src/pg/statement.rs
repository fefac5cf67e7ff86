//! The state of one measured statement, from ExecutorStart until its statistics are on record.
//!
//! It belongs to the QueryDesc, because cursors overlap, statements nest, and some never reach ExecutorEnd. A callback on
//! the statement's query context takes it back in every case, also when its nodes are about to go. The same callback is
//! how the statement of a query is found.
//!
//! A statement belongs to its [`Box`] until it is handed to its query's context, and again once that context has gone. In
//! between it is reached in several ways: by its context, by the list of running statements, by a run on the stack. So
//! all of them use shared references only, and what changes lies in cells.
//!
//! * `setup` makes a statement, or prepares one of the `pool` for another execution;
//! * `install` puts the wrappers into its plan states;
//! * `lifecycle` enters and leaves its runs, and records it;
//! * `sampling` holds what the sampler must know.

mod install;
mod lifecycle;
mod pool;
mod sampling;
mod setup;

pub use setup::attach;

use super::backend_local::BackendLocal;
use super::node_table::NodeTable;
use super::usage::Usage;
use super::wrapper::Timed;
use super::{parallel, server};
use crate::guc::{Detail as InstrumentationLevel, Measuring as InstrumentationPlan};
use crate::session::KnownPlan;
use lifecycle::Replaced;
use pgrx::pg_sys::{self, QueryDesc};
use rowsource_core::clock::Source;
use rowsource_core::model::{Outcome, PlanDescription};
use rowsource_core::phase::Phase;
use rowsource_core::results::Mode;
use rowsource_core::sampler::Config;
use std::cell::{Cell, UnsafeCell};
use std::rc::Rc;

/// Our own bit in `instrument_options`. It tells parallel workers to measure as their leader does.
pub const INSTRUMENT_ROWSOURCE: i32 = 1 << 24;
pub const INSTRUMENT_TIMER: i32 = pg_sys::InstrumentOption::INSTRUMENT_TIMER as i32;
pub const INSTRUMENT_BUFFERS: i32 = pg_sys::InstrumentOption::INSTRUMENT_BUFFERS as i32;
pub const INSTRUMENT_ROWS: i32 = pg_sys::InstrumentOption::INSTRUMENT_ROWS as i32;
pub const INSTRUMENT_WAL: i32 = pg_sys::InstrumentOption::INSTRUMENT_WAL as i32;

pub struct Statement {
    query: *mut QueryDesc,
    /// Linked into the statement's query context, which so owns the statement.
    callback: pg_sys::MemoryContextCallback,
    /// Changed by `lifecycle` only.
    phase: Cell<Phase>,
    mode: Mode,
    nodes: NodeTable,
    /// Core measures some of its nodes, or workers report some.
    core_contributes: bool,
    /// What was found out at set-up holds for all executions of the plan.
    reusable: bool,
    level: InstrumentationLevel,
    sampfreq: i32,
    clock: Source,
    /// Which calls are timed.
    timed: Timed,
    /// Nanoseconds of a tick of the clock.
    tick_ns: f64,
    config: Config,
    /// What it is recorded as. A parallel worker's statement has none.
    target: Option<Target>,
    /// The account of what the statement uses outside its nodes. It is charged through its address.
    outside: UnsafeCell<Usage>,
    /// Nanoseconds in ExecutorRun and ExecutorFinish.
    elapsed_ns: Cell<f64>,
    /// What the run that is on the stack replaced.
    replaced: Replaced,
    /// How it ended. A statement that has not failed is completed.
    outcome: Cell<Outcome>,
    /// It called rowsource_display(), and so never becomes "the last statement".
    excluded_from_last: Cell<bool>,
    channel: Cell<Option<parallel::Channel>>,
}

/// What an execution is recorded as.
struct Target {
    plan: Rc<KnownPlan>,
    description: Rc<PlanDescription>,
    /// The description's literals are those of an earlier execution.
    older_literals: bool,
}

/// How many statements belong to query contexts.
static OPEN: BackendLocal<Cell<usize>> = BackendLocal::new(Cell::new(0));
/// The innermost running statement. Each running statement knows the next outer one.
static RUNNING: BackendLocal<Cell<*const Statement>> = BackendLocal::new(Cell::new(std::ptr::null()));

/// Returns the open statement of a started query.
///
/// # Safety
/// * `query` must point to a QueryDesc whose execution state is null or live.
/// * The reference must not be used after that execution state has gone.
#[inline(always)]
pub unsafe fn find(query: *mut QueryDesc) -> Option<&'static Statement> {
    if OPEN.get() == 0 {
        return None;
    }
    // SAFETY: the caller passes a valid QueryDesc, and keeps the reference no longer than the execution state lives.
    unsafe { of((*query).estate).filter(|statement| statement.phase.get() != Phase::Closed) }
}

/// Returns the statement that belongs to an execution state's query context. Its callback is the first one there, except
/// for those that others have registered since it started.
///
/// # Safety
/// * `estate` must be null or live.
/// * The reference must not be used after `estate` has gone.
unsafe fn of(estate: *mut pg_sys::EState) -> Option<&'static Statement> {
    // SAFETY: a live execution state has a query context, whose callbacks are a list that ends with null. Only
    // `register_reset_callback` registers `RESET`, with a statement that lives until the context has called it.
    unsafe {
        let estate = estate.as_ref()?;
        let mut callback = (*estate.es_query_cxt).reset_cbs;
        while let Some(linked) = callback.as_ref() {
            if linked
                .func
                .is_some_and(|function| std::ptr::fn_addr_eq(function, RESET))
            {
                return linked.arg.cast::<Statement>().as_ref();
            }
            callback = linked.next;
        }
        None
    }
}

/// Keeps the statements that are running now from becoming the last statement: one of them has asked for a display.
pub fn exclude_running_from_last() {
    let mut running = RUNNING.get();
    // SAFETY: a statement leaves this list before its memory goes: in `leave`, or in `on_context_reset`.
    while let Some(statement) = unsafe { running.as_ref() } {
        statement.excluded_from_last.set(true);
        running = statement.replaced.outer_statement();
    }
}

/// Returns whether a measured statement is running, so that a new one is nested in it.
fn any_running() -> bool {
    !RUNNING.get().is_null()
}

/// The callback that a statement's query context calls when it is reset or deleted.
const RESET: unsafe extern "C-unwind" fn(*mut std::ffi::c_void) = context_reset;

/// Takes a statement back from its query's context.
///
/// # Safety
/// To be called by a memory context only, once, with the address that `register_reset_callback` registered.
#[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot.rowsource"))]
unsafe extern "C-unwind" fn context_reset(statement: *mut std::ffi::c_void) {
    OPEN.set(OPEN.get() - 1);
    // SAFETY: `register_reset_callback` made this address of a box, and gave it to the context, which calls this once.
    // Everybody else finds the statement through this context, which is going.
    let statement = unsafe { Box::from_raw(statement.cast::<Statement>()) };
    // Nothing may be raised while a memory context goes.
    let _ = server::caught(|| {
        statement.on_context_reset();
        pool::recycle(statement);
    });
}

impl Statement {
    /// Returns whether the wrappers measure it. Else core measures everything.
    #[inline(always)]
    fn is_wrapped(&self) -> bool {
        self.mode != Mode::CoreOnly
    }

    /// Returns whether its wrappers read a clock.
    #[inline(always)]
    fn is_timed(&self) -> bool {
        self.is_wrapped() && self.level == InstrumentationLevel::Timed
    }

    /// Returns whether a client sent it, not a function.
    fn is_toplevel(&self) -> bool {
        self.target
            .as_ref()
            .is_some_and(|target| target.plan.key.toplevel())
    }

    /// Returns the planner's numbers for its nodes. They are the same in leader and workers.
    fn plan_node_ids(&self) -> impl Iterator<Item = i32> {
        self.nodes.iter().map(|node| node.plan_node_id())
    }
}
