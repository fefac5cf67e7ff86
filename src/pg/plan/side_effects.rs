//! Decides when the wrapper may check fewer buffer counters, or check them less often, and still charge every
//! block.
//!
//! A statement that writes nothing, uses no temporary table and calls no volatile function changes only the
//! counters of shared buffers and work files. If queries inside a function change others, these are charged
//! when the run of those queries ends.
//!
//! A plain aggregate that only counts, sums or compares columns of fixed length touches no buffers and cannot
//! fail between two calls of the scan below it. So the wrapper does only half the work for each call of the
//! scan, where its cost matters most. Expressions around the aggregates may only consist of immutable
//! built-in functions on types of fixed length: these read no catalog, no table and no TOAST.

use super::tree::{list, tag};
use crate::pg::server;
use pgrx::pg_sys::{self, NodeTag, Oid, PlanState};

/// Aggregates that neither fail nor read catalogs: count(any), count(*), and avg, sum, max and min of
/// integers, oids, dates and timestamps.
const NEVER_FAILING: [u32; 22] = [
    2147, 2803, 2100, 2101, 2102, 2107, 2108, 2109, 2115, 2116, 2117, 2118, 2122, 2126, 2127, 2131, 2132,
    2133, 2134, 2138, 2142, 2143,
];
/// Cheaper plans are not checked, because the check would cost more than it saves.
const MIN_CHECKED_COST: f64 = 1000.0;
/// Objects with smaller OIDs belong to PostgreSQL.
const FIRST_GENBKI_OBJECT_ID: u32 = 10_000;

/// Returns whether the statement only reads, and reads no temporary tables. Returns false for cheap
/// statements without a check.
///
/// # Safety
/// `query` must be started, and `nodes` must be all its plan states.
pub unsafe fn is_read_only(
    query: *mut pg_sys::QueryDesc,
    nodes: impl Iterator<Item = *mut PlanState>,
) -> bool {
    // SAFETY: the query is started by the caller's promise, so its plan, range table and receiver are live.
    unsafe {
        let plan = (*query).plannedstmt;
        (*query).operation == pg_sys::CmdType::CMD_SELECT
            && (*(*(*query).planstate).plan).total_cost > MIN_CHECKED_COST
            && !(*plan).hasModifyingCTE
            && (*plan).rowMarks.is_null()
            && (*(*query).dest).mydest != pg_sys::CommandDest::DestIntoRel
            && list::<pg_sys::RangeTblEntry>((*plan).rtable).all(|entry| {
                (*entry).rtekind != pg_sys::RTEKind::RTE_RELATION
                    || pg_sys::get_rel_persistence((*entry).relid)
                        != pg_sys::RELPERSISTENCE_TEMP as std::ffi::c_char
            })
            && nodes.into_iter().all(|ps| calls_nothing_volatile((*ps).plan))
    }
}

/// Returns whether no expression of a plan node calls a volatile function. Returns false for node types that
/// are not listed here.
///
/// # Safety
/// * `plan` must point to a live plan node, whose tag tells its type.
/// * May raise.
unsafe fn calls_nothing_volatile(plan: *mut pg_sys::Plan) -> bool {
    // SAFETY: the node is live by the caller's promise, and of the type that its tag says.
    unsafe {
        let none: *mut pg_sys::Node = std::ptr::null_mut();
        let own: [*mut pg_sys::Node; 2] = match tag(plan) {
            NodeTag::T_NestLoop | NodeTag::T_MergeJoin | NodeTag::T_HashJoin => {
                [(*plan.cast::<pg_sys::Join>()).joinqual.cast(), none]
            }
            NodeTag::T_Result => [(*plan.cast::<pg_sys::Result>()).resconstantqual, none],
            NodeTag::T_FunctionScan => [(*plan.cast::<pg_sys::FunctionScan>()).functions.cast(), none],
            NodeTag::T_ValuesScan => [(*plan.cast::<pg_sys::ValuesScan>()).values_lists.cast(), none],
            NodeTag::T_Limit => {
                let limit = plan.cast::<pg_sys::Limit>();
                [(*limit).limitOffset, (*limit).limitCount]
            }
            NodeTag::T_SeqScan
            | NodeTag::T_IndexScan
            | NodeTag::T_IndexOnlyScan
            | NodeTag::T_BitmapHeapScan
            | NodeTag::T_BitmapIndexScan
            | NodeTag::T_BitmapAnd
            | NodeTag::T_BitmapOr
            | NodeTag::T_SubqueryScan
            | NodeTag::T_CteScan
            | NodeTag::T_WorkTableScan
            | NodeTag::T_RecursiveUnion
            | NodeTag::T_Append
            | NodeTag::T_MergeAppend
            | NodeTag::T_Material
            | NodeTag::T_Memoize
            | NodeTag::T_Sort
            | NodeTag::T_IncrementalSort
            | NodeTag::T_Group
            | NodeTag::T_Agg
            | NodeTag::T_Unique
            | NodeTag::T_SetOp
            | NodeTag::T_Hash
            | NodeTag::T_Gather
            | NodeTag::T_GatherMerge => [none, none],
            _ => return false,
        };
        own.into_iter()
            .chain([(*plan).targetlist.cast(), (*plan).qual.cast()])
            .all(|expressions| expressions.is_null() || !pg_sys::contain_volatile_functions(expressions))
    }
}

/// Returns whether a node reads each start of its input to the end, within one of its own calls.
///
/// # Safety
/// `ps` must point to an initialised plan state.
#[inline(always)]
pub unsafe fn reads_to_the_end(ps: *mut PlanState) -> bool {
    // SAFETY: the plan state is initialised by the caller's promise, and of the type that its tag says.
    unsafe {
        match tag(ps) {
            NodeTag::T_SortState | NodeTag::T_HashState => true,
            NodeTag::T_AggState => {
                let agg = (*ps).plan.cast::<pg_sys::Agg>();
                (*agg).groupingSets.is_null()
                    && matches!(
                        (*agg).aggstrategy,
                        pg_sys::AggStrategy::AGG_PLAIN | pg_sys::AggStrategy::AGG_HASHED
                    )
            }
            _ => false,
        }
    }
}

/// Returns whether a node of a statement that only reads can use work files itself. Returns true for node
/// types that are not listed here: among them a merge join, which has its inner sort read again what it has
/// read.
///
/// # Safety
/// `ps` must point to an initialised plan state of a started query.
pub unsafe fn may_use_files(ps: *mut PlanState) -> bool {
    // SAFETY: the plan state is initialised by the caller's promise, and of the type that its tag says. Its
    // query is started.
    unsafe {
        // The planner lists the functions of a plan that are not built-in. Built-in ones use work files only
        // to return a set, or as aggregates that sort. A parallel worker does not get that list.
        if server::is_parallel_worker() || !(*(*(*ps).state).es_plannedstmt).invalItems.is_null() {
            return true;
        }
        match tag(ps) {
            NodeTag::T_SeqScanState
            | NodeTag::T_IndexScanState
            | NodeTag::T_IndexOnlyScanState
            | NodeTag::T_BitmapHeapScanState
            | NodeTag::T_BitmapIndexScanState
            | NodeTag::T_BitmapAndState
            | NodeTag::T_BitmapOrState
            | NodeTag::T_ValuesScanState
            | NodeTag::T_ResultState
            | NodeTag::T_SubqueryScanState
            | NodeTag::T_NestLoopState
            | NodeTag::T_AppendState
            | NodeTag::T_MergeAppendState
            | NodeTag::T_LimitState
            | NodeTag::T_GroupState
            | NodeTag::T_UniqueState => false,
            NodeTag::T_AggState => {
                let agg = ps.cast::<pg_sys::AggState>();
                !matches!(
                    (*agg).aggstrategy,
                    pg_sys::AggStrategy::AGG_PLAIN | pg_sys::AggStrategy::AGG_SORTED
                ) || list::<pg_sys::Aggref>((*agg).aggs).any(|agg| {
                    (*agg).aggkind != pg_sys::AGGKIND_NORMAL as std::ffi::c_char
                        || !(*agg).aggorder.is_null()
                        || !(*agg).aggdistinct.is_null()
                }) || !(*(*ps).plan.cast::<pg_sys::Agg>()).groupingSets.is_null()
            }
            _ => true,
        }
    }
}

/// Returns whether `aggregate` is a plain aggregate that only counts or sums what `scan` returns.
///
/// # Safety
/// Both must be initialised plan states.
pub unsafe fn is_plain_aggregate_over_scan(aggregate: *mut PlanState, scan: *mut PlanState) -> bool {
    // SAFETY: both are initialised plan states by the caller's promise, of the types that their tags say.
    unsafe {
        matches!(
            tag(scan),
            NodeTag::T_SeqScanState | NodeTag::T_IndexScanState | NodeTag::T_IndexOnlyScanState
        ) && tag(aggregate) == NodeTag::T_AggState
            // The scan might run an InitPlan, which reads the clock.
            && (*(*(*aggregate).state).es_plannedstmt).subplans.is_null()
            && (*(*aggregate).plan.cast::<pg_sys::Agg>()).aggstrategy == pg_sys::AggStrategy::AGG_PLAIN
            && [scan, aggregate]
                .into_iter()
                .all(|ps| (*ps).initPlan.is_null() && (*ps).subPlan.is_null())
            && is_free_of_side_effects((*(*aggregate).plan).targetlist.cast())
            && is_free_of_side_effects((*(*aggregate).plan).qual.cast())
    }
}

/// Returns whether a scan computes keys of an index before its first row.
///
/// # Safety
/// `scan` must be an initialised plan state.
pub unsafe fn has_runtime_keys(scan: *mut PlanState) -> bool {
    // SAFETY: the plan state is initialised by the caller's promise, and of the type that its tag says.
    unsafe {
        match tag(scan) {
            NodeTag::T_IndexScanState => (*scan.cast::<pg_sys::IndexScanState>()).iss_NumRuntimeKeys > 0,
            NodeTag::T_IndexOnlyScanState => {
                (*scan.cast::<pg_sys::IndexOnlyScanState>()).ioss_NumRuntimeKeys > 0
            }
            _ => false,
        }
    }
}

/// Returns whether no expression of a list has a side effect.
///
/// # Safety
/// `nodes` must be null or a List of live expressions. May raise.
unsafe fn are_all_free_of_side_effects(nodes: *const pg_sys::List) -> bool {
    // SAFETY: the pointer is null or points to a List of live expressions, by the caller's promise.
    unsafe { list::<pg_sys::Node>(nodes).all(|node| is_free_of_side_effects(node)) }
}

/// Returns whether an expression touches no buffers and cannot fail.
///
/// # Safety
/// `node` must be null, an expression of a live plan, or a List of them. May raise.
unsafe fn is_free_of_side_effects(node: *mut pg_sys::Node) -> bool {
    if node.is_null() {
        return true;
    }
    // SAFETY: the node is live by the caller's promise, and of the type that its tag says.
    unsafe {
        match tag(node) {
            NodeTag::T_List => are_all_free_of_side_effects(node.cast()),
            NodeTag::T_TargetEntry => {
                is_free_of_side_effects((*node.cast::<pg_sys::TargetEntry>()).expr.cast())
            }
            NodeTag::T_Var | NodeTag::T_Const => true,
            NodeTag::T_NullTest => is_free_of_side_effects((*node.cast::<pg_sys::NullTest>()).arg.cast()),
            NodeTag::T_BoolExpr => are_all_free_of_side_effects((*node.cast::<pg_sys::BoolExpr>()).args),
            NodeTag::T_OpExpr => {
                let op = node.cast::<pg_sys::OpExpr>();
                is_immutable_builtin((*op).opfuncid)
                    && have_fixed_length((*op).args)
                    && are_all_free_of_side_effects((*op).args)
            }
            NodeTag::T_FuncExpr => {
                let function = node.cast::<pg_sys::FuncExpr>();
                is_immutable_builtin((*function).funcid)
                    && have_fixed_length((*function).args)
                    && are_all_free_of_side_effects((*function).args)
            }
            NodeTag::T_Aggref => {
                let agg = node.cast::<pg_sys::Aggref>();
                let number = (*agg).aggfnoid.to_u32();
                (*agg).aggorder.is_null()
                    && (*agg).aggdistinct.is_null()
                    && (*agg).aggdirectargs.is_null()
                    && (*agg).aggfilter.is_null()
                    && NEVER_FAILING.contains(&number)
                    && list::<pg_sys::TargetEntry>((*agg).args)
                        .all(|entry| tag((*entry).expr) == NodeTag::T_Var)
            }
            _ => false,
        }
    }
}

/// Returns whether a function is built-in and immutable. Such a function reads no catalogs.
fn is_immutable_builtin(function: Oid) -> bool {
    // SAFETY: the function accepts any number. An unknown one raises an error.
    unsafe {
        let number = function.to_u32();
        number != 0
            && number < FIRST_GENBKI_OBJECT_ID
            && pg_sys::func_volatile(function) == pg_sys::PROVOLATILE_IMMUTABLE as std::ffi::c_char
    }
}

/// Returns whether all arguments are of built-in types of fixed length.
///
/// # Safety
/// `args` must be null or a List of live expressions. May raise.
unsafe fn have_fixed_length(args: *const pg_sys::List) -> bool {
    // SAFETY: the pointer is null or points to a List of live expressions, by the caller's promise.
    unsafe { list::<pg_sys::Node>(args).all(|arg| is_fixed_length(pg_sys::exprType(arg))) }
}

/// Returns whether a type is a built-in base type of fixed length. Functions of enums, domains and records
/// read catalogs.
fn is_fixed_length(oid: Oid) -> bool {
    // SAFETY: the functions accept any number. For an unknown type the length is 0.
    unsafe {
        oid.to_u32() < FIRST_GENBKI_OBJECT_ID
            && pg_sys::get_typlen(oid) > 0
            && pg_sys::get_typtype(oid) == pg_sys::TYPTYPE_BASE as std::ffi::c_char
    }
}
