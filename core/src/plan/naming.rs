//! What a node and its object are called: EXPLAIN's JSON spreads over several properties what its text format
//! says in one name, so `ExplainNode` of explain.c is followed here.

use serde_json::{Map, Value};

/// Where a node names its object, the most telling first: an index access shows the index, as in Oracle, though
/// it may name its table too. `Relations` is postgres_fdw's pushed-down join.
const OBJECT_PROPERTIES: [&str; 8] = [
    "Index Name",
    "Relation Name",
    "Function Name",
    "Table Function Name",
    "CTE Name",
    "Tuplestore Name",
    "Relations",
    "Alias",
];

fn text<'a>(json: &'a Map<String, Value>, property: &str) -> Option<&'a str> {
    json.get(property).and_then(Value::as_str)
}

fn is_true(json: &Map<String, Value>, property: &str) -> bool {
    json.get(property).and_then(Value::as_bool).unwrap_or(false)
}

/// The object that the node works on.
pub(super) fn object_name(json: &Map<String, Value>) -> Option<String> {
    OBJECT_PROPERTIES
        .iter()
        .find_map(|property| text(json, property))
        .map(String::from)
}

/// The node's name as EXPLAIN's text format spells it, without its object.
pub(super) fn operation(json: &Map<String, Value>) -> String {
    let parallel = if is_true(json, "Parallel Aware") {
        "Parallel "
    } else {
        ""
    };
    let async_capable = if is_true(json, "Async Capable") {
        "Async "
    } else {
        ""
    };
    let backward = if text(json, "Scan Direction") == Some("Backward") {
        " Backward"
    } else {
        ""
    };
    format!("{parallel}{async_capable}{}{backward}", kind(json))
}

fn kind(json: &Map<String, Value>) -> String {
    let node_type = text(json, "Node Type").unwrap_or("???");
    match node_type {
        "Aggregate" => aggregate(json),
        "Hash Join" => join("Hash", json),
        "Merge Join" => join("Merge", json),
        "Nested Loop" => match join("Nested Loop", json) {
            inner if inner == "Nested Loop Join" => node_type.to_owned(),
            outer => outer,
        },
        "SetOp" => set_operation(json),
        "ModifyTable" => text(json, "Operation").unwrap_or(node_type).to_owned(),
        "Foreign Scan" => match text(json, "Operation") {
            None | Some("Select") => node_type.to_owned(),
            Some(modification) => format!("Foreign {modification}"),
        },
        "Custom Scan" => match text(json, "Custom Plan Provider") {
            None => node_type.to_owned(),
            Some(provider) => format!("{node_type} ({provider})"),
        },
        _ => node_type.to_owned(),
    }
}

fn join(method: &str, json: &Map<String, Value>) -> String {
    match text(json, "Join Type") {
        None | Some("Inner") => format!("{method} Join"),
        Some(join_type) => format!("{method} {join_type} Join"),
    }
}

fn aggregate(json: &Map<String, Value>) -> String {
    let strategy = match text(json, "Strategy") {
        None | Some("Plain") => "Aggregate",
        Some("Sorted") => "GroupAggregate",
        Some("Hashed") => "HashAggregate",
        Some("Mixed") => "MixedAggregate",
        Some(_) => "Aggregate ???",
    };
    match text(json, "Partial Mode") {
        None | Some("Simple") => strategy.to_owned(),
        Some(partial_mode) => format!("{partial_mode} {strategy}"),
    }
}

fn set_operation(json: &Map<String, Value>) -> String {
    let strategy = match text(json, "Strategy") {
        None | Some("Sorted") => "SetOp",
        Some("Hashed") => "HashSetOp",
        Some(_) => "SetOp ???",
    };
    match text(json, "Command") {
        None => strategy.to_owned(),
        Some(command) => format!("{strategy} {command}"),
    }
}
