use super::*;

/// Returns executions of about this many milliseconds each.
fn sums(executions: u64, ms: f64) -> Sums {
    let mut sums = Sums::default();
    (0..executions).for_each(|i| sums.add(ms * (0.9 + 0.05 * (i % 5) as f64), ms, false));
    sums
}

fn candidate(before: Sums, after: Sums) -> Candidate {
    Candidate {
        before,
        after,
        control: 1.0,
        database_ms: 1e9,
        intervals: None,
    }
}

fn judged(candidate: Candidate) -> Found {
    judge(&[candidate], || ()).expect("there is memory")[0]
}

fn found(candidate: Candidate) -> Option<Finding> {
    match judged(candidate) {
        Found::Slower(finding) => Some(finding),
        _ => None,
    }
}

#[test]
fn a_plan_that_is_twice_as_slow_and_costs_ten_seconds_is_a_regression() {
    let finding = found(candidate(sums(100, 100.0), sums(100, 300.0))).expect("a regression");
    assert!((finding.ratio - 3.0).abs() < 1e-9 && (finding.extra_ms - 20_000.0).abs() < 1e-3);
    assert!(matches!(finding.basis, Basis::Tested(chance) if chance < 1e-9));
    for (after, reason) in [
        (sums(100, 190.0), "it is not large"),
        (sums(40, 300.0), "it costs eight seconds"),
        (sums(100, 30.0), "it is faster"),
        (sums(4, 30_000.0 / 100.0), "there are few executions"),
        (Sums::default(), "there are none"),
    ] {
        assert_eq!(found(candidate(sums(100, 100.0), after)), None, "{reason}");
    }
}

#[test]
fn little_time_is_much_of_a_small_database() {
    let small = Candidate {
        database_ms: 100_000.0,
        ..candidate(sums(100, 10.0), sums(100, 30.0))
    };
    assert!(found(small).is_some());
    // It costs two seconds.
    for (database_ms, is_small) in [(300_000.0, true), (390_000.0, true), (410_000.0, false)] {
        let large = Candidate { database_ms, ..small };
        match judged(large) {
            Found::Small(finding) => assert!(is_small && (finding.extra_ms - 2_000.0).abs() < 1e-3),
            found => assert_eq!((found, is_small), (Found::Cheap, false)),
        }
    }
}

/// Each execution takes three times as long. Who is told that it is no longer slower is told wrong.
#[test]
fn what_is_slower_and_costs_little_is_not_what_is_no_slower() {
    let [before, short] = [sums(100, 100.0), sums(20, 300.0)];
    assert_eq!(judged(candidate(before, short)), Found::Cheap);
    for (after, reason) in [
        (sums(100, 190.0), "it is not large"),
        (sums(100, 30.0), "it is faster"),
        (sums(4, 300.0), "there are few executions"),
    ] {
        assert_eq!(judged(candidate(before, after)), Found::Nothing, "{reason}");
    }
    // Chance explains that one, and there is no reason to speak of its cost.
    let spread = |ms: [f64; 2]| {
        let mut sums = Sums::default();
        (0..5).for_each(|i| sums.add(ms[0] * ms[1].powi(i), ms[0] * ms[1].powi(i), false));
        sums
    };
    let weak = candidate(spread([1.0, 4.0]), spread([2.5, 4.0]));
    assert_eq!(judged(weak), Found::Nothing);
    // Nor is one that was slow in two intervals of four.
    let intervals = std::array::from_fn(|i| Interval {
        sums: sums(10, if i < 2 { 600.0 } else { 100.0 }),
        control: 1.0,
    });
    let brief = Candidate {
        intervals: Some(intervals),
        ..candidate(before, short)
    };
    assert_eq!(judged(brief), Found::Nothing);
}

/// Executions that wait for a lock. The plan is not slower.
#[test]
fn waits_for_locks_are_no_slower_plan() {
    let waiting = |busy_ms: f64, wall_ms: f64| {
        let mut sums = Sums::default();
        (0..100).for_each(|_| sums.add(busy_ms, wall_ms, false));
        sums
    };
    let before = waiting(100.0, 101.0);
    assert_eq!(found(candidate(before, waiting(102.0, 9_000.0))), None);
    let finding = found(candidate(before, waiting(130.0, 9_000.0))).expect("the plan is slower too");
    assert!((80.0..100.0).contains(&finding.ratio));
}

#[test]
fn a_slow_machine_is_no_slow_plan() {
    let slow = candidate(sums(100, 100.0), sums(100, 300.0));
    assert_eq!(found(Candidate { control: 1.6, ..slow }), None);
    assert!(found(Candidate { control: 1.4, ..slow }).is_some());
    // A machine that has become faster makes no plan slow that takes as long as before.
    let same = candidate(sums(100, 100.0), sums(100, 150.0));
    assert_eq!(found(Candidate { control: 0.2, ..same }), None);

    let pairs = [1.0, 1.1, 1.5, 1.6, 90.0].map(|ratio| (sums(50, 1.0), sums(50, ratio)));
    let control = |pairs: &[(Sums, Sums)]| {
        let mut checks = 0;
        let pairs = pairs.iter().map(|(before, after)| (before, after));
        let ratio = median_ratio(pairs, || checks += 1).expect("there is memory");
        (ratio, checks)
    };
    let (ratio, checks) = control(&pairs);
    assert!((ratio - 1.5).abs() < 1e-9 && checks == 5);
    assert_eq!(control(&pairs[1..]).0, 1.0);
}

#[test]
fn few_executions_need_one_that_exceeds_all_before() {
    let of = |before: Sums, after: Sums| found(candidate(before, after)).map(|finding| finding.basis);
    assert_eq!(
        of(sums(5, 5_000.0), sums(1, 40_000.0)),
        Some(Basis::FewExecutions)
    );
    let mut spread = sums(4, 50.0);
    spread.merge(&sums(1, 5_000.0));
    for (before, after, reason) in [
        (sums(4, 5_000.0), sums(1, 40_000.0), "four executions say little"),
        (spread, sums(1, 40_000.0), "it lies in their spread"),
        (
            sums(5, 5_000.0),
            sums(1, 18_000.0),
            "it is not four times as long",
        ),
        (sums(5, 500.0), sums(4, 2_600.0), "it costs too little"),
        (sums(3, 5_000.0), sums(9, 40_000.0), "there are few before"),
    ] {
        assert_eq!(of(before, after), None, "{reason}");
    }
}

/// A timeout ends the executions of the new plan at twice the time of the old one. Others fail at once.
#[test]
fn failures_count_against_the_new_plan() {
    let failing = |failed: u64, ms: f64| {
        let mut sums = Sums::default();
        (0..100).for_each(|i| {
            let has_failed = i < failed;
            let ms = if has_failed {
                ms
            } else {
                1_000.0 * (0.95 + 0.001 * i as f64)
            };
            sums.add(ms, ms, has_failed);
        });
        sums
    };
    let before = failing(0, 1_000.0);
    assert!(found(candidate(before, failing(90, 1_100.0))).is_some());
    assert!(found(candidate(before, failing(90, 1.0))).is_some());
    assert_eq!(found(candidate(before, failing(10, 1_100.0))), None);
    assert_eq!(found(candidate(failing(90, 1.0), failing(90, 1.0))), None);
}

/// A generic plan that is faster for most parameters, and a thousand times slower for 5 % of them.
#[test]
fn a_plan_that_is_slow_for_a_few_parameters_is_a_regression() {
    let mut after = sums(380, 1.0);
    after.merge(&sums(20, 1_000.0));
    let finding = found(candidate(sums(400, 5.0), after)).expect("a regression");
    assert!(finding.ratio > 9.0);
}

#[test]
fn many_candidates_need_less_chance() {
    // One of them alone would have a chance of less than 1 %.
    let spread = |ms: f64| {
        let mut sums = Sums::default();
        (0..6).for_each(|i| {
            let ms = ms * f64::from(i * 2 - 5).exp2().powf(0.5);
            sums.add(ms, ms, false);
        });
        sums
    };
    let weak = candidate(spread(10_000.0), spread(160_000.0));
    let chance = found(weak).expect("a regression alone").basis;
    assert!(
        matches!(chance, Basis::Tested(chance) if (5e-4..1e-2).contains(&chance)),
        "{chance:?}"
    );
    let mut all = vec![candidate(sums(100, 100.0), sums(100, 100.0)); 50];
    all.push(weak);
    let findings = judge(&all, || ()).expect("there is memory");
    assert_eq!(findings, vec![Found::Nothing; 51]);
}

#[test]
fn without_a_change_of_plan_it_must_be_slow_in_three_intervals_of_four() {
    let with = |slow: usize, control: f64| {
        let intervals = std::array::from_fn(|i| Interval {
            sums: sums(100, if i < slow { 400.0 } else { 100.0 }),
            control,
        });
        let mut after = Sums::default();
        intervals.iter().for_each(|interval| after.merge(&interval.sums));
        let intervals = Some(intervals);
        found(Candidate {
            intervals,
            ..candidate(sums(400, 100.0), after)
        })
    };
    assert!(with(3, 1.0).is_some() && with(4, 1.0).is_some());
    assert_eq!(with(2, 1.0), None);
    assert_eq!(with(4, 1.5), None);
}

/// A nightly job whose new plan was slow once, and is as fast as the old one since.
#[test]
fn a_nightly_job_that_was_slow_once_is_no_regression_five_nights_later() {
    let before = sums(30, 1_000.0);
    let mut after = Sums::default();
    after.add(20_000.0, 20_000.0, false);
    let found_after = |nights: u64| {
        let mut after = after;
        (0..nights).for_each(|i| after.add(1_000.0 + 10.0 * i as f64, 1_000.0, false));
        found(candidate(before, after)).map(|finding| finding.basis)
    };
    for nights in 0..4 {
        assert_eq!(found_after(nights), Some(Basis::FewExecutions), "{nights}");
    }
    for nights in 4..20 {
        assert_eq!(found_after(nights), None, "{nights}");
    }
}
