//! The partitions of folded nodes that took the longest. A list has at most [`PER_NODE`] of each node.
//!
//! A partition that enters the list late counts from then on. What is not listed is the rest of the node's
//! sums, so both add up to them.

use super::node::{NodeStats, NodeTotals};
use serde::{Deserialize, Serialize};

/// How many partitions of a node are listed.
pub const PER_NODE: usize = 8;
/// The maximum number of nodes whose partitions are listed.
const MAX_NODES: usize = 8;
/// Returns the length of the list of a plan with partitions in this many nodes.
pub fn list_length(nodes: usize) -> usize {
    nodes.min(MAX_NODES) * PER_NODE
}

/// The maximum length of a list.
pub const MAX_LISTED: usize = MAX_NODES * PER_NODE;
/// A partition replaces one that took less than this part of its time in the same executions. So partitions
/// that take about as long do not replace each other all the time.
const MUCH_SLOWER: f64 = 2.0;

/// What the scan of a partition did in one execution or in several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[repr(C)]
pub struct PartitionSum {
    /// The node of the folded plan.
    pub node: u32,
    /// The OID of the partition, or of its index if that is all that is scanned. 0 is none.
    pub relid: u32,
    /// The rows that it returned.
    pub rows: u64,
    /// The blocks that it found or read.
    pub blocks: i64,
    /// Its time, in milliseconds.
    pub ms: f64,
}

impl PartitionSum {
    /// Returns what a node did.
    pub fn new(node: u32, relid: u32, stats: &NodeStats) -> Self {
        PartitionSum {
            node,
            relid,
            rows: stats.rows,
            blocks: blocks(stats),
            ms: stats.time.get_or_zero().total_ms,
        }
    }

    fn is(&self, other: &PartitionSum) -> bool {
        (self.node, self.relid) == (other.node, other.relid)
    }

    fn add(&mut self, more: &PartitionSum) {
        self.rows += more.rows;
        self.blocks += more.blocks;
        self.ms += more.ms;
    }
}

/// A partition in a list. Zero bytes are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[repr(C)]
pub struct ListedPartition {
    /// What it did since it entered the list.
    pub sum: PartitionSum,
    /// At most how long it has taken in all executions, in milliseconds: also that of the partitions that it
    /// replaced. The one with the least is replaced next.
    weight: f64,
}

impl ListedPartition {
    /// Returns whether it is none.
    pub fn is_free(&self) -> bool {
        self.sum.relid == 0
    }
}

/// Returns the blocks that a node found or read.
fn blocks(stats: &NodeStats) -> i64 {
    let buffers = stats.buffers.get_or_zero();
    buffers.shared_hit + buffers.shared_read + buffers.local_hit + buffers.local_read
}

/// Returns what the listed partitions of a plan did, the slowest one of each node first, and behind them the
/// rest of the node's sums: that has the `relid` 0, and is left out if it is nothing.
pub fn shares(list: &[ListedPartition], nodes: &[NodeTotals]) -> Vec<PartitionSum> {
    let mut shares: Vec<PartitionSum> = Vec::new();
    for (node, totals) in (0..).zip(nodes) {
        let first = shares.len();
        let of_node = list
            .iter()
            .filter(|listed| !listed.is_free() && listed.sum.node == node);
        shares.extend(of_node.map(|listed| listed.sum));
        let listed = &mut shares[first..];
        if listed.is_empty() {
            continue;
        }
        listed.sort_by(|one, other| other.ms.total_cmp(&one.ms));
        let mut rest = PartitionSum::new(node, 0, &totals.total);
        // Their times are estimates of single executions, and that of the node is made consistent with
        // others.
        let ms: f64 = listed.iter().map(|partition| partition.ms).sum();
        if ms > rest.ms {
            listed
                .iter_mut()
                .for_each(|partition| partition.ms *= rest.ms / ms);
        }
        for partition in listed {
            rest.rows = rest.rows.saturating_sub(partition.rows);
            rest.blocks = (rest.blocks - partition.blocks).max(0);
            rest.ms = (rest.ms - partition.ms).max(0.0);
        }
        // What is left of a time that was rounded is nothing.
        if rest.rows > 0 || rest.blocks > 0 || rest.ms > 1e-6 * totals.total.time.get_or_zero().total_ms {
            shares.push(rest);
        }
    }
    shares
}

/// Adds what partitions did to a list, ordered by their nodes.
pub fn merge(list: &mut [ListedPartition], batch: &[PartitionSum]) {
    for of_node in batch.chunk_by(|one, next| one.node == next.node) {
        // The slowest ones that are not listed, in the order of their times.
        let mut slowest: [Option<&PartitionSum>; PER_NODE] = [None; PER_NODE];
        for partition in of_node {
            if let Some(listed) = list.iter_mut().find(|listed| listed.sum.is(partition)) {
                listed.sum.add(partition);
                listed.weight += partition.ms;
                continue;
            }
            let mut entering = Some(partition);
            for place in &mut slowest {
                let is_slower = match (&place, &entering) {
                    (Some(kept), Some(entering)) => entering.ms > kept.ms,
                    (None, _) => true,
                    (_, None) => break,
                };
                if is_slower {
                    std::mem::swap(place, &mut entering);
                }
            }
        }
        for partition in slowest.into_iter().flatten() {
            enter(list, of_node, partition);
        }
    }
}

/// Adds a partition to the list, if there is room or if it was much slower than the one with the least
/// weight. `of_node` is what all partitions of the node did.
fn enter(list: &mut [ListedPartition], of_node: &[PartitionSum], partition: &PartitionSum) {
    // A partition may be scanned twice.
    if let Some(listed) = list.iter_mut().find(|listed| listed.sum.is(partition)) {
        listed.sum.add(partition);
        listed.weight += partition.ms;
        return;
    }
    let is_of_node = |listed: &&mut ListedPartition| !listed.is_free() && listed.sum.node == partition.node;
    let count = list.iter_mut().filter(is_of_node).count();
    if count < PER_NODE
        && let Some(free) = list.iter_mut().find(|listed| listed.is_free())
    {
        *free = ListedPartition {
            sum: *partition,
            weight: partition.ms,
        };
        return;
    }
    let least = list.iter_mut().filter(is_of_node);
    let Some(least) = least.min_by(|one, other| one.weight.total_cmp(&other.weight)) else {
        return;
    };
    let its = of_node.iter().filter(|other| other.is(&least.sum));
    if partition.ms > MUCH_SLOWER * its.map(|its| its.ms).sum::<f64>() {
        *least = ListedPartition {
            sum: *partition,
            weight: least.weight + partition.ms,
        };
    }
}

/// The partitions of the executions that a session has not passed to the store yet: all that they scanned.
/// Zero bytes are none.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PendingPartitions {
    count: u64,
    partitions: [PartitionSum; PendingPartitions::MAX],
}

impl Default for PendingPartitions {
    fn default() -> Self {
        PendingPartitions {
            count: 0,
            partitions: [PartitionSum::default(); Self::MAX],
        }
    }
}

impl PendingPartitions {
    /// How many there may be.
    pub const MAX: usize = 32;

    /// Forgets all.
    #[inline(always)]
    pub fn clear(&mut self) {
        self.count = 0;
    }

    fn all(&self) -> &[PartitionSum] {
        self.partitions.get(..self.count as usize).unwrap_or_default()
    }

    /// Adds those of an execution. Returns false, and adds none, if there is no room for all.
    #[cold]
    #[inline(never)]
    pub fn add(&mut self, more: &[PartitionSum]) -> bool {
        let before = *self;
        for partition in more {
            let count = self.count as usize;
            let known = self.partitions.iter_mut().take(count);
            if let Some(known) = known.into_iter().find(|known| known.is(partition)) {
                known.add(partition);
            } else if let Some(free) = self.partitions.get_mut(count) {
                *free = *partition;
                self.count += 1;
            } else {
                *self = before;
                return false;
            }
        }
        true
    }

    /// Passes them on, ordered by their nodes.
    pub fn with_sorted<R>(&self, pass: impl FnOnce(&[PartitionSum]) -> R) -> R {
        if self.count == 0 {
            return pass(&[]);
        }
        let mut sorted = *self;
        let count = self.all().len();
        let sorted = &mut sorted.partitions[..count];
        sorted.sort_unstable_by_key(|partition| partition.node);
        pass(sorted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Buffers, Measured, Time};
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    fn partition(node: u32, relid: u32, ms: f64) -> PartitionSum {
        PartitionSum {
            node,
            relid,
            rows: u64::from(relid),
            blocks: 2,
            ms,
        }
    }

    fn relids(list: &[ListedPartition]) -> Vec<u32> {
        let mut relids: Vec<u32> = list.iter().map(|listed| listed.sum.relid).collect();
        relids.sort_unstable();
        relids
    }

    #[test]
    fn the_slowest_of_an_execution_are_listed() {
        let mut list = [ListedPartition::default(); PER_NODE];
        let batch: Vec<PartitionSum> = (1..=100).map(|i| partition(1, i, f64::from(i))).collect();
        merge(&mut list, &batch);
        assert_eq!(relids(&list), (93..=100).collect::<Vec<_>>());
        // Each further execution adds to all that are listed.
        merge(&mut list, &batch);
        assert_eq!(relids(&list), (93..=100).collect::<Vec<_>>());
        assert!(
            list.iter()
                .all(|listed| listed.sum.rows == 2 * u64::from(listed.sum.relid) && listed.sum.blocks == 4)
        );
    }

    #[test]
    fn one_that_becomes_slow_enters_and_counts_from_then_on() {
        let mut list = [ListedPartition::default(); PER_NODE];
        let old: Vec<PartitionSum> = (1..=12).map(|i| partition(1, i, 10.0)).collect();
        for _ in 0..100 {
            merge(&mut list, &old);
        }
        let before = relids(&list);
        for _ in 0..100 {
            merge(&mut list, &[partition(1, 99, 1.0)]);
        }
        let new = list
            .iter()
            .find(|listed| listed.sum.relid == 99)
            .expect("the new one");
        assert_eq!((new.sum.ms, new.sum.rows), (100.0, 9_900));
        // It took the place of one.
        assert_eq!(
            relids(&list)
                .iter()
                .filter(|relid| before.contains(relid))
                .count(),
            7
        );
    }

    #[test]
    fn partitions_that_take_about_as_long_do_not_replace_each_other() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(815);
        let mut list = [ListedPartition::default(); PER_NODE];
        let mut first = Vec::new();
        for _ in 0..1_000 {
            let batch: Vec<PartitionSum> = (1..=12)
                .map(|i| partition(1, i, random.random_range(10.0..19.0)))
                .collect();
            merge(&mut list, &batch);
            if first.is_empty() {
                first = relids(&list);
            }
        }
        assert_eq!(relids(&list), first);
        assert!(list.iter().all(|listed| listed.sum.blocks == 2_000));
    }

    #[test]
    fn each_node_has_a_list_of_its_own() {
        let mut list = [ListedPartition::default(); 2 * PER_NODE];
        let slow = (1..=20).map(|i| partition(1, i, 1_000.0));
        let fast = (1..=20).map(|i| partition(2, i, 1.0));
        merge(&mut list, &slow.chain(fast).collect::<Vec<_>>());
        for node in [1, 2] {
            let count = list.iter().filter(|listed| listed.sum.node == node).count();
            assert_eq!(count, PER_NODE, "node {node}");
        }
        // Without room, a node has no list. A partition that is scanned twice is one.
        let mut small = [ListedPartition::default(); 2];
        merge(
            &mut small,
            &[
                partition(1, 5, 1.0),
                partition(1, 5, 1.0),
                partition(2, 6, 1.0),
                partition(3, 7, 9.0),
            ],
        );
        assert_eq!(relids(&small), [5, 6]);
        assert_eq!(small[0].sum.ms, 2.0);
    }

    #[test]
    fn the_listed_ones_and_the_rest_are_the_sums_of_the_node() {
        let mut list = [ListedPartition::default(); PER_NODE];
        let batch: Vec<PartitionSum> = (1..=20).map(|i| partition(1, i, f64::from(i))).collect();
        merge(&mut list, &batch);
        let mut nodes = [NodeTotals::default(); 2];
        nodes[1].total.rows = 210;
        nodes[1].total.time = Time {
            total_ms: 210.0,
            ..Time::default()
        }
        .into();
        nodes[1].total.buffers = Buffers {
            shared_hit: 40,
            ..Buffers::default()
        }
        .into();
        let shares = shares(&list, &nodes);
        let relids: Vec<u32> = shares.iter().map(|share| share.relid).collect();
        assert_eq!(relids, [20, 19, 18, 17, 16, 15, 14, 13, 0]);
        assert_eq!(shares.iter().map(|share| share.rows).sum::<u64>(), 210);
        assert_eq!(shares.iter().map(|share| share.blocks).sum::<i64>(), 40);
        assert_eq!(shares.iter().map(|share| share.ms).sum::<f64>(), 210.0);
        // If they took longer together than the node, which is possible of estimates, they share its time.
        nodes[1].total.time = Time {
            total_ms: 66.0,
            ..Time::default()
        }
        .into();
        let longer = super::shares(&list, &nodes);
        assert!(
            (longer.iter().map(|share| share.ms).sum::<f64>() - 66.0).abs() < 1e-9,
            "{longer:?}"
        );
        assert_eq!(longer[0].ms, 10.0);
        nodes[1].total.time = Time {
            total_ms: 210.0,
            ..Time::default()
        }
        .into();
        // Nothing is left if all are listed.
        let mut list = [ListedPartition::default(); PER_NODE];
        merge(&mut list, &[partition(1, 210, 210.0)]);
        nodes[1].total.buffers = Measured::default();
        assert_eq!(super::shares(&list, &nodes).len(), 1);
    }

    #[test]
    fn pending_ones_are_all_or_none() {
        let mut pending = PendingPartitions::default();
        let many: Vec<PartitionSum> = (1..=40).map(|i| partition(40 - i, i, 1.0)).collect();
        assert!(pending.add(&many[..30]));
        assert!(!pending.add(&many[28..]));
        pending.with_sorted(|all| {
            assert_eq!((all.len(), all[0].relid, all[0].ms), (30, 30, 1.0));
            assert!(all.is_sorted_by_key(|partition| partition.node));
        });
        assert!(pending.add(&many[..30]));
        pending.with_sorted(|all| assert_eq!((all.len(), all[0].ms), (30, 2.0)));
        pending.clear();
        pending.with_sorted(|all| assert!(all.is_empty()));
        assert!(pending.add(&many[8..]));
    }
}
