use super::config::TIMER_SHARE;
use super::evidence::is_within;
use super::timer::FIRST_CALLS;
use super::*;
use rand::{RngCore, SeedableRng};
use rand_xoshiro::Xoroshiro128PlusPlus;

/// Returns the configuration for a clock of one tick per nanosecond that costs nothing to read.
fn config(max_gap: u32) -> Config {
    Config::new(max_gap, 1.0, 0.0, 0.0, BOOKKEEPING_NS, 1.0)
}

fn random() -> Xoroshiro128PlusPlus {
    Xoroshiro128PlusPlus::seed_from_u64(5)
}

fn started() -> NodeTimer {
    let mut timer = NodeTimer::default();
    timer.start();
    timer
}

fn call(start: u64, end: u64) -> TimedCall {
    TimedCall {
        before: start,
        start,
        end,
        nested_readings: 0,
        did_io: false,
        first_of_start: false,
    }
}

/// Makes `n` calls of `ns` each, one right after the other. Returns how many were timed.
fn calls(timer: &mut NodeTimer, config: &Config, random: &mut Xoroshiro128PlusPlus, n: u64, ns: u64) -> u64 {
    let before = timer.timed_calls;
    for i in 0..n {
        timer.countdown -= 1;
        if timer.countdown == 0 {
            let start = 1_000_000 + i * ns;
            let mut evidence = LongCallEvidence {
                last: start,
                ..LongCallEvidence::default()
            };
            timer.record_timed(config, random, &call(start, start + ns), &mut evidence);
        }
    }
    timer.timed_calls - before
}

#[test]
fn a_timer_without_calls_estimates_zero() {
    let timer = started();
    assert_eq!(timer.calls(), 0);
    assert_eq!(timer.estimate(0.0, None), Estimate::default());
    // Zeroed memory is valid too.
    assert_eq!(NodeTimer::default().estimate(1.0, None), Estimate::default());
    // The first call was interrupted.
    let estimate = timer.estimate(1.0, Some(300));
    assert_eq!(estimate.total, 300.0);
}

#[test]
fn the_first_calls_are_exact() {
    let (config, mut random) = (config(128), random());
    for n in 1..=FIRST_CALLS {
        let mut timer = started();
        assert_eq!(calls(&mut timer, &config, &mut random, n, 100), n);
        let estimate = timer.estimate(0.0, None);
        assert_eq!(
            (timer.calls(), timer.timed_calls, timer.timer_calls()),
            (n, n, 2 * n)
        );
        assert_eq!((estimate.total, estimate.error), (100.0 * n as f64, 0.0));
    }
}

#[test]
fn every_call_is_timed_if_calls_are_long_or_sampfreq_is_1() {
    let mut random = random();
    for (max_gap, ns) in [(1, 10), (128, 100_000)] {
        let mut timer = started();
        let config = config(max_gap);
        assert_eq!(calls(&mut timer, &config, &mut random, 5000, ns), 5000);
        let estimate = timer.estimate(0.0, None);
        assert_eq!((estimate.total, estimate.error), (5000.0 * ns as f64, 0.0));
    }
}

#[test]
fn gaps_grow_to_sampfreq_and_no_further() {
    let (config, mut random) = (config(64), random());
    let mut timer = started();
    let timed = calls(&mut timer, &config, &mut random, 10_000, 5);
    assert!((180..260).contains(&timed), "{timed}");
    let timed = calls(&mut timer, &config, &mut random, 64_000, 5);
    assert!((999..=1001).contains(&timed), "one of each block: {timed}");
    assert_eq!(timer.calls(), 74_000);
    let estimate = timer.estimate(0.0, None);
    assert!(
        (estimate.total - 370_000.0).abs() < 1e-3,
        "equal calls have no error"
    );
    assert!(estimate.error < 1e-3);
}

#[test]
fn the_timer_costs_its_share_and_later_a_quarter_of_it() {
    let config = Config::new(1024, 1.0, 9.0, 9.0, BOOKKEEPING_NS, 1.0);
    for ns in [300, 1000, 3000] {
        let (mut timer, mut random) = (started(), random());
        let mut part = |share: f64, skipped: u64, n: u64| {
            calls(&mut timer, &config, &mut random, skipped, ns);
            let timed = calls(&mut timer, &config, &mut random, n, ns);
            let cost = timed as f64 * (2.0 * 9.0 + BOOKKEEPING_NS) / (n as f64 * ns as f64);
            assert!(
                (0.7 * share..1.2 * share).contains(&cost),
                "{ns}: {cost} instead of {share}"
            );
        };
        // In 4 ms, 400 calls are timed. In one second, more than 10,000.
        part(TIMER_SHARE, 1_000_000 / ns, 4_000_000 / ns);
        part(TIMER_SHARE / 4.0, 1_000_000_000 / ns, 100_000_000 / ns);
    }
}

#[test]
fn all_long_calls_are_timed() {
    let config = Config::new(128, 1.0, 9.0, 9.0, BOOKKEEPING_NS, 1.0);
    let affordable = config.affordable as u64;
    for (ns, expected) in [
        (5 * affordable, 1000),
        (3 * affordable, 1000),
        (2 * affordable, 500),
    ] {
        let (mut timer, mut random) = (started(), random());
        calls(&mut timer, &config, &mut random, 10_000, ns);
        let timed = calls(&mut timer, &config, &mut random, 1000, ns);
        assert_eq!(timed, expected, "of 1000 calls of {ns} ns");
    }
}

#[test]
fn each_call_of_a_block_is_equally_likely_to_be_timed() {
    let (config, mut random) = (config(8), random());
    let mut timer = started();
    calls(&mut timer, &config, &mut random, 1000, 5);
    let mut hits = [0_u32; 8];
    for i in 0..80_000 {
        let timed = timer.timed_calls;
        calls(&mut timer, &config, &mut random, 1, 5);
        hits[i % 8] += (timer.timed_calls - timed) as u32;
    }
    for hit in hits {
        assert!((1100..1400).contains(&hit), "{hits:?}");
    }
}

#[test]
fn the_cost_of_readings_is_subtracted() {
    let config = Config::new(1, 0.5, 40.0, 9.0, BOOKKEEPING_NS, 1.0);
    let mut timer = started();
    let nested = TimedCall {
        nested_readings: 4,
        ..call(1000, 2000)
    };
    timer.record_timed(&config, &mut random(), &nested, &mut LongCallEvidence::default());
    // Four nested readings cost as much as two samples.
    let samples = 2.0 * (2.0 * 9.0 + BOOKKEEPING_NS) / 0.5;
    assert!((timer.calls(), timer.estimate(0.0, None).error) == (1, 0.0));
    assert!((timer.estimate(0.0, None).total - (1000.0 - 40.0 - samples)).abs() < 1e-9);
}

#[test]
fn a_backward_step_adds_no_time_and_no_evidence() {
    let (config, mut random) = (config(1), random());
    let mut timer = started();
    timer.countdown = 0;
    timer.record_timed(
        &config,
        &mut random,
        &call(1000, 400),
        &mut LongCallEvidence::default(),
    );
    timer.countdown = 0;
    timer.record_timed(
        &config,
        &mut random,
        &call(400, u64::MAX),
        &mut LongCallEvidence::default(),
    );
    timer.record_detected(
        &config,
        Detected::Certain,
        1000,
        10,
        false,
        &mut LongCallEvidence::default(),
    );
    assert_eq!(timer.clock_backsteps, 2);
    let estimate = timer.estimate(0.0, None);
    assert!(estimate.total.is_finite() && estimate.total >= 0.0);
    // Evidence from before the step is ignored.
    let evidence = LongCallEvidence {
        last: 2_000_000,
        ticked: 9_000_000,
        detected: 9_000_000,
        ..LongCallEvidence::default()
    };
    assert!(!is_within(evidence.ticked, 1_000_000, evidence.last));
    assert_eq!(NodeTimer::detect(1_000_000, false, &evidence), None);
}

/// Returns a timer whose next call is not timed: it has made its first calls, of 10 ns, and has blocks of
/// 100.
fn sampling(config: &Config, random: &mut Xoroshiro128PlusPlus) -> NodeTimer {
    let mut timer = started();
    calls(&mut timer, config, random, 50_000, 10);
    while timer.countdown < 20 {
        calls(&mut timer, config, random, 1, 10);
    }
    timer
}

fn evidence(ticked: u64, detected: u64, last: u64) -> LongCallEvidence {
    LongCallEvidence {
        last,
        ticked,
        detected,
        period: 2e6,
        usual: 2e6,
        ..LongCallEvidence::default()
    }
}

#[test]
fn a_long_call_is_counted_at_its_exit() {
    let (config, mut random) = (config(100), random());
    let timer = sampling(&config, &mut random);
    let short = timer.estimate(0.0, None).total;
    let at = 2_000_000_000_u64;
    let end = at + 3_000_000;
    for (did_io, evidence) in [
        (true, LongCallEvidence::default()),
        (false, evidence(at + 1_500_000, 0, end)),
        (false, evidence(0, end - 10, end)),
    ] {
        let mut timer = timer;
        let mut evidence = LongCallEvidence {
            last: end,
            ..evidence
        };
        timer.countdown -= 1;
        let detected = NodeTimer::detect(at, did_io, &evidence).expect("it is detected");
        timer.record_detected(&config, detected, at, end, false, &mut evidence);
        assert_eq!(timer.countdown, 1, "the next call is timed");
        let estimate = timer.estimate(0.0, None);
        let more = estimate.total - short;
        // It is longer than the time that a beat stands for, so it is counted once, however it was detected.
        assert!((more - 3e6).abs() < 1e4, "{more}");
        assert!(estimate.error < 1e4, "{}", estimate.error);
        let by_beat = evidence.ticked > 0;
        assert_eq!(
            evidence.detected == end,
            !by_beat,
            "nodes above detect the beat themselves"
        );
    }
}

#[test]
fn other_readings_are_no_evidence() {
    let (config, mut random) = (config(100), random());
    let timer = sampling(&config, &mut random);
    let at = 2_000_000_000_u64;
    for evidence in [
        LongCallEvidence::default(),
        // All these readings were made before the call.
        evidence(at - 5, at, at + 100),
        // Another node read the clock, but no beat came.
        evidence(0, 0, at + 3_000_000),
    ] {
        assert_eq!(NodeTimer::detect(at, false, &evidence), None, "{evidence:?}");
    }
    // A beat came in this call, which was short.
    let (mut after, mut evidence) = (timer, evidence(at + 5_000, 0, at + 5_000));
    let detected = NodeTimer::detect(at, false, &evidence).expect("a beat");
    after.record_detected(&config, detected, at, at + 5_000, false, &mut evidence);
    assert_eq!(after.timed_calls, timer.timed_calls);
    assert_eq!(after.estimate(0.0, None).total, timer.estimate(0.0, None).total);
}

#[test]
fn a_stall_between_two_beats_weighs_less_than_a_gap() {
    let (config, mut random) = (config(100), random());
    let mut timer = sampling(&config, &mut random);
    let short = timer.estimate(0.0, None).total;
    let untimed = timer.countdown - 1;
    calls(&mut timer, &config, &mut random, untimed, 10);
    timer.countdown = 0;
    let at = 2_000_000_000_u64;
    timer.record_timed(
        &config,
        &mut random,
        &call(at, at + 500_000),
        &mut evidence(at - 1_000_000, 0, at),
    );
    let more = timer.estimate(0.0, None).total - short;
    // The block has 100 calls, and a beat comes in the call with a chance of a quarter. So it weighs four,
    // which is less than a period.
    assert!((1.5e6..2.2e6).contains(&more), "{more}");
    assert!(timer.estimate(0.0, None).error > 1e6, "its weight is uncertain");
}

#[test]
fn the_usual_distance_is_subtracted() {
    // The caller works 1 us between calls of 100 ns.
    let (config, mut random) = (config(16), random());
    let mut timer = started();
    let (mut now, mut last) = (0_u64, 0_u64);
    let mut evidence = LongCallEvidence::default();
    for i in 0..100_000_u64 {
        now += 1000;
        let ns = if i % 500 == 499 { 50_000 } else { 100 };
        timer.countdown -= 1;
        if timer.countdown == 0 {
            let timed = TimedCall {
                before: last,
                did_io: ns > 1000,
                ..call(now, now + ns)
            };
            evidence.last = now;
            timer.record_timed(&config, &mut random, &timed, &mut evidence);
            last = now + ns;
        } else if ns > 1000 {
            evidence.last = now;
            let detected = NodeTimer::detect(last, true, &evidence).expect("it did I/O");
            timer.record_detected(&config, detected, last, now + ns, false, &mut evidence);
            last = now + ns;
        }
        now += ns;
    }
    let estimate = timer.estimate(0.0, None);
    let truth = 100.0 * 99_800.0 + 50_000.0 * 200.0;
    assert!(
        (estimate.total / truth - 1.0).abs() < 0.04,
        "{}",
        estimate.total / truth
    );
    assert!(
        (estimate.total - truth).abs() < 3.0 * estimate.error,
        "{}",
        estimate.error
    );
}

#[test]
fn the_startup_time_of_an_inner_side_is_estimated() {
    // Each start has a first call of 900 ns, then two of 50.
    let (config, mut random) = (config(32), random());
    let mut timer = started();
    for i in 0..3_000_000_u64 {
        let first_of_start = i % 3 == 0;
        let ns = if first_of_start { 900 } else { 50 };
        timer.countdown -= 1;
        if timer.countdown == 0 {
            let timed = TimedCall {
                first_of_start,
                ..call(i * 1000, i * 1000 + ns)
            };
            let mut evidence = LongCallEvidence::default();
            timer.record_timed(&config, &mut random, &timed, &mut evidence);
        }
    }
    let estimate = timer.estimate(1e6, None);
    assert!(
        (estimate.startup / 900e6 - 1.0).abs() < 0.02,
        "{}",
        estimate.startup
    );
    assert!((estimate.total / 1000e6 - 1.0).abs() < 0.02, "{}", estimate.total);
    // With many more starts than were timed, the startup time is at most the total.
    let estimate = timer.estimate(1e10, None);
    assert_eq!(estimate.startup, estimate.total);
}

#[test]
fn an_interrupted_call_is_added() {
    let (config, mut random) = (config(16), random());
    let mut timer = started();
    calls(&mut timer, &config, &mut random, 10, 100);
    // The eleventh call has begun.
    timer.countdown -= 1;
    let estimate = timer.estimate(1.0, Some(70_000));
    assert_eq!((timer.calls(), estimate.total), (11, 71_000.0));
}

#[test]
fn the_error_of_a_coarse_clock_covers_its_steps() {
    let config = Config::new(128, 1.0, 0.0, 5.0, BOOKKEEPING_NS, 4e6);
    assert!(config.long >= 10e6);
    let mut random = random();
    let mut timer = started();
    calls(&mut timer, &config, &mut random, 100_000, 0);
    let estimate = timer.estimate(1.0, None);
    assert_eq!(estimate.total, 0.0);
    assert!(estimate.error >= 100.0 * 4e6, "{}", estimate.error);
}

/// Makes an execution of `calls` calls. The first one takes longer. Returns its time.
fn execution(timer: &mut NodeTimer, config: &Config, random: &mut Xoroshiro128PlusPlus, calls: u64) -> f64 {
    let (mut now, mut sum) = (1_000_000, 0);
    for i in 0..calls {
        let ns = if i == 0 { 900 } else { 50 + random.next_u64() % 100 };
        timer.countdown -= 1;
        if timer.countdown == 0 {
            let mut evidence = LongCallEvidence {
                last: now,
                ..LongCallEvidence::default()
            };
            timer.record_timed(config, random, &call(now, now + ns), &mut evidence);
        }
        now += ns;
        sum += ns;
    }
    sum as f64
}

#[test]
fn few_calls_of_a_known_plan_are_timed() {
    let (config, mut random) = (config(128), random());
    for (calls, timed) in [
        (16, 16..17),
        (31, 16..30),
        (32, 9..16),
        (63, 11..16),
        (1000, 18..34),
    ] {
        let (mut timer, mut earlier) = (started(), EarlierCalls::default());
        let (mut truth, mut total, mut squares, mut variance) = (0.0, 0.0, 0.0, 0.0);
        for number in 0..2000 {
            let time = execution(&mut timer, &config, &mut random, calls);
            assert_eq!(timer.calls(), calls);
            let estimate = timer.estimate(1.0, None);
            if number >= 16 {
                assert!(timed.contains(&timer.timed_calls), "{}", timer.timed_calls);
                truth += time;
                total += estimate.total;
                squares += (estimate.total - time) * (estimate.total - time);
                variance += estimate.error * estimate.error;
            }
            let had_gaps = earlier.are_known() || timer.may_have_gaps();
            if had_gaps {
                earlier.note(&mut timer);
            }
            let gaps = timer.gaps;
            timer = started();
            timer.gaps = gaps;
            if had_gaps {
                earlier.start(&mut timer);
            }
        }
        // The sum is right, and the errors say how far off the estimates are.
        assert!((total / truth - 1.0).abs() < 0.01, "{calls}: {}", total / truth);
        if calls > FIRST_CALLS {
            let ratio = (variance / squares).sqrt();
            assert!((0.7..1.5).contains(&ratio), "{calls}: {ratio}");
        } else {
            assert_eq!((squares, variance), (0.0, 0.0));
        }
    }
}

#[test]
fn an_execution_with_other_calls_is_timed_too() {
    let (config, mut random) = (config(128), random());
    let mut earlier = EarlierCalls::default();
    while !earlier.are_known() {
        let mut timer = started();
        execution(&mut timer, &config, &mut random, 1000);
        earlier.note(&mut timer);
    }
    let mut timer = started();
    earlier.start(&mut timer);
    // Its first calls are still timed, as many as there are.
    let time = execution(&mut timer, &config, &mut random, 3);
    assert_eq!((timer.timed_calls, timer.estimate(1.0, None).total), (3, time));
    earlier.note(&mut timer);
    assert!(!earlier.are_known(), "the plan makes few calls now");
}
