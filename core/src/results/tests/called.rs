//! InitPlans, CTEs and subplans, and the nodes that call them.

use super::super::*;
use super::by_hand::*;
use super::{assert_near, join};
use crate::model::{Called, Wal};
use crate::reconcile::Edge;

/// A CTE below the root: first one scan called it, then another one.
fn with_a_cte() -> Plan {
    let mut plan = Plan {
        samples: vec![
            node(None, sampled([20_000_000]), 10),
            node(Some(0), sampled([5_000_000, 3_000_000]), 8),
            node(Some(0), sampled([6_000_000]), 7),
            node(Some(0), sampled([5_000_000]), 6),
        ],
        ..Plan::default()
    };
    plan.samples[1].place.edge = Edge::Nested;
    plan.samples[1].place.by_expression = true;
    plan.last_callers = vec![(1, Caller::Node(3))];
    plan.earlier_callers = vec![EarlierCaller {
        subplan: 1,
        caller: 2,
        ticks: 5_000_000.0,
    }];
    let called = |hit| {
        let wal = Wal {
            records: hit,
            ..Wal::default()
        };
        Called::of(&blocks(hit), &wal)
    };
    plan.called = vec![(2, called(5)), (3, called(3))];
    plan
}

#[test]
fn the_time_of_a_cte_is_that_of_the_nodes_that_called_it() {
    let plan = with_a_cte();
    let scratch = assembled(&plan, &timed(1e12));
    let computed = &scratch.stats;
    let own: Vec<f64> = computed.iter().map(|stats| time(stats).self_ms).collect();
    assert_eq!(own, [10.0 - 3.0 - 2.5, 4.0, 3.0 - 2.5, 2.5 - 1.5]);
    assert_eq!(computed.iter().map(hit).collect::<Vec<_>>(), [23, 8, 7, 6]);
    assert_eq!(scratch.called, plan.called);
    // PostgreSQL completed it after all other nodes.
    let outside = Plan {
        last_callers: vec![(1, Caller::Outside)],
        ..with_a_cte()
    };
    let own: Vec<f64> = stats(&outside, &timed(1e12))
        .iter()
        .map(|stats| time(stats).self_ms)
        .collect();
    assert_eq!(own, [10.0 - 3.0 - 2.5, 4.0, 3.0 - 2.5, 2.5]);
    // The root left 1 ms for that.
    let own: f64 = stats(&outside, &timed(11e6))
        .iter()
        .map(|stats| time(stats).self_ms)
        .sum();
    assert_eq!(own, 11.0);
}

#[test]
fn both_functions_agree_on_subplans_with_one_caller() {
    let mut plan = with_a_cte();
    assert!(direct(&plan).is_none());
    plan.earlier_callers.clear();
    for (caller, edge) in [
        (Caller::Node(0), Edge::Sequential),
        (Caller::Node(2), Edge::Sequential),
        (Caller::Outside, Edge::Outside),
    ] {
        plan.samples[1].place.edge = edge;
        plan.samples[0].calls = sampled([24_000_000]);
        plan.samples[2].calls = sampled([9_000_000]);
        plan.last_callers = vec![(1, caller)];
        plan.called = match caller {
            Caller::Node(caller) => vec![(caller, plan.called[0].1)],
            _ => plan.called,
        };
        let assembled = assembled(&plan, &timed(1e12));
        let (mut direct, mut called) = (Vec::new(), Vec::new());
        assert!(assemble_directly::<_, true>(
            &plan,
            &CONFIG,
            TICK_NS,
            1e12,
            &mut direct,
            &mut called
        ));
        assert_near(&direct, &assembled.stats);
        assert_eq!((&called, &called), (&assembled.called, &plan.called));
        // What ran outside of the root did not have 4 ms there.
        let fits = assemble_directly::<_, true>(&plan, &CONFIG, TICK_NS, 13e6, &mut direct, &mut called);
        assert_eq!(fits, caller != Caller::Outside);
    }
    // It took longer than its caller.
    plan.last_callers = vec![(1, Caller::Node(3))];
    assert!(direct(&plan).is_none());
    // It ran, but nobody called it.
    plan.last_callers.clear();
    assert!(direct(&plan).is_none());
}

#[test]
fn both_functions_agree_without_times() {
    let mut plan = join();
    plan.samples.iter_mut().for_each(|sample| sample.calls = UNTIMED);
    // Without times, it does not matter inside which node a node ran.
    plan.samples[1].place.edge = Edge::Nested;
    let statement = StatementSample {
        is_timed: false,
        ..timed(1e12)
    };
    assert_eq!(
        direct_without_times(&plan).expect("direct"),
        stats(&plan, &statement)
    );
}
