//! The ring of executions of all sessions that took long, failed or were cancelled
//! ([`rowsource_core::model::executions`]). It lies in main shared memory, so the server must preload the
//! library. It is empty when the server starts. Its lock is taken alone, by executions that may enter, and
//! by readers.

use crate::guc;
use crate::pg::border::backend_local::BackendLocal;
use crate::pg::compat;
use crate::pg::server::contained::{Unlocked, contained};
use crate::pg::server::{self, MainMemory, SettingUp};
use pgrx::pg_sys;
use rowsource_core::model::executions::{Head, NodeSums, Ring, RingExecution, Slot};
use rowsource_core::model::{NodeStats, Parameters, PlanKey, Run};
use std::cell::Cell;
use std::ffi::CStr;

const NAME: &CStr = c"pg_rowsource executions";

/// What lies before the slots.
#[repr(C, align(64))]
struct Shared {
    lock: pg_sys::LWLock,
    head: Head,
}

static SHARED: BackendLocal<Cell<*mut Shared>> = BackendLocal::new(Cell::new(std::ptr::null_mut()));

/// Requests the memory, while the server preloads the library.
pub(super) fn init() {
    server::use_main_memory(MainMemory { size, set_up });
}

fn slots() -> usize {
    guc::executions_size() / size_of::<Slot>()
}

/// Returns the bytes of the ring; 0 if there is to be none.
fn size() -> usize {
    match slots() {
        0 => 0,
        slots => size_of::<Shared>() + slots * size_of::<Slot>(),
    }
}

/// Finds or makes the ring.
fn set_up(shared: &SettingUp) {
    if size() == 0 {
        return;
    }
    let (place, is_new) = shared.find_or_make(NAME, size());
    let ring = place.cast::<Shared>();
    if is_new {
        // SAFETY: no other process sees a new ring before this returns, and zero bytes are an empty one.
        unsafe {
            place.write_bytes(0, size());
            pg_sys::LWLockInitialize(&raw mut (*ring).lock, compat::new_tranche(NAME));
        }
    }
    SHARED.set(ring);
}

/// Runs a body with the ring. Returns `None` if there is none, or if that fails.
fn with<T>(unlocked: &mut Unlocked, body: impl FnOnce(&mut Ring<'_>) -> T) -> Option<T> {
    let shared = SHARED.get();
    if shared.is_null() {
        return None;
    }
    // SAFETY: while the lock is held, nobody else uses the head or the slots, which lie behind it.
    // `contained` catches errors, and then releases the lock.
    unsafe {
        contained(unlocked, |_| {
            pg_sys::LWLockAcquire(&raw mut (*shared).lock, pg_sys::LWLockMode::LW_EXCLUSIVE);
            let mut ring = Ring {
                head: &mut (*shared).head,
                slots: std::slice::from_raw_parts_mut(shared.add(1).cast(), slots()),
            };
            let result = body(&mut ring);
            pg_sys::LWLockRelease(&raw mut (*shared).lock);
            result
        })
        .ok()
    }
}

/// Returns whether an execution enters the ring. If so, it counts, and [`put`] must put it there. Also
/// returns the milliseconds that the next one must exceed; infinitely many if there is no ring.
pub(super) fn lets_in(unlocked: &mut Unlocked, key: &PlanKey, run: &Run) -> (bool, f64) {
    let looked = with(unlocked, |ring| {
        (ring.lets_in(key, run), ring.threshold_ms(key.userid))
    });
    looked.unwrap_or((false, f64::INFINITY))
}

/// Returns the milliseconds that an execution of a user must exceed to enter; infinitely many if there is
/// no ring.
pub(super) fn threshold_ms(unlocked: &mut Unlocked, key: &PlanKey) -> f64 {
    with(unlocked, |ring| ring.threshold_ms(key.userid)).unwrap_or(f64::INFINITY)
}

/// Puts an execution of this session into the ring.
pub(super) fn put(
    unlocked: &mut Unlocked,
    key: &PlanKey,
    run: &Run,
    nodes: &[NodeStats],
    parameters: Option<Parameters>,
) {
    let mut sums = Vec::new();
    if sums.try_reserve_exact(nodes.len()).is_err() {
        return;
    }
    sums.extend(nodes.iter().map(NodeSums::from));
    let execution = RingExecution {
        run: *run,
        pid: server::pid(),
        application_name: server::application_name(),
        nodes: sums,
        parameters,
    };
    with(unlocked, |ring| ring.put(key, execution));
}

/// Removes executions.
pub(super) fn remove(unlocked: &mut Unlocked, is_chosen: impl Fn(&PlanKey) -> bool) {
    with(unlocked, |ring| ring.remove_all(is_chosen));
}

/// Visits the executions in the ring. The user can cancel this.
pub fn each_execution(mut visit: impl FnMut(PlanKey, RingExecution)) {
    // SAFETY: only SQL functions call this. They hold no lock, and are outside of any boundary.
    let unlocked = &mut unsafe { Unlocked::promised() };
    for index in 0..slots() {
        if let Some((key, execution)) = with(unlocked, |ring| ring.get(index)).flatten() {
            visit(key, execution);
        }
        server::check_for_interrupts();
    }
}
