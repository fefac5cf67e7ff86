//! Turns the raw state of a statement's nodes into figures, once, when it has finished or failed.

use super::node::Node;
use super::statement::Statement;
use super::wrapper::Timed;
use super::{compat, server, tree, workarea};
use crate::guc::Detail;
use pgrx::pg_sys::{self, NodeTag};
use rowsource_core::figures::{Buffers, NodeFigures, Time, Wal};
use rowsource_core::histogram::Histogram;
use rowsource_core::reconcile::{Item, reconcile};
use rowsource_core::sampler::Estimate;
use smallvec::SmallVec;
use std::cell::Cell;

const NS_PER_MS: f64 = 1e6;

/// What node `i` and all inputs below it used while their wrappers booked. InitPlans and subplans are left out:
/// what they used was booked to the node that asked for them.
///
/// # Safety
/// `nodes` are the `count` live nodes of one statement.
pub unsafe fn used_below(nodes: *mut Node, count: usize, i: usize) -> (Buffers, Wal) {
    let mut sums = Vec::new();
    // SAFETY: the caller's promise.
    unsafe { used(nodes, count, &mut sums) };
    sums[i]
}

unsafe fn used(nodes: *mut Node, count: usize, sums: &mut Vec<(Buffers, Wal)>) {
    // SAFETY: as above; children follow their parents, so backwards every sum is complete when it is passed on.
    unsafe {
        sums.clear();
        sums.extend((0..count).map(|i| {
            let usage = &(*nodes.add(i)).usage;
            (compat::buffers(&usage.buffers), compat::wal(&usage.wal))
        }));
        for i in (1..count).rev() {
            let node = nodes.add(i);
            if !(*node).by_expression {
                let (buffers, wal) = sums[i];
                let parent = &mut sums[(*node).parent as usize];
                parent.0 += buffers;
                parent.1 += wal;
            }
        }
    }
}

/// The memory that figures are worked out in; kept, for most statements are short.
#[derive(Default)]
pub struct Scratch {
    pub figures: Vec<NodeFigures>,
    items: Vec<Item>,
    used: Vec<(Buffers, Wal)>,
}

/// Runs a body with memory for figures.
pub fn with_scratch(body: impl FnOnce(&mut Scratch)) {
    thread_local! {
        static SCRATCH: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
    }
    let mut scratch = SCRATCH.take().unwrap_or_default();
    body(&mut scratch);
    SCRATCH.set(Some(scratch));
}

/// Fills in the figures of all nodes that EXPLAIN would show, in its order. With `core_alive` (the statement's own
/// memory contexts still stand) work-area sizes are read too, and the totals are published to core's struct.
///
/// # Safety
/// The statement's nodes must be live.
pub unsafe fn figures(statement: &Statement, core_alive: bool, scratch: &mut Scratch) {
    // SAFETY: the caller's promise.
    unsafe {
        let count = statement.count;
        let Scratch {
            figures: all,
            items,
            used: sums,
        } = scratch;
        items.clear();
        items.extend((0..count).map(|i| item(statement, i)));
        let own = reconcile(items);
        used(statement.nodes, count, sums);
        all.clear();
        for i in 0..count {
            let node = statement.nodes.add(i);
            let instr = (*(*node).plan_state).instrument;
            if instr.is_null() {
                all.push(NodeFigures::default());
                continue;
            }
            let (buffers, wal) = inclusive(statement, node, sums[i]);
            let starts = starts(statement, node);
            let rows = rows(statement, node);
            let estimate = items[i].estimate;
            if statement.wrapped && statement.published && core_alive {
                compat::set_core_totals(&mut *instr, estimate.total, estimate.startup, rows, starts);
                if let (Some(buffers), Some(wal)) = (buffers, wal) {
                    compat::set_buffers(&mut compat::base(&mut *instr).bufusage, &as_core(buffers));
                    compat::set_wal(&mut compat::base(&mut *instr).walusage, &wal);
                }
            }
            if (*node).hidden {
                continue;
            }
            let timed = statement.detail == Detail::Timed && starts > 0.0;
            let (timed_calls, timer_calls, clock_backsteps) = timer_counts(statement, i);
            let (memory_kb, disk_kb) = if core_alive {
                workarea::size((*node).plan_state)
            } else {
                (None, None)
            };
            all.push(NodeFigures {
                starts: (statement.detail != Detail::Rows).then_some(starts as u64),
                rows: rows as u64,
                time: timed.then(|| Time {
                    total_ms: estimate.total / NS_PER_MS,
                    startup_ms: estimate.startup / NS_PER_MS,
                    self_ms: own[i] / NS_PER_MS,
                    error_ms: estimate.error / NS_PER_MS,
                }),
                buffers,
                wal,
                timed_calls,
                timer_calls,
                clock_backsteps,
                memory_kb,
                disk_kb,
            });
        }
    }
}

/// The histograms of the same nodes, the workers' calls included.
///
/// # Safety
/// The statement's nodes must be live, and stay so as long as the result; to be called once.
pub unsafe fn histograms<'a>(statement: &Statement) -> SmallVec<[&'a Histogram; 4]> {
    // SAFETY: the caller's promise.
    unsafe {
        let mut histograms = SmallVec::new();
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
        histograms
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

unsafe fn starts(statement: &Statement, node: *mut Node) -> f64 {
    // SAFETY: a live node with instrumentation.
    unsafe {
        let instr = (*(*node).plan_state).instrument;
        let interrupted = (*node).interrupted.is_some()
            || (statement.by_core && compat::core_interrupted_ns(&mut *instr).is_some());
        (*instr).nloops + f64::from(u8::from((*instr).running || interrupted))
    }
}

/// The starts in this process: without those that workers reported.
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

unsafe fn rows(statement: &Statement, node: *mut Node) -> f64 {
    // SAFETY: as above.
    unsafe {
        let instr = (*(*node).plan_state).instrument;
        let running = if (*instr).running {
            (*instr).tuplecount
        } else {
            0.0
        };
        let ends_seen = matches!(statement.timed, Timed::EveryTsc | Timed::Every);
        let wrapped = if (*node).is_drained && !ends_seen {
            // Each start ended with a call that brought no row, or was interrupted in one.
            ((*node).timer.calls() + (*node).every.calls) as f64 - own_starts(statement, node)
        } else {
            (*node).rows as f64
        };
        wrapped.max(0.0) + (*instr).ntuples + running
    }
}

/// Buffers and WAL of the node and all below: what core booked in its own calls, and what the wrappers booked,
/// less what they booked inside those calls of core.
unsafe fn inclusive(
    statement: &Statement,
    node: *mut Node,
    (used, wal_used): (Buffers, Wal),
) -> (Option<Buffers>, Option<Wal>) {
    // SAFETY: a live node with instrumentation.
    unsafe {
        let instr = (*(*node).plan_state).instrument;
        let base = compat::base(&mut *instr);
        if !statement.wrapped {
            return (
                base.need_bufusage.then(|| compat::buffers(&base.bufusage)),
                base.need_walusage.then(|| compat::wal(&base.walusage)),
            );
        }
        if statement.detail == Detail::Rows {
            return (None, None);
        }
        if !statement.by_core {
            return (Some(used), Some(wal_used));
        }
        let mut buffers = compat::buffers(&base.bufusage);
        let mut wal = compat::wal(&base.walusage);
        if compat::core_interrupted_ns(&mut *instr).is_some() {
            let (interrupted, wal_interrupted) = compat::core_interrupted_usage(&mut *instr);
            buffers += interrupted;
            wal += wal_interrupted;
        }
        if !(*node).by_core {
            buffers += used;
            wal += wal_used;
            buffers -= (*node).below_unwrapped;
            wal -= (*node).wal_below_unwrapped;
        }
        (Some(buffers), Some(wal))
    }
}

/// A node's place and its time in nanoseconds, before the nodes are made to agree.
unsafe fn item(statement: &Statement, i: usize) -> Item {
    // SAFETY: the statement's nodes are live.
    unsafe {
        let node = statement.nodes.add(i);
        let instr = (*(*node).plan_state).instrument;
        let mut estimate = Estimate::default();
        if !instr.is_null() {
            estimate = own_estimate(statement, i);
            if statement.by_core {
                estimate.total += compat::core_total_ns(&mut *instr)
                    + compat::core_interrupted_ns(&mut *instr).unwrap_or(0.0);
                estimate.startup += compat::core_startup_ns(&mut *instr);
                let error = statement.workers_report(i).error_ns;
                estimate.error = estimate.error.hypot(error);
            }
            // The root ran inside the statement's own, exactly timed runs.
            if i == 0 && statement.wrapped && statement.detail == Detail::Timed {
                estimate.total = estimate.total.min(statement.elapsed_ns);
            }
        }
        let parent = usize::try_from((*node).parent).ok();
        let processes = parent.map_or(1.0, |p| processes((*statement.nodes.add(p)).plan_state));
        Item {
            parent,
            edge: (*node).edge,
            processes,
            estimate,
        }
    }
}

/// The processes that run the children of a node.
unsafe fn processes(parent: *mut pg_sys::PlanState) -> f64 {
    // SAFETY: casts follow the tag.
    unsafe {
        1.0 + f64::from(match tree::tag(parent) {
            NodeTag::T_GatherState => (*parent.cast::<pg_sys::GatherState>()).nworkers_launched,
            NodeTag::T_GatherMergeState => (*parent.cast::<pg_sys::GatherMergeState>()).nworkers_launched,
            _ => 0,
        })
    }
}

/// What this process's wrapper measured, in nanoseconds.
unsafe fn own_estimate(statement: &Statement, i: usize) -> Estimate {
    // SAFETY: the statement's nodes are live.
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
                let nested: u64 = descendants(statement, i).map(|d| 2 * (*d).every.calls).sum();
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

/// The nodes below node `i`.
unsafe fn descendants(statement: &Statement, i: usize) -> impl Iterator<Item = *mut Node> {
    // SAFETY: the statement's nodes are live; descendants follow a node directly, deeper than it.
    unsafe {
        let (nodes, depth) = (statement.nodes, (*statement.nodes.add(i)).depth);
        (i + 1..statement.count)
            .map(move |j| nodes.add(j))
            .take_while(move |node| (**node).depth > depth)
    }
}

/// Timed calls, timer calls and backward steps, the workers' included.
unsafe fn timer_counts(statement: &Statement, i: usize) -> (u64, u64, u64) {
    // SAFETY: the statement's nodes are live.
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
