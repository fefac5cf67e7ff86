//! Runs the protocol of the sessions' buffers on real threads, in memory that starts as zero bytes. It also
//! runs under Miri: `cargo +nightly miri test -p rowsource-core --test pending_threads`.

#![allow(unsafe_code, reason = "buffers are made of zero bytes, as in the extension")]

use rowsource_core::pending::{Buffer, Key, List, Slot};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::thread;

#[derive(Clone, Copy, Default, PartialEq)]
struct Plan(u64);

impl Key for Plan {
    fn tag(&self) -> u64 {
        self.0 % 2
    }
}

/// Many integers instead of one, so that threads have time to use a slot at the same time.
type Sum = [u64; 64];
type TestBuffer = Buffer<Plan, Sum, 2>;

const SESSIONS: usize = 3;
const EXECUTIONS: i64 = if cfg!(miri) { 60 } else { 50_000 };

struct Shared {
    list: List,
    buffers: [Box<TestBuffer>; SESSIONS],
    /// The number of executions in the store.
    counted: AtomicU64,
}

impl Shared {
    fn new() -> Self {
        Shared {
            list: List::default(),
            buffers: std::array::from_fn(|_| {
                // SAFETY: zero bytes are a valid buffer if they are a valid key and a valid value. Both are
                // integers here.
                unsafe { Box::new_zeroed().assume_init() }
            }),
            counted: AtomicU64::new(0),
        }
    }

    fn at(&self, address: u64) -> &TestBuffer {
        &self.buffers[address as usize - 1]
    }

    fn count(&self, sum: &Sum) {
        assert!(sum.iter().all(|part| *part == sum[0]), "a torn sum");
        self.counted.fetch_add(sum[0], Relaxed);
    }

    fn session(&self, address: u64, plans: u64) {
        let pid = address as i32;
        let own = self
            .list
            .attach(pid, |address| self.at(address), || Some(address))
            .expect("a buffer");
        let mut slots = vec![0; plans as usize];
        for now in 1..=EXECUTIONS {
            let plan = Plan(now as u64 % plans);
            let at = &mut slots[plan.0 as usize];
            if let Some(mut slot) = own.add_to(*at, &plan, now) {
                if slot.is_empty() {
                    *slot.value() = [0; 64];
                }
                slot.value().iter_mut().for_each(|part| *part += 1);
                continue;
            }
            self.count(&[1; 64]);
            if let Some(claimed) = own.claim(plan, now, now + 20, |_, _| true, |_, _, sum| self.count(sum)) {
                *at = claimed;
            }
        }
        for (at, slot) in own.slots().iter().enumerate() {
            if let Some(guard) = slot.try_hold(pid) {
                own.flush(at, &guard, |_, _, sum| self.count(sum));
            }
        }
    }

    fn flush_all(&self, pid: i32) {
        self.each_slot(|slot| {
            if slot.seems_filled(None)
                && let Some(guard) = slot.hold_or_inherit(pid, |_| true)
            {
                guard.flush(|_, sum| {
                    self.count(sum);
                    true
                });
            }
        });
    }

    fn each_slot<'a>(&'a self, visit: impl FnMut(&'a Slot<Plan, Sum>)) {
        self.list.each_slot(|address| self.at(address), visit);
    }
}

#[test]
fn each_execution_is_counted_exactly_once() {
    let shared = Shared::new();
    let running = AtomicUsize::new(SESSIONS);
    thread::scope(|threads| {
        let (shared, running) = (&shared, &running);
        for address in 1..=SESSIONS as u64 {
            threads.spawn(move || {
                shared.session(address, address);
                running.fetch_sub(1, Relaxed);
            });
        }
        for pid in [100, 101] {
            threads.spawn(move || {
                while running.load(Relaxed) > 0 {
                    shared.flush_all(pid);
                    shared.each_slot(|slot| slot.invalidate(|tag| tag == pid as u64 % 2));
                    thread::yield_now();
                }
            });
        }
    });
    shared.flush_all(99);
    assert_eq!(shared.counted.load(Relaxed), SESSIONS as u64 * EXECUTIONS as u64);
}
