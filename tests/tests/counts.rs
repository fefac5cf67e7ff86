//! Executions that only hit and change shared buffers are summed up as counts, and their statistics are
//! computed when somebody reads them. What the views show of them is what they show of others.

use postgres::{Client, Statement};
use rowsource_tests::session::{run_each, value};
use rowsource_tests::store::{KeptPlan, basic_server, node_value, only_kept};
use std::ops::Range;

const TABLE: &str = "CREATE TABLE t (id int PRIMARY KEY, grp int);
    INSERT INTO t SELECT i, i % 10 FROM generate_series(1, 10000) i; VACUUM (FREEZE, ANALYZE) t";

/// Statements read tables by an index, with one plan for all parameters.
const BY_INDEX: [&str; 3] = [
    "enable_seqscan = off",
    "enable_bitmapscan = off",
    "plan_cache_mode = force_generic_plan",
];

/// Three nodes: a nested loop over two index scans. It returns a row.
const JOIN: &str = "SELECT a.grp FROM t a JOIN t b ON b.id = a.id + 1 WHERE a.id = $1";

/// What the executions so far should have summed up to.
#[derive(Default)]
struct Expected {
    executions: f64,
    unfinished: i64,
    /// Calls of the root that were timed.
    timed_calls: f64,
    /// Calls of the root that were timed in the last execution.
    last_timed_calls: f64,
}

/// Compares what a session sees with what the executions should have summed up to.
fn check(reader: &mut Client, expected: &Expected, hits: f64) -> KeptPlan {
    let plan = only_kept(reader, "SELECT a.grp FROM t a%");
    assert_eq!(plan.calls as f64, expected.executions);
    let mut of = |node: i32, expression: &str| node_value(reader, &plan, node, expression);
    for node in 0..3 {
        for (expression, wanted) in [
            ("starts", expected.executions),
            ("rows", expected.executions),
            ("last_starts", 1.0),
            ("last_rows", 1.0),
            ("shared_blks_read + shared_blks_dirtied + wal_records", 0.0),
        ] {
            assert_eq!(of(node, expression), wanted, "node {node}: {expression}");
        }
    }
    for (node, part) in [(0, 1.0), (1, 0.5), (2, 0.5)] {
        assert_eq!(
            of(node, "shared_blks_hit"),
            hits * part * expected.executions,
            "{node}"
        );
        assert_eq!(of(node, "last_shared_blks_hit"), hits * part, "{node}");
    }
    assert_eq!(of(0, "timed_calls"), expected.timed_calls);
    assert_eq!(of(0, "timer_calls"), 2.0 * expected.timed_calls);
    assert_eq!(of(0, "coalesce(last_timed_calls, 0)"), expected.last_timed_calls);
    let sum_of_nodes = (0..3).map(|node| of(node, "self_time")).sum::<f64>();
    let total = of(0, "total_time");
    assert!(
        (total - sum_of_nodes).abs() < 1e-9 * total,
        "{total} {sum_of_nodes}"
    );
    assert!(total <= plan.total_time, "{total} {plan:?}");
    assert_eq!(of(0, "(total_time >= startup_time AND p50_time > 0)::int"), 1.0);
    plan
}

#[test]
fn sums_and_last_values_are_those_of_the_executions() {
    let server = basic_server(
        "counts",
        &[
            &BY_INDEX[..],
            &[
                "enable_hashjoin = off",
                "enable_mergejoin = off",
                "enable_material = off",
                "enable_memoize = off",
            ],
        ]
        .concat(),
    );
    let (mut runner, mut reader) = (server.connect(), server.connect());
    run_each(&mut runner, TABLE);
    run_each(&mut runner, "SET pg_rowsource.statistics_level = 'typical'");
    let join = runner.prepare(JOIN).expect(JOIN);
    let mut id = 0;
    let mut run = |runner: &mut Client| {
        id += 1;
        assert_eq!(runner.query(&join, &[&id]).expect(JOIN).len(), 1);
    };
    // The first executions also read catalogs.
    for _ in 0..3 {
        run(&mut runner);
    }
    let plan = only_kept(&mut reader, "SELECT a.grp FROM t a%");
    let hits = node_value(&mut reader, &plan, 0, "last_shared_blks_hit");
    assert!(hits >= 4.0, "{hits}");
    run_each(&mut reader, "SELECT rowsource_reset()");
    let mut expected = Expected::default();
    for round in 0..3 {
        for (setting, calls) in [
            ("SET pg_rowsource.sampfreq = 128", 2.0),
            ("SET pg_rowsource.clock_source = system", 2.0),
            ("SET pg_rowsource.sampfreq = 0", 0.0),
            // Each call is timed in another way, without counts.
            ("SET pg_rowsource.sampfreq = 1", 2.0),
            ("RESET pg_rowsource.clock_source", 2.0),
        ] {
            run_each(&mut runner, setting);
            for _ in 0..5 + round {
                run(&mut runner);
                expected.executions += 1.0;
                expected.timed_calls += calls;
            }
            expected.last_timed_calls = calls;
            // A statement of the runner itself sees the execution too.
            let shown: String = value(
                &mut runner,
                "SELECT string_agg(line, E'\\n') FROM rowsource_display() AS line",
            );
            assert!(
                shown.contains("Nested Loop") && shown.contains("Index Scan"),
                "{shown}"
            );
            check(&mut reader, &expected, hits);
        }
        // An execution whose caller stops reading has no counts either.
        run_each(&mut runner, "SET pg_rowsource.sampfreq = 128");
        run(&mut runner);
        let mut transaction = runner.transaction().expect("BEGIN");
        let portal = transaction.bind(&join, &[&1]).expect("a portal");
        let rows = transaction.query_portal(&portal, 1).expect("a row");
        assert_eq!(rows.len(), 1);
        drop(portal);
        transaction.commit().expect("COMMIT");
        expected.executions += 2.0;
        expected.unfinished += 1;
        expected.timed_calls += 3.0;
        expected.last_timed_calls = 1.0;
        check(&mut reader, &expected, hits);
    }
    let unfinished: i64 = value(
        &mut reader,
        "SELECT unfinished_calls FROM pg_stat_rowsource_plans WHERE query LIKE 'SELECT a.grp FROM t a%'",
    );
    assert_eq!(unfinished, expected.unfinished);
    server.assert_no_crash();
}

/// Statements that change or lock rows, each by key. `$t` is the table.
const CHANGES: [&str; 7] = [
    "UPDATE $t SET grp = grp + 1 WHERE id = $1",
    "INSERT INTO $t VALUES ($1 + 20000, 7)",
    "DELETE FROM $t WHERE id = $1 + 1000",
    "UPDATE $t SET grp = grp - 1 WHERE id = $1 RETURNING id, grp",
    "INSERT INTO $t VALUES ($1, 0) ON CONFLICT (id) DO UPDATE SET grp = 5",
    "MERGE INTO $t USING (VALUES ($1::int)) s (i) ON id = s.i WHEN MATCHED THEN UPDATE SET grp = grp + 1",
    "SELECT grp FROM $t WHERE id = $1 FOR UPDATE",
];

/// Creates a table with `groups` groups and an index on these if `has_index`, and prepares the statements on
/// it. `$t` is the table. They are measured from then on, with this frequency.
fn prepare_on(
    runner: &mut Client,
    table: &str,
    (groups, has_index): (u32, bool),
    sampfreq: u32,
    statements: &[&str],
) -> Vec<Statement> {
    run_each(runner, &format!("SET pg_rowsource.sampfreq = {sampfreq}"));
    run_each(
        runner,
        &format!(
            "CREATE TABLE {table} (id int PRIMARY KEY, grp int);
            INSERT INTO {table} SELECT i, i % {groups} FROM generate_series(1, 10000) i"
        ),
    );
    if has_index {
        run_each(runner, &format!("CREATE INDEX ON {table} (grp)"));
    }
    run_each(
        runner,
        &format!("VACUUM (FREEZE, ANALYZE) {table}; SET pg_rowsource.statistics_level = 'typical'"),
    );
    let statements = statements.iter().map(|sql| {
        let sql = sql.replace("$t", table);
        runner.prepare(&sql).expect(&sql)
    });
    statements.collect()
}

/// Executes the statements in turn, once with each of these numbers.
fn run_all(runner: &mut Client, statements: &[Statement], numbers: Range<i32>) {
    for number in numbers {
        for statement in statements {
            runner.query(statement, &[&number]).expect("a statement");
        }
    }
}

/// Forgets the executions of all statements on a table.
fn reset(reader: &mut Client, table: &str) {
    run_each(
        reader,
        &format!(
            "SELECT rowsource_reset(queryid => queryid) FROM pg_stat_rowsource_plans WHERE query LIKE '%{table}%'"
        ),
    );
}

/// Returns what the views show of the statements that changed a table: all that does not depend on time.
fn changes_of(reader: &mut Client, table: &str) -> Vec<String> {
    let rows = reader
        .query(
            "SELECT concat_ws(' ', replace(replace(p.query, $1 || '_pkey', 'pkey'), $1, 'table'), 'calls', p.calls,
                    'rows', p.rows, 'wal', p.wal_records, p.wal_fpi, p.wal_bytes, 'dirtied', p.shared_blks_dirtied,
                    'node', n.node_id, n.starts, n.last_starts, n.rows, n.last_rows,
                    'hit', n.shared_blks_hit, n.last_shared_blks_hit, 'read', n.shared_blks_read,
                    'dirtied', n.shared_blks_dirtied, n.last_shared_blks_dirtied,
                    'wal', n.wal_records, n.last_wal_records, n.wal_fpi, n.wal_bytes, n.last_wal_bytes,
                    'own', n.self_wal_records, n.details - 'Heap Blocks')
             FROM pg_stat_rowsource_plans p JOIN pg_stat_rowsource n USING (queryid, planid)
             WHERE p.query LIKE '%' || $1 || '%' ORDER BY 1",
            &[&table],
        )
        .expect("the views");
    rows.iter().map(|row| row.get(0)).collect()
}

#[test]
fn changes_are_those_of_executions_without_counts() {
    let server = basic_server(
        "counts-changes",
        &[
            &BY_INDEX[..],
            &[
                "autovacuum = off",
                "full_page_writes = on",
                "checkpoint_timeout = '1d'",
            ],
        ]
        .concat(),
    );
    let (mut runner, mut reader) = (server.connect(), server.connect());
    // Every call is timed in another way, without counts.
    for (table, sampfreq) in [("counted", 128), ("computed", 1)] {
        let statements = prepare_on(&mut runner, table, (10, false), sampfreq, &CHANGES);
        // The first executions also read catalogs.
        run_all(&mut runner, &statements, 1..4);
        reset(&mut reader, table);
        // The next changes dirty blocks, and write images of them.
        run_each(&mut reader, "CHECKPOINT");
        run_all(&mut runner, &statements, 4..11);
        run_each(&mut runner, "SET pg_rowsource.statistics_level = 'basic'");
    }
    let counted = changes_of(&mut reader, "counted");
    assert_eq!(counted.len(), 2 * CHANGES.len(), "{counted:#?}");
    assert_eq!(counted, changes_of(&mut reader, "computed"));
    for part in [
        "calls 7 rows 7 wal 14 ",
        "\"Tuples Updated\": 7",
        "\"Tuples Inserted\": 7",
        "\"Tuples Deleted\": 7",
    ] {
        assert!(
            counted.iter().any(|line| line.contains(part)),
            "{part}: {counted:#?}"
        );
    }
    // Executions with triggers have no counts. The plan is the same.
    run_each(
        &mut runner,
        "CREATE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
        CREATE TRIGGER noted AFTER UPDATE ON counted FOR EACH ROW EXECUTE FUNCTION noted();
        SET pg_rowsource.sampfreq = 128; SET pg_rowsource.statistics_level = 'typical'",
    );
    let update = CHANGES[0].replace("$t", "counted");
    let update = runner.prepare(&update).expect("an UPDATE");
    for id in 20..23 {
        runner.query(&update, &[&id]).expect("an UPDATE");
    }
    let calls: String = value(
        &mut reader,
        "SELECT string_agg(concat_ws(' ', calls, rows, details -> 'Triggers' -> 0 ->> 'Calls'), ',')
         FROM pg_stat_rowsource_plans WHERE query LIKE 'UPDATE counted%' AND details IS NOT NULL",
    );
    assert_eq!(calls, "10 10 3");
    // The child's trigger is that of a statement on the parent.
    run_each(
        &mut runner,
        "CREATE TABLE child () INHERITS (counted); INSERT INTO child VALUES (50000, 1); DROP TRIGGER noted ON counted;
        CREATE TRIGGER noted AFTER UPDATE ON child FOR EACH ROW EXECUTE FUNCTION noted()",
    );
    for _ in 0..3 {
        run_each(&mut runner, "UPDATE counted SET grp = 77 WHERE id = 50000");
    }
    let calls: String = value(
        &mut reader,
        "SELECT concat_ws(' ', calls, rows, details -> 'Triggers' -> 0 ->> 'Calls')
         FROM pg_stat_rowsource_plans WHERE query LIKE 'UPDATE counted SET grp = _% WHERE%' AND query NOT LIKE '%grp = grp%'",
    );
    assert_eq!(calls, "3 3 3");
    server.assert_no_crash();
}

/// Before its first row, an index scan computes the keys that depend on parameters, and PostgreSQL starts it
/// again.
#[test]
fn scans_with_computed_keys_start_once() {
    let server = basic_server("counts-keys", &BY_INDEX);
    let (mut runner, mut reader) = (server.connect(), server.connect());
    run_each(&mut runner, TABLE);
    run_each(
        &mut runner,
        "CREATE INDEX ON t (grp); SET pg_rowsource.statistics_level = 'typical'",
    );
    for (sql, rows) in [
        ("SELECT count(*) FROM t WHERE grp = $1", 1_000.0),
        ("SELECT sum(id) FROM t WHERE grp = $1", 1_000.0),
    ] {
        for sampfreq in [0, 1, 2, 128] {
            run_each(&mut runner, &format!("SET pg_rowsource.sampfreq = {sampfreq}"));
            // Each frequency has a set-up of its own.
            run_each(&mut reader, "SELECT rowsource_reset()");
            let statement = runner.prepare(sql).expect(sql);
            for _ in 0..3 {
                runner.query(&statement, &[&7]).expect(sql);
            }
            let plan = only_kept(&mut reader, &format!("{}%", &sql[..12]));
            let mut of_scan = |column: &str| node_value(&mut reader, &plan, 1, column);
            let found = ["starts", "rows", "last_starts", "last_rows"].map(&mut of_scan);
            assert_eq!(found, [3.0, 3.0 * rows, 1.0, rows], "{sql}, sampfreq {sampfreq}");
        }
    }
    server.assert_no_crash();
}

/// Statements whose scans use a bitmap. Core measures the index scans, and some nodes make so many calls that
/// not all are timed.
const BITMAPS: [&str; 4] = [
    "SELECT id FROM $t WHERE grp = $1",
    "SELECT id FROM $t WHERE grp = $1 OR id < 40 + $1",
    "SELECT a.id, b.grp FROM $t a JOIN $t b ON b.id = a.id + 1 WHERE a.grp = $1 AND a.id < 1000",
    "SELECT count(*) FROM $t WHERE grp = $1 AND id % 7 = 0",
];

/// Returns what the views show of the statements that read a table: all that does not depend on time.
fn scans_of(reader: &mut Client, table: &str) -> Vec<String> {
    let rows = reader
        .query(
            "SELECT concat_ws(' ', replace(p.query, $1, 'table'), 'calls', p.calls, 'rows', p.rows, 'node', n.node_id, n.operation,
                    n.starts, n.last_starts, n.rows, n.last_rows, 'hit', n.shared_blks_hit, n.last_shared_blks_hit,
                    'read', n.shared_blks_read, 'dirtied', n.shared_blks_dirtied, 'wal', n.wal_records,
                    'timed', n.total_time IS NOT NULL, n.last_total_time IS NOT NULL, n.details)
             FROM pg_stat_rowsource_plans p JOIN pg_stat_rowsource n USING (queryid, planid)
             WHERE p.query LIKE '%' || $1 || '%' ORDER BY p.query, n.node_id",
            &[&table],
        )
        .expect("the views");
    rows.iter().map(|row| row.get(0)).collect()
}

#[test]
fn bitmap_scans_are_those_of_executions_without_counts() {
    let server = basic_server(
        "counts-bitmaps",
        &[
            "enable_seqscan = off",
            "enable_indexscan = off",
            "enable_indexonlyscan = off",
            "enable_hashjoin = off",
            "enable_mergejoin = off",
            "enable_material = off",
            "enable_memoize = off",
            "plan_cache_mode = force_generic_plan",
            "autovacuum = off",
        ],
    );
    let (mut runner, mut reader) = (server.connect(), server.connect());
    let mut shown = Vec::new();
    // Every call is timed in another way, without counts.
    for (table, sampfreq) in [("counted", 128), ("computed", 1)] {
        let statements = prepare_on(&mut runner, table, (50, true), sampfreq, &BITMAPS);
        // The first executions also read catalogs and blocks.
        run_all(&mut runner, &statements, 1..50);
        reset(&mut reader, table);
        run_all(&mut runner, &statements, 1..50);
        run_each(&mut runner, "SET pg_rowsource.statistics_level = 'basic'");
        // From 19 on, joins of tables with the same aliases have the same queryid, so the next round resets
        // these, too.
        shown.push(scans_of(&mut reader, table));
    }
    let [counted, computed] = &shown[..] else {
        panic!("{shown:#?}")
    };
    assert_eq!(counted, computed);
    for part in [
        "calls 49 rows 9800 node 0 Bitmap Heap Scan 49 1 9800 200 ",
        "BitmapOr 49 1 0 0 hit 204 4 ",
        "Bitmap Index Scan 49 1 9800 200 ",
        "\"Exact Heap Blocks\"",
    ] {
        assert!(
            counted.iter().any(|line| line.contains(part)),
            "{part}: {counted:#?}"
        );
    }
    server.assert_no_crash();
}

/// A session that has executed a plan many times times fewer of a node's first calls.
#[test]
fn known_plans_have_fewer_timed_calls() {
    const ROWS: f64 = 200.0;
    let server = basic_server("counts-known", &BY_INDEX);
    let (mut runner, mut reader) = (server.connect(), server.connect());
    run_each(&mut runner, TABLE);
    run_each(&mut runner, "SET pg_rowsource.statistics_level = 'typical'");
    let statement = runner
        .prepare("SELECT grp FROM t WHERE id <= $1")
        .expect("a statement");
    let mut run = |executions: usize| {
        for _ in 0..executions {
            let rows = runner.query(&statement, &[&(ROWS as i32)]).expect("rows");
            assert_eq!(rows.len(), ROWS as usize);
        }
    };
    run(16);
    let plan = only_kept(&mut reader, "SELECT grp%");
    let mut of = |column: &str| node_value(&mut reader, &plan, 0, column);
    let first = of("timed_calls") / 16.0;
    assert!(first > 30.0, "{first}");
    run(100);
    let later = (of("timed_calls") - 16.0 * first) / 100.0;
    assert!((10.0..30.0).contains(&later), "{later}");
    // Rows and starts stay exact, and no node has more time than the statement.
    assert_eq!((of("rows"), of("starts")), (116.0 * ROWS, 116.0));
    assert_eq!((of("last_rows"), of("last_starts")), (ROWS, 1.0));
    let (node_ms, all_ms) = (of("total_time"), plan_time(&mut reader));
    assert!(
        (f64::MIN_POSITIVE..all_ms).contains(&node_ms),
        "{node_ms} of {all_ms}"
    );
    server.assert_no_crash();
}

/// Returns the time of the statements that were executed.
fn plan_time(reader: &mut Client) -> f64 {
    value(
        reader,
        "SELECT sum(total_time) FROM pg_stat_rowsource_plans WHERE query LIKE 'SELECT grp%'",
    )
}
