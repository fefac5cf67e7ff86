//! The logic of the wrapper around each call of a plan node, without PostgreSQL.
//!
//! In addition to calling the node, the wrapper does this. It counts the row. It checks whether the buffer counters have
//! changed: before the call this is charged to the caller, after it to the node itself. It counts down to the next timed
//! call. It checks whether the clock was read inside the call, which may prove that the call was long. All these cases are
//! handled by functions out of line, which are tail-called, so that the frequent case saves few registers.
//!
//! A node without inputs reads no clock itself: only the tick or a nested statement does. These leave a *mark*, which makes
//! the next check of the counters find a change, and which keeps the reading before them. So the wrapper of such a node
//! neither notes the last reading before a call nor compares it afterwards.
//!
//! [`Host`] provides all that the logic needs: the node, its counters, a clock. The extension implements it for
//! PostgreSQL's executor, in `src/pg/hot/`. The tests of this crate implement it for a simulated backend. Both compile the
//! same functions, by static dispatch, so the tests check the code that runs.
//!
//! This code does not allocate or panic, and has no destructors, because an error may leave any of these frames by a
//! longjmp.

use crate::sampler::{Config, Detected, EveryCall, LongCallEvidence, NodeTimer, TimedCall};
use rand_core::RngCore;

/// How the blocks that a node's calls use are charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Accounting {
    /// They are not charged.
    None,
    /// For the scan below a [`Accounting::FusedAggregate`]: see [`scan`].
    FusedScan,
    /// As [`Accounting::Switch`], for a node that calls no other node, neither as an input nor in an expression.
    Leaf,
    /// For most nodes: each call makes the node's account the running one. At its end, the caller's account becomes the
    /// running one again.
    Switch,
    /// For the root of an InitPlan or subplan: what it used is also charged to the node that called it.
    SubplanRoot,
    /// For a plain aggregate that only counts or sums what the scan below it returns: it uses the scan's account.
    FusedAggregate,
}

/// Which calls of a node are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Timed {
    /// None.
    Never,
    /// The calls that the sampler chooses.
    Sampled,
    /// All calls, with the time stamp counter, which is read inline.
    EveryTsc,
    /// All calls, with any other clock.
    Every,
}

/// The enums as numbers, because const parameters of functions cannot be enums.
mod mode {
    use super::{Accounting, Timed};

    pub const NONE: u8 = Accounting::None as u8;
    pub const FUSED_SCAN: u8 = Accounting::FusedScan as u8;
    pub const LEAF: u8 = Accounting::Leaf as u8;
    pub const SWITCH: u8 = Accounting::Switch as u8;
    pub const SUBPLAN_ROOT: u8 = Accounting::SubplanRoot as u8;
    pub const FUSED_AGGREGATE: u8 = Accounting::FusedAggregate as u8;

    pub const NEVER: u8 = Timed::Never as u8;
    pub const SAMPLED: u8 = Timed::Sampled as u8;
    pub const EVERY_TSC: u8 = Timed::EveryTsc as u8;
    pub const EVERY: u8 = Timed::Every as u8;
}
use mode::*;

/// The counters that some code can move, and that must be checked after it ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Scope {
    /// All counters: in a statement that writes or uses temporary tables.
    All,
    /// Shared buffers and work files: in a statement that only reads, and reads no temporary table. There, a buffer is
    /// written only when another is read, and WAL (pruning, hint bits) is written only when a buffer is hit or dirtied.
    Reads,
    /// Shared buffers: for code of such a statement that uses no work files.
    Shared,
}

/// The scopes as numbers, because const parameters of functions cannot be enums.
pub mod scope {
    use super::Scope;

    /// [`Scope::All`]
    pub const ALL: u8 = Scope::All as u8;
    /// [`Scope::Reads`]
    pub const READS: u8 = Scope::Reads as u8;
    /// [`Scope::Shared`]
    pub const SHARED: u8 = Scope::Shared as u8;
}
use scope::*;

/// What the sampler needs to record a call.
pub struct Sampling<'a, R> {
    /// The node's timing state.
    pub timer: &'a mut NodeTimer,
    /// The statement's configuration.
    pub config: &'a Config,
    /// Chooses the calls.
    pub random: &'a mut R,
    /// The evidence, as [`Host::collect_evidence`] left it.
    pub evidence: &'a mut LongCallEvidence,
}

/// What a wrapper needs: an executor, its counters, a clock, and the state of its nodes.
///
/// In the methods, `TIMED` is a [`Timed`], `ACCOUNTING` an [`Accounting`], and `SCOPE` a [`Scope`]: `BEFORE` is what the node's
/// caller can move, `AFTER` what the node itself can move.
pub trait Host {
    /// A call of a node.
    type Call: Copy;
    /// The state of a node.
    type Node: Copy;
    /// What a node itself used.
    type Account: Copy;
    /// What a call returns.
    type Row: Copy;
    /// Chooses the calls that are timed.
    type Random: RngCore;
    /// A compiled wrapper.
    type Method;

    /// Returns the node that is called.
    fn node_of(&self, call: Self::Call) -> Self::Node;
    /// Calls the node itself.
    fn run(&mut self, call: Self::Call) -> Self::Row;
    /// Returns whether a call returned a row. Otherwise it returned the end.
    fn is_row(&self, row: Self::Row) -> bool;

    /// Returns whether counters of the scope have changed since the last charge, or whether there is a mark.
    fn have_counters_moved<const SCOPE: u8>(&self) -> bool;
    /// Leaves a mark that the clock was read inside a call that began after the reading `before`. If there is a mark, that
    /// one stays.
    fn mark(&mut self, before: u64);
    /// Removes the mark. Returns whether there was one.
    fn remove_mark(&mut self) -> bool;
    /// Returns the last clock reading before the mark, or the last one if there is none.
    fn last_reading_before_mark(&self) -> u64;
    /// Returns how many blocks were read so far, including those of work files.
    fn blocks_read(&self) -> i64;
    /// Adds the increase of the counters since the last charge to an account, if there is any. Returns true if that includes I/O or
    /// many buffers.
    fn charge(&mut self, account: Self::Account) -> bool;
    /// Returns the account of the running node.
    fn running_account(&self) -> Self::Account;
    /// Makes an account the running one.
    fn set_running_account(&mut self, account: Self::Account);

    /// Returns the node's own account.
    fn account(&self, node: Self::Node) -> Self::Account;
    /// Returns the account of the node's caller.
    fn caller(&self, node: Self::Node) -> Self::Account;
    /// Sets the account of the node's caller.
    fn set_caller(&mut self, node: Self::Node, caller: Self::Account);
    /// Returns the scan below a fused aggregate.
    fn fused_scan(&self, node: Self::Node) -> Self::Node;
    /// Stores the counters of the last charge in the node.
    fn keep_last_charged(&mut self, node: Self::Node);
    /// Adds all that was charged since [`Host::keep_last_charged`] to the account of the node's caller.
    fn charge_caller_since_kept(&mut self, node: Self::Node);

    /// Keeps what the node's call returned. This is enough to count the rows of a node whose caller reads each start to its
    /// end: its calls minus the one that ended each start.
    fn keep_last(&mut self, node: Self::Node, row: Self::Row);
    /// Counts a row of the node.
    fn add_row(&mut self, node: Self::Node);
    /// Returns whether the node was called since it was started or rescanned.
    fn has_begun(&self, node: Self::Node) -> bool;
    /// Notes that the node was called.
    fn set_begun(&mut self, node: Self::Node);
    /// Returns the last clock reading before the node's current call. For a leaf and a fused scan, it is known only while a
    /// call is timed or finished out of line.
    fn before(&self, node: Self::Node) -> u64;
    /// Stores the last clock reading before a call.
    fn set_before(&mut self, node: Self::Node, reading: u64);
    /// Returns the sums of a node whose every call is timed.
    fn every_call(&mut self, node: Self::Node) -> &mut EveryCall;
    /// Counts a timed call in the node's histogram.
    fn count_in_histogram(&mut self, node: Self::Node, ticks: i64, did_read: bool);
    /// Notes how many blocks a call that stands for others got that are in a buffer. It is called before the call is charged, if it read no
    /// block.
    fn note_hits(&mut self, _node: Self::Node, _ticks: i64) {}
    /// Returns whether the timed call in progress is one of the node's first ones, all of which are timed.
    fn is_beginning(&self, node: Self::Node) -> bool;
    /// Counts down to the node's next timed call. Returns true if this is that call.
    fn is_next_timed(&mut self, node: Self::Node) -> bool;
    /// Returns what the sampler needs.
    fn sampling(&mut self, node: Self::Node) -> Sampling<'_, Self::Random>;

    /// Returns the last clock reading, by any node or by the tick.
    fn last_reading(&self) -> u64;
    /// Returns how many readings were counted so far.
    fn readings(&self) -> u64;
    /// Sets the number of readings.
    fn set_readings(&mut self, readings: u64);
    /// Reads the clock and remembers the reading, which is not counted.
    fn read_clock(&mut self) -> u64;
    /// Does the same after all that was executed before.
    fn read_clock_in_order(&mut self) -> u64;
    /// Reads the clock if every call is timed. The reading is not remembered.
    fn read_for_every_call<const TIMED: u8>(&mut self) -> u64;
    /// Copies the last reading and the tick's last reading into the evidence.
    fn collect_evidence(&mut self);
    /// Makes the tick run, and slows it down with the statement's age.
    fn want_tick(&mut self);
    /// Wakes the tick up if it sleeps.
    fn wake_tick(&mut self);

    /// Restarts the node's wrapper from its beginning.
    fn call_again(&mut self, call: Self::Call) -> Self::Row;

    /// Calls [`charge_and_call`] out of line.
    fn charge_and_call(&mut self, call: Self::Call) -> Self::Row;
    /// Calls [`call_timed`] out of line.
    fn call_timed<const ACCOUNTING: u8>(&mut self, call: Self::Call, node: Self::Node) -> Self::Row;
    /// Calls [`call_sampled`] out of line.
    fn call_sampled<const ACCOUNTING: u8>(&mut self, call: Self::Call, node: Self::Node) -> Self::Row;
    /// Calls [`finish_changed_call`] out of line.
    fn finish_changed_call<const TIMED: u8, const ACCOUNTING: u8>(
        &mut self,
        node: Self::Node,
        row: Self::Row,
    ) -> Self::Row;
    /// Calls [`finish_and_scan`] out of line.
    fn finish_and_scan<const TIMED: u8>(&mut self, call: Self::Call) -> Self::Row;
    /// Calls [`finish_previous_scan_call`] out of line.
    fn finish_previous_scan_call<const TIMED: u8>(&mut self, scan: Self::Node);

    /// Returns the wrapper that is compiled from [`call`].
    fn call_method<
        const TIMED: u8,
        const ACCOUNTING: u8,
        const BEFORE: u8,
        const AFTER: u8,
        const IS_DRAINED: bool,
    >() -> Self::Method;
    /// Returns the wrapper that is compiled from [`scan`].
    fn scan_method<const TIMED: u8, const SCOPE: u8>() -> Self::Method;
}

/// Returns whether such a wrapper counts calls instead of rows, if the node's caller reads each start to its end.
pub fn counts_calls(timed: Timed, accounting: Accounting) -> bool {
    match accounting {
        Accounting::Leaf | Accounting::Switch => timed == Timed::Sampled,
        Accounting::FusedScan => matches!(timed, Timed::Sampled | Timed::Never),
        _ => false,
    }
}

/// Returns the wrapper for a node, whose caller can move the counters of `before`, and which can itself move those of `after`.
/// `is_drained` says that the caller reads each start of the node to its end, and calls nothing else meanwhile.
pub fn method<H: Host>(
    timed: Timed,
    accounting: Accounting,
    before: Scope,
    after: Scope,
    is_drained: bool,
) -> H::Method {
    match timed {
        Timed::Never if accounting == Accounting::FusedScan => scan_method::<H, NEVER>(after),
        Timed::Never => plain_method::<H, NEVER>(accounting, after),
        Timed::Sampled => match accounting {
            Accounting::FusedScan => scan_method::<H, SAMPLED>(after),
            Accounting::Leaf if is_drained => call_method::<H, LEAF, true>(before, after),
            Accounting::Leaf => call_method::<H, LEAF, false>(before, after),
            Accounting::Switch if is_drained => call_method::<H, SWITCH, true>(before, after),
            Accounting::Switch => call_method::<H, SWITCH, false>(before, after),
            _ => plain_method::<H, SAMPLED>(accounting, after),
        },
        Timed::EveryTsc => plain_method::<H, EVERY_TSC>(accounting, after),
        Timed::Every => plain_method::<H, EVERY>(accounting, after),
    }
}

/// Returns a wrapper that checks all counters that can move in the statement.
fn plain_method<H: Host, const TIMED: u8>(accounting: Accounting, scope: Scope) -> H::Method {
    match accounting {
        // The end of every call must be timed, so a fused scan gets the usual wrapper. The fused aggregate charges for it.
        Accounting::None | Accounting::FusedScan => H::call_method::<TIMED, NONE, ALL, ALL, false>(),
        Accounting::Leaf | Accounting::Switch if scope == Scope::All => {
            H::call_method::<TIMED, SWITCH, ALL, ALL, false>()
        }
        Accounting::Leaf | Accounting::Switch => H::call_method::<TIMED, SWITCH, READS, READS, false>(),
        Accounting::FusedAggregate => H::call_method::<TIMED, FUSED_AGGREGATE, ALL, ALL, false>(),
        Accounting::SubplanRoot => H::call_method::<TIMED, SUBPLAN_ROOT, ALL, ALL, false>(),
    }
}

/// Returns a wrapper that checks only what can move.
fn call_method<H: Host, const ACCOUNTING: u8, const IS_DRAINED: bool>(
    before: Scope,
    after: Scope,
) -> H::Method {
    match (before, after) {
        (Scope::All, _) | (_, Scope::All) => H::call_method::<SAMPLED, ACCOUNTING, ALL, ALL, IS_DRAINED>(),
        (Scope::Shared, Scope::Shared) => H::call_method::<SAMPLED, ACCOUNTING, SHARED, SHARED, IS_DRAINED>(),
        (_, Scope::Shared) => H::call_method::<SAMPLED, ACCOUNTING, READS, SHARED, IS_DRAINED>(),
        _ => H::call_method::<SAMPLED, ACCOUNTING, READS, READS, IS_DRAINED>(),
    }
}

fn scan_method<H: Host, const TIMED: u8>(scope: Scope) -> H::Method {
    match scope {
        Scope::All => H::scan_method::<TIMED, ALL>(),
        _ => H::scan_method::<TIMED, SHARED>(),
    }
}

/// Calls a node and measures the call.
#[inline(always)]
pub fn call<
    H: Host,
    const TIMED: u8,
    const ACCOUNTING: u8,
    const BEFORE: u8,
    const AFTER: u8,
    const IS_DRAINED: bool,
>(
    host: &mut H,
    call: H::Call,
) -> H::Row {
    if ACCOUNTING >= LEAF && host.have_counters_moved::<BEFORE>() {
        return host.charge_and_call(call);
    }
    let node = host.node_of(call);
    if TIMED == SAMPLED {
        if host.is_next_timed(node) {
            return host.call_timed::<ACCOUNTING>(call, node);
        }
        if ACCOUNTING != LEAF {
            host.set_before(node, host.last_reading());
        }
    }
    enter::<H, ACCOUNTING>(host, node);
    let every = TIMED == EVERY_TSC || TIMED == EVERY;
    let row = if every {
        run_every::<H, TIMED>(host, call, node)
    } else {
        host.run(call)
    };
    if (ACCOUNTING != NONE && host.have_counters_moved::<AFTER>())
        || ACCOUNTING > SWITCH
        || (TIMED == SAMPLED && ACCOUNTING != LEAF && host.last_reading() != host.before(node))
    {
        return host.finish_changed_call::<TIMED, ACCOUNTING>(node, row);
    }
    if ACCOUNTING == LEAF || ACCOUNTING == SWITCH {
        host.set_running_account(host.caller(node));
    }
    if IS_DRAINED {
        host.keep_last(node, row);
        host.set_begun(node);
    } else {
        count_row(host, node, row);
    }
    row
}

/// Calls a node and times the call. The cost of the readings of nodes below is subtracted when the statement ends.
#[inline(always)]
fn run_every<H: Host, const TIMED: u8>(host: &mut H, call: H::Call, node: H::Node) -> H::Row {
    let blocks_read = host.blocks_read();
    let start = host.read_for_every_call::<TIMED>();
    host.set_before(node, start);
    let row = host.run(call);
    let end = host.read_for_every_call::<TIMED>();
    let did_read = host.blocks_read() != blocks_read;
    let first_of_start = !host.has_begun(node);
    if let Some(ticks) = host.every_call(node).record(start, end, first_of_start) {
        host.count_in_histogram(node, ticks as i64, did_read);
    }
    row
}

/// Calls the scan below a fused aggregate. The aggregate uses the scan's account, because it uses nothing itself and cannot
/// fail between two calls of the scan. So nothing is checked when a call ends, and the node is tail-called. Whether a call
/// did I/O or was long is checked when the next call begins, or when the aggregate's call ends. The number of rows is the
/// number of calls minus one for each start, because each start is read to its end.
#[inline(always)]
pub fn scan<H: Host, const TIMED: u8, const SCOPE: u8>(host: &mut H, call: H::Call) -> H::Row {
    if host.have_counters_moved::<SCOPE>() {
        return host.finish_and_scan::<TIMED>(call);
    }
    let node = host.node_of(call);
    if TIMED == SAMPLED {
        if host.is_next_timed(node) {
            return host.call_timed::<FUSED_SCAN>(call, node);
        }
    } else {
        host.every_call(node).calls += 1;
    }
    host.set_begun(node);
    host.run(call)
}

/// Charges and records a scan's previous call, and makes the next one.
#[inline(always)]
pub fn finish_and_scan<H: Host, const TIMED: u8>(host: &mut H, call: H::Call) -> H::Row {
    host.finish_previous_scan_call::<TIMED>(host.node_of(call));
    // No counter changes before the second check.
    host.call_again(call)
}

/// Charges and records a scan's previous call.
#[inline(always)]
pub fn finish_previous_scan_call<H: Host, const TIMED: u8>(host: &mut H, scan: H::Node) {
    host.set_before(scan, host.last_reading_before_mark());
    host.remove_mark();
    let did_io = host.charge(host.account(scan));
    if TIMED == SAMPLED {
        record_if_long(host, scan, did_io);
    }
}

/// Records a call that was not timed, if it did I/O or if a clock reading proves that it was long.
#[inline(always)]
fn record_if_long<H: Host>(host: &mut H, node: H::Node, did_io: bool) {
    let before = host.before(node);
    host.collect_evidence();
    let sampling = host.sampling(node);
    let detected = sampling
        .timer
        .detect(sampling.config, before, did_io, sampling.evidence);
    if let Some(detected) = detected {
        record_detected(host, node, detected);
    }
    host.wake_tick();
}

/// Records a call that was not timed but detected. It is out of line, because it is rare, and its callers then save fewer
/// registers.
#[inline(never)]
fn record_detected<H: Host>(host: &mut H, node: H::Node, detected: Detected) {
    let first_of_start = !host.has_begun(node);
    let before = host.before(node);
    let end = host.read_clock();
    host.set_readings(host.readings() + 1);
    let sampling = host.sampling(node);
    sampling.timer.record_detected(
        sampling.config,
        detected,
        before,
        end,
        first_of_start,
        sampling.evidence,
    );
}

/// Charges the caller with the increase of the counters since the last charge, and makes the call.
#[inline(always)]
pub fn charge_and_call<H: Host>(host: &mut H, call: H::Call) -> H::Row {
    host.remove_mark();
    host.charge(host.running_account());
    // No counter changes before the second check.
    host.call_again(call)
}

/// Finishes a call after which the counters or the last clock reading have changed.
#[inline(always)]
pub fn finish_changed_call<H: Host, const TIMED: u8, const ACCOUNTING: u8>(
    host: &mut H,
    node: H::Node,
    row: H::Row,
) -> H::Row {
    if ACCOUNTING == LEAF {
        host.set_before(node, host.last_reading_before_mark());
    }
    let did_io = leave::<H, TIMED, ACCOUNTING>(host, node);
    if TIMED == SAMPLED {
        record_if_long(host, node, did_io);
    }
    if ACCOUNTING == SUBPLAN_ROOT && TIMED == SAMPLED && host.last_reading() != host.before(node) {
        host.mark(host.before(node));
    }
    host.keep_last(node, row);
    count_row(host, node, row);
    row
}

/// Makes and times the call that the countdown chose: one of the node's first ones, or one that stands for others.
#[inline(always)]
pub fn call_timed<H: Host, const ACCOUNTING: u8>(host: &mut H, call: H::Call, node: H::Node) -> H::Row {
    if host.is_beginning(node) {
        time_call::<H, ACCOUNTING, true>(host, call, node)
    } else {
        host.call_sampled::<ACCOUNTING>(call, node)
    }
}

/// Makes and times a call that stands for others, or that may be long.
#[inline(always)]
pub fn call_sampled<H: Host, const ACCOUNTING: u8>(host: &mut H, call: H::Call, node: H::Node) -> H::Row {
    time_call::<H, ACCOUNTING, false>(host, call, node)
}

/// Makes and times a call. The clock is read in order only around calls that stand for others: most statements are short, and for these the
/// readings are most of the cost.
#[inline(always)]
fn time_call<H: Host, const ACCOUNTING: u8, const IS_BEGINNING: bool>(
    host: &mut H,
    call: H::Call,
    node: H::Node,
) -> H::Row {
    let read = |host: &mut H| {
        if IS_BEGINNING {
            host.read_clock()
        } else {
            host.read_clock_in_order()
        }
    };
    enter::<H, ACCOUNTING>(host, node);
    let blocks_read = host.blocks_read();
    let before = host.last_reading();
    let readings = host.readings();
    let start = read(host);
    host.set_before(node, start);
    let row = host.run(call);
    if !IS_BEGINNING {
        host.collect_evidence();
    }
    let end = read(host);
    let nested_readings = host.readings() - readings;
    host.set_readings(host.readings() + 2);
    let did_read = host.blocks_read() != blocks_read;
    let ticks = end.wrapping_sub(start) as i64;
    host.count_in_histogram(node, ticks, did_read);
    if !IS_BEGINNING && !did_read {
        host.note_hits(node, ticks);
    }
    let timed = TimedCall {
        before,
        start,
        end,
        nested_readings,
        did_io: leave::<H, SAMPLED, ACCOUNTING>(host, node),
        first_of_start: !host.has_begun(node),
    };
    let sampling = host.sampling(node);
    if IS_BEGINNING {
        sampling
            .timer
            .record_first(sampling.config, &timed, sampling.evidence);
    } else {
        let wants_tick =
            sampling
                .timer
                .record_timed(sampling.config, sampling.random, &timed, sampling.evidence);
        if wants_tick {
            host.want_tick();
        }
    }
    if ACCOUNTING == SUBPLAN_ROOT {
        host.mark(before);
    }
    if ACCOUNTING == FUSED_SCAN {
        host.set_begun(node);
    } else {
        host.keep_last(node, row);
        count_row(host, node, row);
    }
    row
}

/// Counts the row, if there is one, and marks the start as begun.
#[inline(always)]
fn count_row<H: Host>(host: &mut H, node: H::Node, row: H::Row) {
    if host.is_row(row) {
        host.add_row(node);
    }
    host.set_begun(node);
}

/// Makes the node's account the running one.
#[inline(always)]
fn enter<H: Host, const ACCOUNTING: u8>(host: &mut H, node: H::Node) {
    if ACCOUNTING == SUBPLAN_ROOT {
        host.set_caller(node, host.running_account());
        host.keep_last_charged(node);
    }
    if ACCOUNTING == FUSED_AGGREGATE {
        let scan = host.fused_scan(node);
        host.set_running_account(host.account(scan));
    } else if ACCOUNTING >= LEAF {
        host.set_running_account(host.account(node));
    }
}

/// Charges the node with its own part, and makes its caller's account the running one. Returns true if the call did I/O or
/// used many buffers.
#[inline(always)]
fn leave<H: Host, const TIMED: u8, const ACCOUNTING: u8>(host: &mut H, node: H::Node) -> bool {
    if ACCOUNTING == FUSED_AGGREGATE {
        host.finish_previous_scan_call::<TIMED>(host.fused_scan(node));
    } else {
        host.remove_mark();
    }
    let mut did_io = false;
    if ACCOUNTING != NONE {
        did_io = host.charge(host.account(node));
    }
    if ACCOUNTING >= LEAF {
        host.set_running_account(host.caller(node));
    }
    if ACCOUNTING == SUBPLAN_ROOT {
        host.charge_caller_since_kept(node);
    }
    did_io
}
