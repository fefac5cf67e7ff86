//! How a node's time is estimated from a few clock readings.
//!
//! The calls of a node fall into three strata, and each is treated by what is known of it:
//!
//! * **certain**: calls that were timed while every call was timed (a node's first calls, and all calls of a
//!   slow node), and timed calls that *proved* long. Each counts as it was measured, once.
//! * **proved, not timed**: calls that were not going to be timed, but at whose exit it showed that they were
//!   long: a tick, or the end of a call that proved long itself, lay inside them long after the last reading
//!   before them; or they did I/O.
//!   The clock is read at their exit; their start is the last reading before them, less the mean distance between
//!   a reading and the next call of this node (known from the timed calls).
//! * **the rest**, estimated from samples at random gaps: the mean of the samples, times the number of such calls,
//!   which is exact.
//!
//! A call is *proved* by the same test whether it is being timed or not, so the strata do not depend on the
//! sampling. Two kinds of calls would fool it:
//!
//! * A short call long after the reading before it, since the caller works long between its calls. So it is no
//!   proof that a child was timed in it, and a tick must come several times the distance that is usual for this
//!   node after the last reading.
//! * A long call that nobody read the clock in (a stall between two ticks) and that happens to be timed. It would
//!   weigh as much as its gap, and one of them could outweigh all else. Such calls are summed apart, and the
//!   longest is multiplied only as far as the second longest bears it out (a winsorised sum).
//!
//! The gaps: calls are dealt into blocks of g, and one call of each block, any with the same chance, is timed and
//! weighs g. The size of a block is chosen before it begins, from what is known by then; so the sum is unbiased
//! however the costs change and however g follows them. (A random distance from one timed call to the next is not:
//! where the costs rise, the calls before the first expensive sample are fewer than its gap.) A proved call
//! ends its block, and the call after it is timed, so that g follows a change at once.
//!
//! Everything here is plain arithmetic on numbers that the caller provides: no allocation, no panic, no clock.
//! All times are raw ticks of the clock in use.

use rand_core::RngCore;

/// Timed without gaps at the start of each node: fast statements are measured whole.
const FIRST_CALLS: u64 = 16;

/// A gap is at most this part of the calls so far, so that a few hundred calls still give some samples: the first
/// few thousand calls cost about 50 samples more (2 us a node), and a drift of the costs shows early.
const GROWTH: f64 = 1.0 / 12.0;

/// The timer may cost this share of the time it measures; the gaps adapt to it.
const TIMER_SHARE: f64 = 0.005;

/// What a sample costs besides its two readings, in nanoseconds: the sums, the next gap, a mispredicted branch.
const BOOKKEEPING_NS: f64 = 30.0;

/// A proof by clock reading needs this many times the interval that may pass between two readings.
const LONG_FACTOR: f64 = 4.0;

/// It also needs this many times the distance between a reading and this node's next call that is usual for it.
const FAR_FACTOR: f64 = 8.0;

/// Mean distance of a call from the timed call before it, over that of one timed call from the other, when one
/// call of each block is timed: (1 + 1/6)/2.
const AGE: f64 = 7.0 / 12.0;

/// A proved call as long as this many gaps full of usual calls ends its block.
const CHANGE_FACTOR: f64 = 4.0;

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

    /// Ticks that a reading inside a call costs it, with its half of the sample's bookkeeping.
    #[inline]
    fn nested_reading(&self) -> f64 {
        self.affordable * (TIMER_SHARE / 2.0)
    }
}

/// The clock readings around one timed call.
#[derive(Clone, Copy, Debug)]
pub struct TimedCall {
    /// The last reading before this call, by anyone.
    pub before: u64,
    /// Read at entry.
    pub start: u64,
    /// The last proof inside the call, as for [`NodeTimer::is_long`]; equal to `start` where there was none.
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
    /// Of all samples, the long ones too.
    weight: f64,
    /// Of those that are not long.
    ticks: f64,
    /// Their variance: g(g-1) times half the squared difference to the sample before, so that phases of different
    /// cost do not count as noise.
    variance: f64,
    previous: f64,
    first_weight: f64,
    first_ticks: f64,
}

/// Samples of the third stratum that were long.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct LongSamples {
    /// Weighted sum, without the longest.
    ticks: f64,
    /// Sum of g(g-1)t^2 over all of them.
    variance: f64,
    longest: f64,
    longest_weight: f64,
    second: f64,
}

/// The timing state of one plan node. Zeroed memory plus [`NodeTimer::start`] is a valid start.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct NodeTimer {
    /// Calls until the next timed one; the caller counts it down and times the call that reaches zero.
    pub countdown: u64,
    drawn: u64,
    /// Calls of the block that follow its timed one.
    left: u64,
    /// Size of the block: the weight of its timed call.
    gap: f64,
    recent: f64,
    /// What the first call took.
    opening: f64,
    certain_calls: u64,
    certain_ticks: f64,
    proved_calls: u64,
    proved_ticks: f64,
    proved_variance: f64,
    /// Ticks to the first row of each start, over the calls counted one by one.
    startup_ticks: f64,
    startup_calls: u64,
    samples: Samples,
    long: LongSamples,
    /// Usual ticks from the last reading to a call of this node.
    distance: f64,
    /// End of the last timed call.
    own_reading: u64,
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
        let overhead = config.empty_interval + call.nested_readings as f64 * config.nested_reading();
        // A short call may measure less than the mean empty interval: cutting each at zero would bias the sum.
        let ticks = if backsteps == 0 { raw - overhead } else { 0.0 };
        if self.timed_calls == 0 {
            self.opening = ticks;
        }
        self.timed_calls += 1;
        self.timer_calls += 2;
        self.clock_backsteps += backsteps;

        // Before the distance takes this call in: the same test as for a call that is not timed.
        let proved = call.did_io
            || (call.last_inside != call.start && self.is_long(config, call.before, call.last_inside));
        if self.gap > 1.0 {
            self.note_distance(call.before, call.start);
        }
        self.own_reading = call.end;
        if self.gap <= 1.0 || proved {
            self.certain_calls += 1;
            self.certain_ticks += ticks;
            if call.first_of_start {
                self.startup_calls += 1;
                self.startup_ticks += ticks;
            }
            if self.is_change(ticks) {
                self.left = 0;
            }
        } else {
            self.sample(config, ticks, call.first_of_start);
        }
        self.draw(config, random, ticks)
    }

    /// A timed call of the third stratum.
    #[inline]
    fn sample(&mut self, config: &Config, ticks: f64, first_of_start: bool) {
        let g = self.gap;
        let v = g * (g - 1.0);
        let samples = &mut self.samples;
        if ticks < config.long {
            let previous = if samples.weight > 0.0 {
                samples.previous
            } else {
                self.recent
            };
            samples.ticks += g * ticks;
            samples.variance += v * (ticks - previous) * (ticks - previous) / 2.0;
            samples.previous = ticks;
        } else {
            let long = &mut self.long;
            long.variance += v * ticks * ticks;
            if ticks > long.longest {
                long.ticks += long.longest_weight * long.longest;
                long.second = long.longest;
                long.longest = ticks;
                long.longest_weight = g;
            } else {
                long.ticks += g * ticks;
                long.second = long.second.max(ticks);
            }
        }
        samples.weight += g;
        if first_of_start {
            samples.first_weight += g;
            samples.first_ticks += g * ticks;
        }
    }

    /// Chooses the next block and the call in it: 1 at first, then as small as the timer's share allows, never
    /// above `sampfreq`.
    #[inline]
    fn draw(&mut self, config: &Config, random: &mut impl RngCore, ticks: f64) -> bool {
        // The very first call builds, opens and positions: it says little about the next ones.
        let clipped = ticks.clamp(0.0, 2.0 * config.affordable);
        self.recent = match self.timed_calls {
            0..=2 => clipped,
            _ => self.recent + (clipped - self.recent) / 8.0,
        };
        let mut size = 1;
        let mut position = 0;
        if self.drawn >= FIRST_CALLS {
            let calls = self.drawn as f64;
            // Rare long calls, too, pay for samples: the others like them are to be found. What is left of that
            // share is spent over as many calls as there were.
            let known = self.certain_ticks + self.proved_ticks + self.samples.ticks + self.long.ticks;
            let spent = self.timed_calls as f64 * config.affordable;
            let usual = self.recent.max((known - self.opening - spent) / calls);
            let most = config.max_gap.min(calls * GROWTH);
            let mean = if usual * most <= config.affordable {
                most
            } else {
                config.affordable / usual
            };
            if mean >= 1.5 {
                size = (mean + 0.5) as u64;
                position = ((u128::from(random.next_u64()) * u128::from(size)) >> 64) as u64;
            }
        }
        self.gap = size as f64;
        self.countdown = self.left + position + 1;
        self.left = size - 1 - position;
        self.drawn += self.countdown;
        size > 1
    }

    /// Whether a call that is not timed proved long by clock readings alone, whoever called it: `before` and
    /// `last_inside` as in [`TimedCall`].
    #[inline]
    pub fn proves_long(config: &Config, before: u64, last_inside: u64) -> bool {
        last_inside != before && elapsed(before, last_inside).0 >= config.long
    }

    /// Whether a call of this node proved long. `before` is the last reading before it, by anyone, and `proof` the
    /// latest of the readings that prove something: those of the tick, and those at the end of calls that proved
    /// long or measured long. Such a reading after `before` was made inside the call.
    #[inline]
    pub fn is_long(&self, config: &Config, before: u64, proof: u64) -> bool {
        Self::proves_long(config, before, proof) && elapsed(before, proof).0 >= FAR_FACTOR * self.distance
    }

    /// Takes note of a call that was not timed and proved long; `end` was read at its exit.
    #[inline]
    pub fn record_proved(&mut self, before: u64, end: u64, first_of_start: bool) {
        let (raw, backsteps) = elapsed(before, end);
        let ticks = raw - self.distance;
        self.timed_calls += 1;
        self.timer_calls += 1;
        self.clock_backsteps += backsteps;
        self.proved_calls += 1;
        self.proved_ticks += ticks;
        self.proved_variance += self.distance * self.distance;
        if first_of_start {
            self.startup_calls += 1;
            self.startup_ticks += ticks;
        }
        if self.is_change(ticks) {
            self.drawn = self.drawn.saturating_sub(self.countdown) + 1;
            self.countdown = 1;
            self.left = 0;
            self.gap = 1.0;
        }
    }

    /// Whether a proved call is worth looking at the next one.
    #[inline]
    fn is_change(&self, ticks: f64) -> bool {
        ticks > CHANGE_FACTOR * self.gap * self.recent
    }

    /// Takes note of how long ago the last reading was when a call began.
    #[inline]
    fn note_distance(&mut self, before: u64, start: u64) {
        let (ticks, backsteps) = elapsed(before, start);
        self.clock_backsteps += backsteps;
        // The distance of a call that is not timed is wanted: shorter, where the timed calls are what there is.
        let age = if before == self.own_reading { AGE } else { 1.0 };
        self.distance += (age * ticks - self.distance) / 8.0;
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
        let rest = calls
            .saturating_sub(self.certain_calls)
            .saturating_sub(self.proved_calls) as f64;
        let sampled = self.samples.weight > 0.0;
        let (mean, sampling_variance) = if sampled {
            let share = rest / self.samples.weight;
            (
                ((self.samples.ticks + self.long_ticks()) / self.samples.weight).max(0.0),
                (self.samples.variance + self.long.variance) * share * share,
            )
        } else {
            // Nothing was drawn from the rest: its size is a guess, and its error the guess itself.
            let guess = rest * self.recent;
            (self.recent, guess * guess)
        };
        let total = (self.certain_ticks + self.proved_ticks + rest * mean).max(0.0) + interrupted;
        let error = (sampling_variance + self.proved_variance).sqrt();

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

    /// The weighted sum of the long samples, where the longest counts once as what it was, and else as the second
    /// longest: a single one says nothing of how many there are.
    fn long_ticks(&self) -> f64 {
        let long = &self.long;
        if long.longest_weight <= 0.0 {
            return 0.0;
        }
        let like_it = if long.second > 0.0 {
            long.second
        } else {
            self.recent.min(long.longest)
        };
        long.ticks + long.longest + (long.longest_weight - 1.0) * like_it
    }
}
