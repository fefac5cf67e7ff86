//! The hot path: the functions that stand in for `PlanState.ExecProcNode`.
//!
//! Budget: 3 ns and 40 instructions a call over a bare call at `sampfreq` 128. Each is a plain old frame that a
//! longjmp may cross: no guard, no guarded PostgreSQL function, no destructor, no allocation, no panic.
//!
//! What a call does besides calling the node: it counts the row, looks whether the buffer counters moved (the
//! parent's part at entry, its own at exit), counts down to the next timed call, and looks whether anybody read
//! the clock inside it, which may prove it long. All else is cold. Variants are compiled for what a node needs:
//!
//! | `BOOKS` | for |
//! |---|---|
//! | `NONE` | rows only (`sampfreq` 3) |
//! | `EXIT` | a scan whose parent touches no buffers between its calls: the look at entry would find nothing |
//! | `SWITCH` | every other node |
//! | `ROOT` | the root of an InitPlan or subplan: what it used also belongs to the node that asked for it |

use super::node::Node;
use super::usage::{self, Usage};
use super::{raw, tick, timing};
use pgrx::pg_sys::{self, PlanState, TupleTableSlot};
use rowsource_core::clock::tsc;
use rowsource_core::sampler::{NodeTimer, TimedCall};
use std::sync::atomic::Ordering::Relaxed;

const NONE: u8 = 0;
const EXIT: u8 = 1;
const SWITCH: u8 = 2;
const ROOT: u8 = 3;

const UNTIMED: u8 = 0;
const SAMPLED: u8 = 1;
const EVERY_TSC: u8 = 2;
const EVERY: u8 = 3;

/// How buffers are booked for a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Books {
    None,
    Exit,
    Switch,
    Root,
}

/// Which calls of a node are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timed {
    Never,
    Sampled,
    EveryTsc,
    Every,
}

/// What stands in `PlanState.ExecProcNode`.
pub type Method = unsafe extern "C-unwind" fn(*mut PlanState) -> *mut TupleTableSlot;

/// The wrapper for a node.
pub fn method(timed: Timed, books: Books) -> Method {
    match (timed, books) {
        (Timed::Never, Books::None) => call::<UNTIMED, NONE>,
        (Timed::Never, Books::Exit) => call::<UNTIMED, EXIT>,
        (Timed::Never, Books::Switch) => call::<UNTIMED, SWITCH>,
        (Timed::Never, Books::Root) => call::<UNTIMED, ROOT>,
        (Timed::Sampled, Books::None) => call::<SAMPLED, NONE>,
        (Timed::Sampled, Books::Exit) => call::<SAMPLED, EXIT>,
        (Timed::Sampled, Books::Switch) => call::<SAMPLED, SWITCH>,
        (Timed::Sampled, Books::Root) => call::<SAMPLED, ROOT>,
        (Timed::EveryTsc, Books::None) => call::<EVERY_TSC, NONE>,
        (Timed::EveryTsc, Books::Exit) => call::<EVERY_TSC, EXIT>,
        (Timed::EveryTsc, Books::Switch) => call::<EVERY_TSC, SWITCH>,
        (Timed::EveryTsc, Books::Root) => call::<EVERY_TSC, ROOT>,
        (Timed::Every, Books::None) => call::<EVERY, NONE>,
        (Timed::Every, Books::Exit) => call::<EVERY, EXIT>,
        (Timed::Every, Books::Switch) => call::<EVERY, SWITCH>,
        (Timed::Every, Books::Root) => call::<EVERY, ROOT>,
    }
}

/// A node's first call: the stack check that core makes here, then its own wrapper for good.
///
/// # Safety
/// Called by the executor with a plan state whose statement is set up.
pub unsafe extern "C-unwind" fn first_call(ps: *mut PlanState) -> *mut TupleTableSlot {
    // SAFETY: `method` was set with the node.
    unsafe {
        raw::check_stack_depth();
        let method = (*Node::of(ps)).method;
        (*ps).ExecProcNode = method;
        method.unwrap_unchecked()(ps)
    }
}

/// 1 for a row, 0 for the end.
#[inline(always)]
unsafe fn row(slot: *mut TupleTableSlot) -> u64 {
    // SAFETY: a node returns NULL or a valid slot.
    unsafe { u64::from(!slot.is_null() && (*slot).tts_flags & pg_sys::TTS_FLAG_EMPTY as u16 == 0) }
}

#[inline(always)]
unsafe fn real(ps: *mut PlanState) -> *mut TupleTableSlot {
    // SAFETY: core sets ExecProcNodeReal for every node before its first call.
    #[allow(ffi_unwind_calls, reason = "a plain old frame: errors may cross it")]
    unsafe {
        (*ps).ExecProcNodeReal.unwrap_unchecked()(ps)
    }
}

#[inline(always)]
unsafe fn enter<const BOOKS: u8>(node: *mut Node) -> *mut Usage {
    // SAFETY: main thread; CURRENT is live.
    unsafe {
        if BOOKS < SWITCH {
            return std::ptr::null_mut();
        }
        let caller = usage::CURRENT;
        if usage::signature() != usage::SIGNATURE {
            usage::book(caller);
        }
        usage::CURRENT = &raw mut (*node).usage;
        if BOOKS == ROOT {
            (*node).entry = usage::BOOKED;
        }
        caller
    }
}

/// True where the call did I/O or touched many buffers.
#[inline(always)]
unsafe fn leave<const BOOKS: u8>(node: *mut Node, caller: *mut Usage) -> bool {
    // SAFETY: as in `enter`.
    unsafe {
        let mut io = false;
        if BOOKS != NONE && usage::signature() != usage::SIGNATURE {
            io = usage::book(&raw mut (*node).usage);
        }
        if BOOKS >= SWITCH {
            usage::CURRENT = caller;
        }
        if BOOKS == ROOT {
            book_to_caller(node, caller);
        }
        io
    }
}

#[inline(never)]
unsafe fn book_to_caller(node: *mut Node, caller: *mut Usage) {
    // SAFETY: all three are live accounts.
    unsafe {
        let now = &raw const usage::BOOKED;
        let entry = &raw const (*node).entry;
        raw::BufferUsageAccumDiff(
            &raw mut (*caller).buffers,
            &raw const (*now).buffers,
            &raw const (*entry).buffers,
        );
        raw::WalUsageAccumDiff(
            &raw mut (*caller).wal,
            &raw const (*now).wal,
            &raw const (*entry).wal,
        );
    }
}

unsafe extern "C-unwind" fn call<const TIMED: u8, const BOOKS: u8>(
    ps: *mut PlanState,
) -> *mut TupleTableSlot {
    // SAFETY: the executor calls this with a plan state that `statement` set up; main thread.
    unsafe {
        let node = Node::of(ps);
        match TIMED {
            EVERY_TSC | EVERY => return call_timed::<TIMED, BOOKS>(ps, node),
            SAMPLED => {
                (*node).timer.countdown -= 1;
                if (*node).timer.countdown == 0 {
                    return call_sampled::<BOOKS>(ps, node);
                }
            }
            _ => {}
        }
        let before = if TIMED == SAMPLED {
            timing::LAST.load(Relaxed)
        } else {
            0
        };
        let caller = enter::<BOOKS>(node);
        let slot = real(ps);
        if TIMED == SAMPLED {
            let io = leave::<BOOKS>(node, caller);
            if io || timing::LAST.load(Relaxed) != before {
                proved(node, before, io);
            }
        } else {
            leave::<BOOKS>(node, caller);
        }
        (*node).rows += row(slot);
        (*node).instr.running = true;
        slot
    }
}

/// A call that was not to be timed: is it long?
#[inline(never)]
unsafe fn proved(node: *mut Node, before: u64, io: bool) {
    // SAFETY: main thread, live node.
    unsafe {
        let inside = timing::LAST.load(Relaxed);
        if io || NodeTimer::proves_long(&*(&raw const timing::CONFIG), before, inside) {
            let end = timing::read();
            (*node).timer.record_proved(before, end, !(*node).instr.running);
        }
    }
}

/// The call that the countdown chose.
#[inline(never)]
unsafe fn call_sampled<const BOOKS: u8>(ps: *mut PlanState, node: *mut Node) -> *mut TupleTableSlot {
    // SAFETY: main thread, live node; a longjmp across leaves nothing behind.
    unsafe {
        let caller = enter::<BOOKS>(node);
        let before = timing::LAST.load(Relaxed);
        let start = timing::read();
        let readings = timing::READINGS;
        let slot = real(ps);
        let last_inside = timing::LAST.load(Relaxed);
        let nested_readings = timing::READINGS - readings;
        let end = timing::read();
        let did_io = leave::<BOOKS>(node, caller);
        let first_of_start = !(*node).instr.running;
        let timed = TimedCall {
            before,
            start,
            last_inside,
            end,
            nested_readings,
            did_io,
            first_of_start,
        };
        if let Some(random) = (*(&raw mut timing::RANDOM)).as_mut()
            && (*node)
                .timer
                .record(&*(&raw const timing::CONFIG), random, &timed)
        {
            tick::wanted();
        }
        (*node).rows += row(slot);
        (*node).instr.running = true;
        slot
    }
}

/// Every call timed: two readings and a sum. What children's readings cost is taken off at the end.
#[inline(always)]
unsafe fn call_timed<const TIMED: u8, const BOOKS: u8>(
    ps: *mut PlanState,
    node: *mut Node,
) -> *mut TupleTableSlot {
    // SAFETY: main thread, live node.
    unsafe {
        let caller = enter::<BOOKS>(node);
        let start = if TIMED == EVERY_TSC {
            tsc::read()
        } else {
            timing::READ()
        };
        let slot = real(ps);
        let end = if TIMED == EVERY_TSC {
            tsc::read()
        } else {
            timing::READ()
        };
        leave::<BOOKS>(node, caller);
        let every = &raw mut (*node).every;
        (*every).calls += 1;
        if end >= start {
            (*every).ticks += end - start;
        } else {
            (*every).clock_backsteps += 1;
        }
        if !(*node).instr.running {
            (*node).instr.running = true;
            (*every).startup_ticks += end.saturating_sub(start);
        }
        (*node).rows += row(slot);
        slot
    }
}
