//! The predicate.

use super::chance::largest_not_chance;
use super::sums::{Sums, log2};
use serde::{Deserialize, Serialize};
use std::collections::TryReserveError;

/// How many times as long the busy time must be. Unmeasured.
pub const SIZE: f64 = 2.0;
/// How many times as long the time must be, waits included, if the busy time is at least [`WALL_BUSY`] times
/// as long. Unmeasured.
pub const WALL_SIZE: f64 = 4.0;
/// See [`WALL_SIZE`]. Unmeasured.
pub const WALL_BUSY: f64 = 1.25;
/// The milliseconds that executions must have taken longer in all. Unmeasured.
pub const SPEND_MS: f64 = 10_000.0;
/// Or the part of the database time. Unmeasured.
pub const SPEND_SHARE: f64 = 0.01;
/// The executions that each side must have. Unmeasured.
pub const MIN_EXECUTIONS: u64 = 5;
/// Chance must not explain that the times are more than this many times as long, and a comparison of two
/// plans explains no smaller difference. Executions of a busy time
/// have something in common, so those of two times differ by more than chance. Measured by the simulation: of
/// 1,000 unchanged plans, 3 were called slower by the test against 1, and none of the same ones by this.
pub const LEAST_RATIO: f64 = 1.25;
/// The part of the differences called real that may be chance. Measured by the simulation.
pub const FALSE_RATE: f64 = 0.01;
/// An execution that failed counts as this many times the mean before, if it did not take longer. With 4, a
/// plan of whose executions a third more fail has [`SIZE`]. Unmeasured.
pub const FAILED_AS: f64 = 4.0;
/// With fewer executions than [`MIN_EXECUTIONS`] after the change, the longest must be this many times the
/// longest before. Unmeasured.
pub const FEW_SIZE: f64 = 4.0;
/// And it must take this many milliseconds more. Unmeasured.
pub const FEW_EXTRA_MS: f64 = 1_000.0;
/// And it must lie outside of the spread before: the probability of one as long must be at most this. It is
/// less than [`FALSE_RATE`], because it is not corrected for other candidates. Measured by the simulation.
pub const FEW_CHANCE: f64 = 0.001;
/// How many times as long the busy time must be without a change of plan. Measured by the simulation.
pub const STEADY_SIZE: f64 = 3.0;
/// In how many of the four intervals. Measured by the simulation.
const STEADY: usize = 3;
/// A median of fewer plans than these says nothing of the machine. Unmeasured.
pub const MIN_PAIRS: usize = 5;

/// The executions of a plan in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Interval {
    /// Its executions.
    pub sums: Sums,
    /// How many times as long the plans that did not change took, compared with the reference; 1 if that is
    /// not known ([`median_ratio`]).
    pub control: f64,
}

/// What may be a regression.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// The executions of the plan before, or those of the reference.
    pub before: Sums,
    /// The executions of the new plan, or those of the four intervals.
    pub after: Sums,
    /// How many times as long the plans that did not change took meanwhile; 1 if that is not known
    /// ([`median_ratio`]).
    pub control: f64,
    /// The time of all statements since the change, in milliseconds.
    pub database_ms: f64,
    /// Without a change of plan: the four latest intervals, unless it comes seldom.
    pub intervals: Option<[Interval; 4]>,
}

/// What was found of a candidate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Found {
    /// It is a regression.
    Slower(Finding),
    /// It is one but for its cost, which is at least half as much as that of one: if it is open, it stays so.
    /// Else it would come and go where it costs about as much.
    Small(Finding),
    /// It is one but for its cost: each execution is slower, and all together cost little.
    Cheap,
    /// It is none.
    Nothing,
    /// Too few of its executions ended lately to say more than before.
    TooFew,
    /// Its latest executions are few, and slow.
    StillSlow,
}

/// What a finding rests on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Basis {
    /// The probability that the difference is chance.
    Tested(f64),
    /// There are few executions: the longest takes much longer than all before. Nothing is tested against the
    /// other candidates.
    FewExecutions,
}

/// A regression.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finding {
    /// How many times as long the mean execution takes, beyond what the machine has become slower.
    pub ratio: f64,
    /// How many milliseconds the executions took longer in all.
    pub extra_ms: f64,
    /// What it rests on.
    pub basis: Basis,
}

/// What executions are compared with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u8)]
pub enum Reference {
    /// The plan before the change.
    #[default]
    Plan,
    /// An interval that somebody named.
    Baseline,
    /// The same hour a week ago.
    Week,
    /// The same hour yesterday.
    Yesterday,
    /// The interval before the four that are looked at.
    Before,
    /// All executions until the newest interval: of a plan that comes seldom.
    Earlier,
}

impl Reference {
    /// The references of a plan without a change that runs in several intervals, the best one first.
    pub const ALL: [Reference; 4] = [
        Reference::Baseline,
        Reference::Week,
        Reference::Yesterday,
        Reference::Before,
    ];

    /// Returns the name that views show.
    pub fn name(self) -> &'static str {
        match self {
            Reference::Plan => "the plan before",
            Reference::Baseline => "the baseline",
            Reference::Week => "the same hour a week ago",
            Reference::Yesterday => "the same hour yesterday",
            Reference::Before => "the quarter of an hour before",
            Reference::Earlier => "all executions before",
        }
    }
}

/// Returns the median of how many times as long plans took that did not change: `pairs` has the executions of
/// each before and after. It is 1 if fewer than [`MIN_PAIRS`] have enough executions. `check` is called for
/// each pair: it may be where a request to cancel is looked for.
pub fn median_ratio<'a>(
    pairs: impl Iterator<Item = (&'a Sums, &'a Sums)>,
    mut check: impl FnMut(),
) -> Result<f64, TryReserveError> {
    let mut ratios = Vec::new();
    for (before, after) in pairs {
        check();
        if before.executions.min(after.executions) >= MIN_EXECUTIONS {
            ratios.try_reserve(1)?;
            ratios.push(after.log_moments().mean - before.log_moments().mean);
        }
    }
    Ok(median_of(&mut ratios))
}

/// Returns the median of ratios, of which these are the binary logarithms; 1 if there are too few.
pub(super) fn median_of(ratios: &mut [f64]) -> f64 {
    if ratios.len() < MIN_PAIRS {
        return 1.0;
    }
    let middle = ratios.len() / 2;
    let (_, median, _) = ratios.select_nth_unstable_by(middle, f64::total_cmp);
    median.exp2()
}

/// Returns what the candidates are, in their order: [`Found::Slower`], [`Found::Small`], [`Found::Cheap`] or
/// [`Found::Nothing`]. All candidates of the server must be among them: the more there are, the less may be
/// chance. `check` is called for each: see [`median_ratio`].
pub fn judge(candidates: &[Candidate], mut check: impl FnMut()) -> Result<Vec<Found>, TryReserveError> {
    let (mut sorted, mut findings) = (Vec::new(), Vec::new());
    sorted.try_reserve_exact(candidates.len())?;
    findings.try_reserve_exact(candidates.len())?;
    for candidate in candidates {
        check();
        let size = candidate.size();
        let basis = candidate.basis(size.is_some_and(|size| size.is_wall));
        if let Some(Basis::Tested(chance)) = basis {
            sorted.push(chance);
        }
        findings.push(size.filter(|_| candidate.is_steady()).zip(basis));
    }
    let largest = largest_not_chance(&mut sorted, FALSE_RATE);
    let is_chance = |basis: &Basis| matches!(basis, Basis::Tested(chance) if *chance > largest);
    let mut all = Vec::new();
    all.try_reserve_exact(candidates.len())?;
    all.extend(findings.into_iter().zip(candidates).map(|(found, candidate)| {
        let Some((size, basis)) = found.filter(|(_, basis)| !is_chance(basis)) else {
            return Found::Nothing;
        };
        let finding = Finding {
            ratio: size.ratio,
            extra_ms: size.extra_ms,
            basis,
        };
        match candidate.cost(&size) {
            1.0.. => Found::Slower(finding),
            0.5.. => Found::Small(finding),
            _ => Found::Cheap,
        }
    }));
    Ok(all)
}

/// How much slower it is.
#[derive(Clone, Copy)]
struct Size {
    ratio: f64,
    extra_ms: f64,
    /// Whether these are those of times with their waits.
    is_wall: bool,
}

impl Candidate {
    /// Returns the executions after the change, with failures counted against them.
    fn judged(&self) -> Sums {
        let least_ms = FAILED_AS * self.before.mean_busy_ms();
        self.after.with_failed_as(&self.before, least_ms)
    }

    /// Returns how many times as long all takes because of the machine. A machine that has become faster is
    /// no reason to call a plan slow that takes as long as before.
    fn machine(&self) -> f64 {
        self.control.max(1.0)
    }

    /// Returns what can be said of chance; `None` if there are too few executions. If the size is one of
    /// times with their waits, so is the test: else a wait for a lock would be proved by the busy time.
    fn basis(&self, is_wall: bool) -> Option<Basis> {
        let Candidate { before, after, .. } = self;
        if before.executions.min(after.executions) >= MIN_EXECUTIONS {
            let (after, least) = (self.judged(), self.machine() * LEAST_RATIO);
            let logs = before.log_moments().plus(log2(least));
            let walls = before.wall_moments().times(least);
            let typical = logs.chance_of_larger(&after.log_moments());
            let mean = walls.chance_of_larger(&after.wall_moments());
            // Of two tests the better one counts.
            let chance = if is_wall { mean } else { 2.0 * typical.min(mean) };
            return Some(Basis::Tested(chance.min(1.0)));
        }
        let logs = before.log_moments().plus(log2(self.machine()));
        // Any of those after the change may be the longest.
        let chance = logs.chance_of_one(log2(after.max_ms)) * after.executions as f64;
        let is_exceeded = after.max_ms >= FEW_SIZE * before.max_ms * self.machine()
            && after.max_ms - before.max_ms >= FEW_EXTRA_MS
            && chance <= FEW_CHANCE;
        (before.executions >= MIN_EXECUTIONS && is_exceeded).then_some(Basis::FewExecutions)
    }

    /// Returns by how much it is slower, if that is enough.
    fn size(&self) -> Option<Size> {
        let (before, after) = (&self.before, self.judged());
        let machine = self.machine();
        let busy = ratio(before.mean_busy_ms(), after.mean_busy_ms()) / machine;
        let wall = ratio(before.mean_wall_ms(), after.mean_wall_ms()) / machine;
        let is_wall = busy < SIZE;
        if is_wall && (wall < WALL_SIZE || busy < WALL_BUSY) {
            return None;
        }
        let (ratio, more_ms) = if is_wall {
            (wall, after.mean_wall_ms() - before.mean_wall_ms() * machine)
        } else {
            (busy, after.mean_busy_ms() - before.mean_busy_ms() * machine)
        };
        Some(Size {
            ratio,
            extra_ms: more_ms * after.executions as f64,
            is_wall,
        })
    }

    /// Returns how many times the least cost of a regression it costs.
    fn cost(&self, size: &Size) -> f64 {
        size.extra_ms / SPEND_MS.min(SPEND_SHARE * self.database_ms)
    }

    /// Returns whether it ran in too few of the intervals to be slow for long enough.
    pub(super) fn has_few_intervals(&self) -> bool {
        let ran = |interval: &&Interval| interval.sums.executions > 0;
        self.intervals
            .is_some_and(|intervals| intervals.iter().filter(ran).count() < STEADY)
    }

    /// Returns whether a plan that did not change was slow for long enough.
    fn is_steady(&self) -> bool {
        let slow = |intervals: [Interval; 4]| intervals.iter().filter(|one| self.is_slow(one)).count();
        self.intervals.is_none_or(|intervals| slow(intervals) >= STEADY)
    }

    fn is_slow(&self, interval: &Interval) -> bool {
        let busy = ratio(self.before.mean_busy_ms(), interval.sums.mean_busy_ms());
        interval.sums.executions > 0 && busy / interval.control.max(1.0) >= STEADY_SIZE
    }

    /// Returns the first of the intervals in which it was slow.
    pub(super) fn first_slow(&self) -> Option<usize> {
        self.intervals?.iter().position(|interval| self.is_slow(interval))
    }

    /// Returns how many times as long all plans took in the newest of the intervals.
    pub(super) fn newest_control(&self) -> f64 {
        self.intervals.map_or(self.control, |[.., newest]| newest.control)
    }
}

/// Returns how many times as long the second time is.
fn ratio(before_ms: f64, after_ms: f64) -> f64 {
    (log2(after_ms) - log2(before_ms)).exp2()
}

#[cfg(test)]
mod tests;
