//! Adds an execution to the store: to the session's buffer, or directly to its plan's entry. Makes the entry
//! if needed.

use super::access::{self, Store};
use super::blocks::NoMemory;
use super::entry::{self, NewPlan, NoRoom};
use super::exemplars::{Gone, LiveStatement};
use super::pending::{self, PlanRef, PlanSlot};
use super::{evict, executions, exemplars, observe};
use crate::pg::border::backend_local::BackendLocal;
use crate::pg::server::contained::{Unlocked, contained};
use crate::pg::server::{self, memory};
use rowsource_core::eviction;
use rowsource_core::histogram::Histogram;
use rowsource_core::model::partitions::PartitionSum;
use rowsource_core::model::{
    Batch, ExecutionStats, Late, LazyDescription, MIN_SLOWEST_MS, NodeStats, Outside, PlanKey, Run,
};
use rowsource_core::results::Counts;
use std::cell::Cell;
use std::rc::Rc;

/// Who is told which executions of this session pass to the store. They pass in sums, about once a second.
#[derive(Clone, Copy)]
pub struct Listener {
    /// Is called for the executions of a plan. It must not raise.
    pub passed: fn(&PlanKey, &Batch),
    /// Is called afterwards, with the time. The session holds no lock, and is outside of any boundary.
    pub end: fn(i64),
    /// Is called when the session ends, before its buffer is flushed. It must not raise.
    pub leave: fn(),
}

static LISTENER: BackendLocal<Cell<Option<Listener>>> = BackendLocal::new(Cell::new(None));

/// Sets who is told.
pub fn set_listener(listener: Listener) {
    LISTENER.set(Some(listener));
}

/// Tells of an execution that stays in the session, because there is no store.
pub fn tell(key: &PlanKey, execution: ExecutionStats<'_>) {
    if let Some(listener) = LISTENER.get() {
        let at = execution.run.at;
        (listener.passed)(key, &Batch::Execution(execution));
        (listener.end)(at);
    }
}

/// Adds an execution to its plan's statistics. Makes an entry for a new plan. Raises nothing: returns false
/// if there is no store or no memory, or if the plan is too large.
#[inline(always)]
pub fn record(plan: PlanRef<'_>, execution: ExecutionStats<'_>, statement: &dyn LiveStatement) -> bool {
    let (run, outside) = (execution.run, execution.outside);
    let (nodes, histograms, partitions) = (execution.nodes, execution.histograms, execution.partitions);
    let is_kept = access::is_attached()
        && (pending::add(plan, execution)
            || record_at_once(
                plan.key,
                plan.slot,
                plan.description,
                run,
                outside,
                nodes,
                (histograms, partitions),
            ));
    if is_kept && exemplars::may_keep(plan.slot, run) {
        exemplars::keep(plan.key, plan.slot, run, outside, nodes, statement);
    }
    is_kept
}

/// Adds an execution whose statistics are not computed yet to the session's buffer, with what its partitions
/// did, and the commit of the execution before, if it is given. Raises nothing: returns false if the
/// statistics must be computed first.
#[inline(always)]
pub fn record_counts<'h>(
    plan: PlanRef<'_>,
    run: &Run,
    outside: Option<&Outside<'_>>,
    (counts, partitions): (&Counts, &[PartitionSum]),
    histograms: impl Iterator<Item = &'h Histogram>,
    committed: Option<&Run>,
    statement: &dyn LiveStatement,
) -> bool {
    let counted = (counts, partitions);
    if !access::is_attached() || !pending::add_counts(plan, run, outside, counted, histograms, committed) {
        return false;
    }
    if exemplars::may_keep(plan.slot, run) {
        keep_counted(plan, run, outside, counts, statement);
    }
    true
}

/// Keeps such an execution whole, as [`exemplars::keep`] does.
#[cold]
#[inline(never)]
fn keep_counted(
    plan: PlanRef<'_>,
    run: &Run,
    outside: Option<&Outside<'_>>,
    counts: &Counts,
    statement: &dyn LiveStatement,
) {
    let mut stats = Vec::new();
    if counts.compute(&mut stats) {
        exemplars::keep(plan.key, plan.slot, run, outside, &stats, statement);
    }
}

/// Adds an execution directly to its plan's entry. The arguments are separate, so that the caller does not
/// write them to memory unless it calls this.
#[inline(never)]
fn record_at_once(
    key: &PlanKey,
    slot: &PlanSlot,
    description: &Rc<LazyDescription>,
    run: &Run,
    outside: Option<&Outside>,
    nodes: &[NodeStats],
    (histograms, partitions): (&[&Histogram], &[PartitionSum]),
) -> bool {
    let Some(store) = access::store() else {
        return false;
    };
    let plan = PlanRef {
        key,
        slot,
        description,
    };
    let execution = ExecutionStats {
        run,
        outside,
        nodes,
        histograms,
        partitions,
    };
    // SAFETY: executions are recorded where the session holds no lock, and is outside of any boundary.
    let unlocked = &mut unsafe { Unlocked::promised() };
    // In a process that ends, an error is fatal. So this first checks that there is enough memory.
    if server::is_exiting() && !memory::can_map(store.control().mapped_bytes()) {
        return false;
    }
    let listener = LISTENER.get();
    let sink =
        |unlocked: &mut Unlocked, key: &PlanKey, description: Option<&LazyDescription>, batch: &Batch| {
            if let Some(listener) = listener {
                (listener.passed)(key, batch);
            }
            add_or_insert(&store, unlocked, key, description, batch);
        };
    pending::flush_other_plans(unlocked, key, run.at, sink);
    let batch = Batch::Execution(execution);
    if let Some(listener) = listener {
        (listener.passed)(key, &batch);
    }
    let kept = add_or_insert(&store, unlocked, key, Some(description), &batch);
    if let Some(slowest_ms) = kept {
        let threshold_ms = executions::threshold_ms(unlocked, key);
        slot.slowest_ms.set(slowest_ms.min(threshold_ms));
        if slot.has_run.replace(true) {
            pending::claim_slot(&store, unlocked, plan, execution, sink);
        }
    }
    store.control().evicted.log_first();
    if let Some(listener) = listener {
        (listener.end)(run.at);
    }
    kept.is_some()
}

/// Counts an execution by EXPLAIN (ANALYZE) of a plan with so many nodes. Makes an entry for a new plan.
/// Raises nothing: returns false if there is no store or no memory, or if the plan is too large.
pub fn record_explained(plan: PlanRef<'_>, at: i64, nodes: usize) -> bool {
    if !access::is_attached() {
        return false;
    }
    let Some(store) = access::store() else {
        return false;
    };
    // SAFETY: executions are recorded where the session holds no lock, and is outside of any boundary.
    let unlocked = &mut unsafe { Unlocked::promised() };
    if server::is_exiting() && !memory::can_map(store.control().mapped_bytes()) {
        return false;
    }
    let batch = Batch::Explained(at, nodes);
    add_or_insert(&store, unlocked, plan.key, Some(plan.description), &batch).is_some()
}

/// Adds what came after the end of an execution, which ended at this time, of a plan with so many nodes.
/// Raises nothing: returns false if there is no store, or if the plan is not in it.
#[inline(always)]
pub fn add_late(plan: PlanRef<'_>, at: i64, nodes: usize, late: Late<'_>) -> bool {
    if !access::is_attached() {
        return false;
    }
    pending::add_late(plan, at, nodes, late) || update_late(plan.key, &Batch::Late(late, at, nodes))
}

/// Adds that to the plan's entry.
#[cold]
#[inline(never)]
fn update_late(key: &PlanKey, batch: &Batch<'_>) -> bool {
    let Some(store) = access::store() else {
        return false;
    };
    // SAFETY: at the end of a transaction the session holds no lock of the store, and is outside of any
    // boundary.
    let unlocked = &mut unsafe { Unlocked::promised() };
    if server::is_exiting() && !memory::can_map(store.control().mapped_bytes()) {
        return false;
    }
    matches!(
        contained(unlocked, |_| entry::update(&store, key, batch)),
        Ok(Some(_))
    )
}

/// Keeps an execution whole that was added before, if it is the slowest one now that its end is known.
pub fn keep_late(plan: PlanRef<'_>, run: &Run, outside: &Outside<'_>, nodes: &[NodeStats]) {
    exemplars::keep(plan.key, plan.slot, run, Some(outside), nodes, &Gone);
}

/// Returns whether [`keep_late`] may keep an execution.
#[inline(always)]
pub fn may_keep_late(plan: PlanRef<'_>, run: &Run) -> bool {
    access::is_attached() && exemplars::may_keep(plan.slot, run)
}

/// Flushes and releases the session's buffer, if it has one. The session must end, and its shared memory must
/// still be mapped.
pub(super) fn flush_at_exit() {
    if let Some(listener) = LISTENER.get() {
        (listener.leave)();
    }
    let Some(store) = access::store() else { return };
    // SAFETY: a process that ends holds no lock, and is outside of any boundary.
    let unlocked = &mut unsafe { Unlocked::promised() };
    // Errors are fatal here, and none are raised if there is enough memory. Otherwise other processes flush
    // the buffer.
    if memory::can_map(store.control().mapped_bytes()) {
        pending::flush_own(unlocked, |unlocked, key, description, batch| {
            add_or_insert(&store, unlocked, key, description, batch);
        });
    }
    pending::release_buffer();
}

/// Adds a batch to a plan's entry, or makes an entry if there is a description. Returns the milliseconds that
/// an execution must exceed to be kept as the slowest one. If neither is possible, counts the executions as
/// refused, adds them to the sum of their database, and returns `None`. Raises nothing.
fn add_or_insert(
    store: &Store,
    unlocked: &mut Unlocked,
    key: &PlanKey,
    description: Option<&LazyDescription>,
    batch: &Batch,
) -> Option<f64> {
    let updated = contained(unlocked, |_| entry::update(store, key, batch));
    updated.ok().flatten().or_else(|| {
        if description.is_some_and(|description| insert_new(store, unlocked, key, description, batch)) {
            return Some(MIN_SLOWEST_MS);
        }
        store.control().evicted.refuse(batch.executions());
        evict::add_to_others(store, unlocked, key, batch);
        None
    })
}

/// Makes an entry for a new plan, and evicts other plans if there is no room. Returns whether the plan has an
/// entry now. Raises nothing.
#[cold]
#[inline(never)]
fn insert_new(
    store: &Store,
    unlocked: &mut Unlocked,
    key: &PlanKey,
    description: &LazyDescription,
    batch: &Batch,
) -> bool {
    let Some(new) = NewPlan::of(description, batch) else {
        return false;
    };
    let control = store.control();
    if control.is_full() {
        make_room(store, unlocked, eviction::PARTS[0], true);
    }
    let mut parts = eviction::PARTS.into_iter();
    loop {
        store.apply_limit();
        // If there is no room for the plan or for its entry in the table, other plans are evicted.
        let failure = match entry::insert_or_update(store, unlocked, key, &new, batch) {
            Ok(kept) => {
                if kept {
                    observe::new_plan(store, unlocked, key, batch);
                }
                return kept;
            }
            Err(NoRoom::Entry(message)) => Some(message),
            Err(NoRoom::Plan(NoMemory::System(message))) => {
                control.note_exhausted(&message);
                None
            }
            Err(NoRoom::Plan(NoMemory::Limit)) => None,
        };
        match parts.next() {
            Some(part) => make_room(store, unlocked, part, false),
            None => {
                failure.inspect(|message| control.note_exhausted(message));
                return false;
            }
        }
    }
}

/// Evicts one in `part` of the plans, and invalidates their slots. Flushes the free slots first, so that the
/// store knows which plans were used last. Raises nothing.
fn make_room(store: &Store, unlocked: &mut Unlocked, part: usize, only_if_full: bool) {
    pending::flush_free(store, unlocked);
    let evicted = evict::evict(store, unlocked, part, only_if_full);
    pending::invalidate(store, unlocked, &evicted);
}
