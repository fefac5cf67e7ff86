//! Advice: what the nodes of a plan show that could be done better, with the figures that show it.
//!
//! A rule is a function and an entry of [`RULES`]. It reads what all executions of a plan did, says what the
//! change can save at most, and what to try. Nothing of it is ever run. The thresholds are in the files of
//! the rules, and in the book.

mod index;
mod joins;
mod memory;
mod predicate;
mod scans;
mod statement;
mod subject;
#[cfg(test)]
mod tests;

pub use subject::{Candidate, Found, Server};

use crate::model::{NamedWaits, Plan};
use subject::Subject;

/// A finding is shown if it can save this share of the time of all statements of clients, or this time.
const MIN_SHARE: f64 = 0.01;
const MIN_MS: f64 = 10_000.0;
/// On a server that has done next to nothing, a share of it is nothing. Unmeasured.
const LEAST_MS: f64 = 10.0;

/// Returns whether a finding is large enough to be shown. `all_ms` is what all statements of clients took.
pub fn is_shown(saves_ms: f64, all_ms: f64) -> bool {
    saves_ms >= LEAST_MS && (saves_ms >= MIN_MS || saves_ms >= MIN_SHARE * all_ms)
}

/// A rule.
pub struct Rule {
    /// Its name.
    pub name: &'static str,
    /// Looks at a node of a plan.
    find: fn(&Subject<'_>, usize) -> Option<Found>,
    /// What would prove it wrong.
    pub disproved_by: &'static str,
}

/// All rules. If several hold for a node, the one that can save the most is shown, and the first of equals.
pub const RULES: [Rule; 10] = [
    Rule {
        name: "index for a filter",
        find: index::filter,
        disproved_by: "EXPLAIN shows the same plan with the index, or the table's writes take longer than the scans took",
    },
    Rule {
        name: "index for an order with a limit",
        find: index::ordered_limit,
        disproved_by: "with the index, the scan still removes most rows",
    },
    Rule {
        name: "nested loop after a low estimate",
        find: joins::nested_loop,
        disproved_by: "with a right estimate, the planner chooses the same join",
    },
    Rule {
        name: "estimate",
        find: joins::estimate,
        disproved_by: "with a right estimate, the planner chooses the same plan",
    },
    Rule {
        name: "cache of a Memoize",
        find: joins::memoize,
        disproved_by: "without it, the statement takes as long",
    },
    Rule {
        name: "heap fetches",
        find: scans::heap_fetches,
        disproved_by: "after VACUUM, the heap fetches come back soon: then the table is changed too often",
    },
    Rule {
        name: "lossy bitmap",
        find: memory::lossy_bitmap,
        disproved_by: "with this work_mem, pages are still lossy, or the scan takes as long",
    },
    Rule {
        name: "spill to disk",
        find: memory::spill,
        disproved_by: "with this work_mem, the node still writes work files, or takes as long",
    },
    Rule {
        name: "workers not launched",
        find: statement::workers,
        disproved_by: "with more workers the statement takes as long: the processors or the disks are busy",
    },
    Rule {
        name: "JIT compilation",
        find: statement::jit,
        disproved_by: "without it, the expressions take longer than their compilation took",
    },
];

/// A finding.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The node.
    pub node: usize,
    /// The name of the rule.
    pub rule: &'static str,
    /// What it has found.
    pub found: Found,
    /// What would prove it wrong.
    pub disproved_by: &'static str,
}

/// Returns what can be done better in a plan, at most one finding for a node.
pub fn of_plan(plan: &Plan, waits: &[NamedWaits], server: &Server<'_>) -> Vec<Finding> {
    let subject = Subject::new(plan, waits, server);
    let nodes = subject.nodes.len().min(plan.nodes.len());
    let mut findings = Vec::new();
    for node in 0..nodes {
        let mut best: Option<Finding> = None;
        for rule in &RULES {
            let found = (rule.find)(&subject, node).filter(|found| found.saves_ms > 0.0);
            if let Some(found) = found
                && best
                    .as_ref()
                    .is_none_or(|best| found.saves_ms > best.found.saves_ms)
            {
                best = Some(Finding {
                    node,
                    rule: rule.name,
                    found,
                    disproved_by: rule.disproved_by,
                });
            }
        }
        findings.extend(best);
    }
    findings
}
