//! Returns what sorts, hashes, aggregates and memoize nodes did with their memory, as far as PostgreSQL knows
//! it. Memory is the largest peak of any process, disk is the sum over all processes; both in kB.

use crate::pg::handles::{Bare, Counted, Handle, PlanStateRef};
use pgrx::pg_sys::{self, PlanState};
use rowsource_core::model::facts::{PEAKS, SUMS};
use rowsource_core::model::{NodeFacts, NodeKind};

/// Returns bytes as kB, rounded up.
pub(super) fn kb(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX)
}

/// Returns kB that PostgreSQL has as a larger number.
fn kb_of(kb: i64) -> u32 {
    u32::try_from(kb.max(0)).unwrap_or(u32::MAX)
}

/// Combines the sizes of all processes: the largest memory, the sum of the disk.
#[derive(Default)]
struct Participants {
    memory_kb: Option<u32>,
    disk_kb: Option<u32>,
}

impl Participants {
    fn memory(&mut self, kb: u32) {
        self.memory_kb = self.memory_kb.max(Some(kb));
    }
    fn disk(&mut self, kb: u32) {
        self.disk_kb = Some(self.disk_kb.unwrap_or(0).saturating_add(kb));
    }
    fn facts(self, kind: NodeKind) -> NodeFacts {
        NodeFacts {
            kind,
            memory_kb: self.memory_kb.into(),
            disk_kb: self.disk_kb.into(),
            ..NodeFacts::default()
        }
    }
}

/// Whose facts are read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    /// Those of all processes together.
    All,
    /// Those of the leader alone.
    Leader,
    /// Those of a parallel worker alone. Workers count from 0.
    Worker(usize),
}

impl Whose {
    /// Returns whether they include the leader's.
    #[inline(always)]
    pub fn has_leader(self) -> bool {
        !matches!(self, Whose::Worker(_))
    }

    /// Passes what each of these parallel workers reported to `add`.
    pub fn each_worker<S: Counted>(self, shared: Option<Handle<S>>, add: impl FnMut(&S::Member)) {
        let reports = shared.map_or(&[][..], Handle::reports);
        match self {
            Whose::Leader => (),
            Whose::Worker(n) => reports.get(n).into_iter().for_each(add),
            Whose::All => reports.iter().for_each(add),
        }
    }
}

/// Returns the facts of a sort. Those of the leader are unknown before the sort has ended.
pub(super) fn sort(state: Handle<pg_sys::SortState>, whose: Whose) -> NodeFacts {
    let mut all = Participants::default();
    let mut methods = 0;
    let mut add = |stats: &pg_sys::TuplesortInstrumentation| {
        if stats.sortMethod == pg_sys::TuplesortMethod::SORT_TYPE_STILL_IN_PROGRESS {
            return;
        }
        methods |= stats.sortMethod;
        let kb = kb_of(stats.spaceUsed);
        if stats.spaceType == pg_sys::TuplesortSpaceType::SORT_SPACE_TYPE_DISK {
            all.disk(kb);
        } else {
            all.memory(kb);
        }
    };
    if whose.has_leader() && state.sort_Done && !state.tuplesortstate.is_null() {
        let mut stats = pg_sys::TuplesortInstrumentation::default();
        // SAFETY: with sort_Done, it is a live sort.
        unsafe { pg_sys::tuplesort_get_stats(state.tuplesortstate.cast(), &mut stats) };
        add(&stats);
    }
    whose.each_worker(state.reach(|state| &state.shared_info), add);
    NodeFacts {
        methods,
        ..all.facts(NodeKind::Sort)
    }
}

/// Returns the facts of an incremental sort.
pub(super) fn incremental_sort(ps: Bare<PlanState>, whole: Option<PlanStateRef>, whose: Whose) -> NodeFacts {
    let state = ps.cast::<pg_sys::IncrementalSortState>();
    let mut all = Participants::default();
    let (mut sums, mut peaks, mut methods) = ([0; SUMS], [0; PEAKS], 0);
    let mut add = |info: &pg_sys::IncrementalSortInfo| {
        let groups = [&info.fullsortGroupInfo, &info.prefixsortGroupInfo];
        for (which, group) in groups.into_iter().enumerate() {
            if group.groupCount <= 0 {
                continue;
            }
            let (memory, disk) = (kb_of(group.maxMemorySpaceUsed), kb_of(group.maxDiskSpaceUsed));
            if memory > 0 {
                all.memory(memory);
            }
            if disk > 0 {
                all.disk(disk);
            }
            sums[which] += group.groupCount as u64;
            sums[2 + which] += group.totalMemorySpaceUsed.max(0) as u64;
            sums[4 + which] += group.totalDiskSpaceUsed.max(0) as u64;
            peaks[which] = memory.max(peaks[which]);
            peaks[2 + which] = disk.max(peaks[2 + which]);
            methods |= group.sortMethods << (8 * which);
        }
    };
    if whose.has_leader() {
        add(&state.incsort_info);
    }
    let whole = whole.map(PlanStateRef::cast::<pg_sys::IncrementalSortState>);
    whose.each_worker(
        whole.and_then(|whole| whole.reach(|state| &state.shared_info)),
        add,
    );
    NodeFacts {
        sums,
        peaks,
        methods,
        ..all.facts(NodeKind::IncrementalSort)
    }
}

/// Returns the facts of a hash table.
pub(super) fn hash(state: Handle<pg_sys::HashState>) -> NodeFacts {
    let mut all = Participants::default();
    let mut peaks = [0; PEAKS];
    let mut add = |numbers: [i32; PEAKS], space_peak: usize| {
        if numbers[2] <= 0 {
            return;
        }
        all.memory(kb(space_peak as u64));
        for (peak, number) in peaks.iter_mut().zip(numbers) {
            *peak = (*peak).max(u32::try_from(number).unwrap_or(0));
        }
    };
    let of = |hash: &pg_sys::HashInstrumentation| {
        [
            hash.nbuckets,
            hash.nbuckets_original,
            hash.nbatch,
            hash.nbatch_original,
        ]
    };
    if let Some(own) = state.reach(|state| &state.hinstrument) {
        add(of(&own), own.space_peak);
    }
    if let Some(table) = state.reach(|state| &state.hashtable) {
        let numbers = [
            table.nbuckets,
            table.nbuckets_original,
            table.nbatch,
            table.nbatch_original,
        ];
        add(numbers, table.spacePeak);
    }
    Whose::All.each_worker(state.reach(|state| &state.shared_info), |worker| {
        add(of(worker), worker.space_peak);
    });
    NodeFacts {
        peaks,
        ..all.facts(NodeKind::Hash)
    }
}

/// Returns the facts of an aggregate. `filter` are those of one that does not hash.
pub(super) fn aggregate(
    ps: Bare<PlanState>,
    whole: Option<PlanStateRef>,
    filter: NodeFacts,
    whose: Whose,
) -> NodeFacts {
    let state = ps.cast::<pg_sys::AggState>();
    let mut all = Participants::default();
    let mut peaks = [0; PEAKS];
    let mut add = |peak: usize, disk_kb: u64, batches: i32| {
        if peak > 0 {
            all.memory(kb(peak as u64));
        }
        if disk_kb > 0 {
            all.disk(kb_of(disk_kb as i64));
        }
        peaks[1] = peaks[1].max(u32::try_from(batches).unwrap_or(0));
    };
    if !matches!(
        state.aggstrategy,
        pg_sys::AggStrategy::AGG_HASHED | pg_sys::AggStrategy::AGG_MIXED
    ) {
        return filter;
    }
    if whose.has_leader() {
        add(state.hash_mem_peak, state.hash_disk_used, state.hash_batches_used);
    }
    let whole = whole.map(PlanStateRef::cast::<pg_sys::AggState>);
    whose.each_worker(
        whole.and_then(|whole| whole.reach(|state| &state.shared_info)),
        |worker| {
            add(
                worker.hash_mem_peak,
                worker.hash_disk_used,
                worker.hash_batches_used,
            )
        },
    );
    peaks[0] = u32::try_from(state.hash_planned_partitions).unwrap_or(0);
    NodeFacts {
        sums: filter.sums,
        peaks,
        ..all.facts(NodeKind::HashAggregate)
    }
}

/// Returns the facts of a cache.
pub(super) fn memoize(ps: Bare<PlanState>, whole: Option<PlanStateRef>, whose: Whose) -> NodeFacts {
    let state = ps.cast::<pg_sys::MemoizeState>();
    let mut all = Participants::default();
    let mut sums = [0; SUMS];
    let mut add = |stats: &pg_sys::MemoizeInstrumentation, mem_peak: u64| {
        if stats.cache_misses == 0 {
            return;
        }
        all.memory(kb(mem_peak));
        let counts = [
            stats.cache_hits,
            stats.cache_misses,
            stats.cache_evictions,
            stats.cache_overflows,
        ];
        sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    };
    let stats = &state.stats;
    // PostgreSQL keeps the peak only from the first eviction on. Until then the memory in use is the peak.
    if whose.has_leader() {
        add(stats, stats.mem_peak.max(state.mem_used));
    }
    let whole = whole.map(PlanStateRef::cast::<pg_sys::MemoizeState>);
    whose.each_worker(
        whole.and_then(|whole| whole.reach(|state| &state.shared_info)),
        |worker| add(worker, worker.mem_peak),
    );
    NodeFacts {
        sums,
        ..all.facts(NodeKind::Memoize)
    }
}
