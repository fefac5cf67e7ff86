//! The state of one measured statement, from ExecutorStart to its last figures.
//!
//! It hangs off the QueryDesc: cursors overlap, statements nest, and some never reach ExecutorEnd. The nodes live
//! in the statement's query context; a callback on that context takes the statement off the list whatever happens.

use super::node::Node;
use super::usage::Usage;
use super::wrapper::{self, Books, Timed};
use super::{compat, describe, harvest, identity, parallel, quiet, server, tick, timing, tree, usage};
use crate::guc::{self, Detail};
use crate::session::{self, PlanDescription, PlanKey};
use pgrx::pg_sys::{self, NodeTag, QueryDesc};
use rowsource_core::clock::{self, Source, measure_costs};
use rowsource_core::figures::Outcome;
use rowsource_core::sampler::Config;
use std::rc::Rc;

/// Our own bit in `instrument_options`: tells parallel workers to measure as their leader does.
pub const OURS: i32 = 1 << 24;
const TIMER: i32 = pg_sys::InstrumentOption::INSTRUMENT_TIMER as i32;
const BUFFERS: i32 = pg_sys::InstrumentOption::INSTRUMENT_BUFFERS as i32;
pub const ROWS: i32 = pg_sys::InstrumentOption::INSTRUMENT_ROWS as i32;
const WAL: i32 = pg_sys::InstrumentOption::INSTRUMENT_WAL as i32;

pub struct Statement {
    query: *mut QueryDesc,
    pub nodes: *mut Node,
    pub count: usize,
    /// False where core measures everything itself (EXPLAIN ANALYZE while `pg_rowsource.explain` is off).
    pub wrapped: bool,
    pub detail: Detail,
    pub sampfreq: i32,
    pub clock: Source,
    config: Config,
    pub key: PlanKey,
    description: Option<Rc<PlanDescription>>,
    /// The description's literals are those of an earlier execution.
    older_literals: bool,
    outside: Usage,
    /// Nanoseconds in ExecutorRun and ExecutorFinish.
    pub elapsed_ns: f64,
    installed: bool,
    ran: bool,
    recorded: bool,
    /// It called rowsource_display(), and so is never "the last statement".
    displaying: bool,
    channel: Option<parallel::Channel>,
}

/// Open statements, innermost last.
static mut OPEN: Vec<Box<Statement>> = Vec::new();

/// What a run of a statement replaced, to be put back when it is left by any way.
pub struct Entered {
    account: *mut Usage,
    /// The counters then: all that the run uses also belongs to the node that asked for it, if any.
    booked: Usage,
    clock: Option<timing::Outer>,
    start: u64,
}

#[allow(
    static_mut_refs,
    reason = "one thread; no reference is held across a call into PostgreSQL"
)]
fn open() -> &'static mut Vec<Box<Statement>> {
    // SAFETY: a backend has one thread.
    unsafe { &mut OPEN }
}

/// The open statement of a QueryDesc.
pub fn find(query: *mut QueryDesc) -> Option<&'static mut Statement> {
    open()
        .iter_mut()
        .rev()
        .find(|s| s.query == query)
        .map(|s| &mut **s)
}

/// The statements that are running now asked for a display: none of them is to be the last statement.
pub fn displaying() {
    for statement in open() {
        statement.displaying = true;
    }
}

/// Whether a measured statement is running, so that a new one is nested in it.
pub fn any_running() -> bool {
    open().iter().any(|s| s.ran && !s.recorded)
}

/// Sets a started statement up for measuring.
///
/// # Safety
/// `query` must have been started with our bits in its `instrument_options`.
pub unsafe fn attach(query: *mut QueryDesc, setting: &guc::Measuring, others_before: i32, toplevel: bool) {
    // SAFETY: the caller's promise; everything reached from a started QueryDesc is valid until its context goes.
    unsafe {
        let estate = (*query).estate;
        let root = (*query).planstate;
        if estate.is_null() || root.is_null() || (*estate).es_instrument & ROWS == 0 {
            return;
        }
        let others = others_before | ((*estate).es_instrument & !(OURS | ROWS));
        let wrapped = others & TIMER == 0 || guc::explain();
        let found = tree::walk(root);
        let count = found.len();
        let nodes: *mut Node =
            pg_sys::MemoryContextAllocZero((*estate).es_query_cxt, count * size_of::<Node>()).cast();
        for (i, place) in found.iter().enumerate() {
            let node = nodes.add(i);
            let kind = tree::tag(place.plan_state);
            (*node).plan_state = place.plan_state;
            (*node).parent = place.parent;
            (*node).depth = place.depth;
            (*node).edge = place.edge;
            (*node).under_gather = place.under_gather;
            (*node).hidden = place.hidden;
            (*node).by_expression = place.by_expression;
            (*node).by_core = matches!(
                kind,
                NodeTag::T_HashState
                    | NodeTag::T_BitmapIndexScanState
                    | NodeTag::T_BitmapAndState
                    | NodeTag::T_BitmapOrState
            );
        }
        let worker = server::is_parallel_worker();
        let has_gather = found.iter().any(|f| {
            matches!(
                tree::tag(f.plan_state),
                NodeTag::T_GatherState | NodeTag::T_GatherMergeState
            )
        });
        let clock = setting.clock;
        let (key, description, older_literals) = if worker {
            (PlanKey::default(), None, false)
        } else {
            let key = PlanKey {
                userid: server::user_id(),
                dbid: server::database_id(),
                queryid: (*(*query).plannedstmt).queryId as i64,
                planid: identity::plan_id(&found),
                toplevel,
            };
            let (description, older_literals) = describe::description(query, &key, count);
            (key, Some(description), older_literals)
        };
        let mut statement = Box::new(Statement {
            query,
            nodes,
            count,
            wrapped,
            detail: setting.detail,
            sampfreq: setting.sampfreq,
            clock,
            config: config(clock, setting.sampfreq),
            key,
            description,
            older_literals,
            outside: Usage::zero(),
            elapsed_ns: 0.0,
            installed: false,
            ran: false,
            recorded: false,
            displaying: false,
            channel: None,
        });
        if wrapped {
            statement.take_over(has_gather, others);
            if statement.detail == Detail::Timed {
                tick::prepare();
            }
        } else {
            // Core measures, in the workers too.
            (*estate).es_instrument &= !OURS;
        }
        statement.channel = (has_gather && !worker && wrapped).then(parallel::Channel::wanted);
        watch_context((*estate).es_query_cxt, query);
        open().push(statement);
    }
}

/// The sampler's configuration; the clock's costs are measured once per backend and clock.
fn config(source: Source, sampfreq: i32) -> Config {
    static mut COSTS: [Option<(f64, f64)>; Source::ALL.len()] = [None; Source::ALL.len()];
    // SAFETY: a backend has one thread.
    let known = unsafe { &mut (*(&raw mut COSTS))[source as usize] };
    let (empty, reading_ns) = *known.get_or_insert_with(|| {
        let cost = measure_costs(source);
        (cost.empty_interval_ticks as f64, cost.reading_ns)
    });
    let resolution_ns = if source == Source::Coarse {
        COARSE_RESOLUTION_NS
    } else {
        0.0
    };
    Config::new(
        sampfreq.max(1) as u32,
        source.scale().ns_per_tick(),
        empty,
        reading_ns,
        resolution_ns,
    )
}

/// One step of CLOCK_MONOTONIC_COARSE on the slowest kernels in use (100 Hz).
const COARSE_RESOLUTION_NS: f64 = 10e6;

/// When a statement's memory goes without ExecutorEnd, it was lost to an error.
unsafe fn watch_context(context: pg_sys::MemoryContext, query: *mut QueryDesc) {
    unsafe extern "C-unwind" fn gone(query: *mut std::ffi::c_void) {
        close(query.cast(), Some(Outcome::Failed));
    }
    // SAFETY: the callback lives as long as the context that runs it.
    unsafe {
        let callback: *mut pg_sys::MemoryContextCallback =
            pg_sys::MemoryContextAllocZero(context, size_of::<pg_sys::MemoryContextCallback>()).cast();
        (*callback).func = Some(gone);
        (*callback).arg = query.cast();
        pg_sys::MemoryContextRegisterResetCallback(context, callback);
    }
}

/// Takes a statement off the list. With an outcome, figures that were not recorded yet are, as far as they got;
/// that is done from our own memory only, for core's may be gone.
pub fn close(query: *mut QueryDesc, outcome: Option<Outcome>) {
    let list = open();
    let Some(at) = list.iter().rposition(|s| s.query == query) else {
        return;
    };
    let mut statement = list.remove(at);
    if let Some(outcome) = outcome
        && statement.ran
    {
        statement.record(outcome, false);
    }
}

impl Statement {
    /// Makes the nodes' state our own: `PlanState.instrument` moves into it, and says what core is to measure.
    unsafe fn take_over(&mut self, has_gather: bool, others: i32) {
        // SAFETY: nodes and plan states are live; core only ever reads `instrument` through the plan state.
        unsafe {
            let estate = (*self.query).estate;
            let timed = self.detail == Detail::Timed;
            let booked = self.detail != Detail::Rows;
            let reads = quiet::only_reads(self.query);
            for i in 0..self.count {
                let node = self.nodes.add(i);
                let ps = (*node).plan_state;
                if (*ps).instrument.is_null() {
                    continue;
                }
                (*node).instr = *(*ps).instrument;
                // Core's calls around shutdown only matter where workers or remote servers are shut down.
                let by_core = (*node).by_core
                    || (*ps).async_capable
                    || (*node).under_gather
                    || has_gather
                    || self.shuts_down(i);
                (*node).instr.need_timer = timed && by_core;
                (*node).instr.need_bufusage = booked && by_core;
                (*node).instr.need_walusage = booked && by_core;
                (*node).timer.start();
                (*node).method = Some(wrapper::method(self.timed(), self.books(i), reads));
                (*ps).instrument = &raw mut (*node).instr;
            }
            if has_gather {
                // What workers are to report.
                let mut options = (*estate).es_instrument | others;
                if timed {
                    options |= TIMER;
                }
                if booked {
                    options |= BUFFERS | WAL;
                }
                (*estate).es_instrument = options;
            }
        }
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    pub fn timed(&self) -> Timed {
        match (self.detail, self.sampfreq, self.clock) {
            (Detail::Timed, 1, Source::Tsc) => Timed::EveryTsc,
            (Detail::Timed, 1, _) => Timed::Every,
            (Detail::Timed, ..) => Timed::Sampled,
            _ => Timed::Never,
        }
    }

    unsafe fn books(&self, i: usize) -> Books {
        // SAFETY: `i` is one of the nodes.
        unsafe {
            let node = self.nodes.add(i);
            if self.detail == Detail::Rows {
                Books::None
            } else if (*node).by_expression {
                Books::Root
            } else if (*node).parent >= 0
                && quiet::scan_under_quiet_parent(
                    (*node).plan_state,
                    (*self.nodes.add((*node).parent as usize)).plan_state,
                )
            {
                Books::Exit
            } else {
                Books::Switch
            }
        }
    }

    /// Whether shutting this node or one below it down does work of its own.
    unsafe fn shuts_down(&self, i: usize) -> bool {
        // SAFETY: `i` is one of the nodes; a node's descendants follow it, deeper than it.
        unsafe {
            let depth = (*self.nodes.add(i)).depth;
            (i..self.count)
                .map(|j| self.nodes.add(j))
                .take_while(|node| std::ptr::eq(*node, self.nodes.add(i)) || (**node).depth > depth)
                .any(|node| {
                    matches!(
                        tree::tag((*node).plan_state),
                        NodeTag::T_ForeignScanState | NodeTag::T_CustomScanState
                    )
                })
        }
    }

    /// Puts the wrappers in place. At the first run, not at the start: Parallel Hash resets `ExecProcNode` in a
    /// worker between the two.
    unsafe fn install(&mut self) {
        if self.installed {
            return;
        }
        self.installed = true;
        // SAFETY: the statement's own nodes.
        unsafe {
            for i in 0..self.count {
                let node = self.nodes.add(i);
                if !(*node).by_core && (*node).method.is_some() {
                    let gather = matches!(
                        tree::tag((*node).plan_state),
                        NodeTag::T_GatherState | NodeTag::T_GatherMergeState
                    );
                    let first = if gather {
                        gather_first_call
                    } else {
                        wrapper::first_call
                    };
                    (*node).installed = Some(first);
                    (*(*node).plan_state).ExecProcNode = (*node).installed;
                }
            }
        }
    }

    /// Parallel Hash also resets it in the leader, inside the Gather's first call: put the wrapper back, and
    /// remember what was used below while core measured the node.
    unsafe fn reinstall_below(&mut self, gather: *mut pg_sys::PlanState) {
        // SAFETY: the statement's own nodes.
        unsafe {
            for i in 0..self.count {
                let node = self.nodes.add(i);
                let ps = (*node).plan_state;
                // Addresses that we put there ourselves; core's own are not known to us.
                let address = |method: pg_sys::ExecProcNodeMtd| method.map_or(0, |m| m as usize);
                let present = address((*ps).ExecProcNode);
                let wrapped = present == address((*node).method) || present == address((*node).installed);
                if ps != gather && (*node).under_gather && !(*node).by_core && !wrapped {
                    (*ps).ExecProcNode = (*node).method;
                    let (buffers, wal) = harvest::used_below(self.nodes, self.count, i);
                    (*node).below_unwrapped = buffers;
                    (*node).wal_below_unwrapped = wal;
                }
            }
        }
    }

    /// Enters a run: the statement's clock and accounts come in force.
    ///
    /// # Safety
    /// Main thread; pair with [`Statement::leave`] on every way out.
    pub unsafe fn enter(&mut self) -> Entered {
        // SAFETY: the outside account lives as long as the statement, which leaves before it is dropped.
        unsafe {
            self.ran = true;
            if self.wrapped {
                self.install();
                let slots = self.plan_node_ids();
                if let Some(channel) = &mut self.channel {
                    channel.announce(slots);
                }
            }
            let account = usage::switch(&raw mut self.outside);
            let clock = (self.wrapped && self.detail == Detail::Timed)
                .then(|| timing::enter(self.clock, self.config));
            Entered {
                account,
                booked: usage::BOOKED,
                clock,
                start: self.clock.read_fn()(),
            }
        }
    }

    /// Leaves a run; `outermost` also stops the tick.
    ///
    /// # Safety
    /// Main thread, once per [`Statement::enter`].
    pub unsafe fn leave(&mut self, entered: &Entered, outermost: bool) {
        // SAFETY: as promised.
        unsafe {
            let end = self.clock.read_fn()();
            self.elapsed_ns += self
                .clock
                .scale()
                .nanoseconds(clock::elapsed(entered.start, end).unwrap_or(0));
            if outermost {
                tick::disarm();
            }
            if let Some(outer) = &entered.clock {
                timing::leave(outer);
            }
            usage::switch(entered.account);
            usage::add_since(entered.account, &raw const entered.booked);
        }
    }

    /// An error is leaving the run: notes which nodes' calls it interrupts, and when those began. The innermost is
    /// the one whose account is running; each knows its caller's account.
    ///
    /// # Safety
    /// Main thread, before [`Statement::leave`].
    pub unsafe fn interrupt(&mut self) {
        if !self.wrapped {
            return;
        }
        // SAFETY: accounts within the statement's nodes belong to live nodes.
        unsafe {
            let now = self.clock.read_fn()();
            let mut account = usage::CURRENT;
            while let Some(node) = self.node_of_account(account) {
                if (*node).interrupted.is_some() {
                    break;
                }
                (*node).interrupted = Some(now.saturating_sub((*node).before));
                account = (*node).caller;
            }
            for i in 0..self.count {
                let node = self.nodes.add(i);
                // A scan that books at exit only is never the running account: its last call brought no row yet.
                if self.books(i) == Books::Exit
                    && (*self.nodes.add((*node).parent as usize)).interrupted.is_some()
                    && (*node).interrupted.is_none()
                    && (*node).timer.calls() > (*node).rows
                {
                    (*node).interrupted = Some(now.saturating_sub((*node).before));
                }
            }
        }
    }

    unsafe fn node_of_account(&self, account: *mut Usage) -> Option<*mut Node> {
        let offset = (account as usize).checked_sub(self.nodes as usize)?;
        // SAFETY: within the array.
        (offset < self.count * size_of::<Node>())
            .then(|| unsafe { self.nodes.add(offset / size_of::<Node>()) })
    }

    /// Computes the figures, publishes them to core's struct, and keeps them with the session.
    pub fn record(&mut self, outcome: Outcome, core_alive: bool) {
        if self.recorded {
            return;
        }
        self.recorded = true;
        // SAFETY: the nodes are live until the statement is closed.
        let figures = unsafe { harvest::figures(self, core_alive) };
        if let (Outcome::Completed, Some(channel)) = (outcome, self.channel.take()) {
            channel.close();
        }
        if server::is_parallel_worker() {
            // SAFETY: in a worker whose leader announced a channel.
            unsafe { parallel::report(&figures, self) };
            return;
        }
        let Some(description) = self.description.clone() else {
            return;
        };
        session::record(session::Execution {
            key: self.key,
            description,
            older_literals: self.older_literals,
            figures,
            outcome,
            sampfreq: if self.wrapped { self.sampfreq } else { 1 },
            clock: if self.wrapped { self.clock.name() } else { "core" },
            elapsed_ms: self.elapsed_ns / 1e6,
            last: core_alive && !self.displaying && (self.key.toplevel || !any_running()),
        });
    }

    /// The regular end: what has run is on record afterwards.
    pub fn end(&mut self) {
        if self.ran {
            self.record(Outcome::Completed, true);
        }
    }

    /// What parallel workers reported for a node.
    pub fn from_workers(&self, i: usize) -> parallel::Report {
        self.channel
            .as_ref()
            .map(|channel| channel.read(self.plan_node_id(i)))
            .unwrap_or_default()
    }

    /// The planner's number for a node: the same in leader and workers.
    pub fn plan_node_id(&self, i: usize) -> i32 {
        // SAFETY: `i` is one of the nodes, whose plan states have plans.
        unsafe { (*(*(*self.nodes.add(i)).plan_state).plan).plan_node_id }
    }

    fn plan_node_ids(&self) -> usize {
        (0..self.count)
            .map(|i| self.plan_node_id(i) + 1)
            .max()
            .and_then(|n| usize::try_from(n).ok())
            .unwrap_or(0)
    }
}

/// The wrapper of a Gather's first call.
unsafe extern "C-unwind" fn gather_first_call(ps: *mut pg_sys::PlanState) -> *mut pg_sys::TupleTableSlot {
    // SAFETY: called by the executor for a node of an open statement. The list is looked at only after the call.
    unsafe {
        let slot = wrapper::first_call(ps);
        let node = Node::of(ps);
        if let Some(statement) = open().iter_mut().rev().find(|s| {
            let nodes = s.nodes as usize..s.nodes.add(s.count) as usize;
            nodes.contains(&(node as usize))
        }) {
            statement.reinstall_below(ps);
        }
        slot
    }
}

/// Sets a node's finished totals where EXPLAIN reads them.
pub unsafe fn publish(node: *mut Node, total_ns: f64, startup_ns: f64, rows: f64, loops: f64) {
    // SAFETY: a live node.
    unsafe { compat::set_core_totals(&mut (*node).instr, total_ns, startup_ns, rows, loops) }
}
