//! Builds small plans, and computes their statistics.

use super::super::*;
use crate::model::{Buffers, Called, Estimate, NodeFacts, NodeStats, Time, Wal};
use crate::reconcile::Edge;
use crate::sampler::{Config, EveryCall, LongCallEvidence, NodeTimer, TimedCall};
use rand::SeedableRng;
use rand_xoshiro::Xoroshiro128PlusPlus;

/// A clock whose tick is half a nanosecond, and whose reading costs nothing.
pub const TICK_NS: f64 = 0.5;
pub const CONFIG: Config = Config {
    max_gap: 16.0,
    empty_interval: 0.0,
    empty_in_order: 0.0,
    reading: 0.0,
    nested_reading: 0.0,
    affordable: 1e9,
    long: 4e9,
    step: 0.0,
};

/// A plan for tests.
#[derive(Default)]
pub struct Plan {
    pub samples: Vec<NodeSample>,
    pub cores: Vec<CoreSample>,
    /// Those of the first nodes, if there are any.
    pub facts: Vec<NodeFacts>,
    /// The inputs of nodes of other extensions.
    pub by_others: Vec<usize>,
    /// The nodes whose state does not tell that they never ran.
    pub touched: Vec<usize>,
    /// What subplans used that a node called.
    pub called: Vec<(usize, Called)>,
    /// The node that called a subplan last.
    pub last_callers: Vec<(usize, Caller)>,
    pub earlier_callers: Vec<EarlierCaller>,
}

impl Nodes for Plan {
    fn count(&self) -> usize {
        self.samples.len()
    }
    fn place(&self, i: usize) -> Place {
        self.samples[i].place
    }
    fn sample(&self, i: usize) -> NodeSample {
        self.samples[i]
    }
    fn called(&self, i: usize) -> Called {
        let of_node = self.called.iter().find(|(node, _)| *node == i);
        of_node.map_or(Called::default(), |(_, called)| *called)
    }
    fn last_caller(&self, i: usize) -> Caller {
        let of_node = self.last_callers.iter().find(|(node, _)| *node == i);
        of_node.map_or(Caller::Unknown, |(_, caller)| *caller)
    }
    fn earlier_callers(&self) -> impl Iterator<Item = EarlierCaller> {
        self.earlier_callers.iter().copied()
    }
    fn may_be_bypassed(&self, i: usize) -> bool {
        self.by_others.contains(&i)
    }
    fn may_have_run(&self, i: usize) -> bool {
        self.touched.contains(&i)
    }
    fn facts(&self, i: usize) -> NodeFacts {
        self.facts.get(i).copied().unwrap_or_default()
    }
    fn core(&self, i: usize) -> CoreSample {
        self.cores[i]
    }
}

/// Returns a node that was started once and itself hit this many blocks.
pub fn node(parent: Option<usize>, calls: Calls, hit: i64) -> NodeSample {
    NodeSample {
        place: Place {
            parent,
            edge: Edge::Sequential,
            by_expression: false,
            hidden: false,
        },
        is_instrumented: true,
        by_core: false,
        processes: 1.0,
        loops: 1.0,
        is_running: false,
        rows: 0,
        core_rows: 0.0,
        counts_calls: false,
        is_last_row: false,
        interrupted: None,
        calls,
        used: Used {
            has_changes: true,
            has_more: true,
        },
        buffers: blocks(hit),
        wal: Wal {
            records: hit,
            ..Wal::default()
        },
        waited_ns: 0,
        estimate: Estimate::default(),
    }
}

pub fn blocks(hit: i64) -> Buffers {
    Buffers {
        shared_hit: hit,
        ..Buffers::default()
    }
}

/// Makes calls of these lengths in ticks. The first call begins a start. Times the calls that the timer
/// chooses.
pub fn sampled(lengths: impl IntoIterator<Item = u64>) -> Calls {
    let mut timer = NodeTimer::default();
    timer.start();
    let mut random = Xoroshiro128PlusPlus::seed_from_u64(1);
    let mut evidence = LongCallEvidence::default();
    let mut now = 1_000;
    for (i, length) in lengths.into_iter().enumerate() {
        let call = TimedCall {
            before: now,
            start: now + 10,
            end: now + 10 + length,
            nested_readings: 0,
            did_io: false,
            first_of_start: i == 0,
        };
        now = call.end;
        timer.countdown -= 1;
        if timer.countdown == 0 {
            timer.record_timed(&CONFIG, &mut random, &call, &mut evidence);
        }
    }
    Calls::Sampled(timer)
}

pub fn every(calls: u64, ticks: u64) -> Calls {
    Calls::Every(EveryCall {
        calls,
        ticks,
        startup_ticks: ticks / 2,
        clock_backsteps: 0,
    })
}

pub const UNTIMED: Calls = Calls::Untimed { calls: 0 };

/// Returns a timed statement whose runs took `elapsed_ns`.
pub fn timed(elapsed_ns: f64) -> StatementSample<'static> {
    StatementSample {
        mode: Mode::RowsourceOnly,
        has_usage: true,
        is_timed: true,
        core_contributes: false,
        tick_ns: TICK_NS,
        config: &CONFIG,
        elapsed_ns,
    }
}

pub fn direct(plan: &Plan) -> Option<Vec<NodeStats>> {
    let mut stats = Vec::new();
    assemble_directly::<_, true>(plan, &CONFIG, TICK_NS, 1e12, &mut stats, &mut Vec::new()).then_some(stats)
}

/// Returns the same of a plan whose calls are not timed.
pub fn direct_without_times(plan: &Plan) -> Option<Vec<NodeStats>> {
    let mut stats = Vec::new();
    assemble_directly::<_, false>(plan, &CONFIG, TICK_NS, 1e12, &mut stats, &mut Vec::new()).then_some(stats)
}

pub fn assembled(plan: &Plan, statement: &StatementSample) -> Scratch {
    let mut scratch = Scratch::default();
    assemble(plan, statement, &mut scratch).expect("memory");
    scratch
}

pub fn stats(plan: &Plan, statement: &StatementSample) -> Vec<NodeStats> {
    assembled(plan, statement).stats
}

pub fn time(stats: &NodeStats) -> Time {
    stats.time.get().expect("timed")
}

pub fn hit(stats: &NodeStats) -> i64 {
    stats.buffers.get().expect("blocks were counted").shared_hit
}
