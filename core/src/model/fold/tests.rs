mod random;

use super::*;
use crate::model::{Buffers, Estimate, Estimates, Wal};

/// A node and what is below it.
#[derive(Clone)]
struct Made {
    part: PlanPart,
    below: Vec<Made>,
    /// It is an Append of whole queries.
    appends_queries: bool,
}

const APPEND: u64 = 1_000;

fn node(number: u64, below: Vec<Made>) -> Made {
    let part = PlanPart {
        number,
        ..PlanPart::default()
    };
    Made {
        part,
        below,
        appends_queries: false,
    }
}

fn partition(number: u64) -> Made {
    let mut made = node(number, Vec::new());
    made.part.is_partition = true;
    made
}

fn append(below: Vec<Made>) -> Made {
    let mut made = node(APPEND, below);
    made.part.is_append = true;
    made
}

fn subplan(mut made: Made) -> Made {
    made.part.by_expression = true;
    made
}

/// Returns the nodes in pre-order.
fn plan(made: &Made) -> Vec<PlanPart> {
    fn add(made: &Made, parent: Option<usize>, is_below_append: bool, plan: &mut Vec<PlanPart>) {
        let (at, part) = (plan.len(), made.part);
        let is_below_append = is_below_append && !part.by_expression;
        plan.push(PlanPart {
            parent,
            is_appended: is_below_append && (part.is_partition || part.is_append),
            ..part
        });
        let is_below_append = (is_below_append || part.is_append) && !made.appends_queries;
        for below in &made.below {
            add(below, Some(at), is_below_append, plan);
        }
    }
    let mut plan = Vec::new();
    add(made, None, false, &mut plan);
    plan
}

fn number(plan: &[PlanPart], node: &FoldedNode) -> u64 {
    match node.is_made() {
        true => APPEND,
        false => plan[node.first as usize].number,
    }
}

/// Returns the hash of a folded plan.
fn hash(plan: &[PlanPart], calls: &Calls) -> i64 {
    let fold = Fold::new(plan, calls).expect("a partition");
    fold.hash(|node| number(plan, node))
}

fn fold(made: &Made) -> (Fold, i64) {
    let (plan, calls) = (plan(made), Calls::default());
    (
        Fold::new(&plan, &calls).expect("a partition"),
        hash(&plan, &calls),
    )
}

/// Returns the numbers and the members of the nodes, indented.
fn shown(made: &Made) -> Vec<String> {
    shown_with(&plan(made), &Calls::default())
}

/// Does that for a plan whose nodes call subplans.
fn shown_with(plan: &[PlanPart], calls: &Calls) -> Vec<String> {
    let fold = Fold::new(plan, calls).expect("a partition");
    let line = |node: &FoldedNode| {
        let indent = " ".repeat(node.depth as usize);
        format!("{indent}{} x{}", number(plan, node), node.count)
    };
    fold.nodes().iter().map(line).collect()
}

#[test]
fn partitions_are_one_node_for_each_way_to_read_them() {
    let found = append(vec![partition(5), partition(6), partition(5), partition(5)]);
    let mut lines = shown(&node(1, vec![found]));
    lines[2..].sort();
    assert_eq!(lines, ["1 x1", " 1000 x1", "  5 x3", "  6 x1"]);
    // Partition-wise joins and aggregates: a child is a subtree.
    let join = |way| node(7, vec![partition(way), node(8, vec![partition(9)])]);
    let mut lines = shown(&append(vec![join(5), join(6), join(5)]));
    assert_eq!(lines.remove(0), "1000 x1");
    assert_eq!(lines.len(), 8);
    for line in [" 7 x2", "  5 x2", "  8 x2", "   9 x2", " 7 x1", "  6 x1"] {
        assert!(lines.iter().any(|found| found == line), "{line}: {lines:?}");
    }
    // Of a nested Append too, with different numbers of partitions.
    let nested = |count| node(7, vec![append(vec![partition(5); count])]);
    let lines = shown(&append(vec![nested(3), nested(1), nested(4)]));
    assert_eq!(lines, ["1000 x1", " 7 x3", "  1000 x3", "   5 x8"]);
}

#[test]
fn other_children_are_not_folded() {
    let union = append(vec![node(5, Vec::new()), node(5, Vec::new())]);
    assert_eq!(Fold::new(&plan(&union), &Calls::default()), None);
    let mixed = append(vec![
        partition(4),
        node(5, Vec::new()),
        partition(4),
        node(5, Vec::new()),
    ]);
    assert_eq!(shown(&mixed), ["1000 x1", " 5 x1", " 5 x1", " 4 x2"]);
    // The sides of a join are not equal even if both scan a partition in the same way.
    let join = node(
        7,
        vec![append(vec![partition(5); 2]), append(vec![partition(5); 2])],
    );
    assert_eq!(shown(&join), ["7 x1", " 1000 x1", "  5 x2", " 1000 x1", "  5 x2"]);
}

#[test]
fn a_lone_partition_has_an_append() {
    let query = |below| node(1, vec![below, node(2, Vec::new())]);
    let (alone, two) = (query(partition(5)), query(append(vec![partition(5); 2])));
    assert_eq!(shown(&alone), ["1 x1", " 1000 x0", "  5 x1", " 2 x1"]);
    assert_eq!(fold(&alone).1, fold(&two).1);
    assert_eq!(fold(&alone).1, fold(&query(append(vec![partition(5)]))).1);
    assert_ne!(fold(&alone).1, fold(&query(partition(6))).1);
    let (fold, _) = fold(&alone);
    let stats = fold.stats(&[stats(0, 1), stats(1, 2), stats(2, 3)]);
    assert_eq!((stats[1].rows, stats[2].rows), (stats[2].rows, 20));
    assert_eq!(
        (stats[1].starts, stats[1].buffers),
        (stats[2].starts, stats[2].buffers)
    );
    let times = [1, 2].map(|at: usize| stats[at].time.get_or_zero());
    assert_eq!((times[0].total_ms, times[0].self_ms), (times[1].total_ms, 0.0));
    assert!(times[1].self_ms > 0.0);
    assert_eq!((stats[1].wait_ms, stats[1].facts.kind), (0.0, NodeKind::Append));
}

#[test]
fn what_stands_above_each_partition_is_below_the_append_that_is_made() {
    let for_each = |below| {
        let mut made = node(3, vec![below]);
        made.part.is_for_each = true;
        made
    };
    let query = |below| node(1, vec![below]);
    let alone = query(for_each(for_each(partition(5))));
    let two = query(append(vec![for_each(for_each(partition(5))); 2]));
    assert_eq!(
        shown(&alone),
        ["1 x1", " 1000 x0", "  3 x1", "   3 x1", "    5 x1"]
    );
    assert_eq!(fold(&alone).1, fold(&two).1);
    // Below it is another query.
    let other = query(for_each(node(4, vec![partition(5)])));
    assert_eq!(
        shown(&other),
        ["1 x1", " 3 x1", "  4 x1", "   1000 x0", "    5 x1"]
    );
}

#[test]
fn what_an_append_of_queries_reads_is_none_of_its_partitions() {
    // SELECT count(*) FROM a table with partitions UNION ALL SELECT count(*) FROM another table.
    let query = |below| Made {
        appends_queries: true,
        ..append(vec![node(3, vec![below]), node(4, Vec::new())])
    };
    let alone = query(partition(5));
    let two = query(append(vec![partition(5); 2]));
    assert_eq!(
        shown(&alone),
        ["1000 x1", " 3 x1", "  1000 x0", "   5 x1", " 4 x1"]
    );
    assert_eq!(fold(&alone).1, fold(&two).1);
    for (made, ran) in [(alone, vec![true; 4]), (two, vec![true; 6])] {
        let mut counts = Vec::new();
        let (fold, _) = fold(&made);
        fold.count_partitions(ran.into_iter(), |append, planned, ran| {
            counts.push((append, planned, ran));
        });
        assert_eq!(counts.len(), 1, "{counts:?}");
        assert_ne!(counts[0].0, 0, "{counts:?}");
    }
}

#[test]
fn the_append_that_is_made_has_the_init_plans() {
    let init_plan = |number| subplan(node(number, vec![partition(6)]));
    let mut alone = partition(5);
    alone.below.extend([init_plan(9), init_plan(8)]);
    let two = append(vec![init_plan(9), init_plan(8), partition(5), partition(5)]);
    let (below_9, below_8) = (
        ["  9 x1", "   1000 x0", "    6 x1"],
        ["  8 x1", "   1000 x0", "    6 x1"],
    );
    let lines = [&["1 x1", " 1000 x0"], &below_9[..], &below_8[..], &["  5 x1"]].concat();
    assert_eq!(shown(&node(1, vec![alone.clone()])), lines);
    assert_eq!(fold(&alone).1, fold(&two).1);
    // It takes what the partition took.
    let (fold, _) = fold(&alone);
    let stats = fold.stats(&[0, 1, 2, 3, 4].map(|at| stats(at, at as u64)));
    let of_partition = fold.of(0);
    assert_eq!((fold.nodes().len(), of_partition), (8, 7));
    assert_eq!(stats[0].rows, stats[of_partition].rows);
    let mut made: Vec<(usize, usize)> = fold.made().collect();
    made.sort_unstable();
    assert_eq!(made, [(0, 7), (2, 3), (5, 6)]);
}

/// Whether the Append that is made is parallel depends on the partition, whatever stands above that.
#[test]
fn the_append_that_is_made_is_parallel_as_its_partition() {
    for is_in_parallel in [false, true] {
        let mut lone = partition(5);
        lone.part.is_in_parallel = is_in_parallel;
        let mut filtered = node(3, vec![subplan(node(8, Vec::new())), lone.clone()]);
        filtered.part.is_for_each = true;
        for made in [lone, filtered] {
            let (fold, _) = fold(&made);
            assert!(fold.is_made(0));
            assert_eq!(fold.nodes()[0].is_parallel, is_in_parallel);
        }
    }
}

#[test]
fn a_shared_subplan_does_not_tell_partitions_apart() {
    // Each is called by its parent.
    let called = |made: &Made| {
        let (mut parts, mut calls) = (plan(made), Calls::default());
        for (at, part) in (0..).zip(&mut parts) {
            if let Some(parent) = part.parent.filter(|_| part.by_expression) {
                part.subplan = at;
                calls.entry(parent).or_default().push(at);
            }
        }
        (parts, calls)
    };
    let shown = |made: &Made| {
        let (parts, calls) = called(made);
        shown_with(&parts, &calls)
    };
    let hash = |made: &Made| {
        let (parts, calls) = called(made);
        hash(&parts, &calls)
    };
    let mut first = partition(5);
    first.below.push(subplan(node(9, vec![partition(6)])));
    let shared = append(vec![first.clone(), partition(5), partition(5)]);
    assert_eq!(
        shown(&shared),
        ["1000 x1", " 5 x3", "  9 x1", "   1000 x0", "    6 x1"]
    );
    assert_eq!(hash(&shared), hash(&append(vec![partition(5), first.clone()])));
    assert_eq!(hash(&shared), hash(&first));
    let own = append(vec![first.clone(), first]);
    assert_eq!(shown(&own)[2], "  9 x2");
}

/// Returns the nodes of an Append of these inputs, of which some were pruned when the statement started.
fn some_pruned(inputs: &[Made], is_pruned: impl Fn(usize) -> bool) -> Vec<PlanPart> {
    let (pruned, left): (Vec<_>, Vec<_>) = inputs.iter().enumerate().partition(|(at, _)| is_pruned(*at));
    let mut parts = plan(&append(left.into_iter().map(|(_, made)| made.clone()).collect()));
    for (_, made) in pruned {
        // The Append is there already.
        let behind = parts.len() - 1;
        let alone = plan(&append(vec![made.clone()])).into_iter().skip(1);
        parts.extend(alone.map(|part| {
            PlanPart {
                parent: part
                    .parent
                    .map(|parent| if parent == 0 { 0 } else { behind + parent }),
                is_pruned: true,
                ..part
            }
        }));
    }
    parts
}

/// Returns what the nodes do, and where they are.
fn places(fold: &Fold, plan: &[PlanPart]) -> Vec<(Option<u32>, u32, u64)> {
    let place = |node: &FoldedNode| (node.parent, node.depth, number(plan, node));
    fold.nodes().iter().map(place).collect()
}

#[test]
fn pruned_partitions_do_not_change_the_plan() {
    let join = |way| node(7, vec![partition(way), node(8, vec![partition(9)])]);
    let nested = append(vec![partition(5), partition(9)]);
    let inputs = [
        partition(5),
        join(5),
        partition(6),
        partition(5),
        join(6),
        node(4, vec![nested]),
    ];
    let whole = some_pruned(&inputs, |_| false);
    let expected = Fold::new(&whole, &Calls::default()).expect("a partition");
    assert!(!expected.has_pruned());
    for set in 0..1 << inputs.len() {
        let parts = some_pruned(&inputs, |at| set >> at & 1 == 1);
        let fold = Fold::new(&parts, &Calls::default()).expect("a partition");
        assert_eq!(places(&fold, &parts), places(&expected, &whole), "{set:b}");
        let left = parts.iter().filter(|part| !part.is_pruned).count();
        assert_eq!(fold.real_nodes(), left);
        let counts = fold.nodes().iter().map(|node| node.count as usize);
        assert_eq!(counts.sum::<usize>(), left, "{set:b}");
        let stats: Vec<NodeStats> = (0..left).map(|at| stats(at, 1)).collect();
        for (node, stats) in fold.nodes().iter().zip(fold.stats(&stats)) {
            assert_eq!(stats.starts.get_or_zero(), u64::from(node.count), "{set:b}");
            assert_eq!(node.is_pruned, node.count == 0, "{set:b}");
            assert!(node.is_pruned || !parts[node.first as usize].is_pruned, "{set:b}");
        }
        let planned: u64 = fold.stats(&stats)[0].facts.sums[PARTITIONS_PLANNED];
        let appended = |at: &usize| set >> at & 1 == 0;
        assert_eq!(
            planned,
            (0..inputs.len()).filter(appended).count() as u64,
            "{set:b}"
        );
    }
}

#[test]
fn a_subplan_that_partitions_share_has_one_place() {
    let mut hashes = Vec::new();
    for ways in [[5, 6, 7], [7, 5, 6], [6, 7, 5]] {
        let mut first = partition(ways[0]);
        let mut root = subplan(node(9, vec![partition(8)]));
        root.part.subplan = 4;
        first.below.push(root);
        let made = append(vec![
            first,
            partition(ways[1]),
            partition(ways[2]),
            partition(ways[2]),
        ]);
        let parts = plan(&made);
        // All call it, also a node of its own subplan.
        let scans = parts.iter().enumerate().filter(|(_, part)| part.is_partition);
        let calls: Calls = scans.map(|(at, _)| (at, vec![4])).collect();
        let fold = Fold::new(&parts, &calls).expect("a partition");
        assert_eq!(fold.nodes().len(), 7, "{ways:?}");
        check_all_placed(&fold, parts.len());
        hashes.push(fold.hash(|node| number(&parts, node)));
        let caller = fold
            .nodes()
            .iter()
            .find(|node| node.by_expression)
            .and_then(|node| node.parent);
        assert_eq!(caller, Some(1), "below the first one: {ways:?}");
    }
    assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:?}");
}

/// Each node of the plan is in one of the folded plan.
fn check_all_placed(fold: &Fold, nodes: usize) {
    let counts = fold.nodes().iter().map(|node| node.count as usize);
    assert_eq!(counts.sum::<usize>(), nodes);
}

/// Returns statistics of which each figure differs from those of other nodes.
fn stats(at: usize, starts: u64) -> NodeStats {
    let rows = 10 * starts;
    NodeStats {
        starts: starts.into(),
        rows,
        time: Time {
            total_ms: rows as f64,
            startup_ms: 0.25,
            self_ms: 1.0 + at as f64,
            error_ms: 3.0,
        }
        .into(),
        buffers: Buffers {
            shared_hit: at as i64,
            temp_written: 1,
            ..Buffers::default()
        }
        .into(),
        wal: Wal {
            records: 2,
            ..Wal::default()
        }
        .into(),
        timed_calls: 7,
        wait_ms: 0.5,
        facts: NodeFacts {
            kind: NodeKind::Sort,
            memory_kb: (at as u32).into(),
            methods: 1 << (at % 3),
            ..NodeFacts::default()
        },
        estimate: Estimate::new(at as f64 + 1.0, true),
        ..NodeStats::default()
    }
}

#[test]
fn errors_are_added_as_squares_and_other_facts_as_over_executions() {
    let (fold, _) = fold(&append(vec![partition(5); 4]));
    let folded = fold.stats(&[0, 1, 2, 3, 4].map(|at| stats(at, 2)))[1];
    assert!((folded.time.get_or_zero().error_ms - 6.0).abs() < 1e-9);
    assert_eq!((folded.facts.memory_kb.get(), folded.facts.methods), (Some(4), 7));
    assert_eq!((folded.rows, folded.starts.get()), (80, Some(8)));
    // The planner expected 2 * (2 + 3 + 4 + 5) rows.
    let mut estimates = Estimates::default();
    estimates.add(&folded.estimate, 8, folded.rows);
    assert!((estimates.expected_rows - 28.0).abs() < 1e-4, "{estimates:?}");
    // One that did not start says nothing, and one whose estimate says nothing makes that of all unknown.
    let mut some = [0, 2, 2, 0, 0].map(|starts| stats(2, starts));
    let judged = |stats: &[NodeStats]| fold.stats(stats)[1].estimate.is_judged();
    some[3].estimate.dismiss();
    assert!(judged(&some));
    some[2].estimate.dismiss();
    assert!(!judged(&some));
}

#[test]
fn waits_of_partitions_are_summed_up_before_they_are_cut() {
    let made = append((0..12).map(|_| partition(1)).collect());
    let (fold, _) = fold(&made);
    // Twelve partitions wait for the same event, and one of them for another one.
    let mut waits = RunWaits::none();
    for node in 1..=12 {
        waits.add(EventWaits {
            node,
            event: 7,
            waits: 2,
            ns: 10,
            max_ns: u64::from(node),
        });
    }
    let kept = |waits: &RunWaits| -> Vec<EventWaits> {
        let mut kept: PlanWaits<8> = fold.to_keep(waits);
        fold.move_waits(&mut kept);
        kept.events().collect()
    };
    let sum = EventWaits {
        node: 1,
        event: 7,
        waits: 24,
        ns: 120,
        max_ns: 12,
    };
    assert_eq!(kept(&waits), [sum]);
    // Few stay with their partitions.
    let mut few = RunWaits::none();
    few.add(EventWaits {
        node: 3,
        event: 7,
        waits: 1,
        ns: 5,
        max_ns: 5,
    });
    let few: PlanWaits<8> = fold.to_keep(&few);
    assert_eq!(few.events().next().map(|waits| waits.node), Some(3));
}
