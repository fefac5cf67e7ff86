//! Planted causes: rowsource_compare() names each, and none where nothing was planted.

use rowsource_tests::causes::{Planted, judged, server};

const ROWS: usize = 30_000;

fn names(planted: Planted) {
    let server = server(&format!("cause-{planted:?}").to_lowercase());
    let judged = judged(&server, planted, true, ROWS);
    println!("{planted:?}: {judged:?}");
    assert_eq!(judged.cause.as_deref(), Some(planted.expected()), "{judged:?}");
    // Not each cause makes a regression: without another plan, the busy time must be three times as long.
    if let Some(cause) = &judged.regression {
        assert!(cause.contains(planted.words()), "{judged:?}");
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

/// Each of the same statements, while nothing changes: no regression is found, and no such cause named. How
/// long the same work takes is for a machine that others use to say: what only times tell may be true.
#[test]
fn without_a_cause_none_is_named() {
    let server = server("cause-none");
    for of in Planted::ALL {
        let judged = judged(&server, of, false, ROWS);
        println!("{of:?}: {judged:?}");
        let is_told_by_times = |cause: &String| {
            ["slower storage", "more CPU per row", "outside of the nodes"].contains(&&**cause)
        };
        // Parallel workers that begin late, or not at all, are fewer.
        let may_be_true =
            |cause: &String| is_told_by_times(cause) || of == Planted::FewerWorkers && cause == of.expected();
        assert!(
            judged.cause.as_ref().is_none_or(may_be_true),
            "{of:?}: {judged:?}"
        );
        assert_eq!(judged.regression, None, "{of:?}: {judged:?}");
    }
    server.assert_no_crash();
}
