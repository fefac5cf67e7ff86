//! The file format of speedscope, a viewer of profiles.

use super::frames::{name, own_us};
use crate::model::NodeStats;
use crate::plan::PlanNode;
use serde::Serialize;

/// The schema that speedscope's own exporter names. Speedscope recognises its format by it.
const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";

#[derive(Serialize)]
struct File<'a> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    exporter: &'static str,
    name: &'a str,
    shared: Shared,
    profiles: [Profile<'a>; 1],
}

#[derive(Serialize)]
struct Shared {
    frames: Vec<Frame>,
}

#[derive(Serialize)]
struct Frame {
    name: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Profile<'a> {
    r#type: &'static str,
    name: &'a str,
    unit: &'static str,
    start_value: f64,
    end_value: f64,
    /// Stacks of indexes of frames, from the root.
    samples: Vec<Vec<usize>>,
    weights: Vec<f64>,
}

/// Returns the plan as a file of speedscope: each node is a frame, its weight is its own time in
/// microseconds. Nodes that were not timed have no sample.
///
/// `title` names the profile. `executions` is the number of executions that `stats` sums up; their mean is
/// returned.
pub fn speedscope(title: &str, nodes: &[PlanNode], stats: &[NodeStats], executions: f64) -> String {
    let (mut samples, mut weights) = (Vec::new(), Vec::new());
    let mut stack = Vec::new();
    for (i, node) in nodes.iter().enumerate() {
        stack.truncate(node.depth);
        stack.push(i);
        let us = own_us(stats.get(i), executions);
        if us > 0.0 {
            samples.push(stack.clone());
            weights.push(us);
        }
    }
    let file = File {
        schema: SCHEMA,
        exporter: "pg_rowsource",
        name: title,
        shared: Shared {
            frames: nodes.iter().map(|node| Frame { name: name(node) }).collect(),
        },
        profiles: [Profile {
            r#type: "sampled",
            name: title,
            unit: "microseconds",
            start_value: 0.0,
            end_value: weights.iter().sum(),
            samples,
            weights,
        }],
    };
    // Only maps with other keys than texts, and types that refuse to be written, give an error.
    serde_json::to_string(&file).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::frames::tests::{node, timed};
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn samples_are_the_stacks_of_nodes_that_took_time() {
        let nodes = [
            node(0, "Hash Join", None),
            node(1, "Seq Scan", Some("a \"quoted\" name")),
            node(1, "Hash", None),
            node(2, "Seq Scan", Some("b")),
        ];
        let stats = [timed(1.0), timed(2.5), NodeStats::default(), timed(4.0)];
        let file: Value = serde_json::from_str(&speedscope("SELECT 1", &nodes, &stats, 2.0)).expect("JSON");
        assert_eq!(
            file,
            json!({
                "$schema": SCHEMA,
                "exporter": "pg_rowsource",
                "name": "SELECT 1",
                "shared": {"frames": [
                    {"name": "Hash Join"}, {"name": "Seq Scan a \"quoted\" name"}, {"name": "Hash"},
                    {"name": "Seq Scan b"}
                ]},
                "profiles": [{
                    "type": "sampled", "name": "SELECT 1", "unit": "microseconds",
                    "startValue": 0.0, "endValue": 3750.0,
                    "samples": [[0], [0, 1], [0, 2, 3]],
                    "weights": [500.0, 1250.0, 2000.0]
                }]
            })
        );
    }

    #[test]
    fn a_plan_without_times_is_an_empty_profile() {
        let file: Value =
            serde_json::from_str(&speedscope("", &[node(0, "Result", None)], &[], 1.0)).expect("JSON");
        assert_eq!(file["profiles"][0]["samples"], json!([]));
        assert_eq!(file["profiles"][0]["endValue"], json!(0.0));
    }
}
