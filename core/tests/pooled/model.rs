//! The model: nodes keep counting from one execution to the next.

use super::common::{Choice, Execution, Taken, estimate};
use rowsource_core::histogram::Histogram;
use rowsource_core::model::{Estimate, Estimates, PlanStats, Run};

/// What a node has counted since its session set up the plan. It only grows.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Counted {
    starts: f64,
    rows: u64,
    certain_calls: u64,
    ticks: f64,
    startup_ticks: f64,
    hits: i64,
    removed: [f64; 2],
    heap_fetches: f64,
    searches: u64,
}

/// A node.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Node {
    counted: Counted,
    /// The same when the execution in progress began. What came since is the last execution.
    begun: Counted,
    has_more: bool,
    by_core: bool,
    interrupted: Option<u64>,
    clock_backsteps: u64,
    choice: Choice,
    estimate: Estimate,
    /// It depends on single executions, so it is no difference of sums.
    estimates: Estimates,
    /// It only grows, too.
    calls: Histogram,
}

/// A session that runs one plan. All of it lies in shared memory.
pub struct Session {
    /// Odd while an execution runs: then `begun` is what readers add up.
    version: u64,
    nodes: Vec<Node>,
    plan: PlanStats,
    /// What readers have added to the store.
    read: Vec<Counted>,
}

impl Session {
    pub fn new(count: usize) -> Session {
        let node = Node {
            estimate: estimate(),
            ..Node::default()
        };
        Session {
            version: 0,
            nodes: vec![node; count],
            plan: PlanStats::default(),
            read: vec![Counted::default(); count],
        }
    }

    /// Returns what the last execution did.
    pub fn last(&self) -> Vec<Taken> {
        let nodes = self.nodes.iter();
        nodes.map(|node| taken(&node.counted, &node.begun)).collect()
    }

    /// Returns what all executions since the last time did. An execution in progress is not among them.
    pub fn take(&mut self) -> Vec<Taken> {
        let is_running = self.version % 2 == 1;
        let mut all = Vec::new();
        for (node, read) in self.nodes.iter().zip(&mut self.read) {
            let now = if is_running { node.begun } else { node.counted };
            all.push(taken(&now, read));
            *read = now;
        }
        all
    }

    /// Begins an execution.
    pub fn begin(&mut self) {
        model_start_nodes(self);
    }

    /// Counts what an execution in progress does.
    pub fn count(&mut self, execution: &Execution) {
        model_count_calls(self, execution);
    }

    /// Ends it. One that failed, or that did more than simple counts have, is taken as today, and its counts
    /// are taken back.
    pub fn end(&mut self, run: &Run, is_simple: bool) {
        if is_simple {
            model_end_nodes(self, run);
        } else {
            for node in &mut self.nodes {
                node.counted = node.begun;
            }
            self.version += 1;
        }
    }
}

fn taken(now: &Counted, before: &Counted) -> Taken {
    Taken {
        starts: (now.starts - before.starts) as u64,
        rows: now.rows - before.rows,
        timed_calls: now.certain_calls - before.certain_calls,
        ticks: now.ticks - before.ticks,
        hits: now.hits - before.hits,
        removed: (now.removed[0] - before.removed[0]) as u64,
        searches: now.searches - before.searches,
    }
}

/// Executes the plan, as far as its nodes are concerned.
pub fn execute(session: &mut Session, execution: &Execution, run: &Run) {
    model_start_nodes(session);
    model_count_calls(session, execution);
    model_end_nodes(session, run);
}

#[inline(never)]
fn model_start_nodes(session: &mut Session) {
    session.version += 1;
    for node in &mut session.nodes {
        node.begun = node.counted;
        (node.has_more, node.interrupted, node.clock_backsteps) = (false, None, 0);
        node.choice.start();
    }
}

/// The calls are counted in their buckets at once: a list of them would have to be emptied.
#[inline(never)]
fn model_count_calls(session: &mut Session, execution: &Execution) {
    for (node, work) in session.nodes.iter_mut().zip(&execution.nodes) {
        for call in &work.calls {
            node.counted.certain_calls += 1;
            node.counted.ticks += call.ticks;
            node.calls.count(call.ns, false);
            node.choice.next();
        }
        node.counted.startup_ticks += work.calls.first().map_or(0.0, |call| call.ticks);
        node.counted.rows += work.rows;
        node.counted.hits += work.hits;
        node.counted.starts += 1.0;
        node.counted.removed[0] += work.removed;
        node.counted.searches += work.searches;
    }
}

/// The sums of the plan are added, and estimates compared. The nodes' sums stay where they are.
#[inline(never)]
fn model_end_nodes(session: &mut Session, run: &Run) {
    for node in &mut session.nodes {
        let (counted, begun) = (&node.counted, &node.begun);
        let is_exact = node.choice.calls() == counted.certain_calls - begun.certain_calls;
        if node.has_more
            || node.by_core
            || node.interrupted.is_some()
            || node.clock_backsteps > 0
            || !is_exact
        {
            return;
        }
        let starts = (counted.starts - begun.starts) as i64 as u64;
        node.estimates
            .add(&node.estimate, starts, counted.rows - begun.rows);
    }
    session.plan.add(run);
    session.version += 1;
}
