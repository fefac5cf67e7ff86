//! Nodes of which few calls were timed, and none of those that waited.

use super::*;

/// How long the scan waited, in nanoseconds.
const WAITED_NS: f64 = 300_000.0;

#[test]
fn an_estimate_is_no_less_than_the_waits() {
    let mut plan = join();
    plan.samples[1].calls = sampled((0..1_000).map(|i| 100 + i % 7));
    let before = stats(&plan, &timed(1e12));
    assert!(time(&before[1]).self_ms * 1e6 < WAITED_NS, "{before:?}");
    plan.samples[1].waited_ns = WAITED_NS as u64;
    assert_eq!(direct(&plan), None, "they contradict each other");
    let raised = stats(&plan, &timed(1e12));
    let scan = time(&raised[1]);
    assert!(
        scan.self_ms * 1e6 >= WAITED_NS && scan.total_ms >= scan.self_ms,
        "{raised:?}"
    );
    let more = scan.total_ms - time(&before[1]).total_ms;
    assert!(scan.error_ms >= more, "{raised:?}");
    // The time of the join is known.
    assert_eq!(time(&raised[0]).total_ms, time(&before[0]).total_ms);
    // With fewer waits than that, nothing changes.
    plan.samples[1].waited_ns = 1000;
    assert_eq!(stats(&plan, &timed(1e12)), before);
    assert_near(&direct(&plan).expect("direct"), &before);
}
