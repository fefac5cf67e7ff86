//! Executions that are summed up as counts.

use super::counts::CountSums;
use super::*;
use crate::model::facts::SCAN_IO;
use crate::model::{Buffers, Calls, Estimate, Fold, NodeKind, NodeTotals, PlanPart, Time};

/// Returns a lookup joined to another one, whose nodes hit buffers and do nothing else. `times` are the ticks
/// of the nodes' calls.
fn lookups(times: [u64; 3], rows: u64) -> Plan {
    let mut plan = Plan::default();
    for (parent, (ticks, hit)) in [None, Some(0), Some(0)]
        .into_iter()
        .zip(times.into_iter().zip([0, 3, 4]))
    {
        let mut sample = node(parent, sampled([ticks / 2, ticks - ticks / 2]), hit);
        (sample.rows, sample.wal, sample.used) = (rows, Wal::default(), Used::default());
        sample.estimate = Estimate::new(2.0, true);
        plan.samples.push(sample);
        plan.facts.push(NodeFacts::default());
    }
    plan.facts[1].kind = NodeKind::IndexScan;
    plan.facts[1].sums[0] = rows + 1;
    plan
}

/// Returns the same with a second node that has changed blocks and written WAL.
fn with_changes(mut plan: Plan, records: i64) -> Plan {
    let sample = &mut plan.samples[1];
    sample.used.has_changes = true;
    sample.buffers.shared_dirtied = records + 1;
    sample.wal = Wal {
        records,
        fpi: 1,
        bytes: 100 * records as u64,
        ..Wal::default()
    };
    plan
}

fn shape(plan: &Plan) -> Option<Shape> {
    shape_with_clock(plan, TICK_NS)
}

fn shape_with_clock(plan: &Plan, tick_ns: f64) -> Option<Shape> {
    let nodes = plan.samples.iter();
    Shape::new(nodes.map(|sample| (sample.place, sample.by_core)), tick_ns)
}

fn counts(plan: &Plan, elapsed_ns: f64) -> Result<Counts, Uncounted> {
    let mut counts = Counts::default();
    let shape = shape(plan).expect("a shape");
    counts.take(plan, &shape, elapsed_ns / 1e6).map(|()| counts)
}

const EXECUTIONS: [([u64; 3], u64); 3] = [
    ([10_000_000, 2_000_000, 4_000_000], 1),
    ([8_000_000, 5_000_000, 2_000_000], 3),
    ([9_000_000, 1_000_000, 1_000_000], 2),
];

#[test]
fn an_execution_has_the_same_statistics() {
    for (times, rows) in EXECUTIONS {
        for plan in [lookups(times, rows), with_changes(lookups(times, rows), 3)] {
            let mut stats = Vec::new();
            assert!(counts(&plan, 1e12).expect("counts").compute(&mut stats));
            assert_eq!(stats, direct(&plan).expect("direct"));
        }
    }
    // The children seem to take longer than their parent.
    let plan = lookups([2_000_000, 2_000_000, 4_000_000], 1);
    let mut stats = Vec::new();
    assert!(counts(&plan, 1e12).expect("counts").compute(&mut stats));
    assert_near(&stats, &direct(&plan).expect("direct"));
    // The root takes no longer than the runs.
    assert!(counts(&plan, 500_000.0).expect("counts").compute(&mut stats));
    assert_eq!(time(&stats[0]).total_ms, 0.5);
}

/// Returns a bitmap heap scan. Core measures the index scan below it, whose blocks were also charged to the
/// heap scan.
fn bitmap_scan() -> Plan {
    let mut plan = Plan {
        samples: vec![
            node(None, sampled([6_000_000, 4_000_000]), 12),
            node(Some(0), sampled([]), 0),
        ],
        cores: vec![CoreSample::default(); 2],
        facts: vec![NodeFacts::default(); 2],
        ..Plan::default()
    };
    for sample in &mut plan.samples {
        (sample.wal, sample.used) = (Wal::default(), Used::default());
    }
    plan.facts[0].kind = NodeKind::BitmapHeapScan;
    plan.facts[0].sums[2] = 10;
    plan.samples[1].by_core = true;
    plan.samples[1].core_rows = 5.0;
    plan.cores[1] = CoreSample {
        total_ns: 1_500_000.0,
        startup_ns: 1_500_000.0,
        buffers: Buffers {
            shared_dirtied: 1,
            ..blocks(2)
        }
        .into(),
        ..CoreSample::default()
    };
    plan
}

#[test]
fn nodes_that_core_measures_are_counted() {
    let plan = bitmap_scan();
    let counts = counts(&plan, 1e12).expect("counts");
    let mut stats = Vec::new();
    assert!(counts.compute(&mut stats));
    assert_eq!(stats, direct(&plan).expect("direct"));
    assert_eq!((hit(&stats[0]), hit(&stats[1]), stats[1].rows), (12, 2, 5));
    let mut plan = bitmap_scan();
    plan.samples.iter_mut().for_each(|sample| sample.calls = UNTIMED);
    let untimed = shape_with_clock(&plan, 0.0).expect("a shape");
    let mut counts = Counts::default();
    counts.take(&plan, &untimed, 1e6).expect("counts");
    assert!(counts.compute(&mut stats));
    assert_eq!(stats, direct_without_times(&plan).expect("direct"));
}

#[test]
fn estimated_times_are_counted() {
    let lengths = |from: u64| (0..1_000).map(move |i| from + i % 7);
    let mut sums = CountSums::default();
    let mut totals = [NodeTotals::default(); PlanSum::MAX_NODES];
    let mut expected = [NodeStats::default(); 3];
    for from in [100, 300, 200] {
        let mut plan = lookups([10_000_000, 2_000_000, 4_000_000], 1);
        plan.samples[2].calls = sampled(lengths(from));
        let counts = counts(&plan, 1e12).expect("counts");
        let (mut ours, theirs) = (Vec::new(), direct(&plan).expect("direct"));
        assert!(counts.compute(&mut ours));
        assert_near(&ours, &theirs);
        assert!(time(&ours[2]).error_ms > 0.0);
        for (ours, theirs) in ours.iter().zip(&theirs) {
            assert_eq!(
                (ours.timed_calls, ours.timer_calls),
                (theirs.timed_calls, theirs.timer_calls)
            );
        }
        sums.add(&counts, &mut totals);
        for (sum, stats) in expected.iter_mut().zip(&theirs) {
            sum.add(stats);
        }
    }
    sums.add_to(&mut totals[..3]);
    assert_near(&totals.map(|node| node.total)[..3], &expected);
    // An estimate exceeds the time of the root.
    let mut plan = lookups([10_000_000, 2_000_000, 4_000_000], 1);
    plan.samples[2].calls = sampled(lengths(20_000));
    let (mut ours, theirs) = (Vec::new(), stats(&plan, &timed(1e12)));
    assert!(direct(&plan).is_none());
    assert!(counts(&plan, 1e12).expect("counts").compute(&mut ours));
    assert_near(&ours, &theirs);
    // The root takes no longer than the runs.
    plan.samples[0].calls = sampled(lengths(10_000));
    plan.samples.truncate(1);
    let mut stats = Vec::new();
    let limited = counts(&plan, 500_000.0).expect("counts");
    assert!(limited.compute(&mut stats));
    assert_eq!(time(&stats[0]).total_ms, 0.5);
}

#[test]
fn sums_have_the_same_totals_as_their_executions() {
    // Which executions have changes: none, one of them, or all.
    for changed in [
        [false; 3],
        [true, false, false],
        [false, true, false],
        [false, false, true],
        [true; 3],
    ] {
        compare_sums(changed);
    }
}

fn compare_sums(changed: [bool; 3]) {
    let mut sums = CountSums::default();
    let mut totals = [NodeTotals::default(); PlanSum::MAX_NODES];
    let mut expected = [NodeTotals::default(); 3];
    let histogram = crate::histogram::Histogram::default();
    for round in 0..2 {
        // What was summed up before was flushed.
        if round == 1 {
            sums.add_to(&mut totals[..3]);
            sums.clear();
            assert!(!sums.has_any());
        }
        for ((times, rows), is_changed) in EXECUTIONS.into_iter().zip(changed) {
            let mut plan = lookups(times, rows);
            if is_changed {
                plan = with_changes(plan, rows as i64);
            }
            let counts = counts(&plan, 1e12).expect("counts");
            assert!(sums.can_add(&counts));
            sums.add(&counts, &mut totals);
            let stats = direct(&plan).expect("direct");
            for (total, stats) in expected.iter_mut().zip(&stats) {
                total.add(stats, &histogram);
            }
        }
    }
    // An execution that is recorded otherwise is the last one now.
    sums.add_to(&mut totals[..3]);
    let check = |totals: &[NodeTotals]| {
        for (ours, theirs) in totals.iter().zip(&expected) {
            assert_near(&[ours.total], &[theirs.total]);
            let without_time = |stats: &NodeStats| NodeStats {
                time: Time::default().into(),
                ..*stats
            };
            assert_eq!(without_time(&ours.total), without_time(&theirs.total));
            assert_eq!(ours.estimates, theirs.estimates);
        }
    };
    check(&totals);
    assert_eq!(
        totals[..3].iter().map(|node| node.last).collect::<Vec<_>>(),
        expected.map(|node| node.last)
    );
    assert_eq!(totals[1].total.facts.sums[0], 2 * (2 + 4 + 3));
    sums.clear();
    let other = lookups([1_000_000; 3], 7);
    sums.add(&counts(&other, 1e12).expect("counts"), &mut totals.clone());
    sums.note_other();
    sums.add_to(&mut totals[..3]);
    assert_eq!(
        totals[..3].iter().map(|node| node.last).collect::<Vec<_>>(),
        expected.map(|node| node.last)
    );
    assert_eq!(totals[0].total.rows, expected[0].total.rows + 7);
}

#[test]
fn executions_without_times_are_counted() {
    let mut plan = lookups([1_000_000; 3], 3);
    plan.samples.iter_mut().for_each(|sample| sample.calls = UNTIMED);
    let untimed = shape_with_clock(&plan, 0.0).expect("a shape");
    let (mut counts, mut counted) = (Counts::default(), Vec::new());
    counts.take(&plan, &untimed, 1e6).expect("counts");
    assert!(counts.compute(&mut counted));
    assert_eq!(counted, direct_without_times(&plan).expect("direct"));
    assert_eq!((counted[0].time.get(), counted[0].rows), (None, 3));
    let timed = lookups([1_000_000; 3], 3);
    assert_eq!(counts.take(&timed, &untimed, 1e6), Err(Uncounted::Always));
}

#[test]
fn another_clock_is_not_added() {
    let (times, rows) = EXECUTIONS[0];
    let plan = lookups(times, rows);
    let mut sums = CountSums::default();
    sums.add(
        &counts(&plan, 1e12).expect("counts"),
        &mut [NodeTotals::default(); PlanSum::MAX_NODES],
    );
    let other = shape_with_clock(&plan, 2.0 * TICK_NS).expect("a shape");
    let mut counts = Counts::default();
    counts.take(&plan, &other, 1e6).expect("counts");
    assert!(!sums.can_add(&counts));
    sums.clear();
    assert!(sums.can_add(&counts));
}

#[test]
fn what_counts_do_not_hold_is_refused() {
    let changed = |change: fn(&mut Plan)| {
        let mut plan = lookups([10_000_000, 2_000_000, 4_000_000], 1);
        change(&mut plan);
        counts(&plan, 1e12).map(|_| ())
    };
    assert_eq!(changed(|_| ()), Ok(()));
    for change in [
        |plan: &mut Plan| plan.samples[2].used.has_more = true,
        |plan: &mut Plan| plan.samples[1].interrupted = Some(1),
        |plan: &mut Plan| plan.samples[1].is_instrumented = false,
        |plan: &mut Plan| {
            *plan = bitmap_scan();
            plan.cores[1].is_interrupted = true;
        },
        |plan: &mut Plan| {
            *plan = bitmap_scan();
            plan.samples[1].is_instrumented = false;
        },
        |plan: &mut Plan| {
            *plan = bitmap_scan();
            plan.cores[1].buffers = Buffers {
                shared_read: 1,
                ..blocks(2)
            }
            .into();
        },
    ] {
        assert_eq!(changed(change), Err(Uncounted::Now));
    }
    for change in [
        |plan: &mut Plan| plan.samples[1].calls = UNTIMED,
        |plan: &mut Plan| plan.facts[2].kind = NodeKind::Sort,
        // It is known how the scan read ahead.
        |plan: &mut Plan| {
            plan.facts[2].kind = NodeKind::BitmapHeapScan;
            plan.facts[2].sums[SCAN_IO] = 1;
        },
    ] {
        assert_eq!(changed(change), Err(Uncounted::Always));
    }
    let shape_of = |change: fn(&mut Plan)| {
        let mut plan = lookups([10_000_000, 2_000_000, 4_000_000], 1);
        change(&mut plan);
        shape(&plan)
    };
    assert!(shape_of(|_| ()).is_some());
    assert_eq!(shape_of(|plan| plan.samples[1].place.edge = Edge::Nested), None);
    assert_eq!(shape_of(|plan| plan.samples[0].place.hidden = true), None);
    assert_eq!(shape_of(|plan| plan.samples[1].place.by_expression = true), None);
    let many = |plan: &mut Plan| {
        let more = plan.samples[1];
        plan.samples.extend([more; 6]);
    };
    assert_eq!(shape_of(many), None);
}

/// Executions of a plan come in all ways, one after the other.
#[test]
fn a_plan_sum_has_all_executions() {
    use crate::model::{Batch, ExecutionStats, Outcome, Outside, PlanOrigin, Planning, Run, StatementSums};
    let run = Run {
        outcome: Outcome::Completed,
        sampfreq: 128,
        clock: None,
        elapsed_ms: 2.0,
        before_ms: 0.0,
        commit_ms: 0.0,
        planning: Planning::default(),
        origin: PlanOrigin::Other,
        at: 1,
        unfinished: false,
        explained: false,
        caller: 0,
        changed_rows: 4,
    };
    let outside = Outside {
        sums: StatementSums {
            rows: 5,
            ..StatementSums::default()
        },
        waits: None,
        called: &[],
    };
    let histogram = crate::histogram::Histogram::default();
    let histograms = [&histogram; 3];
    // The children seem to take longer than their parent, in each execution.
    let plan = lookups([2_000_000, 2_000_000, 4_000_000], 1);
    let stats = direct(&plan).expect("direct");
    let other_clock = shape_with_clock(&plan, 3.0 * TICK_NS).expect("a shape");
    let mut by_other_clock = Counts::default();
    by_other_clock.take(&plan, &other_clock, 2.0).expect("counts");
    let (mut sum, mut expected) = (PlanSum::default(), [NodeTotals::default(); 3]);
    for round in 0..2 {
        sum.clear(3);
        expected.iter_mut().for_each(NodeTotals::clear);
        let mut counted = |sum: &mut PlanSum, counts: &Counts| {
            sum.add_counts(&run, Some(&outside), counts, histograms.into_iter());
            let mut stats = Vec::new();
            assert!(counts.compute(&mut stats));
            for (total, stats) in expected.iter_mut().zip(&stats) {
                total.add(stats, &histogram);
            }
        };
        let counts = counts(&plan, 2e6).expect("counts");
        counted(&mut sum, &counts);
        counted(&mut sum, &counts);
        counted(&mut sum, &by_other_clock);
        counted(&mut sum, &counts);
        if round == 1 {
            sum.add(&ExecutionStats {
                run: &run,
                outside: None,
                nodes: &stats,
                histograms: &histograms,
                partitions: &[],
            });
            for (total, stats) in expected.iter_mut().zip(&stats) {
                total.add(stats, &histogram);
            }
        }
        sum.with_batch(3, |batch| {
            let Batch::Sum(plan, nodes, _) = batch else {
                panic!("no sum")
            };
            assert_eq!(plan.times.calls, 4 + round);
            assert_eq!(plan.outside.rows, 4 * 5 + (4 + round) * 4);
            assert_eq!(nodes.len(), 3);
            for (ours, theirs) in nodes.iter().zip(&expected) {
                assert_near(&[ours.total], &[theirs.total]);
                assert_eq!(ours.last, theirs.last);
                assert_eq!(
                    (ours.total.rows, ours.total.starts),
                    (theirs.total.rows, theirs.total.starts)
                );
            }
            let self_ms: f64 = nodes.iter().map(|node| time(&node.total).self_ms).sum();
            assert!((self_ms - time(&nodes[0].total).total_ms).abs() < 1e-9);
        });
    }
}

/// Returns how the plan is folded whose nodes are these.
fn folded(parts: [(Option<usize>, u64, bool); 3], count: usize) -> Fold {
    let parts = parts[..count]
        .iter()
        .map(|(parent, number, is_partition)| PlanPart {
            parent: *parent,
            number: *number,
            is_append: *number == 0,
            is_partition: *is_partition,
            is_appended: parent.is_some(),
            ..PlanPart::default()
        });
    Fold::new(&parts.collect::<Vec<_>>(), &Calls::default()).expect("a partition")
}

#[test]
fn folded_counts_have_the_statistics_that_are_folded_otherwise() {
    // Two partitions, and one that is left alone, whose index scan only core measures.
    let all = folded([(None, 0, false), (Some(0), 1, true), (Some(0), 1, true)], 3);
    let lone = folded([(None, 1, true), (Some(0), 2, false), (None, 0, false)], 2);
    let (times, rows) = EXECUTIONS[0];
    let mut partitions = with_changes(lookups(times, rows), 3);
    partitions.facts[0].kind = NodeKind::Append;
    partitions.facts[2] = partitions.facts[1];
    for (plan, fold, nodes) in [(partitions, all, 2), (bitmap_scan(), lone, 3)] {
        let counts = counts(&plan, 1e12).expect("counts");
        let (mut stats, mut by_counts) = (Vec::new(), Vec::new());
        assert!(counts.compute(&mut stats));
        assert!(counts.folded(&fold).expect("folded").compute(&mut by_counts));
        assert_eq!(by_counts.len(), nodes);
        assert_near(&by_counts, &fold.stats(&stats));
        for (by_counts, stats) in by_counts.iter().zip(fold.stats(&stats)) {
            assert_eq!((by_counts.starts, by_counts.rows), (stats.starts, stats.rows));
            assert_eq!((by_counts.buffers, by_counts.wal), (stats.buffers, stats.wal));
            assert_eq!(
                (by_counts.facts, by_counts.estimate),
                (stats.facts, stats.estimate)
            );
            assert_eq!(by_counts.timed_calls, stats.timed_calls);
        }
    }
}
