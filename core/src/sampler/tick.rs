//! Decides when the tick runs: a timer that reads the clock while a sampled statement runs, so that every call much longer
//! than its period is detected.
//!
//! It is armed only when the gaps of a node grow beyond 1, so it costs short statements nothing. It slows down with the
//! statement's age. Each timeout fires once, and the tick decides whether to set the next one. If no node has read the
//! clock since the previous tick, no measured node is called, and the tick goes to sleep: immediately in a wait, otherwise
//! after some time. So a wait costs two wake-ups. The node that next detects the tick's reading wakes it up.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering::Relaxed};

/// For each period: the number of ticks up to which it is used, and its milliseconds. The periods change when ticks have come for 128
/// ms, 512 ms and 2 s. A tick takes up to 20 us of a processor (a virtual one). So ticks take 1 % of a statement's first 128 ms, and
/// 0.13 % of it after two seconds. The first period ends with the first tick: most statements end before.
const PERIODS: [(u32, i32); 5] = [(1, 2), (64, 2), (160, 4), (346, 8), (u32::MAX, 16)];
/// The number of idle ticks until it sleeps: while PostgreSQL reports a wait event, and otherwise. If a node is seldom
/// called, several ticks may pass between its readings.
const MAX_IDLE_WAITING: u32 = 1;
const MAX_IDLE: u32 = 100;

/// The state of the tick. A signal handler may interrupt its owner anywhere, so all of it is atomic.
#[derive(Debug, Default)]
pub struct Tick {
    /// Ticks since it was armed.
    ticks: AtomicU32,
    /// Ticks since a node read the clock.
    idle: AtomicU32,
    /// Whether it is armed and no timeout is set.
    is_asleep: AtomicBool,
    /// Milliseconds to the next tick.
    period_ms: AtomicI32,
    /// The number of periods that have begun; 0 if it is not armed.
    begun: AtomicUsize,
}

impl Tick {
    /// Returns a tick that is not armed.
    pub const fn new() -> Self {
        Tick {
            ticks: AtomicU32::new(0),
            idle: AtomicU32::new(0),
            is_asleep: AtomicBool::new(false),
            period_ms: AtomicI32::new(0),
            begun: AtomicUsize::new(0),
        }
    }

    /// Records a timeout. `is_idle` says that no node has read the clock since the previous tick, `is_waiting` that the
    /// process waits for something. Returns the milliseconds to the next timeout, which the caller must set, or `None` if
    /// the tick sleeps from now on.
    pub fn on_timeout(&self, is_idle: bool, is_waiting: bool) -> Option<i32> {
        self.ticks
            .store(self.ticks.load(Relaxed).wrapping_add(1), Relaxed);
        let idle = if is_idle {
            self.idle.load(Relaxed).wrapping_add(1)
        } else {
            0
        };
        self.idle.store(idle, Relaxed);
        let max_idle = if is_waiting { MAX_IDLE_WAITING } else { MAX_IDLE };
        if idle < max_idle {
            Some(self.period_ms.load(Relaxed))
        } else {
            self.is_asleep.store(true, Relaxed);
            None
        }
    }

    /// Arms the tick, or slows it down with its age. Returns the new period in milliseconds if it changed. It is 0 until the first tick has
    /// come: a call before that is not detected by chance. A newly armed tick sleeps.
    pub fn want(&self) -> Option<i32> {
        let begun = self.begun.load(Relaxed);
        let is_armed = begun > 0;
        if is_armed {
            let &(until, _) = PERIODS.get(begun - 1)?;
            if self.ticks.load(Relaxed) < until {
                return None;
            }
        }
        let &(_, period_ms) = PERIODS.get(begun)?;
        self.period_ms.store(period_ms, Relaxed);
        if !is_armed {
            self.ticks.store(0, Relaxed);
            self.is_asleep.store(true, Relaxed);
        }
        self.begun.store(begun + 1, Relaxed);
        Some(if is_armed { period_ms } else { 0 })
    }

    /// Returns whether the tick is armed and no timeout is set.
    #[inline(always)]
    pub fn is_asleep(&self) -> bool {
        self.is_asleep.load(Relaxed)
    }

    /// Wakes the tick up. Returns the milliseconds to the timeout, which the caller must set.
    pub fn wake(&self) -> i32 {
        self.is_asleep.store(false, Relaxed);
        self.idle.store(0, Relaxed);
        self.period_ms.load(Relaxed)
    }

    /// Disarms the tick. Returns whether it was armed.
    #[inline(always)]
    pub fn disarm(&self) -> bool {
        if self.begun.load(Relaxed) == 0 {
            return false;
        }
        self.begun.store(0, Relaxed);
        self.is_asleep.store(false, Relaxed);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_slows_down_with_age() {
        let tick = Tick::new();
        assert_eq!((tick.want(), tick.is_asleep()), (Some(0), true));
        assert_eq!(tick.wake(), 2);
        let (mut age_ms, mut changes) = (0, Vec::new());
        while age_ms < 10_000 {
            age_ms += tick.on_timeout(false, false).expect("the next timeout");
            changes.extend(tick.want().map(|slower| (age_ms, slower)));
        }
        assert_eq!(changes, [(2, 2), (128, 4), (512, 8), (2000, 16)]);
        assert!(tick.disarm() && !tick.disarm());
        assert_eq!(tick.want(), Some(0), "it begins again");
    }

    #[test]
    fn it_sleeps_when_nothing_is_called() {
        let tick = Tick::new();
        tick.want();
        tick.wake();
        assert_eq!(tick.on_timeout(true, true), None, "at once in a wait");
        assert!(tick.is_asleep());
        assert_eq!(tick.wake(), 2);
        for _ in 1..MAX_IDLE {
            assert_eq!(tick.on_timeout(true, false), Some(2));
        }
        assert_eq!(tick.on_timeout(true, false), None);
        tick.wake();
        assert_eq!(tick.on_timeout(true, false), Some(2), "it counts again from 0");
    }
}
