//! What is known of the busy time of executions beside their times. Busy time is what an execution took
//! without its waits for locks, LWLocks, clients and timeouts.
//!
//! An execution that did not wait for these changes nothing here: it was busy all the time. What is missing
//! then, the squares of the logarithms, is computed when executions pass to the store.

use super::durations::Durations;
use super::execution::{Outcome, Run, Times};
use crate::float;
use crate::waits::Event;
use crate::waits::plan::RunWaits;
use serde::{Deserialize, Serialize};

/// Shorter times count as this many milliseconds in logarithms: a nanosecond.
const MIN_MS: f64 = 1e-6;
/// The classes of events in which an execution is not busy: LWLock, Lock, Client, Timeout.
const CLASSES: [Event; 4] = [0x0100_0000, 0x0300_0000, 0x0600_0000, 0x0900_0000];
const CLASS: Event = 0xff00_0000;

/// What busy times differ by from the times of the same executions. Zero bytes are those of executions that
/// were busy all the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Busy {
    /// Milliseconds in which the executions were not busy.
    pub waited_ms: f64,
    /// How much the sum of the binary logarithms of busy times is above that of the times.
    pub log_change: f64,
    /// The sum of the squares of the binary logarithms of busy times. Of executions that have not passed to
    /// the store, how much it is above that of the times.
    pub log_squares: f64,
    /// The busy time of the executions that did not complete.
    pub failed_ms: f64,
    /// How long the longest execution among those that waited was, and how long it waited.
    longest_ms: f64,
    longest_waited_ms: f64,
}

/// Returns the binary logarithm of a time, as [`Times`] has it.
fn log2(ms: f64) -> f64 {
    float::log2(ms.max(MIN_MS))
}

/// Returns the milliseconds in which an execution was not busy. Processes that work for it may wait at the
/// same time, so it is at most what its own process waited.
fn waited_ms(waits: &RunWaits) -> f64 {
    let events = waits
        .events()
        .filter(|wait| CLASSES.contains(&(wait.event & CLASS)));
    let ns: u64 = events.map(|wait| wait.ns).fold(0, u64::saturating_add);
    ns.min(waits.run_ns()) as f64 / 1e6
}

impl Busy {
    /// Adds the waits of an execution, which has been added to `times`.
    pub(super) fn add_waits(&mut self, run: &Run, waits: &RunWaits, times: &Times) {
        let waited_ms = waited_ms(waits).min(run.elapsed_ms);
        if waited_ms <= 0.0 {
            return;
        }
        let (log, busy) = (log2(run.elapsed_ms), log2(run.elapsed_ms - waited_ms));
        self.waited_ms += waited_ms;
        self.log_change += busy - log;
        self.log_squares += busy * busy - log * log;
        if run.outcome != Outcome::Completed {
            self.failed_ms -= waited_ms;
        }
        if run.elapsed_ms >= times.max_ms {
            (self.longest_ms, self.longest_waited_ms) = (run.elapsed_ms, waited_ms);
        }
    }

    /// Adds the squares of one execution, as it passes to the store.
    pub(super) fn add_squares_of(&mut self, run: &Run) {
        let log = log2(run.elapsed_ms);
        self.log_squares += log * log;
    }

    /// Returns the same with the squares of these executions, as they pass to the store.
    pub(super) fn with_squares(mut self, times: &Times, durations: &Durations) -> Busy {
        let mean = times.mean_log2();
        let variance = match times.calls {
            0 | 1 => 0.0,
            _ => durations.log2_variance(times.min_ms, times.max_ms),
        };
        self.log_squares += times.calls as f64 * (variance + mean * mean);
        self
    }

    /// Adds those of other executions.
    pub(super) fn merge(&mut self, other: &Busy) {
        self.waited_ms += other.waited_ms;
        self.log_change += other.log_change;
        self.log_squares += other.log_squares;
        self.failed_ms += other.failed_ms;
        if other.longest_ms > self.longest_ms {
            (self.longest_ms, self.longest_waited_ms) = (other.longest_ms, other.longest_waited_ms);
        }
    }

    /// Returns the busy time of the execution that took the longest, which took this long.
    pub fn longest_ms(&self, max_ms: f64) -> f64 {
        if self.longest_ms == max_ms {
            max_ms - self.longest_waited_ms
        } else {
            max_ms
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Batch, ExecutionStats, Outside, PlanStats, StatementSums, sample};
    use crate::waits::plan::EventWaits;

    const LOCK: Event = 0x0300_0001;
    const READ: Event = 0x0a00_0001;

    /// Adds executions of these times and waits to a plan: one by one, or summed up first.
    fn plan(executions: &[(f64, Event, f64)], is_sum: bool) -> PlanStats {
        let (mut stored, mut sum) = (PlanStats::default(), PlanStats::default());
        for &(elapsed_ms, event, ms) in executions {
            let run = Run {
                elapsed_ms,
                ..sample::run()
            };
            let mut waits = RunWaits::none();
            let wait = EventWaits {
                event,
                waits: 1,
                ns: (ms * 1e6) as u64,
                ..EventWaits::default()
            };
            waits.add(wait);
            waits.add_run(&wait, false);
            let outside = Outside {
                sums: StatementSums::default(),
                waits: Some(&waits),
                called: &[],
            };
            let execution = ExecutionStats {
                run: &run,
                outside: Some(&outside),
                nodes: &[],
                histograms: &[],
                partitions: &[],
            };
            match is_sum {
                true => execution.add_to_plan(&mut sum),
                false => {
                    Batch::Execution(execution).add_to_plan(&mut stored);
                }
            }
        }
        if is_sum {
            Batch::Sum(&sum.for_store(), &[], &[]).add_to_plan(&mut stored);
        }
        stored
    }

    #[test]
    fn waits_for_locks_are_no_busy_time_and_reads_are() {
        for is_sum in [false, true] {
            let found = plan(&[(4.0, READ, 3.0), (10.0, LOCK, 8.0), (4.0, READ, 0.0)], is_sum);
            assert_eq!((found.times.total_ms, found.busy.waited_ms), (18.0, 8.0));
            let logs = found.times.mean_log2() * 3.0 + found.busy.log_change;
            assert!((logs - 5.0).abs() < 1e-2, "{logs}");
            let squares = found.busy.log_squares;
            assert!((squares - 9.0).abs() < 0.5, "{squares}");
            assert_eq!(found.busy.longest_ms(found.times.max_ms), 2.0);
            // A longer one that did not wait.
            let found = plan(&[(10.0, LOCK, 8.0), (12.0, READ, 1.0)], is_sum);
            assert_eq!(found.busy.longest_ms(found.times.max_ms), 12.0);
        }
    }

    #[test]
    fn an_execution_that_failed_was_busy_until_then() {
        let mut times = Times::default();
        times.add(5.0);
        let run = Run {
            outcome: Outcome::Failed,
            elapsed_ms: 5.0,
            ..sample::run()
        };
        let mut busy = Busy::default();
        busy.add_waits(&run, &RunWaits::none(), &times);
        assert_eq!(busy, Busy::default());
    }
}
