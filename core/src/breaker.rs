//! The breaker of a session. It adds up what measuring costs, from what was counted of the executions, and
//! says when that has been too large a share of the executor's time for a minute: then the session stops
//! measuring.
//!
//! It adds up cost and time from the moment on when the cost exceeds the share, and begins anew when that is
//! made up for: what exceeds the share is at most what some seconds without any cost make up for. So a short
//! dear load does not matter, and neither does the order in which the figures of different plans arrive.

use crate::model::{Batch, NodeStats};

/// For how long measuring must cost too much, in microseconds.
const A_MINUTE_US: i64 = 60_000_000;
/// Two faults within this time stop it, in microseconds.
const AN_HOUR_US: u64 = 60 * 60_000_000;
/// The most microseconds that count between two executions.
const MAX_PAUSE_US: f64 = 1e6;
/// What a call of a node costs that is not timed, in nanoseconds: 13 to 37 instructions. Narrow scans take 2
/// to 4 ns a row longer (`docs/cost.md`).
const CALL_NS: f64 = 3.0;
/// What exceeds the limit is remembered up to the limit of this number of milliseconds.
const MAX_SURPLUS_OF_MS: f64 = 10_000.0;
/// This limit is none.
const NO_LIMIT: f64 = 1.0;

/// What readings of the clock cost, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Costs {
    /// If every call is timed.
    pub reading_ns: f64,
    /// If some calls are timed, with what the sampler does.
    pub sampled_ns: f64,
}

/// What some executions took. Times are in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// The time of statements that clients sent.
    sent_ms: f64,
    /// The time of statements inside of functions and procedures. It is known before that of the statement
    /// around them.
    nested_ms: f64,
    /// The cost of measuring all of them.
    cost_ms: f64,
}

impl Work {
    /// That of no executions.
    pub const NONE: Work = Work {
        sent_ms: 0.0,
        nested_ms: 0.0,
        cost_ms: 0.0,
    };

    /// Returns what the executions of a batch took.
    pub fn of(batch: &Batch, is_sent: bool, costs: &Costs) -> Work {
        match batch {
            Batch::Execution(execution) => {
                let run = execution.run;
                Self::of_nodes(
                    execution.nodes.iter(),
                    run.elapsed_ms,
                    run.sampfreq,
                    is_sent,
                    costs,
                )
            }
            Batch::Sum(plan, nodes, _) => {
                let nodes = nodes.iter().map(|node| &node.total);
                Self::of_nodes(nodes, plan.times.total_ms, plan.sampfreq, is_sent, costs)
            }
            Batch::Explained(..) | Batch::Late(..) => Work::default(),
        }
    }

    fn of_nodes<'a>(
        nodes: impl Iterator<Item = &'a NodeStats>,
        elapsed_ms: f64,
        sampfreq: i32,
        is_sent: bool,
        costs: &Costs,
    ) -> Work {
        let (mut calls, mut readings, mut processes) = (0.0, 0.0, 1.0_f64);
        for node in nodes {
            let starts = node.starts.get_or_zero() as f64;
            // The last call of a start returns no row.
            calls += node.rows as f64 + starts;
            readings += node.timer_calls as f64;
            if let Some([_, launched]) = node.facts.workers() {
                processes = processes.max(1.0 + launched as f64 / starts.max(1.0));
            }
        }
        let reading_ns = if sampfreq == 1 {
            costs.reading_ns
        } else {
            costs.sampled_ns
        };
        let elapsed_ms = elapsed_ms * processes;
        Work {
            sent_ms: if is_sent { elapsed_ms } else { 0.0 },
            nested_ms: if is_sent { 0.0 } else { elapsed_ms },
            cost_ms: (readings * reading_ns + calls * CALL_NS) / 1e6,
        }
    }

    /// Adds what other executions took.
    pub fn add(&mut self, other: &Work) {
        self.sent_ms += other.sent_ms;
        self.nested_ms += other.nested_ms;
        self.cost_ms += other.cost_ms;
    }

    /// Returns the time of the executor. That of nested statements is a part of that of the others, if these
    /// have ended.
    fn executor_ms(&self) -> f64 {
        self.sent_ms.max(self.nested_ms)
    }
}

/// Why a session stops measuring.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cause {
    /// Measuring cost this share of the executor's time for a minute.
    Cost(f64),
    /// A fault of the library was caught for the second time within an hour.
    Errors,
}

/// The breaker of a session. All times are microseconds of a clock that may be set.
#[derive(Clone, Copy, Debug)]
pub struct Breaker {
    /// What was done since measuring has cost too much.
    since: Work,
    /// What measuring cost beyond its limit, in milliseconds.
    surplus_ms: f64,
    /// For how long it has.
    lasted: f64,
    /// When the last execution ended.
    at: i64,
    /// When the last fault of the library was caught.
    failed_at: Option<i64>,
}

impl Breaker {
    /// Returns the breaker of a session that has run nothing.
    pub const fn new() -> Self {
        Breaker {
            since: Work::NONE,
            surplus_ms: 0.0,
            lasted: 0.0,
            at: 0,
            failed_at: None,
        }
    }

    /// Adds executions of which the last one ended at this time. Measuring may cost the share `limit`.
    pub fn add(&mut self, work: &Work, at: i64, limit: f64) -> Option<Cause> {
        let before = self.since.executor_ms();
        // If nothing was dear before, this has been so since these executions began.
        let took = work.executor_ms() * 1e3;
        let since_last = if before > 0.0 {
            at.saturating_sub(self.at).max(0) as f64
        } else {
            took
        };
        self.at = at;
        self.lasted += since_last.min(took + MAX_PAUSE_US);
        self.since.add(work);
        let executor_ms = self.since.executor_ms();
        self.surplus_ms += work.cost_ms - limit * (executor_ms - before);
        self.surplus_ms = self.surplus_ms.min(limit * MAX_SURPLUS_OF_MS);
        if self.surplus_ms <= 0.0 || limit >= NO_LIMIT {
            *self = Breaker {
                failed_at: self.failed_at,
                ..Breaker::new()
            };
            return None;
        }
        // An execution can be recorded without its time.
        let share = (self.since.cost_ms / executor_ms).min(1.0);
        (self.lasted >= A_MINUTE_US as f64).then_some(Cause::Cost(share))
    }

    /// Notes that a fault of the library was caught at this time.
    pub fn note_fault(&mut self, at: i64) -> Option<Cause> {
        let before = self.failed_at.replace(at)?;
        (at.abs_diff(before) < AN_HOUR_US).then_some(Cause::Errors)
    }
}

impl Default for Breaker {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: f64 = 0.1;
    const S: f64 = 1e6;

    /// A session in simulated time, in microseconds.
    struct Session {
        breaker: Breaker,
        now: f64,
        random: u64,
    }

    impl Session {
        fn new() -> Self {
            Session {
                breaker: Breaker::new(),
                now: 800_000_000.0 * S,
                random: 1,
            }
        }

        /// Returns a number from 0 to 1.
        fn random(&mut self) -> f64 {
            self.random = self.random.wrapping_mul(6364136223846793005).wrapping_add(1);
            (self.random >> 33) as f64 / f64::from(1_u32 << 31)
        }

        /// Runs executions that take `busy` in total, after a pause.
        fn run(&mut self, pause: f64, busy: f64, share: f64) -> Option<Cause> {
            self.now += pause + busy;
            let work = Work {
                sent_ms: busy / 1e3,
                nested_ms: 0.0,
                cost_ms: busy / 1e3 * share,
            };
            self.breaker.add(&work, self.now as i64, LIMIT)
        }

        /// Runs such executions for so long. Returns after which time it stops.
        fn load(&mut self, seconds: f64, each: f64, share: f64) -> Option<f64> {
            let began = self.now;
            while self.now < began + seconds * S {
                let noise = 1.0 + 0.4 * (self.random() - 0.5);
                if self.run(0.001 * S, each, share * noise).is_some() {
                    return Some((self.now - began) / S);
                }
            }
            None
        }
    }

    #[test]
    fn it_trips_60_to_75_s_after_the_load_starts() {
        for before in [0.0, 7.3, 61.0, 3600.0] {
            for share in [0.14, 0.2, 0.5, 0.9] {
                // Sums are flushed once a second; longer executions when they end.
                for each in [0.02, 0.3, 1.0, 2.7, 9.0] {
                    let mut session = Session::new();
                    assert_eq!(session.load(before, 1.0 * S, 0.03), None);
                    let after = session.load(100.0, each * S, share).expect("it trips");
                    let what = format!("{before} s of another load, {each} s each, {share}: {after}");
                    assert!((60.0..75.0).contains(&after), "{what}");
                }
            }
        }
    }

    #[test]
    fn it_never_trips_at_8_percent() {
        for each in [0.001, 0.02, 1.0, 5.0, 70.0] {
            let mut session = Session::new();
            assert_eq!(session.load(7200.0, each * S, 0.08), None, "{each}");
        }
    }

    #[test]
    fn it_trips_if_the_mean_of_the_minute_is_above_the_limit() {
        let mut session = Session::new();
        let tripped = (0..200).find(|i| session.run(0.0, S, if i % 2 == 0 { 0.2 } else { 0.05 }).is_some());
        assert!(
            tripped.is_some_and(|second| (59..75).contains(&second)),
            "{tripped:?}"
        );
        let mut session = Session::new();
        assert!((0..2000).all(|i| {
            session
                .run(0.0, S, if i % 2 == 0 { 0.12 } else { 0.05 })
                .is_none()
        }));
    }

    #[test]
    fn a_dear_statement_does_not_matter() {
        let mut session = Session::new();
        for _ in 0..100 {
            assert_eq!(session.load(20.0, S, 0.6), None);
            assert_eq!(session.load(300.0, S, 0.01), None);
        }
    }

    #[test]
    fn one_statement_of_more_than_a_minute_suffices() {
        let mut session = Session::new();
        assert_eq!(session.run(0.0, 59.0 * S, 0.5), None);
        let mut session = Session::new();
        assert!(
            matches!(session.run(0.0, 61.0 * S, 0.5), Some(Cause::Cost(share)) if (0.49..0.51).contains(&share))
        );
    }

    #[test]
    fn pauses_count_little() {
        let mut session = Session::new();
        assert!((0..50).all(|_| session.run(600.0 * S, 0.01 * S, 0.5).is_none()));
        assert!((0..20).any(|_| session.run(600.0 * S, 0.01 * S, 0.5).is_some()));
    }

    #[test]
    fn a_clock_that_is_set_does_not_matter() {
        for step in [-86_400.0, 86_400.0] {
            let mut session = Session::new();
            assert_eq!(session.load(20.0, S, 0.5), None);
            session.now += step * S;
            let after = session.load(100.0, S, 0.5).expect("it trips");
            assert!((38.0..43.0).contains(&after), "{after}");
        }
    }

    #[test]
    fn a_limit_of_100_percent_is_none() {
        let mut breaker = Breaker::new();
        let work = Work {
            sent_ms: 1.0,
            nested_ms: 0.0,
            cost_ms: 1e9,
        };
        assert!((0..200).all(|s| breaker.add(&work, s * 1_000_000, 1.0).is_none()));
    }

    /// The time of the statement around nested ones is known when it ends.
    #[test]
    fn nested_statements_count_until_the_one_around_them_ends() {
        let nested = Work {
            sent_ms: 0.0,
            nested_ms: 900.0,
            cost_ms: 200.0,
        };
        let mut breaker = Breaker::new();
        let tripped = (1..200).find(|s| breaker.add(&nested, s * 1_000_000, LIMIT).is_some());
        assert!(tripped.is_some_and(|s| (60..65).contains(&s)), "{tripped:?}");
        let around = Work {
            sent_ms: 10_000.0,
            nested_ms: 0.0,
            cost_ms: 0.0,
        };
        let mut breaker = Breaker::new();
        for s in 1..2000 {
            assert_eq!(breaker.add(&nested, s * 1_000_000, LIMIT), None);
            if s % 4 == 0 {
                assert_eq!(breaker.add(&around, s * 1_000_000, LIMIT), None);
            }
        }
    }

    #[test]
    fn the_second_fault_within_an_hour_trips_it() {
        const MINUTE: i64 = 60_000_000;
        let mut breaker = Breaker::new();
        assert_eq!(breaker.note_fault(800_000 * MINUTE), None);
        assert_eq!(breaker.note_fault(800_060 * MINUTE), None);
        assert_eq!(breaker.note_fault(800_119 * MINUTE), Some(Cause::Errors));
    }
}
