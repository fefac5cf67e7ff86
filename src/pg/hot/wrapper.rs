//! The functions that replace `PlanState.ExecProcNode`: the logic of [`rowsource_core::wrapper`] with
//! PostgreSQL's executor.
//!
//! The test `callgrind` holds what a call costs more than without the wrapper, at `sampfreq` 128.
//! `docs/internals.md` lists the instructions.
//!
//! Each combination of [`Timed`], [`Accounting`] and scope of counters is a separate function. The functions
//! for rare cases are tail-called, so that the frequent case saves only one register, which holds the node.

use super::node::{Account, Node};
use super::state::{HOT, Random};
use super::{beats, called, timing, usage};
use crate::pg::border::unguarded;
use crate::pg::compat;
use pgrx::pg_sys::{self, PlanState, TupleTableSlot};
use rowsource_core::clock::tsc;
use rowsource_core::sampler::{EveryCall, NodeTimer};
use rowsource_core::wrapper::{self, Host, Sampling};
pub use rowsource_core::wrapper::{Accounting, Scope, Timed, counts_calls};
use std::marker::PhantomData;

/// The type of `PlanState.ExecProcNode`.
pub type Method = unsafe extern "C-unwind" fn(*mut PlanState) -> *mut TupleTableSlot;

/// Returns the wrapper for a node, whose caller can move the counters of `before`, and which can itself move
/// those of `after`. `is_drained` says that the caller reads each start of the node to its end.
pub fn method(timed: Timed, accounting: Accounting, before: Scope, after: Scope, is_drained: bool) -> Method {
    wrapper::method::<Executor<'_>>(timed, accounting, before, after, is_drained)
}

/// A plan state that the executor calls now, of a statement that is set up. The plan state, its node, the
/// accounts of the node and its caller, and the scan below a fused aggregate are live.
#[derive(Clone, Copy)]
struct LiveCall(*mut PlanState);

/// The node of a [`LiveCall`], or the scan below it.
#[derive(Clone, Copy)]
struct LiveNode(*mut Node);

/// A live account: that of such a node or its caller, or the running one.
#[derive(Clone, Copy)]
struct LiveAccount(Account);

/// PostgreSQL's executor in this process. A value of this type represents one call and gives access to its
/// nodes. If there are several values, only that of the innermost call is in use: the others wait in
/// [`Host::run`], or have lent it.
struct Executor<'c>(PhantomData<&'c mut Node>);

impl<'c> Executor<'c> {
    /// Returns the executor, for a call of a plan state.
    ///
    /// # Safety
    /// * The executor must call `ps` now, and the wrapper must be that of its node.
    /// * `ps` must belong to a statement that is set up: node, accounts, and the scan below a fused aggregate
    ///   are live until the call returns.
    /// * No reference to a node of the statement may exist.
    #[inline(always)]
    unsafe fn calls(ps: *mut PlanState) -> (Executor<'c>, LiveCall) {
        (Executor(PhantomData), LiveCall(ps))
    }

    /// Lends the executor to a part of the call that is out of line.
    #[inline(always)]
    fn lend(&mut self) -> Executor<'_> {
        Executor(PhantomData)
    }

    #[inline(always)]
    fn node(&self, node: LiveNode) -> &Node {
        // SAFETY: the node is live, and all code that changes it borrows the executor mutably.
        unsafe { &*node.0 }
    }

    #[inline(always)]
    fn node_mut(&mut self, node: LiveNode) -> &mut Node {
        // SAFETY: the node is live. The reference borrows the executor mutably, so it is the only one, and it
        // ends before the executor calls another node.
        unsafe { &mut *node.0 }
    }
}

impl Host for Executor<'_> {
    type Call = LiveCall;
    type Node = LiveNode;
    type Account = LiveAccount;
    type Row = *mut TupleTableSlot;
    type Random = Random;
    type Method = Method;

    #[inline(always)]
    fn node_of(&self, call: LiveCall) -> LiveNode {
        // SAFETY: a `LiveCall`'s plan state is live, and its statement is set up.
        LiveNode(unsafe { Node::of(call.0) })
    }

    #[inline(always)]
    #[allow(ffi_unwind_calls, reason = "an error crosses only plain frames")]
    fn run(&mut self, call: LiveCall) -> *mut TupleTableSlot {
        // SAFETY: core sets ExecProcNodeReal for every node before its first call. An error may cross this
        // frame, because it has nothing to drop.
        unsafe { (*call.0).ExecProcNodeReal.unwrap_unchecked()(call.0) }
    }

    #[inline(always)]
    fn is_row(&self, row: *mut TupleTableSlot) -> bool {
        // SAFETY: a node returns NULL or a valid slot.
        unsafe { is_row(row) }
    }

    #[inline(always)]
    fn have_counters_moved<const SCOPE: u8>(&self) -> bool {
        usage::moved::<SCOPE>()
    }

    #[inline(always)]
    fn mark(&mut self, before: u64) {
        timing::mark(before);
    }

    #[inline(always)]
    fn remove_mark(&mut self) {
        timing::remove_mark();
    }

    #[inline(always)]
    fn last_reading_before_mark(&self) -> u64 {
        timing::last_before_mark()
    }

    #[inline(always)]
    fn blocks_read(&self) -> i64 {
        usage::reads()
    }

    #[inline(always)]
    fn charge(&mut self, account: LiveAccount) -> bool {
        // SAFETY: the account is live. No reference to its node exists, because that would borrow the
        // executor.
        unsafe { usage::charge_if_moved(account.0.usage()) }
    }

    #[inline(always)]
    fn running_account(&self) -> LiveAccount {
        LiveAccount(HOT.current.get())
    }

    #[inline(always)]
    fn set_running_account(&mut self, account: LiveAccount) {
        HOT.current.set(account.0);
    }

    #[inline(always)]
    fn account(&self, node: LiveNode) -> LiveAccount {
        // SAFETY: the node is live. This makes no reference, because the address is kept longer than the
        // borrow.
        LiveAccount(Account::of(unsafe { &raw mut (*node.0).usage }))
    }

    #[inline(always)]
    fn caller(&self, node: LiveNode) -> LiveAccount {
        LiveAccount(self.node(node).caller)
    }

    #[inline(always)]
    fn set_caller(&mut self, node: LiveNode, caller: LiveAccount) {
        if self.node(node).caller != caller.0 {
            // SAFETY: the node is the root of a subplan that the executor calls now, with this running
            // account. No reference to a node exists, because that would borrow the executor.
            unsafe { called::note_caller(node.0, caller.0) }
        }
    }

    #[inline(always)]
    fn fused_scan(&self, node: LiveNode) -> LiveNode {
        LiveNode(self.node(node).fused_scan)
    }

    #[inline(always)]
    fn keep_last_charged(&mut self, node: LiveNode) {
        let last = HOT.last_charged.as_ptr().cast_const();
        let core = compat::common_instrumentation(&mut self.node_mut(node).instr);
        // SAFETY: only this thread writes the counters of the last charge.
        unsafe { (core.bufusage_start, core.walusage_start) = ((*last).buffers, (*last).wal) };
    }

    #[inline(always)]
    fn charge_caller_since_kept(&mut self, node: LiveNode) {
        // SAFETY: the node and its caller's account are live. No reference to a node exists, because that
        // would borrow the executor.
        unsafe { called::charge_caller(node.0) };
    }

    #[inline(always)]
    fn keep_last(&mut self, node: LiveNode, row: *mut TupleTableSlot) {
        self.node_mut(node).last = row;
    }

    #[inline(always)]
    fn add_row(&mut self, node: LiveNode) {
        self.node_mut(node).rows += 1;
    }

    /// Core's InstrEndLoop counts the start and clears this flag.
    #[inline(always)]
    fn has_begun(&self, node: LiveNode) -> bool {
        self.node(node).instr.running
    }

    #[inline(always)]
    fn set_begun(&mut self, node: LiveNode) {
        self.node_mut(node).instr.running = true;
    }

    #[inline(always)]
    fn before(&self, node: LiveNode) -> u64 {
        self.node(node).before
    }

    #[inline(always)]
    fn set_before(&mut self, node: LiveNode, reading: u64) {
        self.node_mut(node).before = reading;
    }

    #[inline(always)]
    fn every_call(&mut self, node: LiveNode) -> &mut EveryCall {
        &mut self.node_mut(node).every_call
    }

    #[inline(always)]
    fn count_in_histogram(&mut self, node: LiveNode, ticks: i64, did_read: bool) {
        self.node_mut(node).histogram.count(ns(ticks), did_read);
    }

    #[inline(always)]
    fn list_in_histogram(&mut self, node: LiveNode, ticks: i64, did_read: bool) {
        self.node_mut(node).histogram.list(ns(ticks), did_read);
    }

    #[inline(always)]
    fn note_hits(&mut self, node: LiveNode, ticks: i64) {
        if self.node(node).timer.is_sampling() {
            add_hits(self.node_mut(node), ticks);
        }
    }

    #[inline(always)]
    fn is_beginning(&self, node: LiveNode) -> bool {
        self.node(node).timer.is_beginning()
    }

    #[inline(always)]
    fn is_next_timed(&mut self, node: LiveNode) -> bool {
        NodeTimer::is_next_timed(&mut self.node_mut(node).timer)
    }

    #[inline(always)]
    fn sampling(&mut self, node: LiveNode) -> Sampling<'_, Random> {
        // SAFETY: evidence, configuration and generator are parts of a static. Other code changes them only
        // while the sampler does not run: between statements, and in the functions of this trait, which
        // borrow the executor too.
        unsafe {
            Sampling {
                config: &*HOT.config.as_ptr().cast_const(),
                random: &mut *HOT.random.get(),
                evidence: &mut *HOT.evidence.as_ptr(),
                timer: &mut self.node_mut(node).timer,
            }
        }
    }

    #[inline(always)]
    fn last_reading(&self) -> u64 {
        timing::last()
    }

    #[inline(always)]
    fn readings(&self) -> u64 {
        HOT.readings.get()
    }

    #[inline(always)]
    fn set_readings(&mut self, readings: u64) {
        HOT.readings.set(readings);
    }

    #[inline(always)]
    fn read_clock<const IN_ORDER: bool>(&mut self) -> u64 {
        timing::read::<IN_ORDER>()
    }

    #[inline(always)]
    fn read_and_count(&mut self) -> u64 {
        timing::read_and_count()
    }

    #[inline(always)]
    fn read_for_every_call<const TIMED: u8>(&mut self) -> u64 {
        if TIMED == Timed::EveryTsc as u8 {
            tsc::read()
        } else {
            (HOT.read.get())()
        }
    }

    #[inline(always)]
    fn collect_evidence(&mut self) {
        timing::collect_evidence();
    }

    #[inline(always)]
    fn wish_for_beats(&mut self) {
        beats::wish();
    }

    #[inline(always)]
    #[allow(ffi_unwind_calls, reason = "an error crosses only plain frames")]
    fn call_again(&mut self, again: LiveCall) -> *mut TupleTableSlot {
        // SAFETY: this is the call for which this value was made, under the same promises. Set-up chose the
        // node's method.
        unsafe { (*Node::of(again.0)).method.unwrap_unchecked()(again.0) }
    }

    #[inline(always)]
    fn charge_and_call(&mut self, call: LiveCall) -> *mut TupleTableSlot {
        charge_and_call(self.lend(), call)
    }

    #[inline(always)]
    fn call_timed<const ACCOUNTING: u8>(&mut self, call: LiveCall, node: LiveNode) -> *mut TupleTableSlot {
        call_timed::<ACCOUNTING>(self.lend(), call, node)
    }

    #[inline(always)]
    fn call_sampled<const ACCOUNTING: u8>(&mut self, call: LiveCall, node: LiveNode) -> *mut TupleTableSlot {
        call_sampled::<ACCOUNTING>(self.lend(), call, node)
    }

    #[inline(always)]
    fn finish_changed_call<const TIMED: u8, const ACCOUNTING: u8>(
        &mut self,
        node: LiveNode,
        row: *mut TupleTableSlot,
    ) -> *mut TupleTableSlot {
        finish_changed_call::<TIMED, ACCOUNTING>(self.lend(), node, row)
    }

    #[inline(always)]
    fn finish_and_scan<const TIMED: u8>(&mut self, call: LiveCall) -> *mut TupleTableSlot {
        finish_and_scan::<TIMED>(self.lend(), call)
    }

    #[inline(always)]
    fn finish_previous_scan_call<const TIMED: u8>(&mut self, scan: LiveNode) {
        finish_previous_scan_call::<TIMED>(self.lend(), scan)
    }

    fn call_method<
        const TIMED: u8,
        const ACCOUNTING: u8,
        const BEFORE: u8,
        const AFTER: u8,
        const IS_DRAINED: bool,
    >() -> Method {
        call::<TIMED, ACCOUNTING, BEFORE, AFTER, IS_DRAINED>
    }

    fn scan_method<const TIMED: u8, const SCOPE: u8>() -> Method {
        scan::<TIMED, SCOPE>
    }
}

/// Returns whether this is a row.
///
/// # Safety
/// `row` must be null or a live slot.
#[inline(always)]
pub unsafe fn is_row(row: *mut TupleTableSlot) -> bool {
    // SAFETY: the slot is null or live by the caller's promise.
    !row.is_null() && unsafe { (*row).tts_flags } & pg_sys::TTS_FLAG_EMPTY as u16 == 0
}

/// Adds the hits of a sampled call that read no block. Long calls are left out: what made them long (a wait,
/// another process on the processor) would hide the hits. It is out of line, so that the calls of short
/// statements save fewer registers.
#[inline(never)]
fn add_hits(node: &mut Node, ticks: i64) {
    if (ticks as f64) < HOT.config.get().long {
        node.histogram.hits.add(ns(ticks), usage::hits_since_charge());
    }
}

/// Returns the nanoseconds of ticks of the current clock.
#[inline(always)]
fn ns(ticks: i64) -> f64 {
    ticks as f64 * HOT.ns_per_tick.get()
}

/// Makes a node's first call: checks the stack, as core does at the first call, and installs the node's
/// wrapper.
///
/// # Safety
/// Only the executor may call this, with a plan state whose statement is set up.
#[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot.rowsource"))]
#[allow(ffi_unwind_calls, reason = "an error crosses only plain frames")]
pub unsafe extern "C-unwind" fn first_call(ps: *mut PlanState) -> *mut TupleTableSlot {
    // SAFETY: the executor calls this with a plan state whose node is live, and whose `method` was set with
    // the node.
    unsafe {
        unguarded::check_stack_depth();
        let method = (*Node::of(ps)).method;
        (*ps).ExecProcNode = method;
        method.unwrap_unchecked()(ps)
    }
}

/// Calls [`wrapper::call`] with PostgreSQL's executor.
///
/// # Safety
/// The same as for [`Executor::calls`].
#[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot.rowsource"))]
unsafe extern "C-unwind" fn call<
    const TIMED: u8,
    const ACCOUNTING: u8,
    const BEFORE: u8,
    const AFTER: u8,
    const IS_DRAINED: bool,
>(
    ps: *mut PlanState,
) -> *mut TupleTableSlot {
    // SAFETY: this function's caller makes the same promises.
    let (mut executor, call) = unsafe { Executor::calls(ps) };
    wrapper::call::<_, TIMED, ACCOUNTING, BEFORE, AFTER, IS_DRAINED>(&mut executor, call)
}

/// Calls [`wrapper::scan`] with PostgreSQL's executor.
///
/// # Safety
/// The same as for [`Executor::calls`].
#[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot.rowsource"))]
unsafe extern "C-unwind" fn scan<const TIMED: u8, const SCOPE: u8>(
    ps: *mut PlanState,
) -> *mut TupleTableSlot {
    // SAFETY: this function's caller makes the same promises.
    let (mut executor, call) = unsafe { Executor::calls(ps) };
    wrapper::scan::<_, TIMED, SCOPE>(&mut executor, call)
}

/// Calls [`wrapper::finish_and_scan`] with PostgreSQL's executor.
#[inline(never)]
fn finish_and_scan<const TIMED: u8>(mut executor: Executor, call: LiveCall) -> *mut TupleTableSlot {
    wrapper::finish_and_scan::<_, TIMED>(&mut executor, call)
}

/// Calls [`wrapper::finish_previous_scan_call`] with PostgreSQL's executor.
#[inline(never)]
fn finish_previous_scan_call<const TIMED: u8>(mut executor: Executor, scan: LiveNode) {
    wrapper::finish_previous_scan_call::<_, TIMED>(&mut executor, scan);
}

/// Calls [`wrapper::charge_and_call`] with PostgreSQL's executor.
#[inline(never)]
#[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot.rowsource"))]
fn charge_and_call(mut executor: Executor, call: LiveCall) -> *mut TupleTableSlot {
    wrapper::charge_and_call(&mut executor, call)
}

/// Calls [`wrapper::finish_changed_call`] with PostgreSQL's executor.
#[inline(never)]
#[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot.rowsource"))]
fn finish_changed_call<const TIMED: u8, const ACCOUNTING: u8>(
    mut executor: Executor,
    node: LiveNode,
    row: *mut TupleTableSlot,
) -> *mut TupleTableSlot {
    let row = wrapper::finish_changed_call::<_, TIMED, ACCOUNTING>(&mut executor, node, row);
    // Hides that the result is the argument. Otherwise the hot path would save it across this call instead of
    // jumping here.
    std::hint::black_box(row)
}

/// Calls [`wrapper::call_timed`] with PostgreSQL's executor.
#[inline(never)]
#[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot.rowsource"))]
fn call_timed<const ACCOUNTING: u8>(
    mut executor: Executor,
    call: LiveCall,
    node: LiveNode,
) -> *mut TupleTableSlot {
    wrapper::call_timed::<_, ACCOUNTING>(&mut executor, call, node)
}

/// Calls [`wrapper::call_sampled`] with PostgreSQL's executor.
#[inline(never)]
#[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot.rowsource"))]
fn call_sampled<const ACCOUNTING: u8>(
    mut executor: Executor,
    call: LiveCall,
    node: LiveNode,
) -> *mut TupleTableSlot {
    wrapper::call_sampled::<_, ACCOUNTING>(&mut executor, call, node)
}
