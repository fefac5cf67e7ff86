//! Plans that become slower without a change: what the process that judges keeps of all plans. It marks the
//! sums of each plan each quarter of an hour, and compares the latest four intervals with a reference: what
//! the history has ([`super::Kept`]), else the interval before. The history outlives a restart, so with it
//! three intervals suffice.

use super::judge::{
    Candidate, Found, Interval, MIN_EXECUTIONS, Reference, SIZE, judge, median_of, median_ratio,
};
use super::kept::Against;
use super::recent::Done;
use super::sums::Sums;
use super::table::{Active, Look};
use crate::model::PlanKey;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::TryReserveError;

/// How long an interval is, in microseconds.
const INTERVAL_US: i64 = 900_000_000;
/// The intervals that are looked at, after the one that they are compared with.
const LATEST: usize = 4;
/// Between these sums of all executions until a moment lie the intervals.
const MARKS: usize = LATEST + 2;
/// With fewer moments, no plan can have been slow for long enough.
const MIN_MARKS: usize = LATEST;
/// All plans together take longer, or less long, if they take this many times as long, or less. What is below
/// that is noise, which would add up. Unmeasured.
const JUMP: f64 = 1.25;
/// A plan that was slow, and runs in too few of the intervals or too seldom for the test of chance, is slow
/// no more if this many executions in a row are not. As many confirm it. Unmeasured.
const FAST_EXECUTIONS: u64 = 3;

/// What is known of each plan. Empty if nothing is.
#[derive(Default)]
pub struct Steady {
    plans: FxHashMap<PlanKey, Marked>,
    /// When these moments were: only the last `marked` ones.
    moments: [i64; MARKS],
    marked: usize,
    /// How many times as long all plans took in each of the latest intervals as before it, if that is a
    /// [`JUMP`]; else 1.
    steps: [f64; LATEST],
    looks: Vec<Look>,
}

/// What is known of a plan.
#[derive(Clone, Copy, Default)]
struct Marked {
    /// Its sums at the latest moments, the oldest first. Of a moment at which it was not known yet, they are
    /// zero.
    sums: [Sums; MARKS],
    /// When it was first seen: later than before if it was reset, or evicted and stored again.
    first_seen_at: i64,
    /// What the history has to compare it with.
    kept: Option<Against>,
    /// The mean binary logarithm of its times, of the first interval in which it ran enough since the last
    /// jump of all plans, or of an earlier one and what all have jumped since.
    base: Option<f64>,
}

/// A plan at a moment.
#[derive(Clone, Copy)]
pub struct PlanNow {
    /// Which plan it is.
    pub key: PlanKey,
    /// The sums of all of its executions.
    pub sums: Sums,
    /// When it was first seen.
    pub first_seen_at: i64,
    /// What the history has to compare it with.
    pub kept: Option<Against>,
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
    against: Against,
    active: Option<Active>,
    /// The moments between which the executions lie that are judged.
    between: [usize; 2],
}

/// The moments between which the newest interval lies.
const NEWEST: [usize; 2] = [MARKS - 2, MARKS - 1];

impl Marked {
    /// Returns the executions between two moments.
    fn between(&self, [from, to]: [usize; 2]) -> Sums {
        self.sums[to].since(&self.sums[from])
    }

    /// Returns these, with the least that the longest may have taken.
    fn surely_between(&self, [from, to]: [usize; 2]) -> Sums {
        self.sums[to].surely_since(&self.sums[from])
    }

    /// Returns all of its executions until a moment.
    fn done(&self, at: usize) -> Done {
        Done::of(&self.sums[at])
    }

    /// Returns whether a plan was not reset since.
    fn is_of(&self, plan: &PlanNow) -> bool {
        plan.first_seen_at <= self.first_seen_at
    }

    /// Returns all executions before the newest interval, if that has one of a plan that comes seldom: once
    /// in the time of all intervals, or less. It cannot be slow in several of them, and the history has too
    /// few.
    fn earlier(&self, moments: &[i64; MARKS]) -> Option<Against> {
        let [newest, all] = [self.between(NEWEST).executions, self.sums[MARKS - 1].executions];
        let known_us = moments[MARKS - 1].saturating_sub(self.first_seen_at);
        let period_us = known_us / i64::try_from(all).unwrap_or(i64::MAX).max(1);
        let is_seldom = period_us >= INTERVAL_US * LATEST as i64;
        let is_wanted = is_seldom && self.kept.is_none() && (1..MIN_EXECUTIONS).contains(&newest);
        is_wanted.then(|| Against {
            sums: self.sums[MARKS - 2],
            interval: [self.first_seen_at, moments[MARKS - 2]],
            reference: Reference::Earlier,
        })
    }

    /// Returns what to compare it with. The interval before is known if all moments are.
    fn against(&self, marked: usize, moments: &[i64; MARKS]) -> Option<Against> {
        let before = || Against {
            sums: self.between([0, 1]),
            interval: [moments[0], moments[1]],
            reference: Reference::Before,
        };
        self.kept.or_else(|| (marked == MARKS).then(before))
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

    /// Forgets what was found of plans that are not among these any more, or were reset.
    pub fn forget(&mut self, plans: &[PlanNow]) -> Result<(), TryReserveError> {
        let mut gone = FxHashSet::default();
        gone.try_reserve(self.looks.len())?;
        gone.extend(self.looks.iter().map(|look| look.from));
        for plan in plans.iter().take_while(|_| !self.looks.is_empty()) {
            if self.plans.get(&plan.key).is_some_and(|marked| marked.is_of(plan)) {
                gone.remove(&plan.key);
            }
        }
        self.looks.retain(|look| !gone.contains(&look.from));
        Ok(())
    }

    /// Marks the end of an interval, and judges all plans.
    pub fn mark(&mut self, known: &Known<'_>, mut check: impl FnMut()) -> Result<(), TryReserveError> {
        let mut plans = FxHashMap::default();
        plans.try_reserve(known.plans.len())?;
        for plan in known.plans {
            let known = self.plans.get(&plan.key).filter(|known| known.is_of(plan));
            let mut marked = known.copied().unwrap_or_default();
            marked.sums.rotate_left(1);
            marked.sums[MARKS - 1] = plan.sums;
            (marked.first_seen_at, marked.kept) = (plan.first_seen_at, plan.kept);
            plans.insert(plan.key, marked);
        }
        self.plans = plans;
        self.moments.rotate_left(1);
        self.moments[MARKS - 1] = known.now;
        self.marked = (self.marked + 1).min(MARKS);
        self.looks.clear();
        let step = self.step(&mut check)?;
        self.steps.rotate_left(1);
        self.steps[LATEST - 1] = step;
        match self.looks() {
            Some(_) => self.judge(known, check),
            None => Ok(()),
        }
    }

    /// Returns how many times as long all plans took in the latest interval as before, if that is a jump. A
    /// plan is compared with when it ran last: in a quiet time there is nothing to compare.
    fn step(&mut self, mut check: impl FnMut()) -> Result<f64, TryReserveError> {
        if self.marked < 2 {
            return Ok(1.0);
        }
        let newest = |marked: &Marked| {
            let interval = marked.between(NEWEST);
            (interval.executions >= MIN_EXECUTIONS).then(|| interval.log_moments().mean)
        };
        let mut ratios = Vec::new();
        ratios.try_reserve_exact(self.plans.len())?;
        for marked in self.plans.values() {
            check();
            ratios.extend(newest(marked).zip(marked.base).map(|(now, base)| now - base));
        }
        let ratio = median_of(&mut ratios);
        let is_jump = !(1.0 / JUMP..=JUMP).contains(&ratio);
        let step = if is_jump { ratio } else { 1.0 };
        for marked in self.plans.values_mut() {
            marked.base = match (newest(marked), marked.base) {
                (now, None) => now,
                (Some(now), _) if is_jump => Some(now),
                (_, Some(base)) => Some(base + step.log2()),
            };
        }
        Ok(step)
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
                let against = marked.against(self.marked, &self.moments)?;
                (against.reference == reference).then(|| (against.sums, marked.between(interval)))
            };
            pairs.clear();
            pairs.extend(self.plans.values().filter_map(of));
            *control = median_ratio(pairs.iter().map(|(before, after)| (before, after)), &mut check)?;
        }
        Ok(controls)
    }

    /// Returns the same for a plan whose regression is older than these intervals: what was known at the last
    /// moment, and what has changed since. The other plans are not compared with what it is compared with
    /// any more.
    fn controls_since(&self, machine: f64) -> [f64; LATEST + 1] {
        let mut controls = [machine * self.steps[LATEST - 1]; LATEST + 1];
        for i in (0..LATEST - 1).rev() {
            controls[i] = controls[i + 1] / self.steps[i + 1];
        }
        let logs = controls[..LATEST].iter().map(|control| control.log2());
        controls[LATEST] = (logs.sum::<f64>() / LATEST as f64).exp2();
        controls
    }

    fn judge(&mut self, known: &Known<'_>, mut check: impl FnMut()) -> Result<(), TryReserveError> {
        let intervals = self.intervals();
        let all = intervals[LATEST].unwrap_or_default();
        let database_ms = (known.database_ms)(self.moments[all[0]]);
        let mut controls = [[1.0; LATEST + 1]; Reference::ALL.len()];
        for (controls, reference) in controls.iter_mut().zip(Reference::ALL) {
            *controls = self.controls(reference, &mut check)?;
        }
        let controls_of = |kind| {
            Reference::ALL
                .iter()
                .position(|known| *known == kind)
                .map(|at| controls[at])
        };
        let (mut judged, mut candidates) = (Vec::new(), Vec::new());
        judged.try_reserve_exact(self.plans.len())?;
        candidates.try_reserve_exact(self.plans.len())?;
        self.looks.try_reserve_exact(self.plans.len())?;
        for (key, marked) in &self.plans {
            check();
            let active = (known.active)(key);
            let earlier = marked.earlier(&self.moments).filter(|_| active.is_none());
            let against = active.map(|active| active.against).or(earlier);
            let Some(against) = against.or_else(|| marked.against(self.marked, &self.moments)) else {
                continue;
            };
            let between = if earlier.is_some() { NEWEST } else { all };
            if (known.has_changed)(key, self.moments[MARKS - self.marked]) {
                continue;
            }
            let controls = match (active, earlier) {
                (Some(active), _) => Some(self.controls_since(active.machine)),
                // The other plans are not compared with all that they did.
                (_, Some(_)) => {
                    controls_of(Reference::Before).map(|controls| [controls[LATEST - 1]; LATEST + 1])
                }
                _ => controls_of(against.reference),
            };
            let controls = controls.unwrap_or([1.0; LATEST + 1]);
            judged.push(Judged {
                key: *key,
                against,
                active,
                between,
            });
            candidates.push(Candidate {
                before: against.sums,
                after: marked.surely_between(between),
                control: controls[LATEST],
                database_ms,
                intervals: earlier.is_none().then(|| {
                    std::array::from_fn(|i| Interval {
                        sums: intervals[i].map_or_else(Sums::default, |interval| marked.between(interval)),
                        control: controls[i],
                    })
                }),
            });
        }
        let findings = judge(&candidates, check)?;
        for (plan, (candidate, finding)) in judged.iter().zip(candidates.iter().zip(findings)) {
            if let Some(look) = self.look(plan, candidate, finding) {
                self.looks.push(look);
            }
        }
        Ok(())
    }

    /// Returns what is looked at of a plan that was judged: nothing if it is no regression, and was none.
    fn look(&self, plan: &Judged, candidate: &Candidate, finding: Found) -> Option<Look> {
        let marked = self.plans.get(&plan.key)?;
        let all = marked.done(MARKS - 1);
        let found = match (finding, plan.active) {
            (Found::Slower(_), _) | (Found::Small(_) | Found::Cheap, Some(_)) => finding,
            (_, active) => found_again(candidate, &active?, &all),
        };
        let first = candidate.first_slow().and_then(|i| self.intervals()[i]);
        let [first, _] = first.unwrap_or(plan.between);
        Some(Look {
            from: plan.key,
            to: plan.key.planid,
            since: plan.active.map_or(self.moments[first], |active| active.since),
            before: candidate.before,
            all,
            began: plan
                .active
                .map_or_else(|| marked.done(first), |active| active.began),
            period_us: 0,
            reference: plan.against.reference,
            interval: plan.against.interval,
            machine: candidate.newest_control(),
            control: candidate.newest_control(),
            found,
        })
    }
}

/// Says what can be said of a plan that was slow, and of which the predicate does not hold. `all` are all of
/// its executions.
fn found_again(candidate: &Candidate, active: &Active, all: &Done) -> Found {
    if !candidate.has_few_intervals() && candidate.after.executions >= MIN_EXECUTIONS {
        return Found::Nothing;
    }
    let since = all.since(&active.slow);
    if since.executions < FAST_EXECUTIONS {
        return Found::TooFew;
    }
    match since.mean_busy_ms() < SIZE * candidate.before.mean_busy_ms() * candidate.newest_control().max(1.0)
    {
        true => Found::Nothing,
        false => Found::StillSlow,
    }
}

#[cfg(test)]
mod tests;
