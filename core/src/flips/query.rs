//! What is known of a query with several plans: its current plan, and the runs that follow.

use super::sample::{Executions, Sample};
use crate::model::PlanKey;
use serde::{Deserialize, Serialize};

/// How many runs of a query are known: that of the current plan, and two that wait to be judged. If another
/// one comes, the first of these is judged at once.
pub const RUNS: usize = 3;
/// The number of executions of a run that is an event, if plans do not alternate.
const MIN_RUN: u64 = 3;
/// A run also suffices if its executions took this long, in milliseconds, for each execution of [`MIN_RUN`].
const LONG_RUN_MS: f64 = 1_000.0 / MIN_RUN as f64;
/// The number of events that do not make the next run longer that is an event: there and back.
const FREE_EVENTS: u32 = 2;
/// The highest number of events that count: a run must have three million executions then.
const MAX_RECENT: u32 = FREE_EVENTS + 20;
/// An event is forgotten after this time without any, in microseconds.
pub const FORGET_US: i64 = 3_600_000_000;

/// Executions of one plan in a row. Zero bytes are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[repr(C)]
pub struct Run {
    /// The plan's number.
    pub plan: i64,
    /// Their times.
    pub sample: Sample,
    /// When the first one ended, in microseconds since 2000-01-01 UTC.
    pub first_at: i64,
    /// When the last one ended.
    pub last_at: i64,
}

impl Run {
    /// Returns the run of a batch.
    pub fn new(plan: i64, done: &Executions) -> Self {
        Run {
            plan,
            sample: done.sample,
            first_at: done.first_at,
            last_at: done.last_at,
        }
    }

    /// Returns whether there are executions.
    pub fn exists(&self) -> bool {
        self.sample.calls() > 0
    }

    /// Adds executions of the same plan.
    pub fn add(&mut self, other: &Run) {
        self.sample.merge(&other.sample);
        self.first_at = self.first_at.min(other.first_at);
        self.last_at = self.last_at.max(other.last_at);
    }

    /// Returns whether it is long enough for an event, if `needed` executions are.
    pub fn is_long(&self, needed: u64) -> bool {
        let calls = self.sample.calls();
        calls >= needed || calls as f64 * self.sample.sums.mean_wall_ms() >= needed as f64 * LONG_RUN_MS
    }
}

/// Where executions belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Before the current plan took over.
    Before,
    /// To the run with this index.
    In(usize),
    /// Behind all runs.
    Behind,
    /// They overlap with executions of another plan.
    Overlap,
}

/// A query with several plans. Zero bytes are a free place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[repr(C)]
pub struct Query {
    /// A key of the query, with any plan.
    pub key: PlanKey,
    /// The run of the current plan, which took over with it, and then those that are not judged yet.
    /// Neighbours have different plans, and do not overlap. What does not exist is at the end.
    pub runs: [Run; RUNS],
    /// The event with which the current plan took over; 0 if there is none.
    pub event: u64,
    /// The number of events until the last one, as far as they were not forgotten then.
    pub recent: u32,
}

impl Query {
    /// Returns whether the place is in use.
    pub fn is_used(&self) -> bool {
        self.runs[0].exists()
    }

    /// Returns the number of runs.
    pub fn count(&self) -> usize {
        self.runs.iter().take_while(|run| run.exists()).count()
    }

    /// Returns when the query last ran.
    pub fn last_at(&self) -> i64 {
        let runs = self.runs.iter().filter(|run| run.exists());
        runs.map(|run| run.last_at).max().unwrap_or(i64::MIN)
    }

    /// Returns where the executions of a run belong.
    pub fn place(&self, done: &Run) -> Place {
        let count = self.count();
        if self.event != 0 && done.last_at < self.runs[0].first_at {
            return Place::Before;
        }
        let fits = |i: usize| {
            let is_after = i == 0 || done.first_at > self.runs[i - 1].last_at;
            let is_before = i + 1 == count || done.last_at < self.runs[i + 1].first_at;
            self.runs[i].plan == done.plan && is_after && is_before
        };
        if let Some(at) = (0..count).rev().find(|i| fits(*i)) {
            Place::In(at)
        } else if done.first_at > self.runs[count.saturating_sub(1)].last_at {
            Place::Behind
        } else {
            Place::Overlap
        }
    }

    /// Returns how many events are not forgotten when the next run begins.
    pub fn recent(&self) -> u32 {
        let time = self.runs[1].first_at.saturating_sub(self.runs[0].first_at);
        let forgotten = u32::try_from(time / FORGET_US).unwrap_or(0);
        self.recent.min(MAX_RECENT).saturating_sub(forgotten)
    }

    /// Returns how many executions the next run needs to be an event.
    pub fn needed(&self) -> u64 {
        MIN_RUN << self.recent().saturating_sub(FREE_EVENTS)
    }

    /// Removes the run with this index.
    pub fn remove(&mut self, at: usize) {
        self.runs[at..].rotate_left(1);
        self.runs[RUNS - 1] = Run::default();
    }

    /// Forgets the run behind that of the current plan.
    pub fn forget_next(&mut self) {
        self.remove(1);
        if self.runs[1].exists() && self.runs[1].plan == self.runs[0].plan {
            let continued = self.runs[1];
            self.runs[0].add(&continued);
            self.remove(1);
        }
    }

    /// Forgets all runs but that of the current plan, because plans are used side by side.
    pub fn forget_order(&mut self, done: &Run) {
        while self.runs[1].exists() {
            self.forget_next();
        }
        if done.plan == self.runs[0].plan {
            self.runs[0].add(done);
        }
    }
}
