//! Waits for slots of the sessions' buffers that other processes hold.

use crate::pg::server;
use rowsource_core::pending::{Key, Slot, SlotGuard};
use std::time::{Duration, Instant};

/// How long a process waits for slots, for all of them together. So a process that is stopped while it holds
/// a slot does not delay others for long.
pub(super) struct SlotWait {
    /// When the wait ends. It is set when the wait starts.
    until: Option<Instant>,
    max: Duration,
    cancellable: bool,
}

impl SlotWait {
    /// Returns the wait of an SQL function.
    pub(super) fn of_reader() -> Self {
        SlotWait {
            until: None,
            max: Duration::from_millis(500),
            cancellable: true,
        }
    }

    /// Returns the wait of code that must not wait.
    pub(super) fn none() -> Self {
        SlotWait {
            until: None,
            max: Duration::ZERO,
            cancellable: false,
        }
    }

    /// Returns the wait of a session that ends.
    pub(super) fn at_exit() -> Self {
        SlotWait {
            until: None,
            max: Duration::from_millis(100),
            cancellable: false,
        }
    }

    /// Holds a slot. Waits for it as long as this allows. The user can cancel the wait if this says so.
    pub(super) fn hold<'a, K: Key, V>(&mut self, slot: &'a Slot<K, V>) -> Option<SlotGuard<'a, K, V>> {
        loop {
            let guard = slot.try_hold(server::pid());
            if guard.is_some() || self.max.is_zero() {
                return guard;
            }
            if !self.pause() {
                return slot.hold_or_inherit(server::pid(), server::is_alive);
            }
        }
    }

    /// Sleeps for a tenth of a millisecond. Returns false if the wait has ended.
    fn pause(&mut self) -> bool {
        const PAUSE: Duration = Duration::from_micros(100);
        let now = Instant::now();
        if now >= *self.until.get_or_insert(now + self.max) {
            return false;
        }
        if self.cancellable {
            server::check_for_interrupts();
        }
        std::thread::sleep(PAUSE);
        true
    }
}
