//! How much work an experiment does.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sizes {
    /// A quick run does only enough work to show that the experiment works.
    pub quick: bool,
    /// The factor for numbers of rows and loops.
    pub scale: f64,
    /// The factor for numbers of rounds.
    pub repeat: f64,
}

impl Sizes {
    /// Returns a number of rows or loops.
    pub fn of(&self, quick: u64, full: u64) -> u64 {
        if self.quick {
            quick
        } else {
            ((full as f64 * self.scale).round() as u64).max(1)
        }
    }

    /// Returns a number of rounds.
    pub fn rounds(&self, quick: usize, full: usize) -> usize {
        if self.quick {
            quick
        } else {
            ((full as f64 * self.repeat).round() as usize).max(1)
        }
    }

    /// Estimates the seconds that an experiment takes at these sizes, from its seconds at full size.
    pub fn of_seconds(&self, full: f64) -> f64 {
        if self.quick {
            full / 8.0
        } else {
            full * self.scale.max(0.2) * self.repeat.max(0.2)
        }
    }
}
