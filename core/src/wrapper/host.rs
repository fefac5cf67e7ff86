//! What a wrapper needs of the executor, and of the simulated one in the tests.

use crate::sampler::{Config, EveryCall, LongCallEvidence, NodeTimer};
use rand_core::RngCore;

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
/// In the methods, `TIMED` is a [`Timed`], `ACCOUNTING` an [`Accounting`], and `SCOPE` a [`Scope`]: `BEFORE`
/// is what the node's caller can move, `AFTER` what the node itself can move.
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
    /// Leaves a mark that the clock was read inside a call that began after the reading `before`. If there is
    /// a mark, that one stays.
    fn mark(&mut self, before: u64);
    /// Removes the mark. If a beat left one, reads the clock.
    fn remove_mark(&mut self);
    /// Returns the last clock reading before the mark, or the last one if there is none.
    fn last_reading_before_mark(&self) -> u64;
    /// Returns how many blocks were read so far, including those of work files.
    fn blocks_read(&self) -> i64;
    /// Adds the increase of the counters since the last charge to an account, if there is any. Returns true
    /// if that includes I/O or many buffers.
    fn charge(&mut self, account: Self::Account) -> bool;
    /// Returns the account of the running node.
    fn running_account(&self) -> Self::Account;
    /// Makes an account the running one.
    fn set_running_account(&mut self, account: Self::Account);

    /// Returns the node's own account.
    fn account(&self, node: Self::Node) -> Self::Account;
    /// Returns the account of the node's caller.
    fn caller(&self, node: Self::Node) -> Self::Account;
    /// Sets the account of a subplan's caller. Nodes are told apart that called it one after the other.
    fn set_caller(&mut self, node: Self::Node, caller: Self::Account);
    /// Returns the scan below a fused aggregate.
    fn fused_scan(&self, node: Self::Node) -> Self::Node;
    /// Stores the counters of the last charge in the node.
    fn keep_last_charged(&mut self, node: Self::Node);
    /// Adds all that was charged since [`Host::keep_last_charged`] to what the subplan's caller called.
    fn charge_caller_since_kept(&mut self, node: Self::Node);

    /// Keeps what the node's call returned. This is enough to count the rows of a node whose caller reads
    /// each start to its end: its calls minus the one that ended each start.
    fn keep_last(&mut self, node: Self::Node, row: Self::Row);
    /// Counts a row of the node.
    fn add_row(&mut self, node: Self::Node);
    /// Returns whether the node was called since it was started or rescanned.
    fn has_begun(&self, node: Self::Node) -> bool;
    /// Notes that the node was called.
    fn set_begun(&mut self, node: Self::Node);
    /// Returns the last clock reading before the node's current call. For a leaf and a fused scan, it is
    /// known only while a call is timed or finished out of line.
    fn before(&self, node: Self::Node) -> u64;
    /// Stores the last clock reading before a call.
    fn set_before(&mut self, node: Self::Node, reading: u64);
    /// Returns the sums of a node whose every call is timed.
    fn every_call(&mut self, node: Self::Node) -> &mut EveryCall;
    /// Counts a timed call in the node's histogram.
    fn count_in_histogram(&mut self, node: Self::Node, ticks: i64, did_read: bool);
    /// Does the same for one of the node's first calls.
    fn list_in_histogram(&mut self, node: Self::Node, ticks: i64, did_read: bool);
    /// Notes how many blocks a call that stands for others got that are in a buffer. It is called before the
    /// call is charged, if it read no block.
    fn note_hits(&mut self, _node: Self::Node, _ticks: i64) {}
    /// Returns whether the timed call in progress is one of the node's first ones, all of which are timed.
    fn is_beginning(&self, node: Self::Node) -> bool;
    /// Counts down to the node's next timed call. Returns true if this is that call.
    fn is_next_timed(&mut self, node: Self::Node) -> bool;
    /// Returns what the sampler needs.
    fn sampling(&mut self, node: Self::Node) -> Sampling<'_, Self::Random>;

    /// Returns the last clock reading.
    fn last_reading(&self) -> u64;
    /// Returns how many readings were counted so far.
    fn readings(&self) -> u64;
    /// Sets the number of readings.
    fn set_readings(&mut self, readings: u64);
    /// Reads the clock and remembers the reading, which is not counted. If `IN_ORDER`, reads it after all
    /// that was executed before.
    fn read_clock<const IN_ORDER: bool>(&mut self) -> u64;
    /// Reads the clock, remembers the reading, and counts it.
    fn read_and_count(&mut self) -> u64;
    /// Reads the clock if every call is timed. The reading is not remembered.
    fn read_for_every_call<const TIMED: u8>(&mut self) -> u64;
    /// Copies the last reading, and that at which the last beat was taken, into the evidence.
    fn collect_evidence(&mut self);
    /// Wishes for beats, because not all calls are timed now. Measures the clock's own cost again now and
    /// then.
    fn wish_for_beats(&mut self);

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
