//! The hot path: the functions that stand in for `PlanState.ExecProcNode`.
//!
//! Budget: 3 ns and 40 instructions a call over a bare call at `sampfreq` 128. Each is a plain old frame that a
//! longjmp may cross: no guard, no guarded PostgreSQL function, no destructor, no allocation, no panic.
//!
//! What a call does besides calling the node: it counts the row, looks whether the buffer counters moved (the
//! caller's part at entry, its own at exit), counts down to the next timed call, and looks whether anybody read
//! the clock inside it, which may prove it long. Whatever any of these finds is dealt with by cold functions that
//! are tail-called, so that the hot ones keep nothing but the node in a saved register. Variants are compiled for
//! what a node needs:
//!
//! | books | for |
//! |---|---|
//! | `NONE` | rows only (`sampfreq` 3) |
//! | `SWITCH` | most nodes |
//! | `ROOT` | the root of an InitPlan or subplan: what it used also belongs to the node that asked for it |
//! | `DRAIN` | a plain aggregate that does nothing but count or sum what the scan below it returns |
//! | `TAIL` | that scan: see [`scan`], which looks at a call when the next one begins, and so can tail-call the node |
//!
//! each with the counters that can move in the statement (`usage::scope`).

use super::hot::HOT;
use super::node::Node;
use super::usage::{self, scope};
use super::{raw, tick, timing};
use pgrx::pg_sys::{self, PlanState, TupleTableSlot};
use rowsource_core::clock::tsc;
use rowsource_core::sampler::TimedCall;

const NONE: u8 = 0;
const TAIL: u8 = 1;
const SWITCH: u8 = 2;
const ROOT: u8 = 3;
const DRAIN: u8 = 4;

const UNTIMED: u8 = 0;
const SAMPLED: u8 = 1;
const EVERY_TSC: u8 = 2;
const EVERY: u8 = 3;

/// How buffers are booked for a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Books {
    None,
    Tail,
    Switch,
    Root,
    Drain,
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

/// The wrapper for a node of a statement that only `reads` (shared buffers and work files).
pub fn method(timed: Timed, books: Books, reads: bool) -> Method {
    match timed {
        Timed::Never if books == Books::Tail => scan_method::<UNTIMED>(reads),
        Timed::Never => method_for::<UNTIMED>(books, reads),
        Timed::Sampled if books == Books::Tail => scan_method::<SAMPLED>(reads),
        Timed::Sampled => method_for::<SAMPLED>(books, reads),
        Timed::EveryTsc => method_for::<EVERY_TSC>(books, reads),
        Timed::Every => method_for::<EVERY>(books, reads),
    }
}

fn method_for<const TIMED: u8>(books: Books, reads: bool) -> Method {
    match (books, reads) {
        (Books::None, _) => call::<TIMED, NONE, { scope::ALL }>,
        // The end of each call must be seen, but its parent books for it.
        (Books::Tail, _) => call::<TIMED, NONE, { scope::ALL }>,
        (Books::Switch, false) => call::<TIMED, SWITCH, { scope::ALL }>,
        (Books::Switch, true) => call::<TIMED, SWITCH, { scope::READS }>,
        (Books::Drain, _) => call::<TIMED, DRAIN, { scope::ALL }>,
        (Books::Root, _) => call::<TIMED, ROOT, { scope::ALL }>,
    }
}

fn scan_method<const TIMED: u8>(reads: bool) -> Method {
    match reads {
        true => scan::<TIMED, { scope::SCAN }>,
        false => scan::<TIMED, { scope::ALL }>,
    }
}

/// A node's first call: the stack check that core makes here, then its own wrapper for good.
///
/// # Safety
/// Called by the executor with a plan state whose statement is set up.
#[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot.rowsource"))]
pub unsafe extern "C-unwind" fn first_call(ps: *mut PlanState) -> *mut TupleTableSlot {
    // SAFETY: the executor calls this with a plan state whose node is live, and whose `method` was set with the node.
    unsafe {
        raw::check_stack_depth();
        let method = (*Node::of(ps)).method;
        (*ps).ExecProcNode = method;
        method.unwrap_unchecked()(ps)
    }
}

/// Calls a node and measures the call.
///
/// # Safety
/// * To be called by the executor only.
/// * `ps` must be a plan state that a statement has set up, and whose wrapper this is. Its node and accounts must be
///   live.
#[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot.rowsource"))]
unsafe extern "C-unwind" fn call<const TIMED: u8, const BOOKS: u8, const SCOPE: u8>(
    ps: *mut PlanState,
) -> *mut TupleTableSlot {
    // SAFETY: the executor calls this with a plan state that `statement` set up, whose node and accounts are live.
    unsafe {
        if BOOKS >= SWITCH && usage::moved::<SCOPE>() {
            return book_and_call::<TIMED, BOOKS, SCOPE>(ps);
        }
        let node = Node::of(ps);
        if TIMED == SAMPLED {
            (*node).timer.countdown -= 1;
            if (*node).timer.countdown == 0 {
                return call_sampled::<BOOKS, SCOPE>(ps, node);
            }
            (*node).before = timing::last();
        }
        enter::<BOOKS>(node);
        let every = TIMED == EVERY_TSC || TIMED == EVERY;
        let reads = if every { usage::reads() } else { 0 };
        let start = read_every::<TIMED>();
        if every {
            (*node).before = start;
        }
        let slot = real(ps);
        let end = read_every::<TIMED>();
        if every {
            count_every(node, start, end, usage::reads() != reads);
        }
        if (BOOKS != NONE && usage::moved::<SCOPE>())
            || BOOKS > SWITCH
            || (TIMED == SAMPLED && timing::last() != (*node).before)
        {
            return leave_moved::<TIMED, BOOKS>(node, slot);
        }
        if BOOKS == SWITCH {
            HOT.current.set((*node).caller);
        }
        count(node, slot);
        slot
    }
}

/// A scan below an aggregate that drains it: a [`DRAIN`] parent runs on the scan's account, for it uses nothing
/// itself, and cannot fail between two calls of the scan. So nothing need be seen when a call ends; whether it did
/// I/O or proved long is looked at when the next one begins, or when the parent ends. Rows are the calls less one
/// for each start: each start is read to its end.
///
/// # Safety
/// * To be called by the executor only.
/// * `ps` must be a plan state that a statement has set up, and whose wrapper this is. Its node and accounts must be
///   live.
#[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot.rowsource"))]
unsafe extern "C-unwind" fn scan<const TIMED: u8, const SCOPE: u8>(
    ps: *mut PlanState,
) -> *mut TupleTableSlot {
    // SAFETY: the executor calls this with a plan state that `statement` set up. Core sets ExecProcNodeReal for every
    // node before its first call.
    unsafe {
        let node = Node::of(ps);
        if usage::moved::<SCOPE>() || (TIMED == SAMPLED && timing::last() != (*node).before) {
            return settle_and_scan::<TIMED, SCOPE>(ps);
        }
        if TIMED == SAMPLED {
            (*node).timer.countdown -= 1;
            if (*node).timer.countdown == 0 {
                return call_sampled::<TAIL, SCOPE>(ps, node);
            }
        } else {
            (*node).every.calls += 1;
        }
        (*node).instr.running = true;
        (*ps).ExecProcNodeReal.unwrap_unchecked()(ps)
    }
}

/// Takes note of what a scan's last call did, and makes the next.
///
/// # Safety
/// `ps` must be a plan state that a statement has set up, and whose wrapper this is. Its node and accounts must be
/// live.
#[inline(never)]
unsafe extern "C-unwind" fn settle_and_scan<const TIMED: u8, const SCOPE: u8>(
    ps: *mut PlanState,
) -> *mut TupleTableSlot {
    // SAFETY: nothing moves between the settling and the second look.
    unsafe {
        settle::<TIMED>(Node::of(ps));
        scan::<TIMED, SCOPE>(ps)
    }
}

/// Takes note of what a scan's last call did.
///
/// # Safety
/// `node` must be live, and nobody may hold a reference to it.
#[inline(never)]
unsafe fn settle<const TIMED: u8>(node: *mut Node) {
    // SAFETY: the node is live by the caller's promise.
    unsafe {
        let io = usage::moved::<{ scope::ALL }>() && usage::charge(&raw mut (*node).usage);
        if TIMED == SAMPLED {
            prove(node, io);
            (*node).before = timing::last();
        }
    }
}

/// Counts a call that was not timed, if it did I/O or somebody's reading of the clock proves it long.
///
/// # Safety
/// * `node` must be live, and nobody may hold a reference to it.
/// * Its statement must be timed by sampling: the tick is prepared then.
#[inline(always)]
unsafe fn prove(node: *mut Node, io: bool) {
    // SAFETY: the node is live by the caller's promise. The proofs and the configuration stay where they are, and the
    // sampler calls back only to read the clock, which changes neither.
    unsafe {
        let first_of_start = !(*node).instr.running;
        let (config, proofs) = (HOT.config.as_ptr().cast_const(), timing::proofs());
        (*node)
            .timer
            .record_untimed(&*config, (*node).before, io, first_of_start, &mut *proofs, || {
                timing::read()
            });
        tick::wake();
    }
}

/// The counters moved since the last booking: that was the caller's work.
///
/// # Safety
/// `ps` must be a plan state that a statement has set up, and whose wrapper this is. Its node and accounts must be
/// live.
#[inline(never)]
#[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot.rowsource"))]
unsafe extern "C-unwind" fn book_and_call<const TIMED: u8, const BOOKS: u8, const SCOPE: u8>(
    ps: *mut PlanState,
) -> *mut TupleTableSlot {
    // SAFETY: CURRENT is a live account. Nothing moves between the booking and the second look.
    unsafe {
        usage::charge(HOT.current.get());
        call::<TIMED, BOOKS, SCOPE>(ps)
    }
}

/// A call after which the counters or the last clock reading have moved.
///
/// # Safety
/// * `node` must be live, and nobody may hold a reference to it.
/// * So must its caller's account be, and the scan that it drains, if it does.
/// * `slot` must be null or a live slot.
#[inline(never)]
#[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot.rowsource"))]
unsafe extern "C-unwind" fn leave_moved<const TIMED: u8, const BOOKS: u8>(
    node: *mut Node,
    slot: *mut TupleTableSlot,
) -> *mut TupleTableSlot {
    // SAFETY: the node is live by the caller's promise, and so are its caller's account and the scan that it drains.
    unsafe {
        let io = leave::<TIMED, BOOKS>(node);
        if TIMED == SAMPLED {
            prove(node, io);
        }
        count(node, slot);
        // Hides that the result is the argument: else the hot path saves it across this call instead of jumping here.
        std::hint::black_box(slot)
    }
}

/// The call that the countdown chose.
///
/// # Safety
/// * `ps` must be a plan state that a statement has set up, and whose wrapper this is. Its node and accounts must be
///   live.
/// * `node` must be its node. The statement must be timed by sampling: the tick is prepared then.
#[inline(never)]
#[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot.rowsource"))]
unsafe extern "C-unwind" fn call_sampled<const BOOKS: u8, const SCOPE: u8>(
    ps: *mut PlanState,
    node: *mut Node,
) -> *mut TupleTableSlot {
    // SAFETY: plan state and node are live by the caller's promise. An error crosses this frame, which has nothing to
    // drop. The proofs, the configuration and the generator stay where they are, and the sampler does not call back.
    unsafe {
        enter::<BOOKS>(node);
        let reads = usage::reads();
        let before = timing::last();
        let start = timing::read();
        (*node).before = start;
        let readings = HOT.readings.get();
        let slot = real(ps);
        let proofs = timing::proofs();
        let nested_readings = HOT.readings.get() - readings;
        let end = timing::read();
        let ns = end.wrapping_sub(start) as i64 as f64 * HOT.ns_per_tick.get();
        (*node).histogram.count(ns, usage::reads() != reads);
        let did_io = leave::<SAMPLED, BOOKS>(node);
        let first_of_start = !(*node).instr.running;
        let (config, random) = (HOT.config.as_ptr().cast_const(), HOT.random.get());
        let timed = TimedCall {
            before,
            start,
            end,
            nested_readings,
            did_io,
            first_of_start,
        };
        if (*node)
            .timer
            .record_timed(&*config, &mut *random, &timed, &mut *proofs)
        {
            tick::wanted();
        }
        if BOOKS == TAIL {
            (*node).before = timing::last();
            (*node).instr.running = true;
        } else {
            count(node, slot);
        }
        slot
    }
}

/// Calls the node itself.
///
/// # Safety
/// `ps` must be a plan state that the executor has initialised, and that it calls now.
#[inline(always)]
unsafe fn real(ps: *mut PlanState) -> *mut TupleTableSlot {
    // SAFETY: core sets ExecProcNodeReal for every node before its first call. Errors may cross this frame.
    unsafe { (*ps).ExecProcNodeReal.unwrap_unchecked()(ps) }
}

/// Counts the row, if there is one, and marks the start as begun: core's InstrEndLoop counts it.
///
/// # Safety
/// * `node` must be live, and nobody may hold a reference to it.
/// * `slot` must be null or a live slot.
#[inline(always)]
unsafe fn count(node: *mut Node, slot: *mut TupleTableSlot) {
    // SAFETY: a node returns NULL or a valid slot.
    unsafe {
        if !slot.is_null() && (*slot).tts_flags & pg_sys::TTS_FLAG_EMPTY as u16 == 0 {
            (*node).rows += 1;
        }
        (*node).instr.running = true;
    }
}

/// Makes the node's account the running one.
///
/// # Safety
/// * `node` must be live, and nobody may hold a reference to it.
/// * If it drains a scan, that scan's node must be live too.
#[inline(always)]
unsafe fn enter<const BOOKS: u8>(node: *mut Node) {
    // SAFETY: the node is live by the caller's promise, and so is the scan that it drains.
    unsafe {
        if BOOKS == ROOT {
            (*node).caller = HOT.current.get();
        }
        if BOOKS >= SWITCH {
            HOT.current.set(&raw mut (*node).usage);
        }
        if BOOKS == DRAIN {
            let scan = (*node).drained;
            HOT.current.set(&raw mut (*scan).usage);
            (*scan).before = timing::last();
        }
        if BOOKS == ROOT {
            (*node).entry = HOT.booked.get();
        }
    }
}

/// Books the node's own part, and makes its caller's account the running one. True where the call did I/O or
/// touched many buffers.
///
/// # Safety
/// * `node` must be live, and nobody may hold a reference to it.
/// * Its caller's account must be live, and so must the scan that it drains, if it does.
#[inline(always)]
unsafe fn leave<const TIMED: u8, const BOOKS: u8>(node: *mut Node) -> bool {
    // SAFETY: the node is live by the caller's promise, and so is the scan that it drains. The caller's account is
    // live as long as its call is.
    unsafe {
        let mut io = false;
        if BOOKS == DRAIN {
            settle::<TIMED>((*node).drained);
        }
        if BOOKS != NONE && usage::moved::<{ scope::ALL }>() {
            io = usage::charge(&raw mut (*node).usage);
        }
        if BOOKS >= SWITCH {
            HOT.current.set((*node).caller);
        }
        if BOOKS == ROOT {
            usage::add_since((*node).caller, &raw const (*node).entry);
        }
        io
    }
}

#[inline(always)]
fn read_every<const TIMED: u8>() -> u64 {
    match TIMED {
        EVERY_TSC => tsc::read(),
        EVERY => (HOT.read.get())(),
        _ => 0,
    }
}

/// Every call timed: a sum. What children's readings cost is taken off at the end.
///
/// # Safety
/// `node` must be live, and nobody may hold a reference to it.
#[inline(always)]
unsafe fn count_every(node: *mut Node, start: u64, end: u64, read: bool) {
    // SAFETY: the node is live by the caller's promise, and nobody holds a reference to it.
    unsafe {
        let every = &raw mut (*node).every;
        (*every).calls += 1;
        if end < start {
            (*every).clock_backsteps += 1;
            return;
        }
        (*every).ticks += end - start;
        (*node)
            .histogram
            .count((end - start) as i64 as f64 * HOT.ns_per_tick.get(), read);
        if !(*node).instr.running {
            (*every).startup_ticks += end - start;
        }
    }
}
