//! The entries of the shared store: one per plan, its nodes' statistics and its description beside it.

use super::blocks::{self, NoMemory};
use super::{MOST_NODES, Store, locked, pending};
use crate::pg::contained::contained;
use crate::pg::{compat, memory, unguarded};
use crate::session::Execution;
use pgrx::pg_sys;
use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;
use rowsource_core::histogram::Histogram;
use rowsource_core::model::{NodeStats, NodeTotals, Plan, PlanDescription, PlanKey, PlanStats};
use std::rc::Rc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

/// A plan in the table; begins with its key.
#[repr(C)]
pub(super) struct Entry {
    key: PlanKey,
    /// Guards everything below but `used`.
    lock: pg_sys::LWLock,
    /// When it was last run, to be looked at without the lock.
    used: AtomicI64,
    statistics: PlanStats,
    memory: Memory,
}

/// The memory of a plan. Which blocks there are does not change as long as the entry is in the table.
#[derive(Clone, Copy)]
#[repr(C)]
struct Memory {
    /// A chain of [`NodeTotals`].
    nodes: pg_sys::dsa_pointer,
    /// A chain of bytes: the description, serialised.
    description: pg_sys::dsa_pointer,
    node_count: u32,
    description_size: u32,
    /// Its text or its predicates were cut.
    truncated: bool,
}

pub(super) const NODE_SIZE: usize = size_of::<NodeTotals>();

/// These shares of the plans make room when the store is full: one in twenty, and where that frees no block of the size
/// that is wanted, more.
const EVICTED_SHARES: [usize; 5] = [20, 20, 10, 4, 2];

/// Statistics of a plan and of its nodes, as they come to the store: those of one execution, or those of several that
/// a session's buffer held.
pub(super) enum Batch<'a> {
    Execution(&'a Execution<'a>),
    Pending(&'a PlanStats, &'a [NodeTotals]),
}

impl Batch<'_> {
    fn nodes(&self) -> usize {
        match self {
            Batch::Execution(execution) => execution.figures.len(),
            Batch::Pending(_, nodes) => nodes.len(),
        }
    }

    fn last_seen(&self) -> i64 {
        match self {
            Batch::Execution(execution) => execution.run.at,
            Batch::Pending(statistics, _) => statistics.last_seen,
        }
    }

    /// Adds it to a plan's statistics; returns whether it is the more recent part of them.
    pub(super) fn add_to_plan(&self, statistics: &mut PlanStats) -> bool {
        match self {
            Batch::Execution(execution) => {
                statistics.add(&execution.run);
                true
            }
            Batch::Pending(pending, _) => statistics.merge(pending),
        }
    }

    /// Adds its nodes from `first` on to as many nodes' totals.
    pub(super) fn add_to_nodes(&self, newer: bool, first: usize, totals: &mut [NodeTotals]) {
        match self {
            Batch::Execution(execution) => {
                let figures = execution.figures.get(first..).unwrap_or_default();
                let histograms = execution.histograms.get(first..).unwrap_or_default();
                add_nodes(totals, figures, histograms);
            }
            Batch::Pending(_, nodes) => {
                let nodes = nodes.get(first..).unwrap_or_default();
                for (total, node) in totals.iter_mut().zip(nodes) {
                    total.merge(node, newer);
                }
            }
        }
    }
}

/// Adds an execution's nodes to as many totals.
#[inline(always)]
pub(super) fn add_nodes(totals: &mut [NodeTotals], figures: &[NodeStats], histograms: &[&Histogram]) {
    for (total, (figures, histogram)) in totals.iter_mut().zip(figures.iter().zip(histograms)) {
        total.add(figures, histogram);
    }
}

/// The store's table hashes and compares the bytes of keys. Bytes of padding have no value that could be compared, so there
/// must be none: the key is as large as its fields together.
const _: () = assert!(
    size_of::<PlanKey>() == 2 * size_of::<i64>() + 4 * size_of::<u32>(),
    "PlanKey must have no padding"
);

impl Entry {
    pub(super) const KEY_SIZE: usize = size_of::<PlanKey>();
}

impl Memory {
    fn bytes(&self) -> usize {
        size_of::<Entry>() + self.node_count as usize * NODE_SIZE + self.description_size as usize
    }

    /// Of no plan.
    const NOTHING: Memory = Memory {
        nodes: 0,
        description: 0,
        node_count: 0,
        description_size: 0,
        truncated: false,
    };

    /// Allocates the memory of a plan.
    ///
    /// # Safety
    /// Not inside a boundary, holding no lock.
    unsafe fn make(
        store: &Store,
        nodes: &[NodeTotals],
        description: &[u8],
        truncated: bool,
    ) -> Result<Memory, NoMemory> {
        // SAFETY: the caller holds no lock. Nobody else knows a chain that was made just now.
        unsafe {
            let chain = blocks::make(store.plans, nodes)?;
            let text =
                blocks::make(store.plans, description).inspect_err(|_| blocks::free(store.plans, chain))?;
            Ok(Memory {
                nodes: chain,
                description: text,
                node_count: nodes.len() as u32,
                description_size: description.len() as u32,
                truncated,
            })
        }
    }

    /// Gives the memory back.
    ///
    /// # Safety
    /// Not inside a boundary, holding no lock. Nobody else may know it any more.
    unsafe fn free(&self, store: &Store) {
        // SAFETY: nobody else knows the chains, by the caller's promise.
        unsafe {
            blocks::free(store.plans, self.nodes);
            blocks::free(store.plans, self.description);
        }
    }
}

/// Adds to a known plan; false where the plan is not known.
///
/// # Safety
/// Inside a boundary: memory may be mapped in, which may raise.
pub(super) unsafe fn update(store: &Store, key: &PlanKey, batch: &Batch) -> bool {
    // SAFETY: the entry stays while the partition lock is held; its statistics change under its own lock only.
    unsafe {
        let key: *const PlanKey = key;
        let entry: *mut Entry = unguarded::dshash_find(store.table, key.cast(), false).cast();
        if entry.is_null() {
            return false;
        }
        let memory = &(*entry).memory;
        if memory.node_count as usize == batch.nodes() {
            blocks::map::<NodeTotals>(store.plans, memory.nodes);
            locked(&raw mut (*entry).lock, true, || {
                let newer = batch.add_to_plan(&mut (*entry).statistics);
                blocks::each(store.plans, memory.nodes, |first, totals| {
                    batch.add_to_nodes(newer, first, totals);
                });
            });
            (*entry).used.fetch_max(batch.last_seen(), Relaxed);
        }
        unguarded::dshash_release_lock(store.table, entry.cast());
        true
    }
}

/// Returns whether a plan is in the store.
///
/// # Safety
/// Not inside a boundary, holding no partition lock.
pub(super) unsafe fn is_known(store: &Store, key: &PlanKey) -> bool {
    let key: *const PlanKey = key;
    // SAFETY: the caller holds no partition lock. A known plan's is released at once.
    unsafe {
        let entry = pg_sys::dshash_find(store.table, key.cast_mut().cast(), false);
        if !entry.is_null() {
            pg_sys::dshash_release_lock(store.table, entry);
        }
        !entry.is_null()
    }
}

/// Makes an entry for a new plan, evicting others where there is no room. False where it cannot be kept.
///
/// # Safety
/// Holding no lock. Raises nothing.
#[cold]
#[inline(never)]
pub(super) unsafe fn insert_new(
    store: &Store,
    key: &PlanKey,
    description: &PlanDescription,
    batch: &Batch,
) -> bool {
    if batch.nodes() > MOST_NODES {
        return false;
    }
    let Some(description_bytes) = serialised(description) else {
        return false;
    };
    let mut nodes: Vec<NodeTotals> = Vec::new();
    if nodes.try_reserve_exact(batch.nodes()).is_err() {
        return false;
    }
    nodes.resize(batch.nodes(), NodeTotals::default());
    let mut statistics = PlanStats::default();
    batch.add_to_plan(&mut statistics);
    batch.add_to_nodes(true, 0, &mut nodes);
    // SAFETY: the caller holds no lock, and the store stays. Whoever gets the memory frees it: the table, or this
    // function.
    unsafe {
        let control = &*store.control;
        if control.is_full() {
            make_room(store, EVICTED_SHARES[0], false);
        }
        let truncated = description.is_truncated();
        let mut shares = EVICTED_SHARES.into_iter();
        loop {
            control.apply_limit(store.plans);
            // Without room for the plan, or for its entry in the table, others go.
            let failure = match Memory::make(store, &nodes, &description_bytes, truncated) {
                Ok(memory) => match put(store, key, &statistics, batch, memory) {
                    Ok(kept) => return kept,
                    Err(message) => Some(message),
                },
                Err(NoMemory::System(message)) => {
                    control.note_exhausted(&message);
                    None
                }
                Err(NoMemory::Limit) => None,
            };
            match shares.next() {
                Some(share) => make_room(store, share, true),
                None => {
                    failure.inspect(|message| control.note_exhausted(message));
                    return false;
                }
            }
        }
    }
}

/// Serialises a description; `None` without memory for it.
fn serialised(description: &PlanDescription) -> Option<Vec<u8>> {
    let size = postcard::experimental::serialized_size(description).ok()?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(size).ok()?;
    bytes.resize(size, 0);
    postcard::to_slice(description, &mut bytes).ok()?;
    Some(bytes)
}

/// Runs a body under the control lock.
///
/// # Safety
/// * This process must not hold the control lock, nor one that is taken after it.
/// * The caller must be inside [`contained`], which releases the lock after an error.
unsafe fn locked_by_control<T>(store: &Store, body: impl FnOnce() -> T) -> T {
    // SAFETY: a lock in shared memory. An error of the body leaves it to `contained`.
    unsafe {
        let lock = &raw mut (*store.control).lock;
        pg_sys::LWLockAcquire(lock, pg_sys::LWLockMode::LW_EXCLUSIVE);
        let result = body();
        pg_sys::LWLockRelease(lock);
        result
    }
}

/// Inserts a plan of the file, or adds it to what has been run already; false where it cannot be kept.
///
/// # Safety
/// Holding no lock. Raises nothing.
pub(super) unsafe fn restore(
    store: &Store,
    key: &PlanKey,
    statistics: &PlanStats,
    nodes: &[NodeTotals],
    description: &PlanDescription,
) -> bool {
    // SAFETY: the caller holds no lock, and the store stays. Whoever gets the memory frees it: the table, or this
    // function.
    unsafe {
        (*store.control).apply_limit(store.plans);
        let Some(bytes) = serialised(description) else {
            return false;
        };
        Memory::make(store, nodes, &bytes, description.is_truncated()).is_ok_and(|memory| {
            let batch = Batch::Pending(statistics, nodes);
            put(store, key, statistics, &batch, memory) == Ok(true)
        })
    }
}

/// Adds to a known plan, or inserts a new one with this memory, which is given back where it is not needed. Returns what
/// went wrong where nothing was kept.
///
/// # Safety
/// Not inside a boundary, holding no lock. Nobody else may know the memory.
unsafe fn put(
    store: &Store,
    key: &PlanKey,
    statistics: &PlanStats,
    batch: &Batch,
    memory: Memory,
) -> Result<bool, String> {
    // SAFETY: the caller holds no lock; an error leaves those taken here to `contained`. The memory is freed only where no
    // entry has it.
    unsafe {
        let mut taken = false;
        let kept = contained(|| {
            locked_by_control(store, || {
                // Somebody else may have been first with this plan.
                pg_guard_ffi_boundary(|| update(store, key, batch)) || {
                    taken = insert(store, key, statistics, memory);
                    taken
                }
            })
        });
        if !taken {
            memory.free(store);
        }
        kept
    }
}

/// Inserts a plan that is not there yet; false where it is.
///
/// # Safety
/// Under the control lock. Raises where there is no memory for the entry.
unsafe fn insert(store: &Store, key: &PlanKey, statistics: &PlanStats, memory: Memory) -> bool {
    // SAFETY: the new entry is locked by its partition lock.
    unsafe {
        let mut found = false;
        let key: *const PlanKey = key;
        let entry: *mut Entry = compat::dshash_find_or_insert(store.table, key.cast(), &mut found).cast();
        if !found {
            pg_sys::LWLockInitialize(&raw mut (*entry).lock, (*store.control).tranche);
            (&raw mut (*entry).used).write(AtomicI64::new(statistics.last_seen));
            (*entry).statistics = *statistics;
            (*entry).memory = memory;
            (*store.control).count(memory.bytes(), memory.truncated, true);
        }
        pg_sys::dshash_release_lock(store.table, entry.cast());
        !found
    }
}

/// Evicts the plans that were used longest ago: one in `share`, and at least one. Which were used last is only known when
/// all that sessions have not flushed yet has come in.
///
/// # Safety
/// Not inside a boundary, holding no lock. Raises nothing.
unsafe fn make_room(store: &Store, share: usize, always: bool) {
    // SAFETY: the caller holds no lock. An error in between leaves the store as it is, and its locks to `contained`.
    unsafe {
        pending::flush_free(store);
        let _ = contained(|| {
            locked_by_control(store, || {
                // Another session may have made room meanwhile.
                if always || (*store.control).is_full() {
                    evict(store, share);
                }
            });
        });
    }
}

/// Evicts a share of the plans.
///
/// # Safety
/// The caller must hold the control lock, exclusively, and no lock that is taken after it. Raises where memory cannot
/// be mapped in.
unsafe fn evict(store: &Store, share: usize) {
    // SAFETY: the caller holds the control lock, so that nobody else inserts or evicts, and no partition lock.
    unsafe {
        let control = &*store.control;
        let mut used: Vec<i64> = Vec::new();
        if used
            .try_reserve_exact(control.plans.load(Relaxed) as usize)
            .is_err()
        {
            return;
        }
        each(store, false, |entry| {
            if used.len() < used.capacity() {
                used.push((*entry).used.load(Relaxed));
            }
            false
        });
        if used.is_empty() {
            return;
        }
        let last = (used.len() / share).min(used.len() - 1);
        let (_, &mut newest_evicted, _) = used.select_nth_unstable(last);
        // Plans of one moment are no reason to evict them all.
        let mut left = last + 1;
        let evicted = delete(store, |_, last| {
            let gone = left > 0 && last <= newest_evicted;
            left -= usize::from(gone);
            gone
        });
        control.evictions.fetch_add(evicted, Relaxed);
        pending::invalidate_evicted(store);
    }
}

/// Deletes the entries that `wanted` picks by key and last use; returns their number.
///
/// # Safety
/// Not inside a boundary, holding no partition lock. Raises where memory cannot be mapped in.
pub(super) unsafe fn delete(store: &Store, mut wanted: impl FnMut(&PlanKey, i64) -> bool) -> u64 {
    let mut deleted = 0;
    // SAFETY: the partition is locked exclusively while an entry is looked at and deleted.
    unsafe {
        each(store, true, |entry| {
            let gone = wanted(&(*entry).key, (*entry).used.load(Relaxed));
            if gone {
                // Where an error interrupts this, the entry stays, and has nothing.
                let memory = std::mem::replace(&mut (*entry).memory, Memory::NOTHING);
                (*store.control).count(memory.bytes(), memory.truncated, false);
                blocks::free_raising(store.plans, memory.nodes);
                blocks::free_raising(store.plans, memory.description);
                deleted += 1;
            }
            gone
        });
        deleted
    }
}

/// Visits all entries; deletes those for which `visit` returns true, if `exclusive`.
///
/// # Safety
/// * This process must hold no partition lock of the table.
/// * `visit` must not hold on to an entry, nor take a partition lock. It may write to an entry only where `exclusive`
///   is true, but for atomics.
/// * Raises what `visit` raises, and leaves the lock to the abort.
unsafe fn each(store: &Store, exclusive: bool, mut visit: impl FnMut(*mut Entry) -> bool) {
    // SAFETY: the sequential scan holds the lock of the partition it is in.
    unsafe {
        let mut status = std::mem::zeroed::<pg_sys::dshash_seq_status>();
        pg_sys::dshash_seq_init(&mut status, store.table, exclusive);
        loop {
            let entry: *mut Entry = pg_sys::dshash_seq_next(&mut status).cast();
            if entry.is_null() {
                break;
            }
            if visit(entry) && exclusive {
                pg_sys::dshash_delete_current(&mut status);
            }
        }
        pg_sys::dshash_seq_term(&mut status);
    }
}

/// Returns the keys of all plans, and when each was last run.
///
/// # Safety
/// In a function of the user's: raises "out of memory".
pub(super) unsafe fn used(store: &Store) -> Vec<(PlanKey, i64)> {
    // SAFETY: the caller holds no lock; entries are only looked at while their partition is locked.
    unsafe {
        // Some more than there are now: others go on.
        let room = (*store.control).plans.load(Relaxed) as usize + 1_000;
        let mut used = memory::with_room(room);
        each(store, false, |entry| {
            if used.len() < room {
                used.push(((*entry).key, (*entry).used.load(Relaxed)));
            }
            false
        });
        used
    }
}

/// Returns a copy of a plan; `None` where it is not in the store, or its description cannot be read.
///
/// # Safety
/// In a function of the user's: raises "out of memory".
pub(super) unsafe fn copy(store: &Store, key: &PlanKey) -> Option<Plan> {
    // SAFETY: the entry stays while the partition lock is held; it is copied under its own lock. An error leaves both
    // to the abort.
    unsafe {
        let find: *const PlanKey = key;
        let entry: *mut Entry = pg_sys::dshash_find(store.table, find.cast(), false).cast();
        if entry.is_null() {
            return None;
        }
        let memory = &(*entry).memory;
        let mut nodes: Vec<NodeTotals> = memory::with_room(memory.node_count as usize);
        let mut description: Vec<u8> = memory::with_room(memory.description_size as usize);
        let statistics = pg_guard_ffi_boundary(|| {
            blocks::map::<NodeTotals>(store.plans, memory.nodes);
            blocks::each(store.plans, memory.description, |_, bytes: &mut [u8]| {
                description.extend_from_slice(bytes);
            });
            locked(&raw mut (*entry).lock, false, || {
                blocks::each(store.plans, memory.nodes, |_, totals: &mut [NodeTotals]| {
                    nodes.extend_from_slice(totals);
                });
                (*entry).statistics
            })
        });
        pg_sys::dshash_release_lock(store.table, entry.cast());
        let description = postcard::from_bytes::<PlanDescription>(&description).ok()?;
        Some(Plan {
            key: *key,
            description: Rc::new(description),
            older_literals: false,
            statistics,
            nodes,
        })
    }
}
