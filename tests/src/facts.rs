//! Compares what EXPLAIN (ANALYZE) shows of a node besides rows, time and blocks with pg_rowsource's
//! `details`.

use serde_json::{Map, Value};
use std::collections::HashSet;

/// How the values of a leader and its workers are combined, and how EXPLAIN prints them.
#[derive(Clone, Copy, PartialEq)]
enum Rule {
    /// EXPLAIN prints a rounded mean per loop; the total is compared.
    PerLoop,
    /// The sum of all processes.
    Sum,
    /// The largest of all processes.
    Max,
    /// Only the leader knows it.
    Leader,
    /// The whole object is compared.
    Object,
}

/// The facts that are compared, by EXPLAIN's keys, and the first major that shows each.
const FACTS: [(&str, Rule, i32); 41] = [
    ("Rows Removed by Filter", Rule::PerLoop, 15),
    ("Rows Removed by Join Filter", Rule::PerLoop, 15),
    ("Rows Removed by Index Recheck", Rule::PerLoop, 15),
    ("Rows Removed by Conflict Filter", Rule::PerLoop, 15),
    ("Heap Fetches", Rule::Leader, 15),
    ("Index Searches", Rule::Leader, 18),
    ("Exact Heap Blocks", Rule::Sum, 15),
    ("Lossy Heap Blocks", Rule::Sum, 15),
    ("Workers Planned", Rule::Leader, 15),
    ("Workers Launched", Rule::Leader, 15),
    ("Subplans Removed", Rule::Leader, 15),
    ("Tuples Inserted", Rule::Leader, 15),
    ("Tuples Updated", Rule::Leader, 15),
    ("Tuples Deleted", Rule::Leader, 15),
    ("Tuples Skipped", Rule::Leader, 15),
    ("Conflicting Tuples", Rule::Leader, 15),
    ("Hash Buckets", Rule::Leader, 15),
    ("Original Hash Buckets", Rule::Leader, 15),
    ("Hash Batches", Rule::Leader, 15),
    ("Original Hash Batches", Rule::Leader, 15),
    ("Planned Partitions", Rule::Leader, 15),
    ("HashAgg Batches", Rule::Max, 15),
    ("Peak Memory Usage", Rule::Max, 15),
    ("Disk Usage", Rule::Sum, 15),
    ("Cache Hits", Rule::Sum, 15),
    ("Cache Misses", Rule::Sum, 15),
    ("Cache Evictions", Rule::Sum, 15),
    ("Cache Overflows", Rule::Sum, 15),
    ("Full-sort Groups", Rule::Object, 15),
    ("Pre-sorted Groups", Rule::Object, 15),
    ("Storage", Rule::Leader, 18),
    ("Maximum Storage", Rule::Leader, 18),
    ("Sort Method", Rule::Leader, 15),
    ("Sort Space Used", Rule::Leader, 15),
    ("Average Prefetch Distance", Rule::Leader, 19),
    ("Max Prefetch Distance", Rule::Leader, 19),
    ("Prefetch Capacity", Rule::Leader, 19),
    ("I/O Count", Rule::Leader, 19),
    ("I/O Waits", Rule::Leader, 19),
    ("Average I/O Size", Rule::Leader, 19),
    ("Average I/Os In Progress", Rule::Leader, 19),
];

/// The fact that no case needs to have: whether a scan waits for a read depends on the system.
const BY_CHANCE: &str = "I/O Waits";

/// What documents of EXPLAIN must contain somewhere, besides the facts of nodes: a key, or two nested keys,
/// whose value is neither zero nor empty; or a sort method. PostgreSQL shows no sort that is still in
/// progress.
const IN_DOCUMENTS: [&str; 24] = [
    "Sort Key",
    "Presorted Key",
    "Group Key",
    "Cache Key",
    "Grouping Sets/Group Keys",
    "Grouping Sets/Hash Keys",
    "Grouping Sets/Sort Key",
    "Full-sort Groups/Group Count",
    "Pre-sorted Groups/Group Count",
    "Pre-sorted Groups/Sort Space Memory",
    "Pre-sorted Groups/Sort Space Disk",
    "Workers Planned",
    "Sort Method: top-N heapsort",
    "Sort Method: quicksort",
    "Sort Method: external sort",
    "Sort Method: external merge",
    "Planning Time",
    "Planning/Shared Hit Blocks",
    "Triggers/Calls",
    "Triggers/Time",
    "Triggers/Trigger Name",
    "Triggers/Constraint Name",
    "Triggers/Relation",
    "Execution Time",
];

/// What they must contain if the server can compile.
const COMPILED: [&str; 2] = ["JIT/Functions", "Timing/Total"];

/// The sort methods in the order in which `details` joins them.
const SORT_METHODS: [&str; 4] = ["top-N heapsort", "quicksort", "external sort", "external merge"];

/// Facts that pg_rowsource shows in addition: EXPLAIN shows what a statement changed only for MERGE and ON
/// CONFLICT. Those of WAL are compared in `explain_function`.
const ADDITIONAL: [&str; 5] = [
    "Tuples Inserted",
    "Tuples Updated",
    "Tuples Deleted",
    "WAL FPI Bytes",
    "WAL Buffers Full",
];

/// Returns the facts that EXPLAIN shows of a node: those of the leader combined with those of its workers.
pub fn of_core(plan: &Value) -> Map<String, Value> {
    let mut facts = Map::new();
    let workers = || plan["Workers"].as_array().into_iter().flatten();
    for (key, rule, _) in FACTS {
        let all: Vec<&Value> = std::iter::once(plan)
            .chain(workers())
            .filter_map(|process| process.get(key))
            .collect();
        let numbers = || all.iter().filter_map(|value| value.as_u64());
        let combined = match rule {
            _ if all.is_empty() => continue,
            Rule::Sum => numbers().sum::<u64>().into(),
            Rule::Max => numbers().max().unwrap_or(0).into(),
            _ if key.starts_with("Sort") => continue,
            _ => all[0].clone(),
        };
        facts.insert(key.to_string(), combined);
    }
    let sorts: Vec<&Value> = std::iter::once(plan)
        .chain(workers())
        .filter(|process| process["Sort Method"].is_string())
        .collect();
    if !sorts.is_empty() {
        add_sort(&mut facts, &sorts);
    }
    facts
}

/// Adds the methods of all processes as pg_rowsource shows them, and the space as it sums it up.
fn add_sort(facts: &mut Map<String, Value>, sorts: &[&Value]) {
    let used = |kind: &'static str| {
        let of_kind = sorts.iter().filter(move |sort| sort["Sort Space Type"] == kind);
        of_kind.filter_map(|sort| sort["Sort Space Used"].as_u64())
    };
    let methods: Vec<&str> = SORT_METHODS
        .into_iter()
        .filter(|method| sorts.iter().any(|sort| sort["Sort Method"] == **method))
        .collect();
    let on_disk = used("Disk").next().is_some();
    let space = match on_disk {
        true => used("Disk").sum(),
        false => used("Memory").max().unwrap_or(0),
    };
    let method = methods.last().expect("a method of core");
    facts.insert("Sort Method".to_string(), (*method).into());
    if methods.len() > 1 {
        facts.insert("Sort Methods Used".to_string(), methods.into());
    }
    facts.insert("Sort Space Used".to_string(), space.into());
    let kind = if on_disk { "Disk" } else { "Memory" };
    facts.insert("Sort Space Type".to_string(), kind.into());
}

/// The facts of which nodes that are one have the largest of all; they have the sum of others.
const LARGEST: [&str; 11] = [
    "Hash Buckets",
    "Original Hash Buckets",
    "Hash Batches",
    "Original Hash Batches",
    "Planned Partitions",
    "HashAgg Batches",
    "Peak Memory Usage",
    "Disk Usage",
    "Maximum Storage",
    "Max Prefetch Distance",
    "Prefetch Capacity",
];
/// The facts that are not compared of nodes that are one: means, and objects.
const OF_ONE: [&str; 9] = [
    "Full-sort Groups",
    "Pre-sorted Groups",
    "Storage",
    "Average Prefetch Distance",
    "Average I/O Size",
    "Average I/Os In Progress",
    "I/O Count",
    "I/O Waits",
    "Sort Space Type",
];

/// Returns the facts of several nodes that are one. A fact of which EXPLAIN prints a rounded mean is the
/// least and the most of all.
pub fn of_several(nodes: &[(&Map<String, Value>, u64)]) -> Map<String, Value> {
    let mut several = Map::new();
    for (key, rule, _) in FACTS {
        let all = nodes
            .iter()
            .filter_map(|(facts, loops)| Some((facts.get(key)?, *loops)));
        let all: Vec<(&Value, u64)> = all.collect();
        let numbers = || all.iter().filter_map(|(value, _)| value.as_u64());
        let value: Value = match rule {
            _ if all.is_empty() || OF_ONE.contains(&key) => continue,
            Rule::PerLoop => {
                let bound = |half: f64| -> f64 {
                    let of = |(value, loops): &(&Value, u64)| {
                        (value.as_f64().unwrap_or(0.0) + half) * *loops as f64
                    };
                    all.iter().map(of).sum()
                };
                vec![bound(-0.5).max(0.0), bound(0.5)].into()
            }
            _ if key == "Sort Method" => {
                let used = |method: &&str| {
                    nodes.iter().any(|(facts, _)| {
                        facts.get("Sort Method").is_some_and(|used| used == *method)
                            || facts
                                .get("Sort Methods Used")
                                .and_then(Value::as_array)
                                .is_some_and(|all| all.contains(&(**method).into()))
                    })
                };
                let methods: Vec<&str> = SORT_METHODS.into_iter().filter(used).collect();
                if methods.len() > 1 {
                    several.insert("Sort Methods Used".to_owned(), methods.clone().into());
                }
                methods.last().copied().into()
            }
            _ if LARGEST.contains(&key) || key == "Sort Space Used" => numbers().max().into(),
            _ => numbers().sum::<u64>().into(),
        };
        several.insert(key.to_owned(), value);
    }
    several
}

/// Returns the facts that differ: the key, core's value, and the measured one. Core's may be those of several
/// nodes.
pub fn differences(
    core: &Map<String, Value>,
    measured: &Map<String, Value>,
    loops: u64,
    is_several: bool,
) -> Vec<(String, String, String)> {
    let mut found = Vec::new();
    let mut keys: Vec<&String> = core.keys().collect();
    keys.extend(
        measured
            .keys()
            .filter(|key| !core.contains_key(*key) && !ADDITIONAL.contains(&key.as_str())),
    );
    for key in keys
        .into_iter()
        .filter(|key| !is_several || !OF_ONE.contains(&key.as_str()))
    {
        let (core, measured) = (core.get(key), measured.get(key));
        let per_loop = FACTS
            .iter()
            .any(|(fact, rule, _)| fact == key && *rule == Rule::PerLoop);
        let equal = match (core, measured) {
            (Some(Value::Array(bounds)), Some(measured)) if per_loop => {
                let bounds: Vec<f64> = bounds.iter().filter_map(Value::as_f64).collect();
                (bounds[0]..=bounds[1]).contains(&measured.as_f64().unwrap_or(0.0))
            }
            (Some(core), Some(measured)) if per_loop => {
                let mean = measured.as_f64().unwrap_or(0.0) / loops.max(1) as f64;
                core.as_f64()
                    .is_some_and(|core| format!("{core:.0}") == format!("{mean:.0}"))
            }
            // Zero may be left out.
            (Some(only), None) | (None, Some(only)) => only.as_u64() == Some(0),
            (core, measured) => core == measured,
        };
        if !equal {
            found.push((key.clone(), format!("{core:?}"), format!("{measured:?}")));
        }
    }
    found
}

/// Returns the facts that should occur on a major, but are not among these keys.
pub fn missing(seen: &[String], major: i32) -> Vec<&'static str> {
    let expected = FACTS
        .iter()
        .filter(|(key, _, since)| *since <= major && *key != BY_CHANCE);
    expected
        .map(|(key, _, _)| *key)
        .filter(|key| !seen.iter().any(|seen| seen == key))
        .collect()
}

/// Returns the keys of the facts that are not zero.
pub fn known(facts: &Map<String, Value>) -> impl Iterator<Item = &String> {
    let known = facts.iter().filter(|(_, value)| value.as_u64() != Some(0));
    known.map(|(key, _)| key)
}

/// Adds what a document of EXPLAIN contains, in the words of [`missing_in_documents`].
pub fn add_contents(document: &Value, seen: &mut HashSet<String>) {
    add_below(document, "", seen);
}

fn add_below(value: &Value, under: &str, seen: &mut HashSet<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| add_below(item, under, seen)),
        Value::Object(fields) => {
            for (key, value) in fields {
                let is_nothing = value.as_f64() == Some(0.0) || value.as_array().is_some_and(Vec::is_empty);
                if is_nothing {
                    continue;
                }
                seen.insert(key.clone());
                seen.insert(format!("{under}/{key}"));
                add_below(value, key, seen);
            }
        }
        Value::String(method) if matches!(under, "Sort Method" | "Sort Methods Used") => {
            seen.insert(format!("Sort Method: {method}"));
        }
        _ => {}
    }
}

/// Returns what documents of EXPLAIN should contain, but these do not.
pub fn missing_in_documents(seen: &HashSet<String>, has_jit: bool) -> Vec<&'static str> {
    let compiled = COMPILED.iter().filter(|_| has_jit);
    let expected = IN_DOCUMENTS.iter().chain(compiled);
    expected
        .filter(|expected| !seen.contains(**expected))
        .copied()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn contents_are_what_is_not_nothing() {
        let mut seen = HashSet::new();
        add_contents(
            &json!([{"Plan": {"Sort Key": ["a"], "Sort Method": "quicksort", "Workers Planned": 0}, "Triggers": [{"Calls": 2}]}]),
            &mut seen,
        );
        let missing = missing_in_documents(&seen, true);
        for found in ["Sort Key", "Sort Method: quicksort", "Triggers/Calls"] {
            assert!(!missing.contains(&found), "{found}");
        }
        for expected in ["Workers Planned", "Sort Method: external sort", "JIT/Functions"] {
            assert!(missing.contains(&expected), "{expected}");
        }
        assert!(!missing_in_documents(&seen, false).contains(&"JIT/Functions"));
    }
}
