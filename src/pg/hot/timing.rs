//! The current clock and the sampler's process-wide state. A backend has one thread.

use super::state::{HOT, Random};
use super::usage;
use rand_core::SeedableRng;
use rand_xoshiro::Xoroshiro128PlusPlus;
use rowsource_core::beat::YOUNG_NS;
use rowsource_core::breaker::Costs;
use rowsource_core::clock::{self, Source};
use rowsource_core::sampler::{Config, LongCallEvidence};
use std::sync::atomic::Ordering::Relaxed;

/// How often the clock's own cost is measured again while a statement runs, in nanoseconds. That takes 1 to 3
/// us.
const CALIBRATE_EACH_NS: f64 = 4e6;

/// The values that a nested measured statement replaces while it runs, and restores when it is left.
pub struct Outer {
    tsc: bool,
    ns_per_tick: f64,
    read: fn() -> u64,
    config: Config,
    /// The last reading before the node's call in which the nested statement runs.
    before: u64,
    /// The reading when a beat was last taken.
    ticked: u64,
    calibrate_at: u64,
}

/// Returns the last clock reading.
#[inline(always)]
pub fn last() -> u64 {
    HOT.last.load(Relaxed)
}

/// Reads the clock and remembers the reading. If `IN_ORDER`, reads it after all that was executed before.
/// Other clocks than the time stamp counter wait for that anyway.
#[inline(always)]
pub fn read<const IN_ORDER: bool>() -> u64 {
    let now = match HOT.tsc.get() {
        true if IN_ORDER => clock::tsc::read_in_order(),
        true => clock::tsc::read(),
        false => (HOT.read.get())(),
    };
    HOT.last.store(now, Relaxed);
    now
}

/// Reads the clock, remembers the reading, and counts it.
#[inline(always)]
pub fn read_and_count() -> u64 {
    HOT.readings.set(HOT.readings.get() + 1);
    read::<false>()
}

/// Measures the clock's own cost again, if some time has passed since the last time. A processor that gets
/// slower, because it saves power or because its other half is busy, would add the difference to each timed
/// call.
#[inline(always)]
pub fn calibrate() {
    if last() >= HOT.calibrate_at.get() {
        measure_empty_interval();
    }
}

/// Returns what a reading of the clock costs that timed last. An empty interval has one reading, and its
/// length is the least of several measurements. A coarse clock does not know it.
pub fn costs() -> Costs {
    let (config, ns_per_tick) = (HOT.config.get(), HOT.ns_per_tick.get());
    let reading = match config.empty_interval {
        empty if empty > 0.0 => config.reading.min(empty),
        _ => config.reading,
    };
    Costs {
        reading_ns: reading * ns_per_tick,
        sampled_ns: (reading + config.nested_reading - config.reading) * ns_per_tick,
    }
}

/// Notes that the clock's cost need not be measured now.
fn calibrate_later() {
    let ticks = (CALIBRATE_EACH_NS / HOT.ns_per_tick.get()) as u64;
    HOT.calibrate_at.set(last().wrapping_add(ticks));
}

#[cold]
#[inline(never)]
fn measure_empty_interval() {
    calibrate_later();
    let mut config = HOT.config.get();
    match HOT.tsc.get() {
        true => {
            least_interval(clock::tsc::read, &mut config.empty_interval);
            least_interval(clock::tsc::read_in_order, &mut config.empty_in_order);
        }
        false => {
            least_interval(HOT.read.get(), &mut config.empty_interval);
            config.empty_in_order = config.empty_interval;
        }
    }
    HOT.config.set(config);
}

/// Sets `empty` to the least mean of a few rounds. If the clock stepped back in all of them, it stays.
fn least_interval(read: impl Fn() -> u64, empty: &mut f64) {
    /// The first round fills the caches. Something may interrupt another one.
    const ROUNDS: u32 = 4;
    let mut least = f64::INFINITY;
    for _ in 0..ROUNDS {
        let mean = mean_interval(&read);
        if mean >= 0.0 && mean < least {
            least = mean;
        }
    }
    if least < f64::INFINITY {
        *empty = least;
    }
}

/// Returns the mean of a few empty intervals, in ticks of the clock. It is not inlined, so that each round
/// runs the same code.
#[inline(never)]
fn mean_interval(read: impl Fn() -> u64) -> f64 {
    const PAIRS: u32 = 4;
    let mut sum = 0_i64;
    for _ in 0..PAIRS {
        let start = read();
        sum = sum.wrapping_add(read().wrapping_sub(start) as i64);
    }
    sum as f64 / f64::from(PAIRS)
}

/// Leaves a mark that the clock was read inside a call that began after the reading `before`: the next check
/// of the counters finds a change. If there is a mark, that one stays.
#[inline(always)]
pub fn mark(before: u64) {
    if HOT.before_mark.load(Relaxed) == 0 {
        HOT.before_mark.store(before, Relaxed);
    }
    HOT.beats.mark();
}

/// Removes the mark, and takes the beats that have come. Each is inside of the code that has run since the
/// last check.
#[inline(always)]
pub fn remove_mark() {
    if HOT.beats.is_pending() {
        take_beats();
    }
}

#[cold]
#[inline(never)]
fn take_beats() {
    let taken = HOT.beats.take(usage::charged_sums());
    HOT.before_mark.store(0, Relaxed);
    if taken.beats > 0 {
        let now = read::<false>();
        HOT.ticked.set(now);
        let period = taken.gap_ns as f64 / HOT.ns_per_tick.get();
        change_evidence(|evidence| evidence.take_beat(now, period));
    }
}

/// Returns the last clock reading before the mark, or the last one if there is none.
#[inline(always)]
pub fn last_before_mark() -> u64 {
    match HOT.before_mark.load(Relaxed) {
        0 => last(),
        before => before,
    }
}

/// Removes all marks, because the outermost statement has ended.
pub fn discard_beats() {
    HOT.beats.take(usage::charged_sums());
    HOT.before_mark.store(0, Relaxed);
}

/// Notes that the session wishes for beats from now on: it had none yet.
pub fn begin_beats() {
    let usual = YOUNG_NS / HOT.ns_per_tick.get();
    change_evidence(|evidence| evidence.begin_beats(usual));
    calibrate_later();
}

/// Converts what is known of the beats to a clock whose ticks take `factor` times less.
fn convert_beats(factor: f64) {
    change_evidence(|evidence| evidence.convert(factor));
}

/// Changes a copy of what is known of long calls, and keeps it.
fn change_evidence(change: impl FnOnce(&mut LongCallEvidence)) {
    let mut evidence = HOT.evidence.get();
    change(&mut evidence);
    HOT.evidence.set(evidence);
}

/// Makes a statement's clock and configuration the current ones.
#[inline(always)]
pub fn enter(source: Source, ns_per_tick: f64, config: &Config) -> Option<Outer> {
    let random = HOT.random.get();
    // SAFETY: only the hot path also takes a reference to the generator, for one call into the sampler, which
    // does not call this.
    unsafe {
        if let Random(None) = *random {
            *random = seeded();
        }
    }
    // The run before has cleared its own.
    let outer = (HOT.depth.get() > 0).then(|| leave_outer(ns_per_tick));
    HOT.tsc.set(source == Source::Tsc);
    HOT.read.set(source.read_fn());
    HOT.ns_per_tick.set(ns_per_tick);
    HOT.config.set(*config);
    HOT.depth.set(HOT.depth.get() + 1);
    read_and_count();
    outer
}

/// Returns a new random number generator.
#[cold]
#[inline(never)]
fn seeded() -> Random {
    let seed = clock::system::monotonic() ^ (u64::from(std::process::id()) << 32);
    Random(Some(Xoroshiro128PlusPlus::seed_from_u64(seed)))
}

/// Returns what [`leave`] restores. Converts the beats to the clock of the nested statement, whose ticks take
/// `ns_per_tick` nanoseconds.
#[cold]
#[inline(never)]
fn leave_outer(ns_per_tick: f64) -> Outer {
    let outer = Outer {
        tsc: HOT.tsc.get(),
        ns_per_tick: HOT.ns_per_tick.get(),
        read: HOT.read.get(),
        config: HOT.config.get(),
        before: last_before_mark(),
        ticked: HOT.ticked.get(),
        calibrate_at: HOT.calibrate_at.get(),
    };
    convert_beats(outer.ns_per_tick / ns_per_tick);
    clear_evidence();
    outer
}

/// Restores what [`enter`] replaced.
#[inline(always)]
pub fn leave(outer: Option<&Outer>) {
    HOT.depth.set(HOT.depth.get() - 1);
    match outer {
        None => clear_evidence(),
        Some(outer) => return_to(outer),
    }
}

/// Restores the clock and configuration of the statement that called for the nested one. A beat that the
/// nested statement has taken came in the call of a node of that statement.
#[cold]
#[inline(never)]
fn return_to(outer: &Outer) {
    let has_beaten = HOT.ticked.get() != 0;
    clear_evidence();
    convert_beats(HOT.ns_per_tick.get() / outer.ns_per_tick);
    HOT.tsc.set(outer.tsc);
    HOT.read.set(outer.read);
    HOT.ns_per_tick.set(outer.ns_per_tick);
    HOT.config.set(outer.config);
    HOT.calibrate_at.set(outer.calibrate_at);
    let now = read_and_count();
    HOT.ticked.set(if has_beaten { now } else { outer.ticked });
    // Nested statements of the same call may have removed the mark.
    remove_mark();
    mark(outer.before);
}

/// Clears the evidence, because readings of another statement or by another clock are no evidence.
#[inline(always)]
fn clear_evidence() {
    HOT.ticked.set(0);
    // SAFETY: only the hot path takes a reference to the evidence, for one call into the sampler, which does
    // not call this.
    unsafe { (*HOT.evidence.as_ptr()).detected = 0 };
}

/// Copies the last reading, and that at which a beat was last taken, into the evidence.
#[inline(always)]
pub fn collect_evidence() {
    let evidence = HOT.evidence.as_ptr();
    // SAFETY: only the hot path takes a reference to the evidence, for one call into the sampler, which does
    // not call this.
    unsafe {
        (*evidence).last = last();
        (*evidence).ticked = HOT.ticked.get();
    }
}
