//! Who counts what a parallel worker did: the worker when it ends, or its leader, who has copied it because
//! an error ends the statement while the worker runs. Each worker has a word in memory that both share.
//! Whoever closes it counts, so the worker is counted once.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

/// The word of one worker: its process, and one of the states. Zero is that of no worker.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Gate(AtomicU64);

const OPEN: u64 = 1;
/// Open, and others cannot see what the worker does.
const HIDDEN: u64 = 2;
/// The worker has closed it, and counts.
const COUNTING: u64 = 3;
/// All is counted.
const COUNTED: u64 = 4;
const STATE_BITS: u32 = 3;

/// What a leader finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// All is counted, or there is no worker.
    Counted,
    /// The worker counts now.
    Counting,
    /// This process runs.
    Running(i32),
    /// The same, and others cannot see what it does.
    Hidden(i32),
}

fn word(pid: i32, state: u64) -> u64 {
    u64::from(pid as u32) << STATE_BITS | state
}

impl Gate {
    /// Begins a worker. Nobody else uses the gate now.
    pub fn open(&self, pid: i32, is_seen: bool) {
        self.0
            .store(word(pid, if is_seen { OPEN } else { HIDDEN }), Release);
    }

    /// The worker ends, and is about to count. Returns false if its leader has counted it.
    pub fn begin_counting(&self, pid: i32) -> bool {
        [OPEN, HIDDEN].into_iter().any(|state| {
            self.0
                .compare_exchange(word(pid, state), word(pid, COUNTING), AcqRel, Acquire)
                .is_ok()
        })
    }

    /// The worker has counted.
    pub fn end_counting(&self, pid: i32) {
        self.0.store(word(pid, COUNTED), Release);
    }

    /// Returns what the worker does.
    pub fn found(&self) -> Found {
        let word = self.0.load(Acquire);
        let pid = (word >> STATE_BITS) as i32;
        match word & ((1 << STATE_BITS) - 1) {
            OPEN => Found::Running(pid),
            HIDDEN => Found::Hidden(pid),
            COUNTING => Found::Counting,
            _ => Found::Counted,
        }
    }

    /// The leader closes it for this worker. Returns whether it has: from then on, only the leader counts.
    pub fn close(&self, pid: i32) -> bool {
        [OPEN, HIDDEN].into_iter().any(|state| {
            self.0
                .compare_exchange(word(pid, state), word(pid, COUNTED), AcqRel, Acquire)
                .is_ok()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn one_of_both_counts() {
        let gate = Gate::default();
        assert_eq!(gate.found(), Found::Counted);
        assert!(!gate.close(7) && !gate.begin_counting(7));
        for is_seen in [true, false] {
            gate.open(7, is_seen);
            let running = if is_seen {
                Found::Running(7)
            } else {
                Found::Hidden(7)
            };
            assert_eq!(gate.found(), running);
            assert!(gate.begin_counting(7));
            assert_eq!(gate.found(), Found::Counting);
            assert!(!gate.close(7));
            gate.end_counting(7);
            assert_eq!(gate.found(), Found::Counted);
            gate.open(8, is_seen);
            assert!(gate.close(8));
            assert_eq!(gate.found(), Found::Counted);
            assert!(!gate.begin_counting(8));
        }
    }

    #[test]
    fn another_worker_is_not_closed() {
        let gate = Gate::default();
        gate.open(7, true);
        assert!(!gate.close(8) && !gate.begin_counting(8));
        gate.open(-1, true);
        assert_eq!(gate.found(), Found::Running(-1));
        assert!(gate.close(-1));
    }

    #[test]
    fn whoever_comes_first_counts() {
        for _ in 0..200 {
            let (gate, counted) = (Gate::default(), AtomicU64::new(0));
            gate.open(7, true);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    if gate.begin_counting(7) {
                        counted.fetch_add(1, Relaxed);
                        gate.end_counting(7);
                    }
                });
                scope.spawn(|| {
                    if gate.close(7) {
                        counted.fetch_add(1, Relaxed);
                    }
                    while gate.found() != Found::Counted {}
                    assert_eq!(counted.load(Relaxed), 1);
                });
            });
        }
    }
}
