//! Folds a plan: children of an Append that do the same to different partitions of a table become one node,
//! which has the sums of their statistics.
//!
//! Nodes are equal if the same [`PlanPart::number`] was computed for them, and if their inputs are equal. The
//! groups of an Append are sorted by these numbers. A partition that the planner left alone has no Append. It
//! gets one, which has its InitPlans.
//!
//! Partitions that were pruned when the statement started count as well, though they have no states: what
//! only they do is a node of the folded plan that did not run. So the folded plan is the same whichever
//! partitions are left.
//!
//! InitPlans and subplans do not tell partitions apart. A subplan that several nodes share is below the first
//! of them in the order of the folded plan.

use super::estimates::EstimateSum;
use super::facts::{NodeFacts, NodeKind, PARTITIONS_PLANNED, PARTITIONS_RUN, SUBPLANS_REMOVED};
use super::node::{NodeStats, Time};
use super::plan::ExecutionStats;
use super::statement_facts::Outside;
use crate::histogram::Histogram;
use crate::plan::Costs;
use crate::stable_hash::StableHasher;
use crate::waits::plan::{EventWaits, PlanWaits, RunWaits};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

/// A node of a plan, as far as folding needs to know it.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlanPart {
    /// The index of its parent, which comes before it.
    pub parent: Option<usize>,
    /// What it does. It is the same for all partitions of a table, on each server and major.
    pub number: u64,
    /// It is an Append or a MergeAppend.
    pub is_append: bool,
    /// It scans a partition.
    pub is_partition: bool,
    /// What it scans or appends is a partition of what the Append that is nearest above it appends.
    pub is_appended: bool,
    /// An Append of partitions has it above each of them: a filter that is tested once, or functions that
    /// return sets.
    pub is_for_each: bool,
    /// It is an InitPlan or a subplan of its parent, not an input.
    pub by_expression: bool,
    /// The number of the subplan whose root it is, if it is one of those that [`Calls`] tells of. Else 0.
    pub subplan: u32,
    /// It works in several processes together, and the planner makes Appends of such nodes parallel.
    pub is_in_parallel: bool,
    /// Only core measures it.
    pub by_core: bool,
    /// It was pruned when the statement started, so it has no state. Those that were not come before.
    pub is_pruned: bool,
}

/// The subplans that the nodes of a plan call, by the nodes' indexes, in the order in which they do.
pub type Calls = FxHashMap<usize, Vec<u32>>;

/// A node of a folded plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoldedNode {
    /// The index of its parent in the folded plan.
    pub parent: Option<u32>,
    /// The distance from the root.
    pub depth: u32,
    /// The first of the plan's nodes that it stands for, one that was not pruned if there is one. Of a made
    /// Append: the node below it.
    pub first: u32,
    /// How many of the plan's nodes it stands for that were not pruned; 0 for the Append that was made for a
    /// lone partition.
    pub count: u32,
    /// It is an InitPlan or a subplan of its parent, not an input.
    pub by_expression: bool,
    /// It stands for partitions: its parent is an Append of them, it is none, and it scans one, or an input
    /// does.
    pub is_partitions: bool,
    /// Only core measures it.
    pub by_core: bool,
    /// Of an Append that was made: it is a Parallel Append.
    pub is_parallel: bool,
    /// All that it stands for was pruned when the statement started.
    pub is_pruned: bool,
}

impl FoldedNode {
    /// Returns whether it is an Append that the plan does not have.
    pub fn is_made(&self) -> bool {
        self.count == 0 && !self.is_pruned
    }
}

/// Which nodes of a plan are one node of the folded plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fold {
    /// For each node of the plan, its index in the folded plan.
    of: Vec<u32>,
    /// The folded plan, in pre-order.
    nodes: Vec<FoldedNode>,
}

/// Nodes that become one node, and where that is.
struct Group {
    members: Vec<usize>,
    parent: Option<u32>,
    depth: u32,
    /// What becomes [`FoldedNode::is_partitions`].
    is_partitions: bool,
    /// An Append was made above it, for the lone partition that it leads to.
    is_below_made: bool,
}

/// What is to be added to a folded plan.
enum Step {
    Node(Group),
    /// The subplans of a node that no node before it calls.
    Subplans(Group),
}

impl Fold {
    /// Folds a plan. Each node comes after its parent, in the order of its siblings. Returns `None` if no
    /// node scans a partition.
    pub fn new(plan: &[PlanPart], calls: &Calls) -> Option<Fold> {
        if !plan.iter().any(|part| part.is_partition) {
            return None;
        }
        let mut tree = Tree::of(plan, calls);
        let real_nodes = plan.iter().take_while(|part| !part.is_pruned).count();
        let mut fold = Fold {
            of: vec![0; real_nodes],
            nodes: Vec::with_capacity(plan.len()),
        };
        let mut steps = vec![Step::Node(Group {
            members: vec![0],
            parent: None,
            depth: 0,
            is_partitions: false,
            is_below_made: false,
        })];
        while let Some(step) = steps.pop() {
            let below = match step {
                Step::Node(group) => fold.add(&tree, group),
                Step::Subplans(node) => {
                    let groups = tree.take_subplans(&node.members).into_iter();
                    groups
                        .map(|members| Step::Node(Group { members, ..node }))
                        .collect()
                }
            };
            steps.extend(below.into_iter().rev());
        }
        Some(fold)
    }

    /// Adds a node, or the Append that is made above it. Returns what comes below.
    fn add(&mut self, tree: &Tree, group: Group) -> Vec<Step> {
        let plan = tree.plan;
        let real = group.members.iter().filter(|member| !plan[**member].is_pruned);
        let first = real.clone().next().unwrap_or(&group.members[0]);
        let part = &plan[*first];
        let leads_to_lone = tree.leads_to_lone[group.members[0]];
        let is_made = leads_to_lone && !group.is_below_made;
        let is_of_made =
            group.is_below_made && group.parent.is_some_and(|above| self.is_made(above as usize));
        let index = self.nodes.len() as u32;
        let count = if is_made { 0 } else { real.clone().count() as u32 };
        self.nodes.push(FoldedNode {
            parent: group.parent,
            depth: group.depth,
            first: *first as u32,
            count,
            by_expression: part.by_expression && !is_of_made,
            is_partitions: group.is_partitions,
            by_core: part.by_core,
            is_parallel: is_made && tree.is_in_parallel(*first),
            is_pruned: count == 0 && !is_made,
        });
        let below = |members| Group {
            members,
            parent: Some(index),
            depth: group.depth + 1,
            is_partitions: false,
            is_below_made: false,
        };
        let is_init_plan = |members: &Vec<usize>| plan[members[0]].by_expression;
        let mut groups = tree.groups_below(&group.members);
        if is_made {
            // The planner gives an Append the InitPlans.
            groups.retain(is_init_plan);
            let mut steps: Vec<Step> = groups
                .into_iter()
                .map(|members| Step::Node(below(members)))
                .collect();
            steps.push(Step::Node(Group {
                is_partitions: true,
                is_below_made: true,
                ..below(group.members)
            }));
            return steps;
        }
        for member in real {
            self.of[*member] = index;
        }
        groups.retain(|members| !is_of_made || !is_init_plan(members));
        let inputs = groups.into_iter().map(|members| {
            let child = &plan[members[0]];
            let is_appended = part.is_append && !child.by_expression && tree.has_appended[members[0]];
            Step::Node(Group {
                is_partitions: is_appended && !child.is_append,
                is_below_made: leads_to_lone && !child.by_expression,
                ..below(members)
            })
        });
        let mut steps: Vec<Step> = inputs.collect();
        if group.members.iter().any(|member| tree.calls.contains_key(member)) {
            steps.push(Step::Subplans(below(group.members)));
        }
        steps
    }

    /// Returns the number of nodes of the plan.
    pub fn real_nodes(&self) -> usize {
        self.of.len()
    }

    /// Returns how many bytes it takes beside itself.
    pub fn size(&self) -> usize {
        size_of_val(&*self.of) + size_of_val(&*self.nodes)
    }

    /// Returns the nodes of the folded plan.
    pub fn nodes(&self) -> &[FoldedNode] {
        &self.nodes
    }

    /// Returns the index of a node in the folded plan, also of one that was folded while it ran
    /// ([`Fold::while_running`]). A node that the plan does not have stays as it is.
    pub fn of(&self, node: usize) -> usize {
        match (self.of.get(node), node.checked_sub(self.of.len())) {
            (Some(folded), _) => *folded as usize,
            (None, Some(folded)) if folded < self.nodes.len() => folded,
            _ => node,
        }
    }

    /// Returns a number for the node of the folded plan that has a node, behind those of the plan's nodes.
    pub fn while_running(&self, node: usize) -> usize {
        match node < self.of.len() {
            true => self.of.len().wrapping_add(self.of(node)),
            false => node,
        }
    }

    /// Returns the waits of an execution that are kept. If they are too many, those of nodes that are one are
    /// summed up, as while it ran.
    pub fn to_keep<const N: usize, const M: usize>(&self, waits: &PlanWaits<N>) -> PlanWaits<M> {
        if waits.events().count() <= M {
            return PlanWaits::of(waits);
        }
        let mut folded = *waits;
        move_nodes(&mut folded, |node| Some(self.while_running(node)));
        PlanWaits::of(&folded)
    }

    /// Moves waits of nodes that were folded while they ran outside of the nodes: who sees each partition
    /// cannot say which one waited.
    pub fn move_folded_waits<const N: usize>(&self, waits: &mut PlanWaits<N>) {
        move_nodes(waits, |node| (node < self.of.len()).then_some(node));
    }

    /// Returns whether a node of the folded plan is an Append that the plan does not have.
    pub fn is_made(&self, folded: usize) -> bool {
        self.nodes.get(folded).is_some_and(FoldedNode::is_made)
    }

    /// Returns each Append that was made, and the node below it that is no InitPlan.
    pub fn made(&self) -> impl Iterator<Item = (usize, usize)> {
        let inputs = self
            .nodes
            .iter()
            .enumerate()
            .filter(|(_, node)| !node.by_expression);
        inputs.filter_map(|(at, node)| {
            let above = node.parent? as usize;
            self.is_made(above).then_some((above, at))
        })
    }

    /// Returns whether there are nodes whose partitions were all pruned when the statement started.
    pub fn has_pruned(&self) -> bool {
        self.nodes.iter().any(|node| node.is_pruned)
    }

    /// Returns a hash of what the folded plan does, with `number` of each node that it stands for.
    pub fn hash(&self, number: impl Fn(&FoldedNode) -> u64) -> i64 {
        let mut hash = StableHasher::new();
        for node in &self.nodes {
            hash.number(node.depth);
            hash.byte(u8::from(node.by_expression));
            hash.bytes(number(node).to_le_bytes());
        }
        hash.finish()
    }

    /// Folds what the planner expected: costs are summed up, rows of a start are averaged.
    pub fn costs(&self, costs: impl Iterator<Item = Costs>) -> Vec<Costs> {
        let mut folded = vec![Costs::default(); self.nodes.len()];
        for (costs, of) in costs.zip(&self.of) {
            let (sum, count) = (&mut folded[*of as usize], self.nodes[*of as usize].count);
            if sum.total_cost == 0.0 {
                sum.startup_cost = costs.startup_cost;
            }
            sum.total_cost += costs.total_cost;
            sum.plan_rows += costs.plan_rows / f64::from(count);
            sum.plan_width = sum.plan_width.max(costs.plan_width);
        }
        for (made, below) in self.made() {
            folded[made] = folded[below];
        }
        folded
    }

    /// Passes the statistics of an execution to `add`, folded.
    pub fn fold<T>(&self, execution: &ExecutionStats<'_>, add: impl FnOnce(&ExecutionStats<'_>) -> T) -> T {
        let nodes = self.stats(execution.nodes);
        let histograms = self.histograms(execution.histograms);
        let histograms: Vec<&Histogram> = histograms.iter().collect();
        let (mut waits, mut called) = (RunWaits::none(), Vec::new());
        let outside = execution.outside.map(|outside| {
            called.extend(outside.called.iter().map(|(at, called)| (self.of(*at), *called)));
            Outside {
                sums: outside.sums,
                waits: outside.waits.map(|unfolded| {
                    waits = *unfolded;
                    self.move_waits(&mut waits);
                    &waits
                }),
                called: &called,
            }
        });
        add(&ExecutionStats {
            run: execution.run,
            outside: outside.as_ref(),
            nodes: &nodes,
            histograms: &histograms,
            partitions: execution.partitions,
        })
    }

    /// Folds the statistics of an execution's nodes. Rows, starts, times, blocks, WAL and waits are sums;
    /// squares of standard errors are added; [`NodeFacts::add`] says what becomes of the facts.
    pub fn stats(&self, stats: &[NodeStats]) -> Vec<NodeStats> {
        let mut folded = vec![NodeStats::default(); self.nodes.len()];
        let mut estimates = vec![EstimateSum::default(); self.nodes.len()];
        for (stats, of) in stats.iter().zip(&self.of) {
            folded[*of as usize].add(stats);
            estimates[*of as usize].add(&stats.estimate, stats.starts.get_or_zero());
        }
        for (stats, sum) in folded.iter_mut().zip(&estimates) {
            stats.estimate = sum.estimate();
        }
        for (made, below) in self.made() {
            folded[made] = appended(&folded[below]);
        }
        let ran = stats.iter().map(|stats| stats.starts.get_or_zero() > 0);
        self.count_partitions(ran, |append, planned, ran| {
            let sums = &mut folded[append].facts.sums;
            sums[PARTITIONS_PLANNED] += planned + sums[SUBPLANS_REMOVED];
            sums[PARTITIONS_RUN] += ran;
        });
        folded
    }

    /// Calls `count` with each Append of partitions, how many it has that were not pruned when the statement
    /// started, and how many of them ran. `ran` says that of the plan's nodes.
    pub fn count_partitions(&self, ran: impl Iterator<Item = bool>, mut count: impl FnMut(usize, u64, u64)) {
        let mut counts = vec![(0, 0); self.nodes.len()];
        let mut is_append = vec![false; self.nodes.len()];
        for node in self.nodes.iter().filter(|node| node.is_partitions) {
            if let Some(append) = node.parent {
                is_append[append as usize] = true;
            }
        }
        for (of, ran) in self.of.iter().zip(ran) {
            let node = &self.nodes[*of as usize];
            if let Some(append) = node.parent.filter(|_| node.is_partitions) {
                let (planned, run) = &mut counts[append as usize];
                *planned += 1;
                *run += u64::from(ran);
            }
        }
        let appends = counts.iter().enumerate().filter(|(at, _)| is_append[*at]);
        appends.for_each(|(append, (planned, ran))| count(append, *planned, *ran));
    }

    /// Folds the histograms of the nodes' calls. An Append that was made has none.
    pub fn histograms(&self, histograms: &[&Histogram]) -> Vec<Histogram> {
        let mut folded = vec![Histogram::default(); self.nodes.len()];
        for (histogram, of) in histograms.iter().zip(&self.of) {
            folded[*of as usize].add(histogram);
        }
        folded
    }

    /// Moves the waits to the nodes of the folded plan.
    pub fn move_waits<const N: usize>(&self, waits: &mut PlanWaits<N>) {
        move_nodes(waits, |node| Some(self.of(node)));
    }
}

/// Moves the waits of each node to another one, or outside of all.
fn move_nodes<const N: usize>(waits: &mut PlanWaits<N>, to: impl Fn(usize) -> Option<usize>) {
    waits.move_nodes(|waits| {
        let node = waits.node().and_then(&to);
        node.map_or(EventWaits::OUTSIDE, |node| node as u32)
    });
}

/// The statistics of an Append whose only child has these: it takes nothing itself.
fn appended(child: &NodeStats) -> NodeStats {
    let time = child.time.get().map(|time| Time { self_ms: 0.0, ..time });
    NodeStats {
        time: time.into(),
        timed_calls: 0,
        timer_calls: 0,
        clock_backsteps: 0,
        wait_ms: 0.0,
        facts: NodeFacts {
            kind: NodeKind::Append,
            ..NodeFacts::default()
        },
        ..*child
    }
}

/// A plan with what its nodes have below them.
struct Tree<'a> {
    plan: &'a [PlanPart],
    calls: &'a Calls,
    /// The children of each node, in the plan's order, but for subplans that calls tell of.
    children: Vec<Vec<usize>>,
    /// The roots of the subplans that have no place yet.
    subplans: FxHashMap<u32, usize>,
    /// A number for what each node and its inputs do.
    numbers: Vec<u64>,
    /// The node or one of its inputs is a partition of what the Append appends that is nearest above the
    /// node.
    has_appended: Vec<bool>,
    /// It scans a partition that no Append has, or it is what an Append of partitions would have above that.
    leads_to_lone: Vec<bool>,
}

impl<'a> Tree<'a> {
    fn of(plan: &'a [PlanPart], calls: &'a Calls) -> Tree<'a> {
        let mut tree = Tree {
            plan,
            calls,
            children: vec![Vec::new(); plan.len()],
            subplans: FxHashMap::default(),
            numbers: vec![0; plan.len()],
            has_appended: vec![false; plan.len()],
            leads_to_lone: vec![false; plan.len()],
        };
        for (at, part) in plan.iter().enumerate() {
            if part.subplan != 0 {
                tree.subplans.insert(part.subplan, at);
            } else if let Some(parent) = part.parent {
                tree.children[parent].push(at);
            }
        }
        // Each node comes after its parent.
        for at in (0..plan.len()).rev() {
            let inputs = tree.children[at]
                .iter()
                .filter(|child| !plan[**child].by_expression);
            tree.has_appended[at] = plan[at].is_appended
                || !plan[at].is_append && inputs.clone().any(|child| tree.has_appended[*child]);
            tree.leads_to_lone[at] = plan[at].is_partition && !plan[at].is_appended
                || plan[at].is_for_each && inputs.clone().all(|child| tree.leads_to_lone[*child]);
            let mut hash = StableHasher::new();
            hash.bytes(plan[at].number.to_le_bytes());
            let below: Vec<Vec<usize>> = match plan[at].is_append {
                true => tree.groups_below(&[at]),
                false => inputs.map(|child| vec![*child]).collect(),
            };
            for group in below.iter().filter(|group| !plan[group[0]].by_expression) {
                hash.bytes(tree.numbers[group[0]].to_le_bytes());
            }
            tree.numbers[at] = hash.finish() as u64;
        }
        tree
    }

    /// Returns whether the lone partition to which a node leads is read in parallel.
    fn is_in_parallel(&self, node: usize) -> bool {
        let mut at = node;
        while !self.plan[at].is_partition {
            let mut inputs = self.children[at].iter();
            let Some(input) =
                inputs.find(|input| self.leads_to_lone[**input] && !self.plan[**input].by_expression)
            else {
                break;
            };
            at = *input;
        }
        self.plan[at].is_in_parallel
    }

    /// Returns the groups of subplans of equal nodes that become one node each, and that no other nodes have.
    fn take_subplans(&mut self, members: &[usize]) -> Vec<Vec<usize>> {
        let mut groups: Vec<Vec<usize>> = Vec::new();
        let mut known: FxHashMap<(u64, usize), usize> = FxHashMap::default();
        for calls in members.iter().filter_map(|member| self.calls.get(member)) {
            let mut same: FxHashMap<u64, usize> = FxHashMap::default();
            for root in calls.iter().filter_map(|subplan| self.subplans.remove(subplan)) {
                let number = self.numbers[root];
                let place = same.entry(number).or_default();
                *place += 1;
                let group = *known.entry((number, *place)).or_insert_with(|| {
                    groups.push(Vec::new());
                    groups.len() - 1
                });
                groups[group].push(root);
            }
        }
        groups
    }

    /// Returns the groups of nodes below equal nodes that become one node each.
    fn groups_below(&self, members: &[usize]) -> Vec<Vec<usize>> {
        let mut groups: Vec<Vec<usize>> = Vec::new();
        // The group of each kind of child: inputs by their position, others by what they do.
        let mut known: FxHashMap<(u64, usize), usize> = FxHashMap::default();
        let mut sorted: FxHashMap<u64, Vec<usize>> = FxHashMap::default();
        for member in members {
            let mut inputs = 0;
            let mut same: FxHashMap<u64, usize> = FxHashMap::default();
            for child in &self.children[*member] {
                let number = self.numbers[*child];
                let key = if self.plan[*child].by_expression {
                    let same = same.entry(number).or_default();
                    *same += 1;
                    (number, *same)
                } else if self.plan[*member].is_append && self.has_appended[*child] {
                    sorted.entry(number).or_default().push(*child);
                    continue;
                } else {
                    inputs += 1;
                    (0, inputs)
                };
                let group = *known.entry(key).or_insert_with(|| {
                    groups.push(Vec::new());
                    groups.len() - 1
                });
                groups[group].push(*child);
            }
        }
        let mut sorted: Vec<(u64, Vec<usize>)> = sorted.into_iter().collect();
        sorted.sort_unstable_by_key(|(number, _)| *number);
        groups.extend(sorted.into_iter().map(|(_, group)| group));
        groups
    }
}

#[cfg(test)]
mod tests;
