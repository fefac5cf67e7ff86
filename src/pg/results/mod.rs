//! The steps from the end of a statement to its stored record:
//!
//! 1. A hook sees that a statement has ended, also after an error.
//! 2. `Statement::record` changes its phase, so that it is recorded only once.
//! 3. `parts` takes what workers did of a parallel statement that has failed. `Statement::note_unwrapped`
//!    corrects what core measured instead of a wrapper below a Gather.
//! 4. [`with_scratch`] provides memory for the statistics, which is kept between statements.
//! 5. [`Collector`] copies the data that PostgreSQL and the wrappers have of each node into plain structs.
//! 6. `rowsource_core::results` takes counts from them, if that is all that there is to record. Else it
//!    computes the statistics.
//! 7. `export` writes the totals to core's struct if others will read it.
//! 8. The hidden root is removed.
//! 9. [`histograms`] adds the workers' histograms.
//! 10. In a parallel worker, `parallel::report` sends everything to the leader. This is a worker's last step.
//! 11. `session::record` has `store::record` add the execution to the plan's statistics in shared memory, or
//!     adds it to the session's own statistics.
//! 12. It also keeps the execution as the session's last statement. Of a parallel plan, `workers` reads what
//!     each process did.
//!
//! With counts, steps 3 and 7 to 10 have nothing to do. `session::record_counts` has `store::record_counts`
//! add them to the session's buffer (`PlanSum`). The statistics are computed from the sums when the buffer is
//! flushed.
//!
//! Steps 5 and 6 go node by node: each sample is used where it is collected. A list of samples would cost a
//! short statement about 120 instructions. Only where times are estimated are the samples copied into a list
//! first.

mod collect;
mod export;
mod facts;
pub mod node;
pub mod node_table;
pub mod parallel;
pub mod parts;
mod workarea;
pub mod workers;

pub use collect::Collector;

use crate::pg::border::backend_local::BackendLocal;
use crate::pg::compat;
use node_table::NodeTable;
use rowsource_core::histogram::Histogram;
use rowsource_core::model::{Buffers, Wal};
use rowsource_core::results::{self, Mode, Scratch, Share, StatementSample, add_to_parents, assemble};
use smallvec::SmallVec;
use std::cell::Cell;

/// Memory for the statistics of more nodes is not kept.
const MAX_KEPT_NODES: usize = 128;

/// Runs a body with memory for statistics.
#[inline(always)]
pub fn with_scratch<R>(body: impl FnOnce(&mut Scratch) -> R) -> R {
    #[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
    static SCRATCH: BackendLocal<Cell<Option<Box<Scratch>>>> = BackendLocal::new(Cell::new(None));
    let mut scratch = SCRATCH.take().unwrap_or_default();
    let result = body(&mut scratch);
    if scratch.stats.capacity() <= MAX_KEPT_NODES {
        SCRATCH.set(Some(scratch));
    }
    result
}

/// Computes the statistics of a statement's nodes, and exports them if its mode requires that. Returns false
/// if there is no memory.
#[inline(never)]
pub fn compute(collector: &Collector, statement: &StatementSample, scratch: &mut Scratch) -> bool {
    if assemble(collector, statement, scratch).is_none() {
        return false;
    }
    if statement.mode == Mode::AlsoForCore && collector.core_alive {
        // SAFETY: the collector's plan states are live, because `Collector::new` requires that. The
        // statistics have just been computed from them.
        unsafe { export::to_core(collector.nodes, scratch) };
    }
    // If there is no memory to compare them, the estimates count as they are.
    let _ = scale_shared_estimates(collector, scratch);
    scratch.remove_hidden_root();
    true
}

/// Makes the estimates of nodes whose rows parallel processes share comparable with those rows. Returns
/// `None` if there is no memory.
fn scale_shared_estimates(collector: &Collector, scratch: &mut Scratch) -> Option<()> {
    let nodes = collector.nodes;
    if !nodes.iter().any(|node| node.under_gather()) {
        return Some(());
    }
    if !collector.core_alive {
        // The plan may already be freed.
        scratch.stats.iter_mut().for_each(|node| node.estimate.dismiss());
        return Some(());
    }
    let mut shares: Vec<Share> = Vec::new();
    shares.try_reserve_exact(nodes.count()).ok()?;
    let states = (0..nodes.count()).filter_map(|i| collector.node(i).whole());
    shares.extend(nodes.iter().zip(states).map(|(node, state)| Share {
        input_of: node.place().input_of(),
        sharing: collect::sharing(state),
    }));
    results::scale_shared_estimates(&shares, &mut scratch.stats)
}

/// Collects the histograms of the nodes that EXPLAIN shows, and adds the workers' calls to them. Returns
/// false if there is no memory.
///
/// # Safety
/// * The executor must not call the nodes while the result is used.
/// * This must be called only once for each execution.
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
        // SAFETY: the executor does not call the node, by the caller's promise. Each node is visited once, so
        // its histogram is written above before this reference to it exists.
        histograms.push(unsafe { node.histogram() });
    }
    true
}

/// Returns what was charged to each node, to all inputs below it, and to the InitPlans and subplans that it
/// called. Returns `None` if there is no memory.
pub fn charged_below(nodes: &NodeTable) -> Option<Vec<(Buffers, Wal)>> {
    let mut used: Vec<(Buffers, Wal)> = Vec::new();
    used.try_reserve_exact(nodes.count()).ok()?;
    used.extend(nodes.iter().map(|node| {
        let usage = node.usage();
        let (mut buffers, mut wal) = (compat::buffers(&usage.buffers), compat::wal(&usage.wal));
        if let Some((of_called, wal_of_called)) = node.called() {
            buffers += of_called;
            wal += wal_of_called;
        }
        (buffers, wal)
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
