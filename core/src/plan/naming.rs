//! The names of a node and of its object. EXPLAIN's text format has one name where its JSON format has
//! several properties. This module joins them as `ExplainNode` in explain.c does.

use super::attributes::ObjectKind;
use super::properties::{Properties, TextLimiter};

/// Returns the name of the object that the node works on.
pub(super) fn object_name(json: &Properties, texts: &mut TextLimiter) -> Option<String> {
    json.name(ObjectKind::of(json).label(), texts)
}

/// Returns the table of an index scan.
pub(super) fn indexed_table(json: &Properties, texts: &mut TextLimiter) -> Option<Box<str>> {
    json.raw("Index Name")?;
    Some(json.name("Relation Name", texts)?.into())
}

/// Returns the name of the node's table in the statement, if it differs from the table's own.
pub(super) fn alias(json: &Properties, texts: &mut TextLimiter) -> Option<Box<str>> {
    let alias = json.raw("Alias")?;
    let own = json.raw(ObjectKind::of_alias(json).label());
    (own != Some(alias)).then(|| json.name("Alias", texts).map(Into::into))?
}

/// Returns the node's name as EXPLAIN's text format spells it, without its object.
pub(super) fn operation(json: &Properties, texts: &mut TextLimiter) -> String {
    let parallel = if json.is_true("Parallel Aware") {
        "Parallel "
    } else {
        ""
    };
    let async_capable = if json.is_true("Async Capable") {
        "Async "
    } else {
        ""
    };
    let backward = if json.keyword("Scan Direction") == Some("Backward") {
        " Backward"
    } else {
        ""
    };
    format!("{parallel}{async_capable}{}{backward}", kind(json, texts))
}

fn kind(json: &Properties, texts: &mut TextLimiter) -> String {
    let node_type = json.keyword("Node Type").unwrap_or("???");
    match node_type {
        "Aggregate" => aggregate(json),
        "Hash Join" => join("Hash", json),
        "Merge Join" => join("Merge", json),
        "Nested Loop" => match join("Nested Loop", json) {
            inner if inner == "Nested Loop Join" => node_type.to_owned(),
            outer => outer,
        },
        "SetOp" => set_operation(json),
        "ModifyTable" => json.keyword("Operation").unwrap_or(node_type).to_owned(),
        "Foreign Scan" => match json.keyword("Operation") {
            None | Some("Select") => node_type.to_owned(),
            Some(modification) => format!("Foreign {modification}"),
        },
        "Custom Scan" => match json.name("Custom Plan Provider", texts) {
            None => node_type.to_owned(),
            Some(provider) => format!("{node_type} ({provider})"),
        },
        _ => node_type.to_owned(),
    }
}

fn join(method: &str, json: &Properties) -> String {
    match json.keyword("Join Type") {
        None | Some("Inner") => format!("{method} Join"),
        Some(join_type) => format!("{method} {join_type} Join"),
    }
}

fn aggregate(json: &Properties) -> String {
    let strategy = match json.keyword("Strategy") {
        None | Some("Plain") => "Aggregate",
        Some("Sorted") => "GroupAggregate",
        Some("Hashed") => "HashAggregate",
        Some("Mixed") => "MixedAggregate",
        Some(_) => "Aggregate ???",
    };
    match json.keyword("Partial Mode") {
        None | Some("Simple") => strategy.to_owned(),
        Some(partial_mode) => format!("{partial_mode} {strategy}"),
    }
}

fn set_operation(json: &Properties) -> String {
    let strategy = match json.keyword("Strategy") {
        None | Some("Sorted") => "SetOp",
        Some("Hashed") => "HashSetOp",
        Some(_) => "SetOp ???",
    };
    match json.keyword("Command") {
        None => strategy.to_owned(),
        Some(command) => format!("{strategy} {command}"),
    }
}
