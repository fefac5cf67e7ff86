//! What a statement publishes of itself, beside its nodes.

use crate::pg::border::shared::load;
use rowsource_core::blocks::Generation;
use rowsource_core::clock::{Source, elapsed};
use rowsource_core::model::PlanKey;
use rowsource_core::sampler::Config;
use std::cell::UnsafeCell;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, fence};

/// How a statement is measured. It is the same for all executions. All fields are numbers, because readers
/// may copy it while it changes.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Setup {
    pub key: PlanKey,
    /// Nanoseconds per tick of the clock.
    pub tick_ns: f64,
    pub config: Config,
    /// The address of the first node in the session.
    pub first: usize,
    pub count: usize,
    /// The address of the account outside the nodes.
    pub outside: usize,
    /// The index of the clock in `Source::ALL`.
    pub clock: u8,
    /// A `Timed`.
    pub timed: u8,
    /// 1 if starts, buffers and WAL are measured.
    pub has_usage: u8,
    /// 1 if core measures some of the nodes.
    pub core_contributes: u8,
    pub sampfreq: i32,
}

/// The words of a [`Setup`], in which readers copy it.
const WORDS: usize = size_of::<Setup>() / 8;
const _: () = assert!(size_of::<Setup>() == WORDS * 8 && align_of::<Setup>() == 8);

/// The published state of a statement. Only its session writes it. Zero bytes are a statement that is not
/// live.
#[repr(C)]
pub struct Header {
    pub generation: Generation,
    setup: UnsafeCell<Setup>,
    /// The clock's reading when the current run began.
    run_began: AtomicU64,
    /// That of the first run.
    began: AtomicU64,
    /// Nanoseconds in the runs that have ended, as bits of an f64.
    elapsed_ns: AtomicU64,
    /// The address of the account that called for the current run.
    caller: AtomicU64,
    /// The number of statements in which it is nested.
    depth: AtomicU32,
    is_running: AtomicBool,
    /// A client asked for the current run, or the last one: what a function opened counts as the client's
    /// from then on.
    is_for_client: AtomicBool,
}

// SAFETY: only the one thread of the session writes the setup. Readers in other processes copy it word by
// word, and use it only if the generation shows that it was not written meanwhile.
unsafe impl Sync for Header {}

/// A copy of what changes while a statement is live.
#[derive(Clone, Copy, Debug)]
pub struct State {
    pub run_began: u64,
    pub began: u64,
    pub elapsed_ns: f64,
    pub caller: usize,
    pub depth: u32,
    pub is_running: bool,
}

impl Header {
    /// Returns the header of a statement that is not live.
    pub const fn new() -> Header {
        // SAFETY: all fields are numbers.
        unsafe { std::mem::zeroed() }
    }

    /// Notes how the statement is measured.
    ///
    /// # Safety
    /// Only the session that owns the header may call this, while the statement is not live.
    pub unsafe fn set_up(&self, setup: Setup) {
        fence(Release);
        // SAFETY: only this thread writes the setup, by the caller's promise.
        unsafe { self.setup.get().write_volatile(setup) };
    }

    /// Notes that a run of the statement begins. `is_first` says that it is the first run of an execution,
    /// and `is_for_client` that no other statement asked for the run.
    #[inline(always)]
    pub fn enter(&self, is_first: bool, now: u64, caller: usize, depth: u32, is_for_client: bool) {
        self.is_for_client.store(is_for_client, Relaxed);
        self.run_began.store(now, Relaxed);
        self.caller.store(caller as u64, Relaxed);
        self.depth.store(depth, Relaxed);
        if is_first {
            self.began.store(now, Relaxed);
            self.elapsed_ns.store(0, Relaxed);
            self.is_running.store(true, Relaxed);
            self.generation.begin();
        } else {
            self.is_running.store(true, Release);
        }
    }

    /// Notes that a run has ended. `elapsed_ns` is the time in all runs so far.
    #[inline(always)]
    pub fn leave(&self, elapsed_ns: f64) {
        self.is_running.store(false, Relaxed);
        self.elapsed_ns.store(elapsed_ns.to_bits(), Relaxed);
    }

    /// Notes that the statement has ended: its nodes may change from now on. Does nothing if it is not live.
    #[inline(always)]
    pub fn end(&self) {
        self.generation.end();
    }

    /// Returns the depth of a statement that runs inside this one.
    #[inline(always)]
    pub fn depth_inside(&self) -> u32 {
        self.depth.load(Relaxed).wrapping_add(1)
    }

    /// Returns a copy of the state.
    pub fn state(&self) -> State {
        let is_running = self.is_running.load(Acquire);
        State {
            run_began: self.run_began.load(Relaxed),
            began: self.began.load(Relaxed),
            elapsed_ns: f64::from_bits(self.elapsed_ns.load(Relaxed)),
            caller: self.caller.load(Relaxed) as usize,
            depth: self.depth.load(Relaxed),
            is_running,
        }
    }

    /// Returns a copy of the setup. It is valid only if the generation is still the same afterwards.
    pub fn setup(&self) -> Setup {
        let mut words = [0u64; WORDS];
        let from: *const u64 = self.setup.get().cast();
        for (i, word) in words.iter_mut().enumerate() {
            // SAFETY: the setup has so many words, which are initialised. The owner may change each
            // meanwhile, as a whole.
            *word = unsafe { load(from.add(i)) };
        }
        // SAFETY: the sizes are the same, and all fields are numbers, for which all bits are valid.
        let setup: Setup = unsafe { std::mem::transmute(words) };
        match self.is_for_client.load(Relaxed) {
            true => Setup {
                key: setup.key.at_toplevel(),
                ..setup
            },
            false => setup,
        }
    }

    /// Returns about how many nanoseconds ago the last run of a statement that is not live ended.
    pub fn idle_ns(&self) -> f64 {
        let (setup, state) = (self.setup(), self.state());
        let clock = Source::ALL.get(usize::from(setup.clock));
        match clock {
            // No statement has run.
            _ if state.run_began == 0 => f64::INFINITY,
            Some(clock) => {
                let since = elapsed(state.run_began, clock.read()).unwrap_or(0);
                since as f64 * setup.tick_ns - state.elapsed_ns
            }
            None => 0.0,
        }
    }
}
