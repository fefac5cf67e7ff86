//! What is printed.

use super::counts::{Counts, Scale};
use super::list;
use crate::model::{Buffers, Jit, NodeStats, WorkerPart, Workers};
use crate::plan::PlanNode;

/// A format of EXPLAIN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExplainFormat {
    /// Lines for people.
    Text,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// XML.
    Xml,
}

/// A trigger's calls.
#[derive(Clone, Debug)]
pub struct Trigger {
    /// The trigger's name.
    pub name: String,
    /// The constraint that it enforces.
    pub constraint: Option<String>,
    /// Its table.
    pub relation: Option<String>,
    /// The number of its calls in all executions.
    pub calls: u64,
    /// How long they took, in milliseconds.
    pub ms: f64,
}

impl Trigger {
    /// Returns EXPLAIN's line, which names the table if there are several: with these milliseconds and calls.
    pub fn line(&self, has_table: bool, (ms, calls): (f64, u64)) -> String {
        let name = match &self.constraint {
            Some(constraint) => format!("for constraint {constraint}"),
            None => self.name.clone(),
        };
        let table = self.relation.as_ref().filter(|_| has_table);
        let table = table.map_or_else(String::new, |table| format!(" on {table}"));
        format!("Trigger {name}{table}: time={ms:.3} calls={calls}")
    }
}

/// What the planner did.
#[derive(Clone, Copy, Debug)]
pub struct Planned {
    /// Its time, in milliseconds.
    pub ms: f64,
    /// The blocks that it used.
    pub buffers: Buffers,
    /// The number of plannings that these numbers sum up, if their mean is printed; else 1.
    pub plannings: f64,
}

/// A plan with statistics.
pub struct Explained<'a> {
    /// The nodes in EXPLAIN's order.
    pub nodes: &'a [PlanNode],
    /// The statistics of the nodes; empty if none are known.
    pub stats: &'a [NodeStats],
    /// The number of executions that the statistics sum up, if their mean is printed; else 1.
    pub executions: f64,
    /// PostgreSQL's major version: what EXPLAIN prints differs.
    pub major: i32,
    /// Puts quotes around an identifier that needs them in SQL.
    pub quote: &'a dyn Fn(&str) -> String,
    /// The statement's text.
    pub statement: &'a str,
    /// The statement's queryid.
    pub queryid: i64,
    /// The plan's id.
    pub planid: i64,
    /// What the planner did, if that is known.
    pub planning: Option<Planned>,
    /// Milliseconds of execution.
    pub execution_ms: f64,
    /// The triggers that were called, if that is known.
    pub triggers: Option<&'a [Trigger]>,
    /// What was compiled, if that is known.
    pub jit: Option<Jit>,
    /// When the execution ended, and how, if this is printed.
    pub ending: Option<(&'a str, &'a str)>,
    /// What each process of a parallel plan did, if that is known.
    pub workers: Option<&'a Workers>,
}

impl Explained<'_> {
    /// Returns what is printed of the execution's end, with labels. EXPLAIN prints no such thing.
    pub(super) fn ending(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let ending = self.ending.into_iter();
        ending.flat_map(|(ended, outcome)| [("Execution Ended", ended), ("Outcome", outcome)])
    }

    pub(super) fn scale(&self) -> Scale {
        Scale::new(self.executions, self.major, self.stats)
    }

    /// Returns the counts of node `i`.
    pub(super) fn counts(&self, scale: Scale, i: usize) -> Counts<'_> {
        let input = list::input_of(self.nodes, i).and_then(|input| self.stats.get(input));
        let leader = self
            .workers
            .and_then(|workers| workers.of(i))
            .map(|(leader, _)| leader);
        Counts::new(scale, self.stats.get(i), input).of_leader(leader)
    }

    /// Returns the parts of the workers of node `i`, if they are known.
    pub(super) fn parts(&self, i: usize) -> Option<&[WorkerPart]> {
        self.workers
            .and_then(|workers| workers.of(i))
            .map(|(_, parts)| parts)
    }
}
