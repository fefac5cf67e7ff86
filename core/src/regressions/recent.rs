//! What a plan that became slower did lately. All executions since the change say for a long time that it is
//! slow, however fast the latest ones are.

use super::judge::MIN_EXECUTIONS;
use super::sums::Sums;
use serde::{Deserialize, Serialize};

/// The latest executions are those of so many microseconds, and of up to twice as many. Unmeasured.
const LATELY_US: i64 = 900_000_000;

/// Executions of a plan, and their times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[repr(C)]
pub struct Done {
    /// The number of executions.
    pub executions: u64,
    /// Their busy time, in milliseconds.
    pub busy_ms: f64,
    /// Their time, waits included, in milliseconds.
    pub wall_ms: f64,
}

/// What was done at two earlier moments. Zero bytes are the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[repr(C)]
pub(super) struct Recent {
    earlier: [Done; 2],
    /// When the later of the two moments was.
    at: i64,
}

impl Done {
    /// Returns what these sums are of.
    pub fn of(sums: &Sums) -> Done {
        Done {
            executions: sums.executions,
            busy_ms: sums.busy_ms,
            wall_ms: sums.wall_ms,
        }
    }

    /// Returns what was done since an earlier moment: all, if the counters have been reset since.
    pub fn since(&self, earlier: &Done) -> Done {
        if earlier.executions > self.executions {
            return *self;
        }
        Done {
            executions: self.executions - earlier.executions,
            busy_ms: (self.busy_ms - earlier.busy_ms).max(0.0),
            wall_ms: (self.wall_ms - earlier.wall_ms).max(0.0),
        }
    }

    /// Returns the mean busy time, in milliseconds; 0 if there are no executions.
    pub fn mean_busy_ms(&self) -> f64 {
        self.busy_ms / self.executions.max(1) as f64
    }

    /// Returns the mean time, in milliseconds; 0 if there are no executions.
    pub fn mean_wall_ms(&self) -> f64 {
        self.wall_ms / self.executions.max(1) as f64
    }
}

impl Recent {
    /// Notes all that was done until now, and returns what was done lately, if that is enough to say anything
    /// of it.
    pub fn note(&mut self, all: &Done, now: i64) -> Option<Done> {
        let is_enough = |done: &Done| done.executions >= MIN_EXECUTIONS;
        let is_long = now.saturating_sub(self.at) >= LATELY_US;
        if is_long && is_enough(&all.since(&self.earlier[1])) {
            (self.earlier, self.at) = ([self.earlier[1], *all], now);
        }
        Some(all.since(&self.earlier[0])).filter(is_enough)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_done_lately_are_the_executions_of_a_quarter_of_an_hour_or_two() {
        let mut recent = Recent::default();
        let mut all = Done::default();
        let mut minute = |minute: i64, executions: u64| {
            all.executions += executions;
            all.busy_ms += executions as f64;
            let lately = recent.note(&all, minute * 60_000_000);
            lately.map_or(0, |done| done.executions)
        };
        assert_eq!(minute(100, 4), 0);
        assert_eq!(minute(101, 96), 100);
        assert_eq!(minute(110, 10), 110);
        // Two spans have begun since.
        assert_eq!(minute(120, 10), 20);
        // Executions that come seldom are waited for.
        assert_eq!(minute(300, 3), 23);
        assert_eq!(minute(500, 3), 6);
    }
}
