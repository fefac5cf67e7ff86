//! How a node's time is estimated from a few clock readings.
//!
//! The calls of a node fall into three strata, and each is treated by what is known of it:
//!
//! * **certain**: calls that were timed while every call was timed (a node's first calls, and all calls of a
//!   slow node), and timed calls that *proved* long. Each counts as it was measured, once.
//! * **proved, not timed**: calls that were not going to be timed, but at whose exit it showed that they were
//!   long: somebody else had read the clock inside them long after the last reading before them, or they did I/O.
//!   The clock is read at their exit; their start is the last reading before them, less the mean distance between
//!   a reading and the next call of this node (known from the timed calls).
//! * **the rest**, estimated from samples at random gaps: the mean of the samples, times the number of such calls,
//!   which is exact.
//!
//! A call is *proved* by the same test whether it is being timed or not, so the strata do not depend on the
//! sampling, and the sum is unbiased. Gaps are random because fixed ones alias with the plan's own rhythm.
//!
//! Everything here is plain arithmetic on numbers that the caller provides: no allocation, no panic, no clock.
//! All times are raw ticks of the clock in use.

use rand_core::RngCore;

/// Timed without gaps at the start of each node: fast statements are measured whole.
const FIRST_CALLS: u64 = 16;

/// The timer may cost this share of the time it measures; the gaps adapt to it.
const TIMER_SHARE: f64 = 0.005;

/// What a sample costs besides its two readings, in nanoseconds: the sums, the next gap, a mispredicted branch.
const BOOKKEEPING_NS: f64 = 30.0;

/// A proof by clock reading needs this many times the usual distance between two readings, so that short calls
/// in which a child was sampled are not taken for long ones.
const LONG_FACTOR: f64 = 4.0;

/// Buffers touched in one call that make it worth a clock reading of its own.
pub const MANY_BUFFERS: i64 = 32;

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
    /// Ticks from the last reading before a call to the last one inside it that prove it long.
    pub long: f64,
}

impl Config {
    /// For a clock of `ns_per_tick` that costs `reading_ns` to read and moves in steps of `resolution_ns`: a proof
    /// must not be a single step of a coarse clock.
    pub fn new(
        max_gap: u32,
        ns_per_tick: f64,
        empty_interval_ticks: f64,
        reading_ns: f64,
        resolution_ns: f64,
    ) -> Self {
        let affordable_ns = (2.0 * reading_ns + BOOKKEEPING_NS) / TIMER_SHARE;
        Config {
            max_gap: f64::from(max_gap.max(1)),
            empty_interval: empty_interval_ticks,
            reading: reading_ns / ns_per_tick,
            affordable: affordable_ns / ns_per_tick,
            long: (LONG_FACTOR * affordable_ns).max(2.5 * resolution_ns) / ns_per_tick,
        }
    }
}

/// The clock readings around one timed call.
#[derive(Clone, Copy, Debug)]
pub struct TimedCall {
    /// The last reading before this call, by anyone.
    pub before: u64,
    /// Read at entry.
    pub start: u64,
    /// The last reading when the call ended, by anyone; equal to `start` where nobody else read the clock.
    pub last_inside: u64,
    /// Read at exit.
    pub end: u64,
    /// Readings made by others inside the call.
    pub nested_readings: u64,
    /// The call did I/O or touched many buffers.
    pub did_io: bool,
    /// The first call since the node was started or rescanned.
    pub first_of_start: bool,
}

/// Weighted sums over the samples of the third stratum.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Samples {
    weight: f64,
    ticks: f64,
    /// Sums of g(g-1), g(g-1)d, g(g-1)d^2: the variance of a sample of one in g.
    v0: f64,
    v1: f64,
    v2: f64,
    first_weight: f64,
    first_ticks: f64,
}

/// The timing state of one plan node. Zeroed memory plus [`NodeTimer::start`] is a valid start.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct NodeTimer {
    /// Calls until the next timed one; the caller counts it down and times the call that reaches zero.
    pub countdown: u64,
    drawn: u64,
    gap: f64,
    recent: f64,
    certain_calls: u64,
    certain_ticks: f64,
    proved_calls: u64,
    proved_ticks: f64,
    /// Ticks to the first row of each start, over the calls counted one by one.
    startup_ticks: f64,
    startup_calls: u64,
    samples: Samples,
    distance_calls: f64,
    distance_sum: f64,
    distance_square: f64,
    /// Calls between two own readings, and calls proved long.
    pub timed_calls: u64,
    /// Clock readings made for this node.
    pub timer_calls: u64,
    /// Readings smaller than the one before them.
    pub clock_backsteps: u64,
}

/// What the readings say about one node, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// Time in the node and all below it.
    pub total: f64,
    /// Time to the first row of each start, summed over the starts.
    pub startup: f64,
    /// One standard error of `total`; zero where every call was timed.
    pub error: f64,
}

/// Later minus earlier, and whether the clock stepped back (then 0: never negative, never absurdly large).
#[inline]
fn elapsed(earlier: u64, later: u64) -> (f64, u64) {
    if later >= earlier {
        ((later - earlier) as f64, 0)
    } else {
        (0.0, 1)
    }
}

impl NodeTimer {
    /// Makes the first call a timed one.
    pub fn start(&mut self) {
        self.countdown = 1;
        self.drawn = 1;
        self.gap = 1.0;
    }

    /// Takes note of a timed call and draws the gap to the next.
    ///
    /// Returns true where the gap left the first, gapless calls behind: the caller then wants its tick.
    #[inline]
    pub fn record(&mut self, config: &Config, random: &mut impl RngCore, call: &TimedCall) -> bool {
        let (raw, backsteps) = elapsed(call.start, call.end);
        let overhead = config.empty_interval + call.nested_readings as f64 * config.reading;
        // A short call may measure less than the mean empty interval: cutting each at zero would bias the sum.
        let ticks = if backsteps == 0 { raw - overhead } else { 0.0 };
        self.timed_calls += 1;
        self.timer_calls += 2;
        self.clock_backsteps += backsteps;
        let (distance, _) = elapsed(call.before, call.start);
        self.distance_calls += 1.0;
        self.distance_sum += distance;
        self.distance_square += distance * distance;

        let read_inside = call.last_inside != call.start;
        let proved = call.did_io || (read_inside && elapsed(call.before, call.last_inside).0 >= config.long);
        if self.gap <= 1.0 || proved {
            self.certain_calls += 1;
            self.certain_ticks += ticks;
            if call.first_of_start {
                self.startup_calls += 1;
                self.startup_ticks += ticks;
            }
        } else {
            let g = self.gap;
            let v = g * (g - 1.0);
            self.samples.weight += g;
            self.samples.ticks += g * ticks;
            self.samples.v0 += v;
            self.samples.v1 += v * ticks;
            self.samples.v2 += v * ticks * ticks;
            if call.first_of_start {
                self.samples.first_weight += g;
                self.samples.first_ticks += g * ticks;
            }
        }
        self.draw(config, random, ticks)
    }

    /// Chooses the next gap: 1 at first, then as small as the timer's share allows, never above `sampfreq`.
    #[inline]
    fn draw(&mut self, config: &Config, random: &mut impl RngCore, ticks: f64) -> bool {
        // The very first call builds, opens and positions: it says little about the next ones.
        let clipped = ticks.clamp(0.0, 2.0 * config.affordable);
        self.recent = match self.timed_calls {
            0..=2 => clipped,
            _ => self.recent + (clipped - self.recent) / 8.0,
        };
        let mut gap = 1;
        self.gap = 1.0;
        if self.drawn >= FIRST_CALLS {
            let cheap = self.recent * config.max_gap <= config.affordable;
            let mean = if cheap {
                config.max_gap
            } else {
                config.affordable / self.recent
            };
            if mean >= 1.5 {
                // Uniform on 1..=2*mean-1, so its mean is `mean`.
                let width = (2.0 * mean) as u64 - 1;
                gap = 1 + ((u128::from(random.next_u64()) * u128::from(width)) >> 64) as u64;
                self.gap = (width as f64 + 1.0) / 2.0;
            }
        }
        self.countdown = gap;
        self.drawn += gap;
        self.gap > 1.0
    }

    /// Whether a call that is not timed proved long: `before` and `last_inside` as in [`TimedCall`].
    #[inline]
    pub fn proves_long(config: &Config, before: u64, last_inside: u64) -> bool {
        last_inside != before && elapsed(before, last_inside).0 >= config.long
    }

    /// Takes note of a call that was not timed and proved long; `end` was read at its exit.
    #[inline]
    pub fn record_proved(&mut self, before: u64, end: u64, first_of_start: bool) {
        let (ticks, backsteps) = elapsed(before, end);
        self.timed_calls += 1;
        self.timer_calls += 1;
        self.clock_backsteps += backsteps;
        self.proved_calls += 1;
        self.proved_ticks += ticks;
        if first_of_start {
            self.startup_calls += 1;
            self.startup_ticks += ticks;
        }
    }

    /// All calls of the node so far.
    pub fn calls(&self) -> u64 {
        self.drawn.saturating_sub(self.countdown)
    }

    /// The estimate from all readings; `starts` is the exact number of starts, `interrupted` the ticks of a last
    /// call that an error ended.
    pub fn estimate(&self, starts: f64, interrupted: Option<u64>) -> Estimate {
        let calls = self.calls().saturating_sub(u64::from(interrupted.is_some()));
        let interrupted = interrupted.unwrap_or(0) as f64;
        if calls == 0 || self.timed_calls == 0 {
            return Estimate {
                total: interrupted,
                ..Estimate::default()
            };
        }
        let (distance, distance_variance) = self.distance();
        let proved = (self.proved_ticks - self.proved_calls as f64 * distance).max(0.0);
        let rest = calls
            .saturating_sub(self.certain_calls)
            .saturating_sub(self.proved_calls) as f64;
        let sampled = self.samples.weight > 0.0;
        let mean = if sampled {
            self.samples.ticks / self.samples.weight
        } else {
            self.recent
        }
        .max(0.0);
        let sampling_variance = if sampled {
            self.samples.v2 - 2.0 * mean * self.samples.v1 + mean * mean * self.samples.v0
        } else {
            // Nothing was drawn from the rest: its size is a guess, and its error the guess itself.
            (rest * mean) * (rest * mean)
        };
        let total = (self.certain_ticks + proved + rest * mean).max(0.0) + interrupted;
        let error = (sampling_variance.max(0.0) + self.proved_calls as f64 * distance_variance).sqrt();

        let rest_starts = (starts - self.startup_calls as f64).max(0.0);
        let first = &self.samples;
        let mean_first = if first.first_weight > 0.0 {
            first.first_ticks / first.first_weight
        } else {
            mean
        };
        let startup = (self.startup_ticks + rest_starts * mean_first.max(0.0)).clamp(0.0, total);
        Estimate {
            total,
            startup,
            error,
        }
    }

    /// Mean and variance of the ticks between a reading and this node's next call.
    fn distance(&self) -> (f64, f64) {
        if self.distance_calls < 1.0 {
            return (0.0, 0.0);
        }
        let mean = self.distance_sum / self.distance_calls;
        (
            mean,
            (self.distance_square / self.distance_calls - mean * mean).max(0.0),
        )
    }
}
