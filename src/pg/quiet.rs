//! Where the wrapper may look at fewer buffer counters, or less often, and still book to the last block.
//!
//! A statement that writes nothing, names no temporary table and calls no volatile function moves shared-buffer and
//! work-file counters only; what a function's own queries do beyond that is booked when their run is left.
//!
//! A plain aggregate that only counts, sums or compares columns of fixed length touches no buffers and cannot fail
//! between two calls of the scan below it. That saves half of the wrapper on the scans where it weighs most. What
//! stands around the aggregates is trusted only if it consists of immutable built-in functions on types of fixed
//! length: those read no catalog, no table and no TOAST.

use super::tree::{list, tag};
use pgrx::pg_sys::{self, NodeTag, Oid, PlanState};

/// Aggregates that neither fail nor look anything up: count(any), count(*), and of integers, oids, dates and
/// timestamps avg, sum, max and min.
const NEVER_FAILING: [u32; 22] = [
    2147, 2803, 2100, 2101, 2102, 2107, 2108, 2109, 2115, 2116, 2117, 2118, 2122, 2126, 2127, 2131, 2132,
    2133, 2134, 2138, 2142, 2143,
];
/// The look at fewer counters pays from this cost of a plan on; finding out costs something too.
const WORTH_A_LOOK: f64 = 1000.0;
/// Objects below this number are PostgreSQL's own.
const FIRST_GENBKI_OBJECT_ID: u32 = 10_000;

/// Whether the statement only reads, and no temporary tables. Cheap statements are not looked at.
///
/// # Safety
/// `query` must be started, and `nodes` be all its plan states.
pub unsafe fn only_reads(query: *mut pg_sys::QueryDesc, nodes: impl Iterator<Item = *mut PlanState>) -> bool {
    // SAFETY: the caller's promise; the range table's relations are open.
    unsafe {
        let plan = (*query).plannedstmt;
        (*query).operation == pg_sys::CmdType::CMD_SELECT
            && (*(*(*query).planstate).plan).total_cost > WORTH_A_LOOK
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

/// Whether none of a plan node's expressions calls a volatile function; false for nodes whose expressions we do not
/// know all of.
///
/// # Safety
/// * `plan` must point to a live plan node, whose tag tells its type.
/// * May raise.
unsafe fn calls_nothing_volatile(plan: *mut pg_sys::Plan) -> bool {
    // SAFETY: the node is live by the caller's promise, and of the type that its tag says.
    unsafe {
        let own: *mut pg_sys::List = match tag(plan) {
            NodeTag::T_NestLoop | NodeTag::T_MergeJoin | NodeTag::T_HashJoin => {
                (*plan.cast::<pg_sys::Join>()).joinqual
            }
            NodeTag::T_Result => (*plan.cast::<pg_sys::Result>()).resconstantqual.cast(),
            NodeTag::T_FunctionScan => (*plan.cast::<pg_sys::FunctionScan>()).functions,
            NodeTag::T_ValuesScan => (*plan.cast::<pg_sys::ValuesScan>()).values_lists,
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
            | NodeTag::T_GatherMerge => std::ptr::null_mut(),
            _ => return false,
        };
        [own, (*plan).targetlist, (*plan).qual]
            .into_iter()
            .all(|expressions| {
                expressions.is_null() || !pg_sys::contain_volatile_functions(expressions.cast())
            })
    }
}

/// Whether `aggregate` is a plain aggregate that does nothing but drain `scan`.
///
/// # Safety
/// Both must be initialised plan states.
pub unsafe fn drains(aggregate: *mut PlanState, scan: *mut PlanState) -> bool {
    // SAFETY: both are initialised plan states by the caller's promise, of the types that their tags say.
    unsafe {
        matches!(
            tag(scan),
            NodeTag::T_SeqScanState | NodeTag::T_IndexScanState | NodeTag::T_IndexOnlyScanState
        ) && tag(aggregate) == NodeTag::T_AggState
            && (*(*aggregate).plan.cast::<pg_sys::Agg>()).aggstrategy == pg_sys::AggStrategy::AGG_PLAIN
            && [scan, aggregate]
                .into_iter()
                .all(|ps| (*ps).initPlan.is_null() && (*ps).subPlan.is_null())
            && quiet((*(*aggregate).plan).targetlist.cast())
            && quiet((*(*aggregate).plan).qual.cast())
    }
}

/// Returns whether all expressions of a list are quiet.
///
/// # Safety
/// `nodes` must be null or a List of live expressions. May raise.
unsafe fn all_quiet(nodes: *const pg_sys::List) -> bool {
    // SAFETY: null or a List of live expressions, by the caller's promise.
    unsafe { list::<pg_sys::Node>(nodes).all(|node| quiet(node)) }
}

/// Returns whether an expression touches no buffers and cannot fail.
///
/// # Safety
/// `node` must be null, an expression of a live plan, or a List of them. May raise.
unsafe fn quiet(node: *mut pg_sys::Node) -> bool {
    if node.is_null() {
        return true;
    }
    // SAFETY: the node is live by the caller's promise, and of the type that its tag says.
    unsafe {
        match tag(node) {
            NodeTag::T_List => all_quiet(node.cast()),
            NodeTag::T_TargetEntry => quiet((*node.cast::<pg_sys::TargetEntry>()).expr.cast()),
            NodeTag::T_Var | NodeTag::T_Const => true,
            NodeTag::T_NullTest => quiet((*node.cast::<pg_sys::NullTest>()).arg.cast()),
            NodeTag::T_BoolExpr => all_quiet((*node.cast::<pg_sys::BoolExpr>()).args),
            NodeTag::T_OpExpr => {
                let op = node.cast::<pg_sys::OpExpr>();
                harmless((*op).opfuncid) && fixed_length((*op).args) && all_quiet((*op).args)
            }
            NodeTag::T_FuncExpr => {
                let function = node.cast::<pg_sys::FuncExpr>();
                harmless((*function).funcid) && fixed_length((*function).args) && all_quiet((*function).args)
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

/// Returns whether a function is one of PostgreSQL's own that looks nothing up.
fn harmless(function: Oid) -> bool {
    // SAFETY: any number may be asked for; an unknown one raises an error.
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
unsafe fn fixed_length(args: *const pg_sys::List) -> bool {
    // SAFETY: null or a List of live expressions, by the caller's promise.
    unsafe { list::<pg_sys::Node>(args).all(|arg| fixed_type(pg_sys::exprType(arg))) }
}

/// A built-in base type of fixed length; enums, domains and records look into catalogs.
fn fixed_type(oid: Oid) -> bool {
    // SAFETY: any number may be asked for; that of no type has no length.
    unsafe {
        oid.to_u32() < FIRST_GENBKI_OBJECT_ID
            && pg_sys::get_typlen(oid) > 0
            && pg_sys::get_typtype(oid) == pg_sys::TYPTYPE_BASE as std::ffi::c_char
    }
}
