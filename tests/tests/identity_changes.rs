//! Planids are the same while others change what a plan uses, and in the processes of a parallel query.

use postgres::Client;
use rowsource_tests::explain::first_column;
use rowsource_tests::session::{major, run_each, texts, value};
use rowsource_tests::store::{basic_server, measure_all, measured};
use rowsource_tests::waiting::{pid, until_waiting};

/// Runs a statement, and returns the planid of its plan.
fn planid(client: &mut Client, sql: &str) -> i64 {
    measured(client, sql);
    value(client, "SELECT planid FROM rowsource_last()")
}

const NO_SCANS: &str = "SET enable_seqscan = off; SET enable_bitmapscan = off; SET lock_timeout = '20s'";
const TABLE: &str = "CREATE TABLE t (id int, name text, state text);
    CREATE INDEX t_name ON t (lower(name) text_pattern_ops) WHERE state = 'open';
    INSERT INTO t SELECT i, 'name ' || i, 'open' FROM generate_series(1, 1000) i; ANALYZE t";

/// Returns a statement that no session has described, if the number is new: the plan is always the same.
fn statement(number: usize) -> String {
    let columns = ", 1".repeat(number);
    format!("SELECT max(id){columns} FROM t WHERE lower(name) = 'name 5' AND state = 'open'")
}

/// A description waits for nobody who changes tables, indexes, schemas or types, and finds what is committed.
#[test]
fn what_others_change_is_not_waited_for() {
    let server = basic_server("identity-altered", &[]);
    let mut client = server.connect();
    run_each(
        &mut client,
        "CREATE SCHEMA s; CREATE TYPE s.mood AS ENUM ('sad', 'happy');
         CREATE TABLE s.part (id int, mood s.mood, name text) PARTITION BY LIST (id);
         CREATE TABLE s.part_1 PARTITION OF s.part FOR VALUES IN (1);
         CREATE TABLE s.part_2 PARTITION OF s.part FOR VALUES IN (2);
         CREATE INDEX part_1_name ON s.part_1 (lower(name)) WHERE mood = 'sad';
         INSERT INTO s.part SELECT 1, 'sad', 'name ' || i FROM generate_series(1, 1000) i; ANALYZE s.part",
    );
    let counted = "SELECT count(*) FROM s.part WHERE id = 1 AND mood = 'sad' AND lower(name) = 'name 5'";
    let run = |statement: &str| {
        let mut new = server.connect();
        run_each(
            &mut new,
            "SET enable_seqscan = off; SET enable_bitmapscan = off; SET lock_timeout = '2s'",
        );
        planid(&mut new, statement)
    };
    let first = run(counted);
    let mut other = server.connect();
    for (number, change) in [
        "LOCK TABLE s.part_2 IN ACCESS EXCLUSIVE MODE",
        "ALTER INDEX s.part_1_name RENAME TO part_1_other",
        "ALTER SCHEMA s RENAME TO other",
        "ALTER TYPE s.mood RENAME VALUE 'sad' TO 'blue'",
        "ALTER TYPE s.mood RENAME TO humour",
        "CREATE INDEX ON s.part_2 (name)",
        "ALTER TABLE s.part_1 SET (autovacuum_enabled = off)",
        "ALTER TABLE s.part_1 ALTER name SET STATISTICS 500",
        "CREATE INDEX ON s.part_1 (name)",
        "LOCK TABLE s.part, s.part_1 IN SHARE ROW EXCLUSIVE MODE",
    ]
    .iter()
    .enumerate()
    {
        run_each(&mut other, &format!("BEGIN; {change}"));
        // Another statement of the same plan, which no session has described.
        let columns = ", 1".repeat(number + 1);
        let same = counted.replace("count(*)", &format!("count(*){columns}"));
        assert_eq!(run(&same), first, "{change}");
        run_each(&mut other, "ROLLBACK");
    }
}

/// Somebody waits for the plan's table, to change it: a session that has it open describes its plans all the
/// same.
#[test]
fn who_waits_for_the_table_is_not_waited_for() {
    let server = basic_server("identity-queue", &[]);
    let (mut client, mut other) = (server.connect(), server.connect());
    run_each(&mut client, TABLE);
    run_each(&mut client, NO_SCANS);
    let first = planid(&mut client, &statement(0));
    for (number, change) in [
        "ALTER TABLE t ADD more int",
        "ALTER TABLE t ALTER id SET NOT NULL",
        "REINDEX INDEX t_name",
        "ALTER TABLE t ALTER id TYPE int8",
    ]
    .into_iter()
    .enumerate()
    {
        let id = pid(&mut other);
        run_each(&mut client, "BEGIN");
        run_each(&mut client, &statement(0));
        std::thread::scope(|scope| {
            let changing = scope.spawn(|| run_each(&mut other, change));
            until_waiting(&mut server.connect(), id, "relation");
            assert_eq!(planid(&mut client, &statement(2 * number + 1)), first, "{change}");
            run_each(&mut client, "COMMIT");
            changing.join().expect("the change");
        });
        let mut new = server.connect();
        run_each(&mut new, NO_SCANS);
        assert_eq!(planid(&mut new, &statement(2 * number + 2)), first, "{change}");
    }
}

/// While the plan's own table is changed all the time, each description finds the same planid.
#[test]
fn a_table_that_changes_all_the_time_has_the_same_planids() {
    let server = basic_server("identity-changing", &[]);
    let (mut client, mut other) = (server.connect(), server.connect());
    run_each(&mut client, TABLE);
    run_each(&mut client, NO_SCANS);
    let first = planid(&mut client, &statement(0));
    std::thread::scope(|scope| {
        let changing = scope.spawn(|| {
            for _ in 0..40 {
                run_each(
                    &mut other,
                    "ALTER TABLE t ADD more int; REINDEX INDEX CONCURRENTLY t_name; ALTER TABLE t DROP more;
                     ALTER INDEX t_name RENAME TO t_other; ALTER INDEX t_other RENAME TO t_name",
                );
            }
        });
        let mut number = 0;
        while !changing.is_finished() || number < 20 {
            number += 1;
            assert_eq!(planid(&mut client, &statement(number % 1500)), first, "{number}");
        }
        changing.join().expect("the changes");
    });
    server.assert_no_crash();
}

/// The leader of a parallel query describes the statements of its functions, although settings cannot be
/// changed then. Workers describe nothing, and what a function runs there is not stored.
#[test]
fn a_statement_inside_a_parallel_query_has_the_same_planid() {
    let server = basic_server("identity-parallel", &["pg_rowsource.track = 'all'"]);
    let mut client = server.connect();
    run_each(&mut client, TABLE);
    run_each(
        &mut client,
        "CREATE TABLE many AS SELECT i FROM generate_series(1, 1000) i; ANALYZE many;
         SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0",
    );
    let forced = if major(&mut client) < 16 {
        "force_parallel_mode"
    } else {
        "debug_parallel_query"
    };
    let scan = "count(name_of(i)) FROM many";
    for (number, settings, outer, is_worker) in [
        // No worker starts, so the leader runs all.
        (
            1,
            "SET max_parallel_workers_per_gather = 2; SET max_parallel_workers = 0",
            scan,
            false,
        ),
        (
            2,
            "RESET max_parallel_workers; SET parallel_leader_participation = off",
            scan,
            true,
        ),
        (
            3,
            &*format!("RESET parallel_leader_participation; SET {forced} = on"),
            "name_of(1)",
            true,
        ),
    ] {
        let inner = statement(number);
        client
            .batch_execute(&format!(
                "CREATE OR REPLACE FUNCTION name_of(i int) RETURNS int PARALLEL SAFE LANGUAGE plpgsql AS $$ BEGIN EXECUTE $inner${inner}$inner$ INTO i;
                     RETURN pg_backend_pid(); END $$"
            ))
            .expect("the function is made");
        run_each(&mut client, settings);
        let plan = first_column(&mut client, &format!("EXPLAIN SELECT {outer}")).join("\n");
        assert!(plan.contains("Gather"), "{plan}");
        let ran_in = outer.replace("count(", "min(");
        measure_all(&mut client);
        let ran: i32 = value(&mut client, &format!("SELECT {ran_in}"));
        run_each(&mut client, "SET pg_rowsource.statistics_level = basic");
        assert_eq!(ran != pid(&mut client), is_worker, "{settings}");
        run_each(&mut client, &format!("SET {forced} = off"));
        let alone = planid(&mut server.connect(), &inner);
        let inside = texts(
            &mut client,
            &format!(
                "SELECT planid::text, (calls > 0)::text FROM pg_stat_rowsource_plans
                  WHERE NOT toplevel AND query = $inner${inner}$inner$"
            ),
        );
        let expected = vec![Some(alone.to_string()), Some("true".to_owned())];
        assert_eq!(
            inside,
            if is_worker { vec![] } else { vec![expected] },
            "{settings}"
        );
    }
}
