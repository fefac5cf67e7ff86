//! Reads pg_rowsource's statistics of the session's last measured statement.

use crate::explain::{COUNTERS, NodeCounts, describe, explain_nodes, first_column};
use crate::fold;
use postgres::Client;
use serde_json::{Map, Value};
use std::time::Instant;

/// One node as pg_rowsource measured it in its last execution.
#[derive(Clone)]
pub struct MeasuredNode {
    /// Position in the display, from 0.
    pub node_id: i32,
    /// The parent's `node_id`.
    pub parent_id: Option<i32>,
    /// Distance from the root.
    pub depth: i32,
    /// EXPLAIN's name of the node.
    pub operation: String,
    /// Table, index or other object.
    pub object_name: Option<String>,
    /// Starts; `None` if they were not counted.
    pub starts: Option<i64>,
    /// Rows over all starts.
    pub rows: i64,
    /// In the order of [`COUNTERS`]; `None` if they were not counted.
    pub counters: [Option<i64>; COUNTERS.len()],
    /// Milliseconds, inclusive; `None` if not timed.
    pub total_ms: Option<f64>,
    /// Milliseconds in the node alone.
    pub self_ms: Option<f64>,
    /// One standard error of `total_ms`.
    pub error_ms: Option<f64>,
    /// Calls that were timed.
    pub timed_calls: Option<i64>,
    /// Backward steps of the clock.
    pub backsteps: i64,
    /// What PostgreSQL knows of the node (`last_details`).
    pub details: Map<String, Value>,
    /// Whether it is an InitPlan. Its time is part of the nodes that use its result.
    pub init_plan: bool,
}

/// Prints one line, without counters that are zero. Messages of failed tests show it.
impl std::fmt::Debug for MeasuredNode {
    fn fmt(&self, to: &mut std::fmt::Formatter) -> std::fmt::Result {
        let name = self.object_name.as_deref().unwrap_or_default();
        write!(
            to,
            "{}: {} {name}: starts {:?}, rows {}",
            self.node_id, self.operation, self.starts, self.rows
        )?;
        write!(
            to,
            ", ms {:?} (self {:?}, error {:?})",
            self.total_ms, self.self_ms, self.error_ms
        )?;
        write!(
            to,
            ", timed calls {:?}, backsteps {}",
            self.timed_calls, self.backsteps
        )?;
        for ((column, _), value) in COUNTERS
            .iter()
            .zip(self.counters)
            .filter(|(_, value)| *value != Some(0))
        {
            write!(to, ", {column} {value:?}")?;
        }
        Ok(())
    }
}

/// Returns queryid, planid and outcome of the session's last measured statement.
pub fn last(client: &mut Client) -> Option<(i64, i64, String)> {
    let row = client
        .query_opt(
            "SELECT queryid, planid, outcome FROM rowsource_last() WHERE planid IS NOT NULL",
            &[],
        )
        .unwrap_or_else(|error| panic!("rowsource_last(): {}", describe(&error)))?;
    Some((row.get(0), row.get(1), row.get(2)))
}

/// Returns the nodes of the session's last measured statement, in the order of the display.
pub fn measured_nodes(client: &mut Client) -> Vec<MeasuredNode> {
    let counters: String = COUNTERS
        .iter()
        .map(|(column, _)| format!(", last_{column}::bigint"))
        .collect();
    let sql = format!(
        "SELECT node_id::int, parent_id::int, depth::int, operation::text, last_starts::bigint, last_rows::bigint,
                last_total_time::float8, last_self_time::float8, last_time_error::float8,
                last_timed_calls::bigint, clock_backsteps::bigint, object_name::text, last_details::text {counters}
         FROM pg_stat_rowsource WHERE (queryid, planid) = (SELECT queryid, planid FROM rowsource_last())
         ORDER BY toplevel DESC, node_id"
    );
    let rows = client
        .query(&sql, &[])
        .unwrap_or_else(|error| panic!("{sql}\n{}", describe(&error)));
    let nodes: Vec<MeasuredNode> = rows
        .iter()
        .map(|row| MeasuredNode {
            node_id: row.get(0),
            parent_id: row.get(1),
            depth: row.get(2),
            operation: row.get(3),
            starts: row.get(4),
            rows: row.get::<_, Option<i64>>(5).unwrap_or_default(),
            total_ms: row.get(6),
            self_ms: row.get(7),
            error_ms: row.get(8),
            timed_calls: row.get(9),
            backsteps: row.get::<_, Option<i64>>(10).unwrap_or_default(),
            object_name: row.get(11),
            init_plan: false,
            details: row
                .get::<_, Option<&str>>(12)
                .map_or_else(Map::new, |text| serde_json::from_str(text).expect("an object")),
            counters: std::array::from_fn(|counter| row.get(13 + counter)),
        })
        .collect();
    assert!(
        nodes
            .iter()
            .enumerate()
            .all(|(position, node)| node.node_id == position as i32),
        "node_id does not count from 0 within the last plan: {nodes:#?}"
    );
    nodes
}

/// Runs one statement at level typical, goes back to basic, and returns its nodes.
pub fn measure(client: &mut Client, statement: &str) -> Vec<MeasuredNode> {
    measure_elapsed(client, statement).0
}

/// Does the same, and also returns the milliseconds that the client waited for the statement.
pub fn measure_elapsed(client: &mut Client, statement: &str) -> (Vec<MeasuredNode>, f64) {
    // Before the run, because a CREATE TABLE AS cannot be explained after it.
    let described = explain_nodes(client, statement, "FORMAT JSON");
    let before = "SET pg_rowsource.statistics_level = typical";
    client
        .batch_execute(before)
        .unwrap_or_else(|error| panic!("{before}\n{}", describe(&error)));
    let begin = Instant::now();
    client
        .simple_query(statement)
        .unwrap_or_else(|error| panic!("{statement}\n{}", describe(&error)));
    let elapsed_ms = begin.elapsed().as_secs_f64() * 1e3;
    client
        .batch_execute("SET pg_rowsource.statistics_level = basic")
        .expect("the level can be set");
    let mut nodes = measured_nodes(client);
    let are_same = |described: &[NodeCounts]| {
        let depths = described.iter().map(|node| node.depth);
        depths.eq(nodes.iter().map(|node| node.depth as usize))
    };
    let described = if are_same(&described) {
        described
    } else {
        fold::folded(client, described)
    };
    for (node, described) in nodes.iter_mut().zip(described) {
        node.init_plan = described.init_plan;
    }
    (nodes, elapsed_ms)
}

/// Returns `rowsource_display()` of the last statement, as one text.
pub fn display(client: &mut Client, format: &str) -> String {
    first_column(client, &format!("SELECT rowsource_display(format => '{format}')")).join("\n")
}

/// Returns how many nodes have more time than their parent.
pub fn children_above_parents(nodes: &[MeasuredNode]) -> usize {
    const ROUNDING_MS: f64 = 1e-6;
    let above = |node: &&MeasuredNode| {
        let parent = node.parent_id.map(|id| &nodes[id as usize]);
        let parent_ms = parent.and_then(|parent| parent.total_ms);
        node.total_ms
            .zip(parent_ms)
            .is_some_and(|(own, parent)| own > parent + ROUNDING_MS)
    };
    nodes.iter().filter(above).count()
}

/// Fails unless every time is valid and no node's children together take longer than the node. Only for
/// serial plans: below a Gather, children run at the same time.
pub fn assert_consistent_times(nodes: &[MeasuredNode], what: &str) {
    const ROUNDING_MS: f64 = 1e-6;
    for node in nodes {
        let Some(total) = node.total_ms else { continue };
        let within =
            |value: Option<f64>| value.is_none_or(|ms| (-ROUNDING_MS..=total + ROUNDING_MS).contains(&ms));
        assert!(total.is_finite() && total >= 0.0, "{what}: time of {node:?}");
        assert!(within(node.self_ms), "{what}: self time of {node:?}");
        assert!(
            node.error_ms.is_none_or(|ms| ms.is_finite() && ms >= 0.0),
            "{what}: time error of {node:?}"
        );
        let children: Vec<&MeasuredNode> = nodes
            .iter()
            .filter(|child| child.parent_id == Some(node.node_id))
            .collect();
        for child in &children {
            assert!(
                child.total_ms.is_none_or(|ms| ms <= total + ROUNDING_MS),
                "{what}: {child:?}\nabove {node:?}"
            );
        }
        let own = children.iter().filter(|child| !child.init_plan);
        let sum: f64 = own.filter_map(|child| child.total_ms).sum();
        assert!(
            sum <= total + ROUNDING_MS,
            "{what}: children take {sum} ms of {total} ms in {} (id {}): {children:#?}",
            node.operation,
            node.node_id
        );
    }
}
