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
    /// The outcome of the displayed execution.
    pub outcome: Outcome,
    /// Whether the statistics are those of the last execution. Otherwise they are totals.
    pub last: bool,
    /// Executions that an error ended.
    pub failed_calls: u64,
    /// Executions that a cancel request or a timeout ended.
    pub cancelled_calls: u64,
    /// The server's block size in bytes; 0 if it is not known. It is shown only if it is not PostgreSQL's default.
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
        Some(format!("{what_happened}; statistics up to that moment"))
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

/// Returns the lines of the display. `stats[i]` belongs to `nodes[i]`. For a node without statistics, only its estimates
/// are shown.
///
/// The caller passes the statistics of the last execution or the totals, as [`Format::last`] says. The header names which.
pub fn display(header: &Header, nodes: &[PlanNode], stats: &[NodeStats], format: &Format) -> Vec<String> {
    let mut lines = header.lines();
    lines.extend(table::lines(&columns::filled(nodes, stats, format)));
    if format.predicates {
        lines.extend(predicates::lines(nodes, header.older_literals));
    }
    if format.time && summed_over_processes(nodes, stats) {
        lines.extend(["Note".to_owned(), "----".to_owned(), SUMMED.to_owned()]);
    }
    lines
}

const SUMMED: &str = "   - below a Gather, Starts and A-Time are summed over the processes that took part";

/// Returns whether more than one process ran a node below a Gather. Then its time may exceed the Gather's.
fn summed_over_processes(nodes: &[PlanNode], stats: &[NodeStats]) -> bool {
    nodes.iter().zip(stats).any(|(node, own)| {
        let parent = node
            .parent
            .and_then(|parent| nodes.get(parent).zip(stats.get(parent)));
        parent.is_some_and(|(node, of_parent)| {
            node.operation.starts_with("Gather") && own.starts.get() > of_parent.starts.get()
        })
    })
}
