//! Plans that become slower without a change: what the process that judges keeps of all plans. It marks the
//! sums of each plan each quarter of an hour, and compares the latest four intervals with the one before.

use super::judge::{Candidate, Interval, References, judge, median_ratio};
use super::sums::Sums;
use super::table::Look;
use crate::model::PlanKey;
use rustc_hash::FxHashMap;
use std::collections::TryReserveError;

/// How long an interval is, in microseconds.
const INTERVAL_US: i64 = 900_000_000;
/// The intervals that are looked at, after the one that they are compared with.
const LATEST: usize = 4;
/// Between these sums of all executions until a moment lie the intervals.
const MARKS: usize = LATEST + 2;

/// What is known of each plan. Empty if nothing is.
#[derive(Default)]
pub struct Steady {
    /// The sums of each plan at the latest moments, the oldest first. Of a moment at which it was not known
    /// yet, they are zero.
    plans: FxHashMap<PlanKey, [Sums; MARKS]>,
    /// When these moments were: only the last `marked` ones.
    moments: [i64; MARKS],
    marked: usize,
    looks: Vec<Look>,
}

/// What the caller knows at a moment.
pub struct Known<'a> {
    /// The moment.
    pub now: i64,
    /// All plans, with the sums of all of their executions.
    pub plans: &'a [(PlanKey, Sums)],
    /// The executions that a plan is compared with, if it is a regression already, and since when it is.
    pub reference: &'a dyn Fn(&PlanKey) -> Option<(Sums, i64)>,
    /// Whether the plan of a query has changed since a moment.
    pub has_changed: &'a dyn Fn(&PlanKey, i64) -> bool,
    /// The milliseconds of all statements since a moment.
    pub database_ms: &'a dyn Fn(i64) -> f64,
}

impl Steady {
    /// Returns whether an interval has ended.
    pub fn is_due(&self, now: i64) -> bool {
        let last = self.moments[MARKS - 1];
        self.marked == 0 || now.div_euclid(INTERVAL_US) != last.div_euclid(INTERVAL_US)
    }

    /// Returns what was found at the end of the last interval. Nothing if too little is known yet.
    pub fn looks(&self) -> Option<&[Look]> {
        (self.marked == MARKS).then_some(&self.looks)
    }

    /// Marks the end of an interval, and judges all plans.
    pub fn mark(&mut self, known: &Known<'_>, check: impl FnMut()) -> Result<(), TryReserveError> {
        let mut plans = FxHashMap::default();
        plans.try_reserve(known.plans.len())?;
        for (key, sums) in known.plans {
            let mut marks = self.plans.get(key).copied().unwrap_or_default();
            marks.rotate_left(1);
            marks[MARKS - 1] = *sums;
            plans.insert(*key, marks);
        }
        self.plans = plans;
        self.moments.rotate_left(1);
        self.moments[MARKS - 1] = known.now;
        self.marked = (self.marked + 1).min(MARKS);
        self.looks.clear();
        match self.marked {
            MARKS => self.judge(known, check),
            _ => Ok(()),
        }
    }

    fn judge(&mut self, known: &Known<'_>, mut check: impl FnMut()) -> Result<(), TryReserveError> {
        let begin = self.moments[1];
        let database_ms = (known.database_ms)(begin);
        let before = |marks: &[Sums; MARKS]| marks[1].since(&marks[0]);
        let (mut keys, mut candidates) = (Vec::new(), Vec::new());
        keys.try_reserve_exact(self.plans.len())?;
        candidates.try_reserve_exact(self.plans.len())?;
        self.looks.try_reserve_exact(self.plans.len())?;
        let mut controls = [1.0; LATEST + 1];
        for (i, control) in controls.iter_mut().enumerate() {
            // The last one is of all intervals.
            let [from, to] = if i < LATEST {
                [i + 1, i + 2]
            } else {
                [1, MARKS - 1]
            };
            let mut pairs = Vec::new();
            pairs.try_reserve_exact(self.plans.len())?;
            pairs.extend(
                self.plans
                    .values()
                    .map(|marks| (before(marks), marks[to].since(&marks[from]))),
            );
            *control = median_ratio(pairs.iter().map(|(before, after)| (before, after)), &mut check)?;
        }
        for (key, marks) in &self.plans {
            check();
            let active = (known.reference)(key);
            let references = References {
                baseline: active.map(|(before, _)| before),
                before: Some(before(marks)),
                ..References::default()
            };
            let Some((_, before)) = references.best() else {
                continue;
            };
            if (known.has_changed)(key, self.moments[0]) {
                continue;
            }
            let intervals = std::array::from_fn(|i| Interval {
                sums: marks[i + 2].since(&marks[i + 1]),
                control: controls[i],
            });
            keys.push((*key, active.map_or(begin, |(_, since)| since)));
            candidates.push(Candidate {
                before,
                after: marks[MARKS - 1].since(&marks[1]),
                control: controls[LATEST],
                database_ms,
                intervals: Some(intervals),
            });
        }
        let findings = judge(&candidates, check)?;
        for ((key, since), (candidate, finding)) in keys.into_iter().zip(candidates.iter().zip(findings)) {
            if finding.is_some() {
                self.looks.push(Look {
                    from: key,
                    to: key.planid,
                    since,
                    before: candidate.before,
                    after: candidate.after,
                    executions: self
                        .plans
                        .get(&key)
                        .map_or(0, |marks| marks[MARKS - 1].executions),
                    period_us: 0,
                    finding,
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLANS: i64 = 20;

    /// Plans that run 20 times in each quarter of an hour, each time as long as the function says.
    struct Server {
        steady: Steady,
        plans: Vec<(PlanKey, Sums)>,
        quarter: i64,
        active: Option<(PlanKey, Sums, i64)>,
    }

    impl Server {
        fn new() -> Server {
            let key = |i| PlanKey::new(10, 5, i, 1, true);
            Server {
                steady: Steady::default(),
                plans: (0..PLANS).map(|i| (key(i), Sums::default())).collect(),
                quarter: 1_000,
                active: None,
            }
        }

        /// Runs a quarter of an hour, and returns the queries that are slower.
        fn run(&mut self, ms: impl Fn(i64) -> f64) -> Vec<i64> {
            for (key, sums) in &mut self.plans {
                for i in 0..20 {
                    let busy = ms(key.queryid) * (1.0 + 0.02 * f64::from(i % 5));
                    sums.add(busy, busy, false);
                }
            }
            self.quarter += 1;
            let now = self.quarter * INTERVAL_US;
            assert!(self.steady.is_due(now));
            let active = self.active;
            let known = Known {
                now,
                plans: &self.plans,
                reference: &|key| {
                    let (of, before, since) = active?;
                    (of == *key).then_some((before, since))
                },
                has_changed: &|key, _| key.queryid == 3,
                database_ms: &|_| 1.0,
            };
            self.steady.mark(&known, || {}).expect("memory");
            assert!(!self.steady.is_due(now + INTERVAL_US - 1));
            let looks = self.steady.looks().unwrap_or_default();
            if let Some(look) = looks.first() {
                self.active = Some((look.from, look.before, look.since));
            }
            let mut found: Vec<i64> = looks.iter().map(|look| look.from.queryid).collect();
            found.sort_unstable();
            found
        }
    }

    #[test]
    fn a_plan_that_is_slow_for_three_quarters_of_an_hour_is_found_and_stays() {
        let mut server = Server::new();
        for _ in 0..8 {
            assert_eq!(server.run(|_| 1.0), [] as [i64; 0]);
        }
        // Query 3 runs with another plan: that is judged elsewhere.
        let slower = |query| if query == 7 || query == 3 { 4.0 } else { 1.0 };
        assert_eq!(server.run(slower), [] as [i64; 0]);
        assert_eq!(server.run(slower), [] as [i64; 0]);
        for quarter in 0..20 {
            assert_eq!(server.run(slower), [7], "{quarter}");
        }
        let looks = server.steady.looks().expect("it is known");
        let before = looks[0].before.mean_busy_ms();
        assert!((before - 1.04).abs() < 0.01, "{before}");
        // It is compared with what it was.
        server.run(|_| 1.0);
        assert_eq!(server.run(|_| 1.0), [] as [i64; 0]);
    }

    #[test]
    fn a_machine_that_is_slow_is_no_slow_plan() {
        let mut server = Server::new();
        (0..8).for_each(|_| assert_eq!(server.run(|_| 1.0), [] as [i64; 0]));
        (0..8).for_each(|_| assert_eq!(server.run(|_| 5.0), [] as [i64; 0]));
    }

    #[test]
    fn a_short_time_is_no_regression() {
        let mut server = Server::new();
        for i in 0..40 {
            let ms = if i % 8 == 0 { 9.0 } else { 1.0 };
            assert_eq!(
                server.run(|query| if query == 7 { ms } else { 1.0 }),
                [] as [i64; 0],
                "{i}"
            );
        }
    }
}
