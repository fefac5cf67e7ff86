//! All nodes of a plan that is to be folded, also those that were pruned when its statement started.

use super::by_tables::ByTables;
use super::identity::mixed;
use super::pruned;
use super::tree::{self, Found};
use crate::pg::handles::{Handle, PlanRef, PlanStateRef};
use crate::pg::server;
use pgrx::pg_sys::{self, EState, NodeTag};
use rowsource_core::model::{Calls, Fold, PlanPart};
use rowsource_core::reconcile::Edge;
use rustc_hash::{FxHashMap, FxHashSet};

/// Returns the subplans that the expressions of a node call. May raise.
pub type SubplansOf = for<'q> fn(PlanRef<'q>) -> Vec<Handle<'q, pg_sys::SubPlan>>;

/// A node without a measured state: the plan of one that was pruned, or the state of one in a subplan that
/// only those call.
enum Unmeasured<'q> {
    Plan(PlanRef<'q>),
    State(PlanStateRef<'q>),
}

/// All nodes of a plan, also those that were pruned when the statement started.
pub struct Whole<'a, 'q> {
    shown: &'a [Found<'q>],
    estate: Handle<'q, EState>,
    pub parts: Vec<PlanPart>,
    /// The Append that is nearest above each part.
    appends: Vec<Option<PlanRef<'q>>>,
    pub calls: Calls,
    /// The parts behind those of `shown`.
    unmeasured: Vec<Unmeasured<'q>>,
    expressions: FxHashMap<u32, Handle<'q, pg_sys::SubPlan>>,
}

impl<'a, 'q> Whole<'a, 'q> {
    /// Finds them. May raise.
    pub fn of(numbers: &ByTables, estate: Handle<'q, EState>, shown: &'a [Found<'q>], hidden: bool) -> Self {
        let mut whole = Whole {
            shown,
            estate,
            parts: Vec::with_capacity(shown.len()),
            appends: Vec::with_capacity(shown.len()),
            calls: Calls::default(),
            unmeasured: Vec::new(),
            expressions: FxHashMap::default(),
        };
        whole.add_states(numbers, shown, usize::from(hidden), false);
        for (at, append) in shown.iter().map(|place| place.plan_state).enumerate() {
            let is_append = matches!(append.tag(), NodeTag::T_AppendState | NodeTag::T_MergeAppendState);
            if !is_append || pruned::pruned_inputs(append) == 0 {
                continue;
            }
            // One of those that do the same is enough.
            let mut known = FxHashSet::default();
            for plan in pruned::pruned_plans(append) {
                server::check_for_interrupts();
                let before = whole.parts.len();
                let Some(number) = whole.add_pruned(numbers, plan, at) else {
                    // It has a node that cannot be described without a state.
                    whole.truncate(shown.len());
                    return whole;
                };
                if !known.insert(number) {
                    whole.truncate(before);
                }
            }
        }
        whole
    }

    /// Adds a node, of whose part the place is known.
    fn push(
        &mut self,
        numbers: &ByTables,
        plan: PlanRef<'q>,
        state: Option<PlanStateRef<'q>>,
        place: PlanPart,
    ) {
        let append = match place.parent.filter(|_| !place.by_expression) {
            Some(above) if self.parts[above].is_append => Some(self.plan(above)),
            Some(above) => self.appends[above],
            None => None,
        };
        self.appends.push(append);
        self.parts.push(PlanPart {
            parent: place.parent,
            by_expression: place.by_expression,
            is_pruned: place.is_pruned,
            ..numbers.part(plan, self.estate, state, append)
        });
    }

    /// Forgets all parts behind the first ones, of which those of `shown` are some.
    fn truncate(&mut self, parts: usize) {
        self.parts.truncate(parts);
        self.appends.truncate(parts);
        self.unmeasured.truncate(parts - self.shown.len());
    }

    /// Adds nodes with states, whose parents count from `hidden`.
    fn add_states(&mut self, numbers: &ByTables, places: &[Found<'q>], hidden: usize, is_pruned: bool) {
        let first = self.parts.len();
        let mut roots: FxHashMap<*mut pg_sys::PlanState, usize> = FxHashMap::default();
        for (at, place) in (first..).zip(places) {
            let state = place.plan_state;
            let parent = usize::try_from(place.parent - hidden as i32).ok();
            let part = PlanPart {
                parent: parent.map(|parent| first + parent),
                by_expression: place.by_expression,
                is_pruned,
                ..PlanPart::default()
            };
            if is_pruned {
                self.unmeasured.push(Unmeasured::State(state));
            }
            self.push(numbers, state.plan(), Some(state), part);
            if place.by_expression {
                roots.insert(state.as_ptr(), at);
            }
        }
        for (at, place) in (first..).zip(places) {
            for subplan in place.plan_state.subplans().iter() {
                let number = subplan.expression().plan_id as u32;
                self.calls.entry(at).or_default().push(number);
                self.expressions.insert(number, subplan.expression());
                let root = subplan.root().and_then(|root| roots.get(&root.as_ptr()));
                if let Some(root) = root {
                    self.parts[*root].subplan = number;
                }
            }
        }
    }

    /// Adds the plan of an input that was pruned. Returns a number for what it does. Returns `None` if no
    /// state can stand for one of its nodes.
    fn add_pruned(&mut self, numbers: &ByTables, plan: PlanRef<'q>, parent: usize) -> Option<u64> {
        let (mut steps, first) = (vec![(plan, parent)], self.parts.len());
        let mut hash = 0;
        while let Some((plan, parent)) = steps.pop() {
            if !pruned::can_stand_in(plan) {
                return None;
            }
            let at = self.parts.len();
            let part = PlanPart {
                parent: Some(parent),
                is_pruned: true,
                ..PlanPart::default()
            };
            self.unmeasured.push(Unmeasured::Plan(plan));
            self.push(numbers, plan, None, part);
            hash = mixed(
                mixed(hash, self.parts[at].number as i64),
                parent.saturating_sub(first) as i64,
            );
            let inputs = pruned::inputs(plan).into_iter().rev();
            steps.extend(inputs.map(|input| (input, at)));
        }
        Some(hash)
    }

    /// Adds the subplans that nodes call whose partitions were all pruned. Returns whether there are some.
    /// May raise.
    pub fn add_calls(&mut self, numbers: &ByTables, fold: &Fold, subplans_of: SubplansOf) -> bool {
        let before = self.calls.len();
        for node in fold.nodes().iter().filter(|node| node.is_pruned) {
            let at = node.first as usize;
            for subplan in subplans_of(self.plan(at)) {
                let number = subplan.plan_id as u32;
                self.calls.entry(at).or_default().push(number);
                if self.expressions.insert(number, subplan).is_none() {
                    self.add_subplan(numbers, subplan.plan_id);
                }
            }
        }
        self.calls.len() > before
    }

    /// Adds a subplan that nothing calls that runs.
    fn add_subplan(&mut self, numbers: &ByTables, number: i32) {
        let Some(root) = pruned::subplan_state(self.estate, number) else {
            return;
        };
        let mut places = tree::Nodes::new();
        tree::walk(root, &mut places);
        let first = self.parts.len();
        self.add_states(numbers, &places, 0, true);
        if let Some(root) = self.parts.get_mut(first) {
            (root.subplan, root.by_expression) = (number as u32, true);
        }
    }

    /// Returns the plan of a node.
    pub fn plan(&self, at: usize) -> PlanRef<'q> {
        match at.checked_sub(self.shown.len()).map(|at| &self.unmeasured[at]) {
            None => self.shown[at].plan_state.plan(),
            Some(Unmeasured::Plan(plan)) => *plan,
            Some(Unmeasured::State(state)) => state.plan(),
        }
    }

    /// Returns what stands for the nodes of the folded plan whose partitions were all pruned. May raise.
    pub fn stand_ins(&self, fold: &Fold) -> Vec<Found<'q>> {
        let nodes = fold.nodes();
        let mut inputs: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
        let mut states: Vec<Option<PlanStateRef>> = vec![None; nodes.len()];
        for (at, node) in nodes.iter().enumerate().filter(|(_, node)| !node.by_expression) {
            if let Some(parent) = node.parent {
                inputs[parent as usize].push(at);
            }
        }
        // Inputs come after who reads them.
        for (at, node) in nodes.iter().enumerate().rev() {
            if node.is_made() {
                // EXPLAIN does not see it.
                states[at] = inputs[at].first().and_then(|input| states[*input]);
            }
            if !node.is_pruned {
                continue;
            }
            let part = node.first as usize;
            states[at] = match &self.unmeasured[part - self.shown.len()] {
                Unmeasured::State(state) => Some(*state),
                Unmeasured::Plan(plan) => {
                    let below = inputs[at].iter().filter_map(|input| states[*input]);
                    let calls = self.calls.get(&part).into_iter().flatten();
                    let subplans = calls.filter_map(|number| self.expressions.get(number).copied());
                    let below: Vec<PlanStateRef> = below.collect();
                    pruned::stand_in(*plan, self.estate, &below, &subplans.collect::<Vec<_>>())
                }
            };
        }
        let pruned = nodes.iter().zip(states).filter(|(node, _)| node.is_pruned);
        let pruned = pruned.filter_map(|(node, state)| {
            Some(Found {
                plan_state: state?,
                parent: -1,
                depth: 0,
                edge: Edge::Sequential,
                by_expression: node.by_expression,
                under_gather: false,
                hidden: false,
            })
        });
        pruned.collect()
    }
}
