//! Makes the estimates of a plan's nodes consistent: no child, and no sum of children that ran one after the
//! other, takes more time than its parent.

use crate::sampler::Estimate;
use smallvec::SmallVec;
use std::ops::Range;

/// An estimate is lowered by at most this many of its standard errors before measured values are changed.
const MAX_LOWERING: f64 = 3.0;

/// How a node's work is contained in its parent's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// An input or a correlated subplan: it runs inside its parent, before or after its siblings.
    Sequential,
    /// An InitPlan or a CTE: it runs inside the first node that needs it, so a sibling may contain it. If
    /// that is known, [`Edge::Elsewhere`] takes its place.
    Nested,
    /// It ran outside its parent (a modifying CTE completed after the main plan), so the parent's time is no
    /// limit.
    Outside,
    /// An InitPlan, a CTE or a subplan that ran in the nodes of its [`Part`]s, no matter which node is its
    /// parent.
    Elsewhere,
}

/// The part of a subplan's work that was done in one node that called it.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Index of the subplan's top.
    pub of: usize,
    /// Index of the node; `None` if the subplan ran outside of all nodes.
    pub within: Option<usize>,
    /// Which part of the subplan's time that is. Those of a subplan add up to 1.
    pub fraction: f64,
    total: f64,
}

impl Part {
    /// Makes a part.
    pub fn new(of: usize, within: Option<usize>, fraction: f64) -> Part {
        Part {
            of,
            within,
            fraction,
            total: 0.0,
        }
    }
}

/// One node, given in pre-order (a parent before its children).
#[derive(Clone, Copy, Debug)]
pub struct Item {
    /// Index of the parent; `None` at the root.
    pub parent: Option<usize>,
    /// How the node's work is contained in the parent's.
    pub edge: Edge,
    /// How many processes ran it for each process that ran its parent: workers and leader below a Gather,
    /// else 1.
    pub processes: f64,
    /// Its estimate; it is adjusted in place.
    pub estimate: Estimate,
    /// How long the node itself waited. That is known, so its own time is no less.
    pub waited: f64,
    /// The same with all nodes below it that compete.
    least: f64,
}

impl Item {
    /// Makes the item of a node whose work is contained in its parent's as `edge` says.
    pub fn new(parent: Option<usize>, edge: Edge, processes: f64, estimate: Estimate) -> Item {
        Item {
            parent,
            edge,
            processes,
            estimate,
            waited: 0.0,
            least: 0.0,
        }
    }

    /// Returns the parent, if the node's time is part of the parent's.
    fn bounded_by(&self, i: usize) -> Option<usize> {
        let is_bounded = matches!(self.edge, Edge::Sequential | Edge::Nested);
        self.parent.filter(|&p| p < i && is_bounded)
    }

    /// Returns the parent, if the node and its siblings compete for the parent's time.
    fn competes_in(&self, i: usize) -> Option<usize> {
        self.parent.filter(|&p| p < i && self.edge == Edge::Sequential)
    }

    /// Returns how many processes ran the node for each process of its parent. Its time may be that many
    /// times its parent's.
    fn share(&self) -> f64 {
        self.processes.max(1.0)
    }
}

/// Adjusts the estimates, and returns each node's own time: its total minus that of its sequential children,
/// and minus the parts of subplans that ran in it. `parts` must be sorted by subplan, and has some of each
/// node whose edge is [`Edge::Elsewhere`]. `elapsed` is the time of the whole statement, in the unit of the
/// estimates, or infinity if it is not known: parts outside of all nodes ran in what the root left of it.
///
/// If children exceed an estimated parent, the parent is raised by its share of the joint variance. If they
/// still exceed it, the estimated children are lowered by their variance, as far as their errors allow. If
/// that is not enough, all children are scaled down. An exactly timed parent is never raised. Returns `None`
/// if there is no memory.
///
/// What a node itself waited counts as a child that takes this time: an estimate that is less, because no
/// sample had a wait, is raised, and its error by as much.
pub fn reconcile(
    items: &mut [Item],
    parts: &mut [Part],
    elapsed: f64,
) -> Option<SmallVec<[f64; MAX_INLINE]>> {
    if let [alone] = items
        && alone.waited <= alone.estimate.total
    {
        return filled(1, alone.estimate.total);
    }
    let mut own_time = filled(items.len(), 0.0)?;
    let family = Family::of(items, parts)?;
    let order = match parts {
        [] => None,
        _ => Some(family.order(items, parts)?),
    };
    let at = |k: usize| order.as_ref().map_or(k, |order| order[k]);
    let mut all = Below { items, parts };
    all.raise_parents(at)?;
    let root = all.items.first().map_or(0.0, |root| root.estimate.total);
    all.lower((elapsed - root).max(0.0), 0.0, family.outside());
    // A node's total is final before its children are adjusted.
    for i in (0..all.items.len()).map(at) {
        let item = &all.items[i];
        let room = match item.bounded_by(i) {
            Some(p) => all.items[p].estimate.total * item.share(),
            None if item.edge == Edge::Elsewhere => {
                all.parts[of(all.parts, i)].iter().map(|part| part.total).sum()
            }
            None => f64::INFINITY,
        };
        let is_room_exact = item
            .bounded_by(i)
            .is_some_and(|p| all.items[p].estimate.error == 0.0);
        let least = item.least;
        let estimate = &mut all.items[i].estimate;
        estimate.total = estimate.total.min(room);
        if least > 0.0 && is_room_exact {
            // The truth lies between what was waited and what the parent took.
            let farthest = (room - estimate.total).max(estimate.total - least);
            estimate.error = estimate.error.min(farthest.max(0.0));
        }
        estimate.startup = estimate.startup.min(estimate.total);
        let room = estimate.total;
        all.lower(room, all.items[i].waited, family.children(i));
    }
    for (i, own) in own_time.iter_mut().enumerate() {
        *own = (all.items[i].estimate.total - all.sum(family.children(i))).max(0.0);
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

/// Returns where the parts of a subplan are.
fn of(parts: &[Part], subplan: usize) -> Range<usize> {
    let first = parts.partition_point(|part| part.of < subplan);
    let count = parts[first..]
        .iter()
        .take_while(|part| part.of == subplan)
        .count();
    first..first + count
}

/// What is bounded by each node: its children, and parts of subplans. Each node has the first, and each of
/// these the next one; 0 is none. After the nodes comes what ran outside of all of them. The number of a part
/// is its index plus the number of nodes.
struct Family {
    first: SmallVec<[usize; MAX_INLINE]>,
    next: SmallVec<[usize; MAX_INLINE]>,
}

impl Family {
    fn of(items: &[Item], parts: &[Part]) -> Option<Self> {
        let mut family = Family {
            first: filled(items.len() + 1, 0)?,
            next: filled(items.len() + parts.len(), 0)?,
        };
        for (i, part) in parts.iter().enumerate() {
            family.link(part.within.unwrap_or(items.len()), items.len() + i);
        }
        for i in (0..items.len()).rev() {
            if let Some(p) = items[i].bounded_by(i) {
                family.link(p, i);
            }
        }
        Some(family)
    }

    fn link(&mut self, above: usize, below: usize) {
        self.next[below] = std::mem::replace(&mut self.first[above], below);
    }

    fn children(&self, i: usize) -> impl Iterator<Item = usize> + Clone {
        let child = |i: usize| (i > 0).then_some(i);
        std::iter::successors(child(self.first[i]), move |&i| child(self.next[i]))
    }

    fn outside(&self) -> impl Iterator<Item = usize> + Clone {
        self.children(self.first.len() - 1)
    }

    /// Returns the nodes in an order in which each comes after all nodes that bound it.
    fn order(&self, items: &[Item], parts: &[Part]) -> Option<SmallVec<[usize; MAX_INLINE]>> {
        let mut order: SmallVec<[usize; MAX_INLINE]> = SmallVec::new();
        order.try_reserve(items.len()).ok()?;
        // How many of those that bound it are not in the list.
        let mut missing = filled(items.len(), 0usize)?;
        for (i, item) in items.iter().enumerate() {
            missing[i] = match item.edge {
                Edge::Elsewhere => parts[of(parts, i)]
                    .iter()
                    .filter(|part| part.within.is_some())
                    .count(),
                _ => usize::from(item.bounded_by(i).is_some()),
            };
        }
        order.extend((0..items.len()).filter(|i| missing[*i] == 0));
        let (mut k, mut rest) = (0, 0..items.len());
        while order.len() < items.len() {
            if let Some(&i) = order.get(k) {
                k += 1;
                for below in self.children(i) {
                    let below = below
                        .checked_sub(items.len())
                        .map_or(below, |part| parts[part].of);
                    if missing[below] == 1 {
                        order.push(below);
                    }
                    missing[below] = missing[below].saturating_sub(1);
                }
            } else if let Some(i) = rest.find(|i| missing[*i] > 0) {
                // Subplans do not call each other in a circle. If they seem to, all nodes are taken all the
                // same.
                missing[i] = 0;
                order.push(i);
            } else {
                return None;
            }
        }
        Some(order)
    }
}

/// The nodes and parts, by the numbers that they have in a [`Family`].
struct Below<'a> {
    items: &'a mut [Item],
    parts: &'a mut [Part],
}

impl Below<'_> {
    /// Returns whether it competes with others for the time of the node that bounds it.
    fn competes(&self, c: usize) -> bool {
        self.items.get(c).is_none_or(|item| item.edge == Edge::Sequential)
    }

    /// Returns its part of the time of the node that bounds it.
    fn total(&self, c: usize) -> f64 {
        match self.items.get(c) {
            Some(item) => item.estimate.total / item.share(),
            None => self.parts[c - self.items.len()].total,
        }
    }

    /// Returns the standard error of that part.
    fn error(&self, c: usize) -> f64 {
        match self.items.get(c) {
            Some(item) => item.estimate.error / item.share(),
            None => {
                let part = &self.parts[c - self.items.len()];
                self.items[part.of].estimate.error * part.fraction
            }
        }
    }

    /// Multiplies its time, and then takes `cut` from its part of the time of the node that bounds it.
    fn lower_one(&mut self, c: usize, factor: f64, cut: f64) {
        let nodes = self.items.len();
        let (total, cut) = match self.items.get_mut(c) {
            Some(item) => {
                let cut = cut * item.share();
                (&mut item.estimate.total, cut)
            }
            None => (&mut self.parts[c - nodes].total, cut),
        };
        *total = (*total * factor - cut).max(0.0);
    }

    /// Returns the sum of those of `children` that compete.
    fn sum(&self, children: impl Iterator<Item = usize>) -> f64 {
        children
            .filter(|c| self.competes(*c))
            .map(|c| self.total(c))
            .sum()
    }

    /// Returns how much of its part of the time of the node that bounds it may be wrong.
    fn uncertain(&self, c: usize) -> f64 {
        let waited = self.items.get(c).map_or(0.0, |item| item.least / item.share());
        let most = MAX_LOWERING * self.error(c);
        most.min((self.total(c) - waited).max(0.0))
    }

    /// Makes those of a node's children that compete fit into its time, and those that are estimated into
    /// what is left of it when the node itself has `waited`.
    fn lower(&mut self, room: f64, waited: f64, children: impl Iterator<Item = usize> + Clone) {
        let excess = self.sum(children.clone()) - (room - waited).max(0.0);
        if excess <= 0.0 {
            return;
        }
        let mut variance = 0.0;
        for c in children.clone().filter(|c| self.competes(*c)) {
            variance += self.error(c) * self.error(c);
        }
        for c in children.clone() {
            if variance > 0.0 && self.competes(c) {
                let error = self.error(c);
                let cut = (excess * (error * error / variance)).min(self.uncertain(c));
                self.lower_one(c, 1.0, cut);
            }
        }
        let left = self.sum(children.clone());
        if left > room {
            for c in children {
                if self.competes(c) {
                    self.lower_one(c, room / left, 0.0);
                }
            }
        }
    }

    /// Raises each estimated parent that its children exceed, bottom-up, by its share of the joint variance.
    /// `at` is the order of the nodes.
    fn raise_parents(&mut self, at: impl Fn(usize) -> usize) -> Option<()> {
        let nodes = self.items.len();
        let mut sums = filled(nodes, 0.0)?;
        let mut least = filled(nodes, 0.0)?;
        let mut variances = filled(nodes, 0.0)?;
        for i in (0..nodes).rev().map(at) {
            let waited = self.items[i].waited;
            let estimate = &mut self.items[i].estimate;
            let own = estimate.error * estimate.error;
            let excess = sums[i] + waited - estimate.total;
            if excess > 0.0 && own > 0.0 {
                let raised = estimate.total + excess * (own / (own + variances[i]));
                let least = least[i] + waited;
                if raised < least || waited > 0.0 {
                    let more = raised.max(least) - estimate.total;
                    estimate.error = (own + more * more).sqrt();
                }
                estimate.total = raised.max(least);
            }
            let total = estimate.total;
            self.items[i].least = (least[i] + waited).min(total);
            if let Some(p) = self.items[i].competes_in(i) {
                sums[p] += self.total(i);
                variances[p] += self.error(i) * self.error(i);
                least[p] += self.items[i].least / self.items[i].share();
            } else if self.items[i].edge == Edge::Elsewhere {
                for part in of(self.parts, i) {
                    self.parts[part].total = total * self.parts[part].fraction;
                    if let Some(p) = self.parts[part].within {
                        sums[p] += self.total(nodes + part);
                        variances[p] += self.error(nodes + part) * self.error(nodes + part);
                    }
                }
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests;
