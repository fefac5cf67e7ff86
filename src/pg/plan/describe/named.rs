//! Describes a plan without EXPLAIN, if that would print too much or fails: operations, objects and
//! estimates, but no conditions.

use crate::pg::plan::tree::{Found, tag};
use pgrx::pg_sys::{self, NodeTag, PlanState, QueryDesc};
use rowsource_core::plan::{ExplainedPlan, PlanNode};
use std::ffi::CStr;

/// Describes the plan.
///
/// # Safety
/// `query` must be started, and `found` be the nodes of its plan.
pub unsafe fn plan(query: *mut QueryDesc, found: &[Found]) -> ExplainedPlan {
    let hidden = i32::from(found[0].hidden);
    let shown = found.iter().filter(|place| !place.hidden).enumerate();
    let mut nodes: Vec<PlanNode> = shown
        .map(|(id, place)| {
            // SAFETY: the plan states are initialised by the caller's promise, so each has a plan.
            unsafe {
                let plan = (*place.plan_state).plan;
                PlanNode {
                    id,
                    parent: usize::try_from(place.parent - hidden).ok(),
                    depth: usize::from(place.depth) - hidden as usize,
                    operation: operation(plan),
                    object_name: object_name(place.plan_state, query),
                    plan_rows: (*plan).plan_rows,
                    plan_width: f64::from((*plan).plan_width),
                    startup_cost: (*plan).startup_cost,
                    total_cost: (*plan).total_cost,
                    ..PlanNode::default()
                }
            }
        })
        .collect();
    if let Some(root) = nodes.first_mut() {
        root.predicates.push(("Predicates".to_owned(), "...".to_owned()));
    }
    ExplainedPlan {
        nodes,
        // It shows no literals, so it is right for all executions.
        generic: true,
        cut: 1,
        lists: Vec::new(),
        names: None,
    }
}

/// Returns EXPLAIN's name for the type of a node.
///
/// # Safety
/// `plan` must point to a live plan node, whose tag tells its type.
pub(super) unsafe fn operation(plan: *mut pg_sys::Plan) -> String {
    // SAFETY: the plan node is live by the caller's promise, and of the type that its tag says.
    unsafe {
        let name = match tag(plan) {
            NodeTag::T_ModifyTable => match (*plan.cast::<pg_sys::ModifyTable>()).operation {
                pg_sys::CmdType::CMD_INSERT => "Insert",
                pg_sys::CmdType::CMD_UPDATE => "Update",
                pg_sys::CmdType::CMD_DELETE => "Delete",
                pg_sys::CmdType::CMD_MERGE => "Merge",
                _ => "ModifyTable",
            },
            NodeTag::T_Agg => "Aggregate",
            NodeTag::T_NestLoop => "Nested Loop",
            NodeTag::T_CteScan => "CTE Scan",
            NodeTag::T_TableFuncScan => "Table Function Scan",
            NodeTag::T_WorkTableScan => "WorkTable Scan",
            NodeTag::T_BitmapAnd => "BitmapAnd",
            NodeTag::T_BitmapOr => "BitmapOr",
            NodeTag::T_ProjectSet => "ProjectSet",
            NodeTag::T_LockRows => "LockRows",
            NodeTag::T_SetOp => "SetOp",
            NodeTag::T_WindowAgg => "WindowAgg",
            other => return prefixed(plan, &words(&format!("{other:?}"))),
        };
        prefixed(plan, name)
    }
}

/// Puts EXPLAIN's "Parallel" before the name of a node that takes part in a parallel scan or join.
///
/// # Safety
/// `plan` must point to a live plan node, whose tag tells its type.
unsafe fn prefixed(plan: *mut pg_sys::Plan, name: &str) -> String {
    // SAFETY: the plan node is live by the caller's promise.
    let parallel = if unsafe { (*plan).parallel_aware } {
        "Parallel "
    } else {
        ""
    };
    format!("{parallel}{name}")
}

/// Splits a node tag into words: `T_IndexOnlyScan` becomes `Index Only Scan`.
fn words(tag: &str) -> String {
    let name = tag.trim_start_matches("T_");
    let mut words = String::with_capacity(name.len() + 3);
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.push(letter);
    }
    words
}

/// Returns the name of the index or relation that a node uses. The executor has opened it, so no catalog is
/// read. For other sources of rows, returns their alias in the statement.
///
/// # Safety
/// `ps` must be an initialised plan state of the started `query`, which keeps its relations open.
unsafe fn object_name(ps: *mut PlanState, query: *mut QueryDesc) -> Option<String> {
    // SAFETY: the plan state is initialised by the caller's promise, and of the type that its tag says.
    // Relations stay open while the statement runs.
    unsafe {
        let relation = match tag(ps) {
            NodeTag::T_IndexScanState => (*ps.cast::<pg_sys::IndexScanState>()).iss_RelationDesc,
            NodeTag::T_IndexOnlyScanState => (*ps.cast::<pg_sys::IndexOnlyScanState>()).ioss_RelationDesc,
            NodeTag::T_BitmapIndexScanState => (*ps.cast::<pg_sys::BitmapIndexScanState>()).biss_RelationDesc,
            NodeTag::T_ModifyTableState => {
                let root = (*ps.cast::<pg_sys::ModifyTableState>()).rootResultRelInfo;
                if root.is_null() {
                    return None;
                }
                (*root).ri_RelationDesc
            }
            NodeTag::T_SeqScanState
            | NodeTag::T_SampleScanState
            | NodeTag::T_BitmapHeapScanState
            | NodeTag::T_TidScanState
            | NodeTag::T_TidRangeScanState
            | NodeTag::T_ForeignScanState => (*ps.cast::<pg_sys::ScanState>()).ss_currentRelation,
            NodeTag::T_FunctionScanState
            | NodeTag::T_TableFuncScanState
            | NodeTag::T_ValuesScanState
            | NodeTag::T_CteScanState
            | NodeTag::T_WorkTableScanState
            | NodeTag::T_NamedTuplestoreScanState => return alias((*ps).plan, query),
            _ => return None,
        };
        if relation.is_null() {
            return None;
        }
        let name = &raw const (*(*relation).rd_rel).relname.data;
        Some(text(CStr::from_ptr(name.cast())))
    }
}

/// Returns the alias of the range table entry that a node scans.
///
/// # Safety
/// `plan` must point to a scan's plan node, and `query` to the started query that it belongs to.
unsafe fn alias(plan: *mut pg_sys::Plan, query: *mut QueryDesc) -> Option<String> {
    // SAFETY: the plan node is a scan's by the caller's promise, so it begins with `Scan`. The range table is
    // a list of its entries, and its indexes count from 1.
    unsafe {
        let index = (*plan.cast::<pg_sys::Scan>()).scanrelid as usize;
        let table = (*(*query).plannedstmt).rtable;
        if index == 0 || table.is_null() || index > (*table).length as usize {
            return None;
        }
        let entry = (*(*table).elements.add(index - 1))
            .ptr_value
            .cast::<pg_sys::RangeTblEntry>();
        Some(text(CStr::from_ptr((*(*entry).eref).aliasname)))
    }
}

/// Returns a name of the catalog.
pub(super) fn text(name: &CStr) -> String {
    crate::pg::server::from_database(name.to_bytes())
}
