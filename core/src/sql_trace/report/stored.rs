//! The sums of the report from the plans of the store.
//!
//! The store knows how often a statement was planned and executed, with the elapsed times, blocks, rows and
//! waits. It does not know the processor time, nor how long the executor took to start and to end.

use super::super::event::{Phase, PlannedNode, Stat};
use super::sort::{Key, never_known};
use super::statement::{Calls, MAX_PLANS, PlanSums, RowSource, Statement, Sums};
use super::waits::Waits;
use crate::model::{Buffers, DatabaseSum, NodeStats, NodeTotals, Plan, PlanStats, StatementSums};
use crate::plan::PlanNode;
use crate::waits::Event;
use crate::waits::plan::PlanWaits;

/// The text of what is not stored.
const OTHERS: &str = "(others: the sum of the executions whose plans are not stored)";

/// Returns the calls of a plan.
pub fn calls(plan: &Plan) -> Calls {
    calls_of(
        &plan.statistics,
        &plan.statement_sums(),
        plan.description.is_utility(),
    )
}

/// Returns the calls of executions whose plans are not stored.
pub fn calls_of_others(sum: &DatabaseSum) -> Calls {
    calls_of(&sum.totals.plan, &sum.totals.statement, false)
}

fn calls_of(statistics: &PlanStats, sums: &StatementSums, is_utility: bool) -> Calls {
    let mut calls = [Sums::UNKNOWN; Phase::ALL.len()];
    let planning = &statistics.planning;
    // Planning is not measured at every level of statistics.
    if planning.plans > 0 {
        calls[Phase::Plan as usize] = Sums {
            count: Some(planning.plans),
            elapsed_us: Some(us(planning.total_ms)),
            rows: Some(0),
            ..blocks(Some(&sums.facts.planning))
        };
    }
    calls[Phase::Exec as usize].count = Some(statistics.times.calls);
    // A utility statement has no other call. Else these are the runs of the executor, and the triggers that
    // fire after them.
    let ran = if is_utility { Phase::Exec } else { Phase::Fetch };
    calls[ran as usize] = Sums {
        count: calls[ran as usize].count,
        elapsed_us: Some(us(statistics.times.total_ms)),
        rows: Some(sums.rows),
        failed: statistics.failed_calls + statistics.cancelled_calls,
        ..blocks(sums.buffers.get().as_ref())
    };
    calls
}

/// Returns the first of these words of a sort whose value the store knows of no statement.
pub fn never_stored<'a>(words: &'a str, keys: &[Key]) -> Option<&'a str> {
    let mut statistics = PlanStats::default();
    statistics.planning.plans = 1;
    let sums = StatementSums {
        buffers: Some(Buffers::default()).into(),
        ..StatementSums::default()
    };
    let calls = [false, true].map(|is_utility| calls_of(&statistics, &sums, is_utility));
    never_known(words, keys, &calls)
}

fn us(ms: f64) -> u64 {
    (ms * 1e3).round() as u64
}

fn blocks(used: Option<&Buffers>) -> Sums {
    let sum = |of: fn(&Buffers) -> i64| used.map(|used| of(used).max(0) as u64);
    Sums {
        reads: sum(|used| used.shared_read + used.local_read),
        gets: sum(Buffers::gets),
        dirtied: sum(|used| used.shared_dirtied + used.local_dirtied),
        ..Sums::UNKNOWN
    }
}

/// Adds waits by the names of their events.
fn add_waits(sums: &mut Waits, waits: &PlanWaits, name: impl Fn(Event) -> String) {
    for event in waits.events() {
        sums.entry(name(event.event)).or_default().add_stored(&event);
    }
}

impl Statement {
    /// Begins the statement of a plan. If its user hides it, `mask` replaces the text.
    pub fn of_plan(plan: &Plan, mask: Option<&str>) -> Self {
        Statement {
            queryid: mask.is_none().then_some(plan.key.queryid),
            uid: Some(u64::from(plan.key.userid)),
            datid: Some(u64::from(plan.key.datid)),
            is_recursive: !plan.key.toplevel(),
            sql: mask.unwrap_or(&plan.description.text).to_owned(),
            calls: [Sums::UNKNOWN; Phase::ALL.len()],
            ..Statement::default()
        }
    }

    /// Adds a plan. `mask` replaces the texts of its nodes, `name` names events.
    pub fn add_plan(&mut self, plan: &Plan, mask: Option<&str>, name: impl Fn(Event) -> String) {
        let statistics = &plan.statistics;
        self.add_statistics(statistics, &calls(plan), name);
        if self.plans.len() >= MAX_PLANS {
            self.more_plans += 1;
            return;
        }
        let executions = statistics.times.calls;
        // An execution starts the root once, unless a cursor is never fetched from, or goes back to its
        // beginning.
        let starts = plan.nodes.first().and_then(|root| root.total.starts.get());
        let counted = starts.map_or(0, |starts| starts.min(executions));
        let nodes = plan.description.nodes.iter().zip(&plan.nodes);
        self.plans.push(PlanSums {
            id: mask.is_none().then_some(plan.key.planid),
            executions,
            explained: statistics.explain_calls,
            nodes: nodes
                .map(|(node, totals)| RowSource::stored(node, totals, [executions, counted], mask))
                .collect(),
        });
    }

    /// Returns the sum of executions whose plans are not stored.
    pub fn of_others(sum: &DatabaseSum, name: impl Fn(Event) -> String) -> Self {
        let mut others = Statement {
            datid: Some(u64::from(sum.datid)).filter(|datid| *datid != 0),
            is_recursive: !sum.toplevel,
            sql: OTHERS.to_owned(),
            calls: [Sums::UNKNOWN; Phase::ALL.len()],
            ..Statement::default()
        };
        others.add_statistics(&sum.totals.plan, &calls_of_others(sum), name);
        others
    }

    fn add_statistics(&mut self, statistics: &PlanStats, calls: &Calls, name: impl Fn(Event) -> String) {
        for (sums, more) in self.calls.iter_mut().zip(calls) {
            sums.add(more);
        }
        add_waits(&mut self.waits, &statistics.waits, name);
        self.executions.add_stored(&statistics.durations);
    }
}

impl RowSource {
    /// Returns a node over all executions, of which the second number counted starts and blocks.
    fn stored(
        node: &PlanNode,
        totals: &NodeTotals,
        [executions, counted]: [u64; 2],
        mask: Option<&str>,
    ) -> Self {
        let NodeStats {
            starts,
            rows,
            time,
            buffers,
            ..
        } = &totals.total;
        let buffers = buffers.get();
        let sum = |of: fn(&Buffers) -> i64| buffers.as_ref().map(|used| of(used).max(0) as u64);
        let operation = match (mask, &node.object_name) {
            (Some(mask), _) => mask.to_owned(),
            (None, Some(object)) => format!("{} on {object}", node.operation),
            (None, None) => node.operation.clone(),
        };
        RowSource {
            single: Stat {
                id: node.id as u64,
                rows: totals.last.rows,
                node: PlannedNode {
                    cost_cents: (node.total_cost * 100.0).round() as u64,
                    card: node.plan_rows.round() as u64,
                    operation,
                    ..PlannedNode::default()
                },
                ..Stat::default()
            },
            depth: node.depth,
            executions,
            counted,
            // The store does not know how many were timed: all that counted, or fewer if some ran at sampfreq
            // 0. The head says so.
            timed: counted,
            rows: *rows,
            max_rows: None,
            gets: sum(Buffers::gets),
            reads: sum(|used| used.shared_read + used.local_read + used.temp_read),
            writes: sum(|used| used.shared_written + used.local_written + used.temp_written),
            time_us: time.get().map(|time| us(time.total_ms)),
            starts: starts.get(),
        }
    }
}

/// The sums over all statements of the store: of those that clients sent, and of those that others called.
#[derive(Debug)]
pub struct StoredTotals {
    pub(super) calls: [Calls; 2],
    pub(super) waits: [Waits; 2],
    /// How many statements there are.
    pub statements: [usize; 2],
}

impl Default for StoredTotals {
    fn default() -> Self {
        StoredTotals {
            calls: [[Sums::UNKNOWN; Phase::ALL.len()]; 2],
            waits: <[Waits; 2]>::default(),
            statements: [0; 2],
        }
    }
}

impl StoredTotals {
    /// Adds the executions of a plan.
    pub fn add(
        &mut self,
        is_recursive: bool,
        calls: &Calls,
        waits: &PlanWaits,
        name: impl Fn(Event) -> String,
    ) {
        let of = usize::from(is_recursive);
        for (sums, more) in self.calls[of].iter_mut().zip(calls) {
            sums.add(more);
        }
        add_waits(&mut self.waits[of], waits, name);
    }
}

#[cfg(test)]
mod tests;
