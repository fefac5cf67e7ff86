//! The executions of two plans, and whether one is slower: the predicate is that of regressions.

use crate::model::{Batch, PlanStats};
use crate::regressions::{Candidate, Finding, Found, Regression, Sums, judge};
use serde::{Deserialize, Serialize};
use std::collections::TryReserveError;

/// Executions of a plan: their sums, and how fast the plans of other queries were meanwhile. Zero bytes are
/// no executions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[repr(C)]
pub struct Sample {
    /// The sums.
    pub sums: Sums,
    /// How much longer plans of other queries took meanwhile than before, as a binary logarithm: the mean
    /// over the executions.
    others: f64,
}

impl Sample {
    /// Returns executions of these sums.
    pub fn of(sums: Sums) -> Self {
        Sample { sums, others: 0.0 }
    }

    /// Returns the executions before a change of plan that is a regression.
    pub fn before(known: &Regression) -> Self {
        let pace = known.active().machine;
        let others = if pace > 0.0 { pace.log2() } else { 0.0 };
        Sample {
            sums: known.before,
            others,
        }
    }

    /// Returns the same executions, while plans of other queries took this much longer than before.
    pub fn among(self, others: f32) -> Self {
        Sample {
            others: f64::from(others),
            ..self
        }
    }

    /// Returns the number of executions.
    pub fn calls(&self) -> u64 {
        self.sums.executions
    }

    /// Adds executions that were counted separately.
    pub fn merge(&mut self, other: &Sample) {
        let calls = self.calls() + other.calls();
        if calls > 0 {
            self.others += (other.others - self.others) * (other.calls() as f64 / calls as f64);
        }
        self.sums.merge(&other.sums);
    }

    /// Returns how many times as long plans of other queries took meanwhile as before.
    pub fn pace(&self) -> f64 {
        self.others.exp2()
    }

    /// Returns how many times as long plans of other queries took as while `before` ran.
    pub fn machine(&self, before: &Sample) -> f64 {
        (self.others - before.others).exp2()
    }
}

/// Executions of one plan that are added together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Executions {
    /// Their times.
    pub sample: Sample,
    /// When the first one ended, in microseconds since 2000-01-01 UTC.
    pub first_at: i64,
    /// When the last one ended.
    pub last_at: i64,
}

impl Executions {
    /// Returns the executions of a batch.
    pub fn of(batch: &Batch) -> Self {
        match batch {
            Batch::Execution(execution) => {
                let mut stats = PlanStats::default();
                batch.add_to_plan(&mut stats);
                Executions {
                    sample: Sample::of(Sums::of(&stats)),
                    first_at: execution.run.at,
                    last_at: execution.run.at,
                }
            }
            Batch::Explained(at, _) | Batch::Late(_, at, _) => Executions {
                sample: Sample::default(),
                first_at: *at,
                last_at: *at,
            },
            Batch::Sum(plan, ..) => Executions {
                sample: Sample::of(Sums::of(plan)),
                first_at: plan.first_seen_at,
                last_at: plan.last_seen_at,
            },
        }
    }
}

/// How the executions after a change compare with those before it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// They are a regression.
    Slower(Finding),
    /// They would be one if they cost up to twice as much.
    Small(Finding),
    /// They would be one, if they did not cost so little.
    Cheap,
    /// To go back to the plan before would be one.
    Faster,
    /// Neither.
    Unknown,
}

impl Verdict {
    /// Returns the name that views show.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Slower(_) => "slower",
            Verdict::Faster => "faster",
            Verdict::Small(_) | Verdict::Cheap | Verdict::Unknown => "no difference that can be told",
        }
    }
}

/// Returns the verdicts on changes of plans, in their order: on the executions before and after each, and the
/// time of all statements since, in milliseconds. All changes of the server must be among them: the more
/// there are, the less may be chance. `check` is called for each: it may be where a request to cancel is
/// looked for.
pub fn verdicts(
    changes: &[(Sample, Sample, f64)],
    mut check: impl FnMut(),
) -> Result<Vec<Verdict>, TryReserveError> {
    let mut candidates = Vec::new();
    candidates.try_reserve_exact(changes.len())?;
    let candidate = |before: &Sample, after: &Sample, database_ms: f64| Candidate {
        before: before.sums,
        after: after.sums,
        control: after.machine(before),
        // The time of all statements is known for each minute.
        database_ms: database_ms.max(after.sums.wall_ms),
        intervals: None,
    };
    let forward = |(before, after, ms): &(Sample, Sample, f64)| candidate(before, after, *ms);
    candidates.extend(changes.iter().map(forward));
    let slower = judge(&candidates, &mut check)?;
    candidates.clear();
    let back = |(before, after, ms): &(Sample, Sample, f64)| candidate(after, before, *ms);
    candidates.extend(changes.iter().map(back));
    let faster = judge(&candidates, &mut check)?;
    let mut verdicts = Vec::new();
    verdicts.try_reserve_exact(changes.len())?;
    verdicts.extend(
        slower
            .into_iter()
            .zip(faster)
            .map(|(slower, faster)| match (slower, faster) {
                (Found::Slower(finding), _) => Verdict::Slower(finding),
                (_, Found::Slower(_)) => Verdict::Faster,
                (Found::Small(finding), _) => Verdict::Small(finding),
                (Found::Cheap, _) => Verdict::Cheap,
                _ => Verdict::Unknown,
            }),
    );
    Ok(verdicts)
}

/// Returns how many milliseconds the executions after a change took longer in all than they would have taken
/// before; less than 0 if they took less. It is the difference of the means, if that is more than chance;
/// else that of the typical busy times.
pub fn extra_ms(before: &Sample, after: &Sample) -> Option<f64> {
    if before.calls() == 0 || after.calls() == 0 {
        return None;
    }
    let (before, after) = (&before.sums, &after.sums);
    let difference = match before.differs(after) {
        true => after.mean_wall_ms() - before.mean_wall_ms(),
        false => after.typical_ms() - before.typical_ms(),
    };
    Some(difference * after.executions as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns executions of these busy times, which waited as long as it says.
    fn sample(times: &[f64], waited: &[f64]) -> Sample {
        let mut sums = Sums::default();
        let waits = waited.iter().chain(std::iter::repeat(&0.0));
        times
            .iter()
            .zip(waits)
            .for_each(|(ms, waited)| sums.add(*ms, ms + waited, false));
        Sample::of(sums)
    }

    fn verdict(before: &Sample, after: &Sample) -> &'static str {
        let found = verdicts(&[(*before, *after, 0.0)], || {}).expect("memory");
        found[0].name()
    }

    const SLOWER: &str = "slower";
    const FASTER: &str = "faster";
    const UNKNOWN: &str = "no difference that can be told";

    fn spread(ms: f64) -> Vec<f64> {
        (0..100).map(|i| ms * (1.0 + 0.01 * f64::from(i % 7))).collect()
    }

    #[test]
    fn a_verdict_needs_a_difference_beyond_chance() {
        let of = |before: &[f64], after: &[f64]| verdict(&sample(before, &[]), &sample(after, &[]));
        let (short, long) = ([1.0, 1.1, 0.9, 1.0, 1.05], [5.0, 5.2, 4.9, 5.1, 5.0]);
        assert_eq!(of(&short, &long), SLOWER);
        assert_eq!(of(&long, &short), FASTER);
        assert_eq!(of(&short, &short), UNKNOWN);
        // Four executions of each say little, and a few very long ones of a new plan enough.
        assert_eq!(of(&short, &long[1..]), UNKNOWN);
        assert_eq!(of(&short[1..], &long), UNKNOWN);
        assert_eq!(of(&short, &[5_000.0]), SLOWER);
        assert_eq!(of(&[], &long), UNKNOWN);
    }

    #[test]
    fn a_verdict_needs_a_factor_beyond_that_of_other_plans() {
        for (after_ms, others, expected) in [
            (1.8, [1.0, 1.0], UNKNOWN),
            (2.1, [1.0, 1.0], SLOWER),
            (0.55, [1.0, 1.0], UNKNOWN),
            (0.45, [1.0, 1.0], FASTER),
            // All plans have become slower, and this one not much more.
            (4.0, [1.0, 3.0], UNKNOWN),
            (4.0, [0.5, 1.5], UNKNOWN),
            (6.5, [1.0, 3.0], SLOWER),
            (0.3, [1.0, 0.4], UNKNOWN),
            // It has not become faster because others have become slower.
            (1.0, [1.0, 4.0], UNKNOWN),
            (2.2, [1.0, 0.2], SLOWER),
        ] {
            let [before, after] = [(1.0, others[0]), (after_ms, others[1])]
                .map(|(ms, others): (f64, f64)| sample(&spread(ms), &[]).among(others.log2() as f32));
            assert_eq!(verdict(&before, &after), expected, "{after_ms}, {others:?}");
        }
    }

    /// Each of these waited for a lock once. The plans differ by a factor of 500.
    #[test]
    fn one_long_wait_does_not_hide_a_difference() {
        for waits in [(5_000.0, 0.0), (0.0, 5_000.0), (5_000.0, 5_000.0)] {
            let (fast, slow) = (
                sample(&spread(0.01), &[waits.0]),
                sample(&spread(5.0), &[waits.1]),
            );
            assert_eq!(verdict(&fast, &slow), SLOWER, "{waits:?}");
            assert_eq!(verdict(&slow, &fast), FASTER, "{waits:?}");
            let extra = extra_ms(&fast, &slow).expect("executions");
            assert!((450.0..640.0).contains(&extra), "{waits:?}: {extra}");
        }
    }

    /// A generic plan that is faster for most parameters, and a thousand times slower for 5 % of them.
    #[test]
    fn a_plan_that_is_slow_for_a_few_parameters_is_slower() {
        let before = sample(&[5.0, 5.5, 4.8, 5.1].repeat(100), &[]);
        let mut times = vec![1.0; 380];
        times.extend([1_000.0; 20]);
        let after = sample(&times, &[]);
        assert_eq!(verdict(&before, &after), SLOWER);
        let extra = extra_ms(&before, &after).expect("executions");
        let sum = 380.0 + 20.0 * 1_000.0 - 400.0 * 5.1;
        assert!((extra / sum - 1.0).abs() < 1e-6, "{extra}");
    }

    #[test]
    fn others_are_a_mean_over_executions() {
        let mut merged = sample(&[1.0; 3], &[]).among(1.0);
        merged.merge(&sample(&[1.0], &[]).among(5.0));
        merged.merge(&Sample::default());
        assert_eq!((merged.calls(), merged.others), (4, 2.0));
    }
}
