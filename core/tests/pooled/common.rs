//! What both shapes are fed with, and what is compared.

use rand_core::RngCore;
use rowsource_core::clock::Source;
use rowsource_core::model::{Estimate, Outcome, PlanOrigin, Planning, Run};

/// One timed call of a node.
#[derive(Clone, Copy)]
pub struct Call {
    pub ns: f64,
    pub ticks: f64,
}

/// What one node does in an execution.
#[derive(Clone)]
pub struct Work {
    pub calls: Vec<Call>,
    pub rows: u64,
    pub hits: i64,
    pub removed: f64,
    pub searches: u64,
}

/// One execution, all of whose calls are timed.
pub struct Execution {
    pub nodes: Vec<Work>,
    /// It failed, or did what is no simple count.
    pub is_simple: bool,
}

impl Execution {
    /// A lookup: each node has the same calls, the last of which returns no row.
    pub fn lookup(nodes: usize, calls: &[Call]) -> Execution {
        let work = Work {
            calls: calls.to_vec(),
            rows: calls.len() as u64 - 1,
            hits: 3,
            removed: 0.0,
            searches: 1,
        };
        Execution {
            nodes: vec![work; nodes],
            is_simple: true,
        }
    }

    pub fn random(random: &mut impl RngCore, nodes: usize) -> Execution {
        let mut below = |most: u64| random.next_u64() % most;
        let work = |below: &mut dyn FnMut(u64) -> u64| {
            let calls: Vec<Call> = (0..below(15))
                .map(|_| {
                    let ticks = 1.0 + below(1 << 20) as f64;
                    Call {
                        ns: ticks / 2.0,
                        ticks,
                    }
                })
                .collect();
            let rows = (calls.len() as u64).saturating_sub(1);
            Work {
                calls,
                rows,
                hits: below(9) as i64,
                removed: below(3) as f64,
                searches: below(2),
            }
        };
        Execution {
            nodes: (0..nodes).map(|_| work(&mut below)).collect(),
            is_simple: below(9) > 0,
        }
    }
}

/// What a node counted: in one execution, or in all since the last reading.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Taken {
    pub starts: u64,
    pub rows: u64,
    pub timed_calls: u64,
    pub ticks: f64,
    pub hits: i64,
    pub removed: u64,
    pub searches: u64,
}

/// What the planner expects of each node.
pub fn estimate() -> Estimate {
    Estimate::new(1.0, true)
}

pub fn run(at: i64) -> Run {
    Run {
        outcome: Outcome::Completed,
        sampfreq: 128,
        clock: Some(Source::Tsc),
        elapsed_ms: 0.01,
        before_ms: 0.02,
        commit_ms: 0.0,
        planning: Planning::default(),
        origin: PlanOrigin::Generic,
        at,
        unfinished: false,
        explained: false,
        caller: 0,
        changed_rows: 0,
    }
}

/// What of a timer belongs to one execution: the calls until the next timed one, and how they are chosen.
#[derive(Clone, Copy, Default)]
pub struct Choice {
    pub countdown: u64,
    pub drawn: u64,
    pub first_calls: u64,
    pub gap: f64,
    pub recent: f64,
    pub opening: f64,
}

impl Choice {
    pub fn start(&mut self) {
        *self = Choice {
            countdown: 1,
            drawn: 1,
            first_calls: 16,
            gap: 1.0,
            recent: 0.0,
            opening: 0.0,
        };
    }

    /// The next call is timed, too.
    pub fn next(&mut self) {
        self.countdown = 1;
        self.drawn += 1;
    }

    pub fn calls(&self) -> u64 {
        self.drawn.saturating_sub(self.countdown)
    }
}

impl Taken {
    /// Returns what a node did in an execution.
    pub fn of(work: &Work) -> Taken {
        Taken {
            starts: 1,
            rows: work.rows,
            timed_calls: work.calls.len() as u64,
            ticks: work.calls.iter().map(|call| call.ticks).sum(),
            hits: work.hits,
            removed: work.removed as u64,
            searches: work.searches,
        }
    }

    pub fn add(&mut self, more: &Taken) {
        self.starts += more.starts;
        self.rows += more.rows;
        self.timed_calls += more.timed_calls;
        self.ticks += more.ticks;
        self.hits += more.hits;
        self.removed += more.removed;
        self.searches += more.searches;
    }
}
