//! The state of this process that the hot path touches, in one place, so that it takes few lines of cache. Only `usage`,
//! `timing`, the wrapper and the tick change it.

use crate::pg::server::backend_local::BackendLocal;
use pgrx::pg_sys;
use rand_core::RngCore;
use rand_xoshiro::Xoroshiro128PlusPlus;
use rowsource_core::clock;
use rowsource_core::sampler::{Config, LongCallEvidence};
use std::cell::{Cell, UnsafeCell};
use std::sync::atomic::AtomicU64;

/// What one node used by itself.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Usage {
    pub buffers: pg_sys::BufferUsage,
    pub wal: pg_sys::WalUsage,
}

impl Usage {
    pub const fn zero() -> Self {
        // SAFETY: both are plain integers, for which zero bytes are a valid value.
        unsafe { std::mem::zeroed() }
    }
}

/// A random number generator that exists from the start, so that the hot path need not ask for it.
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

/// Each call of a node touches what lies first, each statement what lies last.
#[repr(C, align(64))]
pub struct Hot {
    /// The account of the node that runs now; always live.
    pub current: Cell<*mut Usage>,
    /// PostgreSQL's counters. By a variable, so that the hot path loads their address twice rather than keep it in a
    /// register that it must save.
    pub counters: Cell<*const pg_sys::BufferUsage>,
    /// The signatures of the counters at the last charge, one per `wrapper::scope`.
    pub signatures: [Cell<i64>; 3],
    /// The last reading of the clock by anyone, in raw ticks of the clock in force. The tick's signal handler writes it.
    pub last: AtomicU64,
    /// Readings made so far in this backend, the tick's aside.
    pub readings: Cell<u64>,
    /// Whether the clock in force is the time stamp counter, which is read in place.
    pub tsc: Cell<bool>,
    /// Reads the clock in force. The tick's signal handler reads it, as one word.
    pub read: Cell<fn() -> u64>,
    /// Nanoseconds of a tick of the clock in force.
    pub ns_per_tick: Cell<f64>,
    /// The last reading by the tick.
    pub ticked: AtomicU64,
    /// What shows that calls were long; `last` and `ticked` are filled in from the two above before it is asked.
    pub evidence: Cell<LongCallEvidence>,
    pub config: Cell<Config>,
    /// Where the gaps come from; seeded when a backend first measures.
    pub random: UnsafeCell<Random>,
    /// The counters at the last charge.
    pub last_charged: Cell<Usage>,
    /// Measured statements that are running.
    pub depth: Cell<u32>,
}

/// Takes what happens outside every measured node.
pub static OUTSIDE: BackendLocal<UnsafeCell<Usage>> = BackendLocal::new(UnsafeCell::new(Usage::zero()));

pub static HOT: BackendLocal<Hot> = BackendLocal::new(Hot {
    current: Cell::new(OUTSIDE.inner().get()),
    counters: Cell::new(&raw const pg_sys::pgBufferUsage),
    signatures: [const { Cell::new(0) }; 3],
    last: AtomicU64::new(0),
    readings: Cell::new(0),
    tsc: Cell::new(false),
    read: Cell::new(clock::system::monotonic),
    ns_per_tick: Cell::new(1.0),
    ticked: AtomicU64::new(0),
    evidence: Cell::new(LongCallEvidence::NONE),
    config: Cell::new(Config {
        max_gap: 1.0,
        empty_interval: 0.0,
        reading: 0.0,
        affordable: 1.0,
        long: 1.0,
    }),
    random: UnsafeCell::new(Random(None)),
    last_charged: Cell::new(Usage::zero()),
    depth: Cell::new(0),
});
