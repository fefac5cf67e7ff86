//! Plans in the tables of the history. A plan's description and its statistics are separate, because the
//! description is stored once, and the statistics with each snapshot. Both begin with [`FILE_FORMAT`], which
//! tells which version wrote them.

use super::description::PlanDescription;
use super::estimates::Estimates;
use super::exemplar::Exemplars;
use super::format::FILE_FORMAT;
use super::key::PlanKey;
use super::node::{NodeStats, NodeTotals};
use super::packed::{PackError, append, beginning, take, with_zeros, without_zeros};
use super::partitions::{ListedPartition, MAX_LISTED};
use super::plan::{MAX_NODES, Plan, PlanStats};
use crate::plan::PlanNode;
use serde::{Deserialize, Serialize};
use std::rc::Rc;

/// The maximum size of a stored description. The largest that can be stored has 32 kB of texts, and the names
/// of 1,000 nodes.
pub const MAX_DESCRIPTION: usize = 1 << 20;
/// The maximum size of stored statistics. Those of 1,000 nodes take half of this at most.
pub const MAX_STATISTICS: usize = 4 << 20;

/// Why a stored plan cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArchiveError {
    /// Another version wrote it.
    #[error("the plan was stored by another version of pg_rowsource")]
    Version,
    /// The bytes are not a plan.
    #[error("the stored plan is damaged")]
    Damaged,
    /// There is no memory for it.
    #[error("out of memory")]
    Memory,
}

impl From<PackError> for ArchiveError {
    fn from(error: PackError) -> Self {
        match error {
            PackError::Damaged => ArchiveError::Damaged,
            PackError::Memory => ArchiveError::Memory,
        }
    }
}

/// What is stored of a plan as a whole.
#[derive(Serialize, Deserialize)]
struct Whole {
    statistics: PlanStats,
    older_literals: bool,
    nodes: u32,
}

/// What is stored of a node: everything but the histogram, which no display needs.
#[derive(Serialize, Deserialize)]
struct OneNode {
    total: NodeStats,
    last: NodeStats,
    estimates: Estimates,
}

impl From<&NodeTotals> for OneNode {
    fn from(totals: &NodeTotals) -> Self {
        OneNode {
            total: totals.total,
            last: totals.last,
            estimates: totals.estimates,
        }
    }
}

impl From<OneNode> for NodeTotals {
    fn from(node: OneNode) -> Self {
        NodeTotals {
            total: node.total,
            last: node.last,
            estimates: node.estimates,
            ..NodeTotals::default()
        }
    }
}

/// Returns the bytes to store of a description.
pub fn description_bytes(description: &PlanDescription) -> Result<Vec<u8>, ArchiveError> {
    let mut bytes = begin()?;
    append(&mut bytes, description)?;
    Ok(bytes)
}

/// Returns the bytes to store of a plan's statistics. Of the executions that are kept whole, these have those
/// that ended at this time or later: the others are in earlier snapshots.
pub fn statistics_bytes(plan: &Plan, since: Option<i64>) -> Result<Vec<u8>, ArchiveError> {
    let nodes = plan.nodes.get(..MAX_NODES).unwrap_or(&plan.nodes);
    let mut bytes = begin()?;
    let whole = Whole {
        statistics: plan.statistics,
        older_literals: plan.older_literals,
        nodes: nodes.len() as u32,
    };
    append(&mut bytes, &whole)?;
    for node in nodes {
        append(&mut bytes, &OneNode::from(node))?;
    }
    append(&mut bytes, &plan.exemplars.since(since))?;
    append(&mut bytes, &plan.partitions)?;
    Ok(without_zeros(&bytes)?)
}

/// Reads a stored plan. The bytes may be anything: the memory that this takes is limited by their size.
pub fn stored_plan(key: PlanKey, description: &[u8], statistics: &[u8]) -> Result<Plan, ArchiveError> {
    if description.len() > MAX_DESCRIPTION || statistics.len() > MAX_STATISTICS {
        return Err(ArchiveError::Damaged);
    }
    let statistics = &with_zeros(statistics, MAX_STATISTICS)?;
    let (description, rest): (PlanDescription, _) = take(body(description)?)?;
    if !rest.is_empty() || !is_plan(&description.nodes) {
        return Err(ArchiveError::Damaged);
    }
    let (whole, mut rest): (Whole, _) = take(body(statistics)?)?;
    let count = whole.nodes as usize;
    if count > MAX_NODES {
        return Err(ArchiveError::Damaged);
    }
    let mut nodes = Vec::new();
    nodes.try_reserve_exact(count).map_err(|_| ArchiveError::Memory)?;
    for _ in 0..count {
        let (node, after): (OneNode, _) = take(rest)?;
        nodes.push(node.into());
        rest = after;
    }
    let (exemplars, rest): (Exemplars, _) = take(rest)?;
    let (partitions, rest): (Vec<ListedPartition>, _) = take(rest)?;
    if !rest.is_empty() || partitions.len() > MAX_LISTED {
        return Err(ArchiveError::Damaged);
    }
    Ok(Plan {
        older_literals: whole.older_literals,
        statistics: whole.statistics,
        nodes,
        exemplars,
        partitions,
        ..Plan::new(key, Rc::new(description))
    })
}

/// The sums of a plan's executions as a whole take fewer bytes than these, packed or not.
pub const WHOLE_BYTES: usize = 4_096;

/// Reads the beginning of stored statistics, of which the first [`WHOLE_BYTES`] suffice: those of the plan as
/// a whole.
pub fn stored_whole(statistics: &[u8]) -> Result<PlanStats, ArchiveError> {
    // A cut within a run of zeros leaves one zero.
    let packed = statistics.get(..WHOLE_BYTES).unwrap_or(statistics);
    let (bytes, _) = beginning(packed, WHOLE_BYTES / 2)?;
    let (whole, _): (Whole, _) = take(body(&bytes)?)?;
    Ok(whole.statistics)
}

/// Returns whether the nodes are a tree in EXPLAIN's order, so that they can be displayed.
fn is_plan(nodes: &[PlanNode]) -> bool {
    let is_in_order = |(i, node): (usize, &PlanNode)| {
        node.id == i && node.depth <= i && node.parent.map_or(i == 0, |parent| parent < i)
    };
    (1..=MAX_NODES).contains(&nodes.len()) && nodes.iter().enumerate().all(is_in_order)
}

fn begin() -> Result<Vec<u8>, ArchiveError> {
    let mut bytes = Vec::new();
    bytes
        .try_reserve(FILE_FORMAT.len())
        .map_err(|_| ArchiveError::Memory)?;
    bytes.extend_from_slice(&FILE_FORMAT);
    Ok(bytes)
}

/// Returns what follows the name of the format.
fn body(bytes: &[u8]) -> Result<&[u8], ArchiveError> {
    bytes.strip_prefix(&FILE_FORMAT).ok_or(ArchiveError::Version)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::sample::plan;
    use crate::model::{Exemplar, Outcome};
    use crate::plan::ExplainedPlan;
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    fn stored(plan: &Plan) -> [Vec<u8>; 2] {
        [
            description_bytes(&plan.description).expect("a description"),
            statistics_bytes(plan, None).expect("statistics"),
        ]
    }

    #[test]
    fn a_plan_comes_back_as_it_was() {
        let plan = plan(3);
        let [description, statistics] = stored(&plan);
        let read = stored_plan(plan.key, &description, &statistics).expect("a plan");
        assert_eq!(read.description.text, plan.description.text);
        assert_eq!(read.description.nodes, plan.description.nodes);
        assert_eq!(read.statistics.last_outcome, Outcome::Cancelled);
        assert_eq!(read.statistics.times.calls, 1);
        let node = |plan: &Plan| {
            plan.nodes
                .iter()
                .map(|node| (node.total, node.last))
                .collect::<Vec<_>>()
        };
        assert_eq!(node(&read), node(&plan));
        let kept = read.exemplars.get(Exemplar::Cancelled).expect("an execution");
        assert_eq!(kept.map(|kept| kept.nodes.len()), Ok(3));
        // The execution ended at 7.
        for (since, is_stored) in [(7, true), (8, false)] {
            let statistics = statistics_bytes(&plan, Some(since)).expect("statistics");
            let read = stored_plan(plan.key, &description, &statistics).expect("a plan");
            assert_eq!(
                read.exemplars.get(Exemplar::Cancelled).is_some(),
                is_stored,
                "{since}"
            );
        }
    }

    #[test]
    fn the_beginning_has_the_sums_of_the_whole() {
        for nodes in [1, 3, MAX_NODES] {
            let plan = plan(nodes);
            let [_, statistics] = stored(&plan);
            let cut = statistics.get(..WHOLE_BYTES).unwrap_or(&statistics);
            let whole = stored_whole(cut).expect("the sums");
            assert_eq!(
                format!("{whole:?}"),
                format!("{:?}", plan.statistics),
                "{nodes} nodes"
            );
        }
        assert_eq!(stored_whole(b"").map(drop), Err(ArchiveError::Version));
        assert_eq!(stored_whole(&FILE_FORMAT).map(drop), Err(ArchiveError::Damaged));
    }

    #[test]
    fn the_largest_plans_can_be_stored() {
        let plan = plan(MAX_NODES);
        let [description, statistics] = stored(&plan);
        assert!(
            with_zeros(&statistics, MAX_STATISTICS).expect("zeros").len() < MAX_STATISTICS / 2,
            "{}",
            statistics.len()
        );
        assert!(stored_plan(plan.key, &description, &statistics).is_ok());
    }

    #[test]
    fn another_version_is_named_as_the_reason() {
        let plan = plan(3);
        let [description, mut statistics] = stored(&plan);
        statistics[7] = b'?';
        let read = stored_plan(plan.key, &description, &statistics);
        assert_eq!(read.err(), Some(ArchiveError::Version));
        assert_eq!(stored_plan(plan.key, b"", b"").err(), Some(ArchiveError::Version));
    }

    #[test]
    fn a_tree_that_cannot_be_displayed_is_refused() {
        let good = plan(3);
        let [_, statistics] = stored(&good);
        type Change = fn(&mut Vec<PlanNode>);
        let changes: [Change; 5] = [
            |nodes| nodes[2].depth = usize::MAX,
            |nodes| nodes[1].parent = Some(1),
            |nodes| nodes[2].parent = None,
            |nodes| nodes[0].id = 7,
            Vec::clear,
        ];
        for (i, change) in changes.into_iter().enumerate() {
            let mut nodes = good.description.nodes.clone();
            change(&mut nodes);
            let explained = ExplainedPlan {
                nodes,
                ..ExplainedPlan::default()
            };
            let description = PlanDescription::new(b"", String::new(), false, explained);
            let bytes = description_bytes(&description).expect("a description");
            let read = stored_plan(good.key, &bytes, &statistics);
            assert_eq!(read.err(), Some(ArchiveError::Damaged), "change {i}");
        }
    }

    /// Bytes that are cut, changed or random give an error or a plan that can be displayed.
    #[test]
    fn damaged_bytes_give_an_error() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(4711);
        let good = plan(5);
        let intact = stored(&good);
        for part in 0..2 {
            for length in 0..intact[part].len() {
                let mut cut = intact.clone();
                cut[part].truncate(length);
                assert!(stored_plan(good.key, &cut[0], &cut[1]).is_err(), "{length}");
            }
        }
        for _ in 0..20_000 {
            let mut bytes = intact.clone();
            let part = random.random_range(0..2);
            let changes = random.random_range(1..8);
            for _ in 0..changes {
                let at = random.random_range(FILE_FORMAT.len()..bytes[part].len());
                bytes[part][at] = random.random();
            }
            if random.random_bool(0.2) {
                let length = random.random_range(0..4_000);
                bytes[part].resize_with(length, || random.random());
            }
            if let Ok(plan) = stored_plan(good.key, &bytes[0], &bytes[1]) {
                assert!(is_plan(&plan.description.nodes));
            }
        }
    }

    /// A length that is a lie reserves no memory for it.
    #[test]
    fn a_huge_length_takes_no_memory() {
        let plan = plan(3);
        let [description, statistics] = stored(&plan);
        let mut lie = FILE_FORMAT.to_vec();
        lie.extend([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]);
        assert_eq!(
            stored_plan(plan.key, &lie, &statistics).err(),
            Some(ArchiveError::Damaged)
        );
        assert_eq!(
            stored_plan(plan.key, &description, &lie).err(),
            Some(ArchiveError::Damaged)
        );
        let long = vec![0; MAX_DESCRIPTION + 1];
        assert_eq!(
            stored_plan(plan.key, &long, &statistics).err(),
            Some(ArchiveError::Damaged)
        );
    }
}
