//! What the sampler needs to know about the clock and the settings.

/// The timer may cost this share of the time that it measures. The gaps are adapted to this.
pub(super) const TIMER_SHARE: f64 = 0.005;

/// The default cost of a sample without its two readings, in nanoseconds: the sums, the next gap, a
/// mispredicted branch.
pub const BOOKKEEPING_NS: f64 = 40.0;

/// A call is long if it takes this many times as long as calls of which every one is timed, however imprecise
/// their time is.
pub(super) const LONG_FACTOR: f64 = 4.0;

/// A difference of this many steps of a coarse clock cannot be an artefact of its steps.
const LONG_STEPS: f64 = 2.5;

/// What the sampler needs to know about the clock and the settings; fixed for one statement.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The largest mean gap (`sampfreq`). With 1, every call is timed.
    pub max_gap: f64,
    /// The measured length of an empty interval, in ticks.
    pub empty_interval: f64,
    /// The same for the calls that stand for others: around these, the clock is read in order.
    pub empty_in_order: f64,
    /// The cost of one reading, in ticks.
    pub reading: f64,
    /// What a reading inside a call adds to it, in ticks: the reading, and half of a sample's bookkeeping.
    pub nested_reading: f64,
    /// If calls take at least this many ticks, every call is timed, because the timer then costs less than
    /// its share: until the time is precise.
    pub affordable: f64,
    /// The ticks from which a call is long. This is also the minimal time between the last reading before a
    /// call and a reading that proves that the call is long.
    pub long: f64,
    /// The step of a coarse clock, or 0 for a fine one.
    pub step: f64,
}

impl Config {
    /// Returns the configuration for a clock of `ns_per_tick`. A reading costs `reading_ns`, and a sample
    /// costs `bookkeeping_ns` besides its readings. The clock moves in steps of `resolution_ns`: a single
    /// step of a coarse clock must not prove that a call is long. To read it in order takes as long as
    /// otherwise.
    pub fn new(
        max_gap: u32,
        ns_per_tick: f64,
        empty_interval_ticks: f64,
        reading_ns: f64,
        bookkeeping_ns: f64,
        resolution_ns: f64,
    ) -> Self {
        let affordable_ns = (2.0 * reading_ns + bookkeeping_ns) / TIMER_SHARE;
        let is_coarse = LONG_STEPS * resolution_ns > LONG_FACTOR * affordable_ns;
        Config {
            max_gap: f64::from(max_gap.max(1)),
            empty_interval: empty_interval_ticks,
            empty_in_order: empty_interval_ticks,
            reading: reading_ns / ns_per_tick,
            affordable: affordable_ns / ns_per_tick,
            nested_reading: (reading_ns + bookkeeping_ns / 2.0) / ns_per_tick,
            long: (LONG_FACTOR * affordable_ns).max(LONG_STEPS * resolution_ns) / ns_per_tick,
            step: if is_coarse {
                resolution_ns / ns_per_tick
            } else {
                0.0
            },
        }
    }
}
