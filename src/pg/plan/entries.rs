//! The entries of the range table that a node scans.

use crate::pg::handles::PlanRef;
use pgrx::pg_sys::{self, Index, NodeTag, Oid};

/// Returns the number of the range table entry that a node scans: 0 if a foreign or custom scan joins
/// several, `None` for nodes that are no scans of tables.
pub fn scanned_entry(plan: PlanRef) -> Option<Index> {
    let is_scan = matches!(
        plan.tag(),
        NodeTag::T_SeqScan
            | NodeTag::T_SampleScan
            | NodeTag::T_TidScan
            | NodeTag::T_TidRangeScan
            | NodeTag::T_IndexScan
            | NodeTag::T_IndexOnlyScan
            | NodeTag::T_BitmapIndexScan
            | NodeTag::T_BitmapHeapScan
            | NodeTag::T_ForeignScan
            | NodeTag::T_CustomScan
            | NodeTag::T_FunctionScan
            | NodeTag::T_ValuesScan
            | NodeTag::T_CteScan
    );
    is_scan.then(|| plan.cast::<pg_sys::Scan>().scanrelid)
}

/// Returns the OID of the index that a node scans.
pub fn scanned_index(plan: PlanRef) -> Option<Oid> {
    match plan.tag() {
        NodeTag::T_IndexScan => Some(plan.cast::<pg_sys::IndexScan>().indexid),
        NodeTag::T_IndexOnlyScan => Some(plan.cast::<pg_sys::IndexOnlyScan>().indexid),
        NodeTag::T_BitmapIndexScan => Some(plan.cast::<pg_sys::BitmapIndexScan>().indexid),
        _ => None,
    }
}

/// Calls `each` with the entries that a node scans, joins or appends.
pub fn for_each_entry(plan: PlanRef, mut each: impl FnMut(Index)) {
    match plan.tag() {
        NodeTag::T_Append => {
            let append = plan.cast::<pg_sys::Append>();
            append.set(|append| &append.apprelids).for_each(each);
        }
        NodeTag::T_MergeAppend => {
            let append = plan.cast::<pg_sys::MergeAppend>();
            append.set(|append| &append.apprelids).for_each(each);
        }
        NodeTag::T_ForeignScan => {
            let scan = plan.cast::<pg_sys::ForeignScan>();
            each(scan.scan.scanrelid);
            scan.set(|scan| &scan.fs_relids).for_each(each);
        }
        NodeTag::T_CustomScan => {
            let scan = plan.cast::<pg_sys::CustomScan>();
            each(scan.scan.scanrelid);
            scan.set(|scan| &scan.custom_relids).for_each(each);
        }
        _ => scanned_entry(plan).into_iter().for_each(each),
    }
}
