//! The simulated backend as the wrapper's host.

use super::{Method, Run};
use rand_xoshiro::Xoroshiro128PlusPlus;
use rowsource_core::beat::YOUNG_NS;
use rowsource_core::sampler::{EveryCall, MANY_BUFFERS, NodeTimer};
use rowsource_core::wrapper::{self, Host, Sampling, scope};
use std::ops::{AddAssign, Sub};

/// Counters of blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub hits: i64,
    pub reads: i64,
    /// Blocks of temporary tables. A read-only statement uses none.
    pub local_hits: i64,
}

impl AddAssign for Counters {
    fn add_assign(&mut self, other: Counters) {
        self.hits += other.hits;
        self.reads += other.reads;
        self.local_hits += other.local_hits;
    }
}

impl Sub for Counters {
    type Output = Counters;

    fn sub(self, other: Counters) -> Counters {
        Counters {
            hits: self.hits - other.hits,
            reads: self.reads - other.reads,
            local_hits: self.local_hits - other.local_hits,
        }
    }
}

/// Charges the remaining blocks when a statement ends.
pub fn charge_rest(run: &mut Run) {
    run.remove_mark();
    if run.have_counters_moved::<{ scope::ALL }>() {
        run.charge(run.running_account);
    }
}

impl Run<'_> {
    fn used_by(&mut self, account: usize) -> &mut Counters {
        match self.nodes.get_mut(account) {
            Some(node) => &mut node.used,
            None => &mut self.outside,
        }
    }

    fn spend(&mut self, node: usize, readings: f64, bookkeeping: f64) {
        let bookkeeping_ns = self.machine.bookkeeping_ns * bookkeeping;
        self.nodes[node].spent_ns += self.machine.reading_ns * readings + bookkeeping_ns;
        self.overhead(bookkeeping_ns);
    }
}

impl Host for Run<'_> {
    type Call = usize;
    type Node = usize;
    type Account = usize;
    type Row = bool;
    type Random = Xoroshiro128PlusPlus;
    type Method = Method;

    fn node_of(&self, call: usize) -> usize {
        call
    }

    fn run(&mut self, call: usize) -> bool {
        let bodies = self.bodies;
        let caller = self.runs.replace(call);
        self.nodes[call].parent = caller;
        self.is_row = true;
        bodies[call](self, call);
        self.runs = caller;
        std::mem::replace(&mut self.is_row, true)
    }

    fn is_row(&self, row: bool) -> bool {
        row
    }

    fn have_counters_moved<const SCOPE: u8>(&self) -> bool {
        let moved = self.counters - self.last_charged;
        let has_moved = match SCOPE {
            scope::ALL => moved != Counters::default(),
            _ => moved.hits + moved.reads != 0,
        };
        has_moved || self.before_mark.is_some() || self.beats > 0
    }

    fn mark(&mut self, before: u64) {
        self.before_mark.get_or_insert(before);
    }

    fn remove_mark(&mut self) {
        self.before_mark = None;
        if std::mem::take(&mut self.beats) > 0 {
            self.ticked = self.read();
            self.evidence
                .take_beat(self.ticked, self.gap_ns * self.machine.ticks_per_ns);
        }
    }

    fn last_reading_before_mark(&self) -> u64 {
        self.before_mark.unwrap_or(self.last)
    }

    fn blocks_read(&self) -> i64 {
        self.counters.reads
    }

    fn charge(&mut self, account: usize) -> bool {
        let moved = self.counters - self.last_charged;
        self.last_charged = self.counters;
        *self.used_by(account) += moved;
        moved.reads != 0 || moved.hits >= MANY_BUFFERS
    }

    fn running_account(&self) -> usize {
        self.running_account
    }

    fn set_running_account(&mut self, account: usize) {
        self.running_account = account;
    }

    fn account(&self, node: usize) -> usize {
        node
    }

    fn caller(&self, node: usize) -> usize {
        self.nodes[node].caller
    }

    fn set_caller(&mut self, node: usize, caller: usize) {
        self.nodes[node].caller = caller;
    }

    fn fused_scan(&self, node: usize) -> usize {
        self.nodes[node].fused_scan
    }

    fn keep_last_charged(&mut self, node: usize) {
        self.nodes[node].last_charged_at_entry = self.last_charged;
    }

    fn charge_caller_since_kept(&mut self, node: usize) {
        let used = self.last_charged - self.nodes[node].last_charged_at_entry;
        let caller = self.nodes[node].caller;
        *self.used_by(caller) += used;
    }

    fn keep_last(&mut self, node: usize, row: bool) {
        self.nodes[node].is_last_row = row;
    }

    fn add_row(&mut self, node: usize) {
        self.nodes[node].rows += 1;
    }

    fn has_begun(&self, node: usize) -> bool {
        self.nodes[node].begun
    }

    fn set_begun(&mut self, node: usize) {
        self.nodes[node].begun = true;
    }

    fn before(&self, node: usize) -> u64 {
        self.nodes[node].before
    }

    fn set_before(&mut self, node: usize, reading: u64) {
        self.nodes[node].before = reading;
    }

    fn every_call(&mut self, node: usize) -> &mut EveryCall {
        &mut self.nodes[node].every
    }

    fn list_in_histogram(&mut self, node: usize, ticks: i64, did_read: bool) {
        self.count_in_histogram(node, ticks, did_read);
    }

    fn count_in_histogram(&mut self, node: usize, _ticks: i64, did_read: bool) {
        self.nodes[node].histogram[usize::from(did_read)] += 1;
        self.spend(node, 2.0, 1.0);
    }

    fn is_beginning(&self, node: usize) -> bool {
        self.nodes[node].timer.is_beginning()
    }

    fn is_next_timed(&mut self, node: usize) -> bool {
        NodeTimer::is_next_timed(&mut self.nodes[node].timer)
    }

    fn sampling(&mut self, node: usize) -> Sampling<'_, Xoroshiro128PlusPlus> {
        Sampling {
            timer: &mut self.nodes[node].timer,
            config: &self.config,
            random: &mut self.gaps,
            evidence: &mut self.evidence,
        }
    }

    fn last_reading(&self) -> u64 {
        self.last
    }

    fn readings(&self) -> u64 {
        self.readings
    }

    fn set_readings(&mut self, readings: u64) {
        self.readings = readings;
    }

    fn read_clock<const IN_ORDER: bool>(&mut self) -> u64 {
        self.read()
    }

    fn read_and_count(&mut self) -> u64 {
        self.readings += 1;
        self.read()
    }

    fn read_for_every_call<const TIMED: u8>(&mut self) -> u64 {
        self.read_unrecorded()
    }

    fn collect_evidence(&mut self) {
        self.evidence.last = self.last;
        self.evidence.ticked = self.ticked;
    }

    fn wish_for_beats(&mut self) {
        if self.machine.has_heart && !self.has_wish {
            self.has_wish = true;
            self.evidence.begin_beats(YOUNG_NS * self.machine.ticks_per_ns);
            self.next_look = self.now;
        }
    }

    fn call_again(&mut self, call: usize) -> bool {
        (self.nodes[call].method)(self, call)
    }

    fn charge_and_call(&mut self, call: usize) -> bool {
        wrapper::charge_and_call(self, call)
    }

    fn call_timed<const ACCOUNTING: u8>(&mut self, call: usize, node: usize) -> bool {
        wrapper::call_timed::<Self, ACCOUNTING>(self, call, node)
    }

    fn call_sampled<const ACCOUNTING: u8>(&mut self, call: usize, node: usize) -> bool {
        wrapper::call_sampled::<Self, ACCOUNTING>(self, call, node)
    }

    fn finish_changed_call<const TIMED: u8, const ACCOUNTING: u8>(&mut self, node: usize, row: bool) -> bool {
        let timed = self.nodes[node].timer.timed_calls;
        let row = wrapper::finish_changed_call::<Self, TIMED, ACCOUNTING>(self, node, row);
        if self.nodes[node].timer.timed_calls > timed {
            self.spend(node, 1.0, 0.25);
        }
        row
    }

    fn finish_and_scan<const TIMED: u8>(&mut self, call: usize) -> bool {
        wrapper::finish_and_scan::<Self, TIMED>(self, call)
    }

    fn finish_previous_scan_call<const TIMED: u8>(&mut self, scan: usize) {
        let timed = self.nodes[scan].timer.timed_calls;
        wrapper::finish_previous_scan_call::<Self, TIMED>(self, scan);
        if self.nodes[scan].timer.timed_calls > timed {
            self.spend(scan, 1.0, 0.25);
        }
    }

    fn call_method<
        const TIMED: u8,
        const ACCOUNTING: u8,
        const BEFORE: u8,
        const AFTER: u8,
        const IS_DRAINED: bool,
    >() -> Method {
        |run, call| wrapper::call::<Run, TIMED, ACCOUNTING, BEFORE, AFTER, IS_DRAINED>(run, call)
    }

    fn scan_method<const TIMED: u8, const SCOPE: u8>() -> Method {
        |run, call| wrapper::scan::<Run, TIMED, SCOPE>(run, call)
    }
}
