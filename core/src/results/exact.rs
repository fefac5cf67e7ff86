//! Statistics where nothing has to be estimated: every call of every node was timed, by the wrappers alone.
//!
//! Each sample is used up where it is collected. With both inlined, nothing of it is copied that is not used: a copy of
//! all samples would cost a short statement about a tenth of what it costs to measure.

use super::{Calls, Mode, NS_PER_MS, Nodes, StatementSample, add_usage_to_parents, fill_in};
use crate::model::{NodeStats, Time};
use crate::reconcile::Edge;

/// Statements with more nodes last long enough not to need this.
const MOST_NODES: usize = 16;

/// Fills in the statistics of all nodes. Returns false, with nothing of meaning filled in, if the times must be
/// estimated, made to agree, or put together with what others measured.
#[inline(always)]
pub(super) fn assemble<N: Nodes>(nodes: &N, statement: &StatementSample, stats: &mut Vec<NodeStats>) -> bool {
    let count = nodes.count();
    if statement.mode != Mode::Ours
        || statement.core_contributes
        || !statement.is_timed
        || count > MOST_NODES
        || stats.try_reserve(count.saturating_sub(stats.len())).is_err()
    {
        return false;
    }
    stats.resize_with(count, NodeStats::default);
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
            total_ms = total_ms.min(statement.elapsed_ns / NS_PER_MS);
        }
        let time = (sample.starts(None) > 0.0).then(|| Time {
            total_ms,
            startup_ms: (startup * tick_ms).min(total_ms),
            self_ms: total_ms,
            error_ms: 0.0,
        });
        let (above, below) = stats.split_at_mut(i);
        fill_in(&mut below[0], &sample, None, statement, time);
        let Some(parent) = sample.place.parent else {
            continue;
        };
        // A parent takes at least as long as its children, but for what the readings in between are thought to cost.
        let Some(time) = above[parent].time.get_mut() else {
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
