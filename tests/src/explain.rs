//! Reads core's EXPLAIN (ANALYZE), in the form in which pg_rowsource's statistics are compared with it.

use crate::facts;
use crate::session::major;
use postgres::{Client, SimpleQueryMessage};
use serde_json::{Map, Value};

/// The counters compared: the view's column (without `last_`) and EXPLAIN's key.
pub const COUNTERS: [(&str, &str); 13] = [
    ("shared_blks_hit", "Shared Hit Blocks"),
    ("shared_blks_read", "Shared Read Blocks"),
    ("shared_blks_dirtied", "Shared Dirtied Blocks"),
    ("shared_blks_written", "Shared Written Blocks"),
    ("local_blks_hit", "Local Hit Blocks"),
    ("local_blks_read", "Local Read Blocks"),
    ("local_blks_dirtied", "Local Dirtied Blocks"),
    ("local_blks_written", "Local Written Blocks"),
    ("temp_blks_read", "Temp Read Blocks"),
    ("temp_blks_written", "Temp Written Blocks"),
    ("wal_records", "WAL Records"),
    ("wal_fpi", "WAL FPI"),
    ("wal_bytes", "WAL Bytes"),
];

/// The options with which core counts everything that is compared, without timing.
const COUNTS: &str = "ANALYZE, BUFFERS, WAL, TIMING OFF, FORMAT JSON";

/// Returns options with which core also says how scans read ahead, if the server's major can.
pub fn all_options(client: &mut Client, options: &str) -> String {
    match major(client) {
        19.. => format!("{options}, IO"),
        _ => options.to_owned(),
    }
}

/// One node as core's EXPLAIN counted it.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeCounts {
    /// Distance from the root.
    pub depth: usize,
    /// The node's name in EXPLAIN's text format.
    pub operation: String,
    /// Whether it is an InitPlan (a CTE is one too): it runs inside the nodes that use its result.
    pub init_plan: bool,
    /// Whether an expression of its parent runs it: it is an InitPlan or a subplan, no input.
    pub is_by_expression: bool,
    /// The table that it scans, and the table's alias.
    pub relation: Option<String>,
    pub alias: Option<String>,
    /// The index that it scans.
    pub index: Option<String>,
    /// EXPLAIN's loops, over all processes.
    pub loops: u64,
    /// Rows per loop as EXPLAIN prints them: rounded to whole rows before PostgreSQL 18, to two decimals from
    /// 18 on.
    pub rows_per_loop: String,
    /// The least and the most rows of several nodes that are one (`fold`).
    pub rows: Option<(f64, f64)>,
    /// In the order of [`COUNTERS`].
    pub counters: [i64; COUNTERS.len()],
    /// Milliseconds over all loops; `None` with TIMING OFF.
    pub total_ms: Option<f64>,
    /// What else core knows of the node, by EXPLAIN's keys.
    pub facts: Map<String, Value>,
}

impl NodeCounts {
    /// Returns whether `rows` divided by `loops` prints as core printed it. Core prints only this rounded
    /// quotient.
    pub fn prints_rows_as(&self, rows: u64) -> bool {
        if let Some((least, most)) = self.rows {
            return (least..=most).contains(&(rows as f64));
        }
        if self.loops == 0 {
            return rows == 0;
        }
        let (printed, decimals) = self.printed_rows();
        let mean = rows as f64 / self.loops as f64;
        format!("{mean:.decimals$}") == format!("{printed:.decimals$}")
    }

    /// Returns the minimum and maximum rows over all loops that print as core printed them.
    pub fn total_rows(&self) -> (f64, f64) {
        if let Some(rows) = self.rows {
            return rows;
        }
        let (printed, decimals) = self.printed_rows();
        let half = 0.5 * 0.1f64.powi(decimals as i32);
        let loops = self.loops as f64;
        let least = (loops * (printed - half)).max(0.0).ceil();
        (least, (loops * (printed + half)).floor())
    }

    /// Returns the rows per loop that core printed, and their number of decimals.
    fn printed_rows(&self) -> (f64, usize) {
        let printed = self.rows_per_loop.parse().unwrap_or(0.0);
        // Two decimals, even if the last one is a zero that JSON omits.
        (printed, if self.rows_per_loop.contains('.') { 2 } else { 0 })
    }
}

/// Runs `EXPLAIN (options) statement` and returns its nodes in the order in which EXPLAIN prints them.
pub fn explain_nodes(client: &mut Client, statement: &str, options: &str) -> Vec<NodeCounts> {
    nodes_of(&explain_json(client, statement, options))
}

/// Runs the statement, and returns all that core counts of its nodes.
pub fn core_counts(client: &mut Client, statement: &str) -> Vec<NodeCounts> {
    let options = all_options(client, COUNTS);
    explain_nodes(client, statement, &options)
}

/// Runs `EXPLAIN (options, one of them FORMAT JSON) statement`.
pub fn explain_json(client: &mut Client, statement: &str, options: &str) -> Value {
    let sql = format!("EXPLAIN ({options}) {statement}");
    let text = first_column(client, &sql).join("\n");
    serde_json::from_str(&valid(&text)).unwrap_or_else(|error| panic!("{sql}\n{text}\n{error}"))
}

/// Makes valid JSON of what core prints of a MERGE into several tables: the rows that it inserted, updated,
/// deleted and skipped are in the list of these tables, where no names may be.
fn valid(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    let is_of_merge = |line: &&str| line.trim_start().starts_with("\"Tuples ");
    let Some(first) = lines.iter().position(&is_of_merge) else {
        return text.to_owned();
    };
    let count = lines[first..].iter().take_while(|line| is_of_merge(line)).count();
    if first == 0 || lines[first - 1].trim() != "}," || lines[first + count].trim() != "]," {
        return text.to_owned();
    }
    let rows: Vec<String> = lines
        .splice(first..=first + count, [])
        .map(str::to_owned)
        .collect();
    lines[first - 1] = "}";
    let (last, rows) = rows.split_last().expect("the end of the list");
    let (of_last, others) = rows.split_last().expect("a row");
    let of_last = format!("{of_last},");
    let others = others.iter().map(String::as_str);
    lines.splice(
        first..first,
        std::iter::once(&**last).chain(others).chain([&*of_last]),
    );
    lines.join("\n")
}

/// Runs the statement and returns how many rows its nodes handled: the rows returned and the rows removed,
/// over all loops, and one for each loop. Unlike a time, it does not depend on the machine's speed.
pub fn rows_handled(client: &mut Client, statement: &str) -> f64 {
    let document = explain_json(client, statement, "ANALYZE, TIMING OFF, FORMAT JSON");
    rows_handled_below(&document[0]["Plan"])
}

fn rows_handled_below(plan: &Value) -> f64 {
    const ROWS: [&str; 4] = [
        "Actual Rows",
        "Rows Removed by Filter",
        "Rows Removed by Join Filter",
        "Rows Removed by Index Recheck",
    ];
    let number = |key: &str| plan[key].as_f64().unwrap_or(0.0);
    // A loop counts even if it returned no rows, because EXPLAIN rounds their mean (before PostgreSQL 18 to
    // whole rows).
    let own = number("Actual Loops") * (1.0 + ROWS.map(number).iter().sum::<f64>());
    let children = plan["Plans"].as_array().into_iter().flatten();
    own + children.map(rows_handled_below).sum::<f64>()
}

/// Returns the first column of a statement's result, as text.
pub fn first_column(client: &mut Client, sql: &str) -> Vec<String> {
    let messages = client
        .simple_query(sql)
        .unwrap_or_else(|error| panic!("{sql}\n{}", describe(&error)));
    messages
        .iter()
        .filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap_or_default().to_string()),
            _ => None,
        })
        .collect()
}

/// Returns the server's text of an error.
pub fn describe(error: &postgres::Error) -> String {
    match error.as_db_error() {
        Some(server) => format!("{server:?}"),
        None => error.to_string(),
    }
}

/// Returns the nodes of an EXPLAIN (FORMAT JSON) document, in the order in which EXPLAIN prints them.
pub fn nodes_of(document: &Value) -> Vec<NodeCounts> {
    let mut nodes = Vec::new();
    add_nodes(&document[0]["Plan"], 0, &mut nodes);
    nodes
}

fn add_nodes(plan: &Value, depth: usize, nodes: &mut Vec<NodeCounts>) {
    let loops = plan["Actual Loops"].as_u64().unwrap_or(0);
    let name = |key: &str| plan[key].as_str().map(str::to_owned);
    let relationship = plan["Parent Relationship"].as_str();
    nodes.push(NodeCounts {
        depth,
        operation: operation(plan),
        init_plan: relationship == Some("InitPlan"),
        is_by_expression: matches!(relationship, Some("InitPlan" | "SubPlan")),
        relation: name("Relation Name"),
        alias: name("Alias"),
        index: name("Index Name"),
        loops,
        rows_per_loop: plan["Actual Rows"].to_string(),
        rows: None,
        counters: COUNTERS.map(|(_, key)| plan[key].as_i64().unwrap_or(0)),
        total_ms: plan["Actual Total Time"]
            .as_f64()
            .map(|per_loop| per_loop * loops as f64),
        facts: facts::of_core(plan),
    });
    for child in plan["Plans"].as_array().into_iter().flatten() {
        add_nodes(child, depth + 1, nodes);
    }
}

/// Returns the node's name as in the text format. JSON spreads it over several keys.
fn operation(plan: &Value) -> String {
    let key = |name: &str| plan[name].as_str().unwrap_or_default();
    let flag = |name: &str| plan[name].as_bool().unwrap_or(false);
    let mut name = match key("Node Type") {
        "Aggregate" => {
            let partial = match key("Partial Mode") {
                "Simple" | "" => String::new(),
                mode => format!("{mode} "),
            };
            let strategy = match key("Strategy") {
                "Sorted" => "GroupAggregate",
                "Hashed" => "HashAggregate",
                "Mixed" => "MixedAggregate",
                _ => "Aggregate",
            };
            partial + strategy
        }
        "SetOp" => {
            (if key("Strategy") == "Hashed" {
                "HashSetOp"
            } else {
                "SetOp"
            })
            .to_string()
                + " "
                + key("Command")
        }
        "ModifyTable" => key("Operation").to_string(),
        "Foreign Scan" if !matches!(key("Operation"), "" | "Select") => {
            format!("Foreign {}", key("Operation"))
        }
        "Hash Join" => joined("Hash", key("Join Type"), " Join"),
        "Merge Join" => joined("Merge", key("Join Type"), " Join"),
        "Nested Loop" => joined("Nested Loop", key("Join Type"), ""),
        other => other.to_string(),
    };
    if key("Scan Direction") == "Backward" {
        name.push_str(" Backward");
    }
    let parallel = if flag("Parallel Aware") { "Parallel " } else { "" };
    let asynchronous = if flag("Async Capable") { "Async " } else { "" };
    format!("{parallel}{asynchronous}{name}")
}

fn joined(method: &str, join: &str, inner: &str) -> String {
    if matches!(join, "Inner" | "") {
        format!("{method}{inner}")
    } else {
        format!("{method} {join} Join")
    }
}
