use super::*;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoroshiro128PlusPlus;

fn item(parent: Option<usize>, total: f64, error: f64) -> Item {
    let estimate = Estimate {
        total,
        startup: total / 2.0,
        error,
    };
    Item::new(parent, Edge::Sequential, 1.0, estimate)
}

fn totals(items: &[Item]) -> Vec<f64> {
    items.iter().map(|item| item.estimate.total).collect()
}

/// Asserts that values are equal, except for rounding.
fn assert_near(actual: &[f64], expected: &[f64]) {
    assert_eq!(actual.len(), expected.len());
    for (a, e) in actual.iter().zip(expected) {
        assert!(
            (a - e).abs() <= 1e-9 * e.abs().max(1.0),
            "{actual:?}, not {expected:?}"
        );
    }
}

#[test]
fn consistent_estimates_do_not_change() {
    let mut items = [
        item(None, 100.0, 0.0),
        item(Some(0), 60.0, 5.0),
        item(Some(1), 40.0, 9.0),
        item(Some(0), 40.0, 0.0),
    ];
    let own = reconcile(&mut items, &mut [], f64::INFINITY).expect("memory");
    assert_eq!(totals(&items), [100.0, 60.0, 40.0, 40.0]);
    assert_eq!(own[..], [0.0, 20.0, 40.0, 40.0]);
}

#[test]
fn empty_plans_and_zero_times_are_accepted() {
    assert!(
        reconcile(&mut [], &mut [], f64::INFINITY)
            .expect("memory")
            .is_empty()
    );
    let mut items = [item(None, 0.0, 0.0), item(Some(0), 0.0, 0.0)];
    assert_eq!(
        reconcile(&mut items, &mut [], f64::INFINITY).expect("memory")[..],
        [0.0, 0.0]
    );
}

#[test]
fn a_child_above_its_exact_parent_is_scaled_with_all_below_it() {
    let mut items = [
        item(None, 100.0, 0.0),
        item(Some(0), 120.0, 0.0),
        item(Some(1), 110.0, 0.0),
    ];
    let own = reconcile(&mut items, &mut [], f64::INFINITY).expect("memory");
    assert_near(&totals(&items), &[100.0, 100.0, 100.0]);
    assert_near(&own, &[0.0, 0.0, 100.0]);
}

#[test]
fn a_sum_above_its_exact_parent_is_scaled() {
    let mut items = [
        item(None, 100.0, 0.0),
        item(Some(0), 90.0, 0.0),
        item(Some(0), 60.0, 0.0),
    ];
    let own = reconcile(&mut items, &mut [], f64::INFINITY).expect("memory");
    assert_near(&totals(&items), &[100.0, 60.0, 40.0]);
    assert_near(&own, &[0.0, 60.0, 40.0]);
    assert!(items[1].estimate.startup <= items[1].estimate.total);
}

#[test]
fn an_estimate_is_lowered_before_a_measured_value() {
    let mut items = [
        item(None, 100.0, 0.0),
        item(Some(0), 50.0, 0.0),
        item(Some(0), 60.0, 5.0),
    ];
    reconcile(&mut items, &mut [], f64::INFINITY).expect("memory");
    assert_near(&totals(&items), &[100.0, 50.0, 50.0]);
    // But it is not lowered beyond its errors.
    let mut items = [
        item(None, 100.0, 0.0),
        item(Some(0), 90.0, 0.0),
        item(Some(0), 60.0, 5.0),
    ];
    reconcile(&mut items, &mut [], f64::INFINITY).expect("memory");
    let left = 90.0 + 45.0;
    assert_near(
        &totals(&items),
        &[100.0, 90.0 / left * 100.0, 45.0 / left * 100.0],
    );
}

#[test]
fn estimated_children_are_lowered_by_their_variance() {
    let mut items = [
        item(None, 100.0, 0.0),
        item(Some(0), 55.0, 8.0),
        item(Some(0), 55.0, 4.0),
    ];
    reconcile(&mut items, &mut [], f64::INFINITY).expect("memory");
    assert_near(&totals(&items), &[100.0, 47.0, 53.0]);
}

#[test]
fn an_estimated_parent_is_raised_by_its_share() {
    // The parent is as uncertain as the child, so both get the mean.
    let mut items = [
        item(None, 1000.0, 0.0),
        item(Some(0), 100.0, 10.0),
        item(Some(1), 120.0, 10.0),
    ];
    reconcile(&mut items, &mut [], f64::INFINITY).expect("memory");
    assert_near(&totals(&items), &[1000.0, 110.0, 110.0]);
    // The child was measured, so the parent must be as long.
    let mut items = [
        item(None, 1000.0, 0.0),
        item(Some(0), 100.0, 10.0),
        item(Some(1), 120.0, 0.0),
    ];
    reconcile(&mut items, &mut [], f64::INFINITY).expect("memory");
    assert_near(&totals(&items), &[1000.0, 120.0, 120.0]);
    // The parent was measured, so it does not change.
    let mut items = [
        item(None, 1000.0, 0.0),
        item(Some(0), 100.0, 0.0),
        item(Some(1), 120.0, 10.0),
    ];
    reconcile(&mut items, &mut [], f64::INFINITY).expect("memory");
    assert_near(&totals(&items), &[1000.0, 100.0, 100.0]);
}

#[test]
fn a_nested_node_does_not_compete() {
    let mut items = [
        item(None, 100.0, 0.0),
        item(Some(0), 90.0, 0.0),
        item(Some(0), 80.0, 0.0),
    ];
    items[2].edge = Edge::Nested;
    let own = reconcile(&mut items, &mut [], f64::INFINITY).expect("memory");
    assert_near(&totals(&items), &[100.0, 90.0, 80.0]);
    assert_near(&own, &[10.0, 90.0, 80.0]);
    // But its parent's time is still its limit.
    items[2].estimate.total = 130.0;
    reconcile(&mut items, &mut [], f64::INFINITY).expect("memory");
    assert_near(&totals(&items), &[100.0, 90.0, 100.0]);
}

#[test]
fn a_node_that_ran_outside_is_not_bounded() {
    let mut items = [
        item(None, 100.0, 0.0),
        item(Some(0), 300.0, 0.0),
        item(Some(1), 400.0, 0.0),
    ];
    items[1].edge = Edge::Outside;
    let own = reconcile(&mut items, &mut [], f64::INFINITY).expect("memory");
    // A node inside it is bounded by it.
    assert_near(&totals(&items), &[100.0, 300.0, 300.0]);
    assert_near(&own, &[100.0, 0.0, 300.0]);
}

#[test]
fn parallel_processes_may_take_more_than_their_parent() {
    let mut items = [
        item(None, 100.0, 0.0),
        item(Some(0), 290.0, 0.0),
        item(Some(1), 200.0, 0.0),
    ];
    items[1].processes = 3.0;
    let own = reconcile(&mut items, &mut [], f64::INFINITY).expect("memory");
    assert_near(&totals(&items), &[100.0, 290.0, 200.0]);
    assert_near(&own, &[100.0 - 290.0 / 3.0, 90.0, 200.0]);
    items[1].estimate.total = 330.0;
    reconcile(&mut items, &mut [], f64::INFINITY).expect("memory");
    assert_near(&totals(&items), &[100.0, 300.0, 200.0]);
}

/// Checks random trees of every shape: exact and estimated nodes, all edges, parallel parts, extreme totals.
#[test]
fn random_trees_become_consistent() {
    let mut random = Xoroshiro128PlusPlus::seed_from_u64(11);
    for _ in 0..5_000 {
        let count = random.random_range(1..25);
        let mut items = Vec::with_capacity(count);
        for i in 0..count {
            let total = if random.random_bool(0.05) {
                0.0
            } else {
                10f64.powf(random.random_range(-3.0..6.0))
            };
            let exact = i == 0 || random.random_bool(0.3);
            let error = if exact {
                0.0
            } else {
                total * random.random_range(0.0..2.0)
            };
            let mut item = item((i > 0).then(|| random.random_range(0..i)), total, error);
            item.estimate.startup = total * random.random::<f64>();
            item.edge = match random.random_range(0..10) {
                0 => Edge::Nested,
                1 => Edge::Outside,
                _ => Edge::Sequential,
            };
            item.processes = if random.random_bool(0.1) { 3.0 } else { 1.0 };
            items.push(item);
        }
        let before = items.clone();
        let own = reconcile(&mut items, &mut [], f64::INFINITY).expect("memory");
        assert_eq!(
            items[0].estimate.total, before[0].estimate.total,
            "the root is exact"
        );
        for i in 0..count {
            let total = items[i].estimate.total;
            assert!(total >= 0.0 && total.is_finite());
            assert!(own[i] >= 0.0 && own[i] <= total * (1.0 + 1e-9));
            assert!(items[i].estimate.startup >= 0.0 && items[i].estimate.startup <= total);
            let children = (i + 1..count).filter(|&c| items[c].parent == Some(i));
            let mut sum = 0.0;
            for c in children {
                let share = items[c].estimate.total / items[c].processes;
                match items[c].edge {
                    Edge::Sequential => sum += share,
                    Edge::Nested => assert!(share <= total * (1.0 + 1e-9)),
                    Edge::Outside | Edge::Elsewhere => {}
                }
            }
            assert!(sum <= total * (1.0 + 1e-9), "{sum} of {total}");
            if before[i].estimate.error == 0.0 {
                assert!(total <= before[i].estimate.total, "an exact node was raised");
            }
        }
        // Consistent estimates do not change.
        let again = reconcile(&mut items, &mut [], f64::INFINITY).expect("memory");
        for (a, b) in again.iter().zip(&own) {
            assert!((a - b).abs() <= 1e-6 * items[0].estimate.total.max(b.abs()).max(1.0));
        }
    }
}

/// Returns an exact tree in which subplans are called by random nodes, and how its time is divided.
fn with_subplans(random: &mut Xoroshiro128PlusPlus) -> (Vec<Item>, Vec<Part>, f64) {
    let count = random.random_range(2..25);
    let own: Vec<f64> = (0..count).map(|_| random.random_range(0.0..10.0)).collect();
    let mut items: Vec<Item> = (0..count)
        .map(|i| item((i > 0).then(|| random.random_range(0..i)), 0.0, 0.0))
        .collect();
    let mut parts = Vec::new();
    // The nodes above a node, where the time of a subplan is divided among those that called it.
    let mut callers: Vec<Vec<(usize, f64)>> = vec![Vec::new(); count];
    // A caller is no node below the subplan, and none that a later subplan contains. So nobody calls in a
    // circle.
    let mut tops: Vec<usize> = vec![0; count];
    for i in 1..count {
        tops[i] = tops[items[i].parent.expect("a parent")];
        if random.random_bool(0.3) {
            tops[i] = i;
            items[i].edge = Edge::Elsewhere;
        }
    }
    for i in 1..count {
        if items[i].edge != Edge::Elsewhere {
            callers[i].push((items[i].parent.expect("a parent"), 1.0));
            continue;
        }
        let above: Vec<usize> = (0..count).filter(|c| tops[*c] < i).collect();
        let of = random.random_range(1..4).min(above.len());
        for n in 0..of {
            let within = above[random.random_range(0..above.len())];
            let fraction = 1.0 / of as f64;
            callers[i].push((within, fraction));
            let is_outside = n == 0 && random.random_bool(0.1);
            if is_outside {
                callers[i].pop();
            }
            parts.push(Part::new(i, (!is_outside).then_some(within), fraction));
        }
    }
    // A node's total is its own time, and what ran in it. Those of the highest tops are final first.
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by_key(|i| std::cmp::Reverse((tops[*i], *i)));
    let mut totals = own.clone();
    for i in order {
        for (within, fraction) in &callers[i] {
            totals[*within] += totals[i] * fraction;
        }
    }
    for (item, total) in items.iter_mut().zip(totals) {
        item.estimate.total = total;
    }
    (items, parts, own.iter().sum())
}

#[test]
fn own_times_add_up_with_subplans() {
    let mut random = Xoroshiro128PlusPlus::seed_from_u64(12);
    for _ in 0..5_000 {
        let (mut items, mut parts, all) = with_subplans(&mut random);
        let own = reconcile(&mut items, &mut parts, f64::INFINITY).expect("memory");
        let sum: f64 = own.iter().sum();
        assert!(
            (sum - all).abs() < 1e-9 * all.max(1.0),
            "{sum} of {all}: {items:#?} {parts:#?}"
        );
        // They still do if estimates are wrong: then some are changed.
        let mut wrong = items.clone();
        for (i, item) in wrong.iter_mut().enumerate().skip(1) {
            if random.random_bool(0.3) {
                item.estimate.total *= random.random_range(0.2..5.0);
                item.estimate.error = item.estimate.total * random.random_range(0.0..0.5);
            }
            item.estimate.startup = item.estimate.total / (i + 1) as f64;
        }
        let own = reconcile(&mut wrong, &mut parts, all).expect("memory");
        // The root is exact, and what ran outside of it did so in the rest of the statement.
        assert!(own.iter().sum::<f64>() <= all * (1.0 + 1e-9), "{own:?} of {all}");
        let outside = parts.iter().filter(|part| part.within.is_none());
        let outside: f64 = outside.map(|part| part.total).sum();
        let (sum, all) = (own.iter().sum::<f64>(), wrong[0].estimate.total + outside);
        assert!((sum - all).abs() < 1e-6 * all.max(1.0), "{sum} of {all}");
        assert!(
            wrong
                .iter()
                .all(|item| item.estimate.startup <= item.estimate.total)
        );
    }
}

/// Returns an item of a node that itself waited.
fn waited(parent: Option<usize>, total: f64, error: f64, waited: f64) -> Item {
    Item {
        waited,
        ..item(parent, total, error)
    }
}

#[test]
fn an_estimate_below_the_waits_is_raised_with_its_error_and_its_parents() {
    let mut items = [
        item(None, 100.0, 0.0),
        item(Some(0), 6.0, 1.0),
        waited(Some(1), 4.0, 1.0, 30.0),
    ];
    let own = reconcile(&mut items, &mut [], f64::INFINITY).expect("memory");
    assert_near(&totals(&items)[2..], &[30.0]);
    assert!(items[1].estimate.total >= 30.0, "{items:?}");
    assert!(items[2].estimate.error >= 26.0, "{items:?}");
    assert_near(&own[2..], &[30.0]);
    // It is no larger than what is left of a parent that was timed.
    let mut items = [item(None, 100.0, 0.0), waited(Some(0), 60.0, 90.0, 95.0)];
    reconcile(&mut items, &mut [], f64::INFINITY).expect("memory");
    assert_near(&[items[1].estimate.total, items[1].estimate.error], &[95.0, 5.0]);
    // A statement of one node.
    let mut items = [waited(None, 4.0, 1.0, 30.0)];
    let own = reconcile(&mut items, &mut [], f64::INFINITY).expect("memory");
    assert_near(&own, &[30.0]);
}

#[test]
fn estimated_children_leave_room_for_the_waits_of_their_parent() {
    let mut items = [
        waited(None, 100.0, 0.0, 40.0),
        item(Some(0), 80.0, 10.0),
        item(Some(0), 10.0, 0.0),
    ];
    let own = reconcile(&mut items, &mut [], f64::INFINITY).expect("memory");
    assert_near(&totals(&items), &[100.0, 50.0, 10.0]);
    assert_near(&own[..1], &[40.0]);
    // A child is not lowered below its own waits.
    let mut items = [
        waited(None, 100.0, 0.0, 40.0),
        waited(Some(0), 80.0, 10.0, 75.0),
        item(Some(0), 10.0, 0.0),
    ];
    reconcile(&mut items, &mut [], f64::INFINITY).expect("memory");
    assert_near(&totals(&items), &[100.0, 75.0, 10.0]);
    // Nor are those above it.
    let mut items = [
        waited(None, 100.0, 0.0, 20.0),
        item(Some(0), 90.0, 20.0),
        waited(Some(1), 40.0, 2.0, 70.0),
    ];
    let own = reconcile(&mut items, &mut [], f64::INFINITY).expect("memory");
    assert!(own[0] >= 20.0 && own[2] >= 70.0 - 1e-9, "{own:?}");
    assert!(items[1].estimate.total >= 70.0 - 1e-9, "{items:?}");
}
