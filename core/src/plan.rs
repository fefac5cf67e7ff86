//! The description of a plan: what its nodes are called and what they do. Made once per plan from
//! PostgreSQL's own EXPLAIN (FORMAT JSON), so that any node core or an extension has is named as EXPLAIN names it.

mod conditions;
mod naming;
mod properties;
#[cfg(test)]
mod tests;

use properties::{Properties, Words, each_item};
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Deserializer;
use serde_json::value::RawValue;
use std::fmt;

/// One node of a described plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlanNode {
    /// Position in the display, from 0 at the root, in EXPLAIN's order.
    pub id: usize,
    /// `id` of the parent; `None` at the root.
    pub parent: Option<usize>,
    /// Distance from the root.
    pub depth: usize,
    /// What EXPLAIN's text format calls the node: `Parallel Seq Scan`, `Hash Left Join`, `InitPlan 1 (returns $0)` aside.
    pub operation: String,
    /// Table, index, function, CTE or other object that the node works on.
    pub object_name: Option<String>,
    /// How the parent uses the node where that is not plain input: `InitPlan 1 (returns $0)`, `SubPlan 2`, `CTE x`.
    pub subplan_name: Option<String>,
    /// Rows that the planner expects per start (E-Rows).
    pub plan_rows: f64,
    /// Bytes per row that the planner expects.
    pub plan_width: f64,
    /// The planner's total cost.
    pub total_cost: f64,
    /// Conditions, labelled as in EXPLAIN: `("Filter", "(id < 10)")`.
    pub predicates: Vec<(String, String)>,
    /// What the node sorts, groups or caches by, labelled as in EXPLAIN: `("Sort Key", "b, a DESC")`.
    pub keys: Vec<(String, String)>,
}

/// Why a plan could not be described.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The text is not JSON, or not one JSON value.
    #[error("EXPLAIN output is not valid JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// JSON, but nothing in it is a plan: a utility statement, for instance.
    #[error("EXPLAIN output holds no plan")]
    NoPlan,
    /// Nested so deeply that reading it could exhaust the backend's stack.
    #[error("plan is nested more than {MAX_NESTING} levels deep")]
    TooDeep,
}

/// JSON levels accepted; a plan node takes two. serde_json's own limit of 128 levels refuses a chain of 64 joins,
/// and a level costs its recursive reader well under 1 kB of the backend's stack.
const MAX_NESTING: usize = 1000;

/// A plan as EXPLAIN describes it.
#[derive(Debug, Default)]
pub struct ExplainedPlan {
    /// In EXPLAIN's order, `id` 0 first.
    pub nodes: Vec<PlanNode>,
    /// Its conditions show a parameter (`$1`): it is the same for all parameters.
    pub generic: bool,
    /// Names, conditions and keys that were cut because they are too long.
    pub cut: usize,
}

/// Describes the plan in `json`, the output of EXPLAIN (FORMAT JSON).
///
/// Accepted are the array of EXPLAIN and the object of auto_explain; of several statements the first with a plan counts.
/// The text is read as a stream: besides the nodes, at most 16 kB of conditions and keys are kept, and of each one at
/// most 1,000 characters; what is cut ends in `...`.
pub fn parse_explain_json(json: &str) -> Result<ExplainedPlan, PlanError> {
    if nesting(json) > MAX_NESTING {
        return Err(PlanError::TooDeep);
    }
    let root = find_root(json)?.ok_or(PlanError::NoPlan)?;
    let mut deserializer = Deserializer::from_str(root);
    deserializer.disable_recursion_limit();
    let mut reader = Reader {
        nodes: Vec::new(),
        words: Words::new(),
    };
    let node = Node {
        reader: &mut reader,
        parent: None,
        depth: 0,
    };
    node.deserialize(&mut deserializer)?;
    Ok(ExplainedPlan {
        nodes: reader.nodes,
        generic: reader.words.generic,
        cut: reader.words.cut,
    })
}

/// Returns the number of brackets open at the deepest point.
fn nesting(json: &str) -> usize {
    let (mut depth, mut deepest) = (0usize, 0);
    let (mut in_string, mut escaped) = (false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_string,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// Returns the text of the first plan.
fn find_root(json: &str) -> Result<Option<&str>, PlanError> {
    if json.trim().is_empty() {
        return Ok(None);
    }
    let document = serde_json::from_str::<&RawValue>(json)?.get();
    if !document.starts_with('[') {
        return Ok(plan_of(document));
    }
    let mut root = None;
    each_item(document, |statement| root = root.or_else(|| plan_of(statement)))?;
    Ok(root)
}

fn plan_of(statement: &str) -> Option<&str> {
    #[derive(Deserialize)]
    struct Statement<'a> {
        #[serde(borrow, rename = "Plan")]
        plan: &'a RawValue,
    }
    if !statement.starts_with('{') {
        return None;
    }
    let plan = serde_json::from_str::<Statement>(statement).ok()?.plan.get();
    plan.starts_with('{').then_some(plan)
}

/// What was read so far.
struct Reader {
    nodes: Vec<PlanNode>,
    words: Words,
}

impl Reader {
    /// Adds a node. Not inlined, and neither is what reads the properties: the frames of nodes lie on the stack one above
    /// the other.
    #[inline(never)]
    fn add(&mut self, json: &Properties, parent: Option<usize>, depth: usize) -> usize {
        let id = self.nodes.len();
        let words = &mut self.words;
        self.nodes.push(PlanNode {
            id,
            parent,
            depth,
            operation: naming::operation(json, words),
            object_name: naming::object_name(json, words),
            subplan_name: json.name("Subplan Name", words),
            plan_rows: json.number("Plan Rows"),
            plan_width: json.number("Plan Width"),
            total_cost: json.number("Total Cost"),
            predicates: conditions::predicates(json, words),
            keys: conditions::keys(json, words),
        });
        id
    }
}

/// Reads a node, and those below it.
struct Node<'r> {
    reader: &'r mut Reader,
    parent: Option<usize>,
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a plan node")
    }

    /// EXPLAIN writes the nodes below last, so nothing of this one is held while they are read.
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let (properties, has_children) = Properties::up_to("Plans", &mut map)?;
        let id = self.reader.add(&properties, self.parent, self.depth);
        drop(properties);
        if !has_children {
            return Ok(());
        }
        map.next_value_seed(Children(Node {
            reader: self.reader,
            parent: Some(id),
            depth: self.depth + 1,
        }))?;
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(())
    }
}

/// Reads the nodes directly below a node, of which each is as this one, and those below them.
struct Children<'r>(Node<'r>);

impl<'de> DeserializeSeed<'de> for Children<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Children<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("plan nodes")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let Node {
            reader,
            parent,
            depth,
        } = self.0;
        while items
            .next_element_seed(Node {
                reader,
                parent,
                depth,
            })?
            .is_some()
        {}
        Ok(())
    }
}
