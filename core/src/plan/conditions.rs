//! Reads a node's predicates (what it tests its rows for) and its keys (what it sorts, groups or caches rows
//! by).

use super::properties::{Properties, TextLimiter, each_item};

/// The labels of predicates, in the order in which EXPLAIN's text format prints them: access before filter.
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

/// The lists that a grouping set holds instead of `Group Key` and `Hash Key`, and the text format's label of
/// an item.
const GROUPING_SET_KEYS: [(&str, &str); 2] = [("Hash Keys", "Hash Key"), ("Group Keys", "Group Key")];

/// Returns whether a property has a name like a predicate. A custom scan or a newer PostgreSQL may show
/// predicates that [`PREDICATES`] does not list. `Rows Removed by Filter` has such a name too, but its value
/// is a number.
fn is_predicate(label: &str) -> bool {
    [" Cond", " Condition", " Filter"]
        .iter()
        .any(|ending| label.ends_with(ending))
}

/// Returns the access and filter conditions of the node.
pub(super) fn predicates(json: &Properties, texts: &mut TextLimiter) -> Vec<(String, String)> {
    let known = PREDICATES.into_iter();
    let others = json
        .labels()
        .filter(|label| is_predicate(label) && !PREDICATES.contains(label));
    known
        .chain(others)
        .filter_map(|label| Some((label.to_owned(), texts.condition(json.raw(label)?)?)))
        .collect()
}

/// Returns the sort, grouping and cache keys of the node.
pub(super) fn keys(json: &Properties, texts: &mut TextLimiter) -> Vec<(String, String)> {
    let mut keys: Vec<_> = KEYS
        .into_iter()
        .filter_map(|label| Some((label.to_owned(), texts.joined(json.raw(label)?)?)))
        .collect();
    let sets = json.raw("Grouping Sets").filter(|sets| sets.starts_with('['));
    let _ = each_item(sets.unwrap_or("[]"), |set| {
        if let Some(set) = Properties::of(set) {
            grouping_set(&set, texts, &mut keys);
        }
    });
    keys
}

/// Adds the keys of one grouping set.
fn grouping_set(set: &Properties, texts: &mut TextLimiter, keys: &mut Vec<(String, String)>) {
    if let Some(key) = set.raw("Sort Key").and_then(|raw| texts.joined(raw)) {
        keys.push(("Sort Key".to_owned(), key));
    }
    for (list, label) in GROUPING_SET_KEYS {
        let lists = set.raw(list).filter(|lists| lists.starts_with('['));
        let _ = each_item(lists.unwrap_or("[]"), |item| {
            // There may be thousands of sets.
            if texts.is_full() {
                texts.cut += 1;
            } else if let Some(item) = texts.joined(item) {
                let item = if item.is_empty() { "()".to_owned() } else { item };
                keys.push((label.to_owned(), item));
            }
        });
    }
}
