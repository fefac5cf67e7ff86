//! Advice: what the nodes of a plan show that could be done better, with the figures that show it.
//!
//! A rule is a function and an entry of [`RULES`]. It reads what all executions of a plan did, says what the
//! change can save at most, and what to try. Nothing of it is ever run. The thresholds are in the files of the
//! rules; the book lists them with their sources.

mod index;
mod joins;
mod memory;
mod predicate;
mod scans;
mod statement;
#[cfg(test)]
mod tests;

pub use index::Candidate;

use crate::model::{NamedWaits, NodeStats, NodeTotals, OwnIo, Plan, WaitsFor, own_io, processes};
use crate::plan::{PlanNode, Relationship};

/// A finding is shown if it can save this share of the time of all statements of clients, or this time.
const MIN_SHARE: f64 = 0.01;
const MIN_MS: f64 = 10_000.0;
/// On a server that has done next to nothing, a share of it is nothing. Unmeasured.
const LEAST_MS: f64 = 10.0;

/// Returns whether a finding is large enough to be shown. `all_ms` is what all statements of clients took.
pub fn is_shown(saves_ms: f64, all_ms: f64) -> bool {
    saves_ms >= LEAST_MS && (saves_ms >= MIN_MS || saves_ms >= MIN_SHARE * all_ms)
}

/// What a rule has found at a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The figures that show it.
    pub figures: String,
    /// The milliseconds of all executions that it can save at most.
    pub saves_ms: f64,
    /// SQL to try.
    pub try_sql: String,
    /// The index that is proposed, if one is: whether it is right depends on the catalog, too.
    pub index: Option<Candidate>,
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

/// What is said of the settings, and how SQL is written.
pub struct Server<'a> {
    /// The setting work_mem, in kB.
    pub work_mem_kb: f64,
    /// The setting hash_mem_multiplier.
    pub hash_mem_multiplier: f64,
    /// Quotes an identifier for SQL.
    pub quote: &'a dyn Fn(&str) -> String,
}

/// A plan that rules look at.
struct Subject<'a> {
    plan: &'a Plan,
    nodes: &'a [PlanNode],
    server: &'a Server<'a>,
    io: Vec<Option<OwnIo>>,
    processes: Vec<Option<f64>>,
    /// The milliseconds that each node waited for temporary files.
    temp_ms: Vec<f64>,
}

/// Returns what can be done better in a plan, at most one finding for a node.
pub fn of_plan(plan: &Plan, waits: &[NamedWaits], server: &Server<'_>) -> Vec<Finding> {
    let nodes = &plan.description.nodes[..];
    let mut temp_ms = vec![0.0; nodes.len()];
    for waits in waits
        .iter()
        .filter(|waits| waits.waits_for() == WaitsFor::TemporaryFile)
    {
        if let Some(ms) = waits.node.and_then(|node| temp_ms.get_mut(node)) {
            *ms += waits.ms;
        }
    }
    let subject = Subject {
        plan,
        nodes,
        server,
        io: own_io(nodes, &plan.nodes),
        processes: processes(nodes, |i| plan.nodes.get(i)?.total.starts.get()),
        temp_ms,
    };
    let mut findings = Vec::new();
    for node in 0..nodes.len().min(plan.nodes.len()) {
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

impl Subject<'_> {
    /// Returns what a node did in all executions.
    fn totals(&self, node: usize) -> &NodeTotals {
        &self.plan.nodes[node]
    }

    fn stats(&self, node: usize) -> &NodeStats {
        &self.totals(node).total
    }

    /// Returns what it did in the last one.
    fn last(&self, node: usize) -> &NodeStats {
        &self.totals(node).last
    }

    fn starts(&self, node: usize) -> f64 {
        self.stats(node).starts.get_or_zero() as f64
    }

    fn executions(&self) -> f64 {
        self.plan.statistics.times.calls as f64
    }

    /// Returns how long all executions of the statement took.
    fn statement_ms(&self) -> f64 {
        self.plan.statistics.times.total_ms
    }

    fn shared(&self, node: usize, ms: f64) -> f64 {
        ms / self
            .processes
            .get(node)
            .copied()
            .flatten()
            .unwrap_or(1.0)
            .max(1.0)
    }

    /// Returns how long the node itself took. Processes that ran it together share the time.
    fn self_ms(&self, node: usize) -> f64 {
        self.shared(node, self.stats(node).time.get_or_zero().self_ms)
    }

    /// Returns the same with all nodes below it.
    fn total_ms(&self, node: usize) -> f64 {
        self.shared(node, self.stats(node).time.get_or_zero().total_ms)
    }

    fn io(&self, node: usize) -> OwnIo {
        self.io.get(node).copied().flatten().unwrap_or_default()
    }

    /// Returns the inputs of a node.
    fn children(&self, node: usize) -> impl Iterator<Item = usize> {
        let of_node = move |child: &(usize, &PlanNode)| child.1.parent == Some(node);
        let inputs = self.nodes.iter().enumerate().filter(of_node);
        inputs
            .map(|(child, _)| child)
            .filter(|child| *child < self.plan.nodes.len())
    }

    fn child(&self, node: usize, relationship: Relationship) -> Option<usize> {
        self.children(node)
            .find(|child| self.nodes[*child].relationship == relationship)
    }

    /// Returns the nodes above a node, the nearest first.
    fn above(&self, node: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(self.nodes[node].parent, |above| self.nodes[*above].parent)
    }

    /// Returns the name of a node's table as SQL, and its name in the plan.
    fn table(&self, node: usize) -> Option<String> {
        let node = &self.nodes[node];
        let name = node.table.as_deref().or(node.object_name.as_deref())?;
        // Temporary tables and catalogs have no known schema.
        let schema = node.schema.as_deref()?;
        Some(format!(
            "{}.{}",
            (self.server.quote)(schema),
            (self.server.quote)(name)
        ))
    }

    /// Returns how many times too few rows the planner expected of a node, on average.
    fn underestimate(&self, node: usize) -> Option<f64> {
        let estimates = &self.totals(node).estimates;
        let is_known = estimates.executions > 0 && estimates.expected_rows > 0.0;
        is_known.then(|| estimates.actual_rows as f64 / estimates.expected_rows)
    }
}
