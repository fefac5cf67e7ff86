//! The logic of the wrapper around each call of a plan node, without PostgreSQL.
//!
//! In addition to calling the node, the wrapper does this. It counts the row. It checks whether the buffer
//! counters have changed: before the call this is charged to the caller, after it to the node itself. It
//! counts down to the next timed call. It checks whether the clock was read inside the call, which may prove
//! that the call was long. All these cases are handled by functions out of line, which are tail-called, so
//! that the frequent case saves few registers.
//!
//! A node without inputs reads no clock itself: only a nested statement does. It leaves a *mark*, which makes
//! the next check of the counters find a change, and which keeps the reading before it. So the wrapper of
//! such a node neither notes the last reading before a call nor compares it afterwards. A beat
//! ([`crate::beat`]) leaves such a mark too, and the clock is read when it is removed.
//!
//! [`Host`] provides all that the logic needs: the node, its counters, a clock. The extension implements it
//! for PostgreSQL's executor, in `src/pg/hot/`. The tests of this crate implement it for a simulated backend.
//! Both compile the same functions, by static dispatch, so the tests check the code that runs.
//!
//! This code does not allocate or panic, and has no destructors, because an error may leave any of these
//! frames by a longjmp.

mod host;
mod kinds;
mod method;

pub use host::{Host, Sampling};
pub use kinds::{Accounting, Scope, Timed, scope};
pub use method::{counts_calls, method};

use crate::sampler::{Detected, NodeTimer, TimedCall};
use kinds::mode::*;

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
    let every = TIMED == EVERY_TSC || TIMED == EVERY;
    let row = if every {
        run_every::<H, TIMED, ACCOUNTING>(host, call, node)
    } else {
        enter::<H, ACCOUNTING>(host, node);
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

/// Calls a node and times the call. The cost of the readings of nodes below is subtracted when the statement
/// ends.
///
/// Readers of running statements take the node's call for one in progress while its account is the running
/// one. So `before` is the call's reading before that, and it is that of its end when its time is added: the
/// session may be interrupted anywhere, and stay so for long.
#[inline(always)]
fn run_every<H: Host, const TIMED: u8, const ACCOUNTING: u8>(
    host: &mut H,
    call: H::Call,
    node: H::Node,
) -> H::Row {
    let blocks_read = host.blocks_read();
    let start = host.read_for_every_call::<TIMED>();
    host.set_before(node, start);
    enter::<H, ACCOUNTING>(host, node);
    let row = host.run(call);
    let end = host.read_for_every_call::<TIMED>();
    let did_read = host.blocks_read() != blocks_read;
    let first_of_start = !host.has_begun(node);
    let ticks = host.every_call(node).record(start, end, first_of_start);
    host.set_before(node, end);
    if let Some(ticks) = ticks {
        host.count_in_histogram(node, ticks as i64, did_read);
    }
    row
}

/// Calls the scan below a fused aggregate. The aggregate uses the scan's account, because it uses nothing
/// itself and cannot fail between two calls of the scan. So nothing is checked when a call ends, and the node
/// is tail-called. Whether a call did I/O or was long is checked when the next call begins, or when the
/// aggregate's call ends. The number of rows is the number of calls minus one for each start, because each
/// start is read to its end.
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
    // As long as all calls are timed, the previous one was, too, if there was one.
    if TIMED == SAMPLED && !host.is_beginning(scan) {
        record_if_long(host, scan, did_io);
    }
}

/// Records a call that was not timed, if it did I/O or if a beat and the clock prove that it was long.
#[inline(always)]
fn record_if_long<H: Host>(host: &mut H, node: H::Node, did_io: bool) {
    let before = host.before(node);
    host.collect_evidence();
    let sampling = host.sampling(node);
    if let Some(detected) = NodeTimer::detect(before, did_io, sampling.evidence) {
        record_detected(host, node, detected);
    }
}

/// Records a call that was not timed but detected. It is out of line, because it is rare, and its callers
/// then save fewer registers.
#[inline(never)]
fn record_detected<H: Host>(host: &mut H, node: H::Node, detected: Detected) {
    let first_of_start = !host.has_begun(node);
    let before = host.before(node);
    let end = host.read_clock::<false>();
    let sampling = host.sampling(node);
    let is_recorded = sampling.timer.record_detected(
        sampling.config,
        detected,
        before,
        end,
        first_of_start,
        sampling.evidence,
    );
    if is_recorded {
        host.set_readings(host.readings() + 1);
    }
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

/// Makes and times the call that the countdown chose: one of the node's first ones, or one that stands for
/// others.
#[inline(always)]
pub fn call_timed<H: Host, const ACCOUNTING: u8>(host: &mut H, call: H::Call, node: H::Node) -> H::Row {
    if host.is_beginning(node) {
        time_call::<H, ACCOUNTING, false>(host, call, node)
    } else {
        host.call_sampled::<ACCOUNTING>(call, node)
    }
}

/// Makes and times a call that stands for others, or that may be long.
#[inline(always)]
pub fn call_sampled<H: Host, const ACCOUNTING: u8>(host: &mut H, call: H::Call, node: H::Node) -> H::Row {
    time_call::<H, ACCOUNTING, true>(host, call, node)
}

/// Makes and times a call. The clock is read in order only around calls that stand for others: most
/// statements are short, and for these the readings are most of the cost.
#[inline(always)]
fn time_call<H: Host, const ACCOUNTING: u8, const IS_SAMPLE: bool>(
    host: &mut H,
    call: H::Call,
    node: H::Node,
) -> H::Row {
    let blocks_read = host.blocks_read();
    let before = host.last_reading();
    let readings = host.readings();
    let start = host.read_clock::<IS_SAMPLE>();
    // Readers of running statements rely on this order: see `run_every`.
    host.set_before(node, start);
    enter::<H, ACCOUNTING>(host, node);
    let row = host.run(call);
    let end = host.read_clock::<IS_SAMPLE>();
    let nested_readings = host.readings() - readings;
    host.set_readings(host.readings() + 2);
    let did_read = host.blocks_read() != blocks_read;
    let ticks = end.wrapping_sub(start) as i64;
    if IS_SAMPLE {
        host.count_in_histogram(node, ticks, did_read);
        if !did_read {
            host.note_hits(node, ticks);
        }
    } else {
        host.list_in_histogram(node, ticks, did_read);
    }
    let timed = TimedCall {
        before,
        start,
        end,
        nested_readings,
        did_io: leave::<H, SAMPLED, ACCOUNTING>(host, node),
        first_of_start: !host.has_begun(node),
    };
    if IS_SAMPLE {
        // A beat in this call is taken by now.
        host.collect_evidence();
    }
    let sampling = host.sampling(node);
    if IS_SAMPLE {
        let wishes_for_beats =
            sampling
                .timer
                .record_timed(sampling.config, sampling.random, &timed, sampling.evidence);
        if wishes_for_beats {
            host.wish_for_beats();
        }
    } else {
        sampling
            .timer
            .record_first(sampling.config, &timed, sampling.evidence);
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

/// Charges the node with its own part, and makes its caller's account the running one. Returns true if the
/// call did I/O or used many buffers.
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
