//! The per-process state of the hot path. It is in one struct, so that it takes few cache lines. Only
//! `usage`, `timing`, `beats` and the wrapper change it, and the heart changes the words of [`Beats`] that
//! are its own.

use super::account::Usage;
use super::node::Account;
use crate::pg::border::backend_local::BackendLocal;
use crate::pg::compat;
use pgrx::pg_sys;
use rand_core::RngCore;
use rand_xoshiro::Xoroshiro128PlusPlus;
use rowsource_core::beat::Beats;
use rowsource_core::clock;
use rowsource_core::sampler::{Config, LongCallEvidence};
use std::cell::{Cell, UnsafeCell};
use std::sync::atomic::{AtomicPtr, AtomicU64};

/// A random number generator that always exists, so that the hot path need not check for it.
pub struct Random(pub Option<Xoroshiro128PlusPlus>);

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

/// The first fields are used by each call of a node, the last ones by each statement. It fills a page of the
/// smallest size: `pg::live` maps the page that it is in onto shared memory.
#[repr(C, align(4096))]
pub struct Hot {
    /// The account of the running node. It is always live.
    pub current: Cell<Account>,
    /// The address of PostgreSQL's counters. It never changes. But each check loads it from here, because a
    /// compiler that knows that it is the same would keep it in a register, and save and restore that at each
    /// call.
    pub counters: AtomicPtr<pg_sys::BufferUsage>,
    /// The sums of the counters at the last charge, and what else the heart writes or reads.
    pub beats: Beats,
    /// The last clock reading, in raw ticks of the current clock.
    pub last: AtomicU64,
    /// The number of readings in this backend.
    pub readings: Cell<u64>,
    /// Whether the current clock is the time stamp counter, which is read inline.
    pub tsc: Cell<bool>,
    /// Reads the current clock.
    pub read: Cell<fn() -> u64>,
    /// Nanoseconds per tick of the current clock.
    pub ns_per_tick: Cell<f64>,
    /// The reading when a beat was last taken.
    pub ticked: Cell<u64>,
    /// The last reading before the mark of a nested statement or a subplan; 0 if there is none.
    pub before_mark: AtomicU64,
    /// The evidence that calls were long. Its `last` and `ticked` are copied from the two fields above before
    /// it is used.
    pub evidence: Cell<LongCallEvidence>,
    pub config: Cell<Config>,
    /// From which reading on the clock's own cost is measured again.
    pub calibrate_at: Cell<u64>,
    /// Generates the gaps between samples. It is seeded when a backend first measures.
    pub random: UnsafeCell<Random>,
    /// The counters at the last charge.
    pub last_charged: Cell<Usage>,
    /// The number of running measured statements.
    pub depth: Cell<u32>,
}

/// The account of everything outside all measured nodes.
#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
pub static OUTSIDE: BackendLocal<UnsafeCell<Usage>> = BackendLocal::new(UnsafeCell::new(Usage::zero()));

pub static HOT: BackendLocal<Hot> = BackendLocal::new(Hot {
    current: Cell::new(Account::of(OUTSIDE.inner().get())),
    counters: AtomicPtr::new(compat::buffer_usage()),
    beats: Beats::new(),
    last: AtomicU64::new(0),
    readings: Cell::new(0),
    tsc: Cell::new(false),
    read: Cell::new(clock::system::monotonic),
    ns_per_tick: Cell::new(1.0),
    ticked: Cell::new(0),
    before_mark: AtomicU64::new(0),
    evidence: Cell::new(LongCallEvidence::NONE),
    config: Cell::new(Config {
        max_gap: 1.0,
        empty_interval: 0.0,
        empty_in_order: 0.0,
        reading: 0.0,
        nested_reading: 0.0,
        affordable: 1.0,
        long: 1.0,
        step: 0.0,
    }),
    calibrate_at: Cell::new(0),
    random: UnsafeCell::new(Random(None)),
    last_charged: Cell::new(Usage::zero()),
    depth: Cell::new(0),
});
