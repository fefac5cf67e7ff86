//! Tests of the survey with faulty clocks.

use super::*;
use crate::clock::mock::Mock;

/// Surveys these readings, with a timer that stands still.
fn steps_of(readings: &[u64]) -> Steps {
    let mut next = readings.iter().copied();
    observe(|| next.next().unwrap(), readings.len() as u32 - 1, || 0, || {})
}

#[test]
fn steps_forward_give_the_resolution() {
    let steps = steps_of(&[100, 100, 140, 140, 165, 265]);
    assert_eq!(
        steps,
        Steps {
            readings: 5,
            smallest: Some(25),
            ..Steps::default()
        }
    );
}

#[test]
fn a_clock_that_stands_still_has_no_resolution() {
    assert_eq!(steps_of(&[7, 7, 7]).smallest, None);
}

#[test]
fn backward_steps_are_counted_and_measured() {
    let steps = steps_of(&[1000, 1010, 990, 1000, 400, 1000]);
    assert_eq!((steps.backward, steps.largest_backward), (2, 600));
    assert_eq!(steps.smallest, Some(10));
}

#[test]
fn the_extremes_do_not_wrap() {
    let steps = steps_of(&[u64::MAX, 0, u64::MAX, u64::MAX - 1]);
    assert_eq!((steps.backward, steps.largest_backward), (2, u64::MAX));
    // The only step forward is the largest possible one.
    assert_eq!(steps.smallest, Some(u64::MAX));
}

#[test]
fn steps_of_random_walks_agree_with_plain_subtraction() {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    let mut random = StdRng::seed_from_u64(4711);
    for _ in 0..200 {
        let mut now = 1i64 << 40;
        let readings: Vec<u64> = (0..100)
            .map(|_| {
                now += random.random_range(-50..100);
                now as u64
            })
            .collect();
        let differences = || readings.windows(2).map(|pair| pair[1] as i64 - pair[0] as i64);
        let steps = steps_of(&readings);
        assert_eq!(
            steps.smallest,
            differences().filter(|&d| d > 0).min().map(|d| d as u64)
        );
        assert_eq!(steps.backward, differences().filter(|&d| d < 0).count() as u64);
        let largest = differences().filter(|&d| d < 0).map(|d| -d as u64).max();
        assert_eq!(steps.largest_backward, largest.unwrap_or(0));
    }
}

#[test]
fn the_callback_runs_between_chunks_and_is_not_timed() {
    let clock = Mock::new(0).with_cost(20);
    let mut interrupts = 0;
    let calls = 2 * SURVEY_CHUNK + 1;
    let steps = observe(
        || clock.read(),
        calls,
        || clock.now(),
        || {
            interrupts += 1;
            clock.advance(1_000_000_000);
        },
    );
    assert_eq!(interrupts, 2);
    assert_eq!(clock.readings(), u64::from(calls) + 1);
    let survey = steps.report(Ok(()), Scale::NANOSECOND);
    assert_eq!(
        (survey.ns_per_reading, survey.resolution_ns),
        (Some(20.0), Some(20.0))
    );
}

#[test]
fn ticks_are_reported_as_nanoseconds() {
    let survey = steps_of(&[1000, 1100, 1000]).report(Ok(()), Scale::of_frequency(2e9));
    assert_eq!(
        (survey.resolution_ns, survey.largest_backward_step_ns),
        (Some(50.0), 50.0)
    );
}

#[test]
fn every_source_of_this_machine_has_a_plausible_survey() {
    for source in Source::ALL {
        let survey = survey(source, 1000, || {});
        assert_eq!(survey.ns_per_reading.is_some(), survey.usable.is_ok());
        assert!(
            survey.ns_per_reading.is_none_or(|ns| ns > 0.0 && ns < 1e6),
            "{source:?}: {survey:?}"
        );
        assert!(
            survey.resolution_ns.is_none_or(|ns| ns > 0.0 && ns < 1e9),
            "{source:?}: {survey:?}"
        );
        assert!(survey.largest_backward_step_ns < 1e9, "{source:?}: {survey:?}");
    }
}

#[test]
fn a_survey_without_calls_has_no_reading_time() {
    assert_eq!(survey(Source::System, 0, || {}).ns_per_reading, None);
}
