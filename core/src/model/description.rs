//! The description of a plan: the statement's text and its nodes, as EXPLAIN shows them.

use super::node::NodeStats;
use crate::normalise::{Constants, List, Text, with_literals};
use crate::plan::{Costs, ExplainedPlan, PlanNode};
use rustc_hash::FxHasher;
use serde::{Deserialize, Serialize, Serializer};
use std::hash::Hasher;
use std::rc::Rc;

/// The maximal bytes of a literal that is shown in a condition.
const LONGEST_LITERAL: usize = 200;
/// The maximal bytes of the constants that are stored with a description.
const MAX_CONSTANTS: usize = 4096;

/// Stores constants if they are few.
fn if_few<S: Serializer>(constants: &Option<Constants>, to: S) -> Result<S::Ok, S::Error> {
    let few = constants.as_ref();
    few.filter(|few| are_few(few)).serialize(to)
}

fn are_few(constants: &Constants) -> bool {
    constants.size() <= MAX_CONSTANTS
}

/// The numbers of a plan and of its statement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanIds {
    /// The `planid` in the views: made of names and definitions. It is the same on each server.
    pub planid: i64,
    /// The number that sessions know the plan by: made of OIDs.
    pub by_oids: i64,
    /// The hash of the statement's text without constants, spaces and comments.
    pub textid: i64,
    /// The planid that core or another extension gave the plan; 0 if none did.
    pub assigned: i64,
}

/// The description of a plan: the statement's text and the nodes. It is made once, and all executions share
/// it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PlanDescription {
    /// The numbers of the plan and of its statement. A stored description has them before all else.
    #[serde(skip)]
    pub ids: PlanIds,
    /// The beginning of the statement's text.
    pub text: String,
    /// The length and the hash of the statement's text, which [`PlanDescription::is_of`] compares.
    identity: (usize, u64),
    /// The nodes in EXPLAIN's order.
    pub nodes: Vec<PlanNode>,
    /// Whether the description is the same for all parameters: it shows parameters (`$1`), or no conditions
    /// at all.
    pub generic: bool,
    /// Where the statement has constants, if symbols like `$1` replace them in the text and the conditions.
    /// Those of a statement with very many are not stored.
    #[serde(serialize_with = "if_few")]
    pub(super) constants: Option<Constants>,
    /// The number of the names that the description shows ([`ExplainedPlan::names`]). It tells other sessions
    /// whether the description is right for them too.
    pub(super) names: Option<u64>,
    /// The lists of constants that one symbol replaces in the conditions.
    lists: Vec<List>,
    /// How many texts (of the statement, constants, conditions, names) were cut because they are too long.
    pub cut: u32,
    /// The indexes of the plan before that were gone when this one was first described, as `schema.index`.
    pub gone_indexes: Vec<String>,
    /// What tells the planner to make this plan again, if PostgreSQL has that.
    pub advice: Option<Box<str>>,
}

impl PlanDescription {
    /// Makes the description. [`PlanDescription::is_of`] compares the text `statement`; `shown` is the part
    /// of it that is stored.
    pub fn new(statement: &[u8], shown: String, is_cut: bool, plan: ExplainedPlan) -> Self {
        PlanDescription {
            ids: PlanIds::default(),
            text: shown,
            identity: identity(statement),
            generic: plan.generic,
            constants: None,
            names: None,
            lists: plan.lists,
            gone_indexes: Vec::new(),
            advice: None,
            cut: u32::try_from(plan.cut + usize::from(is_cut)).unwrap_or(u32::MAX),
            nodes: plan.nodes,
        }
    }

    /// Makes a description without constants, which is right for all executions. `shown` is the part of the
    /// statement's text that is stored, and `constants` are those that symbols replace in it.
    pub fn normalised(shown: String, is_cut: bool, plan: ExplainedPlan, constants: Constants) -> Self {
        PlanDescription {
            names: plan.names,
            constants: Some(constants),
            identity: (0, 0),
            ..PlanDescription::new(b"", shown, is_cut, plan)
        }
    }

    /// Returns whether the constants are stored with the description. If not, it is of no use to other
    /// sessions.
    pub fn stores_constants(&self) -> bool {
        self.constants.as_ref().is_none_or(are_few)
    }

    /// Returns whether symbols replace the constants.
    #[inline(always)]
    pub fn is_normalised(&self) -> bool {
        self.constants.is_some()
    }

    /// Returns a normalised description with the literals of an execution: its statement's text, and the
    /// literals in the conditions as far as they are in that text. `utf8` converts parts of the text from the
    /// server's encoding.
    pub fn with_literals(&self, text: Text, utf8: impl Fn(&[u8]) -> String) -> Self {
        let constants = self.constants.as_ref();
        let places = constants
            .and_then(|constants| {
                constants
                    .places(text)
                    .or_else(|| constants.places_in_other_text(text))
            })
            .unwrap_or_default();
        let place = |number| places.iter().find(|place| place.number == number);
        let literal = |number, is_array: bool| {
            let list = self.lists.iter().find(|list| list.number == number);
            let (first, last) = match list {
                Some(list) => (place(list.first)?, place(list.last)?),
                None => (place(number)?, place(number)?),
            };
            let is_list = list.is_some() || first.is_list;
            let literal = text.bytes.get(first.range.start..last.range.end)?;
            match literal.get(..LONGEST_LITERAL) {
                _ if is_list && !is_array => None,
                None => Some(utf8(literal)),
                Some(beginning) if is_list => {
                    let end = memchr::memrchr(b',', beginning)?;
                    Some(utf8(&beginning[..end]) + ", ...")
                }
                Some(_) => None,
            }
        };
        let mut nodes = self.nodes.clone();
        for text in nodes.iter_mut().flat_map(PlanNode::expressions_mut) {
            *text = with_literals(text, literal);
        }
        PlanDescription {
            text: utf8(text.bytes),
            nodes,
            constants: None,
            lists: Vec::new(),
            gone_indexes: self.gone_indexes.clone(),
            advice: self.advice.clone(),
            ..*self
        }
    }

    /// Replaces what the planner expected of the nodes by what it expected in an execution. No costs change
    /// nothing.
    pub fn plan_as(self: &mut Rc<Self>, costs: &[Costs]) {
        let is_same = |(node, costs): (&PlanNode, &Costs)| node.costs() == *costs;
        if costs.is_empty() || self.nodes.iter().zip(costs).all(is_same) {
            return;
        }
        for (node, costs) in Rc::make_mut(self).nodes.iter_mut().zip(costs) {
            node.set_costs(*costs);
        }
    }

    /// Replaces the rows that the planner expected by those of these executions, which `stats` has, if they
    /// differ. Then the description is of another planning, and the costs and the width of a row are not
    /// known. `are_sums` says that `stats` has the mean of several executions.
    pub fn estimate_as(self: &mut Rc<Self>, stats: &[NodeStats], are_sums: bool) {
        /// How far a mean may differ, because sums are rounded.
        const ROUNDED: f64 = 1e-3;
        let rows = |stats: &NodeStats| Some(f64::from(stats.estimate.plan_rows)).filter(|rows| *rows > 0.0);
        let mut in_workers = vec![false; self.nodes.len()];
        for (i, node) in self.nodes.iter().enumerate() {
            let above = node
                .parent
                .and_then(|parent| Some((self.nodes.get(parent)?, in_workers[parent])));
            in_workers[i] = above
                .is_some_and(|(parent, is_in_worker)| is_in_worker || parent.operation.starts_with("Gather"));
        }
        let differs = |i: usize, stats: &NodeStats| {
            let (Some(rows), Some(node)) = (rows(stats), self.nodes.get(i)) else {
                return false;
            };
            if are_sums {
                // Processes share the rows of a node that they run together.
                return !in_workers[i] && (rows - node.plan_rows).abs() > ROUNDED * node.plan_rows;
            }
            rows as f32 != node.plan_rows as f32
        };
        if !stats.iter().enumerate().any(|(i, stats)| differs(i, stats)) {
            return;
        }
        for (node, stats) in Rc::make_mut(self).nodes.iter_mut().zip(stats) {
            node.set_costs(Costs {
                plan_rows: rows(stats).unwrap_or(node.plan_rows),
                ..Costs::UNKNOWN
            });
        }
    }

    /// Returns a short form: the nodes' operations, objects and estimates, without the statement's text,
    /// conditions and keys.
    pub fn outline(&self) -> Self {
        let nodes = self.nodes.iter().map(|node| PlanNode {
            operation: node.operation.clone(),
            object_name: node.object_name.clone(),
            subplan_name: node.subplan_name.clone(),
            table: None,
            schema: None,
            alias: None,
            predicates: Vec::new(),
            keys: Vec::new(),
            attributes: Vec::new(),
            ..*node
        });
        PlanDescription {
            ids: self.ids,
            nodes: nodes.collect(),
            ..PlanDescription::default()
        }
    }

    /// Returns whether this is a utility statement: its only node is the command's tag. Those of EXPLAIN have
    /// small letters.
    pub fn is_utility(&self) -> bool {
        matches!(&*self.nodes, [node] if !node.operation.contains(|letter: char| letter.is_lowercase()))
    }

    /// Returns whether at least one text was cut.
    pub fn is_truncated(&self) -> bool {
        self.cut > 0
    }

    /// Returns how many bytes the description takes.
    pub fn size(&self) -> usize {
        let node_size = |node: &PlanNode| {
            let labelled = node.predicates.iter().chain(&node.keys);
            let attributes = node.attributes.iter().map(|(_, text)| 32 + text.len());
            size_of::<PlanNode>()
                + node.operation.len()
                + node.object_name.as_ref().map_or(0, String::len)
                + node.subplan_name.as_ref().map_or(0, String::len)
                + [&node.table, &node.schema, &node.alias]
                    .into_iter()
                    .flatten()
                    .map(|name| name.len())
                    .sum::<usize>()
                + labelled
                    .map(|(label, text)| 48 + label.len() + text.len())
                    .chain(attributes)
                    .sum::<usize>()
        };
        let constants = self.constants.as_ref().map_or(0, |constants| constants.size());
        size_of::<Self>()
            + constants
            + size_of_val(&*self.lists)
            + self.text.len()
            + self.advice.as_ref().map_or(0, |advice| advice.len())
            + self
                .gone_indexes
                .iter()
                .map(|name| 32 + name.len())
                .sum::<usize>()
            + self.nodes.iter().map(node_size).sum::<usize>()
    }

    /// Returns whether the description was made for this statement.
    #[inline(always)]
    pub fn is_of(&self, text: &[u8]) -> bool {
        self.identity.0 == text.len() && self.identity == identity(text)
    }
}

/// Returns the length and a hash of a text. Each execution calls this.
#[inline(always)]
fn identity(text: &[u8]) -> (usize, u64) {
    let mut hasher = FxHasher::default();
    hasher.write(text);
    (text.len(), hasher.finish())
}
