//! Node by node: core's counts against ours.

use crate::explain::{COUNTERS, NodeCounts};
use crate::measured::MeasuredNode;

/// Everything in which our nodes differ from core's; empty where they are equal.
pub fn differences(core: &[NodeCounts], ours: &[MeasuredNode]) -> Vec<String> {
    let mut found = Vec::new();
    if core.len() != ours.len() {
        found.push(format!("core has {} nodes, we have {}", core.len(), ours.len()));
    }
    for (id, (core, ours)) in core.iter().zip(ours).enumerate() {
        let mut differ = |what: &str, core: &dyn std::fmt::Display, ours: &dyn std::fmt::Display| {
            found.push(format!("node {id}: {what}: core {core}, ours {ours}"));
        };
        if core.operation != ours.operation {
            differ("operation", &core.operation, &ours.operation);
        }
        if core.depth as i64 != i64::from(ours.depth) {
            differ("depth", &core.depth, &ours.depth);
        }
        // A node that never ran may have no starts; it must not claim any.
        if ours.starts.unwrap_or(0) != core.loops as i64 {
            differ(
                &format!("{}: starts", core.operation),
                &core.loops,
                &format!("{:?}", ours.starts),
            );
        }
        if !core.prints_rows_as(ours.rows as u64) {
            let core_rows = format!("{} a loop in {} loops", core.rows_per_loop, core.loops);
            differ(&format!("{}: rows", core.operation), &core_rows, &ours.rows);
        }
        for (counter, (column, _)) in COUNTERS.iter().enumerate() {
            if ours.counters[counter].unwrap_or(0) != core.counters[counter] {
                let value = format!("{:?}", ours.counters[counter]);
                differ(
                    &format!("{}: {column}", core.operation),
                    &core.counters[counter],
                    &value,
                );
            }
        }
    }
    found
}
