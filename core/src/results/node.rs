//! Computes the statistics of one node, and sums over the nodes below it.

use super::sample::{CoreSample, Mode, NodeSample, StatementSample};
use crate::model::{Called, Measured, NodeStats, Time};

pub const NS_PER_MS: f64 = 1e6;

/// Fills in a node's own statistics, without its facts: blocks and WAL are those that were charged to it
/// alone. A node without instrumentation has none, because the statement ended before core allocated it.
#[inline(always)]
pub fn fill_in(
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
    // The pattern names all fields, so that none is forgotten.
    let NodeStats {
        starts,
        rows,
        time: to_time,
        buffers: to_buffers,
        wal: to_wal,
        timed_calls: to_timed_calls,
        timer_calls: to_timer_calls,
        clock_backsteps: to_clock_backsteps,
        wait_ms,
        facts: _,
        estimate,
    } = stats;
    *starts = statement
        .has_usage
        .then_some(sample.starts(core) as i64 as u64)
        .into();
    *rows = sample.rows(core);
    *to_time = time.into();
    (*to_buffers, *to_wal) = (buffers, wal);
    *to_timed_calls = timed_calls + workers.timed_calls;
    *to_timer_calls = timer_calls + workers.timer_calls;
    *to_clock_backsteps = clock_backsteps + workers.clock_backsteps;
    // Few nodes wait, so their waits are added later.
    *wait_ms = 0.0;
    *estimate = sample.estimate;
}

/// Adds each node's value to that of its parent, if it has one. Children follow their parents. So from the
/// last node to the first, every sum is complete before it is added.
///
/// `parent` returns the index of the node to which a node's value is added. `add` gets the parent's value,
/// the child's value, and the child's index.
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

/// Adds what each node used to the node whose input it is. InitPlans and subplans are not added, because what
/// they used was charged to the node that called them.
#[inline(always)]
pub fn add_usage_to_parents(stats: &mut [NodeStats], input_of: impl Fn(usize) -> Option<usize>) {
    add_to_parents(stats, input_of, |above, below, _| above.use_also(below));
}

/// Adds what core counted in its own calls of a node. If only core calls the node, and its counts are
/// unknown, what its inputs used is all that is known of it.
pub fn add_core_usage(stats: &mut NodeStats, sample: &NodeSample, core: &CoreSample) {
    let (Some(buffers), Some(wal)) = (stats.buffers.get_mut(), stats.wal.get_mut()) else {
        return;
    };
    let (by_core, wal_by_core) = (
        core.buffers.get().unwrap_or_default(),
        core.wal.get().unwrap_or_default(),
    );
    if sample.by_core {
        if core.buffers.get().is_some() {
            (*buffers, *wal) = (by_core, wal_by_core);
        }
    } else {
        *buffers += by_core;
        *wal += wal_by_core;
    }
}

/// Adds what a node called to a list, unless it is nothing. Returns `None` if there is no memory.
pub fn list_called(list: &mut Vec<(usize, Called)>, i: usize, called: Called) -> Option<()> {
    if !called.is_none() {
        list.try_reserve(1).ok()?;
        list.push((i, called));
    }
    Some(())
}
