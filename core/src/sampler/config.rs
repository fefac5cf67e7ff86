//! What the sampler must know about the clock and the settings.

/// The timer may cost this share of the time it measures; the gaps adapt to it.
pub(super) const TIMER_SHARE: f64 = 0.005;

/// What a sample costs besides its two readings, in nanoseconds, where it is not measured: the sums, the next gap, a
/// mispredicted branch.
pub const BOOKKEEPING_NS: f64 = 40.0;

/// A call is long from this many times the length from which every call is timed.
const LONG_FACTOR: f64 = 4.0;

/// A difference of this many steps of a coarse clock is more than an accident of where the steps fall.
const LONG_STEPS: f64 = 2.5;

/// What the sampler must know about the clock and the settings; fixed for one statement.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Largest mean gap (`sampfreq`); 1 times every call.
    pub max_gap: f64,
    /// Ticks that an empty interval measures.
    pub empty_interval: f64,
    /// Ticks that one reading costs.
    pub reading: f64,
    /// Ticks of a call from which the timer costs less than its share, so that every call is timed.
    pub affordable: f64,
    /// Ticks from which a call is long. Also the least distance from the last reading before a call to the one that
    /// shows that it is long.
    pub long: f64,
}

impl Config {
    /// Returns the configuration for a clock of `ns_per_tick` that costs `reading_ns` to read and moves in steps of
    /// `resolution_ns`: a single step of a coarse clock must not show that a call is long. `bookkeeping_ns` is what a
    /// sample costs besides its readings.
    pub fn new(
        max_gap: u32,
        ns_per_tick: f64,
        empty_interval_ticks: f64,
        reading_ns: f64,
        bookkeeping_ns: f64,
        resolution_ns: f64,
    ) -> Self {
        let affordable_ns = (2.0 * reading_ns + bookkeeping_ns) / TIMER_SHARE;
        Config {
            max_gap: f64::from(max_gap.max(1)),
            empty_interval: empty_interval_ticks,
            reading: reading_ns / ns_per_tick,
            affordable: affordable_ns / ns_per_tick,
            long: (LONG_FACTOR * affordable_ns).max(LONG_STEPS * resolution_ns) / ns_per_tick,
        }
    }

    /// Returns the ticks that a reading inside a call costs it, with its half of the sample's bookkeeping.
    #[inline]
    pub(super) fn nested_reading(&self) -> f64 {
        self.affordable * (TIMER_SHARE / 2.0)
    }

    /// Returns the steps in which a coarse clock moves, 0 for a fine one.
    #[inline]
    pub(super) fn step(&self) -> f64 {
        // Apart by more than rounding.
        if self.long > 1.001 * LONG_FACTOR * self.affordable {
            self.long / LONG_STEPS
        } else {
            0.0
        }
    }
}
