//! The limits of the store: the number of plans, the size of a plan, and which plans are evicted.

use rowsource_tests::explain_nodes;
use rowsource_tests::session::{run_each, value};
use rowsource_tests::store::{basic_server, info, kept, measure_all, measured, only_kept};
use std::collections::HashSet;

const PLANS: usize = 300;
const MAX_PLANS: i64 = 100;

/// Returns a statement that differs from the others in its number of columns.
fn different(i: usize) -> String {
    format!("SELECT {} 'different {i:03}' FROM t", "id, ".repeat(i))
}

#[test]
fn the_plans_used_last_stay() {
    let server = basic_server("evictions", &["pg_rowsource.max_plans = 100"]);
    let mut reader = server.connect();
    let mut runner = server.connect();
    run_each(
        &mut runner,
        "CREATE TABLE t AS SELECT 1 AS id; CREATE TABLE hot AS SELECT 1 AS id",
    );
    measure_all(&mut runner);
    let mut max_plans = 0;
    for i in 1..=PLANS {
        run_each(&mut runner, &different(i));
        run_each(&mut runner, "SELECT id FROM hot");
        max_plans = max_plans.max(info(&mut reader, "plans"));
    }
    assert!(
        (MAX_PLANS / 2..=MAX_PLANS).contains(&max_plans),
        "{max_plans} plans at most"
    );
    // Only those: the statement that runs all the time was never evicted.
    let (plans, evictions) = (info(&mut reader, "plans"), info(&mut reader, "evictions"));
    assert_eq!(plans + evictions, PLANS as i64 + 1);
    assert_eq!(only_kept(&mut reader, "SELECT id FROM hot").calls, PLANS as i64);
    let kept_now = kept(&mut reader, "%different%");
    assert_eq!(kept_now.len() as i64, plans - 1);
    // Plans that took less than a millisecond are equal, so their age decides. An older plan that took longer
    // may stay.
    let newest: HashSet<String> = (PLANS + 2 - plans as usize..=PLANS).map(different).collect();
    let quick: Vec<&str> = kept_now
        .iter()
        .filter(|plan| !newest.contains(&plan.query) && plan.total_time < 1.0)
        .map(|plan| plan.query.as_str())
        .collect();
    assert!(quick.is_empty(), "newer ones were evicted before: {quick:?}");
    assert_eq!(info(&mut reader, "refused"), 0);
    assert!(info(&mut reader, "bytes") > 0);
    // An evicted plan starts again from zero.
    let evicted = (1..=PLANS).find(|&i| kept_now.iter().all(|plan| plan.query != different(i)));
    let evicted = evicted.expect("an evicted plan");
    run_each(&mut runner, &different(evicted));
    assert_eq!(
        only_kept(&mut reader, &format!("%different {evicted:03}%")).calls,
        1,
        "it had been evicted"
    );
    run_each(&mut reader, "SELECT rowsource_reset()");
    assert_eq!((info(&mut reader, "plans"), info(&mut reader, "bytes")), (0, 0));
    assert_eq!(info(&mut reader, "evictions"), 0);
    server.assert_no_crash();
}

/// Returns a UNION ALL of this many aggregates: an Append, and two nodes for each aggregate.
fn union(selects: usize) -> String {
    let selects: Vec<String> = (0..selects)
        .map(|i| format!("SELECT count(*) + {i} FROM t"))
        .collect();
    selects.join(" UNION ALL ")
}

#[test]
fn large_plans_are_kept_whole_and_larger_ones_refused() {
    let server = basic_server("large-plans", &[]);
    let mut client = server.connect();
    run_each(
        &mut client,
        "CREATE TABLE t AS SELECT i AS id FROM generate_series(1, 5) i; ANALYZE t",
    );
    let large = union(450);
    let nodes = explain_nodes(&mut client, &large, "FORMAT JSON").len();
    assert!((900..=1000).contains(&nodes), "{nodes} nodes");
    measured(&mut client, &large);
    measured(&mut client, &large);
    let plan = only_kept(&mut client, "SELECT count(*) + 0 %");
    assert_eq!(plan.calls, 2);
    let sums: Vec<i64> = [
        "count(*)",
        "max(node_id) + 1",
        "count(*) FILTER (WHERE operation = 'Seq Scan' AND last_rows = 5 AND rows = 10)",
    ]
    .map(|what| {
        value(
            &mut client,
            &format!(
                "SELECT ({what})::bigint FROM pg_stat_rowsource WHERE planid = {}",
                plan.planid
            ),
        )
    })
    .into();
    assert_eq!(sums, [nodes as i64, nodes as i64, 450]);
    let lines: i64 = value(
        &mut client,
        &format!(
            "SELECT count(*) FROM rowsource_display({}, {})",
            plan.queryid, plan.planid
        ),
    );
    assert!(lines > nodes as i64);

    assert_eq!(info(&mut client, "refused"), 0);
    let too_large = union(510);
    measure_all(&mut client);
    let rows = client
        .query(&too_large, &[])
        .expect("a statement with a large plan");
    assert_eq!(rows.len(), 510);
    assert!(
        rows.iter()
            .enumerate()
            .all(|(i, row)| row.get::<_, i64>(0) == i as i64 + 5)
    );
    // The session itself can still show it.
    let lines = client
        .query("SELECT rowsource_display()", &[])
        .expect("rowsource_display");
    assert!(lines.len() > 1000, "{} lines", lines.len());
    run_each(&mut client, "SET pg_rowsource.statistics_level = 'basic'");
    assert_eq!(info(&mut client, "refused"), 1);
    assert_eq!(kept(&mut client, "SELECT count(*) + 0 %").len(), 1);
    server.assert_no_crash();
}

#[test]
fn a_long_text_is_stored_in_bounded_memory() {
    let server = basic_server("long-text", &[]);
    let mut client = server.connect();
    run_each(&mut client, "CREATE TABLE t AS SELECT 1 AS id");
    let literal = "x".repeat(3_000_000);
    measured(
        &mut client,
        &format!("SELECT 'long', id FROM t WHERE length('{literal}') + id > 5"),
    );
    let plan = only_kept(&mut client, "SELECT 'long'%");
    assert_eq!(plan.calls, 1);
    let bytes = info(&mut client, "bytes");
    println!(
        "a text of {} bytes takes {bytes} bytes of the store",
        literal.len()
    );
    // The store keeps at most 16 kB of text, 16 kB of predicates and 1.1 kB a node of each plan.
    assert!(bytes < 40_000, "{bytes} bytes of the store");
    assert!(
        plan.query.len() <= (16 << 10) + "...".len(),
        "{} bytes of text",
        plan.query.len()
    );
    assert!(
        plan.query
            .starts_with("SELECT 'long', id FROM t WHERE length('xxx"),
        "{:.100}",
        plan.query
    );
    assert!(plan.query.ends_with("..."), "it says that it was cut");
    assert_eq!(info(&mut client, "truncated"), 1);
    server.assert_no_crash();
}

/// Sessions whose plans find no room in the sessions' memory write to the store directly.
#[test]
fn sessions_without_room_for_their_plans_lose_nothing() {
    const SESSIONS: i64 = 16;
    const EXECUTIONS: i64 = 5;
    let server = basic_server("no-room", &["pg_rowsource.max_memory = '2MB'"]);
    let mut reader = server.connect();
    run_each(&mut reader, "CREATE TABLE t AS SELECT 1 AS id");
    let mut sessions: Vec<_> = (0..SESSIONS).map(|_| server.connect()).collect();
    for session in &mut sessions {
        run_each(session, "SET pg_rowsource.statistics_level = 'typical'");
        for _ in 0..EXECUTIONS {
            (0..8).for_each(|i| run_each(session, &different(i)));
        }
    }
    for i in 0..8 {
        let plan = only_kept(&mut reader, &format!("%different {i:03}%"));
        assert_eq!(plan.calls, SESSIONS * EXECUTIONS, "{}", plan.query);
    }
    assert_eq!(info(&mut reader, "refused"), 0);
    server.assert_no_crash();
}
