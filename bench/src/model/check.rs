//! Checks of what an experiment found, and their verdicts.

use super::spread::Spread;
use serde::{Deserialize, Serialize};
use std::fmt;

/// One claim that an experiment tests.
#[derive(Serialize, Deserialize)]
pub struct Check {
    pub what: String,
    pub wanted: String,
    pub found: String,
    /// An exact value does not depend on times: quick runs judge it too, and a miss fails the run.
    #[serde(rename = "must")]
    pub exact: bool,
    pub verdict: Verdict,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Met,
    Missed,
    /// Some rounds met the goal and others missed it.
    Undecided,
    /// Quick runs do not judge goals that depend on times.
    NotJudged,
}

impl Check {
    /// Returns the verdict as the report prints it.
    pub fn words(&self) -> &'static str {
        match (self.verdict, self.exact) {
            (Verdict::Met, _) => "met",
            (Verdict::Missed, true) => "**FAILED**",
            (Verdict::Missed, false) => "**missed**",
            (Verdict::Undecided, _) => "undecided",
            (Verdict::NotJudged, _) => "not judged",
        }
    }
}

/// A goal for a value that depends on times: the range in which the value should lie.
pub struct Goal {
    least: f64,
    most: f64,
    words: String,
}

impl Goal {
    pub fn at_least(least: f64) -> Self {
        Goal {
            least,
            most: f64::INFINITY,
            words: format!("at least {least}"),
        }
    }

    pub fn at_most(most: f64) -> Self {
        Goal {
            least: f64::NEG_INFINITY,
            most,
            words: format!("at most {most}"),
        }
    }

    /// Asks for a ratio of one, more or less by a share at most.
    pub fn one_within(share: f64) -> Self {
        Goal {
            least: 1.0 - share,
            most: 1.0 + share,
            words: format!("within {:.0} % of 1", 100.0 * share),
        }
    }

    /// Adds an explanation in parentheses.
    pub fn with_note(mut self, note: &str) -> Self {
        self.words = format!("{} ({note})", self.words);
        self
    }

    /// Compares the range of the rounds with the goal. The goal is met if the whole range meets it, and
    /// missed if the whole range misses it. It is undecided if the range reaches over a bound of the goal. A
    /// value that is not a number misses every goal.
    pub fn judge(&self, found: &Spread) -> Verdict {
        let is_range = found.low <= found.median && found.median <= found.high;
        if !is_range {
            Verdict::Missed
        } else if self.least <= found.low && found.high <= self.most {
            Verdict::Met
        } else if found.high < self.least || self.most < found.low {
            Verdict::Missed
        } else {
            Verdict::Undecided
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::spread::spread;

    fn verdict(goal: &Goal, rounds: &[f64]) -> Verdict {
        goal.judge(&spread(rounds))
    }

    #[test]
    fn a_range_on_one_side_of_the_goal_decides() {
        let most = Goal::at_most(1.07);
        assert_eq!(verdict(&most, &[1.02, 1.03, 1.07]), Verdict::Met);
        assert_eq!(verdict(&most, &[1.08, 1.2, 1.3]), Verdict::Missed);
        let least = Goal::at_least(0.98);
        assert_eq!(verdict(&least, &[0.98, 1.0, 1.2]), Verdict::Met);
        assert_eq!(verdict(&least, &[0.9, 0.95, 0.97]), Verdict::Missed);
        let near = Goal::one_within(0.1);
        assert_eq!(verdict(&near, &[0.91, 1.0, 1.09]), Verdict::Met);
        assert_eq!(verdict(&near, &[0.7, 0.8]), Verdict::Missed);
        assert_eq!(verdict(&near, &[1.2, 1.3]), Verdict::Missed);
    }

    #[test]
    fn a_range_that_straddles_the_goal_is_undecided() {
        assert_eq!(
            verdict(&Goal::at_most(1.07), &[1.02, 1.03, 1.08]),
            Verdict::Undecided
        );
        assert_eq!(
            verdict(&Goal::at_most(1.07), &[1.06, 1.2, 1.3]),
            Verdict::Undecided
        );
        assert_eq!(
            verdict(&Goal::at_least(0.98), &[0.9, 1.007, 1.2]),
            Verdict::Undecided
        );
        let near = Goal::one_within(0.1);
        assert_eq!(verdict(&near, &[0.85, 0.95, 1.0]), Verdict::Undecided);
        assert_eq!(verdict(&near, &[1.04, 1.12, 1.42]), Verdict::Undecided);
        assert_eq!(verdict(&near, &[0.5, 1.0, 1.5]), Verdict::Undecided);
    }

    #[test]
    fn a_value_that_is_not_a_number_misses_every_goal() {
        let found = Spread {
            median: f64::NAN,
            low: f64::INFINITY,
            high: f64::NEG_INFINITY,
        };
        assert_eq!(Goal::at_most(1.0).judge(&found), Verdict::Missed);
    }

    #[test]
    fn goals_in_words() {
        assert_eq!(Goal::at_most(1.07).to_string(), "at most 1.07");
        assert_eq!(
            Goal::at_least(0.98).with_note("by design").to_string(),
            "at least 0.98 (by design)"
        );
        assert_eq!(Goal::one_within(0.1).to_string(), "within 10 % of 1");
    }

    #[test]
    fn verdicts_in_records() {
        let check = |verdict: &str| {
            let json = format!(r#"{{"what":"","wanted":"","found":"","must":false,"verdict":"{verdict}"}}"#);
            serde_json::from_str::<Check>(&json).unwrap()
        };
        for (name, words) in [
            ("met", "met"),
            ("missed", "**missed**"),
            ("undecided", "undecided"),
            ("not_judged", "not judged"),
        ] {
            assert_eq!(check(name).words(), words);
        }
        assert!(
            serde_json::to_string(&check("undecided"))
                .unwrap()
                .contains("\"undecided\"")
        );
    }
}
