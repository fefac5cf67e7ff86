//! A small executor runs plans, and the estimate is compared with what it did in the end.

use super::kind::Kind;
use super::*;
use crate::plan::{Attribute, PlanNode, Relationship};
use std::cell::RefCell;
use std::rc::Rc;

const ROWS_PER_BLOCK: u64 = 50;
const MAX_ROWS_PER_BLOCK: f64 = 291.0;

/// An operation of the executor.
enum Op {
    /// Returns each `each`-th row of a table of `rows` rows.
    Scan {
        rows: u64,
        each: u64,
    },
    /// Returns this number of rows.
    Function {
        rows: u64,
    },
    Sort,
    /// Keeps the rows of its input, and returns them at each start.
    Materialize,
    Limit {
        rows: u64,
    },
    Aggregate,
    /// Each outer row finds `matches` rows.
    HashJoin {
        matches: u64,
    },
    NestedLoop,
    Append,
}

/// What a node counts.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    starts: u64,
    rows: u64,
    removed: u64,
    blocks: u64,
}

struct Executor {
    ops: Vec<(Op, Vec<usize>)>,
    plan: Vec<PlanNode>,
    counts: Rc<RefCell<Vec<Count>>>,
    history: Vec<Vec<Count>>,
    steps: u64,
}

impl Executor {
    fn new() -> Self {
        Executor {
            ops: Vec::new(),
            plan: Vec::new(),
            counts: Rc::default(),
            history: Vec::new(),
            steps: 0,
        }
    }

    fn add(&mut self, parent: Option<usize>, operation: &str, plan_rows: f64, op: Op) -> usize {
        let id = self.plan.len();
        let is_second = parent.is_some_and(|parent| !self.ops[parent].1.is_empty());
        let is_stopped = parent.is_some_and(|parent| {
            matches!(self.ops[parent].0, Op::Limit { .. })
                || self.plan[parent].may_stop_early && !matches!(self.ops[parent].0, Op::Sort)
        });
        self.plan.push(PlanNode {
            id,
            parent,
            operation: operation.to_owned(),
            plan_rows,
            may_stop_early: is_stopped,
            relationship: match (parent, is_second) {
                (None, _) => Relationship::Unknown,
                (_, true) => Relationship::Inner,
                _ => Relationship::Outer,
            },
            ..PlanNode::default()
        });
        self.ops.push((op, Vec::new()));
        self.counts.borrow_mut().push(Count::default());
        if let Some(parent) = parent {
            self.ops[parent].1.push(id);
        }
        id
    }

    /// Runs a node, and calls `each` for each row. `each` returns whether it wants more.
    fn run(&mut self, i: usize, each: &mut dyn FnMut(&mut Executor) -> bool) -> bool {
        self.count(i, |count| count.starts += 1);
        let inputs = self.ops[i].1.clone();
        match self.ops[i].0 {
            Op::Scan { rows, each: nth } => {
                for row in 0..rows {
                    if row % ROWS_PER_BLOCK == 0 {
                        self.count(i, |count| count.blocks += 1);
                    }
                    // A condition runs them.
                    for &subplan in &inputs {
                        self.run(subplan, &mut |_| true);
                    }
                    if row % nth != 0 {
                        self.count(i, |count| count.removed += 1);
                    } else if !self.emit(i, each) {
                        return false;
                    }
                }
                true
            }
            Op::Function { rows } => (0..rows).all(|_| self.emit(i, each)),
            Op::Sort => {
                let mut rows = 0;
                self.run(inputs[0], &mut |_| {
                    rows += 1;
                    true
                });
                (0..rows).all(|_| self.emit(i, each))
            }
            Op::Materialize => {
                if self.counts.borrow()[i].starts == 1 {
                    self.run(inputs[0], &mut |_| true);
                }
                let rows = self.counts.borrow()[inputs[0]].rows;
                (0..rows).all(|_| self.emit(i, each))
            }
            Op::Aggregate => {
                self.run(inputs[0], &mut |_| true);
                self.emit(i, each)
            }
            Op::Limit { rows } => {
                let mut left = rows;
                self.run(inputs[0], &mut |executor| {
                    left -= 1;
                    executor.emit(i, each) && left > 0
                });
                true
            }
            Op::HashJoin { matches } => {
                let mut built = None;
                self.run(inputs[0], &mut |executor| {
                    let rows = *built.get_or_insert_with(|| {
                        let mut rows = 0;
                        executor.run(inputs[1], &mut |_| {
                            rows += 1;
                            true
                        });
                        rows
                    });
                    rows > 0 && (0..matches).all(|_| executor.emit(i, each))
                })
            }
            Op::NestedLoop => self.run(inputs[0], &mut |executor| {
                executor.run(inputs[1], &mut |executor| executor.emit(i, each))
            }),
            Op::Append => inputs
                .into_iter()
                .all(|input| self.run(input, &mut |executor| executor.emit(i, each))),
        }
    }

    fn emit(&mut self, i: usize, each: &mut dyn FnMut(&mut Executor) -> bool) -> bool {
        self.count(i, |count| count.rows += 1);
        each(self)
    }

    fn count(&mut self, i: usize, change: impl FnOnce(&mut Count)) {
        change(&mut self.counts.borrow_mut()[i]);
        self.steps += 1;
        if self.steps.is_multiple_of(37) {
            self.history.push(self.counts.borrow().clone());
        }
    }

    fn nodes(&self, counts: &[Count], rows_per_block: Option<f64>) -> Vec<Node<'_>> {
        let nodes = self.plan.iter().zip(counts).zip(&self.ops);
        nodes
            .map(|((plan, count), (op, _))| Node {
                plan,
                plan_rows: plan.plan_rows,
                starts: Some(count.starts),
                rows: count.rows,
                removed: count.removed,
                self_ms: None,
                waiting_ms: 0.0,
                work_files: [0.0; 2],
                blocks: Some(count.blocks as f64),
                table: match op {
                    Op::Scan { rows, .. } => Some(Table {
                        blocks: rows.div_ceil(ROWS_PER_BLOCK) as f64,
                        least_blocks: rows.div_ceil(ROWS_PER_BLOCK) as f64,
                        max_rows_per_block: MAX_ROWS_PER_BLOCK,
                        rows_per_block,
                    }),
                    _ => None,
                },
                has_constant_limit: matches!(op, Op::Limit { .. }),
            })
            .collect()
    }

    /// Runs the plan. Fails unless all bounds held and the lower bound never fell. Returns the states and
    /// their progress.
    fn check(&mut self, rows_per_block: Option<f64>) -> Vec<(f64, Progress)> {
        self.run(0, &mut |_| true);
        let last = self.counts.borrow().clone();
        let mut seen = Vec::new();
        let mut lowest = 0.0;
        for counts in &self.history {
            let nodes = self.nodes(counts, rows_per_block);
            let plan = Plan::new(&nodes, 0, false).expect("a plan");
            let bounds = Bounds::of(&plan);
            for (i, (now, last)) in counts.iter().zip(&last).enumerate() {
                let range = &bounds.rows[i];
                let last_rows = last.rows as f64;
                assert!(
                    range.total_low <= last_rows && last_rows <= range.total_high,
                    "node {i} returns {last_rows} rows: {range:?} at {counts:?}"
                );
                assert!(
                    !bounds.is_complete[i] || now.rows == last.rows,
                    "node {i}: {counts:?}"
                );
                let scan = &bounds.scans[i];
                let is_blocks = matches!(plan.kinds[i], Kind::SeqScan { .. });
                if is_blocks && bounds.runs_once[i] && !bounds.is_complete[i] {
                    let (now, last) = (now.blocks as f64, last.blocks as f64);
                    assert!(
                        scan.seen_low <= now && now <= scan.seen_high,
                        "node {i}: {scan:?}"
                    );
                    assert!(
                        scan.total_low <= last && last <= scan.total_high,
                        "node {i}: {scan:?}"
                    );
                }
            }
            let progress = progress(&nodes, 0, false).expect("progress");
            let Progress { low, done, high, .. } = progress;
            assert!(
                0.0 <= low && low <= done && done <= high && high <= 100.0,
                "{progress:?}"
            );
            assert!(low >= lowest - 1e-9, "{lowest} {progress:?}");
            lowest = low;
            let work = |counts: &[Count]| counts.iter().map(|it| it.rows + it.removed).sum::<u64>() as f64;
            seen.push((100.0 * work(counts) / work(&last), progress));
        }
        seen
    }
}

fn scan(rows: u64) -> Op {
    Op::Scan { rows, each: 1 }
}

#[test]
fn a_scan_is_as_far_as_its_blocks() {
    for rows_per_block in [Some(50.0), Some(5.0), None] {
        let mut executor = Executor::new();
        let root = executor.add(None, "Aggregate", 1.0, Op::Aggregate);
        executor.add(
            Some(root),
            "Seq Scan",
            10.0,
            Op::Scan {
                rows: 100_000,
                each: 7,
            },
        );
        for (truth, progress) in executor.check(rows_per_block) {
            assert_eq!(progress.basis, Basis::Rows);
            // The weights of blocks, and so the percents, depend on the rows per block.
            let is_known = rows_per_block == Some(50.0);
            let limit = if is_known { 1.5 } else { 10.0 };
            assert!((progress.done - truth).abs() < limit, "{truth}: {progress:?}");
            assert!(
                !is_known || progress.high < 1.3 * truth + 2.0 && progress.low > (truth - 2.0) / 50.0,
                "{truth}: {progress:?}"
            );
        }
    }
}

#[test]
fn a_sort_returns_what_it_has_read() {
    let mut executor = Executor::new();
    let sort = executor.add(None, "Sort", 3.0, Op::Sort);
    executor.add(Some(sort), "Seq Scan", 3.0, scan(20_000));
    let seen = executor.check(Some(50.0));
    // In its second half all of it is known, although the planner expected 3 rows.
    let (truth, progress) = &seen[seen.len() * 3 / 4];
    assert!(
        *truth > 70.0 && progress.high - progress.low < 1e-6,
        "{truth} {progress:?}"
    );
    assert!(seen.last().expect("the end").1.done > 99.0);
}

/// A join of which the planner expected a hundredth, or hundred times as many rows.
#[test]
fn a_join_corrects_the_planner() {
    for (planned, matches) in [(5_000.0, 5), (50.0, 5), (5_000_000.0, 5), (5_000.0, 0)] {
        let mut executor = Executor::new();
        let root = executor.add(None, "Aggregate", 1.0, Op::Aggregate);
        let join = executor.add(Some(root), "Hash Join", planned, Op::HashJoin { matches });
        executor.add(Some(join), "Seq Scan", 10_000.0, scan(10_000));
        let hash = executor.add(Some(join), "Hash", 1_000.0, Op::Sort);
        executor.add(Some(hash), "Seq Scan", 1_000.0, scan(1_000));
        let seen = executor.check(Some(50.0));
        for (truth, progress) in &seen[seen.len() / 2..] {
            assert!(
                (progress.done - truth).abs() < 15.0,
                "{planned}: {truth} {progress:?}"
            );
        }
    }
}

/// The outer side of a hash join is not read to its end if the hash table is empty.
#[test]
fn an_empty_hash_table_ends_a_join() {
    let mut executor = Executor::new();
    let join = executor.add(None, "Hash Join", 100.0, Op::HashJoin { matches: 1 });
    executor.add(Some(join), "Seq Scan", 10_000.0, scan(10_000));
    let hash = executor.add(Some(join), "Hash", 1_000.0, Op::Sort);
    executor.add(Some(hash), "Function Scan", 1_000.0, Op::Function { rows: 0 });
    executor.history.push(vec![Count::default(); 4]);
    executor.check(Some(50.0));
}

/// Nothing bounds the rows of a function, and the join does no work for those of the hash table.
#[test]
fn a_hash_table_may_have_any_number_of_rows() {
    let mut executor = Executor::new();
    let join = executor.add(None, "Hash Join", 100.0, Op::HashJoin { matches: 1 });
    executor.plan[join]
        .attributes
        .push((Attribute::InnerUnique, String::new()));
    executor.add(Some(join), "Seq Scan", 10_000.0, scan(10_000));
    let hash = executor.add(Some(join), "Hash", 1_000.0, Op::Sort);
    executor.add(
        Some(hash),
        "Function Scan",
        1_000.0,
        Op::Function { rows: 20_000 },
    );
    let seen = executor.check(Some(50.0));
    // Nothing is known while the table is built, and the rest follows from the size of the other side.
    let (_, building) = seen[seen.len() / 10];
    assert_eq!((building.low, building.high), (0.0, 100.0));
    let (truth, probing) = seen[seen.len() * 9 / 10];
    assert!(probing.low > 10.0 && probing.done > 50.0, "{truth}: {probing:?}");
}

/// Nothing bounds how often a condition runs its plan. What it scans follows from its starts, if statistics
/// are missing.
#[test]
fn a_subplan_may_run_any_number_of_times() {
    for rows_per_block in [Some(50.0), None] {
        let mut executor = Executor::new();
        let root = executor.add(None, "Aggregate", 1.0, Op::Aggregate);
        let table = executor.add(Some(root), "Seq Scan", 1_000.0, scan(1_000));
        let subplan = executor.add(Some(table), "Seq Scan", 100.0, scan(100));
        executor.plan[subplan].relationship = Relationship::SubPlan;
        let seen = executor.check(rows_per_block);
        for (truth, progress) in &seen[seen.len() / 4..] {
            assert_eq!((progress.low, progress.high), (0.0, 100.0));
            assert!(
                (progress.done - truth).abs() < 15.0,
                "{rows_per_block:?}: {truth}: {progress:?}"
            );
        }
    }
}

#[test]
fn loops_limits_and_partitions_keep_their_bounds() {
    for (planned, limit) in [(100.0, 250), (1.0, 100_000), (100_000.0, 7)] {
        let mut executor = Executor::new();
        let root = executor.add(None, "Limit", limit as f64, Op::Limit { rows: limit });
        let sort = executor.add(Some(root), "Sort", planned, Op::Sort);
        let join = executor.add(Some(sort), "Nested Loop", planned, Op::NestedLoop);
        let append = executor.add(Some(join), "Append", planned, Op::Append);
        executor.add(
            Some(append),
            "Seq Scan",
            planned,
            Op::Scan { rows: 500, each: 10 },
        );
        executor.add(
            Some(append),
            "Seq Scan",
            planned,
            Op::Scan { rows: 700, each: 10 },
        );
        executor.add(Some(join), "Index Scan", 1.0, Op::Scan { rows: 100, each: 50 });
        executor.check(Some(50.0));

        let mut executor = Executor::new();
        let root = executor.add(None, "Limit", limit as f64, Op::Limit { rows: limit });
        let join = executor.add(Some(root), "Nested Loop", planned, Op::NestedLoop);
        executor.add(Some(join), "Seq Scan", planned, scan(300));
        let inner = executor.add(Some(join), "Materialize", planned, Op::Materialize);
        executor.add(Some(inner), "Seq Scan", planned, scan(40));
        executor.check(None);
    }
}

/// A start that still runs has not returned all of its rows: a loop within a loop of one turn, and a scan
/// that each turn repeats.
#[test]
fn a_start_that_runs_is_not_complete() {
    // The planner expected a hundredth of the rows.
    for (turns, tables) in [(1, 100), (3, 30)] {
        let mut executor = Executor::new();
        let root = executor.add(None, "Aggregate", 1.0, Op::Aggregate);
        let outer = executor.add(Some(root), "Nested Loop", 1.0, Op::NestedLoop);
        executor.add(Some(outer), "Seq Scan", 1.0, scan(turns));
        let inner = executor.add(Some(outer), "Nested Loop", 1.0, Op::NestedLoop);
        executor.add(Some(inner), "Seq Scan", 1.0, scan(tables));
        executor.add(
            Some(inner),
            "Seq Scan",
            10.0,
            Op::Scan {
                rows: 1_000,
                each: 100,
            },
        );
        let seen = executor.check(Some(50.0));
        let count = seen.len() as f64;
        let errors: f64 = seen
            .iter()
            .map(|(truth, progress)| (progress.done - truth).abs())
            .sum();
        let highest = seen.iter().map(|(truth, progress)| progress.done - truth);
        let highest = highest.fold(0.0, f64::max);
        assert!(
            errors / count < 20.0 && highest < 30.0,
            "{turns}: {} {highest}",
            errors / count
        );
    }
}

#[test]
fn a_function_rests_on_the_planner() {
    let mut executor = Executor::new();
    let root = executor.add(None, "Aggregate", 1.0, Op::Aggregate);
    executor.add(Some(root), "Function Scan", 100.0, Op::Function { rows: 10_000 });
    let seen = executor.check(None);
    assert!(
        seen.iter()
            .all(|(_, progress)| progress.basis == Basis::Planner && progress.low == 0.0)
    );
}

/// A key finds one row at most, so the loop returns no more rows than its outer side.
#[test]
fn unique_lookups_are_bounded() {
    let mut executor = Executor::new();
    let join = executor.add(None, "Nested Loop", 10.0, Op::NestedLoop);
    executor.plan[join]
        .attributes
        .push((Attribute::InnerUnique, String::new()));
    executor.add(Some(join), "Seq Scan", 1_000.0, scan(1_000));
    executor.add(Some(join), "Index Scan", 1.0, scan(1));
    executor.plan[2].may_stop_early = true;
    let seen = executor.check(Some(50.0));
    let (truth, progress) = &seen[seen.len() / 2];
    assert!(
        progress.low > truth / 7.0 && (progress.done - truth).abs() < 10.0,
        "{truth} {progress:?}"
    );
}

#[test]
fn what_is_not_known_is_not_told() {
    assert_eq!(progress(&[], 0, false), None);
    let mut executor = Executor::new();
    executor.add(None, "VACUUM", 0.0, Op::Function { rows: 0 });
    let counts = [Count::default()];
    assert_eq!(progress(&executor.nodes(&counts, None), 0, false), None);
}

#[test]
fn operations_are_recognised() {
    use kind::{Kept, Method};
    for (operation, kind) in [
        ("Parallel Seq Scan", Kind::SeqScan { is_shared: true }),
        ("Index Only Scan Backward", Kind::TableScan { is_shared: false }),
        ("Partial HashAggregate", Kind::HashAggregate),
        ("HashSetOp Except", Kind::HashAggregate),
        ("Finalize Aggregate", Kind::PlainAggregate),
        ("Parallel Append", Kind::Append { is_in_order: false }),
        ("Custom Scan (Columnar)", Kind::Other),
    ] {
        assert_eq!(Kind::of(operation), kind, "{operation}");
    }
    for (operation, method, kept) in [
        ("Nested Loop", Method::NestedLoop, Kept::Neither),
        ("Nested Loop Left Join", Method::NestedLoop, Kept::Outer),
        ("Parallel Hash Right Anti Join", Method::Hash, Kept::InnerOnly),
        ("Hash Semi Join", Method::Hash, Kept::OuterOnly),
        ("Merge Full Join", Method::Merge, Kept::Both),
    ] {
        assert_eq!(Kind::of(operation), Kind::Join { method, kept }, "{operation}");
    }
}
