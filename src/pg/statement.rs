//! The state of one measured statement, from ExecutorStart to its last figures.
//!
//! It hangs off the QueryDesc: cursors overlap, statements nest, and some never reach ExecutorEnd. A callback on the
//! statement's query context gives it back whatever happens, when nobody can look at its nodes any more. That callback
//! is also how the statement of a query is found.
//!
//! A statement belongs to its [`Box`] until it is handed to its query's context, and again once that context has gone. In
//! between many ways lead to it (its context, the list of running statements, a run on the stack), so all of them take
//! shared references only: what changes then lies in cells.

mod setup;
mod spare;
mod wrap;

pub use setup::attach;

use super::backend_local::BackendLocal;
use super::node::Node;
use super::usage::Usage;
use super::wrapper::Timed;
use super::{harvest, parallel, server, tempfile, timing, usage};
use crate::guc::Detail;
use crate::session::{self, KnownPlan};
use pgrx::pg_sys::{self, QueryDesc};
use rowsource_core::clock::{self, Source};
use rowsource_core::histogram::Histogram;
use rowsource_core::model::{ClockName, Outcome, PlanDescription, Run};
use rowsource_core::sampler::Config;
use smallvec::SmallVec;
use std::cell::{Cell, UnsafeCell};
use std::rc::Rc;

/// Our own bit in `instrument_options`: tells parallel workers to measure as their leader does.
pub const OURS: i32 = 1 << 24;
pub const TIMER: i32 = pg_sys::InstrumentOption::INSTRUMENT_TIMER as i32;
pub const BUFFERS: i32 = pg_sys::InstrumentOption::INSTRUMENT_BUFFERS as i32;
pub const ROWS: i32 = pg_sys::InstrumentOption::INSTRUMENT_ROWS as i32;
pub const WAL: i32 = pg_sys::InstrumentOption::INSTRUMENT_WAL as i32;

pub struct Statement {
    query: *mut QueryDesc,
    /// Linked into the statement's query context, which owns the statement by it.
    callback: pg_sys::MemoryContextCallback,
    /// Nothing more is to be done with it; it only waits for its context to go.
    closed: Cell<bool>,
    /// In `place`, as many as `count`.
    pub nodes: *mut Node,
    pub count: usize,
    place: Vec<Node>,
    /// Somebody else will read core's instrumentation: its figures are to be there.
    pub published: bool,
    /// Core measures some of its nodes, or workers report some.
    pub by_core: bool,
    /// Its set-up holds for all executions of the plan.
    renewable: bool,
    /// False where core measures everything itself (EXPLAIN ANALYZE while `pg_rowsource.explain` is off).
    pub wrapped: bool,
    pub detail: Detail,
    pub sampfreq: i32,
    pub clock: Source,
    /// Which calls are timed.
    pub timed: Timed,
    /// Nanoseconds of a tick of the clock.
    pub tick_ns: f64,
    config: Config,
    /// Sent by a client, not by a function.
    toplevel: bool,
    /// What it is recorded as; nothing in a parallel worker.
    plan: Option<(Rc<KnownPlan>, Rc<PlanDescription>)>,
    /// The description's literals are those of an earlier execution.
    older_literals: bool,
    /// Booked to by its address.
    outside: UnsafeCell<Usage>,
    /// Nanoseconds in ExecutorRun and ExecutorFinish.
    pub elapsed_ns: Cell<f64>,
    installed: Cell<bool>,
    ran: Cell<bool>,
    recorded: Cell<bool>,
    /// A run of it is on the stack.
    running: Cell<bool>,
    /// What that run replaced.
    entered: Entered,
    /// How it ended; what has not failed completes.
    outcome: Cell<Outcome>,
    /// It called rowsource_display(), and so is never "the last statement".
    displaying: Cell<bool>,
    channel: Cell<Option<parallel::Channel>>,
}

/// How many statements query contexts own.
static OPEN: BackendLocal<Cell<usize>> = BackendLocal::new(Cell::new(0));
/// The innermost statement that is running; each knows the next one.
static RUNNING: BackendLocal<Cell<*const Statement>> = BackendLocal::new(Cell::new(std::ptr::null()));

/// What a run of a statement replaced, to be put back when it is left by any way.
struct Entered {
    account: Cell<*mut Usage>,
    /// The counters then, where a node asked for the run: all that it uses also belongs to that node.
    booked: Cell<Option<Usage>>,
    outer: Cell<Option<timing::Outer>>,
    /// The statement that was running.
    within: Cell<*const Statement>,
    /// Whether times of temporary files went to nodes.
    tempfile_times: Cell<bool>,
    start: Cell<u64>,
}

impl Entered {
    /// Returns what stands there before the first run.
    const fn nothing() -> Entered {
        Entered {
            account: Cell::new(std::ptr::null_mut()),
            booked: Cell::new(None),
            outer: Cell::new(None),
            within: Cell::new(std::ptr::null()),
            tempfile_times: Cell::new(false),
            start: Cell::new(0),
        }
    }
}

/// The open statement of a started query.
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
    unsafe { of((*query).estate).filter(|statement| !statement.closed.get()) }
}

/// The statement that an execution state's memory owns. Its callback is the first one, but for those that others linked
/// in since it started.
///
/// # Safety
/// * `estate` must be null or live.
/// * The reference must not be used after `estate` has gone.
unsafe fn of(estate: *mut pg_sys::EState) -> Option<&'static Statement> {
    // SAFETY: a live execution state has a query context, whose callbacks are a list that ends with null. Only `hand_to`
    // registers `GONE`, with a statement that lives until the context has called it.
    unsafe {
        let estate = estate.as_ref()?;
        let mut callback = (*estate.es_query_cxt).reset_cbs;
        while let Some(linked) = callback.as_ref() {
            if linked
                .func
                .is_some_and(|function| std::ptr::fn_addr_eq(function, GONE))
            {
                return linked.arg.cast::<Statement>().as_ref();
            }
            callback = linked.next;
        }
        None
    }
}

/// The statements that are running now asked for a display: none of them is to be the last statement.
pub fn displaying() {
    let mut running = RUNNING.get();
    // SAFETY: a statement leaves this list before its memory goes: in `leave`, or in `gone`.
    while let Some(statement) = unsafe { running.as_ref() } {
        statement.displaying.set(true);
        running = statement.entered.within.get();
    }
}

/// Whether a measured statement is running, so that a new one is nested in it.
fn any_running() -> bool {
    !RUNNING.get().is_null()
}

/// What a statement's query context calls when it goes.
const GONE: unsafe extern "C-unwind" fn(*mut std::ffi::c_void) = context_gone;

/// Takes a statement back from its query's context, which goes.
///
/// # Safety
/// To be called by a memory context only, once, with the address that `hand_to` registered.
#[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot.rowsource"))]
unsafe extern "C-unwind" fn context_gone(statement: *mut std::ffi::c_void) {
    OPEN.set(OPEN.get() - 1);
    // SAFETY: `hand_to` made this address of a box, and gave it to the context, which calls this once. Whoever else finds
    // the statement does so through this context, which is going.
    let statement = unsafe { Box::from_raw(statement.cast::<Statement>()) };
    // Nothing may be raised while a memory context goes.
    let _ = server::caught(|| gone(statement));
}

/// The memory of a statement goes. If it is lost (its memory goes without ExecutorEnd), figures that were not recorded
/// yet are, as far as they got; that is done from our own memory only, for core's may be gone. What was running when
/// its session ended was cancelled. A client's cursor that a rollback closes had not failed itself; what an error left
/// half-way inside another statement had.
fn gone(statement: Box<Statement>) {
    let current = usage::current();
    if !usage::is_outside(current) && statement.owns(current) {
        // SAFETY: the running account is the statement's, whose memory is still there.
        unsafe { usage::switch_outside() };
    }
    if statement.running.get() {
        // Only the end of the session takes memory away from under a run, and then from all of them.
        RUNNING.set(std::ptr::null());
    }
    if statement.is_unrecorded() && !statement.closed.get() {
        if statement.running.get() {
            statement.outcome.set(Outcome::Cancelled);
        } else if !statement.toplevel && statement.outcome.get() == Outcome::Completed {
            statement.outcome.set(Outcome::Failed);
        }
        statement.record(false);
    }
    spare::keep(statement);
}

impl Statement {
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Which calls are timed, from the settings.
    fn timed(detail: Detail, sampfreq: i32, clock: Source) -> Timed {
        match (detail, sampfreq, clock) {
            (Detail::Timed, 1, Source::Tsc) => Timed::EveryTsc,
            (Detail::Timed, 1, _) => Timed::Every,
            (Detail::Timed, ..) => Timed::Sampled,
            _ => Timed::Never,
        }
    }

    /// Whether its wrappers read a clock.
    fn is_timed(&self) -> bool {
        self.wrapped && self.detail == Detail::Timed
    }

    /// Enters a run: the statement's clock and accounts come in force. False where they are already.
    ///
    /// # Safety
    /// * The statement's query must be started, and its plan states live.
    /// * Where this returns true, [`Statement::leave`] must be called on every way out, before the query ends.
    #[inline(always)]
    pub unsafe fn enter(&self) -> bool {
        if self.running.get() {
            return false;
        }
        let timed = self.is_timed();
        self.ran.set(true);
        self.running.set(true);
        self.entered.within.set(RUNNING.get());
        RUNNING.set(self);
        if self.wrapped {
            // SAFETY: the caller's statement is started. A run begins before its plan starts workers.
            unsafe {
                self.install();
                if let Some(mut channel) = self.channel.take() {
                    // Without it the workers' sampling counts are missing, and nothing else.
                    let _ = server::caught(|| channel.announce(self.plan_node_ids()));
                    self.channel.set(Some(channel));
                }
            }
        }
        let entered = &self.entered;
        // SAFETY: the outside account lives as long as the statement, which is left, or gone, before it is dropped.
        let account = unsafe { usage::switch(self.outside.get()) };
        entered.account.set(account);
        entered.booked.set(None);
        if !usage::is_outside(account) {
            entered.booked.set(Some(usage::booked()));
        }
        let per_node = self.wrapped && self.detail != Detail::Rows;
        entered.tempfile_times.set(tempfile::calls::per_node(per_node));
        if timed {
            entered
                .outer
                .set(timing::enter(self.clock, self.tick_ns, &self.config));
            entered.start.set(timing::last());
        } else {
            entered.start.set(self.clock.read());
        }
        true
    }

    /// Leaves a run.
    ///
    /// # Safety
    /// To be called once for each [`Statement::enter`] that returned true, after all runs inside this one were left: the
    /// account that was running then must still be live.
    #[inline(always)]
    pub unsafe fn leave(&self) {
        let entered = &self.entered;
        self.running.set(false);
        RUNNING.set(entered.within.get());
        let end = self.clock.read();
        let elapsed = clock::elapsed(entered.start.get(), end).unwrap_or(0) as f64 * self.tick_ns;
        self.elapsed_ns.set(self.elapsed_ns.get() + elapsed);
        if self.is_timed() {
            // SAFETY: only `enter` writes it, and `timing` does not come back here.
            timing::leave(unsafe { (*entered.outer.as_ptr()).as_ref() });
        }
        tempfile::calls::per_node(entered.tempfile_times.get());
        let account = entered.account.get();
        // SAFETY: the account that was running before belongs to the surrounding statement, or to none. It is live by the
        // caller's promise. Only `enter` writes what was booked, and `usage` does not come back here.
        unsafe {
            usage::switch(account);
            if let Some(booked) = &*entered.booked.as_ptr() {
                usage::add_since(account, booked);
            }
        }
    }

    /// An error is leaving the run: notes how the statement ends by it, which nodes' calls it interrupts, and when those
    /// began. The innermost is the one whose account is running; each knows its caller's account.
    ///
    /// # Safety
    /// The statement must have been entered, and not yet left: its nodes' accounts are live.
    pub unsafe fn interrupt(&self, outcome: Outcome) {
        self.outcome.set(outcome);
        if !self.wrapped {
            return;
        }
        // SAFETY: `node_of_account` returns nodes of this statement only, which live as long as it. A node's caller is a
        // live account while the statement is entered.
        unsafe {
            let now = self.clock.read();
            let mut account = usage::current();
            while let Some(node) = self.node_of_account(account) {
                if (*node).interrupted.is_some() {
                    break;
                }
                (*node).interrupted = Some(now.saturating_sub((*node).before));
                account = (*node).caller;
            }
        }
    }

    /// Returns the node of this statement in which an address lies, if there is one.
    fn node_of_account(&self, account: *mut Usage) -> Option<*mut Node> {
        let offset = (account as usize).checked_sub(self.nodes as usize)?;
        // SAFETY: the index is below `count`, so that the result stays within the array of nodes.
        (offset < self.count * size_of::<Node>())
            .then(|| unsafe { self.nodes.add(offset / size_of::<Node>()) })
    }

    /// Whether an account is one of its own.
    fn owns(&self, account: *mut Usage) -> bool {
        std::ptr::eq(account, self.outside.get()) || self.node_of_account(account).is_some()
    }

    /// Computes the figures, publishes them to core's struct, and keeps them with the session.
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot.rowsource"))]
    pub fn record(&self, core_alive: bool) {
        if self.recorded.replace(true) {
            return;
        }
        if !core_alive {
            // An abort has taken the workers' memory away; that is not to be looked at.
            self.channel.set(None);
        }
        if self.by_core {
            // SAFETY: the nodes are live until the statement is closed.
            unsafe { self.note_unwrapped() };
        }
        let outcome = self.outcome.get();
        harvest::with_scratch(|scratch| {
            let mut histograms = SmallVec::new();
            // SAFETY: the nodes live as long as the statement, and so longer than the references to their histograms. With
            // `core_alive` the plan states stand. The workers' histograms are added once, for `recorded` is set now.
            let known = unsafe {
                harvest::figures(self, core_alive, scratch) && harvest::histograms(self, &mut histograms)
            };
            if !known {
                // Without memory for its figures it is not on record.
                return;
            }
            let figures = &mut scratch.figures;
            let Some((plan, description)) = &self.plan else {
                // SAFETY: only a parallel worker's statement has no plan; its nodes are live.
                return unsafe { parallel::report(figures, &histograms, self) };
            };
            session::record(&mut session::Execution {
                plan,
                description,
                older_literals: self.older_literals,
                stats: figures,
                histograms: &histograms,
                run: Run {
                    outcome,
                    sampfreq: if self.wrapped { self.sampfreq } else { 1 },
                    clock: self.clock_name(),
                    elapsed_ms: self.elapsed_ns.get() / 1e6,
                    at: timing::time_of_day(self.clock, self.tick_ns),
                },
                last: core_alive && !self.displaying.get() && self.becomes_last(),
            });
        });
        if let (Outcome::Completed, Some(channel)) = (outcome, self.channel.take()) {
            channel.close();
        }
    }

    /// A statement of the client's is the last one; one inside a procedure or DO block is where the client's message
    /// has no other.
    fn becomes_last(&self) -> bool {
        static LAST_MESSAGE: BackendLocal<Cell<i64>> = BackendLocal::new(Cell::new(0));
        let message = server::message_time();
        if self.toplevel {
            LAST_MESSAGE.set(message);
        }
        self.toplevel || (!any_running() && LAST_MESSAGE.get() != message)
    }

    fn clock_name(&self) -> ClockName {
        match (self.wrapped, self.clock) {
            (false, _) => ClockName::Core,
            (true, Source::Tsc) => ClockName::Tsc,
            (true, Source::System) => ClockName::System,
            (true, Source::Coarse) => ClockName::Coarse,
            (true, Source::Syscall) => ClockName::Syscall,
        }
    }

    /// Nothing more is to be done with it.
    pub fn close(&self) {
        self.closed.set(true);
    }

    /// Whether it has run, and its figures are not on record yet.
    pub fn is_unrecorded(&self) -> bool {
        self.ran.get() && !self.recorded.get()
    }

    /// What parallel workers reported for a node.
    pub fn workers_report(&self, i: usize) -> parallel::Report {
        self.channel
            .get()
            .map(|channel| channel.read(self.plan_node_id(i)))
            .unwrap_or_default()
    }

    /// The workers' part of a node's histogram.
    pub fn histogram_from_workers(&self, i: usize) -> Option<Histogram> {
        self.channel.get()?.histogram(self.plan_node_id(i))
    }

    /// The planner's number for a node: the same in leader and workers.
    pub fn plan_node_id(&self, i: usize) -> i32 {
        assert!(i < self.count);
        // SAFETY: the statement has `count` nodes, of which `i` is one.
        unsafe { (*self.nodes.add(i)).plan_node_id }
    }

    fn plan_node_ids(&self) -> usize {
        (0..self.count)
            .map(|i| self.plan_node_id(i) + 1)
            .max()
            .and_then(|n| usize::try_from(n).ok())
            .unwrap_or(0)
    }
}
