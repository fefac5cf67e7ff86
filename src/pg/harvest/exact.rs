//! Figures where nothing has to be estimated: every call of every node was timed, by our wrappers alone. Most
//! statements are like that, and too short for anything more elaborate.

use super::{NS_PER_MS, add_upwards, rows, starts};
use crate::pg::hot::wrapper::Timed;
use crate::pg::node::Node;
use crate::pg::statement::Statement;
use crate::pg::{compat, workarea};
use rowsource_core::model::{NodeStats, Time};
use rowsource_core::reconcile::Edge;

/// Larger statements last long enough.
const MOST_NODES: usize = 16;

/// Fills in the figures of all nodes; false, with nothing of meaning filled in, where they must be estimated, made to
/// agree, or put together with what others measured.
///
/// # Safety
/// The statement's nodes must be live.
#[inline(always)]
pub unsafe fn figures(statement: &Statement, core_alive: bool, figures: &mut Vec<NodeStats>) -> bool {
    let ours_alone = statement.wrapped && !statement.by_core && !statement.published;
    if !ours_alone || statement.timed != Timed::Sampled || statement.count > MOST_NODES {
        return false;
    }
    figures.resize_with(statement.count, NodeStats::default);
    for i in 0..statement.count {
        let (above, below) = figures.split_at_mut(i);
        // SAFETY: `i` is below the number of nodes. Nodes and plan states are live by the caller's promise.
        let (known, parent, edge) = unsafe {
            let node = statement.nodes.add(i);
            let known = fill_in(statement, node, core_alive, &mut below[0]);
            (known, usize::try_from((*node).parent), (*node).edge)
        };
        let Some(total_ms) = known else { return false };
        let Ok(parent) = parent else { continue };
        // A parent takes as long as its children at least, but for what the readings in between are thought to cost.
        let Some(time) = above[parent].time.get_mut() else {
            return false;
        };
        time.self_ms -= total_ms;
        if edge != Edge::Sequential || time.self_ms < 0.0 {
            return false;
        }
    }
    // SAFETY: the figures are those of all nodes, which are live by the caller's promise.
    unsafe { add_upwards(statement, figures) };
    true
}

/// Fills in a node's own figures, and returns its time; `None` where that is not known exactly.
///
/// # Safety
/// * `node` must be one of the statement's nodes, which must be live with their plan states.
/// * With `core_alive`, the memory contexts of the statement must still stand.
#[inline(always)]
unsafe fn fill_in(
    statement: &Statement,
    node: *mut Node,
    core_alive: bool,
    figures: &mut NodeStats,
) -> Option<f64> {
    // SAFETY: node and plan state are live by the caller's promise.
    unsafe {
        if (*(*node).plan_state).instrument.is_null() || (*node).interrupted.is_some() {
            return None;
        }
        let (total, startup) = (*node).timer.exact()?;
        let ms = statement.tick_ns / NS_PER_MS;
        let mut total_ms = total * ms;
        if (*node).parent < 0 {
            // The root ran inside the statement's own, exactly timed runs.
            total_ms = total_ms.min(statement.elapsed_ns.get() / NS_PER_MS);
        }
        let starts = starts(statement, node);
        figures.starts = (starts as i64 as u64).into();
        figures.rows = rows(statement, node) as i64 as u64;
        let time = (starts > 0.0).then(|| Time {
            total_ms,
            startup_ms: (startup * ms).min(total_ms),
            self_ms: total_ms,
            error_ms: 0.0,
        });
        figures.time = time.into();
        let timer = &(*node).timer;
        (figures.timed_calls, figures.timer_calls, figures.clock_backsteps) =
            (timer.timed_calls, timer.timer_calls, timer.clock_backsteps);
        let (memory_kb, disk_kb) = if core_alive {
            workarea::size((*node).plan_state)
        } else {
            (None, None)
        };
        (figures.memory_kb, figures.disk_kb) = (memory_kb.into(), disk_kb.into());
        figures.buffers = compat::buffers(&(*node).usage.buffers).into();
        figures.wal = compat::wal(&(*node).usage.wal).into();
        Some(total_ms)
    }
}
