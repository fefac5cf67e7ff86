//! Turns the raw state of a statement's nodes into figures, once, when it has finished or failed.

mod exact;

use super::backend_local::BackendLocal;
use super::hot::wrapper::Timed;
use super::node::Node;
use super::statement::Statement;
use super::{compat, server, tree, workarea};
use crate::guc::Detail;
use pgrx::pg_sys::{self, NodeTag};
use rowsource_core::histogram::Histogram;
use rowsource_core::model::{Buffers, NodeStats, Time, Wal};
use rowsource_core::reconcile::{Item, reconcile};
use rowsource_core::sampler::Estimate;
use smallvec::SmallVec;
use std::cell::Cell;

const NS_PER_MS: f64 = 1e6;

/// What each node and all inputs below it used while their wrappers booked. InitPlans and subplans are left out: what
/// they used was booked to the node that asked for them. `None` without memory.
///
/// # Safety
/// `nodes` are the `count` live nodes of one statement.
pub unsafe fn used_below(nodes: *mut Node, count: usize) -> Option<Vec<(Buffers, Wal)>> {
    let mut used: Vec<(Buffers, Wal)> = Vec::new();
    used.try_reserve_exact(count).ok()?;
    // SAFETY: there are `count` live nodes by the caller's promise; a parent's index is below its child's.
    unsafe {
        used.extend((0..count).map(|i| {
            let usage = &(*nodes.add(i)).usage;
            (compat::buffers(&usage.buffers), compat::wal(&usage.wal))
        }));
        // Children follow their parents, so backwards every sum is complete when it is passed on.
        for i in (1..count).rev() {
            let node = &*nodes.add(i);
            if !node.by_expression {
                let (above, below) = used.split_at_mut(i);
                let parent = &mut above[node.parent as usize];
                parent.0 += below[0].0;
                parent.1 += below[0].1;
            }
        }
    }
    Some(used)
}

/// The memory that figures are worked out in; kept, for most statements are short.
#[derive(Default)]
pub struct Scratch {
    pub figures: Vec<NodeStats>,
    items: Vec<Item>,
    /// Calls of all nodes below each node; filled in where every call reads the clock.
    calls_below: Vec<u64>,
}

impl Scratch {
    /// Memory for so many nodes is kept.
    const MOST_KEPT: usize = 128;

    /// Makes room for the figures of `count` nodes; false without memory.
    fn reserve(&mut self, count: usize) -> bool {
        fn room<T>(list: &mut Vec<T>, count: usize) -> bool {
            list.clear();
            list.try_reserve(count).is_ok()
        }
        room(&mut self.figures, count) && room(&mut self.items, count) && room(&mut self.calls_below, count)
    }
}

/// Runs a body with memory for figures.
#[inline(always)]
pub fn with_scratch(body: impl FnOnce(&mut Scratch)) {
    static SCRATCH: BackendLocal<Cell<Option<Box<Scratch>>>> = BackendLocal::new(Cell::new(None));
    let mut scratch = SCRATCH.take().unwrap_or_default();
    body(&mut scratch);
    if scratch.figures.capacity() <= Scratch::MOST_KEPT {
        SCRATCH.set(Some(scratch));
    }
}

/// Fills in the figures of all nodes that EXPLAIN would show, in its order. With `core_alive` (the statement's own
/// memory contexts still stand) work-area sizes are read too, and the totals are published to core's struct. False
/// without memory for them.
///
/// # Safety
/// The statement's nodes must be live.
#[inline(always)]
pub unsafe fn figures(statement: &Statement, core_alive: bool, scratch: &mut Scratch) -> bool {
    // SAFETY: the nodes are live by the caller's promise, and with `core_alive` their contexts stand.
    unsafe {
        exact::figures(statement, core_alive, &mut scratch.figures)
            || estimated(statement, core_alive, scratch).is_some()
    }
}

/// Fills in the figures where some times are estimated or measured by core. `None` without memory.
///
/// # Safety
/// * The statement's nodes and their plan states must be live.
/// * With `core_alive`, the memory contexts of the statement must still stand.
#[inline(never)]
unsafe fn estimated(statement: &Statement, core_alive: bool, scratch: &mut Scratch) -> Option<()> {
    let count = statement.count;
    if !scratch.reserve(count) {
        return None;
    }
    let (figures, items, calls_below) = (&mut scratch.figures, &mut scratch.items, &mut scratch.calls_below);
    // SAFETY: nodes and plan states are live by the caller's promise; indexes are below `count`.
    unsafe {
        if matches!(statement.timed, Timed::EveryTsc | Timed::Every) {
            sum_calls_below(statement, calls_below);
        }
        items.extend((0..count).map(|i| item(statement, i, calls_below)));
        let own = reconcile(items)?;
        figures.resize_with(count, NodeStats::default);
        for (i, figures) in figures.iter_mut().enumerate() {
            fill_in(figures, statement, i, &items[i].estimate, own[i], core_alive);
        }
        if statement.wrapped {
            add_upwards(statement, figures);
        }
        correct(statement, core_alive, scratch);
    }
    Some(())
}

/// Fills in the calls of all nodes below each node.
///
/// # Safety
/// The statement's nodes and their plan states must be live.
unsafe fn sum_calls_below(statement: &Statement, calls_below: &mut Vec<u64>) {
    calls_below.resize(statement.count, 0);
    // Children follow their parents, so backwards every sum is complete when it is passed on.
    for i in (1..statement.count).rev() {
        // SAFETY: the statement's nodes and their plan states are live by the caller's promise, and the index is one
        // of them.
        let node = unsafe { &*statement.nodes.add(i) };
        calls_below[node.parent as usize] += node.every.calls + calls_below[i];
    }
}

/// Takes in what core measured itself, and tells it what we did, if others will ask it.
///
/// # Safety
/// * The statement's nodes and their plan states must be live, and `scratch` filled in for them.
/// * With `core_alive`, the memory contexts of the statement must still stand.
unsafe fn correct(statement: &Statement, core_alive: bool, scratch: &mut Scratch) {
    let (figures, items) = (&mut scratch.figures, &scratch.items);
    // SAFETY: nodes and plan states are live by the caller's promise; there are figures for each node.
    unsafe {
        if statement.wrapped && statement.by_core {
            for (i, figures) in figures.iter_mut().enumerate() {
                add_core(statement.nodes.add(i), figures);
            }
        }
        if statement.wrapped && statement.published && core_alive {
            for (i, figures) in figures.iter().enumerate() {
                publish(statement, statement.nodes.add(i), &items[i].estimate, figures);
            }
        }
        // Only a root is ever hidden.
        if !figures.is_empty() && (*statement.nodes).hidden {
            figures.remove(0);
        }
    }
}

/// Fills in a node's own figures: blocks and WAL are those that its wrapper booked to itself. None where the statement
/// ended before the node had instrumentation.
///
/// # Safety
/// * The statement's nodes and their plan states must be live, and `i` be one of the nodes.
/// * With `core_alive`, the memory contexts of the statement must still stand.
unsafe fn fill_in(
    figures: &mut NodeStats,
    statement: &Statement,
    i: usize,
    estimate: &Estimate,
    own_ns: f64,
    core_alive: bool,
) {
    // SAFETY: the statement's nodes and their plan states are live by the caller's promise, and the index is one of
    // them.
    unsafe {
        let node = statement.nodes.add(i);
        let instr = (*(*node).plan_state).instrument;
        if instr.is_null() {
            *figures = NodeStats::default();
            return;
        }
        let starts = starts(statement, node);
        figures.starts = (statement.detail != Detail::Rows)
            .then_some(starts as i64 as u64)
            .into();
        figures.rows = rows(statement, node) as i64 as u64;
        let time = (statement.detail == Detail::Timed && starts > 0.0).then(|| Time {
            total_ms: estimate.total / NS_PER_MS,
            startup_ms: estimate.startup / NS_PER_MS,
            self_ms: own_ns / NS_PER_MS,
            error_ms: estimate.error / NS_PER_MS,
        });
        figures.time = time.into();
        (figures.timed_calls, figures.timer_calls, figures.clock_backsteps) = timer_counts(statement, i);
        let (memory_kb, disk_kb) = if core_alive {
            workarea::size((*node).plan_state)
        } else {
            (None, None)
        };
        (figures.memory_kb, figures.disk_kb) = (memory_kb.into(), disk_kb.into());
        let usage = &(*node).usage;
        let base = compat::base(&mut *instr);
        let (blocks, wal, buffers, wal_usage) = if statement.wrapped {
            let booked = statement.detail != Detail::Rows;
            (booked, booked, &usage.buffers, &usage.wal)
        } else {
            (
                base.need_bufusage,
                base.need_walusage,
                &base.bufusage,
                &base.walusage,
            )
        };
        figures.buffers = blocks.then(|| compat::buffers(buffers)).into();
        figures.wal = wal.then(|| compat::wal(wal_usage)).into();
    }
}

/// What the wrappers booked to each node also belongs to its parent, but for InitPlans and subplans: what they used
/// was booked to the node that asked for them.
///
/// # Safety
/// * The statement's nodes and their plan states must be live.
/// * `figures` must be those of the statement's nodes, one for each, from the first on.
#[inline(always)]
unsafe fn add_upwards(statement: &Statement, figures: &mut [NodeStats]) {
    // Children follow their parents, so backwards every sum is complete when it is passed on.
    for i in (1..figures.len()).rev() {
        // SAFETY: the statement's nodes and their plan states are live by the caller's promise, and the index is one
        // of them.
        let node = unsafe { &*statement.nodes.add(i) };
        if !node.by_expression {
            let (above, below) = figures.split_at_mut(i);
            above[node.parent as usize].use_also(&below[0]);
        }
    }
}

/// Adds what core booked in its own calls of a node, less what the wrappers below booked inside those.
///
/// # Safety
/// `node` must be live, and so must its plan state. Nobody may hold a reference to its instrumentation.
unsafe fn add_core(node: *mut Node, figures: &mut NodeStats) {
    let (Some(buffers), Some(wal)) = (figures.buffers.get_mut(), figures.wal.get_mut()) else {
        return;
    };
    // SAFETY: a live node with instrumentation, or there were no figures.
    unsafe {
        let instr = (*(*node).plan_state).instrument;
        let base = compat::base(&mut *instr);
        let (mut by_core, mut wal_by_core) = (compat::buffers(&base.bufusage), compat::wal(&base.walusage));
        if compat::core_interrupted_ns(&mut *instr).is_some() {
            let (interrupted, wal_interrupted) = compat::core_interrupted_usage(&mut *instr);
            by_core += interrupted;
            wal_by_core += wal_interrupted;
        }
        if (*node).by_core {
            (*buffers, *wal) = (by_core, wal_by_core);
        } else {
            *buffers += by_core;
            *wal += wal_by_core;
            *buffers -= (*node).below_unwrapped;
            *wal -= (*node).wal_below_unwrapped;
        }
    }
}

/// Gives core's struct the totals, for those who read it.
///
/// # Safety
/// * `node` must be one of the statement's nodes, which must be live with their plan states.
/// * Nobody may hold a reference to the instrumentation of its plan state.
unsafe fn publish(statement: &Statement, node: *mut Node, estimate: &Estimate, figures: &NodeStats) {
    // SAFETY: node and plan state are live by the caller's promise, and nobody holds a reference to the
    // instrumentation.
    unsafe {
        let instr = (*(*node).plan_state).instrument;
        if instr.is_null() {
            return;
        }
        let starts = starts(statement, node);
        compat::set_core_totals(
            &mut *instr,
            estimate.total,
            estimate.startup,
            figures.rows as f64,
            starts,
        );
        if let (Some(buffers), Some(wal)) = (figures.buffers.get(), figures.wal.get()) {
            compat::set_buffers(&mut compat::base(&mut *instr).bufusage, &as_core(buffers));
            compat::set_wal(&mut compat::base(&mut *instr).walusage, &wal);
        }
    }
}

/// Collects the histograms of the same nodes, the workers' calls included; false without memory.
///
/// # Safety
/// The statement's nodes must be live, and stay so as long as the result; to be called once.
#[inline(always)]
pub unsafe fn histograms(statement: &Statement, histograms: &mut SmallVec<[&Histogram; 4]>) -> bool {
    // SAFETY: the nodes are live by the caller's promise, and outlive the answer. Nobody else holds a reference to a
    // histogram.
    unsafe {
        if statement.count > histograms.inline_size()
            && histograms.try_reserve_exact(statement.count).is_err()
        {
            return false;
        }
        for i in 0..statement.count {
            let node = statement.nodes.add(i);
            if (*node).hidden {
                continue;
            }
            if let Some(workers) = statement.histogram_from_workers(i) {
                (*node).histogram.add(&workers);
            }
            histograms.push(&(*node).histogram);
        }
        true
    }
}

/// What EXPLAIN is to show: times of I/O where core takes them itself. A worker's are on their way to its leader.
fn as_core(buffers: Buffers) -> Buffers {
    if server::is_parallel_worker() || server::core_times_io() {
        return buffers;
    }
    Buffers {
        shared_read_ms: 0.0,
        shared_write_ms: 0.0,
        local_read_ms: 0.0,
        local_write_ms: 0.0,
        temp_read_ms: 0.0,
        temp_write_ms: 0.0,
        ..buffers
    }
}

/// Returns how often the node was started, the start in progress included.
///
/// # Safety
/// * `node` must be one of the statement's nodes, which must be live with their plan states.
/// * Its plan state must have instrumentation.
#[inline(always)]
unsafe fn starts(statement: &Statement, node: *mut Node) -> f64 {
    // SAFETY: the node is live by the caller's promise, and its plan state has instrumentation.
    unsafe {
        let instr = (*(*node).plan_state).instrument;
        let interrupted = (*node).interrupted.is_some()
            || (statement.by_core && compat::core_interrupted_ns(&mut *instr).is_some());
        (*instr).nloops + f64::from(u8::from((*instr).running || interrupted))
    }
}

/// The starts in this process: without those that workers reported.
///
/// # Safety
/// * `node` must be one of the statement's nodes, which must be live with their plan states.
/// * Its plan state must have instrumentation.
#[inline(never)]
unsafe fn own_starts(statement: &Statement, node: *mut Node) -> f64 {
    // SAFETY: a live node; the workers' array, where there is one, has `num_workers` entries.
    unsafe {
        let workers = (*(*node).plan_state).worker_instrument;
        if workers.is_null() {
            return starts(statement, node);
        }
        let workers = (*workers)
            .instrument
            .as_slice((*workers).num_workers.max(0) as usize);
        (starts(statement, node) - workers.iter().map(|worker| worker.nloops).sum::<f64>()).max(0.0)
    }
}

/// Returns how many rows the node returned, by our wrapper's count and by core's.
///
/// # Safety
/// * `node` must be one of the statement's nodes, which must be live with their plan states.
/// * Its plan state must have instrumentation.
#[inline(always)]
unsafe fn rows(statement: &Statement, node: *mut Node) -> f64 {
    // SAFETY: the node is live by the caller's promise, and its plan state has instrumentation.
    unsafe {
        let instr = (*(*node).plan_state).instrument;
        let running = if (*instr).running {
            (*instr).tuplecount
        } else {
            0.0
        };
        let ends_seen = matches!(statement.timed, Timed::EveryTsc | Timed::Every);
        let wrapped = if (*node).is_fused_scan && !ends_seen {
            // Each start ended with a call that brought no row, or was interrupted in one.
            ((*node).timer.calls() + (*node).every.calls) as f64 - own_starts(statement, node)
        } else {
            (*node).rows as i64 as f64
        };
        wrapped.max(0.0) + (*instr).ntuples + running
    }
}

/// A node's place and its time in nanoseconds, before the nodes are made to agree.
///
/// # Safety
/// * The statement's nodes and their plan states must be live, and `i` be one of the nodes.
/// * In `calls_below` there must be a number for each node where every call is timed.
unsafe fn item(statement: &Statement, i: usize, calls_below: &[u64]) -> Item {
    // SAFETY: the statement's nodes and their plan states are live by the caller's promise, and the index is one of
    // them.
    unsafe {
        let node = statement.nodes.add(i);
        let instr = (*(*node).plan_state).instrument;
        let mut estimate = Estimate::default();
        if !instr.is_null() {
            estimate = own_estimate(statement, i, calls_below);
            if statement.by_core {
                estimate.total += compat::core_total_ns(&mut *instr)
                    + compat::core_interrupted_ns(&mut *instr).unwrap_or(0.0);
                estimate.startup += compat::core_startup_ns(&mut *instr);
                let error = statement.workers_report(i).error_ns;
                estimate.error = estimate.error.hypot(error);
            }
            // The root ran inside the statement's own, exactly timed runs.
            if i == 0 && statement.wrapped && statement.detail == Detail::Timed {
                estimate.total = estimate.total.min(statement.elapsed_ns.get());
            }
        }
        let parent = usize::try_from((*node).parent).ok();
        let processes = match parent {
            Some(parent) => processes((*statement.nodes.add(parent)).plan_state),
            _ => 1.0,
        };
        Item {
            parent,
            edge: (*node).edge,
            processes,
            estimate,
        }
    }
}

/// The processes that run the children of a node.
///
/// # Safety
/// `parent` must point to an initialised plan state.
unsafe fn processes(parent: *mut pg_sys::PlanState) -> f64 {
    // SAFETY: the parent is an initialised plan state by the caller's promise, of the type that its tag says.
    unsafe {
        1.0 + f64::from(match tree::tag(parent) {
            NodeTag::T_GatherState => (*parent.cast::<pg_sys::GatherState>()).nworkers_launched,
            NodeTag::T_GatherMergeState => (*parent.cast::<pg_sys::GatherMergeState>()).nworkers_launched,
            _ => 0,
        })
    }
}

/// What this process's wrapper measured, in nanoseconds.
///
/// # Safety
/// * The statement's nodes and their plan states must be live, and `i` be one of the nodes.
/// * In `calls_below` there must be a number for each node where every call is timed.
unsafe fn own_estimate(statement: &Statement, i: usize, calls_below: &[u64]) -> Estimate {
    // SAFETY: the statement's nodes and their plan states are live by the caller's promise, and the index is one of
    // them.
    unsafe {
        let node = statement.nodes.add(i);
        let ns = statement.tick_ns;
        let ticks = match statement.timed {
            Timed::Never => return Estimate::default(),
            _ if !statement.wrapped => return Estimate::default(),
            Timed::Sampled => (*node)
                .timer
                .estimate(own_starts(statement, node), (*node).interrupted),
            Timed::EveryTsc | Timed::Every => {
                let every = &(*node).every;
                let nested = 2 * calls_below[i];
                let overhead = every.calls as f64 * statement.config().empty_interval
                    + nested as f64 * statement.config().reading;
                let total =
                    (every.ticks as f64 - overhead).max(0.0) + (*node).interrupted.unwrap_or(0) as f64;
                Estimate {
                    total,
                    startup: (every.startup_ticks as f64).min(total),
                    error: 0.0,
                }
            }
        };
        Estimate {
            total: ticks.total * ns,
            startup: ticks.startup * ns,
            error: ticks.error * ns,
        }
    }
}

/// Timed calls, timer calls and backward steps, the workers' included.
///
/// # Safety
/// The statement's nodes and their plan states must be live, and `i` be one of the nodes.
unsafe fn timer_counts(statement: &Statement, i: usize) -> (u64, u64, u64) {
    // SAFETY: the statement's nodes and their plan states are live by the caller's promise, and the index is one of
    // them.
    unsafe {
        let node = statement.nodes.add(i);
        let own = match statement.timed {
            _ if !statement.wrapped => (0, 0, 0),
            Timed::Never => (0, 0, 0),
            Timed::Sampled => {
                let timer = &(*node).timer;
                (timer.timed_calls, timer.timer_calls, timer.clock_backsteps)
            }
            Timed::EveryTsc | Timed::Every => {
                let every = &(*node).every;
                (every.calls, 2 * every.calls, every.clock_backsteps)
            }
        };
        let workers = statement.workers_report(i);
        (
            own.0 + workers.timed_calls,
            own.1 + workers.timer_calls,
            own.2 + workers.clock_backsteps,
        )
    }
}
