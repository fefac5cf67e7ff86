//! The current clock and the sampler's process-wide state. A backend has one thread. The tick's signal handler uses only
//! the two readings, which are atomic, and the clock's function, which is one word.

use super::state::{HOT, Random};
use rand_core::SeedableRng;
use rand_xoshiro::Xoroshiro128PlusPlus;
use rowsource_core::clock::{self, Source};
use rowsource_core::sampler::Config;
use std::sync::atomic::Ordering::Relaxed;

/// The values that a nested measured statement replaces while it runs, and restores when it is left.
pub struct Outer {
    tsc: bool,
    ns_per_tick: f64,
    read: fn() -> u64,
    config: Config,
}

/// Returns the last clock reading.
#[inline(always)]
pub fn last() -> u64 {
    HOT.last.load(Relaxed)
}

/// Returns the last reading by the tick.
#[inline(always)]
pub fn ticked() -> u64 {
    HOT.ticked.load(Relaxed)
}

/// Reads the clock and remembers the reading.
#[inline(always)]
pub fn read() -> u64 {
    let now = if HOT.tsc.get() {
        clock::tsc::read()
    } else {
        (HOT.read.get())()
    };
    HOT.last.store(now, Relaxed);
    HOT.readings.set(HOT.readings.get() + 1);
    now
}

/// Reads the clock for the tick. It is async-signal-safe, because all clocks are, and the current clock changes as one
/// word.
pub fn tick() {
    let now = (HOT.read.get())();
    HOT.last.store(now, Relaxed);
    HOT.ticked.store(now, Relaxed);
}

/// Notes the period at which the tick reads the clock, in nanoseconds; 0 if it does not run.
pub fn note_period(ns: f64) {
    set_period(ns / HOT.ns_per_tick.get());
}

/// Notes the tick's period in ticks of the clock.
#[inline(always)]
fn set_period(period: f64) {
    // SAFETY: only the hot path takes a reference to the evidence, for one call into the sampler, which does not call this.
    unsafe { (*HOT.evidence.as_ptr()).period = period };
}

/// Makes a statement's clock and configuration the current ones.
#[inline(always)]
pub fn enter(source: Source, ns_per_tick: f64, config: &Config) -> Option<Outer> {
    let random = HOT.random.get();
    // SAFETY: only the hot path also takes a reference to the generator, for one call into the sampler, which does not call
    // this.
    unsafe {
        if let Random(None) = *random {
            let seed = clock::system::monotonic() ^ (u64::from(std::process::id()) << 32);
            *random = Random(Some(Xoroshiro128PlusPlus::seed_from_u64(seed)));
        }
    }
    clear_evidence();
    let outer = (HOT.depth.get() > 0).then(|| Outer {
        tsc: HOT.tsc.get(),
        ns_per_tick: HOT.ns_per_tick.get(),
        read: HOT.read.get(),
        config: HOT.config.get(),
    });
    if outer.is_some() {
        set_period(HOT.evidence.get().period * (HOT.ns_per_tick.get() / ns_per_tick));
    }
    HOT.tsc.set(source == Source::Tsc);
    HOT.read.set(source.read_fn());
    HOT.ns_per_tick.set(ns_per_tick);
    HOT.config.set(*config);
    HOT.depth.set(HOT.depth.get() + 1);
    read();
    outer
}

/// Restores what [`enter`] replaced.
#[inline(always)]
pub fn leave(outer: Option<&Outer>) {
    clear_evidence();
    HOT.depth.set(HOT.depth.get() - 1);
    if let Some(outer) = outer {
        set_period(HOT.evidence.get().period * (HOT.ns_per_tick.get() / outer.ns_per_tick));
        HOT.tsc.set(outer.tsc);
        HOT.read.set(outer.read);
        HOT.ns_per_tick.set(outer.ns_per_tick);
        HOT.config.set(outer.config);
        read();
    }
}

/// Clears the evidence, because readings of another statement or by another clock are no evidence. The tick goes on.
#[inline(always)]
fn clear_evidence() {
    HOT.ticked.store(0, Relaxed);
    // SAFETY: only the hot path takes a reference to the evidence, for one call into the sampler, which does not call this.
    unsafe { (*HOT.evidence.as_ptr()).detected = 0 };
}

/// Copies the last reading and the tick's last reading into the evidence.
#[inline(always)]
pub fn collect_evidence() {
    let evidence = HOT.evidence.as_ptr();
    // SAFETY: only the hot path takes a reference to the evidence, for one call into the sampler, which does not call this.
    unsafe {
        (*evidence).last = last();
        (*evidence).ticked = ticked();
    }
}
