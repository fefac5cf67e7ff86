//! Reads what PostgreSQL knows of a node besides rows, time and blocks, when a statement has ended. The table
//! in `rowsource_core::model::facts` says which slot holds what.
//!
//! The parts of parallel workers are added to the leader's. Many facts lie in the node's own state. Others
//! lie in memory that may already be freed after an error: they are read only if `core_alive`.

use super::workarea::{self, Whose};
use crate::pg::compat::{self, NodeInstrumentation};
use crate::pg::plan::tree;
use pgrx::pg_sys::{self, CmdType, NodeTag, PlanState};
use rowsource_core::model::facts::{
    HEAP_FETCHES, INDEX_SEARCHES, PEAKS, REMOVED_BY_FILTER, REMOVED_OTHERWISE, SIMPLE_SUMS, SUMS, SimpleFacts,
};
use rowsource_core::model::{NodeFacts, NodeKind};

/// Returns the facts of a node. `instr` is its instrumentation.
///
/// # Safety
/// `ps` must be an initialised plan state. If `core_alive`, its memory contexts must be live.
#[inline(always)]
pub unsafe fn read(ps: *mut PlanState, instr: Option<&NodeInstrumentation>, core_alive: bool) -> NodeFacts {
    let Some(instr) = instr else {
        return NodeFacts::default();
    };
    // SAFETY: the caller's promise is the same.
    unsafe {
        match frequent(ps, instr, core_alive) {
            Some(facts) => facts.into(),
            None => others(ps, instr, core_alive),
        }
    }
}

/// Returns the same, if all of it is in a few sums.
///
/// # Safety
/// The same as for [`read`].
#[inline(always)]
pub unsafe fn read_simple(
    ps: *mut PlanState,
    instr: &NodeInstrumentation,
    core_alive: bool,
) -> Option<SimpleFacts> {
    // SAFETY: the caller's promise is the same.
    unsafe {
        match frequent(ps, instr, core_alive) {
            Some(facts) => Some(facts),
            None => of_bitmap(ps, instr, core_alive).or_else(|| others(ps, instr, core_alive).simple()),
        }
    }
}

/// Returns the facts of the nodes that short statements often have.
///
/// # Safety
/// The same as for [`read`].
#[inline(always)]
unsafe fn frequent(ps: *mut PlanState, instr: &NodeInstrumentation, core_alive: bool) -> Option<SimpleFacts> {
    // SAFETY: the plan state is initialised, and with `core_alive` its memory contexts are live, by the
    // caller's promise.
    Some(unsafe {
        match tree::tag(ps) {
            NodeTag::T_IndexScanState => index_scan(ps, NodeKind::IndexScan, instr, core_alive),
            NodeTag::T_IndexOnlyScanState => index_scan(ps, NodeKind::IndexOnlyScan, instr, core_alive),
            NodeTag::T_SeqScanState if compat::COUNT_SCAN_IO.is_none() => filter(instr),
            NodeTag::T_ResultState => filter(instr),
            NodeTag::T_NestLoopState | NodeTag::T_MergeJoinState | NodeTag::T_HashJoinState => {
                simple(NodeKind::Join, [instr.nfiltered2, instr.nfiltered1], 0.0, 0)
            }
            NodeTag::T_ModifyTableState if core_alive => modify_table(ps.cast(), instr),
            // These have no facts.
            NodeTag::T_LimitState
            | NodeTag::T_LockRowsState
            | NodeTag::T_ProjectSetState
            | NodeTag::T_UniqueState => SimpleFacts::default(),
            _ => return None,
        }
    })
}

/// Returns a count of core's as a whole number.
#[inline(always)]
fn count(value: f64) -> u64 {
    value as i64 as u64
}

/// Returns the facts of a node that has no others. `removed` are the rows removed by a filter, and by a join
/// filter or recheck.
#[inline(always)]
fn simple(kind: NodeKind, removed: [f64; 2], heap_fetches: f64, searches: u64) -> SimpleFacts {
    let mut sums = [0; SIMPLE_SUMS];
    // None of them is negative.
    if removed[0] + removed[1] + heap_fetches != 0.0 {
        sums[REMOVED_BY_FILTER] = count(removed[0]);
        sums[REMOVED_OTHERWISE] = count(removed[1]);
        sums[HEAP_FETCHES] = count(heap_fetches);
    }
    sums[INDEX_SEARCHES] = searches;
    SimpleFacts { kind, sums }
}

/// Returns the facts of a node that may have a filter, and nothing else.
#[inline(always)]
fn filter(instr: &NodeInstrumentation) -> SimpleFacts {
    simple(NodeKind::Filter, [instr.nfiltered1, 0.0], 0.0, 0)
}

/// Returns the facts of an index scan.
///
/// # Safety
/// `ps` must be an initialised plan state of this kind. If `core_alive`, its memory contexts must be live.
#[inline(always)]
unsafe fn index_scan(
    ps: *mut PlanState,
    kind: NodeKind,
    instr: &NodeInstrumentation,
    core_alive: bool,
) -> SimpleFacts {
    // SAFETY: the caller's promise is the same.
    let searches = unsafe { compat::index_searches(ps, core_alive) };
    simple(
        kind,
        [instr.nfiltered1, instr.nfiltered2],
        instr.ntuples2,
        searches,
    )
}

/// Returns facts that are in sums alone.
fn sums<const N: usize>(kind: NodeKind, values: [u64; N]) -> NodeFacts {
    let mut sums = [0; SUMS];
    sums[..N].copy_from_slice(&values);
    NodeFacts {
        kind,
        sums,
        ..NodeFacts::default()
    }
}

/// Returns the facts of the nodes that short statements seldom have.
///
/// # Safety
/// `ps` must be an initialised plan state. If `core_alive`, its memory contexts must be live.
#[inline(never)]
unsafe fn others(ps: *mut PlanState, instr: &NodeInstrumentation, core_alive: bool) -> NodeFacts {
    let filter = filter(instr).into();
    // SAFETY: the plan state is initialised, and with `core_alive` its memory contexts are live, by the
    // caller's promise. Each cast follows the tag.
    unsafe {
        match tree::tag(ps) {
            NodeTag::T_BitmapIndexScanState => bitmap_index_scan(ps, core_alive).into(),
            NodeTag::T_BitmapHeapScanState => {
                let mut facts = bitmap_heap_scan(ps, instr, core_alive).into();
                if core_alive {
                    add_scan_io(ps, &mut facts, Whose::All);
                }
                facts
            }
            NodeTag::T_SeqScanState | NodeTag::T_TidRangeScanState => table_scan(ps, filter, core_alive),
            // The plan may be freed too.
            NodeTag::T_GatherState if core_alive => {
                let planned = (*(*ps).plan.cast::<pg_sys::Gather>()).num_workers;
                let launched = (*ps.cast::<pg_sys::GatherState>()).nworkers_launched;
                gather(instr, planned, launched)
            }
            NodeTag::T_GatherMergeState if core_alive => {
                let planned = (*(*ps).plan.cast::<pg_sys::GatherMerge>()).num_workers;
                let launched = (*ps.cast::<pg_sys::GatherMergeState>()).nworkers_launched;
                gather(instr, planned, launched)
            }
            NodeTag::T_AppendState if core_alive => {
                let all = (*(*ps).plan.cast::<pg_sys::Append>()).appendplans;
                append(all, (*ps.cast::<pg_sys::AppendState>()).as_nplans)
            }
            NodeTag::T_MergeAppendState if core_alive => {
                let all = (*(*ps).plan.cast::<pg_sys::MergeAppend>()).mergeplans;
                append(all, (*ps.cast::<pg_sys::MergeAppendState>()).ms_nplans)
            }
            NodeTag::T_SortState if core_alive => workarea::sort(ps.cast(), Whose::All),
            NodeTag::T_IncrementalSortState => workarea::incremental_sort(ps.cast(), core_alive, Whose::All),
            NodeTag::T_HashState if core_alive => workarea::hash(ps.cast()),
            NodeTag::T_MemoizeState => workarea::memoize(ps.cast(), core_alive, Whose::All),
            NodeTag::T_AggState => workarea::aggregate(ps.cast(), filter, core_alive, Whose::All),
            NodeTag::T_CteScanState
            | NodeTag::T_TableFuncScanState
            | NodeTag::T_MaterialState
            | NodeTag::T_RecursiveUnionState
            | NodeTag::T_WindowAggState => storage(ps, filter, core_alive),
            NodeTag::T_SampleScanState
            | NodeTag::T_TidScanState
            | NodeTag::T_SubqueryScanState
            | NodeTag::T_FunctionScanState
            | NodeTag::T_ValuesScanState
            | NodeTag::T_NamedTuplestoreScanState
            | NodeTag::T_WorkTableScanState
            | NodeTag::T_ForeignScanState
            | NodeTag::T_CustomScanState
            | NodeTag::T_GroupState => filter,
            _ => NodeFacts::default(),
        }
    }
}

/// Returns the facts of a scan of a bitmap or of an index for one, unless it is known how it read ahead.
///
/// # Safety
/// The same as for [`read`].
#[inline(never)]
unsafe fn of_bitmap(
    ps: *mut PlanState,
    instr: &NodeInstrumentation,
    core_alive: bool,
) -> Option<SimpleFacts> {
    // SAFETY: the caller's promise is the same, and each function gets a plan state of its kind.
    unsafe {
        match tree::tag(ps) {
            NodeTag::T_BitmapIndexScanState => Some(bitmap_index_scan(ps, core_alive)),
            NodeTag::T_BitmapHeapScanState if compat::COUNT_SCAN_IO.is_none() => {
                Some(bitmap_heap_scan(ps, instr, core_alive))
            }
            _ => None,
        }
    }
}

/// Returns the facts of a bitmap index scan.
///
/// # Safety
/// `ps` must be an initialised plan state of this kind. If `core_alive`, its memory contexts must be live.
unsafe fn bitmap_index_scan(ps: *mut PlanState, core_alive: bool) -> SimpleFacts {
    // SAFETY: the caller's promise is the same.
    let searches = unsafe { compat::index_searches(ps, core_alive) };
    simple(NodeKind::BitmapIndexScan, [0.0; 2], 0.0, searches)
}

/// Returns the facts of a bitmap heap scan, without how it read ahead.
///
/// # Safety
/// `ps` must be an initialised plan state of this kind. If `core_alive`, its memory contexts must be live.
unsafe fn bitmap_heap_scan(ps: *mut PlanState, instr: &NodeInstrumentation, core_alive: bool) -> SimpleFacts {
    // SAFETY: the caller's promise is the same.
    let [exact, lossy] = unsafe { heap_blocks(ps.cast(), core_alive, Whose::All) };
    let removed = [count(instr.nfiltered1), count(instr.nfiltered2)];
    SimpleFacts {
        kind: NodeKind::BitmapHeapScan,
        sums: [removed[0], removed[1], exact, lossy],
    }
}

/// Returns how many blocks a bitmap heap scan read for exact and for lossy pages of the bitmap.
///
/// # Safety
/// `state` must be an initialised plan state of this type. If `core_alive`, its memory contexts must be live.
unsafe fn heap_blocks(state: *mut pg_sys::BitmapHeapScanState, core_alive: bool, whose: Whose) -> [u64; 2] {
    // SAFETY: the caller promises the same.
    let of_worker = |n| unsafe { compat::worker_heap_blocks(state, n) };
    if let Whose::Worker(n) = whose {
        return of_worker(n).unwrap_or_default();
    }
    // SAFETY: the caller promises the same.
    let mut blocks = unsafe { compat::heap_blocks(state) };
    if core_alive && whose == Whose::All {
        for [exact, lossy] in (0..).map_while(of_worker) {
            blocks[0] += exact;
            blocks[1] += lossy;
        }
    }
    blocks
}

/// Returns the facts of a sequential or TID range scan, whose rows `filter` counts.
///
/// # Safety
/// `ps` must be an initialised plan state of such a scan. If `core_alive`, its memory contexts must be live.
#[inline(always)]
unsafe fn table_scan(ps: *mut PlanState, mut filter: NodeFacts, core_alive: bool) -> NodeFacts {
    if compat::COUNT_SCAN_IO.is_some() {
        filter.kind = NodeKind::TableScan;
        if core_alive {
            // SAFETY: the memory contexts are live, by the caller's promise.
            unsafe { add_scan_io(ps, &mut filter, Whose::All) };
        }
    }
    filter
}

/// Adds how a scan of a table read ahead.
///
/// # Safety
/// `ps` must be an initialised plan state of such a scan, whose memory contexts are live.
unsafe fn add_scan_io(ps: *mut PlanState, facts: &mut NodeFacts, whose: Whose) {
    // SAFETY: the caller promises the same.
    let of_worker = |n| unsafe { compat::worker_scan_io(ps, n) };
    if whose.has_leader() {
        // SAFETY: the caller promises the same.
        let own = unsafe { compat::scan_io(ps) };
        own.iter().for_each(|io| facts.add_scan_io(io));
    }
    match whose {
        Whose::Leader => {}
        Whose::Worker(n) => of_worker(n).iter().for_each(|io| facts.add_scan_io(io)),
        Whose::All => (0..).map_while(of_worker).for_each(|io| facts.add_scan_io(&io)),
    }
}

/// Returns the facts of a node that EXPLAIN shows of each process by itself, for one of them. There are none
/// of other nodes.
///
/// # Safety
/// `ps` must be an initialised plan state, whose memory contexts are live.
pub(super) unsafe fn of_process(ps: *mut PlanState, whose: Whose) -> NodeFacts {
    // SAFETY: the plan state and its memory contexts are live by the caller's promise. Each cast follows the
    // tag.
    unsafe {
        match tree::tag(ps) {
            NodeTag::T_SortState => workarea::sort(ps.cast(), whose),
            NodeTag::T_IncrementalSortState => workarea::incremental_sort(ps.cast(), true, whose),
            NodeTag::T_MemoizeState => workarea::memoize(ps.cast(), true, whose),
            NodeTag::T_AggState => workarea::aggregate(ps.cast(), NodeFacts::default(), true, whose),
            NodeTag::T_BitmapHeapScanState => {
                let [exact, lossy] = heap_blocks(ps.cast(), true, whose);
                let mut facts = sums(NodeKind::BitmapHeapScan, [0, 0, exact, lossy]);
                add_scan_io(ps, &mut facts, whose);
                facts
            }
            NodeTag::T_SeqScanState | NodeTag::T_TidRangeScanState => {
                let mut facts = sums(NodeKind::TableScan, []);
                add_scan_io(ps, &mut facts, whose);
                facts
            }
            _ => NodeFacts::default(),
        }
    }
}

fn gather(instr: &NodeInstrumentation, planned: i32, launched: i32) -> NodeFacts {
    let workers = |number: i32| u64::try_from(number).unwrap_or(0);
    let values = [count(instr.nfiltered1), 0, workers(planned), workers(launched)];
    sums(NodeKind::Gather, values)
}

/// Returns how many inputs of an append were removed before it ran.
///
/// # Safety
/// `all` must be null or a live list.
unsafe fn append(all: *const pg_sys::List, left: i32) -> NodeFacts {
    // SAFETY: the list is live by the caller's promise.
    let all = unsafe { all.as_ref() }.map_or(0, |all| all.length);
    sums(
        NodeKind::Append,
        [0, 0, u64::try_from(all - left).unwrap_or(0), 0],
    )
}

/// Returns what a node changed. PostgreSQL counts changed rows only for the node that the statement's result
/// is about.
///
/// # Safety
/// `state` must be an initialised plan state of this type.
#[inline(never)]
unsafe fn modify_table(state: *mut pg_sys::ModifyTableState, instr: &NodeInstrumentation) -> SimpleFacts {
    // SAFETY: the state, its plan and its executor state are live by the caller's promise.
    unsafe {
        let node = (*state).ps.plan.cast::<pg_sys::ModifyTable>();
        let changed = || (*(*state).ps.state).es_processed;
        let changes = |kind, sums| SimpleFacts { kind, sums };
        match (*state).operation {
            CmdType::CMD_MERGE => {
                let merged = [
                    (*state).mt_merge_inserted,
                    (*state).mt_merge_updated,
                    (*state).mt_merge_deleted,
                    0.0,
                ];
                changes(NodeKind::Merge, merged.map(count))
            }
            CmdType::CMD_INSERT if (*node).onConflictAction != pg_sys::OnConflictAction::ONCONFLICT_NONE => {
                let removed = count(instr.nfiltered1);
                changes(NodeKind::InsertOnConflict, [removed, 0, 0, count(instr.ntuples2)])
            }
            _ if !(*state).canSetTag => SimpleFacts::default(),
            CmdType::CMD_INSERT => changes(NodeKind::Insert, [changed(), 0, 0, 0]),
            CmdType::CMD_UPDATE => changes(NodeKind::Update, [0, changed(), 0, 0]),
            CmdType::CMD_DELETE => changes(NodeKind::Delete, [0, 0, changed(), 0]),
            _ => SimpleFacts::default(),
        }
    }
}

/// Returns the facts of a node that stores rows. PostgreSQL knows how much it stored from 18 on.
///
/// # Safety
/// `ps` must be an initialised plan state of such a node. If `core_alive`, its memory contexts must be live.
unsafe fn storage(ps: *mut PlanState, filter: NodeFacts, core_alive: bool) -> NodeFacts {
    let filter = NodeFacts {
        kind: compat::STORAGE,
        ..filter
    };
    // SAFETY: the memory contexts are live with `core_alive`, by the caller's promise.
    let Some((methods, bytes)) = core_alive.then(|| unsafe { compat::storage(ps) }).flatten() else {
        return filter;
    };
    let mut peaks = [0; PEAKS];
    peaks[0] = workarea::kb(bytes);
    NodeFacts {
        methods,
        peaks,
        ..filter
    }
}
