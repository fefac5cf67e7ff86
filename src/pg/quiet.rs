//! Where the wrapper may look at fewer buffer counters, or less often, and still book to the last block.
//!
//! A statement that writes nothing and names no temporary table moves shared-buffer and work-file counters only;
//! what a function does beyond that is booked when its own run is left.
//!
//! A plain aggregate that only counts, sums or compares columns of fixed length touches no buffers and cannot fail
//! between two calls of the scan below it. That saves half of the wrapper on the scans where it weighs most.
//! Expressions are trusted only if they consist of immutable built-in functions on types of fixed length: those
//! read no catalog, no table and no TOAST.

use super::tree::{list, tag};
use pgrx::pg_sys::{self, NodeTag, Oid, PlanState};

/// int2, int4, int8, oid, date, timestamp, timestamptz: built-in aggregates of them neither fail nor look anything up.
const NEVER_FAILING: [u32; 7] = [21, 23, 20, 26, 1082, 1114, 1184];
/// Objects below this number are PostgreSQL's own.
const FIRST_GENBKI_OBJECT_ID: u32 = 10_000;
/// count(any) and count(*): they never look at their argument's value.
const COUNTS: [u32; 2] = [2147, 2803];

/// Whether the statement only reads, and no temporary tables.
///
/// # Safety
/// `query` must be started.
pub unsafe fn only_reads(query: *mut pg_sys::QueryDesc) -> bool {
    // SAFETY: the caller's promise; the range table's relations are open.
    unsafe {
        let plan = (*query).plannedstmt;
        (*query).operation == pg_sys::CmdType::CMD_SELECT
            && !(*plan).hasModifyingCTE
            && (*plan).rowMarks.is_null()
            && (*(*query).dest).mydest != pg_sys::CommandDest::DestIntoRel
            && list::<pg_sys::RangeTblEntry>((*plan).rtable).all(|entry| {
                (*entry).rtekind != pg_sys::RTEKind::RTE_RELATION
                    || pg_sys::get_rel_persistence((*entry).relid)
                        != pg_sys::RELPERSISTENCE_TEMP as std::ffi::c_char
            })
    }
}

/// Whether `aggregate` is a plain aggregate that does nothing but drain `scan`.
///
/// # Safety
/// Both must be initialised plan states.
pub unsafe fn drains(aggregate: *mut PlanState, scan: *mut PlanState) -> bool {
    // SAFETY: casts follow the tags.
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

unsafe fn all_quiet(nodes: *const pg_sys::List) -> bool {
    // SAFETY: a List of nodes.
    unsafe { list::<pg_sys::Node>(nodes).all(|node| quiet(node)) }
}

unsafe fn quiet(node: *mut pg_sys::Node) -> bool {
    if node.is_null() {
        return true;
    }
    // SAFETY: casts follow the tag.
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
                    && number < FIRST_GENBKI_OBJECT_ID
                    && list::<pg_sys::TargetEntry>((*agg).args).all(|entry| {
                        let argument: *mut pg_sys::Node = (*entry).expr.cast();
                        tag(argument) == NodeTag::T_Var
                            && (COUNTS.contains(&number)
                                || NEVER_FAILING.contains(&pg_sys::exprType(argument).to_u32()))
                    })
            }
            _ => false,
        }
    }
}

unsafe fn harmless(function: Oid) -> bool {
    // SAFETY: a valid function's OID.
    unsafe {
        let number = function.to_u32();
        number != 0
            && number < FIRST_GENBKI_OBJECT_ID
            && pg_sys::func_volatile(function) == pg_sys::PROVOLATILE_IMMUTABLE as std::ffi::c_char
    }
}

unsafe fn fixed_length(args: *const pg_sys::List) -> bool {
    // SAFETY: a List of expressions.
    unsafe { list::<pg_sys::Node>(args).all(|arg| fixed_type(pg_sys::exprType(arg))) }
}

/// A built-in base type of fixed length; enums, domains and records look into catalogs.
unsafe fn fixed_type(oid: Oid) -> bool {
    // SAFETY: a valid type's OID.
    unsafe {
        oid.to_u32() < FIRST_GENBKI_OBJECT_ID
            && pg_sys::get_typlen(oid) > 0
            && pg_sys::get_typtype(oid) == pg_sys::TYPTYPE_BASE as std::ffi::c_char
    }
}
