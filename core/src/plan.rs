//! Describes a plan: the names of its nodes and what they do. The description is made once per plan, from the
//! output of EXPLAIN (FORMAT JSON). So every node of core or of an extension has the name that EXPLAIN gives
//! it.

mod attributes;
mod compact;
mod conditions;
mod early_stop;
mod naming;
mod prefixes;
mod properties;
#[cfg(test)]
mod tests;

pub use attributes::{Attribute, ObjectKind, Relationship};
pub use early_stop::{Link, Read, may_stop_early};
pub use prefixes::{Rename, Renames, has_usual_characters, in_quotes};

use crate::normalise::{List, hide_strings};
use properties::{Name, Properties, TextLimiter};
use serde::de::{DeserializeSeed, Deserializer as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
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
    /// The node's name in EXPLAIN's text format: `Parallel Seq Scan`, `Hash Left Join`. Without the
    /// `subplan_name`.
    pub operation: String,
    /// The table, index, function, CTE or other object that the node works on.
    pub object_name: Option<String>,
    /// Which of EXPLAIN's properties names the object.
    pub object_kind: ObjectKind,
    /// The table of an index scan, whose object is the index.
    pub table: Option<Box<str>>,
    /// The schema of the table. Unknown for temporary tables and system catalogs.
    pub schema: Option<Box<str>>,
    /// The table's name in the statement, if it has another one there.
    pub alias: Option<Box<str>>,
    /// How the parent uses the node if it is not a plain input: `InitPlan 1 (returns $0)`, `SubPlan 2`,
    /// `CTE x`.
    pub subplan_name: Option<String>,
    /// How the parent uses the node.
    pub relationship: Relationship,
    /// Rows that the planner expects per start (E-Rows).
    pub plan_rows: f64,
    /// Whether the node may be stopped before its last row. Then its rows say nothing about `plan_rows`.
    pub may_stop_early: bool,
    /// Whether the node stops when the reader of the statement stops. It does not if, for example, a sort
    /// reads all of its rows.
    pub stops_with_reader: bool,
    /// Bytes per row that the planner expects.
    #[serde(with = "compact::integer")]
    pub plan_width: f64,
    /// The planner's cost of the first row.
    #[serde(with = "compact::cents")]
    pub startup_cost: f64,
    /// The planner's total cost.
    #[serde(with = "compact::cents")]
    pub total_cost: f64,
    /// Conditions, labelled as in EXPLAIN: `("Filter", "(id < 10)")`.
    pub predicates: Vec<(String, String)>,
    /// The keys of a sort, a grouping or a cache, labelled as in EXPLAIN: `("Sort Key", "b, a DESC")`.
    pub keys: Vec<(String, String)>,
    /// What few nodes have.
    pub attributes: Vec<(Attribute, String)>,
}

impl PlanNode {
    /// Returns all expressions of the node, which may have constants: conditions, keys and some attributes.
    pub fn expressions_mut(&mut self) -> impl Iterator<Item = &mut String> {
        let attributes = self.attributes.iter_mut();
        let labelled = self.predicates.iter_mut().chain(&mut self.keys);
        labelled.map(|(_, text)| text).chain(
            attributes
                .filter(|(attribute, _)| attribute.is_expression())
                .map(|(_, text)| text),
        )
    }

    /// Returns the alias of the table that it scans, or the table's name if it has none.
    pub fn alias_or_name(&self) -> Option<&str> {
        let name = self.alias.as_deref().or(self.table.as_deref());
        name.or(match self.object_kind {
            ObjectKind::Relation => self.object_name.as_deref(),
            _ => None,
        })
    }

    /// Replaces the aliases of tables before the names of columns in the expressions, all at once.
    /// `rename_of` returns what takes the place of an alias.
    pub fn rename_prefixes<'r>(&mut self, rename_of: impl Fn(&str) -> Option<&'r Rename>) {
        for text in self.expressions_mut() {
            if text.contains('.') {
                *text = prefixes::with_prefixes(text, &rename_of);
            }
        }
    }
}

/// What bounds how much a node does, besides its description. Not stored: OIDs are those of one database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Extent {
    /// Nothing is known.
    #[default]
    Unknown,
    /// It scans a table.
    Table {
        /// Its OID.
        oid: u32,
        /// The number of its file, if its rows lie in blocks. It changes if the table is written again.
        file: u32,
        /// How many blocks it had when the plan was described.
        blocks: u32,
    },
    /// It is a Limit with a constant number of rows, and without an offset.
    ConstantLimit,
}

/// What the planner expected of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// The cost before the first row, in the planner's units.
    pub startup_cost: f64,
    /// The cost of all rows.
    pub total_cost: f64,
    /// The rows of one execution.
    pub plan_rows: f64,
    /// The mean bytes of a row.
    pub plan_width: f64,
}

impl Costs {
    /// What is not known is not a number.
    pub const UNKNOWN: Costs = Costs {
        startup_cost: f64::NAN,
        total_cost: f64::NAN,
        plan_rows: f64::NAN,
        plan_width: f64::NAN,
    };
}

impl PlanNode {
    /// Returns what the planner expected.
    pub fn costs(&self) -> Costs {
        Costs {
            startup_cost: self.startup_cost,
            total_cost: self.total_cost,
            plan_rows: self.plan_rows,
            plan_width: self.plan_width,
        }
    }

    /// Replaces what the planner expected.
    pub fn set_costs(&mut self, costs: Costs) {
        self.startup_cost = costs.startup_cost;
        self.total_cost = costs.total_cost;
        self.plan_rows = costs.plan_rows;
        self.plan_width = costs.plan_width;
    }
}

/// Why a plan could not be described.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The text is not JSON, or not one JSON value.
    #[error("EXPLAIN output is not valid JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// The text is JSON without a plan, for example for a utility statement.
    #[error("EXPLAIN output holds no plan")]
    NoPlan,
    /// The plan is nested so deeply that reading it could exhaust the backend's stack.
    #[error("plan is nested more than {MAX_NESTING} levels deep")]
    TooDeep,
}

/// The deepest nesting of JSON that is accepted. A plan node takes two levels, so serde_json's own limit of
/// 128 would refuse a chain of 64 joins. A level takes less than 1 kB of the backend's stack.
const MAX_NESTING: usize = 1000;

/// A plan as EXPLAIN describes it.
#[derive(Debug, Default)]
pub struct ExplainedPlan {
    /// The nodes in EXPLAIN's order.
    pub nodes: Vec<PlanNode>,
    /// Whether a condition shows a parameter (`$1`). The plan is then the same for all parameters.
    pub generic: bool,
    /// The number of names, conditions and keys that were cut because they are too long.
    pub cut: usize,
    /// The lists of constants that one symbol replaces in the conditions.
    pub lists: Vec<List>,
    /// A number that changes with the names and the planner's choices that the description shows. `None` if
    /// it is not right for other plannings.
    pub names: Option<u64>,
}

impl ExplainedPlan {
    /// Replaces all strings in the expressions by symbols, with the numbers from `next` on.
    pub fn hide_strings(&mut self, mut next: u32) {
        for text in self.nodes.iter_mut().flat_map(PlanNode::expressions_mut) {
            if text.contains(['\'', '$']) {
                *text = hide_strings(text, &mut next);
            }
        }
    }
}

/// Describes the plan in `json`, the output of EXPLAIN (FORMAT JSON).
///
/// Accepts the array of EXPLAIN and the object of auto_explain. Reads the first plan if there are several
/// statements. The text is read as a stream. At most 16 kB of conditions and keys are kept, and at most 1,000
/// characters of each. A text that was cut ends in `...`.
pub fn parse_explain_json(json: &str) -> Result<ExplainedPlan, PlanError> {
    if nesting(json) > MAX_NESTING {
        return Err(PlanError::TooDeep);
    }
    let mut reader = Reader {
        nodes: Vec::new(),
        texts: TextLimiter::new(),
    };
    read(json, &mut reader)?;
    if reader.nodes.is_empty() {
        return Err(PlanError::NoPlan);
    }
    Ok(ExplainedPlan {
        nodes: reader.nodes,
        generic: reader.texts.generic,
        cut: reader.texts.cut,
        lists: Vec::new(),
        names: None,
    })
}

/// Reads the first plan.
fn read(json: &str, reader: &mut Reader) -> Result<(), PlanError> {
    if json.trim().is_empty() {
        return Ok(());
    }
    let mut deserializer = Deserializer::from_str(json);
    deserializer.disable_recursion_limit();
    let read = deserializer
        .deserialize_any(Statements(reader))
        .and_then(|()| deserializer.end());
    match read {
        // It is JSON of another form, or it is not JSON.
        Err(error) if error.is_data() => {
            serde_json::from_str::<&RawValue>(json)?;
            Err(PlanError::NoPlan)
        }
        read => Ok(read?),
    }
}

/// Returns the largest number of brackets that are open at the same time.
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

/// Reads EXPLAIN's array of statements, or one statement, until a plan is read. The text is read once.
struct Statements<'r>(&'r mut Reader);

impl<'de> DeserializeSeed<'de> for Statements<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Statements<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("statements with plans")
    }

    /// Reads the name of a utility statement.
    fn visit_str<E>(self, _name: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut statements: A) -> Result<(), A::Error> {
        while statements.next_element_seed(Statements(self.0))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(Name(name)) = map.next_key()? {
            if name != "Plan" || !self.0.nodes.is_empty() {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            map.next_value_seed(Node {
                reader: self.0,
                parent: None,
                depth: 0,
            })?;
        }
        Ok(())
    }
}

/// The nodes and texts that have been read so far.
struct Reader {
    nodes: Vec<PlanNode>,
    texts: TextLimiter,
}

impl Reader {
    /// Adds a node. This function and the one that reads the properties are not inlined: nodes are read
    /// recursively, so the frame of `visit_map` must stay small.
    #[inline(never)]
    fn add(&mut self, json: &Properties, parent: Option<usize>, depth: usize) -> usize {
        let id = self.nodes.len();
        let texts = &mut self.texts;
        self.nodes.push(PlanNode {
            id,
            parent,
            depth,
            operation: naming::operation(json, texts),
            object_name: naming::object_name(json, texts),
            object_kind: ObjectKind::of(json),
            table: naming::indexed_table(json, texts),
            schema: None,
            alias: naming::alias(json, texts),
            subplan_name: json.name("Subplan Name", texts),
            relationship: Relationship::of(json),
            plan_rows: json.number("Plan Rows"),
            may_stop_early: false,
            stops_with_reader: false,
            plan_width: json.number("Plan Width"),
            startup_cost: json.number("Startup Cost"),
            total_cost: json.number("Total Cost"),
            predicates: conditions::predicates(json, texts),
            keys: conditions::keys(json, texts),
            attributes: attributes::attributes(json, texts),
        });
        id
    }
}

/// Reads a node and all nodes below it.
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

    /// Reads a node. EXPLAIN writes the children last, so the node's properties are dropped before the
    /// children are read.
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

/// Reads the children of a node and all nodes below them. Holds the parent and the depth of the children.
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
