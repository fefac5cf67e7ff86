//! Which nodes of two plans are the same.

use super::side::{Node, Side};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// The nodes of two plans that belong together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pairs {
    /// For each node of the second plan, the node of the first one.
    pub first: Vec<Option<usize>>,
    /// For each node of the first plan, the node of the second one.
    pub second: Vec<Option<usize>>,
}

impl Pairs {
    fn add(&mut self, first: usize, second: usize) {
        self.first[second] = Some(first);
        self.second[first] = Some(second);
    }
}

/// Which part of its work a node of an aggregate does.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Stage {
    Whole,
    Partial,
    Finalize,
}

impl Stage {
    fn of(node: &Node) -> Stage {
        match node.operation.split(' ').next() {
            Some("Partial") => Stage::Partial,
            Some("Finalize") => Stage::Finalize,
            _ => Stage::Whole,
        }
    }

    /// Returns the stages that do the same, the best first. What comes before the rows of all processes are
    /// together has nothing to do with what comes after that.
    fn same(self) -> &'static [Stage] {
        match self {
            Stage::Whole => &[Stage::Whole, Stage::Finalize, Stage::Partial],
            Stage::Partial => &[Stage::Partial, Stage::Whole],
            Stage::Finalize => &[Stage::Finalize, Stage::Whole],
        }
    }
}

/// Returns the operation without what only says which processes run it.
fn operation(node: &Node) -> &str {
    let mut name = node.operation.as_str();
    for prefix in ["Parallel ", "Partial ", "Finalize ", "Async "] {
        name = name.strip_prefix(prefix).unwrap_or(name);
    }
    name
}

/// Returns whether both do the same: the same operation, with the same index if they use one.
pub fn do_the_same(first: &Node, second: &Node) -> bool {
    operation(first) == operation(second) && first.object == second.object
}

/// Finds the pairs. First those with the same object: the same operation before another one, in EXPLAIN's
/// order. Then, from the root down, nodes without an object that have the same operation below nodes that are
/// a pair.
pub fn pairs(first: &Side, second: &Side) -> Pairs {
    let mut pairs = Pairs {
        first: vec![None; second.nodes.len()],
        second: vec![None; first.nodes.len()],
    };
    type Key<'a> = (
        &'a str,
        Option<&'a str>,
        Option<&'a str>,
        &'a str,
        Option<&'a str>,
    );
    fn exactly(node: &Node) -> Option<Key<'_>> {
        let relation = node.relation()?;
        let (schema, alias) = (node.schema.as_deref(), node.alias.as_deref());
        Some((relation, schema, alias, operation(node), node.object.as_deref()))
    }
    fn by_object(node: &Node) -> Option<Key<'_>> {
        let (relation, schema, alias, ..) = exactly(node)?;
        Some((relation, schema, alias, "", None))
    }
    for key in [exactly, by_object] {
        let mut free: FxHashMap<Key<'_>, VecDeque<usize>> = FxHashMap::default();
        for (i, node) in first.nodes.iter().enumerate() {
            if let (None, Some(key)) = (pairs.second[i], key(node)) {
                free.entry(key).or_default().push_back(i);
            }
        }
        for (i, node) in second.nodes.iter().enumerate() {
            if let (None, Some(key)) = (pairs.first[i], key(node))
                && let Some(found) = free.get_mut(&key).and_then(VecDeque::pop_front)
            {
                pairs.add(found, i);
            }
        }
    }
    add_by_path(first, second, &mut pairs);
    pairs
}

/// Adds pairs of nodes without an object.
fn add_by_path(first: &Side, second: &Side, pairs: &mut Pairs) {
    let mut free: FxHashMap<(Option<usize>, &str, Stage), VecDeque<usize>> = FxHashMap::default();
    for (i, node) in first.nodes.iter().enumerate() {
        if node.object.is_none() {
            let key = (node.parent, operation(node), Stage::of(node));
            free.entry(key).or_default().push_back(i);
        }
    }
    for (i, node) in second.nodes.iter().enumerate() {
        if node.object.is_none() {
            let above = above(second, &pairs.first, i);
            let above = above.and_then(|above| pairs.first[above]);
            let mut stages = Stage::of(node).same().iter();
            let found = stages.find_map(|stage| free.get_mut(&(above, operation(node), *stage))?.pop_front());
            if let Some(found) = found {
                pairs.add(found, i);
            }
        }
    }
}

/// Returns the nearest node above a node that has a partner. A plan is deep only if it is large, and has at
/// most [`crate::model::MAX_NODES`] nodes.
pub(super) fn above(side: &Side, partners: &[Option<usize>], i: usize) -> Option<usize> {
    let parent = |i: usize| side.nodes.get(i).and_then(|node| node.parent);
    std::iter::successors(parent(i), |above| parent(*above)).find(|above| partners[*above].is_some())
}
