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

use crate::pg::handles::{Handle, ListOf, PlanRef, PlanStateRef, StartedQuery};
use crate::pg::server;
use pgrx::pg_sys::{self, Node, NodeTag, Oid};

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
/// statements without a check. `nodes` are its plan states, from the root on. May raise.
pub fn is_read_only<'q>(query: StartedQuery, nodes: impl Iterator<Item = PlanStateRef<'q>> + Clone) -> bool {
    let plan = query.plan();
    let cost = nodes.clone().next().map_or(0.0, |root| root.plan().total_cost);
    query.operation == pg_sys::CmdType::CMD_SELECT
        && cost > MIN_CHECKED_COST
        && !plan.hasModifyingCTE
        && plan.rowMarks.is_null()
        && query.receiver() != Some(pg_sys::CommandDest::DestIntoRel)
        && plan
            .list::<pg_sys::RangeTblEntry>(|plan| &plan.rtable)
            .iter()
            .all(|entry| {
                entry.rtekind != pg_sys::RTEKind::RTE_RELATION || !server::is_temporary_relation(entry.relid)
            })
        && nodes.into_iter().all(|ps| calls_nothing_volatile(ps.plan()))
}

/// Returns whether no expression of a plan node calls a volatile function. Returns false for node types that
/// are not listed here. May raise.
fn calls_nothing_volatile(plan: PlanRef) -> bool {
    let own = match plan.tag() {
        NodeTag::T_NestLoop | NodeTag::T_MergeJoin | NodeTag::T_HashJoin => [
            plan.cast::<pg_sys::Join>().expressions(|join| &join.joinqual),
            None,
        ],
        NodeTag::T_Result => {
            let result = plan.cast::<pg_sys::Result>();
            [result.follow(|result| &result.resconstantqual), None]
        }
        NodeTag::T_FunctionScan => {
            let scan = plan.cast::<pg_sys::FunctionScan>();
            [scan.expressions(|scan| &scan.functions), None]
        }
        NodeTag::T_ValuesScan => {
            let scan = plan.cast::<pg_sys::ValuesScan>();
            [scan.expressions(|scan| &scan.values_lists), None]
        }
        NodeTag::T_Limit => {
            let limit = plan.cast::<pg_sys::Limit>();
            [
                limit.follow(|limit| &limit.limitOffset),
                limit.follow(|limit| &limit.limitCount),
            ]
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
        | NodeTag::T_GatherMerge => [None, None],
        _ => return false,
    };
    let common = [
        plan.expressions(|plan| &plan.targetlist),
        plan.expressions(|plan| &plan.qual),
    ];
    let mut all = own.into_iter().chain(common).flatten();
    // SAFETY: these are expressions, or Lists of them.
    all.all(|node| unsafe { !pg_sys::contain_volatile_functions(node.as_ptr()) })
}

/// Returns whether a node reads each start of its input to the end, within one of its own calls.
#[inline(always)]
pub fn reads_to_the_end(ps: PlanStateRef) -> bool {
    match ps.tag() {
        NodeTag::T_SortState | NodeTag::T_HashState => true,
        NodeTag::T_AggState => {
            let agg = ps.plan().cast::<pg_sys::Agg>();
            agg.groupingSets.is_null()
                && matches!(
                    agg.aggstrategy,
                    pg_sys::AggStrategy::AGG_PLAIN | pg_sys::AggStrategy::AGG_HASHED
                )
        }
        _ => false,
    }
}

/// Returns whether a node of a statement that only reads can use work files itself. Returns true for node
/// types that are not listed here: among them a merge join, which has its inner sort read again what it has
/// read.
pub fn may_use_files(ps: PlanStateRef) -> bool {
    // The planner lists the functions of a plan that are not built-in. Built-in ones use work files only to
    // return a set, or as aggregates that sort. A parallel worker does not get that list.
    if server::is_parallel_worker() || !ps.statement().invalItems.is_null() {
        return true;
    }
    match ps.tag() {
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
            let mut aggregates = agg.list::<pg_sys::Aggref>(|agg| &agg.aggs).iter();
            !matches!(
                agg.aggstrategy,
                pg_sys::AggStrategy::AGG_PLAIN | pg_sys::AggStrategy::AGG_SORTED
            ) || aggregates.any(|agg| {
                agg.aggkind != pg_sys::AGGKIND_NORMAL as std::ffi::c_char
                    || !agg.aggorder.is_null()
                    || !agg.aggdistinct.is_null()
            }) || !ps.plan().cast::<pg_sys::Agg>().groupingSets.is_null()
        }
        _ => true,
    }
}

/// Returns whether `aggregate` is a plain aggregate that only counts or sums what `scan` returns. May raise.
pub fn is_plain_aggregate_over_scan(aggregate: PlanStateRef, scan: PlanStateRef) -> bool {
    matches!(
        scan.tag(),
        NodeTag::T_SeqScanState | NodeTag::T_IndexScanState | NodeTag::T_IndexOnlyScanState
    ) && aggregate.tag() == NodeTag::T_AggState
        // The scan might run an InitPlan, which reads the clock.
        && aggregate.statement().subplans.is_null()
        && aggregate.plan().cast::<pg_sys::Agg>().aggstrategy == pg_sys::AggStrategy::AGG_PLAIN
        && [scan, aggregate]
            .into_iter()
            .all(|ps| ps.initPlan.is_null() && ps.subPlan.is_null())
        && are_all_free_of_side_effects(aggregate.plan().list(|plan| &plan.targetlist))
        && are_all_free_of_side_effects(aggregate.plan().list(|plan| &plan.qual))
}

/// Returns whether a scan computes keys of an index before its first row.
pub fn has_runtime_keys(scan: PlanStateRef) -> bool {
    match scan.tag() {
        NodeTag::T_IndexScanState => scan.cast::<pg_sys::IndexScanState>().iss_NumRuntimeKeys > 0,
        NodeTag::T_IndexOnlyScanState => scan.cast::<pg_sys::IndexOnlyScanState>().ioss_NumRuntimeKeys > 0,
        _ => false,
    }
}

/// Returns whether no expression of a list has a side effect. May raise.
fn are_all_free_of_side_effects(nodes: ListOf<Node>) -> bool {
    nodes.iter().all(is_free_of_side_effects)
}

/// Returns whether an expression touches no buffers and cannot fail. May raise.
fn is_free_of_side_effects(node: Handle<Node>) -> bool {
    let is_free = |expression: Option<Handle<pg_sys::Expr>>| {
        expression.is_none_or(|expression| is_free_of_side_effects(expression.node()))
    };
    match node.tag() {
        NodeTag::T_TargetEntry => is_free(node.cast::<pg_sys::TargetEntry>().follow(|entry| &entry.expr)),
        NodeTag::T_Var | NodeTag::T_Const => true,
        NodeTag::T_NullTest => is_free(node.cast::<pg_sys::NullTest>().follow(|test| &test.arg)),
        NodeTag::T_BoolExpr => {
            are_all_free_of_side_effects(node.cast::<pg_sys::BoolExpr>().list(|all| &all.args))
        }
        NodeTag::T_OpExpr => {
            let op = node.cast::<pg_sys::OpExpr>();
            let arguments = op.list(|op| &op.args);
            is_immutable_builtin(op.opfuncid)
                && have_fixed_length(arguments)
                && are_all_free_of_side_effects(arguments)
        }
        NodeTag::T_FuncExpr => {
            let function = node.cast::<pg_sys::FuncExpr>();
            let arguments = function.list(|function| &function.args);
            is_immutable_builtin(function.funcid)
                && have_fixed_length(arguments)
                && are_all_free_of_side_effects(arguments)
        }
        NodeTag::T_Aggref => {
            let agg = node.cast::<pg_sys::Aggref>();
            let mut arguments = agg.list::<pg_sys::TargetEntry>(|agg| &agg.args).iter();
            let is_column = |expression: Handle<pg_sys::Expr>| expression.tag() == NodeTag::T_Var;
            agg.aggorder.is_null()
                && agg.aggdistinct.is_null()
                && agg.aggdirectargs.is_null()
                && agg.aggfilter.is_null()
                && NEVER_FAILING.contains(&agg.aggfnoid.to_u32())
                && arguments.all(|entry| entry.follow(|entry| &entry.expr).is_some_and(is_column))
        }
        _ => false,
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

/// Returns whether all arguments are of built-in types of fixed length. May raise.
fn have_fixed_length(arguments: ListOf<Node>) -> bool {
    // SAFETY: the function accepts each expression.
    let mut types = arguments
        .iter()
        .map(|node| unsafe { pg_sys::exprType(node.as_ptr()) });
    types.all(is_fixed_length)
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
