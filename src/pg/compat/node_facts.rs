//! Finds facts of nodes that some majors keep elsewhere, or do not have.

use crate::pg::handles::{Bare, Handle, PlanStateRef};
#[cfg(pg_ge_18)]
use crate::pg::handles::{counted, part::Part};
use pgrx::pg_sys::{self, BitmapHeapScanState, PlanState};
use rowsource_core::model::{NodeKind, ScanIo};

/// Returns how often an index was searched, in all processes. PostgreSQL counts that from 18 on. `whole` is
/// the same node, if all of it is live.
#[cfg(pg_ge_18)]
pub fn index_searches(ps: Bare<PlanState>, whole: Option<PlanStateRef>) -> u64 {
    use pgrx::pg_sys::NodeTag;
    let (own, shared) = match ps.tag() {
        NodeTag::T_IndexScanState => {
            let state = ps.cast::<pg_sys::IndexScanState>();
            (state.iss_Instrument, state.iss_SharedInfo)
        }
        NodeTag::T_IndexOnlyScanState => {
            let state = ps.cast::<pg_sys::IndexOnlyScanState>();
            (state.ioss_Instrument, state.ioss_SharedInfo)
        }
        NodeTag::T_BitmapIndexScanState => {
            let state = ps.cast::<pg_sys::BitmapIndexScanState>();
            (state.biss_Instrument, state.biss_SharedInfo)
        }
        _ => return 0,
    };
    // From 19 on, the leader's count is memory of its own.
    #[cfg(pg_ge_19)]
    let own = match whole {
        // SAFETY: it is null, or as live as the whole node.
        Some(_) => unsafe { own.as_ref() }.map_or(0, |own| own.nsearches),
        None => 0,
    };
    #[cfg(not(pg_ge_19))]
    let own = own.nsearches;
    match whole {
        // SAFETY: the workers' counts are as live as the whole node.
        Some(_) if !shared.is_null() => own + workers_searches(unsafe { Handle::new(shared) }),
        _ => own,
    }
}

/// Returns how many nodes of a plan and below it the planner was told not to use. Before 18, their costs say
/// that.
#[cfg(pg_ge_18)]
pub fn disabled_nodes(plan: &pg_sys::Plan) -> i32 {
    plan.disabled_nodes
}

/// Returns 0: the costs say it.
#[cfg(not(pg_ge_18))]
pub fn disabled_nodes(_plan: &pg_sys::Plan) -> i32 {
    0
}

/// Returns 0: PostgreSQL does not count searches.
#[cfg(not(pg_ge_18))]
#[inline(always)]
pub fn index_searches(_ps: Bare<PlanState>, _whole: Option<PlanStateRef>) -> u64 {
    0
}

/// Where core counts the searches of an index from 19 on. Before, the plan state has the count itself.
#[cfg(pg_ge_19)]
pub type IndexSearches = pg_sys::IndexScanInstrumentation;
#[cfg(not(pg_ge_19))]
pub type IndexSearches = ();

/// Makes core count the searches of an index in `searches`, unless it counts them already. Core does not
/// count them in a statement for which nobody requested instrumentation before its start.
///
/// # Safety
/// `ps` must be an initialised plan state that has not run yet. `searches` must live as long as it runs.
#[cfg(pg_ge_19)]
#[inline(always)]
pub unsafe fn count_index_searches(ps: *mut PlanState, searches: *mut IndexSearches) {
    use pgrx::pg_sys::NodeTag;
    // SAFETY: the plan state is live by the caller's promise, and each cast follows the tag. A bitmap index
    // scan has begun its scan, which has a pointer of its own.
    unsafe {
        let place = match (*ps).type_ {
            NodeTag::T_IndexScanState => &raw mut (*ps.cast::<pg_sys::IndexScanState>()).iss_Instrument,
            NodeTag::T_IndexOnlyScanState => {
                &raw mut (*ps.cast::<pg_sys::IndexOnlyScanState>()).ioss_Instrument
            }
            NodeTag::T_BitmapIndexScanState => {
                let state = ps.cast::<pg_sys::BitmapIndexScanState>();
                if let Some(scan) = (*state).biss_ScanDesc.as_mut()
                    && scan.instrument.is_null()
                {
                    scan.instrument = searches;
                }
                &raw mut (*state).biss_Instrument
            }
            _ => return,
        };
        if (*place).is_null() {
            *place = searches;
        }
    }
}

/// Does nothing: the plan state has the count itself.
///
/// # Safety
/// None: it uses nothing. It is unsafe because the function for newer majors is.
#[cfg(not(pg_ge_19))]
#[inline(always)]
pub unsafe fn count_index_searches(_ps: *mut PlanState, _searches: *mut IndexSearches) {}

/// Returns the searches of the workers.
#[cfg(pg_ge_18)]
#[inline(never)]
fn workers_searches(shared: Handle<pg_sys::SharedIndexScanInstrumentation>) -> u64 {
    shared.reports().iter().map(|worker| worker.nsearches).sum()
}

#[cfg(pg_ge_18)]
counted! {
    SharedBitmapHeapInstrumentation: sinstrument, BitmapHeapScanInstrumentation;
    SharedIndexScanInstrumentation: winstrument, IndexScanInstrumentation;
    #[cfg(pg_ge_19)]
    SharedSeqScanInstrumentation: sinstrument, SeqScanInstrumentation;
    #[cfg(pg_ge_19)]
    SharedTidRangeScanInstrumentation: sinstrument, TidRangeScanInstrumentation;
}

// SAFETY: the tuplestores that a node reads or writes are as live as it.
#[cfg(pg_ge_18)]
unsafe impl Part for pg_sys::Tuplestorestate {}

/// Returns how many blocks of the table a bitmap heap scan read in this process, for exact and for lossy
/// pages of the bitmap.
pub fn heap_blocks(state: Bare<BitmapHeapScanState>) -> [u64; 2] {
    #[cfg(pg_ge_18)]
    {
        [state.stats.exact_pages, state.stats.lossy_pages]
    }
    #[cfg(not(pg_ge_18))]
    {
        [state.exact_pages, state.lossy_pages].map(|pages| u64::try_from(pages).unwrap_or(0))
    }
}

/// Returns the same of a parallel worker. Workers count from 0. Returns `None` if there is no such worker.
#[cfg(pg_ge_18)]
pub fn worker_heap_blocks(state: Handle<BitmapHeapScanState>, worker: usize) -> Option<[u64; 2]> {
    let worker = state.reach(|state| &state.sinstrument)?.reports().get(worker)?;
    Some([worker.exact_pages, worker.lossy_pages])
}

/// Returns `None`: PostgreSQL knows only the leader's.
#[cfg(not(pg_ge_18))]
pub fn worker_heap_blocks(_state: Handle<BitmapHeapScanState>, _worker: usize) -> Option<[u64; 2]> {
    None
}

/// The kind of the nodes that store rows: before 18, PostgreSQL knows nothing of that.
#[cfg(pg_ge_18)]
pub const STORAGE: NodeKind = NodeKind::Storage;
#[cfg(not(pg_ge_18))]
pub const STORAGE: NodeKind = NodeKind::Filter;

/// Returns where a node stored rows (a bit: 1 in memory, 2 on disk), and the bytes of that; `None` if it
/// stored none. PostgreSQL knows it from 18 on.
#[cfg(pg_ge_18)]
pub fn storage(ps: PlanStateRef) -> Option<(u32, u64)> {
    use pgrx::pg_sys::NodeTag;
    match ps.tag() {
        NodeTag::T_CteScanState => {
            // Another CTE scan may have the tuplestore of this one.
            let leader = ps.cast::<pg_sys::CteScanState>().follow(|scan| &scan.leader)?;
            stored(leader.reach(|scan| &scan.cte_table)?)
        }
        NodeTag::T_TableFuncScanState => stored(
            ps.cast::<pg_sys::TableFuncScanState>()
                .reach(|scan| &scan.tupstore)?,
        ),
        NodeTag::T_MaterialState => stored(
            ps.cast::<pg_sys::MaterialState>()
                .reach(|state| &state.tuplestorestate)?,
        ),
        NodeTag::T_WindowAggState => {
            stored(ps.cast::<pg_sys::WindowAggState>().reach(|state| &state.buffer)?)
        }
        NodeTag::T_RecursiveUnionState => {
            let state = ps.cast::<pg_sys::RecursiveUnionState>();
            let working = stored(state.reach(|state| &state.working_table)?)?;
            let intermediate = stored(state.reach(|state| &state.intermediate_table)?)?;
            // As EXPLAIN does: the place of the larger one, and the sum of both.
            let larger = if intermediate.1 > working.1 {
                intermediate
            } else {
                working
            };
            Some((larger.0, working.1 + intermediate.1))
        }
        _ => None,
    }
}

/// Returns `None`: PostgreSQL does not know it.
#[cfg(not(pg_ge_18))]
pub fn storage(_ps: PlanStateRef) -> Option<(u32, u64)> {
    None
}

/// Returns the same of a tuplestore.
#[cfg(pg_ge_18)]
fn stored(tuplestore: Handle<pg_sys::Tuplestorestate>) -> Option<(u32, u64)> {
    // SAFETY: the tuplestore is live. The function returns a constant text.
    unsafe {
        let (mut place, mut bytes) = (std::ptr::null_mut(), 0);
        pg_sys::tuplestore_get_stats(tuplestore.as_ptr(), &mut place, &mut bytes);
        let in_memory = std::ffi::CStr::from_ptr(place) == c"Memory";
        Some((if in_memory { 1 } else { 2 }, u64::try_from(bytes).unwrap_or(0)))
    }
}

/// What has core count how scans read ahead, in `es_instrument`. Core can do that from 19 on.
#[cfg(pg_ge_19)]
pub const COUNT_SCAN_IO: Option<i32> = Some(pg_sys::InstrumentOption::INSTRUMENT_IO as i32);
#[cfg(not(pg_ge_19))]
pub const COUNT_SCAN_IO: Option<i32> = None;

/// Returns how the leader's scan of a table read ahead; `None` if core did not count that, or if the scan has
/// not begun.
#[cfg(pg_ge_19)]
#[inline(always)]
pub fn scan_io(ps: PlanStateRef) -> Option<ScanIo> {
    // SAFETY: the scan is null, or as live as the node, and so is what it counted.
    unsafe {
        let scan = ps.cast::<pg_sys::ScanState>().ss_currentScanDesc.as_ref()?;
        scan.rs_instrument.as_ref().map(|counted| io(&counted.io))
    }
}

/// Returns `None`: core does not count it.
#[cfg(not(pg_ge_19))]
#[inline(always)]
pub fn scan_io(_ps: PlanStateRef) -> Option<ScanIo> {
    None
}

/// Returns the same of a parallel worker. Workers count from 0. Returns `None` if there is no such worker.
#[cfg(pg_ge_19)]
pub fn worker_scan_io(ps: PlanStateRef, worker: usize) -> Option<ScanIo> {
    use pgrx::pg_sys::NodeTag;
    let counted = match ps.tag() {
        NodeTag::T_SeqScanState => {
            let shared = ps
                .cast::<pg_sys::SeqScanState>()
                .reach(|scan| &scan.sinstrument)?;
            &shared.reports().get(worker)?.stats
        }
        NodeTag::T_TidRangeScanState => {
            let state = ps.cast::<pg_sys::TidRangeScanState>();
            let shared = state.reach(|scan| &scan.trss_sinstrument)?;
            &shared.reports().get(worker)?.stats
        }
        NodeTag::T_BitmapHeapScanState => {
            let shared = ps.cast::<BitmapHeapScanState>().reach(|scan| &scan.sinstrument)?;
            &shared.reports().get(worker)?.stats
        }
        _ => return None,
    };
    Some(io(&counted.io))
}

/// Returns `None`: core does not count it.
#[cfg(not(pg_ge_19))]
#[inline(always)]
pub fn worker_scan_io(_ps: PlanStateRef, _worker: usize) -> Option<ScanIo> {
    None
}

#[cfg(pg_ge_19)]
fn io(counted: &pg_sys::IOStats) -> ScanIo {
    let distance = |blocks: i16| u32::try_from(blocks).unwrap_or(0);
    ScanIo {
        blocks: counted.prefetch_count,
        distances: counted.distance_sum,
        waits: counted.wait_count,
        reads: counted.io_count,
        read_blocks: counted.io_nblocks,
        in_progress: counted.io_in_progress,
        max_distance: distance(counted.distance_max),
        capacity: distance(counted.distance_capacity),
    }
}

/// Returns the entries of the range table that a foreign scan scans or joins.
#[cfg(pg_ge_16)]
pub fn foreign_entries(scan: Handle<pg_sys::ForeignScan>) -> impl Iterator<Item = u32> {
    scan.set(|scan| &scan.fs_base_relids)
}

/// Returns the entries of the range table that a foreign scan scans or joins.
#[cfg(not(pg_ge_16))]
pub fn foreign_entries(scan: Handle<pg_sys::ForeignScan>) -> impl Iterator<Item = u32> {
    scan.set(|scan| &scan.fs_relids)
}

/// Returns the entry of the range table that RETURNING names.
#[cfg(pg_ge_18)]
pub fn returned_entry(modify: Handle<pg_sys::ModifyTable>) -> Option<u32> {
    let first = modify.integers(|modify| &modify.resultRelations).next()?;
    (!modify.plan.targetlist.is_null()).then_some(*first as u32)
}

/// Returns nothing: RETURNING names none.
#[cfg(not(pg_ge_18))]
pub fn returned_entry(_modify: Handle<pg_sys::ModifyTable>) -> Option<u32> {
    None
}

/// Returns whether an entry of the range table stands for the groups of a statement.
#[cfg(pg_ge_18)]
pub fn is_group(kind: pg_sys::RTEKind::Type) -> bool {
    kind == pg_sys::RTEKind::RTE_GROUP
}

/// Returns false: no entry does.
#[cfg(not(pg_ge_18))]
pub fn is_group(_kind: pg_sys::RTEKind::Type) -> bool {
    false
}

/// Returns the entries of the range table that need not be scanned, which a Result stands for.
#[cfg(pg_ge_19)]
pub fn replaced_entries(result: Handle<pg_sys::Result>) -> impl Iterator<Item = u32> {
    result.set(|result| &result.relids)
}

/// Returns nothing: a Result does not say what it stands for.
#[cfg(not(pg_ge_19))]
pub fn replaced_entries(_result: Handle<pg_sys::Result>) -> impl Iterator<Item = u32> {
    std::iter::empty()
}
