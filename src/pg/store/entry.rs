//! The entries of the shared store: one per plan, its nodes' statistics and its description beside it.

use super::access::{Store, locked, locked_by_control};
use super::blocks::{self, NoMemory};
use crate::pg::compat;
use crate::pg::server::contained::contained;
use crate::pg::server::{memory, unguarded};
use pgrx::pg_sys;
use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;
use rowsource_core::eviction::Candidate;
use rowsource_core::model::{Batch, MAX_NODES, NodeTotals, Plan, PlanDescription, PlanKey, PlanStats};
use std::rc::Rc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

/// A plan in the table. It begins with its key, which the table compares byte by byte: a [`PlanKey`] has no padding.
#[repr(C)]
pub(super) struct Entry {
    key: PlanKey,
    /// Guards everything below but `used`.
    lock: pg_sys::LWLock,
    /// When it was last run, to be looked at without the lock.
    used: AtomicI64,
    stats: PlanStats,
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

/// Adds to a known plan. Returns false where the plan is not known.
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
        if memory.node_count as usize == batch.node_count() {
            blocks::map::<NodeTotals>(store.plans, memory.nodes);
            locked(&raw mut (*entry).lock, true, || {
                let newer = batch.add_to_plan(&mut (*entry).stats);
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

/// What a new entry begins with.
pub(super) struct NewPlan {
    stats: PlanStats,
    nodes: Vec<NodeTotals>,
    /// The description, serialised.
    description: Vec<u8>,
    truncated: bool,
}

impl NewPlan {
    /// Makes it of the plan's first executions. `None` where the plan is too large, or without memory.
    pub(super) fn of(description: &PlanDescription, batch: &Batch) -> Option<Self> {
        let count = batch.node_count();
        if count > MAX_NODES {
            return None;
        }
        let truncated = description.is_truncated();
        let description = serialised(description)?;
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
        })
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

/// Why a plan could not be inserted.
pub(super) enum NoRoom {
    /// The plan itself has no memory.
    Plan(NoMemory),
    /// The table has no memory for its entry; with what the system said.
    Entry(String),
}

/// Makes an entry for a new plan, or adds the batch to the entry that somebody else has made. False where that is one of
/// another number of nodes.
///
/// # Safety
/// Not inside a boundary, holding no lock but a slot. Raises nothing.
pub(super) unsafe fn insert_or_update(
    store: &Store,
    key: &PlanKey,
    new: &NewPlan,
    batch: &Batch,
) -> Result<bool, NoRoom> {
    // SAFETY: the caller holds no lock; an error leaves those taken here to `contained`. The memory is freed only where no
    // entry has it.
    unsafe {
        let memory =
            Memory::make(store, &new.nodes, &new.description, new.truncated).map_err(NoRoom::Plan)?;
        let mut taken = false;
        let kept = contained(|| {
            locked_by_control(store, || {
                // Somebody else may have been first with this plan.
                pg_guard_ffi_boundary(|| update(store, key, batch)) || {
                    taken = insert(store, key, &new.stats, memory);
                    taken
                }
            })
        });
        if !taken {
            memory.free(store);
        }
        kept.map_err(NoRoom::Entry)
    }
}

/// Inserts a plan that is not there yet; false where it is.
///
/// # Safety
/// Under the control lock. Raises where there is no memory for the entry.
unsafe fn insert(store: &Store, key: &PlanKey, stats: &PlanStats, memory: Memory) -> bool {
    // SAFETY: the new entry is locked by its partition lock.
    unsafe {
        let mut found = false;
        let key: *const PlanKey = key;
        let entry: *mut Entry = compat::dshash_find_or_insert(store.table, key.cast(), &mut found).cast();
        if !found {
            pg_sys::LWLockInitialize(&raw mut (*entry).lock, (*store.control).tranche);
            (&raw mut (*entry).used).write(AtomicI64::new(stats.last_seen));
            (*entry).stats = *stats;
            (*entry).memory = memory;
            (*store.control).count(memory.bytes(), memory.truncated, true);
        }
        pg_sys::dshash_release_lock(store.table, entry.cast());
        !found
    }
}

/// Deletes a plan, unless it has been used since `last_used`. Returns whether it was deleted.
///
/// # Safety
/// Not inside a boundary, holding no partition lock. Raises where memory cannot be mapped in.
pub(super) unsafe fn delete_unused(store: &Store, key: &PlanKey, last_used: i64) -> bool {
    // SAFETY: the partition is locked exclusively while the entry is looked at and deleted.
    unsafe {
        let key: *const PlanKey = key;
        let entry: *mut Entry = pg_sys::dshash_find(store.table, key.cast_mut().cast(), true).cast();
        if entry.is_null() {
            return false;
        }
        if (*entry).used.load(Relaxed) > last_used {
            pg_sys::dshash_release_lock(store.table, entry.cast());
            return false;
        }
        free_memory(store, entry);
        pg_sys::dshash_delete_entry(store.table, entry.cast());
        true
    }
}

/// Deletes the plans whose keys `wanted` picks.
///
/// # Safety
/// Not inside a boundary, holding no partition lock. Raises where memory cannot be mapped in.
pub(super) unsafe fn delete(store: &Store, wanted: impl Fn(&PlanKey) -> bool) {
    // SAFETY: the partition is locked exclusively while an entry is looked at and deleted.
    unsafe {
        each(store, true, |entry| {
            let gone = wanted(&(*entry).key);
            if gone {
                free_memory(store, entry);
            }
            gone
        });
    }
}

/// Gives back the memory of an entry that is to be deleted.
///
/// # Safety
/// The entry's partition must be locked exclusively. Raises where memory cannot be mapped in.
unsafe fn free_memory(store: &Store, entry: *mut Entry) {
    // SAFETY: nobody else reads the entry while its partition is locked exclusively. Where an error interrupts this, the
    // entry stays, and has nothing.
    unsafe {
        let memory = std::mem::replace(&mut (*entry).memory, Memory::NOTHING);
        (*store.control).count(memory.bytes(), memory.truncated, false);
        blocks::free_raising(store.plans, memory.nodes);
        blocks::free_raising(store.plans, memory.description);
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

/// Lists all plans, and when each was last run. Plans for which the list has no room are left out.
///
/// # Safety
/// Not inside a boundary, holding no partition lock. Raises where memory cannot be mapped in.
pub(super) unsafe fn list(store: &Store, plans: &mut Vec<Candidate<PlanKey>>) {
    // SAFETY: entries are only looked at while their partition is locked.
    unsafe {
        each(store, false, |entry| {
            if plans.len() < plans.capacity() {
                plans.push(Candidate {
                    key: (*entry).key,
                    last_used: (*entry).used.load(Relaxed),
                });
            }
            false
        });
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
        let stats = pg_guard_ffi_boundary(|| {
            blocks::map::<NodeTotals>(store.plans, memory.nodes);
            blocks::each(store.plans, memory.description, |_, bytes: &mut [u8]| {
                description.extend_from_slice(bytes);
            });
            locked(&raw mut (*entry).lock, false, || {
                blocks::each(store.plans, memory.nodes, |_, totals: &mut [NodeTotals]| {
                    nodes.extend_from_slice(totals);
                });
                (*entry).stats
            })
        });
        pg_sys::dshash_release_lock(store.table, entry.cast());
        let description = postcard::from_bytes::<PlanDescription>(&description).ok()?;
        Some(Plan {
            key: *key,
            description: Rc::new(description),
            older_literals: false,
            statistics: stats,
            nodes,
        })
    }
}
