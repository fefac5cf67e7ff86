//! Plans that become slower without a change: what the process that judges keeps of all plans. It marks the
//! sums of each plan each quarter of an hour, and compares the latest four intervals with a reference: what
//! the history has ([`super::Kept`]), else the interval before. The history outlives a restart, so with it
//! three intervals suffice.

use super::judge::{Candidate, Interval, Reference, judge, median_ratio};
use super::sums::Sums;
use super::table::{Found, Look};
use crate::model::PlanKey;
use rustc_hash::FxHashMap;
use std::collections::TryReserveError;

/// How long an interval is, in microseconds.
const INTERVAL_US: i64 = 900_000_000;
/// The intervals that are looked at, after the one that they are compared with.
const LATEST: usize = 4;
/// Between these sums of all executions until a moment lie the intervals.
const MARKS: usize = LATEST + 2;
/// With fewer moments, no plan can have been slow for long enough.
const MIN_MARKS: usize = LATEST;

/// What is known of each plan. Empty if nothing is.
#[derive(Default)]
pub struct Steady {
    plans: FxHashMap<PlanKey, Marked>,
    /// When these moments were: only the last `marked` ones.
    moments: [i64; MARKS],
    marked: usize,
    looks: Vec<Look>,
}

/// What is known of a plan.
#[derive(Clone, Copy, Default)]
struct Marked {
    /// Its sums at the latest moments, the oldest first. Of a moment at which it was not known yet, they are
    /// zero.
    sums: [Sums; MARKS],
    /// What the history has to compare it with.
    kept: Option<(Reference, Sums)>,
}

/// A plan at a moment.
#[derive(Clone, Copy)]
pub struct PlanNow {
    /// Which plan it is.
    pub key: PlanKey,
    /// The sums of all of its executions.
    pub sums: Sums,
    /// What the history has to compare it with.
    pub kept: Option<(Reference, Sums)>,
}

/// A plan that is a regression already.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Active {
    /// The executions that it is compared with.
    pub before: Sums,
    /// What these are.
    pub reference: Reference,
    /// Since when it is slower.
    pub since: i64,
}

/// What the caller knows at a moment.
pub struct Known<'a> {
    /// The moment.
    pub now: i64,
    /// All plans.
    pub plans: &'a [PlanNow],
    /// What is known of a plan that is a regression already.
    pub active: &'a dyn Fn(&PlanKey) -> Option<Active>,
    /// Whether the plan of a query has changed since a moment.
    pub has_changed: &'a dyn Fn(&PlanKey, i64) -> bool,
    /// The milliseconds of all statements since a moment.
    pub database_ms: &'a dyn Fn(i64) -> f64,
}

/// A plan that is judged.
struct Judged {
    key: PlanKey,
    since: i64,
    reference: Reference,
    is_active: bool,
}

impl Marked {
    /// Returns the executions between two moments.
    fn between(&self, [from, to]: [usize; 2]) -> Sums {
        self.sums[to].since(&self.sums[from])
    }

    /// Returns what to compare it with. The interval before is known if all moments are.
    fn reference(&self, marked: usize) -> Option<(Reference, Sums)> {
        let before = || (marked == MARKS).then(|| (Reference::Before, self.between([0, 1])));
        self.kept.or_else(before)
    }
}

impl Steady {
    /// Returns whether an interval has ended.
    pub fn is_due(&self, now: i64) -> bool {
        let last = self.moments[MARKS - 1];
        self.marked == 0 || now.div_euclid(INTERVAL_US) != last.div_euclid(INTERVAL_US)
    }

    /// Returns what was found at the end of the last interval: all regressions, and each plan that was one
    /// and did not change. `None` if too little is known yet.
    pub fn looks(&self) -> Option<&[Look]> {
        (self.marked >= MIN_MARKS).then_some(&self.looks)
    }

    /// Marks the end of an interval, and judges all plans.
    pub fn mark(&mut self, known: &Known<'_>, check: impl FnMut()) -> Result<(), TryReserveError> {
        let mut plans = FxHashMap::default();
        plans.try_reserve(known.plans.len())?;
        for plan in known.plans {
            let mut marked = self.plans.get(&plan.key).copied().unwrap_or_default();
            marked.sums.rotate_left(1);
            marked.sums[MARKS - 1] = plan.sums;
            marked.kept = plan.kept;
            plans.insert(plan.key, marked);
        }
        self.plans = plans;
        self.moments.rotate_left(1);
        self.moments[MARKS - 1] = known.now;
        self.marked = (self.marked + 1).min(MARKS);
        self.looks.clear();
        match self.looks() {
            Some(_) => self.judge(known, check),
            None => Ok(()),
        }
    }

    /// Returns the moments between which each of the intervals lies that are looked at, as far as they are
    /// known, and at last those between which all lie.
    fn intervals(&self) -> [Option<[usize; 2]>; LATEST + 1] {
        let first = (MARKS - self.marked).max(1);
        std::array::from_fn(|i| match i {
            LATEST => Some([first, MARKS - 1]),
            _ => (i + 1 >= first).then_some([i + 1, i + 2]),
        })
    }

    /// Returns how many times as long the plans took that have this reference, in each of the intervals.
    fn controls(
        &self,
        reference: Reference,
        mut check: impl FnMut(),
    ) -> Result<[f64; LATEST + 1], TryReserveError> {
        let mut controls = [1.0; LATEST + 1];
        let mut pairs = Vec::new();
        pairs.try_reserve_exact(self.plans.len())?;
        for (control, interval) in controls.iter_mut().zip(self.intervals()) {
            let Some(interval) = interval else { continue };
            let of = |marked: &Marked| {
                let (kind, before) = marked.reference(self.marked)?;
                (kind == reference).then(|| (before, marked.between(interval)))
            };
            pairs.clear();
            pairs.extend(self.plans.values().filter_map(of));
            *control = median_ratio(pairs.iter().map(|(before, after)| (before, after)), &mut check)?;
        }
        Ok(controls)
    }

    fn judge(&mut self, known: &Known<'_>, mut check: impl FnMut()) -> Result<(), TryReserveError> {
        let intervals = self.intervals();
        let all = intervals[LATEST].unwrap_or_default();
        let begin = self.moments[all[0]];
        let database_ms = (known.database_ms)(begin);
        let mut controls = [[1.0; LATEST + 1]; Reference::ALL.len()];
        for (controls, reference) in controls.iter_mut().zip(Reference::ALL) {
            *controls = self.controls(reference, &mut check)?;
        }
        let (mut judged, mut candidates) = (Vec::new(), Vec::new());
        judged.try_reserve_exact(self.plans.len())?;
        candidates.try_reserve_exact(self.plans.len())?;
        self.looks.try_reserve_exact(self.plans.len())?;
        for (key, marked) in &self.plans {
            check();
            let active = (known.active)(key);
            let reference = active.map(|active| (active.reference, active.before));
            let Some((reference, before)) = reference.or_else(|| marked.reference(self.marked)) else {
                continue;
            };
            if (known.has_changed)(key, self.moments[MARKS - self.marked]) {
                continue;
            }
            let at = Reference::ALL.iter().position(|kind| *kind == reference);
            let controls = at.map_or([1.0; LATEST + 1], |at| controls[at]);
            judged.push(Judged {
                key: *key,
                since: active.map_or(begin, |active| active.since),
                reference,
                is_active: active.is_some(),
            });
            candidates.push(Candidate {
                before,
                after: marked.between(all),
                control: controls[LATEST],
                database_ms,
                intervals: Some(std::array::from_fn(|i| Interval {
                    sums: intervals[i].map_or_else(Sums::default, |interval| marked.between(interval)),
                    control: controls[i],
                })),
            });
        }
        let findings = judge(&candidates, check)?;
        for (plan, (candidate, finding)) in judged.into_iter().zip(candidates.iter().zip(findings)) {
            let found = match finding {
                Some(finding) => Found::Slower(finding),
                None if !plan.is_active => continue,
                None if candidate.has_few_intervals() => Found::TooFew,
                None => Found::Nothing,
            };
            self.looks.push(Look {
                from: plan.key,
                to: plan.key.planid,
                since: plan.since,
                before: candidate.before,
                after: candidate.after,
                executions: self
                    .plans
                    .get(&plan.key)
                    .map_or(0, |marked| marked.sums[MARKS - 1].executions),
                period_us: 0,
                reference: plan.reference,
                found,
            });
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
        plans: Vec<PlanNow>,
        quarter: i64,
        active: Option<(PlanKey, Active)>,
    }

    impl Server {
        fn new() -> Server {
            let plan = |i| PlanNow {
                key: PlanKey::new(10, 5, i, 1, true),
                sums: Sums::default(),
                kept: None,
            };
            Server {
                steady: Steady::default(),
                plans: (0..PLANS).map(plan).collect(),
                quarter: 1_000,
                active: None,
            }
        }

        /// Runs a quarter of an hour, and returns the queries that are slower.
        fn run(&mut self, ms: impl Fn(i64) -> f64) -> Vec<i64> {
            for plan in &mut self.plans {
                let ms = ms(plan.key.queryid);
                let executions = if ms > 0.0 { 20 } else { 0 };
                for i in 0..executions {
                    let busy = ms * (1.0 + 0.02 * f64::from(i % 5));
                    plan.sums.add(busy, busy, false);
                }
            }
            self.quarter += 1;
            let now = self.quarter * INTERVAL_US;
            assert!(self.steady.is_due(now));
            let active = self.active;
            let known = Known {
                now,
                plans: &self.plans,
                active: &|key| {
                    let (of, active) = active?;
                    (of == *key).then_some(active)
                },
                has_changed: &|key, _| key.queryid == 3,
                database_ms: &|_| 1.0,
            };
            self.steady.mark(&known, || {}).expect("memory");
            assert!(!self.steady.is_due(now + INTERVAL_US - 1));
            let looks = self.steady.looks().unwrap_or_default();
            if let Some(look) = looks.first() {
                let active = Active {
                    before: look.before,
                    reference: look.reference,
                    since: look.since,
                };
                self.active = (look.found != Found::Nothing).then_some((look.from, active));
            }
            let slower = looks.iter().filter(|look| matches!(look.found, Found::Slower(_)));
            let mut found: Vec<i64> = slower.map(|look| look.from.queryid).collect();
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

    /// Gives all plans the same executions to compare them with.
    fn keep(server: &mut Server, reference: Reference, ms: f64) {
        let mut sums = Sums::default();
        (0..20).for_each(|i| sums.add(ms * (1.0 + 0.02 * f64::from(i % 5)), ms, false));
        server
            .plans
            .iter_mut()
            .for_each(|plan| plan.kept = Some((reference, sums)));
    }

    /// The process has just started, and the plan has been slow for longer than it runs.
    #[test]
    fn what_the_history_has_is_a_reference_at_once() {
        let mut server = Server::new();
        keep(&mut server, Reference::Week, 1.0);
        let slower = |query| if query == 7 { 4.0 } else { 1.0 };
        for quarter in 0..3 {
            assert_eq!(server.run(slower), [] as [i64; 0], "{quarter}");
        }
        for quarter in 3..9 {
            assert_eq!(server.run(slower), [7], "{quarter}");
            let looks = server.steady.looks().expect("it is known");
            assert_eq!((looks.len(), looks[0].reference), (1, Reference::Week));
        }
        // It stays the reference of this one, if the history has another one meanwhile.
        keep(&mut server, Reference::Yesterday, 4.0);
        let looks = |server: &Server| server.steady.looks().expect("it is known")[0];
        assert_eq!(server.run(|query| slower(query) * 4.0), [7]);
        assert_eq!(looks(&server).reference, Reference::Week);
        // Without executions nothing new is found. Then it is as fast as it was.
        for quarter in 0..2 {
            assert_eq!(
                server.run(|query| if query == 7 { 0.0 } else { 4.0 }).len(),
                1 - quarter
            );
        }
        assert_eq!(looks(&server).found, Found::TooFew);
        for _ in 0..4 {
            assert_eq!(server.run(|_| 1.0), [] as [i64; 0]);
        }
        assert_eq!(server.steady.looks().map(<[Look]>::len), Some(0));
    }

    /// A week ago all took a quarter of it: that is no slow plan.
    #[test]
    fn plans_are_compared_with_others_of_the_same_reference() {
        let mut server = Server::new();
        keep(&mut server, Reference::Week, 1.0);
        (0..9).for_each(|_| assert_eq!(server.run(|_| 4.0), [] as [i64; 0]));
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
