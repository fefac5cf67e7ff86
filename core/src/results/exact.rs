//! Computes statistics if nothing must be estimated: the wrappers alone measured, and timed every call of every node.
//!
//! Collecting a sample is inlined here, so only those fields are copied that are used.

use super::node::{NS_PER_MS, add_usage_to_parents, fill_in};
use super::sample::{Calls, Mode, Nodes, StatementSample};
use crate::float::at_most;
use crate::model::{NodeStats, Time};
use crate::reconcile::Edge;
use crate::sampler::Config;

/// Statements with more nodes take so long that this would save nothing.
const MAX_NODES: usize = 16;

/// Returns whether [`assemble_exact`] is worth trying for a sampled statement of this mode and number of nodes.
#[inline(always)]
pub fn may_be_exact(mode: Mode, core_contributes: bool, nodes: usize) -> bool {
    mode == Mode::RowsourceOnly && !core_contributes && nodes <= MAX_NODES
}

/// Computes the statistics of all nodes of a sampled statement in [`Mode::RowsourceOnly`] that core did not contribute to.
/// Returns false if times must be estimated or reconciled, or if there is no memory. Then `stats` is not valid.
#[inline(always)]
pub fn assemble_exact<N: Nodes>(
    nodes: &N,
    config: &Config,
    tick_ns: f64,
    elapsed_ns: f64,
    stats: &mut Vec<NodeStats>,
) -> bool {
    let count = nodes.count();
    if stats.len() != count && resize(stats, count).is_none() {
        return false;
    }
    let stats = &mut stats[..count];
    let statement = &StatementSample {
        mode: Mode::RowsourceOnly,
        has_usage: true,
        is_timed: true,
        core_contributes: false,
        tick_ns,
        config,
        elapsed_ns,
    };
    let tick_ms = statement.tick_ns / NS_PER_MS;
    for i in 0..count {
        let sample = nodes.sample(i);
        let Calls::Sampled(timer) = &sample.calls else {
            return false;
        };
        if !sample.is_instrumented || sample.interrupted.is_some() {
            return false;
        }
        let Some((total, startup)) = timer.exact() else {
            return false;
        };
        let mut total_ms = total * tick_ms;
        if sample.place.parent.is_none() {
            // The root ran inside the statement's own runs, whose time is exact.
            total_ms = at_most(total_ms, statement.elapsed_ns / NS_PER_MS);
        }
        let time = (sample.starts(None) > 0.0).then(|| Time {
            total_ms,
            startup_ms: at_most(startup * tick_ms, total_ms),
            self_ms: total_ms,
            error_ms: 0.0,
        });
        fill_in(&mut stats[i], &sample, None, statement, time);
        let Some(parent) = sample.place.parent else {
            continue;
        };
        // A parent takes at least as long as its children. The estimated cost of readings may make it seem shorter.
        let Some(time) = stats[parent].time.get_mut() else {
            return false;
        };
        time.self_ms -= total_ms;
        if sample.place.edge != Edge::Sequential || time.self_ms < 0.0 {
            return false;
        }
    }
    add_usage_to_parents(stats, |i| nodes.place(i));
    true
}

/// Makes room for `count` nodes. The memory of the last statement is usually large enough. Returns `None` if there is no
/// memory.
#[inline(never)]
fn resize(stats: &mut Vec<NodeStats>, count: usize) -> Option<()> {
    stats.try_reserve(count.saturating_sub(stats.len())).ok()?;
    stats.resize_with(count, NodeStats::default);
    Some(())
}
