//! The timer of a node: chooses the calls to time, and sums up their times.

use super::config::Config;
use super::elapsed::elapsed;
use super::evidence::{Detected, LongCallEvidence};
use super::gaps::Gaps;
use crate::float::{at_least, at_most};
use rand_core::RngCore;

/// The number of calls that are timed without gaps at the start of each node. So all calls of short
/// statements are timed.
pub(super) const FIRST_CALLS: u64 = 16;

/// The same of a node whose calls are known from earlier executions.
const FIRST_KNOWN_CALLS: u64 = 1;

/// A gap is at most this part of the calls so far, so that a few hundred calls still give some samples, and
/// changes of the costs are detected early. For this, the first few thousand calls cost about 50 more samples
/// (2 us per node).
const GROWTH: f64 = 1.0 / 12.0;

/// The same of a node whose calls are known, up to the next limit. So an execution that makes few calls times
/// most of them.
const GROWTH_IF_KNOWN: f64 = 0.5;

/// A gap of such a node is at most this part of the calls that are known.
const GAP_IF_KNOWN: f64 = 1.0 / 8.0;

/// If a node's time is precise, the timer may cost only a part of its share: the share divided by one more
/// each time that this number of calls was timed.
const CALLS_OF_DIVISOR: f64 = 2048.0;

/// The largest divisor. With it, calls that are long are still timed without gaps.
const MAX_DIVISOR: f64 = super::config::LONG_FACTOR;

/// The time is precise if its standard error, squared, is at most this part of its square, divided by the
/// divisor of the share. The error is 1 % for the whole share, and 0.5 % for a quarter of it.
const PRECISE: f64 = 1e-4;

/// A call that uses at least this many buffers counts as one that did I/O.
pub const MANY_BUFFERS: i64 = 32;

/// The clock readings around one timed call.
#[derive(Clone, Copy, Debug)]
pub struct TimedCall {
    /// The last reading before this call, by any node.
    pub before: u64,
    /// The reading at its start.
    pub start: u64,
    /// The reading at its end.
    pub end: u64,
    /// The number of readings that other nodes made inside the call.
    pub nested_readings: u64,
    /// The call did I/O or used many buffers.
    pub did_io: bool,
    /// The first call since the node was started or rescanned.
    pub first_of_start: bool,
}

/// The timing state of one plan node. Zeroed memory is a valid initial value, after a call of
/// [`NodeTimer::start`].
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct NodeTimer {
    /// The number of calls until the next timed one. The call that counts it down to zero is timed.
    pub countdown: u64,
    pub(super) drawn: u64,
    /// The number of calls at the beginning that are timed without gaps.
    pub(super) first_calls: u64,
    /// The size of the block, which is the weight of its timed call.
    pub(super) gap: f64,
    pub(super) recent: f64,
    /// The time of the first call.
    pub(super) opening: f64,
    pub(super) certain_calls: u64,
    pub(super) certain_ticks: f64,
    /// Ticks to the first row of each start, summed over the calls that are counted individually.
    pub(super) startup_ticks: f64,
    pub(super) startup_calls: u64,
    /// The number of timed calls and of detected calls.
    pub timed_calls: u64,
    /// The number of readings smaller than the one before.
    pub clock_backsteps: u64,
    /// It is zero until a gap is chosen. It comes last, so that the rest can be cleared alone.
    pub gaps: Gaps,
}

impl NodeTimer {
    /// Makes the timer time the first call.
    pub fn start(&mut self) {
        self.countdown = 1;
        self.drawn = 1;
        self.first_calls = FIRST_CALLS;
        self.gap = 1.0;
    }

    /// Makes the timer time the first call, and fewer of the next ones, because earlier executions tell how
    /// long they take.
    pub fn start_known(&mut self, calls: f64, usual_ticks: f64) {
        self.start();
        self.first_calls = FIRST_KNOWN_CALLS;
        self.gaps.known_calls = calls;
        self.recent = usual_ticks;
    }

    /// Returns whether a gap may have been chosen since [`NodeTimer::start`]. After
    /// [`NodeTimer::start_known`], one may have been in any case.
    #[inline(always)]
    pub fn may_have_gaps(&self) -> bool {
        self.drawn > FIRST_CALLS
    }

    /// Returns whether the timed call in progress is one of the first ones, all of which are timed. The last
    /// one of them is not: after it, a gap is drawn.
    #[inline(always)]
    pub fn is_beginning(&self) -> bool {
        self.drawn < self.first_calls
    }

    /// Records such a call. The next one is timed too.
    #[inline(always)]
    pub fn record_first(&mut self, config: &Config, call: &TimedCall, evidence: &mut LongCallEvidence) {
        let (raw, ticks) = self.time(config, config.empty_interval, call);
        if self.drawn == 1 {
            self.opening = ticks;
        }
        self.count_alone(config, call, raw, ticks, evidence);
        self.countdown = 1;
        self.drawn += 1;
    }

    /// Notes that a call was timed. Returns its time, and its time without what its readings took: `empty`
    /// and those inside.
    #[inline(always)]
    fn time(&mut self, config: &Config, empty: f64, call: &TimedCall) -> (f64, f64) {
        let (raw, backsteps) = elapsed(call.start, call.end);
        // A short call may measure less than the mean empty interval. Setting each negative value to zero
        // would bias the sum.
        let overhead = empty + call.nested_readings as i64 as f64 * config.nested_reading;
        self.timed_calls += 1;
        self.clock_backsteps += backsteps;
        (raw, if backsteps == 0 { raw - overhead } else { 0.0 })
    }

    /// Counts a timed call that stands for itself.
    #[inline(always)]
    fn count_alone(
        &mut self,
        config: &Config,
        call: &TimedCall,
        raw: f64,
        ticks: f64,
        evidence: &mut LongCallEvidence,
    ) {
        if raw >= config.affordable {
            evidence.detected = call.end;
        }
        self.count(ticks, call.first_of_start);
    }

    /// Records a timed call and draws the gap to the next.
    ///
    /// Returns true if the gap is larger than 1. Then the caller must wish for beats.
    #[inline(always)]
    pub fn record_timed(
        &mut self,
        config: &Config,
        random: &mut impl RngCore,
        call: &TimedCall,
        evidence: &mut LongCallEvidence,
    ) -> bool {
        if self.is_beginning() {
            self.record_first(config, call, evidence);
            return false;
        }
        let (raw, ticks) = self.time(config, config.empty_in_order, call);
        if self.gap <= 1.0 {
            self.count_alone(config, call, raw, ticks, evidence);
        } else {
            self.weigh(config, call, raw, ticks, evidence);
        }
        self.gaps.own_reading = call.end;
        self.gaps.own_calls = self.drawn as u32;
        self.gaps.watch.note_time(config, call.end, evidence);
        self.draw(config, random, ticks)
    }

    /// Counts a timed call individually.
    #[inline]
    fn count(&mut self, ticks: f64, first_of_start: bool) {
        self.certain_calls += 1;
        self.certain_ticks += ticks;
        if first_of_start {
            self.startup_calls += 1;
            self.startup_ticks += ticks;
        }
    }

    /// Records a timed call of a block whose other calls are not timed.
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
        // This must come before `note_distance`, so that the test is the same as for a call that is not
        // timed. Readings before the start belong to other nodes.
        let detected = evidence.of_call(call.start, call.did_io);
        if detected.is_none() && raw < config.long / 2.0 {
            self.sample(config, ticks, first);
        } else {
            self.weigh_long(config, call, ticks, evidence, detected);
        }
        self.note_distance(config, call.before, call.start, evidence);
    }

    /// Counts such a call, if it is long, or if something was detected in it.
    #[inline(never)]
    fn weigh_long(
        &mut self,
        config: &Config,
        call: &TimedCall,
        ticks: f64,
        evidence: &mut LongCallEvidence,
        detected: Option<Detected>,
    ) {
        let first = call.first_of_start;
        let is_far = self.is_far(config, call.before, call.end);
        match detected {
            Some(Detected::Certain) => {
                if elapsed(call.start, call.end).0 >= config.affordable {
                    evidence.detected = call.end;
                }
                self.count(ticks, first);
            }
            Some(Detected::ByBeat) if is_far => {
                if self.note_beat(evidence, call.start, ticks, 0.0, first) {
                    self.count(ticks, first);
                }
            }
            _ => {
                if detected.is_some() {
                    self.gaps.watch.note_call(call.start, ticks, evidence);
                }
                if is_far || ticks >= config.long {
                    let period = if is_far { evidence.period_at(call.end) } else { 0.0 };
                    if is_far && period == 0.0 {
                        let others = (self.gap - 1.0) * ticks;
                        self.gaps.watch.note_guess(others, self.gap * ticks * others);
                    }
                    self.note_long(evidence, ticks, period, 0.0, first);
                } else {
                    self.sample(config, ticks, first);
                }
                return;
            }
        }
        if self.is_change(ticks) {
            self.gaps.left = 0;
        }
    }

    /// Returns whether the timed call in progress stands for others too. Before, all calls of a node are
    /// timed.
    #[inline(always)]
    pub fn is_sampling(&self) -> bool {
        self.gap > 1.0
    }

    /// Counts the call down. Returns true if this is the next timed one.
    #[inline(always)]
    pub fn is_next_timed(&mut self) -> bool {
        self.countdown = self.countdown.wrapping_sub(1);
        self.countdown == 0
    }

    /// Returns how a call that was not timed is detected, or `None`. `before` is the last reading before the
    /// call.
    #[inline]
    pub fn detect(before: u64, did_io: bool, evidence: &LongCallEvidence) -> Option<Detected> {
        evidence.of_call(before, did_io)
    }

    /// Records a call that was not timed but detected. `end` was read at its end. Returns false, and records
    /// nothing, if it was detected by a beat alone and was not long.
    #[inline]
    pub fn record_detected(
        &mut self,
        config: &Config,
        detected: Detected,
        before: u64,
        end: u64,
        first_of_start: bool,
        evidence: &mut LongCallEvidence,
    ) -> bool {
        let (raw, backsteps) = elapsed(before, end);
        let distance = self.distance(before);
        let ticks = raw - distance;
        let is_certain = match detected {
            Detected::Certain => {
                if ticks >= config.affordable {
                    evidence.detected = end;
                }
                true
            }
            Detected::ByBeat if !self.is_far(config, before, end) => {
                self.gaps.watch.note_call(before, 0.0, evidence);
                return false;
            }
            Detected::ByBeat => self.note_beat(evidence, before, ticks, 1.0, first_of_start),
        };
        self.timed_calls += 1;
        self.clock_backsteps += backsteps;
        self.gaps.detected_calls += 1;
        if is_certain {
            self.gaps.detected_ticks += ticks;
        }
        self.gaps.detected_variance += (distance * distance) as f32;
        if first_of_start {
            self.startup_calls += 1;
            self.startup_ticks += ticks;
        }
        if self.is_change(ticks) {
            self.drawn = self.drawn.saturating_sub(self.countdown) + 1;
            self.countdown = 1;
            self.gaps.left = 0;
            self.gap = 1.0;
        }
        true
    }

    /// Adds a short sample.
    #[inline]
    fn sample(&mut self, config: &Config, ticks: f64, first_of_start: bool) {
        let g = self.gap;
        let samples = &mut self.gaps.samples;
        let (half_g, half) = (g as f32, ticks as f32);
        let previous = if samples.weight > 0.0 {
            samples.previous
        } else {
            self.recent as f32
        };
        samples.weight += g;
        samples.ticks += g * ticks;
        // A long call makes the next gap small. So the difference to it counts as much as the one to the call
        // before it.
        let factor = half_g * (half_g - 1.0) / 2.0;
        let difference = half - previous;
        let term = at_least(samples.previous_factor, factor) * difference * difference;
        samples.variance += term;
        samples.previous = half;
        samples.previous_factor = factor;
        self.gaps.largest = at_least(term, self.gaps.largest);
        if config.step > 0.0 {
            samples.step = at_least(samples.step, (g * config.step) as f32);
        }
        if first_of_start {
            self.gaps.first.weight += half_g;
            self.gaps.first.ticks += half_g * half;
        }
    }

    /// Notes a long call that a beat found. Returns whether beats find all calls of its kind.
    #[inline]
    fn note_beat(
        &mut self,
        evidence: &LongCallEvidence,
        before: u64,
        ticks: f64,
        counted: f64,
        first_of_start: bool,
    ) -> bool {
        let is_certain = ticks >= evidence.period || evidence.is_late;
        if is_certain {
            self.gaps.watch.skip_call(ticks, evidence);
            // If the beats before and after it were as usual, it might have been missed.
            let weight = self.weight(evidence.usual_chance(ticks));
            self.gaps.detected_variance += (weight * (weight - 1.0) * ticks * ticks) as f32;
        } else {
            self.gaps.watch.note_call(before, ticks, evidence);
            self.note_long(evidence, ticks, evidence.period, counted, first_of_start);
        }
        is_certain
    }

    /// Returns the weight of a call that beats find with this probability, and samples too.
    #[inline]
    fn weight(&self, by_beats: f64) -> f64 {
        1.0 / (1.0 - (1.0 - by_beats) * (1.0 - 1.0 / self.gap))
    }

    /// Adds a long call that a beat or a sample found. A beat would find it if it stood for `period`; if that
    /// is 0, none would. `counted` is 1 if it is also one of the detected calls, else 0.
    #[inline]
    fn note_long(
        &mut self,
        evidence: &LongCallEvidence,
        ticks: f64,
        period: f64,
        counted: f64,
        first_of_start: bool,
    ) {
        let (by_beats, usual) = if period > 0.0 {
            (at_most(ticks / period, 1.0), evidence.usual_chance(ticks))
        } else {
            (0.0, 0.0)
        };
        let (weight, uncertain) = (self.weight(by_beats), self.weight(usual));
        let more = weight - counted;
        self.gaps.long.weight += more;
        self.gaps.long.ticks += weight * ticks;
        let term = uncertain * (uncertain - 1.0) * ticks * ticks;
        self.gaps.long.variance += term as f32;
        let found_by_beats = usual * uncertain;
        self.gaps.long.common += (found_by_beats * found_by_beats * term) as f32;
        self.gaps.largest = at_least(term as f32, self.gaps.largest);
        if first_of_start {
            self.gaps.first.weight += more as f32;
            self.gaps.first.ticks += (more * ticks) as f32;
        }
    }

    /// Chooses the next block and its timed call. The size of a block is 1 at first, then as small as the
    /// timer's share allows, and never above `sampfreq`.
    #[inline(always)]
    fn draw(&mut self, config: &Config, random: &mut impl RngCore, ticks: f64) -> bool {
        let calls = self.drawn as i64 as f64;
        let mut max = calls * GROWTH;
        if self.gaps.known_calls > 0.0 {
            let known = at_most(calls * GROWTH_IF_KNOWN, self.gaps.known_calls * GAP_IF_KNOWN);
            max = at_least(max, known);
        }
        let max = at_most(max, config.max_gap);
        let known = self.ticks_so_far();
        let longest = at_least(at_least(ticks, self.recent), (known - self.opening) / calls);
        let mean = if longest * at_least(max, 1.0) <= config.affordable && self.drawn != self.first_calls {
            // Most calls are so short that only the growth limits the gap.
            #[cfg(debug_assertions)]
            let mut other = *self;
            self.recent += (at_least(ticks, 0.0) - self.recent) / 8.0;
            #[cfg(debug_assertions)]
            {
                let affordable = other.affordable_gap(config, ticks, calls, known);
                debug_assert!(affordable >= max * (1.0 - 1e-9) && other.recent == self.recent);
            }
            max
        } else {
            at_most(self.affordable_gap(config, ticks, calls, known), max)
        };
        let (size, position) = if mean >= 1.5 {
            let size = (mean + 0.5) as u32;
            (size, ((random.next_u64() >> 32) * u64::from(size)) >> 32)
        } else {
            (1, 0)
        };
        self.gap = f64::from(size);
        self.countdown = u64::from(self.gaps.left) + position + 1;
        self.gaps.left = size - 1 - position as u32;
        self.drawn += self.countdown;
        size > 1
    }

    /// Notes how long a call took, and returns the gap that the timer's share allows.
    fn affordable_gap(&mut self, config: &Config, ticks: f64, calls: f64, known: f64) -> f64 {
        let timed = self.timed_calls as i64 as f64;
        let variance = f64::from(
            self.gaps.samples.error_squared() + self.gaps.long.variance + self.gaps.detected_variance,
        );
        let divisor = at_most(1.0 + timed / CALLS_OF_DIVISOR, MAX_DIVISOR);
        let affordable = if variance * divisor <= known * known * PRECISE {
            config.affordable * divisor
        } else {
            config.affordable
        };
        // `clamp` is not used, because it panics if its bounds are not numbers, and no panic may cross this
        // frame.
        let clip = |ticks: f64| at_most(at_least(ticks, 0.0), 2.0 * affordable);
        if self.drawn != self.first_calls {
            self.recent += (clip(ticks) - self.recent) / 8.0;
        } else if self.first_calls == FIRST_CALLS {
            // The first call also does set-up work, so it does not predict the next ones.
            self.recent = clip((self.certain_ticks - self.opening) / (FIRST_CALLS - 1) as f64);
        } else {
            self.opening = ticks;
        }
        // Rare long calls also justify samples, so that similar calls are found. The rest of their share is
        // spent on as many calls as there were before.
        let usual = at_least((known - self.opening - timed * affordable) / calls, self.recent);
        affordable / usual
    }

    /// Returns about how many ticks the calls so far took. [`NodeTimer::estimate`] knows it better, but not
    /// which part of them was before.
    pub fn ticks_so_far(&self) -> f64 {
        self.certain_ticks + self.gaps.detected_ticks + self.gaps.samples.ticks + self.gaps.long.ticks
    }

    /// Returns the number of clock readings for this node: two for a timed call, one for a detected call.
    #[inline(always)]
    pub fn timer_calls(&self) -> u64 {
        2 * self.timed_calls - self.gaps.detected_calls
    }

    /// Returns the number of calls of the node so far.
    pub fn calls(&self) -> u64 {
        self.drawn.saturating_sub(self.countdown)
    }
}
