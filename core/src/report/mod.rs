//! The table of a measured plan, in the layout of Oracle's DBMS_XPLAN.

mod columns;
mod format;
pub mod iostat;
mod numbers;
mod predicates;
mod table;
#[cfg(test)]
mod tests;
mod text;

pub use format::{FORMAT_WORDS, Format, FormatError};

use crate::model::{NodeStats, Outcome};
use crate::plan::PlanNode;

/// The lines above the table, about the plan as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Query identifier.
    pub queryid: i64,
    /// Plan identifier.
    pub planid: i64,
    /// The number of recorded executions.
    pub executions: u64,
    /// One call in this many is timed, on average. 0 is no timing.
    pub sampfreq: i32,
    /// The clock that was read; empty if none was.
    pub clock: String,
    /// How the execution shown ended.
    pub outcome: Outcome,
    /// Whether the figures are those of the last execution. Otherwise they are totals of all.
    pub last: bool,
    /// Executions that an error ended.
    pub failed_calls: u64,
    /// Executions that a cancel request or a timeout ended.
    pub cancelled_calls: u64,
    /// The server's block size in bytes; 0 if it is not known. It is shown only if it is not PostgreSQL's default, which
    /// readers of block counts expect.
    pub block_size: u32,
    /// Whether the literals in the predicates are those of an earlier execution.
    pub older_literals: bool,
}

/// PostgreSQL's default block size.
const DEFAULT_BLOCK_SIZE: u32 = 8192;

impl Header {
    fn lines(&self) -> Vec<String> {
        let Header {
            queryid,
            planid,
            executions,
            sampfreq,
            clock,
            ..
        } = self;
        let mut identity =
            format!("queryid {queryid}  planid {planid}  executions {executions}  sampfreq {sampfreq}");
        if !clock.is_empty() {
            identity += &format!("  clock {clock}");
        }
        if ![0, DEFAULT_BLOCK_SIZE].contains(&self.block_size) {
            identity += &format!("  block size {}", self.block_size);
        }
        let mut lines = vec![identity];
        lines.extend(if self.last {
            self.ending()
        } else {
            Some(self.totals())
        });
        lines
    }

    fn ending(&self) -> Option<String> {
        let what_happened = match self.outcome {
            Outcome::Completed => return None,
            Outcome::Failed => "statement failed",
            Outcome::Cancelled => "statement was cancelled",
        };
        Some(format!("{what_happened}; figures up to that moment"))
    }

    fn totals(&self) -> String {
        let plural = if self.executions == 1 { "" } else { "s" };
        let mut line = format!("totals over {} execution{plural}", self.executions);
        for (calls, ending) in [(self.failed_calls, "failed"), (self.cancelled_calls, "cancelled")] {
            if calls > 0 {
                line += &format!(", {calls} {ending}");
            }
        }
        line
    }
}

/// Returns the lines of the display. `figures[i]` belongs to `nodes[i]`. A node without figures shows only its estimates.
///
/// The figures are those of one execution, or totals: the caller chose by [`Format::last`], and the header says which.
pub fn display(header: &Header, nodes: &[PlanNode], figures: &[NodeStats], format: &Format) -> Vec<String> {
    let mut lines = header.lines();
    lines.extend(table::lines(&columns::filled(nodes, figures, format)));
    if format.predicates {
        lines.extend(predicates::lines(nodes, header.older_literals));
    }
    if format.time && summed_over_processes(nodes, figures) {
        lines.extend(["Note".to_owned(), "----".to_owned(), SUMMED.to_owned()]);
    }
    lines
}

const SUMMED: &str = "   - below a Gather, Starts and A-Time are summed over the processes that took part";

/// Returns whether more than one process ran a node below a Gather. Then its time may exceed the Gather's.
fn summed_over_processes(nodes: &[PlanNode], figures: &[NodeStats]) -> bool {
    nodes.iter().zip(figures).any(|(node, own)| {
        let parent = node
            .parent
            .and_then(|parent| nodes.get(parent).zip(figures.get(parent)));
        parent.is_some_and(|(node, of_parent)| {
            node.operation.starts_with("Gather") && own.starts.get() > of_parent.starts.get()
        })
    })
}
