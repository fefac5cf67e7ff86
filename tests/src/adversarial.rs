//! Statements that burn a known time in known nodes, and the ratio of the sampled times to it.
//!
//! The true time of a node is the time that burn() took below it, plus the time of the node without burning.
//! The latter is the time of core's EXPLAIN (ANALYZE) of the same plan with burn(0), minus the cost of core's
//! timing.

use crate::explain::{NodeCounts, explain_json, nodes_of};
use crate::measured::MeasuredNode;
use crate::session::run_each;
use postgres::Client;

/// A node that takes a smaller share of the statement than this is too short to judge by a ratio.
const SMALL: f64 = 0.05;

/// A statement that burns a known time in known nodes.
pub struct Case {
    pub name: &'static str,
    pub settings: &'static str,
    /// `{burn X}` burns X microseconds; for the base times it burns nothing.
    pub statement: &'static str,
    /// The operation (and a part of the object's name) of the nodes that burn.
    pub burns_in: (&'static str, &'static str),
}

/// The adversarial plans of design 3.5, and some more.
pub const CASES: &[Case] = &[
    Case {
        name: "few rows out of a cheap filter",
        settings: "",
        statement: "SELECT * FROM n WHERE id % 100000 = 0",
        burns_in: ("Seq Scan", "n"),
    },
    Case {
        name: "few rows out of a costly filter",
        settings: "",
        statement: "SELECT count(*) FROM n WHERE {burn 2} AND id % 2000 = 0 AND id <= 600000",
        burns_in: ("Seq Scan", "n"),
    },
    Case {
        name: "many rows out of a costly filter",
        settings: "",
        statement: "SELECT count(*) FROM n WHERE {burn 0.8}",
        burns_in: ("Seq Scan", "n"),
    },
    Case {
        name: "append over partition-wise joins",
        settings: "SET enable_partitionwise_join = on; SET enable_mergejoin = off; SET enable_nestloop = off",
        statement: "SELECT count(*) FROM pa JOIN pb ON pa.id = pb.id WHERE {burn 2} AND pa.v >= 0",
        burns_in: ("Hash Join", ""),
    },
    Case {
        name: "hash join in many batches",
        settings: "SET work_mem = '64kB'; SET enable_mergejoin = off; SET enable_nestloop = off",
        statement: "SELECT count(*) FROM n a JOIN n b ON a.id = b.id AND {burn 4 + 0 * (a.id + b.id)} WHERE a.id <= 100000",
        burns_in: ("Hash Join", ""),
    },
    Case {
        name: "20 ms each 10,000th row",
        settings: "",
        statement: "SELECT count(*) FROM n WHERE {burn CASE WHEN id % 10000 = 0 THEN 20000 ELSE 0.3 END}",
        burns_in: ("Seq Scan", "n"),
    },
    Case {
        name: "2 ms each 1,000th row",
        settings: "",
        statement: "SELECT count(*) FROM n300 WHERE {burn CASE WHEN id % 1000 = 0 THEN 2000 ELSE 0.3 END}",
        burns_in: ("Seq Scan", "n300"),
    },
    Case {
        name: "200 us each 100th row",
        settings: "",
        statement: "SELECT count(*) FROM n300 WHERE {burn CASE WHEN id % 100 = 0 THEN 200 ELSE 0.3 END}",
        burns_in: ("Seq Scan", "n300"),
    },
    Case {
        name: "inner side called twice a loop",
        settings: "SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_memoize = off; SET enable_material = off;
                   SET enable_bitmapscan = off",
        statement: "SELECT count(*) FROM few JOIN n300 ON n300.id = few.id WHERE {burn 20 + 0 * n300.id}",
        burns_in: ("Index Only Scan", "n300_id_idx"),
    },
    Case {
        name: "sort above a costly filter",
        settings: "SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_bitmapscan = off",
        statement: "SELECT * FROM n300 WHERE {burn 2} ORDER BY id DESC OFFSET 299990",
        burns_in: ("Seq Scan", "n300"),
    },
    Case {
        name: "union of a slow and a fast side",
        settings: "",
        statement: "SELECT count(*) FROM (SELECT id FROM n300 WHERE {burn 1} UNION ALL SELECT id FROM n) x",
        burns_in: ("Seq Scan", "n300"),
    },
];

/// The number of rows of the largest table of [`CASES`]. With fewer rows there are fewer long calls, so some
/// estimates scatter more.
pub const ROWS: u32 = 1_000_000;

/// Creates the tables of [`CASES`]. The largest has this number of rows, which is at most [`ROWS`].
pub fn create_tables(client: &mut Client, rows: u32) {
    let of = |full: u32| full / (ROWS / rows);
    run_each(
        client,
        &format!(
            "CREATE TABLE n AS SELECT i AS id FROM generate_series(1, {rows}) i;
             CREATE TABLE n300 AS SELECT i AS id FROM generate_series(1, {}) i; CREATE INDEX ON n300 (id);
             CREATE TABLE few AS SELECT i * 7 AS id FROM generate_series(1, {}) i;
             CREATE TABLE pa (id int, v int) PARTITION BY RANGE (id); CREATE TABLE pb (id int) PARTITION BY RANGE (id)",
            of(300_000),
            of(20_000)
        ),
    );
    let of_partition = of(10_000);
    for (table, partition) in ["pa", "pb"]
        .iter()
        .flat_map(|table| (0..20).map(move |partition| (table, partition)))
    {
        let (from, to) = (partition * of_partition, (partition + 1) * of_partition);
        run_each(
            client,
            &format!(
                "CREATE TABLE {table}{partition} PARTITION OF {table} FOR VALUES FROM ({from}) TO ({to})"
            ),
        );
    }
    run_each(
        client,
        &format!(
            "INSERT INTO pa SELECT i, 1 FROM generate_series(0, {}) i; INSERT INTO pb SELECT id FROM pa;
             VACUUM ANALYZE n; VACUUM ANALYZE n300; VACUUM ANALYZE few; VACUUM ANALYZE pa; VACUUM ANALYZE pb",
            20 * of_partition - 1
        ),
    );
}

/// Returns the statement with its burning, or with burn(0) instead.
pub fn with_burning(statement: &str, burning: bool) -> String {
    let Some((before, rest)) = statement.split_once("{burn ") else {
        return statement.to_string();
    };
    let (argument, after) = rest.split_once('}').expect("a closing brace");
    // Without burning, the argument keeps its columns, so that the plan is the same.
    let argument = if burning {
        argument.to_string()
    } else {
        format!("0 * ({argument})")
    };
    format!("{before}burn({argument}){after}")
}

/// Returns the groups of nodes that each contain all of the burning: the nodes that burn, and each of their
/// ancestors.
fn burning_groups(case: &Case, nodes: &[MeasuredNode]) -> Vec<Vec<usize>> {
    let burning: Vec<usize> = (0..nodes.len())
        .filter(|&id| {
            let (operation, object) = case.burns_in;
            let name = nodes[id].object_name.as_deref().unwrap_or_default();
            nodes[id].operation == operation
                && (object.is_empty() || name.split(' ').any(|word| word == object))
        })
        .collect();
    assert!(!burning.is_empty(), "{}: no node burns: {nodes:#?}", case.name);
    let mut groups = vec![burning.clone()];
    let mut ancestor = nodes[burning[0]].parent_id;
    while let Some(id) = ancestor {
        groups.push(vec![id as usize]);
        ancestor = nodes[id as usize].parent_id;
    }
    groups
}

/// Returns the ratio of the estimated to the true time of each group of nodes, in one run.
pub fn ratios(
    case: &Case,
    nodes: &[MeasuredNode],
    base: &[NodeCounts],
    burned_ms: f64,
) -> Vec<(String, f64)> {
    let total = |group: &[usize]| group.iter().filter_map(|&id| nodes[id].total_ms).sum::<f64>();
    let base_ms = |group: &[usize]| group.iter().filter_map(|&id| base[id].total_ms).sum::<f64>();
    let mut found: Vec<(String, f64)> = burning_groups(case, nodes)
        .iter()
        .map(|group| {
            (
                nodes[group[0]].operation.clone(),
                total(group) / (burned_ms + base_ms(group)),
            )
        })
        .collect();
    // Nodes that burn nothing must not get the time of nodes that burn.
    let statement_ms = nodes[0].total_ms.unwrap_or_default();
    let burning: Vec<usize> = burning_groups(case, nodes).concat();
    for (id, node) in nodes.iter().enumerate().filter(|(id, _)| !burning.contains(id)) {
        let excess = node.total_ms.unwrap_or_default() - base[id].total_ms.unwrap_or_default();
        if excess > SMALL * statement_ms {
            found.push((
                format!("{} (burns nothing)", node.operation),
                1.0 + excess / statement_ms,
            ));
        }
    }
    found
}

/// Returns the times of the nodes without burning, in a run that took `elapsed_ms` and burned `burned_ms` of
/// them: `base`, scaled to the rest of that run. The machine's speed may have changed since `base` was
/// measured.
pub fn at_the_speed_of(base: &[NodeCounts], burned_ms: f64, elapsed_ms: f64) -> Vec<NodeCounts> {
    let base_ms = base[0].total_ms.expect("the base is timed");
    let speed = (elapsed_ms - burned_ms) / base_ms;
    let mut scaled = base.to_vec();
    for node in &mut scaled {
        node.total_ms = node.total_ms.map(|ms| ms * speed);
    }
    scaled
}

/// Returns the times of the nodes without burning: core's times, scaled down to the time of the statement
/// when core does not time its nodes. (In a join of a million calls, core's timing is a tenth of the total.)
pub fn base_times(client: &mut Client, statement: &str) -> Vec<NodeCounts> {
    // The fastest of several runs: other work on the machine may have delayed a single one.
    let mut run = |options: &str| {
        let timed = (0..7).map(|_| {
            let document = explain_json(client, statement, options);
            let total = document[0]["Execution Time"].as_f64().expect("an execution time");
            (nodes_of(&document), total)
        });
        timed.min_by(|a, b| a.1.total_cmp(&b.1)).expect("seven runs")
    };
    let (_, untimed_ms) = run("ANALYZE, TIMING OFF, BUFFERS OFF, FORMAT JSON");
    let (mut nodes, timed_ms) = run("ANALYZE, BUFFERS OFF, FORMAT JSON");
    for node in &mut nodes {
        node.total_ms = node.total_ms.map(|ms| ms * untimed_ms / timed_ms);
    }
    nodes
}
