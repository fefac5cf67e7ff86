//! What a node tests its rows for (predicates) and what it orders, groups or caches them by (keys).

use serde_json::{Map, Value};

/// In the order in which EXPLAIN's text format prints them: access before filter.
const PREDICATES: [&str; 11] = [
    "TID Cond",
    "Index Cond",
    "Order By",
    "Recheck Cond",
    "Hash Cond",
    "Merge Cond",
    "Join Filter",
    "One-Time Filter",
    "Filter",
    "Run Condition",
    "Conflict Filter",
];

const KEYS: [&str; 5] = ["Sort Key", "Presorted Key", "Group Key", "Hash Key", "Cache Key"];

/// The lists that a grouping set holds instead of `Group Key` and `Hash Key`, and what the text format calls one item.
const GROUPING_SET_KEYS: [(&str, &str); 2] = [("Hash Keys", "Hash Key"), ("Group Keys", "Group Key")];

/// Properties named like predicates by a custom scan or a newer PostgreSQL are predicates too. `Rows Removed by
/// Filter` is not one, but a number.
fn is_predicate(label: &str) -> bool {
    [" Cond", " Condition", " Filter"]
        .iter()
        .any(|ending| label.ends_with(ending))
}

/// Access and filter conditions of the node.
pub(super) fn predicates(json: &Map<String, Value>) -> Vec<(String, String)> {
    let known = PREDICATES.into_iter();
    let others = json
        .keys()
        .map(String::as_str)
        .filter(|label| is_predicate(label) && !PREDICATES.contains(label));
    known
        .chain(others)
        .filter_map(|label| labelled(json, label, label))
        .collect()
}

/// Sort, grouping and cache keys of the node.
pub(super) fn keys(json: &Map<String, Value>) -> Vec<(String, String)> {
    let mut keys: Vec<_> = KEYS
        .into_iter()
        .filter_map(|label| labelled(json, label, label))
        .collect();
    let grouping_sets = json
        .get("Grouping Sets")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    for set in grouping_sets.filter_map(Value::as_object) {
        keys.extend(labelled(set, "Sort Key", "Sort Key"));
        for (list, label) in GROUPING_SET_KEYS {
            let items = set.get(list).and_then(Value::as_array).into_iter().flatten();
            keys.extend(items.filter_map(joined).map(|item| {
                let item = if item.is_empty() { "()".to_owned() } else { item };
                (label.to_owned(), item)
            }));
        }
    }
    keys
}

fn labelled(json: &Map<String, Value>, property: &str, label: &str) -> Option<(String, String)> {
    json.get(property)
        .and_then(joined)
        .map(|value| (label.to_owned(), value))
}

/// A text as it is, a list joined as the text format joins it.
fn joined(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(items) => Some(
            items
                .iter()
                .filter_map(Value::as_str)
                .collect::<Vec<_>>()
                .join(", "),
        ),
        _ => None,
    }
}
