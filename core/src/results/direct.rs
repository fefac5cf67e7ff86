//! Computes statistics node by node, if no estimate must be made consistent with others. This is so for most
//! statements, because an estimate seldom contradicts that of the node above it.
//!
//! Collecting a sample is inlined here, so only those fields are copied that are used.

use super::node::{NS_PER_MS, add_core_usage, add_usage_to_parents, fill_in, list_called};
use super::sample::{Caller, Calls, Mode, Nodes, StatementSample};
use crate::float::{at_least, at_most};
use crate::model::{Called, NodeStats, Time};
use crate::reconcile::Edge;
use crate::sampler::{Config, Estimate};

/// Statements with more nodes take so long that this would save nothing.
const MAX_NODES: usize = 16;

/// Returns whether [`assemble_directly`] is worth trying for a statement of this mode and number of nodes.
/// `only_by_core` says that core contributes nothing but what it measures of the nodes that only it calls.
#[inline(always)]
pub fn may_be_direct(mode: Mode, core_contributes: bool, only_by_core: bool, nodes: usize) -> bool {
    mode == Mode::RowsourceOnly && (!core_contributes || only_by_core) && nodes <= MAX_NODES
}

/// Computes the statistics of all nodes of a statement in [`Mode::RowsourceOnly`] whose starts and buffers
/// were measured. If `IS_TIMED`, calls were timed, and times may be estimated. Returns false if the statement
/// is none of that kind, if estimated times contradict each other, if several nodes called the same subplan,
/// if an error interrupted a call, or if there is no memory. Then `stats` is not valid.
#[inline(always)]
pub fn assemble_directly<N: Nodes, const IS_TIMED: bool>(
    nodes: &N,
    config: &Config,
    tick_ns: f64,
    elapsed_ns: f64,
    stats: &mut Vec<NodeStats>,
    called: &mut Vec<(usize, Called)>,
) -> bool {
    let count = nodes.count();
    if stats.len() != count && resize(stats, count).is_none() {
        return false;
    }
    let stats = &mut stats[..count];
    let statement = &StatementSample {
        mode: Mode::RowsourceOnly,
        has_usage: true,
        is_timed: IS_TIMED,
        core_contributes: false,
        tick_ns,
        config,
        elapsed_ns,
    };
    let tick_ms = statement.tick_ns / NS_PER_MS;
    let (mut fits, mut is_estimated, mut is_by_core) = (true, false, false);
    let (mut has_subplans, mut has_called, mut has_waited) = (false, false, false);
    for i in 0..count {
        let sample = nodes.sample(i);
        if !sample.is_instrumented || sample.interrupted.is_some() {
            return false;
        }
        let mut time = None;
        if IS_TIMED {
            let Calls::Sampled(timer) = &sample.calls else {
                return false;
            };
            let (total, startup, error) = match timer.exact() {
                Some((total, startup)) => (total, startup, 0.0),
                None => {
                    is_estimated = true;
                    let Estimate {
                        total,
                        startup,
                        error,
                    } = estimate(nodes, i);
                    (total, startup, error)
                }
            };
            let (mut total_ms, mut startup_ms) = (total * tick_ms, startup * tick_ms);
            if sample.by_core {
                let core = nodes.core(i);
                if core.is_interrupted {
                    return false;
                }
                (total_ms, startup_ms) = (core.total_ns / NS_PER_MS, core.startup_ns / NS_PER_MS);
            }
            if sample.place.parent.is_none() {
                // The root ran inside the statement's own runs, whose time is exact.
                total_ms = at_most(total_ms, statement.elapsed_ns / NS_PER_MS);
            }
            time = (sample.starts(None) > 0.0).then(|| Time {
                total_ms,
                startup_ms: at_most(startup_ms, total_ms),
                self_ms: total_ms,
                error_ms: error * tick_ms,
            });
        }
        is_by_core |= sample.by_core;
        has_waited |= sample.waited_ns > 0;
        fill_in(&mut stats[i], &sample, None, statement, time);
        stats[i].facts = nodes.facts(i);
        if sample.used.has_more {
            has_called = true;
        }
        let Some(parent) = sample.place.parent else {
            continue;
        };
        if IS_TIMED && sample.place.by_expression {
            has_subplans = true;
            continue;
        }
        if IS_TIMED && sample.place.edge != Edge::Sequential {
            return false;
        }
        let Some(time) = time else {
            continue;
        };
        let Some(above) = stats[parent].time.get_mut() else {
            return false;
        };
        above.self_ms -= time.total_ms;
        fits &= above.self_ms >= 0.0;
    }
    if !fits && is_estimated {
        return false;
    }
    if has_subplans && !(fits && subtract_from_callers(nodes, stats, statement.elapsed_ns / NS_PER_MS)) {
        return false;
    }
    if is_estimated && has_waited && !waits_fit(nodes, stats) {
        return false;
    }
    // A parent takes at least as long as its children. The estimated cost of readings may make it seem
    // shorter.
    if !fits {
        fit_children(stats, |i| nodes.place(i).parent);
    }
    add_usage_to_parents(stats, |i| nodes.place(i).input_of());
    if is_by_core {
        add_usage_by_core(nodes, stats);
    }
    called.clear();
    !has_called || add_called(nodes, called).is_some()
}

/// Returns whether each node itself takes at least as long as it waited.
#[cold]
#[inline(never)]
fn waits_fit<N: Nodes>(nodes: &N, stats: &[NodeStats]) -> bool {
    stats.iter().enumerate().all(|(i, stats)| {
        let sample = nodes.sample(i);
        let waited_ms = sample.waited_ns as i64 as f64 / NS_PER_MS;
        sample.by_core || stats.time.get().is_none_or(|time| time.self_ms >= waited_ms)
    })
}

/// Subtracts the times of InitPlans and subplans from those of the nodes that called them. Returns false if a
/// node called one before another one did, if its caller is not known, or if the estimated times contradict
/// each other or the statement's.
#[inline(never)]
fn subtract_from_callers<N: Nodes>(nodes: &N, stats: &mut [NodeStats], mut elapsed_ms: f64) -> bool {
    if nodes.earlier_callers().next().is_some() {
        return false;
    }
    for i in 0..stats.len() {
        if !nodes.place(i).by_expression {
            continue;
        }
        let Some(time) = stats[i].time.get() else {
            continue;
        };
        let total_ms = time.total_ms;
        let caller = match nodes.last_caller(i) {
            Caller::Node(caller) => stats.get_mut(caller).and_then(|stats| stats.time.get_mut()),
            Caller::Outside => {
                elapsed_ms -= total_ms;
                if stats[0].time.get_or_zero().total_ms > elapsed_ms {
                    return false;
                }
                continue;
            }
            Caller::Unknown => None,
        };
        let Some(caller) = caller else {
            return false;
        };
        caller.self_ms -= total_ms;
        if caller.self_ms < 0.0 {
            return false;
        }
    }
    true
}

/// Returns the estimate of a node's time, in ticks. It collects the sample again, so that its caller does not
/// write it to memory.
#[inline(never)]
fn estimate<N: Nodes>(nodes: &N, i: usize) -> Estimate {
    let sample = nodes.sample(i);
    match &sample.calls {
        Calls::Sampled(timer) => timer.estimate(sample.starts(None), None),
        _ => Estimate::default(),
    }
}

/// Lists what the nodes called. Returns `None` if there is no memory.
#[inline(never)]
fn add_called<N: Nodes>(nodes: &N, to: &mut Vec<(usize, Called)>) -> Option<()> {
    for i in 0..nodes.count() {
        list_called(to, i, nodes.called(i))?;
    }
    Some(())
}

/// Replaces the blocks and WAL of the nodes that only core measured.
#[inline(never)]
fn add_usage_by_core<N: Nodes>(nodes: &N, stats: &mut [NodeStats]) {
    for (i, stats) in stats.iter_mut().enumerate() {
        let sample = nodes.sample(i);
        if sample.by_core {
            add_core_usage(stats, &sample, &nodes.core(i));
        }
    }
}

/// Scales the times of children down to that of their parent if they exceed it, as [`crate::reconcile`] does
/// if nothing is estimated.
#[inline(never)]
pub(super) fn fit_children(stats: &mut [NodeStats], parent: impl Fn(usize) -> Option<usize>) {
    // Parents come before their children, so a node's time is final before its children are scaled.
    for i in 0..stats.len() {
        let children = (i + 1..stats.len()).filter(|&child| parent(child) == Some(i));
        let total_ms = |stats: &[NodeStats], i: usize| stats[i].time.get_or_zero().total_ms;
        let below: f64 = children.clone().map(|child| total_ms(stats, child)).sum();
        let room = total_ms(stats, i);
        if below > room {
            for child in children {
                if let Some(time) = stats[child].time.get_mut() {
                    time.total_ms *= room / below;
                    time.startup_ms = at_most(time.startup_ms, time.total_ms);
                }
            }
        }
        if let Some(time) = stats[i].time.get_mut() {
            time.self_ms = at_least(room - below, 0.0);
        }
    }
}

/// Makes room for `count` nodes. The memory of the last statement is usually large enough. Returns `None` if
/// there is no memory.
#[inline(never)]
fn resize(stats: &mut Vec<NodeStats>, count: usize) -> Option<()> {
    stats.try_reserve(count.saturating_sub(stats.len())).ok()?;
    stats.resize_with(count, NodeStats::default);
    Some(())
}
