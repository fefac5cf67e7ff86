//! Computes the statistics of a statement's nodes from what was measured while it ran.
//!
//! All of it is pure. The extension hands over a [`NodeSample`] for each node, and a [`CoreSample`] where PostgreSQL
//! measured too.
//!
//! If every call of every node was timed by the wrappers alone, the times are exact, and [`assemble_exact`] computes the
//! statistics. Most statements are like that, and too short for anything more elaborate.
//!
//! [`assemble`] computes them in all other cases:
//!
//! 1. Each node's time is estimated, and what core timed is added.
//! 2. The estimates are made to agree ([`crate::reconcile`]).
//! 3. Buffers and WAL are summed up from the leaves to the root.
//! 4. Buffers and WAL that core counted in its own calls are added.

mod exact;
mod sample;

pub use exact::{assemble_exact, may_be_exact};
pub use sample::{Calls, CoreSample, Mode, NodeSample, Nodes, Place, StatementSample, WorkerReport};

use crate::model::{Measured, NodeStats, Time};
use crate::reconcile::{Item, reconcile};
use crate::sampler::Estimate;

const NS_PER_MS: f64 = 1e6;

/// The memory that statistics are computed in. It is kept between statements, for most are short.
#[derive(Default)]
pub struct Scratch {
    /// The statistics of all nodes, in the order of EXPLAIN.
    pub stats: Vec<NodeStats>,
    /// What the wrappers measured. Filled in by [`assemble`], and so are all that follow.
    samples: Vec<NodeSample>,
    /// What core measured. Empty where it measured nothing.
    cores: Vec<CoreSample>,
    /// The estimates. They agree with each other in the end.
    items: Vec<Item>,
    /// The calls of all nodes below each node. Filled in only where every call reads the clock.
    calls_below: Vec<u64>,
}

impl Scratch {
    /// Makes room for `count` nodes. Returns `None` without memory.
    fn reserve(&mut self, count: usize) -> Option<()> {
        fn room<T>(list: &mut Vec<T>, count: usize) -> Option<()> {
            list.clear();
            list.try_reserve(count).ok()
        }
        room(&mut self.stats, count)?;
        room(&mut self.samples, count)?;
        room(&mut self.cores, count)?;
        room(&mut self.items, count)?;
        room(&mut self.calls_below, count)
    }

    /// Returns the nodes' samples and totals, in nanoseconds, with their statistics: what core's struct is to show.
    pub fn totals(&self) -> impl Iterator<Item = Totals<'_>> {
        let nodes = self.samples.iter().zip(&self.items).zip(&self.stats);
        nodes
            .enumerate()
            .filter(|(_, ((sample, _), _))| sample.is_instrumented)
            .map(|(index, ((sample, item), stats))| Totals {
                index,
                starts: sample.starts(self.cores.get(index)),
                estimate: &item.estimate,
                stats,
            })
    }

    /// Removes the root's statistics if EXPLAIN does not show it. No other node is ever hidden.
    pub fn remove_hidden_root(&mut self) {
        if self.samples.first().is_some_and(|root| root.place.hidden) && !self.stats.is_empty() {
            self.stats.remove(0);
        }
    }
}

/// The totals of one node.
pub struct Totals<'a> {
    /// Its index among the statement's nodes.
    pub index: usize,
    /// How often it was started.
    pub starts: f64,
    /// Its time, in nanoseconds.
    pub estimate: &'a Estimate,
    /// Its statistics.
    pub stats: &'a NodeStats,
}

/// Fills in the statistics of all nodes, whoever measured them, and the hidden root included. Returns `None` without memory.
#[inline(never)]
pub fn assemble<N: Nodes>(nodes: &N, statement: &StatementSample, scratch: &mut Scratch) -> Option<()> {
    let count = nodes.count();
    scratch.reserve(count)?;
    let Scratch {
        stats,
        samples,
        cores,
        items,
        calls_below,
    } = scratch;
    samples.extend((0..count).map(|i| nodes.sample(i)));
    if statement.core_contributes {
        cores.extend((0..count).map(|i| nodes.core(i)));
    }
    if samples
        .iter()
        .any(|node| matches!(node.calls, Calls::Every { .. }))
    {
        calls_below.resize(count, 0);
        add_to_parents(
            calls_below,
            |i| samples[i].place.parent,
            |above, below, i| {
                *above += samples[i].calls.count() + below;
            },
        );
    }
    items.extend((0..count).map(|i| item(i, samples, cores.get(i), calls_below, statement)));
    let self_ns = reconcile(items)?;
    for (i, sample) in samples.iter().enumerate() {
        let core = cores.get(i);
        let estimate = &items[i].estimate;
        let time = (statement.is_timed && sample.starts(core) > 0.0).then(|| Time {
            total_ms: estimate.total / NS_PER_MS,
            startup_ms: estimate.startup / NS_PER_MS,
            self_ms: self_ns[i] / NS_PER_MS,
            error_ms: estimate.error / NS_PER_MS,
        });
        stats.push(NodeStats::default());
        fill_in(&mut stats[i], sample, core, statement, time);
    }
    if statement.mode != Mode::CoreOnly {
        add_usage_to_parents(stats, |i| samples[i].place);
        for (stats, core) in stats.iter_mut().zip(cores) {
            add_core_usage(stats, core);
        }
    }
    Some(())
}

/// Fills in a node's own statistics: blocks and WAL are those that its wrapper charged to itself. There are none for a
/// node without instrumentation: the statement ended before core had allocated it.
#[inline(always)]
fn fill_in(
    stats: &mut NodeStats,
    sample: &NodeSample,
    core: Option<&CoreSample>,
    statement: &StatementSample,
    time: Option<Time>,
) {
    if !sample.is_instrumented {
        *stats = NodeStats::default();
        return;
    }
    let workers = core.map(|core| core.workers).unwrap_or_default();
    let (timed_calls, timer_calls, clock_backsteps) = sample.calls.timer_counts();
    let (buffers, wal) = match (statement.mode, core) {
        (Mode::CoreOnly, Some(core)) => (core.buffers, core.wal),
        _ if statement.has_usage => (sample.buffers.into(), sample.wal.into()),
        _ => (Measured::default(), Measured::default()),
    };
    // Each field is written in place. The pattern names all of them, so that none is forgotten.
    let NodeStats {
        starts,
        rows,
        time: to_time,
        buffers: to_buffers,
        wal: to_wal,
        timed_calls: to_timed_calls,
        timer_calls: to_timer_calls,
        clock_backsteps: to_clock_backsteps,
        memory_kb,
        disk_kb,
    } = stats;
    *starts = statement
        .has_usage
        .then_some(sample.starts(core) as i64 as u64)
        .into();
    *rows = sample.rows(core) as i64 as u64;
    *to_time = time.into();
    (*to_buffers, *to_wal) = (buffers, wal);
    *to_timed_calls = timed_calls + workers.timed_calls;
    *to_timer_calls = timer_calls + workers.timer_calls;
    *to_clock_backsteps = clock_backsteps + workers.clock_backsteps;
    (*memory_kb, *disk_kb) = (sample.memory_kb.into(), sample.disk_kb.into());
}

/// Returns a node's place and its time in nanoseconds, before the nodes are made to agree.
fn item(
    i: usize,
    samples: &[NodeSample],
    core: Option<&CoreSample>,
    calls_below: &[u64],
    statement: &StatementSample,
) -> Item {
    let sample = &samples[i];
    let mut estimate = Estimate::default();
    if sample.is_instrumented {
        estimate = own_estimate(sample, core, calls_below.get(i).copied().unwrap_or(0), statement);
        if let Some(core) = core {
            estimate.total += core.total_ns;
            estimate.startup += core.startup_ns;
            estimate.error = estimate.error.hypot(core.workers.error_ns);
        }
        // The root ran inside the statement's own runs, whose time is exact.
        if i == 0 && statement.is_timed && statement.mode != Mode::CoreOnly {
            estimate.total = estimate.total.min(statement.elapsed_ns);
        }
    }
    let parent = sample.place.parent;
    Item {
        parent,
        edge: sample.place.edge,
        processes: parent.map_or(1.0, |parent| samples[parent].processes),
        estimate,
    }
}

/// Returns what this process's wrapper measured, in nanoseconds.
fn own_estimate(
    sample: &NodeSample,
    core: Option<&CoreSample>,
    calls_below: u64,
    statement: &StatementSample,
) -> Estimate {
    let ticks = match &sample.calls {
        Calls::Untimed { .. } => return Estimate::default(),
        Calls::Sampled(timer) => timer.estimate(sample.own_starts(core), sample.interrupted),
        Calls::Every {
            calls,
            ticks,
            startup_ticks,
            ..
        } => {
            // Each call below made two readings.
            let overhead = *calls as f64 * statement.config.empty_interval
                + (2 * calls_below) as f64 * statement.config.reading;
            let total = (*ticks as f64 - overhead).max(0.0) + sample.interrupted.unwrap_or(0) as f64;
            Estimate {
                total,
                startup: (*startup_ticks as f64).min(total),
                error: 0.0,
            }
        }
    };
    Estimate {
        total: ticks.total * statement.tick_ns,
        startup: ticks.startup * statement.tick_ns,
        error: ticks.error * statement.tick_ns,
    }
}

/// Hands each node's value on to its parent, if it has one. Children follow their parents, so from the last to the
/// first every sum is complete before it is handed on.
///
/// `parent` returns the index of the node that takes a node's value, and `add` adds: parent's value, child's value, and
/// the child's index.
#[inline(always)]
pub fn add_to_parents<T>(
    values: &mut [T],
    parent: impl Fn(usize) -> Option<usize>,
    add: impl Fn(&mut T, &T, usize),
) {
    for i in (1..values.len()).rev() {
        if let Some(parent) = parent(i) {
            let (above, below) = values.split_at_mut(i);
            add(&mut above[parent], &below[0], i);
        }
    }
}

/// Adds what each node used to its parent. Not that of InitPlans and subplans: what they used was charged to the node
/// that asked for them.
#[inline(always)]
fn add_usage_to_parents(stats: &mut [NodeStats], place: impl Fn(usize) -> Place) {
    add_to_parents(
        stats,
        |i| place(i).input_of(),
        |above, below, _| above.use_also(below),
    );
}

/// Adds what core counted in its own calls of a node, less what the wrappers below charged inside those.
fn add_core_usage(stats: &mut NodeStats, core: &CoreSample) {
    let (Some(buffers), Some(wal)) = (stats.buffers.get_mut(), stats.wal.get_mut()) else {
        return;
    };
    let (by_core, wal_by_core) = (
        core.buffers.get().unwrap_or_default(),
        core.wal.get().unwrap_or_default(),
    );
    if core.alone {
        (*buffers, *wal) = (by_core, wal_by_core);
    } else {
        *buffers += by_core;
        *wal += wal_by_core;
        *buffers -= core.charged_below;
        *wal -= core.wal_charged_below;
    }
}

#[cfg(test)]
mod tests;
