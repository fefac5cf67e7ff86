//! Where a session gathers the executions of its short plans, in shared memory of its own, before they go to the
//! store: many sessions that run the same plan would otherwise write to the same memory all the time.
//!
//! Nothing is hidden by that: who reads the store first collects what all sessions have gathered. The session itself
//! hands it on after a second, when another plan needs the place, and when it ends.
//!
//! A way is held by one process at a time, by a word rather than by a lock of PostgreSQL's, which would cost a short
//! statement as much as adding to its figures. The session itself never waits for it: while a reader collects, its
//! execution goes to the store. Readers wait, for a copy of some figures at most. What waits for a way holds no lock.

use super::entry::{Batch, NodeTotals};
use super::{Store, entry, tried};
use crate::session::{Execution, KnownPlan, PlanKey, PlanStatistics};
use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;
use pgrx::{pg_guard, pg_sys};
use std::rc::Rc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64};
use std::time::Duration;

/// Plans that a session gathers at the same time.
const WAYS: usize = 8;
/// Larger plans go to the store at once: they take longer than that does.
const NODES: usize = 8;
/// Microseconds until what was gathered is handed on.
const KEPT: i64 = 1_000_000;

/// What was gathered of one plan.
#[repr(C)]
struct Way {
    /// The process that holds it, or 0.
    holder: AtomicI32,
    key: PlanKey,
    /// No execution: nothing gathered.
    statistics: PlanStatistics,
    /// When it is to be handed on; 0 where the way is free, or the plan has gone from the store.
    until: AtomicI64,
    nodes: usize,
    totals: [NodeTotals; NODES],
}

/// A way that this process holds, until this is dropped.
struct Held<'a>(&'a AtomicI32);

impl<'a> Held<'a> {
    /// `None` where another process holds it.
    fn at_once(holder: &'a AtomicI32) -> Option<Self> {
        // SAFETY: a plain global.
        let pid = unsafe { pg_sys::MyProcPid };
        let free = holder.compare_exchange(0, pid, Acquire, Relaxed).is_ok();
        free.then(|| Held(holder))
    }

    /// Waits for it; not for ever, for nothing here is worth that.
    fn soon(holder: &'a AtomicI32) -> Option<Self> {
        const PAUSE: Duration = Duration::from_micros(100);
        const TRIES: usize = 10_000;
        (0..TRIES).find_map(|_| {
            let held = Self::at_once(holder);
            if held.is_none() {
                std::thread::sleep(PAUSE);
            }
            held
        })
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.store(0, Release);
    }
}

/// The ways of one session. Blocks are made for good; a session that ends leaves its own to the next.
#[repr(C)]
pub(super) struct Block {
    /// The block made before it; 0 at the first.
    next: pg_sys::dsa_pointer,
    taken: AtomicBool,
    ways: [Way; WAYS],
}

pub(super) const BLOCK_SIZE: usize = size_of::<Block>();

/// A session's own end.
pub(super) struct Gatherer {
    block: *mut Block,
    /// The plans that are gathered: for what the store wants to know when it meets one.
    plans: [Option<Rc<KnownPlan>>; WAYS],
}

static mut OWN: Option<Gatherer> = None;

/// Gives this session a block.
///
/// # Safety
/// Under the control lock; not inside a boundary.
pub(super) unsafe fn join(store: &Store) {
    // SAFETY: the list only grows; new blocks are complete before they are in it.
    unsafe {
        let mut own: *mut Block = std::ptr::null_mut();
        each_block(store, |block| {
            if own.is_null() && !(*block).taken.load(Relaxed) {
                own = block;
            }
        });
        if own.is_null() {
            let flags = (pg_sys::DSA_ALLOC_NO_OOM | pg_sys::DSA_ALLOC_ZERO) as i32;
            let made = pg_sys::dsa_allocate_extended(store.area, size_of::<Block>(), flags);
            if made == 0 {
                return;
            }
            own = pg_sys::dsa_get_address(store.area, made).cast();
            (*own).next = (*store.control).blocks.load(Relaxed);
            (*store.control).blocks.store(made, Release);
        }
        (*own).taken.store(true, Relaxed);
        OWN = Some(Gatherer {
            block: own,
            plans: [const { None }; WAYS],
        });
        pg_sys::before_shmem_exit(Some(at_exit), pg_sys::Datum::from(0));
    }
}

/// Adds an execution to what is gathered of its plan; false where that has not begun, or is to be handed on.
///
/// # Safety
/// Main thread. Raises nothing.
pub(super) unsafe fn add(execution: &Execution) -> bool {
    // SAFETY: only this session writes to its ways, but for the readers, who empty them holding them.
    unsafe {
        let Some(own) = own() else { return false };
        let nodes = execution.figures.len();
        let way = &raw mut (*own.block).ways[execution.plan.way.get()];
        if (*way).until.load(Relaxed) <= execution.run.at
            || (*way).nodes != nodes
            || (*way).key != execution.plan.key
        {
            return false;
        }
        let Some(_held) = Held::at_once(&(*way).holder) else {
            return false;
        };
        let totals = &mut (&mut (*way).totals)[..nodes];
        if (*way).statistics.times.calls == 0 {
            (*way).statistics = PlanStatistics::default();
            totals.iter_mut().for_each(NodeTotals::clear);
        }
        Batch::Execution(execution).add_to(&mut (*way).statistics, totals);
        true
    }
}

/// Begins to gather the executions of a plan, where there is a free way, or one whose content is due.
///
/// # Safety
/// Main thread, not inside a boundary, holding no lock.
pub(super) unsafe fn begin(store: &Store, execution: &Execution) {
    // SAFETY: as `add`.
    unsafe {
        let Some(own) = own() else { return };
        let nodes = execution.figures.len();
        if nodes > NODES {
            return;
        }
        let (plan, now) = (execution.plan, execution.run.at);
        let ways = &raw mut (*own.block).ways;
        let its = |at: &usize| (*ways)[*at].until.load(Relaxed) != 0 && (*ways)[*at].key == plan.key;
        let is_due = |at: &usize| (*ways)[*at].until.load(Relaxed) <= now;
        let Some(at) = (0..WAYS).find(its).or_else(|| (0..WAYS).find(is_due)) else {
            return;
        };
        // It is not due where a reader held it just now.
        if !is_due(&at) || !hand_on(store, own, at) {
            return;
        }
        let way = &raw mut (*ways)[at];
        let Some(_held) = Held::soon(&(*way).holder) else {
            return;
        };
        (*way).key = plan.key;
        (*way).nodes = nodes;
        (*way).until.store(now + KEPT, Relaxed);
        own.plans[at] = Some(plan.clone());
        plan.way.set(at);
    }
}

/// Hands on what is gathered in a way, and frees it; false where it cannot be had.
unsafe fn hand_on(store: &Store, own: &mut Gatherer, at: usize) -> bool {
    // SAFETY: who holds a way empties it alone. An error leaves all locks to `tried`.
    unsafe {
        let way = &raw mut (*own.block).ways[at];
        (*way).until.store(0, Relaxed);
        let Some(_held) = Held::soon(&(*way).holder) else {
            return false;
        };
        let calls = (*way).statistics.times.calls;
        if calls > 0 {
            let gathered = Batch::Gathered(&(*way).statistics, &(&(*way).totals)[..(*way).nodes]);
            let kept = pg_guard_ffi_boundary(|| entry::update(store, &(*way).key, &gathered))
                || own.plans[at].as_ref().is_some_and(|plan| {
                    entry::insert_new(store, &plan.key, &plan.description.borrow(), &gathered)
                });
            if !kept {
                (*store.control).refused.fetch_add(calls, Relaxed);
            }
            (*way).statistics.times.calls = 0;
        }
        own.plans[at] = None;
        true
    }
}

/// Hands on what all sessions have gathered; what is `unwanted` is forgotten instead. What was evicted meanwhile is
/// left to its session, which can describe it.
///
/// # Safety
/// Main thread, not inside a boundary, holding no lock.
pub(super) unsafe fn collect(store: &Store, unwanted: impl Fn(&PlanKey) -> bool) {
    // SAFETY: a way's content is only looked at while it is held, but for whether there is any.
    unsafe {
        each_block(store, |block| {
            for at in 0..WAYS {
                let way = &raw mut (*block).ways[at];
                if (&raw const (*way).statistics.times.calls).read_volatile() == 0 {
                    continue;
                }
                let Some(_held) = Held::soon(&(*way).holder) else {
                    continue;
                };
                if (*way).statistics.times.calls > 0 {
                    let gathered = Batch::Gathered(&(*way).statistics, &(&(*way).totals)[..(*way).nodes]);
                    if unwanted(&(*way).key)
                        || pg_guard_ffi_boundary(|| entry::update(store, &(*way).key, &gathered))
                    {
                        (*way).statistics.times.calls = 0;
                    }
                }
            }
        });
    }
}

/// Plans have gone from the store: their next executions are to make new entries, not to be gathered for none.
///
/// # Safety
/// Main thread.
pub(super) unsafe fn forget(store: &Store, gone: impl Fn(&PlanKey) -> bool) {
    // SAFETY: a key that is just being replaced matches by chance at worst, which costs its plan a look-up.
    unsafe {
        each_block(store, |block| {
            for at in 0..WAYS {
                let way = &raw mut (*block).ways[at];
                if gone(&(&raw const (*way).key).read_volatile()) {
                    (*way).until.store(0, Relaxed);
                }
            }
        });
    }
}

/// A session ends: while its shared memory is still mapped, and before the server counts it as gone.
#[pg_guard]
unsafe extern "C-unwind" fn at_exit(_code: i32, _arg: pg_sys::Datum) {
    // SAFETY: main thread; the store was there when this was registered.
    unsafe {
        let (Some(store), Some(own)) = ({ super::STORE }, own()) else {
            return;
        };
        // Where it ends while it holds a way, nobody else will free that.
        each_block(&store, |block| {
            for way in &(*block).ways {
                let _ = way
                    .holder
                    .compare_exchange(pg_sys::MyProcPid, 0, Release, Relaxed);
            }
        });
        let _ = tried(|| {
            for at in 0..WAYS {
                hand_on(&store, own, at);
            }
        });
        (*own.block).taken.store(false, Release);
        OWN = None;
    }
}

#[allow(
    static_mut_refs,
    reason = "one thread; no two references live at the same time"
)]
fn own() -> Option<&'static mut Gatherer> {
    // SAFETY: a backend has one thread.
    unsafe { OWN.as_mut() }
}

/// Visits all sessions' blocks.
unsafe fn each_block(store: &Store, mut visit: impl FnMut(*mut Block)) {
    // SAFETY: blocks are never freed, and complete before they are in the list.
    unsafe {
        let mut at = (*store.control).blocks.load(Acquire);
        while at != 0 {
            let block: *mut Block = pg_sys::dsa_get_address(store.area, at).cast();
            visit(block);
            at = (*block).next;
        }
    }
}
