//! The memory of the store, of its readers, and of each session.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::process;
use rowsource_tests::session::{run_each, value};
use rowsource_tests::store::{basic_server, info, measure_all, only_kept};
use std::time::{Duration, Instant};

const MB: i64 = 1 << 20;

/// Returns a statement that differs from the others in its numbers of columns and conditions.
fn different(columns: usize, conditions: usize) -> String {
    format!(
        "SELECT {}'different' FROM t WHERE {}true",
        "id, ".repeat(columns),
        "id < 5 AND ".repeat(conditions)
    )
}

/// Returns a session's private memory in bytes: without shared memory and files.
fn own_memory(client: &mut Client) -> i64 {
    let pid: i32 = value(client, "SELECT pg_backend_pid()");
    process::private_bytes(pid as u32) as i64
}

fn table(client: &mut Client) {
    run_each(client, "CREATE TABLE t AS SELECT 1 AS id; ANALYZE t");
}

#[test]
fn the_store_keeps_to_its_limit_and_reuses_memory() {
    let server = basic_server("limit", &["pg_rowsource.max_memory = '4MB'"]);
    let mut reader = server.connect();
    let mut runner = server.connect();
    table(&mut runner);
    let mapped = || process::dynamic_shared_memory(server.postmaster()) as i64;
    measure_all(&mut runner);
    // The blocks of statements that run are reused, but never given back. Those of the largest statements are
    // there first.
    for conditions in 40..50 {
        run_each(&mut runner, &different(59, conditions));
    }
    run_each(&mut reader, "SELECT rowsource_reset()");
    assert_eq!(info(&mut reader, "plans"), 0);
    let empty = mapped();
    let mut max_bytes = 0;
    for columns in 1..60 {
        for conditions in 0..50 {
            run_each(&mut runner, &different(columns, conditions));
        }
        max_bytes = max_bytes.max(info(&mut reader, "bytes"));
    }
    let last = different(59, 49);
    assert!(
        max_bytes > 2 * MB && max_bytes <= 4 * MB,
        "{max_bytes} bytes at most"
    );
    assert_eq!(info(&mut reader, "max_bytes"), 4 * MB);
    assert!(info(&mut reader, "evictions") > 0);
    assert_eq!(info(&mut reader, "refused"), 0);
    assert_eq!(only_kept(&mut reader, &last).calls, 1);
    let full = mapped();
    println!("{max_bytes} bytes of plans in {full} bytes of dynamic shared memory, {empty} when empty");
    // Even when empty, the plans' area has a megabyte.
    assert!(
        full - empty <= 3 * MB + MB / 8,
        "{full} bytes mapped, {empty} when empty"
    );

    // A smaller limit applies from the next new plan on.
    run_each(&mut reader, "ALTER SYSTEM SET pg_rowsource.max_memory = '2MB'");
    run_each(&mut reader, "SELECT pg_reload_conf()");
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut conditions = 50;
    while info(&mut reader, "bytes") > 2 * MB && Instant::now() < deadline {
        run_each(&mut runner, &different(1, conditions));
        conditions += 1;
    }
    assert!(info(&mut reader, "bytes") <= 2 * MB);

    run_each(&mut reader, "SELECT rowsource_reset()");
    assert_eq!(info(&mut reader, "plans"), 0);
    assert_eq!(info(&mut reader, "bytes"), 0);
    assert_eq!(info(&mut reader, "truncated"), 0);
    run_each(&mut runner, &different(1, 1));
    assert_eq!(only_kept(&mut reader, &different(1, 1)).calls, 1);
    // PostgreSQL's allocator keeps a segment while it has the last block of some size. What it keeps is used
    // again.
    run_each(&mut reader, "ALTER SYSTEM SET pg_rowsource.max_memory = '4MB'");
    run_each(&mut reader, "SELECT pg_reload_conf()");
    let deadline = Instant::now() + Duration::from_secs(60);
    while info(&mut reader, "max_bytes") != 4 * MB {
        assert!(Instant::now() < deadline, "the limit is not back");
    }
    for columns in 1..60 {
        for conditions in 0..50 {
            run_each(&mut runner, &different(columns, conditions));
        }
    }
    let again = mapped();
    assert!(
        again <= full,
        "{again} bytes mapped the second time, {full} the first time"
    );
    server.assert_no_crash();
}

const PLANS: usize = 5_000;

/// Starts a server, and runs 5,000 plans there. The DO that runs them has a row too.
fn server_with_plans() -> (Server, Client) {
    let server = basic_server("many", &["pg_rowsource.max_plans = 5001"]);
    let mut client = server.connect();
    run_each(
        &mut client,
        "CREATE TABLE t AS SELECT i AS id, i AS other FROM generate_series(1, 3) i; ANALYZE t",
    );
    measure_all(&mut client);
    // Each plan is a Sort over a HashAggregate over a Hash Join of two scans and a Hash.
    client
        .batch_execute(
        "DO $$ BEGIN
             SET LOCAL pg_rowsource.track = 'all'; SET LOCAL enable_mergejoin = off; SET LOCAL enable_nestloop = off;
             FOR columns IN 1..100 LOOP FOR conditions IN 1..50 LOOP
                 EXECUTE format('SELECT %s count(*) FROM t AS one JOIN t AS two ON one.id = two.id WHERE %s true
                                 GROUP BY one.id ORDER BY 1',
                                repeat('one.id, ', columns), repeat('one.other < 1000 AND ', conditions));
             END LOOP; END LOOP;
         END $$",
        )
        .expect("five thousand statements");
    run_each(&mut client, "SET pg_rowsource.statistics_level = 'basic'");
    (server, client)
}

/// `attack_plans.rs` counts what it takes to find one of them.
#[test]
fn five_thousand_plans_fit_and_are_read_in_little_memory() {
    let (server, mut client) = server_with_plans();
    let (plans, bytes) = (info(&mut client, "plans"), info(&mut client, "bytes"));
    println!(
        "{plans} plans of five nodes and more: {} bytes each",
        bytes / plans
    );
    assert_eq!((plans, info(&mut client, "evictions")), (PLANS as i64 + 1, 0));
    assert_eq!(info(&mut client, "refused"), 0);
    let nodes: i64 = value(&mut client, "SELECT count(*) FROM pg_stat_rowsource");
    assert!(nodes >= 5 * plans, "{nodes} nodes");

    // Rows beyond work_mem go to a file.
    let mut reader = server.connect();
    run_each(
        &mut reader,
        "SET work_mem = '1MB'; SELECT plans FROM rowsource_info()",
    );
    let before = own_memory(&mut reader);
    for view in [
        "pg_stat_rowsource",
        "pg_stat_rowsource_histogram",
        "pg_stat_rowsource_plans",
    ] {
        let rows: i64 = value(&mut reader, &format!("SELECT count(*) FROM {view}"));
        let grown = own_memory(&mut reader) - before;
        println!("{view}: {rows} rows, {grown} bytes more");
        assert!(grown < 12 * MB, "{view}: {grown} bytes more");
    }
    server.assert_no_crash();
}

#[test]
fn a_session_keeps_little() {
    let server = basic_server("session-memory", &[]);
    table(&mut server.connect());
    // A thousand statements with texts longer than the stored maximum.
    let padding = "x".repeat(20_000);
    let grown = |level: &str| {
        let mut runner = server.connect();
        run_each(
            &mut runner,
            &format!("SET pg_rowsource.statistics_level = '{level}'"),
        );
        run_each(&mut runner, &different(1, 1));
        let before = own_memory(&mut runner);
        for columns in 1..=1_000 {
            let columns = "id, ".repeat(columns);
            run_each(
                &mut runner,
                &format!("SELECT {columns}1 FROM t WHERE length('{padding}') > id"),
            );
        }
        own_memory(&mut runner) - before
    };
    let (unmeasured, measured) = (grown("basic"), grown("typical"));
    println!("a session that ran 1,000 long statements keeps {measured} bytes more, unmeasured {unmeasured}");
    assert!(
        measured - unmeasured < 7 * MB,
        "{measured} bytes more, unmeasured {unmeasured}"
    );
    server.assert_no_crash();
}
