//! From a statement that has ended to its stored record. The way is a straight line:
//!
//! 1. `hooks` sees that a statement has ended, or that an error has ended it.
//! 2. `Statement::record` changes its phase, so that this happens once.
//! 3. `Statement::note_unwrapped` notes what core measured in place of a wrapper below a Gather.
//! 4. [`with_scratch`] lends memory for the statistics, which is kept between statements.
//! 5. [`Collector`] copies what PostgreSQL and the wrappers hold of each node into plain structs.
//! 6. `rowsource_core::results` computes the statistics from them.
//! 7. `export` writes the totals to core's struct, if others will read it.
//! 8. The hidden root is removed.
//! 9. [`histograms`] takes in the workers' histograms.
//! 10. In a parallel worker, `parallel::report` sends everything to the leader. This is the end there.
//! 11. `session::record` has `store::record` add the execution to the plan's statistics in shared memory, or adds it to
//!     the session's own.
//! 12. It also keeps it as the session's last statement.

mod collect;
mod export;
pub mod node;
pub mod node_table;
pub mod parallel;
mod workarea;

pub use collect::Collector;

use crate::pg::compat;
use crate::pg::server::backend_local::BackendLocal;
use node_table::NodeTable;
use rowsource_core::histogram::Histogram;
use rowsource_core::model::{Buffers, Wal};
use rowsource_core::results::{Mode, Scratch, StatementSample, add_to_parents, assemble};
use smallvec::SmallVec;
use std::cell::Cell;

/// The memory for the statistics of so many nodes is kept.
const MOST_KEPT: usize = 128;

/// Runs a body with memory for statistics.
#[inline(always)]
pub fn with_scratch(body: impl FnOnce(&mut Scratch)) {
    static SCRATCH: BackendLocal<Cell<Option<Box<Scratch>>>> = BackendLocal::new(Cell::new(None));
    let mut scratch = SCRATCH.take().unwrap_or_default();
    body(&mut scratch);
    if scratch.stats.capacity() <= MOST_KEPT {
        SCRATCH.set(Some(scratch));
    }
}

/// Computes the statistics of a statement's nodes, and exports them if its mode asks for that. Returns false without
/// memory.
#[inline(never)]
pub fn compute(collector: &Collector, statement: &StatementSample, scratch: &mut Scratch) -> bool {
    if assemble(collector, statement, scratch).is_none() {
        return false;
    }
    if statement.mode == Mode::AlsoForCore && collector.core_alive {
        // SAFETY: the collector's plan states are live, and the statistics have just been computed from them.
        unsafe { export::to_core(collector.nodes, scratch) };
    }
    scratch.remove_hidden_root();
    true
}

/// Collects the histograms of the nodes that EXPLAIN shows, and adds the workers' calls to them. Returns false without
/// memory.
///
/// # Safety
/// * The executor must not call the nodes as long as the result is used.
/// * To be called once for each execution.
#[inline(always)]
pub unsafe fn histograms<'a>(
    nodes: &'a NodeTable,
    channel: &Cell<Option<parallel::Channel>>,
    histograms: &mut SmallVec<[&'a Histogram; 4]>,
) -> bool {
    if nodes.count() > histograms.inline_size() && histograms.try_reserve_exact(nodes.count()).is_err() {
        return false;
    }
    for node in nodes.iter().filter(|node| !node.hidden()) {
        if let Some(workers) = channel
            .get()
            .and_then(|channel| channel.histogram(node.plan_node_id()))
        {
            node.add_to_histogram(&workers);
        }
        // SAFETY: the executor does not call the node by the caller's promise. What is written above is written to
        // histograms before there is a reference to them, for each node comes up once.
        histograms.push(unsafe { node.histogram() });
    }
    true
}

/// Returns what each node and all inputs below it used while their wrappers charged them. InitPlans and subplans are left
/// out: what they used was charged to the node that asked for them. Returns `None` without memory.
pub fn charged_below(nodes: &NodeTable) -> Option<Vec<(Buffers, Wal)>> {
    let mut used: Vec<(Buffers, Wal)> = Vec::new();
    used.try_reserve_exact(nodes.count()).ok()?;
    used.extend(nodes.iter().map(|node| {
        let usage = node.usage();
        (compat::buffers(&usage.buffers), compat::wal(&usage.wal))
    }));
    add_to_parents(
        &mut used,
        |i| nodes.get(i).place().input_of(),
        |above, below, _| {
            above.0 += below.0;
            above.1 += below.1;
        },
    );
    Some(used)
}
