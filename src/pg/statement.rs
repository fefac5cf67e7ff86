//! The state of one measured statement, from ExecutorStart to its last figures.
//!
//! It hangs off the QueryDesc: cursors overlap, statements nest, and some never reach ExecutorEnd. A callback on the
//! statement's query context gives it back whatever happens, when nobody can look at its nodes any more. That callback
//! is also how the statement of a query is found.

mod setup;
mod spare;
mod wrap;

pub use setup::attach;

use super::node::Node;
use super::usage::Usage;
use super::wrapper::Timed;
use super::{harvest, parallel, server, tempfile, timing, usage};
use crate::guc::Detail;
use crate::session::{self, ClockName, KnownPlan, PlanDescription, Run};
use pgrx::pg_sys::{self, QueryDesc};
use rowsource_core::clock::{self, Source};
use rowsource_core::figures::Outcome;
use rowsource_core::histogram::Histogram;
use rowsource_core::sampler::Config;
use smallvec::SmallVec;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

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
    closed: bool,
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
    outside: Usage,
    /// Nanoseconds in ExecutorRun and ExecutorFinish.
    pub elapsed_ns: f64,
    installed: bool,
    ran: bool,
    recorded: bool,
    /// A run of it is on the stack.
    running: bool,
    /// What that run replaced.
    entered: Entered,
    /// How it ended; what has not failed completes.
    outcome: Outcome,
    /// It called rowsource_display(), and so is never "the last statement".
    displaying: bool,
    channel: Option<parallel::Channel>,
}

/// How many statements query contexts own.
static mut OPEN: usize = 0;
/// The innermost statement that is running; each knows the next one.
static mut RUNNING: *mut Statement = std::ptr::null_mut();

/// What a run of a statement replaced, to be put back when it is left by any way.
struct Entered {
    account: *mut Usage,
    /// The counters then, where a node asked for the run: all that it uses also belongs to that node.
    booked: Option<Usage>,
    outer: Option<timing::Outer>,
    /// The statement that was running.
    within: *mut Statement,
    /// Whether times of temporary files went to nodes.
    tempfile_times: bool,
    start: u64,
}

impl Entered {
    const NOTHING: Entered = Entered {
        account: std::ptr::null_mut(),
        booked: None,
        outer: None,
        within: std::ptr::null_mut(),
        tempfile_times: false,
        start: 0,
    };
}

/// The open statement of a started query.
///
/// # Safety
/// Main thread, with a valid QueryDesc. The reference must not outlive the query's execution state.
#[inline(always)]
pub unsafe fn find(query: *mut QueryDesc) -> Option<&'static mut Statement> {
    // SAFETY: the caller's promise.
    unsafe {
        if OPEN == 0 {
            return None;
        }
        of((*query).estate).filter(|statement| !statement.closed)
    }
}

/// The statement that an execution state's memory owns. Its callback is the first one, but for those that others linked
/// in since it started.
unsafe fn of(estate: *mut pg_sys::EState) -> Option<&'static mut Statement> {
    // SAFETY: an execution state has a query context; our own callback's argument is its statement.
    unsafe {
        let estate = estate.as_ref()?;
        let mut callback = (*estate.es_query_cxt).reset_cbs;
        while let Some(linked) = callback.as_ref() {
            if linked
                .func
                .is_some_and(|function| std::ptr::fn_addr_eq(function, GONE))
            {
                return linked.arg.cast::<Statement>().as_mut();
            }
            callback = linked.next;
        }
        None
    }
}

/// The statements that are running now asked for a display: none of them is to be the last statement.
pub fn displaying() {
    // SAFETY: one thread; running statements are live.
    unsafe {
        let mut running = RUNNING;
        while let Some(statement) = running.as_mut() {
            statement.displaying = true;
            running = statement.entered.within;
        }
    }
}

/// Whether a measured statement is running, so that a new one is nested in it.
fn any_running() -> bool {
    // SAFETY: one thread.
    unsafe { !RUNNING.is_null() }
}

/// What a statement's query context calls when it goes.
const GONE: unsafe extern "C-unwind" fn(*mut std::ffi::c_void) = context_gone;

#[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot.rowsource"))]
unsafe extern "C-unwind" fn context_gone(statement: *mut std::ffi::c_void) {
    // SAFETY: the statement's own address, given to its context when it started; called once.
    let statement = unsafe {
        OPEN -= 1;
        Box::from_raw(statement.cast::<Statement>())
    };
    // Nothing may be raised while a memory context goes.
    let _ = server::caught(|| gone(statement));
}

/// The memory of a statement goes. If it is lost (its memory goes without ExecutorEnd), figures that were not recorded
/// yet are, as far as they got; that is done from our own memory only, for core's may be gone. What was running when
/// its session ended was cancelled. A client's cursor that a rollback closes had not failed itself; what an error left
/// half-way inside another statement had.
fn gone(mut statement: Box<Statement>) {
    // SAFETY: one thread; the statement's accounts are live until it is kept or dropped.
    unsafe {
        if !usage::is_outside(usage::CURRENT) && statement.owns(usage::CURRENT) {
            usage::switch_outside();
        }
        if statement.running {
            // Only the end of the session takes memory away from under a run, and then from all of them.
            RUNNING = std::ptr::null_mut();
        }
    }
    if statement.is_unrecorded() && !statement.closed {
        if statement.running {
            statement.outcome = Outcome::Cancelled;
        } else if !statement.toplevel && statement.outcome == Outcome::Completed {
            statement.outcome = Outcome::Failed;
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
    /// Main thread; pair with [`Statement::leave`] on every way out.
    #[inline(always)]
    pub unsafe fn enter(&mut self) -> bool {
        if self.running {
            return false;
        }
        let timed = self.is_timed();
        // SAFETY: the outside account lives as long as the statement, which leaves before it is dropped.
        unsafe {
            self.ran = true;
            self.running = true;
            self.entered.within = RUNNING;
            RUNNING = self;
            if self.wrapped {
                self.install();
                if let Some(mut channel) = self.channel.take() {
                    // Without it the workers' sampling counts are missing, and nothing else.
                    let _ = server::caught(|| channel.announce(self.plan_node_ids()));
                    self.channel = Some(channel);
                }
            }
            let entered = &mut self.entered;
            entered.account = usage::switch(&raw mut self.outside);
            entered.booked = None;
            if !usage::is_outside(entered.account) {
                entered.booked = Some(usage::BOOKED);
            }
            entered.tempfile_times = tempfile::calls::per_node(self.wrapped && self.detail != Detail::Rows);
            if timed {
                entered.outer = timing::enter(self.clock, self.tick_ns, &self.config);
                entered.start = timing::LAST.load(Relaxed);
            } else {
                entered.start = self.clock.read();
            }
            true
        }
    }

    /// Leaves a run.
    ///
    /// # Safety
    /// Main thread, once per [`Statement::enter`].
    #[inline(always)]
    pub unsafe fn leave(&mut self) {
        // SAFETY: as promised.
        unsafe {
            self.running = false;
            RUNNING = self.entered.within;
            let entered = &self.entered;
            let end = self.clock.read();
            self.elapsed_ns += clock::elapsed(entered.start, end).unwrap_or(0) as f64 * self.tick_ns;
            if self.is_timed() {
                timing::leave(entered.outer.as_ref());
            }
            tempfile::calls::per_node(entered.tempfile_times);
            usage::switch(entered.account);
            if let Some(booked) = &entered.booked {
                usage::add_since(entered.account, booked);
            }
        }
    }

    /// An error is leaving the run: notes how the statement ends by it, which nodes' calls it interrupts, and when those
    /// began. The innermost is the one whose account is running; each knows its caller's account.
    ///
    /// # Safety
    /// Main thread, before [`Statement::leave`].
    pub unsafe fn interrupt(&mut self, outcome: Outcome) {
        self.outcome = outcome;
        if !self.wrapped {
            return;
        }
        // SAFETY: accounts within the statement's nodes belong to live nodes.
        unsafe {
            let now = self.clock.read();
            let mut account = usage::CURRENT;
            while let Some(node) = self.node_of_account(account) {
                if (*node).interrupted.is_some() {
                    break;
                }
                (*node).interrupted = Some(now.saturating_sub((*node).before));
                account = (*node).caller;
            }
        }
    }

    unsafe fn node_of_account(&self, account: *mut Usage) -> Option<*mut Node> {
        let offset = (account as usize).checked_sub(self.nodes as usize)?;
        // SAFETY: within the array.
        (offset < self.count * size_of::<Node>())
            .then(|| unsafe { self.nodes.add(offset / size_of::<Node>()) })
    }

    /// Whether an account is one of its own.
    fn owns(&self, account: *mut Usage) -> bool {
        // SAFETY: looks at addresses only.
        std::ptr::eq(account, &raw const self.outside) || unsafe { self.node_of_account(account) }.is_some()
    }

    /// Computes the figures, publishes them to core's struct, and keeps them with the session.
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot.rowsource"))]
    pub fn record(&mut self, core_alive: bool) {
        if self.recorded {
            return;
        }
        self.recorded = true;
        if !core_alive {
            // An abort has taken the workers' memory away; that is not to be looked at.
            self.channel = None;
        }
        if self.by_core {
            // SAFETY: the nodes are live until the statement is closed.
            unsafe { self.note_unwrapped() };
        }
        let outcome = self.outcome;
        harvest::with_scratch(|scratch| {
            let mut histograms = SmallVec::new();
            // SAFETY: as above.
            let known = unsafe {
                harvest::figures(self, core_alive, scratch) && harvest::histograms(self, &mut histograms)
            };
            if !known {
                // Without memory for its figures it is not on record.
                return;
            }
            let figures = &mut scratch.figures;
            let Some((plan, description)) = &self.plan else {
                // SAFETY: in a worker whose leader announced a channel.
                return unsafe { parallel::report(figures, &histograms, self) };
            };
            session::record(&mut session::Execution {
                plan,
                description,
                older_literals: self.older_literals,
                figures,
                histograms: &histograms,
                run: Run {
                    outcome,
                    sampfreq: if self.wrapped { self.sampfreq } else { 1 },
                    clock: self.clock_name(),
                    elapsed_ms: self.elapsed_ns / 1e6,
                    at: timing::time_of_day(self.clock, self.tick_ns),
                },
                last: core_alive && !self.displaying && self.becomes_last(),
            });
        });
        if let (Outcome::Completed, Some(channel)) = (outcome, self.channel.take()) {
            channel.close();
        }
    }

    /// A statement of the client's is the last one; one inside a procedure or DO block is where the client's message
    /// has no other.
    fn becomes_last(&self) -> bool {
        static mut LAST_MESSAGE: i64 = 0;
        let message = server::message_time();
        // SAFETY: a backend has one thread.
        unsafe {
            if self.toplevel {
                LAST_MESSAGE = message;
            }
            self.toplevel || (!any_running() && LAST_MESSAGE != message)
        }
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
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// Whether it has run, and its figures are not on record yet.
    pub fn is_unrecorded(&self) -> bool {
        self.ran && !self.recorded
    }

    /// What parallel workers reported for a node.
    pub fn workers_report(&self, i: usize) -> parallel::Report {
        self.channel
            .as_ref()
            .map(|channel| channel.read(self.plan_node_id(i)))
            .unwrap_or_default()
    }

    /// The workers' part of a node's histogram.
    pub fn histogram_from_workers(&self, i: usize) -> Option<Histogram> {
        self.channel.as_ref()?.histogram(self.plan_node_id(i))
    }

    /// The planner's number for a node: the same in leader and workers.
    pub fn plan_node_id(&self, i: usize) -> i32 {
        // SAFETY: `i` is one of the nodes.
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
