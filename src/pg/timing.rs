//! The clock in force and the sampler's process-wide state. One backend has one thread; only `LAST` is shared,
//! with the tick's signal handler, and so it is atomic.

use super::backend_local::BackendLocal;
use super::server;
use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::Xoroshiro128PlusPlus;
use rowsource_core::clock::{self, Source};
use rowsource_core::sampler::{Config, Proofs};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The last reading of the clock by anyone, in raw ticks of the clock in force.
pub static LAST: AtomicU64 = AtomicU64::new(0);
/// The last reading by the tick.
pub static TICKED: AtomicU64 = AtomicU64::new(0);
/// What proves calls long; `last` and `ticked` are filled in from the two above when they are asked.
pub static mut PROOFS: Proofs = Proofs::NONE;
/// Readings made so far in this backend, the tick's aside.
pub static mut READINGS: u64 = 0;
/// Whether the clock in force is the time stamp counter, which is read in place.
static mut TSC: bool = false;
/// Reads the clock in force.
pub static mut READ: fn() -> u64 = clock::system::monotonic;
pub static mut CONFIG: Config = Config {
    max_gap: 1.0,
    empty_interval: 0.0,
    reading: 0.0,
    affordable: 1.0,
    long: 1.0,
};
/// Nanoseconds of a tick of the clock in force.
pub static mut NS_PER_TICK: f64 = 1.0;
/// Where the gaps come from; seeded when a backend first measures.
pub static mut RANDOM: Random = Random(None);

/// A generator that is there from the start, so that the hot path need not ask.
pub struct Random(Option<Xoroshiro128PlusPlus>);

impl RngCore for Random {
    fn next_u64(&mut self) -> u64 {
        self.0.as_mut().map_or(0, RngCore::next_u64)
    }
    fn next_u32(&mut self) -> u32 {
        (self.next_u64() >> 32) as u32
    }
    fn fill_bytes(&mut self, bytes: &mut [u8]) {
        if let Some(random) = &mut self.0 {
            random.fill_bytes(bytes);
        }
    }
}

/// Measured statements that are running.
static mut DEPTH: u32 = 0;

/// What a measured statement inside another one replaces while it runs, to be put back when it is left.
pub struct Outer {
    tsc: bool,
    ns_per_tick: f64,
    read: fn() -> u64,
    config: Config,
}

/// Reads the clock and remembers the reading.
///
/// # Safety
/// Main thread only.
#[inline(always)]
pub unsafe fn read() -> u64 {
    // SAFETY: READ is only replaced by this thread.
    unsafe {
        let now = if TSC { clock::tsc::read() } else { READ() };
        LAST.store(now, Relaxed);
        READINGS += 1;
        now
    }
}

/// Puts a statement's clock and configuration in force.
///
/// # Safety
/// Main thread only.
#[inline(always)]
pub unsafe fn enter(source: Source, ns_per_tick: f64, config: &Config) -> Option<Outer> {
    // SAFETY: main thread; the handler reads READ as one word.
    unsafe {
        if let Random(None) = RANDOM {
            let seed = clock::system::monotonic() ^ (u64::from(std::process::id()) << 32);
            RANDOM = Random(Some(Xoroshiro128PlusPlus::seed_from_u64(seed)));
        }
        forget_proofs();
        let outer = (DEPTH > 0).then_some(Outer {
            tsc: TSC,
            ns_per_tick: NS_PER_TICK,
            read: READ,
            config: CONFIG,
        });
        if outer.is_some() {
            PROOFS.period *= NS_PER_TICK / ns_per_tick;
        }
        TSC = source == Source::Tsc;
        READ = source.read_fn();
        NS_PER_TICK = ns_per_tick;
        CONFIG = *config;
        DEPTH += 1;
        read();
        outer
    }
}

/// The time of day, in microseconds since 2000-01-01 UTC: asked from the system ten times a second at most, and
/// reckoned from a clock in between.
pub fn time_of_day(source: Source, ns_per_tick: f64) -> i64 {
    const KEPT: f64 = 1e5;
    static ASKED: BackendLocal<Cell<Option<(Source, u64, i64)>>> = BackendLocal::new(Cell::new(None));
    let reading = source.read();
    if let Some((clock, then, at)) = ASKED.get()
        && clock == source
    {
        let since = reading.wrapping_sub(then) as i64 as f64 * ns_per_tick / 1e3;
        if (0.0..KEPT).contains(&since) {
            return at + since as i64;
        }
    }
    let now = server::now();
    ASKED.set(Some((source, reading, now)));
    now
}

/// Puts back what [`enter`] replaced.
///
/// # Safety
/// Main thread only.
#[inline(always)]
pub unsafe fn leave(outer: Option<&Outer>) {
    // SAFETY: as in `enter`.
    unsafe {
        forget_proofs();
        DEPTH -= 1;
        if let Some(outer) = outer {
            PROOFS.period *= NS_PER_TICK / outer.ns_per_tick;
            TSC = outer.tsc;
            READ = outer.read;
            NS_PER_TICK = outer.ns_per_tick;
            CONFIG = outer.config;
            read();
        }
    }
}

/// Readings of another statement, or by another clock, prove nothing. The tick goes on.
unsafe fn forget_proofs() {
    // SAFETY: main thread.
    unsafe {
        TICKED.store(0, Relaxed);
        PROOFS.noticed = 0;
    }
}

/// The proofs as they are now.
///
/// # Safety
/// Main thread only.
#[inline(always)]
pub unsafe fn proofs() -> *mut Proofs {
    // SAFETY: main thread.
    unsafe {
        PROOFS.last = LAST.load(Relaxed);
        PROOFS.ticked = TICKED.load(Relaxed);
        &raw mut PROOFS
    }
}
