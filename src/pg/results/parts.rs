//! What each worker of a parallel statement did, if the statement fails.
//!
//! Core collects the counts of workers when a Gather is shut down. If an error ends the statement before, it
//! never does, and ends the workers that still run. So each worker also leaves its counts in the leader's
//! channel: when it has completed, in the handler of its own error, or before it exits. The leader reads them
//! when an error ends the statement, and copies those of workers that still run, as the view of running
//! statements does. `core::gate` decides who counts a worker.

use super::export;
use super::node_table::{NodeRef, NodeTable};
use super::parallel::{Channel, Part};
use crate::pg::border::unguarded;
use crate::pg::compat;
use crate::pg::hot::usage;
use crate::pg::live;
use crate::pg::plan::tree;
use crate::pg::server::contained::{Unlocked, contained};
use pgrx::pg_sys::{self, NodeTag};
use rowsource_core::gate::{Found, Gate};
use rowsource_core::model::NodeStats;
use rowsource_core::results::Scratch;
use std::time::Duration;

/// How often a leader looks in all whether workers have counted, and how long it waits each time. A worker
/// counts in microseconds, if a processor is free.
const TRIES: u32 = 1000;
const PAUSE: Duration = Duration::from_micros(100);

/// Adds to core's counts what workers did that core has not collected. If `core_alive`, also keeps the part
/// of each worker where core would.
///
/// # Safety
/// An error is ending the statement of these nodes, whose plan states must be live. So must be their memory
/// contexts.
pub unsafe fn collect(channel: &Channel, nodes: &NodeTable, core_alive: bool) {
    let mut tries = TRIES;
    for (i, gather) in nodes.iter().enumerate() {
        let workers = uncollected(gather);
        let is_top = |node: &NodeRef| node.parent() == i as i32 && !node.by_expression();
        let top = (workers > 0).then(|| nodes.iter().find(is_top)).flatten();
        for (worker, top) in (0..workers).zip(top.into_iter().cycle()) {
            let part = |node: NodeRef| channel.part(worker, node.plan_node_id());
            // SAFETY: a part is mapped, and the gate is shared.
            let Some(of_top) =
                part(top).filter(|top| settle(channel, worker, unsafe { &(**top).gate }, &mut tries))
            else {
                continue;
            };
            // SAFETY: the plan states are live by the caller's promise. Nobody writes the parts any more.
            unsafe { charge(nodes, gather, of_top) };
            for node in nodes.iter() {
                // SAFETY: the plan states are live by the caller's promise. Nobody writes the parts any more.
                unsafe {
                    if gather_of(nodes, node) == Some(i)
                        && let Some(part) = part(node)
                    {
                        collect_part(node, part, worker, core_alive.then_some(workers));
                    }
                }
            }
        }
    }
}

/// Adds a worker's part to core's counts of a node. If `kept` workers have room where core keeps such parts,
/// keeps it there.
///
/// # Safety
/// The plan state of the node must be live, and the part mapped. If any are `kept`, the statement's memory
/// contexts must be live.
unsafe fn collect_part(node: NodeRef, part: *mut Part, worker: usize, kept: Option<usize>) {
    let ps = node.plan_state();
    // SAFETY: the caller promises it.
    unsafe {
        if (*ps).instrument.is_null() {
            return;
        }
        pg_sys::InstrAggNode((*ps).instrument, &raw mut (*part).instr);
        if let Some(parts) = kept.and_then(|workers| compat::worker_parts(ps, workers)) {
            parts[worker] = (*part).instr;
        }
    }
}

/// Charges a Gather with what its workers used, as core does when they end. A Hash above it is called by
/// core, which counts for itself.
///
/// # Safety
/// The plan states must be live, and the part mapped. Nobody may write it.
unsafe fn charge(nodes: &NodeTable, gather: NodeRef, part: *mut Part) {
    // SAFETY: the caller promises it. The instrumentation of a node is null or lives as long as its plan
    // state.
    unsafe {
        if info(gather).is_none_or(|info| info.finished) {
            return;
        }
        let (buffers, wal) = (&raw const (*part).in_leader.0, &raw const (*part).in_leader.1);
        let core = compat::common_instrumentation(&mut (*part).instr);
        let (to_buffers, to_wal) = (&raw const core.bufusage, &raw const core.walusage);
        usage::add_between(gather.account(), buffers, wal, to_buffers, to_wal);
        for above in above(nodes, gather)
            .map(|above| nodes.get(above))
            .filter(|above| above.by_core())
        {
            if let Some(instr) = (*above.plan_state()).instrument.as_mut() {
                let core = compat::common_instrumentation(instr);
                unguarded::BufferUsageAccumDiff(&raw mut core.bufusage, to_buffers, buffers);
                unguarded::WalUsageAccumDiff(&raw mut core.walusage, to_wal, wal);
            }
        }
    }
}

/// Returns how many workers of a Gather core may not have collected: none if it has shut the Gather down,
/// which it does once.
fn uncollected(node: NodeRef) -> usize {
    // SAFETY: core has shut down neither the Gather nor its workers.
    let context = unsafe { info(node).and_then(|info| info.pcxt.as_ref()) };
    context.map_or(0, |context| usize::try_from(context.nworkers).unwrap_or(0))
}

/// Returns what core has of the workers of a Gather that it has not shut down.
fn info(node: NodeRef<'_>) -> Option<&pg_sys::ParallelExecutorInfo> {
    let info = match node.kind() {
        NodeTag::T_GatherState => node.state().cast::<pg_sys::GatherState>().pei,
        NodeTag::T_GatherMergeState => node.state().cast::<pg_sys::GatherMergeState>().pei,
        _ => return None,
    };
    // SAFETY: it is null, or live until core shuts it down.
    unsafe { info.as_ref() }
}

/// Returns the innermost Gather above a node.
fn gather_of(nodes: &NodeTable, node: NodeRef) -> Option<usize> {
    above(nodes, node).find(|above| tree::is_gather(nodes.get(*above).kind()))
}

/// Returns the nodes above a node.
fn above(nodes: &NodeTable, node: NodeRef) -> impl Iterator<Item = usize> {
    let parent = |node: NodeRef| usize::try_from(node.parent()).ok();
    std::iter::successors(parent(node), move |above| parent(nodes.get(*above)))
}

/// Has a worker's part counted: waits while the worker counts, and counts a copy if it runs. Returns whether
/// the parts are complete.
fn settle(channel: &Channel, worker: usize, gate: &Gate, tries: &mut u32) -> bool {
    loop {
        match gate.found() {
            Found::Counted => return true,
            Found::Hidden(pid) => {
                gate.close(pid);
                continue;
            }
            Found::Running(pid) => {
                // SAFETY: an error has ended the statement, or the session exits. What code of PostgreSQL
                // held when it raised is of no use any more, and the abort of the transaction releases it
                // too.
                let unlocked = &mut unsafe { Unlocked::promised() };
                let copied = contained(unlocked, |_| live::copy_of(pid)).ok().flatten();
                if let Some((running, scratch)) = copied
                    && gate.close(pid)
                {
                    // SAFETY: the gate is closed, so nobody else writes the worker's parts.
                    unsafe { add_copy(channel, worker, running, &scratch) };
                    return true;
                }
            }
            Found::Counting => {}
        }
        let Some(left) = tries.checked_sub(1) else { break };
        *tries = left;
        std::thread::sleep(PAUSE);
    }
    match gate.found() {
        Found::Running(pid) => gate.close(pid),
        found => found == Found::Counted,
    }
}

/// Counts what a worker has done until it was copied.
///
/// # Safety
/// Nobody else may write the worker's parts.
unsafe fn add_copy(channel: &Channel, worker: usize, mut running: live::Running, scratch: &Scratch) {
    for total in scratch.totals() {
        let node = &mut running.nodes[total.index];
        export::write(&mut node.instr, &total, true);
        let stats = NodeStats {
            wait_ms: node.waited_ns as f64 / 1e6,
            ..*total.stats
        };
        channel.add(node.plan_node_id, &stats, &node.histogram);
        if let Some(part) = channel.part(worker, node.plan_node_id) {
            // SAFETY: the part is mapped, and nobody else writes it, by the caller's promise.
            unsafe { Part::add(part, &raw mut node.instr) };
        }
    }
}
