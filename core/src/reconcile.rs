//! Makes the estimates of a plan's nodes consistent: no child, and no sum of children that ran one after the other, takes
//! more time than its parent.

use crate::sampler::Estimate;
use smallvec::SmallVec;

/// An estimate is lowered by at most this many of its standard errors before measured values are changed.
const MAX_LOWERING: f64 = 3.0;

/// How a node's work is contained in its parent's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// An input or a correlated subplan: it runs inside its parent, before or after its siblings.
    Sequential,
    /// An InitPlan or a CTE: it runs inside the first node below the parent that needs it, so a sibling may contain it.
    Nested,
    /// It ran outside its parent (a modifying CTE completed after the main plan), so the parent's time is no limit.
    Outside,
}

/// One node, given in pre-order (a parent before its children).
#[derive(Clone, Copy, Debug)]
pub struct Item {
    /// Index of the parent; `None` at the root.
    pub parent: Option<usize>,
    /// How the node's work is contained in the parent's.
    pub edge: Edge,
    /// How many processes ran it for each process that ran its parent: workers and leader below a Gather, else 1.
    pub processes: f64,
    /// Its estimate; `total` and `startup` are adjusted in place.
    pub estimate: Estimate,
}

impl Item {
    /// Returns the parent, if the node's time is part of the parent's.
    fn bounded_by(&self, i: usize) -> Option<usize> {
        self.parent.filter(|&p| p < i && self.edge != Edge::Outside)
    }

    /// Returns the parent, if the node and its siblings compete for the parent's time.
    fn competes_in(&self, i: usize) -> Option<usize> {
        self.parent.filter(|&p| p < i && self.edge == Edge::Sequential)
    }

    /// Returns how many processes ran the node for each process of its parent. Its time may be that many times its
    /// parent's.
    fn share(&self) -> f64 {
        self.processes.max(1.0)
    }

    /// Returns the variance of the node's part of its parent's time.
    fn variance(&self) -> f64 {
        let error = self.estimate.error / self.share();
        error * error
    }
}

/// Adjusts the estimates, and returns each node's own time: its total minus that of its sequential children.
///
/// If children exceed an estimated parent, the parent is raised by its share of the joint variance. If they still exceed
/// it, the estimated children are lowered by their variance, as far as their errors allow. If that is not enough, all
/// children are scaled down. An exactly timed parent is never raised. Returns `None` if there is no memory.
pub fn reconcile(items: &mut [Item]) -> Option<SmallVec<[f64; MAX_INLINE]>> {
    if let [alone] = items {
        return filled(1, alone.estimate.total);
    }
    let mut own_time = filled(items.len(), 0.0)?;
    let family = Family::of(items)?;
    raise_parents(items)?;
    // In pre-order, a parent's total is final before its children are adjusted.
    for i in 0..items.len() {
        if let Some(p) = items[i].bounded_by(i) {
            let room = items[p].estimate.total * items[i].share();
            let estimate = &mut items[i].estimate;
            estimate.total = estimate.total.min(room);
            estimate.startup = estimate.startup.min(estimate.total);
        }
        lower_children(items, items[i].estimate.total, family.children(i));
    }
    for (i, own) in own_time.iter_mut().enumerate() {
        *own = (items[i].estimate.total - sum(items, family.children(i))).max(0.0);
    }
    Some(own_time)
}

/// Plans of at most this many nodes need no allocation. Most plans are that small.
const MAX_INLINE: usize = 8;

/// Returns a value for each of `count` nodes; `None` if there is no memory.
fn filled<T: Copy>(count: usize, value: T) -> Option<SmallVec<[T; MAX_INLINE]>> {
    let mut all = SmallVec::new();
    all.try_reserve(count).ok()?;
    all.resize(count, value);
    Some(all)
}

/// Each node's sequential children: the first child, and the next sibling of each; 0 if there is none.
struct Family {
    first: SmallVec<[usize; MAX_INLINE]>,
    next: SmallVec<[usize; MAX_INLINE]>,
}

impl Family {
    fn of(items: &[Item]) -> Option<Self> {
        let mut family = Family {
            first: filled(items.len(), 0)?,
            next: filled(items.len(), 0)?,
        };
        for i in (0..items.len()).rev() {
            if let Some(p) = items[i].competes_in(i) {
                family.next[i] = std::mem::replace(&mut family.first[p], i);
            }
        }
        Some(family)
    }

    fn children(&self, i: usize) -> impl Iterator<Item = usize> + Clone {
        let child = |i: usize| (i > 0).then_some(i);
        std::iter::successors(child(self.first[i]), move |&i| child(self.next[i]))
    }
}

/// Returns the children's part of their parent's time.
fn sum(items: &[Item], children: impl Iterator<Item = usize>) -> f64 {
    children.map(|c| items[c].estimate.total / items[c].share()).sum()
}

/// Raises each estimated parent that its children exceed, bottom-up, by its share of the joint variance.
fn raise_parents(items: &mut [Item]) -> Option<()> {
    let mut sums = filled(items.len(), 0.0)?;
    let mut variances = filled(items.len(), 0.0)?;
    for i in (0..items.len()).rev() {
        let own = items[i].estimate.error * items[i].estimate.error;
        let excess = sums[i] - items[i].estimate.total;
        if excess > 0.0 && own > 0.0 {
            items[i].estimate.total += excess * (own / (own + variances[i]));
        }
        if let Some(p) = items[i].competes_in(i) {
            sums[p] += items[i].estimate.total / items[i].share();
            variances[p] += items[i].variance();
        }
    }
    Some(())
}

/// Makes sequential children fit into their parent's time.
fn lower_children(items: &mut [Item], room: f64, children: impl Iterator<Item = usize> + Clone) {
    let excess = sum(items, children.clone()) - room;
    if excess <= 0.0 {
        return;
    }
    let variance: f64 = children.clone().map(|c| items[c].variance()).sum();
    if variance > 0.0 {
        for c in children.clone() {
            let cut = (excess * (items[c].variance() / variance)) * items[c].share();
            let estimate = &mut items[c].estimate;
            estimate.total = (estimate.total - cut.min(MAX_LOWERING * estimate.error)).max(0.0);
        }
    }
    let left = sum(items, children.clone());
    if left > room {
        for c in children {
            items[c].estimate.total *= room / left;
        }
    }
}

#[cfg(test)]
mod tests;
