//! The entries of the shared store: one per plan, its nodes' figures and its description beside it.

use super::{Control, EVICTED_SHARE, MOST_NODES, Store, control_lock, gather, locked};
use crate::guc;
use crate::pg::{compat, raw};
use crate::session::{Execution, Plan, PlanDescription, PlanKey, PlanStatistics};
use pgrx::pg_sys;
use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;
use rowsource_core::figures::NodeFigures;
use rowsource_core::histogram::Histogram;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
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
    statistics: PlanStatistics,
    nodes: u32,
    description: u32,
    /// `nodes` of [`NodeTotals`], then `description` bytes: the description, serialised.
    payload: pg_sys::dsa_pointer,
}

/// The figures of one node.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
#[repr(C)]
pub(super) struct NodeTotals {
    total: NodeFigures,
    last: NodeFigures,
    histogram: Histogram,
}

pub(super) const NODE_SIZE: usize = size_of::<NodeTotals>();

impl NodeTotals {
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot.rowsource"))]
    fn add(&mut self, figures: &NodeFigures, histogram: &Histogram) {
        self.total.add(figures);
        self.last = *figures;
        self.histogram.add(histogram);
    }

    fn merge(&mut self, other: &NodeTotals, newer: bool) {
        self.total.add(&other.total);
        if newer {
            self.last = other.last;
        }
        self.histogram.add(&other.histogram);
    }

    /// Begins to count.
    pub(super) fn clear(&mut self) {
        self.total = NodeFigures::default();
        self.histogram.clear();
    }
}

/// Statistics of a plan and of its nodes, as they come to the store: those of one execution, or those of several that
/// were gathered.
pub(super) enum Batch<'a> {
    Execution(&'a Execution<'a>),
    Gathered(&'a PlanStatistics, &'a [NodeTotals]),
}

impl Batch<'_> {
    fn nodes(&self) -> usize {
        match self {
            Batch::Execution(execution) => execution.figures.len(),
            Batch::Gathered(_, nodes) => nodes.len(),
        }
    }

    fn last_seen(&self) -> i64 {
        match self {
            Batch::Execution(execution) => execution.run.at,
            Batch::Gathered(statistics, _) => statistics.last_seen,
        }
    }

    /// Adds it to a plan's statistics.
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot.rowsource"))]
    pub(super) fn add_to(&self, statistics: &mut PlanStatistics, totals: &mut [NodeTotals]) {
        match self {
            Batch::Execution(execution) => {
                statistics.add(&execution.run);
                let figures = execution.figures.iter().zip(execution.histograms);
                for (total, (figures, histogram)) in totals.iter_mut().zip(figures) {
                    total.add(figures, histogram);
                }
            }
            Batch::Gathered(gathered, nodes) => {
                let newer = statistics.merge(gathered);
                for (total, node) in totals.iter_mut().zip(*nodes) {
                    total.merge(node, newer);
                }
            }
        }
    }

    /// As the statistics of a new plan.
    fn first(&self) -> (PlanStatistics, Vec<NodeTotals>) {
        let mut statistics = PlanStatistics::default();
        let mut nodes = vec![NodeTotals::default(); self.nodes()];
        self.add_to(&mut statistics, &mut nodes);
        (statistics, nodes)
    }
}

impl Entry {
    pub(super) const KEY_SIZE: usize = size_of::<PlanKey>();

    unsafe fn payload_size(&self) -> usize {
        self.nodes as usize * size_of::<NodeTotals>() + self.description as usize
    }
}

/// Adds to a known plan; false where the plan is not known.
///
/// # Safety
/// Inside a boundary: memory may be mapped in, which may raise.
pub(super) unsafe fn update(store: &Store, key: &PlanKey, batch: &Batch) -> bool {
    // SAFETY: the entry stays while the partition lock is held; its payload changes under its own lock only.
    unsafe {
        let key: *const PlanKey = key;
        let entry: *mut Entry = raw::dshash_find(store.table, key.cast(), false).cast();
        if entry.is_null() {
            return false;
        }
        let nodes = (*entry).nodes as usize;
        if nodes == batch.nodes() {
            let totals: *mut NodeTotals = raw::dsa_get_address(store.area, (*entry).payload).cast();
            locked(&raw mut (*entry).lock, true, || {
                let totals = std::slice::from_raw_parts_mut(totals, nodes);
                batch.add_to(&mut (*entry).statistics, totals);
            });
            (*entry).used.fetch_max(batch.last_seen(), Relaxed);
        }
        raw::dshash_release_lock(store.table, entry.cast());
        true
    }
}

/// Whether a new plan needs room made for it.
pub(super) unsafe fn is_full(store: &Store) -> bool {
    // SAFETY: an atomic in shared memory.
    unsafe { (*store.control).plans.load(Relaxed) >= guc::max_plans() as u64 }
}

/// Makes an entry for a new plan, evicting others if the store is full. False where it cannot be kept.
pub(super) unsafe fn insert_new(
    store: &Store,
    key: &PlanKey,
    description: &PlanDescription,
    batch: &Batch,
) -> bool {
    if batch.nodes() > MOST_NODES {
        return false;
    }
    let Ok(description) = postcard::to_stdvec(description) else {
        return false;
    };
    let (statistics, nodes) = batch.first();
    // SAFETY: under the control lock nobody else inserts or evicts.
    unsafe {
        let lock = control_lock();
        pg_sys::LWLockAcquire(lock, pg_sys::LWLockMode::LW_EXCLUSIVE);
        // Somebody else may have been first with this plan.
        if pg_guard_ffi_boundary(|| update(store, key, batch)) {
            pg_sys::LWLockRelease(lock);
            return true;
        }
        if is_full(store) {
            evict(store);
        }
        let kept = insert(store, key, &statistics, &nodes, &description);
        pg_sys::LWLockRelease(lock);
        kept
    }
}

/// Inserts a plan that is not there yet. False without memory for it.
///
/// # Safety
/// Under the control lock.
pub(super) unsafe fn insert(
    store: &Store,
    key: &PlanKey,
    statistics: &PlanStatistics,
    nodes: &[NodeTotals],
    description: &[u8],
) -> bool {
    // SAFETY: the payload is filled before the entry points to it; the new entry is locked by its partition lock.
    unsafe {
        let size = size_of_val(nodes) + description.len();
        let flags = pg_sys::DSA_ALLOC_NO_OOM as i32;
        let payload = pg_sys::dsa_allocate_extended(store.area, size, flags);
        if payload == 0 {
            return false;
        }
        let totals: *mut NodeTotals = pg_sys::dsa_get_address(store.area, payload).cast();
        totals.copy_from_nonoverlapping(nodes.as_ptr(), nodes.len());
        let bytes = totals.add(nodes.len()).cast::<u8>();
        bytes.copy_from_nonoverlapping(description.as_ptr(), description.len());
        let mut found = false;
        let key: *const PlanKey = key;
        let entry: *mut Entry = compat::dshash_find_or_insert(store.table, key.cast(), &mut found).cast();
        if found {
            pg_sys::dshash_release_lock(store.table, entry.cast());
            pg_sys::dsa_free(store.area, payload);
            return false;
        }
        pg_sys::LWLockInitialize(&raw mut (*entry).lock, (*store.control).tranche);
        (&raw mut (*entry).used).write(AtomicI64::new(statistics.last_seen));
        (*entry).statistics = *statistics;
        (*entry).nodes = nodes.len() as u32;
        (*entry).description = description.len() as u32;
        (*entry).payload = payload;
        pg_sys::dshash_release_lock(store.table, entry.cast());
        count(store.control, size, 1);
        true
    }
}

unsafe fn count(control: *mut Control, payload: usize, plans: i64) {
    // SAFETY: atomics in shared memory.
    unsafe {
        let bytes = (payload + size_of::<Entry>()) as i64 * plans;
        (*control).bytes.fetch_add(bytes as u64, Relaxed);
        (*control).plans.fetch_add(plans as u64, Relaxed);
    }
}

/// Evicts the plans that were used longest ago.
unsafe fn evict(store: &Store) {
    let mut used = Vec::new();
    // SAFETY: under the control lock.
    unsafe {
        each(store, false, |entry| {
            used.push((*entry).used.load(Relaxed));
            false
        });
        if used.is_empty() {
            return;
        }
        let share = (used.len() / EVICTED_SHARE).min(used.len() - 1);
        let (_, &mut newest_evicted, _) = used.select_nth_unstable(share);
        let mut evicted = HashSet::new();
        delete(store, |key, last| last <= newest_evicted && evicted.insert(*key));
        gather::forget(store, |key| evicted.contains(key));
        let count = evicted.len() as u64;
        (*store.control).evictions.fetch_add(count, Relaxed);
    }
}

/// Deletes the entries that `wanted` picks by key and last use.
pub(super) unsafe fn delete(store: &Store, mut wanted: impl FnMut(&PlanKey, i64) -> bool) {
    // SAFETY: the partition is locked exclusively while an entry is looked at and deleted.
    unsafe {
        each(store, true, |entry| {
            let gone = wanted(&(*entry).key, (*entry).used.load(Relaxed));
            if gone {
                let size = (*entry).payload_size();
                pg_sys::dsa_free(store.area, (*entry).payload);
                count(store.control, size, -1);
            }
            gone
        });
    }
}

/// Visits all entries; deletes those for which `visit` returns true, if `exclusive`.
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

impl NodeTotals {
    /// The nodes of a copied plan.
    pub(super) fn of(plan: &Plan) -> Vec<NodeTotals> {
        let figures = plan.total.iter().zip(&plan.last).zip(&plan.histograms);
        figures
            .map(|((total, last), histogram)| NodeTotals {
                total: *total,
                last: *last,
                histogram: *histogram,
            })
            .collect()
    }
}

/// Copies of the plans whose keys are wanted. A plan whose description cannot be read is left out.
pub(super) unsafe fn copies(store: &Store, wanted: impl Fn(&PlanKey) -> bool) -> Vec<Plan> {
    let mut plans = Vec::new();
    // SAFETY: each entry is copied under its partition's and its own lock, and only decoded after that.
    unsafe {
        let mut raw = Vec::new();
        each(store, false, |entry| {
            if !wanted(&(*entry).key) {
                return false;
            }
            let totals: *mut NodeTotals = pg_sys::dsa_get_address(store.area, (*entry).payload).cast();
            raw.push(locked(&raw mut (*entry).lock, false, || {
                let nodes = std::slice::from_raw_parts(totals, (*entry).nodes as usize).to_vec();
                let bytes = totals.add(nodes.len()).cast::<u8>();
                let description = std::slice::from_raw_parts(bytes, (*entry).description as usize).to_vec();
                ((*entry).key, (*entry).statistics, nodes, description)
            }));
            false
        });
        for (key, statistics, nodes, description) in raw {
            let Ok(description) = postcard::from_bytes::<PlanDescription>(&description) else {
                continue;
            };
            plans.push(Plan {
                key,
                description: Rc::new(description),
                older_literals: false,
                statistics,
                total: nodes.iter().map(|node| node.total).collect(),
                last: nodes.iter().map(|node| node.last).collect(),
                histograms: nodes.iter().map(|node| node.histogram).collect(),
            });
        }
    }
    plans
}
