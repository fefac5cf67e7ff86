//! Makes the estimates of a plan's nodes agree: no child, and no sum of children that ran one after the other,
//! takes more time than its parent.

use crate::sampler::Estimate;

/// How a node's work lies inside its parent's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// An input or a correlated subplan: runs inside its parent, one after the other with its siblings.
    Sequential,
    /// An InitPlan or a CTE: runs inside whichever node below the parent asks first, so a sibling may contain it.
    Nested,
    /// Ran outside its parent (a modifying CTE completed after the main plan): not bounded by it.
    Outside,
}

/// One node, given in pre-order (a parent before its children).
#[derive(Clone, Copy, Debug)]
pub struct Item {
    /// Index of the parent; `None` at the root.
    pub parent: Option<usize>,
    /// How the node lies inside the parent.
    pub edge: Edge,
    /// Processes that ran it, beyond those that ran its parent: workers and leader below a Gather, else 1.
    pub processes: f64,
    /// Its estimate; `total`, `startup` and `error` are adjusted in place.
    pub estimate: Estimate,
}

/// Adjusts the estimates, and returns each node's own time: its total less that of its sequential children.
///
/// A sum of children above an exactly timed parent is scaled down; where the parent is an estimate too, the
/// disagreement is shared out by variance first, parent against children.
pub fn reconcile(items: &mut [Item]) -> Vec<f64> {
    raise_parents(items);
    let sums = children_sums(items);
    // Pre-order: a parent is final before its children are looked at.
    let mut scale = vec![1.0; items.len()];
    for i in 0..items.len() {
        if let Some(p) = items[i].parent.filter(|&p| p < i) {
            let room = items[p].estimate.total * items[i].processes;
            let factor = match items[i].edge {
                Edge::Sequential => scale[p],
                Edge::Nested => 1.0,
                Edge::Outside => continue,
            };
            let total = &mut items[i].estimate.total;
            *total = (*total * factor).min(room);
            let total = *total;
            let startup = &mut items[i].estimate.startup;
            *startup = startup.min(total);
        }
        let total = items[i].estimate.total;
        if sums[i] > total && sums[i] > 0.0 {
            scale[i] = total / sums[i];
        }
    }
    let sums = children_sums(items);
    items
        .iter()
        .zip(sums)
        .map(|(item, sum)| (item.estimate.total - sum).max(0.0))
        .collect()
}

/// Sum of each node's sequential children, as far as they compete for the parent's time.
fn children_sums(items: &[Item]) -> Vec<f64> {
    let mut sums = vec![0.0; items.len()];
    for item in items {
        if let (Some(p), Edge::Sequential) = (item.parent, item.edge)
            && p < sums.len()
        {
            sums[p] += item.estimate.total / item.processes.max(1.0);
        }
    }
    sums
}

/// Bottom-up: an estimated parent that its children exceed is raised by its share of the joint variance.
fn raise_parents(items: &mut [Item]) {
    let mut sums = vec![0.0; items.len()];
    let mut variances = vec![0.0; items.len()];
    for i in (0..items.len()).rev() {
        let own = items[i].estimate.error * items[i].estimate.error;
        let excess = sums[i] - items[i].estimate.total;
        if excess > 0.0 && own > 0.0 {
            let share: f64 = own / (own + variances[i]);
            items[i].estimate.total += excess * share;
        }
        if let (Some(p), Edge::Sequential) = (items[i].parent, items[i].edge)
            && p < i
        {
            let processes = items[i].processes.max(1.0);
            sums[p] += items[i].estimate.total / processes;
            variances[p] += own / (processes * processes);
        }
    }
}
