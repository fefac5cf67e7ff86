//! Counts the processes that may change the plans, so that the last one to leave knows that it is the last.

use crate::pg::border::backend_local::BackendLocal;
use crate::pg::server;
use rowsource_core::pending::{Owner, OwnerGuard};
use std::cell::Cell;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicI64, AtomicU32};
use std::time::{Duration, Instant};

/// How long the worker waits for sessions when the server stops, and a process for another one that saves.
const MAX_WAIT: Duration = Duration::from_secs(5);
/// How often they look.
const PAUSE: Duration = Duration::from_millis(10);

/// A part of the control block. Zero bytes are those of a server without sessions.
#[repr(C)]
pub(super) struct Presence {
    /// The processes of which the last one to leave saves: sessions, and the background worker.
    present: AtomicU32,
    /// The sessions that may still record an execution. A session that ends leaves first, and then fails its
    /// running statement.
    recording: AtomicU32,
    /// The process that saves now.
    saver: Owner,
    /// When the plans were last saved, and how many microseconds that took.
    saved_at: AtomicI64,
    took: AtomicI64,
}

/// This process is counted in [`Presence::present`].
static IS_PRESENT: BackendLocal<Cell<bool>> = BackendLocal::new(Cell::new(false));
/// This process is counted in [`Presence::recording`].
static IS_RECORDING: BackendLocal<Cell<bool>> = BackendLocal::new(Cell::new(false));

impl Presence {
    /// Counts this process among those of which the last one to leave saves.
    pub fn arrive(&self) {
        if !IS_PRESENT.replace(true) {
            self.present.fetch_add(1, AcqRel);
        }
    }

    /// Ends that count of this process. Returns whether it was the last one.
    pub fn leave(&self) -> bool {
        IS_PRESENT.replace(false) && self.present.fetch_sub(1, AcqRel) == 1
    }

    /// Counts this process among those that may record executions.
    pub fn begin_recording(&self) {
        if !IS_RECORDING.replace(true) {
            self.recording.fetch_add(1, AcqRel);
        }
    }

    /// Ends that count of this process.
    pub fn end_recording(&self) {
        if IS_RECORDING.replace(false) {
            self.recording.fetch_sub(1, AcqRel);
        }
    }

    /// Waits until no session can record executions any more.
    pub fn wait_for_sessions(&self) {
        let began = Instant::now();
        while self.recording.load(Acquire) != 0 && began.elapsed() < MAX_WAIT {
            server::check_for_interrupts();
            std::thread::sleep(PAUSE);
        }
    }

    /// Lets this process save, until the guard is dropped. If another one saves, it may have read the plans
    /// before this one flushed its executions: then this process waits for it, if the server stops. Returns
    /// `None` if that takes too long.
    pub fn become_saver(&self, is_stopping: bool) -> Option<OwnerGuard<'_>> {
        let began = Instant::now();
        loop {
            let held = self.saver.hold_or_inherit(server::pid(), server::is_alive);
            if held.is_some() || !is_stopping || began.elapsed() >= MAX_WAIT {
                return held;
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Returns whether the plans were saved a short time ago, compared with how long that took. Without a
    /// worker, each session may be the last one. Then a twentieth of the time may go into saving.
    pub fn was_saved_lately(&self) -> bool {
        const PART: i64 = 20;
        let since = server::now() - self.saved_at.load(Relaxed);
        (0..PART * self.took.load(Relaxed)).contains(&since)
    }

    /// Stores that the plans were saved, and how long that took.
    pub fn note_saved(&self, took: Duration) {
        self.took.store(took.as_micros() as i64, Relaxed);
        self.saved_at.store(server::now(), Relaxed);
    }
}
