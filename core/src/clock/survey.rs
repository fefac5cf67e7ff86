//! Measures a clock of this machine for `rowsource_clocks()`: its speed, its steps, and its backward steps.

use super::detect::Unusable;
use super::leaf::{Clock, Visitor};
use super::scale::{Scale, elapsed};
use super::source::Source;
use super::system;

/// Readings between two calls of the survey's callback: 1 ms with a fast clock, 50 ms with a slow one.
pub const SURVEY_CHUNK: u32 = 100_000;

/// The result of a survey.
#[derive(Clone, Debug, PartialEq)]
pub struct Survey {
    /// Whether the clock can be used. If not, the other values are empty.
    pub usable: Result<(), Unusable>,
    /// The time of one reading in nanoseconds; `None` without readings.
    pub ns_per_reading: Option<f64>,
    /// The smallest step forward between two readings, in nanoseconds; `None` if the clock did not move.
    /// If the clock's steps are shorter than a reading, this is the time of a reading.
    pub resolution_ns: Option<f64>,
    /// How often a reading was less than the one before it.
    pub backward_steps: u64,
    /// The largest backward step in nanoseconds; 0 if there is none.
    pub largest_backward_step_ns: f64,
}

/// Reads `source` `calls` times in a tight loop, and once before as the start.
///
/// `between` is called after every [`SURVEY_CHUNK`] readings except the last ones, so that the caller can
/// check for interrupts. It may unwind. Its time is not counted.
pub fn survey(source: Source, calls: u32, between: impl FnMut()) -> Survey {
    let usable = source.usable();
    let steps = match usable {
        Ok(()) => source.visit(Observe { calls, between }),
        Err(_) => Steps::default(),
    };
    steps.report(usable, source.scale())
}

/// Observes a clock. The loop is compiled for each clock, so the reading is inlined as on the hot path.
struct Observe<F> {
    calls: u32,
    between: F,
}

impl<F: FnMut()> Visitor for Observe<F> {
    type Output = Steps;

    fn visit<C: Clock>(self) -> Steps {
        observe(C::read, self.calls, system::monotonic, self.between)
    }
}

/// The steps of a clock, in raw ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Steps {
    readings: u64,
    took_ns: u64,
    smallest: Option<u64>,
    backward: u64,
    largest_backward: u64,
}

/// Reads a clock `calls` times. `timer` measures the time of the chunks in nanoseconds.
fn observe(
    mut read: impl FnMut() -> u64,
    calls: u32,
    mut timer: impl FnMut() -> u64,
    mut between: impl FnMut(),
) -> Steps {
    let mut steps = Steps::default();
    let (mut last, mut left) = (read(), calls);
    // The smallest step minus one. A step of 0 wraps to the largest value, so it is never the minimum. This
    // takes one comparison instead of two, in a loop that takes only nanoseconds.
    let mut smallest_less_one = u64::MAX;
    while left > 0 {
        let chunk = left.min(SURVEY_CHUNK);
        let begun = timer();
        for _ in 0..chunk {
            let now = read();
            match elapsed(last, now) {
                Some(step) => smallest_less_one = smallest_less_one.min(step.wrapping_sub(1)),
                None => {
                    steps.backward += 1;
                    steps.largest_backward = steps.largest_backward.max(last - now);
                }
            }
            last = now;
        }
        steps.took_ns += elapsed(begun, timer()).unwrap_or(0);
        steps.readings += u64::from(chunk);
        left -= chunk;
        if left > 0 {
            between();
        }
    }
    steps.smallest = smallest_less_one.checked_add(1);
    steps
}

impl Steps {
    /// Returns the survey for a clock of this scale.
    fn report(self, usable: Result<(), Unusable>, scale: Scale) -> Survey {
        Survey {
            usable,
            ns_per_reading: (self.readings > 0).then(|| self.took_ns as f64 / self.readings as f64),
            resolution_ns: self.smallest.map(|ticks| scale.nanoseconds(ticks)),
            backward_steps: self.backward,
            largest_backward_step_ns: scale.nanoseconds(self.largest_backward),
        }
    }
}

#[cfg(test)]
#[path = "survey_tests.rs"]
mod tests;
