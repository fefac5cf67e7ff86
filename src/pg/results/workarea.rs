//! Returns the memory and disk that sorts, hashes, aggregates and memoize nodes used, as far as PostgreSQL knows them.
//! Memory is the largest peak of any process, disk is the sum over all processes; both in kB.

use crate::pg::plan::tree;
use pgrx::pg_sys::{self, NodeTag, PlanState};

/// Returns memory and disk in kB; `None` if PostgreSQL does not know them.
///
/// # Safety
/// `ps` must be an initialised plan state whose memory contexts are live.
#[inline(always)]
pub unsafe fn size(ps: *mut PlanState) -> (Option<u64>, Option<u64>) {
    // SAFETY: `ps` is a plan state whose memory contexts are live, by the caller's promise.
    unsafe {
        match tree::tag(ps) {
            NodeTag::T_SortState
            | NodeTag::T_IncrementalSortState
            | NodeTag::T_HashState
            | NodeTag::T_AggState
            | NodeTag::T_MemoizeState => known_size(ps),
            _ => (None, None),
        }
    }
}

/// Returns memory and disk of a node of one of these types.
///
/// # Safety
/// `ps` must be an initialised plan state whose memory contexts are live.
#[inline(never)]
unsafe fn known_size(ps: *mut PlanState) -> (Option<u64>, Option<u64>) {
    // SAFETY: the plan state and its memory contexts are live by the caller's promise, and each cast follows the tag.
    unsafe {
        match tree::tag(ps) {
            NodeTag::T_SortState => sort(ps.cast()),
            NodeTag::T_IncrementalSortState => incremental_sort(ps.cast()),
            NodeTag::T_HashState => hash(ps.cast()),
            NodeTag::T_AggState => aggregate(ps.cast()),
            NodeTag::T_MemoizeState => memoize(ps.cast()),
            _ => (None, None),
        }
    }
}

fn kb(bytes: u64) -> u64 {
    bytes.div_ceil(1024)
}

/// Combines the sizes of all processes: the largest memory, the sum of the disk.
#[derive(Default)]
struct Participants {
    memory_kb: Option<u64>,
    disk_kb: Option<u64>,
}

impl Participants {
    fn memory(&mut self, kb: u64) {
        self.memory_kb = self.memory_kb.max(Some(kb));
    }
    fn disk(&mut self, kb: u64) {
        self.disk_kb = Some(self.disk_kb.unwrap_or(0) + kb);
    }
    fn sorted(&mut self, stats: &pg_sys::TuplesortInstrumentation) {
        if stats.sortMethod == pg_sys::TuplesortMethod::SORT_TYPE_STILL_IN_PROGRESS {
            return;
        }
        let kb = stats.spaceUsed.max(0) as u64;
        if stats.spaceType == pg_sys::TuplesortSpaceType::SORT_SPACE_TYPE_DISK {
            self.disk(kb);
        } else {
            self.memory(kb);
        }
    }
    fn done(self) -> (Option<u64>, Option<u64>) {
        (self.memory_kb, self.disk_kb)
    }
}

/// Returns memory and disk of a sort.
///
/// # Safety
/// `state` must point to an initialised plan state of this type, whose memory contexts are live.
unsafe fn sort(state: *mut pg_sys::SortState) -> (Option<u64>, Option<u64>) {
    // SAFETY: the state is live by the caller's promise. With sort_Done, tuplesortstate is null or a live sort. shared_info
    // has num_workers entries.
    unsafe {
        let mut all = Participants::default();
        if (*state).sort_Done && !(*state).tuplesortstate.is_null() {
            let mut stats = pg_sys::TuplesortInstrumentation::default();
            pg_sys::tuplesort_get_stats((*state).tuplesortstate.cast(), &mut stats);
            all.sorted(&stats);
        }
        let shared = (*state).shared_info;
        if !shared.is_null() {
            (*shared)
                .sinstrument
                .as_slice((*shared).num_workers as usize)
                .iter()
                .for_each(|s| all.sorted(s));
        }
        all.done()
    }
}

/// Returns memory and disk of an incremental sort.
///
/// # Safety
/// `state` must point to an initialised plan state of this type, whose memory contexts are live.
unsafe fn incremental_sort(state: *mut pg_sys::IncrementalSortState) -> (Option<u64>, Option<u64>) {
    // SAFETY: the state is live by the caller's promise, and shared_info has num_workers entries.
    unsafe {
        let mut all = Participants::default();
        let mut add = |info: &pg_sys::IncrementalSortInfo| {
            for group in [&info.fullsortGroupInfo, &info.prefixsortGroupInfo] {
                if group.groupCount > 0 {
                    if group.maxMemorySpaceUsed > 0 {
                        all.memory(group.maxMemorySpaceUsed as u64);
                    }
                    if group.maxDiskSpaceUsed > 0 {
                        all.disk(group.maxDiskSpaceUsed as u64);
                    }
                }
            }
        };
        add(&(*state).incsort_info);
        let shared = (*state).shared_info;
        if !shared.is_null() {
            (*shared)
                .sinfo
                .as_slice((*shared).num_workers as usize)
                .iter()
                .for_each(add);
        }
        all.done()
    }
}

/// Returns memory and disk of a hash.
///
/// # Safety
/// `state` must point to an initialised plan state of this type, whose memory contexts are live.
unsafe fn hash(state: *mut pg_sys::HashState) -> (Option<u64>, Option<u64>) {
    // SAFETY: the state is live by the caller's promise. hinstrument and hashtable are null or valid. shared_info has
    // num_workers entries.
    unsafe {
        let mut all = Participants::default();
        let own = (*state).hinstrument;
        if !own.is_null() && (*own).nbatch > 0 {
            all.memory(kb((*own).space_peak as u64));
        }
        let table = (*state).hashtable;
        if !table.is_null() {
            all.memory(kb((*table).spacePeak as u64));
        }
        let shared = (*state).shared_info;
        if !shared.is_null() {
            for worker in (*shared).hinstrument.as_slice((*shared).num_workers as usize) {
                if worker.nbatch > 0 {
                    all.memory(kb(worker.space_peak as u64));
                }
            }
        }
        all.done()
    }
}

/// Returns memory and disk of an aggregate.
///
/// # Safety
/// `state` must point to an initialised plan state of this type, whose memory contexts are live.
unsafe fn aggregate(state: *mut pg_sys::AggState) -> (Option<u64>, Option<u64>) {
    // SAFETY: the state is live by the caller's promise, and shared_info has num_workers entries.
    unsafe {
        let mut all = Participants::default();
        if (*state).hash_mem_peak > 0 {
            all.memory(kb((*state).hash_mem_peak as u64));
        }
        if (*state).hash_disk_used > 0 {
            all.disk((*state).hash_disk_used);
        }
        let shared = (*state).shared_info;
        if !shared.is_null() {
            for worker in (*shared).sinstrument.as_slice((*shared).num_workers as usize) {
                if worker.hash_mem_peak > 0 {
                    all.memory(kb(worker.hash_mem_peak as u64));
                }
                if worker.hash_disk_used > 0 {
                    all.disk(worker.hash_disk_used);
                }
            }
        }
        all.done()
    }
}

/// Returns memory and disk of a cache.
///
/// # Safety
/// `state` must point to an initialised plan state of this type, whose memory contexts are live.
unsafe fn memoize(state: *mut pg_sys::MemoizeState) -> (Option<u64>, Option<u64>) {
    // SAFETY: the state is live by the caller's promise, and shared_info has num_workers entries.
    unsafe {
        let mut all = Participants::default();
        let stats = &(*state).stats;
        if stats.cache_misses > 0 {
            // PostgreSQL keeps the peak only from the first eviction on. Until then the memory in use is the peak.
            all.memory(kb(stats.mem_peak.max((*state).mem_used)));
        }
        let shared = (*state).shared_info;
        if !shared.is_null() {
            for worker in (*shared).sinstrument.as_slice((*shared).num_workers as usize) {
                if worker.cache_misses > 0 {
                    all.memory(kb(worker.mem_peak));
                }
            }
        }
        all.done()
    }
}
