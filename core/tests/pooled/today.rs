//! What the library does: an execution clears its nodes, takes what they counted, adds that to the session's
//! buffer, and keeps it as the last one.

use super::common::{Choice, Execution, estimate};
use rowsource_core::histogram::Histogram;
use rowsource_core::model::facts::SimpleFacts;
use rowsource_core::model::{Called, Estimate, NodeFacts, NodeKind, Run};
use rowsource_core::pending::{Buffer, Key, List, OwnBuffer};
use rowsource_core::reconcile::Edge;
use rowsource_core::results::{
    Caller, CoreSample, Counts, EarlierCaller, NodeSample, Nodes, Place, PlanSum, Shape, SimpleSample,
    TimedCalls, Used,
};

#[derive(Clone, Copy, Default, PartialEq)]
struct Plan(u64);

impl Key for Plan {
    fn tag(&self) -> u64 {
        self.0
    }
}

/// A node, as far as an execution without anything unusual has it.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Node {
    nloops: f64,
    is_running: bool,
    ntuples: f64,
    tuplecount: f64,
    removed: [f64; 2],
    heap_fetches: f64,
    searches: u64,
    used: Used,
    hits: i64,
    by_core: bool,
    counts_calls: bool,
    interrupted: Option<u64>,
    estimate: Estimate,
    rows: u64,
    choice: Choice,
    certain_calls: u64,
    certain_ticks: f64,
    startup_ticks: f64,
    timed_calls: u64,
    clock_backsteps: u64,
    histogram: Histogram,
}

struct Table<'a>(&'a [Node]);

impl Nodes for Table<'_> {
    #[inline(always)]
    fn count(&self) -> usize {
        self.0.len()
    }

    #[inline(always)]
    fn simple(&self, i: usize) -> Option<SimpleSample> {
        let node = &self.0[i];
        if node.by_core || node.interrupted.is_some() || node.used.has_more {
            return None;
        }
        if node.counts_calls || node.ntuples != 0.0 || node.tuplecount != 0.0 {
            return None;
        }
        let is_exact = node.choice.calls() == node.certain_calls && node.clock_backsteps == 0;
        Some(SimpleSample {
            starts: node.nloops as i64 as u64 + u64::from(node.is_running),
            rows: node.rows,
            timed: match is_exact {
                true => TimedCalls::All((node.certain_ticks, node.startup_ticks, node.timed_calls)),
                false => TimedCalls::Some,
            },
            shared_hit: node.hits,
            has_changes: node.used.has_changes,
            estimate: node.estimate,
        })
    }

    #[inline(always)]
    fn simple_facts(&self, i: usize) -> Option<SimpleFacts> {
        let node = &self.0[i];
        let mut sums = [0; 4];
        if node.removed[0] + node.removed[1] + node.heap_fetches != 0.0 {
            sums[0] = node.removed[0] as i64 as u64;
            sums[1] = node.removed[1] as i64 as u64;
            sums[2] = node.heap_fetches as i64 as u64;
        }
        sums[3] = node.searches;
        Some(SimpleFacts {
            kind: NodeKind::IndexScan,
            sums,
        })
    }

    fn place(&self, _: usize) -> Place {
        unreachable!()
    }
    fn sample(&self, _: usize) -> NodeSample {
        unreachable!()
    }
    fn called(&self, _: usize) -> Called {
        unreachable!()
    }
    fn last_caller(&self, _: usize) -> Caller {
        unreachable!()
    }
    fn earlier_callers(&self) -> impl Iterator<Item = EarlierCaller> {
        std::iter::empty()
    }
    fn may_be_bypassed(&self, _: usize) -> bool {
        unreachable!()
    }
    fn may_have_run(&self, _: usize) -> bool {
        unreachable!()
    }
    fn facts(&self, _: usize) -> NodeFacts {
        unreachable!()
    }
    fn core(&self, _: usize) -> CoreSample {
        unreachable!()
    }
}

/// A session that runs one plan.
pub struct Session {
    nodes: Vec<Node>,
    shape: Shape,
    counts: Box<Counts>,
    last: Box<Counts>,
    own: OwnBuffer<'static, Plan, u64, 8>,
    sum: Box<PlanSum>,
}

const PLAN: Plan = Plan(7);

impl Session {
    pub fn new(count: usize) -> Session {
        let node = Node {
            estimate: estimate(),
            ..Node::default()
        };
        let place = |i: usize| Place {
            parent: i.checked_sub(1),
            edge: Edge::Sequential,
            by_expression: false,
            hidden: false,
        };
        let list: &'static List = Box::leak(Box::default());
        let buffer: &'static Buffer<Plan, u64, 8> = Box::leak(Box::default());
        let own = list.attach(1, |_| buffer, || Some(1)).expect("a buffer");
        own.claim(PLAN, 0, i64::MAX, |_, _| true, |_, _, _| {})
            .expect("a slot");
        Session {
            nodes: vec![node; count],
            shape: Shape::new((0..count).map(|i| (place(i), false)), 0.5).expect("a shape"),
            counts: Box::default(),
            last: Box::default(),
            own,
            sum: Box::default(),
        }
    }
}

/// Executes the plan, as far as its nodes are concerned.
pub fn execute(session: &mut Session, execution: &Execution, run: &Run) {
    library_start_nodes(session);
    library_count_calls(session, execution);
    library_end_nodes(session, run);
}

/// What `reset_for_reexecution` does with the nodes.
#[inline(never)]
fn library_start_nodes(session: &mut Session) {
    for node in &mut session.nodes {
        (node.nloops, node.is_running, node.ntuples, node.tuplecount) = (0.0, false, 0.0, 0.0);
        (node.removed, node.heap_fetches, node.searches) = ([0.0; 2], 0.0, 0);
        (node.used, node.hits, node.interrupted, node.rows) = (Used::default(), 0, None, 0);
        (node.certain_calls, node.certain_ticks, node.startup_ticks) = (0, 0.0, 0.0);
        (node.timed_calls, node.clock_backsteps) = (0, 0);
        node.choice.start();
        node.histogram.clear();
    }
}

/// What the wrappers do, without what both shapes do in the same way: readings of the clock, and rows.
#[inline(never)]
fn library_count_calls(session: &mut Session, execution: &Execution) {
    for (node, work) in session.nodes.iter_mut().zip(&execution.nodes) {
        for call in &work.calls {
            node.certain_calls += 1;
            node.timed_calls += 1;
            node.certain_ticks += call.ticks;
            node.histogram.list(call.ns, false);
            node.choice.next();
        }
        node.startup_ticks += work.calls.first().map_or(0.0, |call| call.ticks);
        node.rows += work.rows;
        node.hits += work.hits;
        node.nloops += 1.0;
        node.removed[0] += work.removed;
        node.searches += work.searches;
    }
}

/// What `record_counts` does with them: they are taken, added to the session's buffer, and kept as the last
/// execution.
#[inline(never)]
fn library_end_nodes(session: &mut Session, run: &Run) {
    let table = Table(&session.nodes);
    if session
        .counts
        .take(&table, &session.shape, run.elapsed_ms)
        .is_err()
    {
        return;
    }
    let Some(mut slot) = session.own.add_to(0, &PLAN, run.at) else {
        return;
    };
    if slot.is_empty() {
        session.sum.clear(session.nodes.len());
    }
    *slot.value() = 1;
    let histograms = session.nodes.iter().map(|node| &node.histogram);
    session.sum.add_counts(run, None, &session.counts, histograms);
    std::mem::swap(&mut session.counts, &mut session.last);
}
