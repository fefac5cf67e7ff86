//! Plans at random: what each node did is in the sums, and neither the order of partitions nor folding again
//! changes anything.

use super::*;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Makes a plan at random.
fn random(rng: &mut Xoshiro256PlusPlus, depth: u32, is_below_append: bool) -> Made {
    let inputs = |rng: &mut _, count, is_below| -> Vec<Made> {
        (0..count).map(|_| random(rng, depth + 1, is_below)).collect()
    };
    match rng.random_range(0..if depth < 4 { 10 } else { 4 }) {
        0..3 => {
            let mut made = partition(rng.random_range(0..3));
            // The planner gives InitPlans to one that is alone.
            if !is_below_append && rng.random_range(0..3) == 0 {
                made.below.push(subplan(random(rng, depth + 1, false)));
            }
            made
        }
        3 => node(rng.random_range(3..5), Vec::new()),
        4..6 => {
            let count = rng.random_range(1..3);
            node(
                rng.random_range(5..7) + 10 * count,
                inputs(rng, count, is_below_append),
            )
        }
        6 => {
            let mut made = node(rng.random_range(7..9), inputs(rng, 1, is_below_append));
            made.below.push(subplan(node(9, Vec::new())));
            made
        }
        _ => {
            let count = rng.random_range(1..6);
            append(inputs(rng, count, true))
        }
    }
}

fn shuffle(made: &mut Made, rng: &mut Xoshiro256PlusPlus, has_partition: &impl Fn(&Made) -> bool) {
    if made.part.is_append {
        // Other children are in the statement's order.
        let (mut partitions, others): (Vec<Made>, Vec<Made>) = made.below.drain(..).partition(has_partition);
        partitions.shuffle(rng);
        made.below = others.into_iter().chain(partitions).collect();
    }
    made.below
        .iter_mut()
        .for_each(|below| shuffle(below, rng, has_partition));
}

fn has_partition(made: &Made) -> bool {
    let mut inputs = made.below.iter().filter(|below| !below.part.by_expression);
    made.part.is_partition || inputs.any(has_partition)
}

/// Each node is in one folded node, which stands for nodes that do the same.
fn check_places(fold: &Fold, parts: &[PlanPart]) {
    let mut counts = vec![0; fold.nodes().len()];
    for (at, part) in parts.iter().enumerate() {
        let folded = fold.nodes()[fold.of(at)];
        assert_eq!(part.number, parts[folded.first as usize].number);
        counts[fold.of(at)] += 1;
        // Its parent is its parent's, but for an Append that was made, which has the InitPlans.
        let is_made = |parent: &u32| fold.is_made(*parent as usize);
        let mut top = folded;
        if let Some(made) = folded.parent.filter(is_made).filter(|_| !folded.by_expression) {
            top = fold.nodes()[made as usize];
        }
        let mut parent = top.parent.map(|parent| parent as usize);
        if let Some(made) = top.parent.filter(is_made) {
            let below = fold.made().find(|(at, _)| *at == made as usize);
            parent = below.map(|(_, below)| below);
        }
        assert_eq!(parent, part.parent.map(|parent| fold.of(parent)));
    }
    assert!(fold.nodes().iter().map(|node| node.count).eq(counts));
    for (at, node) in fold.nodes().iter().enumerate() {
        let depth = node
            .parent
            .map_or(0, |parent| fold.nodes()[parent as usize].depth + 1);
        assert_eq!(node.depth, depth);
        assert!(node.parent.is_none_or(|parent| (parent as usize) < at));
        assert_eq!(
            fold.made().filter(|(made, _)| *made == at).count(),
            usize::from(node.is_made())
        );
    }
}

#[test]
fn sums_agree_and_neither_order_nor_another_folding_changes_anything() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(42);
    let mut folded_plans = 0;
    for _ in 0..4_000 {
        let made = random(&mut rng, 0, false);
        let parts = plan(&made);
        let Some(fold) = Fold::new(&parts, &Calls::default()) else {
            continue;
        };
        let hash = fold.hash(|node| number(&parts, node));
        folded_plans += usize::from(fold.nodes().len() < parts.len());
        check_places(&fold, &parts);
        // Sums.
        let all: Vec<NodeStats> = (0..parts.len())
            .map(|at| stats(at, rng.random_range(0..5)))
            .collect();
        let folded = fold.stats(&all);
        let is_real = |(at, _): &(usize, &NodeStats)| !fold.nodes()[*at].is_made();
        let real = || folded.iter().enumerate().filter(is_real).map(|(_, stats)| stats);
        let sums = |stats: &mut dyn Iterator<Item = &NodeStats>| {
            let mut sum = NodeStats::default();
            stats.for_each(|stats| sum.add(stats));
            sum
        };
        let (expected, found) = (sums(&mut all.iter()), sums(&mut real()));
        assert_eq!((expected.rows, expected.starts), (found.rows, found.starts));
        assert_eq!((expected.buffers, expected.wal), (found.buffers, found.wal));
        assert_eq!(
            (expected.wait_ms, expected.timed_calls),
            (found.wait_ms, found.timed_calls)
        );
        let [all_times, times] = [expected, found].map(|stats| stats.time.get_or_zero());
        assert_eq!(
            (all_times.total_ms, all_times.self_ms),
            (times.total_ms, times.self_ms)
        );
        assert!((all_times.error_ms - times.error_ms).abs() < 1e-6);
        assert_eq!(
            (expected.facts.memory_kb, expected.facts.methods),
            (found.facts.memory_kb, found.facts.methods)
        );
        // Folding again changes nothing.
        let is_below_made =
            |node: &FoldedNode| node.parent.is_some_and(|parent| fold.is_made(parent as usize));
        let again: Vec<PlanPart> = fold
            .nodes()
            .iter()
            .map(|node| PlanPart {
                parent: node.parent.map(|parent| parent as usize),
                number: number(&parts, node),
                is_append: node.is_made() || parts[node.first as usize].is_append,
                is_partition: !node.is_made() && parts[node.first as usize].is_partition,
                is_appended: !node.is_made() && parts[node.first as usize].is_appended || is_below_made(node),
                by_expression: node.by_expression,
                ..PlanPart::default()
            })
            .collect();
        let twice = Fold::new(&again, &Calls::default()).expect("a partition");
        assert_eq!(twice.nodes().len(), fold.nodes().len());
        assert_eq!(twice.hash(|node| number(&again, node)), hash);
        // The order of partitions does not count.
        let mut other = made.clone();
        shuffle(&mut other, &mut rng, &has_partition);
        let other = plan(&other);
        let shuffled = Fold::new(&other, &Calls::default()).expect("a partition");
        assert_eq!(shuffled.hash(|node| number(&other, node)), hash);
    }
    assert!(folded_plans > 500, "{folded_plans}");
}
