//! Planted causes: rowsource_compare() names each, and none where nothing was planted.

use rowsource_tests::causes::{Planted, judged, server};

const ROWS: usize = 30_000;

fn names(planted: Planted) {
    let server = server(&format!("cause-{planted:?}").to_lowercase());
    let judged = judged(&server, planted, true, ROWS);
    println!("{planted:?}: {judged:?}");
    assert_eq!(judged.cause.as_deref(), Some(planted.expected()), "{judged:?}");
    match &judged.regression {
        Some(cause) => assert!(cause.contains(planted.words()), "{judged:?}"),
        None => assert!(!planted.is_regression(), "no regression: {judged:?}"),
    }
    server.assert_no_crash();
}

#[test]
fn a_dropped_index_is_named() {
    names(Planted::IndexDropped);
}

#[test]
fn stale_statistics_are_named() {
    names(Planted::StatisticsStale);
}

#[test]
fn a_generic_plan_is_named() {
    names(Planted::GenericPlan);
}

#[test]
fn a_table_that_has_grown_is_named() {
    names(Planted::TableGrown);
}

#[test]
fn a_cold_cache_is_named() {
    names(Planted::ColdCache);
}

#[test]
fn a_lock_is_named() {
    names(Planted::LockHeld);
}

#[test]
fn less_work_mem_is_named() {
    names(Planted::WorkMemLowered);
}

#[test]
fn slower_storage_is_named() {
    names(Planted::SlowerStorage);
}

#[test]
fn fewer_workers_are_named() {
    names(Planted::FewerWorkers);
}

/// Each of the same statements, while nothing changes: no regression is found, and no cause named but what
/// only times tell.
#[test]
fn without_a_cause_none_is_named() {
    let server = server("cause-none");
    for of in Planted::ALL {
        let judged = judged(&server, of, false, ROWS);
        println!("{of:?}: {judged:?}");
        let cause = judged.cause.as_deref();
        assert!(
            cause.is_none_or(|cause| of.may_be_true(cause)),
            "{of:?}: {judged:?}"
        );
        assert_eq!(judged.regression, None, "{of:?}: {judged:?}");
    }
    server.assert_no_crash();
}
