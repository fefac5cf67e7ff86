//! Judges comparisons of times: only what stands out from a control passes or fails.
//!
//! A machine with other work changes its speed at any moment. So each round also measures the same thing
//! against itself: the control. A comparison passes where what was measured, and the control's spread on top
//! of it, is within the limit. It fails where it is beyond the limit by more than that spread. Else it is
//! undecided: this machine cannot tell now. A test says so on a line of its own, which begins with UNDECIDED;
//! `scripts/testing.sh` counts these tests.

use crate::statistics::{interval_of_median, median};
use std::ops::RangeInclusive;

/// The numbers of rounds of most comparisons: the least, and the most while the verdict is not clear.
pub const ROUNDS: RangeInclusive<usize> = 8..=32;

/// What a comparison came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Passed,
    Undecided,
    Failed,
}

/// The limit of a comparison. It is the effect of the defect that the comparison guards against.
#[derive(Clone, Copy, Debug)]
pub enum Limit {
    /// What is measured may be this large.
    AtMost(f64),
    /// It must be at least this large.
    AtLeast(f64),
    /// It must be between these two.
    Within(f64, f64),
}

/// How values compare with the control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
    /// They are ratios: the same thing, compared with itself, gives 1.
    Ratio,
    /// They are differences: the same thing, compared with itself, gives 0.
    Difference,
}

/// What one comparison measured so far.
#[derive(Debug)]
pub struct Trial {
    what: String,
    limit: Limit,
    scale: Scale,
    found: Vec<f64>,
    control: Vec<f64>,
}

impl Trial {
    /// Begins a comparison of two things as a ratio, such as that of their times.
    pub fn of_ratios(what: impl Into<String>, limit: Limit) -> Trial {
        Trial::new(what.into(), limit, Scale::Ratio)
    }

    /// Begins a comparison of two things as a difference, such as that of their seconds.
    pub fn of_differences(what: impl Into<String>, limit: Limit) -> Trial {
        Trial::new(what.into(), limit, Scale::Difference)
    }

    fn new(what: String, limit: Limit, scale: Scale) -> Trial {
        Trial {
            what,
            limit,
            scale,
            found: Vec::new(),
            control: Vec::new(),
        }
    }

    /// Adds a round: what was found, and the control.
    pub fn add(&mut self, found: f64, control: f64) {
        self.found.push(found);
        self.control.push(control);
    }

    /// Returns the number of rounds.
    pub fn rounds(&self) -> usize {
        self.found.len()
    }

    /// Returns the median of what was found.
    pub fn median(&self) -> f64 {
        median(&self.found)
    }

    /// Returns the lowest and the highest value that the median of what was found may have, as far as this
    /// machine can tell: the interval that covers it in 99 of 100 cases, widened by how far the control's
    /// interval reaches from no effect at all.
    pub fn interval(&self) -> (f64, f64) {
        let (low, high) = interval_of_median(&self.found);
        let (control_low, control_high) = interval_of_median(&self.control);
        match self.scale {
            Scale::Ratio => {
                let spread = control_high.max(1.0 / control_low);
                (low / spread, high * spread)
            }
            Scale::Difference => {
                let spread = control_high.max(-control_low);
                (low - spread, high + spread)
            }
        }
    }

    /// Returns the verdict on what was measured so far.
    pub fn verdict(&self) -> Verdict {
        let (low, high) = self.interval();
        let (least, most) = match self.limit {
            Limit::AtMost(most) => (f64::NEG_INFINITY, most),
            Limit::AtLeast(least) => (least, f64::INFINITY),
            Limit::Within(least, most) => (least, most),
        };
        if low > most || high < least {
            Verdict::Failed
        } else if low >= least && high <= most {
            Verdict::Passed
        } else {
            Verdict::Undecided
        }
    }

    /// Returns what was measured, for a person.
    pub fn description(&self) -> String {
        let (low, high) = self.interval();
        let (control_low, control_high) = interval_of_median(&self.control);
        format!(
            "{}: {:.3} ({low:.3} to {high:.3}), wanted {:?}; control {:.3} ({control_low:.3} to {control_high:.3}); {} rounds",
            self.what,
            self.median(),
            self.limit,
            median(&self.control),
            self.rounds()
        )
    }

    /// Measures rounds. If the verdict is not clear then, it measures twice as many, up to the most: who
    /// looks after each round finds sooner or later what he looks for.
    pub fn run(mut self, rounds: RangeInclusive<usize>, mut round: impl FnMut(usize) -> (f64, f64)) -> Trial {
        let mut next = *rounds.start();
        for number in 0..*rounds.end() {
            let (found, control) = round(number);
            self.add(found, control);
            if self.rounds() == next {
                if self.verdict() != Verdict::Undecided {
                    break;
                }
                next *= 2;
            }
        }
        self
    }

    /// Compares how large two things are, such as the seconds that they take: `measure` returns that of one
    /// of them. Each round measures the base twice. The order changes, because what runs after a pause is
    /// faster, or slower.
    pub fn compare(self, rounds: RangeInclusive<usize>, mut measure: impl FnMut(Side) -> f64) -> Trial {
        let is_ratio = self.scale == Scale::Ratio;
        self.run(rounds, |number| {
            let mut values = [0.0; 3];
            for turn in 0..3 {
                let which = (number + turn) % 3;
                values[which] = measure(if which == 1 { Side::Other } else { Side::Base });
            }
            let [first, other, second] = values;
            if is_ratio {
                (other / (first * second).sqrt(), second / first)
            } else {
                (other - (first + second) / 2.0, second - first)
            }
        })
    }
}

/// One of two things that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Base,
    Other,
}

/// The verdicts of a test.
#[derive(Default)]
#[must_use = "a test ends with `finish`"]
pub struct Verdicts {
    failed: Vec<String>,
    undecided: Vec<String>,
    passed: usize,
}

impl Verdicts {
    /// Adds a comparison, and prints it.
    pub fn add(&mut self, trial: &Trial) -> Verdict {
        let (verdict, description) = (trial.verdict(), trial.description());
        println!("{verdict:?}: {description}");
        match verdict {
            Verdict::Passed => self.passed += 1,
            Verdict::Undecided => self.undecided.push(description),
            Verdict::Failed => self.failed.push(description),
        }
        verdict
    }

    /// Ends the test: it fails if a comparison failed, and says if one is undecided. A test without any
    /// comparison fails.
    pub fn finish(self) {
        assert!(self.failed.is_empty(), "{}", self.failed.join("\n"));
        assert!(self.passed + self.undecided.len() > 0, "nothing was compared");
        if !self.undecided.is_empty() {
            let test = std::env::var("NEXTEST_TEST_NAME").unwrap_or_default();
            println!("UNDECIDED {test}: {}", self.undecided.join(" | "));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Limit, Trial, Verdict};

    fn trial(limit: Limit, found: &[f64], control: &[f64]) -> Verdict {
        let mut trial = Trial::of_ratios("a test", limit);
        for (found, control) in found.iter().zip(control) {
            trial.add(*found, *control);
        }
        trial.verdict()
    }

    const CALM: [f64; 8] = [0.99, 1.0, 1.01, 1.02, 0.98, 1.0, 1.01, 0.99];
    const NOISY: [f64; 8] = [0.6, 1.5, 1.1, 0.8, 1.9, 0.9, 1.0, 1.3];

    #[test]
    fn what_stands_out_is_judged() {
        assert_eq!(trial(Limit::AtMost(1.5), &CALM, &CALM), Verdict::Passed);
        assert_eq!(
            trial(Limit::AtMost(1.5), &CALM.map(|ratio| 2.0 * ratio), &CALM),
            Verdict::Failed
        );
        assert_eq!(trial(Limit::AtLeast(1.5), &CALM, &CALM), Verdict::Failed);
        assert_eq!(trial(Limit::Within(0.8, 1.2), &CALM, &CALM), Verdict::Passed);
    }

    #[test]
    fn what_the_control_hides_is_undecided() {
        assert_eq!(trial(Limit::AtMost(1.5), &CALM, &NOISY), Verdict::Undecided);
        assert_eq!(
            trial(Limit::AtMost(1.5), &CALM.map(|ratio| 1.8 * ratio), &NOISY),
            Verdict::Undecided
        );
        // Five times as long is found all the same.
        assert_eq!(
            trial(Limit::AtMost(1.5), &CALM.map(|ratio| 5.0 * ratio), &NOISY),
            Verdict::Failed
        );
    }

    #[test]
    fn rounds_go_on_until_the_verdict_is_clear() {
        let mut values = NOISY.iter().chain(&CALM).cycle();
        let undecided = Trial::of_ratios("a test", Limit::AtMost(1.05)).run(8..=16, |_| (1.0, 1.0));
        assert_eq!((undecided.rounds(), undecided.verdict()), (8, Verdict::Passed));
        let noisy = Trial::of_ratios("a test", Limit::AtMost(1.05))
            .run(8..=16, |_| (1.0, *values.next().expect("a value")));
        assert_eq!((noisy.rounds(), noisy.verdict()), (16, Verdict::Undecided));
    }

    #[test]
    fn differences_have_no_effect_at_zero() {
        let mut trial = Trial::of_differences("a test", Limit::AtMost(0.25));
        for (found, control) in [(0.01, 0.0), (0.02, -0.01), (0.0, 0.01)].iter().cycle().take(9) {
            trial.add(*found, *control);
        }
        assert_eq!(trial.verdict(), Verdict::Passed);
    }
}
