//! Runs the extension's wrapper in a simulated backend: its counts are exact in each mode of timing and
//! accounting.

#[allow(dead_code, reason = "the tests of the estimator use the rest")]
mod simulator;

use rand::Rng;
use rowsource_core::wrapper::{self, Accounting, Scope, Timed};
use simulator::{Body, Machine, Run, body};

const EVERY_TIMED: [Timed; 4] = [Timed::Never, Timed::Sampled, Timed::EveryTsc, Timed::Every];

/// A plan: the body, the accounting mode and the parent of each node.
struct Plan {
    bodies: Vec<Body>,
    accounting: Vec<Accounting>,
    /// The nodes whose callers read each start to its end.
    drained: Vec<usize>,
    parents: Vec<Option<usize>>,
}

/// Does some work, and uses blocks: often none, sometimes many, sometimes one that is read.
fn work(run: &mut Run) {
    let ns = run.exponential(60.0);
    run.work(ns);
    match run.random.random_range(0..40) {
        0..4 => run.hit_blocks(1),
        4 => run.hit_blocks(50),
        5 => run.read_block(20_000.0),
        _ => {}
    }
}

/// Returns whether a node ends its start after this many rows.
fn ends(run: &Run, i: usize, rows: u64) -> bool {
    run.nodes[i].calls.is_multiple_of(rows + 1)
}

/// Returns a scan that ends each start after this many rows.
fn scan(rows: u64) -> Body {
    body(move |run, i| {
        work(run);
        if ends(run, i, rows) {
            run.end();
        }
    })
}

/// Returns a nested loop over an outer scan, whose inner side is rescanned for each outer row.
fn nested_loop() -> Plan {
    Plan {
        bodies: vec![
            body(|run, _| {
                work(run);
                while run.call(1) {
                    work(run);
                    run.rescan(2);
                    run.rescan(3);
                    while run.call(2) {
                        work(run);
                    }
                }
                run.end();
            }),
            scan(5_000),
            body(|run, _| {
                work(run);
                let is_row = run.call(3);
                work(run);
                if !is_row {
                    run.end();
                }
            }),
            scan(6),
        ],
        accounting: vec![
            Accounting::Switch,
            Accounting::Leaf,
            Accounting::Switch,
            Accounting::Leaf,
        ],
        drained: Vec::new(),
        parents: vec![None, Some(0), Some(0), Some(2)],
    }
}

/// Returns the same loop over an aggregate that reads each start of its scan to the end.
fn fused() -> Plan {
    Plan {
        bodies: vec![
            body(|run, _| {
                for _ in 0..3_000 {
                    work(run);
                    run.rescan(1);
                    run.rescan(2);
                    run.call(1);
                }
            }),
            body(|run, _| {
                while run.call(2) {
                    run.work(8.0);
                }
            }),
            scan(20),
        ],
        accounting: vec![
            Accounting::Switch,
            Accounting::FusedAggregate,
            Accounting::FusedScan,
        ],
        drained: Vec::new(),
        parents: vec![None, Some(0), Some(1)],
    }
}

/// Returns a loop over an aggregate that uses blocks itself while it reads each start of a join to the end,
/// which reads each start of a scan to the end.
fn drained() -> Plan {
    Plan {
        bodies: vec![
            body(|run, _| {
                for _ in 0..90 {
                    run.rescan(1);
                    run.rescan(2);
                    run.rescan(3);
                    run.call(1);
                }
            }),
            body(|run, _| {
                while run.call(2) {
                    work(run);
                }
            }),
            body(|run, i| {
                if run.nodes[i].calls % 31 == 1 {
                    while run.call(3) {
                        work(run);
                    }
                }
                work(run);
                if ends(run, i, 30) {
                    run.end();
                }
            }),
            scan(20),
        ],
        accounting: vec![
            Accounting::Switch,
            Accounting::Switch,
            Accounting::Switch,
            Accounting::Leaf,
        ],
        drained: vec![2, 3],
        parents: vec![None, Some(0), Some(1), Some(2)],
    }
}

/// Returns a plan of two nodes that call the same subplan.
fn subplan() -> Plan {
    let asks = |run: &mut Run| {
        if run.random.random_bool(0.3) {
            run.rescan(2);
            run.rescan(3);
            run.call_subplan(2);
        }
    };
    Plan {
        bodies: vec![
            body(move |run, _| {
                while run.call(1) {
                    work(run);
                    asks(run);
                    work(run);
                }
                run.end();
            }),
            body(move |run, i| {
                work(run);
                asks(run);
                work(run);
                if ends(run, i, 5_000) {
                    run.end();
                }
            }),
            body(|run, _| {
                work(run);
                while run.call(3) {
                    work(run);
                }
            }),
            scan(3),
        ],
        accounting: vec![
            Accounting::Switch,
            Accounting::Switch,
            Accounting::SubplanRoot,
            Accounting::Switch,
        ],
        drained: Vec::new(),
        parents: vec![None, Some(0), None, Some(2)],
    }
}

/// Runs a plan, and checks all exact counts of each node.
fn check(name: &str, plan: &Plan, timed: Timed, is_read_only: bool, machine: Machine) {
    let mut run = Run::new(machine, &plan.bodies, 7);
    for (i, accounting) in plan.accounting.iter().enumerate() {
        let scope = if is_read_only { Scope::Reads } else { Scope::All };
        run.wrap_with(i, timed, *accounting, [scope; 2], plan.drained.contains(&i));
    }
    run.link_accounts(&plan.parents);
    run.hit_blocks(3);
    run.call(0);
    run.hit_blocks(2);
    let readings = run.readings;
    run.end_statement();

    let outside = run.nodes.len();
    assert_eq!(
        run.running_account, outside,
        "{name}, {timed:?}: the caller's account runs again"
    );
    assert_eq!(run.outside.hits, 5, "{name}, {timed:?}: what was used outside");
    let mut made = 0;
    for (i, node) in run.nodes.iter().enumerate() {
        let name = format!("{name}, {timed:?}, read only {is_read_only}, node {i}");
        assert!(node.calls > 0, "{name}");
        assert_eq!(node.used, node.true_used, "{name}: blocks");
        assert_eq!(node.starts, node.true_starts, "{name}: starts");
        let is_fused = plan.accounting[i] == Accounting::FusedScan;
        let counts_calls =
            (is_fused || plan.drained.contains(&i)) && wrapper::counts_calls(timed, plan.accounting[i]);
        let calls = match timed {
            Timed::Never if is_fused => node.every.calls,
            Timed::Never => node.calls,
            Timed::Sampled => node.timer.calls(),
            Timed::EveryTsc | Timed::Every => node.every.calls,
        };
        assert_eq!(calls, node.calls, "{name}: calls");
        assert!(!counts_calls || !node.is_last_row, "{name}: the last call");
        let rows = if counts_calls {
            calls - node.starts
        } else {
            node.rows
        };
        assert_eq!(rows, node.true_rows, "{name}: rows");
        match timed {
            Timed::Never => assert_eq!((node.histogram, node.timer.timed_calls), ([0; 2], 0), "{name}"),
            Timed::Sampled => {
                made += node.timer.timer_calls();
                // Each timed call took two readings; each detected call took one, at its end.
                let sampled = node.timer.timer_calls() - node.timer.timed_calls;
                assert_eq!(
                    node.histogram[0] + node.histogram[1],
                    sampled,
                    "{name}: sampled calls"
                );
                assert!(node.calls < 100 || sampled < node.calls, "{name}");
            }
            Timed::EveryTsc | Timed::Every => {
                let reading = node.true_reading_calls;
                assert_eq!(node.histogram, [calls - reading, reading], "{name}: histogram");
            }
        }
    }
    assert_eq!(readings, made, "{name}, {timed:?}: readings");
}

#[test]
fn counts_are_exact() {
    for (name, plan) in [
        ("nested loop", nested_loop()),
        ("fused", fused()),
        ("drained", drained()),
        ("subplan", subplan()),
    ] {
        for timed in EVERY_TIMED {
            for is_read_only in [false, true] {
                check(name, &plan, timed, is_read_only, Machine::default());
            }
        }
    }
}

#[test]
fn counts_are_exact_without_accounts() {
    for timed in EVERY_TIMED {
        let plan = nested_loop();
        let mut run = Run::new(Machine::default(), &plan.bodies, 7);
        for i in 0..plan.bodies.len() {
            run.wrap(i, timed, Accounting::None, false);
        }
        run.call(0);
        run.end_statement();
        for node in &run.nodes {
            assert_eq!((node.rows, node.starts), (node.true_rows, node.true_starts));
            assert_eq!(node.used, Default::default());
        }
    }
}

#[test]
fn temporary_tables_are_accounted_for() {
    let mut plan = nested_loop();
    plan.bodies[3] = body(|run, i| {
        run.work(50.0);
        run.hit_local_block();
        if ends(run, i, 6) {
            run.end();
        }
    });
    for timed in EVERY_TIMED {
        check("temporary", &plan, timed, false, Machine::default());
    }
}

#[test]
fn every_call_is_timed() {
    let machine = Machine {
        reading_ns: 0.0,
        bookkeeping_ns: 0.0,
        ..Machine::default()
    };
    for plan in [nested_loop(), fused(), drained(), subplan()] {
        for timed in [Timed::EveryTsc, Timed::Every] {
            let mut run = Run::new(machine, &plan.bodies, 7);
            for (i, accounting) in plan.accounting.iter().enumerate() {
                run.wrap(i, timed, *accounting, true);
            }
            run.call(0);
            for (i, node) in run.nodes.iter().enumerate() {
                let ticks = [node.every.ticks, node.every.startup_ticks];
                for (ticks, ns) in ticks.iter().zip([node.true_ns, node.true_startup_ns]) {
                    let off = *ticks as f64 / machine.ticks_per_ns - ns;
                    // The error of each call is less than a tick.
                    assert!(off.abs() <= node.calls as f64, "node {i}: {off} of {ns}");
                }
            }
        }
    }
}

#[test]
fn estimates_of_fused_nodes_leaves_and_subplans_are_close() {
    const SEEDS: usize = 401;
    for (name, plan) in [
        ("fused", fused()),
        ("nested loop", nested_loop()),
        ("subplan", subplan()),
    ] {
        let mut off = vec![Vec::new(); plan.bodies.len()];
        for seed in 0..SEEDS {
            let mut run = Run::new(Machine::default(), &plan.bodies, seed as u64);
            for (i, accounting) in plan.accounting.iter().enumerate() {
                run.wrap(i, Timed::Sampled, *accounting, true);
            }
            run.link_accounts(&plan.parents);
            run.call(0);
            for (i, node) in run.nodes.iter().enumerate() {
                off[i].push((run.estimate(i).total / node.true_ns - 1.0).abs());
            }
        }
        for (i, off) in off.iter_mut().enumerate() {
            off.sort_by(f64::total_cmp);
            let median = off[SEEDS / 2];
            // Of the loop, only the leaves: the join's few calls are of two kinds.
            if name == "nested loop" && plan.accounting[i] != Accounting::Leaf {
                continue;
            }
            // The largest one is 0.094 with 1,001 seeds: that of the loop's outer scan.
            assert!(median < 0.10, "{name}, node {i}: median {median:.3}");
        }
    }
}

#[test]
fn the_cost_of_nested_readings_is_subtracted() {
    let machine = Machine {
        sampfreq: 1,
        reading_ns: 30.0,
        ..Machine::default()
    };
    let plan = nested_loop();
    let mut run = Run::new(machine, &plan.bodies, 7);
    run.link_accounts(&plan.parents);
    run.call(0);
    for (i, node) in run.nodes.iter().enumerate() {
        let ratio = run.estimate(i).total / node.true_ns;
        assert!((ratio - 1.0).abs() < 0.02, "node {i}: {ratio:.4}");
    }
}

/// Beats come while an aggregate works after its scan's last call. That call was one of the first ones, so it
/// was timed.
#[test]
fn a_timed_call_of_a_fused_scan_is_not_recorded_again() {
    let bodies = [
        body(|run, _| {
            // After these calls, the session wishes for beats.
            for _ in 0..3_000 {
                run.call(3);
            }
            run.call(1);
        }),
        body(|run, _| {
            while run.call(2) {}
            run.work(5e6);
        }),
        scan(3),
        body(|run, _| run.work(60.0)),
    ];
    let mut run = Run::new(Machine::default(), &bodies, 7);
    let accounting = [
        Accounting::Switch,
        Accounting::FusedAggregate,
        Accounting::FusedScan,
        Accounting::Leaf,
    ];
    for (i, accounting) in accounting.into_iter().enumerate() {
        run.wrap(i, Timed::Sampled, accounting, true);
    }
    run.link_accounts(&[None, Some(0), Some(1), Some(0)]);
    run.call(0);
    let timer = run.nodes[2].timer;
    assert_eq!((timer.calls(), timer.timed_calls, timer.timer_calls()), (4, 4, 8));
    assert!(timer.exact().is_some());
}
