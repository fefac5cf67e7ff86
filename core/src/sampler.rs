//! How a node's time is estimated from a few clock readings.
//!
//! Calls are noticed in three ways, and each call that is noticed weighs the inverse of the chance it had to be:
//!
//! * **Sampled.** Calls are dealt into blocks of g, and one call of each block, any with the same chance, is timed.
//!   The size of a block is chosen before it begins, from what is known by then; so the sum is unbiased however
//!   the costs change and however g follows them. (A random distance from one timed call to the next is not: where
//!   the costs rise, fewer calls than its gap precede the first expensive sample.) Blocks of one are the first
//!   calls of each node, and all calls of a slow one: their time is known, not estimated.
//! * **Certain.** A call that did I/O, and one that contains a call which was certain to be noticed and was not
//!   short. The clock is read at its exit if it is not timed anyway, and it weighs 1.
//! * **By the tick.** A call in which the tick read the clock long after the last reading before it. A call of
//!   length t meets a tick of period T with a chance of t/T, so with the samples its chance is
//!   1 - (1 - t/T)(1 - 1/g), and no single one contributes more than T: a stall that happens to be sampled does not
//!   weigh g, and long calls that are rare are found by the tick rather than by luck.
//!
//! The short calls, neither sampled nor proved, are their exact number times the mean of the short samples.
//!
//! A call that is not timed lies between the last reading before it and the one at its exit; from that the distance
//! that is usual between a reading and a call of this node is taken off, as known from the timed calls. It can be
//! far where the caller works long between its calls. So it is no proof that anybody read the clock inside a call,
//! and a tick proves only from several times that distance on.
//!
//! A proved call much longer than a gap ends its block, and the call after it is timed, so that g follows a change
//! at once.
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

/// What a sample costs besides its two readings, in nanoseconds, where it is not measured: the sums, the next gap, a
/// mispredicted branch.
pub const BOOKKEEPING_NS: f64 = 40.0;

/// A call is long from this many times the length on at which every call is timed.
const LONG_FACTOR: f64 = 4.0;

/// So many steps of a coarse clock are no accident of where they fall.
const LONG_STEPS: f64 = 2.5;

/// A tick proves a call long from this many times the usual distance after the last reading on.
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
    /// Ticks from which a call is long, and from the last reading before a call to the one that proves it so.
    pub long: f64,
}

impl Config {
    /// For a clock of `ns_per_tick` that costs `reading_ns` to read and moves in steps of `resolution_ns`: a proof
    /// must not be a single step of a coarse clock. `bookkeeping_ns` is what a sample costs besides its readings.
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

    /// Ticks that a reading inside a call costs it, with its half of the sample's bookkeeping.
    #[inline]
    fn nested_reading(&self) -> f64 {
        self.affordable * (TIMER_SHARE / 2.0)
    }

    /// The steps in which a coarse clock moves, 0 for a fine one.
    #[inline]
    fn step(&self) -> f64 {
        // Apart by more than rounding.
        if self.long > 1.001 * LONG_FACTOR * self.affordable {
            self.long / LONG_STEPS
        } else {
            0.0
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
    /// Read at exit.
    pub end: u64,
    /// Readings made by others inside the call.
    pub nested_readings: u64,
    /// The call did I/O or touched many buffers.
    pub did_io: bool,
    /// The first call since the node was started or rescanned.
    pub first_of_start: bool,
}

/// What proves to a node that a call was long. One for the process: whoever reads the clock tells all.
#[derive(Clone, Copy, Debug, Default)]
pub struct Proofs {
    /// The last reading, by anyone.
    pub last: u64,
    /// The last reading by the tick.
    pub ticked: u64,
    /// The tick's period, in ticks of the clock; 0 where it does not run.
    pub period: f64,
    /// The end of the last call that was certain to be noticed, and long enough to be worth a reading in each node
    /// above.
    pub noticed: u64,
}

impl Proofs {
    /// Nothing has been noticed, and no tick runs.
    pub const NONE: Proofs = Proofs {
        last: 0,
        ticked: 0,
        period: 0.0,
        noticed: 0,
    };
}

/// Weighted sums over the short samples.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Samples {
    weight: f64,
    ticks: f64,
    /// Their variance: g(g-1) times half the squared difference to the sample before, so that phases of different
    /// cost do not count as noise.
    variance: f64,
    previous: f64,
    /// What one step of a coarse clock in one sample adds to the estimate: seen or not, it may be the only one.
    step: f64,
}

/// Long calls beyond those counted one by one: how many there must be, and their time.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct LongCalls {
    weight: f64,
    ticks: f64,
    variance: f64,
}

/// First calls of a start beyond those counted one by one.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct FirstCalls {
    weight: f64,
    ticks: f64,
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
    long: LongCalls,
    first: FirstCalls,
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
        ((later - earlier) as i64 as f64, 0)
    } else {
        (0.0, 1)
    }
}

/// Whether a reading was made after `before`. One after the last is left over from before the clock stepped back.
#[inline]
fn is_within(reading: u64, before: u64, last: u64) -> bool {
    reading > before && reading <= last
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
    #[inline(always)]
    pub fn record_timed(
        &mut self,
        config: &Config,
        random: &mut impl RngCore,
        call: &TimedCall,
        proofs: &mut Proofs,
    ) -> bool {
        let (raw, backsteps) = elapsed(call.start, call.end);
        let overhead = config.empty_interval + call.nested_readings as i64 as f64 * config.nested_reading();
        // A short call may measure less than the mean empty interval: cutting each at zero would bias the sum.
        let ticks = if backsteps == 0 { raw - overhead } else { 0.0 };
        if self.timed_calls == 0 {
            self.opening = ticks;
        }
        self.timed_calls += 1;
        self.timer_calls += 2;
        self.clock_backsteps += backsteps;
        if self.gap <= 1.0 {
            if raw >= config.affordable {
                proofs.noticed = call.end;
            }
            self.count(ticks, call.first_of_start);
        } else {
            self.weigh(config, call, raw, ticks, proofs);
        }
        self.own_reading = call.end;
        self.draw(config, random, ticks)
    }

    /// A timed call that counts as itself.
    #[inline]
    fn count(&mut self, ticks: f64, first_of_start: bool) {
        self.certain_calls += 1;
        self.certain_ticks += ticks;
        if first_of_start {
            self.startup_calls += 1;
            self.startup_ticks += ticks;
        }
    }

    /// A timed call among others that are not.
    #[inline]
    fn weigh(&mut self, config: &Config, call: &TimedCall, raw: f64, ticks: f64, proofs: &mut Proofs) {
        let first = call.first_of_start;
        // Before the distance takes this call in: the same test as for a call that is not timed. Readings before
        // the start are none of this call's.
        let certain = call.did_io || is_within(proofs.noticed, call.start, proofs.last);
        let by_tick = is_within(proofs.ticked, call.start, proofs.last)
            && self.is_far(config, call.before, proofs.ticked);
        if certain && raw >= config.affordable {
            proofs.noticed = call.end;
        }
        if certain || by_tick {
            self.count(ticks, first);
            if !certain {
                self.note_long(config, ticks, proofs.period, 1.0, first);
            }
            if self.is_change(ticks) {
                self.left = 0;
            }
        } else if ticks >= config.long {
            self.note_long(config, ticks, proofs.period, 0.0, first);
        } else {
            self.sample(config, ticks, first);
        }
        self.note_distance(call.before, call.start);
    }

    /// At the exit of a call that was not timed: if it proved long, reads the clock and takes note of it. `before` is
    /// the last reading before the call, by anyone.
    #[inline]
    pub fn record_untimed(
        &mut self,
        config: &Config,
        before: u64,
        did_io: bool,
        first_of_start: bool,
        proofs: &mut Proofs,
        read: impl FnOnce() -> u64,
    ) {
        let certain = did_io || is_within(proofs.noticed, before, proofs.last);
        let by_tick =
            is_within(proofs.ticked, before, proofs.last) && self.is_far(config, before, proofs.ticked);
        if !certain && !by_tick {
            return;
        }
        let end = read();
        let ticks = elapsed(before, end).0 - self.distance;
        if certain && ticks >= config.affordable {
            proofs.noticed = end;
        }
        if !certain {
            self.note_long(config, ticks, proofs.period, 1.0, first_of_start);
        }
        self.record_proved(before, end, first_of_start);
    }

    /// A short sample.
    #[inline]
    fn sample(&mut self, config: &Config, ticks: f64, first_of_start: bool) {
        let g = self.gap;
        let samples = &mut self.samples;
        let previous = if samples.weight > 0.0 {
            samples.previous
        } else {
            self.recent
        };
        samples.weight += g;
        samples.ticks += g * ticks;
        samples.variance += g * (g - 1.0) * (ticks - previous) * (ticks - previous) / 2.0;
        samples.previous = ticks;
        samples.step = samples.step.max(g * config.step());
        if first_of_start {
            self.first.weight += g;
            self.first.ticks += g * ticks;
        }
    }

    /// A long call that the tick or a sample noticed, of which `counted` are counted one by one.
    #[inline]
    fn note_long(&mut self, config: &Config, ticks: f64, period: f64, counted: f64, first_of_start: bool) {
        let by_tick = if period > 0.0 {
            // It is noticed only if the tick comes late enough in it.
            ((ticks + self.distance - self.far(config)) / period).clamp(0.0, 1.0)
        } else {
            counted
        };
        let chance = 1.0 - (1.0 - by_tick) * (1.0 - 1.0 / self.gap);
        let weight = 1.0 / chance;
        let more = weight - counted;
        self.long.weight += more;
        self.long.ticks += more * ticks;
        self.long.variance += weight * (weight - 1.0) * ticks * ticks;
        if first_of_start {
            self.first.weight += more;
            self.first.ticks += more * ticks;
        }
    }

    /// Chooses the next block and the call in it: blocks of 1 at first, then as small as the timer's share allows, never
    /// above `sampfreq`.
    #[inline(always)]
    fn draw(&mut self, config: &Config, random: &mut impl RngCore, ticks: f64) -> bool {
        // The very first call builds, opens and positions: it says little about the next ones.
        // Not `clamp`, which panics where its bounds are no numbers: an error may cross this frame, a panic must not.
        let clipped = ticks.max(0.0).min(2.0 * config.affordable);
        self.recent = match self.timed_calls {
            0..=2 => clipped,
            _ => self.recent + (clipped - self.recent) / 8.0,
        };
        if self.drawn < FIRST_CALLS {
            self.countdown = 1;
            self.drawn += 1;
            return false;
        }
        let calls = self.drawn as f64;
        // Rare long calls, too, pay for samples: the others like them are to be found. What is left of that share is
        // spent over as many calls as there were.
        let known = self.certain_ticks + self.proved_ticks + self.samples.ticks + self.long.ticks;
        let spent = self.timed_calls as f64 * config.affordable;
        let usual = self.recent.max((known - self.opening - spent) / calls);
        let most = config.max_gap.min(calls * GROWTH);
        let mean = if usual * most <= config.affordable {
            most
        } else {
            config.affordable / usual
        };
        let (size, position) = if mean >= 1.5 {
            let size = (mean + 0.5) as u64;
            (
                size,
                ((u128::from(random.next_u64()) * u128::from(size)) >> 64) as u64,
            )
        } else {
            (1, 0)
        };
        self.gap = size as f64;
        self.countdown = self.left + position + 1;
        self.left = size - 1 - position;
        self.drawn += self.countdown;
        size > 1
    }

    /// Ticks after the last reading before a call from which a reading in it proves it long.
    #[inline]
    fn far(&self, config: &Config) -> f64 {
        config.long.max(FAR_FACTOR * self.distance)
    }

    #[inline]
    fn is_far(&self, config: &Config, before: u64, inside: u64) -> bool {
        elapsed(before, inside).0 >= self.far(config)
    }

    /// Takes note of a call that was not timed and proved long; `end` was read at its exit.
    #[inline]
    fn record_proved(&mut self, before: u64, end: u64, first_of_start: bool) {
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

    /// The node's time and its time to first rows, where every call was timed.
    #[inline(always)]
    pub fn exact(&self) -> Option<(f64, f64)> {
        (self.calls() == self.certain_calls).then(|| {
            let total = self.certain_ticks.max(0.0);
            (total, self.startup_ticks.clamp(0.0, total))
        })
    }

    /// The estimate from all readings; `starts` is the exact number of starts, `interrupted` the ticks of a last
    /// call that an error ended.
    pub fn estimate(&self, starts: f64, interrupted: Option<u64>) -> Estimate {
        if interrupted.is_none()
            && let Some((total, startup)) = self.exact()
        {
            return Estimate {
                total,
                startup,
                error: 0.0,
            };
        }
        let calls = self.calls().saturating_sub(u64::from(interrupted.is_some()));
        let interrupted = interrupted.unwrap_or(0) as i64 as f64;
        if calls == 0 || self.timed_calls == 0 {
            return Estimate {
                total: interrupted,
                ..Estimate::default()
            };
        }
        let rest = calls
            .saturating_sub(self.certain_calls)
            .saturating_sub(self.proved_calls) as f64;
        let rest = (rest - self.long.weight).max(0.0);
        let (mean, sampling_variance) = if self.samples.weight > 0.0 {
            let share = rest / self.samples.weight;
            (
                (self.samples.ticks / self.samples.weight).max(0.0),
                (self.samples.variance + self.samples.step * self.samples.step) * share * share,
            )
        } else {
            // Nothing was drawn from the rest: its size is a guess, and its error the guess itself.
            let guess = rest * self.recent;
            (self.recent, guess * guess)
        };
        let total =
            (self.certain_ticks + self.proved_ticks + self.long.ticks + rest * mean).max(0.0) + interrupted;
        let error = (sampling_variance + self.long.variance + self.proved_variance).sqrt();

        let rest_starts = (starts - self.startup_calls as f64).max(0.0);
        let mean_first = if self.first.weight > 0.0 {
            self.first.ticks / self.first.weight
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
}

#[cfg(test)]
mod tests;
