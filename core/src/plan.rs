//! The description of a plan: what its nodes are called and what they do. Made once per plan from
//! PostgreSQL's own EXPLAIN (FORMAT JSON), so that any node core or an extension has is named as EXPLAIN names it.

mod conditions;
mod naming;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::{Deserializer, Map, Value};

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

/// Describes the plan in `json`, the output of EXPLAIN (FORMAT JSON): the nodes in EXPLAIN's order, `id` 0 first.
///
/// Accepted are the array of EXPLAIN, the object of auto_explain, and what `ExplainPrintPlan` itself writes:
/// `"Plan": {...}`, bare or in the array's brackets. Of several statements the first with a plan counts.
pub fn parse_explain_json(json: &str) -> Result<Vec<PlanNode>, PlanError> {
    let text = complete(json);
    if nesting(&text) > MAX_NESTING {
        return Err(PlanError::TooDeep);
    }
    let document = read(&text)?;
    let root = find_root(&document).ok_or(PlanError::NoPlan)?;

    let mut nodes = Vec::new();
    let mut pending = vec![(root, None, 0)];
    while let Some((json, parent, depth)) = pending.pop() {
        let id = nodes.len();
        nodes.push(describe(json, id, parent, depth));
        let children = json.get("Plans").and_then(Value::as_array).into_iter().flatten();
        // Last in, first out: pushed in reverse, the first child is described next.
        pending.extend(
            children
                .rev()
                .filter_map(Value::as_object)
                .map(|child| (child, Some(id), depth + 1)),
        );
    }
    Ok(nodes)
}

fn describe(json: &Map<String, Value>, id: usize, parent: Option<usize>, depth: usize) -> PlanNode {
    let number = |key| json.get(key).and_then(Value::as_f64).unwrap_or_default();
    PlanNode {
        id,
        parent,
        depth,
        operation: naming::operation(json),
        object_name: naming::object_name(json),
        subplan_name: json.get("Subplan Name").and_then(Value::as_str).map(String::from),
        plan_rows: number("Plan Rows"),
        plan_width: number("Plan Width"),
        total_cost: number("Total Cost"),
        predicates: conditions::predicates(json),
        keys: conditions::keys(json),
    }
}

/// Puts braces around properties that lack them, or that `ExplainBeginOutput` put into an array's brackets.
fn complete(json: &str) -> Cow<'_, str> {
    let text = json.trim();
    let in_brackets = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'))
        .map(str::trim);
    let properties = in_brackets.unwrap_or(text);
    // A string is no property without its colon: `["Utility Statement"]` is complete.
    let name_and_rest = properties.strip_prefix('"').and_then(|text| text.split_once('"'));
    match name_and_rest {
        Some((_, rest)) if rest.trim_start().starts_with(':') => format!("{{{properties}}}").into(),
        _ => text.into(),
    }
}

/// The number of brackets open at the deepest point.
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

fn read(text: &str) -> Result<Value, PlanError> {
    let mut deserializer = Deserializer::from_str(text);
    deserializer.disable_recursion_limit();
    let mut values = deserializer.into_iter::<Value>();
    let first = values.next().ok_or(PlanError::NoPlan)??;
    match values.next() {
        Some(Err(error)) => Err(error.into()),
        _ => Ok(first),
    }
}

fn find_root(document: &Value) -> Option<&Map<String, Value>> {
    let statements = match document {
        Value::Array(statements) => statements.as_slice(),
        statement => std::slice::from_ref(statement),
    };
    statements
        .iter()
        .find_map(|statement| statement.get("Plan")?.as_object())
}
