//! What rules look at, and what they find.

use crate::model::{
    NamedWaits, NodeKind, NodeStats, NodeTotals, OwnIo, Plan, WaitsFor, facts, own_io, processes,
};
use crate::plan::{PlanNode, Relationship};

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

/// An index that is proposed.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The table's schema.
    pub schema: String,
    /// The table.
    pub table: String,
    /// The columns in the order of the index.
    pub columns: Vec<String>,
    /// Those of them that must be of the type varchar, because they are compared as text.
    pub varchars: Vec<String>,
    /// All columns are compared for equality: then a hash index would do.
    pub is_equal: bool,
}

/// What is said of the settings, and how SQL is written.
pub struct Server<'a> {
    /// The setting work_mem, in kB; `None` if it is not known.
    pub work_mem_kb: Option<f64>,
    /// The setting hash_mem_multiplier.
    pub hash_mem_multiplier: f64,
    /// Quotes an identifier for SQL.
    pub quote: &'a dyn Fn(&str) -> String,
}

/// A plan that rules look at.
pub(super) struct Subject<'a> {
    pub plan: &'a Plan,
    pub nodes: &'a [PlanNode],
    pub server: &'a Server<'a>,
    io: Vec<Option<OwnIo>>,
    processes: Vec<Option<f64>>,
    /// The milliseconds that each node waited for temporary files.
    pub temp_ms: Vec<f64>,
}

impl<'a> Subject<'a> {
    /// Prepares a plan, with the waits of its nodes.
    pub fn new(plan: &'a Plan, waits: &[NamedWaits], server: &'a Server<'a>) -> Self {
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
        Subject {
            plan,
            nodes,
            server,
            io: own_io(nodes, &plan.nodes),
            processes: processes(nodes, |i| plan.nodes.get(i)?.total.starts.get()),
            temp_ms,
        }
    }

    /// Returns what a node did in all executions.
    pub fn totals(&self, node: usize) -> &NodeTotals {
        &self.plan.nodes[node]
    }

    pub fn stats(&self, node: usize) -> &NodeStats {
        &self.totals(node).total
    }

    /// Returns what it did in the last one.
    pub fn last(&self, node: usize) -> &NodeStats {
        &self.totals(node).last
    }

    pub fn starts(&self, node: usize) -> f64 {
        self.stats(node).starts.get_or_zero() as f64
    }

    pub fn executions(&self) -> f64 {
        self.plan.statistics.times.calls as f64
    }

    /// Returns how long all executions of the statement took.
    pub fn statement_ms(&self) -> f64 {
        self.plan.statistics.times.total_ms
    }

    pub fn shared(&self, node: usize, ms: f64) -> f64 {
        ms / self
            .processes
            .get(node)
            .copied()
            .flatten()
            .unwrap_or(1.0)
            .max(1.0)
    }

    /// Returns how long the node itself took. Processes that ran it together share the time.
    pub fn self_ms(&self, node: usize) -> f64 {
        self.shared(node, self.stats(node).time.get_or_zero().self_ms)
    }

    /// Returns the same with all nodes below it.
    pub fn total_ms(&self, node: usize) -> f64 {
        self.shared(node, self.stats(node).time.get_or_zero().total_ms)
    }

    pub fn io(&self, node: usize) -> OwnIo {
        self.io.get(node).copied().flatten().unwrap_or_default()
    }

    /// Returns the inputs of a node.
    pub fn children(&self, node: usize) -> impl Iterator<Item = usize> {
        let of_node = move |child: &(usize, &PlanNode)| child.1.parent == Some(node);
        let inputs = self.nodes.iter().enumerate().filter(of_node);
        inputs
            .map(|(child, _)| child)
            .filter(|child| *child < self.plan.nodes.len())
    }

    pub fn child(&self, node: usize, relationship: Relationship) -> Option<usize> {
        self.children(node)
            .find(|child| self.nodes[*child].relationship == relationship)
    }

    /// Returns the nodes above a node, the nearest first.
    pub fn above(&self, node: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(self.nodes[node].parent, |above| self.nodes[*above].parent)
    }

    /// Returns the name of a node's table as SQL, and its name in the plan.
    pub fn table(&self, node: usize) -> Option<String> {
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

    /// Returns whether a node stands for the partitions of a table.
    pub fn is_of_partitions(&self, node: usize) -> bool {
        self.above(node).any(|above| {
            let facts = self.plan.nodes.get(above).map(|totals| &totals.total.facts);
            facts.is_some_and(|facts| {
                facts.kind == NodeKind::Append && facts.sums[facts::PARTITIONS_PLANNED] > 0
            })
        })
    }

    /// Returns how many times too few rows the planner expected of a node, on average.
    pub fn underestimate(&self, node: usize) -> Option<f64> {
        let estimates = &self.totals(node).estimates;
        let is_known = estimates.executions > 0 && estimates.expected_rows > 0.0;
        is_known.then(|| estimates.actual_rows as f64 / estimates.expected_rows)
    }
}
