//! Reads what PostgreSQL knows of a node besides rows, time and blocks, when a statement has ended. The table
//! in `rowsource_core::model::facts` says which slot holds what.
//!
//! The parts of parallel workers are added to the leader's. Many facts lie in the node's own state. Others
//! lie in memory that may already be freed after an error: they are read only of a `whole` node.

use super::workarea::{self, Whose};
use crate::pg::compat::{self, NodeInstrumentation};
use crate::pg::handles::{Bare, Handle, PlanStateRef};
use pgrx::pg_sys::{self, CmdType, NodeTag, PlanState};
use rowsource_core::model::facts::{
    HEAP_FETCHES, INDEX_SEARCHES, PEAKS, REMOVED_BY_FILTER, REMOVED_OTHERWISE, SIMPLE_SUMS, SUMS, SimpleFacts,
};
use rowsource_core::model::{NodeFacts, NodeKind};

/// Returns the facts of a node. `instr` is its instrumentation.
#[inline(always)]
pub fn read(
    ps: Bare<PlanState>,
    whole: Option<PlanStateRef>,
    instr: Option<&NodeInstrumentation>,
) -> NodeFacts {
    let Some(instr) = instr else {
        return NodeFacts::default();
    };
    match frequent(ps, whole, instr) {
        Some(facts) => facts.into(),
        None => others(ps, whole, instr),
    }
}

/// Returns the same, if all of it is in a few sums.
#[inline(always)]
pub fn read_simple(
    ps: Bare<PlanState>,
    whole: Option<PlanStateRef>,
    instr: &NodeInstrumentation,
) -> Option<SimpleFacts> {
    match frequent(ps, whole, instr) {
        Some(facts) => Some(facts),
        None => of_bitmap(ps, whole, instr).or_else(|| others(ps, whole, instr).simple()),
    }
}

/// Returns the facts of the nodes that short statements often have.
#[inline(always)]
fn frequent(
    ps: Bare<PlanState>,
    whole: Option<PlanStateRef>,
    instr: &NodeInstrumentation,
) -> Option<SimpleFacts> {
    Some(match ps.tag() {
        NodeTag::T_IndexScanState => index_scan(ps, whole, NodeKind::IndexScan, instr),
        NodeTag::T_IndexOnlyScanState => index_scan(ps, whole, NodeKind::IndexOnlyScan, instr),
        NodeTag::T_SeqScanState if compat::COUNT_SCAN_IO.is_none() => filter(instr),
        NodeTag::T_ResultState => filter(instr),
        NodeTag::T_NestLoopState | NodeTag::T_MergeJoinState | NodeTag::T_HashJoinState => {
            simple(NodeKind::Join, [instr.nfiltered2, instr.nfiltered1], 0.0, 0)
        }
        NodeTag::T_ModifyTableState => return whole.map(|whole| modify_table(whole, instr)),
        // These have no facts.
        NodeTag::T_LimitState
        | NodeTag::T_LockRowsState
        | NodeTag::T_ProjectSetState
        | NodeTag::T_UniqueState => SimpleFacts::default(),
        _ => return None,
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
#[inline(always)]
fn index_scan(
    ps: Bare<PlanState>,
    whole: Option<PlanStateRef>,
    kind: NodeKind,
    instr: &NodeInstrumentation,
) -> SimpleFacts {
    simple(
        kind,
        [instr.nfiltered1, instr.nfiltered2],
        instr.ntuples2,
        compat::index_searches(ps, whole),
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
#[inline(never)]
fn others(ps: Bare<PlanState>, whole: Option<PlanStateRef>, instr: &NodeInstrumentation) -> NodeFacts {
    let filter = filter(instr).into();
    match (ps.tag(), whole) {
        (NodeTag::T_BitmapIndexScanState, _) => bitmap_index_scan(ps, whole).into(),
        (NodeTag::T_BitmapHeapScanState, _) => {
            let mut facts = bitmap_heap_scan(ps, whole, instr).into();
            if let Some(whole) = whole {
                add_scan_io(whole, &mut facts, Whose::All);
            }
            facts
        }
        (NodeTag::T_SeqScanState | NodeTag::T_TidRangeScanState, _) => table_scan(whole, filter),
        // The plan may be freed too.
        (NodeTag::T_GatherState, Some(whole)) => {
            let planned = whole.plan().cast::<pg_sys::Gather>().num_workers;
            let planned = wanted(whole, planned);
            gather(instr, planned, ps.cast::<pg_sys::GatherState>().nworkers_launched)
        }
        (NodeTag::T_GatherMergeState, Some(whole)) => {
            let planned = whole.plan().cast::<pg_sys::GatherMerge>().num_workers;
            let planned = wanted(whole, planned);
            gather(
                instr,
                planned,
                ps.cast::<pg_sys::GatherMergeState>().nworkers_launched,
            )
        }
        (NodeTag::T_AppendState, Some(whole)) => {
            let plan = whole.plan().cast::<pg_sys::Append>();
            let all = plan.follow(|append| &append.appendplans);
            append(all, ps.cast::<pg_sys::AppendState>().as_nplans)
        }
        (NodeTag::T_MergeAppendState, Some(whole)) => {
            let plan = whole.plan().cast::<pg_sys::MergeAppend>();
            let all = plan.follow(|append| &append.mergeplans);
            append(all, ps.cast::<pg_sys::MergeAppendState>().ms_nplans)
        }
        (NodeTag::T_SortState, Some(whole)) => workarea::sort(whole.cast(), Whose::All),
        (NodeTag::T_IncrementalSortState, _) => workarea::incremental_sort(ps, whole, Whose::All),
        (NodeTag::T_HashState, Some(whole)) => workarea::hash(whole.cast()),
        (NodeTag::T_MemoizeState, _) => workarea::memoize(ps, whole, Whose::All),
        (NodeTag::T_AggState, _) => workarea::aggregate(ps, whole, filter, Whose::All),
        (
            NodeTag::T_CteScanState
            | NodeTag::T_TableFuncScanState
            | NodeTag::T_MaterialState
            | NodeTag::T_RecursiveUnionState
            | NodeTag::T_WindowAggState,
            _,
        ) => storage(whole, filter),
        (
            NodeTag::T_SampleScanState
            | NodeTag::T_TidScanState
            | NodeTag::T_SubqueryScanState
            | NodeTag::T_FunctionScanState
            | NodeTag::T_ValuesScanState
            | NodeTag::T_NamedTuplestoreScanState
            | NodeTag::T_WorkTableScanState
            | NodeTag::T_ForeignScanState
            | NodeTag::T_CustomScanState
            | NodeTag::T_GroupState,
            _,
        ) => filter,
        _ => NodeFacts::default(),
    }
}

/// Returns the facts of a scan of a bitmap or of an index for one, unless it is known how it read ahead.
#[inline(never)]
fn of_bitmap(
    ps: Bare<PlanState>,
    whole: Option<PlanStateRef>,
    instr: &NodeInstrumentation,
) -> Option<SimpleFacts> {
    match ps.tag() {
        NodeTag::T_BitmapIndexScanState => Some(bitmap_index_scan(ps, whole)),
        NodeTag::T_BitmapHeapScanState if compat::COUNT_SCAN_IO.is_none() => {
            Some(bitmap_heap_scan(ps, whole, instr))
        }
        _ => None,
    }
}

/// Returns the facts of a bitmap index scan.
fn bitmap_index_scan(ps: Bare<PlanState>, whole: Option<PlanStateRef>) -> SimpleFacts {
    let searches = compat::index_searches(ps, whole);
    simple(NodeKind::BitmapIndexScan, [0.0; 2], 0.0, searches)
}

/// Returns the facts of a bitmap heap scan, without how it read ahead.
fn bitmap_heap_scan(
    ps: Bare<PlanState>,
    whole: Option<PlanStateRef>,
    instr: &NodeInstrumentation,
) -> SimpleFacts {
    let [exact, lossy] = heap_blocks(ps, whole, Whose::All);
    let removed = [count(instr.nfiltered1), count(instr.nfiltered2)];
    SimpleFacts {
        kind: NodeKind::BitmapHeapScan,
        sums: [removed[0], removed[1], exact, lossy],
    }
}

/// Returns how many blocks a bitmap heap scan read for exact and for lossy pages of the bitmap.
fn heap_blocks(ps: Bare<PlanState>, whole: Option<PlanStateRef>, whose: Whose) -> [u64; 2] {
    let of_worker = |n| compat::worker_heap_blocks(whole?.cast(), n);
    if let Whose::Worker(n) = whose {
        return of_worker(n).unwrap_or_default();
    }
    let mut blocks = compat::heap_blocks(ps.cast());
    if whose == Whose::All {
        for [exact, lossy] in (0..).map_while(of_worker) {
            blocks[0] += exact;
            blocks[1] += lossy;
        }
    }
    blocks
}

/// Returns the facts of a sequential or TID range scan, whose rows `filter` counts.
#[inline(always)]
fn table_scan(whole: Option<PlanStateRef>, mut filter: NodeFacts) -> NodeFacts {
    if compat::COUNT_SCAN_IO.is_some() {
        filter.kind = NodeKind::TableScan;
        if let Some(whole) = whole {
            add_scan_io(whole, &mut filter, Whose::All);
        }
    }
    filter
}

/// Adds how a scan of a table read ahead.
fn add_scan_io(ps: PlanStateRef, facts: &mut NodeFacts, whose: Whose) {
    let of_worker = |n| compat::worker_scan_io(ps, n);
    if whose.has_leader() {
        compat::scan_io(ps).iter().for_each(|io| facts.add_scan_io(io));
    }
    match whose {
        Whose::Leader => {}
        Whose::Worker(n) => of_worker(n).iter().for_each(|io| facts.add_scan_io(io)),
        Whose::All => (0..).map_while(of_worker).for_each(|io| facts.add_scan_io(&io)),
    }
}

/// Returns the facts of a node that EXPLAIN shows of each process by itself, for one of them. There are none
/// of other nodes.
pub(super) fn of_process(ps: PlanStateRef, whose: Whose) -> NodeFacts {
    let (bare, whole) = (ps.into(), Some(ps));
    match ps.tag() {
        NodeTag::T_SortState => workarea::sort(ps.cast(), whose),
        NodeTag::T_IncrementalSortState => workarea::incremental_sort(bare, whole, whose),
        NodeTag::T_MemoizeState => workarea::memoize(bare, whole, whose),
        NodeTag::T_AggState => workarea::aggregate(bare, whole, NodeFacts::default(), whose),
        NodeTag::T_BitmapHeapScanState => {
            let [exact, lossy] = heap_blocks(bare, whole, whose);
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

/// Returns how many of the planned workers the execution wanted: none if it may have stopped early, as a
/// cursor's, or one that a client asks for a part of its rows. PostgreSQL runs these without workers.
fn wanted(whole: PlanStateRef, planned: i32) -> i32 {
    match whole.estate().es_use_parallel_mode {
        true => planned,
        false => 0,
    }
}

fn gather(instr: &NodeInstrumentation, planned: i32, launched: i32) -> NodeFacts {
    let workers = |number: i32| u64::try_from(number).unwrap_or(0);
    let values = [count(instr.nfiltered1), 0, workers(planned), workers(launched)];
    sums(NodeKind::Gather, values)
}

/// Returns how many inputs of an append were removed before it ran.
fn append(all: Option<Handle<pg_sys::List>>, left: i32) -> NodeFacts {
    let all = all.map_or(0, |all| all.length);
    sums(
        NodeKind::Append,
        [0, 0, u64::try_from(all - left).unwrap_or(0), 0],
    )
}

/// Returns what a node changed. PostgreSQL counts changed rows only for the node that the statement's result
/// is about.
#[inline(never)]
fn modify_table(ps: PlanStateRef, instr: &NodeInstrumentation) -> SimpleFacts {
    let state = ps.cast::<pg_sys::ModifyTableState>();
    let on_conflict = || ps.plan().cast::<pg_sys::ModifyTable>().onConflictAction;
    let changed = || ps.estate().es_processed;
    let changes = |kind, sums| SimpleFacts { kind, sums };
    match state.operation {
        CmdType::CMD_MERGE => {
            let merged = [
                state.mt_merge_inserted,
                state.mt_merge_updated,
                state.mt_merge_deleted,
                0.0,
            ];
            changes(NodeKind::Merge, merged.map(count))
        }
        CmdType::CMD_INSERT if on_conflict() != pg_sys::OnConflictAction::ONCONFLICT_NONE => {
            let removed = count(instr.nfiltered1);
            changes(NodeKind::InsertOnConflict, [removed, 0, 0, count(instr.ntuples2)])
        }
        _ if !state.canSetTag => SimpleFacts::default(),
        CmdType::CMD_INSERT => changes(NodeKind::Insert, [changed(), 0, 0, 0]),
        CmdType::CMD_UPDATE => changes(NodeKind::Update, [0, changed(), 0, 0]),
        CmdType::CMD_DELETE => changes(NodeKind::Delete, [0, 0, changed(), 0]),
        _ => SimpleFacts::default(),
    }
}

/// Returns the facts of a node that stores rows. PostgreSQL knows how much it stored from 18 on.
fn storage(whole: Option<PlanStateRef>, filter: NodeFacts) -> NodeFacts {
    let filter = NodeFacts {
        kind: compat::STORAGE,
        ..filter
    };
    let Some((methods, bytes)) = whole.and_then(compat::storage) else {
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
