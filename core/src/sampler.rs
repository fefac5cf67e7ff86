//! How a node's time is estimated from a few clock readings.
//!
//! A call is timed or detected in one of three ways. It then weighs the inverse of the chance that this had:
//!
//! * **Sampled.** Calls are dealt into blocks of g. One call of each block is timed, each with the same chance. The size
//!   of a block is chosen before it begins, from what is known by then. So the sum is unbiased however the costs change
//!   and however g follows them. (A random distance from one timed call to the next would be biased: if the costs rise,
//!   fewer calls than its gap precede the first expensive sample.) The first calls of each node form blocks of one, and
//!   so do all calls of a slow node: their time is known, not estimated.
//! * **Certain.** A call that did I/O, and a call that contains a certain one that was not short. If it is not timed
//!   anyway, the clock is read at its exit. It weighs 1.
//! * **By the tick.** A call in which the tick read the clock long after the last reading before it. A call of length t
//!   meets a tick of period T with a chance of t/T. With the samples its chance is 1 - (1 - t/T)(1 - 1/g), and no single
//!   call contributes more than T. So a stall that happens to be sampled does not weigh g, and rare long calls are found
//!   by the tick rather than by luck.
//!
//! All other calls are short. Their time is their exact number times the mean of the short samples.
//!
//! The start of a call that is not timed is not known: it lies between the last reading before the call and the one at
//! its exit. The usual distance from a reading to a call of this node, known from the timed calls, is taken off. This
//! distance can be large if the caller works long between its calls. So a reading alone does not show that the clock was
//! read inside a call, and a tick counts only from several times that distance on.
//!
//! A detected call much longer than a gap ends its block, and the call after it is timed, so that g follows a change at
//! once.
//!
//! Everything here is plain arithmetic on numbers that the caller provides: no allocation, no panic, no clock.
//! All times are raw ticks of the clock in use.

mod config;
mod estimate;
mod every_call;
mod evidence;
#[cfg(test)]
mod tests;
mod tick;

pub use config::{BOOKKEEPING_NS, Config};
pub use estimate::Estimate;
pub use every_call::EveryCall;
pub use evidence::{Detected, LongCallEvidence};
pub use tick::Tick;

use rand_core::RngCore;

/// Timed without gaps at the start of each node: fast statements are measured whole.
const FIRST_CALLS: u64 = 16;

/// A gap is at most this part of the calls so far, so that a few hundred calls still give some samples: the first
/// few thousand calls cost about 50 samples more (2 us a node), and a drift of the costs shows early.
const GROWTH: f64 = 1.0 / 12.0;

/// A tick shows that a call is long from this many times the usual distance after the last reading on.
const FAR_FACTOR: f64 = 8.0;

/// Mean distance of a call from the timed call before it, over that of one timed call from the other, when one
/// call of each block is timed: (1 + 1/6)/2.
const AGE: f64 = 7.0 / 12.0;

/// A detected call as long as this many gaps full of usual calls ends its block.
const CHANGE_FACTOR: f64 = 4.0;

/// Buffers touched in one call that make it worth a clock reading of its own.
pub const MANY_BUFFERS: i64 = 32;

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
    /// Calls until the next timed one; the call that counts it down to zero is timed.
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
    detected_calls: u64,
    detected_ticks: f64,
    detected_variance: f64,
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
    /// Calls between two own readings, and calls that were detected.
    pub timed_calls: u64,
    /// Clock readings made for this node.
    pub timer_calls: u64,
    /// Readings smaller than the one before them.
    pub clock_backsteps: u64,
}

/// Returns later minus earlier, and whether the clock stepped back (then 0: never negative, never absurdly large).
#[inline(always)]
fn elapsed(earlier: u64, later: u64) -> (f64, u64) {
    if later >= earlier {
        ((later - earlier) as i64 as f64, 0)
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
    /// Returns true if the gap left the first, gapless calls behind: the caller then wants its tick.
    #[inline(always)]
    pub fn record_timed(
        &mut self,
        config: &Config,
        random: &mut impl RngCore,
        call: &TimedCall,
        evidence: &mut LongCallEvidence,
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
                evidence.detected = call.end;
            }
            self.count(ticks, call.first_of_start);
        } else {
            self.weigh(config, call, raw, ticks, evidence);
        }
        self.own_reading = call.end;
        self.draw(config, random, ticks)
    }

    /// Counts a timed call as itself.
    #[inline]
    fn count(&mut self, ticks: f64, first_of_start: bool) {
        self.certain_calls += 1;
        self.certain_ticks += ticks;
        if first_of_start {
            self.startup_calls += 1;
            self.startup_ticks += ticks;
        }
    }

    /// Takes note of a timed call among others that are not.
    #[inline]
    fn weigh(
        &mut self,
        config: &Config,
        call: &TimedCall,
        raw: f64,
        ticks: f64,
        evidence: &mut LongCallEvidence,
    ) {
        let first = call.first_of_start;
        // Before the distance takes this call in: the same test as for a call that is not timed. Readings before the start
        // belong to others.
        match evidence.of_call(call.start, call.before, || self.far(config), call.did_io) {
            Some(detected) => {
                if detected == Detected::ByTick {
                    self.note_long(config, ticks, evidence.period, 1.0, first);
                } else if raw >= config.affordable {
                    evidence.detected = call.end;
                }
                self.count(ticks, first);
                if self.is_change(ticks) {
                    self.left = 0;
                }
            }
            None if ticks >= config.long => self.note_long(config, ticks, evidence.period, 0.0, first),
            None => self.sample(config, ticks, first),
        }
        self.note_distance(call.before, call.start);
    }

    /// Counts the call down. Returns true if this is the next timed one.
    #[inline(always)]
    pub fn is_next_timed(&mut self) -> bool {
        self.countdown = self.countdown.wrapping_sub(1);
        self.countdown == 0
    }

    /// Returns how a call that was not timed is detected, if it is. `before` is the last reading before the call, by
    /// anyone.
    #[inline]
    pub fn detect(
        &self,
        config: &Config,
        before: u64,
        did_io: bool,
        evidence: &LongCallEvidence,
    ) -> Option<Detected> {
        evidence.of_call(before, before, || self.far(config), did_io)
    }

    /// Takes note of a call that was not timed but detected; `end` was read at its exit.
    #[inline]
    pub fn record_detected(
        &mut self,
        config: &Config,
        detected: Detected,
        before: u64,
        end: u64,
        first_of_start: bool,
        evidence: &mut LongCallEvidence,
    ) {
        let (raw, backsteps) = elapsed(before, end);
        let ticks = raw - self.distance;
        match detected {
            Detected::Certain if ticks >= config.affordable => evidence.detected = end,
            Detected::Certain => {}
            Detected::ByTick => self.note_long(config, ticks, evidence.period, 1.0, first_of_start),
        }
        self.timed_calls += 1;
        self.timer_calls += 1;
        self.clock_backsteps += backsteps;
        self.detected_calls += 1;
        self.detected_ticks += ticks;
        self.detected_variance += self.distance * self.distance;
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

    /// Adds a short sample.
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

    /// Adds a long call that the tick or a sample found, of which `counted` are counted one by one.
    #[inline]
    fn note_long(&mut self, config: &Config, ticks: f64, period: f64, counted: f64, first_of_start: bool) {
        let by_tick = if period > 0.0 {
            // It is detected only if the tick comes late enough in it.
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
        let known = self.certain_ticks + self.detected_ticks + self.samples.ticks + self.long.ticks;
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

    /// Returns the ticks after the last reading before a call from which a reading in it shows that it is long.
    #[inline]
    fn far(&self, config: &Config) -> f64 {
        config.long.max(FAR_FACTOR * self.distance)
    }

    /// Returns whether a detected call is worth looking at the next one.
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

    /// Returns all calls of the node so far.
    pub fn calls(&self) -> u64 {
        self.drawn.saturating_sub(self.countdown)
    }
}
