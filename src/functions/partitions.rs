//! The names of the partitions of a folded plan that took the longest.

use crate::pg::server;
use crate::pg::server::columns::{Columns, columns};
use rowsource_core::model::Plan;
use rowsource_core::model::partitions::shares;
use rowsource_core::report::NamedPartition;

/// What stands for all partitions that are not listed.
const OTHER: &str = "other";

/// Returns the partitions of a plan that took the longest, with their names. Those of another database, and
/// those that were dropped, have numbers.
pub(super) fn named(plan: &Plan) -> Vec<NamedPartition> {
    let is_here = plan.key.datid == server::database_id();
    let name = |relid: u32| match relid {
        0 => OTHER.to_owned(),
        _ => is_here
            .then(|| server::relation_alone(relid))
            .flatten()
            .unwrap_or_else(|| relid.to_string()),
    };
    let shares = shares(&plan.partitions, &plan.nodes).into_iter();
    shares
        .map(|sum| NamedPartition {
            name: name(sum.relid),
            sum,
        })
        .collect()
}

/// The columns of `rowsource_partitions()`.
pub fn columns() -> Columns<NamedPartition> {
    columns! { |row: &NamedPartition|
        /// The number of the node in the plan, from 0 at the root, in the order of EXPLAIN
        node_id: int = row.sum.node as i32;
        /// The OID of the partition, or of its index if the node scans nothing else; NULL for all others
        relid: oid = Some(row.sum.relid).filter(|relid| *relid != 0);
        /// Its name; its OID if it was dropped, or is of another database; other for all that are not listed
        object_name: text = row.name.as_str();
        /// Rows that the node got from it since it entered the list
        rows: bigint = row.sum.rows;
        /// Blocks that were found or read for it since then
        blocks: bigint = row.sum.blocks;
        /// Milliseconds that it took since then
        total_time: float8 = row.sum.ms;
    }
}
