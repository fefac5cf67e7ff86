//! What PostgreSQL knows of a node besides rows, time and blocks. It is read once, when a statement has
//! ended.
//!
//! A node has a few slots. Its kind says what they hold: [`NodeKind::facts`] is the one table of that. A new
//! fact is a line in the table, and one in `src/pg/results/facts.rs`, which reads it.

use super::measured::Measured;
use serde::{Deserialize, Serialize};

/// What a node is, as far as its facts depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[repr(u8)]
pub enum NodeKind {
    /// It has no facts, or the statement ended before they were known.
    #[default]
    Other,
    /// It may have a filter, and nothing else.
    Filter,
    /// A join of any method.
    Join,
    /// Index scan.
    IndexScan,
    /// Index-only scan.
    IndexOnlyScan,
    /// Bitmap index scan.
    BitmapIndexScan,
    /// Gather or gather merge.
    Gather,
    /// Append or merge append.
    Append,
    /// Insert.
    Insert,
    /// Insert with ON CONFLICT.
    InsertOnConflict,
    /// Update.
    Update,
    /// Delete.
    Delete,
    /// Merge.
    Merge,
    /// Sort. The kinds from here on also use the slots that most nodes do not need: see
    /// [`NodeKind::is_rich`].
    Sort,
    /// Incremental sort.
    IncrementalSort,
    /// The hash table of a hash join.
    Hash,
    /// An aggregate that hashes its groups.
    HashAggregate,
    /// Memoize.
    Memoize,
    /// A node that stores rows: CTE scan, materialize, window and others (PostgreSQL 18 and newer).
    Storage,
    /// Bitmap heap scan.
    BitmapHeapScan,
    /// Sequential or TID range scan, if it is known how it read ahead (PostgreSQL 19 and newer).
    TableScan,
}

/// Where a fact is stored, which is also the rule for many executions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// A number that is summed up.
    Sum(usize),
    /// A number whose largest value is kept.
    Peak(usize),
}

/// When a fact is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// Always.
    Always,
    /// If the node has the condition with this label, or if the fact is not zero.
    With(&'static str),
    /// If it is not zero: PostgreSQL does not always know it.
    IfKnown,
}

/// A fact of a kind of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fact {
    /// EXPLAIN's key.
    pub key: &'static str,
    /// Where it is stored.
    pub slot: Slot,
    /// When it is shown.
    pub shown: Shown,
}

const fn fact(key: &'static str, slot: Slot, shown: Shown) -> Fact {
    Fact { key, slot, shown }
}

/// The number of sums. Kinds that are not rich use the first [`SIMPLE_SUMS`].
pub const SUMS: usize = 10;
/// The number of peaks.
pub const PEAKS: usize = 4;
/// The number of sums that most kinds use.
pub const SIMPLE_SUMS: usize = 4;

/// The sum that counts the rows which a filter removed, for kinds that may have one.
pub const REMOVED_BY_FILTER: usize = 0;
/// The sum that counts the rows which a join filter or a recheck removed, for the same kinds.
pub const REMOVED_OTHERWISE: usize = 1;
/// The sum that counts an index-only scan's visits of the table.
pub const HEAP_FETCHES: usize = 2;
/// The sum that counts the searches of an index scan.
pub const INDEX_SEARCHES: usize = 3;
/// The sum that counts the rows of an INSERT that had a conflict.
pub const CONFLICTS: usize = 3;
/// The sum that counts the partitions of an Append that are one node.
pub const PARTITIONS_PLANNED: usize = 0;
/// The sum that counts those of them that ran.
pub const PARTITIONS_RUN: usize = 1;
/// The sum that counts the inputs of an Append that were pruned before it ran.
pub const SUBPLANS_REMOVED: usize = 2;
/// The first of the sums of [`ScanIo`], for scans that read ahead.
pub const SCAN_IO: usize = 4;

const FILTER: Fact = fact(
    "Rows Removed by Filter",
    Slot::Sum(REMOVED_BY_FILTER),
    Shown::With("Filter"),
);
const RECHECK: &str = "Rows Removed by Index Recheck";
const INDEX_RECHECK: Fact = fact(RECHECK, Slot::Sum(REMOVED_OTHERWISE), Shown::With("Index Cond"));
const SEARCHES: Fact = fact("Index Searches", Slot::Sum(INDEX_SEARCHES), Shown::IfKnown);

impl NodeKind {
    /// Returns the facts of nodes of this kind. Memory, disk, and what [`crate::details`] computes are not
    /// among them.
    pub fn facts(self) -> &'static [Fact] {
        use Shown::{Always, IfKnown, With};
        use Slot::{Peak, Sum};
        match self {
            NodeKind::Other | NodeKind::Sort | NodeKind::IncrementalSort => const { &[] },
            NodeKind::Filter | NodeKind::Storage | NodeKind::TableScan => const { &[FILTER] },
            NodeKind::Join => {
                const {
                    &[
                        FILTER,
                        fact(
                            "Rows Removed by Join Filter",
                            Sum(REMOVED_OTHERWISE),
                            With("Join Filter"),
                        ),
                    ]
                }
            }
            NodeKind::IndexScan => const { &[FILTER, INDEX_RECHECK, SEARCHES] },
            NodeKind::IndexOnlyScan => {
                const {
                    &[
                        FILTER,
                        INDEX_RECHECK,
                        SEARCHES,
                        fact("Heap Fetches", Sum(HEAP_FETCHES), Always),
                    ]
                }
            }
            NodeKind::BitmapIndexScan => const { &[SEARCHES] },
            NodeKind::BitmapHeapScan => {
                const {
                    &[
                        FILTER,
                        fact(RECHECK, Sum(REMOVED_OTHERWISE), With("Recheck Cond")),
                        fact("Exact Heap Blocks", Sum(2), Always),
                        fact("Lossy Heap Blocks", Sum(3), Always),
                    ]
                }
            }
            NodeKind::Gather => {
                const {
                    &[
                        FILTER,
                        fact("Workers Planned", Sum(2), Always),
                        fact("Workers Launched", Sum(3), Always),
                    ]
                }
            }
            NodeKind::Append => {
                const {
                    &[
                        fact("Subplans Removed", Sum(SUBPLANS_REMOVED), Always),
                        fact("Partitions Planned", Sum(PARTITIONS_PLANNED), IfKnown),
                        fact("Partitions Run", Sum(PARTITIONS_RUN), IfKnown),
                    ]
                }
            }
            NodeKind::Insert => const { &[fact("Tuples Inserted", Sum(0), Always)] },
            NodeKind::Update => const { &[fact("Tuples Updated", Sum(1), Always)] },
            NodeKind::Delete => const { &[fact("Tuples Deleted", Sum(2), Always)] },
            NodeKind::InsertOnConflict => {
                const {
                    &[
                        fact(
                            "Rows Removed by Conflict Filter",
                            Sum(REMOVED_BY_FILTER),
                            With("Conflict Filter"),
                        ),
                        fact("Conflicting Tuples", Sum(CONFLICTS), Always),
                    ]
                }
            }
            NodeKind::Merge => {
                const {
                    &[
                        fact("Tuples Inserted", Sum(0), Always),
                        fact("Tuples Updated", Sum(1), Always),
                        fact("Tuples Deleted", Sum(2), Always),
                    ]
                }
            }
            NodeKind::Hash => {
                const {
                    &[
                        fact("Hash Buckets", Peak(0), IfKnown),
                        fact("Original Hash Buckets", Peak(1), IfKnown),
                        fact("Hash Batches", Peak(2), IfKnown),
                        fact("Original Hash Batches", Peak(3), IfKnown),
                    ]
                }
            }
            NodeKind::HashAggregate => {
                const {
                    &[
                        FILTER,
                        fact("Planned Partitions", Peak(0), Always),
                        fact("HashAgg Batches", Peak(1), Always),
                    ]
                }
            }
            NodeKind::Memoize => {
                const {
                    &[
                        fact("Cache Hits", Sum(0), Always),
                        fact("Cache Misses", Sum(1), Always),
                        fact("Cache Evictions", Sum(2), Always),
                        fact("Cache Overflows", Sum(3), Always),
                    ]
                }
            }
        }
    }

    /// Returns whether nodes of this kind use more than the first sums. Most nodes do not, and add only
    /// those.
    #[inline(always)]
    pub(crate) fn is_rich(self) -> bool {
        self >= NodeKind::Sort
    }
}

/// The facts of a node in one execution, or in many of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeFacts {
    /// Numbers that are summed up. The kind says what they count.
    pub sums: [u64; SUMS],
    /// Numbers whose largest value is kept. The kind says what they are.
    pub peaks: [u32; PEAKS],
    /// Peak working memory in kB, if PostgreSQL knows it (sort, hash, aggregate, memoize).
    pub memory_kb: Measured<u32>,
    /// Peak disk space of the work area in kB, if PostgreSQL knows it.
    pub disk_kb: Measured<u32>,
    /// Bits of the methods that were used: of sorting ([`SORT_METHODS`]) or of storing rows ([`STORAGE`]). An
    /// incremental sort has those of presorted groups in the second byte.
    pub methods: u32,
    /// What the node is.
    pub kind: NodeKind,
}

/// The facts of a node that are only the first sums.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SimpleFacts {
    /// What the node is.
    pub kind: NodeKind,
    /// Numbers that are summed up.
    pub sums: [u64; SIMPLE_SUMS],
}

impl From<SimpleFacts> for NodeFacts {
    #[inline(always)]
    fn from(simple: SimpleFacts) -> NodeFacts {
        let mut facts = NodeFacts {
            kind: simple.kind,
            ..NodeFacts::default()
        };
        facts.sums[..SIMPLE_SUMS].copy_from_slice(&simple.sums);
        facts
    }
}

/// How a scan read blocks ahead, and its reads (PostgreSQL 19 and newer).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ScanIo {
    /// The number of blocks that the scan was given.
    pub blocks: u64,
    /// The sum of how far ahead it was at each of these blocks, in blocks.
    pub distances: u64,
    /// How often it waited for a read.
    pub waits: u64,
    /// The number of reads. A read is of one or several blocks.
    pub reads: u64,
    /// The number of blocks that were read.
    pub read_blocks: u64,
    /// The sum of how many reads were in progress at each read.
    pub in_progress: u64,
    /// How far ahead it was at most, in blocks.
    pub max_distance: u32,
    /// How far ahead it could have been, in blocks.
    pub capacity: u32,
}

impl ScanIo {
    /// Returns the mean of a sum over these counts; 0 if there are none.
    fn mean(sum: u64, counts: u64) -> f64 {
        sum as f64 / counts.max(1) as f64
    }

    /// Returns how far ahead the scan was on average, in blocks.
    pub fn mean_distance(&self) -> f64 {
        Self::mean(self.distances, self.blocks)
    }

    /// Returns the mean size of a read, in blocks.
    pub fn mean_size(&self) -> f64 {
        Self::mean(self.read_blocks, self.reads)
    }

    /// Returns how many reads were in progress on average.
    pub fn mean_in_progress(&self) -> f64 {
        Self::mean(self.in_progress, self.reads)
    }
}

/// The names of PostgreSQL's sort methods, the first for the lowest bit.
pub const SORT_METHODS: [&str; 4] = ["top-N heapsort", "quicksort", "external sort", "external merge"];

/// The names of the places where a tuplestore keeps its rows, the first for the lowest bit.
pub const STORAGE: [&str; 2] = ["Memory", "Disk"];

/// Returns the names of the methods whose bits are set.
pub fn names(methods: u32, all: &'static [&'static str]) -> impl Iterator<Item = &'static str> {
    let names = all.iter().enumerate();
    names
        .filter(move |(bit, _)| methods >> bit & 1 == 1)
        .map(|(_, name)| *name)
}

impl NodeFacts {
    /// Returns them if they are only the first sums.
    pub fn simple(&self) -> Option<SimpleFacts> {
        let [a, b, c, d, others @ ..] = self.sums;
        let is_simple = !self.kind.is_rich()
            // It has other sums only if it is known how it read ahead.
            || self.kind == NodeKind::BitmapHeapScan && others.iter().all(|sum| *sum == 0);
        is_simple.then_some(SimpleFacts {
            kind: self.kind,
            sums: [a, b, c, d],
        })
    }

    /// Adds those of an execution.
    #[inline(always)]
    pub fn add(&mut self, execution: &NodeFacts) {
        if execution.kind == NodeKind::Other {
            return;
        }
        self.kind = execution.kind;
        for i in 0..SIMPLE_SUMS {
            self.sums[i] += execution.sums[i];
        }
        if execution.kind.is_rich() {
            self.add_rich(execution);
        }
    }

    /// Adds the slots that most nodes do not use.
    #[inline(never)]
    fn add_rich(&mut self, execution: &NodeFacts) {
        for i in SIMPLE_SUMS..SUMS {
            self.sums[i] += execution.sums[i];
        }
        for (peak, other) in self.peaks.iter_mut().zip(execution.peaks) {
            *peak = other.max(*peak);
        }
        self.memory_kb.raise_to(execution.memory_kb);
        self.disk_kb.raise_to(execution.disk_kb);
        self.methods |= execution.methods;
    }

    /// Returns the value of a fact.
    pub fn get(&self, fact: &Fact) -> u64 {
        match fact.slot {
            Slot::Sum(slot) => self.sums[slot],
            Slot::Peak(slot) => u64::from(self.peaks[slot]),
        }
    }

    /// Returns whether one process has done something that EXPLAIN shows of each process by itself.
    pub fn is_known(&self) -> bool {
        match self.kind {
            NodeKind::Sort => self.methods != 0,
            NodeKind::IncrementalSort => self.sums[0] > 0,
            NodeKind::HashAggregate => self.memory_kb.get().is_some(),
            NodeKind::Memoize => self.sums[1] > 0,
            NodeKind::BitmapHeapScan => self.sums[2] + self.sums[3] > 0 || self.scan_io().is_some(),
            NodeKind::TableScan => self.scan_io().is_some(),
            _ => false,
        }
    }

    /// Adds how a scan read ahead.
    pub fn add_scan_io(&mut self, io: &ScanIo) {
        let sums = [
            io.blocks,
            io.distances,
            io.waits,
            io.reads,
            io.read_blocks,
            io.in_progress,
        ];
        for (sum, other) in self.sums[SCAN_IO..].iter_mut().zip(sums) {
            *sum += other;
        }
        for (peak, other) in self.peaks.iter_mut().zip([io.max_distance, io.capacity]) {
            *peak = other.max(*peak);
        }
    }

    /// Returns how a scan read ahead; `None` if it did not, or if this is not known.
    pub fn scan_io(&self) -> Option<ScanIo> {
        let is_scan = matches!(self.kind, NodeKind::BitmapHeapScan | NodeKind::TableScan);
        let [.., blocks, distances, waits, reads, read_blocks, in_progress] = self.sums;
        let [max_distance, capacity, ..] = self.peaks;
        (is_scan && blocks > 0).then_some(ScanIo {
            blocks,
            distances,
            waits,
            reads,
            read_blocks,
            in_progress,
            max_distance,
            capacity,
        })
    }

    /// Returns how many workers a Gather planned and launched.
    pub fn workers(&self) -> Option<[u64; 2]> {
        (self.kind == NodeKind::Gather).then(|| [self.sums[2], self.sums[3]])
    }

    /// Returns how often an index-only scan had to visit the table.
    pub fn heap_fetches(&self) -> Option<u64> {
        (self.kind == NodeKind::IndexOnlyScan).then(|| self.sums[HEAP_FETCHES])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [NodeKind; 21] = [
        NodeKind::Other,
        NodeKind::Filter,
        NodeKind::Join,
        NodeKind::IndexScan,
        NodeKind::IndexOnlyScan,
        NodeKind::BitmapIndexScan,
        NodeKind::Gather,
        NodeKind::Append,
        NodeKind::Insert,
        NodeKind::InsertOnConflict,
        NodeKind::Update,
        NodeKind::Delete,
        NodeKind::Merge,
        NodeKind::Sort,
        NodeKind::IncrementalSort,
        NodeKind::Hash,
        NodeKind::HashAggregate,
        NodeKind::Memoize,
        NodeKind::Storage,
        NodeKind::BitmapHeapScan,
        NodeKind::TableScan,
    ];

    /// A slot that a kind's facts use must be added for that kind.
    #[test]
    fn each_slot_has_one_fact_and_is_added() {
        for kind in ALL {
            let mut slots: Vec<Slot> = Vec::new();
            for fact in kind.facts() {
                assert!(!slots.contains(&fact.slot), "{kind:?}: {fact:?}");
                slots.push(fact.slot);
                let mut one = NodeFacts {
                    kind,
                    ..NodeFacts::default()
                };
                match fact.slot {
                    Slot::Sum(slot) => one.sums[slot] = 3,
                    Slot::Peak(slot) => one.peaks[slot] = 3,
                }
                let mut total = NodeFacts::default();
                total.add(&one);
                total.add(&one);
                let expected = if matches!(fact.slot, Slot::Sum(_)) { 6 } else { 3 };
                assert_eq!(total.get(fact), expected, "{kind:?}: {fact:?}");
                assert_eq!(total.kind, kind);
            }
        }
    }

    #[test]
    fn reading_ahead_is_summed_up() {
        let io = ScanIo {
            blocks: 10,
            distances: 25,
            waits: 1,
            reads: 4,
            read_blocks: 6,
            in_progress: 2,
            max_distance: 5,
            capacity: 16,
        };
        for kind in [NodeKind::BitmapHeapScan, NodeKind::TableScan] {
            let mut one = NodeFacts {
                kind,
                ..NodeFacts::default()
            };
            assert_eq!(one.scan_io(), None);
            one.add_scan_io(&io);
            assert_eq!(one.scan_io(), Some(io));
            let mut total = NodeFacts::default();
            total.add(&one);
            total.add(&one);
            let total = total.scan_io().expect("it is known");
            assert_eq!((total.blocks, total.in_progress, total.max_distance), (20, 4, 5));
            assert_eq!(
                (total.mean_distance(), total.mean_size(), total.mean_in_progress()),
                (2.5, 1.5, 0.5)
            );
        }
        assert_eq!(ScanIo::default().mean_size(), 0.0);
    }

    /// An execution that ended before anything was known does not change what is known.
    #[test]
    fn an_unknown_kind_adds_nothing() {
        let sort = NodeFacts {
            kind: NodeKind::Sort,
            methods: 2,
            disk_kb: 5.into(),
            ..NodeFacts::default()
        };
        let mut total = sort;
        total.add(&NodeFacts::default());
        assert_eq!(total, sort);
    }
}
