//! The entries of the shared store: one per plan. The statistics of the nodes, the description and the
//! executions that are kept whole lie in separate memory.

mod chains;
pub(super) mod description;
pub(super) mod exemplars;
pub(super) mod list;

use super::access::{Store, locked, locked_by_control};
use super::blocks::{self, NoMemory};
use super::control;
use super::evicted::Controlled;
use crate::pg::border::unguarded;
use crate::pg::compat;
use crate::pg::server::contained::{Unlocked, contained};
use crate::pg::server::memory;
use pgrx::pg_sys;
use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;
use rowsource_core::eviction::{self, Candidate};
use rowsource_core::flips::Executions;
use rowsource_core::model::partitions::{self, ListedPartition, MAX_LISTED};
use rowsource_core::model::{
    Batch, Exemplars, LazyDescription, MAX_NODES, MIN_SLOWEST_MS, NodeTotals, Plan, PlanKey, PlanStats,
    PlanTotals, StatementSums,
};
use rowsource_core::regressions::Kept;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};

/// A plan in the table. It begins with its key, which the table compares byte by byte: a [`PlanKey`] has no
/// padding.
#[repr(C)]
pub(super) struct Entry {
    key: PlanKey,
    /// Guards everything below but `worth` and `observed`.
    lock: pg_sys::LWLock,
    worth: Worth,
    /// The query has several plans, so its executions are also added to the table of plan changes. It can be
    /// read without the lock.
    observed: AtomicBool,
    stats: PlanStats,
    /// What the history has to compare it with. Each snapshot says it anew.
    kept: Kept,
    memory: Memory,
}

/// What decides how long a plan stays. It can be read without the lock, so that an eviction waits for nobody.
#[repr(C)]
struct Worth {
    /// When the plan last ran.
    used: AtomicI64,
    /// The bits of an `f64`: the plan's [`eviction::cost`].
    cost: AtomicU64,
    /// The plan ran once, and was not evicted before.
    ran_once: AtomicBool,
}

impl Worth {
    /// Returns the worth of a new plan.
    fn new(stats: &PlanStats, was_evicted: bool) -> Self {
        Worth {
            used: AtomicI64::new(stats.last_seen_at),
            cost: AtomicU64::new(Self::cost(stats)),
            ran_once: AtomicBool::new(stats.times.calls <= 1 && !was_evicted),
        }
    }

    /// Updates the worth of a plan that ran again.
    fn update(&self, stats: &PlanStats, last_seen_at: i64) {
        self.used.fetch_max(last_seen_at, Relaxed);
        self.cost.store(Self::cost(stats), Relaxed);
        self.ran_once.store(false, Relaxed);
    }

    fn cost(stats: &PlanStats) -> u64 {
        eviction::cost(stats.times.total_ms, stats.times.calls).to_bits()
    }

    fn candidate(&self, key: PlanKey) -> Candidate<PlanKey> {
        Candidate::new(
            key,
            self.used.load(Relaxed),
            f64::from_bits(self.cost.load(Relaxed)),
            self.ran_once.load(Relaxed),
        )
    }
}

/// The memory of a plan. The blocks stay the same as long as the entry is in the table; only those of the
/// kept executions are replaced, by a process that holds the partition lock exclusively.
#[derive(Clone, Copy)]
#[repr(C)]
struct Memory {
    /// A chain of [`NodeTotals`].
    nodes: pg_sys::dsa_pointer,
    /// A chain of bytes: the description's stored form.
    description: pg_sys::dsa_pointer,
    /// A chain of bytes: the [`Exemplars`], or 0.
    exemplars: pg_sys::dsa_pointer,
    /// A chain of [`ListedPartition`], or 0 if the plan was not folded.
    partitions: pg_sys::dsa_pointer,
    /// The [`Exemplars::slowest_ms`] of the kept executions.
    slowest_ms: f64,
    node_count: u32,
    description_size: u32,
    exemplars_size: u32,
    partition_count: u32,
    /// Its text or its predicates were cut.
    truncated: bool,
}

pub(super) const NODE_SIZE: usize = size_of::<NodeTotals>();

impl Entry {
    pub(super) const KEY_SIZE: usize = size_of::<PlanKey>();
}

impl Memory {
    fn bytes(&self) -> usize {
        size_of::<Entry>()
            + self.node_count as usize * NODE_SIZE
            + self.description_size as usize
            + self.exemplars_size as usize
            + self.partition_count as usize * size_of::<ListedPartition>()
    }

    /// No memory.
    const EMPTY: Memory = Memory {
        nodes: 0,
        description: 0,
        exemplars: 0,
        partitions: 0,
        slowest_ms: MIN_SLOWEST_MS,
        node_count: 0,
        description_size: 0,
        exemplars_size: 0,
        partition_count: 0,
        truncated: false,
    };

    /// Allocates the memory of a plan.
    fn make(store: &Store, unlocked: &mut Unlocked, new: &NewPlan) -> Result<Memory, NoMemory> {
        let mut memory = Memory {
            node_count: new.nodes.len() as u32,
            description_size: new.description.len() as u32,
            partition_count: new.partitions.len() as u32,
            truncated: new.truncated,
            ..Memory::EMPTY
        };
        let mut fill = || {
            memory.nodes = blocks::make(store, unlocked, &new.nodes)?;
            memory.description = blocks::make(store, unlocked, &new.description)?;
            memory.partitions = blocks::make(store, unlocked, &new.partitions)?;
            Ok(())
        };
        let filled = fill();
        filled.map(|()| memory).inspect_err(|_| {
            // SAFETY: only this function knows the chains, because it has just made them.
            unsafe { memory.free(store, unlocked) }
        })
    }

    /// Frees the memory.
    ///
    /// # Safety
    /// No entry may have this memory, and nobody may use it afterwards.
    unsafe fn free(&self, store: &Store, unlocked: &mut Unlocked) {
        // SAFETY: the caller ensures that nobody else knows the chains.
        unsafe {
            blocks::free(store, unlocked, self.nodes);
            blocks::free(store, unlocked, self.description);
            blocks::free(store, unlocked, self.partitions);
        }
    }
}

/// Adds a batch to a plan's entry, unless the entry has another number of nodes. Returns the milliseconds
/// that an execution must exceed to be kept as the slowest one, or `None` if there is no entry.
/// Raises if memory cannot be mapped.
#[allow(
    ffi_unwind_calls,
    reason = "it is inside of a boundary, and the frames up to it are plain"
)]
pub(super) fn update(store: &Store, key: &PlanKey, batch: &Batch) -> Option<f64> {
    // SAFETY: the partition lock keeps the entry in the table until it is released at the end. The statistics
    // are changed only under the entry's own lock, which `locked` takes.
    let update = || unsafe {
        let key: *const PlanKey = key;
        let entry: *mut Entry = unguarded::dshash_find(store.table(), key.cast(), false).cast();
        if entry.is_null() {
            return None;
        }
        let memory = &(*entry).memory;
        let slowest_ms = memory.slowest_ms;
        if memory.node_count as usize == batch.node_count() {
            blocks::map::<NodeTotals>(store.plans(), memory.nodes);
            if memory.partitions != 0 {
                blocks::map::<ListedPartition>(store.plans(), memory.partitions);
            }
            let flips = &store.control().flips;
            locked(&raw mut (*entry).lock, true, || {
                let (before, last_seen_at) = ((*entry).stats.times, (*entry).stats.last_seen_at);
                let newer = batch.add_to_plan(&mut (*entry).stats);
                if !(*entry).observed.load(Relaxed) {
                    let after = &(*entry).stats.times;
                    flips
                        .pace
                        .add((&before, last_seen_at), after, batch.last_seen_at());
                }
                blocks::each(store.plans(), memory.nodes, |first, totals| {
                    batch.add_to_nodes(newer, first, totals);
                });
                if memory.partitions != 0 {
                    blocks::each(store.plans(), memory.partitions, |_, list| {
                        partitions::merge(list, batch.partitions());
                    });
                }
                if !matches!(batch, Batch::Late(..)) {
                    (*entry).worth.update(&(*entry).stats, batch.last_seen_at());
                }
            });
            if (*entry).observed.load(Relaxed) && batch.executions() > 0 {
                flips.add(&*key, batch);
            }
        }
        unguarded::dshash_release_lock(store.table(), entry.cast());
        Some(slowest_ms)
    };
    // SAFETY: the body's frames are plain.
    unsafe { pg_guard_ffi_boundary(update) }
}

/// The content of a new entry.
pub(super) struct NewPlan {
    stats: PlanStats,
    nodes: Vec<NodeTotals>,
    /// The description's stored form.
    description: Vec<u8>,
    truncated: bool,
    /// The partitions that took the longest, if the plan was folded, and free places.
    partitions: Vec<ListedPartition>,
}

impl NewPlan {
    /// Makes the content from the plan's first executions. Returns `None` if the plan is too large, or there
    /// is no memory.
    pub(super) fn of(description: &LazyDescription, batch: &Batch) -> Option<Self> {
        let count = batch.node_count();
        if count > MAX_NODES {
            return None;
        }
        let truncated = description.is_truncated();
        let length = description
            .unfolding()
            .map_or(0, |unfolding| unfolding.list_length());
        let mut list: Vec<ListedPartition> = Vec::new();
        list.try_reserve_exact(length).ok()?;
        list.resize(length, ListedPartition::default());
        partitions::merge(&mut list, batch.partitions());
        let description = description.stored()?;
        let mut nodes: Vec<NodeTotals> = Vec::new();
        nodes.try_reserve_exact(count).ok()?;
        nodes.resize(count, NodeTotals::default());
        let mut stats = PlanStats::default();
        batch.add_to_plan(&mut stats);
        batch.add_to_nodes(true, 0, &mut nodes);
        Some(NewPlan {
            stats,
            nodes,
            description,
            truncated,
            partitions: list,
        })
    }

    /// Takes the partitions of a plan that was saved.
    pub(super) fn with_partitions(self, mut partitions: Vec<ListedPartition>) -> Self {
        partitions.truncate(MAX_LISTED);
        NewPlan { partitions, ..self }
    }
}

/// Why a plan could not be inserted.
pub(super) enum NoRoom {
    /// There is no memory for the plan's chains.
    Plan(NoMemory),
    /// There is no memory for the plan's entry in the table; with the error message.
    Entry(String),
}

/// Makes an entry for a new plan. If another session has already made the entry, adds the batch to it as
/// [`update`] does. Returns whether the plan has an entry now.
/// Raises nothing.
pub(super) fn insert_or_update(
    store: &Store,
    unlocked: &mut Unlocked,
    key: &PlanKey,
    new: &NewPlan,
    batch: &Batch,
) -> Result<bool, NoRoom> {
    let memory = Memory::make(store, unlocked, new).map_err(NoRoom::Plan)?;
    let mut taken = false;
    let kept = contained(unlocked, |unlocked| {
        locked_by_control(store, unlocked, |lock| {
            // Another session may have inserted this plan in the meantime.
            update(store, key, batch).is_some() || {
                // SAFETY: the memory is of this plan, and has just been made.
                taken = unsafe { insert(store, lock, key, &new.stats, memory) };
                taken
            }
        })
    });
    if !taken {
        // SAFETY: no entry has it.
        unsafe { memory.free(store, unlocked) };
    }
    kept.map_err(NoRoom::Entry)
}

/// Inserts a plan. Returns false if it has an entry already. Raises if there is no memory for the entry.
///
/// # Safety
/// `memory` must be of this plan, and no entry may have it. It belongs to the entry if this returns true.
unsafe fn insert(store: &Store, _: &Controlled, key: &PlanKey, stats: &PlanStats, memory: Memory) -> bool {
    // SAFETY: the table returns the entry with its partition locked exclusively, so nobody else sees it until
    // all of its fields are written.
    unsafe {
        let mut found = false;
        let key: *const PlanKey = key;
        let entry: *mut Entry = compat::dshash_find_or_insert(store.table(), key.cast(), &mut found).cast();
        if !found {
            pg_sys::LWLockInitialize(&raw mut (*entry).lock, store.control().tranche);
            let was_evicted = store.control().evicted.knows(&(*entry).key);
            (&raw mut (*entry).worth).write(Worth::new(stats, was_evicted));
            (&raw mut (*entry).observed).write(AtomicBool::new(false));
            (*entry).stats = *stats;
            (*entry).kept = Kept::default();
            (*entry).memory = memory;
            store.control().count(memory.bytes(), memory.truncated, true);
            let flips = &store.control().flips;
            flips.with_table(|_| control::known_plans().note(&*key));
        }
        pg_sys::dshash_release_lock(store.table(), entry.cast());
        !found
    }
}

/// From now on, adds the executions of a plan also to the table of plan changes. Returns its executions so
/// far, or `None` if there is no entry. Raises if memory cannot be mapped.
pub(super) fn observe(store: &Store, key: &PlanKey) -> Option<Executions> {
    with_entry(store, key, |stats, observed, _| {
        observed.store(true, Relaxed);
        Executions::of(&Batch::Sum(stats, &[], &[]))
    })
}

/// Returns when a plan ran last, as far as that is stored. Raises if memory cannot be mapped.
pub(super) fn last_at(store: &Store, key: &PlanKey) -> Option<i64> {
    with_entry(store, key, |stats, _, _| stats.last_seen_at)
}

/// Changes what a plan is compared with. Raises if memory cannot be mapped.
pub(super) fn keep(store: &Store, key: &PlanKey, change: impl FnOnce(&mut Kept)) {
    with_entry(store, key, |_, _, kept| change(kept));
}

/// Runs a body with the entry of a plan, under its lock. The body must not raise. Returns `None` if there is
/// no entry. Raises if memory cannot be mapped.
#[allow(
    ffi_unwind_calls,
    reason = "it is inside of a boundary, and the frames up to it are plain"
)]
fn with_entry<T>(
    store: &Store,
    key: &PlanKey,
    body: impl FnOnce(&PlanStats, &AtomicBool, &mut Kept) -> T,
) -> Option<T> {
    // SAFETY: the partition lock keeps the entry in the table until it is released at the end. What the body
    // gets is used under the entry's own lock only, apart from an atomic.
    unsafe {
        pg_guard_ffi_boundary(|| {
            let key: *const PlanKey = key;
            let entry: *mut Entry = unguarded::dshash_find(store.table(), key.cast(), false).cast();
            if entry.is_null() {
                return None;
            }
            let result = locked(&raw mut (*entry).lock, true, || {
                body(&(*entry).stats, &(*entry).observed, &mut (*entry).kept)
            });
            unguarded::dshash_release_lock(store.table(), entry.cast());
            Some(result)
        })
    }
}

/// Deletes a plan, unless it has been used since `last_used`. Returns its statistics if it was deleted.
/// Raises if memory cannot be mapped.
pub(super) fn delete_unused(store: &Store, key: &PlanKey, last_used: i64) -> Option<PlanTotals> {
    // SAFETY: the table returns the entry with its partition locked exclusively, until it is released or
    // deleted. So nobody else uses the entry.
    unsafe {
        let key: *const PlanKey = key;
        let entry: *mut Entry = pg_sys::dshash_find(store.table(), key.cast_mut().cast(), true).cast();
        if entry.is_null() {
            return None;
        }
        if (*entry).worth.used.load(Relaxed) > last_used {
            pg_sys::dshash_release_lock(store.table(), entry.cast());
            return None;
        }
        let totals = PlanTotals {
            plan: (*entry).stats,
            statement: statement_sums(store, &(*entry).stats, &(*entry).memory),
        };
        free_memory(store, entry);
        pg_sys::dshash_delete_entry(store.table(), entry.cast());
        Some(totals)
    }
}

/// Returns what all executions of a plan used.
///
/// # Safety
/// This process must hold the partition lock of the entry exclusively. Raises if memory cannot be mapped.
unsafe fn statement_sums(store: &Store, stats: &PlanStats, memory: &Memory) -> StatementSums {
    let mut sums = StatementSums::of(stats, None);
    // SAFETY: the caller's exclusive lock ensures that nobody else uses the chain.
    unsafe {
        pg_guard_ffi_boundary(|| {
            blocks::each(store.plans(), memory.nodes, |first, totals: &mut [NodeTotals]| {
                if first == 0 {
                    sums = StatementSums::of(stats, totals.first());
                }
            });
        });
    }
    sums
}

/// Deletes the plans whose keys `is_unwanted` selects. Returns whether there were some. Raises if memory
/// cannot be mapped.
pub(super) fn delete(store: &Store, is_unwanted: impl Fn(&PlanKey) -> bool) -> bool {
    let mut has_deleted = false;
    // SAFETY: with `exclusive`, `each` holds the entry's partition lock exclusively during the closure.
    unsafe {
        each(store, true, |entry| {
            let deleted = is_unwanted(&(*entry).key);
            if deleted {
                free_memory(store, entry);
            }
            has_deleted |= deleted;
            deleted
        });
    }
    has_deleted
}

/// Frees the memory of an entry that is about to be deleted.
///
/// # Safety
/// This process must hold the entry's partition lock exclusively. Raises if memory cannot be mapped.
unsafe fn free_memory(store: &Store, entry: *mut Entry) {
    // SAFETY: the caller's exclusive lock ensures that nobody else uses the entry. The entry loses its memory
    // first: if an error interrupts this, the entry stays, but refers to no freed block.
    unsafe {
        let memory = std::mem::replace(&mut (*entry).memory, Memory::EMPTY);
        store.control().count(memory.bytes(), memory.truncated, false);
        blocks::free_raising(store.plans(), memory.nodes);
        blocks::free_raising(store.plans(), memory.description);
        blocks::free_raising(store.plans(), memory.exemplars);
        blocks::free_raising(store.plans(), memory.partitions);
        let (flips, key) = (&store.control().flips, &(*entry).key);
        flips.with_table(|_| control::known_plans().forget(key));
    }
}

/// Visits all entries. If `exclusive`, deletes those for which `visit` returns true.
///
/// # Safety
/// * `visit` must not keep the pointer to an entry, nor take a partition lock. Unless `exclusive`, it may
///   write only atomics of an entry.
/// * Raises if memory cannot be mapped, or if `visit` raises. The abort then releases the partition lock.
unsafe fn each(store: &Store, exclusive: bool, mut visit: impl FnMut(*mut Entry) -> bool) {
    // SAFETY: the sequential scan holds the partition lock of the entry that it returns, so the entry stays
    // during `visit`. It is deleted only if that lock is exclusive.
    unsafe {
        let mut status = std::mem::zeroed::<pg_sys::dshash_seq_status>();
        pg_sys::dshash_seq_init(&mut status, store.table(), exclusive);
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

/// Returns a copy of a plan. Returns `None` if it is not in the store, or its description cannot be read.
///
/// # Errors
/// Raises "out of memory". The abort of the transaction then releases the locks.
pub(super) fn copy(store: &Store, key: &PlanKey) -> Option<Plan> {
    // SAFETY: the partition lock keeps the entry and its chains until it is released. The statistics are
    // copied under the entry's own lock. After an error, the abort releases both locks.
    unsafe {
        let key_pointer: *const PlanKey = key;
        let entry: *mut Entry = pg_sys::dshash_find(store.table(), key_pointer.cast(), false).cast();
        if entry.is_null() {
            return None;
        }
        let memory = &(*entry).memory;
        let mut nodes: Vec<NodeTotals> = memory::with_room(memory.node_count as usize);
        let mut description: Vec<u8> = memory::with_room(memory.description_size as usize);
        let mut exemplars: Vec<u8> = memory::with_room(memory.exemplars_size as usize);
        let mut partitions: Vec<ListedPartition> = memory::with_room(memory.partition_count as usize);
        let stats = pg_guard_ffi_boundary(|| {
            blocks::map::<NodeTotals>(store.plans(), memory.nodes);
            blocks::map::<ListedPartition>(store.plans(), memory.partitions);
            for (chain, copy) in [
                (memory.description, &mut description),
                (memory.exemplars, &mut exemplars),
            ] {
                blocks::each(store.plans(), chain, |_, bytes: &mut [u8]| {
                    copy.extend_from_slice(bytes)
                });
            }
            locked(&raw mut (*entry).lock, false, || {
                blocks::each(store.plans(), memory.nodes, |_, totals: &mut [NodeTotals]| {
                    nodes.extend_from_slice(totals);
                });
                blocks::each(
                    store.plans(),
                    memory.partitions,
                    |_, list: &mut [ListedPartition]| {
                        partitions.extend_from_slice(list);
                    },
                );
                (*entry).stats
            })
        });
        pg_sys::dshash_release_lock(store.table(), entry.cast());
        let description = LazyDescription::decode(&description)?;
        Some(Plan {
            key: *key,
            description: Rc::new(description),
            older_literals: false,
            older_text: false,
            explained: false,
            statistics: stats,
            nodes,
            exemplars: Exemplars::from_bytes(&exemplars).unwrap_or_default(),
            partitions,
            folded: None,
            last_waits: None,
            around_ms: None,
        })
    }
}
