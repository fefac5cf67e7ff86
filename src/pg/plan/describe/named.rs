//! Describes a plan without EXPLAIN, if that would print too much or fails: operations, objects and
//! estimates, but no conditions.

use crate::pg::handles::{PlanRef, PlanStateRef};
use crate::pg::plan::tree::{Found, costs};
use pgrx::pg_sys::{self, NodeTag};
use rowsource_core::plan::{ExplainedPlan, PlanNode};
use std::ffi::CStr;

/// Describes the plan.
pub fn plan(found: &[Found]) -> ExplainedPlan {
    let hidden = i32::from(found[0].hidden);
    let shown = found.iter().filter(|place| !place.hidden).enumerate();
    let mut nodes: Vec<PlanNode> = shown
        .map(|(id, place)| {
            let costs = costs(place.plan_state);
            PlanNode {
                id,
                parent: usize::try_from(place.parent - hidden).ok(),
                depth: usize::from(place.depth) - hidden as usize,
                operation: operation(place.plan_state.plan()),
                object_name: object_name(place.plan_state),
                plan_rows: costs.plan_rows,
                plan_width: costs.plan_width,
                startup_cost: costs.startup_cost,
                total_cost: costs.total_cost,
                ..PlanNode::default()
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
pub(super) fn operation(plan: PlanRef) -> String {
    let name = match plan.tag() {
        NodeTag::T_ModifyTable => match plan.cast::<pg_sys::ModifyTable>().operation {
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

/// Puts EXPLAIN's "Parallel" before the name of a node that takes part in a parallel scan or join.
fn prefixed(plan: PlanRef, name: &str) -> String {
    let parallel = if plan.parallel_aware { "Parallel " } else { "" };
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
fn object_name(ps: PlanStateRef) -> Option<String> {
    let relation = match ps.tag() {
        NodeTag::T_FunctionScanState
        | NodeTag::T_TableFuncScanState
        | NodeTag::T_ValuesScanState
        | NodeTag::T_CteScanState
        | NodeTag::T_WorkTableScanState
        | NodeTag::T_NamedTuplestoreScanState => return alias(ps),
        NodeTag::T_IndexScanState | NodeTag::T_IndexOnlyScanState | NodeTag::T_BitmapIndexScanState => {
            ps.index()
        }
        NodeTag::T_CustomScanState => None,
        _ => ps.table(),
    };
    relation.map(|relation| text(relation.name()))
}

/// Returns the alias of the range table entry that a node scans.
fn alias(ps: PlanStateRef) -> Option<String> {
    let entry = ps.estate().entry(ps.plan().cast::<pg_sys::Scan>().scanrelid)?;
    let alias = entry.follow(|entry| &entry.eref)?;
    alias.string(|alias| &alias.aliasname).map(text)
}

/// Returns a name of the catalog.
pub(super) fn text(name: &CStr) -> String {
    crate::pg::server::from_database(name.to_bytes())
}
