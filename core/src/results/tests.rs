mod by_hand;
mod called;
mod counted;
mod waited;

use super::*;
use crate::model::{NodeFacts, NodeStats, Wal};
use crate::reconcile::Edge;
use crate::sampler::Config;
use by_hand::*;

/// Returns a join of two scans. All calls are timed, because they are the first calls of the sampler.
fn join() -> Plan {
    let mut plan = Plan::default();
    plan.samples.push(node(None, sampled([6_000_000, 4_000_000]), 1));
    plan.samples.push(node(Some(0), sampled([2_000_000; 2]), 10));
    plan.samples.push(node(Some(0), sampled([1_000_000; 3]), 100));
    plan.samples[0].rows = 1;
    plan.samples[1].rows = 2;
    plan.facts = vec![NodeFacts::default(); 2];
    plan.facts[1].memory_kb = 25.into();
    plan
}

#[test]
fn exact_times_are_computed() {
    let stats = direct(&join()).expect("direct");
    let root = time(&stats[0]);
    assert_eq!((root.total_ms, root.startup_ms), (5.0, 3.0));
    assert_eq!((root.self_ms, root.error_ms), (5.0 - 2.0 - 1.5, 0.0));
    assert_eq!(time(&stats[1]).self_ms, 2.0);
    assert_eq!((stats[0].rows, stats[1].rows), (1, 2));
    assert_eq!(stats[1].facts.memory_kb.get(), Some(25));
    assert_eq!((stats[2].timed_calls, stats[2].timer_calls), (3, 6));
    let inclusive: Vec<i64> = stats.iter().map(hit).collect();
    assert_eq!(inclusive, [111, 10, 100]);
    assert_eq!(stats[0].wal.get().expect("counted").records, 111);
}

#[test]
fn both_functions_agree_if_times_are_exact() {
    let plan = join();
    assert_eq!(direct(&plan).expect("direct"), stats(&plan, &timed(1e12)));
    let alone = Plan {
        samples: vec![node(None, sampled([2_000_000]), 1)],
        ..Plan::default()
    };
    assert_eq!(direct(&alone).expect("direct"), stats(&alone, &timed(1e12)));
}

/// The estimated cost of readings may make a parent seem shorter than its children.
#[test]
fn both_functions_scale_children_down_to_their_parent() {
    let plan_with = |calls: [u64; 5]| {
        let parents = [None, Some(0), Some(1), Some(1), Some(0)];
        Plan {
            samples: parents
                .iter()
                .zip(calls)
                .map(|(parent, ticks)| node(*parent, sampled([ticks / 2; 2]), 1))
                .collect(),
            ..Plan::default()
        }
    };
    for calls in [
        [8, 9, 2, 3, 4],
        [8, 6, 5, 3, 1],
        [8, 9, 0, 20, 7],
        [0, 3, 4, 0, 0],
        [9, 5, 3, 2, 3],
        [8, 0, 2, 3, 1],
    ] {
        let plan = plan_with(calls.map(|ms| 2 * ms * 1_000_000));
        assert_near(&direct(&plan).expect("direct"), &stats(&plan, &timed(1e12)));
    }
}

/// Both functions compute in another order, so the last bits may differ.
fn assert_near(direct: &[NodeStats], assembled: &[NodeStats]) {
    assert_eq!(direct.len(), assembled.len());
    for (i, (ours, theirs)) in direct.iter().zip(assembled).enumerate() {
        let (ours, theirs) = (time(ours), time(theirs));
        let near = |a: f64, b: f64| (a - b).abs() < 1e-12;
        assert!(
            near(ours.total_ms, theirs.total_ms)
                && near(ours.startup_ms, theirs.startup_ms)
                && near(ours.self_ms, theirs.self_ms)
                && near(ours.error_ms, theirs.error_ms),
            "node {i}: {ours:?}, not {theirs:?}"
        );
    }
}

#[test]
fn both_functions_agree_on_estimates_that_fit() {
    let mut plan = join();
    plan.samples[1].calls = sampled((0..1_000).map(|i| 100 + i % 7));
    let (direct, assembled) = (direct(&plan).expect("direct"), stats(&plan, &timed(1e12)));
    assert_near(&direct, &assembled);
    assert!(time(&direct[1]).error_ms > 0.0);
}

/// A bitmap heap scan: core measures the index scan below it, whose blocks were also charged to the heap
/// scan.
#[test]
fn both_functions_agree_on_nodes_that_core_measures() {
    let mut plan = Plan {
        samples: vec![
            node(None, sampled([6_000_000, 4_000_000]), 12),
            node(Some(0), sampled([]), 0),
        ],
        cores: vec![CoreSample::default(); 2],
        ..Plan::default()
    };
    plan.samples[1].by_core = true;
    plan.samples[1].core_rows = 5.0;
    plan.cores[1].total_ns = 1_500_000.0;
    plan.cores[1].startup_ns = 1_500_000.0;
    plan.cores[1].buffers = blocks(2).into();
    let statement = StatementSample {
        core_contributes: true,
        ..timed(1e12)
    };
    let direct_stats = direct(&plan).expect("direct");
    assert_eq!(direct_stats, stats(&plan, &statement));
    assert_eq!(
        (time(&direct_stats[0]).self_ms, time(&direct_stats[1]).total_ms),
        (3.5, 1.5)
    );
    assert_eq!(
        (hit(&direct_stats[0]), hit(&direct_stats[1]), direct_stats[1].rows),
        (12, 2, 5)
    );
    plan.cores[1].is_interrupted = true;
    assert!(direct(&plan).is_none());
}

#[test]
fn memory_of_an_earlier_statement_is_reused() {
    let mut scratch = assembled(&join(), &timed(1e12));
    let alone = Plan {
        samples: vec![node(None, sampled([4_000_000]), 1)],
        ..Plan::default()
    };
    for _ in 0..2 {
        assert!(assemble_directly::<_, true>(
            &alone,
            &CONFIG,
            TICK_NS,
            1e12,
            &mut scratch.stats,
            &mut scratch.called
        ));
        assert_eq!(scratch.stats.len(), 1);
        assert_eq!(time(&scratch.stats[0]).total_ms, 2.0);
        assemble(&alone, &timed(1e12), &mut scratch).expect("memory");
        assert_eq!(scratch.stats.len(), 1);
        assert_eq!(hit(&scratch.stats[0]), 1);
    }
}

#[test]
fn statements_with_other_places_are_refused() {
    let changed = |change: fn(&mut Plan)| {
        let mut plan = join();
        change(&mut plan);
        direct(&plan)
    };
    assert!(changed(|_| ()).is_some());
    // The estimate exceeds the parent's time.
    assert!(changed(|plan| plan.samples[1].calls = sampled([100_000; 1_000])).is_none());
    assert!(changed(|plan| plan.samples[1].place.edge = Edge::Nested).is_none());
    assert!(changed(|plan| plan.samples[1].interrupted = Some(1)).is_none());
    assert!(changed(|plan| plan.samples[1].is_instrumented = false).is_none());
    assert!(changed(|plan| plan.samples[1].calls = UNTIMED).is_none());
    assert!(may_be_direct(Mode::RowsourceOnly, false, false, 16));
    assert!(!may_be_direct(Mode::RowsourceOnly, false, false, 17));
    assert!(!may_be_direct(Mode::RowsourceOnly, true, false, 1));
    assert!(may_be_direct(Mode::RowsourceOnly, true, true, 1));
    assert!(!may_be_direct(Mode::AlsoForCore, false, true, 1));
    assert!(!may_be_direct(Mode::CoreOnly, false, true, 1));
}

#[test]
fn sampled_times_have_an_error() {
    let calls = 10_000;
    let lengths = (0..calls).map(|i| if i % 2 == 0 { 1_000 } else { 3_000 });
    let plan = Plan {
        samples: vec![
            node(None, sampled([30_000_000]), 0),
            node(Some(0), sampled(lengths), 0),
        ],
        ..Plan::default()
    };
    let stats = stats(&plan, &timed(1e12));
    let (root, scan) = (time(&stats[0]), time(&stats[1]));
    let truth = calls as f64 * 2_000.0 * TICK_NS / 1e6;
    assert!(scan.error_ms > 0.0);
    assert!(
        (scan.total_ms - truth).abs() < 4.0 * scan.error_ms,
        "{scan:?}, not {truth}"
    );
    assert_eq!((root.total_ms, root.error_ms), (15.0, 0.0));
    assert!((root.self_ms - (root.total_ms - scan.total_ms)).abs() < 1e-9);
    assert!(stats[1].timed_calls > 100 && stats[1].timed_calls < calls);
}

#[test]
fn the_root_takes_no_longer_than_the_runs() {
    let plan = join();
    assert_eq!(time(&stats(&plan, &timed(4e6))[0]).total_ms, 4.0);
    let mut stats = Vec::new();
    assert!(assemble_directly::<_, true>(
        &plan,
        &CONFIG,
        TICK_NS,
        4e6,
        &mut stats,
        &mut Vec::new()
    ));
    assert_eq!(time(&stats[0]).total_ms, 4.0);
}

#[test]
fn an_init_plan_is_charged_to_the_node_that_called_it() {
    let mut plan = join();
    // What it used is also part of the 10 blocks of the scan that called it.
    plan.samples.push(node(Some(0), sampled([1_000_000]), 7));
    plan.samples[3].place.edge = Edge::Nested;
    plan.samples[3].place.by_expression = true;
    let stats = stats(&plan, &timed(1e12));
    let inclusive: Vec<i64> = stats.iter().map(hit).collect();
    assert_eq!(inclusive, [111, 10, 100, 7]);
    // Its time is part of a sibling's, so it is not subtracted from the parent's again.
    assert_eq!(time(&stats[0]).self_ms, 5.0 - 2.0 - 1.5);
    assert_eq!(time(&stats[3]).total_ms, 0.5);
}

#[test]
fn a_hidden_root_is_exported_and_not_shown() {
    let mut plan = Plan {
        samples: vec![node(None, sampled([10_000_000]), 0)],
        cores: vec![CoreSample::default(); 2],
        ..Plan::default()
    };
    plan.samples[0].place.hidden = true;
    plan.samples[0].processes = 2.0;
    plan.samples.push(node(Some(0), sampled([2_000_000]), 5));
    let statement = StatementSample {
        mode: Mode::AlsoForCore,
        core_contributes: true,
        ..timed(1e12)
    };
    let mut scratch = assembled(&plan, &statement);
    let exported: Vec<(usize, f64, f64)> = scratch
        .totals()
        .map(|node| (node.index, node.starts, node.estimate.total))
        .collect();
    assert_eq!(exported, [(0, 1.0, 5e6), (1, 1.0, 1e6)]);
    scratch.remove_hidden_root();
    assert_eq!(scratch.stats.len(), 1);
    assert_eq!(hit(&scratch.stats[0]), 5);
}

#[test]
fn an_interrupted_call_counts_as_a_start_and_takes_time() {
    let mut plan = Plan {
        samples: vec![node(None, every(0, 0), 0), node(Some(0), every(2, 1_000_000), 0)],
        ..Plan::default()
    };
    for sample in &mut plan.samples {
        sample.loops = 0.0;
    }
    plan.samples[0].interrupted = Some(8_000_000);
    plan.samples[1].is_running = true;
    plan.samples[1].interrupted = Some(3_000_000);
    let stats = stats(&plan, &timed(1e12));
    assert_eq!(stats[0].starts.get(), Some(1));
    assert_eq!(stats[1].starts.get(), Some(1), "a start in progress counts once");
    assert_eq!(time(&stats[0]).total_ms, 4.0);
    assert_eq!(time(&stats[1]).total_ms, 2.0);
}

#[test]
fn a_node_that_never_started_has_no_time() {
    let mut plan = join();
    // A node below it never started either.
    for parent in [0, 2] {
        let mut never = node(Some(parent), sampled([]), 0);
        never.loops = 0.0;
        plan.samples.truncate(if parent == 0 { 2 } else { 3 });
        plan.samples.push(never);
    }
    for stats in [stats(&plan, &timed(1e12)), direct(&plan).expect("direct")] {
        assert_eq!((stats[2].starts.get(), stats[2].time.get()), (Some(0), None));
        assert!(stats[2].buffers.get().is_some());
    }
}

#[test]
fn readings_below_are_subtracted_if_every_call_is_timed() {
    let config = Config {
        empty_interval: 20.0,
        reading: 30.0,
        ..CONFIG
    };
    let statement = StatementSample {
        config: &config,
        ..timed(1e12)
    };
    let plan = Plan {
        samples: vec![
            node(None, every(10, 100_000), 0),
            node(Some(0), every(100, 50_000), 0),
            node(Some(1), every(200, 10_000), 0),
        ],
        ..Plan::default()
    };
    let totals: Vec<f64> = assembled(&plan, &statement)
        .totals()
        .map(|node| node.estimate.total)
        .collect();
    let root = 100_000.0 - 10.0 * 20.0 - 2.0 * 300.0 * 30.0;
    let middle = 50_000.0 - 100.0 * 20.0 - 2.0 * 200.0 * 30.0;
    let leaf = 10_000.0 - 200.0 * 20.0;
    assert_eq!(totals, [root, middle, leaf].map(|ticks| ticks * TICK_NS));
    assert_eq!(stats(&plan, &statement)[2].timer_calls, 400);
}

#[test]
fn workers_add_to_what_the_leader_measured() {
    let mut plan = Plan {
        samples: vec![
            node(None, every(1, 20_000_000), 0),
            node(Some(0), every(101, 18_000_000), 3),
        ],
        cores: vec![CoreSample::default(); 2],
        ..Plan::default()
    };
    // A Gather with two workers: each node below it may take three times as long as the Gather.
    plan.samples[0].processes = 3.0;
    plan.samples[1].loops = 3.0;
    plan.samples[1].rows = 100;
    plan.samples[1].core_rows = 250.0;
    plan.cores[1] = CoreSample {
        total_ns: 17e6,
        buffers: blocks(40).into(),
        wal: Wal::default().into(),
        worker_loops: 2.0,
        workers: WorkerReport {
            error_ns: 3e6,
            timed_calls: 50,
            timer_calls: 100,
            clock_backsteps: 1,
            ..WorkerReport::default()
        },
        ..CoreSample::default()
    };
    let statement = StatementSample {
        core_contributes: true,
        ..timed(1e12)
    };
    let stats = stats(&plan, &statement);
    let below = &stats[1];
    assert_eq!((below.starts.get(), below.rows), (Some(3), 350));
    assert_eq!((below.timed_calls, below.timer_calls), (151, 302));
    assert_eq!(below.clock_backsteps, 1);
    assert_eq!(time(below).total_ms, 9.0 + 17.0);
    assert_eq!(time(below).error_ms, 3.0);
    assert_eq!(hit(below), 43);
    let root = time(&stats[0]);
    assert!((root.self_ms - (10.0 - 26.0 / 3.0)).abs() < 1e-9, "{root:?}");
}

#[test]
fn a_fused_scan_counts_calls_instead_of_rows() {
    let mut plan = Plan {
        samples: vec![
            node(None, sampled([8_000_000]), 0),
            node(Some(0), sampled([10; 101]), 0),
        ],
        cores: vec![CoreSample::default(); 2],
        ..Plan::default()
    };
    plan.samples[1].counts_calls = true;
    // The last call of each start returns no row.
    assert_eq!(stats(&plan, &timed(1e12))[1].rows, 100);
    plan.samples[1].calls = Calls::Untimed { calls: 101 };
    assert_eq!(stats(&plan, &timed(1e12))[1].rows, 100);
    // An error of its caller came between two calls, and the last one had returned a row.
    (plan.samples[1].is_last_row, plan.samples[1].is_running) = (true, true);
    plan.samples[1].loops = 0.0;
    assert_eq!(stats(&plan, &timed(1e12))[1].rows, 101);
    (plan.samples[1].is_last_row, plan.samples[1].is_running) = (false, false);
    plan.samples[1].loops = 1.0;
    // This wrapper does not see the starts of workers.
    plan.samples[1].loops = 3.0;
    plan.samples[1].core_rows = 40.0;
    plan.cores[1].worker_loops = 2.0;
    let statement = StatementSample {
        core_contributes: true,
        ..timed(1e12)
    };
    assert_eq!(stats(&plan, &statement)[1].rows, 140);
    // If every call is timed, its wrapper sees the rows.
    plan.samples[1].counts_calls = false;
    plan.samples[1].calls = every(101, 1);
    plan.samples[1].rows = 77;
    assert_eq!(stats(&plan, &statement)[1].rows, 117);
}

#[test]
fn lower_levels_have_fewer_statistics() {
    let mut plan = Plan {
        samples: vec![node(None, UNTIMED, 5)],
        ..Plan::default()
    };
    plan.samples[0].rows = 9;
    let statement = StatementSample {
        has_usage: false,
        is_timed: false,
        ..timed(1e12)
    };
    let known = NodeStats {
        rows: 9,
        ..NodeStats::default()
    };
    assert_eq!(stats(&plan, &statement), [known]);
    // At the next level, only times are missing.
    let statement = StatementSample {
        is_timed: false,
        ..timed(1e12)
    };
    let stats = stats(&plan, &statement);
    assert_eq!((stats[0].starts.get(), stats[0].time.get()), (Some(1), None));
    assert_eq!(hit(&stats[0]), 5);
}

#[test]
fn the_counts_of_core_are_added_once() {
    let mut plan = join();
    let counted = |hit| CoreSample {
        buffers: blocks(hit).into(),
        wal: Wal::default().into(),
        ..CoreSample::default()
    };
    plan.cores = vec![counted(1_000), counted(500), counted(50)];
    // Only core measures the first scan.
    plan.samples[1].by_core = true;
    let statement = StatementSample {
        mode: Mode::AlsoForCore,
        core_contributes: true,
        ..timed(1e12)
    };
    let inclusive: Vec<i64> = stats(&plan, &statement).iter().map(hit).collect();
    assert_eq!(inclusive, [111 + 1_000, 500, 100 + 50]);
    // At the level of rows, there are no buffers to add.
    let statement = StatementSample {
        has_usage: false,
        ..statement
    };
    assert!(stats(&plan, &statement)[0].buffers.get().is_none());
}

#[test]
fn statistics_of_core_alone_are_used_unchanged() {
    let mut plan = Plan {
        samples: vec![node(None, UNTIMED, 99), node(Some(0), UNTIMED, 99)],
        cores: vec![CoreSample::default(); 2],
        ..Plan::default()
    };
    plan.samples[1].core_rows = 4.0;
    for (core, total_ns) in plan.cores.iter_mut().zip([8e6, 3e6]) {
        core.total_ns = total_ns;
        core.startup_ns = 1e6;
        core.buffers = blocks(6).into();
    }
    let statement = StatementSample {
        mode: Mode::CoreOnly,
        core_contributes: true,
        // Core's times are not limited by pg_rowsource's.
        ..timed(1e6)
    };
    let stats = stats(&plan, &statement);
    assert_eq!((time(&stats[0]).total_ms, time(&stats[0]).self_ms), (8.0, 5.0));
    assert_eq!((time(&stats[1]).startup_ms, stats[1].rows), (1.0, 4));
    // Core's counts are already inclusive, and it did not count WAL.
    assert_eq!((hit(&stats[0]), hit(&stats[1])), (6, 6));
    assert_eq!(stats[0].wal.get(), None);
    assert_eq!(stats[0].timed_calls, 0);
}

#[test]
fn a_call_of_core_that_was_interrupted_counts_as_a_start() {
    let mut plan = Plan {
        samples: vec![node(None, every(0, 0), 0)],
        cores: vec![CoreSample {
            is_interrupted: true,
            total_ns: 2e6,
            ..CoreSample::default()
        }],
        ..Plan::default()
    };
    plan.samples[0].loops = 0.0;
    let statement = StatementSample {
        core_contributes: true,
        ..timed(1e12)
    };
    let stats = stats(&plan, &statement);
    assert_eq!((stats[0].starts.get(), time(&stats[0]).total_ms), (Some(1), 2.0));
}

#[test]
fn a_node_without_instrumentation_has_only_the_buffers_below_it() {
    let mut plan = join();
    plan.samples[0].is_instrumented = false;
    let stats = stats(&plan, &timed(1e12));
    assert_eq!((stats[0].rows, stats[0].starts.get()), (0, None));
    assert_eq!(stats[0].time.get(), None);
    assert_eq!(hit(&stats[0]), 110);
    assert_eq!(assembled(&plan, &timed(1e12)).totals().count(), 2);
}

/// A custom scan that runs its input without the input's wrapper, as TimescaleDB's does above a ModifyTable.
#[test]
fn a_node_without_its_wrapper_bounds_nobody() {
    let mut plan = Plan {
        samples: vec![
            node(None, sampled([8_000_000]), 1),
            node(Some(0), sampled([]), 0),
            node(Some(1), sampled([6_000_000]), 10),
        ],
        cores: vec![CoreSample::default(); 3],
        by_others: vec![1],
        ..Plan::default()
    };
    plan.samples[1].loops = 0.0;
    let statement = StatementSample {
        core_contributes: true,
        ..timed(1e12)
    };
    let bypassed = stats(&plan, &statement);
    assert_eq!((bypassed[1].starts.get(), bypassed[1].time.get()), (None, None));
    assert_eq!(
        (time(&bypassed[2]).total_ms, time(&bypassed[2]).self_ms),
        (3.0, 3.0)
    );
    assert_eq!(
        (time(&bypassed[0]).total_ms, time(&bypassed[0]).self_ms),
        (4.0, 1.0)
    );
    assert_eq!(bypassed.iter().map(hit).collect::<Vec<_>>(), [11, 10, 10]);
    // A node whose inputs did not run did not run either.
    plan.samples[2].loops = 0.0;
    plan.touched = vec![1];
    assert_eq!(stats(&plan, &statement)[1].starts.get(), Some(0));
}

/// A node without inputs has never run if its state tells that.
#[test]
fn a_leaf_without_its_wrapper_may_have_run() {
    let mut plan = Plan {
        samples: vec![
            node(None, sampled([8_000_000]), 1),
            node(Some(0), sampled([]), 0),
            node(Some(0), sampled([]), 0),
        ],
        cores: vec![CoreSample::default(); 3],
        by_others: vec![1, 2],
        touched: vec![1],
        ..Plan::default()
    };
    plan.samples[1].loops = 0.0;
    plan.samples[2].loops = 0.0;
    let statement = StatementSample {
        core_contributes: true,
        ..timed(1e12)
    };
    let starts = |plan: &Plan| -> Vec<_> {
        let stats = stats(plan, &statement);
        stats.iter().map(|node| node.starts.get()).collect()
    };
    assert_eq!(starts(&plan), [Some(1), None, Some(0)]);
    // If the wrapper was called, it has counted.
    plan.samples[1].loops = 1.0;
    assert_eq!(starts(&plan), [Some(1), Some(1), Some(0)]);
    // An ordinary node calls the wrappers of its inputs.
    plan.samples[1].loops = 0.0;
    plan.by_others.clear();
    assert_eq!(starts(&plan), [Some(1), Some(0), Some(0)]);
}
