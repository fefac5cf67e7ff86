//! Sets a started statement up: allocates its nodes, makes their state ours, and decides what core measures itself.

use super::{BUFFERS, Entered, GONE, OPEN, OURS, ROWS, Statement, TIMER, WAL, spare};
use crate::guc::{self, Detail};
use crate::pg::backend_local::BackendLocal;
use crate::pg::hot::{tick, wrapper};
use crate::pg::node::Node;
use crate::pg::usage::Usage;
use crate::pg::{
    compat, describe, explain, identity, memory, parallel, raw, server, side_effects, store, tree,
};
use crate::session;
use pgrx::pg_sys::{self, NodeTag, QueryDesc};
use rand_core::SeedableRng;
use rand_xoshiro::Xoroshiro128PlusPlus;
use rowsource_core::clock::{self, Source, measure_costs};
use rowsource_core::model::{Outcome, PlanKey};
use rowsource_core::sampler::{BOOKKEEPING_NS, Config, LongCallEvidence, NodeTimer, TimedCall};
use std::cell::{Cell, UnsafeCell};

/// Sets a started statement up for measuring. `others_before` is what others had asked core for when it started, and
/// `added` what we had.
///
/// # Safety
/// `query` must have been started.
#[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot.rowsource"))]
pub unsafe fn attach(
    query: *mut QueryDesc,
    setting: &guc::Measuring,
    others_before: i32,
    added: i32,
    toplevel: bool,
) {
    // SAFETY: the caller's promise; everything reached from a started QueryDesc is valid until its context goes.
    unsafe {
        let estate = (*query).estate;
        let root = (*query).planstate;
        if estate.is_null() || root.is_null() || memory::is_short() {
            return;
        }
        let others = others_before | ((*estate).es_instrument & !added);
        // A worker is asked by our bit, which its leader only sets where it wraps; the rest is what it has to report.
        let worker = server::is_parallel_worker();
        let setting = &if others & TIMER != 0 {
            explain::with_auto_explain(setting)
        } else {
            *setting
        };
        let wrapped = worker || covers(setting, others);
        let found = tree::walk(root);
        if found.is_empty() {
            return;
        }
        let count = found.len();
        let key = PlanKey::new(
            server::user_id(),
            server::database_id(),
            compat::query_id(&*(*query).plannedstmt),
            identity::plan_id(&found, &*(*query).plannedstmt),
            toplevel,
        );
        let known = if others == 0 && !worker {
            spare::same(&key, setting, count)
        } else {
            None
        };
        let statement = match known {
            Some(mut statement) => {
                statement.renew(query, &found);
                statement
            }
            None => match set_up(query, setting, &found, key, others, wrapped) {
                Some(statement) => statement,
                None => return,
            },
        };
        statement.hand_to((*estate).es_query_cxt);
    }
}

/// Sets a statement up from nothing. `None` without memory for its nodes.
///
/// # Safety
/// `query` must be started, and `found` be all nodes of its plan states.
#[inline(never)]
unsafe fn set_up(
    query: *mut QueryDesc,
    setting: &guc::Measuring,
    found: &[tree::Found],
    key: PlanKey,
    others: i32,
    wrapped: bool,
) -> Option<Box<Statement>> {
    let worker = server::is_parallel_worker();
    let count = found.len();
    // SAFETY: `query` is started and `found` are its nodes, by the caller's promise. All that is reached from it is
    // valid until its context goes.
    unsafe {
        let (mut place, spare) = spare::any();
        let nodes = Node::fresh(&mut place, count)?;
        for (i, found) in found.iter().enumerate() {
            let node = nodes.add(i);
            let kind = tree::tag(found.plan_state);
            (*node).plan_state = found.plan_state;
            (*node).plan_node_id = (*(*found.plan_state).plan).plan_node_id;
            (*node).parent = found.parent;
            (*node).depth = found.depth;
            (*node).edge = found.edge;
            (*node).under_gather = found.under_gather;
            (*node).hidden = found.hidden;
            (*node).by_expression = found.by_expression;
            (*node).by_core = matches!(
                kind,
                NodeTag::T_HashState
                    | NodeTag::T_BitmapIndexScanState
                    | NodeTag::T_BitmapAndState
                    | NodeTag::T_BitmapOrState
            );
        }
        let has_gather = found.iter().any(|f| tree::is_gather(f.plan_state));
        let clock = setting.clock;
        let (plan, older_literals) = if worker {
            (None, false)
        } else {
            store::attach();
            let known = session::known(&key);
            let (description, older_literals) = describe::description(query, known.as_deref(), found)?;
            let plan = known.unwrap_or_else(|| session::newly_met(key, description.clone()));
            (Some((plan, description)), older_literals)
        };
        let detail = if wrapped {
            setting.detail
        } else {
            detail_of(others)
        };
        let statement = Statement {
            query,
            callback: pg_sys::MemoryContextCallback::default(),
            closed: Cell::new(false),
            nodes,
            count,
            place,
            published: worker || others != 0,
            by_core: !wrapped || has_gather,
            renewable: false,
            wrapped,
            detail,
            sampfreq: setting.sampfreq,
            clock,
            timed: Statement::timed(detail, setting.sampfreq, clock),
            tick_ns: clock.scale().ns_per_tick(),
            config: config(clock, setting.sampfreq),
            toplevel: key.toplevel(),
            plan,
            older_literals,
            outside: UnsafeCell::new(Usage::zero()),
            elapsed_ns: Cell::new(0.0),
            installed: Cell::new(false),
            ran: Cell::new(false),
            recorded: Cell::new(false),
            running: Cell::new(false),
            entered: Entered::nothing(),
            outcome: Cell::new(Outcome::Completed),
            displaying: Cell::new(false),
            channel: Cell::new(None),
        };
        let mut statement = spare::put(statement, spare)?;
        if wrapped {
            statement.take_over(has_gather, others);
            if statement.detail == Detail::Timed {
                tick::prepare();
            }
        } else {
            // Core measures, in the workers too.
            (*(*query).estate).es_instrument &= !OURS;
        }
        let channel = (has_gather && !worker && wrapped).then(parallel::Channel::wanted);
        statement.channel.set(channel);
        Some(statement)
    }
}

/// Whether what we measure is all that others (EXPLAIN, auto_explain) asked core for; else core measures itself.
fn covers(setting: &guc::Measuring, others: i32) -> bool {
    let times = others & TIMER == 0 || (setting.explain && setting.detail == Detail::Timed);
    let blocks = others & (BUFFERS | WAL) == 0 || setting.detail != Detail::Rows;
    times && blocks
}

/// What core measures for others.
fn detail_of(others: i32) -> Detail {
    if others & TIMER != 0 {
        Detail::Timed
    } else {
        Detail::Buffers
    }
}

/// The sampler's configuration, which seldom changes.
fn config(source: Source, sampfreq: i32) -> Config {
    static LAST: BackendLocal<Cell<Option<(Source, i32, Config)>>> = BackendLocal::new(Cell::new(None));
    match LAST.get() {
        Some((last, frequency, config)) if last == source && frequency == sampfreq => config,
        _ => {
            let config = new_config(source, sampfreq);
            LAST.set(Some((source, sampfreq, config)));
            config
        }
    }
}

/// Makes a configuration; what the clock and a sample cost is measured once per backend and clock.
fn new_config(source: Source, sampfreq: i32) -> Config {
    type Costs = Cell<Option<(f64, f64, f64)>>;
    static COSTS: BackendLocal<[Costs; Source::ALL.len()]> =
        BackendLocal::new([const { Cell::new(None) }; Source::ALL.len()]);
    let known = &COSTS[source as usize];
    let (empty, reading_ns, bookkeeping_ns) = known.get().unwrap_or_else(|| {
        let cost = measure_costs(source);
        (
            cost.empty_interval_ticks as f64,
            cost.reading_ns,
            bookkeeping_ns(),
        )
    });
    known.set(Some((empty, reading_ns, bookkeeping_ns)));
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
        bookkeeping_ns,
        resolution_ns,
    )
}

/// What a sample costs besides its readings: measured where it takes longer than usual, on a slow machine or under
/// an emulator; in a tight loop it takes less than among other work.
fn bookkeeping_ns() -> f64 {
    const SAMPLES: u32 = 64;
    let config = Config::new(128, 1.0, 0.0, 10.0, BOOKKEEPING_NS, 0.0);
    let mut random = Xoroshiro128PlusPlus::seed_from_u64(1);
    let mut timer = NodeTimer::default();
    timer.start();
    let start = clock::system::monotonic();
    for i in 0..u64::from(SAMPLES) {
        let call = TimedCall {
            before: 1000 * i,
            start: 1000 * i + 10,
            end: 1000 * i + 50,
            nested_readings: 0,
            did_io: false,
            first_of_start: false,
        };
        timer.record_timed(&config, &mut random, &call, &mut LongCallEvidence::default());
    }
    let measured = clock::system::monotonic().saturating_sub(start) as f64 / f64::from(SAMPLES);
    std::hint::black_box(timer);
    measured.max(BOOKKEEPING_NS)
}

/// One step of CLOCK_MONOTONIC_COARSE on the slowest kernels in use (100 Hz).
const COARSE_RESOLUTION_NS: f64 = 10e6;

impl Statement {
    /// Whether it has a queryid: only then do equal keys mean equal expressions.
    fn query_is_named(&self) -> bool {
        self.plan.as_ref().is_some_and(|(plan, _)| plan.key.queryid != 0)
    }

    /// Hands the statement to its query's memory, which gives it back when it goes, whatever becomes of the query.
    ///
    /// # Safety
    /// `context` must be the query context of the execution that the statement was set up for.
    unsafe fn hand_to(self: Box<Self>, context: pg_sys::MemoryContext) {
        // SAFETY: the callback lives in the statement, which stays where it is until the context has run it.
        unsafe {
            let statement = Box::into_raw(self);
            (*statement).callback.func = Some(GONE);
            (*statement).callback.arg = statement.cast();
            raw::MemoryContextRegisterResetCallback(context, &raw mut (*statement).callback);
            OPEN.set(OPEN.get() + 1);
        }
    }

    /// Begins another execution of the plan that this was set up for.
    ///
    /// # Safety
    /// * `query` must be started.
    /// * `found` must be all its plan states, in the same order and of the same kinds as those that the statement was
    ///   set up for.
    unsafe fn renew(&mut self, query: *mut QueryDesc, found: &[tree::Found]) {
        // SAFETY: as many nodes as were found; they were set up for a plan with the same nodes.
        unsafe {
            // First, for it may be cancelled, and nothing may point to nodes that go with it.
            if let Some((plan, description)) = &mut self.plan {
                if describe::is_of(description, query) {
                    self.older_literals = false;
                } else if let Some(described) = describe::description(query, Some(plan), found) {
                    (*description, self.older_literals) = described;
                }
            }
            for (i, found) in found.iter().enumerate() {
                let node = self.nodes.add(i);
                Node::reset_for_reexecution(node);
                (*node).timer.start();
                (*node).plan_state = found.plan_state;
                (*node).plan_node_id = (*(*found.plan_state).plan).plan_node_id;
                (*found.plan_state).instrument = &raw mut (*node).instr;
            }
            self.query = query;
            self.closed.set(false);
            self.elapsed_ns.set(0.0);
            self.installed.set(false);
            self.ran.set(false);
            self.recorded.set(false);
            self.running.set(false);
            self.outcome.set(Outcome::Completed);
            self.displaying.set(false);
        }
    }

    /// Makes the nodes' state our own: `PlanState.instrument` moves into it, and says what core is to measure.
    ///
    /// # Safety
    /// * The statement's query must be started, and its nodes have their plan states.
    /// * No node of it may have been run yet.
    pub(super) unsafe fn take_over(&mut self, has_gather: bool, others: i32) {
        // SAFETY: nodes and plan states are live; core only ever reads `instrument` through the plan state.
        unsafe {
            let estate = (*self.query).estate;
            // Else nobody had anything allocated, and the instrumentation is ours from the start.
            let core_measures = (*estate).es_instrument != 0;
            let timed = self.detail == Detail::Timed;
            let booked = self.detail != Detail::Rows;
            let reads = side_effects::is_read_only(
                self.query,
                (0..self.count).map(|i| (*self.nodes.add(i)).plan_state),
            );
            // What `side_effects` looks at beyond the plan's identity is not the same for all executions.
            self.renewable = !self.published && !reads && self.query_is_named();
            self.name_callers();
            self.pair_fused_scans();
            // From the last to the first, parents after their children: the depth from which on upwards the nodes next
            // in turn have one below them whose shutdown does work of its own.
            let mut above = 0;
            for i in (0..self.count).rev() {
                let node = self.nodes.add(i);
                let ps = (*node).plan_state;
                let shuts_down = (*node).depth < above || shuts_down(ps);
                if shuts_down {
                    above = (*node).depth;
                }
                if !(*ps).instrument.is_null() {
                    (*node).instr = *(*ps).instrument;
                } else if core_measures {
                    continue;
                }
                // Core's calls around shutdown only matter where workers or remote servers are shut down.
                let by_core = (*node).by_core
                    || (*ps).async_capable
                    || (*node).under_gather
                    || has_gather
                    || shuts_down;
                (*node).instr.async_mode = (*ps).async_capable;
                self.by_core |= by_core;
                let core = compat::base(&mut (*node).instr);
                // The timer also tells which calls an error interrupted.
                core.need_timer = booked && by_core;
                core.need_bufusage = booked && by_core;
                core.need_walusage = booked && by_core;
                (*node).timer.start();
                (*node).method = Some(wrapper::method(self.timed, self.accounting(i), reads));
                (*ps).instrument = &raw mut (*node).instr;
            }
            self.renewable &= !self.by_core;
            if has_gather {
                // What workers are to report.
                let mut options = (*estate).es_instrument | others | OURS | ROWS;
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
}

/// Whether shutting a node down does work of its own.
///
/// # Safety
/// `ps` must point to an initialised plan state.
unsafe fn shuts_down(ps: *mut pg_sys::PlanState) -> bool {
    // SAFETY: a plan state, which the caller promises, begins with its tag.
    let kind = unsafe { tree::tag(ps) };
    matches!(kind, NodeTag::T_ForeignScanState | NodeTag::T_CustomScanState)
}
