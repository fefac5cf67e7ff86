//! Writes a statement's totals to core's struct, which EXPLAIN, auto_explain and a parallel leader read.

use super::node_table::NodeTable;
use crate::pg::compat::{self, NodeInstrumentation};
use crate::pg::server;
use rowsource_core::model::Buffers;
use rowsource_core::results::{Scratch, Totals};

/// Writes the totals of all nodes that have instrumentation.
///
/// # Safety
/// `scratch` must have been computed from these nodes, and their plan states must still be live.
pub unsafe fn to_core(nodes: &NodeTable, scratch: &Scratch) {
    let keeps_times = server::is_parallel_worker() || server::core_times_io();
    for node in scratch.totals() {
        let plan_state = nodes.get(node.index).plan_state();
        // SAFETY: the plan state is live by the caller's promise. Only nodes that have instrumentation are
        // among the totals, and this is the only reference to it.
        let instr = unsafe { &mut *(*plan_state).instrument };
        write(instr, &node, keeps_times);
    }
}

/// Writes the totals of one node. The buffers have I/O times only if `keeps_times`: if core itself times I/O.
/// A worker always keeps its times, because it sends them to its leader.
pub fn write(instr: &mut NodeInstrumentation, node: &Totals, keeps_times: bool) {
    let (estimate, stats) = (node.estimate, node.stats);
    compat::set_core_totals(
        instr,
        estimate.total,
        estimate.startup,
        stats.rows as f64,
        node.starts,
    );
    if let (Some(buffers), Some(wal)) = (stats.buffers.get(), stats.wal.get()) {
        let buffers = if keeps_times {
            buffers
        } else {
            without_times(buffers)
        };
        let base = compat::common_instrumentation(instr);
        compat::set_buffers(&mut base.bufusage, &buffers);
        compat::set_wal(&mut base.walusage, &wal);
    }
}

fn without_times(buffers: Buffers) -> Buffers {
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
